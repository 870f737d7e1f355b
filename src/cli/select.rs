//! Selection of entries for a command: kubectl's spellings, namespaces, labels, types, moments, and conditions on their
//! contents.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;
use jiff::Timestamp;
use regex::bytes::Regex;
use serde::Deserialize;

use super::names::{Spellings, ago};
use super::path::{path, touches};
use super::{Exit, Failure, complain, object};
use crate::change::Pattern;
use crate::filter::{Filter, FilterError, Wanted};
use crate::journal::{EntryQuery, Reader};
use crate::model::EntryType;
use crate::spelling::Text;
use crate::spelling::kubernetes::LabelSelector;
use crate::wire::{Entry, Header, ROW};
pub(crate) use crate::words::select::Selection;

/// What `tail` and its siblings take to choose objects and entries.
#[derive(Args, Clone, Debug, Default)]
pub struct SelectArgs {
    /// Resources and objects as kubectl spells them: deploy, deployments.apps, deploy/web, 'pods/web-*' [default: everything]
    #[arg(value_name = "KIND[/NAME]")]
    pub objects: Vec<String>,
    /// Only objects with these labels, as the entry has them: app=web, 'env in (prod,qa)', '!legacy'
    #[arg(short = 'l', long, value_name = "LABELS", value_parser = labels)]
    pub selector: Option<LabelSelector>,
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

impl SelectArgs {
    /// Reports whether only some entries are selected.
    #[must_use]
    pub fn picks(&self) -> bool {
        let only = &self.only;
        let objects = !self.objects.is_empty() || self.selector.is_some() || !only.namespace.is_empty();
        objects || !only.types.is_empty() || only.picks()
    }
}

/// What every command that prints entries takes to choose among them.
#[derive(Args, Clone, Debug, Default)]
pub struct FilterArgs {
    /// Only these namespaces: shop, or shop,pay
    #[arg(short, long, value_name = "NS", value_delimiter = ',')]
    pub namespace: Vec<String>,
    /// Only these types: ADDED, MODIFIED, DELETED, GAP
    #[arg(long = "type", value_name = "TYPE", value_delimiter = ',', value_parser = entry_type)]
    pub types: Vec<EntryType>,
    /// Not before: so long ago (10m, 1h30m, 2d), or a time: 10:30, yesterday, '2026-11-21 10:30', RFC 3339
    #[arg(long, value_name = "WHEN", value_parser = ago, allow_hyphen_values = true)]
    pub since: Option<Timestamp>,
    /// Not after: as for --since
    #[arg(long, value_name = "WHEN", value_parser = ago, allow_hyphen_values = true)]
    pub until: Option<Timestamp>,
    /// Only entries for which this CEL expression over the entry is true: 'type == "DELETED" && namespace == "shop"'
    #[arg(long = "where", value_name = "CEL")]
    pub filter: Option<String>,
    /// Only entries that changed this field.
    #[arg(
        long,
        value_name = "PATH",
        value_parser = path,
        help = "Only entries that changed this field: .spec.replicas, '.spec.template.spec.containers[*].image', image"
    )]
    pub touched: Option<Pattern>,
    /// Only entries whose JSON matches this regular expression.
    #[arg(
        long,
        value_name = "REGEX",
        value_parser = regex,
        help = r"Only entries whose JSON, as -o json prints it, matches this regular expression: 'nginx:1\.2[89]', '(?i)oomkilled'"
    )]
    pub grep: Option<Regex>,
}

/// Conditions on the contents of entries.
#[derive(Debug, Default)]
pub struct Asked {
    filter: Option<Filter>,
    /// Set once the user has read that `filter` has no answer for an entry.
    budget_noted: AtomicBool,
    touched: Option<Pattern>,
    grep: Option<Regex>,
    labels: Option<LabelSelector>,
}

impl FilterArgs {
    /// Reports whether entries are selected by their contents.
    #[must_use]
    pub fn picks(&self) -> bool {
        self.filter.is_some() || self.touched.is_some() || self.grep.is_some()
    }
}

impl Asked {
    /// Reports whether the conditions need nothing but these keys of an entry.
    #[must_use]
    pub fn asks_only_for(&self, keys: &[&str]) -> bool {
        self.touched.is_none()
            && self.grep.is_none()
            && self.labels.is_none()
            && self.filter.as_ref().is_none_or(|filter| filter.asks_only_for(keys))
    }

    /// Reports whether an entry is selected; one for which an expression has no answer is not.
    #[must_use]
    pub fn is_true_for(&self, line: &[u8]) -> bool {
        self.filter.as_ref().is_none_or(|filter| filter.selects(line).unwrap_or_else(|error| self.note(line, &error)))
            && self.grep.as_ref().is_none_or(|grep| grep.is_match(line))
            && self.touched.as_ref().is_none_or(|path| touches(line, path))
            && self.labels.as_ref().is_none_or(|labels| is_labelled(line, labels))
    }

    /// Prints, once, that the expression has no answer for an entry, and leaves the entry out.
    fn note(&self, line: &[u8], error: &FilterError) -> bool {
        if !self.budget_noted.swap(true, Ordering::Relaxed) {
            let seq = Header::parse(line).map_or_else(|_| String::new(), |header| format!(" {}", header.seq().0));
            complain(&format!(
                "note: --where: entry{seq} and all others that cost as much are left out, because {error}"
            ));
        }
        false
    }

