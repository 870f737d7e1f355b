//! What is found, and what goes on, where somebody or something else has changed the journal.

use super::*;
use crate::journal::codec::Codec;

#[tokio::test]
async fn verify_finds_what_was_changed_behind_our_back() {
    let breaks = [
        ("DELETE FROM entry WHERE seq = 2", "missing"),
        ("UPDATE entry SET line = (SELECT line FROM entry WHERE seq = 1) WHERE seq = 3", "entry 3"),
        ("UPDATE entry SET line = x'00' WHERE seq = 1", "damaged"),
        ("UPDATE object SET version = '999' WHERE name = 'a'", "differs from entry"),
        ("UPDATE object SET present = 0 WHERE name = 'c'", "is gone in the table"),
        ("UPDATE sink SET cursor = 77", "past the head"),
        ("UPDATE entry SET previous = 0 WHERE seq = 4", "follows entry 0"),
        ("DELETE FROM object WHERE id = 2", "object of entry 2 is missing in the object table"),
        ("DELETE FROM object", "object of entry 1 is missing in the object table"),
        ("UPDATE object SET name = 'zz' WHERE name = 'b'", "entry 2: its object has another name"),
        ("UPDATE object SET namespace = 'zz' WHERE name = 'b'", "object u2 at version 2 differs from entry 2"),
        ("UPDATE object SET state = x'00'", "object u2 has a state that is damaged"),
        ("UPDATE object SET state = NULL, last = 0 WHERE name = 'b'", "neither the log nor the table has its state"),
        ("UPDATE object SET base = 3 WHERE name = 'a'", "object u1 has another base than entry 4"),
        ("UPDATE entry SET object_start = object_start + 1", "entry 4: its object stands elsewhere"),
        ("UPDATE entry SET object_end = 99999 WHERE seq = 3", "entry 3: its object stands elsewhere"),
        ("UPDATE entry SET source = 7 WHERE seq = 2", "entry 2: its source is not there"),
        ("UPDATE resource SET plural = 'nodes'", "entry 2: it is not of its source"),
        ("UPDATE source SET namespace = 'pay'", "entry 2: it is not of its source"),
        ("UPDATE entry SET object = NULL WHERE seq = 2", "entry 2: its row says that it is of an object, or of none"),
        ("UPDATE meta SET value = 'f' || substr(value, 2) WHERE key = 'epoch'", "entry 4: its epoch is not that"),
        ("DELETE FROM meta WHERE key = 'epoch'", "the journal has no epoch"),
        ("UPDATE meta SET value = '3' WHERE key = 'head'", "its head is 4, but it notes \"3\""),
        ("UPDATE meta SET value = 'x' WHERE key = 'head'", "its head is 4, but it notes \"x\""),
    ];
    for (sabotage, symptom) in breaks {
        let dir = tempfile::tempdir().unwrap();
        let open = Open::at(dir.path()).await;
        open.list(10, None, &[pod("a", "u1", 1), pod("b", "u2", 2), pod("c", "u3", 3)]).await;
        open.watch(vec![upsert("a", "u1", 11)]).await;
        open.journal.sink("x", "file", SinkStart::Start).await.unwrap();
        open.close();
        let conn = Connection::open(dir.path().join("journal.db")).unwrap();
        conn.execute_batch(&format!("PRAGMA foreign_keys = OFF; {sabotage}")).unwrap();
        drop(conn);
        let found = Reader::open(dir.path()).unwrap().verify(|_, _| ()).unwrap();
        assert!(found.problems.iter().any(|problem| problem.contains(symptom)), "{sabotage}: {:?}", found.problems);
    }
}

