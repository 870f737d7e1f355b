//! The journal's promises, each under its name.

mod damaged;
mod messages;
mod noise;
mod pushdown;
mod retention;
mod scopes;
mod senders;
mod sharing;
mod staging;
mod suppressed;
mod trust;
mod unwritten;

use jiff::Timestamp;
pub(crate) use retention::until;
use rusqlite::Connection;
use scopes::{one_namespace, pod_in};
use std::path::Path;

use super::*;
use crate::core::model::{EntryType, Observed, Redacted, ResourceVersion, Verb, Why};
use crate::core::wire::Entry;

/// All Pods.
pub(crate) fn pods() -> SourceSpec {
    SourceSpec::of(Resource {
        group: String::new(),
        version: "v1".into(),
        kind: "Pod".into(),
        plural: "pods".into(),
        singular: "pod".into(),
        short_names: vec!["po".into()],
        namespaced: true,
    })
}

fn pod(name: &str, uid: &str, version: u64) -> Observed {
    let bytes = format!(
        r#"{{"kind":"Pod","apiVersion":"v1","metadata":{{"name":"{name}","namespace":"shop","uid":"{uid}","resourceVersion":"{version}"}},"spec":{{"n":{version}}}}}"#
    );
    Observed {
        namespace: "shop".into(),
        name: name.into(),
        uid: uid.into(),
        version: rv(version),
        body: Redacted { bytes: bytes.into_bytes(), pointers: Vec::new(), marks: Vec::new() },
    }
}

fn rv(version: u64) -> ResourceVersion {
    ResourceVersion::new(version.to_string())
}

fn upsert(name: &str, uid: &str, version: u64) -> WatchChange {
    WatchChange { verb: Verb::Upsert, object: pod(name, uid, version) }
}

fn delete(name: &str, uid: &str, version: u64) -> WatchChange {
    WatchChange { verb: Verb::Delete, object: pod(name, uid, version) }
}

/// Reports whether somebody reads an old state of a journal, so that what is written now cannot leave the write-ahead log.
pub(crate) fn is_held_back(dir: &Path) -> bool {
    let conn = Connection::open(dir.join("journal.db")).unwrap();
    conn.pragma_update(None, "synchronous", "OFF").unwrap();
    conn.execute("INSERT OR REPLACE INTO meta (key, value) VALUES ('touched', random())", []).unwrap();
    conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0)).unwrap()
}

/// Waits for children that another test begins: they have every open file, and its lock, until they are another program.
fn wait_for_children(dir: &Path) {
    if let Ok(lock) = std::fs::File::options().write(true).open(dir.join("decklog.lock")) {
        rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    }
}

/// A daemon's view: the journal is open, one source is registered.
struct Open {
    journal: Journal,
    thread: WriterThread,
    source: SourceJournal,
    memory: SourceMemory,
}

impl Open {
    async fn with(dir: &Path, spec: &SourceSpec) -> Self {
        wait_for_children(dir);
        let (journal, thread) = Journal::open(dir).unwrap();
        let (source, memory) = journal.source(spec).await.unwrap();
        Self { journal, thread, source, memory }
    }

    async fn at(dir: &Path) -> Self {
        Self::with(dir, &pods()).await
    }

    async fn list(&self, version: u64, why: Option<Why>, objects: &[Observed]) {
        self.source.list_begin().await.unwrap();
        for page in objects.chunks(2) {
            self.source.list_page(page.to_vec()).await.unwrap();
        }
        self.source.list_done(rv(version), why).await.unwrap();
    }

    async fn watch(&self, changes: Vec<WatchChange>) {
        self.source.append(changes).await.unwrap();
        self.journal.flush().await.unwrap();
    }

    /// The handle of a sink, which begins at the first entry if it is new.
    async fn sink(&self, name: &str) -> SinkJournal {
        self.journal.sink(name, "file", SinkStart::Start).await.unwrap().0
    }

    fn log(&self) -> Vec<String> {
        log(&mut self.journal.reader().unwrap())
    }

    fn head(&self) -> Seq {
        *self.journal.head().borrow()
    }

    fn close(self) {
        drop((self.journal, self.source));
        self.thread.join().unwrap();
    }
}

