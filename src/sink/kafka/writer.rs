//! Writes batches to Kafka, on a thread that may block.

use std::time::{Duration, SystemTime};

use rdkafka::ClientConfig;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{BaseRecord, Producer, ThreadedProducer};

use super::context::Context;
use super::fault;
use super::patience::Patience;
use super::position;
use super::record::Record;
use super::setup::{self, Setup};
use super::topics;
use crate::core::model::Seq;
use crate::core::runtime;
use crate::sink::{Failure, LogPosition, SinkError};

/// Writes for one sink. It connects when it has to, and begins again after every failure that leaves something unknown.
pub(super) struct Writer {
    pub(super) settings: Setup,
    pub(super) client: ClientConfig,
    /// None before the first use, and after a failure.
    producer: Option<ThreadedProducer<Context>>,
    /// Set until the first write.
    is_fresh: bool,
    /// The position in Kafka, as it was read or written last.
    kept: Option<LogPosition>,
    /// Set in a replay: writes may repeat existing records, and move no position.
    pub(super) again: bool,
}

impl Writer {
    pub(super) fn new(settings: Setup, client: ClientConfig) -> Self {
        Self { settings, client, producer: None, is_fresh: false, kept: None, again: false }
    }

    /// The next use connects again.
    pub(super) fn disconnect(&mut self) {
        self.producer = None;
    }

    /// A replay does without transactions: the transactional id is that of the daemon, which may be running.
    fn is_transactional(&self) -> bool {
        self.settings.is_transactional() && !self.again
    }

    /// The position in Kafka. `cursor` is what the journal believes.
    pub(super) fn position(
        &mut self,
        cursor: LogPosition,
        patience: &mut Patience,
    ) -> Result<Option<LogPosition>, SinkError> {
        if !self.is_transactional() {
            return Ok(None);
        }
        if self.producer.is_none() {
            self.connect(patience)?;
        }
        if self.kept.is_none() && cursor.seq > Seq(0) && position::is_untouched(&self.client, &self.settings, patience)?
        {
            return Ok(Some(LogPosition::before(&cursor.epoch)));
        }
        Ok(self.kept.clone())
    }

    /// Makes a producer. One with transactions locks out every earlier one with the same id, and ends what that one
    /// began; so the position that is read then is the last one.
    fn connect(&mut self, patience: &mut Patience) -> Result<(), SinkError> {
        let id = self.is_transactional().then_some(self.settings.id.as_str());
        let producer: ThreadedProducer<Context> = setup::make(&setup::producer(&self.client, &self.settings, id))?;
        if id.is_some() {
            let doing = "beginning with transactions";
            loop {
                match producer.init_transactions(patience.slice()) {
                    Ok(()) => break,
                    Err(KafkaError::Transaction(error)) if error.is_retriable() => {}
                    Err(error) => return Err(fault::of(&error, doing, &self.settings)),
                }
                let context = producer.client().context();
                if patience.is_over() || fault::hopeless(context) {
                    return Err(fault::silence(context, doing, &self.settings));
                }
            }
            patience.renew();
            topics::keeps(&self.client, &self.settings, patience)?;
            patience.renew();
            self.kept = position::read(&self.client, &self.settings, patience)?;
        }
        self.producer = Some(producer);
        self.is_fresh = true;
        Ok(())
    }

    /// Writes records in order, in as few transactions as they fit in.
    pub(super) fn write(&mut self, records: &[Record], patience: &mut Patience) -> Result<(), Failure> {
        let mut taken = 0;
        // Halved when several are refused together, until the one that is meant stands alone.
        let mut most = usize::MAX;
        while taken < records.len() {
            if self.producer.is_none() {
                taken += self.resume(&records[taken..], patience).map_err(|error| Failure { taken, error })?;
                patience.renew();
                continue;
            }
            let first = &records[taken].place;
            let is_behind = |kept: &LogPosition| (&kept.epoch, kept.seq) >= (&first.epoch, first.seq);
            if self.is_transactional() && self.kept.as_ref().is_some_and(is_behind) {
                let error = SinkError::lost(
                    "the position in Kafka is after the entries of this journal, and is compared with it",
                );
                return Err(Failure { taken, error });
            }
            // Brokers take from a producer that they do not know whatever comes first, also what follows something that
            // they refused. A transaction takes that back.
            let alone = self.is_fresh && !self.is_transactional();
            let part = &records[taken..];
            let part = &part[..part.len().min(if alone { 1 } else { most })];
            match self.attempt(part, patience) {
                Ok(()) => {
                    taken += part.len();
                    self.is_fresh = false;
                }
                Err(failure) => {
                    taken += failure.taken;
                    let rest = part.len() - failure.taken;
                    if !matches!(failure.error, SinkError::Refused { .. }) || rest < 2 {
                        return Err(Failure { taken, error: failure.error });
                    }
                    most = if self.is_transactional() { rest / 2 } else { 1 };
                }
            }
            patience.renew();
        }
        Ok(())
    }

