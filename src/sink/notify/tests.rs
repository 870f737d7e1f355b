//! Each ready-made rule with what it selects and what it does not; owners, keys and commands.

mod bounds;
mod writers;

use serde_json::{Value, json};

use super::*;
use crate::core::change::compare;
use crate::core::spelling::Text;

fn notify(rules: &[&str]) -> Notify {
    let rules = rules.iter().map(|rule| Rule::read(rule).unwrap()).collect();
    Notify { rules, group: Duration::from_secs(600), wait: Duration::from_secs(10), digest: 10, updates: false }
}

/// The line of an entry, of the object as it is after it.
fn line(op: &str, more: &Value, object: &Value) -> String {
    let api_version = object["apiVersion"].as_str().unwrap();
    let kind = object["kind"].as_str().unwrap();
    let mut entry = json!({
        "v": 1, "seq": 7, "epoch": "e", "id": "u.2.X", "time": "2026-11-21T10:15:00.123456Z", "type": op,
        "cluster": {"name": "prod", "uid": "c1"}, "apiVersion": api_version, "kind": kind,
        "resource": format!("{}s", kind.to_lowercase()), "name": object["metadata"]["name"], "object": object,
    });
    if let Some(namespace) = object["metadata"]["namespace"].as_str() {
        entry["namespace"] = namespace.into();
    }
    let members = more.as_object().unwrap().iter().map(|(key, value)| (key.clone(), value.clone()));
    entry.as_object_mut().unwrap().extend(members);
    entry.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    entry.to_string()
}

fn modified(before: &Value, after: &Value) -> String {
    let change = compare(before.to_string().as_bytes(), after.to_string().as_bytes(), &[], &[]).unwrap();
    let change: Value = serde_json::from_str(&change.json).unwrap();
    line("MODIFIED", &json!({"evidence": "watched", "change": change}), after)
}

/// A line of an object that a pointer's value has been changed in; `null` takes it away.
fn edited(object: &Value, pointer: &str, value: Value) -> Value {
    let mut after = object.clone();
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    let parent = after.pointer_mut(parent).unwrap();
    match (parent, value) {
        (Value::Array(list), value) => list[key.parse::<usize>().unwrap()] = value,
        (parent, Value::Null) => drop(parent.as_object_mut().unwrap().remove(key)),
        (parent, value) => parent[key] = value,
    }
    after
}

fn changed(object: &Value, pointer: &str, value: Value) -> String {
    modified(object, &edited(object, pointer, value))
}

/// The names of the ready-made rules that select a line.
fn selected(line: &str) -> Vec<&'static str> {
    let entry = Entry::parse(line.as_bytes()).unwrap();
    let case = Case::new(&entry, line.as_bytes());
    ready::ALL.iter().filter(|ready| (ready.selects)(&case)).map(|ready| ready.name).collect()
}

fn deployment() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "shop", "labels": {"app": "web"}},
        "spec": {"replicas": 3, "template": {"spec": {
            "containers": [{"name": "web", "image": "web:1"}, {"name": "proxy", "image": "proxy:1"}],
            "initContainers": [{"name": "init", "image": "init:1"}],
        }}},
        "status": {"replicas": 3},
    })
}

fn with_kind(mut object: Value, api_version: &str, kind: &str) -> Value {
    object["apiVersion"] = api_version.into();
    object["kind"] = kind.into();
    object
}

fn controlled(mut object: Value, api_version: &str, kind: &str, name: &str) -> Value {
    object["metadata"]["ownerReferences"] =
        json!([{"apiVersion": api_version, "kind": kind, "name": name, "uid": "o", "controller": true}]);
    object
}

