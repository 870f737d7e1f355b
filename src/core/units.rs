//! Durations and sizes: one grammar, for the configuration and the command line.

use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use jiff::{SignedDuration, SpanRelativeTo};

use crate::core::spelling::{Format, Text, Wrong, text_value};

/// The formats of these values.
pub const FORMATS: &[Format] =
    &[Format::of::<Span>(), Format::of::<Margin>(), Format::of::<Period>(), Format::of::<ByteSize>()];

/// Units of a duration, longest first, in milliseconds.
const DURATION_UNITS: [(&str, u64); 6] =
    [("w", 604_800_000), ("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];

/// Units of a size, largest first.
const SIZE_UNITS: [(&str, u64); 9] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1000),
    ("B", 1),
];

/// A time limit or an age: never zero.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(Duration);

impl Span {
    /// Creates a span of so many seconds.
    #[must_use]
    pub const fn from_secs(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }
}

impl From<Duration> for Span {
    fn from(duration: Duration) -> Self {
        Self(duration)
    }
}

impl Deref for Span {
    type Target = Duration;

    fn deref(&self) -> &Duration {
        &self.0
    }
}

// In a sentence it is the duration that it stands for.
impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format_duration(self.0))
    }
}

impl Text for Span {
    const FORMAT: &'static str = "time-span";
    const EXPECTED: &'static str = "a duration such as \"30s\", \"10m\", \"1h30m\" or \"30d\"";

    fn read(text: &str) -> Result<Self, Wrong> {
        match parse_duration(text) {
            Ok(duration) if duration.as_millis() == 0 => Err(format!("{text:?}: a duration of zero").into()),
            Ok(duration) => Ok(Self(duration)),
            Err(found) => {
                let wrong = Wrong::from(format!("{text:?}: {found}"));
                let number = text.trim();
                let bare = number.bytes().all(|b| b.is_ascii_digit()) && number.bytes().any(|b| b != b'0');
                Err(if bare { wrong.near(format!("{number}s")) } else { wrong })
            }
        }
    }
}

text_value!(Span);

/// A difference of times, which may be none.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Margin(Duration);

impl Margin {
    /// Creates a margin of so many seconds.
    #[must_use]
    pub const fn from_secs(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }
}

impl Deref for Margin {
    type Target = Duration;

    fn deref(&self) -> &Duration {
        &self.0
    }
}

impl fmt::Debug for Margin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Margin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_zero() { f.write_str("0s") } else { f.write_str(&format_duration(self.0)) }
    }
}

impl Text for Margin {
    const FORMAT: &'static str = "margin";
    const EXPECTED: &'static str = "a duration such as \"20ms\" or \"1s\"; or \"0s\" for none";

    fn read(text: &str) -> Result<Self, Wrong> {
        match parse_duration(text) {
            Ok(Duration::ZERO) => Ok(Self(Duration::ZERO)),
            // Less than a millisecond is no zero.
            Ok(_) | Err(_) => Span::read(text).map(|span| Self(*span)),
        }
    }
}

text_value!(Margin);

/// An interval: at least a second, or never, which is zero.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Period(Duration);

impl Period {
    /// Every so many seconds.
    #[must_use]
    pub const fn from_secs(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }
}

impl Deref for Period {
    type Target = Duration;

    fn deref(&self) -> &Duration {
        &self.0
    }
}

impl fmt::Debug for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_zero() { f.write_str("off") } else { f.write_str(&format_duration(self.0)) }
    }
}

impl Text for Period {
    const FORMAT: &'static str = "period";
    const EXPECTED: &'static str = "a duration of at least \"1s\", such as \"10m\" or \"1h30m\"; or \"off\" for never";

    fn read(text: &str) -> Result<Self, Wrong> {
        if matches!(text.trim(), "off" | "0") {
            return Ok(Self(Duration::ZERO));
        }
        match parse_duration(text) {
            // Who writes that may mean never, or all the time.
            Ok(Duration::ZERO) => Err(format!("{text:?}: a duration of zero").into()),
            Ok(short) if short < Duration::from_secs(1) => {
                Err(Wrong::from(format!("{text:?}: less than a second")).near("1s"))
            }
            Ok(period) => Ok(Self(period)),
            Err(_) => Span::read(text).map(|span| Self(*span)),
        }
    }
}

text_value!(Period);

/// A number of bytes, never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub u64);

impl ByteSize {
    /// Returns the size as one of memory.
    #[must_use]
    pub fn in_memory(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = SIZE_UNITS.iter().find(|(_, factor)| self.0.is_multiple_of(*factor) && self.0 > 0);
        match unit {
            Some((unit, factor)) => write!(f, "{}{unit}", self.0 / factor),
            None => write!(f, "{}B", self.0),
        }
    }
}

impl Text for ByteSize {
    const FORMAT: &'static str = "size";
    const EXPECTED: &'static str = "a size such as \"512MiB\" or \"10GiB\"";

