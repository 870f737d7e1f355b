//! What is long, beside what comes meanwhile: after a crash, and where a transaction fails.

use tokio::task::JoinSet;

use super::*;
use crate::core::change::redact::{RedactMode, RedactRule, Redactor, Settings as Redact};
use crate::core::spelling::Text;
use crate::core::wire::Entry;
use crate::journal::Journal;

fn maps() -> SourceSpec {
    let mut spec = pods();
    (spec.resource.kind, spec.resource.plural) = ("ConfigMap".into(), "configmaps".into());
    spec
}

fn source(spec: SourceSpec) -> Command {
    Command::Register(Box::new(spec), Reply::new().0)
}

/// The rules that are always there, and one that masks these.
fn rules(paths: &[&str]) -> Command {
    let rule = RedactRule {
        resources: vec!["*".into()],
        paths: paths.iter().map(|path| crate::core::change::Pattern::read(path).unwrap()).collect(),
        mode: RedactMode::Mask,
    };
    let rules = if paths.is_empty() { Vec::new() } else { vec![rule] };
    let rules = Redact { rules, ..Redact::default() };
    Command::Redaction(Arc::new(Redactor::new(&rules, [7; 32]).unwrap()))
}

impl Bench {
    /// Hands a list over without its end.
    fn list(&self, objects: impl IntoIterator<Item = Observed>) {
        self.enqueue(of_source(OfSource::ListBegin));
        self.enqueue(of_source(OfSource::ListPage(objects.into_iter().collect())));
    }

    fn complete(&self, version: u64, why: Option<Why>) {
        self.enqueue(of_source(OfSource::ListDone(rv(version), why, Reply::new().0)));
    }

    /// No more than this many pages from now on.
    fn nearly_full(&self) {
        let pages: u64 = self.writer.disk.conn.pragma_query_value(None, "page_count", |row| row.get(0)).unwrap();
        self.pages(Some(pages + 18));
    }

    fn lines(&self) -> Vec<String> {
        let mut reader = Reader::open(Path::new(self.writer.disk.conn.path().unwrap()).parent().unwrap()).unwrap();
        let entries = reader.entries_after(Seq(0), 10_000, usize::MAX).unwrap();
        entries.iter().map(|stored| String::from_utf8(stored.line.to_vec()).unwrap()).collect()
    }

    /// The log of Pods in short.
    fn log(&self) -> Vec<String> {
        let told = |line: &String| {
            let entry = Entry::parse(line.as_bytes()).unwrap();
            let short = match entry.gap() {
                Some(gap) => format!("GAP {}", gap.why),
                None => format!(
                    "{} {} {}",
                    entry.op.as_str(),
                    entry.evidence.as_deref().unwrap(),
                    entry.name.as_deref().unwrap()
                ),
            };
            line.contains("\"resource\":\"pods\"").then_some(short)
        };
        self.lines().iter().filter_map(told).collect()
    }
}

fn rv(version: u64) -> ResourceVersion {
    ResourceVersion::new(version.to_string())
}

/// Fault 25: what an unfinished list has left is dropped in slices. Its source is registered meanwhile, and stays.
#[test]
fn a_source_is_registered_while_its_unfinished_list_is_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let mut bench = Bench::in_dir(dir.path());
    bench.list((0..1200).map(|n| object(&format!("o{n}"), 100 + n, 10)));
    bench.turns();
    assert_eq!(bench.count("listing"), 1200);
    drop(bench);

    let mut bench = Bench::unregistered(dir.path());
    bench.turns();
    assert_eq!(bench.count("listing"), 1200, "nobody has asked for anything yet");
    let (reply, mut memory) = Reply::new();
    bench.enqueue(Command::Register(Box::new(pods()), reply));
    bench.turn();
    assert!(memory.try_recv().unwrap().1.checkpoint.resume.is_none());
    assert!(bench.count("listing") > 0, "it did not wait for that");
    bench.list([object("new", 2000, 10)]);
    bench.complete(2001, None);
    bench.turns();
    assert_eq!(bench.log(), ["ADDED listed new"]);
    bench.enqueue(changes(2002..2003, 10));
    bench.turns();
    assert_eq!(bench.log().len(), 2, "it is still registered");
}