    /// Says so where an expression compares with what the journal has never seen, with what comes nearest.
    ///
    /// # Errors
    /// Where the journal cannot be read.
    pub fn look_for_typos(&self, reader: &Reader) -> Result<(), Failure> {
        for (key, text) in self.filter.iter().flat_map(Filter::compared) {
            let known: BTreeSet<String> = match key.as_str() {
                "type" => EntryType::ALL.iter().map(|kind| kind.as_str().to_owned()).collect(),
                "kind" => reader.sources()?.into_iter().map(|source| source.resource.kind).collect(),
                "resource" => reader.sources()?.into_iter().map(|source| source.resource.plural).collect(),
                "namespace" => reader.namespaces()?,
                _ => continue,
            };
            if text.is_empty() || known.is_empty() || known.contains(text) {
                continue;
            }
            let hint = object::nearest_or_all(text, &known);
            complain(&format!("note: --where: the journal has seen no {key} {text:?}; {hint}"));
        }
        Ok(())
    }

    fn wanted(self) -> Wanted {
        if self.asks_only_for(&ROW) {
            Wanted::by_row(move |line| self.is_true_for(line))
        } else {
            Wanted::by_entry(move |line| self.is_true_for(line))
        }
    }
}

/// Reports whether the object of an entry has these labels. A gap is of every object.
fn is_labelled(line: &[u8], labels: &LabelSelector) -> bool {
    Entry::parse(line).is_ok_and(|entry| match entry.object {
        Some(object) => labels.takes(&labels_of(object.get().as_bytes())),
        None => entry.gap.is_some(),
    })
}

/// The labels of an object; none where it has none that can be read.
pub(super) fn labels_of(object: &[u8]) -> BTreeMap<String, String> {
    #[derive(Deserialize)]
    struct Object {
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    struct Metadata {
        #[serde(default)]
        labels: Option<BTreeMap<String, String>>,
    }
    serde_json::from_slice::<Object>(object).ok().and_then(|object| object.metadata.labels).unwrap_or_default()
}

impl FilterArgs {
    /// Compiles the conditions on the contents of entries, if there are any.
    ///
    /// # Errors
    /// Where the expression of `--where` is wrong.
    pub fn compile(&self) -> Result<Option<Asked>, Failure> {
        let filter = self.filter.as_deref().map(Filter::compile).transpose();
        let filter = filter.map_err(|error| Failure::usage(format!("--where: {error}")))?;
        let asked = Asked { filter, touched: self.touched.clone(), grep: self.grep.clone(), ..Asked::default() };
        let asks = asked.filter.is_some() || asked.touched.is_some() || asked.grep.is_some();
        Ok(asks.then_some(asked))
    }
}

impl FilterArgs {
    /// Checks that the log can cover the selected time.
    ///
    /// # Errors
    /// Where it is to come, was before the log began, or ends before it begins.
    pub fn check(&self, reader: &mut Reader) -> Result<(), Failure> {
        if self.since.zip(self.until).is_some_and(|(since, until)| since > until) {
            return Err(Failure::usage("--since is after --until; swap them"));
        }
        if let Some(since) = self.since {
            object::not_to_come(reader, since)?;
        }
        self.until.map_or(Ok(()), |until| object::not_before_all(reader, until))
    }
}

/// Parses a count.
///
/// # Errors
/// What is expected instead.
pub fn how_many(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| "expected a number such as 20".to_owned())
}

/// A label selector.
///
/// # Errors
/// What is wrong with it.
pub fn labels(text: &str) -> Result<LabelSelector, String> {
    LabelSelector::read(text).map_err(|wrong| match wrong.nearest {
        Some(near) => format!("{}; did you mean {near}?", wrong.found),
        None => format!("{}; expected {}", wrong.found, LabelSelector::EXPECTED),
    })
}

fn regex(text: &str) -> Result<Regex, String> {
    Regex::new(text).map_err(|error| {
        let last = error.to_string();
        // The regex crate draws the place above its last line.
        let last = last.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
        format!("no regular expression: {last}")
    })
}

pub(super) fn entry_type(word: &str) -> Result<EntryType, String> {
    EntryType::parse(&word.to_ascii_uppercase()).ok_or_else(|| "expected ADDED, MODIFIED, DELETED or GAP".to_owned())
}

/// For whoever waits, what is not there yet may come: a note is enough.
fn to_come(known: Result<(), Failure>, waits: bool) -> Result<(), Failure> {
    match known {
        Err(unknown) if waits && unknown.exit() == Exit::No => {
            complain(&format!("note: {unknown}"));
            Ok(())
        }
        known => known,
    }
}

impl Selection {
    /// Resolves the arguments in this journal.
    ///
    /// # Errors
    /// Where the arguments name what the journal does not know, or the expression is wrong.
    pub(crate) fn new(args: &SelectArgs, reader: &mut Reader) -> Result<Self, Failure> {
        let only = &args.only;
        let mut asked = only.compile()?;
        if let Some(asked) = &asked {
            asked.look_for_typos(reader)?;
        }
        if let Some(labels) = args.selector.clone() {
            asked.get_or_insert_default().labels = Some(labels);
        }
        let filter = asked.map(Asked::wanted);
        only.check(reader)?;
        let mut objects = Vec::new();
        if !args.objects.is_empty() {
            let spellings = Spellings::load(reader)?;
            for text in args.objects.iter().flat_map(|text| text.split(',')) {
                let named = spellings.read(text)?;
                if named.name.is_some() {
                    to_come(object::known(reader, text, &named, &only.namespace).map(drop), args.waits)?;
                }
                objects.extend(named.resources.iter().map(|(id, _)| (*id, named.name.clone())));
            }
        }
        to_come(object::namespaces(reader, &only.namespace), args.waits)?;
        let position = EntryQuery {
            objects,
            namespaces: only.namespace.clone(),
            types: only.types.clone(),
            since: only.since.map(Timestamp::as_microsecond),
            until: only.until.map(Timestamp::as_microsecond),
        };
        Ok(Self::of(position, filter))
    }
}
