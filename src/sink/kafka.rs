//! Kafka: exactly once with transactions, at least once without.
//!
//! With transactions the entries and the position (`position`) come in one of them. At its start the sink locks out every
//! earlier producer of the same transactional id, which also ends what that one left open, and then reads the position:
//! nothing that is still on its way can be added to it. After a failure whose outcome is not known it does the same again.
//!
//! librdkafka blocks and has threads of its own: everything here runs on a thread for such work, in slices, so that it ends
//! soon after delivery has given it up, and the clients end with it.
//!
//! # Decision: the position has a topic of its own
//!
//! Context: Consumer group offsets expire after a week, and need an existing partition.
//! Decision: The position is a record of a compacted topic, in the transaction of its entries, of one sink alone. The producer
//! is initialized first, which fences predecessors, and then the position is read; a commit without an answer is resolved the
//! same way. Brokers that were restored are noticed before anything is committed over a hole.
//! Cost: One more topic.

mod context;
mod fault;
mod patience;
mod position;
mod record;
mod settings;
mod setup;
mod topics;
mod writer;

pub use settings::{KafkaCompression, KafkaMode, Sasl, Settings};

use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;

use super::{Class, Failure, Item, Limits, LogPosition, Sink, SinkError};
use crate::core::model::Cluster;
use crate::core::runtime;
use patience::Patience;
use record::Record;
use setup::{Files, Setup};
use writer::Writer;

/// About how many bytes one transaction carries.
const BATCH_BYTES: usize = 4 << 20;

/// Time that entries wait for others: a transaction costs the brokers some writes of their own.
const LINGER: Duration = Duration::from_millis(20);

/// Topics of Kafka.
pub struct KafkaSink {
    settings: Setup,
    files: Files,
    /// None before the first use, while it is on a blocking thread, and after that was given up.
    writer: Option<Box<Writer>>,
    /// The next use connects again.
    stale: bool,
    again: bool,
}

impl std::fmt::Debug for KafkaSink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KafkaSink").field("topic", &self.settings.config.topic).finish_non_exhaustive()
    }
}

impl Drop for KafkaSink {
    /// librdkafka waits for its threads, and an async thread must not.
    fn drop(&mut self) {
        let writer = self.writer.take();
        if writer.is_some()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn_blocking(move || drop(writer));
        }
    }
}

impl KafkaSink {
    /// A sink that writes where the configuration says; nothing is connected yet.
    ///
    /// # Errors
    /// Where the configuration can never work.
    pub fn new(config: &Settings) -> Result<Self, String> {
        let settings = Setup::new(config)?;
        let files = Files::new(config)?;
        Ok(Self { settings, files, writer: None, stale: false, again: false })
    }

    /// Does something with Kafka on a thread that may block, with what the files hold now.
    async fn with<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut Writer, &mut Patience) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let nothing = |error| Failure { taken: 0, error };
        self.stale |= self.files.refresh().await.map_err(nothing)?;
        let client = self.files.client(&self.settings.config).map_err(nothing)?;
        let mut writer =
            self.writer.take().unwrap_or_else(|| Box::new(Writer::new(self.settings.clone(), client.clone())));
        let stale = std::mem::take(&mut self.stale);
        writer.again = self.again;
        let (mut patience, waiter) = Patience::new(*self.settings.config.timeout);
        let (writer, done) = runtime::blocking(move || {
            if stale {
                writer.disconnect();
                writer.client = client;
            }
            let done = work(&mut writer, &mut patience);
            (writer, done)
        })
        .await;
        drop(waiter);
        self.writer = Some(writer);
        done
    }

    /// Runs work as [`KafkaSink::with`] does, for requests without entries.
    async fn ask<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut Writer, &mut Patience) -> Result<T, SinkError> + Send + 'static,
    ) -> Result<T, SinkError> {
        let work = |writer: &mut Writer, patience: &mut Patience| {
            work(writer, patience).map_err(|error| Failure { taken: 0, error })
        };
        self.with(work).await.map_err(|failure| failure.error)
    }

    async fn send(&mut self, batch: &[Item]) -> Result<(), Failure> {
        let mut records = Vec::with_capacity(batch.len());
        let mut unfit = None;
        for item in batch {
            match Record::of(item, &self.settings.config.topic) {
                Ok(record) => records.push(record),
                Err(text) => {
                    unfit = Some(SinkError::Refused { text });
                    break;
                }
            }
        }
        let taken = records.len();
        if taken > 0 {
            self.with(move |writer, patience| writer.write(&records, patience)).await?;
        }
        unfit.map_or(Ok(()), |error| Err(Failure { taken, error }))
    }
}

impl Sink for KafkaSink {
    fn class(&self) -> Class {
        if self.settings.is_transactional() { Class::ExactlyOnce } else { Class::AtLeastOnce }
    }