/// The log in short: `seq TYPE evidence name/uid@version`, and `seq GAP why from..to`.
fn log(reader: &mut Reader) -> Vec<String> {
    let entries = reader.entries_after(Seq(0), 10_000, usize::MAX).unwrap();
    entries
        .iter()
        .map(|stored| {
            let entry = Entry::parse(&stored.line).unwrap();
            match entry.gap() {
                Some(gap) => format!(
                    "{} GAP {} {}..{}",
                    entry.seq,
                    gap.why,
                    gap.from.unwrap_or_default(),
                    gap.to.unwrap_or_default()
                ),
                None => format!(
                    "{} {} {} {}/{}@{}",
                    entry.seq,
                    entry.op.as_str(),
                    entry.evidence.as_deref().unwrap(),
                    entry.name.as_deref().unwrap(),
                    entry.uid.as_deref().unwrap(),
                    entry.version()
                ),
            }
        })
        .collect()
}

/// Flips the last bits of these values, behind the back of everybody.
fn damage(dir: &Path, table: &str, column: &str, rows: &str) {
    let conn = Connection::open(dir.join("journal.db")).unwrap();
    let flip = format!(
        "UPDATE {table} SET {column} = CAST(substr({column}, 1, length({column}) - 1)
             || CASE substr({column}, -1) WHEN x'77' THEN x'88' ELSE x'77' END AS BLOB) WHERE {rows}"
    );
    assert!(conn.execute(&flip, []).unwrap() > 0, "nothing to damage");
}

fn assert_whole(reader: &mut Reader) {
    let found = reader.verify(|_, _| ()).unwrap();
    assert_eq!(found.problems, Vec::<String>::new());
}

#[tokio::test]
async fn each_change_is_recorded_once_across_restarts_and_replays() {
    let dir = tempfile::tempdir().unwrap();
    let open = Open::at(dir.path()).await;
    assert!(open.memory.checkpoint.resume.is_none() && open.memory.why.is_none());
    open.list(10, None, &[pod("b", "u2", 9), pod("a", "u1", 7)]).await;
    open.watch(vec![upsert("a", "u1", 11), upsert("c", "u3", 12), delete("b", "u2", 13)]).await;
    open.close();

    let open = Open::at(dir.path()).await;
    // The newest version can be shared by events that are still to come, so the position is the one before it.
    assert_eq!(
        (open.memory.checkpoint.resume.clone(), open.memory.checkpoint.applied.clone()),
        (Some(rv(12)), Some(rv(13)))
    );
    open.watch(vec![upsert("c", "u3", 12), delete("b", "u2", 13), upsert("b", "u4", 14)]).await;
    // An API server that is behind sends old things.
    open.watch(vec![upsert("a", "u1", 7), delete("c", "u3", 9)]).await;
    assert_eq!(
        open.log(),
        [
            "1 ADDED listed a/u1@7",
            "2 ADDED listed b/u2@9",
            "3 MODIFIED watched a/u1@11",
            "4 ADDED watched c/u3@12",
            "5 DELETED watched b/u2@13",
            "6 ADDED watched b/u4@14",
        ]
    );
    assert_whole(&mut open.journal.reader().unwrap());
}

#[tokio::test]
async fn deletions_that_share_one_version_are_all_recorded_once() {
    let dir = tempfile::tempdir().unwrap();
    let open = Open::at(dir.path()).await;
    let all: Vec<_> = (0..5).map(|n| pod(&format!("e{n}"), &format!("u{n}"), n + 1)).collect();
    open.list(10, None, &all).await;
    open.watch(vec![delete("e0", "u0", 20), delete("e1", "u1", 20)]).await;
    open.close();
    let open = Open::at(dir.path()).await;
    assert_eq!(open.memory.checkpoint.resume, Some(rv(10)), "resuming from 20 would skip the other three");
    open.watch((0..5).map(|n| delete(&format!("e{n}"), &format!("u{n}"), 20)).collect()).await;
    assert_eq!(open.log().iter().filter(|line| line.contains("DELETED")).count(), 5);
    assert_whole(&mut open.journal.reader().unwrap());
}

