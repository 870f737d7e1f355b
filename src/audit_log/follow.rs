//! The way from audit logs and entries to ACTOR entries.
//!
//! # Decision: the sender of a change is an entry of its own
//!
//! Context: The audit log comes milliseconds later than the watch, or minutes. At level `Metadata` its first event proves nothing: a
//! request that is still running may have made the change, so that a sender is certain ten seconds later at the earliest. An entry
//! that waited 250 ms would hold everybody up, and go without.
//! Decision: The entry of a change is written at once and never again. What the audit log says of its sender is an ACTOR entry that
//! names it, with a place of its own in the log, delivered once and in order like everything.
//! Cost: A consumer who wants the sender joins two entries.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Rules;
use super::join::{self, Joiner, Limits, Version};
use super::unexplained::{Opened, Tally};
use super::unwritten::{self, Suspect};
use super::versions::{Versions, WATCH_LAG_MAX};
use crate::core::k8s::audited::{Actor, AuditedRequest, Unexplained};
use crate::core::model::Seq;
use crate::core::runtime::{self, watch};
use crate::journal::{
    Attribution, AuditLogRow, Journal, JournalError, REQUESTS_MAX, Reader, Role, SourceRow, Unwritten,
};

/// Time for which requests are kept for versions to come, and entries are read again after a restart.
const KEPT_MAX: Duration = Duration::from_mins(15);
/// Number of entries that are read at once, and about so many bytes.
const PAGE: usize = 256;
const BYTES: usize = 4 << 20;
/// Interval at which the place up to which everything is decided is stored, where nothing else is.
const NOTE_INTERVAL: Duration = Duration::from_secs(10);
/// Interval at which it is read what the sources cover.
const COVER_INTERVAL: Duration = Duration::from_secs(1);

/// News from one audit log, which is on disk.
#[derive(Debug, Default)]
pub(super) struct News {
    /// Name of the audit log.
    pub(super) log: String,
    /// Requests that may have changed something.
    pub(super) requests: Vec<AuditedRequest>,
    /// Time before which every request that was answered is read, microseconds since 1970; 0 where this says nothing of it.
    pub(super) complete: i64,
}

/// An audit log that is followed.
#[derive(Clone, Debug)]
pub(super) struct Followed {
    pub(super) name: String,
    /// Time of the first request in its file, microseconds since 1970; none where that is not known.
    pub(super) begins: Option<i64>,
}

/// State of the join.
struct Follower {
    journal: Journal,
    rules: Rules,
    joiner: Joiner,
    versions: Versions,
    /// Up to when each audit log is read.
    complete: BTreeMap<String, i64>,
    /// Entries that wait for a verdict.
    open: BTreeMap<u64, Opened>,
    /// The last entry that was read.
    read: Seq,
    /// Time up to which every version that was written is read, microseconds since 1970.
    versions_complete: i64,
    /// Every entry up to this one is decided, as the journal has it.
    attributed: Seq,
    /// Senders that are not recorded yet.
    actors: Vec<(Seq, Actor)>,
    /// Requests that changed nothing and are not counted yet.
    wasted: Vec<Unwritten>,
    /// Taker of the objects whose versions the log may lack.
    suspects: Suspects,
    tally: Tally,
    /// Taker of what the audit logs do not explain.
    unexplained: watch::Sender<Unexplained>,
    noted: Instant,
    /// Time of which each audit log lacks events, microseconds since 1970.
    doubts: BTreeSet<(i64, i64)>,
}

/// Taker of objects whose versions the log may lack.
pub type Suspects = Arc<dyn Fn(Suspect) + Send + Sync>;

/// Rules of redaction, and the takers of what the join finds.
type Told = (Rules, Suspects, watch::Sender<Unexplained>);

