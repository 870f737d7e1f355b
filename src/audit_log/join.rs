//! The join: who made which version of an object, from the requests of the audit log and the versions of the log. Pure: no clock, no
//! I/O, and the same answers whatever the order in which both sides come.
//!
//! At the audit level `Metadata` no request names the version that it made, and many make none. So the join looks at all requests and
//! all versions of a name together, as soon as both are complete up to a time ([`Joiner::advance`]), and removes what cannot be:
//!
//! - A request makes a version of its sort: a POST an ADDED, a DELETE a deletion (`fact`).
//! - The version was written between the request's receipt and its answer. When that was is known to the second from its stamp, and
//!   often to milliseconds from the versions before and behind it (`order`).
//! - A PUT follows the version that it names.
//! - Where managedFields show a writer, it is the manager of the request, through the same subresource.
//! - An answer that carries a version was given after that version was written.
//! - A request makes one version at most, each version has one maker, and versions have an order (`assign`). That holds also for
//!   creations whose name the API server makes up, over a namespace (`pool`).
//!
//! A version gets an actor if one user remains. **A wrong actor is worse than none**: where several do, it says so. How surely it is known
//! is the tier of its request (`Certainty`, the surest first; `fact` sets it); of several requests of one user the weakest counts (`object`).
//!
//! What it does not see: it does not evaluate the selectors of a deleted collection, so that every collection of the namespace is a
//! candidate. A version that the log suppresses is to be given as well, or its request counts as one that made none. A request that takes longer than
//! [`Limits::answer`] from its write to its answer comes too late to be a rival.
//!
//! # Decision: absence proves something only where nothing was ever missing
//!
//! Context: A policy can leave out users or resources, and a backend drops events. The one request that remains may be a no-op
//! beside the write of somebody whom the audit log lacks.
//! Decision: For an hour after a version that no request can have made, versions of its resource need evidence of their request:
//! the answer to a creation or update, a creation or deletion of the name, or a moved manager that no such version has. In times in
//! which events were lost ([`Joiner::doubt`]), only such an answer counts.
//! Cost: There, removals of fields and scales stay without an actor. Beside the first such version, a no-op may be named.

mod assign;
mod fact;
mod ground;
mod limits;
mod object;
mod order;
mod pool;
#[cfg(test)]
mod tests;
mod verdict;
mod version;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;

pub(super) use fact::answered_by;
use fact::{Fact, Senders, Verb};
use ground::Ground;
pub use ground::{Cover, Missing};
pub use limits::Limits;
pub(super) use limits::REQUEST_MAX;
use object::Object;
pub use verdict::{Actor, Certainty, Settled, Unresolved, Verdict, Write};
pub use version::{Names, Version};

use crate::core::k8s::audited::AuditedRequest;
use crate::core::model::EntryType;

/// Most times that what is due at once is looked at together.
const ROUNDS_MAX: usize = 4;

/// State of the join.
#[derive(Debug)]
pub struct Joiner {
    ground: Ground,
    senders: Senders,
    objects: HashMap<Arc<Names>, Object>,
    queue: BinaryHeap<Reverse<(i64, Order)>>,
    /// Time at which requests without a name are looked through next.
    tidy_at: i64,
    out: Settled,
}

/// An object in the queue; they are equal to it, so that only times have an order.
#[derive(Debug)]
struct Order(Arc<Names>);

impl PartialEq for Order {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Order {}

impl PartialOrd for Order {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Order {
    fn cmp(&self, _: &Self) -> std::cmp::Ordering {
        std::cmp::Ordering::Equal
    }
}

impl Joiner {
    /// Creates the join of an audit log that is complete from a time on.
    #[must_use]
    pub fn new(limits: Limits, complete_from: i64) -> Self {
        Self {
            ground: Ground::new(limits, complete_from),
            senders: Senders::default(),
            objects: HashMap::new(),
            queue: BinaryHeap::new(),
            tidy_at: i64::MIN,
            out: Settled::default(),
        }
    }

    /// Takes a request of a watched resource, in any order and as often as it comes. Refused ones, dry runs and reads are dropped.
    pub fn request(&mut self, mut request: AuditedRequest) {
        let take = |text: &mut String| std::mem::take(text).into_boxed_str();
        let names = Names {
            group: take(&mut request.group),
            resource: take(&mut request.resource),
            namespace: take(&mut request.namespace),
            name: take(&mut request.name),
        };
        let Some(mut fact) = Fact::new(request, &mut self.senders, &self.ground.limits, self.ground.mark) else {
            return;
        };
        if !fact.unsure {
            self.ground.note_definition(&names, &fact);
        }
        match (fact.verb, &*names.name) {
            (Verb::Create | Verb::DeleteCollection, "") => {
                // Without a name and a time it can have deleted everything.
                fact.unsure |= fact.verb == Verb::DeleteCollection && !fact.is_timed();
                self.ground.pool(names, fact);
            }
            (_, "") => {}
            _ => {
                let names = self.known(&names).unwrap_or_else(|| Arc::new(names));
                self.change(names, |object, ground, out| object.add_fact(fact, ground, out));
            }
        }
        self.shrink();
    }

