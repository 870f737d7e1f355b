//! States and positions of sources and sinks.

use super::{OLDEST, Reader, resource_of, sql};
use crate::core::model::{Resource, Seq};
use crate::core::spelling::Text;
use crate::core::spelling::kubernetes::NamespacePattern;
use crate::journal::error::Result;
use crate::journal::{SinkState, SourceId, SourceState};

/// A source as the journal last knew it.
#[derive(Clone, Debug)]
pub struct SourceRow {
    /// Its id.
    pub id: SourceId,
    /// The resource watched.
    pub resource: Resource,
    /// The namespace, empty for all.
    pub namespace: String,
    /// State that the daemon reported last.
    pub state: SourceState,
    /// Start of the state, microseconds since 1970.
    pub state_since: i64,
    /// The checkpoint.
    pub resume: Option<String>,
    /// Last time at which it was known good, microseconds since 1970.
    pub good_at: Option<i64>,
    /// First time at which it was known good, microseconds since 1970.
    pub good_since: Option<i64>,
    /// Gaps recorded.
    pub gaps: u64,
    /// Changes that its watch had missed, and that were recovered.
    pub recovered: u64,
    /// True if it is configured.
    pub active: bool,
    /// Audits done.
    pub audits: u64,
    /// Objects that audits found to differ.
    pub audit_differences: u64,
    /// End of the last audit, microseconds since 1970; 0 for never.
    pub audited_at: i64,
    /// Its position is lost, and no list has declared the gap yet.
    pub gap_owed: bool,
    /// Changes that `ignore` kept out of the log.
    pub suppressed: u64,
    /// Only a part of the resource is watched: one namespace, or what a selector takes.
    pub scoped: bool,
    /// A selector takes a part of the objects, which can enter and leave it; excluded namespaces are none.
    pub selects: bool,
    /// Namespaces that are left out.
    pub excluded: Vec<NamespacePattern>,
}

impl SourceRow {
    /// Reports whether it watches this namespace; of what is in none, the empty one.
    #[must_use]
    pub fn covers(&self, namespace: &str) -> bool {
        (self.namespace.is_empty() || self.namespace == namespace)
            && !self.excluded.iter().any(|pattern| pattern.covers(namespace))
    }

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
    /// State that the daemon reported last.
    pub state: SinkState,
    /// Start of the state, microseconds since 1970.
    pub state_since: i64,
    /// Time of the last delivery, microseconds since 1970; 0 for never.
    pub delivered_at: i64,
    /// Time at which the oldest entry that it lacks was journaled, microseconds since 1970.
    pub oldest_undelivered: Option<i64>,
    /// Entries dead-lettered.
    pub dead_letters: u64,
    /// Entries that were truncated before it had taken them.
    pub missed: u64,
    /// Time at which the last of them was truncated, in microseconds since 1970.
    pub missed_at: Option<i64>,
    /// True if it is configured.
    pub active: bool,
}

/// An entry that a sink refused for good.
#[derive(Clone, Debug)]
pub struct DeadLetter {
    /// The sink.
    pub sink: String,
    /// The entry.
    pub seq: Seq,
    /// Why.
    pub reason: String,
    /// When, in microseconds since 1970.
    pub time: i64,
}

/// Fields of a source that leave out a namespace begin so.
const EXCLUDES: &str = "metadata.namespace!=";

/// Returns the namespaces that the fields of a source leave out.
fn excluded(fields: &str) -> Vec<NamespacePattern> {
    let patterns = fields.split(',').filter_map(|field| field.trim().strip_prefix(EXCLUDES));
    patterns.filter_map(|pattern| NamespacePattern::read(pattern).ok()).collect()
}

/// Reports whether objects can enter and leave a source with these selectors. Its excluded namespaces are among its fields.
fn selects(labels: &str, fields: &str) -> bool {
    !labels.is_empty() || fields.split(',').any(|field| !field.is_empty() && !field.trim_start().starts_with(EXCLUDES))
}

impl Reader {
    /// Every source ever configured. How many objects each has is another question, [`Reader::objects_of`], because they
    /// are counted for it.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub fn sources(&self) -> Result<Vec<SourceRow>> {
        let what = "sources";
        let mut select = self
            .conn
            .prepare_cached(
                "SELECT s.id, r.facts, s.namespace, s.state, s.detail, s.state_since, s.resume, s.good_at, s.active,
                     s.gaps, s.audits, s.audit_differences, s.audited_at, s.pending_why IS NOT NULL, s.suppressed,
                     s.namespace <> '' OR s.label_selector <> '' OR s.field_selector <> '',
                     s.recovered, s.good_since, s.label_selector, s.field_selector
                 FROM source s JOIN resource r ON r.id = s.resource ORDER BY r.plural, r.api_group, s.namespace",
            )
            .map_err(sql(what))?;
        let rows = select
            .query_map([], |row| {
                Ok(SourceRow {
                    id: SourceId(row.get(0)?),
                    resource: resource_of(&row.get::<_, String>(1)?),
                    namespace: row.get(2)?,
                    state: SourceState::read(&row.get::<_, String>(3)?, row.get(4)?),
                    state_since: row.get(5)?,
                    resume: row.get(6)?,
                    good_at: row.get::<_, Option<i64>>(7)?.filter(|at| *at > 0),
                    active: row.get(8)?,
                    gaps: row.get(9)?,
                    audits: row.get(10)?,
                    audit_differences: row.get(11)?,
                    audited_at: row.get(12)?,
                    gap_owed: row.get(13)?,
                    suppressed: row.get(14)?,
                    scoped: row.get(15)?,
                    recovered: row.get(16)?,
                    good_since: row.get(17)?,
                    selects: selects(&row.get::<_, String>(18)?, &row.get::<_, String>(19)?),
                    excluded: excluded(&row.get::<_, String>(19)?),
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
                     (SELECT count(*) FROM dead_letter a WHERE a.sink = k.name), active, written, missed, begins,
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
                    state: SinkState::read(&row.get::<_, String>(3)?, row.get(4)?),
                    state_since: row.get(5)?,
                    delivered_at: row.get(6)?,
                    oldest_undelivered: row.get(7)?,
                    dead_letters: row.get(8)?,
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

    /// Entries that sinks refused for good.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub fn dead_letters(&self) -> Result<Vec<DeadLetter>> {
        let what = "dead letters";
        let mut select = self
            .conn
            .prepare_cached("SELECT sink, seq, reason, time FROM dead_letter ORDER BY sink, seq")
            .map_err(sql(what))?;
        let rows = select
            .query_map([], |row| {
                Ok(DeadLetter { sink: row.get(0)?, seq: Seq(row.get(1)?), reason: row.get(2)?, time: row.get(3)? })
            })
            .map_err(sql(what))?;
        rows.collect::<Result<_, _>>().map_err(sql(what))
    }
}
