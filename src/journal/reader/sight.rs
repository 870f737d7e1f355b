//! A reader of the log with the rights of somebody whom the cluster knows.
//!
//! # Decision: rights are views over the tables
//!
//! Context: Some thirty questions read the journal with as many statements, and one that forgot to filter would leak.
//! Decision: Such a connection has a temporary view of the name of each table, and SQLite finds that first. A view shows the
//! rows that the reader may see, and of a table that says more than one object nothing. A new table is seen by nobody until it
//! is listed here.
//! Cost: Each row takes a look at its object, about a microsecond, and who says `main.` means all of the log.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use rusqlite::functions::{Context, FunctionFlags};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension};

use super::{EntryQuery, Reader, sql, type_of};
use crate::core::model::{EntryType, Seq};
use crate::core::rights::{Decision, Listing, Refusal, Refused, Sight, Undecided, Visit};
use crate::core::wire;
use crate::journal::JournalError;
use crate::journal::codec::Codec;
use crate::journal::error::Result;

/// Says what a row's object, by its resource and namespace, is to the reader; a resource that came later is made known first.
const SEES: &str =
    "coalesce(decklog_sees(RESOURCE, NAMESPACE), CASE WHEN (SELECT decklog_resource(r.id, r.api_group, r.plural)
    FROM main.resource r WHERE r.id = RESOURCE) THEN decklog_sees(RESOURCE, NAMESPACE) END, 0)";

/// The tables that everybody who is let in may see: what the log is, which resources it watches, and the times of which it lacks something.
const OPEN: [&str; 8] = ["meta", "epoch", "resource", "late", "absence", "reading", "pinned", "audit_doubt"];

/// The columns of a source that count or quote what may be of any namespace, and what is shown instead.
const OF_SOURCE: [(&str, &str); 10] = [
    ("detail", "''"),
    ("gaps", "0"),
    ("suppressed", "0"),
    ("recovered", "0"),
    ("recovered_since", "0"),
    ("audits", "0"),
    ("audit_differences", "0"),
    ("truncated", "0"),
    ("truncated_version", "NULL"),
    ("truncated_at", "0"),
];

/// Text of the error of SQLite that ends a reading that has met enough that is not decided. No other text has a control character.
const MARK: &str = "\u{3}undecided";

/// What a statement asks for: what is beside it need not be decided.
#[derive(Debug, Default)]
struct Scope {
    resources: Vec<i64>,
    namespaces: Vec<String>,
}

impl Scope {
    fn has(&self, resource: i64, namespace: &str) -> bool {
        (self.resources.is_empty() || self.resources.contains(&resource))
            && (self.namespaces.is_empty()
                || namespace.is_empty()
                || self.namespaces.iter().any(|within| within == namespace))
    }
}

/// A resource, and what was decided of it.
#[derive(Debug)]
struct OfResource {
    group: String,
    plural: String,
    namespaces: HashMap<String, Decision>,
}

#[derive(Debug, Default)]
struct Inner {
    resources: HashMap<i64, OfResource>,
    scope: Scope,
    /// Resource and namespace of objects, by their rows.
    objects: HashMap<i64, (i64, String)>,
    codec: Codec,
}

/// The rights of a reader, and what was decided while the connection is open.
#[derive(Clone, Debug)]
pub(super) struct Narrowed {
    dir: PathBuf,
    visit: Arc<Visit>,
    inner: Arc<Mutex<Inner>>,
}

impl Narrowed {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Decides, by what is known: what is not decided yet is hidden, and makes the reading void. None where the resource is not known
    /// yet.
    fn sees(&self, resource: i64, namespace: &str) -> Result<Option<bool>, Undecided> {
        self.visit.check()?;
        let mut inner = self.lock();
        if !inner.scope.has(resource, namespace) {
            return Ok(Some(false));
        }
        let Some(of) = inner.resources.get_mut(&resource) else { return Ok(None) };
        let holds = |decision: &&Decision| !self.visit.follows() || Instant::now() < decision.until;
        if let Some(known) = of.namespaces.get(namespace).filter(holds) {
            return Ok(Some(known.is_allowed));
        }
        let Some(decision) = self.visit.sees(Listing::new(&of.group, &of.plural, namespace)) else {
            return Ok(Some(false));
        };
        of.namespaces.insert(namespace.to_owned(), decision);
        Ok(Some(decision.is_allowed))
    }

