//! The present time, the zone in which people read and write times, and the grammar of moments.
//!
//! What people read is local and shows its offset; JSON and YAML stay in UTC. One present holds for a whole command, so
//! that what it says of a moment fits what it did with it.

use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use jiff::civil::{Date, DateTime, Time};
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{SignedDuration, Timestamp, Zoned};

use super::row::{plural, printable};
use crate::core::terminal::complain;
use crate::core::units::parse_signed;

/// The present, and a zone.
#[derive(Clone, Debug)]
pub struct Clock {
    /// Start of the command.
    pub now: Timestamp,
    /// Zone in which times are read and printed.
    pub zone: TimeZone,
}

static UTC: AtomicBool = AtomicBool::new(true);
static CLOCK: OnceLock<Clock> = OnceLock::new();

/// From here on times are local: as `TZ` says, or the system. To be called before the first look at the [`clock`].
pub fn be_local() {
    UTC.store(false, Ordering::Relaxed);
}

/// The clock of this process.
pub fn clock() -> &'static Clock {
    CLOCK.get_or_init(|| {
        let zone = if UTC.load(Ordering::Relaxed) { TimeZone::UTC } else { system() };
        Clock { now: Timestamp::now(), zone }
    })
}

/// The zone that `TZ` or the system names; UTC where none is known, which is said where `TZ` names one.
fn system() -> TimeZone {
    let named = std::env::var("TZ").ok().filter(|name| !name.is_empty());
    // As libc has it: a daylight-saving time without rules keeps to these.
    let ruled = || TimeZone::posix(&format!("{},M3.2.0,M11.1.0", named.as_ref()?)).ok();
    at_its_place(named.as_deref()).or_else(|| TimeZone::try_system().ok()).or_else(ruled).unwrap_or_else(|| {
        if let Some(name) = &named {
            complain(&format!(
                "note: times are in UTC: $TZ is {name:?}, of which this machine knows no time zone (a zone is called Europe/Berlin, and comes with the package tzdata)"
            ));
        }
        TimeZone::UTC
    })
}

/// The zone by its usual path, without a look at all that there are: they are hundreds of files.
fn at_its_place(named: Option<&str>) -> Option<TimeZone> {
    let path = match named {
        None => std::fs::canonicalize("/etc/localtime").ok()?,
        Some(name) => Path::new("/usr/share/zoneinfo").join(name),
    };
    let (_, name) = path.to_str()?.rsplit_once("/zoneinfo/")?;
    TimeZone::tzif(name, &std::fs::read(&path).ok()?).ok()
}

/// A moment to the second, with its offset: RFC 3339, as it can be typed again.
#[must_use]
pub fn moment(time: Timestamp) -> String {
    clock().moment(time)
}

/// A moment to the second in UTC, for programs.
#[must_use]
pub fn in_utc(time: Timestamp) -> String {
    format!("{time:.0}")
}

/// A moment that somebody wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// The moment.
    pub time: Timestamp,
    /// Form in which it was written.
    pub form: Form,
    /// Note about its interpretation.
    pub note: Option<String>,
}

/// Form of a written moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// With its offset: there is nothing to understand.
    Absolute,
    /// By a zone, or by the present.
    Civil,
    /// By its distance from today: `yesterday`, `today 10:30`.
    Day,
    /// A duration before now.
    Ago,
}

/// Printed form of an entry's time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// `2026-11-21`
    pub(crate) date: String,
    /// `10:32:01`
    pub(crate) time: String,
    /// `CET, +01:00`
    pub(crate) zone: String,
    /// `2026-11-21T10:32:01.123+01:00`
    pub(crate) whole: String,
}

impl Stamp {
    /// Returns the heading of a day: `2026-11-21 (CET, +01:00)`.
    pub(crate) fn day(&self) -> String {
        format!("{} ({})", self.date, self.zone)
    }
}

impl Clock {
    fn at(&self, time: Timestamp) -> Zoned {
        time.to_zoned(self.zone.clone())
    }

    /// See [`moment`].
    #[must_use]
    pub fn moment(&self, time: Timestamp) -> String {
        let time = self.at(time);
        format!("{}{}", time.strftime("%Y-%m-%dT%H:%M:%S"), offset(&time))
    }

    /// Returns the time as it stands in a sentence: `2026-11-22 09:30:00 CET (+01:00)`.
    #[must_use]
    pub fn spoken(&self, time: Timestamp) -> String {
        spoken(&self.at(time))
    }

