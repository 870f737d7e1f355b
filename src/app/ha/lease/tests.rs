//! Candidates over a simulated API server, by a clock that nobody waits for.

mod random;
mod traces;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::Value;
use tokio::task::JoinSet;

use super::*;
use crate::sim::{Settings, Sim};
use crate::watch::cluster::Limits;

const LEASES: &str = "leases.coordination.k8s.io";

fn name() -> LeaseName {
    LeaseName { namespace: "decklog".to_owned(), name: "sim".to_owned() }
}

/// A cluster that is reached through nothing, and the candidates there.
struct Stage {
    sim: Sim,
    tasks: JoinSet<Result<(), Infallible>>,
    _simulation: runtime::Simulation,
}

/// What a test has of a candidate.
struct Candidate {
    leadership: watch::Receiver<Leadership>,
    handle: ElectorHandle,
    stop: CancellationToken,
    /// Nothing of what it asks arrives.
    cut: Arc<AtomicBool>,
    asked: Arc<Mutex<Vec<String>>>,
    task: tokio::task::AbortHandle,
}

impl Stage {
    fn new() -> Self {
        let simulation = runtime::simulate(7, "2026-01-01T00:00:00Z".parse().unwrap());
        let sim = Sim::unconnected(Settings::default()).unwrap();
        sim.create_namespace("decklog").unwrap();
        Self { sim, tasks: JoinSet::new(), _simulation: simulation }
    }

    async fn candidate(&mut self, identity: &str) -> Candidate {
        self.skewed(identity, SignedDuration::ZERO).await
    }

    async fn skewed(&mut self, identity: &str, skew: SignedDuration) -> Candidate {
        let (cut, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let (sim, is_cut, notes) = (self.sim.clone(), Arc::clone(&cut), Arc::clone(&asked));
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let (sim, is_cut, notes) = (sim.clone(), Arc::clone(&is_cut), Arc::clone(&notes));
            async move {
                tokio::time::sleep(Duration::from_millis(5)).await;
                if is_cut.load(Ordering::Relaxed) {
                    return std::future::pending().await;
                }
                notes.lock().unwrap().push(format!("{} {}", request.method(), request.uri().path()));
                let (mut head, body) = request.into_parts();
                let token = format!("Bearer {}", crate::sim::TOKEN).parse().unwrap();
                head.headers.insert(http::header::AUTHORIZATION, token);
                let body = body.collect().await.map_err(std::io::Error::other)?.to_bytes();
                let answer = sim.answer(http::Request::from_parts(head, body)).await;
                tokio::time::sleep(Duration::from_millis(5)).await;
                answer.map_err(std::io::Error::other)
            }
        });
        let api = Api::with_client(kube::Client::new(service, "default"), "sim", Limits::default()).await.unwrap();
        let (elector, leadership, handle) = Elector::new(api, name(), identity.to_owned());
        let stop = CancellationToken::new();
        let task = self.tasks.spawn(elector.skewed(skew).run(stop.clone()));
        Candidate { leadership, handle, stop, cut, asked, task }
    }

    fn spec(&self) -> Value {
        self.sim.get(LEASES, "decklog", "sim").unwrap().value()["spec"].clone()
    }
}

impl Candidate {
    /// Waits for at most an hour, which passes at once.
    async fn stands(&mut self, what: &str, is: impl Fn(&Leadership) -> bool) {
        let stands = self.leadership.wait_for(is);
        let stands = tokio::time::timeout(Duration::from_secs(3600), stands).await;
        if stands.is_err() {
            panic!("it never {what}: {:?}, {:?}", self.leadership.borrow(), self.handle.problem());
        }
    }

    async fn leads(&mut self) -> u64 {
        self.stands("leads", |leadership| matches!(leadership, Leadership::Leads { .. })).await;
        let Leadership::Leads { transitions } = *self.leadership.borrow() else { unreachable!() };
        transitions
    }

