//! Lanes: an object each, with a bar for each of its lives, and what happened to it.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::Instant;

use jiff::Timestamp;
use serde::Serialize;

use super::answer::Problem;
use super::index::{Index, Owned};
use super::query::{Asked, Resources, lane_id, stamp};
use super::window::{Before, Found, Gathered, MarkLine, Turn, extent, gather};
use crate::journal::{EntryQuery, ObjectRow, Reader, SourceRow, SourceState, StoredEntry};
use crate::model::{EntryType, Evidence, Seq, Why};
use crate::wire::Entry;

/// Number of uncovered stretches in an answer.
const MOST_GAPS: usize = 500;
/// Number of entries that are read for an owner outside of the selection.
const LIVED: usize = 1000;
/// An owner of an owner of an owner is no lane below.
const DEEPEST: usize = 2;

/// The lanes of a window.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Lanes {
    since: String,
    until: String,
    cursor: String,
    truncated: Option<Truncated>,
    pub(super) lanes: Vec<Lane>,
    unwatched: Vec<Unwatched>,
}

impl Lanes {
    /// The namespaces of the objects.
    pub(super) fn namespaces(&self) -> BTreeSet<&str> {
        self.lanes.iter().map(|lane| lane.namespace.as_str()).collect()
    }

    /// Returns the truncation, if any.
    pub(super) const fn left_out(&self) -> Option<&Truncated> {
        self.truncated.as_ref()
    }
}

/// Omitted parts of an answer.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Truncated {
    pub(super) lanes: usize,
    pub(super) marks: u64,
    /// Stretches of which nobody knows, the oldest.
    pub(super) unwatched: usize,
    #[serde(flatten)]
    pub(super) before: Option<Before>,
}

/// An object.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Lane {
    pub(super) id: String,
    kind: String,
    resource: String,
    namespace: String,
    name: String,
    owner: Option<String>,
    depth: usize,
    bars: Vec<Bar>,
    pub(super) marks: Vec<MarkLine>,
    quiet: u64,
}

/// One life of an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Bar {
    uid: String,
    from: Option<String>,
    from_how: &'static str,
    to: Option<String>,
    to_how: &'static str,
}

/// A stretch of time of which nobody knows what happened.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Unwatched {
    resource: Option<String>,
    namespace: String,
    from: Option<String>,
    to: String,
    why: String,
    seq: Option<u64>,
}

/// Limits of an answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Most {
    pub(super) lanes: usize,
    pub(super) marks: usize,
}

/// The present time, and whether a daemon watches.
#[derive(Clone, Copy, Debug)]
pub(super) struct Present {
    pub(super) now: i64,
    pub(super) watched: bool,
    /// Up to when the log is looked at where nobody says it.
    pub(super) end: i64,
}

impl Present {
    /// Returns the present. Without a daemon the axis ends shortly after the last entry, and not years later.
    pub(super) fn of(reader: &Reader, now: i64, watched: bool) -> Result<Self, Problem> {
        let end = match (reader.retained()?.oldest_time, reader.time_of(reader.head()?)?) {
            (Some(oldest), Some(head)) if !watched => head + ((head - oldest) / 32).max(1_000_000),
            _ => now,
        };
        Ok(Self { now, watched, end: end.min(now) })
    }
}