    /// Returns the printed form of an entry's time.
    pub(crate) fn stamp(&self, time: &str) -> Stamp {
        let Ok(parsed) = time.parse::<Timestamp>() else {
            let text = printable(time).into_owned();
            return Stamp { date: "????-??-??".to_owned(), time: text.clone(), zone: "?".to_owned(), whole: text };
        };
        let time = self.at(parsed);
        let zone = match abbreviation(&time) {
            Some(name) if is_utc(&time) => name,
            Some(name) => format!("{name}, {}", time.strftime("%:z")),
            None => time.strftime("%:z").to_string(),
        };
        Stamp {
            date: time.strftime("%Y-%m-%d").to_string(),
            time: time.strftime("%H:%M:%S").to_string(),
            zone,
            whole: format!("{}{}", time.strftime("%Y-%m-%dT%H:%M:%S.%3f"), offset(&time)),
        }
    }

    /// The moment that somebody wrote.
    ///
    /// # Errors
    /// What is expected instead, or what else it can mean.
    pub fn read(&self, text: &str) -> Result<Written, String> {
        let text = text.trim();
        let plain = |time, form| Ok(Written { time, form, note: None });
        if let Ok(time) = text.parse() {
            return plain(time, Form::Absolute);
        }
        if text.contains('[')
            && let Ok(time) = text.parse::<Zoned>()
        {
            return plain(time.timestamp(), Form::Civil);
        }
        if text == "now" {
            return plain(self.now, Form::Civil);
        }
        if let Some(ahead) = text.strip_prefix('+') {
            let ahead = ahead.trim_start();
            return Err(format!("{text} is still to come; {ahead} is that long ago; {EXPECTED}"));
        }
        let back = text.strip_prefix(MINUS).map(str::trim_start);
        let length = back.unwrap_or(text);
        // Hours, minutes and seconds with colons would be a duration as well.
        if !length.contains(':')
            && !length.starts_with(MINUS)
            && let Ok(ago) = parse_signed(length)
        {
            let time = self.now.checked_sub(ago.abs()).map_err(|_| EXPECTED.to_owned())?;
            return plain(time, Form::Ago);
        }
        if back.is_some() {
            return Err(EXPECTED.to_owned());
        }
        let (rest, zone) = self.zone_of(text)?;
        let today = self.now.to_zoned(zone.clone()).date();
        let (day, time) = match rest.split_once(' ') {
            Some((day, time)) => (day, Some(time)),
            None => (rest, None),
        };
        let yesterday = today.yesterday().map_err(|_| EXPECTED.to_owned())?;
        let date = match day {
            "today" => Some(today),
            "yesterday" => Some(yesterday),
            _ if day.len() == DATE.len() && !day.contains(':') => day.parse().ok(),
            _ => None,
        };
        let is_day = matches!(day, "today" | "yesterday");
        let written = match (date, time) {
            (Some(date), None) => {
                let begin = date.to_zoned(zone).and_then(|day| day.start_of_day());
                plain(begin.map_err(|_| EXPECTED.to_owned())?.timestamp(), Form::Civil)
            }
            (Some(date), Some(time)) => civil(date.to_datetime(time_of_day(time)?), &zone),
            (None, None) if rest.contains('-') && rest.contains(':') => {
                civil(rest.parse().map_err(|_| EXPECTED.to_owned())?, &zone)
            }
            (None, None) => {
                let time = time_of_day(rest)?;
                let written = civil(today.to_datetime(time), &zone)?;
                if written.time > self.now {
                    return Err(self.to_come(rest, time, &zone, today, zone != self.zone));
                }
                Ok(written)
            }
            (None, Some(_)) => Err(EXPECTED.to_owned()),
        }?;
        Ok(if is_day { Written { form: Form::Day, ..written } } else { written })
    }

