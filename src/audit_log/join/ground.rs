//! What is known beside the requests and versions of one object.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::Hash;
use std::sync::Arc;

use super::fact::{Fact, Verb};
use super::limits::Limits;
use super::order::{Bounds, Orders};
use super::pool::{OPEN_MAX, Open, Pool};
use super::verdict::{Actor, Certainty, Unresolved};
use super::version::{Names, Version};
use crate::core::model::EntryType;

/// Everything that is not of one object.
#[derive(Debug)]
pub(super) struct Ground {
    pub(super) limits: Limits,
    /// Time up to which all requests and all versions have come.
    pub(super) mark: i64,
    /// Time up to which requests may have been forgotten or never been read.
    pub(super) forgotten: i64,
    /// Bytes of requests and versions.
    pub(super) bytes: usize,
    /// Time before which an audit log has not begun.
    unbegun: i64,
    /// Time before which an audit log has brought nothing, and may not be connected.
    silent: i64,
    /// Times in which requests may be missing.
    doubts: VecDeque<(i64, i64)>,
    /// Requests that name no object.
    pub(super) pools: HashMap<Names, Pool>,
    /// Times of versions by their order.
    pub(super) orders: Orders,
    /// Who asked for the deletion of an object, by uid.
    pub(super) askers: Recent<Arc<str>, Result<Actor, Unresolved>>,
    /// Definitions that were deleted, `PLURAL.GROUP`, and when.
    definitions: Recent<Box<str>, i64>,
    /// Resources of which a version was made by no request of the audit log, whether that was a deletion, and when.
    holes: Recent<(Box<str>, Box<str>, bool), i64>,
    /// Managers of such versions, by their resource, and when.
    hidden: Recent<Managed, i64>,
    /// What the sources of the log cover; none where they cover everything.
    pub(super) covers: Option<Vec<Cover>>,
    /// Times of which the log may lack versions, the oldest first.
    missing: VecDeque<Missing>,
    /// Time up to which such times are forgotten.
    missing_forgotten: i64,
}

/// API group, plural name of a resource, and a manager.
type Managed = (Box<str>, Box<str>, Box<str>);

/// Resource and scope of which the log has every version of a time, but for gaps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cover {
    /// API group; empty for the core group.
    pub group: String,
    /// Plural name of the resource.
    pub resource: String,
    /// Namespace; empty for all.
    pub namespace: String,
    /// Beginning of the time, microseconds since 1970.
    pub since: i64,
    /// End of it: versions that were written later may not be here yet.
    pub upto: i64,
}

/// Time of which the log may lack versions, microseconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// API group; empty for the core group.
    pub group: String,
    /// Plural name of the resource.
    pub resource: String,
    /// Namespace; empty for all.
    pub namespace: String,
    /// Name of the object; empty for all.
    pub name: String,
    /// Beginning of it.
    pub since: i64,
    /// End of it.
    pub until: i64,
}

/// What the log covers of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Covered {
    /// Every version that it can have made has come.
    Yes,
    /// The source is behind.
    NotYet,
    /// No source has it, or versions of that time may be missing.
    No,
}

/// Most intervals of doubt; the oldest two become one.
const DOUBTS_MAX: usize = 64;
/// Most times of which versions are missing; the oldest are forgotten.
const MISSING_MAX: usize = 1024;
/// Most objects in deletion, and most definitions and resources, that are remembered.
const RECENT_MAX: usize = 20_000;
/// Time for which a resource with a writer whom the audit log lacks is not taken to be complete: an hour, in microseconds.
const HOLE_MAX: i64 = 3_600_000_000;

impl Ground {
    pub(super) fn new(limits: Limits, complete_from: i64) -> Self {
        Self {
            limits,
            mark: complete_from,
            forgotten: complete_from,
            bytes: 0,
            unbegun: i64::MIN / 4,
            silent: i64::MIN / 4,
            doubts: VecDeque::new(),
            pools: HashMap::new(),
            orders: Orders::default(),
            askers: Recent::default(),
            definitions: Recent::default(),
            holes: Recent::default(),
            hidden: Recent::default(),
            covers: None,
            missing: VecDeque::new(),
            missing_forgotten: i64::MIN,
        }
    }

    pub(super) fn doubt(&mut self, from: i64, to: i64) {
        self.doubts.push_back((from, to));
        if self.doubts.len() > DOUBTS_MAX
            && let Some((from, to)) = self.doubts.pop_front()
            && let Some(next) = self.doubts.front_mut()
        {
            *next = (next.0.min(from), next.1.max(to));
        }
    }

