//! Evidence in a bucket.

use std::fs;
use std::path::Path;

use decklog::core::bucket;
use decklog::evidence::archive::{Archive, Found, Order};
use decklog::evidence::key::VerifierKey;
use decklog::sim::{Sim, objects};
use decklog::sink::registry::SinkKind;
use decklog::sink::s3;
use serde_json::json;

use super::start::{KEY, S3, SECRET};
use crate::support::{Daemon, copy, until};

const WATCH: &str = "resources = [\"configmaps\"]";

fn write(sim: &Sim, count: usize) {
    for _ in 0..count {
        let name = format!("map-{}", sim.revision());
        sim.create("configmaps", objects::config_map("default", &name, "0")).unwrap();
    }
}

/// The checkpoints of a downloaded copy, in which everything is whole and has each line of the log.
fn whole(from: &Path, log: &Path, key: &VerifierKey) -> Vec<String> {
    let downloaded = tempfile::tempdir().unwrap();
    copy(from, downloaded.path());
    let mut archive = Archive::read(downloaded.path(), std::slice::from_ref(key)).unwrap();
    assert_eq!(archive.check_order(std::slice::from_ref(key)).unwrap(), Order::default());
    assert_eq!(archive.problems, [""; 0]);
    for line in fs::read_to_string(log).unwrap().lines() {
        let entry: serde_json::Value = serde_json::from_str(line).unwrap();
        let (epoch, seq) = (entry["epoch"].as_str().unwrap(), entry["seq"].as_u64().unwrap());
        let digest = decklog::core::merkle::sha256(&[line.as_bytes()]);
        assert_eq!(archive.check_line(epoch, seq, &digest).unwrap(), Found::Proved, "entry {seq}");
    }
    archive.checkpoints().map(|signed| signed.note.clone()).collect()
}

/// An auditor who has a copy of the bucket finds every line in it, also after a time in which the bucket was away.
#[tokio::test(flavor = "multi_thread")]
async fn evidence_in_a_bucket_is_whole() {
    let mut s3 = S3::start().await;
    let sim = crate::support::cluster().await;
    let mut daemon = Daemon::new(&sim, &["configmaps"]);
    let file = daemon.path("evidence.key");
    let made = daemon.command(&["evidence", "key", file.to_str().unwrap(), "--name", "audit.example/decklog"]).await;
    let key = VerifierKey::parse(&made.done()).unwrap();
    let credentials = daemon.path("aws");
    fs::write(&credentials, format!("[default]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n"))
        .unwrap();
    let (dir, endpoint) = (daemon.path("evidence"), format!("http://127.0.0.1:{}", s3.server.port()));
    let bucket =
        format!("url = \"s3://evidence/of/eu1\"\nendpoint = {endpoint:?}\ncredentials_file = {credentials:?}\n");
    let section = format!("[evidence]\ndir = {dir:?}\nkey_file = {file:?}\n[evidence.s3]\n{bucket}");
    daemon.configure(&daemon.config(WATCH, &section));
    let checked = daemon.command(&["check"]).await;
    assert!(checked.code == 1 && checked.out.contains("does not exist; make it: aws s3api"), "{checked:#?}");
    let sink = json!({ "type": "s3", "url": "s3://evidence", "endpoint": endpoint, "credentials_file": credentials });
    let sink: SinkKind = serde_json::from_value(sink).unwrap();
    sink.open().unwrap().provision().await.unwrap();
    let checked = daemon.command(&["check"]).await.done();
    assert!(checked.contains("evidence can be written to the bucket evidence at"), "{checked}");

    replaced_once(&bucket).await;
    let there = s3.dir.path().join("root/evidence/of/eu1");
    for round in 0..3 {
        if round == 1 {
            s3.server.kill();
        }
        daemon.start();
        daemon.ready().await;
        if round == 1 {
            daemon.says("a place lacks the newest evidence: ").await;
        }
        write(&sim, 300);
        let head = 300 * (round + 1);
        daemon.reach(head).await;
        until("everything to be logged", async || {
            let count = fs::read_to_string(daemon.log()).unwrap().lines().count();
            if count >= head { Ok(()) } else { Err(count.to_string()) }
        })
        .await;
        daemon.stop().await;
        let here = whole(&dir, &daemon.log(), &key);
        if round == 1 {
            s3.server.restart().await;
        } else {
            assert_eq!(whole(&there, &daemon.log(), &key), here);
        }
    }
    assert!(!there.join(only_tree(&there)).join("tile/entries/000.p").exists(), "partial tiles stay");
}

/// Of two that have read the same object one replaces it, on a real server.
async fn replaced_once(bucket: &str) {
    let bucket: bucket::Settings = toml::from_str(&bucket.replace("/of/eu1", "/replaced")).unwrap();
    let [mut one, mut other] = [s3::objects(&bucket).unwrap(), s3::objects(&bucket).unwrap()];
    for round in ["first", "second"] {
        let before = one.get("checkpoint").await.unwrap();
        assert_eq!(other.get("checkpoint").await.unwrap(), before);
        assert_eq!(one.replace("checkpoint", round.into()).await, Ok(true), "{round}");
        assert_eq!(other.replace("checkpoint", "late".into()).await, Ok(false), "{round}");
        assert_eq!(other.get("checkpoint").await.unwrap(), Some(round.into()));
    }
}

/// The only tree.
fn only_tree(dir: &Path) -> String {
    fs::read_dir(dir).unwrap().next().unwrap().unwrap().file_name().into_string().unwrap()
}
