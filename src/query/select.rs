//! Selection of entries: objects, namespaces, labels, types, moments and conditions on their contents, read page by page.

mod ahead;
pub(crate) mod unmatched;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use regex::bytes::Regex;
use serde::{Deserialize, Serialize};

pub(crate) use self::unmatched::Writers;
use self::unmatched::{Named, Touched};
use super::Log;
use crate::core::change::Pattern;
use crate::core::filter::{Filter, FilterError, Wanted};
use crate::core::k8s::audited::Actor;
use crate::core::model::{EntryType, Seq};
use crate::core::spelling::Text;
use crate::core::spelling::kubernetes::LabelSelector;
use crate::core::wire::{Entry, Header, ROW};
use crate::journal::{EntryFilter, EntryQuery, Reader, StoredEntry};
use crate::query::moment::{Period, Stretches};
use crate::query::render::clock::Clock;
use crate::query::render::names::Spellings;
use crate::query::render::{Exit, Failure, object};

/// Objects and entries that a question is about.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Select {
    /// Resources and objects as kubectl spells them; all if there are none.
    pub(crate) objects: Vec<String>,
    /// Label selector.
    pub(crate) labels: Option<String>,
    /// Conditions on the entries.
    pub(crate) only: Filters,
    /// Takes what the journal does not know yet for something that may come.
    pub(crate) waits: bool,
}

/// Conditions on entries.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Filters {
    /// Names of the namespaces; all if there are none.
    pub(crate) namespaces: Vec<String>,
    /// Types of the entries; all if there are none.
    pub(crate) types: Vec<EntryType>,
    /// First moment.
    pub(crate) since: Option<Timestamp>,
    /// Last moment.
    pub(crate) until: Option<Timestamp>,
    /// CEL expression over the entry.
    #[serde(rename = "where")]
    pub(crate) filter: Option<String>,
    /// Pattern of JSON pointers, one of which an entry changed.
    pub(crate) touched: Option<String>,
    /// Regular expression that the JSON of the entry matches.
    pub(crate) grep: Option<String>,
    /// Names of managers and users, with `*` for other characters, one of which wrote the entry; all if there are none.
    pub(crate) by: Vec<String>,
    /// Takes the moments for those at which entries were journaled.
    pub(crate) by_journal_time: bool,
}

/// Conditions on the contents of entries.
#[derive(Debug, Default)]
pub(crate) struct Conditions {
    filter: Option<Filter>,
    /// Set once a sentence has said that `filter` has no answer for an entry.
    budget_noted: AtomicBool,
    /// That sentence, until somebody takes it.
    note: Mutex<Option<String>>,
    touched: Option<Touched>,
    grep: Option<Regex>,
    labels: Option<LabelSelector>,
    by: Option<Writers>,
    /// Managers that `filter` compares with, and users.
    compared: [Option<Writers>; 2],
}

impl Conditions {
    /// Reports whether the conditions need nothing but these keys of an entry.
    #[must_use]
    pub(crate) fn asks_only_for(&self, keys: &[&str]) -> bool {
        self.touched.is_none()
            && self.grep.is_none()
            && self.labels.is_none()
            && self.by.is_none()
            && self.filter.as_ref().is_none_or(|filter| filter.asks_only_for(keys))
    }

    /// Reports whether a stored entry is selected. A change is also by who sent it, where a later ACTOR names that.
    ///
    /// # Errors
    /// Where the journal cannot be read.
    pub(crate) fn select(&self, reader: &mut Reader, stored: &StoredEntry) -> Result<bool, Failure> {
        self.select_line(reader, stored.op, stored.seq, &stored.line)
    }

    fn select_line(&self, reader: &mut Reader, op: EntryType, seq: Seq, line: &[u8]) -> Result<bool, Failure> {
        let asks = self.by.is_some() || self.filter.as_ref().is_some_and(Filter::asks_for_sender);
        let sender = if asks && op.is_change() { object::actor_of(reader, seq)? } else { None };
        Ok(self.is_true_of(line, sender.as_ref()))
    }

