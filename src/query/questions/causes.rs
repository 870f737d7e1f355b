//! What changed in some namespaces, or everywhere: causes, and below each of them what controllers made of it.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};

use crate::core::k8s::audited::Actor;
use crate::core::model::{EntryType, Resource, Seq};
use crate::core::wire::{Change, Entry};
use crate::journal::{Reader, StoredEntry};
use crate::query::causes::{Facts, Group, Object, Role, concerns};
use crate::query::coverage::Uncovered;
use crate::query::coverage_notes::About;
use crate::query::line::Line;
use crate::query::ownership;
use crate::query::render::row::plural;
use crate::query::render::{Failure, object};
use crate::query::rewrites::{MANY, Rewrite};
use crate::query::select::{Conditions, Filters, Select, Selection};
use crate::query::{Log, Put, Question, stamp};

/// Time that is looked at where nobody says since when.
const DEFAULT_PERIOD: SignedDuration = SignedDuration::from_hours(1);
/// Number of entries that are read, the newest: what is kept of each is some hundred bytes.
const MOST_READ: usize = 200_000;
/// Number of entries that are handed out below one cause.
const MOST_BELOW: usize = 10_000;
/// Number of entries of one line whose senders are looked for, the newest.
const MOST_SENT: usize = 200;

/// Asks what changed.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Causes {
    /// Conditions on the entries, and the namespaces; everywhere if there are none.
    pub(crate) only: Filters,
    /// Areas of which a change changed one; all if there are none.
    pub(crate) areas: Vec<String>,
    /// Each change by itself.
    pub(crate) all: bool,
    /// Also the entries below each cause.
    pub(crate) below: bool,
    /// Number of the newest causes.
    pub(crate) last: Option<usize>,
    /// Oldest first.
    pub(crate) reverse: bool,
}

/// A part of the answer.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Item {
    /// The newest seq, and the resources that the journal knows.
    Begin { head: Seq, resources: Vec<Resource> },
    /// Changes that are one line.
    Group(Box<Changes>),
    /// An entry of the group before, oldest first, other than the one that it shows.
    Below(Line),
    /// A GAP.
    Gap(Line),
    /// A part of the time that the log does not cover. A sentence beside the answer says it as well.
    Unknown(Box<Uncovered>),
}

/// Changes that are one line.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Changes {
    pub(crate) role: Role,
    /// Newest of the entries that it is about; none where these have no known cause.
    pub(crate) entry: Option<Line>,
    /// Number of these entries.
    pub(crate) count: usize,
    /// Times of the first and the last of them.
    pub(crate) since: String,
    pub(crate) until: String,
    /// Names of their writers.
    pub(crate) by: Vec<String>,
    /// Senders of their requests, as the audit log has them: each user once, of the newest of these entries first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) actors: Vec<Actor>,
    /// Their objects, in the order in which they are shown, at most [`MOST_NAMED`] of them.
    pub(crate) objects: Vec<Named>,
    /// Number of their objects. Incarnations of one name are one.
    pub(crate) of: usize,
    /// True if the entry creates an object of a name that an earlier incarnation had.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) again: bool,
    /// The owner of their objects, where they have no known cause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) owner: Option<Named>,
    /// Number of objects by resource, where they have no known cause.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) resources: BTreeMap<String, usize>,
    /// What follows from them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) folded: Option<Folded>,
    /// The storage rewrite that they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) rewrite: Option<Rewrite>,
}

/// Number of objects that a group names.
pub(crate) const MOST_NAMED: usize = 20;

/// An object.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Named {
    pub(crate) resource: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// Number of its incarnations that changed.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub(crate) incarnations: usize,
}

const fn one() -> usize {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives it")]
const fn is_one(count: &usize) -> bool {
    *count == 1
}

/// What follows from a cause.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Folded {
    /// Number of changes.
    pub(crate) count: usize,
    /// True if all of them are of the objects of the cause.
    pub(crate) is_own: bool,
    /// Number of objects, by resource.
    pub(crate) resources: BTreeMap<String, usize>,
    /// Time of the last of them.
    pub(crate) until: String,
}

impl From<&Object> for Named {
    fn from(object: &Object) -> Self {
        let Object { resource, namespace, name, .. } = object;
        Self { resource: resource.clone(), namespace: namespace.clone(), name: name.clone(), incarnations: 1 }
    }
}

