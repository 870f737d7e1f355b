//! The rights that `decklog rbac` prints are enough, and no more than is needed.

use std::collections::BTreeSet;
use std::fs;

use serde_json::{Value, json};

use crate::decklog::Decklog;
use crate::harness::{Cluster, LIMIT, Parts, Version, until};
use crate::judge::Scope;

/// (g) of the proof: for a whole cluster, and for one namespace of it.
pub async fn scenario(version: Version) {
    let cluster = Cluster::start(version, Parts::Bare).await;
    cluster.create("/api/v1/namespaces", &json!({"metadata": {"name": "shop"}})).await;
    let resources = ["configmaps", "secrets", "deployments.apps", "events"];
    prove(&cluster, "restricted", &resources, None).await;
    prove(&cluster, "confined", &resources, Some("shop")).await;
}

/// One user with one configuration, first without any rights and then with those that are printed.
async fn prove(cluster: &Cluster, user: &str, resources: &[&str], namespace: Option<&str>) {
    let mut watch = format!("resources = {resources:?}\n");
    if let Some(namespace) = namespace {
        watch += &format!("namespaces = [{namespace:?}]\n");
    }
    let mut daemon = Decklog::new(cluster, user, &watch);
    let check = daemon.command(&["check"]);
    assert_eq!(check.status.code(), Some(1), "check finds that there are no rights: {check:?}");
    grant(cluster, &daemon, user, resources).await;
    until("check to find nothing wrong", LIMIT, async || {
        let check = daemon.command(&["check"]);
        if check.status.success() { Ok(()) } else { Err(format!("{check:?}")) }
    })
    .await;
    let asked = cluster.audit(user).len();
    let started = cluster.oracle().sync().await;
    daemon.start();
    daemon.ready().await;
    for namespace in ["shop", "default"] {
        let all = format!("/api/v1/namespaces/{namespace}/configmaps");
        cluster.create(&all, &json!({"metadata": {"name": "one"}})).await;
        cluster.patch(&format!("{all}/one"), &json!({"data": {"a": "b"}})).await;
        cluster.delete(&format!("{all}/one")).await;
        let secrets = format!("/api/v1/namespaces/{namespace}/secrets");
        cluster.create(&secrets, &json!({"metadata": {"name": user}, "stringData": {"key": "value"}})).await;
    }
    let scope = Scope {
        late: false,
        started,
        upto: cluster.oracle().sync().await,
        namespaces: namespace.map(|name| BTreeSet::from([name.to_owned()])),
        resources: Some(resources.iter().map(|name| (*name).to_owned()).collect()),
    };
    daemon.catch_up(cluster, None, &scope).await;
    // A stop and a start, whose questions need rights as well.
    daemon.stop().await;
    daemon.start();
    daemon.ready().await;
    daemon.stop().await;
    daemon.judged(cluster, None, &scope).await;
    let refused: Vec<Value> = cluster
        .audit(user)
        .split_off(asked)
        .into_iter()
        .filter(|event| event["responseStatus"]["code"] == 403)
        .collect();
    assert!(refused.is_empty(), "{user} was refused {} and others", refused[0]);
}

/// Gives a user what `decklog rbac` prints for its configuration, after a look at it.
pub async fn grant(cluster: &Cluster, daemon: &Decklog, user: &str, resources: &[&str]) {
    let output = daemon.command(&["rbac"]);
    assert!(output.status.success(), "rbac: {}", String::from_utf8_lossy(&output.stderr));
    let file = cluster.path(&format!("{user}-rights.yaml"));
    fs::write(&file, &output.stdout).unwrap();
    let applied = cluster.kubectl_must(&["apply", "-o", "json", "-f", &file.display().to_string()]).await;
    let applied: Value = serde_json::from_str(&applied).unwrap();
    let items = match applied["items"].as_array() {
        Some(items) => items.clone(),
        None => vec![applied],
    };
    let mut bound = 0;
    for item in &items {
        let name = item["metadata"]["name"].as_str().unwrap();
        assert!(name.starts_with("decklog"), "rbac makes {name}");
        let namespace = item["metadata"]["namespace"].as_str().unwrap_or_default();
        let binding = format!("decklog-test-{user}-{bound}");
        match item["kind"].as_str().unwrap() {
            "ClusterRole" => {
                let role = format!("--clusterrole={name}");
                cluster.kubectl_must(&["create", "clusterrolebinding", &binding, &role, "--user", user]).await;
            }
            "Role" => {
                let role = format!("--role={name}");
                cluster
                    .kubectl_must(&["create", "rolebinding", "-n", namespace, &binding, &role, "--user", user])
                    .await;
            }
            _ => continue,
        }
        bound += 1;
        for rule in item["rules"].as_array().unwrap() {
            least(rule, resources);
        }
    }
    assert!(bound > 0, "rbac printed no role: {}", String::from_utf8_lossy(&output.stdout));
}

/// A rule reads what was asked for, and at most the identity of the cluster besides.
fn least(rule: &Value, resources: &[&str]) {
    let words = |key: &str| -> Vec<String> {
        rule[key].as_array().into_iter().flatten().map(|word| word.as_str().unwrap().to_owned()).collect()
    };
    let verbs = words("verbs");
    if !words("nonResourceURLs").is_empty() {
        assert_eq!((verbs, words("nonResourceURLs")), (vec!["get".to_owned()], vec!["/metrics".to_owned()]), "{rule}");
        return;
    }
    if words("resources") == ["namespaces"] {
        assert_eq!((verbs, words("resourceNames")), (vec!["get".to_owned()], vec!["kube-system".to_owned()]), "{rule}");
        return;
    }
    assert!(verbs.iter().all(|verb| verb == "list" || verb == "watch"), "{rule}");
    for group in words("apiGroups") {
        for plural in words("resources") {
            let full = if group.is_empty() { plural } else { format!("{plural}.{group}") };
            assert!(resources.contains(&full.as_str()), "nobody asked for {full}: {rule}");
        }
    }
}
