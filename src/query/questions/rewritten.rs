//! Storage rewrites among the entries of the journal.

#[cfg(test)]
mod tests;

use crate::core::model::{EntryType, Seq};
use crate::core::wire::{Change, Entry};
use crate::journal::{EntryQuery, JournalError, ObjectRow, Reader, StoredEntry};
use crate::query::churn::{Classes, writer};
use crate::query::moment::Span;
use crate::query::rewrites::{Known, MANY, PAUSE, Rewrites, Write};

/// Number of entries that are read before an entry, and behind it, to know whether it is part of a storage rewrite.
const NEAR: usize = 256;

/// A write of the journal that changed nothing but bookkeeping.
#[derive(Clone, Debug)]
pub(super) struct Bare {
    pub(super) seq: u64,
    pub(super) time: i64,
    pub(super) resource: String,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) by: Option<String>,
}

impl Bare {
    /// Reads an entry; none where it changed more, where it is no write, and where it is damaged.
    pub(super) fn read(classes: &Classes, stored: &StoredEntry) -> Option<Self> {
        if stored.op != EntryType::Modified {
            return None;
        }
        let entry = Entry::parse(&stored.line).ok()?;
        let change = Change::of(&entry).ok()??;
        let resource = entry.full_resource();
        let class = classes.of(&resource, &change, entry.time.parse().ok());
        let is_seen = !matches!(entry.evidence.as_deref(), Some("listed" | "inferred"));
        (class.is_bookkeeping() && is_seen).then(|| Self {
            seq: entry.seq,
            time: Span::of(&entry.header).latest.as_microsecond(),
            resource,
            namespace: entry.namespace.as_deref().unwrap_or_default().to_owned(),
            name: entry.name.as_deref().unwrap_or_default().to_owned(),
            by: writer(&change),
        })
    }

    pub(super) fn write(&self) -> Write<'_> {
        let Self { seq, time, resource, namespace, name, by } = self;
        Write { seq: *seq, time: *time, resource, namespace, name, by: by.as_deref() }
    }
}

/// Reports whether an entry of an object is part of a storage rewrite, by the entries of its resource near it.
///
/// # Errors
/// Where the journal cannot be read.
pub(super) fn is_part(
    reader: &mut Reader,
    classes: &Classes,
    row: &ObjectRow,
    stored: &StoredEntry,
) -> Result<bool, JournalError> {
    let Some(bare) = Bare::read(classes, stored) else { return Ok(false) };
    let query = EntryQuery { objects: vec![(row.resource_id, None)], ..EntryQuery::default() };
    let before = reader.select(&query, (Seq(0), Some(stored.seq)), true, NEAR, None)?;
    let behind = reader.select(&query, (stored.seq, None), false, NEAR, None)?;
    let mut near: Vec<Bare> = before
        .entries
        .iter()
        .rev()
        .chain([stored])
        .chain(&behind.entries)
        .filter_map(|entry| Bare::read(classes, entry))
        .filter(|other| (other.time - bare.time).abs() <= PAUSE)
        .collect();
    near.sort_by_key(|bare| (bare.time, bare.seq));
    if near.len() < 2 {
        return Ok(false);
    }
    let mut rewrites = Rewrites::among(reader.small_resources(MANY)?);
    for bare in &near {
        let _: Known = rewrites.take(&bare.write());
    }
    Ok(rewrites.finish().iter().any(|rewrite| rewrite.seqs.contains(&bare.seq)))
}
