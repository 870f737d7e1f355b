use serde_json::json;

use super::*;

fn manager(name: &str, subresource: &str) -> Manager {
    Manager {
        manager: name.into(),
        operation: "Update".into(),
        subresource: Some(subresource).filter(|text| !text.is_empty()).map(str::to_owned),
        time: Some("2026-11-20T14:02:13Z".into()),
        by: Some(By::Moved),
    }
}

fn write<'w>(managers: &'w [Manager], path: &'w str, object: &'w Value) -> Write<'w> {
    let time = bounds(managers, Set::At, "2026-11-20T14:02:13.5Z");
    Write {
        group: "apps",
        kind: "Deployment",
        namespace: "shop",
        name: "web",
        path,
        managers,
        unnamed: None,
        sender: None,
        time,
        object,
    }
}

fn at(time: &str) -> Timestamp {
    format!("2026-11-20T{time}Z").parse().unwrap()
}

/// In few words: the tool and who drives it, or the reason why nobody does.
fn claimed(managers: &[Manager], path: &str, metadata: &Value) -> String {
    let object = json!({"metadata": metadata});
    match claim(&write(managers, path, &object)) {
        Claim::Ends(ends) => ends.reason.into_owned(),
        Claim::Tool(tool, drivers) => {
            let drivers = drivers.into_iter().map(|one| {
                let has_to_list = if one.has_to_list { "?" } else { "" };
                format!(" {}/{}{has_to_list}", one.namespace.unwrap_or("*".into()), one.name)
            });
            format!("{tool:?}{}", drivers.collect::<String>())
        }
    }
}

