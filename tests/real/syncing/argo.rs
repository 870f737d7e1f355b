//! Argo CD's application controller, as far as it writes: the state of operations by merge patches of the whole object, which has no
//! subresource for its status (`setOperationState`, `persistRevisionHistory`), and what it deploys, by either kind of apply.

use decklog_testkit::dice::Dice;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::world::{APPLY, By, Cast, DEPLOYMENTS, Drifted, MERGE, STRATEGIC, pass, stamp};

pub const IMAGE: &str = "/spec/template/spec/containers/0/image";
const REPLICAS: &str = "/spec/replicas";
const REPOSITORY: &str = "https://git.example/shop.git";

/// What an Application deploys.
pub struct App<'c> {
    pub cast: &'c Cast<'c>,
    pub number: usize,
    dice: Dice,
    is_server_side: bool,
    /// Its manifests have a number of replicas.
    has_replicas: bool,
    is_scaled: bool,
    history: Vec<Value>,
    revision: usize,
}

impl<'c> App<'c> {
    pub fn new(cast: &'c Cast<'c>, number: usize) -> Self {
        let dice = Dice::new(35, &format!("app {number}"));
        let (is_server_side, has_replicas, is_scaled) = (number % 2 == 1, number % 6 == 2, number % 6 == 1);
        Self { cast, number, dice, is_server_side, has_replicas, is_scaled, history: Vec::new(), revision: 0 }
    }

    fn name(&self) -> String {
        format!("app-{}", self.number)
    }

    fn path(&self) -> String {
        format!("/apis/argoproj.io/v1alpha1/namespaces/argocd/applications/{}", self.name())
    }

    fn own(&self) -> String {
        format!("web-{}", self.number)
    }

    fn hash(&self) -> String {
        format!("{:040x}", self.number * 1000 + self.revision)
    }

    /// Syncs so many times. People and autoscalers write in between.
    pub async fn live(mut self, syncs: usize) {
        let spec = json!({"project": "default", "source": {"repoURL": REPOSITORY, "path": self.name()},
            "destination": {"server": "https://kubernetes.default.svc", "namespace": "shop"}});
        let application = json!({"apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
            "metadata": {"name": self.name(), "namespace": "argocd"}, "spec": spec});
        let all = "/apis/argoproj.io/v1alpha1/namespaces/argocd/applications";
        self.cast.argo_server.send("POST", all, "application/json", &application).await;
        if self.is_scaled {
            let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": self.own()});
            let hpa = json!({"metadata": {"name": format!("hpa-{}", self.number)}, "spec": {"scaleTargetRef": target, "maxReplicas": 100}});
            let all = "/apis/autoscaling/v2/namespaces/shop/horizontalpodautoscalers";
            self.cast.people[0].send("POST", all, "application/json", &hpa).await;
        }
        pass(self.dice.between(0, 3_000)).await;
        let mut edit: Option<Drifted> = None;
        for round in 0..syncs {
            let is_repair = edit.is_some() && self.dice.percent(60);
            // What is not repaired waits for the next revision.
            if !is_repair && round > 0 {
                self.revision += 1;
            }
            let by = if is_repair { "" } else { *self.dice.pick(&["", "", "carol", "dave"]) };
            let field = edit
                .as_ref()
                .filter(|_| is_repair)
                .map_or(IMAGE, |edit| if edit.path == REPLICAS { REPLICAS } else { IMAGE });
            self.sync(by, round, field, is_repair).await;
            if let Some(drift) = edit.take() {
                let ended = if is_repair || drift.path == REPLICAS { "restored" } else { "replaced" };
                let drift = Drifted { ended: ended.to_owned(), revision: self.hash(), ..drift };
                self.cast.argo.record.drifts.lock().unwrap().push(drift);
            }
            if self.is_scaled {
                self.scale(round).await;
            }
            let pause = if self.dice.percent(15) { self.dice.between(0, 900) } else { self.dice.between(2_200, 3_200) };
            pass(pause).await;
            if self.dice.percent(35) {
                edit = Some(self.edit(round).await);
                pass(self.dice.between(0, 600)).await;
            }
        }
        self.cast.argo.record.drifts.lock().unwrap().extend(edit);
    }

