//! Common parts of the requests for the objects of a source, and the meaning of their failures.

use kube::core::params::{ListParams, WatchParams};

use crate::core::model::{ResourceVersion, SourceSpec};
use crate::journal::JournalError;
use crate::watch::cluster::Failure;

/// Either what was asked for failed, or the journal did and everything ends.
pub(super) enum Stop {
    Failure(Failure),
    Journal(JournalError),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

impl From<JournalError> for Stop {
    fn from(error: JournalError) -> Self {
        Self::Journal(error)
    }
}

pub(super) fn request(spec: &SourceSpec) -> kube::core::Request {
    kube::core::Request::new(spec.resource.path(spec.namespace.as_deref()))
}

/// Returns the parameters that select the objects of a source, without the excluded namespaces: requests for a version, or for
/// one object, need not name them.
pub(super) fn list_params(spec: &SourceSpec) -> ListParams {
    ListParams {
        label_selector: selector(&spec.label_selector),
        field_selector: selector(&spec.field_selector),
        ..ListParams::default()
    }
}

/// The request that watches from a version for so many seconds.
pub(super) fn watch_request(
    spec: &SourceSpec,
    fields: &str,
    seconds: u32,
    from: &ResourceVersion,
) -> Result<String, kube::core::request::Error> {
    let params = WatchParams {
        label_selector: selector(&spec.label_selector),
        field_selector: selector(fields),
        timeout: Some(seconds),
        bookmarks: true,
        ..WatchParams::default()
    };
    Ok(request(spec).watch(&params, from.as_str())?.uri().to_string())
}

pub(super) fn selector(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

#[expect(clippy::needless_pass_by_value, reason = "it is given to map_err")]
pub(super) fn unbuilt(error: kube::core::request::Error) -> Failure {
    Failure::Refused(format!("the request cannot be made: {error}"))
}
