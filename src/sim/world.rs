//! A cluster that lives: two namespaces, Deployments that roll, Leases that are renewed, and the
//! things that go wrong quietly in real clusters. The same seed lives the same life.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::MissedTickBehavior;

use super::faults::Refusal;
use super::store::Random;
use super::{Row, Sim, objects};

const PODS: &str = "pods";
const SETS: &str = "replicasets.apps";
const DEPLOYMENTS: &str = "deployments.apps";
const MAPS: &str = "configmaps";
const LEASES: &str = "leases.coordination.k8s.io";
const NODES: [&str; 3] = ["node-1", "node-2", "node-3"];

/// Namespace, name and replicas of the Deployments that roll.
const APPS: [(&str, &str, u32); 4] = [("shop", "web", 3), ("shop", "cart", 2), ("pay", "api", 2), ("pay", "ledger", 1)];
/// The Deployment over whose replicas two managers fight.
const CONTESTED: (&str, &str) = ("shop", "search");
/// Old ReplicaSets that a Deployment keeps.
const KEPT_SETS: usize = 2;
/// So many Events are kept before half of them expire together.
const KEPT_EVENTS: usize = 40;

/// One Deployment and what stands behind it.
#[derive(Clone, Debug)]
struct App {
    namespace: &'static str,
    name: &'static str,
    replicas: u32,
    release: u32,
    /// Names of its ReplicaSets, the newest last.
    sets: Vec<String>,
    /// Names of its Pods, the oldest first.
    pods: VecDeque<String>,
}

/// One write that somebody is going to make.
#[derive(Clone, Debug)]
enum Deed {
    /// Plans a whole rollout, once those before it are done.
    Roll(usize),
    SetImage(usize),
    CreateSet(usize),
    Scale {
        app: usize,
        set: String,
        replicas: u32,
    },
    CreatePod(usize),
    Schedule {
        namespace: &'static str,
        pod: String,
    },
    Run {
        namespace: &'static str,
        pod: String,
        ready: bool,
    },
    Event {
        namespace: &'static str,
        pod: String,
        reason: &'static str,
    },
    Terminate {
        namespace: &'static str,
        pod: String,
    },
    RemovePod {
        namespace: &'static str,
        pod: String,
    },
    RemoveSet {
        namespace: &'static str,
        set: String,
    },
    ReportStatus(usize),
    Apply {
        who: &'static str,
        name: String,
        greeting: &'static str,
    },
    ExpireEvents,
}

/// A living cluster.
#[derive(Debug)]
pub struct World {
    sim: Sim,
    random: Random,
    apps: Vec<App>,
    /// What a rollout or another story still has to do, in order.
    plan: VecDeque<Deed>,
    events: VecDeque<(&'static str, String)>,
    turns: u64,
}

impl World {
    /// Fills the cluster with what is there before the story begins.
    ///
    /// # Errors
    /// Where the cluster is not empty enough: a name is taken already.
    pub fn new(sim: &Sim, seed: u64) -> Result<Self, Refusal> {
        let mut world = Self {
            sim: sim.clone(),
            random: Random::new(seed),
            apps: Vec::new(),
            plan: VecDeque::new(),
            events: VecDeque::new(),
            turns: 0,
        };
        world.furnish()?;
        Ok(world)
    }

