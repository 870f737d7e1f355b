//! Objects that API servers should not send.

use std::fs;

use decklog::sim::faults::{Act, Fault, On};
use decklog::sim::{Object, objects};
use serde_json::{Value, json};

use crate::support::{Daemon, cluster};

/// What the log has, in short: `GAP undecodable odd`, `ADDED listed a`.
fn log(daemon: &Daemon) -> Vec<String> {
    let lines = fs::read_to_string(daemon.log()).unwrap();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let short = |line: &str| {
        let entry: Value = serde_json::from_str(line).unwrap();
        let how = entry.get("evidence").unwrap_or(&entry["gap"]["why"]);
        format!("{} {} {}", text(&entry["type"]), text(how), text(&entry["name"]))
    };
    lines.lines().map(short).collect()
}

/// kubectl get prints the first four by name and the others as `<unknown>`, or fails for all where one is no JSON.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_odd_object_stops_no_other() {
    let rows = [
        // Calico's API server: no uid.
        (r#"{"metadata":{"name":"no-uid","namespace":"default","resourceVersion":"2"},"data":{}}"#, "no-uid"),
        (r#"{"metadata":{"name":"no-version","namespace":"default","uid":"u"}}"#, "no-version"),
        (r#"{"metadata":{"name":"uid-number","namespace":"default","uid":7,"resourceVersion":"2"}}"#, "uid-number"),
        (
            r#"{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadata","metadata":{"name":"partial","namespace":"default","uid":"u","resourceVersion":"2"}}"#,
            "partial",
        ),
        (r#"{"metadata":{"name":null,"uid":"u","resourceVersion":"2"}}"#, ""),
        (
            r#"{"metadata":{"name":"no-json","namespace":"default","uid":"u","resourceVersion":"2"},"data":{"a":NaN}}"#,
            "no-json",
        ),
        ("null", ""),
    ];
    let sim = cluster().await;
    let items = rows.iter().map(|row| row.0.into()).collect();
    sim.fault(Fault::new(On::list("configmaps"), Act::Extra(items)).always());
    sim.create("configmaps", objects::config_map("default", "a", "1")).unwrap();
    let mut daemon = Daemon::new(&sim, &["configmaps"]);
    daemon.start();
    daemon.ready().await;
    daemon.reach(rows.len() + 1).await;
    let mut expected: Vec<String> = rows.iter().map(|row| format!("GAP undecodable {}", row.1)).collect();
    expected.push("ADDED listed a".to_owned());
    expected.sort_unstable();
    let mut found = log(&daemon);
    found.sort_unstable();
    assert_eq!(found, expected);
    sim.create("configmaps", objects::config_map("default", "b", "1")).unwrap();
    daemon.reach(rows.len() + 2).await;
    assert_eq!(log(&daemon).last().unwrap(), "ADDED watched b");
    // A restart lists nothing, and repeats nothing.
    daemon.stop().await;
    daemon.start();
    daemon.ready().await;
    sim.create("configmaps", objects::config_map("default", "c", "1")).unwrap();
    daemon.reach(rows.len() + 3).await;
    daemon.stop().await;
    let shown = daemon.command(&["tail", "--last", "20"]).await.done();
    assert!(shown.contains("configmaps default/no-uid undecodable: "), "{shown}");
    daemon.command(&["verify"]).await.done();
}

/// kubectl get --show-managed-fields prints what is there. Every command reads what decklog makes of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn managed_fields_of_any_type_are_read_by_every_command() {
    let sim = cluster().await;
    let mut daemon = Daemon::new(&sim, &["configmaps"]);
    daemon.start();
    daemon.ready().await;
    let odd = [json!(null), json!(5), json!(["x"]), json!({"a": 1})];
    let mut versions = vec![json!(null), json!("text"), json!([null, 5, "text", {}])];
    for value in odd {
        for field in ["manager", "operation", "subresource", "time", "fieldsType", "fieldsV1", "apiVersion"] {
            let mut one = json!({"manager": "m", "operation": "Update", "time": "2026-11-22T10:00:00Z", "fieldsType": "FieldsV1",
                "fieldsV1": {"f:data": {"f:value": {}}}});
            one[field] = value.clone();
            versions.push(json!([one]));
        }
    }
    let map = json!({"metadata": {"name": "a", "namespace": "default"}, "data": {"value": "0"}});
    sim.create("configmaps", Object::parse(map.to_string().as_bytes()).unwrap()).unwrap();
    for (n, managed) in versions.iter().enumerate() {
        sim.update("configmaps", "default", "a", |map| {
            map["metadata"]["managedFields"] = managed.clone();
            map["data"]["value"] = n.to_string().into();
        })
        .unwrap();
    }
    daemon.reach(versions.len() + 1).await;
    daemon.stop().await;
    for line in fs::read_to_string(daemon.log()).unwrap().lines() {
        let entry: Value = serde_json::from_str(line).unwrap();
        let managers = entry.pointer("/change/managers").and_then(Value::as_array);
        let texts = |manager: &Value| manager.as_object().unwrap().values().all(Value::is_string);
        assert!(managers.is_none_or(|managers| managers.iter().all(texts)), "{line}");
    }
    for command in [
        &["log", "configmap/a", "-n", "default"][..],
        &["log", "-p", "configmap/a", "-n", "default"],
        &["blame", "configmap/a", "-n", "default"],
        &["tail", "--last", "100"],
        &["churn"],
        &["verify"],
    ] {
        daemon.command(command).await.done();
    }
}
