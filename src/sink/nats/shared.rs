//! The shared log in JetStream: a stream of its own, beside that of what is delivered.
//!
//! ```text
//! STREAM-shared.CLUSTER.log                     units, and every other word about the log: each says what all of it is
//! STREAM-shared.CLUSTER.piece                   pieces of units that are larger than a message may be
//! STREAM-shared.CLUSTER.part.NUMBER.WRITER.PART a part of a base
//! STREAM-shared.CLUSTER.rest.NUMBER.WRITER      its pieces
//! ```
//!
//! Each message of the first subject is only taken right behind the one that is its last by what its writer knows
//! (`Nats-Expected-Last-Subject-Sequence`). So all who write see one order, and the last message says everything: the newest
//! unit, the bases that are whole, up to where units were removed. It is never removed, so that nobody who stood still takes an empty
//! subject for the one that was empty once.
//!
//! What is too large for a message goes before it in pieces, and the message that is the unit names them. Sequences are only given
//! once, so the units are found by bisection.

mod bases;
mod provision;
mod units;

use std::time::{Duration, Instant};

use async_nats::HeaderMap;
use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::context::{PublishError, PublishErrorKind};
use async_nats::jetstream::message::{PublishMessage, StreamMessage};
use async_nats::jetstream::stream::{RawMessageError, RawMessageErrorKind, Stream};
use bytes::{Bytes, BytesMut};
use futures::FutureExt;
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};

use super::Settings;
use super::link::Link;
use crate::core::shared_log::{Appended, Base, Extent, LogError, Numbered, SharedLog};
use crate::sink::SinkError;
use crate::sink::link::chain;
use crate::sink::shared::{Tail, word, writer};

/// Header with the state of the log.
const STATE: &str = "Decklog-Shared";

/// Payload of a message at most, whatever the server accepts: it keeps a larger one in memory as a whole.
const PIECE: usize = 1 << 20;

/// Bytes of that for the headers.
const HEADERS: usize = 16 << 10;

/// Number of attempts to send a message that others came before.
const TRIES: u32 = 20;

/// For so long after it was seen, what the log ends with is believed to be what it was, as long as its sequence is: only a
/// stream that was made again gives one out a second time.
const END_MAX_AGE: Duration = Duration::from_secs(5);

/// A log in a stream.
#[derive(Debug)]
pub struct NatsLog {
    link: Link,
    /// The name of the sink.
    sink: String,
    stream: String,
    replicas_of: String,
    /// Prefix of its subjects.
    root: String,
    writer: String,
    tail: Tail,
    /// Set if the stream was checked over this connection.
    verified: bool,
    /// State in the last message, its sequence, and the time at which it was read.
    end: Option<(End, Instant)>,
    /// Number and sequence of a unit that was found: the next one is near.
    hint: Option<(u64, u64)>,
}

/// The end of the log.
#[derive(Clone, Debug, Default)]
struct End {
    /// The sequence of the last message; 0 where there is none.
    at: u64,
    state: State,
}

/// State of the log in a message.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct State {
    /// Version of this form: 1.
    v: u64,
    /// The number of the unit that this message is, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unit: Option<u64>,
    /// The sequences of the pieces before what it holds itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pieces: Vec<u64>,
    /// The newest unit or base.
    newest: u64,
    /// The digest of the newest, where it is a unit.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    sha256: String,
    /// The bases that are whole, the oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    bases: Vec<Whole>,
    /// Up to which number units were removed.
    #[serde(default)]
    floor: u64,
}

/// A base that is whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Whole {
    number: u64,
    parts: u32,
    /// Writer of its parts.
    writer: String,
}

/// Result of sending a message.
enum Sent {
    /// It has this sequence.
    At(u64),
    /// Another message came first.
    Conflict,
}

impl NatsLog {
    /// The log of a cluster beside what a sink delivers; nothing is connected yet.
    ///
    /// # Errors
    /// Where the configuration can never work.
    pub fn new(config: &Settings, sink: &str, cluster: &str) -> Result<Self, String> {
        let stream = format!("{}-shared", config.stream);
        Ok(Self {
            link: Link::new(config)?,
            sink: sink.to_owned(),
            replicas_of: config.stream.to_string(),
            root: format!("{stream}.{}", word(cluster, "_", '=')),
            stream,
            writer: writer(),
            tail: Tail::default(),
            verified: false,
            end: None,
            hint: None,
        })
    }

    fn log(&self) -> String {
        format!("{}.log", self.root)
    }

    /// The subjects of a base's parts, and that of their pieces.
    fn base(&self, number: u64, writer: &str) -> (String, String) {
        let root = &self.root;
        (format!("{root}.part.{number}.{writer}"), format!("{root}.rest.{number}.{writer}"))
    }

    /// Drops everything that is cached if something failed.
    fn kept<T>(&mut self, done: Result<T, SinkError>) -> Result<T, SinkError> {
        if done.is_err() {
            self.link.drop();
        }
        done
    }

