//! Causes of what happened, and what follows from each: the one ranking of changes.
//!
//! A *cause* is what a person or a program outside the control plane wrote: a spec, data, labels, a creation, a deletion.
//! What controllers make of it is *derived*, and stands below the newest cause of its object, of an owner of it at any depth,
//! or of what it is about: the Pods of endpoints, the workload of a budget or an autoscaler, the object of an Event. One
//! writer that changes the same fields of an object over and over is one group, and so are several who fight over them.
//! What has no cause here is a group of its owner, or of the rest.
//!
//! It knows neither the journal nor a terminal: [`Facts::take`] takes the entries, [`Facts::groups`] gives the groups in the
//! order in which people want them.
//!
//! # Decision: a cause is inferred
//!
//! Context: Kubernetes does not record from which write another one follows.
//! Decision: What changes an object after a cause of its owner, and is written by a controller, follows from that cause.
//! Cost: Where two causes of one owner meet, all that comes later stands below the newer one.

mod fact;
mod order;
mod repeats;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use serde::{Deserialize, Serialize};

pub(crate) use fact::concerns;
use fact::{Fact, Kind, Relation};
pub(crate) use fact::{is_derived, is_of_control_plane};

use crate::core::model::{EntryType, Seq};
use crate::core::wire::Entry;
use crate::query::churn::Classes;
use crate::query::ownership::OwnerReference;
use crate::query::rewrites::{Rewrite, Rewrites, Sizes, Write};

/// Role of a group, in the order in which they are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Role {
    /// Somebody outside the control plane did it.
    Cause,
    /// Objects were stored again, and nothing in them changed.
    Rewrite,
    /// A writer does the same again and again, or several fight.
    Repeated,
    /// The control plane changed a spec, and no cause of that is known.
    Controller,
    /// What has no known cause, of one owner.
    Derived,
    /// What has no known cause otherwise.
    Rest,
}

/// Changes that are one line.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) role: Role,
    /// Entries that the line is about, oldest first.
    pub(crate) writes: Vec<Seq>,
    /// Their objects, by their places.
    pub(crate) objects: BTreeSet<usize>,
    /// Names of their writers.
    pub(crate) writers: BTreeSet<String>,
    /// Times of the first and the last of them, microseconds since 1970.
    pub(crate) first: i64,
    pub(crate) last: i64,
    /// The owner, of [`Role::Derived`].
    pub(crate) owner: Option<usize>,
    /// What follows from them.
    pub(crate) effects: Effects,
    /// The storage rewrite, of [`Role::Rewrite`].
    pub(crate) rewrite: Option<Rewrite>,
    /// Digest of their fields, and whether a filter takes one of them.
    fields: u64,
    op: EntryType,
    is_wanted: bool,
}

/// What follows from a cause.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    /// Entries, oldest first.
    pub(crate) entries: Vec<Seq>,
    /// Their objects, by their places.
    pub(crate) objects: BTreeSet<usize>,
    /// Time of the last of them, microseconds since 1970.
    pub(crate) last: i64,
    /// Number of them that a filter takes.
    wanted: usize,
}

impl Effects {
    fn add(&mut self, fact: &Fact) {
        self.wanted += usize::from(fact.is_wanted);
        self.entries.push(Seq(fact.seq));
        self.objects.insert(fact.object);
        self.last = self.last.max(fact.time);
    }

    fn join(&mut self, other: Self) {
        self.wanted += other.wanted;
        self.entries.extend(other.entries);
        self.entries.sort_unstable();
        self.objects.extend(other.objects);
        self.last = self.last.max(other.last);
    }
}

/// One incarnation of an object.
#[derive(Debug)]
pub(crate) struct Object {
    /// Full name of its resource.
    pub(crate) resource: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    kind: String,
    uid: String,
    /// Its controller, or its first owner.
    parent: Option<OwnerReference>,
    /// False if the log knows nothing of it but its name.
    is_known: bool,
    /// Labels of the Pods that it makes.
    pod_labels: Option<BTreeMap<String, String>>,
}

