//! Entries in a file, one per line: each seq exactly once and in order, across crashes.
//!
//! The position lives in the file itself. A batch is made durable before it is acknowledged; when decklog starts it reads
//! back from the end of the file how far it came, cuts off what a crash left unfinished, and goes on after the last whole
//! line. So a crash between the write and the acknowledgement repeats nothing, and one in the middle of a write loses
//! nothing.
//!
//! Whatever somebody else does to the file is found before each batch: moved or removed (a new one is begun), copied
//! and truncated (writing goes on at its new end), written to (the last line must be an entry, or the sink halts).
//! Only the torn end of decklog's own writing is ever cut off.
//!
//! A file that decklog makes can be read by its group (0640, whatever the umask), and the directory says who reaches
//! it. One that was there before keeps its permissions.

mod layout;
mod settings;
mod tail;
#[cfg(test)]
mod tests;
mod tidy;

pub use settings::{Compress, Settings};

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, IoSlice, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use futures::FutureExt;
use futures::future::BoxFuture;

use super::{Class, Failure, Item, Limits, LogPosition, Sink, SinkError, note_first};
use crate::core::checkpoint_handle::CheckpointHandle;
use crate::core::model::Seq;
use crate::core::os::{self, MetadataExt, OpenOptionsExt};
use crate::core::runtime;
use layout::Layout;
use tidy::Tidy;

/// Counts what is done to the disk, so that a test can stop it at every single step. Free outside of tests.
#[derive(Clone, Debug, Default)]
struct Disk {
    #[cfg(test)]
    left: Option<Arc<std::sync::atomic::AtomicI64>>,
}

impl Disk {
    /// Called before each step; fails from the step on at which the test cuts the power.
    #[cfg_attr(not(test), expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "only tests stop the disk"))]
    fn step(&self) -> io::Result<()> {
        #[cfg(test)]
        if let Some(left) = &self.left
            && left.fetch_sub(1, std::sync::atomic::Ordering::Relaxed) <= 0
        {
            return Err(io::Error::other("the test has stopped the disk"));
        }
        Ok(())
    }

