//! Recovery of changes that the watches no longer have and etcd still has, by lists of exact versions.
//!
//! A watch is answered from a cache that is empty after a restart of the API server. A list with
//! `resourceVersionMatch=Exact` is answered from etcd, which keeps every revision until it is compacted. So a source that
//! has lost its position asks what happened since, in windows of revisions, the oldest first, because compaction comes from
//! there. The [`plan`] says what to ask; what is here asks it, within bounds, and hands what was found to the journal, a
//! window at a time. Dropping it at any moment is safe: the journal knows how far it is, and drops half a window.

mod ask;
mod mend;
mod outcome;
mod plan;
mod revisions;

use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use futures::stream;
use tokio::time::{Instant, timeout_at};

use super::Shared;
use super::dating::{self, Dates};
use super::decode;
use super::lister::{MANY, no_room};
use super::requests::Stop;
use super::stats::SourceStats;
use super::version_clock::Lateness;
use crate::core::model::{Observed, Redacted, ResourceVersion, SourceSpec};
use crate::core::runtime;
use crate::journal::{Found, JournalError, KnownObject, SourceId, SourceJournal};
use crate::watch::cluster::{Api, Failure, RecoverBounds};
pub(super) use ask::by_name;
use ask::newer;
pub(super) use mend::{MENDS, Mended};
pub(super) use outcome::{Outcome, RecoveryCost, WindowError};
pub(super) use plan::Key;
use plan::{Change, Inconsistency, Plan, Question, State};
pub(super) use revisions::Revisions;
use revisions::number;

/// Revisions of a window, and one more for every ten objects, because each window costs a list.
const WINDOW: u64 = 1000;
/// Questions under way at once, of one source.
const AT_ONCE: usize = 4;
/// Questions after which it is looked again what others have explained.
const ROUND: usize = 64;
/// Time that a source waits for others to find their versions, which may make its own requests unnecessary.
const OTHERS_TIMEOUT: Duration = Duration::from_secs(10);
/// … and one that has found nothing for those that have, until they have found everything.
const FINDERS_TIMEOUT: Duration = Duration::from_secs(120);
/// Duration of a window beyond which the newest version is requested again before the source watches.
const WINDOW_AGE_MAX: Duration = Duration::from_secs(5);
/// Number of entries since the last verification of the log up to which missing ones are searched.
const MOST_RECORDED: usize = 20_000;

/// Recovers one source, once.
pub(super) struct Recovery<'a> {
    pub(super) shared: &'a Shared,
    pub(super) api: &'a Api,
    /// Generation of the client that makes the requests.
    pub(super) generation: u64,
    pub(super) spec: &'a SourceSpec,
    /// The field selector that the API server takes.
    pub(super) fields: &'a str,
    pub(super) id: SourceId,
    pub(super) journal: &'a SourceJournal,
    pub(super) stats: &'a SourceStats,
    pub(super) bounds: RecoverBounds,
    pub(super) cost: &'a RecoveryCost,
    /// A list that lacks most of what is known is believed.
    pub(super) confirmed: bool,
    /// Questions about the past are allowed.
    pub(super) has_past: bool,
}

/// One window on its way.
struct Window {
    from: u64,
    to: u64,
    /// Highest version of the journal that counts: later ones are of a time that a restore from a backup has undone.
    applied: u64,
    keys: RandomState,
    /// Versions of objects that are staged.
    staged: Mutex<BTreeSet<(Key, u64)>>,
    /// Objects that the API server could not read at some revision.
    unreadable: Mutex<BTreeSet<Key>>,
}

/// An answer, as the plan takes it.
enum Answer {
    Object { key: Key, at: u64, since: u64, state: Option<State> },
    Unreadable { key: Key, at: u64 },
    Count { at: u64, count: Option<u64> },
    Names { at: u64, count: u64, changed: Vec<(Key, State)>, around: Vec<Key> },
}

