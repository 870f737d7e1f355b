//! What `ignore` keeps out of the log, and what the API server's own counters said beside it.

use super::*;
use crate::core::change::Preset;

fn leases(ignore: &[&str]) -> SourceSpec {
    SourceSpec {
        resource: Resource {
            group: "coordination.k8s.io".into(),
            version: "v1".into(),
            kind: "Lease".into(),
            plural: "leases".into(),
            singular: "lease".into(),
            short_names: Vec::new(),
            namespaced: true,
        },
        ignore: ignore.iter().map(|text| (*text).to_owned()).collect(),
        ..pods()
    }
}

/// A lease whose holder renewed it at this version; the books move along, as on a real server.
fn lease(holder: &str, version: u64) -> Observed {
    let bytes = format!(
        r#"{{"metadata":{{"name":"a","namespace":"shop","uid":"u1","resourceVersion":"{version}","managedFields":[{{"manager":"{holder}","time":"{version}"}}]}},"spec":{{"holderIdentity":"{holder}","renewTime":"{version}"}}}}"#
    );
    Observed { body: Redacted { bytes: bytes.into_bytes(), ..Redacted::default() }, ..pod("a", "u1", version) }
}

fn renewed(holder: &str, version: u64) -> WatchChange {
    WatchChange { verb: Verb::Upsert, object: lease(holder, version) }
}

#[tokio::test]
async fn what_presets_call_noise_is_suppressed_and_counted_and_nothing_else_is() {
    let dir = tempfile::tempdir().unwrap();
    let open = Open::with(dir.path(), &leases(&["leader-election"])).await;
    open.list(10, None, &[lease("one", 9)]).await;
    open.watch(vec![renewed("one", 11), renewed("one", 12), renewed("other", 13), renewed("other", 14)]).await;
    let gone = WatchChange { verb: Verb::Delete, object: lease("other", 15) };
    let back = WatchChange { verb: Verb::Upsert, object: Observed { uid: "u2".into(), ..lease("other", 16) } };
    open.watch(vec![gone, back]).await;
    let expected = [
        "1 ADDED listed a/u1@9",
        // Another leader is news; the patch starts from the last entry.
        "2 MODIFIED watched a/u1@13",
        "3 DELETED watched a/u1@15",
        "4 ADDED watched a/u2@16",
    ];
    assert_eq!(open.log(), expected);
    let reader = open.journal.reader().unwrap();
    assert_eq!(reader.sources().unwrap()[0].suppressed, 3);
    open.close();

    // It is counted over the life of the journal, and state and position have moved.
    let open = Open::with(dir.path(), &leases(&["leader-election"])).await;
    assert_eq!(open.memory.checkpoint.applied, Some(rv(16)));
    open.watch(vec![renewed("other", 14)]).await;
    let reader = open.journal.reader().unwrap();
    let source = reader.sources().unwrap().remove(0);
    assert_eq!((source.suppressed, reader.objects_of(source.id).unwrap()), (3, 1));
    assert_whole(&mut open.journal.reader().unwrap());
}

/// A version of a Pod that a server stored at a time in a version of its API, with a value.
fn stored(version: u64, time: &str, api: &str, value: &str) -> WatchChange {
    let bytes = format!(
        r#"{{"metadata":{{"name":"a","namespace":"shop","uid":"u1","resourceVersion":"{version}","managedFields":[{{"manager":"m","apiVersion":"{api}","time":"{time}"}}]}},"spec":{{"a":"{value}"}}}}"#
    );
    let object =
        Observed { body: Redacted { bytes: bytes.into_bytes(), ..Redacted::default() }, ..pod("a", "u1", version) };
    WatchChange { verb: Verb::Upsert, object }
}

#[tokio::test]
async fn what_is_only_stored_again_is_suppressed_and_a_change_beside_it_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let spec = SourceSpec { ignore: vec!["storage-rewrites".to_owned()], ..pods() };
    let open = Open::with(dir.path(), &spec).await;
    open.list(10, None, &[stored(9, "t1", "v1beta1", "x").object]).await;
    open.watch(vec![stored(11, "t1", "v1beta1", "x"), stored(12, "t2", "v1beta1", "x"), stored(13, "t2", "v1", "x")])
        .await;
    open.watch(vec![stored(14, "t3", "v1", "y")]).await;
    // Who converts what managedFields say changes more than when something was written.
    assert_eq!(open.log(), ["1 ADDED listed a/u1@9", "2 MODIFIED watched a/u1@13", "3 MODIFIED watched a/u1@14"]);
    assert_eq!(open.journal.reader().unwrap().sources().unwrap()[0].suppressed, 2);
}

