//! The journal that the book's examples are asked of: a Friday morning in a shop, the same to the byte on every machine.

use decklog::core::model::Why;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::story::{Story, managed, owned};

/// Kinds in the order of the story's sources, each with an empty first list but those that are given.
const SOURCES: [&str; 4] = ["replicasets", "secrets", "events", "new events"];

const WEB: &str = "8b2e0244-5e4b-40f5-bf8c-59bb003553c1";
const OLD_SET: &str = "1d0c0c3e-3c57-4a55-9d6b-0e7c6c1b7a10";
const NEW_SET: &str = "5f7a2b19-2a0e-4d9c-8a66-7b1d3f0c4e21";

fn deployment(name: &str, namespace: &str, uid: &str, image: &str, replicas: u64) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace, "uid": uid, "labels": {"app": name}, "creationTimestamp": "2026-11-16T08:11:02Z"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [
                {"name": name, "image": image, "resources": {"limits": {"memory": "128Mi"}}}]}},
        },
        "status": {"replicas": replicas, "readyReplicas": replicas, "observedGeneration": 1},
    })
}

/// What `kubectl apply` owns of a Deployment: its labels and its template, and its replicas where nobody scaled it.
fn applied(container: &str, replicas: bool) -> Value {
    let key = format!("k:{{\"name\":\"{container}\"}}");
    let mut fields = json!({
        "f:metadata": {"f:labels": {"f:app": {}}},
        "f:spec": {"f:selector": {}, "f:template": {"f:metadata": {"f:labels": {"f:app": {}}}, "f:spec": {"f:containers":
            {key: {".": {}, "f:name": {}, "f:image": {}, "f:resources": {"f:limits": {"f:memory": {}}}}}}}},
    });
    if replicas {
        fields["f:spec"]["f:replicas"] = json!({});
    }
    fields
}

fn image_of(container: &str) -> Value {
    let key = format!("k:{{\"name\":\"{container}\"}}");
    json!({"f:spec": {"f:template": {"f:spec": {"f:containers": {key: {"f:image": {}}}}}}})
}

fn replicas() -> Value {
    json!({"f:spec": {"f:replicas": {}}})
}

fn config_map(name: &str, namespace: &str, uid: &str, data: &Value, managers: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace, "uid": uid, "managedFields": managers}, "data": data})
}

fn ready(is: bool, time: &str) -> Value {
    json!([{"type": "Ready", "status": if is { "True" } else { "False" }, "lastTransitionTime": format!("2026-11-20T{time}Z")}])
}

