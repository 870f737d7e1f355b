//! One simulation: a seed, and what came of it.
//!
//! The real journal, sources, delivery and sinks run in this thread, with a clock that nobody waits for, against the
//! simulated API server. The seed decides what happens in the cluster, what goes wrong, when decklog crashes, and how
//! the parts of decklog take turns.

#![allow(dead_code, reason = "the test and the example each use a part of it")]
#![allow(clippy::wildcard_enum_match_arm, reason = "each place deals with a few kinds of faults")]

pub mod class;
pub mod consumers;
use crate::dice::Dice;
pub mod faults;
pub mod judges;
pub mod life;
pub mod network;
pub mod outputs;
pub mod receiver;
pub mod setup;
pub mod stage;
pub mod turnback;

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use decklog::core::runtime::{self, Simulation};
use decklog::delivery::OnRefused;
use decklog::sim::{self, Sim, objects};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use tempfile::TempDir;
use tokio::time::{Instant, sleep_until};

use crate::world::{NAMESPACES, WATCHED, WIDGETS, World};
use class::Class;
use consumers::Consumers;
use faults::{Counts, Fault};
use judges::{Histories, Log};
use life::{BadDisk, Life, Surroundings};
use network::Network;
use outputs::Outputs;
use receiver::Receiver;
pub use setup::Setup;
use stage::Stage;
use turnback::Past;

/// How the name of the directory of a simulation begins.
pub const DIRECTORY: &str = "decklog-simulation-";

/// Once nothing goes wrong any more, everything has to be right after this time, by the simulated clock.
const CONVERGES: Duration = Duration::from_secs(3600);

/// The past of one seed in so many is judged, which takes as long as the rest.
const EVERY: u64 = 8;

/// What came of one seed.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub seed: u64,
    /// What happened, in one number.
    pub digest: u64,
    pub counts: Counts,
    pub events: usize,
    pub entries: usize,
    pub gaps: usize,
    pub lives: usize,
    pub clean: bool,
    pub class: Class,
    /// The most requests that a source had within three seconds.
    pub most: usize,
    /// What the judges took, by the real clock.
    pub judging: Duration,
    /// By the simulated clock.
    pub took: Duration,
    pub failures: Vec<String>,
}

impl Outcome {
    /// What to say about a seed that failed.
    pub fn report(&self) -> String {
        let mut text = format!(
            "seed {} ({}) failed; replay it with: cargo run --release --example simulate -- --seed {}\n",
            self.seed,
            self.class.name(),
            self.seed
        );
        for failure in self.failures.iter().take(12) {
            text += &format!("- {failure}\n");
        }
        text
    }
}

/// Runs one seed on this thread.
pub fn simulate(seed: u64, verbose: bool) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.expect("a runtime without I/O can always be made");
    runtime.block_on(async {
        let clock: Timestamp = "2026-01-01T00:00:00Z".parse().expect("a time");
        let simulation = runtime::simulate(seed, clock);
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
                class: Class::of(seed),
                most: 0,
                judging: Duration::ZERO,
                took: Duration::ZERO,
                failures: vec![format!("the simulation cannot begin: {error}")],
            },
        }
    })
}

/// A line of a verbose trace.
pub fn print(line: &str) {
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
    past: Past,
    consumers: Consumers,
    /// The log at the end of the last life.
    log: Log,
    judging: Duration,
}

