//! The `kafka` sink, against Kafka.

mod credentials;

pub(crate) use decklog_testkit::servers::kafka as start;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use decklog::core::model::{Cluster, EntryType, Evidence, Seq};
use decklog::core::wire::{EntryBuilder, render};
use decklog::sink::registry::SinkKind;
use decklog::sink::{Class, Item, LogPosition, Sink, SinkError};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Headers, Message};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::proxy::Proxy;
use crate::server::{free_port, made};
use crate::support::{Daemon, LIMIT, cluster, until};
use crate::timelines;
use crate::trace::under_shim;
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
        change: None,
        object: Some(object.as_bytes()),
        gap: None,
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

/// Fault 68, 69: what a broker refuses, what is missing, who takes over; each in one clear sentence.
#[tokio::test(flavor = "multi_thread")]
async fn kafka_topics_sizes_and_takeovers() {
    let kafka = Kafka::start(true).await;

    // Missing topics are told by the check and by a delivery, and made on request.
    let mut sink = kafka.opened(exactly("made"));
    assert_eq!(sink.class(), Class::ExactlyOnce);
    let missing = trying("a check", async || sink.check().await).await.unwrap_err();
    assert!(
        missing.to_string().contains("the topics made, made-position do not exist, or may not be described"),
        "{missing}"
    );
    let cursor = LogPosition { epoch: "e".to_owned(), seq: Seq(0), entry: None };
    fails("run `decklog sink init NAME`", async || sink.position(&cursor).await).await;
    let commands = sink.provisioning_script().unwrap();
    assert!(commands.contains("--topic made --partitions 1\n"), "{commands}");
    assert!(commands.contains("--topic made-position --partitions 1 --config cleanup.policy=compact"), "{commands}");
    let made = trying("the topics to be made", async || sink.provision().await).await.unwrap();
    assert_eq!(made, "made made and made-position");
    assert_eq!(sink.provision().await.unwrap(), "every topic that it needs is there already");
    sink.check().await.unwrap();
    let mut other = kafka.ready(exactly("other")).await;
    let mut lost = kafka.opened(json!({"topic": "nowhere", "transactional_id": "other"}));
    let text = fails("\"nowhere\"", async || lost.deliver(&items(1..=2)).await.map_err(|failure| failure.error)).await;
    assert!(text.contains("run `decklog sink init NAME`"), "{text}");
    // A topic that would forget the position, as brokers make them by themselves: nothing is delivered before it is set right.
    drop(kafka.ready(json!({"topic": "plain", "mode": "idempotent"})).await);
    let mut forgetful = kafka.opened(json!({"topic": "made", "transactional_id": "x", "position_topic": "plain"}));
    for delivers in [true, false] {
        fails("run `decklog sink init NAME`, which sets cleanup.policy=compact", async || match delivers {
            true => forgetful.position(&cursor).await.map(drop),
            false => forgetful.check().await,
        })
        .await;
    }
    let set = forgetful.provision().await.unwrap();
    assert!(set.contains("there already; set cleanup.policy=compact on plain"), "{set}");
    until("it to keep the position", async || forgetful.check().await.map_err(|error| error.to_string())).await;
    assert_eq!(position(forgetful.as_mut()).await, None);

    // The position comes with the entries, and another topic's is not taken for ours.
    assert_eq!(position(sink.as_mut()).await, None);
    deliver(sink.as_mut(), &items(1..=30)).await.unwrap();
    assert_eq!(position(sink.as_mut()).await, Some(30));
    let mut second = kafka.opened(exactly("made"));
    assert_eq!(position(second.as_mut()).await, Some(30));
    let mut mixed =
        kafka.opened(json!({"topic": "made", "transactional_id": "mixed", "position_topic": "made-position"}));
    let foreign = trying("its position", async || mixed.position(&cursor).await).await.unwrap_err();
    assert!(foreign.to_string().contains("another sink"), "{foreign}");

    // The second has taken over: the first writes nothing any more until somebody says so.
    let fenced = deliver(sink.as_mut(), &items(31..=32)).await.unwrap_err();
    assert!(matches!(&fenced, (0, SinkError::Halt { text }) if text.contains("taken over")), "{fenced:?}");
    deliver(second.as_mut(), &items(31..=35)).await.unwrap();
    sink.reopen();
    assert_eq!(position(sink.as_mut()).await, Some(35));
    deliver(sink.as_mut(), &items(36..=36)).await.unwrap();
    // A check and `sink init` beside it take nothing over.
    let mut beside = kafka.opened(exactly("made"));
    trying("a check", async || beside.check().await).await.unwrap();
    beside.provision().await.unwrap();
    deliver(sink.as_mut(), &items(37..=37)).await.unwrap();
    kafka.has("made", 1..=37).await;

    // Attempts that were given up after the position, more than are read at once.
    kafka.give_up("made", 60);
    assert!(kafka.end("made-position") > 120);
    sink.reopen();
    assert_eq!(position(sink.as_mut()).await, Some(37));

    // One that is too large for the topic stands alone, and what is around it goes on.
    for keys in [exactly("other"), json!({"topic": "other", "mode": "idempotent"})] {
        let transactional = keys["transactional_id"].is_string();
        let mut sink = kafka.opened(keys);
        if transactional {
            position(sink.as_mut()).await;
        }
        let mut batch = items(1..=7);
        batch[3] = item(4, "m4", 3_000_000);
        let refused = deliver(sink.as_mut(), &batch).await.unwrap_err();
        assert!(
            matches!(&refused, (3, SinkError::Refused { text }) if text.contains("max.message.bytes")),
            "{refused:?}"
        );
        deliver(sink.as_mut(), &batch[4..]).await.unwrap();
    }
    assert_eq!(kafka.seqs("other").await, [1, 2, 3, 5, 6, 7, 1, 2, 3, 5, 6, 7]);

    // Also where it is the first of a producer that the brokers do not know yet.
    let mut fresh = kafka.opened(json!({"topic": "other", "mode": "idempotent"}));
    let batch = [&[item(8, "m3", 3_000_000)], &items(9..=10)[..]].concat();
    let refused = deliver(fresh.as_mut(), &batch).await.unwrap_err();
    assert!(matches!(&refused, (0, SinkError::Refused { .. })), "{refused:?}");
    deliver(fresh.as_mut(), &batch[1..]).await.unwrap();
    assert_eq!(kafka.seqs("other").await[12..], [9, 10]);

    // A replay repeats, moves no position and locks nobody out.
    let mut replay = kafka.opened(exactly("other"));
    replay.enter_replay();
    deliver(replay.as_mut(), &items(2..=3)).await.unwrap();
    assert_eq!(kafka.seqs("other").await[14..], [2, 3]);
    assert_eq!(position(other.as_mut()).await, Some(7));
}

