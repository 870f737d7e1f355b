//! Delivery from a real journal, to sinks of the test and to a real file.

mod cursor;
mod files;
mod incidents;
mod pace;
mod reading;
mod timelines;

use files::file;
use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Mutex};

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::task::JoinSet;

use tokio::sync::watch;

use super::*;
use crate::core::model::{Observed, Redacted, ResourceVersion, Verb};
use crate::core::runtime::Signal;
use crate::core::wire::Payload;
use crate::journal::tests::pods;
use crate::journal::{Bounds, SinkRow, SourceJournal, WatchChange, WriterThread};
use crate::sink::file::{Compress, Settings as FileSettings};
use crate::sink::{Failure, SinkError};

const METADATA: Shape = Shape { payload: Payload::Metadata, managed_fields: true };

/// A journal with one source, and whatever the test delivers from it.
pub(crate) struct World {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) journal: Journal,
    thread: WriterThread,
    source: SourceJournal,
    written: u64,
    reopen: Signal,
    stop: CancellationToken,
    tasks: JoinSet<Result<(), DeliveryError>>,
}

impl World {
    pub(crate) async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (journal, thread) = Journal::open(&dir.path().join("state")).unwrap();
        let source = journal.source(&pods()).await.unwrap().0;
        source.list_begin().await.unwrap();
        source.list_done(ResourceVersion::new("1"), None).await.unwrap();
        Self {
            dir,
            journal,
            thread,
            source,
            written: 0,
            reopen: Signal::default(),
            stop: CancellationToken::new(),
            tasks: JoinSet::new(),
        }
    }

    /// Appends this many entries, each a new pod.
    pub(crate) async fn write(&mut self, count: u64) {
        let changes = (self.written + 1..=self.written + count).map(|number| {
            let version = ResourceVersion::new((number + 1).to_string());
            let bytes = format!(
                r#"{{"kind":"Pod","apiVersion":"v1","metadata":{{"name":"p{number}","namespace":"shop","uid":"u{number}","resourceVersion":"{version}"}}}}"#
            );
            let body = Redacted { bytes: bytes.into_bytes(), ..Redacted::default() };
            let (namespace, name, uid) = ("shop".into(), format!("p{number}"), format!("u{number}"));
            WatchChange { verb: Verb::Upsert, object: Observed { namespace, name, uid, version, body } }
        });
        self.source.append(changes.collect()).await.unwrap();
        self.journal.flush().await.unwrap();
        self.written += count;
    }

    /// Appends an entry about one pod, which is always the same.
    async fn touch(&mut self) {
        self.written += 1;
        let version = ResourceVersion::new((self.written + 1).to_string());
        let bytes = format!(
            r#"{{"kind":"Pod","apiVersion":"v1","metadata":{{"name":"p","namespace":"shop","uid":"u","resourceVersion":"{version}","labels":{{"n":"{version}"}}}}}}"#
        );
        let body = Redacted { bytes: bytes.into_bytes(), ..Redacted::default() };
        let object = Observed { namespace: "shop".into(), name: "p".into(), uid: "u".into(), version, body };
        self.source.append(vec![WatchChange { verb: Verb::Upsert, object }]).await.unwrap();
        self.journal.flush().await.unwrap();
    }

    /// Truncates all but the newest entry.
    async fn truncate(&mut self) {
        let bounds = |max_age| Bounds { max_size: 1 << 40, max_age, drop_oldest: true };
        self.journal.bound(bounds(Duration::ZERO)).await.unwrap();
        while self.journal.reader().unwrap().oldest().unwrap() < Seq(self.written) {
            self.journal.flush().await.unwrap();
            tokio::task::yield_now().await;
        }
        self.journal.bound(bounds(Duration::from_secs(86_400))).await.unwrap();
    }

    fn plan(&self) -> Plan {
        Plan {
            name: "s".into(),
            kind: "fake",
            start: SinkStart::Start,
            filter: None,
            shape: Shape::WHOLE,
            rate: None,
            on_refused: OnRefused::Halt,
            stats: Arc::default(),
            position_known: Arc::new(runtime::watch::Sender::new(false)),
            notify: None,
            machine: None,
        }
    }

    fn start(&mut self, plan: Plan, sink: impl Sink + 'static) {
        let (journal, reopen) = (self.journal.clone(), self.reopen.listen());
        self.tasks.spawn(run(journal, plan, Box::new(sink), reopen, self.stop.clone()));
    }

    /// Stops delivery as SIGTERM does.
    async fn stop(&mut self) {
        self.stop.cancel();
        while let Some(ended) = self.tasks.join_next().await {
            ended.unwrap().unwrap();
        }
        self.stop = CancellationToken::new();
    }

    /// Drops delivery where it stands, which is what a crash does to it.
    async fn crash(&mut self) {
        self.tasks.shutdown().await;
    }

    /// A sink as the journal knows it; none before it is registered.
    async fn registered(&self, name: &str) -> Option<SinkRow> {
        self.journal.flush().await.unwrap();
        self.journal.reader().unwrap().sinks().unwrap().into_iter().find(|row| row.name == name)
    }

    async fn row(&self) -> SinkRow {
        self.registered("s").await.unwrap()
    }

    /// Ends the journal's thread, which frees its state directory.
    pub(crate) fn close(self) -> tempfile::TempDir {
        drop((self.tasks, self.journal, self.source));
        self.thread.join().unwrap();
        self.dir
    }

    /// Waits until the journal says this of the sink.
    async fn until(&self, what: impl Fn(&SinkRow) -> bool) -> SinkRow {
        self.until_sink("s", what).await
    }

    pub(crate) async fn until_sink(&self, name: &str, what: impl Fn(&SinkRow) -> bool) -> SinkRow {
        let deadline = std::time::Instant::now() + Duration::from_secs(30);
        loop {
            let row = self.registered(name).await;
            assert!(std::time::Instant::now() < deadline, "still {row:?}");
            if let Some(row) = row.filter(&what) {
                return row;
            }
            tokio::task::yield_now().await;
        }
    }

    pub(crate) fn lines(&self, seqs: std::ops::RangeInclusive<u64>) -> Vec<u8> {
        let mut reader = self.journal.reader().unwrap();
        let line = |seq| [&reader.entry(Seq(seq)).unwrap().unwrap().line[..], b"\n"].concat();
        seqs.flat_map(line).collect()
    }
}

