//! `[[sink]]`: what every sink has, and the keys that only one type has.
//!
//! Every type keeps to the same words: what is secret is in a file whose key ends in `_file` and is read anew when it
//! changes, `ca_file`, `cert_file` and `key_file` are PEM ([`Tls`]), and `timeout` bounds one exchange with the server.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::value;
use crate::wire::{Payload, Shape};

/// A place that the log is delivered to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("unevaluatedProperties" = false))]
pub struct Sink {
    /// Its name: the cursor is kept under it, so a renamed sink is a new sink.
    #[schemars(extend("format" = "name"))]
    pub name: String,
    /// What it is, and the keys that only this type has.
    #[serde(flatten)]
    pub kind: SinkKind,
    /// A CEL expression over the entry; only entries for which it is true are delivered. Default: every entry.
    #[serde(default, rename = "where")]
    #[schemars(extend("format" = "cel"))]
    pub filter: Option<String>,
    /// How much of an entry is delivered.
    #[serde(default, with = "value::PayloadText")]
    #[schemars(with = "value::PayloadText")]
    pub payload: Payload,
    /// Whether metadata.managedFields is delivered with the object.
    #[serde(default = "value::yes")]
    pub managed_fields: bool,
    /// How many entries are delivered in a second at most. Default: as many as it takes.
    #[serde(default)]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub rate: Option<u32>,
    /// Where a new sink begins: "start", "now", or a seq.
    #[serde(default)]
    pub from: From,
    /// What happens to an entry that will never be accepted.
    #[serde(default)]
    pub on_refused: OnRefused,
}

impl Sink {
    /// What of an entry is delivered.
    #[must_use]
    pub const fn shape(&self) -> Shape {
        Shape { payload: self.payload, managed_fields: self.managed_fields }
    }
}

/// Where a sink begins that has no cursor yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum From {
    /// With the oldest entry that the journal holds.
    #[default]
    Start,
    /// With the first entry after its first start.
    Now,
    /// With this seq.
    Seq(u64),
}

/// What happens to an entry that a sink will never accept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnRefused {
    /// The sink stops and says so; nothing is skipped.
    #[default]
    Halt,
    /// The entry is kept in the journal, listed by `status`, deliverable by `replay`; the sink goes on.
    SetAside,
}

/// The type of a sink, with the keys that only this type has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum SinkKind {
    /// JSON Lines on standard output.
    Stdout,
    /// JSON Lines in a file.
    File(FileSink),
    /// CloudEvents over HTTP.
    Http(HttpSink),
    /// Topics of Kafka.
    Kafka(KafkaSink),
}

/// JSON Lines in a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FileSink {
    /// The file; its directory must exist.
    #[schemars(extend("format" = "path"))]
    pub path: PathBuf,
    /// Begin a new file at this size. Default: never.
    #[serde(default, with = "value::optional_size")]
    #[schemars(with = "Option<String>", extend("format" = "size"))]
    pub rotate_size: Option<u64>,
    /// Begin a new file after this time. Default: never.
    #[serde(default, with = "value::optional_duration")]
    #[schemars(with = "Option<String>", extend("format" = "time-span"))]
    pub rotate_every: Option<Duration>,
    /// How many rotated files are kept.
    #[serde(default = "value::keep")]
    pub keep: u32,
    /// How rotated files are compressed.
    #[serde(default)]
    pub compress: Compress,
}

/// How rotated files are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Compress {
    /// Zstandard.
    #[default]
    Zstd,
    /// Not at all.
    None,
}

/// Whom a sink trusts, and what it shows of itself, over TLS. The files are PEM and are read anew when they change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Tls {
    /// A PEM file with the certificate authorities to trust. Default: the system's.
    #[serde(default)]
    #[schemars(extend("format" = "readable-file"))]
    pub ca_file: Option<PathBuf>,
    /// A PEM file with decklog's own certificate and what it was signed with, for servers that ask for one.
    #[serde(default)]
    #[schemars(extend("format" = "readable-file"))]
    pub cert_file: Option<PathBuf>,
    /// A PEM file with the private key of `cert_file`.
    #[serde(default)]
    #[schemars(extend("format" = "readable-file"))]
    pub key_file: Option<PathBuf>,
}