/// Several partitions: each object is in one, and its entries are in their order.
#[tokio::test(flavor = "multi_thread")]
async fn kafka_partitions_and_topics_by_template() {
    let kafka = Kafka::start(true).await;
    let mut keys = exactly("wide");
    keys["partitions"] = json!(4);
    let mut sink = kafka.ready(keys).await;
    for part in items(1..=200).chunks(30) {
        deliver(sink.as_mut(), part).await.unwrap();
    }
    // A partition shows what a transaction committed a moment after the commit is confirmed.
    let records = until("a consumer to read all of it", async || {
        let records = kafka.read("wide")?;
        let count: usize = records.values().map(Vec::len).sum();
        if count >= 200 { Ok(records) } else { Err(format!("it has read {count}")) }
    })
    .await;
    let mut seen: BTreeMap<String, (i32, u64)> = BTreeMap::new();
    for (partition, (key, line)) in records.iter().flat_map(|(p, all)| all.iter().map(move |record| (*p, record))) {
        let seq = serde_json::from_str::<Value>(line).unwrap()["seq"].as_u64().unwrap();
        let (place, last) = seen.entry(key.clone()).or_insert((partition, 0));
        assert_eq!(*place, partition, "{key}");
        assert!(*last < seq, "{key}: {seq} after {last}");
        *last = seq;
    }
    assert_eq!(
        seen.keys().cloned().collect::<Vec<_>>(),
        (0..5).map(|n| format!("configmaps/default/m{n}")).collect::<Vec<_>>()
    );
    assert!(records.len() > 1, "all in one partition");
    assert_eq!(records.values().map(Vec::len).sum::<usize>(), 200);

    // A template needs topics that somebody else makes.
    drop(kafka.ready(json!({"topic": "log.configmaps.prod", "mode": "idempotent"})).await);
    let mut sink = kafka.ready(json!({"topic": "log.{resource}.{cluster}", "transactional_id": "log"})).await;
    assert!(sink.provisioning_script().unwrap().starts_with("# and a topic for each log.{resource}.{cluster}"));
    deliver(sink.as_mut(), &items(1..=3)).await.unwrap();
    assert_eq!(kafka.seqs("log.configmaps.prod").await, [1, 2, 3]);
    let mut nowhere = kafka.opened(json!({"topic": "none.{resource}", "transactional_id": "log"}));
    nowhere.bind("audit", &Cluster::default());
    assert_eq!(position(nowhere.as_mut()).await, Some(3));
    let text = fails("auto.create.topics.enable", async || {
        nowhere.deliver(&items(4..=5)).await.map_err(|failure| failure.error)
    })
    .await;
    assert!(text.contains("\"none.configmaps\"") && !text.contains("sink init"), "{text}");
    // It is made by hand.
    drop(kafka.ready(json!({"topic": "none.configmaps", "mode": "idempotent"})).await);
    deliver(nowhere.as_mut(), &items(4..=5)).await.unwrap();
    assert_eq!(kafka.seqs("none.configmaps").await, [4, 5]);
}

