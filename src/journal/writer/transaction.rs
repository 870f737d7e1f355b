//! A transaction: what commands bring, until it is on disk.
//!
//! What the writer knows between two transactions is [`Committed`], and nothing changes it but [`Committed::apply`], with
//! the [`Changes`] of a transaction that has succeeded. A transaction only borrows it. So a rollback is the end of a
//! [`Transaction`] without a commit, and nothing can be left behind in it.

use std::collections::VecDeque;
use std::collections::btree_map::{BTreeMap, Entry};
use std::ops::Deref;
use std::sync::Arc;

use rusqlite::{Connection, params};

use super::listing::{Job, Work};
use super::queue::Reply;
use super::quota::Quota;
use super::sql;
use super::staging::Staged;
use crate::core::change::Noise;
use crate::core::change::redact::Redactor;
use crate::core::merkle::Hash;
use crate::core::model::{Checkpoint, Cluster, Resource, ResourceVersion, Why};
use crate::journal::JournalError;
use crate::journal::codec::Codec;
use crate::journal::error::Result;
use crate::journal::recent::{AtHand, Budget, Opened, Packed, Recent};

/// Entries that are cached for the sinks.
const RECENT: Budget = Budget::shared(8 << 20);
/// … and for the differences that are written next: what they are differences of …
const BASES: Budget = Budget::shared(32 << 20);
/// … and the versions before.
const PACKED: Budget = Budget::shared(16 << 20);

/// Configuration and discovery of a source. It is never changed, only replaced as a whole.
#[derive(Debug)]
pub(super) struct Watched {
    pub(super) id: i64,
    /// Otherwise it is here only for as long as something of the last daemon is to be finished.
    pub(super) registered: bool,
    pub(super) resource: i64,
    pub(super) facts: Resource,
    pub(super) namespace: String,
    pub(super) api_version: String,
    pub(super) silent: bool,
    pub(super) ignore: Noise,
}

impl PartialEq for Watched {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

/// A source and its position.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Source {
    pub(super) watched: Arc<Watched>,
    pub(super) checkpoint: Checkpoint,
    /// Last time at which nothing of it was missing, microseconds since 1970; 0 for never.
    pub(super) good_at: i64,
    /// Earliest time at which what comes next happened, microseconds since 1970; none where it has happened just now.
    pub(super) behind: Option<i64>,
    /// Earliest and latest time of versions, microseconds since 1970.
    pub(super) dates: Arc<BTreeMap<u64, (i64, i64)>>,
    /// Checkpoint and `good_at` are not in the database yet.
    pub(super) moved: bool,
    /// The position that was lost: nothing up to it is missing.
    pub(super) last_good: Option<ResourceVersion>,
    /// Reason why the position is lost: nothing counts until a list has declared it.
    pub(super) lost: Option<Why>,
    /// Version up to which the last list or audit found nothing missing, and its start. Changes since then may be missing if
    /// something contradicts the journal.
    pub(super) verified: Option<(ResourceVersion, i64)>,
    /// Its watch brought what cannot be, or not alone. It hears of it once that is on disk.
    pub(super) inconsistent: bool,
}

impl Deref for Source {
    type Target = Watched;

    fn deref(&self) -> &Watched {
        &self.watched
    }
}

/// Rules of redaction in force.
#[derive(Clone)]
pub(super) struct Rules {
    pub(super) redactor: Arc<Redactor>,
    /// The head when they came into force: what is older was redacted by others.
    pub(super) since: u64,
}

impl std::fmt::Debug for Rules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rules").field("since", &self.since).finish_non_exhaustive()
    }
}

impl PartialEq for Rules {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.redactor, &other.redactor) && self.since == other.since
    }
}