    async fn follows(&mut self, holder: Option<&str>) {
        let follows = Leadership::Follows { holder: holder.map(str::to_owned) };
        self.stands("follows", |leadership| *leadership == follows).await;
    }

    async fn has_problem(&self, text: &str) {
        for _ in 0..36_000 {
            if self.handle.problem().is_some_and(|problem| problem.contains(text)) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("it never says {text:?}: {:?}", self.handle.problem());
    }
}

/// Both clocks are an hour from the truth, in different directions.
#[tokio::test(start_paused = true)]
async fn the_first_leads_and_when_it_is_gone_the_other_within_17_seconds() {
    let mut stage = Stage::new();
    let mut one = stage.skewed("one", SignedDuration::from_hours(1)).await;
    assert_eq!(one.leads().await, 0);
    let mut two = stage.skewed("two", SignedDuration::from_hours(-1)).await;
    two.follows(Some("one")).await;
    let spec = stage.spec();
    assert_eq!(spec["holderIdentity"], "one");
    assert_eq!(spec["leaseDurationSeconds"], 15);
    assert_eq!(spec["acquireTime"], "2026-01-01T01:00:00.010000Z", "{spec}");
    // It renews for as long as it likes.
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert!(matches!(*one.leadership.borrow(), Leadership::Leads { transitions: 0 }));
    assert_eq!(two.asked.lock().unwrap().iter().filter(|asked| asked.starts_with("PUT")).count(), 0);
    one.task.abort();
    let killed = Instant::now();
    assert_eq!(two.leads().await, 1);
    let took = killed.elapsed();
    assert!(took > Duration::from_secs(12) && took <= Duration::from_secs(17), "{took:?}");
    let spec = stage.spec();
    assert_eq!((&spec["holderIdentity"], &spec["leaseTransitions"]), (&"two".into(), &1.into()));
}

#[tokio::test(start_paused = true)]
async fn what_is_given_back_is_taken_within_two_seconds() {
    let mut stage = Stage::new();
    let (mut one, mut two) = (stage.candidate("one").await, stage.candidate("two").await);
    one.leads().await;
    two.follows(Some("one")).await;
    for round in 0..20 {
        tokio::time::sleep(Duration::from_millis(3000 + 137 * round)).await;
        let stopped = Instant::now();
        one.stop.cancel();
        two.leads().await;
        assert!(stopped.elapsed() < Duration::from_millis(1100), "{:?}", stopped.elapsed());
        stage.tasks.join_next().await.unwrap().unwrap().unwrap();
        one = std::mem::replace(&mut two, stage.candidate("three").await);
    }
    one.stop.cancel();
    stage.tasks.join_next().await.unwrap().unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_given_back_to_nobody_says_so() {
    let mut stage = Stage::new();
    let mut one = stage.candidate("one").await;
    one.leads().await;
    one.stop.cancel();
    stage.tasks.join_next().await.unwrap().unwrap().unwrap();
    let spec = stage.spec();
    assert_eq!((&spec["holderIdentity"], &spec["leaseDurationSeconds"]), (&"".into(), &1.into()), "{spec}");
}

#[tokio::test(start_paused = true)]
async fn who_cannot_renew_does_not_lead_any_more_after_ten_seconds() {
    let mut stage = Stage::new();
    let (mut one, mut two) = (stage.candidate("one").await, stage.candidate("two").await);
    one.leads().await;
    two.follows(Some("one")).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    one.cut.store(true, Ordering::Relaxed);
    let cut = Instant::now();
    one.follows(None).await;
    let took = cut.elapsed();
    assert!(took > Duration::from_secs(7) && took <= Duration::from_secs(10), "{took:?}");
    one.has_problem("does not answer").await;
    assert_eq!(two.leads().await, 1);
    // It ends nothing: it follows, and leads again when it is its turn.
    one.cut.store(false, Ordering::Relaxed);
    one.follows(Some("two")).await;
    assert_eq!(one.handle.problem(), None);
    two.stop.cancel();
    assert_eq!(one.leads().await, 2);
    // At the end nobody waits for an API server that does not answer.
    one.cut.store(true, Ordering::Relaxed);
    let stopped = Instant::now();
    one.stop.cancel();
    while stage.tasks.join_next().await.is_some() {}
    assert_eq!(stopped.elapsed(), Duration::from_secs(2));
}

#[tokio::test(start_paused = true)]
async fn who_abstains_gives_back_and_takes_again() {
    let mut stage = Stage::new();
    let (mut one, mut two) = (stage.candidate("one").await, stage.candidate("two").await);
    one.leads().await;
    one.handle.abstain(true);
    two.leads().await;
    one.follows(Some("two")).await;
    two.handle.abstain(true);
    two.follows(None).await;
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(stage.spec()["holderIdentity"], "", "both abstain");
    let asked = one.asked.lock().unwrap().len();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let asked = one.asked.lock().unwrap().len() - asked;
    assert!((50..130).contains(&asked), "it looks once or twice a second: {asked}");
    one.handle.abstain(false);
    assert_eq!(one.leads().await, 2);
}

#[tokio::test(start_paused = true)]
async fn a_right_that_is_taken_back_is_a_state_and_is_said() {
    let mut stage = Stage::new();
    let mut one = stage.candidate("one").await;
    one.leads().await;
    stage.sim.deny("update", LEASES, None);
    one.follows(None).await;
    one.has_problem("the Lease decklog/sim may not be written").await;
    one.has_problem("`decklog rbac | kubectl apply -f -`").await;
    stage.sim.deny("get", LEASES, None);
    one.has_problem("may not be read").await;
    stage.sim.grant(LEASES);
    one.leads().await;
    assert_eq!(one.handle.problem(), None);
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_is_missing_is_named() {
    let mut stage = Stage::new();
    stage.sim.delete("namespaces", "", "decklog").unwrap();
    let mut one = stage.candidate("one").await;
    one.has_problem("`kubectl create namespace decklog`").await;
    one.follows(None).await;
    stage.sim.create_namespace("decklog").unwrap();
    one.leads().await;
    assert_eq!(one.handle.problem(), None);
}

#[tokio::test(start_paused = true)]
async fn what_others_wrote_into_the_lease_stays() {
    let mut stage = Stage::new();
    let lease = serde_json::json!({
        "metadata": {"name": "sim", "namespace": "decklog", "labels": {"a": "b"}, "annotations": {"c": "d"}},
    });
    stage.sim.create(LEASES, lease).unwrap();
    let mut one = stage.candidate("one").await;
    one.leads().await;
    let lease = stage.sim.get(LEASES, "decklog", "sim").unwrap().value();
    assert_eq!((&lease["metadata"]["labels"]["a"], &lease["metadata"]["annotations"]["c"]), (&"b".into(), &"d".into()));
    // Somebody deletes it.
    stage.sim.delete(LEASES, "decklog", "sim").unwrap();
    one.leadership.changed().await.unwrap();
    one.leads().await;
    assert_eq!(stage.spec()["holderIdentity"], "one");
}

/// A Pod of a StatefulSet has its name again. Two processes with one name by mistake do not both lead.
#[tokio::test(start_paused = true)]
async fn the_next_process_of_a_name_leads_at_once_and_the_one_before_does_not() {
    let mut stage = Stage::new();
    let mut one = stage.candidate("decklog-0").await;
    one.leads().await;
    let started = Instant::now();
    let mut next = stage.candidate("decklog-0").await;
    assert_eq!(next.leads().await, 1);
    assert!(started.elapsed() < Duration::from_millis(100));
    one.follows(Some("decklog-0")).await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert!(matches!(*next.leadership.borrow(), Leadership::Leads { transitions: 1 }), "one of them, and for good");
}
