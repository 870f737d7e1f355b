//! Link between the sinks and whoever signs the log (`[evidence]`): a sink asks for a checkpoint when it has finished a file or an object,
//! and gets the newest one that there is. It waits for nothing.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

use super::model::Seq;

/// Handle of the signing; clones are of the same. The default is that of a log that nobody signs.
#[derive(Clone, Debug, Default)]
pub struct CheckpointHandle(Option<Arc<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    asked: Notify,
    /// First entry of the tree, and its last signed checkpoint.
    newest: Mutex<Option<(Seq, Arc<str>)>>,
}

impl CheckpointHandle {
    /// Handle for a log that is signed.
    #[must_use]
    pub fn signing() -> Self {
        Self(Some(Arc::default()))
    }

    /// Asks for a checkpoint over what is in the journal by now. Questions that come before it is signed are one.
    pub fn ask(&self) {
        if let Some(inner) = &self.0 {
            inner.asked.notify_one();
        }
    }

    /// Completes when somebody has asked since it completed last; never where nobody signs.
    pub async fn asked(&self) {
        match &self.0 {
            Some(inner) => inner.asked.notified().await,
            None => std::future::pending().await,
        }
    }

    /// Notes a signed checkpoint of the tree that begins with an entry. One of an earlier tree than is known changes nothing.
    pub fn note(&self, first: Seq, checkpoint: &str) {
        let Some(inner) = &self.0 else { return };
        let mut newest = inner.newest.lock().unwrap_or_else(PoisonError::into_inner);
        if newest.as_ref().is_none_or(|(known, _)| *known <= first) {
            *newest = Some((first, checkpoint.into()));
        }
    }

    /// Returns the newest checkpoint as it was signed; none where nobody signs, or nothing is signed yet.
    #[must_use]
    pub fn newest(&self) -> Option<Arc<str>> {
        let newest = self.0.as_ref()?.newest.lock().unwrap_or_else(PoisonError::into_inner);
        newest.as_ref().map(|(_, checkpoint)| Arc::clone(checkpoint))
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn questions_are_kept_and_an_earlier_tree_is_not_the_newest() {
        let (nobody, checkpoints) = (CheckpointHandle::default(), CheckpointHandle::signing());
        for (handle, signs) in [(&nobody, false), (&checkpoints, true)] {
            assert!(handle.asked().now_or_never().is_none());
            assert_eq!(handle.newest(), None);
            handle.ask();
            handle.clone().ask();
            assert_eq!(handle.asked().now_or_never().is_some(), signs);
            assert!(handle.asked().now_or_never().is_none(), "two questions are one");
            for (first, note, newest) in [(5, "a", "a"), (1, "b", "a"), (5, "c", "c"), (9, "d", "d")] {
                handle.clone().note(Seq(first), note);
                assert_eq!(handle.newest().as_deref(), signs.then_some(newest));
            }
        }
    }
}