/// Fault 25: a list that is complete is finished after a crash, and not before the sinks are registered that it is for.
#[test]
fn what_the_last_daemon_left_waits_for_the_sinks_and_the_rules() {
    let dir = tempfile::tempdir().unwrap();
    for (name, first) in [("a source", source(pods())), ("rules", rules(&[]))] {
        let dir = dir.path().join(name);
        let mut bench = Bench::in_dir(&dir);
        bench.list([object("a", 100, 10), object("b", 101, 10)]);
        bench.complete(110, None);
        assert!(bench.group() && bench.log().is_empty());
        drop(bench);

        let mut bench = Bench::unregistered(&dir);
        let ((reply, mut cursor), (flush, mut flushed)) = (Reply::new(), Reply::new());
        bench.enqueue(Command::Sink("s".into(), OfSink::Register("file".into(), SinkStart::Now, reply)));
        bench.enqueue(Command::Flush(flush));
        bench.turns();
        assert_eq!(cursor.try_recv(), Ok(Seq(0)), "{name}: it gets what follows");
        assert_eq!(flushed.try_recv(), Ok(()), "{name}: nobody waits for what is not begun");
        assert_eq!(bench.log(), Vec::<String>::new());
        bench.enqueue(first);
        bench.turns();
        assert_eq!(bench.log(), ["ADDED listed a", "ADDED listed b"]);
    }
}

/// What is staged was redacted by the rules of its moment, and is recorded by those in force.
#[test]
fn a_list_that_was_staged_under_other_rules_is_redacted_again() {
    #[derive(Clone, Copy, PartialEq, Debug)]
    enum Changed {
        WhileDown,
        BeforeTheEnd,
        WhileWritten,
    }
    let secret = object("a", 100, 40);
    let text = String::from_utf8(secret.body.bytes.clone()).unwrap();
    let value = text.split('"').nth(3).unwrap();
    for when in [Changed::WhileDown, Changed::BeforeTheEnd, Changed::WhileWritten] {
        let dir = tempfile::tempdir().unwrap();
        let mut bench = Bench::in_dir(dir.path());
        bench.enqueue(rules(&[]));
        bench.list([secret.clone()]);
        bench.turns();
        if when == Changed::BeforeTheEnd {
            bench.enqueue(rules(&["/text"]));
        }
        bench.complete(110, None);
        bench.group();
        if when == Changed::WhileWritten {
            bench.enqueue(rules(&["/text"]));
            bench.group();
        }
        if when == Changed::WhileDown {
            drop(bench);
            bench = Bench::unregistered(dir.path());
            bench.enqueue(rules(&["/text"]));
        }
        assert_eq!(bench.log(), Vec::<String>::new());
        bench.turns();
        let lines = bench.lines();
        assert!(lines.len() == 1 && lines[0].contains("/text"), "{when:?}: {lines:?}");
        assert!(!lines[0].contains(value), "{when:?}: {lines:?}");
    }
}

/// Fault 47: what had to wait in a transaction that failed comes behind what that one took, when it is tried again; also where
/// something else that is long ends before.
#[test]
fn what_waited_in_a_transaction_that_failed_keeps_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let mut bench = Bench::in_dir(dir.path());
    bench.enqueue(source(maps()));
    bench.list([object("old", 100, 10)]);
    bench.complete(110, None);
    bench.turns();
    bench.bound(1 << 40, Duration::from_secs(1 << 30));
    // Something long that only has to end.
    bench.enqueue(Command::Narrow(Reply::new().0));
    bench.group();
    bench.nearly_full();
    bench.list([object("old", 100, 10)]);
    bench.complete(200, Some(Why::Expired));
    let new = WatchChange { verb: Verb::Upsert, object: object("new", 210, 10) };
    bench.enqueue(of_source(OfSource::Changes(vec![new])));
    let Command::Source(_, many) = changes(110..200, 2000) else { panic!() };
    bench.enqueue(Command::Source(SourceId(2), many));
    bench.group();
    assert!(bench.paused.borrow().is_some(), "it did not fit");
    assert_eq!(bench.log(), ["ADDED listed old"]);
    bench.with_room();
    assert_eq!(bench.log(), ["ADDED listed old", "GAP paused", "ADDED watched new"]);
    assert_eq!(bench.count("entry"), 93);
}

/// Fault 47: a source whose registration did not reach the disk is as it was before, in memory as well.
#[test]
fn a_registration_that_did_not_fit_has_not_happened() {
    let dir = tempfile::tempdir().unwrap();
    let mut bench = Bench::in_dir(dir.path());
    bench.list([object("a", 100, 10)]);
    bench.complete(110, None);
    bench.turns();
    bench.bound(1 << 40, Duration::from_secs(1 << 30));
    let unknown = WatchChange { verb: Verb::Delete, object: object("unknown", 111, 10) };
    bench.enqueue(of_source(OfSource::Changes(vec![unknown])));
    bench.turns();
    assert!(bench.writer.committed.sources[&1].inconsistent);

    bench.nearly_full();
    let again = || SourceSpec { label_selector: "a=b".into(), ignore: vec!["/text".into()], ..pods() };
    bench.enqueue(source(again()));
    bench.enqueue(source(maps()));
    let Command::Source(_, many) = changes(110..200, 2000) else { panic!() };
    bench.enqueue(Command::Source(SourceId(2), many));
    bench.group();
    assert!(bench.paused.borrow().is_some(), "it did not fit");
    assert_eq!((bench.count("source"), bench.writer.committed.sources.len()), (1, 1));
    let before = &bench.writer.committed.sources[&1];
    assert!(before.ignore.is_empty() && before.lost == Some(Why::Audit) && before.last_good == Some(rv(110)));
    assert!(bench.writer.committed.sources[&1].inconsistent, "it has not been listed");

    bench.with_room();
    assert_eq!((bench.count("source"), bench.writer.committed.sources.len()), (2, 2));
    assert!(!bench.writer.committed.sources[&1].ignore.is_empty());
    assert!(!bench.writer.committed.sources[&1].inconsistent);
    assert_eq!(bench.count("entry"), 91);
}