    fn furnish(&mut self) -> Result<(), Refusal> {
        for namespace in ["shop", "pay"] {
            self.sim.create_namespace(namespace)?;
            self.sim.create("serviceaccounts", json!({ "metadata": { "name": "default", "namespace": namespace } }))?;
        }
        for node in NODES {
            self.sim.create("nodes", objects::node(node))?;
            self.sim.create(LEASES, objects::lease("kube-node-lease", node))?;
        }
        for controller in ["kube-controller-manager", "kube-scheduler"] {
            self.sim.create(LEASES, objects::lease("kube-system", controller))?;
        }
        self.sim.create(MAPS, objects::config_map("shop", "feature-flags", "checkout-v2,fast-cart"))?;
        self.sim.create(
            "secrets",
            objects::secret("pay", "db-credentials", &[("user", "ledger"), ("password", "s3cr3t-0")]),
        )?;
        for (namespace, name, replicas) in APPS {
            self.sim.create("services", objects::service(namespace, name))?;
            let image = image(name, 1);
            self.sim.create(DEPLOYMENTS, objects::deployment(namespace, name, replicas, &image))?;
            self.apps.push(App { namespace, name, replicas, release: 1, sets: Vec::new(), pods: VecDeque::new() });
            let app = self.apps.len() - 1;
            self.create_set(app, replicas)?;
            for _ in 0..replicas {
                let pod = self.create_pod(app)?;
                let (node, ip) = (self.node(), self.ip());
                self.sim.update(PODS, namespace, &pod, |pod| {
                    objects::schedule(pod, node);
                    objects::run(pod, &ip, true);
                })?;
            }
            self.report_status(app)?;
        }
        let (namespace, name) = CONTESTED;
        self.sim.create(DEPLOYMENTS, objects::deployment(namespace, name, 3, &image(name, 1)))?;
        Ok(())
    }

    /// Makes one plausible write and returns what it did.
    ///
    /// # Errors
    /// Where the server refuses it in a way that is no part of the story.
    pub fn step(&mut self) -> Result<Arc<Row>, Refusal> {
        loop {
            self.turns += 1;
            let planned = if self.random.below(10) < 7 { self.plan.pop_front() } else { None };
            let done = match planned {
                Some(deed) => self.carry_out(deed),
                None => self.pass_time(),
            };
            match done {
                Ok(Some(row)) => return Ok(row),
                // Nothing was written, or somebody else has taken the object away: life goes on.
                Ok(None) => {}
                Err(refusal) if refusal.code == 404 => {}
                Err(refusal) => return Err(refusal),
            }
        }
    }

    /// Lives on, one write each time; ends only where the server refuses one.
    pub async fn live(&mut self, every: Duration) -> Refusal {
        let mut pace = tokio::time::interval(every);
        // What was not written in time is not made up for: who is slow to look must not be given ever more to look at.
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            pace.tick().await;
            if let Err(refusal) = self.step() {
                return refusal;
            }
        }
    }

    /// Begins a rollout of this Deployment with the next steps, whatever else is going on.
    pub fn roll(&mut self, namespace: &str, name: &str) {
        if let Some(app) = self.apps.iter().position(|app| app.namespace == namespace && app.name == name) {
            self.plan.push_back(Deed::Roll(app));
        }
    }

    /// Begins two `kubectl apply` of one new ConfigMap at the same time with the next steps; returns its name.
    pub fn race(&mut self) -> String {
        let name = format!("banner-{}", self.random.word(4));
        for (who, greeting) in [("alice", "Welcome to the autumn sale"), ("bob", "Closed for maintenance")] {
            self.plan.push_back(Deed::Apply { who, name: name.clone(), greeting });
        }
        name
    }

    /// One turn of each bad habit: the careless operator reconciles, and of the two who fight one has its way.
    ///
    /// # Errors
    /// Where the server refuses it.
    pub fn indulge(&mut self) -> Result<(), Refusal> {
        self.turns += 1;
        self.reconcile_for_nothing()?;
        self.fight().map(drop)
    }

    /// What happens without any story: mostly heartbeats, sometimes a bad habit, sometimes a new story.
    fn pass_time(&mut self) -> Result<Option<Arc<Row>>, Refusal> {
        match self.random.below(20) {
            0..8 => self.renew_lease(),
            8..12 => self.reconcile_for_nothing(),
            12..15 => self.fight(),
            15 => self.rotate_secret(),
            _ if !self.plan.is_empty() => Ok(None),
            16 => {
                self.race();
                Ok(None)
            }
            _ => {
                let app = self.pick(APPS.len());
                self.plan_rollout(app);
                Ok(None)
            }
        }
    }

