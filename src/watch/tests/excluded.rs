//! Namespaces that are left out: nothing of them is in the log, and nothing else is missing or counted as lost.

use proptest::prelude::*;

use super::*;
use crate::core::spelling::kubernetes::NamespacePattern;
use crate::sim::faults::Seen;

const NAMESPACES: [&str; 5] = ["shop", "pay", "ci-1", "ci-22", "ci"];

fn patterns(texts: &[&str]) -> Vec<NamespacePattern> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn without(texts: &[&str]) -> Vec<watch::Settings> {
    vec![watch::Settings { exclude_namespaces: patterns(texts), ..watch(&["configmaps"]) }]
}

async fn place() -> Place {
    let place = Place::new().await;
    for namespace in &NAMESPACES[2..] {
        place.sim.create_namespace(namespace).unwrap();
    }
    place
}

impl Place {
    /// Another daemon's directory at the same cluster.
    fn beside(&self) -> Self {
        let other = Self { sim: self.sim.clone(), dir: tempfile::tempdir().unwrap(), timings: self.timings.clone() };
        self.sim.write_kubeconfig(&other.dir.path().join("kubeconfig")).unwrap();
        other
    }

    fn put(&self, namespace: &str, name: &str) -> u64 {
        self.sim.create("configmaps", objects::config_map(namespace, name, "1")).unwrap().revision
    }

    /// Its API server refuses field selectors with namespaces.
    fn does_not_select(&self) {
        let refusal = Refusal::bad_request("field label not supported: metadata.namespace");
        for on in [On::list("configmaps"), On::watch("configmaps")] {
            self.sim.fault(Fault::new(on.query("metadata.namespace"), Act::refuse(&refusal)).always());
        }
    }

    /// How many changes of ConfigMaps there were in the namespaces of which this holds.
    fn happened_in(&self, like: impl Fn(&str) -> bool) -> usize {
        self.sim.history_of("configmaps").iter().filter(|row| like(&row.namespace)).count()
    }

    /// The field selectors of the lists, and of the watches, that were asked for.
    fn selectors(&self) -> [Vec<Option<String>>; 2] {
        let of = |on: &On| {
            let requests = self.sim.requests();
            let mut asked: Vec<Option<String>> =
                requests.iter().filter(|seen| on.matches(seen)).map(|seen| seen.param("fieldSelector")).collect();
            asked.dedup();
            asked
        };
        [of(&On::list("configmaps").query("limit=500")), of(&On::watch("configmaps"))]
    }

    /// The log's entries in the namespaces of which this holds, without what differs from one journal to another.
    fn told_in(&self, like: impl Fn(&str) -> bool) -> Vec<String> {
        let mut reader = crate::journal::Reader::open(&self.state()).unwrap();
        let entries = reader.entries_after(Seq(0), 100_000, usize::MAX).unwrap();
        let values = entries.iter().map(|stored| serde_json::from_slice::<serde_json::Value>(&stored.line).unwrap());
        let told = values.filter(|value| value["namespace"].as_str().is_none_or(&like)).map(|mut value| {
            for key in ["seq", "epoch", "time", "happenedBetween", "evidence"] {
                value.as_object_mut().unwrap().remove(key);
            }
            value.to_string()
        });
        told.collect()
    }
}

#[tokio::test]
async fn names_are_left_out_by_the_api_server_and_patterns_by_decklog() {
    let place = place().await;
    for namespace in NAMESPACES {
        place.put(namespace, &format!("in-{namespace}"));
    }
    let daemon = place.ready(without(&["pay", "ci-*"])).await;
    daemon.until(&place, |log| log.len() == 2).await;
    place.sim.wait_for_watches("configmaps", 1).await.unwrap();
    for namespace in NAMESPACES {
        place.put(namespace, &format!("later-{namespace}"));
    }
    let log = daemon.until_last(&place, "later-ci@").await;
    let names: Vec<&str> = log.iter().map(|line| line.split([' ', '@']).nth(2).unwrap()).collect();
    assert_eq!(names, ["in-shop", "in-ci", "later-shop", "later-ci"]);
    let asked = vec![Some("metadata.namespace!=pay".to_owned())];
    assert_eq!(place.selectors(), [asked.clone(), asked]);
    daemon.stop().await;
}

