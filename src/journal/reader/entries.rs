//! Entries as sinks and commands get them.
//!
//! # Decision: The GAP of one sink has a truncated seq
//!
//! Context: A sink behind the log start has a gap that others do not have.
//! Decision: It is made from each source's newest truncated entry, with that seq and the reason `expired`: it stands where the
//! entries stood, and is the same at every attempt. It has no `from`.
//! Cost: It is no entry of the log.

use bytes::Bytes;
use rusqlite::{OptionalExtension, params, params_from_iter};

use super::objects::asked;
use super::pushdown::{COLUMNS, TABLES, chosen};
use super::{EntryFilter, OLDEST, Page, Reader, Stored, StoredEntry, resource_of, sql, stored_row};
use crate::core::model::{EntryType, Gap, ResourceVersion, Seq, Why};
use crate::core::wire;
use crate::journal::JournalError;
use crate::journal::error::Result;
use crate::journal::recent::{AtHand, Line};
use crate::journal::writer::{rfc3339, type_code};

/// Selection of entries for a command. Everything that is `None` or empty selects all.
#[derive(Clone, Debug, Default)]
pub struct EntryQuery {
    /// Resources and, for each, the one name asked for, in which `*` and `?` stand for other characters.
    pub objects: Vec<(i64, Option<String>)>,
    /// Namespaces.
    pub namespaces: Vec<String>,
    /// Types.
    pub types: Vec<EntryType>,
}

/// Bytes of objects in a page of selected entries, beyond which no further one begins.
const PAGE_BYTES: usize = 4 << 20;

impl Reader {
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

    pub(super) fn stored_after(&mut self, after: Seq, limit: usize, max_bytes: usize) -> Result<Vec<StoredEntry>> {
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

    /// Returns entries as [`Reader::entries_after`] does, for a sink that has everything up to `after` and nothing else: if
    /// later entries are truncated, a GAP of each source that had some of them takes their place, with the seq of the newest.
    /// It is the same for every sink and at every attempt, until more is truncated. With a choice, `limit` is the number of
    /// entries that are looked at, and entries that are not chosen are not decompressed.
    ///
    /// # Errors
    /// As [`Reader::entries_after`].
    pub fn deliverable_after(
        &mut self,
        after: Seq,
        limit: usize,
        max_bytes: usize,
        choice: Option<EntryFilter<'_>>,
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

    /// The gaps that stand for what is truncated after `after`.
    fn missed(&self, after: Seq) -> Result<Vec<StoredEntry>> {
        let what = "what was truncated";
        let found: Vec<(u64, Option<String>, i64, String, String)> = {
            let mut select = self
                .conn
                .prepare_cached(
                    "SELECT s.truncated, s.truncated_version, s.truncated_at, s.namespace, r.facts
                     FROM source s JOIN resource r ON r.id = s.resource WHERE s.truncated > ? ORDER BY s.truncated",
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
                happened: None,
                happened_between: None,
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
                managers: None,
                change: None,
                object: None,
                gap: Some((&gap, None)),
                actor: None,
                redacted: &[],
            });
            StoredEntry { seq: Seq(seq), op: EntryType::Gap, line: rendered.line.into() }
        });
        Ok(entries.collect())
    }

    /// Returns entries from the cache of this process's writer.
    fn at_hand(&self, after: Seq, limit: usize, max_bytes: usize) -> Option<Vec<StoredEntry>> {
        let (AtHand { recent, .. }, head) = self.at_hand.as_ref()?;
        // Only what is on disk: durable before visible.
        let found = recent.range(after.0 + 1, head.borrow().0, limit, max_bytes)?;
        let entry = |(seq, line): (u64, Line)| StoredEntry { seq: Seq(seq), op: line.op, line: line.bytes };
        Some(found.into_iter().map(entry).collect())
    }

