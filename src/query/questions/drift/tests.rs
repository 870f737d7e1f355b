//! Scripted journals, as an API server with managedFields writes them, and the drifts that a question finds in them.

mod cluster;
mod random;

use serde_json::{Value, json};

use super::*;
use crate::query::drift::{How, Known, Written};
use cluster::Do::{self, *};

const ARGO: &str = "argocd-controller";
const FLUX: &str = "kustomize-controller";
const HELM: &str = "helm";

/// `kubectl-edit`, `(removal leaves no owner)`, with what is said of the time.
fn by(write: &Written) -> String {
    let names: Vec<&str> = write.writers.iter().map(|one| one.manager.as_str()).collect();
    let name = match (&write.actor, write.writers.is_empty()) {
        (Some(actor), true) => actor.sender.user.clone(),
        (Some(actor), false) => format!("{}/{}", names.join("+"), actor.sender.user),
        (None, true) => format!("({})", write.unnamed.as_deref().unwrap_or("-")),
        (None, false) => names.join("+"),
    };
    match write.known {
        Known::At => name,
        Known::Between => format!("{name} between"),
        Known::Gap => format!("{name} gap"),
        Known::Earlier => format!("{name} earlier"),
        Known::Later => format!("{name} later"),
    }
}

/// `replicas 3>0 kubectl-edit: Restored 12s argocd-controller`
fn spelled(drift: &Drift) -> String {
    let value = |json: &Option<Box<serde_json::value::RawValue>>| {
        json.as_ref().map_or_else(String::new, |json| json.get().trim_matches('"').to_owned())
    };
    let field = |field: &crate::query::drift::Field| {
        let mark = if field.redacted { " redacted" } else { "" };
        format!("{} {}>{}{mark}", field.name, value(&field.expected), value(&field.got))
    };
    let fields: Vec<String> = drift.fields.iter().map(field).collect();
    let fields = if fields.is_empty() { format!("{} gone", drift.name) } else { fields.join(", ") };
    let seconds = drift.millis / 1000;
    let end = match &drift.ended {
        None => format!("open {seconds}s"),
        Some(ended) => {
            let run = ended.provenance.as_ref().and_then(|it| it.candidates.first()?.run.as_ref());
            let run = run.map_or_else(String::new, |run| format!(" at {}", run.revision));
            format!("{:?} {seconds}s {}{run}", ended.how, by(&ended.write))
        }
    };
    let gaps = if drift.gaps > 0 { format!(" gaps {}", drift.gaps) } else { String::new() };
    format!("{fields} {}: {end}{gaps}", by(&drift.began))
}