    fn limits(&self) -> Limits {
        let linger = if self.settings.is_transactional() { LINGER } else { Duration::ZERO };
        Limits { entries: self.settings.config.batch_size.max(1), bytes: BATCH_BYTES, linger }
    }

    fn bind(&mut self, sink: &str, _cluster: &Cluster) {
        sink.clone_into(&mut self.settings.name);
    }

    fn position<'a>(&'a mut self, cursor: &'a LogPosition) -> BoxFuture<'a, Result<Option<LogPosition>, SinkError>> {
        let cursor = cursor.clone();
        self.ask(move |writer, patience| writer.position(cursor, patience)).boxed()
    }

    fn holds<'a>(&'a mut self, entry: &'a LogPosition) -> BoxFuture<'a, Result<Option<bool>, SinkError>> {
        let entry = entry.clone();
        self.ask(move |writer, patience| writer.holds(&entry, patience)).boxed()
    }

    fn deliver<'a>(&'a mut self, batch: &'a [Item]) -> BoxFuture<'a, Result<(), Failure>> {
        self.send(batch).boxed()
    }

    fn reopen(&mut self) {
        self.files.forget();
        self.stale = true;
    }

    fn enter_replay(&mut self) {
        self.again = true;
    }

    fn provisioning_script(&self) -> Option<String> {
        topics::commands(&self.settings)
    }

    fn provision(&mut self) -> BoxFuture<'_, Result<String, SinkError>> {
        self.ask(|writer, patience| topics::make(&writer.client, &writer.settings, patience)).boxed()
    }

    fn check(&mut self) -> BoxFuture<'_, Result<(), SinkError>> {
        self.ask(|writer, patience| topics::check(&writer.client, &writer.settings, patience)).boxed()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::sink::registry::SinkKind;
    use crate::sink::tests::item;

    fn open(keys: Value) -> Result<Box<dyn Sink>, String> {
        let mut all = json!({"type": "kafka", "brokers": ["127.0.0.1:1"], "topic": "log"});
        all.as_object_mut().unwrap().append(keys.clone().as_object_mut().unwrap());
        let kind: SinkKind = serde_json::from_value(all).unwrap();
        kind.open()
    }

    #[test]
    fn what_can_never_work_is_told() {
        let id = "x";
        for (keys, says) in [
            (json!({}), "`transactional_id` is missing"),
            (json!({"mode": "idempotent", "transactional_id": id}), "need mode = \"transactional\""),
            (json!({"transactional_id": id, "topic": "a b"}), "no topic can have"),
            (json!({"transactional_id": id, "topic": "a{kind}/b"}), "no topic can have"),
            (json!({"transactional_id": id, "sasl": "plain", "user": "u"}), "need each other"),
            (json!({"transactional_id": id, "password_file": "/p"}), "need each other"),
            (json!({"transactional_id": id, "ca_file": "/c"}), "need `tls = true`"),
            (json!({"transactional_id": id, "tls": true, "cert_file": "/c"}), "needs `key_file`"),
        ] {
            let error = open(keys.clone()).err().unwrap_or_else(|| panic!("{keys} is taken"));
            assert!(error.contains(says), "{keys}: {error}");
        }
    }

    #[test]
    fn each_mode_has_its_class_and_its_topics() {
        let sink = open(json!({"transactional_id": "x", "replication": 3, "partitions": 2})).unwrap();
        assert_eq!(sink.class(), Class::ExactlyOnce);
        assert_eq!(
            sink.provisioning_script().unwrap(),
            "kafka-topics.sh --bootstrap-server 127.0.0.1:1 --create --if-not-exists --topic log --partitions 2 --replication-factor 3\n\
             kafka-topics.sh --bootstrap-server 127.0.0.1:1 --create --if-not-exists --topic x-position --partitions 1 --replication-factor 3 --config cleanup.policy=compact --config segment.bytes=16777216\n"
        );
        let sink = open(json!({"mode": "idempotent", "topic": "log.{kind}"})).unwrap();
        assert_eq!(sink.class(), Class::AtLeastOnce);
        assert!(sink.provisioning_script().unwrap().starts_with("# and a topic for each log.{kind}"));
        assert!(sink.limits().linger.is_zero());
    }

    #[tokio::test]
    async fn brokers_that_are_not_there_are_told_and_waited_for() {
        let mut sink = open(json!({"transactional_id": "x", "timeout": "400ms"})).unwrap();
        let cursor = LogPosition::before("e");
        for _ in 0..2 {
            let error = sink.position(&cursor).await.unwrap_err();
            assert!(matches!(error, SinkError::Retry { .. }), "{error:?}");
        }
        let error = sink.deliver(&[item(1)]).await.unwrap_err();
        assert!(matches!(error, Failure { taken: 0, error: SinkError::Retry { .. } }), "{error:?}");
        let error = sink.check().await.unwrap_err().to_string();
        assert!(error.contains("127.0.0.1:1"), "{error}");
    }
}
