//! Limits of the journal's size, and how it is divided: arithmetic without any I/O. `writer/truncate` finds what is truncated, and removes it.
//!
//! `max_size` is split: the write-ahead log has a part of its own, and the database the rest. Both are held by counting
//! before anything is taken from a source, so that the writer stops reading the cluster in time; SQLite's own bound on
//! the pages of the database is behind that.
//!
//! # Decision: `max_size` is divided
//!
//! Context: The journal must never exceed its size, and cursors must move when it is full.
//! Decision: A quarter, at most 128 MiB, is for the write-ahead log, the rest for the database. Space is counted before
//! anything is taken from a source, and half of the log's part is left for cursors. A transaction that does not fit all the
//! same is rolled back and tried again one command at a time, as on a full disk.
//! Cost: A part of the disk stays unused.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Limits by the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Database and write-ahead log together never outgrow this, in bytes.
    pub max_size: u64,
    /// Entries older than this, and taken by every sink, are truncated.
    pub max_age: Duration,
    /// True if entries that a sink has not taken may be truncated at `max_size`.
    pub drop_oldest: bool,
}

/// Reason why reading the cluster is paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PauseReason {
    /// The journal has `max_size`, and nothing may be truncated.
    MaxSize,
    /// The disk is full.
    DiskFull,
    /// A reader keeps a transaction open, so that the write-ahead log cannot be emptied.
    Reader,
}

impl PauseReason {
    /// Every reason.
    pub const ALL: [Self; 3] = [Self::MaxSize, Self::DiskFull, Self::Reader];

    /// The word in status and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::MaxSize => "max_size",
            Self::DiskFull => "disk_full",
            Self::Reader => "reader",
        }
    }
}

/// Pause of reading the cluster: its start, cause and remedy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    /// Why.
    pub why: PauseReason,
    /// Since when, microseconds since 1970.
    pub since: i64,
    /// A sentence for people.
    pub detail: String,
}

/// Extent of the log, and of its truncation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retained {
    /// The log start: the first seq that is kept; 1 while nothing is truncated.
    pub oldest: u64,
    /// Time at which that entry was journaled, microseconds since 1970; `None` in an empty journal.
    pub oldest_time: Option<i64>,
    /// Number of truncated entries.
    pub removed: u64,
    /// Set while nothing is taken from the cluster.
    pub paused: Option<Pause>,
}

/// Rows that one slice of truncation takes at most: what the writer does between two commits is short.
pub(super) const SLICE_ENTRIES: usize = 256;
/// Bytes of rows that one slice takes at most (and at least one row).
pub(super) const SLICE_BYTES: u64 = 1 << 20;
/// Pages that one slice gives back to the file system at most.
pub(super) const SLICE_PAGES: u64 = 256;
/// Bytes of a page; fixed when a journal is made.
pub(super) const PAGE: u64 = 4096;

const MIB: u64 = 1 << 20;

/// The parts of `max_size`, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sizes {
    /// The database never has more.
    pub(super) database: u64,
    /// While it holds more than this, the oldest entries are truncated where that is allowed.
    pub(super) high: u64,
    /// Part of that which is reserved for lists in progress.
    pub(super) staging: u64,
    /// The write-ahead log never has more.
    pub(super) wal: u64,
    /// The write-ahead log is written back into the database when it has this much.
    pub(super) checkpoint: u64,
    /// A transaction takes this many bytes of objects.
    pub(super) group: usize,
    /// Kept free on the disk, so that a full one can still be reported.
    pub(super) reserve: u64,
}

impl Sizes {
    /// The parts of `max_size` on a disk of so many bytes. Everything shrinks with the smaller of the two, so that also
    /// a small disk has room for what is written when it is full.
    pub(super) fn of(max_size: u64, disk: u64) -> Self {
        let whole = max_size.min(disk).max(MIB);
        let reserve = (whole / 16).min(16 * MIB);
        let wal = (whole / 4).min(128 * MIB);
        let database = max_size.max(MIB).saturating_sub(wal);
        // A slice or a group on its way fits between the two.
        let high = database - (database / 8).min(32 * MIB);
        let staging = (database / 8).min(1 << 30);
        let checkpoint = (reserve / 4 * 3).max(16 * PAGE);
        let group = usize::try_from((whole / 64).min(8 * MIB)).unwrap_or(usize::MAX);
        Self { database, high, staging, wal, checkpoint, group, reserve }
    }

    /// Returns the size of the write-ahead log beyond which nothing is taken from sources: the rest is for cursors, and for one
    /// transaction in progress.
    pub(super) const fn wal_for_sources(&self) -> u64 {
        self.wal / 2
    }

    /// Returns the size of the write-ahead log beyond which nothing is written.
    pub(super) const fn wal_for_all(&self) -> u64 {
        self.wal - self.wal / 16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_are_no_more_than_the_whole() {
        for max_size in [MIB, 4 * MIB, 64 * MIB, 1 << 30, 10 << 30, 1 << 40] {
            for disk in [3 * MIB, 1 << 30, u64::MAX] {
                let sizes = Sizes::of(max_size, disk);
                assert!(sizes.database + sizes.wal <= max_size, "{max_size} {disk} {sizes:?}");
                assert!(sizes.high < sizes.database && sizes.wal <= 128 * MIB, "{sizes:?}");
                assert!(sizes.checkpoint < sizes.wal_for_sources(), "{sizes:?}");
                assert!(sizes.wal_for_sources() + 2 * sizes.group as u64 <= sizes.wal_for_all(), "{sizes:?}");
            }
        }
        let usual = Sizes::of(10 << 30, 1 << 40);
        assert_eq!((usual.wal, usual.reserve, usual.group), (128 * MIB, 16 * MIB, 8 << 20));
    }
}
