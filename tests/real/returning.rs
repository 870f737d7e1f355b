//! `get --at … --clean | kubectl apply -f -`: what was changed and what was deleted comes back as it was.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::decklog::Decklog;
use crate::harness::{Cluster, LIMIT, Parts, Version, until};
use crate::judge::{Entry, Scope};

/// Annotations that are the books of kubectl and of controllers, and no part of what somebody wanted.
const BOOKS: [&str; 3] =
    ["kubectl.kubernetes.io/", "deployment.kubernetes.io/", "deprecated.daemonset.template.generation"];

/// A kind of object: where it is served, as it was wanted first, and what changes in it later. What is added later has
/// to go again, and what is taken away has to come back.
struct Kind {
    /// `deployments.apps`, as decklog and kubectl spell it.
    resource: &'static str,
    path: &'static str,
    first: Value,
    later: Value,
}

fn object(api_version: &str, kind: &str, rest: &Value) -> Value {
    let mut object = json!({
        "apiVersion": api_version, "kind": kind,
        "metadata": {"name": "web", "labels": {"app": "web", "tier": "front"}, "annotations": {"example.com/note": "first"}},
    });
    merge(&mut object, rest);
    object
}

/// RFC 7386, which is enough to write down what changes.
fn merge(into: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else { return into.clone_from(patch) };
    if !into.is_object() {
        *into = json!({});
    }
    let Value::Object(into) = into else { return };
    for (key, value) in patch {
        if value.is_null() {
            into.remove(key);
        } else {
            merge(into.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}

/// Pods of one kind's own: a selector that others share would make them take each other's.
fn pods(of: &str) -> Value {
    let labels = json!({"of": of});
    json!({
        "metadata": {"labels": labels},
        "spec": {
            "containers": [
                {"name": "web", "image": "nginx:1", "ports": [{"containerPort": 80}], "env": [{"name": "MODE", "value": "fast"}]},
            ],
            "tolerations": [{"key": "node.example.com/odd", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30}],
        },
    })
}

fn once(image: &str) -> Value {
    json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "work", "image": image}]}})
}

