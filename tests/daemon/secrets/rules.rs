//! Rules and the key of the digests: one that comes later, one that matches nothing, a key that is missing.

use std::fs;

use decklog::sim::objects;
use serde_json::{Value, json};

use super::Search;
use super::planted::CANARIES;
use crate::support::{Daemon, cluster};

/// A rule that comes later: from then on nothing new tells the value, not even as what was there before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rule_that_comes_later_holds_for_what_was_before() {
    let sim = cluster().await;
    let map = |name: &str| {
        let mut map = objects::config_map("default", name, "open");
        map["data"]["password"] = json!(CANARIES[0]);
        map
    };
    for name in ["changed", "same", "deleted", "vanished"] {
        sim.create("configmaps", map(name)).unwrap();
    }
    let mut daemon = Daemon::new(&sim, &["configmaps"]);
    daemon.start();
    daemon.ready().await;
    daemon.reach(4).await;
    assert!(fs::read_to_string(daemon.log()).unwrap().contains(CANARIES[0]), "there is no rule yet");
    let rules = "[redact]\nrules = [{ resources = [\"configmaps\"], paths = [\"/data/password\"], mode = \"hmac\" }]\n";
    let config = daemon.config("resources = [\"configmaps\"]", rules);
    daemon.configure(&config);
    daemon.signal(rustix::process::Signal::HUP);
    daemon.says("the configuration was read again").await;
    sim.wait_for_watches("configmaps", 1).await.unwrap();
    let before = fs::read(daemon.log()).unwrap().len();
    sim.patch("configmaps", "default", "changed", &json!({"data": {"password": CANARIES[5]}})).unwrap();
    sim.patch("configmaps", "default", "same", &json!({"data": {"value": "closed"}})).unwrap();
    sim.delete("configmaps", "default", "deleted").unwrap();
    daemon.tells("the deletion", |entry| entry.name == "deleted" && entry.kind == "DELETED").await;
    daemon.stop().await;
    // The journal knows since when: not only a running daemon does.
    sim.delete("configmaps", "default", "vanished").unwrap();
    sim.compact_all();
    daemon.start();
    daemon.tells("what is gone", |entry| entry.name == "vanished" && entry.kind == "DELETED").await;
    daemon.stop().await;
    let log = fs::read(daemon.log()).unwrap();
    Search::new().has_none(&log[before..], "what was told after the rule came");
    let entry = |name: &str| {
        let entries = log[before..].split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let mut entries = entries.map(|line| serde_json::from_slice::<Value>(line).unwrap());
        entries.find(|entry| entry["name"] == name).unwrap()
    };
    let step = |entry: &Value, path: &str| {
        let steps = entry["change"]["patch"].as_array().unwrap();
        steps.iter().find(|step| step["path"] == path).cloned()
    };
    let told = step(&entry("changed"), "/data/password").expect("a change of the value is one");
    assert!(told["was"].as_str().unwrap().starts_with("hmac:") && told["was"] != told["value"], "{told}");
    let told = entry("same");
    assert!(step(&told, "/data/password").is_none(), "the value has not changed: {told}");
    assert!(step(&told, "/data/value").is_some(), "{told}");
    for name in ["deleted", "vanished"] {
        let told = entry(name);
        assert!(told["object"]["data"]["password"].as_str().unwrap().starts_with("hmac:"), "{told}");
        assert_eq!(told["redacted"], json!(["/data/password"]));
    }
    daemon.consistent().await;
}

/// Fault 89: without the key of the digests nothing is begun, and no other key takes its place.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_its_key_nothing_is_redacted_in_another_way() {
    let sim = cluster().await;
    let key = tempfile::tempdir().unwrap();
    let path = key.path().join("hmac");
    let daemon = Daemon::with(&sim, "resources = [\"secrets\"]", &format!("[redact]\nkey_file = {path:?}\n"));
    for content in [None, Some(""), Some("short")] {
        if let Some(text) = content {
            fs::write(&path, text).unwrap();
        }
        for command in ["run", "check"] {
            daemon.command(&[command]).await.refused(78, &["redact.key_file", "hmac"]);
        }
        assert!(!daemon.state().exists(), "nothing was begun");
    }
}

/// Fault 87: a rule that hides nothing is said, by `check` and by the daemon.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rule_that_matches_nothing_is_said() {
    let sim = cluster().await;
    sim.bulk_pods(1100).unwrap();
    let rules = "[redact]\nrules = [\n\
        { resources = [\"pods\"], paths = [\"/spec/*passwrod*\", \"/spec/nodeName\"], mode = \"drop\" },\n\
        { resources = [\"configmap\", \"sercets\"], paths = [\"/data\"], mode = \"drop\" },\n]\n";
    let mut daemon = Daemon::with(&sim, "resources = [\"pods\"]", rules);
    let checked = daemon.command(&["check"]).await;
    assert_eq!(checked.code, 1, "{checked:?}");
    assert!(checked.out.contains("rule 2 is for configmap, sercets, and none of that is watched"), "{checked:?}");
    assert!(!checked.out.contains("rule 1"), "{checked:?}");
    daemon.start();
    daemon.says("has matched nothing in 1000 objects").await;
    daemon.stop().await;
    let said = daemon.said();
    let lines: Vec<&str> = said.lines().filter(|line| line.contains("has matched nothing")).collect();
    assert!(lines.len() == 1 && lines[0].contains("/spec/*passwrod*"), "{lines:?}");
}
