//! The journal against a textbook schema and against a plain append, on the same disk.
//!
//! One hundred changes to a transaction everywhere, objects of 8 KB that change a little from version to version, as
//! Pods do.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::time::Instant;

use decklog::core::model::{Observed, Redacted, ResourceVersion, SourceSpec, Verb};
use decklog::journal::{Journal, WatchChange};
use decklog::sim::Sim;
use rusqlite::{Connection, params};

use super::ingest::pods;
use super::table::Table;
use super::{ROUNDS, median};

const OBJECTS: usize = 200;
const BATCH: usize = 100;
pub(super) const BATCHES: usize = 200;

pub(super) fn compare(table: &mut Table) {
    let versions = versions(BATCHES);
    let (mut ours, mut textbook, mut append) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        // In turns, so that a disk that gets slower is slower for all of them.
        append.push(timed(|dir| plain_append(dir, &versions)));
        textbook.push(timed(|dir| rows(dir, &versions)));
        ours.push(timed(|dir| journal(dir, &versions)));
    }
    let (ours, textbook, append) = (median(ours), median(textbook), median(append));
    let rate = |seconds: f64| (BATCH * BATCHES) as f64 / seconds;
    let mut row = |what: &str, baseline: &str, seconds: f64, target: &str| {
        table.row(
            what,
            format!("{:.0} changes/s", rate(ours)),
            &format!("{baseline}: {:.0} changes/s", rate(seconds)),
            format!("{:.1}x", seconds / ours),
            target,
        );
    };
    row("journal, 100 changes of 8 KB to a transaction", "rows in SQLite, as in a textbook", textbook, "3.5x");
    row("the same", "append and fdatasync, nothing else", append, "0.6x");
}

fn timed(work: impl FnOnce(&Path)) -> f64 {
    let dir = tempfile::tempdir().expect("a directory for the bench");
    let start = Instant::now();
    work(dir.path());
    start.elapsed().as_secs_f64()
}

/// Our journal: entry with its patch, state and checkpoint, each batch awaited until it is on disk.
pub(super) fn journal(dir: &Path, versions: &[Vec<Observed>]) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        let (journal, thread) = Journal::open(dir).expect("an empty journal");
        let source = journal.source(&spec()).await.expect("a source").0;
        for batch in versions {
            let changes = batch.iter().map(|object| WatchChange { verb: Verb::Upsert, object: object.clone() });
            source.append(changes.collect()).await.expect("room");
            journal.flush().await.expect("a commit");
        }
        drop((journal, source));
        thread.join().expect("a clean end");
    });
}

/// What a careful programmer writes first: an event table, an object table, a position, one transaction a batch,
/// as durable as ours.
fn rows(dir: &Path, versions: &[Vec<Observed>]) {
    let mut conn = Connection::open(dir.join("textbook.db")).expect("a database");
    conn.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
         CREATE TABLE event (seq INTEGER PRIMARY KEY AUTOINCREMENT, time TEXT, type TEXT, namespace TEXT, name TEXT, uid TEXT, version TEXT, object TEXT);
         CREATE INDEX event_by_object ON event (namespace, name, seq);
         CREATE TABLE object (uid TEXT PRIMARY KEY, namespace TEXT, name TEXT, version TEXT, object TEXT);
         CREATE TABLE position (resource TEXT PRIMARY KEY, version TEXT);",
    )
    .expect("a schema");
    for batch in versions {
        let tx = conn.transaction().expect("a transaction");
        for object in batch {
            let text = std::str::from_utf8(&object.body.bytes).expect("JSON is UTF-8");
            let version = object.version.as_str();
            tx.prepare_cached("INSERT INTO event (time, type, namespace, name, uid, version, object) VALUES (datetime('now'), 'MODIFIED', ?, ?, ?, ?, ?)")
                .and_then(|mut insert| insert.execute(params![object.namespace, object.name, object.uid, version, text]))
                .expect("a row");
            tx.prepare_cached("INSERT INTO object VALUES (?, ?, ?, ?, ?) ON CONFLICT (uid) DO UPDATE SET version = excluded.version, object = excluded.object")
                .and_then(|mut insert| insert.execute(params![object.uid, object.namespace, object.name, version, text]))
                .expect("a row");
            tx.prepare_cached(
                "INSERT INTO position VALUES ('pods', ?) ON CONFLICT DO UPDATE SET version = excluded.version",
            )
            .and_then(|mut insert| insert.execute([version]))
            .expect("a row");
        }
        tx.commit().expect("a commit");
    }
}

/// The least that any log does.
fn plain_append(dir: &Path, versions: &[Vec<Observed>]) {
    let mut file = OpenOptions::new().create(true).append(true).open(dir.join("log")).expect("a file");
    let mut out = Vec::new();
    for batch in versions {
        out.clear();
        for object in batch {
            out.extend_from_slice(&object.body.bytes);
            out.push(b'\n');
        }
        file.write_all(&out).and_then(|()| file.sync_data()).expect("space on the disk");
    }
}

/// What a watch of the simulated cluster would bring.
pub(super) fn versions(batches: usize) -> Vec<Vec<Observed>> {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let sim = runtime.block_on(Sim::start()).expect("a port");
    sim.bulk_pods(OBJECTS).expect("Pods are served");
    for _ in 0..(BATCH * batches / OBJECTS) {
        sim.touch_bulk(OBJECTS);
    }
    let rows = sim.history_of("pods");
    let observed = rows.iter().take(BATCH * batches).map(|row| Observed {
        namespace: row.namespace.to_string(),
        name: row.name.to_string(),
        uid: row.uid.to_string(),
        version: ResourceVersion::new(row.revision.to_string()),
        body: Redacted { bytes: row.bytes().to_vec(), pointers: Vec::new(), marks: Vec::new() },
    });
    observed.collect::<Vec<_>>().chunks(BATCH).map(<[Observed]>::to_vec).collect()
}

pub(super) fn spec() -> SourceSpec {
    SourceSpec::of(pods())
}
