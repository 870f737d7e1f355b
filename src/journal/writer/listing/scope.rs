//! Narrower scopes, and resources that are gone: their objects leave in slices.

use rusqlite::params;

use super::{Known, OF_SOURCE, Reply, Result, SLICE, Step, Transaction, VecDeque, Why, Work, known_row, sql};

impl Transaction<'_> {
    pub(super) fn step_of_narrowing(&mut self, retired: &VecDeque<i64>, recorded: bool) -> Result<Option<Work>> {
        let Some(id) = retired.front() else { return Ok(None) };
        let left = self.narrow_slice(*id, recorded)?;
        let mut retired = retired.clone();
        if !left {
            retired.pop_front();
        }
        Ok((!retired.is_empty()).then_some(Work::Narrow(retired, left)))
    }

    /// Returns the step after this one of the end of a resource.
    pub(super) fn step_of_gone(&mut self, id: i64, step: &Step) -> Result<Option<Step>> {
        // The end is of the same transaction as the last of it, so that a crash does not record the gap again.
        let after = match step {
            Step::Clear if !self.clear(id)? => return Ok(Some(Step::Clear)),
            Step::Deletions(after) => Some(after.as_ref()),
            Step::Gap | Step::Changes | Step::Clear | Step::End => self.begin_gone(id)?.then_some(None),
        };
        let upto = match after {
            Some(after) => self.write_deletions(id, after)?,
            None => None,
        };
        if upto.is_none() {
            self.end_gone(id)?;
            return Ok(None);
        }
        Ok(Some(Step::Deletions(upto)))
    }

    /// Records the end of what the configuration does not watch any more, where it goes on watching the resource
    /// elsewhere: to the log, an object that left the scope is gone.
    pub(in crate::journal::writer) fn narrow(&mut self, reply: Reply<()>) -> Result {
        let what = "find what is not watched any more";
        self.begin()?;
        let retired: VecDeque<i64> = {
            let mut select = self
                .conn
                .prepare(
                    "SELECT id FROM source s WHERE active = 0 AND (resume IS NOT NULL OR scope_changed = 1 OR pending_why IS NOT NULL)
                     AND EXISTS (SELECT 1 FROM source o WHERE o.resource = s.resource AND o.active = 1)",
                )
                .map_err(sql(what))?;
            let rows = select.query_map([], |row| row.get(0)).map_err(sql(what))?;
            rows.collect::<Result<_, _>>().map_err(sql(what))?
        };
        self.add_job(0, Work::Narrow(retired, false), Some(reply))
    }

    /// Says whether there may be more.
    pub(super) fn narrow_slice(&mut self, id: i64, recorded: bool) -> Result<bool> {
        let what = "find what is not watched any more";
        let left: Vec<(Known, String, String)> = {
            let mut select = self
                .conn
                .prepare_cached(&format!(
                    "SELECT o.id, o.uid, o.version, o.present, o.last, o.base, o.state IS NOT NULL, o.marks, o.namespace, o.name
                     FROM source s JOIN object o ON {OF_SOURCE} AND o.present = 1
                     WHERE s.id = ?1 AND NOT EXISTS (SELECT 1 FROM source a WHERE a.resource = s.resource AND a.active = 1
                         AND a.namespace IN ('', o.namespace))
                     LIMIT ?2"
                ))
                .map_err(sql(what))?;
            let rows = select
                .query_map(params![id, SLICE], |row| Ok((known_row(row)?, row.get(8)?, row.get(9)?)))
                .map_err(sql(what))?;
            rows.collect::<Result<_, _>>().map_err(sql(what))?
        };
        if left.is_empty() {
            return Ok(false);
        }
        if self.find_source(id).is_none() {
            self.load_source(id)?;
        }
        if !recorded {
            let from = self.last_good(id)?;
            self.gap(id, Why::Scope, from, None, None)?;
        }
        for (known, namespace, name) in &left {
            self.vanished(id, known, namespace, name)?;
        }
        // Of the same transaction, so that a crash does not record the gap again for nothing.
        self.execute(what, "UPDATE source SET resume = NULL, scope_changed = 1 WHERE id = ?", params![id])?;
        Ok(true)
    }

    /// The resource is not served any more.
    pub(in crate::journal::writer) fn gone(&mut self, id: i64, reply: Reply<()>) -> Result {
        self.add_job(id, Work::Gone(Step::Clear), Some(reply))
    }

    /// Says whether there is anything that is gone with it.
    pub(super) fn begin_gone(&mut self, id: i64) -> Result<bool> {
        // What could not be recorded goes with the rest.
        self.execute("forget what cannot be recorded", "DELETE FROM unread WHERE source = ?", params![id])?;
        let (known, listed, from): (bool, bool, _) = {
            let source = self.source(id)?;
            let known = self
                .conn
                .query_row(
                    &format!("SELECT EXISTS (SELECT 1 FROM source s JOIN object o ON {OF_SOURCE} AND o.present = 1 WHERE s.id = ?)"),
                    [id],
                    |row| row.get(0),
                )
                .map_err(sql("look objects up"))?;
            (known, source.checkpoint.resume.is_some() || source.lost.is_some(), self.last_good(id)?)
        };
        // Also without objects something may have come and gone between our last look and the end.
        if known || listed {
            self.gap(id, Why::Scope, from, None, None)?;
        }
        Ok(known)
    }

    pub(super) fn end_gone(&mut self, id: i64) -> Result {
        if let Some(source) = self.touch(id) {
            source.checkpoint.resume = None;
            // What a list would have declared is recorded.
            (source.lost, source.last_good) = (None, None);
            source.moved = true;
        }
        self.set_inconsistent(id, false);
        self.execute("forget what cannot be recorded", "DELETE FROM unread WHERE source = ?", params![id])?;
        self.execute(
            "note a source's state",
            "UPDATE source SET state = 'gone', detail = '', pending_why = NULL, given_up = NULL WHERE id = ?",
            params![id],
        )?;
        Ok(())
    }
}