#[tokio::test]
async fn a_gap_precedes_what_follows_and_the_net_difference_is_inferred() {
    let dir = tempfile::tempdir().unwrap();
    let open = Open::at(dir.path()).await;
    let objects = [pod("gone", "u1", 1), pod("same", "u2", 2), pod("new", "u3", 3), pod("reborn", "u4", 4)];
    open.list(10, None, &objects).await;
    open.list(
        50,
        Some(Why::Expired),
        &[pod("same", "u2", 2), pod("new", "u3", 33), pod("reborn", "u5", 40), pod("fresh", "u6", 31)],
    )
    .await;
    assert_eq!(
        open.log()[4..],
        [
            "5 GAP expired 10..50",
            "6 DELETED inferred gone/u1@1",
            "7 ADDED inferred fresh/u6@31",
            "8 MODIFIED inferred new/u3@33",
            "9 DELETED inferred reborn/u4@4",
            "10 ADDED inferred reborn/u5@40",
        ]
    );
    let gap = open.journal.reader().unwrap().entry(Seq(5)).unwrap().unwrap();
    assert!(Entry::parse(&gap.line).unwrap().gap().unwrap().since.is_some());
    assert_whole(&mut open.journal.reader().unwrap());
}

/// Fault 25: a list that a crash interrupts is dropped.
#[tokio::test]
async fn a_list_in_progress_changes_nothing_until_its_last_page_is_in() {
    let dir = tempfile::tempdir().unwrap();
    let open = Open::at(dir.path()).await;
    open.list(10, None, &[pod("a", "u1", 1)]).await;
    open.source.list_begin().await.unwrap();
    open.source.list_page(vec![pod("b", "u2", 12)]).await.unwrap();
    open.journal.flush().await.unwrap();
    assert_eq!(open.log(), ["1 ADDED listed a/u1@1"]);
    open.close();

    let open = Open::at(dir.path()).await;
    assert_eq!(open.memory.checkpoint.resume, Some(rv(10)));
    open.list(20, Some(Why::Expired), &[pod("a", "u1", 1)]).await;
    assert_eq!(open.log(), ["1 ADDED listed a/u1@1", "2 GAP expired 10..20"], "half a list deletes and adds nothing");
}

/// Fault 25: a complete list that a crash interrupts is finished.
#[tokio::test]
async fn a_complete_list_that_a_crash_cut_is_finished_and_recorded_once() {
    let dir = tempfile::tempdir().unwrap();
    let open = Open::at(dir.path()).await;
    open.list(10, None, &[pod("a", "u1", 1), pod("z", "u9", 2)]).await;
    let page = (0..4).map(|n| pod(&format!("n{n}"), &format!("v{n}"), 20 + n)).collect();
    open.source.list_begin().await.unwrap();
    open.source.list_page(page).await.unwrap();
    open.journal.flush().await.unwrap();
    let id = open.source.id().0;
    open.close();
    // As a crash leaves it right after the list was complete.
    let conn = Connection::open(dir.path().join("journal.db")).unwrap();
    conn.execute("UPDATE source SET pending = '30', pending_why = 'expired' WHERE id = ?", [id]).unwrap();
    drop(conn);

    let expected = [
        "3 GAP expired 10..30",
        "4 DELETED inferred a/u1@1",
        "5 DELETED inferred z/u9@2",
        "6 ADDED inferred n0/v0@20",
        "7 ADDED inferred n1/v1@21",
        "8 ADDED inferred n2/v2@22",
        "9 ADDED inferred n3/v3@23",
    ];
    for _ in 0..2 {
        let open = Open::at(dir.path()).await;
        assert_eq!(open.log()[2..], expected);
        assert_eq!(open.memory.checkpoint.resume, Some(rv(30)));
        assert_whole(&mut open.journal.reader().unwrap());
        open.close();
    }
}

#[tokio::test]
async fn a_bookmark_moves_the_position_and_emits_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let open = Open::at(dir.path()).await;
    open.list(10, None, &[]).await;
    open.source.bookmark(rv(90)).await.unwrap();
    open.source.bookmark(rv(80)).await.unwrap();
    open.close();
    let open = Open::at(dir.path()).await;
    assert_eq!(open.memory.checkpoint.resume, Some(rv(90)), "a bookmark that goes back moves nothing");
    assert!(open.log().is_empty());
}

#[tokio::test]
async fn a_resource_that_is_gone_takes_its_objects_along_and_may_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let open = Open::at(dir.path()).await;
    open.list(10, None, &[pod("a", "u1", 1)]).await;
    open.source.gone().await.unwrap();
    assert_eq!(open.log()[1..], ["2 GAP scope 10..", "3 DELETED inferred a/u1@1"]);
    open.close();
    let open = Open::at(dir.path()).await;
    assert_eq!((open.memory.checkpoint.resume.clone(), open.memory.why), (None, None));
    open.list(40, None, &[pod("a", "u7", 35)]).await;
    assert_eq!(open.log()[3..], ["4 ADDED listed a/u7@35"]);
}

