//! The times that entries say, against the times of the commits.

use std::collections::BTreeMap;

use decklog::sim;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;

use super::judges::{Histories, Log};

/// The newest version is read every ten seconds, and an answer may take five: what is late by less than that may go unnoticed.
pub(super) const UNNOTICED: SignedDuration = SignedDuration::from_secs(15);
/// Difference of journaling and stamp from which on the stamp counts.
const AT_ONCE: SignedDuration = SignedDuration::from_secs(2);
/// The part of a second that a stamp leaves out.
const SECOND: SignedDuration = SignedDuration::from_secs(1);

/// Longer than any absence, and shorter than a jump of the clock.
const JUMP: SignedDuration = SignedDuration::from_hours(24 * 300);

/// Times of an entry.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Times {
    time: Timestamp,
    happened: Option<Timestamp>,
    happened_between: Option<[Timestamp; 2]>,
}

impl Times {
    /// Returns the earliest and the latest time at which the change may have happened.
    fn span(&self) -> (Timestamp, Timestamp) {
        match (self.happened_between, self.happened) {
            // The news before may have been late without notice, and begin the bounds.
            (Some([earliest, latest]), _) => (earliest - (UNNOTICED - AT_ONCE), latest),
            (None, Some(stamp)) if self.time.duration_since(stamp) >= AT_ONCE => (stamp, stamp + SECOND),
            _ => (self.time - UNNOTICED, self.time),
        }
    }
}

/// Each change happened in the time that its entry says.
pub fn times_hold(log: &Log, histories: &Histories) -> Vec<String> {
    if histories.before.is_some() {
        return Vec::new();
    }
    let mut commits: BTreeMap<(&str, u64), &sim::Row> = BTreeMap::new();
    let mut deletions: BTreeMap<&str, &sim::Row> = BTreeMap::new();
    for row in histories.all() {
        commits.insert((&row.uid, row.revision), row);
        if row.kind == sim::Kind::Deleted {
            deletions.insert(&row.uid, row);
        }
    }
    let mut problems = Vec::new();
    for (entry, line) in log.entries.iter().zip(&log.lines) {
        if entry.gap.is_some() || entry.evidence == "listed" {
            continue;
        }
        // Without a version of its own the deletion is that of the object. What a selector loses is deleted by a change.
        let is_unseen = entry.kind == "DELETED" && entry.evidence == "inferred";
        let uid = entry.uid.as_str();
        let row = if is_unseen { deletions.get(uid) } else { commits.get(&(uid, entry.rv())) };
        let times: Times = serde_json::from_str(line).expect("an entry has its times");
        let Some(row) = row.filter(|row| row.time <= times.time) else { continue };
        // The clock was set forward in between, and no time of both is comparable.
        if times.time.duration_since(row.time) > JUMP {
            continue;
        }
        // The entry says when it was made, and the version is that of a later change: one that nobody saw, or that made it match.
        if entry.kind == "ADDED" && row.kind != sim::Kind::Added {
            continue;
        }
        let (earliest, latest) = times.span();
        let holds = |row: &sim::Row| (earliest..=latest).contains(&row.time);
        // A difference is of several changes, and its stamp is of the last one that has any.
        let is_one_of_several = entry.evidence == "inferred" && entry.kind == "MODIFIED" && {
            let several = commits.range((uid, 0)..=(uid, entry.rv()));
            several.into_iter().any(|(_, row)| holds(row))
        };
        if !holds(row) && !is_one_of_several {
            problems.push(format!(
                "{entry} says {earliest} to {latest} (journaled at {}), and was committed at {} as {}",
                times.time, row.time, row.revision
            ));
        }
    }
    problems
}
