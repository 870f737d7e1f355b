//! `[cluster]`: which cluster is read, and how much is asked of it.

use std::path::PathBuf;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::core::units::{Period, Span};

/// The cluster that is read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Cluster")]
pub struct Settings {
    /// Its name in every entry. Default: the kubeconfig context's cluster, or "in-cluster".
    pub name: Option<String>,
    /// The kubeconfig file. Default: $KUBECONFIG, ~/.kube/config, the in-cluster service account.
    #[schemars(extend("format" = "path"))]
    pub kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig. Default: its current one.
    pub context: Option<String>,
    /// Read the API server's own counters: of requests, for `churn --requests`, and of comparisons of its watch cache with etcd.
    pub request_metrics: bool,
    /// Let the kubeconfig name a program that gives the credentials (exec, auth-provider), and run it. Default: only for a
    /// person at a terminal who owns the kubeconfig.
    pub allow_exec: Option<bool>,
    /// Let the kubeconfig do without TLS, or without a look at the API server's certificate.
    pub allow_insecure_tls: bool,
    /// Longest time between two comparisons of a source with the API server: not less than "1s"; "off" for never.
    pub audit_every: Period,
    /// Budget of the objects that each comparison asks etcd for by name, because the API server's watch cache may be wrong; with "off"
    /// decklog asks for none.
    pub audit_reads: Examine,
    /// Bounds of reading missed changes from the API server's own history; with "off" decklog reads none, and they are a GAP.
    pub recover: Recover,
    /// Date by the Leases of the control plane and the nodes what happened while decklog was away: to seconds instead of the whole
    /// outage. Default: where decklog may list them; with true `rbac` prints the right.
    pub lease_times: Option<bool>,
    /// Publication of alarms and GAPs as Events of the cluster, on the Pod that decklog runs in, else on the Lease of `[ha]`.
    pub events: Events,
}

/// Selects whether Events are published.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Events {
    /// Where decklog may create and patch them.
    #[default]
    Auto,
    /// Never.
    Off,
}

/// Selects whether missed changes are read from the API server's own history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Recover {
    /// The word "off".
    Off(Off),
    /// Within these bounds.
    Within(RecoverBounds),
}

impl Default for Recover {
    fn default() -> Self {
        Self::Within(RecoverBounds::default())
    }
}

/// Disabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Off {
    /// The word.
    Off,
}

/// Selects whether audits ask etcd for objects by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Examine {
    /// The word "off".
    Off(Off),
    /// Within this budget.
    Within(AuditReads),
}

impl Examine {
    /// Returns the budget, if there is one.
    #[must_use]
    pub const fn budget(self) -> Option<AuditReads> {
        match self {
            Self::Off(_) => None,
            Self::Within(reads) => Some(reads),
        }
    }
}

impl Default for Examine {
    fn default() -> Self {
        Self::Within(AuditReads::default())
    }
}

/// Budget of an audit's questions for objects by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AuditReads {
    /// Requests a second, for all sources.
    #[schemars(range(min = 1))]
    pub rate: u32,
    /// Share of a source's objects that one audit asks for at most, in percent; ten objects are always allowed.
    #[schemars(range(min = 1, max = 100))]
    pub percent: u8,
}

impl Default for AuditReads {
    fn default() -> Self {
        Self { rate: 25, percent: 1 }
    }
}

/// Bounds of recovering missed changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RecoverBounds {
    /// Requests for one source, each time that it has lost its position.
    #[schemars(range(min = 1))]
    pub requests: u32,
    /// Requests a second, for all sources; fewer where the API server answers more slowly than before.
    #[schemars(range(min = 1))]
    pub rate: u32,
    /// Time limit: etcd is compacted every five minutes by default.
    pub within: Span,
}

impl Default for RecoverBounds {
    fn default() -> Self {
        Self { requests: 50_000, rate: 400, within: Span::from_secs(300) }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            name: None,
            kubeconfig: None,
            context: None,
            request_metrics: false,
            allow_exec: None,
            allow_insecure_tls: false,
            audit_every: Period::from_secs(600),
            audit_reads: Examine::default(),
            recover: Recover::default(),
            lease_times: None,
            events: Events::default(),
        }
    }
}

impl JsonSchema for Examine {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Examine".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({ "oneOf": [{ "enum": ["off"] }, generator.subschema_for::<AuditReads>()] })
    }
}

impl JsonSchema for Recover {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Recover".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({ "oneOf": [{ "enum": ["off"] }, generator.subschema_for::<RecoverBounds>()] })
    }
}
