//! The quota of the disk: how much of it is used, what happens when that is all, and how it comes back.
//!
//! Sources wait while the database or the write-ahead log has its size, or the disk is full; sinks go on, because what
//! they take is what may be truncated. Nothing here ends the daemon: whatever is in the way, it is reported, and looked
//! at again until it is gone.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::params;

use super::queue::Open;
use super::{Writer, micros, sql};
use crate::core::os::{self, MetadataExt, OpenOptionsExt, file_limit};
use crate::journal::error::Result;
use tokio::time::Instant;

use crate::core::runtime;
use crate::core::runtime::watch;
use crate::core::units::ByteSize;
use crate::journal::JournalError;
use crate::journal::retention::{Bounds, PAGE, Pause, PauseReason, Sizes};
use crate::journal::room;

/// Delay before the next attempt on a full disk.
const FULL_DISK_RETRY_DELAY: Duration = Duration::from_secs(1);
/// Delay before the next attempt to empty the write-ahead log.
const WAL_RETRY_DELAY: Duration = Duration::from_millis(250);
/// Duration below which a pause is not reported.
const REPORT_DELAY: Duration = Duration::from_secs(1);
/// Time that a checkpoint waits for readers: everything else waits for it.
const CHECKPOINT_WAIT: Duration = Duration::from_millis(30);
/// Time that other statements wait for a foreign writer, which should not exist.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// A file that only keeps its place on the disk: when that is full, it is given up, so that cursors and what has
/// happened can still be written.
#[derive(Debug)]
struct Reserve {
    path: PathBuf,
}

impl Reserve {
    /// Makes it, where there is room for it and as much again; says whether there is. It is never larger than a file may be.
    fn make(&self, bytes: u64) -> bool {
        let bytes = bytes.min(file_limit().unwrap_or(u64::MAX));
        if fs::metadata(&self.path).is_ok_and(|meta| meta.len() == bytes) {
            return true;
        }
        self.release();
        let disk = self.path.parent().and_then(os::disk);
        if disk.is_some_and(|disk| disk.free < bytes * 2) {
            return false;
        }
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&self.path);
        // Where nothing is reserved, the free space alone decides.
        let made = file.and_then(|file| os::reserve(&file, bytes));
        if made.is_err() {
            self.release();
        }
        made.is_ok()
    }

    fn release(&self) {
        if let Err(error) = fs::remove_file(&self.path)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!("the reserve {} cannot be given up: {error}", self.path.display());
        }
    }
}

/// State of the quota.
#[derive(Debug)]
pub(super) struct Quota {
    dir: PathBuf,
    /// None before the daemon has set them: until then everything is taken and nothing truncated.
    pub(super) bounds: Option<Bounds>,
    pub(super) sizes: Sizes,
    pub(super) open: Open,
    paused: watch::Sender<Option<Pause>>,
    /// True if the database has recorded `paused`.
    recorded: bool,
    /// End of the last pause, microseconds since 1970.
    pub(super) paused_until: i64,
    /// Size of the command that did not fit and is tried again, in bytes.
    need: u64,
    /// Since when sources wait, and for what.
    closed: Option<(Instant, PauseReason)>,
    disk_full: bool,
    /// Error of the last checkpoint that failed for want of room.
    stuck: Option<JournalError>,
    /// Size limit of a file in bytes, in the units of the other sizes.
    file_limit: Option<u64>,
    next_try: Instant,
    reserve: Reserve,
    /// The bytes of the database that are in use, when it was last looked at.
    pub(super) used: u64,
    /// Bytes of it that lists in progress take, rather too many than too few.
    staged: u64,
    /// Bytes that are free on the disk.
    pub(super) disk_left: u64,
    /// Pages that could go back to the file system.
    pub(super) free_pages: u64,
    pub(super) wal_bytes: u64,
}

impl Quota {
    pub(super) fn new(dir: &Path, paused: watch::Sender<Option<Pause>>) -> Self {
        Self {
            dir: dir.to_owned(),
            bounds: None,
            sizes: Sizes::of(u64::MAX / 2, u64::MAX),
            open: Open { sources: true, control: true },
            paused,
            recorded: true,
            paused_until: 0,
            need: 0,
            closed: None,
            disk_full: false,
            stuck: None,
            file_limit: None,
            next_try: Instant::now(),
            reserve: Reserve { path: dir.join("reserve") },
            used: 0,
            staged: 0,
            disk_left: u64::MAX,
            free_pages: 0,
            wal_bytes: 0,
        }
    }

    /// Returns the time until the next check that is due without a command.
    pub(super) fn due(&self, now: Instant) -> Option<Duration> {
        let waits = !self.open.sources || !self.open.control || !self.recorded;
        waits.then(|| {
            self.next_try.saturating_duration_since(now).clamp(Duration::from_millis(10), FULL_DISK_RETRY_DELAY)
        })
    }

