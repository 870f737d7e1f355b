//! How many entries each sink delivers in a second, beside its own client library.
//!
//! The entries are those of a journal: changes of Pods and of ConfigMaps, lines of about 1 KB and 9 KB by turns. They go
//! to the same real server in three ways, in turns: through the sink in the batches that it asks for; through the
//! client library as a careful programmer uses it, in the same batches and with the same guarantees; and through the
//! whole delivery, from the journal with its cursor on. What can be made before it is sent (keys, headers, documents,
//! messages) is made for the library beforehand and costs it nothing. The library does, for each batch:
//!
//! - file: one write to a file that is open, and fdatasync
//! - file:// folder, s3: object_store puts one zstd segment with `If-None-Match: *`, and then a manifest
//! - http: reqwest posts bodies that are ready, on one connection, one after the other
//! - kafka: rdkafka sends records and a position in one transaction; or, idempotent, awaits all the answers
//! - nats: async-nats publishes with message id and expected sequence, and then awaits all the acknowledgements
//! - postgres: tokio-postgres copies rows (`COPY`) and moves a row with the cursor, in one transaction
//! - redis: the redis crate pipelines one `MULTI` with an `XADD` for each entry
//! - otlp: reqwest posts protobuf that is encoded beforehand, and compresses it as the sink does
//! - elasticsearch: reqwest posts a bulk request that is ready, and compresses it as the sink does
//! - syslog: one write of framed messages to a TcpStream
//! - journald: one datagram of fields for each entry
//!
//! `throughput NAME...` measures only these.

mod elasticsearch;
mod file;
mod http;
mod journald;
pub(super) mod kafka;
pub(super) mod nats;
mod otlp;
pub(super) mod postgres;
mod redis;
pub(super) mod s3;
mod syslog;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use bytes::Bytes;
use decklog::core::model::{Cluster, Observed, Redacted, Resource, ResourceVersion, Seq, SourceSpec, Verb};
use decklog::core::runtime::Signal;
use decklog::core::wire::Shape;
use decklog::delivery::OnRefused;
use decklog::delivery::{self, Plan, SinkStats};
use decklog::journal::{Journal, Reader, SinkStart, WatchChange};
use decklog::sink::registry::SinkKind;
use decklog::sink::{Item, Limits, LogPosition, Sink};
use serde_json::Value;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

use super::support::until;
use super::table::Table;
use super::{ingest, journal, median};

/// How often each way is measured, after once for nothing.
const ROUNDS: usize = 3;

/// How many entries the journal has.
const ENTRIES: usize = 20_000;

const PATIENCE: Duration = Duration::from_secs(300);

/// The client library of a server, used plainly and well.
trait Plain {
    /// What a batch becomes before anything is measured.
    type Batch;

    fn prepare(&self, items: &[Item]) -> Self::Batch;

    /// Returns when the server has it, as durably as the sink promises.
    async fn send(&mut self, batch: Self::Batch);
}

/// What is measured.
struct Case<'c> {
    /// The sink, as the table has it.
    what: &'c str,
    /// The library.
    baseline: &'c str,
    /// How many entries make one measurement.
    entries: usize,
    /// The keys of the sink that writes where the run of this name does.
    keys: &'c dyn Fn(&str) -> Value,
}

/// A journal, and what is in it.
struct Log {
    journal: Journal,
    cluster: Cluster,
    items: Vec<Item>,
    _dir: TempDir,
}

/// What can be measured alone.
const NAMES: [&str; 12] = [
    "file",
    "folder",
    "s3",
    "http",
    "kafka",
    "nats",
    "postgres",
    "redis",
    "otlp",
    "elasticsearch",
    "syslog",
    "journald",
];

/// Measures the sinks among these words; all of them where none is named.
pub(super) fn compare(table: &mut Table, words: &[&str]) {
    let names: Vec<&str> = NAMES.into_iter().filter(|name| words.contains(name)).collect();
    decklog::core::net::install_crypto_provider();
    let runtime = Runtime::new().expect("a runtime");
    let versions = journal::versions(journal::BATCHES);
    runtime.block_on(async {
        let log = Log::new(&versions).await;
        let mut bench = Bench { log, table, runs: 0 };
        let wanted = |name: &str| names.is_empty() || names.contains(&name);
        if wanted("file") {
            file::compare(&mut bench).await;
        }
        if wanted("folder") {
            s3::compare_folder(&mut bench).await;
        }
        if wanted("s3") {
            s3::compare(&mut bench).await;
        }
        if wanted("http") {
            http::compare(&mut bench).await;
        }
        if wanted("kafka") {
            kafka::compare(&mut bench).await;
        }
        if wanted("nats") {
            nats::compare(&mut bench).await;
        }
        if wanted("postgres") {
            postgres::compare(&mut bench).await;
        }
        if wanted("redis") {
            redis::compare(&mut bench).await;
        }
        if wanted("otlp") {
            otlp::compare(&mut bench).await;
        }
        if wanted("elasticsearch") {
            elasticsearch::compare(&mut bench).await;
        }
        if wanted("syslog") {
            syslog::compare(&mut bench).await;
        }
        if wanted("journald") {
            journald::compare(&mut bench).await;
        }
    });
}