/// The members of an entry that its row in the journal has too.
#[derive(Deserialize)]
struct Row {
    #[serde(rename = "type")]
    op: String,
    kind: String,
}

/// What is read of the log.
#[derive(Default)]
struct Read {
    facts: Facts,
    /// GAPs, newest first.
    gaps: Vec<StoredEntry>,
    /// Renewals of Leases, which are not read.
    leases: usize,
    /// Seq before which entries are left out, as there are too many.
    cut: Option<Seq>,
    /// Areas that entries changed.
    areas: BTreeSet<String>,
}

impl Question for Causes {
    const NAME: &'static str = "causes";
    type Item = Item;

    /// # Errors
    /// Where the journal cannot be read, or the question names what it does not know.
    fn answer(mut self, log: &Log<'_>, put: &mut Put<'_, Item>) -> Result<(), Failure> {
        let mut reader = log.open()?;
        self.begin(log);
        let conditions = self.only.compile()?;
        if let Some(conditions) = &conditions {
            conditions.look_for_typos(&reader, log)?;
        }
        self.only.check(&mut reader, &log.clock)?;
        let about = About {
            resources: None,
            namespaces: self.only.namespaces.clone(),
            since: self.only.since,
            until: self.only.until,
        };
        let coverage = about.coverage(&mut reader, &log.dir, &log.clock)?;
        let head = reader.head()?;
        let mut read = self.read(&mut reader, conditions.as_ref(), log)?;
        learn_owners(&mut reader, &mut read.facts)?;
        let resources = reader.resources()?.into_iter().map(|(_, resource)| resource).collect();
        put(Item::Begin { head, resources })?;
        let (count, hidden) = self.put(&mut reader, &mut read, put)?;
        if let Some(cut) = read.cut {
            log.remark(&format!(
                "showing the newest {MOST_READ} entries, from entry {cut} on; use a later --since or a namespace to read less"
            ));
        }
        if let Some(wanted) = self.areas.iter().find(|area| !read.areas.contains(*area)) {
            log.remark(&format!(
                "--only: no change here is of {wanted}; {}",
                object::nearest_or_all(wanted, &read.areas)
            ));
        }
        if hidden > 0 && self.last != Some(0) {
            note_hidden(hidden, count == 0, log);
        } else if count == 0 && self.last != Some(0) {
            if head == Seq(0) {
                log.note("the journal has no entries yet");
            } else {
                about.note_nothing("no change", &coverage, &mut reader, log)?;
            }
        }
        if let Some(conditions) = &conditions {
            conditions.remark(log);
            conditions.remark_unknown(log);
        }
        let covered = log.decided(|| about.covered(&mut reader, &log.dir, &log.clock))?;
        // GAPs are among the groups.
        let mut others = covered.uncovered.into_iter().filter(|one| one.seq.is_none());
        others.try_for_each(|one| put(Item::Unknown(Box::new(one))))?;
        coverage.remark(log);
        Ok(())
    }
}

/// Says how many changes fit and are not shown, because they follow from others or have no known cause.
fn note_hidden(hidden: usize, is_all: bool, log: &Log<'_>) {
    let count = plural(hidden as u64, "change", "changes");
    let they = if hidden == 1 { "it follows" } else { "they follow" };
    if is_all {
        log.note(&format!(
            "{count} of controllers match, and no cause: {they} from other changes; --all shows each change by itself"
        ));
    } else {
        let more = plural(hidden as u64, "more change", "more changes");
        log.remark(&format!("{more} of controllers match, and are not shown: {they} from changes that do not match; --all shows each change by itself"));
    }
}

impl Causes {
    /// Chooses the time where the question names none.
    fn begin(&mut self, log: &Log<'_>) {
        if self.only.since.is_some() || self.last.is_some() {
            return;
        }
        let until = self.only.until.unwrap_or(log.clock.now);
        let since = until.saturating_sub(DEFAULT_PERIOD).unwrap_or(until);
        self.only.since = Some(since);
        log.remark(&format!(
            "changes since {}, of an hour; --since WHEN asks for another time",
            log.clock.moment(since)
        ));
    }