    /// Divides what is written from the zone that stands behind it.
    fn zone_of<'t>(&self, text: &'t str) -> Result<(&'t str, TimeZone), String> {
        if let Some(rest) = text.strip_suffix('Z').filter(|rest| !rest.ends_with(' ')) {
            return Ok((rest, TimeZone::UTC));
        }
        let Some((rest, name)) = text.rsplit_once(' ') else { return Ok((text, self.zone.clone())) };
        if name == "Z" {
            return Ok((rest.trim_end(), TimeZone::UTC));
        }
        match TimeZone::get(name) {
            Ok(zone) => Ok((rest.trim_end(), zone)),
            Err(_) if name.contains('/') => Err(format!("this system knows no time zone {name}")),
            Err(_) => Ok((text, self.zone.clone())),
        }
    }

    /// Returns the error for a time of day that is still to come, with its possible meanings.
    fn to_come(&self, text: &str, time: Time, zone: &TimeZone, today: Date, named: bool) -> String {
        let there = Self { now: self.now, zone: zone.clone() };
        let behind = if named { format!(" {}", zone.iana_name().unwrap_or("UTC")) } else { String::new() };
        let mut means = Vec::new();
        if let Some(yesterday) = today.yesterday().ok().and_then(|day| civil(day.to_datetime(time), zone).ok()) {
            means.push(format!("'yesterday {text}{behind}' is {}", there.spoken(yesterday.time)));
        }
        let in_utc = self.now.to_zoned(TimeZone::UTC).date().to_datetime(time);
        if let Ok(utc) = civil(in_utc, &TimeZone::UTC)
            && !named
            && utc.time <= self.now
        {
            means.push(format!("{text}Z is {} UTC, {}", in_utc.strftime("%Y-%m-%d %H:%M:%S"), self.distance(utc.time)));
        }
        format!("that is still to come today: it is {}; {}", there.spoken(self.now), means.join(", and "))
    }

    /// Returns the interpretation of a moment for the person who wrote it; none if there was nothing to interpret.
    pub(crate) fn understood(&self, option: &str, text: &str) -> Option<String> {
        let written = self.read(text).ok().filter(|written| written.form != Form::Absolute)?;
        let note = written.note.map_or_else(String::new, |note| format!("; {note}"));
        let (spoken, distance) = (self.spoken(written.time), self.distance(written.time));
        let quote = if text.contains(' ') { "'" } else { "" };
        Some(format!("{option} {quote}{text}{quote} is {spoken}, {distance}{note}"))
    }

    /// `1 hour 30 minutes ago`
    fn distance(&self, time: Timestamp) -> String {
        let apart: SignedDuration = self.now.duration_since(time);
        let seconds = apart.as_secs().unsigned_abs();
        let of = |number: u64, unit: &str| plural(number, unit, &format!("{unit}s"));
        let both = |large: String, number: u64, unit: &str| match number {
            0 => large,
            number => format!("{large} {}", of(number, unit)),
        };
        let words = match (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60) {
            (0, 0, 0) if seconds == 0 => return "now".to_owned(),
            (0, 0, 0) => of(seconds, "second"),
            (0, 0, minutes) => of(minutes, "minute"),
            (0, hours, minutes) => both(of(hours, "hour"), minutes, "minute"),
            (days, hours, _) => both(of(days, "day"), hours, "hour"),
        };
        if apart.is_negative() { format!("in {words}") } else { format!("{words} ago") }
    }
}

/// Signs that make a duration count back: hyphen, minus sign and dash.
const MINUS: [char; 3] = ['-', '\u{2212}', '\u{2013}'];

/// Example of a date.
const DATE: &str = "2026-11-21";

/// Expected forms of a moment.
pub(crate) const EXPECTED: &str = "expected a duration like 10m, 1h30m or '2 hours ago', a time of day like 10:30, now, today, yesterday \
    or 'yesterday 10:30', or a time like 2026-11-21T10:30:00Z, '2026-11-21 10:30' or '2026-11-21 10:30 Europe/Berlin'";

fn time_of_day(text: &str) -> Result<Time, String> {
    // `9:30` is what people write.
    let padded = if text.find(':') == Some(1) { format!("0{text}") } else { text.to_owned() };
    let is_time =
        padded.contains(':') && padded.bytes().all(|byte| byte.is_ascii_digit() || byte == b':' || byte == b'.');
    padded.parse().ok().filter(|_| is_time).ok_or_else(|| EXPECTED.to_owned())
}