impl Object {
    /// Returns its resource, its namespace and its name, which its incarnations share.
    pub(crate) fn full_name(&self) -> (&str, &str, &str) {
        (&self.resource, &self.namespace, &self.name)
    }
}

/// Entries, read for their causes.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    classes: Classes,
    entries: Vec<Fact>,
    objects: Vec<Object>,
    places: HashMap<String, usize>,
    writers: Vec<Vec<String>>,
    writer_places: HashMap<Vec<String>, usize>,
    /// Managers that write the status of something, as controllers do.
    controllers: HashSet<String>,
    /// Numbers of objects of small resources.
    sizes: Sizes,
}

/// The groups of some entries, and their objects.
#[derive(Debug)]
pub(crate) struct Groups {
    /// Causes first, the newest of them first.
    pub(crate) groups: Vec<Group>,
    pub(crate) objects: Vec<Object>,
    /// Number of changes that a filter takes and that no group shows: they follow from changes that it does not take.
    pub(crate) hidden: usize,
}

/// Watches of two resources bring what happened at once in any order, within this time, in microseconds.
const SLACK: i64 = 2_000_000;
/// A controller that writes an object so soon after a cause of it answers that cause.
const ANSWER: i64 = 60_000_000;
/// An object of another one that goes later than this after the last cause goes for a reason of its own.
const ROLLOUT: i64 = 600_000_000;
/// Owners above owners.
const DEPTH: usize = 8;

impl Facts {
    /// Takes entries of a log with these small resources.
    pub(crate) fn among(sizes: Sizes) -> Self {
        Self { sizes, ..Self::default() }
    }

    /// Returns the number of entries.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the owners that no entry is of, with the namespace of what they own.
    pub(crate) fn unknown_owners(&self) -> Vec<(OwnerReference, String)> {
        let mut seen = HashSet::new();
        let owners = self.objects.iter().filter_map(|object| Some((object.parent.clone()?, object.namespace.clone())));
        owners.filter(|(owner, _)| !self.places.contains_key(&owner.uid) && seen.insert(owner.uid.clone())).collect()
    }

    /// Learns an owner that no entry is of, and its own owner; nothing of that where the log does not know it.
    pub(crate) fn learn(
        &mut self,
        owner: OwnerReference,
        (resource, namespace): (String, String),
        parent: Option<Option<OwnerReference>>,
    ) {
        let (is_known, parent) = (parent.is_some(), parent.flatten());
        let OwnerReference { kind, name, uid, .. } = owner;
        self.places.insert(uid.clone(), self.objects.len());
        self.objects.push(Object { resource, namespace, name, kind, uid, parent, is_known, pod_labels: None });
    }

    fn object(&mut self, entry: &Entry<'_>, resource: &str) -> usize {
        let (namespace, name) = (entry.namespace.as_deref().unwrap_or_default(), entry.name.as_deref());
        let name = name.unwrap_or_default();
        let uid = entry.uid.as_deref().filter(|uid| !uid.is_empty());
        let uid = uid.map_or_else(|| format!("{resource}/{namespace}/{name}"), str::to_owned);
        if let Some(known) = self.places.get(&uid) {
            return *known;
        }
        self.places.insert(uid.clone(), self.objects.len());
        self.objects.push(Object {
            resource: resource.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            kind: entry.kind.to_string(),
            uid,
            parent: None,
            is_known: true,
            pod_labels: None,
        });
        self.objects.len() - 1
    }

    fn writer(&mut self, names: Vec<String>) -> usize {
        if let Some(known) = self.writer_places.get(&names) {
            return *known;
        }
        self.writer_places.insert(names.clone(), self.writers.len());
        self.writers.push(names);
        self.writers.len() - 1
    }

    /// Returns the seqs of all changes that a filter takes, newest first.
    pub(crate) fn wanted(&self) -> Vec<Seq> {
        let wanted = self.entries.iter().filter(|fact| fact.is_wanted && fact.kind != Kind::Found);
        let mut seqs: Vec<Seq> = wanted.map(|fact| Seq(fact.seq)).collect();
        seqs.sort_unstable_by(|one, other| other.cmp(one));
        seqs
    }

