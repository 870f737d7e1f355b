//! Objects as the server keeps and shows them.
//!
//! An object is kept as the bytes of its newest form, with a note of where its metadata ends and
//! where its resourceVersion stands: every form on the wire (whole, as an item of a list, metadata
//! only, with another resourceVersion) is then a copy of pieces and no work of a serializer.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use serde::Deserialize;
use serde::de::{MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::faults::Refusal;
use crate::core::runtime;

/// An object that is to be written: its metadata understood, everything else as it came, so that
/// odd numbers and key orders stay what they are.
#[derive(Clone, Debug, Default)]
pub struct Object {
    pub(super) metadata: Map<String, Value>,
    members: Vec<(String, Box<RawValue>)>,
}

impl Object {
    /// Reads an object from JSON text. apiVersion and kind are not kept: the resource that it is
    /// written to decides them.
    ///
    /// # Errors
    /// Where the text is no JSON object.
    pub fn parse(text: &[u8]) -> Result<Self, Refusal> {
        let members = serde_json::from_slice::<Members>(text)
            .map_err(|error| Refusal::bad_request(format!("the object provided is unrecognized: {error}")))?
            .0;
        let mut object = Self::default();
        for (key, value) in members {
            match key.as_str() {
                "apiVersion" | "kind" => {}
                "metadata" => {
                    object.metadata = serde_json::from_str(value.get())
                        .map_err(|error| Refusal::bad_request(format!("metadata: {error}")))?;
                }
                // A line of a watch is one object: line ends inside of it have to go.
                _ if value.get().contains(['\n', '\r']) => object.members.push((key, compact(&value)?)),
                _ => object.members.push((key, value)),
            }
        }
        Ok(object)
    }

    pub(super) fn text(&self, key: &str) -> &str {
        self.metadata.get(key).and_then(Value::as_str).unwrap_or_default()
    }

    pub(super) fn has_finalizers(&self) -> bool {
        self.metadata.get("finalizers").and_then(Value::as_array).is_some_and(|f| !f.is_empty())
    }

    pub(super) fn spec(&self) -> Option<&str> {
        self.members.iter().find(|(key, _)| key == "spec").map(|(_, value)| value.get())
    }

    /// The bytes to keep.
    pub(super) fn render(&self, head: &str, revision: u64) -> Stored {
        let mut text = String::with_capacity(1024);
        text.push_str(head);
        let mut version = 0..0;
        text.push_str(r#""metadata":"#);
        let mut separator = '{';
        let known = METADATA.iter().copied().filter(|&key| key == VERSION || self.metadata.contains_key(key));
        let others = self.metadata.keys().map(String::as_str).filter(|key| !METADATA.contains(key));
        for key in known.chain(others) {
            text.push(separator);
            separator = ',';
            text.push_str(&Value::from(key).to_string());
            text.push(':');
            if key == VERSION {
                let start = text.len() + 1;
                text.push_str(&format!("\"{revision}\""));
                version = start..text.len() - 1;
            } else {
                text.push_str(&self.metadata.get(key).unwrap_or(&Value::Null).to_string());
            }
        }
        text.push('}');
        let metadata_end = text.len();
        for (key, value) in &self.members {
            text.push(',');
            text.push_str(&Value::from(key.as_str()).to_string());
            text.push(':');
            text.push_str(value.get());
        }
        text.push('}');
        Stored { bytes: text.into(), head: head.len(), version, metadata_end }
    }

    /// Whether the two differ in nothing but their resourceVersion.
    pub(super) fn says_the_same(&self, other: &Self) -> bool {
        let plain = |object: &Self| {
            let mut metadata = object.metadata.clone();
            metadata.remove(VERSION);
            metadata
        };
        plain(self) == plain(other)
            && self.members.len() == other.members.len()
            && self.members.iter().zip(&other.members).all(|((k1, v1), (k2, v2))| k1 == k2 && v1.get() == v2.get())
    }
}

fn compact(value: &RawValue) -> Result<Box<RawValue>, Refusal> {
    serde_json::from_str::<Value>(value.get())
        .and_then(|value| serde_json::value::to_raw_value(&value))
        .map_err(|error| Refusal::bad_request(error.to_string()))
}

const VERSION: &str = "resourceVersion";

/// The order in which the real server writes metadata.
const METADATA: [&str; 13] = [
    "name",
    "generateName",
    "namespace",
    "uid",
    VERSION,
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
    "managedFields",
];

impl From<Value> for Object {
    /// A value that is no JSON object makes an object without a name, which no write takes.
    fn from(value: Value) -> Self {
        Self::parse(value.to_string().as_bytes()).unwrap_or_default()
    }
}

/// The members of a JSON object in the order they came, values untouched. It is the simulated server's own reading, and not
/// that of `json`: what the product reads of it is judged by what it keeps, and a mistake of both would not be seen.
struct Members(Vec<(String, Box<RawValue>)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(InOrder)
    }
}

/// An object's bytes, and where in them things are.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    bytes: Bytes,
    head: usize,
    version: Range<usize>,
    metadata_end: usize,
}