/// Every manager that leads further, with each way to mark an object, and the marks that lead astray.
#[test]
fn a_write_says_which_tool_made_it_and_for_whom() {
    const IMAGE: &str = "/spec/template/spec/containers/0/image";
    let tracked = |id: &str| json!({"annotations": {TRACKING: id}});
    let both = json!({"annotations": {TRACKING: "shop:apps/Deployment:shop/web"}, "labels": {INSTANCE[1]: "other"}});
    let kustomize = json!({"labels": {"kustomize.toolkit.fluxcd.io/name": "apps", "kustomize.toolkit.fluxcd.io/namespace": "flux-system"}});
    let flux_helm =
        json!({"labels": {"helm.toolkit.fluxcd.io/name": "web", "helm.toolkit.fluxcd.io/namespace": "shop"}});
    let helm = json!({"annotations": {"meta.helm.sh/release-name": "web", "meta.helm.sh/release-namespace": "pay"}});
    let own = json!({"annotations": {"meta.helm.sh/release-name": "web"}});
    let none = json!({});
    for (name, subresource, path, metadata, expected) in [
        ("argocd-controller", "", IMAGE, &tracked("shop:apps/Deployment:shop/web"), "ArgoCd */shop"),
        ("argocd-application-controller", "", IMAGE, &tracked("shop:apps/Deployment:shop/web"), "ArgoCd */shop"),
        ("argocd-controller", "", IMAGE, &tracked("team-a_shop:apps/Deployment:shop/web"), "ArgoCd team-a/shop"),
        // Copied from another object: to another name, kind, group or namespace, or cut.
        ("argocd-controller", "", IMAGE, &tracked("shop:apps/Deployment:shop/api"), "untracked"),
        ("argocd-controller", "", IMAGE, &tracked("shop:apps/StatefulSet:shop/web"), "untracked"),
        ("argocd-controller", "", IMAGE, &tracked("shop:/Deployment:shop/web"), "untracked"),
        ("argocd-controller", "", IMAGE, &tracked("shop:apps/Deployment:pay/web"), "untracked"),
        ("argocd-controller", "", IMAGE, &tracked("shop:apps/Deployment"), "untracked"),
        ("argocd-controller", "", IMAGE, &tracked("shop"), "untracked"),
        ("argocd-controller", "", IMAGE, &tracked(":apps/Deployment:shop/web"), "untracked"),
        // The annotation goes before the label, which others use as well.
        ("argocd-controller", "", IMAGE, &both, "ArgoCd */shop"),
        ("argocd-controller", "", IMAGE, &json!({"labels": {INSTANCE[1]: "shop"}}), "ArgoCd */shop?"),
        ("argocd-controller", "", IMAGE, &json!({"labels": {INSTANCE[0]: "a", INSTANCE[1]: "b"}}), "ArgoCd */a? */b?"),
        ("argocd-controller", "", IMAGE, &none, "untracked"),
        ("argocd-server", "", IMAGE, &both, "person"),
        ("kustomize-controller", "", IMAGE, &kustomize, "Kustomization flux-system/apps"),
        ("kustomize-controller", "", IMAGE, &flux_helm, "untracked"),
        ("helm-controller", "", IMAGE, &flux_helm, "HelmRelease shop/web"),
        ("helm-controller", "", IMAGE, &kustomize, "untracked"),
        ("helm", "", IMAGE, &helm, "Helm pay/web"),
        ("helm", "", IMAGE, &own, "Helm shop/web"),
        ("helm", "", IMAGE, &none, "untracked"),
        ("kube-controller-manager", "scale", "/spec/replicas", &both, "Autoscaler"),
        ("kube-controller-manager", "", "/spec/replicas", &both, "program"),
        ("kube-controller-manager", "status", "/status/replicas", &both, "program"),
        // Whoever is marked as tracked may be edited by hand.
        ("kubectl-edit", "", IMAGE, &both, "person"),
        ("kubectl", "scale", "/spec/replicas", &both, "person"),
        ("node-fetch", "", IMAGE, &both, "program"),
        ("", "", IMAGE, &both, "program"),
    ] {
        assert_eq!(claimed(&[manager(name, subresource)], path, metadata), expected, "{name} {metadata}");
    }
    assert_eq!(claimed(&[], "/spec/replicas", &both), "nobody");
    // An autoscaler that managedFields do not name is named by the audit log, and only for what it sets.
    for (sender, path, expected) in [
        (AUTOSCALER, "/spec/replicas", "Autoscaler"),
        (AUTOSCALER, IMAGE, "nobody"),
        ("alice", "/spec/replicas", "nobody"),
    ] {
        let object = json!({"metadata": both});
        let claim = claim(&Write { sender: Some(sender), ..write(&[], path, &object) });
        let found = match &claim {
            Claim::Tool(tool, _) => format!("{tool:?}"),
            Claim::Ends(ends) => ends.reason.clone().into_owned(),
        };
        assert_eq!(found, expected, "{sender} {path}");
    }
    assert_eq!(claimed(&[manager("argocd-controller", ""), manager("kubectl", "")], IMAGE, &both), "several");
    // One manager that wrote twice is one.
    assert_eq!(
        claimed(&[manager("argocd-controller", ""), manager("argocd-controller", "scale")], IMAGE, &both),
        "ArgoCd */shop"
    );
}

#[test]
fn a_cluster_wide_object_is_tracked_in_any_namespace() {
    let object =
        json!({"metadata": {"annotations": {TRACKING: "shop:rbac.authorization.k8s.io/ClusterRole:argocd/web"}}});
    let managers = [manager("argocd-controller", "")];
    let write = Write {
        group: "rbac.authorization.k8s.io",
        kind: "ClusterRole",
        namespace: "",
        ..write(&managers, "/rules", &object)
    };
    assert!(matches!(claim(&write), Claim::Tool(Tool::ArgoCd, _)));
}

/// A write is as old as its stamp says, if it moved for it; a field that was found has no time.
#[test]
fn a_write_lies_between_two_times() {
    let moved = manager("a", "");
    let owner = Manager { by: Some(By::Owner), ..moved.clone() };
    let made = Manager { by: None, ..moved.clone() };
    let spelled = |managers: &[Manager], set, time| {
        let bounds = bounds(managers, set, time);
        bounds.map(|(earliest, latest)| format!("{} {}", &earliest.to_string()[14..], &latest.to_string()[14..]))
    };
    let now = "2026-11-20T14:02:15.25Z";
    for (managers, set, expected) in [
        (&[moved.clone()][..], Set::At, Some("02:13Z 02:13.999999Z")),
        (&[made], Set::At, Some("02:13Z 02:13.999999Z")),
        // Its own time is of an earlier write, unless both are of one second.
        (std::slice::from_ref(&owner), Set::At, None),
        (
            &[Manager { time: Some("2026-11-20T14:02:14Z".into()), ..owner.clone() }],
            Set::At,
            Some("02:14Z 02:14.999999Z"),
        ),
        (&[Manager { time: None, ..owner.clone() }], Set::At, None),
        (&[Manager { time: None, ..moved.clone() }], Set::At, Some("02:13.25Z 02:16.249999Z")),
        (std::slice::from_ref(&moved), Set::By, None),
        (std::slice::from_ref(&moved), Set::After, None),
        (&[moved.clone(), owner.clone()], Set::At, None),
        (&[], Set::At, None),
    ] {
        assert_eq!(spelled(managers, set, now).as_deref(), expected, "{managers:?} {set:?}");
    }
}

