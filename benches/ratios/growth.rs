//! How costs grow with what there is: the objects of a cluster, the sources that they are read by, the entries of a
//! journal. Here decklog is compared with itself: what does not depend on how much there is, is the same in each row.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use decklog::core::model::{Observed, Redacted, ResourceVersion, Seq, Verb};
use decklog::core::wire::Entry;
use decklog::journal::{Journal, Reader, SourceJournal, SourceState, WatchChange, WriterThread};
use decklog::sim::{Sim, objects};
use tokio::runtime::Runtime;

use super::process::{self, Daemon, file_sink, own_seconds, peak_mib, resident_mib, seconds_of};
use super::table::{Table, thousands};
use super::throughput::{config_maps, spec};
use super::{ROUNDS, median};

const PATIENCE: Duration = Duration::from_secs(1800);
/// Changes whose cost is measured.
const CHANGES: usize = 20_000;
/// So many are made at once, that no object has two of them while another has none.
const AT_ONCE: usize = 1_000;

/// Of the cluster whose sources are more or fewer.
const OBJECTS: usize = 100_000;

/// How many objects the entries of a journal are of, beside the one that is asked for …
const OTHERS: usize = 1_000;
/// … and how many versions that one has.
const VERSIONS: usize = 50;
const BATCH: usize = 1_000;
/// How many entries are after the moment since which the log is printed.
const TAIL: u64 = 100;

/// Where each column stands for one way to grow, and each row for ten times as much of it.
pub(super) fn measure() -> Vec<Table> {
    let runtime = Runtime::new().expect("a runtime");
    let columns = &[
        "objects, in so many sources",
        "a change to a file, processor time",
        "resident at most",
        "at the end",
        "listed again, processor time for an object",
        "`get`",
        "`log`",
        "`status`",
    ];
    let mut clusters = Table::new(
        "What changes cost in larger clusters (ConfigMaps of 300 bytes, one version in the log each).",
        columns,
    );
    for objects in [1_000, 10_000, 100_000, 1_000_000] {
        cluster(&mut clusters, &runtime, objects, 1);
    }
    for sources in [50, 500] {
        cluster(&mut clusters, &runtime, OBJECTS, sources);
    }
    let columns =
        &["entries", "on disk", "one more, processor time", "`log`", "`get --at`", "`blame`", "`tail --since`"];
    let mut journals = Table::new("What questions cost in longer logs.", columns);
    for entries in [10_000, 100_000, 1_000_000, 10_000_000] {
        journal(&mut journals, &runtime, entries);
    }
    vec![clusters, journals]
}

/// So many objects, in one namespace for each source.
fn cluster(table: &mut Table, runtime: &Runtime, count: usize, sources: usize) {
    let dir = tempfile::tempdir().expect("a directory");
    let (kubeconfig, state) = (dir.path().join("kubeconfig"), dir.path().join("state"));
    let sim = runtime.block_on(Sim::start()).expect("a port");
    sim.write_kubeconfig(&kubeconfig).expect("space");
    let namespaces: Vec<String> = (0..sources).map(|number| format!("bulk-{number:03}")).collect();
    for namespace in &namespaces {
        sim.bulk_config_maps_in(namespace, count / sources).expect("ConfigMaps are served");
    }
    let watch = format!("resources = [\"configmaps\"]\nnamespaces = {namespaces:?}");
    let daemon = Daemon::watching(dir.path(), &kubeconfig, &watch, &file_sink(dir.path()));
    deliver(runtime, &state, count);
    runtime.block_on(sim.wait_for_watches("configmaps", sources)).expect("it watches");
    let before = rest(runtime, &daemon);
    for _ in 0..CHANGES / AT_ONCE {
        sim.touch_bulk_config_maps(AT_ONCE);
    }
    deliver(runtime, &state, count + CHANGES);
    let change = (rest(runtime, &daemon) - before) / CHANGES as f64;
    let (peak, end) = (peak_mib(daemon.pid()), resident_mib(daemon.pid()));
    let object = format!("configmaps/bulk-{:07}", count / sources / 2);
    let ask = |command: &str| asked(&state, &[command, &object, "-n", &namespaces[sources / 2]], |_| true);
    let (get, log, status) = (ask("get"), ask("log"), asked(&state, &["status"], |said| said.contains("configmaps")));

    drop(daemon);
    sim.touch_bulk_config_maps(10);
    // What is compacted last is of nobody's interest, so that it is all forgotten that a source has not seen.
    sim.create("leases.coordination.k8s.io", objects::lease("kube-system", "other")).expect("Leases are served");
    sim.compact_all();
    let daemon = Daemon::watching(dir.path(), &kubeconfig, &watch, &file_sink(dir.path()));
    wait(runtime, || {
        let rows = Reader::open(&state).ok()?.sources().ok()?;
        Some(rows.iter().all(|row| row.gaps == 1 && !row.gap_owed && row.state == SourceState::Watching))
    });
    let listed = rest(runtime, &daemon) / count as f64;
    table.cells(vec![
        format!("{}, {sources}", thousands(count)),
        format!("{:.1} µs", change * 1e6),
        format!("{peak:.0} MiB"),
        format!("{end:.0} MiB"),
        format!("{:.1} µs", listed * 1e6),
        get,
        log,
        status,
    ]);
}

