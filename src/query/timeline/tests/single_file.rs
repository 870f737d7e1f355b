//! The answers in a file are of what was asked for, and say what they lack.

use super::*;
use crate::core::model::{Unread, Why};
use crate::core::rights::Sight;
use crate::journal::SinkStart;
use crate::query::timeline::embed::{Contents, Item, Timeline, embed};
use crate::query::{Log, Question};

/// The data of a file, which somebody may get who may see no more.
pub(super) fn filed(dir: &Path, query: &str) -> serde_json::Value {
    let clock = Clock { now: Timestamp::now(), zone: TimeZone::UTC };
    let log = Log::new(dir.to_owned(), Sight::All, clock, &|note| panic!("{note}"), &|| false);
    let mut data = serde_json::Map::new();
    let put = &mut |item| {
        if let Item::Answer(answer) = item {
            data.insert(answer.question, serde_json::from_str(answer.answer.get()).unwrap());
        }
        Ok(())
    };
    Timeline { window: window(query), max_bytes: 1 << 20 }.answer(&log, put).unwrap();
    data.into()
}

#[tokio::test]
async fn a_file_names_nothing_but_what_was_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, thread, source) = begun(dir.path()).await;
    write(&journal, &source, 0..400).await;
    let other = journal.source(&others("services", Some("n3"))).await.unwrap().0;
    let sink = journal.sink("archive", "file", SinkStart::Now).await.unwrap();
    journal.flush().await.unwrap();
    // However many objects a command names, what comes after them counts.
    let many = format!("{}namespace=n1", "what=po/p1&".repeat(300));
    for query in ["namespace=n1", "what=po/p1", "what=pods&namespace=n1", &many] {
        let data = filed(dir.path(), query);
        let overview = &data["overview"];
        assert_eq!(overview["namespaces"], serde_json::json!(["n1"]), "{query}");
        assert_eq!(overview["kinds"].as_array().unwrap().len(), 1, "{query}: {overview}");
        let text = data.to_string();
        for name in ["\"n0\"", "\"n3\"", "\"p2\"", "services", "archive"] {
            assert!(!text.contains(name), "{query}: {name} in {text}");
        }
        assert!(!data["writers"]["writers"].as_array().unwrap().is_empty(), "{query}");
        assert_eq!(data["writers"]["since"], data["lanes"]["since"], "{query}");
    }
    let data = filed(dir.path(), "");
    assert_eq!(data["overview"]["namespaces"].as_array().unwrap().len(), 4);
    assert_eq!(data["overview"]["sinks"][0]["name"], "archive");
    // Who wrote what is of what the expression says.
    let data = filed(dir.path(), "where=name == \"p7\"");
    let writers = data["writers"]["writers"].as_array().unwrap();
    assert!(writers.len() == 1 && writers[0]["name"] == "p7", "{writers:?}");
    drop((journal, source, other, sink));
    thread.join().unwrap();
}

/// A file says why something is not in it, and from when on it is whole.
#[tokio::test]
async fn a_file_says_what_there_was_no_time_for() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, thread, source) = begun(dir.path()).await;
    write(&journal, &source, 0..2 * PART + 50).await;
    let mut opened = opened(&journal, true);
    let mut left_out = |most: usize, deadline: Instant| {
        (opened.index, opened.deadline) = (Index::default(), deadline);
        let clock = opened.clock.clone();
        let log = Log::new(dir.path().to_owned(), Sight::All, clock, &|note| panic!("{note}"), &|| false);
        let mut contents = Contents::default();
        let question = Timeline { window: Window::default(), max_bytes: most };
        let put = &mut |item| {
            if let Item::Contents(found) = item {
                contents = found;
            }
            Ok(())
        };
        embed(&mut opened, &question, &log, put).unwrap();
        contents.left_out.unwrap()
    };
    let said = left_out(1 << 20, Instant::now());
    assert!(said.contains("without what changed, because it took more than 120 seconds"), "{said}");
    assert!(said.contains("nothing before ") && !said.contains("MiB"), "{said}");
    assert!(said.contains(" causes were not looked for"), "{said}");
    let said = left_out(1 << 10, later());
    assert!(said.contains("because it would have more than 1.0 KiB") && !said.contains("seconds"), "{said}");
    assert!(!said.contains("causes"), "{said}");
    let first = journal.reader().unwrap().time_of(Seq(2 * PART + 1)).unwrap().unwrap();
    let said = left_out(1, Instant::now());
    assert!(said.contains(&format!("before {} ", crate::query::stamp(first))), "{said}");
    drop((opened, journal, source));
    thread.join().unwrap();
}

