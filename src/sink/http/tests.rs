//! Against a real HTTP server on loopback that answers by a script.

mod credentials;
mod templated;
mod updated;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::Path;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures::StreamExt;
use http_body_util::{BodyExt, StreamBody, combinators::BoxBody};
use hyper::body::{Frame, Incoming};
use hyper::{Request, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::*;
use crate::core::units::{ByteSize, Span};
use crate::core::wire::tests::parsed;
use crate::sink::CREDENTIALS_WAIT;
use crate::sink::link::LONGEST_WAIT;
use crate::sink::settings;
use crate::sink::tests::item;

/// What a request carried.
#[derive(Clone, Debug)]
struct Seen {
    method: Method,
    /// Path and parameters.
    path: String,
    headers: HeaderMap,
    body: Bytes,
}

impl Seen {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// The seqs in a body of any mode.
    fn seqs(&self) -> Vec<u64> {
        let body: serde_json::Value = serde_json::from_slice(&self.body).unwrap();
        let events = body.as_array().cloned().unwrap_or_else(|| vec![body]);
        let entry = |event: &serde_json::Value| event.get("data").unwrap_or(event)["seq"].as_u64().unwrap();
        events.iter().map(entry).collect()
    }
}

/// What the server does with a request.
#[derive(Clone, Debug)]
enum Does {
    Answers(u16),
    Says(u16, &'static str, String, String),
    /// Closes the connection without an answer, after it has read everything.
    Cuts,
    /// Never answers.
    Hangs,
    /// Answers with a body that has no end.
    Babbles(u16),
    /// Sends the beginning of a body, and cuts the connection.
    BreaksOff(u16, String),
}

struct Server {
    url: String,
    seen: Arc<Mutex<Vec<Seen>>>,
    _tasks: JoinSet<()>,
}

impl Server {
    /// Each request is answered as `script` says, which gets its number from 0 and what it carries.
    async fn start(script: impl Fn(usize, &Seen) -> Does + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/in", listener.local_addr().unwrap());
        let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
        let script = Arc::new(script);
        let mut tasks = JoinSet::new();
        let all = Arc::clone(&seen);
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (script, all) = (Arc::clone(&script), Arc::clone(&all));
                let service = service_fn(move |request: Request<Incoming>| {
                    let (script, all) = (Arc::clone(&script), Arc::clone(&all));
                    async move {
                        let (head, body) = request.into_parts();
                        let body = body.collect().await.unwrap().to_bytes();
                        let path = head.uri.to_string();
                        let seen = Seen { method: head.method, path, headers: head.headers, body };
                        let number = {
                            let mut all = all.lock().unwrap();
                            all.push(seen.clone());
                            all.len() - 1
                        };
                        answer(script(number, &seen)).await
                    }
                });
                connections.spawn(async move {
                    let connection = hyper::server::conn::http1::Builder::new();
                    connection.serve_connection(TokioIo::new(stream), service).await.ok();
                });
            }
        });
        Self { url, seen, _tasks: tasks }
    }

    fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    fn seqs(&self) -> Vec<Vec<u64>> {
        self.seen().iter().map(Seen::seqs).collect()
    }
}

type Body = BoxBody<Bytes, std::io::Error>;

async fn answer(does: Does) -> Result<hyper::Response<Body>, std::io::Error> {
    let full =
        |text: String| http_body_util::Full::new(Bytes::from(text)).map_err(|never: Infallible| match never {}).boxed();
    let response = hyper::Response::builder();
    Ok(match does {
        Does::Answers(status) => response.status(status).body(full(String::new())),
        Does::Says(status, name, value, text) => response.status(status).header(name, value).body(full(text)),
        Does::Cuts => return Err(std::io::Error::other("cut")),
        Does::Hangs => std::future::pending().await,
        Does::Babbles(status) => {
            let chunk = || Ok(Frame::data(Bytes::from_static(&[b'x'; 1024])));
            let body = futures::stream::repeat_with(chunk).then(|chunk| async {
                tokio::task::yield_now().await;
                chunk
            });
            response.status(status).body(BodyExt::boxed(StreamBody::new(body)))
        }
        Does::BreaksOff(status, text) => {
            let parts = [Ok(Frame::data(Bytes::from(text))), Err(std::io::Error::other("cut"))];
            // What is sent in the same moment as the end is not.
            let body = futures::stream::iter(parts).then(|part| async {
                tokio::task::yield_now().await;
                part
            });
            response.status(status).body(BodyExt::boxed(StreamBody::new(body)))
        }
    }
    .unwrap())
}

