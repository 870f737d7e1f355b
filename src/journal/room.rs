//! The room that the file system gives, as far as SQLite does not say it.

use std::io::{self, ErrorKind};

use rusqlite::ffi::{SQLITE_IOERR_SHMSIZE, SQLITE_IOERR_TRUNCATE, SQLITE_IOERR_WRITE};

use super::JournalError;

/// The writes that SQLite reports. A sync that fails is none: nothing in memory is believed after it.
const WRITES: [i32; 3] = [SQLITE_IOERR_WRITE, SQLITE_IOERR_SHMSIZE, SQLITE_IOERR_TRUNCATE];

/// The error of what SQLite refused. SQLite tells only ENOSPC apart from other errors of a write, so that the last error of
/// a system call in this thread says whether a quota or the limit of a file's size left no room. To be called right after.
pub(super) fn refused(what: String, error: rusqlite::Error) -> JournalError {
    let system = io::Error::last_os_error();
    let is_write = error.sqlite_error().is_some_and(|error| WRITES.contains(&error.extended_code));
    if is_write && is_no_room(&system) {
        JournalError::NoRoom { what, source: system }
    } else {
        JournalError::Sqlite { what, source: error }
    }
}

/// Reports whether a write failed for want of room: on the disk, in a quota, or below the limit of a file's size.
fn is_no_room(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge)
}

/// Returns the remedy for an error of [`JournalError::NoRoom`].
pub(super) fn advice(error: &io::Error) -> &'static str {
    #[expect(clippy::wildcard_enum_match_arm, reason = "there are dozens of kinds, and three of them mean no room")]
    match error.kind() {
        ErrorKind::FileTooLarge => "raise the limit of a file's size (LimitFSIZE=, ulimit -f)",
        ErrorKind::QuotaExceeded => "free some space, or raise the quota of decklog's user",
        _ => "free some space",
    }
}
