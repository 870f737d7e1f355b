//! What every part of a simulation shares: the dice for faults, which faults there are, what has happened so far.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::hash::{DefaultHasher, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use decklog::core::model::Seq;
use decklog::core::runtime::watch;
use tokio::time::Instant;

use super::faults::{Counts, Fault};
use crate::dice::Dice;

/// Something that allows one GAP of a source: with this head of the journal, changes may have been lost.
#[derive(Clone, Debug)]
pub struct Reason {
    /// As the source is called in status: `pods`, `pods/shop`.
    pub source: String,
    pub why: &'static str,
    pub head: u64,
}

/// etcd has forgotten what was before this version.
#[derive(Clone, Copy, Debug)]
pub struct Compaction {
    pub before: u64,
    pub head: u64,
}

pub struct Stage {
    began: Instant,
    verbose: bool,
    inner: Mutex<Inner>,
}

struct Inner {
    dice: Dice,
    enabled: BTreeSet<Fault>,
    /// How many of a hundred requests meet a fault.
    weather: usize,
    counts: Counts,
    hash: DefaultHasher,
    head: Option<watch::Receiver<Seq>>,
    reasons: Vec<Reason>,
    compactions: Vec<Compaction>,
    /// Texts in lines of watches that are garbled whenever they come.
    poison: Vec<String>,
    failures: Vec<String>,
    /// Nothing goes wrong any more.
    over: bool,
    /// The journal's disk stands still until then.
    stalled: Option<Instant>,
    /// When something first happened in this life.
    moments: BTreeMap<String, Instant>,
}

impl Stage {
    pub fn new(seed: u64, verbose: bool, enabled: BTreeSet<Fault>) -> Self {
        let inner = Inner {
            dice: Dice::new(seed, "stage"),
            enabled,
            weather: 0,
            counts: Counts::default(),
            hash: DefaultHasher::new(),
            head: None,
            reasons: Vec::new(),
            compactions: Vec::new(),
            poison: Vec::new(),
            failures: Vec::new(),
            over: false,
            stalled: None,
            moments: BTreeMap::new(),
        };
        Self { began: Instant::now(), verbose, inner: Mutex::new(inner) }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long the simulation has run, in its own time.
    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Throws the dice that all faults share.
    pub fn throw<T>(&self, throw: impl FnOnce(&mut Dice) -> T) -> T {
        throw(&mut self.lock().dice)
    }

    /// Writes a line of the trace. The same seed writes the same lines.
    pub fn note(&self, what: fmt::Arguments<'_>) {
        let line = format!("{:>11.3} {what}", self.elapsed().as_secs_f64());
        // The directory has a name by chance.
        for (at, part) in line.split(super::DIRECTORY).enumerate() {
            let rest = part.split_once('/').filter(|_| at > 0).map_or(part, |(_, rest)| rest);
            self.lock().hash.write(rest.as_bytes());
        }
        if self.verbose {
            super::print(&line);
        }
    }

    /// What the trace and `more` come to.
    pub fn digest(&self, more: &[u8]) -> u64 {
        let mut hash = self.lock().hash.clone();
        hash.write(more);
        hash.finish()
    }

    /// From here on so many of a hundred requests meet a fault; 0 heals everything that can be healed.
    pub fn set_weather(&self, weather: usize) {
        let mut inner = self.lock();
        inner.weather = weather;
        if weather == 0 {
            inner.poison.clear();
        }
    }

    pub fn is_calm(&self) -> bool {
        self.lock().weather == 0
    }

    /// From here on everything is well.
    pub fn end(&self) {
        self.set_weather(0);
        self.lock().over = true;
    }

    /// The journal's disk stands still for so long.
    pub fn stall(&self, time: Duration) {
        self.lock().stalled = Some(Instant::now() + time);
    }

    /// How much longer the journal's disk stands still.
    pub fn stalled(&self) -> Option<Duration> {
        self.lock().stalled.map(|until| until.saturating_duration_since(Instant::now())).filter(|left| !left.is_zero())
    }

    pub fn is_over(&self) -> bool {
        self.lock().over
    }

    pub fn enables(&self, fault: Fault) -> bool {
        self.lock().enabled.contains(&fault)
    }

    /// One of these faults, if the weather is bad enough and it is enabled.
    pub fn draw(&self, among: &[Fault]) -> Option<Fault> {
        let mut inner = self.lock();
        let weather = inner.weather;
        if !inner.dice.percent(weather) {
            return None;
        }
        let possible: Vec<Fault> = among.iter().copied().filter(|fault| inner.enabled.contains(fault)).collect();
        (!possible.is_empty()).then(|| *inner.dice.pick(&possible))
    }

    /// A fault has struck.
    pub fn struck(&self, fault: Fault, where_to: fmt::Arguments<'_>) {
        self.lock().counts.add(fault, 1);
        self.note(format_args!("  *** {}: {where_to}", fault.name()));
    }

    pub fn counts(&self) -> Counts {
        self.lock().counts.clone()
    }

    /// The journal whose head counts from here on.
    pub fn follow(&self, head: watch::Receiver<Seq>) {
        let mut inner = self.lock();
        inner.head = Some(head);
        // What a life before this one was told, it may have taken with it.
        inner.moments.clear();
        inner.moments.insert("start".to_owned(), Instant::now());
    }

    /// This happens now; only the first time in a life counts.
    pub fn moment(&self, what: &str) {
        let mut inner = self.lock();
        if !inner.moments.contains_key(what) {
            inner.moments.insert(what.to_owned(), Instant::now());
        }
    }

    /// When this first happened in this life.
    pub fn when(&self, what: &str) -> Option<Instant> {
        self.lock().moments.get(what).copied()
    }

    /// The newest seq on disk.
    pub fn head(&self) -> u64 {
        self.lock().head.as_ref().map_or(0, |head| head.borrow().0)
    }

    /// Changes of this source may have been lost.
    pub fn may_lose(&self, source: &str, why: &'static str) {
        let head = self.head();
        self.lock().reasons.push(Reason { source: source.to_owned(), why, head });
    }

    /// etcd forgets what was before this version.
    pub fn compacts(&self, before: u64) {
        let head = self.head();
        self.lock().compactions.push(Compaction { before, head });
    }

    /// etcd is put back to this version, and what it had forgotten after it comes again.
    pub fn restores(&self, to: u64) {
        for compaction in &mut self.lock().compactions {
            compaction.before = compaction.before.min(to);
        }
    }

    pub fn compactions(&self) -> Vec<Compaction> {
        self.lock().compactions.clone()
    }

    /// This source was told that its position is too old.
    pub fn expired(&self, source: &str) {
        self.may_lose(source, "expired");
    }

    pub fn reasons(&self) -> Vec<Reason> {
        self.lock().reasons.clone()
    }

    /// Lines with this text cannot be decoded from now on, however often they come.
    pub fn poison(&self, text: String) {
        self.lock().poison.push(text);
    }

    pub fn is_poisoned(&self, line: &[u8]) -> bool {
        self.lock().poison.iter().any(|text| memchr::memmem::find(line, text.as_bytes()).is_some())
    }

    /// Something that must never happen.
    pub fn fail(&self, text: impl Into<String>) {
        let text = text.into();
        self.note(format_args!("  !!! {text}"));
        self.lock().failures.push(text);
    }

    pub fn failures(&self) -> Vec<String> {
        self.lock().failures.clone()
    }
}