    fn renew_lease(&mut self) -> Result<Option<Arc<Row>>, Refusal> {
        let holders = [NODES[0], NODES[1], NODES[2], "kube-controller-manager", "kube-scheduler"];
        let at = self.pick(holders.len());
        let namespace = if at < NODES.len() { "kube-node-lease" } else { "kube-system" };
        let manager = if at < NODES.len() { "kubelet" } else { holders[at] };
        self.sim
            .update(LEASES, namespace, holders[at], |lease| {
                lease["spec"]["renewTime"] = objects::micro_now().into();
                let fields = json!({ "spec": { "renewTime": {} } });
                objects::touch(lease, manager, "Update", "coordination.k8s.io/v1", "", &fields);
            })
            .map(Some)
    }

    /// An operator that stamps what it manages each time it looks at it. Every second time it writes
    /// the very same thing again, which the server drops.
    fn reconcile_for_nothing(&mut self) -> Result<Option<Arc<Row>>, Refusal> {
        let before = self.sim.revision();
        let again = self.turns.is_multiple_of(2);
        let row = self.sim.update(MAPS, "shop", "feature-flags", |map| {
            if !again {
                let fields = json!({ "metadata": { "annotations": { STAMP: {} } } });
                map["metadata"]["annotations"][STAMP] = objects::micro_now().into();
                objects::touch(map, "flag-operator", "Update", "v1", "", &fields);
            }
        })?;
        Ok((row.revision > before).then_some(row))
    }

    /// An autoscaler and a GitOps controller that do not agree.
    fn fight(&mut self) -> Result<Option<Arc<Row>>, Refusal> {
        let (namespace, name) = CONTESTED;
        self.sim
            .update(DEPLOYMENTS, namespace, name, |deployment| {
                let (manager, operation, replicas) = if deployment["spec"]["replicas"] == 3 {
                    ("horizontal-pod-autoscaler", "Update", 5)
                } else {
                    ("argocd-controller", "Apply", 3)
                };
                deployment["spec"]["replicas"] = replicas.into();
                let fields = json!({ "spec": { "replicas": {} } });
                objects::touch(deployment, manager, operation, "apps/v1", "", &fields);
            })
            .map(Some)
    }

    fn rotate_secret(&mut self) -> Result<Option<Arc<Row>>, Refusal> {
        let password = objects::base64(&format!("s3cr3t-{}", self.random.word(12)));
        self.sim
            .update("secrets", "pay", "db-credentials", |secret| {
                secret["data"]["password"] = password.into();
                let fields = json!({ "data": { "password": {} } });
                objects::touch(secret, "external-secrets", "Update", "v1", "", &fields);
            })
            .map(Some)
    }

    /// Pod by pod: one more of the new, one less of the old.
    fn plan_rollout(&mut self, at: usize) {
        let app = self.apps[at].clone();
        let next = set_name(&app, app.release + 1);
        let mut plan = Vec::new();
        plan.push(Deed::SetImage(at));
        plan.push(Deed::CreateSet(at));
        let mut old: VecDeque<_> = app.pods.clone();
        for step in 1..=app.replicas {
            plan.push(Deed::Scale { app: at, set: next.clone(), replicas: step });
            // The pod's name is not known before it is there, so that its life is planned then.
            plan.push(Deed::CreatePod(at));
            if let (Some(set), Some(pod)) = (app.sets.last(), old.pop_front()) {
                plan.push(Deed::Scale { app: at, set: set.clone(), replicas: app.replicas - step });
                plan.push(Deed::Terminate { namespace: app.namespace, pod: pod.clone() });
                plan.push(Deed::RemovePod { namespace: app.namespace, pod });
            }
            plan.push(Deed::ReportStatus(at));
        }
        if app.sets.len() >= KEPT_SETS
            && let Some(set) = app.sets.first()
        {
            plan.push(Deed::RemoveSet { namespace: app.namespace, set: set.clone() });
        }
        for deed in plan.into_iter().rev() {
            self.plan.push_front(deed);
        }
    }