/// State of the writer between two transactions: the durable state, and bookmarks for the next transaction.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Committed {
    pub(super) epoch: String,
    pub(super) cluster: Cluster,
    pub(super) head: u64,
    /// The first seq of the log: what is below is truncated.
    pub(super) log_start: u64,
    pub(super) sources: BTreeMap<i64, Source>,
    /// Long operations that are written in slices.
    pub(super) jobs: VecDeque<Job>,
    /// Lists in progress, by source.
    pub(super) staged: BTreeMap<i64, Staged>,
    pub(super) rules: Option<Rules>,
    /// The rules of redaction have changed since the start: what was staged may have been redacted by others.
    pub(super) redacted_anew: bool,
    /// The first source, or what it needs, has come.
    pub(super) started: bool,
    /// First seq of the tree that grows; none without evidence.
    pub(super) tree: Option<u64>,
    /// There may be leaves of trees that can be removed.
    pub(super) leaves_leave: bool,
}

impl Committed {
    pub(super) const fn new(epoch: String, cluster: Cluster, (log_start, head): (u64, u64), tree: Option<u64>) -> Self {
        Self {
            epoch,
            cluster,
            head,
            log_start,
            sources: BTreeMap::new(),
            jobs: VecDeque::new(),
            staged: BTreeMap::new(),
            rules: None,
            redacted_anew: false,
            started: false,
            tree,
            leaves_leave: true,
        }
    }

    /// Takes over what a transaction has brought. Gives what others are to hear of it.
    pub(super) fn apply(&mut self, changes: Changes) -> Notifications {
        let Changes {
            head,
            log_start,
            epoch,
            cluster,
            sources,
            jobs,
            staged,
            stepped,
            rules,
            redacted_anew,
            started,
            tree,
            leaves_leave,
            digests: _,
            notifications,
        } = changes;
        (self.head, self.log_start, self.tree) = (head, log_start, tree);
        (self.redacted_anew, self.started) = (redacted_anew, started);
        self.leaves_leave = leaves_leave;
        self.epoch = epoch.unwrap_or_else(|| std::mem::take(&mut self.epoch));
        self.cluster = cluster.unwrap_or_else(|| std::mem::take(&mut self.cluster));
        self.rules = rules.or_else(|| self.rules.take());
        self.sources.extend(sources);
        self.staged.extend(staged);
        self.staged.retain(|_, staged| *staged != Staged::default());
        if let Some(next) = stepped
            && let Some(mut job) = self.jobs.pop_front()
        {
            match next {
                // The next one has its turn.
                Some(work) => {
                    job.work = work;
                    self.jobs.push_back(job);
                }
                // Its source was read for this alone, unless it was registered meanwhile.
                None if self.sources.get(&job.source).is_some_and(|source| !source.registered) => {
                    self.sources.remove(&job.source);
                }
                None => {}
            }
        }
        self.jobs.extend(jobs);
        notifications
    }

    /// Bytes of the database that lists in progress take.
    pub(super) fn staged_bytes(&self) -> u64 {
        self.staged.values().map(|staged| staged.bytes).sum()
    }

    /// Moves an operation that removes unneeded rows to the front. Reports whether there is one. It waits for no source: without its
    /// room none could begin.
    pub(super) fn clear_first(&mut self) -> bool {
        let place = self.jobs.iter().position(|job| job.work == Work::Begin);
        if let Some(place) = place {
            self.jobs.rotate_left(place);
        }
        place.is_some()
    }

    /// Reports whether the next operation may continue. Those of the previous daemon wait until the sinks have looked at the
    /// journal and the redaction rules are known.
    pub(super) fn may_step(&self) -> bool {
        self.jobs.front().is_some_and(|job| self.started || !job.recovered)
    }
}

/// An answer that waits for the commit.
type Answer = Box<dyn FnOnce() + Send>;

/// Notifications about a transaction once it is durable.
#[derive(Default)]
pub(super) struct Notifications {
    /// Number of changes that it has taken, by source.
    pub(super) taken: BTreeMap<i64, usize>,
    /// Sources whose watch was found inconsistent, or is no more.
    pub(super) inconsistent: Vec<(i64, bool)>,
    /// Sources whose list was given up for want of room.
    pub(super) given_up: Vec<i64>,
    pub(super) answers: Vec<Answer>,
}

