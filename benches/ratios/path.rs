//! The whole way, from the API server to a line in a file, with everything in between on disk.

use std::path::Path;
use std::time::{Duration, Instant};

use decklog::journal::Reader;
use decklog::sim::Sim;
use tokio::runtime::Runtime;

use super::process::{Daemon, file_sink, last_number, seconds_of, spawn};
use super::table::Table;
use super::{ROUNDS, median};

const PODS: usize = 2_000;
const EVENTS: usize = 20_000;
const PATIENCE: Duration = Duration::from_secs(300);

pub(super) fn compare(table: &mut Table) {
    let runtime = Runtime::new().expect("a runtime");
    let (mut ours, mut single, mut batched) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        single.push(with_cluster(&runtime, |runtime, sim, dir, kubeconfig| textbook(runtime, sim, dir, kubeconfig, 1)));
        batched
            .push(with_cluster(&runtime, |runtime, sim, dir, kubeconfig| textbook(runtime, sim, dir, kubeconfig, 100)));
        ours.push(daemon(&runtime, EVENTS, file_sink));
    }
    let (ours, single, batched) = (median(ours), median(single), median(batched));
    let mut row = |what: &str, how: &str, theirs: f64, target: &str| {
        table.row(
            what,
            format!("{:.0} µs, with patch, redaction and verified positions", each(EVENTS, ours)),
            &format!("watcher → serde_json → rusqlite → file, {how}: {:.0} µs", each(EVENTS, theirs)),
            format!("1/{:.1}", theirs / ours),
            target,
        );
    };
    row("whole path to a file, processor time for an event of 8 KB", "event by event", single, "1/8");
    row("the same", "100 events to a transaction", batched, "1/4");
}

/// Microseconds for an event, of the seconds for the first list and so many changes.
pub(super) fn each(events: usize, seconds: f64) -> f64 {
    seconds / (PODS + events) as f64 * 1e6
}

/// The processor seconds of a daemon with these sinks and sections, for the first list and so many changes.
pub(super) fn daemon(runtime: &Runtime, events: usize, sections: impl Fn(&Path) -> String) -> f64 {
    with_cluster(runtime, |runtime, sim, dir, kubeconfig| {
        decklog(runtime, sim, (dir, kubeconfig), events, &sections(dir))
    })
}

fn with_cluster(runtime: &Runtime, measure: impl FnOnce(&Runtime, &Sim, &Path, &Path) -> f64) -> f64 {
    let dir = tempfile::tempdir().expect("a directory");
    let kubeconfig = dir.path().join("kubeconfig");
    let sim = runtime.block_on(Sim::start()).expect("a port");
    sim.bulk_pods(PODS).expect("Pods are served");
    sim.write_kubeconfig(&kubeconfig).expect("space");
    measure(runtime, &sim, dir.path(), &kubeconfig)
}

fn textbook(runtime: &Runtime, sim: &Sim, dir: &Path, kubeconfig: &Path, batch: usize) -> f64 {
    let (events, batch) = ((PODS + EVENTS).to_string(), batch.to_string());
    let text = |path: &Path| path.to_str().expect("a plain path").to_owned();
    let mut child = spawn(&["path-kube", &text(kubeconfig), &text(dir), &events, &batch]);
    runtime.block_on(sim.wait_for_watches("pods", 1)).expect("it watches");
    sim.touch_bulk(EVENTS);
    last_number(&mut child)
}

fn decklog(runtime: &Runtime, sim: &Sim, (dir, kubeconfig): (&Path, &Path), events: usize, sections: &str) -> f64 {
    let daemon = Daemon::with(dir, kubeconfig, "pods", sections);
    runtime.block_on(sim.wait_for_watches("pods", 1)).expect("it watches");
    sim.touch_bulk(events);
    let begun = Instant::now();
    let done = || {
        let reader = Reader::open(&dir.join("state")).ok()?;
        let cursor = reader.sinks().ok()?.first()?.cursor.0;
        (cursor >= (PODS + events) as u64).then_some(())
    };
    while done().is_none() {
        assert!(begun.elapsed() < PATIENCE, "decklog does not get there");
        runtime.block_on(async { tokio::time::sleep(Duration::from_millis(20)).await });
    }
    seconds_of(daemon.pid())
}
