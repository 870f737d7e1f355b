//! Logs of OpenTelemetry, to the collector.

#[path = "../../../src/sink/otlp/proto.rs"]
#[allow(dead_code, reason = "shared with the sink, which reads answers as well")]
mod proto;

use decklog_testkit::servers::otlp as start;
use std::borrow::Cow;
use std::io::Write;

use bytes::{BufMut, Bytes, BytesMut};
use decklog::core::wire::Entry;
use decklog::sink::Item;
use http_body_util::BodyExt;
use jiff::Timestamp;
use prost::Message;
use reqwest::header::{CONTENT_ENCODING, CONTENT_TYPE, TE};
use reqwest::{Client, StatusCode};
use serde_json::json;

use self::proto::{
    ExportLogsServiceRequest, InstrumentationScope, KeyValue, LogRecord, Resource, ResourceLogs, ScopeLogs, Value,
};
use self::start::Collector;
use super::http::client;
use super::{Bench, Case, ENTRIES, Plain};

struct Exports {
    client: Client,
    url: String,
    grpc: bool,
}

/// As the sinks do it.
pub(super) fn gzip(bytes: &[u8]) -> Bytes {
    let mut encoder = flate2::write::GzEncoder::new(Vec::with_capacity(bytes.len() / 4), flate2::Compression::fast());
    encoder.write_all(bytes).and_then(|()| encoder.finish()).expect("memory").into()
}

fn text(key: &str, value: &str) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(Value::Text(value.to_owned()).into()) }
}

fn record(item: &Item) -> LogRecord {
    let entry = Entry::parse(&item.line).expect("an entry");
    let time: Timestamp = entry.time.parse().expect("a time");
    let time = u64::try_from(time.as_nanosecond()).expect("after 1970");
    let of = |text: &Option<Cow<'_, str>>| text.as_deref().unwrap_or_default().to_owned();
    let line = String::from_utf8(item.line.to_vec()).expect("a line is text");
    LogRecord {
        time_unix_nano: time,
        severity_number: 9,
        severity_text: "INFO".to_owned(),
        body: Some(Value::Text(line).into()),
        attributes: vec![
            text("log.record.uid", &format!("{}.{}", entry.epoch, entry.seq)),
            text("decklog.id", &entry.id),
            text("decklog.seq", &entry.seq.to_string()),
            text("decklog.epoch", &entry.epoch),
            text("decklog.type", entry.op.as_str()),
            text("decklog.evidence", &of(&entry.evidence)),
            text("k8s.resource.name", &entry.resource),
            text("k8s.object.api_version", &entry.api_version),
            text("k8s.object.kind", &entry.kind),
            text("k8s.namespace.name", &of(&entry.namespace)),
            text("k8s.object.name", &of(&entry.name)),
            text("k8s.object.uid", &of(&entry.uid)),
            text("k8s.object.resource_version", &of(&entry.resource_version)),
        ],
        observed_time_unix_nano: time,
        event_name: "io.decklog.modified.v1".to_owned(),
    }
}

impl Plain for Exports {
    type Batch = Vec<u8>;

    fn prepare(&self, items: &[Item]) -> Vec<u8> {
        let scope = InstrumentationScope { name: "decklog".to_owned(), version: "1".to_owned() };
        let scope_logs = vec![ScopeLogs { scope: Some(scope), log_records: items.iter().map(record).collect() }];
        let resource = Some(Resource { attributes: vec![text("service.name", "decklog")] });
        ExportLogsServiceRequest { resource_logs: vec![ResourceLogs { resource, scope_logs }] }.encode_to_vec()
    }

    async fn send(&mut self, batch: Vec<u8>) {
        let body = gzip(&batch);
        let request = self.client.post(&self.url);
        let request = if self.grpc {
            let mut framed = BytesMut::with_capacity(body.len() + 5);
            framed.put_u8(1);
            framed.put_u32(u32::try_from(body.len()).expect("a small batch"));
            framed.extend_from_slice(&body);
            let request = request.header(CONTENT_TYPE, "application/grpc").header(TE, "trailers");
            request.header("grpc-encoding", "gzip").body(framed.freeze())
        } else {
            request.header(CONTENT_TYPE, "application/x-protobuf").header(CONTENT_ENCODING, "gzip").body(body)
        };
        let answer = request.send().await.expect("an answer");
        assert_eq!(answer.status(), StatusCode::OK);
        let body = http::Response::<reqwest::Body>::from(answer).into_body().collect().await.expect("an answer");
        if self.grpc {
            assert_eq!(body.trailers().expect("trailers")["grpc-status"], "0");
        }
    }
}

pub(super) async fn compare(bench: &mut Bench<'_>) {
    for (what, protocol) in [("otlp over gRPC", "grpc"), ("otlp over HTTP", "http")] {
        let collector = Collector::start(protocol).await;
        let url = format!("http://127.0.0.1:{}", collector.server.port());
        let grpc = protocol == "grpc";
        let case = Case {
            what,
            baseline: "reqwest, a request that is encoded, gzip",
            entries: ENTRIES / 2,
            keys: &|_| json!({ "type": "otlp", "url": url, "protocol": protocol }),
        };
        let plain = async |_: &str| {
            if grpc {
                let path = "opentelemetry.proto.collector.logs.v1.LogsService/Export";
                let client = Client::builder().http2_prior_knowledge().tls_certs_only([]).no_proxy().build();
                Exports { client: client.expect("a client"), url: format!("{url}/{path}"), grpc }
            } else {
                Exports { client: client(), url: format!("{url}/v1/logs"), grpc }
            }
        };
        let out = collector.dir.path().join("out.jsonl");
        let rest = async || {
            // It appends to whatever there is.
            if out.exists() {
                std::fs::OpenOptions::new().write(true).truncate(true).open(&out).expect("the collector's file");
            }
        };
        bench.compare(case, plain, rest).await;
    }
}