#[test]
fn an_image_changes_where_a_container_has_another() {
    let web = deployment();
    let container = |place: &str| format!("/spec/template/spec/{place}");
    let mut cron = json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "c", "namespace": "shop"}});
    cron["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"] = json!([{"name": "c", "image": "c:1"}]);
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "shop"},
        "spec": {"containers": [{"name": "p", "image": "p:1"}]}});
    let reordered = json!([{"name": "proxy", "image": "proxy:1"}, {"name": "web", "image": "web:1"}]);
    let more =
        json!([{"name": "web", "image": "web:1"}, {"name": "proxy", "image": "proxy:1"}, {"name": "x", "image": "x"}]);
    let is = ["image-changed"].as_slice();
    for (line, expected) in [
        (changed(&web, &container("containers/0/image"), "web:2".into()), is),
        (changed(&web, &container("containers/1/image"), "proxy:2".into()), is),
        (changed(&web, &container("initContainers/0/image"), "init:2".into()), is),
        (changed(&web, &container("containers/0"), json!({"name": "web", "image": "web:2", "tty": true})), is),
        (
            changed(
                &with_kind(web.clone(), "argoproj.io/v1alpha1", "Rollout"),
                &container("containers/0/image"),
                "web:2".into(),
            ),
            is,
        ),
        (changed(&cron, "/spec/jobTemplate/spec/template/spec/containers/0/image", "c:2".into()), is),
        (changed(&pod, "/spec/containers/0/image", "p:2".into()), is),
        (changed(&web, &container("containers"), reordered), &[]),
        (changed(&web, &container("containers"), more), &[]),
        (changed(&web, &container("containers/0/tty"), true.into()), &[]),
        (changed(&web, "/status/image", "x:2".into()), &[]),
        (changed(&web, "/metadata/labels/image", "x:2".into()), &[]),
        (line("ADDED", &json!({"evidence": "watched"}), &web), &[]),
        (line("DELETED", &json!({"evidence": "watched"}), &web), &[]),
    ] {
        assert_eq!(selected(&line), expected, "{line}");
    }
}

#[test]
fn something_is_scaled_to_0_that_nobody_else_scales() {
    let web = deployment();
    let at_0 = edited(&web, "/spec/replicas", 0.into());
    let default = edited(&web, "/spec/replicas", Value::Null);
    let set = controlled(with_kind(web.clone(), "apps/v1", "ReplicaSet"), "apps/v1", "Deployment", "web");
    let is = ["scaled-to-0"].as_slice();
    for (line, expected) in [
        (modified(&web, &at_0), is),
        (modified(&default, &at_0), is),
        (changed(&with_kind(web.clone(), "apps/v1", "StatefulSet"), "/spec/replicas", 0.into()), is),
        (modified(&at_0, &web), &[]),
        (changed(&web, "/spec/replicas", 1.into()), &[]),
        (changed(&at_0, "/metadata/labels/app", "x".into()), &[]),
        (changed(&web, "/status/replicas", 0.into()), &[]),
        (changed(&set, "/spec/replicas", 0.into()), &[]),
        (line("ADDED", &json!({"evidence": "watched"}), &at_0), &[]),
    ] {
        assert_eq!(selected(&line), expected, "{line}");
    }
}

fn role(rules: &Value) -> Value {
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "r"}, "rules": rules})
}

