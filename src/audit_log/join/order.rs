//! Times of versions, by the order in which an etcd made them.
//!
//! # Decision: versions bound each other's time
//!
//! Context: A stamp says the second of a write, and many requests run in one. resourceVersions are the order of an etcd.
//! Decision: A version was made between the first receipt and the last answer of the requests that can have made it. Each version before
//! it was made by then, and each one behind it no earlier. Resources share an order once enough of their versions have agreed, and never
//! again where one has not: an etcd of its own (`--etcd-servers-overrides`) and an aggregated API count by themselves.
//! Cost: Up to four pairs of numbers for each millisecond of a busy time, and a second look at each version.

use std::collections::{BTreeMap, HashMap};

/// Bounds of a time, microseconds since 1970. Both count as part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    pub(super) from: i64,
    pub(super) to: i64,
}

impl Bounds {
    const ANY: Self = Self { from: i64::MIN, to: i64::MAX };

    pub(super) const fn meets(self, other: Self) -> bool {
        self.from <= other.to && other.from <= self.to
    }

    pub(super) fn within(self, other: Self) -> Self {
        Self { from: self.from.max(other.from), to: self.to.min(other.to) }
    }

    const fn width(self) -> i64 {
        self.to.saturating_sub(self.from)
    }
}

/// Most bounds that all orders keep together; the older half goes.
const PIVOTS_MAX: usize = 1 << 18;
/// Grain of the times, in microseconds, so that a busy second has a bounded number of them.
const GRAIN: i64 = 250;
/// Width of bounds up to which an agreement says something: three seconds, in microseconds.
const TIGHT: i64 = 3_000_000;
/// Number of versions that have to agree before a resource shares an order, how far apart they are at least, in microseconds, and over
/// how many versions of the order.
const AGREED_MIN: (u32, i64, u64) = (32, 10_000_000, 256);

/// Bounds along one order.
#[derive(Debug, Default)]
struct Order {
    /// Versions from which on everything was made at this time or later; both grow.
    after: BTreeMap<u64, i64>,
    /// Versions up to which everything was made by this time; both grow.
    by: BTreeMap<u64, i64>,
}

impl Order {
    fn bounds(&self, version: u64) -> Bounds {
        Bounds {
            from: self.after.range(..=version).next_back().map_or(i64::MIN, |(_, &time)| time),
            to: self.by.range(version..).next().map_or(i64::MAX, |(_, &time)| time),
        }
    }

    /// Notes bounds of a version, and reports whether they say something new.
    fn note(&mut self, version: u64, bounds: Bounds) -> bool {
        let known = self.bounds(version);
        let from = bounds.from.div_euclid(GRAIN).saturating_mul(GRAIN);
        let to = bounds.to.saturating_add(GRAIN - 1).div_euclid(GRAIN).saturating_mul(GRAIN);
        if from > known.from {
            while let Some((&next, _)) = self.after.range(version..).next().filter(|(_, time)| **time <= from) {
                self.after.remove(&next);
            }
            self.after.insert(version, from);
        }
        if to < known.to {
            while let Some((&last, _)) = self.by.range(..=version).next_back().filter(|(_, time)| **time >= to) {
                self.by.remove(&last);
            }
            self.by.insert(version, to);
        }
        from > known.from || to < known.to
    }

    fn len(&self) -> usize {
        self.after.len() + self.by.len()
    }

    /// Drops what says nothing of times from this one on.
    fn forget(&mut self, time: i64) {
        while self.by.first_key_value().is_some_and(|(_, &by)| by < time) {
            self.by.pop_first();
        }
        while self.after.iter().nth(1).is_some_and(|(_, &after)| after < time) {
            self.after.pop_first();
        }
    }

    fn halve(&mut self) {
        for side in [&mut self.after, &mut self.by] {
            if let Some(&middle) = side.keys().nth(side.len() / 2) {
                *side = side.split_off(&middle);
            }
        }
    }

    /// Reports whether no bound of either contradicts one of the other.
    fn agrees(&self, other: &Self) -> bool {
        let fits = |one: &Self, two: &Self| {
            one.after.iter().all(|(&version, &from)| two.bounds(version).to >= from)
                && one.by.iter().all(|(&version, &to)| two.bounds(version).from <= to)
        };
        fits(self, other) && fits(other, self)
    }
}

/// What is known of whether a resource shares the common order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kin {
    /// So many of its versions agree since one with this time and number.
    Unknown {
        agreed: u32,
        since: i64,
        first: u64,
    },
    Shared,
    /// One of its versions contradicts it.
    Alien,
}

const UNKNOWN: Kin = Kin::Unknown { agreed: 0, since: 0, first: 0 };

#[derive(Debug)]
struct Resource {
    group: Box<str>,
    order: Order,
    kin: Kin,
    /// Version that came last: those of others behind it come later.
    last: Option<(u64, Bounds)>,
}

type Resources = HashMap<Box<str>, Vec<Resource>>;

fn find<'a>(resources: &'a mut Resources, group: &str, resource: &str) -> Option<&'a mut Resource> {
    resources.get_mut(resource)?.iter_mut().find(|known| *known.group == *group)
}

