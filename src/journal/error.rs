//! Errors of a journal, in one place.

use std::path::PathBuf;

use crate::core::model::Seq;

/// Result of a journal operation.
pub(super) type Result<T = (), E = JournalError> = std::result::Result<T, E>;

/// Error of a journal.
///
/// Every method of a handle ([`Journal`](super::Journal), [`SourceJournal`](super::SourceJournal),
/// [`SinkJournal`](super::SinkJournal)) that says nothing else fails for one reason: the writer has stopped, because a
/// write failed or the daemon ends ([`JournalError::Stopped`]). It is the end of the process: nothing is tried again.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// Another process holds the state directory.
    #[error("another decklog{} holds the state directory {}; stop it, or set another [state] path", holder(*.pid), .dir.display())]
    Locked {
        /// The directory.
        dir: PathBuf,
        /// The other process, where the lock file names it.
        pid: Option<u32>,
    },
    /// The database has a schema that this build does not know.
    #[error("{} was written by a newer decklog (schema {found}, this one knows {known}); run that version, or give this one a new [state] path", .path.display())]
    Newer {
        /// The database.
        path: PathBuf,
        /// Its schema.
        found: usize,
        /// The newest schema that this build knows.
        known: usize,
    },
    /// The journal has no digests of these entries any more, nor the entries, and no directory of evidence has them.
    #[error(
        "the digests of the entries {first} to {last} {why}, and no directory of [evidence] has them in {tile}; copy what is \
         below {tree} from another place of the evidence to the one that lacks it, or to a directory that [evidence] dir names"
    )]
    Placed {
        /// The first entry.
        first: Seq,
        /// The last one.
        last: Seq,
        /// The reason why the journal does not give them, as a predicate.
        why: String,
        /// Directory of the tree.
        tree: String,
        /// The bundle that has them.
        tile: String,
    },
    /// There is no journal.
    #[error("there is no journal in {}; start `decklog run`, or name the right directory in [state] path", .0.display())]
    Missing(PathBuf),
    /// The journal is of another cluster.
    #[error(
        "the journal belongs to the cluster {ours} but the API server is the cluster {theirs}; set another [state] path for another cluster"
    )]
    OtherCluster {
        /// uid that the journal has.
        ours: String,
        /// uid that the API server has.
        theirs: String,
    },
    /// The file system refused.
    #[error("{what}: {source}; check its owner, its permissions and the space on the disk")]
    Io {
        /// The attempted operation.
        what: String,
        /// The cause.
        source: std::io::Error,
    },
    /// SQLite refused.
    #[error("{what}: {source}{}", advice(.source))]
    Sqlite {
        /// The attempted operation.
        what: String,
        /// The cause.
        source: rusqlite::Error,
    },
    /// A write was refused for want of room that SQLite does not report as such: by a quota, or by the limit of a file's size.
    #[error("{what}: {source}; {}: nothing that was taken is lost", super::room::advice(.source))]
    NoRoom {
        /// The attempted operation.
        what: String,
        /// The cause.
        source: std::io::Error,
    },
    /// The stored data contradict themselves.
    #[error("{0}")]
    Corrupt(String),
    /// The journal does not lead any more, or does not have what the shared log has: it goes on as a standby.
    #[error("this decklog leads no more: {0}")]
    Superseded(String),
    /// The journal and the shared log do not belong together.
    #[error("{0}")]
    Foreign(String),
    /// Somebody reads who may not, or of whom the API server does not say what it may.
    #[error("{0}")]
    Refused(crate::core::rights::Refusal),
    /// The writer has ended, for this reason.
    #[error("the journal's writer has stopped: {0}")]
    Stopped(String),
}

impl JournalError {
    /// An entry cannot be read.
    pub(crate) fn damaged(seq: Seq, why: &dyn std::fmt::Display) -> Self {
        Self::Corrupt(format!("entry {seq} is damaged ({why}); run `decklog verify`"))
    }

    /// Reports whether there was no room, on the disk or in the size that the journal may have.
    pub(super) fn is_full(&self) -> bool {
        match self {
            Self::Sqlite { source, .. } => source.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull),
            Self::NoRoom { .. } => true,
            Self::Locked { .. }
            | Self::Newer { .. }
            | Self::Missing(_)
            | Self::Placed { .. }
            | Self::OtherCluster { .. }
            | Self::Io { .. }
            | Self::Corrupt(_)
            | Self::Superseded(_)
            | Self::Foreign(_)
            | Self::Refused(_)
            | Self::Stopped(_) => false,
        }
    }
}

fn holder(pid: Option<u32>) -> String {
    pid.map(|pid| format!(" (process {pid})")).unwrap_or_default()
}

fn advice(error: &rusqlite::Error) -> &'static str {
    match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::DiskFull) => {
            "; free some space and start decklog again: nothing that was taken is lost"
        }
        Some(
            rusqlite::ErrorCode::SystemIoFailure | rusqlite::ErrorCode::CannotOpen | rusqlite::ErrorCode::ReadOnly,
        ) => "; check the disk, the owner and the permissions of the state directory",
        Some(rusqlite::ErrorCode::DatabaseCorrupt | rusqlite::ErrorCode::NotADatabase) => {
            "; run `decklog verify`, and restore the state directory or give a new [state] path"
        }
        _ => "",
    }
}
