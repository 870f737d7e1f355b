//! Who writes, and where a patch has what was written.

use super::*;

/// The line of a change that these wrote: manager and subresource.
fn by(line: &str, writers: &[(&str, Option<&str>)]) -> String {
    let mut line: Value = serde_json::from_str(line).unwrap();
    let manager = |(name, subresource): &(&str, Option<&str>)| {
        let mut manager = json!({"manager": name, "operation": "Update", "by": "moved"});
        if let Some(subresource) = subresource {
            manager["subresource"] = (*subresource).into();
        }
        manager
    };
    line["change"]["managers"] = writers.iter().map(manager).collect();
    line.to_string()
}

#[test]
fn an_autoscaler_is_nobody_who_scales_to_0() {
    let line = changed(&deployment(), "/spec/replicas", 0.into());
    let (scale, status) = (Some("scale"), Some("status"));
    for (writers, expected) in [
        // kubectl scale, kubectl edit, a client, an operator, the tool that delivers, nobody.
        (&[("kubectl", scale)][..], true),
        (&[("kubectl-edit", None)], true),
        (&[("Mozilla", scale)], true),
        (&[("some-operator", None)], true),
        (&[("argocd-controller", None)], true),
        (&[("kube-controller-manager", None)], true),
        (&[], true),
        (&[("keda-operator", scale)], false),
        (&[("keda-operator", None)], false),
        (&[("keda", scale)], false),
        (&[("horizontal-pod-autoscaler", None)], false),
        (&[("kube-controller-manager", scale)], false),
        (&[("cluster-autoscaler", scale)], false),
        (&[("autoscaler", None)], false),
        // With others.
        (&[("keda-operator", scale), ("kube-controller-manager", status)], false),
        (&[("keda-operator", scale), ("horizontal-pod-autoscaler", None)], false),
        (&[("keda-operator", scale), ("kubectl", scale)], true),
        (&[("kube-controller-manager", status)], true),
    ] {
        let is = if expected { ["scaled-to-0"].as_slice() } else { &[] };
        assert_eq!(selected(&by(&line, writers)), is, "{writers:?}");
    }
}

#[test]
fn what_an_operator_owns_is_scaled_to_0_and_a_replica_set_of_a_rollout_is_not() {
    for (api_version, kind, owner, expected) in [
        ("apps/v1", "Deployment", Some(("example.com/v1", "Shop")), true),
        ("apps/v1", "StatefulSet", Some(("example.com/v1", "Postgres")), true),
        ("argoproj.io/v1alpha1", "Rollout", Some(("example.com/v1", "Shop")), true),
        ("example.com/v1", "ReplicaSet", Some(("example.com/v1", "Shop")), true),
        ("apps/v1", "ReplicaSet", None, true),
        ("apps/v1", "ReplicaSet", Some(("apps/v1", "Deployment")), false),
        ("apps/v1", "ReplicaSet", Some(("argoproj.io/v1alpha1", "Rollout")), false),
    ] {
        let object = with_kind(deployment(), api_version, kind);
        let object = owner.map_or(object.clone(), |(api_version, owner)| controlled(object, api_version, owner, "x"));
        let is = if expected { ["scaled-to-0"].as_slice() } else { &[] };
        assert_eq!(selected(&changed(&object, "/spec/replicas", 0.into())), is, "{api_version} {kind} of {owner:?}");
    }
}

const CONTAINERS: &str = "/spec/template/spec/containers";

/// A container that the tool delivers.
fn container(name: &str, image: &str) -> Value {
    json!({"name": name, "image": image, "args": ["serve"]})
}

