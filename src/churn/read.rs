//! An entry as `churn` reads it: what changed, and who wrote it.

use std::cmp::Reverse;

use crate::k8s::bookkeeping::is_book;
use crate::k8s::managed_fields::ManagedFields;
use crate::wire::{Change, Op};

/// What somebody meant to change: not what the API server or kubectl keep beside it.
pub(super) fn meant<'c, 'a>(change: &'c Change<'a>) -> impl Iterator<Item = &'c Op<'a>> {
    change.patch.iter().filter(|operation| !is_book(&operation.path))
}

/// Who wrote a change, as far as the entry says; nobody where it leaves several open.
pub(super) fn writer(change: &Change<'_>) -> Option<String> {
    let (first, others) = change.managers.split_first()?;
    others.iter().all(|other| other.manager == first.manager).then(|| first.manager.clone())
}

/// Who made an object: of whoever its managedFields name, the newest.
pub(super) fn creator(object: &[u8]) -> Option<String> {
    let managers = ManagedFields::of(object).all();
    managers.into_iter().min_by_key(|manager| Reverse(manager.time.clone())).map(|manager| manager.manager)
}
