//! End of a file: the length of its complete part, and the position of its last line.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use crate::core::model::Seq;
use crate::core::os::FileExt;
use crate::core::wire::{Entry, EntryError};
use crate::sink::LogPosition;

/// Beginning of every entry: distinguishes a torn line of decklog's from foreign text.
const BEGINNING: &[u8] = b"{\"v\":1,\"seq\":";

/// Bytes before the end in which lines are examined. Only writes since the last acknowledgement can be torn, which is one
/// batch.
const EXAMINED: u64 = 64 << 20;

/// Bytes of one read.
const CHUNK: usize = 64 << 10;

/// Bytes from the beginning of a line that contain everything that identifies its entry.
const STAMP: usize = 4 << 10;

/// The end of a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Tail {
    /// The length up to which it is whole.
    pub(super) good: u64,
    /// The position of its last whole line; none in an empty file.
    pub(super) last: Option<LogPosition>,
}

/// The file ends with something that decklog did not write, and so does not touch.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Foreign {
    /// A line that is not an entry.
    Text,
    /// An entry of another wire version.
    Version(u64),
}

impl Foreign {
    /// A sentence for people.
    pub(super) fn text(&self, path: &Path) -> String {
        let path = path.display();
        match self {
            Self::Text => format!(
                "{path} ends with a line that decklog did not write; move the file away and send SIGHUP: decklog then begins a new one"
            ),
            Self::Version(version) => format!(
                "{path} ends with an entry of wire version {version}, written by another decklog; move the file away and send SIGHUP"
            ),
        }
    }
}

/// Reads the end of a file. Everything up to `known` is whole; lines after it are examined one by one, because a power
/// cut can leave a hole before a later line that is whole.
pub(super) fn read(file: &File, known: Option<&LogPosition>) -> io::Result<Result<Tail, Foreign>> {
    let len = file.metadata()?.len();
    let mut tail: Option<Tail> = None;
    let mut end = len;
    while end > 0 {
        let start = line_start(file, end)?;
        let mut line = vec![0; usize::try_from(end - start).map_err(io::Error::other)?];
        file.read_exact_at(&mut line, start)?;
        let entry = match line.strip_suffix(b"\n") {
            Some(whole) => Entry::parse(whole).map(Some),
            None => Ok(None),
        };
        match entry {
            Ok(Some(entry)) => {
                let position = LogPosition::at(&entry);
                let known = known.is_none_or(|known| position.epoch != known.epoch || position.seq <= known.seq);
                tail.get_or_insert(Tail { good: end, last: Some(position) });
                if known || len - start > EXAMINED {
                    break;
                }
            }
            Err(EntryError::Version(version)) => return Ok(Err(Foreign::Version(version))),
            Ok(None) | Err(EntryError::Json(_) | EntryError::Type | EntryError::Part(_)) => {
                let torn = line.starts_with(&BEGINNING[..BEGINNING.len().min(line.len())]) || line.contains(&0);
                if !torn {
                    return Ok(Err(Foreign::Text));
                }
                tail = None;
            }
        }
        end = start;
    }
    Ok(Ok(tail.unwrap_or(Tail { good: 0, last: None })))
}

/// Returns the start of the line whose last byte is before `end`.
fn line_start(file: &File, end: u64) -> io::Result<u64> {
    let mut chunk = vec![0; CHUNK];
    // The newline at the very end belongs to the line itself.
    let mut before = end - 1;
    while before > 0 {
        let start = before.saturating_sub(CHUNK as u64);
        let part = &mut chunk[..usize::try_from(before - start).map_err(io::Error::other)?];
        file.read_exact_at(part, start)?;
        if let Some(at) = memchr::memrchr(b'\n', part) {
            return Ok(start + at as u64 + 1);
        }
        before = start;
    }
    Ok(0)
}

/// The seq of the first line, for the name of a rotated file.
pub(super) fn first_seq(file: &File) -> io::Result<Option<Seq>> {
    let mut head = [0; 64];
    let count = file.read_at(&mut head, 0)?;
    let digits = head[..count].strip_prefix(BEGINNING).unwrap_or_default();
    let digits = digits.split(|byte| !byte.is_ascii_digit()).next().unwrap_or_default();
    Ok(std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok()).map(Seq))
}