    /// Reports whether a transaction takes one command at a time, because together they did not fit.
    pub(super) const fn is_tight(&self) -> bool {
        self.need > 0
    }

    /// Handles that the commands of sources fitted: none of them is tried again.
    pub(super) fn fitted(&mut self) {
        self.need = 0;
    }

    /// Reports whether there is space for slices that only make room.
    pub(super) const fn has_wal(&self) -> bool {
        self.wal_bytes <= self.sizes.wal / 4 * 3 && !self.disk_full
    }

    /// Reports whether the log is so large that the oldest entries have to be truncated. Lists in progress have a share of
    /// their own, and never cause truncation.
    pub(super) const fn is_high(&self) -> bool {
        let log = self.used.saturating_sub(self.staged);
        log > self.sizes.high - self.sizes.staging || self.staged == 0 && self.is_short()
    }

    const fn is_short(&self) -> bool {
        let group = 2 * self.sizes.group as u64;
        let need = if self.need > group { self.need } else { group };
        // Once closed, it opens only when there is room for more than one transaction.
        let more = if matches!(self.closed, Some((_, PauseReason::MaxSize))) { group } else { 0 };
        self.used + need + more > self.sizes.database
    }
}

impl Quota {
    /// Describes the full resource, and the remedy.
    fn what_is_full(&self) -> String {
        let dir = self.dir.display();
        let lost = "nothing that was taken is lost";
        let Some(JournalError::NoRoom { source, .. }) = &self.stuck else {
            return format!("the disk of {dir} is full; free some space: {lost}");
        };
        let advice = room::advice(source);
        if source.kind() != std::io::ErrorKind::FileTooLarge {
            return format!("decklog's user has no room left on the disk of {dir}; {advice}: {lost}");
        }
        let limit = self.file_limit.map(|limit| format!(" than {}", ByteSize(limit))).unwrap_or_default();
        format!("no file in {dir} may be larger{limit}; {advice}: {lost}")
    }
}

impl Writer {
    /// Holds the journal to what the configuration asks for, from now on.
    pub(super) fn set_bounds(&mut self, bounds: Bounds) -> Result {
        self.quota.bounds = Some(bounds);
        self.set_sizes()?;
        let sizes = self.quota.sizes;
        if !self.quota.reserve.make(sizes.reserve) {
            tracing::warn!(
                "there is hardly any space left on the disk of {}: nothing can be reserved for the moment when it is full",
                self.quota.dir.display()
            );
        }
        // A pause that the last daemon ended in lasts until now.
        let (paused, resumed): (Option<String>, Option<String>) = self
            .disk
            .conn
            .query_row(
                "SELECT (SELECT value FROM meta WHERE key = 'paused'), (SELECT value FROM meta WHERE key = 'resumed')",
                [],
                |row| Ok((row.get(0)?, row.get(1)?)),
            )
            .map_err(sql("read its facts"))?;
        self.quota.paused_until = match paused {
            Some(_) => micros(runtime::now()),
            None => resumed.and_then(|text| text.parse().ok()).unwrap_or(0),
        };
        self.quota.recorded = paused.is_some() == self.quota.paused.borrow().is_some();
        Ok(())
    }

    /// Divides what there is among the files of the journal. Where no file may be large, the write-ahead log stays below
    /// that, as on a disk of twice the size.
    fn set_sizes(&mut self) -> Result {
        let Some(bounds) = self.quota.bounds else { return Ok(()) };
        let disk = os::disk(&self.quota.dir).map_or(u64::MAX, |disk| disk.size);
        let limit = file_limit();
        let sizes = Sizes::of(bounds.max_size, disk.min(limit.unwrap_or(u64::MAX).saturating_mul(2)));
        self.quota.sizes = sizes;
        self.quota.file_limit = limit;
        let set = format!(
            "PRAGMA max_page_count = {}; PRAGMA wal_autocheckpoint = {}; PRAGMA journal_size_limit = {};",
            sizes.database / PAGE,
            sizes.checkpoint / PAGE,
            sizes.checkpoint * 2,
        );
        self.disk.conn.execute_batch(&set).map_err(sql("set its bounds"))
    }

    /// Goes by the limit of a file's size that holds now: `prlimit` changes that of a running process.
    fn heed_file_limit(&mut self) -> Result {
        if file_limit() == self.quota.file_limit { Ok(()) } else { self.set_sizes() }
    }

