//! The reading part of decklog in this process, for what its log does not show: when a source watches again, and watches that
//! are shorter than anybody would have them.

use std::sync::Arc;

use decklog::core::change::redact;
use decklog::core::change::redact::Redactor;
use decklog::core::model::Seq;
use decklog::journal::{Journal, Reader, SourceState, WriterThread};
use decklog::watch;
use decklog::watch::cluster;
use decklog::watch::cluster::{Api, Limits};
use decklog::watch::discovery::Trouble;
use decklog::watch::{Plan, SourceManager, SourceManagerError, SourceManagerHandle, SourceStats, Timings};
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::harness::{Cluster, LIMIT, until};
use crate::judge::Entry;

/// See the module.
pub struct Reading {
    handle: SourceManagerHandle,
    cancel: CancellationToken,
    tasks: JoinSet<Result<(), SourceManagerError>>,
    thread: WriterThread,
    dir: TempDir,
}

impl Reading {
    /// Reads this of the cluster as a user.
    pub async fn start(cluster: &Cluster, user: &str, watch: watch::Settings, timings: Timings) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let settings = cluster::Settings { kubeconfig: Some(cluster.kubeconfig(user)), ..cluster::Settings::default() };
        let api = Api::open(&settings, Limits::default()).await.unwrap();
        let (journal, thread) = Journal::open(&dir.path().join("state")).unwrap();
        let redactor = Arc::new(Redactor::new(&redact::Settings::default(), [7; 32]).unwrap());
        let (manager, handle) = SourceManager::new(api, journal, Plan { watch: vec![watch], redactor }, timings);
        let cancel = CancellationToken::new();
        let mut tasks = JoinSet::new();
        tasks.spawn(manager.run(cancel.clone()));
        let mut ready = handle.ready();
        tokio::time::timeout(LIMIT, ready.wait_for(|ready| *ready)).await.unwrap().unwrap();
        Self { handle, cancel, tasks, thread, dir }
    }

    /// The counters of every source.
    pub fn sources(&self) -> Vec<Arc<SourceStats>> {
        self.handle.overview().sources.into_iter().map(|source| source.stats).collect()
    }

    /// What is the matter with discovery.
    pub fn troubles(&self) -> Vec<Trouble> {
        self.handle.troubles()
    }

    /// How many of its sources watch.
    pub fn watching(&self) -> usize {
        self.sources().iter().filter(|source| source.state() == SourceState::Watching).count()
    }

    /// What it has written down.
    pub fn entries(&self) -> Vec<Entry> {
        let mut reader = Reader::open(&self.dir.path().join("state")).unwrap();
        let entries = reader.entries_after(Seq(0), 100_000, usize::MAX).unwrap();
        entries.iter().map(|stored| Entry::parse(std::str::from_utf8(&stored.line).unwrap())).collect()
    }

    /// Waits until this is written down.
    pub async fn tells(&self, what: &str, wanted: impl Fn(&Entry) -> bool) {
        until(
            what,
            LIMIT,
            async || {
                if self.entries().iter().any(&wanted) { Ok(()) } else { Err("it is not told".to_owned()) }
            },
        )
        .await;
    }

    /// Ends.
    pub async fn stop(mut self) {
        self.cancel.cancel();
        while let Some(ended) = self.tasks.join_next().await {
            ended.unwrap().unwrap();
        }
        drop(self.handle);
        self.thread.join().unwrap();
    }
}