    /// The stream, if it is one that a log can be kept in.
    async fn stream(&mut self) -> Result<Stream<()>, SinkError> {
        // What is connected again is looked at again.
        if !self.link.is_open() {
            (self.verified, self.end, self.hint) = (false, None, None);
        }
        if !self.verified {
            self.verify().await?;
            self.verified = true;
        }
        let context = self.link.context().await?;
        let stream = self.link.answer(context.get_stream_no_info(&self.stream)).await?;
        stream.map_err(|error| SinkError::retry(chain(&error)))
    }

    async fn message_of(
        &self,
        asked: impl Future<Output = Result<StreamMessage, RawMessageError>>,
    ) -> Result<Option<StreamMessage>, SinkError> {
        match self.link.answer(asked).await? {
            Ok(message) => Ok(Some(message)),
            Err(error) => match error.kind() {
                RawMessageErrorKind::NoMessageFound => Ok(None),
                RawMessageErrorKind::JetStream(error) => Err(SinkError::retry(super::api(&self.stream, &error))),
                RawMessageErrorKind::InvalidSubject | RawMessageErrorKind::Other => {
                    Err(SinkError::retry(format!("no answer from {}: {}", self.link.shown, chain(&error))))
                }
            },
        }
    }

    /// Reads the state of the log from a message.
    fn state(&self, message: &StreamMessage) -> Result<State, SinkError> {
        let said = message.headers.get(STATE).and_then(|said| serde_json::from_str::<State>(said.as_str()).ok());
        said.filter(|said| said.v == 1).ok_or_else(|| {
            SinkError::halt(format!(
                "message {} of the stream {} is not as this decklog writes them; use a newer one, or remove the message if it is of something else",
                message.sequence, self.stream
            ))
        })
    }

    /// The end of the log, as it is now.
    async fn end(&mut self) -> Result<End, SinkError> {
        let stream = self.stream().await?;
        let last = self.message_of(stream.get_last_raw_message_by_subject(&self.log())).await?;
        let end = match last {
            Some(message) => End { at: message.sequence, state: self.state(&message)? },
            None => End::default(),
        };
        self.end = Some((end.clone(), Instant::now()));
        Ok(end)
    }

    /// The end of the log, as it was not long ago.
    async fn recent_end(&mut self) -> Result<End, SinkError> {
        self.stream().await?;
        match &self.end {
            Some((end, seen)) if seen.elapsed() < END_MAX_AGE => Ok(end.clone()),
            _ => self.end().await,
        }
    }

    /// The first message at or after a sequence, and what it says.
    async fn next(&mut self, from: u64) -> Result<Option<(StreamMessage, State)>, SinkError> {
        let stream = self.stream().await?;
        let found = self.message_of(stream.get_first_raw_message_by_subject(self.log(), from)).await?;
        found.map(|message| Ok((self.state(&message)?, message))).transpose().map(|found| found.map(|(s, m)| (m, s)))
    }

    /// The sequence from which on there are units after this number.
    async fn search(&mut self, after: u64) -> Result<u64, SinkError> {
        if let Some((_, at)) = self.hint.filter(|(number, _)| *number == after) {
            return Ok(at + 1);
        }
        let end = self.end().await?;
        let (mut from, mut to) = (1, end.at + 1);
        while from < to {
            let probe = from + (to - from) / 2;
            match self.next(probe).await? {
                Some((message, state)) if state.unit.unwrap_or(state.newest) <= after => from = message.sequence + 1,
                Some(_) | None => to = probe,
            }
        }
        Ok(from)
    }

    /// Sends what goes before a message that is larger than messages are, and gives the sequences, and what is left.
    async fn send_pieces(&mut self, subject: &str, mut bytes: Bytes) -> Result<(Vec<u64>, Bytes), SinkError> {
        let context = self.link.context().await?;
        let most = PIECE.min(context.client().max_payload());
        let most = most.saturating_sub(HEADERS).max(most / 2).max(1);
        let mut pieces = Vec::new();
        while bytes.len() > most {
            let piece = PublishMessage::build().payload(bytes.split_to(most)).expected_stream(&self.stream);
            match self.send(subject.to_owned(), piece).await? {
                Sent::At(sequence) => pieces.push(sequence),
                Sent::Conflict => return Err(SinkError::retry("the server refuses a piece of a unit")),
            }
        }
        Ok((pieces, bytes))
    }

    async fn send(&mut self, subject: String, message: PublishMessage) -> Result<Sent, SinkError> {
        let context = self.link.context().await?;
        let sent = match self.link.answer(context.send_publish(subject, message)).await? {
            Ok(ack) => self.link.answer(ack.into_future()).await?,
            Err(error) => Err(error),
        };
        match sent {
            Ok(ack) => Ok(Sent::At(ack.sequence)),
            Err(error) => match error.kind() {
                PublishErrorKind::WrongLastSequence => Ok(Sent::Conflict),
                PublishErrorKind::TimedOut => Err(self.link.late()),
                PublishErrorKind::WrongLastMessageId
                | PublishErrorKind::MaxPayloadExceeded
                | PublishErrorKind::StreamNotFound
                | PublishErrorKind::BrokenPipe
                | PublishErrorKind::MaxAckPending
                | PublishErrorKind::Other => Err(self.refused(&error)),
            },
        }
    }

