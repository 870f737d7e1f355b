//! The `kafka` sink, against Kafka.

mod credentials;
mod rights;
mod topics;
mod transactions;

pub(crate) use decklog_testkit::servers::kafka as start;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use decklog::core::model::{Cluster, EntryType, Evidence, Seq};
use decklog::core::wire::{EntryBuilder, render};
use decklog::sink::registry::SinkKind;
use decklog::sink::{Item, LogPosition, Sink, SinkError};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Headers, Message};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::proxy::Proxy;
use crate::server::free_port;
use crate::support::{Daemon, LIMIT, cluster, until};
use crate::timelines;
use crate::trial::{self, Far, Promise};
use start::Kafka;

/// How long an attempt of the sink may take: a slow machine must not look like a dead server.
const TIMEOUT: &str = "20s";

/// Which certificate a listener has.
fn tls(dir: &Path, listener: &str, pem: &str) -> String {
    let listener = format!("listener.name.{listener}.ssl");
    let dir = dir.display();
    format!("{listener}.keystore.type=PEM\n{listener}.keystore.location={dir}/{pem}\n")
}

/// What these tests do with the server.
trait KafkaTests: Sized {
    fn opened(&self, keys: Value) -> Box<dyn Sink>;
    async fn ready(&self, keys: Value) -> Box<dyn Sink>;
    fn read(&self, topic: &str) -> Result<BTreeMap<i32, Vec<(String, String)>>, String>;
    fn give_up(&self, id: &str, count: u32);
    fn end(&self, topic: &str) -> i64;
    async fn has(&self, topic: &str, expected: std::ops::RangeInclusive<u64>);
    async fn seqs(&self, topic: &str) -> Vec<u64>;
}

impl KafkaTests for Kafka {
    /// A sink of the library that reaches it directly.
    fn opened(&self, keys: Value) -> Box<dyn Sink> {
        open(self.direct, keys).unwrap()
    }

    /// As [`Kafka::sink`], whose topics are there.
    async fn ready(&self, keys: Value) -> Box<dyn Sink> {
        let mut sink = self.opened(keys);
        until("the topics to be made", async || sink.provision().await.map_err(|error| error.to_string())).await;
        sink
    }

    /// Every record of a topic, by partition, as a consumer reads them: the key and the line.
    fn read(&self, topic: &str) -> Result<BTreeMap<i32, Vec<(String, String)>>, String> {
        let text = |error: KafkaError| error.to_string();
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", format!("127.0.0.1:{}", self.direct)).set("group.id", "reader");
        config.set("isolation.level", "read_committed").set("enable.partition.eof", "true");
        config.set("enable.auto.commit", "false").set("auto.offset.reset", "error");
        let consumer: BaseConsumer = config.create().map_err(text)?;
        let metadata = consumer.fetch_metadata(Some(topic), Duration::from_secs(20)).map_err(text)?;
        let partitions = metadata.topics()[0].partitions();
        let partitions: Vec<i32> = partitions.iter().map(rdkafka::metadata::MetadataPartition::id).collect();
        if partitions.is_empty() {
            return Err(format!("there is no topic {topic}"));
        }
        let mut assignment = TopicPartitionList::new();
        for partition in &partitions {
            assignment.add_partition_offset(topic, *partition, Offset::Beginning).map_err(text)?;
        }
        consumer.assign(&assignment).map_err(text)?;
        let mut records: BTreeMap<i32, Vec<(String, String)>> = BTreeMap::new();
        let mut left: BTreeSet<i32> = partitions.into_iter().collect();
        let began = Instant::now();
        while !left.is_empty() {
            match consumer.poll(Duration::from_millis(100)) {
                Some(Ok(record)) => {
                    let text = |bytes: Option<&[u8]>| String::from_utf8(bytes.unwrap().to_vec()).unwrap();
                    let (key, line) = (text(record.key()), text(record.payload()));
                    let entry: Value = serde_json::from_str(&line).unwrap();
                    let headers: BTreeMap<&str, String> =
                        record.headers().unwrap().iter().map(|header| (header.key, text(header.value))).collect();
                    for name in ["id", "epoch", "type"] {
                        assert_eq!(entry[name].as_str(), Some(headers[name].as_str()), "{name} of {line}");
                    }
                    assert_eq!(entry["seq"].to_string(), headers["seq"]);
                    records.entry(record.partition()).or_default().push((key, line));
                }
                Some(Err(KafkaError::PartitionEOF(partition))) => drop(left.remove(&partition)),
                Some(Err(KafkaError::MessageConsumption(RDKafkaErrorCode::OffsetOutOfRange))) => {
                    return Err("the log is not there yet".to_owned());
                }
                Some(Err(_)) | None if began.elapsed() > LIMIT / 3 => return Err("no end came".to_owned()),
                Some(Err(_)) | None => {}
            }
        }
        Ok(records)
    }

