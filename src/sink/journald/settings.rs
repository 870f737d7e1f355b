//! The keys of a sink of type `journald`.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::JournaldSink;
use crate::core::units::Span;
use crate::sink::Sink;
use crate::sink::settings::{SinkSettings, decklog, timeout};

/// The journal of systemd.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "JournaldSink")]
pub struct Settings {
    /// The socket at which journald takes its own protocol.
    #[serde(default = "journald_socket")]
    #[schemars(extend("format" = "path"))]
    pub socket: PathBuf,
    /// SYSLOG_IDENTIFIER of every entry.
    #[serde(default = "decklog")]
    #[schemars(extend("format" = "syslog-name"))]
    pub identifier: String,
    /// Time limit of one entry.
    #[serde(default = "timeout")]
    pub timeout: Span,
}

fn journald_socket() -> PathBuf {
    "/run/systemd/journal/socket".into()
}

impl SinkSettings for Settings {
    fn open(&self) -> Result<Box<dyn Sink>, String> {
        Ok(Box::new(JournaldSink::new(self)))
    }
}
