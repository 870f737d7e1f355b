//! The one thread that writes: commands in, entries and state out, many commands to a transaction.
//!
//! A command is decided and recorded in a [`Transaction`](transaction::Transaction); what that brings becomes the writer's
//! own knowledge, and visible to others, with the commit and never before.
//!
//! `perform` executes each command, and moves cursors; `change` and `listing` decide what is new, `desync` what contradicts the
//! journal. `store` and `actor` give an entry its seq and write it; `transaction` commits; `truncate` removes the oldest.

mod actor;
mod apart;
mod backlog;
mod base;
mod change;
pub(super) mod changeset;
mod clock;
mod desync;
mod listing;
mod moment;
mod perform;
mod queue;
mod quota;
mod register;
mod requests;
mod sharing;
mod staging;
mod standing_by;
mod store;
#[cfg(test)]
mod tests;
mod transaction;
mod tree;
mod truncate;
pub(super) mod unit;
mod unread;
mod unwritten;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use jiff::Timestamp;
use rusqlite::{Connection, Row, params};
use tokio::time::Instant;

use super::codec::Codec;
use super::error::Result;
use super::recent::AtHand;
use super::retention::{Bounds, Pause};
use super::room;
use super::shared::{Shared, Sharing};
use super::{JournalError, Settled, SourceId, Waiting};
use crate::core::model::{Cluster, EntryType, Redacted, ResourceVersion, Seq};
use crate::core::runtime::{self, watch};
use clock::GuardedClock;
pub(crate) use moment::{LATE, UNNOTICED_MAX};
use queue::Woken;
pub(super) use queue::{Command, OfAuditLog, OfEvidence, OfSink, OfSource, Queue, Queued, Reply};
use quota::Quota;
pub(super) use requests::SUPPRESSED;
use sharing::Replication;
use transaction::{Changes, Committed, Disk, Notifications, Transaction};

/// A transaction takes what waits, up to this many changes; how many bytes, `retention::Sizes` says.
const GROUP_CHANGES: usize = 1000;
/// An idle source's bookmarks reach the disk at most this late, and not more often.
const BOOKMARK_DELAY: Duration = Duration::from_secs(10);
/// Interval at which the age of entries is checked.
const AGE_LOOK: Duration = Duration::from_secs(1);
/// Statement that deactivates every source and sink.
static NOBODY: &str = "UPDATE source SET active = 0; UPDATE sink SET active = 0;";
/// Stands for a reason in `pending_why` where a first list is only remembered.
const SILENT: &str = "silent";

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

pub(super) struct Writer {
    disk: Disk,
    committed: Committed,
    visible: watch::Sender<Seq>,
    inconsistent: watch::Sender<BTreeSet<SourceId>>,
    /// Channel of the number of lists of each source that were given up for want of room.
    given_up: watch::Sender<BTreeMap<SourceId, u64>>,
    turns: Arc<AtomicU64>,
    waiting: Arc<Waiting>,
    /// Commands that wait for a job.
    deferred: VecDeque<Queued>,
    quota: Quota,
    clock: GuardedClock,
    new_bounds: Option<Bounds>,
    /// Pages were given back, and the file is not shorter yet.
    given_back: bool,
    dir: PathBuf,
    /// The name that entries carry, for everybody who has a handle.
    epoch: Arc<RwLock<String>>,
    /// For what is read and written outside of transactions.
    codec: Codec,
    /// Replication to the shared log, if the journal is shared.
    link: Option<Replication>,
    /// Id of the last backlog row that was handed over after a take-over; none if nothing of the backlog is left.
    drained: Option<i64>,
}

/// State that a writer reads from a journal that another process wrote.
struct Facts {
    epoch: String,
    cluster: Cluster,
    head: u64,
    log_start: u64,
    /// First seq of the tree that grows.
    tree: Option<u64>,
}

impl Facts {
    fn read(conn: &Connection) -> Result<Self> {
        let mut meta: HashMap<String, String> = HashMap::new();
        {
            let mut select = conn.prepare_cached("SELECT key, value FROM meta").map_err(sql("read its facts"))?;
            let rows = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).map_err(sql("read its facts"))?;
            for row in rows {
                let (key, value) = row.map_err(sql("read its facts"))?;
                meta.insert(key, value);
            }
        }
        let newest: u64 = conn
            .query_row("SELECT coalesce(max(seq), 0) FROM entry", [], |row| row.get(0))
            .map_err(sql("read its head"))?;
        // The head is kept apart too, so that no seq is given out twice after everything was truncated.
        let kept: u64 = meta.remove("head").and_then(|head| head.parse().ok()).unwrap_or(0);
        let cluster = Cluster {
            name: meta.remove("cluster_name").unwrap_or_default(),
            uid: meta.remove("cluster_uid").unwrap_or_default(),
        };
        Ok(Self {
            epoch: meta.remove("epoch").unwrap_or_default(),
            cluster,
            head: newest.max(kept),
            log_start: meta.remove("oldest").and_then(|seq| seq.parse().ok()).unwrap_or(1),
            tree: tree::growing(conn)?,
        })
    }

    fn committed(self) -> Committed {
        Committed::new(self.epoch, self.cluster, (self.log_start, self.head), self.tree)
    }
}

