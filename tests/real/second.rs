//! The judge and its truth, tried without decklog: a plain client lists and watches while the cluster lives, and what it
//! sees has to be the truth. So a verdict against decklog is never the fault of the oracle, the judge or the load.

use std::collections::{BTreeSet, HashMap};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use crate::harness::{Cluster, LIMIT, Parts, Version, until};
use crate::judge::{Entry, Scope, areas, judge};
use crate::load;

const PATHS: [(&str, &str, &str); 7] = [
    ("", "v1", "pods"),
    ("", "v1", "configmaps"),
    ("", "v1", "events"),
    ("", "v1", "namespaces"),
    ("apps", "v1", "deployments"),
    ("apps", "v1", "replicasets"),
    ("coordination.k8s.io", "v1", "leases"),
];

/// See the module.
pub async fn scenario(version: Version) {
    let cluster = Cluster::start(version, Parts::Full).await;
    let started = cluster.oracle().sync().await;
    let seen: [Mutex<Vec<Value>>; PATHS.len()] = Default::default();
    let stop = AtomicBool::new(false);
    let watches = futures::future::join_all(PATHS.iter().zip(&seen).map(|(path, seen)| follow(&cluster, path, seen)));
    let load = async {
        tokio::join!(load::run(&cluster, 1, &stop), async {
            until("a load that has done something", LIMIT, async || {
                let have = cluster.oracle().len();
                if have > 1000 { Ok(()) } else { Err(format!("{have} writes")) }
            })
            .await;
            stop.store(true, Ordering::Relaxed);
        });
        let upto = cluster.oracle().sync().await;
        let names = PATHS.map(|(group, _, plural)| match group {
            "" => plural.to_owned(),
            group => format!("{plural}.{group}"),
        });
        let scope = Scope { late: false, started, upto, namespaces: None, resources: Some(BTreeSet::from(names)) };
        until("the watches to tell everything", LIMIT, async || {
            let log = entries(&seen);
            cluster.oracle().sync().await;
            let verdict = judge(&cluster.oracle().rows(), None, &log, &scope);
            assert!(verdict.wrong.is_empty(), "{verdict}");
            if verdict.is_right() { Ok(log.len()) } else { Err(verdict.to_string()) }
        })
        .await
    };
    tokio::select! {
        _ = watches => panic!("a watch ended"),
        entries = load => assert!(entries > 500, "only {entries} entries"),
    }
}

/// Lists and watches one resource, and keeps the lines.
async fn follow(cluster: &Cluster, (group, version, plural): &(&str, &str, &str), seen: &Mutex<Vec<Value>>) {
    let api_version = if group.is_empty() { (*version).to_owned() } else { format!("{group}/{version}") };
    let root = if group.is_empty() { "api" } else { "apis" };
    let path = format!("/{root}/{api_version}/{plural}");
    let mut list = cluster.must("GET", &path, None).await;
    let line = |evidence: &str, event: &mut Value| {
        json!({
            "evidence": evidence, "type": event["type"].take(), "apiVersion": api_version, "resource": plural,
            "object": event["object"].take(),
        })
    };
    for item in list["items"].as_array_mut().unwrap() {
        seen.lock().unwrap().push(line("listed", &mut json!({"type": "ADDED", "object": item.take()})));
    }
    let from = list["metadata"]["resourceVersion"].as_str().unwrap();
    let mut body = cluster.open(&format!("{path}?watch=true&resourceVersion={from}")).await;
    let mut buffer = Vec::new();
    while let Some(Ok(frame)) = body.frame().await {
        buffer.extend_from_slice(frame.data_ref().unwrap());
        while let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
            let text: Vec<u8> = buffer.drain(..=end).collect();
            seen.lock().unwrap().push(line("watched", &mut serde_json::from_slice(&text).unwrap()));
        }
    }
}

/// The log that a daemon would have written.
fn entries(seen: &[Mutex<Vec<Value>>]) -> Vec<Entry> {
    let mut log = Vec::new();
    for lines in seen {
        let mut last: HashMap<String, Value> = HashMap::new();
        for line in lines.lock().unwrap().iter() {
            let object = &line["object"];
            let metadata = &object["metadata"];
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let (uid, version, kind) =
                (text(&metadata["uid"]), text(&metadata["resourceVersion"]), text(&line["type"]));
            let before = last.insert(uid.clone(), object.clone());
            let change = before.filter(|_| kind == "MODIFIED").map(|before| {
                let remove = |(key, value)| json!({"op": "remove", "path": format!("/{key}"), "was": value});
                let add = |(key, value)| json!({"op": "add", "path": format!("/{key}"), "value": value});
                let patch: Vec<Value> = before.as_object().unwrap().iter().map(remove).collect();
                let again = object.as_object().unwrap().iter().map(add);
                json!({"areas": areas(&before, object), "patch": patch.into_iter().chain(again).collect::<Vec<_>>()})
            });
            let seq = log.len() + 1;
            let id = format!("{uid}.{version}.{kind}");
            let mut whole = format!(
                r#"{{"v":1,"seq":{seq},"epoch":"e","id":{id:?},"time":"2000-01-01T00:00:00.000000Z","type":{kind:?},"evidence":{},"cluster":{{"name":"test","uid":""}},"apiVersion":{},"resource":{},"namespace":{:?},"name":{:?},"uid":{uid:?},"resourceVersion":{version:?}"#,
                line["evidence"],
                line["apiVersion"],
                line["resource"],
                text(&metadata["namespace"]),
                text(&metadata["name"]),
            );
            if let Some(change) = change {
                whole += &format!(r#","change":{change}"#);
            }
            whole += &format!(r#","object":{object}}}"#);
            log.push(Entry::parse(&whole));
        }
    }
    log
}