#[tokio::test]
async fn every_version_of_an_object_comes_back_byte_for_byte() {
    let dir = tempfile::tempdir().unwrap();
    let open = Open::at(dir.path()).await;
    open.list(1, None, &[]).await;
    // Grows and drifts, so that it gets new bases on the way.
    let version = |n: u64| {
        let mut object = pod("a", "u1", n);
        let noise: String = (0..n * 20).map(|k| format!("{:x}", k.wrapping_mul(0x9E37_79B9_7F4A_7C15))).collect();
        object.body.bytes = format!(r#"{{"n":{n}.50,"noise":"{noise}"}}"#).into_bytes();
        object
    };
    for n in 2..60 {
        open.watch(vec![WatchChange { verb: Verb::Upsert, object: version(n) }]).await;
    }
    let mut reader = open.journal.reader().unwrap();
    for entry in reader.entries_after(Seq(0), 100, usize::MAX).unwrap() {
        let object = Entry::parse(&entry.line).unwrap().object.unwrap().get().as_bytes().to_vec();
        assert_eq!(object, version(entry.seq.0 + 1).body.bytes);
    }
    let object = reader.objects(1, None, Some("a")).unwrap().remove(0);
    let entry = reader.entry_at(&object, Seq(7)).unwrap().unwrap();
    assert_eq!((entry.seq, entry.op), (Seq(7), EntryType::Modified));
    assert_eq!(reader.current(&object).unwrap().unwrap(), version(59).body.bytes);
    assert_whole(&mut reader);
}

#[tokio::test]
async fn any_version_is_a_few_rows_away() {
    let dir = tempfile::tempdir().unwrap();
    let open = Open::at(dir.path()).await;
    open.list(1, None, &[]).await;
    // Two objects by turns: each has every other seq.
    let changes = (2..8_002).map(|n| if n % 2 == 0 { upsert("a", "u1", n) } else { upsert("b", "u2", n) });
    for some in changes.collect::<Vec<_>>().chunks(500) {
        open.watch(some.to_vec()).await;
    }
    let mut reader = open.journal.reader().unwrap();
    for name in ["a", "b"] {
        let object = reader.objects(1, None, Some(name)).unwrap().remove(0);
        let history = reader.history(&object, Seq(0), Seq(u64::MAX), usize::MAX).unwrap();
        assert_eq!(history.len(), 4000);
        let mut most = 0;
        for at in (1..=8000).step_by(7) {
            let (step, rows) = reader.walk(&object, Seq(at)).unwrap();
            assert_eq!(step.as_ref(), history.iter().find(|step| step.seq.0 <= at));
            most = most.max(rows);
        }
        assert!(most < 500, "{most} rows");
    }
    assert_whole(&mut reader);
}

#[tokio::test]
async fn a_journal_of_another_cluster_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let open = Open::at(dir.path()).await;
    let cluster = |uid: &str| Cluster { name: "prod".into(), uid: uid.into() };
    open.journal.set_cluster(cluster("one")).await.unwrap();
    let refused = open.journal.set_cluster(cluster("two")).await.unwrap_err();
    assert!(matches!(refused, JournalError::OtherCluster { .. }), "{refused}");
    // Without the right to read the uid there is nothing to compare.
    open.journal.set_cluster(cluster("")).await.unwrap();
    assert_eq!(open.journal.reader().unwrap().cluster().unwrap().uid, "one");
}

#[tokio::test]
async fn a_cursor_only_grows_and_outlives_the_daemon() {
    let dir = tempfile::tempdir().unwrap();
    let open = Open::at(dir.path()).await;
    open.list(10, None, &[pod("a", "u1", 1), pod("b", "u2", 2)]).await;
    assert_eq!(open.journal.sink("x", "file", SinkStart::Start).await.unwrap().1, Seq(0));
    assert_eq!(open.journal.sink("y", "file", SinkStart::Now).await.unwrap().1, Seq(2));
    open.sink("x").await.acknowledge(Seq(2)).await.unwrap();
    open.sink("x").await.acknowledge(Seq(1)).await.unwrap();
    open.close();
    let open = Open::at(dir.path()).await;
    assert_eq!(open.journal.sink("x", "file", SinkStart::Now).await.unwrap().1, Seq(2));
}

