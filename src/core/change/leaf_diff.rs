//! Versions that differ in single values alone, each of them in its place: a lease that is renewed, a heartbeat, a
//! counter, the time of a manager. Most changes of a cluster are of this kind, and all that has to be looked at is where
//! the texts differ.
//!
//! # Decision: single values are compared in their place
//!
//! Context: Most changes replace single values: a renewed lease, a heartbeat, a timestamp in managedFields.
//! Decision: If the shape of the previous version is known, the texts are compared as bytes, and each difference is looked up
//! in that shape. It gives up if a full comparison could describe the change in another way, so that a patch does not depend
//! on what is cached; a property test compares the two.
//! Cost: Two comparers.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use super::patch::{self, ROOM, area_of, insert, write_operation};
use super::shape::Owners;
use super::{Change, Shape, happened};
use crate::core::json;
use crate::core::json::pointer::push_segment;
use crate::core::json::tree::{Id, Kind, Leaf, Tree, View};
use crate::core::k8s::bookkeeping::{MANAGED_FIELDS, RESOURCE_VERSION};
use crate::core::k8s::managed_fields;
use crate::core::k8s::merge_keys::IDENTITIES;

/// More values than this are left to the comparison of everything, …
const MANY: usize = 32;

/// … and so is what stands below this depth.
const DEEP: usize = 32;

/// Compares two versions, of which the older has this shape. Returns `None` where anything but leaves differs, or where
/// comparing everything might describe it in another way.
pub(super) fn compare(old: &[u8], before: &Shape, new: &[u8]) -> Option<(Change, Shape)> {
    let shape = before.positions();
    if View::of(old, shape)?.kind(Tree::ROOT) != Kind::Object {
        return None;
    }
    let mut search = Search { text: old, shape, read: None, lists: Vec::new(), books: false };
    let (mut from, mut to, mut room) = (0, 0, ROOM / 2);
    let (mut leaves, mut paths) = (Vec::with_capacity(4), Vec::with_capacity(4));
    loop {
        let same = shared_start(&old[from..], &new[to..]);
        let at = from + same;
        if at == old.len() && to + same == new.len() {
            break;
        }
        let mut path = String::with_capacity(48);
        let (id, span) = search.leaf_at(at, &mut path)?;
        // Or it is the one before, with something strange behind it.
        let begin = span.start.checked_sub(from)? + to;
        let leaf = Leaf::read(new, begin)?;
        room = room.checked_sub(path.len() + span.len() + (leaf.end() - begin) + 64)?;
        if leaves.len() == MANY || new[begin..leaf.end()] == old[span.clone()] {
            return None;
        }
        (from, to) = (span.end, leaf.end());
        leaves.push((id, leaf));
        paths.push(path);
    }
    search.elements_keep_their_names()?;
    let Search { mut read, books, .. } = search;
    let mut set: Vec<&str> = Vec::new();
    paths.iter().for_each(|path| patch::note(&mut set, path));
    let mut managers = Cow::Borrowed(&[][..]);
    // Nothing moved in managedFields, so an owner is the same in both.
    let mut owners = before.owners().filter(|_| !books).cloned();
    if !books && !set.is_empty() {
        if let Some(known) = before.owners_of(&set) {
            managers = Cow::Borrowed(&known.managers);
        } else {
            // What is read here is kept for the next change.
            let tree = read.take().or_else(|| Tree::of_shape(old, shape))?;
            let found = patch::managers(read.insert(tree), &[], &set);
            managers = Cow::Owned(found.clone());
            owners = Some(Arc::new(Owners { set: set.iter().map(|&path| path.to_owned()).collect(), managers: found }));
        }
    }
    let shape = read.map_or_else(|| shape.clone(), Tree::into_full_shape);
    let next = shape.with_leaves(&leaves);
    if books {
        let (mut before, mut after) = (Tree::of_shape(old, &shape)?, Tree::of_shape(new, &next)?);
        let wrote = managed_fields::moved(&mut before, &mut after);
        managers = Cow::Owned(patch::managers(&mut after, &wrote, &set));
    }
    let stamped: Vec<&str> = paths.iter().map(String::as_str).filter(|path| happened::may_be_stamped(path)).collect();
    let happened = match &stamped[..] {
        [] => None,
        stamped => happened::of(&mut Tree::of_shape(new, &next)?, stamped.iter().copied()),
    };
    let (before, after) = (View::of(old, &shape)?, View::of(new, &next)?);
    let change = Change { happened, ..describe(before, after, &leaves, paths, &managers) };
    Some((change, Shape::from(next.trimmed()).with_owners(owners)))
}