/// An output that was restored while it was delivered to is asked where it is, and gets what it lacks.
#[tokio::test]
async fn an_output_that_moved_is_asked_again_and_filled_up() {
    let mut world = World::new().await;
    world.write(6).await;
    let moved = Failure { taken: 0, error: SinkError::Lost { text: "put back".into() } };
    let held = LogPosition { epoch: world.journal.epoch(), seq: Seq(0), entry: None };
    // What it says it holds is what it holds at every question.
    let mut fake = Fake::new([Failure { taken: 4, error: SinkError::retry("busy") }, moved]);
    fake.held = Some(held);
    world.start(world.plan(), fake.clone());
    let taken = fake.taken(10).await;
    assert_eq!(taken, [1, 2, 3, 4, 1, 2, 3, 4, 5, 6]);
    world.until(|row| row.cursor == Seq(6) && row.state.word() == "running").await;
    world.stop().await;
}

/// Two machines deliver in turn, each to a file of its own: who leads again repeats nothing of what the other one has delivered,
/// and fills up what its own file has lost.
#[tokio::test]
async fn an_output_of_each_machine_lacks_what_the_other_one_has() {
    let mut world = World::new().await;
    let path = |world: &World, machine: &str| world.dir.path().join(format!("{machine}.jsonl"));
    for (machine, count) in [("a", 4), ("b", 3), ("a", 2), ("b", 1), ("a", 0), ("a", 1)] {
        world.write(count).await;
        let settings = serde_json::from_value(serde_json::json!({"path": path(&world, machine)})).unwrap();
        let plan = Plan { machine: Some(machine.to_owned()), ..world.plan() };
        let asked = Arc::clone(&plan.position_known);
        world.start(plan, crate::sink::file::FileSink::new(&settings));
        asked.subscribe().wait_for(|asked| *asked).await.unwrap();
        let newest = world.written;
        world.until(|row| row.cursor == Seq(newest) && row.state.word() == "running").await;
        world.stop().await;
    }
    let has = |machine: &str| std::fs::read(path(&world, machine)).unwrap();
    let expected = |ranges: &[std::ops::RangeInclusive<u64>]| -> Vec<u8> {
        ranges.iter().flat_map(|range| world.lines(range.clone())).collect()
    };
    assert!(has("a") == expected(&[1..=4, 8..=9, 11..=11]), "{}", String::from_utf8_lossy(&has("a")));
    assert!(has("b") == expected(&[5..=7, 10..=10]), "{}", String::from_utf8_lossy(&has("b")));
    // What it had is gone.
    std::fs::write(path(&world, "a"), expected(&[1..=2])).unwrap();
    let settings = serde_json::from_value(serde_json::json!({"path": path(&world, "a")})).unwrap();
    let plan = Plan { machine: Some("a".to_owned()), ..world.plan() };
    world.start(plan, crate::sink::file::FileSink::new(&settings));
    let all = world.lines(1..=11);
    let deadline = std::time::Instant::now() + Duration::from_secs(30);
    while std::fs::read(path(&world, "a")).unwrap() != all {
        assert!(std::time::Instant::now() < deadline, "it is not filled up");
        tokio::task::yield_now().await;
    }
    world.stop().await;
}

