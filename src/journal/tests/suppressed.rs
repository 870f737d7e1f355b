//! States that `ignore` kept out of the log: small beside the entry that they are differences of, and as exact.

use super::retention::{by_age, oldest, until};
use super::*;
use crate::journal::codec::Codec;

/// An object of which much never changes.
fn heavy(n: u64, noise: &str, version: u64) -> Observed {
    let words: Vec<String> =
        (0..400_u64).map(|at| format!("\"{:x}\"", at.wrapping_mul(0x9e37_79b9_7f4a_7c15))).collect();
    let bytes = format!(
        r#"{{"metadata":{{"name":"a","namespace":"shop","uid":"u1","resourceVersion":"{version}"}},"spec":{{"n":{n},"words":[{}]}},"status":{{"seen":{noise}}}}}"#,
        words.join(",")
    );
    Observed { body: Redacted { bytes: bytes.into_bytes(), ..Redacted::default() }, ..pod("a", "u1", version) }
}

fn suppressing() -> SourceSpec {
    SourceSpec { ignore: vec!["/status/seen".to_owned()], ..pods() }
}

fn change(n: u64, noise: &str, version: u64) -> WatchChange {
    WatchChange { verb: Verb::Upsert, object: heavy(n, noise, version) }
}

/// What the table holds of the object.
fn stored(dir: &Path) -> Vec<u8> {
    let conn = Connection::open(dir.join("journal.db")).unwrap();
    conn.query_row("SELECT state FROM object", [], |row| row.get(0)).unwrap()
}

#[track_caller]
fn assert_current(open: &Open, object: &Observed) {
    let mut reader = open.journal.reader().unwrap();
    let row = reader.objects(1, None, Some("a")).unwrap().remove(0);
    assert_eq!(reader.current(&row).unwrap().unwrap(), object.body.bytes);
    assert_eq!(reader.unrecorded(&row).unwrap().unwrap().0, object.body.bytes);
    assert_whole(&mut reader);
}

fn last_entry(open: &Open) -> Vec<u8> {
    let mut reader = open.journal.reader().unwrap();
    let head = reader.head().unwrap();
    reader.entry(head).unwrap().unwrap().line.to_vec()
}

#[tokio::test]
async fn a_suppressed_state_is_a_small_difference_and_stays_exact() {
    let dir = tempfile::tempdir().unwrap();
    let open = Open::with(dir.path(), &suppressing()).await;
    open.list(10, None, &[heavy(1, "1", 9)]).await;
    open.watch(vec![change(1, "2", 11), change(2, "3", 12), change(2, "\"longer\"", 13), change(2, "5e0", 14)]).await;
    assert_eq!(open.log(), ["1 ADDED listed a/u1@9", "2 MODIFIED watched a/u1@12"]);
    assert_current(&open, &heavy(2, "5e0", 14));
    let state = stored(dir.path());
    assert!(Codec::is_difference(&state) && state.len() < 128, "{} bytes", state.len());
    open.close();

    // The entry that it is a difference of is truncated, and pinned for that.
    let open = Open::with(dir.path(), &suppressing()).await;
    let last = last_entry(&open);
    open.journal.bound(by_age()).await.unwrap();
    until("the first entry to be truncated", || oldest(&open) == 2).await;
    assert_eq!(last_entry(&open), last);
    assert_current(&open, &heavy(2, "5e0", 14));
    open.watch(vec![change(2, "6", 15)]).await;
    assert_current(&open, &heavy(2, "6", 15));

    // What is recorded next starts from the last entry, and what goes unseen went as it was last seen.
    open.watch(vec![change(3, "6", 16), change(3, "7", 17)]).await;
    let line = last_entry(&open);
    let entry = Entry::parse(&line).unwrap();
    let patch = entry.change.unwrap().get();
    for part in [
        r#"{"op":"replace","path":"/metadata/resourceVersion","value":"16","was":"12"}"#,
        r#"{"op":"replace","path":"/spec/n","value":3,"was":2}"#,
        r#"{"op":"replace","path":"/status/seen","value":6,"was":3}"#,
    ] {
        assert!(patch.contains(part), "{patch}");
    }
    open.list(20, Some(Why::Expired), &[]).await;
    let line = last_entry(&open);
    let entry = Entry::parse(&line).unwrap();
    assert_eq!(entry.op.as_str(), "DELETED");
    assert_eq!(entry.object.unwrap().get().as_bytes(), heavy(3, "7", 17).body.bytes);
    assert_whole(&mut open.journal.reader().unwrap());
}

#[tokio::test]
async fn a_suppressed_state_far_from_its_entry_stands_alone() {
    let dir = tempfile::tempdir().unwrap();
    let open = Open::with(dir.path(), &suppressing()).await;
    open.list(10, None, &[heavy(1, "1", 9)]).await;
    let mut far = heavy(1, &format!("{:?}", (0..900_u64).map(|at| at * at).collect::<Vec<_>>()), 11);
    open.watch(vec![WatchChange { verb: Verb::Upsert, object: far.clone() }]).await;
    assert_eq!(open.log().len(), 1);
    assert_current(&open, &far);
    // Marks and pointers are of the state, whatever it is stored as.
    far = heavy(1, "2", 12);
    far.body.pointers = vec!["/spec/words".to_owned()];
    open.watch(vec![WatchChange { verb: Verb::Upsert, object: far.clone() }]).await;
    assert_current(&open, &far);
    let mut reader = open.journal.reader().unwrap();
    let row = reader.objects(1, None, Some("a")).unwrap().remove(0);
    assert_eq!(reader.unrecorded(&row).unwrap().unwrap().1, ["/spec/words"]);
}

#[tokio::test]
async fn a_state_without_its_entry_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let open = Open::with(dir.path(), &suppressing()).await;
    open.list(10, None, &[heavy(1, "1", 9)]).await;
    open.watch(vec![change(1, "2", 11)]).await;
    open.close();
    damage(dir.path(), "entry", "line", "seq = 1");
    let mut reader = Reader::open(dir.path()).unwrap();
    let row = reader.objects(1, None, Some("a")).unwrap().remove(0);
    assert!(matches!(reader.current(&row), Err(JournalError::Corrupt(_))));
    let found = reader.verify(|_, _| ()).unwrap();
    assert!(
        found.problems.iter().any(|problem| problem.contains("has a state that is damaged")),
        "{:?}",
        found.problems
    );
    drop(reader);
    // And the next change is recorded as a whole, and is whole.
    let open = Open::with(dir.path(), &suppressing()).await;
    open.watch(vec![change(1, "3", 12), change(1, "4", 13)]).await;
    assert_eq!(open.head(), Seq(2));
    let mut reader = open.journal.reader().unwrap();
    assert_eq!(reader.current(&row).unwrap().unwrap(), heavy(1, "4", 13).body.bytes);
}