    /// Begins transactions with a position in them, and gives each of them up.
    fn give_up(&self, id: &str, count: u32) {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", format!("127.0.0.1:{}", self.direct)).set("transactional.id", id);
        let producer: BaseProducer = config.create().unwrap();
        producer.init_transactions(LIMIT).unwrap();
        let topic = format!("{id}-position");
        for _ in 0..count {
            producer.begin_transaction().unwrap();
            let place = BaseRecord::to(&topic).partition(0).key(id).payload(r#"{"epoch":"e","seq":999}"#);
            producer.send(place).map_err(|(error, _)| error).unwrap();
            producer.flush(LIMIT).unwrap();
            producer.abort_transaction(LIMIT).unwrap();
        }
    }

    /// How many places of a partition are taken.
    fn end(&self, topic: &str) -> i64 {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", format!("127.0.0.1:{}", self.direct));
        let consumer: BaseConsumer = config.create().unwrap();
        consumer.fetch_watermarks(topic, 0, LIMIT).unwrap().1
    }

    /// The seqs of a topic with one partition.
    /// Waits until a topic has these: a transaction is committed a moment before who reads committed ones sees it.
    async fn has(&self, topic: &str, expected: std::ops::RangeInclusive<u64>) {
        let expected: Vec<u64> = expected.collect();
        let told = async || {
            let seqs = self.seqs(topic).await;
            if seqs == expected { Ok(()) } else { Err(format!("{topic} has {seqs:?}")) }
        };
        until(&format!("{topic} to have {expected:?}"), told).await;
    }

    async fn seqs(&self, topic: &str) -> Vec<u64> {
        let records = until("a consumer to read", async || self.read(topic)).await;
        let lines = records.into_values().flatten();
        lines.map(|(_, line)| serde_json::from_str::<Value>(&line).unwrap()["seq"].as_u64().unwrap()).collect()
    }
}

fn open(port: u16, mut keys: Value) -> Result<Box<dyn Sink>, String> {
    let mut all = json!({"type": "kafka", "brokers": [format!("127.0.0.1:{port}")], "timeout": TIMEOUT});
    all.as_object_mut().unwrap().append(keys.as_object_mut().unwrap());
    let kind: SinkKind = serde_json::from_value(all).unwrap();
    kind.open()
}

/// A sink with transactions.
fn exactly(topic: &str) -> Value {
    json!({"topic": topic, "transactional_id": topic})
}

fn item(seq: u64, name: &str, size: usize) -> Item {
    // Not to be compressed away.
    let mut dice = fastrand::Rng::with_seed(seq);
    let text: String = std::iter::repeat_with(|| dice.alphanumeric()).take(size).collect();
    let object = json!({"metadata": {"name": name}, "data": {"value": text}}).to_string();
    let line = render(&EntryBuilder {
        seq: Seq(seq),
        epoch: "e",
        time: "2026-11-21T10:15:00.000000Z",
        happened: None,
        happened_between: None,
        op: EntryType::Added,
        evidence: Some(Evidence::Watched),
        cluster: &Cluster { name: "prod".into(), uid: "c".into() },
        api_version: "v1",
        kind: "ConfigMap",
        resource: "configmaps",
        namespace: "default",
        name,
        uid: "u",
        version: &seq.to_string(),
        managers: None,
        change: None,
        object: Some(object.as_bytes()),
        gap: None,
        actor: None,
        redacted: &[],
    })
    .line;
    Item::new(Seq(seq), EntryType::Added, line.into())
}

fn items(seqs: std::ops::RangeInclusive<u64>) -> Vec<Item> {
    seqs.map(|seq| item(seq, &format!("m{}", seq % 5), 20)).collect()
}

/// Where a sink says that it is.
async fn position(sink: &mut dyn Sink) -> Option<u64> {
    position_after(sink, 0).await
}

/// As [`position`], where the journal believes that it has so much.
async fn position_after(sink: &mut dyn Sink, cursor: u64) -> Option<u64> {
    let cursor = LogPosition { epoch: "e".to_owned(), seq: Seq(cursor), entry: None };
    let held = trying("its position", async || sink.position(&cursor).await).await.unwrap();
    held.map(|held| held.seq.0)
}

/// Again as long as it may still go well.
async fn trying<T>(what: &str, mut attempt: impl AsyncFnMut() -> Result<T, SinkError>) -> Result<T, SinkError> {
    until(what, async || match attempt().await {
        Err(SinkError::Retry { text, .. }) => Err(text),
        done => Ok(done),
    })
    .await
}

/// Delivers everything, as delivery does.
async fn deliver(sink: &mut dyn Sink, items: &[Item]) -> Result<(), (usize, SinkError)> {
    let mut taken = 0;
    let done = trying("a delivery", async || {
        sink.deliver(&items[taken..]).await.map_err(|failure| {
            taken += failure.taken;
            failure.error
        })
    })
    .await;
    done.map_err(|error| (taken, error))
}

impl Far for Kafka {
    fn says_where_epochs_begin(&self) -> bool {
        false
    }

    fn promise(&self) -> Promise {
        if self.transactional { Promise::ExactlyOnce } else { Promise::AtLeastOnce }
    }

    fn port(&self) -> u16 {
        self.proxied
    }

