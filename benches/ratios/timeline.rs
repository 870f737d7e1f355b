//! The timeline page over a long log: how long a histogram and the lanes of a window take, against SQL over the journal's own
//! rows, and what the outlines cost the writer.
//!
//! `DECKLOG_BENCH_ENTRIES` is how many entries the log has, two million where nobody says.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use decklog::core::model::{Observed, Redacted, ResourceVersion, Verb};
use decklog::core::rights::{Authority, Known, Refusal, Refused};
use decklog::journal::{Journal, Reader, WatchChange, outline};
use decklog::web::ui::{self, Settings};
use futures::future::BoxFuture;
use rusqlite::{Connection, OpenFlags};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::journal::{BATCHES, spec, versions};
use super::table::{Table, thousands};
use super::{ROUNDS, median};

/// Objects of the long log, and changes to a transaction.
const OBJECTS: usize = 20_000;
const BATCH: usize = 1000;
/// An authority that nobody asks.
#[derive(Debug)]
struct Nobody;

impl Authority for Nobody {
    fn admit<'a>(&'a self, _token: &'a str, _from: Option<IpAddr>) -> BoxFuture<'a, Result<Known, Refusal>> {
        Box::pin(std::future::ready(Err(Refusal::new(Refused::Unknown, "nobody is known"))))
    }
}

/// The difference is small, so it is measured often.
const COST_ROUNDS: usize = 9;

pub(super) fn compare(table: &mut Table) {
    cost(table);
    let entries = std::env::var("DECKLOG_BENCH_ENTRIES").ok().and_then(|text| text.parse().ok()).unwrap_or(2_000_000);
    let dir = tempfile::tempdir().expect("a directory for the bench");
    fill(dir.path(), entries);
    let (begin, end) = times(dir.path(), entries);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let stop = CancellationToken::new();
    let settings = Settings {
        listen: decklog::core::net::server::Listen::Tcp(SocketAddr::from(([127, 0, 0, 1], 0))),
        ..Settings::default()
    };
    let bound = runtime.block_on(ui::bind(&settings)).expect("a port");
    let address = bound.address().expect("an address");
    let (state, stopping) = (dir.path().to_owned(), stop.clone());
    let mut serving = JoinSet::new();
    serving.spawn_on(
        async move { ui::serve(bound, &settings, (&state, Arc::new(Nobody)), stopping).await },
        runtime.handle(),
    );
    let middle = begin + (end - begin) / 2;
    let slice = (end - begin) / 1000;
    let windows = [
        ("all of it", begin, end),
        ("a thousandth from the middle", middle, middle + slice),
        ("the last thousandth", end - slice, end),
    ];
    for (what, since, until) in windows {
        let window = format!("since={}&until={}", stamp(since), stamp(until));
        for (question, target) in
            [(format!("histogram?buckets=200&{window}"), "200 ms"), (format!("lanes?{window}"), "100 ms")]
        {
            let ours = median((0..ROUNDS).map(|_| asked(address, &question)).collect());
            let theirs = median((0..ROUNDS).map(|_| counted(dir.path(), since, until)).collect());
            let name = question.split('?').next().unwrap_or_default();
            table.row(
                &format!("{name} of {what}, {} entries", thousands(entries)),
                format!("{:.0} ms", ours * 1000.0),
                &format!("SQL over the entries: {:.0} ms", theirs * 1000.0),
                format!("{:.1}x", theirs / ours),
                target,
            );
        }
    }
    stop.cancel();
    runtime.block_on(serving.join_next()).expect("a task").expect("it ends").expect("it serves");
}

/// What the outlines of a log cost while it is written.
fn cost(table: &mut Table) {
    let versions = versions(4 * BATCHES);
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for _ in 0..=COST_ROUNDS {
        without.push(written(&versions, false));
        with.push(written(&versions, true));
    }
    // The first of each is for nothing.
    let (with, without) = (median(with.split_off(1)), median(without.split_off(1)));
    table.row(
        "journal, 100 changes of 8 KB to a transaction, with [ui]",
        format!("{with:.3} s"),
        &format!("without: {without:.3} s"),
        format!("{:.2}x", without / with),
        "0.97x",
    );
}

