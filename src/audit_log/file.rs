//! A file that the API server writes and rotates: read on from a stored place, each line once.
//!
//! The API server renames a full file to `audit-2026-11-28T06-35-52.123.log` beside it, may compress it (`.gz`), begins another one under
//! the old name, and removes the oldest. A place is in a file and not at a path: device, inode, and a digest of its first bytes, because
//! inodes are used again and a compressed file is another one.

use std::fs::{self, File};
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Bytes of a line beyond which it is cut off. An event at level `RequestResponse` holds two objects of 1.5 MiB at most.
const LINE_MAX: usize = 4 << 20;
/// Bytes that are read at once.
const BATCH_BYTES: usize = 1 << 20;
/// Bytes at the beginning of a file that identify it.
const HEAD_BYTES: usize = 512;

/// Place in a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct FilePosition {
    device: u64,
    inode: u64,
    /// Offset in what the file holds, uncompressed.
    offset: u64,
    /// Digest of the first bytes, and how many these are.
    head: String,
    head_bytes: usize,
    /// Set in the middle of a line of which the rest is left out.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    skips: bool,
    /// Modification time of the file when it was read last, nanoseconds since 1970.
    modified: i64,
}

/// A line without its line break.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileLine {
    pub(super) bytes: Vec<u8>,
    /// Set where the line was longer than decklog reads.
    pub(super) cut: bool,
}

/// Lines of a file, and the place behind them.
#[derive(Debug, Default)]
pub(super) struct FileBatch {
    pub(super) lines: Vec<FileLine>,
    /// None before the file was there.
    pub(super) position: Option<FilePosition>,
    /// Set where a part of the log was gone before it was read.
    pub(super) lost: bool,
    /// Set where nothing more was there.
    pub(super) caught_up: bool,
}

/// Reader of a file and of those that it is rotated to.
#[derive(Debug)]
pub(super) struct Tail {
    path: PathBuf,
    /// Place to go on from, until a file is open.
    from: Option<FilePosition>,
    open: Option<Open>,
    /// Set once it was looked for: a file that comes later is read from its beginning.
    looked: bool,
}

/// An open file.
struct Open {
    source: Box<dyn Read + Send>,
    /// The plain file, which may grow; none of a compressed one.
    file: Option<File>,
    place: FilePosition,
    /// Bytes behind the place that are no whole line yet.
    pending: Vec<u8>,
    /// Set after the end was seen once more behind a rotation.
    ended: bool,
}

impl std::fmt::Debug for Open {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Open").field("place", &self.place).finish_non_exhaustive()
    }
}

impl Tail {
    /// Goes on from a place; without one from the end of what is there now.
    pub(super) fn new(path: &Path, from: Option<FilePosition>) -> Self {
        Self { path: path.to_owned(), from, open: None, looked: false }
    }

    /// Reads what is there next. Blocks on the disk.
    ///
    /// # Errors
    /// Where a file cannot be opened or read.
    pub(super) fn read(&mut self) -> io::Result<FileBatch> {
        let mut lost = false;
        if self.open.is_none() {
            lost = self.find()?;
        }
        let Some(open) = &mut self.open else {
            return Ok(FileBatch { position: self.from.clone(), lost, caught_up: true, ..FileBatch::default() });
        };
        let mut lines = Vec::new();
        let count = open.fill()?;
        open.take_lines(&mut lines);
        let mut caught_up = count == 0;
        if caught_up {
            match open.state(&self.path)? {
                State::Same => open.ended = false,
                State::Shorter => {
                    lost = true;
                    open.restart()?;
                    caught_up = false;
                }
                // The API server may have written to it after it was read and before it was renamed.
                State::Other if !open.ended => {
                    open.ended = true;
                    caught_up = false;
                }
                State::Other => {
                    open.take_rest(&mut lines);
                    let place = open.place.clone();
                    caught_up = !self.next(&place)?;
                }
            }
        }
        let position = self.open.as_ref().map(|open| open.place.clone());
        Ok(FileBatch { lines, position, lost, caught_up })
    }

