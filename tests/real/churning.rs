//! The three articles that decklog was asked for by, on a real API server: reconcilers that write for nothing, several
//! applies of one new name at the same moment, and subresources.

use std::collections::BTreeSet;
use std::fs;

use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use crate::decklog::Decklog;
use crate::harness::{Cluster, LIMIT, Parts, Version, until};
use crate::judge::{Kind, Scope};
use crate::rights;

const ALL: &str = "/apis/apps/v1/namespaces/default/deployments";
/// How often each way reconciles what is right already.
const ROUNDS: usize = 4;

/// What a controller knows of its Deployment, which the API server completes.
fn sparse(name: &str) -> Value {
    let labels = json!({"component": "nginx"});
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default", "labels": labels},
        "spec": {
            "replicas": 1, "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "nginx", "image": "nginx:latest"}]},
            },
        },
    })
}

fn with_probe(name: &str) -> Value {
    let mut object = sparse(name);
    object["spec"]["template"]["spec"]["containers"][0]["readinessProbe"] = json!({"tcpSocket": {"port": 80}});
    object
}

/// Whether everything that is wanted is there: a comparison that does not look at what the other side has besides.
fn derives(wanted: &Value, have: &Value) -> bool {
    match (wanted, have) {
        (Value::Object(wanted), Value::Object(have)) => {
            wanted.iter().all(|(key, value)| derives(value, have.get(key).unwrap_or(&Value::Null)))
        }
        (Value::Array(wanted), Value::Array(have)) => {
            wanted.len() == have.len() && wanted.iter().zip(have).all(|(wanted, have)| derives(wanted, have))
        }
        _ => wanted == have,
    }
}

/// Requests for Deployments that were granted and can change one, as the API server itself counts them.
async fn requests(cluster: &Cluster) -> u64 {
    let bytes = cluster.open("/metrics").await.collect().await.unwrap().to_bytes();
    let text = std::str::from_utf8(&bytes).unwrap();
    let ours = text.lines().filter(|line| {
        let has = |label: &str| line.contains(label);
        line.starts_with("apiserver_request_total{")
            && has("resource=\"deployments\"")
            && has("code=\"2")
            && ["POST", "PUT", "PATCH", "APPLY", "DELETE"].iter().any(|verb| has(&format!("verb=\"{verb}\"")))
    });
    ours.map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum()
}

/// Versions that etcd has of a Deployment.
async fn versions(cluster: &Cluster, name: &str) -> usize {
    cluster.oracle().sync().await;
    cluster.oracle().rows().iter().filter(|row| row.resource == "deployments.apps" && row.key.1 == name).count()
}

/// A round of each of the five ways, the third of them twice. What is there is right already.
async fn reconcile(cluster: &Cluster, way: usize) {
    let name = format!("way-{way}");
    let one = format!("{ALL}/{name}");
    match way {
        // The whole spec, as the controller knows it, over the one that the server has completed.
        1 => {
            let mut live = cluster.get(&one).await.unwrap();
            live["spec"] = sparse(&name)["spec"].clone();
            cluster.must("PUT", &format!("{one}?fieldManager=overwriter"), Some(&live)).await;
        }
        // Only the fields that are its own, and only where that makes a difference.
        2 => {
            let live = cluster.get(&one).await.unwrap();
            let mut wanted = live.clone();
            wanted["spec"]["replicas"] = 1.into();
            wanted["metadata"]["labels"] = json!({"component": "nginx"});
            wanted["spec"]["template"]["spec"]["containers"][0]["image"] = "nginx:latest".into();
            if wanted != live {
                cluster.must("PUT", &format!("{one}?fieldManager=careful"), Some(&wanted)).await;
            }
        }
        // A comparison that overlooks what the server has filled in.
        3 => {
            let live = cluster.get(&one).await.unwrap();
            if !derives(&sparse(&name)["spec"], &live["spec"]) {
                cluster.must("PUT", &format!("{one}?fieldManager=derivative"), Some(&live)).await;
            }
        }
        // The same, of a probe as the controller's own type has it: its zeros are what the server fills in.
        6 => {
            let live = cluster.get(&one).await.unwrap();
            let mut wanted = with_probe(&name);
            let probe = &mut wanted["spec"]["template"]["spec"]["containers"][0]["readinessProbe"];
            (probe["periodSeconds"], probe["timeoutSeconds"]) = (0.into(), 0.into());
            if !derives(&wanted["spec"], &live["spec"]) {
                let mut update = live;
                update["spec"] = with_probe(&name)["spec"].clone();
                cluster.must("PUT", &format!("{one}?fieldManager=derivative"), Some(&update)).await;
            }
        }
        // kubectl apply, by the annotation with what it applied last.
        4 => apply(cluster, &sparse(&name)).await.unwrap(),
        // Server-side apply: the server keeps the books.
        _ => drop(server_side(cluster, &name, "applier").await),
    }
}

