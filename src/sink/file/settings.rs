//! The keys of a sink of type `file`.

use std::path::{Component, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::FileSink;
use crate::core::units::{ByteSize, Span};
use crate::sink::Sink;
use crate::sink::settings::{Clash, SinkSettings};

/// JSON Lines in a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "FileSink")]
pub struct Settings {
    /// The file; its directory must exist.
    #[schemars(extend("format" = "path"))]
    pub path: PathBuf,
    /// Begin a new file at this size. Default: never.
    #[serde(default)]
    pub rotate_size: Option<ByteSize>,
    /// Begin a new file after this time. Default: never.
    #[serde(default)]
    pub rotate_every: Option<Span>,
    /// Number of rotated files to keep.
    #[serde(default = "keep")]
    pub keep: u32,
    /// Compression of rotated files.
    #[serde(default)]
    pub compress: Compress,
}

/// Compression of rotated files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Compress {
    /// Zstandard.
    #[default]
    Zstd,
    /// Not at all.
    None,
}

const fn keep() -> u32 {
    14
}

impl SinkSettings for Settings {
    fn open(&self) -> Result<Box<dyn Sink>, String> {
        Ok(Box::new(FileSink::new(self)))
    }

    fn is_local(&self) -> bool {
        true
    }

    fn clash(&self, other: &Self, name: &str) -> Option<Clash> {
        let plain = |sink: &Self| -> PathBuf { sink.path.components().filter(|c| *c != Component::CurDir).collect() };
        (plain(self) == plain(other)).then(|| Clash {
            key: "path",
            found: format!("{:?}, which is the file of {name}", self.path),
            expected: "a file that no other sink writes",
        })
    }
}