impl Log {
    async fn new(pods: &[Vec<Observed>]) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let (journal, _writer) = Journal::open(dir.path()).expect("an empty journal");
        let cluster = Cluster { name: "bench".into(), uid: "0b0e5d3c-8f27-4c8e-9d51-2f9d0c1a7e44".into() };
        journal.set_cluster(cluster.clone()).await.expect("the first cluster");
        let source = async |resource| journal.source(&spec(resource)).await.expect("a source").0;
        let (of_pods, of_maps) = (source(ingest::pods()).await, source(config_maps()).await);
        for (number, pods) in pods.concat().chunks(50).take(ENTRIES / 100).enumerate() {
            let change = |object: Observed| WatchChange { verb: Verb::Upsert, object };
            let maps = (0..50).map(|at| change(config_map(number * 50 + at))).collect();
            of_pods.append(pods.iter().cloned().map(change).collect()).await.expect("room");
            of_maps.append(maps).await.expect("room");
            journal.flush().await.expect("a commit");
        }
        let mut reader = journal.reader().expect("a journal");
        let items = read(&mut reader);
        assert_eq!(items.len(), ENTRIES);
        Self { journal, cluster, items, _dir: dir }
    }
}

fn read(reader: &mut Reader) -> Vec<Item> {
    let mut items: Vec<Item> = Vec::new();
    loop {
        let after = items.last().map_or(Seq(0), |item| item.seq);
        let page = reader.deliverable_after(after, 1000, usize::MAX, None).expect("a sound journal");
        if page.entries.is_empty() {
            return items;
        }
        items.extend(page.entries.into_iter().map(|entry| Item::new(entry.seq, entry.op, entry.line)));
    }
}

pub(super) fn spec(resource: Resource) -> SourceSpec {
    SourceSpec::of(resource)
}

pub(super) fn config_maps() -> Resource {
    Resource {
        kind: "ConfigMap".to_owned(),
        plural: "configmaps".to_owned(),
        singular: "configmap".to_owned(),
        short_names: vec!["cm".to_owned()],
        ..ingest::pods()
    }
}

/// Something small that changes often.
pub(super) fn config_map(number: usize) -> Observed {
    let (name, version) = (format!("m{}", number % 200), ResourceVersion::new((1_000_000 + number).to_string()));
    let uid = format!("5f1c1a1e-0000-4000-8000-{:012}", number % 200);
    let body = serde_json::json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": name, "namespace": "shop", "uid": uid, "resourceVersion": version.as_str() },
        "data": { "turn": number.to_string(), "text": "key: value of a setting\n".repeat(16) },
    });
    let body = Redacted { bytes: body.to_string().into_bytes(), pointers: Vec::new(), marks: Vec::new() };
    Observed { namespace: "shop".to_owned(), name, uid, version, body }
}

struct Bench<'t> {
    log: Log,
    table: &'t mut Table,
    /// How many there were: each begins with a place and a cursor of its own.
    runs: usize,
}

