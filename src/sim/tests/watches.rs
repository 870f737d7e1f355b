//! Watches: where they begin, what comes, and what ends them.

use super::*;

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
    let object = crate::sim::Object::parse(text.as_bytes()).unwrap();
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