/// How long the writer takes for these, with somebody who makes outlines beside it, or without.
fn written(versions: &[Vec<Observed>], outlines: bool) -> f64 {
    let dir = tempfile::tempdir().expect("a directory for the bench");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let (journal, thread) = Journal::open(dir.path()).expect("an empty journal");
        let stop = CancellationToken::new();
        let mut keeping = JoinSet::new();
        if outlines {
            keeping.spawn(ui::keep_outlines(journal.clone(), stop.clone()));
        }
        let source = journal.source(&spec()).await.expect("a source").0;
        let begun = Instant::now();
        for batch in versions {
            let changes = batch.iter().map(|object| WatchChange { verb: Verb::Upsert, object: object.clone() });
            source.append(changes.collect()).await.expect("room");
            journal.flush().await.expect("a commit");
        }
        let took = begun.elapsed().as_secs_f64();
        stop.cancel();
        if let Some(ended) = keeping.join_next().await {
            ended.expect("a task").expect("it kept them");
        }
        drop((journal, source));
        thread.join().expect("a clean end");
        took
    })
}

/// A log of small objects that come and change, with its outlines.
fn fill(dir: &Path, entries: usize) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let (journal, thread) = Journal::open(dir).expect("an empty journal");
        let source = journal.source(&spec()).await.expect("a source").0;
        for batch in 0..entries.div_ceil(BATCH) {
            let changes = (0..BATCH).map(|at| {
                let number = batch * BATCH + at;
                let (object, version) = (number % OBJECTS, number + 1);
                let body = format!(
                    r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"p{object}","namespace":"n{}","uid":"u{object}","resourceVersion":"{version}"}},"spec":{{"n":{}}}}}"#,
                    object % 50,
                    number / OBJECTS
                );
                let object = Observed {
                    namespace: format!("n{}", object % 50),
                    name: format!("p{object}"),
                    uid: format!("u{object}"),
                    version: ResourceVersion::new(version.to_string()),
                    body: Redacted { bytes: body.into_bytes(), pointers: Vec::new(), marks: Vec::new() },
                };
                WatchChange { verb: Verb::Upsert, object }
            });
            source.append(changes.collect()).await.expect("room");
        }
        journal.flush().await.expect("a commit");
        let stop = CancellationToken::new();
        let mut keeping = JoinSet::new();
        keeping.spawn(ui::keep_outlines(journal.clone(), stop.clone()));
        let whole = entries as u64 / outline::PART;
        let reader = journal.reader().expect("a journal");
        let mut look = tokio::time::interval(std::time::Duration::from_millis(200));
        while (reader.outlined(0, u64::MAX >> 1).expect("outlines").len() as u64) < whole {
            look.tick().await;
        }
        drop(reader);
        stop.cancel();
        keeping.join_next().await.expect("a task").expect("it ends").expect("it kept them");
        drop((journal, source));
        thread.join().expect("a clean end");
    });
}

/// When the first entry was journaled, and the last, microseconds since 1970.
fn times(dir: &Path, entries: usize) -> (i64, i64) {
    let reader = Reader::open(dir).expect("a journal");
    let time = |seq: u64| reader.time_of(decklog::core::model::Seq(seq)).expect("a journal").expect("an entry");
    (time(1), time(entries as u64))
}

fn stamp(micros: i64) -> String {
    format!("{:.6}", jiff::Timestamp::from_microsecond(micros).expect("a time"))
}

/// Seconds until the whole answer is here.
fn asked(address: SocketAddr, question: &str) -> f64 {
    let start = Instant::now();
    let mut stream = TcpStream::connect(address).expect("the page is served");
    write!(stream, "GET /api/v1/{question} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")
        .expect("it reads");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    let head = String::from_utf8_lossy(&answer[..answer.len().min(600)]).into_owned();
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    start.elapsed().as_secs_f64()
}

/// What somebody writes first: SQL over the entries.
fn counted(dir: &Path, since: i64, until: i64) -> f64 {
    let conn =
        Connection::open_with_flags(dir.join("journal.db"), OpenFlags::SQLITE_OPEN_READ_ONLY).expect("a journal");
    let start = Instant::now();
    let mut select = conn
        .prepare("SELECT (time - ?1) / ((?2 - ?1) / 200 + 1), type, count(*) FROM entry WHERE time BETWEEN ?1 AND ?2 GROUP BY 1, 2")
        .expect("entries");
    let mut rows = select.query([since, until]).expect("entries");
    let mut found = 0;
    while rows.next().expect("entries").is_some() {
        found += 1;
    }
    assert!(found > 0, "there is nothing in the window");
    start.elapsed().as_secs_f64()
}
