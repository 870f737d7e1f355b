//! Objects and their last known state.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use rusqlite::{OptionalExtension, ToSql, params};

use super::{Reader, StoredEntry, resource_of, sql};
use crate::core::model::{Resource, Seq};
use crate::core::wire;
use crate::journal::error::Result;

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
    /// True if it exists.
    pub present: bool,
    /// seq of its newest entry, 0 for none.
    pub last: Seq,
    /// Its resource's id.
    pub resource_id: i64,
    pub(super) id: i64,
}

impl ObjectRow {
    /// `deployments.apps/web in namespace shop`.
    #[must_use]
    pub fn spell(&self) -> String {
        let name = format!("{}/{}", self.resource.full_name(), self.name);
        if self.namespace.is_empty() { name } else { format!("{name} in namespace {}", self.namespace) }
    }

    /// Its namespace; nothing if it lives in none.
    #[must_use]
    pub fn namespaces(&self) -> Vec<String> {
        Some(self.namespace.clone()).filter(|name| !name.is_empty()).into_iter().collect()
    }

    /// Reports whether two rows are of one object.
    #[must_use]
    pub const fn is(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

/// The namespaces of a resource's objects, and a NULL: from one to the next by the index, because they are few, and objects
/// are many.
const NAMESPACES: &str = "WITH RECURSIVE found (namespace) AS (
    SELECT min(namespace) FROM main.object WHERE resource = ?1
    UNION ALL
    SELECT (SELECT min(namespace) FROM main.object WHERE resource = ?1 AND namespace > found.namespace) FROM found
    WHERE found.namespace IS NOT NULL)
    SELECT namespace FROM found";

/// Returns the SQL operator and operand for a name: `*` and `?` stand for other characters, as in a shell. No name of
/// Kubernetes has them.
pub(super) fn asked(name: &str) -> (&'static str, Cow<'_, str>) {
    if name.contains(['*', '?']) { ("GLOB", name.replace('[', "[[]").into()) } else { ("=", name.into()) }
}

impl Reader {
    /// Returns the resources of the last discovery.
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

    /// Objects of one resource by name, in one namespace or in all. In a name `*` and `?` stand for other characters.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub fn objects(&self, resource: i64, namespace: Option<&str>, name: Option<&str>) -> Result<Vec<ObjectRow>> {
        let name = name.map(asked);
        match (&namespace, &name) {
            (None, None) => self.object_rows("o.resource = ?1", &[&resource]),
            (Some(namespace), None) => {
                self.object_rows("o.resource = ?1 AND o.namespace = ?2", &[&resource, namespace])
            }
            (None, Some((is, name))) => self.object_rows(
                &format!("o.resource = ?1 AND o.name {is} ?2 AND o.namespace IN ({NAMESPACES})"),
                &[&resource, name],
            ),
            (Some(namespace), Some((is, name))) => self.object_rows(
                &format!("o.resource = ?1 AND o.namespace = ?2 AND o.name {is} ?3"),
                &[&resource, namespace, name],
            ),
        }
    }

    /// The namespaces of all objects that are known, without that of those that live in none. Of what not everybody may see: those in
    /// which the reader has seen something lately, because to decide about all of them would take long.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub fn namespaces(&self) -> Result<BTreeSet<String>> {
        let what = "namespaces";
        let mut select = self.conn.prepare_cached(NAMESPACES).map_err(sql(what))?;
        let mut found = BTreeSet::new();
        for (resource, _) in self.resources()? {
            let rows = select.query_map([resource], |row| row.get::<_, Option<String>>(0)).map_err(sql(what))?;
            for namespace in rows {
                let namespace = namespace.map_err(sql(what))?.filter(|namespace| !namespace.is_empty());
                found.extend(namespace.filter(|namespace| self.recalls(resource, namespace)));
            }
        }
        Ok(found)
    }

    /// Returns the number of objects of each resource that has some, and fewer than `most`, by its full name. It costs no more where
    /// there are more.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub fn small_resources(&self, most: usize) -> Result<BTreeMap<String, usize>> {
        // To count objects is to decide about each of their namespaces.
        if self.is_narrowed() {
            return Ok(BTreeMap::new());
        }
        let what = "numbers of objects";
        let mut count = self
            .conn
            .prepare_cached("SELECT count(*) FROM (SELECT 1 FROM object WHERE resource = ?1 AND present = 1 LIMIT ?2)")
            .map_err(sql(what))?;
        let mut found = BTreeMap::new();
        for (id, resource) in self.resources()? {
            let objects: usize = count
                .query_row(params![id, i64::try_from(most).unwrap_or(i64::MAX)], |row| row.get(0))
                .map_err(sql(what))?;
            if (1..most).contains(&objects) {
                found.insert(resource.full_name(), objects);
            }
        }
        Ok(found)
    }

    pub(super) fn object_rows(&self, condition: &str, values: &[&dyn ToSql]) -> Result<Vec<ObjectRow>> {
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

    /// The object's last known state as JSON, suppressed changes included. `None`: it does not exist.
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
}

/// The object that an entry carries.
fn object_in(entry: &StoredEntry) -> Option<Bytes> {
    let object = wire::Entry::parse(&entry.line).ok()?.object?.get();
    Some(entry.line.slice_ref(object.as_bytes()))
}