#[tokio::test]
async fn the_position_moves_with_what_is_left_out() {
    let place = place().await;
    let daemon = place.ready(without(&["ci-?"])).await;
    place.sim.wait_for_watches("configmaps", 1).await.unwrap();
    place.put("shop", "a");
    let first = place.put("ci-1", "a");
    place.put("ci-1", "b");
    place.sim.signal("configmaps", &Signal::End);
    // It begins again right below the newest version, as after changes that are recorded.
    let begins = |seen: &[Seen]| {
        let from = Some(first.to_string());
        seen.iter().any(|seen| seen.is_watch("configmaps") && seen.param("resourceVersion") == from)
    };
    place.sim.wait_for_requests(begins).await.unwrap();
    daemon.stop().await;
    let sources = crate::journal::Reader::open(&place.state()).unwrap().sources().unwrap();
    assert_eq!(sources[0].resume, Some(first.to_string()), "the journal has it");
    place.sim.clear_requests();
    let daemon = place.ready(without(&["ci-?"])).await;
    place.sim.wait_for_requests(begins).await.unwrap();
    place.put("shop", "c");
    let log = daemon.until_last(&place, " c@").await;
    assert_eq!((log.len(), place.lists_begun()), (2, 0), "{log:?}");
    daemon.stop().await;
}

#[tokio::test]
async fn a_server_that_does_not_select_by_namespace_is_not_asked_to() {
    let place = place().await;
    place.does_not_select();
    for namespace in NAMESPACES {
        place.put(namespace, &format!("in-{namespace}"));
    }
    for round in 0..2 {
        // The first one lists, and the second one resumes.
        place.sim.clear_requests();
        let daemon = place.ready(without(&["pay", "ci*"])).await;
        daemon.until_state("configmaps", |state| *state == SourceState::Watching).await;
        place.put("pay", &format!("out-{round}"));
        place.put("shop", &format!("new-{round}"));
        let log = daemon.until_last(&place, &format!("new-{round}@")).await;
        assert_eq!(log.len(), 2 + round, "{log:?}");
        let refused = place.sim.requests().iter().filter(|seen| seen.status == Some(400)).count();
        assert_eq!(refused, 1, "it is tried once");
        daemon.stop().await;
    }
}

/// A daemon that begins with a lost position asks about the past first, and what is refused of that would be a gap.
#[tokio::test]
async fn a_server_that_does_not_select_by_namespace_still_says_what_was() {
    let place = place().await;
    place.does_not_select();
    let daemon = place.ready(without(&["pay"])).await;
    place.put("shop", "a");
    daemon.until_last(&place, " a@").await;
    daemon.stop().await;
    place.put("pay", "out");
    let missed = place.put("shop", "b");
    place.sim.expire_watch_history("configmaps", place.sim.revision());
    place.sim.fault(Fault::new(On::list("configmaps").query("resourceVersionMatch=Exact"), Act::Hang).always());
    let daemon = place.start(without(&["pay"])).await;
    daemon.until_state("configmaps", |state| *state == SourceState::Recovering).await;
    daemon.stop().await;
    place.sim.heal();
    place.does_not_select();
    let daemon = place.ready(without(&["pay"])).await;
    let log = daemon.until(&place, |log| log.len() == 2).await;
    assert_eq!(log[1], format!("ADDED recovered b@{missed}"));
    daemon.stop().await;
}

