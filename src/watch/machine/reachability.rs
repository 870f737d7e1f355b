//! Reachability of the API server, as far as its answers show.
//!
//! # Decision: one prober for all sources
//!
//! Context: Sixty sources that poll a dead API server are load at its start.
//! Decision: One prober asks `/readyz` once a second, while somebody waits, and wakes all within 200 ms. Any answer but 429
//! and 5xx counts. It sends no tokens. A source tries by itself once in 15 to 30 s, and one that was woken in vain three times
//! waits as after any failure. For half a minute after its first answer a server's denials are not reported.
//! Cost: A balancer may answer for a dead server.

use std::time::Duration;

/// Number of consecutive wake-ups that are trusted although no answer followed.
const CALLS: u32 = 3;

/// State of the API server's reachability.
#[derive(Clone, Debug, Default)]
pub(super) struct Reachability {
    /// It was away when it was last heard of.
    away: bool,
    /// Time of its first answer after that.
    began: Option<Duration>,
    /// We were called because it answers, and have not got anything of it since.
    called: bool,
    /// Number of consecutive fruitless wake-ups.
    fruitless_wakeups: u32,
}

impl Reachability {
    /// It may be away.
    pub(super) const fn is_away(&mut self) {
        self.away = true;
    }

    /// Handles that the server could not be reached. Reports whether to be woken when it answers: the answer that wakes us may
    /// come from another server.
    pub(super) fn not_reached(&mut self) -> bool {
        self.away = true;
        self.fruitless_wakeups += u32::from(std::mem::take(&mut self.called));
        self.fruitless_wakeups < CALLS
    }

    /// We are called because it answers: what failed while nobody was there says nothing about who is there now, and may
    /// still be beginning.
    pub(super) const fn call(&mut self) {
        (self.called, self.away, self.began) = (true, true, None);
    }

    /// The wait is over, or it has taken what we asked for.
    pub(super) const fn not_called(&mut self) {
        self.called = false;
    }

    /// A watch has shown that it is well.
    pub(super) const fn stable(&mut self) {
        self.fruitless_wakeups = 0;
    }

    /// We have got something of it.
    pub(super) const fn well(&mut self) {
        (self.called, self.fruitless_wakeups) = (false, 0);
    }

    /// It answers. Where nobody has said that it had been away it does not begin again before `forgive` is over: it may only
    /// have too much to do.
    pub(super) fn answered(&mut self, now: Duration, forgive: Duration) {
        let lately = self.began.is_some_and(|began| now.saturating_sub(began) <= forgive);
        if std::mem::take(&mut self.away) && !lately {
            self.began = Some(now);
        }
    }

    /// Reports whether it has begun within this time: then it denies everything until it has read the roles, and fails in other
    /// ways that pass.
    pub(super) fn has_just_begun(&self, now: Duration, within: Duration) -> bool {
        self.began.is_some_and(|began| now.saturating_sub(began) <= within)
    }
}
