//! Alarms: conditions that need a person, or soon will, each with its start, its cause and its remedy.
//!
//! Each alarm has a name that never changes. `docs/runbook.md` has a section of that name, and `docs/alerts.yaml` a rule
//! for Prometheus.

mod audit_log;
mod evidence;
#[cfg(test)]
mod tests;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Deserializer, Serialize};

use super::{CacheFault, Role, Status, Trouble};
use crate::journal::{SinkState, SourceState};

/// A condition that needs a person, or soon will.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Alarm {
    /// Its name, which is that of its section in the runbook.
    pub alarm: &'static str,
    /// The source or sink that it is about; empty where it is about decklog as a whole.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub about: String,
    /// Since when, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// The condition and its cause.
    pub what: String,
    /// The remedy.
    #[serde(rename = "do")]
    pub remedy: String,
}

/// Name of an alarm that another version knows and this one does not.
const OTHER: &str = "other";

/// An alarm as it is read.
#[derive(Deserialize)]
struct Read {
    alarm: String,
    #[serde(default)]
    about: String,
    since: Option<Timestamp>,
    what: String,
    #[serde(rename = "do")]
    remedy: String,
}

impl<'de> Deserialize<'de> for Alarm {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Read { alarm, about, since, what, remedy } = Read::deserialize(deserializer)?;
        let alarm = NAMES.into_iter().find(|known| *known == alarm).unwrap_or(OTHER);
        Ok(Self { alarm, about, since, what, remedy })
    }
}

/// Every name that an alarm can have.
pub const NAMES: [&str; 33] = [
    DAEMON_DOWN,
    DAEMON_FAILING,
    CONFIGURATION_REFUSED,
    STALLED,
    DESCRIPTORS_LOW,
    CLOCK_BEHIND,
    CLOCK_JUMPED,
    LEADERLESS,
    SHARED_LOG_UNREACHABLE,
    LEASE_PROBLEM,
    STANDBY_BEHIND,
    BACKLOG_OVERFLOWED,
    JOURNAL_SET_APART,
    JOURNAL_PAUSED,
    DISK_LOW,
    WAL_LARGE,
    API_SERVER_SILENT,
    DISCOVERY_FAILING,
    WATCH_CACHE_WRONG,
    SOURCE_DEGRADED,
    SOURCE_SILENT,
    SOURCE_STARTING,
    RESOURCE_WAITING,
    GAP_RECORDED,
    AUDIT_LOG_INCOMPLETE,
    AUDIT_LOG_UNREAD,
    AUDIT_LOG_NAMES_NOBODY,
    EVIDENCE_FAILING,
    WITNESS_SILENT,
    SINK_HALTED,
    SINK_BEHIND,
    SINK_MISSED,
    SINK_DEAD_LETTERS,
];

const DAEMON_DOWN: &str = "daemon-down";
const DAEMON_FAILING: &str = "daemon-failing";
const CONFIGURATION_REFUSED: &str = "configuration-refused";
const DESCRIPTORS_LOW: &str = "descriptors-low";
const STALLED: &str = "stalled";
const CLOCK_BEHIND: &str = "clock-behind";
const CLOCK_JUMPED: &str = "clock-jumped";
const LEADERLESS: &str = "leaderless";
const SHARED_LOG_UNREACHABLE: &str = "shared-log-unreachable";
const LEASE_PROBLEM: &str = "lease-problem";
const STANDBY_BEHIND: &str = "standby-behind";
const BACKLOG_OVERFLOWED: &str = "backlog-overflowed";
const JOURNAL_SET_APART: &str = "journal-set-apart";
const JOURNAL_PAUSED: &str = "journal-paused";
const DISK_LOW: &str = "disk-low";
const WAL_LARGE: &str = "wal-large";
const API_SERVER_SILENT: &str = "api-server-silent";
const DISCOVERY_FAILING: &str = "discovery-failing";
const WATCH_CACHE_WRONG: &str = "watch-cache-wrong";
const SOURCE_DEGRADED: &str = "source-degraded";
const SOURCE_SILENT: &str = "source-silent";
const SOURCE_STARTING: &str = "source-starting";
const RESOURCE_WAITING: &str = "resource-waiting";
const GAP_RECORDED: &str = "gap-recorded";
const AUDIT_LOG_INCOMPLETE: &str = "audit-log-incomplete";
const AUDIT_LOG_UNREAD: &str = "audit-log-unread";
const AUDIT_LOG_NAMES_NOBODY: &str = "audit-log-names-nobody";
const EVIDENCE_FAILING: &str = "evidence-failing";
const WITNESS_SILENT: &str = "witness-silent";
const SINK_HALTED: &str = "sink-halted";
const SINK_BEHIND: &str = "sink-behind";
const SINK_MISSED: &str = "sink-missed";
const SINK_DEAD_LETTERS: &str = "sink-dead-letters";

