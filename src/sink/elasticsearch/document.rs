//! Document of an entry: the keys for searches, and the whole entry as one text.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::value::RawValue;

use crate::core::k8s::managed_fields::Manager;
use crate::core::wire::{Change, Entry, EntryGap};

/// The line before a document.
#[derive(Serialize)]
pub(super) struct Action<'e> {
    pub(super) create: Create<'e>,
}

#[derive(Serialize)]
pub(super) struct Create<'e> {
    #[serde(rename = "_index")]
    pub(super) index: String,
    #[serde(rename = "_id")]
    pub(super) id: Cow<'e, str>,
}

/// The keys for searches, and the entry.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Document<'e> {
    #[serde(rename = "@timestamp")]
    pub(super) timestamp: &'e str,
    pub(super) seq: u64,
    pub(super) epoch: &'e str,
    pub(super) id: &'e str,
    #[serde(rename = "type")]
    pub(super) type_name: &'e str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) evidence: Option<&'e str>,
    pub(super) cluster: Cluster<'e>,
    pub(super) api_version: &'e str,
    pub(super) kind: &'e str,
    pub(super) resource: &'e str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) namespace: Option<&'e str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<&'e str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) uid: Option<&'e str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) resource_version: Option<&'e str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) managers: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) change: Option<Summary<'e>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) gap: Option<EntryGap>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) redacted: Option<&'e RawValue>,
    pub(super) entry: &'e str,
}

#[derive(Serialize)]
pub(super) struct Cluster<'e> {
    pub(super) name: &'e str,
    pub(super) uid: &'e str,
}

/// A change without the values of its patch.
#[derive(Serialize)]
pub(super) struct Summary<'e> {
    areas: Vec<String>,
    paths: Vec<Cow<'e, str>>,
    managers: Vec<String>,
}

impl<'e> Document<'e> {
    pub(super) fn of(entry: &'e Entry<'e>, line: &'e str) -> Self {
        Self {
            timestamp: &entry.time,
            seq: entry.seq,
            epoch: &entry.epoch,
            id: &entry.id,
            type_name: entry.op.as_str(),
            evidence: entry.evidence.as_deref(),
            cluster: Cluster { name: &entry.cluster.name, uid: &entry.cluster.uid },
            api_version: &entry.api_version,
            kind: &entry.kind,
            resource: &entry.resource,
            namespace: entry.namespace.as_deref(),
            name: entry.name.as_deref(),
            uid: entry.uid.as_deref(),
            resource_version: entry.resource_version.as_deref(),
            managers: creators(entry),
            change: Summary::of(entry),
            gap: entry.gap().or_else(|| entry.gap_before()),
            redacted: entry.redacted,
            entry: line,
        }
    }
}

/// The names of those who created the object, on ADDED.
fn creators(entry: &Entry<'_>) -> Option<Vec<String>> {
    let managers: Vec<Manager> = serde_json::from_str(entry.managers?.get()).ok()?;
    Some(managers.into_iter().map(|manager| manager.manager).collect())
}

impl<'e> Summary<'e> {
    /// None where the change is not as every decklog writes it, or has a path that is no text. It is in `entry` all the
    /// same.
    fn of(entry: &Entry<'e>) -> Option<Self> {
        let change = Change::of(entry).ok()??;
        Some(Self {
            areas: change.areas,
            paths: change.patch.into_iter().map(|operation| operation.path).collect(),
            managers: change.managers.into_iter().map(|manager| manager.manager).collect(),
        })
    }
}
