//! Staged objects of a slice, which another thread decompresses while the writer writes those before them.
//!
//! # Decision: a slice of a list is decompressed on another thread
//!
//! Context: Decompressing a listed object and finding its newest stamp takes a third of the time that the writer spends on it.
//! Decision: A thread that lives as long as the slice does that, a few objects ahead. It touches neither the database nor the
//! state; without it, and for large objects, the writer does the same itself.
//! Cost: A thread for each slice of a long list.

use std::sync::mpsc;
use std::thread;

use jiff::Timestamp;
use rusqlite::Row;

use super::{Observed, Redacted, ResourceVersion, Result, marks_of};
use crate::core::change;
use crate::journal::codec::{Codec, CodecError};

/// A slice of fewer objects is not worth a thread.
const WORTH_A_THREAD: usize = 32;
/// Objects that are decompressed ahead of the writer.
const AHEAD: usize = 16;
/// Bytes in memory for each byte of the stored marks and pointers.
const PARSED: u64 = 4;
/// Bytes of an object that is decompressed ahead at most.
const LARGE: u64 = 64 << 10;

/// Rows of a list in progress, and the frames of their objects.
#[derive(Default)]
pub(super) struct Slice {
    rows: Vec<StagedRow>,
    frames: Vec<Vec<u8>>,
}

/// A row of a list in progress.
struct StagedRow {
    id: i64,
    object: Observed,
    gone: bool,
}

/// A staged object, or a deletion that was recovered.
pub(super) struct Staged<'f> {
    pub(super) row: i64,
    /// The object without its bytes.
    pub(super) object: Observed,
    /// Its bytes as a zstd frame; empty where it is gone.
    pub(super) frame: &'f [u8],
    pub(super) gone: bool,
    opened: Option<Opened>,
}

/// The bytes of an object, and its newest stamp.
pub(super) struct Opened {
    pub(super) bytes: Result<Vec<u8>, CodecError>,
    pub(super) newest: Option<Timestamp>,
}

impl Opened {
    fn of(codec: &mut Codec, frame: &[u8]) -> Self {
        let bytes = codec.decompress(None, frame);
        let newest = bytes.as_ref().ok().and_then(|bytes| change::newest_stamp(bytes));
        Self { bytes, newest }
    }

    /// Decompresses an object ahead of the writer, unless it is large.
    fn ahead(codec: &mut Codec, frame: &[u8]) -> Option<Self> {
        let is_small = Codec::content_size(frame).is_some_and(|size| size <= LARGE);
        is_small.then(|| Self::of(codec, frame))
    }
}

impl Staged<'_> {
    /// The bytes, which this thread decompresses where no other has.
    pub(super) fn open(&mut self, codec: &mut Codec) -> Opened {
        self.opened.take().unwrap_or_else(|| Opened::of(codec, self.frame))
    }
}

