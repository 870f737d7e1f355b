//! Runs simulations: `--seed N` shows one in all detail, `--seeds N [--from M]` searches for one that fails.
#![allow(clippy::print_stdout, reason = "what it finds is for whoever runs it")]

#[path = "../tests/simulation/run.rs"]
mod run;

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use run::faults::Counts;

const USAGE: &str = "usage: simulate --seed N | --seeds N [--from M] [--threads T]";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |flag: &str| {
        let at = arguments.iter().position(|argument| argument == flag)?;
        arguments.get(at + 1)?.parse::<u64>().ok()
    };
    match (number("--seed"), number("--seeds")) {
        (Some(seed), None) => one(seed),
        (None, Some(seeds)) => many(number("--from").unwrap_or(1), seeds, number("--threads").unwrap_or(2)),
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
        "seed {seed}: {} events, {} entries, {} gaps, {} lives, {:?} of its own time, digest {:016x}",
        outcome.events, outcome.entries, outcome.gaps, outcome.lives, outcome.took, outcome.digest
    );
    if outcome.failures.is_empty() {
        return ExitCode::SUCCESS;
    }
    println!("{}", outcome.report());
    ExitCode::FAILURE
}

fn many(from: u64, seeds: u64, threads: u64) -> ExitCode {
    let (next, end, failed) = (AtomicU64::new(from), from.saturating_add(seeds), AtomicBool::new(false));
    let (counts, done, events) = (Mutex::new(Counts::default()), AtomicU64::new(0), AtomicU64::new(0));
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            let work = || {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        break;
                    }
                    let outcome = run::simulate(seed, false);
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