    /// Makes the names in a directory durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.step()?;
        File::open(dir)?.sync_all()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.step()?;
        std::fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.step()?;
        std::fs::remove_file(path)
    }

    fn set_len(&self, file: &File, len: u64) -> io::Result<()> {
        self.step()?;
        file.set_len(len)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        self.step()?;
        file.sync_data()
    }

    /// Writes the lines of entries, from their own memory: a batch has megabytes, and a copy of it would be paged in anew.
    fn write(&self, mut file: &File, entries: &[Item]) -> io::Result<()> {
        let mut slices: Vec<IoSlice<'_>> =
            entries.iter().flat_map(|item| [IoSlice::new(&item.line), IoSlice::new(b"\n")]).collect();
        // A stopped disk has a part of what was written last.
        if let Err(error) = self.step() {
            let whole: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
            file.write_all(&whole[..whole.len() / 2])?;
            return Err(error);
        }
        let mut rest = &mut slices[..];
        while !rest.is_empty() {
            match file.write_vectored(rest) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => IoSlice::advance_slices(&mut rest, written),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// The permissions of a new file: its group may read it.
const MODE: u32 = 0o640;

/// The file as it is open, locked, and known to end with a whole line.
#[derive(Debug)]
struct Open {
    file: File,
    /// Device and inode: what `path` must still name before the next batch.
    identity: (u64, u64),
    len: u64,
    /// Time of the last write.
    written: SystemTime,
}

/// The blocking part: everything that touches the disk.
#[derive(Debug)]
struct Writer {
    layout: Layout,
    rotate_size: u64,
    rotate_every: Option<Duration>,
    disk: Disk,
    open: Option<Open>,
    /// The last entry known to be in the output for good, of the journal's epoch; its seq is 0 while none is.
    known: Option<LogPosition>,
    /// The last entry that this writer has written: it knows by itself that it is there, also where the file was moved.
    written: Option<LogPosition>,
    /// A write into this file failed: what stands after this length was never acknowledged and is not to be believed.
    cut: Option<((u64, u64), u64)>,
    tidy: Option<Tidy>,
    checkpoints: CheckpointHandle,
}

impl Writer {
    fn new(config: &Settings, disk: Disk) -> Self {
        Self {
            layout: Layout::new(config),
            rotate_size: config.rotate_size.map_or(u64::MAX, |size| size.0),
            rotate_every: config.rotate_every.map(|every| *every),
            disk,
            open: None,
            known: None,
            written: None,
            cut: None,
            tidy: None,
            checkpoints: CheckpointHandle::default(),
        }
    }

    /// A sentence about a failure of the file system.
    #[expect(clippy::wildcard_enum_match_arm, reason = "there are dozens of kinds, and the text of each is told")]
    fn trouble(&self, what: &str, error: &io::Error) -> SinkError {
        let (path, dir) = (self.layout.path.display(), self.layout.dir.display());
        let text = match error.kind() {
            ErrorKind::NotFound => {
                format!(
                    "the directory {dir} does not exist; create it, writable for decklog's user: delivery then goes on"
                )
            }
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
                format!("cannot {what} {path}: {error}; let decklog's user write to the file and to its directory")
            }
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
                format!("cannot {what} {path}: {error}; free some space: nothing is lost, delivery then goes on")
            }
            ErrorKind::FileTooLarge => {
                format!(
                    "cannot {what} {path}: {error}; set `rotate_size` below the limit of a file's size (LimitFSIZE=, ulimit -f), \
                     or raise that limit: nothing is lost, delivery then goes on"
                )
            }
            _ => format!("cannot {what} {path}: {error}"),
        };
        SinkError::retry(text)
    }

    /// Cuts off an incomplete line that a crash left, and returns the position of the output.
    fn position(&mut self, cursor: &LogPosition) -> Result<Option<LogPosition>, SinkError> {
        let ahead = |written: &&LogPosition| written.epoch == cursor.epoch && written.seq >= cursor.seq;
        self.known = Some(self.written.as_ref().filter(ahead).unwrap_or(cursor).clone());
        self.open = None;
        let held = self.reopen()?;
        let position = match held {
            // The file itself speaks, also where it holds less than the cursor says.
            Some(held) => Some(held),
            // It is empty: a file that was rotated or moved away can only show that more was delivered than the
            // cursor knows. What else may have happened to it is not known.
            None => {
                let further = |held: &LogPosition| (&held.epoch, held.seq) > (&cursor.epoch, cursor.seq);
                self.layout.newest_elsewhere().filter(further)
            }
        };
        if let Some(held) = &position {
            self.known = Some(held.clone());
        }
        if let Some(tidy) = &self.tidy {
            tidy.wake();
        }
        Ok(position)
    }

    /// Opens the file, locks it, cuts off a torn end. Gives what its last line says.
    fn reopen(&mut self) -> Result<Option<LogPosition>, SinkError> {
        self.open = None;
        let path = self.layout.path.clone();
        let opened = self.disk.step().and_then(|()| open(&path));
        let file = opened.map_err(|error| self.trouble("open", &error))?;
        let meta = file.metadata().map_err(|error| self.trouble("open", &error))?;
        if !meta.is_file() {
            return Err(no_file(&path));
        }
        if !lock(&file) {
            let text = format!(
                "another sink or another decklog writes to {}; give each its own path: delivery goes on when the other ends",
                path.display()
            );
            return Err(SinkError::retry(text));
        }
        let identity = (meta.dev(), meta.ino());
        if identity_of(&path) != Some(identity) {
            return Err(SinkError::retry(format!("{} was moved while it was opened", path.display())));
        }
        if let Some((cut, len)) = self.cut.take_if(|(cut, _)| *cut == identity)
            && meta.len() > len
        {
            self.disk.set_len(&file, len).map_err(|error| {
                self.cut = Some((cut, len));
                self.trouble("shorten", &error)
            })?;
        }
        let tail = tail::read(&file, self.known.as_ref()).map_err(|error| self.trouble("read", &error))?;
        let tail = tail.map_err(|foreign| SinkError::halt(foreign.text(&path)))?;
        let len = file.metadata().map_err(|error| self.trouble("open", &error))?.len();
        if tail.good < len {
            tracing::info!(path = %path.display(), bytes = len - tail.good, "cut off an unfinished end");
            self.disk.set_len(&file, tail.good).map_err(|error| self.trouble("shorten", &error))?;
        }
        // What a killed process wrote may still be only in memory: it counts from here on, so it goes to disk first.
        self.disk
            .sync(&file)
            .and_then(|()| self.disk.sync_dir(&self.layout.dir))
            .map_err(|error| self.trouble("write", &error))?;
        let written = meta.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        self.open = Some(Open { file, identity, len: tail.good, written });
        Ok(tail.last)
    }

    /// Makes sure that the file is open, that its path still names it, and that nobody else wrote to it.
    fn ready(&mut self) -> Result<(), SinkError> {
        let same = self.open.as_ref().is_some_and(|open| {
            identity_of(&self.layout.path) == Some(open.identity)
                && open.file.metadata().is_ok_and(|meta| meta.len() == open.len)
        });
        if same {
            return Ok(());
        }
        // An empty file is begun where one was moved away. One that ends with something else than was written last is
        // another file, or somebody else's.
        match (self.reopen()?, &self.known) {
            (Some(held), Some(known)) if !held.is(known) => {
                self.open = None;
                Err(SinkError::lost(format!(
                    "{} does not end where it was left: it was replaced by an older copy, or something else is mounted there",
                    self.layout.path.display()
                )))
            }
            (None, Some(known)) if known.seq.0 > 0 => {
                self.checkpoints.ask();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn deliver(&mut self, batch: &[Item]) -> Result<(), Failure> {
        let mut taken = 0;
        while taken < batch.len() {
            taken += self.run(&batch[taken..]).map_err(|error| Failure { taken, error })?;
        }
        Ok(())
    }

    /// Writes as many entries as go into the current file, after beginning a new one where it is time to.
    fn run(&mut self, batch: &[Item]) -> Result<usize, SinkError> {
        self.ready()?;
        let place = |item: &Item| {
            item.header().map(LogPosition::at).map_err(|error| SinkError::Refused { text: format!("it is {error}") })
        };
        // Whatever hands an entry over a second time, it is in the file once. Of another epoch nothing is known here.
        let first = place(&batch[0])?;
        if let Some(known) = self.known.as_ref().filter(|known| known.epoch == first.epoch) {
            let held = batch.partition_point(|item| item.seq <= known.seq);
            if held > 0 {
                return Ok(held);
            }
        }
        let size = |item: &Item| item.line.len() as u64 + 1;
        let now = SystemTime::from(runtime::now());
        if self.is_due(size(&batch[0]), now) {
            self.rotate(now)?;
        }
        let open = self.open.as_mut().expect("ready and rotate leave the file open");
        let (mut count, mut bytes) = (0, 0);
        for item in batch {
            if count > 0 && open.len + bytes + size(item) > self.rotate_size {
                break;
            }
            bytes += size(item);
            count += 1;
        }
        let written = self.disk.write(&open.file, &batch[..count]).and_then(|()| self.disk.sync(&open.file));
        if let Err(error) = written {
            // After a failed sync nobody knows what is on disk: the batch is taken back and written again.
            let (identity, len) = (open.identity, open.len);
            if self.disk.set_len(&open.file, len).is_err() {
                self.cut = Some((identity, len));
            }
            self.open = None;
            return Err(self.trouble("write to", &error));
        }
        open.len += bytes;
        open.written = now;
        self.written = Some(place(&batch[count - 1])?);
        self.known.clone_from(&self.written);
        Ok(count)
    }

    /// Reports whether a line of this size starts a new file.
    fn is_due(&self, size: u64, now: SystemTime) -> bool {
        let Some(open) = self.open.as_ref().filter(|open| open.len > 0) else { return false };
        let period = |every: Duration, at: SystemTime| {
            at.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_nanos() / every.as_nanos())
        };
        open.len + size > self.rotate_size
            || self.rotate_every.is_some_and(|every| period(every, open.written) < period(every, now))
    }

    /// Moves the file, which is on disk as a whole, to its rotated name and begins a new one. A crash in between
    /// leaves no current file: the position is then found in the rotated one.
    fn rotate(&mut self, now: SystemTime) -> Result<(), SinkError> {
        let first = self.open.as_ref().and_then(|open| tail::first_seq(&open.file).ok().flatten()).unwrap_or_default();
        self.open = None;
        let to = self.layout.next_name(now, first).map_err(|error| self.trouble("rotate", &error))?;
        self.disk
            .rename(&self.layout.path, &to)
            .and_then(|()| self.disk.sync_dir(&self.layout.dir))
            .map_err(|error| self.trouble("rotate", &error))?;
        self.checkpoints.ask();
        self.reopen()?;
        if let Some(tidy) = &self.tidy {
            tidy.wake();
        }
        Ok(())
    }

    /// Reports whether one of the files holds this very entry. An entry older than all of them may be in a file that was
    /// removed, or that somebody else has compressed.
    fn holds(&self, entry: &LogPosition) -> Result<Option<bool>, SinkError> {
        let trouble = |error: io::Error| self.trouble("read", &error);
        let mut held = None;
        for path in self.layout.all().map_err(trouble)? {
            match tail::holds(&path, entry) {
                Ok(found) => held = held.max(found),
                // Compressed or removed in the meantime.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(trouble(error)),
            }
            if held == Some(true) {
                break;
            }
        }
        Ok(held)
    }

    /// The epochs of all files, and the first seq of each.
    fn epochs(&self) -> Result<BTreeMap<String, Seq>, SinkError> {
        let trouble = |error: io::Error| self.trouble("read", &error);
        let mut epochs = BTreeMap::new();
        for path in self.layout.all().map_err(trouble)? {
            match tail::epochs(&path) {
                Ok(firsts) => note_first(&mut epochs, firsts),
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(trouble(error)),
            }
        }
        Ok(epochs)
    }

    fn check(&self) -> Result<(), SinkError> {
        let dir = &self.layout.dir;
        os::exists(dir).map_err(|error| self.trouble("open", &error))?;
        if !dir.is_dir() {
            return Err(SinkError::halt(format!("{} is not a directory; correct `path`", dir.display())));
        }
        let path = &self.layout.path;
        if path.exists() && !path.is_file() {
            return Err(no_file(path));
        }
        if path.exists() {
            let file = OpenOptions::new().read(true).append(true).open(path);
            let file = file.map_err(|error| self.trouble("write to", &error))?;
            let tail = tail::read(&file, None).map_err(|error| self.trouble("read", &error))?;
            tail.map_err(|foreign| SinkError::halt(foreign.text(path)))?;
        }
        // Rotation and logrotate's way both make new files.
        os::may_write(dir).map_err(|error| self.trouble("create", &error))
    }
}

fn no_file(path: &Path) -> SinkError {
    SinkError::halt(format!("{} is not a regular file; a sink of the type \"stdout\" writes to pipes", path.display()))
}

/// Locks it, or reports that somebody else has. A child on its way to become another program, such as a credential
/// plugin, has every open file for a moment, and so the lock of one that was closed just now.
fn lock(file: &File) -> bool {
    (0..100).any(|attempt| {
        if attempt > 0 && !runtime::is_simulated() {
            std::thread::sleep(Duration::from_millis(10));
        }
        file.try_lock().is_ok()
    })
}

/// Opens a file to append to, made where there is none.
fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).append(true).mode(0o600);
    match options.clone().create_new(true).open(path) {
        Ok(file) => {
            // The umask of a service is narrower. A file system without permissions has none to set.
            os::set_file_mode(&file, MODE).ok();
            Ok(file)
        }
        // Also a symbolic link to a file that is not there yet.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => options.create(true).open(path),
        Err(error) => Err(error),
    }
}

