//! Which entries a command is about: kubectl's spellings, namespaces, types, moments, and a CEL expression.

use clap::Args;
use jiff::Timestamp;

use super::names::{Spellings, ago};
use super::{Failure, object};
use crate::filter::{Filter, Wanted};
use crate::journal::{EntryQuery, Reader, StoredEntry};
use crate::model::{EntryType, Seq};

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
    /// Not before: so long ago (10m, 1h30m, 2d), or a time: 10:30, yesterday, '2026-11-21 10:30', RFC 3339
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

/// A selection of entries, ready to read with.
#[derive(Debug)]
pub struct Selection {
    position: EntryQuery,
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
        // Where the expression has no answer for an entry, the entry was not selected.
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
        let position = EntryQuery {
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
            self.filter.as_ref().and_then(Wanted::of_row),
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
                self.filter.as_ref().and_then(Wanted::of_row),
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
