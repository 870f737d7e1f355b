//! The position: where in the log the output is, kept in Kafka itself.
//!
//! It is a record of a compacted topic with one partition that belongs to one sink, written in the same transaction as the
//! entries up to it, as Kafka Connect keeps the offsets of its sources. The offsets of a consumer group would do without
//! a topic, but the brokers forget those of a group without members after a week, and they have to name a partition of a
//! topic that exists, which a sink with a template for its topic need not have.

use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::message::Message;
use rdkafka::metadata::MetadataTopic;
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use serde::{Deserialize, Serialize};

use super::patience::Patience;
use super::setup::{self, Settings};
use super::{context::Context, fault};
use crate::model::Seq;
use crate::sink::{Position, SinkError};

/// How many offsets from the end are read first: the last record is one of the last few, but for transactions that were
/// given up after it.
const FIRST_WINDOW: i64 = 100;

#[derive(Serialize, Deserialize)]
struct Value {
    epoch: String,
    seq: u64,
}

/// The record of a position.
pub(super) fn encode(place: &Position) -> Vec<u8> {
    let value = Value { epoch: place.epoch.clone(), seq: place.seq.0 };
    serde_json::to_vec(&value).expect("two plain values are JSON")
}

fn decode(bytes: &[u8]) -> Option<Position> {
    let value: Value = serde_json::from_slice(bytes).ok()?;
    Some(Position { epoch: value.epoch, seq: Seq(value.seq) })
}

/// Reads the last committed position. The producer of this transactional id must have been initialized before: then no
/// other one can write any more, and no transaction is open.
pub(super) fn read(
    client: &ClientConfig,
    settings: &Settings,
    patience: &mut Patience,
) -> Result<Option<Position>, SinkError> {
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

/// Whether nobody has ever written to the topic of the entries: then it holds nothing of what was delivered to one of its
/// name. Not known where the name has fields.
pub(super) fn is_untouched(client: &ClientConfig, settings: &Settings, patience: &Patience) -> Result<bool, SinkError> {
    if !settings.topic.is_fixed() {
        return Ok(false);
    }
    let topic = &settings.config.topic;
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
    // One that is not there is told when it is written to.
    Ok(!partitions.is_empty())
}

/// Asks again as long as it may go well.
fn persistently<T>(patience: &Patience, mut ask: impl FnMut(Duration) -> KafkaResult<T>) -> KafkaResult<T> {
    loop {
        match ask(patience.slice()) {
            Err(error) if waits(&error) && !patience.is_over() => {}
            answer => return answer,
        }
    }
}

/// Whether it may go well within the same try.
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
        let place = Position { epoch: "01890a5d".to_owned(), seq: Seq(u64::MAX) };
        assert_eq!(encode(&place), br#"{"epoch":"01890a5d","seq":18446744073709551615}"#);
        assert_eq!(decode(&encode(&place)), Some(place));
        assert_eq!(decode(b"7"), None);
    }
}