/// A script, and the drifts that it makes.
type Case = (&'static str, Vec<(u32, Do)>, &'static [&'static str]);

fn fields(pairs: &[(&'static str, &'static str)]) -> Vec<(&'static str, &'static str)> {
    pairs.to_vec()
}

fn web() -> Vec<(&'static str, &'static str)> {
    fields(&[("replicas", "3"), ("image", "web:1"), ("team", "shop")])
}

fn sync(at: u32, replicas: &'static str) -> (u32, Do) {
    (at, Sync(ARGO, fields(&[("replicas", replicas), ("image", "web:1"), ("team", "shop")])))
}

fn flux(at: u32, replicas: &'static str) -> (u32, Do) {
    (at, Apply(FLUX, fields(&[("replicas", replicas), ("image", "web:1"), ("team", "shop")])))
}

fn application(ignore: Value) -> Value {
    json!({"apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "metadata": {"name": "store", "namespace": "argocd", "uid": "u-store"},
        "spec": {"ignoreDifferences": ignore}})
}

/// The same with a sync between two seconds.
fn synced(from: u32, to: u32, revision: &str) -> Value {
    let mut application = application(json!([]));
    application["status"]["operationState"] = json!({"phase": "Succeeded", "startedAt": cluster::stamp(from), "finishedAt": cluster::stamp(to),
        "operation": {"sync": {}}, "syncResult": {"revision": revision}});
    application
}

fn put(at: u32, source: &'static str, object: Value) -> (u32, Do) {
    (at, Put(source, object))
}

/// A HorizontalPodAutoscaler of the Deployment, and the kind that owns it.
fn scaler(owner: &str) -> (u32, Do) {
    let object = json!({"apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "keda-hpa-cart", "namespace": "shop", "uid": "u-hpa", "ownerReferences": [{"apiVersion": "keda.sh/v1alpha1", "kind": owner, "name": "cart", "uid": "u-so"}]},
        "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "cart"}, "minReplicas": 1}});
    put(5, "horizontalpodautoscalers", object)
}

async fn check(cases: Vec<Case>) {
    for (what, script, expected) in cases {
        let (found, _) = cluster::played(script, Drifting::default()).await;
        let found: Vec<String> = found.drifts.iter().map(spelled).collect();
        assert_eq!(found, expected, "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_foreign_value_is_a_drift_until_the_tool_has_its_own_again() {
    check(vec![
        (
            "a manual edit that self-heal restores within seconds, with its sync",
            vec![
                sync(10, "3"),
                (60, Edit("kubectl-edit", "replicas", "0")),
                put(62, "applications", synced(61, 63, "3f2c9ab")),
                sync(62, "3"),
            ],
            &["replicas 3>0 kubectl-edit: Restored 2s argocd-controller at 3f2c9ab"],
        ),
        (
            "an edit that stays",
            vec![sync(10, "3"), (60, Edit("kubectl-edit", "image", "web:debug"))],
            &["image web:1>web:debug kubectl-edit: open 3540s"],
        ),
        (
            "several fields of one write that are restored together are one drift, and others not",
            vec![
                sync(10, "3"),
                (60, EditAll("kubectl-edit", fields(&[("image", "x"), ("team", "y")]))),
                (70, EditAll("kubectl-edit", fields(&[("replicas", "1")]))),
                (80, Sync(ARGO, fields(&[("replicas", "1"), ("image", "web:1"), ("team", "shop")]))),
            ],
            &[
                "label team shop>y, image web:1>x kubectl-edit: Restored 20s argocd-controller",
                "replicas 3>1 kubectl-edit: Adopted 10s argocd-controller",
            ],
        ),
        (
            "two foreign writers one after the other",
            vec![
                sync(10, "3"),
                (60, Edit("kubectl-edit", "replicas", "0")),
                (90, Edit("lens", "replicas", "7")),
                sync(100, "3"),
            ],
            &["replicas 3>0 kubectl-edit: Overwritten 30s lens", "replicas 3>7 lens: Restored 10s argocd-controller"],
        ),
        (
            "somebody else restores it",
            vec![sync(10, "3"), (60, Edit("kubectl-edit", "replicas", "0")), (75, Edit("lens", "replicas", "3"))],
            &["replicas 3>0 kubectl-edit: Restored 15s lens"],
        ),
        (
            "a field that was removed",
            vec![sync(10, "3"), (60, Edit("kubectl-edit", "team", "")), sync(65, "3")],
            &["label team shop> (removal leaves no owner): Restored 5s argocd-controller"],
        ),
        (
            "a scale to 0 names nobody but in the audit log",
            vec![sync(10, "3"), (60, Scale("kubectl", "0")), (60, Actor("alice", "kubectl/v1.36.0")), sync(65, "3")],
            &["replicas 3>0 alice: Restored 5s argocd-controller"],
        ),
        (
            "a list that is replaced as a whole",
            vec![
                (10, Sync(ARGO, fields(&[("args", "[\"a\",\"b\"]")]))),
                (60, Edit("kubectl-edit", "args", "[\"a\",\"b\",\"c\"]")),
            ],
            &["spec.template.spec.containers[web].args [\"a\",\"b\"]>[\"a\",\"b\",\"c\"] kubectl-edit: open 3540s"],
        ),
    ])
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_tool_ends_a_drift_by_its_own_revision_too() {
    check(vec![
        (
            "a client-side apply adopts the value, which only its note says",
            vec![sync(10, "3"), (60, Edit("kubectl-edit", "replicas", "5")), sync(90, "5")],
            &["replicas 3>5 kubectl-edit: Adopted 30s argocd-controller"],
        ),
        (
            "a server-side apply adopts the value, which only managedFields say",
            vec![flux(10, "3"), (60, Edit("kubectl-edit", "replicas", "5")), flux(90, "5")],
            &["replicas 3>5 kubectl-edit: Adopted 30s kustomize-controller"],
        ),
        (
            "a third value",
            vec![flux(10, "3"), (60, Edit("kubectl-edit", "replicas", "5")), flux(90, "9")],
            &["replicas 3>5 kubectl-edit: Replaced 30s kustomize-controller"],
        ),
        (
            "a server-side apply without the field",
            vec![
                flux(10, "3"),
                (60, Edit("kubectl-edit", "replicas", "5")),
                (90, Apply(FLUX, fields(&[("image", "web:2"), ("team", "shop")]))),
            ],
            &["replicas 3>5 kubectl-edit: Released 30s kustomize-controller"],
        ),
        (
            "a client-side apply without the field",
            vec![
                sync(10, "3"),
                (60, Edit("kubectl-edit", "replicas", "5")),
                (90, Sync(ARGO, fields(&[("image", "web:2"), ("team", "shop")]))),
            ],
            &["replicas 3>5 kubectl-edit: Released 30s argocd-controller"],
        ),
        (
            "kubectl notes its own apply, which is no adoption",
            vec![
                sync(10, "3"),
                (
                    60,
                    Sync(
                        "kubectl-client-side-apply",
                        fields(&[("replicas", "5"), ("image", "web:1"), ("team", "shop")]),
                    ),
                ),
                (90, Edit(ARGO, "team", "other")),
            ],
            &["replicas 3>5 kubectl-client-side-apply: open 3540s"],
        ),
        (
            "Flux restores at its next reconciliation",
            vec![flux(10, "3"), (60, Edit("kubectl-edit", "team", "pay")), flux(600, "3")],
            &["label team shop>pay kubectl-edit: Restored 540s kustomize-controller"],
        ),
        (
            "Flux takes over what kubectl owns before it restores",
            vec![flux(10, "3"), (60, Edit("kubectl-edit", "team", "pay")), (600, TakeOver(FLUX)), flux(601, "3")],
            &["label team shop>pay kubectl-edit: Restored 541s kustomize-controller"],
        ),
        (
            "and before it sets a third value, all within a second",
            vec![flux(10, "3"), (10, Edit("kubectl-edit", "replicas", "5")), (10, TakeOver(FLUX)), flux(10, "9")],
            &["replicas 3>5 kubectl-edit: Replaced 0s kustomize-controller"],
        ),
        (
            "and stops there",
            vec![flux(10, "3"), (60, Edit("kubectl-edit", "replicas", "5")), (600, TakeOver(FLUX))],
            &["replicas 3>5 kubectl-edit: open 3540s"],
        ),
        (
            "Helm restores with an upgrade only",
            vec![
                (10, Update(HELM, web())),
                (60, Edit("kubectl-edit", "image", "web:debug")),
                (900, Update(HELM, web())),
            ],
            &["image web:1>web:debug kubectl-edit: Restored 840s helm"],
        ),
        (
            "a write of another tool",
            vec![sync(10, "3"), (60, Edit(FLUX, "replicas", "5"))],
            &["replicas 3>5 kustomize-controller: open 3540s"],
        ),
    ])
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_write_that_gitops_does_not_mind_is_no_drift() {
    let ignore = |rule: Value| put(5, "applications", application(json!([rule])));
    let of_deployments = |more: (&str, Value)| {
        let mut rule = json!({"group": "apps", "kind": "Deployment"});
        rule[more.0] = more.1;
        rule
    };
    let edit = || (60, Edit("kubectl-edit", "replicas", "5"));
    let drift = &["replicas 3>5 kubectl-edit: open 3540s"][..];
    check(vec![
        ("an autoscaler", vec![sync(10, "3"), (60, Scale("kube-controller-manager", "5"))], &[]),
        ("an autoscaler under its own name", vec![sync(10, "3"), (60, Edit("horizontal-pod-autoscaler", "replicas", "5"))], &[]),
        ("KEDA", vec![sync(10, "3"), (60, Edit("keda-operator", "replicas", "5"))], &[]),
        ("KEDA scales to 0, which names nobody", vec![scaler("ScaledObject"), sync(10, "3"), (60, Scale("keda-operator", "0"))], &[]),
        (
            "an autoscaler does not scale to 0",
            vec![scaler("Other"), sync(10, "3"), (60, Scale("kubectl", "0"))],
            &["replicas 3>0 (scale to 0 leaves no owner): open 3540s"],
        ),
        ("an autoscaler writes replicas and nothing else", vec![sync(10, "3"), (60, Edit("kube-controller-manager", "image", "x"))],
            &["image web:1>x kube-controller-manager: open 3540s"]),
        ("the same value", vec![sync(10, "3"), (60, Edit("kubectl-edit", "replicas", "3"))], &[]),
        ("the same value, owned by both", vec![flux(10, "3"), (60, Apply("kubectl", fields(&[("replicas", "3")])))], &[]),
        ("a field of its own", vec![flux(10, "3"), flux(60, "4"), flux(90, "5")], &[]),
        ("a field that the tool leaves to others", vec![(10, Sync(ARGO, fields(&[("image", "web:1")]))), edit()], &[]),
        ("a default of the API server", vec![sync(10, "3"), (60, Default("policy", "Always")), (70, Edit("kubectl-edit", "policy", "Never"))], &[]),
        ("a status", vec![sync(10, "3"), (60, Edit("kube-controller-manager", "ready", "2"))], &[]),
        ("a restart", vec![sync(10, "3"), (60, Edit("kubectl-rollout", "restarted", "now"))], &[]),
        ("a field of another manager", vec![sync(10, "3"), (60, Edit("lens", "env", "a")), (70, Edit("kubectl-edit", "env", "b"))], &[]),
        ("an ignored pointer", vec![ignore(of_deployments(("jsonPointers", json!(["/spec/replicas"])))), sync(10, "3"), edit()], &[]),
        ("an ignored path", vec![ignore(of_deployments(("jqPathExpressions", json!([".spec.replicas"])))), sync(10, "3"), edit()], &[]),
        ("an ignored manager", vec![ignore(of_deployments(("managedFieldsManagers", json!(["kubectl-edit"])))), sync(10, "3"), edit()], &[]),
        ("an ignored kind of any group", vec![ignore(json!({"group": "*", "kind": "*", "jsonPointers": ["/spec"]})), sync(10, "3"), edit()], &[]),
        ("another pointer", vec![ignore(of_deployments(("jsonPointers", json!(["/spec/replica"])))), sync(10, "3"), edit()], drift),
        ("another kind", vec![ignore(json!({"group": "apps", "kind": "StatefulSet", "jsonPointers": ["/spec/replicas"]})), sync(10, "3"), edit()], drift),
        ("another name", vec![ignore(of_deployments(("name", json!("other")))), sync(10, "3"), edit()], drift),
        (
            "another name with the pointer",
            vec![
                ignore(json!({"group": "apps", "kind": "Deployment", "name": "other", "jsonPointers": ["/spec/replicas"]})),
                sync(10, "3"),
                edit(),
            ],
            drift,
        ),
        (
            "another namespace",
            vec![
                ignore(json!({"group": "apps", "kind": "Deployment", "namespace": "pay", "jsonPointers": ["/spec/replicas"]})),
                sync(10, "3"),
                edit(),
            ],
            drift,
        ),
        (
            "ignored only later",
            vec![
                sync(10, "3"),
                edit(),
                put(70, "applications", application(json!([of_deployments(("jsonPointers", json!(["/spec/replicas"])))]))),
            ],
            drift,
        ),
    ])
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_deletion_is_a_drift_of_the_whole_object() {
    let deleting = || {
        let mut application = application(json!([]));
        application["metadata"]["deletionTimestamp"] = cluster::stamp(55).into();
        application
    };
    let idle = || put(5, "applications", synced(1, 2, "old"));
    check(vec![
        (
            "by a person whom the audit log names, and the tool creates it again",
            vec![sync(10, "3"), (60, Delete), (60, Actor("alice", "kubectl/v1.36.0")), sync(66, "3")],
            &["cart gone alice: Restored 6s argocd-controller"],
        ),
        (
            "by the tool, as the audit log says",
            vec![
                sync(10, "3"),
                (60, Delete),
                (60, Actor("system:serviceaccount:argocd:argocd-application-controller", "argocd/v3")),
            ],
            &[],
        ),
        (
            "while no sync was under way",
            vec![idle(), sync(10, "3"), (60, Delete)],
            &["cart gone (deletion): open 3540s"],
        ),
        (
            "while a sync was under way, which may have pruned it",
            vec![sync(10, "3"), (60, Delete), put(64, "applications", synced(58, 63, "b2"))],
            &[],
        ),
        (
            "the same, by a sender who is redacted",
            vec![
                sync(10, "3"),
                (60, Delete),
                (60, Actor("hmac:3f2c9ab0d1e2f3a4b5c6d7e8f9a0b1c2", "")),
                put(64, "applications", synced(58, 63, "b2")),
            ],
            &[],
        ),
        (
            "and a sync follows that creates it again",
            vec![
                idle(),
                sync(10, "3"),
                (60, Delete),
                (61, Wait),
                put(61, "applications", synced(61, 63, "b2")),
                sync(62, "3"),
            ],
            &["cart gone (deletion): Restored 2s argocd-controller at b2"],
        ),
        ("with its Application", vec![idle(), sync(10, "3"), put(55, "applications", deleting()), (60, Delete)], &[]),
        ("of an Application that the log has not", vec![sync(10, "3"), (60, Delete)], &[]),
        (
            "and somebody else creates it again",
            vec![idle(), sync(10, "3"), (60, Delete), (90, Edit("kubectl-create", "replicas", "1"))],
            &["cart gone (deletion): Recreated 30s kubectl-create"],
        ),
        (
            "of what differed already",
            vec![idle(), sync(10, "3"), (50, Edit("kubectl-edit", "replicas", "0")), (60, Delete)],
            &["replicas 3>0 kubectl-edit: Deleted 10s (deletion)", "cart gone (deletion): open 3540s"],
        ),
    ])
    .await;
}

#[tokio::test(start_paused = true)]
async fn what_the_log_does_not_know_is_said() {
    check(vec![
        (
            "it began in a GAP",
            vec![flux(10, "3"), (50, Blind), (60, Edit("kubectl-edit", "replicas", "5")), (90, Relist), flux(120, "3")],
            &["replicas 3>5 kubectl-edit gap: Restored 110s kustomize-controller"],
        ),
        (
            "the tool may have given the field up in the GAP",
            vec![
                flux(10, "3"),
                (50, Blind),
                (60, Apply(FLUX, fields(&[("image", "web:1"), ("team", "shop")]))),
                (70, Edit("kubectl-edit", "replicas", "5")),
                (90, Relist),
            ],
            &[],
        ),
        (
            "it ended in a GAP",
            vec![flux(10, "3"), (40, Edit("kubectl-edit", "replicas", "5")), (50, Blind), flux(60, "3"), (90, Relist)],
            &["replicas 3>5 kubectl-edit: Restored 20s kustomize-controller gap gaps 1"],
        ),
        (
            "a GAP lies within",
            vec![flux(10, "3"), (40, Edit("kubectl-edit", "replicas", "5")), (50, Blind), (90, Relist), flux(120, "3")],
            &["replicas 3>5 kubectl-edit: Restored 80s kustomize-controller gaps 1"],
        ),
        (
            "the tool removes a field in a GAP, or somebody else does",
            vec![flux(10, "3"), (50, Blind), (60, Apply(FLUX, fields(&[("replicas", "3")]))), (90, Relist)],
            &[],
        ),
        (
            "it is older than the log, and the note of the tool has its own value",
            vec![(5, Blind), sync(10, "3"), (20, Edit("kubectl-edit", "replicas", "5")), (30, Relist), sync(60, "3")],
            &["replicas 3>5 kubectl-edit earlier: Restored 30s argocd-controller"],
        ),
        (
            "it is older than the log, and nothing has the value of the tool",
            vec![(5, Blind), flux(10, "3"), (20, Edit("kubectl-edit", "replicas", "5")), (30, Relist), flux(60, "3")],
            &[],
        ),
        (
            "the end is not recorded",
            vec![
                (1, Ignore("managed-fields")),
                flux(10, "3"),
                (60, Edit("kubectl-edit", "replicas", "5")),
                flux(90, "5"),
            ],
            &["replicas 3>5 kubectl-edit: Adopted 3540s kustomize-controller later"],
        ),
        (
            "a redacted value, and that of the tool after it",
            vec![
                (10, Apply(FLUX, fields(&[("token", "a"), ("team", "shop")]))),
                (60, Edit("kubectl-edit", "token", "b")),
                (90, Apply(FLUX, fields(&[("token", "a"), ("team", "shop")]))),
            ],
            &["spec.token ***>*** redacted kubectl-edit: Rewritten 30s kustomize-controller"],
        ),
        (
            "a removal on an object of Helm, which may be that of an upgrade",
            vec![(10, Update(HELM, web())), (60, Edit("kubectl-edit", "team", ""))],
            &[],
        ),
        (
            "managedFields were cleared before",
            vec![sync(10, "3"), (20, Clear), (60, Edit("kubectl-edit", "replicas", "5"))],
            &["replicas 3>5 kubectl-edit: open 3540s"],
        ),
    ])
    .await;
}

/// Objects, the Application behind each, conditions and times choose drifts and do not change them.
#[tokio::test(start_paused = true)]
async fn a_question_chooses_among_drifts() {
    let script = || {
        vec![
            put(5, "applications", application(json!([]))),
            sync(10, "3"),
            (60, Edit("kubectl-edit", "replicas", "0")),
            (60, Actor("alice", "kubectl/v1.36.0")),
            (100, Edit("lens", "image", "web:2")),
            (120, Sync(ARGO, fields(&[("replicas", "3"), ("image", "web:2"), ("team", "shop")]))),
            (200, Edit("kubectl-edit", "team", "pay")),
        ]
    };
    let replicas = "replicas 3>0 kubectl-edit/alice: Restored 60s argocd-controller";
    let image = "image web:1>web:2 lens: Adopted 20s argocd-controller";
    let team = "label team shop>pay kubectl-edit: open 3400s";
    let only = |only: Filters| Drifting { select: Select { only, ..Select::default() }, open: false };
    let time = |seconds| Some(cluster::time(seconds));
    for (what, question, expected) in [
        ("all", Drifting::default(), &[replicas, image, team][..]),
        ("open", Drifting { open: true, ..Drifting::default() }, &[team]),
        ("by", only(Filters { by: vec!["lens".to_owned()], ..Filters::default() }), &[image]),
        ("by a user", only(Filters { by: vec!["alice".to_owned()], ..Filters::default() }), &[replicas]),
        (
            "where the sender",
            only(Filters { filter: Some("actor.user == \"alice\"".to_owned()), ..Filters::default() }),
            &[replicas],
        ),
        ("touched", only(Filters { touched: Some("/spec/replicas".to_owned()), ..Filters::default() }), &[replicas]),
        ("since", only(Filters { since: time(130), ..Filters::default() }), &[team]),
        (
            "since, in the middle of one",
            only(Filters { since: time(110), ..Filters::default() }),
            &[replicas, image, team],
        ),
        ("until", only(Filters { until: time(70), ..Filters::default() }), &[replicas]),
        ("another namespace", only(Filters { namespaces: vec!["argocd".to_owned()], ..Filters::default() }), &[]),
        (
            "an object",
            Drifting {
                select: Select { objects: vec!["deployments/cart".to_owned()], ..Select::default() },
                open: true,
            },
            &[team],
        ),
    ] {
        let (found, _) = cluster::played(script(), question).await;
        let drivers: Vec<String> = found
            .drifts
            .iter()
            .flat_map(|one| &one.driven_by)
            .map(|one| format!("{}/{}", one.namespace, one.name))
            .collect();
        assert!(drivers.iter().all(|driver| driver == "argocd/store"), "{what}: {drivers:?}");
        assert_eq!(found.drifts.iter().map(spelled).collect::<Vec<_>>(), expected, "{what}");
    }
}

/// A label leads to the Application that lists the object, and what is left out is counted and said.
#[tokio::test(start_paused = true)]
async fn two_applications_are_told_apart_and_what_is_left_out_is_said() {
    let lists = |name: &str, object: &str| {
        let mut one = application(json!([]));
        one["metadata"]["name"] = name.into();
        one["metadata"]["uid"] = format!("u-{name}").into();
        one["status"] =
            json!({"resources": [{"group": "apps", "kind": "Deployment", "namespace": "shop", "name": object}]});
        one
    };
    let script = vec![
        put(3, "applications", lists("first", "other")),
        put(4, "applications", lists("second", "cart")),
        (5, Label("second")),
        sync(10, "3"),
        (60, Scale("kube-controller-manager", "5")),
        (70, Edit("kubectl-edit", "image", "x")),
    ];
    let (found, notes) = cluster::played(script, Drifting::default()).await;
    assert_eq!(found.drifts.iter().map(spelled).collect::<Vec<_>>(), ["image web:1>x kubectl-edit: open 3530s"]);
    assert_eq!((found.drifts[0].driven_by[0].name.as_str(), found.left_out.autoscaled), ("second", 1));
    assert!(notes.contains(&"note: left out: 1 write of autoscalers".to_owned()), "{notes:?}");

    let rule = json!({"group": "apps", "kind": "Deployment", "jqPathExpressions": [".spec.template.spec.containers[] | select(.name == \"web\")"]});
    let script = vec![
        put(5, "applications", application(json!([rule]))),
        sync(10, "3"),
        (70, Edit("kubectl-edit", "image", "x")),
    ];
    let (found, notes) = cluster::played(script, Drifting::default()).await;
    assert_eq!(found.drifts.len(), 1);
    assert!(notes.iter().any(|note| note.contains("drift does not read") && note.contains("select(")), "{notes:?}");

    let (found, notes) =
        cluster::played(vec![sync(10, "3"), (70, Edit("kubectl-edit", "image", "x"))], Drifting::default()).await;
    assert_eq!(found.drifts[0].driven_by[0].name, "store");
    assert!(notes.iter().any(|note| note.contains("ignoreDifferences of Application store is not known")), "{notes:?}");
    assert!(How::Restored < How::Recreated);
}
