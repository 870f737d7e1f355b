//! The sources over the simulated API server: a real fleet, a real journal, real HTTP on loopback.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::machine::Patience;
use super::*;
use crate::change::redact::Redactor;
use crate::cluster::{Api, Limits};
use crate::config;
use crate::journal::{Journal, JournalError, SourceState, WriterThread};
use crate::model::Seq;
use crate::sim::faults::{Act, Answer, Fault, On, Refusal, Signal};
use crate::sim::{Kind, Settings, Sim, objects};
use crate::wire::Entry;

/// Longer than anything takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A simulated cluster and a state directory: what outlives a daemon.
struct Place {
    sim: Sim,
    dir: TempDir,
    timings: Timings,
}

/// A fleet and its journal.
struct Daemon {
    journal: Journal,
    thread: WriterThread,
    handle: FleetHandle,
    cancel: CancellationToken,
    tasks: JoinSet<Result<(), FleetError>>,
}

fn quick() -> Timings {
    Timings {
        patience: Patience {
            short_watch: Duration::from_millis(50),
            short_watches: 4,
            undecodable: 3,
            server_errors: Duration::from_millis(300),
            ahead: Duration::from_millis(400),
            not_found: Duration::from_millis(200),
            slow: Duration::from_millis(50),
            settle: Duration::from_millis(300),
            forgive: Duration::from_secs(10),
        },
        silence: Duration::from_secs(30),
        backoff_first: Duration::from_millis(10),
        backoff_most: Duration::from_millis(100),
        discovery: Duration::from_millis(100),
        legacy_discovery: Duration::from_millis(100),
        ..Timings::default()
    }
}

fn watch(resources: &[&str]) -> config::Watch {
    config::Watch { resources: resources.iter().map(|name| (*name).to_owned()).collect(), ..config::Watch::default() }
}

