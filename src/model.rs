//! The nouns that every module shares: positions, resources, observations.
//! No I/O and no JSON of entries here.

use std::cmp::Ordering;
use std::fmt;

use serde::{Deserialize, Serialize};

/// A position in the journal: dense, from 1, never reused. 0 means "before the first entry".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Seq(pub u64);

impl Seq {
    /// The position after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A position that Kubernetes gives: comparable only inside one resource of one cluster (KEP-5504).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ResourceVersion(pub String);

impl ResourceVersion {
    /// Wraps the text that the API server sent.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text as the API server wrote it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// A decimal integer without leading zeros that is not 0: what KEP-5504 lets one compare.
    #[must_use]
    pub fn is_ordered(&self) -> bool {
        !self.0.is_empty() && self.0.bytes().all(|b| b.is_ascii_digit()) && !self.0.starts_with('0')
    }

    /// Earlier or later than `other` of the same resource; `None` where one of the two is not a
    /// decimal integer (some aggregated APIs): such versions are only equal or different.
    #[must_use]
    pub fn compare(&self, other: &Self) -> Option<Ordering> {
        if self.0 == other.0 {
            return Some(Ordering::Equal);
        }
        (self.is_ordered() && other.is_ordered())
            .then(|| self.0.len().cmp(&other.0.len()).then_with(|| self.0.cmp(&other.0)))
    }
}

impl fmt::Display for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What an entry says happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EntryType {
    /// The object came into being, or into the scope of the source.
    Added,
    /// The object has a new version.
    Modified,
    /// The object is gone, or has left the scope of the source.
    Deleted,
    /// Changes may be missing before what follows.
    Gap,
}

impl EntryType {
    /// Every type, in the order of the wire format's documentation.
    pub const ALL: [Self; 4] = [Self::Added, Self::Modified, Self::Deleted, Self::Gap];

    /// The word of the wire format.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
            Self::Gap => "GAP",
        }
    }

    /// The type that this word names.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }
}

/// How a change is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Evidence {
    /// The API server said so on a watch.
    Watched,
    /// Read from the API server's own history after a position was lost.
    Recovered,
    /// Found on a first list.
    Listed,
    /// The difference of two states after a gap.
    Inferred,
}

impl Evidence {
    /// Every kind, in the order of the wire format's documentation.
    pub const ALL: [Self; 4] = [Self::Watched, Self::Recovered, Self::Listed, Self::Inferred];

    /// The word of the wire format.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Watched => "watched",
            Self::Recovered => "recovered",
            Self::Listed => "listed",
            Self::Inferred => "inferred",
        }
    }
}

/// Why changes may be missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Why {
    /// The API server no longer has the versions after ours (410).
    Expired,
    /// The API server's versions went back: restored from a backup.
    Rollback,
    /// The configured scope changed, or the resource vanished from the API.
    Scope,
    /// An event could not be decoded.
    Undecodable,
    /// A line was longer than decklog takes.
    Oversize,
    /// Reading was paused because the journal was full.
    Paused,
    /// An audit found a difference.
    Audit,
}

impl Why {
    /// Every reason, in the order of the wire format's documentation.
    pub const ALL: [Self; 7] =
        [Self::Expired, Self::Rollback, Self::Scope, Self::Undecodable, Self::Oversize, Self::Paused, Self::Audit];

    /// The word of the wire format.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Rollback => "rollback",
            Self::Scope => "scope",
            Self::Undecodable => "undecodable",
            Self::Oversize => "oversize",
            Self::Paused => "paused",
            Self::Audit => "audit",
        }
    }

    /// The reason that this word names.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|why| why.as_str() == word)
    }
}

/// A gap as an entry tells it: between `from` and `to` changes may be missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// What made it.
    pub why: Why,
    /// The last resource version known good, where there was one.
    pub from: Option<ResourceVersion>,
    /// The resource version of the list that ends the gap, where there is one.
    pub to: Option<ResourceVersion>,
    /// How many changes could be recovered before it, since the position was lost.
    pub recovered: u64,
}

