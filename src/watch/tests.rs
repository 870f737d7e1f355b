//! The sources over the simulated API server: a real manager, a real journal, real HTTP on loopback.

mod audit;
mod chaos;
mod discovering;
mod endless;
mod excluded;
mod large;
mod lies;
mod odd;
mod outages;
mod reading;
mod recovering;
mod refusals;
mod restored;
mod scopes;
mod unreadable;
mod witnesses;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::machine::Thresholds;
use super::*;
use crate::core::backoff::Backoff;
use crate::core::change::redact::{self, Redactor};
use crate::core::model::{Seq, SourceSpec};
use crate::core::wire::Entry;
use crate::journal::{Journal, JournalError, SourceState, WriterThread};
use crate::sim::faults::{Act, Answer, Fault, On, Refusal, Signal};
use crate::sim::{Kind, Settings, Sim, objects};
use crate::watch;
use crate::watch::cluster::{self, Api, Limits};

/// Longer than anything takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A simulated cluster and a state directory: what outlives a daemon.
struct Place {
    sim: Sim,
    dir: TempDir,
    timings: Timings,
}

/// A manager and its journal.
struct Daemon {
    journal: Journal,
    thread: WriterThread,
    handle: SourceManagerHandle,
    cancel: CancellationToken,
    tasks: JoinSet<Result<(), SourceManagerError>>,
}

fn quick() -> Timings {
    Timings {
        thresholds: Thresholds {
            short_watch: Duration::from_millis(50),
            stable: Duration::from_millis(100),
            quiet: Duration::from_secs(119),
            apart: Duration::from_millis(5),
            short_watches: 4,
            undecodable: 3,
            server_errors: Duration::from_millis(300),
            unreadable: Duration::from_millis(300),
            ahead: Duration::from_millis(400),
            not_found: Duration::from_millis(200),
            slow: Duration::from_millis(50),
            settle: Duration::from_millis(300),
            forgive: Duration::from_secs(10),
        },
        silence: Duration::from_secs(30),
        backoff: Backoff { first: Duration::from_millis(10), most: Duration::from_millis(100) },
        prober: Duration::from_millis(20),
        scatter: Duration::from_millis(5),
        rate: 100_000,
        discovery: Duration::from_millis(100),
        legacy_discovery: Duration::from_millis(100),
        grace: Duration::from_millis(100),
        ..Timings::default()
    }
}

fn watch(resources: &[&str]) -> watch::Settings {
    watch::Settings {
        resources: resources.iter().map(|name| (*name).to_owned()).collect(),
        ..watch::Settings::default()
    }
}

fn plan(watch: Vec<watch::Settings>) -> Plan {
    Plan { watch, redactor: Arc::new(Redactor::new(&redact::Settings::default(), [7; 32]).unwrap()) }
}

impl Place {
    async fn new() -> Self {
        Self::with(|_| {}).await
    }

    async fn with(change: impl FnOnce(&mut Settings)) -> Self {
        let mut settings = Settings { too_large_wait: Duration::from_millis(20), ..Settings::default() };
        change(&mut settings);
        let sim = Sim::start_with(settings).await.unwrap();
        let dir = tempfile::tempdir().unwrap();
        sim.write_kubeconfig(&dir.path().join("kubeconfig")).unwrap();
        for namespace in ["shop", "pay"] {
            sim.create_namespace(namespace).unwrap();
        }
        Self { sim, dir, timings: quick() }
    }

    /// Nothing is recovered: what is lost is a gap.
    async fn with_gaps() -> Self {
        let mut place = Self::new().await;
        place.timings.recover = None;
        place
    }

    fn state(&self) -> std::path::PathBuf {
        self.dir.path().join("state")
    }

    async fn api(&self) -> Api {
        let settings =
            cluster::Settings { kubeconfig: Some(self.dir.path().join("kubeconfig")), ..cluster::Settings::default() };
        let limits = Limits { head: Duration::from_secs(2), read: Duration::from_secs(2), ..Limits::default() };
        Api::open(&settings, limits).await.unwrap()
    }

    async fn start(&self, watches: Vec<watch::Settings>) -> Daemon {
        let (journal, thread) = Journal::open(&self.state()).unwrap();
        let (manager, handle) =
            SourceManager::new(self.api().await, journal.clone(), plan(watches), self.timings.clone());
        let cancel = CancellationToken::new();
        let mut tasks = JoinSet::new();
        tasks.spawn(manager.run(cancel.clone()));
        Daemon { journal, thread, handle, cancel, tasks }
    }

    /// Starts and waits until every source has settled.
    async fn ready(&self, watches: Vec<watch::Settings>) -> Daemon {
        let daemon = self.start(watches).await;
        let mut ready = daemon.handle.ready();
        tokio::time::timeout(PATIENCE, ready.wait_for(|ready| *ready)).await.expect("it becomes ready").unwrap();
        daemon
    }

    fn map(&self, name: &str, value: &str) {
        self.sim.create("configmaps", objects::config_map("shop", name, value)).unwrap();
    }

    fn change(&self, name: &str, value: &str) {
        self.sim.update("configmaps", "shop", name, |map| map["data"]["value"] = value.into()).unwrap();
    }

