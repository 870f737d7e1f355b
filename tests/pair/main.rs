//! Two decklogs with one log, in one thread, by a clock that nobody waits for, with every decision from one seed: partitions on
//! each of the three sides, stops and kills, an engine that is slow, loses answers and is restored to an earlier state.
//!
//! The real journals, sources and delivery run against the simulated API server, an engine in memory and a model of the Lease.
//! One thing goes wrong at a time, so that there always was a standby that watched: then no change may be missing, whatever
//! the API server forgets meanwhile, and a consumer sees each epoch and seq once, or by its class.

#![allow(clippy::too_many_lines, reason = "a test tells its story in one place")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod evidence;
mod node;
mod places;

use decklog_testkit::dice;
use decklog_testkit::world;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use decklog::core::model::Seq;
use decklog::core::runtime;
use decklog::core::wire::{Entry, Header};
use decklog::journal::{Reader, Role};
use decklog::sim::shared_log::Engine;
use decklog::sim::{self, Sim, objects};
use dice::Dice;
use jiff::{SignedDuration, Timestamp};
use node::Node;
use places::{Lease, Places};
use tokio::time::{Instant, sleep};
use world::{NAMESPACES, WATCHED, WIDGETS, World};

/// So many seeds are run, unless `DECKLOG_SEEDS` says how many, from the first or `DECKLOG_SEEDS_FROM` on.
const SEEDS: u64 = 100;
/// What settles does so within this time, by the simulated clock.
const SETTLES: Duration = Duration::from_secs(900);
/// Who could lead alone does so within this time, by the same clock.
const LEADS: Duration = Duration::from_secs(120);
/// What is old enough is removed within this time, by the same clock.
const REMOVES: Duration = Duration::from_secs(180);
/// What has settled is delivered within this time, by the same clock.
const DELIVERS: Duration = Duration::from_secs(30);

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Trouble {
    Kill,
    KillStandby,
    Stop,
    Leave,
    NoEngine,
    NoApi,
    NoLease,
    LostAnswers,
    SlowEngine,
    /// One of the sides of whoever stands by.
    CutStandby,
    Restored,
    /// The engine is restored to what it had before another one took over.
    RestoredAfter,
    /// A unit that the standby has not read is deleted for a while, in which the leader is killed and comes back.
    Hole,
    /// The take-over is held up, because the engine is away, for longer than the API server remembers.
    Held,
    /// Somebody deletes the Lease, again and again.
    NobodysLease,
    Clock,
    /// What every output has leaves the journals.
    Truncated,
}

const TROUBLES: [Trouble; 17] = [
    Trouble::Kill,
    Trouble::KillStandby,
    Trouble::Stop,
    Trouble::Leave,
    Trouble::NoEngine,
    Trouble::NoApi,
    Trouble::NoLease,
    Trouble::LostAnswers,
    Trouble::SlowEngine,
    Trouble::CutStandby,
    Trouble::Restored,
    Trouble::RestoredAfter,
    Trouble::Hole,
    Trouble::Held,
    Trouble::NobodysLease,
    Trouble::Clock,
    Trouble::Truncated,
];

struct Run {
    seed: u64,
    dice: Dice,
    sim: Sim,
    world: World,
    places: Places,
    nodes: Vec<Node>,
    simulation: runtime::Simulation,
    told: Vec<String>,
    struck: BTreeMap<Trouble, usize>,
    /// The revisions that there were.
    revisions: Vec<(Instant, u64)>,
    /// The log when something was last removed from the journals.
    kept: Vec<String>,
}

/// What came of a seed.
struct Outcome {
    seed: u64,
    problems: Vec<String>,
    struck: BTreeMap<Trouble, usize>,
    terms: u64,
    entries: usize,
    /// Checkpoints that were published.
    checkpoints: usize,
}

impl Run {
    fn new(seed: u64, simulation: runtime::Simulation) -> Self {
        let mut dice = Dice::new(seed, "pair");
        let settings = sim::Settings { seed, bookmarks_every: Duration::from_secs(20), ..sim::Settings::default() };
        let sim = Sim::unconnected(settings).unwrap();
        for namespace in NAMESPACES {
            sim.create_namespace(namespace).unwrap();
        }
        sim.define(objects::crd(WIDGETS, "Widget", true, &["v1"])).unwrap();
        let world = World::new(&sim, seed);
        let places = Places::new(Engine::default(), Lease::default(), sim.clone());
        let nodes = ["one", "two"].map(|name| Node::begin(name, &places, dice.between(0, 1 << 30) as u64)).into();
        Self {
            seed,
            dice,
            sim,
            world,
            places,
            nodes,
            simulation,
            told: Vec::new(),
            struck: BTreeMap::new(),
            revisions: Vec::new(),
            kept: Vec::new(),
        }
    }

