//! What `why` says of a field, and why it ends where it ends.

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::story::{Story, managed, owned, resource, run, run_on_terminal};

const COMMIT: &str = "3f2c9ab0d1e2f3a4b5c6d7e8f9a0b1c2d3e4f5a6";

fn web(image: &str, managers: Value, annotations: Value) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "shop", "uid": "u-web", "creationTimestamp": "2026-11-20T10:02:12Z",
            "annotations": annotations, "managedFields": managers},
        "spec": {"replicas": 3, "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "web", "image": image}]}}}})
}

fn fields() -> Value {
    json!({"f:metadata": {"f:annotations": {"f:argocd.argoproj.io/tracking-id": {}}}, "f:spec": {"f:replicas": {}, "f:template":
        {"f:metadata": {"f:labels": {"f:app": {}}}, "f:spec": {"f:containers": {"k:{\"name\":\"web\"}": {".": {}, "f:name": {}, "f:image": {}}}}}}})
}

/// A sync of Argo CD makes a Deployment with a ReplicaSet and a Pod, and somebody restarts it. Applications are recorded or not.
async fn shop(are_recorded: bool) -> TempDir {
    let mut story = Story::begin().await;
    for source in ["configmaps", "deployments", "replicasets", "pods", "secrets", "events", "new events"] {
        story.list("10:00:01", source, None, &[]).await;
    }
    let tracking = json!({"argocd.argoproj.io/tracking-id": "shop:apps/Deployment:shop/web"});
    let state = |finished: bool| {
        let mut state = json!({"phase": "Running", "startedAt": "2026-11-20T10:02:11Z", "operation": {"sync": {}, "initiatedBy": {"username": "alice"}}});
        if finished {
            state["phase"] = "Succeeded".into();
            state["finishedAt"] = "2026-11-20T10:02:19Z".into();
            state["syncResult"] = json!({"revision": COMMIT});
        }
        json!({"apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "metadata": {"name": "shop", "namespace": "argocd", "uid": "u-shop"},
            "status": {"operationState": state}})
    };
    if are_recorded {
        story.watch("10:00:01", resource("applications", "argoproj.io", "Application", "app")).await;
        story.list("10:00:01", "applications", None, &[]).await;
        story.put("10:02:11.2", "applications", &state(false)).await;
    }
    let applied = ("argocd-controller", "Update", "", "10:02:12", fields());
    let mut object = web("registry.example/web:1.2", managed(std::slice::from_ref(&applied)), tracking);
    story.put("10:02:12.3", "deployments", &object).await;
    let template = &object["spec"]["template"];
    let mut set = owned(
        "ReplicaSet",
        "web-5d8f",
        "u-set",
        ("Deployment", "web", "u-web"),
        &json!({"spec": {"template": template}}),
    );
    set["spec"]["template"]["metadata"]["labels"]["pod-template-hash"] = "5d8f".into();
    let made = |fields: Value| managed(&[("kube-controller-manager", "Update", "", "10:02:12", fields)]);
    set["metadata"]["managedFields"] = made(json!({"f:spec": {"f:template": {"f:metadata": {}, "f:spec": {}}}}));
    story.put("10:02:12.5", "replicasets", &set).await;
    let mut pod = owned(
        "Pod",
        "web-5d8f-x2x4q",
        "u-pod",
        ("ReplicaSet", "web-5d8f", "u-set"),
        &json!({"spec": template["spec"]}),
    );
    pod["metadata"]["labels"] = json!({"app": "web", "pod-template-hash": "5d8f"});
    pod["metadata"]["managedFields"] = made(json!({"f:metadata": {"f:labels": {}}, "f:spec": {"f:containers": {}}}));
    story.put("10:02:12.9", "pods", &pod).await;
    if are_recorded {
        story.put("10:02:19.1", "applications", &state(true)).await;
    }
    object["metadata"]["annotations"]["kubernetes.io/change-cause"] = "after the outage".into();
    object["spec"]["template"]["metadata"]["annotations"] =
        json!({"kubectl.kubernetes.io/restartedAt": "2026-11-20T10:30:00Z"});
    let restart = json!({"f:metadata": {"f:annotations": {"f:kubernetes.io/change-cause": {}}}, "f:spec": {"f:template": {"f:metadata": {"f:annotations": {".": {}, "f:kubectl.kubernetes.io/restartedAt": {}}}}}});
    object["metadata"]["managedFields"] = managed(&[applied, ("kubectl-rollout", "Update", "", "10:30:00", restart)]);
    story.put("10:30:00.2", "deployments", &object).await;
    // A webhook has its own idea of the image.
    pod["metadata"]["name"] = "web-5d8f-other".into();
    pod["metadata"]["uid"] = "u-other".into();
    pod["spec"]["containers"][0]["image"] = "mirror.example/web:1.2".into();
    story.put("10:31:00.2", "pods", &pod).await;
    story.end().await
}