pub(super) fn sql(what: &'static str) -> impl FnOnce(rusqlite::Error) -> JournalError {
    move |error| room::refused(format!("the journal cannot {what}"), error)
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
    ) -> Result<Self> {
        let mut facts = Facts::read(&conn)?;
        let head = facts.head;
        if facts.epoch.is_empty() {
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
            facts.epoch = epoch;
        }
        let epoch = Arc::new(RwLock::new(facts.epoch.clone()));
        visible.send_replace(Seq(head));
        Ok(Self {
            disk: Disk::new(conn),
            committed: facts.committed(),
            visible,
            inconsistent: watch::Sender::default(),
            given_up: watch::Sender::default(),
            turns: Arc::default(),
            waiting: Arc::default(),
            deferred: VecDeque::new(),
            quota: Quota::new(dir, paused),
            clock: GuardedClock::new(Instant::now(), micros(runtime::now())),
            new_bounds: None,
            given_back: false,
            dir: dir.to_owned(),
            epoch,
            codec: Codec::default(),
            link: None,
            drained: None,
        })
    }

    /// Goes on with what the last daemon left. No source and no sink of it is one of this daemon until it is registered.
    pub(super) fn recover(&mut self) -> Result {
        if self.link.is_none() {
            self.disk.conn.execute_batch(NOBODY).map_err(sql("begin"))?;
        }
        self.transact(|transaction| {
            if transaction.is_shared() {
                transaction.begin()?;
                transaction.conn.execute_batch(NOBODY).map_err(sql("begin"))?;
            }
            transaction.note_absence()?;
            transaction.recover()
        })
    }

    /// Shares the journal: it stands by at first.
    pub(super) fn share(
        &mut self,
        sharing: Sharing,
        state: watch::Sender<Shared>,
        step_down: watch::Receiver<bool>,
    ) -> Result {
        self.link = Some(Replication::new(&self.disk.conn, sharing, state, step_down)?);
        Ok(())
    }

    pub(super) fn epoch(&self) -> Arc<RwLock<String>> {
        Arc::clone(&self.epoch)
    }

    pub(super) fn at_hand(&self) -> AtHand {
        self.disk.at_hand()
    }

    pub(super) fn inconsistent(&self) -> watch::Receiver<BTreeSet<SourceId>> {
        self.inconsistent.subscribe()
    }

    pub(super) fn given_up(&self) -> watch::Receiver<BTreeMap<SourceId, u64>> {
        self.given_up.subscribe()
    }

    pub(super) fn turns(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.turns)
    }

    pub(super) fn waiting(&self) -> Arc<Waiting> {
        Arc::clone(&self.waiting)
    }

    /// Takes commands until every handle is dropped. What is long is not finished then: the next start goes on with it.
    pub(super) async fn run(mut self, mut queue: Queue) -> Result {
        if self.link.is_some() && !self.stand_by(&mut queue).await? {
            return Ok(());
        }
        let mut bookmarks_due: Option<Instant> = None;
        loop {
            // Between two groups there is one slice of whatever is long, and never more, so that nobody waits for it.
            let mut busy = self.slice(&mut queue)? | self.drain_backlog(&mut queue)?;
            self.settle().await?;
            busy |= self.step_base().await?;
            let open = self.quota.open;
            let next = if busy {
                // Others get their turn where this is no thread of its own.
                tokio::task::yield_now().await;
                queue.poll(open)
            } else {
                let now = Instant::now();
                let bookmarks = bookmarks_due.map(|due| due.saturating_duration_since(now));
                let age = self.quota.bounds.map(|_| AGE_LOOK);
                let wait = [bookmarks, age, self.quota.due(now)].into_iter().flatten().min();
                queue.wait(open, wait.unwrap_or(Duration::from_secs(3600))).await
            };
            let flush = matches!(next, Woken::Ended) || bookmarks_due.is_some_and(|due| due <= Instant::now());
            let ended = matches!(next, Woken::Ended);
            match next {
                Woken::Command(first) => self.group(first, &mut queue)?,
                Woken::Elapsed | Woken::Ended => {}
            }
            if flush {
                bookmarks_due = None;
                let flushed = self.transact(|transaction| {
                    transaction.begin()?;
                    if ended && !transaction.is_shared() { transaction.note_end() } else { Ok(()) }
                });
                if let Err(error) = flushed {
                    self.full(error, None)?;
                }
            }
            self.settle().await?;
            if ended {
                return Ok(());
            }
            let moved = self.committed.sources.values().any(|source| source.moved);
            bookmarks_due = match bookmarks_due {
                Some(due) if moved => Some(due),
                _ => moved.then(|| Instant::now() + BOOKMARK_DELAY),
            };
        }
    }

    /// One slice of what is long, and a look at the quota before it. Says whether there is more.
    #[expect(clippy::redundant_closure_for_method_calls, reason = "the method is of one lifetime, not of any")]
    fn slice(&mut self, queue: &mut Queue) -> Result<bool> {
        if let Some(bounds) = self.new_bounds.take() {
            self.set_bounds(bounds)?;
        }
        self.look()?;
        let mut busy = match self.tidy() {
            Ok(more) => more,
            Err(error) => {
                self.full(error, None)?;
                false
            }
        };
        // What makes room goes on also where nothing is taken from sources.
        let open = self.quota.open.sources;
        let clears = !open && self.quota.has_wal() && self.committed.clear_first();
        if clears || open && self.committed.may_step() {
            match self.transact(|transaction| transaction.step()) {
                Ok(done) => {
                    self.quota.fitted();
                    if done {
                        queue.give_back(self.deferred.drain(..));
                    }
                }
                // It is done again as it was.
                Err(error) => self.full(error, Some(self.quota.sizes.group))?,
            }
            busy |= clears || self.committed.may_step();
        }
        Ok(busy)
    }

    /// One transaction: the first command and what waits behind it, up to a bound.
    fn group(&mut self, first: Queued, queue: &mut Queue) -> Result {
        let (mut changes, mut bytes) = (0, 0);
        let (most, open) = (self.quota.sizes.group, self.quota.open);
        let mut next = Some(first);
        let mut taken = Vec::new();
        let mut result = Ok(());
        // What has to wait from here on is given back as well where this group fails: it comes after what the group took.
        let waited = self.deferred.len();
        let mut transaction = self.disk.transaction(&self.committed, &self.quota);
        while let Some(queued) = next {
            transaction.changes.started |= matches!(queued.command, Command::Register(..) | Command::Redaction(_));
            // What is dropped waits for nothing, unless it is of a list that waits for its beginning.
            let is_dropped = transaction.is_dropped(&queued.command)
                && !self.deferred.iter().any(|waits| waits.command.moves() == queued.command.moves());
            if !is_dropped && transaction.must_wait(&queued.command) {
                self.deferred.push_back(queued);
            } else {
                let flush = matches!(queued.command, Command::Flush(_));
                changes += queued.command.objects();
                bytes += queued.bytes;
                transaction.at = queued.at;
                if let Command::Bounds(bounds) = &queued.command {
                    // Between two transactions, because they bring transactions of their own.
                    self.new_bounds = Some(*bounds);
                }
                result = transaction.perform(&queued.command);
                taken.push(queued);
                // What was handed over on the other lane is before it as well.
                while flush && result.is_ok() {
                    let Some(queued) = queue.take_control() else { break };
                    if let Command::Bounds(bounds) = &queued.command {
                        self.new_bounds = Some(*bounds);
                    }
                    result = transaction.perform(&queued.command);
                    taken.push(queued);
                }
                if result.is_err() {
                    break;
                }
            }
            // Where other bounds are to come, nothing more is taken by the old ones.
            let more = changes < GROUP_CHANGES
                && bytes < most
                && !(self.quota.is_tight() && bytes > 0)
                && self.new_bounds.is_none();
            next = if more { queue.take(open) } else { None };
        }
        match result.and_then(|()| transaction.commit()) {
            Ok(changes) => {
                self.publish(changes);
                if bytes > 0 {
                    self.quota.fitted();
                }
                Ok(())
            }
            Err(error) => {
                let sources = taken.iter().any(|queued| !queued.command.is_control());
                // The next try takes them one by one.
                let one = taken.iter().map(|queued| queued.bytes).max().unwrap_or(0);
                queue.give_back(self.deferred.split_off(waited).into_iter());
                queue.give_back(taken.into_iter());
                self.full(error, sources.then_some(one))
            }
        }
    }

    /// Does something in a transaction of its own.
    fn transact<T>(&mut self, work: impl FnOnce(&mut Transaction<'_>) -> Result<T>) -> Result<T> {
        let mut transaction = self.disk.transaction(&self.committed, &self.quota);
        let done = work(&mut transaction)?;
        let changes = transaction.commit()?;
        self.publish(changes);
        Ok(done)
    }

    /// Publishes a transaction that is durable, within the process and to others.
    fn publish(&mut self, changes: Changes) {
        let before = self.committed.log_start;
        let notifications = self.committed.apply(changes);
        if self.committed.log_start != before {
            self.disk.recent.set_log_start(self.committed.log_start);
        }
        self.publish_or_defer(notifications);
    }

    /// Makes known to others what is on disk.
    fn notify(&mut self, notifications: Notifications) {
        let Notifications { taken, inconsistent, given_up, answers } = notifications;
        let head = Seq(self.committed.head);
        {
            let mut epoch = self.epoch.write().unwrap_or_else(PoisonError::into_inner);
            if *epoch != self.committed.epoch {
                epoch.clone_from(&self.committed.epoch);
            }
        }
        self.visible.send_if_modified(|seen| std::mem::replace(seen, head) != head);
        self.inconsistent.send_if_modified(|sources| {
            let mut news = false;
            for (id, found) in inconsistent {
                let id = SourceId(id);
                news |= if found { sources.insert(id) } else { sources.remove(&id) };
            }
            news
        });
        if !given_up.is_empty() {
            self.given_up.send_modify(|lists| {
                for id in given_up {
                    *lists.entry(SourceId(id)).or_default() += 1;
                }
            });
        }
        for (id, changes) in taken {
            self.waiting.subtract(SourceId(id), changes);
        }
        self.turns.fetch_add(1, Ordering::Relaxed);
        for answer in answers {
            answer();
        }
    }
}

