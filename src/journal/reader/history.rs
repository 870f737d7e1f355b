//! The history of one object: each of its entries knows the one before it.
//!
//! # Decision: the past is read backwards
//!
//! Context: `log`, `blame` and `get --at` need the history of one object.
//! Decision: Each entry points to the previous one of its object. An index of one entry in 64, chosen by its seq, shortens the
//! way to any version. A change is shown by its entry alone: the patch is reverted from the object in the entry.
//! Cost: An index of one entry in 64.

use bytes::Bytes;
use rusqlite::{OptionalExtension, Row, ToSql, params};

use super::{OLDEST, ObjectRow, Reader, StoredEntry, sql, stored_row, type_of};
use crate::core::model::{EntryType, Seq};
use crate::journal::error::Result;

/// One entry of an object, unread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Its place.
    pub seq: Seq,
    /// Time at which it was journaled, microseconds since 1970.
    pub time: i64,
    /// Type of the change.
    pub op: EntryType,
    /// The object's entry before it, 0 for none.
    pub previous: Seq,
    /// True if it is part of the log. Otherwise it is truncated, and holds the state at the log start.
    pub kept: bool,
}

impl Reader {
    /// The object's entry before or at `seq`, unread.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub fn step(&self, object: &ObjectRow, seq: Seq) -> Result<Option<Step>> {
        Ok(self.walk(object, seq)?.0)
    }

    /// Finds the step as [`Reader::step`] does, and returns the number of rows that were read for it.
    pub(in crate::journal) fn walk(&self, object: &ObjectRow, seq: Seq) -> Result<(Option<Step>, usize)> {
        let mut at = self.milestone_of(object, seq)?;
        let mut rows = 0;
        while let Some(step) = self.step_at(at)? {
            rows += 1;
            if step.seq <= seq {
                return Ok((Some(step), rows));
            }
            at = step.previous;
        }
        Ok((None, rows))
    }

    /// An entry of the object that is not before `seq`, from where the way to it is short; where there is none its newest one.
    fn milestone_of(&self, object: &ObjectRow, seq: Seq) -> Result<Seq> {
        let milestone = self
            .conn
            .prepare_cached(
                "SELECT seq FROM entry WHERE object = ? AND seq >= ? AND (seq * 40503) & 65535 < 1024 ORDER BY seq LIMIT 1",
            )
            .and_then(|mut select| select.query_row(params![object.id, seq.0.min(i64::MAX as u64)], |row| row.get(0).map(Seq)).optional())
            .map_err(sql("an object's history"))?;
        match milestone {
            Some(found) => Ok(found),
            None => self.last_of(object),
        }
    }

    /// The object's entry after `seq`, unread; few rows are read for it, however many follow.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub fn following(&mut self, object: &ObjectRow, seq: Seq) -> Result<Option<Step>> {
        self.moment(|reader| {
            let mut next = None;
            let mut at = reader.milestone_of(object, seq.next())?;
            while let Some(step) = reader.step_at(at)?.filter(|step| step.seq > seq) {
                at = step.previous;
                next = Some(step);
            }
            Ok(next)
        })
    }

    /// The seq of the object's newest entry now, 0 for none.
    fn last_of(&self, object: &ObjectRow) -> Result<Seq> {
        let last = self
            .conn
            .prepare_cached("SELECT last FROM object WHERE id = ?")
            .and_then(|mut select| select.query_row([object.id], |row| row.get(0).map(Seq)).optional());
        Ok(last.map_err(sql("an object's history"))?.unwrap_or_default())
    }

    fn step_at(&self, seq: Seq) -> Result<Option<Step>> {
        let what = "an object's history";
        let row = self
            .conn
            .prepare_cached(&format!("SELECT time, type, previous, seq >= {OLDEST} FROM entry WHERE seq = ?"))
            .and_then(|mut select| {
                select
                    .query_row([seq.0], |row| {
                        Ok((row.get(0)?, row.get::<_, i64>(1)?, row.get(2).map(Seq)?, row.get(3)?))
                    })
                    .optional()
            })
            .map_err(sql(what))?;
        Ok(row.and_then(|(time, kind, previous, kept)| Some(Step { seq, time, op: type_of(kind)?, previous, kept })))
    }

    /// The entries of an object after `after` and up to `upto`, newest first and at most so many.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub fn history(&mut self, object: &ObjectRow, after: Seq, upto: Seq, most: usize) -> Result<Vec<Step>> {
        self.moment(|reader| {
            let mut steps = Vec::new();
            let mut next = reader.step(object, upto)?;
            while let Some(step) = next.filter(|step| step.seq > after && step.kept && steps.len() < most) {
                next = reader.previous(&step)?;
                steps.push(step);
            }
            Ok(steps)
        })
    }

    /// The object's entry before this one. It may be pinned; what may still be behind that is only there to be a base.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub fn previous(&self, step: &Step) -> Result<Option<Step>> {
        if step.kept { self.step_at(step.previous) } else { Ok(None) }
    }

    /// The entry of a step, also one that is pinned.
    ///
    /// # Errors
    /// Where the database cannot be read or the entry is damaged.
    pub fn entry_of(&mut self, step: &Step) -> Result<Option<StoredEntry>> {
        self.moment(|reader| reader.row(step.seq))
    }

    /// The entry that holds the object's state at `seq`: the newest one not after it. It may be a DELETED, and then the
    /// object did not exist. It may be pinned, where it holds the state at the log start. However long the history is,
    /// few rows are read.
    ///
    /// # Errors
    /// Where the database cannot be read or an entry is damaged.
    pub fn entry_at(&mut self, object: &ObjectRow, seq: Seq) -> Result<Option<StoredEntry>> {
        self.moment(|reader| match reader.step(object, seq)? {
            Some(found) => reader.row(found.seq),
            None => Ok(None),
        })
    }

    /// The state of an object that no entry carries, and what is redacted in it: what changed since its last entry was
    /// suppressed, or it was found on a first list that is not emitted. `None` where its newest entry holds its state.
    ///
    /// # Errors
    /// Where the database cannot be read or the state is damaged.
    pub fn unrecorded(&mut self, object: &ObjectRow) -> Result<Option<(Bytes, Vec<String>)>> {
        self.moment(|reader| {
            let row = reader
                .conn
                .prepare_cached(
                    "SELECT state, pointers, base FROM object WHERE id = ? AND present = 1 AND state IS NOT NULL",
                )
                .and_then(|mut select| {
                    let row =
                        |row: &Row<'_>| Ok((row.get::<_, Vec<u8>>(0)?, row.get::<_, Option<String>>(1)?, row.get(2)?));
                    select.query_row([object.id], row).optional()
                })
                .map_err(sql("an object"))?;
            let Some((blob, pointers, base)) = row else { return Ok(None) };
            let pointers = pointers.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
            Ok(Some((reader.state(&blob, base)?.into(), pointers)))
        })
    }

    /// Returns the object of an entry; `None` for a GAP, and if there is no such entry.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub fn object_of(&self, seq: Seq) -> Result<Option<ObjectRow>> {
        let what = "an object";
        let object = self
            .conn
            .prepare_cached(&format!("SELECT object FROM entry WHERE seq = ? AND seq >= {OLDEST}"))
            .and_then(|mut select| select.query_row([seq.0], |row| row.get::<_, Option<i64>>(0)).optional())
            .map_err(sql(what))?
            .flatten();
        let Some(id) = object else { return Ok(None) };
        Ok(self.object_rows("o.id = ?1", &[&id as &dyn ToSql])?.pop())
    }

    /// Objects of one resource that have an entry after `after`, in one namespace or in all.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub fn objects_changed(&self, resource: i64, namespace: Option<&str>, after: Seq) -> Result<Vec<ObjectRow>> {
        self.object_rows(
            "o.resource = ?1 AND o.namespace BETWEEN coalesce(?2, '') AND coalesce(?2, x'') AND o.last > ?3",
            &[&resource, &namespace, &after.0.min(i64::MAX as u64)],
        )
    }

    /// The rows of all objects that have an entry after `after`.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub fn rows_changed(&self, after: Seq) -> Result<Vec<i64>> {
        let what = "objects";
        let mut select =
            self.conn.prepare_cached("SELECT id FROM object WHERE last > ? ORDER BY id").map_err(sql(what))?;
        let rows = select.query_map([after.0.min(i64::MAX as u64)], |row| row.get(0)).map_err(sql(what))?;
        rows.collect::<Result<_, _>>().map_err(sql(what))
    }

    /// The GAP entries that concern objects of one resource, in one namespace or in all, after `after`: oldest first.
    ///
    /// # Errors
    /// Where the database cannot be read or an entry is damaged.
    pub fn gaps(&mut self, resource: i64, namespace: Option<&str>, after: Seq) -> Result<Vec<StoredEntry>> {
        let what = "gaps";
        self.moment(|reader| {
            let rows: Vec<_> = {
                let mut select = reader
                    .conn
                    .prepare_cached(&format!(
                        "SELECT e.seq, e.type, e.base, e.line FROM entry e JOIN source s ON s.id = e.source
                         WHERE e.type = 3 AND e.seq > max(?1, {OLDEST} - 1) AND s.resource = ?2
                             AND (?3 IS NULL OR s.namespace IN ('', ?3)) ORDER BY e.seq"
                    ))
                    .map_err(sql(what))?;
                let rows = select
                    .query_map(params![after.0.min(i64::MAX as u64), resource, namespace], stored_row)
                    .map_err(sql(what))?;
                rows.collect::<Result<_, _>>().map_err(sql(what))?
            };
            rows.into_iter().map(|row| reader.unpack(row)).collect()
        })
    }
}
