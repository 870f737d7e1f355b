//! What the API server serves: the built-in resources, and those that CRDs define.

use serde_json::Value;

use crate::core::model::Resource;

/// A resource in one of its served versions.
#[derive(Clone, Debug, Hash)]
pub(super) struct Served {
    /// As discovery names it.
    pub(super) resource: Resource,
    pub(super) verbs: Vec<&'static str>,
    pub(super) subresources: &'static [&'static str],
    pub(super) categories: Vec<String>,
    /// Where its objects live: `pods`, `deployments.apps`. Two resources may share one (Events).
    pub(super) storage: String,
    /// Defined by a CRD: objects carry apiVersion and kind in lists too.
    pub(super) custom: bool,
    /// Which edition of its definition this is; a watch ends when the edition changes.
    pub(super) edition: u64,
}

impl Served {
    /// What every whole object begins with. Built-in types put kind first, as the real server does.
    pub(super) fn head(&self) -> String {
        let (kind, version) = (&self.resource.kind, self.resource.api_version());
        if self.custom {
            format!(r#"{{"apiVersion":"{version}","kind":"{kind}","#)
        } else {
            format!(r#"{{"kind":"{kind}","apiVersion":"{version}","#)
        }
    }

    pub(super) fn can(&self, verb: &str) -> bool {
        self.verbs.contains(&verb)
    }
}

const ALL: &[&str] = &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
const GET_LIST: &[&str] = &["get", "list"];
const CREATE: &[&str] = &["create"];
const NAMESPACES: &[&str] = &["create", "delete", "get", "list", "patch", "update", "watch"];

/// One row of the table of built-in resources.
struct BuiltIn {
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
    short: &'static [&'static str],
    namespaced: bool,
    verbs: &'static [&'static str],
    subresources: &'static [&'static str],
}

const fn row(
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
    short: &'static [&'static str],
    namespaced: bool,
) -> BuiltIn {
    BuiltIn { group, version, kind, plural, short, namespaced, verbs: ALL, subresources: &[] }
}

const fn with(base: BuiltIn, verbs: &'static [&'static str], subresources: &'static [&'static str]) -> BuiltIn {
    BuiltIn { verbs, subresources, ..base }
}

const STATUS: &[&str] = &["status"];
const SCALED: &[&str] = &["scale", "status"];
const RBAC: &str = "rbac.authorization.k8s.io";

const BUILT_IN: &[BuiltIn] = &[
    with(row("", "v1", "ComponentStatus", "componentstatuses", &["cs"], false), GET_LIST, &[]),
    row("", "v1", "ConfigMap", "configmaps", &["cm"], true),
    row("", "v1", "Endpoints", "endpoints", &["ep"], true),
    row("", "v1", "Event", "events", &["ev"], true),
    row("", "v1", "LimitRange", "limitranges", &["limits"], true),
    with(row("", "v1", "Namespace", "namespaces", &["ns"], false), NAMESPACES, &["finalize", "status"]),
    with(row("", "v1", "Node", "nodes", &["no"], false), ALL, &["proxy", "status"]),
    with(row("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", &["pvc"], true), ALL, STATUS),
    with(row("", "v1", "PersistentVolume", "persistentvolumes", &["pv"], false), ALL, STATUS),
    with(row("", "v1", "Pod", "pods", &["po"], true), ALL, &["eviction", "exec", "log", "status"]),
    row("", "v1", "Secret", "secrets", &[], true),
    with(row("", "v1", "ServiceAccount", "serviceaccounts", &["sa"], true), ALL, &["token"]),
    with(row("", "v1", "Service", "services", &["svc"], true), ALL, &["proxy", "status"]),
    with(
        row(
            "apiextensions.k8s.io",
            "v1",
            "CustomResourceDefinition",
            "customresourcedefinitions",
            &["crd", "crds"],
            false,
        ),
        ALL,
        STATUS,
    ),
    with(row("apps", "v1", "DaemonSet", "daemonsets", &["ds"], true), ALL, STATUS),
    with(row("apps", "v1", "Deployment", "deployments", &["deploy"], true), ALL, SCALED),
    with(row("apps", "v1", "ReplicaSet", "replicasets", &["rs"], true), ALL, SCALED),
    with(row("apps", "v1", "StatefulSet", "statefulsets", &["sts"], true), ALL, SCALED),
    with(row("authentication.k8s.io", "v1", "TokenReview", "tokenreviews", &[], false), CREATE, &[]),
    with(row("authorization.k8s.io", "v1", "SubjectAccessReview", "subjectaccessreviews", &[], false), CREATE, &[]),
    with(
        row("authorization.k8s.io", "v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews", &[], false),
        CREATE,
        &[],
    ),
    with(row("batch", "v1", "CronJob", "cronjobs", &["cj"], true), ALL, STATUS),
    with(row("batch", "v1", "Job", "jobs", &[], true), ALL, STATUS),
    row("coordination.k8s.io", "v1", "Lease", "leases", &[], true),
    row("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices", &[], true),
    row("events.k8s.io", "v1", "Event", "events", &["ev"], true),
    with(row("networking.k8s.io", "v1", "Ingress", "ingresses", &["ing"], true), ALL, STATUS),
    row("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies", &["netpol"], true),
    row(RBAC, "v1", "ClusterRoleBinding", "clusterrolebindings", &[], false),
    row(RBAC, "v1", "ClusterRole", "clusterroles", &[], false),
    row(RBAC, "v1", "RoleBinding", "rolebindings", &[], true),
    row(RBAC, "v1", "Role", "roles", &[], true),
];

