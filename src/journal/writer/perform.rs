//! Execution of each command: decided and recorded in the open transaction.

use std::sync::Arc;

use rusqlite::{ToSql, params};

use super::{Command, OfSink, OfSource, SETTLE, SETTLED, Transaction, micros};
use crate::core::model::Seq;
use crate::core::runtime;
use crate::journal::error::Result;
use crate::journal::state::local_fact;
use crate::journal::{Audit, MESSAGES, Message, Progress, SourceId, outline};

impl Transaction<'_> {
    pub(super) fn perform(&mut self, command: &Command) -> Result {
        match command {
            Command::Source(SourceId(id), command) => self.perform_of_source(*id, command)?,
            Command::Sink(name, command) => {
                self.begin()?;
                self.perform_of_sink(name, command)?;
            }
            Command::Register(spec, reply) => {
                self.begin()?;
                let memory = self.register(spec)?;
                self.later(reply, memory);
            }
            Command::Cluster(cluster, reply) => {
                let result = self.join_cluster(cluster.clone())?;
                self.later(reply, result);
            }
            Command::Redaction(redactor) => {
                self.set_redaction(Arc::clone(redactor))?;
            }
            Command::Narrow(reply) => self.narrow(reply.clone())?,
            Command::Resources(resources) => {
                self.begin()?;
                for resource in resources {
                    self.resource_id(resource)?;
                }
            }
            Command::Requests(read) => {
                self.begin()?;
                self.note_requests(read.as_ref())?;
            }
            Command::AuditLog(command) => {
                self.begin()?;
                self.perform_of_audit_log(command)?;
            }
            Command::Evidence(command) => {
                self.begin()?;
                self.perform_of_evidence(command)?;
            }
            Command::Outline(part, data) => {
                // What was truncated meanwhile has none any more.
                if *part >= outline::part_of(self.changes.log_start) {
                    self.begin()?;
                    self.execute(
                        "keep an outline",
                        "INSERT OR REPLACE INTO outline VALUES (?, ?)",
                        params![part, data],
                    )?;
                }
            }
            Command::Settle(settled, reply) => {
                self.begin()?;
                for (seq, time) in &settled.entries {
                    self.execute(SETTLE, SETTLED, params![settled.sink, seq.0, time])?;
                }
                self.later(reply, ());
            }
            Command::Epoch(after, reply) => {
                self.begin()?;
                // Two sinks may find out the same at the same time.
                if after.as_deref().is_none_or(|after| after >= self.epoch()) {
                    self.begin_epoch(after.as_deref())?;
                }
                let epoch = self.epoch().to_owned();
                self.later(reply, epoch);
            }
            Command::Mark(marks, reply) => {
                self.begin()?;
                super::note_mark(self.conn, marks)?;
                self.later(reply, ());
            }
            Command::Flush(reply) => {
                if self.has_moved() {
                    self.begin()?;
                }
                self.later(reply, ());
            }
            Command::Bounds(_) => {}
            Command::Ping(reply) | Command::Await(_, _, reply) => self.later(reply, ()),
            Command::Lead(reply) => self.later(reply, Ok(())),
        }
        Ok(())
    }

    fn perform_of_source(&mut self, id: i64, command: &OfSource) -> Result {
        // A bookmark goes to the disk with the next transaction that anything else begins.
        if !matches!(command, OfSource::Bookmark(_) | OfSource::Behind(_) | OfSource::Dated(_) | OfSource::CaughtUp) {
            self.begin()?;
        }
        // What it brings stands behind something that a standby could not keep: nothing counts until it is registered again.
        if self.is_shared()
            && self.find_source(id).is_none()
            && matches!(
                command,
                OfSource::Changes(_) | OfSource::Unread(..) | OfSource::Unreadable(_) | OfSource::Bookmark(_)
            )
        {
            if let OfSource::Changes(changes) = command {
                self.take(id, changes.len());
            }
            return Ok(());
        }
        match command {
            OfSource::Changes(changes) => {
                self.take(id, changes.len());
                changes.iter().try_for_each(|change| self.change(id, change))
            }
            OfSource::Unread(verb, object) => self.unread_change(id, *verb, object),
            OfSource::Unreadable(object) => self.unreadable(id, object),
            OfSource::Bookmark(version) => {
                self.bookmark(id, version);
                Ok(())
            }
            OfSource::Behind(since) => {
                self.fall_behind(id, *since);
                Ok(())
            }
            OfSource::Dated(dates) => {
                self.take_dates(id, dates);
                Ok(())
            }
            OfSource::CaughtUp => {
                self.catch_up(id);
                Ok(())
            }
            OfSource::ListBegin => self.begin_list(id),
            OfSource::ListPast => self.begin_list_of_past(id),
            OfSource::ListAsOf(at) => self.begin_list_as_of(id, *at),
            OfSource::ListPage(objects) => objects.iter().try_for_each(|object| self.stage(id, object)),
            OfSource::ListUnread(objects) => objects.iter().try_for_each(|object| self.stage_unread(id, object)),
            OfSource::ListDone(version, why, reply) => self.complete_list(id, version, *why, reply.clone()),
            OfSource::Found(found) => found.iter().try_for_each(|found| self.stage_found(id, found)),
            OfSource::PartDone(version, last, reply) => self.complete_part(id, version, *last, reply.clone()),
            OfSource::Mended(missed, reply) => self.complete_mend(id, missed, reply.clone()),
            OfSource::Gone(reply) => self.gone(id, reply.clone()),
            OfSource::MarkDesynced(why) => self.mark_desynced(id, *why),
            OfSource::Audited(audit) => self.note_audit(id, audit),
            OfSource::Report(state) => self.report("source", "id", &id, state.word(), &state.detail()),
            OfSource::Retire => {
                self.execute("retire a source", "UPDATE source SET active = 0 WHERE id = ?", params![id]).map(drop)
            }
        }
    }

    fn perform_of_sink(&mut self, name: &str, command: &OfSink) -> Result {
        match command {
            OfSink::Register(kind, start, reply) => {
                let cursor = self.register_sink(name, kind, *start)?;
                self.later(reply, cursor);
            }
            OfSink::Acknowledge(Progress { upto, written, local, messages, over }, reply) => {
                if let Some((machine, delivered)) = local {
                    let fact = local_fact(name, machine);
                    let values = params![fact, delivered.0.to_string()];
                    self.execute(
                        "note an output of this machine",
                        "INSERT OR REPLACE INTO meta VALUES (?, ?)",
                        values,
                    )?;
                }
                self.execute(
                    "move a cursor",
                    // Invariant 5: a cursor only grows.
                    "UPDATE sink SET cursor = max(cursor, ?1), written = max(written, ?2),
                     delivered_at = CASE WHEN ?2 > written THEN ?3 ELSE delivered_at END WHERE name = ?4",
                    params![upto.0, written.0, micros(runtime::now()), name],
                )?;
                self.keep_messages(name, messages, *over)?;
                self.later(reply, ());
            }
            OfSink::ResetCursor(to, reply) => {
                self.execute(
                    "reset a cursor",
                    "UPDATE sink SET cursor = ?1, written = min(written, ?1) WHERE name = ?2",
                    params![to.0, name],
                )?;
                self.later(reply, ());
            }
            OfSink::DeadLetter { seq, line, reason, reply } => {
                // What the log still has is taken over when it is truncated.
                let line = (seq.0 < self.changes.log_start).then(|| self.codec.compress(None, line));
                self.execute(
                    "keep a dead letter",
                    "INSERT OR REPLACE INTO dead_letter (sink, seq, reason, time, line) VALUES (?, ?, ?, ?, ?)",
                    params![name, seq.0, reason, micros(runtime::now()), line],
                )?;
                self.later(reply, ());
            }
            OfSink::Relabeling(relabeling, reply) => {
                self.execute(
                    "give entries another epoch",
                    "INSERT OR REPLACE INTO relabeling (sink, after, before, epoch) VALUES (?, ?, ?, ?)",
                    params![name, relabeling.after.0, relabeling.before.0, relabeling.epoch],
                )?;
                self.later(reply, ());
            }
            OfSink::Report(state) => {
                self.report("sink", "name", &name, state.word(), state.detail())?;
            }
            OfSink::Retire => {
                self.execute("retire a sink", "UPDATE sink SET active = 0 WHERE name = ?", params![name])?;
            }
        }
        Ok(())
    }

    /// Keeps messages of a sink that may be updated.
    fn keep_messages(&self, name: &str, messages: &[Message], over: Seq) -> Result {
        let what = "keep messages";
        if messages.is_empty() {
            return Ok(());
        }
        for Message { incident, first, last, entries, reference } in messages {
            if let Some(reference) = reference {
                let row = params![name, first.0, last.0, entries, incident, reference];
                self.execute(what, "INSERT OR REPLACE INTO message VALUES (?, ?, ?, ?, ?, ?)", row)?;
            } else {
                self.execute(what, "DELETE FROM message WHERE sink = ? AND first = ?", params![name, first.0])?;
            }
        }
        self.execute(what, "DELETE FROM message WHERE sink = ? AND last <= ?", params![name, over.0])?;
        self.execute(
            what,
            "DELETE FROM message WHERE sink = ?1 AND first IN
             (SELECT first FROM message WHERE sink = ?1 ORDER BY last DESC LIMIT -1 OFFSET ?2)",
            params![name, MESSAGES],
        )
        .map(drop)
    }

    /// Records the state of a source or a sink. The time of a state is that of its start, however often it is reported.
    fn report(&self, table: &str, key: &str, of: &dyn ToSql, word: &str, detail: &str) -> Result {
        let text = format!(
            "UPDATE {table} SET state_since = CASE WHEN state = ?1 THEN state_since ELSE ?3 END, state = ?1, detail = ?2
             WHERE {key} = ?4"
        );
        self.execute("note a state", &text, params![word, detail, micros(runtime::now()), of]).map(drop)
    }

    fn note_audit(&mut self, id: i64, audit: &Audit) -> Result {
        let Audit { version, began, differences } = audit;
        if *differences == 0 {
            self.set_verified(id, version.clone(), micros(*began))?;
            self.set_good(id, micros(*began));
        }
        self.execute(
            "note an audit",
            "UPDATE source SET audits = audits + 1, audit_differences = audit_differences + ?, audited_at = ? WHERE id = ?",
            params![differences, micros(runtime::now()), id],
        )
        .map(drop)
    }
}
