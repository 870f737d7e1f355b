//! An entry as `churn` reads it: what changed, and who wrote it.

use std::cmp::Reverse;

use serde_json::{Map, Value};

use crate::json::pointer::unescape;
use crate::k8s::bookkeeping::{MANAGED_FIELDS, is_book, managed_fields_entry};
use crate::k8s::managed_fields::{Manager, Writer};
use crate::wire::{Change, Op};

/// What somebody meant to change: not what the API server or kubectl keep beside it.
pub(super) fn meant<'c, 'a>(change: &'c Change<'a>) -> impl Iterator<Item = &'c Op<'a>> {
    change.patch.iter().filter(|operation| !is_book(&operation.path))
}

/// Who wrote a change, as far as managedFields say.
///
/// The API server notes the time of a write in the writer's entry, to the second, and takes fields that changed
/// hands out of the entries of the others. So of the entries that the change names, the writer's is the one that
/// has what was changed; else the one that came, has another time, or has more fields than before. Where the change
/// names none (a second write within one second) it is any that has what was changed.
pub(super) fn writer(change: &Change<'_>, object: &[u8]) -> Option<String> {
    let gains =
        change.patch.iter().filter_map(|operation| Some((managed_fields_entry(&operation.path)?, gain(operation))));
    let gains: Vec<(Option<usize>, u8)> = gains.collect();
    if let ([manager], true) = (&*change.managers, gains.iter().any(|(_, gain)| *gain > 0)) {
        return Some(manager.manager.clone());
    }
    // Entries that only changed places are not named.
    let names = |manager: &Manager| {
        change.managers.iter().any(|named| named.manager == manager.manager && named.time == manager.time)
    };
    let gain = |at: usize| gains.iter().filter(|(of, _)| of.is_none_or(|of| of == at)).map(|(_, gain)| *gain).max();
    let first = meant(change).find(|operation| operation.value.is_some());
    let ranked = Writer::all(object).into_iter().enumerate().filter_map(|(at, writer)| {
        let gain = gain(at).filter(|_| names(&writer.manager)).unwrap_or(0);
        let has = (change.managers.is_empty() || names(&writer.manager))
            && first.is_some_and(|operation| has(&writer, &operation.path));
        (has || gain > 0).then_some(((has, gain, writer.manager.time), writer.manager.manager))
    });
    ranked.max_by(|(one, _), (other, _)| one.cmp(other)).map(|(_, manager)| manager)
}

/// Who made an object: of whoever its books name, the newest.
pub(super) fn creator(object: &[u8]) -> Option<String> {
    let writers = Writer::all(object).into_iter().map(|writer| writer.manager);
    writers.min_by_key(|manager| Reverse(manager.time.clone())).map(|manager| manager.manager)
}

/// How surely an operation on managedFields shows the writer: another time or a new entry, then fields that came.
fn gain(operation: &Op<'_>) -> u8 {
    let below = operation.path.trim_start_matches(MANAGED_FIELDS).split('/').skip(2).collect::<Vec<_>>();
    match (&*operation.op, below.as_slice()) {
        ("remove", _) => 0,
        (_, [] | ["time"]) => 2,
        _ => 1,
    }
}

/// Whether a writer has what a pointer leads to. Elements of lists have no index in the books but a key, and any of them
/// will do.
fn has(writer: &Writer, pointer: &str) -> bool {
    let names: Vec<_> = pointer.split('/').skip(1).map(|name| unescape(name).unwrap_or(name.into())).collect();
    writer.owns(&names, |name, members: &Map<String, Value>, key| {
        let is_index = || name.bytes().all(|byte| byte.is_ascii_digit());
        key.strip_prefix("f:") == Some(name)
            || (key.starts_with("k:") || key.starts_with("v:"))
                && is_index()
                && !members.contains_key(&format!("f:{name}"))
    })
}
