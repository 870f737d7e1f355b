//! The one thread that writes: commands in, entries and state out, many commands to a transaction.

mod change;
mod clock;
mod desync;
mod listing;
mod queue;
mod quota;
mod register;
mod requests;
mod store;
#[cfg(test)]
mod tests;
mod truncate;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use rusqlite::{Connection, Row, params};
use tokio::time::Instant;

use super::codec::Codec;
use super::recent::{Packed, Recent};
use super::retention::{Bounds, Pause};
use super::{Audit, JournalError, Settled, SourceId, Waiting};
use crate::ambient::{self, watch};
use crate::change::Noise;
use crate::change::redact::Redactor;
use crate::model::{Cluster, EntryType, Redacted, Resource, ResourceVersion, Seq, Why};
use clock::Calendar;
use listing::Job;
use queue::Woken;
pub(super) use queue::{Command, Queue, Queued, Reply};
use quota::Room;
pub(super) use requests::WITHHELD;

/// A transaction takes what waits, up to this many changes; how many bytes, `retention::Sizes` says.
const GROUP_CHANGES: usize = 1000;
/// How many bytes of entries stay at hand for the sinks …
const RECENT_BYTES: usize = 8 << 20;
/// … and for the differences that are written next: what they are differences of …
const BASES_BYTES: usize = 40 << 20;
/// … and the versions before.
const PACKED_BYTES: usize = 16 << 20;
/// An idle source's bookmarks reach the disk at most this late, and not more often.
const BOOKMARK_DELAY: Duration = Duration::from_secs(10);
/// How often it is looked whether entries have become too old.
const AGE_LOOK: Duration = Duration::from_secs(1);
/// Stands for a reason in `pending_why` where a first list is only remembered.
const SILENT: &str = "silent";

/// A source in the writer's memory. `applied` and `resume` are what the next commit makes durable.
struct Source {
    id: i64,
    /// Otherwise it is here only for as long as something of the last daemon is to be finished.
    registered: bool,
    resource: i64,
    facts: Resource,
    namespace: String,
    api_version: String,
    silent: bool,
    ignore: Noise,
    resume: Option<ResourceVersion>,
    applied: Option<ResourceVersion>,
    good_at: i64,
    moved: bool,
    /// The position that was lost: nothing up to it is missing.
    given_up: Option<ResourceVersion>,
    /// Why the position is lost: nothing counts until a list has declared it.
    lost: Option<Why>,
    /// Nothing up to here was missing when a list or an audit last looked, and when that was begun. What contradicts
    /// the journal may have been missing since.
    proved: Option<(ResourceVersion, i64)>,
}

/// What a transaction that fails takes back of a source.
struct Before {
    resume: Option<ResourceVersion>,
    given_up: Option<ResourceVersion>,
    applied: Option<ResourceVersion>,
    good_at: i64,
    moved: bool,
    lost: Option<Why>,
    proved: Option<(ResourceVersion, i64)>,
    contradicted: bool,
}

/// A row of `object`.
struct Known {
    id: i64,
    uid: String,
    version: ResourceVersion,
    present: bool,
    last: u64,
    base: Option<u64>,
    has_state: bool,
    marks: Marks,
}

/// Keyed digests of masked and dropped values, by pointer.
type Marks = Vec<(String, [u8; 16])>;

impl Before {
    fn of(source: &Source, contradicted: &BTreeSet<SourceId>) -> Self {
        let Source { id, resume, given_up, applied, good_at, moved, lost, proved, .. } = source;
        Self {
            resume: resume.clone(),
            given_up: given_up.clone(),
            applied: applied.clone(),
            good_at: *good_at,
            moved: *moved,
            lost: *lost,
            proved: proved.clone(),
            contradicted: contradicted.contains(&SourceId(*id)),
        }
    }

