//! Power cuts at every point of a recorded run.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use decklog::core::model::Seq;
use decklog::core::runtime::Signal;
use decklog::delivery;
use decklog::journal::{Journal, JournalError, Reader, SinkRow};
use decklog::sink::{self, LogPosition};
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use crate::collector::Collector;
use crate::disk::{Image, Left};
use crate::evidence;
use crate::record::{self, Recorded, SMALL_WAL};
use crate::scratch;
use crate::setting;
use crate::support::{Daemon, Dice, scope, tries, until};
use crate::trace::Op;

/// The state directory of a recorded run.
pub(crate) const STATE: &str = "var/lib/state";

/// What had been seen from outside when the power went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Visible {
    http: u64,
    head: u64,
}

impl Visible {
    fn see(&mut self, op: &Op) {
        if let Op::Mark(text) = op {
            let (what, seq) = text.split_once(' ').unwrap();
            let seen = if what == "http" { &mut self.http } else { &mut self.head };
            *seen = (*seen).max(seq.parse().unwrap());
        }
    }
}

/// One image, and what has to hold for it.
struct Cut {
    at: usize,
    left: Left,
    image: Image,
    visible: Visible,
}

impl std::fmt::Display for Cut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "cut after {} records, {:?} left, {:?}", self.at, self.left, self.visible)
    }
}

/// Calls `judge` with so many distinct images, from every point of the trace. Gives how many there were.
///
/// It ends early where `judge` says so.
fn images(run: &Recorded, ops: &[Op], count: usize, seed: u64, judge: impl Fn(Cut) -> bool + Sync) -> usize {
    let points = ops.iter().filter(|op| !matches!(op, Op::Mark(_))).count();
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let seen: Mutex<HashSet<u64>> = Mutex::default();
    let (judged, enough) = (AtomicUsize::new(0), AtomicBool::new(false));
    // A round from the first point to the last, and further ones while images are wanted.
    for round in 0..20 {
        let lack = count.saturating_sub(judged.load(Ordering::Relaxed));
        if round > 0 && lack == 0 || enough.load(Ordering::Relaxed) {
            break;
        }
        let each = lack.div_ceil(points).max(1);
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let (seen, judged, judge, enough) = (&seen, &judged, &judge, &enough);
                let work = move || {
                    let (mut disk, mut visible) = (run.disk(), Visible::default());
                    for (at, op) in ops.iter().enumerate() {
                        disk.apply(op);
                        visible.see(op);
                        if at % threads != thread || enough.load(Ordering::Relaxed) {
                            continue;
                        }
                        let mut dice = Dice(seed ^ ((at as u64) << 8 | round).wrapping_mul(0x9e37_79b9_7f4a_7c15));
                        // Where nothing is pending there is one image alone.
                        for number in 0..if disk.is_settled() { 1 } else { each } {
                            let left = match (round, number) {
                                (0, 0) => Left::Nothing,
                                (0, 1) => Left::All,
                                _ => *dice.pick(&[Left::Any, Left::Any, Left::Torn]),
                            };
                            let image = disk.image(left, &mut dice);
                            // The same files with more seen of them are another case.
                            let digest = image.digest() ^ (visible.http << 32 | visible.head).wrapping_mul(0x9e37_79b9);
                            if seen.lock().unwrap().insert(digest) {
                                if judge(Cut { at: at + 1, left, image, visible }) {
                                    enough.store(true, Ordering::Relaxed);
                                }
                                judged.fetch_add(1, Ordering::Relaxed);
                            }
                        }
                    }
                };
                std::thread::Builder::new().name(format!("images {thread}")).spawn_scoped(scope, work).unwrap();
            }
        });
    }
    judged.into_inner()
}

/// What of an entry is compared with positions.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Told {
    #[serde(default)]
    resource: String,
    #[serde(default)]
    resource_version: String,
    #[serde(default)]
    evidence: String,
}

