//! Up to where a source is verified, and what ends its position: a desync.
//!
//! # Decision: an inexplicable change ends the watch
//!
//! Context: A version out of order, or the deletion of an unknown object, shows that something before it is missing.
//! Decision: It is not written. In the same transaction the source loses its position, with the reason, and queued changes of
//! it are dropped; the source recovers or lists. A version that the log has is a repeat.
//! Cost: A recovery or a list.

use rusqlite::{OptionalExtension, params};

use super::{Known, Transaction, sql};
use crate::core::model::{Observed, ResourceVersion, Why};
use crate::core::wire::Entry;
use crate::journal::JournalError;
use crate::journal::error::Result;

/// Place of a version among the entries of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// It has an entry, of this uid.
    Recorded(String),
    /// It is between two entries.
    Lacking,
    /// It is before the first one.
    BeforeFirst,
    /// It is before the oldest one that is left.
    Truncated,
    /// An entry on the way to it cannot be read.
    Damaged,
}

impl Transaction<'_> {
    pub(super) fn verified_at(&self, id: i64) -> Result<Option<(ResourceVersion, i64)>> {
        let row = self.conn.query_row("SELECT verified, verified_at FROM source WHERE id = ?", [id], |row| {
            Ok((row.get::<_, Option<String>>(0)?, row.get::<_, Option<i64>>(1)?))
        });
        let (version, at) = row.map_err(sql("read a source"))?;
        Ok(version.map(|version| (ResourceVersion(version), at.unwrap_or(0))))
    }

    /// Records that nothing of a source is missing up to this version.
    pub(super) fn set_verified(&mut self, id: i64, version: ResourceVersion, at: i64) -> Result {
        self.execute(
            "note what is verified",
            "UPDATE source SET verified = ?, verified_at = ? WHERE id = ?",
            params![version.as_str(), at, id],
        )?;
        if let Some(source) = self.touch(id) {
            source.verified = Some((version, at));
        }
        Ok(())
    }

    /// Records that nothing of a source was missing at this time, which is more than a quiet watch proves.
    pub(super) fn set_good(&mut self, id: i64, at: i64) {
        if let Some(source) = self.touch(id).filter(|source| source.lost.is_none() && source.good_at < at) {
            source.good_at = at;
            source.moved = true;
        }
    }

    /// The position of a source is lost: its next list declares why, also after a crash. A rollback explains whatever
    /// else seemed to be the reason.
    pub(super) fn mark_desynced(&mut self, id: i64, why: Why) -> Result {
        let Some(source) = self.touch(id) else { return Ok(()) };
        let why = source.lost.filter(|_| why != Why::Rollback).unwrap_or(why);
        source.lost = Some(why);
        source.last_good = source.checkpoint.resume.take().or_else(|| source.last_good.take());
        let last_good = source.last_good.clone();
        let what = "lose a position";
        self.execute(
            what,
            "UPDATE source SET resume = NULL, given_up = ?, pending_why = ? WHERE id = ?",
            params![last_good.as_ref().map(ResourceVersion::as_str), why.as_str(), id],
        )?;
        Ok(())
    }

    /// The watch brought what cannot be unless something before it is missing. Nothing more of it is taken: what the
    /// log lacks comes with a list, behind a gap (invariant 3).
    pub(super) fn reject_inconsistent(&mut self, id: i64) -> Result {
        self.mark_desynced(id, Why::Audit)?;
        self.set_inconsistent(id, true);
        Ok(())
    }

    /// Reports whether a change out of order is one that the log has, or one from before the log begins.
    pub(super) fn was_recorded(&mut self, known: Option<&Known>, object: &Observed) -> Result<bool> {
        let Some(known) = known else { return Ok(false) };
        if known.version == object.version {
            return Ok(known.uid == object.uid);
        }
        if known.version.is_before(&object.version) {
            return Ok(false);
        }
        Ok(match self.place_of(known, &object.version)? {
            Place::Recorded(uid) => uid == object.uid,
            // What retention has truncated is older than anything that a server mixes up.
            Place::BeforeFirst | Place::Truncated => true,
            // What is damaged proves nothing.
            Place::Lacking | Place::Damaged => false,
        })
    }

    /// Returns the place of a version among the entries of an object, which go on behind it.
    pub(super) fn place_of(&mut self, known: &Known, version: &ResourceVersion) -> Result<Place> {
        let mut seq = known.last;
        while let Some(previous) = self.entry_before(seq)? {
            let line = match self.line(seq) {
                Ok(line) => line,
                Err(JournalError::Corrupt(_)) => return Ok(Place::Damaged),
                Err(error) => return Err(error),
            };
            let Ok(entry) = Entry::parse(&line.bytes) else { return Ok(Place::Damaged) };
            let recorded = entry.version();
            if recorded == *version {
                return Ok(Place::Recorded(entry.uid.as_deref().unwrap_or_default().to_owned()));
            }
            if recorded.is_before(version) {
                return Ok(Place::Lacking);
            }
            if previous == 0 {
                return Ok(Place::BeforeFirst);
            }
            seq = previous;
        }
        Ok(Place::Truncated)
    }

    /// The seq of the entry of the same object before this one, 0 for none; `None` where there is no such entry.
    fn entry_before(&self, seq: u64) -> Result<Option<u64>> {
        self.conn
            .prepare_cached("SELECT previous FROM entry WHERE seq = ?")
            .and_then(|mut select| select.query_row([seq], |row| row.get(0)).optional())
            .map_err(sql("read an entry"))
    }
}
