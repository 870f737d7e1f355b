//! CloudEvents over HTTP, to a server that reads them and answers.

use axum::Router;
use axum::extract::DefaultBodyLimit;
use bytes::Bytes;
use decklog::core::wire::cloudevents::Event;
use decklog::sink::Item;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, StatusCode};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::{Bench, Case, ENTRIES, Plain, at_once};

struct Posts {
    client: Client,
    url: String,
    batched: bool,
}

/// A client on one connection.
pub(super) fn client() -> Client {
    Client::builder().tls_certs_only([]).no_proxy().build().expect("a client")
}

fn event(item: &Item) -> Event<'_> {
    Event::of(item.header().expect("an entry"), &item.line)
}

impl Plain for Posts {
    /// The requests.
    type Batch = Vec<(HeaderMap, Bytes)>;

    fn prepare(&self, items: &[Item]) -> Self::Batch {
        if self.batched {
            let events: Vec<Vec<u8>> = items.iter().map(|item| event(item).structured()).collect();
            let body = [b"[", &events.join(&b","[..])[..], b"]"].concat();
            let kind = HeaderValue::from_static("application/cloudevents-batch+json");
            return vec![(HeaderMap::from_iter([(CONTENT_TYPE, kind)]), body.into())];
        }
        let one = |item: &Item| {
            let header = |(name, value): (&'static str, String)| {
                (HeaderName::from_static(name), value.parse().expect("a value of a header"))
            };
            let mut headers: HeaderMap = event(item).headers().into_iter().map(header).collect();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            (headers, item.line.clone())
        };
        items.iter().map(one).collect()
    }

    async fn send(&mut self, batch: Self::Batch) {
        for (headers, body) in batch {
            let answer = self.client.post(&self.url).headers(headers).body(body).send().await.expect("an answer");
            assert_eq!(answer.status(), StatusCode::NO_CONTENT);
        }
    }
}

pub(super) async fn compare(bench: &mut Bench<'_>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}/", listener.local_addr().expect("an address"));
    let app = Router::new().fallback(async |_: Bytes| StatusCode::NO_CONTENT).layer(DefaultBodyLimit::max(64 << 20));
    let mut serving = JoinSet::new();
    serving.spawn(async { axum::serve(listener, app).await });
    for (what, format, batched, entries) in [
        ("http, an entry in each request", "binary", false, ENTRIES / 2),
        ("http, format = \"batched\"", "batched", true, ENTRIES),
    ] {
        let case = Case {
            what,
            baseline: "reqwest, bodies that are ready",
            entries,
            keys: &|_| json!({ "type": "http", "url": url, "format": format }),
        };
        let plain = async |_: &str| Posts { client: client(), url: url.clone(), batched };
        bench.compare(case, plain, at_once).await;
    }
}