/// The truth that images are held against.
struct Truth<'a> {
    run: &'a Recorded,
    told: Vec<Told>,
    sinks: Vec<delivery::Settings>,
    /// Evidence of the images.
    states: evidence::Distinct,
}

impl<'a> Truth<'a> {
    fn new(run: &'a Recorded) -> Self {
        let told = run.lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
        let sink = |name: &str, path: &str, more: serde_json::Value| {
            let mut value = serde_json::json!({"name": name, "type": "file", "path": path});
            value.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            serde_json::from_value(value).unwrap()
        };
        let rotated = serde_json::json!({"rotate_size": "6KiB", "keep": 1000, "compress": "zstd"});
        let sinks =
            vec![sink("file", "log.jsonl", serde_json::json!({})), sink("rotated", "copies/log.jsonl", rotated)];
        Self { run, told, sinks, states: evidence::Distinct::new(run) }
    }

    /// Everything that is wrong with what a power cut left, as the library finds it when it starts from there.
    fn judge(&self, cut: &Cut, runtime: &tokio::runtime::Runtime) -> Result<(), String> {
        let dir = scratch();
        cut.image.lay(dir.path());
        // The directory of the sink is the operator's: it was there before.
        fs::create_dir_all(dir.path().join("copies")).unwrap();
        let state = dir.path().join(STATE);
        let (head, held) = (self.left(&state, cut)?, self.held(dir.path())?);
        let seen = cut.visible.head.max(cut.visible.http);
        if head < seen {
            return Err(format!("lost: entry {seen} was seen, the journal ends with {head}"));
        }
        for (sink, held) in self.sinks.iter().zip(&held) {
            if *held > head {
                return Err(format!("{} holds entry {held}, the journal ends with {head}", sink.name));
            }
        }
        if state.join("journal.db").exists() && head > 0 {
            self.positions(&state, head, cut, &held)?;
        }
        evidence::judge(self.run, cut.image.files.iter(), head, &self.states, &cut.to_string())?;
        runtime.block_on(self.go_on(dir.path(), head))
    }

    /// The head of the journal as a reader finds it, whose entries are those of the log.
    fn left(&self, state: &Path, cut: &Cut) -> Result<u64, String> {
        // A command would wait for it.
        if !is_made(state) {
            return Ok(0);
        }
        let mut reader = match Reader::open(state) {
            Ok(reader) => reader,
            Err(JournalError::Missing(_)) => return Ok(0),
            Err(JournalError::Corrupt(text)) if text.contains("is being made") => return Ok(0),
            Err(error) => return Err(format!("{cut}: {error}")),
        };
        let text = |error: JournalError| error.to_string();
        let head = reader.head().map_err(text)?;
        if head > Seq(0) && reader.epoch().map_err(text)? != self.run.epoch {
            return Err("another epoch".to_owned());
        }
        self.same_lines(&mut reader, head.0)?;
        Ok(head.0)
    }

    /// The lines of the journal, which are those of the log; after `upto` they were written at another time.
    fn same_lines(&self, reader: &mut Reader, upto: u64) -> Result<Vec<u8>, String> {
        let entries = reader.entries_after(Seq(0), usize::MAX >> 1, usize::MAX).map_err(|error| error.to_string())?;
        let mut lines = Vec::new();
        for (number, entry) in entries.iter().enumerate() {
            let told = self.run.lines.get(number).map(String::as_bytes).unwrap_or_default();
            let same =
                if entry.seq.0 > upto { but_for_time(&entry.line) == but_for_time(told) } else { entry.line == told };
            if entry.seq.0 != number as u64 + 1 || !same {
                return Err(format!("entry {} is not what the log tells at {}", entry.seq, number + 1));
            }
            lines.extend_from_slice(&entry.line);
            lines.push(b'\n');
        }
        Ok(lines)
    }