/// Joins what the audit logs of these names bring with the entries of the log, until `stop`. Clocks differ by the time beside the names at
/// most.
///
/// # Errors
/// Where the journal cannot be read or written.
pub(super) async fn follow(
    journal: Journal,
    logs: (Vec<Followed>, Duration),
    (rules, suspects, unexplained): Told,
    mut news: mpsc::Receiver<News>,
    stop: CancellationToken,
) -> Result<(), JournalError> {
    let mut reader = journal.reader()?;
    let mut head = journal.head();
    let mut follower = Follower::begin(journal, logs, (rules, suspects, unexplained), &reader)?;
    let mut covered: Option<Instant> = None;
    loop {
        let looked = now();
        // What the sources cover is in the log that is read behind this.
        if covered.is_none_or(|at| at.elapsed() >= COVER_INTERVAL) {
            covered = Some(Instant::now());
            follower.cover(&reader.sources()?);
        }
        let upto = *head.borrow_and_update();
        while follower.read < upto && !stop.is_cancelled() {
            (reader, follower) = runtime::blocking(move || follower.page(reader, upto)).await?;
        }
        // A watch brings a version at once, or its entry says since when it may have happened.
        follower.doubt(&reader)?;
        follower.versions_complete = looked.saturating_sub(micros(WATCH_LAG_MAX));
        (reader, follower) = runtime::blocking(move || follower.settle(reader)).await?;
        tokio::select! {
            biased;
            // A journal that is paused takes nothing.
            () = stop.cancelled() => return Ok(()),
            recorded = follower.record() => recorded?,
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(()),
            some = news.recv() => match some {
                Some(some) => follower.take(some),
                None => return Ok(()),
            },
            changed = head.changed() => if changed.is_err() { return Ok(()) },
        }
        // What has come meanwhile is decided together.
        while let Ok(some) = news.try_recv() {
            follower.take(some);
        }
    }
}

/// Waits until a journal that is shared is written here.
pub(super) async fn leads(journal: &Journal, stop: &CancellationToken) -> bool {
    let mut shared = journal.shared();
    tokio::select! {
        biased;
        () = stop.cancelled() => false,
        led = shared.wait_for(|shared| shared.role != Role::Standby) => led.is_ok(),
    }
}

impl Follower {
    /// Goes on where the journal was left: with the requests that it keeps, and with the entries that these may be about.
    fn begin(
        journal: Journal,
        (logs, skew): (Vec<Followed>, Duration),
        (rules, suspects, unexplained): Told,
        reader: &Reader,
    ) -> Result<Self, JournalError> {
        let attributed = reader.attributed()?;
        let known: BTreeMap<String, i64> =
            reader.audit_logs()?.into_iter().map(|row| (row.name, row.complete)).collect();
        let complete: BTreeMap<String, i64> =
            logs.iter().map(|log| (log.name.clone(), known.get(&log.name).copied().unwrap_or(0))).collect();
        // Before there was an audit log there is nothing to be decided.
        let oldest = complete.values().copied().min().filter(|complete| *complete > 0);
        let begins = || logs.iter().map(|log| log.begins.unwrap_or_else(now)).max().unwrap_or_else(now);
        let from = oldest.map_or_else(begins, |complete| complete.saturating_sub(micros(KEPT_MAX)));
        let requests = reader.audited()?;
        // Those before the oldest were forgotten.
        let is_full = requests.len() >= REQUESTS_MAX;
        let oldest = requests.first().filter(|_| is_full).map(|request| request.completed + join::REQUEST_MAX);
        let from = from.max(oldest.unwrap_or(i64::MIN));
        let read = reader.last_before(from)?;
        // The middle of all lies half of it from each.
        let mut joiner = Joiner::new(Limits { skew: micros(skew) / 2, ..Limits::default() }, from);
        // Other rules may hold than when they were written.
        let redactor = Arc::clone(&rules.borrow());
        for mut request in requests {
            redactor.redact_sender(&mut request.sender);
            joiner.request(request);
        }
        Ok(Self {
            journal,
            rules,
            joiner,
            versions: Versions::new(skew),
            complete,
            open: BTreeMap::new(),
            read,
            versions_complete: 0,
            attributed,
            actors: Vec::new(),
            wasted: Vec::new(),
            suspects,
            tally: Tally::new(now()),
            unexplained,
            noted: Instant::now(),
            doubts: BTreeSet::new(),
        })
    }

    /// Takes the times of which events are missing: before the first event of each audit log, and where some were lost, also before a
    /// restart.
    fn doubt(&mut self, reader: &Reader) -> Result<(), JournalError> {
        let active: Vec<AuditLogRow> = reader.audit_logs()?.into_iter().filter(|row| row.active).collect();
        let mut is_silent = false;
        for (row, complete) in active.iter().filter_map(|row| Some((row, self.complete.get(&row.name)?))) {
            // An audit log that has brought nothing yet may not be connected.
            match row.first_at {
                0 => self.joiner.be_silent(*complete),
                first_at => self.joiner.begin(first_at),
            }
            is_silent |= row.first_at == 0;
        }
        self.tally.silent(is_silent);
        let doubts: BTreeSet<(i64, i64)> = active.into_iter().flat_map(|row| row.doubts).collect();
        for &(from, to) in doubts.difference(&self.doubts) {
            self.joiner.doubt(from, to);
        }
        self.doubts = doubts;
        Ok(())
    }

