//! Ends of drifts: how a later version leaves a field that differed.

use std::collections::BTreeSet;

use serde_json::Value;

use super::How;
use super::hands::{Hand, hand, is_of};
use super::owned::{Differing, Held, Now, Path, books, owns, resolve};
use super::turn::Turn;
use crate::core::k8s::bookkeeping::is_book;
use crate::core::k8s::managed_fields::{By, Manager};
use crate::query::provenance::Tool;

/// Reports whether a tool has written between two versions, by its stamps.
pub(super) fn has_written(tool: Tool, before: &Value, after: &Value) -> bool {
    let stamps = |object| -> BTreeSet<Option<String>> {
        books(object).into_iter().filter(|book| is_of(tool, &book.manager)).map(|book| book.manager.time).collect()
    };
    !stamps(after).is_subset(&stamps(before))
}

/// Reports whether a tool takes a field over from who set it, by an edit of managedFields: Flux does that with all of kubectl's fields
/// right before it applies its own values. The tool has written no value, so its stamp stays, and the other owner is gone.
fn is_taken_over(tool: Tool, field: &Differing, before: &Value, after: &Value) -> bool {
    let owners = |object| -> BTreeSet<Manager> {
        let owns_it = |set| field.owned.iter().any(|(path, _)| owns(set, path));
        let others = books(object).into_iter().filter(|book| !is_of(tool, &book.manager) && owns_it(book.set));
        others.map(|book| book.manager).collect()
    };
    !has_written(tool, before, after) && !owners(before).is_subset(&owners(after))
}

/// Tells how a version ends the drift of a field, given the version before it; none if it goes on.
pub(super) fn outcome(
    (turn, before): (&Turn<'_>, Option<&Value>),
    tool: Tool,
    field: &Differing,
    writers: &[Manager],
    is_marked: bool,
) -> Option<How> {
    let hand = hand(writers, tool, &field.path, is_marked);
    let owns_it =
        |manager: &Manager, set: &Value| is_of(tool, manager) && field.owned.iter().all(|(path, _)| owns(set, path));
    let own = books(turn.after);
    let is_owner = own.iter().any(|book| owns_it(&book.manager, book.set));
    match (hand, field.now(turn.after)) {
        (_, Now::Expected) => Some(How::Restored),
        (Hand::Tool, Now::Same) if before.is_some_and(|before| is_taken_over(tool, field, before, turn.after)) => None,
        (Hand::Tool, _) if field.redacted => is_owner.then_some(How::Rewritten),
        (Hand::Tool, Now::Other) => Some(How::Replaced),
        (Hand::Tool, Now::Same) if is_owner => Some(How::Adopted),
        (Hand::Tool, Now::Same) => {
            // An apply sets all that the tool wants.
            let is_apply = |one: &Manager| {
                is_of(tool, one) && one.operation == "Apply" && one.by == Some(By::Moved) && !turn.is_net
            };
            if writers.iter().any(is_apply) { Some(How::Released) } else { by_note(turn, field) }
        }
        (Hand::Told | Hand::Other | Hand::Nobody, Now::Other) => Some(How::Overwritten),
        (Hand::Told | Hand::Other | Hand::Nobody, Now::Same) => None,
    }
}

/// Reports whether a field that a drift leaves is as the tool wants it, and owned by somebody else.
pub(super) fn is_wanted(turn: &Turn<'_>, tool: Tool, field: &Differing, writers: &[Manager], how: How) -> bool {
    let own = books(turn.after);
    let is_owner = |path: &Path| own.iter().any(|book| is_of(tool, &book.manager) && owns(book.set, path));
    (how == How::Restored || how == How::Adopted && field.got.is_some())
        && hand(writers, tool, &field.path, true) != Hand::Told
        && !field.owned.iter().all(|(path, _)| is_owner(path))
}

/// Tells how a drift ends by what the tool notes of its manifest.
fn by_note(turn: &Turn<'_>, field: &Differing) -> Option<How> {
    let applied = turn.applied.as_ref()?;
    let (last, above) = field.path.split_last()?;
    // A manifest may leave out members that name an element.
    if last.starts_with("k:") && last.contains(',') {
        return None;
    }
    resolve(applied, above)?;
    match (resolve(applied, &field.path), &field.got) {
        (Some((_, value)), Some(got)) if Held::of(value) == *got => Some(How::Adopted),
        (None, None) => Some(How::Adopted),
        (None, Some(_)) => Some(How::Released),
        (Some(_), _) => None,
    }
}

/// Reports whether an operation of a patch changes what was noted of the last apply.
pub(super) fn is_note(pointer: &str) -> bool {
    let is_within_it = pointer.starts_with("/metadata/annotations/") && is_book(pointer);
    is_within_it || ["", "/metadata", "/metadata/annotations"].contains(&pointer)
}
