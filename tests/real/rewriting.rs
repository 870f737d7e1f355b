//! The rotation of an encryption key: every object is written again, and nothing in it changes. decklog records each write, and
//! says all of them in one line.

use std::fs;

use serde_json::{Value, json};

use crate::decklog::Decklog;
use crate::harness::{Cluster, Parts, Version};

/// Number of objects that are stored again.
const OBJECTS: usize = 2000;
/// Number of requests at a time.
const LANES: usize = 32;
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// Number of objects that kubectl applied and replaces, which changes the annotation with what was applied.
const APPLIED: usize = 20;
/// The object that somebody changes meanwhile.
const CHANGED: usize = 1234;

/// A configuration that encrypts with the first of these keys, and reads all of them.
fn keys(names: &[&str]) -> String {
    let provider = |name: &&str| {
        // Thirty-two bytes, as base64.
        let secret = format!("{}=", name.repeat(43));
        json!({"aescbc": {"keys": [{"name": name, "secret": secret}]}})
    };
    let providers: Vec<Value> = names.iter().map(provider).chain([json!({"identity": {}})]).collect();
    let resources = json!([{"resources": ["configmaps"], "providers": providers}]);
    json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration", "resources": resources})
        .to_string()
}

/// Does this for each number, many at a time.
async fn each(count: usize, work: impl AsyncFn(usize)) {
    let work = &work;
    let lane = |first: usize| async move {
        for number in (first..count).step_by(LANES) {
            work(number).await;
        }
    };
    futures::future::join_all((0..LANES).map(lane)).await;
}

/// See the module.
pub async fn scenario(version: Version) {
    let place = tempfile::tempdir().unwrap();
    let config = place.path().join("encryption.json");
    fs::write(&config, keys(&["A"])).unwrap();
    let argument = format!("--encryption-provider-config={}", config.display());
    let mut cluster = Cluster::start_with(version, Parts::Bare, &[&argument]).await;
    each(OBJECTS, async |number| {
        let map = json!({"metadata": {"name": format!("map-{number}")}, "data": {"n": number.to_string()}});
        cluster.create(&format!("{MAPS}?fieldManager=writer"), &map).await;
    })
    .await;
    cluster.create("/api/v1/namespaces", &json!({"metadata": {"name": "applied"}})).await;
    let applied =
        |number: usize| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("map-{number}")}});
    let items: Vec<Value> = (0..APPLIED).map(applied).collect();
    let given = json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string();
    let output = cluster.kubectl_with(&["apply", "-n", "applied", "-f", "-"], given.as_bytes()).await;
    assert!(output.status.success(), "{output:?}");
    let watch = "resources = [\"configmaps\"]\nnamespaces = [\"default\", \"applied\"]";
    let mut decklog = Decklog::new(&cluster, "calm", watch);
    decklog.start();
    decklog.ready().await;
    decklog.reach(OBJECTS + APPLIED).await;

    // What is stored already as it is to be makes no version.
    let list = cluster.get(MAPS).await.unwrap();
    let maps = list["items"].as_array().unwrap().clone();
    let name = |map: &Value| map["metadata"]["name"].as_str().unwrap().to_owned();
    let known = maps.iter().find(|map| name(map) == "map-1").unwrap();
    let written = cluster.must("PUT", &format!("{MAPS}/map-1"), Some(known)).await;
    assert_eq!(known["metadata"]["resourceVersion"], written["metadata"]["resourceVersion"], "it is dropped");

    fs::write(&config, keys(&["B", "A"])).unwrap();
    cluster.restart_api(false).await;
    each(maps.len(), async |number| {
        let map = &maps[number];
        let path = format!("{MAPS}/{}", name(map));
        cluster.must("PUT", &format!("{path}?fieldManager=rotation"), Some(map)).await;
    })
    .await;
    let stored = cluster.kubectl_must(&["get", "configmaps", "-n", "applied", "-o", "json"]).await;
    let output = cluster.kubectl_with(&["replace", "-f", "-"], stored.as_bytes()).await;
    assert!(output.status.success(), "{output:?}");
    let changed = format!("map-{CHANGED}");
    cluster.patch(&format!("{MAPS}/{changed}"), &json!({"data": {"n": "changed"}})).await;
    decklog.reach((OBJECTS + APPLIED) * 2 + 1).await;
    // Each write is an entry, for everybody who reads entries.
    let written = decklog.entries().iter().filter(|entry| entry.kind == "MODIFIED").count();
    assert_eq!(written, maps.len() + APPLIED + 1);

    let one = format!("storage rewrite of {} objects of configmaps, ", spelled(maps.len() + APPLIED));
    for command in [vec!["tail"], vec!["tail", "--since", "10m"], vec!["log", "--since", "10m"]] {
        let answer = answered(&decklog, &command);
        let lines: Vec<&str> = answer.lines().filter(|line| line.contains("MODIFIED")).collect();
        assert_eq!(lines.iter().filter(|line| line.contains(&one)).count(), 1, "{command:?}\n{answer}");
        assert_eq!(
            lines.iter().filter(|line| line.contains(&format!("/{changed}"))).count(),
            1,
            "{command:?}\n{answer}"
        );
        assert_eq!(lines.len(), 2, "{command:?}\n{answer}");
    }
    let all = answered(&decklog, &["tail", "--all", "--since", "10m"]);
    assert_eq!(all.lines().filter(|line| line.contains("MODIFIED")).count(), written);
    let answer = answered(&decklog, &["log", "-n", "applied", "--since", "10m"]);
    let one = format!("storage rewrite of {APPLIED} objects of configmaps in applied by kubectl-replace, ");
    assert!(answer.contains(&one) && answer.lines().count() == 1, "{answer}");
    let history = answered(&decklog, &["log", "cm/map-7", "-n", "default"]);
    assert!(history.lines().any(|line| line.contains("MODIFIED storage rewrite")), "{history}");
    churned(&decklog, maps.len() + APPLIED);
    decklog.stop().await;
    audited(&mut cluster, &decklog).await;
}