/// Fault 67: the connection is gone at each answer of a transaction, the last one included, and comes back only after the sink has
/// given it up: whether it was committed is found out.
#[tokio::test(flavor = "multi_thread")]
async fn kafka_commit_without_an_answer() {
    let kafka = Kafka::start(true).await;
    let proxy = kafka.proxy().await;
    drop(kafka.ready(exactly("cut")).await);
    let mut sink = open(proxy.port(), exactly("cut")).unwrap();
    position(sink.as_mut()).await;
    deliver(sink.as_mut(), &items(1..=1)).await.unwrap();
    let mut seq = 1;
    for answers in 2.. {
        seq += 1;
        proxy.close_after(answers);
        let next = items(seq..=seq);
        let taken = sink.deliver(&next).await;
        proxy.refuse(false);
        let Err(failure) = taken else { break };
        assert!(matches!(failure.error, SinkError::Retry { .. }), "{failure:?}");
        deliver(sink.as_mut(), &next).await.unwrap();
    }
    kafka.has("cut", 1..=seq).await;
}

/// The brokers are put back to an earlier state: what they lost is delivered again, also without a restart of decklog.
#[tokio::test(flavor = "multi_thread")]
async fn kafka_put_back() {
    let mut kafka = Kafka::start(true).await;
    let mut sink = kafka.ready(exactly("back")).await;
    position(sink.as_mut()).await;
    deliver(sink.as_mut(), &items(1..=5)).await.unwrap();
    kafka.server.stop().await;
    let data = kafka.dir.path().join("data");
    let copy = |from: &Path, to: &Path| {
        assert!(Command::new("cp").arg("-a").args([from, to]).status().unwrap().success());
    };
    copy(&data, &kafka.dir.path().join("copy"));
    kafka.restart().await;
    // Of a producer that began after the copy was made they know nothing, as if another one had taken over.
    for (began_anew, last) in [(false, 9), (true, 11)] {
        if began_anew {
            sink.reopen();
            position(sink.as_mut()).await;
        }
        deliver(sink.as_mut(), &items(if began_anew { 10 } else { 6 }..=last)).await.unwrap();
        kafka.has("back", 1..=last).await;
        kafka.server.stop().await;
        fs::remove_dir_all(&data).unwrap();
        copy(&kafka.dir.path().join("copy"), &data);
        kafka.restart().await;
        // It is not taken on top of a hole.
        let lost = deliver(sink.as_mut(), &items(last + 1..=last + 1)).await.unwrap_err();
        assert!(matches!(lost, (0, SinkError::Lost { .. })), "{lost:?}");
        assert_eq!(position(sink.as_mut()).await, Some(5));
        deliver(sink.as_mut(), &items(6..=last)).await.unwrap();
        kafka.has("back", 1..=last).await;
    }
    // They have nothing at all: it is not taken on top of a hole either, and begins anew.
    for restarted in [false, true] {
        kafka.kill();
        fs::remove_dir_all(&data).unwrap();
        fs::remove_file(kafka.dir.path().join("formatted")).unwrap();
        kafka.restart().await;
        if restarted {
            sink = kafka.ready(exactly("back")).await;
        } else {
            drop(kafka.ready(exactly("back")).await);
            let lost = deliver(sink.as_mut(), &items(12..=12)).await.unwrap_err();
            assert!(matches!(lost, (0, SinkError::Lost { .. })), "{lost:?}");
        }
        assert_eq!(position_after(sink.as_mut(), 11).await, Some(0));
        deliver(sink.as_mut(), &items(1..=12)).await.unwrap();
        kafka.has("back", 1..=12).await;
    }
    // A position alone that is gone says nothing of the entries: the cursor counts.
    let mut moved = kafka.ready(json!({"topic": "back", "transactional_id": "moved"})).await;
    assert_eq!(position_after(moved.as_mut(), 12).await, None);
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

/// Grants and takes rights of the user `writer`.
struct Rights {
    child: Child,
    answers: std::io::Lines<BufReader<ChildStdout>>,
}

impl Drop for Rights {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

impl Rights {
    fn of(kafka: &Kafka) -> Self {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sinks/kafka/Acls.java");
        let mut command = Command::new("java");
        command.arg("-cp").arg(made("kafka").join("libs/*")).arg(source).arg(format!("127.0.0.1:{}", kafka.direct));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, answers }
    }

    /// `+` grants a right and `-` takes it away, as `+ TOPIC log WRITE`.
    fn change<'o>(&mut self, orders: impl IntoIterator<Item = &'o String>) {
        for order in orders {
            let (sign, rest) = order.split_once(' ').unwrap();
            writeln!(self.child.stdin.as_ref().unwrap(), "{sign} writer {rest}").unwrap();
            assert_eq!(self.answers.next().unwrap().unwrap(), "done", "{order}");
        }
    }
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

/// The rights that the documentation names are enough, and for each that is missing there is one sentence.
#[tokio::test(flavor = "multi_thread")]
async fn kafka_rights() {
    let (kafka, plain, password) = Kafka::with_rights().await;
    let sink = |keys: Value| {
        let mut all = json!({"topic": "log", "sasl": "plain", "user": "writer", "password_file": password});
        all.as_object_mut().unwrap().append(keys.clone().as_object_mut().unwrap());
        let mut sink = open(plain, all).unwrap();
        sink.bind("audit", &Cluster::default());
        sink
    };
    let exact = json!({"transactional_id": "audit"});
    let cursor = LogPosition { epoch: "e".to_owned(), seq: Seq(0), entry: None };
    let mut rights = Rights::of(&kafka);

    // None: topics are not visible, whether they are there or not, and cannot be made.
    let mut audit = sink(exact.clone());
    let text =
        fails("the topics log, audit-position do not exist, or may not be described", async || audit.check().await)
            .await;
    assert!(text.contains("`decklog sink init audit`"), "{text}");
    fails("it is not allowed; grant Create", async || audit.provision().await).await;
    drop(kafka.ready(json!({"topic": "log", "transactional_id": "audit"})).await);
    fails("the topics log, audit-position do not exist, or may not be described", async || audit.check().await).await;

    // Those that are documented.
    let all =
        ["TOPIC log WRITE", "TOPIC audit-position READ", "TOPIC audit-position WRITE", "TRANSACTIONAL_ID audit WRITE"];
    rights.change(&all.map(|right| format!("+ {right}")));
    trying("a check", async || audit.check().await).await.unwrap();
    assert_eq!(position(audit.as_mut()).await, None);
    deliver(audit.as_mut(), &items(1..=5)).await.unwrap();

    // One is taken away while it runs, and given back.
    let mut seq = 5;
    for (right, left, says) in [
        (all[0], Some("TOPIC log DESCRIBE"), r#"grant Write and Describe on "log""#),
        (all[2], None, r#"and Read, Write and Describe on "audit-position""#),
        (all[3], None, r#"no right to the transactional_id "audit"; grant Write and Describe"#),
    ] {
        rights.change(&left.map(|right| format!("+ {right}")));
        rights.change(&[format!("- {right}")]);
        let text = fails(says, async || {
            let next = items(seq + 1..=seq + 1);
            audit.deliver(&next).await.map_err(|failure| failure.error)?;
            seq += 1;
            Ok(())
        })
        .await;
        assert!(text.contains("no right to"), "{text}");
        rights.change(&[format!("+ {right}")]);
        let next = items(seq + 1..=seq + 1);
        deliver(audit.as_mut(), &next).await.unwrap();
        seq += 1;
    }
    rights.change(&[format!("- {}", all[1])]);
    let says = r#"reading the position from the topic "audit-position": no right to the topic"#;
    fails(says, async || sink(exact.clone()).check().await).await;
    fails(says, async || sink(exact.clone()).position(&cursor).await).await;
    rights.change(&[format!("+ {}", all[1])]);
    assert_eq!(position(sink(exact.clone()).as_mut()).await, Some(seq));
    kafka.has("log", 1..=seq).await;

    // Without transactions: Write on the topic is enough.
    rights.change(&all.map(|right| format!("- {right}")));
    let mut plainly = sink(json!({"mode": "idempotent"}));
    let text = fails("no right", async || plainly.deliver(&items(1..=1)).await.map_err(|failure| failure.error)).await;
    assert!(text.contains("grant") && !text.contains("position"), "{text}");
    rights.change(&["+ TOPIC log WRITE".to_owned()]);
    deliver(plainly.as_mut(), &items(1..=3)).await.unwrap();
    assert_eq!(kafka.seqs("log").await[usize::try_from(seq).unwrap()..], [1, 2, 3]);
}

/// decklog stands still within a transaction for longer than the brokers let it be open, wherever that is: they give it up,
/// which looks as if another producer had taken over, and nobody has to act.
#[tokio::test(flavor = "multi_thread")]
async fn kafka_stopped_within_a_transaction() {
    /// At which of its sends and receives: some are those of its connections.
    const STOPS: [usize; 5] = [80, 90, 100, 110, 120];
    let more =
        |_: &Path, _: &mut Vec<_>| "transaction.abort.timed.out.transaction.cleanup.interval.ms=500\n".to_owned();
    let kafka = Kafka::start_with(true, more, &[]).await;
    let sim = cluster().await;
    let mut stopped = Vec::new();
    for step in STOPS {
        let run = format!("stop{step}");
        let mut daemon = Daemon::new(&sim, &["configmaps"]);
        let keys = Far::sink(&kafka, kafka.direct, &run, Path::new("")).replace("20s", "4s");
        daemon
            .configure(&daemon.config("resources = [\"configmaps\"]", &format!("[[sink]]\nname = \"far\"\n{keys}\n")));
        kafka.prepare(&daemon, &run).await;
        let root = daemon.path("").canonicalize().unwrap();
        let port = kafka.direct.to_string();
        daemon.start_with(|command| {
            under_shim(command, &root).env("DECKLOG_SHIM_PORT", &port).env("DECKLOG_SHIM_KILL", format!("stop:{step}"))
        });
        stopped.push((run, daemon));
    }
    let mut made = 0;
    for (_, daemon) in &mut stopped {
        until("it to stand still", async || {
            daemon.must_run();
            let stat = fs::read_to_string(format!("/proc/{}/stat", daemon.pid())).unwrap();
            if stat.rsplit(") ").next().unwrap().starts_with('T') {
                return Ok(());
            }
            // Something to deliver, until it comes to its step.
            made += 1;
            let map = decklog::sim::objects::config_map("default", &format!("m{made}"), "x");
            sim.create("configmaps", map).unwrap();
            Err("it goes on".to_owned())
        })
        .await;
    }
    let since = Instant::now();
    until("the brokers to give up what is open", async || {
        if since.elapsed() > Duration::from_secs(4 + 12) { Ok(()) } else { Err("not yet".to_owned()) }
    })
    .await;
    let mut given_up = 0;
    for (run, mut daemon) in stopped {
        daemon.signal(Signal::CONT);
        until("the sink to have everything", async || {
            daemon.must_run();
            let status = daemon.status().await;
            let far = status["sinks"].as_array().unwrap().iter().find(|sink| sink["name"] == "far").cloned().unwrap();
            let lines = daemon.lines();
            if far["cursor"].as_u64() == Some(lines as u64) && lines >= made { Ok(()) } else { Err(far.to_string()) }
        })
        .await;
        // It is the one that goes on, with a check beside it.
        daemon.command(&["check"]).await.done();
        daemon.stop().await;
        let said = daemon.said();
        assert!(!said.contains("halted"), "{said}");
        given_up += usize::from(said.lines().any(|line| line.contains("trying again")));
        let log = fs::read_to_string(daemon.log()).unwrap();
        let came = kafka.consumed(&run).await.unwrap();
        trial::judge(Promise::ExactlyOnce, 0, &log.lines().collect::<Vec<_>>(), &came);
    }
    assert!(given_up > 0, "none stood still within a transaction");
}