    fn note(&mut self, text: String) {
        let line = format!("{:>8.3} {text}", self.places.began.elapsed().as_secs_f64());
        tracing::info!("{line}");
        self.told.push(line);
    }

    fn problem(&self, text: &str) -> String {
        let last = self.told.iter().rev().take(12).rev().cloned().collect::<Vec<_>>().join("\n    ");
        let nodes: Vec<String> = self.nodes.iter().map(Node::shown).collect();
        format!("seed {}: {text}\n    {}\n    {last}", self.seed, nodes.join("\n    "))
    }

    fn leader(&self) -> Option<usize> {
        self.nodes.iter().position(|node| node.role() == Some(Role::Leader))
    }

    /// For a while things happen in the cluster.
    async fn live(&mut self, steps: usize) {
        for _ in 0..steps {
            self.revisions.push((Instant::now(), self.sim.revision()));
            self.world.step();
            if self.dice.percent(70) {
                sleep(self.dice.millis(0, 800)).await;
            }
        }
    }

    /// Waits until one leads and the other has everything and watches.
    async fn settle(&mut self) -> Result<(), String> {
        let until = Instant::now() + SETTLES;
        loop {
            if let Some(leader) = self.leader()
                && self.nodes.iter().all(|node| node.is_ready() && node.problem().is_none())
                && self.nodes.iter().filter(|node| node.role() == Some(Role::Leader)).count() == 1
            {
                let number = self.nodes[leader].number();
                if self.nodes.iter().all(|node| node.number() == number && node.has_seen(&self.sim)) {
                    for node in &self.nodes {
                        self.places.evidence.look(node.name, &node.dir);
                    }
                    return Ok(());
                }
            }
            if let Some(failure) = self.nodes.iter().find_map(Node::failure) {
                return Err(self.problem(&failure));
            }
            if Instant::now() > until {
                return Err(self.problem("it does not settle"));
            }
            sleep(Duration::from_millis(500)).await;
        }
    }

    /// What every output has is removed from the journal of the leader, and so from the other one's.
    async fn truncate(&mut self, leader: usize) -> Result<(), String> {
        self.delivered().await?;
        self.keep(leader);
        let oldest = |run: &Self| Reader::open(&run.nodes[leader].dir).unwrap().retained().unwrap().oldest;
        let (before, until) = (oldest(self), Instant::now() + REMOVES);
        self.nodes[leader].truncate(true).await;
        while oldest(self) == before {
            if Instant::now() > until {
                // The times of entries stand until a clock that went back an hour has come to them, and so does their age.
                if self.struck.contains_key(&Trouble::Clock) {
                    break;
                }
                return Err(self.problem("nothing is removed"));
            }
            self.world.step();
            sleep(Duration::from_secs(1)).await;
            self.keep(leader);
        }
        self.nodes[leader].truncate(false).await;
        sleep(Duration::from_secs(1)).await;
        self.keep(leader);
        Ok(())
    }

    /// Keeps the log as it is now.
    fn keep(&mut self, node: usize) {
        self.kept = self.log(node);
        self.places.evidence.know(&self.kept);
    }

    /// The whole log of a node: what was removed, and what it has.
    fn log(&self, node: usize) -> Vec<String> {
        let lines = lines(&self.nodes[node].dir);
        let first = lines.first().map_or(1, |line| Header::parse(line.as_bytes()).unwrap().seq);
        let removed = self.kept.iter().take(usize::try_from(first).unwrap() - 1);
        removed.cloned().chain(lines).collect()
    }

    /// Waits until every output has the whole log, which takes it no longer than [`DELIVERS`].
    async fn delivered(&self) -> Result<(), String> {
        let head = self.log(self.leader().unwrap_or(0)).len() as u64;
        let until = Instant::now() + DELIVERS;
        loop {
            let behind = self.places.outputs().into_iter().find(|(_, output)| output.end() < head);
            match behind {
                None => return Ok(()),
                Some((name, output)) if Instant::now() > until => {
                    return Err(self.problem(&format!("{name} has {} entries of {head}", output.end())));
                }
                Some(_) => sleep(Duration::from_millis(500)).await,
            }
        }
    }

    /// Waits until one of these leads, which takes it no longer than `limit`.
    async fn leads(&self, which: &[usize], limit: Duration) -> Result<(), String> {
        let until = Instant::now() + limit;
        while self.leader().is_none_or(|leader| !which.contains(&leader)) {
            if Instant::now() > until {
                return Err(self.problem("nobody takes over"));
            }
            sleep(Duration::from_millis(500)).await;
        }
        Ok(())
    }

