//! A server that forgets: compaction while the daemon is down, restarts of the API server, and an etcd that is put back
//! from a copy.

use std::fs;
use std::path::Path;

use serde_json::json;

use crate::decklog::Decklog;
use crate::harness::{Cluster, LIMIT, Parts, Version, until};
use crate::judge::{Entry, Scope};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// (d) and (e) of the proof, and the restore of etcd.
pub async fn scenario(version: Version) {
    let mut cluster = Cluster::start(version, Parts::Bare).await;
    let resources = ["configmaps", "secrets", "namespaces", "services", "leases.coordination.k8s.io"];
    let started = cluster.oracle().sync().await;
    let scope = |upto| Scope {
        late: false,
        started,
        upto,
        namespaces: None,
        resources: Some(resources.iter().map(|name| (*name).to_owned()).collect()),
    };
    let mut daemon = Decklog::new(&cluster, "calm", &format!("resources = {resources:?}"));
    for name in ["kept", "changed", "gone", "again"] {
        create(&cluster, name).await;
    }
    daemon.start();
    daemon.ready().await;
    touch(&cluster, "kept").await;
    daemon.catch_up(&cluster, None, &scope(cluster.oracle().sync().await)).await;

    // Compaction while it is down.
    daemon.stop().await;
    let before = daemon.entries().len();
    touch(&cluster, "changed").await;
    touch(&cluster, "changed").await;
    delete(&cluster, "gone").await;
    delete(&cluster, "again").await;
    create(&cluster, "again").await;
    create(&cluster, "brief").await;
    delete(&cluster, "brief").await;
    create(&cluster, "new").await;
    let compacted = cluster.oracle().compact().await;
    cluster.restart_api(true).await;
    daemon.start();
    // It resumes first, and is told then that it cannot.
    daemon.tells("that it missed something", |entry| gap(entry) == Some("expired")).await;
    touch(&cluster, "new").await;
    daemon.catch_up(&cluster, None, &scope(cluster.oracle().sync().await)).await;
    let told: Vec<String> = daemon.entries()[before..]
        .iter()
        .filter(|entry| entry.resource == "configmaps")
        .map(|entry| match &entry.gap {
            Some(gap) => format!("GAP {}", gap.why),
            None => format!("{} {} {}", entry.evidence, entry.kind, entry.name),
        })
        .collect();
    assert_eq!(told.first().map(String::as_str), Some("GAP expired"), "{told:?}");
    // What came after it is seen: on the watch, or in etcd's history where the watch was not there yet.
    let last = told.last().and_then(|line| line.split_once(' ')).unwrap_or_default();
    assert!(["watched", "recovered"].contains(&last.0) && last.1 == "MODIFIED new", "{told:?}");
    let mut inferred = told[1..told.len() - 1].to_vec();
    let place = |what: &str| inferred.iter().position(|line| line == what);
    assert!(place("inferred DELETED again") < place("inferred ADDED again"), "{told:?}");
    inferred.sort_unstable();
    assert_eq!(
        inferred,
        [
            "inferred ADDED again",
            "inferred ADDED new",
            "inferred DELETED again",
            "inferred DELETED gone",
            "inferred MODIFIED changed",
        ]
    );

    let gaps: Vec<_> = daemon.entries().iter().filter_map(|entry| entry.gap.clone()).collect();
    let exact = gaps.iter().all(|gap| gap.why == "expired" && gap.to == Some(compacted.to_string()));
    assert!(exact && !gaps.is_empty(), "what is compacted is the gap, up to {compacted}: {gaps:?}");

    // Restarts of the API server, clean and not: what its watches have forgotten is recovered.
    for crash in [false, true, false] {
        touch(&cluster, "kept").await;
        cluster.restart_api(crash).await;
        touch(&cluster, "kept").await;
        delete(&cluster, "new").await;
        create(&cluster, "new").await;
        daemon.catch_up(&cluster, None, &scope(cluster.oracle().sync().await)).await;
    }
    daemon.stop().await;
    daemon.judged(&cluster, None, &scope(cluster.oracle().sync().await)).await;
    let told = daemon.entries().iter().filter(|entry| entry.gap.is_some()).count();
    assert_eq!(told, gaps.len(), "a restart makes no gap");

    // An etcd that is put back: what was told after the copy never happened, and other things did.
    let copy = cluster.path("etcd-copy");
    cluster.with_etcd_stopped(|data| copy_dir(data, &copy)).await;
    let recovered = |daemon: &Decklog| daemon.said().matches("this source has recovered").count();
    let before = recovered(&daemon);
    // Far enough that the restored server does not get there before the daemon has asked it: that could not be seen.
    for _ in 0..300 {
        touch(&cluster, "changed").await;
    }
    daemon.start();
    daemon.ready().await;
    create(&cluster, "lost").await;
    create(&cluster, "twice").await;
    delete(&cluster, "kept").await;
    for _ in 0..20 {
        touch(&cluster, "changed").await;
    }
    daemon.catch_up(&cluster, None, &scope(cluster.oracle().sync().await)).await;
    until("each source to have recovered what it missed", LIMIT, async || {
        let have = recovered(&daemon) - before;
        if have == resources.len() { Ok(()) } else { Err(format!("{have} have")) }
    })
    .await;
    daemon.stop().await;
    let history = cluster.oracle().rows();
    cluster
        .with_etcd_stopped(|data| {
            fs::remove_dir_all(data).unwrap();
            fs::rename(&copy, data).unwrap();
        })
        .await;
    create(&cluster, "twice").await;
    touch(&cluster, "changed").await;
    // Each of them has read further than the server is now, whether there was anything to tell or not: it had lost its
    // position after the 300 writes, and found it again.
    daemon.start();
    for resource in resources {
        let resource = resource.split('.').next().unwrap();
        let restore =
            |entry: &Entry| entry.resource == resource && entry.gap.as_ref().is_some_and(|gap| gap.why == "rollback");
        daemon.tells(&format!("that {resource} went back"), restore).await;
    }
    touch(&cluster, "kept").await;
    let scope = scope(cluster.oracle().sync().await);
    daemon.catch_up(&cluster, Some(&history), &scope).await;
    daemon.stop().await;
    daemon.judged(&cluster, Some(&history), &scope).await;
}

/// Why changes of ConfigMaps may be missing.
fn gap(entry: &Entry) -> Option<&str> {
    entry.gap.as_ref().filter(|_| entry.resource == "configmaps").map(|gap| gap.why.as_str())
}

async fn create(cluster: &Cluster, name: &str) {
    cluster.create(MAPS, &json!({"metadata": {"name": name}, "data": {"writes": "0"}})).await;
}

/// Writes something new into an object.
async fn touch(cluster: &Cluster, name: &str) {
    let revision = cluster.oracle().revision().await;
    cluster.patch(&format!("{MAPS}/{name}"), &json!({"data": {"writes": revision.to_string()}})).await;
}

async fn delete(cluster: &Cluster, name: &str) {
    cluster.delete(&format!("{MAPS}/{name}")).await;
}

fn copy_dir(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for file in fs::read_dir(from).unwrap() {
        let path = file.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy_dir(&path, &target);
        } else {
            fs::copy(&path, &target).unwrap();
        }
    }
}
