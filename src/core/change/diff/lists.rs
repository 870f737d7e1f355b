//! The difference of two lists: parts that both have, what comes and goes between them, and what moves.

use super::align::{Aligned, Gaps};
use super::marks::Stayed;
use super::{Differ, Side};
use crate::core::change::patch::write_move;
use crate::core::json::pointer::push_segment;
use crate::core::json::tree::Id;

/// Parts of two lists, where they begin in them, and what their patch may take.
struct Stretch<'s> {
    before: &'s [Id],
    after: &'s [Id],
    old_at: usize,
    new_at: usize,
    depth: usize,
    room: usize,
}

impl Differ<'_> {
    /// Returns whether it kept within the room it has.
    pub(super) fn elements(&mut self, old: Id, new: Id, depth: usize, room: usize) -> bool {
        let before: Vec<Id> = self.old.elements(old).collect();
        let after: Vec<Id> = self.new.elements(new).collect();
        if let Some(moves) = &mut self.moves {
            moves.insert(self.path.clone(), Stayed::default());
        }
        self.stretch(&Stretch { before: &before, after: &after, old_at: 0, new_at: 0, depth, room }, false)
    }

    /// A part of two lists, of which everything before is said and nothing behind. `between` are those that lie between
    /// elements of the same text. Returns whether it kept within the room it has.
    fn stretch(&mut self, part: &Stretch<'_>, between: bool) -> bool {
        let Stretch { before, after, depth, room, .. } = *part;
        let same = |(old, new): &(&Id, &Id)| self.old.bytes(**old) == self.new.bytes(**new);
        let head = before.iter().zip(after).take_while(same).count();
        let tail = before[head..].iter().rev().zip(after[head..].iter().rev()).take_while(same).count();
        let before = &before[head..before.len() - tail];
        let after = &after[head..after.len() - tail];
        let (old_at, new_at) = (part.old_at + head, part.new_at + head);
        self.stay(part.old_at, part.new_at, head);
        self.stay(old_at + before.len(), new_at + after.len(), tail);

        let (gaps, pairs) = match self.align(before, after, between) {
            Aligned::Rearranged { twins, pairs } => {
                return self.rearrange(&Stretch { before, after, old_at, new_at, depth, room }, &twins, &pairs);
            }
            Aligned::InTurn(gaps, pairs) => (gaps, pairs),
        };
        // Indexes of the old and the new part up to which all is said. The operations are applied one after the
        // other, so at each of them the list is new before this index and old from there on.
        let (mut i, mut j) = (0, 0);
        for (next_i, next_j) in pairs.into_iter().chain([(before.len(), after.len())]) {
            match gaps {
                Gaps::ByName if i < next_i && j < next_j => {
                    let (before, after) = (&before[i..next_i], &after[j..next_j]);
                    let part = Stretch { before, after, old_at: old_at + i, new_at: new_at + j, depth, room };
                    if !self.stretch(&part, true) {
                        return false;
                    }
                    (i, j) = (next_i, next_j);
                }
                Gaps::InOrder => {
                    while i < next_i && j < next_j {
                        self.stay(old_at + i, new_at + j, 1);
                        self.element(new_at + j, |differ| differ.value(before[i], after[j], depth + 1));
                        (i, j) = (i + 1, j + 1);
                        if self.patch.len() > room {
                            return false;
                        }
                    }
                }
                Gaps::ByName | Gaps::ComeAndGo => {}
            }
            for (gone, id) in before.iter().enumerate().take(next_i).skip(i) {
                self.element(new_at + j, |differ| differ.operation("remove", Some(*id), None));
                self.element(old_at + gone, |differ| differ.leaves(Side::Old, *id, depth + 1));
                if self.patch.len() > room {
                    return false;
                }
            }
            for (position, id) in after.iter().enumerate().take(next_j).skip(j) {
                self.element(new_at + position, |differ| {
                    differ.operation("add", None, Some(*id));
                    differ.leaves(Side::New, *id, depth + 1);
                });
                if self.patch.len() > room {
                    return false;
                }
            }
            if let (Some(&old), Some(&new)) = (before.get(next_i), after.get(next_j)) {
                self.stay(old_at + next_i, new_at + next_j, 1);
                self.element(new_at + next_j, |differ| differ.value(old, new, depth + 1));
            }
            (i, j) = (next_i + 1, next_j + 1);
        }
        self.patch.len() <= room
    }

    /// Aligns as [`Differ::stretch`] does if elements with names of their own changed places. `twins` has for each new element
    /// its old one, `pairs` are those that keep their order.
    fn rearrange(&mut self, part: &Stretch<'_>, twins: &[Option<usize>], pairs: &[(usize, usize)]) -> bool {
        let Stretch { before, after, old_at, new_at, depth, room } = *part;
        let mut goes = vec![None; before.len()];
        for (new, old) in twins.iter().enumerate() {
            if let Some(old) = old {
                goes[*old] = Some(new);
                self.stay(old_at + old, new_at + new, 1);
            }
        }
        // The list as the operations so far leave it: for each element where it goes, and whether it stands there among
        // those that stay.
        let mut here: Vec<(usize, bool)> = Vec::with_capacity(after.len());
        for (old, &id) in before.iter().enumerate() {
            match goes[old] {
                Some(new) => here.push((new, pairs.contains(&(old, new)))),
                None => {
                    self.element(new_at + here.len(), |differ| differ.operation("remove", Some(id), None));
                    self.element(old_at + old, |differ| differ.leaves(Side::Old, id, depth + 1));
                }
            }
        }
        let mut moved = vec![false; after.len()];
        for (new, &id) in after.iter().enumerate() {
            let Some(old) = twins[new] else {
                here.insert(new, (new, true));
                self.element(new_at + new, |differ| {
                    differ.operation("add", None, Some(id));
                    differ.leaves(Side::New, id, depth + 1);
                });
                continue;
            };
            while here[new].0 != new {
                let at =
                    here.iter().position(|&(goes, _)| goes == new).expect("each twin is in the list until its turn");
                let (from, to) = if here[at].1 {
                    // It stays, and what stands before it goes behind all those that come before that.
                    let goes = here[new].0;
                    let last = here.iter().rposition(|&(other, stays)| stays && other < goes);
                    (new, last.expect("an element that is waited for stays, and comes before"))
                } else {
                    (at, new)
                };
                let (goes, _) = here.remove(from);
                here.insert(to, (goes, true));
                moved[goes] = true;
                self.moved_element(new_at + from, new_at + to);
            }
            here[new].1 = true;
            self.element(new_at + new, |differ| {
                if moved[new] {
                    differ.touch();
                }
                differ.value(before[old], id, depth + 1);
            });
            if self.patch.len() > room {
                return false;
            }
        }
        self.patch.len() <= room
    }

    /// Writes that an element of the list at the current path stands elsewhere.
    fn moved_element(&mut self, from: usize, to: usize) {
        let place = |index: usize| format!("{}/{index}", self.path);
        write_move(&mut self.patch, &place(from), &place(to));
        self.element(to, |differ| differ.note_area(None, None));
    }

    /// Runs a step with the path of one element.
    fn element(&mut self, index: usize, step: impl FnOnce(&mut Self)) {
        let length = self.path.len();
        push_segment(&mut self.path, &index.to_string());
        step(self);
        self.path.truncate(length);
    }
}
