//! A watch cache that lies: a proxy between the API server and etcd leaves one event out, of an update, of a deletion and of a
//! creation, while other objects change. The API server shows the loss in no watch and in no list, and decklog finds it all the
//! same, because it asks etcd for single objects by their names. Then a deletion is lost whose object is created again, and the API
//! server is killed before an audit has seen what else it lost.
//!
//! Nobody but etcd knows the name of an object whose creation was lost. Kubernetes 1.33 lists an exact version from etcd, so the next
//! audit meets it. 1.36 lists it from snapshots of the cache, until its own check of the cache has failed, which takes five to seven
//! and a half minutes: with `DECKLOG_ABSENCE` that is waited for, and otherwise the restart of the API server brings it.

use serde_json::{Value, json};

use crate::decklog::Decklog;
use crate::harness::{Cluster, LIMIT, Lost, Parts, Version, Write, until};
use crate::judge::{Entry, Scope};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// Writes without a loss, before the first loss and after the last one.
const CHURN: usize = 500;
/// Objects that the churn creates, changes and deletes.
const CHURNED: usize = 20;
const ALARM: &str = "watch-cache-wrong";

fn map(name: &str, value: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"value": value}})
}

/// A cluster whose API server loses events, and the daemon that reads from it.
struct Trial {
    cluster: Cluster,
    daemon: Decklog,
    /// What was written to keep others moving.
    beats: usize,
}

/// See the module.
pub async fn scenario(version: Version) {
    let cluster = Cluster::start_losing(version, Parts::Bare, &[]).await;
    for name in ["updated", "deleted", "other"] {
        cluster.create(MAPS, &map(name, "1")).await;
    }
    let started = cluster.oracle().sync().await;
    let daemon = Decklog::new(&cluster, "calm", "resources = [\"configmaps\"]");
    daemon.audits_every("2s");
    daemon.has_metrics();
    let mut trial = Trial { cluster, daemon, beats: 0 };
    trial.daemon.start();
    trial.daemon.ready().await;
    trial.churns("before").await;
    assert!(trial.alarms().is_empty(), "nothing was lost: {:?}", trial.alarms());

    let updated = trial.an_update_is_lost("updated").await;
    trial.is_found(&updated).await;
    let deleted = trial.a_deletion_is_lost("deleted").await;
    trial.is_found(&deleted).await;
    trial.the_alarm_is_raised().await;
    let long = std::env::var_os("DECKLOG_ABSENCE").is_some();
    let created = trial.a_creation_is_lost().await;
    match version {
        Version::V1_33 => trial.is_found(&created).await,
        Version::V1_36 if long => {
            trial.the_api_server_finds_out().await;
            trial.is_found(&created).await;
        }
        Version::V1_36 => {}
    }
    trial.churns("after").await;
    trial.a_restart_ends_it(&created).await;
    trial.a_restart_hides_nothing().await;
    trial.what_was_written_again_is_told().await;
    trial.ends_with_the_truth(started).await;
}

/// An event that was lost, and the object that a watch would have brought, as text.
struct Missed {
    lost: Lost,
    name: &'static str,
    object: String,
}

impl Trial {
    /// Writes something without a loss, and sees all of it watched, and nothing else found.
    async fn churns(&mut self, when: &str) {
        // What was found last is counted by the audit that found it.
        self.audits(1).await;
        let differences = self.differences();
        let recovered = self.recovered();
        for write in 0..CHURN {
            let name = format!("churned-{when}-{}", write % CHURNED);
            let path = format!("{MAPS}/{name}");
            // Each of them is created, changed three times, and deleted, again and again.
            match write / CHURNED % 5 {
                0 => drop(self.cluster.create(MAPS, &map(&name, "0")).await),
                4 => self.cluster.delete(&path).await,
                turn => drop(self.cluster.patch(&path, &json!({"data": {"value": turn.to_string()}})).await),
            }
        }
        let last = self.cluster.oracle().sync().await;
        self.beat().await;
        self.daemon.tells("the last of the churn", |entry| entry.rv() > last).await;
        self.audits(2).await;
        let of_churn = |entry: &&Entry| entry.name.starts_with(&format!("churned-{when}-"));
        let entries: Vec<&Entry> = self.daemon.entries().iter().filter(of_churn).collect();
        assert_eq!(entries.len(), CHURN, "each write is an entry");
        let odd: Vec<&&Entry> = entries.iter().filter(|entry| entry.evidence != "watched").collect();
        assert!(odd.is_empty(), "no watch missed anything: {odd:?}");
        assert_eq!(self.recovered(), recovered, "nothing was lost meanwhile");
        assert_eq!(self.differences(), differences, "nothing was lost meanwhile");
    }

    async fn an_update_is_lost(&mut self, name: &'static str) -> Missed {
        let path = format!("{MAPS}/{name}");
        self.cluster.lose(&key(name), Write::Update).await;
        self.cluster.patch(&path, &json!({"data": {"value": "2"}})).await;
        let object = self.cluster.text(&path).await;
        let lost = self.lost(name).await;
        assert_eq!(self.listed(name).await.unwrap()["data"]["value"], "1", "the cache lies");
        Missed { lost, name, object }
    }