fn versions(objects: &[(&str, Value)]) -> Vec<Version> {
    let numbered = objects.iter().zip(1..);
    numbered.map(|((time, object), seq)| Version { seq, time: at(time), object: object.clone() }).collect()
}

/// `revision from-to by`, of each run.
fn spelled(runs: &[Run]) -> Vec<String> {
    let clock = |time: Timestamp| time.to_string()[11..].trim_end_matches('Z').to_owned();
    let one = |run: &Run| {
        let to = run.to.map_or_else(|| "…".to_owned(), clock);
        let by = if run.automated { "itself" } else { &run.started_by };
        let origin =
            if run.origin_revision.is_empty() { String::new() } else { format!(" of {}", run.origin_revision) };
        format!("{}{origin} {}-{to} {by}", run.revision, clock(run.from)).trim_end().to_owned()
    };
    runs.iter().map(one).collect()
}

fn operation(started: &str, finished: &str, revision: &str, by: Value) -> Value {
    let mut state =
        json!({"phase": "Running", "startedAt": at(started).to_string(), "operation": {"sync": {}, "initiatedBy": by}});
    if !revision.is_empty() {
        state["syncResult"] = json!({"revision": revision});
    }
    if !finished.is_empty() {
        state["phase"] = "Succeeded".into();
        state["finishedAt"] = at(finished).to_string().into();
    }
    json!({"status": {"operationState": state}})
}

#[test]
fn an_application_says_its_operations() {
    let alice = json!({"username": "alice"});
    let mut dry = operation("14:10:00", "14:10:05", "f00", alice.clone());
    dry["status"]["operationState"]["operation"]["sync"]["dryRun"] = true.into();
    let mut several = operation("14:20:00", "14:20:05", "", json!({"automated": true}));
    several["status"]["operationState"]["syncResult"] = json!({"revision": "", "revisions": ["a1", "1.2.3"]});
    let history = json!({"status": {"history": [
        {"revision": "old", "deployStartedAt": at("13:00:00").to_string(), "deployedAt": at("13:00:09").to_string(), "initiatedBy": {"username": "bob"}},
        // Older versions of Argo CD do not say when it began.
        {"revision": "older", "deployedAt": at("12:00:09").to_string()},
        {"revision": "a1", "deployStartedAt": at("14:02:11").to_string(), "deployedAt": at("14:02:19").to_string()},
    ]}});
    let mut both = operation("14:02:11", "14:02:19", "a1", alice.clone());
    both["status"]["history"] = history["status"]["history"].clone();
    for (objects, expected) in [
        (vec![("14:00:00", json!({}))], vec![]),
        (vec![("14:02:12", operation("14:02:11", "", "", alice.clone()))], vec![" 14:02:11-… alice"]),
        (
            vec![
                ("14:02:12", operation("14:02:11", "", "", alice.clone())),
                ("14:02:13", operation("14:02:11", "", "a1", alice.clone())),
                ("14:02:19", operation("14:02:11", "14:02:19", "a1", alice.clone())),
                ("14:03:00", operation("14:02:11", "14:02:19", "a1", alice.clone())),
            ],
            vec!["a1 14:02:11-14:02:19 alice"],
        ),
        // The end was not seen, and the next began.
        (
            vec![
                ("14:02:11", operation("14:02:11", "", "", alice.clone())),
                ("14:02:12", operation("14:02:11", "", "a1", alice.clone())),
                ("14:05:00", operation("14:04:00", "14:04:09", "b2", json!({"automated": true}))),
            ],
            vec!["a1 14:02:11-14:04:00 alice", "b2 14:04:00-14:04:09 itself"],
        ),
        // Another revision on the way: either is possible.
        (
            vec![
                ("14:02:11", operation("14:02:11", "", "", alice.clone())),
                ("14:02:12", operation("14:02:11", "", "a1", alice.clone())),
                ("14:02:19", operation("14:02:11", "14:02:19", "b2", alice.clone())),
            ],
            vec!["a1 14:02:11-… alice", "b2 14:02:11-14:02:19 alice"],
        ),
        // It was deleted on the way.
        (
            vec![
                ("14:02:11", operation("14:02:11", "", "", alice.clone())),
                ("14:02:12", operation("14:02:11", "", "a1", alice.clone())),
                ("14:02:15", Value::Null),
            ],
            vec!["a1 14:02:11-14:02:15 alice"],
        ),
        (vec![("14:10:06", dry)], vec![]),
        (vec![("14:20:06", several)], vec!["a1, 1.2.3 14:20:00-14:20:05 itself"]),
        (vec![("14:30:00", both)], vec!["old 13:00:00-13:00:09 bob", "a1 14:02:11-14:02:19 alice"]),
    ] {
        let found = spelled(&runs(Tool::ArgoCd, &versions(&objects)));
        assert_eq!(found, expected.iter().map(|one| one.trim_end()).collect::<Vec<_>>(), "{objects:?}");
    }
}

