//! Ten minutes in a namespace in which much happens and eight things matter.

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::story::{Story, managed, resource};

/// Objects that the first list finds beside those of the incident.
const OTHERS: usize = 2_300;

/// `KIND`, its API and resource; whether it lives in a namespace.
const KINDS: [(&str, &str, &str, &str, bool); 12] = [
    ("Service", "", "services", "svc", true),
    ("Endpoints", "", "endpoints", "ep", true),
    ("Node", "", "nodes", "no", false),
    ("NetworkPolicy", "networking.k8s.io", "networkpolicies", "netpol", true),
    ("CronJob", "batch", "cronjobs", "cj", true),
    ("Job", "batch", "jobs", "", true),
    ("HorizontalPodAutoscaler", "autoscaling", "horizontalpodautoscalers", "hpa", true),
    ("PodDisruptionBudget", "policy", "poddisruptionbudgets", "pdb", true),
    ("ClusterRoleBinding", "rbac.authorization.k8s.io", "clusterrolebindings", "", false),
    ("Lease", "coordination.k8s.io", "leases", "", true),
    ("Widget", "example.com", "widgets", "", true),
    ("Gadget", "example.com", "gadgets", "", true),
];

/// The cluster of the incident.
struct Incident {
    story: Story,
    /// Seconds after 10:00:00.
    now: u32,
}

fn clock(seconds: u32) -> String {
    format!("10:{:02}:{:02}", seconds / 60, seconds % 60)
}

fn source(kind: &str) -> &'static str {
    match kind {
        "Deployment" => "deployments",
        "ReplicaSet" => "replicasets",
        "Pod" => "pods",
        "ConfigMap" => "configmaps",
        "Secret" => "secrets",
        "Event" => "events",
        other => KINDS.iter().find(|(kind, ..)| *kind == other).unwrap().2,
    }
}

/// An object with the fields of its managers: `(name, subresource, time, fields)`.
fn object(kind: &str, namespace: &str, name: &str, rest: &Value, managers: &[(&str, &str, u32, Value)]) -> Value {
    let group = match kind {
        "Deployment" | "ReplicaSet" => "apps",
        other => KINDS.iter().find(|(kind, ..)| *kind == other).map_or("", |kind| kind.1),
    };
    let api = if group.is_empty() { "v1".to_owned() } else { format!("{group}/v1") };
    let mut object =
        json!({"apiVersion": api, "kind": kind, "metadata": {"name": name, "uid": format!("{kind}-{name}")}});
    if !namespace.is_empty() {
        object["metadata"]["namespace"] = namespace.into();
    }
    let times: Vec<String> = managers.iter().map(|manager| clock(manager.2)).collect();
    let entries: Vec<_> = managers
        .iter()
        .zip(&times)
        .map(|((name, subresource, _, fields), time)| (*name, "Update", *subresource, time.as_str(), fields.clone()))
        .collect();
    object["metadata"]["managedFields"] = managed(&entries);
    for (key, value) in rest.as_object().unwrap() {
        if key == "metadata" {
            for (key, value) in value.as_object().unwrap() {
                object["metadata"][key] = value.clone();
            }
        } else {
            object[key] = value.clone();
        }
    }
    object
}

fn owner(kind: &str, name: &str) -> Value {
    let api = if kind == "ReplicaSet" || kind == "Deployment" { "apps/v1" } else { "batch/v1" };
    json!([{"apiVersion": api, "kind": kind, "name": name, "uid": format!("{kind}-{name}"), "controller": true}])
}

const KCM: &str = "kube-controller-manager";

/// A Deployment with an image, replicas, a revision and a status.
fn deployment(name: &str, image: &str, replicas: u32, ready: u32, managers: &[(&str, &str, u32, Value)]) -> Value {
    let rest = json!({
        "metadata": {"generation": replicas + 1, "annotations": {"deployment.kubernetes.io/revision": image.len().to_string()}},
        "spec": {"replicas": replicas, "template": {"metadata": {"labels": {"app": name}},
            "spec": {"containers": [{"name": name, "image": image}]}}},
        "status": {"readyReplicas": ready}});
    object("Deployment", "shop", name, &rest, managers)
}

fn image_field(name: &str) -> Value {
    json!({"f:spec": {"f:template": {"f:spec": {"f:containers": {format!("k:{{\"name\":\"{name}\"}}"): {"f:image": {}}}}}}})
}

