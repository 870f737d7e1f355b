//! What one writes first, with the usual crates: the baselines.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::pin::pin;

use futures::{StreamExt, TryStreamExt};
use kube::api::{ApiResource, DynamicObject, WatchEvent, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use kube_runtime::watcher::{self, Event};
use rusqlite::{Connection, params};

use super::process::own_seconds;

async fn pods(kubeconfig: &Path) -> Api<DynamicObject> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).expect("a kubeconfig");
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.expect("a config");
    let resource = ApiResource {
        group: String::new(),
        version: "v1".to_owned(),
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        plural: "pods".to_owned(),
    };
    Api::all_with(Client::try_from(config).expect("a client"), &resource)
}

fn block_on(work: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(work);
}

/// kube's own watch, objects of any kind.
pub(super) fn ingest(kubeconfig: &Path, from: &str, events: usize) {
    block_on(async {
        let api = pods(kubeconfig).await;
        let mut stream = pin!(api.watch(&WatchParams::default(), from).await.expect("a watch"));
        let (mut seen, before) = (0, own_seconds());
        while seen < events {
            if let WatchEvent::Modified(_) = stream.try_next().await.expect("an event").expect("more") {
                seen += 1;
            }
        }
        println!("{}", own_seconds() - before);
    });
}

/// watcher → serde_json → rusqlite → file, as durable as ours: in transactions of what is ready, up to `batch` events.
pub(super) fn path(kubeconfig: &Path, dir: &Path, events: usize, batch: usize) {
    let mut conn = Connection::open(dir.join("textbook.db")).expect("a database");
    conn.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
         CREATE TABLE event (seq INTEGER PRIMARY KEY AUTOINCREMENT, type TEXT, namespace TEXT, name TEXT, uid TEXT, version TEXT, object TEXT);
         CREATE TABLE object (uid TEXT PRIMARY KEY, version TEXT, object TEXT);",
    )
    .expect("a schema");
    let mut file = OpenOptions::new().create(true).append(true).open(dir.join("log")).expect("a file");
    block_on(async {
        let stream = watcher::watcher(pods(kubeconfig).await, watcher::Config::default());
        let mut chunks = pin!(stream.ready_chunks(batch));
        let mut seen = 0;
        while seen < events {
            let chunk = chunks.next().await.expect("more");
            let tx = conn.transaction().expect("a transaction");
            let mut out = Vec::new();
            for event in chunk {
                let (kind, object) = match event.expect("an event") {
                    Event::InitApply(object) => ("ADDED", object),
                    Event::Apply(object) => ("MODIFIED", object),
                    Event::Delete(object) => ("DELETED", object),
                    Event::Init | Event::InitDone => continue,
                };
                let text = serde_json::to_string(&object).expect("an object");
                let (meta, version) = (&object.metadata, object.metadata.resource_version.as_deref());
                tx.prepare_cached(
                    "INSERT INTO event (type, namespace, name, uid, version, object) VALUES (?, ?, ?, ?, ?, ?)",
                )
                .and_then(|mut insert| {
                    insert.execute(params![kind, meta.namespace, meta.name, meta.uid, version, text])
                })
                .expect("a row");
                tx.prepare_cached("INSERT INTO object VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET version = excluded.version, object = excluded.object")
                    .and_then(|mut insert| insert.execute(params![meta.uid, version, text]))
                    .expect("a row");
                out.extend_from_slice(text.as_bytes());
                out.push(b'\n');
                seen += 1;
            }
            tx.commit().expect("a commit");
            file.write_all(&out).and_then(|()| file.sync_data()).expect("space on the disk");
        }
        println!("{}", own_seconds());
    });
}
