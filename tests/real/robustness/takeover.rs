//! A log that one daemon has kept becomes that of two, of which one takes over from the other.

use std::fs;
use std::sync::Arc;

use decklog_testkit::support::journal;
use tokio::task::JoinSet;

use super::{BETWEEN, COMPACTED, Stage, watched};
use crate::decklog::Decklog;
use crate::harness::{Cluster, LIMIT, until};
use crate::oracle;

/// Adds a shared log in a folder to a configuration that has none.
fn share(cluster: &Cluster, daemon: &Decklog) {
    let bucket = cluster.path("bucket");
    fs::create_dir_all(&bucket).unwrap();
    let rest = format!(
        "\n[[sink]]\nname = \"archive\"\ntype = \"s3\"\nurl = \"file://{}\"\nsegment_age = \"200ms\"\n\n\
         [ha]\nlog = \"archive\"\nlease = \"shop/decklog\"\n",
        bucket.display()
    );
    daemon.configure(&rest);
}

/// Waits until it leads and watches everything, or follows and has the whole log.
async fn has_role(daemon: &mut Decklog, role: &str) {
    until(&format!("a {role}"), LIMIT, async || {
        daemon.must_run();
        let status = journal::status(&daemon.state())?;
        let sources = status["sources"].as_array().cloned().unwrap_or_default();
        let watches = sources.len() == watched().len()
            && sources.iter().all(|source| role == "standby" || source["state"] == "watching");
        if status["ha"]["role"] == role && status["daemon"]["ready"] == true && watches {
            Ok(())
        } else {
            Err(format!("{} {} {sources:?}\n{}", status["ha"], status["daemon"], daemon.last_words()))
        }
    })
    .await;
}

impl Stage {
    /// One takes over from the other: after a clean end, and after a kill while etcd is compacted.
    pub(super) async fn take_over(&mut self) {
        self.phase("another takes over");
        self.daemon.stop().await;
        self.recorder.life_ends();
        share(&self.cluster, &self.daemon);
        let mut other = super::daemon(&self.cluster, "paused");
        share(&self.cluster, &other);
        self.daemon.start();
        has_role(&mut self.daemon, "leader").await;
        other.start();
        has_role(&mut other, "standby").await;
        let mut compactions = JoinSet::new();
        for is_killed in [false, true] {
            self.grow(BETWEEN).await;
            if is_killed {
                compactions.spawn(oracle::compact_every(self.cluster.etcd(), COMPACTED, Arc::clone(&self.compactions)));
                self.daemon.kill();
            } else {
                self.daemon.stop().await;
            }
            self.recorder.life_ends();
            has_role(&mut other, "leader").await;
            std::mem::swap(&mut self.daemon, &mut other);
            self.recorder.turn_to(self.daemon.state());
            self.catch_up().await;
            other.start();
            has_role(&mut other, "standby").await;
        }
        assert!(compactions.try_join_next().is_none(), "the compactions have failed");
        compactions.shutdown().await;
        // The standby first, so that nobody takes over.
        other.stop().await;
    }
}
