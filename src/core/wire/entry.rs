//! Reading entries: all of one, or its header.

use std::borrow::Cow;
use std::ops::Deref;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{Change, VERSION, scan};
use crate::core::k8s::audited::Actor;
use crate::core::k8s::managed_fields::Manager;
use crate::core::model::{EntryType, ResourceVersion, Seq};

/// Header of an entry: the members before the change, the object and the gap. It is parsed once and passed along with the
/// entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header<'a> {
    /// Place in the journal.
    pub seq: u64,
    /// The journal's name.
    pub epoch: Cow<'a, str>,
    /// Stable id.
    pub id: Cow<'a, str>,
    /// Time at which it was journaled.
    pub time: Cow<'a, str>,
    /// Time of the change in the cluster, to the second, if the object has it.
    pub happened: Option<Cow<'a, str>>,
    /// The earliest and the latest time of the change in the cluster, where it is known no better.
    pub happened_between: Option<[Cow<'a, str>; 2]>,
    /// Type of the change.
    pub op: EntryType,
    /// watched, recovered, listed or inferred; none on a gap.
    pub evidence: Option<Cow<'a, str>>,
    /// Cluster of the entry.
    pub cluster: EntryCluster<'a>,
    /// apiVersion of the resource.
    pub api_version: Cow<'a, str>,
    /// Kind of the resource.
    pub kind: Cow<'a, str>,
    /// Plural of the resource.
    pub resource: Cow<'a, str>,
    /// Namespace, where there is one.
    pub namespace: Option<Cow<'a, str>>,
    /// Name, on a change, and on the GAP of one object.
    pub name: Option<Cow<'a, str>>,
    /// uid, on a change.
    pub uid: Option<Cow<'a, str>>,
    /// resourceVersion, on a change.
    pub resource_version: Option<Cow<'a, str>>,
}

/// An entry, read without copying what it carries.
#[derive(Debug)]
pub struct Entry<'a> {
    /// The header.
    pub header: Header<'a>,
    /// Managers that created the object, on ADDED.
    pub managers: Option<&'a RawValue>,
    /// The difference, on MODIFIED.
    pub change: Option<&'a RawValue>,
    /// The object.
    pub object: Option<&'a RawValue>,
    /// The gap, on a GAP; on DELETED what may be missing right before it.
    pub gap: Option<&'a RawValue>,
    /// The entry that an ACTOR belongs to.
    pub of: Option<EntryOf<'a>>,
    /// The sender of a change, on an ACTOR.
    pub actor: Option<&'a RawValue>,
    /// JSON pointers of what was redacted.
    pub redacted: Option<&'a RawValue>,
}

impl<'a> Deref for Entry<'a> {
    type Target = Header<'a>;

    fn deref(&self) -> &Header<'a> {
        &self.header
    }
}

/// The members of an entry.
#[derive(Deserialize)]
struct Line<'a> {
    v: u64,
    seq: u64,
    #[serde(borrow)]
    epoch: Cow<'a, str>,
    #[serde(borrow)]
    id: Cow<'a, str>,
    #[serde(borrow)]
    time: Cow<'a, str>,
    #[serde(borrow, default)]
    happened: Option<Cow<'a, str>>,
    #[serde(default, rename = "happenedBetween")]
    happened_between: Option<[Cow<'a, str>; 2]>,
    #[serde(rename = "type", borrow)]
    op: Cow<'a, str>,
    #[serde(borrow, default)]
    evidence: Option<Cow<'a, str>>,
    #[serde(borrow)]
    cluster: EntryCluster<'a>,
    #[serde(rename = "apiVersion", borrow)]
    api_version: Cow<'a, str>,
    #[serde(borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    resource: Cow<'a, str>,
    #[serde(borrow, default)]
    namespace: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    name: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    uid: Option<Cow<'a, str>>,
    #[serde(rename = "resourceVersion", borrow, default)]
    resource_version: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    managers: Option<&'a RawValue>,
    #[serde(borrow, default)]
    change: Option<&'a RawValue>,
    #[serde(borrow, default)]
    object: Option<&'a RawValue>,
    #[serde(borrow, default)]
    gap: Option<&'a RawValue>,
    #[serde(borrow, default)]
    of: Option<EntryOf<'a>>,
    #[serde(borrow, default)]
    actor: Option<&'a RawValue>,
    #[serde(borrow, default)]
    redacted: Option<&'a RawValue>,
}

