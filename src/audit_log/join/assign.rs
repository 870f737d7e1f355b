//! Which requests can have made which versions of one object, all taken together.
//!
//! Each version that is one write was made by one request, and each request made one version at most. Versions have an order, and
//! each was made while its request ran. A request stays a candidate of a version if there is an assignment of all versions to requests in which it made that one.

use std::collections::HashSet;

/// Version, with bounds of its time by a reference clock.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) earliest: i64,
    pub(super) latest: i64,
    /// Time by which the API server had the version before it, where it is known from a stamp.
    pub(super) stamped_by: i64,
    /// Requests that can have made it, by the two alone.
    pub(super) candidates: Vec<usize>,
    /// Reports that something else can have made it: what is not among the requests, or what makes several versions.
    pub(super) free: bool,
    /// Reports that its request made no later version, also one that can make several.
    pub(super) last: bool,
}

impl Default for Slot {
    fn default() -> Self {
        Self {
            earliest: i64::MIN,
            latest: i64::MAX,
            stamped_by: i64::MAX,
            candidates: Vec::new(),
            free: false,
            last: false,
        }
    }
}

/// Request, with bounds of its time by a reference clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) received: i64,
    pub(super) completed: i64,
    /// Reports that it can make several versions.
    pub(super) several: bool,
}

/// Most versions that are looked at together. Those beyond are another run: fewer candidates are excluded, and none that is right.
const RUN_MAX: usize = 64;

/// Most steps of a run. What is not decided by then stays a candidate.
const STEPS_MAX: usize = 20_000;

/// Removes what is in no assignment. Returns the runs of versions for which there is none, so that a request must be missing.
pub(super) fn narrow(slots: &mut [Slot], spans: &[Span]) -> Vec<std::ops::Range<usize>> {
    let mut contradictions = Vec::new();
    let mut begin = 0;
    for run in slots.chunks_mut(RUN_MAX) {
        let end = begin + run.len();
        if !narrow_run(run, spans) {
            contradictions.push(begin..end);
        }
        begin = end;
    }
    contradictions
}

fn narrow_run(run: &mut [Slot], spans: &[Span]) -> bool {
    let Some(bounds) = bounds(run, spans) else { return false };
    let (begins, taken) = (begins(run, spans), vec![false; spans.len()]);
    let needed_by = needed_by(run, spans);
    let mut search = Search { run, spans, bounds, needed_by, taken, chosen: Vec::new(), fixed: None, steps: 0 };
    let mut possible: Vec<Vec<bool>> = search.run.iter().map(|slot| vec![false; slot.candidates.len()]).collect();
    match search.find() {
        Found::Yes => search.note_around(&mut possible),
        Found::No => return false,
        Found::Unknown => return true,
    }
    for slot in 0..search.run.len() {
        for candidate in 0..search.run[slot].candidates.len() {
            if possible[slot][candidate] || !search.may_have(slot, candidate, begins[slot]) {
                continue;
            }
            search.fixed = Some((slot, candidate));
            match search.find() {
                Found::Yes => search.note(&mut possible),
                Found::No => {}
                Found::Unknown => possible[slot][candidate] = true,
            }
        }
    }
    for (slot, possible) in run.iter_mut().zip(possible) {
        let mut possible = possible.into_iter();
        slot.candidates.retain(|_| possible.next().unwrap_or(true));
    }
    true
}

/// Returns for each version, and for the end, the latest time at which the one before it can have been made so that it and all behind it
/// find their requests, where each request could be taken any number of times. None where there is no such time: a search that looks for
/// one beyond these bounds tries everything in vain.
fn bounds(run: &[Slot], spans: &[Span]) -> Option<Vec<i64>> {
    let mut bounds = vec![i64::MAX; run.len() + 1];
    for (place, slot) in run.iter().enumerate().rev() {
        let latest = slot.latest.min(bounds[place + 1]);
        let by = |&request: &usize| {
            let Span { received, completed, .. } = spans[request];
            let latest = latest.min(completed);
            (slot.earliest.max(received) <= latest).then_some(latest)
        };
        let free = (slot.free && slot.earliest <= latest).then_some(latest);
        bounds[place] = slot.candidates.iter().filter_map(by).chain(free).max()?.min(slot.stamped_by);
    }
    Some(bounds)
}

