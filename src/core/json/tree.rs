//! JSON as spans of its own text: one pass, one flat list, no value is ever rendered again.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use super::weight::{MANY, Weight};

/// Kind of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `{`: below it a key and a value in turn.
    Object,
    /// `[`
    Array,
    /// `"`, member names included.
    String,
    /// A number, `true`, `false` or `null`.
    Scalar,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Node {
    start: u32,
    end: u32,
    /// The node after everything that stands below this one in the list.
    next: u32,
    /// The first node below this one: the one after it, [`UNREAD`], or one at the end of the list, behind a second node
    /// for the same value.
    first: u32,
    kind: Kind,
    /// A string that holds a backslash.
    escaped: bool,
}

/// A container of which nothing but its end is known yet.
const UNREAD: u32 = u32::MAX;

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
        u32::try_from(text.len()).ok()?;
        let mut parser = Parser { bytes: text, at, nodes: Vec::new(), like: None, depth: 0, silent: true };
        let kind = parser.leaf()?;
        let escaped = kind == Kind::String && memchr::memchr(b'\\', &text[at..parser.at]).is_some();
        Some(Self(Node { start: short(at), end: short(parser.at), next: 0, first: 0, kind, escaped }))
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
        let alike = |a: &Node, b: &Node| (a.start, a.end, a.kind, a.escaped) == (b.start, b.end, b.kind, b.escaped);
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
            *node = Node { next: node.next, first: node.first, ..leaf.0 };
        }
        Self(Arc::new(nodes))
    }

    /// Without what was read when it was needed, where that is much.
    pub(crate) fn trimmed(self) -> Self {
        let inline = self.0.first().map_or(0, |root| root.next as usize);
        if self.0.len() <= 2 * inline + KEPT { self } else { Self(Arc::new(inline_only(Vec::clone(&self.0)))) }
    }
}

/// Without what was read when it was needed: that stands at the end of the list.
fn inline_only(mut nodes: Vec<Node>) -> Vec<Node> {
    let inline = nodes.first().map_or(0, |root| root.next);
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
        if u32::try_from(text.len()).is_err() {
            return Err("longer than 4 GiB".to_owned());
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
        assert!(read.is_some(), "what was passed over was read once, to find its end");
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

#[cfg(test)]
thread_local! {
    /// Number of members that were looked at in this thread.
    pub(crate) static LOOKED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// A text and where its values stand, for looking only.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a, 's> {
    text: &'a [u8],
    nodes: &'s [Node],
}

impl<'a, 's> View<'a, 's> {
    /// A text whose shape was kept. It has to be the very same.
    pub(crate) fn of(text: &'a [u8], shape: &'s Shape) -> Option<Self> {
        let fits = shape.0.first().is_some_and(|root| root.end as usize <= text.len());
        fits.then_some(Self { text, nodes: &shape.0 })
    }

    pub(crate) fn kind(self, id: Id) -> Kind {
        self.nodes[id].kind
    }

    /// The text of a value as it came.
    pub(crate) fn raw(self, id: Id) -> &'a str {
        std::str::from_utf8(self.bytes(id)).expect("strings were checked when they were read, and the rest is ASCII")
    }

    /// The bytes of a value as they came.
    pub(crate) fn bytes(self, id: Id) -> &'a [u8] {
        let node = &self.nodes[id];
        &self.text[node.start as usize..node.end as usize]
    }

    /// Returns the range of a value in the text.
    pub(crate) fn span(self, id: Id) -> Range<usize> {
        let node = &self.nodes[id];
        node.start as usize..node.end as usize
    }

    /// Returns the contents of a string. A lone surrogate, which no text can hold, reads as U+FFFD, as in Go.
    pub(crate) fn string(self, id: Id) -> Cow<'a, str> {
        let raw = self.raw(id);
        let inner = &raw[1..raw.len() - 1];
        if self.nodes[id].escaped { Cow::Owned(unescape(inner)) } else { Cow::Borrowed(inner) }
    }

    /// The node after everything that stands below this one in the list.
    pub(crate) fn next(self, id: Id) -> Id {
        self.nodes[id].next as usize
    }

    /// The nodes below this one: the first, and the one after the last.
    fn below(self, id: Id) -> (Id, Id) {
        let first = self.nodes[id].first;
        assert!(first != UNREAD, "a container is read before anything below it is asked for");
        (first as usize, self.next(first as usize - 1))
    }

    /// Reports whether a string holds a backslash.
    pub(crate) fn is_escaped(self, id: Id) -> bool {
        self.nodes[id].escaped
    }

    pub(crate) fn is_container(self, id: Id) -> bool {
        matches!(self.kind(id), Kind::Object | Kind::Array)
    }

    /// The elements of an array.
    pub(crate) fn elements(self, id: Id) -> impl Iterator<Item = Id> + use<'a, 's> {
        let (mut at, end) = self.below(id);
        std::iter::from_fn(move || {
            let element = at;
            (element < end).then(|| {
                at = self.next(element);
                element
            })
        })
    }

    /// The members of an object as they stand, name and value.
    pub(crate) fn members(self, id: Id) -> impl Iterator<Item = (Id, Id)> + use<'a, 's> {
        let (mut at, end) = self.below(id);
        std::iter::from_fn(move || {
            let name = at;
            (name < end).then(|| {
                #[cfg(test)]
                LOOKED.with(|looked| looked.set(looked.get() + 1));
                at = self.next(name + 1);
                (name, name + 1)
            })
        })
    }

    /// The value of a member; of duplicates the last, as Go reads them. Nothing where this is no object.
    pub(crate) fn member(self, id: Id, name: &str) -> Option<Id> {
        if self.kind(id) != Kind::Object {
            return None;
        }
        let is_it = |key: Id| {
            let text = self.bytes(key);
            if self.is_escaped(key) { self.string(key) == name } else { text[1..text.len() - 1] == *name.as_bytes() }
        };
        self.members(id).filter(|&(key, _)| is_it(key)).last().map(|(_, value)| value)
    }

    /// Reports whether the nodes below a value are parsed.
    pub(crate) fn is_read(self, id: Id) -> bool {
        self.nodes[id].first != UNREAD
    }

    /// Reports whether a value extends to a position or behind it, in this text or in one that is the same up to there.
    pub(crate) fn reaches(self, id: Id, at: usize) -> bool {
        let node = &self.nodes[id];
        let end = node.end as usize;
        end > at || end == at && node.kind == Kind::Scalar
    }
}

