//! Requests and versions of one object name, and what follows from them.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use super::assign::{self, Slot, Span};
use super::fact::{Fact, Verb};
use super::ground::{Covered, Ground};
use super::order::Bounds;
use super::verdict::{Actor, Settled, Unresolved, Verdict, Write};
use super::version::{Names, Version};
use crate::core::k8s::audited::{self, Sender};
use crate::core::model::EntryType;

/// Requests and versions of one name, of every uid that had it.
#[derive(Debug, Default)]
pub(super) struct Object {
    /// In the order of seq.
    versions: Vec<Known>,
    facts: Vec<Fact>,
    /// Time at which something of it is to be settled; it stands in the queue with it.
    pub(super) due: Option<i64>,
}

#[derive(Debug)]
struct Known {
    version: Arc<Version>,
    late: bool,
    decided: bool,
    /// Set once all requests of its time are known, and others of the order have been bounded by them.
    measured: bool,
    /// Set if no request can have made it then.
    lonely: bool,
}

/// Time for which a version waits for what others of about its time say of it: a second, in microseconds.
const NEIGHBOURS_WAIT: i64 = 1_000_000;

/// Number of requests of one object that wait for its source; the oldest go first.
const HELD_MAX: usize = 4096;

/// Candidates of one version.
#[derive(Debug, Default)]
struct Candidates {
    facts: Vec<usize>,
    /// One of them did it for certain, so that no request without a name can have.
    closed: bool,
    /// No assignment of versions to requests is possible.
    contradicted: bool,
}

impl Object {
    pub(super) fn is_empty(&self) -> bool {
        self.versions.is_empty() && self.facts.is_empty()
    }

    /// Adds a request; a repeat changes nothing. What came after its time counts only for versions that are still open.
    pub(super) fn add_fact(&mut self, fact: Fact, ground: &mut Ground, out: &mut Settled) {
        if self.facts.iter().any(|known| known.is(&fact))
            || fact.late && self.versions.iter().all(|known| known.decided)
        {
            return;
        }
        ground.bytes += fact.bytes();
        self.facts.push(fact);
        self.versions.iter_mut().for_each(|known| known.lonely = false);
        let newest = self.facts.len() - 1;
        self.prove(0..self.versions.len(), newest..newest + 1, ground, out);
    }

    /// Adds a version; a repeat changes nothing.
    pub(super) fn add_version(&mut self, mut version: Version, ground: &mut Ground, out: &mut Settled) {
        let place = self.versions.partition_point(|known| known.version.seq < version.seq);
        if self.versions.get(place).is_some_and(|known| known.version.seq == version.seq) {
            return;
        }
        let neighbours = [place.checked_sub(1), Some(place)].into_iter().flatten();
        for known in neighbours.filter_map(|place| self.versions.get(place)) {
            version.share(&known.version);
        }
        ground.bytes += weight(&version);
        ground.order(&version);
        let late = version.latest + 2 * ground.limits.skew < ground.mark;
        let version = Arc::new(version);
        self.versions.insert(place, Known { version, late, decided: false, measured: false, lonely: false });
        self.prove(place..place + 1, 0..self.facts.len(), ground, out);
    }

    /// Decides at once what one of these requests proves of these versions by itself.
    fn prove(&mut self, versions: Range<usize>, facts: Range<usize>, ground: &mut Ground, out: &mut Settled) {
        for known in self.versions[versions].iter_mut().filter(|known| !known.decided) {
            let mut facts = self.facts[facts.clone()].iter_mut();
            let Some(fact) = facts.find(|fact| fact.proves(&known.version)) else { continue };
            fact.made = Some(known.version.seq);
            known.decided = true;
            ground.narrow(&known.version, (fact.received, fact.completed));
            ground.close(&known.version, None);
            out.verdicts.push(Verdict { seq: known.version.seq, actor: unite(&known.version, [&*fact].into_iter()) });
        }
    }

