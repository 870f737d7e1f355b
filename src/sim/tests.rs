//! The simulated server through real HTTP, read by a plain client and by kube's own.

mod exact;

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
async fn a_watch_resumes_exactly_where_it_should() {
    let sim = sim().await;
    let first = sim.create("configmaps", map("a", "1")).unwrap().revision;
    let second = sim.create("configmaps", map("b", "1")).unwrap().revision;
    let mut lines = Lines::open(&sim, &format!("{MAPS}?watch=true&resourceVersion={first}")).await;
    assert_eq!(lines.event().await, event("ADDED", "b", second));
    let third = sim.patch("configmaps", "shop", "a", &json!({"data": {"value": "2"}})).unwrap().revision;
    let same = sim.patch("configmaps", "shop", "a", &json!({"data": {"value": "2"}})).unwrap().revision;
    assert_eq!(third, same, "a write that changes nothing makes no revision");
    assert_eq!(lines.event().await, event("MODIFIED", "a", third));
    let fourth = sim.delete("configmaps", "shop", "a").unwrap().revision;
    assert_eq!(lines.event().await, event("DELETED", "a", fourth));
    sim.wait_for_watches("configmaps", 1).await.unwrap();
    drop(lines);
    sim.wait_for_watches("configmaps", 0).await.unwrap();

    let kinds: Vec<_> = sim.history_of("configmaps").iter().map(|row| (row.kind, row.revision)).collect();
    let expected = [(Kind::Added, first), (Kind::Added, second), (Kind::Modified, third), (Kind::Deleted, fourth)];
    assert_eq!(kinds, expected);
    let last = sim.history().pop().unwrap().value();
    assert_eq!(last["metadata"]["resourceVersion"], fourth.to_string());
    assert_eq!(last["data"]["value"], "2", "a deleted object keeps its last state");
}

