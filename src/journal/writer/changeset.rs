//! The rows that a transaction touched: noted by triggers while it runs, taken out before its end, and put into another
//! journal.
//!
//! It is one way for every table, so that what a new column or a new table holds is in the shared log without a word about
//! it here. A row is sent as it is at the end of the transaction, whole, by its primary key: so what is put in twice
//! changes nothing, and the two journals are equal row by row.

use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, params_from_iter};

use super::sql;
use crate::journal::error::Result;
use crate::journal::{JournalError, schema};

/// Facts that are not replicated: the mark of the directory, the position in the shared log, whether the disk is full, and what
/// was set apart.
const OWN_FACTS: [&str; 5] = ["apart", "mark", "paused", "resumed", "shared"];
/// Tables that stay with the journal that they are in.
const OWN_TABLES: [&str; 2] = ["backlog", "outline"];

const TAKE: &str = "take out what is for the shared log";
const PUT: &str = "take over what the shared log has";

/// A table as far as rows of it travel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::journal) struct Table {
    pub(in crate::journal) name: String,
    /// The columns of its primary key, in their order there.
    key: Vec<String>,
    /// Its columns, in their order.
    columns: Vec<String>,
    /// Its key is one integer, by which SQLite keeps its rows.
    is_numbered: bool,
}

/// The tables that travelled where the schema was this one: an upgrade goes one machine after the other, and what the
/// shared log has from before stays what it is. A column that a row of then does not have gets its default; a migration that
/// does more than add has to say here what becomes of such rows.
pub(in crate::journal) fn tables_of(schema: usize) -> Result<Vec<Table>> {
    let migrations = schema::migrations_of(schema).ok_or_else(|| {
        JournalError::Foreign(format!("the shared log is of a decklog from before 0.1.0, with the schema {schema}"))
    })?;
    let conn = Connection::open_in_memory().map_err(sql("read its tables"))?;
    for migration in migrations {
        conn.execute_batch(migration).map_err(sql("read its tables"))?;
    }
    tables(&conn)
}

