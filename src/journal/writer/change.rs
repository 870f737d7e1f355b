//! Meaning of a change: decided by the state that the same transaction reads, and written with the resulting state.
//!
//! # Decision: the writer decides what a change is
//!
//! Context: A line may be new, a replay or another incarnation, which depends on the stored state.
//! Decision: The writer thread decides it in the transaction that writes that state. Sources pass on what they saw, so there
//! is nothing to agree about.
//! Cost: One comparison, one compression and three rows on one thread: tens of microseconds for each change.

use std::collections::BTreeMap;
use std::sync::Arc;

use rusqlite::{OptionalExtension, params};

use super::store::{Beside, Frame};
use super::{Known, Transaction, known_row, marks_json, pointers_json, sql};
use crate::core::change::{self, Shape};
use crate::core::model::{EntryType, Evidence, Observed, Redacted, ResourceVersion, Verb};
use crate::journal::error::Result;
use crate::journal::{JournalError, WatchChange};

impl Transaction<'_> {
    /// Handles a bookmark: everything up to `version` was appended.
    pub(super) fn bookmark(&mut self, id: i64, version: &ResourceVersion) {
        let at = self.at;
        if let Some(source) = self.touch(id).filter(|source| source.lost.is_none()) {
            source.behind = None;
            source.move_good(version, at);
            source.dates = Arc::default();
            source.checkpoint.bookmark(version);
            source.moved = true;
        }
    }

    /// Handles that a watch of a source is behind, since a time or since nothing was missing last.
    pub(super) fn fall_behind(&mut self, id: i64, since: Option<i64>) {
        if let Some(source) = self.touch(id) {
            let good = Some(source.good_at).filter(|good| *good > 0);
            source.behind = [source.behind, since.or(good)].into_iter().flatten().min();
        }
    }

    /// Handles that versions around those of a source that follow are dated.
    pub(super) fn take_dates(&mut self, id: i64, dates: &Arc<BTreeMap<u64, (i64, i64)>>) {
        if let Some(source) = self.touch(id) {
            source.dates = Arc::clone(dates);
        }
    }

    /// Handles that a watch of a source has brought everything up to now.
    pub(super) fn catch_up(&mut self, id: i64) {
        if let Some(source) = self.touch(id) {
            source.behind = None;
            source.dates = Arc::default();
        }
    }

    /// One line of a watch: decided by the state, so that a replayed one changes nothing.
    pub(super) fn change(&mut self, id: i64, change: &WatchChange) -> Result {
        let source = self.source(id)?;
        let object = &change.object;
        if source.lost.is_some() {
            return Ok(());
        }
        let late = source.checkpoint.is_past(&object.version);
        // A version past what was applied is of a timeline that a rollback has undone: it says nothing about this one.
        let applied = source.checkpoint.applied.as_ref();
        let undone = |known: &Known| applied.is_some_and(|applied| applied.is_before(&known.version));
        let known = self.known(source.resource, &object.namespace, &object.name)?;
        if late {
            // Written now it would stand behind what came after it.
            return if self.was_recorded(known.as_ref(), object)? { Ok(()) } else { self.reject_inconsistent(id) };
        }
        match (change.verb, known) {
            (Verb::Upsert, Some(known)) if known.present && known.uid == object.uid => {
                if !object.version.is_not_after(&known.version) {
                    self.modified(id, &known, object, Evidence::Watched)?;
                }
            }
            // The deletion of the older incarnation never came.
            (Verb::Upsert, Some(known)) if known.present => return self.reject_inconsistent(id),
            (Verb::Upsert, Some(known))
                if known.uid == object.uid && !undone(&known) && object.version.is_not_after(&known.version) => {}
            (Verb::Upsert, known) => self.added(id, known.map(|known| known.id), object, Evidence::Watched, None)?,
            (Verb::Delete, Some(known)) if known.present && known.uid == object.uid => {
                if !object.version.is_before(&known.version) {
                    self.deleted(id, &known, object, Evidence::Watched)?;
                }
            }
            (Verb::Delete, Some(known)) if known.uid == object.uid && object.version.is_not_after(&known.version) => {}
            // Whatever is deleted was there, and nobody said so.
            (Verb::Delete, _) => return self.reject_inconsistent(id),
        }
        let at = self.at;
        if let Some(source) = self.touch(id) {
            source.checkpoint.advance(&object.version);
            source.move_good(&object.version, at);
            source.moved = true;
        }
        Ok(())
    }

    pub(super) fn known(&self, resource: i64, namespace: &str, name: &str) -> Result<Option<Known>> {
        self.conn
            .prepare_cached(
                "SELECT id, uid, version, present, last, base, state IS NOT NULL, marks FROM object
                 WHERE resource = ? AND namespace = ? AND name = ?",
            )
            .and_then(|mut select| select.query_row(params![resource, namespace, name], known_row).optional())
            .map_err(sql("look an object up"))
    }

    /// Writes the first entry of an incarnation. `frame` is its object as it was staged, where it was.
    pub(super) fn added(
        &mut self,
        source: i64,
        row: Option<i64>,
        object: &Observed,
        evidence: Evidence,
        frame: Option<Frame<'_>>,
    ) -> Result {
        let beside = frame.map_or(Beside::Nothing, Beside::Frame);
        let Some(row) = row else { return self.added_first(source, object, evidence, beside) };
        // Read again: the entry of an older incarnation may have been written a moment ago.
        let previous = self
            .conn
            .prepare_cached("SELECT last FROM object WHERE id = ?")
            .and_then(|mut select| select.query_row([row], |row| row.get(0)))
            .map_err(sql("look an object up"))?;
        let emitted = self.emit(source, Some(row), previous, None, EntryType::Added, evidence, object, beside)?;
        self.execute(
            "remember an object",
            "UPDATE object SET uid = ?, version = ?, present = 1, last = ?4, base = ?4, state = NULL, marks = ?5, pointers = NULL
             WHERE id = ?3",
            params![object.uid, object.version.as_str(), row, emitted.seq, marks_json(&object.body)],
        )?;
        Ok(())
    }

    /// Writes the first entry of an object that has no row, and its row with the seq that the entry gets.
    fn added_first(&mut self, source: i64, object: &Observed, evidence: Evidence, beside: Beside<'_>) -> Result {
        let (resource, seq) = (self.source(source)?.resource, self.changes.head + 1);
        self.execute(
            "remember an object",
            "INSERT INTO object (resource, namespace, name, uid, version, present, last, base, marks)
             VALUES (?1, ?2, ?3, ?4, ?5, 1, ?6, ?6, ?7)",
            params![
                resource,
                object.namespace,
                object.name,
                object.uid,
                object.version.as_str(),
                seq,
                marks_json(&object.body)
            ],
        )?;
        let row = self.conn.last_insert_rowid();
        let emitted = self.emit(source, Some(row), 0, None, EntryType::Added, evidence, object, beside)?;
        debug_assert_eq!((emitted.seq, emitted.base), (seq, seq), "the entry has the seq that the row names");
        Ok(())
    }

    /// The row of an object, made when there is none.
    pub(super) fn object_row(&mut self, source: i64, row: Option<i64>, object: &Observed) -> Result<i64> {
        if let Some(row) = row {
            return Ok(row);
        }
        let resource = self.source(source)?.resource;
        self.execute(
            "remember an object",
            "INSERT INTO object (resource, namespace, name, uid, version, present, last) VALUES (?, ?, ?, ?, ?, 0, 0)",
            params![resource, object.namespace, object.name, object.uid, object.version.as_str()],
        )?;
        Ok(self.conn.last_insert_rowid())
    }

    pub(super) fn modified(&mut self, source: i64, known: &Known, object: &Observed, evidence: Evidence) -> Result {
        let new = &object.body.bytes;
        let mut read = None;
        let compared = match self.recorded_state(source, known) {
            Ok((previous, shape, marks)) => {
                let stored = marks.is_none();
                let marks = marks.as_ref().unwrap_or(&known.marks);
                if shape.is_none() && stored {
                    read = Shape::of(&previous);
                }
                change::compare_shaped(&previous, shape.as_ref().or(read.as_ref()), new, marks, &object.body.marks)
            }
            // What is damaged cannot be had again, but what follows it can be recorded.
            Err(JournalError::Corrupt(text)) => {
                tracing::error!(
                    "{text}: the next change of {}/{} is recorded as a whole",
                    object.namespace,
                    object.name
                );
                change::replaced(new)
            }
            Err(error) => return Err(error),
        };
        let (change, shape) = compared
            .or_else(|_| change::replaced(new))
            .map_err(|error| JournalError::Corrupt(format!("an object cannot be compared: {error}")))?;
        let ignore = &self.source(source)?.ignore;
        if !ignore.is_empty() && ignore.covers(&change.touched) {
            self.suppressed(source);
            if let Some(shape) = read {
                self.keep_shape(known.last, shape);
            }
            return self.suppress(known, object);
        }
        let kind = EntryType::Modified;
        let beside = Beside::Change(change, shape);
        let emitted = self.emit(source, Some(known.id), known.last, known.base, kind, evidence, object, beside)?;
        self.execute(
            "remember an object",
            "UPDATE object SET version = ?, last = ?, base = ?, state = NULL, marks = ?, pointers = NULL WHERE id = ?",
            params![object.version.as_str(), emitted.seq, emitted.base, marks_json(&object.body), known.id],
        )?;
        Ok(())
    }

    /// State and position move, the log does not.
    fn suppress(&mut self, known: &Known, object: &Observed) -> Result {
        let base = match known.base.map(|seq| self.line(seq)).transpose() {
            // What is damaged is of no use here.
            Err(JournalError::Corrupt(_)) => None,
            other => other?,
        };
        let (state, _) = self.compress_version(base.as_ref(), &object.body.bytes, 0);
        self.execute(
            "remember an object",
            "UPDATE object SET version = ?, state = ?, marks = ?, pointers = ? WHERE id = ?",
            params![object.version.as_str(), state, marks_json(&object.body), pointers_json(&object.body), known.id],
        )?;
        Ok(())
    }

    /// Keeps the state of an object that a first list found and that is not emitted. `frame` is the object as it was staged,
    /// unless it was redacted again.
    pub(super) fn remember(&mut self, row: i64, object: &Observed, frame: Option<Frame<'_>>) -> Result {
        let made = if frame.is_none() { self.codec.compress(None, &object.body.bytes) } else { Vec::new() };
        let state = frame.map_or(&*made, |frame| frame.zstd);
        self.execute(
            "remember an object",
            "UPDATE object SET uid = ?, version = ?, present = 1, state = ?, marks = ?, pointers = ? WHERE id = ?",
            params![
                object.uid,
                object.version.as_str(),
                state,
                marks_json(&object.body),
                pointers_json(&object.body),
                row
            ],
        )?;
        Ok(())
    }

    pub(super) fn deleted(&mut self, source: i64, known: &Known, object: &Observed, evidence: Evidence) -> Result {
        let kind = EntryType::Deleted;
        let beside = Beside::Nothing;
        let emitted = self.emit(source, Some(known.id), known.last, known.base, kind, evidence, object, beside)?;
        self.execute(
            "remember that an object is gone",
            "UPDATE object SET version = ?, present = 0, last = ?, base = NULL, state = NULL, marks = NULL, pointers = NULL
             WHERE id = ?",
            params![object.version.as_str(), emitted.seq, known.id],
        )?;
        Ok(())
    }

    /// Returns the last state for a deletion. If it is damaged, that is the contents of the table.
    pub(super) fn last_state(&mut self, source: i64, known: &Known, namespace: &str, name: &str) -> Result<Redacted> {
        match self.current_state(source, known) {
            Err(JournalError::Corrupt(text)) => {
                tracing::error!("{text}: the last state of {namespace}/{name} is not recorded with its deletion");
                let bytes = self.stub(source, known, namespace, name)?;
                Ok(Redacted { bytes, pointers: Vec::new(), marks: Vec::new() })
            }
            state => state,
        }
    }

    /// A deletion that nobody saw: recorded with the last known state.
    pub(super) fn vanished(&mut self, source: i64, known: &Known, namespace: &str, name: &str) -> Result {
        let body = self.last_state(source, known, namespace, name)?;
        let object = Observed {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            uid: known.uid.clone(),
            version: known.version.clone(),
            body,
        };
        self.deleted(source, known, &object, Evidence::Inferred)
    }
}
