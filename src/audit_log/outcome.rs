//! Outcomes of reading one record.

use std::fmt;

use crate::core::k8s::audited::AuditedRequest;

/// Meaning of one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A request that has ended, whatever its verb and its code are; [`AuditedRequest::writes`] says whether it counts.
    Request(Box<AuditedRequest>),
    /// A record that is understood, and is no ended request for an object.
    Other(Reason),
    /// A record that is damaged, or of a shape that decklog does not know: one sentence, without anything of its contents.
    Unreadable(String),
}

/// Reason for which a record is passed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// An event of a stage that ends no request: `RequestReceived`, `ResponseStarted`, or the first of two log entries of GKE.
    Stage,
    /// A request for a path that is no resource, such as `/healthz`.
    NoObject,
    /// No event of an audit log: text, or JSON of another kind.
    NotAudit,
    /// A record of another log in an envelope that carries several: another stream of EKS, another category of Azure, another service of
    /// Google.
    OtherLog,
    /// A message by which CloudWatch tries the connection.
    Control,
}

impl Reason {
    /// Value of a metric's label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stage => "stage",
            Self::NoObject => "no_object",
            Self::NotAudit => "not_audit",
            Self::OtherLog => "other_log",
            Self::Control => "control",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Outcome {
    /// Returns an unreadable record with this sentence.
    pub(super) fn unreadable(sentence: impl Into<String>) -> Self {
        Self::Unreadable(sentence.into())
    }
}