    /// Bounds the time of the versions of which all requests are known, and of what stands before and behind them. Reports whether one
    /// of them is left with several requests, so that more is to be had from others.
    pub(super) fn measure(&mut self, names: &Names, ground: &mut Ground) -> bool {
        let is_ripe = |known: &Known| !known.decided && known.version.latest + ground.limits.answer <= ground.mark;
        if !self.versions.iter().any(is_ripe) {
            return false;
        }
        let candidates = self.candidates(names, ground);
        let mut is_open = false;
        for (place, candidates) in candidates.iter().enumerate() {
            let Known { version, late, decided, .. } = &self.versions[place];
            if *decided || version.latest + ground.limits.answer > ground.mark {
                continue;
            }
            let version = Arc::clone(version);
            let is_sure = !late
                && version.is_one_write()
                && !candidates.contradicted
                && !ground.is_forgotten(names, &version)
                && !ground.is_doubted(&version)
                && !ground.has_hole(names, &version);
            if candidates.closed {
                ground.close(&version, None);
            } else {
                ground.open(&version, !is_sure || !candidates.facts.is_empty());
            }
            let named = candidates.facts.iter().map(|&fact| &self.facts[fact]);
            let all = named.chain(ground.pooled(names, &version).filter(|_| !candidates.closed));
            let (mut number, mut is_shown, mut span) = (0, true, (i64::MAX, i64::MIN));
            for fact in all {
                number += 1;
                is_shown &= fact.is_shown_by(&version) && !fact.unsure;
                span = (span.0.min(fact.received), span.1.max(fact.completed));
            }
            (self.versions[place].measured, self.versions[place].lonely) = (true, number == 0);
            is_open |= number > 1;
            if is_sure && is_shown && number > 0 {
                ground.narrow(&version, span);
            }
        }
        is_open
    }

    /// Settles what is due, and returns the time at which the next is.
    pub(super) fn settle(&mut self, names: &Names, ground: &mut Ground, out: &mut Settled) -> Option<i64> {
        let mark = ground.mark;
        if self.versions.iter().any(|known| !known.decided) {
            let mut candidates = self.candidates(names, ground);
            self.note_holes(names, &candidates, ground);
            if self.versions.iter().any(|known| !known.decided && ground.has_hole(names, &known.version)) {
                candidates = self.candidates(names, ground);
            }
            for place in 0..self.versions.len() {
                if self.is_due(place, &candidates, ground) {
                    self.decide(place, &candidates[place], names, ground, out);
                }
            }
        }
        self.settle_facts(names, ground, out);
        let keep = 2 * ground.limits.request + ground.limits.answer;
        self.versions.retain(|known| {
            let stays = !known.decided || known.version.latest + keep > mark;
            ground.bytes -= if stays { 0 } else { weight(&known.version) };
            stays
        });
        self.next(ground)
    }

    /// Time at which the next of it is due.
    pub(super) fn next(&self, ground: &Ground) -> Option<i64> {
        let limits = &ground.limits;
        let open = self.versions.iter().filter(|known| !known.decided);
        let open = open.map(|known| {
            let first = known.version.latest + limits.answer;
            let may = || !known.lonely && self.facts.iter().any(|fact| fact.may_have_made(&known.version));
            match (known.measured, first > ground.mark || may()) {
                (false, true) => first,
                (true, true) => first + NEIGHBOURS_WAIT,
                (_, false) => known.version.latest + limits.request,
            }
        });
        let kept = self.versions.iter().filter(|known| known.decided);
        let kept = kept.map(|known| known.version.latest + 2 * limits.request + limits.answer).min();
        let facts = self.facts.iter().map(|fact| fact.due).min();
        // Requests are settled in portions; nobody waits for them.
        let rest = [kept, facts].into_iter().flatten().min().map(|due| due.max(ground.mark + limits.answer));
        [open.min(), rest].into_iter().flatten().min()
    }

    /// Reports whether a version is to be decided. A deletion without a request of its own waits for that of a collection, which
    /// is answered when all of it is deleted.
    fn is_due(&self, place: usize, candidates: &[Candidates], ground: &Ground) -> bool {
        let Known { version, decided, .. } = &self.versions[place];
        let asked = version.op == EntryType::Deleted && version.deleting;
        let asking = self.versions[..place].iter().any(|earlier| {
            !earlier.decided && earlier.version.deletion_requested && earlier.version.uid == version.uid
        });
        let long = version.is_deletion() && candidates[place].facts.is_empty();
        let wait = if long { ground.limits.request } else { ground.limits.answer + NEIGHBOURS_WAIT };
        !decided && version.latest + wait <= ground.mark && !(asked && asking)
    }