#[allow(clippy::too_many_lines, reason = "a table")]
fn kinds() -> Vec<Kind> {
    let selector = |of: &str| json!({"matchLabels": {"of": of}});
    let relabel =
        json!({"metadata": {"labels": {"tier": null, "late": "yes"}, "annotations": {"example.com/note": "second"}}});
    let with = |later: Value| {
        let mut changed = relabel.clone();
        merge(&mut changed, &later);
        changed
    };
    let more = json!([
        {"name": "web", "image": "nginx:2", "env": [{"name": "MODE", "value": "slow"}, {"name": "DEBUG", "value": "1"}]},
        {"name": "proxy", "image": "envoy:1"},
    ]);
    let mut chosen = once("busybox:1");
    merge(&mut chosen, &json!({"metadata": {"labels": {"of": "job"}}}));
    let claim = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    let kind = |resource, path, first, later| Kind { resource, path, first, later };
    vec![
        kind(
            "customresourcedefinitions.apiextensions.k8s.io",
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com",
            object(
                "apiextensions.k8s.io/v1",
                "CustomResourceDefinition",
                &json!({
                    "metadata": {"name": "widgets.example.com"},
                    "spec": {
                        "group": "example.com", "scope": "Namespaced",
                        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
                        "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}}, "schema": {
                            "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                        }}],
                    },
                }),
            ),
            with(
                json!({"spec": {"names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList", "shortNames": ["wd"]}}}),
            ),
        ),
        kind(
            "widgets.example.com",
            "/apis/example.com/v1/namespaces/default/widgets/web",
            object(
                "example.com/v1",
                "Widget",
                &json!({"spec": {"size": 1.5, "list": [1, 2, {"deep": [true, null]}], "gone": "x"}}),
            ),
            with(json!({"spec": {"size": 2, "list": [], "gone": null, "late": {"a": "b"}}})),
        ),
        kind(
            "deployments.apps",
            "/apis/apps/v1/namespaces/default/deployments/web",
            object(
                "apps/v1",
                "Deployment",
                &json!({"spec": {"replicas": 2, "selector": selector("deployment"), "template": pods("deployment")}}),
            ),
            with(json!({"spec": {"replicas": 3, "paused": true, "template": {"spec": {"containers": more}}}})),
        ),
        kind(
            "statefulsets.apps",
            "/apis/apps/v1/namespaces/default/statefulsets/web",
            object(
                "apps/v1",
                "StatefulSet",
                &json!({"spec": {
                    "replicas": 1, "serviceName": "web", "selector": selector("statefulset"), "template": pods("statefulset"),
                    "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": claim}],
                }}),
            ),
            with(json!({"spec": {"replicas": 0, "template": {"spec": {"containers": more}}}})),
        ),
        kind(
            "daemonsets.apps",
            "/apis/apps/v1/namespaces/default/daemonsets/web",
            object(
                "apps/v1",
                "DaemonSet",
                &json!({"spec": {"selector": selector("daemonset"), "template": pods("daemonset")}}),
            ),
            with(json!({"spec": {"minReadySeconds": 5, "template": {"spec": {"containers": more}}}})),
        ),
        kind(
            "jobs.batch",
            "/apis/batch/v1/namespaces/default/jobs/web",
            object(
                "batch/v1",
                "Job",
                &json!({"spec": {"completions": 2, "backoffLimit": 3, "template": once("busybox:1")}}),
            ),
            // The rest of a Job cannot be changed.
            with(json!({"spec": {"parallelism": 2, "activeDeadlineSeconds": 600}})),
        ),
        kind(
            "jobs.batch",
            "/apis/batch/v1/namespaces/default/jobs/chosen",
            object(
                "batch/v1",
                "Job",
                &json!({"metadata": {"name": "chosen"}, "spec": {
                    "manualSelector": true, "suspend": true, "selector": selector("job"), "template": chosen,
                }}),
            ),
            with(json!({"spec": {"parallelism": 2}})),
        ),
        kind(
            "cronjobs.batch",
            "/apis/batch/v1/namespaces/default/cronjobs/web",
            object(
                "batch/v1",
                "CronJob",
                &json!({"spec": {
                    "schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"template": once("busybox:1")}},
                }}),
            ),
            with(json!({"spec": {"schedule": "0 1 1 1 *", "suspend": true}})),
        ),
        kind(
            "services",
            "/api/v1/namespaces/default/services/web",
            object(
                "v1",
                "Service",
                &json!({"spec": {
                    "type": "NodePort", "selector": {"app": "web"},
                    "ports": [{"name": "http", "port": 80, "targetPort": 8080}, {"name": "metrics", "port": 9090}],
                }}),
            ),
            with(json!({"spec": {"type": "NodePort", "selector": {"app": "other"}, "ports": [
                {"name": "http", "port": 80, "targetPort": 8081}, {"name": "late", "port": 7070},
            ]}})),
        ),
        kind(
            "configmaps",
            "/api/v1/namespaces/default/configmaps/web",
            object(
                "v1",
                "ConfigMap",
                &json!({
                    "data": {"app.conf": "listen 80\nworkers 4\n", "odd": " 'quoted': \"yes\" # no comment\ttab\n\n", "gone": "0x1F"},
                    "binaryData": {"bytes": "AAEC/w=="},
                }),
            ),
            with(json!({"data": {"app.conf": "listen 81\n", "gone": null, "late": "on"}})),
        ),
        kind(
            "persistentvolumeclaims",
            "/api/v1/namespaces/default/persistentvolumeclaims/web",
            object("v1", "PersistentVolumeClaim", &json!({"spec": claim})),
            relabel.clone(),
        ),
        kind(
            "serviceaccounts",
            "/api/v1/namespaces/default/serviceaccounts/web",
            object(
                "v1",
                "ServiceAccount",
                &json!({"automountServiceAccountToken": false, "imagePullSecrets": [{"name": "registry"}]}),
            ),
            with(json!({"automountServiceAccountToken": true, "imagePullSecrets": [{"name": "another"}]})),
        ),
        kind(
            "pods",
            "/api/v1/namespaces/default/pods/web",
            object("v1", "Pod", &json!({"spec": pods("")["spec"]})),
            // Of a Pod little more can be changed.
            with(
                json!({"spec": {"containers": [{"name": "web", "image": "nginx:2", "ports": [{"containerPort": 80}], "env": [{"name": "MODE", "value": "fast"}]}]}}),
            ),
        ),
        kind(
            "roles.rbac.authorization.k8s.io",
            "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles/web",
            object(
                "rbac.authorization.k8s.io/v1",
                "Role",
                &json!({
                    "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}],
                }),
            ),
            with(json!({"rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]})),
        ),
        kind(
            "rolebindings.rbac.authorization.k8s.io",
            "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings/web",
            object(
                "rbac.authorization.k8s.io/v1",
                "RoleBinding",
                &json!({
                    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "web"},
                    "subjects": [{"kind": "ServiceAccount", "name": "web", "namespace": "default"}],
                }),
            ),
            with(json!({"subjects": [{"kind": "User", "name": "someone", "apiGroup": "rbac.authorization.k8s.io"}]})),
        ),
        kind(
            "ingresses.networking.k8s.io",
            "/apis/networking.k8s.io/v1/namespaces/default/ingresses/web",
            object(
                "networking.k8s.io/v1",
                "Ingress",
                &json!({"spec": {
                    "defaultBackend": {"service": {"name": "web", "port": {"number": 80}}},
                    "tls": [{"hosts": ["example.com"], "secretName": "web"}],
                }}),
            ),
            with(
                json!({"spec": {"tls": null, "defaultBackend": {"service": {"name": "web", "port": {"number": 81}}}}}),
            ),
        ),
        kind(
            "horizontalpodautoscalers.autoscaling",
            "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers/web",
            object(
                "autoscaling/v2",
                "HorizontalPodAutoscaler",
                &json!({"spec": {
                    "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "nobody"}, "maxReplicas": 5,
                    "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}}}],
                }}),
            ),
            with(json!({"spec": {"minReplicas": 2, "maxReplicas": 9}})),
        ),
        kind(
            "priorityclasses.scheduling.k8s.io",
            "/apis/scheduling.k8s.io/v1/priorityclasses/web",
            object("scheduling.k8s.io/v1", "PriorityClass", &json!({"value": 1000, "description": "first"})),
            with(json!({"description": "second"})),
        ),
    ]
}