    /// How many entries each file has, as whole lines from the first on.
    fn held(&self, dir: &Path) -> Result<Vec<u64>, String> {
        self.sinks
            .iter()
            .map(|sink| {
                let bytes = output(&path_of(sink, dir), true)?;
                let (mut start, mut count) = (0, 0);
                for (end, told) in memchr::memchr_iter(b'\n', &bytes).zip(&self.run.lines) {
                    if bytes[start..end] != *told.as_bytes() {
                        break;
                    }
                    (start, count) = (end + 1, count + 1);
                }
                Ok(count)
            })
            .collect()
    }

    /// No checkpoint and no cursor is ahead of what it stands for.
    fn positions(&self, state: &Path, head: u64, cut: &Cut, held: &[u64]) -> Result<(), String> {
        let reader = Reader::open(state).map_err(|error| error.to_string())?;
        for source in reader.sources().map_err(|error| error.to_string())? {
            let Some(resume) = source.resume.as_deref().and_then(|resume| resume.parse::<u64>().ok()) else { continue };
            let lost = self.told.iter().enumerate().skip(usize::try_from(head).unwrap()).find(|(_, told)| {
                told.resource == source.resource.plural
                    && told.evidence == "watched"
                    && told.resource_version.parse::<u64>().is_ok_and(|version| version <= resume)
            });
            if let Some((number, _)) = lost {
                return Err(format!("{} resumes after {resume}, which entry {} is not", source.name(), number + 1));
            }
        }
        for sink in reader.sinks().map_err(|error| error.to_string())? {
            let has = match self.sinks.iter().position(|file| file.name == sink.name) {
                Some(file) => held[file],
                None => cut.visible.http,
            };
            if sink.cursor.0 > has {
                return Err(format!("the cursor of {} is {}, but it has {has}", sink.name, sink.cursor));
            }
        }
        Ok(())
    }

    /// The recovery: the journal opens, the sinks go on from what they hold, and have each entry once.
    async fn go_on(&self, dir: &Path, head: u64) -> Result<(), String> {
        let text = |error: JournalError| error.to_string();
        let state = dir.join(STATE);
        let (journal, thread) = Journal::open(&state).map_err(text)?;
        let (stop, reopen) = (CancellationToken::new(), Signal::default());
        // A list that was complete is written out by whoever opens the journal.
        let now = journal.head().borrow().0;
        let mut running = tokio::task::JoinSet::new();
        for config in &self.sinks {
            let mut config = config.clone();
            if let sink::registry::SinkKind::File(file) = &mut config.kind {
                file.path = dir.join(&file.path);
            }
            let mut sink = config.kind.open()?;
            let plan = delivery::Plan::new(&config);
            let (_, cursor) = journal.sink(&plan.name, plan.kind, plan.start).await.map_err(text)?;
            let cursor = LogPosition { epoch: journal.epoch(), seq: cursor, entry: None };
            let held = sink.position(&cursor).await.map_err(|error| error.to_string())?;
            if held.is_some_and(|held| held.epoch != journal.epoch() || held.seq.0 > now) {
                return Err(format!("{} makes the journal begin a new epoch", config.name));
            }
            running.spawn(delivery::run(journal.clone(), plan, sink, reopen.listen(), stop.clone()));
        }
        let reader = journal.reader().map_err(text)?;
        let has_all = |row: &SinkRow| row.cursor.0 >= now || row.name == "http";
        let mut looks = 0;
        let come = tries(Duration::from_millis(1), async || {
            looks += 1;
            let rows = match reader.sinks() {
                Ok(rows) if rows.iter().all(has_all) && self.is_tidy(dir) => return Ok(Ok(())),
                Ok(rows) => rows,
                Err(error) => return Ok(Err(error.to_string())),
            };
            let hopeless =
                |row: &&SinkRow| row.state.word() == "halted" || (row.state.word() == "retrying" && looks > 200);
            match rows.iter().find(hopeless) {
                Some(row) => Ok(Err(format!("{} is {}: {}", row.name, row.state.word(), row.state.detail()))),
                None => Err(format!("the sinks do not come to {now}: {rows:?}")),
            }
        });
        come.await??;
        stop.cancel();
        while let Some(ended) = running.join_next().await {
            ended.unwrap().map_err(|error| error.to_string())?;
        }
        drop((journal, reader));
        tokio::task::spawn_blocking(|| thread.join()).await.unwrap().map_err(text)?;
        let mut reader = Reader::open(&state).map_err(text)?;
        let verified = reader.verify(|_, _| {}).map_err(text)?;
        if !verified.problems.is_empty() {
            return Err(format!("verify: {:?}", verified.problems));
        }
        let lines = self.same_lines(&mut reader, head)?;
        for sink in &self.sinks {
            if output(&path_of(sink, dir), false)? != lines {
                return Err(format!("the file of {} is not the log, each entry once", sink.name));
            }
        }
        Ok(())
    }