    /// Place of the first version of which it matters what made it. What was decided before says nothing of those that are not, but for
    /// the last one, which stands before them, and for a request of a deletion: its sender may make several versions, and none behind that.
    fn begin(&self) -> usize {
        let open = self.versions.iter().position(|known| !known.decided).unwrap_or(self.versions.len());
        let asked = self.versions[..open].iter().position(|known| known.version.deletion_requested);
        asked.unwrap_or_else(|| open.saturating_sub(1))
    }

    /// Returns the earliest time at which the versions before a place can all have been made, by the requests that made them.
    fn made_by(&self, begin: usize, skew: i64) -> i64 {
        let first = self.versions.get(begin).map_or(u64::MAX, |known| known.version.seq);
        let makers = self.facts.iter().filter(|fact| fact.made.is_some_and(|seq| seq < first));
        makers.map(|fact| fact.received - skew).max().unwrap_or(i64::MIN)
    }

    /// Requests that can have made each version from [`Self::begin`] on.
    fn candidates(&self, names: &Names, ground: &Ground) -> Vec<Candidates> {
        let (skew, begin) = (ground.limits.skew, self.begin());
        let mut all: Vec<Candidates> = Vec::with_capacity(self.versions.len());
        all.resize_with(begin, Candidates::default);
        let mut slots = Vec::with_capacity(self.versions.len() - begin);
        for known in &self.versions[begin..] {
            let (version, when) = (&known.version, ground.when(&known.version));
            let mut candidates = self.candidates_of(known, when, ground);
            let free = candidates.facts.is_empty()
                || known.late
                || version.latest + ground.limits.answer > ground.mark
                || !candidates.closed && ground.pooled(names, version).next().is_some()
                || ground.is_forgotten(names, version)
                || ground.is_doubted(version)
                || ground.has_hole(names, version);
            let mut slot = Slot::default();
            if version.is_one_write() {
                (slot.earliest, slot.latest) = (when.from, when.to);
            }
            // The API server makes the stamp of a change when it has read the version before.
            if version.is_one_write() && version.op == EntryType::Modified {
                slot.stamped_by = version.latest + skew;
            }
            // Who asks for a deletion does not end the grace period: whoever does has sent another request.
            slot.last = version.deletion_requested;
            if slots.is_empty() {
                slot.earliest = slot.earliest.max(self.made_by(begin, skew));
            }
            slots.push(Slot { candidates: std::mem::take(&mut candidates.facts), free, ..slot });
            all.push(candidates);
        }
        let span = |fact: &Fact| Span {
            received: fact.received - skew,
            completed: fact.end(&ground.limits) + skew,
            several: self.makes_several(fact),
        };
        let spans: Vec<Span> = self.facts.iter().map(span).collect();
        for run in assign::narrow(&mut slots, &spans) {
            all[begin..][run].iter_mut().for_each(|candidates| candidates.contradicted = true);
        }
        for (candidates, slot) in all[begin..].iter_mut().zip(slots) {
            candidates.facts = slot.candidates;
        }
        all
    }

