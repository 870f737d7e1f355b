//! A lost encryption key: one PodTemplate cannot be read from etcd any more, so that the API server lists and watches none at all.
//! What becomes of the others is recorded all the same, with the versions that etcd has. On 1.36, where unsafe deletion is enabled, the
//! object is deleted, and its deletion is recorded with the reason; 1.33 gets its key back.

use std::fs;
use std::time::Duration;

use decklog::journal::SourceState;
use decklog::watch;
use decklog::watch::Timings;
use serde_json::{Value, json};

use crate::harness::{Cluster, LIMIT, Parts, Version, until};
use crate::judge::Entry;
use crate::reading::Reading;

const TEMPLATES: &str = "/api/v1/namespaces/default/podtemplates";
const AES: &str =
    r#"{"aescbc": {"keys": [{"name": "one", "secret": "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="}]}}"#;
const PLAIN: &str = r#"{"identity": {}}"#;

fn template(name: &str) -> Value {
    let spec = json!({"containers": [{"name": "one", "image": "example.com/one"}]});
    json!({"metadata": {"name": name}, "template": {"spec": spec}})
}

fn version_of(object: &Value) -> String {
    object["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
}

/// See the module.
pub async fn scenario(version: Version) {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("encryption.yaml");
    let providers = |all: &[&str]| {
        let text = format!(
            r#"{{"apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration",
                "resources": [{{"resources": ["podtemplates"], "providers": [{}]}}]}}"#,
            all.join(",")
        );
        fs::write(&config, text).unwrap();
    };
    providers(&[AES, PLAIN]);
    let mut arguments = vec![format!("--encryption-provider-config={}", config.display())];
    if version == Version::V1_36 {
        arguments.push("--feature-gates=AllowUnsafeMalformedObjectDeletion=true".to_owned());
    }
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut cluster = Cluster::start_with(version, Parts::Bare, &arguments).await;
    let lost = version_of(&cluster.create(TEMPLATES, &template("b")).await);
    providers(&[PLAIN, AES]);
    cluster.restart_api(true).await;
    for name in ["a", "c"] {
        cluster.create(TEMPLATES, &template(name)).await;
    }
    let watch = watch::Settings { resources: vec!["podtemplates".to_owned()], ..watch::Settings::default() };
    let mut timings = Timings::default();
    timings.thresholds.unreadable = Duration::from_secs(2);
    let reading = Reading::start(&cluster, "calm", watch, timings).await;
    reading.tells("the three", |entry| entry.name == "c").await;

    providers(&[PLAIN]);
    cluster.restart_api(true).await;
    let changed =
        version_of(&cluster.patch(&format!("{TEMPLATES}/a"), &json!({"metadata": {"labels": {"turn": "2"}}})).await);
    let created = version_of(&cluster.create(TEMPLATES, &template("new")).await);
    cluster.delete(&format!("{TEMPLATES}/c")).await;
    let told = |kind: &'static str, name: &'static str, version: &str| {
        let version = version.to_owned();
        move |entry: &Entry| {
            entry.kind == kind
                && entry.name == name
                && entry.evidence == "recovered"
                && entry.resource_version == version
        }
    };
    reading.tells("a change", told("MODIFIED", "a", &changed)).await;
    reading.tells("a creation", told("ADDED", "new", &created)).await;
    reading
        .tells("a deletion", |entry| entry.kind == "DELETED" && entry.name == "c" && entry.evidence == "recovered")
        .await;
    let gaps = || reading.entries().into_iter().filter(|entry| entry.kind == "GAP").collect::<Vec<_>>();
    let [gap] = gaps().try_into().unwrap();
    assert_eq!((gap.name.as_str(), gap.gap.as_ref().map(|gap| gap.why.as_str())), ("b", Some("unreadable")));
    let source = reading.sources().remove(0);
    // 1.36 does not say which one in what it answers a watch.
    let says = if version == Version::V1_36 { "cannot read an object" } else { "/podtemplates/default/b" };
    until("the state names the object", LIMIT, async || {
        let state = source.state();
        let is_said = matches!(&state, SourceState::Degraded(text) if text.contains(says));
        if is_said { Ok(()) } else { Err(format!("{state:?}")) }
    })
    .await;

    if version == Version::V1_36 {
        let path = format!("{TEMPLATES}/b?ignoreStoreReadErrorWithClusterBreakingPotential=true");
        cluster.must("DELETE", &path, None).await;
        reading.tells("the deletion", |entry| entry.kind == "DELETED" && entry.name == "b").await;
        let entries = reading.entries();
        let deleted = entries.iter().find(|entry| entry.kind == "DELETED" && entry.name == "b").unwrap();
        let reason = deleted.gap.as_ref().map(|gap| (gap.why.as_str(), gap.from.as_deref()));
        assert_eq!(reason, Some(("unreadable", Some(&*lost))), "{deleted:?}");
        assert_eq!(deleted.evidence, "recovered", "{deleted:?}");
    } else {
        providers(&[PLAIN, AES]);
        cluster.restart_api(true).await;
    }
    until("it watches again", LIMIT, async || {
        if source.state() == SourceState::Watching { Ok(()) } else { Err(format!("{:?}", source.state())) }
    })
    .await;
    cluster.patch(&format!("{TEMPLATES}/a"), &json!({"metadata": {"labels": {"turn": "3"}}})).await;
    reading.tells("what follows", |entry| entry.name == "a" && entry.evidence == "watched").await;
    assert_eq!(gaps().len(), 1, "{:?}", gaps());
    reading.stop().await;
}