/// The Deployment with these containers, of which Argo CD owns images and arguments of `web` and `proxy`, and tolerations. `hand`:
/// somebody has written to it by kubectl.
fn of_argo_cd(containers: &Value, tolerations: &Value, hand: bool) -> Value {
    let own = json!({"f:image": {}, "f:args": {}});
    let list = |names: &[&str]| -> serde_json::Map<String, Value> {
        names.iter().map(|name| (format!("k:{{\"name\":\"{name}\"}}"), own.clone())).collect()
    };
    let fields = json!({"f:spec": {"f:template": {"f:spec": {
        "f:containers": list(&["web", "proxy"]), "f:tolerations": {},
    }}}});
    let mut object = deployment();
    object["spec"]["template"]["spec"] = json!({"containers": containers, "tolerations": tolerations});
    let mut managers = vec![("argocd-controller", "2026-11-21T09:00:00Z", fields)];
    if hand {
        managers.push(("kubectl-edit", "2026-11-21T10:15:00Z", json!({"f:spec": {"f:paused": {}}})));
    }
    owned(object, &managers)
}

#[test]
fn an_edit_is_found_wherever_the_patch_has_it() {
    let (web, proxy, side) = (container("web", "web:1"), container("proxy", "proxy:1"), container("side", "side:1"));
    let with = |key: &str, value: Value| {
        let mut changed = web.clone();
        changed[key] = value;
        changed
    };
    let (newer, tty) = (with("image", "web:2".into()), with("tty", true.into()));
    let newer_side = container("side", "side:2");
    let tolerated = json!([{"key": "a"}]);
    let all = json!([web, proxy]);
    for (what, before, after, expected) in [
        ("replaced", all.clone(), json!([newer, proxy]), true),
        ("replaced behind one that is put before it", all.clone(), json!([side, newer, proxy]), true),
        ("replaced behind two", all.clone(), json!([side, container("more", "x"), newer, proxy]), true),
        ("replaced after one that is gone", json!([side, web, proxy]), json!([newer, proxy]), true),
        ("replaced in the other order", all.clone(), json!([proxy, newer]), true),
        ("removed", all.clone(), json!([proxy]), true),
        ("removed behind one that is put before it", all.clone(), json!([side, proxy]), true),
        ("an argument more", all.clone(), json!([with("args", json!(["serve", "-v"])), proxy]), true),
        ("an argument before", all.clone(), json!([with("args", json!(["-v", "serve"])), proxy]), true),
        ("no argument", all.clone(), json!([with("args", json!([])), proxy]), true),
        (
            "an argument more behind one put before",
            all.clone(),
            json!([side, with("args", json!(["serve", "-v"])), proxy]),
            true,
        ),
        // Nothing that the tool owned.
        ("one more", all.clone(), json!([web, proxy, side]), false),
        ("one more before it", all.clone(), json!([side, web, proxy]), false),
        ("another field", all.clone(), json!([tty, proxy]), false),
        ("of another container", json!([side, web, proxy]), json!([newer_side, web, proxy]), false),
        (
            "of another container, which one is put before",
            json!([side, web, proxy]),
            json!([container("a", "a"), newer_side, web, proxy]),
            false,
        ),
        ("another one gone", json!([side, web, proxy]), json!([web, proxy]), false),
        (
            "another one gone and one changed",
            json!([container("a", "a"), side, web, proxy]),
            json!([newer_side, web, proxy]),
            false,
        ),
    ] {
        let line = modified(&of_argo_cd(&before, &tolerated, false), &of_argo_cd(&after, &tolerated, true));
        assert_eq!(selected(&line).contains(&"gitops-edited-by-hand"), expected, "{what}: {line}");
        assert!(line.contains(CONTAINERS), "{what}: {line}");
    }
    // A list that is owned as a whole.
    for (what, after, expected) in [
        ("one more", json!([{"key": "a"}, {"key": "b"}]), true),
        ("one before", json!([{"key": "b"}, {"key": "a"}]), true),
        ("none", json!([]), true),
        ("as it was", tolerated.clone(), false),
    ] {
        let line = modified(&of_argo_cd(&all, &tolerated, false), &of_argo_cd(&all, &after, true));
        assert_eq!(selected(&line), if expected { &["gitops-edited-by-hand"][..] } else { &[] }, "{what}: {line}");
    }
}