    fn candidates_of(&self, Known { version, decided, .. }: &Known, when: Bounds, ground: &Ground) -> Candidates {
        let skew = ground.limits.skew;
        let made = |fact: &Fact| fact.made == Some(version.seq);
        if let Some(maker) = self.facts.iter().position(|fact| fact.proves(version) || made(fact)) {
            return Candidates { facts: vec![maker], closed: true, contradicted: false };
        }
        // Requests of a decided version may be gone, so that nothing follows from those that are left.
        if *decided || !version.is_one_write() {
            return Candidates::default();
        }
        let may = |fact: &Fact| {
            (fact.made.is_none() || self.makes_several(fact)) && fact.may_have_made(version) && ground.ran(fact, when)
        };
        let mut facts: Vec<usize> = (0..self.facts.len()).filter(|&fact| may(&self.facts[fact])).collect();
        // An answer that carries the version was given when it was there: what was asked later did not make it.
        let carries = |fact: &&Fact| version.op != EntryType::Deleted && *fact.after == *version.version;
        let carried = self.facts.iter().filter(carries).map(|fact| fact.completed).min();
        // After the first deletion of an object, others only find it deleted.
        let first = facts.iter().map(|&fact| &self.facts[fact]);
        let first = first.filter(|fact| !fact.may_be_dry && self.deletes_it(fact, version, skew));
        let first = first.map(|fact| fact.completed).min();
        let end = carried.into_iter().chain(first).min().unwrap_or(i64::MAX / 2);
        facts.retain(|&fact| self.facts[fact].received <= end + 2 * skew);
        let asks = |fact: usize| self.facts[fact].verb.deletes() && !self.facts[fact].is_of_kubelet();
        if version.deletion_requested && facts.iter().any(|&fact| asks(fact)) {
            facts.retain(|&fact| asks(fact));
        }
        let certain = |&&fact: &&usize| self.must_have_made(&self.facts[fact], version, ground.mark);
        if let Some(&fact) = facts.iter().find(certain) {
            let verb = self.facts[fact].verb;
            facts.retain(|&fact| self.facts[fact].verb == verb);
            return Candidates { facts, closed: true, contradicted: false };
        }
        Candidates { facts, closed: false, contradicted: false }
    }

    /// Reports whether the request may have made several versions: an eviction, and the deletion by a kubelet, which shortens the grace
    /// period to nothing first.
    fn makes_several(&self, fact: &Fact) -> bool {
        let shortens = |known: &Known| known.version.grace_shortened;
        fact.verb == Verb::Evict || fact.verb == Verb::Delete && self.versions.iter().any(shortens)
    }

    /// Reports whether the object of this uid was going for certain when the request was answered.
    fn deletes_it(&self, fact: &Fact, version: &Version, skew: i64) -> bool {
        // It may have found another object of the name, which was going, or have made it go.
        let of_another = |Known { version: other, .. }: &Known| {
            let then = if other.seq < version.seq {
                other.latest + 2 * skew >= fact.received
            } else {
                other.earliest - 2 * skew <= fact.completed
            };
            other.uid != version.uid && then
        };
        version.is_deletion()
            && matches!(fact.verb, Verb::Delete | Verb::Evict)
            && !fact.unsure
            && (!fact.uid.is_empty() && *fact.uid == *version.uid || !self.versions.iter().any(of_another))
    }

    /// Reports whether the request made a version for certain, and this is the only one that it can have made: a creation, or the
    /// deletion of an object that goes at once.
    fn must_have_made(&self, fact: &Fact, version: &Version, mark: i64) -> bool {
        let certain = match fact.verb {
            Verb::Create => version.op == EntryType::Added,
            // One that finds its object deleted makes nothing.
            Verb::Delete => {
                let going = |known: &Known| known.version.deletion_requested || known.version.deleting;
                version.op == EntryType::Deleted && !self.versions.iter().any(going)
            }
            Verb::Act | Verb::Evict | Verb::Update | Verb::Patch | Verb::Apply | Verb::DeleteCollection => false,
        };
        let others = || self.versions.iter().filter(|known| fact.may_have_made(&known.version)).count() > 1;
        certain && !fact.unsure && !fact.may_be_dry && fact.completed <= mark && !others()
    }

    /// Notes that the resource has writers whom the audit log lacks, before anything is concluded from who is not there.
    fn note_holes(&self, names: &Names, candidates: &[Candidates], ground: &mut Ground) {
        for (place, known) in self.versions.iter().enumerate() {
            if self.is_due(place, candidates, ground)
                && self.answer(place, &candidates[place], names, ground).0 == Err(Unresolved::NotInAuditLog)
            {
                ground.note_hole(names, &known.version);
            }
        }
    }

    fn decide(&mut self, place: usize, candidates: &Candidates, names: &Names, ground: &mut Ground, out: &mut Settled) {
        let (actor, certain) = self.answer(place, candidates, names, ground);
        let known = &mut self.versions[place];
        known.decided = true;
        let version = &known.version;
        match candidates.facts.as_slice() {
            &[fact] if certain => self.facts[fact].made = Some(version.seq),
            several => several.iter().for_each(|&fact| self.facts[fact].contested = true),
        }
        if version.op == EntryType::Deleted {
            ground.askers.remove(&*version.uid);
        } else if version.deletion_requested {
            ground.askers.insert(Arc::clone(&version.uid), actor.clone());
        }
        let mut pooled = ground.pooled(names, version);
        let only = pooled.next().filter(|_| certain && candidates.facts.is_empty()).map(|fact| fact.number);
        drop(pooled);
        ground.close(version, only);
        out.verdicts.push(Verdict { seq: version.seq, actor });
    }

