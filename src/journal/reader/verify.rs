//! The proof that a journal is whole. It reads page by page, each at a moment of its own, so that a daemon that goes on
//! can empty its write-ahead log meanwhile: what is proved of an entry stays true, because no entry ever changes.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use rusqlite::{ErrorCode, params};

use super::{OLDEST, Read, Reader, Stored, StoredEntry, rfc3339, sql, stored_row};
use crate::journal::{JournalError, schema};
use crate::model::{EntryType, Seq};
use crate::wire;

/// Entries or objects that are read at one moment.
const ROWS: usize = 500;
/// SQLite's own check reads the whole database at one moment. It is given up when the write-ahead log has grown by so
/// many bytes meanwhile.
const GROWN: u64 = 32 << 20;
/// How often it is looked at, in steps of SQLite.
const STEPS: i32 = 100_000;

/// What `verify` found.
#[derive(Clone, Debug, Default)]
pub struct Verified {
    /// Entries read.
    pub entries: u64,
    /// Entries that are forgotten, below the first that was read.
    pub forgotten: u64,
    /// Objects compared with the replay.
    pub objects: u64,
    /// GAP entries among the entries.
    pub gaps: u64,
    /// First and last seq read.
    pub range: Option<(Seq, Seq)>,
    /// Whether SQLite's own check of its pages was left out, because the daemon writes too fast for it.
    pub pages_unchecked: bool,
    /// Everything that is wrong, at most [`Verified::MOST`] of it.
    pub problems: Vec<String>,
}

impl Verified {
    /// How many problems are told.
    pub const MOST: usize = 50;

    fn problem(&mut self, text: String) {
        if self.problems.len() < Self::MOST {
            self.problems.push(text);
        }
    }
}

/// The newest entry of an object.
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
}

/// Rows with their entries; those that are damaged come without.
type Page = Vec<(Row, Option<StoredEntry>)>;

/// A row of the object table.
struct Object {
    id: i64,
    uid: String,
    version: String,
    present: bool,
    last: u64,
    withheld: bool,
}

