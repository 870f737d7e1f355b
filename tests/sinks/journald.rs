//! The `journald` sink, against journald, which has a part of the file system to itself.

pub(crate) use decklog_testkit::servers::journald as start;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::trial::{self, Far, Promise, Trial};
use start::{Journald, socket_in};

/// What these tests do with the server.
trait JournaldTests: Sized {
    fn came(&self, run: &str) -> Vec<Value>;
}

impl JournaldTests for Journald {
    /// What the journal has of a run, oldest first.
    fn came(&self, run: &str) -> Vec<Value> {
        let mut command = Command::new("journalctl");
        command.arg("--directory").arg(self.dir.path().join("run/log/journal"));
        command.args(["--output=json", "--all", "--no-pager", &format!("SYSLOG_IDENTIFIER={run}")]);
        let output = command.output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

impl Far for Journald {
    fn promise(&self) -> Promise {
        Promise::BestEffort
    }

    fn port(&self) -> u16 {
        // Nothing goes over a network.
        9
    }

    fn sink(&self, _port: u16, run: &str, _dir: &Path) -> String {
        format!("type = \"journald\"\nsocket = {:?}\nidentifier = \"{run}\"", socket_in(self.dir.path()))
    }

    fn kill(&mut self) {
        self.server.kill();
    }

    async fn restart(&mut self) {
        self.server.restart().await;
    }

    async fn consumed(&self, run: &str) -> Result<Vec<String>, String> {
        let line = |fields: Value| {
            let line = fields["DECKLOG_ENTRY"].as_str().unwrap().to_owned();
            let entry: Value = serde_json::from_str(&line).unwrap();
            for (field, key) in [
                ("DECKLOG_ID", "id"),
                ("DECKLOG_EPOCH", "epoch"),
                ("DECKLOG_TYPE", "type"),
                ("KUBERNETES_KIND", "kind"),
                ("KUBERNETES_NAMESPACE", "namespace"),
                ("KUBERNETES_NAME", "name"),
                ("KUBERNETES_UID", "uid"),
            ] {
                assert_eq!(fields[field], entry[key], "{field}");
            }
            assert_eq!(fields["DECKLOG_SEQ"], entry["seq"].to_string());
            let text = |key: &str| entry[key].as_str().unwrap();
            assert_eq!(
                fields["MESSAGE"],
                format!("{} configmaps {}/{}", text("type"), text("namespace"), text("name"))
            );
            line
        };
        Ok(self.came(run).into_iter().map(line).collect())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn journald_undisturbed() {
    trial::undisturbed(&mut Journald::start().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn journald_server_killed() {
    trial::server_killed(&mut Journald::start().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn journald_daemon_killed() {
    trial::daemon_killed(&mut Journald::start().await).await;
}

/// An entry that no datagram carries comes whole, between others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn journald_takes_entries_of_any_length() {
    let mut server = Journald::start().await;
    let mut trial = Trial::new(&mut server, "long").await;
    trial.daemon.start();
    trial.daemon.ready().await;
    trial.write(3);
    for (name, length) in [("some", 200_000), ("more", 900_000)] {
        let map = decklog::sim::objects::config_map("default", name, &"0123456789".repeat(length / 10));
        trial.sim.create("configmaps", map).unwrap();
        trial.write(2);
    }
    trial.judged().await;
    assert!(trial.far.came("long").iter().any(|entry| entry["DECKLOG_ENTRY"].as_str().unwrap().len() > 900_000));
    trial.far.kill();
}
