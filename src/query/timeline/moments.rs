//! Objects as they were at a moment, and what became of them between two.

use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::lanes::id_of;
use super::selection::Window;
use super::{OBJECTS_MAX, Opened};
use crate::core::model::{EntryType, Seq};
use crate::core::wire::Entry;
use crate::journal::{JournalError, Reader};
use crate::query::coverage::{self, Uncovered};
use crate::query::difference::{self, DiffKind, Limits, ObjectDifference};
use crate::query::render::Failure;
use crate::query::render::clock::Clock;
use crate::query::render::names::At;
use crate::query::render::object::{self, Moment};
use crate::query::{Log, Put, Question, stamp};

/// Number of entries of one object that are read for its difference.
const STEPS: usize = 20_000;

/// Finds a place in the log, right after an entry or at a moment, which has to be one of which something is known.
///
/// # Errors
/// Where the log does not reach to it; about this key.
pub(super) fn place(reader: &mut Reader, at: At, key: &'static str, clock: &Clock) -> Result<Moment, Failure> {
    if at == At::Seq(Seq(0)) {
        return Err(Failure::usage(format!("{key}: entries are counted from 1")).about(key));
    }
    let place = object::place(reader, at, clock).and_then(|place| {
        place.time.map_or(Ok(()), |time| object::not_before_all(reader, time, clock))?;
        Ok(place)
    });
    place.map_err(|failure| failure.about(key))
}

/// Asks for the objects that there were at a moment.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StateAt {
    /// Objects and namespaces.
    #[serde(default)]
    pub(crate) window: Window,
    /// The moment; now if there is none.
    #[serde(default)]
    pub(crate) at: Option<At>,
    /// Number of objects.
    pub(crate) limit: usize,
}

/// Asks for the differences of objects between two moments.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ChangesBetween {
    /// Objects and namespaces.
    #[serde(default)]
    pub(crate) window: Window,
    /// The first moment.
    pub(crate) from: At,
    /// The second; now if there is none.
    #[serde(default)]
    pub(crate) to: Option<At>,
    /// Number of objects.
    pub(crate) limit: usize,
}

/// Objects at a moment.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct State {
    at: String,
    seq: u64,
    objects: Vec<There>,
    truncated: usize,
    /// Uncovered resources at that moment.
    unknown: Vec<Uncovered>,
}

#[derive(Debug, Serialize, Deserialize)]
struct There {
    id: String,
    kind: String,
    resource: String,
    namespace: String,
    name: String,
    uid: String,
    seq: u64,
    since: Option<String>,
    how: String,
}

impl Question for StateAt {
    const NAME: &'static str = "state";
    type Item = State;

    /// # Errors
    /// Exit 1 where the log does not reach to the moment, and 64 where the window selects more than objects.
    fn answer(self, log: &Log<'_>, put: &mut Put<'_, State>) -> Result<(), Failure> {
        put(state(&mut Opened::within(log, &self.window)?, &self)?)
    }
}

/// Returns the objects that there were at a moment.
pub(super) fn state(opened: &mut Opened, question: &StateAt) -> Result<State, Failure> {
    question.window.of_whole_objects(StateAt::NAME)?;
    let (present, limit) = (opened.present()?, question.limit.min(OBJECTS_MAX));
    let Opened { reader, index, clock, deadline, .. } = opened;
    let (selected, deadline) = (question.window.resolve(reader)?, *deadline);
    let place = question.at.map(|at| place(reader, at, "at", clock)).transpose()?;
    let head = reader.head()?;
    let seq = place.map_or(head, |place| place.seq);
    let time = time(reader, place, seq, clock)?;
    let unknown = coverage::at(reader, selected.scope(), time, present.at, deadline)?;
    let mut rows: Vec<i64> = match &selected.objects {
        Some(objects) => objects.iter().copied().collect(),
        None => {
            let mut all = Vec::new();
            for (id, _) in reader.resources()? {
                all.extend(reader.rows_of(id, None, None)?);
            }
            all
        }
    };
    rows.sort_unstable();
    let (mut objects, mut left) = (Vec::new(), 0);
    for object in rows {
        // How many there are at most is known without looking at each.
        if objects.len() >= limit || Instant::now() > deadline {
            left += 1;
            continue;
        }
        let Some(row) = reader.object_with(object)? else { continue };
        let seq = match place.filter(|_| row.last > seq) {
            // One that is damaged hides no other.
            Some(place) => object::happened_by(reader, &row, place).map_or(seq, |placed| placed.certain.seq),
            None => seq,
        };
        let found = if row.last <= seq { row.present.then_some(row.last) } else { None };
        let newest = match found {
            Some(last) => last,
            None if row.last <= seq => continue,
            None => match reader.step(&row, seq)? {
                Some(step) if step.op != EntryType::Deleted => step.seq,
                Some(_) | None => continue,
            },
        };
        // Also one that is kept from before the log. One that is damaged hides no other.
        let entry = match reader.entry_at(&row, newest) {
            Err(JournalError::Corrupt(_)) => {
                left += 1;
                continue;
            }
            entry => entry?,
        };
        let parsed = entry.as_ref().and_then(|stored| Entry::parse(&stored.line).ok());
        let uid = match &parsed {
            Some(entry) => entry.uid.as_deref().unwrap_or_default().to_owned(),
            None => index.owned(reader, object, newest.0)?.uid,
        };
        objects.push(There {
            id: id_of(&row),
            kind: row.resource.kind.clone(),
            resource: row.resource.full_name(),
            namespace: row.namespace.clone(),
            name: row.name.clone(),
            uid: if uid.is_empty() { row.uid.clone() } else { uid },
            seq: newest.0,
            since: parsed.as_ref().map(|entry| entry.time.to_string()),
            how: parsed.as_ref().and_then(|entry| entry.evidence.as_deref()).unwrap_or("listed").to_owned(),
        });
    }
    objects.sort_by(|one, other| one.id.cmp(&other.id));
    Ok(State { at: stamp(time), seq: seq.0, objects, truncated: left, unknown })
}