    /// Reports whether an entry is selected; one for which an expression has no answer is not.
    #[must_use]
    pub(crate) fn is_true_for(&self, line: &[u8]) -> bool {
        self.is_true_of(line, None)
    }

    fn is_true_of(&self, line: &[u8], sender: Option<&Actor>) -> bool {
        // Looked at whatever the expression says of the entry.
        self.compared.iter().flatten().for_each(|compared| _ = compared.wrote(line, sender));
        let answer = |filter: &Filter| filter.selects_of(line, sender).unwrap_or_else(|error| self.note(line, &error));
        self.filter.as_ref().is_none_or(answer)
            && self.grep.as_ref().is_none_or(|grep| grep.is_match(line))
            && self.touched.as_ref().is_none_or(|touched| touched.by(line))
            && self.labels.as_ref().is_none_or(|labels| is_labelled(line, labels))
            && self.by.as_ref().is_none_or(|by| by.wrote(line, sender))
    }

    /// Says, at the end of an answer, what there is to say of names and fields that no entry has.
    pub(crate) fn remark_unknown(&self, log: &Log<'_>) {
        self.by.iter().chain(self.compared.iter().flatten()).for_each(|writers| writers.remark_if_unknown(log));
        self.touched.iter().for_each(|touched| touched.remark_if_unknown(log));
    }

    /// Notes, once, that the expression has no answer for an entry, and leaves the entry out.
    fn note(&self, line: &[u8], error: &FilterError) -> bool {
        if !self.budget_noted.swap(true, Ordering::Relaxed) {
            let seq = Header::parse(line).map_or_else(|_| String::new(), |header| format!(" {}", header.seq().0));
            let text = format!("--where: entry{seq} and all others that cost as much are left out, because {error}");
            *self.note.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
        }
        false
    }

    /// Says so where an expression compares with what the journal has never seen, with what comes nearest.
    ///
    /// # Errors
    /// Where the journal cannot be read.
    pub(crate) fn look_for_typos(&self, reader: &Reader, log: &Log<'_>) -> Result<(), Failure> {
        for (key, text) in self.filter.iter().flat_map(Filter::compared) {
            let known: BTreeSet<String> = match key.as_str() {
                "type" => EntryType::ALL.iter().map(|kind| kind.as_str().to_owned()).collect(),
                "kind" => reader.sources()?.into_iter().map(|source| source.resource.kind).collect(),
                "resource" => reader.sources()?.into_iter().map(|source| source.resource.plural).collect(),
                "namespace" if !reader.is_narrowed() => reader.namespaces()?,
                _ => continue,
            };
            if text.is_empty() || known.is_empty() || known.contains(text) {
                continue;
            }
            let hint = object::nearest_or_all(text, &known);
            log.remark(&format!("--where: the journal has seen no {key} {text:?}; {hint}"));
        }
        Ok(())
    }

    /// Says what there is to say of entries that were left out.
    pub(crate) fn remark(&self, log: &Log<'_>) {
        if let Some(text) = self.note.lock().unwrap_or_else(PoisonError::into_inner).take() {
            log.remark(&text);
        }
    }

    fn wanted(conditions: Arc<Self>) -> Wanted {
        if conditions.asks_only_for(&ROW) {
            Wanted::by_row(move |line| conditions.is_true_for(line))
        } else {
            Wanted::by_entry(move |line| conditions.is_true_for(line))
        }
    }
}

/// Reports whether the object of an entry has these labels. A gap is of every object.
fn is_labelled(line: &[u8], labels: &LabelSelector) -> bool {
    Entry::parse(line).is_ok_and(|entry| match entry.object {
        Some(object) => labels.takes(&labels_of(object.get().as_bytes())),
        None => entry.op == EntryType::Gap,
    })
}

