//! How long it takes decklog to recover what no watch has any more, and what another client feels of it.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use serde_json::json;
use tokio::task::JoinSet;

use crate::clients::{Client, Kind, MAPS, USER, daemon, fill};
use crate::harness::{Cluster, Version, until};
use crate::oracle;
use crate::table::{Table, thousands};

const OBJECTS: usize = 1_000;
/// Bytes of each.
const SIZE: usize = 8_000;
const CHANGES: usize = 10_000;
/// Between the beginnings of two requests of the other client, at least.
const BEAT: Duration = Duration::from_millis(5);
/// So many of them tell how long one takes where nothing is recovered.
const BEATS: usize = 1_000;
/// Time for which decklog does not run while changes go on: longer than the API server's watch cache remembers.
const AWAY: Duration = Duration::from_secs(120);
/// Changes in a second.
const RATE: u32 = 60;
/// Who has everything that is so old has caught up.
const RECENT: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(900);

/// The table of what is measured here.
pub fn table(version: Version) -> Table {
    let heading = match version {
        Version::V1_33 => "Recovery on Kubernetes 1.33",
        Version::V1_36 => "Recovery on Kubernetes 1.36",
    };
    let columns = &["what", "until it has caught up", "requests", "changes that became a GAP", "p95 of another client"];
    Table::new(heading, columns)
}