    async fn a_deletion_is_lost(&mut self, name: &'static str) -> Missed {
        let path = format!("{MAPS}/{name}");
        let before = self.cluster.text(&path).await;
        let was = serde_json::from_str::<Value>(&before).unwrap()["metadata"]["resourceVersion"].clone();
        self.cluster.lose(&key(name), Write::Delete).await;
        self.cluster.delete(&path).await;
        let lost = self.lost(name).await;
        assert!(self.listed(name).await.is_some(), "the cache lies");
        // A watch brings the last state, at the version of the deletion.
        let version = |version: &str| format!("\"resourceVersion\":\"{version}\"");
        let object = before.replacen(&version(was.as_str().unwrap()), &version(&lost.mod_revision.to_string()), 1);
        assert_ne!(object, before);
        Missed { lost, name, object }
    }

    async fn a_creation_is_lost(&mut self) -> Missed {
        self.cluster.lose(&key("created"), Write::Create).await;
        self.cluster.create(MAPS, &map("created", "1")).await;
        let object = self.cluster.text(&format!("{MAPS}/created")).await;
        let lost = self.lost("created").await;
        assert_eq!(self.listed("created").await, None, "the cache lies");
        Missed { lost, name: "created", object }
    }

    /// An object as a list shows it.
    async fn listed(&self, name: &str) -> Option<Value> {
        let list = self.cluster.get(MAPS).await.unwrap();
        list["items"].as_array().unwrap().iter().find(|item| item["metadata"]["name"] == name).cloned()
    }

    /// Waits until the log has what the API server lost, while others change: once, and as a watch would have brought it.
    async fn is_found(&mut self, missed: &Missed) {
        let kind = match missed.lost.write {
            Write::Create => "ADDED",
            Write::Update => "MODIFIED",
            Write::Delete => "DELETED",
        };
        let what = format!("{kind} {} {} in the log", missed.name, missed.lost.mod_revision);
        let is_it = |entry: &Entry| entry.name == missed.name && entry.rv() == missed.lost.mod_revision;
        until(&what, LIMIT, async || {
            self.beat().await;
            self.daemon.must_run();
            if self.daemon.entries().iter().any(is_it) { Ok(()) } else { Err("it is not there".to_owned()) }
        })
        .await;
        let entries: Vec<&Entry> = self.daemon.entries().iter().filter(|entry| is_it(entry)).collect();
        assert_eq!(entries.len(), 1, "it happened once: {entries:?}");
        assert_eq!((entries[0].kind.as_str(), entries[0].evidence.as_str()), (kind, "recovered"), "{:?}", entries[0]);
        assert_eq!(entries[0].object.as_ref().unwrap().get(), missed.object.trim_end(), "what etcd has");
    }

    async fn the_alarm_is_raised(&mut self) {
        let alarm = until("the alarm", LIMIT, async || {
            self.beat().await;
            let alarms = self.alarms();
            alarms.iter().find(|alarm| alarm["alarm"] == ALARM).cloned().ok_or_else(|| format!("{alarms:?}"))
        })
        .await;
        assert!(alarm["about"].as_str().unwrap().contains("configmaps"), "it says which resource: {alarm}");
        assert!(alarm["since"].is_string(), "it says since when: {alarm}");
        assert!(alarm["do"].as_str().unwrap().contains("restart"), "it says what to do: {alarm}");
        let check = self.daemon.command(&["status", "--check"]);
        assert_eq!(check.status.code(), Some(1), "{check:?}");
        let text = String::from_utf8(check.stdout).unwrap();
        assert!(text.contains(ALARM) && text.contains("configmaps"), "{text}");
    }

    /// Waits until the API server's own check has failed. Others change meanwhile.
    async fn the_api_server_finds_out(&mut self) {
        until("the API server's check of its cache to fail", LIMIT * 3, async || {
            self.beat().await;
            let metrics = self.cluster.text("/metrics").await;
            let failed = |line: &&str| {
                let check = line.starts_with("apiserver_storage_consistency_checks_total{");
                check && line.contains("resource=\"configmaps\"") && line.contains("status=\"failure\"")
            };
            metrics.lines().find(failed).map(drop).ok_or_else(|| "it has not".to_owned())
        })
        .await;
    }

    /// After a restart of the API server the alarm is gone, and the log has everything once.
    async fn a_restart_ends_it(&mut self, created: &Missed) {
        self.cluster.restart_api(true).await;
        until("the end of the alarm", LIMIT, async || {
            self.beat().await;
            self.daemon.must_run();
            let alarms = self.alarms();
            if alarms.is_empty() { Ok(()) } else { Err(format!("{alarms:?}")) }
        })
        .await;
        self.is_found(created).await;
        self.audits(2).await;
        assert!(self.alarms().is_empty(), "{:?}", self.alarms());
    }

