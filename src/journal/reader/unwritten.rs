//! Requests of the audit logs that wrote nothing, and what the journal knows of the objects that audit events name.

use std::collections::BTreeMap;

use rusqlite::{OptionalExtension, params};

use super::{Reader, sql};
use crate::core::model::ResourceVersion;
use crate::journal::error::Result;
use crate::journal::{AuditedObject, HOUR, Unwritten, UnwrittenKind, UnwrittenRow};

impl Reader {
    /// Returns the requests that wrote nothing in the hours that overlap a time, in microseconds since 1970, by what they have in
    /// common.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub fn unwritten(&self, since: i64, until: i64) -> Result<Vec<UnwrittenRow>> {
        let what = "requests that wrote nothing";
        let mut select = self
            .conn
            .prepare_cached(
                "SELECT kind, user, agent, verb, api_group, plural, subresource, count, first, last, namespace, name
                 FROM unwritten WHERE hour > ?1 - ?3 AND hour <= ?2 ORDER BY hour",
            )
            .map_err(sql(what))?;
        let mut rows = select.query(params![since, until, HOUR]).map_err(sql(what))?;
        let mut found: BTreeMap<[String; 6], BTreeMap<UnwrittenKind, UnwrittenRow>> = BTreeMap::new();
        while let Some(row) = rows.next().map_err(sql(what))? {
            let mut read = || {
                let Some(kind) = UnwrittenKind::ALL.get(row.get::<_, usize>(0)?).copied() else { return Ok(()) };
                let (count, first, last) = (row.get::<_, u64>(7)?, row.get::<_, i64>(8)?, row.get::<_, i64>(9)?);
                let key = [row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?, row.get(5)?, row.get(6)?];
                let [user, agent, verb, group, resource, subresource] = key.clone();
                let fresh = || UnwrittenRow {
                    like: Unwritten { kind, user, agent, verb, group, resource, subresource, ..Unwritten::default() },
                    count: 0,
                    first,
                };
                let sum = found.entry(key).or_default().entry(kind).or_insert_with(fresh);
                sum.count += count;
                sum.first = sum.first.min(first);
                if last >= sum.like.completed {
                    (sum.like.completed, sum.like.namespace, sum.like.name) = (last, row.get(10)?, row.get(11)?);
                }
                Ok(())
            };
            read().map_err(sql(what))?;
        }
        Ok(found.into_values().flat_map(BTreeMap::into_values).collect())
    }

    /// Returns what the journal knows of an object; none of one that it has never seen.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub fn audited_object(
        &self,
        group: &str,
        plural: &str,
        namespace: &str,
        name: &str,
    ) -> Result<Option<AuditedObject>> {
        self.conn
            .prepare_cached(
                "SELECT o.version, o.present, coalesce(e.time, 0), o.state IS NOT NULL
                 FROM resource r JOIN object o ON o.resource = r.id AND o.namespace = ?3 AND o.name = ?4
                 LEFT JOIN entry e ON e.seq = o.last WHERE r.api_group = ?1 AND r.plural = ?2",
            )
            .and_then(|mut select| {
                let row = |row: &rusqlite::Row<'_>| {
                    Ok(AuditedObject {
                        version: ResourceVersion(row.get(0)?),
                        present: row.get(1)?,
                        recorded: row.get(2)?,
                        suppressed: row.get(3)?,
                    })
                };
                select.query_row(params![group, plural, namespace, name], row).optional()
            })
            .map_err(sql("an object"))
    }
}