    /// The answer for a version, and whether its one candidate made it. Of the end of a deletion the two are about different requests.
    fn answer(
        &self,
        place: usize,
        candidates: &Candidates,
        names: &Names,
        ground: &Ground,
    ) -> (Result<Actor, Unresolved>, bool) {
        let Known { version, late, .. } = &self.versions[place];
        let made = self.maker(version, *late, candidates, names, ground);
        let pooled = if candidates.closed { 0 } else { ground.pooled(names, version).take(2).count() };
        let certain = made.is_ok() && candidates.facts.len() + pooled == 1;
        let ends = version.op == EntryType::Deleted;
        let asker = ends.then(|| ground.asker(version)).flatten();
        // The request for the deletion came before anything that is known.
        let unknown = ends && version.deleting;
        (asker.unwrap_or(if unknown { Err(Unresolved::OutsideOfItsTime) } else { made }), certain)
    }

    /// Sender of the request that made this version.
    fn maker(
        &self,
        version: &Version,
        late: bool,
        candidates: &Candidates,
        names: &Names,
        ground: &Ground,
    ) -> Result<Actor, Unresolved> {
        let named = candidates.facts.iter().map(|&fact| &self.facts[fact]);
        if let [fact] = candidates.facts.as_slice()
            && self.facts[*fact].proves(version)
        {
            return unite(version, named);
        }
        if !version.is_one_write() {
            return Err(Unresolved::NotWatched);
        }
        if late || ground.is_forgotten(names, version) {
            return Err(Unresolved::OutsideOfItsTime);
        }
        let pooled = ground.pooled(names, version).filter(|_| !candidates.closed);
        let all: Vec<&Fact> = named.chain(pooled).collect();
        // What no request made says nothing of an audit log that may begin later.
        let lacks = if all.is_empty() { ground.lacks(version) } else { ground.is_doubted(version) };
        if candidates.contradicted || lacks {
            return Err(Unresolved::Incomplete);
        }
        if all.is_empty() {
            return Err(match version.op {
                EntryType::Deleted if &*names.resource == "events" => Unresolved::Expired,
                _ if version.is_deletion() && ground.lacks_definition(names, version) => Unresolved::DefinitionDeleted,
                _ if ground.may_begin_after(version) => Unresolved::BeforeAuditLog,
                EntryType::Added | EntryType::Modified | EntryType::Deleted | EntryType::Gap | EntryType::Actor => {
                    Unresolved::NotInAuditLog
                }
            });
        }
        // The end of a definition asks for the deletion of its objects, and nobody logs that.
        if version.deletion_requested && ground.lacks_definition(names, version) {
            return Err(Unresolved::Ambiguous);
        }
        let actor = unite(version, all.iter().copied())?;
        // Where others are missing, a time is no mark, and neither is a manager of theirs.
        let hole = ground.has_hole(names, version);
        let hides = |fact: &Fact| version.op == EntryType::Modified && ground.hides(names, version, &fact.manager);
        let shown = |fact: &&Fact| match (fact.is_timed(), fact.is_shown_by(version)) {
            (true, shown) => !hole || shown && (fact.proves(version) || !hides(fact)),
            (false, shown) => shown && (!hole || fact.proves(version)),
        };
        if all.iter().all(shown) { Ok(actor) } else { Err(Unresolved::Incomplete) }
    }

