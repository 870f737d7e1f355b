//! Reads of the stream: where it ends, whether it holds an entry, and where each epoch begins.

use std::collections::BTreeMap;

use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::context::GetStreamErrorKind;
use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::stream::{RawMessageError, RawMessageErrorKind, RetentionPolicy, Stream};

use super::{Found, HELD, NatsSink, Tail, api, held};
use crate::core::model::Seq;
use crate::sink::link::chain;
use crate::sink::{LogPosition, SinkError, note_first};

impl NatsSink {
    /// The stream as it is, if it is one that a log can be kept in.
    pub(super) async fn stream(&mut self) -> Result<Stream, SinkError> {
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
    pub(super) async fn look(&mut self) -> Result<Found, SinkError> {
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
    pub(super) async fn search(&mut self, wanted: &LogPosition) -> Result<Option<bool>, SinkError> {
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
    pub(super) async fn firsts(&mut self) -> Result<BTreeMap<String, Seq>, SinkError> {
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
}