#[tokio::test]
async fn what_is_wrong_with_a_selector_of_ones_own_is_said() {
    let place = place().await;
    let mut watches = without(&["pay"]);
    watches[0].field_selector = "status.phase=Running".into();
    let daemon = place.start(watches).await;
    let state = daemon.until_state("configmaps", |state| matches!(state, SourceState::Degraded(_))).await;
    let SourceState::Degraded(text) = state else { panic!() };
    assert!(text.contains("field label not supported: status.phase"), "{text}");
    daemon.stop().await;
}

/// What lives in no namespace is in none that is left out, the namespaces among it, and no API server is asked about that.
#[tokio::test]
async fn what_lives_in_no_namespace_is_not_touched() {
    let place = place().await;
    place.sim.define(objects::crd("planets.example.com", "Planet", false, &["v1"])).unwrap();
    let watches = vec![watch::Settings {
        exclude_namespaces: patterns(&["ci-1", "ci-*"]),
        ..watch(&["namespaces", "planets.example.com"])
    }];
    let daemon = place.ready(watches).await;
    place.sim.create("planets.example.com", serde_json::json!({"metadata": {"name": "mars"}})).unwrap();
    let log = daemon.until(&place, |log| log.iter().any(|line| line.contains(" mars@"))).await;
    assert!(log.iter().any(|line| line.contains(" ci-1@")), "{log:?}");
    assert!(place.sim.requests().iter().all(|seen| seen.param("fieldSelector").is_none()));
    daemon.stop().await;
}

#[tokio::test]
async fn leaving_out_others_is_a_change_of_scope() {
    let place = place().await;
    for namespace in NAMESPACES {
        place.put(namespace, &format!("in-{namespace}"));
    }
    let daemon = place.ready(without(&["pay", "ci-1"])).await;
    daemon.until(&place, |log| log.len() == 3).await;
    let lists = place.lists_begun();
    // The same namespaces in another order, and beside them an object of which the watch is to be the proof.
    daemon.handle.reload(plan(without(&["ci-1", "pay"]))).await;
    place.put("shop", "seen");
    daemon.until_last(&place, "seen@").await;
    assert_eq!(place.lists_begun(), lists, "that is no other scope");
    // Another one leaves, and one comes back; both by the plan of a daemon that begins.
    daemon.stop().await;
    let daemon = place.ready(without(&["pay", "ci-22"])).await;
    let log = daemon.until(&place, |log| log.len() == 7).await;
    let words: Vec<&str> = log[4..].iter().map(|line| line.split('@').next().unwrap()).collect();
    assert_eq!(words, ["GAP scope", "DELETED inferred in-ci-22", "ADDED inferred in-ci-1"]);
    daemon.stop().await;
}

/// Most of what was known is left out at once, which looks like a broken list.
#[tokio::test]
async fn most_of_what_is_known_may_be_left_out() {
    let place = place().await;
    for n in 0..30 {
        place.put("ci-1", &format!("m{n}"));
    }
    let daemon = place.ready(maps()).await;
    daemon.until(&place, |log| log.len() == 30).await;
    daemon.handle.reload(plan(without(&["ci-*"]))).await;
    let log = daemon.until(&place, |log| log.len() == 61).await;
    assert!(log[31..].iter().all(|line| line.starts_with("DELETED inferred")), "{log:?}");
    daemon.until_state("configmaps", |state| *state == SourceState::Watching).await;
    daemon.stop().await;
}

#[tokio::test]
async fn an_audit_does_not_miss_what_is_left_out() {
    let mut place = Place::with(|settings| settings.bookmarks_every = Duration::from_millis(20)).await;
    place.sim.create_namespace("ci-1").unwrap();
    place.timings.audit = Some(Duration::from_millis(200));
    place.timings.recover = None;
    for name in ["a", "b", "c"] {
        place.put("shop", name);
        place.put("ci-1", name);
    }
    let daemon = place.ready(without(&["ci-*"])).await;
    let audits = || {
        let sources = daemon.journal.reader().unwrap().sources().unwrap();
        (sources[0].audits, sources[0].audit_differences)
    };
    daemon.until_holds("audits are done", || audits().0 >= 2).await;
    assert_eq!((audits().1, daemon.log(&place).len()), (0, 3));
    // What it does not leave out it finds.
    place.watch_again_with(Fault::new(On::watch("configmaps"), Act::replace(0, "\n"))).await;
    place.put("shop", "lost");
    let log = daemon.until_last(&place, "ADDED inferred lost@").await;
    assert_eq!((log.len(), &*log[3]), (5, "GAP audit"), "{log:?}");
    daemon.stop().await;
}

