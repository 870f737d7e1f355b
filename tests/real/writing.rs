//! Who made each change: what the log names, beside what the API server's own audit log has of every request that wrote.
//! People and programs write in every way that kubectl and the API have, and the controllers of a whole cluster with them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde_json::{Value, json};

use crate::decklog::Decklog;
use crate::harness::{Cluster, LIMIT, Parts, Version, until};
use crate::judge::{Entry, Scope};

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const APPLY: &str = "application/apply-patch+yaml";
const JSON_PATCH: &str = "application/json-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";

/// Every write with its answer, which has the version that it made.
const AUDIT: &str = "apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- level: RequestResponse
  verbs: [create, update, patch, delete]
- level: Metadata
  users: [calm]
- level: None
";

/// See the module.
pub async fn scenario(version: Version) {
    let policy = tempfile::NamedTempFile::new().unwrap();
    fs::write(policy.path(), AUDIT).unwrap();
    let argument = format!("--audit-policy-file={}", policy.path().display());
    let cluster = Cluster::start_with(version, Parts::Full, &[&argument]).await;
    let resources = ["deployments.apps", "replicasets.apps", "configmaps", "pods", "nodes", "services"];
    let mut daemon = Decklog::new(&cluster, "calm", &format!("resources = {resources:?}"));
    let started = cluster.oracle().sync().await;
    daemon.start();
    daemon.ready().await;

    let writes = by_kubectl(&cluster).await + by_requests(&cluster).await;
    assert!(writes >= 30, "{writes} kinds of writes");

    let scope = Scope {
        late: false,
        started,
        upto: cluster.oracle().sync().await,
        namespaces: None,
        resources: Some(resources.iter().map(|name| (*name).to_owned()).collect()),
    };
    daemon.catch_up(&cluster, None, &scope).await;
    daemon.stop().await;
    daemon.judged(&cluster, None, &scope).await;
    compare(&cluster, daemon.entries(), writes);
}

/// What kubectl writes, as people use it.
async fn by_kubectl(cluster: &Cluster) -> usize {
    let mut writes = 0;
    let mut lines: Vec<Vec<&str>> = [
        "create deployment web --image=nginx:1.27 --replicas=2",
        "scale deployment web --replicas=3",
        // Nothing moves in managedFields where a manager writes again what it has.
        "scale deployment web --replicas=4",
        "set image deployment/web nginx=nginx:1.28",
        "set image deployment/web nginx=nginx:1.29",
        "set env deployment/web TIER=web",
        "set resources deployment/web --limits=cpu=1",
        "label deployment web team=shop",
        "label deployment web team=pay --overwrite",
        "annotate deployment web note=one",
        "annotate deployment web note=two --overwrite",
        "rollout restart deployment/web",
        "rollout undo deployment/web",
        "rollout pause deployment/web",
        "rollout resume deployment/web",
        "autoscale deployment web --min=1 --max=5",
        "expose deployment web --port=80",
        // What another has: kubectl takes it over, or takes it away.
        "label deployment web app=other --overwrite",
        "label deployment web team-",
        "create configmap settings --from-literal=x=1 --from-literal=y=1",
        "cordon node-0",
        "uncordon node-0",
        "taint nodes node-1 key=value:PreferNoSchedule",
        "label node node-1 zone=a",
    ]
    .map(|line| line.split(' ').collect())
    .to_vec();
    for patch in [r#"{"data":{"x":"5"}}"#, r#"{"data":{"x":"6"}}"#, r#"{"data":{"y":null}}"#] {
        lines.push(vec!["patch", "configmap", "settings", "--type=merge", "-p", patch]);
    }
    lines.push(vec![
        "patch",
        "deployment",
        "web",
        "--type=json",
        "-p",
        r#"[{"op":"replace","path":"/spec/revisionHistoryLimit","value":3}]"#,
    ]);
    lines.push(vec!["patch", "deployment", "web", "-p", r#"{"spec":{"minReadySeconds":1}}"#]);
    for line in &lines {
        cluster.kubectl_must(line).await;
        writes += 1;
    }
    let file = cluster.path("applied.json");
    let name = file.display().to_string();
    for (replicas, arguments) in [
        (1, &["apply", "-f", &name][..]),
        (2, &["apply", "-f", &name]),
        (3, &["apply", "--server-side", "--force-conflicts", "-f", &name]),
        (4, &["apply", "--server-side", "-f", &name]),
        (5, &["replace", "-f", &name]),
    ] {
        fs::write(&file, deployment("applied", replicas).to_string()).unwrap();
        cluster.kubectl_must(arguments).await;
        writes += 1;
    }
    until("all replicas", LIMIT, async || {
        let live = cluster.get(&format!("{DEPLOYMENTS}/web")).await?;
        let status = &live["status"];
        if status["readyReplicas"] == live["spec"]["replicas"]
            && status["observedGeneration"] == live["metadata"]["generation"]
        {
            Ok(())
        } else {
            Err(status.to_string())
        }
    })
    .await;
    // A deletion with grace, and one that waits for a finalizer.
    let pods = cluster.get("/api/v1/namespaces/default/pods?labelSelector=app%3Dnginx").await.unwrap();
    let pods = pods["items"].as_array().cloned().unwrap_or_default();
    if let Some(pod) = pods.first().and_then(|pod| pod["metadata"]["name"].as_str()) {
        cluster.kubectl_must(&["delete", "pod", pod, "--wait=false"]).await;
        writes += 1;
    }
    cluster.kubectl_must(&["delete", "deployment", "web", "--cascade=foreground", "--wait=false"]).await;
    writes + 1
}

fn deployment(name: &str, replicas: u64) -> Value {
    let labels = json!({"app": "nginx"});
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "nginx", "image": "nginx:1"}]}},
        },
    })
}