    fn restore(self, source: &mut Source, all_contradicted: &mut BTreeSet<SourceId>) {
        let Self { resume, given_up, applied, good_at, moved, lost, proved, contradicted } = self;
        (source.resume, source.applied, source.good_at, source.moved) = (resume, applied, good_at, moved);
        (source.lost, source.given_up, source.proved) = (lost, given_up, proved);
        if contradicted {
            all_contradicted.insert(SourceId(source.id));
        } else {
            all_contradicted.remove(&SourceId(source.id));
        }
    }
}

/// An answer that waits for the commit.
type Answer = Box<dyn FnOnce() + Send>;

pub(super) struct Writer {
    conn: Connection,
    codec: Codec,
    epoch: String,
    epoch_on_disk: String,
    cluster: Cluster,
    head: u64,
    head_on_disk: u64,
    /// The first seq that is not forgotten.
    oldest: u64,
    oldest_on_disk: u64,
    visible: watch::Sender<Seq>,
    sources: HashMap<i64, Source>,
    /// What was last written, for the sinks that keep up.
    recent: Recent,
    /// Entries that the next ones of their objects will be differences of.
    bases: Recent,
    /// The newest entries of objects, which the next ones are compared with.
    packed: Recent<Packed>,
    in_transaction: bool,
    answers: Vec<Answer>,
    turns: Arc<AtomicU64>,
    waiting: Arc<Waiting>,
    /// Changes of the open transaction, by source.
    taken: BTreeMap<i64, usize>,
    /// What it has withheld, by source, as far as that is not counted yet.
    withheld: BTreeMap<i64, u64>,
    /// What must not be told, and the head when these rules came into force: what is older was redacted by others.
    redaction: Option<(Arc<Redactor>, u64)>,
    /// Sources whose watch brought what cannot be, or not alone; told once that is on disk.
    contradicted: BTreeSet<SourceId>,
    contradictions: watch::Sender<BTreeSet<SourceId>>,
    /// Changes only when another connection writes; none before the first transaction.
    data_version: Option<i64>,
    /// What the open transaction has moved, as it was before …
    undo: HashMap<i64, Before>,
    /// … and sources in whose place it has registered others.
    replaced: Vec<(i64, Option<Source>)>,
    /// When the command that is being done was handed over.
    at: i64,
    /// What is long and written in slices. Those that the open transaction has begun are at the end.
    jobs: VecDeque<Job>,
    /// The first source, or what it needs, has come.
    started: bool,
    /// The rules of redaction have changed since the start.
    redacted_anew: bool,
    jobs_on_disk: usize,
    /// Commands that wait for one of them.
    deferred: VecDeque<Queued>,
    room: Room,
    calendar: Calendar,
    new_bounds: Option<Bounds>,
    /// Pages were given back, and the file is not shorter yet.
    given_back: bool,
}

/// How writing goes on: an error of SQLite with what was tried.
type Done<T = ()> = Result<T, JournalError>;

fn sql(what: &'static str) -> impl FnOnce(rusqlite::Error) -> JournalError {
    move |source| JournalError::Sqlite { what: format!("the journal cannot {what}"), source }
}

fn micros(time: Timestamp) -> i64 {
    time.as_microsecond()
}

/// RFC 3339 UTC with microseconds: the `time` of an entry.
pub(super) fn rfc3339(micros: i64) -> String {
    Timestamp::from_microsecond(micros).map_or_else(|_| String::new(), |time| format!("{time:.6}"))
}

