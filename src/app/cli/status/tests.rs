use super::*;
use crate::core::model::Seq;
use crate::core::wire::EntryGap;
use crate::query::status::{
    ClusterStatus, DaemonStatus, GapsStatus, JournalStatus, LastGap, PauseStatus, Place, Refused,
};

const DENIED: &str = "may not be listed (403); grant it: decklog rbac | kubectl apply -f -\u{1b}[2J";

fn status(running: bool) -> Status {
    let time = |text: &str| text.parse::<Timestamp>().unwrap();
    let now = time("2026-11-21T10:40:00Z");
    let source = |name: &str, state: SourceState, active: bool| SourceStatus {
        cache_fault: None,
        name: name.into(),
        state,
        since: Some(time("2026-11-21T10:00:00Z")),
        resume: Some("81234".into()),
        objects: 1204,
        known_good: Some(time("2026-11-21T10:39:48Z")),
        lag_seconds: Some(12),
        gaps: 0,
        recovered: 0,
        suppressed: 0,
        audit: None,
        active,
    };
    let sink = |name: &str, state: SinkState| SinkStatus {
        name: name.into(),
        kind: "file".into(),
        state,
        since: Some(time("2026-11-21T09:00:00Z")),
        cursor: Seq(51_200),
        lag_entries: 0,
        lag_seconds: 0,
        oldest_undelivered: None,
        tries: None,
        delivered: None,
        dead_letters: Vec::new(),
        missed_entries: 0,
        last_missed: None,
        active: true,
    };
    let place = |seq: u64, text: &str| Place { seq: Seq(seq), time: time(text) };
    let gap = EntryGap { why: "expired".into(), from: None, to: None, since: None, recovered: None };
    let mut status = Status {
        time: now,
        cluster: ClusterStatus { name: "prod-eu1".into(), uid: "5f1c0c2e-58f0-4c4b-9f0d-0a51c6d2a2d1".into() },
        alarms: Vec::new(),
        notices: Vec::new(),
        daemon: DaemonStatus {
            running,
            pid: running.then_some(4321),
            version: running.then(|| "0.1.0".to_owned()),
            started: running.then(|| time("2026-11-21T09:00:00Z")),
            ..DaemonStatus::default()
        },
        ha: None,
        evidence: None,
        journal: JournalStatus {
            path: "/var/lib/decklog".into(),
            epoch: "0193".into(),
            head: Some(place(51_200, "2026-11-21T10:39:58Z")),
            oldest: Some(place(201, "2026-11-01T00:00:00Z")),
            entries: 51_000,
            removed: 200,
            paused: None,
            size_bytes: 12 << 20,
            wal_bytes: 4 << 20,
            free_bytes: Some(80 << 30),
            disk_bytes: Some(100 << 30),
        },
        gaps: GapsStatus {
            recovered: 0,
            count: 2,
            last: Some(LastGap { place: place(416, "2026-11-20T03:00:00Z"), resource: "pods".into(), gap }),
        },
        sources: vec![
            source("deployments.apps", SourceState::Watching, true),
            SourceStatus {
                resume: None,
                known_good: None,
                lag_seconds: None,
                gaps: 2,
                ..source("pods/shop", SourceState::Degraded(DENIED.into()), true)
            },
            source("leases.coordination.k8s.io", SourceState::Watching, false),
        ],
        audit_logs: Vec::new(),
        unexplained: Vec::new(),
        unexplained_run: None,
        sinks: vec![
            sink("audit", SinkState::Running),
            SinkStatus {
                kind: "http".into(),
                cursor: Seq(51_000),
                lag_entries: 200,
                lag_seconds: 252,
                dead_letters: (1..=7).map(|seq| Refused { seq: Seq(seq), reason: "too large".into() }).collect(),
                ..sink("hook", SinkState::Halted("refused with 413".into()))
            },
        ],
        waiting: vec!["widgets.example.com".into()],
        waiting_because: BTreeMap::new(),
        discovery: BTreeMap::new(),
    };
    status.judge();
    status
}

