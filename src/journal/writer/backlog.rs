//! The backlog: what the watches of a standby have brought beyond the shared log, kept beside the journal until the shared log has
//! it, or until it is handed to the writer that leads.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, params};

use super::queue::{Command, OfSource, Queue, Queued, Reply};
use super::{Writer, marks_json, marks_of, pointers_json, sql};
use crate::core::change::redact::Redactor;
use crate::core::model::{Checkpoint, Cluster, Observed, Redacted, ResourceVersion, SourceSpec, Unread, Verb, Why};
use crate::journal::codec::Codec;
use crate::journal::error::Result;
use crate::journal::{JournalError, SourceId, SourceState, WatchChange};

/// About so many bytes of it are handed to the writer at once.
const FEED_BYTES: usize = 4 << 20;

pub(super) const KEEP: &str = "keep what its watches bring";
const BOOKMARK: i64 = 2;
/// An object that cannot be recorded, which is there or is deleted.
const UNREAD: [i64; 2] = [3, 4];

/// Changes of one source beyond the shared log.
#[derive(Default)]
pub(super) struct Ahead {
    /// The row, the version and the bytes of each, the oldest first.
    pub(super) rows: VecDeque<(i64, ResourceVersion, u64)>,
    pub(super) bytes: u64,
    /// True if changes of it were dropped: nothing counts until it is registered again.
    pub(super) lost: bool,
    /// The position of the shared log under which an object without a version is kept, until the position is another.
    beyond: Option<ResourceVersion>,
}

/// State of a standby beside its journal.
#[derive(Default)]
pub(super) struct Standby {
    pub(super) cluster: Option<Cluster>,
    pub(super) redactor: Option<Arc<Redactor>>,
    /// Watched sources with their ids; 0 if the shared log has nothing of one yet.
    pub(super) specs: Vec<(SourceSpec, i64)>,
    /// Sources that wait for another position than this one.
    pub(super) waiting: Vec<(Box<SourceSpec>, Option<ResourceVersion>, Reply<()>)>,
    pub(super) ahead: BTreeMap<i64, Ahead>,
    pub(super) bytes: u64,
    /// Last reported state of each source. The journal has those of the leader.
    pub(super) states: BTreeMap<i64, SourceState>,
    pub(super) narrows: bool,
}

/// Returns the id of a source and its position.
pub(super) fn position(conn: &Connection, spec: &SourceSpec) -> Result<Option<(i64, Checkpoint)>> {
    let read = |row: &rusqlite::Row<'_>| {
        let (resume, applied): (Option<String>, Option<String>) = (row.get(1)?, row.get(2)?);
        Ok((row.get(0)?, Checkpoint { resume: resume.map(ResourceVersion), applied: applied.map(ResourceVersion) }))
    };
    conn.prepare_cached(
        "SELECT s.id, s.resume, s.applied FROM source s JOIN resource r ON r.id = s.resource
         WHERE r.api_group = ? AND r.plural = ? AND s.namespace = ? AND s.label_selector = ? AND s.field_selector = ?",
    )
    .and_then(|mut select| {
        let namespace = spec.namespace.clone().unwrap_or_default();
        let (group, plural) = (&spec.resource.group, &spec.resource.plural);
        select.query_row(params![group, plural, namespace, spec.label_selector, spec.fields(|_| true)], read).optional()
    })
    .map_err(sql("read a source"))
}

/// The position of a source in the shared log, as far as it is here.
fn resume(conn: &Connection, id: i64) -> Result<Option<ResourceVersion>> {
    let resume: Option<Option<String>> = conn
        .prepare_cached("SELECT resume FROM source WHERE id = ?")
        .and_then(|mut select| select.query_row([id], |row| row.get(0)).optional())
        .map_err(sql("read a source"))?;
    Ok(resume.flatten().map(ResourceVersion))
}

impl Standby {
    /// Removes the changes that the shared log has by now.
    pub(super) fn prune(&mut self, conn: &Connection) -> Result {
        for (id, ahead) in &mut self.ahead {
            let Some(resume) = resume(conn, *id)? else { continue };
            if ahead.beyond.as_ref() == Some(&resume) {
                continue;
            }
            let has = |version: &ResourceVersion| version.is_not_after(&resume);
            let count = if resume.is_ordered() {
                ahead.rows.iter().take_while(|(_, version, _)| has(version)).count()
            } else {
                ahead.rows.iter().rposition(|(_, version, _)| *version == resume).map_or(0, |at| at + 1)
            };
            let mut last = None;
            for (row, _, bytes) in ahead.rows.drain(..count) {
                (ahead.bytes, self.bytes) = (ahead.bytes - bytes, self.bytes - bytes);
                last = Some(row);
            }
            if let Some(last) = last {
                conn.prepare_cached("DELETE FROM backlog WHERE source = ? AND id <= ?")
                    .and_then(|mut delete| delete.execute(params![id, last]))
                    .map_err(sql(KEEP))?;
            }
        }
        Ok(())
    }