type Act = Box<dyn FnOnce() + Send>;

/// Takes what its script lets it take.
#[derive(Clone)]
struct Fake {
    /// What each delivery does; when there is nothing left, it takes everything.
    script: Arc<Mutex<VecDeque<Failure>>>,
    held: Option<LogPosition>,
    /// Up to which seq it has the entries of the journal.
    shared: u64,
    /// But for these.
    missing: Vec<u64>,
    /// It has let go of all of them, and does not know.
    trimmed: bool,
    limits: Limits,
    taken: watch::Sender<Vec<u64>>,
    /// What happens at the first delivery.
    first: Arc<Mutex<Option<Act>>>,
    /// How often it had to open its files again.
    reopened: watch::Sender<u64>,
}

impl Fake {
    fn new(script: impl IntoIterator<Item = Failure>) -> Self {
        let script = Arc::new(Mutex::new(script.into_iter().collect()));
        let limits = Limits { entries: 4, bytes: 1 << 20, linger: Duration::ZERO };
        Self {
            script,
            held: None,
            shared: 0,
            missing: Vec::new(),
            trimmed: false,
            limits,
            taken: watch::Sender::default(),
            first: Arc::default(),
            reopened: watch::Sender::default(),
        }
    }

    async fn taken(&self, count: usize) -> Vec<u64> {
        self.taken.subscribe().wait_for(|taken| taken.len() >= count).await.unwrap().clone()
    }
}

impl Sink for Fake {
    fn class(&self) -> crate::sink::Class {
        crate::sink::Class::AtLeastOnce
    }

    fn limits(&self) -> Limits {
        self.limits
    }

    fn position<'a>(&'a mut self, _: &'a LogPosition) -> BoxFuture<'a, Result<Option<LogPosition>, SinkError>> {
        std::future::ready(Ok(self.held.clone())).boxed()
    }

    fn holds<'a>(&'a mut self, entry: &'a LogPosition) -> BoxFuture<'a, Result<Option<bool>, SinkError>> {
        let held = entry.seq.0 <= self.shared && !self.missing.contains(&entry.seq.0);
        std::future::ready(Ok((!self.trimmed).then_some(held))).boxed()
    }

    fn deliver<'a>(&'a mut self, batch: &'a [Item]) -> BoxFuture<'a, Result<(), Failure>> {
        if let Some(act) = self.first.lock().unwrap().take() {
            act();
        }
        let step = self.script.lock().unwrap().pop_front();
        let count = step.as_ref().map_or(batch.len(), |failure| failure.taken.min(batch.len()));
        self.taken.send_modify(|taken| taken.extend(batch[..count].iter().map(|item| item.seq.0)));
        std::future::ready(step.map_or(Ok(()), Err)).boxed()
    }

    fn reopen(&mut self) {
        self.reopened.send_modify(|count| *count += 1);
    }

