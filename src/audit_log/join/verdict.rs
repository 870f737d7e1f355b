//! Output of the join.

pub use crate::core::k8s::audited::Certainty;
use crate::core::k8s::audited::Sender;

/// Answer for one version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Seq of the version.
    pub seq: u64,
    /// Sender of the request, or the reason why none is named.
    pub actor: Result<Actor, Unresolved>,
}

/// Sender who made a version or, of a deletion, asked for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Actor {
    /// Sender. Where several requests of one user remain, what they do not share is empty.
    pub sender: Sender,
    /// Verb of the request; empty where those that remain have several.
    pub verb: String,
    /// Subresource of the request.
    pub subresource: String,
    /// Strength of the answer: the weakest of the requests that remain.
    pub certainty: Certainty,
    /// auditIDs of the request; several where one of several requests of the same user did it.
    pub audit_ids: Vec<String>,
}

/// Reason why a version has no actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Unresolved {
    /// Requests of several users can have made it.
    Ambiguous,
    /// No request of the audit log can have made it.
    NotInAuditLog,
    /// No request of the audit log can have made it, and an audit log begins later, or has brought nothing yet.
    BeforeAuditLog,
    /// The audit log lacks requests of that time, or of that resource, so that nothing follows from those which it has.
    Incomplete,
    /// The audit log was not read at that time, or what was read is forgotten.
    OutsideOfItsTime,
    /// A list found it, or it is the difference of two states.
    NotWatched,
    /// An event that outlived its time to live: no request deletes it.
    Expired,
    /// The definition of the resource was deleted, and its objects with it, without a request for each.
    DefinitionDeleted,
}

impl Unresolved {
    /// Every reason.
    pub const ALL: [Self; 8] = [
        Self::Ambiguous,
        Self::NotInAuditLog,
        Self::BeforeAuditLog,
        Self::Incomplete,
        Self::OutsideOfItsTime,
        Self::NotWatched,
        Self::Expired,
        Self::DefinitionDeleted,
    ];

    /// The reason as one word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ambiguous => "ambiguous",
            Self::NotInAuditLog => "not-in-the-audit-log",
            Self::BeforeAuditLog => "before-the-audit-log",
            Self::Incomplete => "incomplete-audit-log",
            Self::OutsideOfItsTime => "outside-of-its-time",
            Self::NotWatched => "not-watched",
            Self::Expired => "expired",
            Self::DefinitionDeleted => "definition-deleted",
        }
    }

    /// Reports whether no audit log can ever have an actor for it.
    #[must_use]
    pub const fn is_by_nature(self) -> bool {
        matches!(self, Self::Expired | Self::DefinitionDeleted)
    }
}

/// Request about an object, for an answer that is about no version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// auditID.
    pub id: String,
    /// Key of its event.
    pub key: String,
    /// Who sent it.
    pub sender: Sender,
    /// Verb of the request.
    pub verb: &'static str,
    /// Subresource of the request.
    pub subresource: String,
    /// API group; empty for the core group.
    pub group: String,
    /// Plural name of the resource.
    pub resource: String,
    /// Empty where the resource has no namespaces.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
    /// Version that the answer carries, where it is known.
    pub version: String,
    /// Time of the receipt, microseconds since 1970.
    pub received: i64,
    /// Time of the answer.
    pub completed: i64,
}

/// Answers that are ready.
#[derive(Debug, Default)]
pub struct Settled {
    /// One for each version, once.
    pub verdicts: Vec<Verdict>,
    /// Updates, patches and applies that made no version.
    pub wasted: Vec<Write>,
    /// Writes whose version the log does not have: each is a witness of a loss.
    pub unknown_versions: Vec<Write>,
}
