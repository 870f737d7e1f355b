//! The keys of a sink of type `stdout`: none.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::StdoutSink;
use crate::sink::Sink;
use crate::sink::settings::SinkSettings;

/// JSON Lines on standard output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "StdoutSink")]
pub struct Settings {}

impl SinkSettings for Settings {
    fn open(&self) -> Result<Box<dyn Sink>, String> {
        Ok(Box::new(StdoutSink::new()))
    }
}
