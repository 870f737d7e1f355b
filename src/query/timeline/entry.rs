//! One entry as a whole.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::Opened;
use super::outlines::{Index, Way};
use super::summary::{Summaries, Summary};
use super::text::{TEXT, brings_back, difference, shown, undoes};
use crate::core::model::{EntryType, Seq};
use crate::core::wire::{self, Entry};
use crate::journal::outline::{Mark, Part};
use crate::journal::{ObjectRow, Reader, StoredEntry};
use crate::query::provenance::words;
use crate::query::questions::show::unseen;
use crate::query::questions::why::behind::origin;
use crate::query::render::what::AnnotatedEntry;
use crate::query::render::{Failure, object};
use crate::query::{Log, Put, Question};

/// Number of neighbours before and after an entry.
const NEIGHBOURS: usize = 5;
/// Number of entries that are searched for neighbours.
const NEAR: u64 = 4096;

/// Asks for all that there is of one entry.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OneEntry {
    pub(crate) seq: Seq,
    /// Also what changed near it.
    pub(crate) neighbours: bool,
}

/// One entry.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Whole {
    summary: Summary,
    /// The entry without its object; nothing where that is too long.
    entry: Option<Box<RawValue>>,
    entry_cut: bool,
    diff: String,
    diff_cut: bool,
    /// The reason why nobody is named, as a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unnamed: Option<String>,
    /// It changed something that matters.
    real: bool,
    pub(super) previous: Option<u64>,
    pub(super) next: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    neighbours: Option<Vec<Summary>>,
    yaml: String,
    yaml_cut: bool,
    /// What is behind it, as `why` has it, a line each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    origin: Vec<String>,
    /// Command that brings this version back; of a deletion the one before.
    command: Option<String>,
    /// Command that undoes the change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    undo: Option<String>,
}

/// Returns the entry with this seq.
///
/// # Errors
/// Exit 1 with why there is none.
pub(super) fn stored(reader: &mut Reader, seq: Seq) -> Result<StoredEntry, Failure> {
    if let Some(stored) = reader.entry(seq)? {
        return Ok(stored);
    }
    if reader.is_narrowed() {
        return Err(unseen(seq));
    }
    let (retained, head) = (reader.retained()?, reader.head()?);
    Err(Failure::no(if seq > head {
        format!("there is no entry {seq} yet: the newest is {head}")
    } else if seq.0 > 0 && seq.0 < retained.oldest {
        format!("entry {seq} is no longer kept: retention removed what was before entry {}", retained.oldest)
    } else {
        format!("there is no entry {seq}")
    }))
}

impl Question for OneEntry {
    const NAME: &'static str = "entry";
    type Item = Whole;

    /// # Errors
    /// Exit 1 where there is no such entry, with why.
    fn answer(self, log: &Log<'_>, put: &mut Put<'_, Whole>) -> Result<(), Failure> {
        put(entry(&mut Opened::of(log)?, self)?)
    }
}

/// Returns all that there is of one entry.
pub(super) fn entry(opened: &mut Opened, OneEntry { seq, neighbours: near }: OneEntry) -> Result<Whole, Failure> {
    let Opened { reader, index, clock, deadline, .. } = opened;
    let stored = stored(reader, seq)?;
    let row = reader.object_of(seq)?;
    let summaries = Summaries::new(clock, reader.head()?);
    let summary = summaries.joined(reader, &stored)?;
    let (head, _) = wire::apart(&stored.line);
    let raw = Some(&head).filter(|head| head.len() <= TEXT).and_then(|head| serde_json::from_slice(head).ok());
    let parsed = Entry::parse(&stored.line).map_err(|error| object::damaged(seq, &error))?;
    let (diff, diff_cut) = match parsed.op {
        EntryType::Gap | EntryType::Actor => (String::new(), false),
        EntryType::Added | EntryType::Modified | EntryType::Deleted => AnnotatedEntry::read(&parsed)
            .map_or_else(|_| (String::new(), false), |described| difference(described.tree)),
    };
    let (yaml, yaml_cut) = parsed.object.map_or_else(Default::default, |object| shown(object.get().as_bytes()));
    let (mut previous, mut next, mut command, mut undo) = (None, None, None, None);
    let (mut neighbours, mut behind) = (Vec::new(), None);
    if let Some(row) = &row {
        behind = origin(reader, clock, row, &stored)?;
        let step = reader.step(row, Seq(seq.0.saturating_sub(1)))?.filter(|step| step.kept);
        previous = step.map(|step| step.seq.0);
        let there = if parsed.op == EntryType::Deleted { previous.map(Seq) } else { Some(seq) };
        command = there.map(|seq| brings_back(row, seq));
        undo = undoes(row, (parsed.op, parsed.evidence.as_deref().unwrap_or_default()), previous.map(Seq));
        next = reader.following(row, seq)?.map(|step| step.seq.0);
        if near {
            let mut seqs = neighbourhood(index, reader, row, seq.0, Way::Back, *deadline)?;
            seqs.reverse();
            seqs.extend(neighbourhood(index, reader, row, seq.0, Way::On, *deadline)?);
            neighbours = summaries.with(reader, &seqs)?;
        }
    }
    let real = !summary.quiet;
    let unnamed = match wire::unnamed(&parsed) {
        Some(why) => {
            let actor = object::actor_of(reader, seq)?;
            Some(why.sentence(&object::beyond(reader, Some(seq), actor.as_ref())?))
        }
        None => None,
    };
    Ok(Whole {
        summary,
        entry_cut: raw.is_none(),
        entry: raw,
        diff,
        diff_cut,
        unnamed,
        real,
        origin: behind.map_or_else(Vec::new, |behind| words::lines(&behind, clock)),
        previous,
        next,
        neighbours: near.then_some(neighbours),
        yaml,
        yaml_cut,
        command,
        undo,
    })
}

/// The nearest entries of other objects in the namespace, or of the resource where it has none, which change something.
fn neighbourhood(
    index: &Index,
    reader: &mut Reader,
    row: &ObjectRow,
    seq: u64,
    way: Way,
    deadline: Instant,
) -> Result<Vec<u64>, Failure> {
    let bounds = match way {
        Way::Back => (seq.saturating_sub(NEAR), seq.saturating_sub(1)),
        Way::On => (seq, seq.saturating_add(NEAR)),
    };
    // First all of them, because the objects are looked up in the same journal.
    let mut near = Vec::new();
    let choose = |_: &Part, mark: &Mark| mark.object != row.row() && mark.object != 0 && !mark.quiet;
    let mut visit = |_: &Part, mark: &Mark| {
        near.push((mark.seq, mark.object));
        ControlFlow::Continue(())
    };
    let within = match row.namespace.is_empty() {
        true => (vec![row.resource_id], Vec::new()),
        false => (Vec::new(), vec![row.namespace.clone()]),
    };
    reader.within(within, |reader| index.walk(reader, bounds, way, deadline, (&choose, &mut visit)))?;
    let mut known: HashMap<i64, bool> = HashMap::new();
    let mut found = Vec::new();
    for (seq, object) in near {
        let is_near = match known.get(&object) {
            Some(is_near) => *is_near,
            None => {
                let other = reader.object_with(object)?;
                let is_near = other.is_some_and(|other| {
                    other.namespace == row.namespace
                        && (!row.namespace.is_empty() || other.resource_id == row.resource_id)
                });
                known.insert(object, is_near);
                is_near
            }
        };
        if is_near {
            found.push(seq);
            if found.len() == NEIGHBOURS {
                break;
            }
        }
    }
    Ok(found)
}
