//! Read-only connections: what delivery, status and the commands read. They never block the writer.

mod audit;
mod audit_log;
mod entries;
mod history;
mod objects;
mod outline;
mod pushdown;
mod requests;
mod sight;
mod status;
#[cfg(test)]
mod tests;
mod tree;
mod unwritten;
mod verify;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, Row};

pub use audit::{KnownObject, Link, Lost, Name};
pub use entries::EntryQuery;
pub use history::Step;
pub use objects::ObjectRow;
pub use outline::StoredRow;
pub use pushdown::{EntryFilter, Page};
pub use requests::{REQUEST_COUNTERS_INTERVAL, Requests};
pub use status::{DeadLetter, SinkRow, SourceRow};
pub use verify::Verified;

use super::codec::Codec;
use super::error::Result;
use super::recent::{AtHand, Budget, Line, Recent};
use super::retention::Retained;
use super::state::local_fact;
use super::writer::{rfc3339, type_of};
use super::{JournalError, Message, Relabeling, schema};
use crate::core::model::{Cluster, EntryType, Resource, Seq};
use crate::core::runtime::watch;

/// The log start: the first seq that is not truncated. What stands below it in the table is pinned by later entries.
const OLDEST: &str = "coalesce((SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'oldest'), 1)";

/// Instructions of SQLite's machine between two looks at whether to go on.
const STEPS: std::ffi::c_int = 10_000;

/// Base entries that a reader caches.
const BASES: Budget = Budget::shared(4 << 20);

/// An entry as it is stored.
#[derive(Clone, Debug)]
pub struct StoredEntry {
    /// Its place.
    pub seq: Seq,
    /// Type of the change.
    pub op: EntryType,
    /// The entry of the wire format, without a newline.
    pub line: Bytes,
}

fn sql(what: &'static str) -> impl FnOnce(rusqlite::Error) -> JournalError {
    move |source| match sight::refusal(&source) {
        Some(refusal) => JournalError::Refused(refusal),
        None => JournalError::Sqlite { what: format!("cannot read {what} from the journal"), source },
    }
}

struct Stored {
    seq: u64,
    op: i64,
    base: Option<u64>,
    blob: Vec<u8>,
}

/// A read-only connection to a journal.
pub struct Reader {
    conn: Connection,
    codec: Codec,
    bases: Recent,
    /// Inside the daemon: what the writer has at hand, and how far that is on disk.
    at_hand: Option<(AtHand, watch::Receiver<Seq>)>,
    /// Where somebody reads who may not see all of it.
    narrowed: Option<sight::Narrowed>,
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Reader")
    }
}

impl Reader {
    /// Opens the journal in `dir` for reading, beside a running daemon or without one.
    ///
    /// # Errors
    /// Where there is none, or it cannot be read.
    pub fn open(dir: &Path) -> Result<Self> {
        Ok(Self {
            conn: schema::open_reader(dir)?,
            codec: Codec::default(),
            bases: Recent::with_budget(BASES),
            at_hand: None,
            narrowed: None,
        })
    }

    /// Ends every reading with an error once the flag is set.
    ///
    /// # Errors
    /// Where SQLite does not take it.
    pub fn stop_at(&mut self, flag: Arc<AtomicBool>) -> Result<()> {
        let handler = move || flag.load(Ordering::Relaxed);
        self.conn.progress_handler(STEPS, Some(handler)).map_err(sql("whether to go on"))
    }

    /// Opens as [`Reader::open`] does, beside the writer of this process.
    pub(super) fn beside(dir: &Path, at_hand: AtHand, head: watch::Receiver<Seq>) -> Result<Self> {
        Ok(Self { at_hand: Some((at_hand, head)), ..Self::open(dir)? })
    }

