//! Runs simulations: `--seed N` shows one in all detail, `--seeds N [--from M]` searches for one that fails; with
//! `--class NAME` only among those of a class. `--all` also lets strike what is known and awaits its repair, and
//! `--only FAULT` one kind of that.

#![allow(clippy::too_many_lines, reason = "what it shares with tests tells a story in one place")]
#![allow(clippy::print_stdout, reason = "what it finds is for whoever runs it")]

use decklog_testkit::simulation as run;
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use run::Outcome;
use run::class::Class;
use run::faults::{Counts, Fault};

const USAGE: &str =
    "usage: simulate --seed N | --seeds N [--from M] [--threads T] [--class NAME] [--all | --only FAULT]";

fn main() -> ExitCode {
    if std::env::var_os("RUST_LOG").is_some() {
        tracing_subscriber::fmt().with_env_filter(tracing_subscriber::EnvFilter::from_default_env()).init();
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |flag: &str| {
        let at = arguments.iter().position(|argument| argument == flag)?;
        arguments.get(at + 1)?.parse::<u64>().ok()
    };
    let text = |flag: &str| {
        let at = arguments.iter().position(|argument| argument == flag)?;
        arguments.get(at + 1).cloned()
    };
    if arguments.iter().any(|argument| argument == "--all") {
        run::faults::show(Fault::ALL.to_vec());
    }
    if let Some(name) = text("--only") {
        run::faults::show(Fault::ALL.iter().copied().filter(|fault| format!("{fault:?}") == name).collect());
    }
    let class = text("--class").map(|name| Class::ALL.into_iter().find(|class| class.name() == name));
    match (number("--seed"), number("--seeds")) {
        _ if class == Some(None) => {
            println!("the classes are {}", Class::ALL.map(Class::name).join(", "));
            ExitCode::from(64)
        }
        (Some(seed), None) => one(seed),
        (None, Some(seeds)) => {
            let (from, threads) = (number("--from").unwrap_or(1), number("--threads").unwrap_or(2));
            many(from, seeds, threads, class.flatten())
        }
        _ => {
            println!("{USAGE}");
            ExitCode::from(64)
        }
    }
}

fn one(seed: u64) -> ExitCode {
    let outcome = run::simulate(seed, true);
    println!("{}", outcome.counts.table());
    println!(
        "seed {seed} ({}): {} events, {} entries, {} gaps, {} lives, {:?} of its own time, digest {:016x}",
        outcome.class.name(),
        outcome.events,
        outcome.entries,
        outcome.gaps,
        outcome.lives,
        outcome.took,
        outcome.digest
    );
    if outcome.failures.is_empty() {
        return ExitCode::SUCCESS;
    }
    println!("{}", outcome.report());
    ExitCode::FAILURE
}

fn many(from: u64, seeds: u64, threads: u64, only: Option<Class>) -> ExitCode {
    let (next, end, failed) = (AtomicU64::new(from), from.saturating_add(seeds), AtomicBool::new(false));
    let (counts, done, events) = (Mutex::new(Counts::default()), AtomicU64::new(0), AtomicU64::new(0));
    let spent = Mutex::new(Spent::default());
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            let work = || {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        break;
                    }
                    if only.is_some_and(|class| class != Class::of(seed)) {
                        continue;
                    }
                    let start = Instant::now();
                    let outcome = run::simulate(seed, false);
                    spent.lock().unwrap_or_else(std::sync::PoisonError::into_inner).add(&outcome, start.elapsed());
                    counts.lock().unwrap_or_else(std::sync::PoisonError::into_inner).join(&outcome.counts);
                    events.fetch_add(outcome.events as u64, Ordering::Relaxed);
                    let done = done.fetch_add(1, Ordering::Relaxed) + 1;
                    if !outcome.failures.is_empty() {
                        failed.store(true, Ordering::Relaxed);
                        println!("{}", outcome.report());
                    }
                    if done.is_multiple_of(100) {
                        println!("{done} seeds in {:.0?}", began.elapsed());
                    }
                }
            };
            if let Err(error) = std::thread::Builder::new().name("seeds".to_owned()).spawn_scoped(scope, work) {
                println!("cannot start a thread: {error}");
            }
        }
    });
    let failed = failed.into_inner();
    println!("{}", counts.into_inner().unwrap_or_default().table());
    println!("{}", spent.into_inner().unwrap_or_default().table());
    println!(
        "seeds {from} to {}: {} run, {} events, {:.0?}: {}",
        end - 1,
        done.into_inner(),
        events.into_inner(),
        began.elapsed(),
        if failed { "some failed, see above" } else { "none failed" }
    );
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// What the seeds of each class have cost.
#[derive(Default)]
struct Spent(BTreeMap<&'static str, Cost>);

#[derive(Default)]
struct Cost {
    seeds: u32,
    failed: u32,
    time: Duration,
    judging: Duration,
    /// The most requests that a source had within three seconds.
    most: usize,
}

impl Spent {
    fn add(&mut self, outcome: &Outcome, time: Duration) {
        let cost = self.0.entry(outcome.class.name()).or_default();
        cost.seeds += 1;
        cost.failed += u32::from(!outcome.failures.is_empty());
        cost.time += time;
        cost.judging += outcome.judging;
        cost.most = outcome.most.max(cost.most);
    }

    fn table(&self) -> String {
        let line = |(name, Cost { seeds, failed, time, judging, most }): (&&str, &Cost)| {
            let judging = 100 * judging.as_millis() / time.as_millis().max(1);
            let each = *time / *seeds;
            format!(
                "{seeds:>9}  {name}: {failed} failed, {each:.0?} each ({judging} % judging), at most {most} requests"
            )
        };
        self.0.iter().map(line).collect::<Vec<_>>().join("\n")
    }
}
