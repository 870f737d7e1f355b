//! What a filter costs for each entry.

use std::hint::black_box;

use decklog::change::compare;
use decklog::filter::Filter;
use decklog::model::{Cluster, EntryType, Seq};
use decklog::sim::Sim;
use decklog::wire;
use serde_json::Value;

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
            let draft = wire::Draft {
                seq: Seq(index as u64 + 1),
                epoch: "01997d0e-0000-7000-8000-000000000000",
                time: "2026-11-21T00:00:00.000000Z",
                kind: EntryType::Modified,
                evidence: None,
                cluster: &cluster,
                api_version: "v1",
                kind_name: "Pod",
                resource: "pods",
                namespace: &new.namespace,
                name: &new.name,
                uid: &new.uid,
                version: &version,
                change: Some(&change.json),
                object: Some(&object),
                gap: None,
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
