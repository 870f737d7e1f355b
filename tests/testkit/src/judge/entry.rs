//! Entries of the log and rows of the truth, as the judge reads them.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

/// What a write did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Added,
    Modified,
    Deleted,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        })
    }
}

/// Namespace (empty for cluster-scoped objects) and name.
pub type Key = (String, String);

/// One write, as etcd tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The revision of the write: the resourceVersion of what it made, or of the deletion.
    pub rev: u64,
    pub kind: Kind,
    /// The incarnation of the object.
    pub uid: String,
    /// `plural.group`, or the plural alone for core.
    pub resource: String,
    pub key: Key,
}

/// One line of the log, as far as the judge needs it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Entry {
    pub v: u64,
    pub seq: u64,
    pub epoch: String,
    pub id: String,
    pub time: String,
    pub cluster: BTreeMap<String, String>,
    #[serde(rename = "type")]
    pub kind: String,
    pub evidence: String,
    pub api_version: String,
    #[serde(rename = "kind")]
    pub object_kind: String,
    pub resource: String,
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub resource_version: String,
    pub change: Option<Change>,
    pub object: Option<Box<RawValue>>,
    pub gap: Option<Gap>,
    pub redacted: Vec<String>,
    /// What is wrong with the line itself.
    #[serde(skip)]
    pub malformed: Option<String>,
}

/// The `change` of a MODIFIED.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Change {
    pub areas: Vec<String>,
    pub patch: Vec<Value>,
    pub managers: Vec<Value>,
}

/// The gap of a GAP entry.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Gap {
    pub why: String,
    pub from: Option<String>,
    pub to: Option<String>,
    pub since: Option<String>,
    /// How many changes were recovered before it.
    pub recovered: Option<u64>,
}

/// The keys of an entry in the order of the contract.
const KEYS: [&str; 21] = [
    "v",
    "seq",
    "epoch",
    "id",
    "time",
    "happened",
    "happenedBetween",
    "type",
    "evidence",
    "cluster",
    "apiVersion",
    "kind",
    "resource",
    "namespace",
    "name",
    "uid",
    "resourceVersion",
    "managers",
    "change",
    "object",
    "gap",
];

/// The keys of a JSON object as they stand in the text.
struct KeysInOrder(Vec<String>);

impl<'de> Deserialize<'de> for KeysInOrder {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Keys;
        impl<'de> Visitor<'de> for Keys {
            type Value = KeysInOrder;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<KeysInOrder, A::Error> {
                let mut keys = Vec::new();
                while let Some((key, IgnoredAny)) = map.next_entry()? {
                    keys.push(key);
                }
                Ok(KeysInOrder(keys))
            }
        }
        deserializer.deserialize_map(Keys)
    }
}

impl Entry {
    /// Reads one line of the log.
    pub fn parse(line: &str) -> Self {
        let unreadable = |error| Self { malformed: Some(format!("no entry: {error}: {line:.200}")), ..Self::default() };
        let keys = match serde_json::from_str::<KeysInOrder>(line) {
            Ok(KeysInOrder(keys)) => keys,
            Err(error) => return unreadable(error),
        };
        let mut entry = match serde_json::from_str::<Self>(line) {
            Ok(entry) => entry,
            Err(error) => return unreadable(error),
        };
        let mut order = KEYS.iter().copied().chain(["redacted"]);
        if !keys.iter().all(|key| order.any(|next| next == key)) {
            entry.malformed = Some(format!("keys are unknown, twice or out of order: {keys:?}"));
        }
        entry
    }

    /// The object it carries.
    pub fn value(&self) -> Option<Value> {
        self.object.as_ref().and_then(|raw| serde_json::from_str(raw.get()).ok())
    }

    /// `plural.group`. Events are stored once and served under two groups; either is right.
    pub fn full_resource(&self) -> String {
        match self.api_version.split_once('/') {
            Some(("events.k8s.io", _)) | None => self.resource.clone(),
            Some((group, _)) => format!("{}.{group}", self.resource),
        }
    }

    pub fn rv(&self) -> u64 {
        self.resource_version.parse().unwrap_or(0)
    }

    pub fn key(&self) -> Key {
        (self.namespace.clone(), self.name.clone())
    }

    pub(super) fn type_of(&self) -> Option<Kind> {
        match self.kind.as_str() {
            "ADDED" => Some(Kind::Added),
            "MODIFIED" => Some(Kind::Modified),
            "DELETED" => Some(Kind::Deleted),
            _ => None,
        }
    }

    pub(super) fn is_gap(&self) -> bool {
        self.kind == "GAP"
    }

    /// Whether it is told as the API server saw it: on a watch, or in its own history.
    pub fn is_seen(&self) -> bool {
        self.evidence == "watched" || self.evidence == "recovered"
    }

    pub(super) fn is_rollback(&self) -> bool {
        self.gap.as_ref().is_some_and(|gap| gap.why == "rollback")
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seq, kind, evidence, namespace, name, resource_version, .. } = self;
        write!(f, "seq {seq:<6} {kind:<8} {evidence:<9} rv {resource_version:<8} {namespace}/{name}")?;
        if let Some(gap) = &self.gap {
            write!(f, " ({}, {:?} to {:?}, {:?} recovered)", gap.why, gap.from, gap.to, gap.recovered)?;
        }
        Ok(())
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rev {:<8} {:<8} {}/{}", self.rev, self.kind, self.key.0, self.key.1)
    }
}
