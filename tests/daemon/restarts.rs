//! Stops, kills, a server that forgets meanwhile and one that goes back in time.

use std::time::Duration;

use decklog::sim::faults::{Act, Fault, On, Refusal};
use decklog::sim::world::World;
use decklog::sim::{Sim, objects};
use serde_json::json;

use crate::judge::Entry;
use crate::support::{Daemon, Dice, cluster, cluster_with, lists, scope, until};

/// What the load moves.
const BUSY: [&str; 8] = [
    "pods",
    "configmaps",
    "secrets",
    "events",
    "deployments.apps",
    "replicasets.apps",
    "leases.coordination.k8s.io",
    "nodes",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stops_inside_the_window_lose_nothing_and_list_nothing() {
    let sim = cluster().await;
    let mut world = World::new(&sim, 2).unwrap();
    let started = sim.revision();
    let mut daemon = Daemon::new(&sim, &BUSY);
    daemon.start();
    daemon.ready().await;
    let mut first = lists(&sim);
    first.sort();
    first.dedup();
    assert_eq!((first.len(), lists(&sim).len()), (BUSY.len(), BUSY.len()), "each resource is listed once");
    let disturbed = async {
        for _ in 0..5 {
            daemon.reach(daemon.lines() + 40).await;
            daemon.stop().await;
            let missed = sim.revision() + 60;
            sim.wait_until("live on", |sim| sim.revision() >= missed).await.unwrap();
            daemon.start();
            daemon.ready().await;
        }
    };
    tokio::select! {
        () = disturbed => {}
        refusal = world.live(Duration::from_millis(5)) => panic!("{refusal}"),
    }
    let done = scope(&sim, started, &BUSY);
    daemon.catch_up(&sim, &done).await;
    daemon.stop().await;
    daemon.judged(&sim, &done).await;
    assert_eq!(lists(&sim).len(), BUSY.len(), "a start inside the window lists nothing");
    assert!(daemon.entries().iter().all(|entry| entry.gap.is_none()));
}

/// Fault 55: the kernel ends what has too much memory as `kill -9` does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_at_any_moment_lose_repeat_and_reorder_nothing() {
    let sim = cluster().await;
    let mut world = World::new(&sim, 3).unwrap();
    let started = sim.revision();
    let mut daemon = Daemon::new(&sim, &BUSY);
    let mut dice = Dice(20_240_607);
    let disturbed = async {
        for _ in 0..30 {
            daemon.start();
            match dice.roll(5) {
                0 => {
                    let state = daemon.state();
                    until("a state directory", async || {
                        daemon.must_run();
                        if state.exists() { Ok(()) } else { Err("it does not exist".to_owned()) }
                    })
                    .await;
                }
                1 => daemon.reach(daemon.lines() + 1 + dice.roll(5)).await,
                2 => daemon.ready().await,
                3 => {
                    // In the middle of a batch, seen from the other side: so many watches are open.
                    let asked = sim.count(&On::watch("*")) + 1 + dice.roll(BUSY.len());
                    sim.wait_for_count(&On::watch("*"), asked).await.unwrap();
                }
                _ => {
                    daemon.ready().await;
                    daemon.reach(daemon.lines() + 1 + dice.roll(40)).await;
                }
            }
            daemon.kill().await;
        }
        daemon.start();
        daemon.ready().await;
    };
    tokio::select! {
        () = disturbed => {}
        refusal = world.live(Duration::from_millis(4)) => panic!("{refusal}"),
    }
    let done = scope(&sim, started, &BUSY);
    daemon.catch_up(&sim, &done).await;
    daemon.stop().await;
    daemon.judged(&sim, &done).await;
    assert!(daemon.entries().len() > 300, "the run was too small to prove anything");
    assert!(daemon.entries().iter().all(|entry| entry.gap.is_none()), "the server forgot nothing");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_forgot_is_a_gap_and_the_net_difference() {
    for http_410 in [false, true] {
        let sim = cluster_with(|settings| settings.http_410 = http_410).await;
        forgotten(&sim).await;
    }
}

async fn forgotten(sim: &Sim) {
    let started = sim.revision();
    let write = |name: &str, value: &str| {
        sim.patch("configmaps", "default", name, &json!({"data": {"value": value}})).unwrap();
    };
    let create = |name: &str| drop(sim.create("configmaps", objects::config_map("default", name, "1")).unwrap());
    let delete = |name: &str| drop(sim.delete("configmaps", "default", name).unwrap());
    let mut daemon = Daemon::new(sim, &["configmaps", "pods"]);
    daemon.start();
    daemon.ready().await;
    for name in ["kept", "changed", "gone", "again"] {
        create(name);
    }
    daemon.catch_up(sim, &scope(sim, started, &["configmaps", "pods"])).await;
    let last = sim.revision().to_string();
    for stopped in [true, false] {
        let before = daemon.story("configmaps").len();
        let told = daemon.entries().len() as u64;
        if stopped {
            daemon.stop().await;
        } else {
            daemon.kill().await;
        }
        write("changed", if stopped { "2" } else { "4" });
        write("changed", if stopped { "3" } else { "5" });
        delete("gone");
        delete("again");
        create("again");
        create("brief");
        delete("brief");
        create("new");
        sim.compact_all();
        daemon.start();
        daemon.tells("what it missed", |entry| entry.seq > told && entry.name == "new").await;
        write("new", "2");
        daemon.catch_up(sim, &scope(sim, started, &["configmaps", "pods"])).await;
        let told = daemon.story("configmaps")[before..].to_vec();
        let at = |line: &str| told.iter().position(|told| told == line);
        assert_eq!((told.first().unwrap().as_str(), told.len()), ("GAP expired", 7), "{told:?}");
        assert!(told.last().unwrap().ends_with("ed MODIFIED default/new"), "watched or recovered: {told:?}");
        for line in ["DELETED default/gone", "MODIFIED default/changed", "ADDED default/new"] {
            assert!(at(&format!("inferred {line}")).is_some(), "{line}: {told:?}");
        }
        assert!(at("inferred DELETED default/again") < at("inferred ADDED default/again"), "{told:?}");
        assert!(at("inferred DELETED default/again").is_some(), "{told:?}");
        delete("new");
        create("gone");
        daemon.catch_up(sim, &scope(sim, started, &["configmaps", "pods"])).await;
    }
    let of_maps = |entry: &&Entry| entry.resource == "configmaps" && entry.gap.is_some();
    let gap = daemon.entries().iter().find(of_maps).unwrap().gap.clone().unwrap();
    let (from, end): (u64, u64) = (gap.from.unwrap().parse().unwrap(), last.parse().unwrap());
    let told = daemon.entries().iter().take_while(|entry| entry.gap.is_none());
    let before = told.filter(|entry| entry.resource == "configmaps").map(Entry::rv).filter(|version| *version < end);
    // More may have been to come at the newest version of all.
    assert!(from <= end && Some(from) >= before.max(), "the gap begins where the log ended: {from}, {end}");
    assert!(gap.since.is_some(), "it is said since when");
    let gone = daemon.entries().iter().find(|entry| entry.name == "gone" && entry.kind == "DELETED").unwrap();
    assert!(gone.object.as_ref().unwrap().get().contains(r#""value":"1""#), "its last known state");
    daemon.stop().await;
    daemon.judged(sim, &scope(sim, started, &["configmaps", "pods"])).await;
    let status = daemon.status().await;
    assert!(status["gaps"]["count"].as_u64().unwrap() >= 2, "{status}");
}

/// etcd was put back from a copy: what the log has told never happened, and other things did.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_was_put_back_is_a_rollback() {
    let sim = cluster_with(|settings| settings.too_large_wait = Duration::ZERO).await;
    let started = sim.revision();
    let create = |name: &str| drop(sim.create("configmaps", objects::config_map("default", name, "1")).unwrap());
    let write = |name: &str, value: &str| {
        sim.patch("configmaps", "default", name, &json!({"data": {"value": value}})).unwrap();
    };
    let mut daemon = Daemon::new(&sim, &["configmaps"]);
    daemon.start();
    daemon.ready().await;
    create("kept");
    create("changed");
    let copy = sim.revision();
    write("changed", "2");
    create("lost");
    create("twice");
    sim.delete("configmaps", "default", "kept").unwrap();
    for round in 0..50 {
        write("changed", &round.to_string());
    }
    daemon.catch_up(&sim, &scope(&sim, started, &["configmaps"])).await;
    daemon.stop().await;
    daemon.before_restore(&sim);
    sim.restore(copy);
    create("twice");
    write("changed", "other");
    // Nobody knows the position of the journal any more. Until a rollback is believed a slow API server is given a
    // minute to catch up, which the first answer here shortens: it has forgotten the position.
    sim.fault(Fault::new(On::list("configmaps").query("NotOlderThan"), Act::refuse(&Refusal::expired(1, 2))));
    daemon.start();
    daemon.tells("that it went back", |entry| entry.gap.as_ref().is_some_and(|gap| gap.why == "rollback")).await;
    write("kept", "2");
    let done = scope(&sim, started, &["configmaps"]);
    daemon.catch_up(&sim, &done).await;
    let told = daemon.story("configmaps");
    let gap = told.iter().position(|line| line == "GAP rollback").unwrap();
    let mut net = told[gap + 1..told.len() - 1].to_vec();
    net.sort();
    assert_eq!(
        net,
        [
            "inferred ADDED default/kept",
            "inferred ADDED default/twice",
            "inferred DELETED default/lost",
            "inferred DELETED default/twice",
            "inferred MODIFIED default/changed",
        ]
    );
    daemon.stop().await;
    daemon.judged(&sim, &done).await;
}

/// Fault 44: the journal was put back from a copy: the sink holds entries that the journal would give out a second time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_journal_that_was_put_back_never_gives_a_seq_out_twice() {
    let sim = cluster().await;
    let mut daemon = Daemon::new(&sim, &["configmaps"]);
    let create = |name: &str| drop(sim.create("configmaps", objects::config_map("default", name, "1")).unwrap());
    daemon.start();
    daemon.ready().await;
    create("a");
    daemon.knows(&sim, "configmaps", "default", "a").await;
    daemon.stop().await;
    let copy = daemon.path("copy");
    std::fs::create_dir(&copy).unwrap();
    for file in std::fs::read_dir(daemon.state()).unwrap() {
        let path = file.unwrap().path();
        std::fs::copy(&path, copy.join(path.file_name().unwrap())).unwrap();
    }
    daemon.start();
    for name in ["b", "c", "d"] {
        create(name);
    }
    daemon.knows(&sim, "configmaps", "default", "d").await;
    daemon.stop().await;
    std::fs::remove_dir_all(daemon.state()).unwrap();
    std::fs::rename(&copy, daemon.state()).unwrap();
    create("e");
    daemon.start();
    daemon.knows(&sim, "configmaps", "default", "e").await;
    daemon.stop().await;
    let entries = daemon.entries();
    let mut places: Vec<(&str, u64)> = entries.iter().map(|entry| (entry.epoch.as_str(), entry.seq)).collect();
    places.sort_unstable();
    let count = places.len();
    places.dedup();
    assert_eq!(places.len(), count, "one seq of one epoch twice: {places:?}");
    let epochs: std::collections::BTreeSet<&str> = places.iter().map(|(epoch, _)| *epoch).collect();
    assert_eq!(epochs.len(), 2, "a new epoch begins");
    for name in ["a", "b", "c", "d", "e"] {
        assert!(entries.iter().any(|entry| entry.name == name), "{name} is missing");
    }
}
