//! The difference of two versions of an object, as a patch (RFC 6902).
//!
//! What is built for a value takes many times the bytes of a small one, so there is an end to it ([`NODES`]): parts of an
//! object that hold more values are compared in the order of their elements, and at last replaced as a whole.

mod align;
mod lists;
mod marks;

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};

use super::patch::{self, METADATA, ROOM, area_of, insert, metadata_area, write_operation};
use super::{Change, happened};
use crate::core::json::Shape;
use crate::core::json::pointer::push_segment;
use crate::core::json::tree::{Id, Kind, Tree};
use crate::core::json::weight::{MANY, Weight};
use crate::core::k8s::bookkeeping::RESOURCE_VERSION;
use crate::core::k8s::managed_fields;
use marks::Stayed;

/// Below this depth a value that differs is replaced as a whole.
const MAX_DEPTH: usize = 256;

/// Objects with more members than this are looked up by hash.
const FEW: usize = 12;

/// Values and names of members, in both versions together, for which trees are built: 20 bytes each, and up to 100 more where
/// members are looked up.
const NODES: usize = 2 * MANY;

/// Members or elements, in both versions together, that are compared one by one where the values below them are too many.
const CHILDREN: usize = 20_000;

/// Below this depth such parts are not looked into.
const HEAVY_DEPTH: usize = 16;

/// Leaves that are noted as touched before whole containers stand for what is in them.
const TOUCHED: usize = 50_000;

/// Bytes of pointers for the same.
const TOUCHED_BYTES: usize = 4 << 20;

/// Bytes by which a patch may be longer than both versions before a container is replaced as a whole.
const LONGER: usize = 1 << 20;

/// Areas that are named.
const AREAS: usize = 1000;

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

    fn finish(mut self) -> (Change, Shape) {
        let managers = self.managers();
        let json = patch::change(&self.areas, &managers, self.patch.len(), |json| json.extend_from_slice(&self.patch));
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