    /// Dead letters of a sink that the log has truncated, from `from` to `to`.
    ///
    /// # Errors
    /// Where the database cannot be read or an entry is damaged.
    pub fn truncated_dead_letters(&mut self, sink: &str, from: Seq, to: Seq) -> Result<Vec<StoredEntry>> {
        let what = "dead letters";
        let blobs: Vec<(u64, Vec<u8>)> = {
            let mut select = self
                .conn
                .prepare_cached("SELECT seq, line FROM dead_letter WHERE sink = ? AND seq BETWEEN ? AND ? AND line IS NOT NULL ORDER BY seq")
                .map_err(sql(what))?;
            let rows = select.query_map(params![sink, from.0, to.0], |row| Ok((row.get(0)?, row.get(1)?)));
            rows.map_err(sql(what))?.collect::<Result<_, _>>().map_err(sql(what))?
        };
        let mut entries = Vec::new();
        for (seq, blob) in blobs {
            let damaged = |why: &dyn std::fmt::Display| {
                JournalError::Corrupt(format!("entry {seq}, a dead letter, is damaged ({why})"))
            };
            let line: Bytes = self.codec.decompress(None, &blob).map_err(|error| damaged(&error))?.into();
            let op = wire::Entry::parse(&line).map_err(|error| damaged(&error))?.op;
            entries.push(StoredEntry { seq: Seq(seq), op, line });
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

    /// One entry that is in the table, also one that is pinned.
    pub(super) fn row(&mut self, seq: Seq) -> Result<Option<StoredEntry>> {
        let row = self
            .conn
            .prepare_cached("SELECT seq, type, base, line FROM entry WHERE seq = ?")
            .and_then(|mut select| select.query_row([seq.0], stored_row).optional())
            .map_err(sql("an entry"))?;
        row.map(|row| self.unpack(row)).transpose()
    }

    /// Entries that `query` selects, after the first seq and before the second: oldest first, or with `newest_first` from the end
    /// backwards, and objects of about 4 MiB at once. With a choice `limit` is how many entries are looked at, and what is not
    /// chosen is not put together.
    ///
    /// # Errors
    /// Where the database cannot be read or an entry is damaged.
    pub fn select(
        &mut self,
        query: &EntryQuery,
        (after, before): (Seq, Option<Seq>),
        newest_first: bool,
        limit: usize,
        choice: Option<EntryFilter<'_>>,
    ) -> Result<Page> {
        let what = "entries";
        let mut text = format!("SELECT {COLUMNS}, e.object_end FROM {TABLES} WHERE e.seq > max(?, {OLDEST} - 1)");
        let mut values: Vec<rusqlite::types::Value> = vec![after.0.cast_signed().into()];
        if let Some(before) = before {
            text.push_str(" AND e.seq < ?");
            values.push(before.0.cast_signed().into());
        }
        if !query.objects.is_empty() {
            let mut any = Vec::new();
            for (resource, name) in &query.objects {
                values.push((*resource).into());
                match name {
                    Some(name) => {
                        let (is, name) = asked(name);
                        any.push(format!("(s.resource = ? AND (o.name {is} ? OR e.object IS NULL))"));
                        values.push(name.into_owned().into());
                    }
                    None => any.push("s.resource = ?".to_owned()),
                }
            }
            text.push_str(&format!(" AND ({})", any.join(" OR ")));
        }
        if !query.namespaces.is_empty() {
            // What is named and lives in no namespace is meant whatever the namespace, as kubectl has it.
            let nowhere = if query.objects.is_empty() { "" } else { "o.namespace = '' OR " };
            let any = vec!["?"; query.namespaces.len()].join(", ");
            text.push_str(&format!(
                " AND ({nowhere}o.namespace IN ({any}) OR (e.object IS NULL AND s.namespace IN ('', {any})))"
            ));
            let namespaces = query.namespaces.iter().chain(&query.namespaces);
            values.extend(namespaces.map(|namespace| namespace.clone().into()));
        }
        if query.types == [EntryType::Gap] {
            // As the index of gaps has it, which is found by nothing else.
            text.push_str(" AND e.type = 3");
        } else if !query.types.is_empty() {
            text.push_str(&format!(" AND e.type IN ({})", vec!["?"; query.types.len()].join(", ")));
            values.extend(query.types.iter().map(|op| type_code(*op).into()));
        }
        text.push_str(if newest_first { " ORDER BY e.seq DESC LIMIT ?" } else { " ORDER BY e.seq LIMIT ?" });
        values.push(i64::try_from(limit).unwrap_or(i64::MAX).into());
        self.bounded(query, |reader| {
            reader.moment(|reader| {
                let mut page = Page::default();
                let stored = {
                    let mut select = reader.conn.prepare_cached(&text).map_err(sql(what))?;
                    let mut rows = select.query(params_from_iter(values)).map_err(sql(what))?;
                    let (mut stored, mut bytes) = (Vec::new(), 0);
                    while let Some(row) = rows.next().map_err(sql(what))? {
                        if bytes >= PAGE_BYTES {
                            page.more = true;
                            break;
                        }
                        page.look(Seq(row.get(0).map_err(sql(what))?));
                        page.more = page.looked == limit;
                        let chosen = match choice {
                            Some(choice) => chosen(row, choice).map_err(sql(what))?,
                            None => Some(true),
                        };
                        if chosen != Some(false) {
                            // The head and the change of an entry are small beside its object.
                            bytes += row.get::<_, Option<usize>>("object_end").map_err(sql(what))?.unwrap_or_default();
                            stored.push((stored_row(row).map_err(sql(what))?, chosen));
                        }
                    }
                    stored
                };
                page.entries = reader.unpack_chosen(stored, choice)?;
                Ok(page)
            })
        })
    }

    /// The last seq before `micros`, 0 for none: where a command that asks `--since` begins to read.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub fn last_before(&self, micros: i64) -> Result<Seq> {
        self.last_before_among(self.head()?, micros)
    }

    /// As [`Reader::last_before`], among the entries up to `upto`: one from which the times lead from before `micros` to that of
    /// `upto`, also where a clock was set back on the way or later.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub fn last_before_among(&self, upto: Seq, micros: i64) -> Result<Seq> {
        // Times follow seqs but for a clock that was set back, so bisection finds the place without an index.
        let what = "times";
        let (mut low, mut high) = (self.oldest()?.0.saturating_sub(1), upto.0);
        let mut select = self.conn.prepare_cached("SELECT time FROM main.entry WHERE seq = ?").map_err(sql(what))?;
        while low < high {
            let middle = (low + high).div_ceil(2);
            // One that is gone by now was among the oldest.
            let time: Option<i64> = select.query_row([middle], |row| row.get(0)).optional().map_err(sql(what))?;
            if time.is_none_or(|time| time < micros) { low = middle } else { high = middle - 1 }
        }
        Ok(Seq(low))
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
