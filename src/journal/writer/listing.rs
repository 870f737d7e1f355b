//! Lists: staged page by page, and written as the difference from what is known once the last page is in.
//!
//! Whatever may be long is a job: it is written in slices, each a transaction, and between two of them everybody else
//! gets a turn. Only what follows from the same source waits until the job is done, so that the order is kept. Each
//! slice leaves a state from which the next start goes on.
//!
//! # Decision: a list is staged on disk
//!
//! Context: Half a list must never be visible, and memory must not grow with the cluster.
//! Decision: Pages go to a table without readers. After the last page the list is marked complete in one transaction, and then
//! written in slices, in the order of versions. A crash before the mark drops the list, a crash after it resumes.
//! Cost: Each object is written twice.
//!
//! # Decision: a long operation is a job in slices
//!
//! Context: A list, the end of a resource or a narrower scope may take minutes of writing.
//! Decision: Each is written in slices of at most 500 objects. Between two slices the writer takes commands of others. Later
//! commands of the same source wait. A slice leaves a state that the next start resumes from, so SIGTERM waits for one slice.
//! Cost: States of unfinished jobs in the schema.

mod mend;
mod scope;
mod staged;
mod write;

use std::collections::VecDeque;

use rusqlite::params;

use mend::{MENDED, MENDED_BEHIND_GAP};

use super::queue::{Command, Reply};
use super::staging::{Staged, row_bytes};
use super::store::Frame;
use super::{Known, SILENT, Transaction, known_row, marks_json, marks_of, pointers_json, sql};
use crate::core::k8s::identity;
use crate::core::model::{Checkpoint, Evidence, Observed, Redacted, ResourceVersion, Why};
use crate::journal::error::Result;
use crate::journal::schema::OF_SOURCE;
use crate::journal::{Found, JournalError};

/// Objects that one slice looks at or writes.
const SLICE: usize = 500;
/// Compressed bytes of listed objects that one slice writes at most (and at least one object).
const SLICE_BYTES: u64 = 512 << 10;
/// `pending_step`: the gap is written.
const GAP_RECORDED: i64 = 1;
/// `pending_step`: the deletions are written too. What is staged is needed for nothing else from here on.
const DELETIONS_TOLD: i64 = 2;
/// `pending_step`: the same, and something of what was staged is damaged, so that the list is not all that there is.
const DAMAGED: i64 = 3;

/// `recovering`: what is written is a part of what was recovered …
const PART: i64 = 1;
/// … and the last part of it.
const LAST_PART: i64 = 2;

/// A long operation in slices.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Job {
    /// The source; 0 where it is of none.
    pub(super) source: i64,
    /// The plural of its resource; empty where it is of none.
    plural: String,
    pub(super) work: Work,
    /// The last daemon has left it.
    pub(super) recovered: bool,
    reply: Option<Reply<()>>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Work {
    /// Removes the staging of an unfinished list, before another one begins.
    Begin,
    List(Step),
    Gone(Step),
    /// Sources that are not configured any more, and whether the gap of the first of them is recorded.
    Narrow(VecDeque<i64>, bool),
}

/// Progress of a list, or of the end of a resource.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    /// First step: the gap is recorded next.
    Gap,
    /// Objects up to this namespace and name are looked at.
    Deletions(Option<(String, String)>),
    Changes,
    /// Removes the staged rows.
    Clear,
    End,
}

