//! Events of librdkafka besides the results of calls: the delivery of each record, errors of connections, its log.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::ConsumerContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Message};
use rdkafka::producer::ProducerContext;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Context {
    told: Mutex<Told>,
    /// It is decided what becomes of the records.
    more: Condvar,
}

#[derive(Debug, Default)]
struct Told {
    /// Attempt that the results belong to: those of an earlier one may come late.
    attempt: u32,
    /// Result of each record: its offset, or the error; none as long as it is unknown.
    results: Vec<Option<Result<i64, RDKafkaErrorCode>>>,
    known: usize,
    /// One of them was not taken.
    failed: bool,
    /// The last error of a connection.
    trouble: Option<(RDKafkaErrorCode, String)>,
    /// Since when no broker is left.
    alone: Option<Instant>,
}

impl Told {
    fn is_decided(&self) -> bool {
        self.known == self.results.len() || self.failed
    }
}

impl Context {
    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An attempt begins; what was reported before is dropped.
    pub(super) fn begin(&self) {
        let mut told = self.told();
        *told = Told { attempt: told.attempt.wrapping_add(1), ..Told::default() };
    }

    /// Returns the tag of the next record.
    pub(super) fn expect(&self) -> usize {
        let mut told = self.told();
        told.results.push(None);
        (told.attempt as usize) << 32 | (told.results.len() - 1)
    }

    /// The record that was expected last was not sent after all.
    pub(super) fn expect_less(&self) {
        self.told().results.pop();
    }

    /// Waits until every record is accounted for, or one was not taken, but not longer than this. Returns whether it is
    /// so.
    pub(super) fn decided_within(&self, slice: Duration) -> bool {
        let waited = self.more.wait_timeout_while(self.told(), slice, |told| !told.is_decided());
        waited.unwrap_or_else(PoisonError::into_inner).0.is_decided()
    }

    /// Returns the result of each record.
    pub(super) fn results(&self) -> Vec<Option<Result<i64, RDKafkaErrorCode>>> {
        self.told().results.clone()
    }

    /// For how long there has been no broker. Nobody reports when there is one again, but then something goes on.
    pub(super) fn alone(&self) -> Duration {
        self.told().alone.map(|since| since.elapsed()).unwrap_or_default()
    }

    /// The last error of a connection.
    pub(super) fn trouble(&self) -> Option<(RDKafkaErrorCode, String)> {
        self.told().trouble.clone()
    }
}

impl ClientContext for Context {
    /// Ignores the log: relevant events come as errors as well, and delivery reports those once.
    fn log(&self, _level: RDKafkaLogLevel, about: &str, text: &str) {
        tracing::debug!(about, "librdkafka: {text}");
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!("librdkafka: {error}: {reason}");
        if let Some(code) = error.rdkafka_error_code() {
            let mut told = self.told();
            let alone = code == RDKafkaErrorCode::AllBrokersDown;
            if alone {
                told.alone.get_or_insert_with(Instant::now);
            }
            // That none is left says less than why.
            if !alone || told.trouble.is_none() {
                told.trouble = Some((code, plain(reason)));
            }
        }
    }
}

impl ProducerContext for Context {
    type DeliveryOpaque = usize;

    fn delivery(&self, delivered: &DeliveryResult<'_>, opaque: usize) {
        let mut told = self.told();
        if opaque >> 32 != told.attempt as usize {
            return;
        }
        let result = match delivered {
            Ok(record) => Ok(record.offset()),
            Err((error, _)) => Err(error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Unknown)),
        };
        if let Some(place @ None) = told.results.get_mut(opaque & 0xffff_ffff) {
            *place = Some(result);
            told.known += 1;
            told.failed |= result.is_err();
            (told.alone, told.trouble) = (None, None);
            if told.is_decided() {
                self.more.notify_all();
            }
        }
    }
}

impl ConsumerContext for Context {}

/// The text of an error without what librdkafka puts around it: the name of its thread, the time it took, its words for a
/// broker that it knows nothing of yet, and the address a second time.
fn plain(text: &str) -> String {
    let text = text.trim();
    let text = text.split_once("]: ").filter(|(thread, _)| thread.starts_with('[')).map_or(text, |(_, rest)| rest);
    let text = text.split(" (after ").next().unwrap_or(text);
    let text = text.trim_end_matches([' ', ':', '.']).replace("/bootstrap: ", ": ");
    match text.split_once("Connect to ") {
        Some((broker, rest)) => broker.to_owned() + rest.split_once(" failed: ").map_or(rest, |(_, why)| why),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_told_in_few_words() {
        assert_eq!(
            plain(
                "sasl_plaintext://k:9092/bootstrap: SASL authentication error: no (after 5ms in state AUTH_REQ, 1 identical error(s) suppressed)"
            ),
            "sasl_plaintext://k:9092: SASL authentication error: no"
        );
        assert_eq!(plain("[thrd:main]: k:9092: refused"), "k:9092: refused");
        assert_eq!(
            plain(
                "k:9092/bootstrap: Connect to ipv4#10.0.0.1:9092 failed: Connection refused (after 1ms in state CONNECT)"
            ),
            "k:9092: Connection refused"
        );
    }

    #[test]
    fn why_no_broker_is_left_is_kept() {
        let context = Context::default();
        let tell = |code, text| context.error(KafkaError::Global(code), text);
        tell(RDKafkaErrorCode::AllBrokersDown, "1/1 brokers are down");
        assert_eq!(context.trouble().unwrap().0, RDKafkaErrorCode::AllBrokersDown);
        tell(RDKafkaErrorCode::Resolve, "nowhere:9092: unknown");
        tell(RDKafkaErrorCode::AllBrokersDown, "1/1 brokers are down");
        assert_eq!(context.trouble().unwrap(), (RDKafkaErrorCode::Resolve, "nowhere:9092: unknown".to_owned()));
        context.begin();
        assert_eq!(context.trouble(), None);
    }
}