/// The resources of a server without any CRD.
pub(super) fn built_in() -> impl Iterator<Item = Served> {
    BUILT_IN.iter().map(|b| {
        let resource = Resource {
            group: b.group.to_owned(),
            version: b.version.to_owned(),
            kind: b.kind.to_owned(),
            plural: b.plural.to_owned(),
            singular: b.kind.to_lowercase(),
            short_names: b.short.iter().map(|&s| s.to_owned()).collect(),
            namespaced: b.namespaced,
        };
        // Events of both groups are the same objects.
        let storage = if b.plural == "events" { "events".to_owned() } else { resource.full_name() };
        let in_all =
            ["pods", "services", "deployments", "replicasets", "statefulsets", "daemonsets", "jobs", "cronjobs"];
        Served {
            categories: if in_all.contains(&b.plural) { vec!["all".to_owned()] } else { Vec::new() },
            verbs: b.verbs.to_vec(),
            subresources: b.subresources,
            storage,
            custom: false,
            edition: 0,
            resource,
        }
    })
}

/// The resources that a CRD defines, one for each served version. Nothing where the object is not
/// shaped as a CRD: the real server would not have taken it, and a test sees that it is not served.
pub(super) fn defined_by(crd: &Value, edition: u64) -> Vec<Served> {
    let spec = &crd["spec"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let list = |value: &Value| -> Vec<String> {
        value.as_array().map(|items| items.iter().map(text).collect()).unwrap_or_default()
    };
    let names = &spec["names"];
    let versions = spec["versions"].as_array().map(Vec::as_slice).unwrap_or_default();
    versions
        .iter()
        .filter(|version| version["served"].as_bool() == Some(true))
        .map(|version| {
            let resource = Resource {
                group: text(&spec["group"]),
                version: text(&version["name"]),
                kind: text(&names["kind"]),
                plural: text(&names["plural"]),
                singular: text(&names["singular"]),
                short_names: list(&names["shortNames"]),
                namespaced: spec["scope"] == "Namespaced",
            };
            Served {
                storage: resource.full_name(),
                verbs: ALL.to_vec(),
                subresources: if version["subresources"]["status"].is_object() { STATUS } else { &[] },
                categories: list(&names["categories"]),
                custom: true,
                edition,
                resource,
            }
        })
        .filter(|served| !served.resource.plural.is_empty() && !served.resource.kind.is_empty())
        .collect()
}
