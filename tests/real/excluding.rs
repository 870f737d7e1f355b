//! Namespaces that are left out, by name and by a pattern: the log is etcd's history without them, and of those that are
//! named the API server sends nothing.

use serde_json::json;

use crate::decklog::Decklog;
use crate::extensions;
use crate::harness::{Cluster, LIMIT, Parts, Version, until};
use crate::judge::{Row, Scope, judge};

const WIDGETS: &str = "/apis/example.com/v1";
/// What is watched: built-in and custom resources, in namespaces and in none.
const RESOURCES: [&str; 5] = ["configmaps", "events", "widgets.example.com", "planets.example.com", "namespaces"];

fn is_left_out(namespace: &str) -> bool {
    namespace == "noisy" || namespace.starts_with("ci-")
}

/// Something happens in each namespace.
async fn live(cluster: &Cluster, round: usize) {
    for namespace in ["shop", "noisy", "ci-1"] {
        let maps = format!("/api/v1/namespaces/{namespace}/configmaps");
        let name = format!("round-{round}");
        cluster.create(&maps, &json!({"metadata": {"name": name}})).await;
        for number in 0..3 {
            cluster.patch(&format!("{maps}/{name}"), &json!({"data": {"number": number.to_string()}})).await;
        }
        cluster.create(&maps, &json!({"metadata": {"name": "short"}})).await;
        cluster.delete(&format!("{maps}/short")).await;
        let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}});
        cluster.create(&format!("{WIDGETS}/namespaces/{namespace}/widgets"), &widget).await;
        let event = json!({
            "metadata": {"name": name}, "reason": "Test", "message": "it came", "type": "Normal",
            "involvedObject": {"kind": "ConfigMap", "namespace": namespace, "name": "any"},
        });
        cluster.create(&format!("/api/v1/namespaces/{namespace}/events"), &event).await;
    }
    let planet =
        json!({"apiVersion": "example.com/v1", "kind": "Planet", "metadata": {"name": format!("planet-{round}")}});
    cluster.create(&format!("{WIDGETS}/planets"), &planet).await;
}

/// See the module.
pub async fn scenario(version: Version) {
    let mut cluster = Cluster::start(version, Parts::Bare).await;
    for name in ["shop", "noisy", "ci-1"] {
        cluster.create("/api/v1/namespaces", &json!({"metadata": {"name": name}})).await;
    }
    extensions::define(&cluster, "widgets", "Namespaced").await;
    extensions::define(&cluster, "planets", "Cluster").await;
    live(&cluster, 1).await;
    let started = cluster.oracle().sync().await;
    let watch = format!("resources = {RESOURCES:?}\nexclude_namespaces = [\"noisy\", \"ci-*\"]");
    let mut daemon = Decklog::new(&cluster, "killed", &watch);
    daemon.audits_every("1s");
    daemon.start();
    daemon.ready().await;
    live(&cluster, 2).await;
    is_the_truth(&cluster, &mut daemon, started).await;

    // What happened while the watches were away is recovered, or resumed.
    daemon.stop().await;
    live(&cluster, 3).await;
    cluster.restart_api(true).await;
    live(&cluster, 4).await;
    daemon.start();
    is_the_truth(&cluster, &mut daemon, started).await;
    daemon.stop().await;
    assert!(daemon.entries().iter().all(|entry| entry.gap.is_none()), "nothing was compacted: {}", daemon.last_words());
    let verify = daemon.command(&["verify"]);
    assert!(verify.status.success(), "{}", String::from_utf8_lossy(&verify.stderr));
    asked(&cluster);
}

/// Waits until the log is etcd's history without what is left out.
async fn is_the_truth(cluster: &Cluster, daemon: &mut Decklog, started: u64) {
    let upto = cluster.oracle().sync().await;
    let resources = Some(RESOURCES.into_iter().map(str::to_owned).collect());
    let scope = Scope { late: false, started, upto, namespaces: None, resources };
    let truth: Vec<Row> = cluster.oracle().rows().into_iter().filter(|row| !is_left_out(&row.key.0)).collect();
    until("the log to be the truth", LIMIT, async || {
        daemon.must_run();
        let verdict = judge(&truth, None, daemon.entries(), &scope);
        if verdict.is_right() { Ok(()) } else { Err(verdict.to_string()) }
    })
    .await;
    let stray = daemon.entries().iter().find(|entry| is_left_out(&entry.namespace));
    assert!(stray.is_none(), "it is left out: {stray:?}");
}

/// The API server was asked to leave out what is named, and took that.
fn asked(cluster: &Cluster) {
    let mut selected = [0, 0];
    for event in cluster.audit("killed") {
        let (uri, verb) = (event["requestURI"].as_str().unwrap(), event["verb"].as_str().unwrap());
        assert_ne!(event["responseStatus"]["code"], 400, "{uri}");
        let resource = event["objectRef"]["resource"].as_str().unwrap_or_default();
        let selects = uri.contains("fieldSelector=metadata.namespace%21%3Dnoisy&")
            || uri.ends_with("fieldSelector=metadata.namespace%21%3Dnoisy");
        match (verb, resource) {
            ("watch", "configmaps" | "events" | "widgets") => assert!(selects, "{uri}"),
            ("watch" | "list", "planets" | "namespaces") => assert!(!uri.contains("metadata.namespace"), "{uri}"),
            _ => {}
        }
        if selects {
            selected[usize::from(verb == "watch")] += 1;
        }
        assert!(!uri.contains("ci-"), "a pattern is nothing that an API server knows: {uri}");
    }
    assert!(selected.iter().all(|count| *count >= 3), "lists and watches: {selected:?}");
}
