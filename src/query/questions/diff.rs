//! What changed between two moments, of an object, a namespace, or everything.

use std::collections::{BTreeMap, BTreeSet};

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::core::model::{EntryType, Seq};
use crate::core::wire::{Change, EntryGap, authors};
use crate::journal::{ObjectRow, Reader};
use crate::query::churn::{Class, Classes};
use crate::query::coverage::known::Reach;
use crate::query::coverage_notes::{About, doubt};
use crate::query::difference::{self, DiffKind, Limits, ObjectDifference};
use crate::query::line::Line;
use crate::query::render::clock::Clock;
use crate::query::render::names::{At, Spellings};
use crate::query::render::object::{Moment, place};
use crate::query::render::row::plural;
use crate::query::render::{Failure, object};
use crate::query::select::Writers;
use crate::query::{Log, Put, Question};

/// Default period of the comparison.
const DEFAULT_PERIOD: SignedDuration = SignedDuration::from_hours(1);

/// Asks for the difference of two moments.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Diff {
    /// Resources and objects as kubectl spells them; all if there are none.
    pub(crate) objects: Vec<String>,
    pub(crate) namespaces: Vec<String>,
    /// Names of managers and users, with `*` for other characters, one of which wrote an entry between the moments; all if there are
    /// none.
    pub(crate) by: Vec<String>,
    /// First moment; an hour ago if there is none.
    pub(crate) from: Option<At>,
    /// Second moment; now if there is none.
    pub(crate) to: Option<At>,
    /// Areas of which an object that changed differs in one; all if there are none.
    pub(crate) areas: Vec<String>,
    /// Writes times in UTC, for programs.
    pub(crate) utc: bool,
}

/// A part of the answer.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Item {
    /// The two moments, and whether single objects were asked for.
    Begin {
        from: End,
        to: End,
        single: bool,
        /// How much of the time between them the log covers.
        #[serde(default)]
        known: Reach,
    },
    /// An object that differs.
    Object(Box<ObjectDiff>),
    /// A GAP between the moments.
    Gap(Box<Hole>),
    /// A sentence about a time that is not covered.
    Unknown(String),
    /// Number of objects that existed at neither moment, and in between did.
    CameAndWent(usize),
}

/// A moment, as it is printed.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct End {
    pub(crate) seq: u64,
    pub(crate) time: String,
}

/// An object that differs, and the entries to show of it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ObjectDiff {
    pub(crate) difference: ObjectDifference,
    /// Full name of its resource.
    pub(crate) resource: String,
    /// Time of the last entry that changed more than the status, else of the last, microseconds since 1970.
    pub(crate) time: i64,
    /// Names of the writers of these entries.
    pub(crate) by: Vec<String>,
    /// True if it differs in its status alone, or in what every write moves.
    pub(crate) is_status: bool,
    /// The entry before, of what went.
    pub(crate) before: Option<Line>,
    /// The entry after, of what came or changed.
    pub(crate) after: Option<Line>,
}

/// A GAP.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Hole {
    pub(crate) seq: u64,
    pub(crate) resource: String,
    pub(crate) gap: EntryGap,
    pub(crate) entry: Line,
}

impl Question for Diff {
    const NAME: &'static str = "diff";
    type Item = Item;

    /// # Errors
    /// Exit 1 where the journal does not reach back to a moment or knows no such object.
    fn answer(self, log: &Log<'_>, put: &mut Put<'_, Item>) -> Result<(), Failure> {
        let mut reader = log.open()?;
        let (from, to) = self.moments(&mut reader, log)?;
        let scope = Scope::of(&self, &reader)?;
        let zone = if self.utc { TimeZone::UTC } else { log.clock.zone.clone() };
        let clock = Clock { now: log.clock.now, zone };
        scope.compare(&mut reader, log, (from, to), &clock, put)?;
        scope.writers.iter().for_each(|writers| writers.remark_if_unknown(log));
        Ok(())
    }
}

impl Diff {
    /// Fails where both moments are times and the log begins after the second one, of which nothing is known.
    fn is_in_log(&self, reader: &Reader, log: &Log<'_>) -> Result<(), Failure> {
        let time = |at| if let At::Ago(time) | At::Time(time) = at { Some(time) } else { None };
        let (Some(from), Some(to)) = (self.from.and_then(time), self.to.and_then(time)) else { return Ok(()) };
        if from > to {
            return Err(Failure::usage("--from is after --to; swap them"));
        }
        let retained = reader.retained()?;
        let begin = retained.oldest_time.and_then(|time| Timestamp::from_microsecond(time).ok());
        match begin.filter(|begin| to < *begin) {
            Some(begin) => Err(Failure::no(format!(
                "the log begins at {} (entry {}), after {}",
                log.clock.moment(begin),
                retained.oldest,
                log.clock.moment(to)
            ))),
            None => Ok(()),
        }
    }

