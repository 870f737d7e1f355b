//! Clock for decisions about the age of data.

use std::time::Duration;

use tokio::time::Instant;

/// A wall clock that gains this much at once was set.
const CLOCK_STEP_LIMIT: Duration = Duration::from_hours(1);
/// Time that a person has to notice that a clock was set wrongly.
const CLOCK_STEP_HOLD_PERIOD: Duration = Duration::from_hours(24);

/// The wall clock, as far as it is believed. A clock that is set a year ahead would else make every entry old in that
/// moment; what is truncated because of it does not come back with the right time.
#[derive(Debug)]
pub(super) struct GuardedClock {
    /// A moment, and the time in it, microseconds since 1970.
    known: (Instant, i64),
    /// Since when the clock is ahead of what it should show.
    ahead: Option<Instant>,
}

impl GuardedClock {
    pub(super) const fn new(now: Instant, clock: i64) -> Self {
        Self { known: (now, clock), ahead: None }
    }

    /// The time, where the clock shows `clock`: never later than that.
    pub(super) fn time(&mut self, now: Instant, clock: i64) -> i64 {
        let (since, then) = self.known;
        let micros = |duration: Duration| i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
        let steady = then.saturating_add(micros(now.saturating_duration_since(since)));
        if clock <= steady.saturating_add(micros(CLOCK_STEP_LIMIT)) {
            self.ahead = None;
            return clock;
        }
        let ahead = *self.ahead.get_or_insert(now);
        if now.saturating_duration_since(ahead) < CLOCK_STEP_HOLD_PERIOD {
            return steady;
        }
        *self = Self::new(now, clock);
        clock
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_set_ahead_is_believed_a_day_later() {
        let (begin, hour) = (Instant::now(), Duration::from_hours(1));
        let micros = |hours: i64| hours * 3600 * 1_000_000;
        let mut guarded = GuardedClock::new(begin, micros(100));
        assert_eq!(guarded.time(begin + hour, micros(101)), micros(101));
        assert_eq!(guarded.time(begin + hour, micros(102)), micros(102), "it may be slow, or fast, or set a little");
        assert_eq!(guarded.time(begin + 2 * hour, micros(9000)), micros(102), "it was set");
        assert_eq!(guarded.time(begin + 3 * hour, micros(103)), micros(103), "and set back");
        assert_eq!(guarded.time(begin + 4 * hour, micros(9000)), micros(104));
        assert_eq!(guarded.time(begin + 27 * hour, micros(9023)), micros(127), "a day has not passed");
        assert_eq!(guarded.time(begin + 28 * hour, micros(9024)), micros(9024));
        assert_eq!(guarded.time(begin + 29 * hour, micros(9025)), micros(9025));
        assert_eq!(
            guarded.time(begin + 30 * hour, micros(50)),
            micros(50),
            "a clock that is set back makes nothing old"
        );
    }
}