/// Notes which marks the state directory may have, in the transaction that is open.
fn note_mark(conn: &Connection, marks: &[String]) -> Result {
    conn.execute("INSERT OR REPLACE INTO meta VALUES ('mark', ?)", params![marks.join(" ")])
        .map(drop)
        .map_err(sql("note the mark of its directory"))
}

impl Transaction<'_> {
    /// From here on entries carry another name, and none before does.
    fn begin_epoch(&mut self, after: Option<&str>) -> Result {
        let what = "begin an epoch";
        let epoch = new_epoch(&[Some(self.epoch()), after].map(Option::unwrap_or_default));
        let since = self.changes.head + 1;
        self.execute(what, "UPDATE meta SET value = ? WHERE key = 'epoch'", params![epoch])?;
        self.execute(what, "INSERT OR REPLACE INTO meta VALUES ('epoch_since', ?)", params![since.to_string()])?;
        self.execute(what, "INSERT INTO epoch VALUES (?, ?)", params![epoch, since])?;
        self.set_epoch(epoch);
        self.begin_next_tree()
    }
}

/// Drops entries that were dead-lettered, in one transaction. Not where the journal is shared, and then it says so.
pub(super) fn settle(conn: &mut Connection, settled: &Settled) -> Result<bool> {
    if sharing::Place::read(conn)?.is_some() {
        return Ok(false);
    }
    let transaction = conn.transaction().map_err(sql(SETTLE))?;
    for (seq, time) in &settled.entries {
        transaction.execute(SETTLED, params![settled.sink, seq.0, time]).map_err(sql(SETTLE))?;
    }
    transaction.commit().map_err(sql(SETTLE))?;
    Ok(true)
}