    fn moments(&self, reader: &mut Reader, log: &Log<'_>) -> Result<(Moment, Moment), Failure> {
        let now = log.clock.now;
        self.is_in_log(reader, log)?;
        let hour_ago = || now.saturating_sub(DEFAULT_PERIOD).unwrap_or(now);
        let from = begin(reader, self.from.unwrap_or_else(|| At::Ago(hour_ago())), log)?;
        let to = match self.to {
            Some(to) => place(reader, to, &log.clock)?,
            None => {
                let seq = reader.head()?;
                // As long as nothing has come since, it is not the time of the newest entry, which is before.
                let now = from.time.filter(|_| from.seq == seq).map(|_| now);
                Moment { seq, time: now }
            }
        };
        if from.seq > to.seq || from.time.zip(to.time).is_some_and(|(from, to)| from > to) {
            return Err(Failure::usage("--from is after --to; swap them"));
        }
        Ok((from, to))
    }
}

/// The first moment: of a time before the log began, the beginning of the log.
fn begin(reader: &mut Reader, at: At, log: &Log<'_>) -> Result<Moment, Failure> {
    let retained = reader.retained()?;
    let begin = retained.oldest_time.and_then(|time| Timestamp::from_microsecond(time).ok());
    if let At::Ago(time) | At::Time(time) = at
        && let Some(begin) = begin.filter(|begin| time < *begin)
    {
        log.remark(&format!(
            "the log begins at {} (entry {}), later than {}; the difference is from there on",
            log.clock.moment(begin),
            retained.oldest,
            log.clock.moment(time)
        ));
        return Ok(Moment { seq: Seq(retained.removed.max(1)), time: Some(begin) });
    }
    let from = place(reader, at, &log.clock)?;
    if from.seq > Seq(0) {
        return Ok(from);
    }
    match begin {
        Some(begin) => Err(Failure::no(format!(
            "the log begins at {} (entry 1), after {}; --from 1 is the earliest",
            log.clock.moment(begin),
            from.spell(&log.clock)
        ))),
        None => Err(Failure::no("the journal has no entries yet")),
    }
}

/// Objects that are compared.
struct Scope {
    resources: Vec<i64>,
    /// None for all of them.
    namespaces: BTreeSet<Option<String>>,
    /// Only these.
    objects: Option<Vec<ObjectRow>>,
    /// Only objects that one of them wrote.
    writers: Option<Writers>,
    areas: Vec<String>,
}

impl Scope {
    fn of(args: &Diff, reader: &Reader) -> Result<Self, Failure> {
        object::namespaces(reader, &args.namespaces)?;
        let writers = Writers::of(&args.by);
        let mut namespaces: BTreeSet<_> = args.namespaces.iter().cloned().map(Some).collect();
        if namespaces.is_empty() {
            namespaces.insert(None);
        }
        if args.objects.is_empty() {
            let resources = reader.resources()?.into_iter().map(|(id, _)| id).collect();
            return Ok(Self { resources, namespaces, objects: None, writers, areas: args.areas.clone() });
        }
        let spellings = Spellings::load(reader)?;
        let (mut resources, mut objects, mut all) = (BTreeSet::new(), Vec::new(), false);
        for text in args.objects.iter().flat_map(|text| text.split(',')) {
            let named = spellings.read(text)?;
            resources.extend(named.resources.iter().map(|(id, _)| *id));
            if named.name.is_some() {
                objects.extend(object::find(reader, "diff", text, &args.namespaces)?);
            } else {
                all = true;
            }
        }
        if all && !objects.is_empty() {
            return Err(Failure::usage("diff takes either resources or single objects, not both at once"));
        }
        let (resources, objects) = (resources.into_iter().collect(), (!all).then_some(objects));
        Ok(Self { resources, namespaces, objects, writers, areas: args.areas.clone() })
    }

    /// Rows of the objects that may differ, by resource, namespace and name.
    fn rows(&self, reader: &Reader, from: Moment) -> Result<Vec<i64>, Failure> {
        let mut rows = Vec::new();
        match &self.objects {
            Some(objects) => rows.extend(objects.iter().cloned()),
            None => {
                for resource in &self.resources {
                    for namespace in &self.namespaces {
                        rows.extend(reader.objects_changed(*resource, namespace.as_deref(), from.seq)?);
                    }
                }
            }
        }
        rows.sort_by_cached_key(|row| (row.resource.full_name(), row.namespace.clone(), row.name.clone()));
        Ok(rows.iter().map(ObjectRow::row).collect())
    }