/// What somebody wanted of an object: everything but the books of servers and controllers.
fn wanted(object: &Value) -> Value {
    let mut object = object.clone();
    let metadata = object["metadata"].as_object_mut().unwrap();
    metadata.retain(|key, _| ["name", "namespace", "labels", "annotations"].contains(&key.as_str()));
    if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
        annotations.retain(|key, _| !BOOKS.iter().any(|books| key.starts_with(books)));
    }
    let whole = object.as_object_mut().unwrap();
    whole.remove("status");
    if whole["kind"] == "Job" && whole["spec"]["manualSelector"] != true {
        // The server itself ties a Job to its Pods, by its uid.
        whole["spec"].as_object_mut().unwrap().remove("selector");
        let labels = whole["spec"]["template"]["metadata"]["labels"].as_object_mut().unwrap();
        labels.retain(|key, _| !key.ends_with("controller-uid"));
    }
    object
}

async fn all_wanted(cluster: &Cluster, kinds: &[Kind]) -> Vec<Value> {
    let mut all = Vec::new();
    for kind in kinds {
        all.push(wanted(&cluster.get(kind.path).await.unwrap()));
    }
    all
}

#[track_caller]
fn same(have: &[Value], before: &[Value], when: &str) {
    for (have, before) in have.iter().zip(before) {
        assert_eq!(have, before, "{} {when}", before["kind"]);
    }
    assert_eq!(have.len(), before.len());
}