/// The `of` member of an ACTOR: the entry that it belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct EntryOf<'a> {
    /// Place of that entry in the journal.
    pub seq: u64,
    /// Id of that entry.
    #[serde(borrow)]
    pub id: Cow<'a, str>,
}

/// The `cluster` member of an entry.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct EntryCluster<'a> {
    /// Name for people.
    #[serde(borrow)]
    pub name: Cow<'a, str>,
    /// uid of the kube-system namespace.
    #[serde(borrow)]
    pub uid: Cow<'a, str>,
}

/// The `gap` member of an entry.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct EntryGap {
    /// Reason why changes may be missing.
    pub why: String,
    /// Last version known good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Version of the list that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Time of the last moment known good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// Changes that were recovered before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovered: Option<u64>,
}

/// Error of a line that should be an entry. Never quotes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    /// Not the JSON of an entry.
    #[error("not an entry of decklog (JSON error at column {0})")]
    Json(usize),
    /// Written by a decklog that this one does not know.
    #[error("an entry of wire version {0}, this decklog reads version 1")]
    Version(u64),
    /// A type that version 1 does not have.
    #[error("an entry of an unknown type")]
    Type,
    /// A part of it is missing, or is not what every decklog writes there.
    #[error("an entry whose {0} cannot be read")]
    Part(&'static str),
}

impl<'a> Entry<'a> {
    /// Reads one line, without its newline.
    ///
    /// # Errors
    /// Where the line is not an entry of wire version 1.
    pub fn parse(line: &'a [u8]) -> Result<Self, EntryError> {
        #[cfg(test)]
        super::tests::PARSED.set(super::tests::PARSED.get() + 1);
        let line: Line<'a> = serde_json::from_slice(line).map_err(|e| EntryError::Json(e.column()))?;
        if line.v != VERSION {
            return Err(EntryError::Version(line.v));
        }
        let header = Header {
            seq: line.seq,
            epoch: line.epoch,
            id: line.id,
            time: line.time,
            happened: line.happened,
            happened_between: line.happened_between,
            op: EntryType::parse(&line.op).ok_or(EntryError::Type)?,
            evidence: line.evidence,
            cluster: line.cluster,
            api_version: line.api_version,
            kind: line.kind,
            resource: line.resource,
            namespace: line.namespace,
            name: line.name,
            uid: line.uid,
            resource_version: line.resource_version,
        };
        let Line { managers, change, object, gap, of, actor, redacted, .. } = line;
        Ok(Self { header, managers, change, object, gap, of, actor, redacted })
    }

    /// Reads its parts, as everything that reads the log does: an entry that passes is damaged to nobody.
    ///
    /// # Errors
    /// Which part cannot be read.
    pub fn check(&self) -> Result<(), EntryError> {
        let is_object = |raw: &RawValue| raw.get().starts_with('{');
        match self.op {
            EntryType::Gap if self.gap().is_none() => return Err(EntryError::Part("gap")),
            EntryType::Actor if self.of.is_none() => return Err(EntryError::Part("of")),
            EntryType::Actor if self.actor().is_none() => return Err(EntryError::Part("actor")),
            EntryType::Gap | EntryType::Actor => {}
            EntryType::Added | EntryType::Modified | EntryType::Deleted if !self.object.is_some_and(is_object) => {
                return Err(EntryError::Part("object"));
            }
            EntryType::Modified if Change::of(self).is_err() => return Err(EntryError::Part("change")),
            EntryType::Added | EntryType::Modified | EntryType::Deleted => {}
        }
        if self.managers.is_some_and(|raw| serde_json::from_str::<Vec<Manager>>(raw.get()).is_err()) {
            return Err(EntryError::Part("managers"));
        }
        let read = |raw: &RawValue| serde_json::from_str::<Vec<Cow<'_, str>>>(raw.get()).is_ok();
        if self.redacted.is_none_or(read) { Ok(()) } else { Err(EntryError::Part("redacted")) }
    }