/// An owner that nobody asked for has a lane, and nothing of it is in the file; and nothing is that came after the end.
#[tokio::test]
async fn a_file_holds_no_object_and_no_entry_that_was_not_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, thread, source) = begun(dir.path()).await;
    let mut cluster_wide = others("machines", None);
    cluster_wide.resource.namespaced = false;
    let owners = journal.source(&cluster_wide).await.unwrap().0;
    let object = |namespace: &str, name: &str, version: u64, owner: Option<&str>| {
        let owner = owner.map(|name| {
            serde_json::json!({"apiVersion": "v1", "kind": "machines", "name": name, "uid": name, "controller": true})
        });
        let metadata = serde_json::json!({
            "name": name, "namespace": namespace, "uid": name, "resourceVersion": version.to_string(),
            "ownerReferences": owner.into_iter().collect::<Vec<_>>(),
        });
        let body = serde_json::json!({"metadata": metadata, "spec": {"secret-of": name, "version": version}});
        let body = Redacted { bytes: body.to_string().into_bytes(), pointers: Vec::new(), marks: Vec::new() };
        let (namespace, name, uid) = (namespace.to_owned(), name.to_owned(), name.to_owned());
        let object = Observed { namespace, name, uid, version: ResourceVersion::new(version.to_string()), body };
        WatchChange { verb: Verb::Upsert, object }
    };
    owners.append(vec![object("", "boss", 1, None)]).await.unwrap();
    source.append(vec![object("shop", "web", 2, Some("boss"))]).await.unwrap();
    journal.flush().await.unwrap();
    let reader = journal.reader().unwrap();
    let end = crate::query::stamp(reader.time_of(reader.head().unwrap()).unwrap().unwrap());
    until("the clock to go on", || Timestamp::now() > end.parse::<Timestamp>().unwrap()).await;
    source.append(vec![object("shop", "web", 3, Some("boss")), object("shop", "late", 4, None)]).await.unwrap();
    journal.flush().await.unwrap();
    let data = filed(dir.path(), "namespace=shop");
    let lanes = |data: &serde_json::Value| data["lanes"]["lanes"].as_array().unwrap().len();
    assert_eq!(lanes(&data), 3, "the owner has a lane: {data}");
    assert!(data["object/pods/shop/web"].is_object() && data["object/machines//boss"].is_null(), "{data}");
    assert!(
        !data.to_string().contains("\"secret-of\": \"boss\"") && !data.to_string().contains("secret-of: boss"),
        "{data}"
    );
    assert_eq!(data["entry/2"]["next"], 3);
    // Whoever gets a file of an earlier time learns nothing of what came later.
    let early = filed(dir.path(), &format!("namespace=shop&until={end}"));
    assert!(!early.to_string().contains("late") && early["entry/2"]["next"].is_null(), "{early}");
    assert_eq!((early["object/pods/shop/web"]["at"].as_u64(), early["state"]["seq"].as_u64()), (Some(2), Some(2)));
    // A window that reaches beyond both ends of the log is the whole log.
    let whole = filed(dir.path(), "namespace=shop&since=2000-01-01T00:00:00Z&until=2200-01-01T00:00:00Z");
    assert_eq!(
        (&whole["state"]["objects"], &whole["changes"]["objects"]),
        (&data["state"]["objects"], &data["changes"]["objects"])
    );
    assert!(
        whole["changes"]["objects"].is_array()
            && whole["object/pods/shop/late"].is_object()
            && whole["state"]["objects"].as_array().unwrap().len() == 2
    );
    drop((reader, journal, source, owners));
    thread.join().unwrap();
}

/// A GAP of one object is of that object alone: of its lane, and of a file that it was asked for in.
#[tokio::test]
async fn a_gap_of_one_object_is_of_nobody_else() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, thread, source) = begun(dir.path()).await;
    write(&journal, &source, 0..80).await;
    for (number, (namespace, name)) in [("n1", "p1"), ("n1", "unseen"), ("n2", "p2")].into_iter().enumerate() {
        let version = ResourceVersion::new((900 + number).to_string());
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        let unread =
            Unread { namespace, name, uid: String::new(), version, digest: String::new(), why: Why::Undecodable };
        source.append_unread(Verb::Upsert, unread).await.unwrap();
    }
    journal.flush().await.unwrap();
    let named = |data: &serde_json::Value| -> BTreeSet<String> {
        let of = |list: &serde_json::Value, key: &str| {
            let list = list.as_array().unwrap().iter().filter(|one| one.get(key).is_none_or(|kind| kind == "GAP"));
            list.filter_map(|one| one["name"].as_str().map(str::to_owned))
                .filter(|name| !name.is_empty())
                .collect::<Vec<_>>()
        };
        let entries = of(&data["entries"]["entries"], "type");
        let gaps = of(&data["overview"]["gaps"], "-");
        assert_eq!(entries.iter().collect::<BTreeSet<_>>(), gaps.iter().collect(), "the list and the overview differ");
        entries.into_iter().collect()
    };
    for (query, told) in [
        ("", &["p1", "p2", "unseen"][..]),
        ("namespace=n1", &["p1", "unseen"]),
        ("what=pods/p1", &["p1"]),
        ("what=pods/p*&namespace=n2", &["p2"]),
        ("what=pods/p5", &[]),
    ] {
        let data = filed(dir.path(), query);
        assert_eq!(named(&data).iter().map(String::as_str).collect::<Vec<_>>(), told, "{query}");
        let hatched = data["lanes"]["unwatched"].as_array().unwrap().iter().filter_map(|one| one["name"].as_str());
        // Of an object that was never recorded there is no lane.
        let lanes: BTreeSet<&str> = told.iter().copied().filter(|name| *name != "unseen").collect();
        assert_eq!(hatched.collect::<BTreeSet<_>>(), lanes, "{query}");
        // It leaves nothing else in doubt.
        assert!(data["state"]["unknown"].as_array().unwrap().iter().all(|one| one.get("name").is_none()), "{query}");
    }
    let page = filed(dir.path(), "")["object/pods/n1/p1"]["unwatched"].clone();
    assert_eq!(page.as_array().unwrap().iter().filter(|one| one["name"] == "p1").count(), 1, "{page}");
    let other = filed(dir.path(), "")["object/pods/n1/p5"]["unwatched"].clone();
    assert!(other.as_array().unwrap().iter().all(|one| one.get("name").is_none()), "{other}");
    drop((journal, source));
    thread.join().unwrap();
}