    /// The thread that tidies up has done so: no file is there twice.
    fn is_tidy(&self, dir: &Path) -> bool {
        let names: Vec<PathBuf> =
            fs::read_dir(dir.join("copies")).unwrap().map(|entry| entry.unwrap().path()).collect();
        let (zst, plain): (Vec<_>, Vec<_>) =
            names.iter().partition(|path| path.extension().is_some_and(|it| it == "zst"));
        !names.iter().any(|path| path.extension().is_some_and(|it| it == "tmp"))
            && !zst.iter().any(|path| plain.contains(&&path.with_extension("")))
    }
}

/// A line without the time at which it was journaled.
fn but_for_time(line: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(line);
    let Some((before, rest)) = text.split_once(",\"time\":\"") else { return line.to_vec() };
    [before, rest.split_once('"').map_or("", |(_, after)| after)].concat().into_bytes()
}

fn path_of(sink: &delivery::Settings, dir: &Path) -> PathBuf {
    let sink::registry::SinkKind::File(file) = &sink.kind else { panic!("{} is no file", sink.name) };
    dir.join(&file.path)
}

/// What a sink has written in all: the rotated files, then the current one. A file that is there both plain and
/// compressed counts once where a power cut may just have left it so.
pub(crate) fn output(path: &Path, cut: bool) -> Result<Vec<u8>, String> {
    let stem = path.file_stem().unwrap().to_str().unwrap();
    let mut files: Vec<(String, Vec<u8>)> = Vec::new();
    for entry in fs::read_dir(path.parent().unwrap()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if !name.starts_with(stem) || !path.is_file() || name.ends_with(".tmp") {
            continue;
        }
        // A daemon that runs may tidy up meanwhile.
        let bytes = fs::read(&path).map_err(|error| format!("{name}: {error}"))?;
        match name.strip_suffix(".zst") {
            Some(plain) => {
                if cut && path.with_extension("").exists() {
                    continue;
                }
                let bytes = zstd::decode_all(&bytes[..]).map_err(|error| format!("{name}: {error}"))?;
                files.push((plain.to_owned(), bytes));
            }
            None => files.push((name, bytes)),
        }
    }
    let current = path.file_name().unwrap().to_str().unwrap();
    files.sort_by_key(|(name, _)| (name == current, name.clone()));
    Ok(files.into_iter().map(|(_, bytes)| bytes).collect::<Vec<_>>().concat())
}

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// So many wrong images tell enough.
const ENOUGH: usize = 25;