    /// Takes what the sources cover.
    fn cover(&mut self, sources: &[SourceRow]) {
        self.joiner.cover(unwritten::covers(sources));
        self.tally.watch(sources);
    }

    fn take(&mut self, news: News) {
        for request in news.requests {
            self.joiner.request(request);
        }
        if let Some(complete) = self.complete.get_mut(&news.log) {
            *complete = news.complete.max(*complete);
        }
    }

    /// Reads a page of the log.
    fn page(mut self, mut reader: Reader, upto: Seq) -> Result<(Reader, Self), JournalError> {
        let entries = match reader.entries_after(self.read, PAGE, BYTES) {
            Ok(entries) => entries,
            // A damaged entry has no sender; whoever needs it says so.
            Err(JournalError::Corrupt(_)) => {
                self.read = self.read.next();
                return Ok((reader, self));
            }
            Err(error) => return Err(error),
        };
        for entry in &entries {
            if let Ok(Some(version)) = self.versions.take(&entry.line) {
                self.open(version);
            }
        }
        for missing in self.versions.missing() {
            self.joiner.lacks(missing);
        }
        self.read = entries.last().map_or(upto, |entry| entry.seq);
        Ok((reader, self))
    }

    /// Hands a version to the join.
    fn open(&mut self, version: Version) {
        let opened = self.tally.open(&version.names.group, &version.names.resource, version.latest);
        self.open.insert(version.seq, opened);
        self.joiner.version(version);
    }

    /// Decides what can be decided.
    fn settle(mut self, reader: Reader) -> Result<(Reader, Self), JournalError> {
        // What the sources cover by now was read before.
        self.joiner.advance(self.complete(), self.versions_complete);
        let settled = self.joiner.take();
        let redactor = Arc::clone(&self.rules.borrow());
        for verdict in settled.verdicts {
            let opened = self.open.remove(&verdict.seq).filter(|_| verdict.seq > self.attributed.0);
            if let Some(opened) = opened {
                self.tally.take(opened, &verdict.actor);
            }
            match verdict.actor {
                _ if verdict.seq <= self.attributed.0 => {}
                Ok(actor) => {
                    let mut actor = entry(actor);
                    redactor.redact_sender(&mut actor.sender);
                    self.actors.push((Seq(verdict.seq), actor));
                }
                Err(why) => tracing::debug!(seq = verdict.seq, why = why.as_str(), "an entry gets no sender"),
            }
        }
        let told = self.tally.told();
        self.unexplained.send_if_modified(|before| std::mem::replace(before, told.clone()) != told);
        let mut wasted = settled.wasted;
        wasted.iter_mut().for_each(|write| redactor.redact_sender(&mut write.sender));
        let (wasted, suspects) = unwritten::sort(&reader, wasted, &settled.unknown_versions)?;
        self.wasted.extend(wasted);
        for suspect in suspects {
            (self.suspects)(suspect);
        }
        Ok((reader, self))
    }

    /// Records what is decided.
    async fn record(&mut self) -> Result<(), JournalError> {
        let upto = self.open.first_key_value().map_or(self.read, |(open, _)| Seq(open.saturating_sub(1)));
        // Also where nothing is written: requests without a change are forgotten by it.
        if self.actors.is_empty() && self.noted.elapsed() < NOTE_INTERVAL {
            return Ok(());
        }
        let (actors, wasted) = (std::mem::take(&mut self.actors), std::mem::take(&mut self.wasted));
        // An event that has one time may be answered later than that.
        let needed_since = self.complete().saturating_sub(micros(KEPT_MAX) + join::REQUEST_MAX);
        self.journal.attribute(Attribution { actors, wasted, upto, needed_since }).await?;
        (self.attributed, self.noted) = (self.attributed.max(upto), Instant::now());
        Ok(())
    }

    /// Returns the time up to which every audit log is read, microseconds since 1970.
    fn complete(&self) -> i64 {
        self.complete.values().copied().min().unwrap_or(0)
    }
}

/// Returns the actor as an entry has it.
fn entry(actor: join::Actor) -> Actor {
    let join::Actor { sender, verb, subresource, certainty, audit_ids } = actor;
    Actor { sender, verb, subresource, audit_ids, certainty: certainty.as_str().to_owned() }
}

pub(super) fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

/// Returns now, microseconds since 1970.
pub(super) fn now() -> i64 {
    let now: Timestamp = runtime::now();
    now.as_microsecond()
}

#[cfg(test)]
mod tests;
