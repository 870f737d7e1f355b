//! What a watch cache has lost of what etcd keeps.

use std::ops::Bound;
use std::sync::Arc;

use super::{Kind, Row, Storage};

impl Storage {
    /// The watch cache loses the next revisions, until it is made anew.
    pub(in crate::sim) const fn lose(&mut self, next: usize) {
        self.losing = next;
    }

    /// Reports whether the watch cache has lost a revision.
    pub(in crate::sim) fn has_lost(&self, revision: u64) -> bool {
        self.lost.contains(&revision)
    }

    /// Every object as etcd or the watch cache has it at this revision, by key, after `start`.
    pub(in crate::sim) fn listed<'a>(
        &'a self,
        revision: u64,
        start: &'a str,
        from_etcd: bool,
    ) -> Box<dyn Iterator<Item = &'a Arc<Row>> + 'a> {
        if from_etcd || self.lost.is_empty() {
            return Box::new(self.view(revision, start));
        }
        let from = if start.is_empty() { Bound::Unbounded } else { Bound::Excluded(start.to_owned()) };
        Box::new(self.keys.range((from, Bound::Unbounded)).filter_map(move |(_, forms)| {
            let seen = |form: &&Arc<Row>| form.revision <= revision && !self.has_lost(form.revision);
            forms.iter().rev().find(seen).filter(|form| form.kind != Kind::Deleted)
        }))
    }
}