/// Judges images of these records. Gives how many there were, what was wrong, and some of the images.
fn search(run: &Recorded, ops: &[Op], count: usize, seed: u64, samples: usize) -> (usize, Vec<String>, Vec<Cut>) {
    let truth = Truth::new(run);
    let wrong = Mutex::new(Vec::new());
    let kept = Mutex::new(Vec::new());
    let number = AtomicUsize::new(0);
    let judged = images(run, ops, count, seed, |cut| {
        thread_local!(static RUNTIME: tokio::runtime::Runtime = runtime());
        if let Err(text) = RUNTIME.with(|runtime| truth.judge(&cut, runtime)) {
            wrong.lock().unwrap().push(format!("{cut}: {text}"));
        }
        let enough = wrong.lock().unwrap().len() >= ENOUGH;
        let number = number.fetch_add(1, Ordering::Relaxed);
        if samples > 0 && number.is_multiple_of((count / samples).max(1)) {
            kept.lock().unwrap().push(cut);
        }
        enough
    });
    let mut wrong = wrong.into_inner().unwrap();
    wrong.extend(truth.states.finish());
    (judged, wrong, kept.into_inner().unwrap())
}

/// What a power cut leaves is in the very files that were there; what is laid out here is in others, as in a copy. What the
/// journal knows of its mark is taken out of it, and nothing else is touched: the log stays as it is.
fn forget_mark(state: &Path) {
    if !state.join("journal.db").exists() || !is_made(state) {
        return;
    }
    let journal = rusqlite::Connection::open(state.join("journal.db")).unwrap();
    journal.set_db_config(rusqlite::config::DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).unwrap();
    journal.execute("DELETE FROM meta WHERE key = 'mark'", []).unwrap();
}

/// The real binary starts from an image, against the cluster as it is now, and its log is judged as ever.
async fn start_again(run: &Recorded, cut: &Cut) {
    let collector = Collector::start(None).await;
    let mut daemon = Daemon::new(&run.sim, &[]);
    let root = daemon.path("").canonicalize().unwrap();
    cut.image.lay(&root);
    forget_mark(&root.join(STATE));
    fs::create_dir_all(root.join("copies")).unwrap();
    record::configure(&daemon, &root, &collector.sink("http"), &run.key.0);
    daemon.start();
    daemon.ready().await;
    let done = scope(&run.sim, run.started, &["configmaps", "pods"]);
    daemon.catch_up(&run.sim, &done).await;
    let log = fs::read(daemon.log()).unwrap();
    until("the other sinks to have it all", async || {
        daemon.must_run();
        let copies = output(&root.join("copies/log.jsonl"), true)?;
        let head = daemon.lines() as u64;
        // Where everything had come to the old collector, nothing comes to the new one.
        let http = collector.highest().max(cut.visible.http);
        if copies == log && http == head { Ok(()) } else { Err(format!("{cut}: {}", daemon.last_words())) }
    })
    .await;
    daemon.stop().await;
    daemon.judged(&run.sim, &done).await;
    evidence::goes_on(run, cut.image.files.iter(), &root, &cut.to_string());
    let lines: Vec<&str> = std::str::from_utf8(&log).unwrap().lines().collect();
    let mut next = cut.visible.http + 1;
    for (seq, line) in collector.entries() {
        assert!(seq <= next, "{cut}: entry {next} never came");
        assert_eq!(line, lines[usize::try_from(seq).unwrap() - 1], "{cut}: a repeat is the same");
        next = next.max(seq + 1);
    }
}

/// Whether a journal has its schema.
pub(crate) fn is_made(state: &Path) -> bool {
    let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
    let journal = rusqlite::Connection::open_with_flags(state.join("journal.db"), flags);
    let version =
        |journal: rusqlite::Connection| journal.pragma_query_value(None, "user_version", |row| row.get::<_, u32>(0));
    journal.and_then(version).map_or(true, |version| version > 0)
}