#[tokio::test]
async fn a_preset_covers_only_the_resources_it_is_meant_for() {
    for preset in Preset::ALL {
        let dir = tempfile::tempdir().unwrap();
        // The same objects as Pods: nothing in them is noise.
        let spec = SourceSpec { ignore: vec![preset.as_str().to_owned()], ..pods() };
        let open = Open::with(dir.path(), &spec).await;
        open.list(10, None, &[lease("one", 9)]).await;
        open.watch(vec![renewed("one", 11)]).await;
        assert_eq!(open.log().len(), 2, "{preset:?}");
    }
}

fn read(since: Option<i64>, until: i64, counts: &[(&'static str, u64)]) -> RequestCounts {
    let time = |seconds: i64| Timestamp::from_second(seconds).unwrap();
    let of = |plural: &str, verb, count| (String::new(), plural.to_owned(), verb, count);
    RequestCounts {
        since: since.map(time),
        until: time(until),
        requests: counts.iter().flat_map(|(verb, count)| [of("pods", *verb, *count), of("ghosts", *verb, 7)]).collect(),
    }
}

#[tokio::test]
async fn request_counters_are_kept_by_stretches_without_a_break() {
    let dir = tempfile::tempdir().unwrap();
    let spec = SourceSpec { ignore: vec!["/spec".to_owned()], ..pods() };
    let open = Open::with(dir.path(), &spec).await;
    open.list(10, None, &[pod("a", "u1", 7)]).await;
    open.watch(vec![upsert("a", "u1", 11)]).await;
    let journal = &open.journal;
    // What was suppressed before the first reading is of no stretch.
    journal.requests(Ok(read(None, 1000, &[]))).await.unwrap();
    open.watch(vec![upsert("a", "u1", 12), upsert("a", "u1", 13)]).await;
    journal.requests(Ok(read(Some(1000), 1020, &[("PUT", 5)]))).await.unwrap();
    journal.requests(Ok(read(Some(1020), 1040, &[("PUT", 1), ("PATCH", 2)]))).await.unwrap();
    journal.requests(Err("it may not".to_owned())).await.unwrap();
    journal.flush().await.unwrap();
    let mut reader = journal.reader().unwrap();
    let seconds = |stretches: &[(i64, i64)]| -> Vec<(i64, i64)> {
        stretches.iter().map(|(a, b)| (a / 1_000_000, b / 1_000_000)).collect()
    };
    let found = reader.requests(0, i64::MAX).unwrap();
    assert_eq!(seconds(&found.stretches), [(1000, 1040)]);
    assert_eq!(found.problem.as_deref(), Some("it may not"));
    assert_eq!(found.suppressed["pods"], 2);
    let counts = |found: &Requests| format!("{:?}", found.counts);
    assert_eq!(counts(&found), r#"{"pods": {"PATCH": 2, "PUT": 6}}"#, "of what is watched");

    // A break, and then another stretch: what fell between them is in none.
    journal.requests(Ok(read(None, 1100, &[]))).await.unwrap();
    journal.requests(Ok(read(Some(1100), 1180, &[("PUT", 4)]))).await.unwrap();
    // A stretch ends after some minutes, and the next one goes on where it was.
    journal.requests(Ok(read(Some(1180), 1220, &[("PUT", 3)]))).await.unwrap();
    journal.flush().await.unwrap();
    let found = reader.requests(1_050_000_000, i64::MAX).unwrap();
    assert_eq!(seconds(&found.stretches), [(1100, 1180), (1180, 1220)]);
    assert_eq!((counts(&found).as_str(), found.problem), (r#"{"pods": {"PUT": 7}}"#, None));
    assert_eq!(counts(&reader.requests(1_190_000_000, i64::MAX).unwrap()), r#"{"pods": {"PUT": 3}}"#);
    assert_eq!(counts(&reader.request_totals().unwrap()), r#"{"pods": {"PATCH": 2, "PUT": 13}}"#);

    // A week of stretches is kept, and the sum of all.
    for turn in 0..1010 {
        let (since, until) = (1220 + turn * 600, 1220 + (turn + 1) * 600);
        journal.requests(Ok(read(Some(since), until, &[("PUT", 1)]))).await.unwrap();
    }
    journal.flush().await.unwrap();
    let found = reader.requests(0, i64::MAX).unwrap();
    assert_eq!((found.stretches.len(), found.counts["pods"]["PUT"]), (1008, 1008));
    assert_eq!(reader.request_totals().unwrap().counts["pods"]["PUT"], 13 + 1010);
}