#[test]
fn what_it_is_in_the_shared_log_is_one_line() {
    let mut status = status(true);
    let look = TerminalStyle { color: false, terminal: false, width: None };
    let view = HaView {
        role: Role::Standby,
        term: 7,
        leader: "node-7".into(),
        lease: "decklog/prod".into(),
        behind_units: 3,
        behind_seconds: 0.42,
        backlog_bytes: 1_300_000,
        log: "postgres://db.example/audit".into(),
        ..HaView::default()
    };
    let mut line = |view: HaView| {
        status.ha = Some(view);
        lines(&status, false, look).into_iter().find(|line| line.starts_with("role")).unwrap()
    };
    let all = [
        line(view.clone()),
        line(HaView { behind_units: 0, backlog_bytes: 0, ..view.clone() }),
        line(HaView { role: Role::Leader, backlog_bytes: 0, ..view.clone() }),
        line(HaView { leader: String::new(), ..view.clone() }),
        line(HaView { role: Role::Starting, ..view }),
    ];
    insta::assert_snapshot!(all.join("\n"), @r"
    role     standby, term 7, follows node-7 by the Lease decklog/prod, 3 units (0.4 s) behind postgres://db.example/audit, 1.2 MiB backlog
    role     standby, term 7, follows node-7 by the Lease decklog/prod, has all of postgres://db.example/audit
    role     leader, term 7, leads by the Lease decklog/prod, writes to postgres://db.example/audit
    role     standby, term 7, nobody leads by the Lease decklog/prod, 3 units (0.4 s) behind postgres://db.example/audit, 1.2 MiB backlog
    role     starting, and does not know yet who leads by the Lease decklog/prod
    ");
}

#[test]
fn a_pause_is_shown_once() {
    let mut status = status(true);
    let since = Some(status.time);
    status.journal.paused = Some(PauseStatus { why: "disk_full".into(), since, detail: "the disk is full".into() });
    status.judge();
    let shown = lines(&status, false, TerminalStyle { color: false, terminal: true, width: None });
    let paused: Vec<_> = shown.iter().filter(|line| line.contains("the disk is full")).collect();
    assert!(paused.len() == 1 && paused[0].starts_with("alarm    journal-paused"), "{paused:?}");
}

#[test]
fn every_position_fits_into_100_columns_and_alarms_say_what_to_do() {
    let look = TerminalStyle { color: false, terminal: true, width: Some(100) };
    insta::assert_snapshot!(lines(&status(true), false, look).join("\n"), @r"
    daemon   running (process 4321), version 0.1.0, for 1h40m
    cluster  prod-eu1 (5f1c0c2e-58f0-4c4b-9f0d-0a51c6d2a2d1)
    journal  /var/lib/decklog, 51,000 entries (201 to 51200), newest 2s ago
    epoch    0193
    disk     12.0 MiB journal, 4.0 MiB write-ahead log, 80.0 GiB free
    gaps     2, the last of pods (expired): entry 416, 2026-11-20T03:00:00Z
    alarm    source-degraded pods/shop, 40m: may not be listed (403); grant it: decklog rbac | kubectl
             apply -f -\u{1b}[2J; do what it says; decklog retries by itself, and the other sources are
             not affected
    alarm    resource-waiting widgets.example.com: it is configured, and the API server does not serve
             it; correct the name in [[watch]] resources, or install its CustomResourceDefinition;
             decklog waits for it
    alarm    sink-halted hook, 1h40m: refused with 413 (200 entries and 252 s behind); do what it says,
             and then `systemctl reload decklog` (SIGHUP) makes it retry; the journal keeps the entries
    alarm    sink-dead-letters hook, 1h40m: it refused 7 entries for good, the first because: too large;
             when the cause is gone: `decklog replay --sink hook --from 1 --to 7`

    SOURCE                      STATE           FOR  GAPS  KNOWN GOOD  OBJECTS  RESUMES AT
    pods/shop                   degraded        40m  2     never       1,204    a list
      may not be listed (403); grant it: decklog rbac | kubectl apply -f -\u{1b}[2J
    deployments.apps            watching        40m  0     12s ago     1,204    81234
    leases.coordination.k8s.io  not configured  40m  0     12s ago     1,204    81234

    SINK   TYPE  STATE    FOR    CURSOR  BEHIND               DEAD LETTERS
    audit  file  running  1h40m  51200   nothing              0
    hook   http  halted   1h40m  51000   200 entries (4m12s)  7
      refused with 413
      dead letter: entry 1: too large
      dead letter: entry 2: too large
      dead letter: entry 3: too large
      dead letter: entry 4: too large
      dead letter: entry 5: too large
      dead letter: and 2 more, see -o json
    ");
}

#[test]
fn it_reads_well_in_80_and_120_columns_and_as_json() {
    let mut quiet = status(true);
    (quiet.journal.entries, quiet.gaps.count, quiet.gaps.last, quiet.gaps.recovered) = (1, 0, None, 412);
    quiet.journal.oldest = quiet.journal.head;
    quiet.sources.truncate(1);
    quiet.sources[0].suppressed = 1;
    quiet.sinks.truncate(1);
    quiet.sinks[0].lag_entries = 1;
    quiet.waiting.clear();
    quiet.judge();
    for (name, status) in [("trouble", status(true)), ("stopped", status(false)), ("quiet", quiet)] {
        for columns in [80, 120] {
            let look = TerminalStyle { color: false, terminal: true, width: Some(columns) };
            insta::assert_snapshot!(format!("{name}_{columns}"), lines(&status, false, look).join("\n"));
        }
        insta::assert_json_snapshot!(format!("{name}_json"), status);
    }
}

#[test]
fn of_many_sources_only_the_odd_ones_are_listed_and_a_gap_is_a_notice() {
    let look = TerminalStyle { color: false, terminal: true, width: Some(100) };
    let mut status = status(true);
    let pods = status.sources.remove(1);
    let calm = status.sources.remove(0);
    status.sources = (0..54).map(|n| SourceStatus { name: format!("kind-{n}"), ..calm.clone() }).collect();
    status.sources.insert(30, pods);
    status.gaps.last.as_mut().unwrap().place.time = status.time;
    status.judge();
    let text = lines(&status, false, look).join("\n");
    assert!(text.contains("54 of 55 sources watching, 66,220 objects; these need a look, --all lists each"), "{text}");
    assert!(text.contains("\npods/shop ") && !text.contains("kind-"), "{text}");
    assert!(text.contains("notice   gap-recorded pods") && !text.contains("alarm    gap-recorded"), "{text}");
    let all = lines(&status, true, look);
    assert_eq!(all.iter().filter(|line| line.starts_with("kind-")).count(), 54, "{all:?}");
    assert!(
        all.iter().position(|line| line.starts_with("pods/shop"))
            < all.iter().position(|line| line.starts_with("kind-"))
    );
}

#[test]
fn what_the_daemon_last_said_is_not_shown_as_current() {
    let text = lines(&status(false), false, TerminalStyle::default()).join("\n");
    assert!(text.contains("not running") && text.contains("was watching") && text.contains("was halted"), "{text}");
}

/// The column and the lines are there only where there is something to say.
#[test]
fn what_an_audit_log_brings_for_nothing_is_shown() {
    let look = TerminalStyle { color: false, terminal: false, width: None };
    let mut status = status(true);
    let counts = AuditCounts { read: 1204, ..AuditCounts::default() };
    status.audit_logs = vec![AuditLogStatus {
        name: "audit".into(),
        read_up_to: Some(status.time),
        attributed: Seq(51_190),
        counts,
        last_lost: None,
        missing: None,
        caught_up: Some(status.time),
    }];
    let of_audit_logs = |status: &Status| {
        let lines = lines(status, false, look);
        lines.into_iter().skip_while(|line| !line.starts_with("AUDIT LOG")).collect::<Vec<_>>().join("\n")
    };
    let json = |status: &Status| serde_json::to_value(status).unwrap();
    insta::assert_snapshot!(of_audit_logs(&status), @r"
    AUDIT LOG  READ UP TO            EVENTS  CUT OFF  UNREADABLE  FOREIGN  LOST  DROPPED  SENDERS UP TO
    audit      2026-11-21T10:40:00Z  1,204   0        0           0        0     0        entry 51190
    ");
    assert!(json(&status)["audit_logs"][0]["no_event"].is_null() && json(&status)["unexplained"].is_null());
    status.audit_logs[0].counts.no_event = 3;
    let of = |resource: &str, changes, decided| UnexplainedResource { resource: resource.to_owned(), changes, decided };
    status.unexplained = vec![of("leases.coordination.k8s.io", 1_301, 1_420), of("pods\u{1b}", 20, 20)];
    insta::assert_snapshot!(of_audit_logs(&status), @r"
    AUDIT LOG  READ UP TO            EVENTS  CUT OFF  UNREADABLE  NO EVENT  FOREIGN  LOST  DROPPED  SENDERS UP TO
    audit      2026-11-21T10:40:00Z  1,204   0        0           3         0        0     0        entry 51190
    unexplained: leases.coordination.k8s.io 1,301 of 1,420
    unexplained: pods\u{1b} 20 of 20
    ");
    assert_eq!(json(&status)["audit_logs"][0]["no_event"], 3);
    assert_eq!(json(&status)["unexplained"][1]["decided"], 20);
}
