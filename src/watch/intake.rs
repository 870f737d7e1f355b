//! What the API server sends, as the journal takes it: checked, and without what must not be kept.

use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::Shared;
use super::decode;
use super::frame::Oversize;
use crate::cluster::Failure;
use crate::json;
use crate::model::{Observed, Redacted, Resource, ResourceVersion};

/// What is wrong with a server that says so.
const OTHER_KIND: &str = "the API server sent an object of another kind than was asked for";
/// Why a large object is given up for the moment.
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
pub(super) fn observed(shared: &Shared, resource: &Resource, object: decode::Object<'_>) -> Result<Observed, Failure> {
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

/// An object of a list that is too large: which one it is, and nothing of what it holds. Its last known state stays.
pub(super) fn unread(resource: &Resource, object: decode::Object<'_>) -> Result<Observed, Failure> {
    if !object.is_one_of(resource) {
        return Err(Failure::Undecodable(OTHER_KIND.to_owned()));
    }
    let (namespace, name) = (object.namespace.into_owned(), object.name.into_owned());
    tracing::warn!(
        "{} {namespace:?}/{name:?} is larger than decklog takes: it is not read, and the log has a GAP",
        resource.full_name()
    );
    let (uid, version) = (object.uid.into_owned(), ResourceVersion::new(object.version));
    Ok(Observed { namespace, name, uid, version, body: Redacted::default() })
}

impl From<Oversize> for Failure {
    fn from(_: Oversize) -> Self {
        Self::Oversize("an object is larger than decklog takes".to_owned())
    }
}