    /// Connects, and returns how many of the records an attempt wrote whose end was not seen.
    fn resume(&mut self, records: &[Record], patience: &mut Patience) -> Result<usize, SinkError> {
        let before = self.kept.take();
        if let Err(error) = self.connect(patience) {
            self.kept = before;
            return Err(error);
        }
        let as_left = match (&self.kept, &before) {
            (Some(kept), Some(before)) => kept.is(before),
            (kept, before) => kept.is_none() && before.is_none(),
        };
        if !self.is_transactional() || as_left {
            return Ok(0);
        }
        // An attempt that was not answered wrote up to one of them.
        let written = self.kept.as_ref().and_then(|kept| records.iter().position(|record| record.place.is(kept)));
        written.map(|at| at + 1).ok_or_else(|| {
            SinkError::lost("the position in Kafka is not where it was left, and is compared with the journal")
        })
    }

    /// Reports whether the output holds this very entry.
    pub(super) fn holds(&self, entry: &LogPosition, patience: &mut Patience) -> Result<Option<bool>, SinkError> {
        if !self.is_transactional() {
            return Ok(None);
        }
        position::holds(&self.client, &self.settings, entry, patience)
    }

    fn attempt(&mut self, records: &[Record], patience: &mut Patience) -> Result<(), Failure> {
        if self.is_transactional() { self.transact(records, patience) } else { self.send_on(records, patience) }
    }

    /// Writes without a transaction: what was taken before the first that was not is there for good.
    fn send_on(&mut self, records: &[Record], patience: &Patience) -> Result<(), Failure> {
        let producer = self.producer.as_ref().expect("a writer has connected before");
        let context = producer.client().context();
        context.begin();
        let (sent, mut fault) = self.send(producer, records, patience);
        if fault.is_none() || sent > 0 {
            while !context.decided_within(patience.slice()) {
                if patience.is_over() || fault::hopeless(context) {
                    fault = Some(fault::silence(context, "writing", &self.settings));
                    break;
                }
            }
        }
        let results = context.results();
        let taken = results.iter().take_while(|result| matches!(result, Some(Ok(_)))).count();
        if taken == records.len() {
            return Ok(());
        }
        let refused = results.get(taken).copied().flatten().and_then(Result::err);
        let ended = if refused.is_some_and(went_along) { self.ended("writing") } else { None };
        let error = match (refused, ended.or(fault)) {
            (Some(code), Some(error)) if went_along(code) => error,
            (Some(code), _) => fault::meaning(code, "", &writing_to(&records[taken]), &self.settings),
            (None, Some(fault)) => fault,
            (None, None) => SinkError::retry("writing: a record was left out"),
        };
        // What is under way must be nowhere before the next try: what was not taken comes first again.
        if sent > taken {
            self.disconnect();
        }
        Err(Failure { taken, error })
    }

    /// Writes records and the position in one transaction: all of them, or those before one that can never be sent.
    fn transact(&mut self, records: &[Record], patience: &mut Patience) -> Result<(), Failure> {
        let began = (std::time::Instant::now(), SystemTime::from(runtime::now()));
        match self.try_transact(records, patience) {
            Ok(kept) => {
                let whole = kept == records[records.len() - 1].place;
                let taken = records.iter().position(|record| record.place == kept).map_or(0, |at| at + 1);
                self.kept = Some(kept);
                if whole {
                    return Ok(());
                }
                Err(Failure { taken, error: too_large() })
            }
            Err(error) => {
                // What ended the producer is behind every other error.
                let error = self.ended("writing in a transaction").unwrap_or(error);
                let error = match error {
                    SinkError::Halt { text } if self.outlived(began) => SinkError::retry(format!(
                        "a transaction was not ended in time, and the brokers gave it up; {text}"
                    )),
                    SinkError::Halt { .. } if self.is_behind(patience) => SinkError::lost(
                        "Kafka no longer holds the position that was committed: the brokers were restored to an earlier state",
                    ),
                    SinkError::Halt { .. }
                    | SinkError::Retry { .. }
                    | SinkError::Lost { .. }
                    | SinkError::Refused { .. } => error,
                };
                if !self.abort(patience) || !matches!(error, SinkError::Refused { .. }) {
                    self.disconnect();
                }
                Err(Failure { taken: 0, error })
            }
        }
    }

    /// Returns the fatal error of the producer, if it has one.
    fn ended(&self, doing: &str) -> Option<SinkError> {
        let (code, text) = self.producer.as_ref()?.client().fatal_error()?;
        Some(fault::meaning(code, &text, doing, &self.settings))
    }

    /// Reports whether the brokers have aborted a transaction that began then, which looks like a take-over. A machine that was
    /// suspended has seen no time pass.
    fn outlived(&self, (instant, wall): (std::time::Instant, SystemTime)) -> bool {
        let passed = SystemTime::from(runtime::now()).duration_since(wall).unwrap_or(Duration::ZERO);
        instant.elapsed().max(passed) >= self.settings.transaction_timeout()
    }

