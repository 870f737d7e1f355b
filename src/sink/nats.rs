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
mod settings;
mod shared;
mod subject;
#[cfg(test)]
mod tests;

pub use settings::Settings;
pub use shared::NatsLog;

use std::collections::BTreeMap;

use async_nats::HeaderMap;
use async_nats::jetstream::context::{GetStreamErrorKind, PublishAckFuture, PublishError, PublishErrorKind};
use async_nats::jetstream::message::{PublishMessage, StreamMessage};
use async_nats::jetstream::stream::{
    Config, RawMessageError, RawMessageErrorKind, RetentionPolicy, StorageType, Stream,
};
use async_nats::jetstream::{Error as ApiError, ErrorCode};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;

use super::link::chain;
use super::{Class, EntryKey, Failure, Item, LESS, Limits, LogPosition, Sink, SinkError, UNNAMED, note_first};
use crate::core::model::{Cluster, Seq};
use link::Link;
pub use subject::Subject;

/// About how many bytes are under way at once, unless a single entry is larger.
const BATCH_BYTES: usize = 4 << 20;

/// Number of reads of the stream's end without any progress in between.
const LOOKS: u32 = 5;

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

/// Reason why not everything was stored.
enum Stop {
    /// The stream is not where it was expected to be, or nobody knows.
    Conflict,
    Error(SinkError),
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

    /// The stream as it is, if it is one that a log can be kept in.
    async fn stream(&mut self) -> Result<Stream, SinkError> {
        let context = self.link.context().await?;
        let (name, shown) = (&self.stream, &self.link.shown);
        let stream = self.link.answer(context.get_stream(name)).await?.map_err(|error| match error.kind() {
            GetStreamErrorKind::JetStream(error) if error.error_code() == ErrorCode::STREAM_NOT_FOUND => {
                SinkError::retry(format!(
                    "there is no stream {name} at {shown}; `decklog sink init {}` makes it, or prints with --print what it has to be: delivery then goes on",
                    self.name
                ))
            }
            GetStreamErrorKind::JetStream(error) => SinkError::retry(api(name, &error)),
            GetStreamErrorKind::Request | GetStreamErrorKind::EmptyName | GetStreamErrorKind::InvalidStreamName => {
                SinkError::retry(format!(
                    "no answer from JetStream at {shown}: it is not enabled for this account, or it may not be asked for the stream {name}, or it is not ready: {}",
                    chain(&error)
                ))
            }
        })?;
        let config = &stream.cached_info().config;
        if config.retention != RetentionPolicy::Limits {
            return Err(SinkError::halt(format!(
                "the stream {name} drops what consumers have taken, and decklog reads in the stream how far it came; give it a stream with retention \"limits\" and send SIGHUP"
            )));
        }
        if config.no_ack {
            return Err(SinkError::halt(format!(
                "the stream {name} acknowledges nothing (no_ack), so that nobody can know what it holds; turn that off and send SIGHUP"
            )));
        }
        Ok(stream)
    }

    /// Reads where the stream ends.
    async fn look(&mut self) -> Result<Found, SinkError> {
        let found = self.read_tail().await;
        if found.is_err() {
            self.link.drop();
        }
        found
    }

    async fn read_tail(&mut self) -> Result<Found, SinkError> {
        let stream = self.stream().await?;
        let state = &stream.cached_info().state;
        let (last, whole) = (state.last_sequence, state.messages == state.last_sequence);
        let message = stream.get_last_raw_message_by_subject(self.subject.pattern());
        let Some(message) = self.message_of(message).await? else {
            return Ok(Found { tail: Tail { last, held: None, at: 0, whole }, line: None });
        };
        let held = held(&message.headers, &message.payload).ok_or_else(|| {
            SinkError::halt(format!(
                "message {} of the stream {} is on the subjects of this sink ({}) and not of decklog; give the sink subjects of its own, or remove the message, and send SIGHUP",
                message.sequence,
                self.stream,
                self.subject.pattern()
            ))
        })?;
        // Whatever came after the first answer is seen by the second, or refused later.
        let tail = Tail { last: last.max(message.sequence), held, at: message.sequence, whole };
        Ok(Found { tail, line: message.headers.get(HELD).is_none().then_some(message.payload) })
    }