/// The position of the last line of a file that is whole, plain or compressed. `None` where it has none.
pub(super) fn last_of(path: &Path) -> io::Result<Option<LogPosition>> {
    let file = File::open(path)?;
    if path.extension().is_none_or(|extension| extension != "zst") {
        return Ok(read(&file, None)?.ok().and_then(|tail| tail.last));
    }
    let mut lines = BufReader::with_capacity(CHUNK, zstd::stream::read::Decoder::new(file)?);
    let (mut line, mut last) = (Vec::new(), Vec::new());
    while lines.by_ref().read_until(b'\n', &mut line)? > 0 {
        std::mem::swap(&mut line, &mut last);
        line.clear();
    }
    let entry = last.strip_suffix(b"\n").and_then(|line| Entry::parse(line).ok());
    Ok(entry.map(|entry| LogPosition::at(&entry)))
}

/// Reports whether a file, plain or compressed, holds this very entry; `None` if the file begins after it.
pub(super) fn holds(path: &Path, entry: &LogPosition) -> io::Result<Option<bool>> {
    let file = File::open(path)?;
    if path.extension().is_none_or(|extension| extension != "zst") {
        return Ok(find(&file, entry)?.map(|found| found.is(entry)));
    }
    let mut lines = BufReader::with_capacity(CHUNK, zstd::stream::read::Decoder::new(file)?);
    let (mut line, mut held) = (Vec::new(), None);
    while lines.by_ref().read_until(b'\n', &mut line)? > 0 {
        if let Ok(found) = LogPosition::of(&line) {
            // Epochs and seqs only grow in a file.
            if (&found.epoch, found.seq) > (&entry.epoch, entry.seq) {
                break;
            }
            held = Some(found.is(entry));
        }
        line.clear();
    }
    Ok(held)
}

/// The place of the first line of each epoch in a file, plain or compressed.
pub(super) fn epochs(path: &Path) -> io::Result<Vec<LogPosition>> {
    let file = File::open(path)?;
    let mut firsts: Vec<LogPosition> = Vec::new();
    if path.extension().is_none_or(|extension| extension != "zst") {
        let mut next = position_at(&file, 0)?;
        while let Some(first) = next {
            let (_, end) = split(&file, &LogPosition { seq: Seq(u64::MAX), ..first.clone() })?;
            next = position_at(&file, end)?;
            firsts.push(first);
        }
        return Ok(firsts);
    }
    let mut lines = BufReader::with_capacity(CHUNK, zstd::stream::read::Decoder::new(file)?);
    let mut line = Vec::new();
    while lines.by_ref().read_until(b'\n', &mut line)? > 0 {
        if let Ok(place) = LogPosition::of(&line)
            && firsts.last().is_none_or(|last| last.epoch != place.epoch)
        {
            firsts.push(place);
        }
        line.clear();
    }
    Ok(firsts)
}

/// The place of the last line that does not come after `at`.
fn find(file: &File, at: &LogPosition) -> io::Result<Option<LogPosition>> {
    Ok(split(file, at)?.0)
}

/// The place of the last line that does not come after `at`, and where the next one begins, by bisection: epochs and seqs
/// only grow in a file.
fn split(file: &File, at: &LogPosition) -> io::Result<(Option<LogPosition>, u64)> {
    let after = |position: &LogPosition| (&position.epoch, position.seq) > (&at.epoch, at.seq);
    let (mut low, mut high) = (0, file.metadata()?.len());
    let mut found = match position_at(file, 0)? {
        Some(first) if !after(&first) => first,
        _ => return Ok((None, 0)),
    };
    loop {
        // The line that has the byte in the middle, or the next one where that is the first.
        let middle = line_start(file, low + (high - low) / 2 + 1)?;
        let start = if middle > low { middle } else { line_end(file, low)? };
        if start >= high {
            return Ok((Some(found), high));
        }
        match position_at(file, start)? {
            Some(position) if !after(&position) => (low, found) = (start, position),
            _ => high = start,
        }
    }
}

/// Reads the position of the line that begins here.
fn position_at(file: &File, start: u64) -> io::Result<Option<LogPosition>> {
    let mut head = vec![0; STAMP];
    let count = file.read_at(&mut head, start)?;
    // Of an entry without its object the line may end before that, and the next one begin.
    let line = head[..count].split(|byte| *byte == b'\n').next().unwrap_or_default();
    Ok(LogPosition::of(line).ok())
}

/// Returns the end of the line that begins here, which is the start of the next one.
fn line_end(file: &File, start: u64) -> io::Result<u64> {
    let mut chunk = vec![0; CHUNK];
    let mut at = start;
    loop {
        match file.read_at(&mut chunk, at)? {
            0 => return Ok(at),
            count => match memchr::memchr(b'\n', &chunk[..count]) {
                Some(end) => return Ok(at + end as u64 + 1),
                None => at += count as u64,
            },
        }
    }
}