/// The change to these leaves.
fn describe(
    old: View<'_, '_>,
    new: View<'_, '_>,
    leaves: &[(Id, Leaf)],
    mut paths: Vec<String>,
    managers: &[u8],
) -> Change {
    let mut areas = Vec::with_capacity(2);
    paths.iter().filter_map(|path| area_of(path)).for_each(|area| insert(&mut areas, &area));
    let json = patch::change(&areas, managers, 512, |json| {
        for ((id, _), path) in leaves.iter().zip(&paths) {
            write_operation(json, "replace", path, Some(new.bytes(*id)), Some(old.bytes(*id)));
        }
    });
    paths.retain(|path| path != RESOURCE_VERSION);
    Change { areas, touched: paths, json, happened: None }
}

/// Elements of one list, from the first to the last that holds something that differs.
struct Elements {
    list: Id,
    first: usize,
    last: usize,
}

struct Search<'a> {
    text: &'a [u8],
    shape: &'a json::Shape,
    /// With what had to be read, if anything.
    read: Option<Tree<'a>>,
    lists: Vec<Elements>,
    /// Set if something differs in managedFields.
    books: bool,
}

impl<'a> Search<'a> {
    /// With what stands below a value.
    fn view(&mut self, id: Id) -> Option<View<'a, '_>> {
        if self.read.is_none() {
            let kept = View::of(self.text, self.shape)?;
            if kept.is_read(id) {
                return Some(kept);
            }
            self.read = Some(Tree::of_shape(self.text, self.shape)?);
        }
        let tree = self.read.as_mut()?;
        tree.read(id);
        Some(tree.view())
    }

    /// The leaf that stands at a place of the old text, or ends there. Nothing where what stands there is no leaf, or has
    /// no path of plain names, or may be what names the element that it is in.
    fn leaf_at(&mut self, at: usize, path: &mut String) -> Option<(Id, Range<usize>)> {
        let (mut id, mut in_list) = (Tree::ROOT, false);
        for _ in 0..DEEP {
            let old = self.view(id)?;
            match old.kind(id) {
                Kind::Object => {
                    let (name, value) = old.members(id).find(|&(_, value)| old.reaches(value, at))?;
                    let text = old.bytes(name);
                    // Of duplicate names the last counts, and one with an escape may be a duplicate of any.
                    let mut others = old.members(id).map(|(other, _)| other);
                    if !others.all(|other| !old.is_escaped(other) && (other == name || old.bytes(other) != text)) {
                        return None;
                    }
                    let text = old.raw(name);
                    let text = &text[1..text.len() - 1];
                    if in_list && IDENTITIES.iter().any(|names| names.contains(&text)) {
                        return None;
                    }
                    push_segment(path, text);
                    (id, in_list) = (value, false);
                }
                Kind::Array => {
                    let (index, element) =
                        old.elements(id).enumerate().find(|&(_, element)| old.reaches(element, at))?;
                    if old.kind(element) != Kind::Object {
                        return None;
                    }
                    match self.lists.iter_mut().find(|elements| elements.list == id) {
                        Some(elements) => elements.last = index,
                        None => self.lists.push(Elements { list: id, first: index, last: index }),
                    }
                    self.books |= path == MANAGED_FIELDS;
                    push_index(path, index);
                    (id, in_list) = (element, true);
                }
                Kind::String | Kind::Scalar => {
                    let span = old.span(id);
                    return (id != Tree::ROOT && span.start <= at).then_some((id, span));
                }
            }
        }
        None
    }

