//! Storage rewrites: writes of many objects of one resource by which nothing changed but how they are stored.
//!
//! A storage version migration, the rotation of an encryption key and a converter write every object of a resource. The API
//! server makes a version of a write that changes nothing only where the stored form is stale, so the log has a MODIFIED of
//! each object, with nothing in it but bookkeeping. People want that as one line, and nobody is to blame for it.
//!
//! It knows neither the journal nor classes of writes: [`Rewrites::take`] takes the writes in which nothing changed, and
//! [`Rewrites::finish`] gives the storage rewrites among them.
//!
//! # Decision: a storage rewrite is recognized by its objects
//!
//! Context: Nothing in an object says that a write only stored it again, and managedFields rarely name who asked for that.
//! Decision: It is a run of writes that change nothing, of at least [`MANY`] objects of one resource, by one manager or by
//! nobody that the log can name, each object at most twice; or of all objects of a resource that has fewer, by nobody. Objects that are written more often, and runs that come more
//! than twice a day, are a careless writer's.
//! Cost: A rewrite of a few objects of many is shown write by write.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use serde::{Deserialize, Serialize};

use super::stamp;

/// Number of objects from which on writes that change nothing are a storage rewrite.
pub(crate) const MANY: usize = 10;
/// Number of writes of one object in a storage rewrite: what a rewrite begins again with counts too.
const TIMES: u8 = 2;
/// Number of runs of one resource by one writer within a day that are storage rewrites, and no habit.
const RUNS: usize = 2;
/// Longest time between two writes of a run, in microseconds.
pub(crate) const PAUSE: i64 = 15 * 60 * 1_000_000;
const DAY: i64 = 24 * 60 * 60 * 1_000_000;

/// Numbers of objects of resources with fewer than [`MANY`], by their full names.
pub(crate) type Sizes = BTreeMap<String, usize>;

/// A write that changed nothing but bookkeeping.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Write<'w> {
    pub(crate) seq: u64,
    /// Microseconds since 1970.
    pub(crate) time: i64,
    /// `deployments.apps`.
    pub(crate) resource: &'w str,
    pub(crate) namespace: &'w str,
    pub(crate) name: &'w str,
    /// The manager that the log names; none where it names nobody, or several.
    pub(crate) by: Option<&'w str>,
}

/// A storage rewrite.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Rewrite {
    /// `deployments.apps`.
    pub(crate) resource: String,
    /// The namespace, if all objects are in one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) namespace: Option<String>,
    /// The manager, if the log names one for most of the writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) by: Option<String>,
    /// Number of objects.
    pub(crate) objects: usize,
    /// Number of writes.
    pub(crate) writes: usize,
    /// Time of the first write.
    pub(crate) since: String,
    /// Time of the last write.
    pub(crate) until: String,
    /// Seq of the last write.
    pub(crate) seq: u64,
    /// Seqs of the writes, in order.
    #[serde(skip)]
    pub(crate) seqs: Vec<u64>,
}

/// Knowledge of a write by those that came before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// It may become part of a storage rewrite.
    Nothing,
    /// It is part of a storage rewrite, unless its object is written again too often.
    Rewrite,
    /// It is of no storage rewrite: its object is written too often.
    Again,
}

/// Writes of one resource by one writer, one soon after the other.
#[derive(Clone, Debug, Default)]
struct Run {
    resource: String,
    by: Option<String>,
    /// Seq, time and object of each write, and whether it names the writer.
    writes: Vec<(u64, i64, u64, bool)>,
    /// Number of writes of each object.
    objects: HashMap<u64, u8>,
    /// Number of objects that are written no more than [`TIMES`].
    clean: usize,
    namespaces: BTreeSet<String>,
    /// Earliest and latest time.
    first: i64,
    last: i64,
}

impl Run {
    fn takes(&self, write: &Write<'_>) -> bool {
        let is_near = write.time <= self.last.saturating_add(PAUSE) && write.time >= self.first.saturating_sub(PAUSE);
        is_near && self.resource == write.resource
    }

    /// Adds a write. Reports whether its object is written no more often than in a storage rewrite.
    fn add(&mut self, write: &Write<'_>) -> bool {
        if self.writes.is_empty() {
            write.resource.clone_into(&mut self.resource);
            (self.first, self.last) = (write.time, write.time);
        }
        self.by = self.by.take().or_else(|| write.by.map(str::to_owned));
        (self.first, self.last) = (self.first.min(write.time), self.last.max(write.time));
        // Two are enough to know that it is not one.
        if self.namespaces.len() < 2 && !self.namespaces.contains(write.namespace) {
            self.namespaces.insert(write.namespace.to_owned());
        }
        let object = digest(write.namespace, write.name);
        let times = self.objects.entry(object).or_default();
        *times = times.saturating_add(1);
        match *times {
            1 => self.clean += 1,
            times if times == TIMES + 1 => self.clean -= 1,
            _ => {}
        }
        let is_clean = *times <= TIMES;
        if is_clean {
            self.writes.push((write.seq, write.time, object, write.by.is_some()));
        }
        is_clean
    }