/// CloudEvents over HTTP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HttpSink {
    /// Where events are POSTed; http or https.
    #[schemars(extend("format" = "http-url", "writeOnly" = true))]
    pub url: String,
    /// The CloudEvents content mode.
    #[serde(default)]
    pub format: CloudEvents,
    /// How many entries one batched request carries at most.
    #[serde(default = "value::batch_size")]
    #[schemars(range(min = 1, max = 10_000))]
    pub batch_size: usize,
    /// Headers of every request.
    #[serde(default)]
    #[schemars(extend("format" = "headers", "writeOnly" = true))]
    pub headers: BTreeMap<String, String>,
    /// A file with further headers, one `Name: value` a line; read anew when it changes.
    #[serde(default)]
    #[schemars(extend("format" = "readable-file"))]
    pub headers_file: Option<PathBuf>,
    /// A file with the bearer token; read anew when it changes.
    #[serde(default)]
    #[schemars(extend("format" = "readable-file"))]
    pub bearer_file: Option<PathBuf>,
    /// Whom it trusts, and what it shows of itself.
    #[serde(flatten)]
    pub tls: Tls,
    /// How long one request may take.
    #[serde(default = "value::timeout", with = "value::duration")]
    #[schemars(with = "String", extend("format" = "time-span"))]
    pub timeout: Duration,
}

/// The CloudEvents content mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CloudEvents {
    /// One entry a request, attributes in headers.
    Binary,
    /// One entry a request, attributes around it.
    #[default]
    Structured,
    /// Many entries a request.
    Batched,
}

/// Topics of Kafka.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KafkaSink {
    /// Where it asks for the cluster: some of its brokers, each HOST:PORT.
    #[schemars(with = "Vec<value::BrokerText>", length(min = 1))]
    pub brokers: Vec<String>,
    /// The topic, which may have fields of the entry.
    #[schemars(extend("format" = "template"))]
    pub topic: String,
    /// What is promised.
    #[serde(default)]
    pub mode: KafkaMode,
    /// What names this sink among all that write to these brokers; `transactional` needs it.
    #[serde(default)]
    #[schemars(extend("format" = "kafka-name"))]
    pub transactional_id: Option<String>,
    /// The compacted topic that keeps the position. Default: the transactional_id with "-position".
    #[serde(default)]
    #[schemars(extend("format" = "kafka-name"))]
    pub position_topic: Option<String>,
    /// How many entries one transaction carries at most.
    #[serde(default = "value::transaction_size")]
    #[schemars(range(min = 1, max = 10_000))]
    pub batch_size: usize,
    /// How entries are compressed on their way and in the topic.
    #[serde(default)]
    pub compress: KafkaCompression,
    /// How many partitions `decklog sink init` gives the topic.
    #[serde(default = "value::one")]
    #[schemars(range(min = 1, max = 10_000))]
    pub partitions: u32,
    /// On how many brokers `decklog sink init` puts each partition. Default: as the brokers are set up.
    #[serde(default)]
    #[schemars(range(min = 1, max = 100))]
    pub replication: Option<u32>,
    /// Whether to connect over TLS.
    #[serde(default)]
    pub tls: bool,
    /// Whom it trusts, and what it shows of itself.
    #[serde(flatten)]
    pub tls_files: Tls,
    /// How it says who it is. Default: not at all, but for a certificate.
    #[serde(default)]
    pub sasl: Option<Sasl>,
    /// The user for `sasl`.
    #[serde(default)]
    pub user: Option<String>,
    /// A file with the password for `sasl`; read anew when it changes.
    #[serde(default)]
    #[schemars(extend("format" = "readable-file"))]
    pub password_file: Option<PathBuf>,
    /// How long one delivery may take.
    #[serde(default = "value::timeout", with = "value::duration")]
    #[schemars(with = "String", extend("format" = "time-span"))]
    pub timeout: Duration,
}

/// What is promised of what comes to Kafka.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum KafkaMode {
    /// Each entry once, for consumers that read what is committed: entries and position in one transaction.
    #[default]
    Transactional,
    /// Each entry at least once: no transactions, and no position in Kafka.
    Idempotent,
}

/// How entries are compressed in Kafka.
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

/// How a client says who it is.
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
