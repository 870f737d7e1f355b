//! Revisions of the API server that are known to the sources: each is one write, so one of a source is of no other.
//!
//! # Decision: sources share their revisions
//!
//! Context: Each revision of etcd is one write, so an unexplained revision costs a request; other sources explain most.
//! Decision: Sources share their versions, after three consistent lists (one, other, one) have shown that both are in one
//! etcd. A revision that two sources claim disproves it, and the window is asked for again without others.
//! Cost: Sources wait up to ten seconds for each other.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};

use crate::core::model::{ResourceVersion, SourceSpec};
use crate::journal::SourceId;

/// Number of the newest revisions that are kept.
const MOST: usize = 200_000;

/// The revisions that the sources of one API server have seen.
#[derive(Debug, Default)]
pub(in crate::watch) struct Revisions(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// Source of each revision, and whether it deleted an object: a lease that runs out deletes several at once.
    of: BTreeMap<u64, (SourceId, bool)>,
    sources: HashMap<SourceId, SourceSpec>,
    /// Resources may be kept in an etcd of their own (`--etcd-servers-overrides`), whose revisions are others. Whether those
    /// of a resource are of the same etcd as those of the first source that was looked at.
    same_etcd: HashMap<String, bool>,
    first: Option<SourceId>,
}

/// A source that has to be compared before its revisions explain anything to others.
pub(super) struct UncomparedSource {
    pub(super) id: SourceId,
    pub(super) spec: SourceSpec,
}

impl Known {
    fn resource(&self, id: SourceId) -> Option<String> {
        self.sources.get(&id).map(|spec| spec.resource.full_name())
    }

    fn is_kin(&self, id: SourceId) -> bool {
        self.resource(id).is_some_and(|resource| self.same_etcd.get(&resource) == Some(&true))
    }
}

impl Revisions {
    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A source is about to note what it sees.
    pub(in crate::watch) fn introduce(&self, id: SourceId, spec: &SourceSpec) {
        self.known().sources.insert(id, spec.clone());
    }

    /// Returns the first source of these resources that there is, or else any but one of Events, which may be kept elsewhere.
    pub(in crate::watch) fn source_of(&self, plurals: &[&str]) -> Option<SourceSpec> {
        let known = self.known();
        let mut rest: Vec<&SourceSpec> = known.sources.values().collect();
        rest.sort_by_key(|spec| (spec.resource.full_name(), spec.namespace.clone()));
        let preferred = plurals.iter().find_map(|plural| {
            rest.iter().find(|spec| spec.resource.group.is_empty() && spec.resource.plural == *plural)
        });
        preferred.or_else(|| rest.iter().find(|spec| spec.resource.plural != "events")).map(|spec| (*spec).clone())
    }

    /// Its API server went back in time, or may be another one: what was known is of no use.
    pub(in crate::watch) fn reset(&self) {
        let mut known = self.known();
        let sources = std::mem::take(&mut known.sources);
        *known = Known { sources, ..Known::default() };
    }