fn config(url: &str, format: BodyFormat) -> Settings {
    Settings {
        url: url.parse().unwrap(),
        format,
        body: None,
        body_file: None,
        content_type: None,
        notify: Vec::new(),
        group: None,
        group_wait: None,
        digest: None,
        escape: None,
        update: None,
        accepted: None,
        batch_size: 100,
        batch_bytes: ByteSize(1 << 20),
        batch_age: None,
        headers: BTreeMap::new(),
        headers_file: None,
        bearer_file: None,
        signing_key_file: None,
        allow_networks: Vec::new(),
        tls: settings::Tls::default(),
        timeout: Span::from_secs(20),
    }
}

fn sink(server: &Server, format: BodyFormat) -> HttpSink {
    HttpSink::new(&config(&server.url, format)).unwrap()
}

fn items(seqs: std::ops::RangeInclusive<u64>) -> Vec<Item> {
    seqs.map(item).collect()
}

#[tokio::test]
async fn binary_mode_has_the_attributes_in_headers_and_the_entry_as_body() {
    let server = Server::start(|_, _| Does::Answers(202)).await;
    sink(&server, BodyFormat::Binary).deliver(&items(1..=2)).await.unwrap();
    let seen = server.seen();
    let names = ["ce-specversion", "ce-id", "ce-source", "ce-type", "ce-subject", "ce-time", "content-type"];
    let values = names.map(|name| seen[1].header(name).to_owned());
    assert_eq!(
        values,
        [
            "1.0",
            "u.2.MODIFIED",
            "//prod/apis/apps/v1/deployments",
            "io.decklog.modified.v1",
            "shop/web",
            "2026-11-21T10:15:00.000000Z",
            "application/json"
        ]
    );
    assert_eq!(seen[1].body, item(2).line);
    assert_eq!(seen.len(), 2);
}

#[tokio::test]
async fn structured_and_batched_modes_carry_the_entry_byte_for_byte() {
    let server = Server::start(|_, _| Does::Answers(204)).await;
    sink(&server, BodyFormat::Structured).deliver(&items(1..=1)).await.unwrap();
    sink(&server, BodyFormat::Batched).deliver(&items(2..=4)).await.unwrap();
    let seen = server.seen();
    assert_eq!(seen[0].header("content-type"), "application/cloudevents+json");
    assert_eq!(seen[1].header("content-type"), "application/cloudevents-batch+json");
    assert_eq!(server.seqs(), [vec![1], vec![2, 3, 4]]);
    for (request, seq) in [(0, 1), (1, 2), (1, 3), (1, 4)] {
        let line = item(seq).line;
        assert!(memchr::memmem::find(&seen[request].body, &line).is_some(), "entry {seq}");
    }
}

#[tokio::test]
async fn an_entry_is_read_once() {
    let server = Server::start(|_, _| Does::Answers(200)).await;
    for format in [BodyFormat::Binary, BodyFormat::Structured, BodyFormat::Batched] {
        let (batch, mut sink, before) = (items(1..=3), sink(&server, format), parsed());
        // As after an answer that was lost.
        for _ in 0..2 {
            sink.deliver(&batch).await.unwrap();
        }
        assert_eq!(parsed() - before, batch.len());
    }
}

#[tokio::test]
async fn batches_are_bounded_by_count_and_by_bytes() {
    let server = Server::start(|_, _| Does::Answers(200)).await;
    let config = Settings { batch_size: 3, ..config(&server.url, BodyFormat::Batched) };
    HttpSink::new(&config).unwrap().deliver(&items(1..=7)).await.unwrap();
    assert_eq!(server.seqs(), [vec![1, 2, 3], vec![4, 5, 6], vec![7]]);
    let mut large = items(1..=3);
    for item in &mut large {
        let line = String::from_utf8(item.line.to_vec()).unwrap();
        item.line = line.replace("\"web\"}", &format!("\"{}\"}}", "w".repeat(600_000))).into();
    }
    assert_eq!(first_part(&large, 3, 1 << 20).len(), 1);
    assert_eq!(first_part(&large, 3, 2 << 20).len(), 3);
    let config = Settings { batch_bytes: ByteSize(4096), batch_age: Some(Span::from_secs(3)), ..config };
    let limits = HttpSink::new(&config).unwrap().limits();
    assert_eq!((limits.entries, limits.bytes, limits.linger), (3, 4096, Duration::from_secs(3)));
}

