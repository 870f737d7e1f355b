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
mod moments;
pub mod network;
pub mod outputs;
pub mod questions;
pub mod receiver;
pub mod setup;
pub mod stage;
mod trouble;
pub mod turnback;
mod verdict;

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use decklog::core::runtime::{self, Simulation};
use decklog::delivery::OnRefused;
use decklog::sim::{self, Sim, objects};
use jiff::Timestamp;
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
/// Commands are asked about the log of one seed in so many.
const QUESTIONED: u64 = 4;

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
            if self.life.as_ref().is_some_and(|life| life.sources.silent_since().is_some()) {
                late.push_str(" the API server counts as silent");
            }
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
