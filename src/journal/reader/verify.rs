//! The proof that a journal is whole. It reads page by page, each at a moment of its own, so that a daemon that goes on
//! can empty its write-ahead log meanwhile: what is proved of an entry stays true, because no entry ever changes.

use std::collections::HashMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

use rusqlite::{ErrorCode, params};
use serde::{Deserialize, Serialize};

use super::{OLDEST, Reader, Stored, StoredEntry, rfc3339, sql, stored_row};
use crate::core::k8s::identity::Identity;
use crate::core::model::{EntryType, Seq};
use crate::core::wire;
use crate::journal::error::Result;
use crate::journal::{JournalError, schema};

/// Entries or objects that are read at one moment.
const ROWS: usize = 500;
/// SQLite's own check reads the whole database at one moment. It is given up when the write-ahead log has grown by so
/// many bytes meanwhile.
const GROWN: u64 = 32 << 20;
/// Interval of the progress callback, in steps of SQLite.
const STEPS: i32 = 100_000;

/// Result of `verify`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Verified {
    /// Entries read.
    pub entries: u64,
    /// Entries that are truncated, below the first that was read.
    pub removed: u64,
    /// Objects compared with the replay.
    pub objects: u64,
    /// GAP entries among the entries.
    pub gaps: u64,
    /// First and last seq read.
    pub range: Option<(Seq, Seq)>,
    /// True if SQLite's own check of its pages was skipped, because the daemon writes too fast for it.
    pub pages_unchecked: bool,
    /// The problems, at most [`Verified::MOST`] of them.
    pub problems: Vec<String>,
}

impl Verified {
    /// Number of problems that are reported.
    pub const MOST: usize = 50;

    fn problem(&mut self, text: String) {
        if self.problems.len() < Self::MOST {
            self.problems.push(text);
        }
    }
}

/// The newest entry of an object.
#[derive(Clone, Copy)]
struct Newest {
    seq: u64,
    exists: bool,
    uid: u64,
}

/// A row of the log with what `verify` looks at beside the entry.
struct Row {
    stored: Stored,
    object: Option<i64>,
    previous: u64,
    time: i64,
    /// Recorded start of the object in the line.
    start: i64,
    end: i64,
    /// Group, plural and namespace of its source, where the tables have that.
    source: Option<(String, String, String)>,
    /// Namespace and name of its object, and whether the resource is that of the source, where the table has it.
    named: Option<(String, String, bool)>,
}

/// Parts of an entry that are kept while the rest of the log is read.
struct Kept {
    op: EntryType,
    uid: u64,
    /// Resource, namespace, name and uid.
    incarnation: u64,
}

/// Rows with what is kept of their entries; those that are damaged come without.
type Page = Vec<(Row, Option<Kept>)>;

/// The names that entries have to carry.
struct Epochs {
    now: String,
    /// The first seq that carries it; `None` in a journal that did not note it.
    since: Option<u64>,
}

impl Epochs {
    fn has(&self, epoch: &str, seq: u64) -> bool {
        match self.since {
            Some(since) => !epoch.is_empty() && (epoch == self.now) == (seq >= since),
            // Names of epochs sort by their beginning.
            None => !epoch.is_empty() && *epoch <= *self.now,
        }
    }
}

/// A row of the object table.
struct Object {
    id: i64,
    uid: String,
    version: String,
    present: bool,
    last: u64,
    suppressed: bool,
    namespace: String,
    name: String,
    /// Group and plural.
    resource: (String, String),
    /// True if the newest entry has `base` as its base.
    based: bool,
}

impl Object {
    fn is(&self, entry: &wire::Entry<'_>) -> bool {
        (entry.group(), &*entry.resource) == (&*self.resource.0, &*self.resource.1)
            && entry.namespace.as_deref().unwrap_or_default() == self.namespace
            && entry.name.as_deref() == Some(self.name.as_str())
    }

    /// Reports whether a state without an entry can be the object's own, as far as redaction has left its names in it.
    fn is_in(&self, state: &[u8]) -> bool {
        let Ok(Identity { metadata, .. }) = serde_json::from_slice(state) else { return false };
        let Some(metadata) = metadata else { return true };
        [
            (metadata.namespace, &self.namespace),
            (metadata.name, &self.name),
            (metadata.uid, &self.uid),
            (metadata.version, &self.version),
        ]
        .iter()
        .all(|(inside, outside)| inside.as_deref().is_none_or(|inside| inside == outside.as_str()))
    }
}

