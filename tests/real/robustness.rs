//! Judges that are not decklog's. etcd's own robustness suite judges the log as if each source was a watch: filter, ordered, unique,
//! atomic, bookmarkable, resumable, reliable, create flag, previous value; the truth is etcd's write-ahead log. Informers of client-go
//! follow the same resources, and what they tell has to be in the log. `tests/judges` is the program that has both.
//!
//! Everything that breaks a watch happens in one control plane, whose judgement takes seconds; so the judges are tried as well: each of
//! their guarantees has a lie that is put into this true log, and found. At the end the log is shared, and another daemon takes over.

mod churn;
mod recorder;
#[cfg(feature = "s3")]
mod takeover;

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::decklog::Decklog;
use crate::extensions;
use crate::harness::{Cluster, LIMIT, Process, Version, judges, until};
use crate::judge::Entry;
use crate::oracle::{self, Compactions};
use churn::{ALL, Churn};
use recorder::Recorder;

/// What is watched beside all that is written.
const QUIET: [&str; 3] = ["namespaces", "pods", "customresourcedefinitions.apiextensions.k8s.io"];
/// How often decklog is killed while nothing else happens.
const KILLS: usize = 8;
/// Entries between two of these kills.
const BETWEEN: u64 = 25;
/// Writes that are missed by what is away.
const MISSED: usize = 40;
/// Events that expire with the revision of another one, at least.
const TOGETHER: usize = 6;
/// Time between two compactions.
const COMPACTED: Duration = Duration::from_secs(2);
/// Lies that the judges are tried with.
const LIES: usize = 15;

/// How often everything happens.
fn rounds() -> usize {
    std::env::var("DECKLOG_TEST_JUDGED").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

/// See the module.
pub async fn scenario(version: Version) {
    let cluster = Cluster::start_recorded(version).await;
    cluster.create("/api/v1/namespaces", &json!({"metadata": {"name": "shop"}})).await;
    extensions::define(&cluster, "widgets", "Namespaced").await;
    cluster.start_second(&["killed", "paused"]).await;
    let mut daemon = daemon(&cluster, "killed");
    daemon.start();
    daemon.ready().await;
    let recorder = Recorder::start(daemon.state());
    let informers = inform(&cluster).await;
    let churn = Churn::start(&cluster).await;
    let mut stage =
        Stage { cluster, daemon, recorder, churn, compactions: Compactions::default(), begun: Instant::now() };
    for _ in 0..rounds() {
        stage.kill_decklog().await;
        stage.kill_the_api_server().await;
        stage.expire().await;
        stage.kill_etcd().await;
        stage.compact().await;
    }
    #[cfg(feature = "s3")]
    stage.take_over().await;
    stage.phase("the end");
    let Stage { mut cluster, mut daemon, recorder, churn, compactions, .. } = stage;
    churn.stop().await;
    for (all, part, resource) in ALL {
        cluster.create(all, &churn::object(part, "the-end", 0)).await;
        daemon.tells(resource, |entry| entry.name == "the-end" && resource.ends_with(&entry.full_resource())).await;
        told(&cluster, resource).await;
    }
    until("every source to have a position", LIMIT, async || {
        daemon.must_run();
        let lost = recorder.lost();
        if lost.is_empty() { Ok(()) } else { Err(format!("{lost:?}")) }
    })
    .await;
    // Informers first: a leader that ends writes its Lease, which it does not record.
    informers.stop().await;
    daemon.stop().await;
    let (etcd, first) = cluster.end().await;
    recorder.write(&cluster.path(""), &etcd, first, &compactions).await;
    judged(&cluster);
}

/// What is watched.
fn watched() -> Vec<&'static str> {
    ALL.iter().map(|(_, _, resource)| resource.split_once('/').unwrap().1).chain(QUIET).collect()
}

/// A daemon that is not started yet, which reads the cluster as this user.
fn daemon(cluster: &Cluster, user: &str) -> Decklog {
    let key = cluster.path("hmac");
    std::fs::write(&key, "0123456789abcdef0123456789abcdef").unwrap();
    let daemon = Decklog::new(cluster, user, &format!("resources = {:?}", watched()));
    daemon.configure(&format!("\n[redact]\nkey_file = {key:?}\n"));
    daemon
}

/// Starts informers of everything that is written. Their API server stays: they would take a minute to come back to the other one.
async fn inform(cluster: &Cluster) -> Process {
    let mut arguments = vec!["inform".to_owned()];
    arguments.extend(["--kubeconfig".to_owned(), cluster.kubeconfig("calm").display().to_string()]);
    arguments.extend(["--out".to_owned(), cluster.path("informers.jsonl").display().to_string()]);
    arguments.extend(ALL.iter().map(|(_, _, resource)| (*resource).to_owned()));
    let log = cluster.path("informers.log");
    let mut process = Process::start("informers", judges(), &arguments, &log, |_| {});
    until("informers to be synced", LIMIT, async || {
        let said = std::fs::read_to_string(&log).map_err(|error| error.to_string())?;
        assert!(process.ended().is_none(), "the informers ended: {said}");
        if said.contains("informers are synced") { Ok(()) } else { Err(said) }
    })
    .await;
    process
}

/// Waits until an informer has told the last change.
async fn told(cluster: &Cluster, resource: &str) {
    let name = resource.split_once('/').unwrap().1;
    until(&format!("an informer to tell the end of {resource}"), LIMIT, async || {
        let lines = std::fs::read_to_string(cluster.path("informers.jsonl")).map_err(|error| error.to_string())?;
        let last = |line: &&str| line.contains("the-end") && line.contains(&format!("\"Resource\":\"{name}\""));
        if lines.lines().any(|line| last(&line)) { Ok(()) } else { Err("it does not".to_owned()) }
    })
    .await;
}