    /// A source has seen changes under these versions, and whether each was a deletion.
    pub(in crate::watch) fn note<'a>(&self, id: SourceId, versions: impl Iterator<Item = (&'a ResourceVersion, bool)>) {
        self.note_numbers(id, versions.filter_map(|(version, deleted)| Some((number(version)?, deleted))));
    }

    pub(super) fn note_numbers(&self, id: SourceId, revisions: impl Iterator<Item = (u64, bool)>) {
        let mut known = self.known();
        known.of.extend(revisions.map(|(revision, deleted)| (revision, (id, deleted))));
        while known.of.len() > MOST {
            known.of.pop_first();
        }
    }

    /// Revisions after `from`, up to `to`, that are of other sources than this one.
    pub(super) fn of_others(&self, me: SourceId, from: u64, to: u64) -> BTreeSet<u64> {
        let known = self.known();
        if from >= to || !known.is_kin(me) {
            return BTreeSet::new();
        }
        let plural = |id: &SourceId| known.sources.get(id).map(|spec| spec.resource.plural.as_str());
        let mine = plural(&me);
        // What one deletion took with it may be of another namespace, and of Events under their other name.
        let explains =
            |(id, deleted): &(SourceId, bool)| *id != me && known.is_kin(*id) && !(*deleted && plural(id) == mine);
        known.of.range(from + 1..=to).filter(|(_, seen)| explains(seen)).map(|(revision, _)| *revision).collect()
    }

    /// Returns the sources that have to be compared before the revisions of others explain any of this source's.
    pub(super) fn uncompared(&self, me: SourceId, from: u64, to: u64) -> Option<(SourceSpec, Vec<UncomparedSource>)> {
        let mut known = self.known();
        if from >= to {
            return None;
        }
        let seen: BTreeSet<SourceId> = known.of.range(from + 1..=to).map(|(_, (id, _))| *id).chain([me]).collect();
        if seen.len() < 2 {
            return None;
        }
        let first = *known.first.get_or_insert(me);
        let of_first = known.resource(first)?;
        known.same_etcd.insert(of_first, true);
        let mut asked = BTreeSet::new();
        let other = |id: &SourceId| {
            let spec = known.sources.get(id)?;
            let resource = spec.resource.full_name();
            let is_new = !known.same_etcd.contains_key(&resource) && asked.insert(resource);
            is_new.then(|| UncomparedSource { id: *id, spec: spec.clone() })
        };
        let uncompared: Vec<UncomparedSource> = seen.iter().filter_map(other).collect();
        (!uncompared.is_empty()).then(|| Some((known.sources.get(&first)?.clone(), uncompared))).flatten()
    }

    /// Records whether a source's revisions are those of the same etcd as the first one's.
    pub(super) fn judge(&self, id: SourceId, same_etcd: bool) {
        let mut known = self.known();
        if let Some(resource) = known.resource(id) {
            known.same_etcd.insert(resource, same_etcd);
        }
    }

    /// A revision was of two sources: they have nothing to say to each other, and who of them is the odd one is not known.
    pub(super) fn disown(&self, id: SourceId) {
        self.judge(id, false);
        let mut known = self.known();
        let of_first = known.first.and_then(|first| known.resource(first));
        if of_first.is_some() && of_first == known.resource(id) {
            known.first = None;
            known.same_etcd.retain(|_, same_etcd| !*same_etcd);
        }
    }
}

/// A version as the number of a revision.
pub(super) fn number(version: &ResourceVersion) -> Option<u64> {
    version.is_ordered().then(|| version.as_str().parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(plural: &str) -> SourceSpec {
        crate::watch::tests::spec(plural)
    }

    #[test]
    fn revisions_explain_only_those_of_the_same_etcd() {
        let revisions = Revisions::default();
        let [pods, nodes, events] = [1, 2, 3].map(SourceId);
        for (id, plural) in [(pods, "pods"), (nodes, "nodes"), (events, "events")] {
            revisions.introduce(id, &spec(plural));
        }
        revisions.note_numbers(pods, [(5, false), (8, true)].into_iter());
        revisions.note_numbers(nodes, [(6, false)].into_iter());
        revisions.note_numbers(events, [(7, false)].into_iter());
        assert!(revisions.of_others(pods, 4, 8).is_empty(), "nobody was looked at");
        let (first, uncompared) = revisions.uncompared(pods, 4, 8).unwrap();
        assert_eq!(first, spec("pods"));
        let uncompared: Vec<_> = uncompared.into_iter().map(|other| other.id).collect();
        assert_eq!(uncompared, [nodes, events]);
        revisions.judge(nodes, true);
        revisions.judge(events, false);
        assert!(revisions.uncompared(pods, 4, 8).is_none());
        assert_eq!(revisions.of_others(pods, 4, 8), BTreeSet::from([6]));
        assert_eq!(revisions.of_others(nodes, 4, 8), BTreeSet::from([5, 8]));
        assert_eq!(revisions.of_others(nodes, 5, 7), BTreeSet::new());
        assert_eq!(revisions.of_others(events, 4, 8), BTreeSet::new());
        // A lease deletes in several namespaces at once.
        let elsewhere = SourceId(4);
        revisions.introduce(elsewhere, &spec("pods"));
        revisions.judge(elsewhere, true);
        assert_eq!(revisions.of_others(elsewhere, 4, 8), BTreeSet::from([5, 6]));
        revisions.disown(pods);
        assert_eq!(revisions.of_others(pods, 4, 8), BTreeSet::new());
        assert_eq!(revisions.of_others(nodes, 4, 8), BTreeSet::new());
    }
}