impl Recovery<'_> {
    pub(super) async fn recover(self) -> Result<Outcome, Stop> {
        // Whatever it waits for: answers, turns, other sources.
        let Ok(ended) = timeout_at(self.deadline(), Box::pin(self.windows())).await else {
            return Ok(Outcome::Unrecoverable(self.too_long(self.cost.requests.load(Ordering::Relaxed))));
        };
        match ended {
            Ok(outcome) => Ok(outcome),
            Err(WindowError::Unrecoverable(text)) => Ok(Outcome::Unrecoverable(text)),
            Err(WindowError::Unreadable(unreadable)) => Ok(Outcome::Unrecoverable(unreadable.to_string())),
            Err(WindowError::ListTooShort(text)) => Ok(Outcome::ListTooShort(text)),
            Err(WindowError::NoRoom(text)) => Ok(Outcome::NoRoom(text)),
            Err(WindowError::Compacted | WindowError::RevisionConflict) => {
                Ok(Outcome::Unrecoverable("the API server's history goes while it is read".to_owned()))
            }
            Err(WindowError::Stop(stop)) => Err(stop),
        }
    }

    async fn windows(&self) -> Result<Outcome, WindowError> {
        // What was handed over has to be on disk, because that is what it begins with.
        self.shared.journal.flush().await?;
        let (journal, id) = (self.shared.journal.clone(), self.id);
        let read = runtime::blocking(move || {
            let reader = journal.reader()?;
            Ok::<_, JournalError>((reader.lost_at(id)?, reader.objects_of(id)?))
        });
        let (lost, objects) = read.await.map_err(unreadable)?;
        let numbers = lost.from.as_ref().and_then(number).zip(lost.applied.as_ref().and_then(number));
        let (mut from, applied) = numbers.ok_or_else(unordered)?;
        let mut recorded = match lost.recorded_since {
            Some(since) => self.recorded(from, since).await?,
            None => {
                // Several objects may have been deleted under the newest version, and some of that may be missing.
                from = from.max(applied - 1);
                Histories::new()
            }
        };
        // The newest version is so since then, however long it takes until it is recovered.
        let mut newest_at = runtime::now();
        let mut newest = self.newest_of(self.spec).await?;
        if newest < from.max(applied) {
            return Err(WindowError::Stop(Failure::Ahead.into()));
        }
        Box::pin(self.mend_base(from)).await?;
        // What was recorded beyond a window could not be distinguished from what is missing.
        let size = if lost.recorded_since.is_some() { newest } else { WINDOW + objects / 10 };
        let mut alone = false;
        let mut asked = Instant::now();
        loop {
            let to = newest.min(from + size);
            let given_up = self.journal.lists_given_up();
            self.begin_window((to == newest).then_some(newest_at)).await?;
            match self.window(from, to, from.max(applied), &recorded, alone).await {
                Ok(()) => {}
                Err(WindowError::Compacted) => {
                    let oldest = self.oldest(from, newest).await?;
                    return Ok(Outcome::Compacted(version(oldest)));
                }
                Err(WindowError::RevisionConflict) if !alone => {
                    tracing::info!(source = self.spec.name(), "its revisions are not those of other sources");
                    self.shared.revisions.disown(self.id);
                    alone = true;
                    continue;
                }
                Err(trouble) => return Err(trouble),
            }
            let began = std::mem::replace(&mut asked, Instant::now());
            if to == newest && began.elapsed() > WINDOW_AGE_MAX {
                // By now a watch may no longer have what happened meanwhile.
                newest_at = runtime::now();
                newest = self.newest_of(self.spec).await?.max(to);
            }
            self.journal.part_done(version(to), to == newest).await?;
            if self.journal.lists_given_up() != given_up {
                return Err(WindowError::NoRoom(no_room(objects)));
            }
            from = to;
            recorded.clear();
            if to == newest {
                return Ok(Outcome::Done(version(newest)));
            }
        }
    }

    /// Finds and stages what happened after `from`, up to `to`.
    async fn window(
        &self,
        from: u64,
        to: u64,
        applied: u64,
        recorded: &Histories,
        alone: bool,
    ) -> Result<(), WindowError> {
        if from == to {
            return Ok(());
        }
        let window = Window { applied, ..Window::new(from, to) };
        let in_flight = InFlight::begin(&self.shared.in_flight);
        // Whether etcd still has the beginning is known before anything else is asked for.
        self.in_etcd(from + 1).await?;
        let first = self.count(from + 1).await?;
        let mut plan = self.ends(&window, recorded).await?;
        plan.count(from + 1, first);
        if !alone {
            self.compare(&window).await;
            plan.explain(&self.shared.revisions.of_others(self.id, from, to));
        }
        // Who has found changes explains them to the others, who ask for what is left when it is done.
        let is_busy = matches!(plan.next()?.first(), Some(Question::Object(..)));
        let mut in_flight = Some(in_flight);
        let with_findings = is_busy.then(|| InFlight::begin(&self.shared.with_findings));
        let mut turn = None;
        loop {
            let mut questions = plan.next()?;
            if questions.is_empty() {
                break;
            }
            if !alone && !matches!(questions.first(), Some(Question::Object(..))) {
                // What follows is asked of every revision that nobody explains: others may be about to.
                if turn.is_none() {
                    drop(in_flight.take());
                    self.wait_for(&self.shared.in_flight, OTHERS_TIMEOUT).await;
                    if with_findings.is_none() {
                        self.wait_for(&self.shared.with_findings, FINDERS_TIMEOUT).await;
                    }
                    turn = self.shared.counting.acquire().await.ok();
                    self.compare(&window).await;
                }
                plan.explain(&self.shared.revisions.of_others(self.id, from, to));
                questions = plan.next()?;
            }
            questions.truncate(ROUND);
            let mut answers =
                stream::iter(questions.into_iter().map(|question| self.ask(&window, question))).buffered(AT_ONCE);
            while let Some(answer) = answers.next().await {
                match answer? {
                    Answer::Object { key, at, since, state } => plan.object(&key, at, since, state)?,
                    Answer::Unreadable { key, at } => plan.unreadable(&key, at)?,
                    Answer::Count { at, count } => plan.count(at, count),
                    Answer::Names { at, count, changed, around } => {
                        let count = count + window.count_around(around, &mut plan);
                        plan.names(at, count, changed)?;
                    }
                }
            }
            drop(answers);
            self.shared.revisions.note_numbers(self.id, plan.found().map(|revision| (revision, false)));
        }
        let changes = plan.changes()?;
        self.look_at_deleted(&window, &plan, &changes).await?;
        self.stage_found(&window, changes).await
    }

    /// Stages the deletions among the changes of a window, whose other versions are staged, with the times of all; and what the API
    /// server could not read.
    async fn stage_found(&self, window: &Window, changes: Vec<Change>) -> Result<(), WindowError> {
        for key in window.unreadable() {
            self.journal.unreadable(key).await?;
        }
        self.shared.revisions.note_numbers(self.id, changes.iter().map(|change| (change.version, change.deleted)));
        tracing::debug!(
            source = self.spec.name(),
            from = window.from,
            to = window.to,
            changes = changes.len(),
            "recovered a part of the history"
        );
        let versions = changes.iter().map(|change| (version(change.version), change.deleted)).collect();
        let dates = self.dates(versions).await;
        if !dates.is_empty() {
            self.journal.date(Arc::new(dates)).await?;
        }
        let deletions = changes.into_iter().filter(|change| change.deleted).map(|change| {
            let (namespace, name) = change.key;
            let body = Redacted::default();
            Found::Deletion(Observed { namespace, name, uid: String::new(), version: version(change.version), body })
        });
        let deletions: Vec<Found> = deletions.collect();
        if !deletions.is_empty() {
            self.journal.found(deletions).await?;
        }
        Ok(())
    }

    /// Returns the times of versions, as far as they are known. Whether each is a deletion, which carries no time, is beside it.
    async fn dates(&self, versions: Vec<(ResourceVersion, bool)>) -> Dates {
        let all: Vec<&ResourceVersion> = versions.iter().map(|(version, _)| version).collect();
        let mut dates = match self.shared.lateness(self.spec, &all, true).await {
            Lateness::Dated(dates) => dates,
            Lateness::Present | Lateness::Unknown => Dates::new(),
        };
        let deletions = versions.iter().filter(|(_, deleted)| *deleted).map(|(version, _)| version);
        dating::join(&mut dates, self.shared.date(deletions).await.as_ref());
        dates
    }

    /// Returns the entries of versions after this one that the log has recorded since a moment.
    async fn recorded(&self, from: u64, since: i64) -> Result<Histories, WindowError> {
        let (journal, id) = (self.shared.journal.clone(), self.id);
        let read = runtime::blocking(move || journal.reader()?.recorded_since(id, since, MOST_RECORDED));
        let Some(recorded) = read.await.map_err(unreadable)? else {
            return Err(WindowError::Unrecoverable("too much was recorded since the log was last proved".to_owned()));
        };
        let mut histories = Histories::new();
        for (object, added) in recorded {
            let KnownObject { namespace, name, uid, version, present } = object;
            let version = number(&version).ok_or_else(unordered)?;
            if version > from {
                let there = (!added).then(|| uid.clone());
                let history =
                    histories.entry((namespace, name)).or_insert_with(|| History { there, recorded: Vec::new() });
                history.recorded.push((version, present.then_some(uid)));
            }
        }
        Ok(histories)
    }

    /// Returns the state of the journal at the beginning of a window, and that of the API server at its end.
    async fn ends(&self, window: &Window, recorded: &Histories) -> Result<Plan, WindowError> {
        let mut plan = Plan::new(window.from, window.to);
        let (known, unread) = self.known(window).await?;
        let total = known.values().filter(|known| known.2).count() as u64;
        let mut missing = known;
        let mut listed = 0;
        let mut differ = Vec::new();
        let wrong = self.stats.cache_fault().objects;
        let around = self
            .list(window.to, |object| {
                listed += 1;
                let key = (object.namespace.clone(), object.name.clone());
                if wrong.contains(&key) {
                    return Ok(());
                }
                let name = window.keys.hash_one(&key);
                if object.version.is_empty() && unread.contains(&(name, window.keys.hash_one(&object.uid), 0)) {
                    // It has no version, and is recorded as such.
                    missing.remove(&name);
                    plan.same();
                    return Ok(());
                }
                let state = window.state(&object)?;
                if unread.contains(&(name, state.uid, state.version)) {
                    // It is too large, and recorded as such.
                    missing.remove(&name);
                    if state.version <= window.from {
                        plan.same();
                    } else {
                        differ.push((key, Some((state.uid, state.version, true)), state));
                    }
                    return Ok(());
                }
                match missing.remove(&name) {
                    // What was recorded in this window has not been there all the time.
                    Some((uid, version, true))
                        if state == (State { uid, version })
                            && version <= window.from
                            && !recorded.contains_key(&key) =>
                    {
                        plan.same();
                    }
                    before => differ.push((key, before, state)),
                }
                Ok(())
            })
            .await?;
        listed += around.len();
        window.went_around(around, &mut missing, recorded, &mut plan);
        let wrong = wrong.into_iter().map(|key| (missing.remove(&window.hash_of(&key)), key)).collect::<Vec<_>>();
        let gone = missing.values().filter(|known| known.2).count() as u64;
        if !self.confirmed && gone * 2 > total && (gone >= MANY || listed == 0) {
            return Err(WindowError::ListTooShort(format!("a list lacks {gone} of {total} objects; asking again")));
        }
        for (before, key) in wrong {
            self.ends_by_name(window, &key, before, recorded, &mut plan).await?;
        }
        for (key, before, state) in differ {
            window.begin(&mut plan, &key, before, recorded)?;
            plan.ends(&key, Some(state))?;
        }
        if missing.is_empty() {
            return Ok(plan);
        }
        // Their names were not kept.
        let (journal, id, keys, from) =
            (self.shared.journal.clone(), self.id, window.keys.clone(), version(window.from));
        let names = runtime::blocking(move || {
            let mut names = Vec::new();
            journal.reader()?.each_known(id, &from, |known| {
                let key = (known.namespace, known.name);
                if missing.contains_key(&keys.hash_one(&key)) {
                    names.push(key);
                }
            })?;
            Ok::<_, JournalError>((names, missing))
        });
        let (names, missing) = names.await.map_err(unreadable)?;
        for key in names {
            window.begin(&mut plan, &key, missing.get(&window.keys.hash_one(&key)).copied(), recorded)?;
            plan.ends(&key, None)?;
        }
        Ok(plan)
    }

    /// Returns the journal's objects: for the hash of a name that of the uid, the version and the presence; and those that are
    /// known to be too large.
    async fn known(
        &self,
        window: &Window,
    ) -> Result<(HashMap<u64, (u64, u64, bool)>, BTreeSet<(u64, u64, u64)>), WindowError> {
        let (journal, id, keys, from) =
            (self.shared.journal.clone(), self.id, window.keys.clone(), version(window.from));
        let applied = window.applied;
        let read = runtime::blocking(move || {
            let reader = journal.reader()?;
            let mut known = HashMap::new();
            let mut ordered = true;
            reader.each_known(id, &from, |object| {
                let KnownObject { namespace, name, uid, version, present } = object;
                let Some(version) = number(&version) else {
                    ordered = false;
                    return;
                };
                if present || version <= applied {
                    known.insert(keys.hash_one((namespace, name)), (keys.hash_one(&uid), version, present));
                }
            })?;
            let mut unread = BTreeSet::new();
            for [namespace, name, uid, version] in reader.unread(id)? {
                let number = number(&ResourceVersion(version)).unwrap_or(0);
                unread.insert((keys.hash_one((namespace, name)), keys.hash_one(&uid), number));
            }
            Ok::<_, JournalError>((ordered.then_some(known), unread))
        });
        let (known, unread) = read.await.map_err(unreadable)?;
        known.map(|known| (known, unread)).ok_or_else(unordered)
    }

    /// Finds out whose revisions say anything about those of this source, of all who have seen some of the window.
    async fn compare(&self, window: &Window) {
        let revisions = &self.shared.revisions;
        let Some((first, uncompared)) = revisions.uncompared(self.id, window.from, window.to) else { return };
        let compared = async {
            let before = self.newest_of(&first).await?;
            let mut theirs = Vec::new();
            for other in uncompared {
                match self.newest_of(&other.spec).await {
                    Ok(newest) => theirs.push((other.id, Some(newest))),
                    // Whom we may not ask explains nothing.
                    Err(WindowError::Unrecoverable(_) | WindowError::Unreadable(_)) => theirs.push((other.id, None)),
                    Err(trouble) => return Err(trouble),
                }
            }
            let after = self.newest_of(&first).await?;
            Ok::<_, WindowError>((before..=after, theirs))
        };
        // Each is the newest at its time, so in one etcd they only grow.
        let Ok((span, theirs)) = compared.await else { return };
        for (id, newest) in theirs {
            revisions.judge(id, newest.is_some_and(|newest| span.contains(&newest)));
        }
    }

    /// Other sources may be about to find what explains what this one would ask for.
    async fn wait_for(&self, others: &AtomicU32, most: Duration) {
        let end = Instant::now() + most;
        while others.load(Ordering::Relaxed) > 0 && Instant::now() < end {
            self.shared.rest(Duration::from_millis(50)).await;
        }
    }
}