async fn server_side(cluster: &Cluster, name: &str, manager: &str) -> Value {
    let path = format!("{ALL}/{name}?fieldManager={manager}&force=true");
    let (status, answer) = cluster.send("PATCH", &path, "application/apply-patch+yaml", Some(&sparse(name))).await;
    assert!((200..300).contains(&status), "{status} {answer}");
    answer
}

/// `kubectl apply` of one object; what it says where it fails.
async fn apply(cluster: &Cluster, object: &Value) -> Result<(), String> {
    let name = object["metadata"]["name"].as_str().unwrap();
    let content = object.to_string();
    // Several at once each have a file of their own.
    let file = cluster.path(&format!("apply-{name}-{}.json", crc32fast::hash(content.as_bytes())));
    fs::write(&file, content).unwrap();
    let output = cluster.kubectl(&["apply", "-f", &file.display().to_string()]).await;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

/// (8) of the proof.
pub async fn scenario(version: Version) {
    let cluster = Cluster::start(version, Parts::Bare).await;
    let resources = ["deployments.apps", "configmaps"];
    let mut daemon = Decklog::new(&cluster, "restricted", &format!("resources = {resources:?}"));
    daemon.counts_requests();
    let check = daemon.command(&["check"]);
    let said = String::from_utf8_lossy(&check.stdout).into_owned();
    assert!(said.contains("/metrics may not be read"), "{said}");
    rights::grant(&cluster, &daemon, "restricted", &resources).await;
    until("check to find nothing wrong", LIMIT, async || {
        let check = daemon.command(&["check"]);
        if check.status.success() { Ok(()) } else { Err(format!("{check:?}")) }
    })
    .await;
    let started = cluster.oracle().sync().await;
    daemon.start();
    daemon.ready().await;
    // From the first reading on, requests and versions are counted.
    counted(&daemon, "").await;
    let before = requests(&cluster).await;

    five_ways(&cluster).await;
    fights(&cluster).await;
    races(&cluster).await;
    subresources(&cluster).await;

    let scope = Scope {
        late: false,
        started,
        upto: cluster.oracle().sync().await,
        namespaces: None,
        resources: Some(resources.iter().map(|name| (*name).to_owned()).collect()),
    };
    daemon.catch_up(&cluster, None, &scope).await;
    let made = requests(&cluster).await - before;
    let report = counted(&daemon, &jiff::Timestamp::now().to_string()).await;
    let metrics = daemon.metrics();
    daemon.stop().await;
    daemon.judged(&cluster, None, &scope).await;
    eprintln!("{}", String::from_utf8_lossy(&daemon.command(&["churn", "--requests"]).stdout));
    told_requests(&cluster, &report, made, started);
    told_metrics(&report, &metrics);
    told_fights(&report);
    told_races(&mut daemon);
    told_subresources(&daemon);
}

/// What `churn --requests` says, once the counters were read after a moment.
async fn counted(daemon: &Decklog, moment: &str) -> Value {
    until("the request counters to be read", LIMIT, async || {
        let answer = daemon.command(&["churn", "--requests", "-o", "json"]);
        if !answer.status.success() {
            return Err(String::from_utf8_lossy(&answer.stderr).into_owned());
        }
        let report: Value = serde_json::from_slice(&answer.stdout).unwrap();
        let until = report["requests"]["until"].as_str().unwrap().to_owned();
        if until.as_str() >= moment { Ok(report) } else { Err(format!("they were read at {until}")) }
    })
    .await
}

/// (a) Of each way how many requests it made and how many versions came of them.
async fn five_ways(cluster: &Cluster) {
    let mut found = Vec::new();
    for way in 1..=6 {
        let name = format!("way-{way}");
        match way {
            4 => apply(cluster, &sparse(&name)).await.unwrap(),
            5 => drop(server_side(cluster, &name, "applier").await),
            6 => drop(cluster.create(ALL, &with_probe(&name)).await),
            _ => drop(cluster.create(ALL, &sparse(&name)).await),
        }
        assert_eq!(versions(cluster, &name).await, 1, "it was made");
        let before = requests(cluster).await;
        for _ in 0..ROUNDS {
            reconcile(cluster, way).await;
        }
        found.push((way, requests(cluster).await - before, versions(cluster, &name).await - 1));
    }
    let rounds = ROUNDS as u64;
    assert_eq!(found, [(1, rounds, 0), (2, 0, 0), (3, 0, 0), (4, 0, 0), (5, rounds, 0), (6, rounds, 0)]);
    // Another manager that applies the same makes one version, of the books alone, and then none.
    let before = requests(cluster).await;
    for _ in 0..ROUNDS {
        server_side(cluster, "way-1", "adopter").await;
    }
    assert_eq!((requests(cluster).await - before, versions(cluster, "way-1").await), (rounds, 2));
}

/// Two managers that overwrite each other's image, and one that renews a time stamp.
async fn fights(cluster: &Cluster) {
    cluster.create(ALL, &sparse("fought")).await;
    cluster.create(ALL, &sparse("stamped")).await;
    // Each has something that nobody takes away, so that managedFields always name both.
    for manager in ["deployer", "updater"] {
        let patch = json!({"metadata": {"labels": {manager: "was-here"}}});
        cluster.patch(&format!("{ALL}/fought?fieldManager={manager}"), &patch).await;
    }
    for round in 0..ROUNDS {
        for (manager, image) in [("deployer", "nginx:1.28"), ("updater", "nginx:1.29")] {
            let one = format!("{ALL}/fought");
            let mut live = cluster.get(&one).await.unwrap();
            live["spec"]["template"]["spec"]["containers"][0]["image"] = image.into();
            cluster.must("PUT", &format!("{one}?fieldManager={manager}"), Some(&live)).await;
        }
        let stamp = format!("2026-11-21T10:00:{round:02}Z");
        let patch = json!({"metadata": {"annotations": {"careless.example.com/reconciled": stamp}}});
        cluster.patch(&format!("{ALL}/stamped?fieldManager=careless"), &patch).await;
    }
    assert_eq!(versions(cluster, "fought").await, 3 + 2 * ROUNDS);
    assert_eq!(versions(cluster, "stamped").await, 1 + ROUNDS);
}

/// (b) Eight applies of one new name at the same moment, and names that go while others make them anew.
async fn races(cluster: &Cluster) {
    let map = |name: &str, side: usize| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": "default"}, "data": {"side": side.to_string()},
        })
    };
    let sides = (0..8).map(|side| {
        let object = map("raced", side);
        async move { apply(cluster, &object).await }
    });
    let ends = futures::future::join_all(sides).await;
    let refused: Vec<&String> = ends.iter().filter_map(|end| end.as_ref().err()).collect();
    assert!(
        refused.iter().all(|error| error.contains("AlreadyExists")),
        "an apply may only lose the race: {refused:?}"
    );
    cluster.oracle().sync().await;
    let rows: Vec<Kind> =
        cluster.oracle().rows().iter().filter(|row| row.key.1 == "raced").map(|row| row.kind).collect();
    // Who found it there wrote something else into it.
    let mut expected = vec![Kind::Added];
    expected.resize(ends.len() - refused.len(), Kind::Modified);
    assert_eq!(rows, expected);
    // Without a look before, all but one are refused.
    let all = "/api/v1/namespaces/default/configmaps";
    let posts = (0..8).map(|side| {
        let object = map("posted", side);
        async move { cluster.call("POST", all, Some(&object)).await.0 }
    });
    let mut ends = futures::future::join_all(posts).await;
    ends.sort_unstable();
    assert_eq!(ends, [201, 409, 409, 409, 409, 409, 409, 409]);
    for round in 0..ROUNDS {
        let made = map("reborn", round);
        let deletion = async {
            let _gone_already = cluster.call("DELETE", "/api/v1/namespaces/default/configmaps/reborn", None).await;
        };
        let (_, end) = tokio::join!(deletion, apply(cluster, &made));
        // An apply that found it may come too late to change it.
        assert!(end.is_ok() || end.as_ref().is_err_and(|error| error.contains("NotFound")), "{end:?}");
    }
    let (status, _) = cluster.call("GET", "/api/v1/namespaces/default/configmaps/reborn", None).await;
    if status != 200 {
        apply(cluster, &map("reborn", ROUNDS)).await.unwrap();
    }
    cluster.delete("/api/v1/namespaces/default/configmaps/reborn").await;
    apply(cluster, &map("reborn", 99)).await.unwrap();
}

