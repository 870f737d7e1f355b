//! What watches have forgotten and etcd has not is told as a watch would have told it, and what etcd has forgotten as well
//! is the gap. Two API servers stand over one etcd: the one that decklog talks to is killed again and again, and through the
//! other one the cluster goes on living, under the eyes of a witness, a decklog that misses nothing.
//!
//! `DECKLOG_TEST_RECOVERIES` has more restarts than the few that there is time for; from ten on also a watch cache that
//! overflows, which takes a minute and a half by itself.

mod life;
mod witness;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::decklog::Decklog;
use crate::extensions;
use crate::harness::{Cluster, LIMIT, Parts, Version, until};
use crate::judge::{Entry, Scope};
use life::{Load, events, gone, live, overflow};
use witness::{complete, content, gaps, same};

const MAPS: &str = "/api/v1/namespaces/shop/configmaps";
const SECRETS: &str = "/api/v1/namespaces/shop/secrets";
const PODS: &str = "/api/v1/namespaces/shop/pods";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/shop/widgets";
/// Where the load writes, and into what.
const ALL: [(&str, &str); 6] = [
    (MAPS, "data"),
    ("/api/v1/namespaces/pay/configmaps", "data"),
    (SECRETS, "stringData"),
    ("/api/v1/namespaces/shop/serviceaccounts", "metadata"),
    ("/apis/coordination.k8s.io/v1/namespaces/shop/leases", "spec"),
    (WIDGETS, "spec"),
];
/// What the daemon reads that reads little: most revisions are of something else.
const FEW: [&str; 2] = ["configmaps", "widgets.example.com"];
/// Writes while the API server is away, at least.
const WRITES: usize = 40;

fn wanted() -> usize {
    std::env::var("DECKLOG_TEST_RECOVERIES").ok().and_then(|text| text.parse().ok()).unwrap_or(3)
}

async fn begin(version: Version, users: &[&str], arguments: &[&str]) -> Cluster {
    let cluster = Cluster::start_with(version, Parts::Bare, arguments).await;
    for name in ["shop", "pay"] {
        cluster.create("/api/v1/namespaces", &json!({"metadata": {"name": name}})).await;
    }
    extensions::define(&cluster, "widgets", "Namespaced").await;
    cluster.start_second(users).await;
    cluster
}

/// The API server is killed and started again under load, for a daemon that reads everything and for one that reads little.
pub async fn restarts(version: Version) {
    let cluster = begin(version, &["killed", "paused"], &[]).await;
    let started = cluster.oracle().sync().await;
    let mut witness = Decklog::new(&cluster, "calm", "resources = [\"*\"]");
    let mut all = Decklog::new(&cluster, "killed", "resources = [\"*\"]");
    let mut few = Decklog::new(&cluster, "paused", &format!("resources = {FEW:?}"));
    for daemon in [&mut witness, &mut all, &mut few] {
        daemon.has_metrics();
        daemon.start();
    }
    for daemon in [&mut witness, &mut all, &mut few] {
        daemon.ready().await;
    }
    let mut load = Load::default();
    for round in 0..wanted() {
        let before = [Before::of(&cluster, "killed", &mut all), Before::of(&cluster, "paused", &mut few)];
        cluster.kill_second();
        let stop = AtomicBool::new(false);
        let writes = AtomicUsize::new(0);
        let ((), back) = tokio::join!(load.run(&cluster, &stop, &writes), async {
            until("writes that are missed", LIMIT, async || {
                let have = writes.load(Ordering::Relaxed);
                if have >= WRITES { Ok(()) } else { Err(format!("{have} of {WRITES}")) }
            })
            .await;
            cluster.start_second_again().await;
            stop.store(true, Ordering::Relaxed);
            Back { ready: Instant::now(), time: cluster.second_time() }
        });
        let name = format!("marker-{round}");
        cluster.create(MAPS, &json!({"metadata": {"name": name}})).await;
        let figures = [
            back.watching(&cluster, &mut few, &before[1], &name).await,
            back.watching(&cluster, &mut all, &before[0], &name).await,
        ];
        for figure in figures {
            eprintln!("restart {round}: {figure}");
        }
    }
    let upto = cluster.oracle().sync().await;
    let everything = Scope { late: false, started, upto, namespaces: None, resources: None };
    let some = Scope { resources: Some(FEW.iter().map(|name| (*name).to_owned()).collect()), ..everything.clone() };
    for (daemon, scope) in [(&mut witness, &everything), (&mut all, &everything), (&mut few, &some)] {
        daemon.catch_up(&cluster, None, scope).await;
        daemon.stop().await;
        daemon.judged(&cluster, None, scope).await;
        let gaps: Vec<&Entry> = daemon.entries().iter().filter(|entry| entry.gap.is_some()).collect();
        assert!(gaps.is_empty(), "nothing was compacted: {gaps:?}");
    }
    let seen: BTreeMap<&str, &Entry> =
        witness.entries().iter().filter(|entry| entry.is_seen()).map(|entry| (entry.id.as_str(), entry)).collect();
    for daemon in [&mut all, &mut few] {
        let told: Vec<&Entry> = daemon.entries().iter().filter(|entry| entry.evidence == "recovered").collect();
        assert!(told.len() > wanted() * 10, "only {} changes were recovered", told.len());
        for entry in told {
            let same = seen.get(entry.id.as_str()).unwrap_or_else(|| panic!("no watch has told {entry}"));
            assert_eq!(content(entry), content(same), "the watch told it differently");
        }
    }
}

