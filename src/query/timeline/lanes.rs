//! Lanes: an object each, with a bar for each of its lives, and what happened to it.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::order::{Order, Ranks, in_order};
use super::outlines::{Index, Owned};
use super::selection::{Resources, Selected, Window, lane_id};
use super::window::{Before, Found, Gathered, MarkLine, Most, Turn, extent, gather};
use super::{LANES_MAX, MARKS_MAX, Opened};
use crate::core::model::{EntryType, Evidence, Seq};
use crate::core::wire::Entry;
use crate::journal::{ObjectRow, Reader};
use crate::query::causes::Role;
use crate::query::coverage::{self, Uncovered};
use crate::query::moment::{Known, Span};
use crate::query::render::Failure;
use crate::query::{Log, Put, Question, Word, stamp};

/// Number of entries that are read for an owner outside of the selection.
const LIVED: usize = 1000;

/// The lanes of a window.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct LaneList {
    since: String,
    until: String,
    cursor: String,
    truncated: Option<Truncated>,
    pub(super) lanes: Vec<Lane>,
    unwatched: Vec<Uncovered>,
}

impl LaneList {
    /// The namespaces of the objects.
    pub(super) fn namespaces(&self) -> BTreeSet<&str> {
        self.lanes.iter().map(|lane| lane.namespace.as_str()).collect()
    }

    /// Leaves out lanes without a mark, other than owners of those that have one.
    pub(super) fn leave_out_what_is_empty(&mut self) {
        let owners: HashMap<&str, &str> =
            self.lanes.iter().filter_map(|lane| Some((lane.id.as_str(), lane.owner.as_deref()?))).collect();
        let mut kept: HashSet<String> = HashSet::new();
        for lane in self.lanes.iter().filter(|lane| !lane.marks.is_empty()) {
            let mut at = Some(lane.id.as_str());
            while let Some(id) = at.filter(|id| kept.insert((*id).to_owned())) {
                at = owners.get(id).copied();
            }
        }
        self.lanes.retain(|lane| kept.contains(&lane.id));
    }

    /// Returns the number of changes on the lanes, as the page counts them.
    pub(super) fn changes(&self) -> usize {
        self.lanes.iter().flat_map(|lane| &lane.marks).filter(|mark| mark.is_change()).count()
    }

    /// Returns the truncation, if any.
    pub(super) const fn left_out(&self) -> Option<&Truncated> {
        self.truncated.as_ref()
    }
}

/// Omitted parts of an answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Truncated {
    pub(super) lanes: usize,
    pub(super) marks: u64,
    /// Time of the newest mark that is left out of a lane that is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) marks_before: Option<String>,
    /// Stretches of which nobody knows, the oldest.
    pub(super) unwatched: usize,
    #[serde(flatten)]
    pub(super) before: Option<Before>,
}

/// An object.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Lane {
    pub(super) id: String,
    pub(super) kind: String,
    pub(super) resource: String,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) owner: Option<String>,
    pub(super) depth: usize,
    /// What its changes are, where one of them is a cause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) role: Option<Role>,
    pub(super) bars: Vec<Bar>,
    pub(super) marks: Vec<MarkLine>,
    pub(super) quiet: u64,
    /// Row of the object; none where the lane came from elsewhere.
    #[serde(skip)]
    pub(super) row: i64,
}

impl Lane {
    /// Reports whether the object is selected: an owner of a selected object has a lane as well.
    pub(super) fn is_of(&self, selected: &Selected) -> bool {
        selected.objects.as_ref().is_none_or(|objects| objects.contains(&self.row))
    }

    /// Returns the full name of the object's resource, its namespace and its name.
    pub(super) fn object(&self) -> (String, String, String) {
        (self.resource.clone(), self.namespace.clone(), self.name.clone())
    }
}

/// One life of an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Bar {
    uid: String,
    from: Option<String>,
    from_how: Word,
    to: Option<String>,
    to_how: Word,
}

/// Asks for the objects to which something happened, with what that was.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Lanes {
    #[serde(default)]
    pub(crate) window: Window,
    /// Their order, which is also the one by which they are chosen.
    #[serde(default)]
    pub(crate) order: Order,
    /// Number of objects: those of causes, then those to which something happened last.
    pub(crate) lanes: usize,
    /// Number of marks of all of them: the newest.
    pub(crate) marks: usize,
}

