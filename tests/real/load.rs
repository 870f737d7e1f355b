//! A cluster that lives: Deployments that roll, objects that come, change and go, several applies of one new name at
//! the same moment.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

use crate::harness::{Cluster, LIMIT, until};

/// A small generator of numbers, so that a seed names a run.
pub struct Dice(pub u64);

impl Dice {
    /// A number below `sides`.
    pub fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % sides
    }
}

/// What every secret of the load begins with, as it is and as the API carries it. Three times a whole number of bytes,
/// so that the coded form is found wherever it stands.
pub const SECRET: &str = "hunter2-never-logged";

/// See [`SECRET`].
pub fn coded_secret() -> String {
    BASE64.encode(&SECRET[..18])
}

/// How many rounds each part of the load does at least.
const ROUNDS: usize = 4;

/// Runs all of it until `stop` is true, and every part has finished its round.
pub async fn run(cluster: &Cluster, seed: u64, stop: &AtomicBool) {
    namespaces(cluster).await;
    let until = Until { stop, seed };
    tokio::join!(
        churn(cluster, &until),
        secrets(cluster, &until),
        rollouts(cluster, &until),
        races(cluster, &until),
        lives(cluster, &until),
    );
}

/// What needs no controllers.
#[cfg(all(feature = "postgres", feature = "s3"))]
pub async fn small(cluster: &Cluster, seed: u64, stop: &AtomicBool) {
    namespaces(cluster).await;
    let until = Until { stop, seed };
    tokio::join!(churn(cluster, &until), secrets(cluster, &until));
}

async fn namespaces(cluster: &Cluster) {
    for name in ["shop", "pay"] {
        cluster.create("/api/v1/namespaces", &json!({"metadata": {"name": name}})).await;
    }
}

struct Until<'a> {
    stop: &'a AtomicBool,
    seed: u64,
}

impl Until<'_> {
    fn goes_on(&self, round: usize) -> bool {
        round < ROUNDS || !self.stop.load(Ordering::Relaxed)
    }
}

/// ConfigMaps of a few names come, change and go, deleted ones come again at once.
async fn churn(cluster: &Cluster, until: &Until<'_>) {
    let mut dice = Dice(until.seed);
    let mut alive = [false; 12];
    // A pace that leaves the daemons their share of a small machine.
    let mut pace = tokio::time::interval(Duration::from_millis(40));
    let mut round = 0;
    while until.goes_on(round / 50) {
        pace.tick().await;
        round += 1;
        let which = dice.roll(alive.len());
        let all = ["/api/v1/namespaces/shop/configmaps", "/api/v1/namespaces/pay/configmaps"][which % 2];
        let one = format!("{all}/churn-{which}");
        let object = json!({
            "metadata": {"name": format!("churn-{which}")},
            "data": {"round": round.to_string(), "text": "line\nbreak \u{1F6A2} \"quoted\" \\ \u{7f} é"},
        });
        match (alive[which], dice.roll(5)) {
            (false, _) => drop(cluster.create(all, &object).await),
            (true, 0) => cluster.delete(&one).await,
            (true, 1) => {
                // Another incarnation of the same name.
                cluster.delete(&one).await;
                cluster.create(all, &object).await;
                continue;
            }
            (true, 2) => {
                // A write that changes nothing is no write.
                cluster.patch(&one, &json!({"data": {"round": round.to_string()}})).await;
                cluster.patch(&one, &json!({"data": {"round": round.to_string()}})).await;
                continue;
            }
            (true, 3) => {
                let large = "0123456789abcdef".repeat(4096 + dice.roll(4096));
                cluster.patch(&one, &json!({"data": {"large": large}})).await;
                continue;
            }
            (true, _) => {
                cluster.patch(&one, &json!({"data": {"round": round.to_string(), "large": null}})).await;
                continue;
            }
        }
        alive[which] = !alive[which];
    }
}

/// Secrets are rotated.
async fn secrets(cluster: &Cluster, until: &Until<'_>) {
    let all = "/api/v1/namespaces/shop/secrets";
    let coded = |round: usize| BASE64.encode(format!("{SECRET}-{round}"));
    let mut pace = tokio::time::interval(Duration::from_millis(400));
    cluster.create(all, &json!({"metadata": {"name": "key"}, "data": {"key": coded(0)}})).await;
    let mut round = 0;
    while until.goes_on(round) {
        pace.tick().await;
        round += 1;
        cluster.patch(&format!("{all}/key"), &json!({"data": {"key": coded(round)}})).await;
        // What kubectl apply leaves behind carries the data as well.
        let applied = json!({"kind": "Secret", "data": {"key": coded(round)}}).to_string();
        let annotations = json!({"kubectl.kubernetes.io/last-applied-configuration": applied});
        cluster.patch(&format!("{all}/key"), &json!({"metadata": {"annotations": annotations}})).await;
    }
}

