//! Candidates for one Lease at a real API server: who leads, and within what time somebody else does.

use std::time::{Duration, Instant};

use decklog::app::ha::{self, Elector, ElectorHandle, Leadership, LeaseName};
use decklog::watch::cluster::{Api, Limits, Settings};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::task::{AbortHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::harness::{Cluster, LIMIT, Parts, Version, until};

/// After a kill: the Lease, and two seconds.
const KILLED: Duration = Duration::from_secs(17);
/// After it was given back.
const RELEASED: Duration = Duration::from_secs(2);
/// A leader that cannot renew, and a second for a busy machine.
const DEADLINE: Duration = Duration::from_secs(11);

struct Candidate {
    leadership: decklog::core::runtime::watch::Receiver<Leadership>,
    handle: ElectorHandle,
    stop: CancellationToken,
    task: AbortHandle,
}

impl Candidate {
    /// As this user, who has the rights that are granted to it.
    async fn start(cluster: &Cluster, tasks: &mut JoinSet<()>, user: &str, identity: &str) -> Self {
        let settings = Settings { kubeconfig: Some(cluster.kubeconfig(user)), ..Settings::default() };
        let api = Api::open(&settings, Limits::default()).await.unwrap();
        let (elector, leadership, handle) = Elector::new(api, name(), identity.to_owned());
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let task = tasks.spawn(async move {
            let Ok(()) = elector.run(stopped).await;
        });
        Self { leadership, handle, stop, task }
    }

    async fn leads(&self) -> u64 {
        self.stands("leads", |leadership| match leadership {
            Leadership::Leads { transitions } => Some(*transitions),
            Leadership::Unknown | Leadership::Follows { .. } => None,
        })
        .await
    }

    async fn follows(&self, who: Option<&str>) {
        self.stands("follows", |leadership| match leadership {
            Leadership::Follows { holder } => (holder.as_deref() == who).then_some(()),
            Leadership::Unknown | Leadership::Leads { .. } => None,
        })
        .await;
    }

    async fn stands<T>(&self, what: &str, is: impl Fn(&Leadership) -> Option<T>) -> T {
        until(&format!("a candidate that {what}"), LIMIT, async || {
            let leadership = self.leadership.borrow().clone();
            is(&leadership).ok_or_else(|| format!("{leadership:?}, {:?}", self.handle.problem()))
        })
        .await
    }

    async fn has_problem(&self, text: &str) {
        until(&format!("a problem with {text:?}"), LIMIT, async || {
            let problem = self.handle.problem().unwrap_or_default();
            if problem.contains(text) { Ok(()) } else { Err(problem) }
        })
        .await;
    }
}

fn name() -> LeaseName {
    "decklog/prod-eu1".parse().unwrap()
}

/// The Role that `decklog rbac` prints, and a binding of it.
async fn grant(cluster: &Cluster, users: &[&str]) {
    let ((group, plural), name) = (ha::RESOURCE, name());
    let rights = "/apis/rbac.authorization.k8s.io/v1/namespaces/decklog";
    let role = json!({"metadata": {"name": "decklog-lease"}, "rules": [
        {"apiGroups": [group], "resources": [plural], "verbs": ["create"]},
        {"apiGroups": [group], "resources": [plural], "resourceNames": [name.name], "verbs": ha::VERBS},
    ]});
    cluster.create(&format!("{rights}/roles"), &role).await;
    for user in users {
        let binding = json!({
            "metadata": {"name": user},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "decklog-lease"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
        });
        cluster.create(&format!("{rights}/rolebindings"), &binding).await;
    }
}

/// Two candidates with no more rights than `decklog rbac` prints.
pub async fn scenario(version: Version) {
    let cluster = Cluster::start(version, Parts::Bare).await;
    let mut tasks = JoinSet::new();
    let one = Candidate::start(&cluster, &mut tasks, "restricted", "one").await;
    // RBAC knows of no namespace that is missing: without rights, that is what is said.
    one.has_problem("may not be read").await;
    assert_eq!(*one.leadership.borrow(), Leadership::Unknown);
    let everything = Candidate::start(&cluster, &mut tasks, "admin", "admin").await;
    everything.has_problem("`kubectl create namespace decklog`").await;
    everything.task.abort();

    cluster.create("/api/v1/namespaces", &json!({"metadata": {"name": "decklog"}})).await;
    grant(&cluster, &["restricted", "confined"]).await;
    assert_eq!(one.leads().await, 0);
    assert_eq!(one.handle.problem(), None);
    let two = Candidate::start(&cluster, &mut tasks, "confined", "two").await;
    two.follows(Some("one")).await;
    let spec = lease(&cluster).await;
    assert_eq!((&spec["holderIdentity"], &spec["leaseDurationSeconds"]), (&json!("one"), &json!(15)), "{spec}");

    // One is killed.
    let killed = Instant::now();
    one.task.abort();
    assert_eq!(two.leads().await, 1);
    let took = killed.elapsed();
    assert!(took <= KILLED, "after {took:?}");

    // And back; then the Lease is given to it.
    let one = Candidate::start(&cluster, &mut tasks, "restricted", "one").await;
    one.follows(Some("two")).await;
    let stopped = Instant::now();
    two.stop.cancel();
    assert_eq!(one.leads().await, 2);
    let took = stopped.elapsed();
    assert!(took <= RELEASED, "after {took:?}");

    // Who does not reach the engine abstains, and takes it back when nobody else can.
    let two = Candidate::start(&cluster, &mut tasks, "confined", "two").await;
    two.follows(Some("one")).await;
    one.handle.abstain(true);
    assert_eq!(two.leads().await, 3);
    one.follows(Some("two")).await;
    one.handle.abstain(false);

    // The API server stands still for longer than anybody may lead without it.
    let frozen = Instant::now();
    cluster.signal_api(Signal::STOP);
    two.follows(None).await;
    let took = frozen.elapsed();
    assert!(took <= DEADLINE, "after {took:?}");
    two.has_problem("the API server").await;
    assert!(!matches!(*one.leadership.borrow(), Leadership::Leads { .. }));
    cluster.signal_api(Signal::CONT);
    let leader = until("somebody who leads", LIMIT, async || {
        let leads = |candidate: &Candidate| matches!(*candidate.leadership.borrow(), Leadership::Leads { .. });
        match (leads(&one), leads(&two)) {
            (true, false) => Ok(("restricted", &one, &two)),
            (false, true) => Ok(("confined", &two, &one)),
            both => Err(format!("{both:?}")),
        }
    })
    .await;

    // Its right is taken back: that is a state, and said, and the other leads.
    let (user, leader, other) = leader;
    let binding = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/decklog/rolebindings/{user}");
    cluster.delete(&binding).await;
    leader.has_problem("may not be").await;
    leader.has_problem("`decklog rbac | kubectl apply -f -`").await;
    other.leads().await;
    assert!(!matches!(*leader.leadership.borrow(), Leadership::Leads { .. }));
    other.stop.cancel();
    until("the Lease to be given back", LIMIT, async || {
        let spec = lease(&cluster).await;
        if spec["holderIdentity"] == "" { Ok(()) } else { Err(spec.to_string()) }
    })
    .await;
    assert!(!leader.task.is_finished(), "nothing of all that ends it");
}

async fn lease(cluster: &Cluster) -> Value {
    let path = "/apis/coordination.k8s.io/v1/namespaces/decklog/leases/prod-eu1";
    cluster.get(path).await.unwrap()["spec"].clone()
}