    /// Groups the entries.
    pub(crate) fn groups(mut self) -> Groups {
        let mut entries = std::mem::take(&mut self.entries);
        entries.retain(|fact| fact.kind != Kind::Found);
        entries.sort_by_key(|fact| (fact.time, fact.seq));
        let rewrites = self.rewrites(&mut entries);
        let mut leads = Leads { facts: &self, groups: Vec::new(), of: HashMap::new() };
        let mut derived = Vec::new();
        for fact in &entries {
            if !leads.lead(fact) {
                derived.push(fact);
            }
        }
        leads.index();
        let rest = leads.attach(&derived);
        let mut groups = repeats::merge(leads.groups, &self.objects);
        groups.extend(rewrites);
        let hidden = groups.iter().filter(|group| !group.is_wanted).map(|group| group.effects.wanted).sum();
        groups.retain(|group| group.is_wanted);
        groups.sort_by_key(|group| (group.role, std::cmp::Reverse((group.last, group.writes.last().copied()))));
        groups.extend(self.others(rest));
        Groups { groups, objects: self.objects, hidden }
    }

    /// Takes the storage rewrites out of facts that are sorted by their times. Returns a group of each.
    fn rewrites(&self, facts: &mut Vec<Fact>) -> Vec<Group> {
        let mut rewrites = Rewrites::among(self.sizes.clone());
        for fact in facts.iter().filter(|fact| fact.is_bookkeeping && fact.is_wanted) {
            let (resource, namespace, name) = self.objects[fact.object].full_name();
            let by = match self.writers[fact.writer].as_slice() {
                [by] => Some(by.as_str()),
                _ => None,
            };
            rewrites.take(&Write { seq: fact.seq, time: fact.time, resource, namespace, name, by });
        }
        let found = rewrites.finish();
        let places: HashMap<u64, usize> =
            found.iter().enumerate().flat_map(|(at, one)| one.seqs.iter().map(move |seq| (*seq, at))).collect();
        let mut members: Vec<Vec<Fact>> = found.iter().map(|_| Vec::new()).collect();
        for fact in facts.extract_if(.., |fact| places.contains_key(&fact.seq)) {
            members[places[&fact.seq]].push(fact);
        }
        let group = |(rewrite, mut facts): (Rewrite, Vec<Fact>)| {
            facts.sort_by_key(|fact| fact.seq);
            Group { rewrite: Some(rewrite), ..self.group(Role::Rewrite, &facts.iter().collect::<Vec<_>>()) }
        };
        found.into_iter().zip(members).map(group).collect()
    }

    /// Returns the groups of what has no cause: one of each owner whose objects come and go, and one of the rest.
    fn others(&self, rest: Vec<&Fact>) -> Vec<Group> {
        // An owner that comes again under its name is one owner.
        let mut by_owner: HashMap<(&str, &str, &str), (usize, Vec<&Fact>)> = HashMap::new();
        for fact in rest.into_iter().filter(|fact| fact.is_wanted) {
            let root = self.root(fact.object);
            by_owner.entry(self.objects[root].full_name()).or_insert((root, Vec::new())).1.push(fact);
        }
        let (mut of_owners, mut others) = (Vec::new(), Vec::new());
        for (owner, facts) in by_owner.into_values() {
            let comes = |fact: &&Fact| fact.op != EntryType::Modified && self.objects[fact.object].parent.is_some();
            if facts.iter().any(comes) {
                of_owners.push(Group { owner: Some(owner), ..self.group(Role::Derived, &facts) });
            } else {
                others.extend(facts);
            }
        }
        of_owners.sort_by_key(|group| (std::cmp::Reverse(group.writes.len()), group.owner));
        if !others.is_empty() {
            others.sort_by_key(|fact| (fact.time, fact.seq));
            of_owners.push(self.group(Role::Rest, &others));
        }
        of_owners
    }

