//! Counters of each source, for status and metrics.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::Shared;
use super::machine::Anomaly;
use crate::core::model::Seq;
use crate::core::runtime;
use crate::journal::{JournalError, Name, SourceJournal, SourceState};
use crate::watch::cluster::Failure;

/// Objects that the API server's watch cache shows wrongly.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CacheFault {
    /// When the first of them was found.
    pub since: Option<jiff::Timestamp>,
    /// Their namespaces and names.
    pub objects: BTreeSet<Name>,
    /// Since when the API server itself says that its watch cache differs from etcd.
    pub reported: Option<jiff::Timestamp>,
}

/// Number of objects to ask for first that are remembered.
const SUSPECTS_MAX: usize = 10_000;

/// Counters of one source since the daemon began. Every read is of one number; there is no moment that all are of.
#[derive(Debug)]
pub struct SourceStats {
    /// Changes handed to the journal.
    pub changes: AtomicU64,
    /// Bytes received, of lists and watches.
    pub bytes: AtomicU64,
    /// Lists begun.
    pub lists: AtomicU64,
    /// Watches opened.
    pub watches: AtomicU64,
    /// Changes that the journal had already.
    pub replays: AtomicU64,
    /// Versions that came out of order.
    pub disorders: AtomicU64,
    /// Positions lost: each makes a list and a GAP.
    pub desyncs: AtomicU64,
    /// Lists that were given up, because they do not end or the journal has no room for them.
    pub lists_given_up: AtomicU64,
    /// Audits that came to no answer.
    pub audits_undecided: AtomicU64,
    /// Objects that audits have asked etcd for, by their names.
    pub examined: AtomicU64,
    /// Time of the last change, in microseconds since 1970; 0 for never.
    pub last_change: AtomicU64,
    /// Time of the last message, in microseconds since 1970; 0 for never.
    pub last_contact: AtomicU64,
    failures: [AtomicU64; Failure::NAMES.len()],
    state: Mutex<SourceState>,
    cache: Mutex<CacheFault>,
    /// Object up to which audits have asked etcd for all.
    examined_upto: Mutex<Name>,
    /// Objects that others say the log lacks something of, the next audit asks for them.
    suspects: Mutex<BTreeSet<Name>>,
    /// Newest entry before whose changes audits have looked.
    linked_upto: AtomicU64,
    settled: AtomicBool,
    began: Instant,
    /// Time of the last message since `began`, in milliseconds.
    heard: AtomicU64,
}

impl Default for SourceStats {
    fn default() -> Self {
        Self {
            changes: AtomicU64::default(),
            bytes: AtomicU64::default(),
            lists: AtomicU64::default(),
            watches: AtomicU64::default(),
            replays: AtomicU64::default(),
            disorders: AtomicU64::default(),
            desyncs: AtomicU64::default(),
            lists_given_up: AtomicU64::default(),
            audits_undecided: AtomicU64::default(),
            examined: AtomicU64::default(),
            last_change: AtomicU64::default(),
            last_contact: AtomicU64::default(),
            failures: Default::default(),
            state: Mutex::new(SourceState::Waiting),
            cache: Mutex::default(),
            examined_upto: Mutex::default(),
            suspects: Mutex::default(),
            linked_upto: AtomicU64::default(),
            settled: AtomicBool::default(),
            began: Instant::now(),
            heard: AtomicU64::default(),
        }
    }
}

fn now() -> u64 {
    u64::try_from(runtime::now().as_microsecond()).unwrap_or_default()
}

impl SourceStats {
    /// Returns the number of failed requests, by the name of the failure.
    pub fn failures(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Failure::NAMES.into_iter().zip(self.failures.iter().map(|count| count.load(Relaxed)))
    }

    /// Returns the state of the source.
    #[must_use]
    pub fn state(&self) -> SourceState {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reports whether it has resumed, finished its first list, or cannot do so without a person's help.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.settled.load(Relaxed)
    }

