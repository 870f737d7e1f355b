//! The outlines of the log, as far as they are at hand: those that the journal keeps, those that were made since, and that of
//! its end, which grows.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use crate::core::model::{EntryType, Evidence, Seq};
use crate::core::runtime;
use crate::core::wire::{self, Change, Entry};
use crate::journal::outline::{Builder, Mark, Part, Words, first_of, last_of, part_of};
use crate::journal::{Journal, JournalError, Reader, StoredRow};
use crate::query::churn::Classes;
use crate::query::moment::{Known, Span};
use crate::query::ownership::{self, OwnerReference};
use crate::query::select::unmatched::users;

/// Bytes of outlines that are kept and not in the journal, the newest: those of five million entries.
const KEPT: usize = 48 << 20;
/// Number of objects whose owners are cached.
const OWNERS: usize = 100_000;
/// An entry names at most so many areas and managers, each of at most so many bytes.
const MOST_NAMES: usize = 16;
const LONGEST_NAME: usize = 128;
/// Time for which outlines are built before they are published, and shortest pause after that.
const BUILD_PERIOD: Duration = Duration::from_millis(500);
const REST_PERIOD: Duration = Duration::from_secs(1);
/// Interval at which a journal is polled that another process writes.
pub(crate) const HEAD_POLL_INTERVAL: Duration = Duration::from_millis(250);

/// See the module; clones are handles of the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Index(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    /// The journal's name, and the seq and the time of an entry that it has to have still.
    of: (String, u64, i64),
    parts: BTreeMap<u64, Vec<u8>>,
    bytes: usize,
    tail: Builder,
    /// Owners of objects, by the object's row and the seq of an entry.
    owners: HashMap<(i64, u64), Owned>,
}

/// Owner of an object, according to one of its entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Owned {
    /// The one below which a tree shows it.
    pub(super) owner: Option<OwnerReference>,
    /// Its own uid.
    pub(super) uid: String,
}

/// From which end the log is looked through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Oldest first.
    On,
    /// Newest first.
    Back,
}

/// Choice of entries, before the rights of the reader are looked at.
pub(super) type Choose<'c> = dyn Fn(&Part, &Mark) -> bool + 'c;

/// Visitor of entries.
pub(super) type Visit<'v> = dyn FnMut(&Part, &Mark) -> ControlFlow<()> + 'v;

impl Index {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets what is of another journal, as after one was restored in its place.
    fn check(&self, reader: &Reader) -> Result<(), JournalError> {
        let (epoch, head) = (reader.epoch()?, reader.head()?);
        let (of, seq, time) = self.lock().of.clone();
        let same = of == epoch && (seq == 0 || seq <= head.0 && reader.time_of(Seq(seq))?.is_none_or(|at| at == time));
        if !same {
            *self.lock() = Inner { of: (epoch, 0, 0), ..Inner::default() };
        }
        Ok(())
    }

    /// The outline of a part, made where it is not at hand; with whether it was made now and is whole.
    fn part(&self, reader: &mut Reader, part: u64, head: u64) -> Result<(Part, bool), JournalError> {
        let at_hand = self.lock().parts.get(&part).cloned();
        let known = match at_hand {
            Some(bytes) => Some(bytes),
            None => reader.outline(part)?,
        };
        if let Some(known) = known.and_then(Part::read) {
            return Ok((known, false));
        }
        let whole = head >= last_of(part);
        let grown = {
            let mut inner = self.lock();
            let last = inner.tail.last();
            let is_its = last > 0 && last <= head && part_of(last) == part;
            if is_its { std::mem::take(&mut inner.tail) } else { Builder::default() }
        };
        let mut builder = grown;
        let from = first_of(part).max(builder.last() + 1);
        let mut newest = (0, 0);
        let classes = Classes::default();
        reader.rows_between(Seq(from), Seq(last_of(part).min(head)), &mut |row| {
            let (mark, words) = outline(&classes, &row);
            newest = (mark.seq, mark.time);
            builder.add(mark, &words);
            ControlFlow::Continue(())
        })?;
        let bytes = builder.finish();
        let mut inner = self.lock();
        if newest.0 > inner.of.1 {
            (inner.of.1, inner.of.2) = newest;
        }
        if whole {
            inner.keep(part, bytes.clone());
        } else {
            inner.tail = builder;
        }
        drop(inner);
        let read = Part::read(bytes)
            .ok_or_else(|| JournalError::Corrupt("an outline cannot be read; this is a bug".to_owned()))?;
        Ok((read, whole))
    }