/// A daemon before its API server goes.
struct Before {
    user: &'static str,
    sources: BTreeMap<String, (u64, String)>,
    questions: usize,
    recovered: usize,
}

impl Before {
    fn of(cluster: &Cluster, user: &'static str, daemon: &mut Decklog) -> Self {
        let (sources, questions) = (daemon.sources(), questions(cluster, user));
        Self { user, sources, questions, recovered: recovered(daemon) }
    }
}

/// An API server that is back: since when, and the processor time that it took to get there.
struct Back {
    ready: Instant,
    time: Duration,
}

impl Back {
    /// Waits until every source watches, and what was made after the restart is told.
    async fn watching(&self, cluster: &Cluster, daemon: &mut Decklog, before: &Before, marker: &str) -> String {
        daemon.tells(marker, |entry| entry.name == marker).await;
        until(&format!("every source of {} to watch again", before.user), LIMIT, async || {
            daemon.must_run();
            let sources = daemon.sources();
            let watches = |(name, (opened, state)): (&String, &(u64, String))| {
                state == "watching" && before.sources.get(name).is_none_or(|(then, _)| opened > then)
            };
            let away: Vec<_> = sources.iter().filter(|source| !watches(*source)).collect();
            if away.is_empty() { Ok(()) } else { Err(format!("{} of {}: {away:?}", away.len(), sources.len())) }
        })
        .await;
        let (took, time) = (self.ready.elapsed(), cluster.second_time() - self.time);
        format!(
            "{} sources of {} watch again after {took:?}; {} changes recovered with {} questions; {time:?} of the API server",
            before.sources.len(),
            before.user,
            recovered(daemon) - before.recovered,
            questions(cluster, before.user) - before.questions,
        )
    }
}

fn recovered(daemon: &mut Decklog) -> usize {
    daemon.entries().iter().filter(|entry| entry.evidence == "recovered").count()
}

/// What a daemon has asked to recover: exact lists, and the newest version.
fn questions(cluster: &Cluster, user: &str) -> usize {
    let events = cluster.audit(user);
    let uris = events.iter().filter_map(|event| event["requestURI"].as_str());
    uris.filter(|uri| uri.contains("resourceVersionMatch=Exact") || uri.ends_with("?&limit=1")).count()
}

/// What the daemons of the second scenario read: selections that objects enter and leave, a source for each namespace, and
/// all of two resources.
const SELECTED: &str = r#"resources = ["configmaps"]
label_selector = "tier=web"
[[watch]]
resources = ["pods"]
field_selector = "status.phase=Running"
[[watch]]
resources = ["events"]
namespaces = ["shop", "pay"]
[[watch]]
resources = ["secrets", "widgets.example.com"]"#;
/// How many sources that makes.
const SOURCES: usize = 6;

