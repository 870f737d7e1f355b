//! `[ha]`: the shared log, and who leads.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::units::ByteSize;

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
    pub lease: Option<String>,
    /// What this decklog is called in the Lease. Default: the name of the host and a random part.
    #[serde(default)]
    #[schemars(extend("format" = "name"))]
    pub identity: Option<String>,
    /// How much a standby keeps of changes that the shared log does not have yet.
    #[serde(default = "backlog")]
    pub backlog: ByteSize,
}

const fn backlog() -> ByteSize {
    ByteSize(256 << 20)
}
