//! An object with what became of each of its values: the two sides of a change in one tree.
//!
//! The `patch` of an entry is taken back, operation by operation, from the object that the entry carries. What an
//! operation brought is marked in the tree, and what it took away is restored beside it. So a change is shown by its
//! entry alone, exactly as it was recorded: elements of lists by their names, redacted values by the fact of their
//! change.

mod budget;

use std::borrow::Cow;

use serde_json::value::RawValue;

use crate::core::json::pointer::{push_segment, unescape};
use crate::core::json::{Members, Text};
use crate::core::k8s::merge_keys::IDENTITIES;
use crate::core::wire::Op;
use budget::{Budget, NODES};

/// Values deeper than this are kept as the JSON that they are, which YAML reads as well.
const MAX_DEPTH: usize = 256;

/// A value.
#[derive(Debug)]
pub(crate) struct Node<'a> {
    pub(crate) body: Body<'a>,
    pub(crate) mark: Mark<'a>,
    /// True if the node exists at the moment to which the tree was reverted.
    there: bool,
    /// Index of the entry that set it, for `blame`.
    pub(crate) origin: Option<usize>,
    /// Index of an element in its list when it was parsed.
    home: Option<usize>,
    /// Position of the member that was looked up last; the end at first, and after an addition.
    near: usize,
}