/// Gives objects to `kubectl apply -f -`, which has to take all of them.
async fn apply(cluster: &Cluster, text: &str) {
    let output = cluster.kubectl_with(&["apply", "-f", "-"], text.as_bytes()).await;
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "kubectl apply: {error}\nof\n{text}");
}

/// The objects as `get --at … --clean` prints them, each at the last entry that it had by then.
fn brought(daemon: &Decklog, kinds: &[Kind], at: &[u64]) -> Vec<String> {
    let texts: Vec<_> =
        kinds.iter().zip(at).map(|(kind, at)| get(daemon, kind, &["--at", &at.to_string(), "--clean"])).collect();
    // Pods in a template have metadata of their own.
    let servers = ["\nstatus:", "\n  managedFields:", "\n  resourceVersion:", "\n  uid:", "\n  creationTimestamp:"];
    for books in BOOKS.iter().chain(&servers) {
        assert!(!texts.iter().any(|text| text.contains(books)), "{books} in {texts:?}");
    }
    texts
}

fn get(daemon: &Decklog, kind: &Kind, more: &[&str]) -> String {
    let name = kind.first["metadata"]["name"].as_str().unwrap();
    let answer = daemon.command(&[&["get", &format!("{}/{name}", kind.resource)], more].concat());
    let error = String::from_utf8_lossy(&answer.stderr);
    assert!(answer.status.success() && error.is_empty(), "{}: {error}", kind.resource);
    String::from_utf8(answer.stdout).unwrap()
}

/// Waits until the log has everything that happened until now.
async fn caught_up(cluster: &Cluster, daemon: &mut Decklog, started: u64, kinds: &[Kind]) {
    let resources: BTreeSet<String> = kinds.iter().map(|kind| kind.resource.to_owned()).collect();
    let upto = cluster.oracle().sync().await;
    let scope = Scope { late: false, started, upto, namespaces: None, resources: Some(resources) };
    daemon.catch_up(cluster, None, &scope).await;
}

/// The definition first, and the others once its objects are served.
async fn apply_in_order(cluster: &Cluster, texts: &[String]) {
    apply(cluster, &texts[0]).await;
    until("widgets to be served", LIMIT, async || {
        cluster.get("/apis/example.com/v1/namespaces/default/widgets").await.map(drop)
    })
    .await;
    apply(cluster, &texts[1..].join("---\n")).await;
}

