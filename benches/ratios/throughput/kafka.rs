//! Topics of Kafka.

pub(crate) use decklog_testkit::servers::kafka as start;
use std::borrow::Cow;
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use bytes::Bytes;
use decklog::core::wire::Entry;
use decklog::sink::Item;
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::message::{DeliveryResult, Header, OwnedHeaders};
use rdkafka::producer::{BaseRecord, Producer, ProducerContext, ThreadedProducer};
use rdkafka::{ClientConfig, ClientContext};
use serde_json::json;

use self::start::Kafka;
use super::{Bench, Case, ENTRIES, Plain, at_once};

const PATIENCE: Duration = Duration::from_secs(60);

/// Counts what was taken.
#[derive(Default)]
struct Taken {
    count: Mutex<usize>,
    more: Condvar,
}

impl ClientContext for Taken {}

impl ProducerContext for Taken {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        result.as_ref().expect("it is taken");
        *self.count.lock().expect("no panic") += 1;
        self.more.notify_one();
    }
}

struct Records {
    producer: ThreadedProducer<Taken>,
    run: String,
    transactional: bool,
    sent: usize,
}

struct Batch {
    records: Vec<(String, OwnedHeaders, Bytes)>,
    position: String,
}

impl Records {
    fn send_one(&mut self, topic: &str, key: &str, headers: OwnedHeaders, line: &[u8]) {
        let mut record = BaseRecord::to(topic).key(key).payload(line).headers(headers);
        while let Err((error, back)) = self.producer.send(record) {
            assert_eq!(error.rdkafka_error_code(), Some(RDKafkaErrorCode::QueueFull), "{error}");
            self.producer.poll(Duration::from_millis(10));
            record = back;
        }
        self.sent += 1;
    }
}

impl Plain for Records {
    type Batch = Batch;

    fn prepare(&self, items: &[Item]) -> Batch {
        let record = |item: &Item| {
            let entry = Entry::parse(&item.line).expect("an entry");
            let part = |part: &Option<Cow<'_, str>>| part.as_deref().unwrap_or("_").to_owned();
            let key = [entry.resource.to_string(), part(&entry.namespace), part(&entry.name)].join("/");
            let seq = entry.seq.to_string();
            let headers = [("id", &*entry.id), ("seq", &*seq), ("epoch", &*entry.epoch), ("type", entry.op.as_str())];
            let headers = headers
                .into_iter()
                .fold(OwnedHeaders::new(), |headers, (key, value)| headers.insert(Header { key, value: Some(value) }));
            (key, headers, item.line.clone())
        };
        let last = Entry::parse(&items[items.len() - 1].line).expect("an entry");
        let position = json!({ "epoch": last.epoch, "seq": last.seq }).to_string();
        Batch { records: items.iter().map(record).collect(), position }
    }

    async fn send(&mut self, batch: Batch) {
        if self.transactional {
            self.producer.begin_transaction().expect("a transaction");
        }
        let run = self.run.clone();
        for (key, headers, line) in batch.records {
            self.send_one(&run, &key, headers, &line);
        }
        if self.transactional {
            self.send_one(&format!("{run}-position"), &run, OwnedHeaders::new(), batch.position.as_bytes());
        }
        // What `flush` does as well, and looks only now and then.
        let taken = self.producer.client().context();
        let under_way = |count: &mut usize| *count < self.sent;
        drop(taken.more.wait_while(taken.count.lock().expect("no panic"), under_way).expect("no panic"));
        if self.transactional {
            self.producer.commit_transaction(PATIENCE).expect("a commit");
        }
    }
}

pub(super) async fn compare(bench: &mut Bench<'_>) {
    let kafka = Kafka::start(true).await;
    let broker = format!("127.0.0.1:{}", kafka.direct);
    for (what, baseline, mode) in [
        ("kafka, exactly once", "rdkafka, a transaction with the position in it", "transactional"),
        ("kafka, mode = \"idempotent\"", "rdkafka, idempotent, all answers awaited", "idempotent"),
    ] {
        let transactional = mode == "transactional";
        // Topics of one mode and of the other are not the same.
        let name = |run: &str| format!("{mode}-{run}");
        let case = Case {
            what,
            baseline,
            entries: ENTRIES,
            keys: &|run| {
                let mut keys = json!({ "type": "kafka", "brokers": [broker], "topic": name(run), "mode": mode });
                if transactional {
                    keys["transactional_id"] = name(run).into();
                }
                keys
            },
        };
        let plain = async |run: &str| {
            let mut config = ClientConfig::new();
            config
                .set("bootstrap.servers", &broker)
                .set("enable.idempotence", "true")
                .set("acks", "all")
                .set("compression.type", "zstd")
                .set("linger.ms", "2")
                .set("batch.size", "1000000");
            if transactional {
                config.set("transactional.id", name(run));
            }
            let producer: ThreadedProducer<Taken> = config.create_with_context(Taken::default()).expect("a producer");
            if transactional {
                producer.init_transactions(PATIENCE).expect("transactions");
            }
            Records { producer, run: name(run), transactional, sent: 0 }
        };
        bench.compare(case, plain, at_once).await;
    }
}
