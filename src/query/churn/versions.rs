//! Versions in the log, to be compared with the requests that the API server counted over the same time.

use std::collections::BTreeMap;

use crate::core::model::EntryType;
use crate::core::wire::{EntryError, Header};

/// Entries of one resource in the given stretches of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Of {
    pub(super) added: u64,
    pub(super) modified: u64,
    pub(super) deleted: u64,
    /// Set if a gap lies in the stretches, so that entries may be missing.
    pub(super) gap: bool,
}

/// Counts the versions of stretches of time.
#[derive(Debug, Default)]
pub struct Versions {
    /// Microseconds since 1970, in order.
    stretches: Vec<(i64, i64)>,
    pub(super) counts: BTreeMap<String, Of>,
}

impl Versions {
    /// Creates the counter of these stretches, in order; microseconds since 1970.
    #[must_use]
    pub fn of(stretches: &[(i64, i64)]) -> Self {
        Self { stretches: stretches.to_vec(), counts: BTreeMap::new() }
    }

    /// Takes an entry. Without stretches no line is read.
    ///
    /// # Errors
    /// Where the line is none.
    pub fn take(&mut self, line: &[u8]) -> Result<(), EntryError> {
        if self.stretches.is_empty() {
            return Ok(());
        }
        let entry = Header::parse(line)?;
        if entry.op == EntryType::Actor {
            return Ok(());
        }
        let Ok(time) = entry.time.parse::<jiff::Timestamp>() else { return Ok(()) };
        let time = time.as_microsecond();
        let after = self.stretches.partition_point(|(since, _)| *since < time);
        let inside = after.checked_sub(1).is_some_and(|at| time <= self.stretches[at].1);
        if !inside {
            return Ok(());
        }
        let of = self.counts.entry(entry.full_resource()).or_default();
        if entry.evidence.as_deref() == Some("watched") {
            match entry.op {
                EntryType::Added => of.added += 1,
                EntryType::Modified => of.modified += 1,
                EntryType::Deleted => of.deleted += 1,
                EntryType::Gap | EntryType::Actor => {}
            }
        } else if entry.evidence.as_deref() != Some("listed") {
            // A gap, or what followed from one.
            of.gap = true;
        }
        Ok(())
    }
}
