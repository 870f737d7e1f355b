//! Alarms of the signing: a place that lacks the newest checkpoint, and a witness that cosigns none.

use jiff::SignedDuration;

use super::{Alarm, EVIDENCE_FAILING, Status, WITNESS_SILENT};
use crate::query::status::{Trouble, WitnessStatus};

/// A witness is restarted in less time.
const SILENT_LIMIT: SignedDuration = SignedDuration::from_mins(3);
/// Checkpoints in a row that a witness may miss without an alarm.
const MISSED_MAX: u32 = 2;

/// Returns the alarms of the signing.
pub(super) fn of(status: &Status) -> Vec<Alarm> {
    let Some(evidence) = &status.evidence else { return Vec::new() };
    let is_silent =
        |trouble: &&Trouble| trouble.times > MISSED_MAX && status.time.duration_since(trouble.since) >= SILENT_LIMIT;
    let silent = evidence
        .witnesses
        .iter()
        .filter_map(|witness| Some(silent(witness, witness.failing.as_ref().filter(is_silent)?)));
    evidence.failing.as_ref().map(failing).into_iter().chain(silent).collect()
}

/// Alarm for evidence that is not signed, or lacks in a place.
fn failing(trouble: &Trouble) -> Alarm {
    Alarm {
        alarm: EVIDENCE_FAILING,
        about: String::new(),
        since: Some(trouble.since),
        what: format!("a place lacks the newest checkpoint, so newer entries cannot be proved there yet: {}", trouble.why),
        remedy: "do what it says; decklog tries again each minute, and the next checkpoint covers all that was logged meanwhile"
            .to_owned(),
    }
}

/// Alarm for a witness that cosigns nothing.
fn silent(WitnessStatus { name, url, .. }: &WitnessStatus, trouble: &Trouble) -> Alarm {
    Alarm {
        alarm: WITNESS_SILENT,
        about: name.clone(),
        since: Some(trouble.since),
        what: format!(
            "the witness {name} at {url} has not cosigned the last {} checkpoints, which go out without it: {}",
            trouble.times, trouble.why
        ),
        remedy: "do what it says, or ask those who run the witness; decklog asks it again with each checkpoint, and its next cosignature \
                 covers all that was logged meanwhile"
            .to_owned(),
    }
}