/// The controller merges each state of an operation into that of the one before, so that things of that one stay.
#[test]
fn what_an_operation_left_behind_is_not_of_the_next() {
    let user = |name: &str| json!({"username": name});
    let asked = |mut object: Value, operation: Value| {
        object["operation"] = operation;
        object
    };
    let mixed = json!({"username": "alice", "automated": true});
    let past = |mut object: Value, all: &[(i64, &str, &str, &str, Value)]| {
        let one = |(id, revision, from, to, by): &(i64, &str, &str, &str, Value)| json!({"id": id, "revision": revision, "deployStartedAt": at(from).to_string(), "deployedAt": at(to).to_string(), "initiatedBy": by});
        object["status"]["history"] = all.iter().map(one).collect::<Vec<_>>().into();
        object
    };
    let first = ("14:02:19", operation("14:02:11", "14:02:19", "a1", user("alice")));
    let itself = json!({"initiatedBy": {"automated": true}, "sync": {}});
    let dry = |mut object: Value| {
        object["status"]["operationState"]["operation"]["sync"]["dryRun"] = true.into();
        object
    };
    for (name, objects, expected) in [
        (
            "the result, until there is a new one",
            vec![first.clone(), ("14:05:00", asked(operation("14:05:00", "", "a1", mixed.clone()), itself.clone()))],
            vec!["a1 14:02:11-14:02:19 alice", " 14:05:00-… itself"],
        ),
        (
            "a new result on the way, and the end",
            vec![
                first.clone(),
                ("14:05:00", asked(operation("14:05:00", "", "a1", mixed.clone()), itself.clone())),
                ("14:05:01", asked(operation("14:05:00", "", "b2", mixed.clone()), itself.clone())),
                ("14:05:03", operation("14:05:00", "14:05:02", "b2", mixed.clone())),
            ],
            vec!["a1 14:02:11-14:02:19 alice", "b2 14:05:00-14:05:02 itself"],
        ),
        (
            "the same revision again",
            vec![
                first.clone(),
                ("14:05:00", asked(operation("14:05:00", "", "a1", mixed.clone()), itself.clone())),
                ("14:05:03", operation("14:05:00", "14:05:02", "a1", mixed.clone())),
            ],
            vec!["a1 14:02:11-14:02:19 alice", "a1 14:05:00-14:05:02 itself"],
        ),
        (
            "nothing is known of what was before, so the result may be of that",
            vec![("14:05:00", operation("14:05:00", "", "a1", user("bob")))],
            vec![" 14:05:00-… bob"],
        ),
        (
            "a user and the tool itself are two operations",
            vec![("14:05:03", operation("14:05:00", "14:05:02", "a1", mixed.clone()))],
            vec!["a1 14:05:00-14:05:02"],
        ),
        (
            "the history says who it was",
            vec![(
                "14:05:03",
                past(
                    operation("14:05:00", "14:05:02", "a1", mixed.clone()),
                    &[(0, "a1", "14:02:11", "14:02:19", user("alice")), (1, "a1", "14:05:00", "14:05:02", user("bob"))],
                ),
            )],
            vec!["a1 14:02:11-14:02:19 alice", "a1 14:05:00-14:05:02 bob"],
        ),
        (
            "two operations of one second",
            vec![
                (
                    "14:05:00.5",
                    past(
                        operation("14:05:00", "14:05:00", "a1", user("bob")),
                        &[(0, "a1", "14:05:00", "14:05:00", user("bob"))],
                    ),
                ),
                ("14:05:00.9", asked(operation("14:05:00", "", "a1", mixed.clone()), itself.clone())),
                (
                    "14:05:03",
                    past(
                        operation("14:05:00", "14:05:02", "a1", mixed.clone()),
                        &[
                            (0, "a1", "14:05:00", "14:05:00", user("bob")),
                            (1, "a1", "14:05:00", "14:05:02", json!({"automated": true})),
                        ],
                    ),
                ),
            ],
            vec!["a1 14:05:00-14:05:00 bob", "a1 14:05:00-14:05:02 itself"],
        ),
        (
            "that it was a dry run",
            vec![
                (
                    "14:04:00",
                    asked(
                        dry(operation("14:04:00", "", "", user("bob"))),
                        json!({"initiatedBy": {"username": "bob"}, "sync": {"dryRun": true}}),
                    ),
                ),
                ("14:04:02", dry(operation("14:04:00", "14:04:02", "a1", user("bob")))),
                (
                    "14:05:00",
                    asked(
                        dry(operation("14:05:00", "", "a1", user("bob"))),
                        json!({"initiatedBy": {"username": "bob"}, "sync": {}}),
                    ),
                ),
                ("14:05:03", dry(operation("14:05:00", "14:05:02", "b2", user("bob")))),
            ],
            vec!["b2 14:05:00-14:05:02 bob"],
        ),
    ] {
        let found = spelled(&runs(Tool::ArgoCd, &versions(&objects)));
        assert_eq!(found, expected, "{name}: {objects:?}");
    }
}

