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
    DeadLetter,
}

/// The type of a sink, with the keys that only this type has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum SinkKind {
    /// JSON Lines on standard output.
    Stdout,
    /// Documents in Elasticsearch or OpenSearch.
    Elasticsearch(ElasticsearchSink),
    /// JSON Lines in a file.
    File(FileSink),
    /// CloudEvents over HTTP.
    Http(HttpSink),
    /// The journal of systemd.
    Journald(JournaldSink),
    /// Topics of Kafka.
    Kafka(KafkaSink),
    /// A stream of NATS JetStream.
    Nats(NatsSink),
    /// Logs over OTLP.
    Otlp(OtlpSink),
    /// Rows in a PostgreSQL database.
    Postgres(PostgresSink),
    /// Redis streams.
    Redis(RedisSink),
    /// Compressed JSON Lines in an S3 bucket or a folder.
    S3(S3Sink),
    /// Syslog.
    Syslog(SyslogSink),
}

impl SinkKind {
    /// The URL that credentials are sent to; none where there are none.
    #[must_use]
    pub(super) fn credentials_to(&self) -> Option<&str> {
        let (url, files) = match self {
            Self::Stdout
            | Self::File(_)
            | Self::Journald(_)
            | Self::Kafka(_)
            | Self::Nats(_)
            | Self::Postgres(_)
            | Self::S3(_)
            | Self::Syslog(_) => return None,
            Self::Elasticsearch(sink) => (&sink.url, [&sink.password_file, &sink.api_key_file, &sink.headers_file]),
            Self::Http(sink) => (&sink.url, [&sink.bearer_file, &sink.headers_file, &None]),
            Self::Otlp(sink) => (&sink.url, [&sink.bearer_file, &sink.headers_file, &None]),
            Self::Redis(sink) => (&sink.url, [&sink.password_file, &None, &None]),
        };
        files.into_iter().any(Option::is_some).then_some(url)
    }
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
    /// About how many bytes of entries one batched request carries at most, unless a single one is larger.
    #[serde(default = "value::batch_bytes", with = "value::size")]
    #[schemars(with = "String", extend("format" = "size"))]
    pub batch_bytes: u64,
    /// How long the first entry of a batched request waits for others. Default: not at all.
    #[serde(default, with = "value::optional_duration")]
    #[schemars(with = "Option<String>", extend("format" = "time-span"))]
    pub batch_age: Option<Duration>,
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
    /// A file with the keys that requests are signed with, one a line; read anew when it changes. Default: no signature.
    #[serde(default)]
    #[schemars(extend("format" = "readable-file"))]
    pub signing_key_file: Option<PathBuf>,
    /// The networks that it may connect to, whatever the name in `url` resolves to. Default: all but link-local ones.
    #[serde(default)]
    #[schemars(with = "Vec<value::NetworkText>")]
    pub allow_networks: Vec<String>,
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

/// A stream of NATS JetStream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NatsSink {
    /// The servers: nats:// or tls://, host and port.
    #[schemars(length(min = 1), extend("writeOnly" = true))]
    pub addresses: Vec<String>,
    /// The stream.
    #[schemars(extend("format" = "stream"))]
    pub stream: String,
    /// The subject of an entry.
    #[serde(default = "value::subject")]
    #[schemars(extend("format" = "subject"))]
    pub subject: String,
    /// A file with credentials as `nsc` makes them (.creds); read anew when it changes.
    #[serde(default)]
    #[schemars(extend("format" = "readable-file"))]
    pub credentials_file: Option<PathBuf>,
    /// The user that `password_file` is of.
    #[serde(default)]
    pub user: Option<String>,
    /// A file with the password of `user`; read anew when it changes.
    #[serde(default)]
    #[schemars(extend("format" = "readable-file"))]
    pub password_file: Option<PathBuf>,
    /// A file with a token; read anew when it changes.
    #[serde(default)]
    #[schemars(extend("format" = "readable-file"))]
    pub token_file: Option<PathBuf>,
    /// Whom it trusts, and what it shows of itself.
    #[serde(flatten)]
    pub tls: Tls,
    /// How many entries are under way at once.
    #[serde(default = "value::batch_size")]
    #[schemars(range(min = 1, max = 10_000))]
    pub batch_size: usize,
    /// How long the server may take to answer.
    #[serde(default = "value::timeout", with = "value::duration")]
    #[schemars(with = "String", extend("format" = "time-span"))]
    pub timeout: Duration,
}

