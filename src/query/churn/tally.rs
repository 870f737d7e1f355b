//! Counting by name in bounded memory: who has written least, and longest ago, goes first.

use std::collections::HashMap;

/// A counter under a name.
pub(super) trait Counted: Default {
    /// Weight of the counter: the lightest are dropped when there is no room.
    fn weight(&self) -> u64;
    /// The seq of the entry that it was last counted in.
    fn last(&self) -> u64;
}

/// Counts by name, of at most so many names.
#[derive(Debug)]
pub(super) struct Tally<V> {
    counts: HashMap<String, V>,
    room: usize,
    /// Highest weight of a dropped counter; 0 if none was dropped.
    dropped: u64,
}

impl<V: Counted> Tally<V> {
    pub(super) fn new(room: usize) -> Self {
        Self { counts: HashMap::new(), room: room.max(2), dropped: 0 }
    }

    /// The count of a name, begun where there is none.
    pub(super) fn of(&mut self, name: &str) -> &mut V {
        if !self.counts.contains_key(name) {
            if self.counts.len() >= self.room {
                self.make_room();
            }
            self.counts.insert(name.to_owned(), V::default());
        }
        self.counts.get_mut(name).expect("it was inserted where it was missing")
    }

    /// Drops the lighter half, which costs next to nothing for each name that comes.
    fn make_room(&mut self) {
        let mut weights: Vec<(u64, u64)> = self.counts.values().map(|count| (count.weight(), count.last())).collect();
        let half = weights.len() / 2;
        let (_, middle, _) = weights.select_nth_unstable(half);
        let middle = *middle;
        self.counts.retain(|_, count| (count.weight(), count.last()) > middle);
        self.dropped = self.dropped.max(middle.0);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&String, &V)> {
        self.counts.iter()
    }

    /// Returns the highest weight of a dropped counter; 0 if none was dropped.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// The heaviest, by weight and then by name.
    pub(super) fn heaviest(&self, most: usize, weight: impl Fn(&V) -> u64) -> Vec<(&String, &V)> {
        let mut all: Vec<_> = self.counts.iter().filter(|(_, count)| weight(count) > 0).collect();
        all.sort_by(|(a, x), (b, y)| weight(y).cmp(&weight(x)).then_with(|| a.cmp(b)));
        all.truncate(most);
        all
    }
}
