//! What a change costs: the difference of two versions against a library's, a change of nothing against one of
//! something, and what a change takes in the journal.

use std::collections::HashMap;
use std::hint::black_box;
use std::path::Path;

use decklog::core::change::compare_shaped;
use decklog::core::model::{Observed, Redacted, ResourceVersion, SourceSpec, Verb};
use decklog::journal::{Journal, WatchChange};
use decklog::sim::{Row, Sim, objects};
use serde_json::{Value, json};

use super::ingest::pods;
use super::process::own_seconds;
use super::table::Table;
use super::{ROUNDS, median};

const LEASES: &str = "leases.coordination.k8s.io";
const OBJECTS: usize = 200;
const VERSIONS: usize = 50;
const BATCH: usize = 100;

pub(super) fn compare(table: &mut Table) {
    differences(table, "Pods of 8 KB", &pod_versions(), "15x");
    differences(table, "Leases", &lease_versions(), "4x");
    costs(table);
}

/// The versions of each object, one after the other.
type Lives = Vec<Vec<Vec<u8>>>;

fn differences(table: &mut Table, what: &str, lives: &Lives, target: &str) {
    let parse = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).expect("JSON");
    let parsed: Vec<Vec<Value>> = lives.iter().map(|life| life.iter().map(|bytes| parse(bytes)).collect()).collect();
    let changes = lives.iter().map(|life| life.len() - 1).sum::<usize>();
    let (mut ours, mut ready, mut all) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        ready.push(timed(|| {
            for pair in parsed.iter().flat_map(|life| life.windows(2)) {
                black_box(json_patch::diff(&pair[0], &pair[1]));
            }
        }));
        all.push(timed(|| {
            for pair in lives.iter().flat_map(|life| life.windows(2)) {
                let patch = json_patch::diff(&parse(&pair[0]), &parse(&pair[1]));
                black_box(serde_json::to_string(&patch).expect("JSON"));
            }
        }));
        ours.push(timed(|| {
            // As the journal does it: where the values of the version before stand is known from the last time.
            for life in lives {
                let mut shape = None;
                for pair in life.windows(2) {
                    let (change, next) = compare_shaped(&pair[0], shape.as_ref(), &pair[1], &[], &[]).expect("objects");
                    black_box(change);
                    shape = Some(next);
                }
            }
        }));
    }
    let (ours, ready, all) = (median(ours), median(ready), median(all));
    let each = |seconds: f64| seconds / changes as f64 * 1e6;
    let mut row = |what: &str, baseline: &str, theirs: f64, target: &str| {
        table.row(
            what,
            format!("{:.1} µs, from the bytes, with areas and managers", each(ours)),
            &format!("{baseline}: {:.1} µs", each(theirs)),
            format!("{:.1}x", theirs / ours),
            target,
        );
    };
    // Ours goes from bytes to bytes, as the second baseline does; the first one leaves out reading and printing.
    row(&format!("difference of two versions, {what}"), "`json_patch::diff` on values parsed before", ready, target);
    row("the same", "parse both, `json_patch::diff`, print", all, target);
}

fn costs(table: &mut Table) {
    let lives = pod_versions();
    let still: Lives = lives.iter().map(|life| (0..life.len()).map(|turn| moved(&life[0], turn)).collect()).collect();
    let base: Lives = lives.iter().map(|life| life[..1].to_vec()).collect();
    let changes = (OBJECTS * VERSIONS) as f64;
    let (mut changed, mut nothing, mut suppressed, mut size) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let (seconds, bytes) = journal(&lives, &[]);
        changed.push(seconds);
        size.push((bytes - journal(&base, &[]).1) / changes);
        nothing.push(journal(&still, &[]).0);
        suppressed.push(journal(&still, &["managed-fields"]).0);
    }
    let (changed, size) = (median(changed), median(size));
    let each = |seconds: f64| seconds / changes * 1e6;
    for (what, seconds, target) in [
        ("change of nothing but resourceVersion in the journal, processor time", median(nothing), "1/5"),
        ("the same, where `ignore` suppresses it", median(suppressed), "1/4"),
    ] {
        table.row(
            what,
            format!("{:.1} µs", each(seconds)),
            &format!("a change of a Pod of 8 KB: {:.1} µs", each(changed)),
            format!("1/{:.1}", changed / seconds),
            target,
        );
    }
    let whole = lives.iter().flatten().map(Vec::len).sum::<usize>() as f64 / lives.iter().flatten().count() as f64;
    table.row(
        "journal on disk, for each change of a Pod of 8 KB",
        format!("{size:.0} bytes"),
        &format!("the Pod as JSON: {whole:.0} bytes"),
        format!("1/{:.0}", whole / size),
        "600 bytes",
    );
}

