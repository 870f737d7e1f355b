//! Entries at hand, as they are sent: those that were last written, which nearly every reader wants next, and those that
//! the versions to come are differences of.
//!
//! # Decision: sinks that keep up read from memory
//!
//! Context: Every entry would be decompressed once for each sink.
//! Decision: The newest lines stay cached up to a bound, and are served only up to `head`: durable before visible. Bases of
//! the newest entries are cached for the next differences, and serve lagging readers as well. `verify` reads the disk alone.
//! Cost: 8 MiB, and the bases. The journals of one process share what two of them may have.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use foldhash::fast::RandomState;

use crate::core::change::Shape;
use crate::core::model::EntryType;

/// An entry in full.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) op: EntryType,
    pub(super) bytes: Bytes,
    /// Range of the object in the line.
    pub(super) object: Range<usize>,
    /// Shape of the object, if it was compared with another one.
    pub(super) shape: Option<Shape>,
}

impl Line {
    /// The object that it carries.
    pub(super) fn object(&self) -> Bytes {
        self.bytes.slice(self.object.clone())
    }
}

impl Cached for Line {
    fn size(&self) -> usize {
        self.bytes.len() + self.shape.as_ref().map_or(0, Shape::size)
    }
}

/// The last version of an object, as it is stored: a difference, of which only the base is held in full.
#[derive(Clone, Debug)]
pub(super) struct Packed {
    pub(super) base: u64,
    pub(super) blob: Arc<[u8]>,
    pub(super) op: EntryType,
    pub(super) object: Range<usize>,
    pub(super) shape: Option<Shape>,
}

impl Cached for Packed {
    fn size(&self) -> usize {
        self.blob.len() + self.shape.as_ref().map_or(0, Shape::size)
    }
}

/// A cached value, with the size that it takes of the budget.
pub(super) trait Cached: Clone {
    fn size(&self) -> usize;
}

/// Number of journals whose writers are open in this process.
static OPEN: AtomicUsize = AtomicUsize::new(0);

/// Counts a journal as open until it is dropped.
#[derive(Debug)]
pub(super) struct Opened(());

impl Opened {
    /// Counts one more.
    pub(super) fn new() -> Self {
        OPEN.fetch_add(1, Ordering::Relaxed);
        Self(())
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        OPEN.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Bytes that a cache may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    /// Bytes of a journal that is alone.
    most: usize,
    /// True if many journals share what two of them may have.
    is_shared: bool,
}

impl Budget {
    /// Part of its bytes that every journal keeps, however many there are.
    const LEAST_PART: usize = 16;

    /// The same bytes for every journal.
    #[cfg(test)]
    pub(super) const fn own(most: usize) -> Self {
        Self { most, is_shared: false }
    }

    /// `most` bytes for each of up to two journals in the process. More of them divide what two have, down to a sixteenth
    /// of `most` each.
    pub(super) const fn shared(most: usize) -> Self {
        Self { most, is_shared: true }
    }

    /// Bytes beside the journals that are open now.
    fn now(self) -> usize {
        if self.is_shared { self.beside(OPEN.load(Ordering::Relaxed)) } else { self.most }
    }

    /// Bytes while so many journals are open.
    fn beside(self, open: usize) -> usize {
        (2 * self.most / open.max(2)).max(self.most / Self::LEAST_PART)
    }
}

/// Bytes of an entry that finds a place in the smallest cache.
const LARGE: usize = 32 << 10;

/// May be shared. Two generations: what is used moves to the young one, and what is not used while that fills up goes.
#[derive(Clone, Debug)]
pub(super) struct Recent<T = Line>(Arc<Mutex<Generations<T>>>);

#[derive(Debug)]
struct Generations<T> {
    budget: Budget,
    // Their keys are our own numbers: nobody can choose them so that they meet.
    young: HashMap<u64, T, RandomState>,
    old: HashMap<u64, T, RandomState>,
    young_bytes: usize,
    /// First seq of the log: older entries are truncated, and no reader gets them.
    log_start: u64,
}

impl<T: Cached> Recent<T> {
    /// An empty cache of about `budget` at most.
    pub(super) fn with_budget(budget: Budget) -> Self {
        let (young, old) = (HashMap::default(), HashMap::default());
        Self(Arc::new(Mutex::new(Generations { budget, young, old, young_bytes: 0, log_start: 0 })))
    }

    fn lock(&self) -> MutexGuard<'_, Generations<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An entry that may be needed no more.
    pub(super) fn peek(&self, seq: u64) -> Option<T> {
        let generations = self.lock();
        generations.young.get(&seq).or_else(|| generations.old.get(&seq)).cloned()
    }

    /// An entry that will be needed again.
    pub(super) fn get(&self, seq: u64) -> Option<T> {
        let mut generations = self.lock();
        if let Some(line) = generations.young.get(&seq) {
            return Some(line.clone());
        }
        let line = generations.old.remove(&seq)?;
        generations.put(seq, line.clone());
        Some(line)
    }

