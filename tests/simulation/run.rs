//! One simulation: a seed, and what came of it.
//!
//! The real journal, sources, delivery and sinks run in this thread, with a clock that nobody waits for, against the
//! simulated API server. The seed decides what happens in the cluster, what goes wrong, when decklog crashes, and how
//! the parts of decklog take turns.

#![allow(dead_code, reason = "the test and the example each use a part of it")]
#![allow(clippy::wildcard_enum_match_arm, reason = "each place deals with a few kinds of faults")]

#[path = "dice.rs"]
mod dice;
#[path = "faults.rs"]
pub(crate) mod faults;
#[path = "../real/judge.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared with the tests on real clusters, which use more of it")]
mod judge;
#[path = "judges.rs"]
mod judges;
#[path = "life.rs"]
mod life;
#[path = "network.rs"]
mod network;
#[path = "receiver.rs"]
mod receiver;
#[path = "stage.rs"]
mod stage;
#[path = "world.rs"]
mod world;

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use decklog::ambient::{self, Simulation};
use decklog::config::{self, Compress, OnRefused};
use decklog::sim::{self, Sim, objects};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::{Instant, sleep_until};

use dice::Dice;
use faults::{Counts, Fault};
use judges::{Histories, Log};
use life::{BadDisk, Life, Surroundings};
use network::Network;
use receiver::Receiver;
use stage::Stage;
use world::{NAMESPACES, WATCHED, WIDGETS, World};

/// At least so many events happen in what is watched.
const EVENTS: usize = 500;
/// Once nothing goes wrong any more, everything has to be right after this time, by the simulated clock.
const CONVERGES: Duration = Duration::from_secs(3600);

/// What a seed makes of the configuration.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) namespaces: Option<BTreeSet<String>>,
    pub(crate) selector: bool,
    pub(crate) page: u32,
    pub(crate) line_limit: usize,
    pub(crate) on_refused: OnRefused,
    pub(crate) http: config::HttpSink,
    /// How often each source is compared with the API server.
    pub(crate) audit: Option<Duration>,
    rotate: Option<u64>,
    compress: Compress,
    /// The revision at which decklog began to look.
    pub(crate) started: u64,
    enabled: BTreeSet<Fault>,
    /// No fault that could lose a change: then there is no GAP.
    pub(crate) clean: bool,
}

impl Setup {
    fn new(seed: u64) -> Self {
        let dice = &mut Dice::new(seed, "setup");
        let clean = dice.percent(25);
        let none = dice.percent(4);
        // Few kinds at a time leave room for each of them; sometimes all come together.
        let share = *dice.pick(&[15, 35, 60, 100]);
        let enabled = Fault::ALL.iter().copied().filter(|fault| {
            let chosen = dice.percent(share);
            chosen && !none && !(clean && fault.may_lose())
        });
        let enabled = enabled.collect();
        let format = *dice.pick(&["binary", "structured", "batched"]);
        let http = json!({ "url": "http://events.example.com/", "format": format, "batch_size": dice.between(1, 40),
                           "timeout": "10s" });
        Self {
            namespaces: dice.percent(30).then(|| NAMESPACES[..2].iter().map(|name| (*name).to_owned()).collect()),
            selector: dice.percent(30),
            page: u32::try_from(dice.between(2, 60)).unwrap_or(10),
            line_limit: 48 << 10,
            on_refused: if dice.percent(50) { OnRefused::Halt } else { OnRefused::SetAside },
            http: serde_json::from_value(http).expect("a valid configuration"),
            audit: dice.percent(60).then(|| dice.millis(60_000, 600_000)),
            rotate: dice.percent(60).then(|| dice.between(4_000, 120_000) as u64),
            compress: if dice.percent(50) { Compress::Zstd } else { Compress::None },
            started: 0,
            enabled,
            clean,
        }
    }

    /// The `[[watch]]` of the configuration.
    pub(crate) fn watch(&self) -> config::Watch {
        config::Watch {
            resources: WATCHED.iter().map(|name| (*name).to_owned()).collect(),
            namespaces: self.namespaces.iter().flatten().cloned().collect(),
            label_selector: if self.selector { "tier=web".to_owned() } else { String::new() },
            ..config::Watch::default()
        }
    }

