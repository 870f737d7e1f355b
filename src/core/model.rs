//! The nouns that every module shares: positions, resources, observations.
//! No I/O and no JSON of entries here.

use std::cmp::Ordering;
use std::fmt::{self, Write as _};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::core::spelling::kubernetes::NamespacePattern;

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

    /// Reports whether it comes before another one, as far as they have an order.
    #[must_use]
    pub fn is_before(&self, other: &Self) -> bool {
        self.compare(other).is_some_and(Ordering::is_lt)
    }

    /// Reports whether it is another one or comes before it.
    #[must_use]
    pub fn is_not_after(&self, other: &Self) -> bool {
        self.compare(other).map_or(self == other, Ordering::is_le)
    }
}

impl fmt::Display for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Position of a source. Several events can share one version (expiry of a lease deletes many at once), so resuming from the
/// newest version could skip some: the position stays on the distinct one below it until a bookmark says that nothing more of
/// the newest comes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checkpoint {
    /// Version to resume from: nothing up to it is missing. `None` asks for a list.
    pub resume: Option<ResourceVersion>,
    /// The newest version of which something was applied.
    pub applied: Option<ResourceVersion>,
}

impl Checkpoint {
    /// Creates the checkpoint at a version up to which nothing is missing, and beyond which nothing is known.
    #[must_use]
    pub fn at(version: ResourceVersion) -> Self {
        Self { resume: Some(version.clone()), applied: Some(version) }
    }

    /// Reports whether it is past a version, as far as the two have an order: an event of that version comes late.
    #[must_use]
    pub fn is_past(&self, version: &ResourceVersion) -> bool {
        self.applied.as_ref().is_some_and(|applied| version.is_before(applied))
    }

    /// A change of this version was applied, and more of it may come.
    pub fn advance(&mut self, version: &ResourceVersion) {
        if self.applied.as_ref() == Some(version) {
            return;
        }
        // The text of the position before is written over: this is done for every change.
        let mut newest = self.resume.take_if(|_| self.applied.is_some()).unwrap_or_default();
        newest.0.clone_from(&version.0);
        if let Some(previous) = self.applied.replace(newest) {
            self.resume = Some(previous);
        }
    }

    /// Moves to this version, unless the position is beyond it: everything up to it has come.
    pub fn bookmark(&mut self, version: &ResourceVersion) {
        if !self.is_past(version) {
            *self = Self::at(version.clone());
        }
    }
}

/// Type of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum EntryType {
    /// The object came into being, or into the scope of the source.
    Added,
    /// The object has a new version.
    Modified,
    /// The object is gone, or has left the scope of the source.
    Deleted,
    /// Changes may be missing before what follows.
    Gap,
    /// The audit log names the sender of a change that has its entry already.
    Actor,
}

impl EntryType {
    /// Every type, in the order of the wire format's documentation.
    pub const ALL: [Self; 5] = [Self::Added, Self::Modified, Self::Deleted, Self::Gap, Self::Actor];

    /// The word of the wire format.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
            Self::Gap => "GAP",
            Self::Actor => "ACTOR",
        }
    }

    /// Reports whether it is a change of an object.
    #[must_use]
    pub const fn is_change(self) -> bool {
        matches!(self, Self::Added | Self::Modified | Self::Deleted)
    }

    /// The type that this word names.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }
}

/// Evidence of a change.
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

/// Reason why changes may be missing.
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
    /// The API server cannot read an object from etcd.
    Unreadable,
}

impl Why {
    /// Every reason, in the order of the wire format's documentation.
    pub const ALL: [Self; 8] = [
        Self::Expired,
        Self::Rollback,
        Self::Scope,
        Self::Undecodable,
        Self::Oversize,
        Self::Paused,
        Self::Audit,
        Self::Unreadable,
    ];

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
            Self::Unreadable => "unreadable",
        }
    }

    /// The reason that this word names.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|why| why.as_str() == word)
    }
}

/// A gap as an entry records it: between `from` and `to` changes may be missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Reason of the gap.
    pub why: Why,
    /// The last resource version known good, where there was one.
    pub from: Option<ResourceVersion>,
    /// The resource version of the list that ends the gap, where there is one.
    pub to: Option<ResourceVersion>,
    /// Number of changes that were recovered before it, since the position was lost.
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
    /// True if its objects live in namespaces.
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
    /// The watched resource.
    pub resource: Resource,
    /// The one namespace, or all of them.
    pub namespace: Option<String>,
    /// Kubernetes label selector, empty for none.
    pub label_selector: String,
    /// Kubernetes field selector, empty for none.
    pub field_selector: String,
    /// The namespaces that are left out. Where there are any, `namespace` names none, and the resource lives in namespaces.
    pub exclude_namespaces: Vec<NamespacePattern>,
    /// Objects found on the first list are only remembered, not emitted.
    pub first_list_silent: bool,
    /// Presets of noise and patterns of JSON pointers: a MODIFIED that touches nothing else is not emitted.
    pub ignore: Vec<String>,
}

impl SourceSpec {
    /// Returns the source of all objects of a resource: of every namespace, without selectors, each change recorded.
    #[must_use]
    pub const fn of(resource: Resource) -> Self {
        Self {
            resource,
            namespace: None,
            label_selector: String::new(),
            field_selector: String::new(),
            exclude_namespaces: Vec::new(),
            first_list_silent: false,
            ignore: Vec::new(),
        }
    }

    /// Returns the name for people and metrics: `deployments.apps`, or `deployments.apps/shop` for one namespace.
    #[must_use]
    pub fn name(&self) -> String {
        match &self.namespace {
            Some(namespace) => format!("{}/{namespace}", self.resource.full_name()),
            None => self.resource.full_name(),
        }
    }

