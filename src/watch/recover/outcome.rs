//! Ends of a recovery, and its cost.

use std::fmt;
use std::sync::atomic::AtomicU32;

use tokio::time::Instant;

use super::plan::Inconsistency;
use crate::core::model::ResourceVersion;
use crate::journal::JournalError;
use crate::watch::cluster::Unreadable;
use crate::watch::requests::Stop;

/// Cost of the recovery since the position was lost.
#[derive(Debug)]
pub(in crate::watch) struct RecoveryCost {
    pub(super) since: Instant,
    pub(super) requests: AtomicU32,
}

impl RecoveryCost {
    pub(in crate::watch) fn new() -> Self {
        Self { since: Instant::now(), requests: AtomicU32::new(0) }
    }
}

/// End of a recovery.
#[derive(Debug)]
pub(in crate::watch) enum Outcome {
    /// Success: everything up to this version is in the journal.
    Done(ResourceVersion),
    /// The versions before this one are gone, and this one can be had.
    Compacted(ResourceVersion),
    /// It cannot be recovered, or not within the bounds.
    Unrecoverable(String),
    /// Suspicion: so many objects seem to be gone that another cluster may have answered.
    ListTooShort(String),
    /// The journal has no room for what was found.
    NoRoom(String),
}

/// Reason why a window failed.
pub(in crate::watch) enum WindowError {
    Compacted,
    Unrecoverable(String),
    ListTooShort(String),
    NoRoom(String),
    Unreadable(Unreadable),
    RevisionConflict,
    Stop(Stop),
}

impl fmt::Display for WindowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Compacted => f.write_str("its history is compacted"),
            Self::Unrecoverable(text) | Self::ListTooShort(text) | Self::NoRoom(text) => f.write_str(text),
            Self::Unreadable(unreadable) => unreadable.fmt(f),
            Self::RevisionConflict => f.write_str("its revisions are those of another resource"),
            Self::Stop(Stop::Failure(failure)) => failure.fmt(f),
            Self::Stop(Stop::Journal(error)) => error.fmt(f),
        }
    }
}

impl From<Inconsistency> for WindowError {
    fn from(doubt: Inconsistency) -> Self {
        match doubt {
            Inconsistency::RevisionConflict => Self::RevisionConflict,
            Inconsistency::Contradiction => Self::Unrecoverable(
                "the API server's answers about the past contradict each other, or the log".to_owned(),
            ),
        }
    }
}

impl From<Stop> for WindowError {
    fn from(stop: Stop) -> Self {
        Self::Stop(stop)
    }
}

impl From<JournalError> for WindowError {
    fn from(error: JournalError) -> Self {
        Self::Stop(error.into())
    }
}