    /// Looks at every entry after `after` and up to `upto` that is chosen and that the reader may see, until `visit` breaks it off or
    /// the time is over: then it gives the seq of the last part that was looked at, at its far end.
    pub(super) fn walk(
        &self,
        reader: &mut Reader,
        (after, upto): (u64, u64),
        way: Way,
        deadline: Instant,
        (choose, visit): (&Choose<'_>, &mut Visit<'_>),
    ) -> Result<Option<u64>, JournalError> {
        // Outlines are of all entries, whoever has them made.
        let mut all = reader.unnarrowed()?;
        self.check(all.as_ref().unwrap_or(reader))?;
        let head = reader.head()?.0;
        let (from, to) = ((after + 1).max(reader.retained()?.oldest), upto.min(head));
        if from > to {
            return Ok(None);
        }
        let (first, last) = (part_of(from), part_of(to));
        let mut reached = None;
        for step in 0..=(last - first) {
            let number = if way == Way::Back { last - step } else { first + step };
            if step > 0 && Instant::now() > deadline {
                return Ok(reached);
            }
            let (part, _) = self.part(all.as_mut().unwrap_or(reader), number, head)?;
            let inside = part.marks.iter().filter(|mark| (from..=to).contains(&mark.seq) && choose(&part, mark));
            let mut failed = None;
            let mut look = |mark: &Mark| match reader.shows(mark.object, Seq(mark.seq)) {
                Ok(shown) => shown && visit(&part, mark).is_break(),
                Err(error) => {
                    failed = Some(error);
                    true
                }
            };
            let ended = match way {
                Way::On => inside.clone().any(&mut look),
                Way::Back => inside.clone().rev().any(&mut look),
            };
            if let Some(error) = failed {
                return Err(error);
            }
            if ended {
                return Ok(None);
            }
            reached = Some(if way == Way::Back { first_of(number) } else { last_of(number) });
        }
        Ok(None)
    }

    /// Makes the outlines that the journal lacks, the newest first, and hands them to its writer. Goes on as the log grows.
    ///
    /// # Errors
    /// Where the journal has ended.
    pub(crate) async fn keep(self, journal: Journal, stop: CancellationToken) -> Result<(), JournalError> {
        let (mut head, mut shared) = (journal.head(), journal.shared());
        let (mut done, mut reader) = (BTreeSet::new(), None);
        while !stop.is_cancelled() {
            // A standby keeps none, and loses those that it has to a base. Who leads then begins with what there is.
            if journal.is_standby() {
                done.clear();
                reader = None;
                tokio::select! {
                    () = stop.cancelled() => {}
                    changed = shared.changed() => if changed.is_err() { return Ok(()) },
                }
                continue;
            }
            let (index, of) = (self.clone(), journal.clone());
            let mut at_hand = (std::mem::take(&mut done), reader.take());
            let begun = Instant::now();
            let (made, at_hand) = runtime::blocking(move || {
                let (done, reader) = &mut at_hand;
                (index.next(&of, reader, done), at_hand)
            })
            .await;
            (done, reader) = at_hand;
            match made {
                Ok(made) if !made.is_empty() => {
                    let took = begun.elapsed();
                    for (part, data) in made {
                        journal.outline(part, data).await?;
                    }
                    // It has a quarter of the time at most, and what it made costs a commit: there is no hurry, and the writer
                    // may want every processor and the disk.
                    tokio::select! {
                        () = stop.cancelled() => {}
                        () = tokio::time::sleep(REST_PERIOD.max(took * 3)) => {}
                    }
                }
                Ok(_) => {
                    tokio::select! {
                        () = stop.cancelled() => {}
                        changed = head.changed() => if changed.is_err() { return Ok(()) },
                    }
                    tokio::select! {
                        () = stop.cancelled() => {}
                        () = tokio::time::sleep(HEAD_POLL_INTERVAL) => {}
                    }
                }
                // Who needs what cannot be read says so.
                Err(error) => {
                    tracing::debug!(%error, "an outline of the log was not made");
                    reader = None;
                    tokio::select! {
                        () = stop.cancelled() => {}
                        () = tokio::time::sleep(HEAD_POLL_INTERVAL * 40) => {}
                    }
                }
            }
        }
        Ok(())
    }

