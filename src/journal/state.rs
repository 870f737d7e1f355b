//! States of sources and sinks, for status and metrics.

use std::borrow::Cow;

use serde::ser::{SerializeMap, Serializer};
use serde::{Deserialize, Deserializer, Serialize};

/// Follows the number of objects that a list has.
const SO_FAR: &str = " objects so far";

/// State of a source, for status and metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceState {
    /// Not started yet.
    Waiting,
    /// A list is in progress; how many objects so far.
    Listing(u64),
    /// Changes since the position was lost are read from the API server's own history.
    Recovering,
    /// A watch is open.
    Watching,
    /// Waiting before the next try; the text says what failed and what to do.
    Degraded(String),
    /// The resource is not served any more.
    Gone,
}

impl SourceState {
    /// The words of all states.
    pub const WORDS: [&str; 6] = ["waiting", "listing", "recovering", "watching", "degraded", "gone"];

    /// The word in status and metrics.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Listing(_) => "listing",
            Self::Recovering => "recovering",
            Self::Watching => "watching",
            Self::Degraded(_) => "degraded",
            Self::Gone => "gone",
        }
    }

    /// Returns the detail of the state, such as the failure and the remedy.
    #[must_use]
    pub fn detail(&self) -> Cow<'_, str> {
        match self {
            Self::Listing(objects) => format!("{objects}{SO_FAR}").into(),
            Self::Degraded(text) => text.into(),
            Self::Waiting | Self::Recovering | Self::Watching | Self::Gone => "".into(),
        }
    }

    /// The state that these say.
    pub(super) fn read(word: &str, detail: String) -> Self {
        match word {
            "listing" => Self::Listing(detail.strip_suffix(SO_FAR).and_then(|n| n.parse().ok()).unwrap_or_default()),
            "recovering" => Self::Recovering,
            "watching" => Self::Watching,
            "degraded" => Self::Degraded(detail),
            "gone" => Self::Gone,
            _ => Self::Waiting,
        }
    }
}

impl Serialize for SourceState {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serialize(self.word(), &self.detail(), serializer)
    }
}

/// Returns the name of the fact that says how far a sink's output on one machine is.
pub(super) fn local_fact(sink: &str, machine: &str) -> String {
    format!("delivered/{sink}/{machine}")
}

/// State of a sink, for status and metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SinkState {
    /// Delivering, or waiting for entries.
    Running,
    /// The last try failed; the text says why.
    Retrying(String),
    /// Waits for an operator; the text says why and what to do.
    Halted(String),
}

impl SinkState {
    /// The words of all states.
    pub const WORDS: [&str; 3] = ["running", "retrying", "halted"];

    /// The word in status and metrics.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Retrying(_) => "retrying",
            Self::Halted(_) => "halted",
        }
    }

    /// Returns the detail of the state, such as the reason of a halt.
    #[must_use]
    pub fn detail(&self) -> &str {
        match self {
            Self::Running => "",
            Self::Retrying(text) | Self::Halted(text) => text,
        }
    }

    /// The state that these say.
    pub(super) fn read(word: &str, detail: String) -> Self {
        match word {
            "retrying" => Self::Retrying(detail),
            "halted" => Self::Halted(detail),
            _ => Self::Running,
        }
    }
}

impl Serialize for SinkState {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serialize(self.word(), self.detail(), serializer)
    }
}

impl<'de> Deserialize<'de> for SourceState {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Written::deserialize(deserializer).map(|Written { state, detail }| Self::read(&state, detail))
    }
}

impl<'de> Deserialize<'de> for SinkState {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Written::deserialize(deserializer).map(|Written { state, detail }| Self::read(&state, detail))
    }
}

/// A state as it is written.
#[derive(Deserialize)]
struct Written {
    state: String,
    #[serde(default)]
    detail: String,
}

/// `state`, and `detail` where there is any.
fn serialize<S: Serializer>(word: &str, detail: &str, serializer: S) -> Result<S::Ok, S::Error> {
    let mut state = serializer.serialize_map(None)?;
    state.serialize_entry("state", word)?;
    if !detail.is_empty() {
        state.serialize_entry("detail", detail)?;
    }
    state.end()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_read_as_it_was_written() {
        let text = || "it failed".to_owned();
        let all = [
            SourceState::Waiting,
            SourceState::Listing(5000),
            SourceState::Recovering,
            SourceState::Watching,
            SourceState::Degraded(text()),
            SourceState::Gone,
        ];
        for (state, word) in all.into_iter().zip(SourceState::WORDS) {
            assert_eq!(state.word(), word);
            assert_eq!(SourceState::read(word, state.detail().into_owned()), state);
        }
        let all = [SinkState::Running, SinkState::Retrying(text()), SinkState::Halted(text())];
        for (state, word) in all.into_iter().zip(SinkState::WORDS) {
            assert_eq!(state.word(), word);
            assert_eq!(SinkState::read(word, state.detail().to_owned()), state);
        }
    }
}