    /// `kubectl set image` of an application.
    fn set_image(&mut self, at: usize) -> Result<Arc<Row>, Refusal> {
        let app = &mut self.apps[at];
        app.release += 1;
        let (image, release) = (image(app.name, app.release), app.release);
        self.sim.update(DEPLOYMENTS, app.namespace, app.name, |deployment| {
            deployment["spec"]["template"]["spec"]["containers"][0]["image"] = image.into();
            deployment["metadata"]["annotations"]["deployment.kubernetes.io/revision"] = release.to_string().into();
            let container = json!([{ "name": deployment["metadata"]["name"], "image": {} }]);
            let fields = json!({ "spec": { "template": { "spec": { "containers": container } } } });
            objects::touch(deployment, "kubectl-set", "Update", "apps/v1", "", &fields);
        })
    }

    fn carry_out(&mut self, deed: Deed) -> Result<Option<Arc<Row>>, Refusal> {
        let sim = self.sim.clone();
        let written = match deed {
            Deed::Roll(at) => {
                self.plan_rollout(at);
                return Ok(None);
            }
            Deed::SetImage(at) => self.set_image(at)?,
            Deed::CreateSet(at) => self.create_set(at, 0)?,
            Deed::Scale { app, set, replicas } => sim.update(SETS, self.apps[app].namespace, &set, |set| {
                set["spec"]["replicas"] = replicas.into();
                let fields = json!({ "spec": { "replicas": {} } });
                objects::touch(set, "kube-controller-manager", "Update", "apps/v1", "", &fields);
            })?,
            Deed::CreatePod(at) => {
                let namespace = self.apps[at].namespace;
                let pod = self.create_pod(at)?;
                let life = [
                    Deed::Schedule { namespace, pod: pod.clone() },
                    Deed::Event { namespace, pod: pod.clone(), reason: "Scheduled" },
                    Deed::Run { namespace, pod: pod.clone(), ready: false },
                    Deed::Event { namespace, pod: pod.clone(), reason: "Started" },
                    Deed::Run { namespace, pod: pod.clone(), ready: true },
                ];
                for deed in life.into_iter().rev() {
                    self.plan.push_front(deed);
                }
                sim.get(PODS, namespace, &pod)?
            }
            Deed::Schedule { namespace, pod } => {
                let node = self.node();
                sim.update(PODS, namespace, &pod, |pod| objects::schedule(pod, node))?
            }
            Deed::Run { namespace, pod, ready } => {
                let fresh = self.ip();
                sim.update(PODS, namespace, &pod, |pod| {
                    let ip = pod["status"]["podIP"].as_str().map_or(fresh, str::to_owned);
                    objects::run(pod, &ip, ready);
                })?
            }
            Deed::Event { namespace, pod, reason } => {
                let name = format!("{pod}.{}", self.random.word(10));
                let row = sim.create("events", objects::event(namespace, &name, &pod, reason))?;
                self.events.push_back((namespace, name));
                if self.events.len() >= KEPT_EVENTS {
                    self.plan.push_back(Deed::ExpireEvents);
                }
                row
            }
            Deed::Terminate { namespace, pod } => sim.terminate(PODS, namespace, &pod, 30)?,
            Deed::RemovePod { namespace, pod } => {
                for app in &mut self.apps {
                    app.pods.retain(|name| *name != pod);
                }
                sim.delete(PODS, namespace, &pod)?
            }
            Deed::RemoveSet { namespace, set } => {
                for app in &mut self.apps {
                    app.sets.retain(|name| *name != set);
                }
                sim.delete(SETS, namespace, &set)?
            }
            Deed::ReportStatus(at) => return self.report_status(at),
            Deed::Apply { who, name, greeting } => self.apply(who, &name, greeting)?,
            Deed::ExpireEvents => {
                let half = self.events.len() / 2;
                let gone: Vec<_> = self.events.drain(..half).collect();
                let gone: Vec<(&str, &str)> = gone.iter().map(|(ns, name)| (*ns, name.as_str())).collect();
                let revision = sim.expire_together("events", &gone)?;
                return Ok(sim.history_after(revision - 1).pop());
            }
        };
        Ok(Some(written))
    }

