//! Publishing: entries on their way, and what of them is stored.

use async_nats::HeaderMap;
use async_nats::jetstream::context::{PublishAckFuture, PublishError, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::{Error as ApiError, ErrorCode};

use super::{EPOCH, Found, HELD, HELD_ID, HELD_TIME, ID, Message, NatsSink, SEQ, TYPE, Tail, api, name};
use crate::sink::link::chain;
use crate::sink::{Failure, Item, LESS, LogPosition, SinkError};

/// Number of reads of the stream's end without any progress in between.
const LOOKS: u32 = 5;

/// Reason why not everything was stored.
enum Stop {
    /// The stream is not where it was expected to be, or nobody knows.
    Conflict,
    Error(SinkError),
}

impl NatsSink {
    /// Publishes entries. An error says how many are stored.
    pub(super) async fn send(&mut self, batch: &[Item]) -> Result<(), Failure> {
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
    pub(super) fn found(&mut self, found: Found, batch: &[Item]) -> Result<usize, SinkError> {
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
    pub(super) fn message(&self, item: &Item, tail: &Tail) -> Result<Message, SinkError> {
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
                        "the stream {stream} is full; raise its limits or let it discard old messages: nothing is lost, delivery then goes on"
                    )),
                    _ => match api_error {
                        Some(error) => SinkError::retry(api(stream, error)),
                        None => SinkError::retry(format!("no answer from {shown}: {}", chain(error))),
                    },
                }
            }
        })
    }
}
