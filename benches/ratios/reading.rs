//! How fast a sink that is behind reads the journal, beside whole lines in a table of SQLite.

use std::hint::black_box;
use std::path::Path;
use std::thread;
use std::time::Instant;

use decklog::core::model::{Seq, Verb};
use decklog::journal::{Journal, Reader, WatchChange};
use rusqlite::{Connection, params};
use tokio::runtime::Runtime;

use super::table::Table;
use super::throughput::{config_map, config_maps, spec};
use super::{ROUNDS, median};

const ENTRIES: usize = 200_000;
const BATCH: usize = 1_000;
/// What a file takes at once.
const PAGE: (usize, usize) = (1024, 2 << 20);

pub(super) fn compare(table: &mut Table) {
    let dir = tempfile::tempdir().expect("a directory for the bench");
    Runtime::new().expect("a runtime").block_on(async {
        let (journal, thread) = Journal::open(dir.path()).expect("an empty journal");
        let source = journal.source(&spec(config_maps())).await.expect("a source").0;
        for first in (0..ENTRIES).step_by(BATCH) {
            let change = |number| WatchChange { verb: Verb::Upsert, object: config_map(number) };
            source.append((first..first + BATCH).map(change).collect()).await.expect("room");
        }
        journal.flush().await.expect("a commit");
        drop((journal, source));
        thread.join().expect("a clean end");
    });
    let textbook = dir.path().join("textbook.db");
    fill(&textbook, dir.path());
    let rate = |seconds: Vec<f64>, readers: usize| (readers * ENTRIES) as f64 / median(seconds);
    let [mut one, mut two, mut plain, mut plain_two] = [const { Vec::new() }; 4];
    for _ in 0..ROUNDS {
        plain.push(timed(|| rows(&textbook)));
        plain_two.push(twice(|| rows(&textbook)));
        one.push(timed(|| read(dir.path(), |_| ())));
        two.push(twice(|| read(dir.path(), |_| ())));
    }
    let (one, two) = (rate(one, 1), rate(two, 2));
    let (plain, plain_two) = (rate(plain, 1), rate(plain_two, 2));
    let shown = |rate: f64| format!("{rate:.0}");
    table.row(
        "entries of 1 KB that a reader of the journal reads in a second",
        shown(one),
        &format!("whole lines in SQLite: {}", shown(plain)),
        format!("{:.2}", one / plain),
        "400,000",
    );
    table.row(
        "two readers at the same time",
        format!("{}, {:.1}x of one", shown(two), two / one),
        &format!("whole lines in SQLite: {}, {:.1}x", shown(plain_two), plain_two / plain),
        format!("{:.2}", two / plain_two),
        "2x of one",
    );
}

/// The seconds in which this reads all entries.
fn timed(read: impl FnOnce() -> usize) -> f64 {
    let begun = Instant::now();
    assert_eq!(read(), ENTRIES);
    begun.elapsed().as_secs_f64()
}

/// The seconds in which two threads read all entries, each of them.
fn twice(read: impl Fn() -> usize + Sync) -> f64 {
    let begun = Instant::now();
    thread::scope(|scope| {
        let other = scope.spawn(&read);
        assert_eq!((read(), other.join().expect("it reads")), (ENTRIES, ENTRIES));
    });
    begun.elapsed().as_secs_f64()
}

/// Reads the journal as a sink does, from the disk, and gives the number of its entries.
fn read(state: &Path, mut each: impl FnMut(&[u8])) -> usize {
    let mut reader = Reader::open(state).expect("a journal");
    let (mut after, mut count) = (Seq(0), 0);
    loop {
        let page = reader.deliverable_after(after, PAGE.0, PAGE.1, None).expect("a sound journal");
        let Some((_, last)) = page.looked_at else { return count };
        count += page.entries.len();
        page.entries.iter().for_each(|entry| each(black_box(&entry.line)));
        after = last;
    }
}

/// Puts the lines of a journal into a table.
fn fill(to: &Path, state: &Path) {
    let mut conn = Connection::open(to).expect("a database");
    conn.execute_batch("CREATE TABLE event (seq INTEGER PRIMARY KEY, line BLOB)").expect("a schema");
    let tx = conn.transaction().expect("a transaction");
    read(state, |line| {
        tx.prepare_cached("INSERT INTO event (line) VALUES (?)")
            .and_then(|mut insert| insert.execute([line]))
            .map(drop)
            .expect("a row");
    });
    tx.commit().expect("a commit");
}

/// Reads that table in pages, and gives the number of its rows.
fn rows(from: &Path) -> usize {
    let conn = Connection::open(from).expect("a database");
    let (mut after, mut count) = (0, 0);
    loop {
        let mut select = conn.prepare_cached("SELECT seq, line FROM event WHERE seq > ? LIMIT ?").expect("a query");
        let mut rows = select.query(params![after, PAGE.0]).expect("rows");
        let before = count;
        let mut page: Vec<Vec<u8>> = Vec::new();
        while let Some(row) = rows.next().expect("a row") {
            after = row.get(0).expect("a seq");
            page.push(row.get(1).expect("a line"));
            count += 1;
        }
        black_box(page);
        if count == before {
            return count;
        }
    }
}
