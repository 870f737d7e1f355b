//! The object that Events are about.

use std::fmt;

use k8s_openapi::api::core::v1::ObjectReference;
use serde::Deserialize;

use crate::app::config::Config;
use crate::app::ha::LeaseName;
use crate::watch::cluster::{Api, Events, Failure};

/// Largest Lease that is read.
const LEASE_LIMIT: usize = 1 << 20;
/// Largest name of an instance that Kubernetes takes.
const INSTANCE_LIMIT: usize = 128;

/// An object of the cluster that Events are about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Object {
    /// The Pod that this process runs in.
    Pod {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// Its uid; empty where the environment lacks it.
        uid: String,
    },
    /// The Lease that says who leads.
    Lease {
        /// Its name.
        lease: LeaseName,
        /// The machine that publishes.
        machine: String,
    },
}

impl Object {
    /// Returns the object of a daemon; none where it has none, or is to publish nothing. The Pod is named by the environment, and is an
    /// object of the cluster only where decklog asks as its service account.
    pub fn of(config: &Config, api: &Api, variable: impl Fn(&str) -> Option<String>) -> Option<Self> {
        match config.cluster.events {
            Events::Off => return None,
            Events::Auto => {}
        }
        let named = |name| variable(name).filter(|value| !value.is_empty());
        if api.is_of_this_pod()
            && let (Some(namespace), Some(name)) = (named("POD_NAMESPACE"), named("POD_NAME"))
        {
            return Some(Self::Pod { namespace, name, uid: named("POD_UID").unwrap_or_default() });
        }
        config.ha.as_ref().map(|ha| Self::Lease { lease: ha.lease(api.name()), machine: ha.machine() })
    }

    pub(super) fn namespace(&self) -> &str {
        match self {
            Self::Pod { namespace, .. } => namespace,
            Self::Lease { lease, .. } => &lease.namespace,
        }
    }

    /// Returns the name of the decklog that publishes.
    pub(super) fn instance(&self) -> &str {
        let name = match self {
            Self::Pod { name, .. } => name,
            Self::Lease { machine, .. } => machine,
        };
        &name[..name.floor_char_boundary(INSTANCE_LIMIT)]
    }

    /// Returns the reference of an Event. `kubectl describe` finds Events by the uid.
    pub(super) async fn reference(&self, api: &Api) -> Result<ObjectReference, Failure> {
        let reference = |version: &str, kind: &str, namespace: &str, name: &str, uid: String| ObjectReference {
            api_version: Some(version.to_owned()),
            kind: Some(kind.to_owned()),
            namespace: Some(namespace.to_owned()),
            name: Some(name.to_owned()),
            uid: Some(uid).filter(|uid| !uid.is_empty()),
            ..ObjectReference::default()
        };
        match self {
            Self::Pod { namespace, name, uid } => Ok(reference("v1", "Pod", namespace, name, uid.clone())),
            Self::Lease { lease, .. } => {
                let uid = uid(&api.get(&lease.path(), "application/json", LEASE_LIMIT).await?)?;
                Ok(reference("coordination.k8s.io/v1", "Lease", &lease.namespace, &lease.name, uid))
            }
        }
    }
}

fn uid(lease: &[u8]) -> Result<String, Failure> {
    #[derive(Deserialize)]
    struct Lease {
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    struct Metadata {
        uid: String,
    }
    let lease: Lease =
        serde_json::from_slice(lease).map_err(|_| Failure::Undecodable("the Lease has no uid".to_owned()))?;
    Ok(lease.metadata.uid)
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pod { namespace, name, .. } => write!(f, "the Pod {namespace}/{name}"),
            Self::Lease { lease, .. } => write!(f, "the Lease {lease}"),
        }
    }
}
