//! Pace of a sink with a rate.

use super::{Duration, Instant, Limits};

/// Keeps deliveries to a number of entries in a second.
pub(crate) struct Pace {
    rate: u32,
    /// Time at which the next batch may be read.
    pub(crate) next: Instant,
}

impl Pace {
    pub(crate) fn new(rate: u32) -> Self {
        Self { rate: rate.max(1), next: Instant::now() }
    }

    /// Reduces the limits of a sink to its rate.
    pub(crate) fn limits(&self, limits: Limits) -> Limits {
        Limits { entries: limits.entries.min(self.rate as usize), ..limits }
    }

    /// Counts delivered entries. Unused capacity does not accumulate.
    pub(crate) fn passed(&mut self, entries: usize, now: Instant) {
        let share = Duration::from_secs(1) / self.rate;
        self.next = self.next.max(now) + share.saturating_mul(u32::try_from(entries).unwrap_or(u32::MAX));
    }
}
