//! What is sent and what answers mean, through a wire of our own. What a real collector does is in `tests/sinks`.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::StreamBody;
use hyper::body::Frame;
use proto::{ExportLogsPartialSuccess, ExportLogsServiceRequest, ExportLogsServiceResponse};
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName};
use serde_json::json;

use super::*;
use crate::core::model::{Cluster, Gap, Seq, Why};
use crate::core::wire::{EntryBuilder, render};
use crate::sink::tests::item;

/// A request that was made.
#[derive(Clone, Debug)]
struct Seen {
    url: String,
    headers: HeaderMap,
    request: ExportLogsServiceRequest,
}

impl Seen {
    fn records(&self) -> Vec<LogRecord> {
        let scopes = self.request.resource_logs.iter().flat_map(|logs| &logs.scope_logs);
        scopes.flat_map(|scope| scope.log_records.clone()).collect()
    }

    fn seqs(&self) -> Vec<i64> {
        let seq = |record: &LogRecord| match attribute(&record.attributes, "decklog.seq") {
            Some(Value::Integer(seq)) => seq,
            other => panic!("{other:?}"),
        };
        self.records().iter().map(seq).collect()
    }
}

fn attribute(attributes: &[KeyValue], key: &str) -> Option<Value> {
    attributes.iter().find(|attribute| attribute.key == key)?.value.clone()?.value
}

/// An answer: its status, headers, body and trailers.
type Says = (u16, Vec<(&'static str, String)>, Vec<u8>, Vec<(&'static str, String)>);

/// All is taken, but for so many.
fn taken(protocol: Protocol, rejected: i64) -> Says {
    let partial = ExportLogsPartialSuccess { rejected_log_records: rejected, error_message: String::new() };
    let response = ExportLogsServiceResponse { partial_success: Some(partial) }.encode_to_vec();
    match protocol {
        Protocol::Http => (200, Vec::new(), response, Vec::new()),
        Protocol::Grpc => {
            (200, Vec::new(), grpc::framed(&response, false).to_vec(), vec![("grpc-status", "0".to_owned())])
        }
    }
}

/// A call that ended with this code.
fn code(code: u32) -> Says {
    (200, vec![("grpc-status", code.to_string()), ("grpc-message", "so%20it%20is".to_owned())], Vec::new(), Vec::new())
}

fn config(protocol: Protocol) -> Settings {
    let protocol = serde_json::to_value(protocol).unwrap();
    let url = "http://127.0.0.1:1";
    serde_json::from_value(json!({ "url": url, "protocol": protocol, "compress": "none" })).unwrap()
}

fn map(pairs: Vec<(&'static str, String)>) -> HeaderMap {
    pairs.into_iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap())).collect()
}

/// A sink whose requests are answered by `script`, which gets the number of the request, and those requests.
fn sink(
    config: &Settings,
    script: impl Fn(usize, &Seen) -> Says + Send + Sync + 'static,
) -> (OtlpSink, Arc<Mutex<Vec<Seen>>>) {
    let mut sink = OtlpSink::new(config).unwrap();
    let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
    let (all, config) = (Arc::clone(&seen), config.clone());
    sink.link.wire = Some(Arc::new(move |request: reqwest::Request| {
        let mut body = request.body().and_then(|body| body.as_bytes()).unwrap().to_vec();
        let gzipped = config.compress == Gzip::Gzip;
        if config.protocol == Protocol::Grpc {
            assert_eq!(body[0], u8::from(gzipped));
            assert_eq!(u32::from_be_bytes(body[1..5].try_into().unwrap()) as usize, body.len() - 5);
            body.drain(..5);
        }
        if gzipped {
            let mut plain = Vec::new();
            std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&body[..]), &mut plain).unwrap();
            body = plain;
        }
        let seen = Seen {
            url: request.url().to_string(),
            headers: request.headers().clone(),
            request: ExportLogsServiceRequest::decode(&body[..]).unwrap(),
        };
        let mut all = all.lock().unwrap();
        let (status, headers, body, trailers) = script(all.len(), &seen);
        all.push(seen);
        let frames = [Frame::data(Bytes::from(body)), Frame::trailers(map(trailers))];
        let frames = futures::stream::iter(frames.map(Ok::<_, std::convert::Infallible>));
        let mut response = http::Response::new(reqwest::Body::wrap(StreamBody::new(frames)));
        *response.status_mut() = StatusCode::from_u16(status).unwrap();
        *response.headers_mut() = map(headers);
        std::future::ready(Ok(reqwest::Response::from(response))).boxed()
    }));
    (sink, seen)
}

