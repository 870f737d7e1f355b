//! Values that TOML has no type for: sizes, durations, addresses; and the texts that the schema gives a format.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{From as Begin, Listen, Recover, RecoverBounds};
use crate::wire::Payload;

pub(super) const fn keep() -> u32 {
    14
}

pub(super) const fn yes() -> bool {
    true
}

pub(super) const fn batch_size() -> usize {
    100
}

/// The subject of messages where none is configured.
pub(super) const SUBJECT: &str = "decklog.{resource}.{namespace}";

pub(super) fn subject() -> String {
    SUBJECT.to_owned()
}

pub(super) const fn segment_size() -> u64 {
    16 << 20
}

pub(super) const fn segment_age() -> Duration {
    Duration::from_mins(1)
}

pub(super) fn decklog() -> String {
    "decklog".to_owned()
}

pub(super) fn journald_socket() -> PathBuf {
    "/run/systemd/journal/socket".into()
}

pub(super) fn dev_log() -> String {
    "unix:///dev/log".to_owned()
}

/// The number is the one for examples (RFC 5612): decklog has none of its own.
pub(super) fn sd_id() -> String {
    "decklog@32473".to_owned()
}

/// What rsyslog takes unless it is told otherwise. It cuts what is longer.
pub(super) const fn max_message_size() -> u64 {
    8 << 10
}

pub(super) const fn timeout() -> Duration {
    Duration::from_secs(30)
}

/// Units of a duration, longest first.
const DURATION_UNITS: [(&str, u64); 6] =
    [("w", 604_800_000), ("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];

/// What is found of a duration that is none.
pub(super) const ZERO: &str = "a duration of zero";

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

/// Reads `30s`, `10m`, `1h30m`, `2d`: whole numbers with units, not zero.
///
/// # Errors
/// Says what is wrong, without saying what was expected.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err("an empty text".to_owned());
    }
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let (number, unit, tail) = number_and_unit(rest)?;
        let Some((_, factor)) = DURATION_UNITS.iter().find(|(name, _)| *name == unit) else {
            return Err(no_unit(unit, "w, d, h, m, s, ms"));
        };
        total = number.checked_mul(*factor).and_then(|ms| total.checked_add(ms)).ok_or("a number that is too large")?;
        rest = tail;
    }
    if total == 0 {
        return Err(ZERO.to_owned());
    }
    Ok(Duration::from_millis(total))
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
///
/// # Errors
/// Says what is wrong, without saying what was expected.
pub fn parse_size(text: &str) -> Result<u64, String> {
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

/// Writes a size as [`parse_size`] reads it.
#[must_use]
pub fn format_size(size: u64) -> String {
    SIZE_UNITS
        .iter()
        .find(|(_, factor)| size.is_multiple_of(*factor) && size > 0)
        .map_or_else(|| format!("{size}B"), |(unit, factor)| format!("{}{unit}", size / factor))
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

/// Serde for sizes.
pub(super) mod size {
    use super::{Deserialize, Deserializer, Serializer, format_size, parse_size};

    pub(in super::super) fn serialize<S: Serializer>(value: &u64, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&format_size(*value))
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
        parse_size(&String::deserialize(from)?).map_err(serde::de::Error::custom)
    }
}

/// Serde for sizes that may be absent.
pub(super) mod optional_size {
    use super::{Deserialize, Deserializer, Serialize, Serializer, format_size, parse_size};

    pub(in super::super) fn serialize<S: Serializer>(value: &Option<u64>, to: S) -> Result<S::Ok, S::Error> {
        value.map(format_size).serialize(to)
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
        let text: Option<String> = Option::deserialize(from)?;
        text.map(|text| parse_size(&text)).transpose().map_err(serde::de::Error::custom)
    }
}

/// Serde for durations.
pub(super) mod duration {
    use super::{Deserialize, Deserializer, Duration, Serializer, format_duration, parse_duration};

    pub(in super::super) fn serialize<S: Serializer>(value: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&format_duration(*value))
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        parse_duration(&String::deserialize(from)?).map_err(serde::de::Error::custom)
    }
}

