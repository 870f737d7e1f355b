//! Objects that cannot be recorded: each version of each is a GAP, once, and holds up nothing else.
//!
//! # Decision: an object that cannot be recorded is one gap
//!
//! Context: An object may be too large, have no uid or name, be no JSON, or be nothing that the API server can read from etcd.
//! Decision: Its identity is read as far as possible, and the journal records that version as one GAP with the name. Inferred
//! deletions, audits and recoveries leave it out; its known state stays. A list with an object without any identity proves no
//! deletion. A watch event that is no JSON is requested again three times first.
//! Cost: A table of unreadable versions.

use rusqlite::{OptionalExtension, params};

use super::staging::row_bytes;
use super::{Transaction, sql};
use crate::core::model::{Observed, Redacted, ResourceVersion, Unread, Verb, Why};
use crate::journal::error::Result;

/// Objects of one list that are named by a GAP each. Where there are more, one GAP of the whole source stands for the rest.
const NAMED: usize = 100;
/// Nameless objects of a watch that are remembered for one source.
const NAMELESS: u64 = 1000;

impl Transaction<'_> {
    /// Stages an object of a list that cannot be recorded.
    pub(super) fn stage_unread(&mut self, id: i64, object: &Unread) -> Result {
        let object = &self.as_known(id, object)?;
        let Unread { namespace, name, uid, version, .. } = object.clone();
        let stub = Observed { namespace, name, uid, version, body: Redacted::default() };
        if self.staged(id).given_up || !self.take_room(id, row_bytes(&stub, None))? {
            return Ok(());
        }
        self.note(id, true, object)?;
        if stub.name.is_empty() { Ok(()) } else { self.keep_staged(id, &stub, None, false) }
    }

    fn note(&self, id: i64, staged: bool, object: &Unread) -> Result {
        self.execute(
            "note an object that cannot be recorded",
            "INSERT OR REPLACE INTO unread (source, staged, namespace, name, uid, version, why, digest)
             VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            params![
                id,
                staged,
                object.namespace,
                object.name,
                object.uid,
                object.version.as_str(),
                object.why.as_str(),
                object.digest
            ],
        )?;
        Ok(())
    }

    /// Records what a complete list has and could not be recorded, as far as that is news: what its predecessor had, or a
    /// watch brought, is a GAP already. `why` is the gap that the list itself has declared.
    pub(super) fn record_unread(&mut self, id: i64, why: Option<Why>, version: &ResourceVersion) -> Result {
        let what = "note objects that cannot be recorded";
        let news: Vec<Unread> = {
            let mut select = self
                .conn
                .prepare_cached(
                    "SELECT namespace, name, uid, version, why, digest FROM unread n WHERE source = ?1 AND staged = 1
                         AND NOT EXISTS (SELECT 1 FROM unread o WHERE o.source = ?1 AND o.staged = 0
                             AND o.namespace = n.namespace AND o.name = n.name AND o.uid = n.uid
                             AND o.version = n.version AND o.digest = n.digest) LIMIT ?2",
                )
                .map_err(sql(what))?;
            let rows = select
                .query_map(params![id, NAMED + 1], |row| {
                    let why: String = row.get(4)?;
                    Ok(Unread {
                        namespace: row.get(0)?,
                        name: row.get(1)?,
                        uid: row.get(2)?,
                        version: ResourceVersion(row.get(3)?),
                        why: Why::parse(&why).unwrap_or(Why::Undecodable),
                        digest: row.get(5)?,
                    })
                })
                .map_err(sql(what))?;
            rows.collect::<Result<_, _>>().map_err(sql(what))?
        };
        // The deletion of an object that could not be read says so, and is written after this.
        let forget = "DELETE FROM unread AS u WHERE source = ?1 AND staged = 0 AND (why <> ?2 OR NOT EXISTS
             (SELECT 1 FROM object o WHERE o.resource = ?3 AND o.namespace = u.namespace AND o.name = u.name
                 AND o.version = u.version AND o.present = 1))";
        self.execute(what, forget, params![id, Why::Unreadable.as_str(), self.source(id)?.resource])?;
        self.execute(what, "UPDATE OR REPLACE unread SET staged = 0 WHERE source = ?", params![id])?;
        let from = self.last_good(id)?;
        for object in news.iter().take(NAMED) {
            // A gap of the whole source for the same reason stands there already.
            if why != Some(Why::Oversize) || object.why != Why::Oversize {
                self.gap(id, object.why, from.clone(), Some(version.clone()), Some(object))?;
            }
        }
        if let Some(more) = news.get(NAMED) {
            self.gap(id, more.why, from, Some(version.clone()), None)?;
        }
        Ok(())
    }

    /// Reports whether the newest list of a source has an object with neither a name nor a uid.
    pub(super) fn has_nameless(&self, id: i64) -> Result<bool> {
        self.conn
            .prepare_cached(
                "SELECT EXISTS (SELECT 1 FROM unread WHERE source = ? AND staged = 0 AND name = '' AND uid = '')",
            )
            .and_then(|mut select| select.query_row([id], |row| row.get(0)))
            .map_err(sql("find objects that cannot be recorded"))
    }

    /// An event of a watch whose object cannot be recorded: a GAP, unless this version of it is one already. An object that
    /// the event deletes is gone, with its last known state.
    pub(super) fn unread_change(&mut self, id: i64, verb: Verb, object: &Unread) -> Result {
        let source = self.source(id)?;
        if source.lost.is_some() {
            return Ok(());
        }
        let has_version = !object.version.as_str().is_empty();
        let late = has_version && source.checkpoint.is_past(&object.version);
        let resource = source.resource;
        if !self.is_noted(id, object)? {
            let to = has_version.then(|| object.version.clone());
            let from = self.last_good(id)?;
            self.gap(id, object.why, from, to, Some(object))?;
            self.forget_older(id, object)?;
            self.note(id, false, object)?;
        }
        if verb == Verb::Delete && !object.name.is_empty() && !late {
            let known = self.known(resource, &object.namespace, &object.name)?;
            let is_it = |uid: &str| object.uid.is_empty() || object.uid == uid;
            if let Some(known) = known.filter(|known| known.present && is_it(&known.uid)) {
                self.vanished(id, &known, &object.namespace, &object.name)?;
            }
        }
        let at = self.at;
        if let Some(source) = self.touch(id).filter(|_| has_version && !late) {
            source.checkpoint.advance(&object.version);
            source.good_at = at;
            source.moved = true;
        }
        Ok(())
    }

    /// An object that the API server cannot read from etcd: a GAP, unless one stands there since its newest version.
    pub(super) fn unreadable(&mut self, id: i64, object: &Unread) -> Result {
        let object = &self.as_known(id, object)?;
        if self.is_noted(id, object)? {
            return Ok(());
        }
        let from = Some(object.version.clone()).filter(|version| !version.as_str().is_empty());
        self.gap(id, object.why, from.or(self.last_good(id)?), None, Some(object))?;
        self.forget_older(id, object)?;
        self.note(id, false, object)
    }

    /// Adds the uid and the version that the log has to an object that cannot be read.
    fn as_known(&self, id: i64, object: &Unread) -> Result<Unread> {
        if object.why != Why::Unreadable {
            return Ok(object.clone());
        }
        let known = self.known(self.source(id)?.resource, &object.namespace, &object.name)?;
        let (uid, version) =
            known.filter(|known| known.present).map(|known| (known.uid, known.version)).unwrap_or_default();
        Ok(Unread { uid, version, ..object.clone() })
    }

    /// Returns the version since which the API server has not been able to read an object, where it is still the newest one known.
    pub(super) fn unreadable_since(&self, id: i64, row: i64) -> Result<Option<ResourceVersion>> {
        self.conn
            .prepare_cached(
                "SELECT o.version FROM object o JOIN unread u ON u.source = ?1 AND u.staged = 0
                     AND u.namespace = o.namespace AND u.name = o.name AND u.uid = o.uid AND u.version = o.version
                 WHERE o.id = ?2 AND u.why = ?3",
            )
            .and_then(|mut select| {
                let row = params![id, row, Why::Unreadable.as_str()];
                select.query_row(row, |row| row.get(0).map(ResourceVersion)).optional()
            })
            .map_err(sql("find objects that cannot be read"))
    }

    /// Reports whether this version of it is a GAP already.
    fn is_noted(&self, id: i64, object: &Unread) -> Result<bool> {
        self.conn
            .prepare_cached(
                "SELECT EXISTS (SELECT 1 FROM unread WHERE source = ? AND staged = 0 AND namespace = ? AND name = ?
                     AND uid = ? AND version = ? AND digest = ?)",
            )
            .and_then(|mut select| {
                let (name, version) = (&object.name, object.version.as_str());
                let key = params![id, object.namespace, name, object.uid, version, object.digest];
                select.query_row(key, |row| row.get(0))
            })
            .map_err(sql("find objects that cannot be recorded"))
    }

    /// Drops what was noted of earlier versions, and of nameless objects where they are too many.
    fn forget_older(&self, id: i64, object: &Unread) -> Result {
        let what = "forget what cannot be recorded";
        if !object.name.is_empty() {
            let earlier = "DELETE FROM unread WHERE source = ? AND staged = 0 AND namespace = ? AND name = ?";
            return self.execute(what, earlier, params![id, object.namespace, object.name]).map(drop);
        }
        let nameless: u64 = self
            .conn
            .prepare_cached("SELECT count(*) FROM unread WHERE source = ? AND staged = 0 AND name = ''")
            .and_then(|mut select| select.query_row([id], |row| row.get(0)))
            .map_err(sql(what))?;
        if nameless >= NAMELESS {
            self.execute(what, "DELETE FROM unread WHERE source = ? AND staged = 0 AND name = ''", params![id])?;
        }
        Ok(())
    }
}
