//! Resources that come and go: definitions created, served in another version, deleted with all their objects, and
//! created again.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::decklog::Decklog;
use crate::harness::{Cluster, LIMIT, Parts, Version, until};
use crate::judge::Scope;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// (f) of the proof.
pub async fn scenario(version: Version) {
    let cluster = Cluster::start(version, Parts::Bare).await;
    let started = cluster.oracle().sync().await;
    let scope = |upto| Scope {
        late: false,
        started,
        upto,
        namespaces: None,
        resources: Some(BTreeSet::from(
            ["widgets.example.com", "planets.example.com", "customresourcedefinitions.apiextensions.k8s.io"]
                .map(str::to_owned),
        )),
    };
    let caught_up = async |daemon: &mut Decklog| {
        let upto = cluster.oracle().sync().await;
        daemon.catch_up(&cluster, None, &scope(upto)).await;
    };
    define(&cluster, "planets", "Cluster").await;
    create(&cluster, "/apis/example.com/v1/planets", "mars").await;
    let watch = "resources = [\"*.example.com\", \"customresourcedefinitions.apiextensions.k8s.io\"]";
    let mut daemon = Decklog::new(&cluster, "calm", watch);
    daemon.start();
    daemon.ready().await;
    caught_up(&mut daemon).await;

    // One that nobody knew when the daemon started.
    let v1 = "/apis/example.com/v1/namespaces/default/widgets";
    define(&cluster, "widgets", "Namespaced").await;
    for name in ["one", "two", "three"] {
        create(&cluster, v1, name).await;
    }
    caught_up(&mut daemon).await;
    create(&cluster, v1, "four").await;
    cluster.delete(&format!("{v1}/two")).await;
    touch(&cluster, v1, "one").await;
    caught_up(&mut daemon).await;

    // Served in another version: the objects are the same ones.
    let versions = json!([version_of("v1", false, false), version_of("v2", true, true)]);
    cluster.patch(&format!("{DEFINITIONS}/widgets.example.com"), &json!({"spec": {"versions": versions}})).await;
    let v2 = "/apis/example.com/v2/namespaces/default/widgets";
    served(&cluster, v2).await;
    touch(&cluster, v2, "one").await;
    create(&cluster, v2, "five").await;
    caught_up(&mut daemon).await;
    let uids = |daemon: &mut Decklog, name: &str| -> BTreeSet<String> {
        let entries = daemon.entries().iter();
        entries
            .filter(|entry| entry.resource == "widgets" && entry.name == name)
            .map(|entry| entry.uid.clone())
            .collect()
    };
    assert_eq!(uids(&mut daemon, "one").len(), 1, "another version of the API makes no other object");

    // Gone with all its objects, while another one stays.
    cluster.delete(&format!("{DEFINITIONS}/widgets.example.com")).await;
    until("a definition to be gone", LIMIT, async || {
        let (status, answer) = cluster.call("GET", &format!("{DEFINITIONS}/widgets.example.com"), None).await;
        if status == 404 { Ok(()) } else { Err(answer["status"].to_string()) }
    })
    .await;
    caught_up(&mut daemon).await;
    let deleted = |daemon: &mut Decklog| {
        daemon.entries().iter().filter(|entry| entry.resource == "widgets" && entry.kind == "DELETED").count()
    };
    assert_eq!(deleted(&mut daemon), 5, "each widget is told to be deleted");
    touch(&cluster, "/apis/example.com/v1/planets", "mars").await;

    // And again, under the same names.
    define(&cluster, "widgets", "Namespaced").await;
    create(&cluster, v1, "one").await;
    touch(&cluster, v1, "one").await;
    caught_up(&mut daemon).await;
    touch(&cluster, v1, "one").await;
    caught_up(&mut daemon).await;
    assert_eq!(uids(&mut daemon, "one").len(), 2, "what comes again is another object");
    daemon.stop().await;
    daemon.judged(&cluster, None, &scope(cluster.oracle().sync().await)).await;
}

fn version_of(name: &str, served: bool, storage: bool) -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    json!({"name": name, "served": served, "storage": storage, "schema": schema})
}

/// Creates a definition and waits until its objects are served.
pub async fn define(cluster: &Cluster, plural: &str, scope: &str) {
    let kind = format!("{}{}", plural[..1].to_uppercase(), &plural[1..plural.len() - 1]);
    let definition = json!({
        "metadata": {"name": format!("{plural}.example.com")},
        "spec": {
            "group": "example.com", "scope": scope, "names": {"plural": plural, "kind": kind},
            "versions": [version_of("v1", true, true)],
        },
    });
    cluster.create(DEFINITIONS, &definition).await;
    served(cluster, &format!("/apis/example.com/v1/{plural}")).await;
}

async fn served(cluster: &Cluster, path: &str) {
    until(&format!("{path} to be served"), LIMIT, async || cluster.get(path).await.map(drop)).await;
}

async fn create(cluster: &Cluster, all: &str, name: &str) {
    let kind = if all.ends_with("planets") { "Planet" } else { "Widget" };
    let group_version = all.trim_start_matches("/apis/").splitn(3, '/').take(2).collect::<Vec<_>>().join("/");
    let object = json!({"apiVersion": group_version, "kind": kind, "metadata": {"name": name}, "spec": {"size": 1}});
    // A definition that has just come may refuse the first writes.
    until(&format!("{name} to be created"), LIMIT, async || {
        let (status, answer) = cluster.call("POST", all, Some(&object)).await;
        if status == 201 { Ok(()) } else { Err(format!("{status} {}", answer["message"])) }
    })
    .await;
}

async fn touch(cluster: &Cluster, all: &str, name: &str) {
    let size = cluster.oracle().revision().await;
    cluster.patch(&format!("{all}/{name}"), &json!({"spec": {"size": size}})).await;
}
