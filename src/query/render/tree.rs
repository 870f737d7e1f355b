//! An object with what became of each of its values: the two sides of a change in one tree.
//!
//! The `patch` of an entry is taken back, operation by operation, from the object that the entry carries. What an
//! operation brought is marked in the tree, and what it took away is restored beside it. So a change is shown by its
//! entry alone, exactly as it was recorded: elements of lists by their names, redacted values by the fact of their
//! change.

mod budget;
mod revert;
#[cfg(test)]
mod tests;

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