/// Where the state directory cannot be used, whoever opens the journal gets the reason, also from within a runtime.
#[tokio::test]
async fn an_unusable_directory_is_an_error_also_inside_a_runtime() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("file"), "").unwrap();
    let refused = Journal::open(&dir.path().join("file")).map(drop).unwrap_err();
    assert!(matches!(refused, JournalError::Io { .. }), "{refused}");
    // Held by somebody else.
    let open = Open::at(&dir.path().join("state")).await;
    let refused = Journal::open(&dir.path().join("state")).map(drop).unwrap_err();
    assert!(matches!(refused, JournalError::Locked { .. }), "{refused}");
    open.close();
    // No database where one should be.
    std::fs::create_dir_all(dir.path().join("odd/journal.db")).unwrap();
    let refused = Journal::open(&dir.path().join("odd")).map(drop).unwrap_err();
    assert!(matches!(refused, JournalError::Io { .. } | JournalError::Sqlite { .. }), "{refused}");
}

#[tokio::test]
async fn seqs_stay_dense_and_are_never_used_again() {
    let dir = tempfile::tempdir().unwrap();
    for round in 0..4_u64 {
        let open = Open::at(dir.path()).await;
        open.watch(vec![upsert("a", "u1", 10 + 20 * round), upsert("b", "u2", 20 + 20 * round)]).await;
        open.close();
    }
    let mut reader = Reader::open(dir.path()).unwrap();
    let seqs: Vec<u64> =
        reader.entries_after(Seq(0), 100, usize::MAX).unwrap().iter().map(|entry| entry.seq.0).collect();
    let newest = u64::try_from(seqs.len()).unwrap();
    assert_eq!(seqs, (1..=newest).collect::<Vec<_>>());
    drop(reader);

    // Nor when everything has been truncated meanwhile.
    let conn = Connection::open(dir.path().join("journal.db")).unwrap();
    conn.execute_batch("DELETE FROM entry; DELETE FROM object;").unwrap();
    let open = Open::at(dir.path()).await;
    open.watch(vec![upsert("c", "u3", 100)]).await;
    assert_eq!(open.log(), [format!("{} ADDED watched c/u3@100", newest + 1)]);
    open.close();
}

#[tokio::test]
async fn a_new_epoch_names_what_follows_and_leaves_what_exists() {
    let dir = tempfile::tempdir().unwrap();
    let Open { journal, thread, source, memory: _ } = Open::at(dir.path()).await;
    source.append(vec![upsert("a", "1", 5)]).await.unwrap();
    journal.flush().await.unwrap();
    let old = journal.epoch();
    let new = journal.begin_epoch(None).await.unwrap();
    assert!(new > old && journal.epoch() == new);
    assert_whole(&mut journal.reader().unwrap());
    source.append(vec![upsert("b", "2", 6)]).await.unwrap();
    journal.flush().await.unwrap();
    let mut reader = journal.reader().unwrap();
    let entries = reader.entries_after(Seq(0), 10, usize::MAX).unwrap();
    let epochs: Vec<_> = entries.iter().map(|stored| Entry::parse(&stored.line).unwrap().epoch.to_string()).collect();
    assert_eq!(epochs, [old.clone(), new]);
    assert_whole(&mut reader);
    drop((reader, journal, source));
    thread.join().unwrap();
    let conn = Connection::open(dir.path().join("journal.db")).unwrap();
    conn.execute("UPDATE meta SET value = ? WHERE key = 'epoch'", [old]).unwrap();
    let problems = Reader::open(dir.path()).unwrap().verify(|_, _| ()).unwrap().problems;
    let wrong = |seq| format!("entry {seq}: its epoch is not that of the journal at this place");
    assert_eq!(problems, [wrong(1), wrong(2)]);
}

#[tokio::test]
async fn entries_and_their_checkpoint_are_committed_together() {
    let dir = tempfile::tempdir().unwrap();
    let Open { journal, thread, source, memory: _ } = Open::at(dir.path()).await;
    // What any reader sees at any moment is what a crash in that moment would leave.
    let conn = Connection::open(dir.path().join("journal.db")).unwrap();
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let watcher = std::thread::Builder::new().name("watcher".into()).spawn(move || {
        let mut looks = 0;
        while stopped.try_recv().is_err() {
            let (head, applied): (u64, Option<String>) = conn
                .query_row("SELECT (SELECT coalesce(max(seq), 0) FROM entry), applied FROM source", [], |row| {
                    Ok((row.get(0)?, row.get(1)?))
                })
                .unwrap();
            // The change of version 100 + n is the entry n.
            assert_eq!(applied.map_or(100, |version| version.parse::<u64>().unwrap()), 100 + head);
            looks += 1;
        }
        looks
    });
    for n in 1..=400 {
        source.append(vec![upsert("a", "1", 100 + n)]).await.unwrap();
        journal.flush().await.unwrap();
    }
    stop.send(()).unwrap();
    assert!(watcher.unwrap().join().unwrap() > 0);
    drop((journal, source));
    thread.join().unwrap();
}

