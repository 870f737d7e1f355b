//! The questions of whoever is on call, on a real control plane: what changed, who did it, what is not known.

use std::time::Duration;

use decklog_testkit::browser::browse;
use jiff::Timestamp;
use rustix::process::Signal;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::decklog::Decklog;
use crate::harness::{Cluster, LIMIT, Parts, Version, until};

/// Time for which decklog is away.
const AWAY: Duration = Duration::from_secs(12);

/// Stdout and stderr of a command that must succeed.
fn ask(daemon: &Decklog, line: &[&str]) -> (String, String) {
    let answer = daemon.command(line);
    let (out, err) = (String::from_utf8_lossy(&answer.stdout), String::from_utf8_lossy(&answer.stderr));
    assert!(answer.status.success(), "{line:?}: {out}{err}");
    (out.into_owned(), err.into_owned())
}

/// Deployments that roll out, a ConfigMap, a Secret, and somebody who writes the same over and over.
async fn prepare(cluster: &Cluster) {
    for namespace in ["shop", "team-a"] {
        cluster.kubectl_must(&["create", "namespace", namespace]).await;
    }
    for name in ["checkout", "cart", "web"] {
        let (image, replicas) = (format!("--image=registry.example/{name}:1.4.0"), "--replicas=2");
        cluster.kubectl_must(&["create", "deployment", name, "-n", "shop", &image, replicas]).await;
    }
    for name in ["one", "two", "three"] {
        cluster.create("/api/v1/namespaces/team-a/configmaps", &json!({"metadata": {"name": name}})).await;
    }
    cluster
        .create(
            "/api/v1/namespaces/team-a/services",
            &json!({"metadata": {"name": "api"}, "spec": {"ports": [{"port": 80}]}}),
        )
        .await;
    cluster.kubectl_must(&["create", "configmap", "settings", "-n", "shop", "--from-literal=limit=10"]).await;
    cluster.kubectl_must(&["create", "secret", "generic", "db", "-n", "shop", "--from-literal=password=a"]).await;
    until("the Pods", LIMIT, async || {
        let ready = cluster.call("GET", "/apis/apps/v1/namespaces/shop/deployments", None).await.1;
        let items = ready["items"].as_array().cloned().unwrap_or_default();
        let all = items.len() == 3 && items.iter().all(|item| item["status"]["readyReplicas"] == 2);
        if all { Ok(()) } else { Err(ready.to_string()) }
    })
    .await;
}

