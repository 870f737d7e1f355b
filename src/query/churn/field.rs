//! Fields, and who keeps changing them back.

use std::hash::{DefaultHasher, Hash, Hasher};

use jiff::Timestamp;

use super::tally::Counted;

/// Number of values of a field that are remembered, each with its manager.
const SIDES: usize = 4;
/// A value is kept with at most so many characters. Whether two are the same is decided by a hash.
const VALUE: usize = 64;
/// Number of managers of a field that are named.
const NAMED: usize = 4;

/// A value, as far as it is remembered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FieldValue {
    hash: u64,
    /// JSON, cut; `None` where there is no value.
    pub(super) text: Option<String>,
}

impl FieldValue {
    pub(super) fn of(json: Option<&str>) -> Self {
        let mut hasher = DefaultHasher::new();
        json.hash(&mut hasher);
        let cut = |json: &str| match json.char_indices().nth(VALUE) {
            Some((end, _)) => format!("{}…", &json[..end]),
            None => json.to_owned(),
        };
        Self { hash: hasher.finish(), text: json.map(cut) }
    }
}

/// A manager, the value that it set, and the number of times.
#[derive(Clone, Debug)]
pub(super) struct Side {
    /// `None` for who set it before the first change that was seen.
    pub(super) manager: Option<String>,
    pub(super) value: FieldValue,
    pub(super) times: u64,
}

/// One field of one object.
#[derive(Debug, Default)]
pub(super) struct Field {
    pub(super) writes: u64,
    /// Writes that moved a time stamp and nothing else.
    pub(super) stamps: u64,
    /// Times that one manager gave it back a value which another had changed.
    pub(super) reverts: u64,
    pub(super) managers: Vec<String>,
    pub(super) was: FieldValue,
    pub(super) value: FieldValue,
    pub(super) first: Option<Timestamp>,
    pub(super) last: Option<Timestamp>,
    /// Oldest first; the last one is what it is now.
    pub(super) sides: Vec<Side>,
    pub(super) seq: u64,
}

impl Counted for Field {
    fn weight(&self) -> u64 {
        self.writes
    }

    fn last(&self) -> u64 {
        self.seq
    }
}

/// A write of a field.
pub(super) struct Write<'w> {
    pub(super) seq: u64,
    pub(super) time: Option<Timestamp>,
    pub(super) manager: Option<&'w str>,
    /// The value before.
    pub(super) was: FieldValue,
    pub(super) value: FieldValue,
    /// True if both are time stamps, and the second is later.
    pub(super) stamp: bool,
}

impl Field {
    /// A manager has changed it. Says whether that gave it back a value which another manager had changed.
    pub(super) fn write(&mut self, Write { seq, time, manager, was, value, stamp }: Write<'_>) -> bool {
        self.seq = seq;
        self.writes += 1;
        self.stamps += u64::from(stamp);
        self.first = self.first.or(time);
        self.last = time.or(self.last);
        if let Some(name) = manager
            && self.managers.len() < NAMED
            && !self.managers.iter().any(|known| known == name)
        {
            self.managers.push(name.to_owned());
        }
        if was == value {
            // A masked value: that it changed is known, and nothing else.
            return false;
        }
        // What it was is where it begins, also after something that was not seen (a gap, or what a filter left out).
        if self.sides.last().is_none_or(|side| side.value != was) {
            self.sides.clear();
            self.sides.push(Side { manager: None, value: was.clone(), times: 0 });
        }
        (self.was, self.value) = (was, value.clone());
        let Some(manager) = manager else {
            // Nobody knows who that was, so it is nobody's side.
            self.sides.push(Side { manager: None, value, times: 1 });
            self.shorten();
            return false;
        };
        let other = self.sides.last().and_then(|side| side.manager.as_deref()).is_some_and(|last| last != manager);
        let known = self
            .sides
            .iter()
            .rposition(|side| side.value == value && side.manager.as_deref().is_none_or(|name| name == manager));
        match known {
            Some(at) => {
                let mut side = self.sides.remove(at);
                side.manager = Some(manager.to_owned());
                side.times += 1;
                self.sides.push(side);
            }
            None => self.sides.push(Side { manager: Some(manager.to_owned()), value, times: 1 }),
        }
        self.shorten();
        let back = other && known.is_some();
        self.reverts += u64::from(back);
        back
    }

    fn shorten(&mut self) {
        if self.sides.len() > SIDES {
            self.sides.remove(0);
        }
    }

    /// Reports whether two managers keep changing the field back and forth: it went back more than once. Once may be a
    /// rollback.
    pub(super) fn is_fought_over(&self) -> bool {
        self.reverts >= 2
    }
}
