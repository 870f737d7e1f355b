//! Deterministic simulation: the real sources, journal, delivery and sinks against the simulated API server, in one
//! thread, by a clock that nobody waits for, with every decision from one seed. See tests/README.md.

#![allow(clippy::too_many_lines, reason = "a test tells its story in one place")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod exact;

use decklog_testkit::simulation as run;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use run::class::Class;
use run::faults::Counts;
use run::{Outcome, simulate};

/// So many seeds are run, unless `DECKLOG_SEEDS` says how many, from the first or `DECKLOG_SEEDS_FROM` on.
const SEEDS: u64 = 200;

/// Faults 1 to 6, 8 to 11, 13 to 15, 18, 23 to 25, 29, 37, 38, 47, 56, 59 to 61, 63, 64 and 96: in any mixture, at any
/// moment, before every judge.
#[test]
fn whatever_the_seed_the_log_is_the_truth() {
    run::questions::PROGRAM.get_or_init(|| env!("CARGO_BIN_EXE_decklog").into());
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let first = number("DECKLOG_SEEDS_FROM").unwrap_or(1);
    let last = first + number("DECKLOG_SEEDS").unwrap_or(SEEDS) - 1;
    println!("DECKLOG_SEEDS_FROM={first} DECKLOG_SEEDS={}: seeds {first} to {last}", last - first + 1);
    let next = AtomicU64::new(first);
    let outcomes: Mutex<Vec<Outcome>> = Mutex::default();
    std::thread::scope(|scope| {
        for half in 0..2 {
            let worker = std::thread::Builder::new().name(format!("seeds-{half}"));
            worker
                .spawn_scoped(scope, || {
                    loop {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        if seed > last || outcomes.lock().unwrap().iter().filter(|o| !o.failures.is_empty()).count() > 2
                        {
                            break;
                        }
                        let outcome = simulate(seed, false);
                        outcomes.lock().unwrap().push(outcome);
                    }
                })
                .unwrap();
        }
    });
    let outcomes = outcomes.into_inner().unwrap();
    let failed: Vec<String> = outcomes.iter().filter(|o| !o.failures.is_empty()).map(Outcome::report).collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    let mut counts = Counts::default();
    for outcome in &outcomes {
        assert!(outcome.events >= outcome.class.events(), "{outcome:?}");
        counts.join(&outcome.counts);
    }
    println!("{}", counts.table());
    assert_eq!(counts.missing(), Vec::<&str>::new(), "a kind of fault that never struck proves nothing");
    for class in Class::ALL {
        assert!(outcomes.iter().any(|outcome| outcome.class == class), "no seed is of the class {}", class.name());
    }
    assert!(outcomes.iter().any(|outcome| outcome.clean), "no run was clean");
    assert!(outcomes.iter().any(|outcome| outcome.gaps > 0), "no run had a gap");
}

/// The same seed does it all again, to the last byte of the log.
/// A watch channel of tokio, work on another thread and the order of a hash map each turned this red.
#[test]
fn a_seed_replays() {
    for seed in 1..=16 {
        let (first, second) = (simulate(seed, false), simulate(seed, false));
        assert_ne!(first.digest, 0, "{}", first.report());
        assert_eq!(first.digest, second.digest, "seed {seed}");
    }
    assert_ne!(simulate(1, false).digest, simulate(2, false).digest);
}