    pub(crate) fn file(&self, out: &Path) -> config::FileSink {
        config::FileSink {
            path: out.join("events.jsonl"),
            rotate_size: self.rotate,
            rotate_every: None,
            keep: 10_000,
            compress: self.compress,
        }
    }

    pub(crate) fn watches(&self, resource: &str, namespace: &str) -> bool {
        WATCHED.contains(&resource) && self.namespaces.as_ref().is_none_or(|all| all.contains(namespace))
    }

    pub(crate) fn selects(&self, row: &sim::Row) -> bool {
        !self.selector || row.value()["metadata"]["labels"]["tier"] == "web"
    }
}

/// The past of one seed in so many is judged, which takes as long as the rest.
const EVERY: u64 = 8;

/// What came of one seed.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) seed: u64,
    /// What happened, in one number.
    pub(crate) digest: u64,
    pub(crate) counts: Counts,
    pub(crate) events: usize,
    pub(crate) entries: usize,
    pub(crate) gaps: usize,
    pub(crate) lives: usize,
    pub(crate) clean: bool,
    /// By the simulated clock.
    pub(crate) took: Duration,
    pub(crate) failures: Vec<String>,
}

impl Outcome {
    /// What to say about a seed that failed.
    pub(crate) fn report(&self) -> String {
        let mut text = format!(
            "seed {} failed; replay it with: cargo run --release --example simulate -- --seed {}\n",
            self.seed, self.seed
        );
        for failure in self.failures.iter().take(12) {
            text += &format!("- {failure}\n");
        }
        text
    }
}

/// Runs one seed on this thread.
pub(crate) fn simulate(seed: u64, verbose: bool) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.expect("a runtime without I/O can always be made");
    runtime.block_on(async {
        let clock: Timestamp = "2026-01-01T00:00:00Z".parse().expect("a time");
        let simulation = ambient::simulate(seed, clock);
        let outcome = Box::pin(Run::begin(seed, verbose, simulation)).await;
        match outcome {
            Ok(run) => Box::pin(run.live()).await,
            Err(error) => Outcome {
                seed,
                digest: 0,
                counts: Counts::default(),
                events: 0,
                entries: 0,
                gaps: 0,
                lives: 0,
                clean: false,
                took: Duration::ZERO,
                failures: vec![format!("the simulation cannot begin: {error}")],
            },
        }
    })
}

/// A line of a verbose trace.
pub(crate) fn print(line: &str) {
    // Whoever closed the pipe has seen enough.
    writeln!(io::stdout(), "{line}").ok();
}

/// A simulation under way.
struct Run {
    seed: u64,
    simulation: Simulation,
    dice: Dice,
    place: Surroundings,
    sim: Sim,
    world: World,
    dir: TempDir,
    /// Counts the copies of the directories that crashes have left.
    generation: usize,
    life: Option<Life>,
    begins: Instant,
    lives: usize,
    before: Option<Vec<Arc<sim::Row>>>,
    /// Widgets come back then; `None` while they are defined.
    redefine: Option<Instant>,
    /// The revision of the last change of what is defined.
    defined: u64,
    clock_was_set_back: bool,
    moved: usize,
}