    /// Reads the entries of the time, the newest first.
    fn read(&self, reader: &mut Reader, conditions: Option<&Conditions>, log: &Log<'_>) -> Result<Read, Failure> {
        let only = Filters {
            namespaces: self.only.namespaces.clone(),
            since: self.only.since,
            until: self.only.until,
            ..Filters::default()
        };
        let leases = Cell::new(0);
        let select = Select { only, ..Select::default() };
        let selection = Selection::new(&select, reader, log)?.with_cluster_scoped();
        let counts = |line: &[u8]| {
            let is_lease = serde_json::from_slice::<Row>(line).is_ok_and(|row| row.op != "GAP" && row.kind == "Lease");
            leases.set(leases.get() + usize::from(is_lease));
            !is_lease
        };
        // A Lease is renewed all the time, and is not even read where nobody asks for it.
        let skips = !self.all && !self.picks();
        let (begin, head) = (selection.begin(), reader.head()?);
        let (mut before, mut read) = (head.next(), Read::default());
        read.facts = Facts::among(reader.small_resources(MANY)?);
        while before > begin.next() {
            if read.facts.len() + read.gaps.len() >= MOST_READ {
                read.cut = Some(before);
                break;
            }
            if log.is_gone() {
                break;
            }
            let (entries, reached) = selection.page_back_of(reader, begin, before, skips.then_some(&counts))?;
            for stored in entries {
                let is_selected = conditions.map_or(Ok(true), |conditions| conditions.select(reader, &stored))?;
                self.take(stored, is_selected, &mut read)?;
            }
            before = reached;
        }
        read.leases = leases.get();
        Ok(read)
    }

    fn take(&self, stored: StoredEntry, is_selected: bool, read: &mut Read) -> Result<(), Failure> {
        let entry = object::parse(&stored)?;
        if entry.op == EntryType::Gap {
            if is_selected && self.is_of_type(entry.op) {
                read.gaps.push(stored);
            }
            return Ok(());
        }
        // It says who made another entry.
        if entry.op == EntryType::Actor {
            return Ok(());
        }
        let is_elsewhere = entry.namespace.is_none() && !self.only.namespaces.is_empty();
        if is_elsewhere && !concerns(&entry, &self.only.namespaces) {
            return Ok(());
        }
        let is_wanted = is_selected && self.is_of_type(entry.op) && self.is_of_area(&entry, &mut read.areas);
        read.facts.take(&entry, is_wanted).map_err(|error| object::damaged(stored.seq, &error))
    }

    fn is_of_type(&self, op: EntryType) -> bool {
        self.only.types.is_empty() || self.only.types.contains(&op)
    }

    fn is_of_area(&self, entry: &Entry<'_>, seen: &mut BTreeSet<String>) -> bool {
        if self.areas.is_empty() || entry.op != EntryType::Modified {
            return true;
        }
        let areas = Change::of(entry).ok().flatten().unwrap_or_default().areas;
        let is_wanted = areas.iter().any(|area| self.areas.contains(area));
        seen.extend(areas);
        is_wanted
    }

    /// Reports whether entries are chosen by more than their time and place: then each that fits is shown.
    fn picks(&self) -> bool {
        self.only.picks() || !self.only.types.is_empty() || !self.areas.is_empty()
    }