/// Fault 63: every status, the 5xx among them.
#[tokio::test]
async fn each_status_means_what_the_contract_says() {
    let server = Server::start(|_, seen| Does::Answers(seen.header("ask").parse().unwrap())).await;
    for status in [
        200, 201, 202, 204, 299, 300, 301, 302, 307, 308, 400, 401, 403, 404, 407, 408, 409, 410, 413, 415, 422, 425,
        429, 500, 501, 502, 503, 504, 599,
    ] {
        let mut config = config(&server.url, BodyFormat::Binary);
        config.headers = [("ask".to_owned(), status.to_string())].into();
        let answer = HttpSink::new(&config).unwrap().deliver(&items(1..=1)).await.map_err(|failure| failure.error);
        let right = match status {
            200..=299 => answer.is_ok(),
            300..=399 => matches!(&answer, Err(SinkError::Halt { text }) if text.contains("redirects")),
            401 | 403 | 407 => {
                matches!(&answer, Err(SinkError::Retry { text, after: Some(CREDENTIALS_WAIT) }) if text.contains("credentials"))
            }
            408 | 425 | 429 | 500.. => matches!(answer, Err(SinkError::Retry { after: None, .. })),
            _ => matches!(&answer, Err(SinkError::Refused { text }) if text.contains(&status.to_string())),
        };
        assert!(right, "{status} gave {answer:?}");
    }
}

#[tokio::test]
async fn the_server_says_how_long_to_wait() {
    let soon = jiff::Timestamp::now() + Duration::from_secs(90);
    let date = jiff::fmt::rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&soon).unwrap();
    let server = Server::start(move |number, _| {
        let value = match number {
            0 => "7".to_owned(),
            1 => date.clone(),
            2 => "99999999".to_owned(),
            _ => "soon".to_owned(),
        };
        Does::Says(503, "Retry-After", value, String::new())
    })
    .await;
    let mut sink = sink(&server, BodyFormat::Binary);
    let mut waits = Vec::new();
    for _ in 0..4 {
        let error = sink.deliver(&items(1..=1)).await.unwrap_err().error;
        let SinkError::Retry { after, .. } = error else { panic!("{error}") };
        waits.push(after);
    }
    assert_eq!(waits[0], Some(Duration::from_secs(7)));
    assert!(waits[1].is_some_and(|wait| (60..=90).contains(&wait.as_secs())), "{waits:?}");
    assert_eq!((waits[2], waits[3]), (Some(LONGEST_WAIT), None));
}

/// Fault 63: the answer is lost after the body was sent.
#[tokio::test]
async fn a_lost_answer_is_followed_by_the_same_id_and_the_same_bytes() {
    let server = Server::start(|number, _| if number == 1 { Does::Cuts } else { Does::Answers(200) }).await;
    let mut sink = sink(&server, BodyFormat::Binary);
    let batch = items(1..=3);
    let failure = sink.deliver(&batch).await.unwrap_err();
    assert!(matches!(failure, Failure { taken: 1, error: SinkError::Retry { .. } }), "{failure}");
    sink.deliver(&batch[1..]).await.unwrap();
    let seen = server.seen();
    assert_eq!(server.seqs(), [[1], [2], [2], [3]]);
    assert_eq!((&seen[1].body, seen[1].header("ce-id")), (&seen[2].body, seen[2].header("ce-id")));
}

