//! Who judges a simulation: the log against the history of the server, the gaps against what was lost, the object
//! table against the log, each sink against what its class promises.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use decklog::core::model::Seq;
use decklog::journal::Reader;
use decklog::sim;
use rusqlite::{Connection, OpenFlags};

use super::Setup;
use super::outputs::Line;
use super::stage::{Compaction, Reason};
use crate::judge::{self, Entry, Kind, Row, Scope};

/// The log as it is on disk: each line, and what it says.
#[derive(Default)]
pub struct Log {
    pub lines: Vec<String>,
    pub entries: Vec<Entry>,
}

impl Log {
    /// Reads it. What was read before and is the same now is not read again, which at the end of each life is nearly all.
    pub fn read(state: &Path, mut before: Self) -> Result<Self, String> {
        let mut reader = Reader::open(state).map_err(|error| error.to_string())?;
        let mut log = Self { lines: Vec::new(), entries: Vec::new() };
        loop {
            let after = Seq(log.lines.len() as u64);
            let batch = reader.entries_after(after, 1000, 64 << 20).map_err(|error| error.to_string())?;
            if batch.is_empty() {
                return Ok(log);
            }
            for entry in batch {
                let line =
                    String::from_utf8(entry.line.to_vec()).map_err(|_| format!("entry {} is no text", entry.seq))?;
                let at = log.lines.len();
                log.entries.push(match before.entries.get_mut(at).filter(|_| before.lines[at] == line) {
                    Some(known) => std::mem::take(known),
                    // Versions without an order are the server's own behind a mark.
                    None if line.contains('~') => Entry::parse(&line.replace('~', "")),
                    None => Entry::parse(&line),
                });
                log.lines.push(line);
            }
        }
    }
}

/// A source as it is on disk.
pub struct LogPosition {
    pub name: String,
    pub resume: Option<u64>,
    pub applied: Option<u64>,
    pub state: String,
    pub active: bool,
    /// A complete list is being written.
    pub writing: bool,
}