/// How an object is to look.
#[derive(Clone, Copy, Debug)]
pub(super) enum Form<'a> {
    /// With this head: apiVersion and kind.
    Whole(&'a str),
    /// As items of built-in lists: neither apiVersion nor kind.
    Item,
    /// `PartialObjectMetadata`.
    Metadata,
}

const METADATA_HEAD: &str = r#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","#;

impl Stored {
    fn write(&self, out: &mut Vec<u8>, form: Form<'_>, revision: Option<u64>) {
        let (head, end) = match form {
            Form::Whole(head) => (head, self.bytes.len()),
            Form::Item => ("{", self.bytes.len()),
            Form::Metadata => (METADATA_HEAD, self.metadata_end),
        };
        out.extend_from_slice(head.as_bytes());
        match revision {
            None => out.extend_from_slice(&self.bytes[self.head..end]),
            Some(revision) => {
                out.extend_from_slice(&self.bytes[self.head..self.version.start]);
                out.extend_from_slice(revision.to_string().as_bytes());
                out.extend_from_slice(&self.bytes[self.version.end..end]);
            }
        }
        if matches!(form, Form::Metadata) {
            out.push(b'}');
        }
    }

    /// The same object at another revision.
    fn at(&self, revision: u64) -> Self {
        let version = revision.to_string();
        let mut bytes = Vec::with_capacity(self.bytes.len() + 4);
        bytes.extend_from_slice(&self.bytes[..self.version.start]);
        bytes.extend_from_slice(version.as_bytes());
        bytes.extend_from_slice(&self.bytes[self.version.end..]);
        let end = self.version.start + version.len();
        let metadata_end = self.metadata_end + end - self.version.end;
        Self { bytes: bytes.into(), head: self.head, version: self.version.start..end, metadata_end }
    }
}

/// What a revision did to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// It was created.
    Added,
    /// It has a new form.
    Modified,
    /// It is gone; the bytes are its last form, at the revision that deleted it.
    Deleted,
}

impl Kind {
    /// The word of the watch protocol.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

/// One line of the truth: what one revision did to one object.
#[derive(Clone, Debug)]
pub struct Row {
    /// The revision, which is the object's resourceVersion.
    pub revision: u64,
    /// What happened.
    pub kind: Kind,
    /// Where the object lives: `pods`, `deployments.apps`. Events of both groups are `events`.
    pub resource: Arc<str>,
    /// Empty for cluster-scoped objects.
    pub namespace: Arc<str>,
    /// metadata.name.
    pub name: Arc<str>,
    /// metadata.uid.
    pub uid: Arc<str>,
    /// Time of the commit.
    pub time: Timestamp,
    pub(super) content: Content,
}

/// The object of a row: kept, or made again each time it is asked for.
#[derive(Clone, Debug)]
pub(super) enum Content {
    Kept(Stored),
    /// One of very many alike objects.
    Bulk(Arc<Pattern>, u64),
}

impl Row {
    fn stored(&self) -> Stored {
        match &self.content {
            Content::Kept(stored) => stored.clone(),
            Content::Bulk(pattern, turn) => pattern.render(&self.name, &self.uid, self.revision, *turn),
        }
    }