    fn compare(
        &self,
        reader: &mut Reader,
        log: &Log<'_>,
        (from, to): (Moment, Moment),
        clock: &Clock,
        put: &mut Put<'_, Item>,
    ) -> Result<(), Failure> {
        let (first, second) = (end(reader, from, clock)?, end(reader, to, clock)?);
        let rows = self.rows(reader, from)?;
        let about = self.about(reader, from, to)?;
        let known = log.decided(|| self.reach(reader, log, &about, (from, to)))?;
        put(Item::Begin { from: first, to: second, single: self.objects.is_some(), known })?;
        let (mut passed, mut first_seen, mut uncertain) = (0, 0, 0);
        let classes = Classes::default();
        // One at a time: together they may be large.
        for row in rows {
            if !self.is_written(reader, row, (from, to))? {
                continue;
            }
            let found = difference::between(reader, [row], (from, to), Limits::NONE)?;
            if let Some(failure) = found.unknown.into_iter().next() {
                return Err(failure);
            }
            passed += found.came_and_went;
            first_seen += found.first_seen;
            uncertain += found.uncertain;
            for mut object in found.objects {
                let is_other = |areas: &Vec<String>| !areas.iter().any(|area| self.areas.contains(area));
                if !self.areas.is_empty() && object.areas.as_ref().is_some_and(is_other) {
                    continue;
                }
                let Authors { time, by } = authors_of(reader, &object, &classes)?;
                let (before, after) = (object.before.take().map(Line), object.after.take().map(Line));
                let before = before.filter(|_| object.became == DiffKind::Removed);
                let resource = object.full_name.clone();
                let is_status = is_status(&object, &classes);
                let found = ObjectDiff { difference: object, resource, time, by, is_status, before, after };
                put(Item::Object(Box::new(found)))?;
            }
        }
        let unknown = self.gaps(reader, (from, to), (log, clock), put)?;
        let coverage = log.decided(|| about.coverage(reader, &log.dir, clock))?;
        let mut unknown: Vec<String> = unknown.into_iter().chain(coverage.notes().map(str::to_owned)).collect();
        if first_seen > 0 {
            let objects = plural(first_seen as u64, "object was", "objects were");
            unknown.push(format!("{objects} first seen after --from: compared from there on"));
        }
        if uncertain > 0 {
            let objects = plural(uncertain as u64, "object", "objects");
            unknown.push(format!("{objects} changed at a time that may lie outside; it counts as changed"));
        }
        unknown.dedup();
        unknown.into_iter().try_for_each(|text| put(Item::Unknown(text)))?;
        put(Item::CameAndWent(passed))
    }

    /// Returns how much the log covers of the time between the moments. That of an entry is its time.
    fn reach(
        &self,
        reader: &mut Reader,
        log: &Log<'_>,
        about: &About,
        (from, to): (Moment, Moment),
    ) -> Result<Reach, Failure> {
        if from.seq == to.seq && from.time.is_none() {
            return Ok(Reach::All);
        }
        let time = |place: Moment| match place.time {
            Some(time) => Ok::<_, Failure>(Some(time)),
            None => Ok(reader.time_of(place.seq)?.and_then(|time| Timestamp::from_microsecond(time).ok())),
        };
        let (since, until) = (time(from)?, time(to)?);
        let (resources, namespaces) = (about.resources.clone(), about.namespaces.clone());
        About { resources, namespaces, since, until }.reach(reader, &log.dir, &log.clock)
    }