/// Returns the moment at which the clocks of a zone showed a time, with a note if they did so twice or never.
fn civil(shown: DateTime, zone: &TimeZone) -> Result<Written, String> {
    let ambiguous = zone.to_ambiguous_zoned(shown);
    let (date, time) = (shown.strftime("%Y-%m-%d"), shown.strftime("%H:%M:%S"));
    let note = match ambiguous.offset() {
        AmbiguousOffset::Unambiguous { .. } => None,
        AmbiguousOffset::Gap { .. } => Some(format!("{date} has no {time}, because the clocks went forward over it")),
        AmbiguousOffset::Fold { .. } => {
            let second = zone.to_ambiguous_zoned(shown).later().map_err(|_| EXPECTED.to_owned())?;
            let second = format!("{}{}", second.strftime("%Y-%m-%dT%H:%M:%S"), offset(&second));
            Some(format!("{date} has {time} twice, because the clocks went back; the second is {second}"))
        }
    };
    let time = ambiguous.compatible().map_err(|_| EXPECTED.to_owned())?.timestamp();
    Ok(Written { time, form: Form::Civil, note })
}

fn spoken(time: &Zoned) -> String {
    let shown = time.strftime("%Y-%m-%d %H:%M:%S");
    match abbreviation(time) {
        Some(name) if is_utc(time) => format!("{shown} {name}"),
        Some(name) => format!("{shown} {name} ({})", time.strftime("%:z")),
        None => format!("{shown} ({})", time.strftime("%:z")),
    }
}

/// `CET`; nothing where a zone has only numbers.
fn abbreviation(time: &Zoned) -> Option<String> {
    let name = time.strftime("%Z").to_string();
    name.starts_with(|c: char| c.is_ascii_alphabetic()).then(|| printable(&name).into_owned())
}

fn is_utc(time: &Zoned) -> bool {
    time.offset().is_zero() && time.strftime("%Z").to_string() == "UTC"
}

