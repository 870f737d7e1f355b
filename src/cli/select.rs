//! Which entries a command is about: kubectl's spellings, namespaces, types, moments, and a CEL expression.

use clap::Args;
use jiff::Timestamp;
use jiff::civil::{DateTime, Time};
use jiff::tz::TimeZone;

use super::{Failure, object};
use crate::filter::{Filter, Wanted};
use crate::journal::{Position, Reader, StoredEntry};
use crate::model::{EntryType, Resource, Seq};
use crate::spelling::nearest_by;
use crate::units::parse_signed;

/// What `tail` and its siblings take to choose objects and entries.
#[derive(Args, Clone, Debug, Default)]
pub struct SelectArgs {
    /// Resources and objects as kubectl spells them: deploy, deployments.apps, deploy/web [default: everything]
    #[arg(value_name = "KIND[/NAME]")]
    pub objects: Vec<String>,
    /// All namespaces, which is the default
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub all_namespaces: bool,
    /// Which of their entries.
    #[command(flatten)]
    pub only: FilterArgs,
    /// What is not there yet may come.
    #[arg(skip)]
    pub waits: bool,
}

/// What every command that prints entries takes to choose among them.
#[derive(Args, Clone, Debug, Default)]
pub struct FilterArgs {
    /// Only this namespace
    #[arg(short, long, value_name = "NS")]
    pub namespace: Option<String>,
    /// Only these types: ADDED, MODIFIED, DELETED, GAP
    #[arg(long = "type", value_name = "TYPE", value_delimiter = ',', value_parser = entry_type)]
    pub types: Vec<EntryType>,
    /// Not before: a duration like 10m, 1h30m or 2d ago, a time of day (UTC), or RFC 3339
    #[arg(long, value_name = "WHEN", value_parser = ago)]
    pub since: Option<Timestamp>,
    /// Not after: likewise
    #[arg(long, value_name = "WHEN", value_parser = ago)]
    pub until: Option<Timestamp>,
    /// Only entries for which this CEL expression over the entry is true: 'type == "DELETED" && namespace == "shop"'
    #[arg(long = "where", value_name = "CEL")]
    pub filter: Option<String>,
}

impl FilterArgs {
    /// The expression of `--where`.
    ///
    /// # Errors
    /// Where it is wrong.
    pub fn compile(&self) -> Result<Option<Filter>, Failure> {
        let filter = self.filter.as_deref().map(Filter::compile).transpose();
        filter.map_err(|error| Failure::usage(format!("--where: {error}")))
    }
}

impl FilterArgs {
    /// That something can be known of the time that is asked for.
    ///
    /// # Errors
    /// Where it is to come, was before the log began, or ends before it begins.
    pub fn check(&self, reader: &mut Reader) -> Result<(), Failure> {
        if self.since.zip(self.until).is_some_and(|(since, until)| since > until) {
            return Err(Failure::usage("--since is after --until; exchange them"));
        }
        if let Some(since) = self.since {
            object::not_to_come(reader, since)?;
        }
        self.until.map_or(Ok(()), |until| object::not_before_all(reader, until))
    }
}

/// How many of something.
///
/// # Errors
/// What is expected instead.
pub fn how_many(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| "expected a number such as 20".to_owned())
}

fn entry_type(word: &str) -> Result<EntryType, String> {
    EntryType::parse(&word.to_ascii_uppercase()).ok_or_else(|| "expected ADDED, MODIFIED, DELETED or GAP".to_owned())
}

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
    now.checked_sub(parse_signed(text).ok()?.abs()).ok()
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

    /// Every resource that `kind` can mean, by the first of kubectl's forms that fits any: plural, singular, short
    /// name, kind; each alone, with its group, or with version and group.
    fn matching(&self, kind: &str) -> Vec<(i64, Resource)> {
        let kind = kind.to_ascii_lowercase();
        let (word, rest) = kind.split_once('.').map_or((kind.as_str(), None), |(word, rest)| (word, Some(rest)));
        let in_group = |resource: &Resource| match rest {
            None => true,
            Some(rest) => {
                rest == resource.group
                    || rest.strip_prefix(&resource.version.to_ascii_lowercase()).is_some_and(|rest| {
                        rest.strip_prefix('.') == Some(&resource.group)
                            || (rest.is_empty() && resource.group.is_empty())
                    })
            }
        };
        let forms: [fn(&Resource, &str) -> bool; 4] = [
            |resource, word| resource.plural == word,
            |resource, word| resource.singular == word,
            |resource, word| resource.short_names.iter().any(|short| short == word),
            |resource, word| resource.kind.eq_ignore_ascii_case(word),
        ];
        for form in forms {
            let found: Vec<_> = self.resources.iter().filter(|(_, r)| in_group(r) && form(r, word)).cloned().collect();
            if !found.is_empty() {
                return found;
            }
        }
        Vec::new()
    }

    fn watched_names(&self) -> Vec<String> {
        self.resources.iter().filter(|(id, _)| self.watched.contains(id)).map(|(_, r)| r.full_name()).collect()
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
        let hint = match nearest_by(kind, spellings, String::clone) {
            Some(spelling) => format!("did you mean {spelling}?"),
            None => "`decklog status` lists what is watched".to_owned(),
        };
        Failure::usage(format!("the cluster has no resource {kind:?}; {hint}"))
    }
}