impl Writer {
    pub(super) fn new(
        conn: Connection,
        dir: &Path,
        visible: watch::Sender<Seq>,
        paused: watch::Sender<Option<Pause>>,
    ) -> Done<Self> {
        let mut meta: HashMap<String, String> = HashMap::new();
        {
            let mut select = conn.prepare("SELECT key, value FROM meta").map_err(sql("read its facts"))?;
            let rows = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).map_err(sql("read its facts"))?;
            for row in rows {
                let (key, value) = row.map_err(sql("read its facts"))?;
                meta.insert(key, value);
            }
        }
        let newest: u64 = conn
            .query_row("SELECT coalesce(max(seq), 0) FROM entry", [], |row| row.get(0))
            .map_err(sql("read its head"))?;
        // The head is kept apart too, so that no seq is given out twice after everything was forgotten.
        let kept: u64 = meta.remove("head").and_then(|head| head.parse().ok()).unwrap_or(0);
        conn.execute_batch("UPDATE source SET active = 0; UPDATE sink SET active = 0;").map_err(sql("begin"))?;
        let cluster = Cluster {
            name: meta.remove("cluster_name").unwrap_or_default(),
            uid: meta.remove("cluster_uid").unwrap_or_default(),
        };
        let head = newest.max(kept);
        let epoch = match meta.remove("epoch") {
            Some(epoch) => epoch,
            None => {
                let epoch = new_epoch(&[]);
                let named = |conn: &Connection| {
                    let transaction = conn.unchecked_transaction()?;
                    transaction.execute(
                        "INSERT OR REPLACE INTO meta VALUES ('epoch', ?), ('epoch_since', ?)",
                        params![epoch, (head + 1).to_string()],
                    )?;
                    transaction.execute("INSERT INTO epoch VALUES (?, ?)", params![epoch, head + 1])?;
                    transaction.commit()
                };
                named(&conn).map_err(sql("write its epoch"))?;
                epoch
            }
        };
        let oldest = meta.remove("oldest").and_then(|oldest| oldest.parse().ok()).unwrap_or(1);
        visible.send_replace(Seq(head));
        Ok(Self {
            conn,
            codec: Codec::default(),
            epoch_on_disk: epoch.clone(),
            epoch,
            cluster,
            head,
            head_on_disk: head,
            oldest,
            oldest_on_disk: oldest,
            visible,
            sources: HashMap::new(),
            recent: Recent::with_budget(RECENT_BYTES),
            bases: Recent::with_budget(BASES_BYTES),
            packed: Recent::with_budget(PACKED_BYTES),
            in_transaction: false,
            answers: Vec::new(),
            turns: Arc::default(),
            waiting: Arc::default(),
            taken: BTreeMap::new(),
            withheld: BTreeMap::new(),
            redaction: None,
            contradicted: BTreeSet::new(),
            contradictions: watch::Sender::default(),
            data_version: None,
            undo: HashMap::new(),
            replaced: Vec::new(),
            at: 0,
            jobs: VecDeque::new(),
            started: false,
            redacted_anew: false,
            jobs_on_disk: 0,
            deferred: VecDeque::new(),
            room: Room::new(dir, paused),
            calendar: Calendar::new(Instant::now(), micros(ambient::now())),
            new_bounds: None,
            given_back: false,
        })
    }

    pub(super) fn epoch(&self) -> &str {
        &self.epoch
    }

    /// Takes commands until every handle is dropped. What is long is not finished then: the next start goes on with it.
    pub(super) async fn run(mut self, mut queue: Queue) -> Done {
        let mut bookmarks_due: Option<Instant> = None;
        let result = loop {
            // Between two groups there is one slice of whatever is long, and never more, so that nobody waits for it.
            let busy = match self.slice(&mut queue) {
                Ok(busy) => busy,
                Err(error) => break Err(error),
            };
            let open = self.room.open;
            let next = if busy {
                // Others get their turn where this is no thread of its own.
                tokio::task::yield_now().await;
                queue.poll(open)
            } else {
                let now = Instant::now();
                let bookmarks = bookmarks_due.map(|due| due.saturating_duration_since(now));
                let age = self.room.bounds.map(|_| AGE_LOOK);
                let wait = [bookmarks, age, self.room.due(now)].into_iter().flatten().min();
                queue.wait(open, wait.unwrap_or(Duration::from_secs(3600))).await
            };
            let flush = matches!(next, Woken::Ended) || bookmarks_due.is_some_and(|due| due <= Instant::now());
            let ended = matches!(next, Woken::Ended);
            let mut step = match next {
                Woken::Command(first) => self.group(first, &mut queue),
                Woken::Elapsed | Woken::Ended => Ok(()),
            };
            if flush && step.is_ok() {
                step = self.begin().and_then(|()| self.commit());
                bookmarks_due = None;
                if let Err(error) = step {
                    self.roll_back();
                    step = self.full(error, None);
                }
            }
            if ended || step.is_err() {
                break step;
            }
            let moved = self.sources.values().any(|source| source.moved);
            bookmarks_due = match bookmarks_due {
                Some(due) if moved => Some(due),
                _ => moved.then(|| Instant::now() + BOOKMARK_DELAY),
            };
        };
        if result.is_err() {
            // The error that counts is the first one; what is not committed is as if it had not come.
            self.roll_back();
        }
        result
    }

    /// One slice of what is long, and a look at the room before it. Says whether there is more.
    fn slice(&mut self, queue: &mut Queue) -> Done<bool> {
        if let Some(bounds) = self.new_bounds.take() {
            self.set_bounds(bounds)?;
        }
        self.look()?;
        let tidied = self.tidy();
        let mut busy = match tidied {
            Ok(more) => more,
            Err(error) => {
                self.roll_back();
                self.full(error, None)?;
                false
            }
        };
        if self.room.open.sources && self.may_step() {
            match self.step() {
                Ok(done) => {
                    self.room.fitted();
                    if done {
                        queue.give_back(self.deferred.drain(..));
                    }
                }
                Err(error) => {
                    self.roll_back();
                    self.full(error, Some(self.room.sizes.group))?;
                }
            }
            busy |= self.may_step();
        }
        Ok(busy)
    }

    /// One transaction: the first command and what waits behind it, up to a bound.
    fn group(&mut self, first: Queued, queue: &mut Queue) -> Done {
        let (mut changes, mut bytes) = (0, 0);
        let (most, open) = (self.room.sizes.group, self.room.open);
        let mut next = Some(first);
        let mut taken = Vec::new();
        let mut result = Ok(());
        // What has to wait from here on is given back as well where this group fails: it comes after what the group took.
        let waited = self.deferred.len();
        while let Some(queued) = next {
            self.started |= matches!(queued.command, Command::Source(..) | Command::Redaction(_));
            if self.must_wait(&queued.command) {
                self.deferred.push_back(queued);
            } else {
                let flush = matches!(queued.command, Command::Flush(_));
                changes += queued.command.objects();
                bytes += queued.bytes;
                self.at = queued.at;
                result = self.perform(&queued.command);
                taken.push(queued);
                // What was handed over on the other lane is before it as well.
                while flush && result.is_ok() {
                    let Some(queued) = queue.take_control() else { break };
                    result = self.perform(&queued.command);
                    taken.push(queued);
                }
                if result.is_err() {
                    break;
                }
            }
            // Where other bounds are to come, nothing more is taken by the old ones.
            let more = changes < GROUP_CHANGES
                && bytes < most
                && !(self.room.is_tight() && bytes > 0)
                && self.new_bounds.is_none();
            next = if more { queue.take(open) } else { None };
        }
        if result.is_ok() {
            result = if self.in_transaction {
                self.commit()
            } else {
                self.answer();
                Ok(())
            };
        }
        match result {
            Ok(()) => {
                if bytes > 0 {
                    self.room.fitted();
                }
                Ok(())
            }
            Err(error) => {
                self.roll_back();
                let sources = taken.iter().any(|queued| !queued.command.is_control());
                // The next try takes them one by one.
                let one = taken.iter().map(|queued| queued.bytes).max().unwrap_or(0);
                queue.give_back(self.deferred.split_off(waited).into_iter());
                queue.give_back(taken.into_iter());
                self.full(error, sources.then_some(one))
            }
        }
    }

    /// What the open transaction has done is as if it had not come.
    fn roll_back(&mut self) {
        if !self.in_transaction {
            return;
        }
        // SQLite may have done it already, and then says so.
        drop(self.conn.execute_batch("ROLLBACK"));
        self.in_transaction = false;
        self.head = self.head_on_disk;
        self.epoch.clone_from(&self.epoch_on_disk);
        self.oldest = self.oldest_on_disk;
        self.jobs.truncate(self.jobs_on_disk);
        self.answers.clear();
        self.taken.clear();
        self.withheld.clear();
        self.recent.clear();
        self.bases.clear();
        self.packed.clear();
        for (id, source) in self.replaced.drain(..).rev() {
            match source {
                Some(source) => self.sources.insert(id, source),
                None => self.sources.remove(&id),
            };
        }
        for (id, before) in self.undo.drain() {
            if let Some(source) = self.sources.get_mut(&id) {
                before.restore(source, &mut self.contradicted);
            }
        }
    }

    /// A source that is about to be moved.
    fn touch(&mut self, id: i64) -> Option<&mut Source> {
        let source = self.sources.get_mut(&id)?;
        if self.in_transaction {
            self.undo.entry(id).or_insert_with(|| Before::of(source, &self.contradicted));
        }
        Some(source)
    }

    fn begin(&mut self) -> Done {
        if !self.in_transaction {
            self.conn.execute_batch("BEGIN IMMEDIATE").map_err(sql("begin to write"))?;
            self.in_transaction = true;
            self.expect_nobody_else()?;
        }
        Ok(())
    }

    /// What the writer knows of the head and the sources is no longer true where somebody else has written.
    fn expect_nobody_else(&mut self) -> Done {
        let now = data_version(&self.conn)?;
        if *self.data_version.get_or_insert(now) != now {
            return Err(JournalError::Corrupt(
                "another program has written to the journal while decklog ran; see that it does not again, and run `decklog verify`"
                    .to_owned(),
            ));
        }
        Ok(())
    }

    /// Makes everything since `begin` durable together with the checkpoints that it brings, then visible.
    /// Invariant 1: a checkpoint never runs ahead of the journal, because both are in this transaction.
    fn commit(&mut self) -> Done {
        self.write_checkpoints()?;
        self.count_withheld()?;
        if self.head > self.head_on_disk {
            // Beside the entries, so that no seq is given out twice after everything was forgotten.
            self.execute(
                "keep the head",
                "INSERT OR REPLACE INTO meta VALUES ('head', ?)",
                params![self.head.to_string()],
            )?;
        }
        self.conn.execute_batch("COMMIT").map_err(sql("commit"))?;
        self.in_transaction = false;
        self.undo.clear();
        self.replaced.clear();
        self.head_on_disk = self.head;
        self.epoch_on_disk.clone_from(&self.epoch);
        if self.oldest_on_disk != self.oldest {
            self.oldest_on_disk = self.oldest;
            self.recent.set_lowest(self.oldest);
        }
        self.jobs_on_disk = self.jobs.len();
        let head = Seq(self.head);
        self.visible.send_if_modified(|seen| std::mem::replace(seen, head) != head);
        self.contradictions.send_if_modified(|told| {
            let news = *told != self.contradicted;
            told.clone_from(&self.contradicted);
            news
        });
        self.answer();
        Ok(())
    }

    /// What the open transaction brings the sources to.
    fn write_checkpoints(&mut self) -> Done {
        for source in self.sources.values_mut().filter(|source| source.moved) {
            self.undo.entry(source.id).or_insert_with(|| Before::of(source, &self.contradicted));
            let mut update = self
                .conn
                .prepare_cached("UPDATE source SET resume = ?, applied = ?, good_at = ? WHERE id = ?")
                .map_err(sql("move a checkpoint"))?;
            update
                .execute(params![
                    source.resume.as_ref().map(ResourceVersion::as_str),
                    source.applied.as_ref().map(ResourceVersion::as_str),
                    source.good_at,
                    source.id
                ])
                .map_err(sql("move a checkpoint"))?;
            source.moved = false;
        }
        Ok(())
    }

    pub(super) fn recent(&self) -> Recent {
        self.recent.clone()
    }

    pub(super) fn contradictions(&self) -> watch::Receiver<BTreeSet<SourceId>> {
        self.contradictions.subscribe()
    }

    pub(super) fn turns(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.turns)
    }

    pub(super) fn waiting(&self) -> Arc<Waiting> {
        Arc::clone(&self.waiting)
    }

    fn answer(&mut self) {
        for (id, changes) in std::mem::take(&mut self.taken) {
            self.waiting.subtract(SourceId(id), changes);
        }
        self.turns.fetch_add(1, Ordering::Relaxed);
        for answer in self.answers.drain(..) {
            answer();
        }
    }

    /// Answers after the commit.
    fn later<T: Send + 'static>(&mut self, reply: &Reply<T>, value: T) {
        let reply = reply.clone();
        self.answers.push(Box::new(move || reply.send(value)));
    }

    fn perform(&mut self, command: &Command) -> Done {
        match command {
            Command::Cluster(cluster, reply) => {
                let result = self.set_cluster(cluster.clone())?;
                self.later(reply, result);
            }
            Command::Redaction(redactor) => self.set_redaction(Arc::clone(redactor))?,
            Command::Source(spec, reply) => {
                self.begin()?;
                let memory = self.register(spec)?;
                self.later(reply, memory);
            }
            Command::Retire(SourceId(id)) => {
                self.begin()?;
                self.execute("retire a source", "UPDATE source SET active = 0 WHERE id = ?", params![id])?;
            }
            Command::Narrow(reply) => {
                self.narrow(reply.clone())?;
            }
            Command::Changes(SourceId(id), changes) => {
                self.begin()?;
                *self.taken.entry(*id).or_default() += changes.len();
                for change in changes {
                    self.change(*id, change)?;
                }
            }
            Command::Bookmark(SourceId(id), version) => self.bookmark(*id, version),
            Command::ListBegin(SourceId(id)) => {
                self.begin_list(*id)?;
            }
            Command::ListPage(SourceId(id), objects) => {
                self.begin()?;
                for object in objects {
                    self.stage(*id, object)?;
                }
            }
            Command::Found(SourceId(id), found) => {
                self.begin()?;
                for found in found {
                    self.stage_found(*id, found)?;
                }
            }
            Command::PartDone(SourceId(id), version, last, reply) => {
                self.complete_part(*id, version, *last, reply.clone())?;
            }
            Command::ListDone(SourceId(id), version, why, reply) => {
                self.complete_list(*id, version, *why, reply.clone())?;
            }
            Command::Gone(SourceId(id), reply) => {
                self.gone(*id, reply.clone())?;
            }
            Command::Distrust(SourceId(id), why) => {
                self.begin()?;
                self.distrust(*id, *why)?;
            }
            Command::Audited(SourceId(id), Audit { version, began, differences }) => {
                self.begin()?;
                if *differences == 0 {
                    self.prove(*id, version.clone(), micros(*began))?;
                    self.found_good(*id, micros(*began));
                }
                self.execute(
                    "note an audit",
                    "UPDATE source SET audits = audits + 1, audit_differences = audit_differences + ?, audited_at = ? WHERE id = ?",
                    params![differences, micros(ambient::now()), id],
                )?;
            }
            Command::ReportSource(SourceId(id), state) => {
                self.begin()?;
                let (word, detail) = state.describe();
                self.execute(
                    "note a source's state",
                    "UPDATE source SET state_since = CASE WHEN state = ?1 THEN state_since ELSE ?3 END, state = ?1, detail = ?2
                     WHERE id = ?4",
                    params![word, detail, micros(ambient::now()), id],
                )?;
            }
            Command::Resources(resources) => {
                self.begin()?;
                for resource in resources {
                    self.resource_id(resource)?;
                }
            }
            Command::Requests(read) => {
                self.begin()?;
                self.note_requests(read.as_ref())?;
            }
            Command::Sink(name, kind, start, reply) => {
                self.begin()?;
                let cursor = self.register_sink(name, kind, *start)?;
                self.later(reply, cursor);
            }
            Command::RetireSink(name) => {
                self.begin()?;
                self.execute("retire a sink", "UPDATE sink SET active = 0 WHERE name = ?", params![name])?;
            }
            Command::Acknowledge { sink, upto, written, reply } => {
                self.begin()?;
                self.execute(
                    "move a cursor",
                    // Invariant 5: a cursor only grows.
                    "UPDATE sink SET cursor = max(cursor, ?1), written = max(written, ?2),
                     delivered_at = CASE WHEN ?2 > written THEN ?3 ELSE delivered_at END WHERE name = ?4",
                    params![upto.0, written.0, micros(ambient::now()), sink],
                )?;
                self.later(reply, ());
            }
            Command::ResetCursor(name, to, reply) => {
                self.begin()?;
                self.execute(
                    "reset a cursor",
                    "UPDATE sink SET cursor = ?1, written = min(written, ?1) WHERE name = ?2",
                    params![to.0, name],
                )?;
                self.later(reply, ());
            }
            Command::SetAside { sink, seq, line, reason, reply } => {
                self.begin()?;
                // What the log still has is taken over when it forgets it.
                let line = (seq.0 < self.oldest).then(|| self.codec.compress(None, line));
                self.execute(
                    "set an entry aside",
                    "INSERT OR REPLACE INTO aside (sink, seq, reason, time, line) VALUES (?, ?, ?, ?, ?)",
                    params![sink, seq.0, reason, micros(ambient::now()), line],
                )?;
                self.later(reply, ());
            }
            Command::Settle(settled, reply) => {
                self.begin()?;
                for (seq, time) in &settled.entries {
                    self.execute(SETTLE, SETTLED, params![settled.sink, seq.0, time])?;
                }
                self.later(reply, ());
            }
            Command::ReportSink(name, state) => {
                self.begin()?;
                let (word, detail) = state.describe();
                self.execute(
                    "note a sink's state",
                    "UPDATE sink SET state_since = CASE WHEN state = ?1 THEN state_since ELSE ?3 END, state = ?1, detail = ?2
                     WHERE name = ?4",
                    params![word, detail, micros(ambient::now()), name],
                )?;
            }
            Command::Epoch(after, reply) => {
                self.begin()?;
                // Two sinks may find out the same at the same time.
                if after.as_ref().is_none_or(|after| *after >= self.epoch) {
                    self.begin_epoch(after.as_deref())?;
                }
                let epoch = self.epoch.clone();
                self.later(reply, epoch);
            }
            Command::Mark(marks, reply) => {
                self.begin()?;
                let what = "note the mark of its directory";
                self.execute(what, "INSERT OR REPLACE INTO meta VALUES ('mark', ?)", params![marks.join(" ")])?;
                self.later(reply, ());
            }
            Command::Recast(sink, recast, reply) => {
                self.begin()?;
                self.execute(
                    "give entries another epoch",
                    "INSERT OR REPLACE INTO recast (sink, after, before, epoch) VALUES (?, ?, ?, ?)",
                    params![sink, recast.after.0, recast.before.0, recast.epoch],
                )?;
                self.later(reply, ());
            }
            // Between two transactions, because they bring transactions of their own.
            Command::Bounds(bounds) => self.new_bounds = Some(*bounds),
            Command::Ping(reply) => self.later(reply, ()),
            Command::Flush(reply) => {
                if self.sources.values().any(|source| source.moved) {
                    self.begin()?;
                }
                self.later(reply, ());
            }
        }
        Ok(())
    }

    fn execute(&self, what: &'static str, text: &str, values: impl rusqlite::Params) -> Done<usize> {
        self.conn.prepare_cached(text).and_then(|mut statement| statement.execute(values)).map_err(sql(what))
    }

    /// From here on entries carry another name, and none before does.
    fn begin_epoch(&mut self, after: Option<&str>) -> Done {
        let what = "begin an epoch";
        self.epoch = new_epoch(&[Some(self.epoch.as_str()), after].map(Option::unwrap_or_default));
        let since = self.head + 1;
        self.execute(what, "UPDATE meta SET value = ? WHERE key = 'epoch'", params![self.epoch])?;
        self.execute(what, "INSERT OR REPLACE INTO meta VALUES ('epoch_since', ?)", params![since.to_string()])?;
        self.execute(what, "INSERT INTO epoch VALUES (?, ?)", params![self.epoch, since])?;
        Ok(())
    }

    fn source(&self, id: i64) -> Done<&Source> {
        self.sources
            .get(&id)
            .ok_or_else(|| JournalError::Corrupt(format!("source {id} is not registered; this is a bug")))
    }
}

