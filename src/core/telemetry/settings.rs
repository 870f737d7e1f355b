//! `[log]`: decklog's own log.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tracing_subscriber::EnvFilter;

use crate::core::spelling::{Format, Wrong, nearest};

/// The formats of these texts.
pub const FORMATS: &[Format] = &[Format {
    name: "log-level",
    expected: "error, warn, info, debug, trace or off; or directives such as \"info,decklog::watch=debug\"",
    check: log_level,
}];

/// decklog's own log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Log")]
pub struct Settings {
    /// error, warn, info, debug or trace; or tracing's directives, such as "info,decklog::watch=debug".
    #[schemars(extend("format" = "log-level"))]
    pub level: String,
    /// Format of a line.
    pub format: LogFormat,
}

impl Default for Settings {
    fn default() -> Self {
        Self { level: "info".to_owned(), format: LogFormat::default() }
    }
}

/// Format of a line of decklog's own log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people, on standard error.
    #[default]
    Text,
    /// One JSON object a line, on standard error.
    Json,
    /// To systemd's journal, with fields.
    Journald,
}

const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];

/// A bare word is a level: tracing alone would take a misspelt level for the name of a module.
fn log_level(text: &str) -> Result<(), Wrong> {
    if text.trim().is_empty() {
        return Err("an empty string".into());
    }
    for directive in text.split(',').map(str::trim) {
        let word =
            if directive.contains([']', '}']) { continue } else { directive.rsplit('=').next().unwrap_or_default() };
        let bare_module = !directive.contains('=') && directive.contains("::");
        if !bare_module && !LEVELS.contains(&word.to_lowercase().as_str()) {
            let wrong = Wrong::from(format!("{word:?}, which is no level"));
            return Err(Wrong { nearest: level_near(word), ..wrong });
        }
    }
    EnvFilter::try_new(text).map(drop).map_err(|error| Wrong::from(format!("{text:?}: {error}")))
}

fn level_near(word: &str) -> Option<String> {
    match word.to_lowercase().as_str() {
        "warning" => Some("warn".to_owned()),
        "err" | "fatal" | "critical" => Some("error".to_owned()),
        "verbose" => Some("debug".to_owned()),
        "none" | "quiet" => Some("off".to_owned()),
        _ => nearest(word, LEVELS),
    }
}