    /// Notes that an audit log begins at a time.
    pub(super) fn begin(&mut self, time: i64) {
        self.unbegun = self.unbegun.max(time);
    }

    /// Notes that an audit log has brought nothing up to a time.
    pub(super) fn be_silent(&mut self, time: i64) {
        self.silent = self.silent.max(time);
    }

    /// Reports whether an audit log may begin behind a version, so that it proves nothing that no request made it.
    pub(super) fn may_begin_after(&self, version: &Version) -> bool {
        version.earliest < self.unbegun.max(self.silent) + self.limits.skew
    }

    /// Reports whether requests of the time of a version may be missing.
    pub(super) fn is_doubted(&self, version: &Version) -> bool {
        version.earliest < self.unbegun + self.limits.skew || self.lacks(version)
    }

    /// Reports whether requests of the time of a version were lost.
    pub(super) fn lacks(&self, version: &Version) -> bool {
        let skew = self.limits.skew;
        self.doubts.iter().any(|&(from, to)| from <= version.latest + skew && version.earliest <= to + skew)
    }

    pub(super) fn lack(&mut self, missing: Missing) {
        if self.missing.len() >= MISSING_MAX {
            let oldest = self.missing.pop_front().map_or(i64::MIN, |oldest| oldest.until);
            self.missing_forgotten = self.missing_forgotten.max(oldest);
        }
        self.missing.push_back(missing);
    }

    /// Bounds of the time of a version by itself, by a reference clock.
    fn alone(&self, version: &Version) -> Bounds {
        let skew = self.limits.skew;
        Bounds { from: version.earliest - skew, to: version.stored_by + skew }
    }

    /// Bounds of the time of a version, by itself and by what is known of others, by a reference clock.
    pub(super) fn when(&self, version: &Version) -> Bounds {
        let alone = self.alone(version);
        let Some(number) = version.number() else { return alone };
        let all = alone.within(self.orders.bounds(&version.names.group, &version.names.resource, number));
        if all.from <= all.to { all } else { alone }
    }

    /// Reports whether a request ran at a time of these bounds.
    pub(super) const fn ran(&self, fact: &Fact, when: Bounds) -> bool {
        let (skew, end) = (self.limits.skew, fact.end(&self.limits));
        fact.received - skew <= when.to && end + skew >= when.from
    }

    /// Takes the order of a version, as it comes.
    pub(super) fn order(&mut self, version: &Version) {
        if let Some(number) = version.number().filter(|_| version.is_one_write()) {
            let alone = self.alone(version);
            self.orders.add(&version.names.group, &version.names.resource, number, alone);
        }
    }

    /// Takes it that one of these requests made this version, and no other one did.
    pub(super) fn narrow(&mut self, version: &Version, (from, to): (i64, i64)) {
        if let Some(number) = version.number() {
            let skew = self.limits.skew;
            let alone = self.alone(version);
            let bounds = alone.within(Bounds { from: from - skew, to: to.saturating_add(skew) });
            if bounds.from <= bounds.to {
                self.orders.note(&version.names.group, &version.names.resource, number, bounds);
            }
        }
    }

    /// Returns what the log covers of a request for an object.
    pub(super) fn covered(&self, names: &Names, fact: &Fact) -> Covered {
        let Some(covers) = &self.covers else { return Covered::Yes };
        let takes = |namespace: &str| namespace.is_empty() || *namespace == *names.namespace;
        let cover = covers.iter().find(|cover| {
            *cover.resource == *names.resource && *cover.group == *names.group && takes(&cover.namespace)
        });
        let skew = self.limits.skew;
        let is_missing = |missing: &Missing| {
            *missing.resource == *names.resource
                && *missing.group == *names.group
                && takes(&missing.namespace)
                && (missing.name.is_empty() || *missing.name == *names.name)
                && missing.since <= fact.completed + skew
                && fact.received <= missing.until + skew
        };
        match cover {
            Some(cover) if fact.received <= cover.since.max(self.missing_forgotten) + skew => Covered::No,
            Some(_) if self.missing.iter().any(is_missing) => Covered::No,
            Some(cover) if fact.completed + skew >= cover.upto => Covered::NotYet,
            Some(_) => Covered::Yes,
            None => Covered::No,
        }
    }