impl Reader {
    /// Proves that the journal is whole: SQLite's own check, dense seqs from the log start on, each entry readable and
    /// in its place, the replay of the log equal to the object table in both directions, no cursor past the head.
    /// `progress` gets the entries read and the entries in all.
    ///
    /// # Errors
    /// Where the database cannot be read at all; damage is not an error but a problem in the answer.
    pub fn verify(&mut self, progress: impl FnMut(u64, u64)) -> Result<Verified> {
        let mut found = Verified::default();
        // What is verified is what is on disk.
        let at_hand = self.at_hand.take();
        let read = self.verify_all(&mut found, progress);
        self.at_hand = at_hand;
        match read {
            // Damage of the file itself ends the reading, and is the answer.
            Err(JournalError::Sqlite { what, source })
                if matches!(source.sqlite_error_code(), Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)) =>
            {
                found.problem(format!("{what}: {source}"));
                Ok(found)
            }
            other => other.map(|()| found),
        }
    }

    fn verify_all(&mut self, found: &mut Verified, mut progress: impl FnMut(u64, u64)) -> Result {
        self.verify_pages(found)?;
        let (epochs, head, given_out) = self.moment(|reader| {
            let epochs = Epochs { now: reader.epoch()?, since: reader.epoch_since()? };
            Ok((epochs, reader.head()?, reader.meta("head")?))
        })?;
        match given_out.parse() {
            Ok(given_out) if head.0 < given_out => {
                found.problem(format!("the newest entries, {} to {given_out}, are missing", head.next()));
            }
            Ok(given_out) if head.0 == given_out => {}
            Err(_) if given_out.is_empty() && head.0 == 0 => {}
            Ok(_) | Err(_) => found.problem(format!("its head is {head}, but it notes {given_out:?}")),
        }
        if epochs.now.is_empty() {
            found.problem("the journal has no epoch".to_owned());
        }
        let mut newest: HashMap<i64, Newest> = HashMap::new();
        let mut incarnations: HashMap<u64, Newest> = HashMap::new();
        let (mut at, mut expected) = (0, None);
        loop {
            let (oldest, rows) = self.moment(|reader| reader.verify_page(at, head, &epochs, found))?;
            let Some((last, ..)) = rows.last() else { break };
            at = last.stored.seq;
            for (row, entry) in rows {
                let seq = row.stored.seq;
                let kept = seq >= oldest;
                if kept {
                    // What was truncated while this reads is not missing.
                    let next = expected.unwrap_or(oldest).max(oldest);
                    if seq != next {
                        found.problem(format!("entries {next} to {} are missing", seq - 1));
                    }
                    expected = Some(seq + 1);
                    found.entries += 1;
                    found.range = Some((found.range.map_or(Seq(seq), |(first, _)| first), Seq(seq)));
                }
                let Some(entry) = entry else { continue };
                found.gaps += u64::from(kept && entry.op == EntryType::Gap);
                let Some(object) = row.object else { continue };
                let now = Newest { seq, exists: entry.op != EntryType::Deleted, uid: entry.uid };
                let before = newest.insert(object, now);
                let incarnation = incarnations.insert(entry.incarnation, now);
                if before.is_none() && row.named.is_none() {
                    // A row goes with the last entry of its object, never before.
                    found.problem(format!("the object of entry {seq} is missing in the object table"));
                }
                if kept {
                    check_order(&row, &entry, before.or(incarnation).as_ref(), before.is_some(), oldest, found);
                }
            }
            progress(found.entries, head.0.saturating_sub(oldest) + 1);
        }
        found.removed = found.range.map_or(0, |(first, _)| first.0 - 1);
        self.verify_objects(&newest, head, found)?;
        // Cursors before the head, so that none is seen past it while the daemon goes on.
        let sinks = self.sinks()?;
        let head = self.head()?;
        for sink in sinks {
            if sink.cursor > head {
                found.problem(format!("the cursor of sink {} is {}, past the head {head}", sink.name, sink.cursor));
            }
        }
        Ok(())
    }

    /// SQLite's own check of its pages.
    fn verify_pages(&mut self, found: &mut Verified) -> Result {
        let what = "its check";
        let wal = self.conn.path().map(|path| Path::new(path).with_file_name(schema::WAL));
        let length = move || wal.as_ref().and_then(|wal| fs::metadata(wal).ok()).map_or(0, |meta| meta.len());
        let most = length() + GROWN;
        self.conn.progress_handler(STEPS, Some(move || length() > most)).map_err(sql(what))?;
        let checked = (|| {
            let mut check = self.conn.prepare("PRAGMA integrity_check(20)").map_err(sql(what))?;
            let rows = check.query_map([], |row| row.get::<_, String>(0)).map_err(sql(what))?;
            for row in rows {
                match row {
                    Ok(text) if text == "ok" => {}
                    Ok(text) => found.problem(format!("SQLite: {text}")),
                    Err(error) if error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted) => {
                        found.pages_unchecked = true;
                    }
                    Err(error) => found.problem(format!("SQLite: {error}")),
                }
            }
            Ok(())
        })();
        self.conn.progress_handler(0, None::<fn() -> bool>).map_err(sql(what))?;
        checked
    }

    /// A page of rows after `at`, with those that are pinned, and the log start at the same moment. A row that is
    /// damaged is reported and comes without its entry.
    fn verify_page(&mut self, at: u64, head: Seq, epochs: &Epochs, found: &mut Verified) -> Result<(u64, Page)> {
        let what = "its check";
        let oldest = self.retained()?.oldest;
        let rows: Vec<(Row, bool)> = {
            let mut select = self
                .conn
                .prepare_cached(&format!(
                    "SELECT e.seq, e.type, e.base, e.line, e.object, previous, time, object_start, object_end,
                         r.api_group, r.plural, s.namespace, o.namespace, o.name, o.resource = s.resource,
                         e.seq >= {OLDEST} OR EXISTS (SELECT 1 FROM pinned h WHERE h.object = e.object AND h.seq = e.seq)
                     FROM entry e LEFT JOIN source s ON s.id = e.source LEFT JOIN resource r ON r.id = s.resource
                         LEFT JOIN object o ON o.id = e.object
                     WHERE e.seq > ? AND e.seq <= ? ORDER BY e.seq LIMIT ?"
                ))
                .map_err(sql(what))?;
            let rows = select
                .query_map(params![at, head.0, ROWS], |row| {
                    let stored = stored_row(row)?;
                    let source: (Option<_>, Option<_>, Option<_>) = (row.get(9)?, row.get(10)?, row.get(11)?);
                    let named: (Option<_>, Option<_>) = (row.get(12)?, row.get(13)?);
                    let same = row.get::<_, Option<bool>>(14)?.unwrap_or(false);
                    let facts = Row {
                        stored,
                        object: row.get(4)?,
                        previous: row.get(5)?,
                        time: row.get(6)?,
                        start: row.get(7)?,
                        end: row.get(8)?,
                        source: source
                            .0
                            .zip(source.1)
                            .zip(source.2)
                            .map(|((group, plural), scope)| (group, plural, scope)),
                        named: named.0.zip(named.1).map(|(namespace, name)| (namespace, name, same)),
                    };
                    Ok((facts, row.get(15)?))
                })
                .map_err(sql(what))?;
            rows.collect::<Result<_, _>>().map_err(sql(what))?
        };
        let mut page = Vec::with_capacity(rows.len());
        for (mut row, needed) in rows {
            let seq = row.stored.seq;
            if !needed {
                found.problem(format!("entry {seq} is before the log start, {oldest}, and nothing needs it"));
            }
            let blob = std::mem::take(&mut row.stored.blob);
            let entry = match self.unpack(Stored { blob, ..row.stored }) {
                Ok(entry) => match wire::Entry::parse(&entry.line) {
                    Ok(parsed) => {
                        if let Err(error) = parsed.check() {
                            found.problem(format!("entry {seq}: {error}"));
                        }
                        for check in [check_entry(&entry, &parsed, row.time, epochs), check_row(&row, &entry, &parsed)]
                        {
                            if let Err(problem) = check {
                                found.problem(format!("entry {seq}: {problem}"));
                            }
                        }
                        Some(kept(&parsed))
                    }
                    Err(error) => {
                        found.problem(format!("entry {seq}: {error}"));
                        None
                    }
                },
                Err(error @ JournalError::Corrupt(_)) => {
                    found.problem(error.to_string());
                    None
                }
                Err(error) => return Err(error),
            };
            page.push((row, entry));
        }
        Ok((oldest, page))
    }

    /// Replay of the log, up to `head`, against the object table.
    fn verify_objects(&mut self, newest: &HashMap<i64, Newest>, head: Seq, found: &mut Verified) -> Result {
        let mut at = 0;
        while let Some(last) = self.moment(|reader| reader.verify_objects_after(at, newest, head, found))? {
            at = last;
        }
        Ok(())
    }

    /// One page of it; gives the last id.
    fn verify_objects_after(
        &mut self,
        at: i64,
        newest: &HashMap<i64, Newest>,
        head: Seq,
        found: &mut Verified,
    ) -> Result<Option<i64>> {
        let what = "objects";
        let oldest = self.retained()?.oldest;
        let rows: Vec<Object> = {
            let mut select = self
                .conn
                .prepare_cached(
                    "SELECT o.id, uid, version, present, last, state IS NOT NULL, namespace, name,
                         coalesce(api_group, ''), coalesce(plural, ''),
                         base IS (SELECT coalesce(e.base, e.seq) FROM entry e WHERE e.seq = o.last AND e.type <> 2)
                     FROM object o LEFT JOIN resource r ON r.id = o.resource WHERE o.id > ? ORDER BY o.id LIMIT ?",
                )
                .map_err(sql(what))?;
            let rows = select
                .query_map(params![at, ROWS], |row| {
                    Ok(Object {
                        id: row.get(0)?,
                        uid: row.get(1)?,
                        version: row.get(2)?,
                        present: row.get(3)?,
                        last: row.get(4)?,
                        suppressed: row.get(5)?,
                        namespace: row.get(6)?,
                        name: row.get(7)?,
                        resource: (row.get(8)?, row.get(9)?),
                        based: row.get(10)?,
                    })
                })
                .map_err(sql(what))?;
            rows.collect::<Result<_, _>>().map_err(sql(what))?
        };
        let last = rows.last().map(|row| row.id);
        for row in rows {
            found.objects += 1;
            self.verify_object(&row, newest, head, oldest, found)?;
        }
        Ok(last)
    }

    fn verify_object(
        &mut self,
        row: &Object,
        newest: &HashMap<i64, Newest>,
        head: Seq,
        oldest: u64,
        found: &mut Verified,
    ) -> Result {
        let Object { id, uid, version, present, last, suppressed, .. } = row;
        // What came after the log was read, or is truncated since, cannot be compared with it.
        let newest = newest.get(id).filter(|newest| *last <= head.0 && (*last != 0 || newest.seq >= oldest));
        match newest {
            Some(Newest { seq, .. }) if seq != last => {
                found.problem(format!("object {uid} points to entry {last}, but the log's newest of it is {seq}"));
            }
            Some(Newest { exists, .. }) if exists != present && !suppressed => {
                found.problem(format!("object {uid} is {} in the table but not in the log", presence(*present)));
            }
            Some(_) | None => {}
        }
        if *suppressed {
            let state = self.conn.query_row("SELECT state, base FROM object WHERE id = ?", [id], |row| {
                Ok((row.get::<_, Vec<u8>>(0)?, row.get(1)?))
            });
            let (state, base) = state.map_err(sql("objects"))?;
            let own = match self.state(&state, base) {
                Err(JournalError::Corrupt(_)) => false,
                state => row.is_in(&state?),
            };
            if !own || !present {
                found.problem(format!("object {uid} has a state that is damaged or not its own"));
            }
        } else if *present && *last == 0 {
            found.problem(format!("object {uid} is present, and neither the log nor the table has its state"));
        }
        if *last == 0 {
            return Ok(());
        }
        match self.row(Seq(*last)) {
            Ok(Some(entry)) => {
                let Ok(entry) = wire::Entry::parse(&entry.line) else { return Ok(()) };
                // A suppressed state is newer than the log by intent.
                let newer =
                    *suppressed || (entry.uid.as_deref() == Some(uid.as_str()) && entry.version().as_str() == version);
                if !newer || !row.is(&entry) {
                    found.problem(format!("object {uid} at version {version} differs from entry {last}"));
                } else if !row.based {
                    found.problem(format!("object {uid} has another base than entry {last}"));
                }
            }
            Ok(None) => found.problem(format!("object {uid} points to entry {last}, which is not there")),
            // Reported where the log was read.
            Err(JournalError::Corrupt(_)) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

/// Returns the parts of an entry that are kept.
fn kept(entry: &wire::Entry<'_>) -> Kept {
    let uid = entry.uid.as_deref().unwrap_or_default();
    let incarnation = hash(&(
        entry.group(),
        &entry.resource,
        entry.namespace.as_deref().unwrap_or_default(),
        entry.name.as_deref().unwrap_or_default(),
        uid,
    ));
    Kept { op: entry.op, uid: hash(&uid), incarnation }
}

/// Checks that an entry can follow the previous one of its row in the table, or else of the same incarnation.
fn check_order(row: &Row, entry: &Kept, before: Option<&Newest>, same_row: bool, oldest: u64, found: &mut Verified) {
    let seq = row.stored.seq;
    match before {
        // The one before may have been truncated since the page before was read.
        Some(before) if same_row && before.seq != row.previous => {
            if before.seq >= oldest || row.previous >= oldest {
                found.problem(format!(
                    "entry {seq} follows entry {} of its object, but the newest was {}",
                    row.previous, before.seq
                ));
            }
            return;
        }
        Some(before) if !same_row && before.seq < oldest => return,
        Some(_) | None => {}
    }
    match (entry.op, before) {
        (EntryType::Added, Some(Newest { exists: true, .. })) => {
            found.problem(format!("entry {seq} adds an object that exists"));
        }
        // Another incarnation may have been found by a list that emits nothing.
        (EntryType::Modified | EntryType::Deleted, Some(before))
            if same_row && !before.exists && before.uid == entry.uid =>
        {
            found.problem(format!("entry {seq} changes an object that does not exist"));
        }
        _ => {}
    }
}

/// Distinguishes texts in little room.
fn hash(what: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}

fn presence(present: bool) -> &'static str {
    if present { "present" } else { "gone" }
}

/// Checks that the columns of a row, and the rows that they name, belong to its entry.
fn check_row(row: &Row, entry: &StoredEntry, parsed: &wire::Entry<'_>) -> Result<(), &'static str> {
    let namespace = parsed.namespace.as_deref().unwrap_or_default();
    let Some((group, plural, scope)) = &row.source else { return Err("its source is not there") };
    if (parsed.group(), &*parsed.resource) != (group, plural) || !(scope.is_empty() || scope == namespace) {
        return Err("it is not of its source");
    }
    if row.object.is_none() == entry.op.is_change() {
        return Err("its row says that it is of an object, or of none, and it is not");
    }
    if let Some((of, name, same_resource)) = &row.named
        && (of != namespace || Some(name.as_str()) != parsed.name.as_deref() || !same_resource)
    {
        return Err("its object has another name in the object table");
    }
    let stands = usize::try_from(row.start).ok().zip(usize::try_from(row.end).ok());
    let stands = stands.and_then(|(start, end)| entry.line.get(start..end));
    let right = match parsed.object {
        Some(object) => stands.is_some_and(|found| std::ptr::eq(found, object.get().as_bytes())),
        None => (row.start, row.end) == (0, 0),
    };
    if right { Ok(()) } else { Err("its object stands elsewhere than its row says") }
}

fn check_entry(entry: &StoredEntry, parsed: &wire::Entry<'_>, time: i64, epochs: &Epochs) -> Result<(), &'static str> {
    if parsed.seq() != entry.seq || parsed.op != entry.op {
        return Err("it says another seq or type than its row");
    }
    let id = match parsed.op {
        EntryType::Gap => format!("{}.{}", parsed.epoch, parsed.seq),
        EntryType::Actor => wire::actor_id(parsed.of.as_ref().map_or("", |of| &of.id)),
        EntryType::Added | EntryType::Modified | EntryType::Deleted => {
            let uid = parsed.uid.as_deref().unwrap_or_default();
            wire::change_id(uid, parsed.version().as_str(), parsed.op)
        }
    };
    if parsed.id != id {
        return Err("its id does not follow from what it says");
    }
    if !epochs.has(&parsed.epoch, parsed.seq) {
        return Err("its epoch is not that of the journal at this place");
    }
    if parsed.time != rfc3339(time) {
        return Err("it says another time than its row");
    }
    Ok(())
}
