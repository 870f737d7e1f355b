//! Marks of redacted values, followed to where the values stand now.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::{Differ, Mark};
use crate::core::change::patch::{self, write_operation};

/// At most so many marks are looked up in the objects. If more change at once, only the areas and `touched` show them.
const MANY_MARKS: usize = 1000;

/// Elements of a list that stayed: where a run of them stood, where it stands, and how long it is.
#[derive(Debug, Default)]
pub(super) struct Stayed(BTreeMap<usize, (usize, usize)>);

impl Stayed {
    fn note(&mut self, old: usize, new: usize, count: usize) {
        if count == 0 {
            return;
        }
        match self.0.range_mut(..old).next_back() {
            Some((&begin, (to, length))) if begin + *length == old && *to + *length == new => *length += count,
            _ => drop(self.0.insert(old, (new, count))),
        }
    }

    fn of(&self, old: usize) -> Option<usize> {
        let (begin, (to, length)) = self.0.range(..=old).next_back()?;
        (old < begin + length).then(|| to + (old - begin))
    }
}

impl Differ<'_> {
    /// Notes that some elements of the list at the current path are the same ones, where marks need to know.
    pub(super) fn stay(&mut self, old: usize, new: usize, count: usize) {
        if let Some(moved) = self.moves.as_mut().and_then(|moves| moves.get_mut(&self.path)) {
            moved.note(old, new, count);
        }
    }

    /// Returns the new pointer of a value of the old object; none if an element above it was removed.
    fn moved(&self, pointer: &str) -> Option<String> {
        let Some(moves) = &self.moves else { return Some(pointer.to_owned()) };
        let mut path = String::with_capacity(pointer.len());
        for segment in pointer.split('/').skip(1) {
            let index = match moves.get(&path) {
                Some(moved) => segment.parse().ok().map(|index: usize| moved.of(index)),
                None => None,
            };
            path.push('/');
            match index {
                Some(index) => path.push_str(&index?.to_string()),
                None => path.push_str(segment),
            }
        }
        Some(path)
    }

    /// Values that were masked or dropped and are not what they were, though their text is.
    pub(super) fn marks(&mut self, old: &[Mark], new: &[Mark]) {
        if old == new && self.patch.is_empty() {
            return;
        }
        let stood: Vec<(String, &Mark)> = old.iter().filter_map(|mark| Some((self.moved(&mark.0)?, mark))).collect();
        let before: HashMap<&str, &Mark> = stood.iter().map(|(pointer, mark)| (pointer.as_str(), *mark)).collect();
        let after: HashMap<&str, &[u8; 16]> = new.iter().map(|(pointer, digest)| (pointer.as_str(), digest)).collect();
        let noted: HashSet<String> = self.touched.iter().cloned().collect();
        let mut seen = HashSet::new();
        for pointer in new.iter().map(|(pointer, _)| pointer).chain(stood.iter().map(|(pointer, _)| pointer)) {
            let pointer = pointer.as_str();
            let known = before.get(pointer);
            if known.map(|(_, digest)| digest) == after.get(pointer).copied() || !seen.insert(pointer) {
                continue;
            }
            pointer.clone_into(&mut self.path);
            // A value that had no mark stood here only if nothing above it moved.
            let place = match known {
                Some((place, _)) => Some(place.as_str()),
                None => (self.moved(pointer).as_deref() == Some(pointer)).then_some(pointer),
            };
            let both = if seen.len() <= MANY_MARKS {
                (place.and_then(|place| self.old.find(place)), self.new.find(pointer))
            } else {
                (None, None)
            };
            match both {
                (Some(old), Some(new)) if self.old.bytes(old) == self.new.bytes(new) => {
                    let masked = self.new.bytes(new);
                    write_operation(&mut self.patch, "replace", &self.path, Some(masked), Some(masked));
                    patch::note(&mut self.set, &self.path);
                }
                // The text of the patch shows it.
                (Some(_), _) | (None, Some(_)) => continue,
                (None, None) => {}
            }
            self.note_area(None, None);
            if !noted.contains(pointer) {
                self.touch();
            }
        }
    }
}