    /// The API server has forgotten what is older than a while, and etcd too. By then a bookmark has moved every watch that is open
    /// beyond that: whoever watched has lost nothing.
    fn forget(&mut self) {
        let Some(old) = self.revisions.iter().rev().find(|(at, _)| at.elapsed() > Duration::from_secs(45)) else {
            return;
        };
        let revision = old.1;
        for resource in WATCHED {
            self.sim.expire_watch_history(resource, revision);
        }
        self.sim.compact(revision);
        self.note(format!("the API server forgets what was before {revision}"));
    }

    async fn strike(&mut self, trouble: Trouble) -> Result<(), String> {
        *self.struck.entry(trouble).or_default() += 1;
        let leader = self.leader().unwrap_or(0);
        let (seed, long) = (self.dice.between(0, 1 << 30) as u64, self.dice.millis(1_000, 90_000));
        let most = self.dice.between(1, 60);
        self.note(format!("{trouble:?} of {} for {long:?}", self.nodes[leader].name));
        match trouble {
            Trouble::Kill | Trouble::KillStandby => {
                let which = if trouble == Trouble::Kill { leader } else { 1 - leader };
                self.nodes[which].kill().await;
                self.live(most).await;
                if trouble == Trouble::Kill && self.dice.percent(60) {
                    self.forget();
                }
                self.live(most).await;
                sleep(long).await;
                // Who comes back may come without its disk.
                let blank = self.dice.percent(30);
                let name = self.nodes[which].name;
                let dir = if blank { None } else { Some(self.nodes[which].dir.clone()) };
                self.note(format!("{name} comes back, {}", if blank { "without its disk" } else { "with its disk" }));
                self.nodes[which] = Node::begin_at(name, &self.places, seed, dir);
            }
            Trouble::Leave => {
                self.nodes[leader].leave().await.map_err(|error| self.problem(&error))?;
                if self.dice.percent(60) {
                    self.forget();
                }
                self.live(most).await;
                sleep(long).await;
                let (name, dir) = (self.nodes[leader].name, self.nodes[leader].dir.clone());
                self.nodes[leader] = Node::begin_at(name, &self.places, seed, Some(dir));
            }
            Trouble::Stop => {
                self.nodes[leader].pause(true);
                self.live(most).await;
                if self.dice.percent(60) && long > Duration::from_secs(20) {
                    sleep(long).await;
                    self.forget();
                }
                self.live(most).await;
                sleep(long).await;
                self.nodes[leader].pause(false);
                self.live(most).await;
            }
            Trouble::NoEngine | Trouble::NoApi | Trouble::NoLease | Trouble::LostAnswers | Trouble::SlowEngine => {
                let sides = [
                    (Trouble::NoEngine, places::Side::Engine),
                    (Trouble::NoApi, places::Side::Api),
                    (Trouble::NoLease, places::Side::Lease),
                    (Trouble::LostAnswers, places::Side::Answers),
                    (Trouble::SlowEngine, places::Side::Slow),
                ];
                let side = sides.iter().find(|(of, _)| *of == trouble).unwrap().1;
                self.nodes[leader].cut(side, true);
                self.live(most).await;
                sleep(long).await;
                self.live(most).await;
                self.nodes[leader].cut(side, false);
            }
            Trouble::CutStandby => {
                let sides = [
                    places::Side::Engine,
                    places::Side::Api,
                    places::Side::Lease,
                    places::Side::Answers,
                    places::Side::Slow,
                ];
                let side = *self.dice.pick(&sides);
                self.nodes[1 - leader].cut(side, true);
                self.live(most).await;
                sleep(long).await;
                self.nodes[1 - leader].cut(side, false);
                self.live(most).await;
            }
            Trouble::RestoredAfter => {
                let before = self.places.engine.held();
                self.live(most).await;
                self.nodes[leader].kill().await;
                self.leads(&[1 - leader], SETTLES).await?;
                self.live(most).await;
                self.places.engine.restore(before);
                self.live(most).await;
                let (name, dir) = (self.nodes[leader].name, self.nodes[leader].dir.clone());
                self.nodes[leader] = Node::begin_at(name, &self.places, seed, Some(dir));
            }
            Trouble::Restored => {
                let before = self.places.engine.held();
                self.live(most).await;
                sleep(Duration::from_secs(2)).await;
                self.places.engine.restore(before);
                self.live(most).await;
            }
            Trouble::Hole => {
                let standby = 1 - leader;
                let number = self.nodes[standby].number();
                self.nodes[standby].kill().await;
                // Several units, so that the one that goes is in the middle.
                while self.nodes[leader].number() < number + 3 {
                    self.live(most).await;
                    sleep(Duration::from_secs(1)).await;
                }
                let mut held = self.places.engine.held();
                let lost = self.dice.between(1, 2) as u64 + number;
                // A base stands in its place, where one is newer.
                let unit = held.units.remove(&lost).filter(|_| held.bases.keys().all(|base| *base <= number));
                self.note(format!("unit {lost} is deleted: {}", unit.is_some()));
                if unit.is_some() {
                    self.places.engine.restore(held);
                }
                let [name, other] =
                    [leader, standby].map(|which| (self.nodes[which].name, self.nodes[which].dir.clone()));
                self.nodes[standby] = Node::begin_at(other.0, &self.places, seed, Some(other.1));
                self.live(most).await;
                self.nodes[leader].kill().await;
                sleep(long).await;
                self.nodes[leader] = Node::begin_at(name.0, &self.places, seed + 1, Some(name.1));
                // The other one only where a base stands in the place of the unit by now.
                self.leads(&[leader, standby], LEADS).await?;
                self.live(most).await;
                if let Some(unit) = unit {
                    let mut held = self.places.engine.held();
                    if held.units.insert(lost, unit).is_some() {
                        return Err(self.problem(&format!("unit {lost} was replaced")));
                    }
                    self.places.engine.restore(held);
                }
            }
            Trouble::Held => {
                for node in &self.nodes {
                    node.cut(places::Side::Engine, true);
                }
                self.live(most).await;
                self.nodes[leader].kill().await;
                for _ in 0..self.dice.between(1, 5) {
                    self.live(most).await;
                    sleep(Duration::from_secs(100)).await;
                }
                self.forget();
                self.nodes[1 - leader].cut(places::Side::Engine, false);
                self.live(most).await;
                let (name, dir) = (self.nodes[leader].name, self.nodes[leader].dir.clone());
                self.nodes[leader] = Node::begin_at(name, &self.places, seed, Some(dir));
            }
            Trouble::NobodysLease => {
                for _ in 0..self.dice.between(1, 5) {
                    self.places.lease.delete();
                    self.live(most).await;
                    sleep(self.dice.millis(0, 10_000)).await;
                }
            }
            Trouble::Truncated => self.truncate(leader).await?,
            Trouble::Clock => {
                let by = SignedDuration::from_secs(i64::from(self.dice.percent(50)) * 7200 - 3600);
                self.simulation.jump(by);
                self.live(most).await;
            }
        }
        Ok(())
    }