    /// The whole object, compact JSON.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        self.stored().bytes
    }

    /// The object as a value.
    #[must_use]
    pub fn value(&self) -> Value {
        serde_json::from_slice(&self.bytes()).unwrap_or_default()
    }

    pub(super) fn object(&self) -> Object {
        Object::parse(&self.bytes()).unwrap_or_default()
    }

    pub(super) fn write(&self, out: &mut Vec<u8>, form: Form<'_>) {
        self.stored().write(out, form, None);
    }

    /// Writes the object as it was, under the revision of what happened to it later.
    pub(super) fn write_at(&self, out: &mut Vec<u8>, form: Form<'_>, revision: u64) {
        self.stored().write(out, form, Some(revision));
    }

    /// The row that says that this object is gone.
    pub(super) fn deleted_at(&self, revision: u64) -> Self {
        let content = match &self.content {
            Content::Kept(stored) => Content::Kept(stored.at(revision)),
            Content::Bulk(pattern, turn) => Content::Bulk(Arc::clone(pattern), *turn),
        };
        Self { revision, kind: Kind::Deleted, time: runtime::now(), content, ..self.clone() }
    }

    /// The key under which etcd sorts it.
    pub(super) fn key(&self) -> String {
        key(&self.namespace, &self.name)
    }
}

/// The key of an object in its storage.
pub(super) fn key(namespace: &str, name: &str) -> String {
    if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") }
}

/// A text with holes: many objects that differ in name, uid, revision and one counter.
#[derive(Debug)]
pub(super) struct Pattern {
    pieces: Vec<(String, Option<Hole>)>,
    head: usize,
}

#[derive(Clone, Copy, Debug)]
enum Hole {
    Name,
    Uid,
    Revision,
    Turn,
}

impl Pattern {
    /// Words that stand for the holes in the object that a pattern is made of.
    pub(super) const NAME: &'static str = "hole-name";
    pub(super) const UID: &'static str = "hole-uid";
    pub(super) const TURN: &'static str = "hole-turn";
    const REVISION: u64 = 7_777_777_777_777_777;

    pub(super) fn new(object: &Object, head: &str) -> Self {
        let stored = object.render(head, Self::REVISION);
        let revision = Self::REVISION.to_string();
        let holes: [(&str, Hole); 4] = [
            (Self::NAME, Hole::Name),
            (Self::UID, Hole::Uid),
            (Self::TURN, Hole::Turn),
            (revision.as_str(), Hole::Revision),
        ];
        let mut rest = std::str::from_utf8(&stored.bytes).unwrap_or_default();
        let mut pieces = Vec::new();
        while let Some((at, word, hole)) =
            holes.iter().filter_map(|(word, hole)| rest.find(word).map(|at| (at, word, *hole))).min_by_key(|hit| hit.0)
        {
            pieces.push((rest[..at].to_owned(), Some(hole)));
            rest = &rest[at + word.len()..];
        }
        pieces.push((rest.to_owned(), None));
        Self { pieces, head: stored.head }
    }

    fn render(&self, name: &str, uid: &str, revision: u64, turn: u64) -> Stored {
        let mut text = String::with_capacity(8 * 1024);
        let mut version = 0..0;
        for (piece, hole) in &self.pieces {
            text.push_str(piece);
            match hole {
                Some(Hole::Name) => text.push_str(name),
                Some(Hole::Uid) => text.push_str(uid),
                Some(Hole::Turn) => text.push_str(&turn.to_string()),
                Some(Hole::Revision) => {
                    let start = text.len();
                    text.push_str(&revision.to_string());
                    version = start..text.len();
                }
                None => {}
            }
        }
        // Metadata comes first and is closed right before the next member: a Pod's spec, a ConfigMap's data.
        let next = text.find(r#","spec":"#).or_else(|| text.find(r#","data":"#));
        let metadata_end = next.unwrap_or(text.len() - 1);
        Stored { bytes: text.into(), head: self.head, version, metadata_end }
    }
}
