//! Read-only connections: what delivery, status and the commands read. They never block the writer.

use std::collections::HashMap;
use std::path::Path;

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, Row, params, params_from_iter};
use tokio::sync::watch;

use super::codec::Codec;
use super::recent::{Line, Recent};
use super::writer::{rfc3339, type_code, type_of};
use super::{JournalError, schema};
use crate::model::{Cluster, EntryType, Resource, Seq};
use crate::wire;

/// How many bytes of base entries a reader keeps at hand.
const BASES: usize = 4 << 20;

/// An entry as it is stored.
#[derive(Clone, Debug)]
pub struct StoredEntry {
    /// Its place.
    pub seq: Seq,
    /// What it says happened.
    pub kind: EntryType,
    /// The entry of the wire format, without a newline.
    pub line: Bytes,
}

/// Which entries a command asks for. Everything that is `None` or empty selects all.
#[derive(Clone, Debug, Default)]
pub struct Position {
    /// Resources and, for each, the one name asked for.
    pub objects: Vec<(i64, Option<String>)>,
    /// One namespace.
    pub namespace: Option<String>,
    /// Types.
    pub types: Vec<EntryType>,
    /// Not before, in microseconds since 1970.
    pub since: Option<i64>,
    /// Not after, in microseconds since 1970.
    pub until: Option<i64>,
}

/// A source as the journal last knew it.
#[derive(Clone, Debug)]
pub struct SourceRow {
    /// Its id.
    pub id: i64,
    /// The resource watched.
    pub resource: Resource,
    /// The namespace, empty for all.
    pub namespace: String,
    /// waiting, listing, watching, degraded or gone.
    pub state: String,
    /// What the state adds.
    pub detail: String,
    /// When the state began, microseconds since 1970.
    pub state_since: i64,
    /// The checkpoint.
    pub resume: Option<String>,
    /// When it was last known good, microseconds since 1970.
    pub good_at: Option<i64>,
    /// Objects known now.
    pub objects: u64,
    /// Gaps told.
    pub gaps: u64,
    /// Whether it is configured.
    pub active: bool,
}

impl SourceRow {
    /// The name in status and metrics: `deployments.apps` or `deployments.apps/shop`.
    #[must_use]
    pub fn name(&self) -> String {
        let resource = self.resource.full_name();
        if self.namespace.is_empty() { resource } else { format!("{resource}/{}", self.namespace) }
    }
}

/// A sink as the journal last knew it.
#[derive(Clone, Debug)]
pub struct SinkRow {
    /// Its name.
    pub name: String,
    /// Its type.
    pub kind: String,
    /// The last seq it has for good.
    pub cursor: Seq,
    /// The last seq that was really handed over: below the cursor where a filter left out what follows.
    pub written: Seq,
    /// running, retrying or halted.
    pub state: String,
    /// What the state adds.
    pub detail: String,
    /// When the state began, microseconds since 1970.
    pub state_since: i64,
    /// When it last took something, microseconds since 1970; 0 for never.
    pub delivered_at: i64,
    /// When the oldest entry that it lacks was journaled, microseconds since 1970.
    pub oldest_undelivered: Option<i64>,
    /// Entries set aside.
    pub aside: u64,
    /// Whether it is configured.
    pub active: bool,
}

/// An entry that a sink refused for ever.
#[derive(Clone, Debug)]
pub struct SetAside {
    /// Which sink.
    pub sink: String,
    /// Which entry.
    pub seq: Seq,
    /// Why.
    pub reason: String,
}

/// The last known state of one object.
#[derive(Clone, Debug)]
pub struct ObjectRow {
    /// Its resource.
    pub resource: Resource,
    /// Its namespace, empty for cluster-scoped.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// uid of its last incarnation.
    pub uid: String,
    /// Its last known version.
    pub version: String,
    /// Whether it exists.
    pub present: bool,
    /// seq of its newest entry, 0 for none.
    pub last: Seq,
    id: i64,
}

/// What `verify` found.
#[derive(Clone, Debug, Default)]
pub struct Verified {
    /// Entries read.
    pub entries: u64,
    /// Objects compared with the replay.
    pub objects: u64,
    /// GAP entries among the entries.
    pub gaps: u64,
    /// First and last seq read.
    pub range: Option<(Seq, Seq)>,
    /// Everything that is wrong, at most [`Verified::MOST`] of it.
    pub problems: Vec<String>,
}

