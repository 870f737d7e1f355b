//! Bounds on what decklog asks of an API server at once, over all sources.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Hands out places for lists, and for requests that are answered at once.
#[derive(Clone, Debug)]
pub(super) struct Limiter {
    lists: Arc<Semaphore>,
    requests: Arc<Semaphore>,
    audits: Arc<Semaphore>,
}

impl Limiter {
    pub(super) fn new(lists: usize, requests: usize) -> Self {
        let places = |places: usize| Arc::new(Semaphore::new(places.max(1)));
        Self { lists: places(lists), requests: places(requests), audits: places(1) }
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
        place(&self.requests).await
    }
}

async fn place(semaphore: &Arc<Semaphore>) -> OwnedSemaphorePermit {
    Arc::clone(semaphore).acquire_owned().await.expect("these semaphores are never closed")
}