    /// Makes a group of facts, oldest first.
    fn group(&self, role: Role, facts: &[&Fact]) -> Group {
        let (first, last) = (facts[0], facts[facts.len() - 1]);
        Group {
            role,
            writes: facts.iter().map(|fact| Seq(fact.seq)).collect(),
            objects: facts.iter().map(|fact| fact.object).collect(),
            writers: facts.iter().flat_map(|fact| self.writers[fact.writer].iter().cloned()).collect(),
            first: first.time,
            last: last.time,
            owner: None,
            effects: Effects::default(),
            rewrite: None,
            fields: first.fields,
            op: first.op,
            is_wanted: facts.iter().any(|fact| fact.is_wanted),
        }
    }

    /// Returns an object and its owners, from below.
    fn line(&self, object: usize) -> Vec<usize> {
        let mut line = vec![object];
        while line.len() < DEPTH
            && let Some(owner) = &self.objects[line[line.len() - 1]].parent
            && let Some(place) = self.places.get(&owner.uid).filter(|place| !line.contains(place))
        {
            line.push(*place);
        }
        line
    }

    fn root(&self, object: usize) -> usize {
        self.line(object).pop().unwrap_or(object)
    }

    /// Reports whether a write of an object that has an owner is the owner's controller's.
    fn is_of_owner(&self, fact: &Fact) -> bool {
        let names = &self.writers[fact.writer];
        let is_kubectl = |name: &String| name.starts_with("kubectl");
        let is_controller = |name: &String| is_of_control_plane(name) || self.controllers.contains(name);
        match fact.op {
            EntryType::Modified if fact.kind == Kind::Marked => true,
            EntryType::Modified => names.iter().all(is_controller),
            EntryType::Added | EntryType::Deleted | EntryType::Gap | EntryType::Actor => !names.iter().any(is_kubectl),
        }
    }
}

/// The changes from which others follow.
struct Leads<'f> {
    facts: &'f Facts,
    groups: Vec<Group>,
    /// Groups of each object, oldest first.
    of: HashMap<usize, Vec<usize>>,
}

