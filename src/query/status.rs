//! Every position at one moment: what `decklog status`, `/status` and `/metrics` show.
//!
//! All of it is read from the journal and its directory, so that the answer is the same with and without a running
//! daemon, and asking never waits for the daemon or holds it up.
//!
//! # Decision: alarms are one function of the status
//!
//! Context: `status`, `/status` and metrics must agree, also when the daemon hangs.
//! Decision: Alarms are derived in one place (`alarm`, with their names), from the journal and a small file of the daemon (`daemon.json`), which is kept
//! open, because one alarm is that no file can be opened.
//! Cost: A file beside the journal.

mod alarm;
mod evidence;
mod ha;
mod live;
mod process;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub use alarm::{Alarm, NAMES as ALARMS, failing, refused};
pub use evidence::{EvidenceStatus, WitnessStatus};
pub use ha::{HaView, Role};
pub use live::{Because, CacheFault, FILE as LIVE, Jump, Live, Part, Trouble, in_one_line};
pub use process::daemon;

use crate::core::k8s::audited::{UnexplainedResource, UnexplainedRun};
use crate::core::model::Seq;
use crate::core::os;
use crate::core::wire::{Entry, EntryGap};
use crate::journal::{
    AuditCounts, AuditLogRow, DeadLetter, JournalError, Reader, SinkRow, SinkState, SourceRow, SourceState,
};

/// Every position at one moment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Status {
    /// Time of this status.
    pub time: Timestamp,
    /// Conditions that need a person, or soon will.
    pub alarms: Vec<Alarm>,
    /// Conditions worth knowing that nobody can change any more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<Alarm>,
    /// The cluster that the journal belongs to.
    pub cluster: ClusterStatus,
    /// The daemon.
    pub daemon: DaemonStatus,
    /// The part of the daemon in the shared log, as it last said; absent without `[ha]`, and where none runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ha: Option<HaView>,
    /// The journal.
    pub journal: JournalStatus,
    /// Gaps recorded.
    pub gaps: GapsStatus,
    /// Sources, those configured first.
    pub sources: Vec<SourceStatus>,
    /// Configured resources that the API server does not serve.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<String>,
    /// Cause of each wait, by name.
    #[serde(skip)]
    pub waiting_because: BTreeMap<String, Because>,
    /// API groups that discovery does not report, with the cause; empty if it is complete.
    #[serde(skip)]
    pub discovery: BTreeMap<String, Trouble>,
    /// Sinks, those configured first.
    pub sinks: Vec<SinkStatus>,
    /// Audit logs of the API servers that are configured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub audit_logs: Vec<AuditLogStatus>,
    /// Watched resources of which most changes have no request in the audit logs, since the daemon began.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unexplained: Vec<UnexplainedResource>,
    /// Changes in a row of which none has one.
    #[serde(skip)]
    pub unexplained_run: Option<UnexplainedRun>,
    /// Evidence; absent where entries get none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<EvidenceStatus>,
}

/// An audit log of an API server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AuditLogStatus {
    /// Its name.
    pub name: String,
    /// Time up to which all of it is read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_up_to: Option<Timestamp>,
    /// Every entry up to this one has its ACTOR, or gets none.
    pub attributed: Seq,
    /// Events by what became of them.
    #[serde(flatten)]
    pub counts: AuditCounts,
    /// Time at which events were last found to be missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_lost: Option<Timestamp>,
    /// The last time in which events are missing, so that a change of it may have no sender.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<(Timestamp, Timestamp)>,
    /// Time at which all of it was last read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caught_up: Option<Timestamp>,
}

/// The cluster that the journal belongs to.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ClusterStatus {
    /// A name for people.
    pub name: String,
    /// uid of the kube-system namespace; empty where it may not be read.
    pub uid: String,
}

/// The daemon of this state directory. What follows `pid` is what it last said of itself.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct DaemonStatus {
    /// True if a daemon holds the state directory.
    pub running: bool,
    /// Its process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Its version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Start time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<Timestamp>,
    /// True once every source has resumed or finished its first list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<bool>,
    /// Parts that make no progress: systemd's watchdog is not fed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stalled: Vec<String>,
    /// Time of the last answer of an API server that is silent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent_since: Option<Timestamp>,
    /// The file descriptors that it has open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_files: Option<u64>,
    /// The most that it may have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_files_limit: Option<u64>,
    /// The last time that the clock was set, or the machine was suspended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_jump: Option<Jump>,
    /// Reason why a newer configuration was refused; the previous one is in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<Trouble>,
    /// Error that ended the daemon of this cluster, if its process starts it again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<Trouble>,
}