    async fn all(mut self) -> Outcome {
        let result = self.troubles().await;
        let mut problems: Vec<String> = result.err().into_iter().collect();
        let (mut terms, mut entries) = (0, 0);
        let (checkpoints, wrong) = self.places.evidence.judge();
        problems.extend(wrong.into_iter().map(|text| self.problem(&text)));
        if problems.is_empty() {
            match self.judge() {
                Ok((told, count)) => (terms, entries) = (told, count),
                Err(found) => problems.extend(found.into_iter().map(|text| self.problem(&text))),
            }
        }
        for node in &mut self.nodes {
            node.kill().await;
        }
        Outcome { seed: self.seed, problems, struck: self.struck, terms, entries, checkpoints }
    }

    async fn troubles(&mut self) -> Result<(), String> {
        self.settle().await?;
        let count = self.dice.between(2, 6);
        for _ in 0..count {
            self.live(10).await;
            self.settle().await?;
            let trouble = *self.dice.pick(&TROUBLES);
            self.strike(trouble).await?;
            self.settle().await?;
        }
        self.live(20).await;
        self.settle().await?;
        self.delivered().await?;
        // What is at least once comes to an end a moment later, and all of it is signed.
        sleep(Duration::from_secs(150)).await;
        self.settle().await?;
        self.places.evidence.has_all(&self.log(self.leader().unwrap_or(0))).map_err(|why| self.problem(&why))
    }