impl Reader {
    /// Proves that the journal is whole: SQLite's own check, dense seqs from the lower end on, each entry readable and in
    /// its place, the replay of the log equal to the object table, no cursor past the head. `progress` is told entries
    /// read and entries in all.
    ///
    /// # Errors
    /// Where the database cannot be read at all; damage is not an error but a problem in the answer.
    pub fn verify(&mut self, progress: impl FnMut(u64, u64)) -> Read<Verified> {
        let mut found = Verified::default();
        let read = self.verify_all(&mut found, progress);
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

    fn verify_all(&mut self, found: &mut Verified, mut progress: impl FnMut(u64, u64)) -> Read<()> {
        self.verify_pages(found)?;
        let (epoch, head, given_out) = self.moment(|reader| {
            let given_out: u64 = reader.meta("head")?.parse().unwrap_or(0);
            Ok((reader.epoch()?, reader.head()?, given_out))
        })?;
        if head.0 < given_out {
            found.problem(format!("the newest entries, {} to {given_out}, are missing", head.next()));
        }
        let mut newest: HashMap<i64, Newest> = HashMap::new();
        let (mut at, mut expected) = (0, None);
        loop {
            let (oldest, rows) = self.moment(|reader| reader.verify_page(at, head, &epoch, found))?;
            let Some((last, ..)) = rows.last() else { break };
            at = last.stored.seq;
            for (row, entry) in rows {
                let seq = row.stored.seq;
                let kept = seq >= oldest;
                if kept {
                    // What was forgotten while this reads is not missing.
                    let next = expected.unwrap_or(oldest).max(oldest);
                    if seq != next {
                        found.problem(format!("entries {next} to {} are missing", seq - 1));
                    }
                    expected = Some(seq + 1);
                    found.entries += 1;
                    found.range = Some((found.range.map_or(Seq(seq), |(first, _)| first), Seq(seq)));
                }
                let Some(entry) = entry else { continue };
                found.gaps += u64::from(kept && entry.kind == EntryType::Gap);
                let Some(object) = row.object else { continue };
                let uid =
                    wire::Entry::parse(&entry.line).map_or(0, |entry| hash(entry.uid.as_deref().unwrap_or_default()));
                let before = newest.insert(object, Newest { seq, exists: entry.kind != EntryType::Deleted, uid });
                if kept {
                    check_order(&row, &entry, uid, before.as_ref(), oldest, found);
                }
            }
            progress(found.entries, head.0.saturating_sub(oldest) + 1);
        }
        found.forgotten = found.range.map_or(0, |(first, _)| first.0 - 1);
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
    fn verify_pages(&mut self, found: &mut Verified) -> Read<()> {
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

    /// A page of rows after `at`, with those that are forgotten and held, and the lower end at the same moment. A row
    /// that is damaged is told and comes without its entry.
    fn verify_page(&mut self, at: u64, head: Seq, epoch: &str, found: &mut Verified) -> Read<(u64, Page)> {
        let what = "its check";
        let oldest = self.retained()?.oldest;
        let rows: Vec<(Row, bool)> = {
            let mut select = self
                .conn
                .prepare_cached(&format!(
                    "SELECT seq, type, base, line, object, previous, time,
                         seq >= {OLDEST} OR EXISTS (SELECT 1 FROM held h WHERE h.object = e.object AND h.seq = e.seq)
                     FROM entry e WHERE seq > ? AND seq <= ? ORDER BY seq LIMIT ?"
                ))
                .map_err(sql(what))?;
            let rows = select
                .query_map(params![at, head.0, ROWS], |row| {
                    let stored = stored_row(row)?;
                    Ok((Row { stored, object: row.get(4)?, previous: row.get(5)?, time: row.get(6)? }, row.get(7)?))
                })
                .map_err(sql(what))?;
            rows.collect::<Result<_, _>>().map_err(sql(what))?
        };
        let mut page = Vec::with_capacity(rows.len());
        for (mut row, needed) in rows {
            let seq = row.stored.seq;
            if !needed {
                found.problem(format!("entry {seq} is below the lower end, {oldest}, and nothing needs it"));
            }
            let blob = std::mem::take(&mut row.stored.blob);
            let entry = match self.unpack(Stored { blob, ..row.stored }) {
                Ok(entry) => {
                    if let Err(problem) = check_entry(&entry, row.time, epoch) {
                        found.problem(format!("entry {seq}: {problem}"));
                    }
                    Some(entry)
                }
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
    fn verify_objects(&mut self, newest: &HashMap<i64, Newest>, head: Seq, found: &mut Verified) -> Read<()> {
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
    ) -> Read<Option<i64>> {
        let what = "objects";
        let oldest = self.retained()?.oldest;
        let rows: Vec<Object> = {
            let mut select = self
                .conn
                .prepare_cached(
                    "SELECT id, uid, version, present, last, state IS NOT NULL FROM object WHERE id > ? ORDER BY id LIMIT ?",
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
                        withheld: row.get(5)?,
                    })
                })
                .map_err(sql(what))?;
            rows.collect::<Result<_, _>>().map_err(sql(what))?
        };
        let last = rows.last().map(|row| row.id);
        for Object { id, uid, version, present, last, withheld } in rows {
            found.objects += 1;
            // What came after the log was read, or is forgotten since, cannot be compared with it.
            let told = newest.get(&id).filter(|told| last <= head.0 && (last != 0 || told.seq >= oldest));
            match told {
                Some(Newest { seq, .. }) if *seq != last => {
                    found.problem(format!("object {uid} points to entry {last}, but the log's newest of it is {seq}"));
                }
                Some(Newest { exists, .. }) if *exists != present && !withheld => {
                    found.problem(format!("object {uid} is {} in the table but not in the log", presence(present)));
                }
                Some(_) | None => {}
            }
            // A withheld state is newer than the log by intent.
            if withheld || last == 0 {
                continue;
            }
            match self.row(Seq(last)) {
                Ok(Some(entry)) => {
                    if let Ok(entry) = wire::Entry::parse(&entry.line)
                        && (entry.uid.as_deref() != Some(uid.as_str()) || entry.version().as_str() != version)
                    {
                        found.problem(format!("object {uid} at version {version} differs from entry {last}"));
                    }
                }
                Ok(None) => found.problem(format!("object {uid} points to entry {last}, which is not there")),
                // Told where the log was read.
                Err(JournalError::Corrupt(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(last)
    }
}

/// Whether an entry can follow what was told of its object before.
fn check_order(row: &Row, entry: &StoredEntry, uid: u64, before: Option<&Newest>, oldest: u64, found: &mut Verified) {
    let seq = entry.seq;
    if let Some(before) = before
        && before.seq != row.previous
    {
        // The one before may have been forgotten since the page before was read.
        if before.seq >= oldest || row.previous >= oldest {
            found.problem(format!(
                "entry {seq} follows entry {} of its object, but the newest was {}",
                row.previous, before.seq
            ));
        }
        return;
    }
    match (entry.kind, before) {
        (EntryType::Added, Some(Newest { exists: true, .. })) => {
            found.problem(format!("entry {seq} adds an object that exists"));
        }
        // Another incarnation may have been found by a list that tells nothing.
        (EntryType::Modified | EntryType::Deleted, Some(before)) if !before.exists && before.uid == uid => {
            found.problem(format!("entry {seq} changes an object that does not exist"));
        }
        _ => {}
    }
}

/// Tells uids apart in little room.
fn hash(text: &str) -> u64 {
    use std::hash::{DefaultHasher, Hasher};
    let mut hasher = DefaultHasher::new();
    hasher.write(text.as_bytes());
    hasher.finish()
}

fn presence(present: bool) -> &'static str {
    if present { "present" } else { "gone" }
}

fn check_entry(entry: &StoredEntry, time: i64, epoch: &str) -> Result<(), String> {
    let parsed = wire::Entry::parse(&entry.line).map_err(|error| error.to_string())?;
    if parsed.seq() != entry.seq || parsed.kind() != entry.kind {
        return Err("it says another seq or type than its row".to_owned());
    }
    let id = if parsed.kind() == EntryType::Gap {
        format!("{}.{}", parsed.epoch, parsed.seq)
    } else {
        let uid = parsed.uid.as_deref().unwrap_or_default();
        wire::change_id(uid, parsed.version().as_str(), parsed.kind())
    };
    if parsed.id != id {
        return Err(format!("its id is not {id}"));
    }
    // Names of epochs sort by their beginning.
    if parsed.epoch.is_empty() || *parsed.epoch > *epoch {
        return Err("its epoch is not one of this journal".to_owned());
    }
    if parsed.time != rfc3339(time) {
        return Err("it says another time than its row".to_owned());
    }
    Ok(())
}
