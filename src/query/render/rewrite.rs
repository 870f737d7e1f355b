//! A storage rewrite, in words.

use super::clock::Clock;
use super::row::{TerminalStyle, count, printable};
use crate::query::rewrites::Rewrite;

/// What stands for a write of a single object.
pub(crate) const STORAGE_REWRITE: &str = "storage rewrite";

/// Returns `storage rewrite of 2,301 objects of pods in shop by NAME, 14:02:11 to 14:09:40`.
pub(crate) fn sentence(rewrite: &Rewrite, clock: &Clock, look: TerminalStyle) -> String {
    let Rewrite { resource, namespace, by, objects, since, until, .. } = rewrite;
    let place = namespace.as_ref().map_or_else(String::new, |name| format!(" in {name}"));
    let by = by.as_ref().map_or_else(String::new, |name| format!(" by {name}"));
    let (first, last) = (clock.stamp(since), clock.stamp(until));
    let (from, to) = match (look.terminal, first.day() == last.day()) {
        (true, true) => (first.time, last.time),
        (true, false) => (format!("{} {}", first.date, first.time), format!("{} {}", last.date, last.time)),
        (false, _) => (first.whole, last.whole),
    };
    let objects = count(u64::try_from(*objects).unwrap_or(u64::MAX));
    let text = format!("{STORAGE_REWRITE} of {objects} objects of {resource}{place}{by}, {from} to {to}");
    printable(&text).into_owned()
}
