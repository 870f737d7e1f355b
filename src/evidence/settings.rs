//! `[evidence]`: signed checkpoints over the log.

use std::fs;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::key::SigningKey;

/// Signed checkpoints over the log, and where they go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Evidence")]
pub struct Settings {
    /// The directory of the checkpoints and tiles.
    #[schemars(extend("format" = "path"))]
    pub dir: PathBuf,
    /// A file with the key that signs, made by `decklog evidence key`.
    #[schemars(extend("format" = "readable-file"))]
    pub key_file: PathBuf,
    /// A file with the key that signed before: while it is here, both sign.
    #[schemars(extend("format" = "readable-file"))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_key_file: Option<PathBuf>,
}

impl Settings {
    /// Reads the keys, the one that signs first.
    ///
    /// # Errors
    /// A sentence that names the file and says what to do.
    pub fn keys(&self) -> Result<Vec<SigningKey>, String> {
        let files = [
            Some(("key_file", &self.key_file)),
            self.previous_key_file.as_ref().map(|path| ("previous_key_file", path)),
        ];
        let read = |(name, path): (&str, &PathBuf)| {
            let text = fs::read_to_string(path)
                .map_err(|error| format!("cannot read [evidence] {name} {}: {error}", path.display()))?;
            SigningKey::parse(&text).map_err(|why| format!("[evidence] {name} {}: {why}", path.display()))
        };
        files.into_iter().flatten().map(read).collect()
    }
}
