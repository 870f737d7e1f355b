//! Flux's kustomize-controller and helm-controller, as far as they write.
//!
//! kustomize-controller applies server-side, after a dry run, and after it took over the fields of every kubectl in managedFields
//! (`ApplyOptions.Cleanup` of fluxcd/pkg/ssa). helm-controller is Helm: patches of what differs, and a Secret for each release.

use decklog_testkit::dice::Dice;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::world::{APPLY, By, Cast, Drifted, MAPS, MERGE, STRATEGIC, Writer, pass, stamp, text};

const VALUE: &str = "/data/value";

/// A Kustomization or a HelmRelease, and the one ConfigMap that it deploys.
pub struct Driver<'c> {
    cast: &'c Cast<'c>,
    number: usize,
    is_helm: bool,
    dice: Dice,
    history: Vec<Value>,
    revision: usize,
    begun: Timestamp,
}

impl<'c> Driver<'c> {
    pub fn new(cast: &'c Cast<'c>, number: usize, is_helm: bool) -> Self {
        let dice = Dice::new(35, &format!("flux {is_helm} {number}"));
        Self { cast, number, is_helm, dice, history: Vec::new(), revision: 1, begun: Timestamp::now() }
    }

    fn name(&self) -> String {
        format!("{}-{}", if self.is_helm { "release" } else { "apps" }, self.number)
    }

    fn map(&self) -> String {
        format!("conf-{}", self.name())
    }