/// Fault 65: a redirect.
#[tokio::test]
async fn redirects_are_not_followed() {
    let other = Server::start(|_, _| Does::Answers(200)).await;
    let to = format!("{}?token=hidden", other.url);
    let server = Server::start(move |_, _| Does::Says(307, "Location", to.clone(), String::new())).await;
    let failure = sink(&server, BodyFormat::Structured).deliver(&items(1..=1)).await.unwrap_err();
    let text = failure.error.to_string();
    assert!(matches!(failure.error, SinkError::Halt { .. }), "{text}");
    let to = other.url.replace("/in", "/…");
    assert!(text.contains(&to) && !text.contains("hidden") && !text.contains("/in"), "{text}");
    assert!(other.seen().is_empty());
}

#[tokio::test]
async fn a_batch_that_is_too_large_is_split_in_order() {
    let server = Server::start(|_, seen| Does::Answers(if seen.seqs().len() > 3 { 413 } else { 200 })).await;
    sink(&server, BodyFormat::Batched).deliver(&items(1..=10)).await.unwrap();
    let taken: Vec<u64> = server.seqs().into_iter().filter(|seqs| seqs.len() <= 3).flatten().collect();
    assert_eq!(taken, (1..=10).collect::<Vec<_>>());
}

/// Fault 64: one of many is refused.
#[tokio::test]
async fn the_entry_that_a_server_refuses_is_found_in_a_batch() {
    let server = Server::start(|_, seen| Does::Answers(if seen.seqs().contains(&6) { 400 } else { 200 })).await;
    let mut sink = sink(&server, BodyFormat::Batched);
    let failure = sink.deliver(&items(1..=9)).await.unwrap_err();
    assert!(matches!(failure, Failure { taken: 5, error: SinkError::Refused { .. } }), "{failure}");
    sink.deliver(&items(7..=9)).await.unwrap();
}

#[tokio::test]
async fn an_answer_without_an_end_is_not_read_to_its_end() {
    let server = Server::start(|number, _| Does::Babbles(if number == 0 { 500 } else { 200 })).await;
    let mut sink = sink(&server, BodyFormat::Binary);
    let error = sink.deliver(&items(1..=1)).await.unwrap_err().error.to_string();
    assert!(error.len() < 400, "{error}");
    sink.deliver(&items(1..=1)).await.unwrap();
}

/// Fault 63: no answer at all.
#[tokio::test]
async fn a_server_that_hangs_is_left_after_the_timeout() {
    let server = Server::start(|_, _| Does::Hangs).await;
    let config = Settings { timeout: Duration::from_millis(50).into(), ..config(&server.url, BodyFormat::Binary) };
    let error = HttpSink::new(&config).unwrap().deliver(&items(1..=1)).await.unwrap_err().error;
    assert!(matches!(&error, SinkError::Retry { text, .. } if text.contains("did not answer within 50ms")), "{error}");
}

#[tokio::test]
async fn check_asks_without_delivering() {
    let server = Server::start(|number, _| Does::Answers([405, 501, 301, 401, 503][number])).await;
    let mut sink = sink(&server, BodyFormat::Binary);
    sink.check().await.unwrap();
    sink.check().await.unwrap();
    assert!(matches!(sink.check().await, Err(SinkError::Halt { .. })));
    for status in ["401", "503"] {
        let error = sink.check().await.unwrap_err();
        assert!(matches!(&error, SinkError::Retry { text, .. } if text.contains(status)), "{error}");
    }
    assert!(server.seen().iter().all(|seen| seen.method == Method::OPTIONS && seen.body.is_empty()));
    drop(server);
    // The connection that there was is closed, or there is none any more.
    let error = sink.check().await.unwrap_err().to_string();
    assert!(["cannot connect to ", "no answer from "].iter().any(|says| error.starts_with(says)), "{error}");
}

#[tokio::test]
async fn what_can_never_work_is_refused_at_once() {
    for url in ["ftp://x/", "not a url", "/relative"] {
        let error = url.parse::<settings::HttpUrl>().unwrap_err();
        assert!(error.contains("expected an http:// or https:// URL"), "{error}");
    }
    let ca_file = Some(Path::new("/dev/null").to_owned());
    let tls = settings::Tls { ca_file, ..settings::Tls::default() };
    let config = Settings { tls, ..config("https://127.0.0.1:1/", BodyFormat::Binary) };
    let error = HttpSink::new(&config).unwrap().deliver(&items(1..=1)).await.unwrap_err().error;
    assert!(error.to_string().contains("holds no PEM certificate"), "{error}");
}