#[test]
fn rbac_is_wider_where_somebody_may_do_more() {
    let rule = |verbs: &[&str], resources: &[&str]| json!({"apiGroups": [""], "resources": resources, "verbs": verbs});
    let read = json!([rule(&["get", "list"], &["pods", "secrets"])]);
    let named = |names: &[&str]| json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"], "resourceNames": names}]);
    let urls = |urls: &[&str]| json!([{"nonResourceURLs": urls, "verbs": ["get"]}]);
    let all = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
    let from = |before: &Value, after: &Value| modified(&role(before), &role(after));
    let subject = |name: &str| json!({"kind": "User", "name": name});
    let binding = |subjects: Value| {
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": "b", "namespace": "shop"}, "roleRef": {"name": "r"}, "subjects": subjects})
    };
    let both = json!([subject("a"), subject("b")]);
    let is = ["rbac-widened"].as_slice();
    for (line, expected) in [
        (from(&read, &json!([rule(&["get", "list", "delete"], &["pods", "secrets"])])), is),
        (from(&read, &json!([rule(&["get", "list"], &["pods", "secrets", "nodes"])])), is),
        (from(&read, &all), is),
        (from(&json!([]), &read), is),
        (from(&named(&["a"]), &named(&["a", "b"])), is),
        (from(&named(&["a"]), &named(&[])), is),
        (from(&urls(&["/metrics"]), &urls(&["/metrics", "/logs"])), is),
        (from(&json!([rule(&["get"], &["*/scale"])]), &json!([rule(&["get"], &["pods"])])), is),
        (line("ADDED", &json!({"evidence": "watched"}), &role(&read)), is),
        (line("ADDED", &json!({"evidence": "inferred"}), &binding(both.clone())), is),
        (modified(&binding(json!([subject("a")])), &binding(both.clone())), is),
        // The same with more words, or less.
        (from(&read, &json!([rule(&["get"], &["pods", "secrets"]), rule(&["list"], &["secrets", "pods"])])), &[]),
        (from(&read, &json!([rule(&["get"], &["pods"])])), &[]),
        (from(&all, &read), &[]),
        (from(&all, &json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}, read[0]])), &[]),
        (from(&named(&[]), &named(&["a"])), &[]),
        (from(&urls(&["/logs/*"]), &urls(&["/logs/*", "/logs/x"])), &[]),
        (from(&json!([rule(&["get"], &["*/scale"])]), &json!([rule(&["get"], &["*/scale", "x/scale"])])), &[]),
        (modified(&binding(both.clone()), &binding(json!([subject("b")]))), &[]),
        (changed(&role(&read), "/metadata/labels", json!({"a": "b"})), &[]),
        (line("ADDED", &json!({"evidence": "listed"}), &role(&read)), &[]),
        (line("DELETED", &json!({"evidence": "watched"}), &role(&read)), &[]),
        (changed(&with_kind(role(&read), "example.com/v1", "ClusterRole"), "/rules", all.clone()), &[]),
    ] {
        assert_eq!(selected(&line), expected, "{line}");
    }
}

/// The object as this manager owns some fields of it, by an earlier write and by another one.
fn owned(mut object: Value, managers: &[(&str, &str, Value)]) -> Value {
    object["metadata"]["managedFields"] = managers
        .iter()
        .map(|(manager, time, fields)| {
            json!({"manager": manager, "operation": "Update", "apiVersion": "apps/v1", "fieldsType": "FieldsV1",
                "time": time, "fieldsV1": fields})
        })
        .collect();
    object
}

#[test]
fn a_field_of_a_delivery_tool_is_edited_by_hand() {
    const THEN: &str = "2026-11-21T09:00:00Z";
    const NOW: &str = "2026-11-21T10:15:00Z";
    let images = |names: &[&str]| {
        let list = names.iter().map(|name| (format!("k:{{\"name\":\"{name}\"}}"), json!({"f:image": {}})));
        json!({"f:spec": {"f:template": {"f:spec": {"f:containers": list.collect::<serde_json::Map<_, _>>()}}}})
    };
    let tool = |tool: &str| owned(deployment(), &[(tool, THEN, images(&["web", "proxy"]))]);
    let image = "/spec/template/spec/containers/0/image";
    let by = |tool: &str, hand: &str, object: Value| {
        owned(object, &[(tool, THEN, images(&["proxy"])), (hand, NOW, images(&["web"]))])
    };
    let write =
        |name: &str, hand: &str| modified(&tool(name), &by(name, hand, edited(&deployment(), image, "web:2".into())));
    let is = ["image-changed", "gitops-edited-by-hand"].as_slice();
    let only = ["image-changed"].as_slice();
    for name in
        ["argocd-controller", "argocd-application-controller", "kustomize-controller", "helm-controller", "helm"]
    {
        for hand in ["kubectl", "kubectl-edit", "kubectl-set", "k9s", "Lens", "Mozilla"] {
            assert_eq!(selected(&write(name, hand)), is, "{name} {hand}");
        }
    }
    let labels = json!({"f:metadata": {"f:labels": {"f:team": {}}}});
    let label = edited(&deployment(), "/metadata/labels/team", "a".into());
    let beside = owned(label, &[("helm", THEN, images(&["web", "proxy"])), ("kubectl-label", NOW, labels)]);
    let own = owned(edited(&deployment(), image, "web:2".into()), &[("helm", NOW, images(&["web", "proxy"]))]);
    let status = json!({"f:status": {"f:replicas": {}}});
    let state = edited(&deployment(), "/status/replicas", 2.into());
    let state = owned(state, &[("helm", THEN, images(&["web", "proxy"])), ("kubectl", NOW, status)]);
    for (line, expected) in [
        // A controller, the tool itself, a field of nobody, a status, an object without a tool.
        (write("argocd-controller", "some-operator"), only),
        (write("argocd-controller", "horizontal-pod-autoscaler"), only),
        (write("kubectl-client-side-apply", "kubectl-edit"), only),
        (modified(&tool("helm"), &own), only),
        (modified(&tool("helm"), &beside), &[]),
        (modified(&tool("helm"), &state), &[]),
    ] {
        assert_eq!(selected(&line), expected, "{line}");
    }
}