fn identity_of(path: &Path) -> Option<(u64, u64)> {
    std::fs::metadata(path).ok().map(|meta| (meta.dev(), meta.ino()))
}

/// A file of JSON Lines.
#[derive(Debug)]
pub struct FileSink {
    writer: Arc<Mutex<Writer>>,
    reopen: bool,
}

impl FileSink {
    /// A sink that writes where the configuration says; nothing is opened yet.
    #[must_use]
    pub fn new(config: &Settings) -> Self {
        let mut writer = Writer::new(config, Disk::default());
        if writer.rotate_size < u64::MAX || writer.rotate_every.is_some() {
            writer.tidy = Some(Tidy::new(writer.layout.clone(), writer.disk.clone()));
        }
        Self { writer: Arc::new(Mutex::new(writer)), reopen: false }
    }

    /// Does blocking work with the writer. A caller that stops waiting does not stop the work.
    async fn blocking<T: Send + 'static>(&mut self, work: impl FnOnce(&mut Writer) -> T + Send + 'static) -> T {
        let (writer, reopen) = (Arc::clone(&self.writer), std::mem::take(&mut self.reopen));
        runtime::blocking(move || {
            let mut writer = writer.lock().unwrap_or_else(PoisonError::into_inner);
            if reopen {
                writer.open = None;
            }
            work(&mut writer)
        })
        .await
    }
}

