//! The shared log in topics of Kafka.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use bytes::Bytes;
use decklog::shared_log::{Appended, Base, LogError, SharedLog};
use decklog::sink::registry::SinkKind;
use rdkafka::admin::{AdminClient, AdminOptions};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::{Message, OwnedMessage};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use serde_json::json;
use tokio::time::timeout;

use super::Rights;
use super::start::Kafka;
use crate::ha;
use crate::shared::{self, Place};
use crate::support::until;
use crate::trial::Far;

/// How long the broker may take for what a test asks of it.
const LIMIT: Duration = Duration::from_secs(30);

/// The logs of one sink, at a port of the broker or of what is before it.
struct Logs {
    /// Of the broker.
    straight: u16,
    port: u16,
    /// The file with the password, where the port asks for one.
    password: Option<PathBuf>,
}

impl Logs {
    /// Without topics.
    fn straight(far: &Kafka) -> Self {
        Self { straight: far.direct, port: far.direct, password: None }
    }

    /// Whose topics are there.
    async fn new(far: &Kafka, clusters: &[&str]) -> Self {
        let logs = Self::straight(far);
        for cluster in clusters {
            logs.init(cluster).await;
        }
        logs
    }

    async fn init(&self, cluster: &str) {
        let mut log = self.open(cluster);
        until("the topics", async || {
            log.provision().await.map_err(|error| error.to_string())?;
            log.check().await.map_err(|error| error.to_string())
        })
        .await;
    }

    fn kind(&self) -> SinkKind {
        let brokers = [format!("127.0.0.1:{}", self.port)];
        let mut keys =
            json!({"type": "kafka", "brokers": brokers, "topic": "log", "transactional_id": "ha", "timeout": "8s"});
        if let Some(password) = &self.password {
            let login = json!({"sasl": "plain", "user": "writer", "password_file": password});
            keys.as_object_mut().unwrap().append(login.clone().as_object_mut().unwrap());
        }
        serde_json::from_value(keys).unwrap()
    }

    fn config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", format!("127.0.0.1:{}", self.straight)).set("group.id", "test");
        config.set("enable.partition.eof", "true").set("auto.offset.reset", "error");
        config
    }

    /// Everything in a topic, of whatever became of the transaction.
    fn records(&self, topic: &str) -> Vec<OwnedMessage> {
        let consumer: BaseConsumer = self.config().create().unwrap();
        let (low, end) = consumer.fetch_watermarks(topic, 0, LIMIT).unwrap();
        let mut records = Vec::new();
        if low == end {
            return records;
        }
        let mut from = TopicPartitionList::new();
        from.add_partition_offset(topic, 0, Offset::Offset(low)).unwrap();
        consumer.assign(&from).unwrap();
        loop {
            match consumer.poll(LIMIT).unwrap() {
                Ok(record) => records.push(record.detach()),
                Err(KafkaError::PartitionEOF(_)) => return records,
                Err(error) => panic!("{error}"),
            }
        }
    }
}

impl Logs {
    /// The topic is made again with what is left, under whoever writes to it.
    async fn keep(&self, cluster: &str, keeps: impl Fn(u64) -> bool) {
        let topic = format!("ha.shared.{cluster}");
        let number =
            |record: &OwnedMessage| std::str::from_utf8(record.key().unwrap()).unwrap().parse::<u64>().unwrap();
        let left: Vec<_> = self.records(&topic).into_iter().filter(|record| keeps(number(record))).collect();
        let admin: AdminClient<DefaultClientContext> = self.config().create().unwrap();
        admin.delete_topics(&[&topic], &AdminOptions::new()).await.unwrap();
        self.init(cluster).await;
        let producer: BaseProducer = self.config().create().unwrap();
        for record in left {
            let mut again = BaseRecord::to(&topic).partition(0).key(record.key().unwrap());
            again = again.payload(record.payload().unwrap_or_default());
            if let Some(headers) = record.headers() {
                again = again.headers(headers.clone());
            }
            producer.send(again).map_err(|(error, _)| error).unwrap();
        }
        producer.flush(LIMIT).unwrap();
    }
}

impl Place for Logs {
    fn open(&self, cluster: &str) -> Box<dyn SharedLog> {
        self.kind().settings().shared_log("archive", cluster).unwrap().unwrap()
    }