impl Verified {
    /// How many problems are told.
    pub const MOST: usize = 50;

    fn problem(&mut self, text: String) {
        if self.problems.len() < Self::MOST {
            self.problems.push(text);
        }
    }
}

type Read<T> = Result<T, JournalError>;

fn sql(what: &'static str) -> impl FnOnce(rusqlite::Error) -> JournalError {
    move |source| JournalError::Sqlite { what: format!("cannot read {what} from the journal"), source }
}

struct Stored {
    seq: u64,
    kind: i64,
    base: Option<u64>,
    blob: Vec<u8>,
}

/// A read-only connection to a journal.
pub struct Reader {
    conn: Connection,
    codec: Codec,
    bases: Recent,
    /// Inside the daemon: what the writer has at hand, and how far that is on disk.
    recent: Option<(Recent, watch::Receiver<Seq>)>,
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
    pub fn open(dir: &Path) -> Read<Self> {
        Ok(Self {
            conn: schema::open_reader(dir)?,
            codec: Codec::default(),
            bases: Recent::with_budget(BASES),
            recent: None,
        })
    }

    /// As [`Reader::open`], beside the writer of this process.
    pub(super) fn beside(dir: &Path, recent: Recent, head: watch::Receiver<Seq>) -> Read<Self> {
        Ok(Self { recent: Some((recent, head)), ..Self::open(dir)? })
    }

