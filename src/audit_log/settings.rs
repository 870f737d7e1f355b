//! `[[audit_log]]`: where the audit log of an API server is.

use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::core::units::Span;

/// An audit log of an API server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "AuditLog")]
pub struct Settings {
    /// The file that the API server writes (`--audit-log-path`), on this machine. It is followed through its rotations. One table for
    /// each API server of the cluster: a change through one whose audit log is not here has no sender.
    #[schemars(extend("format" = "path"))]
    pub file: PathBuf,
    /// Time after which an answered request is in the file. A sender who is known by anything less than the version in the answer is
    /// named after it.
    #[serde(default = "lag")]
    pub lag: Span,
}

/// Lag of an API server that writes each event before the answer (`--audit-log-mode=blocking`, the default).
const LAG: Duration = Duration::from_secs(2);

fn lag() -> Span {
    LAG.into()
}

impl Settings {
    /// Name of the audit log: its path.
    #[must_use]
    pub fn name(&self) -> String {
        self.file.display().to_string()
    }
}