/// Waits until the sink has so many entries.
fn deliver(runtime: &Runtime, state: &Path, entries: usize) {
    wait(runtime, || Some(Reader::open(state).ok()?.sinks().ok()?.first()?.cursor.0 >= entries as u64));
}

fn wait(runtime: &Runtime, holds: impl Fn() -> Option<bool>) {
    let begun = Instant::now();
    while holds() != Some(true) {
        assert!(begun.elapsed() < PATIENCE, "decklog does not get there");
        pause(runtime, 50);
    }
}

/// Waits until the daemon has nothing more to do, and gives the seconds that it computed until then.
fn rest(runtime: &Runtime, daemon: &Daemon) -> f64 {
    let mut last = seconds_of(daemon.pid());
    loop {
        pause(runtime, 500);
        let now = seconds_of(daemon.pid());
        // Two ticks of the clock: what it does all the time.
        if now - last < 0.02 {
            return now;
        }
        last = now;
    }
}

fn pause(runtime: &Runtime, millis: u64) {
    runtime.block_on(async { tokio::time::sleep(Duration::from_millis(millis)).await });
}

/// A journal of so many entries, and questions that all have short answers.
fn journal(table: &mut Table, runtime: &Runtime, entries: usize) {
    let dir = tempfile::tempdir().expect("a directory");
    let (append, bytes) = runtime.block_on(grow(dir.path(), entries));
    let mut reader = Reader::open(dir.path()).expect("a journal");
    let mut time = |seq: u64| {
        let entry = reader.entry(Seq(seq)).expect("a journal").expect("an entry");
        Entry::parse(&entry.line).expect("an entry").time.to_string()
    };
    let (middle, since) = (time(entries as u64 / 2), time((entries + CHANGES) as u64 - TAIL + 1));
    let object = "configmaps/asked-for";
    let lines = |count: usize| move |said: &str| said.lines().count() >= count;
    table.cells(vec![
        thousands(entries),
        format!("{:.0} MiB", bytes / f64::from(1 << 20)),
        format!("{:.1} µs", append * 1e6),
        asked(dir.path(), &["log", object], lines(VERSIONS)),
        asked(dir.path(), &["get", object, "--at", &middle], |said| said.contains("asked-for")),
        asked(dir.path(), &["blame", object], |said| said.contains("asked-for")),
        asked(dir.path(), &["tail", "--since", &since], lines(usize::try_from(TAIL).expect("it is small"))),
    ]);
}

/// Writes a journal. Gives the processor time of each of some more changes, and its bytes before those.
async fn grow(dir: &Path, entries: usize) -> (f64, f64) {
    let (journal, source, thread) = open(dir).await;
    for first in (0..entries).step_by(BATCH) {
        source.append(batch(first, entries / VERSIONS)).await.expect("room");
    }
    journal.flush().await.expect("a commit");
    drop((journal, source));
    thread.join().expect("a clean end");
    let bytes = fs::metadata(dir.join("journal.db")).expect("a journal").len() as f64;

    let (journal, source, thread) = open(dir).await;
    let more: Vec<Vec<WatchChange>> =
        (entries..entries + CHANGES).step_by(BATCH).map(|first| batch(first, usize::MAX)).collect();
    let begun = own_seconds();
    for batch in more {
        source.append(batch).await.expect("room");
        journal.flush().await.expect("a commit");
    }
    let seconds = own_seconds() - begun;
    drop((journal, source));
    thread.join().expect("a clean end");
    (seconds / CHANGES as f64, bytes)
}

async fn open(dir: &Path) -> (Journal, SourceJournal, WriterThread) {
    let (journal, thread) = Journal::open(dir).expect("a journal");
    let source = journal.source(&spec(config_maps())).await.expect("a source").0;
    (journal, source, thread)
}

fn batch(first: usize, every: usize) -> Vec<WatchChange> {
    (first..first + BATCH).map(|index| change(index, every)).collect()
}

/// Each of so many changes is of the one object.
fn change(index: usize, every: usize) -> WatchChange {
    let (name, uid) = match index % every {
        0 => ("asked-for".to_owned(), OTHERS),
        _ => (format!("other-{:07}", index % OTHERS), index % OTHERS),
    };
    let (uid, version) = (format!("00000000-0000-4000-8000-{uid:012}"), index + 1);
    let bytes = format!(
        r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"name":"{name}","namespace":"bulk","uid":"{uid}","resourceVersion":"{version}","creationTimestamp":"2026-01-01T00:00:00Z","managedFields":[{{"manager":"bench","operation":"Update","apiVersion":"v1","time":"2026-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{{"f:data":{{"f:value":{{}}}}}}}}]}},"data":{{"value":"{version}"}}}}"#
    );
    let object = Observed {
        namespace: "bulk".to_owned(),
        name,
        uid,
        version: ResourceVersion::new(version.to_string()),
        body: Redacted { bytes: bytes.into_bytes(), pointers: Vec::new(), marks: Vec::new() },
    };
    WatchChange { verb: Verb::Upsert, object }
}

/// What a command costs: how long it takes, and how much of that it computes. What it says has to be right.
fn asked(state: &Path, args: &[&str], is_right: impl Fn(&str) -> bool) -> String {
    let (mut took, mut computed) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let (said, wall, own) = process::command(state, args);
        assert!(is_right(&said), "decklog {args:?} says {said}");
        took.push(wall * 1e3);
        computed.push(own * 1e3);
    }
    format!("{:.1} ms ({:.1})", median(took), median(computed))
}
