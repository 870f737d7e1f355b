use crate::journal::{Apart, AuditCounts};
use std::collections::BTreeMap;

use super::super::{
    AuditLogStatus, ClusterStatus, DaemonStatus, EvidenceStatus, GapsStatus, JournalStatus, Jump, LastGap, PauseStatus,
    Place, Refused, SinkStatus, SourceStatus, WitnessStatus,
};
use super::*;
use crate::core::k8s::audited::UnexplainedRun;
use crate::core::model::Seq;
use crate::core::wire::EntryGap;
use crate::query::status::HaView;

fn time(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// A daemon that is well, at noon.
fn well() -> Status {
    let source = SourceStatus {
        name: "pods".into(),
        state: SourceState::Watching,
        since: Some(time("2026-11-21T08:00:00Z")),
        resume: Some("7".into()),
        objects: 1,
        known_good: None,
        lag_seconds: Some(SILENT),
        gaps: 0,
        recovered: 0,
        suppressed: 0,
        audit: None,
        cache_fault: None,
        active: true,
    };
    let sink = SinkStatus {
        name: "audit".into(),
        kind: "file".into(),
        state: SinkState::Running,
        since: Some(time("2026-11-21T08:00:00Z")),
        cursor: Seq(5),
        lag_entries: 2,
        lag_seconds: BEHIND,
        oldest_undelivered: None,
        delivered: None,
        tries: None,
        dead_letters: Vec::new(),
        missed_entries: 0,
        last_missed: None,
        active: true,
    };
    let daemon =
        DaemonStatus { running: true, open_files: Some(80), open_files_limit: Some(100), ..DaemonStatus::default() };
    Status {
        time: time("2026-11-21T12:00:00Z"),
        alarms: Vec::new(),
        notices: Vec::new(),
        cluster: ClusterStatus { name: String::new(), uid: String::new() },
        daemon,
        ha: None,
        journal: JournalStatus {
            path: "/j".into(),
            epoch: String::new(),
            head: Some(Place { seq: Seq(7), time: time("2026-11-21T12:01:00Z") }),
            oldest: None,
            removed: 0,
            paused: None,
            entries: 7,
            size_bytes: 0,
            wal_bytes: WAL,
            free_bytes: Some(FREE - 1),
            disk_bytes: Some(FREE),
        },
        gaps: GapsStatus { count: 0, last: None, recovered: 0 },
        sources: vec![source],
        waiting: Vec::new(),
        waiting_because: BTreeMap::new(),
        discovery: BTreeMap::new(),
        evidence: None,
        unexplained: Vec::new(),
        unexplained_run: None,
        audit_logs: vec![AuditLogStatus {
            name: "hook".into(),
            read_up_to: None,
            attributed: Seq(7),
            counts: AuditCounts::default(),
            last_lost: None,
            missing: None,
            caught_up: at("2026-11-21T11:55:00Z"),
        }],
        sinks: vec![sink],
    }
}

fn pause() -> PauseStatus {
    PauseStatus {
        why: "disk_full".into(),
        since: Some(time("2026-11-21T11:59:00Z")),
        detail: "the disk is full".into(),
    }
}

type Change = Box<dyn Fn(&mut Status)>;

fn with(change: fn(&mut HaView)) -> Change {
    Box::new(move |status| change(status.ha.get_or_insert_default()))
}

fn at(text: &str) -> Option<Timestamp> {
    Some(time(text))
}

fn unknown(since: &str) -> Trouble {
    Trouble { since: time(since), why: "its server does not answer the API server".into(), times: 1 }
}

fn run() -> Option<UnexplainedRun> {
    Some(UnexplainedRun { since: time("2026-11-21T11:58:00Z"), changes: 24 })
}

/// Evidence whose witness has missed so many checkpoints since then.
fn witnessed(missed: u32, since: &str) -> EvidenceStatus {
    let failing = Some(Trouble { times: missed, ..unknown(since) });
    let witnesses = vec![WitnessStatus { failing, ..WitnessStatus::default() }, WitnessStatus::default()];
    EvidenceStatus { witnesses, ..EvidenceStatus::default() }
}

#[test]
fn each_alarm_begins_at_its_bound() {
    assert_eq!(alarms(&well()), []);
    let gap = |at: &str| LastGap {
        place: Place { seq: Seq(3), time: time(at) },
        resource: "pods".into(),
        gap: EntryGap { why: "expired".into(), from: None, to: None, since: None, recovered: None },
    };
    let jump = |at: &str| Some(Jump { at: time(at), seconds: -3600 });
    let trouble = |times| Some(Trouble { since: time("2026-11-21T11:00:00Z"), why: "no kubeconfig".into(), times });
    let cases: Vec<(&str, Change)> = vec![
        (DAEMON_FAILING, Box::new(move |status| (status.daemon.running, status.daemon.failed) = (false, trouble(3)))),
        (CONFIGURATION_REFUSED, Box::new(move |status| status.daemon.refused = trouble(1))),
        (STALLED, Box::new(|status| status.daemon.stalled = vec!["the journal".into()])),
        (DESCRIPTORS_LOW, Box::new(|status| status.daemon.open_files = Some(81))),
        (
            CLOCK_BEHIND,
            Box::new(|status| {
                status.journal.head = Some(Place { seq: Seq(7), time: time("2026-11-21T12:01:01Z") });
            }),
        ),
        (CLOCK_JUMPED, Box::new(move |status| status.daemon.last_jump = jump("2026-11-21T11:00:01Z"))),
        ("", Box::new(move |status| status.daemon.last_jump = jump("2026-11-21T10:59:59Z"))),
        (LEADERLESS, with(|ha| ha.since_leaderless = at("2026-11-21T11:59:00Z"))),
        ("", with(|ha| ha.since_leaderless = at("2026-11-21T11:59:01Z"))),
        (
            SHARED_LOG_UNREACHABLE,
            with(|ha| {
                (ha.unreachable, ha.since_unreachable) = (Some("refused".into()), at("2026-11-21T11:59:00Z"));
            }),
        ),
        (
            "",
            with(|ha| {
                (ha.unreachable, ha.since_unreachable) = (Some("refused".into()), at("2026-11-21T11:59:01Z"));
            }),
        ),
        (LEASE_PROBLEM, with(|ha| ha.problem = Some("denied".into()))),
        (STANDBY_BEHIND, with(|ha| (ha.role, ha.behind_seconds) = (Role::Standby, 60.5))),
        ("", with(|ha| (ha.role, ha.behind_seconds) = (Role::Leader, 60.5))),
        ("", with(|ha| (ha.role, ha.behind_seconds) = (Role::Standby, 60.0))),
        (BACKLOG_OVERFLOWED, with(|ha| ha.since_overflow = at("2026-11-21T11:00:01Z"))),
        ("", with(|ha| ha.since_overflow = at("2026-11-21T11:00:00Z"))),
        (
            JOURNAL_SET_APART,
            with(|ha| {
                ha.apart = vec![Apart {
                    file: "/var/lib/decklog/journal.db.set-apart-20261121T115900Z".into(),
                    epoch: "e".to_owned(),
                    first: 31,
                    last: 60,
                    shared: Some(45),
                    is_beyond: true,
                }];
            }),
        ),
        (JOURNAL_PAUSED, Box::new(|status| status.journal.paused = Some(pause()))),
        (DISK_LOW, Box::new(|status| status.journal.disk_bytes = Some(FREE * 11))),
        (WAL_LARGE, Box::new(|status| status.journal.wal_bytes += 1)),
        (API_SERVER_SILENT, Box::new(|status| status.daemon.silent_since = at("2026-11-21T11:59:30Z"))),
        (
            DISCOVERY_FAILING,
            Box::new(|status| {
                status.discovery.insert("metrics.k8s.io".into(), unknown("2026-11-21T11:59:30Z"));
            }),
        ),
        (
            DISCOVERY_FAILING,
            Box::new(|status| {
                status.discovery.insert(String::new(), unknown("2026-11-21T11:59:30Z"));
            }),
        ),
        (
            "",
            Box::new(|status| {
                status.discovery.insert("metrics.k8s.io".into(), unknown("2026-11-21T11:59:31Z"));
            }),
        ),
        (
            WATCH_CACHE_WRONG,
            Box::new(|status| {
                status.sources[0].cache_fault =
                    Some(CacheFault { since: status.time, objects: 2, example: "shop/web".to_owned() });
            }),
        ),
        (
            WATCH_CACHE_WRONG,
            Box::new(|status| {
                status.sources[0].cache_fault =
                    Some(CacheFault { since: status.time, objects: 0, example: String::new() });
            }),
        ),
        (SOURCE_DEGRADED, Box::new(|status| status.sources[0].state = SourceState::Degraded(String::new()))),
        (SOURCE_SILENT, Box::new(|status| status.sources[0].lag_seconds = Some(SILENT + 1))),
        (
            "",
            Box::new(|status| {
                status.sources[0].lag_seconds = Some(SILENT + 1);
                status.sources[0].since = Some(time("2026-11-21T11:58:00Z"));
            }),
        ),
        (SOURCE_STARTING, Box::new(|status| status.sources[0].state = SourceState::Listing(0))),
        (SOURCE_STARTING, Box::new(|status| status.sources[0].state = SourceState::Recovering)),
        (
            "",
            Box::new(|status| {
                status.sources[0].state = SourceState::Listing(0);
                status.sources[0].since = Some(time("2026-11-21T11:45:00Z"));
            }),
        ),
        (
            "",
            Box::new(|status| {
                (status.sources[0].state, status.sources[0].active) = (SourceState::Degraded(String::new()), false);
            }),
        ),
        (RESOURCE_WAITING, Box::new(|status| status.waiting = vec!["widgets.example.com".into()])),
        (GAP_RECORDED, Box::new(move |status| status.gaps.last = Some(gap("2026-11-21T11:00:01Z")))),
        ("", Box::new(move |status| status.gaps.last = Some(gap("2026-11-21T11:00:00Z")))),
        (AUDIT_LOG_INCOMPLETE, Box::new(|status| status.audit_logs[0].last_lost = at("2026-11-21T11:00:01Z"))),
        ("", Box::new(|status| status.audit_logs[0].last_lost = at("2026-11-21T11:00:00Z"))),
        (AUDIT_LOG_UNREAD, Box::new(|status| status.audit_logs[0].caught_up = at("2026-11-21T11:54:59Z"))),
        ("", Box::new(|status| status.audit_logs[0].caught_up = None)),
        // A standby reads none.
        (
            "",
            Box::new(|status| {
                status.audit_logs[0].caught_up = at("2026-11-21T11:54:59Z");
                status.ha.get_or_insert_default().role = Role::Standby;
            }),
        ),
        (
            AUDIT_LOG_UNREAD,
            Box::new(|status| {
                (status.audit_logs[0].caught_up, status.daemon.started) = (None, at("2026-11-21T11:54:59Z"));
            }),
        ),
        // It has just been started again.
        (
            "",
            Box::new(|status| {
                let times = (at("2026-11-21T10:00:00Z"), at("2026-11-21T11:59:00Z"));
                (status.audit_logs[0].caught_up, status.daemon.started) = times;
            }),
        ),
        // What it does not read it cannot know.
        (
            AUDIT_LOG_UNREAD,
            Box::new(|status| {
                (status.unexplained_run, status.audit_logs[0].caught_up) = (run(), at("2026-11-21T11:54:59Z"));
            }),
        ),
        (AUDIT_LOG_NAMES_NOBODY, Box::new(|status| status.unexplained_run = run())),
        ("", Box::new(|status| (status.unexplained_run, status.audit_logs) = (run(), Vec::new()))),
        (
            EVIDENCE_FAILING,
            Box::new(|status| {
                let trouble = Trouble::new("the disk is full", None);
                status.evidence = Some(EvidenceStatus { failing: Some(trouble), ..EvidenceStatus::default() });
            }),
        ),
        (WITNESS_SILENT, Box::new(|status| status.evidence = Some(witnessed(3, "2026-11-21T11:57:00Z")))),
        // It has just been restarted; it misses what is asked every few seconds.
        ("", Box::new(|status| status.evidence = Some(witnessed(2, "2026-11-21T11:00:00Z")))),
        ("", Box::new(|status| status.evidence = Some(witnessed(30, "2026-11-21T11:57:01Z")))),
        (SINK_HALTED, Box::new(|status| status.sinks[0].state = SinkState::Halted(String::new()))),
        (SINK_BEHIND, Box::new(|status| status.sinks[0].lag_seconds += 1)),
        (SINK_MISSED, Box::new(|status| status.sinks[0].last_missed = Some(time("2026-11-21T11:00:01Z")))),
        ("", Box::new(|status| status.sinks[0].last_missed = Some(time("2026-11-21T11:00:00Z")))),
        (
            SINK_DEAD_LETTERS,
            Box::new(|status| status.sinks[0].dead_letters = vec![Refused { seq: Seq(2), reason: "413".into() }]),
        ),
        (
            "",
            Box::new(|status| {
                (status.sinks[0].state, status.sinks[0].active) = (SinkState::Halted(String::new()), false);
            }),
        ),
    ];
    let mut seen = vec![DAEMON_DOWN];
    for (name, change) in cases {
        let mut status = well();
        change(&mut status);
        let mut raised: Vec<&str> = alarms(&status).iter().map(|alarm| alarm.alarm).collect();
        // What nobody can do anything about is a notice.
        assert!(!raised.contains(&GAP_RECORDED));
        raised.extend(gaps(&status).map(|notice| notice.alarm));
        assert_eq!(raised, if name.is_empty() { vec![] } else { vec![name] });
        seen.extend((!name.is_empty()).then_some(name));
    }
    seen.dedup();
    assert_eq!(seen, NAMES, "each is tried");
    // Of one that does not run, what it last said of sources, sinks and a pause is no news.
    let mut status = well();
    status.sources[0].state = SourceState::Recovering;
    let raised: Vec<(&str, String)> = alarms(&status).into_iter().map(|alarm| (alarm.alarm, alarm.what)).collect();
    assert_eq!(raised, [(SOURCE_STARTING, "decklog is still recovering what its watch missed".to_owned())]);
    let mut status = well();
    status.daemon = DaemonStatus::default();
    status.sources[0].state = SourceState::Degraded(String::new());
    status.sinks[0].state = SinkState::Halted(String::new());
    status.journal.paused = Some(pause());
    status.discovery.insert(String::new(), unknown("2026-11-21T11:00:00Z"));
    let raised: Vec<&str> = alarms(&status).iter().map(|alarm| alarm.alarm).collect();
    assert_eq!(raised, [DAEMON_DOWN]);
}

#[test]
fn a_pause_says_why_and_since_when() {
    let mut status = well();
    status.journal.paused = Some(pause());
    let alarm = alarms(&status).remove(0);
    assert_eq!(alarm.since, pause().since);
    assert!(alarm.what.contains("the disk is full"), "{alarm:?}");
}

#[test]
fn audit_logs_that_name_nobody_are_named() {
    let mut status = well();
    status.unexplained_run = run();
    for (name, expected) in [
        (
            None,
            "hook: no request in the audit log hook explains any of the last 24 changes; is it of this cluster's API servers, and does its \
             policy log writes? `decklog check` says more",
        ),
        (
            Some("second"),
            "hook, second: no request in the audit logs hook, second explains any of the last 24 changes; are they of this cluster's API \
             servers, and do their policies log writes? `decklog check` says more",
        ),
    ] {
        let other = AuditLogStatus { name: name.unwrap_or_default().into(), ..status.audit_logs[0].clone() };
        status.audit_logs.extend(name.map(|_| other));
        let Alarm { about, since, what, remedy, .. } = alarms(&status).remove(0);
        assert_eq!((since, format!("{about}: {what}; {remedy}")), (at("2026-11-21T11:58:00Z"), expected.to_owned()));
    }
}