impl Sink for FileSink {
    fn class(&self) -> Class {
        Class::ExactlyOnce
    }

    fn limits(&self) -> Limits {
        Limits { entries: 1024, bytes: 2 << 20, linger: Duration::ZERO }
    }

    fn position<'a>(&'a mut self, cursor: &'a LogPosition) -> BoxFuture<'a, Result<Option<LogPosition>, SinkError>> {
        let cursor = cursor.clone();
        self.blocking(move |writer| writer.position(&cursor)).boxed()
    }

    fn sign_with(&mut self, checkpoints: &CheckpointHandle) {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner).checkpoints = checkpoints.clone();
    }

    fn holds<'a>(&'a mut self, entry: &'a LogPosition) -> BoxFuture<'a, Result<Option<bool>, SinkError>> {
        let entry = entry.clone();
        self.blocking(move |writer| writer.holds(&entry)).boxed()
    }

    fn epochs(&mut self) -> BoxFuture<'_, Result<BTreeMap<String, Seq>, SinkError>> {
        self.blocking(|writer| writer.epochs()).boxed()
    }

    fn deliver<'a>(&'a mut self, batch: &'a [Item]) -> BoxFuture<'a, Result<(), Failure>> {
        let batch = batch.to_vec();
        self.blocking(move |writer| writer.deliver(&batch)).boxed()
    }

    fn reopen(&mut self) {
        self.reopen = true;
    }

    fn check(&mut self) -> BoxFuture<'_, Result<(), SinkError>> {
        self.blocking(|writer| writer.check()).boxed()
    }
}