/// The labels of an object; none where it has none that can be read.
pub(crate) fn labels_of(object: &[u8]) -> BTreeMap<String, String> {
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

impl Filters {
    /// Returns the period of the entries.
    pub(crate) const fn period(&self) -> Period {
        Period { since: self.since, until: self.until, by_journal: self.by_journal_time }
    }

    /// Reports whether entries are selected by their contents.
    pub(crate) const fn picks(&self) -> bool {
        self.filter.is_some() || self.touched.is_some() || self.grep.is_some() || !self.by.is_empty()
    }

    /// Compiles the conditions on the contents of entries, if there are any.
    ///
    /// # Errors
    /// Where one of them is wrong.
    pub(crate) fn compile(&self) -> Result<Option<Conditions>, Failure> {
        if !self.picks() {
            return Ok(None);
        }
        let filter = self.filter.as_deref().map(Filter::compile).transpose();
        let filter = filter.map_err(|error| Failure::usage(format!("--where: {error}")))?;
        let touched = self.touched.as_deref().map(Pattern::parse).transpose();
        let touched = touched.map_err(|error| Failure::usage(format!("--touched: {error}")))?;
        let grep = self.grep.as_deref().map(Regex::new).transpose();
        let grep = grep.map_err(|error| Failure::usage(format!("--grep: {error}")))?;
        let (by, touched) = (Writers::of(&self.by), touched.map(Touched::of));
        let compared = [(Named::Managers, &["by", "manager"][..]), (Named::Users, &["user"])].map(|(named, keys)| {
            let names = filter.iter().flat_map(Filter::compared).filter(|(key, _)| keys.contains(&key.as_str()));
            Writers::of_flag(
                "--where",
                named,
                names.map(|(_, name)| name.clone()).filter(|name| !name.is_empty()).collect(),
            )
        });
        Ok(Some(Conditions { filter, touched, grep, by, compared, ..Conditions::default() }))
    }

    /// Checks that the log can cover the selected time.
    ///
    /// # Errors
    /// Where it is to come, was before the log began, or ends before it begins.
    pub(crate) fn check(&self, reader: &mut Reader, clock: &Clock) -> Result<(), Failure> {
        if self.since.zip(self.until).is_some_and(|(since, until)| since > until) {
            return Err(Failure::usage("--since is after --until; swap them"));
        }
        if let Some(since) = self.since {
            object::not_to_come(reader, since, clock)?;
        }
        self.until.map_or(Ok(()), |until| object::not_before_all(reader, until, clock))
    }
}

impl Select {
    /// Reports whether only some entries are selected.
    pub(crate) fn picks(&self) -> bool {
        let only = &self.only;
        let objects = !self.objects.is_empty() || self.labels.is_some() || !only.namespaces.is_empty();
        objects || !only.types.is_empty() || only.picks()
    }
}

/// Reads a label selector.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn labels_read(text: &str) -> Result<LabelSelector, Failure> {
    LabelSelector::read(text).map_err(|wrong| Failure::usage(format!("-l: {}", wrong.found)))
}

/// For whoever waits, what is not there yet may come: a note is enough.
fn to_come(known: Result<(), Failure>, waits: bool, log: &Log<'_>) -> Result<(), Failure> {
    match known {
        Err(unknown) if waits && unknown.exit() == Exit::No => {
            log.remark(&unknown.to_string());
            Ok(())
        }
        known => known,
    }
}

/// A selection of entries, ready to read with.
#[derive(Debug)]
pub(crate) struct Selection {
    position: EntryQuery,
    period: Period,
    /// Seqs among which the entries of the period are.
    stretches: Stretches,
    filter: Option<Wanted>,
    conditions: Option<Arc<Conditions>>,
}

/// Number of entries that are read at once.
const PAGE: usize = 64;

