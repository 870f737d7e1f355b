//! The writer step by step, without its thread: how much one step does, and what is left of a step that does not fit.

mod jobs;

use std::path::Path;
use std::time::Duration;

use tokio::sync::mpsc;

use super::queue::Open;
use super::*;
use crate::core::change::redact::Redactor;
use crate::core::model::{Observed, SourceSpec, Verb, Why};
use crate::journal::Audit;
use crate::journal::retention::{PauseReason, SLICE_ENTRIES};
use crate::journal::tests::pods;
use crate::journal::{Reader, SinkStart, WatchChange, schema};

/// A writer, and what waits for it.
struct Bench {
    writer: Writer,
    queue: Queue,
    control: mpsc::Sender<Queued>,
    sources: mpsc::Sender<Queued>,
    paused: watch::Receiver<Option<Pause>>,
}

fn object(name: &str, version: u64, length: usize) -> Observed {
    let mut state = version;
    let mut noise = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b'a' + u8::try_from((state >> 33) % 26).unwrap())
    };
    let text: String = (0..length).map(|_| noise()).collect();
    Observed {
        namespace: "shop".into(),
        name: name.into(),
        uid: format!("u-{name}"),
        version: ResourceVersion::new(version.to_string()),
        body: Redacted {
            bytes: format!(r#"{{"text":"{text}"}}"#).into_bytes(),
            pointers: Vec::new(),
            marks: Vec::new(),
        },
    }
}

fn of_source(command: OfSource) -> Command {
    Command::Source(SourceId(1), command)
}

fn changes(versions: std::ops::Range<u64>, length: usize) -> Command {
    // From 110 on there are new ones, so that a base is among what may not fit.
    let name = |version| format!("o{}", version % if version < 110 { 10 } else { 15 });
    let change = |version| WatchChange { verb: Verb::Upsert, object: object(&name(version), version, length) };
    of_source(OfSource::Changes(versions.map(change).collect()))
}

impl Bench {
    fn in_dir(dir: &Path) -> Self {
        let mut bench = Self::unregistered(dir);
        bench.enqueue(Command::Register(Box::new(pods()), Reply::new().0));
        bench.turn();
        bench
    }

    /// A writer that knows of sources only what the last one has left.
    fn unregistered(dir: &Path) -> Self {
        let _lock = schema::lock(dir).unwrap();
        let (control, control_receiver) = mpsc::channel(100);
        let (sources, source_receiver) = mpsc::channel(100);
        let (told, paused) = watch::channel(None);
        let conn = schema::open_writer(dir).unwrap();
        let mut writer = Writer::new(conn, dir, watch::channel(Seq(0)).0, told).unwrap();
        writer.recover().unwrap();
        Self { writer, queue: Queue::new(control_receiver, source_receiver), control, sources, paused }
    }

    fn enqueue(&self, command: Command) {
        let lane = if command.is_control() { &self.control } else { &self.sources };
        let bytes = command.objects() * 1000;
        assert!(lane.try_send(Queued { command, at: 1_000_000, bytes, room: None }).is_ok());
    }

    /// One turn of the loop. Says whether there is more to do.
    fn turn(&mut self) -> bool {
        let busy = self.writer.slice(&mut self.queue).unwrap();
        let any = self.group();
        busy || any
    }

    /// What waits is done, in one transaction. Says whether there was any.
    fn group(&mut self) -> bool {
        let next = self.queue.take(self.writer.quota.open);
        let any = next.is_some();
        if let Some(queued) = next {
            self.writer.group(queued, &mut self.queue).unwrap();
        }
        any
    }

    fn turns(&mut self) {
        while self.turn() {}
    }

    fn bound(&mut self, max_size: u64, max_age: Duration) {
        self.enqueue(Command::Bounds(Bounds { max_size, max_age, drop_oldest: false }));
        self.turn();
        // They count from the next turn on.
        self.turn();
    }

    /// Takes turns until there is room again, and all that waits is done.
    fn with_room(&mut self) {
        self.pages(None);
        while self.writer.quota.due(Instant::now()).is_some() {
            self.turn();
        }
        self.turns();
    }

    /// The database takes so many pages and not one more, as a disk would.
    fn pages(&self, most: Option<u64>) {
        let most = most.unwrap_or(1 << 30);
        self.writer.disk.conn.query_row(&format!("PRAGMA max_page_count = {most}"), [], |_| Ok(())).unwrap();
    }