#[tokio::test]
async fn the_newest_change_that_a_watch_repeats_is_recorded_once() {
    let dir = tempfile::tempdir().unwrap();
    let open = Open::at(dir.path()).await;
    open.watch(vec![upsert("a", "u1", 11), upsert("a", "u1", 12)]).await;
    // A watch begins again at the version before the newest one, because others may share that one.
    open.watch(vec![upsert("a", "u1", 12)]).await;
    open.watch(vec![delete("a", "u1", 13)]).await;
    open.watch(vec![delete("a", "u1", 13)]).await;
    let expected = ["1 ADDED watched a/u1@11", "2 MODIFIED watched a/u1@12", "3 DELETED watched a/u1@13"];
    assert_eq!(open.log(), expected);
    open.close();
}

#[tokio::test]
async fn nothing_is_visible_before_it_is_on_disk() {
    let dir = tempfile::tempdir().unwrap();
    let open = Open::at(dir.path()).await;
    let conn = Connection::open(dir.path().join("journal.db")).unwrap();
    let mut head = open.journal.head();
    let journal = open.journal.clone();
    let (source, changes) = (open.source.clone(), 200);
    let append = async move {
        for n in 1..=changes {
            source.append(vec![upsert("a", "u1", n)]).await.unwrap();
            journal.flush().await.unwrap();
        }
    };
    let watch = async {
        while head.borrow_and_update().0 < changes {
            head.changed().await.unwrap();
            let seen = head.borrow_and_update().0;
            let stored: u64 = conn.query_row("SELECT max(seq) FROM entry", [], |row| row.get(0)).unwrap();
            assert!(stored >= seen, "{seen} is visible, {stored} is on disk");
        }
    };
    tokio::join!(append, watch);
    open.close();
}

#[tokio::test]
async fn what_a_rollback_has_undone_hides_no_change_of_the_new_timeline() {
    let dir = tempfile::tempdir().unwrap();
    let open = Open::at(dir.path()).await;
    open.list(1, None, &[]).await;
    open.watch(vec![upsert("web", "u", 5), upsert("web", "u", 12)]).await;
    // The list after the rollback is older than the object is, as a server gives it that lags behind.
    open.list(4, Some(Why::Rollback), &[]).await;
    open.watch(vec![upsert("web", "u", 5), upsert("web", "u", 5), upsert("web", "u", 7), delete("web", "u", 8)]).await;
    open.watch(vec![upsert("web", "u", 8)]).await;
    assert_eq!(
        open.log()[2..],
        [
            "3 GAP rollback 5..4",
            "4 DELETED inferred web/u@12",
            "5 ADDED watched web/u@5",
            "6 MODIFIED watched web/u@7",
            "7 DELETED watched web/u@8"
        ]
    );
    open.close();
}

#[tokio::test]
async fn a_gap_begins_before_a_version_of_which_more_may_have_been_to_come() {
    let dir = tempfile::tempdir().unwrap();
    let open = Open::at(dir.path()).await;
    open.list(1, None, &[]).await;
    open.watch(vec![upsert("web", "u", 5), upsert("cart", "c", 6)]).await;
    // A lease runs out and takes both in one revision; the second line is one that is too long.
    open.watch(vec![delete("web", "u", 8)]).await;
    open.list(9, Some(Why::Oversize), &[]).await;
    assert_eq!(open.log()[2..], ["3 DELETED watched web/u@8", "4 GAP oversize 6..9", "5 DELETED inferred cart/c@6"]);
    // With a bookmark nothing more of its version comes.
    open.source.bookmark(rv(12)).await.unwrap();
    open.list(15, Some(Why::Expired), &[]).await;
    assert_eq!(open.log()[5..], ["6 GAP expired 12..15"]);
    open.close();
}
