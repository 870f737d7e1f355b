//! What sources and sinks are doing, for status and metrics.

/// What a source is doing, for status and metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceState {
    /// Not started yet.
    Waiting,
    /// A list is in progress; how many objects so far.
    Listing(u64),
    /// What happened since the position was lost is read from the API server's own history.
    Recovering,
    /// A watch is open.
    Watching,
    /// Waiting before the next try; the text says what failed and what to do.
    Degraded(String),
    /// The resource is not served any more.
    Gone,
}

impl SourceState {
    /// The word in status and metrics, and what it adds.
    #[must_use]
    pub fn describe(&self) -> (&'static str, String) {
        match self {
            Self::Waiting => ("waiting", String::new()),
            Self::Listing(objects) => ("listing", format!("{objects} objects so far")),
            Self::Recovering => ("recovering", String::new()),
            Self::Watching => ("watching", String::new()),
            Self::Degraded(text) => ("degraded", text.clone()),
            Self::Gone => ("gone", String::new()),
        }
    }
}

/// How a sink is doing, for status and metrics.
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
    /// The word in status and metrics, and what it adds.
    #[must_use]
    pub fn describe(&self) -> (&'static str, &str) {
        match self {
            Self::Running => ("running", ""),
            Self::Retrying(text) => ("retrying", text),
            Self::Halted(text) => ("halted", text),
        }
    }
}
