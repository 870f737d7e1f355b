//! Bounds on what decklog asks of an API server at once, over all sources.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until};

/// Hands out places for lists, and for requests that are answered at once, and turns in time.
#[derive(Clone, Debug)]
pub(super) struct Limiter {
    lists: Arc<Semaphore>,
    requests: Arc<Semaphore>,
    audits: Arc<Semaphore>,
    /// When the next turn would be if each had to wait for the one before it.
    turn: Arc<Mutex<Option<Instant>>>,
    /// Between two turns.
    every: Duration,
}

impl Limiter {
    /// `rate` requests a second, after a rush of at most as many.
    pub(super) fn new(lists: usize, requests: usize, rate: u32) -> Self {
        let places = |places: usize| Arc::new(Semaphore::new(places.max(1)));
        let every = Duration::from_secs(1) / rate.max(1);
        Self { lists: places(lists), requests: places(requests), audits: places(1), turn: Arc::default(), every }
    }

    /// Waits for a turn to ask. Whoever has not asked for a second does not wait.
    pub(super) async fn turn(&self) {
        let (now, rush) = (Instant::now(), Duration::from_secs(1));
        let turn = {
            let mut next = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
            let turn = next.map_or(now, |next| next.max(now));
            *next = Some(turn + self.every);
            turn
        };
        sleep_until(turn.checked_sub(rush).unwrap_or(now)).await;
    }

    /// A place for a whole list, from its first page until it is written or has failed.
    pub(super) async fn list(&self) -> OwnedSemaphorePermit {
        place(&self.lists).await
    }

    /// The only place for the list of an audit: audits can wait.
    pub(super) async fn audit(&self) -> OwnedSemaphorePermit {
        place(&self.audits).await
    }

    /// A place for a request until the head of its answer.
    pub(super) async fn request(&self) -> OwnedSemaphorePermit {
        let place = place(&self.requests).await;
        self.turn().await;
        place
    }
}

async fn place(semaphore: &Arc<Semaphore>) -> OwnedSemaphorePermit {
    Arc::clone(semaphore).acquire_owned().await.expect("these semaphores are never closed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn after_a_rush_turns_come_at_their_rate() {
        let limiter = Limiter::new(1, 1, 200);
        let mut turns = Vec::new();
        for rest in [0, 10, 0] {
            tokio::time::sleep(Duration::from_secs(rest)).await;
            for _ in 0..700 {
                limiter.turn().await;
                turns.push(Instant::now());
            }
        }
        let within = |first: usize| turns[first..].partition_point(|at| *at - turns[first] <= Duration::from_secs(1));
        let most = (0..turns.len()).map(within).max().unwrap();
        assert!((400..=402).contains(&most), "{most} in a second");
    }
}
