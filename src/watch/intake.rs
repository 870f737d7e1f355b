//! Intake: objects of the API server are checked and redacted before the journal gets them.
//!
//! # Decision: a namespace is excluded in two places
//!
//! Context: A field selector costs nothing, but it knows no patterns, and not every API server selects by namespace.
//! Decision: decklog itself leaves out objects of an excluded namespace right after reading their identity; that decides. A
//! field selector is tried once, as a saving. Excluded events move the position like a bookmark. Audits, lists and recoveries
//! exclude the same on both sides.
//! Cost: Counts by the server may be too high, so names are requested instead.

use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::Shared;
use super::decode::{self, Object};
use super::frame::{Item, Oversize};
use crate::core::json;
use crate::core::model::{Observed, Resource, ResourceVersion, SourceSpec, Unread, Why};
use crate::watch::cluster::Failure;

/// Error for an object of the wrong kind.
const OTHER_KIND: &str = "the API server sent an object of another kind than was asked for";
/// Reason why a large object is given up for the moment.
pub(super) const SLOW: &str = "an object comes so slowly that others wait for its memory";

/// A panic over what a server sent is a bug. It costs this one piece, which counts as undecodable, and not the daemon,
/// which would meet the same piece again and again.
pub(super) fn caught<T>(read: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    // Nothing that was half done is seen again: what is read is borrowed and what it gives is dropped.
    catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|_panic| {
        Err(Failure::Undecodable("reading what the API server sent failed; this is a bug, please report it".to_owned()))
    })
}

/// The object as the journal takes it: without what must not be kept.
pub(super) fn observed(shared: &Shared, resource: &Resource, object: Object<'_>) -> Result<Observed, Failure> {
    if !object.is_one_of(resource) {
        return Err(Failure::Undecodable(OTHER_KIND.to_owned()));
    }
    #[cfg(test)]
    assert!(memchr::memmem::find(&object.bytes, b"what makes decklog panic").is_none(), "as the test asks for");
    // A server that writes for people breaks lines between tokens; an entry is one line.
    let bytes = match memchr::memchr2(b'\n', b'\r', &object.bytes) {
        Some(_) => Cow::Owned(json::one_line(object.bytes.into_owned())),
        None => object.bytes,
    };
    let body = shared.redactor.apply(resource, &object.uid, bytes).map_err(Failure::Undecodable)?;
    Ok(Observed {
        namespace: object.namespace.into_owned(),
        name: object.name.into_owned(),
        uid: object.uid.into_owned(),
        version: ResourceVersion::new(object.version),
        body,
    })
}

/// An object that cannot be recorded: which one it is, as far as it says so. `bytes` is all of it that is at hand.
pub(super) fn unread(shared: &Shared, spec: &SourceSpec, odd: decode::Odd, why: Why, bytes: &[u8]) -> Unread {
    let decode::Odd { why: text, namespace, name, uid, version } = odd;
    let is_named = !name.is_empty() && !version.is_empty();
    let digest = if is_named { String::new() } else { shared.redactor.digest_of(bytes) };
    let resource = spec.resource.full_name();
    if why == Why::Oversize {
        tracing::warn!(
            "{resource} {namespace:?}/{name:?} is larger than decklog takes: it is not read, and the log has a GAP"
        );
    } else {
        tracing::warn!("{resource} {namespace:?}/{name:?} cannot be recorded, and the log has a GAP: {text}");
    }
    Unread { namespace, name, uid, version: ResourceVersion::new(version), digest, why }
}

/// Result of taking an item of a list.
pub(super) enum Taken {
    /// An object of an excluded namespace.
    Nothing,
    /// No JSON, and nobody has asked for it again yet.
    Damaged,
    Object(Observed),
    Unread(Unread),
}

/// An item of a list, whatever it is: one that cannot be recorded keeps no other out of the log. `met` gets its namespace and
/// its name, and the version of one that was read whole.
pub(super) fn taken(
    shared: &Shared,
    spec: &SourceSpec,
    item: Item<'_>,
    doubts: bool,
    met: impl FnOnce(&str, &str, Option<&str>),
) -> Taken {
    let (Item::Whole(bytes) | Item::Outline(bytes)) = item;
    let odd = match decode::item(&spec.resource, bytes) {
        Ok(object) => {
            let version = matches!(item, Item::Whole(_)).then_some(&*object.version);
            met(&object.namespace, &object.name, version);
            if spec.leaves_out(&object.namespace) {
                return Taken::Nothing;
            }
            let named = Object { bytes: Cow::Borrowed(&[]), ..object.clone() };
            match item {
                Item::Whole(_) if spec.takes(&object.namespace) => {
                    match caught(|| observed(shared, &spec.resource, object)) {
                        Ok(object) => return Taken::Object(object),
                        Err(failure) => decode::Odd { why: failure.to_string(), ..named.into() },
                    }
                }
                Item::Whole(_) => {
                    decode::Odd { why: "it is in another namespace than was asked for".to_owned(), ..named.into() }
                }
                Item::Outline(_) => named.into(),
            }
        }
        Err(_) if doubts && serde_json::from_slice::<serde::de::IgnoredAny>(bytes).is_err() => return Taken::Damaged,
        Err(odd) => {
            met(&odd.namespace, &odd.name, None);
            if spec.leaves_out(&odd.namespace) {
                return Taken::Nothing;
            }
            odd
        }
    };
    let why = if matches!(item, Item::Outline(_)) { Why::Oversize } else { Why::Undecodable };
    Taken::Unread(unread(shared, spec, odd, why, bytes))
}

impl From<Oversize> for Failure {
    fn from(_: Oversize) -> Self {
        Self::Oversize("an object is larger than decklog takes".to_owned())
    }
}
