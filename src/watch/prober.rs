//! Finds out, for all who wait, when the API server answers again.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout};

use super::Shared;
use crate::core::backoff::random_up_to;
use crate::core::runtime::Signal;

/// Time limit of a probe: this, then twice and four times as long, and this again. A connection that was begun before the
/// network came back would block the one that is answered; but some networks are slow.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

/// Asks only while somebody waits, and as often for one as for a thousand.
#[derive(Debug, Default)]
pub(super) struct Prober {
    seen: Mutex<Seen>,
    /// Notified of each look.
    looked: Signal,
    /// Held by who looks: when the next look may be.
    turn: tokio::sync::Mutex<Option<Instant>>,
}

/// Looks are counted from 1.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    looks: u64,
    /// The last one that was answered.
    answered: u64,
    /// The last one that was answered after one that was not.
    back: u64,
    /// Looks without an answer, in a row.
    silent: u32,
}

impl Prober {
    /// Waits until the API server answers; where not `any` answer will do, until it does after it did not.
    pub(super) async fn answers(&self, shared: &Shared, any: bool) {
        let mut looked = self.looked.listen();
        let before = self.seen().looks;
        loop {
            looked.mark_seen();
            let seen = self.seen();
            if before < if any { seen.answered } else { seen.back } {
                return;
            }
            tokio::select! {
                biased;
                () = looked.notified() => {}
                mut turn = self.turn.lock() => {
                    if let Some(turn) = *turn {
                        sleep_until(turn).await;
                    }
                    let every = shared.timings.prober;
                    *turn = Some(Instant::now() + every + random_up_to(every / 10));
                    self.look(shared).await;
                    // Whoever has the turn next has heard of this look.
                    self.looked.notify();
                    drop(turn);
                }
            }
        }
    }

    fn seen(&self) -> Seen {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn look(&self, shared: &Shared) {
        let limit = PROBE_TIMEOUT * (1 << (self.seen().silent % 3));
        let answers = timeout(limit, shared.api.answers()).await.unwrap_or(false);
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.looks += 1;
        if !answers {
            seen.silent = seen.silent.saturating_add(1);
            return;
        }
        seen.answered = seen.looks;
        if std::mem::take(&mut seen.silent) > 0 {
            seen.back = seen.looks;
        }
    }
}
