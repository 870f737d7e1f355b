//! What is known of a source's objects, for comparing it with what the API server has.

use rusqlite::params;

use super::{Read, Reader, sql};
use crate::journal::SourceId;
use crate::model::ResourceVersion;

/// An object as the journal knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownObject {
    /// Its namespace, empty for cluster-scoped.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// uid of its last incarnation.
    pub uid: String,
    /// The version that brought it to this.
    pub version: ResourceVersion,
    /// Whether it exists.
    pub present: bool,
}

impl Reader {
    /// Hands over every object of a source that exists, and the dead ones that died after `version`, all of one
    /// moment.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub fn each_known(
        &self,
        source: SourceId,
        version: &ResourceVersion,
        mut each: impl FnMut(KnownObject),
    ) -> Read<()> {
        let what = "objects";
        let mut select = self
            .conn
            .prepare_cached(
                "SELECT o.namespace, o.name, o.uid, o.version, o.present FROM source s JOIN object o ON o.resource = s.resource
                 WHERE s.id = ?1 AND (s.namespace = '' OR o.namespace = s.namespace)
                     AND (o.present = 1 OR length(o.version) > length(?2)
                         OR (length(o.version) = length(?2) AND o.version > ?2))",
            )
            .map_err(sql(what))?;
        let mut rows = select.query(params![source.0, version.as_str()]).map_err(sql(what))?;
        while let Some(row) = rows.next().map_err(sql(what))? {
            let known = KnownObject {
                namespace: row.get(0).map_err(sql(what))?,
                name: row.get(1).map_err(sql(what))?,
                uid: row.get(2).map_err(sql(what))?,
                version: ResourceVersion(row.get(3).map_err(sql(what))?),
                present: row.get(4).map_err(sql(what))?,
            };
            each(known);
        }
        Ok(())
    }

    /// Objects of a source that its last list had and that are too large to be kept: namespace, name, uid and version.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub fn unread(&self, source: SourceId) -> Read<Vec<[String; 4]>> {
        let what = "objects that are too large";
        let mut select = self
            .conn
            .prepare_cached("SELECT namespace, name, uid, version FROM unread WHERE source = ? AND staged = 0")
            .map_err(sql(what))?;
        let rows = select
            .query_map([source.0], |row| Ok([row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?]))
            .map_err(sql(what))?;
        rows.collect::<Result<_, _>>().map_err(sql(what))
    }

    /// Up to where nothing of a source was missing when its position was lost, or where it is; and the highest version that
    /// was written.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub fn lost_at(&self, source: SourceId) -> Read<(Option<ResourceVersion>, Option<ResourceVersion>)> {
        let select = "SELECT coalesce(resume, given_up), applied FROM source WHERE id = ?";
        let row = self.conn.query_row(select, [source.0], |row| {
            Ok((row.get::<_, Option<String>>(0)?, row.get::<_, Option<String>>(1)?))
        });
        let (from, applied) = row.map_err(sql("where a position was lost"))?;
        Ok((from.map(ResourceVersion), applied.map(ResourceVersion)))
    }

    /// How many objects of a source exist.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub fn objects_of(&self, source: SourceId) -> Read<u64> {
        self.conn
            .query_row(
                "SELECT count(*) FROM source s JOIN object o ON o.resource = s.resource AND o.present = 1
                 WHERE s.id = ?1 AND (s.namespace = '' OR o.namespace = s.namespace)",
                [source.0],
                |row| row.get(0),
            )
            .map_err(sql("how many objects there are"))
    }

    /// How many objects of a source are known to exist, and how many of them the list lacks that is staged for it.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub fn losses(&self, source: SourceId) -> Read<(u64, u64)> {
        self.conn
            .query_row(
                "SELECT count(*), count(*) FILTER (WHERE NOT EXISTS
                     (SELECT 1 FROM listing l WHERE l.source = s.id AND l.namespace = o.namespace AND l.name = o.name))
                 FROM source s JOIN object o ON o.resource = s.resource AND o.present = 1
                 WHERE s.id = ?1 AND (s.namespace = '' OR o.namespace = s.namespace)",
                [source.0],
                |row| Ok((row.get(0)?, row.get(1)?)),
            )
            .map_err(sql("what a list lacks"))
    }
}