/// A clock that is so far behind the newest entry was set back.
const CLOCK_BEHIND_LIMIT: SignedDuration = SignedDuration::from_secs(60);
/// Less than this is free on the disk, and less than a tenth of it: it is nearly full.
const FREE: u64 = 1 << 30;
/// A write-ahead log that is larger is held by a reader, or the disk is too slow.
const WAL: u64 = 128 << 20;
/// A watch brings a bookmark about every minute, and one that is silent for 150 s is opened again.
/// Where there are no bookmarks, an audit that finds nothing is as good, every ten minutes.
const SILENT: i64 = 900;
/// A watch that has just begun may have its first bookmark before it.
const FIRST_BOOKMARK_WAIT: SignedDuration = SignedDuration::from_secs(120);
/// A source that begins takes seconds, or minutes in a big cluster.
const STARTING_LIMIT: SignedDuration = SignedDuration::from_mins(15);
/// A gap is news for this long.
const GAP_NEWS_PERIOD: SignedDuration = SignedDuration::from_hours(1);
/// An API server that begins, and an API service that moves, are not known for some seconds.
const UNKNOWN_LIMIT: SignedDuration = SignedDuration::from_secs(30);
/// Largest lag of a sink without an alarm, in seconds.
const BEHIND: i64 = 300;
/// A Lease is somebody else's within 17 s, and an engine that fails over takes less.
const LEADERLESS_LIMIT: SignedDuration = SignedDuration::from_secs(60);
const UNREACHABLE_LIMIT: SignedDuration = SignedDuration::from_secs(60);
/// Largest lag of a standby without an alarm, in seconds: it reads that much before it leads.
const STANDBY: f64 = 60.0;

/// Returns the alarms of a status, the worst first.
pub(super) fn alarms(status: &Status) -> Vec<Alarm> {
    let mut all = daemon(status);
    all.extend(ha(status));
    all.extend(journal(status));
    // What the daemon said before it ended is not how things are.
    if status.daemon.running {
        all.extend(status.daemon.silent_since.map(silent));
        all.extend(discovery(status));
        all.extend(sources(status));
        all.extend(audit_log::unread(status));
    }
    all.extend(audit_log::incomplete(status));
    if status.daemon.running {
        all.extend(audit_log::names_nobody(status));
        all.extend(evidence::of(status));
    }
    all.extend(sinks(status));
    all
}

