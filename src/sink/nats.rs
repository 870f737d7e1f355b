//! A stream of NATS JetStream: each seq exactly once and in order.
//!
//! The position lives in the stream: each message names its entry in headers, and the last message on the sink's
//! subjects says how far it came. Each publish carries the sequence that the stream must be at
//! (`Nats-Expected-Last-Sequence`), so that nothing is stored twice or out of order, whatever is still on its way
//! from an earlier connection: the server refuses it. When it refuses, or an answer is lost, the end of the stream is
//! read back and says what happened: only an entry that was under way here, to the last byte, counts as stored. Many are
//! under way at once; each of them also names the one before it (`Nats-Expected-Last-Msg-Id`), so that what follows a
//! refused one is refused as well. An id distinguishes an entry from every other that was ever given its epoch and seq,
//! so that neither this nor what a server drops as a repeat mixes what two decklogs with copies of one journal deliver.
//!
//! The expected sequence is that of the whole stream and not of a subject, because entries go to many subjects and
//! their order is over all of them; older servers have no other fence that covers several. So a stream of its own is
//! best. Other writers on other subjects are allowed and only cost another look at the end whenever they come in
//! between; a message on the sink's own subjects that decklog did not write halts it.
//!
//! # Decision: the whole stream is the fence
//!
//! Context: Entries go to many subjects, and their order is over all.
//! Decision: Each publish names the sequence that the stream must be at and the id of the previous message, so that of two
//! copies of one journal one gets in, and never a mixture. Servers of different age answer a repeat differently; the end of
//! the stream is read after every doubt.
//! Cost: One publisher for a stream.

mod link;
mod publish;
mod read;
mod settings;
mod shared;
mod subject;
#[cfg(test)]
mod tests;

pub use settings::Settings;
pub use shared::NatsLog;

use std::collections::BTreeMap;

use async_nats::HeaderMap;
use async_nats::jetstream::Error as ApiError;
use async_nats::jetstream::stream::{Config, RetentionPolicy, StorageType};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;

use super::link::chain;
use super::{Class, EntryKey, Failure, Item, Limits, LogPosition, Sink, SinkError, UNNAMED};
use crate::core::model::{Cluster, Seq};
use link::Link;
pub use subject::Subject;

/// About how many bytes are under way at once, unless a single entry is larger.
const BATCH_BYTES: usize = 4 << 20;

/// Header with the epoch of the entry.
const EPOCH: &str = "Decklog-Epoch";
/// Its seq.
const SEQ: &str = "Decklog-Seq";
/// Its id.
const ID: &str = "Decklog-Id";
/// Its type.
const TYPE: &str = "Decklog-Type";
/// On what `decklog replay` repeats: what the stream held then, which it still holds.
const HELD: &str = "Decklog-Held";
/// The id of the entry that was held last then.
const HELD_ID: &str = "Decklog-Held-Id";
/// Its time.
const HELD_TIME: &str = "Decklog-Held-Time";

/// End of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Tail {
    /// Its last sequence, of anybody's message.
    last: u64,
    /// Position in the log; none if no message of the log is left.
    held: Option<LogPosition>,
    /// The sequence of the message that says so.
    at: u64,
    /// True if no message was ever dropped from the stream: a missing one was never there.
    whole: bool,
}

impl Tail {
    /// It never held anything of the log, whatever was delivered to another one of its name.
    fn is_untouched(&self) -> bool {
        self.held.is_none() && self.whole
    }
}

/// Observation at the end of a stream.
#[derive(Clone, Debug)]
struct Found {
    tail: Tail,
    /// The entry that it ends with, unless that is a repeat.
    line: Option<Bytes>,
}

/// An entry on its way.
struct Message {
    position: LogPosition,
    /// Message id, by which the server drops duplicates for a while.
    id: String,
    subject: String,
    headers: HeaderMap,
    payload: Bytes,
}

/// A stream of JetStream.
#[derive(Debug)]
pub struct NatsSink {
    link: Link,
    /// The name of the sink.
    name: String,
    stream: String,
    subject: Subject,
    batch_size: usize,
    /// End of the stream, while it is known.
    tail: Option<Tail>,
    /// Last known end of the stream: only the sink itself can have moved it since.
    known: Option<Tail>,
    /// Position of an entry that was searched: the next one is often as far from it as their seqs are.
    hint: Option<(Seq, u64)>,
    again: bool,
}

impl NatsSink {
    /// A sink that publishes where the configuration says; nothing is connected yet.
    ///
    /// # Errors
    /// Where the configuration can never work.
    pub fn new(config: &Settings) -> Result<Self, String> {
        Ok(Self {
            link: Link::new(config)?,
            name: UNNAMED.to_owned(),
            stream: config.stream.to_string(),
            subject: config.subject.clone(),
            batch_size: config.batch_size.max(1),
            tail: None,
            known: None,
            hint: None,
            again: false,
        })
    }

