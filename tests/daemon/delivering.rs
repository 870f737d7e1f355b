//! Several sinks beside each other: the same entries in the same order, and nobody waits for anybody.

use std::fs;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use decklog::sim::objects;
use decklog::sim::world::World;
use rustix::process::Signal;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::judge::Entry;
use crate::support::{Daemon, cluster, free_address, scope, until};

/// What came to a collector, and how it answers.
#[derive(Default)]
struct Came {
    requests: Vec<(HeaderMap, Bytes)>,
    /// Answers before those that are good.
    answers: Vec<StatusCode>,
}

impl Came {
    /// What was accepted: `id` and `data` of each event.
    fn events(&self) -> Vec<(String, String)> {
        let mut events = Vec::new();
        for (headers, body) in &self.requests {
            let kind = headers["content-type"].to_str().unwrap();
            if kind.starts_with("application/cloudevents") {
                let body: Value = serde_json::from_slice(body).unwrap();
                let list = if body.is_array() { body.as_array().unwrap().clone() } else { vec![body] };
                events.extend(list.iter().map(|e| (e["id"].as_str().unwrap().to_owned(), e["data"]["id"].to_string())));
            } else {
                let id = headers["ce-id"].to_str().unwrap().to_owned();
                let data: Value = serde_json::from_slice(body).unwrap();
                events.push((id, data["id"].to_string()));
            }
        }
        events
    }
}

/// A tiny collector of CloudEvents; it ends with the test.
pub(crate) struct Collector {
    pub(crate) at: String,
    came: Arc<Mutex<Came>>,
    _serving: JoinSet<()>,
}

impl Collector {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self::on(listener)
    }

    fn on(listener: TcpListener) -> Self {
        let at = listener.local_addr().unwrap().to_string();
        let came: Arc<Mutex<Came>> = Arc::default();
        let router = Router::new().fallback(take).with_state(Arc::clone(&came));
        let mut serving = JoinSet::new();
        serving.spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { at, came, _serving: serving }
    }

    fn events(&self) -> Vec<(String, String)> {
        self.came.lock().unwrap().events()
    }

    /// The body of each request that was accepted.
    pub(crate) fn bodies(&self) -> Vec<String> {
        let came = self.came.lock().unwrap();
        came.requests.iter().map(|(_, body)| String::from_utf8(body.to_vec()).unwrap()).collect()
    }
}

async fn take(State(came): State<Arc<Mutex<Came>>>, headers: HeaderMap, body: Bytes) -> StatusCode {
    let mut came = came.lock().unwrap();
    if !came.answers.is_empty() {
        return came.answers.remove(0);
    }
    came.requests.push((headers, body));
    StatusCode::NO_CONTENT
}

/// The address of a collector that will never take anything; it serves as long as the test's runtime does.
pub(crate) async fn refusing() -> String {
    let collector = Collector::start().await;
    collector.came.lock().unwrap().answers = vec![StatusCode::BAD_REQUEST; 1000];
    let at = collector.at.clone();
    std::mem::forget(collector);
    at
}