    /// What an audit has not seen before the API server is killed is recovered as well, and a deletion whose object is created again.
    async fn a_restart_hides_nothing(&mut self) {
        let names = ["late-updated", "late-deleted", "deleted-and-created"];
        for name in names {
            self.cluster.create(MAPS, &map(name, "1")).await;
            self.daemon.tells(name, |entry| entry.name == name).await;
        }
        let deleted = self.a_deletion_is_lost("deleted-and-created").await;
        self.cluster.create(MAPS, &map("deleted-and-created", "2")).await;
        let late = [self.an_update_is_lost("late-updated").await, self.a_deletion_is_lost("late-deleted").await];
        self.cluster.restart_api(true).await;
        for missed in late.iter().chain([&deleted]) {
            self.is_found(missed).await;
        }
    }

    /// An update is lost, and a watch brings the next write of the object: the log has the update, or a GAP covers it.
    async fn what_was_written_again_is_told(&mut self) {
        for name in ["updated-again", "updated-and-deleted"] {
            self.cluster.create(MAPS, &map(name, "1")).await;
            self.daemon.tells(name, |entry| entry.name == name).await;
        }
        let again = self.an_update_is_lost("updated-again").await;
        self.cluster.patch(&format!("{MAPS}/updated-again"), &json!({"data": {"value": "3"}})).await;
        let deleted = self.an_update_is_lost("updated-and-deleted").await;
        self.cluster.delete(&format!("{MAPS}/updated-and-deleted")).await;
        for missed in [again, deleted] {
            let version = missed.lost.mod_revision;
            let number = |text: &Option<String>| text.as_ref().and_then(|text| text.parse::<u64>().ok());
            let covers = |entry: &Entry| {
                let gap = entry.gap.as_ref();
                gap.is_some_and(|gap| number(&gap.from) < Some(version) && Some(version) <= number(&gap.to))
            };
            until(&format!("{} {version} in the log, or in a GAP", missed.name), LIMIT, async || {
                self.beat().await;
                self.daemon.must_run();
                let entries = self.daemon.entries();
                let told =
                    entries.iter().any(|entry| entry.name == missed.name && entry.rv() == version || covers(entry));
                if told { Ok(()) } else { Err("it is not there".to_owned()) }
            })
            .await;
        }
    }

    /// The log is etcd's history: what the API server lost has come later, and all else as it happened.
    async fn ends_with_the_truth(mut self, started: u64) {
        let upto = self.cluster.oracle().sync().await;
        let resources = Some(["configmaps".to_owned()].into());
        let scope = Scope { late: true, started, upto, namespaces: None, resources };
        self.daemon.catch_up(&self.cluster, None, &scope).await;
        self.daemon.stop().await;
        self.daemon.judged(&self.cluster, None, &scope).await;
        // What is older than what is told already of its object can only be a GAP.
        let about = |entry: &&Entry| entry.gap.is_some() && !entry.name.starts_with("updated-");
        let gaps: Vec<&Entry> = self.daemon.entries().iter().filter(about).collect();
        assert!(gaps.is_empty(), "etcd has everything: {gaps:?}");
    }

    /// Something else changes.
    async fn beat(&mut self) {
        self.beats += 1;
        let value = json!({"data": {"value": format!("beat {}", self.beats)}});
        self.cluster.patch(&format!("{MAPS}/other"), &value).await;
    }

    /// Waits for so many further audits, while others change.
    async fn audits(&mut self, more: usize) {
        let count = |daemon: &Decklog| daemon.said().matches("an audit is done").count();
        let wanted = count(&self.daemon) + more;
        until("further audits", LIMIT, async || {
            self.beat().await;
            self.daemon.must_run();
            let have = count(&self.daemon);
            if have >= wanted { Ok(()) } else { Err(format!("{have} of {wanted}")) }
        })
        .await;
    }

    /// The loss of this object, once something else has followed it.
    async fn lost(&mut self, name: &str) -> Lost {
        self.beat().await;
        until("the loss", LIMIT, async || {
            let lost = self.cluster.lost().await;
            lost.iter().find(|lost| lost.key == key(name)).cloned().ok_or_else(|| format!("{lost:?}"))
        })
        .await
    }

    /// How many entries are of what a watch has missed.
    fn recovered(&mut self) -> usize {
        self.daemon.entries().iter().filter(|entry| entry.evidence == "recovered").count()
    }

    /// How many differences between the cache and etcd decklog counts.
    fn differences(&self) -> Vec<String> {
        let metrics = self.daemon.metrics();
        let of_cache = metrics.lines().filter(|line| line.starts_with("decklog_source_cache_differences"));
        let lines: Vec<String> = of_cache.map(str::to_owned).collect();
        assert!(!lines.is_empty(), "there is no such metric:\n{metrics}");
        lines
    }

    fn alarms(&self) -> Vec<Value> {
        let status = self.daemon.command(&["status", "-o", "json"]);
        assert!(status.status.success(), "{status:?}");
        serde_json::from_slice::<Value>(&status.stdout).unwrap()["alarms"].as_array().unwrap().clone()
    }
}

/// Where etcd has an object.
fn key(name: &str) -> String {
    format!("/registry/configmaps/default/{name}")
}