#[tokio::test(start_paused = true)]
async fn a_chain_goes_from_the_field_to_the_commit_and_the_person() {
    let dir = shop(true).await;
    let why = |args: &[&str]| run(dir.path(), &[&["why"], args].concat());
    let sync = "sync of Application argocd/shop at 3f2c9ab (10:02:11 to 10:02:19, started by alice)";
    assert_eq!(
        why(&["deploy/web", "image"]).out,
        format!(
            ".spec.template.spec.containers[0].image: \"registry.example/web:1.2\"\n  entry 2, 2026-11-20 10:02:12: argocd-controller, {sync}\n  the repository has the author of the revision\n"
        )
    );
    // A Pod has what the template of its Deployment had.
    assert_eq!(
        why(&["po/web-5d8f-x2x4q", "image"]).out,
        format!(
            ".spec.containers[0].image: \"registry.example/web:1.2\"\n  entry 4, 2026-11-20 10:02:12, from ReplicaSet shop/web-5d8f (entry 3), from Deployment shop/web (entry 2): argocd-controller, {sync}\n  the repository has the author of the revision\n"
        )
    );
    // Of what the controller added itself it is the author.
    let hash = why(&["po/web-5d8f-x2x4q", "pod-template-hash"]).out;
    assert!(
        hash.contains("from ReplicaSet shop/web-5d8f")
            && hash.contains("kube-controller-manager")
            && !hash.contains("sync"),
        "{hash}"
    );
    let all = why(&["deploy/web"]).out;
    let restart = "kubectl-rollout, a rollout restart, change-cause: after the outage";
    assert!(all.contains(restart) && all.contains("somebody used kubectl") && all.contains(sync), "{all}");
    assert!(all.find(restart) < all.find(sync), "the newest stands first: {all}");
    let before = why(&["deploy/web", "--at", "2"]).out;
    assert!(before.contains(sync) && !before.contains("kubectl"), "{before}");
    let json: Value = serde_json::from_str(&why(&["deploy/web", "image", "-o", "json"]).out).unwrap();
    assert_eq!(
        json["writes"][0]["provenance"],
        json!({"certainty": "known", "candidates": [{"tool": "argocd", "kind": "Application", "namespace": "argocd", "name": "shop", "run": {
            "revision": COMMIT, "from": "2026-11-20T10:02:11Z", "to": "2026-11-20T10:02:19Z", "startedBy": "alice", "seq": 5}}],
            "ends": {"reason": "commit", "text": "the repository has the author of the revision"}})
    );
    // `log -p` and the page have it beside the change, and not beside one that somebody made by hand.
    let patch = run(dir.path(), &["log", "deploy/web", "-p"]).out;
    assert_eq!(patch.matches("  from ").count(), 1, "{patch}");
    let (restarted, synced) = patch.split_once(&format!("  from {sync}\n")).expect(&patch);
    assert!(restarted.contains("kubectl-rollout") && synced.contains("registry.example/web:1.2"), "{patch}");
    assert!(!run(dir.path(), &["log", "deploy/web", "-p", "-o", "json"]).out.contains("sync of"));
    let file = dir.path().join("shop.html");
    assert_eq!(run(dir.path(), &["timeline", "--html", file.to_str().unwrap()]).code, 0);
    assert!(std::fs::read_to_string(file).unwrap().contains(sync));
    let narrow = run_on_terminal(dir.path(), &["why", "deploy/web", "--color", "never"], 80).out;
    assert!(narrow.lines().all(|line| line.trim_end().chars().count() <= 80), "{narrow}");
}

/// What is not there is said, with what to do: an unknown field, an unrecorded resource, an Application that the log has not.
#[tokio::test(start_paused = true)]
async fn a_chain_says_why_it_ends() {
    let dir = shop(false).await;
    let why = |args: &[&str]| run(dir.path(), &[&["why"], args].concat());
    let answer = why(&["deploy/web", "image"]).out;
    assert!(answer.contains("argocd-controller, Application shop\n"), "{answer}");
    assert!(
        answer.contains("applications.argoproj.io are not watched")
            && answer.contains("resources = [\"applications.argoproj.io\"]"),
        "{answer}"
    );
    let answer = why(&["po/web-5d8f-other", "image"]).out;
    assert!(answer.contains("ReplicaSet/web-5d8f had another value there at that time"), "{answer}");
    assert!(!answer.contains("argocd") && !answer.contains("from "), "{answer}");
    let answer = why(&["deploy/web", "nothing"]);
    assert!(answer.code == 1 && answer.err.contains("has no nothing"), "{answer:?}");
    let answer = why(&["deploy"]);
    assert!(answer.code == 64, "{answer:?}");
}