impl Slice {
    /// Adds a row: id, namespace, name, uid, version, body, marks, pointers and whether it is gone. Returns the bytes that it
    /// takes: an object with many masked values is small as a frame alone.
    pub(super) fn push(&mut self, row: &Row<'_>) -> rusqlite::Result<u64> {
        let (marks, pointers): (Option<String>, Option<String>) = (row.get(6)?, row.get(7)?);
        let parsed = [&marks, &pointers].map(|text| text.as_ref().map_or(0, String::len) as u64 * PARSED);
        let body = Redacted {
            bytes: Vec::new(),
            marks: marks_of(marks),
            pointers: pointers.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default(),
        };
        let (namespace, name, uid) = (row.get(1)?, row.get(2)?, row.get(3)?);
        let object = Observed { namespace, name, uid, version: ResourceVersion(row.get(4)?), body };
        let frame: Vec<u8> = row.get(5)?;
        let bytes = frame.len() as u64 + parsed[0] + parsed[1];
        self.rows.push(StagedRow { id: row.get(0)?, object, gone: row.get(8)? });
        self.frames.push(frame);
        Ok(bytes)
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Leaves the first row alone.
    pub(super) fn truncate_to_first(&mut self) {
        self.rows.truncate(1);
        self.frames.truncate(1);
    }

    /// Hands the objects to `write` in their order.
    pub(super) fn each(self, mut write: impl FnMut(Staged<'_>) -> Result) -> Result {
        let Self { rows, frames } = self;
        let mut hand_on =
            |StagedRow { id, object, gone }, frame, opened| write(Staged { row: id, object, frame, gone, opened });
        if rows.len() < WORTH_A_THREAD {
            return rows.into_iter().zip(&frames).try_for_each(|(row, frame)| hand_on(row, frame, None));
        }
        thread::scope(|scope| {
            let (sender, opened) = mpsc::sync_channel(AHEAD);
            let frames = &frames;
            let ahead = move || {
                let mut codec = Codec::default();
                // The writer has ended where nobody receives.
                frames.iter().try_for_each(|frame| sender.send(Opened::ahead(&mut codec, frame))).ok();
            };
            // Where the system has no more threads, nothing is opened ahead.
            drop(thread::Builder::new().name("journal-list".to_owned()).spawn_scoped(scope, ahead));
            let mut opened = opened.into_iter();
            rows.into_iter().zip(frames).try_for_each(|(row, frame)| hand_on(row, frame, opened.next().flatten()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::JournalError;

    /// A slice of so many objects, of which the third is large and the fifth damaged.
    fn slice(count: usize) -> Slice {
        let mut codec = Codec::default();
        let text = |index: usize| {
            let filler = "x".repeat(if index == 2 { 100_000 } else { 10 });
            let second = index % 60;
            format!(r#"{{"metadata":{{"creationTimestamp":"2026-01-01T00:00:{second:02}Z"}},"filler":"{filler}"}}"#)
        };
        let frame = |index: usize| {
            let mut frame = codec.compress(None, text(index).as_bytes());
            let middle = frame.len() / 2;
            frame[middle] ^= if index == 4 { 0xff } else { 0 };
            frame
        };
        let row = |id: i64| {
            let body = Redacted { bytes: Vec::new(), marks: Vec::new(), pointers: Vec::new() };
            let (namespace, name, uid) = (String::new(), id.to_string(), String::new());
            let object = Observed { namespace, name, uid, version: ResourceVersion(String::new()), body };
            StagedRow { id, object, gone: false }
        };
        Slice { frames: (0..count).map(frame).collect(), rows: (0..).take(count).map(row).collect() }
    }

    /// The only test that sees which thread opens an object.
    #[test]
    fn objects_come_opened_in_their_order_unless_they_are_few_or_large() {
        for count in [WORTH_A_THREAD - 1, WORTH_A_THREAD, 100] {
            let (mut codec, mut at) = (Codec::default(), 0);
            let each = slice(count).each(|mut staged| {
                assert_eq!((staged.row, &*staged.object.name), (at, &*at.to_string()));
                assert_eq!(staged.opened.is_some(), count >= WORTH_A_THREAD && at != 2, "{at} of {count}");
                let Opened { bytes, newest } = staged.open(&mut codec);
                assert_eq!(bytes.is_err(), at == 4, "{at} of {count}");
                assert_eq!(newest.map(|newest| newest.as_second() % 60), (at != 4).then_some(at % 60));
                at += 1;
                Ok(())
            });
            each.unwrap();
            assert_eq!(usize::try_from(at), Ok(count));
        }
    }

    #[test]
    fn an_error_ends_the_slice() {
        let mut written = 0;
        let each = slice(200).each(|_| {
            written += 1;
            if written == 3 { Err(JournalError::Corrupt("it cannot be written".to_owned())) } else { Ok(()) }
        });
        assert!(each.is_err() && written == 3);
    }
}
