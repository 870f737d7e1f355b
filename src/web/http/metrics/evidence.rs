//! Metrics of the signing.

use prometheus_client::registry::Registry;

use super::{Float, Int, register, unix};
use crate::journal::{JournalError, Reader};

/// Registers how far the log is signed.
pub(super) fn register_all(registry: &mut Registry, reader: &Reader) -> Result<(), JournalError> {
    let Some(tree) = reader.trees()?.pop().filter(|tree| !tree.is_closed) else { return Ok(()) };
    let (signed, at) = tree.signed;
    let seq: Int = register(registry, "evidence_signed_seq", "Seq of the last entry that a signed checkpoint covers");
    seq.get_or_create(&Vec::new()).set(i64::try_from(signed.0).unwrap_or(i64::MAX));
    let time: Float = register(registry, "evidence_signed_timestamp_seconds", "When the last checkpoint was signed");
    time.get_or_create(&Vec::new()).set(unix(at));
    Ok(())
}
