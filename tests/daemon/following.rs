//! A cluster that lives, undisturbed and with everything that a cluster does to its own history.

use decklog::sim::faults::{Act, Fault, On, Signal};
use decklog::sim::objects;
use decklog::sim::world::World;
use serde_json::json;

use crate::judge::Entry;
use crate::support::{Daemon, cluster, cluster_with, lists, scope};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_living_cluster_is_told_row_by_row() {
    let sim = cluster().await;
    let mut world = World::new(&sim, 1).unwrap();
    let started = sim.revision();
    let mut daemon = Daemon::new(&sim, &["*"]);
    daemon.start();
    daemon.ready().await;
    for _ in 0..400 {
        world.step().unwrap();
    }
    // Two watches of one truth that began at other moments, and one whose lines arrive in pieces.
    sim.fault(Fault::new(On::watch("pods"), Act::Chop(7)));
    sim.signal("pods", &Signal::End);
    for _ in 0..200 {
        world.step().unwrap();
    }
    let everything = scope(&sim, started, &[]);
    daemon.catch_up(&sim, &everything).await;
    daemon.stop().await;
    daemon.judged(&sim, &everything).await;
    assert!(daemon.entries().len() > 600, "the run was too small to prove anything");
    assert!(daemon.entries().iter().all(|entry| entry.gap.is_none()), "{:?}", daemon.story("pods"));
}

/// A lease of etcd that runs out deletes many objects in one revision; a resume in their middle cannot say so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deletions_of_one_revision_survive_a_cut_in_their_middle() {
    let sim = cluster().await;
    let started = sim.revision();
    let mut daemon = Daemon::new(&sim, &["configmaps"]);
    daemon.start();
    daemon.ready().await;
    let listed = lists(&sim).len();
    for (round, whole) in [0, 1, 17, 38, 39].into_iter().enumerate() {
        let names: Vec<String> = (0..40).map(|number| format!("leased-{round}-{number}")).collect();
        for name in &names {
            sim.create("configmaps", objects::config_map("default", name, "x")).unwrap();
        }
        daemon.catch_up(&sim, &scope(&sim, started, &["configmaps"])).await;
        sim.fault(Fault::new(On::watch("configmaps"), Act::cut_in_event(whole)));
        let watches = sim.count(&On::watch("configmaps"));
        sim.signal("configmaps", &Signal::End);
        sim.wait_for_count(&On::watch("configmaps"), watches + 1).await.unwrap();
        let together: Vec<(&str, &str)> = names.iter().map(|name| ("default", name.as_str())).collect();
        sim.expire_together("configmaps", &together).unwrap();
        if round % 2 == 1 {
            daemon.kill().await;
            daemon.start();
            daemon.ready().await;
        }
        daemon.catch_up(&sim, &scope(&sim, started, &["configmaps"])).await;
    }
    daemon.stop().await;
    daemon.judged(&sim, &scope(&sim, started, &["configmaps"])).await;
    assert_eq!(lists(&sim).len(), listed, "nothing of this needs a list");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_first_list_is_only_remembered() {
    let sim = cluster().await;
    for name in ["kept", "changed", "gone"] {
        sim.create("configmaps", objects::config_map("default", name, "1")).unwrap();
    }
    let mut daemon = Daemon::with(&sim, "resources = [\"configmaps\"]\nfirst_list = \"silent\"", "");
    daemon.start();
    daemon.ready().await;
    sim.patch("configmaps", "default", "changed", &json!({"data": {"value": "2"}})).unwrap();
    sim.delete("configmaps", "default", "gone").unwrap();
    sim.create("configmaps", objects::config_map("default", "new", "1")).unwrap();
    daemon.knows(&sim, "configmaps", "default", "new").await;
    let told = ["watched MODIFIED default/changed", "watched DELETED default/gone", "watched ADDED default/new"];
    assert_eq!(daemon.story("configmaps"), told);
    let patched = |entry: &&Entry| entry.kind == "MODIFIED";
    let change = daemon.entries().iter().find(patched).unwrap().change.clone().unwrap();
    assert_eq!(change.areas, ["data"], "what was only remembered is what a change is compared with");
    // A gap is told by what was remembered as well.
    daemon.stop().await;
    sim.delete("configmaps", "default", "kept").unwrap();
    sim.compact_all();
    daemon.start();
    daemon.tells("what was deleted", |entry| entry.name == "kept").await;
    assert_eq!(daemon.story("configmaps")[3..], ["GAP expired", "inferred DELETED default/kept"]);
    daemon.stop().await;
    daemon.consistent().await;
}

