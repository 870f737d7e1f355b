//! What decklog costs a real control plane, and how fast it recovers there, beside other clients in the same run.
//!
//! `cargo bench --all-features --bench real` prints the tables of docs/performance.md. After `--` come those that are wanted (`cost`,
//! `audit`, `recovery`, `absence`, `lag`), the minors (`1.36`, `1.33`; the newer one by itself), the number of rounds of `cost` (`rounds=1`; three by
//! themselves) and that of the objects of `recovery` (`objects=100000`; 1,000 by themselves).
//! Processor time is that of the servers' processes: programs beside them make it longer, but not those of one client alone.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a bench says what it does and finds"
)]
#![allow(unreachable_pub, missing_docs, dead_code, unused_imports, reason = "it has a part of what the tests have")]

#[path = "bench/clients.rs"]
mod clients;
#[path = "bench/cost.rs"]
mod cost;
mod decklog;
mod harness;
#[path = "bench/lag.rs"]
mod lag;
mod oracle;
#[path = "bench/recovery.rs"]
mod recovery;
#[path = "../../benches/ratios/table.rs"]
mod table;

use decklog_testkit::{judge, ports};

use harness::Version;

#[tokio::main(worker_threads = 2)]
async fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let has = |wanted: &str| words.iter().any(|word| word == wanted);
    let wanted = |name: &str| has(name) || !["cost", "audit", "recovery", "absence", "lag"].into_iter().any(has);
    let number = |name: &str, or: usize| {
        words.iter().find_map(|word| word.strip_prefix(name)).map_or(or, |text| text.parse().unwrap())
    };
    let (rounds, objects) = (number("rounds=", 3), number("objects=", 1_000));
    let mut versions = Vec::new();
    if has("1.36") || !has("1.33") {
        versions.push(Version::V1_36);
    }
    if has("1.33") {
        versions.push(Version::V1_33);
    }
    let mut tables = Vec::new();
    for version in versions {
        if wanted("cost") {
            tables.push(Box::pin(cost::measure(version, rounds)).await);
        }
        if wanted("lag") {
            tables.push(Box::pin(lag::measure(version)).await);
        }
        if wanted("audit") {
            tables.push(Box::pin(cost::audit(version)).await);
        }
        let mut recovered = recovery::table(version);
        if wanted("recovery") {
            Box::pin(recovery::restarted(version, objects, &mut recovered)).await;
        }
        if wanted("absence") {
            Box::pin(recovery::living(version, &mut recovered)).await;
        }
        tables.push(recovered);
    }
    tables.iter().for_each(table::Table::print);
}

/// The middle one of some measurements, or what is between the two in the middle.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let (low, high) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
    f64::midpoint(low, high)
}
