//! The difference of two versions of an object, as a patch (RFC 6902).
//!
//! What is built for a value takes many times the bytes of a small one, so there is an end to it ([`NODES`]): parts of an
//! object that hold more values are compared in the order of their elements, and at last replaced as a whole.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::patch::{self, METADATA, ROOM, area_of, insert, metadata_area, write_move, write_operation};
use super::{Change, happened};
use crate::core::json::Shape;
use crate::core::json::pointer::push_segment;
use crate::core::json::tree::{Id, Kind, Tree};
use crate::core::json::weight::{MANY, Weight};
use crate::core::k8s::bookkeeping::RESOURCE_VERSION;
use crate::core::k8s::managed_fields;
use crate::core::k8s::merge_keys;

/// Below this depth a value that differs is replaced as a whole.
const MAX_DEPTH: usize = 256;

/// Objects with more members than this are looked up by hash.
const FEW: usize = 12;

/// Lists without names are compared in every way where they have no more pairs than this. In longer ones equal
/// elements are paired in their order, which may find less in common.
const SMALL: usize = 64 * 64;

/// At most so many marks are looked up in the objects. If more change at once, only the areas and `touched` show them.
const MANY_MARKS: usize = 1000;

/// Values and names of members, in both versions together, for which trees are built: 20 bytes each, and up to 100 more where
/// members are looked up.
const NODES: usize = 2 * MANY;

/// Members or elements, in both versions together, that are compared one by one where the values below them are too many.
const CHILDREN: usize = 20_000;

/// Below this depth such parts are not looked into.
const HEAVY_DEPTH: usize = 16;

/// Elements of two lists, together, that are paired by names or texts: that takes about 200 bytes each.
const PAIRED: usize = 1 << 16;

/// Leaves that are noted as touched before whole containers stand for what is in them.
const TOUCHED: usize = 50_000;

/// Bytes of pointers for the same.
const TOUCHED_BYTES: usize = 4 << 20;

/// Bytes by which a patch may be longer than both versions before a container is replaced as a whole.
const LONGER: usize = 1 << 20;

/// Areas that are named.
const AREAS: usize = 1000;

/// Identity of an element: the texts of its key members or its own text, and the number of earlier occurrences.
type Identity<'a> = ([&'a str; 4], usize);

/// Parts of two lists, where they begin in them, and what their patch may take.
struct Stretch<'s> {
    before: &'s [Id],
    after: &'s [Id],
    old_at: usize,
    new_at: usize,
    depth: usize,
    room: usize,
}

/// Elements between those that both lists have.
#[derive(Clone, Copy)]
enum Gaps {
    /// Other ones: each of them came or went.
    ComeAndGo,
    /// The same ones where their names are the same.
    ByName,
    /// The same ones, one after the other.
    InOrder,
}

/// Alignment of the elements of two lists.
enum Aligned {
    /// These pairs, which have the same order in both.
    InTurn(Gaps, Vec<(usize, usize)>),
    /// Elements with names of their own, some of which changed places: for each new one the old one that it is, and the
    /// longest run of pairs that have the same order in both.
    Rearranged { twins: Vec<Option<usize>>, pairs: Vec<(usize, usize)> },
}

/// In longer lists an element that changed places goes and comes again: where each stands after each move costs more
/// than that is worth.
const MANY_MOVES: usize = 256;

/// Elements of a list that stayed: where a run of them stood, where it stands, and how long it is.
#[derive(Debug, Default)]
struct Stayed(BTreeMap<usize, (usize, usize)>);

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

/// The keyed digest of a value that was masked or dropped, and where the value was.
pub(super) type Mark = (String, [u8; 16]);

/// Compares all that is in them.
pub(super) fn everything(
    old: &[u8],
    shape: Option<&Shape>,
    new: &[u8],
    old_marks: &[Mark],
    new_marks: &[Mark],
) -> Result<(Change, Shape), String> {
    let mut differ = differ(old, shape, new)?;
    differ.moves = (!old_marks.is_empty() && !new_marks.is_empty()).then(HashMap::new);
    differ.value(Tree::ROOT, Tree::ROOT, 0);
    differ.marks(old_marks, new_marks);
    Ok(differ.finish())
}

/// Compares with nothing: all of the object is new.
pub(super) fn replaced(new: &[u8]) -> Result<(Change, Shape), String> {
    let mut differ = differ(b"{}", None, new)?;
    differ.value(Tree::ROOT, Tree::ROOT, 0);
    differ.patch.clear();
    write_operation(&mut differ.patch, "replace", "", Some(differ.new.bytes(Tree::ROOT)), None);
    Ok(differ.finish())
}