const SETTLE: &str = "settle dead letters";
const SETTLED: &str = "DELETE FROM dead_letter WHERE sink = ? AND seq = ? AND time = ?";

/// Names of epochs sort by the time they began, and a new one comes after those that are known, whatever the clock says.
fn new_epoch(after: &[&str]) -> String {
    let earliest = after.iter().filter_map(|epoch| begun(epoch)).max().map_or(0, |begun| begun + 1);
    let millis = u64::try_from(runtime::now().as_millisecond()).unwrap_or_default().max(earliest);
    let random = (u128::from(runtime::random()) << 64 | u128::from(runtime::random())).to_be_bytes();
    let random = random.first_chunk().expect("16 bytes are more than 10");
    uuid::Builder::from_unix_timestamp_millis(millis, random).into_uuid().simple().to_string()
}

/// The millisecond in which an epoch began.
fn begun(epoch: &str) -> Option<u64> {
    epoch.get(..12).and_then(|digits| u64::from_str_radix(digits, 16).ok())
}

/// Reports whether this is the name of an epoch, which a later one can follow.
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
pub(super) const fn type_code(op: EntryType) -> i64 {
    match op {
        EntryType::Added => 0,
        EntryType::Modified => 1,
        EntryType::Deleted => 2,
        EntryType::Gap => 3,
        EntryType::Actor => 4,
    }
}

/// The type that a number in the database stands for.
pub(super) fn type_of(code: i64) -> Option<EntryType> {
    EntryType::ALL.into_iter().find(|op| type_code(*op) == code)
}
