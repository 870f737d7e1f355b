//! Audit logs: their positions with what they brought, and the ACTOR entries.

use rusqlite::{OptionalExtension, params};

use super::{OfAuditLog, Transaction, micros, rfc3339, sql};
use crate::core::k8s::audited::Actor;
use crate::core::model::{EntryType, Seq};
use crate::core::runtime;
use crate::core::wire::{self, EntryBuilder};
use crate::journal::error::Result;
use crate::journal::recent::Line;
use crate::journal::{Attribution, AuditBatch, AuditCounts, JournalError, REQUESTS_MAX};

const NOTE: &str = "note what an audit log has";
/// Two losses with less between them, in microseconds, are one.
const DOUBT_GAP_MAX: i64 = 3_600_000_000;
/// Most times of which events of one audit log are missing.
const DOUBTS_MAX: i64 = 1_000;
const ATTRIBUTE: &str = "record the sender of a change";

impl Transaction<'_> {
    pub(super) fn perform_of_audit_log(&mut self, command: &OfAuditLog) -> Result {
        match command {
            OfAuditLog::Configured(names) => self.activate_audit_logs(names)?,
            OfAuditLog::Batch(batch, reply) => {
                self.note_audited(batch)?;
                self.later(reply, ());
            }
            OfAuditLog::Dropped(events, within) => self.note_dropped(*events, *within)?,
            OfAuditLog::Attribute(attribution, reply) => {
                self.attribute(attribution)?;
                self.later(reply, ());
            }
        }
        Ok(())
    }

    /// Activates these audit logs and no others.
    fn activate_audit_logs(&mut self, names: &[String]) -> Result {
        // One that is read again after a time without it has begun anew.
        let anew = "UPDATE audit_log SET first_at = 0 WHERE name = ? AND NOT active";
        for name in names {
            self.execute(NOTE, anew, params![name])?;
        }
        self.execute(NOTE, "UPDATE audit_log SET active = 0", [])?;
        for name in names {
            self.execute(
                NOTE,
                "INSERT INTO audit_log (name, active) VALUES (?, 1) ON CONFLICT DO UPDATE SET active = 1",
                params![name],
            )?;
        }
        Ok(())
    }

    /// Keeps a part of an audit log. An event that came before counts once.
    fn note_audited(&mut self, batch: &AuditBatch) -> Result {
        for request in &batch.requests {
            let text = serde_json::to_string(request).expect("texts and numbers always serialise");
            self.execute(
                NOTE,
                "INSERT OR IGNORE INTO audited (key, completed, request) VALUES (?, ?, ?)",
                params![request.key(), request.completed, text],
            )?;
        }
        self.count_refused(&batch.refused)?;
        self.execute(
            NOTE,
            "DELETE FROM audited WHERE completed <=
                 (SELECT completed FROM audited ORDER BY completed DESC LIMIT 1 OFFSET ?)",
            params![REQUESTS_MAX],
        )?;
        self.execute(
            NOTE,
            "INSERT INTO audit_log (name, position, complete, read_at, probe, first_at, active) VALUES (?1, ?2, ?3, ?4, ?5, ?6, 1)
             ON CONFLICT DO UPDATE SET position = coalesce(?2, position), complete = max(complete, ?3),
                 read_at = max(read_at, ?4), probe = coalesce(?5, probe),
                 first_at = iif(first_at = 0, ?6, first_at)",
            params![batch.log, batch.position, batch.complete, batch.read_at, batch.probe, batch.first_at],
        )?;
        self.count_audited(&batch.log, &batch.counts, batch.doubt)
    }

    /// Counts what API servers have dropped in every audit log: nobody knows in which it would have come.
    fn note_dropped(&mut self, events: u64, within: (i64, i64)) -> Result {
        let active: Vec<String> = self
            .conn
            .prepare_cached("SELECT name FROM audit_log WHERE active")
            .and_then(|mut select| select.query_map([], |row| row.get(0))?.collect())
            .map_err(sql(NOTE))?;
        for name in active {
            self.count_audited(&name, &AuditCounts { dropped: events, ..AuditCounts::default() }, Some(within))?;
        }
        Ok(())
    }

    /// Adds to the counts of an audit log, and notes of which time events are missing.
    fn count_audited(&mut self, name: &str, new: &AuditCounts, doubt: Option<(i64, i64)>) -> Result {
        let before: Option<String> = self
            .conn
            .prepare_cached("SELECT counts FROM audit_log WHERE name = ?")
            .and_then(|mut select| select.query_row([name], |row| row.get(0)).optional())
            .map_err(sql(NOTE))?;
        let mut counts: AuditCounts = before.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
        counts.add(new);
        let text = serde_json::to_string(&counts).expect("numbers always serialise");
        let lost_at = if new.lost + new.dropped > 0 { micros(runtime::now()) } else { 0 };
        self.execute(
            NOTE,
            "UPDATE audit_log SET counts = ?2, lost_at = max(lost_at, ?3) WHERE name = ?1",
            params![name, text, lost_at],
        )?;
        doubt.map_or(Ok(()), |doubt| self.note_doubt(name, doubt))
    }

    /// Notes that events of this time are missing. Times that are close together become one, as do the oldest two of too many.
    fn note_doubt(&mut self, name: &str, (since, until): (i64, i64)) -> Result {
        const NEAR: &str = "log = ?1 AND since <= ?3 + ?4 AND until >= ?2 - ?4";
        let near = params![name, since, until, DOUBT_GAP_MAX];
        let whole: (i64, i64) = self
            .conn
            .prepare_cached(&format!(
                "SELECT min(?2, coalesce(min(since), ?2)), max(?3, coalesce(max(until), ?3)) FROM audit_doubt WHERE {NEAR}"
            ))
            .and_then(|mut select| select.query_row(near, |row| Ok((row.get(0)?, row.get(1)?))))
            .map_err(sql(NOTE))?;
        self.execute(NOTE, &format!("DELETE FROM audit_doubt WHERE {NEAR}"), near)?;
        self.execute(NOTE, "INSERT INTO audit_doubt VALUES (?, ?, ?)", params![name, whole.0, whole.1])?;
        let oldest: Vec<(i64, i64)> = self
            .conn
            .prepare_cached("SELECT since, until FROM audit_doubt WHERE log = ?1 ORDER BY since LIMIT (SELECT iif(count(*) > ?2, 2, 0) FROM audit_doubt WHERE log = ?1)")
            .and_then(|mut select| select.query_map(params![name, DOUBTS_MAX], |row| Ok((row.get(0)?, row.get(1)?)))?.collect())
            .map_err(sql(NOTE))?;
        if let [first, second] = oldest[..] {
            self.execute(NOTE, "DELETE FROM audit_doubt WHERE log = ? AND since = ?", params![name, second.0])?;
            let widen = "UPDATE audit_doubt SET until = ? WHERE log = ? AND since = ?";
            self.execute(NOTE, widen, params![second.1, name, first.0])?;
        }
        Ok(())
    }

    /// Writes ACTOR entries. One that exists, and one of an entry that is truncated, is left out.
    fn attribute(&mut self, attribution: &Attribution) -> Result {
        for (of, actor) in &attribution.actors {
            self.record_actor(*of, actor)?;
        }
        self.count_wasted(&attribution.wasted)?;
        self.forget_refused(attribution.needed_since)?;
        self.execute(ATTRIBUTE, "DELETE FROM audited WHERE completed < ?", params![attribution.needed_since])?;
        self.execute(
            ATTRIBUTE,
            "INSERT INTO meta VALUES ('attributed', ?1)
             ON CONFLICT DO UPDATE SET value = max(CAST(value AS INTEGER), CAST(?1 AS INTEGER))",
            params![attribution.upto.0.to_string()],
        )?;
        Ok(())
    }

    fn record_actor(&mut self, of: Seq, actor: &Actor) -> Result {
        if of.0 < self.changes.log_start {
            return Ok(());
        }
        let row: Option<(i64, bool)> = self
            .conn
            .prepare_cached("SELECT source, EXISTS (SELECT 1 FROM actor a WHERE a.seq = e.seq) FROM entry e WHERE seq = ? AND type < 3")
            .and_then(|mut select| select.query_row([of.0], |row| Ok((row.get(0)?, row.get(1)?))).optional())
            .map_err(sql(ATTRIBUTE))?;
        let Some((source, false)) = row else { return Ok(()) };
        let line = match self.line(of.0) {
            Ok(line) => line,
            // Nobody can be told which change it was.
            Err(JournalError::Corrupt(_)) => return Ok(()),
            Err(error) => return Err(error),
        };
        let Ok(change) = wire::Header::parse(&line.bytes) else { return Ok(()) };
        let now = micros(runtime::now());
        let seq = self.changes.head + 1;
        let actor = serde_json::to_string(actor).expect("texts always serialise");
        let rendered = wire::render(&EntryBuilder {
            seq: Seq(seq),
            epoch: self.epoch(),
            time: &rfc3339(now),
            happened: None,
            happened_between: None,
            op: EntryType::Actor,
            evidence: None,
            cluster: self.cluster(),
            api_version: &change.api_version,
            kind: &change.kind,
            resource: &change.resource,
            namespace: change.namespace.as_deref().unwrap_or_default(),
            name: change.name.as_deref().unwrap_or_default(),
            uid: change.uid.as_deref().unwrap_or_default(),
            version: change.resource_version.as_deref().unwrap_or_default(),
            managers: None,
            change: None,
            object: None,
            gap: None,
            actor: Some(((of, &change.id), &actor)),
            redacted: &[],
        });
        let blob = self.codec.compress(None, &rendered.line);
        self.insert(seq, now, EntryType::Actor, source, None, 0, None, &(0..0), (&rendered.line, &blob))?;
        self.recent.put(seq, Line { op: EntryType::Actor, bytes: rendered.line.into(), object: 0..0, shape: None });
        self.execute(ATTRIBUTE, "INSERT INTO actor VALUES (?, ?)", params![of.0, seq])?;
        Ok(())
    }
}