impl Leads<'_> {
    /// Begins a group with a fact if it is a cause. Facts come oldest first.
    fn lead(&mut self, fact: &Fact) -> bool {
        let is_owned = self.facts.objects[fact.object].parent.is_some();
        let role = match fact.kind {
            Kind::Found | Kind::Derived => return false,
            Kind::Controller { scale: true } => Role::Controller,
            Kind::Marked | Kind::Written | Kind::Controller { .. } if is_owned && self.facts.is_of_owner(fact) => {
                return false;
            }
            Kind::Marked | Kind::Written => Role::Cause,
            Kind::Controller { .. } if fact.op != EntryType::Modified => return false,
            Kind::Controller { .. } => {
                let own = self.of.get(&fact.object).and_then(|groups| groups.last());
                if own.is_some_and(|own| fact.time - self.groups[*own].last < ANSWER) {
                    return false;
                }
                Role::Controller
            }
        };
        self.begin(role, fact);
        true
    }

    fn begin(&mut self, role: Role, fact: &Fact) {
        let group = self.facts.group(role, &[fact]);
        let own = self.of.entry(fact.object).or_default();
        // A deletion that was asked for, and the end of it, are one.
        if fact.op == EntryType::Deleted
            && let Some(marked) = own.last().map(|own| &mut self.groups[*own])
            && marked.is_mark()
        {
            let mark = std::mem::replace(marked, group);
            marked.first = mark.first;
            marked.is_wanted |= mark.is_wanted;
            marked.effects = mark.effects;
            marked.effects.entries.splice(0..0, mark.writes);
            marked.effects.objects.extend(mark.objects);
            return;
        }
        self.groups.push(group);
        let group = self.groups.len() - 1;
        self.groups[group].fields = if fact.kind == Kind::Marked { MARK } else { fact.fields };
        own.push(group);
    }

    /// Has the groups of an object be groups of its owners too: what these do answers them.
    fn index(&mut self) {
        let mut of: HashMap<usize, Vec<usize>> = HashMap::new();
        for (place, group) in self.groups.iter().enumerate() {
            for object in group.objects.iter().flat_map(|object| self.facts.line(*object)) {
                of.entry(object).or_default().push(place);
            }
        }
        self.of = of;
    }

    /// Puts each fact below the group that it follows from. Returns those that follow from none.
    fn attach<'e>(&mut self, derived: &[&'e Fact]) -> Vec<&'e Fact> {
        let mut rest = Vec::new();
        for fact in derived {
            let above = self.above(fact);
            let is_end = fact.op == EntryType::Deleted || fact.kind == Kind::Marked;
            let age = above.map(|above| fact.time - self.groups[above].first);
            let is_alone = age.is_none_or(|age| age > ROLLOUT) && self.is_end_of_its_own(fact);
            if is_end && (is_alone || self.is_end_of_marked(fact)) {
                let known = self.groups.len();
                self.begin(Role::Cause, fact);
                if self.groups.len() == known {
                    continue;
                }
                let group = self.groups.len() - 1;
                for owner in self.facts.line(fact.object).into_iter().skip(1) {
                    self.of.entry(owner).or_default().push(group);
                }
                continue;
            }
            match above {
                Some(above) => self.groups[above].effects.add(fact),
                None => rest.push(*fact),
            }
        }
        rest
    }

    /// Reports whether an object goes that is a cause by being marked for it.
    fn is_end_of_marked(&self, fact: &Fact) -> bool {
        let own = self.of.get(&fact.object).and_then(|groups| groups.last()).map(|group| &self.groups[*group]);
        fact.op == EntryType::Deleted && own.is_some_and(|own| own.is_mark() && own.objects.contains(&fact.object))
    }

    /// Reports whether an object that an owner keeps goes, and not one that is made to go. Where an owner is not known, it is
    /// not known either whether that has a cause.
    fn is_end_of_its_own(&self, fact: &Fact) -> bool {
        let line = self.facts.line(fact.object);
        if line.iter().any(|object| !self.facts.objects[*object].is_known) {
            return false;
        }
        let root = self.facts.root(fact.object);
        let is_run = ["cronjobs.batch", "jobs.batch"].contains(&self.facts.objects[root].resource.as_str());
        root != fact.object && !is_run && self.facts.objects[fact.object].resource == "pods"
    }

    /// Returns the newest group before a fact of its object, of an owner, or of what it is about.
    fn above(&self, fact: &Fact) -> Option<usize> {
        let facts = self.facts;
        let mut about = facts.line(fact.object);
        let namespace = &facts.objects[fact.object].namespace;
        for relation in &fact.relations {
            match relation {
                Relation::Uid(uid) => {
                    about.extend(facts.places.get(uid).into_iter().flat_map(|place| facts.line(*place)));
                }
                Relation::Named(..) | Relation::Selector(_) => {
                    let is_it = |place: &&usize| is_meant(relation, namespace, &facts.objects[**place]);
                    about.extend(self.of.keys().filter(is_it));
                }
            }
        }
        let first = |group: usize| self.groups[group].first;
        let newest = |object: &usize| {
            let groups = self.of.get(object)?;
            let before = groups.iter().rev().find(|group| first(**group) <= fact.time);
            before.or_else(|| groups.iter().find(|group| first(**group) <= fact.time + SLACK)).copied()
        };
        // One that comes after it is its cause only where none comes before.
        let place = |group: &usize| match first(*group) {
            before if before <= fact.time => (true, before, *group),
            after => (false, -after, *group),
        };
        about.iter().filter_map(newest).max_by_key(place)
    }
}

/// Field of a group that marks an object for deletion.
const MARK: u64 = 0;

impl Group {
    const fn is_mark(&self) -> bool {
        matches!(self.op, EntryType::Modified) && self.fields == MARK
    }
}

fn is_meant(relation: &Relation, namespace: &str, object: &Object) -> bool {
    let is_there = object.namespace == namespace || object.namespace.is_empty();
    is_there
        && match relation {
            Relation::Uid(uid) => object.uid == *uid,
            Relation::Named(kind, name) => object.kind == *kind && object.name == *name,
            Relation::Selector(labels) => {
                let has = |of: &BTreeMap<String, String>| labels.iter().all(|(key, value)| of.get(key) == Some(value));
                !labels.is_empty() && object.pod_labels.as_ref().is_some_and(has)
            }
        }
}