/// Runs that are found by name, by a label that has to be confirmed, and in Secrets: each has one write at 10:02:13, and a run
/// around it.
#[tokio::test(start_paused = true)]
async fn every_tool_is_found_in_the_log() {
    let mut story = Story::begin().await;
    for source in ["configmaps", "deployments", "replicasets", "pods", "secrets", "events", "new events"] {
        story.list("10:00:01", source, None, &[]).await;
    }
    for (plural, group, kind) in
        [("applications", "argoproj.io", "Application"), ("helmreleases", "helm.toolkit.fluxcd.io", "HelmRelease")]
    {
        story.watch("10:00:01", resource(plural, group, kind, "")).await;
        story.list("10:00:01", plural, None, &[]).await;
    }
    let secret = |name: &str, version: &str, status: &str| {
        json!({"apiVersion": "v1", "kind": "Secret", "type": "helm.sh/release.v1",
            "metadata": {"name": format!("sh.helm.release.v1.{name}.v{version}"), "namespace": "shop", "uid": format!("u-{name}-{version}"), "creationTimestamp": "2026-11-20T10:02:12Z",
                "labels": {"owner": "helm", "name": name, "version": version, "status": status, "modifiedAt": "1795255339"}}})
    };
    story.put("10:02:12.1", "secrets", &secret("by-helm", "3", "pending-upgrade")).await;
    // Of other releases, whose names begin alike.
    story.put("10:02:12.2", "secrets", &secret("by-helm.v3", "8", "pending-upgrade")).await;
    story.put("10:02:12.3", "secrets", &secret("by-helm-2", "9", "pending-upgrade")).await;
    let release = json!({"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "metadata": {"name": "by-flux", "namespace": "shop", "uid": "u-hr"},
        "status": {"history": [{"version": 4, "chartName": "web", "chartVersion": "1.1.0", "status": "pending-upgrade", "lastDeployed": "2026-11-20T10:02:12Z"}]}});
    story.put("10:02:12.4", "helmreleases", &release).await;
    for (name, listed) in [("lists", "by-label"), ("other", "something")] {
        let app = json!({"apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "metadata": {"name": name, "namespace": "argocd", "uid": format!("u-{name}")},
            "status": {"resources": [{"group": "", "version": "v1", "kind": "ConfigMap", "namespace": "shop", "name": listed}],
                "operationState": {"phase": "Running", "startedAt": "2026-11-20T10:02:12Z", "operation": {"sync": {}}, "syncResult": {"revision": "a1b2"}}}});
        let mut before = app.clone();
        before["status"]["operationState"].as_object_mut().unwrap().remove("syncResult");
        story.put("10:02:12.45", "applications", &before).await;
        story.put("10:02:12.5", "applications", &app).await;
    }
    let argo = "argocd-controller";
    let cases = [
        (
            "by-helm",
            "helm",
            json!({"annotations": {"meta.helm.sh/release-name": "by-helm", "meta.helm.sh/release-namespace": "shop"}}),
            "release of Helm release shop/by-helm at revision 3 (10:02:12, not known to have ended)",
        ),
        (
            "by-flux",
            "helm-controller",
            json!({"labels": {"helm.toolkit.fluxcd.io/name": "by-flux", "helm.toolkit.fluxcd.io/namespace": "shop"}}),
            "reconciliation of HelmRelease shop/by-flux at web@1.1.0 (10:02:12, not known to have ended)",
        ),
        (
            "by-label",
            argo,
            json!({"labels": {"app.kubernetes.io/instance": "lists"}}),
            "sync of Application argocd/lists at a1b2 (10:02:12, not known to have ended)",
        ),
        // The label is that of a program, as everybody may set it.
        (
            "by-name",
            argo,
            json!({"labels": {"app.kubernetes.io/instance": "other"}}),
            "the log has no Application other that lists the object",
        ),
        (
            "by-hub",
            argo,
            json!({"annotations": {"argocd.argoproj.io/tracking-id": "far:/ConfigMap:shop/by-hub"}}),
            "the log has no Application far; it may be in the cluster of Argo CD",
        ),
        (
            "by-kustomize",
            "kustomize-controller",
            json!({"labels": {"kustomize.toolkit.fluxcd.io/name": "a", "kustomize.toolkit.fluxcd.io/namespace": "b"}}),
            "kustomizations.kustomize.toolkit.fluxcd.io are not watched",
        ),
    ];
    for (name, manager, metadata, _) in &cases {
        let mut object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": "1"}});
        object["metadata"]["name"] = (*name).into();
        object["metadata"]["namespace"] = "shop".into();
        object["metadata"]["uid"] = format!("u-cm-{name}").into();
        object["metadata"]["creationTimestamp"] = "2026-11-20T10:02:13Z".into();
        object["metadata"]["managedFields"] =
            managed(&[(manager, "Update", "", "10:02:13", json!({"f:data": {"f:a": {}}}))]);
        story.put("10:02:13.4", "configmaps", &object).await;
    }
    let dir = story.end().await;
    for (name, _, _, expected) in &cases {
        let answer = run(dir.path(), &["why", &format!("cm/{name}"), "/data/a"]);
        assert!(answer.out.contains(expected), "{expected}: {answer:?}");
        assert!(!answer.out.contains("one of"), "{answer:?}");
    }
}
