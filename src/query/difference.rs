//! Difference of objects between two moments.

use std::collections::BTreeSet;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::core::change;
use crate::core::model::{EntryType, Seq};
use crate::core::wire::{Change, Entry};
use crate::journal::{JournalError, ObjectRow, Reader, Step, StoredEntry};
use crate::query::render::object::Moment;
use crate::query::render::tree::{Mark, Node, Step as Way, pointer};
use crate::query::render::{Failure, object};

/// Kind of difference between the two moments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum DiffKind {
    /// It was not there, and is.
    Added,
    /// It was there, and is not.
    Removed,
    /// It is another version.
    Changed,
    /// It is another object of the same name.
    Replaced,
    /// It is there, and nothing is known of it at the first moment.
    FirstSeen,
}

impl DiffKind {
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Removed => "removed",
            Self::Changed => "changed",
            Self::Replaced => "replaced",
            Self::FirstSeen => "first seen",
        }
    }
}

/// Bounds of an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Number of objects that differ.
    pub(crate) objects: usize,
    /// Number of entries that are read for one object.
    pub(crate) entries: usize,
    /// Time at which the rest is left out.
    pub(crate) deadline: Option<Instant>,
}

impl Limits {
    /// No bound, as for a command.
    pub(crate) const NONE: Self = Self { objects: usize::MAX, entries: usize::MAX, deadline: None };

    fn is_over(&self) -> bool {
        self.deadline.is_some_and(|deadline| Instant::now() > deadline)
    }
}

/// Differences of objects between two moments.
#[derive(Default)]
pub(crate) struct Difference {
    /// By resource, namespace and name.
    pub(crate) objects: Vec<ObjectDifference>,
    /// Objects that existed at neither moment, and in between did.
    pub(crate) came_and_went: usize,
    /// Objects that a first list found between the moments, which are compared with what that found.
    pub(crate) first_seen: usize,
    /// Objects that changed at a time of which nobody knows whether it is before or after one of the moments.
    pub(crate) uncertain: usize,
    /// Objects that the limits left out.
    pub(crate) truncated: usize,
    /// Reasons why the difference of an object is not known: its entries are damaged.
    pub(crate) unknown: Vec<Failure>,
}

/// Compares each object, given by its row, as it was right after `from` with what it was right after `to`.
///
/// # Errors
/// Where the journal cannot be read.
pub(crate) fn between(
    reader: &mut Reader,
    rows: impl IntoIterator<Item = i64>,
    (from, to): (Moment, Moment),
    limits: Limits,
) -> Result<Difference, JournalError> {
    let mut answer = Difference::default();
    for row in rows {
        if answer.objects.len() >= limits.objects || limits.is_over() {
            answer.truncated += 1;
            continue;
        }
        let Some(row) = reader.object_with(row)? else { continue };
        let (from, to) = match (object::happened_by(reader, &row, from), object::happened_by(reader, &row, to)) {
            (Ok(from), Ok(to)) => {
                answer.uncertain += usize::from(from.possible > from.certain.seq || to.possible > to.certain.seq);
                (from.certain.seq, to.possible)
            }
            (Err(failure), _) | (_, Err(failure)) => {
                answer.unknown.push(failure);
                continue;
            }
        };
        let steps = reader.history(&row, from, to, limits.entries)?;
        let Some(newest) = steps.first() else { continue };
        if steps.len() == limits.entries {
            answer.truncated += 1;
            continue;
        }
        match of_object(reader, &row, from, &steps, limits.deadline) {
            Ok(found) => {
                answer.first_seen += usize::from(found.is_listed);
                match found.difference {
                    Some(found) => answer.objects.push(found),
                    None if newest.op == EntryType::Deleted && !found.is_listed => answer.came_and_went += 1,
                    None => {}
                }
            }
            // One that is damaged hides no other.
            Err(failure) => answer.unknown.push(failure),
        }
    }
    answer.objects.sort_by(|one, other| one.place().cmp(&other.place()));
    Ok(answer)
}

/// One object that differs.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ObjectDifference {
    pub(crate) became: DiffKind,
    pub(crate) api_version: String,
    pub(crate) kind: String,
    pub(crate) resource: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    /// The entries that record how it came about.
    pub(crate) entries: Vec<u64>,
    /// Evidence of the last of them.
    pub(crate) evidence: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) areas: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) patch: Option<Box<RawValue>>,
    /// JSON pointers of redacted values that are others now.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) redacted: BTreeSet<String>,
    /// Time of the last entry, microseconds since 1970.
    #[serde(skip)]
    pub(crate) time: i64,
    /// Row of the object; none where the difference came from elsewhere.
    #[serde(skip)]
    pub(crate) row: Option<ObjectRow>,
    /// Full name of the resource.
    #[serde(skip)]
    pub(crate) full_name: String,
    #[serde(skip)]
    pub(crate) before: Option<StoredEntry>,
    #[serde(skip)]
    pub(crate) after: Option<StoredEntry>,
}

impl ObjectDifference {
    fn place(&self) -> (&str, &str, &str) {
        (&self.full_name, &self.namespace, &self.name)
    }
}

/// Comparison of one object.
struct Compared {
    /// Its difference, if it differs.
    difference: Option<ObjectDifference>,
    /// True if it is compared with what a first list found.
    is_listed: bool,
}