    /// `kubectl apply`: creates what is not there, else writes over it, without a word to the other.
    fn apply(&self, who: &str, name: &str, greeting: &str) -> Result<Arc<Row>, Refusal> {
        match self.sim.create(MAPS, objects::config_map("shop", name, greeting)) {
            Err(taken) if taken.code == 409 => self.sim.update(MAPS, "shop", name, |map| {
                map["data"]["value"] = greeting.into();
                map["metadata"]["annotations"]["example.com/applied-by"] = who.into();
                let fields = json!({ "data": { "value": {} } });
                objects::touch(map, "kubectl-client-side-apply", "Update", "v1", "", &fields);
            }),
            other => other,
        }
    }

    fn create_set(&mut self, at: usize, replicas: u32) -> Result<Arc<Row>, Refusal> {
        let app = &mut self.apps[at];
        let name = set_name(app, app.release);
        let owner = self.sim.get(DEPLOYMENTS, app.namespace, app.name)?;
        let hash = name.trim_start_matches(app.name).trim_start_matches('-');
        let image = image(app.name, app.release);
        let set = objects::replica_set(app.namespace, app.name, &owner.uid, hash, replicas, &image);
        app.sets.push(name);
        self.sim.create(SETS, set)
    }

    fn create_pod(&mut self, at: usize) -> Result<String, Refusal> {
        let suffix = self.random.word(5);
        let app = &mut self.apps[at];
        let set = set_name(app, app.release);
        let owner = self.sim.get(SETS, app.namespace, &set)?;
        let name = format!("{set}-{suffix}");
        let owner = (set.as_str(), &*owner.uid);
        let image = image(app.name, app.release);
        self.sim.create(PODS, objects::pod(app.namespace, &name, app.name, Some(owner), &image))?;
        app.pods.push_back(name.clone());
        Ok(name)
    }

    /// What the deployment controller writes after it has counted; nothing where nothing has changed.
    fn report_status(&self, at: usize) -> Result<Option<Arc<Row>>, Refusal> {
        let app = &self.apps[at];
        let set = set_name(app, app.release);
        let mut ready = 0_u32;
        let mut updated = 0_u32;
        for pod in &app.pods {
            let Ok(row) = self.sim.get(PODS, app.namespace, pod) else { continue };
            updated += u32::from(pod.starts_with(&set));
            ready += u32::from(row.value()["status"]["containerStatuses"][0]["ready"] == true);
        }
        let before = self.sim.revision();
        let row = self.sim.update(DEPLOYMENTS, app.namespace, app.name, |deployment| {
            let status: Value = json!({
                "observedGeneration": deployment["metadata"]["generation"], "replicas": app.pods.len(),
                "updatedReplicas": updated, "readyReplicas": ready, "availableReplicas": ready,
            });
            if deployment["status"] != status {
                objects::touch(deployment, "kube-controller-manager", "Update", "apps/v1", "status", &status);
                deployment["status"] = status;
            }
        })?;
        Ok((row.revision > before).then_some(row))
    }

    fn pick(&mut self, count: usize) -> usize {
        usize::try_from(self.random.below(count as u64)).unwrap_or_default()
    }

    fn node(&mut self) -> &'static str {
        NODES[self.pick(NODES.len())]
    }

    fn ip(&mut self) -> String {
        format!("10.244.{}.{}", self.random.below(3), 2 + self.random.below(250))
    }
}

/// The annotation of the careless operator.
const STAMP: &str = "flags.example.com/last-reconciled";

fn image(app: &str, release: u32) -> String {
    format!("registry.example/{app}:1.{release}.0")
}