/// (c) Changes through subresources.
async fn subresources(cluster: &Cluster) {
    let one = format!("{ALL}/way-2");
    let scale = json!({"spec": {"replicas": 3}});
    cluster.patch(&format!("{one}/scale?fieldManager=scaler"), &scale).await;
    let status = json!({"status": {"observedGeneration": 1, "replicas": 1}});
    cluster.patch(&format!("{one}/status?fieldManager=reporter"), &status).await;
}

/// Each request is in the report, those that made no version are told as such, and the rest of the log agrees.
fn told_requests(cluster: &Cluster, report: &Value, made: u64, started: u64) {
    let all = report["requests"]["resources"].as_array().unwrap();
    let deployments = all.iter().find(|of| of["resource"] == "deployments.apps").unwrap();
    assert_eq!(deployments["requests"], made, "{deployments:#}");
    let rows = cluster.oracle().rows();
    let versions = rows.iter().filter(|row| row.resource == "deployments.apps" && row.rev > started).count() as u64;
    assert_eq!(deployments["versions"]["all"], versions, "{deployments:#}");
    // The overwriter, the applier, the one with the probe, and all but the first of the adopter.
    let rounds = ROUNDS as u64;
    assert_eq!(deployments["dropped"], 4 * rounds - 1, "{deployments:#}");
    assert_eq!((deployments["verbs"]["PUT"].as_u64(), made - versions), (Some(4 * rounds), 4 * rounds - 1));
    let class = |name: &str| {
        let classes = report["classes"].as_array().unwrap();
        classes.iter().find(|class| class["class"] == name).unwrap()["writes"].as_u64().unwrap()
    };
    assert_eq!(class("managed-fields"), 1, "the adopter: {report:#}");
    assert_eq!(class("time-stamps"), rounds - 1, "the first one was new: {report:#}");
}

