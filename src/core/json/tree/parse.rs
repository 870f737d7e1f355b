//! The parser: one pass over a text, which copies what stands in a text that this one is like.

use super::{ESCAPED, Id, Kind, NEXT, Node, Tree, UNREAD};
use crate::core::json::word;

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

pub(super) struct Parser<'a, 'b> {
    pub(super) bytes: &'a [u8],
    pub(super) at: usize,
    pub(super) nodes: Vec<Node>,
    pub(super) like: Option<&'b Tree<'b>>,
    /// Containers at this depth are passed over.
    pub(super) depth: usize,
    /// Inside of such a one.
    pub(super) silent: bool,
}

impl Parser<'_, '_> {
    /// Each step returns nothing where the text is not JSON; `at` is then about where.
    pub(super) fn value(&mut self, twin: Option<Id>) -> Option<()> {
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
                    node.end = end;
                    node.set_next(next);
                    if self.silent {
                        node.first = UNREAD;
                        self.silent = false;
                    }
                }
            }
        }
    }

    /// A value that holds no other.
    pub(super) fn leaf(&mut self) -> Option<Kind> {
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
            first: first(twin + at, node),
            packed: node.packed.wrapping_add(shifted << NEXT),
        }));
        self.at = end;
        true
    }

    fn push(&mut self, start: usize, kind: Kind) {
        if !self.silent {
            let next = short(self.nodes.len() + 1);
            self.nodes.push(Node::new(short(start), short(self.at), next, kind));
        }
    }

    pub(super) fn skip_space(&mut self) {
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
            while let Some(word) = self.bytes.get(self.at..).and_then(<[u8]>::first_chunk) {
                let ordinary = word::ordinary(*word);
                self.at += ordinary;
                if ordinary < word.len() {
                    break;
                }
            }
            let byte = *self.bytes.get(self.at)?;
            match IN_STRING[byte as usize] {
                ORDINARY => self.at += 1,
                QUOTE => break,
                NOT_ASCII => {
                    ascii = false;
                    let others = self.bytes[self.at..].iter().position(u8::is_ascii);
                    self.at += others.unwrap_or(self.bytes.len() - self.at);
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
            self.nodes.last_mut()?.packed |= ESCAPED;
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

pub(super) fn short(position: usize) -> u32 {
    u32::try_from(position).expect("parse refuses texts longer than 256 MiB, and a node takes at least one byte")
}
