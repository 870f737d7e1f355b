//! Answers that are computed as a whole, for their pages behind the first one.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use crate::query::coverage::Uncovered;

/// Answers that are kept.
const ANSWERS_MAX: usize = 8;
/// Bytes of the data of all of them.
const BYTES_MAX: usize = 8 << 20;

/// A statement before it is on a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// The entry that it cites; none for the log.
    pub(super) seq: Option<u64>,
    pub(super) kind: &'static str,
    pub(super) data: String,
    /// True where that entry alone says it.
    pub(super) is_alone: bool,
}

/// All statements of an answer, and what is said beside them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Whole {
    pub(super) parts: Vec<Part>,
    pub(super) uncovered: Vec<Uncovered>,
    pub(super) is_doubtful: bool,
    pub(super) notes: Vec<String>,
}

impl Whole {
    /// About how many bytes it has.
    fn bytes(&self) -> usize {
        let of_parts: usize = self.parts.iter().map(|part| part.data.len() + size_of::<Part>()).sum();
        of_parts + self.uncovered.len() * 256 + self.notes.iter().map(String::len).sum::<usize>()
    }
}

/// What the pages of one answer have in common, as their cursors have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Key {
    /// Name of the cluster in the question.
    pub(super) cluster: Option<String>,
    /// Mark of the question and of the log.
    pub(super) of: u64,
    /// Time of the first page, microseconds since 1970.
    pub(super) now: i64,
    /// The newest entry of the first page.
    pub(super) head: u64,
}

/// The answers of which pages were handed out last.
#[derive(Debug, Default)]
pub(super) struct Kept(Mutex<VecDeque<(Key, Arc<Whole>)>>);

impl Kept {
    /// Returns a kept answer; none where it had to make room.
    pub(super) fn get(&self, key: &Key) -> Option<Arc<Whole>> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().find(|(of, _)| of == key).map(|(_, whole)| Arc::clone(whole))
    }

    /// Keeps an answer; the oldest ones make room.
    pub(super) fn put(&self, key: Key, whole: Arc<Whole>) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|(of, _)| *of != key);
        kept.push_back((key, whole));
        let bytes = |kept: &VecDeque<(Key, Arc<Whole>)>| kept.iter().map(|(_, whole)| whole.bytes()).sum::<usize>();
        while kept.len() > ANSWERS_MAX || bytes(&kept) > BYTES_MAX {
            kept.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_bounded_in_number_and_in_bytes() {
        let key = |of: u64| Key { cluster: None, of, now: 1, head: 1 };
        let whole = |bytes: usize| {
            let part = Part { seq: None, kind: "writes", data: "x".repeat(bytes), is_alone: true };
            Arc::new(Whole { parts: vec![part], ..Whole::default() })
        };
        let kept = Kept::default();
        let has = |kept: &Kept| (0..40).filter(|of| kept.get(&key(*of)).is_some()).collect::<Vec<_>>();
        (0..20).for_each(|of| kept.put(key(of), whole(10)));
        assert_eq!(has(&kept), (12..20).collect::<Vec<_>>());
        // One that is asked for again takes no second place.
        kept.put(key(13), whole(10));
        assert_eq!(has(&kept), (12..20).collect::<Vec<_>>());
        kept.put(key(30), whole(7 << 20));
        kept.put(key(31), whole(1 << 20));
        assert_eq!(has(&kept), [31]);
        kept.put(key(32), whole(9 << 20));
        assert_eq!(has(&kept), Vec::<u64>::new());
        let other = Key { cluster: Some("prod".to_owned()), ..key(1) };
        kept.put(key(1), whole(1));
        assert_eq!((kept.get(&key(1)).is_some(), kept.get(&other)), (true, None));
    }
}
