//! `[state]`: where the journal is, and how much it keeps.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::core::units::{ByteSize, Span};

/// The state directory and its bounds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "State")]
pub struct Settings {
    /// The state directory. Default: $STATE_DIRECTORY, else ./decklog-state.
    #[schemars(extend("format" = "path"))]
    pub path: PathBuf,
    /// A group of this machine, by name or number, whose members may read the journal. Default: nobody else may.
    pub readers: Option<String>,
    /// The journal never outgrows this.
    pub max_size: ByteSize,
    /// Entries older than this and taken by every sink may be removed.
    pub max_age: Span,
    /// Reaction to a journal of full size.
    pub on_full: OnFull,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            path: PathBuf::from("./decklog-state"),
            readers: None,
            max_size: ByteSize(10 << 30),
            max_age: Span::from_secs(30 * 24 * 3600),
            on_full: OnFull::default(),
        }
    }
}

/// Reaction to a journal of full size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnFull {
    /// Stop reading the cluster until there is room; then a GAP.
    #[default]
    Pause,
    /// Drop the oldest entries; a GAP to every sink that had not taken them.
    DropOldest,
}