    /// Keeps a request that names no object; a repeat changes nothing.
    pub(super) fn pool(&mut self, scope: Names, mut fact: Fact) {
        let pool = self.pools.entry(scope).or_insert_with(Pool::new);
        if pool.facts.iter().all(|known| !known.is(&fact)) {
            self.bytes += fact.bytes();
            (fact.number, pool.next) = (pool.next, pool.next + 1);
            pool.facts.push_back(fact);
        }
    }

    fn pool_of(&self, names: &Names) -> Option<&Pool> {
        self.pools.get(&scope(names))
    }

    /// Requests without a name that can have made this version.
    pub(super) fn pooled<'a>(&'a self, names: &Names, version: &'a Version) -> impl Iterator<Item = &'a Fact> {
        let pool = self.pool_of(names);
        let narrowed = pool.and_then(|pool| pool.narrowed.get(&version.seq));
        let when = self.when(version);
        pool.into_iter().flat_map(|pool| &pool.facts).filter(move |fact| {
            let is_left = |(left, from): &(Vec<u64>, u64)| fact.number >= *from || left.contains(&fact.number);
            (fact.verb != Verb::Create || narrowed.is_none_or(is_left)) && self.may_have_made(fact, version, when)
        })
    }

    fn may_have_made(&self, fact: &Fact, version: &Version, when: Bounds) -> bool {
        let is_generated = fact.verb != Verb::Create || version.generated;
        // A creation makes one object.
        let is_spent = fact.verb == Verb::Create && fact.made.is_some_and(|made| made != version.seq);
        version.is_one_write() && is_generated && !is_spent && fact.may_have_made(version) && self.ran(fact, when)
    }

    /// Takes a creation into the pool of its namespace. `free` says that something else can have made it.
    pub(super) fn open(&mut self, version: &Arc<Version>, free: bool) {
        let Some(number) = version.number().filter(|_| version.op == EntryType::Added && version.generated) else {
            return;
        };
        if let Some(pool) = self.pools.get_mut(&scope(&version.names))
            && pool.open.len() < OPEN_MAX
        {
            pool.open.insert((number, version.seq), Open { version: Arc::clone(version), free });
        }
    }

    /// Takes a creation that is decided out of it, with the number of the request that made it.
    pub(super) fn close(&mut self, version: &Version, maker: Option<u64>) {
        if version.op != EntryType::Added {
            return;
        }
        let Some(pool) = self.pools.get_mut(&scope(&version.names)) else { return };
        pool.narrowed.remove(&version.seq);
        if let Some(number) = version.number() {
            pool.open.remove(&(number, version.seq));
        }
        let made = pool.facts.iter_mut().find(|fact| maker == Some(fact.number) && fact.verb == Verb::Create);
        if let Some(fact) = made {
            fact.made = Some(version.seq);
        }
    }