fn replicas_field() -> Value {
    json!({"f:spec": {"f:replicas": {}}})
}

fn status_field(name: &str) -> Value {
    json!({"f:status": {format!("f:{name}"): {}}})
}

impl Incident {
    async fn put(&mut self, object: &Value) {
        self.story.put(&clock(self.now), source(object["kind"].as_str().unwrap()), object).await;
    }

    async fn delete(&mut self, object: &Value) {
        self.story.delete(&clock(self.now), source(object["kind"].as_str().unwrap()), object).await;
    }

    /// A Pod of a ReplicaSet or a Job comes up.
    async fn pod(&mut self, kind: &str, of: &str, name: &str) {
        let pod = |phase: &str, node: Option<&str>, at: u32| {
            let rest = json!({"metadata": {"ownerReferences": owner(kind, of)}, "spec": {"nodeName": node}, "status": {"phase": phase}});
            object(
                "Pod",
                "shop",
                name,
                &rest,
                &[(KCM, "", at, json!({"f:spec": {}})), ("kubelet", "status", at, status_field(phase))],
            )
        };
        for (phase, node) in [("Pending", None), ("Pending", Some("worker-1")), ("Running", Some("worker-1"))] {
            self.put(&pod(phase, node, self.now)).await;
        }
    }

    /// What the Deployment's controller makes of an image: a ReplicaSet, its Pods, endpoints, a budget.
    async fn rollout(&mut self, name: &str, hash: &str) {
        let set = format!("{name}-{hash}");
        let rest = json!({"metadata": {"ownerReferences": owner("Deployment", name)}, "spec": {"replicas": 2}});
        self.put(&object("ReplicaSet", "shop", &set, &rest, &[(KCM, "", self.now, replicas_field())])).await;
        let mut targets = Vec::new();
        for pod in 0..2 {
            let pod = format!("{set}-{pod}");
            self.pod("ReplicaSet", &set, &pod).await;
            targets.push(json!({"targetRef": {"kind": "Pod", "name": pod, "uid": format!("Pod-{pod}")}}));
        }
        let rest = json!({"subsets": [{"addresses": targets}]});
        self.put(&object("Endpoints", "shop", name, &rest, &[(KCM, "", self.now, json!({"f:subsets": {}}))])).await;
        let rest =
            json!({"spec": {"selector": {"matchLabels": {"app": name}}}, "status": {"currentHealthy": self.now}});
        self.put(&object(
            "PodDisruptionBudget",
            "shop",
            name,
            &rest,
            &[(KCM, "status", self.now, status_field("currentHealthy"))],
        ))
        .await;
        let about = json!({"involvedObject": {"kind": "ReplicaSet", "name": set, "uid": format!("ReplicaSet-{set}")}, "reason": "SuccessfulCreate"});
        self.put(&object(
            "Event",
            "shop",
            &format!("{set}.1"),
            &about,
            &[(KCM, "", self.now, json!({"f:reason": {}}))],
        ))
        .await;
    }

    /// What goes on all the time.
    async fn noise(&mut self) {
        let now = self.now;
        if now.is_multiple_of(5) {
            let rest = json!({"metadata": {"annotations": {"example.com/stamp": format!("2026-11-20T{}Z", clock(now))}}, "spec": {"a": 1}});
            let field = json!({"f:metadata": {"f:annotations": {"f:example.com/stamp": {}}}});
            self.put(&object("Widget", "shop", "stamped", &rest, &[("stamper", "", now, field)])).await;
            let rest = json!({"spec": {"renewTime": format!("2026-11-20T{}.000000Z", clock(now))}});
            self.put(&object(
                "Lease",
                "shop",
                "leader",
                &rest,
                &[("operator", "", now, json!({"f:spec": {"f:renewTime": {}}}))],
            ))
            .await;
        }
        if now.is_multiple_of(10) {
            let is_first = now.is_multiple_of(20);
            let (writer, mode) = if is_first { ("alpha-operator", "fast") } else { ("beta-operator", "slow") };
            let field = json!({"f:spec": {"f:mode": {}}});
            self.put(&object(
                "Gadget",
                "shop",
                "contested",
                &json!({"spec": {"mode": mode}}),
                &[(writer, "", now, field)],
            ))
            .await;
        }
        if now.is_multiple_of(60) {
            let replicas = 3 + now / 60 % 2;
            let scaled = ("kube-controller-manager", "scale", now, replicas_field());
            self.put(&deployment("api", "api:1", replicas, 3, &[scaled])).await;
            for cron in ["report", "backup"] {
                let job = format!("{cron}-{now}");
                let of_job = |status: &str| {
                    let rest = json!({"metadata": {"ownerReferences": owner("CronJob", cron)}, "spec": {"parallelism": 1}, "status": {"at": status}});
                    object("Job", "shop", &job, &rest, &[(KCM, "", now, json!({"f:spec": {}}))])
                };
                self.put(&of_job("started")).await;
                self.pod("Job", &job, &format!("{job}-pod")).await;
                self.put(&of_job("complete")).await;
                let status = json!({"spec": {"schedule": "* * * * *"}, "status": {"lastScheduleTime": clock(now)}});
                self.put(&object(
                    "CronJob",
                    "shop",
                    cron,
                    &status,
                    &[(KCM, "status", now, status_field("lastScheduleTime"))],
                ))
                .await;
                self.delete(&of_job("complete")).await;
            }
        }
    }

