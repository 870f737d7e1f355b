//! Views of a text and of where its values stand in it.

use std::borrow::Cow;
use std::ops::Range;

use super::{Id, Kind, Node, Shape, UNREAD};

#[cfg(test)]
thread_local! {
    /// Number of members that were looked at in this thread.
    pub(crate) static LOOKED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// A text and where its values stand, for looking only.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a, 's> {
    pub(super) text: &'a [u8],
    pub(super) nodes: &'s [Node],
}

impl<'a, 's> View<'a, 's> {
    /// A text whose shape was kept. It has to be the very same.
    pub(crate) fn of(text: &'a [u8], shape: &'s Shape) -> Option<Self> {
        let fits = shape.0.first().is_some_and(|root| root.end as usize <= text.len());
        fits.then_some(Self { text, nodes: &shape.0 })
    }

    pub(crate) fn kind(self, id: Id) -> Kind {
        self.nodes[id].kind()
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
        if self.nodes[id].is_escaped() { Cow::Owned(unescape(inner)) } else { Cow::Borrowed(inner) }
    }

    /// The node after everything that stands below this one in the list.
    pub(crate) fn next(self, id: Id) -> Id {
        self.nodes[id].next() as usize
    }

    /// The nodes below this one: the first, and the one after the last.
    pub(super) fn below(self, id: Id) -> (Id, Id) {
        let first = self.nodes[id].first;
        assert!(first != UNREAD, "a container is read before anything below it is asked for");
        (first as usize, self.next(first as usize - 1))
    }

    /// Reports whether a string holds a backslash.
    pub(crate) fn is_escaped(self, id: Id) -> bool {
        self.nodes[id].is_escaped()
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
        end > at || end == at && node.kind() == Kind::Scalar
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
