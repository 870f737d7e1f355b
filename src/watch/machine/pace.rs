//! Rate limit for requests to an API server, whatever it answers.
//!
//! # Decision: a rest follows the previous request
//!
//! Context: Waits after failures do not bound what a server can cause that answers.
//! Decision: The machine records its requests, and rests before one that would come too soon: two watches are half a second
//! apart, further pages have a bound of their own. So a long watch reopens at once. A limiter gives 200 turns a second over
//! all sources.
//! Cost: At most two watches a second for each source.

use std::collections::VecDeque;
use std::time::Duration;

use super::Effect;

/// Number of requests that fit into the interval of two watches.
pub(super) const REQUESTS: usize = 4;
/// … and so many further pages of a list beside them.
pub(super) const PAGES: usize = 25;

/// Times of a source's latest requests, as far back as they matter.
#[derive(Clone, Debug)]
pub(super) struct Pace {
    apart: Duration,
    watch: Option<Duration>,
    requests: VecDeque<Duration>,
    pages: VecDeque<Duration>,
}

impl Pace {
    pub(super) const fn new(apart: Duration) -> Self {
        Self { apart, watch: None, requests: VecDeque::new(), pages: VecDeque::new() }
    }

    /// Returns the rest before this request, and counts it.
    pub(super) fn rest(&mut self, now: Duration, what: &Effect) -> Duration {
        let further = matches!(what, Effect::List { token: Some(_), .. });
        let (asked, most) = if further { (&mut self.pages, PAGES) } else { (&mut self.requests, REQUESTS) };
        let mut at = now;
        if asked.len() >= most
            && let Some(first) = asked.pop_front()
        {
            at = at.max(first + self.apart);
        }
        if matches!(what, Effect::Watch(_)) {
            at = at.max(self.watch.map_or(at, |watch| watch + self.apart));
            self.watch = Some(at);
        }
        asked.push_back(at);
        at.saturating_sub(now)
    }
}
