//! What `drift` prints of an edit that self-heal restores, and of one that stays.

use serde_json::{Value, json};

use crate::story::{Story, managed, resource, run};

const COMMIT: &str = "3f2c9ab0d1e2f3a4b5c6d7e8f9a0b1c2d3e4f5a6";

/// The Deployment with its number of replicas and its image, and the manager and the time of each.
fn cart(replicas: (u64, &str, &str), image: (&str, &str, &str)) -> Value {
    let of_replicas = json!({"f:spec": {"f:replicas": {}}});
    let of_image = json!({"f:spec": {"f:template": {"f:spec": {"f:containers": {"k:{\"name\":\"cart\"}": {".": {}, "f:name": {}, "f:image": {}}}}}}});
    let mut of_both = of_image.clone();
    of_both["f:spec"]["f:replicas"] = json!({});
    let books = if replicas.1 == image.1 {
        managed(&[(image.1, "Update", "", image.2, of_both)])
    } else {
        managed(&[(replicas.1, "Update", "", replicas.2, of_replicas), (image.1, "Update", "", image.2, of_image)])
    };
    json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "cart", "namespace": "shop", "uid": "u-cart", "creationTimestamp": "2026-11-20T10:01:00Z",
            "annotations": {"argocd.argoproj.io/tracking-id": "shop:apps/Deployment:shop/cart"}, "managedFields": books},
        "spec": {"replicas": replicas.0, "template": {"spec": {"containers": [{"name": "cart", "image": image.0}]}}}})
}

#[tokio::test(start_paused = true)]
async fn drift_prints_both_values_the_writer_and_the_end() {
    let mut story = Story::begin().await;
    for source in ["configmaps", "deployments", "replicasets", "pods", "secrets", "events", "new events"] {
        story.list("10:00:01", source, None, &[]).await;
    }
    story.watch("10:00:01", resource("applications", "argoproj.io", "Application", "app")).await;
    story.list("10:00:01", "applications", None, &[]).await;
    let argo = "argocd-controller";
    let mut application = json!({"apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
        "metadata": {"name": "shop", "namespace": "argocd", "uid": "u-shop"}});
    story.put("10:00:30", "applications", &application).await;
    story.put("10:01:00.2", "deployments", &cart((3, argo, "10:01:00"), ("cart:1.2", argo, "10:01:00"))).await;
    story
        .put("10:02:11.0", "deployments", &cart((1, "kubectl-edit", "10:02:11"), ("cart:1.2", argo, "10:01:00")))
        .await;
    application["status"] = json!({"operationState": {"phase": "Succeeded", "startedAt": "2026-11-20T10:02:22Z", "finishedAt": "2026-11-20T10:02:24Z",
        "operation": {"sync": {}}, "syncResult": {"revision": COMMIT}}});
    story.put("10:02:24.1", "applications", &application).await;
    story.put("10:02:24.2", "deployments", &cart((3, argo, "10:02:23"), ("cart:1.2", argo, "10:02:23"))).await;
    story
        .put("10:10:40.0", "deployments", &cart((3, argo, "10:02:23"), ("cart:debug", "kubectl-edit", "10:10:40")))
        .await;
    let dir = story.end().await;
    let answer = run(dir.path(), &["drift"]);
    let lines: Vec<&str> = answer.out.lines().collect();
    assert_eq!(answer.code, 0, "{answer:?}");
    assert_eq!(lines[0], "deployment/cart -n shop (Argo CD Application argocd/shop)");
    assert_eq!(
        lines[1],
        "   2026-11-20 10:02:11  replicas 3 → 1               kubectl-edit  restored after 13s by argocd-controller (sync at 3f2c9ab)"
    );
    assert!(
        lines[2].starts_with("   2026-11-20 10:10:40  image cart:1.2 → cart:debug  kubectl-edit  open for "),
        "{answer:?}"
    );
    assert_eq!(lines.len(), 3, "{answer:?}");
    let open = run(dir.path(), &["drift", "--open", "--check", "-o", "json"]);
    let json: Value = serde_json::from_str(&open.out).unwrap();
    assert_eq!((open.code, json["drifts"].as_array().unwrap().len()), (1, 1), "{open:?}");
    assert_eq!(json["drifts"][0]["fields"][0]["got"], "cart:debug");
    let none = run(dir.path(), &["drift", "cm", "--check"]);
    assert_eq!((none.code, none.out.as_str()), (0, ""), "{none:?}");
    assert!(none.err.contains("no drift matches"), "{none:?}");
    let answer = run(dir.path(), &["drift", "--by-journal-time"]);
    assert_eq!(answer.code, 64, "{answer:?}");
}
