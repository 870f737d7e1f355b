//! A file of the audit log, read as the API server writes and rotates it.
//!
//! The API server's file backend (lumberjack) renames `audit.log` to `audit-2026-11-28T06-35-52.123.log` beside it, perhaps
//! compresses that, and goes on in a new `audit.log`. Others copy the file and truncate it, or write into a pipe. [`Tail`] reads all
//! of these. Its position names the file by inode and by a digest of its first bytes, because inodes are used again and a
//! compressed copy has another one: so it goes on after a restart where it was, also when the file was rotated meanwhile.
//!
//! # Decision: growth is polled
//!
//! Context: inotify says nothing of files on a network, of bind mounts of a directory that is replaced, and where its queue is full.
//! Decision: The metadata of two paths is looked at four times a second at least.
//! Cost: Four system calls a second and file, and an actor that is known a quarter of a second later.

mod compressed;
mod follower;
mod opened;
mod position;
mod siblings;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::core::backoff::Backoff;
use crate::core::runtime::{self, watch};
pub use follower::{Batch, Lost};
use follower::{Follower, Step};
pub use position::FilePosition;

/// Longest time between two looks at a file that does not grow.
const GROWTH_POLL_MAX: Duration = Duration::from_millis(250);
/// Waits after a file could not be read.
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(250), most: Duration::from_secs(30) };

/// A file that is read as it grows and is rotated.
#[derive(Debug)]
pub struct Tail {
    path: PathBuf,
    state: Arc<Mutex<State>>,
    trouble: watch::Sender<Option<String>>,
}

/// State of a [`Tail`], which a blocking thread works on. A caller that stops waiting leaves it whole.
#[derive(Debug)]
struct State {
    follower: Follower,
    /// Result of the last step that nobody has taken yet.
    done: Option<Step>,
    /// Consecutive failures.
    failures: u32,
}

impl Tail {
    /// Begins at a position, or at the beginning of the file as it is now. Nothing is opened yet: the file may come later.
    #[must_use]
    pub fn open(path: &Path, position: Option<FilePosition>) -> Self {
        let follower = Follower::new(path, position);
        let state = Arc::new(Mutex::new(State { follower, done: None, failures: 0 }));
        Self { path: path.to_owned(), state, trouble: watch::Sender::new(None) }
    }

    /// Returns the path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns why nothing is read, in one sentence, as long as that lasts.
    #[must_use]
    pub fn trouble(&self) -> watch::Receiver<Option<String>> {
        self.trouble.subscribe()
    }

    /// Waits for lines, for a loss, or for the end of the file after lines. The future may be dropped at any await: the batch is
    /// returned by the next call then.
    pub async fn next(&mut self) -> Batch {
        loop {
            let state = Arc::clone(&self.state);
            runtime::blocking(move || lock(&state).work()).await;
            let (step, failures) = {
                let mut state = lock(&self.state);
                (state.done.take(), state.failures)
            };
            match step {
                Some(Step::Batch(batch)) => {
                    self.tell(None);
                    return batch;
                }
                Some(Step::Waits(absent)) => {
                    self.tell(absent);
                    tokio::time::sleep(GROWTH_POLL_MAX).await;
                }
                Some(Step::Failed(text)) => {
                    self.tell(Some(text));
                    tokio::time::sleep(BACKOFF.wait(failures).max(GROWTH_POLL_MAX)).await;
                }
                None => {}
            }
        }
    }

    /// Says a trouble once, and its end.
    fn tell(&self, trouble: Option<String>) {
        if *self.trouble.borrow() == trouble {
            return;
        }
        match &trouble {
            Some(text) => tracing::warn!("{text}"),
            None => tracing::info!("decklog reads the audit log {} again", self.path.display()),
        }
        self.trouble.send_replace(trouble);
    }
}

/// Looks whether a file can be read, as `decklog check` does. A file that does not exist yet is right, if its directory is there.
///
/// # Errors
/// One sentence with the remedy.
pub fn look(path: &Path) -> Result<(), String> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !parent.is_dir() {
        return Err(format!(
            "the directory {} of the audit log does not exist; make it, or name the file of the API server's --audit-log-path",
            parent.display()
        ));
    }
    follower::look(path)
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    fn work(&mut self) {
        if self.done.is_none() {
            let step = self.follower.step();
            self.failures = if matches!(step, Step::Failed(_)) { self.failures.saturating_add(1) } else { 0 };
            self.done = Some(step);
        }
    }
}