/// The API server takes the printed policy, and `decklog check` tells whether events of what is watched arrive.
async fn audited(cluster: &mut Cluster, decklog: &Decklog) {
    let policy = answered(decklog, &["audit", "policy", "--level", "RequestResponse"]);
    fs::write(cluster.path("audit.yaml"), policy).unwrap();
    cluster.restart_api(false).await;
    decklog.configure(&format!("\n[[audit_log]]\nfile = {:?}\n", cluster.path("kube-apiserver-audit.log")));
    let file = decklog.state().with_file_name("config.toml");
    let config = fs::read_to_string(&file).unwrap();
    // The policy leaves Secrets out.
    for (resources, finding, ok) in [
        (&["configmaps"][..], "audit-log-arrives", true),
        (&["secrets"], "audit-log-silent", false),
        (&["configmaps", "secrets"], "audit-log-arrives", true),
        (&["configmaps", "secrets"], "audit-log-lacks", false),
    ] {
        fs::write(&file, config.replace("[\"configmaps\"]", &format!("{resources:?}"))).unwrap();
        let output = decklog.command(&["check", "-o", "json"]);
        let all: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
        let found = all.as_array().unwrap().iter().find(|one| one["code"] == finding);
        assert_eq!(found.map(|one| one["ok"].clone()), Some(json!(ok)), "{finding}: {all:#}");
    }
}

fn answered(decklog: &Decklog, arguments: &[&str]) -> String {
    let output = decklog.command(arguments);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Nobody is to blame.
fn churned(decklog: &Decklog, objects: usize) {
    let report: Value = serde_json::from_str(&answered(decklog, &["churn", "--since", "10m", "-o", "json"])).unwrap();
    let rewrites = report["rewrites"].as_array().unwrap();
    assert_eq!(rewrites.len(), 1, "{rewrites:?}");
    assert_eq!((&rewrites[0]["objects"], &rewrites[0]["resource"]), (&objects.into(), &"configmaps".into()));
    assert_eq!((&rewrites[0]["by"], &rewrites[0]["namespace"]), (&Value::Null, &Value::Null));
    assert_eq!(report["writes"]["no_op"], 0, "{report:#}");
    let writes: u64 = report["objects"].as_array().unwrap().iter().map(|row| row["writes"].as_u64().unwrap()).sum();
    assert_eq!(writes, 1, "the change alone: {:#}", report["objects"]);
}

/// A number as people read it.
fn spelled(number: usize) -> String {
    let digits = number.to_string();
    let (thousands, rest) = digits.split_at(digits.len() - 3);
    format!("{thousands},{rest}")
}
