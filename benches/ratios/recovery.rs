//! What it costs to recover what a watch has forgotten: requests, time, memory, and what another client feels of it.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use decklog::journal::Reader;
use decklog::sim::{Sim, objects};
use decklog::watch::cluster;
use decklog::watch::cluster::{Api, Limits};
use serde_json::json;
use tokio::runtime::Runtime;
use tokio::time::MissedTickBehavior;

use super::process::{Daemon, peak_mib};
use super::table::{Table, thousands};

const PATIENCE: Duration = Duration::from_secs(600);
/// A quarter of the rate of the default, and no bound on the number of requests, which is what is measured.
const BOUNDS: &str = "[cluster.recover]\nrequests = 1000000\nrate = 100\n";
/// Between two requests of the other client.
const BEAT: Duration = Duration::from_millis(5);
/// So many of them tell how long one takes where nothing is recovered.
const BEATS: usize = 400;

pub(super) fn compare(table: &mut Table) {
    let runtime = Runtime::new().expect("a runtime");
    for (pods, changes) in [(1_000, 100), (1_000, 1_000), (1_000, 10_000), (100_000, 100), (100_000, 1_000)] {
        measure(table, &runtime, pods, changes);
    }
}

fn measure(table: &mut Table, runtime: &Runtime, pods: usize, changes: usize) {
    let dir = tempfile::tempdir().expect("a directory");
    let kubeconfig = dir.path().join("kubeconfig");
    let sim = runtime.block_on(Sim::start()).expect("a port");
    sim.write_kubeconfig(&kubeconfig).expect("space");
    sim.create("leases.coordination.k8s.io", objects::lease("kube-system", "other")).expect("Leases are served");
    sim.bulk_pods(pods).expect("Pods are served");
    let daemon = Daemon::with(dir.path(), &kubeconfig, "pods", BOUNDS);
    wait(runtime, dir.path(), sim.revision(), 0);
    runtime.block_on(sim.wait_for_watches("pods", 1)).expect("it watches");
    drop(daemon);

    let expected = live(&sim, changes);
    sim.expire_watch_history("pods", sim.revision());
    sim.clear_requests();
    let cluster = cluster::Settings { kubeconfig: Some(kubeconfig.clone()), ..cluster::Settings::default() };
    let api = runtime.block_on(Api::open(&cluster, Limits::default())).expect("a kubeconfig");
    let stop = std::sync::Arc::new(AtomicBool::new(false));
    let other = runtime.spawn({
        let (api, stop) = (api.clone(), std::sync::Arc::clone(&stop));
        async move { latencies(&api, || stop.load(Ordering::Relaxed)).await }
    });
    let begun = Instant::now();
    let daemon = Daemon::with(dir.path(), &kubeconfig, "pods", BOUNDS);
    wait(runtime, dir.path(), sim.revision(), expected);
    let took = begun.elapsed();
    stop.store(true, Ordering::Relaxed);
    let requests = sim.requests().iter().filter(|seen| seen.is_list("pods")).count();
    let meanwhile = slow(runtime.block_on(other).expect("the other client ends"));
    let mut beats = 0;
    let alone = slow(runtime.block_on(latencies(&api, || {
        beats += 1;
        beats > BEATS
    })));
    let memory = peak_mib(daemon.pid());
    table.row(
        &format!("recovery of {} changes, {} Pods of 8 KB", thousands(changes), thousands(pods)),
        format!("{} requests in {:.1} s, {memory:.0} MiB resident at most", thousands(requests), took.as_secs_f64()),
        &format!("p95 of another client's GETs: {:.2} ms meanwhile, {:.2} ms without", meanwhile * 1e3, alone * 1e3),
        format!("{:.1}x", meanwhile / alone),
        "",
    );
}

/// So many revisions: of ten, seven change a Pod, one creates and one deletes one, and one is of a Lease that nobody watches.
/// Gives how many of them are changes of Pods.
fn live(sim: &Sim, revisions: usize) -> u64 {
    let tenth = revisions / 10;
    let old = sim.objects("pods").expect("Pods are served");
    for n in 0..tenth {
        sim.touch_bulk(7);
        let new = objects::pod("bulk", &format!("new-{n}"), "bulk", None, "registry.example/bulk:1.0.0");
        sim.create("pods", new).expect("a new name");
        // Not all of them can be old ones.
        match old.len().checked_sub(n + 10) {
            Some(at) => sim.delete("pods", &old[at].namespace, &old[at].name),
            None => sim.delete("pods", "bulk", &format!("new-{}", n - 1)),
        }
        .expect("it is there");
        let renewed = json!({ "spec": { "leaseTransitions": n + 1 } });
        sim.patch("leases.coordination.k8s.io", "kube-system", "other", &renewed).expect("it is there");
    }
    9 * tenth as u64
}

/// Waits until the journal is past a revision, and has recovered so many changes.
fn wait(runtime: &Runtime, dir: &Path, revision: u64, recovered: u64) {
    let begun = Instant::now();
    let there = || {
        let sources = Reader::open(&dir.join("state")).ok()?.sources().ok()?;
        let source = sources.first()?;
        assert!(source.gaps == 0, "nothing is compacted");
        let at: u64 = source.resume.as_ref()?.parse().ok()?;
        // The first list is of a version that may be older by what was written last.
        (source.recovered >= recovered && at + 1 >= revision).then_some(())
    };
    while there().is_none() {
        assert!(begun.elapsed() < PATIENCE, "decklog does not get there");
        runtime.block_on(async { tokio::time::sleep(Duration::from_millis(20)).await });
    }
}

/// Seconds that each of some requests for one object takes, one after the other.
async fn latencies(api: &Api, mut stop: impl FnMut() -> bool) -> Vec<f64> {
    let mut all = Vec::new();
    let mut beat = tokio::time::interval(BEAT);
    // One after another would be faster than one by one.
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while !stop() || all.is_empty() {
        beat.tick().await;
        let begun = Instant::now();
        let asked = api.send(http::Method::GET, "/api/v1/namespaces/kube-system", "application/json", Vec::new());
        asked.await.expect("an answer");
        all.push(begun.elapsed().as_secs_f64());
    }
    all
}

/// What all but the slowest one in twenty take at most.
fn slow(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() * 19 / 20]
}
