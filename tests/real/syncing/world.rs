//! The control plane with the definitions, those who write to it, and the record of what each of them did.

use std::collections::HashMap;
use std::sync::Mutex;

use http_body_util::BodyExt as _;
use jiff::{SignedDuration, Timestamp};
use kube::client::Body;
use serde_json::{Value, json};

use crate::harness::{Cluster, LIMIT, client_of, until};

const DEFINITIONS: [(&str, &str); 3] = [
    (include_str!("../definitions/application.yaml"), "/apis/argoproj.io/v1alpha1/applications"),
    (include_str!("../definitions/kustomization.yaml"), "/apis/kustomize.toolkit.fluxcd.io/v1/kustomizations"),
    (include_str!("../definitions/helmrelease.yaml"), "/apis/helm.toolkit.fluxcd.io/v2/helmreleases"),
];
/// Namespace and name of each controller's service account, and its program.
const CONTROLLERS: [(&str, &str, &str); 5] = [
    (
        "argocd",
        "argocd-application-controller",
        "argocd-application-controller/v0.0.0 (linux/amd64) kubernetes/$Format",
    ),
    ("argocd", "argocd-server", "argocd-server/v0.0.0 (linux/amd64) kubernetes/$Format"),
    ("flux-system", "kustomize-controller", "kustomize-controller/v0.0.0 (linux/amd64) kubernetes/$Format"),
    ("flux-system", "helm-controller", "helm-controller/v0.0.0 (linux/amd64) kubernetes/$Format"),
    (
        "kube-system",
        "horizontal-pod-autoscaler",
        "kube-controller-manager/v1.36.0 (linux/amd64) kubernetes/0/system:serviceaccount:kube-system:horizontal-pod-autoscaler",
    ),
];
const KUBECTL: &str = "kubectl/v1.36.0 (linux/amd64) kubernetes/0";
pub const MERGE: &str = "application/merge-patch+json";
pub const STRATEGIC: &str = "application/strategic-merge-patch+json";
pub const APPLY: &str = "application/apply-patch+yaml";
pub const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/shop/deployments";
pub const MAPS: &str = "/api/v1/namespaces/shop/configmaps";

/// What a write was made by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum By {
    /// The name of the driver, its revision, and the person who started it, if one did.
    Run(String, String, String),
    Person,
    /// The name of the autoscaler.
    Autoscaler(String),
    /// A controller that takes over the ownership of fields, and no value.
    Books,
}

/// A write, as it was made.
#[derive(Clone, Debug)]
pub struct Truth {
    pub user: String,
    pub by: By,
    /// JSON pointer to a field that it set.
    pub path: String,
}

/// A field that somebody took from a tool.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Drifted {
    pub object: String,
    pub path: String,
    pub expected: String,
    pub got: String,
    pub user: String,
    /// How it ended, and by which revision; empty while it is open.
    pub ended: String,
    pub revision: String,
}

/// See the module.
#[derive(Default)]
pub struct Record {
    /// By the name of the object and its version.
    pub writes: Mutex<HashMap<(String, String), Truth>>,
    pub drifts: Mutex<Vec<Drifted>>,
}

/// Somebody with a token and a program.
pub struct Writer<'w> {
    pub user: String,
    agent: &'static str,
    client: kube::Client,
    pub record: &'w Record,
}

