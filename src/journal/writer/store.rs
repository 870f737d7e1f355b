//! Entries on their way to the table and back: rendered once, kept as differences.
//!
//! # Decision: the object table points into the log
//!
//! Context: The last state of an object is needed for the next difference.
//! Decision: It is the newest entry, so it is not stored twice. Only if no entry has it (a suppressed change, a silent first
//! list) the row holds the bytes, as a difference of the object's base. A row outlives its object, so that a replayed event of
//! a deleted one is recognized.
//! Cost: A row for every object ever seen, until its last entry is truncated.
//!
//! # Decision: damage stops nothing that follows
//!
//! Context: A stored version may be unreadable.
//! Decision: The next change gets a patch that replaces the whole object, and a deletion the contents of the table. Sinks that
//! need the damaged entry halt. A damaged body of a list makes the source list again, with GAP `audit`.
//! Cost: One entry without a useful patch.
//!
//! # Decision: a state is redacted again when it is emitted again
//!
//! Context: States from before a change of rules can reappear as `was` or as the last state.
//! Decision: They are redacted by the present rules, and earlier replacements stay, so that only real changes look like one.
//! Cost: The writer remembers when the rules changed last.

use bytes::Bytes;
use jiff::Timestamp;
use rusqlite::params;

use super::{Known, Marks, Transaction, micros, rfc3339, sql, type_code, type_of};
use crate::core::change::{self, Change, Shape};
use crate::core::model::{EntryType, Evidence, Gap, Observed, Redacted, ResourceVersion, Seq, Unread, Why};
use crate::core::runtime;
use crate::core::wire::{self, EntryBuilder};
use crate::journal::JournalError;
use crate::journal::codec::Codec;
use crate::journal::error::Result;
use crate::journal::recent::{Line, Packed};

/// Microseconds by which the clock of the API server may be ahead of ours.
const AHEAD: i64 = 600_000_000;
/// The seq of a new entry, and that of the entry which the next version is stored as a difference of.
#[derive(Clone, Copy)]
pub(super) struct Emitted {
    pub(super) seq: u64,
    pub(super) base: u64,
}

/// What is known of a new version beside its bytes.
pub(super) enum Beside<'f> {
    Nothing,
    /// The difference from the version before, and its shape.
    Change(Change, Shape),
    /// The object as it was staged.
    Frame(Frame<'f>),
}

/// An object as it was staged.
#[derive(Clone, Copy)]
pub(super) struct Frame<'f> {
    /// Its bytes as a zstd frame.
    pub(super) zstd: &'f [u8],
    /// Its newest stamp.
    pub(super) newest: Option<Timestamp>,
}

