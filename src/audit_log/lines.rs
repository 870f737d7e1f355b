//! Lines of bounded length, cut out of bytes that come in pieces.

use bytes::Bytes;
use memchr::memchr;

/// Bytes of a line that are handed on; the rest of a longer one is skipped. The API server cuts events at 100 KiB where its
/// truncation is on.
pub const LINE_BYTES: usize = 1 << 20;

/// A line without its end, and without a carriage return before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Its bytes, at most [`LINE_BYTES`].
    pub bytes: Bytes,
    /// True if bytes may be missing at its end: it was too long, or its file ended without the end of the line.
    pub cut: bool,
}

/// Cuts bytes into lines. It holds what is not yet a line, which is bounded by the longest line and one piece.
#[derive(Debug, Default)]
pub(super) struct Splitter {
    buffer: Vec<u8>,
    /// Bytes of the buffer that were handed on or skipped.
    start: usize,
    /// Bytes of the buffer that hold no end of a line behind `start`.
    scanned: usize,
    /// Offset in the stream behind what was handed on or skipped.
    consumed: u64,
    /// The rest of a line that was handed on as its first bytes is skipped.
    skips: bool,
}

impl Splitter {
    /// Begins at an offset; within a line that was cut, if `skips`.
    pub(super) fn at(consumed: u64, skips: bool) -> Self {
        Self { consumed, skips, ..Self::default() }
    }

    /// Returns the offset behind what was handed on or skipped, and whether it is within a line that was cut.
    pub(super) const fn position(&self) -> (u64, bool) {
        (self.consumed, self.skips)
    }

    /// Returns the offset behind what was pushed.
    pub(super) fn end(&self) -> u64 {
        self.consumed + (self.buffer.len() - self.start) as u64
    }

    /// Adds bytes.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.scanned -= self.start;
            self.start = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the next line; none until more is pushed. Empty lines are passed over.
    pub(super) fn next(&mut self) -> Option<Line> {
        loop {
            let end = memchr(b'\n', &self.buffer[self.scanned..]).map(|at| self.scanned + at);
            match end {
                Some(end) if self.skips => {
                    self.skips = false;
                    self.pass(end + 1);
                }
                Some(end) if end - self.start <= LINE_BYTES => {
                    let line = trimmed(&self.buffer[self.start..end]);
                    let line = Line { bytes: Bytes::copy_from_slice(line), cut: false };
                    self.pass(end + 1);
                    if !line.bytes.is_empty() {
                        return Some(line);
                    }
                }
                None if self.skips => {
                    self.pass(self.buffer.len());
                    return None;
                }
                None if self.buffer.len() - self.start <= LINE_BYTES => {
                    self.scanned = self.buffer.len();
                    return None;
                }
                Some(_) | None => {
                    let end = self.start + LINE_BYTES;
                    let line = Line { bytes: Bytes::copy_from_slice(&self.buffer[self.start..end]), cut: true };
                    self.pass(end);
                    self.skips = true;
                    return Some(line);
                }
            }
        }
    }

    /// Returns what is left where nothing follows any more; none if nothing is.
    pub(super) fn finish(&mut self) -> Option<Line> {
        let rest = trimmed(&self.buffer[self.start..]);
        let line = Line { bytes: Bytes::copy_from_slice(rest), cut: true };
        self.pass(self.buffer.len());
        (!line.bytes.is_empty()).then_some(line)
    }

    fn pass(&mut self, to: usize) {
        self.consumed += (to - self.start) as u64;
        self.start = to;
        self.scanned = to;
    }
}

fn trimmed(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lengths and marks of lines, the position behind them, and what is left.
    type Split = (Vec<(usize, bool)>, u64, bool, Option<Vec<u8>>);

    /// The lines of a text that comes in pieces of one size, with what is left at the end.
    fn split(text: &[u8], piece: usize) -> Split {
        let mut splitter = Splitter::default();
        let mut lines = Vec::new();
        for piece in text.chunks(piece) {
            splitter.push(piece);
            lines.extend(std::iter::from_fn(|| splitter.next()).map(|line| (line.bytes.len(), line.cut)));
        }
        let (offset, skips) = splitter.position();
        (lines, offset, skips, splitter.finish().map(|line| line.bytes.to_vec()))
    }

    #[test]
    fn lines_are_the_same_however_they_come() {
        let long = LINE_BYTES;
        let of = |length: usize, end: &str| [vec![b'x'; length], end.as_bytes().to_vec()].concat();
        for (name, text, lines, offset, skips, rest) in [
            ("nothing", vec![], vec![], 0, false, None),
            ("one", b"ab\n".to_vec(), vec![(2, false)], 3, false, None),
            ("half", b"ab\ncd".to_vec(), vec![(2, false)], 3, false, Some("cd")),
            ("carriage returns", b"ab\r\n\r\nc\r\n".to_vec(), vec![(2, false), (1, false)], 9, false, None),
            ("empty", b"\n\n\na\n\n".to_vec(), vec![(1, false)], 6, false, None),
            ("longest", of(long, "\na\n"), vec![(long, false), (1, false)], long + 3, false, None),
            ("too long", of(long + 1, "\na\n"), vec![(long, true), (1, false)], long + 4, false, None),
            ("far too long", of(3 * long, "\na\n"), vec![(long, true), (1, false)], 3 * long + 3, false, None),
            ("without end", of(2 * long, ""), vec![(long, true)], 2 * long, true, None),
        ] {
            for piece in [1 << 16, 4097, long * 4].into_iter().chain((text.len() < 100).then_some(1)) {
                let got = split(&text, piece);
                let expected = (lines.clone(), offset as u64, skips, rest.map(|rest| rest.as_bytes().to_vec()));
                assert_eq!(got, expected, "{name} in pieces of {piece}");
            }
        }
    }

    #[test]
    fn it_goes_on_within_a_line_that_was_cut() {
        let mut splitter = Splitter::at(100, true);
        splitter.push(b"rest\nab\n");
        assert_eq!(splitter.next().unwrap().bytes, "ab");
        assert_eq!((splitter.position(), splitter.end()), ((108, false), 108));
    }
}