/// The metrics say the same, by resource alone.
fn told_metrics(report: &Value, metrics: &str) {
    let all = report["requests"]["resources"].as_array().unwrap();
    let deployments = all.iter().find(|of| of["resource"] == "deployments.apps").unwrap();
    let values = |name: &str| -> Vec<(String, u64)> {
        let begin = format!("decklog_{name}_total{{resource=\"deployments.apps\",");
        let found = metrics.lines().filter_map(|line| line.strip_prefix(&begin)?.split_once("\"} "));
        found.map(|(label, value)| (label.split_once('"').unwrap().1.to_owned(), value.parse().unwrap())).collect()
    };
    let verbs = deployments["verbs"].as_object().unwrap();
    let verbs: Vec<(String, u64)> = verbs.iter().map(|(verb, count)| (verb.clone(), count.as_u64().unwrap())).collect();
    let mut requests = values("apiserver_write_requests");
    requests.sort();
    assert_eq!(requests, verbs, "{metrics}");
    let writes: u64 = values("churn_writes").iter().map(|(_, count)| count).sum();
    assert_eq!(writes, deployments["versions"]["all"].as_u64().unwrap(), "{metrics}");
}

/// The fight and the time stamp are named: field, values, managers.
fn told_fights(report: &Value) {
    let fights = report["fights"].as_array().unwrap();
    let [fight] = &fights[..] else { panic!("{report:#}") };
    assert_eq!((&fight["resource"], &fight["name"]), (&json!("deployments.apps"), &json!("fought")));
    assert_eq!(fight["field"], "/spec/template/spec/containers/0/image");
    assert_eq!(fight["writes"], 2 * ROUNDS);
    let sides: Vec<(&str, &str, u64)> = fight["sides"]
        .as_array()
        .unwrap()
        .iter()
        .map(|side| {
            let text = |key: &str| side[key].as_str().unwrap();
            (text("manager"), text("value"), side["times"].as_u64().unwrap())
        })
        .collect();
    let rounds = ROUNDS as u64;
    assert_eq!(sides, [("deployer", "\"nginx:1.28\"", rounds), ("updater", "\"nginx:1.29\"", rounds)]);
    let fields = report["fields"].as_array().unwrap();
    let stamped = fields.iter().find(|field| field["name"] == "stamped").unwrap();
    assert_eq!(stamped["field"], "/metadata/annotations/careless.example.com~1reconciled");
    assert_eq!((&stamped["managers"], &stamped["time_stamps"]), (&json!(["careless"]), &json!(ROUNDS - 1)));
}

