//! Changes that no request of the audit logs can have made: of which resources most are, and whether the audit logs are of any use.
//!
//! That a policy hides the writers of one resource is no such case, however often that changes. So the run of changes counts where
//! it has two resources or only one is watched, and, once changes of some resources were explained, of these alone.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::join::{self, Unresolved};
use crate::core::k8s::audited::{Unexplained, UnexplainedResource, UnexplainedRun};
use crate::journal::SourceRow;

/// Number of changes from which on something follows from them.
const CHANGES_MIN: u64 = 20;
/// Time that a run of changes spans at least: a minute, in microseconds.
const SPAN_MIN: i64 = 60_000_000;

/// A version that waits for its verdict.
#[derive(Clone, Copy, Debug)]
pub(super) struct Opened {
    /// Number of its resource.
    resource: usize,
    /// Time by which it was written, microseconds since 1970.
    at: i64,
}

/// Counts of one resource.
#[derive(Debug, Default)]
struct Counts {
    name: String,
    decided: u64,
    unexplained: u64,
    /// Those of the run.
    run: u64,
    /// Set once a request can have made one of its versions.
    is_explained: bool,
}

/// Counter of what the audit logs explain.
#[derive(Debug)]
pub(super) struct Tally {
    /// Time from which on the audit logs are read.
    began: i64,
    numbers: BTreeMap<String, usize>,
    counts: Vec<Counts>,
    watched: BTreeSet<String>,
    /// Times of the first and the last version of the run.
    run: Option<(i64, i64)>,
    /// Time up to which no version counts for a run.
    since: i64,
    /// Set while an audit log has brought nothing.
    is_silent: bool,
    /// Set from when the run is long enough until a change is explained.
    is_raised: bool,
}

impl Tally {
    /// Begins at a time, microseconds since 1970.
    pub(super) fn new(began: i64) -> Self {
        Self {
            began,
            numbers: BTreeMap::new(),
            counts: Vec::new(),
            watched: BTreeSet::new(),
            run: None,
            since: i64::MIN,
            is_silent: false,
            is_raised: false,
        }
    }

    /// Sets whether an audit log has brought nothing yet.
    pub(super) const fn silent(&mut self, is_silent: bool) {
        self.is_silent = is_silent;
    }

    /// Sets what is watched.
    pub(super) fn watch(&mut self, sources: &[SourceRow]) {
        self.watched =
            sources.iter().filter(|source| source.active).map(|source| source.resource.full_name()).collect();
    }

    /// Returns a version of a resource as it waits for its verdict.
    pub(super) fn open(&mut self, group: &str, resource: &str, at: i64) -> Opened {
        let name = if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") };
        let resource = self.numbers.get(&name).copied().unwrap_or_else(|| {
            self.counts.push(Counts { name: name.clone(), ..Counts::default() });
            let number = self.counts.len() - 1;
            self.numbers.insert(name, number);
            number
        });
        Opened { resource, at }
    }

    /// Takes a verdict. A version of before the audit logs were read says nothing, and neither does one whose sender they cannot have.
    pub(super) fn take(&mut self, version: Opened, verdict: &Result<join::Actor, Unresolved>) {
        let Some(counts) = self.counts.get_mut(version.resource).filter(|_| version.at >= self.began) else { return };
        let verdict = match verdict {
            // What it has not brought yet may be all that it ever has.
            Err(Unresolved::BeforeAuditLog) if self.is_silent => Err(Unresolved::NotInAuditLog),
            Err(why) => Err(*why),
            Ok(_) => Ok(()),
        };
        match verdict {
            Ok(()) | Err(Unresolved::Ambiguous) => {
                counts.decided += 1;
                counts.is_explained = true;
                self.is_raised = false;
                self.end(version.at);
            }
            Err(Unresolved::NotInAuditLog) => {
                counts.decided += 1;
                counts.unexplained += 1;
                if version.at > self.since {
                    counts.run += 1;
                    let (first, last) = self.run.unwrap_or((version.at, version.at));
                    self.run = Some((first.min(version.at), last.max(version.at)));
                    self.is_raised |= self.is_long();
                }
            }
            // Events are missing, or a request is there that proves nothing.
            Err(Unresolved::Incomplete | Unresolved::BeforeAuditLog) => {
                counts.decided += 1;
                if !self.is_raised {
                    self.end(version.at);
                }
            }
            Err(
                Unresolved::OutsideOfItsTime
                | Unresolved::NotWatched
                | Unresolved::Expired
                | Unresolved::DefinitionDeleted,
            ) => {}
        }
    }

    /// Ends the run with a version of a time.
    fn end(&mut self, at: i64) {
        self.since = self.since.max(at);
        self.run = None;
        self.counts.iter_mut().for_each(|counts| counts.run = 0);
    }

    /// Reports whether the run says something of the audit logs as a whole.
    fn is_long(&self) -> bool {
        let is_known = self.counts.iter().any(|counts| counts.is_explained);
        let counted = || self.counts.iter().filter(|counts| counts.run > 0 && (counts.is_explained || !is_known));
        let is_broad = is_known || self.watched.len() <= 1 || counted().nth(1).is_some();
        let changes: u64 = counted().map(|counts| counts.run).sum();
        is_broad && changes >= CHANGES_MIN && self.run.is_some_and(|(first, last)| last - first >= SPAN_MIN)
    }

    /// Returns what is to be said.
    pub(super) fn told(&self) -> Unexplained {
        let since = self.run.filter(|_| self.is_raised).and_then(|(first, _)| Timestamp::from_microsecond(first).ok());
        let run =
            since.map(|since| UnexplainedRun { since, changes: self.counts.iter().map(|counts| counts.run).sum() });
        let is_listed = |counts: &&Counts| {
            self.watched.contains(&counts.name)
                && counts.decided >= CHANGES_MIN
                && counts.unexplained * 2 > counts.decided
        };
        let resource = |counts: &Counts| UnexplainedResource {
            resource: counts.name.clone(),
            changes: counts.unexplained,
            decided: counts.decided,
        };
        let numbers = self.numbers.values().filter_map(|number| self.counts.get(*number));
        Unexplained { run, resources: numbers.filter(is_listed).map(resource).collect() }
    }
}

#[cfg(test)]
mod tests;
