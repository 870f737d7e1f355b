//! Requests that name no object: creations whose name the API server makes up, and deletions of collections.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use super::assign::{self, Slot, Span};
use super::fact::{Fact, Verb};
use super::ground::{Ground, Names};
use super::order::Bounds;
use super::version::Version;
use crate::core::model::EntryType;

/// Requests without a name for a resource in a namespace.
#[derive(Debug)]
pub(super) struct Pool {
    facts: VecDeque<Fact>,
    forgotten: i64,
    /// Number of the next request.
    next: u64,
    /// Creations that one of them can have made, and that are not decided, by their place in the order.
    open: BTreeMap<(u64, u64), Open>,
    /// By seq of such a version: the requests that can have made it, and the number from which on requests were not looked at yet.
    narrowed: HashMap<u64, (Vec<u64>, u64)>,
}

/// A creation that is not decided.
#[derive(Debug)]
struct Open {
    version: Arc<Version>,
    /// Reports that something else can have made it.
    free: bool,
}

/// Most creations of a pool that are looked at together; those beyond have more candidates.
const OPEN_MAX: usize = 4096;

impl Pool {
    fn new() -> Self {
        Self { facts: VecDeque::new(), forgotten: i64::MIN, next: 0, open: BTreeMap::new(), narrowed: HashMap::new() }
    }
}

fn scope(names: &Names) -> Names {
    Names { name: Box::default(), ..names.clone() }
}

fn scope_of(version: &Version) -> Names {
    let Version { group, resource, namespace, .. } = version;
    let [group, resource, namespace] = [group, resource, namespace].map(|text| text.as_str().into());
    Names { group, resource, namespace, name: Box::default() }
}

impl Ground {
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
        if let Some(pool) = self.pools.get_mut(&scope_of(version))
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
        let Some(pool) = self.pools.get_mut(&scope_of(version)) else { return };
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
        let scopes: std::collections::HashSet<Names> = of.map(scope).collect();
        for scope in scopes {
            let Some(pool) = self.pools.get(&scope).filter(|pool| !pool.open.is_empty()) else { continue };
            let narrowed = self.narrowed(pool);
            if let Some(pool) = self.pools.get_mut(&scope) {
                pool.narrowed = narrowed;
            }
        }
    }

    fn narrowed(&self, pool: &Pool) -> HashMap<u64, (Vec<u64>, u64)> {
        let skew = self.limits.skew;
        let facts: Vec<&Fact> =
            pool.facts.iter().filter(|fact| fact.verb == Verb::Create && fact.made.is_none()).collect();
        let span =
            |fact: &&Fact| Span { received: fact.received - skew, completed: fact.completed + skew, several: false };
        let spans: Vec<Span> = facts.iter().map(span).collect();
        let slot = |open: &Open| {
            let when = self.when(&open.version);
            let may = |&fact: &usize| self.may_have_made(facts[fact], &open.version, when);
            let candidates: Vec<usize> = (0..facts.len()).filter(may).collect();
            let free = open.free || candidates.is_empty();
            Slot { earliest: when.from, latest: when.to, candidates, free, ..Slot::default() }
        };
        let mut slots: Vec<Slot> = pool.open.values().map(slot).collect();
        assign::narrow(&mut slots, &spans);
        let left = |slot: Slot| (slot.candidates.into_iter().map(|fact| facts[fact].number).collect(), pool.next);
        pool.open.values().zip(slots).map(|(open, slot)| (open.version.seq, left(slot))).collect()
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
}
