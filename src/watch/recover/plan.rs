//! Planner of the requests that find every change of a source between two revisions. It is pure.
//!
//! Known are the objects at both ends of a *window* of revisions. In between etcd wrote one key with each revision (or
//! deleted several with one, where a lease ran out), so a revision that is known to be something else needs no question.
//! From the rest follows what to ask:
//!
//! 1. What an object was right before a version of it that is known, back to the version that it had at the beginning.
//! 2. When an object that is gone was deleted: halfway between where it was there and where it was not, and so on.
//! 3. Whether anything came and went in between: how many objects there were at each revision that nothing explains, and
//!    where there were more than are known, which.
//!
//! [`Plan::next`] says what to ask, and [`Plan::changes`] is the result once there is nothing to ask. What cannot be true is an
//! [`Inconsistency`], and then nothing of the window counts.
//!
//! # Decision: missed changes are read from etcd's history
//!
//! Context: A watch is answered from a bounded cache of the API server, and etcd keeps every revision until compaction.
//! Decision: Lists with `resourceVersionMatch=Exact` give the objects at both ends of a window; a pure planner asks for
//! earlier states, halves for deletions, and counts for short-lived objects. Windows go from the oldest, and each is recorded
//! by itself. Contradicting answers discard a window.
//! Cost: A request for each version, log2 of the window for each deletion, and a list of metadata for each window; `[cluster]
//! recover` bounds it, and the rest is a GAP.

use std::collections::{BTreeMap, BTreeSet};

/// Namespace and name.
pub(in crate::watch) type Key = (String, String);

/// An object at some revision: a number that stands for its uid, and its version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State {
    pub(super) uid: u64,
    pub(super) version: u64,
}

/// A question to the API server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Question {
    /// State of this object at this revision.
    Object(Key, u64),
    /// Number of objects at this revision.
    Count(u64),
    /// Names of the objects at this revision.
    Names(u64),
}

/// A recovered change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) version: u64,
    pub(super) key: Key,
    pub(super) deleted: bool,
}

/// Reason to discard a whole window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Inconsistency {
    /// A change has a revision that another source said is its own: they do not share one etcd.
    RevisionConflict,
    /// The answers contradict each other, or the journal.
    Contradiction,
}

/// State of an object from one revision to another, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fact {
    from: u64,
    upto: u64,
    /// `None`: it was not there.
    state: Option<State>,
    /// True if the state is older than the window, the journal has it, or its content has come.
    had: bool,
}

/// The questions about one window, and what their answers show.
#[derive(Debug)]
pub(super) struct Plan {
    /// The revision that the window begins after.
    from: u64,
    /// Its last revision.
    to: u64,
    /// Revisions that may have changed this source, without those of versions that are known.
    open: BTreeSet<u64>,
    /// Revisions among them that have deleted an object, and may have deleted more.
    deletions: BTreeSet<u64>,
    /// The versions that are known, and of what.
    versions: BTreeMap<u64, Key>,
    /// Number of objects that are equal at both ends.
    unchanged: u64,
    /// Known states of the others, in order and without overlaps.
    tracks: BTreeMap<Key, Vec<Fact>>,
    counts: BTreeMap<u64, u64>,
    /// Revisions at which every object was looked at.
    listed: BTreeSet<u64>,
    /// Changes that the journal has recorded already.
    recorded: BTreeSet<(Key, u64)>,
    /// Objects that an answer has shown.
    shown: BTreeSet<Key>,
    /// True if the API server reports counts.
    counting: bool,
    /// Set where neither counts nor lists of names are true: what came and went in between is not asked for.
    is_blind: bool,
}

impl Plan {
    /// The window after `from` up to `to`.
    pub(super) fn new(from: u64, to: u64) -> Self {
        Self {
            from,
            to,
            open: (from + 1..=to).collect(),
            deletions: BTreeSet::new(),
            versions: BTreeMap::new(),
            unchanged: 0,
            tracks: BTreeMap::new(),
            counts: BTreeMap::new(),
            listed: BTreeSet::new(),
            recorded: BTreeSet::new(),
            shown: BTreeSet::new(),
            counting: true,
            is_blind: false,
        }
    }

