//! Life in the cluster that goes on whatever is killed: who writes does not mind an answer that never comes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use kube::client::Body;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::harness::{Cluster, client_of};
use crate::load::Dice;

/// Where it writes, into what, and the API version and the name of the resource.
pub(super) const ALL: [(&str, &str, &str); 6] = [
    ("/api/v1/namespaces/shop/configmaps", "data", "v1/configmaps"),
    ("/api/v1/namespaces/shop/secrets", "stringData", "v1/secrets"),
    ("/api/v1/namespaces/shop/serviceaccounts", "metadata", "v1/serviceaccounts"),
    ("/apis/coordination.k8s.io/v1/namespaces/shop/leases", "spec", "v1/leases.coordination.k8s.io"),
    ("/apis/example.com/v1/namespaces/shop/widgets", "widget", "v1/widgets.example.com"),
    ("/api/v1/namespaces/shop/events", "event", "v1/events"),
];
/// Names that come, change and go in each resource.
const NAMES: usize = 6;
/// Time between two turns, each of one to three writes.
const PACE: Duration = Duration::from_millis(35);
/// How long an answer may take before the next write.
const PATIENCE: Duration = Duration::from_secs(1);

/// A life that goes on until it is stopped.
pub(super) struct Churn {
    task: JoinSet<()>,
    written: Arc<AtomicUsize>,
}

impl Churn {
    pub(super) async fn start(cluster: &Cluster) -> Self {
        let client = client_of(&cluster.kubeconfig("admin")).await.unwrap();
        let written = Arc::new(AtomicUsize::new(0));
        let writer = Writer { client, dice: Dice(20_261_127), number: 0, written: Arc::clone(&written) };
        let mut task = JoinSet::new();
        task.spawn(writer.live());
        Self { task, written }
    }

    /// How many writes were answered.
    pub(super) fn written(&self) -> usize {
        self.written.load(Ordering::Relaxed)
    }

    /// Ends it, and waits for that.
    pub(super) async fn stop(mut self) {
        assert!(self.task.try_join_next().is_none(), "the churn ended by itself");
        self.task.shutdown().await;
    }
}

struct Writer {
    client: kube::Client,
    dice: Dice,
    number: usize,
    written: Arc<AtomicUsize>,
}

impl Writer {
    async fn live(mut self) {
        let mut pace = tokio::time::interval(PACE);
        pace.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            pace.tick().await;
            self.turn().await;
        }
    }

    async fn turn(&mut self) {
        self.number += 1;
        let number = self.number;
        let (all, part, _) = ALL[self.dice.roll(ALL.len())];
        if part == "event" {
            // Those that are written together hang on one lease, and go with one revision.
            for which in 0..3 {
                self.send("POST", all, &object(part, &format!("event-{number}-{which}"), number)).await;
            }
            return;
        }
        let name = format!("churn-{}", self.dice.roll(NAMES));
        let one = format!("{all}/{name}");
        match self.dice.roll(8) {
            0 => {
                let mut held = object(part, &format!("held-{number}"), number);
                held["metadata"]["finalizers"] = json!(["example.com/hold"]);
                let one = format!("{all}/held-{number}");
                self.send("POST", all, &held).await;
                self.send("DELETE", &one, &json!({})).await;
                self.send("PATCH", &one, &json!({"metadata": {"finalizers": null}})).await;
            }
            1 => {
                self.send("DELETE", &one, &json!({})).await;
                self.send("POST", all, &object(part, &name, number)).await;
            }
            2 => self.send("DELETE", &one, &json!({})).await,
            3 => self.send("POST", all, &object(part, &name, number)).await,
            _ => {
                let mut change = object(part, &name, number);
                change["metadata"] =
                    json!({"annotations": {"writes": number.to_string(), "a/b~c": number.to_string()}});
                self.send("PATCH", &one, &change).await;
            }
        }
    }

    async fn send(&self, method: &str, path: &str, body: &Value) {
        let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let request = http::Request::builder().method(method).uri(path).header("content-type", kind);
        let request = request.body(Body::from(body.to_string().into_bytes())).unwrap();
        if let Ok(Ok(answer)) = tokio::time::timeout(PATIENCE, self.client.send(request)).await
            && answer.status().is_success()
        {
            self.written.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// An object of a resource, with something that tells it from others.
pub(super) fn object(part: &str, name: &str, number: usize) -> Value {
    let text = number.to_string();
    let mut object = json!({"metadata": {"name": name, "annotations": {"writes": text}}});
    match part {
        "data" | "stringData" => object[part] = json!({"writes": text}),
        "spec" => object[part] = json!({"holderIdentity": text}),
        "widget" => {
            object["apiVersion"] = json!("example.com/v1");
            object["kind"] = json!("Widget");
            object["spec"] = json!({"writes": number, "list": [text, "same"]});
        }
        "event" => {
            object["reason"] = json!("Test");
            object["message"] = json!(text);
            object["type"] = json!("Normal");
            object["involvedObject"] = json!({"kind": "ConfigMap", "namespace": "shop", "name": "any"});
        }
        _ => {}
    }
    object
}
