//! Which requests can have made which versions of one object, all taken together.
//!
//! Each version that is one write was made by one request, and each request made one version at most. Versions have an order, and
//! each was made while its request ran. A request stays a candidate of a version if there is an assignment of all versions to requests in which it made that one.

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
    let mut search = Search { run, spans, taken: vec![false; spans.len()], chosen: Vec::new(), fixed: None, steps: 0 };
    let mut possible: Vec<Vec<bool>> = search.run.iter().map(|slot| vec![false; slot.candidates.len()]).collect();
    match search.find() {
        Found::Yes => search.note(&mut possible),
        Found::No => return false,
        Found::Unknown => return true,
    }
    for slot in 0..search.run.len() {
        for candidate in 0..search.run[slot].candidates.len() {
            if possible[slot][candidate] {
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

enum Found {
    Yes,
    No,
    Unknown,
}

struct Search<'a> {
    run: &'a [Slot],
    spans: &'a [Span],
    taken: Vec<bool>,
    /// Candidate of each version so far, by its place in the slot; `None` of a free one.
    chosen: Vec<Option<usize>>,
    /// Choice that is to be part of the assignment.
    fixed: Option<(usize, usize)>,
    steps: usize,
}

impl Search<'_> {
    fn find(&mut self) -> Found {
        self.taken.fill(false);
        self.chosen.clear();
        if self.choose(i64::MIN) {
            return Found::Yes;
        }
        if self.steps >= STEPS_MAX { Found::Unknown } else { Found::No }
    }

    fn note(&self, possible: &mut [Vec<bool>]) {
        for (slot, chosen) in self.chosen.iter().enumerate() {
            if let Some(candidate) = *chosen {
                possible[slot][candidate] = true;
            }
        }
    }

    /// Assigns the versions from the next one on. `now` is the earliest time at which the one before can have been made: nothing
    /// else of the past matters to the order, so that the earliest choice of a time is always right.
    fn choose(&mut self, now: i64) -> bool {
        let place = self.chosen.len();
        let Some(slot) = self.run.get(place) else { return true };
        if now > slot.stamped_by {
            return false;
        }
        let now = now.max(slot.earliest);
        if now > slot.latest {
            return false;
        }
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
            if self.taken[request] || then > slot.latest || then > span.completed {
                continue;
            }
            self.taken[request] = !span.several || slot.last;
            self.chosen.push(Some(candidate));
            if self.choose(then) {
                return true;
            }
            self.chosen.pop();
            self.taken[request] = false;
        }
        let free = slot.free && self.fixed.is_none_or(|fixed| fixed.0 != place);
        if free {
            self.chosen.push(None);
            if self.choose(now) {
                return true;
            }
            self.chosen.pop();
        }
        false
    }
}
