//! Progress of the signing.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Trouble, timestamp};
use crate::core::model::Seq;
use crate::journal::{JournalError, Reader, TreeRow};

/// Signed checkpoints over the log.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct EvidenceStatus {
    /// The first entry that the tree of this epoch covers.
    pub first: Seq,
    /// The last entry that is signed; absent while none is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signed: Option<Seq>,
    /// Time of the last checkpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signed_at: Option<Timestamp>,
    /// Set while nothing is signed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failing: Option<Trouble>,
    /// Witnesses that are asked, in the order of the configuration.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub witnesses: Vec<WitnessStatus>,
}

/// A witness that is asked to cosign each checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WitnessStatus {
    /// Name in its key.
    pub name: String,
    /// Its URL.
    pub url: String,
    /// Time at which it cosigned last, as it says; absent where that was before the daemon began and not the last checkpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signed_at: Option<Timestamp>,
    /// Set while it does not cosign: since when, why, and for how many checkpoints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failing: Option<Trouble>,
}

/// Returns the progress of the tree that grows; none without one.
pub(super) fn evidence(
    reader: &Reader,
    failing: Option<Trouble>,
    witnesses: Vec<WitnessStatus>,
) -> Result<Option<EvidenceStatus>, JournalError> {
    let row = reader.trees()?.pop().filter(|row| !row.is_closed);
    Ok(row.map(|TreeRow { first, signed: (signed, at), .. }| EvidenceStatus {
        first,
        signed: Some(signed).filter(|signed| *signed >= first),
        signed_at: timestamp(at),
        failing,
        witnesses,
    }))
}