    /// Both logs are one, and are what happened; the consumers have each entry once, or by their class.
    fn judge(&self) -> Result<(u64, usize), Vec<String>> {
        let mut problems = Vec::new();
        let logs: Vec<Vec<String>> = (0..self.nodes.len()).map(|node| self.log(node)).collect();
        if logs[0] != logs[1] {
            problems.push(format!("the two logs differ: {} and {} entries", logs[0].len(), logs[1].len()));
        }
        let entries: Vec<Entry<'_>> = logs[0].iter().map(|line| Entry::parse(line.as_bytes()).unwrap()).collect();
        let mut told: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for entry in &entries {
            if let Some(gap) = entry.gap() {
                problems.push(format!(
                    "entry {} of {} is a GAP {}: {:?} to {:?} since {:?}",
                    entry.seq, entry.time, gap.why, gap.from, gap.to, gap.since
                ));
                continue;
            }
            let group = entry.api_version.split_once('/').map(|(group, _)| group);
            let resource = &*entry.resource;
            let resource = group.map_or_else(|| resource.to_owned(), |group| format!("{resource}.{group}"));
            let text =
                format!("{} {} {}", entry.op.as_str(), entry.uid.as_deref().unwrap_or_default(), entry.version());
            told.entry(resource).or_default().push(text);
        }
        for resource in WATCHED {
            let truth: Vec<String> = self
                .sim
                .history()
                .iter()
                .filter(|row| *row.resource == *resource)
                .map(|row| format!("{} {} {}", word(row.kind), row.uid, row.revision))
                .collect();
            let log = told.remove(resource).unwrap_or_default();
            if let Some(at) = (0..truth.len().max(log.len())).find(|at| truth.get(*at) != log.get(*at)) {
                problems.push(format!(
                    "{resource} {at} of {}: it happened {:?}, the log has {:?}",
                    truth.len(),
                    truth.get(at),
                    log.get(at)
                ));
            }
        }
        problems.extend(self.places.outputs().into_iter().flat_map(|(_, output)| output.judge(&logs[0])));
        let terms = self.nodes.iter().map(Node::term).max().unwrap_or(0);
        if problems.is_empty() { Ok((terms, entries.len())) } else { Err(problems) }
    }
}

fn word(kind: sim::Kind) -> &'static str {
    match kind {
        sim::Kind::Added => "ADDED",
        sim::Kind::Modified => "MODIFIED",
        sim::Kind::Deleted => "DELETED",
    }
}

fn lines(dir: &std::path::Path) -> Vec<String> {
    let mut reader = Reader::open(dir).unwrap();
    let entries = reader.entries_after(Seq(0), 1_000_000, usize::MAX).unwrap();
    entries.iter().map(|entry| String::from_utf8(entry.line.to_vec()).unwrap()).collect()
}

fn simulate(seed: u64) -> Outcome {
    if std::env::var_os("DECKLOG_TRACE").is_some() {
        // Who looks for the cause of one seed wants to see what the parts say.
        drop(tracing_subscriber::fmt().with_env_filter("decklog=debug").without_time().try_init());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let clock: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let simulation = runtime::simulate(seed, clock);
        Box::pin(Run::new(seed, simulation).all()).await
    })
}

/// The promises of two: each epoch and seq once in the log, whoever leads, no gap where a standby was watching, and outputs by
/// their class.
#[test]
fn whatever_the_seed_two_have_one_log() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let first = number("DECKLOG_SEEDS_FROM").unwrap_or(1);
    let last = first + number("DECKLOG_SEEDS").unwrap_or(SEEDS) - 1;
    println!("DECKLOG_SEEDS_FROM={first} DECKLOG_SEEDS={}: seeds {first} to {last}", last - first + 1);
    let next = AtomicU64::new(first);
    let outcomes: Mutex<Vec<Outcome>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed > last || outcomes.lock().unwrap().iter().filter(|o| !o.problems.is_empty()).count() > 2 {
                        break;
                    }
                    let outcome = simulate(seed);
                    outcomes.lock().unwrap().push(outcome);
                }
            });
        }
    });
    let outcomes = outcomes.into_inner().unwrap();
    let failed: Vec<String> =
        outcomes.iter().filter(|o| !o.problems.is_empty()).flat_map(|o| o.problems.clone()).take(12).collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    let mut struck: BTreeMap<Trouble, usize> = BTreeMap::new();
    for outcome in &outcomes {
        for (trouble, count) in &outcome.struck {
            *struck.entry(*trouble).or_default() += count;
        }
    }
    let entries: usize = outcomes.iter().map(|outcome| outcome.entries).sum();
    let checkpoints: usize = outcomes.iter().map(|outcome| outcome.checkpoints).sum();
    println!("{entries} entries, {checkpoints} checkpoints judged by Tessera, {struck:?}");
    let known: BTreeSet<u64> = outcomes.iter().map(|outcome| outcome.seed).collect();
    assert_eq!(known.len() as u64, last - first + 1);
    if known.len() as u64 >= SEEDS {
        assert!(TROUBLES.iter().all(|trouble| struck.contains_key(trouble)), "{struck:?}");
        assert!(outcomes.iter().any(|outcome| outcome.terms > 3), "hardly anybody ever took over");
    }
}
