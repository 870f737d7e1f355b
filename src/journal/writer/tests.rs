//! The writer step by step, without its thread: how much one step does, and what is left of a step that does not fit.

mod jobs;

use std::path::Path;
use std::time::Duration;

use tokio::sync::mpsc;

use super::queue::Open;
use super::*;
use crate::journal::retention::{PauseReason, SLICE_ENTRIES};
use crate::journal::{Reader, SinkStart, WatchChange, schema};
use crate::model::{Observed, SourceSpec, Verb};

/// A writer, and what waits for it.
struct Bench {
    writer: Writer,
    queue: Queue,
    control: mpsc::Sender<Queued>,
    sources: mpsc::Sender<Queued>,
    paused: watch::Receiver<Option<Pause>>,
}

fn spec() -> SourceSpec {
    SourceSpec {
        resource: Resource {
            group: String::new(),
            version: "v1".into(),
            kind: "Pod".into(),
            plural: "pods".into(),
            singular: "pod".into(),
            short_names: Vec::new(),
            namespaced: true,
        },
        namespace: None,
        label_selector: String::new(),
        field_selector: String::new(),
        first_list_silent: false,
        ignore: Vec::new(),
    }
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

fn changes(versions: std::ops::Range<u64>, length: usize) -> Command {
    // From 110 on there are new ones, so that a base is among what may not fit.
    let name = |version| format!("o{}", version % if version < 110 { 10 } else { 15 });
    let change = |version| WatchChange { verb: Verb::Upsert, object: object(&name(version), version, length) };
    Command::Changes(SourceId(1), versions.map(change).collect())
}

impl Bench {
    fn in_dir(dir: &Path) -> Self {
        let mut bench = Self::unregistered(dir);
        bench.hand_over(Command::Source(Box::new(spec()), Reply::new().0));
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

    fn hand_over(&self, command: Command) {
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
        let next = self.queue.take(self.writer.room.open);
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
        self.hand_over(Command::Bounds(Bounds { max_size, max_age, forget: false }));
        self.turn();
        // They count from the next turn on.
        self.turn();
    }

    /// Takes turns until there is room again, and all that waits is done.
    fn with_room(&mut self) {
        self.pages(None);
        while self.writer.room.due(Instant::now()).is_some() {
            self.turn();
        }
        self.turns();
    }

    /// The database takes so many pages and not one more, as a disk would.
    fn pages(&self, most: Option<u64>) {
        let most = most.unwrap_or(1 << 30);
        self.writer.conn.query_row(&format!("PRAGMA max_page_count = {most}"), [], |_| Ok(())).unwrap();
    }

    fn count(&self, what: &str) -> u64 {
        self.writer.conn.query_row(&format!("SELECT count(*) FROM {what}"), [], |row| row.get(0)).unwrap()
    }
}

#[test]
fn no_step_of_forgetting_takes_more_than_a_slice() {
    let dir = tempfile::tempdir().unwrap();
    let mut bench = Bench::in_dir(dir.path());
    for round in 0..20 {
        bench.hand_over(changes(100 + round * 100..200 + round * 100, 600));
        bench.turns();
    }
    bench.bound(1 << 40, Duration::ZERO);
    let (mut steps, mut most_pages) = (0, 0);
    loop {
        let (oldest, free) = (bench.writer.oldest, bench.writer.room.free_pages);
        let entries = bench.count("entry");
        if !bench.turn() {
            break;
        }
        steps += 1;
        assert!(bench.writer.oldest - oldest <= SLICE_ENTRIES as u64, "{} at once", bench.writer.oldest - oldest);
        assert!(entries - bench.count("entry") <= 3 * SLICE_ENTRIES as u64);
        most_pages = most_pages.max(free.saturating_sub(bench.writer.room.free_pages));
    }
    assert_eq!((bench.writer.oldest, bench.count("entry") > 1), (2000, true));
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
    bench.hand_over(Command::Sink("s".into(), "file".into(), SinkStart::Start, reply));
    bench.hand_over(changes(100..110, 500));
    bench.turns();
    assert_eq!(cursor.try_recv().unwrap(), Seq(0));
    bench.bound(1 << 40, Duration::from_secs(1 << 30));
    assert!(dir.path().join("reserve").exists());

    let pages: u64 = bench.writer.conn.pragma_query_value(None, "page_count", |row| row.get(0)).unwrap();
    bench.pages(Some(pages + 18));
    bench.hand_over(changes(110..200, 2000));
    bench.hand_over(Command::Bookmark(SourceId(1), ResourceVersion::new("250")));
    bench.turns();
    assert_eq!(bench.paused.borrow().as_ref().map(|pause| pause.why), Some(PauseReason::DiskFull));
    assert!(!dir.path().join("reserve").exists(), "given up, to write this");
    let told = Reader::open(dir.path()).unwrap().retained().unwrap().paused;
    assert_eq!(told, *bench.paused.borrow());
    assert_eq!((bench.writer.head, bench.count("entry")), (10, 10), "nothing of half a transaction");
    let source = &bench.writer.sources[&1];
    assert_eq!(source.applied, Some(ResourceVersion::new("109")), "the position is that of what is on disk");
    // The sinks go on, and what comes from the cluster waits.
    let (reply, mut done) = Reply::new();
    bench.hand_over(Command::Acknowledge { sink: "s".into(), upto: Seq(7), written: Seq(7), reply });
    bench.hand_over(changes(200..210, 500));
    bench.turns();
    done.try_recv().unwrap();
    assert_eq!(bench.count("entry"), 10);

    bench.with_room();
    assert!(bench.paused.borrow().is_none() && dir.path().join("reserve").exists());
    assert_eq!(Reader::open(dir.path()).unwrap().retained().unwrap().paused, None);
    assert_eq!((bench.writer.head, bench.count("entry")), (100, 100));
    // What came before the bookmark, and nothing after it that it covers.
    let entries = Reader::open(dir.path()).unwrap().entries_after(Seq(0), 1000, usize::MAX).unwrap();
    let versions: Vec<u64> = entries
        .iter()
        .map(|entry| crate::wire::Entry::parse(&entry.line).unwrap().version().as_str().parse().unwrap())
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
    bench.hand_over(Command::ListBegin(SourceId(1)));
    bench.hand_over(Command::ListPage(SourceId(1), objects));
    bench.turns();
    let pages: u64 = bench.writer.conn.pragma_query_value(None, "page_count", |row| row.get(0)).unwrap();
    bench.pages(Some(pages + 20));
    let (reply, mut done) = Reply::new();
    bench.hand_over(Command::ListDone(SourceId(1), ResourceVersion::new("900"), Some(Why::Expired), reply));
    bench.hand_over(changes(901..905, 100));
    bench.turns();
    assert_eq!(bench.paused.borrow().as_ref().map(|pause| pause.why), Some(PauseReason::DiskFull));
    assert!(done.try_recv().is_err());
    bench.pages(None);
    while bench.writer.room.due(Instant::now()).is_some() {
        bench.turn();
    }
    bench.turns();
    done.try_recv().unwrap();
    assert_eq!((bench.count("entry"), bench.count("listing")), (1 + 600 + 4, 0));
    assert_eq!(bench.writer.sources[&1].applied, Some(ResourceVersion::new("904")));
}

/// Fault 42: a list of which something is damaged is told to its end, and the source hears at once that it needs another.
#[test]
fn a_list_that_is_damaged_is_answered_and_asks_for_another() {
    let dir = tempfile::tempdir().unwrap();
    let mut bench = Bench::in_dir(dir.path());
    bench.hand_over(Command::ListBegin(SourceId(1)));
    bench.hand_over(Command::ListPage(SourceId(1), vec![object("a", 100, 300), object("b", 101, 300)]));
    bench.turns();
    bench.writer.conn.execute("UPDATE listing SET body = x'77' WHERE name = 'a'", []).unwrap();
    let (reply, mut done) = Reply::new();
    bench.hand_over(Command::ListDone(SourceId(1), ResourceVersion::new("900"), None, reply));
    bench.hand_over(changes(901..905, 100));
    bench.turns();
    done.try_recv().unwrap();
    assert_eq!((bench.count("entry"), bench.count("listing")), (1, 0), "the gap comes before what follows");
    assert!(bench.writer.contradictions().borrow().contains(&SourceId(1)));
}

/// What the server forgets while nothing is read for want of room is missing for that reason.
#[test]
fn a_gap_after_a_pause_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let mut bench = Bench::in_dir(dir.path());
    bench.hand_over(changes(100..101, 100));
    bench.turns();
    for (until, why, version) in [(0, "expired", "200"), (2_000_000, "paused", "201")] {
        bench.writer.room.paused_until = until;
        // Known good at 1 s.
        bench.hand_over(Command::Bookmark(SourceId(1), ResourceVersion::new("150")));
        bench.hand_over(Command::ListBegin(SourceId(1)));
        bench.hand_over(Command::ListDone(
            SourceId(1),
            ResourceVersion::new(version),
            Some(Why::Expired),
            Reply::new().0,
        ));
        bench.turns();
        let gap = Reader::open(dir.path()).unwrap().last_gap().unwrap().unwrap();
        let gap = crate::wire::Entry::parse(&gap.line).unwrap().gap().unwrap();
        assert_eq!(gap.why, why);
        assert_eq!(gap.since.as_deref(), Some("1970-01-01T00:00:01.000000Z"), "{gap:?}");
    }
}

#[test]
fn sinks_have_their_turn_when_sources_have_none() {
    let dir = tempfile::tempdir().unwrap();
    let mut bench = Bench::in_dir(dir.path());
    bench.hand_over(changes(100..101, 100));
    bench.hand_over(Command::Ping(Reply::new().0));
    let shut = Open { sources: false, control: true };
    assert!(bench.queue.take(shut).is_some_and(|queued| queued.command.is_control()));
    assert!(bench.queue.take(shut).is_none());
    assert!(bench.queue.take(Open { sources: true, control: true }).is_some());
}
