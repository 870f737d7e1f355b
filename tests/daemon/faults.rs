//! Every fault that the simulated server knows, in any order.

use std::time::Duration;

use decklog::sim::faults::{Act, At, Fault, How, On, Refusal, Signal, Then};
use decklog::sim::world::World;
use decklog::sim::{Sim, objects};
use serde_json::json;

use crate::judge::Scope;
use crate::support::{Daemon, Dice, cluster, lists, scope, until};

/// One source each, so that the waits after failures add up for none of them.
const RESOURCES: [&str; 9] = [
    "pods",
    "configmaps",
    "secrets",
    "events",
    "deployments.apps",
    "replicasets.apps",
    "leases.coordination.k8s.io",
    "nodes",
    "services",
];

/// A fault of an open watch after which the server says no more on it.
fn cut(dice: &mut Dice) -> Act {
    let events = dice.roll(6);
    match dice.roll(6) {
        0 => Act::cut_in_event(events),
        1 => Act::cut_after_events(events),
        2 => Act::cut_after_bytes(1 + dice.roll(20_000)),
        3 => Act::end_after_events(events),
        4 => Act::tamper(At::Event(events), How::Half, Then::Reset),
        _ => Act::tamper(At::Event(events), How::Half, Then::End),
    }
}

/// A request that fails: no stream, no page.
fn refusal(dice: &mut Dice) -> Act {
    match dice.roll(11) {
        0 => Act::Reset,
        1 => Act::flow_control(1),
        2 => Act::refuse(&Refusal::new(503, "ServiceUnavailable", "shutting down").retry_after(1)),
        3 => Act::html(502),
        4 => Act::html(200),
        5 => Act::empty(),
        6 => Act::refuse(&Refusal::internal("etcdserver: leader changed")),
        7 => Act::refuse(&Refusal::not_ready(1)),
        8 => Act::refuse(&Refusal::unauthorized()),
        9 => Act::refuse(&Refusal::new(504, "Timeout", "request did not complete within the allotted time")),
        _ => Act::Delay(Duration::from_millis(300)),
    }
}

/// Something wrong in the middle of a stream.
fn oddity(dice: &mut Dice) -> Act {
    let events = 1 + dice.roll(4);
    match dice.roll(8) {
        0 => Act::error_event(events, &Refusal::internal("unable to transform key")),
        1 => Act::error_event(events, &Refusal::expired(1, 2)),
        2 => Act::undecodable(events),
        3 => Act::repeat(events),
        4 => Act::insert(events, "\n"),
        5 => Act::Chop(1 + dice.roll(50)),
        6 => Act::insert(events, "<html>no healthy upstream</html>\n"),
        _ => Act::oversize(events, 1 << 20),
    }
}

/// Faults 1, 2, 5, 6 and 8: in any order, at once, on nine resources.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_the_network_and_the_server_do_the_log_is_the_truth() {
    let seed = 4_711;
    let sim = cluster().await;
    let mut world = World::new(&sim, seed).unwrap();
    let mut dice = Dice(seed);
    let started = sim.revision();
    let mut daemon = Daemon::new(&sim, &RESOURCES);
    // The first lists meet trouble as well.
    for resource in &RESOURCES[..4] {
        sim.fault(Fault::new(On::list(resource), refusal(&mut dice)));
        let cut = if dice.roll(2) == 0 { Act::cut_after_bytes(700) } else { Act::end_after_bytes(700) };
        sim.fault(Fault::new(On::list(resource), cut));
    }
    daemon.start();
    daemon.ready().await;
    let mut disturbed = 0;
    for _ in 0..12 {
        for _ in 0..3 {
            let resource = dice.pick(&RESOURCES);
            let fault = match dice.roll(5) {
                0 | 1 => cut(&mut dice),
                2 => refusal(&mut dice),
                _ => oddity(&mut dice),
            };
            sim.fault(Fault::new(On::watch(resource), fault));
            let signal = match dice.roll(5) {
                0 => Signal::Cut,
                1 => Signal::Reset,
                2 => Signal::Error(Refusal::internal("the storage is being reinitialized")),
                3 => Signal::Bookmark,
                _ => Signal::End,
            };
            let asked = sim.count(&On::watch(resource));
            sim.signal(resource, &signal);
            disturbed += usize::from(!matches!(signal, Signal::Bookmark));
            if dice.roll(3) == 0 {
                // Some are waited for, so that what follows meets the new stream and not the time between.
                sim.signal(resource, &Signal::End);
                sim.wait_for_count(&On::watch(resource), asked + 1).await.unwrap();
            }
        }
        if dice.roll(4) == 0 {
            sim.expire_watch_history(dice.pick::<&str>(&RESOURCES), sim.revision());
        }
        let lines = daemon.lines();
        for _ in 0..20 + dice.roll(30) {
            world.step().unwrap();
        }
        daemon.reach(lines + 5).await;
        if dice.roll(4) == 0 {
            daemon.kill().await;
            daemon.start();
            daemon.ready().await;
        }
    }
    sim.heal();
    let done = scope(&sim, started, &RESOURCES);
    daemon.catch_up(&sim, &done).await;
    daemon.stop().await;
    daemon.judged(&sim, &done).await;
    assert!(disturbed > 20 && daemon.entries().len() > 400, "too little happened to prove anything");
}