    /// Opens the file of the place to go on from. Reports whether that is gone.
    fn find(&mut self) -> io::Result<bool> {
        let is_first = !std::mem::replace(&mut self.looked, true);
        let Some(place) = self.from.clone() else {
            if let Some(mut open) = Open::at(&self.path)? {
                if is_first {
                    open.skip_to_end()?;
                }
                self.open = Some(open);
            }
            return Ok(false);
        };
        let mut found = None;
        for path in std::iter::once(self.path.clone()).chain(rotated(&self.path)?) {
            if let Some(open) = Open::at(&path)?
                && open.is(&place)
            {
                found = Some(open);
                break;
            }
        }
        match found {
            Some(mut open) => {
                open.go_to(&place)?;
                self.open = Some(open);
                Ok(false)
            }
            None => {
                // What was written since then, as far as it is there.
                let newer = rotated(&self.path)?.into_iter().find(|path| modified(path) > place.modified);
                let path = newer.unwrap_or_else(|| self.path.clone());
                self.open = Open::at(&path)?;
                if self.open.is_none() {
                    return Ok(false);
                }
                self.from = None;
                Ok(true)
            }
        }
    }

    /// Opens the file that follows the one that was read to its end. Reports whether there is one.
    fn next(&mut self, place: &FilePosition) -> io::Result<bool> {
        let rotated = rotated(&self.path)?;
        let mut identities = rotated.iter().map(|path| fs::metadata(path).ok().map(|meta| (meta.dev(), meta.ino())));
        let mine = identities.position(|identity| identity == Some((place.device, place.inode)));
        let mut later: Vec<PathBuf> = match mine {
            Some(mine) => rotated[mine + 1..].to_vec(),
            // It was compressed or removed meanwhile.
            None => rotated.into_iter().filter(|path| modified(path) > place.modified).collect(),
        };
        later.push(self.path.clone());
        for path in later {
            if let Some(open) = Open::at(&path)?
                && !open.is(place)
            {
                self.open = Some(open);
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// State of an open file beside the path.
enum State {
    /// It is the one at the path, and has nothing more.
    Same,
    /// It was cut.
    Shorter,
    /// Another one is at the path.
    Other,
}

impl Open {
    /// Opens a file at its beginning; none where there is none.
    fn at(path: &Path) -> io::Result<Option<Self>> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let meta = file.metadata()?;
        if !meta.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no file"));
        }
        let place = FilePosition { device: meta.dev(), inode: meta.ino(), ..FilePosition::default() };
        let is_compressed = path.extension().is_some_and(|extension| extension == "gz");
        let (source, file): (Box<dyn Read + Send>, _) = if is_compressed {
            (Box::new(MultiGzDecoder::new(BufReader::new(file))), None)
        } else {
            (Box::new(file.try_clone()?), Some(file))
        };
        let mut open = Self { source, file, place, pending: Vec::new(), ended: false };
        open.fill()?;
        Ok(Some(open))
    }

    /// Reads on. Gives the number of bytes.
    fn fill(&mut self) -> io::Result<usize> {
        let before = self.pending.len();
        (&mut self.source).take(BATCH_BYTES as u64).read_to_end(&mut self.pending)?;
        if self.place.head_bytes < HEAD_BYTES && self.place.offset == 0 {
            let head = &self.pending[..self.pending.len().min(HEAD_BYTES)];
            (self.place.head, self.place.head_bytes) = (digest(head), head.len());
        }
        if let Some(file) = &self.file {
            self.place.modified = nanoseconds(&file.metadata()?);
        }
        Ok(self.pending.len() - before)
    }

    /// Moves whole lines out of what was read. A line that is too long is cut, and its rest left out.
    fn take_lines(&mut self, lines: &mut Vec<FileLine>) {
        let mut begin = 0;
        while let Some(end) = memchr::memchr(b'\n', &self.pending[begin..]) {
            let line = &self.pending[begin..begin + end];
            if !std::mem::take(&mut self.place.skips) {
                lines.push(FileLine { bytes: line.to_vec(), cut: false });
            }
            begin += end + 1;
        }
        let rest = self.pending.len() - begin;
        if self.place.skips || rest > LINE_MAX {
            if !std::mem::replace(&mut self.place.skips, true) {
                lines.push(FileLine { bytes: self.pending[begin..begin + LINE_MAX].to_vec(), cut: true });
            }
            begin = self.pending.len();
        }
        self.pending.drain(..begin);
        self.place.offset += begin as u64;
    }

    /// Takes what is left of a file that nobody writes any more.
    fn take_rest(&mut self, lines: &mut Vec<FileLine>) {
        let rest = std::mem::take(&mut self.pending);
        self.place.offset += rest.len() as u64;
        if !rest.is_empty() && !std::mem::take(&mut self.place.skips) {
            lines.push(FileLine { bytes: rest, cut: false });
        }
    }

    fn state(&self, path: &Path) -> io::Result<State> {
        let Some(file) = &self.file else { return Ok(State::Other) };
        if file.metadata()?.len() < self.place.offset + self.pending.len() as u64 {
            return Ok(State::Shorter);
        }
        match fs::metadata(path) {
            Ok(meta) if (meta.dev(), meta.ino()) == (self.place.device, self.place.inode) => Ok(State::Same),
            Ok(_) => Ok(State::Other),
            // Between two renames there is none.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(State::Same),
            Err(error) => Err(error),
        }
    }

    /// Goes back to the beginning of a file that was cut.
    fn restart(&mut self) -> io::Result<()> {
        if let Some(file) = &mut self.file {
            file.seek(SeekFrom::Start(0))?;
        }
        self.pending.clear();
        let FilePosition { device, inode, .. } = self.place;
        self.place = FilePosition { device, inode, ..FilePosition::default() };
        Ok(())
    }

    /// Reports whether a place is in this file: what was written first is the same, and so long.
    fn is(&self, place: &FilePosition) -> bool {
        let is_same_file = (self.place.device, self.place.inode) == (place.device, place.inode);
        let head = self.pending.get(..place.head_bytes);
        let is_alike = head.is_some_and(|head| digest(head) == place.head);
        is_alike && (is_same_file || self.file.is_none() && place.head_bytes > 0)
    }

    /// Moves to a place in this file. Where it is shorter the beginning is as good.
    fn go_to(&mut self, place: &FilePosition) -> io::Result<()> {
        let mut left = place.offset;
        while left > 0 {
            let part = left.min(self.pending.len() as u64);
            self.pending.drain(..usize::try_from(part).unwrap_or(usize::MAX));
            left -= part;
            if left > 0 && self.fill()? == 0 {
                return self.restart();
            }
        }
        (self.place.offset, self.place.skips) = (place.offset, place.skips);
        (self.place.head, self.place.head_bytes) = (place.head.clone(), place.head_bytes);
        Ok(())
    }

    /// Leaves out what is there, up to the last line break.
    fn skip_to_end(&mut self) -> io::Result<()> {
        let mut left_out = Vec::new();
        loop {
            self.take_lines(&mut left_out);
            left_out.clear();
            if self.fill()? == 0 {
                return Ok(());
            }
        }
    }
}

/// The files that a path was rotated to, the oldest first: the time is in their names.
fn rotated(path: &Path) -> io::Result<Vec<PathBuf>> {
    let (Some(dir), Some(stem)) = (path.parent(), path.file_stem().and_then(|stem| stem.to_str())) else {
        return Ok(Vec::new());
    };
    let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
    let end = path.extension().and_then(|end| end.to_str()).map_or_else(String::new, |end| format!(".{end}"));
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut names = Vec::new();
    for entry in entries {
        let name = entry?.file_name();
        let Some(name) = name.to_str() else { continue };
        let plain = name.strip_suffix(".gz").unwrap_or(name);
        let time = plain.strip_prefix(stem).and_then(|rest| rest.strip_prefix('-')?.strip_suffix(end.as_str()));
        if time.is_some_and(|time| time.starts_with(|first: char| first.is_ascii_digit())) {
            names.push((plain.to_owned(), name.ends_with(".gz"), dir.join(name)));
        }
    }
    names.sort();
    // While a file is compressed both are there.
    names.dedup_by(|later, earlier| later.0 == earlier.0);
    Ok(names.into_iter().map(|(_, _, path)| path).collect())
}

fn modified(path: &Path) -> i64 {
    fs::metadata(path).map_or(0, |meta| nanoseconds(&meta))
}

fn nanoseconds(meta: &fs::Metadata) -> i64 {
    meta.mtime().saturating_mul(1_000_000_000).saturating_add(meta.mtime_nsec())
}

fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}
