//! The simulated server through real HTTP, read by a plain client and by kube's own.

mod exact;
mod second_opinion;
mod trouble;
mod watches;

use std::collections::BTreeMap;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{Api, DynamicObject, ListParams, PostParams, WatchEvent, WatchParams};
use kube::discovery::{ApiResource, Discovery};
use reqwest::header::{ACCEPT, ETAG, IF_NONE_MATCH};
use reqwest::{Client, Response, StatusCode};
use serde_json::{Value, json};

use super::faults::{Act, At, Fault, How, On, Refusal, Signal, Then};
use super::{Kind, Settings, Sim, TOKEN, objects};

fn client() -> Client {
    // One of the tests is the first; for the others it is there already.
    crate::core::net::install_crypto_provider();
    Client::builder().no_proxy().build().unwrap()
}

async fn sim() -> Sim {
    Sim::start().await.unwrap()
}

async fn ask(sim: &Sim, path: &str) -> Response {
    client().get(format!("{}{path}", sim.url())).bearer_auth(TOKEN).send().await.unwrap()
}

async fn get(sim: &Sim, path: &str) -> (u16, Value) {
    let response = ask(sim, path).await;
    let status = response.status().as_u16();
    (status, serde_json::from_slice(&response.bytes().await.unwrap()).unwrap_or_default())
}

/// A list of metadata only.
async fn metadata(sim: &Sim, path: &str) -> Value {
    let accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    let request = client().get(format!("{}{path}", sim.url())).bearer_auth(TOKEN).header("accept", accept);
    serde_json::from_slice(&request.send().await.unwrap().bytes().await.unwrap()).unwrap()
}

/// The lines of a watch, until it ends or breaks; the unfinished rest comes last.
struct Lines {
    response: Response,
    buffer: Vec<u8>,
    broken: bool,
}

impl Lines {
    async fn open(sim: &Sim, path: &str) -> Self {
        let response = ask(sim, path).await;
        assert_eq!(response.status(), StatusCode::OK, "{path}");
        Self { response, buffer: Vec::new(), broken: false }
    }

    /// The next whole line; `None` at the end.
    async fn line(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(end) = self.buffer.iter().position(|b| *b == b'\n') {
                let rest = self.buffer.split_off(end + 1);
                return Some(std::mem::replace(&mut self.buffer, rest));
            }
            match self.response.chunk().await {
                Ok(Some(bytes)) => self.buffer.extend_from_slice(&bytes),
                Ok(None) => return None,
                Err(_) => {
                    self.broken = true;
                    return None;
                }
            }
        }
    }

    /// The next event: its type, the name of its object, and its resourceVersion or code.
    async fn event(&mut self) -> Option<(String, String, u64)> {
        let line = self.line().await?;
        let event: Value = serde_json::from_slice(&line).unwrap();
        let (kind, object) = (event["type"].as_str().unwrap().to_owned(), &event["object"]);
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let version = &object["metadata"]["resourceVersion"];
        let number = version.as_str().map_or_else(|| object["code"].as_u64().unwrap(), |v| v.parse().unwrap());
        Some((kind, name, number))
    }

    async fn all(&mut self) -> Vec<(String, String, u64)> {
        let mut all = Vec::new();
        while let Some(event) = self.event().await {
            all.push(event);
        }
        all
    }
}

fn event(kind: &str, name: &str, version: u64) -> Option<(String, String, u64)> {
    Some((kind.to_owned(), name.to_owned(), version))
}

fn map(name: &str, value: &str) -> Value {
    objects::config_map("shop", name, value)
}

const MAPS: &str = "/api/v1/configmaps";

