//! A file that is open, with the place up to which it was read.

use std::fs::File;
use std::io;
use std::path::Path;

use jiff::Timestamp;

use super::compressed::Compressed;
use super::position::{FilePosition, HEAD_BYTES, Head, Identity};
use crate::audit_log::lines::{Line, Splitter};
use crate::core::os::{self, FileExt, FileTypeExt};

/// Bytes that are read at a time.
const PIECE_BYTES: usize = 64 << 10;

/// Where bytes come from.
#[derive(Debug)]
enum Source {
    /// A file that may grow and be truncated.
    Plain(File),
    /// A compressed file, which is whole, with its first bytes and the time at which it was rotated.
    Compressed(Box<Compressed>, Vec<u8>, Timestamp),
    /// A pipe, which has no position.
    Pipe(File),
}

/// See the module.
#[derive(Debug)]
pub(super) struct Opened {
    source: Source,
    identity: Identity,
    head: Head,
    changed: Timestamp,
    lines: Splitter,
    piece: Vec<u8>,
    /// Nothing was read since it was opened.
    is_fresh: bool,
}

/// Reason why a read of a file stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// There is more.
    Full,
    /// This is its end for now.
    End,
    /// It is another content than was read before: it was truncated.
    Truncated,
}

/// A file that was looked at, before it is known whether it is the one to read.
#[derive(Debug)]
pub(super) struct Candidate {
    file: File,
    pub(super) identity: Identity,
    length: u64,
    changed: Timestamp,
    is_pipe: bool,
}

impl Candidate {
    /// Opens a file for reading; none if there is none. A pipe is not waited for.
    pub(super) fn open(path: &Path) -> io::Result<Option<Self>> {
        let file = match os::open_at_once(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let meta = file.metadata()?;
        if meta.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        let is_pipe = meta.file_type().is_fifo();
        let changed = meta.modified()?.try_into().unwrap_or(Timestamp::UNIX_EPOCH);
        Ok(Some(Self { identity: Identity::of(&meta), length: meta.len(), changed, is_pipe, file }))
    }

    pub(super) const fn is_pipe(&self) -> bool {
        self.is_pipe
    }

    /// Reports whether it is the file of a position, of which something was read: it has so many bytes, and begins as that one.
    pub(super) fn is_at(&self, position: &FilePosition) -> io::Result<bool> {
        Ok(self.length >= position.offset && position.head.begins(&self.file)?)
    }

    /// Reads it from its beginning, or from a position that [is its own](Self::is_at).
    pub(super) fn begin(self, position: Option<&FilePosition>) -> Opened {
        let (offset, within, head) =
            position.filter(|_| !self.is_pipe).map_or((0, false, Head::default()), |position| {
                (position.offset, position.within_cut, position.head.clone())
            });
        let source = if self.is_pipe { Source::Pipe(self.file) } else { Source::Plain(self.file) };
        Opened::new(source, self.identity, head, self.changed, Splitter::at(offset, within))
    }

    /// Reads it as a compressed file, which was rotated at a time; none if that is not the file of the position.
    pub(super) fn decompress(self, position: Option<&FilePosition>, ended: Timestamp) -> io::Result<Option<Opened>> {
        let (offset, within) = position.map_or((0, false), |position| (position.offset, position.within_cut));
        let head = position.map(|position| position.head.clone()).unwrap_or_default();
        let opened = Compressed::open(self.file, offset, &head)?;
        Ok(opened.map(|(bytes, first)| {
            let source = Source::Compressed(Box::new(bytes), first, ended);
            Opened::new(source, self.identity, head, ended, Splitter::at(offset, within))
        }))
    }
}

impl Opened {
    fn new(source: Source, identity: Identity, head: Head, changed: Timestamp, lines: Splitter) -> Self {
        Self { source, identity, head, changed, lines, piece: vec![0; PIECE_BYTES], is_fresh: true }
    }

    pub(super) const fn identity(&self) -> Identity {
        self.identity
    }