impl Run {
    async fn begin(seed: u64, verbose: bool, simulation: Simulation) -> io::Result<Self> {
        let mut setup = Setup::new(seed);
        let mut dice = Dice::new(seed, "run");
        let stage = Arc::new(Stage::new(seed, verbose, setup.enabled.clone()));
        let sim = Sim::unconnected(sim::Settings {
            seed,
            bookmarks_every: if setup.enables(Fault::FreshBookmark) {
                Duration::from_millis(5)
            } else {
                Duration::from_secs(20)
            },
            http_410: dice.percent(30),
            ..sim::Settings::default()
        })?;
        for namespace in NAMESPACES {
            sim.create_namespace(namespace).map_err(io::Error::other)?;
        }
        for namespace in setup.namespaces.iter().flatten().filter(|_| setup.class == Class::Large) {
            sim.create_namespace(namespace).map_err(io::Error::other)?;
        }
        let crd = sim.define(objects::crd(WIDGETS, "Widget", true, &["v1"])).map_err(io::Error::other)?;
        let mut world = World::new(&sim, seed);
        for _ in 0..dice.roll(60) {
            world.step();
        }
        setup.started = sim.revision();
        stage.note(format_args!("{setup:?}"));
        let habits = [Fault::EndsEarly, Fault::FreshBookmark, Fault::Opaque, Fault::PagesDiffer];
        let habit = habits.into_iter().find(|habit| setup.enables(*habit));
        let network = Network::new(Arc::clone(&stage), sim.clone(), &setup, habit);
        let receiver = Receiver::new(Arc::clone(&stage), setup.on_refused == OnRefused::DeadLetter);
        let memory = Path::new("/dev/shm");
        let mut builder = tempfile::Builder::new();
        builder.prefix(DIRECTORY);
        let dir = if memory.is_dir() { builder.tempdir_in(memory)? } else { builder.tempdir()? };
        let outputs = Outputs::default();
        let place = Surroundings { stage, setup, network, receiver, collected: Arc::default(), outputs };
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
            past: Past::default(),
            consumers: Consumers::default(),
            log: Log::default(),
            judging: Duration::ZERO,
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
        let class = self.place.setup.class;
        if class == Class::Starts && self.stage().enables(Fault::OutputHangs) {
            self.hang();
        }
        if class == Class::Large {
            self.at_limit().await;
        }
        self.share_among_sinks();
        while self.events() < class.events() && self.stage().failures().is_empty() {
            // Some promises are of good days.
            let fair = matches!(class, Class::Starts | Class::Outages);
            if self.dice.percent(15) && !fair {
                let weather = *self.dice.pick(&[3, 10, 30, 60]);
                self.stage().set_weather(weather);
            }
            for _ in 0..self.dice.between(1, 14) {
                self.world.step();
                if self.dice.percent(30) {
                    tokio::task::yield_now().await;
                }
            }
            if self.dice.percent(if class == Class::Scopes { 70 } else { 35 }) {
                self.trouble().await;
            }
            if matches!(class, Class::Timeline | Class::Writers) {
                self.turn_back().await;
            }
            if class == Class::Servers && self.dice.percent(10) {
                self.burst().await;
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
            let twin = self.past.twin.as_mut().and_then(|twin| twin.life.as_mut());
            let ended = tokio::select! {
                biased;
                ended = ended(self.life.as_mut()) => Some(ended),
                why = ended(twin) => return self.place.stage.fail(format!("the other decklog ended: {why}")),
                () = sleep_until(wake) => None,
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
        // It would be left at a directory that is no more.
        self.end_twin().await;
        let Some(life) = self.life.take() else { return };
        let stage = Arc::clone(self.stage());
        stage.struck(Fault::Crash, format_args!("life {}", self.lives));
        stage.moment("stop");
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
        let epoch = decklog::journal::Reader::open(&self.state())
            .and_then(|reader| reader.epoch())
            .map_err(|error| error.to_string())?;
        let path = self.out().join("events.jsonl");
        let say = |error: io::Error| error.to_string();
        let Ok(text) = fs::read(&path) else { return Ok(()) };
        let mut kept = 0;
        for line in text.split_inclusive(|byte| *byte == b'\n') {
            let entry = serde_json::from_slice::<Value>(line).ok();
            // What another journal wrote was synced then.
            if entry.is_none_or(|entry| entry["epoch"] == epoch && entry["seq"].as_u64() > Some(cursor)) {
                break;
            }
            kept += line.len();
        }
        if kept < text.len() && !self.past.turned {
            let length = self.dice.between(kept, text.len());
            fs::write(&path, &text[..length]).map_err(say)?;
        } else if !text.is_empty() && !text.ends_with(b"\n") {
            // Nothing was written since the last time.
            return Ok(());
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
        stage.moment("stop");
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
        const TROUBLE: [Fault; 15] = [
            Fault::Compaction,
            Fault::Forgets,
            Fault::Restart,
            Fault::RestartEmpty,
            Fault::Rollback,
            Fault::Undefined,
            Fault::Redefined,
            Fault::Crash,
            Fault::Crash,
            Fault::Stop,
            Fault::ClockBack,
            Fault::ClockForward,
            Fault::MovedAway,
            Fault::LongOutage,
            Fault::Selector,
        ];
        let possible: Vec<Fault> = TROUBLE.into_iter().filter(|fault| self.stage().enables(*fault)).collect();
        if possible.is_empty() {
            return;
        }
        let stage = Arc::clone(self.stage());
        match *self.dice.pick(&possible) {
            Fault::Compaction => {
                stage.struck(Fault::Compaction, format_args!("at {}", self.sim.revision()));
                stage.compacts(self.sim.revision());
                self.sim.compact_all();
            }
            Fault::Forgets => {
                let resource = *self.dice.pick(&WATCHED);
                stage.struck(Fault::Forgets, format_args!("{resource} before {}", self.sim.revision()));
                self.sim.expire_watch_history(resource, self.sim.revision());
            }
            Fault::Restart => {
                stage.struck(Fault::Restart, format_args!(""));
                self.place.network.down();
                let pause = self.dice.millis(0, 20_000);
                self.pass(pause).await;
                self.place.network.up();
            }
            Fault::RestartEmpty => self.restart_empty().await,
            Fault::Rollback => self.roll_back().await,
            Fault::LongOutage => self.outage().await,
            Fault::Selector => self.select().await,
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

    /// The API server starts again and remembers nothing, while others write through another one.
    async fn restart_empty(&mut self) {
        self.place.network.down();
        for _ in 0..self.dice.between(0, 40) {
            self.world.step();
        }
        let pause = self.dice.millis(0, 20_000);
        self.pass(pause).await;
        self.stage().struck(Fault::RestartEmpty, format_args!("at {}", self.sim.revision()));
        self.sim.restart_api_server();
        self.place.network.up();
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
        stage.restores(to);
        self.place.network.forget_before(to);
        self.world.look_again();
        let until = Instant::now() + CONVERGES;
        loop {
            self.pass(Duration::from_secs(10)).await;
            let positions = judges::positions(&self.state()).unwrap_or_default();
            let ahead = |position: &&judges::LogPosition| {
                position.active && position.applied.is_some_and(|applied| applied > to)
            };
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
        stage.end();
        self.place.outputs.open();
        self.end_twin().await;
        self.place.network.up();
        self.redefine = self.redefine.map(|_| Instant::now());
        // Disks that are bad from the start of a life stay so until its end.
        if self.life.is_some() {
            self.stop().await;
        }
        self.share_no_more();
        self.begins = Instant::now();
        let until = Instant::now() + CONVERGES;
        let mut late = String::new();
        while stage.failures().is_empty() {
            self.pass(Duration::from_secs(5)).await;
            late = self.is_behind();
            if late.is_empty() {
                return self.stop().await;
            }
            self.operate(&late);
            if Instant::now() > until {
                return stage.fail(format!("an hour after all is well, decklog is behind: {late}"));
            }
        }
        stage.note(format_args!("{late}"));
    }

    /// How many sources there are when all is well.
    fn sources(&self) -> usize {
        WATCHED.len() * self.place.setup.namespaces.as_ref().map_or(1, BTreeSet::len)
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
        let sources = self.sources();
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
                let configured =
                    |name: &String| self.place.setup.has_receivers() || self.place.setup.sinks.contains(name);
                let behind = sinks.iter().filter(|sink| sink.cursor < head && configured(&sink.name));
                late.extend(behind.map(|sink| {
                    format!(
                        "{} {} ({}) at {} of {head}",
                        sink.name,
                        sink.state.word(),
                        sink.state.detail(),
                        sink.cursor
                    )
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
        let began = std::time::Instant::now();
        let before = std::mem::take(&mut self.log);
        match (Log::read(&self.state(), before), judges::positions(&self.state())) {
            (Ok(log), Ok(positions)) => {
                let (histories, setup) = (self.histories(), &self.place.setup);
                let back = self.clock_was_set_back;
                if self.is_comparable() {
                    problems.extend(judges::log_is_right_so_far(&log, &histories, setup, &positions, back));
                }
                if setup.class == Class::Starts {
                    self.judge_start();
                }
                problems.extend(self.consumers.life_ended(&log, &self.place, &self.state(), &self.out()));
                self.log = log;
            }
            (Err(error), _) | (_, Err(error)) => problems.push(error),
        }
        for problem in problems {
            stage.fail(format!("at the end of life {}: {problem}", self.lives));
        }
        self.judging += began.elapsed();
    }

    /// What the HTTP receiver and the collecting sink have is what they should have.
    fn receivers_have_everything(&self, log: &Log, state: &Path) -> Vec<String> {
        let (taken, refused) = self.place.receiver.taken();
        let mut problems = judges::http_has_everything(log, &taken, &refused, state);
        let collected = self.place.collected.lock().unwrap_or_else(PoisonError::into_inner).clone();
        problems.extend(judges::collected_is_the_filter(log, &collected));
        problems
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
            class: setup.class,
            most: self.place.network.most(),
            judging: Duration::ZERO,
            took: stage.elapsed(),
            failures: Vec::new(),
        };
        let began = std::time::Instant::now();
        match Log::read(&state, std::mem::take(&mut self.log)) {
            Ok(log) if stage.failures().is_empty() => {
                let histories = self.histories();
                let back = self.clock_was_set_back;
                let mut problems = Vec::new();
                if self.is_comparable() {
                    let now = self.sim.revision();
                    problems.extend(judges::log_is_history(&log, &histories, &setup, now, back));
                    let (pick, ordered) = (self.seed / EVERY, !setup.enables(Fault::Opaque));
                    if pick.is_multiple_of(EVERY) && ordered {
                        problems.extend(judges::past_is_the_servers(&log, &histories, &state, &setup));
                    }
                }
                if setup.class != Class::Large {
                    problems.extend(judges::objects_are_the_servers(&log, &histories));
                }
                // After a put-back reasons and heads are of different journals.
                if !self.past.turned && !setup.enables(Fault::Opaque) {
                    problems.extend(judges::gaps_are_justified(
                        &log,
                        &stage.reasons(),
                        &stage.compactions(),
                        !setup.enables(Fault::PagesDiffer),
                    ));
                }
                problems.extend(judges::replay_is_the_table(&log, &state, &self.sim, &setup));
                if setup.has_receivers() {
                    problems.extend(judges::file_is_exactly_once(&log, &out));
                    problems.extend(self.receivers_have_everything(&log, &state));
                } else {
                    problems.extend(self.consumers.judge(&log, &self.place, &out));
                }
                outcome.gaps = log.entries.iter().filter(|entry| entry.gap.is_some()).count();
                // What passes by itself may pass too late for what is asked of the past.
                let hit =
                    setup.enables(Fault::PagesDiffer) || stage.reasons().iter().any(|reason| reason.why == "exact");
                if setup.clean && outcome.gaps > 0 && !hit {
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
        outcome.judging = self.judging + began.elapsed();
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

/// Waits for the end of a life, where there is one.
async fn ended(life: Option<&mut Life>) -> String {
    match life {
        Some(life) => life.ended().await,
        None => std::future::pending().await,
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