impl Window {
    fn new(from: u64, to: u64) -> Self {
        let (staged, unreadable) = (Mutex::default(), Mutex::default());
        Self { from, to, applied: from, keys: RandomState::new(), staged, unreadable }
    }

    fn add_unreadable(&self, keys: impl IntoIterator<Item = Key>) {
        self.unreadable.lock().unwrap_or_else(PoisonError::into_inner).extend(keys);
    }

    /// Adds objects that a list of the end went around. Each counts as unchanged.
    fn went_around(
        &self,
        around: Vec<Key>,
        missing: &mut HashMap<u64, (u64, u64, bool)>,
        recorded: &Histories,
        plan: &mut Plan,
    ) {
        for key in &around {
            match missing.remove(&self.hash_of(key)) {
                Some((_, version, true)) if version <= self.from && !recorded.contains_key(key) => plan.same(),
                _ => plan.cannot_count(),
            }
        }
        self.add_unreadable(around);
    }

    /// Adds objects that a list went around, and counts those that were there. Others are in no plan, so that counts say nothing.
    fn count_around(&self, around: Vec<Key>, plan: &mut Plan) -> u64 {
        let mut unreadable = self.unreadable.lock().unwrap_or_else(PoisonError::into_inner);
        let known = around.iter().filter(|key| unreadable.contains(*key) || plan.has_begun(key)).count();
        if known < around.len() {
            plan.cannot_count();
        }
        unreadable.extend(around);
        known as u64
    }

