//! Resident memory with a big cluster: the first list of 100,000 Pods of 8 KB.

use std::time::{Duration, Instant};

use decklog::journal::Reader;
use decklog::sim::Sim;

use super::process::{Daemon, peak_mib};
use super::table::Table;

const PODS: u32 = 100_000;
const PATIENCE: Duration = Duration::from_secs(600);

pub(super) fn measure(table: &mut Table) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let dir = tempfile::tempdir().expect("a directory");
    let kubeconfig = dir.path().join("kubeconfig");
    let sim = runtime.block_on(Sim::start()).expect("a port");
    sim.bulk_pods(PODS as usize).expect("Pods are served");
    sim.write_kubeconfig(&kubeconfig).expect("space");
    let daemon = Daemon::start(dir.path(), &kubeconfig, true);
    let begun = Instant::now();
    let delivered = || {
        let reader = Reader::open(&dir.path().join("state")).ok()?;
        Some(reader.sinks().ok()?.first()?.cursor.0)
    };
    while delivered().unwrap_or(0) < u64::from(PODS) {
        assert!(begun.elapsed() < PATIENCE, "decklog does not get there");
        runtime.block_on(async { tokio::time::sleep(Duration::from_millis(100)).await });
    }
    table.row(
        "memory, 100,000 Pods of 8 KB listed, journaled and in the file",
        format!("{:.0} MiB resident at most, after {:.0} s", peak_mib(daemon.pid()), begun.elapsed().as_secs_f64()),
        "their bytes: 780 MiB",
        String::new(),
        "96 MiB",
    );
}
