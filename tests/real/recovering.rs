//! What watches have forgotten and etcd has not is told as a watch would have told it, and what etcd has forgotten as well
//! is the gap. Two API servers stand over one etcd: the one that decklog talks to is killed again and again, and through the
//! other one the cluster goes on living, under the eyes of a witness, a decklog that misses nothing.
//!
//! `DECKLOG_TEST_RECOVERIES` has more restarts than the few that there is time for; from ten on also a watch cache that
//! overflows, which takes a minute and a half by itself.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::decklog::Decklog;
use crate::extensions;
use crate::harness::{Cluster, LIMIT, Parts, Version, until};
use crate::judge::{Entry, Key, Scope};
use crate::load::Dice;

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

/// What an entry carries, but for what a journal gives it. Each has a key of its own for what is redacted.
fn content(entry: &Entry) -> (&str, &str, String, String, &[String]) {
    let text = |text: &str| {
        let mut parts = text.split("hmac:");
        let first = parts.next().unwrap_or_default().to_owned();
        parts.fold(first, |text, part| {
            text + "hmac:" + part.trim_start_matches(|letter: char| letter.is_ascii_hexdigit())
        })
    };
    let object = entry.object.as_ref().map(|object| text(object.get()));
    let patch = entry.change.as_ref().map(|change| text(&format!("{:?}", change.patch)));
    (&entry.id, &entry.kind, object.unwrap_or_default(), patch.unwrap_or_default(), &entry.redacted)
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

/// Objects of a few names, and of names that come once, in several resources.
struct Load {
    dice: Dice,
    alive: BTreeMap<(usize, usize), bool>,
    writes: usize,
}

impl Default for Load {
    fn default() -> Self {
        Self { dice: Dice(20_261_122), alive: BTreeMap::new(), writes: 0 }
    }
}

impl Load {
    async fn run(&mut self, cluster: &Cluster, stop: &AtomicBool, writes: &AtomicUsize) {
        // A pace that leaves the daemons their share of a small machine.
        let mut pace = tokio::time::interval(Duration::from_millis(100));
        while !stop.load(Ordering::Relaxed) {
            pace.tick().await;
            writes.fetch_add(self.step(cluster).await, Ordering::Relaxed);
        }
    }

    /// One turn of the cluster's life. How many writes it made.
    async fn step(&mut self, cluster: &Cluster) -> usize {
        self.writes += 1;
        let number = self.writes;
        let which = self.dice.roll(ALL.len());
        let (all, part) = ALL[which];
        let object = |name: &str| object(all, part, name, number);
        if self.dice.roll(10) == 0 {
            event(cluster, ["shop", "pay"][number % 2], &format!("event-{number}")).await;
            return 1;
        }
        if self.dice.roll(6) == 0 {
            // It comes and goes, at once or when nothing holds it any more.
            let name = format!("brief-{number}");
            let one = format!("{all}/{name}");
            if number.is_multiple_of(2) {
                cluster.create(all, &object(&name)).await;
                cluster.delete(&one).await;
                return 2;
            }
            let mut held = object(&name);
            held["metadata"]["finalizers"] = json!(["example.com/hold"]);
            cluster.create(all, &held).await;
            cluster.delete(&one).await;
            cluster.patch(&one, &json!({"metadata": {"finalizers": null}})).await;
            return 3;
        }
        let name = self.dice.roll(5);
        let again = self.dice.roll(4);
        let alive = self.alive.entry((which, name)).or_default();
        let name = format!("load-{name}");
        let one = format!("{all}/{name}");
        match (*alive, again) {
            (false, _) => drop(cluster.create(all, &object(&name)).await),
            (true, 0) => cluster.delete(&one).await,
            (true, 1) => {
                cluster.delete(&one).await;
                cluster.create(all, &object(&name)).await;
                return 2;
            }
            (true, _) => {
                let mut change = object(&name);
                change["metadata"] = json!({"annotations": {"writes": number.to_string()}});
                cluster.patch(&one, &change).await;
                return 1;
            }
        }
        *alive = !*alive;
        1
    }
}

/// An object of a resource, with something that tells it from others.
fn object(all: &str, part: &str, name: &str, number: usize) -> Value {
    let mut object = json!({"metadata": {"name": name, "annotations": {"writes": number.to_string()}}});
    match part {
        "data" | "stringData" => object[part] = json!({"writes": number.to_string()}),
        "spec" if all == WIDGETS => {
            object["apiVersion"] = json!("example.com/v1");
            object["kind"] = json!("Widget");
            object[part] = json!({"writes": number});
        }
        "spec" => object[part] = json!({"holderIdentity": number.to_string()}),
        _ => {}
    }
    object
}

async fn event(cluster: &Cluster, namespace: &str, name: &str) {
    let event = json!({
        "metadata": {"name": name}, "reason": "Test", "message": "it came", "type": "Normal",
        "involvedObject": {"kind": "ConfigMap", "namespace": namespace, "name": "any"},
    });
    cluster.create(&format!("/api/v1/namespaces/{namespace}/events"), &event).await;
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

/// Events of two namespaces that are written together hang on one lease, and etcd deletes them with one revision.
async fn events(cluster: &Cluster, round: usize) {
    for number in 0..6 {
        event(cluster, ["shop", "pay"][number % 2], &format!("short-{round}-{number}")).await;
    }
}

/// Waits until these events have expired.
async fn gone(cluster: &Cluster) {
    until("events to expire", LIMIT, async || {
        for namespace in ["shop", "pay"] {
            let events = cluster.get(&format!("/api/v1/namespaces/{namespace}/events")).await?;
            let left = events["items"].as_array().map_or(0, Vec::len);
            if left > 0 {
                return Err(format!("{left} are left in {namespace}"));
            }
        }
        Ok(())
    })
    .await;
}

/// Objects that come, change, go and come again, enter what is selected and leave it. `round` is in their names, and some
/// live on from round to round.
async fn live(cluster: &Cluster, round: usize) {
    let label = async |name: &str, tier: &str| {
        cluster.patch(&format!("{MAPS}/{name}"), &json!({"metadata": {"labels": {"tier": tier}}})).await;
    };
    let map = async |name: &str, tier: &str| {
        let labels = json!({"tier": tier});
        cluster.create(MAPS, &json!({"metadata": {"name": name, "labels": labels}, "data": {"a": "b"}})).await;
    };
    let touch = async |name: &str| {
        let data = json!({"data": {"at": cluster.oracle().revision().await.to_string()}});
        cluster.patch(&format!("{MAPS}/{name}"), &data).await;
    };
    let remove = async |name: &str| cluster.delete(&format!("{MAPS}/{name}")).await;
    let name = |what: &str| format!("{what}-{round}");
    if round == 1 {
        for what in ["leaves", "moves", "dies", "enters", "again", "hidden"] {
            map(what, if what == "enters" { "db" } else { "web" }).await;
        }
        pod(cluster, "runs").await;
        phase(cluster, "runs", "Running").await;
    } else {
        // Out, changed there, and in again; out and in again in one breath.
        label("moves", "db").await;
        touch("moves").await;
        label("moves", "web").await;
        label("moves", "db").await;
        label("moves", "web").await;
        touch("moves").await;
        // In, out, and in again.
        label("enters", "web").await;
        touch("enters").await;
        label("enters", "db").await;
        touch("enters").await;
        // Gone while it was out; and another one of its name comes there.
        label("dies", "db").await;
        touch("dies").await;
        remove("dies").await;
        map("dies", "db").await;
        touch("dies").await;
        label("dies", "web").await;
        // Another incarnation at once.
        remove("again").await;
        map("again", "web").await;
        // It leaves and stays away until the next round, when it comes back.
        label("leaves", if round.is_multiple_of(2) { "db" } else { "web" }).await;
        touch("leaves").await;
        // It is made anew behind the scenes.
        label("hidden", "db").await;
        remove("hidden").await;
        map("hidden", "web").await;
        phase(cluster, "runs", "Pending").await;
        phase(cluster, "runs", "Running").await;
    }
    // Whole lives.
    map(&name("brief"), "web").await;
    touch(&name("brief")).await;
    remove(&name("brief")).await;
    map(&name("visits"), "db").await;
    label(&name("visits"), "web").await;
    label(&name("visits"), "db").await;
    map(&name("stays"), "web").await;
    pod(cluster, &name("pod")).await;
    phase(cluster, &name("pod"), "Running").await;
    cluster.delete(&format!("{PODS}/{}?gracePeriodSeconds=0", name("pod"))).await;
    pod(cluster, &name("failing")).await;
    phase(cluster, &name("failing"), "Running").await;
    phase(cluster, &name("failing"), "Failed").await;
    for (all, part) in [(SECRETS, "stringData"), (WIDGETS, "spec")] {
        for what in ["brief", "stays"] {
            cluster.create(all, &object(all, part, &name(what), round)).await;
        }
        cluster.delete(&format!("{all}/{}", name("brief"))).await;
        let mut held = object(all, part, &name("held"), round);
        held["metadata"]["finalizers"] = json!(["example.com/hold"]);
        let one = format!("{all}/{}", name("held"));
        cluster.create(all, &held).await;
        cluster.delete(&one).await;
        cluster.patch(&one, &json!({"metadata": {"finalizers": null}})).await;
    }
}

async fn pod(cluster: &Cluster, name: &str) {
    let spec = json!({"automountServiceAccountToken": false, "containers": [{"name": "web", "image": "web:1"}]});
    cluster.create(PODS, &json!({"metadata": {"name": name}, "spec": spec})).await;
}

async fn phase(cluster: &Cluster, name: &str, phase: &str) {
    cluster.patch(&format!("{PODS}/{name}/status"), &json!({"status": {"phase": phase}})).await;
}

/// Writes until no watch can begin where things are now: the watch cache has room for a hundred changes, and grows while
/// what is in it is younger than 75 seconds.
async fn overflow(cluster: &Cluster) {
    let from = cluster.oracle().revision().await;
    cluster.create(SECRETS, &json!({"metadata": {"name": "busy"}})).await;
    let mut writes = 0;
    let begun = Instant::now();
    until("a watch cache to forget", LIMIT, async || {
        // A burst that fills it, and what drives that out when it is old.
        if writes < 90 || begun.elapsed() > Duration::from_secs(76) {
            writes += 1;
            cluster.patch(&format!("{SECRETS}/busy"), &json!({"stringData": {"n": writes.to_string()}})).await;
        }
        if writes < 100 {
            return Err(format!("{writes} writes"));
        }
        let watch = format!("/api/v1/secrets?watch=true&timeoutSeconds=1&resourceVersion={from}");
        let answer = cluster.text(&watch).await;
        if answer.contains("too old resource version") { Ok(()) } else { Err(format!("{writes} writes")) }
    })
    .await;
}

/// Each GAP: its number, its source, from and to.
fn gaps(daemon: &mut Decklog) -> Vec<(u64, String, u64, u64)> {
    let number = |text: &Option<String>| text.as_deref().and_then(|text| text.parse().ok()).unwrap_or(0);
    let gaps = daemon.entries().iter().filter_map(|entry| {
        let gap = entry.gap.as_ref()?;
        Some((entry.seq, source(entry), number(&gap.from), number(&gap.to)))
    });
    gaps.collect()
}

/// The source of an entry: of the resources that are read here, one is read in each namespace by itself.
fn source(entry: &Entry) -> String {
    match entry.resource.as_str() {
        "events" => format!("events {}", entry.namespace),
        _ => entry.full_resource(),
    }
}

/// Up to where nothing is missing of a source for certain: more may have been deleted with the newest version that is told.
fn complete(log: &[Entry], of: &str) -> u64 {
    let mut told: Vec<u64> = log.iter().filter(|entry| source(entry) == of).map(Entry::rv).collect();
    told.sort_unstable();
    told.dedup();
    told.iter().rev().nth(1).copied().unwrap_or(0)
}

/// Waits until a daemon has told what the witness has.
async fn same(daemon: &mut Decklog, witness: &mut Decklog) {
    until("a log that is that of the witness", Duration::from_secs(60), async || {
        daemon.must_run();
        witness.must_run();
        assert!(witness.entries().iter().all(|entry| entry.is_seen() || entry.evidence == "listed"), "a witness");
        differ(daemon.entries(), witness.entries())
    })
    .await;
}

/// What exists, as a log has told it.
type Told = BTreeMap<Key, (String, u64)>;

fn take(told: &mut Told, entry: &Entry) {
    match entry.kind.as_str() {
        "DELETED" => drop(told.remove(&entry.key())),
        _ => drop(told.insert(entry.key(), (entry.uid.clone(), entry.rv()))),
    }
}

/// Where a log is not that of the witness. What a gap covers has to come to the same.
fn differ(log: &[Entry], witness: &[Entry]) -> Result<(), String> {
    let of = |log: &[Entry]| {
        let mut sources: BTreeMap<String, Vec<Entry>> = BTreeMap::new();
        for entry in log {
            sources.entry(source(entry)).or_default().push(entry.clone());
        }
        sources
    };
    let (mine, mut theirs) = (of(log), of(witness));
    if let Some(source) = theirs.keys().find(|source| !mine.contains_key(*source)) {
        return Err(format!("nothing of {source}"));
    }
    for (name, entries) in mine {
        let mut theirs = theirs.remove(&name).unwrap_or_default();
        // What happened with one revision has no order.
        theirs.sort_by_key(|entry| (entry.rv(), entry.key()));
        let (mut entries, mut theirs) = (in_order(entries).into_iter().peekable(), theirs.into_iter().peekable());
        let (mut told, mut truth) = (Told::new(), Told::new());
        while let Some(entry) = entries.next() {
            if let Some(gap) = &entry.gap {
                let to = gap.to.as_deref().and_then(|to| to.parse::<u64>().ok()).unwrap_or(0);
                while let Some(inferred) = entries.next_if(|entry| entry.evidence == "inferred") {
                    take(&mut told, &inferred);
                }
                while let Some(covered) = theirs.next_if(|entry| entry.rv() <= to) {
                    take(&mut truth, &covered);
                }
                if told != truth {
                    return Err(format!("{name}: after {entry} there is {told:?}, and should be {truth:?}"));
                }
                continue;
            }
            let Some(same) = theirs.next() else { return Err(format!("{name}: the witness has no {entry}")) };
            if content(&entry) != content(&same) {
                return Err(format!("{name}: the witness has {same} and not {entry}\n{same:?}\n{entry:?}"));
            }
            take(&mut told, &entry);
            take(&mut truth, &same);
        }
        if let Some(missing) = theirs.next() {
            return Err(format!("{name}: missing is {missing}"));
        }
    }
    Ok(())
}

/// The entries of a source, where those of one revision that follow each other are in the order of their names, and so are
/// those of a list.
fn in_order(mut entries: Vec<Entry>) -> Vec<Entry> {
    let listed = entries.partition_point(|entry| entry.evidence == "listed");
    entries[..listed].sort_by_key(|entry| (entry.rv(), entry.key()));
    for together in
        entries[listed..].chunk_by_mut(|one, other| one.is_seen() && other.is_seen() && one.rv() == other.rv())
    {
        together.sort_by_key(Entry::key);
    }
    entries
}
