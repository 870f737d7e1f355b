//! Comparison of an output with the journal's timeline. A journal that was restored from an older copy assigns seqs a second
//! time, in the same epoch until it detects that. So the last entry of an output is compared with the entry that the journal
//! has at that position: epoch, seq and entry. An output that has not answered decides nothing; its sink waits, and the entries
//! recorded in between stay available for the comparison.
//!
//! # Decision: a position names the entry
//!
//! Context: A journal that is restored from an older copy assigns numbers twice, in the same epoch until it detects that.
//! Decision: An output's position is epoch, seq and the entry (id and microsecond), and is compared with the journal at each
//! start and after each doubt. If they differ, delivery searches the last common entry and continues under a later epoch than
//! all in the output; entries that were recorded under a name that the output has are relabelled for that sink.
//! Cost: Sinks must find entries (`Sink::holds`, `Sink::epochs`).
//!
//! # Decision: a second writer halts the sink
//!
//! Context: After the first comparison a foreign entry in the output cannot be explained by a restore.
//! Decision: It means another writer, and the sink halts, because two journals that take over from each other would lose and
//! repeat entries in turn. A reload is a person's confirmation, and counts as a first comparison.
//! Cost: A person has to act.

use bytes::Bytes;

use super::machine::SinkOffset;
use crate::core::model::Seq;
use crate::core::wire::{self, EntryError};
use crate::journal::{JournalError, Reader, Relabeling};
use crate::sink::LogPosition;

/// Compares the last entry of an output, `held`, with the journal. Entries up to `given` were sent to it, or may have been.
pub(super) fn compare(
    reader: &mut Reader,
    relabelings: &[Relabeling],
    held: &LogPosition,
    given: Seq,
) -> Result<SinkOffset, JournalError> {
    if held.seq == Seq(0) {
        return Ok(SinkOffset::Upto(Seq(0)));
    }
    let (epochs, head) = (reader.epochs()?, reader.head()?);
    let place = format!("its output ends with entry {} of the epoch {}", held.seq, held.epoch);
    let Some(at) = epochs.iter().position(|(name, _)| *name == held.epoch) else {
        // Epochs only grow in an output: one that ends with an earlier one than it was given was restored.
        let given = (given > Seq(0)).then(|| named(reader, relabelings, given)).transpose()?;
        if given.is_some_and(|given| held.epoch < given.epoch) {
            return Ok(SinkOffset::Past);
        }
        return Ok(SinkOffset::Foreign(format!("{place}, which is none of this journal's")));
    };
    let is_past = at + 1 < epochs.len();
    let other = |what: &str| if is_past { SinkOffset::Past } else { SinkOffset::Foreign(format!("{place}, {what}")) };
    let end = epochs.get(at + 1).map_or(head.0, |(_, since)| since.0 - 1);
    // Also what the sink got under this name although it is of an earlier one.
    let is_relabelled = relabelings.iter().any(|relabeling| relabeling.epoch == held.epoch && relabeling.has(held.seq));
    if held.seq.0 > end {
        return Ok(other(&format!("where this journal ends with {head}")));
    }
    // An output that does not say which entry it is may have lost the row that would, and with it what came behind it.
    let same = held.entry.is_some() || held.seq <= given;
    let same = same
        && match reader.entry(held.seq) {
            Ok(Some(entry)) => {
                let line = if is_relabelled { wire::relabel(&entry.line, &held.epoch) } else { Ok(entry.line) };
                line.and_then(|line| LogPosition::of(&line)).map_or(true, |own| own.is(held))
            }
            // It is truncated, or damaged: nobody can say any more whether what was never given is the same.
            Ok(None) | Err(JournalError::Corrupt(_)) => held.seq <= given,
            Err(error) => return Err(error),
        };
    Ok(if same { SinkOffset::Upto(held.seq) } else { other("where this journal has another one") })
}

/// The place of an entry as the sink got it. Of one that is truncated or damaged only its epoch and seq are known.
pub(super) fn place_of(reader: &mut Reader, relabelings: &[Relabeling], seq: Seq) -> Result<LogPosition, JournalError> {
    match reader.entry(seq) {
        Ok(Some(entry)) => {
            if let Ok(place) = line_for(relabelings, seq, entry.line).and_then(|line| LogPosition::of(&line)) {
                return Ok(place);
            }
        }
        Ok(None) | Err(JournalError::Corrupt(_)) => {}
        Err(error) => return Err(error),
    }
    named(reader, relabelings, seq)
}

/// The epoch and seq of an entry as the sink got it.
pub(super) fn named(reader: &Reader, relabelings: &[Relabeling], seq: Seq) -> Result<LogPosition, JournalError> {
    let epochs = reader.epochs()?;
    let own = epochs.iter().rev().find(|(_, since)| *since <= seq).or(epochs.first()).map(|(name, _)| name);
    let epoch = relabelings.iter().find(|relabeling| relabeling.has(seq)).map(|relabeling| &relabeling.epoch).or(own);
    Ok(LogPosition { epoch: epoch.cloned().unwrap_or_default(), seq, entry: None })
}

/// The epoch of a journal that what follows in an output may go under, and the first seq that carries it; none where all
/// are earlier than what the output ends with.
pub(super) fn later(reader: &Reader, than: &str) -> Result<Option<(String, Seq)>, JournalError> {
    Ok(reader.epochs()?.into_iter().find(|(name, _)| name.as_str() > than))
}

/// The line of an entry as one sink gets it.
///
/// # Errors
/// Where it does not begin as an entry does.
pub(crate) fn line_for(relabelings: &[Relabeling], seq: Seq, line: Bytes) -> Result<Bytes, EntryError> {
    match relabelings.iter().find(|relabeling| relabeling.has(seq)) {
        Some(relabeling) => wire::relabel(&line, &relabeling.epoch),
        None => Ok(line),
    }
}