    /// Removes the changes of a source.
    pub(super) fn drop_of(&mut self, conn: &Connection, id: i64, lost: bool) -> Result {
        if let Some(ahead) = self.ahead.get_mut(&id) {
            self.bytes -= ahead.bytes;
            *ahead = Ahead { lost, ..Ahead::default() };
            conn.execute("DELETE FROM backlog WHERE source = ?", [id]).map_err(sql(KEEP))?;
        }
        Ok(())
    }

    /// Sources whose position in the shared log is another one by now go on from there.
    pub(super) fn answer_waiting(&mut self, conn: &Connection) -> Result {
        let mut still = Vec::new();
        for (spec, had, reply) in std::mem::take(&mut self.waiting) {
            let now = position(conn, &spec)?.and_then(|(_, checkpoint)| checkpoint.resume);
            if now.is_some() && now != had {
                reply.send(());
            } else {
                still.push((spec, had, reply));
            }
        }
        self.waiting = still;
        Ok(())
    }
}

impl Writer {
    /// Hands the writer the next of what was kept. Says whether there is more.
    pub(super) fn drain_backlog(&mut self, queue: &mut Queue) -> Result<bool> {
        let Some(after) = self.drained else { return Ok(false) };
        if queue.has_again() || !self.deferred.is_empty() {
            return Ok(true);
        }
        let mut commands: Vec<Queued> = Vec::new();
        let (mut bytes, mut last) = (0, None);
        {
            let mut select = self
                .disk
                .conn
                .prepare_cached(
                    "SELECT id, source, at, verb, namespace, name, uid, version, body, marks, pointers FROM backlog
                     WHERE id > ? ORDER BY id",
                )
                .map_err(sql(KEEP))?;
            let mut rows = select.query([after]).map_err(sql(KEEP))?;
            while let Some(row) = rows.next().map_err(sql(KEEP))? {
                let read = |row: &rusqlite::Row<'_>| -> rusqlite::Result<(i64, i64, i64, i64, Observed, Vec<u8>)> {
                    let pointers: Option<String> = row.get(10)?;
                    let body = Redacted {
                        bytes: Vec::new(),
                        pointers: pointers.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default(),
                        marks: marks_of(row.get(9)?),
                    };
                    let version = ResourceVersion(row.get(7)?);
                    let object =
                        Observed { namespace: row.get(4)?, name: row.get(5)?, uid: row.get(6)?, version, body };
                    let blob: Option<Vec<u8>> = row.get(8)?;
                    Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, object, blob.unwrap_or_default()))
                };
                let (id, source, at, verb, mut object, blob) = read(row).map_err(sql(KEEP))?;
                last = Some(id);
                let source = SourceId(source);
                if let Some(command) = without_body(verb, &object) {
                    commands.push(Queued { command: Command::Source(source, command), at, bytes: 0, room: None });
                    continue;
                }
                object.body.bytes = self
                    .codec
                    .decompress(None, &blob)
                    .map_err(|error| JournalError::Corrupt(format!("a change that was kept: {error}")))?;
                let size = object.body.bytes.len();
                bytes += size;
                let change = WatchChange { verb: if verb == 0 { Verb::Upsert } else { Verb::Delete }, object };
                match commands.last_mut() {
                    Some(Queued {
                        command: Command::Source(of, OfSource::Changes(changes)), at: when, bytes, ..
                    }) if *of == source && *when == at => {
                        changes.push(change);
                        *bytes += size;
                    }
                    _ => {
                        let command = Command::Source(source, OfSource::Changes(vec![change]));
                        commands.push(Queued { command, at, bytes: size, room: None });
                    }
                }
                if bytes >= FEED_BYTES {
                    break;
                }
            }
        }
        match last {
            Some(last) => {
                self.drained = Some(last);
                queue.give_back(commands.into_iter());
                Ok(true)
            }
            None => {
                self.drained = None;
                queue.hold(false);
                self.disk.conn.execute("DELETE FROM backlog", []).map_err(sql(KEEP))?;
                if let Some(link) = &self.link {
                    link.change(|state| state.backlog = 0);
                }
                Ok(false)
            }
        }
    }
}

