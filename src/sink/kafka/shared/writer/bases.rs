//! Bases of a shared log: parts in one topic, and in another which of them are whole and where their parts are.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use rdkafka::admin::AdminClient;
use rdkafka::message::Message;
use rdkafka::producer::{BaseRecord, Producer};
use rdkafka::{Offset, TopicPartitionList};
use serde::{Deserialize, Serialize};

use super::super::super::context::Context;
use super::super::super::patience::Patience;
use super::super::super::{fault, setup, topics};
use super::{Gone, LogWriter, split};
use crate::shared_log::Base;
use crate::sink::SinkError;

/// What is kept of a base that is whole.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Whole {
    /// Version of this form: 1.
    v: u64,
    pub(super) parts: Vec<Part>,
}

/// Where a part is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Part {
    /// Records that follow each other: the first offset, and how many.
    records: Vec<(i64, i64)>,
    crc32: u32,
}

impl LogWriter {
    /// The bases that are whole.
    pub(super) fn bases(&mut self, patience: &mut Patience) -> Result<BTreeMap<u64, Whole>, SinkError> {
        let topic = self.topics.bases.clone();
        let mut bases = BTreeMap::new();
        let mut wrong = None;
        self.scan(&topic, 0, patience, |record| {
            let number = record.key().and_then(|key| std::str::from_utf8(key).ok()?.parse::<u64>().ok());
            let whole = record.payload().map(serde_json::from_slice::<Whole>);
            match (number, whole) {
                (Some(number), None) => drop(bases.remove(&number)),
                (Some(number), Some(Ok(whole))) if whole.v == 1 => drop(bases.insert(number, whole)),
                _ => wrong = Some(record.offset()),
            }
            wrong.is_none()
        })?;
        match wrong {
            None => Ok(bases),
            Some(at) => Err(SinkError::halt(format!(
                "the record at offset {at} of the topic {topic} is not as this decklog writes them; use a newer one, and let nobody else write to this topic"
            ))),
        }
    }

    /// Writes records without a transaction, all of them or none for sure. Gives their offsets.
    fn write(
        &mut self,
        topic: &str,
        key: &str,
        payloads: &[Option<Bytes>],
        patience: &mut Patience,
    ) -> Result<Vec<i64>, SinkError> {
        let producer = match self.plain.take() {
            Some(producer) => producer,
            None => setup::make(&setup::producer(&self.client, &self.settings, None))?,
        };
        let doing = format!("writing to the topic {topic:?}");
        let context = producer.client().context();
        context.begin();
        for payload in payloads {
            let mut record = BaseRecord::with_opaque_to(topic, context.expect()).partition(0).key(key.as_bytes());
            if let Some(payload) = payload {
                record = record.payload(&payload[..]);
            }
            producer.send(record).map_err(|(error, _)| self.failed(&error, &doing))?;
        }
        while !context.decided_within(patience.slice()) {
            if patience.is_over() || fault::hopeless(context) {
                return Err(fault::silence(context, &doing, &self.settings));
            }
        }
        let results = context.results();
        if let Some(code) = results.iter().flatten().find_map(|result| result.err()) {
            return Err(fault::meaning(code, "", &doing, &self.settings));
        }
        let offsets = results.iter().filter_map(|result| (*result)?.ok()).collect();
        self.plain = Some(producer);
        Ok(offsets)
    }

    pub(in super::super) fn put_part(
        &mut self,
        number: u64,
        part: u32,
        bytes: &Bytes,
        patience: &mut Patience,
    ) -> Result<(), SinkError> {
        let topic = self.topics.parts.clone();
        let pieces: Vec<_> = split(bytes).into_iter().map(Some).collect();
        let mut records: Vec<(i64, i64)> = Vec::new();
        for offset in self.write(&topic, &number.to_string(), &pieces, patience)? {
            match records.last_mut() {
                Some((first, count)) if *first + *count == offset => *count += 1,
                _ => records.push((offset, 1)),
            }
        }
        let stored = Part { records, crc32: crc32fast::hash(bytes) };
        self.stored.entry(number).or_default().insert(part, stored);
        Ok(())
    }

    pub(in super::super) fn finish(&mut self, base: Base, patience: &mut Patience) -> Result<(), SinkError> {
        let bases = self.bases(patience)?;
        // One that is whole already stays as it is, whoever made it.
        if !bases.contains_key(&base.number) {
            let topic = self.topics.parts.clone();
            let (low, end) = self.marks(&topic, patience)?;
            let there = |part: &Part| part.records.iter().all(|(first, count)| *first >= low && first + count <= end);
            let stored = self.stored.get(&base.number);
            let parts = (0..base.parts).filter_map(|part| stored?.get(&part).filter(|part| there(part)).cloned());
            let whole = Whole { v: 1, parts: parts.collect() };
            if whole.parts.len() < usize::try_from(base.parts).unwrap_or(usize::MAX) {
                return Err(SinkError::retry(format!(
                    "the topic {topic} has {} of {} parts of the base {} of the shared log; it has to be made again",
                    whole.parts.len(),
                    base.parts,
                    base.number
                )));
            }
            let text = Bytes::from(serde_json::to_vec(&whole).expect("numbers always serialise"));
            let topic = self.topics.bases.clone();
            if base.number > self.read_end(patience)?.unit {
                self.set_ahead(&topic, base.number, text, patience)?;
            } else {
                self.write(&topic, &base.number.to_string(), &[Some(text)], patience)?;
            }
        }
        self.stored.remove(&base.number);
        if let Some((end, _)) = &mut self.end {
            end.base = end.base.max(base.number);
        }
        Ok(())
    }