#[tokio::test]
async fn objects_go_over_the_wire_byte_by_byte() {
    let sim = sim().await;
    let text =
        r#"{"zeta":1.0e10,"metadata":{"name":"odd","namespace":"shop"},"alpha":[12345678901234567890123,  "é\u0000"]}"#;
    let object = super::Object::parse(text.as_bytes()).unwrap();
    let row = sim.create("configmaps", object).unwrap();
    let bytes = String::from_utf8(row.bytes().to_vec()).unwrap();
    assert!(
        bytes
            .starts_with(r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"odd","namespace":"shop","uid":"#),
        "{bytes}"
    );
    assert!(bytes.ends_with(r#","zeta":1.0e10,"alpha":[12345678901234567890123,  "é\u0000"]}"#), "{bytes}");
    let line = Lines::open(&sim, &format!("{MAPS}?watch=1&resourceVersion=1")).await.line().await.unwrap();
    assert_eq!(String::from_utf8(line).unwrap(), format!("{{\"type\":\"ADDED\",\"object\":{bytes}}}\n"));
}

#[tokio::test]
async fn what_is_compacted_is_gone_in_both_forms() {
    let sim = sim().await;
    let old = sim.create("configmaps", map("a", "1")).unwrap().revision;
    sim.create("configmaps", map("b", "1")).unwrap();
    sim.compact_all();
    let path = format!("{MAPS}?watch=true&resourceVersion={old}");
    assert_eq!(Lines::open(&sim, &path).await.all().await, [event("ERROR", "", 410).unwrap()]);
    sim.set(|settings| settings.http_410 = true);
    let (status, refusal) = get(&sim, &path).await;
    assert_eq!((status, refusal["reason"].as_str()), (410, Some("Expired")));
    assert_eq!(sim.history_of("configmaps").len(), 2, "the truth is not compacted");

    // The window of one resource, with the rest of history there.
    let newest = sim.revision();
    sim.create("secrets", objects::secret("shop", "s", &[("k", "v")])).unwrap();
    sim.expire_watch_history("secrets", sim.revision());
    assert_eq!(get(&sim, &format!("/api/v1/secrets?watch=true&resourceVersion={newest}")).await.0, 410);
    sim.set(|settings| settings.drop_compacted = true);
    sim.compact_all();
    assert_eq!(sim.history().len(), 0);
    assert_eq!(get(&sim, MAPS).await.1["items"].as_array().unwrap().len(), 2, "the present is kept");
}

#[tokio::test]
async fn bookmarks_carry_the_position_through_quiet_times() {
    let sim = sim().await;
    let start = sim.create("configmaps", map("a", "1")).unwrap().revision;
    let path = format!("{MAPS}?watch=true&resourceVersion={start}");
    let mut with = Lines::open(&sim, &format!("{path}&allowWatchBookmarks=true")).await;
    let mut without = Lines::open(&sim, &path).await;
    sim.wait_for_watches("configmaps", 2).await.unwrap();
    let elsewhere = sim.create("secrets", objects::secret("shop", "s", &[])).unwrap().revision;
    sim.signal("configmaps", &Signal::Bookmark);
    let line: Value = serde_json::from_slice(&with.line().await.unwrap()).unwrap();
    let expected = json!({"type": "BOOKMARK", "object": {
        "kind": "ConfigMap", "apiVersion": "v1", "metadata": {"resourceVersion": elsewhere.to_string()}
    }});
    assert_eq!(line, expected);
    let next = sim.create("configmaps", map("b", "1")).unwrap().revision;
    assert_eq!(without.event().await, event("ADDED", "b", next));

    // By time, and before the end.
    sim.set(|settings| settings.bookmarks_every = Duration::from_millis(20));
    let mut timed = Lines::open(&sim, &format!("{path}&allowWatchBookmarks=true")).await;
    assert_eq!(timed.event().await, event("ADDED", "b", next));
    assert_eq!(timed.event().await, event("BOOKMARK", "", next));
    assert_eq!(timed.event().await, event("BOOKMARK", "", next));
    sim.set(|settings| settings.bookmarks_every = Duration::from_secs(60));
    let path = format!("{MAPS}?watch=true&resourceVersion={next}&allowWatchBookmarks=true&timeoutSeconds=1");
    let mut short = Lines::open(&sim, &path).await;
    sim.wait_for_watches("configmaps", 4).await.unwrap();
    let last = sim.create("secrets", objects::secret("shop", "s2", &[])).unwrap().revision;
    assert_eq!(short.all().await, [event("BOOKMARK", "", last).unwrap()]);
    assert!(!short.broken, "timeoutSeconds ends a watch cleanly");
}

#[tokio::test]
async fn objects_enter_and_leave_selectors() {
    let sim = sim().await;
    let start = sim.revision();
    let label = |value: &str| json!({"metadata": {"labels": {"tier": value}}});
    let added = sim.create("configmaps", map("a", "1")).unwrap().revision;
    let entered = sim.patch("configmaps", "shop", "a", &label("web")).unwrap().revision;
    let changed = sim.patch("configmaps", "shop", "a", &json!({"data": {"value": "2"}})).unwrap().revision;
    let left = sim.patch("configmaps", "shop", "a", &label("db")).unwrap().revision;
    sim.patch("configmaps", "shop", "a", &json!({"data": {"value": "3"}})).unwrap();
    let again = sim.patch("configmaps", "shop", "a", &label("web")).unwrap().revision;
    let gone = sim.delete("configmaps", "shop", "a").unwrap().revision;
    assert!(added < entered);
    let mut lines =
        Lines::open(&sim, &format!("{MAPS}?watch=true&resourceVersion={start}&labelSelector=tier%3Dweb")).await;
    assert_eq!(lines.event().await, event("ADDED", "a", entered));
    assert_eq!(lines.event().await, event("MODIFIED", "a", changed));
    let line: Value = serde_json::from_slice(&lines.line().await.unwrap()).unwrap();
    assert_eq!(line["type"], "DELETED");
    assert_eq!(line["object"]["metadata"]["resourceVersion"], left.to_string());
    assert_eq!(line["object"]["metadata"]["labels"]["tier"], "web", "the object as it last matched");
    assert_eq!(lines.event().await, event("ADDED", "a", again));
    assert_eq!(lines.event().await, event("DELETED", "a", gone));
}

#[tokio::test]
async fn a_watch_from_the_future_drops_what_comes_before_it() {
    let sim = sim().await;
    let start = sim.revision();
    let mut lines = Lines::open(&sim, &format!("{MAPS}?watch=true&resourceVersion={}", start + 2)).await;
    for name in ["a", "b", "c"] {
        sim.create("configmaps", map(name, "1")).unwrap();
    }
    assert_eq!(lines.event().await, event("ADDED", "c", start + 3));
}

#[tokio::test]
async fn a_restore_takes_history_back() {
    let sim = sim().await;
    sim.create("configmaps", map("a", "1")).unwrap();
    let backup = sim.revision();
    let mut lines = Lines::open(&sim, &format!("{MAPS}?watch=true&resourceVersion={backup}")).await;
    sim.patch("configmaps", "shop", "a", &json!({"data": {"value": "2"}})).unwrap();
    sim.create("configmaps", map("b", "1")).unwrap();
    assert_eq!(lines.event().await, event("MODIFIED", "a", backup + 1));
    sim.restore(backup);
    assert_eq!(sim.revision(), backup);
    assert_eq!(sim.get("configmaps", "shop", "a").unwrap().value()["data"]["value"], "1");
    assert!(sim.get("configmaps", "shop", "b").is_err());
    assert_eq!(sim.undone().len(), 2);
    lines.all().await;
    let other = sim.create("configmaps", map("c", "1")).unwrap().revision;
    assert_eq!(other, backup + 1, "revisions are given again");
}

#[tokio::test]
async fn a_lease_takes_many_objects_in_one_revision() {
    let sim = sim().await;
    for name in ["a", "b", "c"] {
        sim.create("events", objects::event("shop", name, "web-1", "Started")).unwrap();
    }
    let start = sim.revision();
    let at = sim.expire_together("events", &[("shop", "a"), ("shop", "b"), ("shop", "c")]).unwrap();
    assert_eq!(at, start + 1);
    // Both groups serve the same objects.
    let path = format!("/apis/events.k8s.io/v1/events?watch=true&resourceVersion={start}");
    let mut lines = Lines::open(&sim, &path).await;
    for name in ["a", "b", "c"] {
        let line: Value = serde_json::from_slice(&lines.line().await.unwrap()).unwrap();
        assert_eq!(line["object"]["apiVersion"], "events.k8s.io/v1");
        assert_eq!(line["object"]["metadata"]["name"], name);
        assert_eq!(line["object"]["metadata"]["resourceVersion"], at.to_string());
    }
    assert_eq!(sim.history().iter().filter(|row| row.revision == at).count(), 3);
}

#[tokio::test]
async fn the_state_comes_first_where_it_is_asked_for() {
    let sim = sim().await;
    sim.create("configmaps", map("b", "1")).unwrap();
    let newest = sim.create("configmaps", map("a", "1")).unwrap().revision;
    let query = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut lines = Lines::open(&sim, &format!("{MAPS}?{query}")).await;
    assert_eq!(lines.event().await, event("ADDED", "a", newest));
    assert_eq!(lines.event().await, event("ADDED", "b", newest - 1));
    let line: Value = serde_json::from_slice(&lines.line().await.unwrap()).unwrap();
    assert_eq!(line["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    let next = sim.create("configmaps", map("c", "1")).unwrap().revision;
    assert_eq!(lines.event().await, event("ADDED", "c", next));
    sim.set(|settings| settings.watch_list = false);
    assert_eq!(get(&sim, &format!("{MAPS}?{query}")).await.0, 422);
    // The old way: no resourceVersion, no bookmark.
    let mut lines = Lines::open(&sim, &format!("{MAPS}?watch=true")).await;
    assert_eq!(lines.event().await, event("ADDED", "a", newest));
}

#[tokio::test]
async fn faults_meet_the_requests_they_are_meant_for() {
    let sim = sim().await;
    let start = sim.revision();
    for name in ["a", "b", "c", "d"] {
        sim.create("configmaps", map(name, "1")).unwrap();
    }
    let path = format!("{MAPS}?watch=true&resourceVersion={start}");
    let whole = {
        let mut lines = Lines::open(&sim, &path).await;
        let mut whole = Vec::new();
        for _ in 0..4 {
            whole.push(lines.line().await.unwrap());
        }
        whole
    };
    let script = |act: Act| sim.fault(Fault::new(On::watch("configmaps"), act));

    script(Act::cut_in_event(2));
    let mut lines = Lines::open(&sim, &path).await;
    assert_eq!(lines.all().await.len(), 2);
    assert!(lines.broken, "a cut is no clean end");
    assert_eq!(lines.buffer, whole[2][..whole[2].len() / 2], "half of the third line has come");

    let at = whole[0].len() + 10;
    script(Act::tamper(At::Byte(at), How::Nothing, Then::Reset));
    let mut lines = Lines::open(&sim, &path).await;
    while lines.line().await.is_some() {}
    assert!(lines.broken);

    script(Act::end_after_events(3));
    let mut lines = Lines::open(&sim, &path).await;
    assert_eq!(lines.all().await.len(), 3);
    assert!(!lines.broken);

    script(Act::repeat(2));
    let mut lines = Lines::open(&sim, &path).await;
    let mut names = Vec::new();
    for _ in 0..5 {
        names.push(lines.event().await.unwrap().1);
    }
    assert_eq!(names, ["a", "b", "b", "c", "d"]);

    script(Act::swap(1));
    let mut lines = Lines::open(&sim, &path).await;
    let mut names = Vec::new();
    for _ in 0..4 {
        names.push(lines.event().await.unwrap().1);
    }
    assert_eq!(names, ["a", "c", "b", "d"]);

    script(Act::undecodable(1));
    let mut lines = Lines::open(&sim, &path).await;
    lines.line().await.unwrap();
    assert!(serde_json::from_slice::<Value>(&lines.line().await.unwrap()).is_err());
    assert_eq!(lines.event().await.unwrap().1, "c");

    script(Act::oversize(0, 1 << 20));
    let mut lines = Lines::open(&sim, &path).await;
    let line = lines.line().await.unwrap();
    assert!(line.len() >= 1 << 20);
    assert_eq!(serde_json::from_slice::<Value>(&line).unwrap()["object"]["metadata"]["name"], "a");

    script(Act::insert(1, "neither JSON nor anything\n"));
    let mut lines = Lines::open(&sim, &path).await;
    lines.line().await.unwrap();
    assert_eq!(lines.line().await.unwrap(), b"neither JSON nor anything\n");

    script(Act::error_event(1, &Refusal::internal("no leader")));
    assert_eq!(Lines::open(&sim, &path).await.all().await.last(), event("ERROR", "", 500).as_ref());

    script(Act::Chop(7));
    let mut lines = Lines::open(&sim, &path).await;
    for line in &whole {
        assert_eq!(lines.line().await.as_ref(), Some(line));
    }

    script(Act::empty());
    assert!(Lines::open(&sim, &path).await.line().await.is_none());

    script(Act::flow_control(5));
    let response = ask(&sim, &path).await;
    assert_eq!((response.status().as_u16(), &response.headers()["retry-after"]), (429, &"5".parse().unwrap()));
    assert_eq!(response.text().await.unwrap(), "Too many requests, please try again later.\n");

    // The second page only, twice.
    let second = On::list("configmaps").query("continue=");
    sim.fault(Fault::new(second, Act::refuse(&Refusal::not_ready(1))).after(1).times(2));
    let token = get(&sim, &format!("{MAPS}?limit=1")).await.1["metadata"]["continue"].as_str().unwrap().to_owned();
    let mut statuses = Vec::new();
    for _ in 0..4 {
        statuses.push(get(&sim, &format!("{MAPS}?limit=1&continue={token}")).await.0);
    }
    assert_eq!(statuses, [200, 429, 429, 200]);

    sim.fault(Fault::new(On::list("configmaps"), Act::cut_after_bytes(100)).always());
    for _ in 0..2 {
        let mut body = ask(&sim, MAPS).await;
        let mut bytes = 0;
        let end = loop {
            match body.chunk().await {
                Ok(Some(more)) => bytes += more.len(),
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        assert!(end.is_err());
        assert_eq!(bytes, 100);
    }
    sim.heal();
    sim.fault(Fault::new(On::list("configmaps"), Act::end_after_bytes(100)));
    assert_eq!(ask(&sim, MAPS).await.bytes().await.unwrap().len(), 100, "a list that ends as if that were all");
    sim.fault(Fault::new(On::list("*"), Act::Reset));
    assert!(client().get(format!("{}{MAPS}", sim.url())).bearer_auth(TOKEN).send().await.is_err());
    assert_eq!(get(&sim, MAPS).await.0, 200);
}

#[tokio::test]
async fn signals_meet_what_is_open() {
    let sim = sim().await;
    for (signal, broken) in [(Signal::End, false), (Signal::Cut, true), (Signal::Reset, true)] {
        let path = format!("{MAPS}?watch=true&resourceVersion={}", sim.revision());
        let name = format!("{signal:?}").to_lowercase();
        let next = sim.create("configmaps", map(&name, "1")).unwrap().revision;
        let mut lines = Lines::open(&sim, &path).await;
        sim.signal("*", &signal);
        sim.create("configmaps", map(&format!("{name}-later"), "1")).unwrap();
        assert_eq!(lines.event().await, event("ADDED", &name, next), "what happened before comes first");
        assert_eq!(lines.event().await, None, "and what happens later does not come");
        assert_eq!(lines.broken, broken, "{signal:?}");
    }
    let path = format!("{MAPS}?watch=true&resourceVersion={}", sim.revision());
    let mut lines = Lines::open(&sim, &path).await;
    sim.signal("configmaps", &Signal::Error(Refusal::expired(1, 2)));
    assert_eq!(lines.all().await.last(), event("ERROR", "", 410).as_ref());
}

#[tokio::test]
async fn the_port_closes_and_opens() {
    let sim = sim().await;
    let mut lines = Lines::open(&sim, &format!("{MAPS}?watch=true&resourceVersion=1")).await;
    sim.stop_listening().await;
    assert!(lines.line().await.is_none());
    let refused = client().get(sim.url()).send().await.unwrap_err();
    assert!(refused.is_connect(), "{refused:?}");
    sim.start_listening().await.unwrap();
    assert_eq!(get(&sim, MAPS).await.0, 200);
}

#[tokio::test]
async fn only_those_who_may_get_in() {
    let sim = sim().await;
    let denied = client().get(format!("{}{MAPS}", sim.url())).send().await.unwrap();
    assert_eq!(denied.status(), 401);
    let mut open = Lines::open(&sim, &format!("{MAPS}?watch=true&resourceVersion=1")).await;
    sim.revoke(TOKEN);
    assert_eq!(get(&sim, MAPS).await.0, 401);
    let next = sim.create("configmaps", map("a", "1")).unwrap().revision;
    assert_eq!(open.event().await, event("ADDED", "a", next), "an open watch outlives its token");
    sim.admit(TOKEN);
    sim.deny("list", "secrets", None);
    let (status, refusal) = get(&sim, "/api/v1/namespaces/shop/secrets").await;
    let message = "secrets is forbidden: User \"system:serviceaccount:decklog:decklog\" cannot list resource \"secrets\" \
                   in API group \"\" in the namespace \"shop\"";
    assert_eq!((status, refusal["message"].as_str()), (403, Some(message)));
    assert_eq!(refusal["details"], json!({"kind": "secrets"}));
    sim.grant("secrets");
    assert_eq!(get(&sim, "/api/v1/secrets").await.0, 200);
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

// --- a second opinion ---

async fn kube_client(sim: &Sim) -> kube::Client {
    let config = kube::config::Kubeconfig::from_yaml(&sim.kubeconfig()).unwrap();
    let mut config =
        kube::Config::from_custom_kubeconfig(config, &kube::config::KubeConfigOptions::default()).await.unwrap();
    config.default_retry = false;
    kube::Client::try_from(config).unwrap()
}

#[tokio::test]
async fn kube_reads_and_writes_it() {
    let sim = sim().await;
    let nowhere: Api<ConfigMap> = Api::namespaced(kube_client(&sim).await, "nowhere");
    let made: ConfigMap = serde_json::from_value(map("a", "1")).unwrap();
    assert!(nowhere.create(&PostParams::default(), &made).await.is_err(), "there is no such namespace");
    sim.create_namespace("shop").unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(kube_client(&sim).await, "shop");
    let made: ConfigMap = serde_json::from_value(map("a", "1")).unwrap();
    maps.create(&PostParams::default(), &made).await.unwrap();
    let list = maps.list(&ListParams::default().limit(10)).await.unwrap();
    assert_eq!(list.items.len(), 1);
    assert_eq!(list.items[0].data.as_ref().unwrap()["value"], "1");
    let version = list.metadata.resource_version.unwrap();
    let mut events = maps.watch(&WatchParams::default(), &version).await.unwrap().boxed();
    maps.delete("a", &kube::api::DeleteParams::default()).await.unwrap();
    match events.try_next().await.unwrap() {
        Some(WatchEvent::Deleted(map)) => assert_eq!(map.metadata.name.as_deref(), Some("a")),
        other => panic!("{other:?}"),
    }
    let Err(kube::Error::Api(status)) = maps.get("a").await else { panic!("the object is gone") };
    assert_eq!((status.code, status.reason.as_str()), (404, "NotFound"));
    assert!(sim.requests().iter().all(|seen| seen.authorization == format!("Bearer {TOKEN}")));
}

#[tokio::test]
async fn kube_discovers_it_in_both_forms() {
    let sim = sim().await;
    sim.define(objects::crd("widgets.example.com", "Widget", true, &["v1", "v1beta1"])).unwrap();
    let client = kube_client(&sim).await;
    assert_eq!(client.apiserver_version().await.unwrap().git_version, "v1.35.2");
    let found = |discovery: Discovery| {
        let mut found = BTreeMap::new();
        for group in discovery.groups() {
            for (resource, capabilities) in group.recommended_resources() {
                let verbs = ["list", "watch"].map(|verb| capabilities.supports_operation(verb));
                found.insert(
                    format!("{}.{}", resource.plural, resource.group),
                    (resource.version, resource.kind, verbs),
                );
            }
        }
        found
    };
    let new = found(Discovery::new(client.clone()).run_aggregated().await.unwrap());
    sim.set(|settings| settings.legacy_discovery = true);
    let old = found(Discovery::new(client.clone()).run().await.unwrap());
    assert_eq!(new, old);
    assert_eq!(new["pods."], ("v1".to_owned(), "Pod".to_owned(), [true, true]));
    assert_eq!(new["componentstatuses."].2, [true, false]);
    assert_eq!(new["tokenreviews.authentication.k8s.io"].2, [false, false]);
    assert_eq!(new["widgets.example.com"].0, "v1");
    sim.set(|settings| settings.legacy_discovery = false);
    sim.set(|settings| {
        settings.stale_groups.insert("example.com".to_owned());
    });
    let groups = client.list_api_groups_aggregated().await.unwrap();
    let stale: Vec<_> = groups
        .items
        .iter()
        .filter(|group| group.versions.iter().any(|version| version.freshness.as_deref() == Some("Stale")))
        .map(|group| group.metadata.as_ref().and_then(|m| m.name.clone()).unwrap_or_default())
        .collect();
    assert_eq!(stale, ["example.com"]);
}

#[tokio::test]
async fn a_document_that_has_not_changed_is_not_sent_again() {
    let sim = sim().await;
    let ask = async |root: &str, etag: &str| {
        let request = client().get(format!("{}{root}", sim.url())).bearer_auth(TOKEN);
        let request = request.header(ACCEPT, super::discovery::AGGREGATED).header(IF_NONE_MATCH, etag);
        let answer = request.send().await.unwrap();
        let etag = answer.headers()[ETAG].to_str().unwrap().to_owned();
        (answer.status().as_u16(), etag)
    };
    let (status, core) = ask("/api", "").await;
    let (_, groups) = ask("/apis", "").await;
    assert!(status == 200 && core != groups);
    assert_eq!(ask("/api", &core).await, (304, core.clone()));
    assert_eq!(ask("/apis", &core).await, (200, groups.clone()), "it is that of another document");
    sim.define(objects::crd("widgets.example.com", "Widget", true, &["v1"])).unwrap();
    let (status, defined) = ask("/apis", &groups).await;
    assert_eq!(status, 200);
    sim.set(|settings| {
        settings.stale_groups.insert("example.com".to_owned());
    });
    assert_eq!(ask("/apis", &defined).await.0, 200);
}

#[tokio::test]
async fn kubes_own_watcher_converges() {
    let sim = Sim::start_with(Settings { seed: 7, ..Settings::default() }).await.unwrap();
    for n in 0..5 {
        sim.create("configmaps", map(&format!("m{n}"), "1")).unwrap();
    }
    let resource = ApiResource::erase::<ConfigMap>(&());
    let maps: Api<DynamicObject> = Api::all_with(kube_client(&sim).await, &resource);
    let config = kube_runtime::watcher::Config::default().page_size(2);
    let mut stream = kube_runtime::watcher(maps, config).boxed();
    let mut state = BTreeMap::new();
    let mut changed = false;
    loop {
        use kube_runtime::watcher::Event;
        match stream.try_next().await {
            Ok(Some(Event::Init)) => state.clear(),
            Ok(Some(Event::InitApply(object) | Event::Apply(object))) => {
                state.insert(object.metadata.name.unwrap(), object.metadata.resource_version.unwrap());
            }
            Ok(Some(Event::Delete(object))) => {
                state.remove(&object.metadata.name.unwrap());
            }
            Ok(Some(Event::InitDone)) if !changed => {
                changed = true;
                sim.fault(Fault::new(On::watch("configmaps"), Act::cut_in_event(1)));
                sim.delete("configmaps", "shop", "m1").unwrap();
                sim.patch("configmaps", "shop", "m2", &json!({"data": {"value": "2"}})).unwrap();
                sim.create("configmaps", map("m9", "1")).unwrap();
            }
            Ok(Some(Event::InitDone)) | Err(_) => {}
            Ok(None) => panic!("a watcher never ends"),
        }
        let truth: BTreeMap<_, _> = sim
            .objects("configmaps")
            .unwrap()
            .iter()
            .map(|row| (row.name.to_string(), row.revision.to_string()))
            .collect();
        if changed && state == truth {
            break;
        }
    }
    assert!(sim.count(&On::watch("configmaps")) >= 2, "the cut was met");
}