/// The lanes of the window that is asked for.
pub(super) fn lanes(
    index: &Index,
    reader: &mut Reader,
    asked: &Asked,
    most: Most,
    present: Present,
    deadline: Instant,
) -> Result<Lanes, Problem> {
    let (since, until) = extent(reader, asked, present.end)?;
    // What comes meanwhile comes after the cursor, and is of no lane here.
    let head = reader.head()?;
    let cursor = format!("{}:{head}", reader.epoch()?);
    let bounds = asked.bounds(reader, head)?;
    // They are few: where they are not, most of the time is for the lanes.
    let third = deadline.saturating_duration_since(Instant::now()) / 3;
    let (unwatched, unwatched_left) = unwatched(reader, asked, head, (since, until), present, Instant::now() + third)?;
    let Gathered { lanes: found, mut lanes_left, marks_left, cut } =
        gather(index, reader, asked, bounds, (most.lanes, most.marks), deadline)?;
    let upto = bounds.1;
    let resources = Resources::load(reader)?;
    let mut rows: Vec<(ObjectRow, Found)> = Vec::with_capacity(found.len());
    let mut known: HashSet<i64> = HashSet::new();
    for (object, found) in found {
        if let Some(row) = reader.object_with(object)? {
            known.insert(object);
            rows.push((row, found));
        }
    }
    // What was named and is quiet was watched, and has a lane that says so.
    if !asked.is_narrow() {
        for object in asked.objects.iter().flatten() {
            if known.contains(object) {
                continue;
            }
            if rows.len() >= most.lanes {
                lanes_left += usize::from(asked.by_kind);
                continue;
            }
            if let Some(row) = reader.object_with(*object)?
                && was_there(reader, &row, upto)?
            {
                known.insert(*object);
                rows.push((row, Found::default()));
            }
        }
    }
    let mut lanes: BTreeMap<String, Lane> = BTreeMap::new();
    let mut ids: HashSet<String> = rows.iter().map(|(row, _)| id_of(row)).collect();
    let mut waiting = rows;
    while let Some((row, found)) = waiting.pop() {
        let lane = lane(index, reader, &resources, &row, found, upto)?;
        let owner = lane.owner.clone();
        lanes.insert(lane.id.clone(), lane);
        // Whose lane it is stands above it, also where nothing happened to that.
        if let Some(owner) = owner.filter(|owner| !asked.by_kind && !ids.contains(owner))
            && ids.len() < most.lanes
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
    let truncated = match (lanes_left, marks_left, unwatched_left, cut) {
        (0, 0, 0, None) => None,
        _ => {
            let before = cut.map(|seq| Before::entry(reader, seq)).transpose()?;
            Some(Truncated { lanes: lanes_left, marks: marks_left, unwatched: unwatched_left, before })
        }
    };
    Ok(Lanes { since: stamp(since), until: stamp(until), cursor, truncated, lanes: in_order(lanes), unwatched })
}

pub(super) fn id_of(row: &ObjectRow) -> String {
    lane_id(&row.resource.full_name(), &row.namespace, &row.name)
}

/// The object of a lane.
pub(super) fn row_of(reader: &Reader, id: &str) -> Result<Option<ObjectRow>, Problem> {
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
fn was_there(reader: &Reader, row: &ObjectRow, upto: u64) -> Result<bool, Problem> {
    if row.last.0 <= upto {
        return Ok(row.present);
    }
    Ok(reader.step(row, Seq(upto))?.is_some_and(|step| step.kind != EntryType::Deleted))
}

/// Returns the creation and deletion of an object in the window; none if it has [`LIVED`] entries there or more.
fn lived(reader: &mut Reader, row: &ObjectRow, (after, upto): (u64, u64)) -> Result<Option<Found>, Problem> {
    let steps = reader.history(row, Seq(after), Seq(upto), LIVED)?;
    if steps.len() == LIVED {
        return Ok(None);
    }
    let oldest = steps.last().map(|step| step.kind);
    let mut found = Found { newest: steps.first().map_or(0, |step| step.seq.0), oldest, ..Found::default() };
    for step in steps.iter().filter(|step| matches!(step.kind, EntryType::Added | EntryType::Deleted)) {
        let Some(stored) = reader.entry_of(step)? else { continue };
        // A damaged one says nothing.
        let Ok(entry) = Entry::parse(&stored.line) else { continue };
        let evidence = Evidence::ALL.iter().find(|known| entry.evidence.as_deref() == Some(known.as_str()));
        found.turns.push(Turn {
            came: step.kind == EntryType::Added,
            time: step.time,
            evidence: evidence.map_or("", |known| known.as_str()),
            uid: entry.uid.as_deref().unwrap_or_default().to_owned(),
        });
    }
    Ok(Some(found))
}

/// The lane of an object.
pub(super) fn lane(
    index: &Index,
    reader: &mut Reader,
    resources: &Resources,
    row: &ObjectRow,
    mut found: Found,
    upto: u64,
) -> Result<Lane, Problem> {
    let newest = match found.newest {
        0 => reader.step(row, Seq(upto))?.map_or(row.last.0, |step| step.seq.0),
        newest => newest,
    };
    let Owned { owner, uid } = index.owned(reader, row.row(), newest)?;
    let uid = if uid.is_empty() { row.uid.clone() } else { uid };
    let owner = owner.and_then(|(group, kind, name)| {
        let resource = resources.of_kind(&group, &kind)?;
        let namespace = if resource.namespaced { row.namespace.as_str() } else { "" };
        Some(lane_id(&resource.full_name(), namespace, &name))
    });
    let bars = bars(&found, &uid);
    found.marks.reverse();
    Ok(Lane {
        id: id_of(row),
        kind: row.resource.kind.clone(),
        resource: row.resource.full_name(),
        namespace: row.namespace.clone(),
        name: row.name.clone(),
        owner,
        depth: 0,
        bars,
        marks: found.marks,
        quiet: found.quiet,
    })
}

/// The lives of an object, oldest first. `uid` is that of the last one.
fn bars(found: &Found, uid: &str) -> Vec<Bar> {
    let begun = |from: Option<i64>, from_how: &'static str, uid: &str| Bar {
        uid: uid.to_owned(),
        from: from.map(stamp),
        from_how,
        to: None,
        to_how: "open",
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
                bars.push(Bar { to: Some(stamp(turn.time)), to_how: "inferred", ..lost });
            }
            open = Some(begun(Some(turn.time), turn.evidence, &turn.uid));
        } else {
            let mut bar = open.take().unwrap_or_else(|| begun(None, "before", ""));
            if bar.uid.is_empty() {
                bar.uid.clone_from(&turn.uid);
            }
            let to_how = if turn.evidence == "listed" { "inferred" } else { turn.evidence };
            bars.push(Bar { to: Some(stamp(turn.time)), to_how, ..bar });
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

/// Lanes with what they own below them.
fn in_order(lanes: BTreeMap<String, Lane>) -> Vec<Lane> {
    let mut below: HashMap<Option<String>, Vec<String>> = HashMap::new();
    for lane in lanes.values() {
        let owner = lane.owner.clone().filter(|owner| *owner != lane.id && lanes.contains_key(owner));
        below.entry(owner).or_default().push(lane.id.clone());
    }
    let place =
        |id: &String| lanes.get(id).map(|lane| (lane.namespace.clone(), lane.resource.clone(), lane.name.clone()));
    for children in below.values_mut() {
        children.sort_by_key(place);
    }
    let mut order: Vec<(String, usize)> = Vec::new();
    let mut seen: BTreeSet<String> = BTreeSet::new();
    let mut stack: Vec<(String, usize)> = Vec::new();
    let roots = below.get(&None).cloned().unwrap_or_default();
    // Those that own each other in a circle are nobody's.
    for root in roots.into_iter().chain(lanes.keys().cloned()) {
        stack.push((root, 0));
        while let Some((id, depth)) = stack.pop() {
            if !seen.insert(id.clone()) {
                continue;
            }
            let children = below.get(&Some(id.clone())).into_iter().flatten().rev();
            stack.extend(children.map(|child| (child.clone(), depth + 1)));
            order.push((id, depth.min(DEEPEST)));
        }
    }
    let mut lanes = lanes;
    order.into_iter().filter_map(|(id, depth)| lanes.remove(&id).map(|lane| Lane { depth, ..lane })).collect()
}

/// Returns the uncovered stretches: times without a daemon, and those of GAPs, the newest; with the number that was omitted.
fn unwatched(
    reader: &mut Reader,
    asked: &Asked,
    head: Seq,
    window: (i64, i64),
    present: Present,
    deadline: Instant,
) -> Result<(Vec<Unwatched>, usize), Problem> {
    let sources = reader.sources()?;
    let mut found = now_unwatched(reader, asked, window.1, present, &sources)?;
    found.retain(|one| asked.is_within(&one.namespace));
    // What never was watched, and then what was watched last.
    found.sort_by(|one, other| {
        (one.from.is_some(), &other.from, &other.resource).cmp(&(other.from.is_some(), &one.from, &one.resource))
    });
    let mut left = found.len().saturating_sub(MOST_GAPS);
    found.truncate(MOST_GAPS);
    // A GAP is journaled at its end.
    let after = reader.last_before(window.0)?;
    let query = EntryQuery { types: vec![EntryType::Gap], ..EntryQuery::default() };
    let mut before = head.next();
    loop {
        let page = reader.select(&query, after, Some(before), true, MOST_GAPS, None)?;
        for gap in page.entries.iter().filter_map(|stored| of_gap(asked, window, &sources, stored)) {
            if found.len() < MOST_GAPS {
                found.push(gap);
            } else {
                left += 1;
            }
        }
        let Some((_, oldest)) = page.looked_at.filter(|_| page.looked == MOST_GAPS) else { break };
        if Instant::now() > deadline {
            // It is not known how many more.
            left += 1;
            break;
        }
        before = oldest;
    }
    let mut first = not_yet_watched(reader, asked, window, &sources)?;
    first.retain(|one| asked.is_within(&one.namespace));
    let room = MOST_GAPS.saturating_sub(found.len());
    left += first.len().saturating_sub(room);
    found.extend(first.into_iter().take(room));
    found.sort_by(|one, other| (&one.from, &one.resource, one.seq).cmp(&(&other.from, &other.resource, other.seq)));
    Ok((found, left))
}

/// Returns the uncovered stretches of an object over the whole log.
pub(super) fn unwatched_of(
    reader: &mut Reader,
    row: &ObjectRow,
    present: Present,
    deadline: Instant,
) -> Result<Vec<Unwatched>, Problem> {
    let resource = row.resource.full_name();
    let is_its = |source: &&SourceRow| {
        source.resource.full_name() == resource && ["", &*row.namespace].contains(&&*source.namespace)
    };
    let asked =
        Asked::of_sources(reader.sources()?.iter().filter(is_its).map(|source| source.id.0).collect(), &row.namespace);
    let begin = reader.retained()?.oldest_time.unwrap_or_default();
    let head = reader.head()?;
    Ok(unwatched(reader, &asked, head, (begin, present.now), present, deadline)?.0)
}

/// Returns the uncovered resources at a moment.
pub(super) fn unknown_at(
    reader: &mut Reader,
    asked: &Asked,
    time: i64,
    present: Present,
    deadline: Instant,
) -> Result<Vec<Unwatched>, Problem> {
    let head = reader.head()?;
    Ok(unwatched(reader, asked, head, (time, time), present, deadline)?.0)
}

/// Returns the number of matching GAPs behind the first of these seqs and up to the second, with a limit.
pub(super) fn gaps_between(reader: &mut Reader, asked: &Asked, (after, upto): (Seq, Seq)) -> Result<usize, Problem> {
    let sources = reader.sources()?;
    let query = EntryQuery { types: vec![EntryType::Gap], ..EntryQuery::default() };
    let (mut count, mut before) = (0, upto.next());
    while count < MOST_GAPS {
        let page = reader.select(&query, after, Some(before), true, MOST_GAPS, None)?;
        let found = page.entries.iter().filter_map(|stored| of_gap(asked, (i64::MIN, i64::MAX), &sources, stored));
        count += found.count();
        let Some((_, oldest)) = page.looked_at.filter(|_| page.looked == MOST_GAPS) else { break };
        before = oldest;
    }
    Ok(count.min(MOST_GAPS))
}

/// The stretch that a GAP is about, where it is of what is asked for.
fn of_gap(asked: &Asked, (since, until): (i64, i64), sources: &[SourceRow], stored: &StoredEntry) -> Option<Unwatched> {
    let entry = Entry::parse(&stored.line).ok()?;
    let gap = entry.gap()?;
    let micros = |text: &str| text.parse::<Timestamp>().ok().map(Timestamp::as_microsecond);
    let to = micros(&entry.time).unwrap_or(until);
    let (resource, namespace) = (entry.full_resource(), entry.namespace.as_deref().unwrap_or_default());
    // A source that takes over from another one of another scope does not say since when; the other one was good up to then.
    let overlaps = |source: &&SourceRow| {
        source.resource.full_name() == resource
            && (source.namespace.is_empty() || namespace.is_empty() || source.namespace == namespace)
    };
    let handed_over = || {
        let good = sources.iter().filter(overlaps).filter_map(|source| source.good_at).filter(|good| *good < to).max();
        good.filter(|_| gap.why == Why::Scope.as_str())
    };
    let from = gap.since.as_deref().and_then(micros).or_else(handed_over);
    let of = |source: &&SourceRow| source.resource.full_name() == resource && source.namespace == namespace;
    let elsewhere = sources.iter().find(of).is_some_and(|source| !asked.is_of(source));
    if elsewhere || to < since || from.is_some_and(|from| from > until) {
        return None;
    }
    Some(Unwatched {
        namespace: namespace.to_owned(),
        resource: Some(resource).filter(|name| !name.is_empty()),
        from: from.map(stamp),
        to: stamp(to),
        why: gap.why,
        seq: Some(stored.seq.0),
    })
}

/// Since when nobody watches now.
fn now_unwatched(
    reader: &Reader,
    asked: &Asked,
    until: i64,
    present: Present,
    sources: &[SourceRow],
) -> Result<Vec<Unwatched>, Problem> {
    let mut found = Vec::new();
    for source in sources.iter().filter(|source| asked.is_of(source)) {
        // What is not configured any more and never was known is nobody's.
        if source.good_at.map_or(!source.active, |good_at| good_at >= until) {
            continue;
        }
        let listed = |other: &SourceRow| other.good_at.is_some();
        let its = |reader: &Reader| match source.good_at {
            Some(_) => Ok(vec![source.namespace.clone()]),
            // Another one may have known a part of what it is to bring.
            None => nobodys(reader, source, sources, listed),
        };
        let (namespaces, why) = match source.state {
            _ if !source.active => (left_alone(reader, source, sources)?, "removed"),
            _ if !present.watched => (its(reader)?, "stopped"),
            SourceState::Watching | SourceState::Gone => continue,
            SourceState::Waiting | SourceState::Degraded(_) | SourceState::Listing(_) | SourceState::Recovering => {
                (its(reader)?, source.state.word())
            }
        };
        found.extend(namespaces.into_iter().map(|namespace| Unwatched {
            resource: Some(source.resource.full_name()),
            namespace,
            from: source.good_at.map(stamp),
            to: stamp(source.good_at.map_or(present.now, |good_at| present.now.max(good_at))),
            why: why.to_owned(),
            seq: None,
        }));
    }
    Ok(found)
}

/// Up to when a source had not been listed for the first time: of what was before, nothing is known.
fn not_yet_watched(
    reader: &Reader,
    asked: &Asked,
    (since, until): (i64, i64),
    sources: &[SourceRow],
) -> Result<Vec<Unwatched>, Problem> {
    let begin = reader.retained()?.oldest_time.unwrap_or(i64::MAX);
    let mut found = Vec::new();
    for source in sources.iter().filter(|source| asked.is_of(source)) {
        // What was before the log is not shown.
        let Some(first) = source.good_since.filter(|first| *first > since.max(begin)) else { continue };
        let knew = |other: &SourceRow| other.good_since.is_some_and(|known| known < first);
        found.extend(nobodys(reader, source, sources, knew)?.into_iter().map(|namespace| Unwatched {
            resource: Some(source.resource.full_name()),
            namespace,
            from: None,
            to: stamp(first.min(until)),
            why: "not_yet".to_owned(),
            seq: None,
        }));
    }
    Ok(found)
}

/// The namespaces that a source which is not configured any more has left to nobody. One that was good later knows more,
/// whether it is configured or not.
fn left_alone(reader: &Reader, source: &SourceRow, sources: &[SourceRow]) -> Result<Vec<String>, Problem> {
    nobodys(reader, source, sources, |other| other.active && other.good_at.is_some() || other.good_at > source.good_at)
}

/// The namespaces of a source of which no other one knows; an empty one stands for all.
fn nobodys(
    reader: &Reader,
    source: &SourceRow,
    sources: &[SourceRow],
    knows: impl Fn(&SourceRow) -> bool,
) -> Result<Vec<String>, Problem> {
    let knows_more = |other: &&SourceRow| {
        other.id != source.id && other.resource.full_name() == source.resource.full_name() && knows(other)
    };
    let known: BTreeSet<&str> = sources.iter().filter(knows_more).map(|other| other.namespace.as_str()).collect();
    if known.contains("") || known.contains(source.namespace.as_str()) {
        return Ok(Vec::new());
    }
    if known.is_empty() || !source.namespace.is_empty() {
        return Ok(vec![source.namespace.clone()]);
    }
    Ok(reader.namespaces()?.into_iter().filter(|namespace| !known.contains(namespace.as_str())).collect())
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

    #[test]
    fn what_is_owned_stands_below_its_owner() {
        let lane = |resource: &str, name: &str, owner: Option<&str>| Lane {
            id: lane_id(resource, "shop", name),
            kind: String::new(),
            resource: resource.to_owned(),
            namespace: "shop".to_owned(),
            name: name.to_owned(),
            owner: owner.map(str::to_owned),
            depth: 0,
            bars: Vec::new(),
            marks: Vec::new(),
            quiet: 0,
        };
        let lanes = [
            lane("pods", "web-1", Some("replicasets.apps/shop/web-a")),
            lane("pods", "alone", None),
            lane("pods", "stray", Some("jobs.batch/shop/gone")),
            lane("replicasets.apps", "web-a", Some("deployments.apps/shop/web")),
            lane("deployments.apps", "web", None),
            lane("things", "a", Some("things/shop/b")),
            lane("things", "b", Some("things/shop/a")),
            lane("things", "own", Some("things/shop/own")),
        ];
        let lanes = lanes.into_iter().map(|lane| (lane.id.clone(), lane)).collect();
        let order: Vec<String> = in_order(lanes).iter().map(|lane| format!("{}{}", lane.depth, lane.name)).collect();
        assert_eq!(order, ["0web", "1web-a", "2web-1", "0alone", "0stray", "0own", "0a", "1b"]);
    }
}
