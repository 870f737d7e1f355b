//! Conclusions from the ends of watches that brought nothing.
//!
//! # Decision: a quiet position moves with the ends of watches
//!
//! Context: Events have no bookmarks, and a position that does not move is compacted after minutes.
//! Decision: Before each watch the source asks for the server's version V. If two watches from its position end as requested,
//! without an event, and last two minutes together, nothing happened up to V, and the position moves there. Proxies that cut
//! idle connections are detected, and watches made shorter.
//! Cost: Not a proof as a bookmark is: an etcd that answers lists and withholds history would hide a short-lived object. The
//! audit finds others.

use std::collections::VecDeque;
use std::time::Duration;

use crate::core::model::ResourceVersion;

/// Shortest idle time after which connections are cut.
const IDLE_CUT_MIN: Duration = Duration::from_secs(10);
/// … and at most. Bookmarks come every minute, and where none come no watch is as long.
const IDLE_CUT_MAX: Duration = Duration::from_secs(120);
/// Two watches that differ by no more than this were cut by the same clock.
const SAME_CUT_LIMIT: Duration = Duration::from_secs(2);
/// For this long watches are shorter then. Whoever cut them may go, and two more of them show whether he has.
const SHORT_WATCHES_PERIOD: Duration = Duration::from_secs(3600);

/// The ends of quiet watches.
#[derive(Clone, Debug, Default)]
pub(super) struct Quiet {
    /// Versions of the API server before each of the watches that ended when they were asked to, and their durations, the
    /// oldest first.
    over: VecDeque<(ResourceVersion, Duration)>,
    /// Duration of the previous watch, if it was cut.
    cut: Option<Duration>,
    /// Duration to which watches are limited, and the end of that limit.
    shorter: Option<(Duration, Duration)>,
}

impl Quiet {
    /// A watch has ended when it was asked to. Returns up to where nothing has happened, where that is known now: two
    /// watches at least say so, which had time enough.
    pub(super) fn over(
        &mut self,
        mark: ResourceVersion,
        lived: Duration,
        together: Duration,
    ) -> Option<ResourceVersion> {
        self.over.push_back((mark, lived));
        let mut up_to = None;
        while self.over.len() > 1 && self.over.iter().map(|(_, lived)| *lived).sum::<Duration>() >= together {
            up_to = self.over.pop_front().map(|(mark, _)| mark);
        }
        up_to
    }

    /// A watch was cut. After a second one of the same length the next ones are to end before that.
    pub(super) fn cut(&mut self, now: Duration, lived: Duration) {
        let before = self.cut.replace(lived);
        let alike = before.is_some_and(|before| before.abs_diff(lived) <= SAME_CUT_LIMIT);
        if alike && (IDLE_CUT_MIN..=IDLE_CUT_MAX).contains(&lived) {
            self.shorter = Some((lived - lived / 7, now + SHORT_WATCHES_PERIOD));
        }
    }

    /// A watch ended in another way than by a cut.
    pub(super) const fn not_cut(&mut self) {
        self.cut = None;
    }

    /// Handles that something has happened.
    pub(super) fn news(&mut self) {
        self.over.clear();
        self.cut = None;
    }

    /// Returns the longest duration of a watch that is not cut.
    pub(super) fn longest(&self, now: Duration) -> Option<Duration> {
        self.shorter.filter(|(_, until)| now < *until).map(|(longest, _)| longest)
    }
}
