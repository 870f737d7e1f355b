//! What a filter costs for each entry.

use std::hint::black_box;

use decklog::core::change::compare;
use decklog::core::filter::Filter;
use decklog::core::model::{Cluster, EntryType, Seq};
use decklog::core::wire;
use decklog::journal::{EntryFilter, Reader};
use decklog::sim::Sim;
use serde_json::Value;

use super::journal;
use super::process::own_seconds;
use super::table::Table;
use super::{ROUNDS, median};

const OBJECTS: usize = 2_000;

const FILTERS: [(&str, &str); 3] = [
    ("identity", r#"kind == "Pod" && namespace == "bulk" && type != "GAP""#),
    ("the areas", r#""spec" in change.areas || size(change.areas) > 0"#),
    ("the whole object", r#"object.exists(key, key == "status")"#),
];

pub(super) fn compare_costs(table: &mut Table) {
    let lines = entries();
    let per_entry = |measured: Vec<f64>| median(measured) / lines.len() as f64 * 1e6;
    let baseline = per_entry(
        (0..ROUNDS)
            .map(|_| {
                timed(|| {
                    for line in &lines {
                        black_box(serde_json::from_slice::<Value>(line).expect("an entry"));
                    }
                })
            })
            .collect(),
    );
    for (what, text) in FILTERS {
        let filter = Filter::compile(text).expect("a filter");
        let ours = per_entry(
            (0..ROUNDS)
                .map(|_| {
                    timed(|| {
                        for line in &lines {
                            assert!(filter.matches(line).expect("an answer"), "each of them passes");
                        }
                    })
                })
                .collect(),
        );
        table.row(
            &format!("`where` on {what}, for an entry of a Pod of 8 KB"),
            format!("{ours:.2} µs"),
            &format!("`serde_json::Value` of the entry: {baseline:.2} µs"),
            format!("1/{:.1}", baseline / ours),
            "",
        );
    }
    pass_over(table);
}

/// What it costs to pass over the entries of a journal that is on disk, as a sink does that is behind, or a command.
fn pass_over(table: &mut Table) {
    let dir = tempfile::tempdir().expect("a directory for the bench");
    let versions = journal::versions(journal::BATCHES);
    journal::journal(dir.path(), &versions);
    let entries = versions.iter().map(Vec::len).sum::<usize>() as f64;
    let filter = Filter::compile(r#"kind == "Pod" && namespace == "another""#).expect("a filter");
    let passes = |line: &[u8]| filter.matches(line).expect("an answer");
    let read = |choose: bool| {
        let mut reader = Reader::open(dir.path()).expect("a journal");
        timed(|| {
            let mut after = Seq(0);
            loop {
                let choice = choose.then_some(&passes as EntryFilter<'_>);
                let page = reader.deliverable_after(after, 500, 1 << 20, choice).expect("a page");
                assert!(page.entries.iter().all(|entry| !passes(&entry.line)), "none of them passes");
                let Some((_, last)) = page.looked_at else { break };
                after = last;
            }
        }) / entries
            * 1e6
    };
    let (mut by_row, mut by_line) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        by_row.push(read(true));
        by_line.push(read(false));
    }
    let (by_row, by_line) = (median(by_row), median(by_line));
    table.row(
        "`where` on identity, for an entry on disk that it leaves out",
        format!("{by_row:.2} µs, by its row"),
        &format!("the entry put together, then asked: {by_line:.2} µs"),
        format!("1/{:.1}", by_line / by_row),
        "",
    );
}

/// Entries of changed Pods, as sinks get them.
fn entries() -> Vec<Vec<u8>> {
    let sim = tokio::runtime::Runtime::new().expect("a runtime").block_on(Sim::start()).expect("a port");
    sim.bulk_pods(OBJECTS).expect("Pods are served");
    sim.touch_bulk(OBJECTS);
    let history = sim.history_of("pods");
    let (old, new) = history.split_at(OBJECTS);
    let cluster = Cluster { name: "bench".to_owned(), uid: "00000000-0000-4000-8000-000000000000".to_owned() };
    old.iter()
        .zip(new)
        .enumerate()
        .map(|(index, (old, new))| {
            let (object, version) = (new.bytes(), new.revision.to_string());
            let change = compare(&old.bytes(), &object, &[], &[]).expect("objects");
            let draft = wire::EntryBuilder {
                seq: Seq(index as u64 + 1),
                epoch: "01997d0e-0000-7000-8000-000000000000",
                time: "2026-11-21T00:00:00.000000Z",
                happened: None,
                happened_between: None,
                op: EntryType::Modified,
                evidence: None,
                cluster: &cluster,
                api_version: "v1",
                kind: "Pod",
                resource: "pods",
                namespace: &new.namespace,
                name: &new.name,
                uid: &new.uid,
                version: &version,
                managers: None,
                change: Some(&change.json),
                object: Some(&object),
                gap: None,
                actor: None,
                redacted: &[],
            };
            wire::render(&draft).line
        })
        .collect()
}

fn timed(work: impl FnOnce()) -> f64 {
    let begun = own_seconds();
    work();
    own_seconds() - begun
}
