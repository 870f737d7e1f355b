//! What people call things: objects as kubectl spells them, and moments.

use jiff::civil::{DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{SpanRelativeTo, Timestamp};

use super::Failure;
use crate::journal::Reader;
use crate::k8s::names::Spelling;
use crate::model::{Resource, Seq};

/// A moment: so long ago, a time, or the last time that the clock showed this.
///
/// # Errors
/// What is expected instead.
pub fn ago(text: &str) -> Result<Timestamp, String> {
    before(text, Timestamp::now()).ok_or_else(|| {
        "expected a duration like 10m, 1h30m or 2d, a time of day like 10:30 (UTC), or a time like 2026-11-21T10:30:00Z"
            .to_owned()
    })
}

fn before(text: &str, now: Timestamp) -> Option<Timestamp> {
    if let Ok(time) = text.parse() {
        return Some(time);
    }
    // Everything that decklog prints is in UTC, and so is what it reads.
    let utc = |time: DateTime| time.to_zoned(TimeZone::UTC).ok().map(|zoned| zoned.timestamp());
    if text.contains('-')
        && let Ok(time) = text.parse::<DateTime>()
    {
        return utc(time);
    }
    if text.contains(':') {
        let time: Time = text.parse().ok()?;
        let today = now.to_zoned(TimeZone::UTC).date();
        let at = utc(today.to_datetime(time))?;
        return if at <= now { Some(at) } else { utc(today.yesterday().ok()?.to_datetime(time)) };
    }
    let duration = text.parse::<jiff::Span>().ok()?.to_duration(SpanRelativeTo::days_are_24_hours()).ok()?;
    now.checked_sub(duration.abs()).ok()
}

/// A place in history: an entry or a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// Right after this entry.
    Seq(Seq),
    /// At this moment.
    Time(Timestamp),
}

/// A seq, or what [`ago`] takes.
///
/// # Errors
/// What is expected instead.
pub fn at(text: &str) -> Result<At, String> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.parse().map(|seq| At::Seq(Seq(seq))).map_err(|_| "no seq is that large".to_owned());
    }
    ago(text).map(At::Time).map_err(|expected| format!("{expected}, or a seq like 1234"))
}

/// What a spelling such as `deploy/web` means in a journal.
#[derive(Clone, Debug)]
pub struct Named {
    /// The resources that it can mean, with their ids in the journal. Never empty.
    pub resources: Vec<(i64, Resource)>,
    /// The one name, where one was given.
    pub name: Option<String>,
}

/// Reads kubectl's spellings with what discovery last said.
#[derive(Debug)]
pub struct Spellings {
    resources: Vec<(i64, Resource)>,
    /// Resources that have ever been watched.
    watched: Vec<i64>,
}

impl Spellings {
    /// What the journal knows.
    ///
    /// # Errors
    /// Where the journal cannot be read.
    pub fn load(reader: &Reader) -> Result<Self, Failure> {
        let resources = reader.resources()?;
        let names: Vec<String> = reader.sources()?.iter().map(|source| source.resource.full_name()).collect();
        let watched = resources.iter().filter(|(_, r)| names.contains(&r.full_name())).map(|(id, _)| *id).collect();
        Ok(Self { resources, watched })
    }

    /// What `KIND[/NAME]` means.
    ///
    /// # Errors
    /// Where nothing is spelled so, with the nearest spelling, or where it is not watched, with what is.
    pub fn read(&self, text: &str) -> Result<Named, Failure> {
        let (kind, name) = match text.split_once('/') {
            Some((kind, name)) => (kind, Some(name)),
            None => (text, None),
        };
        if kind.is_empty() || name.is_some_and(|name| name.is_empty() || name.contains('/')) {
            return Err(Failure::usage(format!("{text:?} is not KIND or KIND/NAME, such as deploy/web or pods")));
        }
        let found = self.matching(kind);
        if found.is_empty() {
            return Err(self.unknown(kind));
        }
        let resources: Vec<_> = found.iter().filter(|(id, _)| self.watched.contains(id)).cloned().collect();
        if resources.is_empty() {
            let mut watched = self.watched_names();
            watched.truncate(12);
            return Err(Failure::no(format!(
                "{} is not watched, so the journal knows nothing of it; watched: {}",
                found[0].1.full_name(),
                if watched.is_empty() { "nothing yet".to_owned() } else { watched.join(", ") },
            )));
        }
        Ok(Named { resources, name: name.map(str::to_owned) })
    }

    /// Every resource that `kind` can mean, by the first of kubectl's forms that fits any.
    fn matching(&self, kind: &str) -> Vec<(i64, Resource)> {
        let spelling = Spelling::of(kind);
        let form = |(_, resource): &&(i64, Resource)| spelling.form(resource).filter(|_| spelling.is_where(resource));
        let best = self.resources.iter().filter_map(|resource| form(&resource)).min();
        self.resources.iter().filter(|resource| best.is_some() && form(resource) == best).cloned().collect()
    }

    /// The resources that have ever been watched.
    pub fn watched(&self) -> impl Iterator<Item = &Resource> {
        self.resources.iter().filter(|(id, _)| self.watched.contains(id)).map(|(_, resource)| resource)
    }

    fn watched_names(&self) -> Vec<String> {
        self.watched().map(Resource::full_name).collect()
    }

    fn unknown(&self, kind: &str) -> Failure {
        if self.resources.is_empty() {
            return Failure::no("the journal knows no resources yet; start `decklog run` and let it reach the cluster");
        }
        let spellings = self.resources.iter().flat_map(|(_, resource)| {
            [resource.plural.clone(), resource.singular.clone(), resource.full_name()]
                .into_iter()
                .chain(resource.short_names.iter().cloned())
        });
        let lower = kind.to_ascii_lowercase();
        let nearest = spellings
            .filter(|spelling| !spelling.is_empty())
            .map(|spelling| (strsim::damerau_levenshtein(&lower, &spelling), spelling))
            .min_by(|(a, x), (b, y)| a.cmp(b).then_with(|| x.cmp(y)))
            .filter(|(distance, spelling)| *distance <= spelling.len().max(3) / 3);
        let hint = match nearest {
            Some((_, spelling)) => format!("did you mean {spelling}?"),
            None => "`decklog status` lists what is watched".to_owned(),
        };
        Failure::usage(format!("the cluster has no resource {kind:?}; {hint}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_read_as_people_write_it() {
        let now: Timestamp = "2026-11-21T10:05:00Z".parse().unwrap();
        let read = |text: &str| before(text, now).map(|time| time.to_string());
        for (text, expected) in [
            ("10:00", "2026-11-21T10:00:00Z"),
            ("10:04:59.5", "2026-11-21T10:04:59.5Z"),
            // Not in the future: the last time that it was so late.
            ("10:06", "2026-11-20T10:06:00Z"),
            ("10m", "2026-11-21T09:55:00Z"),
            ("1h30m", "2026-11-21T08:35:00Z"),
            ("2d", "2026-11-19T10:05:00Z"),
            ("2026-11-21T10:00:00+01:00", "2026-11-21T09:00:00Z"),
            ("2026-11-20 23:59:58", "2026-11-20T23:59:58Z"),
            ("2026-11-20", "2026-11-20T00:00:00Z"),
        ] {
            assert_eq!(read(text).as_deref(), Some(expected), "{text}");
        }
        for text in ["", "noon", "25:00", "10:", "-", "2026-13-01", "10"] {
            assert_eq!(read(text), None, "{text}");
        }
        assert_eq!(at("7"), Ok(At::Seq(Seq(7))));
        assert!(at("99999999999999999999").unwrap_err().contains("no seq is that large"));
    }
}
