//! A bell that many can listen to, and that wakes them in the order in which they began to wait. A watch channel of
//! tokio wakes its receivers in an order of chance, which no seed decides.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

/// Clones are handles of the same bell.
#[derive(Clone, Debug, Default)]
pub struct Bell(Arc<Rung>);

#[derive(Debug, Default)]
struct Rung {
    times: AtomicU64,
    waiting: Notify,
}

/// Hears each ring after its beginning, several as one.
#[derive(Clone, Debug)]
pub struct Listener {
    bell: Bell,
    heard: u64,
}

impl Bell {
    /// Wakes everybody who listens.
    pub fn ring(&self) {
        self.0.times.fetch_add(1, Ordering::SeqCst);
        self.0.waiting.notify_waiters();
    }

    /// Hears the rings from now on.
    #[must_use]
    pub fn listen(&self) -> Listener {
        Listener { bell: self.clone(), heard: self.times() }
    }

    /// How often it has rung.
    #[must_use]
    pub fn times(&self) -> u64 {
        self.0.times.load(Ordering::SeqCst)
    }
}

impl Listener {
    /// Waits for a ring that it has not heard, and has heard it then.
    pub async fn rung(&mut self) {
        loop {
            // It counts as waiting from here on, so that no ring falls between the look and the wait.
            let ring = self.bell.0.waiting.notified();
            if self.has_rung() {
                break;
            }
            ring.await;
        }
        self.forget();
    }

    /// Whether there was a ring that it has not heard.
    #[must_use]
    pub fn has_rung(&self) -> bool {
        self.heard != self.bell.times()
    }

    /// Has heard every ring so far.
    pub fn forget(&mut self) {
        self.heard = self.bell.times();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use futures::future::join_all;

    use super::*;

    #[tokio::test]
    async fn listeners_are_woken_in_their_order() {
        let (bell, woken) = (Bell::default(), Mutex::new(Vec::new()));
        let listeners = (0..20).map(|number| {
            let (mut listener, woken) = (bell.listen(), &woken);
            async move {
                listener.rung().await;
                woken.lock().unwrap().push(number);
            }
        });
        tokio::join!(join_all(listeners), async { bell.ring() });
        assert_eq!(*woken.lock().unwrap(), (0..20).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn a_ring_is_heard_once_also_by_who_comes_late() {
        let bell = Bell::default();
        let mut listener = bell.listen();
        bell.ring();
        bell.ring();
        assert!(listener.has_rung());
        listener.rung().await;
        assert!(!listener.has_rung());
        bell.ring();
        listener.forget();
        assert!(!listener.has_rung() && !bell.listen().has_rung());
    }
}