impl Run {
    async fn begin(seed: u64, verbose: bool, simulation: Simulation) -> io::Result<Self> {
        let mut setup = Setup::new(seed);
        let mut dice = Dice::new(seed, "run");
        let stage = Arc::new(Stage::new(seed, verbose, setup.enabled.clone()));
        let sim = Sim::unconnected(sim::Settings {
            seed,
            bookmarks_every: Duration::from_secs(20),
            http_410: dice.percent(30),
            ..sim::Settings::default()
        })?;
        for namespace in NAMESPACES {
            sim.create_namespace(namespace).map_err(io::Error::other)?;
        }
        let crd = sim.define(objects::crd(WIDGETS, "Widget", true, &["v1"])).map_err(io::Error::other)?;
        let mut world = World::new(&sim, seed);
        for _ in 0..dice.roll(60) {
            world.step();
        }
        setup.started = sim.revision();
        stage.note(format_args!("{setup:?}"));
        let network = Network::new(Arc::clone(&stage), sim.clone(), setup.line_limit);
        let receiver = Receiver::new(Arc::clone(&stage), setup.on_refused == OnRefused::SetAside);
        let memory = Path::new("/dev/shm");
        let mut builder = tempfile::Builder::new();
        builder.prefix("decklog-simulation-");
        let dir = if memory.is_dir() { builder.tempdir_in(memory)? } else { builder.tempdir()? };
        let place = Surroundings { stage, setup, network, receiver, collected: Arc::default() };
        let run = Self {
            seed,
            simulation,
            dice,
            place,
            sim,
            world,
            dir,
            generation: 0,
            life: None,
            begins: Instant::now(),
            lives: 0,
            before: None,
            redefine: None,
            defined: crd.revision,
            clock_was_set_back: false,
            moved: 0,
        };
        fs::create_dir(run.state())?;
        fs::create_dir(run.out())?;
        Ok(run)
    }

    fn stage(&self) -> &Arc<Stage> {
        &self.place.stage
    }

    fn state(&self) -> PathBuf {
        self.dir.path().join(format!("state-{}", self.generation))
    }

    fn out(&self) -> PathBuf {
        self.dir.path().join(format!("out-{}", self.generation))
    }

    fn histories(&self) -> Histories {
        Histories { before: self.before.clone(), now: self.sim.history() }
    }

    /// How many events there were so far in what is watched.
    fn events(&self) -> usize {
        let (now, undone) = (self.sim.history_after(self.place.setup.started), self.sim.undone());
        let watched = |row: &&Arc<sim::Row>| self.place.setup.watches(&row.resource, &row.namespace);
        now.iter().chain(&undone).filter(watched).count()
    }

    async fn live(mut self) -> Outcome {
        while self.events() < EVENTS && self.stage().failures().is_empty() {
            if self.dice.percent(15) {
                let weather = *self.dice.pick(&[3, 10, 30, 60]);
                self.stage().set_weather(weather);
            }
            for _ in 0..self.dice.between(1, 14) {
                self.world.step();
                if self.dice.percent(30) {
                    tokio::task::yield_now().await;
                }
            }
            if self.dice.percent(35) {
                self.trouble().await;
            }
            let pause = match self.dice.roll(100) {
                0..=74 => self.dice.millis(0, 1500),
                75..=93 => self.dice.millis(1000, 15_000),
                _ => self.dice.millis(15_000, 180_000),
            };
            self.pass(pause).await;
        }
        self.converge().await;
        self.judge_everything()
    }

    /// Lets time pass, in which decklog ends, starts again, and the operator does his rounds.
    async fn pass(&mut self, time: Duration) {
        let until = Instant::now() + time;
        loop {
            if self.redefine.is_some_and(|at| at <= Instant::now()) {
                self.define();
            }
            if self.life.is_none() && self.begins <= Instant::now() {
                self.start().await;
            }
            let mut wake = until;
            if self.life.is_none() {
                wake = wake.min(self.begins);
            }
            if let Some(at) = self.redefine {
                wake = wake.min(at);
            }
            let ended = match &mut self.life {
                Some(life) => tokio::select! {
                    biased;
                    ended = life.ended() => Some(ended),
                    () = sleep_until(wake) => None,
                },
                None => {
                    sleep_until(wake).await;
                    None
                }
            };
            if let Some(ended) = ended {
                self.ended(ended).await;
            }
            if Instant::now() >= until {
                return;
            }
        }
    }

