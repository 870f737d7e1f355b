//! What is truncated, what is kept, and that the journal never outgrows its size.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc as Shared;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bytes::Bytes;

use super::*;

pub(super) const AGES: Duration = Duration::from_secs(100 * 24 * 3600);

/// Text that no compression makes small.
pub(super) struct Noise(pub(super) u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn text(&mut self, length: usize) -> String {
        const LETTERS: &[u8; 64] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-";
        (0..length).map(|_| char::from(LETTERS[usize::try_from(self.next() % 64).unwrap()])).collect()
    }
}

pub(super) fn noisy(noise: &mut Noise, name: &str, uid: &str, version: u64, length: usize) -> Observed {
    let mut object = pod(name, uid, version);
    object.body.bytes = format!(
        r#"{{"metadata":{{"name":"{name}","namespace":"shop","uid":"{uid}","resourceVersion":"{version}"}},"noise":"{}"}}"#,
        noise.text(length)
    )
    .into_bytes();
    object
}

fn put(object: Observed) -> WatchChange {
    WatchChange { verb: Verb::Upsert, object }
}

/// What an object was after each of its entries.
type History = Vec<(u64, Option<Vec<u8>>)>;

pub(super) fn by_age() -> Bounds {
    Bounds { max_size: 1 << 40, max_age: Duration::ZERO, drop_oldest: false }
}

/// Waits until it is so; nothing here takes long.
pub(crate) async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..20_000 {
        if is_so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    panic!("waited in vain for {what}");
}

pub(super) fn oldest(open: &Open) -> u64 {
    open.journal.reader().unwrap().retained().unwrap().oldest
}

fn current(reader: &mut Reader, name: &str) -> Option<Bytes> {
    let object = reader.objects(1, None, Some(name)).unwrap().pop()?;
    reader.current(&object).unwrap()
}