    /// Checks that in each list the elements from the first that differs to the last have names that identify them:
    /// then they are the same ones in the same order, because no such name differs.
    fn elements_keep_their_names(&mut self) -> Option<()> {
        for Elements { list, first, last } in std::mem::take(&mut self.lists) {
            let elements: Vec<Id> = self.view(list)?.elements(list).skip(first).take(last + 1 - first).collect();
            let mut lines = u32::MAX;
            for element in elements {
                let old = self.view(element)?;
                if old.kind(element) != Kind::Object {
                    return None;
                }
                lines &= names_of(old, element);
                if lines == 0 {
                    return None;
                }
            }
        }
        Some(())
    }
}

/// Appends an index to a JSON pointer.
fn push_index(path: &mut String, index: usize) {
    if index >= 10 {
        return push_segment(path, &index.to_string());
    }
    path.push('/');
    path.push(char::from(b"0123456789"[index]));
}

/// Returns the lines of [`IDENTITIES`] that name an element, as bits. A name with escapes is skipped.
fn names_of(tree: View<'_, '_>, element: Id) -> u32 {
    let mut lines = 0;
    for (name, _) in tree.members(element).filter(|&(_, value)| !tree.is_container(value)) {
        let text = tree.bytes(name);
        let text = &text[1..text.len() - 1];
        let named = IDENTITIES.iter().enumerate().filter(|(_, names)| *names[0].as_bytes() == *text);
        lines = named.fold(lines, |lines, (line, _)| lines | 1 << line);
    }
    lines
}