/// Contents of a value. Texts and numbers keep their spelling.
#[derive(Debug)]
pub(crate) enum Body<'a> {
    Object(Vec<(Cow<'a, str>, Node<'a>)>),
    Array(Vec<Node<'a>>),
    Leaf(Cow<'a, str>),
}

/// Change of a value.
#[derive(Debug)]
pub(crate) enum Mark<'a> {
    /// Nothing, or only of what it holds.
    Same,
    /// It came.
    Added,
    /// It went.
    Gone,
    /// It took the place of another.
    Was(Box<Node<'a>>),
    /// It is another value that redaction shows as the same text.
    Redacted,
}

/// A step into a value.
#[derive(Clone, Debug)]
pub(crate) enum Step<'t, 'a> {
    /// A member.
    Key(&'t str),
    /// An element, by the name that it has, or by its place; its place; and itself.
    Element(Cow<'t, str>, usize, &'t Node<'a>),
}

/// One value that changed, and where it stands.
#[derive(Debug)]
pub(crate) struct Difference<'t, 'a> {
    pub(crate) path: Vec<Step<'t, 'a>>,
    pub(crate) node: &'t Node<'a>,
}

impl<'a> Node<'a> {
    fn of(body: Body<'a>) -> Self {
        Self { body, mark: Mark::Same, there: true, origin: None, home: None, near: usize::MAX }
    }

    /// A node whose contents are not parsed.
    fn opaque() -> Self {
        Self::of(Body::Leaf(Cow::Borrowed("null")))
    }

    /// Reads a JSON text.
    ///
    /// # Errors
    /// Where it is none.
    pub(crate) fn parse(json: &'a [u8]) -> Result<Self, serde_json::Error> {
        Self::parse_within(json, NODES)
    }

    /// Parses as [`Node::parse`] does, up to `nodes` nodes.
    ///
    /// # Errors
    /// As [`Node::parse`].
    pub(crate) fn parse_within(json: &'a [u8], nodes: usize) -> Result<Self, serde_json::Error> {
        let raw: &RawValue = serde_json::from_slice(json)?;
        Self::read(raw.get(), 0, &mut Budget::of(nodes))
    }

    fn read(json: &'a str, depth: usize, budget: &mut Budget) -> Result<Self, serde_json::Error> {
        let paid = budget.paid;
        let body = match json.as_bytes().first() {
            Some(b'{') if budget.pay(json, depth) => {
                let Members(members) = serde_json::from_str(json)?;
                let read = |(key, value): (_, &'a RawValue)| Ok((key, Self::read(value.get(), depth + 1, budget)?));
                Body::Object(members.into_iter().map(read).collect::<Result<_, serde_json::Error>>()?)
            }
            Some(b'[') if budget.pay(json, depth) => {
                let items: Vec<&'a RawValue> = serde_json::from_str(json)?;
                let read = |(home, item): (usize, &'a RawValue)| {
                    Ok(Self { home: Some(home), ..Self::read(item.get(), depth + 1, budget)? })
                };
                Body::Array(items.into_iter().enumerate().map(read).collect::<Result<_, serde_json::Error>>()?)
            }
            _ => Body::Leaf(Cow::Borrowed(json)),
        };
        budget.paid = paid;
        Ok(Self::of(body))
    }

    /// Reports whether it is a container that is kept as JSON.
    fn is_closed(&self) -> bool {
        matches!(&self.body, Body::Leaf(json) if json.starts_with(['{', '[']))
    }

    /// Reads what a container holds that is kept as JSON, as far as there is budget for it. Returns whether there was.
    fn open(&mut self, depth: usize, budget: &mut Budget) -> bool {
        let Body::Leaf(Cow::Borrowed(json)) = self.body else { return false };
        if let Ok(read) = Self::read(json, depth, budget) {
            self.body = read.body;
        }
        !self.is_closed()
    }

    /// Marks an unknown change within the value.
    fn changed_within(&mut self) -> &mut Self {
        if matches!(self.mark, Mark::Same) {
            self.mark = Mark::Added;
        }
        self
    }

    /// All of it came.
    pub(crate) fn added(mut self) -> Self {
        self.mark = Mark::Added;
        self
    }

    /// All of it went.
    pub(crate) fn gone(mut self) -> Self {
        self.mark = Mark::Gone;
        self
    }

    /// Takes a patch back: what it brought is marked, what it took away is restored beside it.
    ///
    /// # Errors
    /// Where what it took away is no JSON.
    pub(crate) fn revert(&mut self, patch: &[Op<'a>]) -> Result<(), serde_json::Error> {
        self.revert_within(patch, NODES)
    }

    /// Reverts as [`Node::revert`] does, for at most `nodes` nodes of removed values and of values that have to be parsed.
    fn revert_within(&mut self, patch: &[Op<'a>], nodes: usize) -> Result<(), serde_json::Error> {
        let mut budget = Budget::of(nodes);
        for op in patch.iter().rev() {
            let was = op.was.map(|was| Self::read(was.get(), 0, &mut budget)).transpose()?;
            self.take_back(op, was, &mut budget);
        }
        Ok(())
    }

    /// Puts elements that a patch moved back to where they stand in the object, with what went from behind each of them.
    pub(crate) fn settle(&mut self) {
        match &mut self.body {
            Body::Object(members) => {
                members.retain(|(_, node)| !node.is_forgotten());
                members.iter_mut().for_each(|(_, node)| node.settle());
            }
            Body::Array(items) => {
                items.iter_mut().for_each(Self::settle);
                if !items.iter().filter_map(|item| item.home).is_sorted() {
                    let mut last = None;
                    let mut homes: Vec<(Option<usize>, Self)> = Vec::with_capacity(items.len());
                    for item in items.drain(..) {
                        last = item.home.or(last);
                        homes.push((last, item));
                    }
                    homes.sort_by_key(|(home, _)| *home);
                    items.extend(homes.into_iter().map(|(_, item)| item));
                }
            }
            Body::Leaf(_) => {}
        }
    }

    /// Takes one patch of many back, of which nothing is remembered but who brought what is in the tree now: `origin`,
    /// where nobody later did.
    /// Says whether it was credited with anything.
    pub(crate) fn revert_to(&mut self, patch: &[Op<'_>], origin: usize) -> bool {
        let mut credited = false;
        for op in patch.iter().rev() {
            // What is kept as JSON is somebody's as a whole: of many patches, all of it would be looked into at last.
            if let Some(brought) = self.take_back(op, Some(Self::opaque()), &mut Budget::of(0)) {
                credited |= brought.credit(origin);
            }
        }
        credited
    }

    /// Marks a value, by its JSON pointer, as another one which redaction shows as the same text.
    pub(crate) fn redacted(&mut self, pointer: &str) {
        let mut at = self;
        for step in steps(pointer) {
            let Some(below) = at.child(&step) else { return };
            at = below;
        }
        if matches!(at.mark, Mark::Same) {
            at.mark = Mark::Redacted;
        }
    }

    /// Attributes every value below that has no origin to `origin`. Reports whether there was one.
    pub(crate) fn credit(&mut self, origin: usize) -> bool {
        match &mut self.body {
            Body::Object(members) if !members.is_empty() => {
                members.iter_mut().map(|(_, node)| node.credit(origin)).filter(|credited| *credited).count() > 0
            }
            Body::Array(items) if !items.is_empty() => {
                items.iter_mut().map(|node| node.credit(origin)).filter(|credited| *credited).count() > 0
            }
            Body::Object(_) | Body::Array(_) | Body::Leaf(_) => {
                let first = self.origin.is_none() && !matches!(self.mark, Mark::Gone);
                self.origin.get_or_insert(origin);
                first
            }
        }
    }

    /// Reports whether every value below has an origin.
    pub(crate) fn is_credited(&self) -> bool {
        match &self.body {
            Body::Object(members) if !members.is_empty() => members.iter().all(|(_, node)| node.is_credited()),
            Body::Array(items) if !items.is_empty() => items.iter().all(Node::is_credited),
            Body::Object(_) | Body::Array(_) | Body::Leaf(_) => {
                self.origin.is_some() || matches!(self.mark, Mark::Gone)
            }
        }
    }

    /// Takes a move back. Whoever moved an element changed nothing of it.
    fn take_move_back(&mut self, op: &Op<'_>, budget: &mut Budget) -> Option<()> {
        let mut found = Some(&mut *self);
        let mut way = steps(&op.path);
        let last = way.pop()?;
        for (depth, step) in way.iter().enumerate() {
            let at = found?;
            if at.is_closed() && !at.open(depth, budget) {
                at.changed_within();
                return None;
            }
            found = at.child(step);
        }
        let at = found?;
        if at.is_closed() && !at.open(way.len(), budget) {
            at.changed_within();
            return None;
        }
        let place = at.place(&last)?;
        let node = at.remove(place)?;
        let mut way = steps(op.from.as_deref()?);
        let last = way.pop()?;
        let mut at = self;
        for step in &way {
            at = at.child(step)?;
        }
        at.put_back(last, node);
        Some(())
    }

    /// Takes one operation back; gives the value that it brought, where that is in the tree.
    fn take_back<'t>(&'t mut self, op: &Op<'_>, was: Option<Node<'a>>, budget: &mut Budget) -> Option<&'t mut Self> {
        if op.op == "move" {
            self.take_move_back(op, budget);
            return None;
        }
        let mut at = self;
        let mut steps = steps(&op.path);
        let last = steps.pop();
        for (depth, step) in steps.iter().enumerate() {
            if at.is_closed() && !at.open(depth, budget) {
                return Some(at.changed_within());
            }
            at = at.child(step)?;
        }
        if at.is_closed() && last.is_some() && !at.open(steps.len(), budget) {
            return Some(at.changed_within());
        }
        match (&*op.op, last) {
            ("replace", last) => {
                let brought = match last {
                    Some(step) => at.child(&step)?,
                    None => at,
                };
                if matches!(brought.mark, Mark::Gone) {
                    return None;
                }
                // What was the text before is the text now: only a digest distinguished the two.
                let same = op.was.zip(op.value).is_some_and(|(was, value)| was.get() == value.get());
                brought.mark = match was {
                    _ if same => Mark::Redacted,
                    Some(was) => Mark::Was(Box::new(was)),
                    // What was there before cannot be read any more.
                    None => Mark::Added,
                };
                Some(brought)
            }
            ("add", Some(step)) => {
                let place = at.place(&step)?;
                let known = at.at(place);
                known.there = false;
                if matches!(known.mark, Mark::Gone) {
                    // It came and went, all of it later than what the tree goes back to.
                    at.forget(place);
                    return None;
                }
                known.mark = Mark::Added;
                Some(at.at(place))
            }
            ("remove", Some(step)) => {
                at.put_back(step, Self { home: None, ..was.unwrap_or_else(Self::opaque).gone() });
                None
            }
            _ => None,
        }
    }

    fn at(&mut self, place: usize) -> &mut Self {
        match &mut self.body {
            Body::Object(members) => &mut members[place].1,
            Body::Array(items) => &mut items[place],
            Body::Leaf(_) => unreachable!("a place is one in a container"),
        }
    }

    /// Takes something out that was not there before it came.
    fn forget(&mut self, place: usize) {
        match &mut self.body {
            // It is gone either way, and what stands behind it stays where it is: there may be thousands.
            Body::Object(members) => {
                members[place].1.there = false;
                // An object of which nothing is left has nothing in it, and somebody has set that.
                while members.last().is_some_and(|(_, node)| node.is_forgotten()) {
                    members.pop();
                }
            }
            Body::Array(items) => drop(items.remove(place)),
            Body::Leaf(_) => {}
        }
    }

    /// Reports whether the node was added and removed later than the moment to which the tree is reverted.
    fn is_forgotten(&self) -> bool {
        !self.there && matches!(self.mark, Mark::Gone)
    }

    fn remove(&mut self, place: usize) -> Option<Self> {
        match &mut self.body {
            Body::Object(members) => Some(members.remove(place).1),
            Body::Array(items) => Some(items.remove(place)),
            Body::Leaf(_) => None,
        }
    }

    /// Puts what a patch took from under a name or an index back there.
    fn put_back(&mut self, step: String, node: Self) {
        match &mut self.body {
            Body::Object(members) => {
                self.near = usize::MAX;
                members.push((Cow::Owned(step), node));
            }
            Body::Array(items) => {
                let Ok(index) = step.parse::<usize>() else { return };
                // Before whatever has come in the same place.
                let before = items.iter().enumerate().filter(|(_, item)| item.there).nth(index.wrapping_sub(1));
                let place = if index == 0 { 0 } else { before.map_or(items.len(), |(place, _)| place + 1) };
                items.insert(place, node);
            }
            Body::Leaf(_) => {}
        }
    }

    fn child(&mut self, step: &str) -> Option<&mut Self> {
        let place = self.place(step)?;
        Some(self.at(place))
    }

    /// Returns the position in the body of the present member or element with this name or index.
    fn place(&mut self, step: &str) -> Option<usize> {
        // Inside of what took the place of another there is nothing of the other.
        if matches!(self.mark, Mark::Was(_) | Mark::Gone) {
            return None;
        }
        match &self.body {
            Body::Object(members) => {
                let is_it = |place: &usize| {
                    #[cfg(test)]
                    tests::LOOKED.with(|looked| looked.set(looked.get() + 1));
                    let (key, node) = &members[*place];
                    node.there && key == step
                };
                // What a patch names stands near to what it named before, on either side.
                let near = self.near.min(members.len());
                let outward =
                    |away: usize| [near.checked_sub(away + 1), Some(near + away).filter(|at| *at < members.len())];
                let found = (0..members.len()).flat_map(outward).flatten().find(is_it)?;
                self.near = found;
                Some(found)
            }
            Body::Array(items) => {
                let mut there = items.iter().enumerate().filter(|(_, item)| item.there);
                match step {
                    "-" => there.next_back(),
                    step => there.nth(step.parse().ok()?),
                }
                .map(|(place, _)| place)
            }
            Body::Leaf(_) => None,
        }
    }

    /// Takes out what these paths name; `*` stands for any member.
    pub(crate) fn without(&mut self, paths: &[&[&str]]) {
        let Body::Object(members) = &mut self.body else { return };
        members.retain(|(key, _)| !paths.iter().any(|path| path.len() == 1 && path[0] == key));
        for (key, node) in members {
            let below: Vec<&[&str]> = paths.iter().filter(|path| path[0] == key).map(|path| &path[1..]).collect();
            node.without(&below);
            if let Mark::Was(was) = &mut node.mark {
                was.without(&below);
            }
        }
    }

    /// Takes out the member that a path names, where nothing is in it.
    pub(crate) fn without_empty(&mut self, path: &[&str]) {
        let mut at = &*self;
        for step in path {
            let Some(member) = at.member(step) else { return };
            at = member;
        }
        if matches!(&at.body, Body::Object(members) if members.is_empty()) {
            self.without(&[path]);
        }
    }

    /// Reports whether a JSON pointer leads to a value.
    pub(crate) fn has(&self, pointer: &str) -> bool {
        let mut at = self;
        for step in steps(pointer) {
            let below = match &at.body {
                Body::Object(_) => at.member(&step),
                Body::Array(items) => step.parse().ok().and_then(|place: usize| items.get(place)),
                Body::Leaf(_) => None,
            };
            let Some(below) = below else { return false };
            at = below;
        }
        true
    }

    /// The member of this name.
    pub(crate) fn member(&self, name: &str) -> Option<&Self> {
        match &self.body {
            Body::Object(members) => members.iter().rev().find(|(key, _)| key == name).map(|(_, node)| node),
            Body::Array(_) | Body::Leaf(_) => None,
        }
    }

    /// Returns the contents of a string, or the spelling of a number, `true`, `false` or `null`.
    pub(crate) fn text(&self) -> Option<Cow<'_, str>> {
        match &self.body {
            Body::Leaf(json) if json.starts_with('"') => {
                serde_json::from_str::<Text<'_>>(json).ok().map(|Text(text)| Cow::Owned(text.into_owned()))
            }
            Body::Leaf(json) => Some(Cow::Borrowed(json)),
            Body::Object(_) | Body::Array(_) => None,
        }
    }

    /// The member that names an element of a list, and its name.
    pub(crate) fn named(&self) -> Option<(&'static str, Cow<'_, str>)> {
        IDENTITIES.iter().find_map(|names| Some((names[0], self.member(names[0])?.text()?)))
    }

    /// Reports whether anything below changed.
    pub(crate) fn differs(&self) -> bool {
        !matches!(self.mark, Mark::Same)
            || match &self.body {
                Body::Object(members) => members.iter().any(|(_, node)| node.differs()),
                Body::Array(items) => items.iter().any(Node::differs),
                Body::Leaf(_) => false,
            }
    }

    /// Every value that changed, in the order in which they stand.
    pub(crate) fn differences(&self) -> Vec<Difference<'_, 'a>> {
        let mut found = Vec::new();
        self.walk(&mut Vec::new(), &|node| !matches!(node.mark, Mark::Same), &mut found);
        found
    }

    /// Every value that holds no other and is there at the end, in the order in which they stand.
    pub(crate) fn leaves(&self) -> Vec<Difference<'_, 'a>> {
        let mut found = Vec::new();
        self.walk(&mut Vec::new(), &|node| node.is_leaf() || matches!(node.mark, Mark::Gone), &mut found);
        found.retain(|found| !matches!(found.node.mark, Mark::Gone));
        found
    }

    /// Numbers the [`Node::leaves`], in `origin`.
    pub(crate) fn number(&mut self, next: &mut usize) {
        if matches!(self.mark, Mark::Gone) {
            return;
        }
        if self.is_leaf() {
            self.origin = Some(*next);
            *next += 1;
            return;
        }
        match &mut self.body {
            Body::Object(members) => members.iter_mut().for_each(|(_, node)| node.number(next)),
            Body::Array(items) => items.iter_mut().for_each(|node| node.number(next)),
            Body::Leaf(_) => {}
        }
    }

    fn is_leaf(&self) -> bool {
        match &self.body {
            Body::Object(members) => members.is_empty(),
            Body::Array(items) => items.is_empty(),
            Body::Leaf(_) => true,
        }
    }

    fn walk<'t>(
        &'t self,
        path: &mut Vec<Step<'t, 'a>>,
        wanted: &impl Fn(&Self) -> bool,
        found: &mut Vec<Difference<'t, 'a>>,
    ) {
        if wanted(self) {
            found.push(Difference { path: path.clone(), node: self });
            return;
        }
        match &self.body {
            Body::Object(members) => {
                for (key, node) in members {
                    path.push(Step::Key(key));
                    node.walk(path, wanted, found);
                    path.pop();
                }
            }
            Body::Array(items) => {
                for (place, node) in items.iter().enumerate() {
                    let name = node.named().map_or_else(|| Cow::Owned(place.to_string()), |(_, name)| name);
                    path.push(Step::Element(name, place, node));
                    node.walk(path, wanted, found);
                    path.pop();
                }
            }
            Body::Leaf(_) => {}
        }
    }

    /// The JSON of it, on one line.
    pub(crate) fn json(&self) -> String {
        let mut out = String::new();
        self.write_json(&mut out);
        out
    }

    fn write_json(&self, out: &mut String) {
        match &self.body {
            Body::Object(members) => {
                out.push('{');
                for (at, (key, node)) in members.iter().enumerate() {
                    let comma = if at > 0 { "," } else { "" };
                    let key = serde_json::to_string(key).expect("a string always serialises into memory");
                    out.push_str(&format!("{comma}{key}:"));
                    node.write_json(out);
                }
                out.push('}');
            }
            Body::Array(items) => {
                out.push('[');
                for (at, node) in items.iter().enumerate() {
                    out.push_str(if at > 0 { "," } else { "" });
                    node.write_json(out);
                }
                out.push(']');
            }
            Body::Leaf(json) => out.push_str(json),
        }
    }

    /// The values that were there before the patches that were taken back, as one value.
    #[cfg(test)]
    fn before(&self) -> String {
        if let Mark::Was(was) = &self.mark {
            return was.before();
        }
        match &self.body {
            Body::Object(members) => {
                let there = members.iter().filter(|(_, node)| node.there);
                let text: Vec<_> =
                    there.map(|(key, node)| format!("{}:{}", serde_json::json!(key), node.before())).collect();
                format!("{{{}}}", text.join(","))
            }
            Body::Array(items) => {
                let text: Vec<_> = items.iter().filter(|item| item.there).map(Node::before).collect();
                format!("[{}]", text.join(","))
            }
            Body::Leaf(json) => json.to_string(),
        }
    }
}

/// The steps of a JSON pointer.
pub(crate) fn steps(pointer: &str) -> Vec<String> {
    pointer.split('/').skip(1).map(|step| unescape(step).unwrap_or(Cow::Borrowed(step)).into_owned()).collect()
}

/// The JSON pointer of a path.
pub(crate) fn pointer(path: &[Step<'_, '_>]) -> String {
    let mut pointer = String::new();
    for step in path {
        match step {
            Step::Key(key) => push_segment(&mut pointer, key),
            Step::Element(_, place, _) => push_segment(&mut pointer, &place.to_string()),
        }
    }
    pointer
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::core::wire::Change;

    thread_local! {
        /// So many members were looked at to find some.
        pub(crate) static LOOKED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
    }

    /// Members, from one to another of which nothing has to be looked through again.
    #[test]
    fn large_objects_are_taken_back_member_by_member() {
        const MANY: usize = 5_000;
        let data = |range: std::ops::Range<usize>, text: &str| -> String {
            let members: serde_json::Map<_, _> = range.map(|n| (format!("key-{n:05}"), text.into())).collect();
            serde_json::json!({"data": members}).to_string()
        };
        // All changed, all but one came, all went and came.
        let versions = [data(0..1, "a"), data(0..MANY, "a"), data(0..1, "a"), data(0..MANY, "a"), data(0..MANY, "b")];
        let last = versions.len() - 1;
        let mut tree = Node::parse(versions[last].as_bytes()).unwrap();
        LOOKED.set(0);
        for at in (1..=last).rev() {
            let json = change(&versions[at - 1], &versions[at]);
            tree.revert_to(&serde_json::from_str::<Change<'_>>(&json).unwrap().patch, at);
        }
        tree.credit(0);
        assert!(tree.leaves().iter().all(|leaf| leaf.node.origin == Some(last)) && tree.leaves().len() == MANY);
        assert!(LOOKED.get() < 20 * MANY, "{} looks for {MANY} members", LOOKED.get());
    }

    /// An object that is empty again was set by who set it, also where members came and went since.
    #[test]
    fn an_object_that_is_empty_again_is_somebodys() {
        let versions = [r#"{"data":{}}"#, r#"{"data":{"x":"1"}}"#, r#"{"data":{"x":"1","y":"2"}}"#, r#"{"data":{}}"#];
        let last = versions.len() - 1;
        let mut tree = Node::parse(versions[last].as_bytes()).unwrap();
        for at in (1..=last).rev() {
            let json = change(versions[at - 1], versions[at]);
            tree.revert_to(&serde_json::from_str::<Change<'_>>(&json).unwrap().patch, at);
        }
        tree.credit(0);
        tree.settle();
        let leaves = tree.leaves();
        assert_eq!(leaves.len(), 1, "{leaves:?}");
        assert!(leaves[0].node.origin == Some(0) && tree.is_credited(), "{leaves:?}");
    }

    fn object() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(Into::into),
            (0..4_i64).prop_map(Into::into),
            "[a-c/~]{0,2}".prop_map(Into::into),
        ];
        let value = leaf.prop_recursive(4, 40, 5, |inner| {
            let named =
                ("[a-c]", inner.clone()).prop_map(|(name, value)| serde_json::json!({"name": name, "v": value}));
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Into::into),
                prop::collection::vec(named, 0..4).prop_map(Into::into),
                members(inner),
            ]
        });
        members(value)
    }

    fn members(value: impl Strategy<Value = serde_json::Value>) -> impl Strategy<Value = serde_json::Value> {
        prop::collection::vec(("[a-d/~]{1,2}", value), 0..5)
            .prop_map(|members| serde_json::Value::Object(members.into_iter().collect()))
    }

    fn change(old: &str, new: &str) -> String {
        crate::core::change::compare(old.as_bytes(), new.as_bytes(), &[], &[]).unwrap().json
    }

    proptest! {
        #[test]
        fn what_is_taken_back_is_what_was_before(old in object(), new in object()) {
            let (old, new) = (old.to_string(), new.to_string());
            let json = change(&old, &new);
            let change: Change<'_> = serde_json::from_str(&json).unwrap();
            let mut tree = Node::parse(new.as_bytes()).unwrap();
            tree.revert(&change.patch).unwrap();
            let (before, expected): (serde_json::Value, serde_json::Value) =
                (serde_json::from_str(&tree.before()).unwrap(), serde_json::from_str(&old).unwrap());
            prop_assert_eq!(before, expected);
            prop_assert_eq!(tree.differs(), !change.patch.is_empty());
        }

        /// Where an object holds more than what becomes nodes, what changed in it is still seen to have changed.
        #[test]
        fn no_change_is_hidden_by_what_is_kept_as_json(old in object(), new in object(), nodes in 0..30_usize) {
            let (old, new) = (old.to_string(), new.to_string());
            let json = change(&old, &new);
            let change: Change<'_> = serde_json::from_str(&json).unwrap();
            let mut tree = Node::parse_within(new.as_bytes(), nodes).unwrap();
            tree.revert_within(&change.patch, nodes).unwrap();
            prop_assert_eq!(tree.differs(), !change.patch.is_empty(), "{} to {}", old, new);
            // What the patch leads into is looked into, as long as there is budget for that.
            let mut tree = Node::parse_within(new.as_bytes(), nodes).unwrap();
            tree.revert(&change.patch).unwrap();
            let before: serde_json::Value = serde_json::from_str(&tree.before()).unwrap();
            prop_assert_eq!(before, serde_json::from_str::<serde_json::Value>(&old).unwrap());
            let mut tree = Node::parse_within(new.as_bytes(), nodes).unwrap();
            let credited = tree.revert_to(&change.patch, 1);
            tree.credit(0);
            prop_assert!(tree.is_credited() && (credited || change.patch.iter().all(|op| op.op != "add")));
        }

        #[test]
        fn everything_is_credited_to_the_last_that_set_it(versions in prop::collection::vec(object(), 1..6)) {
            let texts: Vec<String> = versions.iter().map(ToString::to_string).collect();
            let last = texts.len() - 1;
            let mut tree = Node::parse(texts[last].as_bytes()).unwrap();
            for at in (1..=last).rev() {
                let json = change(&texts[at - 1], &texts[at]);
                let change: Change<'_> = serde_json::from_str(&json).unwrap();
                tree.revert_to(&change.patch, at);
            }
            tree.credit(0);
            prop_assert!(tree.is_credited());
            // What nobody set after a version stood in that version already, member by member.
            fn check(node: &Node<'_>, path: &mut Vec<String>, texts: &[serde_json::Value]) {
                match &node.body {
                    Body::Object(members) if !members.is_empty() => for (key, node) in members {
                        if !matches!(node.mark, Mark::Gone) {
                            path.push(key.replace('~', "~0").replace('/', "~1"));
                            check(node, path, texts);
                            path.pop();
                        }
                    },
                    Body::Leaf(json) => {
                        let at = node.origin.unwrap();
                        let pointer: String = path.iter().map(|step| format!("/{step}")).collect();
                        let value: serde_json::Value = serde_json::from_str(json).unwrap();
                        for text in &texts[at..] {
                            assert_eq!(text.pointer(&pointer), Some(&value), "{pointer} since {at}");
                        }
                        if at > 0 {
                            assert_ne!(texts[at - 1].pointer(&pointer), Some(&value), "{pointer} by {at}");
                        }
                    }
                    Body::Object(_) | Body::Array(_) => {}
                }
            }
            check(&tree, &mut Vec::new(), &versions);
        }
    }

    #[test]
    fn a_change_is_named_by_the_names_of_elements() {
        let old = r#"{"spec":{"containers":[{"name":"a","image":"x:1"},{"name":"b","image":"y"}],"n":1.50}}"#;
        let new = r#"{"spec":{"containers":[{"name":"a","image":"x:2"},{"name":"c","image":"z"}],"n":1.5}}"#;
        let json = change(old, new);
        let change: Change<'_> = serde_json::from_str(&json).unwrap();
        let mut tree = Node::parse(new.as_bytes()).unwrap();
        tree.revert(&change.patch).unwrap();
        let shown: Vec<String> = tree
            .differences()
            .iter()
            .map(|found| {
                let path: Vec<&str> = found
                    .path
                    .iter()
                    .map(|step| match step {
                        Step::Key(key) => *key,
                        Step::Element(name, ..) => name,
                    })
                    .collect();
                let was = match &found.node.mark {
                    Mark::Was(was) => was.json(),
                    Mark::Added => "+".to_owned(),
                    Mark::Gone => "-".to_owned(),
                    Mark::Same | Mark::Redacted => String::new(),
                };
                format!("{} {was}", path.join("."))
            })
            .collect();
        assert_eq!(
            shown,
            ["spec.containers.a.image \"x:1\"", "spec.containers.b -", "spec.containers.c +", "spec.n 1.50"]
        );
    }

    #[test]
    fn what_replaces_something_unreadable_is_new() {
        let mut tree = Node::parse(br#"{"data":{"a":"1"}}"#).unwrap();
        let patch: Vec<Op<'_>> =
            serde_json::from_str(r#"[{"op":"replace","path":"","value":{"data":{"a":"1"}}}]"#).unwrap();
        tree.revert(&patch).unwrap();
        assert!(matches!(tree.mark, Mark::Added) && tree.differences().len() == 1);
    }

    #[test]
    fn a_redacted_value_is_known_to_differ_and_nothing_more() {
        let mut tree = Node::parse(br#"{"data":{"password":"***"}}"#).unwrap();
        let patch: Vec<Op<'_>> =
            serde_json::from_str(r#"[{"op":"replace","path":"/data/password","value":"***","was":"***"}]"#).unwrap();
        tree.revert(&patch).unwrap();
        assert!(matches!(tree.differences()[0].node.mark, Mark::Redacted));
    }

    #[test]
    fn what_is_left_out_is_left_out() {
        let mut tree =
            Node::parse(br#"{"metadata":{"uid":"u","labels":{"a":"1","b":"2"}},"status":{"n":1.0}}"#).unwrap();
        tree.without(&[&["metadata", "uid"], &["metadata", "labels", "a"], &["status"]]);
        assert_eq!(tree.json(), r#"{"metadata":{"labels":{"b":"2"}}}"#);
    }

    #[test]
    fn what_no_text_can_hold_is_replaced() {
        let odd = br#"{"k":{"\ud800":1},"s":["\udc00\ud800x","\ud83d\ude00","a\u0000b"]}"#;
        let tree = Node::parse(odd).unwrap();
        let leaves: Vec<_> =
            tree.leaves().iter().map(|leaf| (pointer(&leaf.path), leaf.node.text().unwrap().into_owned())).collect();
        let leaves: Vec<_> = leaves.iter().map(|(pointer, text)| (pointer.as_str(), text.as_str())).collect();
        assert_eq!(
            leaves,
            [("/k/\u{fffd}", "1"), ("/s/0", "\u{fffd}\u{fffd}x"), ("/s/1", "\u{1f600}"), ("/s/2", "a\0b")]
        );
    }

    #[test]
    fn nesting_without_end_is_no_danger() {
        let deep = format!("{}{}", "[".repeat(9000), "]".repeat(9000));
        assert_eq!(Node::parse(deep.as_bytes()).unwrap().json(), deep);
    }
}