    /// Takes a version, in any order and as often as it comes.
    pub fn version(&mut self, mut version: Version) {
        if version.op == EntryType::Gap {
            return;
        }
        let names = self.known(&version.names).unwrap_or_else(|| Arc::clone(&version.names));
        version.names = Arc::clone(&names);
        self.change(names, |object, ground, out| object.add_version(version, ground, out));
        self.shrink();
    }

    /// Returns the names that the requests and versions of an object share, where it has some.
    fn known(&self, names: &Names) -> Option<Arc<Names>> {
        self.objects.get_key_value(names).map(|(known, _)| Arc::clone(known))
    }

    fn change(&mut self, names: Arc<Names>, change: impl FnOnce(&mut Object, &mut Ground, &mut Settled)) {
        let object = self.objects.entry(Arc::clone(&names)).or_default();
        change(object, &mut self.ground, &mut self.out);
        let next = object.next(&self.ground);
        if next.is_some_and(|next| object.due.is_none_or(|due| next < due)) {
            object.due = next;
            self.queue.extend(next.map(|due| Reverse((due, Order(names)))));
        } else if object.is_empty() {
            self.objects.remove(&names);
        }
    }

    /// Notes that the audit log may lack requests of a time, as after an event that a backend dropped.
    pub fn doubt(&mut self, from: i64, to: i64) {
        self.ground.doubt(from, to);
    }

    /// Notes that an audit log begins at a time: it lacks requests that were answered before.
    pub fn begin(&mut self, time: i64) {
        self.ground.begin(time);
    }

    /// Notes that an audit log has brought nothing up to a time. It may have had nothing to bring, so that requests of the others still
    /// name their senders; that a version has none makes nobody doubtful.
    pub fn be_silent(&mut self, time: i64) {
        self.ground.be_silent(time);
    }

    /// Sets what the sources of the log cover from now on. Requests of other resources, and of other times, are called neither wasted nor
    /// a witness, and those of a source that is behind wait for it. Until this is called everything is covered.
    pub fn cover(&mut self, covers: Vec<Cover>) {
        self.ground.covers = Some(covers);
    }

    /// Notes that the log may lack versions of a time, as a GAP says.
    pub fn lacks(&mut self, missing: Missing) {
        self.ground.lack(missing);
    }

    /// Moves on: every request that was answered up to `requests`, and every version that was written up to `versions`, has been taken.
    pub fn advance(&mut self, requests: i64, versions: i64) {
        self.ground.mark = self.ground.mark.max(requests.min(versions));
        let stale = requests.max(versions).saturating_sub(self.ground.limits.age);
        let mut due = Vec::new();
        while let Some(names) = self.pop(self.ground.mark.max(stale)) {
            if let Some(object) = self.objects.get_mut(&names) {
                object.due = None;
            }
            due.push(names);
        }
        self.measure(&due);
        for names in due {
            let Some(object) = self.objects.get_mut(&names) else { continue };
            object.due = object.settle(&names, &mut self.ground, &mut self.out);
            if object.due.is_some_and(|due| due <= stale) {
                object.forget(stale, false, &mut self.ground, &mut self.out);
                object.due = object.next(&self.ground);
            }
            match object.due {
                Some(due) => self.queue.push(Reverse((due.max(self.ground.mark.max(stale) + 1), Order(names)))),
                None => drop(self.objects.remove(&names)),
            }
        }
        if self.ground.mark >= self.tidy_at {
            self.ground.tidy(false);
            self.tidy_at = self.ground.mark + self.ground.limits.answer;
        }
    }

    /// Bounds the times of what is due by each other, until nothing new comes of it.
    fn measure(&mut self, due: &[Arc<Names>]) {
        let mut open: Vec<&Arc<Names>> = due.iter().collect();
        for _ in 0..ROUNDS_MAX {
            let known = self.ground.orders.news;
            let (objects, ground) = (&mut self.objects, &mut self.ground);
            open.retain(|names| objects.get_mut(*names).is_some_and(|object| object.measure(names, ground)));
            ground.narrow_pools(open.iter().map(|names| &***names));
            if open.is_empty() || ground.orders.news == known {
                return;
            }
        }
    }

    /// Takes an object off the queue that is due.
    fn pop(&mut self, until: i64) -> Option<Arc<Names>> {
        while self.queue.peek().is_some_and(|Reverse((due, _))| *due <= until) {
            let Reverse((due, Order(names))) = self.queue.pop()?;
            // Others stand further ahead as well.
            if self.objects.get(&names).is_some_and(|object| object.due.is_some_and(|known| known <= due)) {
                return Some(names);
            }
        }
        None
    }

    /// Forgets what would be settled first until there is room for the rest.
    fn shrink(&mut self) {
        if self.ground.bytes <= self.ground.limits.bytes {
            return;
        }
        self.ground.tidy(true);
        while self.ground.bytes > self.ground.limits.bytes / 4 * 3 {
            let Some(names) = self.pop(i64::MAX) else { return };
            if let Some(mut object) = self.objects.remove(&names) {
                object.forget(i64::MAX, true, &mut self.ground, &mut self.out);
            }
        }
    }

    /// Returns what has become ready since it was asked last.
    pub fn take(&mut self) -> Settled {
        std::mem::take(&mut self.out)
    }
}
