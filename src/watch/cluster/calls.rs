//! Small questions to the API server: who it is, whether it answers, what we may do.

use bytes::Bytes;
use http::{HeaderValue, Method, Request, header};
use kube::client::Body;
use serde::Deserialize;
use tokio::time::timeout;

use super::credentials::FILE_POLL_INTERVAL;
use super::{Api, Failure, failure};
use crate::core::model::Cluster;
use crate::core::net::USER_AGENT;

impl Api {
    /// A GET whose answer is small, and made at once: whoever does not give it stands still.
    async fn brief(&self, path: &str) -> Result<Bytes, Failure> {
        let limit = self.limits().brief.min(self.limits().head);
        let response = self.ask(Method::GET, path, ("application/json", None), Vec::new(), limit).await?;
        self.read(response.into_body(), 1 << 20).await
    }

    /// Reports whether a server answers that may be ready. The question may be forbidden, and not everything that speaks for
    /// Kubernetes knows it; but only an API server that starts or stops, or a proxy without one, says that it is not ready. No
    /// credentials are sent: a program that provides them would run for each probe.
    pub async fn answers(&self) -> bool {
        // Whoever asks next goes where the files say now, and finds out.
        if self.current(|current| current.looked.elapsed() > FILE_POLL_INTERVAL && current.files_changed()) {
            return true;
        }
        let request = Request::builder()
            .uri("/readyz")
            .header(header::USER_AGENT, HeaderValue::from_static(USER_AGENT))
            .body(Body::empty())
            .expect("its path and its header are constants that HTTP takes");
        let client = self.current(|current| current.bare.clone());
        match timeout(self.limits().brief, client.send(request)).await {
            Ok(Ok(response)) => failure::is_answer(response.status()),
            // Somebody is there, and whoever asks for more reads the credentials again.
            Ok(Err(error)) => matches!(failure::no_answer(&error), Failure::Tls(_)),
            Err(_elapsed) => false,
        }
    }

    /// Returns the identity of the cluster: its name, and the uid of its kube-system namespace if it may be read.
    ///
    /// # Errors
    /// Where the API server does not answer, for another reason than that permission.
    pub async fn identity(&self) -> Result<Cluster, Failure> {
        #[derive(Deserialize)]
        struct Namespace {
            metadata: Metadata,
        }
        #[derive(Deserialize)]
        struct Metadata {
            uid: String,
        }
        let name = self.inner.name.clone();
        match self.brief("/api/v1/namespaces/kube-system").await {
            Ok(bytes) => {
                let namespace: Namespace = serde_json::from_slice(&bytes)
                    .map_err(|_| Failure::Undecodable("the namespace kube-system has no uid".to_owned()))?;
                Ok(Cluster { name, uid: namespace.metadata.uid })
            }
            // Another object's uid in its place would make one cluster look like two when permissions change.
            Err(Failure::Forbidden(_) | Failure::NotFound) => Ok(Cluster { name, uid: String::new() }),
            Err(failure) => Err(failure),
        }
    }

    /// Reports whether a namespace exists; none if it may not be read.
    ///
    /// # Errors
    /// Where the API server does not answer.
    pub async fn has_namespace(&self, name: &str) -> Result<Option<bool>, Failure> {
        match self.brief(&format!("/api/v1/namespaces/{name}")).await {
            Ok(_) => Ok(Some(true)),
            Err(Failure::NotFound) => Ok(Some(false)),
            Err(Failure::Forbidden(_)) => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// The names of some namespaces, in their order.
    ///
    /// # Errors
    /// Where the API server does not answer, or we may not list them.
    pub async fn namespaces(&self) -> Result<Vec<String>, Failure> {
        #[derive(Deserialize)]
        struct List {
            items: Vec<Item>,
        }
        #[derive(Deserialize)]
        struct Item {
            metadata: Metadata,
        }
        #[derive(Deserialize)]
        struct Metadata {
            name: String,
        }
        let bytes = self.brief("/api/v1/namespaces?limit=500").await?;
        let list: List = serde_json::from_slice(&bytes)
            .map_err(|_| Failure::Undecodable("the list of namespaces cannot be read".to_owned()))?;
        Ok(list.items.into_iter().map(|item| item.metadata.name).collect())
    }

    /// The API server's version, such as `v1.36.0`.
    ///
    /// # Errors
    /// Where the API server does not answer.
    pub async fn version(&self) -> Result<String, Failure> {
        #[derive(Deserialize)]
        struct Version {
            #[serde(rename = "gitVersion")]
            version: String,
        }
        let bytes = self.brief("/version").await?;
        let version: Version = serde_json::from_slice(&bytes)
            .map_err(|_| Failure::Undecodable("the API server's version cannot be read".to_owned()))?;
        Ok(version.version)
    }

    /// Reports whether RBAC allows `verb` on a resource, in one namespace or in all.
    ///
    /// # Errors
    /// Where the API server does not answer.
    pub async fn can_i(
        &self,
        verb: &str,
        group: &str,
        resource: &str,
        namespace: Option<&str>,
    ) -> Result<bool, Failure> {
        self.allows(serde_json::json!({ "resourceAttributes": {
            "verb": verb, "group": group, "resource": resource, "namespace": namespace.unwrap_or_default(),
        } }))
        .await
    }

    /// Reports whether RBAC allows `verb` on one object, in a namespace.
    ///
    /// # Errors
    /// Where the API server does not answer.
    pub async fn can_i_with(
        &self,
        verb: &str,
        group: &str,
        resource: &str,
        namespace: &str,
        name: &str,
    ) -> Result<bool, Failure> {
        self.allows(serde_json::json!({ "resourceAttributes": {
            "verb": verb, "group": group, "resource": resource, "namespace": namespace, "name": name,
        } }))
        .await
    }

    /// Reports whether RBAC allows to read a path that is no resource.
    ///
    /// # Errors
    /// Where the API server does not answer.
    pub async fn can_i_read(&self, path: &str) -> Result<bool, Failure> {
        self.allows(serde_json::json!({ "nonResourceAttributes": { "verb": "get", "path": path } })).await
    }

    /// Sends a write that changes nothing and that the audit log has nevertheless: a PATCH, as a dry run, of an object that does not
    /// exist, in a format that no PATCH has. No right is needed for it, because a refusal is logged as well.
    ///
    /// # Errors
    /// Where the API server does not answer, or not with a refusal.
    pub async fn be_audited(&self, path: &str) -> Result<(), Failure> {
        let path = format!("{path}?dryRun=All");
        match self.write(Method::PATCH, &path, b"{}".to_vec(), 1 << 20).await {
            Ok(_) => Err(Failure::Undecodable("the API server has patched an object that does not exist".to_owned())),
            Err(Failure::Forbidden(_) | Failure::NotFound | Failure::Refused(_)) => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    async fn allows(&self, spec: serde_json::Value) -> Result<bool, Failure> {
        #[derive(Deserialize)]
        struct Review {
            status: Status,
        }
        #[derive(Deserialize)]
        struct Status {
            #[serde(default)]
            allowed: bool,
        }
        let review = serde_json::json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": spec,
        });
        let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        let body =
            self.send(Method::POST, path, "application/json", review.to_string().into_bytes()).await?.into_body();
        let bytes = self.read(body, 1 << 20).await?;
        let review: Review = serde_json::from_slice(&bytes)
            .map_err(|_| Failure::Undecodable("the answer about our permissions cannot be read".to_owned()))?;
        Ok(review.status.allowed)
    }
}
