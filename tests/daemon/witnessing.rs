//! Two daemons that witness each other: an auditor sees both cosignatures, and a log whose history is another one than before is refused by
//! its witness, though its owner signs it with the right key.

use std::fs;
use std::path::{Path, PathBuf};

use decklog::sim::{Sim, objects};
use serde_json::Value;

use crate::support::{Daemon, cluster, decklog, free_address, until};

const WATCH: &str = "resources = [\"configmaps\"]";

/// A daemon with its key and its address.
struct Party {
    daemon: Daemon,
    key: String,
    address: String,
}

impl Party {
    async fn new(sim: &Sim, name: &str) -> Self {
        let daemon = Daemon::with(sim, WATCH, "");
        let file = daemon.path("evidence.key");
        let arguments = ["evidence", "key", file.to_str().unwrap(), "--name", name];
        let key = decklog(&daemon.path(""), &arguments, &[]).await.done().trim().to_owned();
        let file = file.to_str().unwrap().to_owned();
        let timed = decklog(&daemon.path(""), &["evidence", "key", &file, "--witness"], &[]).await.done();
        assert!(timed.starts_with(&format!("{name}+")) && timed.trim() != key, "{timed}");
        Self { daemon, key, address: free_address() }
    }

    /// Asks the other one to witness, and is its witness.
    fn witness(&self, other: &Self) {
        let section = format!(
            "[evidence]\ndir = {:?}\nkey_file = {:?}\n[[evidence.witness]]\nurl = \"http://{}/witness\"\nkey = {:?}\n\
             [[evidence.witnessed]]\nkey = {:?}\n[http]\nlisten = {:?}\n",
            self.evidence(),
            self.daemon.path("evidence.key"),
            other.address,
            other.key,
            other.key,
            self.address
        );
        self.daemon.configure(&self.daemon.config(WATCH, &section));
    }

    fn evidence(&self) -> PathBuf {
        self.daemon.path("evidence")
    }

    async fn start(&mut self) {
        self.daemon.start();
        self.daemon.ready().await;
    }

    /// Verifies the evidence as an auditor does who asks for a witness.
    async fn verify(&self, witness: &Self, format: &str) -> (i32, String) {
        let elsewhere = tempfile::tempdir().unwrap();
        let evidence = self.evidence();
        let arguments = [
            "verify",
            "--evidence",
            evidence.to_str().unwrap(),
            "--key",
            &self.key,
            "--witness",
            &witness.key,
            "-o",
            format,
        ];
        let answer = decklog(elsewhere.path(), &arguments, &[]).await;
        (answer.code, format!("{}{}", answer.out, answer.err))
    }
}

async fn write(sim: &Sim, daemon: &mut Daemon, count: usize) {
    let head = daemon.lines() + count;
    for _ in 0..count {
        let number = sim.revision().to_string();
        sim.update("configmaps", "default", "map", |map| map["data"]["n"] = number.clone().into()).unwrap();
    }
    daemon.reach(head).await;
}

fn copy(from: &Path, to: &Path) {
    if !from.is_dir() {
        fs::copy(from, to).unwrap();
        return;
    }
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        copy(&path, &to.join(path.file_name().unwrap()));
    }
}

/// Keeps files and directories in a directory.
fn keep(paths: &[PathBuf], kept: &Path) {
    fs::create_dir(kept).unwrap();
    for path in paths {
        copy(path, &kept.join(path.file_name().unwrap()));
    }
}

/// Restores them as a disk that goes back does: the mark of the state directory shows nothing.
fn restore(paths: &[PathBuf], kept: &Path) {
    for path in paths {
        if path.is_dir() {
            fs::remove_dir_all(path).unwrap();
        }
        copy(&kept.join(path.file_name().unwrap()), path);
    }
    let journal = rusqlite::Connection::open(paths[0].join("journal.db")).unwrap();
    journal.execute("DELETE FROM meta WHERE key = 'mark'", []).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_logs_witness_each_other_and_another_history_is_refused() {
    let sim = cluster().await;
    sim.create("configmaps", objects::config_map("default", "map", "0")).unwrap();
    let mut a = Party::new(&sim, "a.example/decklog").await;
    let mut b = Party::new(&sim, "b.example/decklog").await;
    a.witness(&b);
    b.witness(&a);
    b.start().await;
    a.start().await;
    write(&sim, &mut a.daemon, 20).await;
    // Each signs once more at its end, and asks the other, which runs.
    a.daemon.stop().await;
    let (code, text) = a.verify(&b, "line").await;
    assert!(code == 0 && text.contains("witnessed by b.example/decklog at 20"), "{text}");
    let (_, text) = a.verify(&b, "json").await;
    let found: Value = serde_json::from_str(&text).unwrap();
    let found = &found["authenticated"]["checkpoints"][0]["witnesses"][0];
    assert!(found["name"] == "b.example/decklog" && found["time"].as_str().unwrap().starts_with("20"), "{text}");
    let whole_disk = [a.daemon.state(), a.evidence(), a.daemon.log()];
    let before = a.daemon.path("before");
    keep(&whole_disk, &before);
    a.start().await;
    write(&sim, &mut a.daemon, 20).await;
    b.daemon.stop().await;
    let (code, text) = b.verify(&a, "line").await;
    assert!(code == 0 && text.contains("witnessed by a.example/decklog at 20"), "{text}");
    b.start().await;
    a.daemon.stop().await;
    assert_eq!(a.verify(&b, "line").await.0, 0);

    // The whole disk goes back, so that decklog cannot notice: what it signs then is another history under the same name.
    let lines = a.daemon.lines();
    restore(&whole_disk, &before);
    a.start().await;
    a.daemon.reach(lines).await;
    a.daemon.stop().await;
    a.start().await;
    until("the status to show it", async || {
        let status = decklog(&a.daemon.path(""), &["status", "-c", "config.toml"], &[]).await.done();
        if status.contains("WITNESS   b.example/decklog has not cosigned") { Ok(()) } else { Err(status) }
    })
    .await;
    a.daemon.stop().await;
    assert!(a.daemon.said().contains("somebody else signs with this key"), "{}", a.daemon.last_words());
    let (code, text) = a.verify(&b, "line").await;
    assert!(code == 1 && text.contains("no good cosignature of the witness b.example/decklog"), "{text}");
    // Without the witness nothing is wrong with it.
    let evidence = a.evidence();
    let alone = ["verify", "--evidence", evidence.to_str().unwrap(), "--key", &a.key];
    decklog(&a.daemon.path(""), &alone, &[]).await.done();
    b.daemon.stop().await;
}