    /// Neither the counts nor the lists of this API server are true.
    pub(super) const fn cannot_count(&mut self) {
        self.is_blind = true;
    }

    /// An object that is the same at both ends.
    pub(super) const fn same(&mut self) {
        self.unchanged += 1;
    }

    /// These revisions are known to be of something else.
    pub(super) fn explain(&mut self, others: &BTreeSet<u64>) {
        let deletions = &self.deletions;
        // What is found out to be of two is a doubt, so a version that was found is not looked for here.
        self.open.retain(|revision| !others.contains(revision) || deletions.contains(revision));
    }

    /// The versions that are known by now.
    pub(super) fn found(&self) -> impl Iterator<Item = u64> {
        self.versions.keys().copied()
    }

    /// Adds the journal's last version of an object that differs between both ends, and its state then. `None`: it was not there.
    pub(super) fn begins(&mut self, key: &Key, recorded: Option<(u64, Option<State>)>) -> Result<(), Inconsistency> {
        let (version, state) = recorded.unwrap_or((0, None));
        if state.is_none() && version > self.from {
            self.deletions.insert(version);
        }
        let at = version.max(self.from);
        self.learn(key, at, at, state, true)
    }

    /// Adds the changes of an object in this window that the journal has recorded already, by version: its uid, or nothing for
    /// a deletion. Before them it was present with the uid `there`, or absent; a change missing in between can no longer be
    /// recorded.
    pub(super) fn recorded(
        &mut self,
        key: &Key,
        there: Option<u64>,
        recorded: &[(u64, Option<u64>)],
    ) -> Result<(), Inconsistency> {
        let (mut from, mut state) = (self.from, there.map(|uid| State { uid, version: self.from }));
        for (version, uid) in recorded {
            if *version <= from {
                return Err(Inconsistency::Contradiction);
            }
            self.learn(key, from, version - 1, state, true)?;
            (from, state) = (*version, uid.map(|uid| State { uid, version: *version }));
            if uid.is_none() {
                self.deletions.insert(*version);
            }
            self.recorded.insert((key.clone(), *version));
        }
        self.learn(key, from, from, state, true)
    }

    /// Adds the state of an object at the end.
    pub(super) fn ends(&mut self, key: &Key, state: Option<State>) -> Result<(), Inconsistency> {
        self.learn(key, self.to, self.to, state, false)
    }

    /// The answer to [`Question::Object`]. What is not there was not from `since` on.
    pub(super) fn object(&mut self, key: &Key, at: u64, since: u64, state: Option<State>) -> Result<(), Inconsistency> {
        if state.is_some() {
            self.shown.insert(key.clone());
        }
        self.learn(key, since.min(at), at, state, true)
    }

    /// Reports whether an object was there at the beginning of the window, and differs at its end.
    pub(super) fn has_begun(&self, key: &Key) -> bool {
        self.tracks.get(key).and_then(|facts| facts.first()).is_some_and(|first| first.state.is_some())
    }

    /// Reports whether an answer has shown an object.
    pub(super) fn has_shown(&self, key: &Key) -> bool {
        self.shown.contains(key)
    }

    /// The answer to [`Question::Object`] where the API server cannot read the object: it was there, and counts as what it was before.
    pub(super) fn unreadable(&mut self, key: &Key, at: u64) -> Result<(), Inconsistency> {
        let facts = self.tracks.get(key).map(Vec::as_slice).unwrap_or_default();
        let before = facts.iter().rev().find(|fact| fact.from <= at).and_then(|fact| fact.state);
        self.learn(key, at, at, Some(before.ok_or(Inconsistency::Contradiction)?), true)
    }

    /// The answer to [`Question::Count`]: `None` where the API server does not count.
    pub(super) fn count(&mut self, at: u64, count: Option<u64>) {
        match count {
            Some(count) => {
                self.counts.insert(at, count);
            }
            None => self.distrust_counts(),
        }
    }