    /// What the database has of positions and entries.
    fn stored(&self) -> Vec<String> {
        let all =
            "SELECT group_concat(id || coalesce(resume, '-') || coalesce(applied, '-') || coalesce(pending_why, '-')
                       || coalesce(pending, '-') || active || label_selector) FROM source
                   UNION ALL SELECT group_concat(key || value) FROM meta WHERE key <> 'paused'
                   UNION ALL SELECT group_concat(seq || time) FROM entry UNION ALL SELECT group_concat(name) FROM sink";
        let mut select = self.writer.disk.conn.prepare(all).unwrap();
        let rows = select.query_map([], |row| row.get::<_, Option<String>>(0)).unwrap();
        rows.map(|row| row.unwrap().unwrap_or_default()).collect()
    }

    fn count(&self, what: &str) -> u64 {
        self.writer.disk.conn.query_row(&format!("SELECT count(*) FROM {what}"), [], |row| row.get(0)).unwrap()
    }
}

#[test]
fn no_step_of_forgetting_takes_more_than_a_slice() {
    let dir = tempfile::tempdir().unwrap();
    let mut bench = Bench::in_dir(dir.path());
    for round in 0..20 {
        bench.enqueue(changes(100 + round * 100..200 + round * 100, 600));
        bench.turns();
    }
    bench.bound(1 << 40, Duration::ZERO);
    let (mut steps, mut most_pages) = (0, 0);
    loop {
        let (oldest, free) = (bench.writer.committed.log_start, bench.writer.quota.free_pages);
        let entries = bench.count("entry");
        if !bench.turn() {
            break;
        }
        steps += 1;
        assert!(
            bench.writer.committed.log_start - oldest <= SLICE_ENTRIES as u64,
            "{} at once",
            bench.writer.committed.log_start - oldest
        );
        assert!(entries - bench.count("entry") <= 3 * SLICE_ENTRIES as u64);
        most_pages = most_pages.max(free.saturating_sub(bench.writer.quota.free_pages));
    }
    assert_eq!((bench.writer.committed.log_start, bench.count("entry") > 1), (2000, true));
    assert!(
        steps > 2000 / SLICE_ENTRIES && most_pages <= crate::journal::retention::SLICE_PAGES,
        "{steps} {most_pages}"
    );
    // A base and a last entry of each of fifteen objects, and the newest of all.
    assert!(bench.count("entry") <= 31, "{}", bench.count("entry"));
}

/// Faults 47 and 48: the disk is full in the middle of a transaction.
#[test]
fn what_did_not_fit_is_tried_again_in_its_order_and_told_once() {
    let dir = tempfile::tempdir().unwrap();
    let mut bench = Bench::in_dir(dir.path());
    let (reply, mut cursor) = Reply::new();
    bench.enqueue(Command::Sink("s".into(), OfSink::Register("file".into(), SinkStart::Start, reply)));
    bench.enqueue(changes(100..110, 500));
    bench.turns();
    assert_eq!(cursor.try_recv().unwrap(), Seq(0));
    bench.bound(1 << 40, Duration::from_secs(1 << 30));
    assert!(dir.path().join("reserve").exists());

    let pages: u64 = bench.writer.disk.conn.pragma_query_value(None, "page_count", |row| row.get(0)).unwrap();
    bench.pages(Some(pages + 18));
    bench.enqueue(changes(110..200, 2000));
    bench.enqueue(of_source(OfSource::Bookmark(ResourceVersion::new("250"))));
    bench.turns();
    assert_eq!(bench.paused.borrow().as_ref().map(|pause| pause.why), Some(PauseReason::DiskFull));
    assert!(!dir.path().join("reserve").exists(), "given up, to write this");
    let told = Reader::open(dir.path()).unwrap().retained().unwrap().paused;
    assert_eq!(told, *bench.paused.borrow());
    assert_eq!((bench.writer.committed.head, bench.count("entry")), (10, 10), "nothing of half a transaction");
    let source = &bench.writer.committed.sources[&1];
    assert_eq!(source.checkpoint.applied, Some(ResourceVersion::new("109")), "the position is that of what is on disk");
    // The sinks go on, and what comes from the cluster waits.
    let (reply, mut done) = Reply::new();
    let progress = crate::journal::Progress { upto: Seq(7), written: Seq(7), ..Default::default() };
    bench.enqueue(Command::Sink("s".into(), OfSink::Acknowledge(progress, reply)));
    bench.enqueue(changes(200..210, 500));
    bench.turns();
    done.try_recv().unwrap();
    assert_eq!(bench.count("entry"), 10);

    bench.with_room();
    assert!(bench.paused.borrow().is_none() && dir.path().join("reserve").exists());
    assert_eq!(Reader::open(dir.path()).unwrap().retained().unwrap().paused, None);
    assert_eq!((bench.writer.committed.head, bench.count("entry")), (100, 100));
    // What came before the bookmark, and nothing after it that it covers.
    let entries = Reader::open(dir.path()).unwrap().entries_after(Seq(0), 1000, usize::MAX).unwrap();
    let versions: Vec<u64> = entries
        .iter()
        .map(|entry| crate::core::wire::Entry::parse(&entry.line).unwrap().version().as_str().parse().unwrap())
        .collect();
    assert!(versions.into_iter().eq(100..200));
    let found = Reader::open(dir.path()).unwrap().verify(|_, _| ()).unwrap();
    assert!(found.problems.is_empty(), "{:?}", found.problems);
}

