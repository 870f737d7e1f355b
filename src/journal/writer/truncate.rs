//! Truncation: the oldest entries go in slices between commits, and their space goes back to the file system.
//!
//! What is truncated is below the start of the log, and nobody gets it any more. Of each object the newest truncated
//! entry stays in the table, pinned (the table `held`), as what later ones stand on: it is the object's state at the start
//! of the log, the base of differences, and the last state of an object that has not changed since. So nothing that is
//! kept has to be written again, and every moment from the start of the log on can still be shown.
//!
//! # Decision: pinned entries outlive truncation
//!
//! Context: Later differences and `get --at` need states from before the log start.
//! Decision: The newest truncated entry of an object and its base stay pinned. Nothing that stays is encoded again, truncation
//! costs the same for any history, and every moment from the log start on has its state. It runs in slices of 256 entries or 1
//! MiB, between two commits.
//! Cost: Two rows for each object.

use std::collections::HashMap;

use rusqlite::{OptionalExtension, params};
use tokio::time::Instant;

use super::{Transaction, Writer, micros, sql, type_code};
use crate::core::model::{EntryType, ResourceVersion};
use crate::core::runtime;
use crate::core::wire;
use crate::journal::error::Result;
use crate::journal::retention::{PAGE, SLICE_BYTES, SLICE_ENTRIES, SLICE_PAGES};
use crate::journal::{JournalError, outline};

/// Extent to which the log may be truncated now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Truncatable {
    /// Up to this seq …
    upto: u64,
    /// … and only what was journaled before this time, microseconds since 1970.
    before: i64,
}

/// One row on its way out.
struct Leaving {
    seq: u64,
    kind: i64,
    source: i64,
    object: Option<i64>,
    base: Option<u64>,
}

impl Writer {
    /// Work that waits until nothing else does: one slice of it. Says whether there may be more.
    pub(super) fn tidy(&mut self) -> Result<bool> {
        if self.quota.bounds.is_none() || !self.quota.has_wal() {
            return Ok(false);
        }
        if let Some(bound) = self.truncatable()? {
            self.transact(|transaction| {
                transaction.begin()?;
                transaction.truncate(bound)
            })?;
            return Ok(true);
        }
        if self.committed.leaves_leave {
            self.transact(|transaction| {
                transaction.begin()?;
                transaction.drop_leaves()
            })?;
            return Ok(true);
        }
        // Some pages stay: what is written next takes them again.
        let keep = (self.quota.used / PAGE / 16).max(64);
        if self.quota.free_pages > keep {
            let pages = (self.quota.free_pages - keep).min(self.slice_pages());
            self.transact(|transaction| {
                transaction.begin()?;
                transaction.give_back(pages)
            })?;
            self.given_back = true;
            return Ok(true);
        }
        if std::mem::take(&mut self.given_back) {
            // The file becomes shorter when the write-ahead log is written back.
            self.checkpoint()?;
        }
        Ok(false)
    }

    fn slice_pages(&self) -> u64 {
        SLICE_PAGES.min(self.quota.sizes.group as u64 / PAGE).max(8)
    }

    /// Returns the extent to which the log may be truncated: by age what every sink has, at the full size likewise, or with
    /// `on_full = "drop_oldest"` also what some have not. Invariant 6.
    pub(super) fn truncatable(&mut self) -> Result<Option<Truncatable>> {
        let Some(bounds) = self.quota.bounds else { return Ok(None) };
        let what = "find what may be truncated";
        let newest = self.newest_to_truncate();
        let taken: Option<u64> = self
            .disk
            .conn
            .prepare_cached("SELECT min(cursor) FROM sink WHERE active = 1")
            .and_then(|mut select| select.query_row([], |row| row.get(0)))
            .map_err(sql(what))?;
        let taken = taken.unwrap_or(newest).min(newest);
        let high = self.quota.is_high();
        let upto = if high && bounds.drop_oldest { newest } else { taken };
        if upto < self.committed.log_start {
            return Ok(None);
        }
        if high {
            return Ok(Some(Truncatable { upto, before: i64::MAX }));
        }
        let age = i64::try_from(bounds.max_age.as_micros()).unwrap_or(i64::MAX);
        let time = self.clock.time(Instant::now(), micros(runtime::now()));
        let before = time.saturating_sub(age);
        let oldest: Option<i64> = self
            .disk
            .conn
            .prepare_cached("SELECT time FROM entry WHERE seq = ?")
            .and_then(|mut select| select.query_row([self.committed.log_start], |row| row.get(0)).optional())
            .map_err(sql(what))?;
        Ok(oldest.filter(|time| *time < before).map(|_| Truncatable { upto, before }))
    }