impl Writer<'_> {
    /// Sends a request that has to succeed.
    pub async fn send(&self, method: &str, path: &str, kind: &str, body: &Value) -> Value {
        let (status, answer) = self.ask(method, path, kind, body).await;
        assert!((200..300).contains(&status), "{} {method} {path}: {status} {answer}", self.user);
        answer
    }

    pub async fn ask(&self, method: &str, path: &str, kind: &str, body: &Value) -> (u16, Value) {
        let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string().into_bytes()) };
        let request = http::Request::builder().method(method).uri(path);
        let request = request.header("content-type", kind).header("user-agent", self.agent).body(body).unwrap();
        let answer = self.client.send(request).await.unwrap_or_else(|error| panic!("{method} {path}: {error}"));
        let status = answer.status().as_u16();
        let bytes = answer.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&bytes).unwrap_or_default())
    }

    /// Changes an object, and records who that was.
    pub async fn write(&self, (method, path, kind): (&str, &str, &str), body: &Value, by: By, field: &str) -> Value {
        let answer = self.send(method, path, kind, body).await;
        self.recorded(&answer, by, field);
        answer
    }

    /// Records a change, of which this is the answer.
    pub fn recorded(&self, answer: &Value, by: By, field: &str) {
        let metadata = &answer["metadata"];
        let key = (text(&metadata["name"]), text(&metadata["resourceVersion"]));
        let truth = Truth { user: self.user.clone(), by, path: field.to_owned() };
        let before = self.record.writes.lock().unwrap().insert(key.clone(), truth);
        assert!(before.is_none(), "{key:?} changed nothing after {before:?}");
    }
}

pub fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// A time as Kubernetes writes it, to the second.
pub fn stamp(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Waits until this much time has passed: what happened is dated to the second.
pub async fn pass(millis: usize) {
    let end = Timestamp::now() + SignedDuration::from_millis(i64::try_from(millis).unwrap());
    until("time to pass", LIMIT, async || if Timestamp::now() >= end { Ok(()) } else { Err(end.to_string()) }).await;
}

/// Installs the definitions, and makes the namespaces and the service accounts.
pub async fn install(cluster: &Cluster) {
    for (definition, _) in DEFINITIONS {
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        let (status, answer) = cluster.send_text("POST", path, "application/yaml", definition).await;
        assert_eq!(status, 201, "{answer}");
    }
    for namespace in ["shop", "argocd", "flux-system"] {
        cluster.create("/api/v1/namespaces", &json!({"metadata": {"name": namespace}})).await;
    }
    let subjects =
        json!([{"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "system:serviceaccounts"}]);
    let role = json!({"kind": "ClusterRole", "apiGroup": "rbac.authorization.k8s.io", "name": "cluster-admin"});
    let binding = json!({"metadata": {"name": "controllers"}, "subjects": subjects, "roleRef": role});
    cluster.create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding).await;
    for (namespace, name, _) in CONTROLLERS {
        let all = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
        cluster.create(&all, &json!({"metadata": {"name": name}})).await;
    }
    for (_, path) in DEFINITIONS {
        until(&format!("{path} to be served"), LIMIT, async || cluster.get(path).await.map(drop)).await;
    }
}

/// Those who write.
pub struct Cast<'w> {
    pub argo: Writer<'w>,
    pub argo_server: Writer<'w>,
    pub kustomize: Writer<'w>,
    pub helm: Writer<'w>,
    pub scaler: Writer<'w>,
    pub people: [Writer<'w>; 2],
}

impl<'w> Cast<'w> {
    pub async fn new(cluster: &Cluster, record: &'w Record) -> Self {
        let writer = async |user: String, file: &str, token: &str, agent: &'static str| {
            let client = client_of(&cluster.kubeconfig_of_token(file, token)).await.unwrap();
            Writer { user, agent, client, record }
        };
        let mut controllers = Vec::new();
        for (namespace, name, agent) in CONTROLLERS {
            let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token");
            let answer = cluster.create(&path, &json!({"spec": {"expirationSeconds": 3600}})).await;
            let user = format!("system:serviceaccount:{namespace}:{name}");
            controllers.push(writer(user, name, &text(&answer["status"]["token"]), agent).await);
        }
        let [argo, argo_server, kustomize, helm, scaler] =
            <[Writer<'w>; 5]>::try_from(controllers).ok().expect("as many as there are controllers");
        let mut people = Vec::new();
        for name in ["alice", "bob"] {
            people.push(writer(name.to_owned(), name, &format!("{name}-token"), KUBECTL).await);
        }
        let people = <[Writer<'w>; 2]>::try_from(people).ok().expect("two");
        Self { argo, argo_server, kustomize, helm, scaler, people }
    }
}