fn differ<'a>(old: &'a [u8], shape: Option<&Shape>, new: &'a [u8]) -> Result<Differ<'a>, String> {
    let old = match shape.and_then(|shape| Tree::of_shape(old, shape)) {
        Some(old) => old,
        None => Tree::parse_bounded(old).map_err(|error| format!("the version before is {error}"))?,
    };
    let new = Tree::parse_like(new, &old).map_err(|error| format!("the new version is {error}"))?;
    for tree in [&old, &new] {
        if tree.kind(Tree::ROOT) != Kind::Object {
            return Err("not a JSON object".to_owned());
        }
    }
    Ok(Differ::new(old, new))
}

struct Differ<'a> {
    old: Tree<'a>,
    new: Tree<'a>,
    /// Position of the walk, as a JSON pointer that is valid at this point of the patch.
    path: String,
    /// The operations, each with a comma after it.
    patch: Vec<u8>,
    touched: Vec<String>,
    touched_bytes: usize,
    /// Bytes of pointers that may still be written before whole containers are replaced.
    room: usize,
    /// Sorted.
    areas: Vec<String>,
    /// Pointers of the first values that may have an owner.
    set: Vec<String>,
    /// Pointers of values that may hold a timestamp.
    stamped: Vec<String>,
    /// Old elements that remain in each list that differs; only if there are marks to follow.
    moves: Option<HashMap<String, Stayed>>,
    /// Nodes that may still be compared if the versions hold more than [`NODES`].
    left: Option<usize>,
    /// All that is below the present value is paid for.
    paid: bool,
}

impl<'a> Differ<'a> {
    fn new(old: Tree<'a>, new: Tree<'a>) -> Self {
        let (before, after) = (old.bytes(Tree::ROOT), new.bytes(Tree::ROOT));
        let is_heavy = before.len() + after.len() > NODES
            && Weight::of(before, NODES).nodes + Weight::of(after, NODES).nodes > NODES;
        Self {
            left: is_heavy.then_some(NODES),
            paid: false,
            room: (2 * (before.len() + after.len())).min(TOUCHED_BYTES) + ROOM,
            old,
            new,
            path: String::new(),
            patch: Vec::with_capacity(2048),
            touched: Vec::new(),
            touched_bytes: 0,
            areas: Vec::new(),
            set: Vec::new(),
            stamped: Vec::new(),
            moves: None,
        }
    }

    fn value(&mut self, old: Id, new: Id, depth: usize) {
        let (before, after) = (self.old.bytes(old), self.new.bytes(new));
        if before == after {
            return;
        }
        let paid = self.paid;
        let (patch, touched) = (self.patch.len(), self.touched.len());
        // Long names above many changes would make a patch far longer than the object.
        let both = before.len() + after.len();
        let room = (4 * both).min(both + LONGER) + ROOM;
        let is_alike = self.old.kind(old) == self.new.kind(new) && self.old.is_container(old) && depth < MAX_DEPTH;
        let opens = is_alike && self.pay(before, after, depth);
        if opens {
            self.read(old, new);
        }
        let whole = match self.old.kind(old) {
            Kind::Object if opens => !self.members(old, new, depth, patch + room),
            Kind::Array if opens => !self.elements(old, new, depth, patch + room),
            Kind::Object | Kind::Array | Kind::String | Kind::Scalar => true,
        };
        if whole {
            self.patch.truncate(patch);
            if let Some(dropped) = self.touched.get(touched..) {
                self.touched_bytes -= dropped.iter().map(String::len).sum::<usize>();
            }
            self.touched.truncate(touched);
            self.operation("replace", Some(old), Some(new));
            if is_alike && !opens {
                // Whoever asks for less than all of it has to see that more was touched.
                self.touch();
            } else {
                self.leaves(Side::Old, old, depth);
                if self.old.is_container(old) || self.new.is_container(new) {
                    self.leaves(Side::New, new, depth);
                }
            }
        }
        self.paid = paid;
    }

    /// Pays for looking into two values, wholly or at what stands in them alone. Returns whether there was enough left.
    fn pay(&mut self, before: &[u8], after: &[u8], depth: usize) -> bool {
        let Some(left) = self.left.filter(|_| !self.paid) else { return true };
        let nodes = Weight::of(before, left).nodes + Weight::of(after, left).nodes;
        if nodes <= left {
            (self.left, self.paid) = (Some(left - nodes), true);
            return true;
        }
        if depth >= HEAVY_DEPTH {
            return false;
        }
        let children = Weight::of(before, usize::MAX).children + Weight::of(after, usize::MAX).children;
        let cost = 2 * children;
        let enough = children <= CHILDREN && cost <= left;
        if enough {
            self.left = Some(left - cost);
        }
        enough
    }

