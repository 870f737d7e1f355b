//! JSON as spans of its own text: one pass, one flat list, no value is ever rendered again.

mod parse;
#[cfg(test)]
mod tests;
mod view;

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use super::weight::{MANY, Weight};
use parse::{Parser, short};
#[cfg(test)]
pub(crate) use view::LOOKED;
pub(crate) use view::View;

/// Kind of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `{`: below it a key and a value in turn.
    Object = 0,
    /// `[`
    Array = 1,
    /// `"`, member names included.
    String = 2,
    /// A number, `true`, `false` or `null`.
    Scalar = 3,
}

/// A value in a list of them: 16 bytes, because the writer caches those of thousands of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Node {
    start: u32,
    end: u32,
    /// The first node below this one: the one after it, [`UNREAD`], or one at the end of the list, behind a second node
    /// for the same value.
    first: u32,
    /// The node after everything that stands below this one in the list, above [`NEXT`] bits: the kind, and [`ESCAPED`].
    packed: u32,
}

/// Bits below the number of the next node.
const NEXT: u32 = 3;
/// The bit of a string that holds a backslash.
const ESCAPED: u32 = 1 << 2;

impl Node {
    /// A node whose list goes on with `next`, which is also the first node below it.
    const fn new(start: u32, end: u32, next: u32, kind: Kind) -> Self {
        debug_assert!(next >> (u32::BITS - NEXT) == 0, "no text has so many nodes");
        Self { start, end, first: next, packed: next << NEXT | kind as u32 }
    }

    /// The node after everything that stands below this one in the list.
    const fn next(self) -> u32 {
        self.packed >> NEXT
    }

    const fn set_next(&mut self, next: u32) {
        debug_assert!(next >> (u32::BITS - NEXT) == 0, "no text has so many nodes");
        self.packed = next << NEXT | self.packed & ((1 << NEXT) - 1);
    }

    const fn kind(self) -> Kind {
        match self.packed & 3 {
            0 => Kind::Object,
            1 => Kind::Array,
            2 => Kind::String,
            _ => Kind::Scalar,
        }
    }

    /// Reports whether it is a string that holds a backslash.
    const fn is_escaped(self) -> bool {
        self.packed & ESCAPED != 0
    }
}

/// A container of which nothing but its end is known yet.
const UNREAD: u32 = u32::MAX;

/// Bytes of the longest text. No entry that can be read is longer. The nodes of such a text, each of them twice, have numbers
/// below two to the power of 29, because a value and what separates it take two bytes.
const LONGEST: usize = 256 << 20;

/// Containers at this depth are left unread where a text is compared with an earlier one: in an object of Kubernetes the
/// elements of the lists in `spec` and `status`, and each entry of managedFields. Most of them never change.
const SHALLOW: usize = 3;

/// The depth from which a text with very many values is left unread where it is compared: its members alone are read.
const OUTERMOST: usize = 1;

/// Number of lazily parsed nodes that are kept in any case.
const KEPT: usize = 64;

/// A node of a tree.
pub(crate) type Id = usize;

/// A value that holds no other, where it stands in a text.
#[derive(Debug)]
pub(crate) struct Leaf(Node);

impl Leaf {
    /// The string, number, `true`, `false` or `null` that begins here.
    pub(crate) fn read(text: &[u8], at: usize) -> Option<Self> {
        if text.len() > LONGEST {
            return None;
        }
        let mut parser = Parser { bytes: text, at, nodes: Vec::new(), like: None, depth: 0, silent: true };
        let kind = parser.leaf()?;
        let escaped = kind == Kind::String && memchr::memchr(b'\\', &text[at..parser.at]).is_some();
        let mut node = Node::new(short(at), short(parser.at), 0, kind);
        if escaped {
            node.packed |= ESCAPED;
        }
        Some(Self(node))
    }

    /// End of the value in the text.
    pub(crate) fn end(&self) -> usize {
        self.0.end as usize
    }
}

/// A JSON text and where its values stand in it. Nesting costs no stack, however deep it is.
#[derive(Debug)]
pub(crate) struct Tree<'a> {
    text: &'a [u8],
    nodes: Vec<Node>,
}

/// Positions of the values of a text, without the text and down to a small depth: the part of a tree that is worth caching.
/// Copies share it.
#[derive(Clone, Debug)]
pub struct Shape(Arc<Vec<Node>>);

impl Shape {
    /// Parses the shape of a text; none if it is no JSON.
    #[must_use]
    pub fn of(text: &[u8]) -> Option<Self> {
        Tree::parse_bounded(text).ok().map(Tree::into_shape)
    }

