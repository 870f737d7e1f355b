//! Costs of a daemon in a cluster in which nothing changes, and memory beside objects that are large.

use std::time::{Duration, Instant};

use decklog::journal::Reader;
use decklog::sim::{Sim, objects};
use serde_json::{Map, Value};
use tokio::runtime::Runtime;

use super::process::{Daemon, file_sink, peak_mib, seconds_of};
use super::table::Table;

/// Sources of the quiet cluster.
const SOURCES: usize = 60;
/// Objects of each.
const OBJECTS: usize = 20;
/// Time in which the daemon comes to rest, and that in which it is looked at.
const REST: Duration = Duration::from_secs(15);
const STILL: Duration = Duration::from_secs(120);
const PATIENCE: Duration = Duration::from_secs(300);
/// Objects, and bytes of each, which are small values.
const LARGE: [(usize, usize); 2] = [(1, 3 << 20), (4, 3 << 19)];
/// Changes of each large object.
const CHANGES: usize = 5;

pub(super) fn measure(table: &mut Table) {
    let runtime = Runtime::new().expect("a runtime");
    idle(&runtime, table);
    for (count, bytes) in LARGE {
        large(&runtime, table, count, bytes);
    }
}

fn idle(runtime: &Runtime, table: &mut Table) {
    let dir = tempfile::tempdir().expect("a directory");
    let kubeconfig = dir.path().join("kubeconfig");
    let sim = runtime.block_on(Sim::start()).expect("a port");
    let names: Vec<String> = (0..SOURCES).map(|n| format!("things{n}.example.com")).collect();
    for (n, name) in names.iter().enumerate() {
        let kind = format!("Thing{n}");
        sim.define(objects::crd(name, &kind, true, &["v1"])).expect("it is new");
        for object in 0..OBJECTS {
            let object = serde_json::json!({"apiVersion": "example.com/v1", "kind": kind, "metadata": {"namespace": "default", "name": format!("o{object}")}});
            sim.create(name, object).expect("it is new");
        }
    }
    sim.write_kubeconfig(&kubeconfig).expect("space");
    let daemon = Daemon::watching(dir.path(), &kubeconfig, &format!("resources = {names:?}"), &file_sink(dir.path()));
    delivered(runtime, dir.path(), SOURCES * OBJECTS);
    for name in &names {
        runtime.block_on(sim.wait_for_watches(name, 1)).expect("it watches");
    }
    std::thread::sleep(REST);
    let (before, begun) = (seconds_of(daemon.pid()), Instant::now());
    std::thread::sleep(STILL);
    let part = (seconds_of(daemon.pid()) - before) / begun.elapsed().as_secs_f64();
    table.row(
        "processor of an idle daemon with 60 quiet sources",
        format!("{:.2} % of one", part * 100.0),
        "none",
        String::new(),
        "0.3 %",
    );
}

/// An object of values as small as an annotation's flags are.
fn of_small_values(name: &str, bytes: usize) -> Value {
    let data: Map<String, Value> =
        (0..bytes / 16).map(|n| (format!("k{n:07}"), format!("{:02}", n % 100).into())).collect();
    serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "default", "name": name}, "data": data})
}

fn large(runtime: &Runtime, table: &mut Table, count: usize, bytes: usize) {
    let dir = tempfile::tempdir().expect("a directory");
    let kubeconfig = dir.path().join("kubeconfig");
    let sim = runtime.block_on(Sim::start()).expect("a port");
    for n in 0..count {
        sim.create("configmaps", of_small_values(&format!("large{n}"), bytes)).expect("it is new");
    }
    sim.write_kubeconfig(&kubeconfig).expect("space");
    let daemon = Daemon::with(dir.path(), &kubeconfig, "configmaps", &file_sink(dir.path()));
    delivered(runtime, dir.path(), count);
    runtime.block_on(sim.wait_for_watches("configmaps", 1)).expect("it watches");
    for turn in 0..CHANGES {
        for n in 0..count {
            let patch = serde_json::json!({"data": {"k0000000": turn.to_string(), "k0000100": turn.to_string()}});
            sim.patch("configmaps", "default", &format!("large{n}"), &patch).expect("it is there");
        }
    }
    delivered(runtime, dir.path(), count * (1 + CHANGES));
    table.row(
        &format!(
            "memory, {count} object(s) of {:.1} MiB of small values, changed {CHANGES} times",
            bytes as f64 / 1048576.0
        ),
        format!("{:.0} MiB resident at most", peak_mib(daemon.pid())),
        &format!("their bytes: {:.1} MiB", (count * bytes) as f64 / 1048576.0),
        String::new(),
        "256 MiB",
    );
}

/// Waits until the file has the log up to this entry.
fn delivered(runtime: &Runtime, dir: &std::path::Path, upto: usize) {
    let begun = Instant::now();
    let cursor = || Some(Reader::open(&dir.join("state")).ok()?.sinks().ok()?.first()?.cursor.0);
    while cursor().unwrap_or(0) < upto as u64 {
        assert!(begun.elapsed() < PATIENCE, "decklog does not get there");
        runtime.block_on(async { tokio::time::sleep(Duration::from_millis(50)).await });
    }
}