    /// A base that is ahead of all units says what comes next, as a unit does: so it is kept out as one is, where somebody else
    /// has taken over, and who led before it looks again where the log ends.
    fn set_ahead(&mut self, topic: &str, number: u64, text: Bytes, patience: &mut Patience) -> Result<(), SinkError> {
        let elsewhere = SinkError::retry(format!(
            "another decklog has taken over the shared log in the topic {}, so this one stores no base {number} ahead of it",
            self.topics.log
        ));
        if self.out {
            return Err(elsewhere);
        }
        if self.producer.is_none() {
            self.connect(patience)?;
        }
        let committed = self.commit(topic, number, &[(text, None)], None, patience);
        let at = match committed {
            Ok(at) => at,
            Err(why) => {
                self.disconnect();
                self.out |= matches!(why, Gone::Fenced);
                return Err(match why {
                    Gone::Error(error) => error,
                    Gone::Fenced | Gone::Moved => elsewhere,
                });
            }
        };
        if !self.catches_up(topic, Some(at + 2), patience)? {
            self.disconnect();
            return Err(self.unseen(topic));
        }
        Ok(())
    }

    pub(in super::super) fn part(
        &mut self,
        number: u64,
        part: u32,
        patience: &mut Patience,
    ) -> Result<Bytes, SinkError> {
        let topic = self.topics.parts.clone();
        let gone = SinkError::retry(format!(
            "part {part} of the base {number} of the shared log is not in the topic {topic}, or not any more; a later one may be"
        ));
        let at = usize::try_from(part).unwrap_or(usize::MAX);
        let Some(part) = self.bases(patience)?.remove(&number).and_then(|whole| whole.parts.into_iter().nth(at)) else {
            return Err(gone);
        };
        let mut bytes = BytesMut::new();
        for (first, count) in part.records {
            let mut next = first;
            self.scan(&topic, first, patience, |record| {
                if record.offset() == next {
                    bytes.extend_from_slice(record.payload().unwrap_or_default());
                    next += 1;
                }
                record.offset() + 1 < first + count
            })?;
            if next != first + count {
                return Err(gone);
            }
        }
        if crc32fast::hash(&bytes) == part.crc32 { Ok(bytes.freeze()) } else { Err(gone) }
    }

    pub(in super::super) fn truncate(&mut self, upto: u64, patience: &mut Patience) -> Result<(), SinkError> {
        let mut bases = self.bases(patience)?;
        let Some(floor) = bases.keys().rfind(|number| **number <= upto).copied() else { return Ok(()) };
        let kept = bases.split_off(&floor);
        let topic = self.topics.bases.clone();
        for number in bases.keys() {
            self.write(&topic, &number.to_string(), &[None], patience)?;
        }
        let log = self.topics.log.clone();
        self.hint = None;
        let from = self.search(floor, patience)?;
        let units = match self.next(from, patience)? {
            Some((at, unit)) => at - i64::try_from(unit.pieces).unwrap_or_default(),
            None => self.marks(&log, patience)?.1,
        };
        let parts = kept.values().flat_map(|whole| &whole.parts).flat_map(|part| &part.records);
        let parts = parts.map(|(first, _)| *first).min();
        let mut before = TopicPartitionList::new();
        let topics = [(log, Some(units)), (self.topics.parts.clone(), parts)];
        for (topic, offset) in topics {
            let low = self.marks(&topic, patience)?.0;
            if let Some(offset) = offset.filter(|offset| *offset > low) {
                let added = before.add_partition_offset(&topic, 0, Offset::Offset(offset));
                added.map_err(|error| self.failed(&error, "removing records"))?;
            }
        }
        if before.count() == 0 {
            return Ok(());
        }
        let admin: AdminClient<Context> = setup::make(&self.client)?;
        patience.renew();
        let asked = topics::wait(admin.delete_records(&before, &topics::options(&self.settings)), patience)?;
        let answer = asked.map_err(|error| self.failed(&error, "removing records"))?;
        for element in answer.elements() {
            if let Err(error) = element.error() {
                return Err(SinkError::retry(format!(
                    "the brokers do not remove old records of the topic {}: {error}; grant Delete on it: the log goes on meanwhile, and grows",
                    element.topic()
                )));
            }
        }
        Ok(())
    }
}