    /// What matters, at its second.
    async fn cause(&mut self) {
        let now = self.now;
        let by = |who: &'static str, fields: Value| (who, "", now, fields);
        match now {
            1_245 => {
                self.put(&deployment(
                    "web",
                    "registry.example.com/shop/web:1.3",
                    2,
                    2,
                    &[by("ci", image_field("web"))],
                ))
                .await;
                self.rollout("web", "7c9b").await;
                let updated = (KCM, "status", now, status_field("readyReplicas"));
                let ci = by("ci", image_field("web"));
                self.put(&deployment("web", "registry.example.com/shop/web:1.3", 2, 1, &[ci, updated])).await;
            }
            1_287 => {
                let field = json!({"f:data": {"f:LOG_LEVEL": {}}});
                self.put(&object(
                    "ConfigMap",
                    "shop",
                    "settings",
                    &json!({"data": {"LOG_LEVEL": "debug"}}),
                    &[by("kubectl-edit", field)],
                ))
                .await;
            }
            1_322 => {
                let rotated = object(
                    "Secret",
                    "shop",
                    "db",
                    &json!({"data": {"password": "REDACTED"}}),
                    &[by("vault", json!({"f:data": {"f:password": {}}}))],
                );
                self.story.put_redacted(&clock(now), "secrets", &rotated, &["/data/password"], 2).await;
            }
            1_366 => {
                let rest = json!({"spec": {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}});
                self.put(&object(
                    "NetworkPolicy",
                    "shop",
                    "deny-all",
                    &rest,
                    &[by("kubectl-create", json!({"f:spec": {}}))],
                ))
                .await;
            }
            1_402 => {
                // A scale to 0 takes the field from its owner and gives it to nobody.
                self.put(&deployment("cart", "cart:1", 0, 2, &[("helm", "", 30, image_field("cart"))])).await;
                let status = (KCM, "status", now, status_field("readyReplicas"));
                self.put(&deployment("cart", "cart:1", 0, 0, &[("helm", "", 30, image_field("cart")), status])).await;
            }
            1_443 => {
                for name in ["old-1", "old-2"] {
                    self.delete(&object("ConfigMap", "shop", name, &json!({"data": {"a": "1"}}), &[])).await;
                }
                self.delete(&object("Service", "shop", "legacy", &json!({"spec": {"a": 1}}), &[])).await;
                self.delete(&deployment("legacy", "legacy:1", 1, 1, &[])).await;
            }
            1_489 => {
                let rest = json!({"roleRef": {"kind": "ClusterRole", "name": "cluster-admin"},
                    "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": "shop"}]});
                self.put(&object(
                    "ClusterRoleBinding",
                    "",
                    "shop-admin",
                    &rest,
                    &[by("kubectl-create", json!({"f:roleRef": {}}))],
                ))
                .await;
            }
            1_531 => {
                let field = json!({"f:spec": {"f:unschedulable": {}}});
                let cordon = by("kubectl-cordon", field);
                self.put(&object(
                    "Node",
                    "",
                    "worker-1",
                    &json!({"spec": {"unschedulable": true}}),
                    std::slice::from_ref(&cordon),
                ))
                .await;
                let taints =
                    json!({"spec": {"unschedulable": true, "taints": [{"key": "node.kubernetes.io/unschedulable"}]}});
                let taint = (KCM, "", now, json!({"f:spec": {"f:taints": {}}}));
                self.put(&object("Node", "", "worker-1", &taints, &[cordon, taint])).await;
            }
            _ => {}
        }
    }
}

