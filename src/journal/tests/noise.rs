//! What `ignore` keeps out of the log, and what the API server's own counters said beside it.

use super::*;
use crate::change::Preset;

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

/// The journal in `new` as a decklog had it that knew so many migrations.
fn as_it_was(new: &Path, old: &Path, migrations: &[&str]) {
    let conn = Connection::open(old.join("journal.db")).unwrap();
    for migration in migrations {
        conn.execute_batch(migration).unwrap();
    }
    conn.pragma_update(None, "user_version", migrations.len()).unwrap();
    conn.execute("ATTACH ? AS new", [new.join("journal.db").to_str().unwrap()]).unwrap();
    let names = |text: &str| -> Vec<String> {
        let mut select = conn.prepare(text).unwrap();
        let names = select.query_map([], |row| row.get(0)).unwrap();
        names.collect::<Result<_, _>>().unwrap()
    };
    for table in names("SELECT name FROM main.sqlite_master WHERE type = 'table' ORDER BY rowid") {
        let columns = names(&format!("SELECT name FROM pragma_table_info('{table}', 'main')")).join(", ");
        conn.execute_batch(&format!("INSERT INTO main.{table} ({columns}) SELECT {columns} FROM new.{table}")).unwrap();
    }
}

#[tokio::test]
async fn a_journal_of_each_earlier_schema_is_migrated_and_reads_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let open = Open::at(dir.path()).await;
    open.list(10, None, &[pod("a", "u1", 7), pod("c", "u3", 8)]).await;
    open.watch(vec![upsert("a", "u1", 11), upsert("c", "u3", 12), delete("a", "u1", 13)]).await;
    open.list(20, Some(Why::Expired), &[pod("b", "u2", 15)]).await;
    open.journal.sink("s", "file", SinkStart::Start).await.unwrap();
    open.sink("s").await.acknowledge(Seq(2)).await.unwrap();
    // The lines, every object at every seq, and what is known of sources and sinks.
    let read = |dir: &Path| {
        let mut reader = Reader::open(dir).unwrap();
        let entries = reader.entries_after(Seq(0), 100, usize::MAX).unwrap();
        let mut read: Vec<_> = entries.into_iter().map(|entry| (0, entry.seq, entry.line)).collect();
        for row in reader.objects(1, None, None).unwrap() {
            for seq in 1..=reader.head().unwrap().0 {
                let at = reader.entry_at(&row, Seq(seq)).unwrap();
                read.extend(at.map(|at| (seq, at.seq, at.line)));
            }
        }
        (read, format!("{:?} {:?}", reader.sources().unwrap(), reader.sinks().unwrap()), reader.epoch().unwrap())
    };
    open.close();
    let expected = read(dir.path());
    assert!(expected.0.len() > 20);
    let since = |dir: &Path| Reader::open(dir).unwrap().sources().unwrap()[0].good_since;
    let noted = format!("good_since: {:?}", since(dir.path()));
    for version in 1..schema::MIGRATIONS.len() {
        let old = tempfile::tempdir().unwrap();
        as_it_was(dir.path(), old.path(), &schema::MIGRATIONS[..version]);
        let refused = Reader::open(old.path()).unwrap_err().to_string();
        assert!(refused.contains(&format!("older decklog (schema {version})")), "{refused}");
        Open::at(old.path()).await.close();
        // Registering its source is news; and since when it is known was not always noted.
        let known = if version < 12 { "good_since: Some(0)" } else { &*noted };
        let state = |text: &str| text.replace("active: false", "active: true").replace(&noted, known);
        let migrated = read(old.path());
        assert_eq!(migrated.0, expected.0, "schema {version}");
        assert_eq!((state(&migrated.1), &migrated.2), (state(&expected.1), &expected.2), "schema {version}");
        let open = Open::at(old.path()).await;
        assert_eq!(open.memory.checkpoint.resume, Some(rv(20)));
        open.watch(vec![upsert("b", "u2", 21), upsert("d", "u4", 22)]).await;
        assert_eq!(open.head().0, expected.0.iter().filter(|(at, ..)| *at == 0).count() as u64 + 2);
        assert_whole(&mut open.journal.reader().unwrap());
        open.close();
        assert_eq!(format!("good_since: {:?}", since(old.path())), known, "what comes later is not its first");
    }
}

/// As the rows of a leader that is older do, which the shared log brings: its sources were known before that was noted.
#[tokio::test]
async fn a_source_that_was_known_before_it_was_noted_was_known_always() {
    let dir = tempfile::tempdir().unwrap();
    let open = Open::at(dir.path()).await;
    open.list(10, None, &[pod("a", "u1", 7)]).await;
    open.close();
    let conn = Connection::open(dir.path().join("journal.db")).unwrap();
    assert_eq!(conn.execute("UPDATE source SET good_since = NULL WHERE good_since > 0", []).unwrap(), 1);
    drop(conn);
    let open = Open::at(dir.path()).await;
    open.watch(vec![upsert("a", "u1", 11)]).await;
    let since = open.journal.reader().unwrap().sources().unwrap()[0].good_since;
    open.close();
    assert_eq!(since, Some(0));
}