    /// Reads what is below two values, where that was put off.
    fn read(&mut self, old: Id, new: Id) {
        self.old.read(old);
        self.new.read_like(new, Some((&self.old, old)));
    }

    /// Returns whether it kept within the room it has.
    fn members(&mut self, old: Id, new: Id, depth: usize, room: usize) -> bool {
        let before = Members::of(&self.old, old);
        let after = Members::of(&self.new, new);
        let length = self.path.len();
        for (name, id) in &before.list {
            if after.find(name, 0).is_none() {
                push_segment(&mut self.path, name);
                self.operation("remove", Some(*id), None);
                self.leaves(Side::Old, *id, depth + 1);
                self.path.truncate(length);
                if self.patch.len() > room {
                    return false;
                }
            }
        }
        let mut likely = 0;
        for (name, id) in &after.list {
            let known = before.find(name, likely);
            if let Some(position) = known {
                likely = position + 1;
                if self.old.bytes(before.list[position].1) == self.new.bytes(*id) {
                    continue;
                }
            }
            push_segment(&mut self.path, name);
            if let Some(position) = known {
                self.value(before.list[position].1, *id, depth + 1);
            } else {
                self.operation("add", None, Some(*id));
                self.leaves(Side::New, *id, depth + 1);
            }
            self.path.truncate(length);
            if self.patch.len() > room {
                return false;
            }
        }
        true
    }