/// The time of the incident, as `--since` and `--until` take it.
pub const INCIDENT: (&str, &str) = ("2026-11-20T10:20:00Z", "2026-11-20T10:30:00Z");

/// Writes the journal of the incident.
pub async fn incident() -> TempDir {
    let mut story = Story::begin().await;
    for (kind, group, plural, short, namespaced) in KINDS {
        let mut of = resource(plural, group, kind, short);
        of.namespaced = namespaced;
        story.watch("10:00:00", of).await;
    }
    let others = (0..OTHERS).map(|n| {
        object(
            "ConfigMap",
            if n % 2 == 0 { "shop" } else { "pay" },
            &format!("other-{n}"),
            &json!({"data": {"a": "1"}}),
            &[],
        )
    });
    let data = |name: &str, data: Value| object("ConfigMap", "shop", name, &json!({"data": data}), &[]);
    let maps = [
        data("settings", json!({"LOG_LEVEL": "info"})),
        data("old-1", json!({"a": "1"})),
        data("old-2", json!({"a": "1"})),
    ];
    story.list("10:00:01", "configmaps", None, &others.chain(maps).collect::<Vec<_>>()).await;
    let helm = |name: &'static str| [("helm", "", 30, image_field(name))];
    let mut both = image_field("cart");
    both["f:spec"]["f:replicas"] = json!({});
    let deployments = [
        deployment("web", "registry.example.com/shop/web:1.2", 2, 2, &helm("web")),
        deployment("cart", "cart:1", 2, 2, &[("helm", "", 30, both)]),
        deployment("api", "api:1", 3, 3, &helm("api")),
        deployment("legacy", "legacy:1", 1, 1, &helm("legacy")),
    ];
    story.list("10:00:01", "deployments", None, &deployments).await;
    let cron = |name: &str| object("CronJob", "shop", name, &json!({"spec": {"schedule": "* * * * *"}}), &[]);
    story.list("10:00:01", "cronjobs", None, &[cron("report"), cron("backup")]).await;
    story.list("10:00:01", "nodes", None, &[object("Node", "", "worker-1", &json!({"spec": {}}), &[])]).await;
    story
        .list("10:00:01", "services", None, &[object("Service", "shop", "legacy", &json!({"spec": {"a": 1}}), &[])])
        .await;
    let budget = json!({"spec": {"selector": {"matchLabels": {"app": "web"}}}, "status": {"currentHealthy": 1}});
    story
        .list("10:00:01", "poddisruptionbudgets", None, &[object("PodDisruptionBudget", "shop", "web", &budget, &[])])
        .await;
    story
        .list("10:00:01", "endpoints", None, &[object("Endpoints", "shop", "web", &json!({"subsets": []}), &[])])
        .await;
    for source in [
        "replicasets",
        "pods",
        "events",
        "new events",
        "networkpolicies",
        "jobs",
        "horizontalpodautoscalers",
        "clusterrolebindings",
        "leases",
        "secrets",
    ] {
        story.list("10:00:01", source, None, &[]).await;
    }
    let stamped = json!({"metadata": {"annotations": {"example.com/stamp": "2026-11-20T10:00:00Z"}}, "spec": {"a": 1}});
    let widget = object("Widget", "shop", "stamped", &stamped, &[]);
    story.list("10:00:01", "widgets", None, &[widget]).await;
    let gadget = object("Gadget", "shop", "contested", &json!({"spec": {"mode": "none"}}), &[]);
    story.list("10:00:01", "gadgets", None, &[gadget]).await;
    let secret = object(
        "Secret",
        "shop",
        "db",
        &json!({"data": {"password": "REDACTED"}}),
        &[("vault", "", 50, json!({"f:data": {"f:password": {}}}))],
    );
    story.put_redacted("10:00:50", "secrets", &secret, &["/data/password"], 1).await;
    let mut incident = Incident { story, now: 0 };
    for second in 1_200..1_800 {
        incident.now = second;
        incident.cause().await;
        incident.noise().await;
    }
    incident.story.end().await
}