fn http_sink(name: &str, at: &str, more: &str) -> String {
    format!("[[sink]]\nname = {name:?}\ntype = \"http\"\nurl = \"http://{at}/events\"\n{more}\n\n")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_sink_has_the_same_ids_in_the_same_order() {
    let sim = cluster().await;
    let mut world = World::new(&sim, 11).unwrap();
    let started = sim.revision();
    let resources = ["pods", "configmaps", "deployments.apps"];
    let (binary, structured, batched) = (Collector::start().await, Collector::start().await, Collector::start().await);
    let rest = [
        http_sink("binary", &binary.at, "format = \"binary\""),
        http_sink("structured", &structured.at, "format = \"structured\""),
        http_sink("batched", &batched.at, "format = \"batched\"\nbatch_size = 7"),
        "[[sink]]\nname = \"console\"\ntype = \"stdout\"\n\n".to_owned(),
        "[[sink]]\nname = \"deleted\"\ntype = \"file\"\npath = \"deleted.jsonl\"\nwhere = 'type == \"DELETED\"'\n"
            .to_owned(),
    ]
    .concat();
    // Trouble on the way: each of these is tried again, with the same id.
    structured.came.lock().unwrap().answers =
        vec![StatusCode::SERVICE_UNAVAILABLE, StatusCode::TOO_MANY_REQUESTS, StatusCode::INTERNAL_SERVER_ERROR];
    let mut daemon = Daemon::with(&sim, &format!("resources = {resources:?}"), &rest);
    daemon.start();
    daemon.ready().await;
    for _ in 0..120 {
        world.step().unwrap();
    }
    let done = scope(&sim, started, &resources);
    daemon.catch_up(&sim, &done).await;
    let ids: Vec<String> = daemon.entries().iter().map(|entry| entry.id.clone()).collect();
    for (name, collector) in [("binary", &binary), ("structured", &structured), ("batched", &batched)] {
        until(&format!("everything at the collector {name}"), async || {
            daemon.must_run();
            let have = collector.events().len();
            if have >= ids.len() { Ok(()) } else { Err(format!("{have} of {}", ids.len())) }
        })
        .await;
    }
    daemon.stop().await;
    daemon.judged(&sim, &done).await;
    for collector in [&binary, &structured, &batched] {
        let events = collector.events();
        assert!(events.iter().map(|(id, _)| id).eq(ids.iter()), "other ids, or another order");
        assert!(events.iter().all(|(id, data)| *data == format!("{id:?}")), "another entry under an id");
    }
    assert!(batched.came.lock().unwrap().requests.iter().any(|(_, body)| body.len() > 5_000), "nothing was batched");
    assert_eq!(daemon.printed(), fs::read_to_string(daemon.log()).unwrap());
    let deleted: Vec<String> =
        daemon.entries().iter().filter(|entry| entry.kind == "DELETED").map(|e| e.id.clone()).collect();
    let filtered = fs::read_to_string(daemon.path("deleted.jsonl")).unwrap();
    assert!(!deleted.is_empty() && filtered.lines().map(|line| Entry::parse(line).id).eq(deleted));
}

/// Fault 80: one sink takes nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_sink_delays_nobody_and_loses_nothing() {
    let sim = cluster().await;
    let started = sim.revision();
    let at = free_address();
    let rest = http_sink("dead", &at, "") + "[[sink]]\nname = \"console\"\ntype = \"stdout\"\n";
    let mut daemon = Daemon::with(&sim, "resources = [\"configmaps\"]", &rest);
    daemon.start();
    daemon.ready().await;
    let began = Instant::now();
    for number in 0..50 {
        sim.create("configmaps", objects::config_map("default", &format!("m{number}"), "1")).unwrap();
    }
    let done = scope(&sim, started, &["configmaps"]);
    daemon.catch_up(&sim, &done).await;
    assert!(began.elapsed() < Duration::from_secs(20), "the file waited for the dead sink");
    let detail = daemon.waits_for_state("sinks", "dead", "retrying").await;
    assert!(detail.contains(&at) || detail.contains("refuse") || detail.contains("connect"), "{detail}");
    let status = daemon.status().await;
    let dead = status["sinks"].as_array().unwrap().iter().find(|row| row["name"] == "dead").unwrap();
    assert_eq!((dead["cursor"].as_u64(), dead["lag_entries"].as_u64()), (Some(0), Some(50)), "{dead}");
    // It is killed and comes back; then so does the collector, at its own address.
    daemon.kill().await;
    daemon.start();
    daemon.ready().await;
    let collector = Collector::on(TcpListener::bind(&at).await.unwrap());
    // Nobody has to wait for the pause between two tries.
    daemon.signal(Signal::HUP);
    until("everything at the collector", async || {
        daemon.must_run();
        let have = collector.events().len();
        if have >= 50 { Ok(()) } else { Err(format!("{have} of 50: {}", daemon.last_words())) }
    })
    .await;
    daemon.waits_for_state("sinks", "dead", "running").await;
    daemon.stop().await;
    daemon.judged(&sim, &done).await;
    let ids: Vec<String> = daemon.entries().iter().map(|entry| entry.id.clone()).collect();
    assert!(collector.events().iter().map(|(id, _)| id).eq(ids.iter()));
}

