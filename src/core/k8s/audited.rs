//! Requests that the API server has written into its audit log (audit.k8s.io/v1), as far as they say who sent them.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// One answered request: who sent it, what it was about, and how it ended. Nothing of a body is in it but uid and version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AuditedRequest {
    /// `auditID`; of a GKE log entry `insertId`, a slash and its time.
    pub id: String,
    /// `create`, `update`, `patch`, `apply`, `delete`, `deletecollection`, and the reading verbs. The log does not have the type of a
    /// PATCH: `apply` is certain, `patch` may be one.
    pub verb: String,
    /// API group; empty for the core group.
    pub group: String,
    /// Plural name of the resource.
    pub resource: String,
    /// Path below the object, such as `scale`. A `create` of `pods/binding` or `pods/eviction` is about the Pod.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub subresource: String,
    /// Empty where the request is for a resource without namespaces (a Namespace, too), or for all of them.
    pub namespace: String,
    /// Empty of a collection, and of a `generateName` whose answer is not in the event.
    pub name: String,
    /// uid of the object: of the response, else what the client demanded in objectRef, the request's body or preconditions. That of a
    /// `create` is of the response alone.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// Version that the sender of a PUT replaced, or that a PATCH or a DELETE demanded.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub before: String,
    /// Version that the answer carries. Of a write without a change it is that of the write before.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub after: String,
    /// Name that managedFields have for the sender: `fieldManager` of the URI, else the user agent up to the first `/`. Empty where the
    /// URI is not known, as on GKE.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub manager: String,
    /// `labelSelector` of a collection's URI, as it was sent, without percent-encoding.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub label_selector: String,
    /// The same for `fieldSelector`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field_selector: String,
    /// Sender of it.
    #[serde(flatten)]
    pub sender: Sender,
    /// HTTP code of the answer; 0 where the event has none. GKE does not say which success it was, and that is 200.
    pub code: u16,
    /// Reports that the request asked for a dry run. Of a delete it is unknown where the body is not in the event, and false.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    /// Reports that nobody knows whether it was one: a deletion says so in its body, and the event has none.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub may_be_dry: bool,
    /// Time at which the API server received the request, microseconds since 1970; 0 where it was cut off. Of GKE it is that of the
    /// entry.
    pub received: i64,
    /// Time of the answer, or of the envelope where the event was cut off; 0 where that has none.
    pub completed: i64,
    /// Reports that the event was cut off, so that the fields behind `responseStatus` are unknown.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub cut: bool,
}

/// Sender of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Sender {
    /// Name for people: of a user of EKS the session (`arn`, else `sessionName`), of others `user.username`. Of an impersonation it is
    /// the user who was impersonated.
    pub user: String,
    /// User who impersonated `user`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub impersonated_by: String,
    /// User agent, as it was sent (at most 1,024 bytes).
    #[serde(skip_serializing_if = "String::is_empty")]
    pub agent: String,
    /// Addresses. The last one is that of the connection; what stands before it is what the client, or a proxy, says.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<String>,
}

impl Sender {
    /// Reports whether it is the same user, through the same one where it was impersonated.
    #[must_use]
    pub fn is_same_user(&self, other: &Self) -> bool {
        (&self.user, &self.impersonated_by) == (&other.user, &other.impersonated_by)
    }

    /// Returns the names of its users that are known: as whom it was done, and who did it as that one.
    pub fn users(&self) -> impl Iterator<Item = &str> {
        [&*self.user, &*self.impersonated_by].into_iter().filter(|user| !user.is_empty())
    }
}

/// Returns the key by which an event is known when it comes again. A client chooses the auditID (`Audit-ID`), so that several requests
/// may have one.
#[must_use]
pub fn key(id: &str, received: i64, completed: i64) -> String {
    format!("{received}/{completed}/{id}")
}

impl AuditedRequest {
    /// Returns its [`key`].
    #[must_use]
    pub fn key(&self) -> String {
        key(&self.id, self.received, self.completed)
    }