    /// Reports whether one of the wanted managers or users wrote the object, given by its row, between the moments.
    fn is_written(&self, reader: &mut Reader, row: i64, (from, to): (Moment, Moment)) -> Result<bool, Failure> {
        let Some(writers) = &self.writers else { return Ok(true) };
        let Some(row) = reader.object_with(row)? else { return Ok(false) };
        let from = object::happened_by(reader, &row, from)?.certain.seq;
        let upto = object::happened_by(reader, &row, to)?.possible;
        for step in reader.history(&row, from, upto, usize::MAX)? {
            let Some(stored) = reader.entry_of(&step)? else { continue };
            let sender = object::actor_of(reader, stored.seq)?;
            if writers.wrote(&stored.line, sender.as_ref()) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Hands out the GAPs between the moments. Returns sentences about moments that lie in one.
    fn gaps(
        &self,
        reader: &mut Reader,
        (from, to): (Moment, Moment),
        (log, clock): (&Log<'_>, &Clock),
        put: &mut Put<'_, Item>,
    ) -> Result<Vec<String>, Failure> {
        let mut concerned = BTreeSet::new();
        match &self.objects {
            Some(objects) => concerned.extend(objects.iter().map(|row| (row.resource_id, Some(row.namespace.clone())))),
            None => {
                for namespace in &self.namespaces {
                    concerned.extend(self.resources.iter().map(|resource| (*resource, namespace.clone())));
                }
            }
        }
        let names = names(reader)?;
        let (mut seen, mut unknown) = (BTreeSet::new(), Vec::new());
        for (resource, namespace) in concerned {
            for stored in log.decided(|| Ok(reader.gaps(resource, namespace.as_deref(), from.seq)?))? {
                let entry = object::parse(&stored)?;
                let (Some(gap), true) = (entry.gap(), stored.seq <= to.seq && seen.insert(stored.seq)) else {
                    continue;
                };
                let (seq, resource) = (stored.seq.0, entry.resource.to_string());
                put(Item::Gap(Box::new(Hole { seq, resource, gap, entry: stored.clone().into() })))?;
            }
            for (name, place) in [("--from", from), ("--to", to)] {
                let doubt = log.decided(|| doubt(reader, (resource, namespace.as_deref()), place, clock))?;
                if let Some(doubt) = doubt {
                    unknown.push(format!("{name} lies in a gap of {}: {doubt}", names[&resource]));
                }
            }
        }
        Ok(unknown)
    }

    fn about(&self, reader: &Reader, from: Moment, to: Moment) -> Result<About, Failure> {
        let names = names(reader)?;
        let of_objects = |objects: &Vec<ObjectRow>| objects.iter().map(|row| row.resource_id).collect();
        let resources: BTreeSet<i64> =
            self.objects.as_ref().map_or_else(|| self.resources.iter().copied().collect(), of_objects);
        Ok(About {
            resources: Some(resources.iter().filter_map(|id| names.get(id).cloned()).collect()),
            namespaces: match &self.objects {
                Some(objects) => objects.iter().flat_map(ObjectRow::namespaces).collect(),
                None => self.namespaces.iter().flatten().cloned().collect(),
            },
            since: from.time,
            until: to.time,
        })
    }
}

/// Number of the newest entries of an object whose writers are named.
const MOST_READ: usize = 100;

/// Writers of an object between two moments, and the time of the last change that is worth one.
struct Authors {
    time: i64,
    by: Vec<String>,
}

/// Returns who made what differs: writers of the status alone where nothing else changed.
fn authors_of(reader: &mut Reader, found: &ObjectDifference, classes: &Classes) -> Result<Authors, Failure> {
    let (mut whole, mut of_status) = (BTreeSet::new(), BTreeSet::new());
    let mut last: Option<i64> = None;
    for seq in found.entries.iter().rev().take(MOST_READ) {
        let Some(stored) = reader.entry(Seq(*seq))? else { continue };
        let entry = object::parse(&stored)?;
        let names = authors(&entry).into_iter().map(|author| author.manager);
        let change = Change::of(&entry).map_err(|error| object::damaged(stored.seq, &error))?;
        let class = change.map(|change| classes.of(&entry.full_resource(), &change, entry.time.parse().ok()));
        if class.is_some_and(|class| class == Class::Status || class.is_no_op()) {
            of_status.extend(names);
            continue;
        }
        last = last.or(Some(object::when(&entry).as_microsecond()));
        whole.extend(names);
        // What went was nobody's to whom it belonged before.
        if entry.op == EntryType::Deleted {
            break;
        }
    }
    let by = if last.is_some() { whole } else { of_status };
    Ok(Authors { time: last.unwrap_or(found.time), by: by.into_iter().collect() })
}

/// Reports whether an object differs in nothing that somebody outside its controllers writes.
fn is_status(found: &ObjectDifference, classes: &Classes) -> bool {
    let (DiffKind::Changed, Some(areas), Some(patch)) = (found.became, &found.areas, &found.patch) else {
        return false;
    };
    let Ok(patch) = serde_json::from_str(patch.get()) else { return false };
    let change = Change { areas: areas.clone(), patch, managers: Vec::new() };
    let class = classes.of(&found.full_name, &change, None);
    class == Class::Status || class.is_no_op()
}

/// Full names of the resources, by their ids.
fn names(reader: &Reader) -> Result<BTreeMap<i64, String>, Failure> {
    Ok(reader.resources()?.into_iter().map(|(id, resource)| (id, resource.full_name())).collect())
}

fn end(reader: &mut Reader, place: Moment, clock: &Clock) -> Result<End, Failure> {
    let time = match (place.time, reader.entry(place.seq)?) {
        (Some(time), _) => Some(time),
        (None, Some(stored)) => object::parse(&stored)?.time.parse().ok(),
        (None, None) => None,
    };
    Ok(End { seq: place.seq.0, time: time.map_or_else(String::new, |time| clock.moment(time)) })
}