    fn drop(&self, name: &str) {
        self.sim.delete("configmaps", "shop", name).unwrap();
    }

    /// What happened to ConfigMaps after this revision, as the log records it.
    fn truth(&self, after: u64) -> Vec<String> {
        let rows = self.sim.history_of("configmaps");
        rows.iter()
            .filter(|row| row.revision > after)
            .map(|row| {
                let word = match row.kind {
                    Kind::Added => "ADDED",
                    Kind::Modified => "MODIFIED",
                    Kind::Deleted => "DELETED",
                };
                format!("{word} watched {}@{}", row.name, row.revision)
            })
            .collect()
    }

    /// Ends the open watch, and returns when the next one is open, which meets this fault.
    async fn watch_again_with(&self, fault: Fault) {
        self.sim.wait_for_watches("configmaps", 1).await.unwrap();
        let before = self.sim.count(&On::watch("configmaps"));
        self.sim.fault(fault);
        self.sim.signal("configmaps", &Signal::End);
        self.sim.wait_for_count(&On::watch("configmaps"), before + 1).await.unwrap();
    }

    fn lists_begun(&self) -> usize {
        self.lists() - self.sim.count(&On::list("configmaps").query("continue="))
    }

    fn lists(&self) -> usize {
        let all = self.sim.count(&On::list("configmaps"));
        all - self.sim.count(&On::list("configmaps").query("limit=1&"))
    }
}

fn log_at(dir: &Path) -> Vec<String> {
    let mut reader = crate::journal::Reader::open(dir).unwrap();
    let entries = reader.entries_after(Seq(0), 100_000, usize::MAX).unwrap();
    entries
        .iter()
        .map(|stored| {
            let entry = Entry::parse(&stored.line).unwrap();
            match entry.gap() {
                Some(gap) => format!("GAP {}", gap.why),
                None => format!(
                    "{} {} {}@{}",
                    entry.op.as_str(),
                    entry.evidence.as_deref().unwrap_or_default(),
                    entry.name.as_deref().unwrap_or_default(),
                    entry.version()
                ),
            }
        })
        .collect()
}

impl Daemon {
    fn log(&self, place: &Place) -> Vec<String> {
        log_at(&place.state())
    }

    /// Waits until the log is like this, and returns it.
    async fn until(&self, place: &Place, like: impl Fn(&[String]) -> bool) -> Vec<String> {
        let mut head = self.journal.head();
        let waiting = async {
            loop {
                head.borrow_and_update();
                let log = self.log(place);
                if like(&log) {
                    return log;
                }
                head.changed().await.unwrap();
            }
        };
        match tokio::time::timeout(PATIENCE, waiting).await {
            Ok(log) => log,
            Err(_) => panic!(
                "the log never became what it should be: {:#?}\nsources: {:#?}",
                self.log(place),
                self.journal.reader().unwrap().sources().unwrap()
            ),
        }
    }

    /// Waits for the entry that ends like this.
    async fn until_last(&self, place: &Place, end: &str) -> Vec<String> {
        self.until(place, |log| log.last().is_some_and(|last| last.contains(end))).await
    }

    /// Waits until a source's state is like this.
    async fn until_state(&self, name: &str, like: impl Fn(&SourceState) -> bool) -> SourceState {
        let waiting = async {
            loop {
                let overview = self.handle.overview();
                let source = overview.sources.iter().find(|source| source.spec.name() == name);
                if let Some(state) = source.map(|source| source.stats.state())
                    && like(&state)
                {
                    return state;
                }
                tokio::task::yield_now().await;
            }
        };
        match tokio::time::timeout(PATIENCE, waiting).await {
            Ok(state) => state,
            Err(_) => panic!("{name} is never like that: {:#?}", self.handle.overview()),
        }
    }

    /// Waits until this holds, and looks again after each step of a source or of discovery.
    async fn until_holds(&self, what: &str, holds: impl Fn() -> bool) {
        let mut steps = self.handle.steps();
        let waiting = async {
            while !holds() {
                steps.notified().await;
            }
        };
        if tokio::time::timeout(PATIENCE, waiting).await.is_err() {
            panic!("it never holds that {what}: {:#?}", self.handle.overview());
        }
    }

    fn stats(&self, name: &str) -> Arc<SourceStats> {
        let overview = self.handle.overview();
        Arc::clone(&overview.sources.iter().find(|source| source.spec.name() == name).unwrap().stats)
    }

    async fn stop(mut self) {
        self.cancel.cancel();
        while let Some(ended) = self.tasks.join_next().await {
            ended.unwrap().unwrap();
        }
        drop((self.journal, self.handle));
        self.thread.join().unwrap();
    }
}

/// A source of all namespaces, where only its resource matters.
pub(in crate::watch) fn spec(plural: &str) -> SourceSpec {
    SourceSpec::of(Resource {
        group: String::new(),
        version: "v1".to_owned(),
        kind: String::new(),
        plural: plural.to_owned(),
        singular: String::new(),
        short_names: Vec::new(),
        namespaced: true,
    })
}

fn maps() -> Vec<watch::Settings> {
    vec![watch(&["configmaps"])]
}