impl Selection {
    /// Resolves the arguments in this journal.
    ///
    /// # Errors
    /// Where the arguments name what the journal does not know, or the expression is wrong.
    pub(crate) fn new(args: &Select, reader: &mut Reader, log: &Log<'_>) -> Result<Self, Failure> {
        let only = &args.only;
        let mut asked = only.compile()?;
        if let Some(asked) = &asked {
            asked.look_for_typos(reader, log)?;
        }
        if let Some(labels) = &args.labels {
            asked.get_or_insert_default().labels = Some(labels_read(labels)?);
        }
        let conditions = asked.map(Arc::new);
        let filter = conditions.clone().map(Conditions::wanted);
        only.check(reader, &log.clock)?;
        let mut objects = Vec::new();
        if !args.objects.is_empty() {
            let spellings = Spellings::load(reader)?;
            for text in args.objects.iter().flat_map(|text| text.split(',')) {
                let named = spellings.read(text)?;
                if named.name.is_some() {
                    to_come(object::known(reader, text, &named, &only.namespaces).map(drop), args.waits, log)?;
                }
                objects.extend(named.resources.iter().map(|(id, _)| (*id, named.name.clone())));
            }
        }
        to_come(object::namespaces(reader, &only.namespaces), args.waits, log)?;
        let position = EntryQuery { objects, namespaces: only.namespaces.clone(), types: only.types.clone() };
        let period = only.period();
        let stretches = period.stretches(reader)?;
        Ok(Self { position, period, stretches, filter, conditions })
    }

    /// Reports whether a stored entry has a type that is selected and meets the conditions on its contents. A change is also by who sent it, where a later ACTOR names that.
    ///
    /// # Errors
    /// Where the journal cannot be read.
    pub(crate) fn takes_stored(
        &self,
        reader: &mut Reader,
        op: EntryType,
        seq: Seq,
        line: &[u8],
    ) -> Result<bool, Failure> {
        let is_type = self.position.types.is_empty() || self.position.types.contains(&op);
        match &self.conditions {
            Some(conditions) if is_type => conditions.select_line(reader, op, seq, line),
            _ => Ok(is_type),
        }
    }

    /// Says, at the end of an answer, what there is to say of names and fields that no entry has.
    pub(crate) fn remark_unknown(&self, log: &Log<'_>) {
        self.conditions.iter().for_each(|conditions| conditions.remark_unknown(log));
    }

    /// Says what there is to say of entries that were left out.
    pub(crate) fn remark(&self, log: &Log<'_>) {
        self.conditions.iter().for_each(|conditions| conditions.remark(log));
    }

    /// The resources that are selected, by name (`deployments.apps`); `None` for all.
    ///
    /// # Errors
    /// Where the journal cannot be read.
    pub(crate) fn resources(&self, reader: &Reader) -> Result<Option<Vec<String>>, Failure> {
        if self.position.objects.is_empty() {
            return Ok(None);
        }
        let wanted = |id: i64| self.position.objects.iter().any(|(resource, _)| *resource == id);
        let known = reader.resources()?.into_iter().filter(|(id, _)| wanted(*id));
        Ok(Some(known.map(|(_, resource)| resource.full_name()).collect()))
    }

    /// The last seq before everything that can be selected.
    pub(crate) fn begin(&self) -> Seq {
        self.stretches.begin()
    }

    /// Entries selected between `after` and `upto`, oldest first: a page of them, and how far it looked. Fewer than
    /// asked for, even none, does not mean the end: `upto` reached does.
    ///
    /// # Errors
    /// Where the journal cannot be read.
    pub(crate) fn page(&self, reader: &mut Reader, after: Seq, upto: Seq) -> Result<(Vec<StoredEntry>, Seq), Failure> {
        self.some(reader, after, upto, PAGE)
    }