    /// A message that was asked for; none where there is none.
    async fn message_of(
        &self,
        asked: impl Future<Output = Result<StreamMessage, RawMessageError>>,
    ) -> Result<Option<StreamMessage>, SinkError> {
        match self.link.answer(asked).await? {
            Ok(message) => Ok(Some(message)),
            Err(error) => match error.kind() {
                RawMessageErrorKind::NoMessageFound => Ok(None),
                RawMessageErrorKind::JetStream(error) => Err(SinkError::retry(api(&self.stream, &error))),
                RawMessageErrorKind::InvalidSubject | RawMessageErrorKind::Other => {
                    Err(SinkError::retry(format!("no answer from {}: {}", self.link.shown, chain(&error))))
                }
            },
        }
    }

    /// Reports whether the stream holds this very entry, by bisection: positions only grow along a stream, also where messages
    /// repeat older ones.
    async fn search(&mut self, wanted: &LogPosition) -> Result<Option<bool>, SinkError> {
        let context = self.link.context().await?;
        let stream = self.link.answer(context.get_stream_no_info(&self.stream)).await?;
        let stream = stream.map_err(|error| SinkError::retry(chain(&error)))?;
        let last = self.known.as_ref().map_or(0, |known| known.last);
        let guess = |(seq, at): (Seq, u64)| at.saturating_add(wanted.seq.0).saturating_sub(seq.0).clamp(1, last.max(1));
        let mut guess = self.hint.map(guess);
        // All before `from` is before the entry; all from `to` on is after it.
        let (mut from, mut to) = (1, last + 1);
        // Without an entry before it, it may have been removed.
        let mut held_instead = None;
        while from < to {
            let probe = guess.take().unwrap_or(from + (to - from) / 2);
            let Some((at, held)) = self.first_after(&stream, probe).await? else {
                to = probe;
                continue;
            };
            let Some(held) = held else {
                from = at + 1;
                continue;
            };
            if held.entry.is_some() && held.is(wanted) {
                self.hint = Some((wanted.seq, at));
                return Ok(Some(true));
            }
            let order = (&held.epoch, held.seq).cmp(&(&wanted.epoch, wanted.seq));
            if order.is_le() {
                held_instead = Some(false);
            }
            if order.is_lt() { from = at + 1 } else { to = probe }
        }
        Ok(held_instead)
    }

    /// The first entry of each epoch in the stream, by bisection: epochs only grow in it.
    async fn firsts(&mut self) -> Result<BTreeMap<String, Seq>, SinkError> {
        let context = self.link.context().await?;
        let stream = self.link.answer(context.get_stream_no_info(&self.stream)).await?;
        let stream = stream.map_err(|error| SinkError::retry(chain(&error)))?;
        let last = self.known.as_ref().map_or(0, |known| known.last);
        let (mut epochs, mut from) = (BTreeMap::new(), 1);
        while let Some((at, first)) = self.first_after(&stream, from).await? {
            // All before `from` is of this epoch or an earlier one; all from `to` on is later.
            from = at + 1;
            let Some(first) = first else { continue };
            let mut to = last + 1;
            while from < to {
                let probe = from + (to - from) / 2;
                match self.first_after(&stream, probe).await? {
                    Some((at, Some(held))) if held.epoch <= first.epoch => from = at + 1,
                    Some((at, None)) => from = at + 1,
                    Some(_) | None => to = probe,
                }
            }
            note_first(&mut epochs, [first]);
        }
        Ok(epochs)
    }

    /// The first message of decklog at or after a sequence, and what it says the stream holds.
    async fn first_after<I>(
        &self,
        stream: &Stream<I>,
        mut sequence: u64,
    ) -> Result<Option<(u64, Option<LogPosition>)>, SinkError> {
        loop {
            let message = stream.get_first_raw_message_by_subject(self.subject.pattern(), sequence);
            let Some(message) = self.message_of(message).await? else { return Ok(None) };
            match held(&message.headers, &message.payload) {
                Some(held) => return Ok(Some((message.sequence, held))),
                None => sequence = message.sequence + 1,
            }
        }
    }