    /// Hands out the lines. Returns their number, and the number of changes that fit and are shown neither by a line nor below one.
    fn put(&self, reader: &mut Reader, read: &mut Read, put: &mut Put<'_, Item>) -> Result<(usize, usize), Failure> {
        let facts = std::mem::take(&mut read.facts);
        if self.all {
            return Ok((self.put_all(reader, &facts.wanted(), &read.gaps, put)?, 0));
        }
        let found = facts.groups();
        let mut hidden = found.hidden;
        let mut lines: Vec<(Seq, Shown<'_>)> = read.gaps.iter().map(|gap| (gap.seq, Shown::Gap(gap))).collect();
        let (mut causes, mut others) = (Vec::new(), Vec::new());
        for group in &found.groups {
            let newest = group.writes.last().copied().unwrap_or_default();
            if matches!(group.role, Role::Cause | Role::Rewrite) {
                causes.push((newest, group));
            } else {
                others.push((newest, group));
            }
        }
        lines.extend(causes.into_iter().map(|(seq, group)| (seq, Shown::Group(group))));
        lines.sort_by_key(|(seq, _)| std::cmp::Reverse(*seq));
        if let Some(last) = self.last {
            // Where there are causes, the newest of them are all that is asked for.
            if lines.is_empty() {
                hidden += others.iter().map(|(_, group)| group.writes.len()).sum::<usize>();
            }
            lines.truncate(last);
            others.clear();
        }
        if self.reverse {
            lines.reverse();
        }
        lines.extend(others.into_iter().map(|(seq, group)| (seq, Shown::Group(group))));
        for (_, shown) in &lines {
            match shown {
                Shown::Gap(gap) => put(Item::Gap(Line((*gap).clone())))?,
                Shown::Group(group) => self.put_group(reader, group, &found.objects, put)?,
            }
        }
        if read.leases > 0 && self.last.is_none() {
            put(Item::Group(Box::new(renewals(read.leases))))?;
        }
        Ok((lines.len() + read.leases, hidden))
    }

    /// Hands out each change by itself.
    fn put_all(
        &self,
        reader: &mut Reader,
        wanted: &[Seq],
        gaps: &[StoredEntry],
        put: &mut Put<'_, Item>,
    ) -> Result<usize, Failure> {
        let mut seqs: Vec<Seq> = wanted.iter().copied().chain(gaps.iter().map(|gap| gap.seq)).collect();
        seqs.sort_unstable_by(|one, other| other.cmp(one));
        seqs.truncate(self.last.unwrap_or(usize::MAX));
        if self.reverse {
            seqs.reverse();
        }
        for seq in &seqs {
            // It may have been removed meanwhile.
            let Some(stored) = reader.entry(*seq)? else { continue };
            if stored.op == EntryType::Gap {
                put(Item::Gap(Line(stored)))?;
                continue;
            }
            let again = is_again(reader, &stored)?;
            let actors = actors(reader, &[*seq])?;
            let changes = Changes { actors, ..single(stored, again)? };
            put(Item::Group(Box::new(changes)))?;
        }
        Ok(seqs.len())
    }

    fn put_group(
        &self,
        reader: &mut Reader,
        group: &Group,
        objects: &[Object],
        put: &mut Put<'_, Item>,
    ) -> Result<(), Failure> {
        let newest = group.writes.last().copied().unwrap_or_default();
        let has_cause = !matches!(group.role, Role::Derived | Role::Rest);
        let shows = has_cause || self.picks();
        let entry = if shows { reader.entry(newest)?.map(Line) } else { None };
        let again = entry.as_ref().map_or(Ok(false), |Line(stored)| is_again(reader, stored))?;
        let effects = &group.effects;
        let mut named = names(&group.objects, objects);
        let (of, is_own) = (named.len(), names(&(&effects.objects | &group.objects), objects).len() == named.len());
        named.truncate(MOST_NAMED);
        let folded = Folded {
            count: effects.entries.len(),
            is_own,
            resources: by_resource(&effects.objects, objects),
            until: stamp(effects.last),
        };
        put(Item::Group(Box::new(Changes {
            role: group.role,
            count: group.writes.len(),
            since: stamp(group.first),
            until: stamp(group.last),
            by: group.writers.iter().cloned().collect(),
            actors: if shows { actors(reader, &group.writes)? } else { Vec::new() },
            objects: named,
            of,
            again,
            owner: group.owner.map(|owner| Named::from(&objects[owner])),
            resources: if has_cause { BTreeMap::new() } else { by_resource(&group.objects, objects) },
            folded: Some(folded).filter(|folded| folded.count > 0),
            rewrite: group.rewrite.clone(),
            entry,
        })))?;
        if self.below {
            let mut below: Vec<Seq> = group.writes.iter().chain(&effects.entries).copied().collect();
            below.retain(|seq| !shows || *seq != newest);
            below.sort_unstable();
            for seq in below.into_iter().take(MOST_BELOW) {
                if let Some(stored) = reader.entry(seq)? {
                    put(Item::Below(Line(stored)))?;
                }
            }
        }
        Ok(())
    }
}

/// Finds the senders of these entries, which are oldest first: each user once.
fn actors(reader: &mut Reader, seqs: &[Seq]) -> Result<Vec<Actor>, Failure> {
    let mut actors: Vec<Actor> = Vec::new();
    for seq in seqs.iter().rev().take(MOST_SENT) {
        let Some(actor) = object::actor_of(reader, *seq)? else { continue };
        if !actors.iter().any(|known| known.sender.is_same_user(&actor.sender)) {
            actors.push(actor);
        }
    }
    Ok(actors)
}

/// A line of the answer.
enum Shown<'s> {
    Gap(&'s StoredEntry),
    Group(&'s Group),
}

/// Makes a group of one entry.
fn single(stored: StoredEntry, again: bool) -> Result<Changes, Failure> {
    let entry = object::parse(&stored)?;
    let named = Named {
        resource: entry.full_resource(),
        namespace: entry.namespace.as_deref().unwrap_or_default().to_owned(),
        name: entry.name.as_deref().unwrap_or_default().to_owned(),
        incarnations: 1,
    };
    let by: BTreeSet<String> = crate::core::wire::authors(&entry).into_iter().map(|one| one.manager).collect();
    let time = entry.time.to_string();
    Ok(Changes {
        role: Role::Cause,
        count: 1,
        since: time.clone(),
        until: time,
        by: by.into_iter().collect(),
        actors: Vec::new(),
        objects: vec![named],
        of: 1,
        again,
        owner: None,
        resources: BTreeMap::new(),
        folded: None,
        rewrite: None,
        entry: Some(Line(stored)),
    })
}

/// Makes the group of the Leases that were renewed.
fn renewals(count: usize) -> Changes {
    Changes {
        role: Role::Rest,
        entry: None,
        count,
        since: String::new(),
        until: String::new(),
        by: Vec::new(),
        actors: Vec::new(),
        objects: Vec::new(),
        of: 0,
        again: false,
        owner: None,
        resources: BTreeMap::from([("leases.coordination.k8s.io".to_owned(), 0)]),
        folded: None,
        rewrite: None,
    }
}

fn by_resource(places: &BTreeSet<usize>, objects: &[Object]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for named in names(places, objects) {
        *counts.entry(named.resource).or_default() += 1;
    }
    counts
}

/// Returns the objects at these places, each name once.
fn names(places: &BTreeSet<usize>, objects: &[Object]) -> Vec<Named> {
    let (mut named, mut known): (Vec<Named>, HashMap<_, usize>) = (Vec::new(), HashMap::new());
    for object in places.iter().map(|place| &objects[*place]) {
        let at = *known.entry(object.full_name()).or_insert(named.len());
        match named.get_mut(at) {
            Some(earlier) => earlier.incarnations += 1,
            None => named.push(object.into()),
        }
    }
    named
}

/// Reports whether an entry creates an object of which the log has an earlier incarnation.
fn is_again(reader: &Reader, stored: &StoredEntry) -> Result<bool, Failure> {
    if stored.op != EntryType::Added || stored.seq == Seq(0) {
        return Ok(false);
    }
    let Some(row) = reader.object_of(stored.seq)? else { return Ok(false) };
    Ok(reader.step(&row, Seq(stored.seq.0 - 1))?.is_some())
}

/// Finds owners that have no entry in the time, at any depth.
pub(crate) fn learn_owners(reader: &mut Reader, facts: &mut Facts) -> Result<(), Failure> {
    let resources = reader.resources()?;
    loop {
        let unknown = facts.unknown_owners();
        if unknown.is_empty() {
            return Ok(());
        }
        for (owner, namespace) in unknown {
            let is_it = |resource: &Resource| resource.kind == owner.kind && resource.group == owner.group();
            let known = resources.iter().find(|(_, resource)| is_it(resource));
            let (mut name, mut place, mut parent) = (owner.kind.to_lowercase(), namespace, None);
            if let Some((id, resource)) = known {
                name = resource.full_name();
                if !resource.namespaced {
                    place.clear();
                }
                let rows = reader.objects(*id, Some(&place), Some(&owner.name))?;
                if let Some(row) = rows.into_iter().find(|row| row.uid == owner.uid) {
                    let owners = ownership::last_known(reader, &row)?.map(|object| ownership::owners(&object));
                    parent = Some(owners.and_then(ownership::parent));
                }
            }
            facts.learn(owner, (name, place), parent);
        }
    }
}