impl Question for Lanes {
    const NAME: &'static str = "lanes";
    type Item = LaneList;

    fn answer(self, log: &Log<'_>, put: &mut Put<'_, LaneList>) -> Result<(), Failure> {
        put(lanes(&mut Opened::of(log)?, &self)?)
    }
}

/// Returns the lanes of the window.
pub(super) fn lanes(opened: &mut Opened, most: &Lanes) -> Result<LaneList, Failure> {
    let present = opened.present()?;
    let (most_lanes, most_marks) = (most.lanes.min(LANES_MAX), most.marks.min(MARKS_MAX));
    let Opened { reader, index, deadline, .. } = opened;
    let (selected, deadline) = (&most.window.resolve(reader)?, *deadline);
    let (since, until) = extent(reader, selected, present.end)?;
    // What comes meanwhile comes after the cursor, and is of no lane here.
    let head = reader.head()?;
    let cursor = format!("{}:{head}", reader.epoch()?);
    let bounds = selected.bounds(reader, head)?;
    // They are few: where they are not, most of the time is for the lanes.
    let third = deadline.saturating_duration_since(Instant::now()) / 3;
    let (unwatched, unwatched_left) =
        coverage::between(reader, selected.scope(), head, (since, until), present.at, Instant::now() + third)?;
    let ranks = match most.order {
        Order::Causes => Ranks::find(index, reader, selected, bounds, most_lanes, Instant::now() + third)?,
        Order::Names => Ranks::default(),
    };
    let first = (most.order == Order::Causes).then_some(&ranks.rows);
    let mut gathered =
        gather(index, reader, selected, bounds, Most { lanes: most_lanes, marks: most_marks, first }, deadline)?;
    let upto = bounds.1;
    let resources = Resources::load(reader)?;
    let rows = rows(reader, selected, upto, &mut gathered, most_lanes)?;
    let mut lanes: BTreeMap<String, Lane> = BTreeMap::new();
    let mut ids: HashSet<String> = rows.iter().map(|(row, _)| id_of(row)).collect();
    let mut waiting = rows;
    while let Some((row, found)) = waiting.pop() {
        let lane = lane(index, reader, &resources, &row, found, upto)?;
        let owner = lane.owner.clone();
        lanes.insert(lane.id.clone(), lane);
        // Whose lane it is stands above it, also where nothing happened to that.
        if let Some(owner) = owner.filter(|owner| !selected.by_kind() && !ids.contains(owner))
            && ids.len() < most_lanes
            && ids.insert(owner.clone())
            && let Some(row) = row_of(reader, &owner)?
        {
            // Its entries were not asked for, and so not looked at.
            let found = if Instant::now() < deadline { lived(reader, &row, bounds)? } else { None };
            if let Some(found) = found
                && (!found.turns.is_empty() || was_there(reader, &row, upto)?)
            {
                waiting.push((row, found));
            }
        }
    }
    let Gathered { lanes_left, marks_left, marks_cut, cut, .. } = gathered;
    let truncated = match (lanes_left, marks_left, unwatched_left, cut) {
        (0, 0, 0, None) => None,
        _ => {
            let before = cut.map(|seq| Before::entry(reader, seq)).transpose()?;
            Some(Truncated {
                lanes: lanes_left,
                marks: marks_left,
                marks_before: marks_cut.map(stamp),
                unwatched: unwatched_left,
                before,
            })
        }
    };
    // A GAP that names an object is of its lane alone.
    let mut unwatched = unwatched;
    unwatched.retain(|one| {
        let id = |name| lane_id(one.resource.as_deref().unwrap_or_default(), &one.namespace, name);
        one.name.as_deref().is_none_or(|name| lanes.contains_key(&id(name)))
    });
    Ok(LaneList {
        since: stamp(since),
        until: stamp(until),
        cursor,
        truncated,
        lanes: in_order(lanes, &ranks, most.order),
        unwatched,
    })
}