    /// Publishes entries. An error says how many are stored.
    async fn send(&mut self, batch: &[Item]) -> Result<(), Failure> {
        let (mut taken, mut looks) = (0, 0);
        let fail = |taken: usize| move |error: SinkError| Failure { taken, error };
        while taken < batch.len() {
            let Some(tail) = self.tail.clone() else {
                looks += 1;
                if looks > LOOKS {
                    let text = format!(
                        "others write to the stream {} all the time, or the server takes entries for duplicates that it does not have; give decklog a stream of its own",
                        self.stream
                    );
                    return Err(Failure { taken, error: SinkError::retry(text) });
                }
                let found = self.look().await.map_err(fail(taken))?;
                let stored = self.found(found, &batch[taken..]).map_err(fail(taken))?;
                if stored > 0 {
                    taken += stored;
                    looks = 0;
                }
                continue;
            };
            let (stored, stop) = self.publish(&batch[taken..], &tail).await;
            if stored > 0 {
                taken += stored;
                looks = 0;
            }
            match stop {
                None => {}
                Some(Stop::Conflict) => self.tail = None,
                Some(Stop::Error(error)) => {
                    // What is on its way may still be stored.
                    self.tail = None;
                    if matches!(error, SinkError::Retry { .. }) {
                        self.link.drop();
                    }
                    return Err(Failure { taken, error });
                }
            }
        }
        Ok(())
    }

    /// Returns the number of entries of a batch that are stored, by the end of the stream.
    fn found(&mut self, found: Found, batch: &[Item]) -> Result<usize, SinkError> {
        let taken = match &self.known {
            Some(known) if !self.again => self.stored(known, &found, batch)?,
            _ => 0,
        };
        let Found { mut tail, .. } = found;
        if tail.held.is_none()
            && let Some(known) = &self.known
        {
            // What has left the stream was delivered all the same.
            (tail.held, tail.at) = (known.held.clone(), known.at);
        }
        self.tail = Some(tail.clone());
        self.known = Some(tail);
        Ok(taken)
    }

    /// Returns the number of entries of a batch in flight that are in the stream, which ended as known before.
    fn stored(&self, known: &Tail, found: &Found, batch: &[Item]) -> Result<usize, SinkError> {
        let Found { tail, line } = found;
        let held = match (&tail.held, &known.held) {
            (None, None) => return Ok(0),
            // Purged, or too old.
            (None, Some(_)) if tail.last >= known.last && !tail.whole => return Ok(0),
            (None, Some(_)) => return Err(self.lost()),
            (Some(held), Some(known)) if held.is(known) => return Ok(0),
            (Some(held), _) => held,
        };
        if tail.at <= known.last {
            return Err(self.lost());
        }
        let is_it = |item: &Item| {
            item.header().is_ok_and(|own| LogPosition::at(own).is(held))
                && line.as_ref().is_none_or(|line| *line == item.line)
        };
        // A later message than was known, and not from here.
        batch.iter().position(is_it).map(|at| at + 1).ok_or_else(|| {
            SinkError::halt(format!(
                "another decklog writes to the stream {} on the subjects {}, or another sink of this one: message {} did not come from here; give each its own, and send SIGHUP",
                self.stream,
                self.subject.pattern(),
                tail.at
            ))
        })
    }

    fn lost(&self) -> SinkError {
        SinkError::lost(format!("the stream {} does not end where it did: it was restored, or made again", self.stream))
    }

    /// Publishes entries one after the other without waiting in between: each is only stored right after the one before
    /// it. Gives how many are.
    async fn publish(&mut self, batch: &[Item], tail: &Tail) -> (usize, Option<Stop>) {
        let context = match self.link.context().await {
            Ok(context) => context,
            Err(error) => return (0, Some(Stop::Error(error))),
        };
        let mut under_way: Vec<(PublishAckFuture, LogPosition)> = Vec::with_capacity(batch.len());
        let (mut stop, mut before) = (None, None);
        for (item, last) in batch.iter().zip(tail.last..) {
            let message = match self.message(item, tail) {
                Ok(message) => message,
                Err(error) => {
                    stop = Some(Stop::Error(error));
                    break;
                }
            };
            let mut publish = PublishMessage::build()
                .payload(message.payload)
                .headers(message.headers)
                .message_id(&message.id)
                .expected_stream(&self.stream)
                .expected_last_sequence(last);
            // The number alone is not enough: where somebody else's message took the place of the one before, it fits.
            if let Some(before) = before.replace(message.id) {
                publish = publish.expected_last_message_id(before);
            }
            match self.link.answer(context.send_publish(message.subject, publish)).await {
                Ok(Ok(ack)) => under_way.push((ack, message.position)),
                Ok(Err(error)) => {
                    stop = Some(self.refused(&error, item));
                    break;
                }
                Err(error) => {
                    stop = Some(Stop::Error(error));
                    break;
                }
            }
        }
        let (mut stored, mut expected) = (0, tail.last);
        for (ack, position) in under_way {
            expected += 1;
            let failed = match self.link.answer(ack.into_future()).await {
                // Of one that the server knows already, the end of the stream shows whether it is at its place.
                Ok(Ok(ack)) if ack.sequence == expected && !ack.duplicate => {
                    let (held, at) = if self.again { (tail.held.clone(), tail.at) } else { (Some(position), expected) };
                    self.known = Some(Tail { last: expected, held, at, whole: tail.whole });
                    self.tail = self.known.clone();
                    stored += 1;
                    continue;
                }
                Ok(Ok(_)) => Stop::Conflict,
                Ok(Err(error)) => self.refused(&error, &batch[stored]),
                Err(error) => Stop::Error(error),
            };
            stop = Some(failed);
            break;
        }
        (stored, stop)
    }