/// Faults 24 and 25: page tokens that expire, lists that break off, and a kill in the middle.
/// 1,200 Pods in three pages, and nothing goes as it should: no half of a list may ever count.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_first_list_is_one_moment_or_nothing() {
    let sim = cluster().await;
    sim.bulk_pods(1200).unwrap();
    let started = sim.revision();
    let second = || On::list("pods").query("continue=");
    sim.fault(Fault::new(second(), Act::cut_after_bytes(100_000)));
    sim.fault(Fault::new(second().query("limit=500"), Act::refuse(&Refusal::new(410, "Expired", "too old"))).after(1));
    sim.fault(Fault::new(second(), Act::end_after_bytes(50_000)).after(3));
    let mut daemon = Daemon::new(&sim, &["pods"]);
    daemon.start();
    sim.wait_for_count(&second(), 1).await.unwrap();
    sim.touch_bulk(300);
    sim.wait_for_count(&second(), 2).await.unwrap();
    assert_eq!(daemon.lines(), 0, "nothing of a list is told before it is whole");
    daemon.kill().await;
    daemon.start();
    daemon.ready().await;
    sim.touch_bulk(100);
    let done = scope(&sim, started, &["pods"]);
    daemon.catch_up(&sim, &done).await;
    daemon.stop().await;
    daemon.judged(&sim, &done).await;
    assert_eq!(daemon.entries().iter().filter(|entry| entry.evidence == "listed").count(), 1200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_after_a_gap_deletes_only_what_a_whole_list_lacks() {
    let sim = cluster().await;
    sim.bulk_pods(700).unwrap();
    let started = sim.revision();
    let mut daemon = Daemon::new(&sim, &["pods"]);
    daemon.with_gaps(&["pods"]);
    daemon.start();
    daemon.ready().await;
    daemon.stop().await;
    let gone = sim.objects("pods").unwrap().swap_remove(3);
    sim.delete("pods", "bulk", &gone.name).unwrap();
    sim.compact_all();
    let pages = || On::list("pods").query("continue=");
    for fault in [Act::end_after_bytes(9_000), Act::cut_after_bytes(9_000), Act::html(200), Act::empty()] {
        sim.fault(Fault::new(pages(), fault));
    }
    daemon.start();
    let done = scope(&sim, started, &["pods"]);
    daemon.tells("the gap", |entry| entry.gap.is_some()).await;
    daemon.catch_up(&sim, &done).await;
    daemon.stop().await;
    daemon.judged(&sim, &done).await;
    assert_eq!(daemon.story("pods")[700..], ["GAP expired".to_owned(), deleted(&daemon.entries()[701])]);
}

fn deleted(entry: &crate::judge::Entry) -> String {
    format!("inferred DELETED {}/{}", entry.namespace, entry.name)
}

/// What cannot be read is never passed over in silence: it comes again whole, or it is asked for in another way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_read_is_asked_for_again_or_in_another_way() {
    let sim = cluster().await;
    let started = sim.revision();
    let resources = ["configmaps", "services"];
    let mut daemon = Daemon::new(&sim, &resources);
    daemon.start();
    daemon.ready().await;
    // Once: the second time it can be read.
    spoil(&sim, "configmaps", Act::undecodable(0), 1).await;
    sim.create("configmaps", objects::config_map("default", "once", "1")).unwrap();
    daemon.knows(&sim, "configmaps", "default", "once").await;
    assert_eq!(daemon.story("configmaps"), ["watched ADDED default/once"]);
    // Always: given up for what etcd has.
    spoil(&sim, "configmaps", Act::undecodable(0), usize::MAX).await;
    sim.create("configmaps", objects::config_map("default", "never", "1")).unwrap();
    daemon.tells("it", |entry| entry.name == "never").await;
    sim.heal();
    // Too large: at once.
    spoil(&sim, "services", Act::oversize(0, 33 << 20), usize::MAX).await;
    sim.create("services", objects::service("default", "huge")).unwrap();
    daemon.tells("it", |entry| entry.name == "huge").await;
    sim.heal();
    let done = scope(&sim, started, &resources);
    daemon.catch_up(&sim, &done).await;
    daemon.stop().await;
    daemon.judged(&sim, &done).await;
    assert_eq!(daemon.story("configmaps")[1..], ["recovered ADDED default/never"]);
    assert_eq!(daemon.story("services"), ["recovered ADDED default/huge"]);
}