impl Bench<'_> {
    /// Measures a sink beside its library. `plain` is the library for a run, whose topic, table or stream is made; `rest`
    /// waits until the server is at rest and clears it.
    async fn compare<P: Plain>(&mut self, case: Case<'_>, plain: impl AsyncFn(&str) -> P, rest: impl AsyncFn()) {
        let mut seconds: [Vec<f64>; 3] = Default::default();
        for round in 0..=ROUNDS {
            let mut turn = [0, 1, 2];
            turn.rotate_left(round % 3);
            for way in turn {
                self.runs += 1;
                let run = format!("run{}", self.runs);
                rest().await;
                let took = match way {
                    0 => self.through_sink(&case, &run).await,
                    1 => self.through_library(&case, &run, &plain).await,
                    _ => self.through_delivery(&case, &run).await,
                };
                if round > 0 {
                    seconds[way].push(took);
                }
            }
        }
        let rate = |way: usize| case.entries as f64 / median(seconds[way].clone());
        // Of what is printed, so that whoever divides finds the same.
        let (alone, whole) = (rate(0) / rate(1), rate(2) / rate(1));
        self.table.row(
            &format!("{}, entries in a second", case.what),
            format!("{:.0}; with delivery from the journal {:.0}", rate(0), rate(2)),
            &format!("{}: {:.0}", case.baseline, rate(1)),
            format!("{alone:.2}; {whole:.2}"),
            "0.8",
        );
    }

    /// A sink that has all that it needs, and has looked where it is.
    async fn open(&self, case: &Case<'_>, run: &str) -> (&'static str, Box<dyn Sink>) {
        let kind: SinkKind = serde_json::from_value((case.keys)(run)).expect("a sink");
        let mut sink = kind.open().expect("a sink");
        sink.bind(run, &self.log.cluster);
        if sink.provisioning_script().is_some() {
            until("what it needs to be made", async || sink.provision().await.map_err(|error| error.to_string())).await;
        }
        let start = LogPosition { epoch: self.log.journal.epoch(), seq: Seq(0), entry: None };
        until("its position", async || sink.position(&start).await.map_err(|error| error.to_string())).await;
        (kind.word(), sink)
    }

    async fn through_sink(&self, case: &Case<'_>, run: &str) -> f64 {
        let (_, mut sink) = self.open(case, run).await;
        let mut batches = batches(&self.log.items[..case.entries], sink.limits()).into_iter();
        let first = batches.next().expect("there are entries");
        sink.deliver(first).await.expect("a server that takes it");
        let begun = Instant::now();
        for batch in batches {
            sink.deliver(batch).await.expect("a server that takes it");
        }
        begun.elapsed().as_secs_f64() * without(first, case)
    }

    async fn through_library<P: Plain>(&self, case: &Case<'_>, run: &str, plain: &impl AsyncFn(&str) -> P) -> f64 {
        // For what it makes, and for its batches.
        let (_, sink) = self.open(case, run).await;
        let limits = sink.limits();
        drop(sink);
        let mut plain = plain(run).await;
        let batches = batches(&self.log.items[..case.entries], limits);
        let first = batches[0];
        let mut batches: VecDeque<P::Batch> = batches.into_iter().map(|batch| plain.prepare(batch)).collect();
        plain.send(batches.pop_front().expect("there are entries")).await;
        let begun = Instant::now();
        for batch in batches {
            plain.send(batch).await;
        }
        begun.elapsed().as_secs_f64() * without(first, case)
    }

    async fn through_delivery(&self, case: &Case<'_>, run: &str) -> f64 {
        let (kind, sink) = self.open(case, run).await;
        let stats = Arc::<SinkStats>::default();
        let plan = Plan {
            name: run.to_owned(),
            kind,
            start: SinkStart::Start,
            filter: None,
            shape: Shape::WHOLE,
            rate: None,
            on_refused: OnRefused::Halt,
            stats: Arc::clone(&stats),
            position_known: Arc::new(decklog::core::runtime::watch::Sender::new(false)),
            notify: None,
            machine: None,
        };
        let stop = CancellationToken::new();
        let begun = Instant::now();
        let running = delivery::run(self.log.journal.clone(), plan, sink, Signal::default().listen(), stop.clone());
        let delivered = || usize::try_from(stats.delivered.load(Relaxed)).expect("it fits");
        let reached = async |count: usize| {
            while delivered() < count {
                assert!(begun.elapsed() < PATIENCE, "delivery does not get there");
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            (Instant::now(), delivered())
        };
        let watching = async {
            // The first batch makes the connection, as in the other two ways. The last one may go beyond.
            let ((from, first), (to, last)) = (reached(1).await, reached(case.entries).await);
            stop.cancel();
            (to - from).as_secs_f64() * case.entries as f64 / (last - first) as f64
        };
        let (ended, took) = tokio::join!(running, watching);
        ended.expect("a sound journal");
        self.log.journal.retire_sink(run).await.expect("a sound journal");
        took
    }
}

/// What to multiply the time by that all entries but these took. The first batch makes the connection.
fn without(first: &[Item], case: &Case<'_>) -> f64 {
    case.entries as f64 / (case.entries - first.len()) as f64
}

/// As delivery reads them.
fn batches(items: &[Item], limits: Limits) -> Vec<&[Item]> {
    let mut batches = Vec::new();
    let mut rest = items;
    while !rest.is_empty() {
        let mut bytes = 0;
        let fits = |item: &&Item| {
            bytes += item.line.len();
            bytes <= limits.bytes
        };
        let count = rest.iter().take(limits.entries).take_while(fits).count().max(1);
        let (batch, more) = rest.split_at(count);
        batches.push(batch);
        rest = more;
    }
    batches
}

/// The lines of a batch, which are not copied.
fn lines(items: &[Item]) -> Vec<Bytes> {
    items.iter().map(|item| item.line.clone()).collect()
}

/// Nothing has to be waited for.
async fn at_once() {}
