//! Drift: fields that a delivery tool has set and somebody else has changed, and objects of it that somebody else deleted.
//!
//! One pass over entries in their order. An entry says the version before it, so nothing is remembered but what differs now:
//! [`owned`] finds the fields that the tool owned in the version before, [`hands`] tells the writer from the tool and from
//! controllers that are told to write, and [`pass`] opens a drift and sees how it ends. [`World`] has what other objects know.
//!
//! # Decision: expected is the value that the tool owned in the version before
//!
//! Context: The log has no repository. Manifests leave fields to defaults, webhooks and autoscalers.
//! Decision: A field is the tool's if managedFields of the version before the foreign write say so, and the value that it had is
//! the expected one. A drift ends if that value is back, if the tool sets another, owns the foreign one, or gives the field up.
//! Cost: A drift that is older than the log is known only where the tool left what it applied in an annotation.

mod ends;
pub(crate) mod hands;
pub(crate) mod ignored;
mod owned;
mod pass;
mod turn;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::Word;
use crate::core::k8s::audited::Actor;
use crate::core::k8s::managed_fields::Manager;
use crate::query::provenance::{Provenance, Tool};
pub(crate) use pass::{Asked, Pass, Verdict, World};

/// Number of drifts that are remembered, and of fields that differ at once.
pub(crate) const MOST: usize = 20_000;

/// Knowledge of the time of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Known {
    /// Then.
    At,
    /// Between the earliest time and then.
    Between,
    /// Between the earliest time and then, in a GAP.
    Gap,
    /// Then or before: the log begins with it.
    Earlier,
    /// After the newest entry of the object, and not recorded.
    Later,
}

/// A write, and those who made it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Written {
    /// The entry; absent where no entry has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) seq: Option<u64>,
    /// The latest time.
    pub(crate) time: Timestamp,
    /// The earliest time, where it is another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) earliest: Option<Timestamp>,
    pub(crate) known: Known,
    /// Those who made it, by managedFields.
    pub(crate) writers: Vec<Manager>,
    /// The reason why there are none, in a few words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) unnamed: Option<String>,
    /// Sender of the request, as the API server's audit log has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) actor: Option<Actor>,
}

/// End of a drift.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum How {
    /// The value of the tool, or the object, is there again.
    Restored,
    /// The tool wrote it, and redaction hides what.
    Rewritten,
    /// The tool sets the foreign value now.
    Adopted,
    /// The tool set a third value.
    Replaced,
    /// The tool does not set the field any more.
    Released,
    /// Somebody else set a third value, which is a drift of its own.
    Overwritten,
    /// The object was deleted.
    Deleted,
    /// Somebody else created the object.
    Recreated,
}

/// A field that differs.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Field {
    /// JSON pointer.
    pub(crate) path: String,
    /// Name for people, as `log` has it.
    pub(crate) name: String,
    /// The value of the tool; absent if it is longer than 4 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) expected: Option<Box<RawValue>>,
    /// The foreign value; absent if there is none, or if it is longer than 4 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) got: Option<Box<RawValue>>,
    /// True if the foreign write removed it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) gone: bool,
    /// True if redaction hides the values.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) redacted: bool,
}

/// The object that drives a tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DrivenBy {
    pub(crate) kind: Word,
    /// Empty where it is not known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// End of a drift, with who brought it about.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Ended {
    pub(crate) how: How,
    pub(crate) write: Written,
    /// Run of the tool, where it was the tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) provenance: Option<Provenance>,
}

/// Fields of one object that one write took from a tool and that had one end, or the whole object.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Drift {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    pub(crate) resource: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) tool: Tool,
    /// The objects that drive the tool for it; several where the log does not say which.
    pub(crate) driven_by: Vec<DrivenBy>,
    /// The fields; empty for the whole object, which was deleted.
    pub(crate) fields: Vec<Field>,
    pub(crate) began: Written,
    /// Absent while it is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ended: Option<Ended>,
    /// Longest time that it can have lasted, in milliseconds; until now if it is open. One that began earlier than the log knows
    /// lasted longer.
    pub(crate) millis: i64,
    /// Number of GAPs in that time.
    #[serde(default, skip_serializing_if = "is_none")]
    pub(crate) gaps: usize,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
const fn is_none(count: &usize) -> bool {
    *count == 0
}

/// Writes to fields of tools that are no drift, or may be none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LeftOut {
    /// Writes of autoscalers.
    pub(crate) autoscaled: u64,
    /// Writes that an Application's ignoreDifferences covers.
    pub(crate) ignored: u64,
    /// Writes that may be of the tool: they name nobody, or lie in a GAP.
    pub(crate) unknown: u64,
    /// Drifts beyond the number that is remembered.
    pub(crate) dropped: u64,
}