fn reconciled(history: &[(&str, &str, &str)], under_way: &str) -> Value {
    let one = |(revision, last, took): &(&str, &str, &str)| {
        json!({"digest": "sha256:1", "firstReconciled": "2026-01-01T00:00:00Z", "lastReconciled": at(last).to_string(),
            "lastReconciledDuration": took, "lastReconciledStatus": "ReconciliationSucceeded", "totalReconciliations": 1,
            "metadata": {"revision": revision, "originRevision": format!("{revision}-origin")}})
    };
    let mut status = json!({"history": history.iter().map(one).collect::<Vec<_>>(), "conditions": []});
    if let Some((from, revision)) = under_way.split_once(' ') {
        let message = format!("Detecting drift for revision {revision} with a timeout of 5m0s");
        status["conditions"] = json!([{"type": "Ready", "status": "Unknown"},
            {"type": "Reconciling", "status": "True", "message": message, "lastTransitionTime": at(from).to_string()}]);
    }
    json!({"status": status})
}

#[test]
fn a_kustomization_says_its_reconciliations() {
    for (objects, expected) in [
        (
            vec![("14:02:19", reconciled(&[("a1", "14:02:19", "8.5s")], ""))],
            vec!["a1 of a1-origin 14:02:10.5-14:02:19"],
        ),
        (
            vec![("14:02:19", reconciled(&[("a1", "14:02:19", "1m2.5s")], ""))],
            vec!["a1 of a1-origin 14:01:16.5-14:02:19"],
        ),
        // The same again and again, as a look for drift is.
        (
            vec![
                ("14:02:19", reconciled(&[("a1", "14:02:19", "2s")], "")),
                ("14:02:20", reconciled(&[("a1", "14:02:19", "2s")], "")),
                ("14:12:19", reconciled(&[("a1", "14:12:19", "350ms")], "")),
            ],
            vec!["a1 of a1-origin 14:02:17-14:02:19", "a1 of a1-origin 14:12:18.65-14:12:19"],
        ),
        // Under way, and then over.
        (vec![("14:02:12", reconciled(&[], "14:02:11 a1"))], vec!["a1 14:02:11-…"]),
        (
            vec![
                ("14:02:12", reconciled(&[], "14:02:11 a1")),
                ("14:02:19", reconciled(&[("a1", "14:02:19", "8s")], "")),
            ],
            vec!["a1 of a1-origin 14:02:11-14:02:19"],
        ),
        // Some failures are in no history.
        (
            vec![
                ("14:02:12", reconciled(&[("a0", "13:00:00", "8s")], "14:02:11 a1")),
                ("14:02:30", reconciled(&[("a0", "13:00:00", "8s")], "")),
            ],
            vec!["a0 of a0-origin 12:59:52-13:00:00", "a1 14:02:11-14:02:30"],
        ),
    ] {
        assert_eq!(spelled(&runs(Tool::Kustomization, &versions(&objects))), expected, "{objects:?}");
    }
    // Before there was a history: what was tried or applied before or after.
    let old = |applied: &str, tried: &str| json!({"status": {"lastAppliedRevision": applied, "lastAttemptedRevision": tried, "lastAppliedOriginRevision": "o"}});
    let objects = [
        ("14:00:00", old("a", "a")),
        ("14:10:00", old("a", "a")),
        ("14:20:00", old("a", "b")),
        ("14:30:00", old("b", "b")),
    ];
    assert_eq!(
        spelled(&runs(Tool::Kustomization, &versions(&objects))),
        ["a of o 14:00:00-14:30:00", "b of o 14:10:00-…"]
    );
}

