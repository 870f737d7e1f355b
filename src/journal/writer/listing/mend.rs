//! Changes of single objects that a source missed although its watch went on: recorded without moving its position.

use rusqlite::{OptionalExtension, params};

use super::{Known, Reply, Result, Step, Transaction, Why, Work, sql};
use crate::core::model::{Observed, ResourceVersion, Unread};
use crate::journal::Missed;
use crate::journal::writer::desync::Place;

/// `recovering`: what is written are the missed changes of one object …
pub(super) const MENDED: i64 = 3;
/// … and the first of them follows a GAP of that object.
pub(super) const MENDED_BEHIND_GAP: i64 = 4;

impl Transaction<'_> {
    /// Completes the staging of the changes of one object that were missed. Those before the first one of them may be lost.
    pub(in crate::journal::writer) fn complete_mend(&mut self, id: i64, missed: &Missed, reply: Reply<()>) -> Result {
        if self.staged(id).given_up {
            self.later(&reply, ());
            return Ok(());
        }
        self.unstaged(id);
        if let Some((from, to)) = &missed.lost {
            self.gap_of_object(id, (&missed.namespace, &missed.name), from.clone(), to.clone())?;
        }
        let recovering = if missed.lost.is_some() { MENDED_BEHIND_GAP } else { MENDED };
        self.execute(
            "complete what an object lacks",
            "UPDATE source SET pending = '', pending_step = ?, recovering = ? WHERE id = ?",
            params![super::DELETIONS_TOLD, recovering, id],
        )?;
        self.add_job(id, Work::List(Step::Changes), Some(reply))
    }

    /// Ends the changes of one object: the position of the source is as it was.
    pub(super) fn end_mend(&mut self, id: i64, damaged: bool) -> Result {
        self.execute(
            "write what an object lacked",
            "UPDATE source SET pending = NULL, pending_step = 0, recovering = 0 WHERE id = ?",
            params![id],
        )?;
        // The source lists again, because what is damaged here is there.
        if damaged { self.reject_inconsistent(id) } else { Ok(()) }
    }

    /// Records a GAP where a missed change is older than what the log has of its object by now, and lacks it. What a source ignores
    /// is in no entry, and no GAP.
    pub(super) fn missed_too_late(&mut self, id: i64, known: &Known, object: &Observed) -> Result {
        if !self.source(id)?.ignore.is_empty() {
            return Ok(());
        }
        // Where entries are truncated or damaged nobody knows.
        if matches!(self.place_of(known, &object.version)?, Place::Lacking | Place::BeforeFirst) {
            let number = object.version.as_str().parse::<u64>().ok();
            let before = number.map(|number| ResourceVersion(number.saturating_sub(1).to_string()));
            let name = (object.namespace.as_str(), object.name.as_str());
            self.gap_of_object(id, name, before, object.version.clone())?;
        }
        Ok(())
    }

    fn gap_of_object(
        &mut self,
        id: i64,
        (namespace, name): (&str, &str),
        from: Option<ResourceVersion>,
        to: ResourceVersion,
    ) -> Result {
        let resource = self.source(id)?.resource;
        let last = self.known(resource, namespace, name)?.map_or(0, |known| known.last);
        let since = self.recorded_at(last)?;
        let of = Unread {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            uid: String::new(),
            version: to.clone(),
            digest: String::new(),
            why: Why::Audit,
        };
        self.gap_since(id, Why::Audit, (from, Some(to)), Some(&of), since)
    }

    /// Returns when an entry was recorded, in microseconds since 1970; 0 if it is not there any more.
    fn recorded_at(&self, seq: u64) -> Result<i64> {
        let time = self
            .conn
            .prepare_cached("SELECT time FROM entry WHERE seq = ?")
            .and_then(|mut select| select.query_row([seq], |row| row.get(0)).optional());
        time.map(|time| time.unwrap_or(0)).map_err(sql("read when an entry was recorded"))
    }
}