    fn read(text: &str) -> Result<Self, Wrong> {
        parse_size(text).map(Self).map_err(|found| {
            let wrong = Wrong::from(format!("{text:?}: {found}"));
            let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
            let unit = match text[digits.len()..].trim().to_lowercase().as_str() {
                "" | "b" | "byte" | "bytes" => "B",
                "k" | "kb" | "ki" | "kib" => "KiB",
                "m" | "mb" | "mi" | "mib" => "MiB",
                "g" | "gb" | "gi" | "gib" => "GiB",
                "t" | "tb" | "ti" | "tib" => "TiB",
                _ => return wrong,
            };
            if digits.bytes().all(|b| b == b'0') { wrong } else { wrong.near(format!("{digits}{unit}")) }
        })
    }
}

text_value!(ByteSize);

/// Reads a duration that does not go backwards. See [`parse_signed`].
///
/// # Errors
/// Says what is wrong, without saying what was expected.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    Duration::try_from(parse_signed(text)?).map_err(|_| "a duration that is negative".to_owned())
}

/// Reads a duration: whole numbers with units in any order (`30s`, `1h30m`, `250ms`, `2w`), or as people and ISO 8601
/// write it (`2 days`, `1.5h`, `PT1H`). A day has 24 hours, and longer than a week there is no unit.
///
/// # Errors
/// Says what is wrong, without saying what was expected.
pub fn parse_signed(text: &str) -> Result<SignedDuration, String> {
    let text = text.trim();
    parse_units(text).or_else(|found| {
        let span = text.parse::<jiff::Span>().ok();
        span.and_then(|span| span.to_duration(SpanRelativeTo::days_are_24_hours()).ok()).ok_or(found)
    })
}

fn parse_units(text: &str) -> Result<SignedDuration, String> {
    const TOO_LARGE: &str = "a number that is too large";
    let mut rest = text;
    if rest.is_empty() {
        return Err("an empty text".to_owned());
    }
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let (number, unit, tail) = number_and_unit(rest)?;
        let Some((_, factor)) = DURATION_UNITS.iter().find(|(name, _)| *name == unit) else {
            return Err(no_unit(unit, "w, d, h, m, s, ms"));
        };
        total = number.checked_mul(*factor).and_then(|ms| total.checked_add(ms)).ok_or(TOO_LARGE)?;
        rest = tail;
    }
    i64::try_from(total).map(SignedDuration::from_millis).map_err(|_| TOO_LARGE.to_owned())
}

/// Writes a duration as [`parse_duration`] reads it.
#[must_use]
pub fn format_duration(duration: Duration) -> String {
    let mut rest = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let mut out = String::new();
    // Weeks are read but not written: "30d" is what people say.
    for (unit, factor) in &DURATION_UNITS[1..] {
        if rest >= *factor {
            out.push_str(&format!("{}{unit}", rest / factor));
            rest %= factor;
        }
    }
    if out.is_empty() { "0s".to_owned() } else { out }
}

/// Reads `10GiB`, `500MB`, `4096B`: a whole number with a unit, not zero.
fn parse_size(text: &str) -> Result<u64, String> {
    let text = text.trim();
    if text.is_empty() {
        return Err("an empty text".to_owned());
    }
    let (number, unit, rest) = number_and_unit(text)?;
    if !rest.is_empty() {
        return Err(format!("{rest:?} after the unit"));
    }
    let Some((_, factor)) = SIZE_UNITS.iter().find(|(name, _)| *name == unit) else {
        return Err(no_unit(unit, "B, KiB, MiB, GiB, TiB"));
    };
    match number.checked_mul(*factor) {
        Some(0) => Err("a size of zero".to_owned()),
        Some(size) => Ok(size),
        None => Err("a number that is too large".to_owned()),
    }
}

fn no_unit(unit: &str, units: &str) -> String {
    if unit.is_empty() { format!("no unit (units: {units})") } else { format!("the unit {unit:?} (units: {units})") }
}

fn number_and_unit(text: &str) -> Result<(u64, &str, &str), String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    if digits == 0 {
        return Err(format!("{text:?} where a whole number belongs"));
    }
    let number = text[..digits].parse().map_err(|_| "a number that is too large".to_owned())?;
    let rest = text[digits..].trim_start();
    let letters = rest.find(|c: char| !c.is_alphabetic()).unwrap_or(rest.len());
    Ok((number, &rest[..letters], rest[letters..].trim_start()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_people_write_them() {
        for (text, seconds) in [
            ("30s", 30),
            ("1h30m", 5400),
            (" 1h 30m ", 5400),
            ("30m1h", 5400),
            ("2w", 14 * 86400),
            ("2 days", 2 * 86400),
            ("1 hour 30 minutes", 5400),
            ("1.5h", 5400),
            ("PT1H", 3600),
        ] {
            assert_eq!(parse_duration(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", "30", "-1s", "1h ago", "1 month", "soon", "99999999999999999999s"] {
            parse_duration(text).unwrap_err();
        }
        assert_eq!(Span::read("3 days").unwrap().to_string(), "3d");
        Span::read("1us").unwrap_err();
    }
}