/// A list that does not fit goes on where it was, with its answer.
#[test]
fn a_list_that_did_not_fit_goes_on_where_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let mut bench = Bench::in_dir(dir.path());
    bench.bound(1 << 40, Duration::from_secs(1 << 30));
    let objects = (0..600).map(|n| object(&format!("p{n}"), 100 + n, 300)).collect();
    bench.enqueue(of_source(OfSource::ListBegin));
    bench.enqueue(of_source(OfSource::ListPage(objects)));
    bench.turns();
    let pages: u64 = bench.writer.disk.conn.pragma_query_value(None, "page_count", |row| row.get(0)).unwrap();
    bench.pages(Some(pages + 20));
    let (reply, mut done) = Reply::new();
    bench.enqueue(of_source(OfSource::ListDone(ResourceVersion::new("900"), Some(Why::Expired), reply)));
    bench.enqueue(changes(901..905, 100));
    bench.turns();
    assert_eq!(bench.paused.borrow().as_ref().map(|pause| pause.why), Some(PauseReason::DiskFull));
    assert!(done.try_recv().is_err());
    bench.pages(None);
    while bench.writer.quota.due(Instant::now()).is_some() {
        bench.turn();
    }
    bench.turns();
    done.try_recv().unwrap();
    assert_eq!((bench.count("entry"), bench.count("listing")), (1 + 600 + 4, 0));
    assert_eq!(bench.writer.committed.sources[&1].checkpoint.applied, Some(ResourceVersion::new("904")));
}

/// Fault 42: a list of which something is damaged is recorded to its end, and the source hears at once that it needs
/// another.
#[test]
fn a_list_that_is_damaged_is_answered_and_asks_for_another() {
    let dir = tempfile::tempdir().unwrap();
    let mut bench = Bench::in_dir(dir.path());
    bench.enqueue(of_source(OfSource::ListBegin));
    bench.enqueue(of_source(OfSource::ListPage(vec![object("a", 100, 300), object("b", 101, 300)])));
    bench.turns();
    bench.writer.disk.conn.execute("UPDATE listing SET body = x'77' WHERE name = 'a'", []).unwrap();
    let (reply, mut done) = Reply::new();
    bench.enqueue(of_source(OfSource::ListDone(ResourceVersion::new("900"), None, reply)));
    bench.enqueue(changes(901..905, 100));
    bench.turns();
    done.try_recv().unwrap();
    assert_eq!((bench.count("entry"), bench.count("listing")), (1, 0), "the gap comes before what follows");
    assert!(bench.writer.inconsistent().borrow().contains(&SourceId(1)));
}

/// What the server compacts while nothing is read for want of room is missing for that reason.
#[test]
fn a_gap_after_a_pause_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let mut bench = Bench::in_dir(dir.path());
    bench.enqueue(changes(100..101, 100));
    bench.turns();
    for (until, why, version) in [(0, "expired", "200"), (2_000_000, "paused", "201")] {
        bench.writer.quota.paused_until = until;
        // Known good at 1 s.
        bench.enqueue(of_source(OfSource::Bookmark(ResourceVersion::new("150"))));
        bench.enqueue(of_source(OfSource::ListBegin));
        bench.enqueue(of_source(OfSource::ListDone(ResourceVersion::new(version), Some(Why::Expired), Reply::new().0)));
        bench.turns();
        let gap = Reader::open(dir.path()).unwrap().last_gap().unwrap().unwrap();
        let gap = crate::core::wire::Entry::parse(&gap.line).unwrap().gap().unwrap();
        assert_eq!(gap.why, why);
        assert_eq!(gap.since.as_deref(), Some("1970-01-01T00:00:01.000000Z"), "{gap:?}");
    }
}

#[test]
fn sinks_have_their_turn_when_sources_have_none() {
    let dir = tempfile::tempdir().unwrap();
    let mut bench = Bench::in_dir(dir.path());
    bench.enqueue(changes(100..101, 100));
    bench.enqueue(Command::Ping(Reply::new().0));
    let shut = Open { sources: false, control: true };
    assert!(bench.queue.take(shut).is_some_and(|queued| queued.command.is_control()));
    assert!(bench.queue.take(shut).is_none());
    assert!(bench.queue.take(Open { sources: true, control: true }).is_some());
}

