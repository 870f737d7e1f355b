//! Metrics of the signing.

use prometheus_client::registry::Registry;

use super::{Float, Int, register, unix};
use crate::journal::{JournalError, Reader};
use crate::query::status::Status;

/// Registers how far the log is signed, and when each witness has cosigned.
pub(super) fn register_all(registry: &mut Registry, reader: &Reader, status: &Status) -> Result<(), JournalError> {
    let Some(tree) = reader.trees()?.pop().filter(|tree| !tree.is_closed) else { return Ok(()) };
    let (signed, at) = tree.signed;
    let seq: Int = register(registry, "evidence_signed_seq", "Seq of the last entry that a signed checkpoint covers");
    seq.get_or_create(&Vec::new()).set(i64::try_from(signed.0).unwrap_or(i64::MAX));
    let time: Float = register(registry, "evidence_signed_timestamp_seconds", "When the last checkpoint was signed");
    time.get_or_create(&Vec::new()).set(unix(at));
    let witnesses = status.evidence.iter().flat_map(|evidence| &evidence.witnesses);
    let witnesses: Vec<_> = witnesses
        .map(|witness| (vec![("witness", witness.name.clone()), ("url", witness.url.clone())], witness))
        .collect();
    if witnesses.is_empty() {
        return Ok(());
    }
    let name = "evidence_witness_signed_timestamp_seconds";
    let time: Float =
        register(registry, name, "When the witness cosigned last, as far as that is known since the start");
    let name = "evidence_witness_missed_checkpoints";
    let missed: Int = register(registry, name, "Checkpoints in a row that the witness has not cosigned");
    for (labels, witness) in witnesses {
        if let Some(at) = witness.signed_at {
            time.get_or_create(&labels).set(unix(at.as_microsecond()));
        }
        let times = witness.failing.as_ref().map_or(0, |failing| failing.times);
        missed.get_or_create(&labels).set(i64::from(times));
    }
    Ok(())
}
