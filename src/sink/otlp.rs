//! Logs of OpenTelemetry, over gRPC or HTTP: at least once, in order, one request at a time. The collector, Loki and many
//! others take them.
//!
//! The body of a log record is the entry's line, byte for byte; what one searches by is in its attributes.

mod answer;
mod grpc;
mod proto;
mod settings;
#[cfg(test)]
mod tests;

pub use settings::{Protocol, Settings};

use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::Timestamp;
use prost::Message;
use reqwest::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderValue, TE};
use reqwest::{Method, StatusCode};

use super::link::{Answer, HttpClient, HttpEndpoint, Login, first_part, gzip};
use super::settings::Gzip;
use super::{CREDENTIALS_WAIT, Class, Failure, Item, LESS, Limits, LogPosition, Sink, SinkError};
use crate::core::model::EntryType;
use crate::core::wire::cloudevents::event_type;
use crate::core::wire::{EntryError, Header};
use grpc::Code;
use proto::{KeyValue, LogRecord, Value};

/// About how many bytes of entries one request carries, unless a single entry is larger. A server that speaks gRPC takes
/// 4 MiB, where nobody configured it otherwise.
const BATCH_BYTES: usize = 2 << 20;

/// Every receiver takes a request of this size, however small its limits are.
const SMALL_BYTES: usize = 64 << 10;

/// Bytes of an answer that are read.
const ANSWER_BYTES: usize = 64 << 10;

/// The path of the call over gRPC, and of the request over HTTP.
const GRPC_PATH: [&str; 2] = ["opentelemetry.proto.collector.logs.v1.LogsService", "Export"];
const HTTP_PATH: [&str; 2] = ["v1", "logs"];

/// Remedy for rejected credentials.
const HEAL: &str = "renew the credentials in `bearer_file`, `headers_file` or `headers`";

/// Remedy for an endpoint that takes no logs.
const ELSEWHERE: &str = "set `url` and `protocol` to where OTLP logs are taken, and send SIGHUP";

/// Severities of the log data model: nothing is wrong with a change, and something may be with a gap.
const INFO: (i32, &str) = (9, "INFO");
const WARN: (i32, &str) = (13, "WARN");

/// Meaning of the end of one request.
enum End {
    Taken,
    /// This request will never be taken; a part of it may.
    Refused(String),
    /// It is larger than the server takes.
    TooLarge(String),
    Error(SinkError),
}

/// A receiver of logs.
#[derive(Debug)]
pub struct OtlpSink {
    link: HttpClient,
    /// Path behind the URL.
    path: &'static [&'static str],
    protocol: Protocol,
    batch_size: usize,
    /// Bytes of entries in one request: fewer, once a larger one was refused.
    bytes: usize,
    compress: Gzip,
    /// Set once the server has answered.
    answered: bool,
    /// The last warning about what the server took. An answer that says the same again is no news.
    warned: Option<String>,
}

impl OtlpSink {
    /// A sink that sends where the configuration says; nothing is connected yet.
    ///
    /// # Errors
    /// Where the URL or a header can never work. The text never quotes a header's value.
    pub fn new(config: &Settings) -> Result<Self, String> {
        let link = HttpClient::new(HttpEndpoint {
            url: &config.url,
            timeout: *config.timeout,
            headers: Some(&config.headers),
            headers_file: config.headers_file.as_ref(),
            login: config.bearer_file.clone().map(Login::Bearer),
            tls: &config.tls,
            allow_networks: &[],
            http2: config.protocol == Protocol::Grpc,
        })?;
        let path: &[&str] = match config.protocol {
            Protocol::Grpc if link.has_path() => {
                return Err(
                    "`url` has a path, and gRPC brings its own; take it away, or set `protocol` to \"http\"".to_owned()
                );
            }
            Protocol::Grpc => &GRPC_PATH,
            Protocol::Http if link.has_path() => &[],
            Protocol::Http => &HTTP_PATH,
        };
        Ok(Self {
            link,
            path,
            protocol: config.protocol,
            batch_size: config.batch_size.max(1),
            bytes: BATCH_BYTES,
            compress: config.compress,
            answered: false,
            warned: None,
        })
    }

    /// Sends entries in as few requests as they fit in.
    async fn send(&mut self, batch: &[Item]) -> Result<(), Failure> {
        let mut taken = 0;
        // Halved when the server refuses several entries together, until the one that it means stands alone.
        let mut most = self.batch_size;
        while taken < batch.len() {
            let part = first_part(&batch[taken..], most, self.bytes);
            let several = part.len() > 1;
            match self.export(part).await {
                End::Taken => taken += part.len(),
                End::TooLarge(_) if several => {
                    self.bytes = part.iter().map(|item| item.line.len()).sum::<usize>() / 2;
                }
                End::Refused(_) if several => most = part.len() / 2,
                End::TooLarge(text) => {
                    let text = format!("{text}; raise what it takes in one request, or {LESS}");
                    return Err(Failure { taken, error: SinkError::Refused { text } });
                }
                End::Refused(text) => return Err(Failure { taken, error: SinkError::Refused { text } }),
                End::Error(error) => return Err(Failure { taken, error }),
            }
        }
        Ok(())
    }

