//! Notices that this process did not run for a while, so that what comes next is not taken for what happens now.
//!
//! A stopped process finds what has come meanwhile in its sockets, and reads it as if it came at that moment.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::core::runtime;

/// Time between two beats.
const INTERVAL: Duration = Duration::from_millis(500);
/// A beat that comes so late was held up: the process was stopped, or the machine.
const PAUSE_MIN: Duration = Duration::from_secs(2);

/// A beat at short intervals for as long as the process runs. Without a beat nothing is noticed.
#[derive(Debug, Default)]
pub(crate) struct Heartbeat(Mutex<Beats>);

#[derive(Debug, Default)]
struct Beats {
    last: Option<Beat>,
    /// The last beat before the newest pause, and the end of that.
    pause: Option<(Beat, Instant)>,
}

#[derive(Clone, Copy, Debug)]
struct Beat {
    at: Instant,
    clock: Timestamp,
}

impl Heartbeat {
    /// Beats until `stop` is cancelled.
    pub(crate) async fn run(&self, stop: CancellationToken) {
        while !stop.is_cancelled() {
            self.beat(Instant::now(), runtime::now());
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                () = tokio::time::sleep(INTERVAL) => {}
            }
        }
    }

    fn beat(&self, now: Instant, clock: Timestamp) {
        let mut beats = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = beats.last.filter(|last| now.duration_since(last.at) >= PAUSE_MIN) {
            beats.pause = Some((last, now));
        }
        beats.last = Some(Beat { at: now, clock });
    }

    /// Returns the time at which the process last ran before a pause that has ended since `since`, or ends now.
    pub(crate) fn paused_since(&self, since: Instant, now: Instant) -> Option<Timestamp> {
        let beats = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let paused = beats.pause.filter(|(_, ended)| *ended >= since).map(|(last, _)| last);
        let pauses = beats.last.filter(|last| now.duration_since(last.at) >= PAUSE_MIN);
        paused.or(pauses).map(|last| last.clock)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_pause_is_noticed_before_and_after_the_next_beat() {
        let (begin, heart) = (Instant::now(), Heartbeat::default());
        let clock = |seconds: i64| Timestamp::from_second(1_700_000_000 + seconds).unwrap();
        let at = |seconds: u64| begin + Duration::from_secs(seconds);
        assert_eq!(heart.paused_since(at(0), at(100)), None, "without a beat nothing is noticed");
        for second in 0..=10 {
            heart.beat(at(second), clock(i64::try_from(second).unwrap()));
        }
        assert_eq!(heart.paused_since(at(0), at(11)), None);
        // The process stops until 70, and reads before it beats.
        assert_eq!(heart.paused_since(at(9), at(70)), Some(clock(10)));
        heart.beat(at(70), clock(70));
        assert_eq!(heart.paused_since(at(9), at(70)), Some(clock(10)), "who waited meanwhile");
        assert_eq!(heart.paused_since(at(71), at(71)), None, "who began to wait afterwards");
    }
}