    async fn start(&mut self) {
        let stage = Arc::clone(self.stage());
        let mut disk = BadDisk::default();
        if !stage.is_calm() {
            if stage.enables(Fault::CommitFails) && self.dice.percent(25) {
                let most = *self.dice.pick(&[4, 40, 400]);
                disk.commit = u32::try_from(self.dice.between(1, most)).ok();
            } else if stage.enables(Fault::CrashInRecovery) && self.dice.percent(30) {
                disk.commit = u32::try_from(self.dice.between(1, 4)).ok();
            } else if stage.enables(Fault::DiskFull) && self.dice.percent(25) {
                disk.pages = i64::try_from(self.dice.between(0, 30)).ok();
            }
        }
        self.lives += 1;
        stage.note(format_args!("--- life {} begins ({disk:?})", self.lives));
        match Life::begin(&self.place, &self.state(), &self.out(), disk).await {
            Ok(life) => self.life = Some(life),
            Err((why, true)) => {
                let fault = if disk.pages.is_some() { Fault::DiskFull } else { Fault::CrashInRecovery };
                stage.struck(fault, format_args!("{why}"));
                self.rest();
            }
            Err((why, false)) => stage.fail(format!("decklog does not start: {why}")),
        }
    }

    /// systemd waits a little before it starts decklog again.
    fn rest(&mut self) {
        let pause = match self.dice.roll(10) {
            0..=6 => self.dice.millis(100, 3000),
            7..=8 => self.dice.millis(3000, 30_000),
            _ => self.dice.millis(30_000, 120_000),
        };
        self.begins = Instant::now() + pause;
    }

    /// A part of decklog has ended by itself, which only a disk may bring about.
    async fn ended(&mut self, why: String) {
        let Some(life) = self.life.take() else { return };
        let stage = Arc::clone(self.stage());
        if life.disk_failed.load(std::sync::atomic::Ordering::Relaxed) {
            let fault = if why.contains("full") { Fault::DiskFull } else { Fault::CommitFails };
            stage.struck(fault, format_args!("{why}"));
        } else {
            stage.fail(format!("decklog ended: {why}"));
        }
        life.bury().await;
        self.judge_what_is_left();
        self.rest();
    }

    /// Nothing of decklog goes on, and nothing is cleaned up: what is on disk at this moment is all that is left.
    async fn crash(&mut self) {
        let Some(life) = self.life.take() else { return };
        let stage = Arc::clone(self.stage());
        stage.struck(Fault::Crash, format_args!("life {}", self.lives));
        life.kill();
        let (state, out) = (self.state(), self.out());
        self.generation += 1;
        let copied = copy(&state, &self.state()).and_then(|()| copy(&out, &self.out()));
        life.bury().await;
        let removed = fs::remove_dir_all(state).and_then(|()| fs::remove_dir_all(out));
        if let Err(error) = copied.and(removed) {
            stage.fail(format!("the directories cannot be copied: {error}"));
        }
        if stage.enables(Fault::TornTail)
            && self.dice.percent(50)
            && let Err(error) = self.tear()
        {
            stage.fail(format!("the file cannot be torn: {error}"));
        }
        self.judge_what_is_left();
        self.rest();
    }

