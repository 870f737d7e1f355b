//! Waking up when the daemon commits, without asking the disk again and again.
//!
//! The kernel reports when a file in the state directory is written (inotify). That is a little before the commit is
//! visible. SQLite's `data_version` shows that from shared memory, so after a wake-up it is read a few times, ever more
//! slowly. Without inotify it is read once a second.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::core::os::{MetadataExt, Writes};
use crate::journal::Reader;
use crate::query::render::{Exit, Failure};
use crate::query::{Log, is_running};

/// The first wait after a file was written …
const POLL_WAIT_MIN: Duration = Duration::from_millis(2);
/// … and the longest of all: it bounds the delay where the kernel reports nothing.
const POLL_WAIT_MAX: Duration = Duration::from_secs(1);
/// Time within which it is noticed that nobody follows any more.
const GONE_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Waits for commits of another process.
#[derive(Debug)]
pub(in crate::query) struct Follow {
    dir: PathBuf,
    writes: Writes,
    inode: Option<u64>,
    version: i64,
    /// Time and result of the last look for a daemon.
    looked: Option<(Instant, bool)>,
}

impl Follow {
    /// Begins to follow: every commit from here on ends a [`Follow::wait`].
    pub(in crate::query) fn new(reader: &Reader, dir: &Path) -> Result<Self, Failure> {
        let writes = Writes::of(dir);
        let version = reader.data_version()?;
        Ok(Self { dir: dir.to_owned(), writes, inode: inode(dir), version, looked: None })
    }

    /// Returns after the next commit, which may have happened since the last call, or at a moment. Reports whether there was a commit.
    ///
    /// # Errors
    /// Where the journal cannot be read any more, or nobody follows any more.
    pub(in crate::query) fn wait(
        &mut self,
        reader: &Reader,
        log: &Log<'_>,
        until: Option<Instant>,
    ) -> Result<bool, Failure> {
        let mut pause = POLL_WAIT_MAX;
        loop {
            log.stands()?;
            let version = reader.data_version()?;
            if version != self.version {
                self.version = version;
                return Ok(true);
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(false);
            }
            self.look_for_daemon(log);
            if self.sleep(left.map_or(pause, |left| left.min(pause)), log)? {
                pause = POLL_WAIT_MIN;
            } else {
                pause = (pause * 2).min(POLL_WAIT_MAX);
            }
            if pause == POLL_WAIT_MAX && inode(&self.dir) != self.inode {
                let dir = self.dir.display();
                return Err(Failure::new(
                    Exit::Io,
                    format!(
                        "the journal in {dir} was replaced or removed while it was followed; run the command again"
                    ),
                ));
            }
        }
    }

    /// Says so where nobody writes to the journal, once until somebody does.
    fn look_for_daemon(&mut self, log: &Log<'_>) {
        if self.looked.is_some_and(|(at, _)| at.elapsed() < POLL_WAIT_MAX) {
            return;
        }
        let running = is_running(&self.dir);
        if !running && self.looked.is_none_or(|(_, ran)| ran) {
            log.remark(&format!(
                "no daemon is running on {}, so nothing new comes until `decklog run` is started; waiting",
                self.dir.display()
            ));
        }
        self.looked = Some((Instant::now(), running));
    }

    /// Waits at most `pause`; says whether something was written.
    fn sleep(&self, pause: Duration, log: &Log<'_>) -> Result<bool, Failure> {
        let until = Instant::now() + pause;
        loop {
            if log.is_gone() {
                return Err(Failure::closed_pipe());
            }
            let left = until.saturating_duration_since(Instant::now());
            let waited = self.writes.wait(left.min(GONE_POLL_INTERVAL));
            let written = waited.map_err(|error| Failure::io("cannot wait for new entries", &error))?;
            if written || left.is_zero() {
                return Ok(written);
            }
        }
    }
}

fn inode(dir: &Path) -> Option<u64> {
    fs::metadata(dir.join("journal.db")).ok().map(|meta| meta.ino())
}
