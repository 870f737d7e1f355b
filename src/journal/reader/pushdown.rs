//! Choosing entries by what their rows hold, before any of them is put together.
//!
//! # Decision: a row holds enough to leave an entry out
//!
//! Context: A filter needs most entries decompressed only to drop them.
//! Decision: `seq`, `time`, `type`, `resource`, `namespace` and `name` are columns, and the kind is known from discovery as
//! far back as it has not changed. A filter that needs nothing else gets a header of these members, by the code that reads
//! whole entries.
//! Cost: Columns that repeat the line.

use rusqlite::{Row, params};

use super::{OLDEST, Reader, Stored, StoredEntry, sql, stored_row, type_of};
use crate::core::model::Seq;
use crate::core::wire;
use crate::journal::error::Result;
use crate::journal::writer::rfc3339;

/// Filter of entries by the contents of their rows ([`wire::row_header`]). It gets the whole entry if that is cached, and has
/// to return the same.
pub type EntryFilter<'c> = &'c dyn Fn(&[u8]) -> bool;

/// A part of the log.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// The chosen entries.
    pub entries: Vec<StoredEntry>,
    /// The first and the last entry that were looked at, in the order asked for; `None` where there was nothing.
    pub looked_at: Option<(Seq, Seq)>,
    /// Number of entries that were looked at.
    pub looked: usize,
    /// True if [`Reader::select`] may find more behind them, because it reached a bound.
    pub more: bool,
    /// Up to this one they are no entries of the log, but gaps of the sink itself: what it lacks was truncated. They
    /// are its own, whatever it wants of the log.
    pub own: Option<Seq>,
}

impl Page {
    pub(super) fn look(&mut self, seq: Seq) {
        self.looked += 1;
        self.looked_at = Some((self.looked_at.map_or(seq, |(first, _)| first), seq));
    }

    /// Appends the result for the entries behind.
    pub(super) fn join(&mut self, next: Self) {
        self.entries.extend(next.entries);
        self.looked += next.looked;
        self.more = next.more;
        self.own = self.own.max(next.own);
        self.looked_at = match (self.looked_at, next.looked_at) {
            (Some((first, _)), Some((_, last))) => Some((first, last)),
            (one, other) => one.or(other),
        };
    }
}

/// First columns of a row that is filtered before it is read: those of [`Stored`], and those of its row header. It takes a
/// source `s` and its resource `r`.
pub(super) const COLUMNS: &str = "e.seq, e.type, e.base, e.line, e.time, r.plural, s.namespace, o.namespace, o.name,
    CASE WHEN e.seq >= r.kind_since THEN r.facts ->> 'kind' END";

/// The tables that [`COLUMNS`] are of.
pub(super) const TABLES: &str = "entry e JOIN source s ON s.id = e.source JOIN resource r ON r.id = s.resource
    LEFT JOIN object o ON o.id = e.object";

impl Reader {
    /// Returns the chosen ones of a number of rows, in the order of [`Reader::stored_after`].
    pub(super) fn chosen_after(
        &mut self,
        after: Seq,
        limit: usize,
        max_bytes: usize,
        choice: EntryFilter<'_>,
    ) -> Result<Page> {
        let what = "entries";
        let mut page = Page::default();
        let stored = {
            let text = format!(
                "SELECT {COLUMNS}, e.object_end FROM {TABLES} WHERE e.seq > max(?, {OLDEST} - 1) ORDER BY e.seq LIMIT ?"
            );
            let mut select = self.conn.prepare_cached(&text).map_err(sql(what))?;
            let mut rows = select.query(params![after.0, limit]).map_err(sql(what))?;
            let (mut stored, mut bytes) = (Vec::new(), 0);
            while let Some(row) = rows.next().map_err(sql(what))?
                && bytes < max_bytes
            {
                page.look(Seq(row.get(0).map_err(sql(what))?));
                let chosen = chosen(row, choice).map_err(sql(what))?;
                if chosen != Some(false) {
                    bytes += row.get::<_, usize>("object_end").map_err(sql(what))?;
                    stored.push((stored_row(row).map_err(sql(what))?, chosen));
                }
            }
            stored
        };
        page.entries = self.unpack_chosen(stored, Some(choice))?;
        Ok(page)
    }

    /// Puts rows together; where the row header did not decide, the choice is made then.
    pub(super) fn unpack_chosen(
        &mut self,
        rows: Vec<(Stored, Option<bool>)>,
        choice: Option<EntryFilter<'_>>,
    ) -> Result<Vec<StoredEntry>> {
        let mut entries = Vec::with_capacity(rows.len());
        for (row, chosen) in rows {
            let entry = self.unpack(row)?;
            if chosen.is_some() || choice.is_none_or(|choice| choice(&entry.line)) {
                entries.push(entry);
            }
        }
        Ok(entries)
    }
}

/// Reports whether a row with [`COLUMNS`] is chosen by its row header; `None` if that lacks something that the choice needs.
pub(super) fn chosen(row: &Row<'_>, choice: EntryFilter<'_>) -> rusqlite::Result<Option<bool>> {
    let text = |at: usize| -> rusqlite::Result<Option<&str>> { Ok(row.get_ref(at)?.as_str_or_null()?) };
    let (Some(op), Some(resource)) = (type_of(row.get(1)?), text(5)?) else { return Ok(None) };
    // A GAP of one object and an ACTOR name it, and their rows do not.
    if !op.is_change() {
        return Ok(None);
    }
    let (namespace, name) = (text(7)?, text(8)?);
    let (Some(namespace), Some(name), Some(kind)) = (namespace, name, text(9)?) else { return Ok(None) };
    let header =
        wire::RowHeader { seq: Seq(row.get(0)?), time: &rfc3339(row.get(4)?), op, kind, resource, namespace, name };
    Ok(Some(choice(&wire::row_header(&header))))
}
