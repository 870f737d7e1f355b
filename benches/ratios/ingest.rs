//! From the bytes of a watch to identified, redacted objects: ours against kube's `Api::watch`.

use std::path::Path;
use std::time::Duration;

use decklog::core::change::redact;
use decklog::core::change::redact::Redactor;
use decklog::core::model::Resource;
use decklog::sim::Sim;
use decklog::watch::cluster;
use decklog::watch::cluster::{Api, Limits, next_part};
use decklog::watch::decode::{self, Line};
use decklog::watch::frame::Lines;

use super::process::{child, own_seconds};
use super::table::Table;
use super::{ROUNDS, median};

const PODS: usize = 2_000;
const EVENTS: usize = 20_000;

pub(super) fn compare(table: &mut Table) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let dir = tempfile::tempdir().expect("a directory");
    let kubeconfig = dir.path().join("kubeconfig");
    let sim = runtime.block_on(Sim::start()).expect("a port");
    sim.bulk_pods(PODS).expect("Pods are served");
    let from = sim.revision().to_string();
    sim.touch_bulk(EVENTS);
    sim.write_kubeconfig(&kubeconfig).expect("space");
    let (kubeconfig, events) = (kubeconfig.to_str().expect("a plain path"), EVENTS.to_string());
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        theirs.push(child(&["ingest-kube", kubeconfig, &from, &events]));
        ours.push(child(&["ingest", kubeconfig, &from, &events]));
    }
    let (ours, theirs) = (median(ours), median(theirs));
    table.row(
        "ingest, processor time for an event of 8 KB",
        format!("{:.1} µs", ours / EVENTS as f64 * 1e6),
        &format!("kube `Api::watch`: {:.1} µs", theirs / EVENTS as f64 * 1e6),
        format!("1/{:.1}", theirs / ours),
        "1/9",
    );
}

/// The child: everything that a source does with a line before the journal has it.
pub(super) fn ours(kubeconfig: &Path, from: &str, events: usize) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let cluster = cluster::Settings { kubeconfig: Some(kubeconfig.to_owned()), ..cluster::Settings::default() };
        let api = Api::open(&cluster, Limits::default()).await.expect("a kubeconfig");
        let redactor = Redactor::new(&redact::Settings::default(), [7; 32]).expect("the built-in rules");
        let pods = pods();
        let path = format!("/api/v1/pods?watch=true&allowWatchBookmarks=true&resourceVersion={from}");
        let mut body = api.stream(&path).await.expect("a watch");
        let mut lines = Lines::new(32 << 20);
        let (mut seen, before, mut bytes) = (0, own_seconds(), 0);
        while seen < events {
            let part = next_part(&mut body, Duration::from_secs(60)).await.expect("more").expect("more");
            lines.push(part);
            while let Some(line) = lines.take().expect("short lines") {
                if let Line::Upsert(object) = decode::line(&line).expect("an event") {
                    let redacted = redactor.apply(&pods, &object.uid, &*object.bytes).expect("an object");
                    bytes += redacted.bytes.len();
                    seen += 1;
                }
            }
        }
        assert!(bytes > events * 4096, "the objects are not what they should be");
        println!("{}", own_seconds() - before);
    });
}

pub(super) fn pods() -> Resource {
    Resource {
        group: String::new(),
        version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        plural: "pods".to_owned(),
        singular: "pod".to_owned(),
        short_names: vec!["po".to_owned()],
        namespaced: true,
    }
}