/// Reads a duration of at least a second, or `off`, which is zero.
pub(super) fn parse_period(text: &str) -> Result<Duration, String> {
    if matches!(text.trim(), "off" | "0") {
        return Ok(Duration::ZERO);
    }
    let period = parse_duration(text)?;
    if period < Duration::from_secs(1) { Err("less than a second".to_owned()) } else { Ok(period) }
}

/// Serde for periods of what can be turned off, which is zero.
pub(super) mod period {
    use super::{Deserialize, Deserializer, Duration, Serializer, format_duration, parse_period};

    pub(in super::super) fn serialize<S: Serializer>(value: &Duration, to: S) -> Result<S::Ok, S::Error> {
        if value.is_zero() { to.serialize_str("off") } else { to.serialize_str(&format_duration(*value)) }
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        parse_period(&String::deserialize(from)?).map_err(serde::de::Error::custom)
    }
}

/// Serde for durations that may be absent.
pub(super) mod optional_duration {
    use super::{Deserialize, Deserializer, Duration, Serialize, Serializer, format_duration, parse_duration};

    pub(in super::super) fn serialize<S: Serializer>(value: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
        value.map(format_duration).serialize(to)
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
        let text: Option<String> = Option::deserialize(from)?;
        text.map(|text| parse_duration(&text)).transpose().map_err(serde::de::Error::custom)
    }
}

/// How much of an entry a sink wants.
// The words of `wire::Payload`, which itself knows nothing of the configuration.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(remote = "Payload", rename_all = "lowercase")]
pub(super) enum PayloadText {
    /// Everything.
    Full,
    /// The object only on ADDED; on MODIFIED the patch.
    Diff,
    /// Neither the object nor the patch.
    Metadata,
}

/// A text with a format that the checker knows.
macro_rules! text {
    ($name:ident, $format:literal) => {
        pub(super) struct $name;

        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                $format.into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "type": "string", "format": $format })
            }
        }
    };
}

text!(ResourceText, "resource");
text!(NamespaceText, "namespace");
text!(PointerText, "pointer-pattern");
text!(IgnoreText, "ignore");
text!(BrokerText, "broker");
text!(NetworkText, "network");

impl JsonSchema for Begin {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "From".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "oneOf": [{ "enum": ["start", "now"] }, { "type": "integer", "minimum": 1 }] })
    }
}

impl Serialize for Begin {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Start => to.serialize_str("start"),
            Self::Now => to.serialize_str("now"),
            Self::Seq(seq) => to.serialize_u64(*seq),
        }
    }
}

impl JsonSchema for Recover {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Recover".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({ "oneOf": [{ "enum": ["off"] }, generator.subschema_for::<RecoverBounds>()] })
    }
}

impl<'de> Deserialize<'de> for Begin {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Text {
            Seq(u64),
            Word(String),
        }
        match Text::deserialize(from)? {
            Text::Seq(seq) => Ok(Self::Seq(seq)),
            Text::Word(word) if word == "start" => Ok(Self::Start),
            Text::Word(word) if word == "now" => Ok(Self::Now),
            Text::Word(_) => Err(serde::de::Error::custom("expected \"start\", \"now\" or a seq")),
        }
    }
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return Ok(Self::Unix(PathBuf::from(path)));
        }
        if text.contains('/') {
            return Ok(Self::Unix(PathBuf::from(text)));
        }
        text.parse().map(Self::Tcp).map_err(|_: std::net::AddrParseError| "no address".to_owned())
    }
}

impl TryFrom<String> for Listen {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Listen> for String {
    fn from(listen: Listen) -> Self {
        listen.to_string()
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}

impl Listen {
    /// Whether only this machine can reach it.
    #[must_use]
    pub fn is_local(&self) -> bool {
        match self {
            Self::Tcp(address) => SocketAddr::ip(address).is_loopback(),
            Self::Unix(_) => true,
        }
    }
}

pub(super) const fn batch_bytes() -> u64 {
    1 << 20
}

pub(super) fn schema() -> String {
    "decklog".to_owned()
}

pub(super) const fn transaction_size() -> usize {
    1000
}

pub(super) const fn bulk_size() -> usize {
    500
}

pub(super) fn index() -> String {
    "decklog".to_owned()
}

pub(super) const fn one() -> u32 {
    1
}