/// Returns the objects of the lanes. What was named and is quiet was watched, and has a lane that says so.
fn rows(
    reader: &Reader,
    selected: &Selected,
    upto: u64,
    gathered: &mut Gathered,
    most: usize,
) -> Result<Vec<(ObjectRow, Found)>, Failure> {
    let mut rows: Vec<(ObjectRow, Found)> = Vec::with_capacity(gathered.lanes.len());
    let mut known: HashSet<i64> = HashSet::new();
    for (object, found) in std::mem::take(&mut gathered.lanes) {
        if let Some(row) = reader.object_with(object)? {
            known.insert(object);
            rows.push((row, found));
        }
    }
    if selected.is_narrow() {
        return Ok(rows);
    }
    for object in selected.objects.iter().flatten() {
        if known.contains(object) {
            continue;
        }
        if rows.len() >= most {
            gathered.lanes_left += usize::from(selected.by_kind());
            continue;
        }
        if let Some(row) = reader.object_with(*object)?
            && was_there(reader, &row, upto)?
        {
            known.insert(*object);
            rows.push((row, Found::default()));
        }
    }
    Ok(rows)
}

pub(super) fn id_of(row: &ObjectRow) -> String {
    lane_id(&row.resource.full_name(), &row.namespace, &row.name)
}

/// The object of a lane.
pub(super) fn row_of(reader: &Reader, id: &str) -> Result<Option<ObjectRow>, Failure> {
    let mut parts = id.splitn(3, '/');
    let (Some(resource), Some(namespace), Some(name)) = (parts.next(), parts.next(), parts.next()) else {
        return Ok(None);
    };
    for (number, known) in reader.resources()? {
        if known.full_name() == resource {
            let rows = reader.objects(number, Some(namespace), Some(name))?;
            // A name with stars in it is a pattern, and no object is called so.
            if let Some(row) = rows.into_iter().find(|row| row.name == name) {
                return Ok(Some(row));
            }
        }
    }
    Ok(None)
}

/// Reports whether an object without an entry in the window existed at its end.
fn was_there(reader: &Reader, row: &ObjectRow, upto: u64) -> Result<bool, Failure> {
    if row.last.0 <= upto {
        return Ok(row.present);
    }
    Ok(reader.step(row, Seq(upto))?.is_some_and(|step| step.op != EntryType::Deleted))
}

/// Returns the creation and deletion of an object in the window; none if it has [`LIVED`] entries there or more.
fn lived(reader: &mut Reader, row: &ObjectRow, (after, upto): (u64, u64)) -> Result<Option<Found>, Failure> {
    let steps = reader.history(row, Seq(after), Seq(upto), LIVED)?;
    if steps.len() == LIVED {
        return Ok(None);
    }
    let oldest = steps.last().map(|step| step.op);
    let mut found = Found { newest: steps.first().map_or(0, |step| step.seq.0), oldest, ..Found::default() };
    for step in steps.iter().filter(|step| matches!(step.op, EntryType::Added | EntryType::Deleted)) {
        let Some(stored) = reader.entry_of(step)? else { continue };
        // A damaged one says nothing.
        let Ok(entry) = Entry::parse(&stored.line) else { continue };
        let evidence = Evidence::ALL.iter().find(|known| entry.evidence.as_deref() == Some(known.as_str()));
        found.turns.push(Turn {
            came: step.op == EntryType::Added,
            time: latest(&entry, step.time),
            evidence: evidence.map_or("", |known| known.as_str()),
            uid: entry.uid.as_deref().unwrap_or_default().to_owned(),
        });
    }
    Ok(Some(found))
}

/// Returns the latest time at which an entry that was journaled at `time` happened, both in microseconds since 1970.
fn latest(entry: &Entry<'_>, time: i64) -> i64 {
    let span = Span::of(entry);
    match span.is {
        Known::Exactly => time,
        Known::Stamped => span.earliest.as_microsecond(),
        Known::Between => span.latest.as_microsecond(),
    }
}

/// The lane of an object.
pub(super) fn lane(
    index: &Index,
    reader: &mut Reader,
    resources: &Resources,
    row: &ObjectRow,
    mut found: Found,
    upto: u64,
) -> Result<Lane, Failure> {
    let newest = match found.newest {
        0 => reader.step(row, Seq(upto))?.map_or(row.last.0, |step| step.seq.0),
        newest => newest,
    };
    let Owned { owner, uid } = index.owned(reader, row.row(), newest)?;
    let uid = if uid.is_empty() { row.uid.clone() } else { uid };
    let owner = owner.and_then(|owner| {
        let resource = resources.of_kind(owner.group(), &owner.kind)?;
        let namespace = if resource.namespaced { row.namespace.as_str() } else { "" };
        Some(lane_id(&resource.full_name(), namespace, &owner.name))
    });
    let bars = bars(&found, &uid);
    found.marks.reverse();
    // What is drawn stands in the order of the log, also where a stamp is older than the one before.
    let mut last = String::new();
    for mark in &mut found.marks {
        if mark.time < last {
            mark.time.clone_from(&last);
            mark.since = mark.since.take().filter(|since| *since < last);
        }
        last.clone_from(&mark.time);
    }
    Ok(Lane {
        id: id_of(row),
        kind: row.resource.kind.clone(),
        resource: row.resource.full_name(),
        namespace: row.namespace.clone(),
        name: row.name.clone(),
        owner,
        depth: 0,
        role: None,
        bars,
        marks: found.marks,
        quiet: found.quiet,
        row: row.row(),
    })
}

