//! Versions of objects, as the log has them: the input of the join beside the requests.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::core::k8s::managed_fields::{By, Manager};
use crate::core::model::{EntryType, Evidence};

/// Resource in a namespace, or object where `name` is not empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Names {
    /// API group; empty for the core group.
    pub group: Box<str>,
    /// Plural name of the resource.
    pub resource: Box<str>,
    /// Empty where the resource has no namespaces.
    pub namespace: Box<str>,
    /// Name of the object.
    pub name: Box<str>,
}

/// Version of an object: one entry, or a version that the log suppressed. An object that enters the selection of a source is `Modified`.
#[derive(Clone, Debug)]
pub struct Version {
    /// Seq of its entry; the order of versions of one object.
    pub seq: u64,
    /// ADDED, MODIFIED or DELETED. A GAP is no version.
    pub op: EntryType,
    /// Evidence of the entry. Behind a listed or an inferred one are any number of writes: it is named only by [`Certainty::Exact`],
    /// or as the end of a deletion that was named.
    ///
    /// [`Certainty::Exact`]: super::Certainty::Exact
    pub evidence: Evidence,
    /// Its object; all versions of one share it.
    pub names: Arc<Names>,
    /// uid of the object.
    pub uid: Arc<str>,
    /// resourceVersion of the entry.
    pub version: Box<str>,
    /// resourceVersion of the object right before this one, of the same uid. None where a version may lie between the two: after a
    /// gap, a list, or a change that the log suppressed.
    pub before: Option<Box<str>>,
    /// Writers by managedFields; of ADDED all managers. The join does not look at their times: those are in the bounds.
    pub managers: Arc<[Manager]>,
    /// Reports that this version has metadata.deletionTimestamp and the one before had not.
    pub deletion_requested: bool,
    /// Reports that the object before this version had metadata.deletionTimestamp; of DELETED its last state.
    pub deleting: bool,
    /// Reports that this version has a shorter grace period, as a kubelet sets it before the end.
    pub grace_shortened: bool,
    /// Labels of the object, or of its last state; none where they are not known, and where no deletion made the version: only the
    /// selector of a deleted collection is compared with them.
    pub labels: Option<Box<BTreeMap<String, String>>>,
    /// Reports that the API server may have made up its name: it has metadata.generateName, or that is not known. Of ADDED alone.
    pub generated: bool,
    /// Bounds of the time at which it was written, microseconds since 1970. A stamp of the API server says it to the second; a time of
    /// the journal needs the slack of its clock and of the watch.
    pub earliest: i64,
    /// The later bound, which counts as part of the time.
    pub latest: i64,
    /// Time by which it was stored. The API server makes a stamp before it stores the object, so that this may be later than the second of that.
    pub stored_by: i64,
}

impl Version {
    /// Takes what is equal in another version of the object from there, so that it is in memory once.
    pub(super) fn share(&mut self, other: &Self) {
        if self.uid == other.uid {
            self.uid = Arc::clone(&other.uid);
        }
        if self.managers == other.managers {
            self.managers = Arc::clone(&other.managers);
        }
    }

    /// Its place in the order of an etcd; none where it has no number.
    pub(super) fn number(&self) -> Option<u64> {
        self.version.parse().ok()
    }

    /// Managers that made this version for certain. Ownership alone is a hint: it stays with who wrote the value first.
    pub(super) fn movers(&self) -> impl Iterator<Item = &Manager> {
        let created = self.op == EntryType::Added;
        self.managers.iter().filter(move |manager| match manager.by {
            Some(By::Moved) => true,
            Some(By::Owner) => false,
            None => created,
        })
    }

    /// Reports whether it is one write, and not the sum of several.
    pub(super) const fn is_one_write(&self) -> bool {
        matches!(self.evidence, Evidence::Watched | Evidence::Recovered)
    }

    /// Bytes that it takes, about. What it shares with others counts in full.
    pub(super) fn bytes(&self) -> usize {
        const ALLOCATION: usize = 16;
        let texts = [self.uid.len(), self.version.len(), self.before.as_deref().map_or(0, str::len)];
        let managers = self.managers.iter().map(|manager| {
            let Manager { manager, operation, subresource, time: _, by: _ } = manager;
            let texts = [manager.len(), operation.len(), subresource.as_deref().map_or(0, str::len)];
            size_of::<Manager>() + texts.iter().map(|length| length + ALLOCATION).sum::<usize>()
        });
        let labels = self.labels.iter().flat_map(|labels| labels.iter());
        let labels = labels.map(|(key, value)| key.len() + value.len() + 2 * (size_of::<String>() + ALLOCATION));
        let texts = texts.iter().map(|length| length + ALLOCATION);
        size_of::<Self>() + texts.chain(managers).chain(labels).sum::<usize>()
    }

    /// Reports whether only a request for deletion makes such a version.
    pub(super) fn is_deletion(&self) -> bool {
        self.deletion_requested || self.op == EntryType::Deleted && !self.deleting
    }
}