/// The next watches of a resource meet this.
async fn spoil(sim: &Sim, resource: &str, act: Act, times: usize) {
    sim.fault(Fault::new(On::watch(resource), act).times(times));
    let asked = sim.count(&On::watch(resource));
    sim.signal(resource, &Signal::End);
    sim.wait_for_count(&On::watch(resource), asked + 1).await.unwrap();
}

/// Faults 14, 18 and 19: repeats, and an API server that lags behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeats_are_told_once_and_old_versions_never() {
    let sim = cluster().await;
    let started = sim.revision();
    let mut daemon = Daemon::new(&sim, &["configmaps"]);
    daemon.start();
    daemon.ready().await;
    spoil(&sim, "configmaps", Act::repeat(1), 1).await;
    let create = |name: &str| sim.create("configmaps", objects::config_map("default", name, "1")).unwrap();
    let first = create("a");
    sim.patch("configmaps", "default", "a", &json!({"data": {"value": "2"}})).unwrap();
    create("b");
    daemon.catch_up(&sim, &scope(&sim, started, &["configmaps"])).await;
    // What it once was, long after: an API server that lags behind another one.
    let line =
        |kind: &str, object: &decklog::sim::Row| format!("{}\n", json!({"type": kind, "object": object.value()}));
    let deleted = sim.delete("configmaps", "default", "b").unwrap();
    daemon.catch_up(&sim, &scope(&sim, started, &["configmaps"])).await;
    for (kind, row) in [("ADDED", &first), ("DELETED", &deleted), ("MODIFIED", &first)] {
        sim.signal("configmaps", &Signal::Line(line(kind, row).into()));
    }
    sim.signal("configmaps", &Signal::Line("{\"type\":\"BOOKMARK\",\"object\":{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\",\"metadata\":{\"resourceVersion\":\"1\"}}}\n".into()));
    create("c");
    let done = scope(&sim, started, &["configmaps"]);
    daemon.catch_up(&sim, &done).await;
    daemon.stop().await;
    daemon.judged(&sim, &done).await;
    let listed = lists(&sim).len();
    daemon.start();
    daemon.ready().await;
    create("d");
    daemon.knows(&sim, "configmaps", "default", "d").await;
    assert_eq!(lists(&sim).len(), listed, "an old bookmark did not move the position back");
    daemon.stop().await;
    daemon.judged(&sim, &scope(&sim, started, &["configmaps"])).await;
}

/// Fault 20: a server that withholds events of a cluster that lives, which every source is audited against all the time.
/// What was withheld is told with a GAP `audit`, and nothing else is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_server_withholds_is_found_in_a_busy_cluster() {
    let sim = cluster().await;
    let mut world = World::new(&sim, 5).unwrap();
    let started = sim.revision();
    let resources = ["pods", "configmaps", "services", "deployments.apps", "replicasets.apps", "nodes"];
    let mut daemon = Daemon::new(&sim, &resources);
    let config = daemon.config(&format!("resources = {resources:?}\n"), "");
    // At the usual rate of questions six sources wait 20 s for each other's samples.
    let often = "audit_every = \"1s\"\naudit_reads = { rate = 1000, percent = 1 }";
    daemon.configure(&config.replace("audit_every = \"off\"", often));
    daemon.start();
    daemon.ready().await;
    let audits = |daemon: &Daemon| daemon.said().matches("an audit is done").count();
    let audited = until("audits", async || {
        daemon.must_run();
        if audits(&daemon) >= 30 { Ok(()) } else { Err("there are fewer than thirty".to_owned()) }
    });
    tokio::select! {
        () = audited => {}
        refusal = world.live(Duration::from_millis(5)) => panic!("{refusal}"),
    }
    assert!(daemon.entries().iter().all(|entry| entry.gap.is_none()), "nothing was missing");
    for (round, name) in ["first", "second"].into_iter().enumerate() {
        // After an audit that found something the source may be between two watches.
        for turn in 0.. {
            let name = format!("watched-{round}-{turn}");
            sim.create("configmaps", objects::config_map("default", &name, "1")).unwrap();
            daemon.knows(&sim, "configmaps", "default", &name).await;
            if daemon.entries().iter().any(|entry| entry.name == name && entry.evidence == "watched") {
                break;
            }
        }
        // So that the newest event does not come again, and take the place of the one that is meant.
        sim.signal("configmaps", &Signal::Bookmark);
        spoil(&sim, "configmaps", Act::replace(0, "\n"), 1).await;
        sim.create("configmaps", objects::config_map("default", name, "1")).unwrap();
        tokio::select! {
            () = daemon.tells("what was withheld", |entry| entry.name == name && entry.evidence == "recovered") => {}
            refusal = world.live(Duration::from_millis(5)) => panic!("{refusal}"),
        }
        assert!(daemon.entries().iter().all(|entry| entry.gap.is_none()), "etcd has it");
    }
    let done = Scope { late: true, ..scope(&sim, started, &resources) };
    daemon.catch_up(&sim, &done).await;
    daemon.stop().await;
    daemon.judged(&sim, &done).await;
}
