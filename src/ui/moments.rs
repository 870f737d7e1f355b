//! Objects as they were at a moment, and what became of them between two.

use std::time::Instant;

use serde::Serialize;

use super::answer::Problem;
use super::index::Index;
use super::lanes::{Present, id_of};
use super::query::{Asked, Query};
use crate::journal::{JournalError, Reader};
use crate::model::{EntryType, Seq};
use crate::query::coverage::{self, Uncovered};
use crate::query::difference::{self, Became, Limits, ObjectDifference};
use crate::query::stamp;
use crate::wire::Entry;
use crate::words::clock::Clock;
use crate::words::names::At;
use crate::words::object::{self, Moment};

/// Number of entries of one object that are read for its difference.
const STEPS: usize = 20_000;

/// A place in the log: right after an entry, or at a moment. It is one of which something is known.
pub(super) fn place(
    reader: &mut Reader,
    query: &Query,
    key: &'static str,
    clock: &Clock,
) -> Result<Option<Moment>, Problem> {
    let Some(text) = query.one(key) else { return Ok(None) };
    if text.bytes().all(|byte| byte == b'0') {
        return Err(Problem::wrong(key, format!("{key}: entries are counted from 1")));
    }
    let at = match text.bytes().all(|byte| byte.is_ascii_digit()) {
        true => query.seq(key)?.map(At::Seq),
        false => query.moment(key, clock)?.map(At::Time),
    };
    let Some(at) = at else { return Ok(None) };
    let place = object::place(reader, at, clock).and_then(|place| {
        place.time.map_or(Ok(()), |time| object::not_before_all(reader, time, clock))?;
        Ok(place)
    });
    place.map(Some).map_err(|failure| Problem::from(failure).of(key))
}

/// Objects at a moment.
#[derive(Debug, Serialize)]
pub(crate) struct State {
    at: String,
    seq: u64,
    objects: Vec<There>,
    truncated: usize,
    /// Uncovered resources at that moment.
    unknown: Vec<Uncovered>,
}

#[derive(Debug, Serialize)]
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

/// The objects that there were at a moment.
pub(super) fn state(
    index: &Index,
    reader: &mut Reader,
    asked: &Asked,
    query: &Query,
    (clock, present): (&Clock, Present),
    deadline: Instant,
) -> Result<State, Problem> {
    let limit = query.number("limit", 1000, 5000)?;
    let place = place(reader, query, "at", clock)?;
    let head = reader.head()?;
    let seq = place.map_or(head, |place| place.seq);
    let time = time(reader, place, seq, clock)?;
    let unknown = coverage::at(reader, asked.scope(), time, present.at, deadline)?;
    let mut rows: Vec<i64> = match &asked.objects {
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
        let found = if row.last <= seq { row.present.then_some(row.last) } else { None };
        let newest = match found {
            Some(last) => last,
            None if row.last <= seq => continue,
            None => match reader.step(&row, seq)? {
                Some(step) if step.kind != EntryType::Deleted => step.seq,
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
#[derive(Debug, Serialize)]
struct End {
    at: String,
    seq: u64,
    /// Uncovered resources at that moment.
    unknown: Vec<Uncovered>,
}

/// Differences of objects between two moments.
#[derive(Debug, Serialize)]
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

#[derive(Debug, Serialize)]
struct Changed {
    id: String,
    kind: String,
    resource: String,
    namespace: String,
    name: String,
    uid: String,
    became: Became,
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

/// Returns the differences of objects between `from` and `to`, by default now.
pub(super) fn changes(
    reader: &mut Reader,
    asked: &Asked,
    query: &Query,
    clock: &Clock,
    present: Present,
    deadline: Instant,
) -> Result<Changes, Problem> {
    let limit = query.number("limit", 1000, 5000)?;
    let first = place(reader, query, "from", clock)?
        .ok_or_else(|| Problem::wrong("from", "from: say from which moment on, such as 1h, a time, or a seq"))?;
    let to = place(reader, query, "to", clock)?;
    let (from, upto) = (first.seq, to.map_or(reader.head()?, |to| to.seq));
    if from > upto || first.time.zip(to.and_then(|to| to.time)).is_some_and(|(from, to)| from > to) {
        return Err(Problem::wrong("from", "from is after to; swap them"));
    }
    let mut rows = reader.rows_changed(from)?;
    rows.retain(|row| asked.objects.as_ref().is_none_or(|objects| objects.contains(row)));
    let mut end = |place, seq: Seq| -> Result<End, Problem> {
        let time = time(reader, place, seq, clock)?;
        let unknown = coverage::at(reader, asked.scope(), time, present.at, deadline)?;
        Ok(End { at: stamp(time), seq: seq.0, unknown })
    };
    let (from_end, to_end) = (end(Some(first), from)?, end(to, upto)?);
    let limits = Limits { objects: limit, entries: STEPS, deadline: Some(deadline) };
    let found = difference::between(reader, rows, (from, upto), limits)?;
    for error in &found.unknown {
        tracing::debug!(%error, "what became of an object is not known");
    }
    Ok(Changes {
        from: from_end,
        to: to_end,
        gaps: coverage::gaps_between(reader, asked.scope(), (from, upto))?,
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
fn time(reader: &Reader, place: Option<Moment>, seq: Seq, clock: &Clock) -> Result<i64, Problem> {
    Ok(match place {
        Some(Moment { time: Some(time), .. }) => time.as_microsecond(),
        Some(_) => reader.time_of(seq)?.unwrap_or_default(),
        None => clock.now.as_microsecond(),
    })
}
