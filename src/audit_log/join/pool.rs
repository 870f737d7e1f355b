//! Requests that name no object: creations whose name the API server makes up, and deletions of collections.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use super::assign::{self, Slot, Span};
use super::fact::{Fact, Verb};
use super::limits::Limits;
use super::order::Bounds;
use super::version::Version;

/// Requests without a name for a resource in a namespace.
#[derive(Debug)]
pub(super) struct Pool {
    pub(super) facts: VecDeque<Fact>,
    pub(super) forgotten: i64,
    /// Number of the next request.
    pub(super) next: u64,
    /// Creations that one of them can have made, and that are not decided, by their place in the order.
    pub(super) open: BTreeMap<(u64, u64), Open>,
    /// By seq of such a version: the requests that can have made it, and the number from which on requests were not looked at yet.
    pub(super) narrowed: HashMap<u64, (Vec<u64>, u64)>,
}

/// A creation that is not decided.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) version: Arc<Version>,
    /// Reports that something else can have made it.
    pub(super) free: bool,
}

/// Most creations of a pool that are looked at together; those beyond have more candidates.
pub(super) const OPEN_MAX: usize = 4096;

impl Pool {
    pub(super) fn new() -> Self {
        Self { facts: VecDeque::new(), forgotten: i64::MIN, next: 0, open: BTreeMap::new(), narrowed: HashMap::new() }
    }

    /// Looks at the open creations together: each request made one of them at most. Returns for the seq of each which requests are left.
    pub(super) fn narrow(
        &self,
        limits: &Limits,
        when: impl Fn(&Version) -> Bounds,
        may: impl Fn(&Fact, &Version, Bounds) -> bool,
    ) -> HashMap<u64, (Vec<u64>, u64)> {
        let is_left = |fact: &&Fact| fact.verb == Verb::Create && fact.made.is_none();
        let facts: Vec<&Fact> = self.facts.iter().filter(is_left).collect();
        let skew = limits.skew;
        let span =
            |fact: &&Fact| Span { received: fact.received - skew, completed: fact.end(limits) + skew, several: false };
        let spans: Vec<Span> = facts.iter().map(span).collect();
        let slot = |open: &Open| {
            let when = when(&open.version);
            let can = |&fact: &usize| may(facts[fact], &open.version, when);
            let candidates: Vec<usize> = (0..facts.len()).filter(can).collect();
            let free = open.free || candidates.is_empty();
            Slot { earliest: when.from, latest: when.to, candidates, free, ..Slot::default() }
        };
        let mut slots: Vec<Slot> = self.open.values().map(slot).collect();
        assign::narrow(&mut slots, &spans);
        let left = |slot: Slot| (slot.candidates.into_iter().map(|fact| facts[fact].number).collect(), self.next);
        self.open.values().zip(slots).map(|(open, slot)| (open.version.seq, left(slot))).collect()
    }
}
