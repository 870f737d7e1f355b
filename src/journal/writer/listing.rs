//! Lists: staged page by page, and written as the difference from what is known once the last page is in.

use rusqlite::params;

use super::{Done, GROUP_CHANGES, Known, SILENT, Writer, known_row, marks_json, marks_of, micros, sql};
use crate::ambient;
use crate::journal::JournalError;
use crate::model::{Evidence, Gap, Observed, Redacted, ResourceVersion, Why};

impl Writer {
    /// Goes on with complete lists that a crash left half written, and drops those that were not complete.
    pub(in crate::journal) fn recover(&mut self) -> Done {
        let pending: Vec<i64> = {
            let mut select = self
                .conn
                .prepare("SELECT id FROM source WHERE pending IS NOT NULL ORDER BY id")
                .map_err(sql("find unfinished lists"))?;
            let rows = select.query_map([], |row| row.get(0)).map_err(sql("find unfinished lists"))?;
            rows.collect::<Result<_, _>>().map_err(sql("find unfinished lists"))?
        };
        for id in pending {
            self.load_source(id)?;
            self.write_list(id)?;
        }
        self.conn.execute("DELETE FROM listing", []).map_err(sql("drop unfinished lists"))?;
        self.sources.clear();
        Ok(())
    }

    /// Keeps one listed object aside until its list is complete.
    pub(super) fn stage(&mut self, id: i64, object: Observed) -> Done {
        let resource = self.source(id)?.resource;
        let known = self.known(resource, &object.namespace, &object.name)?;
        let same =
            known.is_some_and(|known| known.present && known.uid == object.uid && known.version == object.version);
        let body = (!same).then(|| self.codec.compress(None, &object.body.bytes));
        let pointers = serde_json::to_string(&object.body.pointers).expect("strings always serialise");
        self.execute(
            "stage a listed object",
            "INSERT INTO listing (source, namespace, name, uid, version, body, marks, pointers) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            params![
                id,
                object.namespace,
                object.name,
                object.uid,
                object.version.as_str(),
                body,
                marks_json(&object.body),
                pointers
            ],
        )?;
        Ok(())
    }

    pub(super) fn complete_list(&mut self, id: i64, version: &ResourceVersion, why: Option<Why>) -> Done {
        // Kept with the list, so that a crash in the middle goes on in the same way.
        let silent = self.source(id)?.silent.then_some(SILENT);
        self.execute(
            "complete a list",
            "UPDATE source SET pending = ?, pending_why = ?, pending_told = 0 WHERE id = ?",
            params![version.as_str(), why.map(Why::as_str).or(silent), id],
        )?;
        Ok(())
    }

    /// Writes the difference of a complete list in transactions of bounded size. Each leaves a state from which
    /// `recover` goes on, so the list is asked for once and told once, wherever a crash falls.
    pub(super) fn write_list(&mut self, id: i64) -> Done {
        let what = "write a list";
        self.begin()?;
        self.commit()?;
        let (version, why, told): (String, Option<String>, bool) = self
            .conn
            .query_row("SELECT pending, pending_why, pending_told FROM source WHERE id = ?", [id], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?))
            })
            .map_err(sql(what))?;
        let version = ResourceVersion(version);
        let silent = why.as_deref() == Some(SILENT);
        let why = why.as_deref().and_then(Why::parse);
        let evidence = if why.is_some() { Evidence::Inferred } else { Evidence::Listed };
        // Invariant 3: the gap comes before what follows it.
        if let Some(why) = why
            && !told
        {
            self.begin()?;
            let from = self.known_good(id)?;
            self.gap(id, &Gap { why, from, to: Some(version.clone()) })?;
            self.execute(what, "UPDATE source SET pending_told = 1 WHERE id = ?", params![id])?;
        }
        self.write_deletions(id)?;
        // In the order of versions, which is the order in which they came to be.
        let staged: Vec<i64> = {
            let mut select = self
                .conn
                .prepare("SELECT id FROM listing WHERE source = ? AND body IS NOT NULL ORDER BY length(version), version, id")
                .map_err(sql(what))?;
            let rows = select.query_map([id], |row| row.get(0)).map_err(sql(what))?;
            rows.collect::<Result<_, _>>().map_err(sql(what))?
        };
        for chunk in staged.chunks(GROUP_CHANGES) {
            self.begin()?;
            for row in chunk {
                self.write_listed(id, *row, evidence, silent)?;
            }
            self.commit()?;
        }
        self.begin()?;
        self.execute(what, "DELETE FROM listing WHERE source = ?", params![id])?;
        self.execute(what, "UPDATE source SET pending = NULL, rescoped = 0 WHERE id = ?", params![id])?;
        if let Some(source) = self.sources.get_mut(&id) {
            source.resume = Some(version.clone());
            source.applied = Some(version);
            source.good_at = micros(ambient::now());
            source.moved = true;
        }
        self.commit()
    }

    /// Invariant 2: objects that one complete, consistent list does not have are gone.
    pub(super) fn write_deletions(&mut self, id: i64) -> Done {
        let what = "find what is gone";
        let (resource, scope) = {
            let source = self.source(id)?;
            (source.resource, source.namespace.clone())
        };
        loop {
            let gone: Vec<(Known, String, String)> = {
                let mut select = self
                    .conn
                    .prepare_cached(
                        "SELECT id, uid, version, present, last, base, state IS NOT NULL, marks, namespace, name FROM object o
                         WHERE resource = ?1 AND present = 1 AND (?2 = '' OR namespace = ?2) AND NOT EXISTS
                             (SELECT 1 FROM listing l WHERE l.source = ?3 AND l.namespace = o.namespace AND l.name = o.name)
                         LIMIT ?4",
                    )
                    .map_err(sql(what))?;
                let rows = select
                    .query_map(params![resource, scope, id, GROUP_CHANGES], |row| {
                        Ok((known_row(row)?, row.get(8)?, row.get(9)?))
                    })
                    .map_err(sql(what))?;
                rows.collect::<Result<_, _>>().map_err(sql(what))?
            };
            if gone.is_empty() {
                return Ok(());
            }
            self.begin()?;
            for (known, namespace, name) in &gone {
                self.vanished(id, known, namespace, name)?;
            }
            self.commit()?;
        }
    }

    pub(super) fn write_listed(&mut self, id: i64, row: i64, evidence: Evidence, silent: bool) -> Done {
        let what = "read a staged object";
        let (mut object, blob): (Observed, Vec<u8>) = self
            .conn
            .prepare_cached("SELECT namespace, name, uid, version, body, marks, pointers FROM listing WHERE id = ?")
            .and_then(|mut select| {
                select.query_row([row], |row| {
                    let pointers: Option<String> = row.get(6)?;
                    let body = Redacted {
                        bytes: Vec::new(),
                        marks: marks_of(row.get(5)?),
                        pointers: pointers.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default(),
                    };
                    let (namespace, name, uid) = (row.get(0)?, row.get(1)?, row.get(2)?);
                    Ok((Observed { namespace, name, uid, version: ResourceVersion(row.get(3)?), body }, row.get(4)?))
                })
            })
            .map_err(sql(what))?;
        object.body.bytes = self
            .codec
            .decompress(None, &blob)
            .map_err(|error| JournalError::Corrupt(format!("a staged object: {error}")))?;
        let resource = self.source(id)?.resource;
        match self.known(resource, &object.namespace, &object.name)? {
            Some(known) if known.present && known.uid == object.uid => {
                if known.version != object.version {
                    self.modified(id, &known, &object, evidence)?;
                }
            }
            Some(known) if known.present => {
                self.vanished(id, &known, &object.namespace, &object.name)?;
                self.added(id, Some(known.id), &object, evidence)?;
            }
            known if silent => {
                let row = self.object_row(id, known.map(|known| known.id), &object)?;
                self.withhold(row, &object)?;
            }
            known => self.added(id, known.map(|known| known.id), &object, evidence)?,
        }
        // The last state of what was staged is told: a crash after this commit goes on with the next one.
        self.execute("unstage an object", "UPDATE listing SET body = NULL WHERE id = ?", params![row])?;
        Ok(())
    }

    /// Tells the end of what the configuration does not watch any more, where it goes on watching the resource
    /// elsewhere: to the log, an object that left the scope is gone.
    pub(super) fn narrow(&mut self) -> Done {
        let what = "find what is not watched any more";
        let retired: Vec<i64> = {
            let mut select = self
                .conn
                .prepare(
                    "SELECT id FROM source s WHERE active = 0 AND (resume IS NOT NULL OR rescoped = 1)
                     AND EXISTS (SELECT 1 FROM source o WHERE o.resource = s.resource AND o.active = 1)",
                )
                .map_err(sql(what))?;
            let rows = select.query_map([], |row| row.get(0)).map_err(sql(what))?;
            rows.collect::<Result<_, _>>().map_err(sql(what))?
        };
        for id in retired {
            let mut told = false;
            loop {
                let left: Vec<(Known, String, String)> = {
                    let mut select = self
                        .conn
                        .prepare_cached(
                            "SELECT o.id, o.uid, o.version, o.present, o.last, o.base, o.state IS NOT NULL, o.marks, o.namespace, o.name
                             FROM object o JOIN source s ON s.id = ?1
                             WHERE o.resource = s.resource AND o.present = 1 AND (s.namespace = '' OR o.namespace = s.namespace)
                                 AND NOT EXISTS (SELECT 1 FROM source a WHERE a.resource = s.resource AND a.active = 1
                                     AND (a.namespace = '' OR a.namespace = o.namespace))
                             LIMIT ?2",
                        )
                        .map_err(sql(what))?;
                    let rows = select
                        .query_map(params![id, GROUP_CHANGES], |row| Ok((known_row(row)?, row.get(8)?, row.get(9)?)))
                        .map_err(sql(what))?;
                    rows.collect::<Result<_, _>>().map_err(sql(what))?
                };
                if left.is_empty() {
                    break;
                }
                self.begin()?;
                if !self.sources.contains_key(&id) {
                    self.load_source(id)?;
                }
                if !told {
                    let from = self.known_good(id)?;
                    self.gap(id, &Gap { why: Why::Scope, from, to: None })?;
                    told = true;
                }
                for (known, namespace, name) in &left {
                    self.vanished(id, known, namespace, name)?;
                }
                // Of the same transaction, so that a crash does not tell the gap again for nothing.
                self.execute(what, "UPDATE source SET resume = NULL, rescoped = 1 WHERE id = ?", params![id])?;
                self.commit()?;
            }
        }
        Ok(())
    }

    pub(super) fn gone(&mut self, id: i64) -> Done {
        self.begin()?;
        self.execute("drop an unfinished list", "DELETE FROM listing WHERE source = ?", params![id])?;
        let known: bool = {
            let source = self.source(id)?;
            self.conn
                .query_row(
                    "SELECT EXISTS (SELECT 1 FROM object WHERE resource = ?1 AND present = 1 AND (?2 = '' OR namespace = ?2))",
                    params![source.resource, source.namespace],
                    |row| row.get(0),
                )
                .map_err(sql("look objects up"))?
        };
        // Also without objects something may have come and gone between our last look and the end.
        let listed = self.source(id)?.resume.is_some();
        if known || listed {
            let from = self.known_good(id)?;
            self.gap(id, &Gap { why: Why::Scope, from, to: None })?;
            self.write_deletions(id)?;
        }
        self.begin()?;
        if let Some(source) = self.sources.get_mut(&id) {
            source.resume = None;
            source.moved = true;
        }
        self.execute(
            "note a source's state",
            "UPDATE source SET state = 'gone', detail = '' WHERE id = ?",
            params![id],
        )?;
        Ok(())
    }
}