/// A resource as discovery names it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Resource {
    /// API group, empty for core.
    pub group: String,
    /// Served version in use, such as `v1`.
    pub version: String,
    /// Kind, such as `Deployment`.
    pub kind: String,
    /// Plural, as in the URL.
    pub plural: String,
    /// Singular, for kubectl spellings; may be empty.
    pub singular: String,
    /// Short names, such as `deploy`.
    pub short_names: Vec<String>,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
}

impl Resource {
    /// `group/version`, or the version alone for core: what objects carry as `apiVersion`.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// `plural.group`, or the plural alone for core: kubectl's unambiguous spelling.
    #[must_use]
    pub fn full_name(&self) -> String {
        if self.group.is_empty() { self.plural.clone() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// The URL path of its collection, in one namespace or in all.
    #[must_use]
    pub fn path(&self, namespace: Option<&str>) -> String {
        let root = if self.group.is_empty() {
            format!("/api/{}", self.version)
        } else {
            format!("/apis/{}/{}", self.group, self.version)
        };
        match namespace {
            Some(namespace) => format!("{root}/namespaces/{namespace}/{}", self.plural),
            None => format!("{root}/{}", self.plural),
        }
    }
}

/// One watched resource and scope. Two sources of one daemon never cover the same object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SourceSpec {
    /// What is watched.
    pub resource: Resource,
    /// The one namespace, or all of them.
    pub namespace: Option<String>,
    /// Kubernetes label selector, empty for none.
    pub label_selector: String,
    /// Kubernetes field selector, empty for none.
    pub field_selector: String,
    /// Objects found on the first list are only remembered, not emitted.
    pub first_list_silent: bool,
    /// Presets of noise and patterns of JSON pointers: a MODIFIED that touches nothing else is not emitted.
    pub ignore: Vec<String>,
}

impl SourceSpec {
    /// How people and metrics name it: `deployments.apps`, or `deployments.apps/shop` for one namespace.
    #[must_use]
    pub fn name(&self) -> String {
        match &self.namespace {
            Some(namespace) => format!("{}/{namespace}", self.resource.full_name()),
            None => self.resource.full_name(),
        }
    }
}

/// What a watch line says happened, before the journal compares it with what it knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// ADDED or MODIFIED: the journal tells which from the state it holds.
    Upsert,
    /// DELETED.
    Delete,
}

/// An object as it was observed: identity, and its bytes after redaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// metadata.namespace, empty for cluster-scoped objects.
    pub namespace: String,
    /// metadata.name.
    pub name: String,
    /// metadata.uid.
    pub uid: String,
    /// metadata.resourceVersion.
    pub version: ResourceVersion,
    /// The bytes that came, except for what was redacted.
    pub body: Redacted,
}

/// Object bytes without secrets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Redacted {
    /// Compact JSON of the object.
    pub bytes: Vec<u8>,
    /// JSON pointers of what was redacted, in document order.
    pub pointers: Vec<String>,
    /// Keyed digests of the values that a mask or drop rule took away, by pointer: they alone can
    /// tell that such a value changed. Empty where the redacted text itself shows it (hmac).
    pub marks: Vec<(String, [u8; 16])>,
}

/// The cluster that a journal belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cluster {
    /// A name for people, from the configuration.
    pub name: String,
    /// uid of the kube-system namespace; empty where RBAC does not let us read it.
    pub uid: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resource_versions_compare_as_integers_of_any_length() {
        let rv = |text: &str| ResourceVersion::new(text);
        assert_eq!(rv("9").compare(&rv("10")), Some(Ordering::Less));
        assert_eq!(rv("340282366920938463463374607431768211456").compare(&rv("7")), Some(Ordering::Greater));
        assert_eq!(rv("7").compare(&rv("7")), Some(Ordering::Equal));
        for odd in ["", "0", "07", "abc", "-1", "1.5"] {
            assert_eq!(rv(odd).compare(&rv("7")), None, "{odd:?} has no order");
        }
    }
}