    /// The answer to [`Question::Names`]: how many objects there were, and those that have changed in this window.
    pub(super) fn names(&mut self, at: u64, count: u64, changed: Vec<(Key, State)>) -> Result<(), Inconsistency> {
        for (key, state) in changed {
            if !self.tracks.contains_key(&key) {
                self.begins(&key, None)?;
                self.ends(&key, None)?;
            }
            self.learn(&key, at, at, Some(state), false)?;
        }
        self.listed.insert(at);
        self.counts.insert(at, count);
        Ok(())
    }

    fn distrust_counts(&mut self) {
        self.counting = false;
        let listed = &self.listed;
        self.counts.retain(|at, _| listed.contains(at));
    }

    /// Returns the next questions, which do not depend on each other; none if everything is known.
    pub(super) fn next(&mut self) -> Result<Vec<Question>, Inconsistency> {
        let objects = self.objects()?;
        if !objects.is_empty() || self.is_blind {
            return Ok(objects);
        }
        loop {
            // Whatever comes needs two revisions, of which the last can only be the end of it.
            let last = self.open.iter().next_back().copied();
            let unexplained: Vec<u64> = self.open.difference(&self.deletions).copied().collect();
            let unknown = unexplained.iter().copied().filter(|at| Some(*at) != last && !self.counts.contains_key(at));
            let mut questions: Vec<Question> =
                unknown.map(|at| if self.counting { Question::Count(at) } else { Question::Names(at) }).collect();
            if !questions.is_empty() {
                // Every object of the end is known: whether the API server counts them right shows what its counts are
                // worth.
                if self.counting && !self.counts.contains_key(&self.to) {
                    questions.push(Question::Count(self.to));
                }
                return Ok(questions);
            }
            let expected = self.expected();
            let mut most: Option<(u64, u64)> = None;
            let mut lies = false;
            for (at, count) in &self.counts {
                let known = expected(*at);
                if *count == known {
                    continue;
                }
                if self.listed.contains(at) {
                    return Err(Inconsistency::Contradiction);
                }
                lies |= *count < known || *at == self.to;
                if *count > known && most.is_none_or(|(_, excess)| count - known > excess) {
                    most = Some((*at, count - known));
                }
            }
            if lies {
                self.distrust_counts();
                continue;
            }
            return Ok(most.map(|(at, _)| Question::Names(at)).into_iter().collect());
        }
    }

    /// Returns the recovered changes, in order, without those that the journal has recorded.
    pub(super) fn changes(&self) -> Result<Vec<Change>, Inconsistency> {
        let mut changes = Vec::new();
        for (key, facts) in &self.tracks {
            for pair in facts.windows(2) {
                let [before, after] = pair else { continue };
                let change = |version, deleted| Change { version, key: key.clone(), deleted };
                match (before.state, after.state) {
                    (_, Some(state)) => changes.push(change(state.version, false)),
                    (Some(_), None) => changes.push(change(after.from, true)),
                    (None, None) => {}
                }
            }
        }
        let recorded = |change: &Change| self.recorded.contains(&(change.key.clone(), change.version));
        // What an object was before something that was recorded can be recorded no more: the journal makes a GAP of it.
        changes.retain(|change| !recorded(change));
        changes.sort_by(|one, other| (one.version, &one.key).cmp(&(other.version, &other.key)));
        Ok(changes)
    }