/// Faults 37, 38, 39, 40, 60: the power goes at any moment, and the disk has lost, torn and reordered what was not synced.
#[test]
fn power_cuts_lose_repeat_and_tear_nothing() {
    let first = setting("DECKLOG_POWER_SEED", 1) as u64;
    let runs = setting("DECKLOG_POWER_RUNS", 2);
    let count = setting("DECKLOG_POWER_IMAGES", 2_000).div_ceil(runs);
    let (mut judged, mut started) = (0, 0);
    for seed in first..first + runs as u64 {
        let runtime = runtime();
        let run = runtime.block_on(record::run(seed, &SMALL_WAL, 0));
        let (images, wrong, samples) = search(&run, &run.ops, count, seed, setting("DECKLOG_POWER_STARTS", 20) / runs);
        assert!(wrong.is_empty(), "DECKLOG_POWER_SEED={seed}: {} of {images}:\n{}", wrong.len(), few(&wrong));
        judged += images;
        started += samples.len();
        for few in samples.chunks(4) {
            runtime.block_on(futures::future::join_all(few.iter().map(|cut| start_again(&run, cut))));
        }
    }
    println!(
        "DECKLOG_POWER_SEED={first} DECKLOG_POWER_RUNS={runs} DECKLOG_POWER_IMAGES={}: {judged} images of power cuts judged, {started} of them by the binary too",
        count * runs
    );
    assert!(judged >= count * runs, "{judged} images only");
}

/// The first few of many.
pub(crate) fn few(wrong: &[String]) -> String {
    wrong[..wrong.len().min(10)].join("\n")
}

/// The judge is not blind: with one sort of sync taken out of the trace, entries are lost.
#[test]
fn a_missing_sync_is_found() {
    let run = runtime().block_on(record::run(7, &SMALL_WAL, 0));
    let state = run.root.join(STATE);
    let inodes = |path: &Path| -> HashSet<u64> {
        let of = |op: &Op| {
            let Op::Create { inode, path: made } = op else { return None };
            (made == path).then_some(*inode)
        };
        run.ops.iter().filter_map(of).collect()
    };
    // A number can be used again by another file, which then goes without a sync too; the more is lost.
    let file = |path: PathBuf| -> Box<dyn Fn(&Op) -> bool> {
        let inodes = inodes(&path);
        Box::new(move |op| matches!(op, Op::Sync { inode } if inodes.contains(inode)))
    };
    let dir = |path: PathBuf| -> Box<dyn Fn(&Op) -> bool> {
        Box::new(move |op| matches!(op, Op::SyncDir { path: synced } if *synced == path))
    };
    let cases = [
        ("the WAL", file(state.join("journal.db-wal"))),
        ("the database", file(state.join("journal.db"))),
        ("the state directory", dir(state.clone())),
        ("the directory above it", dir(state.parent().unwrap().to_owned())),
        ("the file of a sink", file(run.root.join("log.jsonl"))),
        ("the directory of a sink that rotates", dir(run.root.join("copies"))),
    ];
    for (what, is_missing) in cases {
        let ops: Vec<Op> = run.ops.iter().filter(|op| !is_missing(op)).cloned().collect();
        assert!(ops.len() < run.ops.len(), "{what} is never synced");
        let (images, wrong, _) = search(&run, &ops, 300, 7, 0);
        println!(
            "without the sync of {what}: {} of the first {images} images are wrong, such as\n  {}",
            wrong.len(),
            wrong.first().map_or("", |it| it)
        );
        assert!(!wrong.is_empty(), "nobody needs the sync of {what}");
    }
}

/// As a change of `synchronous` would be: the same binary with another pragma in the place of a harmless statement.
#[test]
fn weaker_settings_of_sqlite_are_found() {
    const HARMLESS: &str = "UPDATE source SET active = 0; UPDATE sink SET active = 0;";
    for pragma in ["PRAGMA synchronous = NORMAL;", "PRAGMA synchronous = OFF;"] {
        let run = runtime().block_on(record::run(8, &[SMALL_WAL[0], SMALL_WAL[1], (HARMLESS, pragma)], 0));
        let (images, wrong, _) = search(&run, &run.ops, 300, 8, 0);
        println!(
            "with {pragma} {} of the first {images} images are wrong, such as\n  {}",
            wrong.len(),
            wrong.first().map_or("", |it| it)
        );
        assert!(wrong.iter().any(|text| text.contains("lost: entry")), "{pragma}: {}", few(&wrong));
    }
}