/// Compressed JSON Lines in an S3 bucket or a folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct S3Sink {
    /// Where segments go: s3://BUCKET/PREFIX, or file:///PATH for a folder.
    #[schemars(extend("format" = "bucket-url", "writeOnly" = true))]
    pub url: String,
    /// The server, where it is not that of Amazon. Default: Amazon's in the region.
    #[serde(default)]
    #[schemars(extend("format" = "http-url"))]
    pub endpoint: Option<String>,
    /// The region. Default: $AWS_REGION, else us-east-1.
    #[serde(default)]
    pub region: Option<String>,
    /// A file with an access key as the AWS programs have it; read anew when it changes.
    #[serde(default)]
    #[schemars(extend("format" = "readable-file"))]
    pub credentials_file: Option<PathBuf>,
    /// Which part of the date is in the names of segments.
    #[serde(default)]
    pub partition: Partition,
    /// A segment is closed when its lines have this size, before they are compressed.
    #[serde(default = "value::segment_size", with = "value::size")]
    #[schemars(with = "String", extend("format" = "size"))]
    pub segment_size: u64,
    /// A segment is closed when its first entry has waited so long.
    #[serde(default = "value::segment_age", with = "value::duration")]
    #[schemars(with = "String", extend("format" = "time-span"))]
    pub segment_age: Duration,
    /// Whom it trusts, and what it shows of itself.
    #[serde(flatten)]
    pub tls: Tls,
    /// How long one request may take.
    #[serde(default = "value::timeout", with = "value::duration")]
    #[schemars(with = "String", extend("format" = "time-span"))]
    pub timeout: Duration,
}

/// The journal of systemd.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JournaldSink {
    /// The socket at which journald takes its own protocol.
    #[serde(default = "value::journald_socket")]
    #[schemars(extend("format" = "path"))]
    pub socket: PathBuf,
    /// SYSLOG_IDENTIFIER of every entry.
    #[serde(default = "value::decklog")]
    #[schemars(extend("format" = "syslog-name"))]
    pub identifier: String,
    /// How long one entry may take.
    #[serde(default = "value::timeout", with = "value::duration")]
    #[schemars(with = "String", extend("format" = "time-span"))]
    pub timeout: Duration,
}

/// Redis streams.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RedisSink {
    /// The server: redis://HOST:PORT/DATABASE, or rediss:// for TLS.
    #[schemars(extend("format" = "redis-url", "writeOnly" = true))]
    pub url: String,
    /// The name of the stream.
    #[serde(default = "value::decklog")]
    #[schemars(extend("format" = "template"))]
    pub stream: String,
    /// About how many entries the stream keeps. Default: all.
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub max_len: Option<u64>,
    /// The user of the server's access control list. Default: its default user.
    #[serde(default)]
    pub user: Option<String>,
    /// A file with the password; read anew when it changes.
    #[serde(default)]
    #[schemars(extend("format" = "readable-file"))]
    pub password_file: Option<PathBuf>,
    /// How many entries one transaction carries at most.
    #[serde(default = "value::batch_size")]
    #[schemars(range(min = 1, max = 10_000))]
    pub batch_size: usize,
    /// Whom it trusts, and what it shows of itself.
    #[serde(flatten)]
    pub tls: Tls,
    /// How long one exchange may take.
    #[serde(default = "value::timeout", with = "value::duration")]
    #[schemars(with = "String", extend("format" = "time-span"))]
    pub timeout: Duration,
}

/// Which part of the date is in the names of segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Partition {
    /// date=2026-11-21/
    #[default]
    Day,
    /// date=2026-11-21/hour=10/
    Hour,
    /// None.
    None,
}

/// Syslog, as RFC 5424 writes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SyslogSink {
    /// The server: unix:///PATH, tcp://HOST:PORT or tls://HOST:PORT.
    #[serde(default = "value::dev_log")]
    #[schemars(extend("format" = "syslog-url"))]
    pub url: String,
    /// What sort of program decklog is to the server.
    #[serde(default)]
    pub facility: Facility,
    /// APP-NAME of every message.
    #[serde(default = "value::decklog")]
    #[schemars(extend("format" = "syslog-name"))]
    pub app_name: String,
    /// HOSTNAME of every message. Default: the machine's.
    #[serde(default)]
    #[schemars(extend("format" = "syslog-host"))]
    pub hostname: Option<String>,
    /// What the structured data is called.
    #[serde(default = "value::sd_id")]
    #[schemars(extend("format" = "sd-id"))]
    pub sd_id: String,
    /// The longest message that the server takes whole.
    #[serde(default = "value::max_message_size", with = "value::size")]
    #[schemars(with = "String", extend("format" = "size"))]
    pub max_message_size: u64,
    /// Whom it trusts, and what it shows of itself.
    #[serde(flatten)]
    pub tls: Tls,
    /// How long the server may take nothing.
    #[serde(default = "value::timeout", with = "value::duration")]
    #[schemars(with = "String", extend("format" = "time-span"))]
    pub timeout: Duration,
}