    /// Returns the questions about single objects.
    fn objects(&mut self) -> Result<Vec<Question>, Inconsistency> {
        let (puts, mut questions) = (&self.open - &self.deletions, Vec::new());
        for (key, facts) in &mut self.tracks {
            for at in 1..facts.len() {
                let (before, after) = (facts[at - 1], facts[at]);
                let asked = match (before.state, after.state) {
                    (Some(was), Some(is)) if was.uid == is.uid => between(&puts, before.upto + 1, after.from - 1),
                    (Some(_), Some(_)) if before.upto + 1 == after.from => return Err(Inconsistency::Contradiction),
                    (Some(_), Some(_)) => Some(after.from - 1),
                    (None, Some(_)) => between(&puts, before.upto + 1, after.from - 1),
                    (Some(_), None) if before.upto + 1 == after.from => None,
                    (Some(_), None) => {
                        let found: Vec<u64> = self.open.range(before.upto + 1..=after.from).copied().collect();
                        match found.as_slice() {
                            [] => return Err(Inconsistency::Contradiction),
                            [deleted] => {
                                facts[at - 1].upto = deleted - 1;
                                facts[at].from = *deleted;
                                self.deletions.insert(*deleted);
                                None
                            }
                            more => Some(more[(more.len() - 1) / 2]),
                        }
                    }
                    (None, None) => None,
                };
                questions.extend(asked.map(|at| Question::Object(key.clone(), at)));
            }
            let unseen = facts.iter().filter(|fact| !fact.had && fact.state.is_some());
            questions.extend(unseen.map(|fact| Question::Object(key.clone(), fact.upto)));
        }
        questions.sort_unstable();
        questions.dedup();
        Ok(questions)
    }

    /// Returns a function for the number of objects at a revision, as far as it is known.
    fn expected(&self) -> impl Fn(u64) -> u64 + use<> {
        let mut steps: BTreeMap<u64, i64> = BTreeMap::new();
        for facts in self.tracks.values() {
            for (at, fact) in facts.iter().enumerate().filter(|(_, fact)| fact.state.is_some()) {
                *steps.entry(fact.from).or_default() += 1;
                // Nothing is to be asked about what lies between two versions: it stayed as it was.
                let end = facts.get(at + 1).filter(|next| next.state.is_some()).map_or(fact.upto + 1, |next| next.from);
                *steps.entry(end).or_default() -= 1;
            }
        }
        let mut sums = BTreeMap::from([(0, self.unchanged)]);
        let mut sum = self.unchanged;
        for (at, step) in steps {
            sum = sum.saturating_add_signed(step);
            sums.insert(at, sum);
        }
        move |at| sums.range(..=at).next_back().map_or(0, |(_, sum)| *sum)
    }

    /// An object was this from one revision to another.
    fn learn(&mut self, key: &Key, from: u64, upto: u64, state: Option<State>, had: bool) -> Result<(), Inconsistency> {
        let from = state.map_or(from, |state| state.version);
        if from > upto || upto > self.to {
            return Err(Inconsistency::Contradiction);
        }
        if let Some(state) = state.filter(|state| state.version > self.from) {
            match self.versions.get(&state.version) {
                Some(of) if of != key => return Err(Inconsistency::Contradiction),
                Some(_) => {}
                None if !self.open.remove(&state.version) => return Err(Inconsistency::RevisionConflict),
                None => {
                    self.versions.insert(state.version, key.clone());
                }
            }
        }
        let facts = self.tracks.entry(key.clone()).or_default();
        let mut fact = Fact { from: from.max(self.from), upto, state, had };
        let mut kept = Vec::with_capacity(facts.len() + 1);
        for other in facts.drain(..) {
            let apart = other.upto < fact.from || fact.upto < other.from;
            // A version is the same wherever it is seen; that something is not there says nothing of the time before.
            if other.state == fact.state && (!apart || state.is_some()) {
                fact.from = fact.from.min(other.from);
                fact.upto = fact.upto.max(other.upto);
                fact.had |= other.had;
            } else if apart {
                kept.push(other);
            } else {
                return Err(Inconsistency::Contradiction);
            }
        }
        let place = kept.partition_point(|other| other.upto < fact.from);
        if kept.get(place).is_some_and(|next| next.from <= fact.upto) {
            return Err(Inconsistency::Contradiction);
        }
        kept.insert(place, fact);
        *facts = kept;
        Ok(())
    }
}

/// The last revision of a stretch, where anything in it is open.
fn between(open: &BTreeSet<u64>, from: u64, upto: u64) -> Option<u64> {
    (from <= upto && open.range(from..=upto).next().is_some()).then_some(upto)
}

#[cfg(test)]
mod tests;
