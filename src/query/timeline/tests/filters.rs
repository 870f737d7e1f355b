//! Filters that have no answer for an entry.

use super::*;
use crate::query::timeline::entries::{Entries, entries};
use crate::query::timeline::writers::{Writers, writers};

/// A filter whose cost depends on the entry, and is beyond the budget for each.
#[tokio::test]
async fn a_filter_without_an_answer_for_an_entry_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, thread, source) = begun(dir.path()).await;
    write(&journal, &source, 0..20).await;
    let heavy = format!("[name]{}.size() > 0", ".map(x, x+x+x+x+x+x+x+x+x+x)".repeat(9));
    let window = Window { filter: Some(heavy), ..Window::default() };
    let mut opened = opened(&journal, true);
    let failures = [
        histogram(&mut opened, &Histogram { window: window.clone(), buckets: 10 }).unwrap_err(),
        lanes(&mut opened, &Lanes { window: window.clone(), order: Order::Causes, lanes: 10, marks: 10 }).unwrap_err(),
        writers(&mut opened, &Writers { window: Window { since: Some(Timestamp::UNIX_EPOCH), ..window } }).unwrap_err(),
    ];
    for failure in failures {
        assert!(failure.text().starts_with("where: no answer for entry "), "{failure}");
        assert!(failure.text().contains("so it must") && failure.key() == Some("where"), "{failure}");
    }
    drop((opened, journal, source));
    thread.join().unwrap();
}

/// By their outlines entries are of the same writers as by an expression over them, which reads each; and marks have the reason
/// why nobody is named.
#[tokio::test]
async fn entries_are_chosen_by_who_wrote_them() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, thread, source) = begun(dir.path()).await;
    let version = |number: u64, fields: serde_json::Value, spec: u64| {
        let object = serde_json::json!({"metadata": {"name": "a", "namespace": "n0", "uid": "u", "resourceVersion": number.to_string(),
            "managedFields": fields}, "spec": {"replicas": spec}});
        let body = Redacted { bytes: object.to_string().into_bytes(), pointers: Vec::new(), marks: Vec::new() };
        let (namespace, name, uid) = ("n0".into(), "a".into(), "u".into());
        Observed { namespace, name, uid, version: ResourceVersion::new(number.to_string()), body }
    };
    let owned = |name: &str, time: u64| serde_json::json!([{"manager": name, "operation": "Update", "time": format!("2026-11-20T10:00:0{time}Z"), "fieldsV1": {"f:spec": {"f:paused": {}, "f:replicas": {}}}}]);
    // The scale subresource takes the replicas from their owner.
    let mut left = owned("kubectl", 3);
    left[0]["fieldsV1"]["f:spec"] = serde_json::json!({"f:paused": {}});
    let steps = [
        (Verb::Upsert, version(1, owned("kubectl-create", 1), 1)),
        (Verb::Upsert, version(2, owned("keda-operator", 2), 2)),
        (Verb::Upsert, version(3, owned("kubectl", 3), 3)),
        (Verb::Upsert, version(4, left.clone(), 0)),
        (Verb::Delete, version(5, left.clone(), 0)),
    ];
    source.append(steps.map(|(verb, object)| WatchChange { verb, object }).to_vec()).await.unwrap();
    journal.flush().await.unwrap();
    let mut opened = opened(&journal, true);
    let seqs = |opened: &mut Opened, query: &str| -> Vec<u64> {
        let question = Entries { window: window(query), before: None, after: None, limit: 100 };
        let answer = json(entries(opened, &question).unwrap());
        answer["entries"].as_array().unwrap().iter().map(|entry| entry["seq"].as_u64().unwrap()).collect()
    };
    for (by, expression, wanted) in [
        ("by=kubectl*", "where=by.exists(name, name.startsWith(\"kubectl\"))", &[3, 1][..]),
        ("by=kubectl,keda-operator", "where=\"kubectl\" in by || \"keda-operator\" in by", &[3, 2]),
        ("by=nobody", "where=\"nobody\" in by", &[]),
    ] {
        assert_eq!(seqs(&mut opened, by), wanted, "{by}");
        assert_eq!(seqs(&mut opened, expression), wanted, "{expression}");
    }
    let shown =
        json(lanes(&mut opened, &Lanes { window: window(""), order: Order::Causes, lanes: 10, marks: 10 }).unwrap());
    let marks = shown["lanes"][0]["marks"].as_array().unwrap();
    let who = |mark: &serde_json::Value| (mark["managers"].clone(), mark["unnamed"].clone());
    let who: Vec<_> = marks.iter().map(who).collect();
    let named = |name: &str| (serde_json::json!([name]), serde_json::Value::Null);
    let unnamed = |why: &str| (serde_json::json!([]), serde_json::json!(why));
    let mut wanted = vec![named("kubectl-create"), named("keda-operator"), named("kubectl")];
    wanted.extend([unnamed("scale to 0 leaves no owner"), unnamed("deletion")]);
    assert_eq!(who, wanted);
    drop((opened, journal, source));
    thread.join().unwrap();
}