/// An entry as another decklog may have written it: `verify` finds what no reader can read, and nothing else.
#[tokio::test]
async fn verify_reads_each_entry_as_readers_do() {
    let cases = [
        ("managers\":[]", "managers\":[{\"manager\":null,\"operation\":5,\"time\":[],\"by\":\"later\"}]", None),
        ("managers\":[]", "managers\":[null]", Some("entry 2: an entry whose change cannot be read")),
        ("managers\":[]", "managers\":5", Some("entry 2: an entry whose change cannot be read")),
        ("\"areas\":[", "\"areas\":[null,", Some("entry 2: an entry whose change cannot be read")),
        ("\"path\":\"/spec/n\"", "\"path\":{}", Some("entry 2: an entry whose change cannot be read")),
    ];
    for (from, to, problem) in cases {
        let dir = tempfile::tempdir().unwrap();
        let open = Open::at(dir.path()).await;
        open.list(10, None, &[pod("a", "u1", 1)]).await;
        open.watch(vec![upsert("a", "u1", 11)]).await;
        let stored = open.journal.reader().unwrap().entry(Seq(2)).unwrap().unwrap();
        open.close();
        let line = String::from_utf8(stored.line.to_vec()).unwrap();
        assert!(line.contains(from), "{line}");
        let line = line.replacen(from, to, 1);
        let start = line.find("\"object\":").unwrap() + 9;
        let conn = Connection::open(dir.path().join("journal.db")).unwrap();
        conn.execute(
            "UPDATE entry SET line = ?, base = NULL, object_start = ?, object_end = ? WHERE seq = 2",
            rusqlite::params![Codec::default().compress(None, line.as_bytes()), start, line.len() - 1],
        )
        .unwrap();
        conn.execute("UPDATE object SET base = 2", []).unwrap();
        drop(conn);
        let found = Reader::open(dir.path()).unwrap().verify(|_, _| ()).unwrap();
        assert_eq!(found.problems.first().map(String::as_str), problem, "{to}");
    }
}

/// What no entry carries is looked at too, and whatever is meant is not damage: objects of a silent list, the dead that
/// such a list found again, states that `ignore` kept out of the log.
#[tokio::test]
async fn verify_takes_states_beside_the_log_for_what_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let silent = SourceSpec { first_list_silent: true, ignore: vec!["/spec/n".into()], ..pods() };
    let open = Open::with(dir.path(), &silent).await;
    open.list(10, None, &[pod("a", "u1", 1), pod("b", "u2", 2), pod("c", "u3", 3)]).await;
    open.watch(vec![upsert("d", "u4", 11), upsert("d", "u4", 12), upsert("e", "u5", 13), delete("e", "u5", 14)]).await;
    open.watch(vec![delete("c", "u3", 15)]).await;
    // A list in progress says nothing yet.
    open.source.list_begin().await.unwrap();
    open.source.list_page(vec![pod("a", "u1", 16)]).await.unwrap();
    open.journal.flush().await.unwrap();
    assert_whole(&mut open.journal.reader().unwrap());
    assert_eq!(open.log().len(), 4, "{:?}", open.log());
    open.close();
    let conn = Connection::open(dir.path().join("journal.db")).unwrap();
    conn.execute("UPDATE object SET state = (SELECT state FROM object WHERE name = 'a') WHERE name = 'b'", []).unwrap();
    drop(conn);
    let found = Reader::open(dir.path()).unwrap().verify(|_, _| ()).unwrap();
    assert_eq!(found.problems, ["object u2 has a state that is damaged or not its own"]);
}

/// What follows from a lost row: the daemon takes the object for a new one.
#[tokio::test]
async fn verify_finds_an_object_that_is_added_twice() {
    let dir = tempfile::tempdir().unwrap();
    let open = Open::at(dir.path()).await;
    open.list(10, None, &[pod("a", "u1", 1), pod("b", "u2", 2)]).await;
    open.close();
    let conn = Connection::open(dir.path().join("journal.db")).unwrap();
    conn.execute("DELETE FROM object WHERE name = 'a'", []).unwrap();
    drop(conn);
    let open = Open::at(dir.path()).await;
    open.watch(vec![upsert("a", "u1", 11)]).await;
    assert_eq!(open.log()[2], "3 ADDED watched a/u1@11");
    open.close();
    let found = Reader::open(dir.path()).unwrap().verify(|_, _| ()).unwrap();
    let lost = "the object of entry 1 is missing in the object table";
    assert_eq!(found.problems, [lost, "entry 3 adds an object that exists"]);
}