    /// Reports whether it has selectors, so that objects can enter and leave it.
    #[must_use]
    pub fn selects(&self) -> bool {
        !self.label_selector.is_empty() || !self.field_selector.is_empty()
    }

    /// Reports whether this namespace is excluded.
    #[must_use]
    pub fn leaves_out(&self, namespace: &str) -> bool {
        self.exclude_namespaces.iter().any(|pattern| pattern.covers(namespace))
    }

    /// Reports whether an object of this namespace, empty for none, can belong to the source.
    #[must_use]
    pub fn takes(&self, namespace: &str) -> bool {
        self.namespace.as_deref().is_none_or(|own| own == namespace)
    }

    /// The field selector, and behind it a requirement for each of these namespaces that are left out. With all of them it
    /// is what the journal knows of the scope: another text is another scope.
    #[must_use]
    pub fn fields(&self, which: impl Fn(&NamespacePattern) -> bool) -> String {
        let mut fields = self.field_selector.trim().to_owned();
        for pattern in self.exclude_namespaces.iter().filter(|pattern| which(pattern)) {
            let comma = if fields.is_empty() { "" } else { "," };
            write!(fields, "{comma}metadata.namespace!={pattern}").expect("a String takes all text");
        }
        fields
    }
}

/// Operation of a watch event, before the journal compares it with the known state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// ADDED or MODIFIED: the journal decides which from the state it holds.
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

impl Observed {
    /// Returns an object as a watch brings it at this version: with that as its resourceVersion. Of what is redacted the object
    /// has the redacted text already; each of these JSON pointers gets the digest that stands for the value.
    #[must_use]
    pub fn at(version: u64, object: &Value, redacted: &[&str], digest: [u8; 16]) -> Self {
        let mut object = object.clone();
        object["metadata"]["resourceVersion"] = version.to_string().into();
        let text = |key: &str| object["metadata"][key].as_str().unwrap_or_default().to_owned();
        Self {
            namespace: text("namespace"),
            name: text("name"),
            uid: text("uid"),
            version: ResourceVersion::new(version.to_string()),
            body: Redacted {
                bytes: object.to_string().into_bytes(),
                pointers: redacted.iter().map(|pointer| (*pointer).to_owned()).collect(),
                marks: redacted.iter().map(|pointer| ((*pointer).to_owned(), digest)).collect(),
            },
        }
    }
}

/// An object that the API server has and the log cannot record: what names it, as far as that can be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unread {
    /// metadata.namespace; empty for none.
    pub namespace: String,
    /// metadata.name; empty where it cannot be read.
    pub name: String,
    /// metadata.uid; empty where it cannot be read.
    pub uid: String,
    /// metadata.resourceVersion; empty where it cannot be read.
    pub version: ResourceVersion,
    /// A keyed digest of its bytes, which distinguishes it from others; empty where name and version do.
    pub digest: String,
    /// `Oversize`, `Undecodable` or `Unreadable`.
    pub why: Why,
}

impl Unread {
    /// An object that the API server cannot read from etcd. The journal adds its last known uid and version.
    #[must_use]
    pub fn unreadable(namespace: String, name: String) -> Self {
        let (uid, digest) = (String::new(), String::new());
        Self { namespace, name, uid, version: ResourceVersion(String::new()), digest, why: Why::Unreadable }
    }
}

/// Object bytes without secrets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Redacted {
    /// Compact JSON of the object.
    pub bytes: Vec<u8>,
    /// JSON pointers of what was redacted, in document order.
    pub pointers: Vec<String>,
    /// Keyed digests of the values that a mask or drop rule took away, by pointer: they alone can
    /// show that such a value changed. Empty where the redacted text itself shows it (hmac).
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

    fn checkpoint(resume: &str, applied: &str) -> Checkpoint {
        let version = |text: &str| (!text.is_empty()).then(|| ResourceVersion::new(text));
        Checkpoint { resume: version(resume), applied: version(applied) }
    }

    #[test]
    fn a_checkpoint_stays_on_the_distinct_version_below_the_newest() {
        for (before, version, after) in [
            (("", ""), "7", ("", "7")),
            (("", "7"), "8", ("7", "8")),
            (("5", ""), "7", ("5", "7")),
            (("7", "7"), "7", ("7", "7")),
            (("7", "7"), "8", ("7", "8")),
            (("7", "8"), "8", ("7", "8")),
            (("7", "8"), "12", ("8", "12")),
            (("a", "b"), "c", ("b", "c")),
        ] {
            let mut moved = checkpoint(before.0, before.1);
            moved.advance(&ResourceVersion::new(version));
            assert_eq!(moved, checkpoint(after.0, after.1), "{before:?} {version}");
        }
    }

    #[test]
    fn a_bookmark_says_that_no_more_of_its_version_comes_and_never_moves_back() {
        for (before, version, after) in [
            (("", ""), "7", ("7", "7")),
            (("7", "8"), "8", ("8", "8")),
            (("7", "8"), "12", ("12", "12")),
            (("7", "8"), "6", ("7", "8")),
            (("a", "b"), "c", ("c", "c")),
        ] {
            let mut moved = checkpoint(before.0, before.1);
            moved.bookmark(&ResourceVersion::new(version));
            assert_eq!(moved, checkpoint(after.0, after.1), "{before:?} {version}");
        }
    }

    #[test]
    fn a_checkpoint_is_past_what_is_known_to_come_before_its_newest_version() {
        let past = |applied, version| checkpoint("5", applied).is_past(&ResourceVersion::new(version));
        assert!(past("10", "9") && past("10", "5"));
        assert!(!past("10", "10") && !past("10", "11") && !past("", "1") && !past("b", "a"));
    }
}
