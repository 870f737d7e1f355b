//! Objects of a source, for the comparison with the API server.

use rusqlite::{OptionalExtension, params};

use super::{Reader, sql};
use crate::core::model::{EntryType, Evidence, ResourceVersion, Seq, Why};
use crate::core::wire::Entry;
use crate::journal::error::Result;
use crate::journal::schema::OF_SOURCE;
use crate::journal::{JournalError, SourceId};

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
    /// True if it exists.
    pub present: bool,
}

/// Number of the newest entries of the log that are looked through for objects that have just changed.
const RECENT: u64 = 20_000;

/// Namespace and name of an object.
pub type Name = (String, String);

/// A change that a watch brought, and what the log had of its object before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// The entry.
    pub seq: Seq,
    /// Namespace and name of the object.
    pub name: Name,
    /// Version of the change.
    pub version: ResourceVersion,
    /// Version of the entry before; empty for none.
    pub before: ResourceVersion,
}

/// Position that a source has lost, or has.
#[derive(Clone, Debug)]
pub struct Lost {
    /// Up to here nothing is missing.
    pub from: Option<ResourceVersion>,
    /// The highest version that was written.
    pub applied: Option<ResourceVersion>,
    /// After `from` something is recorded already, all of it since this moment, in microseconds since 1970; and
    /// something may be missing in between.
    pub recorded_since: Option<i64>,
}

impl Reader {
    /// Hands over every object of a source that exists, and the dead ones that died after `version`, all of one
    /// moment.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub fn each_known(&self, source: SourceId, version: &ResourceVersion, mut each: impl FnMut(KnownObject)) -> Result {
        let what = "objects";
        let mut select = self
            .conn
            .prepare_cached(&format!(
                "SELECT o.namespace, o.name, o.uid, o.version, o.present FROM source s JOIN object o ON {OF_SOURCE}
                 WHERE s.id = ?1 AND (o.present = 1 OR length(o.version) > length(?2)
                     OR (length(o.version) = length(?2) AND o.version > ?2))"
            ))
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