/// `+01:00`, and `Z` in UTC.
fn offset(time: &Zoned) -> String {
    if is_utc(time) { "Z".to_owned() } else { time.strftime("%:z").to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_zone(posix: &str, now: &str) -> Clock {
        Clock { now: now.parse().unwrap(), zone: TimeZone::posix(posix).unwrap() }
    }

    fn berlin(now: &str) -> Clock {
        in_zone("CET-1CEST,M3.5.0,M10.5.0/3", now)
    }

    #[test]
    fn a_moment_is_read_as_people_write_it() {
        let clock = berlin("2026-11-22T08:22:00Z");
        for (text, expected) in [
            ("now", "2026-11-22T08:22:00Z"),
            ("today", "2026-11-21T23:00:00Z"),
            ("yesterday", "2026-11-20T23:00:00Z"),
            ("today 09:00", "2026-11-22T08:00:00Z"),
            ("yesterday 10:30", "2026-11-21T09:30:00Z"),
            ("09:22", "2026-11-22T08:22:00Z"),
            ("9:00", "2026-11-22T08:00:00Z"),
            ("09:04:59.5", "2026-11-22T08:04:59.5Z"),
            ("08:10Z", "2026-11-22T08:10:00Z"),
            ("08:10 UTC", "2026-11-22T08:10:00Z"),
            ("10m", "2026-11-22T08:12:00Z"),
            ("10m ago", "2026-11-22T08:12:00Z"),
            ("2 hours ago", "2026-11-22T06:22:00Z"),
            ("1h30m", "2026-11-22T06:52:00Z"),
            ("2d", "2026-11-20T08:22:00Z"),
            ("-10m", "2026-11-22T08:12:00Z"),
            ("- 10m", "2026-11-22T08:12:00Z"),
            (" -10m ", "2026-11-22T08:12:00Z"),
            ("-10m ago", "2026-11-22T08:12:00Z"),
            ("-2 hours ago", "2026-11-22T06:22:00Z"),
            ("-1h30m", "2026-11-22T06:52:00Z"),
            ("-1.5h", "2026-11-22T06:52:00Z"),
            ("-PT1H", "2026-11-22T07:22:00Z"),
            ("\u{2212}10m", "2026-11-22T08:12:00Z"),
            ("\u{2013}2d", "2026-11-20T08:22:00Z"),
            ("2026-11-22", "2026-11-21T23:00:00Z"),
            ("2026-07-01", "2026-06-30T22:00:00Z"),
            ("2026-11-22 09:10", "2026-11-22T08:10:00Z"),
            ("2026-07-01T09:10:11.5", "2026-07-01T07:10:11.5Z"),
            ("2026-11-22 09:10 UTC", "2026-11-22T09:10:00Z"),
            ("2026-11-22T09:10[UTC]", "2026-11-22T09:10:00Z"),
            ("2026-11-22T09:10:00+01:00", "2026-11-22T08:10:00Z"),
            ("2026-11-22 09:10-05:00", "2026-11-22T14:10:00Z"),
            ("2026-11-22T09:10Z", "2026-11-22T09:10:00Z"),
        ] {
            let read = clock.read(text).map(|written| (written.time.to_string(), written.note));
            assert_eq!(read, Ok((expected.to_owned(), None)), "{text}");
        }
        for text in [
            "",
            "noon",
            "25:00",
            "10:",
            "-",
            "--",
            "--10m",
            "-10",
            "-10:30",
            "-now",
            "-n",
            "-today",
            "-1h -30m",
            "-2026-11-21",
            "2026-13-01",
            "10",
            "yesterday-ish",
            "2026-11-22T09",
            "10:30+01:00",
        ] {
            assert_eq!(clock.read(text), Err(EXPECTED.to_owned()), "{text}");
        }
        for (text, ahead) in [("+10m", "10m"), ("+ 2 hours", "2 hours"), ("+10:30", "10:30")] {
            let error = format!("{text} is still to come; {ahead} is that long ago; {EXPECTED}");
            assert_eq!(clock.read(text), Err(error));
        }
        for text in ["today noon", "tomorrow 10:30", "2026-11-22 09:10 Berlin", "09:10 yesterday"] {
            assert_eq!(clock.read(text), Err(EXPECTED.to_owned()), "{text}");
        }
        let nowhere = clock.read("2026-11-22 09:10 Mars/Base");
        assert_eq!(nowhere, Err("this system knows no time zone Mars/Base".to_owned()));
    }

    #[test]
    fn a_time_of_day_that_is_to_come_is_refused_with_what_it_can_have_meant() {
        let east = berlin("2026-11-22T08:22:00Z");
        assert_eq!(
            east.read("09:30").unwrap_err(),
            "that is still to come today: it is 2026-11-22 09:22:00 CET (+01:00); \
             'yesterday 09:30' is 2026-11-21 09:30:00 CET (+01:00)"
        );
        let west = in_zone("EST5EDT,M3.2.0,M11.1.0", "2026-11-22T14:00:00Z");
        assert_eq!(
            west.read("10:30").unwrap_err(),
            "that is still to come today: it is 2026-11-22 09:00:00 EST (-05:00); \
             'yesterday 10:30' is 2026-11-21 10:30:00 EST (-05:00), and \
             10:30Z is 2026-11-22 10:30:00 UTC, 3 hours 30 minutes ago"
        );
        assert_eq!(
            west.read("23:00 UTC").unwrap_err(),
            "that is still to come today: it is 2026-11-22 14:00:00 UTC; 'yesterday 23:00 UTC' is 2026-11-21 23:00:00 UTC"
        );
        // What is offered can be typed, and is what was said.
        for (text, time) in [
            ("yesterday 10:30", "2026-11-21T15:30:00Z"),
            ("10:30Z", "2026-11-22T10:30:00Z"),
            ("yesterday 23:00 UTC", "2026-11-21T23:00:00Z"),
        ] {
            assert_eq!(west.read(text).unwrap().time.to_string(), time);
        }
    }

    #[test]
    fn a_time_of_day_that_comes_never_or_twice_is_taken_and_said() {
        let clock = berlin("2026-11-22T08:22:00Z");
        let never = clock.read("2026-03-29 02:30").unwrap();
        assert_eq!(never.time.to_string(), "2026-03-29T01:30:00Z");
        assert_eq!(never.note.unwrap(), "2026-03-29 has no 02:30:00, because the clocks went forward over it");
        let twice = clock.read("2026-10-25 02:30").unwrap();
        assert_eq!(twice.time.to_string(), "2026-10-25T00:30:00Z");
        let second = "2026-10-25T02:30:00+01:00";
        assert_eq!(
            twice.note.unwrap(),
            format!("2026-10-25 has 02:30:00 twice, because the clocks went back; the second is {second}")
        );
        assert_eq!(clock.read(second).unwrap().time.to_string(), "2026-10-25T01:30:00Z");
        assert_eq!(
            berlin("2026-03-30T08:00:00Z").understood("--at", "yesterday 02:30").unwrap(),
            "--at 'yesterday 02:30' is 2026-03-29 03:30:00 CEST (+02:00), 1 day 6 hours ago; 2026-03-29 has no 02:30:00, \
             because the clocks went forward over it"
        );
        // Where the day begins an hour late, it begins then.
        let late = in_zone("<-03>3<-02>,M11.1.0/0,M2.3.0/0", "2026-11-22T08:22:00Z");
        assert_eq!(late.read("2026-11-01").unwrap().time.to_string(), "2026-11-01T03:00:00Z");
    }

    #[test]
    fn what_was_understood_is_said_where_it_is_more_than_what_was_written() {
        let clock = berlin("2026-11-22T09:22:10Z");
        let said = |text: &str| clock.understood("--since", text);
        assert_eq!(said("09:30").unwrap(), "--since 09:30 is 2026-11-22 09:30:00 CET (+01:00), 52 minutes ago");
        assert_eq!(said("1h30m").unwrap(), "--since 1h30m is 2026-11-22 08:52:10 CET (+01:00), 1 hour 30 minutes ago");
        assert_eq!(said("1s").unwrap(), "--since 1s is 2026-11-22 10:22:09 CET (+01:00), 1 second ago");
        assert_eq!(said("2d").unwrap(), "--since 2d is 2026-11-20 10:22:10 CET (+01:00), 2 days ago");
        assert_eq!(said("now").unwrap(), "--since now is 2026-11-22 10:22:10 CET (+01:00), now");
        assert_eq!(
            said("2026-11-24").unwrap(),
            "--since 2026-11-24 is 2026-11-24 00:00:00 CET (+01:00), in 1 day 13 hours"
        );
        for absolute in ["2026-11-22T08:30:00Z", "2026-11-22T09:30:00+01:00", "7", "noon"] {
            assert_eq!(said(absolute), None, "{absolute}");
        }
    }

    proptest::proptest! {
        #[test]
        fn whatever_is_written_has_an_answer(text in ".{0,12}", time in "(today |yesterday )?[0-9T:. Zagohms+-]{0,24}") {
            let clock = berlin("2026-11-22T08:22:00Z");
            for text in [text, time] {
                if let Ok(written) = clock.read(&text) {
                    let said = clock.understood("--at", &text);
                    proptest::prop_assert_eq!(said.is_none(), written.form == Form::Absolute);
                }
            }
        }
    }

    #[test]
    fn a_time_is_shown_in_the_zone_with_its_offset() {
        let shown = |clock: &Clock, time: &str| {
            let stamp = clock.stamp(time);
            (stamp.day(), stamp.time, stamp.whole, time.parse().map(|time| clock.moment(time)).unwrap_or_default())
        };
        let expected = |day: &str, time: &str, whole: &str, moment: &str| {
            (day.to_owned(), time.to_owned(), whole.to_owned(), moment.to_owned())
        };
        let clock = berlin("2026-11-22T08:22:00Z");
        assert_eq!(
            shown(&clock, "2026-11-21T23:30:01.123456Z"),
            expected(
                "2026-11-22 (CET, +01:00)",
                "00:30:01",
                "2026-11-22T00:30:01.123+01:00",
                "2026-11-22T00:30:01+01:00"
            )
        );
        assert_eq!(shown(&clock, "2026-07-01T10:00:00Z").0, "2026-07-01 (CEST, +02:00)");
        let utc = Clock { zone: TimeZone::UTC, ..clock.clone() };
        assert_eq!(
            shown(&utc, "2026-11-21T23:30:01.123456Z"),
            expected("2026-11-21 (UTC)", "23:30:01", "2026-11-21T23:30:01.123Z", "2026-11-21T23:30:01Z")
        );
        let tehran = in_zone("<+0330>-3:30", "2026-11-22T08:22:00Z");
        assert_eq!(shown(&tehran, "2026-11-22T10:00:00Z").0, "2026-11-22 (+03:30)");
        assert_eq!(tehran.spoken(tehran.now), "2026-11-22 11:52:00 (+03:30)");
        let london = in_zone("GMT0BST,M3.5.0/1,M10.5.0", "2026-11-22T08:22:00Z");
        assert_eq!(shown(&london, "2026-11-22T10:00:00Z").2, "2026-11-22T10:00:00.000+00:00");
        assert_eq!(shown(&utc, "\u{1b}").0, "????-??-?? (?)");
    }
}