/// A rollout, a fight, a scaling that was too bold, an edit by hand, a gap, an accident and its repair.
#[expect(clippy::too_many_lines, reason = "a story is told in one go")]
pub async fn friday() -> TempDir {
    let mut story = Story::begin().await;
    let conf = "listen 8080\nworkers 4\nlog info\ntimeout 30\nretries 3\n";
    let helm = |time| managed(&[("helm", "Update", "", time, json!({"f:data": {"f:app.conf": {}}}))]);
    let settings = |text: &str, managers: &Value| {
        let uid = "c2d1f9a4-6b13-4c0a-9b7e-2f6f5d0a9c33";
        config_map("settings", "shop", uid, &json!({"app.conf": text}), managers)
    };
    let rates =
        config_map("rates", "pay", "e7a90c55-0f5c-4b1e-9a63-50d1f7c0b2aa", &json!({"eur": "1.00"}), &helm("08:30:00"));
    story.list("10:00:01", "configmaps", None, &[settings(conf, &helm("08:30:00")), rates.clone()]).await;

    let controller = |time| ("kube-controller-manager", "Update", "status", time, json!({"f:status": {}}));
    let apply = |container: &'static str, replicas: bool| {
        ("kubectl-client-side-apply", "Update", "", "09:15:00", applied(container, replicas))
    };
    let mut web = deployment("web", "shop", WEB, "registry.example/shop/web:1.4.0", 3);
    web["metadata"]["managedFields"] = managed(&[apply("web", true), controller("09:15:20")]);
    let mut search =
        deployment("search", "shop", "3c9b7d10-8f42-4e6e-b0c1-6d5a4f3e2d1c", "registry.example/shop/search:2.0.3", 3);
    search["metadata"]["managedFields"] =
        managed(&[("argocd-controller", "Apply", "", "09:20:00", applied("search", true))]);
    let mut ledger =
        deployment("ledger", "pay", "a4f1e2d3-c4b5-4a69-8778-695a4b3c2d1e", "registry.example/pay/ledger:7.1.0", 2);
    ledger["metadata"]["managedFields"] = managed(&[("helm", "Update", "", "08:30:00", applied("ledger", true))]);
    story.list("10:00:01", "deployments", None, &[web.clone(), search.clone(), ledger.clone()]).await;

    let container = |image: &str| json!({"containers": [{"name": "web", "image": image}], "nodeName": "worker-2"});
    let mut old = owned(
        "Pod",
        "web-5d8f-x2x4q",
        "d0a1b2c3-d4e5-4f60-8171-8293a4b5c6d7",
        ("ReplicaSet", "web-5d8f", OLD_SET),
        &json!({"spec": container("registry.example/shop/web:1.4.0"), "status": {"phase": "Running", "conditions": ready(true, "09:15:19")}}),
    );
    old["metadata"]["labels"] = json!({"app": "web"});
    story.list("10:00:01", "pods", None, std::slice::from_ref(&old)).await;
    for source in SOURCES {
        story.list("10:00:01", source, None, &[]).await;
    }

    // A Secret, whose value rotates later.
    let secret = |mask: &str| {
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "db", "namespace": "shop", "uid": "30caf2d7-bae2-414f-a6d5-9d9069005dce",
            "managedFields": managed(&[("vault-operator", "Apply", "", "10:04:10", json!({"f:data": {"f:password": {}}}))])},
            "data": {"password": mask}, "type": "Opaque"})
    };
    let digest = |of: &str| format!("hmac:{of}{of}");
    story.put_redacted("10:04:10", "secrets", &secret(&digest("05f6cc3b2e4c472d")), &["/data/password"], 1).await;

    // A new image.
    let set = |time| ("kubectl-set", "Update", "", time, image_of("web"));
    web["spec"]["template"]["spec"]["containers"][0]["image"] = "registry.example/shop/web:1.5.0".into();
    web["metadata"]["managedFields"] = managed(&[apply("web", true), controller("09:15:20"), set("10:12:00")]);
    story.put("10:12:00", "deployments", &web).await;
    let mut next =
        owned("ReplicaSet", "web-7c9b", NEW_SET, ("Deployment", "web", WEB), &json!({"spec": {"replicas": 3}}));
    next["metadata"]["managedFields"] = managed(&[("kube-controller-manager", "Update", "", "10:12:00", replicas())]);
    story.put("10:12:00.1", "replicasets", &next).await;
    let mut pod = owned(
        "Pod",
        "web-7c9b-k8s7t",
        "b6c5d4e3-f201-4a9b-8c7d-6e5f40312233",
        ("ReplicaSet", "web-7c9b", NEW_SET),
        &json!({"spec": container("registry.example/shop/web:1.5.0"), "status": {"phase": "Pending"}}),
    );
    pod["metadata"]["labels"] = json!({"app": "web"});
    pod["metadata"]["managedFields"] =
        managed(&[("kube-controller-manager", "Update", "", "10:12:00", json!({"f:spec": {}}))]);
    story.put("10:12:00.3", "pods", &pod).await;
    let kubelet = |time| ("kubelet", "Update", "status", time, json!({"f:status": {}}));
    pod["status"] = json!({"phase": "Running", "conditions": ready(false, "10:12:03")});
    pod["metadata"]["managedFields"] =
        managed(&[("kube-controller-manager", "Update", "", "10:12:00", json!({"f:spec": {}})), kubelet("10:12:03")]);
    story.put("10:12:03", "pods", &pod).await;
    for (at, count) in [("10:12:04", 1), ("10:12:06", 2), ("10:12:09", 3)] {
        web["status"]["updatedReplicas"] = count.into();
        web["metadata"]["managedFields"] = managed(&[apply("web", true), controller(at), set("10:12:00")]);
        story.put(at, "deployments", &web).await;
    }
    old["metadata"]["deletionTimestamp"] = "2026-11-20T10:12:40Z".into();
    story.put("10:12:10", "pods", &old).await;
    story.delete("10:12:11", "pods", &old).await;

    // Two managers that do not agree.
    let mut synced = "09:20:00";
    for (n, at) in ["10:15:00", "10:15:30", "10:16:00", "10:16:30", "10:17:00", "10:17:30"].into_iter().enumerate() {
        let (manager, count) = if n % 2 == 0 { ("horizontal-pod-autoscaler", 5) } else { ("argocd-controller", 3) };
        search["spec"]["replicas"] = count.into();
        let others = ("argocd-controller", "Apply", "", synced, applied("search", false));
        search["metadata"]["managedFields"] = if n % 2 == 0 {
            managed(&[others, (manager, "Update", "", at, replicas())])
        } else {
            synced = at;
            managed(&[(manager, "Apply", "", at, applied("search", true))])
        };
        story.put(at, "deployments", &search).await;
    }

    // Somebody scales, twice.
    for (at, count) in [("10:20:00", 5), ("10:33:00", 2)] {
        web["spec"]["replicas"] = count.into();
        web["metadata"]["managedFields"] = managed(&[
            apply("web", false),
            controller("10:12:09"),
            set("10:12:00"),
            ("kubectl", "Update", "scale", at, replicas()),
        ]);
        story.put(at, "deployments", &web).await;
        if count == 5 {
            story
                .put_redacted("10:22:30", "secrets", &secret(&digest("93d0a1f47be258c6")), &["/data/password"], 2)
                .await;
            let edit = ("kubectl-edit", "Update", "", "10:25:00", json!({"f:data": {"f:app.conf": {}}}));
            let text = conf.replace("info", "debug").replace("retries 3\n", "");
            story.put("10:25:00", "configmaps", &settings(&text, &managed(&[edit]))).await;
            ledger["metadata"]["labels"]["team"] = "payments".into();
            let label =
                ("kubectl-label", "Update", "", "10:28:00", json!({"f:metadata": {"f:labels": {"f:team": {}}}}));
            ledger["metadata"]["managedFields"] =
                managed(&[("helm", "Update", "", "08:30:00", applied("ledger", true)), label]);
            story.put("10:28:00", "deployments", &ledger).await;
        }
    }

    // An operator that writes the time whenever it looks.
    let stamped = |time: &str| {
        let mut flags = config_map(
            "feature-flags",
            "shop",
            "f3b6c8d2-1a40-4f7e-8b95-c0d1e2f30415",
            &json!({"value": "checkout-v2"}),
            &managed(&[(
                "flag-operator",
                "Update",
                "",
                time,
                json!({"f:data": {}, "f:metadata": {"f:annotations": {}}}),
            )]),
        );
        flags["metadata"]["annotations"] = json!({"flags.example/last-seen": format!("2026-11-20T{time}Z")});
        flags
    };
    for at in ["10:34:00", "10:34:10", "10:34:20", "10:34:30"] {
        story.put(at, "configmaps", &stamped(at)).await;
    }

    // What a watch missed and etcd had no more.
    let mut third = owned(
        "Pod",
        "web-7c9b-zzz42",
        "0a9b8c7d-6e5f-4031-9223-344556677889",
        ("ReplicaSet", "web-7c9b", NEW_SET),
        &json!({"spec": container("registry.example/shop/web:1.5.0"), "status": {"phase": "Running", "conditions": ready(true, "10:34:50")}}),
    );
    third["metadata"]["labels"] = json!({"app": "web"});
    pod["status"]["conditions"] = ready(true, "10:12:05");
    pod["metadata"]["managedFields"] =
        managed(&[("kube-controller-manager", "Update", "", "10:12:00", json!({"f:spec": {}})), kubelet("10:12:05")]);
    story.list("10:35:00", "pods", Some(Why::Expired), &[pod.clone(), third]).await;

    // The accident, and the repair.
    story.delete("10:40:00", "deployments", &search).await;
    let mut again =
        deployment("search", "shop", "77b1c0de-5a4f-4c3b-9e2d-1f0a9b8c7d6e", "registry.example/shop/search:2.0.3", 3);
    again["metadata"]["creationTimestamp"] = "2026-11-20T10:42:00Z".into();
    again["metadata"]["managedFields"] =
        managed(&[("kubectl-create", "Update", "", "10:42:00", applied("search", true))]);
    story.put("10:42:00", "deployments", &again).await;
    story.delete("10:45:00", "configmaps", &rates).await;
    story.end().await
}