/// Whether a version comes before another one, as far as they have an order.
fn before(version: &ResourceVersion, other: &ResourceVersion) -> bool {
    version.compare(other).is_some_and(std::cmp::Ordering::is_lt)
}

/// Whether a version is another one or comes before it.
fn not_after(version: &ResourceVersion, other: &ResourceVersion) -> bool {
    version.compare(other).map_or(version == other, std::cmp::Ordering::is_le)
}

fn data_version(conn: &Connection) -> Done<i64> {
    conn.prepare_cached("PRAGMA data_version")
        .and_then(|mut select| select.query_row([], |row| row.get(0)))
        .map_err(sql("look for other writers"))
}

/// Drops entries that were set aside, in one transaction.
pub(super) fn settle(conn: &mut Connection, settled: &Settled) -> Done {
    let transaction = conn.transaction().map_err(sql(SETTLE))?;
    for (seq, time) in &settled.entries {
        transaction.execute(SETTLED, params![settled.sink, seq.0, time]).map_err(sql(SETTLE))?;
    }
    transaction.commit().map_err(sql(SETTLE))
}

const SETTLE: &str = "forget what was set aside";
const SETTLED: &str = "DELETE FROM aside WHERE sink = ? AND seq = ? AND time = ?";

/// Names of epochs sort by the time they began, and a new one comes after those that are known, whatever the clock says.
fn new_epoch(after: &[&str]) -> String {
    let earliest = after.iter().filter_map(|epoch| begun(epoch)).max().map_or(0, |begun| begun + 1);
    let millis = u64::try_from(ambient::now().as_millisecond()).unwrap_or_default().max(earliest);
    let random = (u128::from(ambient::random()) << 64 | u128::from(ambient::random())).to_be_bytes();
    let random = random.first_chunk().expect("16 bytes are more than 10");
    uuid::Builder::from_unix_timestamp_millis(millis, random).into_uuid().simple().to_string()
}

