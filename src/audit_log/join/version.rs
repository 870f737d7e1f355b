//! Versions of objects, as the log has them: the input of the join beside the requests.

use std::collections::BTreeMap;

use crate::core::k8s::managed_fields::{By, Manager};
use crate::core::model::{EntryType, Evidence};

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
    /// API group; empty for the core group.
    pub group: String,
    /// Plural name of the resource.
    pub resource: String,
    /// Empty where the resource has no namespaces.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
    /// uid of the object.
    pub uid: String,
    /// resourceVersion of the entry.
    pub version: String,
    /// resourceVersion of the object right before this one, of the same uid. None where a version may lie between the two: after a
    /// gap, a list, or a change that the log suppressed.
    pub before: Option<String>,
    /// Writers by managedFields; of ADDED all managers.
    pub managers: Vec<Manager>,
    /// Reports that this version has metadata.deletionTimestamp and the one before had not.
    pub deletion_requested: bool,
    /// Reports that the object before this version had metadata.deletionTimestamp; of DELETED its last state.
    pub deleting: bool,
    /// Reports that this version has a shorter grace period, as a kubelet sets it before the end.
    pub grace_shortened: bool,
    /// Labels of the object, or of its last state; none where they are not known.
    pub labels: Option<BTreeMap<String, String>>,
    /// Reports that the API server may have made up its name: it has metadata.generateName, or that is not known.
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

    /// Reports whether only a request for deletion makes such a version.
    pub(super) fn is_deletion(&self) -> bool {
        self.deletion_requested || self.op == EntryType::Deleted && !self.deleting
    }
}
