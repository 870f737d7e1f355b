//! Backoff with *full jitter*: a wait is any time up to a bound that doubles with each failure. Clients that fail together then
//! do not come back together. The randomness is that of [`runtime`].

use std::time::Duration;

use crate::core::runtime;

/// The bounds of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// After the first failure …
    pub first: Duration,
    /// … and at most.
    pub most: Duration,
}

impl Backoff {
    /// Returns the wait after so many consecutive failures.
    #[must_use]
    pub fn wait(&self, failures: u32) -> Duration {
        random_up_to(self.bound(failures))
    }

    fn bound(&self, failures: u32) -> Duration {
        self.first.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(self.most)
    }
}

/// Any time up to `bound`, in milliseconds.
#[must_use]
pub fn random_up_to(bound: Duration) -> Duration {
    let bound = u64::try_from(bound.as_millis()).unwrap_or(u64::MAX);
    Duration::from_millis(runtime::random() % bound.saturating_add(1))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_bound_doubles_up_to_the_longest() {
        let backoff = Backoff { first: Duration::from_millis(200), most: Duration::from_secs(30) };
        for (failures, bound) in [(0, 200), (1, 200), (2, 400), (3, 800), (8, 25_600), (9, 30_000), (u32::MAX, 30_000)]
        {
            assert_eq!(backoff.bound(failures), Duration::from_millis(bound), "after {failures} failures");
        }
    }

    #[test]
    fn a_wait_is_any_time_up_to_its_bound() {
        let backoff = Backoff { first: Duration::from_millis(2), most: Duration::from_millis(4) };
        let waits: BTreeSet<_> = (0..1000).map(|_| backoff.wait(5).as_millis()).collect();
        assert_eq!(waits, BTreeSet::from([0, 1, 2, 3, 4]));
        assert_eq!(random_up_to(Duration::ZERO), Duration::ZERO);
    }
}