    /// Decides about an entry of no object's row: a GAP of a whole source is seen by everybody, and what names an object is seen
    /// as that is.
    fn tells(&self, (resource, scope): (i64, &str), op: i64, line: &[u8]) -> Result<Option<bool>, Undecided> {
        let is_gap = type_of(op) == Some(EntryType::Gap);
        if !is_gap && let decided @ (None | Some(true)) = self.sees(resource, "")? {
            return Ok(decided);
        }
        let line = self.lock().codec.decompress(None, line);
        let Some(header) = line.as_deref().ok().and_then(|line| wire::Header::parse(line).ok()) else {
            // Nobody knows of which object a damaged one is.
            return self.sees(resource, "");
        };
        let namespace = header.namespace.as_deref().unwrap_or_default();
        if is_gap && header.name.is_none() {
            return if scope.is_empty() { Ok(Some(true)) } else { self.sees(resource, scope) };
        }
        self.sees(resource, namespace)
    }
}

/// Error of a function within a statement, whose text alone comes through SQLite.
#[derive(Debug, thiserror::Error)]
#[error("{MARK}")]
struct Within;

/// Reads from an error of SQLite that not enough was decided.
pub(super) fn refusal(error: &rusqlite::Error) -> Option<Refusal> {
    let rusqlite::Error::SqliteFailure(_, Some(text)) = error else { return None };
    text.contains(MARK).then(|| Undecided.into())
}

fn undecided(undecided: Undecided) -> JournalError {
    JournalError::Refused(undecided.into())
}

fn within(_: Undecided) -> rusqlite::Error {
    rusqlite::Error::UserFunctionError(Box::new(Within))
}

fn text<'c>(context: &'c Context<'_>, at: usize) -> rusqlite::Result<&'c str> {
    Ok(context.get_raw(at).as_str()?)
}

/// Makes the functions that the views call.
fn functions(conn: &Connection, narrowed: &Narrowed) -> rusqlite::Result<()> {
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_INNOCUOUS;
    let of = narrowed.clone();
    conn.create_scalar_function("decklog_sees", 2, flags, move |context| {
        of.sees(context.get(0)?, text(context, 1)?).map_err(within)
    })?;
    let of = narrowed.clone();
    conn.create_scalar_function("decklog_tells", 4, flags, move |context| {
        let line = match context.get_raw(3) {
            ValueRef::Blob(line) => line,
            ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) | ValueRef::Text(_) => &[],
        };
        of.tells((context.get(0)?, text(context, 1)?), context.get(2)?, line).map_err(within)
    })?;
    let of = narrowed.clone();
    conn.create_scalar_function("decklog_resource", 3, flags, move |context| {
        of.know(context.get(0)?, context.get(1)?, context.get(2)?);
        Ok(true)
    })?;
    let of = narrowed.clone();
    conn.create_scalar_function("decklog_gap", 1, flags, move |context| {
        let blob = context.get_raw(0).as_blob()?;
        let mut inner = of.lock();
        Ok(match inner.codec.decompress(None, blob) {
            Ok(line) => inner.codec.compress(None, &wire::without_count(&line)),
            // Who reads it finds that it is damaged.
            Err(_) => blob.to_vec(),
        })
    })
}

impl Narrowed {
    fn know(&self, id: i64, group: String, plural: String) {
        let of = OfResource { group, plural, namespaces: HashMap::new() };
        self.lock().resources.entry(id).or_insert(of);
    }
}