impl Transaction<'_> {
    /// Goes on with complete lists that a crash left half written, and drops those that were not complete.
    pub(super) fn recover(&mut self) -> Result {
        let what = "find unfinished lists";
        let found: Vec<(i64, bool, i64)> = {
            let mut select = self
                .conn
                .prepare(
                    "SELECT id, pending IS NOT NULL, pending_step FROM source WHERE pending IS NOT NULL
                     UNION SELECT DISTINCT l.source, 0, 0 FROM listing l JOIN source s ON s.id = l.source
                         WHERE s.pending IS NULL ORDER BY 1",
                )
                .map_err(sql(what))?;
            let rows = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).map_err(sql(what))?;
            rows.collect::<Result<_, _>>().map_err(sql(what))?
        };
        for (id, complete, recorded) in found {
            self.load_source(id)?;
            let work = match (complete, recorded) {
                (false, _) => {
                    self.find_staged(id)?;
                    Work::Begin
                }
                (true, DELETIONS_TOLD | DAMAGED) => Work::List(Step::Changes),
                (true, _) => Work::List(Step::Gap),
            };
            let job = self.job(id, work, None)?;
            self.begin_job(Job { recovered: true, ..job });
        }
        Ok(())
    }

    fn job(&self, source: i64, work: Work, reply: Option<Reply<()>>) -> Result<Job> {
        let plural = if source == 0 { String::new() } else { self.source(source)?.facts.plural.clone() };
        Ok(Job { source, plural, work, recovered: false, reply })
    }

    pub(super) fn add_job(&mut self, source: i64, work: Work, reply: Option<Reply<()>>) -> Result {
        let job = self.job(source, work, reply)?;
        self.begin_job(job);
        Ok(())
    }

    /// Reports whether a command has to wait for the end of a long operation.
    pub(super) fn must_wait(&self, command: &Command) -> bool {
        if let Some(id) = command.moves() {
            return self.jobs().any(|job| job.source == id);
        }
        if let Command::Register(spec, _) = command {
            // It must know, or must not move, what the job is about to write.
            let concerns = |job: &Job| job.plural == spec.resource.plural && !matches!(job.work, Work::Begin);
            return self.jobs().any(|job| job.source == 0 || concerns(job));
        }
        // Before the first source there is nothing to wait for but what the last daemon left, which begins with it.
        matches!(command, Command::Narrow(_) | Command::Flush(_))
            && self.jobs().next().is_some_and(|job| self.changes.started || !job.recovered)
    }

    /// One slice of the first job. Says whether it is done.
    pub(super) fn step(&mut self) -> Result<bool> {
        let committed = self.committed;
        let Some(job) = committed.jobs.front() else { return Ok(false) };
        self.begin()?;
        let next = match &job.work {
            Work::Begin => (!self.clear(job.source)?).then_some(Work::Begin),
            Work::List(step) => self.step_of_list(job, step)?.map(Work::List),
            Work::Gone(step) => self.step_of_gone(job.source, step)?.map(Work::Gone),
            Work::Narrow(retired, recorded) => self.step_of_narrowing(retired, *recorded)?,
        };
        let done = next.is_none();
        if done && matches!(job.work, Work::Begin | Work::Gone(_)) {
            self.unstaged(job.source);
        }
        if let Some(reply) = job.reply.as_ref().filter(|_| done) {
            self.later(reply, ());
        }
        self.step_job(next);
        Ok(done)
    }

    /// Returns the step after this one of a list.
    fn step_of_list(&mut self, job: &Job, step: &Step) -> Result<Option<Step>> {
        let id = job.source;
        Ok(Some(match step {
            Step::Gap => {
                self.record_gap(id)?;
                Step::Deletions(None)
            }
            Step::Deletions(after) => match self.list_lacks(id, after.as_ref())? {
                Some(upto) => Step::Deletions(Some(upto)),
                None => {
                    self.execute(
                        "write a list",
                        "UPDATE source SET pending_step = ? WHERE id = ?",
                        params![DELETIONS_TOLD, id],
                    )?;
                    Step::Changes
                }
            },
            Step::Changes => {
                // What was staged may have been redacted by other rules than those in force.
                let older = job.recovered || self.committed.redacted_anew;
                if self.write_changes(id, older)? { Step::Changes } else { Step::Clear }
            }
            Step::Clear => {
                if self.clear(id)? {
                    Step::End
                } else {
                    Step::Clear
                }
            }
            Step::End => {
                self.end_list(id)?;
                return Ok(None);
            }
        }))
    }

    /// The list that has begun proves nothing of the time after its version: what is known then is as good as before.
    pub(super) fn begin_list_of_past(&mut self, id: i64) -> Result {
        let good = self.source(id)?.good_at;
        if good > 0 { self.begin_list_as_of(id, good) } else { Ok(()) }
    }

    /// The list that has begun proves nothing of the time after this one, microseconds since 1970.
    pub(super) fn begin_list_as_of(&mut self, id: i64, at: i64) -> Result {
        self.execute("begin a list", "UPDATE source SET listed_at = ? WHERE id = ?", params![at, id]).map(drop)
    }

    /// A list begins: what an earlier, unfinished one has staged goes first.
    pub(super) fn begin_list(&mut self, id: i64) -> Result {
        self.execute("begin a list", "UPDATE source SET listed_at = ? WHERE id = ?", params![self.at, id])?;
        let staged = self.staged(id);
        self.set_staged(id, Staged { given_up: false, ..staged });
        self.execute("begin a list", "DELETE FROM unread WHERE source = ? AND staged = 1", params![id])?;
        let staged: bool = self
            .conn
            .prepare_cached("SELECT EXISTS (SELECT 1 FROM listing WHERE source = ?)")
            .and_then(|mut select| select.query_row([id], |row| row.get(0)))
            .map_err(sql("drop an unfinished list"))?;
        if staged {
            return self.add_job(id, Work::Begin, None);
        }
        // Objects without a name took room and no row.
        self.unstaged(id);
        Ok(())
    }

    /// Stages what was recovered of the API server's history, until a whole part of it is there. What is gone has no
    /// body: its last state is known by then.
    pub(super) fn stage_found(&mut self, id: i64, found: &Found) -> Result {
        if self.staged(id).given_up {
            return Ok(());
        }
        match found {
            Found::Version(object) => {
                let body = self.codec.compress(None, &object.body.bytes);
                self.keep_staged(id, object, Some(&body), false)
            }
            Found::Deletion(object) => self.keep_staged(id, object, Some(&[]), true),
        }
    }

    /// Completes the staging of the changes up to `version` since the position was lost, or since the previous part. Unless it
    /// is the last part, the position stays lost from there on.
    pub(super) fn complete_part(&mut self, id: i64, version: &ResourceVersion, last: bool, reply: Reply<()>) -> Result {
        if self.staged(id).given_up {
            self.later(&reply, ());
            return Ok(());
        }
        self.unstaged(id);
        self.execute(
            "complete what is recovered",
            "UPDATE source SET pending = ?, pending_step = ?, recovering = ? WHERE id = ?",
            params![version.as_str(), DELETIONS_TOLD, if last { LAST_PART } else { PART }, id],
        )?;
        self.add_job(id, Work::List(Step::Changes), Some(reply))
    }

    /// Drops a slice of what is staged. Says whether that was the last.
    fn clear(&self, id: i64) -> Result<bool> {
        let dropped = self.execute(
            "drop what is staged",
            "DELETE FROM listing WHERE id IN (SELECT id FROM listing WHERE source = ? LIMIT ?)",
            params![id, SLICE],
        )?;
        Ok(dropped < SLICE)
    }

    /// Reports whether the rows of a list of this source are being removed.
    pub(super) fn begins_list(&self, id: i64) -> bool {
        self.jobs().any(|job| job.source == id && job.work == Work::Begin)
    }

    /// Removes what is staged of a list of this source, in slices.
    pub(super) fn clear_list(&mut self, id: i64) -> Result {
        self.add_job(id, Work::Begin, None)
    }

    /// Stages one listed object until its list is complete.
    pub(super) fn stage(&mut self, id: i64, object: &Observed) -> Result {
        if self.staged(id).given_up {
            return Ok(());
        }
        let source = self.source(id)?;
        // After a rollback the cluster may have given the same version to something else.
        let by_version = source.lost != Some(Why::Rollback);
        let known = self.known(source.resource, &object.namespace, &object.name)?;
        let same = by_version
            && known.is_some_and(|known| known.present && known.uid == object.uid && known.version == object.version);
        let body = (!same).then(|| self.codec.compress(None, &object.body.bytes));
        self.keep_staged(id, object, body.as_deref(), false)
    }

    pub(super) fn keep_staged(&mut self, id: i64, object: &Observed, body: Option<&[u8]>, gone: bool) -> Result {
        if !self.take_room(id, row_bytes(object, body))? {
            return Ok(());
        }
        self.execute(
            "stage an object",
            "INSERT INTO listing (source, namespace, name, uid, version, body, marks, pointers, gone)
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            params![
                id,
                object.namespace,
                object.name,
                object.uid,
                object.version.as_str(),
                body,
                marks_json(&object.body),
                pointers_json(&object.body),
                gone
            ],
        )?;
        Ok(())
    }

    pub(super) fn complete_list(
        &mut self,
        id: i64,
        version: &ResourceVersion,
        why: Option<Why>,
        reply: Reply<()>,
    ) -> Result {
        if self.staged(id).given_up {
            // Without all of its rows it would delete what it had.
            self.later(&reply, ());
            return Ok(());
        }
        self.unstaged(id);
        let source = self.source(id)?;
        // What the server compacted while nothing was read for want of room is missing for that reason.
        let paused = why == Some(Why::Expired) && source.good_at < self.quota.paused_until;
        let why = if paused { Some(Why::Paused) } else { why };
        // Kept with the list, so that a crash in the middle goes on in the same way.
        let silent = source.silent.then_some(SILENT);
        self.execute(
            "complete a list",
            "UPDATE source SET pending = ?, pending_why = ?, pending_step = 0 WHERE id = ?",
            params![version.as_str(), why.map(Why::as_str).or(silent), id],
        )?;
        self.add_job(id, Work::List(Step::Gap), Some(reply))
    }

    /// The version of the complete list, and what it is to declare.
    fn pending(&self, id: i64) -> Result<(ResourceVersion, Option<String>, i64)> {
        self.conn
            .prepare_cached("SELECT pending, pending_why, pending_step FROM source WHERE id = ?")
            .and_then(|mut select| {
                select.query_row([id], |row| Ok((ResourceVersion(row.get(0)?), row.get(1)?, row.get(2)?)))
            })
            .map_err(sql("write a list"))
    }

    /// Writes deletions as [`Transaction::write_deletions`] does, of a complete list. If the list has an object without
    /// identity, it may be any of those that it seems to lack, so no deletion is recorded.
    fn list_lacks(&mut self, id: i64, after: Option<&(String, String)>) -> Result<Option<(String, String)>> {
        if self.has_nameless(id)? { Ok(None) } else { self.write_deletions(id, after) }
    }

    /// Invariant 3: the gap comes before what follows it.
    fn record_gap(&mut self, id: i64) -> Result {
        let (version, why, recorded) = self.pending(id)?;
        if recorded >= GAP_RECORDED {
            return Ok(());
        }
        let why = why.as_deref().and_then(Why::parse);
        if let Some(why) = why {
            let source = self.source(id)?;
            // What contradicts the journal may have been missing for longer than since what came last.
            let from = if why == Why::Audit {
                source.verified.as_ref().map(|(version, _)| version.clone())
            } else {
                self.last_good(id)?
            };
            self.gap(id, why, from, Some(version.clone()), None)?;
        }
        self.record_unread(id, why, &version)?;
        // In the same transaction, so that a crash does not record them again.
        self.execute("write a list", "UPDATE source SET pending_step = ? WHERE id = ?", params![GAP_RECORDED, id])?;
        Ok(())
    }

    fn recovering(&self, id: i64) -> Result<i64> {
        self.conn
            .prepare_cached("SELECT recovering FROM source WHERE id = ?")
            .and_then(|mut select| select.query_row([id], |row| row.get(0)))
            .map_err(sql("read a source"))
    }

    fn end_list(&mut self, id: i64) -> Result {
        let (version, _, recorded) = self.pending(id)?;
        if recorded == DAMAGED {
            if self.recovering(id)? >= MENDED {
                return self.end_mend(id, true);
            }
            return self.end_damaged_list(id, version);
        }
        // What has changed since the list began is not in it.
        let at: i64 = self
            .conn
            .query_row("SELECT listed_at FROM source WHERE id = ?", [id], |row| row.get(0))
            .map_err(sql("write a list"))?;
        match self.recovering(id)? {
            PART => return self.end_part(id, version, at),
            MENDED | MENDED_BEHIND_GAP => return self.end_mend(id, false),
            _ => {}
        }
        self.execute(
            "write a list",
            "UPDATE source SET pending = NULL, pending_why = NULL, pending_step = 0, scope_changed = 0, given_up = NULL,
                 recovering = 0, recovered_since = 0
             WHERE id = ?",
            params![id],
        )?;
        if let Some(source) = self.touch(id) {
            source.checkpoint = Checkpoint::at(version.clone());
            source.good_at = at;
            source.behind = Some(at);
            source.moved = true;
            source.lost = None;
            source.last_good = None;
        }
        self.set_inconsistent(id, false);
        self.set_verified(id, version, at)
    }

    /// Ends a part: nothing is missing up to its version, and changes after it may be.
    fn end_part(&mut self, id: i64, version: ResourceVersion, at: i64) -> Result {
        self.execute(
            "write what is recovered",
            "UPDATE source SET pending = NULL, pending_step = 0, recovering = 0,
                 given_up = CASE WHEN resume IS NULL THEN ?1 ELSE given_up END
             WHERE id = ?2",
            params![version.as_str(), id],
        )?;
        if let Some(source) = self.touch(id) {
            // Behind a list of an older version the position is known all the time.
            let Checkpoint { resume, applied } = &mut source.checkpoint;
            let position = if resume.is_some() { resume } else { &mut source.last_good };
            *position = Some(version.clone());
            *applied = Some(version.clone());
            source.moved = true;
        }
        self.set_verified(id, version, at)
    }

    /// Ends a list of which some rows were damaged: it verifies nothing, and the source has to list again.
    fn end_damaged_list(&mut self, id: i64, version: ResourceVersion) -> Result {
        self.execute(
            "write a list",
            "UPDATE source SET pending = NULL, pending_step = 0, recovering = 0 WHERE id = ?",
            params![id],
        )?;
        if let Some(source) = self.touch(id) {
            source.checkpoint.applied = Some(version);
            source.moved = true;
        }
        self.reject_inconsistent(id)
    }
}
