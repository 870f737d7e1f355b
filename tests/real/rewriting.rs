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
    let mut decklog = Decklog::new(&cluster, "calm", "resources = [\"configmaps\"]\nnamespaces = [\"default\"]");
    decklog.start();
    decklog.ready().await;
    decklog.reach(OBJECTS).await;

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
    let changed = format!("map-{CHANGED}");
    cluster.patch(&format!("{MAPS}/{changed}"), &json!({"data": {"n": "changed"}})).await;
    decklog
        .tells("the change", |entry| {
            entry.name == changed
                && entry.change.as_ref().is_some_and(|change| change.areas.contains(&"data".to_owned()))
        })
        .await;
    // Each write is an entry, for everybody who reads entries.
    let written = decklog.entries().iter().filter(|entry| entry.kind == "MODIFIED").count();
    assert_eq!(written, maps.len() + 1);

    let one = format!("storage rewrite of {} objects of configmaps in default, ", spelled(maps.len()));
    for command in [vec!["tail"], vec!["tail", "--since", "10m"], vec!["log", "-n", "default", "--since", "10m"]] {
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
    let history = answered(&decklog, &["log", "cm/map-7", "-n", "default"]);
    assert!(history.lines().any(|line| line.contains("MODIFIED storage rewrite")), "{history}");
    churned(&decklog, maps.len());
    decklog.stop().await;
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
    assert_eq!((&rewrites[0]["by"], &rewrites[0]["namespace"]), (&Value::Null, &"default".into()));
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