/// Whoever stops it does not wait for what is long: it ends between two slices, and the next start goes on from there.
#[tokio::test]
async fn a_stop_waits_for_one_slice_and_the_next_start_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, writing) = Journal::inline(dir.path(), |_| Ok(())).unwrap();
    let mut writer = JoinSet::new();
    writer.spawn(writing);
    let (source, _) = journal.source(&pods()).await.unwrap();
    source.list_begin().await.unwrap();
    source.list_page((0..2000).map(|n| object(&format!("o{n}"), 100 + n, 10)).collect()).await.unwrap();
    let mut head = journal.head();
    tokio::select! {
        done = source.list_done(rv(3000), None) => panic!("there is no end of its first slice: {done:?}"),
        seen = head.wait_for(|head| head.0 > 0) => assert!(seen.is_ok()),
    }
    drop((journal, source));
    writer.join_next().await.unwrap().unwrap().unwrap();
    let told = *head.borrow();
    assert!(told.0 < 2000, "it wrote all of it");

    let mut bench = Bench::unregistered(dir.path());
    let (reply, mut memory) = Reply::new();
    bench.enqueue(Command::Register(Box::new(pods()), reply));
    bench.turns();
    assert_eq!(memory.try_recv().unwrap().1.checkpoint.resume, Some(rv(3000)));
    assert_eq!(bench.log(), (0..2000).map(|n| format!("ADDED listed o{n}")).collect::<Vec<_>>());
}

/// Instructions of the database for the costliest turn in which a list of so many Pods of one namespace is compared with what
/// is known, which is the same, while so many others are known in each of the namespaces around it.
fn costliest_turn(inside: usize, others: usize) -> usize {
    let dir = tempfile::tempdir().unwrap();
    let mut bench = Bench::unregistered(dir.path());
    for around in ["a", "z"] {
        bench.enqueue(source(SourceSpec { namespace: Some(around.into()), ..pods() }));
        bench.turns();
        let id = SourceId(if around == "a" { 1 } else { 2 });
        let change = |n| WatchChange {
            verb: Verb::Upsert,
            object: Observed { namespace: around.into(), ..object(&format!("o{n}"), 1, 1) },
        };
        bench.enqueue(Command::Source(id, OfSource::Changes((0..others).map(change).collect())));
        bench.turns();
    }
    bench.enqueue(source(SourceSpec { namespace: Some("shop".into()), ..pods() }));
    bench.turns();
    let mut most = 0;
    for round in 0..2 {
        let list = (0..inside).map(|n| object(&format!("o{n:05}"), 2, 1)).collect();
        let of_third = |command| Command::Source(SourceId(3), command);
        bench.enqueue(of_third(OfSource::ListBegin));
        bench.enqueue(of_third(OfSource::ListPage(list)));
        bench.turns();
        bench.enqueue(of_third(OfSource::ListDone(rv(3), None, Reply::new().0)));
        loop {
            let steps = Arc::new(AtomicU64::new(0));
            let counted = Arc::clone(&steps);
            let count = move || counted.fetch_add(1, Ordering::Relaxed) == u64::MAX;
            bench.writer.disk.conn.progress_handler(1, Some(count)).unwrap();
            if !bench.turn() {
                break;
            }
            if round == 1 {
                most = most.max(usize::try_from(steps.load(Ordering::Relaxed)).unwrap());
            }
        }
    }
    assert_eq!(bench.log().len(), 2 * others + inside, "nothing is gone and nothing is told twice");
    most
}

/// A list is compared with what is known in slices, and each costs what is in it.
#[test]
fn a_slice_of_a_list_costs_the_same_in_a_larger_cluster() {
    let alone = costliest_turn(1000, 0);
    for (what, cost) in [("more Pods", costliest_turn(6000, 0)), ("others around them", costliest_turn(1000, 3000))] {
        assert!(cost < alone * 11 / 10, "{what}: {cost} instructions instead of {alone}");
    }
}
