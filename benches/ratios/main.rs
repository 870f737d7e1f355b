//! How fast decklog is, each number as a ratio against a baseline that runs on the same machine in the same minutes.
//!
//! `cargo bench --all-features` prints one table, and those of `growth`, where decklog is compared with itself.
//! Processor time is measured for whole processes: what is measured runs as a child of this program, the simulated API
//! server in this program itself, so that its work does not count.

#![allow(clippy::too_many_lines, reason = "what it shares with tests tells a story in one place")]
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "the table goes to the terminal")]

mod auditing;
mod baseline;
mod change;
mod clusters;
mod drift;
mod evidence;
mod filter;
mod growth;
mod ingest;
mod journal;
mod memory;
mod path;
mod process;
mod quiet;
mod reading;
mod recovery;
mod rights;
mod sharing;
mod sinks;
mod table;
mod throughput;
mod timeline;

use decklog_testkit::support;
use std::path::Path;

use table::Table;

/// How often each thing is measured; the median counts.
const ROUNDS: usize = 3;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["child", "ingest", kubeconfig, from, events] => {
            ingest::ours(Path::new(kubeconfig), from, number(events));
        }
        ["child", "audit-noise", file] => auditing::noise(Path::new(file)),
        ["child", "ingest-kube", kubeconfig, from, events] => {
            baseline::ingest(Path::new(kubeconfig), from, number(events));
        }
        ["child", "path-kube", kubeconfig, dir, events, batch] => {
            baseline::path(Path::new(kubeconfig), Path::new(dir), number(events), number(batch));
        }
        _ => {
            let wanted = |name: &str| {
                let names: Vec<&&str> = words.iter().filter(|word| !word.starts_with('-')).collect();
                names.is_empty() || names.iter().any(|word| **word == name)
            };
            let mut table = Table::default();
            if wanted("ingest") {
                ingest::compare(&mut table);
            }
            if wanted("journal") {
                journal::compare(&mut table);
            }
            if wanted("reading") {
                reading::compare(&mut table);
            }
            if wanted("path") {
                path::compare(&mut table);
            }
            if wanted("evidence") {
                evidence::compare(&mut table);
            }
            if wanted("auditing") {
                auditing::compare(&mut table);
            }
            if wanted("drift") {
                drift::compare(&mut table);
            }
            if wanted("change") {
                change::compare(&mut table);
            }
            if wanted("filter") {
                filter::compare_costs(&mut table);
            }
            if wanted("sinks") {
                sinks::compare(&mut table);
            }
            if wanted("throughput") {
                throughput::compare(&mut table, &words);
            }
            if wanted("recovery") {
                recovery::compare(&mut table);
            }
            if wanted("memory") {
                memory::measure(&mut table);
            }
            if wanted("quiet") {
                quiet::measure(&mut table);
            }
            if wanted("rights") {
                rights::compare(&mut table);
            }
            if wanted("sharing") {
                sharing::compare(&mut table);
            }
            if wanted("clusters") {
                clusters::compare(&mut table);
            }
            if wanted("timeline") {
                timeline::compare(&mut table);
            }
            let growth = if wanted("growth") { growth::measure() } else { Vec::new() };
            table.print();
            growth.iter().for_each(Table::print);
        }
    }
}

fn number(text: &str) -> usize {
    text.parse().expect("a number from the parent")
}

/// The middle one of some measurements.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