    /// One request.
    async fn export(&mut self, part: &[Item]) -> End {
        let request = match request(part) {
            Ok(request) => request.encode_to_vec(),
            Err(error) => return End::Refused(format!("it is {error}")),
        };
        if let Err(error) = self.link.refresh().await {
            return End::Error(error);
        }
        match self.ask(&request).await {
            Ok(answer) => {
                self.answered = true;
                self.judge(&answer, &request, part.len())
            }
            Err(error) => {
                self.link.reconnect();
                End::Error(self.doubted(error))
            }
        }
    }

    /// Each protocol has its own port, and who asks at that of the other one gets no answer that could say so.
    fn doubted(&self, mut error: SinkError) -> SinkError {
        if let SinkError::Retry { text, .. } = &mut error
            && !self.answered
            && !text.starts_with("cannot connect")
        {
            *text = self.doubt(std::mem::take(text));
        }
        error
    }

    fn doubt(&self, text: String) -> String {
        let protocol = match self.protocol {
            Protocol::Grpc => "grpc",
            Protocol::Http => "http",
        };
        format!("{text}; does that port take `protocol` = {protocol:?}?")
    }

    async fn ask(&self, message: &[u8]) -> Result<Answer, SinkError> {
        let gzipped = self.compress == Gzip::Gzip;
        let body = if gzipped { gzip(message) } else { message.to_vec().into() };
        let mut request = self.link.request_at(Method::POST, self.path, &[])?;
        let content_type = match self.protocol {
            Protocol::Grpc => "application/grpc",
            Protocol::Http => "application/x-protobuf",
        };
        request = request.header(CONTENT_TYPE, HeaderValue::from_static(content_type));
        if self.protocol == Protocol::Grpc {
            request = request.header(TE, HeaderValue::from_static("trailers"));
            request = request.header("grpc-accept-encoding", HeaderValue::from_static("gzip"));
        }
        if gzipped {
            match self.protocol {
                Protocol::Grpc => request = request.header("grpc-encoding", HeaderValue::from_static("gzip")),
                Protocol::Http => request = request.header(CONTENT_ENCODING, HeaderValue::from_static("gzip")),
            }
        }
        let body = match self.protocol {
            Protocol::Grpc => grpc::framed(&body, gzipped),
            Protocol::Http => body,
        };
        let request = request.body(body);
        let mut answer = match self.protocol {
            Protocol::Http => self.link.ask_status(request, ANSWER_BYTES).await?,
            Protocol::Grpc => self.link.ask(request, ANSWER_BYTES).await?,
        };
        if !answer.status.is_success()
            && let Ok(status) = proto::Status::decode(&answer.body[..])
            && !status.message.is_empty()
        {
            answer.body = status.message.into_bytes();
        }
        Ok(answer)
    }

    fn judge(&mut self, answer: &Answer, sent: &[u8], records: usize) -> End {
        if !answer.status.is_success() {
            return self.judge_status(answer, sent, records);
        }
        let partial = match self.protocol {
            // The status has said that it is taken. What is cut off may have been longer.
            Protocol::Http if answer.is_whole() => answer::partial_success(&answer.body, ANSWER_BYTES),
            Protocol::Http => None,
            Protocol::Grpc => {
                let message = grpc::message(&answer.body, ANSWER_BYTES).and_then(|bytes| answer::of_message(&bytes));
                match grpc::status(answer) {
                    Some(status) if status.code != Code::OK => return self.judge_code(&status, sent),
                    Some(_) => message,
                    // Who answers a call has done it: what lost the trailers stands in between.
                    None if message.is_some() => message,
                    None => {
                        let (url, status) = (&self.link.shown, answer.status);
                        return End::Error(SinkError::retry(
                            self.doubt(format!("{url} answered {status} without the status of gRPC")),
                        ));
                    }
                }
            }
        };
        match partial {
            Some(partial) => self.judge_partial(&partial, sent, records),
            None => {
                let (url, status) = (&self.link.shown, answer.status);
                self.warn(format!(
                    "{url} answered {status}, so it took what it was sent, with a body that is no answer to OTLP; see \
                     whether `url` names a receiver of logs"
                ));
                End::Taken
            }
        }
    }