    /// The newest parts that are whole and of which nothing is kept, as many as are made in a while.
    fn next(
        &self,
        journal: &Journal,
        reader: &mut Option<Reader>,
        done: &mut BTreeSet<u64>,
    ) -> Result<Vec<(u64, Vec<u8>)>, JournalError> {
        // One for all of them: to open one takes as long as a good part of an outline.
        let reader = match reader {
            Some(reader) => reader,
            None => reader.insert(journal.reader()?),
        };
        self.check(reader)?;
        let (begun, mut made) = (Instant::now(), Vec::new());
        while begun.elapsed() < BUILD_PERIOD
            && let Some(part) = missing(reader, done)?
        {
            let read = reader.head().and_then(|head| self.part(reader, part, head.0));
            if let Err(error) = read {
                // What was made is handed over; the error comes again, alone.
                done.remove(&part);
                if made.is_empty() {
                    return Err(error);
                }
                break;
            }
            // The writer has it from now on; what is read of it until then is made of the entries again.
            made.extend(self.lock().forget(part).map(|data| (part, data)));
        }
        Ok(made)
    }

    /// Makes the outlines that the journal lacks, the newest first, for as long as there is room, until `stop`.
    pub(crate) fn warm(&self, reader: &mut Reader, stop: &CancellationToken) -> Result<(), JournalError> {
        self.check(reader)?;
        let mut done: BTreeSet<u64> = self.lock().parts.keys().copied().collect();
        while !stop.is_cancelled() && self.lock().bytes < KEPT {
            let Some(part) = missing(reader, &mut done)? else { break };
            let head = reader.head()?.0;
            self.part(reader, part, head)?;
        }
        Ok(())
    }

    /// Returns the owner of an object, according to its entry.
    pub(super) fn owned(&self, reader: &mut Reader, object: i64, seq: u64) -> Result<Owned, JournalError> {
        if let Some(known) = self.lock().owners.get(&(object, seq)) {
            return Ok(known.clone());
        }
        // What one reader may not see is not so for all of them.
        let Some(stored) = reader.entry(Seq(seq))? else { return Ok(Owned::default()) };
        let found = owned(&stored.line);
        let mut inner = self.lock();
        if inner.owners.len() >= OWNERS {
            inner.owners.clear();
        }
        inner.owners.insert((object, seq), found.clone());
        Ok(found)
    }
}

/// The newest whole part that is not among these, and of which the journal keeps no outline. One of another form, or one that
/// is damaged, is as good as none. Those that were looked at are noted.
fn missing(reader: &Reader, done: &mut BTreeSet<u64>) -> Result<Option<u64>, JournalError> {
    let (oldest, head) = (reader.retained()?.oldest, reader.head()?.0);
    let Some(newest) = part_of(head + 1).checked_sub(1).filter(|newest| *newest >= part_of(oldest)) else {
        return Ok(None);
    };
    for part in (part_of(oldest)..=newest).rev() {
        if done.insert(part) && reader.outline(part)?.and_then(Part::read).is_none() {
            return Ok(Some(part));
        }
    }
    Ok(None)
}

impl Inner {
    fn keep(&mut self, part: u64, bytes: Vec<u8>) {
        self.bytes += bytes.len();
        if let Some(before) = self.parts.insert(part, bytes) {
            self.bytes -= before.len();
        }
        while self.bytes > KEPT {
            let Some((_, oldest)) = self.parts.pop_first() else { break };
            self.bytes -= oldest.len();
        }
    }

    fn forget(&mut self, part: u64) -> Option<Vec<u8>> {
        let bytes = self.parts.remove(&part)?;
        self.bytes -= bytes.len();
        Some(bytes)
    }
}

/// At most so much of a name.
fn short(name: &str) -> &str {
    &name[..name.floor_char_boundary(LONGEST_NAME.min(name.len()))]
}