    /// Returns an object of a source as the journal knows it, if it has ever been there.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub fn known_object(&self, source: SourceId, namespace: &str, name: &str) -> Result<Option<KnownObject>> {
        let known = self
            .conn
            .prepare_cached(
                "SELECT o.uid, o.version, o.present FROM source s
                 JOIN object o ON o.resource = s.resource AND o.namespace = ?2 AND o.name = ?3 WHERE s.id = ?1",
            )
            .and_then(|mut select| {
                let row = |row: &rusqlite::Row<'_>| {
                    Ok(KnownObject {
                        namespace: namespace.to_owned(),
                        name: name.to_owned(),
                        uid: row.get(0)?,
                        version: ResourceVersion(row.get(1)?),
                        present: row.get(2)?,
                    })
                };
                select.query_row(params![source.0, namespace, name], row).optional()
            });
        known.map_err(sql("an object"))
    }

    /// Returns the namespaces and names of at most `most` objects of a source that exist, after this one, in their order.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub fn names_after(&self, source: SourceId, (namespace, name): &Name, most: u64) -> Result<Vec<Name>> {
        self.names(
            &format!(
                "SELECT o.namespace, o.name FROM source s JOIN object o ON {OF_SOURCE} AND o.present = 1
                 WHERE s.id = ?1 AND (o.namespace, o.name) > (?2, ?3) ORDER BY o.namespace, o.name LIMIT ?4"
            ),
            params![source.0, namespace, name, most],
        )
    }

    /// Returns the namespaces and names of at most `most` objects of which a source has recorded entries since a moment, in
    /// microseconds since 1970, among the newest entries of the log; the newest first.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub fn names_since(&mut self, source: SourceId, since: i64, most: u64) -> Result<Vec<Name>> {
        let after = self.last_before(since)?.0.max(self.head()?.0.saturating_sub(RECENT));
        self.names(
            "SELECT o.namespace, o.name FROM entry e JOIN object o ON o.id = e.object
             WHERE e.source = ?1 AND e.seq > ?2 GROUP BY o.id ORDER BY max(e.seq) DESC LIMIT ?3",
            params![source.0, after, most],
        )
    }

    /// Returns entries of a source after `after` that a watch brought, the oldest first, each with the entry of its object before it,
    /// and up to which entry these are all: at most `most`, and none but the newest of the log. Those before which the log does not
    /// say what was there are left out.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub fn links_after(&mut self, source: SourceId, after: Seq, most: u64) -> Result<(Vec<Link>, Seq)> {
        let what = "what was recorded";
        let head = self.head()?;
        let after = after.0.max(head.0.saturating_sub(RECENT));
        let rows: Vec<(u64, u64)> = {
            let mut select = self
                .conn
                .prepare_cached(
                    "SELECT seq, previous FROM entry WHERE seq > ?1 AND source = ?2 AND type < 3 ORDER BY seq LIMIT ?3",
                )
                .map_err(sql(what))?;
            let rows = select
                .query_map(params![after, source.0, most], |row| Ok((row.get(0)?, row.get(1)?)))
                .map_err(sql(what))?;
            rows.collect::<Result<_, _>>().map_err(sql(what))?
        };
        let upto = if (rows.len() as u64) < most { head } else { rows.last().map_or(head, |(seq, _)| Seq(*seq)) };
        let mut links = Vec::new();
        for (seq, previous) in rows {
            let (Some(line), before) = (self.readable(seq)?, self.readable(previous)?) else { continue };
            let Ok(entry) = Entry::parse(&line) else { continue };
            let before = before.as_deref().and_then(|line| Entry::parse(line).ok());
            let is_known = before.is_some() || previous == 0 && entry.op == EntryType::Added;
            if entry.evidence.as_deref() != Some(Evidence::Watched.as_str()) || !is_known {
                continue;
            }
            let namespace = entry.namespace.as_deref().unwrap_or_default().to_owned();
            links.push(Link {
                seq: Seq(seq),
                name: (namespace, entry.name.as_deref().unwrap_or_default().to_owned()),
                version: entry.version(),
                before: before.map_or_else(ResourceVersion::default, |before| before.version()),
            });
        }
        Ok((links, upto))
    }

    /// Returns the line of an entry, unless it is damaged or not there any more.
    fn readable(&mut self, seq: u64) -> Result<Option<Vec<u8>>> {
        match self.entry(Seq(seq)) {
            Ok(stored) => Ok(stored.map(|stored| stored.line.to_vec())),
            Err(JournalError::Corrupt(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn names(&self, select: &str, values: &[&dyn rusqlite::ToSql]) -> Result<Vec<Name>> {
        let what = "names of objects";
        let mut select = self.conn.prepare_cached(select).map_err(sql(what))?;
        let rows = select.query_map(values, |row| Ok((row.get(0)?, row.get(1)?))).map_err(sql(what))?;
        rows.collect::<Result<_, _>>().map_err(sql(what))
    }

    /// Objects of a source that its last list had, or a watch since, and that could not be recorded: namespace, name, uid and
    /// version. One that nothing names is not among them.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub fn unread(&self, source: SourceId) -> Result<Vec<[String; 4]>> {
        let what = "objects that cannot be recorded";
        let mut select = self
            .conn
            .prepare_cached(
                "SELECT namespace, name, uid, version FROM unread WHERE source = ? AND staged = 0 AND name <> ''",
            )
            .map_err(sql(what))?;
        let rows = select
            .query_map([source.0], |row| Ok([row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?]))
            .map_err(sql(what))?;
        rows.collect::<Result<_, _>>().map_err(sql(what))
    }

    /// Returns the position that a source has lost, or has.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub fn lost_at(&self, source: SourceId) -> Result<Lost> {
        let select =
            "SELECT coalesce(resume, given_up), applied, pending_why, verified, verified_at FROM source WHERE id = ?";
        let row = self.conn.query_row(select, [source.0], |row| {
            let (from, applied) = (row.get::<_, Option<String>>(0)?, row.get::<_, Option<String>>(1)?);
            let (why, proved) = (row.get::<_, Option<String>>(2)?, row.get::<_, Option<String>>(3)?);
            Ok((from, applied, why, proved.zip(row.get::<_, Option<i64>>(4)?)))
        });
        let (from, applied, why, proved) = row.map_err(sql("where a position was lost"))?;
        // What contradicts the journal may have been missing since something was last proved.
        let proved = proved.filter(|_| why.as_deref().and_then(Why::parse) == Some(Why::Audit));
        Ok(Lost {
            from: proved.as_ref().map(|(version, _)| version.clone()).or(from).map(ResourceVersion),
            applied: applied.map(ResourceVersion),
            recorded_since: proved.map(|(_, at)| at),
        })
    }

    /// Returns the entries of a source since a moment, in microseconds since 1970: each object as an entry left it, and whether
    /// that entry created it. `None` if these are more than `most` entries, or one of them cannot be read.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub fn recorded_since(
        &mut self,
        source: SourceId,
        since: i64,
        most: usize,
    ) -> Result<Option<Vec<(KnownObject, bool)>>> {
        let what = "what was recorded";
        let after = self.last_before(since)?;
        let seqs: Vec<u64> = {
            let mut select = self
                .conn
                .prepare_cached(
                    "SELECT seq FROM entry WHERE seq > ?1 AND source = ?2 AND type < 3 ORDER BY seq LIMIT ?3",
                )
                .map_err(sql(what))?;
            let rows = select.query_map(params![after.0, source.0, most + 1], |row| row.get(0)).map_err(sql(what))?;
            rows.collect::<Result<_, _>>().map_err(sql(what))?
        };
        if seqs.len() > most {
            return Ok(None);
        }
        let mut recorded = Vec::new();
        for seq in seqs {
            let stored = match self.entry(Seq(seq)) {
                Ok(stored) => stored,
                Err(JournalError::Corrupt(_)) => None,
                Err(error) => return Err(error),
            };
            let Some(stored) = stored else { return Ok(None) };
            let Ok(entry) = Entry::parse(&stored.line) else { return Ok(None) };
            let object = KnownObject {
                namespace: entry.namespace.as_deref().unwrap_or_default().to_owned(),
                name: entry.name.as_deref().unwrap_or_default().to_owned(),
                uid: entry.uid.as_deref().unwrap_or_default().to_owned(),
                version: entry.version(),
                present: entry.op != EntryType::Deleted,
            };
            recorded.push((object, entry.op == EntryType::Added));
        }
        Ok(Some(recorded))
    }

    /// Returns the number of a source's objects that exist; none to who may not see all of them.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub fn objects_of(&self, source: SourceId) -> Result<u64> {
        if self.is_narrowed() {
            return Ok(0);
        }
        self.conn
            .prepare_cached(&format!(
                "SELECT count(*) FROM source s JOIN object o ON {OF_SOURCE} AND o.present = 1 WHERE s.id = ?1"
            ))
            .and_then(|mut select| select.query_row([source.0], |row| row.get(0)))
            .map_err(sql("how many objects there are"))
    }

    /// Returns the number of a source's objects that exist, and the number of those that are missing in its staged list.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub fn losses(&self, source: SourceId) -> Result<(u64, u64)> {
        self.conn
            .query_row(
                &format!(
                    "SELECT count(*), count(*) FILTER (WHERE NOT EXISTS
                         (SELECT 1 FROM listing l WHERE l.source = s.id AND l.namespace = o.namespace AND l.name = o.name))
                     FROM source s JOIN object o ON {OF_SOURCE} AND o.present = 1 WHERE s.id = ?1"
                ),
                [source.0],
                |row| Ok((row.get(0)?, row.get(1)?)),
            )
            .map_err(sql("what a list lacks"))
    }
}