/// Effects of a transaction. A rollback drops them.
#[derive(Default)]
pub(super) struct Changes {
    pub(super) head: u64,
    pub(super) log_start: u64,
    epoch: Option<String>,
    cluster: Option<Cluster>,
    /// The sources that it moves or registers, as they are after it.
    sources: BTreeMap<i64, Source>,
    /// Operations that it begins.
    jobs: Vec<Job>,
    /// Lists in progress that it moves, as they are after it.
    pub(super) staged: BTreeMap<i64, Staged>,
    /// Remaining work of the first operation, if a slice of it was done; none if that was the last.
    stepped: Option<Option<Work>>,
    pub(super) rules: Option<Rules>,
    pub(super) redacted_anew: bool,
    pub(super) started: bool,
    /// First seq of the tree that grows.
    pub(super) tree: Option<u64>,
    /// There may be leaves of trees that can be removed.
    pub(super) leaves_leave: bool,
    /// Digests of the newest entries, which are not written yet.
    pub(super) digests: Vec<Hash>,
    notifications: Notifications,
}

impl Changes {
    /// The source of a list hears that it was given up.
    pub(super) fn given_up(&mut self, source: i64) {
        self.notifications.given_up.push(source);
    }
}

/// The database, and what of it is at hand.
pub(super) struct Disk {
    pub(super) conn: Connection,
    codec: Codec,
    /// Entries that were written last, for the sinks that keep up.
    pub(super) recent: Recent,
    /// Entries that the next ones of their objects will be differences of.
    bases: Recent,
    /// The newest entries of objects, which the next ones are compared with.
    packed: Recent<Packed>,
    /// Changes only when another connection writes; none before the first transaction.
    data_version: Option<i64>,
    around: Around,
    /// Its part of the memory of the process.
    _opened: Opened,
}

/// Transaction boundary of the writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Around {
    /// Nothing: it is one of the database.
    Nothing,
    /// One of the database, which is not begun: it ends when the shared log has taken what this one brings.
    Begins,
    /// The same, and it is begun.
    Begun,
}

impl Disk {
    pub(super) fn new(conn: Connection) -> Self {
        Self {
            conn,
            codec: Codec::default(),
            recent: Recent::with_budget(RECENT),
            bases: Recent::with_budget(BASES),
            packed: Recent::with_budget(PACKED),
            data_version: None,
            around: Around::Nothing,
            _opened: Opened::new(),
        }
    }

    /// From now on transactions end with what is around them.
    pub(super) const fn surround(&mut self) {
        self.around = Around::Begins;
    }

    /// Reports whether transactions have ended that are not durable yet.
    pub(super) fn is_begun(&self) -> bool {
        self.around == Around::Begun
    }

    /// Ends what is around the transactions.
    pub(super) fn end(&mut self, commit: bool) -> Result {
        self.around = Around::Begins;
        if commit {
            return self.conn.execute_batch("COMMIT").map_err(sql("commit"));
        }
        self.forget();
        // SQLite may have done it already, and then says so.
        drop(self.conn.execute_batch("ROLLBACK"));
        Ok(())
    }

    /// Drops the caches, which may be of another journal now.
    pub(super) fn forget(&self) {
        self.recent.clear();
        self.bases.clear();
        self.packed.clear();
    }

    pub(super) const fn codec(&mut self) -> &mut Codec {
        &mut self.codec
    }

    pub(super) fn at_hand(&self) -> AtHand {
        AtHand { recent: self.recent.clone(), bases: self.bases.clone() }
    }

    /// A transaction, which the database hears of when something is written in it.
    pub(super) fn transaction<'w>(&'w mut self, committed: &'w Committed, quota: &'w Quota) -> Transaction<'w> {
        let Self { conn, codec, recent, bases, packed, data_version, around, _opened: _ } = self;
        let Committed { head, log_start, redacted_anew, started, tree, leaves_leave, .. } = *committed;
        let changes = Changes { head, log_start, redacted_anew, started, tree, leaves_leave, ..Changes::default() };
        Transaction {
            conn,
            codec,
            recent,
            bases,
            packed,
            data_version,
            around,
            committed,
            quota,
            begun: false,
            at: 0,
            suppressed: BTreeMap::new(),
            changes,
        }
    }
}