    /// One operation, from what asks for it to its end.
    async fn sync(&mut self, by: &str, round: usize, field: &'static str, is_repair: bool) {
        let (hash, path) = (self.hash(), self.path());
        let initiator = if by.is_empty() { json!({"automated": true}) } else { json!({"username": by}) };
        let operation =
            json!({"initiatedBy": initiator, "retry": {"limit": 5}, "sync": {"revision": hash, "prune": true}});
        let asks = if by.is_empty() { &self.cast.argo } else { &self.cast.argo_server };
        asks.send("PATCH", &path, MERGE, &json!({"operation": operation})).await;
        let started = Timestamp::now();
        let argo = &self.cast.argo;
        // As a merge patch it leaves the result of the last operation in place.
        let begins = json!({"status": {"operationState":
            {"phase": "Running", "startedAt": stamp(started), "finishedAt": null, "operation": operation}}});
        argo.send("PATCH", &path, MERGE, &begins).await;
        pass(self.dice.between(0, 300)).await;
        let mut targets = vec![self.own()];
        // What was not changed, a repair leaves alone.
        if !is_repair && self.dice.percent(40) {
            targets.push(format!("shared-{}", self.number / 2));
        }
        for target in &targets {
            let by = By::Run(self.name(), hash.clone(), by.to_owned());
            self.deploy(target, by, field).await;
        }
        pass(self.dice.between(0, 700)).await;
        let result = json!({"revision": hash, "source": {"repoURL": REPOSITORY}, "resources":
            targets.iter().map(|name| json!({"group": "apps", "version": "v1", "kind": "Deployment", "namespace": "shop", "name": name,
                "status": "Synced", "message": "deployment.apps configured", "hookPhase": "Running", "syncPhase": "Sync"})).collect::<Vec<_>>()});
        self.history.push(
            json!({"id": round, "revision": hash, "source": {"repoURL": REPOSITORY}, "deployStartedAt": stamp(started),
            "deployedAt": stamp(Timestamp::now()), "initiatedBy": initiator}),
        );
        let more = self.history.len().saturating_sub(10);
        self.history.drain(..more);
        argo.send("PATCH", &path, MERGE, &json!({"status": {"history": self.history}})).await;
        let ends = json!({"operation": null, "status": {"operationState": {"phase": "Succeeded", "message": "successfully synced (all tasks run)",
            "startedAt": stamp(started), "finishedAt": stamp(Timestamp::now()), "operation": operation, "syncResult": result}}});
        argo.send("PATCH", &path, MERGE, &ends).await;
        let compared = json!({"status": {"reconciledAt": stamp(Timestamp::now()), "health": {"status": "Healthy"}, "sync": {"status": "Synced",
            "revision": hash, "comparedTo": {"source": {"repoURL": REPOSITORY}, "destination": {"namespace": "shop"}}}}});
        argo.send("PATCH", &path, MERGE, &compared).await;
    }

    /// Applies a manifest.
    async fn deploy(&self, target: &str, by: By, field: &str) {
        let id = format!("{}:apps/Deployment:shop/{target}", self.name());
        let labels = json!({"app": target});
        let image = self.image(&self.hash());
        let mut spec = json!({"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels},
            "spec": {"containers": [{"name": "web", "image": image}]}}});
        if self.has_replicas && target == self.own() {
            spec["replicas"] = 3.into();
        }
        let mut manifest = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": target, "namespace": "shop",
            "annotations": {"argocd.argoproj.io/tracking-id": id}}, "spec": spec});
        let one = format!("{DEPLOYMENTS}/{target}");
        let argo = &self.cast.argo;
        if self.is_server_side {
            let path = format!("{one}?fieldManager=argocd-controller&force=true");
            argo.write(("PATCH", &path, APPLY), &manifest, by, field).await;
            return;
        }
        let applied = format!("{manifest}\n");
        manifest["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"] = applied.into();
        let (status, _) = argo.ask("GET", &one, "application/json", &Value::Null).await;
        if status == 404 {
            let path = format!("{DEPLOYMENTS}?fieldManager=argocd-controller");
            // Another Application may create the shared one in this moment.
            let (status, answer) = argo.ask("POST", &path, "application/json", &manifest).await;
            if status == 201 {
                argo.recorded(&answer, by, field);
                return;
            }
        }
        argo.write(("PATCH", &format!("{one}?fieldManager=argocd-controller"), STRATEGIC), &manifest, by, field).await;
    }

    /// No two Applications have the same.
    fn image(&self, hash: &str) -> String {
        format!("registry.example/web-{}:{hash}", self.number)
    }

    /// Somebody changes what the Application deploys.
    async fn edit(&mut self, round: usize) -> Drifted {
        let cast = self.cast;
        let person = self.dice.pick(&cast.people);
        let one = format!("{DEPLOYMENTS}/{}", self.own());
        let object = format!("deployments/{}", self.own());
        if self.has_replicas && self.dice.percent(50) {
            let count = 10 + round;
            let body = json!({"spec": {"replicas": count}});
            person.write(("PATCH", &format!("{one}/scale"), MERGE), &body, By::Person, REPLICAS).await;
            let (path, expected, got) = (REPLICAS.to_owned(), "3".to_owned(), count.to_string());
            let (ended, revision) = (String::new(), String::new());
            return Drifted { object, path, expected, got, user: person.user.clone(), ended, revision };
        }
        let image = format!("registry.example/by-hand:{}-{round}", self.number);
        let body = json!({"spec": {"template": {"spec": {"containers": [{"name": "web", "image": image}]}}}});
        person.write(("PATCH", &format!("{one}?fieldManager=kubectl-edit"), STRATEGIC), &body, By::Person, IMAGE).await;
        let (path, expected) = (IMAGE.to_owned(), self.image(&self.hash()));
        let (ended, revision) = (String::new(), String::new());
        Drifted { object, path, expected, got: image, user: person.user.clone(), ended, revision }
    }

    async fn scale(&self, round: usize) {
        let one = format!("{DEPLOYMENTS}/{}", self.own());
        let path = format!("{one}/scale");
        let scaler = &self.cast.scaler;
        let (_, mut scale) = scaler.ask("GET", &path, "application/json", &Value::Null).await;
        scale["spec"]["replicas"] = (2 + round).into();
        let by = By::Autoscaler(format!("hpa-{}", self.number));
        scaler.write(("PUT", &path, "application/json"), &scale, by, REPLICAS).await;
    }
}
