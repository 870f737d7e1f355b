//! Meaning of Kafka's errors for delivery and for an operator.

use std::time::Duration;

use rdkafka::error::{KafkaError, RDKafkaErrorCode};

use super::context::Context;
use super::setup::Setup;
use crate::sink::{LESS, SinkError};

/// Time without any broker after which a try ends: one that was only disconnected is back sooner.
const NO_BROKER_LIMIT: Duration = Duration::from_secs(3);

/// Returns the meaning of an error of the brokers, or of librdkafka; `doing` is the failed operation.
pub(super) fn meaning(code: RDKafkaErrorCode, text: &str, doing: &str, settings: &Setup) -> SinkError {
    use RDKafkaErrorCode as Code;
    let text = if text.is_empty() { code.to_string() } else { text.to_owned() };
    let (id, brokers) = (&settings.id, settings.config.brokers.join(","));
    // Only a few of some two hundred codes mean something of their own.
    #[allow(clippy::wildcard_enum_match_arm, reason = "every other code may heal")]
    match code {
        Code::Fenced | Code::ProducerFenced | Code::InvalidProducerEpoch => SinkError::halt(format!(
            "another producer has taken over the transactional_id {id:?}: stop the other decklog or give it a transactional_id of its own, and send SIGHUP to go on here (brokers that were restored and lost nothing of it look the same)"
        )),
        Code::MessageSizeTooLarge | Code::MessageBatchTooLarge | Code::InvalidRecord => SinkError::Refused {
            text: format!(
                "Kafka does not take it ({text}): raise max.message.bytes of the topic, or message.max.bytes of the brokers, or {LESS}"
            ),
        },
        Code::UnknownTopicOrPartition | Code::UnknownTopic | Code::UnknownPartition => SinkError::renew(format!(
            "{doing}: the topic does not exist, and the brokers did not make it; {}: delivery then goes on",
            if settings.config.topic.is_fixed() {
                format!("run `decklog sink init {}`, or what it prints with --print", settings.name)
            } else {
                "make it, or let them make topics (auto.create.topics.enable)".to_owned()
            }
        )),
        Code::TopicAuthorizationFailed => SinkError::renew(format!(
            "{doing}: no right to the topic; grant Write and Describe on {:?}{}",
            settings.config.topic,
            if settings.is_transactional() {
                format!(", and Read, Write and Describe on {:?}", settings.position_topic)
            } else {
                String::new()
            }
        )),
        Code::TransactionalIdAuthorizationFailed => SinkError::renew(format!(
            "{doing}: no right to the transactional_id {id:?}; grant Write and Describe on it"
        )),
        Code::ClusterAuthorizationFailed => SinkError::renew(format!(
            "{doing}: no right to write; grant Write and Describe on {:?}, and for brokers before 2.8 IdempotentWrite on the cluster",
            settings.config.topic
        )),
        Code::Authentication | Code::SaslAuthenticationFailed => SinkError::renew(format!(
            "{text}; correct `sasl`, `user` or `password_file`, which is read again before each try"
        )),
        // librdkafka does not say which of the reasons it was.
        Code::SSL if text.contains("certificate verify failed") => SinkError::renew(format!(
            "{}: its certificate is not signed by an authority of `ca_file`, is for another name, or has expired",
            text.split(": ").next().unwrap_or_default()
        )),
        Code::SSL => SinkError::renew(format!(
            "{text}; check `tls`, `ca_file`, `cert_file` and `key_file`, and the brokers' certificate"
        )),
        Code::BrokerTransportFailure | Code::Resolve => {
            SinkError::retry(format!("{doing}: {text}; check `brokers`, and whether they run"))
        }
        Code::BadMessage => SinkError::retry(format!(
            "{doing}: the server at {brokers} does not speak as Kafka does; check `brokers` and `tls`"
        )),
        Code::MessageTimedOut | Code::OperationTimedOut => {
            SinkError::retry(format!("{doing}: no answer from {brokers} within {:?}", settings.config.timeout))
        }
        Code::AllBrokersDown => SinkError::retry(format!(
            "{doing}: {brokers} cannot be reached or close the connection; check `brokers`, and `tls` where they want it"
        )),
        Code::InvalidTransactionTimeout => SinkError::halt(format!(
            "the brokers do not take transactions as long as {:?}: lower `timeout` by what is too much, or raise their transaction.max.timeout.ms",
            settings.transaction_timeout()
        )),
        Code::UnsupportedFeature => SinkError::halt(format!("{brokers}: the brokers are too old for this: {text}")),
        _ => SinkError::retry(format!("{doing}: {text}")),
    }
}

/// Returns the meaning of a call's error.
pub(super) fn of(error: &KafkaError, doing: &str, settings: &Setup) -> SinkError {
    let code = error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Unknown);
    let text = if let KafkaError::Transaction(error) = error { error.string() } else { String::new() };
    meaning(code, &text, doing, settings)
}

/// Returns the error for a missing answer, with the cause as far as connections show it.
pub(super) fn silence(context: &Context, doing: &str, settings: &Setup) -> SinkError {
    let brokers = settings.config.brokers.join(",");
    match context.trouble() {
        Some((code, text)) => meaning(code, &text, doing, settings),
        None => SinkError::retry(format!("{doing}: no answer from {brokers} within {:?}", settings.config.timeout)),
    }
}

/// Reports whether the connections are in such trouble that a later attempt is better than a wait.
pub(super) fn hopeless(context: &Context) -> bool {
    use RDKafkaErrorCode as Code;
    let trouble = context.trouble().map(|(code, _)| code);
    matches!(trouble, Some(Code::Authentication | Code::SaslAuthenticationFailed | Code::SSL))
        || context.alone() >= NO_BROKER_LIMIT
}
