//! Outlines of entries: when, of which object, of what sort, and who wrote, of a thousand entries in a few kilobytes.
//!
//! What is shown of a long time is counted and placed, and hardly any of it is read. An outline holds what that takes; two
//! million entries are looked through in less than a tenth of a second, where putting them together takes a minute. It is
//! made of the entries alone, by whoever reads them first, and the writer keeps it.
//!
//! # Decision: a window of the log is read in outline
//!
//! Context: A timeline of weeks counts and places entries, and reads hardly any.
//! Decision: The facts of 1,024 entries are one row of ten kilobytes, built from the entries by the page in the background.
//! Two million entries are two thousand rows, and every question walks them with the same filter. Outlines are not replicated,
//! because they can be rebuilt.
//! Cost: A classification is fixed at the build; another one needs another `VERSION`.

use std::collections::HashMap;

use crate::core::model::{EntryType, Evidence};

/// A part of the log has so many entries.
pub const PART: u64 = 1024;

/// The part that a seq is in.
#[must_use]
pub const fn part_of(seq: u64) -> u64 {
    seq.saturating_sub(1) / PART
}

/// The first seq of a part.
#[must_use]
pub const fn first_of(part: u64) -> u64 {
    part * PART + 1
}

/// The last seq of a part.
#[must_use]
pub const fn last_of(part: u64) -> u64 {
    (part + 1) * PART
}

/// One entry, in outline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// Its place.
    pub seq: u64,
    /// Time at which it was journaled, microseconds since 1970.
    pub time: i64,
    /// Earliest time at which it happened, microseconds since 1970.
    pub earliest: i64,
    /// Latest time at which it happened.
    pub latest: i64,
    /// ADDED, MODIFIED, DELETED or GAP, as [`EntryType::ALL`] has them.
    pub kind: u8,
    /// Its place in [`Evidence::ALL`]; one more where it has none.
    pub evidence: u8,
    /// It changes nothing that matters.
    pub quiet: bool,
    /// It changes nothing but bookkeeping, as each write of a storage rewrite does.
    pub bookkeeping: bool,
    /// The row of its object; 0 for a GAP.
    pub object: i64,
    /// The row of its source.
    pub source: i64,
    /// Index of its words in [`Part::words`].
    pub words: u32,
}

impl Mark {
    /// Returns the type of the change.
    #[must_use]
    pub fn kind(&self) -> EntryType {
        EntryType::ALL.get(usize::from(self.kind)).copied().unwrap_or(EntryType::Modified)
    }

    /// Returns the evidence of the change; empty for a GAP.
    #[must_use]
    pub fn evidence(&self) -> &'static str {
        Evidence::ALL.get(usize::from(self.evidence)).map_or("", |evidence| evidence.as_str())
    }
}

/// Words of an entry: its areas, its managers, and the uid of an added or deleted object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Words {
    /// Areas, separated by commas.
    pub areas: String,
    /// Managers, separated by line breaks; or the reason why none is named, behind a control character.
    pub managers: String,
    /// The uid, of ADDED and DELETED.
    pub uid: String,
}

/// Stands between the words of one entry. No name of Kubernetes holds it.
const APART: char = '\u{1f}';

/// Makes an outline.
#[derive(Debug, Default)]
pub struct Builder {
    marks: Vec<Mark>,
    words: Vec<String>,
    known: HashMap<String, u32>,
}

impl Builder {
    /// The next entry, in order. `mark.words` is found here.
    pub fn add(&mut self, mark: Mark, words: &Words) {
        let clean = |text: &str| text.replace(APART, "\u{fffd}");
        let text = [clean(&words.areas), clean(&words.managers), clean(&words.uid)].join(&APART.to_string());
        let next = u32::try_from(self.words.len()).unwrap_or(u32::MAX);
        let words = match self.known.get(&text) {
            Some(known) => *known,
            None => {
                self.known.insert(text.clone(), next);
                self.words.push(text);
                next
            }
        };
        self.marks.push(Mark { words, ..mark });
    }

    /// The newest seq in it, 0 for none.
    #[must_use]
    pub fn last(&self) -> u64 {
        self.marks.last().map_or(0, |mark| mark.seq)
    }

    /// The bytes of it.
    #[must_use]
    pub fn finish(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        number(&mut out, self.words.len() as u64);
        for words in &self.words {
            number(&mut out, words.len() as u64);
            out.extend_from_slice(words.as_bytes());
        }
        number(&mut out, self.marks.len() as u64);
        let mut before = Mark::default();
        for mark in &self.marks {
            out.push(
                (mark.kind & 7)
                    | (mark.evidence & 7) << 3
                    | u8::from(mark.quiet) << 6
                    | u8::from(mark.bookkeeping) << 7,
            );
            number(&mut out, mark.seq.wrapping_sub(before.seq));
            signed(&mut out, mark.time.wrapping_sub(before.time));
            signed(&mut out, mark.time.wrapping_sub(mark.earliest));
            signed(&mut out, mark.time.wrapping_sub(mark.latest));
            signed(&mut out, mark.object.wrapping_sub(before.object));
            signed(&mut out, mark.source.wrapping_sub(before.source));
            number(&mut out, u64::from(mark.words));
            before = *mark;
        }
        out
    }
}

/// The form of the bytes. One of another form is as good as none.
const VERSION: u8 = 4;

/// An outline, read.
#[derive(Debug, Default)]
pub struct Part {
    /// Its entries, in order.
    pub marks: Vec<Mark>,
    words: Vec<(u32, u32)>,
    bytes: Vec<u8>,
}