impl DaemonStatus {
    fn with(self, live: &Live) -> Self {
        Self {
            version: Some(live.version.clone()),
            started: live.started,
            ready: Some(live.ready),
            stalled: live.stalled.clone(),
            silent_since: live.silent_since,
            open_files: Some(live.open_files),
            open_files_limit: Some(live.open_files_limit),
            last_jump: live.last_jump,
            refused: live.refused.clone(),
            ..self
        }
    }
}

/// An entry and when it was journaled.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Place {
    /// Its seq.
    pub seq: Seq,
    /// Time at which it was journaled.
    pub time: Timestamp,
}

/// The journal and its disk.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JournalStatus {
    /// The state directory.
    pub path: PathBuf,
    /// The journal's name.
    pub epoch: String,
    /// The newest entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<Place>,
    /// The oldest entry that is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest: Option<Place>,
    /// Entries kept.
    pub entries: u64,
    /// Entries that retention removed, as `[state]` asks for.
    pub removed: u64,
    /// Set while nothing is taken from the cluster for want of room.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<PauseStatus>,
    /// Bytes of the database.
    pub size_bytes: u64,
    /// Bytes of its write-ahead log.
    pub wal_bytes: u64,
    /// Bytes that are free on its disk; absent where the system does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free_bytes: Option<u64>,
    /// Bytes of its disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_bytes: Option<u64>,
}

/// A pause of reading the cluster for want of space.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PauseStatus {
    /// max_size, disk_full or reader.
    pub why: Cow<'static, str>,
    /// Since when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// The cause and the remedy.
    pub detail: String,
}

/// Gaps recorded.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GapsStatus {
    /// Number over the life of the journal.
    pub count: u64,
    /// The newest that is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<LastGap>,
    /// Changes that would be in gaps, had they not been read from the API server's own history.
    pub recovered: u64,
}

/// A gap that was recorded.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LastGap {
    /// Its entry.
    #[serde(flatten)]
    pub place: Place,
    /// Its resource: `deployments.apps`.
    pub resource: String,
    /// Contents of the gap.
    #[serde(flatten)]
    pub gap: EntryGap,
}

/// One source.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SourceStatus {
    /// `deployments.apps`, or `deployments.apps/shop` for one namespace.
    pub name: String,
    /// State of the source as last reported: `state`, and `detail` if the state has one.
    #[serde(flatten)]
    pub state: SourceState,
    /// Start of the state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// The checkpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume: Option<String>,
    /// Objects known now.
    pub objects: u64,
    /// The last moment known good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known_good: Option<Timestamp>,
    /// Seconds since then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag_seconds: Option<i64>,
    /// Gaps recorded.
    pub gaps: u64,
    /// Changes that its watch missed, read from the API server's own history instead.
    pub recovered: u64,
    /// Changes that `ignore` kept out of the log.
    pub suppressed: u64,
    /// Comparisons with what the API server has; absent before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audit: Option<AuditStatus>,
    /// Objects that the API server's watch cache shows otherwise than etcd has them; absent where there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_fault: Option<CacheFault>,
    /// True if the source is configured.
    pub active: bool,
}

/// The audits of one source, over the life of the journal.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct AuditStatus {
    /// Number of audits.
    pub count: u64,
    /// Number of objects that differed.
    pub differences: u64,
    /// Time of the last audit.
    pub last: Timestamp,
}

/// One sink.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SinkStatus {
    /// Its name.
    pub name: String,
    /// Its type.
    #[serde(rename = "type")]
    pub kind: String,
    /// State of the sink as last reported: `state`, and `detail` if the state has one.
    #[serde(flatten)]
    pub state: SinkState,
    /// Start of the state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// The last seq it has for good.
    pub cursor: Seq,
    /// Entries that it does not have yet.
    pub lag_entries: u64,
    /// Seconds since the oldest of them was journaled; 0 where there is none.
    pub lag_seconds: i64,
    /// Time at which the oldest undelivered entry was journaled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_undelivered: Option<Timestamp>,
    /// Time of the last delivery.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivered: Option<Timestamp>,
    /// Failed deliveries in a row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tries: Option<u64>,
    /// Entries that it refused for good, kept for `decklog replay`.
    pub dead_letters: Vec<Refused>,
    /// Entries that were truncated before it had taken them; it got a GAP for them.
    pub missed_entries: u64,
    /// Time at which the last of them was truncated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_missed: Option<Timestamp>,
    /// True if the sink is configured.
    pub active: bool,
}