fn daemon(status: &Status) -> Vec<Alarm> {
    let mut all = Vec::new();
    if let Some(failed) = &status.daemon.failed {
        all.push(failing(failed));
    } else if !status.daemon.running {
        all.push(Alarm {
            alarm: DAEMON_DOWN,
            about: String::new(),
            since: None,
            what: "no daemon runs on this state directory, so nothing is recorded and nothing is delivered".to_owned(),
            remedy: "start it (`systemctl start decklog`, or `decklog run`); `journalctl -u decklog` says why it ended"
                .to_owned(),
        });
    }
    all.extend(status.daemon.refused.as_ref().map(refused));
    if !status.daemon.stalled.is_empty() {
        all.push(Alarm {
            alarm: STALLED,
            about: String::new(),
            since: None,
            what: format!("no progress in: {}", status.daemon.stalled.join(", ")),
            remedy: "systemd's watchdog restarts decklog; without systemd, restart it yourself. A slow disk is the usual cause"
                .to_owned(),
        });
    }
    if let (Some(open), Some(most)) = (status.daemon.open_files, status.daemon.open_files_limit)
        && open.saturating_mul(5) > most.saturating_mul(4)
    {
        all.push(Alarm {
            alarm: DESCRIPTORS_LOW,
            about: String::new(),
            since: None,
            what: format!("{open} of {most} file descriptors are in use: decklog will soon be unable to open watches"),
            remedy: "raise LimitNOFILE of the service (`systemctl edit decklog`) and restart it".to_owned(),
        });
    }
    all
}

fn ha(status: &Status) -> Vec<Alarm> {
    let Some(view) = &status.ha else { return Vec::new() };
    let mut all = Vec::new();
    let mut alarm = |alarm, since, what: String, remedy: String| {
        all.push(Alarm { alarm, about: String::new(), since, what, remedy });
    };
    let lasts = |since: Option<Timestamp>, bound| since.filter(|since| status.time.duration_since(*since) >= bound);
    let lease = &view.lease;
    if let Some(since) = lasts(view.since_leaderless, LEADERLESS_LIMIT) {
        let why = view.problem.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
        let look = match lease.split_once('/') {
            Some((namespace, name)) => format!("`kubectl get lease -n {namespace} {name} -o yaml`"),
            None => format!("the Lease {lease}"),
        };
        alarm(
            LEADERLESS,
            Some(since),
            format!("nobody is known to lead by the Lease {lease}, so nothing is written to the shared log{why}"),
            format!(
                "look at each decklog of this log (`decklog check` says what it lacks) and at {look}; the changes are kept meanwhile, as far as the backlog has room"
            ),
        );
    } else if let Some(problem) = &view.problem {
        alarm(
            LEASE_PROBLEM,
            None,
            problem.clone(),
            "do what it says: until then this decklog cannot take over, or stops leading".to_owned(),
        );
    }
    if let Some(since) = lasts(view.since_unreachable, UNREACHABLE_LIMIT)
        && let Some(why) = &view.unreachable
    {
        alarm(
            SHARED_LOG_UNREACHABLE,
            Some(since),
            format!("the shared log {} cannot be reached: {why}", view.log),
            "bring it back; decklog retries by itself, and nothing is visible before the shared log has it".to_owned(),
        );
    }
    if view.role == Role::Standby && view.behind_seconds > STANDBY {
        alarm(
            STANDBY_BEHIND,
            None,
            format!(
                "this standby is {} and {:.0} s behind the shared log, which a take-over would have to read first",
                units(view.behind_units),
                view.behind_seconds
            ),
            "look at its disk and at the network to the shared log; it follows as fast as these let it".to_owned(),
        );
    }
    if let Some(since) = view.since_overflow.filter(|since| status.time.duration_since(*since) < GAP_NEWS_PERIOD) {
        alarm(
            BACKLOG_OVERFLOWED,
            Some(since),
            format!(
                "the backlog of this standby had no room {}: a take-over resumes from the API server for what was dropped",
                times(view.overflows)
            ),
            "raise [ha] backlog, or repair the shared log; changes that etcd has compacted by the take-over are a GAP"
                .to_owned(),
        );
    }
    for apart in &view.apart {
        alarm(
            JOURNAL_SET_APART,
            None,
            apart.sentence(),
            "read the file as a journal of its own, keep of it what you need, and move it away: that ends this alarm"
                .to_owned(),
        );
    }
    all
}

fn units(units: u64) -> String {
    if units == 1 { "1 unit".to_owned() } else { format!("{units} units") }
}

