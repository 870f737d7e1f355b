//! Notices that the clock was set, that the machine was suspended, and that this process stood still.
//!
//! Nothing here depends on the clock: waits are measured by monotonic time, and the order of entries is their seq. But a
//! person should know why entries carry the times that they do, and connections that have slept are better opened again.

use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};

use crate::query::status::Jump;

/// Clocks are corrected by less than this all the time.
const DRIFT_LIMIT: SignedDuration = SignedDuration::from_secs(10);
/// A look that comes so late was held up: the process was stopped, or the machine.
const SUSPENSION_MIN: Duration = Duration::from_secs(60);

/// Event between two observations of the clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// Nothing.
    Nothing,
    /// The clock jumped: it was set, or the machine was suspended.
    Jumped(Jump),
    /// The process stood still for so long.
    StoodStill(Duration),
}

/// Compares the clock with the time that has passed.
#[derive(Debug)]
pub(super) struct ClockWatch {
    clock: Timestamp,
    time: Instant,
}

impl ClockWatch {
    pub(super) fn new(clock: Timestamp, time: Instant) -> Self {
        Self { clock, time }
    }

    /// Compares the clocks with the last observation.
    pub(super) fn look(&mut self, clock: Timestamp, time: Instant) -> Seen {
        let passed = time.saturating_duration_since(self.time);
        let by_clock = clock.duration_since(self.clock);
        (self.clock, self.time) = (clock, time);
        let jump = by_clock.saturating_sub(SignedDuration::try_from(passed).unwrap_or(SignedDuration::MAX));
        if jump.abs() > DRIFT_LIMIT {
            Seen::Jumped(Jump { at: clock, seconds: jump.as_secs() })
        } else if passed > SUSPENSION_MIN {
            Seen::StoodStill(passed)
        } else {
            Seen::Nothing
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_clock_does_is_not_taken_for_what_time_does() {
        let (start, begin) = ("2026-11-21T10:00:00Z".parse::<Timestamp>().unwrap(), Instant::now());
        let mut watch = ClockWatch::new(start, begin);
        let (mut clock, mut time) = (start, begin);
        for (by_clock, passed, seen) in [
            (2, 2, None),
            (5, 2, None),
            (-3598, 2, Some(-3600)),
            (2, 2, None),
            (31_536_002, 2, Some(31_536_000)),
            (2, 2, None),
        ] {
            clock += SignedDuration::from_secs(by_clock);
            time += Duration::from_secs(passed);
            let expected = seen.map_or(Seen::Nothing, |seconds| Seen::Jumped(Jump { at: clock, seconds }));
            assert_eq!(watch.look(clock, time), expected);
        }
        clock += SignedDuration::from_secs(600);
        time += Duration::from_secs(600);
        assert_eq!(watch.look(clock, time), Seen::StoodStill(Duration::from_secs(600)));
    }
}