/// The millisecond in which an epoch began.
fn begun(epoch: &str) -> Option<u64> {
    epoch.get(..12).and_then(|digits| u64::from_str_radix(digits, 16).ok())
}

/// Whether this is the name of an epoch, which a later one can follow.
pub(crate) fn is_epoch(name: &str) -> bool {
    let is_digit = |digit: u8| digit.is_ascii_digit() || (b'a'..=b'f').contains(&digit);
    name.len() == 32 && name.bytes().all(is_digit) && begun(name).is_some_and(|begun| begun < (1 << 48) - 1)
}

fn known_row(row: &Row<'_>) -> rusqlite::Result<Known> {
    Ok(Known {
        id: row.get(0)?,
        uid: row.get(1)?,
        version: ResourceVersion(row.get(2)?),
        present: row.get(3)?,
        last: row.get(4)?,
        base: row.get(5)?,
        has_state: row.get(6)?,
        marks: marks_of(row.get(7)?),
    })
}

fn marks_json(body: &Redacted) -> Option<String> {
    (!body.marks.is_empty()).then(|| serde_json::to_string(&body.marks).expect("strings and bytes always serialise"))
}

fn pointers_json(body: &Redacted) -> String {
    serde_json::to_string(&body.pointers).expect("strings always serialise")
}

fn marks_of(text: Option<String>) -> Marks {
    text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
}

/// The number that stands for a type in the database.
pub(super) const fn type_code(kind: EntryType) -> i64 {
    match kind {
        EntryType::Added => 0,
        EntryType::Modified => 1,
        EntryType::Deleted => 2,
        EntryType::Gap => 3,
    }
}

/// The type that a number in the database stands for.
pub(super) fn type_of(code: i64) -> Option<EntryType> {
    EntryType::ALL.into_iter().find(|kind| type_code(*kind) == code)
}