    /// What was written and not acknowledged may be there in part.
    fn tear(&mut self) -> Result<(), String> {
        let cursor = judges::cursors(&self.state())?.get("file").copied().unwrap_or(0);
        let path = self.out().join("events.jsonl");
        let say = |error: io::Error| error.to_string();
        let Ok(text) = fs::read(&path) else { return Ok(()) };
        let mut kept = 0;
        for line in text.split_inclusive(|byte| *byte == b'\n') {
            let seq = serde_json::from_slice::<Value>(line).ok().and_then(|value| value["seq"].as_u64());
            if seq.is_none_or(|seq| seq > cursor) {
                break;
            }
            kept += line.len();
        }
        if kept < text.len() {
            let length = self.dice.between(kept, text.len());
            fs::write(&path, &text[..length]).map_err(say)?;
        } else {
            // The beginning of a line that decklog was about to write.
            let mut torn = text;
            torn.extend_from_slice(&br#"{"v":1,"seq":12345,"epoch""#[..self.dice.between(1, 20)]);
            fs::write(&path, torn).map_err(say)?;
        }
        self.stage().struck(Fault::TornTail, format_args!("after seq {cursor}"));
        Ok(())
    }

    async fn stop(&mut self) {
        let Some(life) = self.life.take() else { return };
        let stage = Arc::clone(self.stage());
        stage.struck(Fault::Stop, format_args!("life {}", self.lives));
        let failed = Arc::clone(&life.disk_failed);
        if let Err(why) = life.stop().await
            && !failed.load(std::sync::atomic::Ordering::Relaxed)
        {
            stage.fail(format!("decklog does not stop well: {why}"));
        }
        self.judge_what_is_left();
        self.rest();
    }

    /// Something goes wrong that no request has to be there for.
    async fn trouble(&mut self) {
        const TROUBLE: [Fault; 12] = [
            Fault::Compaction,
            Fault::Forgets,
            Fault::Restart,
            Fault::Rollback,
            Fault::Undefined,
            Fault::Redefined,
            Fault::Crash,
            Fault::Crash,
            Fault::Stop,
            Fault::ClockBack,
            Fault::ClockForward,
            Fault::MovedAway,
        ];
        let possible: Vec<Fault> = TROUBLE.into_iter().filter(|fault| self.stage().enables(*fault)).collect();
        if possible.is_empty() {
            return;
        }
        let stage = Arc::clone(self.stage());
        match *self.dice.pick(&possible) {
            Fault::Compaction => {
                stage.struck(Fault::Compaction, format_args!("at {}", self.sim.revision()));
                self.sim.compact_all();
            }
            Fault::Forgets => {
                let resource = *self.dice.pick(&WATCHED);
                stage.struck(Fault::Forgets, format_args!("{resource} before {}", self.sim.revision()));
                self.sim.forget_watch_history(resource, self.sim.revision());
            }
            Fault::Restart => {
                stage.struck(Fault::Restart, format_args!(""));
                self.place.network.down();
                let pause = self.dice.millis(0, 20_000);
                self.pass(pause).await;
                self.place.network.up();
            }
            Fault::Rollback => self.roll_back().await,
            fault @ (Fault::Undefined | Fault::Redefined) if self.redefine.is_none() => {
                stage.struck(fault, format_args!("at {}", self.sim.revision()));
                stage.may_lose(WIDGETS, "scope");
                if let Err(refusal) = self.sim.undefine(WIDGETS) {
                    stage.fail(format!("widgets cannot be undefined: {refusal}"));
                }
                self.defined = self.sim.revision();
                let gone = if fault == Fault::Undefined { (20_000, 200_000) } else { (0, 3000) };
                self.redefine = Some(Instant::now() + self.dice.millis(gone.0, gone.1));
                self.world.look_again();
            }
            Fault::Crash => {
                // In the middle of what is going on.
                for _ in 0..self.dice.roll(150) {
                    tokio::task::yield_now().await;
                }
                self.crash().await;
            }
            Fault::Stop => self.stop().await,
            Fault::ClockBack => {
                stage.struck(Fault::ClockBack, format_args!("by an hour"));
                self.clock_was_set_back = true;
                self.simulation.jump(SignedDuration::from_hours(-1));
            }
            Fault::ClockForward => {
                stage.struck(Fault::ClockForward, format_args!("by a year"));
                self.simulation.jump(SignedDuration::from_hours(365 * 24));
            }
            Fault::MovedAway => {
                let path = self.out().join("events.jsonl");
                if fs::metadata(&path).is_ok_and(|meta| meta.len() > 0) {
                    self.moved += 1;
                    stage.struck(Fault::MovedAway, format_args!("to .{}", self.moved));
                    if let Err(error) = fs::rename(&path, self.out().join(format!("events.jsonl.{}", self.moved))) {
                        stage.fail(format!("the file cannot be moved: {error}"));
                    }
                    if let Some(life) = &self.life {
                        life.reopen();
                    }
                }
            }
            _ => {}
        }
    }

    fn define(&mut self) {
        self.redefine = None;
        match self.sim.define(objects::crd(WIDGETS, "Widget", true, &["v1"])) {
            Ok(row) => self.defined = row.revision,
            Err(refusal) => self.stage().fail(format!("widgets cannot be defined: {refusal}")),
        }
        self.stage().note(format_args!("widgets are defined"));
    }

    /// etcd is put back from a backup, and nobody writes before decklog has seen it: whoever overtakes the old
    /// versions before anybody looks cannot be told from one who never went back.
    async fn roll_back(&mut self) {
        let (now, setup) = (self.sim.revision(), &self.place.setup);
        let oldest = self.defined.max(setup.started) + 1;
        if self.before.is_some() || self.redefine.is_some() || now <= oldest + 5 {
            return;
        }
        let stage = Arc::clone(self.stage());
        let to = now - self.dice.between(1, usize::try_from(now - oldest).unwrap_or(1).min(40)) as u64;
        stage.struck(Fault::Rollback, format_args!("from {now} to {to}"));
        for resource in WATCHED {
            stage.may_lose(resource, "rollback");
        }
        self.before = Some(self.sim.history());
        self.sim.restore(to);
        self.place.network.forget_before(to);
        self.world.look_again();
        let until = Instant::now() + CONVERGES;
        loop {
            self.pass(Duration::from_secs(10)).await;
            let positions = judges::positions(&self.state()).unwrap_or_default();
            let ahead =
                |position: &&judges::Position| position.active && position.applied.is_some_and(|applied| applied > to);
            let late: Vec<&str> = positions.iter().filter(ahead).map(|position| position.name.as_str()).collect();
            let seen = positions.iter().filter(|position| position.active).count() > 0;
            if late.is_empty() && seen && self.life.is_some() {
                // What is handed over and not on disk has come there by then.
                self.pass(Duration::from_secs(60)).await;
                let positions = judges::positions(&self.state()).unwrap_or_default();
                if !positions.iter().any(|position| ahead(&position)) && self.life.is_some() {
                    return;
                }
            }
            if Instant::now() + CONVERGES * 2 / 3 > until {
                // In the worst weather no list of many pages comes to its end.
                stage.set_weather(5);
            }
            if Instant::now() > until || !stage.failures().is_empty() {
                return stage.fail(format!("a rollback is not noticed by {late:?}"));
            }
        }
    }

    /// Everything that can be healed is, and decklog has to come to the present.
    async fn converge(&mut self) {
        let stage = Arc::clone(self.stage());
        stage.note(format_args!("--- everything is well from here on"));
        stage.set_weather(0);
        self.place.network.up();
        self.redefine = self.redefine.map(|_| Instant::now());
        // Disks that are bad from the start of a life stay so until its end.
        if self.life.is_some() {
            self.stop().await;
        }
        self.begins = Instant::now();
        let until = Instant::now() + CONVERGES;
        let mut late = String::new();
        while stage.failures().is_empty() {
            self.pass(Duration::from_secs(5)).await;
            late = self.is_behind();
            if late.is_empty() {
                return self.stop().await;
            }
            if Instant::now() > until {
                return stage.fail(format!("an hour after all is well, decklog is behind: {late}"));
            }
            self.place.receiver.mend();
            if late.contains("halted")
                && let Some(life) = &self.life
            {
                life.reopen();
            }
        }
        stage.note(format_args!("{late}"));
    }

    /// What is not yet where it has to be.
    fn is_behind(&self) -> String {
        let revision = self.sim.revision();
        let positions = match judges::positions(&self.state()) {
            Ok(positions) => positions,
            Err(error) => return error,
        };
        let mut late: Vec<String> = Vec::new();
        let active: Vec<_> = positions.iter().filter(|position| position.active).collect();
        let sources = WATCHED.len() * self.place.setup.namespaces.as_ref().map_or(1, BTreeSet::len);
        if active.len() < sources {
            late.push(format!("{} of {sources} sources", active.len()));
        }
        for position in active {
            if position.resume != Some(revision) {
                late.push(format!("{} {} at {:?} of {revision}", position.name, position.state, position.resume));
            }
        }
        let sinks =
            decklog::journal::Reader::open(&self.state()).and_then(|reader| Ok((reader.head()?, reader.sinks()?)));
        match sinks {
            Ok((head, sinks)) => {
                let behind = sinks.iter().filter(|sink| sink.cursor < head);
                late.extend(behind.map(|sink| {
                    format!("{} {} ({}) at {} of {head}", sink.name, sink.state, sink.detail, sink.cursor)
                }));
            }
            Err(error) => late.push(error.to_string()),
        }
        late.join(", ")
    }

    /// At the end of each life: what is on disk is right, as far as it goes.
    fn judge_what_is_left(&mut self) {
        let stage = Arc::clone(self.stage());
        let mut problems = Vec::new();
        match judges::cursors(&self.state()) {
            Ok(cursors) => self.place.receiver.life_ended(cursors.get("http").copied().unwrap_or(0)),
            Err(error) => problems.push(error),
        }
        match (Log::read(&self.state()), judges::positions(&self.state())) {
            (Ok(log), Ok(positions)) => {
                let (histories, setup) = (self.histories(), &self.place.setup);
                let back = self.clock_was_set_back;
                problems.extend(judges::log_is_right_so_far(&log, &histories, setup, &positions, back));
            }
            (Err(error), _) | (_, Err(error)) => problems.push(error),
        }
        for problem in problems {
            stage.fail(format!("at the end of life {}: {problem}", self.lives));
        }
    }

    fn judge_everything(mut self) -> Outcome {
        let stage = Arc::clone(self.stage());
        let setup = self.place.setup.clone();
        let (state, out) = (self.state(), self.out());
        let mut outcome = Outcome {
            seed: self.seed,
            digest: 0,
            counts: stage.counts(),
            events: self.events(),
            entries: 0,
            gaps: 0,
            lives: self.lives,
            clean: setup.clean,
            took: stage.elapsed(),
            failures: Vec::new(),
        };
        match Log::read(&state) {
            Ok(log) if stage.failures().is_empty() => {
                let histories = self.histories();
                let back = self.clock_was_set_back;
                let mut problems = judges::log_is_history(&log, &histories, &setup, self.sim.revision(), back);
                problems.extend(judges::objects_are_the_servers(&log, &histories));
                if self.seed.is_multiple_of(EVERY) {
                    problems.extend(judges::past_is_the_servers(&log, &histories, &state, &setup));
                }
                problems.extend(judges::gaps_are_justified(&log, &stage.reasons(), &stage.owed()));
                problems.extend(judges::replay_is_the_table(&log, &state, &self.sim, &setup));
                problems.extend(judges::file_is_exactly_once(&log, &out));
                let (taken, refused) = self.place.receiver.taken();
                problems.extend(judges::http_has_everything(&log, &taken, &refused, &state));
                let collected = self.place.collected.lock().unwrap_or_else(PoisonError::into_inner).clone();
                problems.extend(judges::collected_is_the_filter(&log, &collected));
                outcome.gaps = log.entries.iter().filter(|entry| entry.gap.is_some()).count();
                if setup.clean && outcome.gaps > 0 {
                    problems.push(format!("{} GAPs although nothing could be lost", outcome.gaps));
                }
                for problem in problems {
                    stage.fail(problem);
                }
                let rotated = fs::read_dir(&out).map_or(0, Iterator::count);
                if rotated > 1 + self.moved {
                    outcome.counts.add(Fault::Rotated, (rotated - 1 - self.moved) as u64);
                }
                outcome.entries = log.entries.len();
                outcome.digest = stage.digest(log.lines.join("\n").as_bytes());
            }
            Ok(_) => {}
            Err(error) => stage.fail(error),
        }
        self.life = None;
        outcome.failures = stage.failures();
        if !outcome.failures.is_empty() && std::env::var_os("SIMULATE_KEEP").is_some() {
            self.dir.disable_cleanup(true);
            stage.note(format_args!("kept {}", self.dir.path().display()));
        }
        stage.note(format_args!("{} events, {} entries, {} gaps", outcome.events, outcome.entries, outcome.gaps));
        outcome
    }
}

/// Copies the files of a directory, except what SQLite makes anew.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        if !entry.file_name().to_string_lossy().ends_with("-shm") {
            let copy = to.join(entry.file_name());
            fs::copy(entry.path(), &copy)?;
            // Of files that were moved away, the last one is known by its time.
            fs::File::options().append(true).open(copy)?.set_modified(entry.metadata()?.modified()?)?;
        }
    }
    Ok(())
}