    /// Reports whether the position in Kafka is before the last commit. Brokers that were restored from a backup may not know
    /// the producer any more, which looks like a take-over; a real one continues from the committed position.
    fn is_behind(&self, patience: &mut Patience) -> bool {
        let Some(kept) = &self.kept else { return false };
        patience.renew();
        match position::read(&self.client, &self.settings, patience) {
            Ok(Some(held)) => (held.epoch, held.seq) < (kept.epoch.clone(), kept.seq),
            Ok(None) => true,
            Err(_) => false,
        }
    }

    fn try_transact(&self, records: &[Record], patience: &Patience) -> Result<LogPosition, SinkError> {
        let settings = &self.settings;
        let producer = self.producer.as_ref().expect("a writer has connected before");
        let context = producer.client().context();
        context.begin();
        let failed = |error: &KafkaError| fault::of(error, "writing in a transaction", settings);
        producer.begin_transaction().map_err(|error| failed(&error))?;
        let (sent, fault) = self.send(producer, records, patience);
        let last = match (sent, fault) {
            (_, None) => &records[records.len() - 1],
            (1.., Some(SinkError::Refused { .. })) => &records[sent - 1],
            (_, Some(fault)) => return Err(fault),
        };
        let value = position::encode(&last.place);
        let kept = BaseRecord::with_opaque_to(&settings.position_topic, context.expect());
        let kept = kept.partition(0).key(settings.id.as_bytes()).payload(&value);
        producer.send(kept).map_err(|(error, _)| failed(&error))?;
        while !context.decided_within(patience.slice()) {
            // The records of one that can only be given up stay where they are.
            if let Some(why) = spoilt(producer)
                && !context.decided_within(Duration::ZERO)
            {
                return Err(failed(&why));
            }
            if patience.is_over() || fault::hopeless(context) {
                return Err(fault::silence(context, "writing in a transaction", settings));
            }
        }
        let results = context.results();
        let failures = || results.iter().enumerate().filter_map(|(at, result)| Some((at, (*result)?.err()?)));
        if let Some((at, code)) = failures().find(|(_, code)| !went_along(*code)).or_else(|| failures().next()) {
            if went_along(code)
                && let Some(why) = spoilt(producer)
            {
                return Err(failed(&why));
            }
            let doing = records.get(at).map_or_else(|| "writing the position".to_owned(), writing_to);
            return Err(fault::meaning(code, "", &doing, settings));
        }
        loop {
            match producer.commit_transaction(patience.slice()) {
                Ok(()) => return Ok(last.place.clone()),
                Err(KafkaError::Transaction(error)) if error.is_retriable() && !error.txn_requires_abort() => {}
                Err(KafkaError::Flush(_)) => {}
                Err(error) => return Err(failed(&error)),
            }
            if patience.is_over() || fault::hopeless(context) {
                return Err(fault::silence(context, "committing a transaction", settings));
            }
        }
    }

    /// Hands records to librdkafka. Returns how many, and why not the next.
    fn send(
        &self,
        producer: &ThreadedProducer<Context>,
        records: &[Record],
        patience: &Patience,
    ) -> (usize, Option<SinkError>) {
        let context = producer.client().context();
        for (at, record) in records.iter().enumerate() {
            loop {
                let sent = BaseRecord::with_opaque_to(&record.topic, context.expect());
                let sent = sent.key(record.key.as_bytes()).payload(&record.line[..]).headers(record.headers());
                let Err((error, _)) = producer.send(sent) else { break };
                context.expect_less();
                if error.rdkafka_error_code() != Some(RDKafkaErrorCode::QueueFull) || patience.is_over() {
                    return (at, Some(fault::of(&error, &writing_to(record), &self.settings)));
                }
                producer.poll(patience.slice());
            }
        }
        (records.len(), None)
    }

    /// Ends a transaction as if it had not been. Returns whether that is known.
    fn abort(&self, patience: &Patience) -> bool {
        let Some(producer) = &self.producer else { return false };
        loop {
            match producer.abort_transaction(patience.slice()) {
                Ok(()) => return true,
                Err(KafkaError::Transaction(error)) if error.is_retriable() => {}
                Err(_) => return false,
            }
            if patience.is_over() || fault::hopeless(producer.client().context()) {
                return false;
            }
        }
    }
}

/// Returns the reason why a transaction can only be aborted, if that is the case. There is no other way to learn it: within a
/// transaction this call always fails, and its error has the reason.
pub(super) fn spoilt(producer: &ThreadedProducer<Context>) -> Option<KafkaError> {
    match producer.begin_transaction() {
        Err(KafkaError::Transaction(error)) if error.is_fatal() || error.txn_requires_abort() => {
            Some(KafkaError::Transaction(error))
        }
        _ => None,
    }
}

fn writing_to(record: &Record) -> String {
    format!("writing to the topic {:?}", record.topic)
}

/// Reports whether a record failed only because of another one.
pub(super) const fn went_along(code: RDKafkaErrorCode) -> bool {
    matches!(code, RDKafkaErrorCode::PurgeQueue | RDKafkaErrorCode::PurgeInflight | RDKafkaErrorCode::Fatal)
}

/// Error of an entry that was not sent.
fn too_large() -> SinkError {
    SinkError::Refused { text: "it is larger than anything that Kafka takes".to_owned() }
}
