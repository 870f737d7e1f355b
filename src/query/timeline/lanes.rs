//! Lanes: an object each, with a bar for each of its lives, and what happened to it.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::lane::{Lane, bars};
use super::order::{Effort, Order, Ranks, in_order};
use super::outlines::{Index, Owned};
use super::selection::{Resources, Selected, Window, lane_id};
use super::window::{Before, Found, Gathered, Most, Turn, extent, gather};
use super::{LANES_MAX, MARKS_MAX, Opened};
use crate::core::model::{EntryType, Evidence, Seq};
use crate::core::wire::Entry;
use crate::journal::{ObjectRow, Reader};
use crate::query::coverage::{self, Uncovered};
use crate::query::moment::{Known, Span};
use crate::query::render::Failure;
use crate::query::{Log, Put, Question, stamp};

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
    /// Time before which causes were not looked for: lanes that have theirs there have neither its place nor a role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) causes_before: Option<String>,
    /// Stretches of which nobody knows, the oldest.
    pub(super) unwatched: usize,
    #[serde(flatten)]
    pub(super) before: Option<Before>,
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
        put(lanes(&mut Opened::within(log, &self.window)?, &self)?)
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
        Order::Causes => {
            Ranks::find(index, reader, selected, bounds, most_lanes, Effort::until(Instant::now() + third))?
        }
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
    // Before the end of what was read at all, nothing has a lane.
    let uncaused = ranks.cut.filter(|seq| cut.is_none_or(|cut| *seq > cut));
    let truncated = match (lanes_left, marks_left, unwatched_left, cut, uncaused) {
        (0, 0, 0, None, None) => None,
        _ => {
            let before = cut.map(|seq| Before::entry(reader, seq)).transpose()?;
            let uncaused = uncaused.map(|seq| Before::entry(reader, seq)).transpose()?;
            Some(Truncated {
                lanes: lanes_left,
                marks: marks_left,
                marks_before: marks_cut.map(stamp),
                causes_before: uncaused.map(|Before { before }| before),
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