    /// Takes one out.
    pub(super) fn remove(&self, seq: u64) {
        let mut generations = self.lock();
        if let Some(line) = generations.young.remove(&seq) {
            generations.young_bytes = generations.young_bytes.saturating_sub(line.size());
        }
        generations.old.remove(&seq);
    }

    /// Adds one, unless it would drive out many others.
    pub(super) fn put(&self, seq: u64, line: T) -> T {
        self.lock().put(seq, line.clone());
        line
    }

    /// Drops all of them.
    pub(super) fn clear(&self) {
        let mut generations = self.lock();
        generations.young.clear();
        generations.old.clear();
        generations.young_bytes = 0;
    }
}

/// Cache of the writer, for the readers of its process.
#[derive(Clone, Debug)]
pub(super) struct AtHand {
    /// Entries that were written last.
    pub(super) recent: Recent,
    /// Bases of later entries. Some of them may not be durable yet, and are never requested: readers request the bases of rows
    /// that they have read, and those are committed together with their bases.
    pub(super) bases: Recent,
}

impl Recent {
    /// Gives no reader what is below this.
    pub(super) fn set_log_start(&self, seq: u64) {
        self.lock().log_start = seq;
    }

    /// The entries from `first` to `last`, up to bounds; `None` where one of them is not here. They may be needed no
    /// more.
    pub(super) fn range(&self, first: u64, last: u64, limit: usize, max_bytes: usize) -> Option<Vec<(u64, Line)>> {
        let generations = self.lock();
        if first < generations.log_start {
            return None;
        }
        let (mut found, mut bytes) = (Vec::new(), 0);
        for seq in first..=last {
            if found.len() >= limit || bytes >= max_bytes {
                break;
            }
            let line = generations.young.get(&seq).or_else(|| generations.old.get(&seq))?;
            bytes += line.bytes.len();
            found.push((seq, line.clone()));
        }
        Some(found)
    }
}

impl<T: Cached> Generations<T> {
    fn put(&mut self, seq: u64, line: T) {
        // A large one is read again where it is needed: that costs little beside the rest of what is done with it.
        let budget = self.budget.now();
        if line.size() > (budget / 64).max(LARGE) {
            return;
        }
        self.young_bytes += line.size();
        if let Some(before) = self.young.insert(seq, line) {
            self.young_bytes = self.young_bytes.saturating_sub(before.size());
        }
        if self.young_bytes > budget / 2 {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUDGET: usize = 4 << 20;

    /// The only test that sees what a journal may take beside others: the bench of fifty clusters only measures it.
    #[test]
    fn journals_share_what_two_of_them_may_have() {
        let budget = Budget::shared(8 << 20);
        for (open, kib) in [(0, 8192), (1, 8192), (2, 8192), (3, 5461), (4, 4096), (16, 1024), (50, 512), (500, 512)] {
            assert_eq!(budget.beside(open) >> 10, kib, "{open} open");
        }
        assert_eq!(Budget::own(8 << 20).now(), 8 << 20);
    }

    fn line(size: usize) -> Line {
        Line { op: EntryType::Added, bytes: vec![b'x'; size].into(), object: 0..size, shape: None }
    }

    #[test]
    fn what_is_used_stays_and_the_rest_is_bounded() {
        let recent = Recent::with_budget(Budget::own(BUDGET));
        recent.put(1, line(100));
        for seq in 2..=400 {
            recent.put(seq, line(BUDGET / 64));
            assert!(recent.get(1).is_some(), "lost at {seq}");
        }
        let generations = recent.lock();
        let held: usize = generations.young.values().chain(generations.old.values()).map(|line| line.bytes.len()).sum();
        assert!(held <= BUDGET + BUDGET / 8, "{held}");
        assert!(!generations.young.contains_key(&2) && !generations.old.contains_key(&2));
    }

    #[test]
    fn what_is_taken_out_makes_room_and_what_is_too_large_takes_none() {
        let recent = Recent::with_budget(Budget::own(BUDGET));
        recent.put(1, line(100));
        for seq in 2..=400 {
            recent.put(seq, line(BUDGET / 64));
            recent.remove(seq);
            recent.put(1000 + seq, line(BUDGET / 4));
        }
        let generations = recent.lock();
        assert_eq!((generations.young.len(), generations.old.len(), generations.young_bytes), (1, 0, 100));
        assert!(generations.young.contains_key(&1));
    }

    #[test]
    fn a_range_has_bounds_and_no_holes() {
        let recent = Recent::with_budget(Budget::own(BUDGET));
        for seq in [5, 6, 7, 9] {
            recent.put(seq, line(10));
        }
        let seqs = |first, last, limit, bytes| -> Option<Vec<u64>> {
            Some(recent.range(first, last, limit, bytes)?.into_iter().map(|(seq, _)| seq).collect())
        };
        assert_eq!(seqs(5, 7, 100, 1000).unwrap(), [5, 6, 7]);
        assert_eq!(seqs(5, 9, 2, 1000).unwrap(), [5, 6]);
        assert_eq!(seqs(5, 9, 100, 11).unwrap(), [5, 6]);
        assert_eq!(seqs(5, 9, 100, 1000), None);
        assert_eq!(seqs(8, 9, 100, 1000), None);
    }
}
