//! A control plane that goes through a lot: frozen, without its etcd, with new certificates, and with twenty thousand
//! objects less when decklog comes back.

use std::fs;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::decklog::Decklog;
use crate::harness::{Cluster, LIMIT, Parts, Version, until};
use crate::judge::Scope;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// How many objects go at once.
const MANY: usize = 20_000;
/// What decklog may take at most to list them; they have about 45 MB, and it takes 34 MiB.
const MEMORY: u64 = 48 << 20;
/// What it may take at most to find that they are gone, and to ask about the past; it takes 72 MiB.
const FOUND: u64 = 88 << 20;

/// See the module.
pub async fn scenario(version: Version) {
    let mut cluster = Cluster::start(version, Parts::Bare).await;
    let started = cluster.oracle().sync().await;
    let resources = ["configmaps", "secrets", "services", "namespaces"];
    let scope = |upto| Scope {
        late: false,
        started,
        upto,
        namespaces: None,
        resources: Some(resources.iter().map(|name| (*name).to_owned()).collect()),
    };
    put_many(&cluster).await;
    let mut daemon = Decklog::new(&cluster, "calm", &format!("resources = {resources:?}"));
    // A file of its own with the authority, so that it is replaced when the test says so.
    let (authority, own) = (cluster.path("certs/apiserver.crt"), cluster.path("calm-authority.crt"));
    fs::copy(&authority, &own).unwrap();
    let kubeconfig = fs::read_to_string(cluster.kubeconfig("calm")).unwrap();
    let kubeconfig = kubeconfig.replace(authority.to_str().unwrap(), own.to_str().unwrap());
    fs::write(cluster.kubeconfig("calm"), kubeconfig).unwrap();
    daemon.start();
    daemon.ready().await;
    create(&cluster, "first").await;
    daemon.catch_up(&cluster, None, &scope(cluster.oracle().sync().await)).await;
    let listed = daemon.anonymous_memory();
    assert!(listed < MEMORY, "{} MiB to list {MANY} objects", listed >> 20);
    let (before, lists) = (daemon.entries().len(), daemon.lists(&cluster));

    // Frozen for a minute: it answers nothing and closes nothing.
    cluster.signal_api(Signal::STOP);
    let frozen = Instant::now();
    until("a minute to pass", LIMIT, async || {
        daemon.must_run();
        if frozen.elapsed() > Duration::from_secs(60) { Ok(()) } else { Err(format!("{:?}", frozen.elapsed())) }
    })
    .await;
    cluster.signal_api(Signal::CONT);
    cluster.ready().await;
    create(&cluster, "thawed").await;
    daemon.catch_up(&cluster, None, &scope(cluster.oracle().sync().await)).await;
    assert!(!daemon.said().contains("has made no progress"), "systemd would have ended it");

    // Its etcd is killed and comes back, under it.
    create(&cluster, "durable").await;
    cluster.kill_etcd().await;
    cluster.ready().await;
    until("a write that succeeds", LIMIT, async || {
        let object = json!({"metadata": {"name": "after-etcd"}});
        let (status, answer) = cluster.call("POST", MAPS, Some(&object)).await;
        if [201, 409].contains(&status) { Ok(()) } else { Err(format!("{status} {}", answer["message"])) }
    })
    .await;
    daemon.catch_up(&cluster, None, &scope(cluster.oracle().sync().await)).await;

    assert!(daemon.entries()[before..].iter().all(|entry| entry.gap.is_none()), "nothing of this makes a gap");
    assert_eq!(daemon.lists(&cluster), lists, "nothing of this makes a list");

    // New certificates of a new authority: refused until the file that names the authority is replaced, and then at once.
    // An API server that was started again does not remember what it had told, but etcd does.
    cluster.replace_certificates().await;
    create(&cluster, "under-new-certificates").await;
    until("it to refuse the new authority", LIMIT, async || {
        daemon.must_run();
        let refused = daemon.said().contains("is not signed by the authority in the kubeconfig");
        if refused { Ok(()) } else { Err(daemon.last_words()) }
    })
    .await;
    assert!(!daemon.entries().iter().any(|entry| entry.name == "under-new-certificates"), "it went on without proof");
    fs::copy(&authority, &own).unwrap();
    daemon.catch_up(&cluster, None, &scope(cluster.oracle().sync().await)).await;

    // Twenty thousand objects go while it is down, and the history of that with them.
    daemon.stop().await;
    assert!(daemon.entries().iter().all(|entry| entry.gap.is_none()), "nothing was compacted");
    let before = daemon.entries().len();
    delete_many(&cluster).await;
    create(&cluster, "last").await;
    cluster.oracle().compact().await;
    cluster.restart_api(true).await;
    daemon.start();
    until("it to tell that it missed something", LIMIT, async || {
        daemon.must_run();
        let told = daemon.entries().iter().any(|entry| entry.gap.is_some());
        if told { Ok(()) } else { Err(daemon.last_words()) }
    })
    .await;
    let done = scope(cluster.oracle().sync().await);
    daemon.catch_up(&cluster, None, &done).await;
    let found = daemon.anonymous_memory();
    daemon.stop().await;
    daemon.judged(&cluster, None, &done).await;
    let deleted = daemon.entries()[before..]
        .iter()
        .filter(|entry| entry.kind == "DELETED" && entry.evidence == "inferred" && entry.name.starts_with("many-"));
    assert_eq!(deleted.count(), MANY, "each deletion is found");
    assert!(found < FOUND, "{} MiB to find {MANY} deletions, {} to list them", found >> 20, listed >> 20);
}

async fn create(cluster: &Cluster, name: &str) {
    cluster.create(MAPS, &json!({"metadata": {"name": name}, "data": {"a": "b"}})).await;
}

fn place(name: &str) -> String {
    format!("/registry/configmaps/default/{name}")
}

/// Puts them where the API server keeps them, many to a transaction: through it this would take minutes.
async fn put_many(cluster: &Cluster) {
    let filler = "x".repeat(2000);
    let puts: Vec<(String, String)> = (0..MANY)
        .map(|number| {
            let name = format!("many-{number:05}");
            let object: Value = json!({
                "kind": "ConfigMap", "apiVersion": "v1",
                "metadata": {
                    "name": name, "namespace": "default", "creationTimestamp": "2026-11-21T00:00:00Z",
                    "uid": format!("00000000-0000-4000-8000-{number:012}"),
                },
                "data": {"filler": filler},
            });
            (place(&name), object.to_string())
        })
        .collect();
    for part in puts.chunks(100) {
        cluster.oracle().put(part).await;
    }
    cluster.oracle().sync().await;
}

async fn delete_many(cluster: &Cluster) {
    // "-" is followed by "." in the order of bytes: all that begins with "many-".
    cluster.oracle().delete_range(&place("many-"), &place("many.")).await;
}