/// Deployments roll out and scale, for real: ReplicaSets, Pods, EndpointSlices and Events follow.
async fn rollouts(cluster: &Cluster, until_: &Until<'_>) {
    let labels = json!({"app": "web"});
    let all = "/apis/apps/v1/namespaces/shop/deployments";
    let service = json!({
        "metadata": {"name": "web"}, "spec": {"selector": labels, "ports": [{"port": 80}]},
    });
    cluster.create("/api/v1/namespaces/shop/services", &service).await;
    let deployment = json!({
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 3, "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"automountServiceAccountToken": false, "containers": [{"name": "web", "image": "web:1"}]},
            },
        },
    });
    cluster.create(all, &deployment).await;
    let one = format!("{all}/web");
    let mut round: usize = 0;
    loop {
        until("a Deployment to roll out", LIMIT, async || {
            let now = cluster.get(&one).await?;
            let status = &now["status"];
            let wanted = &now["spec"]["replicas"];
            let done = status["observedGeneration"] == now["metadata"]["generation"]
                && ["replicas", "updatedReplicas", "availableReplicas"].iter().all(|key| status[*key] == *wanted);
            if done { Ok(()) } else { Err(status.to_string()) }
        })
        .await;
        if !until_.goes_on(round) {
            return;
        }
        round += 1;
        let containers = json!([{"name": "web", "image": format!("web:{round}")}]);
        let spec = json!({"replicas": 2 + round % 3, "template": {"spec": {"containers": containers}}});
        cluster.patch(&one, &json!({"spec": spec})).await;
    }
}

/// Several `kubectl apply` of one new name at the same moment: the first one wins, and the others are refused or
/// change what it made.
async fn races(cluster: &Cluster, until: &Until<'_>) {
    let file = |round: usize, side: usize| cluster.path(&format!("race-{round}-{side}.json"));
    let mut round = 0;
    while until.goes_on(round) {
        round += 1;
        for side in 0..3 {
            let object = json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": format!("race-{round}"), "namespace": "pay"}, "data": {"side": side.to_string()},
            });
            std::fs::write(file(round, side), object.to_string()).unwrap();
        }
        let apply = async |side: usize| {
            let file = file(round, side).display().to_string();
            cluster.kubectl(&["apply", "-f", &file]).await
        };
        let (a, b, c) = tokio::join!(apply(0), apply(1), apply(2));
        let outputs = [a, b, c];
        let won = outputs.iter().filter(|output| output.status.success()).count();
        assert!(won > 0, "nobody won the race: {}", String::from_utf8_lossy(&outputs[0].stderr));
        for output in outputs.iter().filter(|output| !output.status.success()) {
            let error = String::from_utf8_lossy(&output.stderr);
            assert!(error.contains("AlreadyExists"), "an apply may only lose the race: {error}");
        }
    }
}

/// Objects with finalizers, namespaces with all that is in them, a Job, and a write of everything at once.
async fn lives(cluster: &Cluster, until_: &Until<'_>) {
    let mut round = 0;
    while until_.goes_on(round) {
        round += 1;
        let held = json!({"metadata": {"name": "held", "finalizers": ["example.com/hold"]}});
        let all = "/api/v1/namespaces/shop/serviceaccounts";
        cluster.create(all, &held).await;
        let one = format!("{all}/held");
        cluster.delete(&one).await;
        cluster.patch(&one, &json!({"metadata": {"finalizers": null}})).await;

        let name = format!("brief-{round}");
        cluster.create("/api/v1/namespaces", &json!({"metadata": {"name": name}})).await;
        let maps = format!("/api/v1/namespaces/{name}/configmaps");
        for map in 0..5 {
            cluster.create(&maps, &json!({"metadata": {"name": format!("map-{map}")}})).await;
        }
        let job = json!({
            "metadata": {"name": "job"},
            "spec": {"template": {"spec": {
                "automountServiceAccountToken": false, "restartPolicy": "Never",
                "containers": [{"name": "job", "image": "job:1"}],
            }}},
        });
        let jobs = format!("/apis/batch/v1/namespaces/{name}/jobs");
        cluster.create(&jobs, &job).await;
        until("a Job to be done", LIMIT, async || {
            let job = cluster.get(&format!("{jobs}/job")).await?;
            if job["status"]["succeeded"] == 1 { Ok(()) } else { Err(job["status"].to_string()) }
        })
        .await;
        let namespace = format!("/api/v1/namespaces/{name}");
        cluster.delete(&namespace).await;
        until("a namespace to be gone", LIMIT, async || {
            let (status, object): (u16, Value) = cluster.call("GET", &namespace, None).await;
            if status == 404 { Ok(()) } else { Err(object["status"].to_string()) }
        })
        .await;
    }
}
