//! A value that many wait on, woken in the order in which they began to wait: a watch channel of tokio, which wakes its
//! receivers in an order of chance, with a [`Signal`] beside it.

use tokio::sync::watch;
pub use tokio::sync::watch::Ref;
pub use tokio::sync::watch::error::RecvError;

use super::{Listener, Signal};

/// A channel that holds this value at first.
pub fn channel<T>(value: T) -> (Sender<T>, Receiver<T>) {
    let sender = Sender::new(value);
    let receiver = sender.subscribe();
    (sender, receiver)
}

/// Changes the value. As the one of tokio in every method.
#[derive(Debug, Default)]
pub struct Sender<T> {
    value: watch::Sender<T>,
    // Dropped last: whoever is woken by it finds the channel closed.
    changed: Ending,
}

/// Looks at the value. As the one of tokio in every method.
#[derive(Debug, Clone)]
pub struct Receiver<T> {
    value: watch::Receiver<T>,
    changed: Listener,
}

/// Notified of its end, too.
#[derive(Debug, Default)]
struct Ending(Signal);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.notify();
    }
}

impl<T> Sender<T> {
    /// A channel that nobody listens to yet.
    pub fn new(value: T) -> Self {
        Self { value: watch::Sender::new(value), changed: Ending::default() }
    }

    /// A receiver that has seen the value of this moment.
    pub fn subscribe(&self) -> Receiver<T> {
        Receiver { value: self.value.subscribe(), changed: self.changed.0.listen() }
    }

    /// The value of this moment.
    pub fn borrow(&self) -> Ref<'_, T> {
        self.value.borrow()
    }

    /// Replaces the value, and gives the one before.
    pub fn send_replace(&self, value: T) -> T {
        let before = self.value.send_replace(value);
        self.changed.0.notify();
        before
    }

    /// Changes the value.
    pub fn send_modify(&self, change: impl FnOnce(&mut T)) {
        self.value.send_modify(change);
        self.changed.0.notify();
    }

    /// Changes the value. Where the closure returns `false`, nobody is notified.
    pub fn send_if_modified(&self, change: impl FnOnce(&mut T) -> bool) -> bool {
        let changed = self.value.send_if_modified(change);
        if changed {
            self.changed.0.notify();
        }
        changed
    }
}

impl<T> Receiver<T> {
    /// The value of this moment.
    pub fn borrow(&self) -> Ref<'_, T> {
        self.value.borrow()
    }

    /// The value of this moment, which counts as seen from here on.
    pub fn borrow_and_update(&mut self) -> Ref<'_, T> {
        self.value.borrow_and_update()
    }

    /// Waits for a value that was not seen, which counts as seen then.
    ///
    /// # Errors
    /// Where the sender is gone.
    pub async fn changed(&mut self) -> Result<(), RecvError> {
        self.until(|_, changed| changed).await
    }

    /// Waits for a value of which this is true, which counts as seen then.
    ///
    /// # Errors
    /// Where the sender is gone.
    pub async fn wait_for(&mut self, mut fits: impl FnMut(&T) -> bool) -> Result<(), RecvError> {
        self.until(|value, _| fits(value)).await
    }

    /// Until this is true of the value and of whether it changed since it was seen last.
    async fn until(&mut self, mut reached: impl FnMut(&T, bool) -> bool) -> Result<(), RecvError> {
        loop {
            // What changes from here on is heard below.
            self.changed.mark_seen();
            let done = {
                let value = self.value.borrow_and_update();
                reached(&value, value.has_changed())
            };
            if done {
                return Ok(());
            }
            self.value.has_changed()?;
            self.changed.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use futures::future::join_all;

    use super::*;

    #[tokio::test]
    async fn receivers_are_woken_in_their_order() {
        let (sender, woken) = (Sender::new(0), Mutex::new(Vec::new()));
        let receivers = (0..20).map(|number| {
            let (mut receiver, woken) = (sender.subscribe(), &woken);
            async move {
                receiver.wait_for(|value| *value == 2).await.unwrap();
                woken.lock().unwrap().push(number);
            }
        });
        tokio::join!(join_all(receivers), async {
            sender.send_replace(1);
            tokio::task::yield_now().await;
            sender.send_if_modified(|value| {
                *value += 1;
                true
            });
        });
        assert_eq!(*woken.lock().unwrap(), (0..20).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn who_waits_notices_the_end() {
        let (sender, mut receiver) = channel(0);
        let mut other = receiver.clone();
        let waits = async {
            assert!(receiver.wait_for(|value| *value == 2).await.is_err());
            assert!(other.changed().await.is_ok() && other.changed().await.is_err());
        };
        tokio::join!(waits, async {
            sender.send_modify(|value| *value = 1);
            drop(sender);
        });
        assert_eq!(*receiver.borrow(), 1);
    }
}