/// Fault 64: by policy it halts, or is dead-lettered; never passed in silence.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_halts_one_sink_or_is_dead_lettered_and_replayed() {
    let sim = cluster().await;
    for name in ["a", "b", "c"] {
        sim.create("configmaps", objects::config_map("default", name, "1")).unwrap();
    }
    let (strict, lenient) = (Collector::start().await, Collector::start().await);
    strict.came.lock().unwrap().answers = vec![StatusCode::BAD_REQUEST];
    lenient.came.lock().unwrap().answers = vec![StatusCode::BAD_REQUEST];
    let rest = http_sink("strict", &strict.at, "") + &http_sink("lenient", &lenient.at, "on_refused = \"dead_letter\"");
    let mut daemon = Daemon::with(&sim, "resources = [\"configmaps\"]", &rest);
    daemon.start();
    daemon.ready().await;
    daemon.reach(3).await;
    let detail = daemon.waits_for_state("sinks", "strict", "halted").await;
    assert!(detail.contains("400"), "{detail}");
    until(
        "the two others",
        async || {
            if lenient.events().len() == 2 { Ok(()) } else { Err(format!("{:?}", lenient.events())) }
        },
    )
    .await;
    let aside = until("what was dead-lettered", async || {
        let status = daemon.status().await;
        let row = status["sinks"].as_array().unwrap().iter().find(|row| row["name"] == "lenient").cloned().unwrap();
        let aside = row["dead_letters"].as_array().unwrap().clone();
        if aside.len() == 1 { Ok(aside) } else { Err(row.to_string()) }
    })
    .await;
    assert_eq!(aside[0]["seq"], 1, "{aside:?}");
    // Once more by hand, and by the sink itself after a SIGHUP.
    let replayed = daemon.command(&["replay", "--sink", "lenient", "--from", "1", "--to", "1"]).await;
    assert!(replayed.code == 0 && replayed.err.contains("1 entry was delivered to lenient again"), "{replayed:#?}");
    // Only the daemon writes to the journal, and takes up what the replay has left for it.
    until("it to be listed no longer", async || {
        daemon.must_run();
        let status = daemon.status().await;
        let row = status["sinks"].as_array().unwrap().iter().find(|row| row["name"] == "lenient").cloned().unwrap();
        let files = fs::read_dir(daemon.state()).unwrap().map(|file| file.unwrap().file_name());
        let left: Vec<_> = files.filter(|name| name.to_string_lossy().starts_with("replayed-")).collect();
        if row["dead_letters"] == serde_json::json!([]) && left.is_empty() {
            Ok(())
        } else {
            Err(format!("{row} {left:?}"))
        }
    })
    .await;
    let ids: Vec<String> = daemon.entries().iter().map(|entry| entry.id.clone()).collect();
    assert_eq!(lenient.events().last().unwrap().0, ids[0], "the same id");
    assert_eq!(strict.events().len(), 0, "nothing passes what was refused");
    daemon.signal(Signal::HUP);
    until("the halted sink to go on", async || {
        if strict.events().len() == 3 { Ok(()) } else { Err(format!("{:?}", strict.events())) }
    })
    .await;
    assert!(strict.events().iter().map(|(id, _)| id).eq(ids.iter()));
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sink_begins_where_it_is_told_and_keeps_its_place() {
    let sim = cluster().await;
    let create = |name: &str| drop(sim.create("configmaps", objects::config_map("default", name, "1")).unwrap());
    let watch = "resources = [\"configmaps\"]";
    let file = |name: &str, from: &str| {
        format!("[[sink]]\nname = {name:?}\ntype = \"file\"\npath = \"{name}.jsonl\"\nfrom = {from}\n\n")
    };
    create("a");
    create("b");
    let mut daemon = Daemon::with(&sim, watch, "");
    daemon.start();
    daemon.ready().await;
    daemon.reach(2).await;
    // Added by a reload: from the start, from now, from a seq.
    let three = file("all", "\"start\"") + &file("later", "\"now\"") + &file("second", "2");
    daemon.configure(&daemon.config(watch, &three));
    daemon.signal(Signal::HUP);
    daemon.says("the configuration was read again").await;
    create("c");
    daemon.reach(3).await;
    let dir = daemon.path("");
    let seqs = |name: &str| -> Vec<u64> {
        let text = fs::read_to_string(dir.join(format!("{name}.jsonl"))).unwrap_or_default();
        text.lines().map(|line| Entry::parse(line).seq).collect()
    };
    for (name, wanted) in [("all", vec![1, 2, 3]), ("later", vec![3]), ("second", vec![2, 3])] {
        until(&format!("{wanted:?} in {name}"), async || {
            let have = seqs(name);
            if have == wanted { Ok(()) } else { Err(format!("{have:?}")) }
        })
        .await;
    }
    // Left out for a while, and taken in again: it goes on where it was.
    daemon.configure(&daemon.config(watch, ""));
    daemon.signal(Signal::HUP);
    until("the sinks to end", async || {
        let status = daemon.status().await;
        let active = status["sinks"].as_array().unwrap().iter().filter(|row| row["active"] == true).count();
        if active == 1 { Ok(()) } else { Err(status["sinks"].to_string()) }
    })
    .await;
    create("d");
    daemon.reach(4).await;
    daemon.stop().await;
    daemon.configure(&daemon.config(watch, &three));
    daemon.start();
    daemon.ready().await;
    for (name, wanted) in [("all", vec![1, 2, 3, 4]), ("later", vec![3, 4]), ("second", vec![2, 3, 4])] {
        until(&format!("{wanted:?} in {name}"), async || {
            let have = seqs(name);
            if have == wanted { Ok(()) } else { Err(format!("{have:?}")) }
        })
        .await;
    }
    daemon.stop().await;
    daemon.consistent().await;
}