    /// Settles the requests whose versions are all known: those that made none, and those whose version nobody has.
    fn settle_facts(&mut self, names: &Names, ground: &mut Ground, out: &mut Settled) {
        let mark = ground.mark;
        let versions = &self.versions;
        let known: HashSet<&str> = versions.iter().map(|known| &*known.version.version).collect();
        let open: Vec<&Version> = versions.iter().filter(|known| !known.decided).map(|known| &*known.version).collect();
        let keep = 2 * ground.limits.request;
        let mut held = self.facts.len();
        self.facts.retain(|fact| {
            let waits = open.iter().any(|version| fact.may_have_made(version) || fact.completed >= version.earliest);
            if fact.due > mark || waits {
                return true;
            }
            let told = fact.made.is_none() && !fact.contested && !fact.unsure && !fact.late;
            let timely = fact.received > ground.forgotten && fact.completed - fact.received <= keep;
            let covered = if told && timely { ground.covered(names, fact) } else { Covered::No };
            if covered == Covered::NotYet && held <= HELD_MAX {
                return true;
            }
            held -= 1;
            ground.bytes -= fact.bytes();
            if covered == Covered::Yes {
                if fact.is_sure() && !known.contains(&*fact.after) {
                    out.unknown_versions.push(write(fact, names));
                } else if fact.verb.changes_fields() && !fact.is_sure() {
                    out.wasted.push(write(fact, names));
                }
            }
            false
        });
    }

    /// Gives up what is due by a time at which not everything is known, and all requests where `facts` says so.
    pub(super) fn forget(&mut self, until: i64, facts: bool, ground: &mut Ground, out: &mut Settled) {
        for known in self.versions.iter_mut().filter(|known| !known.decided) {
            if facts || known.version.latest + ground.limits.answer <= until {
                known.decided = true;
                ground.close(&known.version, None);
                let actor = ground.asker(&known.version).filter(|_| known.version.op == EntryType::Deleted);
                let actor = actor.unwrap_or(Err(Unresolved::OutsideOfItsTime));
                out.verdicts.push(Verdict { seq: known.version.seq, actor });
            }
        }
        self.facts.retain(|fact| {
            let goes = facts || fact.due <= until;
            if goes {
                ground.bytes -= fact.bytes();
                ground.forgotten = ground.forgotten.max(fact.completed.min(fact.due));
            }
            !goes
        });
        self.versions.retain(|known| {
            ground.bytes -= if known.decided { weight(&known.version) } else { 0 };
            !known.decided
        });
    }
}

/// The one user who sent all of these requests, with what all of them share.
fn unite<'a>(version: &Version, mut facts: impl Iterator<Item = &'a Fact>) -> Result<Actor, Unresolved> {
    let first = facts.next().ok_or(Unresolved::NotInAuditLog)?;
    let mut certain = !first.unsure;
    let mut actor = Actor {
        sender: Sender::clone(&first.sender),
        verb: first.verb.word().to_owned(),
        subresource: first.subresource.to_string(),
        certainty: first.certainty(version),
        audit_ids: vec![first.id.to_string()],
    };
    for fact in facts {
        let sender = &mut actor.sender;
        if !fact.sender.is_same_user(sender) {
            return Err(Unresolved::Ambiguous);
        }
        certain |= !fact.unsure;
        let clear = |text: &mut String, other: &str| {
            if text != other {
                text.clear();
            }
        };
        clear(&mut sender.agent, &fact.sender.agent);
        clear(&mut actor.verb, fact.verb.word());
        clear(&mut actor.subresource, &fact.subresource);
        if sender.addresses != fact.sender.addresses {
            sender.addresses.clear();
        }
        actor.certainty = actor.certainty.max(fact.certainty(version));
        if !actor.audit_ids.iter().any(|id| *id == *fact.id) {
            actor.audit_ids.push(fact.id.to_string());
        }
    }
    if certain { Ok(actor) } else { Err(Unresolved::Ambiguous) }
}

fn write(fact: &Fact, names: &Names) -> Write {
    Write {
        id: fact.id.to_string(),
        key: audited::key(&fact.id, fact.times.0, fact.times.1),
        sender: Sender::clone(&fact.sender),
        verb: fact.verb.word(),
        subresource: fact.subresource.to_string(),
        group: names.group.to_string(),
        resource: names.resource.to_string(),
        namespace: names.namespace.to_string(),
        name: names.name.to_string(),
        version: fact.after.to_string(),
        received: fact.received,
        completed: if fact.times.1 == 0 { fact.completed } else { fact.times.1 },
    }
}

/// Bytes that a version takes, about.
fn weight(version: &Version) -> usize {
    size_of::<Known>() + version.bytes()
}