async fn change(cluster: &Cluster, n: usize, objects: usize) -> u64 {
    let object =
        cluster.patch(&format!("{MAPS}/m{}", n * 7919 % objects), &json!({"data": {"n": format!("change {n}")}})).await;
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

/// The API server is started again while decklog is away, so that no watch knows what has happened.
pub async fn restarted(version: Version, objects: usize, table: &mut Table) {
    let mut cluster = Cluster::start_measured(version).await;
    fill(&cluster, objects, SIZE).await;
    let mut client = Client::new(&cluster, Kind::Decklog, 0);
    client.start(&cluster);
    client.reach(objects).await;
    client.stop().await;
    let before = client.lines();
    futures::stream::iter(0..CHANGES)
        .for_each_concurrent(16, async |n| {
            change(&cluster, n, objects).await;
        })
        .await;
    cluster.restart_api(true).await;
    let cluster = Arc::new(cluster);
    let stop = Arc::new(AtomicBool::new(false));
    let mut other = JoinSet::new();
    other.spawn({
        let (cluster, stop) = (Arc::clone(&cluster), Arc::clone(&stop));
        async move { latencies(&cluster, || stop.load(Ordering::Relaxed)).await }
    });
    let (begun, asked) = (Instant::now(), cluster.audit(USER).len());
    client.start(&cluster);
    client.reach(before + CHANGES).await;
    let took = begun.elapsed();
    stop.store(true, Ordering::Relaxed);
    let meanwhile = slow(other.join_next().await.unwrap().unwrap());
    let requests = cluster.audit(USER).len() - asked;
    let mut beats = 0;
    let alone = slow(
        latencies(&cluster, || {
            beats += 1;
            beats > BEATS
        })
        .await,
    );
    client.stop().await;
    table.cells(vec![
        format!("{} changes of {} objects of 8 KB, API server started again", thousands(CHANGES), thousands(objects)),
        format!("{:.0} s", took.as_secs_f64()),
        thousands(requests),
        format!("{} GAPs", gaps(&client)),
        format!("{:.1} ms, {:.1} ms alone: {:.2}x", meanwhile * 1e3, alone * 1e3, meanwhile / alone),
    ]);
}

/// Lines of the log that are a GAP.
fn gaps(client: &Client) -> usize {
    let text = std::fs::read_to_string(client.path()).unwrap();
    text.lines().filter(|line| line.contains("\"type\":\"GAP\"")).count()
}

/// decklog is away while changes go on, which goes beyond what the watch cache remembers; etcd is compacted in the middle.
pub async fn living(version: Version, table: &mut Table) {
    let mut cluster = Cluster::start_measured(version).await;
    fill(&cluster, OBJECTS, SIZE).await;
    let mut daemon = daemon(&cluster, 1);
    daemon.start();
    daemon.ready().await;
    daemon.stop().await;
    // A watch cache that was filled at once has grown, and would remember more.
    cluster.restart_api(true).await;
    let cluster = Arc::new(cluster);
    let written = Arc::new(Mutex::new(Vec::new()));
    let stop = Arc::new(AtomicBool::new(false));
    let mut churn = JoinSet::new();
    churn.spawn({
        let (cluster, written, stop) = (Arc::clone(&cluster), Arc::clone(&written), Arc::clone(&stop));
        async move {
            let mut ticks = tokio::time::interval(Duration::from_secs(1) / RATE);
            for n in 0.. {
                ticks.tick().await;
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                let version = change(&cluster, n, OBJECTS).await;
                written.lock().unwrap().push((Instant::now(), version));
            }
        }
    });
    let newest = |age: Duration| {
        let written = written.lock().unwrap();
        written.iter().rev().find(|(at, _)| at.elapsed() >= age).map_or(0, |(_, version)| *version)
    };
    let half = AWAY.as_secs() as usize * RATE as usize / 2;
    let reach = async |wanted: usize| {
        until("changes while decklog is away", PATIENCE, async || {
            let have = written.lock().unwrap().len();
            if have >= wanted { Ok(()) } else { Err(format!("{have}")) }
        })
        .await;
    };
    reach(half).await;
    let compacted = newest(Duration::ZERO);
    oracle::compact(&cluster.etcd(), compacted).await;
    reach(2 * half).await;

    let (begun, asked) = (Instant::now(), cluster.audit(USER).len());
    daemon.start();
    let mut said = begun;
    until("decklog to catch up", PATIENCE, async || {
        daemon.must_run();
        let wanted = newest(RECENT);
        let have = daemon.entries().iter().map(crate::judge::Entry::rv).max().unwrap_or(0);
        if said.elapsed() >= 5 * RECENT {
            said = Instant::now();
            eprintln!("after {:.0?} it is {} revisions behind", begun.elapsed(), wanted.saturating_sub(have));
        }
        if have >= wanted { Ok(()) } else { Err(format!("{have} of {wanted}")) }
    })
    .await;
    let took = begun.elapsed();
    let requests = cluster.audit(USER).len() - asked;
    stop.store(true, Ordering::Relaxed);
    churn.join_next().await.unwrap().unwrap();
    let upto = newest(Duration::ZERO);
    until("the last change", PATIENCE, async || {
        let have = daemon.entries().iter().map(crate::judge::Entry::rv).max().unwrap_or(0);
        if have >= upto { Ok(()) } else { Err(format!("{have} of {upto}")) }
    })
    .await;
    daemon.stop().await;
    let seen: BTreeSet<u64> =
        daemon.entries().iter().filter(|entry| entry.kind == "MODIFIED").map(crate::judge::Entry::rv).collect();
    let written = written.lock().unwrap();
    let lost: Vec<u64> =
        written.iter().map(|(_, version)| *version).filter(|version| !seen.contains(version)).collect();
    let needless = lost.iter().filter(|version| **version > compacted).count();
    table.cells(vec![
        format!("{} s away, {RATE} changes a second before and after, compacted in the middle", AWAY.as_secs()),
        format!("{:.0} s", took.as_secs_f64()),
        thousands(requests),
        format!("{} of {}; {needless} of those after the compaction", thousands(lost.len()), thousands(written.len())),
        String::new(),
    ]);
}

/// Seconds that each of some requests for one object takes, one after the other.
async fn latencies(cluster: &Cluster, mut stop: impl FnMut() -> bool) -> Vec<f64> {
    let mut all = Vec::new();
    let mut pace = tokio::time::interval(BEAT);
    pace.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    while !stop() || all.is_empty() {
        pace.tick().await;
        let begun = Instant::now();
        cluster.get("/api/v1/namespaces/kube-system").await.unwrap();
        all.push(begun.elapsed().as_secs_f64());
    }
    all
}

/// What all but the slowest one in twenty take at most.
fn slow(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() * 19 / 20]
}