impl Part {
    /// Reads an outline; nothing where these bytes are none.
    #[must_use]
    pub fn read(bytes: Vec<u8>) -> Option<Self> {
        let mut at = 0;
        let mut part = Self::default();
        if *bytes.first()? != VERSION {
            return None;
        }
        at += 1;
        let count = take(&bytes, &mut at)?;
        for _ in 0..count {
            let length = usize::try_from(take(&bytes, &mut at)?).ok()?;
            let end = at.checked_add(length).filter(|end| *end <= bytes.len())?;
            part.words.push((u32::try_from(at).ok()?, u32::try_from(end).ok()?));
            at = end;
        }
        let count = take(&bytes, &mut at)?;
        // Each takes eight bytes at least.
        part.marks.reserve(usize::try_from(count).ok()?.min(bytes.len() / 8));
        let mut mark = Mark::default();
        for _ in 0..count {
            let sort = *bytes.get(at)?;
            at += 1;
            let seq = mark.seq.wrapping_add(take(&bytes, &mut at)?);
            let time = mark.time.wrapping_add(take_signed(&bytes, &mut at)?);
            mark = Mark {
                kind: sort & 7,
                evidence: sort >> 3 & 7,
                quiet: sort & 64 != 0,
                bookkeeping: sort & 128 != 0,
                seq,
                time,
                earliest: time.wrapping_sub(take_signed(&bytes, &mut at)?),
                latest: time.wrapping_sub(take_signed(&bytes, &mut at)?),
                object: mark.object.wrapping_add(take_signed(&bytes, &mut at)?),
                source: mark.source.wrapping_add(take_signed(&bytes, &mut at)?),
                words: u32::try_from(take(&bytes, &mut at)?).ok()?,
            };
            part.marks.push(mark);
        }
        part.bytes = bytes;
        Some(part)
    }

    /// The words of one of its entries.
    #[must_use]
    pub fn words(&self, mark: &Mark) -> Words {
        let mut parts = self.text(mark).split(APART).map(str::to_owned);
        let mut next = || parts.next().unwrap_or_default();
        Words { areas: next(), managers: next(), uid: next() }
    }

    /// The areas of one of its entries, separated by commas.
    #[must_use]
    pub fn areas(&self, mark: &Mark) -> &str {
        self.text(mark).split(APART).next().unwrap_or_default()
    }

    fn text(&self, mark: &Mark) -> &str {
        let (from, to) = self.words.get(mark.words as usize).copied().unwrap_or_default();
        std::str::from_utf8(&self.bytes[from as usize..to as usize]).unwrap_or_default()
    }
}

/// Seven bits to a byte, the low ones first.
fn number(out: &mut Vec<u8>, mut number: u64) {
    loop {
        let low = u8::try_from(number & 127).unwrap_or_default();
        number >>= 7;
        if number == 0 {
            out.push(low);
            return;
        }
        out.push(low | 128);
    }
}

/// Small numbers of either sign are small.
fn signed(out: &mut Vec<u8>, signed: i64) {
    number(out, ((signed << 1) ^ (signed >> 63)).cast_unsigned());
}

fn take(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.get(*at)?;
        *at += 1;
        number |= u64::from(byte & 127) << shift;
        if byte < 128 {
            return Some(number);
        }
    }
    None
}

fn take_signed(bytes: &[u8], at: &mut usize) -> Option<i64> {
    let number = take(bytes, at)?;
    Some((number >> 1).cast_signed() ^ -(number & 1).cast_signed())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn marks() -> impl Strategy<Value = Vec<(Mark, Words)>> {
        let mark = (any::<u64>(), any::<[i64; 3]>(), 0u8..4, 0u8..5, any::<bool>(), any::<i64>(), 0i64..9);
        let words = ("[a-z,]{0,8}", "[a-z\n\u{1f}é]{0,8}", "[a-f0-9-]{0,6}");
        let words = words.prop_map(|(areas, managers, uid)| Words { areas, managers, uid });
        let mark = mark.prop_map(|(seq, [time, earliest, latest], kind, evidence, quiet, object, source)| Mark {
            seq,
            time,
            earliest,
            latest,
            kind,
            evidence,
            quiet,
            bookkeeping: quiet && object % 2 == 0,
            object,
            source,
            words: 0,
        });
        prop::collection::vec((mark, words), 0..40)
    }

    proptest! {
        #[test]
        fn what_is_outlined_is_read(entries in marks()) {
            let mut builder = Builder::default();
            for (mark, words) in &entries {
                builder.add(*mark, words);
            }
            let part = Part::read(builder.finish()).unwrap();
            prop_assert_eq!(part.marks.len(), entries.len());
            for (read, (mark, words)) in part.marks.iter().zip(&entries) {
                prop_assert_eq!(Mark { words: 0, ..*read }, *mark);
                let managers = words.managers.replace(APART, "\u{fffd}");
                prop_assert_eq!(part.words(read), Words { managers, ..words.clone() });
                prop_assert_eq!(part.areas(read), &words.areas);
            }
        }

        #[test]
        fn whatever_the_bytes_are_they_are_read_or_refused(mut bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Some(first) = bytes.first_mut() {
                *first = VERSION;
            }
            if let Some(part) = Part::read(bytes) {
                part.marks.iter().for_each(|mark| drop(part.words(mark)));
            }
        }
    }

    #[test]
    fn every_seq_is_in_one_part() {
        for seq in [1, 2, PART, PART + 1, 2 * PART, 2 * PART + 1] {
            let part = part_of(seq);
            assert!((first_of(part)..=last_of(part)).contains(&seq), "{seq}");
        }
        assert_eq!(last_of(0) + 1, first_of(1));
    }
}
