//! The keys of a sink of type `kafka`. They are there also in a build without the client.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::core::spelling::{Format, Wrong, text_schema};
use crate::core::units::Span;
use crate::sink::settings::{Clash, SinkSettings, Tls, timeout, transaction_size, with_feature};
use crate::sink::{Sink, Template};

const FORMATS: &[Format] = &[
    Format { name: "broker", expected: "a broker as HOST:PORT, such as \"kafka-1.example:9092\"", check: broker },
    Format {
        name: "kafka-name",
        expected: "a name of at most 249 letters, digits, \"-\", \"_\" and \".\"",
        check: kafka_name,
    },
];

/// Topics of Kafka.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "KafkaSink")]
pub struct Settings {
    /// Some of the brokers, each HOST:PORT.
    #[schemars(with = "Vec<BrokerText>", length(min = 1))]
    pub brokers: Vec<String>,
    /// The topic, which may have fields of the entry.
    pub topic: Template,
    /// The promise.
    #[serde(default)]
    pub mode: KafkaMode,
    /// Name of this sink among all that write to these brokers; `transactional` needs it.
    #[serde(default)]
    #[schemars(extend("format" = "kafka-name"))]
    pub transactional_id: Option<String>,
    /// The compacted topic that keeps the position. Default: the transactional_id with "-position".
    #[serde(default)]
    #[schemars(extend("format" = "kafka-name"))]
    pub position_topic: Option<String>,
    /// Maximum number of entries in one transaction.
    #[serde(default = "transaction_size")]
    #[schemars(range(min = 1, max = 10_000))]
    pub batch_size: usize,
    /// Compression of entries on their way and in the topic.
    #[serde(default)]
    pub compress: KafkaCompression,
    /// Number of partitions that `decklog sink init` gives the topic.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 10_000))]
    pub partitions: u32,
    /// On how many brokers `decklog sink init` puts each partition. Default: as the brokers are set up.
    #[serde(default)]
    #[schemars(range(min = 1, max = 100))]
    pub replication: Option<u32>,
    /// Connect over TLS.
    #[serde(default)]
    pub tls: bool,
    /// TLS: whom decklog trusts, and its own certificate.
    #[serde(flatten)]
    pub tls_files: Tls,
    /// Authentication of decklog. Default: not at all, but for a certificate.
    #[serde(default)]
    pub sasl: Option<Sasl>,
    /// The user for `sasl`.
    #[serde(default)]
    pub user: Option<String>,
    /// A file with the password for `sasl`; read again when it changes.
    #[serde(default)]
    #[schemars(extend("format" = "readable-file"))]
    pub password_file: Option<PathBuf>,
    /// Time limit of one delivery.
    #[serde(default = "timeout")]
    pub timeout: Span,
}

/// Promise for the entries in Kafka.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum KafkaMode {
    /// Each entry once, for consumers that read what is committed: entries and position in one transaction.
    #[default]
    Transactional,
    /// Each entry at least once: no transactions, and no position in Kafka.
    Idempotent,
}

/// Compression of entries in Kafka.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum KafkaCompression {
    /// Zstandard.
    #[default]
    Zstd,
    /// LZ4.
    Lz4,
    /// Snappy.
    Snappy,
    /// Gzip.
    Gzip,
    /// Not at all.
    None,
}

/// Authentication of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Sasl {
    /// The password as it is: only over TLS, or in a network that is trusted.
    #[serde(rename = "plain")]
    Plain,
    /// A proof of the password, by SHA-256.
    #[serde(rename = "scram-sha-256")]
    ScramSha256,
    /// A proof of the password, by SHA-512.
    #[serde(rename = "scram-sha-512")]
    ScramSha512,
}

const fn one() -> u32 {
    1
}

/// For the JSON Schema.
struct BrokerText;
text_schema!(BrokerText, "broker");

impl Settings {
    /// The topic of the position, where there is one.
    fn position(&self) -> Option<String> {
        let id = self.transactional_id.as_ref()?;
        Some(self.position_topic.clone().unwrap_or_else(|| format!("{id}-position")))
    }
}

impl SinkSettings for Settings {
    fn open(&self) -> Result<Box<dyn Sink>, String> {
        with_feature!("kafka", crate::sink::kafka::KafkaSink::new(self).map(|sink| Box::new(sink) as Box<dyn Sink>))
    }

    /// Brokers let one producer write under a transactional id, and a position topic holds the position of one sink. Two
    /// sinks that name no broker in common are believed to write to other brokers.
    fn clash(&self, other: &Self, name: &str) -> Option<Clash> {
        let (id, topic) = (self.transactional_id.as_ref()?, self.position()?);
        let one_of_its = |broker: &String| other.brokers.iter().any(|known| known.eq_ignore_ascii_case(broker));
        if !self.brokers.iter().any(one_of_its) {
            return None;
        }
        if other.transactional_id.as_ref() == Some(id) {
            return Some(Clash {
                key: "transactional_id",
                found: format!("{id:?}, which is that of {name} at the same brokers"),
                expected: "a transactional_id that no other sink has",
            });
        }
        (other.position().as_ref() == Some(&topic)).then(|| Clash {
            key: "position_topic",
            found: format!("{topic:?}, which is that of {name} at the same brokers"),
            expected: "a position topic that no other sink has",
        })
    }

    fn formats() -> &'static [Format] {
        FORMATS
    }
}

fn broker(text: &str) -> Result<(), Wrong> {
    let (host, port) = text.rsplit_once(':').unwrap_or((text, ""));
    let port: Option<u16> = port.parse().ok().filter(|port| *port > 0);
    let host = !host.is_empty() && !host.contains(['/', ',', '@']) && !host.contains(char::is_whitespace);
    if host && port.is_some() { Ok(()) } else { Err(format!("the string {text:?}").into()) }
}

fn kafka_name(text: &str) -> Result<(), Wrong> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let plain = !text.is_empty() && text.len() <= 249 && text.bytes().all(fits) && !matches!(text, "." | "..");
    if plain { Ok(()) } else { Err(format!("the string {text:?}").into()) }
}