/// The statements that make the views.
fn views(conn: &Connection) -> rusqlite::Result<String> {
    let sees = |resource: &str, namespace: &str| SEES.replace("RESOURCE", resource).replace("NAMESPACE", namespace);
    let mut of_source = conn.prepare("SELECT name FROM pragma_table_info('source')")?;
    let columns: Vec<String> = of_source.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
    let shown = |column: &String| match OF_SOURCE.iter().find(|(masked, _)| masked == column) {
        Some((_, instead)) => format!("{instead} AS {column}"),
        None => format!("s.{column}"),
    };
    let columns: Vec<String> = columns.iter().map(shown).collect();
    let of_line = "decklog_tells(s.resource, s.namespace, e.type, e.line)";
    let mut text = format!(
        "CREATE TEMP VIEW object AS SELECT * FROM main.object o WHERE {of_object};
         CREATE TEMP VIEW source AS SELECT {columns} FROM main.source s WHERE s.namespace = '' OR {of_source};
         CREATE TEMP VIEW entry AS SELECT e.seq, e.time, e.type, e.source, e.object, e.previous, e.base, e.object_start,
             e.object_end, CASE WHEN e.type = 3 THEN decklog_gap(e.line) ELSE e.line END AS line
             FROM main.entry e WHERE CASE WHEN e.object IS NOT NULL
                 THEN (SELECT {of_object} FROM main.object o WHERE o.id = e.object)
                 ELSE (SELECT coalesce({of_line}, CASE WHEN (SELECT decklog_resource(r.id, r.api_group, r.plural)
                     FROM main.resource r WHERE r.id = s.resource) THEN {of_line} END, 0)
                     FROM main.source s WHERE s.id = e.source) END;
         CREATE TEMP VIEW actor AS SELECT * FROM main.actor a WHERE EXISTS (SELECT 1 FROM temp.entry e WHERE e.seq = a.seq);
         CREATE TEMP VIEW dead_letter AS SELECT * FROM main.dead_letter d
             WHERE EXISTS (SELECT 1 FROM temp.entry e WHERE e.seq = d.seq);
         CREATE TEMP VIEW request AS SELECT * FROM main.request q WHERE {of_request};
         CREATE TEMP VIEW unwritten AS SELECT * FROM main.unwritten u WHERE EXISTS (SELECT 1 FROM main.resource r
             WHERE r.api_group = u.api_group AND r.plural = u.plural AND {of_unwritten});
         CREATE TEMP VIEW audit_log AS SELECT name, position, complete, '{{}}' AS counts, first_at, 0 AS lost_at, read_at, NULL AS probe,
             active FROM main.audit_log;\n",
        of_object = sees("o.resource", "o.namespace"),
        of_source = sees("s.resource", "s.namespace"),
        of_request = sees("q.resource", "''"),
        of_unwritten = sees("r.id", "''"),
        columns = columns.join(", "),
    );
    let mut tables = conn.prepare("SELECT name FROM main.sqlite_schema WHERE type = 'table'")?;
    let names: Vec<String> = tables.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
    for name in names.iter().filter(|name| !FILTERED.contains(&name.as_str()) && !OPEN.contains(&name.as_str())) {
        text.push_str(&format!("CREATE TEMP VIEW {name} AS SELECT * FROM main.{name} WHERE 0;\n"));
    }
    Ok(text)
}

/// The tables of which each row is decided.
const FILTERED: [&str; 8] = ["object", "source", "entry", "actor", "dead_letter", "request", "unwritten", "audit_log"];

impl Reader {
    /// Opens as [`Reader::open`] does, and shows what somebody may see: all of it to who may list everything.
    ///
    /// # Errors
    /// As [`Reader::open`], and where nobody knows yet who reads, or no more.
    pub fn seen_by(dir: &Path, sight: &Sight) -> Result<Self> {
        let mut reader = Self::open(dir)?;
        if let Sight::Only(visit) = sight {
            match visit.sees_everything() {
                Some(true) => {}
                Some(false) => reader.narrow(dir, Arc::clone(visit))?,
                None => return Err(undecided(Undecided)),
            }
        }
        Ok(reader)
    }

