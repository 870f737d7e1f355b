//! `[ha]`: the shared log, and who leads.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::LeaseName;
use crate::core::runtime;
use crate::core::units::ByteSize;

/// A log that outlives its machine, and a second decklog that takes over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Ha")]
pub struct Settings {
    /// The name of the sink beside whose output the shared log is kept. It is exactly once, without `where`, and its payload is
    /// "full".
    #[schemars(extend("format" = "name"))]
    pub log: String,
    /// The Lease that says who leads: NAMESPACE/NAME. Default: decklog/ and the name of the cluster.
    #[serde(default)]
    pub lease: Option<LeaseName>,
    /// Name of this decklog in the Lease. Default: the name of the host and a random part.
    #[serde(default)]
    #[schemars(extend("format" = "name"))]
    pub identity: Option<String>,
    /// Size of the changes that a standby keeps while the shared log does not have them yet.
    #[serde(default = "backlog")]
    pub backlog: ByteSize,
}

impl Settings {
    /// The Lease, where the cluster has this name.
    #[must_use]
    pub fn lease(&self, cluster: &str) -> LeaseName {
        self.lease.clone().unwrap_or_else(|| LeaseName::of_cluster(cluster))
    }

    /// Identity of this process in the Lease. Without an `identity` it is a new name each time.
    #[must_use]
    pub fn identity(&self) -> String {
        self.identity.clone().unwrap_or_else(|| format!("{}_{:08x}", self.machine(), runtime::random() & 0xffff_ffff))
    }

    /// Name of the machine that local outputs belong to: the same at each start.
    #[must_use]
    pub fn machine(&self) -> String {
        self.identity.clone().unwrap_or_else(|| {
            let host = crate::core::os::host();
            if host.is_empty() { "decklog".to_owned() } else { host }
        })
    }
}

const fn backlog() -> ByteSize {
    ByteSize(256 << 20)
}