#[test]
fn a_person_deletes_and_a_program_does_not() {
    let actor = |user: &str, more: Value| {
        let mut actor = json!({"user": user, "verb": "delete", "certainty": "deleted"});
        actor.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        line("ACTOR", &json!({"object": null, "actor": actor, "of": {"seq": 6, "id": "u.2.DELETED"}}), &deployment())
    };
    let is = ["deleted-by-a-person"].as_slice();
    for (line, expected) in [
        (actor("alice@example.com", json!({})), is),
        (actor("system:admin", json!({})), is),
        (actor("kubernetes-admin", json!({"verb": "deletecollection"})), is),
        (actor("system:serviceaccount:ci:bot", json!({"impersonated_by": "alice@example.com"})), is),
        (actor("alice@example.com", json!({"impersonated_by": "system:serviceaccount:cattle-system:rancher"})), is),
        (actor("system:node:n1", json!({"impersonated_by": "system:serviceaccount:ci:bot"})), &[]),
        // A digest may stand for the garbage collector as well.
        (actor(&format!("hmac:{}", "0a".repeat(16)), json!({})), &[]),
        (
            actor(
                &format!("hmac:{}", "0a".repeat(16)),
                json!({"impersonated_by": format!("hmac:{}", "1b".repeat(16))}),
            ),
            &[],
        ),
        (actor("hmac:alice", json!({})), is),
        (actor("system:serviceaccount:kube-system:generic-garbage-collector", json!({})), &[]),
        (actor("system:node:n1", json!({})), &[]),
        (actor("", json!({})), &[]),
        (actor("alice@example.com", json!({"verb": "patch"})), &[]),
        (actor("alice@example.com", json!({"verb": "delete", "subresource": "x"})), &[]),
        (line("DELETED", &json!({"evidence": "watched"}), &deployment()), &[]),
    ] {
        assert_eq!(selected(&line), expected, "{line}");
    }
}

#[test]
fn a_secret_is_rotated_where_its_data_change() {
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "db", "namespace": "shop"},
        "type": "Opaque", "data": {"password": "hmac:1"}});
    let release = edited(&secret, "/type", "helm.sh/release.v1".into());
    let is = ["secret-rotated"].as_slice();
    for (line, expected) in [
        (changed(&secret, "/data/password", "hmac:2".into()), is),
        (changed(&secret, "/data/other", "hmac:2".into()), is),
        (changed(&secret, "/metadata/labels", json!({"a": "b"})), &[]),
        (changed(&release, "/data/password", "hmac:2".into()), &[]),
        (changed(&with_kind(secret.clone(), "v1", "ConfigMap"), "/data/password", "hmac:2".into()), &[]),
        (line("ADDED", &json!({"evidence": "watched"}), &secret), &[]),
        (line("DELETED", &json!({"evidence": "watched"}), &secret), &[]),
    ] {
        assert_eq!(selected(&line), expected, "{line}");
    }
}