#[test]
fn releases_say_when_they_were_made() {
    let release = |history: Value| json!({"status": {"history": history}});
    let one = |version: u64, chart: &str, deployed: &str, status: &str| json!({"version": version, "name": "web", "chartName": "web", "chartVersion": chart, "status": status, "lastDeployed": at(deployed).to_string()});
    let objects = versions(&[
        ("14:00:09", release(json!([one(1, "1.0.0", "14:00:00", "deployed")]))),
        (
            "14:10:01",
            release(json!([one(2, "1.1.0", "14:10:00", "pending-upgrade"), one(1, "1.0.0", "14:00:00", "deployed")])),
        ),
        (
            "14:10:08",
            release(json!([one(2, "1.1.0", "14:10:00", "deployed"), one(1, "1.0.0", "14:00:00", "superseded")])),
        ),
    ]);
    assert_eq!(
        spelled(&runs(Tool::HelmRelease, &objects)),
        ["web@1.0.0 14:00:00-14:00:09", "web@1.1.0 14:10:00-14:10:08"]
    );
    let secret = |version: &str, created: &str, status: &str, modified: &str| {
        let modified = at(modified).as_second().to_string();
        json!({"metadata": {"name": format!("sh.helm.release.v1.web.v{version}"), "creationTimestamp": at(created).to_string(),
            "labels": {"owner": "helm", "name": "web", "version": version, "status": status, "modifiedAt": modified}}})
    };
    let objects = versions(&[
        ("14:00:00", secret("1", "14:00:00", "pending-install", "14:00:00")),
        ("14:00:07", secret("1", "14:00:00", "deployed", "14:00:07")),
        ("14:10:06", secret("1", "14:00:00", "superseded", "14:10:06")),
        ("14:10:00", secret("2", "14:10:00", "pending-upgrade", "14:10:00")),
    ]);
    assert_eq!(spelled(&runs(Tool::Helm, &objects)), ["revision 1 14:00:00-14:00:07", "revision 2 14:10:00-…"]);
}

