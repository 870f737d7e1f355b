//! Alignment of the elements of two lists, by their names or by their texts.

use std::collections::{HashMap, HashSet};

use super::Differ;
use crate::core::json::tree::{Id, Kind, Tree};
use crate::core::k8s::merge_keys;

/// Lists without names are compared in every way where they have no more pairs than this. In longer ones equal
/// elements are paired in their order, which may find less in common.
const SMALL: usize = 64 * 64;

/// Elements of two lists, together, that are paired by names or texts: that takes about 200 bytes each.
const PAIRED: usize = 1 << 16;

/// Identity of an element: the texts of its key members or its own text, and the number of earlier occurrences.
type Identity<'a> = ([&'a str; 4], usize);

/// Elements between those that both lists have.
#[derive(Clone, Copy)]
pub(super) enum Gaps {
    /// Other ones: each of them came or went.
    ComeAndGo,
    /// The same ones where their names are the same.
    ByName,
    /// The same ones, one after the other.
    InOrder,
}

/// Alignment of the elements of two lists.
pub(super) enum Aligned {
    /// These pairs, which have the same order in both.
    InTurn(Gaps, Vec<(usize, usize)>),
    /// Elements with names of their own, some of which changed places: for each new one the old one that it is, and the
    /// longest run of pairs that have the same order in both.
    Rearranged { twins: Vec<Option<usize>>, pairs: Vec<(usize, usize)> },
}

/// In longer lists an element that changed places goes and comes again: where each stands after each move costs more
/// than that is worth.
const MANY_MOVES: usize = 256;

impl Differ<'_> {
    /// Aligns the elements of both parts, in an order that both share, and decides what to do with those in between.
    pub(super) fn align(&mut self, old: &[Id], new: &[Id], between: bool) -> Aligned {
        if old.is_empty() || new.is_empty() {
            return Aligned::InTurn(Gaps::ComeAndGo, Vec::new());
        }
        if old.len() + new.len() > PAIRED || self.left.is_some() && !self.paid {
            return Aligned::InTurn(Gaps::InOrder, Vec::new());
        }
        for &id in old {
            self.old.read(id);
        }
        for (index, &id) in new.iter().enumerate() {
            self.new.read_like(id, old.get(index).map(|&twin| (&self.old, twin)));
        }
        // The first line that names every element, though some alike, and the first that names some of them.
        let (mut alike, mut partly) = (None, None);
        for names in merge_keys::IDENTITIES {
            let Some((before, complete)) = identities(&self.old, old, names) else { continue };
            let Some((after, complete_too)) = identities(&self.new, new, names) else { continue };
            if !(complete && complete_too) {
                partly = partly.or(Some((before, after)));
                continue;
            }
            if before == after {
                return Aligned::InTurn(Gaps::ComeAndGo, (0..old.len()).map(|index| (index, index)).collect());
            }
            if all_differ(&before) && all_differ(&after) {
                let twins = in_both(&before, &after);
                let pairs = longest_increasing(&twins);
                if twins.len() == pairs.len() || old.len().max(new.len()) > MANY_MOVES {
                    return Aligned::InTurn(Gaps::ComeAndGo, pairs);
                }
                let mut of = vec![None; new.len()];
                twins.into_iter().for_each(|(old, new)| of[new] = Some(old));
                return Aligned::Rearranged { twins: of, pairs };
            }
            alike = alike.or(Some((before, after)));
        }
        if !between {
            // Of elements without names of their own those with the same text are the same, and what lies between
            // them may have names of its own.
            let (before, after) = (texts(&self.old, old), texts(&self.new, new));
            let small = before.len() * after.len() <= SMALL;
            let pairs =
                if small { longest_common(&before, &after) } else { longest_increasing(&in_both(&before, &after)) };
            return Aligned::InTurn(Gaps::ByName, pairs);
        }
        match alike.or(partly) {
            Some((mut before, mut after)) => {
                count(&mut before);
                count(&mut after);
                Aligned::InTurn(Gaps::ComeAndGo, longest_increasing(&in_both(&before, &after)))
            }
            None => Aligned::InTurn(Gaps::InOrder, Vec::new()),
        }
    }
}