/// An entry that a sink refused for good.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Refused {
    /// The entry.
    pub seq: Seq,
    /// Why.
    pub reason: String,
}

impl Status {
    /// Collects the status of the journal in `dir` at `now`.
    ///
    /// # Errors
    /// Where the journal cannot be read.
    pub fn gather(reader: &mut Reader, dir: &Path, now: Timestamp) -> Result<Self, JournalError> {
        Self::collect(reader, dir, now, || {
            let daemon = daemon(dir);
            let mut live = daemon.pid.and_then(|pid| Live::read(dir, pid)).unwrap_or_default();
            // One that is stopped cannot say so.
            if daemon.running && Live::frozen_since(dir, now).is_some() && live != Live::default() {
                live.stalled = Part::ALL.iter().map(|part| part.name().to_owned()).collect();
            }
            (daemon, live)
        })
    }

    /// Collects it in the daemon itself, which needs no file to know its own state.
    ///
    /// # Errors
    /// Where the journal cannot be read.
    pub fn of_this_daemon(reader: &mut Reader, dir: &Path, now: Timestamp, live: Live) -> Result<Self, JournalError> {
        let daemon = DaemonStatus { running: true, pid: Some(live.pid), ..DaemonStatus::default() };
        Self::collect(reader, dir, now, || (daemon, live))
    }

    fn collect(
        reader: &mut Reader,
        dir: &Path,
        now: Timestamp,
        daemon: impl FnOnce() -> (DaemonStatus, Live),
    ) -> Result<Self, JournalError> {
        // Cursors before the head, so that none is seen past it while the daemon goes on.
        let sinks = reader.sinks()?;
        let refused = reader.dead_letters()?;
        let sources = reader.sources()?;
        let objects: Result<Vec<u64>, _> = sources.iter().map(|source| reader.objects_of(source.id)).collect();
        let (oldest, head) = (reader.oldest()?, reader.head()?);
        let count = sources.iter().map(|source| source.gaps).sum();
        let recovered = sources.iter().map(|source| source.recovered).sum();
        let cluster = reader.cluster()?;
        let retained = reader.retained()?;
        let size = |name: &str| fs::metadata(dir.join(name)).map_or(0, |meta| meta.len());
        let disk = os::disk(dir);
        let (daemon, mut live) = daemon();
        let failed = if daemon.running { None } else { failed(dir) };
        let mut status = Self {
            time: now,
            alarms: Vec::new(),
            notices: Vec::new(),
            cluster: ClusterStatus { name: cluster.name, uid: cluster.uid },
            ha: live.ha.take(),
            daemon: DaemonStatus { failed, ..if live == Live::default() { daemon } else { daemon.with(&live) } },
            journal: JournalStatus {
                path: dir.to_owned(),
                epoch: reader.epoch()?,
                head: place(reader, head)?,
                oldest: place(reader, oldest)?,
                entries: if head == Seq(0) { 0 } else { (head.0 + 1).saturating_sub(oldest.0) },
                removed: retained.removed,
                paused: retained.paused.or(live.paused.take()).map(|pause| PauseStatus {
                    why: pause.why.as_str().into(),
                    since: timestamp(pause.since),
                    detail: pause.detail,
                }),
                size_bytes: size("journal.db"),
                wal_bytes: size("journal.db-wal"),
                free_bytes: disk.map(|disk| disk.free),
                disk_bytes: disk.map(|disk| disk.size),
            },
            gaps: GapsStatus { count, last: if count > 0 { last_gap(reader)? } else { None }, recovered },
            sources: sources
                .into_iter()
                .zip(objects?)
                .map(|(source, of)| SourceStatus::of(source, of, &live, now))
                .collect(),
            sinks: sinks.into_iter().map(|sink| SinkStatus::of(sink, &refused, &live, head, now)).collect(),
            audit_logs: audit_logs(reader)?,
            unexplained: live.unexplained.resources,
            unexplained_run: live.unexplained.run,
            evidence: evidence::evidence(reader, live.evidence.take(), std::mem::take(&mut live.witnesses))?,
            waiting: live.waiting,
            waiting_because: live.waiting_because,
            discovery: live.discovery,
        };
        status.sources.sort_by_key(|source| !source.active);
        status.sinks.sort_by_key(|sink| !sink.active);
        status.judge();
        Ok(status)
    }