    fn judge_partial(&mut self, partial: &proto::ExportLogsPartialSuccess, sent: &[u8], records: usize) -> End {
        let url = &self.link.shown;
        let said = self.link.quotable(partial.error_message.as_bytes(), sent);
        let said = said.map(|said| format!(": {said}")).unwrap_or_default();
        if partial.rejected_log_records > 0 {
            return End::Refused(format!(
                "{url} rejected {} of {records} log records{said}",
                partial.rejected_log_records
            ));
        }
        if !partial.error_message.is_empty() {
            self.warn(format!("{url} took what it was sent, with a warning{said}"));
        }
        End::Taken
    }

    /// Says once what is odd about what the server took.
    fn warn(&mut self, text: String) {
        if self.warned.as_ref() != Some(&text) {
            tracing::warn!("{text}");
            self.warned = Some(text);
        }
    }

    /// A status of HTTP, which a server of gRPC or what stands before it may answer too.
    fn judge_status(&self, answer: &Answer, sent: &[u8], records: usize) -> End {
        let said = || self.link.told(answer, sent);
        match answer.status {
            StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => {
                End::Error(SinkError::halt(format!("{}; {ELSEWHERE}", said())))
            }
            StatusCode::UNSUPPORTED_MEDIA_TYPE => {
                End::Error(SinkError::halt(format!("{}; set `compress` to \"none\", or {ELSEWHERE}", said())))
            }
            // Loki has looked at all of a request when it finds nothing in it.
            StatusCode::UNPROCESSABLE_ENTITY if records == 0 => End::Taken,
            StatusCode::PAYLOAD_TOO_LARGE => End::TooLarge(said()),
            // The others among the 5xx are not to be repeated, says the protocol.
            StatusCode::INTERNAL_SERVER_ERROR | StatusCode::NOT_IMPLEMENTED if self.protocol == Protocol::Http => {
                End::Refused(said())
            }
            _ => match self.link.meaning(answer, sent, HEAL) {
                Some(error) => End::Error(error),
                None => End::Refused(said()),
            },
        }
    }

    fn judge_code(&self, status: &grpc::Status, sent: &[u8]) -> End {
        let (url, code) = (&self.link.shown, status.code);
        let said = self.link.quotable(status.message.as_bytes(), sent);
        let said = said.map(|said| format!(": {said}")).unwrap_or_default();
        let text = format!("{url} answered {}{said}", code.name());
        let after = status.retry;
        match code {
            Code::UNAUTHENTICATED | Code::PERMISSION_DENIED => End::Error(SinkError::Retry {
                text: format!("{text}; {HEAL}: the files are read again before each try"),
                after: Some(after.unwrap_or_default().max(CREDENTIALS_WAIT)),
            }),
            Code::UNIMPLEMENTED => End::Error(SinkError::halt(format!("{text}; {ELSEWHERE}"))),
            // Without a time for another try it is the size of the request, as far as that can be, or a quota.
            Code::RESOURCE_EXHAUSTED if after.is_none() && sent.len() > SMALL_BYTES => End::TooLarge(text),
            Code::CANCELLED
            | Code::DEADLINE_EXCEEDED
            | Code::RESOURCE_EXHAUSTED
            | Code::ABORTED
            | Code::OUT_OF_RANGE
            | Code::UNAVAILABLE
            | Code::DATA_LOSS => End::Error(SinkError::Retry { text, after }),
            _ => End::Refused(text),
        }
    }
}

/// The request that carries these entries. They are of one journal, and so of one cluster, but for those that were
/// written before the cluster had its name.
fn request(part: &[Item]) -> Result<proto::ExportLogsServiceRequest, EntryError> {
    let mut resource_logs: Vec<proto::ResourceLogs> = Vec::new();
    for item in part {
        let entry = item.header()?;
        let record = record(entry, &item.line)?;
        let resource = Some(resource(entry));
        match resource_logs.last_mut().filter(|last| last.resource == resource) {
            Some(last) => last.scope_logs[0].log_records.push(record),
            None => {
                let version = env!("CARGO_PKG_VERSION").to_owned();
                let scope = Some(proto::InstrumentationScope { name: "decklog".to_owned(), version });
                let scope_logs = vec![proto::ScopeLogs { scope, log_records: vec![record] }];
                resource_logs.push(proto::ResourceLogs { resource, scope_logs });
            }
        }
    }
    Ok(proto::ExportLogsServiceRequest { resource_logs })
}

/// Builds the resource: the reporting service, and the cluster.
fn resource(entry: &Header<'_>) -> proto::Resource {
    proto::Resource {
        attributes: vec![
            text("service.name", "decklog"),
            text("service.version", env!("CARGO_PKG_VERSION")),
            text("k8s.cluster.name", &entry.cluster.name),
            text("k8s.cluster.uid", &entry.cluster.uid),
        ],
    }
}