    /// The newest seq, 0 for an empty journal.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub fn head(&self) -> Result<Seq> {
        self.conn
            .prepare_cached("SELECT coalesce(max(seq), 0) FROM main.entry")
            .and_then(|mut select| select.query_row([], |row| row.get(0).map(Seq)))
            .map_err(sql("the head"))
    }

    /// The oldest seq that is kept, 0 for an empty journal.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub fn oldest(&self) -> Result<Seq> {
        self.conn
            .prepare_cached(&format!("SELECT coalesce(min(seq), 0) FROM main.entry WHERE seq >= {OLDEST}"))
            .and_then(|mut select| select.query_row([], |row| row.get(0).map(Seq)))
            .map_err(sql("the oldest entry"))
    }

    /// Returns the extent of the log, the truncation, and whether reading is paused.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub fn retained(&self) -> Result<Retained> {
        let text = format!(
            "SELECT {OLDEST}, (SELECT time FROM main.entry WHERE seq >= {OLDEST} ORDER BY seq LIMIT 1),
                 (SELECT value FROM meta WHERE key = 'paused')"
        );
        let row = self.conn.query_row(&text, [], |row| Ok((row.get::<_, u64>(0)?, row.get(1)?, row.get(2)?)));
        let (oldest, oldest_time, paused): (_, _, Option<String>) = row.map_err(sql("what it keeps"))?;
        let paused = paused.and_then(|text| serde_json::from_str(&text).ok());
        Ok(Retained { oldest, oldest_time, removed: oldest.saturating_sub(1), paused })
    }

    /// Reads at one moment of the journal. It is short: whoever stays in one keeps the write-ahead log from being emptied.
    fn moment<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if !self.conn.is_autocommit() {
            return read(self);
        }
        self.conn.execute_batch("BEGIN").map_err(sql("its state"))?;
        let result = read(self);
        drop(self.conn.execute_batch("COMMIT"));
        result
    }

    /// A number that changes whenever another connection has committed.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub fn data_version(&self) -> Result<i64> {
        self.conn.pragma_query_value(None, "data_version", |row| row.get(0)).map_err(sql("its state"))
    }

    /// The name of this journal.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub fn epoch(&self) -> Result<String> {
        self.meta("epoch")
    }

    /// The first seq that carries this name; `None` where the journal did not note it.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub fn epoch_since(&self) -> Result<Option<u64>> {
        Ok(self.meta("epoch_since")?.parse().ok())
    }

    /// The marks that the state directory may have.
    pub(super) fn mark(&self) -> Result<Vec<String>> {
        Ok(self.meta("mark")?.split_whitespace().map(str::to_owned).collect())
    }

    /// The names that entries carry, each with the first seq that does, oldest first.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub fn epochs(&self) -> Result<Vec<(String, Seq)>> {
        self.rows("SELECT name, since FROM epoch ORDER BY name", [], |row| Ok((row.get(0)?, Seq(row.get(1)?))))
    }

    /// The last entry that this sink's output on a machine was given for good, where each machine has its own.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub fn delivered_on(&self, sink: &str, machine: &str) -> Result<Seq> {
        Ok(Seq(self.meta(&local_fact(sink, machine))?.parse().unwrap_or_default()))
    }

    /// Returns the messages of a sink that may be updated.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub fn messages(&self, sink: &str) -> Result<Vec<Message>> {
        let text = "SELECT incident, first, last, entries, reference FROM message WHERE sink = ? ORDER BY first";
        self.rows(text, [sink], |row| {
            Ok(Message {
                incident: row.get(0)?,
                first: Seq(row.get(1)?),
                last: Seq(row.get(2)?),
                entries: row.get(3)?,
                reference: row.get(4)?,
            })
        })
    }

    /// Returns the ranges that a sink gets under the name of another epoch, newest first: of two that contain an entry the
    /// first counts.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub fn relabelings(&self, sink: &str) -> Result<Vec<Relabeling>> {
        self.rows("SELECT after, before, epoch FROM relabeling WHERE sink = ? ORDER BY epoch DESC", [sink], |row| {
            Ok(Relabeling { after: Seq(row.get(0)?), before: Seq(row.get(1)?), epoch: row.get(2)? })
        })
    }

    fn rows<T>(
        &self,
        text: &str,
        values: impl rusqlite::Params,
        row: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>> {
        let mut select = self.conn.prepare_cached(text).map_err(sql("its epochs"))?;
        let rows = select.query_map(values, row).map_err(sql("its epochs"))?;
        rows.collect::<Result<_, _>>().map_err(sql("its epochs"))
    }

    /// The cluster that the journal belongs to.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub fn cluster(&self) -> Result<Cluster> {
        Ok(Cluster { name: self.meta("cluster_name")?, uid: self.meta("cluster_uid")? })
    }

    fn meta(&self, key: &str) -> Result<String> {
        let value = self.conn.query_row("SELECT value FROM meta WHERE key = ?", [key], |row| row.get(0)).optional();
        Ok(value.map_err(sql("its facts"))?.unwrap_or_default())
    }

    fn unpack(&mut self, row: Stored) -> Result<StoredEntry> {
        let damaged = |seq: u64, why: &dyn std::fmt::Display| JournalError::damaged(Seq(seq), why);
        let op = type_of(row.op).ok_or_else(|| damaged(row.seq, &"unknown type"))?;
        let base = row.base.map(|seq| self.base(seq)).transpose()?;
        let line = self.codec.decompress(base.as_deref(), &row.blob).map_err(|error| damaged(row.seq, &error))?;
        Ok(StoredEntry { seq: Seq(row.seq), op, line: line.into() })
    }

    /// Decompresses a state of the object table, which may be a difference of the entry that the object's versions are
    /// differences of.
    fn state(&mut self, blob: &[u8], base: Option<u64>) -> Result<Vec<u8>> {
        let base = base.filter(|_| Codec::is_difference(blob)).map(|seq| self.base(seq)).transpose()?;
        let state = self.codec.decompress(base.as_deref(), blob);
        state.map_err(|error| JournalError::Corrupt(format!("an object's state is damaged ({error})")))
    }

    fn base(&mut self, seq: u64) -> Result<Bytes> {
        let of_writer = self.at_hand.as_ref().and_then(|(at_hand, _)| at_hand.bases.peek(seq));
        if let Some(line) = of_writer.or_else(|| self.bases.get(seq)) {
            return Ok(line.bytes);
        }
        let blob: Option<Vec<u8>> = self
            .conn
            // Whoever may see the version may have it put together, whatever else may be seen.
            .prepare_cached("SELECT line FROM main.entry WHERE seq = ? AND base IS NULL")
            .and_then(|mut select| select.query_row([seq], |row| row.get(0)).optional())
            .map_err(sql("an entry"))?;
        let damaged =
            |why: String| JournalError::Corrupt(format!("entry {seq} is damaged ({why}); run `decklog verify`"));
        let blob = blob.ok_or_else(|| damaged("missing".to_owned()))?;
        let line: Bytes = self.codec.decompress(None, &blob).map_err(|error| damaged(error.to_string()))?.into();
        self.bases.put(seq, Line { op: EntryType::Added, bytes: line.clone(), object: 0..0, shape: None });
        Ok(line)
    }
}

fn stored_row(row: &Row<'_>) -> rusqlite::Result<Stored> {
    Ok(Stored { seq: row.get(0)?, op: row.get(1)?, base: row.get(2)?, blob: row.get(3)? })
}

fn resource_of(facts: &str) -> Resource {
    serde_json::from_str(facts).unwrap_or_else(|_| Resource {
        group: String::new(),
        version: String::new(),
        kind: "unreadable".to_owned(),
        plural: "unreadable".to_owned(),
        singular: String::new(),
        short_names: Vec::new(),
        namespaced: false,
    })
}