/// Fault 80: a sink that takes nothing holds what it has not, and only that.
#[tokio::test]
async fn only_what_every_sink_has_is_truncated() {
    let dir = tempfile::tempdir().unwrap();
    let open = Open::at(dir.path()).await;
    open.list(10, None, &[pod("a", "u1", 1), pod("b", "u2", 2), pod("c", "u3", 3)]).await;
    open.journal.sink("quick", "file", SinkStart::Start).await.unwrap();
    open.journal.sink("slow", "file", SinkStart::Start).await.unwrap();
    open.watch(vec![upsert("a", "u1", 11), upsert("a", "u1", 12), delete("b", "u2", 13), upsert("c", "u3", 14)]).await;
    open.journal.bound(by_age()).await.unwrap();
    open.sink("quick").await.acknowledge(Seq(7)).await.unwrap();
    open.sink("slow").await.acknowledge(Seq(2)).await.unwrap();
    until("the first two to be truncated", || oldest(&open) == 3).await;
    let kept = || log(&mut Reader::open(dir.path()).unwrap());
    assert_eq!(kept()[0], "3 ADDED listed c/u3@3");
    open.journal.retire_sink("slow").await.unwrap();
    until("all but the newest to be truncated", || oldest(&open) == 7).await;
    assert_eq!(kept(), ["7 MODIFIED watched c/u3@14"]);

    let mut reader = Reader::open(dir.path()).unwrap();
    assert_whole(&mut reader);
    assert_eq!(current(&mut reader, "a").unwrap(), pod("a", "u1", 12).body.bytes, "its last entry is truncated");
    assert_eq!(current(&mut reader, "c").unwrap(), pod("c", "u3", 14).body.bytes, "its base is truncated");
    assert!(reader.objects(1, None, Some("b")).unwrap().is_empty(), "nothing is left of the dead");
    assert!(reader.entry(Seq(3)).unwrap().is_none() && reader.entries_after(Seq(0), 9, usize::MAX).unwrap().len() == 1);
    // The state at the log start is known, what was before it is not.
    let c = reader.objects(1, None, Some("c")).unwrap().remove(0);
    assert_eq!(reader.entry_at(&c, Seq(6)).unwrap().unwrap().seq, Seq(3));
    // And the next version is recorded as the difference from it.
    open.watch(vec![upsert("a", "u1", 20)]).await;
    let last = open.journal.reader().unwrap().entries_after(Seq(7), 9, usize::MAX).unwrap();
    assert!(Entry::parse(&last[0].line).unwrap().change.unwrap().get().contains(r#""was":12"#));
    open.close();
    assert_whole(&mut Reader::open(dir.path()).unwrap());
}

/// Aggregated APIs have versions that nobody can compare. Their dead leave as well, once the source is at another one.
#[tokio::test]
async fn the_dead_leave_also_where_versions_have_no_order() {
    let dir = tempfile::tempdir().unwrap();
    let open = Open::at(dir.path()).await;
    open.list(10, None, &[]).await;
    let change = |verb, name: &str, version: &str| {
        let object = Observed { version: ResourceVersion::new(version), ..pod(name, &format!("u-{name}"), 1) };
        WatchChange { verb, object }
    };
    open.watch(vec![change(Verb::Upsert, "a", "x1"), change(Verb::Delete, "a", "k9")]).await;
    open.watch(vec![change(Verb::Upsert, "b", "c3"), change(Verb::Upsert, "b", "a7")]).await;
    open.journal.bound(by_age()).await.unwrap();
    until("all but the newest to be truncated", || oldest(&open) == 4).await;
    let reader = Reader::open(dir.path()).unwrap();
    assert!(reader.objects(1, None, Some("a")).unwrap().is_empty(), "nothing is left of the dead");
    assert_eq!(reader.objects(1, None, Some("b")).unwrap().len(), 1);
    open.close();
    assert_whole(&mut Reader::open(dir.path()).unwrap());
}

/// Any order of changes, deletions, cursors, truncations and restarts: what is kept stays what it was.
#[tokio::test]
async fn whatever_is_truncated_the_rest_stays_what_it_was() {
    for seed in 1..=4 {
        let dir = tempfile::tempdir().unwrap();
        let mut noise = Noise(seed);
        let (mut version, mut cursor) = (100, 0);
        // What each object was after each entry.
        let mut states: BTreeMap<String, History> = BTreeMap::new();
        let mut alive: BTreeMap<String, String> = BTreeMap::new();
        for _ in 0..4 {
            let open = Open::at(dir.path()).await;
            open.journal.sink("s", "file", SinkStart::Start).await.unwrap();
            open.journal.bound(by_age()).await.unwrap();
            for _ in 0..15 {
                let mut changes = Vec::new();
                let before = open.journal.head().borrow().0;
                for seq in before + 1..=before + 1 + noise.below(8) {
                    version += 1;
                    let name = format!("o{}", noise.below(9));
                    let written = states.entry(name.clone()).or_default();
                    match alive.get(&name).cloned() {
                        Some(uid) if noise.below(5) == 0 => {
                            alive.remove(&name);
                            written.push((seq, None));
                            changes.push(delete(&name, &uid, version));
                        }
                        uid => {
                            let uid = uid.unwrap_or_else(|| format!("u{version}"));
                            let length = usize::try_from(noise.below(700)).unwrap();
                            let object = noisy(&mut noise, &name, &uid, version, length);
                            written.push((seq, Some(object.body.bytes.clone())));
                            alive.insert(name, uid);
                            changes.push(put(object));
                        }
                    }
                }
                open.watch(changes).await;
                let head = open.journal.head().borrow().0;
                cursor += noise.below(head - cursor + 1);
                open.sink("s").await.acknowledge(Seq(cursor)).await.unwrap();
                let lower = (cursor + 1).min(head);
                until("what the sink has to be truncated", || oldest(&open) == lower).await;
                let mut reader = open.journal.reader().unwrap();
                let kept = Reader::open(dir.path()).unwrap().entries_after(Seq(0), 10_000, usize::MAX).unwrap();
                assert!(kept.iter().map(|entry| entry.seq.0).eq(lower..=head), "seed {seed}");
                for (name, written) in &states {
                    let last = written.last().unwrap();
                    assert_eq!(current(&mut reader, name).map(|bytes| bytes.to_vec()), last.1, "seed {seed} {name}");
                    let Some(row) = reader.objects(1, None, Some(name)).unwrap().pop() else { continue };
                    for at in lower - 1..=head {
                        let entry = reader.entry_at(&row, Seq(at)).unwrap();
                        let object = entry.and_then(|entry| {
                            let entry = Entry::parse(&entry.line).unwrap();
                            (entry.op != EntryType::Deleted).then(|| entry.object.unwrap().get().as_bytes().to_vec())
                        });
                        let expected =
                            written.iter().rev().find(|(seq, _)| *seq <= at).and_then(|(_, state)| state.clone());
                        assert_eq!(object, expected, "seed {seed} {name} at {at}");
                    }
                }
            }
            assert_whole(&mut open.journal.reader().unwrap());
            open.close();
        }
        assert_whole(&mut Reader::open(dir.path()).unwrap());
    }
}

/// A sink that comes too late, or was overtaken, learns which sources it lacks entries of.
#[tokio::test]
async fn who_lacks_what_is_truncated_gets_a_gap_of_each_source() {
    let dir = tempfile::tempdir().unwrap();
    let open = Open::at(dir.path()).await;
    let nodes = SourceSpec {
        resource: Resource { kind: "Node".into(), plural: "nodes".into(), namespaced: false, ..pods().resource },
        ..pods()
    };
    let other = open.journal.source(&nodes).await.unwrap().0;
    open.watch(vec![upsert("a", "u1", 11), upsert("a", "u1", 12)]).await;
    other.append(vec![put(Observed { namespace: String::new(), ..pod("n", "n1", 13) })]).await.unwrap();
    open.watch(vec![upsert("a", "u1", 14), upsert("a", "u1", 15), upsert("a", "u1", 16)]).await;
    open.journal.sink("s", "file", SinkStart::Start).await.unwrap();
    open.sink("s").await.acknowledge(Seq(5)).await.unwrap();
    open.journal.bound(by_age()).await.unwrap();
    until("five to be truncated", || oldest(&open) == 6).await;
    let delivered = |after: u64| -> Vec<String> {
        let entries =
            open.journal.reader().unwrap().deliverable_after(Seq(after), 100, usize::MAX, None).unwrap().entries;
        // The same bytes at every try.
        let again =
            Reader::open(dir.path()).unwrap().deliverable_after(Seq(after), 100, usize::MAX, None).unwrap().entries;
        assert!(entries.iter().map(|entry| &entry.line).eq(again.iter().map(|entry| &entry.line)));
        let describe = |entry: &StoredEntry| {
            let parsed = Entry::parse(&entry.line).unwrap();
            assert_eq!((parsed.seq(), parsed.op), (entry.seq, entry.op));
            match parsed.gap() {
                Some(gap) => format!("{} GAP {} {} ..{}", entry.seq, parsed.resource, gap.why, gap.to.unwrap()),
                None => format!("{} {}", entry.seq, parsed.op.as_str()),
            }
        };
        entries.iter().map(describe).collect()
    };
    assert_eq!(delivered(0), ["3 GAP nodes expired ..13", "5 GAP pods expired ..15", "6 MODIFIED"]);
    assert_eq!(delivered(2), ["3 GAP nodes expired ..13", "5 GAP pods expired ..15", "6 MODIFIED"]);
    assert_eq!(delivered(3), ["5 GAP pods expired ..15", "6 MODIFIED"], "it has all of the nodes");
    assert_eq!(delivered(5), ["6 MODIFIED"]);
    drop(other);
    open.close();
}

#[tokio::test]
async fn what_was_dead_lettered_is_kept_whatever_is_truncated() {
    let dir = tempfile::tempdir().unwrap();
    let open = Open::at(dir.path()).await;
    open.watch((11..=16).map(|version| upsert("a", "u1", version)).collect()).await;
    let line = open.journal.reader().unwrap().entry(Seq(3)).unwrap().unwrap().line;
    open.journal.sink("s", "file", SinkStart::Start).await.unwrap();
    open.sink("s").await.dead_letter(Seq(3), line.clone(), "too large").await.unwrap();
    open.sink("s").await.acknowledge(Seq(6)).await.unwrap();
    open.journal.bound(by_age()).await.unwrap();
    until("the others to be truncated", || oldest(&open) == 6).await;
    let mut reader = open.journal.reader().unwrap();
    let kept = reader.truncated_dead_letters("s", Seq(1), Seq(5)).unwrap();
    assert_eq!(kept.iter().map(|entry| (entry.seq, &entry.line)).collect::<Vec<_>>(), [(Seq(3), &line)]);
    assert!(reader.truncated_dead_letters("t", Seq(1), Seq(5)).unwrap().is_empty());
    assert_whole(&mut reader);
    open.close();
}

/// Fault 42: entries that are damaged are truncated as all others are, with what the table knows of them.
#[tokio::test]
async fn what_is_damaged_is_truncated_like_everything_else() {
    let dir = tempfile::tempdir().unwrap();
    let open = Open::at(dir.path()).await;
    open.watch((11..=13).map(|version| upsert("a", "u1", version)).collect()).await;
    open.watch((14..=16).map(|version| upsert(&format!("b{version}"), &format!("v{version}"), version)).collect())
        .await;
    open.close();
    damage(dir.path(), "entry", "line", "seq IN (2, 3, 4)");
    let open = Open::at(dir.path()).await;
    open.journal.sink("s", "file", SinkStart::Start).await.unwrap();
    for seq in [3, 5] {
        open.sink("s").await.dead_letter(Seq(seq), Bytes::new(), "too large").await.unwrap();
    }
    open.sink("s").await.acknowledge(Seq(4)).await.unwrap();
    open.journal.bound(by_age()).await.unwrap();
    until("four to be truncated", || oldest(&open) == 5).await;
    let mut reader = open.journal.reader().unwrap();
    // The gap has no version to end at; that of the next entry that goes is whole.
    let gap = reader.deliverable_after(Seq(0), 1, usize::MAX, None).unwrap().entries.remove(0);
    let gap = (gap.seq, Entry::parse(&gap.line).unwrap().gap().unwrap());
    assert_eq!((gap.0, gap.1.why.as_ref(), gap.1.to), (Seq(4), "expired", None));
    open.sink("s").await.acknowledge(Seq(6)).await.unwrap();
    until("another to be truncated", || oldest(&open) == 6).await;
    let kept = reader.truncated_dead_letters("s", Seq(1), Seq(6)).unwrap();
    assert_eq!(kept.iter().map(|entry| entry.seq.0).collect::<Vec<_>>(), [5], "what is whole is rescued");
    let letters: Vec<u64> = reader.dead_letters().unwrap().iter().map(|letter| letter.seq.0).collect();
    assert_eq!(letters, [3, 5], "and what is not is still listed");
    // What stands on it is recorded as ever.
    open.watch(vec![upsert("a", "u1", 17), upsert("a", "u1", 18), delete("b14", "v14", 19)]).await;
    // The sixth was the newest until now, and may be truncated as well.
    let lines = open.log();
    let lines: Vec<&str> = lines.iter().map(String::as_str).filter(|line| !line.starts_with("6 ")).collect();
    assert_eq!(lines, ["7 MODIFIED watched a/u1@17", "8 MODIFIED watched a/u1@18", "9 DELETED watched b14/v14@19"]);
    open.close();
}

/// Looks at the files all the time, and remembers their largest sizes.
struct Scale {
    stop: Shared<AtomicBool>,
    thread: std::thread::JoinHandle<(u64, u64)>,
}

fn size(dir: &Path, name: &str) -> u64 {
    fs::metadata(dir.join(name)).map_or(0, |meta| meta.len())
}

impl Scale {
    fn on(dir: &Path) -> Self {
        let (stop, dir) = (Shared::new(AtomicBool::new(false)), dir.to_owned());
        let stopped = Shared::clone(&stop);
        let thread = std::thread::Builder::new().name("scale".into()).spawn(move || {
            let (mut whole, mut wal) = (0, 0);
            while !stopped.load(Ordering::Relaxed) {
                let now = size(&dir, "journal.db-wal");
                whole = whole.max(size(&dir, "journal.db") + now);
                wal = wal.max(now);
                std::thread::sleep(Duration::from_micros(300));
            }
            (whole, wal)
        });
        Self { stop, thread: thread.unwrap() }
    }

    /// The most that database and write-ahead log had together, and that the log had.
    fn read(self) -> (u64, u64) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

/// Appends changes of a few KB until it is stopped; gives how many.
fn load(open: &Open, from: u64, most: u64) -> tokio::task::JoinHandle<u64> {
    let (journal, source) = (open.journal.clone(), open.source.clone());
    #[expect(clippy::disallowed_methods, reason = "the test ends it")]
    tokio::spawn(async move {
        let mut noise = Noise(from);
        for n in 0..most {
            let version = from + n;
            let object = noisy(&mut noise, &format!("o{}", n % 20), &format!("u{}", n % 20), version, 3000);
            source.append(vec![put(object)]).await.unwrap();
        }
        journal.flush().await.unwrap();
        most
    })
}

/// Fault 81: every sink is blocked and the journal has its size.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_its_size_it_pauses_and_goes_on_when_a_sink_takes_something() {
    let dir = tempfile::tempdir().unwrap();
    let open = Open::at(dir.path()).await;
    open.journal.sink("s", "file", SinkStart::Start).await.unwrap();
    let max_size = 2 << 20;
    open.journal.bound(Bounds { max_size, max_age: AGES, drop_oldest: false }).await.unwrap();
    let scale = Scale::on(dir.path());
    let load = load(&open, 100, 1500);
    let mut paused = open.journal.paused();
    paused.wait_for(Option::is_some).await.unwrap();
    let pause = paused.borrow().clone().unwrap();
    assert_eq!(pause.why, PauseReason::MaxSize);
    let retained = || Reader::open(dir.path()).unwrap().retained().unwrap();
    until("the database to say it", || retained().paused.is_some_and(|pause| pause.why == PauseReason::MaxSize)).await;
    assert_eq!(retained().oldest, 1, "nothing is truncated");
    // The sink goes on meanwhile, entry by entry, and so does everything.
    let mut cursor = 0;
    while !load.is_finished() {
        let head = open.journal.head().borrow().0;
        let entries =
            open.journal.reader().unwrap().deliverable_after(Seq(cursor), 50, usize::MAX, None).unwrap().entries;
        for entry in &entries {
            assert_eq!(entry.seq.0, cursor + 1, "none is lost");
            cursor += 1;
        }
        assert!(cursor <= head.max(open.journal.head().borrow().0));
        open.sink("s").await.acknowledge(Seq(cursor)).await.unwrap();
        tokio::task::yield_now().await;
    }
    assert_eq!(load.await.unwrap(), 1500);
    assert_eq!(*open.journal.head().borrow(), Seq(1500));
    open.sink("s").await.acknowledge(Seq(1500)).await.unwrap();
    assert_whole(&mut open.journal.reader().unwrap());
    let (whole, _) = scale.read();
    assert!(whole <= max_size, "{whole} bytes of {max_size}");
    assert!(open.journal.paused().borrow().is_none());
    open.close();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_its_size_it_drops_the_oldest_where_that_is_configured() {
    let dir = tempfile::tempdir().unwrap();
    let open = Open::at(dir.path()).await;
    open.journal.sink("dead", "file", SinkStart::Start).await.unwrap();
    let max_size = 2 << 20;
    open.journal.bound(Bounds { max_size, max_age: AGES, drop_oldest: true }).await.unwrap();
    let scale = Scale::on(dir.path());
    load(&open, 100, 1500).await.unwrap();
    let (whole, _) = scale.read();
    assert!(whole <= max_size, "{whole} bytes of {max_size}");
    assert!(open.journal.paused().borrow().is_none(), "it need not pause");
    open.close();
    let mut reader = Reader::open(dir.path()).unwrap();
    assert_whole(&mut reader);
    let lower = reader.oldest().unwrap().0;
    assert!(lower > 500, "{lower}");
    let first = reader.deliverable_after(Seq(0), 2, usize::MAX, None).unwrap().entries;
    assert_eq!((first[0].seq, first[0].op, first[1].seq), (Seq(lower - 1), EntryType::Gap, Seq(lower)));
    assert_eq!(reader.sinks().unwrap()[0].missed, lower - 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_truncated_leaves_the_disk() {
    let dir = tempfile::tempdir().unwrap();
    let open = Open::at(dir.path()).await;
    open.journal.sink("s", "file", SinkStart::Start).await.unwrap();
    load(&open, 100, 1500).await.unwrap();
    let both = || size(dir.path(), "journal.db") + size(dir.path(), "journal.db-wal");
    assert!(both() > 3 << 20, "{}", both());
    open.sink("s").await.acknowledge(Seq(1500)).await.unwrap();
    open.journal.bound(Bounds { max_size: 1 << 30, ..by_age() }).await.unwrap();
    until("the files to shrink", || both() < 1 << 20).await;
    let mut reader = Reader::open(dir.path()).unwrap();
    assert_whole(&mut reader);
    assert_eq!(log(&mut reader).len(), 1);
    open.close();
}

/// Fault 50: somebody reads the database and does not end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_does_not_end_pauses_the_reading_and_not_the_sinks() {
    let dir = tempfile::tempdir().unwrap();
    let open = Open::at(dir.path()).await;
    open.journal.sink("s", "file", SinkStart::Start).await.unwrap();
    open.watch(vec![upsert("a", "u1", 50)]).await;
    let max_size = 16 << 20;
    open.journal.bound(Bounds { max_size, max_age: AGES, drop_oldest: true }).await.unwrap();
    let conn = Connection::open(dir.path().join("journal.db")).unwrap();
    conn.execute_batch("BEGIN; SELECT count(*) FROM entry;").unwrap();
    let scale = Scale::on(dir.path());
    let load = load(&open, 100, 2500);
    let mut paused = open.journal.paused();
    paused.wait_for(Option::is_some).await.unwrap();
    let pause = paused.borrow().clone().unwrap();
    assert_eq!(pause.why, PauseReason::Reader);
    assert!(pause.detail.contains("reads"), "{}", pause.detail);
    let head = *open.journal.head().borrow();
    assert!(head < Seq(2500));
    for seq in 1..=head.0.min(200) {
        open.sink("s").await.acknowledge(Seq(seq)).await.unwrap();
    }
    conn.execute_batch("COMMIT").unwrap();
    load.await.unwrap();
    assert_eq!(*open.journal.head().borrow(), Seq(2501));
    let (_, wal) = scale.read();
    assert!(wal <= max_size / 4, "{wal} bytes of write-ahead log");
    open.close();
    assert_whole(&mut Reader::open(dir.path()).unwrap());
}

/// A proof that goes on while everything else does, truncation under it included.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn verify_is_right_beside_a_daemon_that_writes_and_truncates() {
    let dir = tempfile::tempdir().unwrap();
    let open = Open::at(dir.path()).await;
    open.journal.sink("dead", "file", SinkStart::Start).await.unwrap();
    open.journal.bound(Bounds { max_size: 2 << 20, max_age: AGES, drop_oldest: true }).await.unwrap();
    let load = load(&open, 100, 1500);
    let mut proofs = 0;
    while !load.is_finished() {
        assert_whole(&mut Reader::open(dir.path()).unwrap());
        proofs += 1;
    }
    load.await.unwrap();
    assert!(proofs > 0 && oldest(&open) > 1);
    open.close();
}

#[tokio::test]
async fn a_lower_end_that_is_not_as_it_should_be_is_found() {
    let breaks = [
        ("UPDATE meta SET value = '9' WHERE key = 'oldest'", "nothing needs it"),
        ("DELETE FROM entry WHERE seq < 8 AND seq IN (SELECT seq FROM pinned)", "damaged"),
        ("DELETE FROM pinned", "nothing needs it"),
        ("DELETE FROM entry WHERE seq = 8", "missing"),
    ];
    for (statement, says) in breaks {
        let dir = tempfile::tempdir().unwrap();
        let open = Open::at(dir.path()).await;
        open.watch((11..=21).map(|version| upsert("a", "u1", version)).collect()).await;
        open.journal.sink("s", "file", SinkStart::Start).await.unwrap();
        open.sink("s").await.acknowledge(Seq(7)).await.unwrap();
        open.journal.bound(by_age()).await.unwrap();
        until("seven to be truncated", || oldest(&open) == 8).await;
        open.close();
        let conn = Connection::open(dir.path().join("journal.db")).unwrap();
        conn.execute_batch(statement).unwrap();
        let found = Reader::open(dir.path()).unwrap().verify(|_, _| ()).unwrap();
        assert!(found.problems.iter().any(|problem| problem.contains(says)), "{statement}: {:?}", found.problems);
    }
}

/// A long list: others get their turn while it is written, and what follows of the same source waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_list_holds_up_nobody_but_its_source() {
    let dir = tempfile::tempdir().unwrap();
    let open = Open::at(dir.path()).await;
    let nodes =
        SourceSpec { resource: Resource { kind: "Node".into(), plural: "nodes".into(), ..pods().resource }, ..pods() };
    let other = open.journal.source(&nodes).await.unwrap().0;
    // A list that deletes 3,000 objects and brings 3,000 others.
    let old: Vec<_> = (0..3000).map(|n| pod(&format!("a{n:04}"), &format!("u{n}"), n + 1)).collect();
    open.source.list_begin().await.unwrap();
    open.source.list_page(old).await.unwrap();
    open.source.list_done(rv(4000), None).await.unwrap();
    let new: Vec<_> = (0..3000).map(|n| pod(&format!("b{n:04}"), &format!("v{n}"), n + 4001)).collect();
    open.source.list_begin().await.unwrap();
    open.source.list_page(new).await.unwrap();
    let list = open.source.list_done(rv(8000), Some(Why::Expired));
    let mut others = 0;
    let work = async {
        // Handed over while the list is written, and it comes after it.
        open.source.append(vec![upsert("b0001", "v1", 8001)]).await.unwrap();
        let mut head = open.journal.head();
        while head.borrow_and_update().0 < 9000 {
            others += 1;
            other.append(vec![upsert("n", "n1", 100 + others)]).await.unwrap();
            head.changed().await.unwrap();
        }
    };
    let (listed, ()) = tokio::join!(list, work);
    listed.unwrap();
    open.journal.flush().await.unwrap();
    let entries = open.journal.reader().unwrap().entries_after(Seq(3000), 20_000, usize::MAX).unwrap();
    let written: Vec<(String, String, String)> = entries
        .iter()
        .map(|entry| {
            let entry = Entry::parse(&entry.line).unwrap();
            (entry.resource.to_string(), entry.op.as_str().to_owned(), entry.version().to_string())
        })
        .collect();
    let pods: Vec<_> = written.iter().filter(|(resource, ..)| resource == "pods").collect();
    assert_eq!(pods.len(), 1 + 3000 + 3000 + 1);
    assert!(pods[0].1 == "GAP" && pods[1..=3000].iter().all(|entry| entry.1 == "DELETED"));
    let versions: Vec<u64> = pods[3001..].iter().map(|entry| entry.2.parse().unwrap()).collect();
    assert!(
        versions.is_sorted() && versions.last() == Some(&8001),
        "in the order of versions, and what followed after"
    );
    let last = written.iter().rposition(|entry| entry.0 == "pods").unwrap();
    let between = written[..last].iter().filter(|(resource, ..)| resource == "nodes").count();
    assert!(between >= 5, "{between} of {others} had their turn within it");
    assert_whole(&mut open.journal.reader().unwrap());
    drop(other);
    open.close();
}

/// Fault 25: a crash in the middle of the second half of a list, when its deletions and some of its changes are
/// written.
#[tokio::test]
async fn a_list_that_a_crash_cut_in_its_second_half_deletes_nothing_again() {
    let dir = tempfile::tempdir().unwrap();
    let open = Open::at(dir.path()).await;
    open.list(10, None, &[pod("a", "u1", 1), pod("b", "u2", 2)]).await;
    open.source.list_begin().await.unwrap();
    open.source.list_page(vec![pod("c", "u3", 22)]).await.unwrap();
    open.journal.flush().await.unwrap();
    let id = open.source.id().0;
    open.close();
    let conn = Connection::open(dir.path().join("journal.db")).unwrap();
    let cut = "UPDATE source SET pending = '30', pending_why = 'expired', pending_step = 2 WHERE id = ?";
    conn.execute(cut, [id]).unwrap();
    drop(conn);
    let open = Open::at(dir.path()).await;
    assert_eq!(open.log()[2..], ["3 ADDED inferred c/u3@22"]);
    assert_eq!(open.memory.checkpoint.resume, Some(rv(30)));
    assert_whole(&mut open.journal.reader().unwrap());
    open.close();
}