/// Eight causes, as people and programs bring them about. The last one is the cordon.
async fn happen(cluster: &Cluster) {
    let merge = |what: &'static str| ["--type=merge", "-p", what];
    cluster
        .kubectl_must(&[
            "set",
            "image",
            "deployment/checkout",
            "*=registry.example/checkout:1.5.0",
            "-n",
            "shop",
            "--field-manager=ci-deploy",
        ])
        .await;
    let patch = ["patch", "configmap", "settings", "-n", "shop", "--field-manager=kubectl-edit"];
    cluster.kubectl_must(&[&patch[..], &merge(r#"{"data":{"limit":"1"}}"#)].concat()).await;
    let patch = ["patch", "secret", "db", "-n", "shop", "--field-manager=external-secrets"];
    cluster.kubectl_must(&[&patch[..], &merge(r#"{"stringData":{"password":"b"}}"#)].concat()).await;
    let deny = json!({"metadata": {"name": "deny-all"}, "spec": {"podSelector": {}, "policyTypes": ["Ingress"]}});
    cluster.create("/apis/networking.k8s.io/v1/namespaces/shop/networkpolicies", &deny).await;
    cluster.kubectl_must(&["scale", "deployment", "cart", "-n", "shop", "--replicas=0"]).await;
    cluster.kubectl_must(&["delete", "configmap", "one", "two", "three", "-n", "team-a"]).await;
    cluster.kubectl_must(&["delete", "service", "api", "-n", "team-a"]).await;
    cluster
        .kubectl_must(&["create", "clusterrolebinding", "temp-admin", "--clusterrole=cluster-admin", "--user=someone"])
        .await;
    cluster.kubectl_must(&["cordon", "node-0"]).await;
    // What controllers make of it has happened as well.
    until("what follows", LIMIT, async || {
        let deployments = cluster.call("GET", "/apis/apps/v1/namespaces/shop/deployments", None).await.1;
        let items = deployments["items"].as_array().cloned().unwrap_or_default();
        let settled = items.iter().all(|item| {
            let replicas = item["spec"]["replicas"].as_u64().unwrap_or_default();
            item["status"]["updatedReplicas"].as_u64().unwrap_or_default() == replicas
                && item["status"]["replicas"].as_u64().unwrap_or_default() == replicas
                && item["status"]["readyReplicas"].as_u64().unwrap_or_default() == replicas
        });
        if settled { Ok(()) } else { Err(deployments.to_string()) }
    })
    .await;
}

/// See the module.
pub async fn scenario(version: Version) {
    let cluster = Cluster::start(version, Parts::Full).await;
    prepare(&cluster).await;
    let resources = [
        "deployments.apps",
        "replicasets.apps",
        "pods",
        "configmaps",
        "secrets",
        "services",
        "nodes",
        "networkpolicies.networking.k8s.io",
        "clusterrolebindings.rbac.authorization.k8s.io",
    ];
    let mut daemon = Decklog::new(&cluster, "calm", &format!("resources = {resources:?}"));
    let page = daemon.has_page();
    daemon.start();
    daemon.ready().await;

    let begin = Timestamp::now().to_string();
    happen(&cluster).await;
    daemon.tells("the cordon", |entry| entry.name == "node-0" && entry.kind == "MODIFIED").await;
    what_changed(&daemon, &begin);
    what_the_page_shows(&page, &begin);

    // While decklog does not run, somebody sets an image, and the log says when.
    daemon.stop().await;
    let before = Timestamp::now();
    cluster.kubectl_must(&["set", "image", "deployment/web", "*=registry.example/web:9", "-n", "shop"]).await;
    let after = Timestamp::now();
    until("the end of the absence", LIMIT, async || {
        if Timestamp::now().duration_since(before).unsigned_abs() > AWAY { Ok(()) } else { Err("too soon".to_owned()) }
    })
    .await;
    daemon.start();
    daemon.ready().await;
    let is_set = |object: &RawValue| object.get().contains("registry.example/web:9");
    daemon
        .tells("the image", |entry| entry.resource == "deployments" && entry.object.as_deref().is_some_and(is_set))
        .await;
    what_changed_meanwhile(&daemon, before, after).await;

    // An API server that stands still is no quiet cluster.
    let stopped = Timestamp::now();
    cluster.signal_api(Signal::STOP);
    let note = "the API server has not answered since ";
    until("a note that nothing newer is known", LIMIT, async || {
        let said = ask(&daemon, &["tail", "--last", "1"]).1;
        if said.contains(note) { Ok(()) } else { Err(said) }
    })
    .await;
    let since = stopped.to_string();
    for line in
        [&["log", "deploy/web", "-n", "shop"][..], &["get", "deploy/web", "-n", "shop"], &["diff", "-n", "shop"]]
    {
        let (out, err) = ask(&daemon, line);
        assert!(format!("{out}{err}").contains(note), "{line:?}: {out}{err}");
    }
    let (covered, _) = ask(&daemon, &["coverage", "--since", &since]);
    assert!(covered.contains("the API server does not answer"), "{covered}");
    assert!(!daemon.command(&["status", "--check"]).status.success(), "nobody would look");
    cluster.signal_api(Signal::CONT);
    until("the API server to answer", LIMIT, async || {
        let said = ask(&daemon, &["tail", "--last", "1"]).1;
        if said.contains(note) { Err(said) } else { Ok(()) }
    })
    .await;
    daemon.stop().await;
}

/// One command shows each cause with who it was, in a screen, and the causes come first in JSON.
fn what_changed(daemon: &Decklog, begin: &str) {
    let causes: [(&str, &str); 11] = [
        ("deploy/checkout", "ci-deploy"),
        ("cm/settings", "kubectl-edit"),
        ("secret/db", "external-secrets"),
        ("netpol/deny-all", ""),
        ("deploy/cart", "scale to 0"),
        ("cm/one", "deletion"),
        ("cm/two", ""),
        ("cm/three", ""),
        ("svc/api", "deletion"),
        ("temp-admin", "kubectl-create"),
        ("node-0", "(kubectl"),
    ];
    let (text, _) = ask(daemon, &["log", "--since", begin]);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines.len() <= 25, "{} lines:\n{text}", lines.len());
    for (object, by) in causes {
        let short = object.split_once('/').map_or(object, |(_, name)| name);
        let found = lines.iter().any(|line| (line.contains(object) || line.contains(short)) && line.contains(by));
        assert!(found, "{object} by {by:?}:\n{text}");
    }
    let (json, _) = ask(daemon, &["log", "--since", begin, "-o", "json"]);
    let documents: Vec<Value> = json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let first_other = documents.iter().position(|one| one["role"] != "cause").unwrap_or(documents.len());
    let named: Vec<String> = documents[..first_other].iter().map(|one| one["objects"].to_string()).collect();
    for (object, _) in causes {
        let short = object.split_once('/').map_or(object, |(_, name)| name);
        assert!(named.iter().any(|objects| objects.contains(&format!("\"{short}\""))), "{short}: {named:?}");
    }
    let (of_shop, _) = ask(daemon, &["log", "-n", "shop", "--since", begin]);
    assert!(!of_shop.contains("team-a") && of_shop.contains("checkout"), "{of_shop}");
}

/// The page of the daemon has each cause among its first ten lanes, at 1600×1000 and on a phone.
fn what_the_page_shows(page: &str, begin: &str) {
    let (cm, svc) = (|name: &str| format!("configmaps/team-a/{name}"), "services/team-a/api".to_owned());
    let one = |id: &str| vec![id.to_owned()];
    let done = [
        one("deployments.apps/shop/checkout"),
        one("configmaps/shop/settings"),
        one("secrets/shop/db"),
        one("networkpolicies.networking.k8s.io/shop/deny-all"),
        one("deployments.apps/shop/cart"),
        // Of four deletions any.
        vec![cm("one"), cm("two"), cm("three"), svc],
        one("clusterrolebindings.rbac.authorization.k8s.io//temp-admin"),
        one("nodes//node-0"),
    ];
    let incident = json!({"since": begin, "until": Timestamp::now().to_string(), "done": done}).to_string();
    browse("incident", "first ten lanes", &[("DECKLOG_UI_URL", page), ("DECKLOG_UI_DONE", &incident)]);
}

/// What happened while decklog was down is found by its own time, by every question.
async fn what_changed_meanwhile(daemon: &Decklog, before: Timestamp, after: Timestamp) {
    let slack = jiff::SignedDuration::from_secs(1);
    let (from, to) = ((before - slack).to_string(), (after + slack).to_string());
    let web = ["deploy/web", "-n", "shop"];
    let (history, _) = ask(daemon, &[&["log"][..], &web, &["--since", &from, "--until", &to]].concat());
    assert!(history.contains("image …1.4.0 → …9") && history.contains("kubectl-set"), "{history}");
    let (difference, _) = ask(daemon, &[&["diff"][..], &web, &["--from", &from, "--to", &to]].concat());
    assert!(difference.contains("image") && difference.contains("kubectl-set"), "{difference}");
    let image = |time: &str| ask(daemon, &[&["get"][..], &web, &["--at", time, "-o", "yaml"]].concat()).0;
    assert!(image(&from).contains("web:1.4.0") && image(&to).contains("web:9"), "{}{}", image(&from), image(&to));
    let (_, notes) = ask(daemon, &["tail", "--type", "GAP", "--since", &from]);
    assert!(notes.contains("no daemon ran from "), "{notes}");
    let (covered, _) = ask(daemon, &["coverage", "--since", &from, "--until", &to]);
    assert!(covered.contains("no daemon ran from ") && covered.contains("the log knows all"), "{covered}");
    let (_, other) = ask(daemon, &["log", "cm/settings", "-n", "shop", "--since", &before.to_string(), "--until", &to]);
    assert!(other.contains("no entry") && other.contains("no daemon ran from"), "{other}");
}