pub async fn scenario(version: Version) {
    let cluster = Cluster::start(version, Parts::Full).await;
    let kinds = kinds();
    let started = cluster.oracle().sync().await;
    let mut daemon =
        Decklog::new(&cluster, "calm", "resources = [\"*\"]\nexclude = [\"leases.coordination.k8s.io\", \"events\"]");
    daemon.start();
    daemon.ready().await;

    let texts: Vec<String> = kinds.iter().map(|kind| format!("{}\n", kind.first)).collect();
    apply_in_order(&cluster, &texts).await;
    // A Pod has its node, and a Job has run: what controllers and kubelets add is there.
    until("the Pod and the Job to be done with", LIMIT, async || {
        let pod = cluster.get("/api/v1/namespaces/default/pods/web").await?;
        let job = cluster.get("/apis/batch/v1/namespaces/default/jobs/web").await?;
        if pod["status"]["phase"] == "Running" && job["status"]["succeeded"] == 2 {
            Ok(())
        } else {
            Err(format!("{} {}", pod["status"], job["status"]))
        }
    })
    .await;
    caught_up(&cluster, &mut daemon, started, &kinds).await;
    let before = all_wanted(&cluster, &kinds).await;
    let mut at = Vec::new();
    for kind in &kinds {
        let (plural, name) = (kind.resource.split('.').next().unwrap(), &kind.first["metadata"]["name"]);
        let of = |entry: &Entry| entry.resource == plural && *name == entry.name.as_str();
        // A resource that has just come is read when it is discovered.
        daemon.tells(kind.resource, of).await;
        at.push(daemon.entries().iter().rfind(|entry| of(entry)).unwrap().seq);
    }

    // Changed, by the same way that all of it came.
    let texts: Vec<String> = kinds
        .iter()
        .map(|kind| {
            let mut later = kind.first.clone();
            merge(&mut later, &kind.later);
            format!("{later}\n")
        })
        .collect();
    apply_in_order(&cluster, &texts).await;
    caught_up(&cluster, &mut daemon, started, &kinds).await;
    for ((kind, before), now) in kinds.iter().zip(&before).zip(all_wanted(&cluster, &kinds).await) {
        assert_ne!(&now, before, "{} was changed", kind.resource);
    }
    let old = brought(&daemon, &kinds, &at);
    apply_in_order(&cluster, &old).await;
    same(&all_wanted(&cluster, &kinds).await, &before, "over the one that was changed");

    // What others have added since is not kubectl's to take away: `apply` leaves it, and `replace` does not.
    let path = "/api/v1/namespaces/default/configmaps/web";
    cluster.patch(&format!("{path}?fieldManager=another"), &json!({"data": {"added": "by another"}})).await;
    let map = kinds.iter().position(|kind| kind.path == path).unwrap();
    apply(&cluster, &old[map]).await;
    assert_eq!(cluster.get(path).await.unwrap()["data"]["added"], "by another");
    let replaced = cluster.kubectl_with(&["replace", "-f", "-"], old[map].as_bytes()).await;
    assert!(replaced.status.success(), "{replaced:?}");
    assert_eq!(wanted(&cluster.get(path).await.unwrap()), before[map]);

    // Gone. Whatever an object owns goes with it, and what is made anew is another object.
    for kind in kinds.iter().rev() {
        let name = kind.first["metadata"]["name"].as_str().unwrap();
        cluster
            .kubectl_must(&[
                "delete",
                kind.resource,
                name,
                "--wait=true",
                "--cascade=foreground",
                "--grace-period=0",
                "--force",
            ])
            .await;
    }
    caught_up(&cluster, &mut daemon, started, &kinds).await;
    for (kind, at) in kinds.iter().zip(&at) {
        assert!(cluster.get(kind.path).await.is_err(), "{} is gone", kind.resource);
        let name = kind.first["metadata"]["name"].as_str().unwrap();
        let answer = daemon.command(&["get", &format!("{}/{name}", kind.resource)]);
        let said = String::from_utf8_lossy(&answer.stderr).into_owned();
        assert!(answer.status.code() == Some(1) && said.contains("was deleted at"), "{said}");
        // Where it says so, it is as it was last, which can be brought back as well.
        let last = said.split("--at ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
        assert!(last.parse::<u64>().unwrap() > *at, "{said}");
    }
    apply_in_order(&cluster, &brought(&daemon, &kinds, &at)).await;
    same(&all_wanted(&cluster, &kinds).await, &before, "after it was deleted");
    // And as JSON.
    let json = get(&daemon, &kinds[2], &["--at", &at[2].to_string(), "--clean", "-o", "json"]);
    apply(&cluster, &json).await;
    same(&[wanted(&cluster.get(kinds[2].path).await.unwrap())], &before[2..3], "from JSON");

    // What is redacted is never put in the place of what it stands for: the server does not take it for a value.
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "web"}, "stringData": {"password": "hunter2"}});
    apply(&cluster, &secret.to_string()).await;
    caught_up(&cluster, &mut daemon, started, &kinds).await;
    daemon.tells("the Secret", |entry| entry.resource == "secrets" && entry.name == "web").await;
    let answer = daemon.command(&["get", "secret/web", "--clean"]);
    assert!(String::from_utf8_lossy(&answer.stderr).contains("redacted"), "{answer:?}");
    let output = cluster.kubectl_with(&["apply", "-f", "-"], &answer.stdout).await;
    assert!(!output.status.success(), "{output:?}");
    let live = cluster.get("/api/v1/namespaces/default/secrets/web").await.unwrap();
    assert_eq!(live["data"]["password"], "aHVudGVyMg==", "it is as it was");
    daemon.stop().await;
}
