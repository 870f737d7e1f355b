//! The history of one object, newest first, over all its incarnations; and of what it owns.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::rewritten::is_part;
use super::why::behind::origin;
use crate::core::k8s::bookkeeping;
use crate::core::k8s::managed_fields::Manager;
use crate::core::model::{EntryType, Seq};
use crate::core::spelling::nearest;
use crate::core::wire::{Change, Entry, ROW};
use crate::journal::{EntryFilter, EntryQuery, ObjectRow, Reader, Step, StoredEntry};
use crate::query::churn::Classes;
use crate::query::coverage_notes::About;
use crate::query::line::Line;
use crate::query::moment::{Known, Span};
use crate::query::provenance::Provenance;
use crate::query::render::names::kind;
use crate::query::render::{Failure, object};
use crate::query::select::{Conditions, Filters};
use crate::query::{Log, Put, Question, ownership};

/// Asks for the history of an object.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct History {
    /// KIND/NAME.
    pub(crate) object: String,
    /// Conditions on the entries.
    pub(crate) only: Filters,
    /// Also of everything that it owns.
    pub(crate) tree: bool,
    /// Makes one item of a run of changes that were not asked for explicitly.
    pub(crate) folds: bool,
    /// Areas of which an entry changed one; all if there are none.
    pub(crate) areas: Vec<String>,
    /// Number of the newest items.
    pub(crate) last: Option<usize>,
    /// Oldest first.
    pub(crate) reverse: bool,
    /// Also says where each change comes from.
    pub(crate) origins: bool,
}

/// A part of the answer.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Item {
    /// What the answer is about.
    Begin(Family),
    /// An entry, and the place of its object in the family; none for a GAP. The ACTOR of an entry comes right before it.
    One(Line, Option<usize>),
    /// The ACTOR before it is doubtful: events of the time of its entry are missing in the audit log.
    Doubtful,
    /// What is behind the entry that comes next, as `why` has it.
    Origin(Box<Provenance>),
    /// Several changes of the status, or storage rewrites.
    Run(Box<Run>),
    /// The end of what is kept, as a sentence.
    Removed(String),
}

/// The object, and with `tree` those that it owns.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Family {
    /// The newest seq of the log.
    pub(crate) head: Seq,
    /// `deployments.apps/web in namespace shop`
    pub(crate) object: String,
    /// The uid of its newest incarnation.
    pub(crate) uid: String,
    /// `deploy/web` for each member, the object first.
    pub(crate) members: Vec<String>,
}

/// Changes of the status, or storage rewrites of objects, newest first, as one item.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(crate) newest: Line,
    /// They are storage rewrites, of each object one.
    #[serde(default)]
    pub(crate) is_rewrite: bool,
    /// Place of its object in the family.
    pub(crate) member: usize,
    pub(crate) count: usize,
    /// Time at which the oldest was recorded.
    pub(crate) since: String,
    pub(crate) managers: Vec<Manager>,
    pub(crate) objects: BTreeSet<usize>,
}

impl Run {
    fn new(newest: StoredEntry, is_rewrite: bool, member: usize, since: String, managers: Vec<Manager>) -> Self {
        let objects = BTreeSet::from([member]);
        Self { newest: newest.into(), is_rewrite, member, count: 1, since, managers, objects }
    }

    /// Reports whether a change of an object goes on with the run.
    fn goes_on(&self, is_rewrite: bool, member: usize) -> bool {
        self.is_rewrite == is_rewrite && !(is_rewrite && self.objects.contains(&member))
    }

    fn add(&mut self, member: usize, time: &str, managers: Vec<Manager>) {
        self.count += 1;
        time.clone_into(&mut self.since);
        self.objects.insert(member);
        for manager in managers {
            if !self.managers.iter().any(|known| known.manager == manager.manager) {
                self.managers.push(manager);
            }
        }
    }
}

/// Annotations in which the controller of Deployments keeps its bookkeeping, such as the revision.
const NOTED: &str = "/metadata/annotations/deployment.kubernetes.io~1";