/// What programs write: each way that the API has, by managers of their own.
async fn by_requests(cluster: &Cluster) -> usize {
    let mut writes = 0;
    let map =
        |data: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "shared"}, "data": data});
    let one = format!("{MAPS}/shared");
    let send = async |method: &str, path: &str, manager: &str, kind: &str, body: Value| {
        let force = if kind == APPLY { "&force=true" } else { "" };
        let path = format!("{path}?fieldManager={manager}{force}");
        let (status, answer) = cluster.send(method, &path, kind, Some(&body)).await;
        assert!((200..300).contains(&status), "{method} {path}: {status} {answer}");
        answer
    };
    let merge = "application/merge-patch+json";
    let requests = [
        ("POST", MAPS, "creator", "application/json", map(json!({"a": "1", "b": "1"}))),
        ("PATCH", &one, "patcher", merge, json!({"data": {"a": "2"}})),
        ("PATCH", &one, "patcher", merge, json!({"data": {"a": "3"}})),
        // Two in one second, each with a key of its own, and then each the other's.
        ("PATCH", &one, "first", merge, json!({"data": {"f": "1"}})),
        ("PATCH", &one, "second", merge, json!({"data": {"s": "1"}})),
        ("PATCH", &one, "first", merge, json!({"data": {"s": "2"}})),
        ("PATCH", &one, "second", merge, json!({"data": {"f": "2"}})),
        ("PATCH", &one, "second", merge, json!({"data": {"f": "3"}})),
        // What another has goes, and nobody gains.
        ("PATCH", &one, "remover", merge, json!({"data": {"b": null}})),
        ("PATCH", &one, "second", JSON_PATCH, json!([{"op": "remove", "path": "/data/s"}])),
        ("PATCH", &one, "applier", APPLY, map(json!({"a": "9", "z": "1"}))),
        ("PATCH", &one, "applier", APPLY, map(json!({"a": "10", "z": "1"}))),
        // It lets a field go, which goes.
        ("PATCH", &one, "applier", APPLY, map(json!({"a": "10"}))),
        ("PATCH", &one, "taker", APPLY, map(json!({"a": "11"}))),
        // Both own it now, and one of them changes it.
        ("PATCH", &one, "applier", APPLY, map(json!({"a": "11"}))),
        ("PATCH", &one, "applier", APPLY, map(json!({"a": "12"}))),
        (
            "PATCH",
            &one,
            "labeller",
            STRATEGIC,
            json!({"metadata": {"labels": {"x": "1"}, "finalizers": ["example.com/f"]}}),
        ),
    ];
    for (method, path, manager, kind, body) in requests {
        send(method, path, manager, kind, body).await;
        writes += 1;
    }
    for (value, manager) in [("20", "putter"), ("21", "putter"), ("22", "other-putter")] {
        let mut live = cluster.get(&one).await.unwrap();
        live["data"]["a"] = value.into();
        send("PUT", &one, manager, "application/json", live).await;
        writes += 1;
    }
    cluster.delete(&one).await;
    send("PATCH", &one, "finisher", merge, json!({"metadata": {"finalizers": null}})).await;
    // Subresources, of an object that no controller works on.
    let mut idle = deployment("idle", 0);
    idle["spec"]["paused"] = true.into();
    send("POST", DEPLOYMENTS, "creator", "application/json", idle).await;
    let idle = format!("{DEPLOYMENTS}/idle");
    for replicas in [1, 2] {
        let body = json!({"spec": {"replicas": replicas}});
        send("PATCH", &format!("{idle}/scale"), "autoscaler", merge, body).await;
        writes += 1;
    }
    for status in ["True", "False"] {
        let condition = json!([{"type": "Example", "status": status, "lastTransitionTime": "2026-11-22T10:00:00Z"}]);
        send("PATCH", &format!("{idle}/status"), "prober", merge, json!({"status": {"conditions": condition}})).await;
        writes += 1;
    }
    writes + 2
}