/// One came to be, and who found it changed it; each incarnation is told from its beginning to its end.
fn told_races(daemon: &mut Decklog) {
    let entries = daemon.entries();
    let of =
        |name: &'static str| entries.iter().filter(move |entry| entry.resource == "configmaps" && entry.name == name);
    let raced: Vec<&str> = of("raced").map(|entry| entry.kind.as_str()).collect();
    assert_eq!(raced[0], "ADDED");
    assert!(raced[1..].iter().all(|kind| *kind == "MODIFIED"), "{raced:?}");
    assert_eq!(of("posted").map(|entry| entry.kind.as_str()).collect::<Vec<_>>(), ["ADDED"]);
    assert_eq!(of("raced").map(|entry| &entry.uid).collect::<BTreeSet<_>>().len(), 1);
    let mut lives: Vec<(&str, Vec<&str>)> = Vec::new();
    for entry in of("reborn") {
        match lives.last_mut().filter(|(uid, _)| *uid == entry.uid) {
            Some((_, kinds)) => kinds.push(&entry.kind),
            None => lives.push((&entry.uid, vec![&entry.kind])),
        }
    }
    assert!(lives.len() >= 2, "{lives:?}");
    let uids: BTreeSet<&str> = lives.iter().map(|(uid, _)| *uid).collect();
    assert_eq!(uids.len(), lives.len(), "no incarnation comes back: {lives:?}");
    for (number, (_, kinds)) in lives.iter().enumerate() {
        let last = number + 1 == lives.len();
        assert_eq!((kinds[0], kinds.ends_with(&["DELETED"])), ("ADDED", !last), "{lives:?}");
    }
}

/// The area that was changed, and the manager with the subresource it came through.
fn told_subresources(daemon: &Decklog) {
    let log = fs::read_to_string(daemon.log()).unwrap();
    let entries = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let changes: Vec<Value> = entries
        .filter(|entry| entry["name"] == "way-2" && entry["type"] == "MODIFIED")
        .map(|e| e["change"].clone())
        .collect();
    let [scaled, reported] = &changes[..] else { panic!("{changes:#?}") };
    let has = |change: &Value, area: &str| change["areas"].as_array().unwrap().iter().any(|a| a == area);
    assert!(has(scaled, "spec") && !has(scaled, "status"), "{scaled:#}");
    assert!(has(reported, "status") && !has(reported, "spec"), "{reported:#}");
    for (change, manager, subresource) in [(scaled, "scaler", "scale"), (reported, "reporter", "status")] {
        let managers = change["managers"].as_array().unwrap();
        let named = managers.iter().find(|entry| entry["manager"] == manager);
        assert_eq!(named.map(|entry| &entry["subresource"]), Some(&json!(subresource)), "{change:#}");
    }
}