/// Unescapes the inside of a JSON string.
fn unescape(inner: &str) -> String {
    let mut out = String::with_capacity(inner.len());
    let mut rest = inner;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        let code = rest.as_bytes()[at + 1];
        rest = &rest[at + 2..];
        out.push(match code {
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let high = hex4(rest);
                rest = &rest[4..];
                let low = rest.strip_prefix("\\u").map(hex4).filter(|low| (0xDC00..0xE000).contains(low));
                match low {
                    Some(low) if (0xD800..0xDC00).contains(&high) => {
                        rest = &rest[6..];
                        char::from_u32(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00))
                    }
                    _ => char::from_u32(high),
                }
                .unwrap_or(char::REPLACEMENT_CHARACTER)
            }
            other => char::from(other),
        });
    }
    out.push_str(rest);
    out
}

fn hex4(text: &str) -> u32 {
    u32::from_str_radix(&text[..4], 16).expect("the parser let only hexadecimal digits through")
}

/// Meaning of a byte inside a string.
const ORDINARY: u8 = 0;
const QUOTE: u8 = 1;
const BACKSLASH: u8 = 2;
const CONTROL: u8 = 3;
const NOT_ASCII: u8 = 4;

static IN_STRING: [u8; 256] = {
    let mut table = [ORDINARY; 256];
    let mut byte = 0;
    while byte < 0x20 {
        table[byte] = CONTROL;
        byte += 1;
    }
    byte = 0x80;
    while byte < 0x100 {
        table[byte] = NOT_ASCII;
        byte += 1;
    }
    table[b'"' as usize] = QUOTE;
    table[b'\\' as usize] = BACKSLASH;
    table
};

/// Below this depth nothing is compared with the text that this one is like: a difference far inside would be looked
/// for again on each level.
const LIKENESS: usize = 12;

/// The children of a value of the text that this one is like: the next one to come, and where they end.
type Guide = Option<(Id, Id)>;

/// A container that is being read.
struct Open {
    is_object: bool,
    /// None if the value is skipped.
    node: Option<Id>,
    guide: Guide,
}

struct Parser<'a, 'b> {
    bytes: &'a [u8],
    at: usize,
    nodes: Vec<Node>,
    like: Option<&'b Tree<'b>>,
    /// Containers at this depth are passed over.
    depth: usize,
    /// Inside of such a one.
    silent: bool,
}