/// Who asked for a version of an object: all whose answer had it. A write that changes nothing is answered with the
/// version that is there.
fn truth(cluster: &Cluster) -> BTreeMap<(String, String, u64), BTreeSet<(String, String)>> {
    let log = fs::read_to_string(cluster.path("kube-apiserver-audit.log")).unwrap();
    let mut truth = BTreeMap::<_, BTreeSet<_>>::new();
    for event in log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let of = &event["objectRef"];
        let answer = &event["responseObject"]["metadata"];
        let Some(version) = answer["resourceVersion"].as_str().and_then(|version| version.parse().ok()) else {
            continue;
        };
        let group = text(&of["apiGroup"]);
        let resource = text(&of["resource"]);
        let resource = if group.is_empty() { resource } else { format!("{resource}.{group}") };
        let uri = text(&event["requestURI"]);
        let asked = uri.split(['?', '&']).find_map(|part| part.strip_prefix("fieldManager="));
        let agent = text(&event["userAgent"]);
        let manager = asked.map_or_else(|| agent.split('/').next().unwrap_or_default().to_owned(), str::to_owned);
        let how = format!("{} {}", text(&event["verb"]), text(&of["subresource"]));
        let name = answer["name"].as_str().map_or_else(|| text(&of["name"]), str::to_owned);
        truth.entry((resource, name, version)).or_default().insert((manager, how.trim_end().to_owned()));
    }
    truth
}

/// Compares what the log names with who asked.
fn compare(cluster: &Cluster, log: &[Entry], writes: usize) {
    let truth = truth(cluster);
    let (mut by, mut nobody, mut wrong) =
        (BTreeMap::<&str, usize>::new(), BTreeMap::<String, usize>::new(), Vec::new());
    let mut known = BTreeSet::new();
    for entry in log.iter().filter(|entry| entry.kind == "MODIFIED") {
        let change = entry.change.as_ref().unwrap();
        let named: Vec<&str> = change.managers.iter().filter_map(|manager| manager["manager"].as_str()).collect();
        let asked = truth.get(&(entry.full_resource(), entry.name.clone(), entry.rv()));
        // A binding is answered with a Status: only the scheduler makes any.
        let binding = BTreeSet::from([("kube-scheduler".to_owned(), "create binding".to_owned())]);
        let binds = change.patch.iter().any(|step| step["path"] == "/spec/nodeName");
        let Some(asked) = asked.or_else(|| binds.then_some(&binding)) else {
            // It was answered with a Status, as deletions are, and those name nobody.
            assert!(named.is_empty(), "nobody asked for it: {entry}: {named:?}; {:?}", change.patch);
            *by.entry("nobody").or_default() += 1;
            *nobody.entry("a deletion, answered with a Status".to_owned()).or_default() += 1;
            continue;
        };
        known.extend(asked.iter().map(|(manager, _)| manager.clone()));
        let right = named.iter().filter(|name| asked.iter().any(|(manager, _)| manager == *name)).count();
        let how = match (named.len(), right) {
            (0, _) => {
                let areas = change.areas.iter().filter(|area| *area != "managedFields").cloned().collect::<Vec<_>>();
                let hows: BTreeSet<&str> = asked.iter().map(|(_, how)| how.as_str()).collect();
                let removes = change.patch.iter().all(|step| {
                    let path = step["path"].as_str().unwrap();
                    step["op"] == "remove"
                        || path.starts_with("/metadata/managedFields")
                        || path == "/metadata/resourceVersion"
                        || path == "/metadata/generation"
                });
                let why = if removes { ", removed what another had" } else { "" };
                *nobody.entry(format!("{hows:?} {}{why}", areas.join("+"))).or_default() += 1;
                "nobody"
            }
            (1, 1) if change.managers[0]["by"] == "owner" => "the owner",
            (_, 0) => {
                wrong.push(format!("{entry}: {named:?}, and it was {asked:?}; {:?}", change.patch));
                "wrong"
            }
            (1, _) => "moved",
            // Whoever is said to have written has written.
            (all, right) if change.managers[0]["by"] == "moved" && right < all => {
                wrong.push(format!("{entry}: {named:?}, and it was {asked:?}; {:?}", change.patch));
                "wrong"
            }
            (_, _) => "one of several",
        };
        *by.entry(how).or_default() += 1;
    }
    let all: usize = by.values().sum();
    eprintln!("{writes} kinds of writes, {all} changes by {}: {by:?}; nobody is named of {nobody:#?}", known.len());
    assert!(wrong.is_empty(), "{} of {all} are wrong:\n{}", wrong.len(), wrong.join("\n"));
    for (how, least) in [("moved", 30), ("the owner", 10)] {
        assert!(by.get(how).is_some_and(|count| *count >= least), "{by:?}");
    }
    // What nobody is named for was removed, deleted or bound: no manager gains by that.
    for how in nobody.keys() {
        let explained = how.contains("removed") || how.contains("delet") || how.contains("binding");
        assert!(explained, "nobody is named, and nothing says why: {nobody:#?}");
    }
}
