//! A signal that many can listen to, and that wakes them in the order in which they began to wait. A watch channel of
//! tokio wakes its receivers in an order of chance, which no seed decides.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

/// Clones are handles of the same signal.
#[derive(Clone, Debug, Default)]
pub struct Signal(Arc<State>);

#[derive(Debug, Default)]
struct State {
    count: AtomicU64,
    waiting: Notify,
}

/// Sees each notification after its beginning, several as one.
#[derive(Clone, Debug)]
pub struct Listener {
    signal: Signal,
    seen: u64,
}

impl Signal {
    /// Wakes everybody who listens.
    pub fn notify(&self) {
        self.0.count.fetch_add(1, Ordering::SeqCst);
        self.0.waiting.notify_waiters();
    }

    /// Sees the notifications from now on.
    #[must_use]
    pub fn listen(&self) -> Listener {
        Listener { signal: self.clone(), seen: self.count() }
    }

    /// Returns the number of notifications.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.count.load(Ordering::SeqCst)
    }
}

impl Listener {
    /// Waits for a notification that it has not seen, and has seen it then.
    pub async fn notified(&mut self) {
        loop {
            // It counts as waiting from here on, so that none falls between the look and the wait.
            let notified = self.signal.0.waiting.notified();
            if self.is_notified() {
                break;
            }
            notified.await;
        }
        self.mark_seen();
    }

    /// Reports whether there was a notification that it has not seen.
    #[must_use]
    pub fn is_notified(&self) -> bool {
        self.seen != self.signal.count()
    }

    /// Has seen every notification so far.
    pub fn mark_seen(&mut self) {
        self.seen = self.signal.count();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use futures::future::join_all;

    use super::*;

    #[tokio::test]
    async fn listeners_are_woken_in_their_order() {
        let (signal, woken) = (Signal::default(), Mutex::new(Vec::new()));
        let listeners = (0..20).map(|number| {
            let (mut listener, woken) = (signal.listen(), &woken);
            async move {
                listener.notified().await;
                woken.lock().unwrap().push(number);
            }
        });
        tokio::join!(join_all(listeners), async { signal.notify() });
        assert_eq!(*woken.lock().unwrap(), (0..20).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn a_notification_is_seen_once_also_by_who_comes_late() {
        let signal = Signal::default();
        let mut listener = signal.listen();
        signal.notify();
        signal.notify();
        assert!(listener.is_notified());
        listener.notified().await;
        assert!(!listener.is_notified());
        signal.notify();
        listener.mark_seen();
        assert!(!listener.is_notified() && !signal.listen().is_notified());
    }
}
