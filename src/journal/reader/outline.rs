//! Outlines, and what they are made of.

use std::ops::ControlFlow;

use rusqlite::{OptionalExtension, Row, params};

use super::{OLDEST, ObjectRow, Reader, Stored, StoredEntry, sql, stored_row};
use crate::core::model::Seq;
use crate::journal::JournalError;
use crate::journal::error::Result;

/// Compressed bytes of entries that are read at once, and their number.
const PACKED: usize = 1 << 20;
const ROWS: usize = 512;

/// Rows as they are stored, each with its time, its source and its object, and the last seq of them.
type Packed = (Vec<(Stored, i64, i64, i64)>, u64);

/// An entry with the rows that it belongs to.
#[derive(Clone, Debug)]
pub struct StoredRow {
    /// Time at which it was journaled, microseconds since 1970.
    pub time: i64,
    /// The row of its source.
    pub source: i64,
    /// The row of its object; 0 for a GAP.
    pub object: i64,
    /// The entry.
    pub entry: StoredEntry,
}

/// Entries that were journaled later than they happened, or may have been. Others may stand between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Late {
    /// The first of them.
    pub first: Seq,
    /// The last of them.
    pub last: Seq,
    /// Microseconds since 1970 before which none of them happened.
    pub since: i64,
}

impl Reader {
    /// The outline that is kept of a part of the log.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub fn outline(&self, part: u64) -> Result<Option<Vec<u8>>> {
        self.conn
            .prepare_cached("SELECT data FROM outline WHERE part = ?")
            .and_then(|mut select| select.query_row([part], |row| row.get(0)).optional())
            .map_err(sql("an outline"))
    }

    /// The parts of the log from one to another of which an outline is kept, in order.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub fn outlined(&self, from: u64, to: u64) -> Result<Vec<u64>> {
        let what = "outlines";
        let mut select = self
            .conn
            .prepare_cached("SELECT part FROM outline WHERE part BETWEEN ? AND ? ORDER BY part")
            .map_err(sql(what))?;
        let parts = select.query_map([from, to], |row| row.get(0)).map_err(sql(what))?;
        parts.collect::<std::result::Result<_, _>>().map_err(sql(what))
    }

    /// Looks at entries from one seq to another, in order, each with the rows that it belongs to, until `each` breaks it off.
    /// One is put together at a time: however large they are, few bytes of them are held. One that is damaged is left out:
    /// who asks for it by its seq sees what is wrong with it.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub fn rows_between(
        &mut self,
        from: Seq,
        to: Seq,
        each: &mut dyn FnMut(StoredRow) -> ControlFlow<()>,
    ) -> Result<()> {
        let mut from = from;
        while from <= to {
            let some = self.moment(|reader| {
                let Some((rows, last)) = reader.packed_between(from, to)? else { return Ok(None) };
                for (row, time, source, object) in rows {
                    match reader.unpack(row) {
                        Ok(entry) => {
                            if each(StoredRow { time, source, object, entry }).is_break() {
                                return Ok(None);
                            }
                        }
                        Err(JournalError::Corrupt(_)) => {}
                        Err(error) => return Err(error),
                    }
                }
                Ok(Some(last))
            })?;
            let Some(last) = some else { break };
            from = Seq(last.saturating_add(1));
        }
        Ok(())
    }

    /// Rows as they are stored, from one seq on and up to another at most: few of them, with the last seq.
    fn packed_between(&self, from: Seq, to: Seq) -> Result<Option<Packed>> {
        let what = "entries";
        let mut select = self
            .conn
            .prepare_cached(&format!(
                "SELECT seq, type, base, line, time, source, coalesce(object, 0) FROM entry
                 WHERE seq BETWEEN max(?, {OLDEST}) AND ? ORDER BY seq"
            ))
            .map_err(sql(what))?;
        let mut rows = select.query(params![from.0, to.0]).map_err(sql(what))?;
        let (mut packed, mut bytes, mut last) = (Vec::new(), 0, None);
        while let Some(row) = rows.next().map_err(sql(what))? {
            let read = |row: &Row<'_>| Ok((stored_row(row)?, row.get(4)?, row.get(5)?, row.get(6)?));
            let row: (Stored, i64, i64, i64) = read(row).map_err(sql(what))?;
            last = Some(row.0.seq);
            bytes += row.0.blob.len();
            packed.push(row);
            if bytes >= PACKED || packed.len() >= ROWS {
                break;
            }
        }
        Ok(last.map(|last| (packed, last)))
    }

    /// Returns the time at which an entry was journaled, microseconds since 1970; none if there is no such entry.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub fn time_of(&self, seq: Seq) -> Result<Option<i64>> {
        self.conn
            // When a seq was written is for everybody.
            .prepare_cached("SELECT time FROM main.entry WHERE seq = ?")
            .and_then(|mut select| select.query_row([seq.0], |row| row.get(0)).optional())
            .map_err(sql("times"))
    }

    /// Returns the stretches of entries that were journaled later than they happened, or may have been, oldest first.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub fn late(&self) -> Result<Vec<Late>> {
        let what = "late entries";
        let mut select =
            self.conn.prepare_cached("SELECT first, last, since FROM late ORDER BY first").map_err(sql(what))?;
        let late = |row: &Row<'_>| Ok(Late { first: Seq(row.get(0)?), last: Seq(row.get(1)?), since: row.get(2)? });
        select.query_map([], late).and_then(Iterator::collect).map_err(sql(what))
    }

    /// Returns the times in which no daemon ran, oldest first: of each the last time at which one ran and the time at which the next one
    /// began, microseconds since 1970.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub fn absences(&self) -> Result<Vec<(i64, i64)>> {
        let what = "when no daemon ran";
        let mut select =
            self.conn.prepare_cached("SELECT since, until FROM absence ORDER BY since").map_err(sql(what))?;
        select.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).and_then(Iterator::collect).map_err(sql(what))
    }

    /// The object with this row.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub fn object_with(&self, row: i64) -> Result<Option<ObjectRow>> {
        Ok(self.object_rows("o.id = ?1", &[&row])?.pop())
    }

    /// The rows of the objects of one resource, in one namespace or in all, by name: `*` and `?` stand for other characters.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub fn rows_of(&self, resource: i64, namespace: Option<&str>, name: Option<&str>) -> Result<Vec<i64>> {
        let what = "objects";
        let (is, name) = name.map_or(("GLOB", "*".into()), super::objects::asked);
        let mut select = self
            .conn
            .prepare_cached(&format!(
                "SELECT id FROM object WHERE resource = ?1 AND namespace BETWEEN coalesce(?2, '') AND coalesce(?2, x'')
                 AND name {is} ?3"
            ))
            .map_err(sql(what))?;
        let rows = select.query_map(params![resource, namespace, name], |row| row.get(0)).map_err(sql(what))?;
        rows.collect::<std::result::Result<_, _>>().map_err(sql(what))
    }
}

impl ObjectRow {
    /// Its row, by which outlines name it.
    #[must_use]
    pub const fn row(&self) -> i64 {
        self.id
    }
}