/// The outline of an entry. Of a damaged one nothing is known but that it is there.
pub(crate) fn outline(classes: &Classes, row: &StoredRow) -> (Mark, Words) {
    let (head, _) = wire::apart(&row.entry.line);
    let place = EntryType::ALL.iter().position(|kind| *kind == row.entry.op).unwrap_or_default();
    let mut mark = Mark {
        seq: row.entry.seq.0,
        time: row.time,
        earliest: row.time,
        latest: row.time,
        kind: u8::try_from(place).unwrap_or_default(),
        evidence: u8::try_from(Evidence::ALL.len()).unwrap_or_default(),
        quiet: false,
        bookkeeping: false,
        object: row.object,
        source: row.source,
        words: 0,
    };
    let mut words = Words::default();
    let Ok(entry) = Entry::parse(&head) else { return (mark, words) };
    let span = if entry.op == EntryType::Gap {
        Entry::parse(&row.entry.line).map_or_else(|_| Span::of(&entry), |entry| Span::of_entry(&entry))
    } else {
        Span::of(&entry)
    };
    if span.is != Known::Exactly {
        let latest = if span.is == Known::Stamped { span.earliest } else { span.latest };
        (mark.earliest, mark.latest) = (span.earliest.as_microsecond(), latest.as_microsecond());
    }
    if let Some(evidence) = entry.evidence.as_deref() {
        let place = Evidence::ALL.iter().position(|known| known.as_str() == evidence);
        mark.evidence = place.and_then(|place| u8::try_from(place).ok()).unwrap_or(mark.evidence);
    }
    match entry.op {
        EntryType::Modified => {
            let change = Change::of(&entry).ok().flatten().unwrap_or_default();
            let class = classes.of(&entry.full_resource(), &change, entry.time.parse().ok());
            mark.quiet = class.is_no_op();
            mark.bookkeeping =
                class.is_bookkeeping() && !matches!(entry.evidence.as_deref(), Some("listed" | "inferred"));
            words.areas = change
                .areas
                .iter()
                .take(MOST_NAMES)
                .map(|area| short(area).replace(',', " "))
                .collect::<Vec<_>>()
                .join(",");
        }
        EntryType::Added | EntryType::Deleted => {
            entry.uid.as_deref().map_or("", short).clone_into(&mut words.uid);
        }
        EntryType::Gap | EntryType::Actor => {}
    }
    words.managers = match entry.op {
        EntryType::Actor => senders(&entry),
        EntryType::Added | EntryType::Modified | EntryType::Deleted | EntryType::Gap => names(&row.entry.line, &entry),
    };
    (mark, words)
}

/// Stands before a reason in the place of names. No manager has a name with a control character.
const REASON: char = '\u{1}';

/// The names of the writers of an entry, one a line, or the reason why it names none. `head` is the entry without its object, which
/// is read only where the head does not say enough.
fn names(line: &[u8], head: &Entry<'_>) -> String {
    let mut authors = wire::authors(head);
    let mut unnamed = None;
    if authors.is_empty()
        && let Ok(entry) = Entry::parse(line)
    {
        authors = wire::authors(&entry);
        unnamed = wire::unnamed(&entry);
    }
    let mut names: Vec<String> =
        authors.iter().take(MOST_NAMES).map(|by| short(&by.manager).replace(['\n', REASON], " ")).collect();
    names.dedup();
    match unnamed {
        Some(why) => format!("{REASON}{}", why.words()),
        None => names.join("\n"),
    }
}

/// The users that an ACTOR names, one a line.
fn senders(entry: &Entry<'_>) -> String {
    let actor = entry.actor();
    let users = actor.iter().flat_map(users).map(|user| short(user).replace(['\n', REASON], " "));
    users.collect::<Vec<_>>().join("\n")
}

/// The names of the writers of an entry by its outline, and the reason why there are none.
pub(super) fn who(words: &Words) -> (Vec<String>, Option<String>) {
    match words.managers.strip_prefix(REASON) {
        Some(why) => (Vec::new(), Some(why.to_owned())),
        None => (words.managers.lines().map(str::to_owned).collect(), None),
    }
}

/// Reads the owner from an entry.
fn owned(line: &[u8]) -> Owned {
    let Ok(entry) = Entry::parse(line) else { return Owned::default() };
    let owners = entry.object.map(|object| ownership::owners(object.get().as_bytes()));
    Owned { owner: owners.and_then(ownership::parent), uid: entry.uid.as_deref().unwrap_or_default().to_owned() }
}