/// Returns the length of the common prefix of two texts, in bytes.
fn shared_start(one: &[u8], other: &[u8]) -> usize {
    let whole = one.as_chunks::<32>().0.iter().zip(other.as_chunks::<32>().0).take_while(|(a, b)| a == b).count() * 32;
    whole + one[whole..].iter().zip(&other[whole..]).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::core::change::{compare_shaped, diff};

    /// What is known of a text after it was compared with itself.
    fn shape_of(text: &str) -> Shape {
        compare_shaped(text.as_bytes(), None, text.as_bytes(), &[], &[]).unwrap().1
    }

    /// Returns whether the values are described in their places, after checking that comparing everything says the
    /// same.
    fn check(versions: &[&str]) -> Vec<bool> {
        let mut shape = shape_of(versions[0]);
        let mut found = Vec::new();
        for pair in versions.windows(2) {
            let (old, new) = (pair[0].as_bytes(), pair[1].as_bytes());
            let (whole, _) = diff::everything(old, None, new, &[], &[]).unwrap();
            let in_place = compare(old, &shape, new);
            found.push(in_place.is_some());
            let (change, next) = match in_place {
                Some(found) => found,
                None => compare_shaped(old, Some(&shape), new, &[], &[]).unwrap(),
            };
            assert_eq!(change, whole, "{} to {}", pair[0], pair[1]);
            shape = next;
        }
        found
    }

    const LEASE: &str = r#"{"kind":"Lease","metadata":{"name":"n","resourceVersion":"9","managedFields":[{"manager":"kube-controller","time":"1"},{"manager":"kubelet","operation":"Update","time":"T1","fieldsV1":{"f:spec":{}}}]},"spec":{"renewTime":"T1","transitions":1}}"#;

    #[test]
    fn most_changes_are_described_in_their_place() {
        let renewed = LEASE.replace("T1", "T2").replace(r#""9""#, r#""10""#);
        let again = renewed.replace("T2", "T3").replace(r#""10""#, r#""11""#);
        let counted = again.replace(r#""transitions":1"#, r#""transitions":12"#);
        let emptied = counted.replace(r#""transitions":12"#, r#""transitions":null"#);
        assert_eq!(check(&[LEASE, &renewed, &again, &counted, &emptied, &emptied]), [true; 5]);
        let (change, _) = compare(LEASE.as_bytes(), &shape_of(LEASE), renewed.as_bytes()).unwrap();
        assert_eq!(
            change.json,
            r#"{"areas":["managedFields","spec"],"patch":[{"op":"replace","path":"/metadata/resourceVersion","value":"10","was":"9"},{"op":"replace","path":"/metadata/managedFields/1/time","value":"T2","was":"T1"},{"op":"replace","path":"/spec/renewTime","value":"T2","was":"T1"}],"managers":[{"manager":"kubelet","operation":"Update","time":"T2","by":"moved"}]}"#
        );
        assert_eq!(change.touched, ["/metadata/managedFields/1/time", "/spec/renewTime"]);
    }

    #[test]
    fn what_may_be_described_in_another_way_is_left_to_the_comparison_of_everything() {
        for (old, new) in [
            // What names an element.
            (r#"{"a":[{"name":"x","b":1}]}"#, r#"{"a":[{"name":"y","b":1}]}"#),
            // Elements without names, and texts.
            (r#"{"a":[{"b":1},{"b":2}]}"#, r#"{"a":[{"b":2},{"b":3}]}"#),
            (r#"{"a":["x"]}"#, r#"{"a":["y"]}"#),
            // Names that are there twice.
            (r#"{"a":1,"a":1}"#, r#"{"a":2,"a":1}"#),
            (r#"{"a":1,"\u0061":1}"#, r#"{"a":2,"\u0061":1}"#),
            // What comes, goes or is another kind of thing.
            (r#"{"a":1}"#, r#"{"a":1,"b":1}"#),
            (r#"{"a":1}"#, r#"{"a":{}}"#),
            (r#"{"a":{"b":1}}"#, r#"{"c":{"b":1}}"#),
            (r#"{"a":1}"#, r#"{"a":1 }"#),
        ] {
            assert_eq!(check(&[old, new]), [false], "{old} to {new}");
        }
        // What is no JSON is none.
        for new in
            [r#"{"a":12x}"#, r#"{"a":01}"#, r#"{"a":"1}"#, "{\"a\":\"\n\"}", r#"{"a":}"#, r#"{"a":1"#, r#"{"a":1}}"#]
        {
            assert!(compare(br#"{"a":1}"#, &shape_of(r#"{"a":1}"#), new.as_bytes()).is_none(), "{new}");
        }
    }

    /// Texts of the same structure whose leaves may differ.
    fn versions() -> impl Strategy<Value = [String; 3]> {
        let text = prop::sample::select(vec![
            "1",
            "12",
            "-3.5e1",
            "true",
            "null",
            r#""x""#,
            r#""xy""#,
            r#""\u0061""#,
            r#""é""#,
        ]);
        let same = text.clone().prop_map(|text| [text; 3].map(str::to_owned));
        let other = [text.clone(), text.clone(), text].prop_map(|texts| texts.map(str::to_owned));
        let leaf = prop_oneof![2 => same, 1 => other];
        leaf.prop_recursive(4, 40, 5, |inner| {
            let name = prop::sample::select(vec!["a", "b", "c/~", "name", "type", "time", "manager", "uid", "\\u0061"]);
            let join = |parts: Vec<[String; 3]>, open: char, close: char| {
                [0, 1, 2].map(|version| {
                    let parts: Vec<&str> = parts.iter().map(|part| part[version].as_str()).collect();
                    format!("{open}{}{close}", parts.join(","))
                })
            };
            let members = prop::collection::vec((name, inner.clone()), 0..5).prop_map(move |members| {
                let named = |(name, value): (&str, [String; 3])| value.map(|value| format!("\"{name}\":{value}"));
                join(members.into_iter().map(named).collect(), '{', '}')
            });
            let members = members.boxed();
            let elements = prop::collection::vec(prop_oneof![3 => members.clone(), 1 => inner], 0..4);
            prop_oneof![members, elements.prop_map(move |elements| join(elements, '[', ']'))]
        })
    }

    proptest! {
        #[test]
        fn it_is_described_as_by_the_comparison_of_everything(books in versions(), spec in versions(), x in versions()) {
            let text = |version: usize| {
                format!(
                    r#"{{"metadata":{{"resourceVersion":"{version}","managedFields":[{},{}]}},"spec":{},"x":[{{"name":"n","x":{}}}]}}"#,
                    books[version], x[version], spec[version], x[version],
                )
            };
            check(&[&text(0), &text(1), &text(2)]);
        }
    }
}