    /// The newest seq, 0 for an empty journal.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub fn head(&self) -> Read<Seq> {
        self.conn
            .prepare_cached("SELECT coalesce(max(seq), 0) FROM entry")
            .and_then(|mut select| select.query_row([], |row| row.get(0).map(Seq)))
            .map_err(sql("the head"))
    }

    /// The oldest seq that is kept, 0 for an empty journal.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub fn oldest(&self) -> Read<Seq> {
        let oldest = self.conn.query_row("SELECT coalesce(min(seq), 0) FROM entry", [], |row| row.get(0).map(Seq));
        oldest.map_err(sql("the oldest entry"))
    }

    /// A number that changes whenever another connection has committed.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub fn data_version(&self) -> Read<i64> {
        self.conn.pragma_query_value(None, "data_version", |row| row.get(0)).map_err(sql("its state"))
    }

    /// The name of this journal.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub fn epoch(&self) -> Read<String> {
        self.meta("epoch")
    }

    /// The cluster that the journal belongs to.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub fn cluster(&self) -> Read<Cluster> {
        Ok(Cluster { name: self.meta("cluster_name")?, uid: self.meta("cluster_uid")? })
    }

    fn meta(&self, key: &str) -> Read<String> {
        let value = self.conn.query_row("SELECT value FROM meta WHERE key = ?", [key], |row| row.get(0)).optional();
        Ok(value.map_err(sql("its facts"))?.unwrap_or_default())
    }

    /// Entries with a seq above `after`, in order: at most `limit`, and about `max_bytes` bytes, but at least one
    /// where there is one.
    ///
    /// # Errors
    /// Where the database cannot be read or an entry is damaged.
    pub fn entries_after(&mut self, after: Seq, limit: usize, max_bytes: usize) -> Read<Vec<StoredEntry>> {
        if let Some((recent, head)) = &self.recent {
            // Only what is on disk: durable before visible.
            if let Some(found) = recent.range(after.0 + 1, head.borrow().0, limit, max_bytes) {
                let entry = |(seq, line): (u64, Line)| StoredEntry { seq: Seq(seq), kind: line.kind, line: line.bytes };
                return Ok(found.into_iter().map(entry).collect());
            }
        }
        let what = "entries";
        // Decompressed after the statement is done, so that no read transaction is held for long. Where the object ends in
        // the line is about how long the line is.
        let stored: Vec<Stored> = {
            let mut select = self
                .conn
                .prepare_cached(
                    "SELECT seq, type, base, line, object_end FROM entry WHERE seq > ? ORDER BY seq LIMIT ?",
                )
                .map_err(sql(what))?;
            let mut rows = select.query(params![after.0, limit]).map_err(sql(what))?;
            let (mut stored, mut bytes) = (Vec::new(), 0);
            while let Some(row) = rows.next().map_err(sql(what))? {
                bytes += row.get::<_, usize>(4).map_err(sql(what))?;
                stored.push(stored_row(row).map_err(sql(what))?);
                if bytes >= max_bytes {
                    break;
                }
            }
            stored
        };
        let (mut entries, mut bytes) = (Vec::with_capacity(stored.len()), 0);
        for row in stored {
            let entry = self.unpack(row)?;
            bytes += entry.line.len();
            entries.push(entry);
            if bytes >= max_bytes {
                break;
            }
        }
        Ok(entries)
    }

    /// One entry.
    ///
    /// # Errors
    /// Where the database cannot be read or the entry is damaged.
    pub fn entry(&mut self, seq: Seq) -> Read<Option<StoredEntry>> {
        let row = self
            .conn
            .prepare_cached("SELECT seq, type, base, line FROM entry WHERE seq = ?")
            .and_then(|mut select| select.query_row([seq.0], stored_row).optional())
            .map_err(sql("an entry"))?;
        row.map(|row| self.unpack(row)).transpose()
    }

    /// Entries that `position` selects, after `after`: oldest first, or with `newest_first` from the end backwards.
    ///
    /// # Errors
    /// Where the database cannot be read or an entry is damaged.
    pub fn select(
        &mut self,
        position: &Position,
        after: Seq,
        before: Option<Seq>,
        newest_first: bool,
        limit: usize,
    ) -> Read<Vec<StoredEntry>> {
        let what = "entries";
        let mut text = "SELECT e.seq, e.type, e.base, e.line FROM entry e JOIN source s ON s.id = e.source
             LEFT JOIN object o ON o.id = e.object WHERE e.seq > ?"
            .to_owned();
        let mut values: Vec<rusqlite::types::Value> = vec![after.0.cast_signed().into()];
        if let Some(before) = before {
            text.push_str(" AND e.seq < ?");
            values.push(before.0.cast_signed().into());
        }
        if !position.objects.is_empty() {
            let mut any = Vec::new();
            for (resource, name) in &position.objects {
                values.push((*resource).into());
                match name {
                    Some(name) => {
                        any.push("(s.resource = ? AND (o.name = ? OR e.object IS NULL))");
                        values.push(name.clone().into());
                    }
                    None => any.push("s.resource = ?"),
                }
            }
            text.push_str(&format!(" AND ({})", any.join(" OR ")));
        }
        if let Some(namespace) = &position.namespace {
            text.push_str(" AND (o.namespace = ? OR (e.object IS NULL AND s.namespace IN ('', ?)))");
            values.push(namespace.clone().into());
            values.push(namespace.clone().into());
        }
        if !position.types.is_empty() {
            text.push_str(&format!(" AND e.type IN ({})", vec!["?"; position.types.len()].join(", ")));
            values.extend(position.types.iter().map(|kind| type_code(*kind).into()));
        }
        for (bound, operator) in [(position.since, ">="), (position.until, "<=")] {
            if let Some(bound) = bound {
                text.push_str(&format!(" AND e.time {operator} ?"));
                values.push(bound.into());
            }
        }
        text.push_str(if newest_first { " ORDER BY e.seq DESC LIMIT ?" } else { " ORDER BY e.seq LIMIT ?" });
        values.push(i64::try_from(limit).unwrap_or(i64::MAX).into());
        let stored: Vec<Stored> = {
            let mut select = self.conn.prepare_cached(&text).map_err(sql(what))?;
            let rows = select.query_map(params_from_iter(values), stored_row).map_err(sql(what))?;
            rows.collect::<Result<_, _>>().map_err(sql(what))?
        };
        stored.into_iter().map(|row| self.unpack(row)).collect()
    }

    /// The last seq before `micros`, 0 for none: where a command that asks `--since` begins to read.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub fn last_before(&self, micros: i64) -> Read<Seq> {
        // Times follow seqs but for a clock that was set back, so bisection finds the place without an index.
        let what = "times";
        let (mut low, mut high) = (self.oldest()?.0.saturating_sub(1), self.head()?.0);
        let mut select = self.conn.prepare_cached("SELECT time FROM entry WHERE seq = ?").map_err(sql(what))?;
        while low < high {
            let middle = (low + high).div_ceil(2);
            let time: i64 = select.query_row([middle], |row| row.get(0)).map_err(sql(what))?;
            if time < micros { low = middle } else { high = middle - 1 }
        }
        Ok(Seq(low))
    }

    fn unpack(&mut self, row: Stored) -> Read<StoredEntry> {
        let damaged = |seq: u64, why: &dyn std::fmt::Display| {
            JournalError::Corrupt(format!("entry {seq} is damaged ({why}); run `decklog verify`"))
        };
        let kind = type_of(row.kind).ok_or_else(|| damaged(row.seq, &"unknown type"))?;
        let base = row.base.map(|seq| self.base(seq)).transpose()?;
        let line = self.codec.decompress(base.as_deref(), &row.blob).map_err(|error| damaged(row.seq, &error))?;
        Ok(StoredEntry { seq: Seq(row.seq), kind, line: line.into() })
    }

    fn base(&mut self, seq: u64) -> Read<Bytes> {
        if let Some(line) = self.bases.get(seq) {
            return Ok(line.bytes);
        }
        let blob: Option<Vec<u8>> = self
            .conn
            .prepare_cached("SELECT line FROM entry WHERE seq = ? AND base IS NULL")
            .and_then(|mut select| select.query_row([seq], |row| row.get(0)).optional())
            .map_err(sql("an entry"))?;
        let damaged =
            |why: String| JournalError::Corrupt(format!("entry {seq} is damaged ({why}); run `decklog verify`"));
        let blob = blob.ok_or_else(|| damaged("missing".to_owned()))?;
        let line: Bytes = self.codec.decompress(None, &blob).map_err(|error| damaged(error.to_string()))?.into();
        self.bases.put(seq, Line { kind: EntryType::Added, bytes: line.clone(), object: 0..0, shape: None });
        Ok(line)
    }

    /// What discovery last said.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub fn resources(&self) -> Read<Vec<(i64, Resource)>> {
        let what = "resources";
        let mut select = self.conn.prepare_cached("SELECT id, facts FROM resource ORDER BY id").map_err(sql(what))?;
        let rows =
            select.query_map([], |row| Ok((row.get(0)?, resource_of(&row.get::<_, String>(1)?)))).map_err(sql(what))?;
        rows.collect::<Result<_, _>>().map_err(sql(what))
    }

    /// Every source ever configured.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub fn sources(&self) -> Read<Vec<SourceRow>> {
        let what = "sources";
        let mut select = self
            .conn
            .prepare_cached(
                "SELECT s.id, r.facts, s.namespace, s.state, s.detail, s.state_since, s.resume, s.good_at, s.active,
                     (SELECT count(*) FROM object o WHERE o.resource = s.resource AND o.present = 1
                         AND (s.namespace = '' OR o.namespace = s.namespace)),
                     s.gaps
                 FROM source s JOIN resource r ON r.id = s.resource ORDER BY r.plural, r.api_group, s.namespace",
            )
            .map_err(sql(what))?;
        let rows = select
            .query_map([], |row| {
                Ok(SourceRow {
                    id: row.get(0)?,
                    resource: resource_of(&row.get::<_, String>(1)?),
                    namespace: row.get(2)?,
                    state: row.get(3)?,
                    detail: row.get(4)?,
                    state_since: row.get(5)?,
                    resume: row.get(6)?,
                    good_at: row.get(7)?,
                    active: row.get(8)?,
                    objects: row.get(9)?,
                    gaps: row.get(10)?,
                })
            })
            .map_err(sql(what))?;
        rows.collect::<Result<_, _>>().map_err(sql(what))
    }

    /// Every sink ever configured.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub fn sinks(&self) -> Read<Vec<SinkRow>> {
        let what = "sinks";
        let mut select = self
            .conn
            .prepare_cached(
                "SELECT name, kind, cursor, state, detail, state_since, delivered_at,
                     (SELECT time FROM entry e WHERE e.seq > k.cursor ORDER BY e.seq LIMIT 1),
                     (SELECT count(*) FROM aside a WHERE a.sink = k.name), active, written FROM sink k ORDER BY name",
            )
            .map_err(sql(what))?;
        let rows = select
            .query_map([], |row| {
                Ok(SinkRow {
                    name: row.get(0)?,
                    kind: row.get(1)?,
                    cursor: Seq(row.get(2)?),
                    state: row.get(3)?,
                    detail: row.get(4)?,
                    state_since: row.get(5)?,
                    delivered_at: row.get(6)?,
                    oldest_undelivered: row.get(7)?,
                    aside: row.get(8)?,
                    active: row.get(9)?,
                    written: Seq(row.get(10)?),
                })
            })
            .map_err(sql(what))?;
        rows.collect::<Result<_, _>>().map_err(sql(what))
    }

    /// Entries that sinks refused for ever.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub fn set_aside(&self) -> Read<Vec<SetAside>> {
        let what = "entries set aside";
        let mut select =
            self.conn.prepare_cached("SELECT sink, seq, reason FROM aside ORDER BY sink, seq").map_err(sql(what))?;
        let rows = select
            .query_map([], |row| Ok(SetAside { sink: row.get(0)?, seq: Seq(row.get(1)?), reason: row.get(2)? }))
            .map_err(sql(what))?;
        rows.collect::<Result<_, _>>().map_err(sql(what))
    }

    /// Objects of one resource by name, in one namespace or in all.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub fn objects(&self, resource: i64, namespace: Option<&str>, name: Option<&str>) -> Read<Vec<ObjectRow>> {
        let what = "objects";
        let mut select = self
            .conn
            .prepare_cached(
                "SELECT o.id, r.facts, o.namespace, o.name, o.uid, o.version, o.present, o.last
                 FROM object o JOIN resource r ON r.id = o.resource
                 WHERE o.resource = ?1 AND (?2 IS NULL OR o.namespace = ?2) AND (?3 IS NULL OR o.name = ?3)
                 ORDER BY o.namespace, o.name",
            )
            .map_err(sql(what))?;
        let rows = select
            .query_map(params![resource, namespace, name], |row| {
                Ok(ObjectRow {
                    id: row.get(0)?,
                    resource: resource_of(&row.get::<_, String>(1)?),
                    namespace: row.get(2)?,
                    name: row.get(3)?,
                    uid: row.get(4)?,
                    version: row.get(5)?,
                    present: row.get(6)?,
                    last: Seq(row.get(7)?),
                })
            })
            .map_err(sql(what))?;
        rows.collect::<Result<_, _>>().map_err(sql(what))
    }

    /// The object's last known state as JSON, withheld changes included. `None`: it does not exist.
    ///
    /// # Errors
    /// Where the database cannot be read or the state is damaged.
    pub fn current(&mut self, object: &ObjectRow) -> Read<Option<Bytes>> {
        if !object.present {
            return Ok(None);
        }
        let state: Option<Vec<u8>> = self
            .conn
            .query_row("SELECT state FROM object WHERE id = ?", [object.id], |row| row.get(0))
            .map_err(sql("an object"))?;
        match state {
            Some(blob) => {
                let bytes =
                    self.codec.decompress(None, &blob).map_err(|error| JournalError::Corrupt(error.to_string()))?;
                Ok(Some(bytes.into()))
            }
            None => Ok(self.entry(object.last)?.and_then(|entry| object_in(&entry))),
        }
    }

    /// The entry that told the object's state at `seq` and at `micros`: the newest one not after them. It may be a
    /// DELETED, and then the object did not exist.
    ///
    /// # Errors
    /// Where the database cannot be read or an entry is damaged.
    pub fn told_at(&mut self, object: &ObjectRow, seq: Seq, micros: i64) -> Read<Option<StoredEntry>> {
        let what = "an object's history";
        let mut at = object.last.0;
        let found = {
            let mut select =
                self.conn.prepare_cached("SELECT time, previous FROM entry WHERE seq = ?").map_err(sql(what))?;
            loop {
                let row: Option<(i64, u64)> =
                    select.query_row([at], |row| Ok((row.get(0)?, row.get(1)?))).optional().map_err(sql(what))?;
                match row {
                    Some((time, _)) if at <= seq.0 && time <= micros => break Some(Seq(at)),
                    Some((_, previous)) => at = previous,
                    None => break None,
                }
            }
        };
        found.map_or(Ok(None), |seq| self.entry(seq))
    }

    /// The newest GAP entry that is kept.
    ///
    /// # Errors
    /// Where the database cannot be read or the entry is damaged.
    pub fn last_gap(&mut self) -> Read<Option<StoredEntry>> {
        let row = self
            .conn
            .prepare_cached("SELECT seq, type, base, line FROM entry WHERE type = 3 ORDER BY seq DESC LIMIT 1")
            .and_then(|mut select| select.query_row([], stored_row).optional())
            .map_err(sql("the last gap"))?;
        row.map(|row| self.unpack(row)).transpose()
    }

    /// Proves that the journal is whole: SQLite's own check, dense seqs, each entry readable and in its place, the
    /// replay of the log equal to the object table, no cursor past the head. `progress` is told entries read and
    /// entries in all.
    ///
    /// # Errors
    /// Where the database cannot be read at all; damage is not an error but a problem in the answer.
    pub fn verify(&mut self, progress: impl FnMut(u64, u64)) -> Read<Verified> {
        // One moment of the journal: a daemon that goes on would else look like damage.
        self.conn.execute_batch("BEGIN").map_err(sql("its check"))?;
        let mut found = Verified::default();
        let read = self.verify_moment(&mut found, progress);
        let found = match read {
            // Damage of the file itself ends the reading, and is the answer.
            Err(JournalError::Sqlite { what, source })
                if matches!(
                    source.sqlite_error_code(),
                    Some(rusqlite::ErrorCode::DatabaseCorrupt | rusqlite::ErrorCode::NotADatabase)
                ) =>
            {
                found.problem(format!("{what}: {source}"));
                Ok(found)
            }
            other => other.map(|()| found),
        };
        drop(self.conn.execute_batch("COMMIT"));
        found
    }

    fn verify_moment(&mut self, found: &mut Verified, mut progress: impl FnMut(u64, u64)) -> Read<()> {
        let what = "its check";
        {
            let mut check = self.conn.prepare("PRAGMA integrity_check(20)").map_err(sql(what))?;
            let rows = check.query_map([], |row| row.get::<_, String>(0)).map_err(sql(what))?;
            for row in rows {
                match row {
                    Ok(text) if text == "ok" => {}
                    Ok(text) => found.problem(format!("SQLite: {text}")),
                    Err(error) => found.problem(format!("SQLite: {error}")),
                }
            }
        }
        let (epoch, head, oldest) = (self.epoch()?, self.head()?, self.oldest()?);
        let given_out = self.meta("head")?.parse().unwrap_or(0);
        if head.0 < given_out {
            found.problem(format!("the newest entries, {} to {given_out}, are missing", head.next()));
        }
        let mut newest: HashMap<i64, Newest> = HashMap::new();
        let (mut at, mut expected) = (oldest.0.saturating_sub(1), oldest.0);
        loop {
            let rows: Vec<(Stored, Option<i64>, u64, i64)> = {
                let mut select = self
                    .conn
                    .prepare_cached(
                        "SELECT seq, type, base, line, object, previous, time FROM entry WHERE seq > ? ORDER BY seq LIMIT 500",
                    )
                    .map_err(sql(what))?;
                let rows = select
                    .query_map([at], |row| Ok((stored_row(row)?, row.get(4)?, row.get(5)?, row.get(6)?)))
                    .map_err(sql(what))?;
                rows.collect::<Result<_, _>>().map_err(sql(what))?
            };
            let Some((last, ..)) = rows.last() else { break };
            at = last.seq;
            for (row, object, previous, time) in rows {
                let seq = row.seq;
                if seq != expected {
                    found.problem(format!("entries {expected} to {} are missing", seq - 1));
                }
                expected = seq + 1;
                found.entries += 1;
                let entry = match self.unpack(row) {
                    Ok(entry) => entry,
                    Err(error) => {
                        found.problem(error.to_string());
                        continue;
                    }
                };
                if let Err(problem) = check_entry(&entry, time, &epoch) {
                    found.problem(format!("entry {seq}: {problem}"));
                }
                found.gaps += u64::from(entry.kind == EntryType::Gap);
                let Some(object) = object else { continue };
                let uid =
                    wire::Entry::parse(&entry.line).map_or(0, |entry| hash(entry.uid.as_deref().unwrap_or_default()));
                let before = newest.insert(object, Newest { seq, exists: entry.kind != EntryType::Deleted, uid });
                if let Some(before) = &before
                    && before.seq != previous
                {
                    found.problem(format!(
                        "entry {seq} follows entry {previous} of its object, but the newest was {}",
                        before.seq
                    ));
                }
                // The state before is known once an entry of the object was seen: retention may have dropped earlier ones.
                match (entry.kind, before) {
                    (EntryType::Added, Some(Newest { exists: true, .. })) => {
                        found.problem(format!("entry {seq} adds an object that exists"));
                    }
                    // Another incarnation may have been found by a list that tells nothing.
                    (EntryType::Modified | EntryType::Deleted, Some(before)) if !before.exists && before.uid == uid => {
                        found.problem(format!("entry {seq} changes an object that does not exist"));
                    }
                    _ => {}
                }
            }
            progress(found.entries, head.0.saturating_sub(oldest.0) + 1);
        }
        if found.entries > 0 {
            found.range = Some((oldest, head));
        }
        self.verify_objects(&newest, found)?;
        for sink in self.sinks()? {
            if sink.cursor > head {
                found.problem(format!("the cursor of sink {} is {}, past the head {head}", sink.name, sink.cursor));
            }
        }
        Ok(())
    }

    /// Replay of the log against the object table.
    fn verify_objects(&mut self, newest: &HashMap<i64, Newest>, found: &mut Verified) -> Read<()> {
        let what = "objects";
        let mut at = 0;
        loop {
            let rows: Vec<(i64, String, String, bool, u64, bool)> = {
                let mut select = self
                    .conn
                    .prepare_cached(
                        "SELECT id, uid, version, present, last, state IS NOT NULL FROM object WHERE id > ? ORDER BY id LIMIT 500",
                    )
                    .map_err(sql(what))?;
                let rows = select
                    .query_map([at], |row| {
                        Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?, row.get(5)?))
                    })
                    .map_err(sql(what))?;
                rows.collect::<Result<_, _>>().map_err(sql(what))?
            };
            let Some((last, ..)) = rows.last() else { return Ok(()) };
            at = *last;
            for (id, uid, version, present, last, withheld) in rows {
                found.objects += 1;
                let told = newest.get(&id);
                match told {
                    Some(Newest { seq, .. }) if *seq != last => {
                        found.problem(format!(
                            "object {uid} points to entry {last}, but the log's newest of it is {seq}"
                        ));
                    }
                    Some(Newest { exists, .. }) if *exists != present && !withheld => {
                        found.problem(format!("object {uid} is {} in the table but not in the log", presence(present)));
                    }
                    None if last != 0 && present => {
                        found.problem(format!("object {uid} points to entry {last}, which is not there"));
                    }
                    Some(_) | None => {}
                }
                // A withheld state is newer than the log by intent.
                if withheld || told.is_none() {
                    continue;
                }
                let Ok(Some(entry)) = self.entry(Seq(last)) else { continue };
                if let Ok(entry) = wire::Entry::parse(&entry.line)
                    && (entry.uid.as_deref() != Some(uid.as_str()) || entry.version().as_str() != version)
                {
                    found.problem(format!("object {uid} at version {version} differs from entry {last}"));
                }
            }
        }
    }
}

