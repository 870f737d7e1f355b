//! Timeouts of a blocking thread: it waits in slices, so that it ends soon after its caller has gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The longest that a call blocks without a look at whether somebody still waits.
const BLOCKING_CALL_MAX: Duration = Duration::from_millis(200);

/// See the module.
#[derive(Debug)]
pub(super) struct Patience {
    timeout: Duration,
    until: Instant,
    abandoned: Arc<AtomicBool>,
}

/// The waiting caller; once it is dropped, the thread may stop.
#[derive(Debug)]
pub(super) struct Waiter(Arc<AtomicBool>);

impl Drop for Waiter {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

impl Patience {
    pub(super) fn new(timeout: Duration) -> (Self, Waiter) {
        let abandoned = Arc::new(AtomicBool::new(false));
        let patience = Self { timeout, until: Instant::now() + timeout, abandoned: Arc::clone(&abandoned) };
        (patience, Waiter(abandoned))
    }

    /// Restarts the timeout after progress.
    pub(super) fn renew(&mut self) {
        self.until = Instant::now() + self.timeout;
    }

    /// Returns the longest time that the next call may block.
    pub(super) fn slice(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now()).clamp(Duration::from_millis(1), BLOCKING_CALL_MAX)
    }

    /// Reports whether to give up.
    pub(super) fn is_over(&self) -> bool {
        self.abandoned.load(Relaxed) || Instant::now() >= self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_ends_with_its_time_or_with_who_waits() {
        let (mut patience, waiter) = Patience::new(Duration::from_hours(1));
        assert!(!patience.is_over() && patience.slice() == BLOCKING_CALL_MAX);
        drop(waiter);
        assert!(patience.is_over());
        let (over, _waiter) = Patience::new(Duration::ZERO);
        assert!(over.is_over() && over.slice() < BLOCKING_CALL_MAX);
        patience.renew();
        assert!(patience.is_over(), "nobody waits");
    }
}
