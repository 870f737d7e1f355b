//! What etcd still has when watch caches no longer have it, read by exact lists.

use super::super::faults::Lie;
use super::*;

/// A list that has to be of exactly this revision.
fn exact(revision: u64) -> String {
    format!("resourceVersion={revision}&resourceVersionMatch=Exact")
}

/// Names and versions of the objects of a list.
fn objects_of(list: &Value) -> Vec<(&str, u64)> {
    let version = |item: &Value| item["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
    let items = list["items"].as_array().unwrap().iter();
    items.map(|item| (item["metadata"]["name"].as_str().unwrap(), version(item))).collect()
}

#[tokio::test]
async fn a_restart_empties_the_watch_caches_and_etcd_keeps_all() {
    let sim = sim().await;
    let event_of =
        |name: &str| sim.create("events", objects::event("shop", name, "web-1", "Started")).unwrap().revision;
    let first = event_of("e1");
    let made = sim.create("configmaps", map("a", "1")).unwrap().revision;
    let second = event_of("e2");
    let gone = sim.delete("configmaps", "shop", "a").unwrap().revision;
    let maps = format!("{MAPS}?watch=true&resourceVersion={}", made - 1);
    let events = format!("/api/v1/events?watch=true&resourceVersion={first}");
    let mut open = [Lines::open(&sim, &maps).await, Lines::open(&sim, &events).await];
    sim.restart_api_server();
    for lines in &mut open {
        lines.all().await;
        assert!(lines.broken, "a server that goes away does not end its watches");
    }
    assert_eq!(Lines::open(&sim, &maps).await.all().await, [event("ERROR", "", 410).unwrap()]);
    sim.set(|settings| settings.http_410 = true);
    let (_, refusal) = get(&sim, &maps).await;
    assert_eq!(refusal["message"], format!("too old resource version: {} ({gone})", made - 1));
    let mut newest = Lines::open(&sim, &format!("{MAPS}?watch=true&resourceVersion={gone}")).await;
    let third = event_of("e3");
    let next = sim.create("configmaps", map("b", "1")).unwrap().revision;
    assert_eq!(newest.event().await, event("ADDED", "b", next), "a watch can begin at the newest revision");
    let mut lines = Lines::open(&sim, &events).await;
    assert_eq!(lines.event().await, event("ADDED", "e2", second), "etcd answers watches of Events");
    assert_eq!(lines.event().await, event("ADDED", "e3", third));
    // What came and went is in the lists of its time.
    for (revision, expected) in
        [(made - 1, vec![]), (made, vec![("a", made)]), (second, vec![("a", made)]), (gone, vec![])]
    {
        let (status, list) = get(&sim, &format!("{MAPS}?{}", exact(revision))).await;
        assert_eq!((status, objects_of(&list)), (200, expected));
        assert_eq!(list["metadata"]["resourceVersion"], revision.to_string());
    }
    sim.compact(second);
    assert_eq!(get(&sim, &events).await.0, 410, "and no longer where etcd was compacted");
}

/// What a list of one item says: how many objects there are, as far as it can be known, and whether more pages follow.
fn counted(list: &Value) -> (u64, bool) {
    let items = list["items"].as_array().unwrap().len() as u64;
    let metadata = &list["metadata"];
    (items + metadata["remainingItemCount"].as_u64().unwrap_or_default(), metadata.get("continue").is_some())
}

#[tokio::test]
async fn one_object_is_followed_back_by_its_name() {
    let sim = sim().await;
    for name in ["a", "c"] {
        sim.create("configmaps", map(name, "0")).unwrap();
    }
    sim.create("configmaps", objects::config_map("pay", "b", "other")).unwrap();
    let first = sim.create("configmaps", map("b", "1")).unwrap().revision;
    sim.patch("configmaps", "shop", "a", &json!({"data": {"value": "1"}})).unwrap();
    let second = sim.patch("configmaps", "shop", "b", &json!({"data": {"value": "2"}})).unwrap().revision;
    let gone = sim.delete("configmaps", "shop", "b").unwrap().revision;
    let at = |revision: u64| {
        let query = format!("fieldSelector=metadata.name%3Db&limit=1&{}", exact(revision));
        format!("/api/v1/namespaces/shop/configmaps?{query}")
    };
    let mut seen = Vec::new();
    for revision in first - 1..=gone {
        let (status, list) = get(&sim, &at(revision)).await;
        assert_eq!((status, list["metadata"]["resourceVersion"].as_str()), (200, Some(&*revision.to_string())));
        assert_eq!(list["metadata"].get("continue"), None, "a name in a namespace is looked up, not searched for");
        seen.push(list["items"].as_array().unwrap().first().map(|item| {
            (item["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap(), item["data"]["value"].to_string())
        }));
    }
    let (one, two) = (Some((first, "\"1\"".to_owned())), Some((second, "\"2\"".to_owned())));
    assert_eq!(seen, [None, one.clone(), one, two, None]);
    // Without the namespace all keys are searched, and whether those that are left match nobody knows.
    let query = format!("fieldSelector=metadata.name%3Da&limit=1&{}", exact(gone));
    let (_, list) = get(&sim, &format!("{MAPS}?{query}")).await;
    assert_eq!(counted(&list), (1, true));
    assert_eq!(list["metadata"].get("remainingItemCount"), None);
    let token = list["metadata"]["continue"].as_str().unwrap();
    let rest = get(&sim, &format!("{MAPS}?fieldSelector=metadata.name%3Da&limit=1&continue={token}")).await.1;
    assert_eq!(counted(&rest), (0, false));
}

#[tokio::test]
async fn exact_lists_count_the_objects_of_a_revision() {
    let sim = sim().await;
    let start = sim.revision();
    sim.create("configmaps", map("a", "1")).unwrap();
    sim.create("configmaps", objects::config_map("pay", "b", "1")).unwrap();
    sim.create("configmaps", map("c", "1")).unwrap();
    sim.delete("configmaps", "shop", "a").unwrap();
    let mut counts = [Vec::new(), Vec::new()];
    for revision in start..=start + 4 {
        for (path, counts) in [MAPS, "/api/v1/namespaces/shop/configmaps"].into_iter().zip(&mut counts) {
            let list = metadata(&sim, &format!("{path}?limit=1&{}", exact(revision))).await;
            assert_eq!(list["kind"], "PartialObjectMetadataList");
            counts.push(counted(&list));
        }
    }
    assert_eq!(counts[0], [(0, false), (1, false), (2, true), (3, true), (2, true)]);
    assert_eq!(counts[1], [(0, false), (1, false), (1, false), (2, true), (1, false)]);
    let at = format!("limit=1&{}", exact(start + 3));
    for selector in ["labelSelector=!gone", "fieldSelector=metadata.name!%3Dgone"] {
        let list = metadata(&sim, &format!("{MAPS}?{selector}&{at}")).await;
        assert_eq!(counted(&list), (1, true), "with {selector} there is no number");
    }
    // Further pages are of the same revision, and name neither it nor how it is meant.
    let page = metadata(&sim, &format!("{MAPS}?{at}")).await;
    let next = format!("{MAPS}?limit=500&continue={}", page["metadata"]["continue"].as_str().unwrap());
    let rest = metadata(&sim, &next).await;
    assert_eq!(rest["metadata"]["resourceVersion"], (start + 3).to_string());
    assert_eq!(counted(&rest), (2, false));
    assert_eq!(get(&sim, &format!("{next}&{}", exact(start + 3))).await.0, 422);
    sim.compact(start + 4);
    assert_eq!(get(&sim, &next).await.0, 410);
    sim.set(|settings| settings.counts = false);
    let list = metadata(&sim, &format!("{MAPS}?limit=1&{}", exact(start + 4))).await;
    assert_eq!(counted(&list), (1, true));
}

#[tokio::test]
async fn exact_lists_end_where_etcd_was_compacted_and_at_the_newest_revision() {
    let sim = sim().await;
    sim.set(|settings| settings.too_large_wait = Duration::ZERO);
    let made = sim.create("configmaps", map("a", "1")).unwrap().revision;
    let now = sim.patch("configmaps", "shop", "a", &json!({"data": {"value": "2"}})).unwrap().revision;
    let answer = async |revision: u64| get(&sim, &format!("{MAPS}?{}", exact(revision))).await;
    sim.compact(made);
    let (status, list) = answer(made).await;
    assert_eq!((status, objects_of(&list)), (200, vec![("a", made)]), "the compacted revision itself is there");
    let (status, refusal) = answer(made - 1).await;
    assert_eq!((status, refusal["reason"].as_str()), (410, Some("Expired")));
    assert_eq!(refusal["message"], "The resourceVersion for the provided list is too old.");
    let (status, refusal) = answer(now + 1).await;
    assert_eq!((status, &refusal["details"]["causes"][0]["reason"]), (504, &json!("ResourceVersionTooLarge")));
    sim.set(|settings| settings.future_is_internal = true);
    let (status, refusal) = answer(now + 1).await;
    let message = "etcdserver: mvcc: required revision is a future revision";
    assert_eq!((status, refusal["message"].as_str(), refusal.get("reason")), (500, Some(message), None));
    let (status, _) = get(&sim, &format!("{MAPS}?resourceVersion={}", now + 1)).await;
    assert_eq!(status, 504, "only exact lists go to etcd");
    assert_eq!(answer(now).await.0, 200);
    sim.set(|settings| settings.exact = false);
    let (status, list) = answer(made).await;
    assert_eq!((status, objects_of(&list)), (200, vec![("a", now)]));
    assert_eq!(list["metadata"]["resourceVersion"], now.to_string(), "and the answer says which it is");
}

#[tokio::test]
async fn exact_lists_meet_lies_and_failures() {
    let sim = sim().await;
    let start = sim.revision();
    for name in ["a", "b", "c"] {
        sim.create("configmaps", map(name, "1")).unwrap();
    }
    let at = start + 2;
    let path = format!("{MAPS}?limit=1&{}", exact(at));
    let exactly = || On::list("configmaps").query("Exact");
    let version = |list: &Value| list["metadata"]["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap();
    for (lie, expected) in [
        (None, (at, 2, true)),
        (Some(Lie::Newest), (start + 3, 3, true)),
        (Some(Lie::Shifted(1)), (at, 3, true)),
        (Some(Lie::Shifted(-1)), (at, 1, false)),
        (Some(Lie::Shifted(1000)), (at, 3, true)),
        (Some(Lie::NoCount), (at, 1, true)),
        (Some(Lie::Miscount(1)), (at, 3, true)),
        (Some(Lie::Miscount(-1)), (at, 1, true)),
    ] {
        if let Some(lie) = lie {
            sim.fault(Fault::new(exactly(), Act::Lie(lie)));
        }
        assert_eq!(get(&sim, MAPS).await.0, 200, "lists that are not exact are left alone");
        let list = metadata(&sim, &path).await;
        let (count, more) = counted(&list);
        assert_eq!((version(&list), count, more), expected, "{lie:?}");
    }
    sim.fault(Fault::new(exactly(), Act::Lie(Lie::Miscount(1))));
    let alone = metadata(&sim, &format!("{MAPS}?limit=1&{}", exact(start + 1))).await;
    assert_eq!(counted(&alone), (2, false), "one too many also where nothing is left");

    for (act, expected) in [
        (Act::refuse(&Refusal::new(410, "Expired", "The resourceVersion for the provided list is too old.")), 410),
        (Act::refuse(&Refusal::not_ready(3)), 429),
        (Act::flow_control(3), 429),
        (Act::refuse(&Refusal::internal("no leader")), 500),
        (Act::empty(), 200),
    ] {
        sim.fault(Fault::new(exactly(), act));
        let response = ask(&sim, &path).await;
        assert_eq!(response.status(), expected);
        if expected == 429 {
            assert_eq!(response.headers()["retry-after"], "3");
        }
        if expected == 200 {
            assert!(response.bytes().await.unwrap().is_empty());
        }
    }
    sim.fault(Fault::new(exactly(), Act::cut_after_bytes(40)));
    assert!(ask(&sim, &path).await.bytes().await.is_err(), "a cut in the middle is no answer");
    sim.fault(Fault::new(exactly(), Act::end_after_bytes(40)));
    assert_eq!(ask(&sim, &path).await.bytes().await.unwrap().len(), 40);
    sim.fault(Fault::new(exactly(), Act::Hang));
    let (on, number) = (exactly(), sim.requests().len());
    let before = sim.count(&on);
    tokio::select! {
        _ = ask(&sim, &path) => panic!("nothing comes"),
        came = async {
            sim.wait_for_count(&on, before + 1).await.unwrap();
            metadata(&sim, &path).await
        } => assert_eq!(counted(&came), (2, true), "the next one is answered"),
    }
    assert_eq!(sim.requests()[number].status, None);
}

#[tokio::test]
async fn a_resource_in_an_etcd_of_its_own_has_revisions_of_its_own() {
    let settings = Settings {
        own_etcd: ["configmaps".to_owned()].into(),
        bookmarks_every: Duration::from_millis(20),
        too_large_wait: Duration::ZERO,
        ..Settings::default()
    };
    let sim = Sim::start_with(settings).await.unwrap();
    let others = sim.revision();
    assert_eq!(sim.revision_of("configmaps").unwrap(), 1, "nothing has happened in it");
    let first = sim.create("configmaps", map("a", "1")).unwrap().revision;
    let secret = sim.create("secrets", objects::secret("shop", "s", &[])).unwrap().revision;
    let second = sim.create("configmaps", map("b", "1")).unwrap().revision;
    assert_eq!((first, second, secret), (2, 3, others + 1));
    assert_eq!((sim.revision(), sim.revision_of("configmaps").unwrap()), (secret, second));
    assert_eq!(sim.history_after(others).len(), 1);
    let (_, list) = get(&sim, MAPS).await;
    assert_eq!((&list["metadata"]["resourceVersion"], objects_of(&list).len()), (&json!("3"), 2));
    let future = format!("{MAPS}?{}", exact(second + 1));
    assert_eq!(get(&sim, &future).await.0, 504, "revisions of others are none of it");
    let path = format!("{MAPS}?watch=true&allowWatchBookmarks=true&resourceVersion={first}");
    let mut lines = Lines::open(&sim, &path).await;
    assert_eq!(lines.event().await, event("ADDED", "b", second));
    assert_eq!(lines.event().await, event("BOOKMARK", "", second));
    sim.compact(secret);
    assert_eq!(get(&sim, &format!("{MAPS}?{}", exact(first))).await.0, 200, "each etcd is compacted for itself");
    sim.restart_api_server();
    sim.set(|settings| settings.http_410 = true);
    assert_eq!(get(&sim, &path).await.1["message"], "too old resource version: 2 (3)");
    sim.restore(1);
    assert_eq!((sim.revision(), sim.undone().len()), (1, 4), "and put back for itself");
    let third = sim.delete("configmaps", "shop", "a").unwrap().revision;
    assert_eq!(third, second + 1);
    sim.set(|settings| settings.drop_compacted = true);
    sim.compact(1);
    assert_eq!(sim.history().len(), 3);
    sim.compact_all();
    assert_eq!(get(&sim, &format!("{MAPS}?{}", exact(second))).await.0, 410);
    assert_eq!(sim.history().len(), 0);
    assert_eq!(objects_of(&get(&sim, MAPS).await.1), [("b", second)]);
    let unknown = Settings { own_etcd: ["widgets.example.com".to_owned()].into(), ..Settings::default() };
    assert!(Sim::unconnected(unknown).is_err(), "only what is built in can have one");
}
