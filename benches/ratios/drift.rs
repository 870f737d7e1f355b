//! Passes over a long log of what Argo CD delivers and people change: `churn` beside `verify`, and `drift` beside `churn`.

use std::fs;

use decklog::core::model::{Observed, Redacted, ResourceVersion, Verb};
use decklog::journal::{Journal, WatchChange};
use tokio::runtime::Runtime;

use super::process;
use super::table::{Table, thousands};
use super::throughput::{config_maps, spec};
use super::{ROUNDS, median};

const ENTRIES: usize = 1_000_000;
const OBJECTS: usize = 1_000;
const BATCH: usize = 1_000;
/// One of so many versions of an object is of somebody else, and the next one restores it.
const FOREIGN: usize = 100;

pub(super) fn compare(table: &mut Table) {
    let dir = tempfile::tempdir().expect("a directory");
    Runtime::new().expect("a runtime").block_on(async {
        fs::create_dir_all(dir.path()).expect("space");
        let (journal, thread) = Journal::open(dir.path()).expect("an empty journal");
        let source = journal.source(&spec(config_maps())).await.expect("a source").0;
        for first in (0..ENTRIES).step_by(BATCH) {
            source.append((first..first + BATCH).map(change).collect()).await.expect("room");
        }
        journal.flush().await.expect("a commit");
        drop((journal, source));
        thread.join().expect("a clean end");
    });
    let (mut drift, mut churn, mut verify) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        verify.push(process::command(dir.path(), &["verify"]).1);
        churn.push(process::command(dir.path(), &["churn", "--since", "1d"]).1);
        let (said, took, _) = process::command(dir.path(), &["drift", "--since", "1d"]);
        assert!(said.contains("kubectl-edit"), "{said}");
        drift.push(took);
    }
    let (drift, churn, verify) = (median(drift), median(churn), median(verify));
    table.row(
        &format!("`churn` over {} entries", thousands(ENTRIES)),
        format!("{churn:.1} s"),
        &format!("`verify` of the same: {verify:.1} s"),
        format!("{:.1}", churn / verify),
        "6 s",
    );
    table.row(
        &format!("`drift` over {} entries, of which {} are drifts", thousands(ENTRIES), thousands(ENTRIES / FOREIGN)),
        format!("{drift:.1} s"),
        &format!("`churn`: {churn:.1} s"),
        format!("{:.1}", drift / churn),
        "",
    );
}

fn change(index: usize) -> WatchChange {
    let (object, turn, version) = (index % OBJECTS, index / OBJECTS, index + 1);
    // The value of the tool is the same all the time; one beside it, of nobody, changes with each version.
    let (value, manager, operation) = if turn % FOREIGN == FOREIGN - 1 {
        ("by hand", "kubectl-edit", "Update")
    } else {
        ("as delivered", "argocd-controller", "Apply")
    };
    let bytes = format!(
        r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"name":"map-{object}","namespace":"shop","uid":"00000000-0000-4000-8000-{object:012}","resourceVersion":"{version}","creationTimestamp":"2026-01-01T00:00:00Z","annotations":{{"argocd.argoproj.io/tracking-id":"shop:/ConfigMap:shop/map-{object}"}},"managedFields":[{{"manager":"{manager}","operation":"{operation}","apiVersion":"v1","time":"2026-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{{"f:metadata":{{"f:annotations":{{"f:argocd.argoproj.io/tracking-id":{{}}}}}},"f:data":{{"f:value":{{}}}}}}}},{{"manager":"beat","operation":"Update","apiVersion":"v1","time":"2026-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{{"f:data":{{"f:beat":{{}}}}}}}}]}},"data":{{"value":"{value}","beat":"{version}"}}}}"#
    );
    let object = Observed {
        namespace: "shop".to_owned(),
        name: format!("map-{object}"),
        uid: format!("00000000-0000-4000-8000-{object:012}"),
        version: ResourceVersion::new(version.to_string()),
        body: Redacted { bytes: bytes.into_bytes(), pointers: Vec::new(), marks: Vec::new() },
    };
    WatchChange { verb: Verb::Upsert, object }
}