/// Fault 42: a damaged entry is reported by `verify` and by whoever reads it, and nothing that comes after it is lost.
#[tokio::test]
async fn a_damaged_entry_holds_up_nothing_that_follows_it() {
    let dir = tempfile::tempdir().unwrap();
    let open = Open::at(dir.path()).await;
    open.list(10, None, &[pod("a", "u1", 1), pod("b", "u2", 2), pod("c", "u3", 3)]).await;
    open.watch(vec![upsert("a", "u1", 11)]).await;
    open.close();
    // The first entries of all three, and so what the change of the first was stored as a difference of.
    damage(dir.path(), "entry", "line", "seq <= 3");
    let damaged = Reader::open(dir.path()).unwrap().verify(|_, _| ()).unwrap().problems;
    assert!(damaged.iter().any(|problem| problem.contains("entry 1 is damaged")), "{damaged:?}");

    let open = Open::at(dir.path()).await;
    open.watch(vec![upsert("a", "u1", 12), upsert("a", "u1", 13), upsert("b", "u2", 14), delete("b", "u2", 15)]).await;
    open.list(20, Some(Why::Expired), &[pod("a", "u1", 13)]).await;
    let mut reader = open.journal.reader().unwrap();
    let read: Vec<_> = reader.entries_after(Seq(4), 100, usize::MAX).unwrap();
    let read: Vec<Entry<'_>> = read.iter().map(|entry| Entry::parse(&entry.line).unwrap()).collect();
    let kinds: Vec<&str> = read.iter().map(|entry| entry.op.as_str()).collect();
    assert_eq!(kinds, ["MODIFIED", "MODIFIED", "MODIFIED", "DELETED", "GAP", "DELETED"]);
    let change = |at: usize| serde_json::from_str::<serde_json::Value>(read[at].change.unwrap().get()).unwrap();
    let object = |at: usize| serde_json::from_str::<serde_json::Value>(read[at].object.unwrap().get()).unwrap();
    for at in [0, 2] {
        let whole = serde_json::json!([{"op": "replace", "path": "", "value": object(at)}]);
        assert_eq!(
            (&change(at)["patch"], &change(at)["areas"]),
            (&whole, &serde_json::json!(["apiVersion", "kind", "metadata", "spec"]))
        );
    }
    assert_eq!(change(1)["areas"], serde_json::json!(["spec"]), "from there on it is as ever");
    let stub = serde_json::json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "c", "namespace": "shop", "uid": "u3", "resourceVersion": "3"},
    });
    assert_eq!(object(5), stub, "what is still known of it");
    drop(reader);
    open.close();
    let now = Reader::open(dir.path()).unwrap().verify(|_, _| ()).unwrap().problems;
    assert!(!now.is_empty() && now.iter().all(|problem| damaged.contains(problem)), "nothing new is wrong: {now:?}");
}

