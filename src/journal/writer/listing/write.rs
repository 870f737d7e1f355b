//! Writes of a complete list: deletions, then changes, in slices.

use rusqlite::{OptionalExtension, params};

use super::staged::{Opened, Slice, Staged};
use super::{
    DAMAGED, Evidence, Frame, JournalError, Known, MENDED, MENDED_BEHIND_GAP, Observed, Redacted, Result, SILENT,
    SLICE, SLICE_BYTES, Transaction, Why, identity, known_row, sql,
};

impl Transaction<'_> {
    /// Invariant 2: objects that one complete, consistent list does not have are gone. Looks at one slice of what is
    /// known, after this namespace and name; says how far it came, `None` for to the end.
    pub(in crate::journal::writer) fn write_deletions(
        &mut self,
        id: i64,
        after: Option<&(String, String)>,
    ) -> Result<Option<(String, String)>> {
        let what = "find what is gone";
        let (resource, scope) = {
            let source = self.source(id)?;
            (source.resource, source.namespace.clone())
        };
        let (namespace, name) = after.map_or((&*scope, ""), |(namespace, name)| (namespace, name));
        let upto: Option<(String, String)> = self
            .conn
            .prepare_cached(
                "SELECT namespace, name FROM object WHERE resource = ?1 AND present = 1
                     AND (namespace, name) > (?3, ?4) AND namespace <= iif(?2 = '', x'', ?2)
                 ORDER BY namespace, name LIMIT 1 OFFSET ?5",
            )
            .and_then(|mut select| {
                let found = select.query_row(params![resource, scope, namespace, name, SLICE - 1], |row| {
                    Ok((row.get(0)?, row.get(1)?))
                });
                found.optional()
            })
            .map_err(sql(what))?;
        let gone: Vec<(Known, String, String)> = {
            let mut select = self
                .conn
                .prepare_cached(
                    "SELECT id, uid, version, present, last, base, state IS NOT NULL, marks, namespace, name FROM object o
                     WHERE resource = ?1 AND present = 1 AND (namespace, name) > (?3, ?4)
                         -- Up to there, or to the end: a bound that the index knows, so that a slice costs the same
                         -- however many objects come after it.
                         AND (namespace, name) <= (coalesce(?6, iif(?2 = '', x'', ?2)), coalesce(?7, x''))
                         AND NOT EXISTS
                         (SELECT 1 FROM listing l WHERE l.source = ?5 AND l.namespace = o.namespace AND l.name = o.name
                             -- What cannot be recorded is there without its body, and may be another incarnation.
                             AND (l.body IS NOT NULL OR l.uid IN (o.uid, '')))
                         AND NOT EXISTS (SELECT 1 FROM unread u WHERE u.source = ?5 AND u.staged = 0
                             AND u.name = '' AND u.uid = o.uid AND o.uid <> '')
                     ORDER BY namespace, name",
                )
                .map_err(sql(what))?;
            let (upto_namespace, upto_name) = upto.as_ref().map(|(namespace, name)| (namespace, name)).unzip();
            let rows = select
                .query_map(params![resource, scope, namespace, name, id, upto_namespace, upto_name], |row| {
                    Ok((known_row(row)?, row.get(8)?, row.get(9)?))
                })
                .map_err(sql(what))?;
            rows.collect::<Result<_, _>>().map_err(sql(what))?
        };
        for (known, namespace, name) in &gone {
            self.vanished(id, known, namespace, name)?;
        }
        Ok(upto)
    }

    /// Writes a slice of what a list found new or changed, in the order of versions, which is the order in which it came
    /// to be. Says whether there may be more.
    pub(super) fn write_changes(&mut self, id: i64, older: bool) -> Result<bool> {
        let (_, why, _) = self.pending(id)?;
        let silent = why.as_deref() == Some(SILENT);
        let gap = why.as_deref().and_then(Why::parse);
        let recovering = self.recovering(id)?;
        let evidence = match gap {
            _ if recovering == MENDED_BEHIND_GAP => Evidence::Inferred,
            _ if recovering != 0 => Evidence::Recovered,
            Some(_) => Evidence::Inferred,
            None => Evidence::Listed,
        };
        let mut staged = self.next_staged(id)?;
        let any = !staged.is_empty();
        if recovering == MENDED_BEHIND_GAP {
            // What follows the first one is whole.
            staged.truncate_to_first();
            staged.each(|first| self.write_listed(id, first, evidence, silent, older))?;
            let what = "write what an object lacked";
            self.execute(what, "UPDATE source SET recovering = ? WHERE id = ?", params![MENDED, id])?;
            return Ok(any);
        }
        let before = self.changes.head;
        staged.each(|object| self.write_listed(id, object, evidence, silent, older))?;
        if evidence == Evidence::Recovered {
            let what = "count what is recovered";
            // Of what one object lacked no GAP of the source says anything.
            let add = "UPDATE source SET recovered = recovered + ?1,
                     recovered_since = recovered_since + iif(recovering = ?3, 0, ?1) WHERE id = ?2";
            self.execute(what, add, params![self.changes.head - before, id, MENDED])?;
        }
        Ok(any)
    }

    /// Reads the staged objects of the next slice, in the order of versions.
    fn next_staged(&self, id: i64) -> Result<Slice> {
        let what = "read a staged object";
        let most = SLICE_BYTES.min(self.quota.sizes.group as u64 / 4);
        let mut select = self
            .conn
            .prepare_cached(
                "SELECT id, namespace, name, uid, version, body, marks, pointers, gone FROM listing
                 WHERE source = ? AND body IS NOT NULL ORDER BY length(version), version, id LIMIT ?",
            )
            .map_err(sql(what))?;
        let mut rows = select.query(params![id, SLICE]).map_err(sql(what))?;
        let (mut staged, mut bytes) = (Slice::default(), 0);
        while bytes < most {
            let Some(row) = rows.next().map_err(sql(what))? else { break };
            bytes += staged.push(row).map_err(sql(what))?;
        }
        Ok(staged)
    }

    fn write_listed(
        &mut self,
        id: i64,
        mut staged: Staged<'_>,
        evidence: Evidence,
        silent: bool,
        older: bool,
    ) -> Result {
        if staged.gone {
            let Staged { row, object, .. } = staged;
            self.went(id, &object, evidence)?;
            self.execute("unstage an object", "DELETE FROM listing WHERE id = ?", params![row])?;
            return Ok(());
        }
        let Opened { bytes, newest } = staged.open(self.codec);
        let Staged { row, mut object, frame, .. } = staged;
        let body =
            bytes.map_err(|error| JournalError::Corrupt(format!("a staged object: {error}"))).and_then(|bytes| {
                let staged = Redacted { bytes, ..std::mem::take(&mut object.body) };
                if older { self.redact_again(id, &object.uid, staged) } else { Ok(staged) }
            });
        // What is redacted again is another text than the staged one.
        let frame = (!older).then_some(Frame { zstd: frame, newest });
        object.body = match body {
            Ok(body) => body,
            // What is damaged cannot be recorded, but the API server still has it.
            Err(JournalError::Corrupt(text)) => return self.drop_damaged(id, row, &object, &text),
            Err(error) => return Err(error),
        };
        let resource = self.source(id)?.resource;
        match self.known(resource, &object.namespace, &object.name)? {
            // What is recovered may have been recorded before a crash, or before the position was lost.
            Some(known)
                if evidence == Evidence::Recovered
                    && object.version.is_not_after(&known.version)
                    && (known.present || known.uid == object.uid || !self.is_undone(id, &known)?) =>
            {
                self.missed_too_late(id, &known, &object)?;
            }
            Some(known) if known.present && known.uid == object.uid => {
                if known.version != object.version || self.differs(id, &known, &object)? {
                    self.modified(id, &known, &object, evidence)?;
                }
            }
            Some(known) if known.present => {
                self.vanished(id, &known, &object.namespace, &object.name)?;
                self.added(id, Some(known.id), &object, evidence, frame)?;
            }
            known if silent => {
                let row = self.object_row(id, known.map(|known| known.id), &object)?;
                self.remember(row, &object, frame)?;
            }
            known => self.added(id, known.map(|known| known.id), &object, evidence, frame)?,
        }
        // It is recorded: a crash after this commit goes on with the next one.
        self.execute("unstage an object", "DELETE FROM listing WHERE id = ?", params![row])?;
        Ok(())
    }

    /// Reports whether an object died at a version that a restore from a backup has undone: one that was not written since.
    fn is_undone(&self, id: i64, known: &Known) -> Result<bool> {
        let applied = &self.source(id)?.checkpoint.applied;
        Ok(applied.as_ref().is_none_or(|applied| applied.is_before(&known.version)))
    }

    /// A deletion that was recovered: recorded as the watch would have brought it, with the last state under the
    /// version of the deletion.
    pub(super) fn went(&mut self, id: i64, gone: &Observed, evidence: Evidence) -> Result {
        let resource = self.source(id)?.resource;
        let Some(known) = self.known(resource, &gone.namespace, &gone.name)? else { return Ok(()) };
        if !known.version.is_before(&gone.version) {
            // Its uid is not known, and a deletion that is recorded has its version.
            let uid = known.uid.clone();
            return self.missed_too_late(id, &known, &Observed { uid, ..gone.clone() });
        }
        if !known.present {
            return Ok(());
        }
        if evidence == Evidence::Inferred {
            return self.vanished(id, &known, &gone.namespace, &gone.name);
        }
        let mut body = self.last_state(id, &known, &gone.namespace, &gone.name)?;
        identity::set_version(&mut body.bytes, known.version.as_str(), gone.version.as_str());
        let object = Observed { uid: known.uid.clone(), body, ..gone.clone() };
        self.deleted(id, &known, &object, Evidence::Recovered)
    }

    /// Goes on without an object whose staged body is damaged; the end of the list knows that it lacks something.
    pub(super) fn drop_damaged(&mut self, id: i64, row: i64, object: &Observed, text: &str) -> Result {
        let resource = &self.source(id)?.facts.plural;
        let (namespace, name) = (&object.namespace, &object.name);
        tracing::error!(
            "{text}: {resource} {namespace}/{name} is recorded after another list, behind a GAP; check the disk of the state directory"
        );
        let what = "unstage an object";
        self.execute(what, "UPDATE source SET pending_step = ? WHERE id = ?", params![DAMAGED, id])?;
        self.execute(what, "DELETE FROM listing WHERE id = ?", params![row])?;
        Ok(())
    }

    /// Reports whether the same version has another state: a cluster that was restored from a backup assigns its versions a
    /// second time.
    pub(super) fn differs(&mut self, source: i64, known: &Known, object: &Observed) -> Result<bool> {
        let state = match self.current_state(source, known) {
            Ok(state) => state,
            // What cannot be read is recorded again.
            Err(JournalError::Corrupt(_)) => return Ok(true),
            Err(error) => return Err(error),
        };
        Ok(state.marks != object.body.marks || state.bytes != object.body.bytes)
    }
}
