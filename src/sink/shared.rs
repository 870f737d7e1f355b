//! Common parts of the engines of the shared log.

use sha2::{Digest as _, Sha256};

use super::SinkError;
use crate::core::runtime;
use crate::core::shared_log::{Appended, LogError};

/// Digest that identifies a unit.
pub(super) type Digest = [u8; 32];

pub(super) fn digest(bytes: &[u8]) -> Digest {
    Sha256::digest(bytes).into()
}

/// A digest as text.
pub(super) fn hex(digest: &Digest) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The digest that a text is; none where it is no digest.
pub(super) fn unhex(text: &str) -> Option<Digest> {
    let bytes = (0..text.len()).step_by(2).map(|at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok());
    bytes.collect::<Option<Vec<u8>>>()?.try_into().ok()
}

/// The unit that was appended or read last. An engine that lost it, and got another one in its place, is noticed with the
/// next append: the numbers alone would fit.
#[derive(Debug, Default)]
pub(super) struct Tail {
    last: Option<(u64, Digest)>,
    /// A read has refused what follows another one in its place.
    refused: bool,
}

impl Tail {
    /// This unit is there.
    pub(super) fn note(&mut self, number: u64, digest: Digest) {
        *self = Self { last: Some((number, digest)), refused: false };
    }

    /// Returns the digest of the unit before this one when it was last seen.
    pub(super) fn before(&self, number: u64) -> Option<Digest> {
        self.last.and_then(|(at, digest)| (at.checked_add(1) == Some(number)).then_some(digest))
    }

    /// Reports whether a read of the units after `after` fails, because another unit has its number now: once, so that the
    /// error is reported. The next read gets the present unit, for a comparison.
    pub(super) fn refuses(&mut self, after: u64, there: Option<Digest>) -> bool {
        let seen = self.last.filter(|(at, _)| *at == after).map(|(_, digest)| digest);
        let other = seen.zip(there).is_some_and(|(seen, there)| seen != there);
        other && !std::mem::replace(&mut self.refused, true)
    }
}

/// Units of an engine around a number under which it did not accept a unit.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Around {
    /// The newest unit or base.
    pub(super) newest: u64,
    /// The unit with the number.
    pub(super) there: Option<Digest>,
    /// The unit before it.
    pub(super) before: Option<Digest>,
}

impl Around {
    /// Returns the meaning for an append of `own` behind `seen`. None: it should have succeeded, and is tried again.
    pub(super) fn meaning(&self, number: u64, own: Digest, seen: Option<Digest>) -> Option<Appended> {
        let other = self.before.zip(seen).is_some_and(|(before, seen)| before != seen);
        match self.there {
            Some(there) if there == own => Some(Appended::Done),
            Some(_) => Some(Appended::Taken),
            None if self.newest >= number => Some(Appended::Taken),
            None if self.newest.checked_add(1) < Some(number) => Some(Appended::Behind(self.newest)),
            None if other => Some(Appended::Behind(number.saturating_sub(2))),
            None => None,
        }
    }
}

/// The unit that was appended or read last is another one now, and what follows it follows something else.
pub(super) fn diverged(place: &str, number: u64) -> SinkError {
    SinkError::halt(format!(
        "{place} has another unit {number} of the shared log than was there before: it was restored to an earlier state, or to one of elsewhere, and another decklog went on from there; this one compares both"
    ))
}

/// A word that no other handle has: the parts of a base are kept apart by it, so that two who make one with the same number at
/// the same time never mix theirs.
pub(super) fn writer() -> String {
    format!("{:016x}", runtime::random())
}

/// The name of a cluster as a word of letters, digits, `-`, and of what is in `others`: every other byte is written as `mark` and
/// two hexadecimal digits, so that no two clusters have one word.
pub(super) fn word(cluster: &str, others: &str, mark: char) -> String {
    let mut word = String::new();
    for (at, byte) in cluster.bytes().enumerate() {
        let plain = byte.is_ascii_alphanumeric() || byte == b'-' || others.as_bytes().contains(&byte);
        // Neither a hidden file nor a way up.
        if plain && !(byte == b'.' && at == 0) {
            word.push(char::from(byte));
        } else {
            word.push_str(&format!("{mark}{byte:02x}"));
        }
    }
    word
}

impl From<SinkError> for LogError {
    fn from(error: SinkError) -> Self {
        match error {
            SinkError::Retry { text, .. } | SinkError::Lost { text } => Self::Retry(text),
            SinkError::Halt { text } | SinkError::Refused { text } => Self::Halt(text),
        }
    }
}