#[test]
fn a_pod_loops_where_a_container_begins_to_wait_for_its_next_start() {
    let waiting = |reason: &str| json!({"waiting": {"reason": reason}});
    let running = json!({"running": {}});
    let pod = |states: &[&Value]| {
        let statuses: Vec<Value> =
            states.iter().enumerate().map(|(at, state)| json!({"name": format!("c{at}"), "state": state})).collect();
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "shop"},
            "status": {"containerStatuses": statuses}})
    };
    let looping = waiting("CrashLoopBackOff");
    let mut init = pod(&[&running]);
    init["status"]["initContainerStatuses"] = json!([{"name": "i", "state": looping}]);
    let is = ["crash-loop"].as_slice();
    for (line, expected) in [
        (modified(&pod(&[&running]), &pod(&[&looping])), is),
        (modified(&pod(&[&looping, &running]), &pod(&[&looping, &looping])), is),
        (modified(&pod(&[&running]), &init), is),
        (line("ADDED", &json!({"evidence": "watched"}), &pod(&[&looping])), is),
        (modified(&pod(&[&looping]), &pod(&[&running])), &[]),
        (changed(&pod(&[&looping]), "/metadata/labels", json!({"a": "b"})), &[]),
        (modified(&pod(&[&running]), &pod(&[&waiting("ImagePullBackOff")])), &[]),
        (line("ADDED", &json!({"evidence": "listed"}), &pod(&[&looping])), &[]),
        (line("DELETED", &json!({"evidence": "watched"}), &pod(&[&looping])), &[]),
    ] {
        assert_eq!(selected(&line), expected, "{line}");
    }
}

#[test]
fn a_gap_is_one_and_nothing_else() {
    let gap = json!({"object": null, "name": null, "gap": {"why": "expired", "to": "57"}});
    assert_eq!(selected(&line("GAP", &gap, &deployment())), ["gap"]);
    let unreadable = json!({"evidence": "watched", "gap": {"why": "unreadable"}});
    assert_eq!(selected(&line("DELETED", &unreadable, &deployment())), [""; 0]);
}

#[test]
fn an_entry_is_of_the_first_rule_that_selects_it() {
    let line = changed(&deployment(), "/spec/template/spec/containers/0/image", "web:2".into());
    let rule = |rules: &[&str]| notify(rules).alone(line.as_bytes()).unwrap().map(|incident| incident.rule);
    let own = r#"deployments: kind == "Deployment""#;
    assert_eq!(rule(&["gap", own, "image-changed"]).as_deref(), Some("deployments"));
    assert_eq!(rule(&["image-changed", own]).as_deref(), Some("image-changed"));
    // An expression without an answer selects nothing.
    assert_eq!(rule(&["own: object.spec.nothing > 3"]), None);
    assert!(notify(&["gap"]).select(b"{}").is_err());
}

#[test]
fn a_wrong_rule_says_which_there_are() {
    for (text, found, near) in [
        (
            "image-chnged",
            "no ready-made rule \"image-chnged\", and no name before an expression",
            Some("image-changed"),
        ),
        (
            "image changed",
            "no ready-made rule \"image changed\", and no name before an expression",
            Some("image-changed"),
        ),
        ("kind == 'Pod'", "no ready-made rule \"kind == 'Pod'\", and no name before an expression", None),
        ("gap: true", "\"gap\", which is the name of a ready-made rule, before an expression", None),
        ("own: kindd == 'Pod'", "an entry has no \"kindd\", at character 1 of \"kindd == 'Pod'\"", Some("kind")),
    ] {
        let wrong = Rule::read(text).unwrap_err();
        assert_eq!((wrong.found.as_str(), wrong.nearest.as_deref()), (found, near), "{text}");
    }
    for ready in &ready::ALL {
        assert!(Rule::EXPECTED.contains(&format!("\"{}\"", ready.name)), "{}", ready.name);
        assert_eq!(Rule::read(ready.name).unwrap().to_string(), ready.name);
    }
    let own = "own: type == \"DELETED\"";
    assert_eq!(Rule::read(own).unwrap().to_string(), own);
}