    fn narrow(&mut self, dir: &Path, visit: Arc<Visit>) -> Result<()> {
        let what = "the rights of a reader";
        let narrowed = Narrowed { dir: dir.to_owned(), visit, inner: Arc::default() };
        let known = self.rows("SELECT id, api_group, plural FROM main.resource", [], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        })?;
        known.into_iter().for_each(|(id, group, plural)| narrowed.know(id, group, plural));
        functions(&self.conn, &narrowed).map_err(sql(what))?;
        let views = views(&self.conn).map_err(sql(what))?;
        self.conn
            .execute_batch(&format!(
                "PRAGMA temp_store = MEMORY; PRAGMA query_only = OFF;\n{views}PRAGMA query_only = ON;"
            ))
            .map_err(sql(what))?;
        self.narrowed = Some(narrowed);
        Ok(())
    }

    /// Reports whether it shows less than all of the log.
    #[must_use]
    pub const fn is_narrowed(&self) -> bool {
        self.narrowed.is_some()
    }

    /// Opens all of the log, for what is kept for all readers; none where this reader shows all of it.
    ///
    /// # Errors
    /// As [`Reader::open`].
    pub fn unnarrowed(&self) -> Result<Option<Self>> {
        self.narrowed.as_ref().map(|narrowed| Self::open(&narrowed.dir)).transpose()
    }

    /// Checks that the reader may list each resource that the log watches, where the log watches it.
    ///
    /// # Errors
    /// Where it may not, with the first that it may not list.
    pub fn sees_all(&self) -> Result<()> {
        let Some(narrowed) = &self.narrowed else { return Ok(()) };
        let sources = self.rows(
            "SELECT s.resource, s.namespace, r.api_group, r.plural FROM main.source s JOIN main.resource r ON r.id = s.resource",
            [],
            |row| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?, row.get::<_, String>(2)?, row.get::<_, String>(3)?)),
        )?;
        for (resource, namespace, group, plural) in sources {
            narrowed.know(resource, group.clone(), plural.clone());
            let sees = narrowed.sees(resource, &namespace).map_err(undecided)?;
            // The others are met as well, so that all of them are asked about at once.
            if sees != Some(true) && !narrowed.visit.is_undecided() {
                let dot = if group.is_empty() { "" } else { "." };
                return Err(JournalError::Refused(Refusal::new(
                    Refused::Forbidden,
                    format!(
                        "this is about the whole log, and the cluster does not let you list {plural}{dot}{group} in all namespaces; ask for that right, or about objects that you may list"
                    ),
                )));
            }
        }
        if narrowed.visit.is_undecided() { Err(undecided(Undecided)) } else { Ok(()) }
    }

    /// Reports whether the entry of a mark is shown: by its object's row, and where it has none by its own.
    ///
    /// # Errors
    /// Where the API server does not decide.
    pub fn shows(&self, object: i64, seq: Seq) -> Result<bool> {
        let Some(narrowed) = &self.narrowed else { return Ok(true) };
        let what = "the rights of a reader";
        if object == 0 {
            let shown = self.conn.prepare_cached("SELECT 1 FROM temp.entry WHERE seq = ?");
            let shown = shown.and_then(|mut select| select.query_row([seq.0], |_| Ok(())).optional());
            return Ok(shown.map_err(sql(what))?.is_some());
        }
        let known = narrowed.lock().objects.get(&object).cloned();
        let (resource, namespace) = match known {
            Some(known) => known,
            None => {
                let select = self.conn.prepare_cached("SELECT resource, namespace FROM main.object WHERE id = ?");
                let row = select
                    .and_then(|mut select| select.query_row([object], |row| Ok((row.get(0)?, row.get(1)?))).optional());
                let Some(row) = row.map_err(sql(what))? else { return Ok(false) };
                let row: (i64, String) = row;
                narrowed.lock().objects.insert(object, row.clone());
                row
            }
        };
        match narrowed.sees(resource, &namespace).map_err(undecided)? {
            Some(sees) => Ok(sees),
            // Its resource came after this reader: the view makes it known.
            None => {
                let shown = self.conn.query_row("SELECT 1 FROM temp.object WHERE id = ?", [object], |_| Ok(()));
                Ok(shown.optional().map_err(sql(what))?.is_some())
            }
        }
    }

    /// Shows, from now on, some namespaces and what is in none; all of them where there are none. Of what is beside them nothing is
    /// decided.
    pub fn limit(&self, namespaces: &[String]) {
        if let Some(narrowed) = &self.narrowed {
            narrowed.lock().scope.namespaces = namespaces.to_vec();
        }
    }

    /// Reads some resources and namespaces, and of what is in no namespace; where there are none, those of the reading that it is a part
    /// of. Of what is beside them nothing is decided, and nothing is shown.
    ///
    /// # Errors
    /// As `read`.
    pub fn within<T, E>(
        &mut self,
        (resources, namespaces): (Vec<i64>, Vec<String>),
        read: impl FnOnce(&mut Self) -> Result<T, E>,
    ) -> Result<T, E> {
        let Some(narrowed) = self.narrowed.clone() else { return read(self) };
        let before = {
            let outer = &mut narrowed.lock().scope;
            let own = Scope {
                resources: if resources.is_empty() { outer.resources.clone() } else { resources },
                namespaces: if namespaces.is_empty() { outer.namespaces.clone() } else { namespaces },
            };
            std::mem::replace(outer, own)
        };
        let result = read(self);
        narrowed.lock().scope = before;
        result
    }

    /// Reads within the bounds of a statement.
    pub(super) fn bounded<T>(&mut self, query: &EntryQuery, read: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let resources = query.objects.iter().map(|(resource, _)| *resource).collect();
        self.within((resources, query.namespaces.clone()), read)
    }

    /// Reports whether it is known without asking that objects of a resource in a namespace are shown.
    pub(super) fn recalls(&self, resource: i64, namespace: &str) -> bool {
        let Some(narrowed) = &self.narrowed else { return true };
        let inner = narrowed.lock();
        let Some(of) = inner.resources.get(&resource) else { return false };
        narrowed.visit.recalls(&Listing::new(&of.group, &of.plural, namespace))
    }
}

#[cfg(test)]
mod tests;