fn items(seqs: std::ops::RangeInclusive<u64>) -> Vec<Item> {
    seqs.map(item).collect()
}

/// Larger than what every receiver takes.
fn large(seqs: std::ops::RangeInclusive<u64>) -> Vec<Item> {
    let larger = |item: Item| {
        let line = String::from_utf8(item.line.to_vec()).unwrap();
        Item { line: line.replace("\"spec\":\"", &format!("\"spec\":\"{}", "x".repeat(SMALL_BYTES))).into(), ..item }
    };
    items(seqs).into_iter().map(larger).collect()
}

const BOTH: [Protocol; 2] = [Protocol::Grpc, Protocol::Http];

#[tokio::test]
async fn a_log_record_has_the_line_as_its_body() {
    for protocol in BOTH {
        for compress in [Gzip::Gzip, Gzip::None] {
            let config = Settings { compress, ..config(protocol) };
            let (mut sink, seen) = sink(&config, move |_, _| taken(protocol, 0));
            sink.deliver(&items(1..=3)).await.unwrap();
            let seen = seen.lock().unwrap();
            assert_eq!(seen.len(), 1);
            let header = |name: &str| seen[0].headers.get(name).map_or("", |value| value.to_str().unwrap());
            let zip = if compress == Gzip::Gzip { "gzip" } else { "" };
            let (url, kind, encodings, te) = match protocol {
                Protocol::Grpc => (
                    "http://127.0.0.1:1/opentelemetry.proto.collector.logs.v1.LogsService/Export",
                    "application/grpc",
                    [zip, ""],
                    "trailers",
                ),
                Protocol::Http => ("http://127.0.0.1:1/v1/logs", "application/x-protobuf", ["", zip], ""),
            };
            assert_eq!((seen[0].url.as_str(), header("content-type"), header("te")), (url, kind, te));
            assert_eq!([header("grpc-encoding"), header("content-encoding")], encodings);
            assert_eq!(seen[0].request.resource_logs.len(), 1);
            let logs = &seen[0].request.resource_logs[0];
            let resource = &logs.resource.as_ref().unwrap().attributes;
            assert_eq!(attribute(resource, "k8s.cluster.name"), Some(Value::Text("prod".into())));
            assert_eq!(attribute(resource, "k8s.cluster.uid"), Some(Value::Text("c".into())));
            let record = &seen[0].records()[1];
            let line = String::from_utf8(item(2).line.to_vec()).unwrap();
            assert_eq!(record.body, Some(Value::Text(line).into()));
            assert_eq!((record.severity_number, record.severity_text.as_str()), (9, "INFO"));
            assert_eq!(record.time_unix_nano, 1_795_256_100_000_000_000);
            assert_eq!(record.event_name, "io.decklog.modified.v1");
            let attributes: Vec<String> =
                record.attributes.iter().map(|one| format!("{} {:?}", one.key, one.value)).collect();
            let attributes = attributes.join("\n").replace("Some(AnyValue { value: Some(", "").replace(") })", "");
            insta::allow_duplicates!(insta::assert_snapshot!(attributes, @r#"
                log.record.uid Text("e.2")
                decklog.id Text("u.2.MODIFIED")
                decklog.seq Integer(2)
                decklog.epoch Text("e")
                decklog.type Text("MODIFIED")
                k8s.resource.name Text("deployments")
                k8s.object.api_version Text("apps/v1")
                k8s.object.kind Text("Deployment")
                decklog.evidence Text("watched")
                k8s.namespace.name Text("shop")
                k8s.object.name Text("web")
                k8s.object.uid Text("u")
                k8s.object.resource_version Text("2")
                k8s.deployment.name Text("web")
                k8s.deployment.uid Text("u")
            "#));
        }
    }
}

#[tokio::test]
async fn a_gap_is_a_warning_and_a_namespace_belongs_to_itself() {
    let cluster = Cluster { name: "n".into(), uid: String::new() };
    let gap = Gap { why: Why::Expired, from: None, to: None, recovered: 0 };
    let draft = |kind, resource, namespace, name, gap| EntryBuilder {
        seq: Seq(1),
        epoch: "e",
        time: "2026-11-21T10:15:00.000000Z",
        happened: None,
        happened_between: None,
        op: kind,
        evidence: None,
        cluster: &cluster,
        api_version: "v1",
        kind: "X",
        resource,
        namespace,
        name,
        uid: name,
        version: "",
        managers: None,
        change: None,
        object: None,
        gap,
        actor: None,
        redacted: &[],
    };
    let drafts = [
        draft(EntryType::Gap, "pods", "shop", "", Some((&gap, None))),
        draft(EntryType::Deleted, "namespaces", "", "shop", None),
        draft(EntryType::Added, "things", "shop", "x", None),
    ];
    let batch = drafts.map(|draft| Item::new(Seq(1), draft.op, render(&draft).line.into()));
    let (mut sink, seen) = sink(&config(Protocol::Http), |_, _| taken(Protocol::Http, 0));
    sink.deliver(&batch).await.unwrap();
    let records = seen.lock().unwrap()[0].records();
    let value = |at: usize, key: &str| match attribute(&records[at].attributes, key) {
        Some(Value::Text(text)) => text,
        _ => String::new(),
    };
    assert_eq!(
        records.iter().map(|record| record.severity_text.as_str()).collect::<Vec<_>>(),
        ["WARN", "INFO", "INFO"]
    );
    assert_eq!([value(0, "k8s.namespace.name"), value(0, "k8s.pod.name")], ["shop", ""]);
    assert_eq!([value(1, "k8s.namespace.name"), value(1, "k8s.object.name")], ["shop", "shop"]);
    assert_eq!([value(2, "k8s.namespace.name"), value(2, "k8s.object.name")], ["shop", "x"]);
}

type Expected = fn(&SinkError) -> bool;
const RETRY: Expected = |error| matches!(error, SinkError::Retry { after: None, .. });
const RENEW: Expected =
    |error| matches!(error, SinkError::Retry { after: Some(CREDENTIALS_WAIT), text } if text.contains("`bearer_file`"));
const REFUSED: Expected = |error| matches!(error, SinkError::Refused { .. });
const HALT: Expected = |error| matches!(error, SinkError::Halt { .. });

#[tokio::test]
async fn each_code_means_what_the_protocol_says() {
    for (number, expected) in [
        (1, RETRY),
        (2, REFUSED),
        (3, REFUSED),
        (4, RETRY),
        (5, REFUSED),
        (6, REFUSED),
        (7, RENEW),
        (8, RETRY),
        (9, REFUSED),
        (10, RETRY),
        (11, RETRY),
        (12, HALT),
        (13, REFUSED),
        (14, RETRY),
        (15, RETRY),
        (16, RENEW),
        (17, REFUSED),
    ] {
        let (mut sink, _) = sink(&config(Protocol::Grpc), move |_, _| code(number));
        let failure = sink.deliver(&items(1..=1)).await.unwrap_err();
        assert!(failure.taken == 0 && expected(&failure.error), "{number} gave {failure:?}");
        let text = failure.error.to_string();
        let said = format!("http://127.0.0.1:1/ answered {}: so it is", Code(number).name());
        assert!(text.starts_with(&said), "{text}");
    }
    // The size decides whether it is a quota or the size.
    let (mut sink, _) = sink(&config(Protocol::Grpc), |_, _| code(8));
    assert!(REFUSED(&sink.deliver(&large(1..=1)).await.unwrap_err().error));
}

#[tokio::test]
async fn each_status_means_what_the_protocol_says() {
    let status = |status: u16| -> Says { (status, Vec::new(), b"no".to_vec(), Vec::new()) };
    for (number, http, grpc) in [
        (301, HALT, HALT),
        (400, REFUSED, REFUSED),
        (401, RENEW, RENEW),
        (403, RENEW, RENEW),
        (404, HALT, HALT),
        (405, HALT, HALT),
        (413, REFUSED, REFUSED),
        (415, HALT, HALT),
        (429, RETRY, RETRY),
        (500, REFUSED, RETRY),
        (502, RETRY, RETRY),
        (503, RETRY, RETRY),
        (504, RETRY, RETRY),
    ] {
        for (protocol, expected) in [(Protocol::Http, http), (Protocol::Grpc, grpc)] {
            let (mut sink, _) = sink(&config(protocol), move |_, _| status(number));
            let failure = sink.deliver(&items(1..=1)).await.unwrap_err();
            assert!(failure.taken == 0 && expected(&failure.error), "{protocol:?} {number} gave {failure:?}");
        }
    }
    let says = |_: usize, _: &Seen| -> Says { (503, vec![("retry-after", "7".into())], Vec::new(), Vec::new()) };
    let error = sink(&config(Protocol::Http), says).0.deliver(&items(1..=1)).await.unwrap_err().error;
    assert!(matches!(error, SinkError::Retry { after: Some(wait), .. } if wait == Duration::from_secs(7)), "{error:?}");
}

/// An answer with this status, content type and body over HTTP.
fn says(status: u16, content_type: &str, body: &[u8]) -> Says {
    let headers = match content_type {
        "" => Vec::new(),
        content_type => vec![("content-type", content_type.to_owned())],
    };
    (status, headers, body.to_vec(), Vec::new())
}

/// The status says that it is taken, whatever the body is.
#[tokio::test]
async fn what_a_2xx_took_is_never_sent_again() {
    let mut gzipped = says(200, "text/html", &gzip(b"<html></html>"));
    gzipped.1.push(("content-encoding", "gzip".to_owned()));
    let huge = vec![b'x'; 2 * ANSWER_BYTES];
    for (answer, warns) in [
        (says(200, "application/json", b"{}"), false),
        (says(200, "application/json", br#"{"partialSuccess":{}}"#), false),
        (says(200, "application/x-protobuf", b""), false),
        (says(202, "", b""), false),
        (says(204, "", b""), false),
        (says(207, "", b"x"), true),
        (says(208, "", b"x"), true),
        (says(200, "application/json", br#"{"ok": 1}"#), true),
        (says(200, "application/json", br#"{"ok": "#), true),
        (says(200, "", br#"[1]"#), true),
        (says(200, "text/plain", b"OK"), true),
        (says(201, "text/html", b"<html>"), true),
        (says(200, "application/x-protobuf", b"\xff\xff\xff"), true),
        (says(200, "application/x-protobuf", &huge), true),
        (gzipped, true),
    ] {
        let told = answer.clone();
        let (mut sink, seen) = sink(&config(Protocol::Http), move |_, _| told.clone());
        for _ in 0..3 {
            sink.deliver(&items(1..=3)).await.unwrap_or_else(|error| panic!("{error}: {answer:?}"));
        }
        assert_eq!(seen.lock().unwrap().len(), 3, "{answer:?}");
        assert_eq!(sink.warned.is_some(), warns, "{answer:?}: {:?}", sink.warned);
    }
}

/// A call of gRPC was done where the server says so, or where it answers it.
#[tokio::test]
async fn what_a_call_took_is_never_sent_again() {
    let says = |headers: &[(&'static str, &str)], body: &[u8], trailers: &[(&'static str, &str)]| -> Says {
        let owned = |pairs: &[(&'static str, &str)]| -> Vec<_> {
            pairs.iter().map(|(name, value)| (*name, (*value).to_owned())).collect()
        };
        (200, owned(headers), body.to_vec(), owned(trailers))
    };
    let ok = [("grpc-status", "0")];
    let whole = b"\0\0\0\0\0";
    for (answer, taken) in [
        (says(&[], whole, &ok), true),
        (says(&ok, b"", &[]), true),
        (says(&ok, whole, &[]), true),
        (says(&[], b"", &ok), true),
        (says(&[], b"\0\0\0\0\x05ab", &ok), true),
        (says(&[], b"<html>", &ok), true),
        (says(&[], whole, &[]), true),
        (says(&[], whole, &[("grpc-status", "fine")]), true),
        (says(&[], b"", &[]), false),
        (says(&[], b"\0\0\0\0\x05ab", &[]), false),
        (says(&[("content-type", "text/html")], b"<html></html>", &[]), false),
    ] {
        let told = answer.clone();
        let (mut sink, seen) = sink(&config(Protocol::Grpc), move |_, _| told.clone());
        let end = sink.deliver(&items(1..=3)).await;
        assert_eq!((end.is_ok(), seen.lock().unwrap().len()), (taken, 1), "{answer:?}");
        if let Err(failure) = end {
            assert!(failure.taken == 0 && RETRY(&failure.error), "{failure:?}");
            assert_eq!(
                failure.error.to_string(),
                "http://127.0.0.1:1/ answered 200 OK without the status of gRPC; does that port take `protocol` = \"grpc\"?"
            );
        }
    }
}

/// What a receiver says in JSON counts as what it says in Protocol Buffers.
#[tokio::test]
async fn a_partial_success_in_json_is_read() {
    for (content_type, body) in [
        ("application/json", r#"{"partialSuccess":{"rejectedLogRecords":"1","errorMessage":"too old"}}"#),
        ("application/json", r#"{"partial_success":{"rejected_log_records":1,"error_message":"too old"}}"#),
        ("application/x-protobuf", r#"{"partialSuccess":{"rejectedLogRecords":1,"errorMessage":"too old"}}"#),
        ("", r#" {"partialSuccess":{"rejectedLogRecords":1,"errorMessage":"too old"}}"#),
    ] {
        let rejects = move |_: usize, seen: &Seen| match seen.seqs().contains(&2) {
            true => says(200, content_type, body.as_bytes()),
            false => says(200, content_type, b"{}"),
        };
        let (mut sink, _) = sink(&config(Protocol::Http), rejects);
        let failure = sink.deliver(&items(1..=3)).await.unwrap_err();
        assert!(failure.taken == 1 && REFUSED(&failure.error), "{failure:?}");
        let text = failure.error.to_string();
        assert_eq!(text, "http://127.0.0.1:1/ rejected 1 of 1 log records: too old", "{body}");
        sink.deliver(&items(3..=3)).await.unwrap();
    }
}

/// The status has come, and the rest never does.
#[tokio::test(start_paused = true)]
async fn a_body_that_never_ends_is_not_waited_for() {
    for (status, taken) in [(200, true), (503, false)] {
        let mut sink = OtlpSink::new(&config(Protocol::Http)).unwrap();
        sink.link.wire = Some(Arc::new(move |_| {
            let drip = futures::stream::unfold((), |()| async {
                tokio::time::sleep(Duration::from_secs(1)).await;
                Some((Ok::<_, std::convert::Infallible>(Frame::data(Bytes::from_static(b"."))), ()))
            });
            let body = reqwest::Body::wrap(StreamBody::new(Box::pin(drip)));
            let answer = http::Response::builder().status(status).body(body).map(reqwest::Response::from);
            std::future::ready(Ok(answer.unwrap())).boxed()
        }));
        let begun = tokio::time::Instant::now();
        assert_eq!(sink.deliver(&items(1..=1)).await.is_ok(), taken);
        assert!(begun.elapsed() < Duration::from_secs(6), "{:?}", begun.elapsed());
    }
}

/// Which of them were rejected is not said: they are sent in halves until the one stands alone.
#[tokio::test]
async fn a_record_that_is_rejected_is_found() {
    for protocol in BOTH {
        let rejects = move |_: usize, seen: &Seen| taken(protocol, i64::from(seen.seqs().contains(&6)));
        let (mut sink, _) = sink(&config(protocol), rejects);
        let failure = sink.deliver(&items(1..=9)).await.unwrap_err();
        assert!(failure.taken == 5 && REFUSED(&failure.error), "{failure:?}");
        assert!(failure.error.to_string().contains("rejected 1 of 1 log records"), "{failure}");
        sink.deliver(&items(7..=9)).await.unwrap();
    }
}

#[tokio::test]
async fn what_is_too_large_is_halved_and_the_server_not_asked_again() {
    for protocol in BOTH {
        let (mut sink, seen) = sink(&config(protocol), move |_, seen| match (seen.seqs().len(), protocol) {
            (4.., Protocol::Grpc) => code(8),
            (4.., Protocol::Http) => (413, Vec::new(), Vec::new(), Vec::new()),
            _ => taken(protocol, 0),
        });
        sink.deliver(&large(1..=10)).await.unwrap();
        let asked = seen.lock().unwrap().len();
        sink.deliver(&large(11..=20)).await.unwrap();
        let seen: Vec<Vec<i64>> = seen.lock().unwrap().iter().map(Seen::seqs).collect();
        let taken: Vec<i64> = seen.iter().filter(|seqs| seqs.len() < 4).flatten().copied().collect();
        assert_eq!(taken, (1..=20).collect::<Vec<_>>());
        assert!(seen[asked..].iter().all(|seqs| seqs.len() < 4), "{seen:?}");
    }
}

#[tokio::test]
async fn no_text_quotes_a_secret_or_what_was_sent() {
    let dir = tempfile::tempdir().unwrap();
    let bearer_file = dir.path().join("token");
    std::fs::write(&bearer_file, "s3cret-t0ken\n").unwrap();
    let config = Settings { bearer_file: Some(bearer_file.clone()), ..config(Protocol::Grpc) };
    let (mut sink, seen) = sink(&config, |number, seen| {
        let authorization = seen.headers[AUTHORIZATION].to_str().unwrap().to_owned();
        let message = match number {
            0 => authorization,
            _ => "cannot take u.1.MODIFIED of deployments at 2026-11-21T10:15:00.000000Z".to_owned(),
        };
        (200, vec![("grpc-status", "3".to_owned()), ("grpc-message", message)], Vec::new(), Vec::new())
    });
    for _ in 0..2 {
        let text = sink.deliver(&items(1..=1)).await.unwrap_err().error.to_string();
        assert_eq!(text, "http://127.0.0.1:1/ answered INVALID_ARGUMENT");
    }
    std::fs::write(&bearer_file, "another").unwrap();
    sink.deliver(&items(1..=1)).await.unwrap_err();
    assert_eq!(seen.lock().unwrap()[2].headers[AUTHORIZATION], "Bearer another");
}

#[tokio::test]
async fn check_sends_no_log_record() {
    for protocol in BOTH {
        let (mut sink, seen) = sink(&config(protocol), move |number, _| match number {
            0 => taken(protocol, 0),
            _ => (404, Vec::new(), Vec::new(), Vec::new()),
        });
        sink.check().await.unwrap();
        assert!(HALT(&sink.check().await.unwrap_err()));
        assert!(seen.lock().unwrap().iter().all(|seen| seen.request.resource_logs.is_empty()));
    }
}

/// Loki answers 204 to what it has taken and 422 to a request with nothing in it, and says why in Protocol Buffers.
#[tokio::test]
async fn loki_is_understood() {
    let message = "error at least one valid stream is required for ingestion.".to_owned();
    let status = proto::Status { code: 0, message, details: Vec::new() }.encode_to_vec();
    let says = move |_: usize, seen: &Seen| match seen.request.resource_logs.is_empty() {
        true => (422, Vec::new(), status.clone(), Vec::new()),
        false if seen.seqs() == [7] => (400, Vec::new(), status.clone(), Vec::new()),
        false => (204, Vec::new(), Vec::new(), Vec::new()),
    };
    let (mut sink, _) = sink(&config(Protocol::Http), says);
    sink.check().await.unwrap();
    sink.deliver(&items(1..=3)).await.unwrap();
    let text = sink.deliver(&items(7..=7)).await.unwrap_err().error.to_string();
    assert_eq!(
        text,
        "http://127.0.0.1:1/ answered 400 Bad Request: error at least one valid stream is required for ingestion"
    );
}

/// The port of the other protocol gives no answer that could say so, and neither does a server that is not well.
#[tokio::test]
async fn who_never_answered_may_speak_the_other_protocol() {
    for (protocol, word) in [(Protocol::Grpc, "grpc"), (Protocol::Http, "http")] {
        let mut sink = OtlpSink::new(&config(protocol)).unwrap();
        let answers: Arc<Mutex<bool>> = Arc::default();
        let shared = Arc::clone(&answers);
        sink.link.wire = Some(Arc::new(move |_| {
            let answer = http::Response::builder().status(503).body("").map(reqwest::Response::from);
            let answer = if *shared.lock().unwrap() { Ok(answer.unwrap()) } else { Err("it was closed".to_owned()) };
            std::future::ready(answer).boxed()
        }));
        let text = sink.check().await.unwrap_err().to_string();
        let doubt =
            format!("no answer from http://127.0.0.1:1/: it was closed; does that port take `protocol` = \"{word}\"?");
        assert_eq!(text, doubt);
        *answers.lock().unwrap() = true;
        assert!(sink.check().await.unwrap_err().to_string().contains("503"));
        *answers.lock().unwrap() = false;
        assert_eq!(sink.check().await.unwrap_err().to_string(), "no answer from http://127.0.0.1:1/: it was closed");
    }
}

#[test]
fn a_path_is_taken_over_http_alone() {
    let url = "http://loki.example:3100/otlp/v1/logs".parse().unwrap();
    let config = Settings { url, ..config(Protocol::Http) };
    assert!(OtlpSink::new(&config).unwrap().path.is_empty());
    let config = Settings { protocol: Protocol::Grpc, ..config };
    assert!(OtlpSink::new(&config).unwrap_err().contains("`protocol`"));
}