#[tokio::test]
async fn pages_of_a_list_are_one_snapshot() {
    let sim = sim().await;
    for n in 0..7 {
        sim.create("configmaps", map(&format!("m{n}"), "old")).unwrap();
    }
    let revision = sim.revision();
    let (_, first) = get(&sim, &format!("{MAPS}?limit=3")).await;
    assert_eq!(first["metadata"]["remainingItemCount"], 4);
    assert_eq!(first["kind"], "ConfigMapList");
    assert!(first["items"][0].get("kind").is_none(), "items of built-in lists carry no kind");
    // What happens between the pages is not in them.
    sim.patch("configmaps", "shop", "m5", &json!({"data": {"value": "new"}})).unwrap();
    sim.delete("configmaps", "shop", "m4").unwrap();
    sim.create("configmaps", map("m3a", "new")).unwrap();
    let mut items = first["items"].as_array().unwrap().clone();
    let mut token = first["metadata"]["continue"].as_str().unwrap().to_owned();
    while !token.is_empty() {
        let (status, page) = get(&sim, &format!("{MAPS}?limit=3&continue={token}")).await;
        assert_eq!(status, 200);
        assert_eq!(page["metadata"]["resourceVersion"], revision.to_string());
        items.extend(page["items"].as_array().unwrap().clone());
        token = page["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
    }
    let seen: Vec<_> =
        items.iter().map(|item| (item["metadata"]["name"].as_str().unwrap(), &item["data"]["value"])).collect();
    assert_eq!(seen.len(), 7);
    assert!(seen.iter().all(|(_, value)| **value == "old"), "{seen:?}");

    sim.compact_all();
    let token = first["metadata"]["continue"].as_str().unwrap();
    let (status, refusal) = get(&sim, &format!("{MAPS}?limit=3&continue={token}")).await;
    assert_eq!((status, refusal["reason"].as_str()), (410, Some("Expired")));
    let token = refusal["metadata"]["continue"].as_str().unwrap();
    let (status, rest) = get(&sim, &format!("{MAPS}?continue={token}")).await;
    assert_eq!((status, rest["items"].as_array().unwrap().len()), (200, 4), "m3 m3a m5 m6, as they are now");
}

#[tokio::test]
async fn lists_follow_the_table_of_resource_versions() {
    let sim = sim().await;
    sim.set(|settings| settings.too_large_wait = Duration::ZERO);
    sim.create("configmaps", map("a", "1")).unwrap();
    let old = sim.revision();
    sim.patch("configmaps", "shop", "a", &json!({"data": {"value": "2"}})).unwrap();
    let now = sim.revision();
    let value = |list: &Value| list["items"][0]["data"]["value"].as_str().unwrap_or_default().to_owned();
    for (query, expected) in [
        (String::new(), "2"),
        ("?resourceVersion=0".to_owned(), "2"),
        (format!("?resourceVersion={old}"), "2"),
        (format!("?resourceVersion={old}&limit=5"), "1"),
        (format!("?resourceVersion={old}&resourceVersionMatch=Exact"), "1"),
        (format!("?resourceVersion={old}&resourceVersionMatch=NotOlderThan&limit=1"), "2"),
    ] {
        let (status, list) = get(&sim, &format!("{MAPS}{query}")).await;
        assert_eq!((status, value(&list).as_str()), (200, expected), "{query}");
    }
    let future = now + 10;
    for (query, expected) in [
        (format!("?resourceVersion={future}&resourceVersionMatch=NotOlderThan"), (504, "Timeout")),
        ("?resourceVersionMatch=Exact".to_owned(), (422, "Invalid")),
        ("?resourceVersion=0&resourceVersionMatch=Exact".to_owned(), (422, "Invalid")),
        ("?resourceVersion=1&resourceVersionMatch=Roughly".to_owned(), (422, "Invalid")),
        ("?resourceVersion=x".to_owned(), (400, "BadRequest")),
        ("?continue=x".to_owned(), (400, "BadRequest")),
        ("?labelSelector=a+b".to_owned(), (400, "BadRequest")),
    ] {
        let (status, refusal) = get(&sim, &format!("{MAPS}{query}")).await;
        assert_eq!((status, refusal["reason"].as_str().unwrap()), expected, "{query}");
    }
    let response = ask(&sim, &format!("{MAPS}?resourceVersion={future}&resourceVersionMatch=NotOlderThan")).await;
    assert_eq!(response.headers()["retry-after"], "1");
    let refusal: Value = serde_json::from_slice(&response.bytes().await.unwrap()).unwrap();
    assert_eq!(refusal["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
    sim.compact_all();
    let (status, _) = get(&sim, &format!("{MAPS}?resourceVersion={old}&resourceVersionMatch=Exact")).await;
    assert_eq!(status, 410);
}

#[tokio::test]
async fn custom_resources_come_and_go_with_their_definition() {
    let sim = sim().await;
    let widgets = "/apis/example.com/v1/widgets";
    assert_eq!(get(&sim, widgets).await.0, 404);
    sim.define(objects::crd("widgets.example.com", "Widget", true, &["v1", "v1beta1"])).unwrap();
    let widget = json!({"metadata": {"name": "w", "namespace": "shop"}, "spec": {"size": 1}});
    let made = sim.create("widgets.example.com", widget).unwrap().revision;
    let (_, list) = get(&sim, "/apis/example.com/v1beta1/widgets").await;
    assert_eq!(list["items"][0]["apiVersion"], "example.com/v1beta1");
    assert_eq!(list["items"][0]["kind"], "Widget", "items of custom lists carry their kind");
    let mut first = Lines::open(&sim, &format!("{widgets}?watch=true&resourceVersion={made}")).await;
    sim.serve_versions("widgets.example.com", &["v1"]).unwrap();
    assert_eq!(first.event().await, None, "a change of the definition ends its watches");
    assert_eq!(get(&sim, "/apis/example.com/v1beta1/widgets").await.0, 404);
    let mut second = Lines::open(&sim, &format!("{widgets}?watch=true&resourceVersion={made}")).await;
    sim.undefine("widgets.example.com").unwrap();
    let gone = sim.history_of("widgets.example.com").pop().unwrap();
    assert_eq!(gone.kind, Kind::Deleted);
    assert_eq!(second.all().await, [event("DELETED", "w", gone.revision).unwrap()]);
    assert_eq!(get(&sim, widgets).await.0, 404);
    assert_eq!(sim.history().pop().unwrap().name.as_ref(), "widgets.example.com", "the definition goes last");
}

#[tokio::test]
async fn writes_go_over_http_too() {
    let sim = sim().await;
    sim.create_namespace("shop").unwrap();
    let url = format!("{}/api/v1/namespaces/shop/configmaps", sim.url());
    let send = async |method: &str, path: &str, kind: &str, body: Value| {
        let request = client().request(method.parse().unwrap(), format!("{url}{path}")).bearer_auth(TOKEN);
        let response = request.header("content-type", kind).body(body.to_string()).send().await.unwrap();
        (response.status().as_u16(), serde_json::from_slice::<Value>(&response.bytes().await.unwrap()).unwrap())
    };
    let json_type = "application/json";
    let (status, made) = send("POST", "", json_type, json!({"metadata": {"name": "a"}, "data": {"k": "1"}})).await;
    assert_eq!((status, made["metadata"]["namespace"].as_str()), (201, Some("shop")));
    let (status, refusal) = send("POST", "", json_type, json!({"metadata": {"name": "a"}})).await;
    assert_eq!((status, refusal["reason"].as_str()), (409, Some("AlreadyExists")));
    let merge = "application/merge-patch+json";
    let (_, patched) = send("PATCH", "/a", merge, json!({"data": {"k": null, "l": "2"}})).await;
    assert_eq!(patched["data"], json!({"l": "2"}));
    let (status, refusal) = send("PUT", "/a", json_type, made).await;
    assert_eq!((status, refusal["reason"].as_str()), (409, Some("Conflict")), "the old version is no longer current");
    assert_eq!(send("DELETE", "/a", json_type, json!({})).await.0, 200);
    assert_eq!(send("DELETE", "/a", json_type, json!({})).await.0, 404);
    let kinds: Vec<_> = sim.history_of("configmaps").iter().map(|row| row.kind).collect();
    assert_eq!(kinds, [Kind::Added, Kind::Modified, Kind::Deleted]);
    let text = ask(&sim, "/metrics").await.text().await.unwrap();
    let counted = "apiserver_request_total{code=\"409\",component=\"apiserver\",dry_run=\"\",group=\"\",resource=\"configmaps\",\
                   scope=\"resource\",subresource=\"\",verb=\"PUT\",version=\"v1\"} 1";
    assert!(text.contains(counted), "{text}");
}

#[tokio::test]
async fn finalizers_hold_an_object() {
    let sim = sim().await;
    let mut held = map("a", "1");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    sim.create("configmaps", held).unwrap();
    let row = sim.delete("configmaps", "shop", "a").unwrap();
    assert_eq!(row.kind, Kind::Modified);
    assert!(row.value()["metadata"]["deletionTimestamp"].is_string());
    let row = sim.patch("configmaps", "shop", "a", &json!({"metadata": {"finalizers": null}})).unwrap();
    assert_eq!(row.kind, Kind::Deleted);
    assert!(sim.get("configmaps", "shop", "a").is_err());
}

#[tokio::test]
async fn bulk_pods_are_real_pods() {
    let sim = sim().await;
    sim.bulk_pods(1200).unwrap();
    let (_, page) = get(&sim, "/api/v1/pods?limit=500").await;
    let items = page["items"].as_array().unwrap();
    assert_eq!((items.len(), &page["metadata"]["remainingItemCount"]), (500, &json!(700)));
    let size = sim.get("pods", "bulk", "bulk-0000000").unwrap().bytes().len();
    assert!((7_000..10_000).contains(&size), "{size} bytes");
    let pod: Pod = serde_json::from_value(items[7].clone()).unwrap();
    assert_eq!(pod.metadata.name.as_deref(), Some("bulk-0000007"));
    assert_eq!(pod.metadata.managed_fields.unwrap().len(), 3);
    let start = sim.revision();
    sim.touch_bulk(3);
    let mut lines = Lines::open(&sim, &format!("/api/v1/pods?watch=true&resourceVersion={start}")).await;
    for n in 0..3 {
        assert_eq!(lines.event().await, event("MODIFIED", &format!("bulk-000000{n}"), start + 1 + n));
    }
    sim.patch("pods", "bulk", "bulk-0000003", &json!({"metadata": {"labels": {"odd": "yes"}}})).unwrap();
    let (_, odd) = get(&sim, "/api/v1/pods?labelSelector=odd&fieldSelector=status.phase%3DRunning").await;
    assert_eq!(odd["items"].as_array().unwrap().len(), 1);
    let list = metadata(&sim, "/api/v1/pods?limit=2").await;
    assert_eq!(list["kind"], "PartialObjectMetadataList");
    assert_eq!(list["items"][1]["metadata"]["name"], "bulk-0000001");
    assert_eq!(list["items"][1].get("spec"), None);
}

#[tokio::test]
async fn the_request_log_can_be_waited_for() {
    let sim = sim().await;
    sim.set(|settings| settings.bookmarks_every = Duration::from_secs(60));
    let asking = async {
        ask(&sim, &format!("{MAPS}?limit=500&labelSelector=a%3Db")).await;
    };
    let (waited, ()) =
        tokio::join!(sim.wait_for_requests(|log| log.iter().any(|seen| seen.is_list("configmaps"))), asking);
    waited.unwrap();
    let seen = sim.requests().pop().unwrap();
    assert_eq!((seen.method.as_str(), seen.status), ("GET", Some(200)));
    assert_eq!(seen.param("labelSelector").as_deref(), Some("a=b"));
    assert_eq!(seen.param("limit").as_deref(), Some("500"));
    assert_eq!(sim.count(&On::list("*")), 1);
}