/// Open transaction in which commands are executed. Dropped before the commit, it has not happened.
pub(super) struct Transaction<'w> {
    pub(super) conn: &'w Connection,
    pub(super) codec: &'w mut Codec,
    pub(super) recent: &'w Recent,
    pub(super) bases: &'w Recent,
    pub(super) packed: &'w Recent<Packed>,
    data_version: &'w mut Option<i64>,
    around: &'w mut Around,
    pub(super) committed: &'w Committed,
    pub(super) quota: &'w Quota,
    /// The database has begun it.
    begun: bool,
    /// Time at which the current command was queued.
    pub(super) at: i64,
    /// Changes that it has suppressed, by source, as far as they are not counted yet.
    suppressed: BTreeMap<i64, u64>,
    pub(super) changes: Changes,
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        if self.begun {
            let undo = match self.around {
                Around::Nothing => "ROLLBACK",
                Around::Begins | Around::Begun => "ROLLBACK TO command; RELEASE command",
            };
            // SQLite may have done it already, and then says so.
            drop(self.conn.execute_batch(undo));
            self.recent.clear();
            self.bases.clear();
            self.packed.clear();
        }
    }
}

impl Transaction<'_> {
    pub(super) fn begin(&mut self) -> Result {
        if !self.begun {
            let begin = match self.around {
                Around::Nothing => "BEGIN IMMEDIATE",
                Around::Begins => "BEGIN IMMEDIATE; SAVEPOINT command",
                Around::Begun => "SAVEPOINT command",
            };
            self.conn.execute_batch(begin).map_err(sql("begin to write"))?;
            if *self.around == Around::Begins {
                *self.around = Around::Begun;
            }
            self.begun = true;
            self.expect_nobody_else()?;
        }
        Ok(())
    }

    /// Checks that no other process has written, which would invalidate the head and the sources.
    fn expect_nobody_else(&mut self) -> Result {
        let now = data_version(self.conn)?;
        if *self.data_version.get_or_insert(now) != now {
            return Err(JournalError::Corrupt(
                "another program has written to the journal while decklog ran; see that it does not again, and run `decklog verify`"
                    .to_owned(),
            ));
        }
        Ok(())
    }

    /// Makes everything since `begin` durable together with the checkpoints that it brings.
    /// Invariant 1: a checkpoint never runs ahead of the journal, because both are in this transaction.
    pub(super) fn commit(mut self) -> Result<Changes> {
        if self.begun {
            self.write_checkpoints()?;
            self.count_suppressed()?;
            self.write_digests()?;
            if self.changes.head > self.committed.head {
                // Beside the entries, so that no seq is given out twice after everything was truncated.
                self.execute(
                    "keep the head",
                    "INSERT OR REPLACE INTO meta VALUES ('head', ?)",
                    params![self.changes.head.to_string()],
                )?;
            }
            let end = match self.around {
                Around::Nothing => "COMMIT",
                Around::Begins | Around::Begun => "RELEASE command",
            };
            self.conn.execute_batch(end).map_err(sql("commit"))?;
            self.begun = false;
        }
        Ok(std::mem::take(&mut self.changes))
    }

    /// Reports whether its effects are replicated to the shared log.
    pub(super) fn is_shared(&self) -> bool {
        *self.around != Around::Nothing
    }

    /// Writes the checkpoints of the sources.
    pub(super) fn write_checkpoints(&mut self) -> Result {
        // Bookmarks moved these between two transactions.
        for (id, source) in self.committed.sources.iter().filter(|(_, source)| source.moved) {
            self.changes.sources.entry(*id).or_insert_with(|| source.clone());
        }
        for source in self.changes.sources.values_mut().filter(|source| source.moved) {
            let mut update = self
                .conn
                .prepare_cached(
                    "UPDATE source SET resume = ?1, applied = ?2, good_at = ?3,
                         good_since = coalesce(good_since, nullif(?3, 0))
                     WHERE id = ?4",
                )
                .map_err(sql("move a checkpoint"))?;
            update
                .execute(params![
                    source.checkpoint.resume.as_ref().map(ResourceVersion::as_str),
                    source.checkpoint.applied.as_ref().map(ResourceVersion::as_str),
                    source.good_at,
                    source.id
                ])
                .map_err(sql("move a checkpoint"))?;
            source.moved = false;
        }
        Ok(())
    }

    /// A change was suppressed; counted with the commit.
    pub(super) fn suppressed(&mut self, source: i64) {
        *self.suppressed.entry(source).or_default() += 1;
    }

    /// Adds the number of suppressed changes since the last call.
    pub(super) fn count_suppressed(&mut self) -> Result {
        for (source, count) in std::mem::take(&mut self.suppressed) {
            let what = "count what is suppressed";
            self.execute(what, "UPDATE source SET suppressed = suppressed + ? WHERE id = ?", params![count, source])?;
        }
        Ok(())
    }

    pub(super) fn execute(&self, what: &'static str, text: &str, values: impl rusqlite::Params) -> Result<usize> {
        self.conn.prepare_cached(text).and_then(|mut statement| statement.execute(values)).map_err(sql(what))
    }

    pub(super) fn epoch(&self) -> &str {
        self.changes.epoch.as_deref().unwrap_or(&self.committed.epoch)
    }

    pub(super) fn set_epoch(&mut self, epoch: String) {
        self.changes.epoch = Some(epoch);
    }

    pub(super) fn cluster(&self) -> &Cluster {
        self.changes.cluster.as_ref().unwrap_or(&self.committed.cluster)
    }

    pub(super) fn set_cluster(&mut self, cluster: Cluster) {
        self.changes.cluster = Some(cluster);
    }

    pub(super) fn rules(&self) -> Option<&Rules> {
        self.changes.rules.as_ref().or(self.committed.rules.as_ref())
    }

    /// A source that is known, as it is by now.
    pub(super) fn find_source(&self, id: i64) -> Option<&Source> {
        self.changes.sources.get(&id).or_else(|| self.committed.sources.get(&id))
    }

    pub(super) fn source(&self, id: i64) -> Result<&Source> {
        self.find_source(id)
            .ok_or_else(|| JournalError::Corrupt(format!("source {id} is not registered; this is a bug")))
    }

    /// A source that is about to be moved.
    pub(super) fn touch(&mut self, id: i64) -> Option<&mut Source> {
        match self.changes.sources.entry(id) {
            Entry::Occupied(source) => Some(source.into_mut()),
            Entry::Vacant(place) => Some(place.insert(self.committed.sources.get(&id)?.clone())),
        }
    }

    /// A source in the place of the one with its id, or a new one.
    pub(super) fn put_source(&mut self, source: Source) {
        self.changes.sources.insert(source.id, source);
    }

    /// A source's watch was found inconsistent, or that is over.
    pub(super) fn set_inconsistent(&mut self, id: i64, inconsistent: bool) {
        if let Some(source) = self.touch(id) {
            source.inconsistent = inconsistent;
        }
        self.changes.notifications.inconsistent.push((id, inconsistent));
    }

    /// Reports whether bookmarks have moved sources since the last transaction, or in this one.
    pub(super) fn has_moved(&self) -> bool {
        self.changes.sources.values().chain(self.committed.sources.values()).any(|source| source.moved)
    }

    /// Returns the long operations of earlier transactions and of this one.
    pub(super) fn jobs(&self) -> impl Iterator<Item = &Job> {
        self.committed.jobs.iter().chain(&self.changes.jobs)
    }

    pub(super) fn begin_job(&mut self, job: Job) {
        self.changes.jobs.push(job);
    }

    /// The first job is so far.
    pub(super) fn step_job(&mut self, next: Option<Work>) {
        self.changes.stepped = Some(next);
    }

    /// Changes of a source are on their way to the disk.
    pub(super) fn take(&mut self, source: i64, changes: usize) {
        *self.changes.notifications.taken.entry(source).or_default() += changes;
    }

    /// Answers after the commit.
    pub(super) fn later<T: Send + 'static>(&mut self, reply: &Reply<T>, value: T) {
        let reply = reply.clone();
        self.changes.notifications.answers.push(Box::new(move || reply.send(value)));
    }
}

fn data_version(conn: &Connection) -> Result<i64> {
    conn.prepare_cached("PRAGMA data_version")
        .and_then(|mut select| select.query_row([], |row| row.get(0)))
        .map_err(sql("look for other writers"))
}