    fn refused(&self, error: &PublishError) -> SinkError {
        let api = std::error::Error::source(error).and_then(|source| source.downcast_ref::<super::ApiError>());
        let (stream, shown) = (&self.stream, &self.link.shown);
        match api {
            Some(api) if api.error_code() == ErrorCode::STREAM_STORE_FAILED => SinkError::retry(format!(
                "the stream {stream} is full; raise its limits, or those of the account: nothing is lost, the log then goes on"
            )),
            Some(api) if api.error_code() == ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM => SinkError::halt(format!(
                "the stream {stream} takes no messages of 1 MiB (max_msg_size); make it as `decklog sink init {} --print` says",
                self.sink
            )),
            Some(api) => SinkError::retry(super::api(stream, api)),
            None => SinkError::retry(format!("no answer from {shown}: {}", chain(error))),
        }
    }

    /// Writes a word about the log behind its end.
    async fn say(&mut self, end: &End, state: State, bytes: Bytes) -> Result<Sent, SinkError> {
        let text = serde_json::to_string(&state).expect("texts and numbers always serialise");
        let mut headers = HeaderMap::new();
        headers.insert(STATE, text);
        let message = PublishMessage::build()
            .payload(bytes)
            .headers(headers)
            .expected_stream(&self.stream)
            .expected_last_subject_sequence(end.at);
        let sent = self.send(self.log(), message).await?;
        self.end = match sent {
            Sent::At(at) => Some((End { at, state }, Instant::now())),
            Sent::Conflict => None,
        };
        Ok(sent)
    }

    fn busy(&self) -> SinkError {
        SinkError::retry(format!(
            "others write to the stream {} all the time; give the log a stream of its own",
            self.stream
        ))
    }

    /// Returns the contents of a message together with its pieces; none if a piece is gone.
    async fn whole(&mut self, pieces: &[u64], last: Bytes) -> Result<Option<Bytes>, SinkError> {
        if pieces.is_empty() {
            return Ok(Some(last));
        }
        let stream = self.stream().await?;
        let mut whole = BytesMut::new();
        for piece in pieces {
            let Some(piece) = self.message_of(stream.get_raw_message(*piece)).await? else { return Ok(None) };
            whole.extend_from_slice(&piece.payload);
        }
        whole.extend_from_slice(&last);
        Ok(Some(whole.freeze()))
    }
}

impl SharedLog for NatsLog {
    fn shown(&self) -> String {
        format!("the stream {} at {}", self.stream, self.link.shown)
    }

    fn extent(&mut self) -> BoxFuture<'_, Result<Extent, LogError>> {
        async {
            let done = self.look().await;
            Ok(self.kept(done)?)
        }
        .boxed()
    }

    fn append(&mut self, number: u64, bytes: Bytes) -> BoxFuture<'_, Result<Appended, LogError>> {
        async move {
            let done = self.add(number, bytes).await;
            Ok(self.kept(done)?)
        }
        .boxed()
    }

    fn read(&mut self, after: u64, bytes: usize) -> BoxFuture<'_, Result<Vec<Numbered>, LogError>> {
        async move {
            let done = self.units(after, bytes).await;
            Ok(self.kept(done)?)
        }
        .boxed()
    }

    fn put_part(&mut self, number: u64, part: u32, bytes: Bytes) -> BoxFuture<'_, Result<(), LogError>> {
        async move {
            let done = self.put(number, part, bytes).await;
            Ok(self.kept(done)?)
        }
        .boxed()
    }

    fn finish_base(&mut self, base: Base) -> BoxFuture<'_, Result<(), LogError>> {
        async move {
            let done = self.finish(base).await;
            Ok(self.kept(done)?)
        }
        .boxed()
    }

    fn part(&mut self, number: u64, part: u32) -> BoxFuture<'_, Result<Bytes, LogError>> {
        async move {
            let done = self.one_part(number, part).await;
            Ok(self.kept(done)?)
        }
        .boxed()
    }

    fn truncate(&mut self, upto: u64) -> BoxFuture<'_, Result<(), LogError>> {
        async move {
            let done = self.remove(upto).await;
            Ok(self.kept(done)?)
        }
        .boxed()
    }

    fn provisioning_script(&self) -> Option<String> {
        let config = serde_json::to_string_pretty(&self.wanted(1)).expect("a configuration is JSON");
        Some(config + "\n")
    }

    fn provision(&mut self) -> BoxFuture<'_, Result<Option<String>, LogError>> {
        async {
            let done = self.make().await;
            Ok(Some(self.kept(done)?))
        }
        .boxed()
    }

    fn check(&mut self) -> BoxFuture<'_, Result<(), LogError>> {
        async {
            let done = self.verify().await;
            Ok(self.kept(done)?)
        }
        .boxed()
    }
}