/// What happens in one run.
struct Stage {
    cluster: Cluster,
    daemon: Decklog,
    recorder: Recorder,
    churn: Churn,
    compactions: Compactions,
    begun: Instant,
}

impl Stage {
    /// Waits until so many more entries are on disk.
    async fn grow(&mut self, entries: u64) {
        let wanted = self.recorder.head() + entries;
        until("a log that grows", LIMIT, async || {
            self.daemon.must_run();
            let head = self.recorder.head();
            if head >= wanted { Ok(()) } else { Err(format!("{head} of {wanted}")) }
        })
        .await;
    }

    /// Waits until so much was written, while somebody is away.
    async fn write(&self, writes: usize) {
        let wanted = self.churn.written() + writes;
        until("writes that are missed", LIMIT, async || {
            let have = self.churn.written();
            if have >= wanted { Ok(()) } else { Err(format!("{have} of {wanted}")) }
        })
        .await;
    }

    /// Waits until all that is there now is recorded.
    async fn catch_up(&mut self) {
        let name = format!("marker-{}", self.recorder.head());
        let (all, part, _) = ALL[0];
        let made = self.cluster.create(all, &churn::object(part, &name, 0)).await;
        assert_eq!(made["metadata"]["name"], name.as_str());
        self.daemon.tells(&name, |entry| entry.name == name).await;
    }

    fn kill(&mut self) {
        self.daemon.kill();
        self.recorder.life_ends();
    }

    fn phase(&self, what: &str) {
        eprintln!("{:?}: {what} with {} entries", self.begun.elapsed(), self.recorder.head());
    }

    async fn kill_decklog(&mut self) {
        self.phase("decklog is killed");
        for _ in 0..KILLS {
            self.grow(BETWEEN).await;
            self.kill();
            self.daemon.start();
        }
        self.catch_up().await;
    }

    /// Alone, and with decklog in the middle of what it recovers.
    async fn kill_the_api_server(&mut self) {
        self.phase("the API server is killed");
        for round in 0..2 {
            self.cluster.kill_second();
            self.write(MISSED).await;
            self.cluster.start_second_again().await;
            if round == 1 {
                self.grow(1).await;
                self.kill();
                self.daemon.start();
            }
            self.catch_up().await;
        }
    }

    /// Alone, and with decklog.
    async fn kill_etcd(&mut self) {
        self.phase("etcd is killed");
        for round in 0..2 {
            self.grow(BETWEEN).await;
            self.cluster.kill_etcd().await;
            if round == 1 {
                self.kill();
                self.daemon.start();
            }
            self.cluster.ready().await;
            self.catch_up().await;
        }
    }

    /// Events expire, several with one revision, before etcd is killed, which lets them live on, and before it is compacted.
    async fn expire(&mut self) {
        self.phase("events expire");
        until("events that expire together", LIMIT, async || {
            self.daemon.must_run();
            let gone =
                self.daemon.entries().iter().filter(|entry| entry.kind == "DELETED" && entry.resource == "events");
            let revisions: Vec<u64> = gone.map(Entry::rv).collect();
            let together = revisions.windows(2).filter(|pair| pair[0] == pair[1]).count();
            if together >= TOGETHER { Ok(()) } else { Err(format!("{together} of {}", revisions.len())) }
        })
        .await;
    }

    /// etcd is compacted all the time, while decklog, its API server and both are away and come back.
    async fn compact(&mut self) {
        self.phase("etcd is compacted every two seconds");
        let etcd = self.cluster.etcd();
        let mut compactions = JoinSet::new();
        compactions.spawn(oracle::compact_every(etcd, COMPACTED, Arc::clone(&self.compactions)));
        for (daemon, server) in [(true, false), (false, true), (true, true)] {
            if server {
                self.cluster.kill_second();
            }
            if daemon {
                self.kill();
            }
            // What is missed now is compacted before anybody is back.
            let missed = self.cluster.oracle().revision().await;
            self.write(MISSED).await;
            until("what was missed to be compacted", LIMIT, async || {
                let newest = self.compactions.lock().unwrap().last().map_or(0, |(revision, _)| *revision);
                if newest >= missed { Ok(()) } else { Err(format!("{newest} of {missed}")) }
            })
            .await;
            if server {
                self.cluster.start_second_again().await;
            }
            if daemon {
                self.daemon.start();
            }
            self.catch_up().await;
        }
        assert!(compactions.try_join_next().is_none(), "the compactions have failed");
        compactions.shutdown().await;
    }
}

/// Has the recording judged, and the judges tried.
fn judged(cluster: &Cluster) {
    let begun = Instant::now();
    let output = Command::new(judges()).arg("judge").arg(cluster.path("")).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "the judges failed: {said}");
    let verdict: Value = serde_json::from_slice(&output.stdout).unwrap();
    eprintln!("{} in {:?}", verdict["Counts"], begun.elapsed());
    assert!(verdict["Found"].is_null(), "the judges found {:#}\n{said}", verdict["Found"]);
    let lies = verdict["Controls"].as_array().unwrap();
    let missed: Vec<&Value> = lies.iter().filter(|lie| lie["Caught"] != true).collect();
    assert!(missed.is_empty() && lies.len() == LIES, "of {} lies these were not found: {missed:#?}", lies.len());
}
