//! A cluster that lives, read by three daemons at once: one undisturbed, one that is stopped and started five times,
//! one that is killed thirty times.

use std::collections::{BTreeMap, HashMap};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::decklog::Decklog;
use crate::harness::{Cluster, LIMIT, Parts, Version, judges, until};
use crate::judge::Scope;
use crate::load::{self, Dice, SECRET, coded_secret};

/// What the disturbed daemons read: what the load moves, cached by the API server or not (events).
const BUSY: [&str; 14] = [
    "pods",
    "configmaps",
    "secrets",
    "services",
    "serviceaccounts",
    "namespaces",
    "nodes",
    "events",
    "deployments.apps",
    "replicasets.apps",
    "jobs.batch",
    "endpointslices.discovery.k8s.io",
    "leases.coordination.k8s.io",
    "customresourcedefinitions.apiextensions.k8s.io",
];

/// How often one daemon is stopped and another one killed.
const STOPS: usize = 5;
const KILLS: usize = 30;
/// Audits that prove something.
const AUDITS: usize = 50;

/// (a), (b) and (c) of the proof.
pub async fn scenario(version: Version) {
    let seed = 20_240_607;
    let cluster = Cluster::start(version, Parts::Full).await;
    let started = cluster.oracle().sync().await;
    let busy = format!("resources = {BUSY:?}");
    let mut calm = Decklog::new(&cluster, "calm", "resources = [\"*\"]");
    let mut paused = Decklog::new(&cluster, "paused", &busy);
    let mut killed = Decklog::new(&cluster, "killed", &busy);
    // No false alarm, on whatever the API server serves, in the middle of all that moves.
    calm.audits_every("2s");
    calm.audits_read(250);
    calm.start();
    calm.ready().await;
    let stop = AtomicBool::new(false);
    let disturbed = async {
        tokio::join!(stops(&cluster, &mut paused), kills(&mut killed, seed));
        // As many audits as prove something, however long they take here.
        until("audits", LIMIT, async || {
            let audits = calm.said().matches("an audit is done").count();
            if audits >= AUDITS { Ok(()) } else { Err(format!("{audits}")) }
        })
        .await;
        stop.store(true, Ordering::Relaxed);
    };
    tokio::join!(load::run(&cluster, seed, &stop), disturbed);

    let upto = cluster.oracle().sync().await;
    let all = Scope { late: false, started, upto, namespaces: None, resources: None };
    let some = Scope { resources: Some(BUSY.iter().map(|name| (*name).to_owned()).collect()), ..all.clone() };
    for (daemon, scope) in [(&mut calm, &all), (&mut paused, &some), (&mut killed, &some)] {
        daemon.catch_up(&cluster, None, scope).await;
        daemon.stop().await;
        daemon.judged(&cluster, None, scope).await;
        let gaps: Vec<String> =
            daemon.entries().iter().filter(|entry| entry.gap.is_some()).map(ToString::to_string).collect();
        assert!(gaps.is_empty(), "the API server forgot nothing, and yet: {gaps:?}");
        no_secret_below(&daemon.state());
        no_secret_in(daemon.said().as_bytes(), "what the daemon said");
        no_secret_in(&std::fs::read(daemon.log()).unwrap(), "the log");
    }
    same_changes(&mut calm, &mut paused);
    same_changes(&mut calm, &mut killed);
    etcd_has_the_same(&cluster, &calm, started);
}

