//! Events that a daemon publishes: that the daemon is wired to what publishes, with the Lease that it has itself created, and that its own
//! Events, which it records, are no cause of others.

use std::fs;

use decklog::sim::objects;
use serde_json::{Value, json};

use crate::judge::Entry;
use crate::sharing::shared_of;
use crate::support::{Daemon, cluster};

const EVENTS: &str = "events.events.k8s.io";
/// Events of both APIs, as they are stored.
const STORED: &str = "events";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_alarm_is_an_event_on_the_lease_and_recorded_it_is_no_cause_of_another() {
    let sim = cluster().await;
    let bucket = tempfile::tempdir().unwrap();
    // What the cluster does not serve is an alarm.
    let watch = format!("resources = [\"configmaps\", {EVENTS:?}, \"widgets.example.org\"]\n");
    let mut daemon = shared_of(&sim, bucket.path(), "one", &watch);
    daemon.start();
    daemon.ready().await;
    let of_event = |reason: &str| {
        let is = |event: &Value| event["reason"] == reason;
        sim.history_of(STORED).iter().map(|row| row.value()).filter(is).collect::<Vec<_>>()
    };
    let is_alarm = |entry: &Entry| {
        let object = entry.object.as_ref().map_or("", |object| object.get());
        entry.object_kind == "Event" && object.contains("ResourceWaiting")
    };
    daemon.tells("the Event, in the log", is_alarm).await;
    let event = of_event("ResourceWaiting").remove(0);
    let lease = sim.get("leases.coordination.k8s.io", "default", "decklog").unwrap();
    assert_eq!((&event["type"], &event["reason"]), (&"Warning".into(), &"ResourceWaiting".into()));
    assert_eq!((&event["regarding"]["kind"], &event["regarding"]["name"]), (&"Lease".into(), &"decklog".into()));
    assert_eq!(event["regarding"]["uid"], *lease.uid);
    assert_eq!(event["reportingInstance"], "one");
    assert!(event["note"].as_str().unwrap().starts_with("widgets.example.org: it is configured"), "{event}");
    // The log goes on, and looks go on.
    sim.create("configmaps", objects::config_map("default", "later", "1")).unwrap();
    daemon.tells("what came later", |entry| entry.name == "later").await;
    assert_eq!(of_event("ResourceWaiting").len(), 1);
    daemon.stop().await;
}

/// Events that come and go.
const COUNT: usize = 4000;

/// An Event as kubelets send them, with what the API server puts on it.
fn event(number: usize) -> Value {
    let pod = format!("web-{:08x}-{:05x}", number.wrapping_mul(2_654_435_761) % 0xffff_ffff, number * 7919 % 0xfffff);
    let image = format!("registry.example/team-{}/web:1.{}.0", number % 17, number % 211);
    let reason = ["Pulling", "Pulled", "Created", "Started", "BackOff"][number % 5];
    let mut event = json!({
        "metadata": {"namespace": "default", "name": format!("{pod}.18{number:014x}")},
        "regarding": {
            "apiVersion": "v1", "kind": "Pod", "namespace": "default", "name": pod, "uid": format!("{number:08x}-1111-4222-8333-{number:012x}"),
            "fieldPath": "spec.containers{web}", "resourceVersion": (number * 31).to_string(),
        },
        "reason": reason,
        "note": format!("Successfully pulled image \"{image}\" in {}.{:03}s. Image size: {} bytes.", number % 60, number % 1000, number * 7919),
        "type": "Normal", "eventTime": null, "deprecatedCount": 1,
        "deprecatedSource": {"component": "kubelet", "host": format!("node-{}", number % 40)},
        "reportingController": "kubelet", "reportingInstance": format!("node-{}", number % 40),
    });
    let fields = event.clone();
    objects::touch(&mut event, "kubelet", "Update", "v1", "", &fields);
    event
}

/// A page says what a year of Events takes: that it is what the journal takes, when they go by etcd's TTL, many in one revision.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_takes_what_the_book_says() {
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/events.md")).unwrap();
    let says = page.split(" bytes in the journal").next().unwrap().rsplit(' ').next().unwrap();
    let says: u64 = says.replace(',', "").parse().expect("N bytes in the journal");
    let sim = cluster().await;
    let mut daemon = Daemon::with(&sim, &format!("resources = [{EVENTS:?}]"), "");
    daemon.start();
    daemon.ready().await;
    let names: Vec<String> =
        (0..COUNT).map(|number| sim.create(EVENTS, event(number)).unwrap().name.to_string()).collect();
    for gone in names.chunks(50) {
        let gone: Vec<(&str, &str)> = gone.iter().map(|name| ("default", name.as_str())).collect();
        sim.expire_together(EVENTS, &gone).unwrap();
    }
    daemon.reach(2 * COUNT).await;
    daemon.stop().await;
    let size = |name: &str| fs::metadata(daemon.state().join(name)).map_or(0, |file| file.len());
    let takes = (size("journal.db") + size("journal.db-wal")) / COUNT as u64;
    let shown = daemon.command(&["tail", "--last", "2"]).await.done();
    assert!(shown.lines().all(|line| line.contains("deletion")), "{shown}");
    assert!(
        (says * 3 / 4..=says).contains(&takes),
        "the journal takes {takes} bytes for an Event, and the book says {says}: {shown}"
    );
}
