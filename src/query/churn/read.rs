//! An entry as `churn` reads it: what changed, and who wrote it.

use std::cmp::Reverse;

use crate::core::k8s::bookkeeping::is_book;
use crate::core::wire::{Change, Entry, Op, authors_with};

/// Returns the intended operations: without the fields that the API server or kubectl maintain.
pub(super) fn meant<'c, 'a>(change: &'c Change<'a>) -> impl Iterator<Item = &'c Op<'a>> {
    change.patch.iter().filter(|operation| !is_book(&operation.path))
}

/// Returns the manager of a change; none if the entry leaves several open.
pub(crate) fn writer(change: &Change<'_>) -> Option<String> {
    let (first, others) = change.managers.split_first()?;
    others.iter().all(|other| other.manager == first.manager).then(|| first.manager.clone())
}

/// Returns the creator of an object: of those that its creation names the one that wrote last.
pub(super) fn creator(entry: &Entry<'_>, object: &[u8]) -> Option<String> {
    let managers = authors_with(entry, Some(object));
    managers.into_iter().min_by_key(|manager| Reverse(manager.time.clone())).map(|manager| manager.manager)
}
