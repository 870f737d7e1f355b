//! Resident memory with a big cluster, the first list of 100,000 Pods of 8 KB, and after many changes at once.

use std::path::Path;
use std::time::{Duration, Instant};

use decklog::journal::Reader;
use decklog::sim::Sim;

use super::process::{Daemon, peak_mib, resident_mib};
use super::table::Table;

const PODS: u32 = 100_000;

/// As many Pods change in a burst, and so often each.
const FEW: u32 = 2_000;
const TIMES: u32 = 10;
/// Free memory is given back every five seconds (`allocator.c`).
const GIVEN_BACK: Duration = Duration::from_secs(6);
const PATIENCE: Duration = Duration::from_secs(600);

pub(super) fn measure(table: &mut Table) {
    list(table);
    burst(table);
}

fn list(table: &mut Table) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let dir = tempfile::tempdir().expect("a directory");
    let kubeconfig = dir.path().join("kubeconfig");
    let sim = runtime.block_on(Sim::start()).expect("a port");
    sim.bulk_pods(PODS as usize).expect("Pods are served");
    sim.write_kubeconfig(&kubeconfig).expect("space");
    let daemon = Daemon::start(dir.path(), &kubeconfig, true);
    let begun = Instant::now();
    runtime.block_on(delivered(dir.path(), PODS));
    table.row(
        "memory, 100,000 Pods of 8 KB listed, journaled and in the file",
        format!("{:.0} MiB resident at most, after {:.0} s", peak_mib(daemon.pid()), begun.elapsed().as_secs_f64()),
        "their bytes: 780 MiB",
        String::new(),
        "64 MiB",
    );
}

fn burst(table: &mut Table) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let dir = tempfile::tempdir().expect("a directory");
    let kubeconfig = dir.path().join("kubeconfig");
    let sim = runtime.block_on(Sim::start()).expect("a port");
    sim.bulk_pods(FEW as usize).expect("Pods are served");
    sim.write_kubeconfig(&kubeconfig).expect("space");
    let daemon = Daemon::start(dir.path(), &kubeconfig, true);
    runtime.block_on(delivered(dir.path(), FEW));
    let before = settled_mib(&daemon);
    runtime.block_on(sim.wait_for_watches("pods", 1)).expect("it watches");
    sim.touch_bulk((FEW * TIMES) as usize);
    runtime.block_on(delivered(dir.path(), FEW + FEW * TIMES));
    table.row(
        "memory six seconds after a burst of 20,000 changes of 8 KB",
        format!("{:.0} MiB resident, {:.0} MiB at most", settled_mib(&daemon), peak_mib(daemon.pid())),
        &format!("before it: {before:.0} MiB"),
        String::new(),
        "80 MiB",
    );
}

/// The memory that a daemon has resident once it has given back what is free, in MiB.
fn settled_mib(daemon: &Daemon) -> f64 {
    std::thread::sleep(GIVEN_BACK);
    resident_mib(daemon.pid())
}

/// Waits until the file has the log up to this entry.
async fn delivered(dir: &Path, upto: u32) {
    let begun = Instant::now();
    let cursor = || {
        let reader = Reader::open(&dir.join("state")).ok()?;
        Some(reader.sinks().ok()?.first()?.cursor.0)
    };
    while cursor().unwrap_or(0) < u64::from(upto) {
        assert!(begun.elapsed() < PATIENCE, "decklog does not get there");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
