//! The position: where in the log the output is, kept in Kafka itself.
//!
//! It is a record of a compacted topic with one partition that belongs to one sink, written in the same transaction as the
//! entries up to it, as Kafka Connect keeps the offsets of its sources. The offsets of a consumer group would do without
//! a topic, but the brokers drop those of a group without members after a week, and they have to name a partition of a
//! topic that exists, which a sink with a template for its topic need not have.

use std::collections::BTreeSet;
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::message::Message;
use rdkafka::metadata::MetadataTopic;
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use serde::{Deserialize, Serialize};

use super::patience::Patience;
use super::setup::{self, Setup};
use super::{context::Context, fault};
use crate::core::model::Seq;
use crate::sink::{EntryKey, LogPosition, SinkError};

/// Number of offsets before the end that are read first: the last record is one of the last few, except for aborted
/// transactions after it.
const FIRST_WINDOW: i64 = 100;

/// Largest lag of the brokers' clocks, if they timestamp the records.
const CLOCK_SKEW_MAX: Duration = Duration::from_mins(1);

#[derive(Serialize, Deserialize)]
struct Value {
    epoch: String,
    seq: u64,
    /// Identity of the entry. Earlier positions were written without it.
    #[serde(flatten)]
    entry: Option<EntryKey>,
}

/// The record of a position.
pub(super) fn encode(place: &LogPosition) -> Vec<u8> {
    let value = Value { epoch: place.epoch.clone(), seq: place.seq.0, entry: place.entry.clone() };
    serde_json::to_vec(&value).expect("plain values are JSON")
}

fn decode(bytes: &[u8]) -> Option<LogPosition> {
    let value: Value = serde_json::from_slice(bytes).ok()?;
    Some(LogPosition { epoch: value.epoch, seq: Seq(value.seq), entry: value.entry })
}

/// Reads the last committed position. The producer of this transactional id must have been initialized before: then no
/// other one can write any more, and no transaction is open.
pub(super) fn read(
    client: &ClientConfig,
    settings: &Setup,
    patience: &mut Patience,
) -> Result<Option<LogPosition>, SinkError> {
    let topic = &settings.position_topic;
    let doing = format!("reading the position from the topic {topic:?}");
    let consumer: BaseConsumer<Context> = setup::make(&setup::consumer(client, settings))?;
    let failed = |error: &KafkaError| fault::of(error, &doing, settings);
    let (low, end) =
        persistently(patience, |slice| consumer.fetch_watermarks(topic, 0, slice)).map_err(|error| failed(&error))?;
    let mut window = FIRST_WINDOW;
    loop {
        let from = low.max(end - window);
        let mut assignment = TopicPartitionList::new();
        let assigned = assignment.add_partition_offset(topic, 0, Offset::Offset(from));
        assigned.and_then(|()| consumer.assign(&assignment)).map_err(|error| failed(&error))?;
        let mut found = None;
        if from == end {
            // An empty topic has no end that could be reached.
            return Ok(None);
        }
        loop {
            match consumer.poll(patience.slice()) {
                Some(Ok(record)) => {
                    patience.renew();
                    if record.key() != Some(settings.id.as_bytes()) {
                        return Err(SinkError::halt(format!(
                            "the topic {topic:?} holds the position of another sink; give each sink a `position_topic` of its own"
                        )));
                    }
                    let place = record.payload().and_then(decode).ok_or_else(|| {
                        SinkError::halt(format!("the topic {topic:?} holds something that is no position; give the sink a `position_topic` of its own"))
                    })?;
                    found = Some(place);
                }
                Some(Err(KafkaError::PartitionEOF(_))) => break,
                // The group is only a name here.
                Some(Err(KafkaError::MessageConsumption(RDKafkaErrorCode::GroupAuthorizationFailed))) => {}
                Some(Err(error)) if !waits(&error) => return Err(failed(&error)),
                Some(Err(_)) | None => {}
            }
            if patience.is_over() {
                return Err(fault::silence(consumer.client().context(), &doing, settings));
            }
        }
        if found.is_some() || from == low {
            return Ok(found);
        }
        window = window.saturating_mul(16);
    }
}

/// Reports whether the topic of the entries was never written to: then it holds nothing of what was delivered to one of its
/// name. Unknown if the name has fields.
pub(super) fn is_untouched(client: &ClientConfig, settings: &Setup, patience: &Patience) -> Result<bool, SinkError> {
    let Some(topic) = settings.config.topic.fixed() else { return Ok(false) };
    let doing = format!("looking at the topic {topic:?}");
    let failed = |error: &KafkaError| fault::of(error, &doing, settings);
    let consumer: BaseConsumer<Context> = setup::make(&setup::consumer(client, settings))?;
    let metadata = persistently(patience, |slice| consumer.fetch_metadata(Some(topic), slice));
    let metadata = metadata.map_err(|error| failed(&error))?;
    let partitions = metadata.topics().first().map(MetadataTopic::partitions).unwrap_or_default();
    for partition in partitions {
        let marks = persistently(patience, |slice| consumer.fetch_watermarks(topic, partition.id(), slice));
        if marks.map_err(|error| failed(&error))?.1 > 0 {
            return Ok(false);
        }
    }
    // One that is not there is reported when it is written to.
    Ok(!partitions.is_empty())
}