impl History {
    /// Reports whether a run of such changes is one line: changes of the status alone that were not asked for explicitly. The
    /// annotations of the Deployment controller come with every rollout, and count as status.
    fn folds(&self, entry: &Entry<'_>, change: &Change<'_>) -> bool {
        let asked = self.only.picks() || self.areas.iter().any(|area| area == "status");
        let is_noted =
            |path: &str| !path.starts_with("/metadata/") || path.starts_with(NOTED) || bookkeeping::is_book(path);
        // Where redaction has dropped what changed, nothing here says what that was.
        let notes = || {
            let mut paths = change.patch.iter().map(|op| &*op.path);
            paths.clone().any(|path| path.starts_with(NOTED)) && paths.all(is_noted)
        };
        let areas = || change.areas.iter().map(String::as_str);
        let is_status = |area: &str| area == "status" || area == "metadata" && notes();
        entry.op == EntryType::Modified
            && !asked
            && areas().any(is_status)
            && areas().all(|area| area == "managedFields" || is_status(area))
    }

    /// Returns the sentence for an `--only` that no entry matched.
    fn no_such_area(&self, areas: &BTreeSet<String>) -> Option<String> {
        let wanted = self.areas.iter().find(|wanted| !areas.contains(*wanted))?;
        let known = || areas.iter().map(String::as_str);
        let hint = match nearest(wanted, known()) {
            Some(near) => format!("; did you mean {near}?"),
            None if areas.is_empty() => String::new(),
            None => format!("; the changes here are of {}", known().collect::<Vec<_>>().join(", ")),
        };
        Some(format!("--only: no change here is of {wanted}{hint}"))
    }

    /// Reports whether an entry is selected.
    fn keeps(&self, entry: &Entry<'_>, areas: &[String]) -> bool {
        self.areas.is_empty()
            || entry.op != EntryType::Modified
            || areas.iter().any(|area| self.areas.iter().any(|wanted| wanted == area))
    }
}

/// Event that is printed.
enum Event {
    /// An entry of the object with this place in the family.
    Entry(usize),
    /// A gap.
    Gap(StoredEntry),
}

impl Question for History {
    const NAME: &'static str = "log";
    type Item = Item;

    /// # Errors
    /// Exit 1 where the journal has no entry of the object, and 64 where the name is that of several.
    fn answer(self, log: &Log<'_>, put: &mut Put<'_, Item>) -> Result<(), Failure> {
        let mut reader = log.open()?;
        let filter = self.only.compile()?;
        if let Some(filter) = &filter {
            filter.look_for_typos(&reader, log)?;
        }
        self.only.check(&mut reader, &log.clock)?;
        let rows = object::find(&reader, "log", &self.object, &self.only.namespaces)?;
        let root = object::only(&self.object, rows)?;
        if root.last == Seq(0) {
            return Err(Failure::no(object::not_yet(&mut reader, &root, None, &log.clock)?));
        }
        let family = if self.tree { ownership::family(&mut reader, root)? } else { vec![root] };
        let about = About {
            resources: Some(family.iter().map(|row| row.resource.full_name()).collect()),
            namespaces: family[0].namespaces(),
            since: self.only.since,
            until: self.only.until,
        };
        let coverage = about.coverage(&mut reader, &log.dir, &log.clock)?;
        // Where entries are chosen by what they say, or were journaled later, nobody knows how many have to be looked at.
        let chosen = filter.is_some() || !self.only.types.is_empty() || self.only.until.is_some();
        let most = self.last.filter(|_| !chosen && !self.folds && self.areas.is_empty()).unwrap_or(usize::MAX);
        let events = events(&mut reader, &family, &self.only, most)?;
        let events = if self.tree { by_time(&mut reader, events)? } else { events.into_iter().collect() };
        let object = family[0].spell();
        put(Item::Begin(Family {
            head: reader.head()?,
            object: object.clone(),
            uid: family[0].uid.clone(),
            members: family.iter().map(|row| format!("{}/{}", kind(&row.resource), row.name)).collect(),
        }))?;
        let mut walk = Walk {
            question: &self,
            filter: filter.as_ref(),
            left: self.last.unwrap_or(usize::MAX),
            run: None,
            classes: Classes::default(),
            rows: &family,
            areas: BTreeSet::new(),
            reversed: Vec::new(),
            count: 0,
        };
        walk.over(&mut reader, &events, log, put)?;
        let retained = reader.retained()?;
        let removed = format!("retention has removed what was before entry {}", retained.oldest);
        let removed = Some(removed).filter(|_| walk.left > 0 && retained.removed > 0);
        if self.reverse {
            removed.clone().map_or(Ok(()), |removed| put(Item::Removed(removed)))?;
            walk.back(&mut reader, log, put)?;
        } else {
            removed.map_or(Ok(()), |removed| put(Item::Removed(removed)))?;
        }
        if let Some(note) = self.no_such_area(&walk.areas) {
            log.remark(&note);
        }
        if walk.count == 0 && self.last != Some(0) {
            about.note_nothing(&format!("no entry of {object}"), &coverage, &mut reader, log)?;
        }
        filter.iter().for_each(|filter| filter.remark_unknown(log));
        coverage.remark(log);
        Ok(())
    }
}