/// The tables that travel. What others refer to stands first.
pub(in crate::journal) fn tables(conn: &Connection) -> Result<Vec<Table>> {
    let read = || -> rusqlite::Result<Vec<Table>> {
        let mut select =
            conn.prepare("SELECT name FROM main.sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")?;
        let names: Vec<String> = select.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
        let mut tables = Vec::new();
        for name in names.into_iter().filter(|name| !OWN_TABLES.contains(&name.as_str())) {
            let mut info = conn.prepare("SELECT name, pk, type FROM pragma_table_info(?)")?;
            let columns: Vec<(String, i64, String)> = info
                .query_map([&name], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
                .collect::<Result<_, _>>()?;
            let mut key: Vec<_> = columns.iter().filter(|(_, place, _)| *place > 0).collect();
            key.sort_by_key(|(_, place, _)| *place);
            let is_numbered = matches!(key[..], [(_, _, of)] if of == "INTEGER");
            let key = key.into_iter().map(|(name, ..)| name.clone()).collect();
            let columns = columns.into_iter().map(|(name, ..)| name).collect();
            tables.push(Table { name, key, columns, is_numbered });
        }
        let rank = |table: &Table| match table.name.as_str() {
            "resource" => 0,
            "source" => 1,
            _ => 2,
        };
        tables.sort_by(|a, b| rank(a).cmp(&rank(b)).then_with(|| a.name.cmp(&b.name)));
        Ok(tables)
    };
    read().map_err(sql("read its tables"))
}

impl Table {
    fn key_of(&self, row: &str) -> String {
        self.key.iter().map(|column| format!("{row}.{column}")).collect::<Vec<_>>().join(", ")
    }

    /// Returns the SQL condition that excludes rows that are not replicated.
    fn travels(&self, row: &str) -> String {
        if self.name == "meta" {
            let own = OWN_FACTS.map(|fact| format!("'{fact}'")).join(", ");
            format!("{row}.key NOT IN ({own})")
        } else {
            "true".to_owned()
        }
    }
}

/// Notes from now on what transactions of this connection touch. Each row that is written pays for this, so a row that is noted
/// already costs a look, and a change that leaves the key as it is is noted once.
pub(in crate::journal) fn begin(conn: &Connection, tables: &[Table]) -> Result {
    let mut text = String::new();
    for table in tables {
        let (name, key) = (&table.name, table.key.join(", "));
        let form = if table.is_numbered {
            format!("{key} INTEGER PRIMARY KEY")
        } else {
            format!("{key}, PRIMARY KEY ({key})")
        };
        let rowid = if table.is_numbered { "" } else { " WITHOUT ROWID" };
        text.push_str(&format!("CREATE TEMP TABLE touched_{name} ({form}){rowid};\n"));
        let other: Vec<String> = table.key.iter().map(|column| format!("old.{column} IS NOT new.{column}")).collect();
        let other = other.join(" OR ");
        for (event, row, also) in [
            ("INSERT".to_owned(), "new", ""),
            ("UPDATE".to_owned(), "new", ""),
            (format!("UPDATE OF {key}"), "old", &*other),
            ("DELETE".to_owned(), "old", ""),
        ] {
            let there: Vec<String> = table.key.iter().map(|column| format!("{column} = {row}.{column}")).collect();
            let also = if also.is_empty() { "true" } else { also };
            // Not `OR IGNORE`: an upsert, which sets this off, would have its own way with what is there already.
            text.push_str(&format!(
                "CREATE TEMP TRIGGER touch_{name}_{row}_{} AFTER {event} ON main.{name}
                     WHEN {} AND ({also}) AND NOT EXISTS (SELECT 1 FROM touched_{name} WHERE {})
                     BEGIN INSERT INTO touched_{name} VALUES ({}); END;\n",
                &event[..6],
                table.travels(row),
                there.join(" AND "),
                table.key_of(row)
            ));
        }
    }
    conn.execute_batch(&text).map_err(sql("note what is for the shared log"))
}

/// Forgets what was touched: it is in the shared log already.
pub(in crate::journal) fn forget(conn: &Connection, tables: &[Table]) -> Result {
    for Table { name, .. } in tables {
        let forgotten =
            conn.prepare_cached(&format!("DELETE FROM temp.touched_{name}")).and_then(|mut delete| delete.execute([]));
        forgotten.map_err(sql(PUT))?;
    }
    Ok(())
}

/// Rows that a transaction touched, or a part of all rows, as bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::journal) struct Changeset(Vec<u8>);

impl Changeset {
    pub(in crate::journal) const fn of(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    pub(in crate::journal) fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub(in crate::journal) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes out what was touched since it was last taken out. Empty where nothing was.
    pub(in crate::journal) fn take(conn: &Connection, tables: &[Table]) -> Result<Self> {
        let mut rows = Self::default();
        for table in tables {
            rows.take_of(conn, table).map_err(sql(TAKE))?;
        }
        Ok(rows)
    }

    fn take_of(&mut self, conn: &Connection, table: &Table) -> rusqlite::Result<()> {
        let Table { name, key, columns, .. } = table;
        let joined: Vec<String> = key.iter().map(|column| format!("t.{column} = k.{column}")).collect();
        let text = format!(
            "SELECT t.{} IS NULL, {}, t.* FROM temp.touched_{name} k LEFT JOIN main.{name} t ON {}",
            key[0],
            table.key_of("k"),
            joined.join(" AND ")
        );
        let mut any = false;
        {
            let mut select = conn.prepare_cached(&text)?;
            let mut found = select.query([])?;
            while let Some(row) = found.next()? {
                any = true;
                let gone = row.get(0)?;
                self.begin_row(name, gone);
                let (from, count) = if gone { (1, key.len()) } else { (1 + key.len(), columns.len()) };
                for at in from..from + count {
                    self.value(row.get_ref(at)?);
                }
            }
        }
        if any {
            conn.prepare_cached(&format!("DELETE FROM temp.touched_{name}"))?.execute([])?;
        }
        Ok(())
    }

    /// Adds rows of a table that stand behind a key, until there are about so many bytes. Gives the key of the last, where
    /// there may be more.
    pub(in crate::journal) fn page(
        &mut self,
        conn: &Connection,
        table: &Table,
        after: Option<&[Value]>,
        bytes: usize,
    ) -> Result<Option<Vec<Value>>> {
        let mut read = || -> rusqlite::Result<Option<Vec<Value>>> {
            let key = table.key_of("t");
            let behind = match after {
                Some(after) => format!("({key}) > ({})", vec!["?"; after.len()].join(", ")),
                None => "true".to_owned(),
            };
            let text = format!(
                "SELECT {key}, t.* FROM main.{} t WHERE {behind} AND {} ORDER BY {key}",
                table.name,
                table.travels("t")
            );
            let mut select = conn.prepare_cached(&text)?;
            let mut found = select.query(params_from_iter(after.unwrap_or_default()))?;
            while let Some(row) = found.next()? {
                self.begin_row(&table.name, false);
                for at in table.key.len()..table.key.len() + table.columns.len() {
                    self.value(row.get_ref(at)?);
                }
                if self.0.len() >= bytes {
                    return (0..table.key.len()).map(|at| row.get(at)).collect::<Result<_, _>>().map(Some);
                }
            }
            Ok(None)
        };
        read().map_err(sql(TAKE))
    }

    fn begin_row(&mut self, table: &str, gone: bool) {
        self.0.push(if gone { b'-' } else { b'+' });
        self.text(table.as_bytes());
    }

    fn value(&mut self, value: ValueRef<'_>) {
        match value {
            ValueRef::Null => self.0.push(0),
            ValueRef::Integer(number) => {
                self.0.push(1);
                self.0.extend(number.to_le_bytes());
            }
            ValueRef::Real(number) => {
                self.0.push(2);
                self.0.extend(number.to_le_bytes());
            }
            ValueRef::Text(text) => {
                self.0.push(3);
                self.text(text);
            }
            ValueRef::Blob(blob) => {
                self.0.push(4);
                self.text(blob);
            }
        }
    }

    fn text(&mut self, bytes: &[u8]) {
        let length = u32::try_from(bytes.len()).expect("SQLite holds no value of 4 GiB");
        self.0.extend(length.to_le_bytes());
        self.0.extend(bytes);
    }

    /// Puts the rows into a journal, in the transaction that is open.
    pub(in crate::journal) fn put(&self, conn: &Connection, tables: &[Table]) -> Result {
        // A row may come before the one that it refers to.
        conn.execute_batch("PRAGMA defer_foreign_keys = ON").map_err(sql(PUT))?;
        let mut rest = &self.0[..];
        while !rest.is_empty() {
            let row = Row::parse(&mut rest, tables).ok_or_else(|| {
                JournalError::Corrupt("the shared log has rows that are none of this decklog's: it was written by another version, or is damaged".to_owned())
            })?;
            let name = &row.table.name;
            let text = if row.gone {
                let key: Vec<String> = row.table.key.iter().map(|column| format!("{column} = ?")).collect();
                format!("DELETE FROM main.{name} WHERE {}", key.join(" AND "))
            } else {
                let columns = &row.table.columns;
                format!(
                    "INSERT OR REPLACE INTO main.{name} ({}) VALUES ({})",
                    columns.join(", "),
                    vec!["?"; columns.len()].join(", ")
                )
            };
            let put =
                conn.prepare_cached(&text).and_then(|mut statement| statement.execute(params_from_iter(row.values)));
            put.map_err(sql(PUT))?;
        }
        Ok(())
    }
}

/// A row on its way into a journal.
struct Row<'t> {
    table: &'t Table,
    gone: bool,
    values: Vec<Value>,
}

impl<'t> Row<'t> {
    fn parse(rest: &mut &[u8], tables: &'t [Table]) -> Option<Self> {
        let gone = match take(rest, 1)?[0] {
            b'+' => false,
            b'-' => true,
            _ => return None,
        };
        let name = text(rest)?;
        let table = tables.iter().find(|table| table.name.as_bytes() == name)?;
        let count = if gone { table.key.len() } else { table.columns.len() };
        let values = (0..count).map(|_| value(rest)).collect::<Option<_>>()?;
        Some(Self { table, gone, values })
    }
}

fn take<'r>(rest: &mut &'r [u8], count: usize) -> Option<&'r [u8]> {
    let (taken, left) = rest.split_at_checked(count)?;
    *rest = left;
    Some(taken)
}