pub(super) fn insert(
    conn: &Connection,
    codec: &mut Codec,
    id: i64,
    at: i64,
    change: &WatchChange,
) -> Result<(i64, u64)> {
    let object = &change.object;
    let body = codec.compress(None, &object.body.bytes);
    let bytes = body.len() as u64 + 200;
    conn.prepare_cached("INSERT INTO backlog (source, at, verb, namespace, name, uid, version, body, marks, pointers) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")
        .and_then(|mut insert| {
            insert.execute(params![
                id,
                at,
                i64::from(change.verb == Verb::Delete),
                object.namespace,
                object.name,
                object.uid,
                object.version.as_str(),
                body,
                marks_json(&object.body),
                pointers_json(&object.body),
            ])
        })
        .map_err(sql(KEEP))?;
    Ok((conn.last_insert_rowid(), bytes))
}

pub(super) fn insert_bookmark(conn: &Connection, id: i64, at: i64, version: &ResourceVersion) -> Result<(i64, u64)> {
    conn.prepare_cached(
        "INSERT INTO backlog (source, at, verb, namespace, name, uid, version) VALUES (?, ?, 2, '', '', '', ?)",
    )
    .and_then(|mut insert| insert.execute(params![id, at, version.as_str()]))
    .map_err(sql(KEEP))?;
    Ok((conn.last_insert_rowid(), 100))
}

/// Returns the command of a row without an object: a bookmark, or the identity of an object that cannot be recorded, as
/// [`keep_unread`] keeps it. Its reason and digest stand where other rows have the pointers of redacted values.
fn without_body(verb: i64, kept: &Observed) -> Option<OfSource> {
    let verb = match verb {
        BOOKMARK => return Some(OfSource::Bookmark(kept.version.clone())),
        verb if verb == UNREAD[0] => Verb::Upsert,
        verb if verb == UNREAD[1] => Verb::Delete,
        _ => return None,
    };
    let Observed { namespace, name, uid, version, body } = kept.clone();
    let mut rest = body.pointers.into_iter();
    let why = rest.next().and_then(|why| Why::parse(&why)).unwrap_or(Why::Undecodable);
    let digest = rest.next().unwrap_or_default();
    Some(OfSource::Unread(verb, Box::new(Unread { namespace, name, uid, version, digest, why })))
}

/// Keeps an object that cannot be recorded. One without a version is kept under the version before it: of what is kept last,
/// or the position of the source. A source without a position lists after a take-over, and meets the object there.
pub(super) fn keep_unread(
    conn: &Connection,
    standby: &mut Standby,
    id: i64,
    at: i64,
    verb: Verb,
    object: &Unread,
) -> Result {
    let ahead = standby.ahead.entry(id).or_default();
    let mut under = Some(object.version.clone()).filter(|version| !version.as_str().is_empty());
    if under.is_none() {
        under = ahead.rows.back().map(|(_, version, _)| version.clone());
    }
    if under.is_none() {
        under = resume(conn, id)?;
        ahead.beyond.clone_from(&under);
    }
    let Some(under) = under else { return Ok(()) };
    let kept = [object.why.as_str(), &object.digest];
    let pointers = serde_json::to_string(&kept).expect("texts always serialise into memory");
    let row = conn
        .prepare_cached("INSERT INTO backlog (source, at, verb, namespace, name, uid, version, pointers) VALUES (?, ?, ?, ?, ?, ?, ?, ?)")
        .and_then(|mut insert| {
            let verb = UNREAD[usize::from(verb == Verb::Delete)];
            let (name, version) = (&object.name, object.version.as_str());
            insert.execute(params![id, at, verb, object.namespace, name, object.uid, version, pointers])
        })
        .map_err(sql(KEEP))
        .map(|_| (conn.last_insert_rowid(), 200));
    keep_rows(standby, id, [(&under, row)].into_iter())
}

/// Notes rows of a source, unless something of it was dropped.
pub(super) fn keep_rows<'v>(
    standby: &mut Standby,
    id: i64,
    rows: impl Iterator<Item = (&'v ResourceVersion, Result<(i64, u64)>)>,
) -> Result {
    let ahead = standby.ahead.entry(id).or_default();
    if ahead.lost {
        return Ok(());
    }
    for (version, row) in rows {
        let (row, bytes) = row?;
        ahead.rows.push_back((row, version.clone(), bytes));
        ahead.bytes += bytes;
        standby.bytes += bytes;
    }
    Ok(())
}