/// A write at 14:02:13, and runs around it: one, none, and those that are too close together.
#[test]
fn a_write_is_of_the_one_run_that_it_can_be_of() {
    let managers = [manager("argocd-controller", "")];
    let object = json!({});
    let known = |name: &str, times: &[(&str, &str)]| {
        let run = |(from, to): &(&str, &str)| operation(from, to, &from[3..], json!({}));
        let begin = ("14:00:00", json!({}));
        let objects: Vec<(&str, Value)> =
            std::iter::once(begin).chain(times.iter().map(|times| ("15:00:00", run(times)))).collect();
        Known { namespace: "argocd".into(), name: name.into(), runs: runs(Tool::ArgoCd, &versions(&objects)) }
    };
    for (drivers, certainty, reason, revisions) in [
        (vec![known("shop", &[("14:02:11", "14:02:19")])], Certainty::Known, "commit", vec!["02:11"]),
        (vec![known("shop", &[("14:02:11", "")])], Certainty::Known, "commit", vec!["02:11"]),
        (vec![known("shop", &[("14:02:13", "14:02:13")])], Certainty::Known, "commit", vec!["02:13"]),
        (vec![known("shop", &[("14:02:11", "14:02:12")])], Certainty::Ambiguous, "clocks", vec!["02:11"]),
        (vec![known("shop", &[("14:02:14", "14:02:19")])], Certainty::Ambiguous, "clocks", vec!["02:14"]),
        (vec![known("shop", &[("14:02:01", "14:02:10")])], Certainty::Driver, "no-run", vec![]),
        (vec![known("shop", &[("14:02:15", "14:02:19")])], Certainty::Driver, "no-run", vec![]),
        (vec![known("shop", &[])], Certainty::Driver, "no-run", vec![]),
        (
            vec![known("shop", &[("14:02:01", "14:02:12"), ("14:02:13", "14:02:19")])],
            Certainty::Ambiguous,
            "several",
            vec!["02:01", "02:13"],
        ),
        (
            vec![known("shop", &[("14:02:01", "14:02:11"), ("14:02:13", "14:02:19")])],
            Certainty::Known,
            "commit",
            vec!["02:13"],
        ),
        (
            vec![known("a", &[("14:02:11", "14:02:19")]), known("b", &[("14:02:12", "14:02:20")])],
            Certainty::Ambiguous,
            "several",
            vec!["02:11", "02:12"],
        ),
        (
            vec![known("a", &[("14:02:11", "14:02:19")]), known("b", &[("14:03:12", "14:03:20")])],
            Certainty::Known,
            "commit",
            vec!["02:11"],
        ),
        (vec![known("a", &[]), known("b", &[])], Certainty::Ambiguous, "no-run", vec![]),
    ] {
        let found = settle(Tool::ArgoCd, &drivers, &write(&managers, "/spec", &object));
        let named: Vec<&str> = found.candidates.iter().filter_map(|one| Some(&*one.run.as_ref()?.revision)).collect();
        assert_eq!((found.certainty, &*found.ends.reason, named), (certainty, reason, revisions), "{drivers:?}");
    }
    let found = Write { time: None, ..write(&managers, "/spec", &object) };
    let found = settle(Tool::ArgoCd, &[known("shop", &[("14:02:11", "14:02:19")])], &found);
    assert_eq!((found.certainty, &*found.ends.reason), (Certainty::Driver, "old"));
}

/// A label is everybody's: it counts where the Application lists the object, and nowhere else.
#[test]
fn an_application_lists_its_objects() {
    let managers = [manager("argocd-controller", "")];
    let object = json!({});
    let write = write(&managers, "/spec", &object);
    let one = |group: &str, kind: &str, namespace: &str, name: &str| json!({"group": group, "version": "v1", "kind": kind, "namespace": namespace, "name": name});
    for (resource, expected) in [
        (one("apps", "Deployment", "shop", "web"), true),
        (one("apps", "Deployment", "pay", "web"), false),
        (one("apps", "StatefulSet", "shop", "web"), false),
        (one("", "Deployment", "shop", "web"), false),
        (one("apps", "Deployment", "shop", "api"), false),
    ] {
        for status in
            [json!({"resources": [resource]}), json!({"operationState": {"syncResult": {"resources": [resource]}}})]
        {
            assert_eq!(lists(&json!({"status": status}), &write), expected, "{status}");
        }
    }
    assert!(!lists(&json!({"status": {"resources": "?"}}), &write));
}