fn all_differ(identities: &[Identity<'_>]) -> bool {
    let mut seen = HashSet::with_capacity(identities.len());
    identities.iter().all(|identity| seen.insert(identity))
}

/// The identities of the elements by these members, and whether each of them has the first; nothing where none has, or
/// one is no object.
fn identities<'a>(tree: &Tree<'a>, elements: &[Id], names: &[&str]) -> Option<(Vec<Identity<'a>>, bool)> {
    let mut list = Vec::new();
    let mut named = 0;
    for &element in elements {
        if tree.kind(element) != Kind::Object {
            return None;
        }
        let mut identity = ([""; 4], 0);
        for (name, value) in tree.members(element) {
            let name = tree.string(name);
            if let Some(position) = names.iter().position(|wanted| *wanted == name)
                && !tree.is_container(value)
            {
                identity.0[position] = tree.raw(value);
            }
        }
        named += usize::from(!identity.0[0].is_empty());
        list.push(identity);
    }
    (named > 0).then_some((list, named == elements.len()))
}

/// The identities of elements that have no names: their texts.
fn texts<'a>(tree: &Tree<'a>, elements: &[Id]) -> Vec<Identity<'a>> {
    let mut list: Vec<Identity<'a>> = elements.iter().map(|&element| ([tree.raw(element), "", "", ""], 0)).collect();
    count(&mut list);
    list
}

/// Distinguishes those that are alike by how often they came before.
fn count(identities: &mut [Identity<'_>]) {
    let mut seen = HashMap::with_capacity(identities.len());
    for (names, before) in identities {
        let times: &mut usize = seen.entry(*names).or_default();
        *before = *times;
        *times += 1;
    }
}

/// Returns the positions of the identities that are in both lists, in the order of the second.
fn in_both(before: &[Identity<'_>], after: &[Identity<'_>]) -> Vec<(usize, usize)> {
    let positions: HashMap<&Identity<'_>, usize> = before.iter().enumerate().map(|(i, key)| (key, i)).collect();
    after.iter().enumerate().filter_map(|(j, key)| Some((*positions.get(key)?, j))).collect()
}

/// The longest list that both lists hold in this order, by its places in them.
fn longest_common(old: &[Identity<'_>], new: &[Identity<'_>]) -> Vec<(usize, usize)> {
    // How much the lists from these places on have in common.
    let width = new.len() + 1;
    let mut common = vec![0_u16; (old.len() + 1) * width];
    for i in (0..old.len()).rev() {
        for j in (0..new.len()).rev() {
            let at = i * width + j;
            common[at] = if old[i].0[0] == new[j].0[0] {
                common[at + width + 1] + 1
            } else {
                common[at + width].max(common[at + 1])
            };
        }
    }
    let (mut i, mut j) = (0, 0);
    let mut pairs = Vec::new();
    while i < old.len() && j < new.len() {
        let at = i * width + j;
        if old[i].0[0] == new[j].0[0] {
            pairs.push((i, j));
            (i, j) = (i + 1, j + 1);
        } else if common[at + width] >= common[at + 1] {
            i += 1;
        } else {
            j += 1;
        }
    }
    pairs
}

/// The longest part of the pairs (in order of their second) that is in order of the first as well.
fn longest_increasing(pairs: &[(usize, usize)]) -> Vec<(usize, usize)> {
    // For each length the pair that ends such a part with the smallest first, and for each pair the one before it.
    let mut ends: Vec<usize> = Vec::new();
    let mut previous = vec![usize::MAX; pairs.len()];
    for (index, (first, _)) in pairs.iter().enumerate() {
        let length = ends.partition_point(|&end| pairs[end].0 < *first);
        if length > 0 {
            previous[index] = ends[length - 1];
        }
        if length == ends.len() {
            ends.push(index);
        } else {
            ends[length] = index;
        }
    }
    let mut chain = Vec::with_capacity(ends.len());
    let mut at = ends.last().copied();
    while let Some(index) = at {
        chain.push(pairs[index]);
        at = Some(previous[index]).filter(|&index| index != usize::MAX);
    }
    chain.reverse();
    chain
}