/// A facility of syslog, with its number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum Facility {
    /// Programs of users.
    User = 1,
    /// Daemons.
    #[default]
    Daemon = 3,
    /// Security, for everybody to read.
    Auth = 4,
    /// Security, not for everybody to read.
    Authpriv = 10,
    /// What the operator makes of it.
    Local0 = 16,
    /// As above.
    Local1 = 17,
    /// As above.
    Local2 = 18,
    /// As above.
    Local3 = 19,
    /// As above.
    Local4 = 20,
    /// As above.
    Local5 = 21,
    /// As above.
    Local6 = 22,
    /// As above.
    Local7 = 23,
}

/// Rows in a PostgreSQL database.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PostgresSink {
    /// The database: `postgres://USER@HOST:PORT/DATABASE`.
    #[schemars(extend("format" = "postgres-url", "writeOnly" = true))]
    pub url: String,
    /// Whether the connection is encrypted, and what is verified.
    #[serde(default)]
    pub sslmode: SslMode,
    /// A file with the password; read anew when it changes.
    #[serde(default)]
    #[schemars(extend("format" = "readable-file"))]
    pub password_file: Option<PathBuf>,
    /// The schema with decklog's tables.
    #[serde(default = "value::schema")]
    #[schemars(extend("format" = "name"))]
    pub schema: String,
    /// Whether the table `objects` holds the present state of the cluster.
    #[serde(default)]
    pub objects: bool,
    /// How many entries go into one transaction at most.
    #[serde(default = "value::transaction_size")]
    #[schemars(range(min = 1, max = 10_000))]
    pub batch_size: usize,
    /// Whom it trusts, and what it shows of itself.
    #[serde(flatten)]
    pub tls: Tls,
    /// How long one transaction may take.
    #[serde(default = "value::timeout", with = "value::duration")]
    #[schemars(with = "String", extend("format" = "time-span"))]
    pub timeout: Duration,
}

/// What is verified of a database server. There is nothing between the two: encryption without verification keeps
/// nobody out who can listen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SslMode {
    /// The connection is encrypted, the certificate is of an authority that is trusted, and names the host of `url`.
    #[default]
    VerifyFull,
    /// Nothing is encrypted and nothing is verified.
    Disable,
}

/// Documents in Elasticsearch or OpenSearch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ElasticsearchSink {
    /// Where the server is; http or https.
    #[schemars(extend("format" = "http-url", "writeOnly" = true))]
    pub url: String,
    /// The index that an entry goes to.
    #[serde(default = "value::index")]
    #[schemars(extend("format" = "index"))]
    pub index: String,
    /// How many entries one request carries at most.
    #[serde(default = "value::bulk_size")]
    #[schemars(range(min = 1, max = 10_000))]
    pub batch_size: usize,
    /// How requests are compressed.
    #[serde(default)]
    pub compress: Gzip,
    /// The user, for the password in `password_file`.
    #[serde(default)]
    pub user: Option<String>,
    /// A file with the password of `user`; read anew when it changes.
    #[serde(default)]
    #[schemars(extend("format" = "readable-file"))]
    pub password_file: Option<PathBuf>,
    /// A file with an API key in the form that is sent, `base64(id:key)`; read anew when it changes.
    #[serde(default)]
    #[schemars(extend("format" = "readable-file"))]
    pub api_key_file: Option<PathBuf>,
    /// A file with further headers, one `Name: value` a line; read anew when it changes.
    #[serde(default)]
    #[schemars(extend("format" = "readable-file"))]
    pub headers_file: Option<PathBuf>,
    /// Whom it trusts, and what it shows of itself.
    #[serde(flatten)]
    pub tls: Tls,
    /// How long one request may take.
    #[serde(default = "value::timeout", with = "value::duration")]
    #[schemars(with = "String", extend("format" = "time-span"))]
    pub timeout: Duration,
}

/// How requests are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Gzip {
    /// gzip.
    #[default]
    Gzip,
    /// Not at all.
    None,
}

/// Logs of OpenTelemetry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OtlpSink {
    /// Where the receiver is; http or https. Without a path, the one of the protocol is used.
    #[schemars(extend("format" = "http-url", "writeOnly" = true))]
    pub url: String,
    /// How it is spoken to.
    #[serde(default)]
    pub protocol: Protocol,
    /// How many entries one request carries at most.
    #[serde(default = "value::bulk_size")]
    #[schemars(range(min = 1, max = 10_000))]
    pub batch_size: usize,
    /// How requests are compressed.
    #[serde(default)]
    pub compress: Gzip,
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

/// How OTLP is spoken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// gRPC, over HTTP/2.
    #[default]
    Grpc,
    /// Protocol Buffers over HTTP/1.1.
    Http,
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