/// What a rollback drops is one value: whichever command a transaction fails at, what the writer knows is what it knew.
#[test]
fn a_transaction_that_fails_leaves_what_is_committed_as_it_was() {
    type Commands<'a> = Box<dyn Fn() -> Vec<Command> + 'a>;
    let of_other = |command| Command::Source(SourceId(2), command);
    let of_sink = |command| Command::Sink("s".into(), command);
    let rules = |key| Redactor::new(&crate::core::change::redact::Settings::default(), [key; 32]).unwrap();
    let maps = || {
        let mut maps = pods();
        (maps.resource.kind, maps.resource.plural) = ("ConfigMap".into(), "configmaps".into());
        Box::new(maps)
    };
    let unknown = || vec![WatchChange { verb: Verb::Delete, object: object("unknown", 301, 10) }];
    let rv = |version: &str| ResourceVersion::new(version);
    let again = || Box::new(SourceSpec { label_selector: "a=b".into(), ignore: vec!["/text".into()], ..pods() });
    let failing: Vec<(&str, Commands<'_>)> = vec![
        ("changes", Box::new(|| vec![changes(130..140, 10)])),
        ("a bookmark", Box::new(|| vec![of_source(OfSource::Bookmark(rv("400")))])),
        ("an inconsistent change", Box::new(|| vec![of_source(OfSource::Changes(unknown()))])),
        ("a desync", Box::new(|| vec![of_source(OfSource::MarkDesynced(Why::Expired))])),
        ("an audit", {
            let audit = || Audit { version: rv("109"), began: runtime::now(), differences: 0 };
            Box::new(move || vec![of_source(OfSource::Audited(audit()))])
        }),
        ("a list", {
            let page = || OfSource::ListPage(vec![object("a", 300, 10)]);
            let done = || OfSource::ListDone(rv("310"), Some(Why::Expired), Reply::new().0);
            Box::new(move || [OfSource::ListBegin, page(), done()].map(of_source).into())
        }),
        ("the end of a resource", Box::new(|| vec![of_source(OfSource::Gone(Reply::new().0))])),
        ("another source", Box::new(|| vec![Command::Register(maps(), Reply::new().0), of_other(OfSource::ListBegin)])),
        ("another scope", Box::new(|| vec![Command::Register(again(), Reply::new().0)])),
        ("a narrower scope", Box::new(|| vec![Command::Narrow(Reply::new().0)])),
        ("another cluster's name", {
            let cluster = || Cluster { name: "other".into(), uid: "u".into() };
            Box::new(move || vec![Command::Cluster(cluster(), Reply::new().0)])
        }),
        ("an epoch", Box::new(|| vec![Command::Epoch(None, Reply::new().0)])),
        ("other rules", Box::new(move || vec![Command::Redaction(Arc::new(rules(8)))])),
        ("a sink", {
            let register = || OfSink::Register("file".into(), SinkStart::Now, Reply::new().0);
            Box::new(move || vec![of_sink(register())])
        }),
    ];
    for (name, commands) in failing {
        let dir = tempfile::tempdir().unwrap();
        let mut bench = Bench::in_dir(dir.path());
        bench.enqueue(Command::Redaction(Arc::new(rules(7))));
        bench.enqueue(changes(100..110, 10));
        bench.turns();
        // A bookmark between two transactions is taken along by the next one.
        bench.enqueue(of_source(OfSource::Bookmark(rv("120"))));
        bench.turns();
        let before = bench.writer.committed.clone();
        assert!(before.sources[&1].moved && before.head == 10 && before.rules.is_some());
        let stored = bench.stored();

        let all = commands().len();
        // Before the first command, after each of them, and in the commit.
        for done in 0..=all + 1 {
            let Writer { disk, committed, quota, .. } = &mut bench.writer;
            let mut transaction = disk.transaction(committed, quota);
            transaction.begin().unwrap();
            for command in commands().iter().take(done) {
                transaction.perform(command).unwrap();
            }
            if done > all {
                // There is something to be written in any case.
                transaction.perform(&of_source(OfSource::Bookmark(rv("500")))).unwrap();
                transaction.conn.pragma_update(None, "query_only", true).unwrap();
                assert!(transaction.commit().is_err(), "{name}");
                disk.conn.pragma_update(None, "query_only", false).unwrap();
            } else {
                drop(transaction);
            }
            assert_eq!(bench.writer.committed, before, "{name}, {done}");
            assert_eq!(bench.stored(), stored, "{name}, {done}");
        }
        // It happens when it is tried again, and there is something that could have stayed.
        for command in commands() {
            bench.enqueue(command);
        }
        bench.group();
        assert_ne!(bench.writer.committed, before, "{name}");
    }
}
