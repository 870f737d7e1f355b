//! A base in the making: the journal as it was at one moment, read part by part beside the writer.

use std::path::Path;

use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension};

use super::changeset::{Changeset, Table, tables};
use super::sql;
use crate::core::shared_log::{Base, PART_BYTES};
use crate::journal::error::Result;
use crate::journal::schema;

/// The journal at one moment, for as long as this lives.
pub(in crate::journal) struct Snapshot {
    conn: Connection,
    tables: Vec<Table>,
    /// Index of the table that is read, and the key behind which it is read.
    at: (usize, Option<Vec<Value>>),
    pub(in crate::journal) base: Base,
    /// The digest of the unit behind which it is the journal.
    pub(in crate::journal) digest: String,
    /// Size of the parts so far, in bytes.
    pub(in crate::journal) bytes: u64,
}

impl Snapshot {
    /// Begins a base of the journal as it is on disk now, behind the unit with this number and digest.
    pub(in crate::journal) fn take(dir: &Path, number: u64, digest: &str) -> Result<Self> {
        let conn = schema::open_reader(dir)?;
        conn.execute_batch("BEGIN").map_err(sql("read itself"))?;
        // A read transaction begins with the first read.
        let tables = tables(&conn)?;
        conn.query_row("SELECT 1 FROM meta LIMIT 1", [], |_| Ok(())).optional().map_err(sql("read itself"))?;
        Ok(Self { conn, tables, at: (0, None), base: Base { number, parts: 0 }, digest: digest.to_owned(), bytes: 0 })
    }

    /// The next part; none behind the last one.
    pub(in crate::journal) fn next(&mut self) -> Result<Option<Changeset>> {
        let mut rows = Changeset::default();
        while let Some(table) = self.tables.get(self.at.0) {
            match rows.page(&self.conn, table, self.at.1.as_deref(), PART_BYTES)? {
                Some(last) => {
                    self.at.1 = Some(last);
                    break;
                }
                None => self.at = (self.at.0 + 1, None),
            }
        }
        if rows.is_empty() {
            return Ok(None);
        }
        self.base.parts += 1;
        Ok(Some(rows))
    }
}