/// Returns the difference of one object that has entries between the moments, newest first. After the deadline it does not look
/// any more for redacted values that differ.
fn of_object(
    reader: &mut Reader,
    row: &ObjectRow,
    from: Seq,
    steps: &[Step],
    deadline: Option<Instant>,
) -> Result<Compared, Failure> {
    let (newest, oldest) = (&steps[0], &steps[steps.len() - 1]);
    let there = |stored: &StoredEntry| stored.op != EntryType::Deleted;
    let before = reader.entry_at(row, from)?;
    let nothing = |is_listed| Ok(Compared { difference: None, is_listed });
    let Some(last) = reader.entry_of(newest)? else { return nothing(false) };
    let Some(first) = reader.entry_of(oldest)? else { return nothing(false) };
    let is_listed = before.is_none()
        && first.op == EntryType::Added
        && object::parse(&first)?.evidence.as_deref() == Some("listed");
    let (before, seen) = match before {
        Some(before) => (Some(before).filter(there), false),
        // What a first list found was there earlier, and is the first state that is known.
        None if is_listed && first.seq == last.seq => return nothing(true),
        None if is_listed => (Some(first), false),
        // What changed before it had an entry was there earlier as well.
        None => (None, first.op != EntryType::Added),
    };
    let entry = object::parse(&last)?;
    let became = match (&before, there(&last)) {
        (None, false) if !seen => return nothing(false),
        (_, false) => DiffKind::Removed,
        (Some(before), true) if object::parse(before)?.uid != entry.uid => DiffKind::Replaced,
        (Some(_), true) => DiffKind::Changed,
        (None, true) if seen => DiffKind::FirstSeen,
        (None, true) => DiffKind::Added,
    };
    let mut found = ObjectDifference {
        became,
        api_version: entry.api_version.to_string(),
        kind: entry.kind.to_string(),
        resource: entry.resource.to_string(),
        namespace: row.namespace.clone(),
        name: row.name.clone(),
        uid: entry.uid.as_deref().unwrap_or_default().to_owned(),
        entries: steps.iter().rev().map(|step| step.seq.0).collect(),
        evidence: String::new(),
        areas: None,
        patch: None,
        redacted: BTreeSet::new(),
        time: newest.time,
        row: Some(row.clone()),
        full_name: row.resource.full_name(),
        before: None,
        after: None,
    };
    // How it is known that it came, or went; or how its newest version is.
    let proof = match became {
        DiffKind::Added | DiffKind::FirstSeen => steps.iter().find(|step| step.op == EntryType::Added),
        DiffKind::Removed | DiffKind::Changed | DiffKind::Replaced => None,
    };
    let proof = proof.map_or(Ok(None), |step| reader.entry_of(step))?;
    let evidence = match &proof {
        Some(stored) => object::parse(stored)?.header.evidence,
        None => entry.evidence.clone(),
    };
    found.evidence = evidence.unwrap_or_default().into_owned();
    if let (Some(before), DiffKind::Changed | DiffKind::Replaced) = (&before, became) {
        let old = object::parse(before)?;
        let (Some(from), Some(to)) = (old.object, entry.object) else { return nothing(is_listed) };
        let damaged = |why: &dyn std::fmt::Display| object::damaged(last.seq, why);
        let change = change::compare(from.get().as_bytes(), to.get().as_bytes(), &[], &[]).map_err(|e| damaged(&e))?;
        let mut areas: BTreeSet<String> = change.areas.into_iter().collect();
        if became == DiffKind::Changed && (old.redacted.is_some() || entry.redacted.is_some()) {
            for step in steps.iter().take_while(|_| deadline.is_none_or(|deadline| Instant::now() < deadline)) {
                let Some(stored) = reader.entry_of(step)? else { continue };
                hidden(&object::parse(&stored)?, &mut areas, &mut found.redacted);
            }
        }
        if areas.is_empty() {
            return nothing(is_listed);
        }
        found.areas = Some(areas.into_iter().collect());
        let change: Whole<'_> = serde_json::from_str(&change.json).map_err(|error| damaged(&error))?;
        found.patch = Some(change.patch.to_owned());
    }
    found.before = before;
    found.after = Some(last).filter(there);
    Ok(Compared { difference: Some(found), is_listed })
}

#[derive(serde::Deserialize)]
struct Whole<'a> {
    #[serde(borrow)]
    patch: &'a RawValue,
}

/// Adds the redacted values that one change touched, which their texts do not show.
fn hidden(entry: &Entry<'_>, areas: &mut BTreeSet<String>, pointers: &mut BTreeSet<String>) {
    let (Ok(Some(change)), Some(object)) = (Change::of(entry), entry.object) else { return };
    let Ok(mut tree) = Node::parse(object.get().as_bytes()) else { return };
    if tree.revert(&change.patch).is_err() {
        return;
    }
    for found in tree.differences() {
        if matches!(found.node.mark, Mark::Redacted) {
            pointers.insert(pointer(&found.path));
            if let Some(Way::Key(area)) = found.path.first() {
                areas.insert((*area).to_owned());
            }
        }
    }
    for area in change.dropped() {
        areas.insert(area.clone());
        pointers.insert(format!("/{area}"));
    }
}