    /// The stream that `sink init` makes.
    fn wanted(&self) -> Config {
        Config {
            name: self.stream.clone(),
            description: Some("the log of a Kubernetes cluster, kept by decklog".to_owned()),
            subjects: vec![self.subject.pattern().to_owned()],
            retention: RetentionPolicy::Limits,
            storage: StorageType::File,
            num_replicas: 1,
            max_bytes: -1,
            max_messages: -1,
            max_messages_per_subject: -1,
            max_message_size: -1,
            max_consumers: -1,
            ..Config::default()
        }
    }

    async fn make(&mut self) -> Result<String, SinkError> {
        let context = self.link.context().await?;
        let (stream, pattern, shown) = (&self.stream, self.subject.pattern(), &self.link.shown);
        let existing = self.link.answer(context.get_stream(stream)).await?;
        if existing.is_ok() {
            self.verify().await?;
            return Ok(format!("the stream {} is there already", self.stream));
        }
        let made = self.link.answer(context.create_stream(self.wanted())).await?;
        made.map_err(|error| {
            SinkError::retry(format!("cannot make the stream {stream} at {shown}: {}", chain(&error)))
        })?;
        Ok(format!("the stream {stream} was made at {shown}, for the subjects {pattern}"))
    }

    async fn verify(&mut self) -> Result<(), SinkError> {
        let stream = self.stream().await?;
        let pattern = self.subject.pattern();
        if !stream.cached_info().config.subjects.iter().any(|taken| subject::covers(taken, pattern)) {
            return Err(SinkError::halt(format!(
                "the stream {} does not take the subjects {pattern}; add them to it",
                self.stream
            )));
        }
        self.look().await.map(drop)
    }
}

/// Returns the text of an error of the API about the stream.
fn api(stream: &str, error: &ApiError) -> String {
    format!("the stream {stream} cannot be used: {error}")
}

/// A position as one word.
fn name(position: &LogPosition) -> String {
    format!("{}.{}", position.epoch, position.seq)
}

/// Returns the position in the headers of a stream's last message; none if decklog did not write it.
fn held(headers: &HeaderMap, payload: &[u8]) -> Option<Option<LogPosition>> {
    let header = |name: &str| headers.get(name).map(async_nats::HeaderValue::as_str);
    let Some(held) = header(HELD) else {
        let own = LogPosition::of(payload).ok()?;
        return (header(EPOCH)? == own.epoch && header(SEQ)? == own.seq.to_string()).then_some(Some(own));
    };
    if held == "none" {
        return Some(None);
    }
    let (epoch, seq) = held.split_once('.')?;
    let mark = |(id, time): (&str, &str)| EntryKey { id: id.to_owned(), time: time.to_owned() };
    let entry = header(HELD_ID).zip(header(HELD_TIME)).map(mark);
    Some(Some(LogPosition { epoch: epoch.to_owned(), seq: Seq(seq.parse().ok()?), entry }))
}

impl Sink for NatsSink {
    fn class(&self) -> Class {
        Class::ExactlyOnce
    }

    fn limits(&self) -> Limits {
        Limits { entries: self.batch_size, bytes: BATCH_BYTES, linger: std::time::Duration::ZERO }
    }

    fn bind(&mut self, sink: &str, _cluster: &Cluster) {
        sink.clone_into(&mut self.name);
    }

    fn position<'a>(&'a mut self, cursor: &'a LogPosition) -> BoxFuture<'a, Result<Option<LogPosition>, SinkError>> {
        async {
            let Found { tail, .. } = self.look().await?;
            let nothing = tail.is_untouched().then(|| LogPosition::before(&cursor.epoch));
            let held = tail.held.clone().or(nothing);
            self.known = Some(tail.clone());
            self.tail = Some(tail);
            Ok(held)
        }
        .boxed()
    }

    fn holds<'a>(&'a mut self, entry: &'a LogPosition) -> BoxFuture<'a, Result<Option<bool>, SinkError>> {
        async {
            let found = self.search(entry).await;
            if found.is_err() {
                self.link.drop();
            }
            found
        }
        .boxed()
    }

    fn epochs(&mut self) -> BoxFuture<'_, Result<BTreeMap<String, Seq>, SinkError>> {
        async {
            let found = self.firsts().await;
            if found.is_err() {
                self.link.drop();
            }
            found
        }
        .boxed()
    }

    fn deliver<'a>(&'a mut self, batch: &'a [Item]) -> BoxFuture<'a, Result<(), Failure>> {
        self.send(batch).boxed()
    }

    fn reopen(&mut self) {
        self.link.renew();
        self.tail = None;
    }

    fn enter_replay(&mut self) {
        self.again = true;
    }

    fn provisioning_script(&self) -> Option<String> {
        let config = serde_json::to_string_pretty(&self.wanted()).expect("a configuration is JSON");
        Some(config + "\n")
    }

    fn provision(&mut self) -> BoxFuture<'_, Result<String, SinkError>> {
        self.make().boxed()
    }

    fn check(&mut self) -> BoxFuture<'_, Result<(), SinkError>> {
        self.verify().boxed()
    }
}
