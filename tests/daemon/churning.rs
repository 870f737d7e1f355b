//! What of the writes changed nothing: suppressed where that is asked for, told by `churn`, and counted.

use decklog::sim::{Sim, objects};
use serde_json::{Value, json};

use crate::support::{Daemon, cluster, free_address, http_get, until};

/// A manager writes a field of the ConfigMap `default/a`.
fn write(sim: &Sim, manager: &str, key: &str, value: &str) {
    let written = sim.update("configmaps", "default", "a", |map| {
        map["data"][key] = value.into();
        // Whoever had it has nothing any more.
        map["metadata"]["managedFields"] = json!([]);
        objects::touch(map, manager, "Update", "v1", "", &json!({"data": {key: value}}));
    });
    written.unwrap();
}

fn renew(sim: &Sim, turn: u32) {
    let time = format!("2026-11-21T10:00:{turn:02}.000000Z");
    sim.patch("leases.coordination.k8s.io", "kube-node-lease", "node-1", &json!({"spec": {"renewTime": time}}))
        .unwrap();
}

async fn churn(daemon: &Daemon) -> Value {
    serde_json::from_str(&daemon.command(&["churn", "-o", "json"]).await.done()).unwrap()
}

/// The value of a metric with these labels.
fn metric(text: &str, name: &str) -> Option<String> {
    text.lines().find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(' ')?.to_owned()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn churn_and_its_metrics_tell_a_fight_and_signs_of_life() {
    let sim = cluster().await;
    sim.create("configmaps", objects::config_map("default", "a", "1")).unwrap();
    sim.create("leases.coordination.k8s.io", objects::lease("kube-node-lease", "node-1")).unwrap();
    let at = free_address();
    let http = format!("[http]\nlisten = {at:?}\n");
    let watch = "resources = [\"configmaps\", \"leases.coordination.k8s.io\"]";
    let mut daemon = Daemon::with(&sim, watch, &http);
    daemon.start();
    daemon.ready().await;
    for turn in 0..4 {
        write(&sim, "one", "mode", "on");
        write(&sim, "other", "mode", "off");
        renew(&sim, turn);
    }
    daemon.reach(14).await;
    let report = churn(&daemon).await;
    let fight = &report["fights"][0];
    assert_eq!((&fight["field"], &fight["writes"]), (&json!("/data/mode"), &json!(8)), "{report:#}");
    let sides: Vec<&Value> = fight["sides"].as_array().unwrap().iter().map(|side| &side["manager"]).collect();
    assert_eq!(sides, ["one", "other"]);
    // What was there when it began is no write.
    assert_eq!((&report["writes"]["writes"], &report["not_counted"]["listed"]), (&json!(12), &json!(2)));
    let text = daemon.command(&["churn"]).await.done();
    assert!(text.contains("FOUGHT OVER") && text.contains("heartbeats"), "{text}");

    let count = |text: &str, resource: &str, class: &str| {
        metric(text, &format!("decklog_churn_writes_total{{resource=\"{resource}\",class=\"{class}\"}}"))
    };
    let metrics = until("the metrics to have all of it", async || {
        let text = http_get(&at, "/metrics")?.body;
        let lease = count(&text, "leases.coordination.k8s.io", "heartbeats");
        let fought = metric(&text, "decklog_churn_reverts_total{resource=\"configmaps\"}");
        if (lease.as_deref(), fought.as_deref()) == (Some("4"), Some("6")) { Ok(text) } else { Err(text) }
    })
    .await;
    assert_eq!(count(&metrics, "configmaps", "changed").as_deref(), Some("8"));
    assert!(!metrics.contains("apiserver_write_requests"), "nobody asked for it: {metrics}");
    for unbounded in ["node-1", "default", "mode", "one"] {
        let labels = metrics.lines().filter(|line| line.starts_with("decklog_churn"));
        assert!(labels.clone().all(|line| !line.contains(&format!("\"{unbounded}\""))), "{unbounded} is no label");
    }

    // From now on they are suppressed, and counted.
    daemon.stop().await;
    let quiet = "resources = [\"configmaps\", \"leases.coordination.k8s.io\"]\nignore = [\"heartbeats\"]";
    daemon.configure(&daemon.config(quiet, &http));
    daemon.start();
    daemon.ready().await;
    let known = daemon.entries().len();
    for turn in 4..9 {
        renew(&sim, turn);
    }
    sim.delete("leases.coordination.k8s.io", "kube-node-lease", "node-1").unwrap();
    sim.create("leases.coordination.k8s.io", objects::lease("kube-node-lease", "node-1")).unwrap();
    daemon.reach(known + 2).await;
    let told: Vec<String> = daemon.entries()[known..].iter().map(|entry| entry.kind.clone()).collect();
    assert_eq!(told, ["DELETED", "ADDED"]);
    let status = daemon.status().await;
    let suppressed: Vec<&Value> =
        status["sources"].as_array().unwrap().iter().map(|source| &source["suppressed"]).collect();
    assert_eq!(suppressed, [&json!(0), &json!(5)], "{status:#}");
    let text = daemon.command(&["status"]).await.done();
    assert!(text.contains("SUPPRESSED"), "{text}");
    let text = daemon.command(&["churn"]).await.done();
    assert!(text.contains("`ignore` has suppressed 5 changes so far"), "{text}");
    let name = "decklog_source_suppressed_total{resource=\"leases.coordination.k8s.io\",namespace=\"\"}";
    assert_eq!(metric(&http_get(&at, "/metrics").unwrap().body, name).as_deref(), Some("5"));
    daemon.stop().await;
    daemon.consistent().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counters_that_may_not_be_read_are_told_everywhere() {
    let sim = cluster().await;
    sim.deny("get", "/metrics", None);
    let at = free_address();
    let mut daemon = Daemon::with(&sim, "resources = [\"configmaps\"]", &format!("[http]\nlisten = {at:?}\n"));
    let config = std::fs::read_to_string(daemon.path("config.toml")).unwrap();
    daemon.configure(&config.replace("[cluster]\n", "[cluster]\nrequest_metrics = true\n"));
    let check = daemon.command(&["check"]).await;
    assert!(check.code == 1 && check.out.contains("/metrics may not be read"), "{check:#?}");
    let rights = daemon.command(&["rbac"]).await.done();
    assert!(rights.contains("- nonResourceURLs: [\"/metrics\"]\n  verbs: [\"get\"]\n"), "{rights}");
    daemon.start();
    daemon.ready().await;
    until("the failure to be told", async || {
        let answer = daemon.command(&["churn", "--requests"]).await;
        let told = answer.err.contains("the last reading failed") && answer.err.contains("decklog rbac");
        if told && answer.code == 1 { Ok(()) } else { Err(format!("{answer:#?}")) }
    })
    .await;
    let metrics = http_get(&at, "/metrics").unwrap().body;
    assert_eq!(metric(&metrics, "decklog_apiserver_counters_failing").as_deref(), Some("1"));
    // Nothing else suffers from it.
    sim.create("configmaps", objects::config_map("default", "a", "1")).unwrap();
    daemon.knows(&sim, "configmaps", "default", "a").await;
    sim.heal();
    daemon.stop().await;
    daemon.consistent().await;
}