fn times(times: u64) -> String {
    if times == 1 { "once".to_owned() } else { format!("{times} times") }
}

/// Alarm for a cluster whose daemon ended by an error and is started again.
pub fn failing(failed: &Trouble) -> Alarm {
    let times = if failed.times == 1 { "once".to_owned() } else { format!("{} times in a row", failed.times) };
    Alarm {
        alarm: DAEMON_FAILING,
        about: String::new(),
        since: Some(failed.since),
        what: format!("nothing of this cluster is recorded: its daemon ended by an error, {times}: {}", failed.why),
        remedy:
            "do what it says; decklog begins it again by itself, and the other clusters of the process are not affected"
                .to_owned(),
    }
}

/// Alarm for an API server that answers nothing.
fn silent(since: Timestamp) -> Alarm {
    Alarm {
        alarm: API_SERVER_SILENT,
        about: String::new(),
        since: Some(since),
        what: "the API server does not answer, so nothing newer than its last answer is known".to_owned(),
        remedy: "look at it (`kubectl get --raw /readyz`) and at the network to it; decklog asks every ten seconds and goes on by itself"
            .to_owned(),
    }
}

/// Alarm for a watch cache that shows objects otherwise than etcd has them.
fn cache_wrong(source: &str, fault: &CacheFault) -> Alarm {
    let CacheFault { since, objects, example } = fault;
    let which = match objects {
        0 => "at least one object".to_owned(),
        1 if example.is_empty() => "one object".to_owned(),
        1 => example.clone(),
        objects if example.is_empty() => format!("{objects} objects"),
        objects => format!("{objects} objects, {example} among them"),
    };
    let found = if *objects == 0 { "by the API server's own comparison " } else { "" };
    let remedy = if *objects == 0 {
        "restart that API server; the next audit of the source compares it with etcd"
    } else {
        "restart that API server; decklog has read the lost changes from etcd and goes on comparing by name"
    };
    Alarm {
        alarm: WATCH_CACHE_WRONG,
        about: source.to_owned(),
        since: Some(*since),
        what: format!(
            "{found}the API server's watch cache has lost changes of {source}: it shows {which} otherwise than etcd; controllers and \
             kubectl see what it shows"
        ),
        remedy: remedy.to_owned(),
    }
}

/// Alarm for a configuration that was refused, while the previous one, if any, stays in force.
pub fn refused(refused: &Trouble) -> Alarm {
    Alarm {
        alarm: CONFIGURATION_REFUSED,
        about: String::new(),
        since: Some(refused.since),
        what: format!("the configuration is wrong, and not in force: {}", refused.why),
        remedy: "correct the file (`decklog check` names every problem), and then `systemctl reload decklog` (SIGHUP)"
            .to_owned(),
    }
}

