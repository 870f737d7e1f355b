//! The connection to the API server: where it is, who we are there, and requests with a bound on everything.
//!
//! An [`Api`] lives as long as the daemon. The client behind it is built again when a credential file changes, before
//! a credential runs out and when the API server stops accepting it, because `kube` reads most of them only once.
//!
//! # Decision: kube sends, decklog connects and reads
//!
//! Context: kubectl's rules for kubeconfigs, proxies and certificates are not kube's, and `kube_runtime::watcher` can neither
//! start at a version nor show bookmarks, and skips what it cannot decode.
//! Decision: Requests, tokens and plugins are kube's; the kubeconfig, the connection and the body of a watch are read here.
//! Only CustomResourceDefinitions and APIServices are watched by `kube_runtime`, as a signal for discovery.
//! Cost: Our own kubeconfig reader.

mod calls;
mod client;
mod connect;
mod credentials;
pub mod failure;
mod forwarding;
mod kubeconfig;
mod lent;
mod link;
mod proxied;
mod settings;
#[cfg(test)]
mod tests;
mod through;
mod tls;

pub use settings::{AuditReads, Events, Examine, Off, Recover, RecoverBounds, Settings};

use std::time::Duration;

pub use client::{Api, Fetched, next_part};
pub use failure::{Failure, Unreadable};
pub use proxied::{Instead, refusal};

use crate::core::net::proxy::InvalidProxy;

/// Time limits of the parts of a request.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Until there is a connection.
    pub connect: Duration,
    /// From the request to the head of its answer. An API server gives up on its own requests after 60 s.
    pub head: Duration,
    /// The same for what is small and costs the API server nothing.
    pub brief: Duration,
    /// Between two parts of an answer that should come in one go.
    pub read: Duration,
    /// Reading the credentials, with all that a plugin does for them.
    pub credentials: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            head: Duration::from_secs(70),
            brief: Duration::from_secs(10),
            read: Duration::from_secs(60),
            credentials: Duration::from_secs(60),
        }
    }
}

/// Reason why there is no connection to the API server.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// No file and no variable says where the API server is.
    #[error(
        "no kubeconfig was found: looked at {}, and this is no pod with a service account; set $KUBECONFIG, or [cluster] kubeconfig in the configuration",
        looked.join(", ")
    )]
    NoKubeconfig {
        /// Places that were searched.
        looked: Vec<String>,
    },
    /// The kubeconfig has no such context.
    #[error("{file} has no context {wanted:?}; it has {}", list(known))]
    NoContext {
        /// The file, or files.
        file: String,
        /// The context asked for.
        wanted: String,
        /// The contexts that there are.
        known: Vec<String>,
    },
    /// The kubeconfig names no current context, and the configuration none either.
    #[error("{file} has no current-context; set [cluster] context to one of {}", list(known))]
    NoCurrentContext {
        /// The file, or files.
        file: String,
        /// The contexts that there are.
        known: Vec<String>,
    },
    /// The kubeconfig cannot be used.
    #[error("{file} cannot be used: {why}")]
    Kubeconfig {
        /// The file, or files.
        file: String,
        /// Why, without anything of what it holds.
        why: String,
    },
    /// The configured proxy is none.
    #[error("no connection to the API server can be made: {0}")]
    Proxy(#[from] InvalidProxy),
    /// No client can be made of it.
    #[error("no connection to the API server can be made with {file}: {why}")]
    Client {
        /// The file, or files.
        file: String,
        /// Why, without anything of what a plugin said.
        why: String,
    },
}

impl ClusterError {
    /// Reports whether another attempt may help without a change of the configuration: a plugin may need a network that is not
    /// up yet.
    #[must_use]
    pub const fn may_heal(&self) -> bool {
        matches!(self, Self::Client { .. })
    }
}

fn list(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}