    async fn proxy(&self) -> Proxy {
        Proxy::at(self.told, self.proxied).await
    }

    fn sink(&self, port: u16, run: &str, _dir: &Path) -> String {
        let mode = if self.transactional {
            format!("transactional_id = \"{run}\"")
        } else {
            "mode = \"idempotent\"".to_owned()
        };
        format!(
            "type = \"kafka\"\nbrokers = [\"127.0.0.1:{port}\"]\ntopic = \"{run}\"\nbatch_size = 10\ntimeout = \"{TIMEOUT}\"\n{mode}"
        )
    }

    async fn prepare(&self, daemon: &Daemon, _run: &str) {
        until("the topics to be made", async || {
            let made = daemon.command(&["sink", "init", "far"]).await;
            if made.code == 0 { Ok(()) } else { Err(made.err) }
        })
        .await;
    }

    // Most exchanges of a run are those of connections: versions, metadata, coordinators.
    fn stride(&self) -> usize {
        7
    }

    fn kill(&mut self) {
        self.server.kill();
    }

    async fn restart(&mut self) {
        self.server.restart().await;
    }

    async fn consumed(&self, run: &str) -> Result<Vec<String>, String> {
        Ok(self.read(run)?.into_values().flatten().map(|(_, line)| line).collect())
    }
}

// The trial of a clock that is behind is for others: librdkafka waits by the system's own clock, which a process that is
// given another one does not have.
#[tokio::test(flavor = "multi_thread")]
async fn kafka_timeline_put_back() {
    let mut kafka = Kafka::start(true).await;
    timelines::put_back_twice(&mut kafka).await;
    timelines::put_back_while_away(&mut kafka).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kafka_timeline_two_daemons() {
    let mut kafka = Kafka::start(true).await;
    timelines::two_copies_run(&mut kafka).await;
    timelines::stood_still(&mut kafka).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kafka_undisturbed_and_answers_cut() {
    let mut kafka = Kafka::start(true).await;
    trial::undisturbed(&mut kafka).await;
    trial::answers_cut(&mut kafka).await;
}

/// Fault 67: brokers that die, also in the middle of a commit.
#[tokio::test(flavor = "multi_thread")]
async fn kafka_server_killed() {
    trial::server_killed(&mut Kafka::start(true).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kafka_daemon_killed() {
    trial::daemon_killed(&mut Kafka::start(true).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kafka_killed_at_every_exchange() {
    trial::killed_at_every_exchange(&mut Kafka::start(true).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kafka_at_least_once() {
    let mut kafka = Kafka::start(false).await;
    trial::undisturbed(&mut kafka).await;
    trial::answers_cut(&mut kafka).await;
    trial::daemon_killed(&mut kafka).await;
    trial::server_killed(&mut kafka).await;
}

/// What librdkafka runs ends with its sink, whatever that is doing.
#[tokio::test(flavor = "multi_thread")]
async fn kafka_threads_end_with_their_sink() {
    let kafka = Kafka::start(true).await;
    let sim = cluster().await;
    let mut daemon = Daemon::new(&sim, &["configmaps"]);
    let sink = |topic: &str, port: u16| {
        format!(
            "[[sink]]\nname = \"far\"\ntype = \"kafka\"\nbrokers = [\"127.0.0.1:{port}\"]\ntopic = \"{topic}\"\ntransactional_id = \"{topic}\"\n"
        )
    };
    let watch = "resources = [\"configmaps\"]";
    let threads = |daemon: &Daemon| -> usize {
        let tasks = fs::read_dir(format!("/proc/{}/task", daemon.pid())).unwrap();
        let names = tasks.filter_map(|task| fs::read_to_string(task.unwrap().path().join("comm")).ok());
        names.filter(|name| name.starts_with("rdk:")).count()
    };
    drop(kafka.ready(exactly("one")).await);
    daemon.configure(&daemon.config(watch, &sink("one", kafka.direct)));
    daemon.start();
    daemon.ready().await;
    daemon.waits_for_state("sinks", "far", "running").await;
    assert!(threads(&daemon) > 0);
    // A sink that reaches nobody takes its place, and then none.
    for rest in [sink("one", free_port()), String::new()] {
        daemon.configure(&daemon.config(watch, &rest));
        daemon.signal(Signal::HUP);
        if rest.is_empty() {
            until("the threads to end", async || {
                daemon.must_run();
                let left = threads(&daemon);
                if left == 0 { Ok(()) } else { Err(format!("{left} are left")) }
            })
            .await;
        } else {
            daemon.waits_for_state("sinks", "far", "retrying").await;
        }
    }
    daemon.stop().await;
}

/// What it says when it fails as it should; what was just granted or taken may not count for a moment.
async fn fails<T>(says: &str, mut attempt: impl AsyncFnMut() -> Result<T, SinkError>) -> String {
    until(&format!("an error with {says:?}"), async || match attempt().await {
        Err(error) if error.to_string().contains(says) => Ok(error.to_string()),
        Err(error) => Err(error.to_string()),
        Ok(_) => Err("it went well".to_owned()),
    })
    .await
}