/// The lives of an object, oldest first. `uid` is that of the last one.
fn bars(found: &Found, uid: &str) -> Vec<Bar> {
    let begun = |from: Option<i64>, from_how: &str, uid: &str| Bar {
        uid: uid.to_owned(),
        from: from.map(stamp),
        from_how: from_how.to_owned().into(),
        to: None,
        to_how: "open".into(),
    };
    let mut bars = Vec::new();
    let mut open = match found.oldest {
        Some(EntryType::Added) => None,
        // It was there before the first entry that is known of it.
        Some(EntryType::Modified | EntryType::Deleted | EntryType::Gap) | None => Some(begun(None, "before", "")),
    };
    for turn in found.turns.iter().rev() {
        if turn.came {
            // That it went is nowhere: nobody knows when.
            if let Some(lost) = open.take() {
                bars.push(Bar { to: Some(stamp(turn.time)), to_how: "inferred".into(), ..lost });
            }
            open = Some(begun(Some(turn.time), turn.evidence, &turn.uid));
        } else {
            let mut bar = open.take().unwrap_or_else(|| begun(None, "before", ""));
            if bar.uid.is_empty() {
                bar.uid.clone_from(&turn.uid);
            }
            let to_how = if turn.evidence == "listed" { "inferred" } else { turn.evidence };
            bars.push(Bar { to: Some(stamp(turn.time)), to_how: to_how.into(), ..bar });
        }
    }
    if let Some(mut bar) = open {
        if bar.uid.is_empty() {
            uid.clone_into(&mut bar.uid);
        }
        bars.push(bar);
    }
    bars
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(came: bool, time: i64, evidence: &'static str, uid: &str) -> Turn {
        Turn { came, time, evidence, uid: uid.to_owned() }
    }

    fn shown(oldest: EntryType, turns: Vec<Turn>) -> Vec<String> {
        let found = Found { oldest: Some(oldest), turns: turns.into_iter().rev().collect(), ..Found::default() };
        let at = |time: &Option<String>| time.as_deref().map_or("-", |time| &time[17..19]).to_owned();
        let bars = bars(&found, "last");
        bars.iter()
            .map(|bar| format!("{} {}{}..{}{}", bar.uid, at(&bar.from), bar.from_how, at(&bar.to), bar.to_how))
            .collect()
    }

    #[test]
    fn a_bar_says_no_more_than_is_known() {
        use EntryType::{Added, Deleted, Modified};
        let second = 1_000_000;
        assert_eq!(shown(Modified, vec![]), ["last -before..-open"]);
        assert_eq!(shown(Added, vec![turn(true, second, "watched", "a")]), ["a 01watched..-open"]);
        assert_eq!(shown(Added, vec![turn(true, second, "listed", "a")]), ["a 01listed..-open"]);
        assert_eq!(shown(Deleted, vec![turn(false, second, "watched", "a")]), ["a -before..01watched"]);
        assert_eq!(
            shown(
                Modified,
                vec![
                    turn(false, second, "inferred", "a"),
                    turn(true, 2 * second, "inferred", "b"),
                    turn(false, 3 * second, "recovered", "b"),
                    turn(true, 4 * second, "watched", "c"),
                ]
            ),
            ["a -before..01inferred", "b 02inferred..03recovered", "c 04watched..-open"]
        );
        // Its end was truncated, or lies in a damaged entry.
        let lost = vec![turn(true, second, "watched", "a"), turn(true, 2 * second, "watched", "b")];
        assert_eq!(shown(Added, lost), ["a 01watched..02inferred", "b 02watched..-open"]);
    }
}