    /// The newest entry always stays, so that the log knows its end.
    const fn newest_to_truncate(&self) -> u64 {
        self.committed.head.saturating_sub(1)
    }

    /// Reports whether nothing is left but what is always kept.
    pub(super) const fn all_is_truncated(&self) -> bool {
        self.committed.log_start > self.newest_to_truncate()
    }
}

impl Transaction<'_> {
    /// Truncates the log by one slice.
    fn truncate(&mut self, bound: Truncatable) -> Result {
        let what = "truncate entries";
        let leaving = self.leaving(bound)?;
        let Some(last) = leaving.last().map(|row| row.seq) else {
            // Where rows are missing there is nothing to truncate but their numbers.
            return if bound.before == i64::MAX { self.set_log_start(bound.upto + 1) } else { Ok(()) };
        };
        self.note_what_leaves(&leaving)?;
        self.keep_dead_letters(self.changes.log_start, last)?;
        let mut newest: HashMap<i64, usize> = HashMap::new();
        for (at, row) in leaving.iter().enumerate() {
            if let Some(object) = row.object {
                newest.insert(object, at);
            }
        }
        let mut gone: Vec<u64> = Vec::new();
        for row in &leaving {
            match row.object {
                // Pinned for now; what of it is needed is said by the newest of its object.
                Some(object) => {
                    self.execute(what, "INSERT OR IGNORE INTO pinned VALUES (?, ?)", params![object, row.seq])?;
                }
                None => gone.push(row.seq),
            }
        }
        for (object, at) in newest {
            let row = &leaving[at];
            let dead = row.kind == type_code(EntryType::Deleted);
            // What follows a DELETED stands alone.
            let needed = if dead { (0, 0) } else { (row.seq, row.base.unwrap_or(row.seq)) };
            let mut select = self.conn.prepare_cached("SELECT seq FROM pinned WHERE object = ?").map_err(sql(what))?;
            let pinned = select.query_map([object], |row| row.get::<_, u64>(0)).map_err(sql(what))?;
            for seq in pinned {
                let seq = seq.map_err(sql(what))?;
                if seq != needed.0 && seq != needed.1 {
                    gone.push(seq);
                    self.execute(what, "DELETE FROM pinned WHERE object = ? AND seq = ?", params![object, seq])?;
                }
            }
            drop(select);
            if dead {
                self.drop_object(object, row)?;
            }
        }
        for seq in gone {
            self.execute(what, "DELETE FROM entry WHERE seq = ?", params![seq])?;
        }
        self.execute(what, "DELETE FROM late WHERE last <= ?", params![last])?;
        self.execute(what, "DELETE FROM absence WHERE until < (SELECT time FROM entry WHERE seq = ?)", params![last])?;
        self.execute(
            what,
            "UPDATE sink SET missed = missed + (?1 - max(cursor, ?2)) WHERE active = 1 AND cursor < ?1",
            params![last, self.changes.log_start - 1],
        )?;
        self.execute(
            what,
            "INSERT OR REPLACE INTO meta SELECT 'missed/' || name, ? FROM sink WHERE active = 1 AND cursor < ?",
            params![micros(runtime::now()).to_string(), last],
        )?;
        self.set_log_start(last + 1)
    }

    fn set_log_start(&mut self, log_start: u64) -> Result {
        let what = "truncate entries";
        self.execute(what, "INSERT OR REPLACE INTO meta VALUES ('oldest', ?)", params![log_start.to_string()])?;
        self.execute(what, "DELETE FROM actor WHERE seq < ?", params![log_start])?;
        self.execute(what, "DELETE FROM outline WHERE part < ?", params![outline::part_of(log_start)])?;
        self.forget_unwritten(log_start)?;
        self.changes.log_start = log_start;
        Ok(())
    }

    /// The rows of one slice.
    fn leaving(&self, bound: Truncatable) -> Result<Vec<Leaving>> {
        let what = "find what may be truncated";
        let most = SLICE_BYTES.min(self.quota.sizes.group as u64);
        let mut select = self
            .conn
            .prepare_cached(
                "SELECT seq, type, source, object, base, time, length(line) FROM entry
                 WHERE seq >= ? AND seq <= ? ORDER BY seq LIMIT ?",
            )
            .map_err(sql(what))?;
        let mut rows = select.query(params![self.changes.log_start, bound.upto, SLICE_ENTRIES]).map_err(sql(what))?;
        let (mut leaving, mut bytes) = (Vec::new(), 0);
        while let Some(row) = rows.next().map_err(sql(what))? {
            let mut read = || {
                let time: i64 = row.get(5)?;
                if bytes >= most || time >= bound.before {
                    return Ok(None);
                }
                bytes += row.get::<_, u64>(6)?;
                Ok(Some(Leaving {
                    seq: row.get(0)?,
                    kind: row.get(1)?,
                    source: row.get(2)?,
                    object: row.get(3)?,
                    base: row.get(4)?,
                }))
            };
            match read().map_err(sql(what))? {
                Some(row) => leaving.push(row),
                None => break,
            }
        }
        Ok(leaving)
    }

    /// Notes of each source what a sink that lacks these entries has to get.
    fn note_what_leaves(&mut self, leaving: &[Leaving]) -> Result {
        let mut last: HashMap<i64, u64> = HashMap::new();
        for row in leaving {
            last.insert(row.source, row.seq);
        }
        let now = micros(runtime::now());
        for (source, seq) in last {
            let version = match self.line(seq) {
                Ok(line) => wire::Entry::parse(&line.bytes)
                    .ok()
                    .and_then(|entry| entry.gap().map_or_else(|| Some(entry.version().to_string()), |gap| gap.to)),
                // What is damaged goes as everything else does; only where it ended is not known.
                Err(JournalError::Corrupt(text)) => {
                    tracing::error!("{text}: it is truncated as it is");
                    None
                }
                Err(error) => return Err(error),
            };
            self.execute(
                "truncate entries",
                "UPDATE source SET truncated = ?, truncated_version = ?, truncated_at = ? WHERE id = ?",
                params![seq, version, now, source],
            )?;
        }
        Ok(())
    }

    /// A dead letter stays, whatever is truncated: its list takes over the entry.
    fn keep_dead_letters(&mut self, first: u64, last: u64) -> Result {
        let what = "keep what was dead-lettered";
        let seqs: Vec<u64> = {
            let mut select = self
                .conn
                .prepare_cached("SELECT DISTINCT seq FROM dead_letter WHERE seq BETWEEN ? AND ? AND line IS NULL")
                .map_err(sql(what))?;
            let rows = select.query_map([first, last], |row| row.get(0)).map_err(sql(what))?;
            rows.collect::<Result<_, _>>().map_err(sql(what))?
        };
        for seq in seqs {
            let line = match self.line(seq) {
                Ok(line) => line,
                Err(JournalError::Corrupt(text)) => {
                    tracing::error!("{text}: it was dead-lettered, and cannot be delivered any more");
                    continue;
                }
                Err(error) => return Err(error),
            };
            let alone = self.codec.compress(None, &line.bytes);
            self.execute(what, "UPDATE dead_letter SET line = ? WHERE seq = ?", params![alone, seq])?;
        }
        Ok(())
    }

    /// The last that was kept of a dead object is truncated. Its row goes as well, where its source is past its last
    /// version, so that nothing of it can be recorded again.
    fn drop_object(&self, object: i64, row: &Leaving) -> Result {
        let what = "drop the row of an object";
        type Known = (u64, bool, String, Option<String>, Option<String>);
        let known: Option<Known> = self
            .conn
            .prepare_cached(
                "SELECT o.last, o.present, o.version, s.applied, s.resume
                 FROM object o JOIN source s ON s.id = ?2 WHERE o.id = ?1",
            )
            .and_then(|mut select| {
                select
                    .query_row([object, row.source], |row| {
                        Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?))
                    })
                    .optional()
            })
            .map_err(sql(what))?;
        let Some((last, present, version, applied, resume)) = known else { return Ok(()) };
        if last != row.seq {
            return Ok(());
        }
        let version = ResourceVersion(version);
        // Of versions without an order it is only known that the source is at another one, and that it goes on from another.
        let past = applied.map(ResourceVersion).is_some_and(|applied| match version.compare(&applied) {
            Some(order) => order.is_lt(),
            None => version != applied && resume.is_some_and(|resume| version.as_str() != resume),
        });
        if past && !present {
            self.execute(what, "DELETE FROM object WHERE id = ?", params![object])?;
        } else {
            self.execute(what, "UPDATE object SET last = 0, base = NULL WHERE id = ?", params![object])?;
        }
        Ok(())
    }

    /// Gives free pages back to the file system, in the open transaction.
    fn give_back(&self, pages: u64) -> Result {
        let what = "give space back";
        let mut vacuum = self.conn.prepare(&format!("PRAGMA incremental_vacuum({pages})")).map_err(sql(what))?;
        let mut rows = vacuum.query([]).map_err(sql(what))?;
        // One row for each page.
        while rows.next().map_err(sql(what))?.is_some() {}
        Ok(())
    }
}