/// One step of a cluster's life.
#[derive(Clone, Debug)]
enum Step {
    /// The object of this number is made, changed or deleted.
    Write { namespace: usize, name: usize, delete: bool },
    /// Every watch ends.
    End,
    /// Every watch has forgotten what was.
    Expire,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (0..NAMESPACES.len(), 0_usize..3, any::<bool>())
            .prop_map(|(namespace, name, delete)| Step::Write { namespace, name, delete }),
        1 => Just(Step::End),
        1 => Just(Step::Expire),
    ]
}

impl Place {
    fn live_through(&self, step: &Step) {
        match step {
            Step::Write { namespace, name, delete } => {
                let (namespace, name) = (NAMESPACES[*namespace], format!("n{name}"));
                match self.sim.get("configmaps", namespace, &name) {
                    Err(_) => drop(self.put(namespace, &name)),
                    Ok(_) if *delete => drop(self.sim.delete("configmaps", namespace, &name).unwrap()),
                    Ok(row) => {
                        let value = row.revision.to_string();
                        let change = |map: &mut serde_json::Value| map["data"]["value"] = value.into();
                        self.sim.update("configmaps", namespace, &name, change).unwrap();
                    }
                }
            }
            Step::End => self.sim.signal("configmaps", &Signal::End),
            Step::Expire => {
                self.sim.expire_watch_history("configmaps", self.sim.revision());
                self.sim.signal("configmaps", &Signal::End);
            }
        }
    }
}

/// Two daemons over one life of a cluster: what one of them leaves out is all that it has not.
async fn live(steps: Vec<Step>, out: Vec<&str>, selects: bool) -> Result<(), TestCaseError> {
    let place = place().await;
    let other = place.beside();
    if !selects {
        place.does_not_select();
    }
    let covered = patterns(&out);
    let is_in = |namespace: &str| !covered.iter().any(|pattern| pattern.covers(namespace));
    let (before, after) = steps.split_at(steps.len() / 4);
    before.iter().for_each(|step| place.live_through(step));
    let (everything, some) = (place.ready(maps()).await, other.ready(without(&out)).await);
    let begun = place.happened_in(|_| true);
    let first = [everything.log(&place).len(), some.log(&other).len()];
    place.sim.wait_for_watches("configmaps", 2).await.unwrap();
    let half = after.len() / 2;
    after[..half].iter().for_each(|step| place.live_through(step));
    // One of them is away for a while, and the watches it comes back to may know nothing of that.
    some.stop().await;
    after[half..].iter().for_each(|step| place.live_through(step));
    let some = other.ready(without(&out)).await;
    let last = ["shop", "pay", "ci"].into_iter().find(|namespace| is_in(namespace)).unwrap();
    place.put(last, "last");
    let happened = place.happened_in(|_| true) - begun;
    everything.until(&place, |log| log.len() == first[0] + happened).await;
    some.until_last(&other, " last@").await;
    everything.stop().await;
    some.stop().await;
    prop_assert_eq!(place.told_in(is_in).len(), other.told_in(|_| true).len(), "first {:?}", first);
    prop_assert_eq!(place.told_in(is_in), other.told_in(|_| true));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn what_is_recorded_is_what_happened_without_what_is_left_out(
        steps in prop::collection::vec(step(), 8..60),
        out in prop::sample::subsequence(vec!["pay", "ci-1", "ci-*", "c?-2*", "none"], 1..4),
        selects in any::<bool>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(live(steps, out, selects))?;
    }
}