/// The name of the ReplicaSet of a release: its hash is a function of the release, as in Kubernetes.
fn set_name(app: &App, release: u32) -> String {
    let length = app.name.len() as u64;
    format!("{}-{}", app.name, Random::new(u64::from(release) * 1000 + length).word(10))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::sim::Kind;

    #[tokio::test]
    async fn the_same_seed_lives_the_same_life() {
        let mut lives = Vec::new();
        for _ in 0..2 {
            let sim = Sim::start().await.unwrap();
            let mut world = World::new(&sim, 42).unwrap();
            for _ in 0..300 {
                world.step().unwrap();
            }
            let life: Vec<_> = sim
                .history()
                .iter()
                .map(|row| {
                    (row.revision, row.kind, row.resource.to_string(), row.name.to_string(), row.uid.to_string())
                })
                .collect();
            lives.push(life);
        }
        assert_eq!(lives[0], lives[1]);
    }

    #[tokio::test]
    async fn stories_can_be_asked_for() {
        let sim = Sim::start().await.unwrap();
        let mut world = World::new(&sim, 3).unwrap();
        world.roll("shop", "web");
        world.roll("shop", "web");
        let name = world.race();
        while !world.plan.is_empty() {
            world.step().unwrap();
        }
        let kinds: Vec<_> = sim.history_of(MAPS).iter().filter(|row| *row.name == *name).map(|row| row.kind).collect();
        assert_eq!(kinds, [Kind::Added, Kind::Modified], "the second apply writes over the first");
        let web = sim.get(DEPLOYMENTS, "shop", "web").unwrap().value();
        assert_eq!(web["spec"]["template"]["spec"]["containers"][0]["image"], "registry.example/web:1.3.0");
        assert_eq!(web["status"]["readyReplicas"], 3);
        assert_eq!(web["status"]["replicas"], 3);
        let stamps = sim.history_of(MAPS).len();
        for (turn, replicas) in [5, 3, 5, 3].into_iter().enumerate() {
            world.indulge().unwrap();
            let search = sim.get(DEPLOYMENTS, CONTESTED.0, CONTESTED.1).unwrap().value();
            assert_eq!(search["spec"]["replicas"], replicas, "turn {turn}");
        }
        assert_eq!(sim.history_of(MAPS).len(), stamps + 2, "every second write is dropped");
    }

    #[tokio::test]
    async fn every_kind_of_change_happens() {
        let sim = Sim::start().await.unwrap();
        let mut world = World::new(&sim, 7).unwrap();
        for _ in 0..3000 {
            let before = sim.revision();
            let row = world.step().unwrap();
            assert_eq!(row.revision, before + 1, "one step is one revision");
        }
        let mut counts: BTreeMap<(String, Kind), usize> = BTreeMap::new();
        for row in sim.history() {
            *counts.entry((row.resource.to_string(), row.kind)).or_default() += 1;
        }
        for (resource, kind) in [
            (PODS, Kind::Added),
            (PODS, Kind::Deleted),
            (SETS, Kind::Deleted),
            (DEPLOYMENTS, Kind::Modified),
            (LEASES, Kind::Modified),
            (MAPS, Kind::Added),
            ("secrets", Kind::Modified),
            ("events", Kind::Deleted),
        ] {
            let count = counts.get(&(resource.to_owned(), kind)).copied().unwrap_or_default();
            assert!(count > 3, "{resource} {kind:?}: {count}");
        }
        // The number of Pods stays what the Deployments want, give or take one rollout.
        let wanted: usize = APPS.iter().map(|(_, _, replicas)| *replicas as usize).sum();
        let pods = sim.objects(PODS).unwrap().len();
        assert!((wanted..=wanted + 2).contains(&pods), "{pods} pods, {wanted} wanted");
        let managers: Vec<_> = sim
            .history_of(DEPLOYMENTS)
            .iter()
            .filter(|row| &*row.name == CONTESTED.1 && row.kind == Kind::Modified)
            .map(|row| row.value()["spec"]["replicas"].as_u64().unwrap())
            .collect();
        assert!(managers.windows(2).all(|pair| pair[0] != pair[1]), "the two never agree: {managers:?}");
    }
}