    /// Reports whether it can have changed something: a granted write that is no dry run.
    #[must_use]
    pub fn writes(&self) -> bool {
        matches!(self.code, 200..=299) && !self.dry_run && WRITES.contains(&self.verb.as_str())
    }
}

impl AuditedRequest {
    /// Reports whether it may have changed something: also where the answer is a failure of the server, or unknown, because the write may
    /// have come through.
    #[must_use]
    pub fn may_have_written(&self) -> bool {
        matches!(self.code, 0 | 200..=299 | 500..) && !self.dry_run && WRITES.contains(&self.verb.as_str())
    }
}

impl AuditedRequest {
    /// Reports whether it was refused with 409: another write came first, or the name was taken.
    #[must_use]
    pub fn is_refused_for_another(&self) -> bool {
        self.code == 409 && !self.dry_run && WRITES.contains(&self.verb.as_str())
    }
}

const WRITES: [&str; 6] = ["create", "update", "patch", "apply", "delete", "deletecollection"];

/// Sender of the request that made a change: the `actor` member of an entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Actor {
    /// User, agent and addresses.
    #[serde(flatten)]
    pub sender: Sender,
    /// `create`, `update`, `patch`, `apply`, `delete`, `deletecollection`.
    pub verb: String,
    /// Subresource that was written; empty for the object itself.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub subresource: String,
    /// Events of the audit log, in the order of their receipt.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub audit_ids: Vec<String>,
    /// Word of a [`Certainty`]; a later release may know more.
    pub certainty: String,
}

/// How the sender of a change is known, the surest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Certainty {
    /// The answer to the request carries the version.
    Exact,
    /// A PUT names the version before, and nothing else can have followed that.
    Successor,
    /// The only creation of that name in its time.
    Created,
    /// The only write with this manager, subresource and time.
    Field,
    /// The only deletion that was asked for.
    Deleted,
    /// The only deletion of a collection that has the object in it.
    Collection,
}

impl Certainty {
    /// Every one, the surest first.
    pub const ALL: [Self; 6] =
        [Self::Exact, Self::Successor, Self::Created, Self::Field, Self::Deleted, Self::Collection];

    /// The word of the wire format.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Successor => "successor",
            Self::Created => "created",
            Self::Field => "field",
            Self::Deleted => "deleted",
            Self::Collection => "collection",
        }
    }
}

/// Changes that no request of the audit logs can have made, since the daemon began.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Unexplained {
    /// The changes in a row of which none has a request, where they are so many that the audit logs are of no use.
    pub run: Option<UnexplainedRun>,
    /// Watched resources of which most changes have none, by name.
    pub resources: Vec<UnexplainedResource>,
}

/// Changes in a row of which no request of the audit logs can have made any.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnexplainedRun {
    /// Time of the first.
    pub since: Timestamp,
    /// Number of them.
    pub changes: u64,
}

/// Changes of a resource that no request of the audit logs can have made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnexplainedResource {
    /// The resource: `deployments.apps`.
    pub resource: String,
    /// Number of them.
    pub changes: u64,
    /// Number of all changes of which the audit logs could say who made them.
    pub decided: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_may_have_been_written_and_a_refusal_was_not() {
        for (verb, code, dry_run, writes, may) in [
            ("patch", 200, false, true, true),
            ("create", 201, false, true, true),
            ("update", 500, false, false, true),
            ("update", 504, false, false, true),
            ("delete", 0, false, false, true),
            ("update", 409, false, false, false),
            ("delete", 404, false, false, false),
            ("patch", 200, true, false, false),
            ("get", 200, false, false, false),
            ("list", 500, false, false, false),
        ] {
            let request = AuditedRequest { verb: verb.to_owned(), code, dry_run, ..AuditedRequest::default() };
            assert_eq!((request.writes(), request.may_have_written()), (writes, may), "{verb} {code}");
        }
    }
}