    /// Returns the storage rewrite, if the run is one.
    fn rewrite(mut self, sizes: &Sizes) -> Option<Rewrite> {
        self.writes.retain(|(_, _, object, _)| self.objects.get(object).is_some_and(|times| *times <= TIMES));
        // Of a resource with few objects somebody who is named may be careless with each.
        let is_all = self.clean > 1 && self.by.is_none() && sizes.get(&self.resource) == Some(&self.clean);
        if self.clean < MANY && !is_all {
            return None;
        }
        let named = self.writes.iter().filter(|(.., is_named)| *is_named).count();
        let times = self.writes.iter().map(|(_, time, ..)| *time);
        let (since, until) = (times.clone().min()?, times.max()?);
        let mut seqs: Vec<u64> = self.writes.iter().map(|(seq, ..)| *seq).collect();
        seqs.sort_unstable();
        let namespace = self.namespaces.pop_first().filter(|name| self.namespaces.is_empty() && !name.is_empty());
        Some(Rewrite {
            resource: self.resource,
            namespace,
            by: self.by.filter(|_| is_named(named, self.writes.len())),
            objects: self.clean,
            writes: seqs.len(),
            since: stamp(since),
            until: stamp(until),
            seq: *seqs.last()?,
            seqs,
        })
    }
}

/// Recognizes storage rewrites. Writes come in the order of their times, oldest or newest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rewrites {
    sizes: Sizes,
    open: Vec<Run>,
    found: Vec<(i64, Rewrite)>,
}

impl Rewrites {
    /// Recognizes also those of all objects of a resource that has few.
    pub(crate) fn among(sizes: Sizes) -> Self {
        Self { sizes, ..Self::default() }
    }

    /// Takes a write that changed nothing. Says what is known of it so far.
    pub(crate) fn take(&mut self, write: &Write<'_>) -> Known {
        let is_by = |run: &Run| write.by.is_none() || run.by.as_deref() == write.by;
        let place = self.open.iter().position(|run| run.takes(write) && is_by(run));
        let place = place.or_else(|| self.open.iter().position(|run| run.takes(write) && run.by.is_none()));
        let place = place.unwrap_or_else(|| {
            self.close(write);
            self.open.push(Run::default());
            self.open.len() - 1
        });
        let run = &mut self.open[place];
        match (run.add(write), run.clean >= MANY) {
            (false, _) => Known::Again,
            (true, false) => Known::Nothing,
            (true, true) => Known::Rewrite,
        }
    }

    /// Closes the runs of a resource that are too far away from a write.
    fn close(&mut self, write: &Write<'_>) {
        let (closed, open) = std::mem::take(&mut self.open)
            .into_iter()
            .partition(|run| run.resource == write.resource && !run.takes(write));
        self.open = open;
        self.keep(closed);
    }

    fn keep(&mut self, closed: Vec<Run>) {
        let sizes = &self.sizes;
        self.found.extend(closed.into_iter().filter_map(|run| Some((run.first, run.rewrite(sizes)?))));
    }

    /// Returns the seqs after one of the writes that are part of storage rewrites which may go on. Writes came oldest first.
    pub(crate) fn going_on(&self, after: u64) -> HashSet<u64> {
        let runs = self.open.iter().filter(|run| run.clean >= MANY);
        runs.flat_map(|run| {
            let is_clean = |object: &u64| run.objects.get(object).is_some_and(|times| *times <= TIMES);
            let new = run.writes.iter().rev().take_while(move |(seq, ..)| *seq > after);
            new.filter(move |(_, _, object, _)| is_clean(object)).map(|(seq, ..)| *seq)
        })
        .collect()
    }

    /// Returns the number of objects of the largest run that may go on beyond a time.
    pub(crate) fn reaching(&self, time: i64) -> usize {
        let reaches = |run: &&Run| run.first.saturating_sub(PAUSE) <= time && time <= run.last.saturating_add(PAUSE);
        self.open.iter().filter(reaches).map(|run| run.clean).max().unwrap_or(0)
    }

    /// Returns the storage rewrites, the oldest first.
    pub(crate) fn finish(mut self) -> Vec<Rewrite> {
        let open = std::mem::take(&mut self.open);
        self.keep(open);
        let mut found = self.found;
        found.sort_by_key(|(first, rewrite)| (*first, rewrite.seq));
        let firsts = |of: &Rewrite| -> Vec<i64> {
            let same = found.iter().filter(|(_, one)| one.resource == of.resource && one.by == of.by);
            same.map(|(first, _)| *first).collect()
        };
        let is_habit = |(first, rewrite): &&(i64, Rewrite)| {
            firsts(rewrite).windows(RUNS + 1).any(|runs| runs.contains(first) && runs[RUNS] - runs[0] < DAY)
        };
        found.iter().filter(|one| !is_habit(one)).map(|(_, rewrite)| rewrite.clone()).collect()
    }
}

/// Returns the seqs of all writes of storage rewrites.
pub(crate) fn seqs(rewrites: &[Rewrite]) -> HashSet<u64> {
    rewrites.iter().flat_map(|rewrite| rewrite.seqs.iter().copied()).collect()
}

/// Reports whether a storage rewrite has a name: at least half of its writes have. Of few it may be that of somebody else.
pub(crate) const fn is_named(named: usize, writes: usize) -> bool {
    named * 2 >= writes
}

fn digest(namespace: &str, name: &str) -> u64 {
    let mut digest = DefaultHasher::new();
    (namespace, name).hash(&mut digest);
    digest.finish()
}
