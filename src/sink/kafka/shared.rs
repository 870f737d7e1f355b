//! The shared log in topics of Kafka, beside those of what is delivered.
//!
//! ```text
//! ID.shared.CLUSTER   units, each in a transaction of its own; what is larger than a record may be goes before it in pieces
//! ID.parts.CLUSTER    parts of bases
//! ID.bases.CLUSTER    one record for each base that is whole, by its number: where its parts are; compacted
//! ```
//!
//! All who append have one transactional id, so that whoever takes over locks out who was there before, and ends what that one
//! began. What it then reads is the end, and stays it: from there on it knows the offset that its next record gets, and commits
//! nothing that got another one. Who was locked out does not take it back by itself: it says that somebody else leads.

mod writer;

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;

use super::Settings;
use super::patience::Patience;
use super::setup::{Files, Setup};
use super::topics::{self, COMPACTED, Wanted};
use crate::ambient;
use crate::shared_log::{Appended, Base, Extent, LogError, Numbered, SharedLog};
use crate::sink::shared::word;
use crate::sink::{SinkError, Template};
use crate::spelling::Text;
use writer::LogWriter;

/// Nothing goes by itself.
const KEPT: [(&str, &str); 3] = [("cleanup.policy", "delete"), ("retention.ms", "-1"), ("retention.bytes", "-1")];

/// Where a log is.
#[derive(Clone, Debug)]
struct Topics {
    log: String,
    parts: String,
    bases: String,
}

impl Topics {
    fn wanted(&self) -> Vec<Wanted<'_>> {
        [(&self.log, &KEPT[..]), (&self.parts, &KEPT), (&self.bases, &COMPACTED)]
            .map(|(name, config)| Wanted { name, partitions: 1, config })
            .into()
    }
}

/// A log in topics of Kafka.
pub struct KafkaLog {
    settings: Setup,
    topics: Topics,
    files: Files,
    /// Whoever uses it next waits for the one that was given up: two at once would lock each other out.
    writer: Arc<Mutex<LogWriter>>,
}

impl std::fmt::Debug for KafkaLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KafkaLog").field("topic", &self.topics.log).finish_non_exhaustive()
    }
}

impl Drop for KafkaLog {
    /// librdkafka waits for its threads, and an async thread must not.
    fn drop(&mut self) {
        let writer = Arc::clone(&self.writer);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn_blocking(move || writer.lock().unwrap_or_else(PoisonError::into_inner).close());
        }
    }
}

impl KafkaLog {
    /// The log of a cluster beside what a sink delivers; nothing is connected yet.
    ///
    /// # Errors
    /// Where the configuration can never work.
    pub fn new(config: &Settings, sink: &str, cluster: &str) -> Result<Self, String> {
        let mut settings = Setup::new(config)?;
        if !settings.is_transactional() {
            return Err("a shared log needs mode = \"transactional\" and a `transactional_id`".to_owned());
        }
        let (id, cluster) = (&settings.id, word(cluster, "", '_'));
        let topics = Topics {
            log: format!("{id}.shared.{cluster}"),
            parts: format!("{id}.parts.{cluster}"),
            bases: format!("{id}.bases.{cluster}"),
        };
        if topics.log.len() > 249 {
            return Err(
                "`transactional_id` and the name of the cluster are too long for the name of a topic".to_owned()
            );
        }
        // What errors name is what is written to.
        settings.config.topic = Template::read(&topics.log).map_err(|wrong| wrong.found)?;
        settings.id.clone_from(&topics.log);
        settings.position_topic = format!("{} and {}", topics.parts, topics.bases);
        sink.clone_into(&mut settings.name);
        let files = Files::new(config)?;
        let writer = Arc::new(Mutex::new(LogWriter::new(settings.clone(), topics.clone())));
        Ok(Self { settings, topics, files, writer })
    }

    /// Does something with Kafka on a thread that may block, with what the files hold now.
    async fn with<T: Send + 'static>(
        &self,
        files: (bool, rdkafka::ClientConfig),
        work: impl FnOnce(&mut LogWriter, &mut Patience) -> Result<T, SinkError> + Send + 'static,
    ) -> Result<T, LogError> {
        let (mut patience, waiter) = Patience::new(*self.settings.config.timeout);
        let writer = Arc::clone(&self.writer);
        let done = ambient::blocking(move || {
            let mut writer = writer.lock().unwrap_or_else(PoisonError::into_inner);
            let (other, client) = files;
            if other {
                writer.close();
            }
            writer.client = client;
            patience.renew();
            work(&mut writer, &mut patience)
        })
        .await;
        drop(waiter);
        Ok(done?)
    }

    async fn ask<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut LogWriter, &mut Patience) -> Result<T, SinkError> + Send + 'static,
    ) -> Result<T, LogError> {
        let other = self.files.refresh().await?;
        let client = self.files.client(&self.settings.config)?;
        self.with((other, client), work).await
    }
}

impl SharedLog for KafkaLog {
    fn shown(&self) -> String {
        format!("the topic {} at {}", self.topics.log, self.settings.config.brokers.join(","))
    }

    fn extent(&mut self) -> BoxFuture<'_, Result<Extent, LogError>> {
        self.ask(LogWriter::extent).boxed()
    }

    fn fence(&mut self) -> BoxFuture<'_, Result<(), LogError>> {
        self.ask(LogWriter::fence).boxed()
    }

    fn append(&mut self, number: u64, bytes: Bytes) -> BoxFuture<'_, Result<Appended, LogError>> {
        self.ask(move |writer, patience| writer.append(number, &bytes, patience)).boxed()
    }

    fn read(&mut self, after: u64, bytes: usize) -> BoxFuture<'_, Result<Vec<Numbered>, LogError>> {
        self.ask(move |writer, patience| writer.read(after, bytes, patience)).boxed()
    }

    fn put_part(&mut self, number: u64, part: u32, bytes: Bytes) -> BoxFuture<'_, Result<(), LogError>> {
        self.ask(move |writer, patience| writer.put_part(number, part, &bytes, patience)).boxed()
    }

    fn finish_base(&mut self, base: Base) -> BoxFuture<'_, Result<(), LogError>> {
        self.ask(move |writer, patience| writer.finish(base, patience)).boxed()
    }

    fn part(&mut self, number: u64, part: u32) -> BoxFuture<'_, Result<Bytes, LogError>> {
        self.ask(move |writer, patience| writer.part(number, part, patience)).boxed()
    }

    fn truncate(&mut self, upto: u64) -> BoxFuture<'_, Result<(), LogError>> {
        self.ask(move |writer, patience| writer.truncate(upto, patience)).boxed()
    }

    fn provisioning_script(&self) -> Option<String> {
        Some(topics::commands_for(&self.settings, &self.topics.wanted()))
    }

    fn provision(&mut self) -> BoxFuture<'_, Result<Option<String>, LogError>> {
        let topics = self.topics.clone();
        self.ask(move |writer, patience| {
            let made = topics::make_these(&writer.client, &writer.settings, topics.wanted(), patience)?;
            Ok(Some(format!("for the shared log: {made}")))
        })
        .boxed()
    }

    fn check(&mut self) -> BoxFuture<'_, Result<(), LogError>> {
        let topics = self.topics.clone();
        self.ask(move |writer, patience| {
            topics::are_there(&writer.client, &writer.settings, &topics.wanted(), patience)?;
            writer.keeps(patience)
        })
        .boxed()
    }
}