/// decklog is stopped, its API server is away, etcd is compacted, a right is taken back: told is what the witness has seen.
pub async fn stops(version: Version) {
    let cluster = begin(version, &["killed", "restricted"], &[]).await;
    let role = ["create", "clusterrole", "reader", "--verb=get,list,watch", "--resource=namespaces,configmaps"];
    cluster.kubectl_must(&role).await;
    bind(&cluster).await;
    let started = cluster.oracle().sync().await;
    let mut witness = Decklog::new(&cluster, "calm", SELECTED);
    let mut daemon = Decklog::new(&cluster, "killed", SELECTED);
    let mut restricted = Decklog::new(&cluster, "restricted", "resources = [\"configmaps\"]");
    for daemon in [&mut witness, &mut daemon, &mut restricted] {
        daemon.has_metrics();
        daemon.start();
    }
    for daemon in [&mut witness, &mut daemon, &mut restricted] {
        daemon.ready().await;
    }
    live(&cluster, 1).await;
    same(&mut daemon, &mut witness).await;

    // It is stopped, and the API server forgets; and who may not read any more stays, and waits.
    daemon.stop().await;
    events(&cluster, 2).await;
    live(&cluster, 2).await;
    cluster.kubectl_must(&["delete", "clusterrolebinding", "reader"]).await;
    cluster.kill_second();
    gone(&cluster).await;
    cluster.start_second_again().await;
    daemon.start();
    same(&mut daemon, &mut witness).await;
    assert_eq!(gaps(&mut daemon).len(), 0, "nothing was compacted: {:?}", gaps(&mut daemon));
    until("a source to be degraded", LIMIT, async || {
        restricted.must_run();
        let sources = restricted.sources();
        if sources.values().all(|(_, state)| state == "degraded") { Ok(()) } else { Err(format!("{sources:?}")) }
    })
    .await;
    bind(&cluster).await;
    live(&cluster, 3).await;
    let resources = Some(["configmaps".to_owned()].into());
    let scope = Scope { late: false, started, upto: cluster.oracle().sync().await, namespaces: None, resources };
    restricted.catch_up(&cluster, None, &scope).await;
    restricted.stop().await;
    restricted.judged(&cluster, None, &scope).await;
    assert_eq!(gaps(&mut restricted).len(), 0, "it may read again what it missed: {:?}", gaps(&mut restricted));

    if wanted() >= 10 {
        // The API server stays, and its watch cache is too small.
        daemon.stop().await;
        let lost = |daemon: &Decklog| daemon.said().matches("changes may be missing").count();
        let before = lost(&daemon);
        overflow(&cluster).await;
        daemon.start();
        same(&mut daemon, &mut witness).await;
        until("the daemon to say that a position was lost", LIMIT, async || {
            if lost(&daemon) > before { Ok(()) } else { Err(daemon.last_words()) }
        })
        .await;
        assert_eq!(gaps(&mut daemon).len(), 0, "nothing was compacted: {:?}", gaps(&mut daemon));
    }

    // The API server is away under the running daemon.
    events(&cluster, 4).await;
    cluster.kill_second();
    live(&cluster, 4).await;
    cluster.start_second_again().await;
    same(&mut daemon, &mut witness).await;
    assert_eq!(gaps(&mut daemon).len(), 0, "nothing was compacted: {:?}", gaps(&mut daemon));

    // etcd forgets a part of it.
    daemon.stop().await;
    let stopped = cluster.oracle().sync().await;
    let told = daemon.lines();
    live(&cluster, 5).await;
    let compacted = cluster.oracle().compact().await;
    live(&cluster, 6).await;
    gone(&cluster).await;
    cluster.kill_second();
    cluster.start_second_again().await;
    daemon.start();
    same(&mut daemon, &mut witness).await;
    let gaps = gaps(&mut daemon);
    assert_eq!(gaps.len(), SOURCES, "one for each source: {gaps:?}");
    for (seq, source, from, to) in gaps {
        let last = complete(&daemon.entries()[..told], &source);
        assert!(last <= from && from <= stopped, "{source} had everything between {last} and {stopped}: {from}");
        assert_eq!(to, compacted, "the oldest revision of {source} that could be had: {seq}");
    }
    let what = daemon.entries()[told..].iter().filter(|entry| entry.evidence == "recovered").count();
    eprintln!("{what} changes recovered behind the gaps");
    assert!(what > 10, "only {what} changes were recovered");
    for daemon in [&mut witness, &mut daemon] {
        daemon.stop().await;
        let verify = daemon.command(&["verify"]);
        assert!(verify.status.success(), "{}", String::from_utf8_lossy(&verify.stderr));
    }
}

async fn bind(cluster: &Cluster) {
    let binding = ["create", "clusterrolebinding", "reader", "--clusterrole=reader", "--user=restricted"];
    cluster.kubectl_must(&binding).await;
}
