//! What the evidence of the log costs: beside the same daemon without it, beside `sha256sum`, and on the disk.

use std::fs;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use decklog::core::model::{Cluster, Seq, Verb};
use decklog::evidence::key::SigningKey;
use decklog::evidence::place::{Directory, Place};
use decklog::evidence::publish::{Pace, Publisher};
use decklog::evidence::settings::Settings;
use decklog::evidence::submit::Witnesses;
use decklog::journal::{Bounds, Journal, WatchChange};
use rusqlite::Connection;
use tokio::runtime::Runtime;

use super::process::file_sink;
use super::table::{Table, thousands};
use super::throughput::{config_map, config_maps, spec};
use super::{ROUNDS, median, path};

const NAME: &str = "bench.example/decklog";
/// How many entries a large log has.
const LARGE: usize = 1_000_000;
const BATCH: usize = 1_000;
/// How many changes a daemon takes: enough that its start, and the checkpoint at its start, are a small part.
const EVENTS: usize = 60_000;

pub(super) fn compare(table: &mut Table) {
    let runtime = Runtime::new().expect("a runtime");
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        without.push(path::daemon(&runtime, EVENTS, file_sink));
        with.push(path::daemon(&runtime, EVENTS, signed));
    }
    let (with, without) = (median(with), median(without));
    table.row(
        "whole path to a file with evidence, processor time for an event of 8 KB",
        format!("{:.0} µs", path::each(EVENTS, with)),
        &format!("without evidence: {:.0} µs", path::each(EVENTS, without)),
        format!("{:.2}", with / without),
        "1.10",
    );
    large(table, &runtime);
}

/// A file, and evidence of what is in it.
fn signed(dir: &Path) -> String {
    let key = SigningKey::generate(NAME).expect("a name").render();
    fs::write(dir.join("key"), key).expect("space");
    format!("{}[evidence]\ndir = {:?}\nkey_file = {:?}\n", file_sink(dir), dir.join("evidence"), dir.join("key"))
}

/// A log of very many small entries: the time to check it, and the bytes that its evidence takes.
fn large(table: &mut Table, runtime: &Runtime) {
    let dir = tempfile::tempdir().expect("a directory");
    let key = SigningKey::generate(NAME).expect("a name");
    let public = key.verifier().to_string();
    let (file, evidence) = (dir.path().join("events.jsonl"), dir.path().join("evidence"));
    runtime.block_on(write(&dir.path().join("state"), &file, key, evidence.clone()));

    let verify = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_decklog"));
        command.arg("verify").arg(&file).arg("--evidence").arg(&evidence).args(["--key", &public]);
        timed(command)
    };
    let sum = || {
        let mut command = Command::new("sha256sum");
        command.arg(&file);
        timed(command)
    };
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        theirs.push(sum());
        ours.push(verify());
    }
    let (ours, theirs) = (median(ours), median(theirs));
    table.row(
        &format!("`verify FILE --evidence` of {} entries", thousands(LARGE)),
        format!("{ours:.1} s"),
        &format!("`sha256sum FILE`: {theirs:.1} s"),
        format!("{:.1}", ours / theirs),
        "10 s",
    );

    let journal = Connection::open(dir.path().join("state/journal.db")).expect("a journal");
    let tables = "SELECT sum(pgsize) FROM dbstat WHERE name IN ('tree', 'tree_block', 'tree_leaves', 'digest')";
    let of_journal: f64 = journal.query_row(tables, [], |row| row.get(0)).expect("sizes of tables");
    let bytes = |all: f64| all / LARGE as f64;
    let (of_journal, of_directory, of_file) = (bytes(of_journal), bytes(size_of(&evidence)), bytes(size_of(&file)));
    table.row(
        "evidence of an entry, bytes on the disk",
        format!(
            "{:.0} B: {of_journal:.0} in the journal, {of_directory:.0} in the directory",
            of_journal + of_directory
        ),
        &format!("its line: {of_file:.0} B"),
        format!("{:.2}", (of_journal + of_directory) / of_file),
        "80 B",
    );
}

async fn write(state: &Path, file: &Path, key: SigningKey, evidence: PathBuf) {
    fs::create_dir_all(state).expect("space");
    let (journal, _writer) = Journal::open(state).expect("an empty journal");
    let cluster = Cluster { name: "bench".into(), uid: "0b0e5d3c-8f27-4c8e-9d51-2f9d0c1a7e44".into() };
    journal.set_cluster(cluster).await.expect("the first cluster");
    let places = vec![Place::Directory(Directory::new(evidence))];
    let settings: Settings = serde_json::from_str(r#"{"key_file": "/"}"#).expect("the other keys can be left out");
    let publisher = Publisher::new(vec![key], places, Witnesses::new(&settings));
    publisher.begin(&journal).await.expect("a journal");
    let source = journal.source(&spec(config_maps())).await.expect("a source").0;
    let mut out = BufWriter::new(fs::File::create(file).expect("space"));
    let (mut reader, mut after) = (journal.reader().expect("a journal"), Seq(0));
    for batch in 0..LARGE / BATCH {
        let maps = (0..BATCH).map(|at| WatchChange { verb: Verb::Upsert, object: config_map(batch * BATCH + at) });
        source.append(maps.collect()).await.expect("room");
        journal.flush().await.expect("a commit");
        while let Ok(page) = reader.deliverable_after(after, BATCH, usize::MAX, None)
            && let Some(last) = page.entries.last()
        {
            after = last.seq;
            for entry in &page.entries {
                out.write_all(entry.line.as_ref()).and_then(|()| out.write_all(b"\n")).expect("space");
            }
        }
    }
    // A round ends after its time; the next one goes on.
    for _ in 0..10 {
        if publisher.sign(&journal, Pace::USUAL).await.is_ok() {
            break;
        }
    }
    // The journal removes what the directory has, a part at a time.
    let bounds = Bounds { max_size: 1 << 40, max_age: Duration::from_hours(24 * 3650), drop_oldest: false };
    journal.bound(bounds).await.expect("a journal");
    let other = Connection::open(state.join("journal.db")).expect("a journal");
    let mut ticks = tokio::time::interval(Duration::from_millis(50));
    let blocks =
        || other.query_row("SELECT count(*) FROM tree_leaves", [], |row| row.get::<_, u64>(0)).expect("a count");
    while blocks() > 0 {
        ticks.tick().await;
    }
    out.flush().expect("space");
}

fn timed(mut command: Command) -> f64 {
    let begun = Instant::now();
    let ended = command.stdout(Stdio::null()).status().expect("a program");
    assert!(ended.success(), "{command:?}");
    begun.elapsed().as_secs_f64()
}

/// Bytes of a file, or of all files of a directory.
fn size_of(path: &Path) -> f64 {
    if path.is_dir() {
        fs::read_dir(path).expect("a directory").map(|entry| size_of(&entry.expect("an entry").path())).sum()
    } else {
        fs::metadata(path).expect("a file").len() as f64
    }
}