    /// About how many bytes it takes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.0.capacity() * size_of::<Node>()
    }

    /// The shape of a text that is the one of this shape but for some leaves, which are given in their order.
    pub(crate) fn with_leaves(&self, leaves: &[(Id, Leaf)]) -> Self {
        let old = |id: &Id| &self.0[*id];
        let facts = |node: &Node| (node.start, node.end, node.kind(), node.is_escaped());
        let alike = |a: &Node, b: &Node| facts(a) == facts(b);
        if leaves.iter().all(|(id, leaf)| alike(old(id), &leaf.0)) {
            return self.clone();
        }
        let mut nodes = Vec::clone(&self.0);
        let moved = |at: u32| {
            let before = leaves.iter().take_while(|(id, _)| old(id).end <= at);
            before.last().map_or(at, |(id, leaf)| at.wrapping_add(leaf.0.end).wrapping_sub(old(id).end))
        };
        for node in &mut nodes {
            (node.start, node.end) = (moved(node.start), moved(node.end));
        }
        for (id, leaf) in leaves {
            let node = &mut nodes[*id];
            let (first, next) = (node.first, node.next());
            *node = Node { first, ..leaf.0 };
            node.set_next(next);
        }
        Self(Arc::new(nodes))
    }

    /// Without what was read when it was needed, where that is much.
    pub(crate) fn trimmed(self) -> Self {
        let inline = self.0.first().map_or(0, |root| root.next() as usize);
        if self.0.len() <= 2 * inline + KEPT { self } else { Self(Arc::new(inline_only(Vec::clone(&self.0)))) }
    }
}

/// Without what was read when it was needed: that stands at the end of the list.
fn inline_only(mut nodes: Vec<Node>) -> Vec<Node> {
    let inline = nodes.first().map_or(0, |root| root.next());
    nodes.truncate(inline as usize);
    for node in &mut nodes {
        if node.first > inline {
            node.first = UNREAD;
        }
    }
    nodes.shrink_to_fit();
    nodes
}

impl<'a> Tree<'a> {
    /// The whole value.
    pub(crate) const ROOT: Id = 0;

    /// Reads a JSON text (RFC 8259, any depth, duplicate names allowed).
    ///
    /// # Errors
    /// Where it is none; the text quotes nothing of it.
    pub(crate) fn parse(text: &'a [u8]) -> Result<Self, String> {
        Self::parse_text(text, None, usize::MAX)
    }

    /// Reads a JSON text whose deeper containers are read when they are needed.
    ///
    /// # Errors
    /// As [`Tree::parse`].
    pub(crate) fn parse_shallow(text: &'a [u8]) -> Result<Self, String> {
        Self::parse_text(text, None, SHALLOW)
    }

    /// Parses as [`Tree::parse_shallow`] does if the text may hold so many values that only the outermost are parsed at once.
    /// Values below another one have to be parsed before they are accessed.
    ///
    /// # Errors
    /// As [`Tree::parse`].
    pub(crate) fn parse_bounded(text: &'a [u8]) -> Result<Self, String> {
        Self::parse_text(text, None, Self::depth_of(text))
    }

    /// Parses as [`Tree::parse_bounded`] does a text that is nearly that of `like`: common parts are compared and not parsed
    /// again.
    ///
    /// # Errors
    /// As [`Tree::parse`].
    pub(crate) fn parse_like(text: &'a [u8], like: &Tree<'_>) -> Result<Self, String> {
        Self::parse_text(text, Some(like), Self::depth_of(text))
    }

    fn depth_of(text: &[u8]) -> usize {
        if Weight::is_beyond(text, MANY) { OUTERMOST } else { SHALLOW }
    }

    fn parse_text(text: &'a [u8], like: Option<&Tree<'_>>, depth: usize) -> Result<Self, String> {
        if text.len() > LONGEST {
            return Err("longer than 256 MiB".to_owned());
        }
        // A list that grows by doubling would take up to three times what it needs.
        let likely = match like {
            Some(like) => like.nodes.len(),
            None if depth == usize::MAX && text.len() > MANY => Weight::of(text, usize::MAX).nodes,
            None if depth == OUTERMOST => 1024,
            None => text.len() / 16,
        };
        let nodes = Vec::with_capacity(likely + 16);
        let mut parser = Parser { bytes: text, at: 0, nodes, like, depth, silent: false };
        if parser.value(like.map(|_| Self::ROOT)).is_some() {
            parser.skip_space();
            if parser.at == text.len() {
                return Ok(Self { text, nodes: parser.nodes });
            }
        }
        Err(format!("not JSON at byte {}", parser.at))
    }