    /// Builds the message of an entry.
    fn message(&self, item: &Item, tail: &Tail) -> Result<Message, SinkError> {
        let entry = item.header().map_err(|error| SinkError::Refused { text: format!("it is {error}") })?;
        let position = LogPosition::at(entry);
        let mut headers = HeaderMap::new();
        headers.insert(EPOCH, &*position.epoch);
        headers.insert(SEQ, position.seq.to_string());
        headers.insert(ID, &*entry.id);
        headers.insert(TYPE, entry.op.as_str());
        // Not the entry's own id alone: in a cluster that was restored that may name a second change. Nor the place alone: a
        // journal that was restored may give that out a second time.
        let mut id = format!("{}.{}.{}", name(&position), entry.time, entry.id);
        if self.again {
            headers.insert(HELD, tail.held.as_ref().map_or_else(|| "none".to_owned(), name));
            if let Some(mark) = tail.held.as_ref().and_then(|held| held.entry.as_ref()) {
                headers.insert(HELD_ID, &*mark.id);
                headers.insert(HELD_TIME, &*mark.time);
            }
            // This one is no repeat to the server.
            id = format!("{id}.{}", tail.last);
        }
        Ok(Message { subject: self.subject.of(entry), id, position, headers, payload: item.line.clone() })
    }

    /// Returns the meaning of a failed publish.
    fn refused(&self, error: &PublishError, item: &Item) -> Stop {
        let (stream, shown) = (&self.stream, &self.link.shown);
        let size = item.line.len();
        Stop::Error(match error.kind() {
            PublishErrorKind::WrongLastSequence | PublishErrorKind::WrongLastMessageId => return Stop::Conflict,
            PublishErrorKind::MaxPayloadExceeded => SinkError::Refused {
                text: format!(
                    "it has {size} bytes, and {shown} takes no more than its `max_payload`; raise that, or {LESS}"
                ),
            },
            PublishErrorKind::StreamNotFound => SinkError::retry(format!(
                "no stream at {shown} takes the subjects {}; add them to the stream {stream}: delivery then goes on",
                self.subject.pattern()
            )),
            PublishErrorKind::TimedOut => self.link.late(),
            PublishErrorKind::BrokenPipe | PublishErrorKind::MaxAckPending | PublishErrorKind::Other => {
                let api_error = std::error::Error::source(error).and_then(|source| source.downcast_ref::<ApiError>());
                match api_error.map(ApiError::error_code) {
                    Some(ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM) => SinkError::Refused {
                        text: format!(
                            "it has {size} bytes, and the stream {stream} takes no more than its `max_msg_size`; raise that, or {LESS}"
                        ),
                    },
                    Some(ErrorCode::STREAM_NOT_MATCH) => SinkError::halt(format!(
                        "the subjects {} belong to another stream than {stream}; correct `stream` or `subject`",
                        self.subject.pattern()
                    )),
                    Some(ErrorCode::STREAM_STORE_FAILED) => SinkError::retry(format!(
                        "the stream {stream} is full; raise its limits or let it discard what is old: nothing is lost, delivery then goes on"
                    )),
                    _ => match api_error {
                        Some(error) => SinkError::retry(api(stream, error)),
                        None => SinkError::retry(format!("no answer from {shown}: {}", chain(error))),
                    },
                }
            }
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