impl Transaction<'_> {
    /// Writes one entry. Gives its seq and the seq of the entry that the object's next one is a difference of.
    #[expect(clippy::too_many_arguments, reason = "the columns of one row, each of another type")]
    pub(super) fn emit(
        &mut self,
        source_id: i64,
        row: Option<i64>,
        previous: u64,
        base: Option<u64>,
        op: EntryType,
        evidence: Evidence,
        object: &Observed,
        beside: Beside<'_>,
    ) -> Result<Emitted> {
        let (change, frame) = match beside {
            Beside::Nothing => (None, None),
            Beside::Change(change, shape) => (Some((change, shape)), None),
            Beside::Frame(frame) => (None, Some(frame)),
        };
        let base_line = match base.map(|seq| self.line(seq)).transpose() {
            // One that is damaged carries nothing: this entry stands alone.
            Err(JournalError::Corrupt(_)) => None,
            other => other?,
        };
        let base = base.filter(|_| base_line.is_some());
        let now = micros(runtime::now());
        let time = rfc3339(now);
        let seq = self.changes.head + 1;
        // A deletion moves no stamp of the object.
        let happened = match (&change, frame, op) {
            (Some((change, _)), ..) => change.happened,
            (None, Some(frame), _) => frame.newest,
            (None, None, EntryType::Added) => change::newest_stamp(&object.body.bytes),
            (None, None, _) => None,
        };
        // A stamp of the future, or of before the years that RFC 3339 has, says nothing of when it happened.
        let latest = now.saturating_add(AHEAD);
        let happened = happened.filter(|time| (0..=latest).contains(&time.as_microsecond()));
        let moment = self.moment_of(source_id, (op, evidence), object, happened, now)?;
        let bounds = moment.bounds.map(|(earliest, latest)| [rfc3339(earliest), rfc3339(latest)]);
        let source = self.source(source_id)?;
        let happened = happened.map(|time| time.to_string());
        // A watch brings the last state of what is deleted, or nothing.
        let is_found = op == EntryType::Deleted && evidence != Evidence::Watched;
        let since = row.filter(|_| is_found).map(|row| self.unreadable_since(source_id, row)).transpose()?.flatten();
        let to = Some(object.version.clone()).filter(|_| evidence == Evidence::Recovered);
        let gap = since.map(|from| Gap { why: Why::Unreadable, from: Some(from), to, recovered: 0 });
        let rendered = wire::render(&EntryBuilder {
            seq: Seq(seq),
            epoch: self.epoch(),
            time: &time,
            happened: happened.as_deref(),
            happened_between: bounds.as_ref().map(|[earliest, latest]| [&**earliest, &**latest]),
            op,
            evidence: Some(evidence),
            cluster: self.cluster(),
            api_version: &source.api_version,
            kind: &source.facts.kind,
            resource: &source.facts.plural,
            namespace: &object.namespace,
            name: &object.name,
            uid: &object.uid,
            version: object.version.as_str(),
            managers: wire::managers(op, evidence, &object.body.bytes).as_deref(),
            change: change.as_ref().map(|(change, _)| change.json.as_str()),
            object: Some(&object.body.bytes),
            gap: gap.as_ref().map(|gap| (gap, None)),
            actor: None,
            redacted: &object.body.pointers,
        });
        let (blob, stands_alone) = match frame {
            Some(frame) => (self.codec.enclose(&rendered.line, rendered.object.clone(), frame.zstd), true),
            None => self.compress_version(base_line.as_ref(), &rendered.line, rendered.object.start),
        };
        let used = base.filter(|_| !stands_alone);
        self.insert(seq, now, op, source_id, row, previous, used, &rendered.object, (&rendered.line, &blob))?;
        if let Some(since) = moment.late_since {
            self.note_late(seq, since)?;
        }
        let shape = change.map(|(_, shape)| shape);
        // Nobody compares anything with the one before any more.
        self.packed.remove(previous);
        if let Some(base) = used {
            let (object, shape) = (rendered.object.clone(), shape.clone());
            self.packed.put(seq, Packed { base, blob: blob.into(), op, object, shape });
        }
        self.recent.put(seq, Line { op, bytes: rendered.line.into(), object: rendered.object, shape });
        Ok(Emitted { seq, base: used.unwrap_or(seq) })
    }

    /// A line or an object as a difference of a line, or alone: one that has drifted far from its base, where that makes
    /// what comes after it smaller. `at` is where the object stands in it.
    pub(super) fn compress_version(&mut self, base: Option<&Line>, bytes: &[u8], at: usize) -> (Vec<u8>, bool) {
        let Some(base) = base else { return (self.codec.compress(None, bytes), true) };
        let difference = self.codec.compress_version((&base.bytes, base.object.start), (bytes, at));
        if difference.len() > 512 + bytes.len() / 12 {
            let alone = self.codec.compress(None, bytes);
            if alone.len() < difference.len() * 2 {
                return (alone, true);
            }
        }
        (difference, false)
    }

    #[expect(clippy::too_many_arguments, reason = "the columns of one row, each of another type")]
    pub(super) fn insert(
        &mut self,
        seq: u64,
        now: i64,
        op: EntryType,
        source: i64,
        row: Option<i64>,
        previous: u64,
        base: Option<u64>,
        object: &std::ops::Range<usize>,
        (line, blob): (&[u8], &[u8]),
    ) -> Result {
        self.execute(
            "write an entry",
            "INSERT INTO entry VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            params![seq, now, type_code(op), source, row, previous, base, object.start, object.end, blob],
        )?;
        // Invariant 4: dense, and never given out again, because the row and this number live and die together.
        self.changes.head = seq;
        self.note_digest(line);
        Ok(())
    }

    /// The version up to which nothing of a source is missing: not the newest one, of which more may have been to come.
    pub(super) fn last_good(&self, source_id: i64) -> Result<Option<ResourceVersion>> {
        let source = self.source(source_id)?;
        Ok(source
            .checkpoint
            .resume
            .as_ref()
            .or(source.last_good.as_ref())
            .or(source.checkpoint.applied.as_ref())
            .cloned())
    }

    /// Writes a GAP: of the whole source, or of one object that cannot be recorded.
    pub(super) fn gap(
        &mut self,
        source_id: i64,
        why: Why,
        from: Option<ResourceVersion>,
        to: Option<ResourceVersion>,
        of: Option<&Unread>,
    ) -> Result {
        let source = self.source(source_id)?;
        // What contradicts the journal may have been missing ever since something was last verified.
        let good_at =
            if why == Why::Audit { source.verified.as_ref().map_or(0, |(_, at)| *at) } else { source.good_at };
        self.gap_since(source_id, why, (from, to), of, good_at)
    }

    /// Records a gap of which the last moment known good is given, in microseconds since 1970; 0 for none.
    pub(super) fn gap_since(
        &mut self,
        source_id: i64,
        why: Why,
        (from, to): (Option<ResourceVersion>, Option<ResourceVersion>),
        of: Option<&Unread>,
        good_at: i64,
    ) -> Result {
        let now = micros(runtime::now());
        let recovered = self
            .conn
            .prepare_cached("SELECT recovered_since FROM source WHERE id = ?")
            .and_then(|mut select| select.query_row([source_id], |row| row.get(0)))
            .map_err(sql("read a source"))?;
        let gap = Gap { why, from, to, recovered };
        let source = self.source(source_id)?;
        let since = (good_at > 0).then(|| rfc3339(good_at));
        let seq = self.changes.head + 1;
        // A source of one namespace has nothing of another.
        let namespace = match of {
            Some(of) if source.namespace.is_empty() => &of.namespace,
            Some(_) | None => &source.namespace,
        };
        let rendered = wire::render(&EntryBuilder {
            seq: Seq(seq),
            epoch: self.epoch(),
            time: &rfc3339(now),
            happened: None,
            happened_between: None,
            op: EntryType::Gap,
            evidence: None,
            cluster: self.cluster(),
            api_version: &source.api_version,
            kind: &source.facts.kind,
            resource: &source.facts.plural,
            namespace,
            name: of.map_or("", |of| &of.name),
            uid: "",
            version: "",
            managers: None,
            change: None,
            object: None,
            gap: Some((&gap, since.as_deref())),
            actor: None,
            redacted: &[],
        });
        let blob = self.codec.compress(None, &rendered.line);
        self.insert(seq, now, EntryType::Gap, source_id, None, 0, None, &(0..0), (&rendered.line, &blob))?;
        if good_at > 0 {
            self.note_late(seq, good_at)?;
        }
        self.recent.put(seq, Line { op: EntryType::Gap, bytes: rendered.line.into(), object: 0..0, shape: None });
        self.execute(
            "count a gap",
            "UPDATE source SET gaps = gaps + 1, recovered_since = 0 WHERE id = ?",
            params![source_id],
        )?;
        Ok(())
    }

    /// A stored entry and where its object stands.
    pub(super) fn line(&mut self, seq: u64) -> Result<Line> {
        if let Some(line) = self.bases.get(seq) {
            return Ok(line);
        }
        let packed = self.packed.get(seq);
        if let Some(line) = self.recent.peek(seq) {
            // It is wanted again when the object changes next, while what is only sent goes by.
            return Ok(if packed.is_some() { line } else { self.bases.put(seq, line) });
        }
        if let Some(packed) = packed {
            return self.unpack(seq, packed);
        }
        let (base, object, blob, op) = self
            .conn
            .prepare_cached("SELECT base, object_start, object_end, line, type FROM entry WHERE seq = ?")
            .and_then(|mut select| {
                select.query_row([seq], |row| {
                    let object = row.get::<_, usize>(1)?..row.get(2)?;
                    Ok((row.get::<_, Option<u64>>(0)?, object, row.get::<_, Vec<u8>>(3)?, row.get::<_, i64>(4)?))
                })
            })
            .map_err(sql("read an entry"))?;
        let op = type_of(op).ok_or_else(|| damaged(seq, &"unknown type"))?;
        if let Some(base) = base {
            let packed = Packed { base, blob: blob.into(), op, object, shape: None };
            return self.unpack(seq, self.packed.put(seq, packed));
        }
        let bytes = self.codec.decompress(None, &blob).map_err(|error| damaged(seq, &error))?;
        bytes.get(object.clone()).ok_or_else(|| damaged(seq, &"it is not what its row says"))?;
        Ok(self.bases.put(seq, Line { op, bytes: bytes.into(), object, shape: None }))
    }

    fn unpack(&mut self, seq: u64, packed: Packed) -> Result<Line> {
        let base = self.line(packed.base)?;
        let bytes = self.codec.decompress(Some(&base.bytes), &packed.blob).map_err(|error| damaged(seq, &error))?;
        let Packed { op, object, shape, .. } = packed;
        bytes.get(object.clone()).ok_or_else(|| damaged(seq, &"it is not what its row says"))?;
        Ok(Line { op, bytes: bytes.into(), object, shape })
    }

    /// Returns the identity of an object whose last state is damaged.
    pub(super) fn stub(&self, source: i64, known: &Known, namespace: &str, name: &str) -> Result<Vec<u8>> {
        let source = self.source(source)?;
        let mut metadata = serde_json::Map::new();
        for (key, value) in
            [("name", name), ("namespace", namespace), ("uid", &known.uid), ("resourceVersion", known.version.as_str())]
        {
            if !value.is_empty() {
                metadata.insert(key.to_owned(), value.into());
            }
        }
        let object = serde_json::json!({
            "apiVersion": source.facts.api_version(), "kind": source.facts.kind, "metadata": metadata
        });
        Ok(object.to_string().into_bytes())
    }

    /// The object as the log last recorded it, which the next patch starts from; its shape where that is at hand; and its
    /// marks where they are others than the row has.
    pub(super) fn recorded_state(
        &mut self,
        source: i64,
        known: &Known,
    ) -> Result<(Bytes, Option<Shape>, Option<Marks>)> {
        let line = if known.last == 0 { None } else { Some(self.line(known.last)?) };
        match line {
            // A silent list found it again under the name of the dead, and nothing of it has been recorded yet.
            Some(line) if line.op != EntryType::Deleted || !known.has_state => {
                if !self.is_older(known.last) {
                    return Ok((line.object(), line.shape, None));
                }
                let stored = recorded(known, &line)?;
                let body = self.redact_again(source, &known.uid, stored)?;
                Ok((body.bytes.into(), None, Some(body.marks)))
            }
            Some(_) | None => {
                let body = self.current_state(source, known)?;
                Ok((body.bytes.into(), None, Some(body.marks)))
            }
        }
    }

    /// Keeps the shape of an entry's object at hand: what is suppressed is compared with that entry again and again.
    pub(super) fn keep_shape(&mut self, seq: u64, shape: Shape) {
        if let Some(packed) = self.packed.get(seq) {
            self.packed.put(seq, Packed { shape: Some(shape), ..packed });
        } else if let Some(line) = self.bases.get(seq) {
            self.bases.put(seq, Line { shape: Some(shape), ..line });
        }
    }

    /// The object as it was last seen, and what was redacted in it.
    pub(super) fn current_state(&mut self, source: i64, known: &Known) -> Result<Redacted> {
        if known.has_state {
            let (blob, pointers): (Vec<u8>, Option<String>) = self
                .conn
                .query_row("SELECT state, pointers FROM object WHERE id = ?", [known.id], |row| {
                    Ok((row.get(0)?, row.get(1)?))
                })
                .map_err(sql("read an object"))?;
            // As a difference it is one of the entry that the object's versions are differences of.
            let base = if Codec::is_difference(&blob) {
                let missing = || JournalError::Corrupt("a stored object: its base is not known".to_owned());
                Some(self.line(known.base.ok_or_else(missing)?)?)
            } else {
                None
            };
            let bytes = self
                .codec
                .decompress(base.as_ref().map(|line| &*line.bytes), &blob)
                .map_err(|error| JournalError::Corrupt(format!("a stored object: {error}")))?;
            let pointers = pointers.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
            // Nothing says by which rules it was redacted.
            return self.redact_again(source, &known.uid, Redacted { bytes, pointers, marks: known.marks.clone() });
        }
        let line = self.line(known.last)?;
        let stored = recorded(known, &line)?;
        if self.is_older(known.last) { self.redact_again(source, &known.uid, stored) } else { Ok(stored) }
    }

    /// Reports whether an entry was written under other redaction rules than the present ones.
    fn is_older(&self, seq: u64) -> bool {
        self.rules().is_some_and(|rules| seq <= rules.since)
    }

    /// Redacts a stored state by the present rules before it is emitted again: clear values from earlier rules go only to those
    /// who have them already.
    pub(super) fn redact_again(&self, source: i64, uid: &str, stored: Redacted) -> Result<Redacted> {
        let Some(rules) = self.rules() else { return Ok(stored) };
        rules
            .redactor
            .again(&self.source(source)?.facts, uid, stored)
            .map_err(|error| JournalError::Corrupt(format!("a stored object: {error}")))
    }
}

fn damaged(seq: u64, why: &dyn std::fmt::Display) -> JournalError {
    JournalError::Corrupt(format!("entry {seq}: {why}; run `decklog verify`"))
}

fn recorded(known: &Known, line: &Line) -> Result<Redacted> {
    let entry = wire::Entry::parse(&line.bytes)
        .map_err(|error| JournalError::Corrupt(format!("entry {}: {error}", known.last)))?;
    let pointers = entry.redacted.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default();
    Ok(Redacted { bytes: line.object().to_vec(), pointers, marks: known.marks.clone() })
}