/// Puts every version into a journal of its own, in the order of their versions; gives the processor time for what
/// comes after the first version of each, and the bytes on disk at the end.
fn journal(lives: &Lives, ignore: &[&str]) -> (f64, f64) {
    let dir = tempfile::tempdir().expect("a directory for the bench");
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let seconds = runtime.block_on(async {
        let (journal, thread) = Journal::open(dir.path()).expect("an empty journal");
        let ignore = ignore.iter().map(|&text| text.to_owned()).collect();
        let source = journal.source(&SourceSpec { ignore, ..spec() }).await.expect("a source").0;
        // What is measured is the journal and not the making of what comes.
        let turns: Vec<Vec<Vec<WatchChange>>> = (0..lives[0].len())
            .map(|turn| {
                let changes = lives.iter().enumerate();
                let changes: Vec<WatchChange> = changes
                    .map(|(index, life)| WatchChange { verb: Verb::Upsert, object: observed(index, turn, &life[turn]) })
                    .collect();
                changes.chunks(BATCH).map(<[_]>::to_vec).collect()
            })
            .collect();
        let mut begun = 0.0;
        for (turn, batches) in turns.into_iter().enumerate() {
            if turn == 1 {
                begun = own_seconds();
            }
            for batch in batches {
                source.append(batch).await.expect("room");
                journal.flush().await.expect("a commit");
            }
        }
        let seconds = own_seconds() - begun;
        drop((journal, source));
        thread.join().expect("a clean end");
        seconds
    });
    (seconds, bytes_in(dir.path()))
}

fn observed(index: usize, turn: usize, bytes: &[u8]) -> Observed {
    Observed {
        namespace: "bulk".to_owned(),
        name: format!("bulk-{index:07}"),
        uid: format!("00000000-0000-4000-8000-{index:012}"),
        version: ResourceVersion::new((1000 + turn * OBJECTS + index).to_string()),
        body: Redacted { bytes: bytes.to_vec(), pointers: Vec::new(), marks: Vec::new() },
    }
}

fn bytes_in(dir: &Path) -> f64 {
    let files = std::fs::read_dir(dir).expect("the journal's directory");
    files.map(|file| file.and_then(|file| file.metadata()).expect("a file").len()).sum::<u64>() as f64
}

fn pod_versions() -> Lives {
    let sim = cluster();
    sim.bulk_pods(OBJECTS).expect("Pods are served");
    for _ in 0..VERSIONS {
        sim.touch_bulk(OBJECTS);
    }
    lives(sim.history_of("pods").iter().map(AsRef::as_ref))
}

fn lease_versions() -> Lives {
    let sim = cluster();
    let names: Vec<String> = (0..OBJECTS).map(|index| format!("node-{index}")).collect();
    for name in &names {
        sim.create(LEASES, objects::lease("default", name)).expect("Leases are served");
    }
    for name in names.iter().cycle().take(OBJECTS * VERSIONS) {
        sim.update(LEASES, "default", name, |lease| {
            lease["spec"]["renewTime"] = objects::micro_now().into();
            let fields = json!({ "spec": { "renewTime": {} } });
            objects::touch(lease, "kubelet", "Update", "coordination.k8s.io/v1", "", &fields);
        })
        .expect("the Lease is there");
    }
    lives(sim.history_of(LEASES).iter().map(AsRef::as_ref))
}

fn cluster() -> Sim {
    tokio::runtime::Runtime::new().expect("a runtime").block_on(Sim::start()).expect("a port")
}

fn lives<'a>(history: impl Iterator<Item = &'a Row>) -> Lives {
    let mut lives: HashMap<String, Vec<Vec<u8>>> = HashMap::new();
    for row in history {
        lives.entry(row.name.to_string()).or_default().push(row.bytes().to_vec());
    }
    let lives: Lives = lives.into_values().collect();
    assert!(lives.len() == OBJECTS && lives.iter().all(|life| life.len() == VERSIONS + 1), "a history is not whole");
    lives
}

/// The same object at another resourceVersion.
fn moved(bytes: &[u8], turn: usize) -> Vec<u8> {
    const KEY: &str = "\"resourceVersion\":\"";
    let text = std::str::from_utf8(bytes).expect("JSON is UTF-8");
    let begin = text.find(KEY).expect("a resourceVersion") + KEY.len();
    let end = begin + text[begin..].find('"').expect("its end");
    format!("{}{}{}", &text[..begin], 100_000 + turn, &text[end..]).into_bytes()
}

fn timed(work: impl FnOnce()) -> f64 {
    let begun = own_seconds();
    work();
    own_seconds() - begun
}

fn spec() -> SourceSpec {
    SourceSpec::of(pods())
}
