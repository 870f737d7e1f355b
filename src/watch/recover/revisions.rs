//! What the sources know of the API server's revisions: each is one write, so one that is of a source is of no other.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};

use crate::journal::SourceId;
use crate::model::{ResourceVersion, SourceSpec};

/// So many of the newest revisions are remembered.
const MOST: usize = 200_000;

/// The revisions that the sources of one API server have seen.
#[derive(Debug, Default)]
pub(in crate::watch) struct Revisions(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    of: BTreeMap<u64, SourceId>,
    sources: HashMap<SourceId, SourceSpec>,
    /// Resources may be kept in an etcd of their own (`--etcd-servers-overrides`), whose revisions are others. Whether those
    /// of a source are of the same etcd as those of the first source that was looked at.
    kin: HashMap<SourceId, bool>,
    first: Option<SourceId>,
}

/// What has to be found out about a source before its revisions say anything to others.
pub(super) struct Stranger {
    pub(super) id: SourceId,
    pub(super) spec: SourceSpec,
    /// Whose revisions are compared with its own.
    pub(super) first: SourceSpec,
}

impl Revisions {
    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A source is about to tell what it sees.
    pub(in crate::watch) fn introduce(&self, id: SourceId, spec: &SourceSpec) {
        self.known().sources.insert(id, spec.clone());
    }

    /// Its API server went back in time, or may be another one: what was known is of no use.
    pub(in crate::watch) fn forget(&self) {
        let mut known = self.known();
        let sources = std::mem::take(&mut known.sources);
        *known = Known { sources, ..Known::default() };
    }

    /// A source has seen a change under this version.
    pub(in crate::watch) fn note<'a>(&self, id: SourceId, versions: impl Iterator<Item = &'a ResourceVersion>) {
        self.note_numbers(id, versions.filter_map(number));
    }

    pub(super) fn note_numbers(&self, id: SourceId, revisions: impl Iterator<Item = u64>) {
        let mut known = self.known();
        known.of.extend(revisions.map(|revision| (revision, id)));
        while known.of.len() > MOST {
            known.of.pop_first();
        }
    }

    /// Revisions after `from`, up to `to`, that are of other sources than this one.
    pub(super) fn of_others(&self, me: SourceId, from: u64, to: u64) -> BTreeSet<u64> {
        let known = self.known();
        if from >= to || known.kin.get(&me) != Some(&true) {
            return BTreeSet::new();
        }
        let is_of_kin = |id: &SourceId| *id != me && known.kin.get(id) == Some(&true);
        known.of.range(from + 1..=to).filter(|(_, id)| is_of_kin(id)).map(|(revision, _)| *revision).collect()
    }

    /// Who has to be looked at before the revisions of others explain any of this source's.
    pub(super) fn strangers(&self, me: SourceId, from: u64, to: u64) -> Vec<Stranger> {
        let mut known = self.known();
        if from >= to {
            return Vec::new();
        }
        let seen: BTreeSet<SourceId> = known.of.range(from + 1..=to).map(|(_, id)| *id).chain([me]).collect();
        if seen.len() < 2 {
            return Vec::new();
        }
        let first = *known.first.get_or_insert(me);
        known.kin.insert(first, true);
        let stranger = |id: &SourceId| {
            let (spec, first) = (known.sources.get(id)?.clone(), known.sources.get(&first)?.clone());
            (!known.kin.contains_key(id)).then_some(Stranger { id: *id, spec, first })
        };
        seen.iter().filter_map(stranger).collect()
    }

    /// Whether the revisions of a source are those of the first one.
    pub(super) fn judge(&self, id: SourceId, kin: bool) {
        self.known().kin.insert(id, kin);
    }

    /// A revision was of two sources: they have nothing to say to each other, and who of them is the odd one is not known.
    pub(super) fn disown(&self, id: SourceId) {
        let mut known = self.known();
        known.kin.insert(id, false);
        if known.first == Some(id) {
            known.first = None;
            known.kin.clear();
            known.kin.insert(id, false);
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
        revisions.note_numbers(pods, [5, 8].into_iter());
        revisions.note_numbers(nodes, [6].into_iter());
        revisions.note_numbers(events, [7].into_iter());
        assert!(revisions.of_others(pods, 4, 8).is_empty(), "nobody was looked at");
        let strangers: Vec<_> = revisions.strangers(pods, 4, 8).into_iter().map(|stranger| stranger.id).collect();
        assert_eq!(strangers, [nodes, events]);
        revisions.judge(nodes, true);
        revisions.judge(events, false);
        assert!(revisions.strangers(pods, 4, 8).is_empty());
        assert_eq!(revisions.of_others(pods, 4, 8), BTreeSet::from([6]));
        assert_eq!(revisions.of_others(nodes, 4, 8), BTreeSet::from([5, 8]));
        assert_eq!(revisions.of_others(nodes, 5, 7), BTreeSet::new());
        assert_eq!(revisions.of_others(events, 4, 8), BTreeSet::new());
        revisions.disown(pods);
        assert_eq!(revisions.of_others(pods, 4, 8), BTreeSet::new());
        assert_eq!(revisions.of_others(nodes, 4, 8), BTreeSet::new());
    }
}