/// A walk over the events, newest first.
struct Walk<'q> {
    question: &'q History,
    filter: Option<&'q Conditions>,
    /// Number of items that are still wanted.
    left: usize,
    run: Option<Run>,
    classes: Classes,
    /// The objects.
    rows: &'q [ObjectRow],
    /// Areas that entries changed, wanted or not.
    areas: BTreeSet<String>,
    /// Items that are handed out in the end, the other way round.
    reversed: Vec<Kept>,
    /// Number of items.
    count: usize,
}

/// An item that is handed out later.
enum Kept {
    /// An entry that is read again.
    One(Seq, Option<usize>),
    Run(Run),
}

impl Walk<'_> {
    fn over(
        &mut self,
        reader: &mut Reader,
        events: &[(Seq, Event)],
        log: &Log<'_>,
        put: &mut Put<'_, Item>,
    ) -> Result<(), Failure> {
        for (seq, event) in events.iter().rev() {
            if self.left == 0 && self.run.is_none() {
                break;
            }
            let stored = self.read(reader, *seq, event)?;
            if let Some(filter) = self.filter {
                filter.remark(log);
            }
            let Some(stored) = stored else { continue };
            let entry = object::parse(&stored)?;
            let change = Change::of(&entry).map_err(|error| object::damaged(stored.seq, &error))?.unwrap_or_default();
            self.areas.extend(change.areas.iter().cloned());
            if !self.question.keeps(&entry, &change.areas) {
                continue;
            }
            let member = match event {
                Event::Gap(_) => None,
                Event::Entry(member) => Some(*member),
            };
            let is_rewrite = match member.filter(|_| self.question.folds) {
                Some(member) => is_part(reader, &self.classes, &self.rows[member], &stored)?,
                None => false,
            };
            let folds = is_rewrite || self.question.folds && self.question.folds(&entry, &change);
            if let Some(member) = member.filter(|_| folds) {
                if self.run.as_ref().is_some_and(|run| !run.goes_on(is_rewrite, member)) {
                    self.end_run(put)?;
                }
                match &mut self.run {
                    Some(run) => run.add(member, &entry.time, change.managers),
                    None if self.left == 0 => break,
                    None => {
                        self.left -= 1;
                        let time = entry.time.to_string();
                        self.run = Some(Run::new(stored.clone(), is_rewrite, member, time, change.managers));
                    }
                }
                continue;
            }
            self.end_run(put)?;
            if self.left == 0 {
                break;
            }
            self.left -= 1;
            self.count += 1;
            if self.question.reverse {
                self.reversed.push(Kept::One(*seq, member));
            } else {
                self.put_one(reader, log, stored, member, put)?;
            }
        }
        self.end_run(put)
    }

    fn read(&self, reader: &mut Reader, seq: Seq, event: &Event) -> Result<Option<StoredEntry>, Failure> {
        let choice = self.filter.filter(|filter| filter.asks_only_for(&ROW));
        let choice = choice.map(|filter| |line: &[u8]| filter.is_true_for(line));
        let stored = match event {
            Event::Gap(stored) => Some(stored.clone()),
            // What is gone by now was among the oldest.
            Event::Entry(_) => {
                let choice = choice.as_ref().map(|choice| choice as EntryFilter<'_>);
                let one =
                    reader.select(&EntryQuery::default(), (Seq(seq.0 - 1), Some(seq.next())), false, 1, choice)?;
                one.entries.into_iter().next()
            }
        };
        match (stored, self.filter) {
            (Some(stored), Some(filter)) => Ok(filter.select(reader, &stored)?.then_some(stored)),
            (stored, _) => Ok(stored),
        }
    }

    fn end_run(&mut self, put: &mut Put<'_, Item>) -> Result<(), Failure> {
        let Some(run) = self.run.take() else { return Ok(()) };
        self.count += 1;
        if self.question.reverse {
            self.reversed.push(Kept::Run(run));
            return Ok(());
        }
        put(Item::Run(Box::new(run)))
    }

    /// Hands out what was kept, oldest first.
    fn back(&mut self, reader: &mut Reader, log: &Log<'_>, put: &mut Put<'_, Item>) -> Result<(), Failure> {
        for kept in std::mem::take(&mut self.reversed).into_iter().rev() {
            match kept {
                Kept::One(seq, member) => {
                    // It may have been removed meanwhile.
                    if let Some(stored) = reader.entry(seq)? {
                        self.put_one(reader, log, stored, member, put)?;
                    }
                }
                Kept::Run(run) => put(Item::Run(Box::new(run)))?,
            }
        }
        Ok(())
    }

    /// Hands out an entry if its type is wanted, and before it its ACTOR if that is wanted or stands beside the entry, and what is
    /// behind it.
    fn put_one(
        &self,
        reader: &mut Reader,
        log: &Log<'_>,
        stored: StoredEntry,
        member: Option<usize>,
        put: &mut Put<'_, Item>,
    ) -> Result<(), Failure> {
        let types = &self.question.only.types;
        let is_wanted = types.is_empty() || types.contains(&stored.op);
        let row = member.and_then(|member| self.rows.get(member));
        if row.is_some()
            && let Some(actor) = reader.actor_of(stored.seq)?
        {
            let sender = object::parse(&actor)?.actor();
            let is_doubtful = match &sender {
                Some(sender) => object::is_doubtful(reader, &stored, sender)?,
                None => false,
            };
            put(Item::One(actor.into(), member))?;
            if is_doubtful {
                put(Item::Doubtful)?;
            }
        }
        if !is_wanted {
            return Ok(());
        }
        if let Some(row) = row.filter(|_| self.question.origins)
            && let Some(found) = log.decided(|| origin(reader, &log.clock, row, &stored))?
        {
            put(Item::Origin(Box::new(found)))?;
        }
        put(Item::One(stored.into(), member))
    }
}