    /// Returns a page as [`Selection::page`] does, of at most so many entries.
    fn some(
        &self,
        reader: &mut Reader,
        after: Seq,
        upto: Seq,
        limit: usize,
    ) -> Result<(Vec<StoredEntry>, Seq), Failure> {
        let Some((after, end)) = self.stretches.first(after, upto) else { return Ok((Vec::new(), upto)) };
        let page = reader.select(&self.position, (after, Some(end.next())), false, limit, self.of_row())?;
        let reached = page.looked_at.filter(|_| page.more).map_or(end, |(_, last)| last);
        Ok((self.keep(reader, page.entries)?, reached))
    }

    /// Returns a page as [`Selection::page`] does, of the entries before `before`, newest first. The entries that it looked at begin
    /// with the seq that it returns, which is not above `after` if there are no more.
    ///
    /// # Errors
    /// As [`Selection::page`].
    pub(crate) fn page_back(
        &self,
        reader: &mut Reader,
        after: Seq,
        before: Seq,
    ) -> Result<(Vec<StoredEntry>, Seq), Failure> {
        self.some_back(reader, (after, before), PAGE, self.of_row())
    }

    fn of_row(&self) -> Option<EntryFilter<'_>> {
        self.filter.as_ref().and_then(Wanted::of_row)
    }

    /// Returns a page as [`Selection::page_back`] does, of at most so many entries that `choice` takes by their rows.
    fn some_back(
        &self,
        reader: &mut Reader,
        (after, before): (Seq, Seq),
        limit: usize,
        choice: Option<EntryFilter<'_>>,
    ) -> Result<(Vec<StoredEntry>, Seq), Failure> {
        let upto = Seq(before.0.saturating_sub(1));
        let Some((begin, upto)) = self.stretches.last(after, upto) else { return Ok((Vec::new(), after)) };
        let page = reader.select(&self.position, (begin, Some(upto.next())), true, limit, choice)?;
        let end = if begin > after { begin.next() } else { after };
        let reached = page.looked_at.filter(|_| page.more).map_or(end, |(_, last)| last);
        Ok((self.keep(reader, page.entries)?, reached))
    }

    /// Selects objects of the whole cluster too, beside those of namespaces.
    pub(crate) fn with_cluster_scoped(mut self) -> Self {
        if !self.position.namespaces.is_empty() {
            self.position.namespaces.push(String::new());
        }
        self
    }

    /// Returns a page as [`Selection::page_back`] does, of what `choice` takes by the row of an entry.
    ///
    /// # Errors
    /// As [`Selection::page`].
    pub(crate) fn page_back_of(
        &self,
        reader: &mut Reader,
        after: Seq,
        before: Seq,
        choice: Option<EntryFilter<'_>>,
    ) -> Result<(Vec<StoredEntry>, Seq), Failure> {
        self.some_back(reader, (after, before), PAGE, choice)
    }

    /// The last seq before the newest `count` entries that are selected after `after`.
    ///
    /// # Errors
    /// As [`Selection::page`].
    pub(crate) fn newest(&self, reader: &mut Reader, after: Seq, head: Seq, count: usize) -> Result<Seq, Failure> {
        let (mut before, mut left) = (head.next(), count);
        while left > 0 {
            let limit = if self.filter.is_some() { PAGE } else { PAGE.min(left) };
            let (entries, reached) = self.some_back(reader, (after, before), limit, self.of_row())?;
            for entry in entries {
                left -= 1;
                if left == 0 {
                    return Ok(Seq(entry.seq.0 - 1));
                }
            }
            if reached <= after.next() {
                return Ok(after);
            }
            before = reached;
        }
        Ok(head)
    }

    fn keep(&self, reader: &mut Reader, entries: Vec<StoredEntry>) -> Result<Vec<StoredEntry>, Failure> {
        // What was tested by its row is not tested again.
        let conditions = self.conditions.as_ref().filter(|_| self.of_row().is_none());
        let mut kept = Vec::with_capacity(entries.len());
        for entry in entries {
            if self.period.has(&entry.line)
                && conditions.map_or(Ok(true), |conditions| conditions.select(reader, &entry))?
            {
                kept.push(entry);
            }
        }
        Ok(kept)
    }
}