/// The newest entry of an object.
struct Newest {
    seq: u64,
    exists: bool,
    uid: u64,
}

/// Tells uids apart in little room.
fn hash(text: &str) -> u64 {
    use std::hash::{DefaultHasher, Hasher};
    let mut hasher = DefaultHasher::new();
    hasher.write(text.as_bytes());
    hasher.finish()
}

fn presence(present: bool) -> &'static str {
    if present { "present" } else { "gone" }
}

fn check_entry(entry: &StoredEntry, time: i64, epoch: &str) -> Result<(), String> {
    let parsed = wire::Entry::parse(&entry.line).map_err(|error| error.to_string())?;
    if parsed.seq() != entry.seq || parsed.kind() != entry.kind {
        return Err("it says another seq or type than its row".to_owned());
    }
    let id = if parsed.kind() == EntryType::Gap {
        format!("{}.{}", parsed.epoch, parsed.seq)
    } else {
        let uid = parsed.uid.as_deref().unwrap_or_default();
        wire::change_id(uid, parsed.version().as_str(), parsed.kind())
    };
    if parsed.id != id {
        return Err(format!("its id is not {id}"));
    }
    // Names of epochs sort by their beginning.
    if parsed.epoch.is_empty() || *parsed.epoch > *epoch {
        return Err("its epoch is not one of this journal".to_owned());
    }
    if parsed.time != rfc3339(time) {
        return Err("it says another time than its row".to_owned());
    }
    Ok(())
}

/// The object that an entry carries.
fn object_in(entry: &StoredEntry) -> Option<Bytes> {
    let object = wire::Entry::parse(&entry.line).ok()?.object?.get();
    Some(entry.line.slice_ref(object.as_bytes()))
}

fn stored_row(row: &Row<'_>) -> rusqlite::Result<Stored> {
    Ok(Stored { seq: row.get(0)?, kind: row.get(1)?, base: row.get(2)?, blob: row.get(3)? })
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