#[test]
fn an_incident_is_of_the_controller_at_the_top() {
    let labelled = |label: &str, object: Value| edited(&object, "/metadata/labels", json!({label: "5d4f"}));
    let pod = |kind: &str, api_version: &str, name: &str| {
        controlled(with_kind(deployment(), "v1", "Pod"), api_version, kind, name)
    };
    let dated = |minute: i64, late: i64| {
        let created = Timestamp::from_second((minute + late) * 60 + 5).unwrap().to_string();
        edited(&pod("Job", "batch/v1", &format!("backup-{minute}")), "/metadata/creationTimestamp", created.into())
    };
    let node = edited(&with_kind(deployment(), "v1", "Node"), "/metadata/namespace", Value::Null);
    for (object, expected, title) in [
        (deployment(), "Deployment.apps/shop/web", "Deployment shop/web"),
        (
            labelled("pod-template-hash", pod("ReplicaSet", "apps/v1", "web-5d4f")),
            "Deployment.apps/shop/web",
            "Deployment shop/web",
        ),
        (
            labelled("rollouts-pod-template-hash", pod("ReplicaSet", "apps/v1", "web-5d4f")),
            "Rollout.argoproj.io/shop/web",
            "Rollout shop/web",
        ),
        (pod("ReplicaSet", "apps/v1", "web-5d4f"), "ReplicaSet.apps/shop/web-5d4f", "ReplicaSet shop/web-5d4f"),
        (
            labelled("pod-template-hash", pod("ReplicaSet", "apps/v1", "other")),
            "ReplicaSet.apps/shop/other",
            "ReplicaSet shop/other",
        ),
        (pod("StatefulSet", "apps/v1", "db"), "StatefulSet.apps/shop/db", "StatefulSet shop/db"),
        (pod("Node", "v1", "n1"), "Pod/shop/web", "Pod shop/web"),
        (dated(29_500_000, 0), "CronJob.batch/shop/backup", "CronJob shop/backup"),
        (dated(29_500_000, 90), "CronJob.batch/shop/backup", "CronJob shop/backup"),
        (dated(20_261_121, 9_000_000), "Job.batch/shop/backup-20261121", "Job shop/backup-20261121"),
        (node, "Node//web", "Node web"),
    ] {
        let line = line("ADDED", &json!({"evidence": "watched"}), &object);
        let found = Object::of(&Entry::parse(line.as_bytes()).unwrap(), Some(&object));
        assert_eq!((found.to_string().as_str(), found.title().as_str()), (expected, title));
    }
}

#[test]
fn a_key_is_short_and_a_command_shows_the_entry() {
    let alone = |line: &str| notify(&["gap", "all: true"]).alone(line.as_bytes()).unwrap().unwrap();
    let named = |name: &str| edited(&deployment(), "/metadata/name", name.into());
    let of = |name: &str, more: Value| alone(&line("MODIFIED", &more, &named(name)));
    let web = of("web", json!({"evidence": "watched"}));
    assert_eq!(web.key, "c1/all/Deployment.apps/shop/web");
    assert_eq!(web.log, "decklog log deployments.apps/web -n shop --since 2026-11-21T10:15:00Z");
    let earlier = of("web", json!({"happened": "2026-11-21T10:14:59Z"}));
    assert!(earlier.log.ends_with("--since 2026-11-21T10:14:59Z"), "{}", earlier.log);
    let odd = of("it's $(x)", json!({}));
    assert!(odd.log.starts_with(r"decklog log 'deployments.apps/it'\''s $(x)' -n shop"), "{}", odd.log);
    let gap = json!({"object": null, "name": null, "gap": {"why": "expired", "to": "57"}});
    let gap = alone(&line("GAP", &gap, &deployment()));
    assert_eq!(
        (gap.log.as_str(), gap.title.as_str()),
        ("decklog show 7", "Deployment in shop: changes may be missing")
    );
    let (long, other) = (of(&"é".repeat(300), json!({})).key, of(&("é".repeat(299) + "f"), json!({})).key);
    assert!(long.len() <= KEY_BYTES && other.len() <= KEY_BYTES && long != other, "{long} {other}");
}