impl Parser<'_, '_> {
    /// Each step returns nothing where the text is not JSON; `at` is then about where.
    fn value(&mut self, twin: Option<Id>) -> Option<()> {
        let mut open: Vec<Open> = Vec::new();
        let mut twin = twin;
        'value: loop {
            match self.peek()? {
                _ if twin.is_some_and(|twin| self.copy(twin)) => {}
                kind @ (b'{' | b'[') => {
                    let is_object = kind == b'{';
                    let node = (!self.silent).then_some(self.nodes.len());
                    self.push(self.at, if is_object { Kind::Object } else { Kind::Array });
                    self.silent |= open.len() >= self.depth;
                    let guide = if self.silent { None } else { self.guide(twin, is_object, open.len()) };
                    open.push(Open { is_object, node, guide });
                    self.at += 1;
                    let empty = self.peek()? == if is_object { b'}' } else { b']' };
                    if !empty {
                        if is_object {
                            self.name()?;
                        }
                        twin = self.twin(&mut open);
                        continue 'value;
                    }
                }
                _ => drop(self.leaf()?),
            }
            loop {
                let Some(&Open { is_object, node, .. }) = open.last() else { return Some(()) };
                match self.peek()? {
                    b',' => {
                        self.at += 1;
                        if is_object {
                            self.name()?;
                        }
                        twin = self.twin(&mut open);
                        continue 'value;
                    }
                    b'}' if is_object => {}
                    b']' if !is_object => {}
                    _ => return None,
                }
                self.at += 1;
                open.pop();
                if let Some(id) = node {
                    let (end, next) = (short(self.at), short(self.nodes.len()));
                    let node = &mut self.nodes[id];
                    (node.end, node.next) = (end, next);
                    if self.silent {
                        node.first = UNREAD;
                        self.silent = false;
                    }
                }
            }
        }
    }

    /// A value that holds no other.
    fn leaf(&mut self) -> Option<Kind> {
        match *self.bytes.get(self.at)? {
            b'"' => {
                self.string()?;
                return Some(Kind::String);
            }
            b't' => self.word(b"true")?,
            b'f' => self.word(b"false")?,
            b'n' => self.word(b"null")?,
            b'-' | b'0'..=b'9' => self.number()?,
            _ => return None,
        }
        Some(Kind::Scalar)
    }

    /// The children that a container's twin has, where it is one of the same kind.
    fn guide(&self, twin: Option<Id>, is_object: bool, depth: usize) -> Guide {
        let (like, twin) = (self.like?, twin?);
        let same = like.kind(twin) == if is_object { Kind::Object } else { Kind::Array };
        (same && depth < LIKENESS && like.nodes[twin].first != UNREAD).then(|| like.below(twin))
    }

    /// The value of the other text that stands where the next one of this text does: the element at the same place, or
    /// the member of the same name, where that is the next one or the one after it.
    fn twin(&self, open: &mut [Open]) -> Option<Id> {
        let like = self.like?;
        let container = open.last_mut()?;
        let (next, end) = container.guide.as_mut()?;
        if !container.is_object {
            let twin = (*next < *end).then_some(*next)?;
            *next = like.next(twin);
            return Some(twin);
        }
        let name = self.nodes.last()?;
        let name = self.bytes.get(name.start as usize..name.end as usize)?;
        let mut at = *next;
        for _ in 0..2 {
            if at >= *end {
                return None;
            }
            let after = like.next(at + 1);
            if like.bytes(at) == name {
                *next = after;
                return Some(at + 1);
            }
            at = after;
        }
        None
    }

    /// Takes over a value of the other text where the very same bytes stand here.
    fn copy(&mut self, twin: Id) -> bool {
        let Some(like) = self.like else { return false };
        let raw = like.bytes(twin);
        let end = self.at + raw.len();
        if self.bytes.get(self.at..end) != Some(raw) {
            return false;
        }
        // `1` stands in `12` too. Everything else has an end of its own.
        let ends = matches!(self.bytes.get(end), None | Some(b',' | b'}' | b']' | b' ' | b'\t' | b'\n' | b'\r'));
        if like.kind(twin) == Kind::Scalar && !ends {
            return false;
        }
        let moved = short(self.at).wrapping_sub(like.nodes[twin].start);
        let shifted = short(self.nodes.len()).wrapping_sub(short(twin));
        // What the other tree read later stands elsewhere in its list, and is read again here if need be.
        let first = |at: usize, node: &Node| {
            if node.first as usize == at + 1 { node.first.wrapping_add(shifted) } else { UNREAD }
        };
        self.nodes.extend(like.nodes[twin..like.next(twin)].iter().enumerate().map(|(at, node)| Node {
            start: node.start.wrapping_add(moved),
            end: node.end.wrapping_add(moved),
            next: node.next.wrapping_add(shifted),
            first: first(twin + at, node),
            ..*node
        }));
        self.at = end;
        true
    }

    fn push(&mut self, start: usize, kind: Kind) {
        if !self.silent {
            let next = short(self.nodes.len() + 1);
            self.nodes.push(Node { start: short(start), end: short(self.at), next, first: next, kind, escaped: false });
        }
    }

    fn skip_space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.bytes.get(self.at) {
            self.at += 1;
        }
    }

    fn peek(&mut self) -> Option<u8> {
        self.skip_space();
        self.bytes.get(self.at).copied()
    }

    /// A member name and the colon after it.
    fn name(&mut self) -> Option<()> {
        if self.peek()? != b'"' {
            return None;
        }
        self.string()?;
        if self.peek()? != b':' {
            return None;
        }
        self.at += 1;
        Some(())
    }

    fn string(&mut self) -> Option<()> {
        let start = self.at;
        self.at += 1;
        let (mut escaped, mut ascii) = (false, true);
        loop {
            let byte = *self.bytes.get(self.at)?;
            match IN_STRING[byte as usize] {
                ORDINARY => self.at += 1,
                QUOTE => break,
                NOT_ASCII => {
                    ascii = false;
                    self.at += 1;
                }
                BACKSLASH => {
                    escaped = true;
                    match self.bytes.get(self.at + 1)? {
                        b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => self.at += 2,
                        b'u' => {
                            let digits = self.bytes.get(self.at + 2..self.at + 6)?;
                            if !digits.iter().all(u8::is_ascii_hexdigit) {
                                return None;
                            }
                            self.at += 6;
                        }
                        _ => return None,
                    }
                }
                _ => return None,
            }
        }
        self.at += 1;
        if !ascii {
            std::str::from_utf8(&self.bytes[start..self.at]).ok()?;
        }
        self.push(start, Kind::String);
        if escaped && !self.silent {
            self.nodes.last_mut()?.escaped = true;
        }
        Some(())
    }

    fn word(&mut self, word: &[u8]) -> Option<()> {
        let start = self.at;
        if !self.bytes[start..].starts_with(word) {
            return None;
        }
        self.at += word.len();
        self.push(start, Kind::Scalar);
        Some(())
    }

    fn number(&mut self) -> Option<()> {
        let start = self.at;
        if self.bytes[self.at] == b'-' {
            self.at += 1;
        }
        if self.bytes.get(self.at) == Some(&b'0') {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.bytes.get(self.at) == Some(&b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.bytes.get(self.at) {
            self.at += 1;
            if let Some(b'+' | b'-') = self.bytes.get(self.at) {
                self.at += 1;
            }
            self.digits()?;
        }
        self.push(start, Kind::Scalar);
        Some(())
    }

    fn digits(&mut self) -> Option<()> {
        let start = self.at;
        while self.bytes.get(self.at).is_some_and(u8::is_ascii_digit) {
            self.at += 1;
        }
        (self.at > start).then_some(())
    }
}

fn short(position: usize) -> u32 {
    u32::try_from(position).expect("parse refuses texts longer than 4 GiB, and a node takes at least one byte")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::value::RawValue;

    use super::*;

    #[test]
    fn values_are_their_own_text() {
        let mut tree = Tree::parse(br#" {"a" : [1.0, 1e400 ,-0] ,"b\u0061":"x\n\ud83d\ude00\ud800"} "#).unwrap();
        let array = tree.member(Tree::ROOT, "a").unwrap();
        let numbers: Vec<&str> = tree.elements(array).map(|id| tree.raw(id)).collect();
        assert_eq!(numbers, ["1.0", "1e400", "-0"]);
        let text = tree.member(Tree::ROOT, "ba").unwrap();
        assert_eq!(tree.string(text), "x\n\u{1f600}\u{fffd}");
        assert_eq!(tree.find("/a/1").map(|id| tree.raw(id)), Some("1e400"));
        assert_eq!(tree.find("/a/3"), None);
    }

    #[test]
    fn depth_costs_no_stack() {
        let deep = format!("{}1{}", "[".repeat(200_000), "]".repeat(200_000));
        assert!(Tree::parse(deep.as_bytes()).is_ok());
        assert!(Tree::parse(&deep.as_bytes()[..deep.len() - 1]).is_err());
    }

    #[test]
    fn of_duplicate_names_the_last_counts() {
        let tree = Tree::parse(br#"{"a":1,"a":2}"#).unwrap();
        assert_eq!(tree.raw(tree.member(0, "a").unwrap()), "2");
    }

    /// Every value in order, read when it is needed.
    fn walk(tree: &mut Tree<'_>, id: Id, out: &mut Vec<String>) {
        out.push(tree.raw(id).to_owned());
        tree.read(id);
        let below: Vec<Id> = match tree.kind(id) {
            Kind::Object => tree.members(id).flat_map(|(name, value)| [name, value]).collect(),
            Kind::Array => tree.elements(id).collect(),
            Kind::String | Kind::Scalar => Vec::new(),
        };
        for id in below {
            walk(tree, id, out);
        }
    }

    #[test]
    fn what_is_put_off_is_read_when_it_is_needed() {
        let text = br#"{"a":{"b":[{"c":[1,{"d":"\u00e9"}],"e":{}},[],[[2],3]]},"f":"g"}"#;
        let (mut whole, mut shallow) = (Tree::parse(text).unwrap(), Tree::parse_shallow(text).unwrap());
        assert!(shallow.nodes.len() < whole.nodes.len());
        let (mut all, mut late, mut again) = (Vec::new(), Vec::new(), Vec::new());
        walk(&mut whole, Tree::ROOT, &mut all);
        walk(&mut shallow, Tree::ROOT, &mut late);
        assert_eq!(all, late);
        // What was read meanwhile is not kept.
        let shape = shallow.into_shape();
        assert_eq!(*shape.0, Tree::parse_shallow(text).unwrap().nodes);
        walk(&mut Tree::of_shape(text, &shape).unwrap(), Tree::ROOT, &mut again);
        assert_eq!(all, again);
        assert!(Tree::of_shape(&text[1..], &shape).is_none());
    }

    fn check(text: &[u8]) {
        let theirs = serde_json::from_slice::<&RawValue>(text);
        assert_eq!(Tree::parse(text).is_ok(), theirs.is_ok(), "{:?}", String::from_utf8_lossy(text));
    }

    proptest! {
        #[test]
        fn what_serde_reads_is_read(text in r#"([\[\]{},: ]|"a"|"\\"|"\\u12"|"\\u00e9"|0|-1|01|1\.5|2e9|3e|\.|null|true|falsy|x|é|\n){0,12}"#) {
            check(text.as_bytes());
        }

        #[test]
        fn a_likeness_changes_nothing_but_the_time(
            old in r#"\{("[a-c]":(1|12|"x"|\[(1,){0,2}2\]|\{"a":1,"b":\{"c":"y"\}\}),){0,5}"z":0\}"#,
            new in r#"\{("[a-c]":(1|12|"x"|\[(1,){0,2}2\]|\{"a":1,"b":\{"c":"y"\}\}),){0,5}"z":0\}"#,
            cut in 0usize..80, to in 0usize..80, between in r#"([\[\]{},: ]|"a"|1|2){0,3}"#,
        ) {
            let like = Tree::parse_shallow(old.as_bytes()).unwrap();
            let spliced = format!("{}{between}{}", &old[..cut.min(old.len())], &old[to.min(old.len())..]);
            for text in [&new, &spliced, &old] {
                let plain = Tree::parse_shallow(text.as_bytes()).map(|tree| tree.nodes);
                let likened = Tree::parse_like(text.as_bytes(), &like).map(|tree| tree.nodes);
                prop_assert_eq!(likened.is_ok(), plain.is_ok(), "{} like {}", text, old);
                if plain.is_ok() {
                    prop_assert_eq!(likened, plain, "{} like {}", text, old);
                }
            }
        }

        #[test]
        fn any_bytes_are_read_as_serde_reads_them(bytes in prop::collection::vec(any::<u8>(), 0..12)) {
            check(&bytes);
        }
    }
}