    /// The tree of a text whose shape was kept. The text has to be the very same.
    pub(crate) fn of_shape(text: &'a [u8], shape: &Shape) -> Option<Self> {
        let fits = shape.0.first().is_some_and(|root| root.end as usize <= text.len());
        fits.then(|| Self { text, nodes: Vec::clone(&shape.0) })
    }

    /// Returns the part of the tree that is worth caching.
    pub(crate) fn into_shape(self) -> Shape {
        Shape(Arc::new(inline_only(self.nodes)))
    }

    /// Returns the shape as [`Tree::into_shape`] does, with the lazily parsed nodes.
    pub(crate) fn into_full_shape(self) -> Shape {
        Shape(Arc::new(self.nodes))
    }

    /// Reads what is below a node, where that was put off: all of it, or its members or elements alone where that is more than
    /// [`MANY`] nodes.
    pub(crate) fn read(&mut self, id: Id) {
        self.read_like(id, None);
    }

    /// Reads what is below a node, where that was put off, by the likeness of a node of another tree.
    pub(crate) fn read_like(&mut self, id: Id, like: Option<(&Tree<'_>, Id)>) {
        let node = self.nodes[id];
        if node.first != UNREAD {
            return;
        }
        // The very same text would be taken over as it stands in the other list: unread.
        let like = like.filter(|&(tree, twin)| tree.bytes(twin) != self.bytes(id));
        let again = self.nodes.len();
        let is_heavy = Weight::is_beyond(self.bytes(id), MANY);
        let mut parser = Parser {
            bytes: &self.text[..node.end as usize],
            at: node.start as usize,
            nodes: std::mem::take(&mut self.nodes),
            like: like.map(|(tree, _)| tree),
            depth: if is_heavy { OUTERMOST } else { usize::MAX },
            silent: false,
        };
        let read = parser.value(like.map(|(_, twin)| twin));
        self.nodes = parser.nodes;
        assert!(read.is_some(), "a part that is passed over was read once, to find its end");
        self.nodes[id].first = self.nodes[again].first;
    }

    /// For looking only.
    pub(crate) fn view(&self) -> View<'a, '_> {
        View { text: self.text, nodes: &self.nodes }
    }

    pub(crate) fn kind(&self, id: Id) -> Kind {
        self.view().kind(id)
    }

    /// The text of a value as it came.
    pub(crate) fn raw(&self, id: Id) -> &'a str {
        self.view().raw(id)
    }

    /// The bytes of a value as they came.
    pub(crate) fn bytes(&self, id: Id) -> &'a [u8] {
        self.view().bytes(id)
    }

    /// Returns the range of a value in the text.
    pub(crate) fn span(&self, id: Id) -> Range<usize> {
        self.view().span(id)
    }

    /// Returns the contents of a string. A lone surrogate, which no text can hold, reads as U+FFFD, as in Go.
    pub(crate) fn string(&self, id: Id) -> Cow<'a, str> {
        self.view().string(id)
    }

    /// The node after everything that stands below this one in the list.
    pub(crate) fn next(&self, id: Id) -> Id {
        self.view().next(id)
    }

    /// The nodes below this one: the first, and the one after the last.
    fn below(&self, id: Id) -> (Id, Id) {
        self.view().below(id)
    }

    pub(crate) fn is_container(&self, id: Id) -> bool {
        self.view().is_container(id)
    }

    /// The elements of an array.
    pub(crate) fn elements(&self, id: Id) -> impl Iterator<Item = Id> {
        self.view().elements(id)
    }

    /// The members of an object as they stand, name and value.
    pub(crate) fn members(&self, id: Id) -> impl Iterator<Item = (Id, Id)> {
        self.view().members(id)
    }

    /// The value of a member; of duplicates the last, as Go reads them. Nothing where this is no object.
    pub(crate) fn member(&self, id: Id, name: &str) -> Option<Id> {
        self.view().member(id, name)
    }

    /// The value that a JSON pointer names.
    pub(crate) fn find(&mut self, pointer: &str) -> Option<Id> {
        let mut at = Self::ROOT;
        for segment in pointer.split('/').skip(1) {
            self.read(at);
            at = match self.kind(at) {
                Kind::Object => self.member(at, &super::pointer::unescape(segment)?)?,
                Kind::Array => self.elements(at).nth(segment.parse().ok()?)?,
                Kind::String | Kind::Scalar => return None,
            };
        }
        Some(at)
    }
}