    fn check(&mut self) -> BoxFuture<'_, Result<(), SinkError>> {
        std::future::ready(Ok(())).boxed()
    }
}

fn retry(taken: usize) -> Failure {
    Failure { taken, error: SinkError::retry("down") }
}

fn refused(taken: usize) -> Failure {
    Failure { taken, error: SinkError::Refused { text: "400".into() } }
}

#[tokio::test]
async fn everything_is_delivered_in_order_and_goes_on_after_a_restart() {
    let mut world = World::new().await;
    world.write(10).await;
    let fake = Fake::new([]);
    world.start(world.plan(), fake.clone());
    fake.taken(10).await;
    world.write(3).await;
    fake.taken(13).await;
    world.stop().await;
    assert_eq!(world.row().await.cursor, Seq(13));
    world.write(2).await;
    world.start(world.plan(), fake.clone());
    assert_eq!(fake.taken(15).await, (1..=15).collect::<Vec<_>>());
    world.until(|row| row.state.word() == "running" && row.cursor == Seq(15)).await;
}

#[tokio::test]
async fn a_new_sink_begins_where_it_should() {
    for (start, first) in [(SinkStart::Start, 1), (SinkStart::Now, 6), (SinkStart::Seq(Seq(3)), 3)] {
        let mut world = World::new().await;
        world.write(5).await;
        let fake = Fake::new([]);
        world.start(Plan { start, ..world.plan() }, fake.clone());
        world.until(|row| row.cursor >= Seq(5)).await;
        world.write(1).await;
        let taken = fake.taken(7 - first).await;
        assert_eq!(taken, (first as u64..=6).collect::<Vec<_>>(), "{start:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_sink_that_is_down_for_long_loses_nothing() {
    let mut world = World::new().await;
    world.write(6).await;
    let fake = Fake::new((0..50).map(|number| retry(usize::from(number == 20))));
    world.start(world.plan(), fake.clone());
    assert_eq!(fake.taken(6).await, [1, 2, 3, 4, 5, 6]);
    world.until(|row| row.state.word() == "running").await;
    world.stop().await;
    assert_eq!(world.row().await.cursor, Seq(6));
}

#[tokio::test(start_paused = true)]
async fn the_wait_grows_and_is_never_below_what_the_server_asks() {
    assert!((0..100).all(|_| wait(1, None) <= BACKOFF.first && wait(u32::MAX, None) <= BACKOFF.most));
    assert!((0..100).any(|_| wait(3, None) > BACKOFF.first));
    let mut world = World::new().await;
    world.write(1).await;
    let after = Some(Duration::from_secs(600));
    let fake = Fake::new([Failure { taken: 0, error: SinkError::Retry { text: "busy".into(), after } }]);
    let begin = Instant::now();
    world.start(world.plan(), fake.clone());
    fake.taken(1).await;
    assert!(begin.elapsed() >= Duration::from_secs(600), "{:?}", begin.elapsed());
}

#[tokio::test(start_paused = true)]
async fn what_is_delivered_and_what_fails_is_counted() {
    let mut world = World::new().await;
    world.write(6).await;
    let plan = world.plan();
    let stats = Arc::clone(&plan.stats);
    world.start(Plan { on_refused: OnRefused::DeadLetter, ..plan }, Fake::new([retry(2), retry(0), refused(1)]));
    world.until(|row| row.cursor == Seq(6) && row.state.word() == "running").await;
    world.stop().await;
    let all = |stats: &SinkStats| {
        [&stats.delivered, &stats.bytes, &stats.failures, &stats.tries].map(|count| count.load(Relaxed))
    };
    // The fourth is dead-lettered.
    let bytes = (world.lines(1..=3).len() + world.lines(5..=6).len() - 5) as u64;
    assert_eq!(all(&stats), [5, bytes, 3, 0]);
    // One that cannot say where it is fails as well.
    let dir = world.dir.path().join("later");
    let plan = Plan { name: "file".into(), ..world.plan() };
    let stats = Arc::clone(&plan.stats);
    world.start(plan, file(&dir.join("events.jsonl"), None));
    world.until_sink("file", |_| stats.tries.load(Relaxed) >= 3).await;
    std::fs::create_dir(&dir).unwrap();
    world.until_sink("file", |row| row.cursor == Seq(6)).await;
    let [delivered, _, failures, tries] = all(&stats);
    assert!(delivered == 6 && failures >= 3 && tries == 0, "{stats:?}");
}

#[tokio::test]
async fn a_refusal_halts_until_sighup_and_delays_nobody_else() {
    let mut world = World::new().await;
    world.write(5).await;
    let fake = Fake::new([refused(2)]);
    world.start(world.plan(), fake.clone());
    let row = world.until(|row| row.state.word() == "halted" && row.cursor == Seq(2)).await;
    assert!(
        row.state.detail().contains("entry 3 was refused: 400") && row.state.detail().contains("SIGHUP"),
        "{}",
        row.state.detail()
    );
    let other = Fake::new([]);
    world.start(Plan { name: "other".into(), ..world.plan() }, other.clone());
    other.taken(5).await;
    assert_eq!(fake.taken(2).await, [1, 2]);
    world.reopen.notify();
    assert_eq!(fake.taken(5).await, [1, 2, 3, 4, 5]);
    assert_eq!(*fake.reopened.borrow(), 1);
}

#[tokio::test]
async fn what_is_dead_lettered_is_listed_and_passed() {
    let mut world = World::new().await;
    world.write(6).await;
    let fake = Fake::new([refused(1), refused(0)]);
    world.start(Plan { on_refused: OnRefused::DeadLetter, ..world.plan() }, fake.clone());
    assert_eq!(fake.taken(4).await, [1, 4, 5, 6]);
    world.stop().await;
    assert_eq!(world.row().await.cursor, Seq(6));
    let letters = world.journal.reader().unwrap().dead_letters().unwrap();
    assert_eq!(
        letters.iter().map(|letter| (letter.seq.0, letter.reason.as_str())).collect::<Vec<_>>(),
        [(2, "400"), (3, "400")]
    );
}

/// Holds what it is given until the journal has truncated it, and then refuses the second entry and takes the rest.
struct Slow {
    journal: Journal,
    given: watch::Sender<Vec<Item>>,
}

impl Sink for Slow {
    fn class(&self) -> crate::sink::Class {
        crate::sink::Class::AtLeastOnce
    }

    fn limits(&self) -> Limits {
        Limits { entries: 4, bytes: 1 << 20, linger: Duration::ZERO }
    }

    fn position<'a>(&'a mut self, _: &'a LogPosition) -> BoxFuture<'a, Result<Option<LogPosition>, SinkError>> {
        std::future::ready(Ok(None)).boxed()
    }

    fn deliver<'a>(&'a mut self, batch: &'a [Item]) -> BoxFuture<'a, Result<(), Failure>> {
        async move {
            self.given.send_modify(|given| given.extend(batch.iter().cloned()));
            if batch[0].seq > Seq(1) {
                // The gap that stands for what is truncated has a seq that the log has truncated as well.
                let refused =
                    if batch[0].op == crate::core::model::EntryType::Gap { refused(0) } else { return Ok(()) };
                return Err(refused);
            }
            // Nothing waits for a sink that is not configured.
            self.journal.retire_sink("s").await.unwrap();
            let bounds = Bounds { max_size: 1 << 40, max_age: Duration::ZERO, drop_oldest: false };
            self.journal.bound(bounds).await.unwrap();
            let newest = *self.journal.head().borrow();
            while self.journal.reader().unwrap().oldest().unwrap() < newest {
                self.journal.flush().await.unwrap();
                tokio::task::yield_now().await;
            }
            Err(refused(1))
        }
        .boxed()
    }

    fn reopen(&mut self) {}

    fn check(&mut self) -> BoxFuture<'_, Result<(), SinkError>> {
        std::future::ready(Ok(())).boxed()
    }
}

/// What is refused is kept whole, also where the log has truncated it since it was read, or never had it: so it is for
/// `replay` whatever becomes of the log.
#[tokio::test]
async fn what_is_truncated_before_it_is_refused_can_be_delivered_again() {
    let mut world = World::new().await;
    world.write(12).await;
    let lines = world.lines(1..=12);
    let lines: Vec<&[u8]> = lines.split(|byte| *byte == b'\n').collect();
    let slow = Slow { journal: world.journal.clone(), given: watch::Sender::default() };
    let given = slow.given.subscribe();
    world.start(Plan { on_refused: OnRefused::DeadLetter, shape: METADATA, ..world.plan() }, slow);
    world.until(|row| row.cursor == Seq(12)).await;
    world.stop().await;
    let gap = given.borrow().iter().find(|item| item.op == crate::core::model::EntryType::Gap).unwrap().clone();
    let mut reader = world.journal.reader().unwrap();
    let letters: Vec<u64> = reader.dead_letters().unwrap().iter().map(|letter| letter.seq.0).collect();
    assert_eq!(letters, [2, gap.seq.0]);
    let kept = reader.truncated_dead_letters("s", Seq(1), Seq(12)).unwrap();
    assert_eq!(kept.iter().map(|entry| entry.seq.0).collect::<Vec<_>>(), letters);
    assert_eq!((&kept[0].line[..], &kept[1].line), (lines[1], &gap.line), "whole, and not what `payload` makes of it");
}

/// What it lacks is a matter of the sink itself: it gets that whatever it wants of the log.
#[tokio::test]
async fn the_gap_for_what_was_dropped_passes_every_filter() {
    let mut world = World::new().await;
    world.write(12).await;
    world.truncate().await;
    for (name, filter) in [
        ("by outline", Wanted::by_row(|line| memchr::memmem::find(line, b"\"type\":\"ADDED\"").is_some())),
        ("by entry", Wanted::by_entry(|line| memchr::memmem::find(line, b"\"type\":\"ADDED\"").is_some())),
    ] {
        let fake = Fake::new([]);
        world.start(Plan { name: name.into(), filter: Some(filter), ..world.plan() }, fake.clone());
        world.until_sink(name, |row| row.cursor == Seq(12)).await;
        assert_eq!(fake.taken(1).await, [11, 12], "{name}");
    }
    world.stop().await;
}

#[tokio::test]
async fn a_sink_that_begins_past_the_head_gets_nothing_before() {
    let mut world = World::new().await;
    world.write(2).await;
    let plan = || Plan { start: SinkStart::Seq(Seq(5)), ..world.plan() };
    let (before, after) = (plan(), plan());
    world.start(before, Fake::new([]));
    world.write(1).await;
    world.until(|row| row.cursor == Seq(3)).await;
    world.stop().await;
    let fake = Fake::new([]);
    world.start(after, fake.clone());
    world.write(3).await;
    assert_eq!(fake.taken(2).await, [5, 6]);
}

#[test]
fn a_plan_is_what_the_configuration_says() {
    let config = serde_json::json!({
        "name": "s", "type": "stdout", "payload": "diff", "managed_fields": false, "rate": 7, "from": "now", "on_refused": "dead_letter",
    });
    let plan = Plan::new(&serde_json::from_value(config).unwrap());
    assert_eq!((plan.name.as_str(), plan.kind, plan.start), ("s", "stdout", SinkStart::Now));
    assert_eq!((plan.shape, plan.rate), (Shape { payload: Payload::Diff, managed_fields: false }, Some(7)));
    assert_eq!(plan.on_refused, OnRefused::DeadLetter);
}

#[tokio::test]
async fn payload_says_how_much_of_an_entry_is_delivered() {
    let mut world = World::new().await;
    let path = world.dir.path().join("events.jsonl");
    world.write(3).await;
    world.start(Plan { shape: METADATA, ..world.plan() }, file(&path, None));
    world.until(|row| row.cursor == Seq(3)).await;
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.lines().count() == 3 && !text.contains("\"object\""), "{text}");
    world.stop().await;
    // The position is read back from such lines as well.
    let (sink, _) = world.journal.sink("s", "fake", SinkStart::Start).await.unwrap();
    sink.reset_cursor(Seq(1)).await.unwrap();
    world.start(Plan { shape: METADATA, ..world.plan() }, file(&path, None));
    world.until(|row| row.cursor == Seq(3)).await;
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
}