/// Fault 42: a body that is damaged while its list is being written ends nothing: the rest of the list is recorded, and
/// the next one declares what this one lacked.
#[tokio::test]
async fn a_damaged_body_of_a_list_in_progress_is_recorded_after_another_list() {
    for first in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let open = Open::at(dir.path()).await;
        if !first {
            open.list(10, None, &[pod("a", "u1", 1), pod("b", "u2", 2), pod("c", "u3", 3), pod("d", "u4", 4)]).await;
        }
        // New, changed, made again, as it was, and one that is gone.
        let listed = vec![pod("n", "u5", 21), pod("b", "u2", 22), pod("c", "u6", 23), pod("d", "u4", 4)];
        open.source.list_begin().await.unwrap();
        open.source.list_page(listed.clone()).await.unwrap();
        open.journal.flush().await.unwrap();
        let id = open.source.id().0;
        open.close();
        // As a crash leaves it right after the list was complete.
        let conn = Connection::open(dir.path().join("journal.db")).unwrap();
        let why = if first { None } else { Some("expired") };
        conn.execute("UPDATE source SET pending = '30', pending_why = ? WHERE id = ?", (why, id)).unwrap();
        drop(conn);
        damage(dir.path(), "listing", "body", "name IN ('n', 'c')");

        // Each start comes to the end of it, and none emits anything again.
        for _ in 0..3 {
            let open = Open::at(dir.path()).await;
            open.journal.flush().await.unwrap();
            if first {
                assert_eq!(open.log(), ["1 ADDED listed d/u4@4", "2 ADDED listed b/u2@22"]);
            } else {
                let expected = ["5 GAP expired 10..30", "6 DELETED inferred a/u1@1", "7 MODIFIED inferred b/u2@22"];
                assert_eq!(open.log()[4..], expected);
            }
            assert_eq!(
                (&open.memory.checkpoint.resume, open.memory.why),
                (&None, Some(Why::Audit)),
                "it has to list again"
            );
            assert_eq!(open.memory.checkpoint.applied, Some(rv(30)));
            assert_whole(&mut open.journal.reader().unwrap());
            open.close();
        }
        let open = Open::at(dir.path()).await;
        open.list(40, open.memory.why, &listed).await;
        if first {
            // Nothing was ever proved, so nothing is said of where it begins.
            let expected = ["3 GAP audit ..40", "4 ADDED inferred n/u5@21", "5 ADDED inferred c/u6@23"];
            assert_eq!(open.log()[2..], expected);
        } else {
            let expected = [
                "8 GAP audit 10..40",
                "9 ADDED inferred n/u5@21",
                "10 DELETED inferred c/u3@3",
                "11 ADDED inferred c/u6@23",
            ];
            assert_eq!(open.log()[7..], expected);
        }
        open.close();
        let open = Open::at(dir.path()).await;
        assert_eq!((&open.memory.checkpoint.resume, open.memory.why), (&Some(rv(40)), None), "it is over");
        assert_whole(&mut open.journal.reader().unwrap());
        open.close();
    }
}

/// Fault 51: decklog is the only one that writes; what it knows would be wrong otherwise.
#[tokio::test]
async fn another_writer_ends_it() {
    let dir = tempfile::tempdir().unwrap();
    let open = Open::at(dir.path()).await;
    open.watch(vec![upsert("a", "u1", 11)]).await;
    // Readers come and go.
    drop(Reader::open(dir.path()).unwrap().verify(|_, _| ()).unwrap());
    open.watch(vec![upsert("a", "u1", 12)]).await;
    let conn = Connection::open(dir.path().join("journal.db")).unwrap();
    conn.execute_batch("UPDATE sink SET cursor = 7; DELETE FROM entry WHERE seq = 1").unwrap();
    let refused = open.source.append(vec![upsert("a", "u1", 13)]).await;
    assert!(refused.is_err() || open.journal.flush().await.is_err(), "nothing more is written");
    drop(open.journal);
    let why = open.thread.join().unwrap_err();
    assert!(matches!(&why, JournalError::Corrupt(text) if text.contains("another program has written")), "{why}");
}

#[tokio::test]
async fn a_missing_end_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let open = Open::at(dir.path()).await;
    open.watch(vec![upsert("a", "u1", 11), upsert("b", "u2", 12)]).await;
    open.close();
    let conn = Connection::open(dir.path().join("journal.db")).unwrap();
    conn.execute("DELETE FROM object WHERE name = 'b'", []).unwrap();
    conn.execute("DELETE FROM entry WHERE seq = 2", []).unwrap();
    let found = Reader::open(dir.path()).unwrap().verify(|_, _| ()).unwrap();
    assert!(found.problems.iter().any(|problem| problem.contains("newest entries, 2 to 2")), "{:?}", found.problems);
}
