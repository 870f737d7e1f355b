//! Lines of a copy, some at a time: the lines of a batch are examined on two threads.

use std::io::{self, BufRead, Read};
use std::ops::Range;
use std::panic::resume_unwind;
use std::sync::{Mutex, PoisonError};
use std::thread;

/// Bytes after which a batch is full.
const FULL: usize = 1 << 20;

/// Number of lines after which a batch is full.
const LINES_MAX: usize = 2048;

/// Number of lines from which on a second thread is worth its start.
const SHARED_MIN: usize = 16;

/// No line of a copy is longer, in bytes; the journal takes no larger entry either.
const LONGEST: u64 = 256 << 20;

/// Some lines of a file.
#[derive(Debug)]
pub(super) struct Batch {
    name: String,
    bytes: Vec<u8>,
    /// Range of each line, without its line break; `false` beside one that has none.
    lines: Vec<(Range<usize>, bool)>,
    /// Number of lines of the file before them.
    before: u64,
}

impl Batch {
    /// A batch of the file with this name, before its first line.
    pub(super) const fn new(name: String) -> Self {
        Self { name, bytes: Vec::new(), lines: Vec::new(), before: 0 }
    }

    /// Takes the next lines in place of those that it has. Returns false at the end of the file.
    ///
    /// # Errors
    /// Where the file cannot be read; the whole lines before that are there.
    pub(super) fn fill(&mut self, file: &mut dyn BufRead) -> io::Result<bool> {
        self.before += self.lines.len() as u64;
        self.lines.clear();
        self.bytes.clear();
        // One very long line is no reason to keep so much room.
        self.bytes.shrink_to(2 * FULL);
        while self.bytes.len() < FULL && self.lines.len() < LINES_MAX {
            let start = self.bytes.len();
            if (&mut *file).take(LONGEST).read_until(b'\n', &mut self.bytes)? == 0 {
                return Ok(false);
            }
            let is_whole = self.bytes.ends_with(b"\n");
            self.lines.push((start..self.bytes.len() - usize::from(is_whole), is_whole));
        }
        Ok(true)
    }

    /// Returns the number of bytes of its lines, with their line breaks.
    pub(super) fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Returns the number of lines up to its end.
    pub(super) fn last_line(&self) -> u64 {
        self.before + self.lines.len() as u64
    }

    /// Returns the place of a line, for people.
    pub(super) fn place(&self, at: usize) -> String {
        format!("{}, line {}", self.name, self.before + at as u64 + 1)
    }

    /// Returns a line without its line break; none of one that has no line break.
    pub(super) fn line(&self, at: usize) -> Option<&[u8]> {
        let (range, is_whole) = &self.lines[at];
        is_whole.then(|| &self.bytes[range.clone()])
    }

    /// Does something with each line, on two threads. Returns what came of each, in the order of the lines.
    pub(super) fn map<'b, T: Send>(&'b self, work: impl Fn(Option<&'b [u8]>) -> T + Sync) -> Vec<T> {
        let part = |range: Range<usize>| range.map(|at| work(self.line(at))).collect::<Vec<T>>();
        let count = self.lines.len();
        let middle = if count < SHARED_MIN { count } else { count / 2 };
        let (mut first, second) = both(|| part(0..middle), || part(middle..count), count >= SHARED_MIN);
        first.extend(second);
        first
    }
}

/// Does two things, where it is worth it at the same time.
pub(super) fn both<A, B: Send>(one: impl FnOnce() -> A, other: impl FnOnce() -> B + Send, is_worth_it: bool) -> (A, B) {
    if !is_worth_it {
        return (one(), other());
    }
    let other = Mutex::new(Some(other));
    let take = || other.lock().unwrap_or_else(PoisonError::into_inner).take().map(|other| other());
    thread::scope(|scope| {
        let second = thread::Builder::new().name("verify".to_owned()).spawn_scoped(scope, take);
        let one = one();
        // Without a second thread the first one does both.
        let other = second.map_or_else(|_| take(), |second| second.join().unwrap_or_else(|panic| resume_unwind(panic)));
        (one, other.expect("it is taken once"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Batches have all lines in their order and say where each stands, however many there are; one without its end is told apart.
    #[test]
    fn lines_come_once_and_in_order() {
        for count in [0, 1, SHARED_MIN - 1, SHARED_MIN, LINES_MAX, LINES_MAX + 1, 3 * LINES_MAX] {
            for end in ["", "cut"] {
                let text: String = (1..=count).map(|number| format!("{number}\n")).chain([end.to_owned()]).collect();
                let mut batch = Batch::new("f".to_owned());
                let (mut file, mut found, mut more) = (text.as_bytes(), Vec::new(), true);
                while more {
                    more = batch.fill(&mut file).unwrap();
                    let lines = batch.map(|line| line.map(<[u8]>::to_vec));
                    assert!(lines.len() <= LINES_MAX);
                    for (at, line) in lines.into_iter().enumerate() {
                        found.push((batch.place(at), line.map(|line| String::from_utf8(line).unwrap())));
                    }
                }
                let mut expected: Vec<_> =
                    (1..=count).map(|number| (format!("f, line {number}"), Some(number.to_string()))).collect();
                if !end.is_empty() {
                    expected.push((format!("f, line {}", count + 1), None));
                }
                assert_eq!(found, expected);
                assert_eq!(batch.last_line(), expected.len() as u64);
            }
        }
    }
}
