//! What the journal has of the API server's audit logs.

use rusqlite::{OptionalExtension, params};

use super::{Reader, StoredEntry, sql};
use crate::core::k8s::audited::AuditedRequest;
use crate::core::model::Seq;
use crate::journal::error::Result;
use crate::journal::{AuditLogRow, JournalError};

impl Reader {
    /// Returns the audit logs that were ever configured, by name.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub fn audit_logs(&self) -> Result<Vec<AuditLogRow>> {
        let what = "audit logs";
        let mut select = self
            .conn
            .prepare_cached(
                "SELECT name, position, complete, counts, lost_at, probe, active, read_at, first_at FROM audit_log ORDER BY name",
            )
            .map_err(sql(what))?;
        let rows = select
            .query_map([], |row| {
                let counts: String = row.get(3)?;
                Ok(AuditLogRow {
                    name: row.get(0)?,
                    position: row.get(1)?,
                    complete: row.get(2)?,
                    counts: serde_json::from_str(&counts).unwrap_or_default(),
                    lost_at: row.get(4)?,
                    probe: row.get(5)?,
                    active: row.get(6)?,
                    read_at: row.get(7)?,
                    first_at: row.get(8)?,
                    doubts: Vec::new(),
                })
            })
            .map_err(sql(what))?;
        let mut logs: Vec<AuditLogRow> = rows.collect::<Result<_, _>>().map_err(sql(what))?;
        let mut select = self
            .conn
            .prepare_cached("SELECT since, until FROM audit_doubt WHERE log = ? ORDER BY since")
            .map_err(sql(what))?;
        for log in &mut logs {
            let doubts = select.query_map([&log.name], |row| Ok((row.get(0)?, row.get(1)?))).map_err(sql(what))?;
            log.doubts = doubts.collect::<Result<_, _>>().map_err(sql(what))?;
        }
        Ok(logs)
    }

    /// Reports whether events of an audit log are missing of a time between two, microseconds since 1970.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub fn audit_events_missing(&self, earliest: i64, latest: i64) -> Result<bool> {
        self.conn
            .prepare_cached("SELECT EXISTS (SELECT 1 FROM audit_doubt WHERE since <= ?2 AND until >= ?1)")
            .and_then(|mut select| select.query_row([earliest, latest], |row| row.get(0)))
            .map_err(sql("audit logs"))
    }

    /// Returns the requests of the audit logs that no entry has a sender of yet, in the order of their answers.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub fn audited(&self) -> Result<Vec<AuditedRequest>> {
        let what = "requests of the audit log";
        let mut select =
            self.conn.prepare_cached("SELECT request FROM audited ORDER BY completed, key").map_err(sql(what))?;
        let rows = select.query_map([], |row| row.get::<_, String>(0)).map_err(sql(what))?;
        let mut requests = Vec::new();
        for text in rows {
            // One of a later decklog, which this one cannot read, is of no use to it.
            requests.extend(serde_json::from_str::<AuditedRequest>(&text.map_err(sql(what))?));
        }
        Ok(requests)
    }

    /// Returns the last entry up to which every entry has its ACTOR, or gets none.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub fn attributed(&self) -> Result<Seq> {
        Ok(Seq(self.meta("attributed")?.parse().unwrap_or(0)))
    }

    /// Returns the ACTOR entry of an entry, if it has one.
    ///
    /// # Errors
    /// Where the database cannot be read or the entry is damaged.
    pub fn actor_of(&mut self, seq: Seq) -> Result<Option<StoredEntry>> {
        self.moment(|reader| {
            let entry: Option<u64> = reader
                .conn
                .prepare_cached("SELECT entry FROM actor WHERE seq = ?")
                .and_then(|mut select| select.query_row(params![seq.0], |row| row.get(0)).optional())
                .map_err(sql("the sender of a change"))?;
            entry.map_or(Ok(None), |entry| reader.row(Seq(entry)))
        })
    }

    /// Returns the ACTOR entries of the entries from one seq to another, each with the seq of its entry. One that is damaged is left out.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub fn actors_between(&mut self, from: Seq, to: Seq) -> Result<Vec<(Seq, StoredEntry)>> {
        let what = "the senders of changes";
        self.moment(|reader| {
            let pairs: Vec<(u64, u64)> = reader
                .conn
                .prepare_cached("SELECT seq, entry FROM actor WHERE seq BETWEEN ? AND ? ORDER BY seq")
                .and_then(|mut select| {
                    let rows = select.query_map(params![from.0, to.0], |row| Ok((row.get(0)?, row.get(1)?)))?;
                    rows.collect()
                })
                .map_err(sql(what))?;
            let mut actors = Vec::with_capacity(pairs.len());
            for (of, entry) in pairs {
                match reader.row(Seq(entry)) {
                    Ok(stored) => actors.extend(stored.map(|stored| (Seq(of), stored))),
                    Err(JournalError::Corrupt(_)) => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(actors)
        })
    }

    /// Reports whether an entry has an ACTOR.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub fn has_actors(&self) -> Result<bool> {
        let has = self.conn.prepare_cached("SELECT EXISTS (SELECT 1 FROM actor)");
        has.and_then(|mut select| select.query_row([], |row| row.get(0))).map_err(sql("the senders of changes"))
    }
}