    /// Returns whether it kept within the room it has.
    fn elements(&mut self, old: Id, new: Id, depth: usize, room: usize) -> bool {
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
                    (new, last.expect("what is waited for stays, and comes before"))
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

    /// Notes that some elements of the list at the current path are the same ones, where marks need to know.
    fn stay(&mut self, old: usize, new: usize, count: usize) {
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

    /// Runs a step with the path of one element.
    fn element(&mut self, index: usize, step: impl FnOnce(&mut Self)) {
        let length = self.path.len();
        push_segment(&mut self.path, &index.to_string());
        step(self);
        self.path.truncate(length);
    }

    /// Aligns the elements of both parts, in an order that both share, and decides what to do with those in between.
    fn align(&mut self, old: &[Id], new: &[Id], between: bool) -> Aligned {
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

    /// Writes one operation at the current path.
    fn operation(&mut self, name: &str, old: Option<Id>, new: Option<Id>) {
        let was = old.map(|id| self.old.bytes(id));
        let value = new.map(|id| self.new.bytes(id));
        write_operation(&mut self.patch, name, &self.path, value, was);
        if new.is_some() {
            patch::note(&mut self.set, &self.path);
            if happened::may_be_stamped(&self.path) {
                self.stamped.push(self.path.clone());
            }
        }
        self.note_area(old, new);
    }

    fn note_area(&mut self, old: Option<Id>, new: Option<Id>) {
        match self.path.as_str() {
            "" => {
                for name in self.differing(old, new) {
                    if name == "metadata" {
                        let (old, new) = (self.old.member(Tree::ROOT, &name), self.new.member(Tree::ROOT, &name));
                        old.into_iter().for_each(|id| self.old.read(id));
                        new.into_iter().for_each(|id| self.new.read(id));
                        self.metadata_areas(old, new);
                    } else if self.areas.len() < AREAS {
                        insert(&mut self.areas, &name);
                    }
                }
            }
            METADATA => self.metadata_areas(old, new),
            path => {
                if let Some(area) = area_of(path)
                    && (self.areas.len() < AREAS || path.starts_with(METADATA))
                {
                    insert(&mut self.areas, &area);
                }
            }
        }
    }

    fn metadata_areas(&mut self, old: Option<Id>, new: Option<Id>) {
        let names = self.differing(old, new);
        for name in &names {
            if let Some(area) = metadata_area(name) {
                insert(&mut self.areas, area);
            }
        }
        if names.is_empty() {
            insert(&mut self.areas, "metadata");
        }
    }

    /// The members that two objects do not have alike, of as many as are looked at.
    fn differing(&self, old: Option<Id>, new: Option<Id>) -> Vec<String> {
        let of = |tree: &Tree<'a>, id: Option<Id>| {
            id.filter(|&id| tree.kind(id) == Kind::Object && tree.view().is_read(id))
                .map(|id| tree.members(id).take(CHILDREN).map(|(name, id)| (tree.string(name), tree.raw(id))).collect())
                .unwrap_or_default()
        };
        let before: HashMap<Cow<'a, str>, &str> = of(&self.old, old);
        let after: HashMap<Cow<'a, str>, &str> = of(&self.new, new);
        let names: BTreeSet<&Cow<'a, str>> = before.keys().chain(after.keys()).collect();
        names
            .into_iter()
            .filter(|name| before.get(*name) != after.get(*name))
            .map(|name| name.clone().into_owned())
            .collect()
    }

    /// Notes the leaves of a value at the current path as touched.
    fn leaves(&mut self, side: Side, id: Id, depth: usize) {
        let bytes = match side {
            Side::Old => self.old.bytes(id),
            Side::New => self.new.bytes(id),
        };
        if self.left.is_some() && !self.paid && Weight::is_beyond(bytes, CHILDREN) {
            return self.touch();
        }
        let is_full = self.is_full();
        let tree = match side {
            Side::Old => &mut self.old,
            Side::New => &mut self.new,
        };
        tree.read(id);
        let below: Vec<(Option<Cow<'a, str>>, Id)> = match tree.kind(id) {
            _ if depth >= MAX_DEPTH || is_full => Vec::new(),
            Kind::Object => Members::of(tree, id).list.into_iter().map(|(name, id)| (Some(name), id)).collect(),
            Kind::Array => tree.elements(id).take(TOUCHED).map(|id| (None, id)).collect(),
            Kind::String | Kind::Scalar => Vec::new(),
        };
        if below.is_empty() {
            self.touch();
        }
        let length = self.path.len();
        for (index, (name, id)) in below.into_iter().enumerate() {
            push_segment(&mut self.path, &name.unwrap_or_else(|| Cow::Owned(index.to_string())));
            self.leaves(side, id, depth + 1);
            self.path.truncate(length);
            if self.is_full() {
                // Whoever asks for less than this much has to see that more was touched.
                self.touch();
                return;
            }
        }
    }

    /// Reports whether the list of single leaves is full.
    fn is_full(&self) -> bool {
        self.touched_bytes > self.room || self.touched.len() >= TOUCHED
    }

    fn touch(&mut self) {
        if self.path != RESOURCE_VERSION && self.touched.last() != Some(&self.path) {
            self.touched_bytes += self.path.len();
            self.touched.push(self.path.clone());
        }
    }

    /// Values that were masked or dropped and are not what they were, though their text is.
    fn marks(&mut self, old: &[Mark], new: &[Mark]) {
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

    fn finish(mut self) -> (Change, Shape) {
        let managers = self.managers();
        let json = patch::change(&self.areas, &self.patch, &managers);
        let happened = happened::of(&mut self.new, self.stamped.iter().map(String::as_str));
        (Change { areas: self.areas, touched: self.touched, json, happened }, self.new.into_shape())
    }

    /// Returns the managers of the change.
    fn managers(&mut self) -> Vec<u8> {
        let kept = self.areas.iter().all(|area| area != "managedFields");
        let wrote = if kept { Vec::new() } else { managed_fields::moved(&mut self.old, &mut self.new) };
        patch::managers(&mut self.new, &wrote, &self.set)
    }
}

#[derive(Clone, Copy)]
enum Side {
    Old,
    New,
}

/// The members of an object, of duplicate names only the last.
struct Members<'a> {
    list: Vec<(Cow<'a, str>, Id)>,
    /// Positions of the names, for objects of more than a few members.
    index: HashMap<Cow<'a, str>, usize>,
}

impl<'a> Members<'a> {
    fn of(tree: &Tree<'a>, id: Id) -> Self {
        let mut members = Self { list: Vec::new(), index: HashMap::new() };
        for (name, value) in tree.members(id) {
            let name = tree.string(name);
            if let Some(position) = members.find(&name, 0) {
                members.list[position].1 = value;
                continue;
            }
            let position = members.list.len();
            if position == FEW {
                members.index =
                    members.list.iter().enumerate().map(|(position, (name, _))| (name.clone(), position)).collect();
            }
            if position >= FEW {
                members.index.insert(name.clone(), position);
            }
            members.list.push((name, value));
        }
        members
    }

    /// Returns the position of a name; `likely` is its position if nothing was added or removed.
    fn find(&self, name: &str, likely: usize) -> Option<usize> {
        if self.list.get(likely).is_some_and(|(known, _)| known == name) {
            return Some(likely);
        }
        if self.list.len() > FEW {
            return self.index.get(name).copied();
        }
        self.list.iter().position(|(known, _)| known == name)
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