fn plan(watch: Vec<config::Watch>) -> Plan {
    Plan { watch, redactor: Arc::new(Redactor::new(&config::Redact::default(), [7; 32]).unwrap()) }
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

    fn state(&self) -> std::path::PathBuf {
        self.dir.path().join("state")
    }

    async fn start(&self, watches: Vec<config::Watch>) -> Daemon {
        let (journal, thread) = Journal::open(&self.state()).unwrap();
        let settings =
            config::Cluster { kubeconfig: Some(self.dir.path().join("kubeconfig")), ..config::Cluster::default() };
        let limits = Limits { head: Duration::from_secs(2), read: Duration::from_secs(2), ..Limits::default() };
        let api = Api::open(&settings, limits).await.unwrap();
        let (fleet, handle) = Fleet::new(api, journal.clone(), plan(watches), self.timings.clone());
        let cancel = CancellationToken::new();
        let mut tasks = JoinSet::new();
        tasks.spawn(fleet.run(cancel.clone()));
        Daemon { journal, thread, handle, cancel, tasks }
    }

    /// Starts and waits until every source has settled.
    async fn ready(&self, watches: Vec<config::Watch>) -> Daemon {
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

    /// What happened to ConfigMaps after this revision, as the log tells it.
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
                    entry.type_name,
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

fn maps() -> Vec<config::Watch> {
    vec![watch(&["configmaps"])]
}

#[tokio::test]
async fn a_first_list_and_what_follows_are_in_the_log_as_they_happened() {
    let place = Place::new().await;
    place.map("a", "1");
    place.map("b", "1");
    let at = place.sim.revision();
    let daemon = place.ready(maps()).await;
    place.change("a", "2");
    place.map("c", "1");
    place.drop("b");
    place.map("b", "again");
    let log = daemon.until(&place, |log| log.len() == 6).await;
    assert_eq!(log[..2], [format!("ADDED listed a@{}", at - 1), format!("ADDED listed b@{at}")]);
    assert_eq!(log[2..], place.truth(at));
    assert_eq!(place.lists(), 1);
    daemon.stop().await;
}

#[tokio::test]
async fn a_restart_resumes_without_a_list_and_repeats_nothing() {
    let place = Place::new().await;
    place.map("a", "1");
    let at = place.sim.revision();
    let mut daemon = place.ready(maps()).await;
    for round in 0..5 {
        place.map(&format!("up{round}"), "1");
        daemon.until_last(&place, &format!("up{round}@")).await;
        daemon.stop().await;
        place.map(&format!("down{round}"), "1");
        place.change("a", &format!("{round}"));
        daemon = place.ready(maps()).await;
        daemon.until(&place, |log| log.len() == 1 + 3 * (round + 1)).await;
    }
    assert_eq!(daemon.log(&place)[1..], place.truth(at));
    assert_eq!(place.lists(), 1, "only the first start listed");
    daemon.stop().await;
}

/// Trouble with watches that must not show in the log, and needs no list.
async fn harmless(act: Act) {
    let place = Place::new().await;
    place.map("first", "1");
    let at = place.sim.revision();
    let trouble = format!("{act:?}");
    place.sim.fault(Fault::new(On::watch("configmaps"), act).times(2));
    let daemon = place.start(maps()).await;
    daemon.until_last(&place, "first@").await;
    for n in 0..6 {
        place.map(&format!("m{n}"), "1");
        place.change(&format!("m{n}"), "2");
        place.drop(&format!("m{n}"));
    }
    let log = daemon.until_last(&place, &format!("@{}", place.sim.revision())).await;
    assert_eq!(log[1..], place.truth(at), "{trouble}");
    assert_eq!(place.lists(), 1, "{trouble}");
    daemon.stop().await;
}

#[tokio::test]
async fn a_cut_in_the_middle_of_a_line_loses_and_repeats_nothing() {
    for act in [
        Act::cut_in_event(2),
        Act::cut_after_events(1),
        Act::end_after_events(2),
        Act::tamper(crate::sim::faults::At::Event(1), crate::sim::faults::How::Half, crate::sim::faults::Then::Reset),
        Act::Reset,
        Act::Chop(3),
        Act::repeat(2),
        Act::undecodable(1),
        Act::html(503),
        Act::refuse(&Refusal::internal("etcd is away")),
        Act::error_event(1, &Refusal::internal("no leader")),
        Act::error_event(1, &Refusal::not_ready(0)),
    ] {
        harmless(act).await;
    }
}

#[tokio::test]
async fn a_server_that_forgets_gets_a_gap_and_the_difference() {
    for http_410 in [false, true] {
        let place = Place::with(|settings| settings.http_410 = http_410).await;
        place.map("stays", "1");
        place.map("changes", "1");
        place.map("goes", "1");
        place.map("again", "1");
        let daemon = place.ready(maps()).await;
        daemon.until(&place, |log| log.len() == 4).await;
        daemon.stop().await;
        place.change("changes", "2");
        place.drop("goes");
        place.drop("again");
        place.map("again", "2");
        place.map("new", "1");
        place.map("never seen", "1");
        place.drop("never seen");
        place.sim.compact_all();
        let daemon = place.ready(maps()).await;
        let log = daemon.until(&place, |log| log.len() == 10).await;
        let words: Vec<&str> = log[4..].iter().map(|line| line.split('@').next().unwrap()).collect();
        assert_eq!(words[0], "GAP expired");
        let mut rest = words[1..].to_vec();
        rest.sort_unstable();
        assert_eq!(
            rest,
            [
                "ADDED inferred again",
                "ADDED inferred new",
                "DELETED inferred again",
                "DELETED inferred goes",
                "MODIFIED inferred changes"
            ]
        );
        let place_of = |word: &str| words.iter().position(|other| *other == word);
        assert!(place_of("DELETED inferred again") < place_of("ADDED inferred again"));
        place.map("after", "1");
        daemon.until_last(&place, "ADDED watched after").await;
        daemon.stop().await;
    }
}

#[tokio::test]
async fn many_deletions_of_one_version_all_arrive_though_the_watch_is_cut_between_them() {
    let place = Place::new().await;
    let names: Vec<String> = (0..40).map(|n| format!("e{n:02}")).collect();
    for name in &names {
        place.map(name, "1");
    }
    let daemon = place.ready(maps()).await;
    daemon.until(&place, |log| log.len() == 40).await;
    // The next two watches, which see the deletions, are cut within them.
    place.sim.fault(Fault::new(On::watch("configmaps"), Act::cut_in_event(25)).after(1));
    place.watch_again_with(Fault::new(On::watch("configmaps"), Act::cut_after_events(15))).await;
    let pairs: Vec<(&str, &str)> = names.iter().map(|name| ("shop", name.as_str())).collect();
    let at = place.sim.expire_together("configmaps", &pairs).unwrap();
    let log = daemon.until(&place, |log| log.len() == 80).await;
    let mut deleted = log[40..].to_vec();
    deleted.sort_unstable();
    let expected: Vec<String> = names.iter().map(|name| format!("DELETED watched {name}@{at}")).collect();
    assert_eq!(deleted, expected, "each once");
    place.map("after", "1");
    assert_eq!(daemon.until_last(&place, "after").await.len(), 81);
    assert_eq!(place.lists(), 1);
    daemon.stop().await;
}

#[tokio::test]
async fn a_restored_server_is_noticed_and_told_as_a_rollback() {
    let place = Place::new().await;
    place.map("old", "1");
    let then = place.sim.revision();
    let daemon = place.ready(maps()).await;
    place.map("lost", "1");
    place.change("old", "2");
    daemon.until(&place, |log| log.len() == 3).await;
    daemon.stop().await;
    place.sim.restore(then);
    let daemon = place.start(maps()).await;
    let log = daemon.until(&place, |log| log.len() == 6).await;
    assert_eq!(log[3], "GAP rollback");
    let mut rest: Vec<&str> = log[4..].iter().map(String::as_str).collect();
    rest.sort_unstable();
    assert_eq!(
        rest,
        ["DELETED inferred lost@".to_owned() + &(then + 1).to_string(), format!("MODIFIED inferred old@{then}")]
    );
    place.map("after", "1");
    daemon.until_last(&place, "ADDED watched after").await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_server_that_was_only_slow_keeps_no_other_source_from_listing() {
    let mut place = Place::new().await;
    place.timings.lists = 1;
    place.map("a", "1");
    let both = || vec![watch(&["configmaps", "secrets"])];
    place.ready(both()).await.stop().await;
    let probe = On::list("configmaps").query("resourceVersionMatch");
    place.sim.fault(Fault::new(probe, Act::refuse(&Refusal::too_large(9, 8))).always());
    let daemon = place.start(both()).await;
    daemon.until_state("configmaps", |state| *state == SourceState::Watching).await;
    place.sim.wait_for_watches("*", 2).await.unwrap();
    place.sim.create("secrets", objects::secret("shop", "s", &[])).unwrap();
    daemon.until_last(&place, "s@").await;
    place.map("b", "1");
    place.sim.forget_watch_history("secrets", place.sim.revision());
    place.sim.signal("secrets", &Signal::End);
    daemon.until(&place, |log| log.iter().any(|line| line == "GAP expired")).await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_restored_server_that_catches_up_is_told_as_a_rollback_all_the_same() {
    let mut place = Place::new().await;
    place.timings.patience.ahead = PATIENCE;
    place.map("old", "1");
    let then = place.sim.revision();
    let daemon = place.ready(maps()).await;
    place.map("lost", "1");
    daemon.until_last(&place, "lost@").await;
    daemon.stop().await;
    place.sim.restore(then);
    place.sim.clear_requests();
    // The list that follows is held up until the server has passed what the journal has.
    let list = On::list("configmaps").query("limit=500");
    place.sim.fault(Fault::new(list.clone(), Act::refuse(&Refusal::not_ready(0))).always());
    let daemon = place.start(maps()).await;
    place.sim.wait_for_count(&list, 1).await.unwrap();
    place.map("untold", "1");
    for n in 0..5 {
        place.map(&format!("m{n}"), "1");
    }
    place.sim.heal();
    place.map("last", "1");
    let log = daemon.until(&place, |log| log.iter().any(|line| line.contains(" last@"))).await;
    assert_eq!(log[2], "GAP rollback");
    assert!(log.iter().any(|line| line.starts_with("ADDED inferred untold@")), "{log:#?}");
    assert!(log.iter().any(|line| line.starts_with("DELETED inferred lost@")), "{log:#?}");
    assert_eq!(log.iter().filter(|line| line.starts_with("GAP")).count(), 1);
    daemon.stop().await;
}

#[tokio::test]
async fn a_rollback_that_one_source_finds_is_looked_for_by_those_whose_watch_hears_nothing() {
    let mut place = Place::new().await;
    place.timings.silence = PATIENCE * 2;
    let then = place.sim.revision();
    let daemon = place.ready(vec![watch(&["configmaps", "secrets"])]).await;
    place.map("lost", "1");
    place.sim.create("secrets", objects::secret("shop", "lost", &[])).unwrap();
    daemon.until(&place, |log| log.len() == 2).await;
    place.sim.wait_for_watches("*", 2).await.unwrap();
    place.sim.signal("secrets", &Signal::Stall);
    place.sim.restore(then);
    let log = daemon
        .until(&place, |log| log.iter().filter(|line| line.starts_with("DELETED inferred lost@")).count() == 2)
        .await;
    assert_eq!(log.iter().filter(|line| *line == "GAP rollback").count(), 2, "{log:#?}");
    daemon.stop().await;
}

#[tokio::test]
async fn an_undecodable_event_is_given_up_with_a_gap_and_never_passed_over() {
    let place = Place::new().await;
    let daemon = place.ready(maps()).await;
    place.map("a", "1");
    daemon.until_last(&place, "a@").await;
    let garbage = Act::replace(1, "{\"type\":\"ADDED\",\"object\":{]}\n");
    place.watch_again_with(Fault::new(On::watch("configmaps"), garbage).times(3)).await;
    place.map("b", "1");
    let log = daemon.until(&place, |log| log.len() == 3).await;
    assert_eq!(log[1], "GAP undecodable");
    assert!(log[2].starts_with("ADDED inferred b@"), "{log:?}");
    daemon.stop().await;
}

#[tokio::test]
async fn a_line_that_is_too_long_is_not_read_and_told() {
    let mut place = Place::new().await;
    place.timings.line_limit = 64 << 10;
    let daemon = place.ready(maps()).await;
    place.watch_again_with(Fault::new(On::watch("configmaps"), Act::oversize(0, 1 << 20))).await;
    place.map("b", "1");
    let log = daemon.until(&place, |log| log.len() == 2).await;
    assert_eq!(log[0], "GAP oversize");
    assert!(log[1].starts_with("ADDED inferred b@"), "{log:?}");
    daemon.stop().await;
}

#[tokio::test]
async fn what_a_server_asks_to_wait_is_waited() {
    let place = Place::new().await;
    place.sim.fault(Fault::new(On::watch("configmaps"), Act::flow_control(1)));
    let daemon = place.ready(maps()).await;
    place.map("a", "1");
    daemon.until_last(&place, "a@").await;
    let watches: Vec<_> = place.sim.requests().into_iter().filter(|seen| seen.is_watch("configmaps")).collect();
    assert!(watches[1].at - watches[0].at >= Duration::from_secs(1));
    assert_eq!(watches[0].param("resourceVersion"), watches[1].param("resourceVersion"), "from the same version");
    assert_eq!(place.lists(), 1);
    daemon.stop().await;
}

#[tokio::test]
async fn a_new_token_in_the_kubeconfig_is_taken_up() {
    let place = Place::new().await;
    let daemon = place.ready(maps()).await;
    place.sim.revoke(crate::sim::TOKEN);
    place.sim.signal("configmaps", &Signal::End);
    daemon
        .until_state("configmaps", |state| matches!(state, SourceState::Degraded(text) if text.contains("401")))
        .await;
    place.sim.admit("fresh");
    std::fs::write(place.dir.path().join("kubeconfig"), place.sim.kubeconfig_with_token("fresh")).unwrap();
    place.map("a", "1");
    daemon.until_last(&place, "a@").await;
    assert_eq!(place.lists(), 1);
    daemon.stop().await;
}

#[tokio::test]
async fn a_forbidden_resource_degrades_alone_and_heals_when_it_is_granted() {
    let place = Place::new().await;
    place.sim.deny("list", "configmaps", None);
    let daemon = place.ready(vec![watch(&["configmaps", "secrets"])]).await;
    let state = daemon.until_state("configmaps", |state| matches!(state, SourceState::Degraded(_))).await;
    let SourceState::Degraded(text) = state else { panic!() };
    assert!(text.contains("configmaps") && text.contains("decklog rbac"), "{text}");
    daemon.until_state("secrets", |state| *state == SourceState::Watching).await;
    place.sim.grant("configmaps");
    place.map("a", "1");
    daemon.until_last(&place, "a@").await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_source_that_only_ever_fails_does_not_keep_the_others_from_being_ready() {
    let body = bytes::Bytes::from_static(b"not a list");
    let garbage = Act::Answer(Answer { status: 200, content_type: "application/json", retry_after: None, body });
    for failing in [Act::refuse(&Refusal::internal("no")), Act::refuse(&Refusal::not_ready(0)), garbage] {
        let place = Place::new().await;
        place.sim.fault(Fault::new(On::list("configmaps"), failing).always());
        let daemon = place.ready(vec![watch(&["configmaps", "secrets"])]).await;
        assert!(matches!(daemon.stats("configmaps").state(), SourceState::Degraded(_)));
        daemon.stop().await;
    }
}

#[tokio::test]
async fn line_breaks_between_tokens_never_reach_the_log() {
    let place = Place::new().await;
    place.map("a", "1");
    let pretty = serde_json::to_vec_pretty(&serde_json::json!({
        "kind": "ConfigMapList", "apiVersion": "v1", "metadata": {"resourceVersion": place.sim.revision().to_string()},
        "items": [place.sim.get("configmaps", "shop", "a").unwrap().value()],
    }));
    let body = pretty.unwrap().into();
    let answer = Answer { status: 200, content_type: "application/json", retry_after: None, body };
    place.sim.fault(Fault::new(On::list("configmaps").query("limit=500"), Act::Answer(answer)));
    let daemon = place.ready(maps()).await;
    place.map("b", "1");
    daemon.until_last(&place, "b@").await;
    let mut reader = crate::journal::Reader::open(&place.state()).unwrap();
    let entries = reader.entries_after(Seq(0), 10, usize::MAX).unwrap();
    assert_eq!(entries.len(), 2);
    for stored in entries {
        assert!(!stored.line.contains(&b'\n') && !stored.line.contains(&b'\r'));
    }
    daemon.stop().await;
}

#[tokio::test]
async fn custom_resources_come_go_and_come_again() {
    let place = Place::new().await;
    let daemon = place.ready(vec![watch(&["*.example.com"])]).await;
    let crd = || objects::crd("widgets.example.com", "Widget", true, &["v1"]);
    let widget = |name: &str| serde_json::json!({"metadata": {"namespace": "shop", "name": name}, "spec": {"n": 1}});
    for round in 0..2 {
        place.sim.define(crd()).unwrap();
        place.sim.create("widgets.example.com", widget(&format!("w{round}"))).unwrap();
        daemon.until_last(&place, &format!("w{round}@")).await;
        daemon.until_state("widgets.example.com", |state| *state == SourceState::Watching).await;
        place.sim.undefine("widgets.example.com").unwrap();
        daemon.until(&place, |log| log.last().is_some_and(|last| last.starts_with("DELETED"))).await;
        let gone = async {
            while daemon.handle.overview().sources.iter().any(|source| source.spec.resource.plural == "widgets") {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(PATIENCE, gone).await.expect("its source ends");
    }
    let log = daemon.log(&place);
    let words: Vec<&str> =
        log.iter().filter(|line| !line.starts_with("GAP")).map(|line| line.split('@').next().unwrap()).collect();
    let plain: Vec<String> =
        words.iter().map(|word| word.replace("inferred", "x").replace("watched", "x").replace("listed", "x")).collect();
    assert_eq!(plain, ["ADDED x w0", "DELETED x w0", "ADDED x w1", "DELETED x w1"]);
    daemon.stop().await;
}

#[tokio::test]
async fn deletions_that_went_by_unseen_with_their_resource_are_told() {
    let mut place = Place::new().await;
    place.timings.silence = Duration::from_millis(300);
    place.sim.define(objects::crd("widgets.example.com", "Widget", true, &["v1"])).unwrap();
    place.sim.fault(Fault::new(On::watch("widgets.example.com"), Act::stall_after_events(1)));
    let daemon = place.ready(vec![watch(&["*.example.com"])]).await;
    place.sim.wait_for_watches("widgets.example.com", 1).await.unwrap();
    let widget = serde_json::json!({"metadata": {"namespace": "shop", "name": "w"}, "spec": {"n": 1}});
    place.sim.create("widgets.example.com", widget).unwrap();
    daemon.until_last(&place, "w@").await;
    place.sim.undefine("widgets.example.com").unwrap();
    let log = daemon.until(&place, |log| log.len() == 3).await;
    assert_eq!(log[1], "GAP scope");
    assert!(log[2].starts_with("DELETED inferred w@"), "{log:?}");
    daemon.stop().await;
}

#[tokio::test]
async fn a_resource_served_in_another_version_goes_on_from_where_it_was() {
    let place = Place::new().await;
    place.sim.define(objects::crd("widgets.example.com", "Widget", true, &["v1"])).unwrap();
    let widget = |name: &str| serde_json::json!({"metadata": {"namespace": "shop", "name": name}, "spec": {"n": 1}});
    let daemon = place.ready(vec![watch(&["widgets.example.com"])]).await;
    place.sim.create("widgets.example.com", widget("a")).unwrap();
    daemon.until_last(&place, "a@").await;
    place.sim.serve_versions("widgets.example.com", &["v2"]).unwrap();
    place.sim.create("widgets.example.com", widget("b")).unwrap();
    let log = daemon.until_last(&place, "b@").await;
    let told: Vec<&str> =
        log.iter().filter(|line| !line.starts_with("GAP")).map(|line| line.split('@').next().unwrap()).collect();
    assert_eq!(told.len(), 2, "nothing is told twice, nothing deleted: {log:?}");
    daemon.stop().await;
}

#[tokio::test]
async fn a_page_token_that_expires_begins_the_list_again() {
    let mut place = Place::new().await;
    place.timings.page = 2;
    for n in 0..7 {
        place.map(&format!("m{n}"), "1");
    }
    place
        .sim
        .fault(Fault::new(On::list("configmaps").query("continue="), Act::refuse(&Refusal::expired(1, 2))).times(2));
    let daemon = place.ready(maps()).await;
    let log = daemon.until(&place, |log| log.len() == 7).await;
    assert!(log.iter().all(|line| line.starts_with("ADDED listed")), "{log:?}");
    let lists: Vec<_> = place.sim.requests().into_iter().filter(|seen| seen.is_list("configmaps")).collect();
    assert_eq!(lists.last().unwrap().param("limit"), None, "after two failures in one piece: {lists:#?}");
    place.map("after", "1");
    assert_eq!(daemon.until_last(&place, "after").await.len(), 8);
    daemon.stop().await;
}

#[tokio::test]
async fn a_list_that_breaks_off_changes_nothing() {
    let place = Place::new().await;
    for n in 0..20 {
        place.map(&format!("m{n:02}"), "1");
    }
    let daemon = place.ready(maps()).await;
    daemon.until(&place, |log| log.len() == 20).await;
    daemon.stop().await;
    place.drop("m03");
    place.sim.compact_all();
    for bytes in [900, 2000, 3000] {
        place.sim.fault(Fault::new(On::list("configmaps").query("limit=500"), Act::end_after_bytes(bytes)));
        place.sim.fault(Fault::new(On::list("configmaps").query("limit=500"), Act::cut_after_bytes(bytes)));
    }
    let daemon = place.ready(maps()).await;
    place.map("after", "1");
    let log = daemon.until_last(&place, "after").await;
    assert_eq!(log[20], "GAP expired");
    assert!(log[21].starts_with("DELETED inferred m03@") && log.len() == 23, "{log:#?}");
    daemon.stop().await;
}

#[tokio::test]
async fn silence_is_noticed_and_the_watch_begun_again() {
    let mut place = Place::new().await;
    place.timings.silence = Duration::from_millis(300);
    let at = place.sim.revision();
    place.sim.fault(Fault::new(On::watch("configmaps"), Act::stall_after_events(1)));
    let daemon = place.ready(maps()).await;
    place.map("a", "1");
    place.map("b", "1");
    daemon.until_last(&place, "b@").await;
    assert_eq!(daemon.log(&place), place.truth(at));
    assert_eq!(place.lists(), 1);
    daemon.stop().await;
}

#[tokio::test]
async fn requests_that_are_never_answered_are_given_up() {
    let place = Place::new().await;
    place.map("a", "1");
    place.sim.fault(Fault::new(On::list("configmaps"), Act::Hang));
    place.sim.fault(Fault::new(On::list("configmaps"), Act::stall_after_bytes(100)));
    place.sim.fault(Fault::new(On::watch("configmaps"), Act::Hang));
    let daemon = place.ready(maps()).await;
    place.map("b", "1");
    assert_eq!(daemon.until_last(&place, "b@").await.len(), 2);
    daemon.stop().await;
}

#[tokio::test]
async fn a_bookmark_moves_the_position_past_what_other_resources_did() {
    let place = Place::new().await;
    place.map("a", "1");
    let daemon = place.ready(maps()).await;
    daemon.until(&place, |log| log.len() == 1).await;
    place.sim.wait_for_watches("configmaps", 1).await.unwrap();
    for n in 0..5 {
        place.sim.create("secrets", objects::secret("shop", &format!("s{n}"), &[])).unwrap();
    }
    let at = place.sim.revision();
    place.sim.signal("configmaps", &Signal::Bookmark);
    let moved = async {
        loop {
            daemon.journal.flush().await.unwrap();
            let source = daemon.journal.reader().unwrap().sources().unwrap().remove(0);
            if source.resume == Some(at.to_string()) {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, moved).await.expect("the position moves");
    daemon.stop().await;
    place.sim.compact(at);
    let daemon = place.ready(maps()).await;
    place.map("b", "1");
    let log = daemon.until_last(&place, "b@").await;
    assert_eq!(log.len(), 2, "no gap: {log:?}");
    daemon.stop().await;
}

#[tokio::test]
async fn a_changed_selector_is_a_change_of_scope() {
    let place = Place::new().await;
    for (name, tier) in [("web", "web"), ("db", "db")] {
        let mut map = objects::config_map("shop", name, "1");
        map["metadata"]["labels"] = serde_json::json!({"tier": tier});
        place.sim.create("configmaps", map).unwrap();
    }
    let daemon = place.ready(maps()).await;
    daemon.until(&place, |log| log.len() == 2).await;
    let mut web = watch(&["configmaps"]);
    web.label_selector = "tier=web".into();
    daemon.handle.reload(plan(vec![web]));
    let log = daemon.until(&place, |log| log.len() == 4).await;
    assert_eq!(log[2], "GAP scope");
    assert!(log[3].starts_with("DELETED inferred db@"), "{log:?}");
    daemon.stop().await;
}

#[tokio::test]
async fn a_reload_ends_and_begins_only_what_changed() {
    let place = Place::new().await;
    let daemon = place.ready(vec![watch(&["configmaps", "secrets"])]).await;
    place.sim.wait_for_watches("*", 2).await.unwrap();
    let before = place.sim.count(&On::watch("configmaps"));
    let redactor = Arc::new(Redactor::new(&config::Redact::default(), [7; 32]).unwrap());
    // The rules are the same object, so they have not changed.
    let kept = Plan { redactor: Arc::clone(&redactor), ..plan(vec![watch(&["configmaps", "secrets"])]) };
    daemon.handle.reload(kept.clone());
    place.sim.wait_for_count(&On::watch("configmaps"), before + 1).await.unwrap();
    daemon.handle.reload(Plan { watch: vec![watch(&["configmaps", "pods"])], ..kept });
    place.sim.wait_for_watches("pods", 1).await.unwrap();
    place.sim.wait_for_watches("secrets", 0).await.unwrap();
    assert_eq!(place.sim.count(&On::watch("configmaps")), before + 1, "it goes on undisturbed");
    let active: Vec<String> = daemon
        .journal
        .reader()
        .unwrap()
        .sources()
        .unwrap()
        .iter()
        .filter(|source| source.active)
        .map(crate::journal::SourceRow::name)
        .collect();
    assert_eq!(active, ["configmaps", "pods"]);
    daemon.stop().await;
}

#[tokio::test]
async fn namespaces_are_sources_of_their_own() {
    let place = Place::new().await;
    let mut both = watch(&["configmaps"]);
    both.namespaces = vec!["shop".into(), "pay".into()];
    let daemon = place.ready(vec![both]).await;
    place.map("a", "1");
    place.sim.create("configmaps", objects::config_map("default", "elsewhere", "1")).unwrap();
    place.sim.create("configmaps", objects::config_map("pay", "b", "1")).unwrap();
    let mut log = daemon.until(&place, |log| log.len() == 2).await;
    log.sort_unstable();
    assert!(log[0].starts_with("ADDED watched a@") && log[1].starts_with("ADDED watched b@"), "{log:?}");
    assert_eq!(daemon.handle.overview().sources.len(), 2);
    daemon.stop().await;
}

#[tokio::test]
async fn everything_is_watched_once_with_old_and_with_new_discovery() {
    for legacy in [false, true] {
        let place = Place::with(|settings| settings.legacy_discovery = legacy).await;
        let daemon = place.ready(vec![watch(&["*"])]).await;
        let names: Vec<String> = daemon.handle.overview().sources.iter().map(|source| source.spec.name()).collect();
        assert!(names.contains(&"pods".to_owned()) && names.contains(&"deployments.apps".to_owned()), "{names:?}");
        assert_eq!(names.iter().filter(|name| name.starts_with("events")).count(), 1, "{names:?}");
        assert!(!names.iter().any(|name| name.contains('/')), "{names:?}");
        daemon.stop().await;
    }
}

#[tokio::test]
async fn a_group_that_is_away_loses_nothing() {
    let place = Place::new().await;
    place.sim.define(objects::crd("widgets.example.com", "Widget", true, &["v1"])).unwrap();
    let widget = |name: &str| serde_json::json!({"metadata": {"namespace": "shop", "name": name}, "spec": {"n": 1}});
    place.sim.create("widgets.example.com", widget("a")).unwrap();
    let daemon = place.ready(vec![watch(&["widgets.example.com"])]).await;
    daemon.until_last(&place, "a@").await;
    place.sim.set(|settings| {
        settings.stale_groups.insert("example.com".to_owned());
    });
    place.sim.fault(Fault::new(On::watch("widgets.example.com"), Act::refuse(&Refusal::not_served())).times(20));
    place.sim.signal("widgets.example.com", &Signal::End);
    place.sim.wait_for_count(&On::watch("widgets.example.com"), 20).await.unwrap();
    place.sim.create("widgets.example.com", widget("b")).unwrap();
    place.sim.set(|settings| settings.stale_groups.clear());
    let log = daemon.until_last(&place, "b@").await;
    assert_eq!(log.len(), 2, "{log:?}");
    daemon.stop().await;
}

async fn another_cluster(place: &Place) -> Sim {
    let settings = Settings { cluster_uid: "another".to_owned(), ..Settings::default() };
    let other = Sim::start_with(settings).await.unwrap();
    other.write_kubeconfig(&place.dir.path().join("kubeconfig")).unwrap();
    other
}

#[tokio::test]
async fn another_cluster_at_the_same_address_is_refused() {
    let place = Place::new().await;
    place.ready(maps()).await.stop().await;
    let _other = another_cluster(&place).await;
    let mut daemon = place.start(maps()).await;
    let error = daemon.tasks.join_next().await.unwrap().unwrap().unwrap_err();
    assert!(matches!(error, FleetError::Journal(JournalError::OtherCluster { .. })), "{error}");
}

#[tokio::test]
async fn another_cluster_that_takes_the_address_over_is_noticed_before_anything_of_it_is_read() {
    let place = Place::new().await;
    let mut daemon = place.ready(maps()).await;
    let other = another_cluster(&place).await;
    other.create("configmaps", objects::config_map("default", "foreign", "1")).unwrap();
    place.sim.stop_listening().await;
    let error = tokio::time::timeout(PATIENCE, daemon.tasks.join_next()).await.unwrap().unwrap().unwrap().unwrap_err();
    assert!(matches!(error, FleetError::Journal(JournalError::OtherCluster { .. })), "{error}");
    assert_eq!(daemon.log(&place), Vec::<String>::new());
    assert_eq!(other.count(&On::list("configmaps")) + other.count(&On::watch("configmaps")), 0);
}

#[tokio::test]
async fn an_api_server_that_is_away_is_waited_for() {
    let place = Place::new().await;
    let at = place.sim.revision();
    let daemon = place.ready(maps()).await;
    place.sim.wait_for_watches("configmaps", 1).await.unwrap();
    place.sim.stop_listening().await;
    daemon
        .until_state(
            "configmaps",
            |state| matches!(state, SourceState::Degraded(text) if text.contains("refuses connections")),
        )
        .await;
    place.map("meanwhile", "1");
    place.sim.start_listening().await.unwrap();
    daemon.until_last(&place, "meanwhile@").await;
    assert_eq!(daemon.log(&place), place.truth(at));
    assert_eq!(place.lists(), 1);
    assert!(daemon.stats("configmaps").failures().any(|(name, count)| name == "unreachable" && count > 0));
    daemon.stop().await;
}

#[tokio::test]
async fn watches_that_end_at_once_make_no_hot_loop_and_in_the_end_a_list() {
    let place = Place::new().await;
    place.map("a", "1");
    let daemon = place.ready(maps()).await;
    daemon.until(&place, |log| log.len() == 1).await;
    place.sim.fault(Fault::new(On::watch("configmaps"), Act::empty()).times(12));
    place.sim.signal("configmaps", &Signal::End);
    place.sim.wait_for_count(&On::watch("configmaps"), 13).await.unwrap();
    place.map("b", "1");
    let log = daemon.until_last(&place, "b@").await;
    assert_eq!(log.iter().filter(|line| line.starts_with("GAP")).count(), 1, "one, however long it lasts: {log:?}");
    assert_eq!(place.lists(), 2);
    daemon.stop().await;
}

/// One of the troubles that a watch or a list may meet, and that must never show in the log.
fn any_trouble(random: &mut fastrand::Rng) -> Act {
    match random.u8(0..12) {
        0 => Act::cut_in_event(random.usize(0..5)),
        1 => Act::cut_after_events(random.usize(0..5)),
        2 => Act::end_after_events(random.usize(1..5)),
        3 => Act::Reset,
        4 => Act::Chop(random.usize(1..50)),
        5 => Act::repeat(random.usize(1..5)),
        6 => Act::html(502),
        7 => Act::refuse(&Refusal::not_ready(0)),
        8 => Act::error_event(random.usize(0..4), &Refusal::internal("no leader")),
        9 => Act::cut_after_bytes(random.usize(1..3000)),
        10 => Act::Delay(Duration::from_millis(random.u64(1..30))),
        _ => Act::empty(),
    }
}

/// Writes, troubles and restarts in any order; `forgetting` also lets the server forget and expires objects together.
async fn chaos(seed: u64, forgetting: bool) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut place = Place::new().await;
    place.timings.page = 3;
    // Troubles come thicker here than anything that should be answered with a list.
    place.timings.patience.server_errors = PATIENCE;
    place.timings.patience.short_watches = 1000;
    place.map("first", "1");
    let at = place.sim.revision();
    let mut daemon = place.ready(maps()).await;
    daemon.until_last(&place, "first@").await;
    for step in 0..150 {
        let name = format!("m{}", random.u8(0..8));
        let there = place.sim.get("configmaps", "shop", &name).is_ok();
        match random.u8(0..24) {
            0..=8 if there => place.change(&name, &step.to_string()),
            9..=11 if there => place.drop(&name),
            0..=11 => place.map(&name, "new"),
            12..=15 => place.sim.fault(Fault::new(On::watch("configmaps"), any_trouble(&mut random))),
            16 => place.sim.fault(Fault::new(On::list("configmaps"), any_trouble(&mut random))),
            17 => place.sim.signal("configmaps", &Signal::Cut),
            18 => place.sim.signal("configmaps", &Signal::End),
            19 => place.sim.signal("configmaps", &Signal::Bookmark),
            20 => {
                daemon.stop().await;
                daemon = place.start(maps()).await;
            }
            21 => {
                let rows = place.sim.objects("configmaps").unwrap();
                let together: Vec<(&str, &str)> =
                    rows.iter().filter(|row| &*row.name != "first").map(|row| (&*row.namespace, &*row.name)).collect();
                place.sim.expire_together("configmaps", &together).unwrap();
            }
            22 if forgetting => place.sim.compact_all(),
            _ => tokio::time::sleep(Duration::from_millis(random.u64(0..20))).await,
        }
    }
    place.sim.heal();
    place.map("last", "1");
    let log = daemon.until_last(&place, "last@").await;
    daemon.stop().await;

    let mut told = std::collections::BTreeSet::new();
    let mut state = std::collections::BTreeMap::new();
    for line in log.iter().filter(|line| !line.starts_with("GAP")) {
        let (words, version) = line.split_once('@').unwrap();
        let [kind, _, name] = words.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        // An inferred deletion has the version of the object's last known state.
        assert!(told.insert((kind, name, version)), "seed {seed}: {line} is told twice");
        let before = state.get(name).copied();
        assert_eq!(kind == "ADDED", before.is_none(), "seed {seed}: {line} after {before:?}");
        if kind == "DELETED" {
            state.remove(name)
        } else {
            state.insert(name, version)
        };
    }
    let rows = place.sim.objects("configmaps").unwrap();
    let truth: Vec<(String, String)> =
        rows.iter().map(|row| (row.name.to_string(), row.revision.to_string())).collect();
    let state: Vec<(String, String)> =
        state.into_iter().map(|(name, version)| (name.to_owned(), version.to_owned())).collect();
    assert_eq!(state, truth, "seed {seed}: the log's end is what the server has");
    if !forgetting {
        assert_eq!(sorted_within_versions(&log[1..]), sorted_within_versions(&place.truth(at)), "seed {seed}");
        assert_eq!(place.lists_begun(), 1, "seed {seed}");
    }
}

/// Several events of one version come in any order.
fn sorted_within_versions(log: &[String]) -> Vec<&str> {
    let mut lines: Vec<&str> = log.iter().map(String::as_str).collect();
    lines.sort_by_key(|line| {
        let (words, version) = line.split_once('@').unwrap_or((line, "0"));
        (version.parse::<u64>().unwrap_or_default(), words.to_owned())
    });
    lines
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_happens_to_the_connection_the_log_is_what_happened() {
    for seed in 1..=4 {
        chaos(seed, false).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_a_server_forgets_the_log_ends_with_what_it_has() {
    for seed in 11..=14 {
        chaos(seed, true).await;
    }
}

#[tokio::test]
async fn a_resource_that_went_while_nobody_looked_takes_its_objects_along() {
    let place = Place::new().await;
    place.sim.define(objects::crd("widgets.example.com", "Widget", true, &["v1"])).unwrap();
    let widget = serde_json::json!({"metadata": {"namespace": "shop", "name": "w"}, "spec": {"n": 1}});
    place.sim.create("widgets.example.com", widget).unwrap();
    let daemon = place.ready(vec![watch(&["widgets.example.com"])]).await;
    daemon.until_last(&place, "w@").await;
    daemon.stop().await;

    place.sim.undefine("widgets.example.com").unwrap();
    let daemon = place.start(vec![watch(&["widgets.example.com"])]).await;
    let log = daemon.until(&place, |log| log.len() == 3).await;
    assert_eq!(log[1], "GAP scope");
    assert!(log[2].starts_with("DELETED inferred w@"), "{log:?}");
    daemon.stop().await;
}

#[tokio::test]
async fn what_a_narrower_configuration_leaves_out_is_told_as_gone() {
    let place = Place::new().await;
    for namespace in ["shop", "pay"] {
        place.sim.create("configmaps", objects::config_map(namespace, &format!("in-{namespace}"), "x")).unwrap();
    }
    let daemon = place.ready(vec![watch(&["configmaps"])]).await;
    daemon.until(&place, |log| log.len() == 2).await;
    daemon.stop().await;

    let narrow = config::Watch { namespaces: vec!["shop".to_owned()], ..watch(&["configmaps"]) };
    let daemon = place.ready(vec![narrow]).await;
    let log = daemon.until(&place, |log| log.iter().any(|line| line.starts_with("DELETED"))).await;
    let gone: Vec<_> = log.iter().filter(|line| line.starts_with("DELETED")).collect();
    assert!(gone.len() == 1 && gone[0].starts_with("DELETED inferred in-pay@"), "{log:?}");
    assert!(log.iter().any(|line| line == "GAP scope"), "{log:?}");
    daemon.stop().await;
}