    /// Takes the objects that the API server could not read.
    fn unreadable(&self) -> BTreeSet<Key> {
        std::mem::take(&mut *self.unreadable.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the number that stands for a name.
    fn hash_of(&self, key: &Key) -> u64 {
        self.keys.hash_one(key)
    }

    /// Returns the number that stands for a uid.
    fn hash(&self, uid: &str) -> u64 {
        self.keys.hash_one(uid)
    }

    /// Adds the journal's state of an object; the hash of its uid, its version and its presence are given.
    fn begin(
        &self,
        plan: &mut Plan,
        key: &Key,
        known: Option<(u64, u64, bool)>,
        recorded: &Histories,
    ) -> Result<(), Inconsistency> {
        let Some(history) = recorded.get(key) else {
            let state =
                |(uid, version, present): (u64, u64, bool)| (version, present.then_some(State { uid, version }));
            return plan.begins(key, known.map(state));
        };
        let number = |uid: &String| self.keys.hash_one(uid);
        let mut versions: Vec<(u64, Option<u64>)> =
            history.recorded.iter().map(|(version, uid)| (*version, uid.as_ref().map(number))).collect();
        // A version that was suppressed is in no entry.
        let last = versions.last().map_or(0, |(version, _)| *version);
        versions.extend(
            known.filter(|known| known.1 > last).map(|(uid, version, present)| (version, present.then_some(uid))),
        );
        plan.recorded(key, history.there.as_ref().map(number), &versions)
    }

    fn state(&self, object: &decode::Odd) -> Result<State, Failure> {
        let version = number(&ResourceVersion::new(&*object.version)).filter(|version| *version <= self.to);
        let version = version.ok_or_else(newer)?;
        Ok(State { uid: self.keys.hash_one(&*object.uid), version })
    }
}

/// Entries of an object in a window that the log has recorded already.
struct History {
    /// Its uid before that, where it was there.
    there: Option<String>,
    /// By version: its uid, and nothing for a deletion.
    recorded: Vec<(u64, Option<String>)>,
}

type Histories = BTreeMap<Key, History>;

/// Counts those who find versions, for as long as this lives.
struct InFlight<'a>(&'a AtomicU32);

impl<'a> InFlight<'a> {
    fn begin(count: &'a AtomicU32) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn version(number: u64) -> ResourceVersion {
    ResourceVersion(number.to_string())
}

fn unordered() -> WindowError {
    WindowError::Unrecoverable("its versions have no order".to_owned())
}

/// Error of a read that may succeed later, for instance for want of file descriptors.
#[expect(clippy::needless_pass_by_value, reason = "it is given to map_err")]
fn unreadable(error: JournalError) -> WindowError {
    WindowError::Stop(Failure::Unreachable(format!("the journal cannot be read: {error}")).into())
}