fn text<'r>(rest: &mut &'r [u8]) -> Option<&'r [u8]> {
    let length = take(rest, 4)?.try_into().ok().map(u32::from_le_bytes)?;
    take(rest, usize::try_from(length).ok()?)
}

fn value(rest: &mut &[u8]) -> Option<Value> {
    Some(match take(rest, 1)?[0] {
        0 => Value::Null,
        1 => Value::Integer(i64::from_le_bytes(take(rest, 8)?.try_into().ok()?)),
        2 => Value::Real(f64::from_le_bytes(take(rest, 8)?.try_into().ok()?)),
        3 => Value::Text(String::from_utf8(text(rest)?.to_vec()).ok()?),
        4 => Value::Blob(text(rest)?.to_vec()),
        _ => return None,
    })
}

/// Empties every table, before a base is put in.
pub(in crate::journal) fn clear(conn: &Connection, tables: &[Table]) -> Result {
    // They are of entries that may be others now.
    conn.execute_batch("DELETE FROM main.outline").map_err(sql(PUT))?;
    for table in tables.iter().rev() {
        conn.execute_batch(&format!("DELETE FROM main.{} AS t WHERE {}", table.name, table.travels("t")))
            .map_err(sql(PUT))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn journal() -> Connection {
        let conn = Connection::open_in_memory().unwrap();
        for migration in schema::migrations_of(schema::CURRENT).unwrap() {
            conn.execute_batch(migration).unwrap();
        }
        conn
    }

    /// The rows of the tables that are written here.
    fn rows(conn: &Connection) -> Vec<String> {
        let texts = [
            "SELECT id, plural FROM resource",
            "SELECT key, value FROM meta WHERE key <> 'mark'",
            "SELECT object, seq FROM pinned",
        ];
        let all = texts.iter().flat_map(|text| {
            let mut select = conn.prepare(text).unwrap();
            let shown = |row: &rusqlite::Row<'_>| Ok(format!("{:?} {:?}", row.get_ref(0)?, row.get_ref(1)?));
            select.query_map([], shown).unwrap().map(Result::unwrap).collect::<Vec<_>>()
        });
        all.collect()
    }

    /// Whatever a transaction does to a row, the other journal has it afterwards: made, changed, written over, called otherwise,
    /// removed, and removed and made again.
    #[test]
    fn what_a_transaction_did_is_what_travels() {
        let (from, to) = (journal(), journal());
        let tables = tables(&from).unwrap();
        begin(&from, &tables).unwrap();
        for text in [
            "INSERT INTO resource (id, api_group, plural, facts) VALUES (1, '', 'a', ''), (2, '', 'b', ''), (3, '', 'c', '');
             INSERT INTO meta VALUES ('x', '1'), ('y', '1'), ('mark', 'own'); INSERT INTO pinned VALUES (1, 1), (1, 2), (2, 1)",
            "UPDATE resource SET plural = 'z' WHERE id = 1; UPDATE resource SET id = 7 WHERE id = 2;
             INSERT OR REPLACE INTO meta VALUES ('x', '2');
             INSERT INTO meta VALUES ('y', '2') ON CONFLICT (key) DO UPDATE SET value = excluded.value;
             UPDATE pinned SET seq = 9 WHERE object = 1 AND seq = 2; DELETE FROM pinned WHERE object = 2",
            "DELETE FROM resource WHERE id = 3; INSERT INTO resource (id, api_group, plural, facts) VALUES (3, '', 'again', '');
             UPDATE resource SET id = 8 WHERE id = 7; UPDATE resource SET id = 7 WHERE id = 8; DELETE FROM meta WHERE key = 'y'",
        ] {
            from.execute_batch(text).unwrap();
            Changeset::take(&from, &tables).unwrap().put(&to, &tables).unwrap();
            assert_eq!(rows(&to), rows(&from), "after {text}");
            assert!(Changeset::take(&from, &tables).unwrap().is_empty(), "it is taken out once");
        }
        let own: u64 = to.query_row("SELECT count(*) FROM meta WHERE key = 'mark'", [], |row| row.get(0)).unwrap();
        assert_eq!(own, 0, "what stays with a journal does not travel");
    }

    #[test]
    fn a_column_that_an_older_journal_lacks_gets_its_default() {
        let (from, to) = (journal(), journal());
        from.execute_batch("ALTER TABLE source DROP COLUMN recovered").unwrap();
        let older = tables(&from).unwrap();
        begin(&from, &older).unwrap();
        from.execute_batch(
            "INSERT INTO resource (id, api_group, plural, facts) VALUES (1, '', 'pods', '{}');
             INSERT INTO source (id, resource, namespace, label_selector, field_selector, resume)
                 VALUES (1, 1, '', '', '', '9')",
        )
        .unwrap();
        Changeset::take(&from, &older).unwrap().put(&to, &older).unwrap();
        let text = "SELECT resume || ' ' || recovered FROM source";
        assert_eq!(to.query_row(text, [], |row| row.get::<_, String>(0)).unwrap(), "9 0");
    }
}
