//! Life in the cluster while decklog does not see it: a load, objects that enter and leave what is selected, events that expire.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{ALL, MAPS, PODS, SECRETS, WIDGETS};
use crate::harness::{Cluster, LIMIT, until};
use crate::load::Dice;

/// Objects of a few names, and of names that come once, in several resources.
pub(super) struct Load {
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
    pub(super) async fn run(&mut self, cluster: &Cluster, stop: &AtomicBool, writes: &AtomicUsize) {
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

/// Events of two namespaces that are written together hang on one lease, and etcd deletes them with one revision.
pub(super) async fn events(cluster: &Cluster, round: usize) {
    for number in 0..6 {
        event(cluster, ["shop", "pay"][number % 2], &format!("short-{round}-{number}")).await;
    }
}

/// Waits until these events have expired.
pub(super) async fn gone(cluster: &Cluster) {
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
pub(super) async fn live(cluster: &Cluster, round: usize) {
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
pub(super) async fn overflow(cluster: &Cluster) {
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