fn journal(status: &Status) -> Vec<Alarm> {
    let journal = &status.journal;
    let mut all = Vec::new();
    if let Some(head) = journal.head
        && head.time.duration_since(status.time) > CLOCK_BEHIND_LIMIT
    {
        let seconds = head.time.duration_since(status.time).as_secs();
        all.push(Alarm {
            alarm: CLOCK_BEHIND,
            about: String::new(),
            since: None,
            what: format!("the newest entry is {seconds} s in the future: the clock of this machine was set back"),
            remedy: "let the machine keep its time (`timedatectl`); the order of entries is their seq, not their time"
                .to_owned(),
        });
    }
    if let Some(jump) = status.daemon.last_jump
        && status.time.duration_since(jump.at).abs() < GAP_NEWS_PERIOD
    {
        let way = if jump.seconds < 0 { "back" } else { "ahead" };
        all.push(Alarm {
            alarm: CLOCK_JUMPED,
            about: String::new(),
            since: Some(jump.at),
            what: format!("the clock went {way} by {} s: it was set, or the machine was suspended", jump.seconds.abs()),
            remedy:
                "if somebody set the clock on purpose, do nothing: entries stay in the order of their seq, and their `time` follows the clock"
                    .to_owned(),
        });
    }
    if status.daemon.running
        && let Some(paused) = &journal.paused
    {
        all.push(Alarm {
            alarm: JOURNAL_PAUSED,
            about: String::new(),
            since: paused.since,
            what: format!("reading the cluster is paused: {}", paused.detail),
            remedy: "make room as it says: decklog then resumes by itself, and records a GAP `paused` for what etcd has compacted until then"
                .to_owned(),
        });
    }
    if let (Some(free), Some(disk)) = (journal.free_bytes, journal.disk_bytes)
        && free < FREE
        && free < disk / 10
    {
        all.push(Alarm {
            alarm: DISK_LOW,
            about: String::new(),
            since: None,
            what: format!("{} MiB are free on the disk of {}", free >> 20, journal.path.display()),
            remedy:
                "free some space, or give the journal a larger disk: when it is full, decklog stops reading until there is space, and keeps what is journaled"
                    .to_owned(),
        });
    }
    if journal.wal_bytes > WAL {
        all.push(Alarm {
            alarm: WAL_LARGE,
            about: String::new(),
            since: None,
            what: format!("the write-ahead log has grown to {} MiB", journal.wal_bytes >> 20),
            remedy: "a program keeps the journal open: find it (`fuser -v` on journal.db), and end it".to_owned(),
        });
    }
    all
}

fn sources(status: &Status) -> Vec<Alarm> {
    let mut all = Vec::new();
    for source in status.sources.iter().filter(|source| source.active) {
        let alarm = |alarm, what: String, remedy: &str| Alarm {
            alarm,
            about: source.name.clone(),
            since: source.since,
            what,
            remedy: remedy.to_owned(),
        };
        all.extend(source.cache_fault.as_ref().map(|fault| cache_wrong(&source.name, fault)));
        let lasts = |time| source.since.is_some_and(|since| status.time.duration_since(since) > time);
        match (&source.state, source.lag_seconds) {
            (SourceState::Degraded(text), _) => all.push(alarm(
                SOURCE_DEGRADED,
                text.clone(),
                "do what it says; decklog retries by itself, and the other sources are not affected",
            )),
            (SourceState::Watching, Some(lag)) if lag > SILENT && lasts(FIRST_BOOKMARK_WAIT) => all.push(alarm(
                SOURCE_SILENT,
                format!("watched, but nothing has come for {lag} s, not even a bookmark"),
                "compare with `kubectl get --raw` of the same resource; an API without bookmarks that is not audited is also silent when nothing changes",
            )),
            (state @ (SourceState::Waiting | SourceState::Listing(_) | SourceState::Recovering), _) if lasts(STARTING_LIMIT) => all.push(alarm(
                SOURCE_STARTING,
                match state {
                    SourceState::Recovering => "decklog is still recovering what its watch missed".to_owned(),
                    SourceState::Waiting => "it has not begun".to_owned(),
                    SourceState::Listing(_) | SourceState::Watching | SourceState::Degraded(_) | SourceState::Gone => {
                        state.detail().into_owned()
                    }
                },
                "if the number of objects grows, wait; otherwise look at the API server and the network",
            )),
            _ => {}
        }
    }
    all.extend(status.waiting.iter().map(|name| {
        let because = status.waiting_because.get(name);
        Alarm {
            alarm: RESOURCE_WAITING,
            about: name.clone(),
            since: None,
            what: because.map_or_else(
                || "it is configured, and the API server does not serve it".to_owned(),
                |because| because.what.clone(),
            ),
            remedy: because.map_or_else(
                || "correct the name in [[watch]] resources, or install its CustomResourceDefinition; decklog waits for it".to_owned(),
                |because| because.remedy.clone(),
            ),
        }
    }));
    all
}