/// Place of an event in time: its second, the number of gaps up to it, whether it is of the status alone, and its object.
type Place = (i64, usize, bool, usize);

/// The events in the order in which they happened, as far as the objects say: of an outage the watches of two resources
/// tell one after the other, and of one resource in its order. Each watch comes at its own pace, so within a second a cause comes
/// before its effects: what owns before what it owns, and what moves a generation before the status of it.
fn by_time(reader: &mut Reader, events: BTreeMap<Seq, Event>) -> Result<Vec<(Seq, Event)>, Failure> {
    let mut placed = Vec::with_capacity(events.len());
    let mut newest: BTreeMap<usize, Place> = BTreeMap::new();
    let mut gaps = 0;
    for (seq, event) in events {
        let (member, stored) = match &event {
            Event::Gap(stored) => (usize::MAX, Some(stored.clone())),
            Event::Entry(member) => (*member, reader.entry(seq)?),
        };
        gaps += usize::from(member == usize::MAX);
        let mut place = (i64::MIN, gaps, false, 0);
        if let Some(stored) = stored {
            let entry = object::parse(&stored)?;
            let span = Span::of(&entry);
            place.0 = span.earliest.as_second();
            if span.is != Known::Between && member != usize::MAX {
                (place.2, place.3) = (is_of_status(&entry), member);
            }
        }
        // Entries of one object stay in their order.
        let last = newest.entry(member).or_insert(place);
        *last = (*last).max(place);
        placed.push(((*last, seq), event));
    }
    placed.sort_by_key(|(place, _)| *place);
    Ok(placed.into_iter().map(|((_, seq), event)| (seq, event)).collect())
}