/// Reports whether the topic of the entries holds this very entry. It was written at its time or later, so the search starts
/// there, in each partition, and ends at a later entry; a replay may have brought earlier ones in between. If the name of the
/// topic has fields, the topic is unknown.
pub(super) fn holds(
    client: &ClientConfig,
    settings: &Setup,
    entry: &LogPosition,
    patience: &mut Patience,
) -> Result<Option<bool>, SinkError> {
    let time = entry.entry.as_ref().and_then(|mark| mark.time.parse::<jiff::Timestamp>().ok());
    let Some((time, topic)) = time.zip(settings.config.topic.fixed()) else { return Ok(None) };
    let doing = format!("looking for an entry in the topic {topic:?}");
    let failed = |error: &KafkaError| fault::of(error, &doing, settings);
    let consumer: BaseConsumer<Context> = setup::make(&setup::consumer(client, settings))?;
    let metadata = persistently(patience, |slice| consumer.fetch_metadata(Some(topic), slice));
    let metadata = metadata.map_err(|error| failed(&error))?;
    let partitions = metadata.topics().first().map(MetadataTopic::partitions).unwrap_or_default();
    let mut from = TopicPartitionList::new();
    let mut left = BTreeSet::new();
    let since = time.as_millisecond() - i64::try_from(CLOCK_SKEW_MAX.as_millis()).unwrap_or_default();
    for partition in partitions {
        let added = from.add_partition_offset(topic, partition.id(), Offset::Offset(since.max(0)));
        added.map_err(|error| failed(&error))?;
        left.insert(partition.id());
    }
    if left.is_empty() {
        return Ok(None);
    }
    let from = persistently(patience, |slice| consumer.offsets_for_times(from.clone(), slice));
    consumer.assign(&from.map_err(|error| failed(&error))?).map_err(|error| failed(&error))?;
    patience.renew();
    while !left.is_empty() {
        match consumer.poll(patience.slice()) {
            Some(Ok(record)) => {
                patience.renew();
                let Some(place) = record.payload().and_then(|line| LogPosition::of(line).ok()) else { continue };
                if (&place.epoch, place.seq) < (&entry.epoch, entry.seq) {
                    continue;
                }
                if place.is(entry) {
                    return Ok(Some(true));
                }
                left.remove(&record.partition());
            }
            Some(Err(KafkaError::PartitionEOF(partition))) => drop(left.remove(&partition)),
            // The group is only a name here.
            Some(Err(KafkaError::MessageConsumption(RDKafkaErrorCode::GroupAuthorizationFailed))) => {}
            Some(Err(error)) if !waits(&error) => return Err(failed(&error)),
            Some(Err(_)) | None => {}
        }
        if patience.is_over() {
            return Err(fault::silence(consumer.client().context(), &doing, settings));
        }
    }
    Ok(Some(false))
}

/// Asks again as long as it may go well.
pub(super) fn persistently<T>(patience: &Patience, mut ask: impl FnMut(Duration) -> KafkaResult<T>) -> KafkaResult<T> {
    loop {
        match ask(patience.slice()) {
            Err(error) if waits(&error) && !patience.is_over() => {}
            answer => return answer,
        }
    }
}

/// Reports whether the call may succeed within the same attempt.
pub(super) fn waits(error: &KafkaError) -> bool {
    use RDKafkaErrorCode as Code;
    matches!(
        error.rdkafka_error_code(),
        Some(
            Code::OperationTimedOut
                | Code::BrokerTransportFailure
                | Code::AllBrokersDown
                | Code::WaitingForCoordinator
                | Code::LeaderNotAvailable
                | Code::NotLeaderForPartition
                | Code::RequestTimedOut
                | Code::NotCoordinator
                | Code::CoordinatorNotAvailable
                | Code::CoordinatorLoadInProgress
        )
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_read_as_it_was_written() {
        let mark = EntryKey { id: "u.7.ADDED".to_owned(), time: "2026-11-21T10:15:00.000001Z".to_owned() };
        let place = LogPosition { epoch: "01890a5d".to_owned(), seq: Seq(u64::MAX), entry: Some(mark) };
        let text =
            br#"{"epoch":"01890a5d","seq":18446744073709551615,"id":"u.7.ADDED","time":"2026-11-21T10:15:00.000001Z"}"#;
        assert_eq!(String::from_utf8(encode(&place)), String::from_utf8(text.to_vec()));
        assert_eq!(decode(&encode(&place)), Some(place.clone()));
        // Of an older decklog, and of a newer one that says more.
        let bare = LogPosition { entry: None, ..place.clone() };
        assert_eq!(decode(br#"{"epoch":"01890a5d","seq":18446744073709551615}"#), Some(bare));
        let more = [&text[..text.len() - 1], br#","more":[]}"#].concat();
        assert_eq!(decode(&more), Some(place));
        assert_eq!(decode(b"7"), None);
    }
}