/// Of what meets all sources at once the daemon's own log has a line, and not one for each.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_of_all_sources_is_no_line_for_each() {
    let sim = cluster().await;
    let mut daemon = Daemon::with(&sim, "resources = [\"*\"]", "");
    daemon.start();
    daemon.ready().await;
    let sources = daemon.status().await["sources"].as_array().unwrap().len();
    assert!(sources > 8, "{sources} sources are few for this");
    daemon.stop().await;
    sim.create("configmaps", objects::config_map("default", "new", "1")).unwrap();
    sim.compact_all();
    let before = daemon.said().len();
    daemon.start();
    // The lines that say this, and the sources that they speak of.
    let told = |daemon: &Daemon, what: &str| {
        let said = daemon.said().split_off(before);
        let lines: Vec<&str> = said.lines().filter(|line| line.contains(what)).collect();
        let speaks_of = |line: &&str| {
            let named = line.split_once("sources=\"").unwrap().1.split_once('"').unwrap().0;
            let (named, more) = named.split_once(" and ").unwrap_or((named, "0 more"));
            named.split(", ").count() + more.trim_end_matches(" more").parse::<usize>().unwrap()
        };
        (lines.len(), lines.iter().map(speaks_of).sum::<usize>())
    };
    let lines = crate::support::until("the daemon to speak of each source", async || {
        match told(&daemon, "changes may be missing") {
            (lines, met) if met == sources => Ok(lines),
            other => Err(format!("{other:?} of {sources}")),
        }
    })
    .await;
    daemon.stop().await;
    // The daemon looks every two seconds, and the sources begin together.
    assert!(lines <= 3, "{}", daemon.said());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_ignored_moves_state_and_position_and_is_not_told() {
    let sim = cluster().await;
    sim.create("configmaps", objects::config_map("default", "a", "1")).unwrap();
    let watch =
        "resources = [\"configmaps\"]\nignore = [\"/metadata/annotations/*stamp\", \"/metadata/managedFields\"]";
    let mut daemon = Daemon::with(&sim, watch, "");
    daemon.start();
    daemon.ready().await;
    for round in 0..20 {
        let stamp = json!({"metadata": {"annotations": {"example.com-stamp": round.to_string()}}});
        sim.patch("configmaps", "default", "a", &stamp).unwrap();
    }
    sim.patch("configmaps", "default", "a", &json!({"data": {"value": "2"}})).unwrap();
    daemon.knows(&sim, "configmaps", "default", "a").await;
    assert_eq!(daemon.story("configmaps"), ["listed ADDED default/a", "watched MODIFIED default/a"]);
    // The patch leads from what was told last, so that the log alone gives every state that it tells.
    let told = daemon.entries()[1].change.clone().unwrap();
    assert_eq!(told.areas, ["data", "metadata"]);
    // What was ignored is not asked for again, nor told by a later gap.
    sim.patch("configmaps", "default", "a", &json!({"metadata": {"annotations": {"example.com-stamp": "last"}}}))
        .unwrap();
    let last = sim.revision().to_string();
    crate::support::until("the position to pass what is ignored", async || {
        let resume = daemon.status().await["sources"][0]["resume"].clone();
        if resume == last.as_str() { Ok(()) } else { Err(format!("{resume}, not {last}")) }
    })
    .await;
    daemon.stop().await;
    let before = lists(&sim).len();
    daemon.start();
    daemon.ready().await;
    assert_eq!((lists(&sim).len(), daemon.entries().len()), (before, 2));
    daemon.stop().await;
    daemon.consistent().await;
    let got = daemon.command(&["get", "configmap/a", "-o", "json"]).await.done();
    assert!(got.contains(r#""example.com-stamp":"last""#) || got.contains(r#""example.com-stamp": "last""#), "{got}");
}

/// Old servers tell what they serve in another way, and some say that history is gone by HTTP and not in the stream.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_of_another_kind_are_read_as_well() {
    let sim = cluster_with(|settings| {
        settings.legacy_discovery = true;
        settings.watch_list = false;
        settings.http_410 = true;
        settings.version = "v1.24.0".to_owned();
    })
    .await;
    let mut world = World::new(&sim, 5).unwrap();
    let started = sim.revision();
    let resources = ["pods", "replicasets.apps", "configmaps", "secrets"];
    let mut daemon = Daemon::new(&sim, &resources);
    daemon.start();
    daemon.ready().await;
    for _ in 0..100 {
        world.step().unwrap();
    }
    daemon.catch_up(&sim, &scope(&sim, started, &resources)).await;
    daemon.stop().await;
    for _ in 0..100 {
        world.step().unwrap();
    }
    sim.compact_all();
    daemon.start();
    daemon.ready().await;
    let done = scope(&sim, started, &resources);
    daemon.catch_up(&sim, &done).await;
    daemon.stop().await;
    daemon.judged(&sim, &done).await;
    assert!(daemon.story("pods").contains(&"GAP expired".to_owned()));
}