/// Alarms for an incomplete discovery.
fn discovery(status: &Status) -> Vec<Alarm> {
    let lasting = status.discovery.iter();
    let lasting = lasting.filter(|(_, trouble)| status.time.duration_since(trouble.since) >= UNKNOWN_LIMIT);
    lasting
        .map(|(about, Trouble { since, why, .. })| {
            let (what, remedy) = if about.is_empty() {
                (
                    format!("the API server does not say which resources there are: {why}"),
                    "do what it says; decklog retries by itself, and what it knows from before is watched meanwhile"
                        .to_owned(),
                )
            } else {
                let path = if about.starts_with('/') { about.clone() } else { format!("/apis/{about}") };
                (
                    format!("it is not known what there is of this API group: {why}"),
                    format!(
                        "look at `kubectl get apiservices` and at `kubectl get --raw {path}`: bring back what serves it, or delete the APIService; all other resources are watched"
                    ),
                )
            };
            Alarm { alarm: DISCOVERY_FAILING, about: about.clone(), since: Some(*since), what, remedy }
        })
        .collect()
}

/// Notice for recorded gaps. It is no alarm, because nothing brings back what is missing.
pub(super) fn gaps(status: &Status) -> Option<Alarm> {
    let last = status.gaps.last.as_ref()?;
    let age = status.time.duration_since(last.place.time);
    (age < GAP_NEWS_PERIOD).then(|| Alarm {
        alarm: GAP_RECORDED,
        about: last.resource.clone(),
        since: Some(last.place.time),
        what: format!("changes may be missing ({}), recorded by entry {}", last.gap.why, last.place.seq),
        remedy: "decklog cannot bring them back; the net difference follows the GAP in the log (`decklog tail --since today`)"
            .to_owned(),
    })
}

fn sinks(status: &Status) -> Vec<Alarm> {
    let mut all = Vec::new();
    for sink in status.sinks.iter().filter(|sink| sink.active) {
        let alarm = |alarm, what: String, remedy: String| Alarm {
            alarm,
            about: sink.name.clone(),
            since: sink.since,
            what,
            remedy,
        };
        if status.daemon.running {
            let lag = format!("{} and {} s behind", plural(sink.lag_entries), sink.lag_seconds);
            if let SinkState::Halted(why) = &sink.state {
                all.push(alarm(
                    SINK_HALTED,
                    format!("{why} ({lag})"),
                    "do what it says, and then `systemctl reload decklog` (SIGHUP) makes it retry; the journal keeps the entries"
                        .to_owned(),
                ));
            } else if sink.lag_seconds > BEHIND {
                let why = Some(sink.state.detail())
                    .filter(|why| !why.is_empty())
                    .unwrap_or("it is slower than the changes come");
                all.push(alarm(
                    SINK_BEHIND,
                    format!("{lag}: {why}"),
                    "bring the receiver back, or make it faster; decklog retries by itself, and keeps the entries that it has not received"
                        .to_owned(),
                ));
            }
        }
        if let Some(last) = sink.last_missed.filter(|last| status.time.duration_since(*last) < GAP_NEWS_PERIOD) {
            all.push(Alarm {
                since: Some(last),
                ..alarm(
                    SINK_MISSED,
                    format!("decklog dropped {} in all before it had received them", plural(sink.missed_entries)),
                    "they cannot come back, and a GAP names them; bring the receiver back, or raise [state] max_size"
                        .to_owned(),
                )
            });
        }
        if let (Some(first), Some(last)) = (sink.dead_letters.first(), sink.dead_letters.last()) {
            all.push(alarm(
                SINK_DEAD_LETTERS,
                format!(
                    "it refused {} for good, the first because: {}",
                    plural(sink.dead_letters.len() as u64),
                    first.reason
                ),
                format!(
                    "when the cause is gone: `decklog replay --sink {} --from {} --to {}`",
                    sink.name, first.seq, last.seq
                ),
            ));
        }
    }
    all
}

fn plural(entries: u64) -> String {
    if entries == 1 { "1 entry".to_owned() } else { format!("{entries} entries") }
}
