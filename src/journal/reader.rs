//! Read-only connections: what delivery, status and the commands read. They never block the writer.

mod audit;
mod history;
mod pushdown;
mod requests;
mod verify;

use std::collections::BTreeSet;
use std::path::Path;

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, Row, ToSql, params, params_from_iter};

pub use audit::{KnownObject, Lost};
pub use history::Step;
pub use pushdown::{Choice, Page};
pub use requests::Requests;
pub use verify::Verified;

use pushdown::{COLUMNS, TABLES, chosen};

use super::codec::Codec;
use super::error::Result;
use super::recent::{Line, Recent};
use super::retention::Retained;
use super::writer::{rfc3339, type_code, type_of};
use super::{JournalError, Recast, schema};
use crate::ambient::watch;
use crate::model::{Cluster, EntryType, Gap, Resource, ResourceVersion, Seq, Why};
use crate::wire;

/// The first seq that is not forgotten. What stands below it in the table is there for what later entries need of it.
const OLDEST: &str = "coalesce((SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'oldest'), 1)";

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
    /// Changes that its watch had forgotten, and that were recovered.
    pub recovered: u64,
    /// Whether it is configured.
    pub active: bool,
    /// Audits done.
    pub audits: u64,
    /// Objects that audits found to differ.
    pub audit_differences: u64,
    /// When the last audit was done, microseconds since 1970; 0 for never.
    pub audited_at: i64,
    /// Its position is lost, and no list has declared the gap yet.
    pub gap_owed: bool,
    /// Changes that `ignore` kept out of the log.
    pub withheld: u64,
    /// Only a part of the resource is watched: one namespace, or what a selector takes.
    pub scoped: bool,
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
    /// The first seq that is for it.
    pub begins: Seq,
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
    /// Entries that were forgotten before it had taken them.
    pub missed: u64,
    /// When the last of them was forgotten, in microseconds since 1970.
    pub missed_at: Option<i64>,
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
    /// When, in microseconds since 1970.
    pub time: i64,
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
    /// Its resource's id.
    pub resource_id: i64,
    id: i64,
}

impl ObjectRow {
    /// `deployments.apps/web in namespace shop`.
    #[must_use]
    pub fn spell(&self) -> String {
        let name = format!("{}/{}", self.resource.full_name(), self.name);
        if self.namespace.is_empty() { name } else { format!("{name} in namespace {}", self.namespace) }
    }

    /// Whether two rows are of one object.
    #[must_use]
    pub const fn is(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

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
    pub fn open(dir: &Path) -> Result<Self> {
        Ok(Self {
            conn: schema::open_reader(dir)?,
            codec: Codec::default(),
            bases: Recent::with_budget(BASES),
            recent: None,
        })
    }

    /// As [`Reader::open`], beside the writer of this process.
    pub(super) fn beside(dir: &Path, recent: Recent, head: watch::Receiver<Seq>) -> Result<Self> {
        Ok(Self { recent: Some((recent, head)), ..Self::open(dir)? })
    }

    /// The newest seq, 0 for an empty journal.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub fn head(&self) -> Result<Seq> {
        self.conn
            .prepare_cached("SELECT coalesce(max(seq), 0) FROM entry")
            .and_then(|mut select| select.query_row([], |row| row.get(0).map(Seq)))
            .map_err(sql("the head"))
    }

