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

use std::time::{Duration, Instant};

use async_nats::HeaderMap;
use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::context::{CreateStreamErrorKind, GetStreamErrorKind, PublishError, PublishErrorKind};
use async_nats::jetstream::message::{PublishMessage, StreamMessage};
use async_nats::jetstream::stream::{
    Config, DiscardPolicy, RawMessageError, RawMessageErrorKind, RetentionPolicy, StorageType, Stream,
};
use bytes::{Bytes, BytesMut};
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use serde::{Deserialize, Serialize};

use super::Settings;
use super::link::Link;
use super::subject::covers;
use crate::core::shared_log::{Appended, Base, Extent, LogError, Numbered, SharedLog};
use crate::sink::SinkError;
use crate::sink::link::chain;
use crate::sink::shared::{Around, Digest, Tail, digest, hex, parted, unhex, word, writer};

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

    async fn verify(&mut self) -> Result<(), SinkError> {
        let context = self.link.context().await?;
        let (name, shown, sink) = (&self.stream, &self.link.shown, &self.sink);
        let found = self.link.answer(context.get_stream(name)).await?.map_err(|error| match error.kind() {
            GetStreamErrorKind::JetStream(error) if error.error_code() == ErrorCode::STREAM_NOT_FOUND => {
                SinkError::halt(format!(
                    "there is no stream {name} at {shown} for the shared log; `decklog sink init {sink}` makes it, or prints with --print what it has to be"
                ))
            }
            GetStreamErrorKind::JetStream(error) => SinkError::retry(super::api(name, &error)),
            GetStreamErrorKind::Request | GetStreamErrorKind::EmptyName | GetStreamErrorKind::InvalidStreamName => {
                SinkError::retry(format!(
                    "no answer from JetStream at {shown}: it is not enabled for this account, or it may not be asked for the stream {name}, or it is not ready: {}",
                    chain(&error)
                ))
            }
        })?;
        let version = context.client().server_info().version;
        if !is_new_enough(&version) {
            return Err(SinkError::halt(format!(
                "{shown} is a NATS server of version {version}, which loses sight of the end of a subject that is truncated; the shared log needs 2.10 or later"
            )));
        }
        let config = &found.cached_info().config;
        let wrong = if config.retention != RetentionPolicy::Limits {
            "has another retention than \"limits\""
        } else if config.no_ack {
            "acknowledges nothing (no_ack)"
        } else if !config.max_age.is_zero() {
            "removes what is old (max_age)"
        } else if config.discard == DiscardPolicy::Old && (config.max_bytes > 0 || config.max_messages > 0) {
            "removes what is old when it is full (discard)"
        } else if config.max_messages_per_subject > 0 {
            "keeps only some messages of a subject (max_msgs_per_subject)"
        } else if config.deny_purge {
            "lets nothing be removed (deny_purge)"
        } else if !config.subjects.iter().any(|taken| covers(taken, &format!("{}.part.1.w.0", self.root))) {
            "does not take its subjects"
        } else {
            return Ok(());
        };
        Err(SinkError::halt(format!(
            "the stream {name} at {shown} {wrong}, so the shared log cannot be kept in it; make it as `decklog sink init {sink} --print` says"
        )))
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

    async fn add(&mut self, number: u64, bytes: Bytes) -> Result<Appended, SinkError> {
        let (own, seen) = (digest(&bytes), self.tail.before(number));
        let mut end = self.recent_end().await?;
        for _ in 0..TRIES {
            if end.state.newest.checked_add(1) != Some(number) || self.is_other(&end.state, seen) {
                // What is not the case now may not be believed for having been so.
                end = self.end().await?;
                let around = self.around(number, &end.state).await?;
                if let Some(meaning) = around.meaning(number, own, seen) {
                    if meaning == Appended::Done {
                        self.tail.note(number, own);
                    }
                    return Ok(meaning);
                }
            }
            let (pieces, last) = self.send_pieces(&format!("{}.piece", self.root), bytes.clone()).await?;
            let state = State {
                v: 1,
                unit: Some(number),
                pieces,
                newest: number,
                sha256: hex(&own),
                bases: end.state.bases.clone(),
                floor: end.state.floor,
            };
            match self.say(&end, state, last).await? {
                Sent::At(at) => {
                    self.tail.note(number, own);
                    self.hint = Some((number, at));
                    return Ok(Appended::Done);
                }
                Sent::Conflict => end = self.end().await?,
            }
        }
        Err(self.busy())
    }

    /// Reports whether the newest unit is another one than was seen there.
    fn is_other(&self, state: &State, seen: Option<Digest>) -> bool {
        seen.zip(unhex(&state.sha256)).is_some_and(|(seen, there)| seen != there)
    }

    async fn around(&mut self, number: u64, state: &State) -> Result<Around, SinkError> {
        let newest = state.newest;
        let own = unhex(&state.sha256);
        let there = match newest.cmp(&number) {
            std::cmp::Ordering::Equal => own,
            std::cmp::Ordering::Greater => {
                let from = self.search(number.saturating_sub(1)).await?;
                let found = self.next(from).await?.filter(|(_, state)| state.unit == Some(number));
                found.and_then(|(_, state)| unhex(&state.sha256))
            }
            std::cmp::Ordering::Less => None,
        };
        let before = own.filter(|_| newest.checked_add(1) == Some(number));
        Ok(Around { newest, there, before })
    }

    async fn look(&mut self) -> Result<Extent, SinkError> {
        let end = self.end().await?;
        let bases = end.state.bases.iter().map(|whole| Base { number: whole.number, parts: whole.parts });
        let mut extent = Extent { oldest: None, newest: end.state.newest, bases: bases.collect() };
        let mut from = 1;
        while let Some((message, state)) = self.next(from).await? {
            from = message.sequence + 1;
            extent.oldest = state.unit.filter(|number| *number > end.state.floor);
            if extent.oldest.is_some() {
                break;
            }
        }
        Ok(extent)
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

    /// The sequence from which on the unit after this number is, if the one with the number is what it was.
    async fn behind(&mut self, after: u64) -> Result<u64, SinkError> {
        if let Some((_, at)) = self.hint.filter(|(number, _)| *number == after) {
            let mut from = at + 1;
            while let Some((message, state)) = self.next(from).await? {
                match state.unit {
                    // A word about bases.
                    None => from = message.sequence + 1,
                    Some(unit) if unit == after + 1 => return Ok(message.sequence),
                    Some(_) => break,
                }
            }
            self.hint = None;
        }
        let known = self.tail.before(after + 1).is_some();
        let Some(before) = after.checked_sub(1).filter(|_| known) else { return self.search(after).await };
        let from = self.search(before).await?;
        match self.next(from).await? {
            Some((message, state)) if state.unit == Some(after) => {
                if self.tail.refuses(after, unhex(&state.sha256)) {
                    return Err(parted(&self.shown(), after));
                }
                self.hint = Some((after, message.sequence));
                Ok(message.sequence + 1)
            }
            _ => self.search(after).await,
        }
    }

    async fn units(&mut self, after: u64, bytes: usize) -> Result<Vec<Numbered>, SinkError> {
        let mut from = self.behind(after).await?;
        let (mut units, mut sum) = (Vec::new(), 0);
        let mut number = after + 1;
        while units.is_empty() || sum < bytes {
            let Some((message, state)) = self.next(from).await? else { break };
            from = message.sequence + 1;
            match state.unit {
                Some(unit) if unit == number => {}
                None => continue,
                Some(_) => break,
            }
            let Some(whole) = self.whole(&state.pieces, message.payload).await? else { break };
            let own = digest(&whole);
            if unhex(&state.sha256) != Some(own) {
                return Err(SinkError::halt(format!(
                    "unit {number} of the shared log in the stream {} at {} is not what was written; restore the stream",
                    self.stream, self.link.shown
                )));
            }
            self.tail.note(number, own);
            self.hint = Some((number, message.sequence));
            sum += whole.len();
            units.push(Numbered { number, bytes: whole });
            number += 1;
        }
        Ok(units)
    }

    async fn put(&mut self, number: u64, part: u32, bytes: Bytes) -> Result<(), SinkError> {
        self.stream().await?;
        let (parts, rest) = self.base(number, &self.writer);
        let own = digest(&bytes);
        let (pieces, last) = self.send_pieces(&rest, bytes).await?;
        let state = State { v: 1, pieces, newest: number, sha256: hex(&own), ..State::default() };
        let text = serde_json::to_string(&state).expect("texts and numbers always serialise");
        let mut headers = HeaderMap::new();
        headers.insert(STATE, text);
        let message = PublishMessage::build().payload(last).headers(headers).expected_stream(&self.stream);
        self.send(format!("{parts}.{part}"), message).await?;
        Ok(())
    }

    /// The subjects that there are below one.
    async fn below(&mut self, subject: String) -> Result<Vec<String>, SinkError> {
        let stream = self.stream().await?;
        let failed =
            |error: String| SinkError::retry(format!("the stream {} cannot be looked at: {error}", self.stream));
        let asked = self.link.answer(stream.info_with_subjects(subject)).await?;
        let mut found = asked.map_err(|error| failed(chain(&error)))?;
        let mut subjects = Vec::new();
        while let Some(subject) = self.link.answer(found.next()).await? {
            subjects.push(subject.map_err(|error| failed(chain(&error)))?.0);
        }
        Ok(subjects)
    }

    async fn finish(&mut self, base: Base) -> Result<(), SinkError> {
        for _ in 0..TRIES {
            let end = self.end().await?;
            // One that is whole already stays as it is, whoever made it.
            if end.state.bases.iter().any(|whole| whole.number == base.number) || base.number < end.state.floor {
                return Ok(());
            }
            let (parts, _) = self.base(base.number, &self.writer);
            let there = self.below(format!("{parts}.>")).await?;
            let part = |subject: &String| subject.rsplit('.').next().and_then(|part| part.parse::<u32>().ok());
            let there = there.iter().filter_map(part).filter(|part| *part < base.parts).count();
            if there < usize::try_from(base.parts).unwrap_or(usize::MAX) {
                return Err(SinkError::retry(format!(
                    "the stream {} at {} has {there} of {} parts of the base {} of the shared log; it has to be made again",
                    self.stream, self.link.shown, base.parts, base.number
                )));
            }
            let mut state = State { unit: None, pieces: Vec::new(), v: 1, ..end.state.clone() };
            state.bases.push(Whole { number: base.number, parts: base.parts, writer: self.writer.clone() });
            state.bases.sort_by_key(|whole| whole.number);
            if base.number > state.newest {
                (state.newest, state.sha256) = (base.number, String::new());
            }
            if let Sent::At(_) = self.say(&end, state, Bytes::new()).await? {
                return Ok(());
            }
        }
        Err(self.busy())
    }

    async fn one_part(&mut self, number: u64, part: u32) -> Result<Bytes, SinkError> {
        let end = self.recent_end().await?;
        let is_it = |whole: &&Whole| whole.number == number && part < whole.parts;
        let end = if end.state.bases.iter().any(|whole| is_it(&whole)) { end } else { self.end().await? };
        let mut found = None;
        if let Some(whole) = end.state.bases.iter().find(is_it) {
            let (parts, _) = self.base(number, &whole.writer);
            let stream = self.stream().await?;
            let last = self.message_of(stream.get_last_raw_message_by_subject(&format!("{parts}.{part}"))).await?;
            if let Some(message) = last {
                let state = self.state(&message)?;
                found = self.whole(&state.pieces, message.payload).await?;
            }
        }
        found.ok_or_else(|| {
            SinkError::retry(format!(
                "part {part} of the base {number} of the shared log is not in the stream {} at {}, or not any more; a later one may be",
                self.stream, self.link.shown
            ))
        })
    }

    async fn remove(&mut self, upto: u64) -> Result<(), SinkError> {
        let mut end = self.end().await?;
        let floor = |state: &State| state.bases.iter().map(|whole| whole.number).rfind(|number| *number <= upto);
        let Some(mut below) = floor(&end.state) else { return Ok(()) };
        for tries in 0.. {
            if end.state.floor >= below && end.state.bases.first().is_none_or(|whole| whole.number >= below) {
                break;
            }
            if tries == TRIES {
                return Err(self.busy());
            }
            let mut state = State { unit: None, pieces: Vec::new(), v: 1, ..end.state.clone() };
            state.floor = state.floor.max(below);
            state.bases.retain(|whole| whole.number >= below);
            if let Sent::At(_) = self.say(&end, state, Bytes::new()).await? {
                break;
            }
            end = self.end().await?;
            let Some(again) = floor(&end.state) else { return Ok(()) };
            below = again;
        }
        // The last message is never removed.
        let end = self.end().await?;
        self.hint = None;
        let mut first = self.search(end.state.floor).await?.min(end.at);
        self.purge(self.log(), Some(first)).await?;
        if let Some((message, state)) = self.next(first).await? {
            // Its pieces stand before it, and behind everything that is older.
            first = state.pieces.iter().copied().fold(message.sequence, u64::min);
        }
        self.purge(format!("{}.piece", self.root), Some(first)).await?;
        // Parts of bases that are gone, or were never finished.
        let mut gone: Vec<(u64, String)> = Vec::new();
        for kind in ["part", "rest"] {
            let prefix = format!("{}.{kind}.", self.root);
            for subject in self.below(format!("{prefix}>")).await? {
                let mut words = subject.strip_prefix(&prefix).unwrap_or_default().split('.');
                let number = words.next().and_then(|number| number.parse::<u64>().ok());
                if let (Some(number), Some(writer)) = (number, words.next()) {
                    gone.push((number, writer.to_owned()));
                }
            }
        }
        gone.sort_unstable();
        gone.dedup();
        let kept = |(number, writer): &(u64, String)| {
            *number > end.state.floor
                || end.state.bases.iter().any(|whole| whole.number == *number && whole.writer == *writer)
        };
        for (number, writer) in gone.into_iter().filter(|base| !kept(base)) {
            let (parts, rest) = self.base(number, &writer);
            self.purge(format!("{parts}.>"), None).await?;
            self.purge(rest, None).await?;
        }
        Ok(())
    }

    /// Removes the messages of a subject, all of them or those before a sequence.
    async fn purge(&mut self, subject: String, before: Option<u64>) -> Result<(), SinkError> {
        let stream = self.stream().await?;
        let purge = stream.purge().filter(subject);
        let done = match before {
            Some(before) => self.link.answer(purge.sequence(before).into_future()).await?,
            None => self.link.answer(purge.into_future()).await?,
        };
        done.map_err(|error| {
            SinkError::retry(format!("the stream {} cannot be truncated: {}", self.stream, chain(&error)))
        })?;
        Ok(())
    }

    /// The stream that `sink init` makes.
    fn wanted(&self, replicas: usize) -> Config {
        Config {
            name: self.stream.clone(),
            description: Some("the shared log of decklog; never change it by hand".to_owned()),
            subjects: vec![format!("{}.>", self.stream)],
            retention: RetentionPolicy::Limits,
            storage: StorageType::File,
            discard: DiscardPolicy::New,
            num_replicas: replicas,
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
        if self.link.answer(context.get_stream(&self.stream)).await?.is_ok() {
            self.verify().await?;
            return Ok(format!("the stream {} is there already", self.stream));
        }
        // As many as what is delivered has.
        let beside = self.link.answer(context.get_stream(&self.replicas_of)).await?;
        let replicas = beside.map_or(1, |stream| stream.cached_info().config.num_replicas);
        let made = self.link.answer(context.create_stream(self.wanted(replicas))).await?;
        made.map_err(|error| {
            let (stream, shown) = (&self.stream, &self.link.shown);
            let text = format!("cannot make the stream {stream} at {shown}: {}", chain(&error));
            if let CreateStreamErrorKind::JetStream(api) = error.kind()
                && api.error_code() == ErrorCode::STREAM_SUBJECT_OVERLAP
            {
                return SinkError::halt(format!("{text}; let no other stream take the subjects {stream}.>"));
            }
            SinkError::retry(text)
        })?;
        Ok(format!("the stream {} was made at {}, with {replicas} replicas", self.stream, self.link.shown))
    }
}

fn is_new_enough(version: &str) -> bool {
    let mut numbers = version.split('.').map(|number| number.parse::<u32>().unwrap_or_default());
    (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default()) >= (2, 10)
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