/// Reports whether an entry changed the status, and nothing that moves a generation.
fn is_of_status(entry: &Entry<'_>) -> bool {
    let Ok(Some(change)) = Change::of(entry) else { return false };
    let has = |name: &str| change.areas.iter().any(|area| area == name);
    has("status") && change.areas.iter().all(|area| ["status", "metadata", "managedFields"].contains(&area.as_ref()))
}

/// The entries of these objects, of each at most so many, and the gaps in their lives, by seq.
fn events(
    reader: &mut Reader,
    family: &[ObjectRow],
    only: &Filters,
    most: usize,
) -> Result<BTreeMap<Seq, Event>, Failure> {
    let wanted = |kind: EntryType| only.types.is_empty() || only.types.contains(&kind);
    let period = only.period();
    let stretches = period.stretches(reader)?;
    let (after, upto) = (stretches.begin(), stretches.end());
    let is_bounded = only.since.is_some() || only.until.is_some();
    let mut events = BTreeMap::new();
    // Of each source the part of the log in which its gaps concern somebody.
    let mut lives: BTreeMap<(i64, &str), (Seq, Seq)> = BTreeMap::new();
    for (member, row) in family.iter().enumerate() {
        let history = reader.history(row, after, upto, most)?;
        // Of a time that is asked for: what is not known of the name, also before the object that the log knows, and after it.
        let is_asked = member == 0 && is_bounded;
        let began = match history.last() {
            _ if is_asked => after.next(),
            None if row.present => after.next(),
            None => continue,
            Some(oldest) if history.len() == most => oldest.seq,
            Some(oldest) if oldest.previous > Seq(0) && after > Seq(0) => after.next(),
            Some(oldest) => began(reader, row, oldest)?,
        };
        let ended = if row.present || is_asked { Seq(u64::MAX) } else { row.last };
        let life = lives.entry((row.resource_id, &row.namespace)).or_insert((Seq(u64::MAX), Seq(0)));
        *life = (life.0.min(began), life.1.max(ended));
        let is_wanted = |step: &&Step| wanted(step.op) || wanted(EntryType::Actor);
        for step in history.iter().filter(is_wanted).filter(|step| stretches.has(step.seq)) {
            let stored = if is_bounded { reader.entry_of(step)? } else { None };
            if stored.is_none_or(|stored| period.has(&stored.line)) {
                events.insert(step.seq, Event::Entry(member));
            }
        }
    }
    for ((resource, namespace), (from, to)) in lives {
        for gap in reader.gaps(resource, Some(namespace), Seq(from.0.saturating_sub(1)))? {
            let of_family = || family.iter().any(|row| row.resource_id == resource && object::concerns(&gap, row));
            if gap.seq <= to && wanted(EntryType::Gap) && period.has(&gap.line) && of_family() {
                events.insert(gap.seq, Event::Gap(gap));
            }
        }
    }
    Ok(events)
}

/// From where on gaps concern an object, of which this is the first entry. Where it came to be in a gap, the GAP stands
/// right before it.
fn began(reader: &mut Reader, row: &ObjectRow, first: &Step) -> Result<Seq, Failure> {
    let Some(stored) = reader.entry_of(first)? else { return Ok(first.seq) };
    if object::parse(&stored)?.evidence.as_deref() != Some("inferred") {
        return Ok(first.seq);
    }
    let gaps = reader.gaps(row.resource_id, Some(&row.namespace), Seq(0))?;
    let concerned = gaps.iter().filter(|gap| object::concerns(gap, row));
    Ok(concerned.map(|gap| gap.seq).filter(|gap| *gap < first.seq).last().unwrap_or(first.seq))
}