/// Returns for each request the version that has no other one.
fn needed_by(run: &[Slot], spans: &[Span]) -> Vec<Option<usize>> {
    let mut needed_by = vec![None; spans.len()];
    for (place, slot) in run.iter().enumerate().filter(|(_, slot)| !slot.free) {
        if let &[request] = slot.candidates.as_slice()
            && !spans[request].several
        {
            needed_by[request] = Some(place);
        }
    }
    needed_by
}

/// Returns for each version the earliest time at which the one before it can have been made, where each request could be taken any number
/// of times.
fn begins(run: &[Slot], spans: &[Span]) -> Vec<i64> {
    let mut begins = Vec::with_capacity(run.len());
    let mut now = i64::MIN;
    for slot in run {
        begins.push(now);
        now = now.max(slot.earliest);
        let by = |&request: &usize| {
            let then = now.max(spans[request].received);
            (then <= slot.latest.min(spans[request].completed)).then_some(then)
        };
        let free = slot.free.then_some(now);
        // Where there is none, no assignment is found, whatever this is.
        now = slot.candidates.iter().filter_map(by).chain(free).min().unwrap_or(now);
    }
    begins
}

enum Found {
    Yes,
    No,
    Unknown,
}

struct Search<'a> {
    run: &'a [Slot],
    spans: &'a [Span],
    /// See [`bounds`].
    bounds: Vec<i64>,
    /// See [`needed_by`].
    needed_by: Vec<Option<usize>>,
    taken: Vec<bool>,
    /// Candidate of each version so far, by its place in the slot; `None` of a free one.
    chosen: Vec<Option<usize>>,
    /// Choice that is to be part of the assignment.
    fixed: Option<(usize, usize)>,
    steps: usize,
}