/// The orders of all resources.
#[derive(Debug, Default)]
pub(super) struct Orders {
    /// By plural name; few groups share one.
    resources: Resources,
    /// Order of the resource with which others are compared, and of those that agree.
    common: Order,
    /// Plural name of that resource, which is of the core group.
    first: Option<Box<str>>,
    /// Number of times that something new was noted.
    pub(super) news: u64,
}

impl Orders {
    fn resource(&self, group: &str, resource: &str) -> Option<&Resource> {
        self.resources.get(resource)?.iter().find(|known| *known.group == *group)
    }

    /// Returns what other versions say of the time of this one.
    pub(super) fn bounds(&self, group: &str, resource: &str, version: u64) -> Bounds {
        let Some(known) = self.resource(group, resource) else { return Bounds::ANY };
        let own = known.order.bounds(version);
        let all = if known.kin == Kin::Shared { own.within(self.common.bounds(version)) } else { own };
        if all.from <= all.to { all } else { Bounds::ANY }
    }

    /// Takes bounds of a version by itself, as it comes.
    pub(super) fn add(&mut self, group: &str, resource: &str, version: u64, bounds: Bounds) {
        if self.resource(group, resource).is_none() {
            // Events are kept elsewhere in large clusters.
            let is_first = self.first.is_none() && group.is_empty() && resource != "events";
            if is_first {
                self.first = Some(resource.into());
            }
            let kin = if is_first { Kin::Shared } else { UNKNOWN };
            let known = Resource { group: group.into(), order: Order::default(), kin, last: None };
            self.resources.entry(resource.into()).or_default().push(known);
        }
        self.note(group, resource, version, bounds);
        let last = find(&mut self.resources, group, resource).and_then(|known| known.last.replace((version, bounds)));
        for (version, bounds) in [last, Some((version, bounds))].into_iter().flatten() {
            self.compare(group, resource, version, bounds);
        }
        if self.len() > PIVOTS_MAX {
            self.each(Order::halve);
        }
    }

    /// Takes bounds of a version. Where they contradict others, those are dropped: an etcd was restored, a clock was set, or requests are
    /// missing.
    pub(super) fn note(&mut self, group: &str, resource: &str, version: u64, bounds: Bounds) {
        let is_first = group.is_empty() && self.first.as_deref() == Some(resource);
        let Some(known) = find(&mut self.resources, group, resource) else { return };
        let (own, common) = (known.order.bounds(version), self.common.bounds(version));
        let is_shared = known.kin == Kin::Shared;
        if !own.meets(bounds) {
            known.order = Order::default();
        }
        if is_shared && !common.meets(bounds) {
            self.common = Order::default();
            if is_first {
                let others = self.resources.values_mut().flatten().filter(|known| known.kin == Kin::Shared);
                others.for_each(|known| known.kin = UNKNOWN);
            }
        }
        let Some(known) = find(&mut self.resources, group, resource) else { return };
        if is_shared && !common.meets(bounds) {
            known.kin = if is_first { Kin::Shared } else { Kin::Alien };
        }
        let mut is_new = known.order.note(version, bounds);
        if known.kin == Kin::Shared {
            is_new |= self.common.note(version, bounds);
        }
        self.news += u64::from(is_new);
    }

    /// Compares a version with the common order.
    fn compare(&mut self, group: &str, resource: &str, version: u64, bounds: Bounds) {
        let common = self.common.bounds(version);
        let Some(known) = find(&mut self.resources, group, resource) else { return };
        let Kin::Unknown { agreed, since, first } = known.kin else { return };
        if !common.meets(bounds) {
            known.kin = Kin::Alien;
            return;
        }
        if common.width() > TIGHT || bounds.width() > TIGHT {
            return;
        }
        let (since, first) = if agreed == 0 { (bounds.from, version) } else { (since, first) };
        known.kin = Kin::Unknown { agreed: agreed + 1, since, first };
        let (number, time, versions) = AGREED_MIN;
        if agreed + 1 < number || bounds.from - since < time || version.abs_diff(first) < versions {
            return;
        }
        if !known.order.agrees(&self.common) {
            known.kin = Kin::Alien;
            return;
        }
        known.kin = Kin::Shared;
        for (&version, &from) in &known.order.after {
            self.common.note(version, Bounds { from, to: i64::MAX });
        }
        for (&version, &to) in &known.order.by {
            self.common.note(version, Bounds { from: i64::MIN, to });
        }
        self.news += 1;
    }

    fn each(&mut self, change: impl Fn(&mut Order)) {
        change(&mut self.common);
        self.resources.values_mut().flatten().for_each(|known| change(&mut known.order));
    }

    /// Number of bounds that are kept.
    pub(super) fn len(&self) -> usize {
        self.common.len() + self.resources.values().flatten().map(|known| known.order.len()).sum::<usize>()
    }

    /// Drops what says nothing of times from this one on.
    pub(super) fn forget(&mut self, time: i64) {
        self.each(|order| order.forget(time));
    }
}