    /// Measures, and opens or closes the lanes.
    pub(super) fn look(&mut self) -> Result {
        if self.quota.bounds.is_none() {
            return Ok(());
        }
        let now = Instant::now();
        if self.quota.disk_full {
            if now < self.quota.next_try {
                return Ok(());
            }
            self.quota.next_try = now + FULL_DISK_RETRY_DELAY;
            self.quota.open.control = true;
            self.heed_file_limit()?;
            if !self.quota.reserve.make(self.quota.sizes.reserve) {
                return self.record();
            }
            self.quota.disk_full = false;
        }
        self.measure()?;
        let mut why = None;
        if self.quota.wal_bytes > self.quota.sizes.wal_for_sources() {
            if now >= self.quota.next_try {
                self.quota.next_try = now + WAL_RETRY_DELAY;
                self.heed_file_limit()?;
                self.checkpoint()?;
                self.measure()?;
            }
            if self.quota.wal_bytes > self.quota.sizes.wal_for_sources() {
                why = Some(if self.quota.stuck.is_some() { PauseReason::DiskFull } else { PauseReason::Reader });
            }
        }
        self.quota.open.control = self.quota.wal_bytes <= self.quota.sizes.wal_for_all();
        let mut makes_room = false;
        if why.is_none() && self.quota.is_short() {
            makes_room = self.make_room()?;
            why = Some(PauseReason::MaxSize);
        }
        match why {
            Some(why) => {
                self.quota.open.sources = false;
                if why == PauseReason::MaxSize {
                    self.quota.next_try = now + FULL_DISK_RETRY_DELAY;
                }
                let since = match self.quota.closed {
                    Some((since, before)) if before == why => since,
                    _ => now,
                };
                self.quota.closed = Some((since, why));
                // What can be truncated is, and then it goes on at once.
                let hopeless = !makes_room && (why != PauseReason::MaxSize || self.truncatable()?.is_none());
                if hopeless && now.duration_since(since) >= REPORT_DELAY {
                    self.pause(why);
                }
                self.record()
            }
            None => {
                self.quota.open.sources = true;
                self.quota.closed = None;
                self.resume()
            }
        }
    }

    fn measure(&mut self) -> Result {
        let count = |name: &str| {
            self.disk.conn.pragma_query_value(None, name, |row| row.get::<_, u64>(0)).map_err(sql("measure itself"))
        };
        let (pages, free) = (count("page_count")?, count("freelist_count")?);
        self.quota.used = pages.saturating_sub(free) * PAGE;
        self.quota.free_pages = free;
        self.quota.staged = self.committed.staged_bytes();
        self.quota.disk_left = os::disk(&self.quota.dir).map_or(u64::MAX, |disk| disk.free);
        self.quota.wal_bytes = fs::metadata(self.quota.dir.join("journal.db-wal")).map_or(0, |meta| meta.len());
        Ok(())
    }

    /// Writes the write-ahead log back and empties it, where nobody reads it.
    pub(super) fn checkpoint(&mut self) -> Result {
        let what = "empty its write-ahead log";
        self.disk.conn.busy_timeout(CHECKPOINT_WAIT).map_err(sql(what))?;
        let done = self.disk.conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
        let done = done.map_err(sql(what));
        self.disk.conn.busy_timeout(BUSY_TIMEOUT).map_err(sql(what))?;
        self.quota.stuck = match done {
            Ok(()) => None,
            // On a full disk it stays as it is, and is tried again.
            Err(error) if error.is_full() => Some(error),
            Err(error) => return Err(error),
        };
        Ok(())
    }

    /// A transaction did not fit: what it brought is tried again later. `bytes` are what it brought from sources, `None`
    /// where it brought nothing from them.
    pub(super) fn full(&mut self, error: JournalError, bytes: Option<usize>) -> Result {
        if self.quota.bounds.is_none() || !error.is_full() {
            return Err(error);
        }
        if self.leads() {
            // What is done again has to be in the shared log first, and others have room.
            return Err(JournalError::Superseded(error.to_string()));
        }
        self.measure()?;
        let need = bytes.unwrap_or(0) as u64 * 2 + 16 * PAGE;
        if self.quota.used + need > self.quota.sizes.database {
            self.quota.need = need;
            if bytes.is_none() {
                // Cursors need hardly anything, and what they pass may be truncated: that comes first.
                self.quota.open.control = false;
                self.quota.next_try = Instant::now() + WAL_RETRY_DELAY;
            }
            return self.look();
        }
        self.heed_file_limit()?;
        self.quota.disk_full = true;
        self.quota.stuck = Some(error);
        self.quota.open = Open { sources: false, control: bytes.is_some() };
        self.quota.next_try = Instant::now() + FULL_DISK_RETRY_DELAY;
        self.quota.reserve.release();
        self.pause(PauseReason::DiskFull);
        self.checkpoint()?;
        self.record()
    }

