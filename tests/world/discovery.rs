//! Discovery: what one server says of itself is written as it came into the document of all. The rows of every kind stand
//! beside the code (`src/watch/discovery/read/tests.rs`, `src/watch/tests/discovering.rs`); here is the binary with all of them at once.

use std::collections::BTreeSet;
use std::fs;

use decklog::sim::faults::{Act, Fault, On, Refusal};
use decklog::sim::objects;
use serde_json::{Value, json};

use crate::support::{Daemon, cluster, cluster_with, until};

const WIDGETS: &str = "widgets.example.com";

/// An element of `/apis`, in the aggregated form and in the old one; what kubectl does with it, and what decklog's
/// `check` says of which group.
struct Row {
    forms: [Value; 2],
    _kubectl: &'static str,
    finds: Option<&'static str>,
}

fn rows() -> Vec<Row> {
    let row = |aggregated, legacy, kubectl, finds| Row { forms: [aggregated, legacy], _kubectl: kubectl, finds };
    let named = |name: &str, versions: Value| json!({"metadata": {"name": name}, "versions": versions});
    vec![
        row(
            named(
                "custom.metrics.k8s.io",
                json!([{"version": "v1beta1", "freshness": "Current", "resources": [
                    {"resource": "pods", "scope": "Namespaced", "singularResource": "", "verbs": null},
                    {"resource": "nodes", "responseKind": {"group": "", "version": "", "kind": ""}, "scope": "Cluster",
                     "singularResource": "", "verbs": null, "subresources": [{"subresource": "cpu", "responseKind": null, "verbs": null}]}]}]),
            ),
            json!({"name": "custom.metrics.k8s.io", "versions": []}),
            "lists all other resources",
            None,
        ),
        row(
            named("stale.io", json!([{"version": "v1", "freshness": "Stale", "resources": null}])),
            json!({"name": "stale.io", "versions": [{"version": "v1"}]}),
            "lists all other resources, and prints that this group cannot be had",
            Some("stale.io"),
        ),
        row(
            named("odd.io", json!("v1")),
            json!({"name": "odd.io", "versions": "v1"}),
            "reads nothing of such a document",
            Some("odd.io"),
        ),
        row(Value::Null, Value::Null, "takes it for a group without a name and versions", Some("/apis")),
        row(named("empty.io", Value::Null), json!({"name": "empty.io", "versions": null}), "lists all others", None),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_one_server_says_wrong_stops_no_other() {
    for legacy in [false, true] {
        let sim = cluster_with(|settings| settings.legacy_discovery = legacy).await;
        sim.define(objects::crd(WIDGETS, "Widget", true, &["v1"])).unwrap();
        sim.set(|settings| settings.more_groups = rows().into_iter().map(|row| row.forms).collect());
        let mut daemon = Daemon::new(&sim, &["*"]);
        daemon.start();
        daemon.ready().await;
        for (resource, name) in [("configmaps", "a"), (WIDGETS, "b")] {
            sim.create(resource, json!({"metadata": {"namespace": "default", "name": name}})).unwrap();
            daemon.knows(&sim, resource, "default", name).await;
        }
        let live = until("the daemon to say what is uncertain", async || uncertain(&daemon)).await;
        let expected: BTreeSet<String> = rows().iter().filter_map(|row| row.finds).map(str::to_owned).collect();
        assert_eq!(live, expected, "{legacy}");
        let check = daemon.command(&["check"]).await;
        assert_eq!(check.code, 1, "{check:?}");
        let silent: Vec<&str> =
            check.out.lines().filter(|line| line.contains("does not say what there is of")).collect();
        assert_eq!(silent.len(), expected.len(), "{check:?}");
        assert!(expected.iter().all(|group| check.out.contains(&format!("what there is of {group}:"))), "{check:?}");
        // Nothing is the matter with those that have nothing to list.
        let well = |row: &Row| row.finds.is_none();
        sim.set(|settings| {
            settings.more_groups = rows().into_iter().filter(well).map(|row| row.forms).collect();
        });
        daemon.command(&["check"]).await.done();
        daemon.stop().await;
    }
}

/// The API groups of which the running daemon says that they are uncertain.
fn uncertain(daemon: &Daemon) -> Result<BTreeSet<String>, String> {
    let text = fs::read_to_string(daemon.state().join("daemon.json")).map_err(|error| error.to_string())?;
    let live: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    let groups: BTreeSet<String> =
        live["discovery"].as_object().into_iter().flatten().map(|(group, _)| group.clone()).collect();
    if groups.is_empty() { Err(text) } else { Ok(groups) }
}

/// kubectl goes on for as long as its cache of discovery is good.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_watched_is_watched_while_discovery_fails() {
    let sim = cluster().await;
    sim.define(objects::crd(WIDGETS, "Widget", true, &["v1"])).unwrap();
    let widget = |name: &str| json!({"metadata": {"namespace": "default", "name": name}});
    sim.create(WIDGETS, widget("a")).unwrap();
    let mut daemon = Daemon::new(&sim, &["configmaps", "*.example.com"]);
    daemon.start();
    daemon.ready().await;
    daemon.knows(&sim, WIDGETS, "default", "a").await;
    daemon.stop().await;
    for path in ["/api", "/apis"] {
        let refusal = Refusal::new(500, "InternalError", "the document of all is broken");
        sim.fault(Fault::new(On::path(path), Act::refuse(&refusal)).always());
    }
    sim.create(WIDGETS, widget("b")).unwrap();
    daemon.start();
    daemon.ready().await;
    daemon.knows(&sim, WIDGETS, "default", "b").await;
    assert!(daemon.entries().iter().all(|entry| entry.gap.is_none()));
    // It lasts: the moment at which it began is put back, as nobody wants to wait for it.
    let file = daemon.state().join("daemon.json");
    until("an alarm", async || {
        let mut live: Value = serde_json::from_slice(&fs::read(&file).unwrap()).map_err(|error| error.to_string())?;
        let trouble = live["discovery"].get_mut("").ok_or("it is not known yet")?;
        trouble["since"] = "2026-01-01T00:00:00Z".into();
        fs::write(&file, live.to_string()).unwrap();
        let status = daemon.command(&["status", "--check"]).await;
        let says = status.out.contains("discovery-failing") && status.out.contains("the document of all is broken");
        if status.code == 1 && says { Ok(()) } else { Err(format!("{status:?}")) }
    })
    .await;
    // It heals by itself, and what it did not know is found.
    sim.heal();
    sim.define(objects::crd("gadgets.example.com", "Gadget", true, &["v1"])).unwrap();
    sim.create("gadgets.example.com", widget("c")).unwrap();
    daemon.knows(&sim, "gadgets.example.com", "default", "c").await;
    until("no alarm", async || {
        let status = daemon.command(&["status", "--check"]).await;
        if status.code == 0 { Ok(()) } else { Err(format!("{status:?}")) }
    })
    .await;
    daemon.stop().await;
}