/// A moment of the log.
#[derive(Debug, Serialize, Deserialize)]
struct End {
    at: String,
    seq: u64,
    /// Uncovered resources at that moment.
    unknown: Vec<Uncovered>,
}

/// Differences of objects between two moments.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Changes {
    from: End,
    to: End,
    objects: Vec<Changed>,
    /// Objects that were there at neither of them, and in between were.
    came_and_went: usize,
    truncated: usize,
    /// Number of gaps in between, in which more may have happened; at most 500.
    gaps: usize,
}

#[derive(Debug, Serialize, Deserialize)]
struct Changed {
    id: String,
    kind: String,
    resource: String,
    namespace: String,
    name: String,
    uid: String,
    became: DiffKind,
    areas: Vec<String>,
    /// Number of entries of the difference.
    entries: usize,
    /// The entry with the object as it was at the first moment.
    before: Option<u64>,
    /// The last entry of the object between the moments.
    seq: u64,
    time: String,
    how: String,
}

impl Question for ChangesBetween {
    const NAME: &'static str = "changes";
    type Item = Changes;

    /// # Errors
    /// As [`StateAt`].
    fn answer(self, log: &Log<'_>, put: &mut Put<'_, Changes>) -> Result<(), Failure> {
        put(changes(&mut Opened::within(log, &self.window)?, &self)?)
    }
}

/// Returns the differences of objects between two moments.
pub(super) fn changes(opened: &mut Opened, question: &ChangesBetween) -> Result<Changes, Failure> {
    question.window.of_whole_objects(ChangesBetween::NAME)?;
    let (present, limit) = (opened.present()?, question.limit.min(OBJECTS_MAX));
    let Opened { reader, clock, deadline, .. } = opened;
    let (selected, deadline) = (question.window.resolve(reader)?, *deadline);
    let first = place(reader, question.from, "from", clock)?;
    let to = question.to.map(|to| place(reader, to, "to", clock)).transpose()?;
    let (from, upto) = (first.seq, to.map_or(reader.head()?, |to| to.seq));
    if from > upto || first.time.zip(to.and_then(|to| to.time)).is_some_and(|(from, to)| from > to) {
        return Err(Failure::usage("from is after to; swap them").about("from"));
    }
    let mut rows = reader.rows_changed(from)?;
    rows.retain(|row| selected.objects.as_ref().is_none_or(|objects| objects.contains(row)));
    let mut end = |place, seq: Seq| -> Result<End, Failure> {
        let time = time(reader, place, seq, clock)?;
        let unknown = coverage::at(reader, selected.scope(), time, present.at, deadline)?;
        Ok(End { at: stamp(time), seq: seq.0, unknown })
    };
    let (from_end, to_end) = (end(Some(first), from)?, end(to, upto)?);
    let limits = Limits { objects: limit, entries: STEPS, deadline: Some(deadline) };
    let found = difference::between(reader, rows, (first, to.unwrap_or(Moment { seq: upto, time: None })), limits)?;
    for error in &found.unknown {
        tracing::debug!(%error, "the fate of an object is not known");
    }
    Ok(Changes {
        from: from_end,
        to: to_end,
        gaps: coverage::gaps_between(reader, selected.scope(), (from, upto))?,
        truncated: found.truncated + found.unknown.len(),
        objects: found.objects.into_iter().map(changed).collect(),
        came_and_went: found.came_and_went,
    })
}

fn changed(found: ObjectDifference) -> Changed {
    Changed {
        id: found.row.as_ref().map(id_of).unwrap_or_default(),
        kind: found.kind,
        resource: found.resource,
        namespace: found.namespace,
        name: found.name,
        uid: found.uid,
        became: found.became,
        areas: found.areas.unwrap_or_default(),
        entries: found.entries.len(),
        before: found.before.map(|stored| stored.seq.0),
        seq: found.entries.last().copied().unwrap_or_default(),
        time: stamp(found.time),
        how: found.evidence,
    }
}

/// The moment of a place; without one it is now.
fn time(reader: &Reader, place: Option<Moment>, seq: Seq, clock: &Clock) -> Result<i64, Failure> {
    Ok(match place {
        Some(Moment { time: Some(time), .. }) => time.as_microsecond(),
        Some(_) => reader.time_of(seq)?.unwrap_or_default(),
        None => clock.now.as_microsecond(),
    })
}