fn record(entry: &Header<'_>, line: &[u8]) -> Result<LogRecord, EntryError> {
    let line = std::str::from_utf8(line).map_err(|error| EntryError::Json(error.valid_up_to()))?;
    let (severity_number, severity) = match entry.op {
        EntryType::Added | EntryType::Modified | EntryType::Deleted | EntryType::Actor => INFO,
        EntryType::Gap => WARN,
    };
    let seq = i64::try_from(entry.seq).unwrap_or(i64::MAX);
    let mut attributes = vec![
        // Of two records with the same one, a receiver may drop either. The id names a change, which two epochs can
        // record.
        text("log.record.uid", &format!("{}.{}", entry.epoch, entry.seq)),
        text("decklog.id", &entry.id),
        KeyValue { key: "decklog.seq".to_owned(), value: Some(Value::Integer(seq).into()) },
        text("decklog.epoch", &entry.epoch),
        text("decklog.type", entry.op.as_str()),
        text("k8s.resource.name", &entry.resource),
        text("k8s.object.api_version", &entry.api_version),
        text("k8s.object.kind", &entry.kind),
    ];
    let namespace = match own_name(entry) {
        // A namespace lives in none; what belongs to it is found by its name.
        Some("namespace") => &entry.name,
        _ => &entry.namespace,
    };
    for (key, value) in [
        ("decklog.evidence", &entry.evidence),
        ("k8s.namespace.name", namespace),
        ("k8s.object.name", &entry.name),
        ("k8s.object.uid", &entry.uid),
        ("k8s.object.resource_version", &entry.resource_version),
    ] {
        attributes.extend(value.as_deref().map(|value| text(key, value)));
    }
    if let Some(own) = own_name(entry).filter(|own| *own != "namespace") {
        attributes.extend(entry.name.as_deref().map(|name| text(&format!("k8s.{own}.name"), name)));
        attributes.extend(entry.uid.as_deref().map(|uid| text(&format!("k8s.{own}.uid"), uid)));
    }
    let time = entry.time.parse::<Timestamp>().ok().and_then(|time| u64::try_from(time.as_nanosecond()).ok());
    let time_unix_nano = time.unwrap_or_default();
    Ok(LogRecord {
        time_unix_nano,
        observed_time_unix_nano: time_unix_nano,
        severity_number,
        severity_text: severity.to_owned(),
        body: Some(Value::Text(line.to_owned()).into()),
        attributes,
        event_name: event_type(entry.op).to_owned(),
    })
}

/// The word of the semantic conventions for a kind that has attributes of its own there, which join what is recorded of
/// an object with its metrics, traces and logs.
fn own_name(entry: &Header<'_>) -> Option<&'static str> {
    Some(match (entry.group(), &*entry.resource) {
        ("", "namespaces") => "namespace",
        ("", "nodes") => "node",
        ("", "pods") => "pod",
        ("", "replicationcontrollers") => "replicationcontroller",
        ("", "resourcequotas") => "resourcequota",
        ("apps", "daemonsets") => "daemonset",
        ("apps", "deployments") => "deployment",
        ("apps", "replicasets") => "replicaset",
        ("apps", "statefulsets") => "statefulset",
        ("autoscaling", "horizontalpodautoscalers") => "hpa",
        ("batch", "cronjobs") => "cronjob",
        ("batch", "jobs") => "job",
        _ => return None,
    })
}

fn text(key: &str, value: &str) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(Value::Text(value.to_owned()).into()) }
}

impl Sink for OtlpSink {
    fn class(&self) -> Class {
        Class::AtLeastOnce
    }

    fn limits(&self) -> Limits {
        Limits { entries: self.batch_size, bytes: BATCH_BYTES, linger: std::time::Duration::ZERO }
    }

    fn position<'a>(&'a mut self, _cursor: &'a LogPosition) -> BoxFuture<'a, Result<Option<LogPosition>, SinkError>> {
        std::future::ready(Ok(None)).boxed()
    }

    fn deliver<'a>(&'a mut self, batch: &'a [Item]) -> BoxFuture<'a, Result<(), Failure>> {
        self.send(batch).boxed()
    }

    fn reopen(&mut self) {
        self.link.renew();
        self.bytes = BATCH_BYTES;
        self.warned = None;
    }

    fn through(&self) -> String {
        self.link.through()
    }

    fn check(&mut self) -> BoxFuture<'_, Result<(), SinkError>> {
        async {
            // A request without a log record: a receiver answers it as any other.
            match self.export(&[]).await {
                End::Taken => Ok(()),
                End::Refused(text) | End::TooLarge(text) => Err(SinkError::halt(format!("{text}; {ELSEWHERE}"))),
                End::Error(error) => Err(error),
            }
        }
        .boxed()
    }
}