    /// Returns the position behind the lines that were handed on.
    pub(super) fn position(&self, complete_at: Timestamp) -> FilePosition {
        let (offset, within_cut) = self.lines.position();
        let Identity { device, inode } = self.identity;
        FilePosition { device, inode, offset, within_cut, head: self.head.clone(), changed: self.changed, complete_at }
    }

    /// Returns the time of the last change of the file that was seen.
    pub(super) const fn changed(&self) -> Timestamp {
        self.changed
    }

    pub(super) const fn is_compressed(&self) -> bool {
        matches!(self.source, Source::Compressed(..))
    }

    /// Reads lines until there are `most` of them or `most_bytes` were passed. Lines of a file that was truncated meanwhile are not
    /// trusted.
    pub(super) fn read(&mut self, most: usize, most_bytes: u64, lines: &mut Vec<Line>) -> io::Result<Stop> {
        let is_fresh = std::mem::take(&mut self.is_fresh);
        if !self.is_whole()? || !is_fresh && self.may_be_another()? {
            return Ok(Stop::Truncated);
        }
        let (begin, _) = self.lines.position();
        let stop = loop {
            while let Some(line) = self.lines.next() {
                lines.push(line);
                if lines.len() >= most {
                    break;
                }
            }
            if lines.len() >= most || self.lines.position().0 - begin >= most_bytes {
                break Stop::Full;
            }
            let read = match &mut self.source {
                Source::Plain(file) => file.read_at(&mut self.piece, self.lines.end())?,
                Source::Compressed(bytes, first, _) => {
                    let read = bytes.read(&mut self.piece)?;
                    let wanted = usize::try_from(HEAD_BYTES).unwrap_or(0).saturating_sub(first.len());
                    first.extend_from_slice(&self.piece[..read.min(wanted)]);
                    read
                }
                Source::Pipe(file) => match io::Read::read(file, &mut self.piece) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
                    read => read?,
                },
            };
            if read == 0 {
                break Stop::End;
            }
            self.lines.push(&self.piece[..read]);
        };
        // It may have been truncated, and written again, between the look and the read.
        if !self.is_whole()? {
            lines.clear();
            return Ok(Stop::Truncated);
        }
        self.look()?;
        Ok(stop)
    }

    /// Returns the last bytes of a file that nobody writes any more; none if it ended with a line.
    pub(super) fn finish(&mut self) -> io::Result<Option<Line>> {
        let line = self.lines.finish();
        self.look()?;
        Ok(line)
    }

    /// Reports whether the file still has what was read of it.
    fn is_whole(&self) -> io::Result<bool> {
        match &self.source {
            Source::Plain(file) => Ok(file.metadata()?.len() >= self.lines.end() && self.head.begins(file)?),
            Source::Compressed(..) | Source::Pipe(_) => Ok(true),
        }
    }

    /// Reports whether the file may have been written and truncated, where nothing of it is known that would show it.
    fn may_be_another(&self) -> io::Result<bool> {
        let Source::Plain(file) = &self.source else { return Ok(false) };
        Ok(self.head.length == 0 && Timestamp::try_from(file.metadata()?.modified()?).ok() != Some(self.changed))
    }

    /// Looks at the head again, as long as it grows, and at the time of the last change.
    fn look(&mut self) -> io::Result<()> {
        let wanted = HEAD_BYTES.min(self.lines.position().0);
        match &self.source {
            Source::Plain(file) => {
                if self.head.length < wanted {
                    self.head = Head::read(file, wanted)?;
                }
                // While nothing of it is known, the time of its opening says whether it was written since.
                if self.head.length > 0 {
                    self.changed = file.metadata()?.modified()?.try_into().unwrap_or(self.changed);
                }
            }
            Source::Compressed(_, first, ended) => {
                if self.head.length < wanted {
                    self.head = Head::of(&first[..usize::try_from(wanted).unwrap_or(0).min(first.len())]);
                }
                self.changed = *ended;
            }
            Source::Pipe(_) => {}
        }
        Ok(())
    }
}
