//! Bodies of a request and of its answer, of which nothing is taken but who the object is and which version it has.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::raw::{self, Raw};
use crate::core::k8s::audited::AuditedRequest;

/// Members of a body that say something of the object. A body may be anything: a list of JSON Patch operations, a text that says
/// that it was too long.
#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Body<'a> {
    #[serde(borrow)]
    metadata: Raw<'a>,
    /// Of a Status.
    #[serde(borrow)]
    details: Raw<'a>,
    /// Of DeleteOptions.
    #[serde(borrow)]
    preconditions: Raw<'a>,
    /// The same.
    #[serde(borrow)]
    dry_run: Raw<'a>,
    /// Of an Eviction.
    #[serde(borrow)]
    delete_options: Raw<'a>,
    /// Of a Status.
    #[serde(borrow)]
    code: Raw<'a>,
}

/// Members of an object's metadata, of a Status' details, and of preconditions.
#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Who<'a> {
    #[serde(borrow)]
    uid: Raw<'a>,
    #[serde(borrow)]
    resource_version: Raw<'a>,
    #[serde(borrow)]
    name: Raw<'a>,
}

impl Who<'_> {
    fn uid(&self) -> String {
        raw::text(self.uid)
    }

    /// The version; `0` means none in a request.
    fn version(&self) -> String {
        Some(raw::text(self.resource_version)).filter(|version| version != "0").unwrap_or_default()
    }
}

/// Parts of an event that name the object and its versions.
#[derive(Default)]
pub(super) struct Parts<'a> {
    /// `objectRef.uid`: the client's.
    pub(super) uid: String,
    /// `objectRef.resourceVersion`: the client's.
    pub(super) version: String,
    /// `responseStatus`.
    pub(super) status: Raw<'a>,
    /// `requestObject`.
    pub(super) sent: Raw<'a>,
    /// `responseObject`.
    pub(super) answered: Raw<'a>,
}

/// Fills in uid, versions, the name that the server generated, and a dry run that only a body asks for.
///
/// * A create gets its uid from the server: the client's is not taken, and neither is a version.
/// * A POST to a subresource (`pods/binding`, `pods/eviction`, `serviceaccounts/token`) is about its parent, and the answer is
///   another object: nothing of it is taken. The scheduler's binding names the uid of the Pod.
/// * A PATCH that carries a resourceVersion demands it, as a PUT does.
/// * A delete says in its body, and only there, that it is a dry run: at the level `Metadata` nobody can know.
pub(super) fn fill(request: &mut AuditedRequest, parts: Parts<'_>) {
    let verb = request.verb.as_str();
    let (is_put, is_patch) = (verb == "update", matches!(verb, "patch" | "apply"));
    let (is_delete, is_create) = (matches!(verb, "delete" | "deletecollection"), verb == "create");
    if !(is_put || is_patch || is_delete || is_create) {
        request.uid = parts.uid;
        return;
    }
    let is_new = is_create && request.subresource.is_empty();
    let of_parent = is_create && !is_new;
    let (sent, answered): (Body<'_>, Body<'_>) = (raw::members(parts.sent), raw::members(parts.answered));
    let (of_status, of_details): (Body<'_>, Who<'_>) = (raw::members(parts.status), raw::members(answered.details));
    let (asked, demanded): (Who<'_>, Who<'_>) = (raw::members(sent.metadata), raw::members(sent.preconditions));
    let answer: Who<'_> =
        if of_parent || verb == "deletecollection" { Who::default() } else { raw::members(answered.metadata) };

    let status: Who<'_> = raw::members(of_status.details);
    let mut uids = vec![answer.uid(), of_details.uid(), status.uid()];
    if !is_new {
        uids.extend([parts.uid, asked.uid(), if is_delete { demanded.uid() } else { String::new() }]);
    }
    request.uid = uids.into_iter().find(|uid| !uid.is_empty()).unwrap_or_default();

    request.before = if is_put {
        Some(parts.version).filter(|version| !version.is_empty() && version != "0").unwrap_or_else(|| asked.version())
    } else if is_patch {
        asked.version()
    } else if is_delete {
        demanded.version()
    } else {
        String::new()
    };
    request.after = answer.version();
    if is_new && request.name.is_empty() {
        request.name = raw::text(answer.name);
    }
    let is_eviction = of_parent && request.subresource == "eviction";
    request.may_be_dry = (is_delete || is_eviction) && parts.sent.is_none() && parts.answered.is_none();
    let of_eviction: Body<'_> = raw::members(sent.delete_options);
    request.dry_run |= is_delete && is_asked(sent.dry_run) || of_parent && is_asked(of_eviction.dry_run);
}

/// Reports whether `dryRun` of a body has a value.
fn is_asked(dry_run: Option<&RawValue>) -> bool {
    raw::texts(dry_run, 1).iter().any(|value| !value.is_empty())
}

/// Returns `code` of a body that is a Status; 0 where there is none.
pub(super) fn code(body: Raw<'_>) -> u16 {
    let body: Body<'_> = raw::members(body);
    raw::number(body.code)
}