    /// Says once that nothing is taken from the cluster any more.
    fn pause(&mut self, why: PauseReason) {
        let dir = self.quota.dir.display();
        let detail = match why {
            PauseReason::MaxSize if self.all_is_truncated() => format!(
                "the journal in {dir} has its full size with the last state of every object alone; raise [state] max_size, or \
                 watch less"
            ),
            PauseReason::MaxSize => format!(
                "the journal in {dir} has its full size, and a sink has not taken the oldest entries; get the sink going, \
                 remove it from the configuration, or raise [state] max_size"
            ),
            PauseReason::DiskFull => self.quota.what_is_full(),
            PauseReason::Reader => format!(
                "{} the journal in {dir} without an end, so that its write-ahead log only grows; end that",
                readers(&self.quota.dir)
            ),
        };
        if self.quota.paused.borrow().as_ref().is_some_and(|pause| pause.why == why && pause.detail == detail) {
            return;
        }
        tracing::error!("reading the cluster is paused: {detail}; decklog then goes on by itself");
        let now = micros(runtime::now());
        self.quota.paused.send_modify(|pause| {
            let since = pause.as_ref().map_or(now, |before| before.since);
            *pause = Some(Pause { why, since, detail });
        });
        self.quota.recorded = false;
    }

    fn resume(&mut self) -> Result {
        if self.quota.paused.send_replace(None).is_some() {
            tracing::info!("there is room again: decklog reads the cluster again");
            self.quota.paused_until = micros(runtime::now());
            self.quota.recorded = false;
        }
        self.record()
    }

    /// Leaves in the database what commands that read it report, also without a daemon.
    fn record(&mut self) -> Result {
        if self.quota.recorded {
            return Ok(());
        }
        let paused = self.quota.paused.borrow().clone();
        let until = self.quota.paused_until.to_string();
        let written = self.transact(|transaction| {
            transaction.begin()?;
            let what = "note a pause";
            match &paused {
                Some(pause) => {
                    let text = serde_json::to_string(pause).expect("plain fields always serialise");
                    transaction.execute(what, "INSERT OR REPLACE INTO meta VALUES ('paused', ?)", params![text])?;
                }
                None => {
                    transaction.execute(what, "DELETE FROM meta WHERE key = 'paused'", [])?;
                    transaction.execute(what, "INSERT OR REPLACE INTO meta VALUES ('resumed', ?)", params![until])?;
                }
            }
            Ok(())
        });
        match written {
            Ok(()) => {
                self.quota.recorded = true;
                Ok(())
            }
            // It is in the log of the service, and here as soon as there is room for it.
            Err(error) if error.is_full() => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Returns the processes with an open read transaction, by the kernel's list of locks: SQLite's readers lock one of five bytes
/// of the index of the write-ahead log.
fn readers(dir: &Path) -> String {
    let inode = fs::metadata(dir.join("journal.db-shm")).map_or(0, |meta| meta.ino());
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    let mut names: Vec<String> = holders(&locks, inode)
        .into_iter()
        .filter(|pid| *pid != std::process::id())
        .map(|pid| {
            let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            format!("process {pid} ({}) reads", name.trim())
        })
        .collect();
    names.dedup();
    if names.is_empty() { "somebody reads".to_owned() } else { names.join(", and ") }
}

fn holders(locks: &str, inode: u64) -> Vec<u32> {
    let holder = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, "POSIX", "ADVISORY", "READ", pid, file, start, _end] = words.as_slice() else { return None };
        let same = file.rsplit(':').next().and_then(|number| number.parse().ok()) == Some(inode);
        let start: u64 = start.parse().ok()?;
        (same && (123..=127).contains(&start)).then(|| pid.parse().ok()).flatten()
    };
    locks.lines().filter_map(holder).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_are_found_in_the_kernels_list() {
        let locks = "1: POSIX  ADVISORY  READ 11 fd:01:77 128 128\n2: POSIX  ADVISORY  READ 42 fd:01:77 124 124\n3: POSIX  ADVISORY  READ 43 fd:01:78 124 124\n4: POSIX  ADVISORY  WRITE 44 fd:01:77 120 120\n";
        assert_eq!(holders(locks, 77), [42]);
    }

    #[test]
    fn the_reserve_takes_its_place_and_gives_it_up() {
        let dir = tempfile::tempdir().unwrap();
        let reserve = Reserve { path: dir.path().join("reserve") };
        assert!(reserve.make(1 << 20) && reserve.make(1 << 20));
        let meta = fs::metadata(dir.path().join("reserve")).unwrap();
        assert!(meta.len() == 1 << 20 && meta.blocks() * 512 >= 1 << 20, "{meta:?}");
        reserve.release();
        assert!(!dir.path().join("reserve").exists());
        assert!(!reserve.make(u64::MAX / 4), "no disk has so much");
    }
}
