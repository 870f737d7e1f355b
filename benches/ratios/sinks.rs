//! A slow sink beside a fast one: the fast one has everything as soon as it would have it alone.

use std::time::{Duration, Instant};

use decklog::journal::Reader;
use decklog::sim::Sim;
use tokio::runtime::Runtime;

use super::process::{Daemon, peak_mib};
use super::table::Table;
use super::{ROUNDS, median};

const ENTRIES: usize = 100_000;
const PATIENCE: Duration = Duration::from_secs(600);
const SLOW: &str = "type = \"file\"\nrate = 1\n";

pub(super) fn compare(table: &mut Table) {
    let runtime = Runtime::new().expect("a runtime");
    let (mut alone, mut beside) = (Vec::new(), Vec::new());
    let (mut peak_alone, mut peak_beside) = (0_f64, 0_f64);
    for _ in 0..ROUNDS {
        let (seconds, peak) = measure(&runtime, false);
        alone.push(seconds);
        peak_alone = peak_alone.max(peak);
        let (seconds, peak) = measure(&runtime, true);
        beside.push(seconds);
        peak_beside = peak_beside.max(peak);
    }
    let (alone, beside) = (median(alone), median(beside));
    table.row(
        "100,000 entries to a file, beside a sink that takes one in a second",
        format!("{beside:.1} s, {peak_beside:.0} MiB resident at most"),
        &format!("without that sink: {alone:.1} s, {peak_alone:.0} MiB"),
        format!("{:.2}", beside / alone),
        "1",
    );
}

/// The seconds until the file has everything, and the most memory of decklog until then.
fn measure(runtime: &Runtime, slow: bool) -> (f64, f64) {
    let dir = tempfile::tempdir().expect("a directory");
    let kubeconfig = dir.path().join("kubeconfig");
    let sim = runtime.block_on(Sim::start()).expect("a port");
    sim.bulk_config_maps(ENTRIES).expect("ConfigMaps are served");
    sim.write_kubeconfig(&kubeconfig).expect("space");
    let file = |name: &str, more: &str| {
        format!("[[sink]]\nname = \"{name}\"\npath = {:?}\n{more}\n", dir.path().join(format!("{name}.jsonl")))
    };
    let mut sinks = file("fast", "type = \"file\"\n");
    if slow {
        sinks.push_str(&file("slow", SLOW));
    }
    let begun = Instant::now();
    let daemon = Daemon::with(dir.path(), &kubeconfig, "configmaps", &sinks);
    let cursors = || -> Option<Vec<(String, u64)>> {
        let reader = Reader::open(&dir.path().join("state")).ok()?;
        Some(reader.sinks().ok()?.into_iter().map(|row| (row.name, row.cursor.0)).collect())
    };
    let at = |name: &str| cursors().into_iter().flatten().find(|row| row.0 == name).map_or(0, |row| row.1);
    while at("fast") < ENTRIES as u64 {
        assert!(begun.elapsed() < PATIENCE, "decklog does not get there");
        runtime.block_on(async { tokio::time::sleep(Duration::from_millis(20)).await });
    }
    let seconds = begun.elapsed().as_secs_f64();
    assert!(!slow || at("slow") < ENTRIES as u64 / 10, "the slow sink is not slow");
    (seconds, peak_mib(daemon.pid()))
}