    /// The sender that it names, on an ACTOR.
    #[must_use]
    pub fn actor(&self) -> Option<Actor> {
        serde_json::from_str(self.actor?.get()).ok()
    }

    /// The gap it records, on a GAP.
    #[must_use]
    pub fn gap(&self) -> Option<EntryGap> {
        self.any_gap().filter(|_| self.op == EntryType::Gap)
    }

    /// The gap right before a deletion, on a DELETED whose object the API server could not read any more.
    #[must_use]
    pub fn gap_before(&self) -> Option<EntryGap> {
        self.any_gap().filter(|_| self.op == EntryType::Deleted)
    }

    fn any_gap(&self) -> Option<EntryGap> {
        serde_json::from_str(self.gap?.get()).ok()
    }
}

impl Header<'static> {
    /// Reads the header of one line and not what follows it.
    ///
    /// # Errors
    /// Where the line does not begin as an entry of wire version 1 does.
    pub fn parse(line: &[u8]) -> Result<Self, EntryError> {
        Ok(Entry::parse(&scan::header(line))?.header.into_owned())
    }
}

impl Header<'_> {
    /// Its place in the journal.
    #[must_use]
    pub const fn seq(&self) -> Seq {
        Seq(self.seq)
    }

    /// Its resource version; empty on a gap.
    #[must_use]
    pub fn version(&self) -> ResourceVersion {
        ResourceVersion::new(self.resource_version.as_deref().unwrap_or_default())
    }

    /// The API group of its resource, empty for core.
    #[must_use]
    pub fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }

    /// `deployments.apps`, and the plural alone for core.
    #[must_use]
    pub fn full_resource(&self) -> String {
        let group = self.group();
        if group.is_empty() { self.resource.to_string() } else { format!("{}.{group}", self.resource) }
    }

    /// The same, for as long as anybody wants it.
    #[must_use]
    pub fn into_owned(self) -> Header<'static> {
        let owned = |text: Cow<'_, str>| Cow::Owned(text.into_owned());
        Header {
            seq: self.seq,
            epoch: owned(self.epoch),
            id: owned(self.id),
            time: owned(self.time),
            happened: self.happened.map(owned),
            happened_between: self.happened_between.map(|bounds| bounds.map(owned)),
            op: self.op,
            evidence: self.evidence.map(owned),
            cluster: EntryCluster { name: owned(self.cluster.name), uid: owned(self.cluster.uid) },
            api_version: owned(self.api_version),
            kind: owned(self.kind),
            resource: owned(self.resource),
            namespace: self.namespace.map(owned),
            name: self.name.map(owned),
            uid: self.uid.map(owned),
            resource_version: self.resource_version.map(owned),
        }
    }
}

/// The same entry under the name of another epoch: in `epoch`, and in the id of a GAP, which begins with it.
///
/// # Errors
/// Where the line does not begin as an entry does.
pub fn relabel(line: &[u8], epoch: &str) -> Result<Bytes, EntryError> {
    let old = Header::parse(line)?;
    // Within a text no quotation mark stands without a backslash before it.
    let end = memchr::memmem::find(line, b",\"type\":").unwrap_or_default();
    let head = String::from_utf8_lossy(&line[..end]);
    let own = |epoch: &str| format!("\"epoch\":\"{epoch}\"");
    let gap = |epoch: &str| format!("\"id\":\"{epoch}.{}\"", old.seq);
    let head = head.replacen(&own(&old.epoch), &own(epoch), 1).replacen(&gap(&old.epoch), &gap(epoch), 1);
    Ok([head.as_bytes(), &line[end..]].concat().into())
}