/// A selection of entries, ready to read with.
#[derive(Debug)]
pub struct Selection {
    position: Position,
    filter: Option<Wanted>,
}

/// How many entries are read at once.
const PAGE: usize = 64;

impl Selection {
    /// What the arguments select in this journal.
    ///
    /// # Errors
    /// Where the arguments name what the journal does not know, or the expression is wrong.
    pub fn new(args: &SelectArgs, reader: &mut Reader) -> Result<Self, Failure> {
        let only = &args.only;
        // What cannot be told of an entry was not asked for.
        let filter = only.compile()?.map(|filter| Wanted::new(filter, |_| false));
        only.check(reader)?;
        let mut objects = Vec::new();
        if !args.objects.is_empty() {
            let spellings = Spellings::load(reader)?;
            for text in args.objects.iter().flat_map(|text| text.split(',')) {
                let named = spellings.read(text)?;
                if named.name.is_some() && !args.waits {
                    object::known(reader, text, &named, only.namespace.as_deref())?;
                }
                objects.extend(named.resources.iter().map(|(id, _)| (*id, named.name.clone())));
            }
        }
        if !args.waits {
            object::namespace(reader, only.namespace.as_deref())?;
        }
        let position = Position {
            objects,
            namespace: only.namespace.clone(),
            types: only.types.clone(),
            since: only.since.map(Timestamp::as_microsecond),
            until: only.until.map(Timestamp::as_microsecond),
        };
        Ok(Self { position, filter })
    }

    /// The resources that are selected, by name (`deployments.apps`); `None` for all.
    ///
    /// # Errors
    /// Where the journal cannot be read.
    pub fn resources(&self, reader: &Reader) -> Result<Option<Vec<String>>, Failure> {
        if self.position.objects.is_empty() {
            return Ok(None);
        }
        let wanted = |id: i64| self.position.objects.iter().any(|(resource, _)| *resource == id);
        let known = reader.resources()?.into_iter().filter(|(id, _)| wanted(*id));
        Ok(Some(known.map(|(_, resource)| resource.full_name()).collect()))
    }

    /// The last seq before everything that can be selected.
    ///
    /// # Errors
    /// Where the journal cannot be read.
    pub fn begin(&self, reader: &Reader) -> Result<Seq, Failure> {
        Ok(match self.position.since {
            Some(since) => reader.last_before(since)?,
            None => Seq(0),
        })
    }

    /// Entries selected between `after` and `upto`, oldest first: a page of them, and how far it looked. Fewer than
    /// asked for, even none, does not mean the end: `upto` reached does.
    ///
    /// # Errors
    /// Where the journal cannot be read.
    pub fn page(&self, reader: &mut Reader, after: Seq, upto: Seq) -> Result<(Vec<StoredEntry>, Seq), Failure> {
        let page = reader.select(
            &self.position,
            after,
            Some(upto.next()),
            false,
            PAGE,
            self.filter.as_ref().and_then(Wanted::of_outline),
        )?;
        let reached = page.looked_at.filter(|_| page.looked == PAGE).map_or(upto, |(_, last)| last);
        Ok((self.keep(page.entries), reached))
    }

    /// The last seq before the newest `count` entries that are selected after `after`.
    ///
    /// # Errors
    /// As [`Selection::page`].
    pub fn newest(&self, reader: &mut Reader, after: Seq, count: usize) -> Result<Seq, Failure> {
        let head = reader.head()?;
        let (mut before, mut left) = (head.next(), count);
        while left > 0 {
            let page = PAGE.min(if self.filter.is_some() { PAGE } else { left });
            let page = reader.select(
                &self.position,
                after,
                Some(before),
                true,
                page,
                self.filter.as_ref().and_then(Wanted::of_outline),
            )?;
            let Some((_, last)) = page.looked_at else { return Ok(after) };
            for entry in self.keep(page.entries) {
                left -= 1;
                if left == 0 {
                    return Ok(Seq(entry.seq.0 - 1));
                }
            }
            before = last;
        }
        Ok(head)
    }

    fn keep(&self, mut entries: Vec<StoredEntry>) -> Vec<StoredEntry> {
        if let Some(filter) = &self.filter {
            entries.retain(|entry| filter.of_entry(&entry.line));
        }
        entries
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