/// The lines that the documents give an auditor list etcd's revisions, and `verify` finds each of them in the log.
fn etcd_has_the_same(cluster: &Cluster, daemon: &Decklog, started: u64) {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/signed-log.md");
    let page = std::fs::read_to_string(page).unwrap();
    let lines = page.split("```sh\n").find(|block| block.starts_with("timeout 30 etcdctl")).unwrap();
    let lines = lines.split("decklog verify").next().unwrap();
    let dir = cluster.path("auditor");
    std::fs::create_dir(&dir).unwrap();
    let etcdctl = dir.join("etcdctl");
    let judges = judges().display();
    std::fs::write(&etcdctl, format!("#!/bin/sh\nexec {judges} etcdctl --endpoints={} \"$@\"\n", cluster.etcd()))
        .unwrap();
    std::fs::set_permissions(&etcdctl, Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", dir.display(), std::env::var("PATH").unwrap());
    let rows = cluster.oracle().rows();
    let expected = rows.iter().filter(|row| row.resource == "configmaps" && row.rev > started).count();
    let list = dir.join("revisions.txt");
    let mut revisions = 0;
    // On a busy machine it takes longer to begin.
    for timeout in ["timeout 2", "timeout 20"] {
        let script = lines.replace("timeout 30", timeout).replace("--rev 1042", &format!("--rev {}", started + 1));
        let listed = Command::new("sh").args(["-c", &script]).env("PATH", &path).current_dir(&dir).status().unwrap();
        assert!(listed.success(), "{script}");
        revisions = std::fs::read_to_string(&list).unwrap().lines().count();
        if revisions == expected {
            break;
        }
    }
    assert_eq!(revisions, expected, "etcd's own history");
    let (log, list) = (daemon.log(), list.display().to_string());
    let verify = daemon.command(&["verify", log.to_str().unwrap(), "--revisions", &list]);
    let said = String::from_utf8_lossy(&verify.stdout).into_owned() + &String::from_utf8_lossy(&verify.stderr);
    assert!(verify.status.success(), "{said}");
    let plain = said.replace(',', "");
    assert!(plain.contains(&format!("of {revisions} revisions that etcd has {revisions} in an entry")), "{said}");
}

/// Stopped and started while the cluster lives, and never a list but the first one of each resource.
async fn stops(cluster: &Cluster, daemon: &mut Decklog) {
    daemon.start();
    daemon.ready().await;
    let first = lists(cluster, "paused");
    let once = first.len() == BUSY.len() && first.values().all(|count| *count == 1);
    assert!(once, "each resource is listed once at the start: {first:?}");
    for _ in 0..STOPS {
        daemon.stop().await;
        let writes = cluster.oracle().len() + 60;
        until("writes that the stopped daemon misses", LIMIT, async || {
            let have = cluster.oracle().len();
            if have >= writes { Ok(()) } else { Err(format!("{have} of {writes}")) }
        })
        .await;
        daemon.start();
        daemon.ready().await;
        daemon.reach(daemon.lines() + 20).await;
    }
    assert_eq!(lists(cluster, "paused"), first, "a start inside the window lists nothing");
}

/// The lists that a daemon made, by path. Neither a further page of a list is one, nor a list of one object, which asks for a
/// version.
fn lists(cluster: &Cluster, user: &str) -> BTreeMap<String, usize> {
    let mut lists = BTreeMap::new();
    for event in cluster.audit(user).iter().filter(|event| event["verb"] == "list") {
        let uri = event["requestURI"].as_str().unwrap();
        let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
        let has = |pair: &str| query.split('&').any(|other| other == pair);
        let probe = has("limit=1") && !has("resourceVersionMatch=Exact");
        let dates = path.ends_with("/leases") && has("limit=20");
        if !probe && !dates && !query.contains("continue=") {
            *lists.entry(path.to_owned()).or_default() += 1;
        }
    }
    lists
}

/// Killed at moments that the dice choose: right after the start, in the middle of the first list, when it is ready,
/// in the middle of a line.
async fn kills(daemon: &mut Decklog, seed: u64) {
    let mut dice = Dice(seed);
    for _ in 0..KILLS {
        daemon.start();
        match dice.roll(4) {
            0 => {
                let state = daemon.state();
                until("a state directory", LIMIT, async || {
                    daemon.must_run();
                    if state.exists() { Ok(()) } else { Err("it does not exist".to_owned()) }
                })
                .await;
            }
            1 => daemon.reach(daemon.lines() + 1 + dice.roll(30)).await,
            2 => daemon.ready().await,
            _ => {
                daemon.ready().await;
                daemon.reach(daemon.lines() + 1 + dice.roll(60)).await;
            }
        }
        daemon.kill();
    }
    daemon.start();
    daemon.ready().await;
}

/// Two daemons that saw one change tell it with the same id and the same object.
fn same_changes(one: &mut Decklog, other: &mut Decklog) {
    let told: HashMap<&str, &str> = one
        .entries()
        .iter()
        .filter(|entry| entry.evidence == "watched" && entry.redacted.is_empty())
        .filter_map(|entry| Some((entry.id.as_str(), entry.object.as_ref()?.get())))
        .collect();
    let mut both = 0;
    for entry in other.entries() {
        if let (Some(object), Some(same)) = (&entry.object, told.get(entry.id.as_str())) {
            assert_eq!(object.get(), *same, "two daemons tell {} differently", entry.id);
            both += 1;
        }
    }
    assert!(both > 100, "only {both} changes were seen by both");
}

fn no_secret_below(dir: &Path) {
    for file in std::fs::read_dir(dir).unwrap() {
        let path = file.unwrap().path();
        if path.is_file() {
            no_secret_in(&std::fs::read(&path).unwrap(), &path.display().to_string());
        }
    }
}

fn no_secret_in(bytes: &[u8], what: &str) {
    for secret in [SECRET, &coded_secret()] {
        assert!(memchr::memmem::find(bytes, secret.as_bytes()).is_none(), "{what} holds a secret in clear");
    }
}
