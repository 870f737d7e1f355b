//! Events get no bookmarks, because the API server does not cache them: only the ends of watches say how far a quiet source is.
//! Here watches last two seconds, and the API server has etcd compacted every ten, up to where it was ten seconds before.

use std::sync::atomic::Ordering;
use std::time::Duration;

use decklog::watch;
use decklog::watch::Timings;
use serde_json::json;

use crate::harness::{Cluster, LIMIT, Parts, Version, until};
use crate::reading::Reading;

/// The namespace that is watched: the API server writes events of its own in "default", now and then after its start.
const CALM: &str = "calm";
const EVENTS: &str = "/api/v1/namespaces/calm/events";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// See the module.
pub async fn scenario(version: Version) {
    let arguments = ["--etcd-compaction-interval=10s", "--event-ttl=1h"];
    let cluster = Cluster::start_with(version, Parts::Bare, &arguments).await;
    cluster.create("/api/v1/namespaces", &json!({"metadata": {"name": CALM}})).await;
    cluster.create(MAPS, &json!({"metadata": {"name": "busy"}})).await;
    let watch = watch::Settings {
        resources: vec!["events".to_owned()],
        namespaces: vec![CALM.to_owned()],
        ..watch::Settings::default()
    };
    let mut timings = Timings { short_watch_seconds: 2..=2, ..Timings::default() };
    timings.thresholds.quiet = Duration::from_millis(3900);
    let reading = Reading::start(&cluster, "calm", watch, timings).await;
    let source = reading.sources().remove(0);
    let begun = cluster.oracle().revision().await;
    let mut writes = 0;
    // Until everything of the beginning is compacted, and three times as many watches have ended since.
    let mut compacted = None;
    until("watches to end", LIMIT, async || {
        writes += 1;
        cluster.patch(&format!("{MAPS}/busy"), &json!({"data": {"writes": writes.to_string()}})).await;
        let watches = source.watches.load(Ordering::Relaxed);
        if compacted.is_none() {
            let old = format!("{MAPS}?resourceVersion={begun}&resourceVersionMatch=Exact");
            compacted = (cluster.call("GET", &old, None).await.0 == 410).then_some(watches);
        }
        if compacted.is_some_and(|then| watches >= then * 3) {
            Ok(())
        } else {
            Err(format!("{watches}, {compacted:?}"))
        }
    })
    .await;
    assert_eq!(source.desyncs.load(Ordering::Relaxed), 0, "nothing has happened");
    let entries = reading.entries();
    assert!(entries.is_empty(), "{entries:?}");

    // What comes and goes around the ends of watches is told, each.
    for number in 0..8 {
        let ended = source.watches.load(Ordering::Relaxed);
        if number % 2 == 0 {
            until("the next watch", LIMIT, async || {
                if source.watches.load(Ordering::Relaxed) > ended { Ok(()) } else { Err("none yet".to_owned()) }
            })
            .await;
        }
        let name = format!("brief-{number}");
        let event = json!({
            "metadata": {"name": name}, "reason": "Test", "message": "it came and went", "type": "Normal",
            "involvedObject": {"kind": "ConfigMap", "namespace": CALM, "name": "busy"},
        });
        cluster.create(EVENTS, &event).await;
        cluster.delete(&format!("{EVENTS}/{name}")).await;
        reading.tells("that it went", |entry| entry.name == name && entry.kind == "DELETED").await;
    }
    let entries = reading.entries();
    assert_eq!(entries.len(), 16, "{entries:?}");
    assert!(entries.iter().all(|entry| entry.evidence == "watched"), "{entries:?}");
    reading.stop().await;
}
