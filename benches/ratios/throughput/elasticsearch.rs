//! Documents in OpenSearch.

use decklog::sink::Item;
use decklog_testkit::servers::elasticsearch as start;
use reqwest::header::{CONTENT_ENCODING, CONTENT_TYPE};
use reqwest::{Client, StatusCode};
use serde_json::{Value, json};

use self::start::OpenSearch;
use super::http::client;
use super::otlp::gzip;
use super::{Bench, Case, ENTRIES, Plain, at_once};

/// A server that indexes texts is slower than the others.
const DOCUMENTS: usize = ENTRIES / 10;

struct Bulk {
    client: Client,
    url: String,
    index: String,
}

impl Plain for Bulk {
    type Batch = Vec<u8>;

    fn prepare(&self, items: &[Item]) -> Vec<u8> {
        let mut out = String::new();
        for item in items {
            let text = std::str::from_utf8(&item.line).expect("a line is text");
            let mut document: Value = serde_json::from_str(text).expect("a line is JSON");
            let each = |list: &Value, key: &str| -> Vec<Value> {
                list.as_array().into_iter().flatten().map(|one| one[key].clone()).collect()
            };
            let action = json!({ "create": { "_index": self.index, "_id": document["id"] } });
            document["@timestamp"] = document["time"].take();
            if let Some(change) = document.get("change") {
                let (paths, managers) = (each(&change["patch"], "path"), each(&change["managers"], "manager"));
                document["change"] = json!({ "areas": change["areas"], "paths": paths, "managers": managers });
            }
            if let Some(managers) = document.get("managers") {
                document["managers"] = each(managers, "manager").into();
            }
            let fields = document.as_object_mut().expect("an object");
            for other in ["v", "time", "object"] {
                fields.remove(other);
            }
            document["entry"] = text.into();
            out += &format!("{action}\n{document}\n");
        }
        out.into_bytes()
    }

    async fn send(&mut self, batch: Vec<u8>) {
        let request = self.client.post(&self.url).header(CONTENT_TYPE, "application/x-ndjson");
        let answer = request.header(CONTENT_ENCODING, "gzip").body(gzip(&batch)).send().await.expect("an answer");
        assert_eq!(answer.status(), StatusCode::OK);
        let answer: Value = serde_json::from_slice(&answer.bytes().await.expect("an answer")).expect("JSON");
        assert_eq!(answer["errors"], false, "{answer:.2000}");
    }
}

pub(super) async fn compare(bench: &mut Bench<'_>) {
    let search = OpenSearch::start(&[]).await;
    let url = format!("http://127.0.0.1:{}", search.server.port());
    // The index template that is made is for all runs.
    let case = Case {
        what: "elasticsearch (OpenSearch)",
        baseline: "reqwest, a bulk request that is ready, gzip",
        entries: DOCUMENTS,
        keys: &|run| json!({ "type": "elasticsearch", "url": url, "index": format!("log-{run}") }),
    };
    let plain = async |run: &str| Bulk {
        client: client(),
        url: format!("{url}/_bulk?filter_path=errors,items.*.error"),
        index: format!("log-{run}"),
    };
    bench.compare(case, plain, at_once).await;
}