    /// The oldest seq that is kept, 0 for an empty journal.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub fn oldest(&self) -> Result<Seq> {
        self.conn
            .prepare_cached(&format!("SELECT coalesce(min(seq), 0) FROM entry WHERE seq >= {OLDEST}"))
            .and_then(|mut select| select.query_row([], |row| row.get(0).map(Seq)))
            .map_err(sql("the oldest entry"))
    }

    /// What is kept, what is forgotten, and whether reading is paused.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub fn retained(&self) -> Result<Retained> {
        let text = format!(
            "SELECT {OLDEST}, (SELECT time FROM entry WHERE seq >= {OLDEST} ORDER BY seq LIMIT 1),
                 (SELECT value FROM meta WHERE key = 'paused')"
        );
        let row = self.conn.query_row(&text, [], |row| Ok((row.get::<_, u64>(0)?, row.get(1)?, row.get(2)?)));
        let (oldest, oldest_time, paused): (_, _, Option<String>) = row.map_err(sql("what it keeps"))?;
        let paused = paused.and_then(|text| serde_json::from_str(&text).ok());
        Ok(Retained { oldest, oldest_time, forgotten: oldest.saturating_sub(1), paused })
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

    /// What a sink gets under another epoch's name, newest first: of two that are about an entry the first counts.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub fn recasts(&self, sink: &str) -> Result<Vec<Recast>> {
        self.rows("SELECT after, before, epoch FROM recast WHERE sink = ? ORDER BY epoch DESC", [sink], |row| {
            Ok(Recast { after: Seq(row.get(0)?), before: Seq(row.get(1)?), epoch: row.get(2)? })
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

    /// Entries with a seq above `after`, in order: at most `limit`, and about `max_bytes` bytes, but at least one
    /// where there is one.
    ///
    /// # Errors
    /// Where the database cannot be read or an entry is damaged.
    pub fn entries_after(&mut self, after: Seq, limit: usize, max_bytes: usize) -> Result<Vec<StoredEntry>> {
        if let Some(found) = self.at_hand(after, limit, max_bytes) {
            return Ok(found);
        }
        self.moment(|reader| reader.stored_after(after, limit, max_bytes))
    }

    fn stored_after(&mut self, after: Seq, limit: usize, max_bytes: usize) -> Result<Vec<StoredEntry>> {
        let what = "entries";
        // Where the object ends in the line is about how long the line is.
        let stored: Vec<Stored> = {
            let mut select = self
                .conn
                .prepare_cached(&format!(
                    "SELECT seq, type, base, line, object_end FROM entry WHERE seq > max(?, {OLDEST} - 1) ORDER BY seq LIMIT ?"
                ))
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

    /// As [`Reader::entries_after`], for a sink that has everything up to `after` and nothing else: where entries after
    /// it are forgotten, a GAP of each source that had some of them stands in their place, with the seq of the newest.
    /// It is the same for every sink and at every try, as long as nothing more is forgotten. With a choice `limit` is how
    /// many entries are looked at, and what is not chosen is not put together.
    ///
    /// # Errors
    /// As [`Reader::entries_after`].
    pub fn deliverable_after(
        &mut self,
        after: Seq,
        limit: usize,
        max_bytes: usize,
        choice: Option<Choice<'_>>,
    ) -> Result<Page> {
        let all = |entries: Vec<StoredEntry>| {
            let mut page = Page::default();
            for entry in entries {
                page.look(entry.seq);
                if choice.is_none_or(|choice| choice(&entry.line)) {
                    page.entries.push(entry);
                }
            }
            page
        };
        if let Some(found) = self.at_hand(after, limit, max_bytes) {
            return Ok(all(found));
        }
        self.moment(|reader| {
            let mut page = Page::default();
            for gap in reader.missed(after)? {
                page.look(gap.seq);
                page.own = Some(gap.seq);
                page.entries.push(gap);
            }
            let stored = match choice {
                Some(choice) => reader.chosen_after(after, limit, max_bytes, choice)?,
                None => all(reader.stored_after(after, limit, max_bytes)?),
            };
            page.join(stored);
            Ok(page)
        })
    }

    /// The gaps that stand for what is forgotten after `after`.
    fn missed(&self, after: Seq) -> Result<Vec<StoredEntry>> {
        let what = "what was forgotten";
        let found: Vec<(u64, Option<String>, i64, String, String)> = {
            let mut select = self
                .conn
                .prepare_cached(
                    "SELECT s.forgotten, s.forgotten_version, s.forgotten_at, s.namespace, r.facts
                     FROM source s JOIN resource r ON r.id = s.resource WHERE s.forgotten > ? ORDER BY s.forgotten",
                )
                .map_err(sql(what))?;
            let rows = select
                .query_map([after.0], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?)))
                .map_err(sql(what))?;
            rows.collect::<Result<_, _>>().map_err(sql(what))?
        };
        if found.is_empty() {
            return Ok(Vec::new());
        }
        let (epochs, cluster) = (self.epochs()?, self.cluster()?);
        let entries = found.into_iter().map(|(seq, version, time, namespace, facts)| {
            // That of the entry in whose place it stands: in an output no epoch follows a later one.
            let epoch = epochs.iter().rev().find(|(_, since)| since.0 <= seq).or(epochs.first());
            let epoch = epoch.map_or("", |(name, _)| name);
            let resource = resource_of(&facts);
            let gap = Gap { why: Why::Expired, from: None, to: version.map(ResourceVersion), recovered: 0 };
            let rendered = wire::render(&wire::EntryBuilder {
                seq: Seq(seq),
                epoch,
                time: &rfc3339(time),
                op: EntryType::Gap,
                evidence: None,
                cluster: &cluster,
                api_version: &resource.api_version(),
                kind: &resource.kind,
                resource: &resource.plural,
                namespace: &namespace,
                name: "",
                uid: "",
                version: "",
                change: None,
                object: None,
                gap: Some((&gap, None)),
                redacted: &[],
            });
            StoredEntry { seq: Seq(seq), kind: EntryType::Gap, line: rendered.line.into() }
        });
        Ok(entries.collect())
    }

    /// What the writer of this process has at hand.
    fn at_hand(&self, after: Seq, limit: usize, max_bytes: usize) -> Option<Vec<StoredEntry>> {
        let (recent, head) = self.recent.as_ref()?;
        // Only what is on disk: durable before visible.
        let found = recent.range(after.0 + 1, head.borrow().0, limit, max_bytes)?;
        let entry = |(seq, line): (u64, Line)| StoredEntry { seq: Seq(seq), kind: line.kind, line: line.bytes };
        Some(found.into_iter().map(entry).collect())
    }

    /// Entries that a sink refused, that are set aside for it and forgotten by the log, from `from` to `to`.
    ///
    /// # Errors
    /// Where the database cannot be read or an entry is damaged.
    pub fn rescued(&mut self, sink: &str, from: Seq, to: Seq) -> Result<Vec<StoredEntry>> {
        let what = "entries set aside";
        let blobs: Vec<(u64, Vec<u8>)> = {
            let mut select = self
                .conn
                .prepare_cached("SELECT seq, line FROM aside WHERE sink = ? AND seq BETWEEN ? AND ? AND line IS NOT NULL ORDER BY seq")
                .map_err(sql(what))?;
            let rows = select.query_map(params![sink, from.0, to.0], |row| Ok((row.get(0)?, row.get(1)?)));
            rows.map_err(sql(what))?.collect::<Result<_, _>>().map_err(sql(what))?
        };
        let mut entries = Vec::new();
        for (seq, blob) in blobs {
            let damaged = |why: &dyn std::fmt::Display| {
                JournalError::Corrupt(format!("entry {seq}, set aside, is damaged ({why})"))
            };
            let line: Bytes = self.codec.decompress(None, &blob).map_err(|error| damaged(&error))?.into();
            let kind = wire::Entry::parse(&line).map_err(|error| damaged(&error))?.op;
            entries.push(StoredEntry { seq: Seq(seq), kind, line });
        }
        Ok(entries)
    }

    /// One entry.
    ///
    /// # Errors
    /// Where the database cannot be read or the entry is damaged.
    pub fn entry(&mut self, seq: Seq) -> Result<Option<StoredEntry>> {
        self.moment(|reader| if reader.retained()?.oldest <= seq.0 { reader.row(seq) } else { Ok(None) })
    }

    /// One entry that is in the table, also one that is forgotten and held for what later ones need of it.
    fn row(&mut self, seq: Seq) -> Result<Option<StoredEntry>> {
        let row = self
            .conn
            .prepare_cached("SELECT seq, type, base, line FROM entry WHERE seq = ?")
            .and_then(|mut select| select.query_row([seq.0], stored_row).optional())
            .map_err(sql("an entry"))?;
        row.map(|row| self.unpack(row)).transpose()
    }

    /// Entries that `position` selects, after `after`: oldest first, or with `newest_first` from the end backwards. With a
    /// choice `limit` is how many entries are looked at, and what is not chosen is not put together.
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
        choice: Option<Choice<'_>>,
    ) -> Result<Page> {
        let what = "entries";
        let mut text = format!("SELECT {COLUMNS} FROM {TABLES} WHERE e.seq > max(?, {OLDEST} - 1)");
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
            // What is named and lives in no namespace is meant whatever the namespace, as kubectl has it.
            let nowhere = if position.objects.is_empty() { "" } else { "o.namespace = '' OR " };
            text.push_str(&format!(" AND ({nowhere}o.namespace = ? OR (e.object IS NULL AND s.namespace IN ('', ?)))"));
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
        self.moment(|reader| {
            let mut page = Page::default();
            let stored = {
                let mut select = reader.conn.prepare_cached(&text).map_err(sql(what))?;
                let mut rows = select.query(params_from_iter(values)).map_err(sql(what))?;
                let mut stored = Vec::new();
                while let Some(row) = rows.next().map_err(sql(what))? {
                    page.look(Seq(row.get(0).map_err(sql(what))?));
                    let chosen = match choice {
                        Some(choice) => chosen(row, choice).map_err(sql(what))?,
                        None => Some(true),
                    };
                    if chosen != Some(false) {
                        stored.push((stored_row(row).map_err(sql(what))?, chosen));
                    }
                }
                stored
            };
            page.entries = reader.unpack_chosen(stored, choice)?;
            Ok(page)
        })
    }

    /// The last seq before `micros`, 0 for none: where a command that asks `--since` begins to read.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub fn last_before(&self, micros: i64) -> Result<Seq> {
        // Times follow seqs but for a clock that was set back, so bisection finds the place without an index.
        let what = "times";
        let (mut low, mut high) = (self.oldest()?.0.saturating_sub(1), self.head()?.0);
        let mut select = self.conn.prepare_cached("SELECT time FROM entry WHERE seq = ?").map_err(sql(what))?;
        while low < high {
            let middle = (low + high).div_ceil(2);
            // One that is gone by now was among the oldest.
            let time: Option<i64> = select.query_row([middle], |row| row.get(0)).optional().map_err(sql(what))?;
            if time.is_none_or(|time| time < micros) { low = middle } else { high = middle - 1 }
        }
        Ok(Seq(low))
    }

    fn unpack(&mut self, row: Stored) -> Result<StoredEntry> {
        let damaged = |seq: u64, why: &dyn std::fmt::Display| {
            JournalError::Corrupt(format!("entry {seq} is damaged ({why}); run `decklog verify`"))
        };
        let kind = type_of(row.kind).ok_or_else(|| damaged(row.seq, &"unknown type"))?;
        let base = row.base.map(|seq| self.base(seq)).transpose()?;
        let line = self.codec.decompress(base.as_deref(), &row.blob).map_err(|error| damaged(row.seq, &error))?;
        Ok(StoredEntry { seq: Seq(row.seq), kind, line: line.into() })
    }

    /// What the object table holds of a state, which may be a difference of the entry that the object's versions are
    /// differences of.
    fn state(&mut self, blob: &[u8], base: Option<u64>) -> Result<Vec<u8>> {
        let base = base.filter(|_| Codec::is_difference(blob)).map(|seq| self.base(seq)).transpose()?;
        let state = self.codec.decompress(base.as_deref(), blob);
        state.map_err(|error| JournalError::Corrupt(format!("an object's state is damaged ({error})")))
    }

    fn base(&mut self, seq: u64) -> Result<Bytes> {
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
    pub fn resources(&self) -> Result<Vec<(i64, Resource)>> {
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
    pub fn sources(&self) -> Result<Vec<SourceRow>> {
        let what = "sources";
        let mut select = self
            .conn
            .prepare_cached(
                "SELECT s.id, r.facts, s.namespace, s.state, s.detail, s.state_since, s.resume, s.good_at, s.active,
                     (SELECT count(*) FROM object o WHERE o.resource = s.resource AND o.present = 1
                         AND (s.namespace = '' OR o.namespace = s.namespace)),
                     s.gaps, s.audits, s.audit_differences, s.audited_at, s.pending_why IS NOT NULL, s.withheld,
                     s.namespace <> '' OR s.label_selector <> '' OR s.field_selector <> '',
                     s.recovered
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
                    audits: row.get(11)?,
                    audit_differences: row.get(12)?,
                    audited_at: row.get(13)?,
                    gap_owed: row.get(14)?,
                    withheld: row.get(15)?,
                    scoped: row.get(16)?,
                    recovered: row.get(17)?,
                })
            })
            .map_err(sql(what))?;
        rows.collect::<Result<_, _>>().map_err(sql(what))
    }

    /// Every sink ever configured.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub fn sinks(&self) -> Result<Vec<SinkRow>> {
        let what = "sinks";
        let mut select = self
            .conn
            .prepare_cached(
                &"SELECT name, kind, cursor, state, detail, state_since, delivered_at,
                     (SELECT time FROM entry e WHERE e.seq > max(k.cursor, OLDEST - 1) ORDER BY e.seq LIMIT 1),
                     (SELECT count(*) FROM aside a WHERE a.sink = k.name), active, written, missed, begins,
                     (SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'missed/' || k.name)
                 FROM sink k ORDER BY name"
                    .replace("OLDEST", OLDEST),
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
                    begins: Seq(row.get(12)?),
                    missed: row.get(11)?,
                    missed_at: row.get(13)?,
                })
            })
            .map_err(sql(what))?;
        rows.collect::<Result<_, _>>().map_err(sql(what))
    }

    /// Entries that sinks refused for ever.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub fn set_aside(&self) -> Result<Vec<SetAside>> {
        let what = "entries set aside";
        let mut select = self
            .conn
            .prepare_cached("SELECT sink, seq, reason, time FROM aside ORDER BY sink, seq")
            .map_err(sql(what))?;
        let rows = select
            .query_map([], |row| {
                Ok(SetAside { sink: row.get(0)?, seq: Seq(row.get(1)?), reason: row.get(2)?, time: row.get(3)? })
            })
            .map_err(sql(what))?;
        rows.collect::<Result<_, _>>().map_err(sql(what))
    }

    /// Objects of one resource by name, in one namespace or in all.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub fn objects(&self, resource: i64, namespace: Option<&str>, name: Option<&str>) -> Result<Vec<ObjectRow>> {
        self.object_rows(
            "o.resource = ?1 AND (?2 IS NULL OR o.namespace = ?2) AND (?3 IS NULL OR o.name = ?3)",
            &[&resource, &namespace, &name],
        )
    }

    /// The namespaces of all objects that are known, without that of those that live in none.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub fn namespaces(&self) -> Result<BTreeSet<String>> {
        let what = "namespaces";
        // From one to the next by the index, because there are few, and objects are many.
        let mut select = self
            .conn
            .prepare_cached("SELECT min(namespace) FROM object WHERE resource = ? AND namespace > ?")
            .map_err(sql(what))?;
        let mut found = BTreeSet::new();
        for (resource, _) in self.resources()? {
            let mut at = String::new();
            while let Some(next) =
                select.query_row(params![resource, at], |row| row.get::<_, Option<String>>(0)).map_err(sql(what))?
            {
                found.insert(next.clone());
                at = next;
            }
        }
        Ok(found)
    }

    fn object_rows(&self, condition: &str, values: &[&dyn ToSql]) -> Result<Vec<ObjectRow>> {
        let what = "objects";
        let mut select = self
            .conn
            .prepare_cached(&format!(
                "SELECT o.id, r.facts, o.namespace, o.name, o.uid, o.version, o.present, o.last, o.resource
                 FROM object o JOIN resource r ON r.id = o.resource WHERE {condition} ORDER BY o.namespace, o.name"
            ))
            .map_err(sql(what))?;
        let rows = select
            .query_map(values, |row| {
                Ok(ObjectRow {
                    id: row.get(0)?,
                    resource: resource_of(&row.get::<_, String>(1)?),
                    namespace: row.get(2)?,
                    name: row.get(3)?,
                    uid: row.get(4)?,
                    version: row.get(5)?,
                    present: row.get(6)?,
                    last: Seq(row.get(7)?),
                    resource_id: row.get(8)?,
                })
            })
            .map_err(sql(what))?;
        rows.collect::<Result<_, _>>().map_err(sql(what))
    }

    /// The object's last known state as JSON, withheld changes included. `None`: it does not exist.
    ///
    /// # Errors
    /// Where the database cannot be read or the state is damaged.
    pub fn current(&mut self, object: &ObjectRow) -> Result<Option<Bytes>> {
        let what = "an object";
        self.moment(|reader| {
            // It may have changed since it was looked up.
            let row = reader
                .conn
                .query_row("SELECT present, state, last, base FROM object WHERE id = ?", [object.id], |row| {
                    Ok((row.get(0)?, row.get::<_, Option<Vec<u8>>>(1)?, row.get(2)?, row.get(3)?))
                })
                .optional()
                .map_err(sql(what))?;
            match row {
                Some((true, Some(blob), _, base)) => Ok(Some(reader.state(&blob, base)?.into())),
                Some((true, None, last, _)) => Ok(reader.row(Seq(last))?.and_then(|entry| object_in(&entry))),
                Some((false, ..)) | None => Ok(None),
            }
        })
    }

    /// The newest GAP entry that is kept.
    ///
    /// # Errors
    /// Where the database cannot be read or the entry is damaged.
    pub fn last_gap(&mut self) -> Result<Option<StoredEntry>> {
        let row = self
            .conn
            .prepare_cached(&format!(
                "SELECT seq, type, base, line FROM entry WHERE type = 3 AND seq >= {OLDEST} ORDER BY seq DESC LIMIT 1"
            ))
            .and_then(|mut select| select.query_row([], stored_row).optional())
            .map_err(sql("the last gap"))?;
        row.map(|row| self.unpack(row)).transpose()
    }
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