/// The positions of the sources on disk.
pub fn positions(state: &Path) -> Result<Vec<LogPosition>, String> {
    let say = |error: rusqlite::Error| error.to_string();
    let conn = Connection::open_with_flags(state.join("journal.db"), OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(say)?;
    let mut select = conn
        .prepare(
            "SELECT r.plural, r.api_group, s.namespace, s.resume, s.applied, s.state, s.active, s.pending IS NOT NULL
             FROM source s JOIN resource r ON r.id = s.resource ORDER BY s.id",
        )
        .map_err(say)?;
    let rows = select.query_map([], |row| {
        let (plural, group, namespace): (String, String, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let number = |text: Option<String>| text.and_then(|text| text.trim_start_matches('~').parse().ok());
        let mut name = plural;
        for (separator, part) in [('.', group), ('/', namespace)] {
            if !part.is_empty() {
                name.push(separator);
                name.push_str(&part);
            }
        }
        let (resume, applied) = (number(row.get(3)?), number(row.get(4)?));
        Ok(LogPosition { name, resume, applied, state: row.get(5)?, active: row.get(6)?, writing: row.get(7)? })
    });
    rows.map_err(say)?.collect::<Result<_, _>>().map_err(say)
}

/// The cursor of each sink on disk.
pub fn cursors(state: &Path) -> Result<BTreeMap<String, u64>, String> {
    let reader = Reader::open(state).map_err(|error| error.to_string())?;
    let sinks = reader.sinks().map_err(|error| error.to_string())?;
    Ok(sinks.into_iter().map(|sink| (sink.name, sink.cursor.0)).collect())
}

/// What the server did, as somebody sees it who asks with the selector of the configuration.
pub fn truth(history: &[Arc<sim::Row>], setup: &Setup) -> Vec<Row> {
    let mut matched: BTreeMap<(String, String, String), bool> = BTreeMap::new();
    let mut rows = Vec::new();
    for row in history {
        if !setup.watches(&row.resource, &row.namespace) {
            continue;
        }
        let key = (row.resource.to_string(), row.namespace.to_string(), row.name.to_string());
        let before = matched.get(&key).copied().unwrap_or_default();
        let now = row.kind != sim::Kind::Deleted && setup.selects(row);
        matched.insert(key, now);
        let kind = match (before, now) {
            (false, false) => continue,
            (false, true) => Kind::Added,
            (true, true) => Kind::Modified,
            (true, false) => Kind::Deleted,
        };
        rows.push(Row {
            rev: row.revision,
            kind,
            uid: row.uid.to_string(),
            resource: row.resource.to_string(),
            key: (row.namespace.to_string(), row.name.to_string()),
        });
    }
    rows
}

/// The history of the server: before a restore, where there was one, and now.
pub struct Histories {
    pub before: Option<Vec<Arc<sim::Row>>>,
    pub now: Vec<Arc<sim::Row>>,
}

impl Histories {
    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<sim::Row>> {
        self.before.iter().flatten().chain(&self.now)
    }
}

/// The log against the history: Filter, Ordered, Unique, Reliable, IsCreate and PrevValue of etcd's validators, for
/// each source. Everything up to `upto` has to be there.
pub fn log_is_history(
    log: &Log,
    histories: &Histories,
    setup: &Setup,
    upto: u64,
    clock_was_set_back: bool,
) -> Vec<String> {
    let (before, after);
    let (truth, restored) = match &histories.before {
        Some(rows) => {
            (before, after) = (truth(rows, setup), truth(&histories.now, setup));
            (&before, Some(after.as_slice()))
        }
        None => {
            before = truth(&histories.now, setup);
            (&before, None)
        }
    };
    let scope = Scope {
        late: false,
        started: setup.started,
        upto,
        namespaces: setup.namespaces.clone(),
        resources: Some(crate::world::WATCHED.iter().map(|name| (*name).to_owned()).collect()),
    };
    let mut entries;
    let mut judged = &log.entries;
    let epochs = log.entries.first().map(|entry| &entry.epoch) != log.entries.last().map(|entry| &entry.epoch);
    if clock_was_set_back || epochs {
        // The time of an entry is what the clock showed, whatever that was; and who judges epochs judges them elsewhere.
        entries = log.entries.clone();
        let first = entries.first().map(|entry| entry.epoch.clone()).unwrap_or_default();
        for entry in &mut entries {
            if entry.gap.is_some() && entry.id == format!("{}.{}", entry.epoch, entry.seq) {
                entry.id = format!("{first}.{}", entry.seq);
            }
            entry.epoch.clone_from(&first);
            if clock_was_set_back && entry.time.len() == ALWAYS.len() && entry.time.ends_with('Z') {
                entry.time = ALWAYS.to_owned();
            }
        }
        judged = &entries;
    }
    let verdict = judge::judge(truth, restored, judged, &scope);
    let mut problems: Vec<String> = verdict.wrong.into_iter().map(|text| format!("wrong: {text}")).collect();
    problems.extend(verdict.behind.into_iter().map(|text| format!("missing: {text}")));
    problems
}

/// At any moment nothing in the log is wrong; and, as Atomic-commit, Resumable and Bookmarkable have it, what a source
/// resumes after is in the log, all of it.
pub fn log_is_right_so_far(
    log: &Log,
    histories: &Histories,
    setup: &Setup,
    positions: &[LogPosition],
    clock_was_set_back: bool,
) -> Vec<String> {
    let mut problems = Vec::new();
    let last = positions.iter().filter_map(|position| position.resume).max().unwrap_or(0);
    let mut verdict = log_is_history(log, histories, setup, last, clock_was_set_back);
    if let Some(before) = &histories.before {
        // A source that has not seen the restore yet is still in the history before it.
        let before = Histories { before: None, now: before.clone() };
        let other = log_is_history(log, &before, setup, last, clock_was_set_back);
        verdict.retain(|problem| other.contains(problem));
    }
    for position in positions {
        // What ends in the middle of a list goes on with it.
        let Some(resume) = position.resume.filter(|_| !position.writing) else { continue };
        if position.applied.is_some_and(|applied| applied < resume) {
            problems.push(format!("{} resumes at {resume}, past what it has applied", position.name));
        }
        let prefix = format!("missing: {}: ", position.name);
        for missing in verdict.iter().filter_map(|text| text.strip_prefix(&prefix)) {
            // A row says its revision; a list or a gap that is not whole has no business at the end of a life.
            let revision = missing.strip_prefix("rev ").and_then(|rest| rest.split(' ').next()?.parse::<u64>().ok());
            if revision.is_none_or(|revision| revision <= resume) {
                problems.push(format!("the checkpoint of {} is {resume}, ahead of the log: {missing}", position.name));
            }
        }
    }
    problems.extend(verdict.into_iter().filter(|text| text.starts_with("wrong")));
    problems
}

/// What an entry carries is what the server has, byte by byte where it was watched.
pub fn objects_are_the_servers(log: &Log, histories: &Histories) -> Vec<String> {
    let mut rows: BTreeMap<(u64, &str), Vec<&sim::Row>> = BTreeMap::new();
    for row in histories.all() {
        rows.entry((row.revision, &row.uid)).or_default().push(row);
    }
    let mut problems = Vec::new();
    for entry in &log.entries {
        let Some(object) = &entry.object else { continue };
        // Of a deletion, the last state may be told, and under a selector it is an earlier one.
        if entry.kind == "DELETED" {
            continue;
        }
        let candidates = rows.get(&(entry.rv(), entry.uid.as_str())).map(Vec::as_slice).unwrap_or_default();
        let same = |row: &&sim::Row| {
            row.bytes() == object.get().as_bytes()
                || (entry.evidence != "watched" && without_type(object.get()) == without_type_of(&row.bytes()))
        };
        if !candidates.iter().any(same) {
            problems.push(format!("not what the server has at {}: {entry}: {}", entry.rv(), object.get()));
        }
    }
    problems
}

/// What the journal says an object was at a seq is what the server had then: after each entry that was watched, for the
/// object of it and for some others of its source. In a gap nobody knows it, and before a restore versions cannot be
/// compared with those after it.
pub fn past_is_the_servers(log: &Log, histories: &Histories, state: &Path, setup: &Setup) -> Vec<String> {
    const OTHERS: usize = 4;
    if histories.before.is_some() {
        return Vec::new();
    }
    let mut truth: BTreeMap<(&str, &str, &str), Vec<&sim::Row>> = BTreeMap::new();
    for row in histories.all() {
        truth.entry((&row.resource, &row.namespace, &row.name)).or_default().push(row);
    }
    let judge = || -> Result<Vec<String>, decklog::journal::JournalError> {
        let mut problems = Vec::new();
        let mut reader = Reader::open(state)?;
        let mut objects = Vec::new();
        for (id, resource) in reader.resources()? {
            objects.extend(reader.objects(id, None, None)?.into_iter().map(|row| (resource.full_name(), row)));
        }
        for entry in log.entries.iter().filter(|entry| entry.is_seen()) {
            let (resource, version) = (entry.full_resource(), entry.rv());
            let in_a_gap = log.entries.iter().any(|gap| {
                let from = |gap: &judge::Gap| gap.from.as_ref().and_then(|from| from.parse::<u64>().ok()).unwrap_or(0);
                gap.seq > entry.seq
                    && gap.full_resource() == resource
                    && gap.gap.as_ref().is_some_and(|gap| from(gap) < version)
            });
            if in_a_gap {
                continue;
            }
            let of_source: Vec<_> = objects
                .iter()
                .filter(|(of, row)| *of == resource && (setup.namespaces.is_none() || row.namespace == entry.namespace))
                .map(|(_, row)| row)
                .collect();
            let own = of_source.iter().position(|row| row.name == entry.name && row.namespace == entry.namespace);
            let seq = usize::try_from(entry.seq).unwrap_or_default();
            let others = (0..OTHERS).map(|n| (seq * 31 + n * 7) % of_source.len().max(1));
            for row in own.into_iter().chain(others).filter_map(|at| of_source.get(at)) {
                let told = reader.entry_at(row, Seq(entry.seq))?;
                let told = told.map(|told| Entry::parse(&String::from_utf8_lossy(&told.line)));
                let told = told.filter(|told| told.kind != "DELETED");
                let known =
                    truth.get(&(&*resource, &*row.namespace, &*row.name)).map(Vec::as_slice).unwrap_or_default();
                let had = |upto: u64| {
                    let newest = known.iter().rfind(|row| row.revision <= upto);
                    newest.filter(|row| row.kind != sim::Kind::Deleted && setup.selects(row))
                };
                let same = |had: Option<&&sim::Row>| match (had, &told) {
                    (Some(had), Some(told)) => told
                        .object
                        .as_ref()
                        .is_some_and(|object| without_type(object.get()) == without_type_of(&had.bytes())),
                    (None, None) => true,
                    _ => false,
                };
                // Several objects can share a version, and then one of them comes first.
                let own = row.name == entry.name && row.namespace == entry.namespace;
                if !same(had(version)) && (own || !same(had(version - 1))) {
                    let revision = had(version).map(|had| had.revision);
                    problems.push(format!(
                        "after {entry} {} is told as {told:?}, the server had {revision:?}",
                        row.spell()
                    ));
                }
            }
        }
        Ok(problems)
    };
    judge().unwrap_or_else(|error| vec![error.to_string()])
}

/// Items of lists come without apiVersion and kind.
fn without_type(text: &str) -> String {
    let mut object: BTreeMap<String, Box<serde_json::value::RawValue>> = serde_json::from_str(text).unwrap_or_default();
    object.remove("apiVersion");
    object.remove("kind");
    object.into_iter().map(|(key, value)| format!("{key}:{value};")).collect()
}

fn without_type_of(bytes: &[u8]) -> String {
    without_type(std::str::from_utf8(bytes).unwrap_or_default())
}

/// A time for entries whose own is not to be judged.
const ALWAYS: &str = "2000-01-01T00:00:00.000000Z";

/// Each GAP has a reason of its own, and what could be had is in none. (That what is missing is in one, the history tells.)
pub fn gaps_are_justified(log: &Log, reasons: &[Reason], compactions: &[Compaction], exact: bool) -> Vec<String> {
    let mut problems = Vec::new();
    let mut last: BTreeMap<String, u64> = BTreeMap::new();
    let mut told: BTreeMap<(String, String), usize> = BTreeMap::new();
    for entry in &log.entries {
        let Some(gap) = &entry.gap else { continue };
        let mut source = entry.full_resource();
        if !entry.namespace.is_empty() {
            source = format!("{source}/{}", entry.namespace);
        }
        let since = last.insert(source.clone(), entry.seq).unwrap_or(0);
        let lasting = matches!(gap.why.as_str(), "rollback" | "scope");
        let recoverable = exact && matches!(gap.why.as_str(), "expired" | "undecodable" | "oversize" | "paused");
        let justifies = |reason: &&Reason| {
            // What befalls a resource befalls all sources of it.
            let is_of = reason.source == source || source.starts_with(&format!("{}/", reason.source));
            // That a cluster was put back or a definition deleted may be found out after another gap.
            // What was lost once is told in several gaps, where some of it could be recovered in between.
            let in_time = if lasting || recoverable { 0..entry.seq } else { since..entry.seq };
            is_of && reason.why == gap.why && in_time.contains(&reason.head)
        };
        let told = told.entry((source.clone(), gap.why.clone())).or_default();
        *told += 1;
        let allowed = reasons.iter().filter(justifies).count();
        let from = gap.from.as_deref().and_then(|from| from.parse::<u64>().ok()).unwrap_or(0);
        let compacted = compactions.iter().any(|compaction| compaction.before > from && compaction.head < entry.seq);
        let hit = reasons.iter().any(|reason| {
            let is_of = reason.source == source || source.starts_with(&format!("{}/", reason.source));
            is_of && reason.why == "exact" && (since..entry.seq).contains(&reason.head)
        });
        if recoverable && !compacted && !hit {
            problems.push(format!("a GAP although etcd had everything since {from}: {entry}"));
        }
        if allowed == 0 || (lasting && *told > allowed) {
            problems.push(format!("a GAP for no reason since seq {since}: {entry}"));
        }
    }
    problems
}

type Objects = BTreeMap<(String, String, String), (String, u64)>;

/// Replaying the log gives the objects of the table, and both are what the server has.
pub fn replay_is_the_table(log: &Log, state: &Path, server: &sim::Sim, setup: &Setup) -> Vec<String> {
    let mut problems = Vec::new();
    let mut replayed = Objects::new();
    for entry in log.entries.iter().filter(|entry| entry.gap.is_none()) {
        let key = (entry.full_resource(), entry.namespace.clone(), entry.name.clone());
        if entry.kind == "DELETED" {
            replayed.remove(&key);
        } else {
            replayed.insert(key, (entry.uid.clone(), entry.rv()));
        }
    }
    let mut held = Objects::new();
    for resource in crate::world::WATCHED {
        for row in server.objects(resource).unwrap_or_default() {
            if setup.watches(resource, &row.namespace) && setup.selects(&row) {
                let key = (resource.to_owned(), row.namespace.to_string(), row.name.to_string());
                held.insert(key, (row.uid.to_string(), row.revision));
            }
        }
    }
    let table = || -> Result<Objects, decklog::journal::JournalError> {
        let reader = Reader::open(state)?;
        let mut table = Objects::new();
        for (id, resource) in reader.resources()? {
            for row in reader.objects(id, None, None)?.into_iter().filter(|row| row.present) {
                let key = (resource.full_name(), row.namespace, row.name);
                let version = row.version.trim_start_matches('~').parse().unwrap_or(0);
                table.insert(key, (row.uid, version));
            }
        }
        Ok(table)
    };
    match table() {
        Ok(table) if table != replayed => {
            problems.push(format!("the object table is {table:#?}, the log {replayed:#?}"));
        }
        Ok(_) => {}
        Err(error) => problems.push(error.to_string()),
    }
    if replayed != held {
        let missing: Vec<_> = held.iter().filter(|(key, value)| replayed.get(*key) != Some(value)).take(5).collect();
        let other: Vec<_> = replayed.iter().filter(|(key, value)| held.get(*key) != Some(value)).take(5).collect();
        problems.push(format!("the server has {missing:?} where the log has {other:?}"));
    }
    let verified = Reader::open(state).and_then(|mut reader| reader.verify(|_, _| {}));
    match verified {
        Ok(verified) => problems.extend(verified.problems.into_iter().map(|problem| format!("verify: {problem}"))),
        Err(error) => problems.push(error.to_string()),
    }
    problems
}

/// Everything that the file sink has written, file after file.
pub fn file_is_exactly_once(log: &Log, out: &Path) -> Vec<String> {
    let files = match written(out) {
        Ok(files) => files,
        Err(error) => return vec![format!("the files of the file sink cannot be read: {error}")],
    };
    let lines: Vec<&str> = files.iter().flat_map(|text| text.lines()).collect();
    for (index, line) in lines.iter().enumerate() {
        if log.lines.get(index).map(String::as_str) != Some(*line) {
            let expected = log.lines.get(index).map_or("nothing", String::as_str);
            return vec![format!("line {} of the file sink is {line:.200}, and should be {expected:.200}", index + 1)];
        }
    }
    if lines.len() == log.lines.len() && files.iter().all(|text| text.is_empty() || text.ends_with('\n')) {
        return Vec::new();
    }
    vec![format!("the file sink has {} of {} entries", lines.len(), log.lines.len())]
}

/// What the file sink has written, file after file.
pub fn written(out: &Path) -> io::Result<Vec<String>> {
    let mut files: Vec<String> = Vec::new();
    let mut current = None;
    for entry in fs::read_dir(out)? {
        let path = entry?.path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if !name.starts_with("events") || name.ends_with(".tmp") {
            continue;
        }
        let mut bytes = fs::read(&path)?;
        if name.ends_with(".zst") {
            bytes = zstd::decode_all(bytes.as_slice())?;
        }
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if name == "events.jsonl" {
            current = Some(text.clone());
        }
        files.push(text);
    }
    // Whoever moves the file away while decklog is down takes with it what a crash had torn: that is no line.
    for text in &mut files {
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        if !text.is_empty() && whole < text.len() && current.as_deref() != Some(text) {
            text.truncate(whole);
        }
    }
    files.sort_by_key(|text| text.lines().next().and_then(|line| Some(Line::of(line).ok()?.key)));
    Ok(files)
}

/// Each entry that is not dead-lettered was taken, with the bytes of the log.
pub fn http_has_everything(
    log: &Log,
    taken: &BTreeMap<u64, String>,
    refused: &BTreeSet<u64>,
    state: &Path,
) -> Vec<String> {
    let mut problems = Vec::new();
    let aside: BTreeSet<u64> = match Reader::open(state).and_then(|reader| reader.dead_letters()) {
        Ok(rows) => rows.into_iter().map(|row| row.seq.0).collect(),
        Err(error) => return vec![error.to_string()],
    };
    if aside != *refused {
        problems.push(format!("dead-lettered are {aside:?}, refused were {refused:?}"));
    }
    for (line, seq) in log.lines.iter().zip(1..) {
        match taken.get(&seq) {
            Some(text) if text == line => {}
            Some(text) => problems.push(format!("the HTTP sink sent {text:.200} as {line:.200}")),
            None if aside.contains(&seq) => {}
            None => problems.push(format!("the HTTP sink never sent {seq}")),
        }
    }
    if let Some((seq, _)) = taken.last_key_value().filter(|(seq, _)| **seq > log.lines.len() as u64) {
        problems.push(format!("the HTTP sink sent {seq}, which the log does not have"));
    }
    problems
}

/// Everything that the filter wants was seen, and nothing that is not the log's.
pub fn collected_is_the_filter(log: &Log, collected: &[(u64, String)]) -> Vec<String> {
    let wanted: BTreeMap<u64, &str> = log
        .lines
        .iter()
        .zip(1..)
        .filter(|(line, _)| super::life::is_collected(line.as_bytes()))
        .map(|(line, seq)| (seq, line.as_str()))
        .collect();
    let found: BTreeMap<u64, &str> = collected.iter().map(|(seq, line)| (*seq, line.as_str())).collect();
    if wanted == found {
        return Vec::new();
    }
    let missing: Vec<_> = wanted.keys().filter(|seq| !found.contains_key(seq)).take(5).collect();
    let other: Vec<_> = found.iter().filter(|(seq, line)| wanted.get(seq) != Some(line)).take(5).collect();
    vec![format!("the collecting sink lacks {missing:?} and has {other:?}")]
}