    pub(super) fn settle(&self, shared: &Shared) {
        if !self.settled.swap(true, Relaxed) {
            shared.settled.notify_one();
        }
    }

    /// Notes what the source is doing, here and in the journal.
    pub(super) async fn report(&self, journal: &SourceJournal, state: SourceState) -> Result<(), JournalError> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&state);
        journal.report(state).await
    }

    pub(super) fn failed(&self, failure: &Failure) {
        let place = Failure::NAMES.iter().position(|name| *name == failure.name());
        if let Some(count) = place.and_then(|place| self.failures.get(place)) {
            count.fetch_add(1, Relaxed);
        }
    }

    pub(super) fn count(&self, anomaly: Anomaly) {
        let count = match anomaly {
            Anomaly::Replay => &self.replays,
            Anomaly::Disorder => &self.disorders,
            Anomaly::ListGivenUp => &self.lists_given_up,
            Anomaly::Desync(_) | Anomaly::Inconsistent => &self.desyncs,
        };
        count.fetch_add(1, Relaxed);
    }

    pub(super) fn undecided(&self) {
        self.audits_undecided.fetch_add(1, Relaxed);
    }

    /// Returns what the API server's watch cache is known to show wrongly of this source.
    #[must_use]
    pub fn cache_fault(&self) -> CacheFault {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets which objects the watch cache shows wrongly.
    pub(super) fn set_cache_fault(&self, fault: CacheFault) {
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        *cache = CacheFault { reported: cache.reported, ..fault };
    }

    /// Sets since when the API server itself says that its watch cache differs from etcd.
    pub(super) fn report_cache(&self, since: Option<jiff::Timestamp>) {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner).reported = since;
    }

    /// Returns the object behind which the next audit asks etcd for objects.
    pub(super) fn examined_upto(&self) -> Name {
        self.examined_upto.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn examine_after(&self, name: Name) {
        *self.examined_upto.lock().unwrap_or_else(PoisonError::into_inner) = name;
    }

    /// Has the next audit ask etcd for this object. Nothing but the answer is believed.
    pub(super) fn suspect(&self, name: Name) {
        let mut suspects = self.suspects.lock().unwrap_or_else(PoisonError::into_inner);
        if suspects.len() < SUSPECTS_MAX {
            suspects.insert(name);
        }
    }

    /// Returns at most so many of the objects to ask for first.
    pub(super) fn suspects(&self, most: usize) -> Vec<Name> {
        self.suspects.lock().unwrap_or_else(PoisonError::into_inner).iter().take(most).cloned().collect()
    }

    /// Forgets objects that etcd was asked for.
    pub(super) fn acquit(&self, asked: &[Name]) {
        let mut suspects = self.suspects.lock().unwrap_or_else(PoisonError::into_inner);
        suspects.retain(|name| !asked.contains(name));
    }

    /// Returns the newest entry before whose changes audits have looked.
    pub(super) fn linked_upto(&self) -> Seq {
        Seq(self.linked_upto.load(Relaxed))
    }

    pub(super) fn link_upto(&self, seq: Seq) {
        self.linked_upto.fetch_max(seq.0, Relaxed);
    }

    pub(super) fn listed(&self) {
        self.lists.fetch_add(1, Relaxed);
    }

    pub(super) fn opened(&self) {
        self.watches.fetch_add(1, Relaxed);
        self.contact();
    }

    pub(super) fn changed(&self, changes: usize) {
        self.changes.fetch_add(changes as u64, Relaxed);
        self.last_change.store(now(), Relaxed);
    }

    pub(super) fn received(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Relaxed);
        self.contact();
    }

    pub(super) fn contact(&self) {
        self.last_contact.store(now(), Relaxed);
        let heard = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.heard.store(heard, Relaxed);
    }

    /// Returns the time since the last message.
    pub(super) fn silent_for(&self) -> Duration {
        self.began.elapsed().saturating_sub(Duration::from_millis(self.heard.load(Relaxed)))
    }
}