    /// Says what of it needs a person, the worst first, and what is worth knowing.
    pub(crate) fn judge(&mut self) {
        self.alarms = alarm::alarms(self);
        self.notices = alarm::gaps(self).into_iter().collect();
    }
}

fn audit_logs(reader: &Reader) -> Result<Vec<AuditLogStatus>, JournalError> {
    let attributed = reader.attributed()?;
    let rows = reader.audit_logs()?.into_iter().filter(|row| row.active);
    let status = |row: AuditLogRow| AuditLogStatus {
        name: row.name,
        read_up_to: timestamp(row.complete),
        attributed,
        counts: row.counts,
        last_lost: timestamp(row.lost_at),
        missing: row.doubts.last().and_then(|&(from, to)| timestamp(from).zip(timestamp(to))),
        caught_up: timestamp(row.read_at),
    };
    Ok(rows.map(status).collect())
}

impl SourceStatus {
    fn of(source: SourceRow, objects: u64, live: &Live, now: Timestamp) -> Self {
        let known_good = source.good_at.and_then(timestamp);
        let name = source.name();
        Self {
            cache_fault: live.cache_faults.get(&name).cloned(),
            name,
            state: source.state,
            since: timestamp(source.state_since),
            resume: source.resume,
            objects,
            known_good,
            lag_seconds: known_good.map(|good| seconds(good, now)),
            gaps: source.gaps,
            recovered: source.recovered,
            suppressed: source.suppressed,
            audit: timestamp(source.audited_at).map(|last| AuditStatus {
                count: source.audits,
                differences: source.audit_differences,
                last,
            }),
            active: source.active,
        }
    }
}

impl SinkStatus {
    fn of(sink: SinkRow, refused: &[DeadLetter], live: &Live, head: Seq, now: Timestamp) -> Self {
        let of_sink = |refused: &&DeadLetter| refused.sink == sink.name;
        let dead_letters = refused.iter().filter(of_sink);
        Self {
            dead_letters: dead_letters
                .map(|refused| Refused { seq: refused.seq, reason: refused.reason.clone() })
                .collect(),
            tries: live.tries.get(&sink.name).copied(),
            name: sink.name,
            kind: sink.kind,
            state: sink.state,
            since: timestamp(sink.state_since),
            cursor: sink.cursor,
            lag_entries: head.0.saturating_sub(sink.cursor.0),
            lag_seconds: sink.oldest_undelivered.and_then(timestamp).map_or(0, |time| seconds(time, now)),
            oldest_undelivered: sink.oldest_undelivered.and_then(timestamp),
            delivered: timestamp(sink.delivered_at),
            missed_entries: sink.missed,
            last_missed: sink.missed_at.and_then(timestamp),
            active: sink.active,
        }
    }
}

/// A moment of the journal, where 0 stands for never.
fn timestamp(micros: i64) -> Option<Timestamp> {
    (micros != 0).then(|| Timestamp::from_microsecond(micros).ok()).flatten()
}

fn seconds(from: Timestamp, to: Timestamp) -> i64 {
    to.duration_since(from).as_secs().max(0)
}

fn place(reader: &mut Reader, seq: Seq) -> Result<Option<Place>, JournalError> {
    let Some(stored) = reader.entry(seq)? else { return Ok(None) };
    Ok(Entry::parse(&stored.line).ok().and_then(|entry| Some(Place { seq, time: entry.time.parse().ok()? })))
}

fn last_gap(reader: &mut Reader) -> Result<Option<LastGap>, JournalError> {
    let Some(stored) = reader.last_gap()? else { return Ok(None) };
    let gap = Entry::parse(&stored.line).ok().and_then(|entry| {
        let resource = entry.full_resource();
        Some(LastGap { place: Place { seq: entry.seq(), time: entry.time.parse().ok()? }, resource, gap: entry.gap()? })
    });
    Ok(gap)
}

/// Returns the state of a source or a sink for people. Where no daemon runs it is what the daemon said when it last ran.
#[must_use]
pub fn spoken(word: &str, active: bool, running: bool) -> String {
    match (active, running) {
        (false, _) => "not configured".to_owned(),
        (true, false) => format!("was {word}"),
        (true, true) => word.to_owned(),
    }
}

/// Returns the error that keeps a daemon from running on this state directory, if its process is there and starts it again.
#[must_use]
pub fn failed(dir: &Path) -> Option<Trouble> {
    let left = Live::last(dir)?;
    left.failed.filter(|_| os::is_alive(left.pid))
}