    fn all(&self) -> &'static str {
        if self.is_helm {
            "/apis/helm.toolkit.fluxcd.io/v2/namespaces/flux-system/helmreleases"
        } else {
            "/apis/kustomize.toolkit.fluxcd.io/v1/namespaces/flux-system/kustomizations"
        }
    }

    fn revision(&self) -> String {
        let at = self.number * 1000 + self.revision;
        if self.is_helm { format!("web@1.{}.{}", self.number, self.revision) } else { format!("main@sha1:{at:040x}") }
    }

    fn value(&self) -> String {
        format!("{} of {}", self.revision(), self.name())
    }

    fn controller(&self) -> &'c Writer<'c> {
        if self.is_helm { &self.cast.helm } else { &self.cast.kustomize }
    }

    /// Reconciles so many times. People write in between.
    pub async fn live(mut self, runs: usize) {
        let spec = if self.is_helm {
            json!({"interval": "5m", "chart": {"spec": {"chart": "web", "sourceRef": {"kind": "HelmRepository", "name": "web"}}}})
        } else {
            json!({"interval": "5m", "prune": true, "sourceRef": {"kind": "GitRepository", "name": "shop"}})
        };
        let object = json!({"metadata": {"name": self.name(), "namespace": "flux-system"}, "spec": spec});
        let mut object = object;
        let (api, kind) = match self.is_helm {
            true => ("helm.toolkit.fluxcd.io/v2", "HelmRelease"),
            false => ("kustomize.toolkit.fluxcd.io/v1", "Kustomization"),
        };
        (object["apiVersion"], object["kind"]) = (api.into(), kind.into());
        self.cast.people[1].send("POST", self.all(), "application/json", &object).await;
        pass(self.dice.between(0, 3_000)).await;
        let mut edit: Option<Drifted> = None;
        for round in 0..runs {
            // Helm puts back what differs only as a part of another release.
            let is_repair = edit.is_some() && !self.is_helm && self.dice.percent(60);
            if !is_repair && round > 0 {
                self.revision += 1;
            }
            if self.is_helm {
                self.release(round).await;
            } else {
                self.reconcile(edit.is_some()).await;
            }
            if let Some(drift) = edit.take() {
                let ended = if is_repair { "restored" } else { "replaced" };
                let drift = Drifted { ended: ended.to_owned(), revision: self.revision(), ..drift };
                self.cast.argo.record.drifts.lock().unwrap().push(drift);
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

    async fn edit(&mut self, round: usize) -> Drifted {
        let cast = self.cast;
        let person = self.dice.pick(&cast.people);
        let got = format!("by hand {round}");
        let one = format!("{MAPS}/{}?fieldManager=kubectl-edit", self.map());
        person.write(("PATCH", &one, STRATEGIC), &json!({"data": {"value": got}}), By::Person, VALUE).await;
        Drifted {
            object: format!("configmaps/{}", self.map()),
            path: VALUE.to_owned(),
            expected: self.value(),
            got,
            user: person.user.clone(),
            ended: String::new(),
            revision: String::new(),
        }
    }

    fn by(&self) -> By {
        By::Run(self.name(), self.revision(), String::new())
    }

    fn labels(&self) -> Value {
        let group = if self.is_helm { "helm" } else { "kustomize" };
        json!({format!("{group}.toolkit.fluxcd.io/name"): self.name(), format!("{group}.toolkit.fluxcd.io/namespace"): "flux-system"})
    }

    /// Writes the status, as the subresource.
    async fn status(&self, status: Value) {
        let controller = self.controller();
        let manager = if self.is_helm { "helm-controller" } else { "gotk-kustomize-controller" };
        let path = format!("{}/{}/status?fieldManager={manager}", self.all(), self.name());
        controller.send("PATCH", &path, MERGE, &json!({"status": status})).await;
    }

    fn conditions(&self, is_ready: bool, message: &str) -> Value {
        let one = |kind: &str, status: &str, reason: &str, at: Timestamp| json!({"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": stamp(at), "observedGeneration": 1});
        if is_ready {
            return json!([one("Ready", "True", "ReconciliationSucceeded", Timestamp::now())]);
        }
        json!([
            one("Reconciling", "True", "Progressing", self.begun),
            one("Ready", "Unknown", "Progressing", self.begun)
        ])
    }

    async fn reconcile(&mut self, is_edited: bool) {
        self.begun = Timestamp::now();
        let revision = self.revision();
        for doing in ["Fetching manifests", "Building manifests", "Detecting drift"] {
            let message = format!("{doing} for revision {revision} with a timeout of 5m0s");
            self.status(json!({"conditions": self.conditions(false, &message), "lastAttemptedRevision": revision}))
                .await;
        }
        let one = format!("{MAPS}/{}", self.map());
        let manifest = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": self.map(), "namespace": "shop",
            "labels": self.labels()}, "data": {"value": self.value()}});
        let apply = format!("{one}?fieldManager=kustomize-controller&force=true");
        let controller = self.controller();
        let (_, existing) = controller.ask("GET", &one, "application/json", &Value::Null).await;
        controller.send("PATCH", &format!("{apply}&dryRun=All"), APPLY, &manifest).await;
        if is_edited {
            self.take_over(&one, &existing).await;
        }
        controller.write(("PATCH", &apply, APPLY), &manifest, self.by(), VALUE).await;
        pass(self.dice.between(0, 700)).await;
        let now = Timestamp::now();
        let took = format!("{}ms", now.duration_since(self.begun).as_millis());
        let digest = format!("sha256:{:064x}", self.revision);
        let latest = self.history.first().filter(|latest| latest["digest"] == digest.as_str()).cloned();
        let (first, total) = latest.as_ref().map_or((json!(stamp(now)), 1), |one| {
            (one["firstReconciled"].clone(), one["totalReconciliations"].as_u64().unwrap() + 1)
        });
        if latest.is_some() {
            self.history.remove(0);
        }
        self.history.insert(0, json!({"digest": digest, "firstReconciled": first, "lastReconciled": stamp(now), "lastReconciledDuration": took,
            "lastReconciledStatus": "ReconciliationSucceeded", "totalReconciliations": total, "metadata": {"revision": revision}}));
        self.history.truncate(5);
        let inventory = json!({"entries": [{"id": format!("shop_{}__ConfigMap", self.map()), "v": "v1"}]});
        self.status(json!({"conditions": self.conditions(true, &format!("Applied revision: {revision}")), "history": self.history,
            "inventory": inventory, "lastAppliedRevision": revision, "lastAttemptedRevision": revision})).await;
    }

    /// Makes the fields of every kubectl its own, before it applies.
    async fn take_over(&self, one: &str, existing: &Value) {
        let all = existing["metadata"]["managedFields"].as_array().unwrap();
        let (of_kubectl, mut rest): (Vec<Value>, Vec<Value>) =
            all.iter().cloned().partition(|entry| text(&entry["manager"]).starts_with("kubectl"));
        let is_own = |entry: &Value| entry["manager"] == "kustomize-controller" && entry["operation"] == "Apply";
        let mut own = rest.iter().position(is_own).map(|at| rest.remove(at)).expect("it has applied before");
        for entry in of_kubectl {
            merge(&mut own["fieldsV1"], &entry["fieldsV1"]);
        }
        rest.push(own);
        let patch = json!([{"op": "replace", "path": "/metadata/managedFields", "value": rest}]);
        let path = format!("{one}?fieldManager=kustomize-controller");
        self.controller().write(("PATCH", &path, "application/json-patch+json"), &patch, By::Books, VALUE).await;
    }

    async fn release(&mut self, round: usize) {
        self.begun = Timestamp::now();
        let message = "Running 'upgrade' action with timeout of 5m0s";
        self.status(json!({"conditions": self.conditions(false, message)})).await;
        let (number, controller, held) = (round + 1, self.controller(), self.dice.between(0, 700));
        let secret = |status: &str| {
            json!({"metadata": {"name": format!("sh.helm.release.v1.{}.v{number}", self.name()), "labels": {"owner": "helm", "name": self.name(),
                "version": number.to_string(), "status": status}}, "type": "helm.sh/release.v1", "stringData": {"release": "H4sI"}})
        };
        let secrets = "/api/v1/namespaces/flux-system/secrets";
        controller
            .send(
                "POST",
                &format!("{secrets}?fieldManager=helm-controller"),
                "application/json",
                &secret("pending-upgrade"),
            )
            .await;
        let mut manifest = json!({"metadata": {"name": self.map(), "labels": self.labels(), "annotations":
            {"meta.helm.sh/release-name": self.name(), "meta.helm.sh/release-namespace": "flux-system"}}, "data": {"value": self.value()}});
        manifest["metadata"]["labels"]["app.kubernetes.io/managed-by"] = "Helm".into();
        let (method, path, kind) = match round {
            0 => ("POST", MAPS.to_owned(), "application/json"),
            _ => ("PATCH", format!("{MAPS}/{}", self.map()), STRATEGIC),
        };
        let path = format!("{path}?fieldManager=helm-controller");
        controller.write((method, &path, kind), &manifest, self.by(), VALUE).await;
        pass(held).await;
        let one = format!("{secrets}/sh.helm.release.v1.{}.v{number}?fieldManager=helm-controller", self.name());
        controller.send("PATCH", &one, MERGE, &secret("deployed")).await;
        for past in &mut self.history {
            past["status"] = "superseded".into();
        }
        let first = self.history.last().map_or_else(|| json!(stamp(self.begun)), |one| one["firstDeployed"].clone());
        self.history.insert(0, json!({"version": number, "name": self.name(), "namespace": "flux-system", "chartName": "web",
            "chartVersion": format!("1.{}.{}", self.number, self.revision), "configDigest": "sha256:0", "digest": format!("sha256:{number:064x}"),
            "status": "deployed", "firstDeployed": first, "lastDeployed": stamp(self.begun + SignedDuration::from_millis(1))}));
        self.history.truncate(5);
        let conditions = self.conditions(true, "Helm upgrade succeeded for release");
        self.status(json!({"conditions": conditions, "history": self.history, "storageNamespace": "flux-system"}))
            .await;
    }
}

/// Adds the fields of one set to another.
fn merge(own: &mut Value, other: &Value) {
    for (name, fields) in other.as_object().into_iter().flatten() {
        merge(&mut own[name], fields);
    }
    if own.is_null() {
        *own = json!({});
    }
}