    async fn forget(&self, cluster: &str, from: u64) {
        self.keep(cluster, |number| number < from).await;
    }

    async fn lose(&self, cluster: &str, units: &[u64]) {
        self.keep(cluster, |number| !units.contains(&number)).await;
    }

    /// Offsets have one order.
    async fn put_back(&self, _cluster: &str, _units: &[u64]) -> bool {
        false
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kafka_shared_log_keeps_units() {
    let far = Kafka::start(true).await;
    let logs = Logs::new(&far, &shared::CLUSTERS).await;
    shared::keeps_units(&logs).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kafka_shared_log_keeps_bases() {
    let far = Kafka::start(true).await;
    let logs = Logs::new(&far, &shared::CLUSTERS).await;
    shared::keeps_bases(&logs).await;
    println!("an append of 1 KB and of 1 MB: {:?}", shared::latency(&logs).await);
    // Nothing stays of what was removed.
    assert_eq!(logs.records("ha.shared.truncated").len(), 1, "the unit after the base");
    assert_eq!(logs.records("ha.parts.truncated").len(), 1, "the one part of the base");
}

#[tokio::test(flavor = "multi_thread")]
async fn kafka_shared_log_answers_cut() {
    let far = Kafka::start(true).await;
    let straight = Logs::new(&far, &["cut"]).await;
    let proxy = far.proxy().await;
    let through = Logs { port: proxy.port(), ..Logs::straight(&far) };
    shared::lasts(&through, &straight, "cut", async |reached| proxy.cuts(reached).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kafka_shared_log_killed() {
    let mut far = Kafka::start(true).await;
    let logs = Logs::new(&far, &["killed"]).await;
    ha::outlives_kills(&logs, "killed", &mut far.server).await;
}

async fn fence(log: &mut Box<dyn SharedLog>) {
    until("the fence", async || log.fence().await.map_err(|error| error.to_string())).await;
}

async fn append(log: &mut Box<dyn SharedLog>, number: u64, bytes: &Bytes) -> Appended {
    let appended = until("an append", async || match log.append(number, bytes.clone()).await {
        Err(LogError::Retry(text)) => Err(text),
        appended => Ok(appended),
    });
    appended.await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn kafka_shared_log_is_of_who_took_over_last() {
    let far = Kafka::start(true).await;
    let logs = Logs::new(&far, &["c", "ahead", "hangs"]).await;
    keeps_out_who_was_there_before(&logs).await;
    has_no_base_ahead_of_who_took_over(&logs).await;
    nobody_leads_over_what_hangs(&logs).await;
}

/// A transaction that nobody ends hides what comes after it, and may end in either way.
async fn nobody_leads_over_what_hangs(logs: &Logs) {
    let mut log = logs.open("hangs");
    let text = Bytes::from_static(b"x");
    fence(&mut log).await;
    assert_eq!(append(&mut log, 1, &text).await, Appended::Done);
    let stranger: BaseProducer = logs.config().set("transactional.id", "stranger").create().unwrap();
    stranger.init_transactions(LIMIT).unwrap();
    stranger.begin_transaction().unwrap();
    let record = BaseRecord::to("ha.shared.hangs").partition(0).key("2").payload("y");
    stranger.send(record).map_err(|(error, _)| error).unwrap();
    stranger.flush(LIMIT).unwrap();
    let mut next = logs.open("hangs");
    until("a refusal", async || match next.fence().await {
        Err(error) if error.to_string().contains("has a transaction that nobody ends") => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    stranger.abort_transaction(LIMIT).unwrap();
    fence(&mut next).await;
    assert_eq!(append(&mut next, 2, &text).await, Appended::Done);
    shared::is_there(&mut next, 0, &[(1, text.clone()), (2, text)]).await;
}

/// Killed while a unit is on its way, again and again, at other moments: what was done is there for who takes over, and what that
/// one finds stays the log, whatever the brokers have forgotten of the transaction.
#[tokio::test(flavor = "multi_thread")]
async fn kafka_shared_log_killed_on_the_way() {
    let mut far = Kafka::start(true).await;
    let logs = Logs::new(&far, &["way"]).await;
    let mut log = logs.open("way");
    fence(&mut log).await;
    let mut known: Vec<(u64, Bytes)> = Vec::new();
    for round in 0..3 {
        let unit = |number: u64| Bytes::from(format!("{number} of {round}"));
        let mut took = Duration::ZERO;
        for _ in 0..2 {
            let number = known.len() as u64 + 1;
            let began = Instant::now();
            assert_eq!(append(&mut log, number, &unit(number)).await, Appended::Done);
            known.push((number, unit(number)));
            took = began.elapsed();
        }
        let number = known.len() as u64 + 1;
        // Later and later on its way.
        let moment = took * (3 + round * 3 % 8) / 8;
        let outcome = timeout(moment, log.append(number, unit(number))).await;
        far.server.kill();
        far.server.restart().await;
        let mut next = logs.open("way");
        fence(&mut next).await;
        let newest =
            until("what is there", async || next.extent().await.map_err(|error| error.to_string())).await.newest;
        match outcome {
            Ok(Ok(Appended::Done)) => assert_eq!(newest, number),
            Ok(Ok(other)) => panic!("{other:?}"),
            Ok(Err(_)) | Err(_) => assert!((number - 1..=number).contains(&newest), "{newest} of {number}"),
        }
        if newest == number {
            known.push((number, unit(number)));
        }
        // Who takes over says so, and then nobody else gets anything in, nor does what hung come back.
        let takes_over = Bytes::from_static(b"leads");
        assert_eq!(append(&mut next, newest + 1, &takes_over).await, Appended::Done);
        known.push((newest + 1, takes_over));
        assert_eq!(append(&mut log, newest + 1, &Bytes::from_static(b"late")).await, Appended::Taken);
        log = next;
    }
    for log in [&mut log, &mut logs.open("way")] {
        shared::is_there(log, 0, &known).await;
    }
}

/// A base that is ahead of all units says what comes next, so it is of who took over last.
async fn has_no_base_ahead_of_who_took_over(logs: &Logs) {
    let (mut old, mut new) = (logs.open("ahead"), logs.open("ahead"));
    let text = Bytes::from_static(b"x");
    fence(&mut old).await;
    assert_eq!(append(&mut old, 1, &text).await, Appended::Done);
    until("a part", async || old.put_part(9, 0, text.clone()).await.map_err(|error| error.to_string())).await;
    fence(&mut new).await;
    let base = Base { number: 9, parts: 1 };
    let refused = until("a refusal", async || match old.finish_base(base).await {
        Err(error) if error.to_string().contains("another decklog has taken over") => Ok(error),
        other => Err(format!("{other:?}")),
    });
    assert!(matches!(refused.await, LogError::Retry(_)));
    assert_eq!(append(&mut new, 2, &text).await, Appended::Done);
    assert_eq!(new.extent().await.unwrap().bases, []);
    // Who takes over again may, and then the other one's next number is taken.
    fence(&mut old).await;
    until("a base", async || old.finish_base(base).await.map_err(|error| error.to_string())).await;
    assert_eq!(append(&mut new, 3, &text).await, Appended::Taken);
    assert_eq!(append(&mut old, 10, &text).await, Appended::Done);
}

/// The rights that the book names are enough.
#[tokio::test(flavor = "multi_thread")]
async fn kafka_shared_log_with_the_least_rights() {
    let (far, plain, password) = Kafka::with_rights().await;
    let straight = Logs::new(&far, &["c"]).await;
    let mut rights = Rights::of(&far);
    let all = [
        "TOPIC ha.shared.c READ",
        "TOPIC ha.shared.c WRITE",
        "TOPIC ha.shared.c DELETE",
        "TOPIC ha.parts.c READ",
        "TOPIC ha.parts.c WRITE",
        "TOPIC ha.parts.c DELETE",
        "TOPIC ha.bases.c READ",
        "TOPIC ha.bases.c WRITE",
        "TRANSACTIONAL_ID ha.shared.c WRITE",
    ];
    rights.change(&all.map(|right| format!("+ {right}")));
    let mut log = Logs { port: plain, password: Some(password), ..straight }.open("c");
    until("a check", async || log.check().await.map_err(|error| error.to_string())).await;
    fence(&mut log).await;
    let text = Bytes::from_static(b"x");
    for number in 1..=3 {
        assert_eq!(append(&mut log, number, &text).await, Appended::Done);
    }
    assert_eq!(log.read(0, 1 << 20).await.unwrap().len(), 3);
    for number in [2, 3, 9] {
        log.put_part(number, 0, text.clone()).await.unwrap();
        log.finish_base(Base { number, parts: 1 }).await.unwrap();
    }
    assert_eq!(log.part(3, 0).await, Ok(text.clone()));
    log.truncate(2).await.unwrap();
    rights.change(&[format!("- {}", all[2])]);
    let refused = until("a refusal", async || match log.truncate(3).await {
        Err(error) => Ok(error.to_string()),
        Ok(()) => {
            log.put_part(3, 0, text.clone()).await.unwrap();
            Err("it may still".to_owned())
        }
    });
    let refused = refused.await;
    assert!(refused.contains("grant Delete on it"), "{refused}");
    assert_eq!(append(&mut log, 10, &text).await, Appended::Done);
}

/// Who was locked out does not lock out who took over, and leads again only when it asks to.
async fn keeps_out_who_was_there_before(logs: &Logs) {
    let (mut old, mut new) = (logs.open("c"), logs.open("c"));
    let text = Bytes::from_static(b"x");
    let append = async |log: &mut Box<dyn SharedLog>, number| append(log, number, &text).await;
    fence(&mut old).await;
    assert_eq!(append(&mut old, 1).await, Appended::Done);
    fence(&mut new).await;
    // Nothing is appended yet by who leads now.
    for _ in 0..3 {
        assert_eq!(append(&mut old, 2).await, Appended::Taken);
    }
    assert_eq!(append(&mut new, 2).await, Appended::Done);
    assert_eq!(append(&mut old, 3).await, Appended::Taken);
    // What both have is there.
    assert_eq!(append(&mut old, 2).await, Appended::Done);
    assert_eq!(append(&mut new, 3).await, Appended::Done);
    fence(&mut old).await;
    assert_eq!(append(&mut old, 4).await, Appended::Done);
    assert_eq!(append(&mut new, 5).await, Appended::Taken);
}

#[tokio::test(flavor = "multi_thread")]
async fn kafka_shared_log_says_what_is_missing() {
    let far = Kafka::start(true).await;
    let logs = Logs::straight(&far);
    let mut log = logs.open("c");
    let error = ha::checked(&mut log).await.unwrap_err();
    let says = "the topics ha.shared.c, ha.parts.c, ha.bases.c do not exist";
    assert!(
        matches!(&error, LogError::Halt(text) if text.contains(says) && text.contains("sink init archive")),
        "{error}"
    );
    let script = log.provisioning_script().unwrap();
    assert!(script.contains("--topic ha.shared.c --partitions 1"), "{script}");
    // Some that forget.
    let admin: AdminClient<DefaultClientContext> = logs.config().create().unwrap();
    let topic = |name| rdkafka::admin::NewTopic::new(name, 1, rdkafka::admin::TopicReplication::Fixed(1));
    let forgetful = topic("ha.shared.c");
    admin.create_topics([&forgetful], &AdminOptions::new()).await.unwrap();
    logs_are_refused(&mut log, "the topic ha.shared.c is of the shared log and forgets it with retention.ms=").await;
    let error = until("an answer", async || match log.append(1, "x".into()).await {
        Err(LogError::Retry(text)) => Err(text),
        appended => Ok(appended),
    });
    assert!(error.await.unwrap_err().to_string().contains("forgets it"));
}

#[tokio::test(flavor = "multi_thread")]
async fn kafka_shared_log_outlives_its_machine() {
    let far = Kafka::start(true).await;
    let keys = format!(
        "type = \"kafka\"\nbrokers = [\"127.0.0.1:{}\"]\ntopic = \"log\"\ntransactional_id = \"ha\"\ntimeout = \"8s\"\n",
        far.direct
    );
    ha::outlives_its_machine(&keys, "the topics ha.shared.", "for the shared log: made ha.shared.").await;
}

async fn logs_are_refused(log: &mut Box<dyn SharedLog>, says: &str) {
    until("the topics", async || log.provision().await.map_err(|error| error.to_string())).await;
    until("the refusal", async || match log.check().await {
        Err(LogError::Halt(text)) if text.contains(says) => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
}