    /// Looks at the open creations of these namespaces together: each request made one of them at most.
    pub(super) fn narrow_pools<'a>(&mut self, of: impl Iterator<Item = &'a Names>) {
        let scopes: HashSet<Names> = of.map(scope).collect();
        for scope in scopes {
            let Some(pool) = self.pools.get(&scope).filter(|pool| !pool.open.is_empty()) else { continue };
            let may = |fact: &Fact, version: &Version, when| self.may_have_made(fact, version, when);
            let narrowed = pool.narrow(&self.limits, |version| self.when(version), may);
            if let Some(pool) = self.pools.get_mut(&scope) {
                pool.narrowed = narrowed;
            }
        }
    }

    /// Reports whether requests of the version's time are forgotten or were never read.
    pub(super) fn is_forgotten(&self, names: &Names, version: &Version) -> bool {
        let by_pool = (version.is_deletion() || version.op == EntryType::Added)
            && self.pool_of(names).is_some_and(|pool| version.earliest <= pool.forgotten);
        by_pool || version.earliest <= self.forgotten
    }

    /// Drops requests without a name after their time, or the older half of them all.
    pub(super) fn tidy(&mut self, all: bool) {
        let (mark, limits) = (self.mark, &self.limits);
        let keep = 2 * limits.request + limits.answer;
        for pool in self.pools.values_mut() {
            let half = if all { pool.facts.len().div_ceil(2) } else { 0 };
            let mut place = 0;
            pool.facts.retain(|fact| {
                place += 1;
                let stays = place > half && fact.due + keep > mark;
                if !stays {
                    self.bytes -= fact.bytes();
                    pool.forgotten = pool.forgotten.max(fact.completed.min(fact.due));
                }
                stays
            });
        }
        self.pools.retain(|_, pool| !pool.facts.is_empty() || pool.forgotten + keep + limits.age > mark);
        self.orders.forget(mark.saturating_sub(keep));
    }

    /// Notes that a request deletes a definition, if it does.
    pub(super) fn note_definition(&mut self, names: &Names, fact: &Fact) {
        let is = &*names.resource == "customresourcedefinitions" && &*names.group == "apiextensions.k8s.io";
        if is && fact.verb == Verb::Delete && !names.name.is_empty() {
            self.definitions.insert(names.name.clone(), fact.received);
        }
    }

    /// Reports whether the definition of the resource was being deleted.
    pub(super) fn lacks_definition(&self, names: &Names, version: &Version) -> bool {
        let definition = format!("{}.{}", names.resource, names.group);
        let skew = 2 * self.limits.skew;
        self.definitions.get(definition.as_str()).is_some_and(|&deleted| deleted - skew <= version.latest)
    }

    /// Notes a version that no request of the audit log made.
    pub(super) fn note_hole(&mut self, names: &Names, version: &Version) {
        self.holes.insert(hole(names, version), version.latest);
        for mover in version.movers() {
            let manager = mover.manager.as_str().into();
            self.hidden.insert((names.group.clone(), names.resource.clone(), manager), version.latest);
        }
    }

    /// Reports whether somebody whom the audit log lacks writes this resource with a manager, so that it is a mark of nobody.
    pub(super) fn hides(&self, names: &Names, version: &Version, manager: &str) -> bool {
        let hidden = self.hidden.get(&(names.group.clone(), names.resource.clone(), manager.into()));
        hidden.is_some_and(|at| (at - version.latest).abs() <= HOLE_MAX)
    }

    /// Reports whether somebody writes this resource whom the audit log lacks, so that nothing follows from the lack of others.
    pub(super) fn has_hole(&self, names: &Names, version: &Version) -> bool {
        let hole = self.holes.get(&hole(names, version));
        hole.is_some_and(|at| (at - version.latest).abs() <= HOLE_MAX)
    }

    /// Who asked for the deletion that this version ends.
    pub(super) fn asker(&self, version: &Version) -> Option<Result<Actor, Unresolved>> {
        let known = self.askers.get(&*version.uid)?;
        Some(known.clone().map(|mut actor| {
            actor.certainty = actor.certainty.max(Certainty::Deleted);
            actor
        }))
    }
}

fn scope(names: &Names) -> Names {
    Names { name: Box::default(), ..names.clone() }
}

/// Writers whom the audit log lacks are known by what they do: those who only change objects say nothing of deletions.
fn hole(names: &Names, version: &Version) -> (Box<str>, Box<str>, bool) {
    (names.group.clone(), names.resource.clone(), version.is_deletion())
}

/// Map that forgets what was put into it first.
#[derive(Debug)]
pub(super) struct Recent<K, V> {
    known: HashMap<K, (V, u64)>,
    order: VecDeque<(K, u64)>,
    next: u64,
}

impl<K, V> Default for Recent<K, V> {
    fn default() -> Self {
        Self { known: HashMap::new(), order: VecDeque::new(), next: 0 }
    }
}

impl<K: Clone + Eq + Hash, V> Recent<K, V> {
    pub(super) fn insert(&mut self, key: K, value: V) {
        self.next += 1;
        self.order.push_back((key.clone(), self.next));
        self.known.insert(key, (value, self.next));
        while self.known.len() > RECENT_MAX || self.order.len() > 2 * RECENT_MAX {
            let Some((oldest, at)) = self.order.pop_front() else { return };
            if self.known.get(&oldest).is_some_and(|known| known.1 == at) {
                self.known.remove(&oldest);
            }
        }
    }

    pub(super) fn get<Q: ?Sized + Eq + Hash>(&self, key: &Q) -> Option<&V>
    where
        K: std::borrow::Borrow<Q>,
    {
        self.known.get(key).map(|known| &known.0)
    }

    pub(super) fn remove<Q: ?Sized + Eq + Hash>(&mut self, key: &Q)
    where
        K: std::borrow::Borrow<Q>,
    {
        self.known.remove(key);
    }
}