impl Search<'_> {
    fn find(&mut self) -> Found {
        if self.steps >= STEPS_MAX {
            return Found::Unknown;
        }
        self.taken.fill(false);
        self.chosen.clear();
        if self.choose(i64::MIN) {
            return Found::Yes;
        }
        if self.steps >= STEPS_MAX { Found::Unknown } else { Found::No }
    }

    /// Reports whether a version may have a request that no other one needs.
    fn is_free_for(&self, place: usize, request: usize) -> bool {
        self.needed_by[request].is_none_or(|needed| needed == place)
    }

    /// Reports whether a version may have a candidate by the times, where the one before it was made at `begin` at the earliest, and no other one
    /// needs it.
    fn may_have(&self, place: usize, candidate: usize, begin: i64) -> bool {
        let slot = &self.run[place];
        let request = slot.candidates[candidate];
        let Span { received, completed, .. } = self.spans[request];
        self.is_free_for(place, request)
            && begin.max(slot.earliest).max(received) <= slot.latest.min(completed).min(self.bounds[place + 1])
    }

    fn note(&self, possible: &mut [Vec<bool>]) {
        for (slot, chosen) in self.chosen.iter().enumerate() {
            if let Some(candidate) = *chosen {
                possible[slot][candidate] = true;
            }
        }
    }

    /// Notes the assignment, and every request beside it that can take the place of one of its own while the others stay: where requests are
    /// many, that is nearly all of them, and nothing is searched for.
    fn note_around(&self, possible: &mut [Vec<bool>]) {
        let used: HashSet<usize> =
            self.chosen.iter().zip(self.run).filter_map(|(chosen, slot)| Some(slot.candidates[(*chosen)?])).collect();
        // The latest time at which each version can be made so that those behind it keep their requests.
        let mut ends = vec![i64::MAX; self.run.len()];
        let mut end = i64::MAX;
        for (place, (slot, chosen)) in self.run.iter().zip(&self.chosen).enumerate().rev() {
            ends[place] = end;
            let completed = chosen.map_or(i64::MAX, |chosen| self.spans[slot.candidates[chosen]].completed);
            end = end.min(slot.latest).min(completed).min(slot.stamped_by);
        }
        let mut now = i64::MIN;
        for (place, (slot, chosen)) in self.run.iter().zip(&self.chosen).enumerate() {
            let begin = now.max(slot.earliest);
            for (candidate, &request) in slot.candidates.iter().enumerate() {
                let Span { received, completed, .. } = self.spans[request];
                let is_own = *chosen == Some(candidate);
                let fits = || begin.max(received) <= slot.latest.min(completed).min(ends[place]);
                possible[place][candidate] |= is_own || !used.contains(&request) && fits();
            }
            now = begin.max(chosen.map_or(i64::MIN, |chosen| self.spans[slot.candidates[chosen]].received));
        }
    }

    /// Assigns the versions from the next one on. `now` is the earliest time at which the one before can have been made: nothing
    /// else of the past matters to the order, so that the earliest choice of a time is always right.
    fn choose(&mut self, now: i64) -> bool {
        let place = self.chosen.len();
        let Some(slot) = self.run.get(place) else { return true };
        if now > self.bounds[place] {
            return false;
        }
        let (now, latest) = (now.max(slot.earliest), slot.latest.min(self.bounds[place + 1]));
        // What a later version is to have made is not for this one.
        let kept =
            self.fixed.filter(|fixed| fixed.0 > place).map(|(place, candidate)| self.run[place].candidates[candidate]);
        for (candidate, &request) in slot.candidates.iter().enumerate() {
            if self.fixed.is_some_and(|fixed| fixed.0 == place && fixed.1 != candidate) {
                continue;
            }
            self.steps += 1;
            if self.steps >= STEPS_MAX {
                return false;
            }
            let span = self.spans[request];
            let then = now.max(span.received);
            let takes = !span.several || slot.last;
            let is_kept = takes && kept == Some(request) || !self.is_free_for(place, request);
            if self.taken[request] || is_kept || then > latest.min(span.completed) {
                continue;
            }
            self.taken[request] = takes;
            self.chosen.push(Some(candidate));
            if self.choose(then) {
                return true;
            }
            self.chosen.pop();
            self.taken[request] = false;
        }
        let free = slot.free && self.fixed.is_none_or(|fixed| fixed.0 != place);
        if free && now <= latest {
            self.chosen.push(None);
            if self.choose(now) {
                return true;
            }
            self.chosen.pop();
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tries every assignment, and notes what is in one.
    fn all(slots: &[Slot], spans: &[Span], chosen: &mut Vec<Option<usize>>, (now, found): (i64, &mut Vec<Vec<bool>>)) {
        let place = chosen.len();
        let Some(slot) = slots.get(place) else {
            for (found, chosen) in found.iter_mut().zip(chosen.iter()) {
                found[chosen.map_or(0, |candidate| candidate + 1)] = true;
            }
            return;
        };
        let is_taken = |request: usize, chosen: &[Option<usize>]| {
            chosen.iter().zip(slots).any(|(candidate, slot)| {
                candidate.is_some_and(|candidate| slot.candidates[candidate] == request)
                    && (!spans[request].several || slot.last)
            })
        };
        let begin = now.max(slot.earliest);
        for candidate in (0..slot.candidates.len()).map(Some).chain(slot.free.then_some(None)) {
            let request = candidate.map(|candidate| slot.candidates[candidate]);
            if request.is_some_and(|request| is_taken(request, chosen)) {
                continue;
            }
            let span = request.map(|request| spans[request]);
            let then = begin.max(span.map_or(i64::MIN, |span| span.received));
            if now > slot.stamped_by || then > slot.latest.min(span.map_or(i64::MAX, |span| span.completed)) {
                continue;
            }
            chosen.push(candidate);
            all(slots, spans, chosen, (then, &mut *found));
            chosen.pop();
        }
    }

    /// What remains is what is in an assignment, by trying all of them.
    #[test]
    fn a_candidate_stays_where_an_assignment_has_it() {
        let (mut contradictions, mut removed, mut kept) = (0, 0, 0);
        for seed in 0..4_000 {
            let mut random = fastrand::Rng::with_seed(seed);
            let time = 2 * random.i64(2..8);
            let between = |random: &mut fastrand::Rng| {
                let from = random.i64(0..time);
                (from, from + random.i64(0..time / 2))
            };
            let spans: Vec<Span> = (0..random.usize(1..6))
                .map(|_| {
                    let (received, completed) = between(&mut random);
                    Span { received, completed, several: random.u8(0..6) == 0 }
                })
                .collect();
            let mut slots: Vec<Slot> = (0..random.usize(1..6))
                .map(|_| {
                    let (earliest, latest) = between(&mut random);
                    let candidates = (0..spans.len()).filter(|_| random.u8(0..3) > 0).collect();
                    let stamped_by = if random.bool() { i64::MAX } else { latest - random.i64(0..3) };
                    let (free, last) = (random.u8(0..4) == 0, random.u8(0..4) == 0);
                    Slot { earliest, latest, stamped_by, candidates, free, last }
                })
                .collect();
            slots.sort_by_key(|slot| slot.latest);
            let mut found: Vec<Vec<bool>> = slots.iter().map(|slot| vec![false; slot.candidates.len() + 1]).collect();
            all(&slots, &spans, &mut Vec::new(), (i64::MIN, &mut found));
            let is_possible = found[0].contains(&true);
            let expected: Vec<Vec<usize>> = slots
                .iter()
                .zip(&found)
                .map(|(slot, found)| {
                    let stays = |&(place, _): &(usize, &usize)| !is_possible || found[place + 1];
                    slot.candidates.iter().enumerate().filter(stays).map(|(_, request)| *request).collect()
                })
                .collect();
            let before: usize = slots.iter().map(|slot| slot.candidates.len()).sum();
            let ends = narrow(&mut slots, &spans);
            let narrowed: Vec<Vec<usize>> = slots.into_iter().map(|slot| slot.candidates).collect();
            assert_eq!((narrowed, ends.is_empty()), (expected.clone(), is_possible), "seed {seed}");
            let after: usize = expected.iter().map(Vec::len).sum();
            (contradictions, removed, kept) =
                (contradictions + u32::from(!is_possible), removed + before - after, kept + after);
        }
        assert!(contradictions > 100 && removed > 1_000 && kept > 1_000, "{contradictions} {removed} {kept}");
    }

    /// A request that the last version needs is no other one's, however many others there are for those; nothing is tried in vain.
    #[test]
    fn what_one_version_needs_is_nobody_elses() {
        let mut spans = vec![Span { received: 0, completed: 1_000, several: false }; 61];
        spans[60] = Span { received: 0, completed: 900, several: false };
        let wide = |at: i64| Slot { earliest: at, latest: at + 50, candidates: (0..61).collect(), ..Slot::default() };
        let mut slots: Vec<Slot> = (0..5).map(|number| wide(number * 40)).collect();
        slots.push(Slot { earliest: 300, latest: 310, candidates: vec![60], ..Slot::default() });
        assert!(narrow(&mut slots, &spans).is_empty());
        let left: Vec<usize> = slots.iter().map(|slot| slot.candidates.len()).collect();
        assert_eq!(left, [60, 60, 60, 60, 60, 1]);
    }

    /// Fifty versions of one second and fifty requests that can each have made any of them, of which the times leave few.
    #[test]
    fn times_decide_without_trying_everything() {
        let spans: Vec<Span> =
            (0..50).map(|at| Span { received: at * 10, completed: at * 10 + 25, several: false }).collect();
        let mut slots: Vec<Slot> = (0..50)
            .map(|at| Slot {
                earliest: at * 10,
                latest: at * 10 + 15,
                candidates: (0..50).collect(),
                ..Slot::default()
            })
            .collect();
        assert!(narrow(&mut slots, &spans).is_empty());
        let most = slots.iter().map(|slot| slot.candidates.len()).max();
        assert!(most < Some(5), "{:?}", slots.iter().map(|slot| slot.candidates.len()).collect::<Vec<_>>());
    }
}
