//! The journal: one SQLite database that holds the log, the objects' last state and every position.
//!
//! One thread writes; everything else reads through read-only connections ([`Reader`]). Three handles send requests to the
//! writer. A [`SourceJournal`] does what one source may do: append, list, desync. A [`SinkJournal`] does what one sink may do:
//! acknowledge, keep dead letters. The [`Journal`] creates both and does the rest. Their methods return [`JournalError`]. The
//! writer's queue is bounded in bytes, so that a slow disk slows the reading of the cluster and never fills
//! memory. What a call hands over becomes visible (head, sinks, tails) only once the transaction that holds it is on
//! disk, and one transaction holds entries, the objects' new state and the checkpoint that they bring.
//!
//! The journal decides whether a watch line is new, changed, replayed or another incarnation of the object: only the stored
//! state, read in the same transaction, can tell. `watch` decides what the source does next.
//!
//! It may use `core`. Begin with [`Journal::open`] and [`Reader`]; `writer` is the one thread (its page has its parts), and `schema` opens the database and runs `migrations/`.
//!
//! # Examples
//!
//! ```
//! use decklog::journal::{Journal, Reader};
//!
//! let dir = tempfile::tempdir()?;
//! let (journal, writer) = Journal::open(dir.path())?;
//! assert_eq!(Reader::open(dir.path())?.head()?.0, 0, "it has no entries yet");
//! drop(journal);
//! writer.join().unwrap();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod audit_log;
mod budget;
mod codec;
mod error;
mod mark;
pub mod outline;
mod reader;
mod recent;
mod requests;
mod restore;
mod retention;
mod room;
mod schema;
mod settings;
mod settled;
mod shared;
mod sink;
mod source;
mod state;
#[cfg(test)]
pub(crate) mod tests;
mod tree;
mod writer;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use futures::future::BoxFuture;
use tokio::sync::{mpsc, oneshot};

use audit_log::HOUR;
pub use audit_log::{
    Attribution, AuditBatch, AuditCounts, AuditLogRow, AuditedObject, OTHER_SENDERS, REQUESTS_MAX, Unwritten,
    UnwrittenKind, UnwrittenRow,
};
pub use budget::Budget;
pub(crate) use budget::{BudgetPermit, Share};
pub use codec::Codec;
pub use error::JournalError;
pub use reader::{
    DeadLetter, EntryFilter, EntryQuery, KnownObject, Link, Lost, Name, ObjectRow, Page, REQUEST_COUNTERS_INTERVAL,
    Reader, Requests, SinkRow, SourceRow, Step, StoredEntry, StoredRow, Verified,
};
pub use requests::RequestCounts;
pub use restore::{RestoreError, restore};
pub use retention::{Bounds, Pause, PauseReason, Retained};
pub use schema::READ;
pub use settings::{OnFull, Settings};
pub use settled::Settled;
pub use shared::{Apart, Role, Shared, Sharing};
pub use sink::{CursorMove, MESSAGES, Message, Progress, Relabeling, SinkJournal, SinkStart};
pub use source::{Audit, Found, Inconsistency, Missed, SourceId, SourceJournal, SourceMemory, WatchChange};
pub use state::{SinkState, SourceState};
use tree::leaf_of;
pub use tree::{BLOCK_LEN, SignedCheckpoint, TreeRow, block_first};

use crate::core::change::redact::Redactor;
use crate::core::model::{Cluster, Resource, ResourceVersion, Seq, SourceSpec};
use crate::core::runtime::{self, watch};
use error::Result;
use recent::AtHand;
use writer::{Command, OfSink, OfSource, Queue, Queued, Reply, Writer};
pub(crate) use writer::{LATE, UNNOTICED_MAX, is_epoch};

/// Number of commands that may wait for the writer.
const QUEUE_LEN: usize = 1024;

/// A handle to the writer thread; cheap to clone.
#[derive(Clone, Debug)]
pub struct Journal {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    dir: PathBuf,
    place: schema::Place,
    epoch: Arc<RwLock<String>>,
    /// Lane of the sources: it waits while the journal is full.
    sources: mpsc::Sender<Queued>,
    /// Lane of the sinks, which continue.
    control: mpsc::Sender<Queued>,
    budget: Budget,
    head: watch::Receiver<Seq>,
    paused: watch::Receiver<Option<Pause>>,
    failure: Arc<OnceLock<String>>,
    turns: Arc<AtomicU64>,
    waiting: Arc<Waiting>,
    at_hand: AtHand,
    inconsistent: watch::Receiver<BTreeSet<SourceId>>,
    given_up: watch::Receiver<BTreeMap<SourceId, u64>>,
    shared: watch::Receiver<Shared>,
    step_down: Arc<watch::Sender<bool>>,
}

/// Number of changes of each source that are queued and not durable.
#[derive(Debug, Default)]
struct Waiting(Mutex<HashMap<SourceId, u64>>);

impl Waiting {
    fn add(&self, source: SourceId, changes: usize) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(source).or_default() += changes as u64;
    }

    fn subtract(&self, source: SourceId, changes: usize) {
        if let Some(count) = self.0.lock().unwrap_or_else(PoisonError::into_inner).get_mut(&source) {
            *count = count.saturating_sub(changes as u64);
        }
    }
}

/// Changes on their way into the queue; whoever gives up on the way takes them out of the count again.
struct Counted<'a> {
    waiting: &'a Waiting,
    source: SourceId,
    changes: usize,
}

impl<'a> Counted<'a> {
    fn new(waiting: &'a Waiting, source: SourceId, changes: usize) -> Self {
        waiting.add(source, changes);
        Self { waiting, source, changes }
    }

    /// The writer counts them out from here.
    const fn leave_to_the_writer(&mut self) {
        self.changes = 0;
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.waiting.subtract(self.source, self.changes);
    }
}

/// Amount that waits for the disk, for holders that may not keep the journal open.
#[derive(Clone, Debug)]
pub struct Backlog(Arc<Waiting>, Budget);

impl Backlog {
    /// Returns the number of changes of a source that are queued and not durable.
    #[must_use]
    pub fn of(&self, source: SourceId) -> u64 {
        let waiting = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.get(&source).copied().unwrap_or(0)
    }

    /// Returns the number of bytes that are read and not durable, over all sources.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.1.held()
    }
}

/// Asks a writer that leads to wait for no engine any more.
#[derive(Clone, Debug)]
pub struct StepDown(Arc<watch::Sender<bool>>);

impl StepDown {
    /// Asks it. The writer ends with [`JournalError::Superseded`] where it has to give something up.
    pub fn ask(&self) {
        self.0.send_replace(true);
    }
}

/// The writer at work.
type Writing = BoxFuture<'static, Result>;

/// The running writer thread, to be joined when the daemon stops.
#[derive(Debug)]
pub struct WriterThread {
    thread: std::thread::JoinHandle<Result>,
    ended: oneshot::Receiver<()>,
}

impl WriterThread {
    /// Completes when the thread ends, which unasked is a failure.
    pub async fn ended(&mut self) {
        // An error means that the sender is gone, which is the same news.
        let _news = (&mut self.ended).await;
    }

    /// Waits for the end and says how it went. The thread ends when every [`Journal`] handle is dropped.
    ///
    /// # Errors
    /// What made the writer fail.
    pub fn join(self) -> Result {
        self.thread.join().unwrap_or_else(|_| Err(JournalError::Stopped("it panicked; this is a bug".to_owned())))
    }
}

#[expect(clippy::missing_errors_doc, reason = "most fail in one way, which `JournalError` names")]
impl Journal {
    /// Opens the journal in `dir` (made when missing) and starts the writer, which first finishes lists that a crash
    /// interrupted.
    ///
    /// # Errors
    /// Where the directory is held by another process, cannot be used, or holds what this build cannot read.
    pub fn open(dir: &Path) -> Result<(Self, WriterThread)> {
        Self::begin(dir, None)
    }

    /// Opens as [`Journal::open`] does a journal that is shared: it is a standby until [`Journal::lead`].
    ///
    /// # Errors
    /// As [`Journal::open`].
    pub fn open_shared(dir: &Path, sharing: Sharing) -> Result<(Self, WriterThread)> {
        Self::begin(dir, Some(sharing))
    }

    fn begin(dir: &Path, sharing: Option<Sharing>) -> Result<(Self, WriterThread)> {
        let (journal, writing) = Self::assemble(dir, |_| Ok(()), sharing)?;
        let (ended_sender, ended) = oneshot::channel::<()>();
        // Its lines in the log are of the cluster of whoever opens it.
        let span = tracing::Span::current();
        let thread = std::thread::Builder::new()
            .name("journal".to_owned())
            .spawn(move || {
                let _ended = ended_sender;
                let _cluster = span.enter();
                // Made here, because whoever opens a journal may be in a runtime, where none can be dropped.
                let clock = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|source| {
                    JournalError::Io { what: "cannot start the journal's clock".to_owned(), source }
                })?;
                clock.block_on(writing)
            })
            .map_err(|source| JournalError::Io { what: "cannot start the journal's thread".to_owned(), source })?;
        Ok((journal, WriterThread { thread, ended }))
    }

    /// For simulations: without a thread. The writer is a future that ends when every handle is dropped, or where
    /// writing fails; whoever drops it before that has crashed. `prepare` gets the connection before it is used.
    ///
    /// # Errors
    /// As [`Journal::open`].
    #[doc(hidden)]
    pub fn inline(
        dir: &Path,
        prepare: impl FnOnce(&mut rusqlite::Connection) -> rusqlite::Result<()>,
    ) -> Result<(Self, Writing)> {
        Self::assemble(dir, prepare, None)
    }

    /// Opens as [`Journal::inline`] does a journal that is shared.
    ///
    /// # Errors
    /// As [`Journal::open`].
    #[doc(hidden)]
    pub fn inline_shared(
        dir: &Path,
        prepare: impl FnOnce(&mut rusqlite::Connection) -> rusqlite::Result<()>,
        sharing: Sharing,
    ) -> Result<(Self, Writing)> {
        Self::assemble(dir, prepare, Some(sharing))
    }

    /// A handle, and what has to run for it.
    fn assemble(
        dir: &Path,
        prepare: impl FnOnce(&mut rusqlite::Connection) -> rusqlite::Result<()>,
        sharing: Option<Sharing>,
    ) -> Result<(Self, Writing)> {
        let lock = schema::lock(dir)?;
        let mut conn = schema::open_writer(dir)?;
        prepare(&mut conn).map_err(|source| JournalError::Sqlite { what: "cannot prepare".to_owned(), source })?;
        let place = schema::Place::of(dir)?;
        let (sources, source_receiver) = mpsc::channel(QUEUE_LEN);
        let (control, control_receiver) = mpsc::channel(QUEUE_LEN);
        let queue = Queue::new(control_receiver, source_receiver);
        let (head_sender, head) = watch::channel(Seq(0));
        let (paused_sender, paused) = watch::channel(None);
        let mut writer = Writer::new(conn, dir, head_sender, paused_sender)?;
        let (shared_sender, shared) = watch::channel(Shared::default());
        let (step_down, stepping_down) = watch::channel(false);
        match sharing {
            None => writer.recover()?,
            Some(sharing) => writer.share(sharing, shared_sender, stepping_down)?,
        }
        let (turns, waiting, at_hand) = (writer.turns(), writer.waiting(), writer.at_hand());
        let (inconsistent, given_up) = (writer.inconsistent(), writer.given_up());
        let epoch = writer.epoch();
        let failure = Arc::new(OnceLock::new());
        let writing: Writing = {
            let failure = Arc::clone(&failure);
            Box::pin(async move {
                let _lock = lock;
                let result = writer.run(queue).await;
                if let Err(error) = &result {
                    // Only the first failure counts, and nobody else sets it.
                    failure.get_or_init(|| error.to_string());
                }
                result
            })
        };
        let inner = Inner {
            dir: dir.to_owned(),
            place,
            epoch,
            sources,
            control,
            budget: Budget::default(),
            head,
            paused,
            failure,
            turns,
            waiting,
            at_hand,
            inconsistent,
            given_up,
            shared,
            step_down: Arc::new(step_down),
        };
        Ok((Self { inner: Arc::new(inner) }, writing))
    }

    /// Says which cluster the entries to come are of.
    ///
    /// # Errors
    /// Where the journal belongs to another cluster.
    pub async fn set_cluster(&self, cluster: Cluster) -> Result {
        self.ask(|reply| Command::Cluster(cluster, reply)).await?
    }

    /// Holds the journal to these bounds from now on. Until then it takes everything and truncates nothing, so that
    /// every sink can be registered before.
    pub async fn bound(&self, bounds: Bounds) -> Result {
        self.send(Command::Bounds(bounds), 0).await
    }

    /// Set while nothing is taken from the cluster for want of room: what comes from sources waits.
    #[must_use]
    pub fn paused(&self) -> watch::Receiver<Option<Pause>> {
        self.inner.paused.clone()
    }

    /// Sets the redaction that every entry obeys from here on, also for states that the journal has already: they are redacted
    /// again before they are emitted as `was` or as the last state of a deleted object.
    pub async fn set_redaction(&self, redactor: Arc<Redactor>) -> Result {
        self.send(Command::Redaction(redactor), 0).await
    }

    /// Registers a source: gives its handle, and what is known of it.
    pub async fn source(&self, spec: &SourceSpec) -> Result<(SourceJournal, SourceMemory)> {
        let (id, memory) = self.ask(|reply| Command::Register(Box::new(spec.clone()), reply)).await?;
        Ok((SourceJournal::new(self.clone(), id), memory))
    }

    /// A source is no longer configured: status stops showing it, its state and position stay.
    pub async fn retire_source(&self, source: SourceId) -> Result {
        self.send(Command::Source(source, OfSource::Retire), 0).await
    }

    /// Every source of the configuration is registered: objects that none of them covers any more, though their
    /// resource is still watched, have left the scope (GAP `scope`, DELETED `inferred`).
    pub async fn narrow(&self) -> Result {
        self.ask(Command::Narrow).await
    }

    /// Remembers what discovery last said, for kubectl's spellings in commands that only read.
    pub async fn remember_resources(&self, resources: Vec<Resource>) -> Result {
        self.send(Command::Resources(resources), 0).await
    }

    /// Keeps the outline of a part of the log, all of whose entries are there. A standby keeps none.
    pub async fn outline(&self, part: u64, data: Vec<u8>) -> Result {
        let bytes = data.len();
        self.send(Command::Outline(part, data), bytes).await
    }

    /// Registers a sink under its name: gives its handle, and its cursor, which is the last seq it has for good. `start`
    /// counts only for a name that the journal has never seen.
    pub async fn sink(&self, name: &str, kind: &str, start: SinkStart) -> Result<(SinkJournal, Seq)> {
        let name: Arc<str> = name.into();
        let register = |reply| Command::Sink(Arc::clone(&name), OfSink::Register(kind.to_owned(), start, reply));
        let cursor = self.ask(register).await?;
        Ok((SinkJournal::new(self.clone(), name), cursor))
    }

    /// A sink is no longer configured: status says so, its cursor stays.
    pub async fn retire_sink(&self, name: &str) -> Result {
        self.send(Command::Sink(name.into(), OfSink::Retire), 0).await
    }

    /// Lists entries no longer that were dead-lettered for a sink, because `decklog replay` has delivered them. It takes
    /// the lock and writes itself, so it is for a process without a [`Journal`]. Says whether it has: of a journal that is
    /// shared, a daemon has to write that, into the shared log.
    ///
    /// # Errors
    /// [`JournalError::Locked`] where a daemon holds the state directory.
    pub fn settle(dir: &Path, settled: &Settled) -> Result<bool> {
        let _lock = schema::lock(dir)?;
        let mut conn = schema::open_writer(dir)?;
        writer::settle(&mut conn, settled)
    }

    /// Does the same with what replays have left for the daemon in its state directory.
    pub async fn settle_left(&self) -> Result {
        for (path, settled) in Settled::left(&self.inner.dir) {
            self.ask(|reply| Command::Settle(settled, reply)).await?;
            // It is noted on disk; read again it would change nothing.
            drop(std::fs::remove_file(path));
        }
        Ok(())
    }

    /// Returns when everything handed over before is on disk.
    pub async fn flush(&self) -> Result {
        self.ask(Command::Flush).await
    }

    /// Checks that the files of the journal are still where they were opened.
    ///
    /// # Errors
    /// Where one was deleted or replaced: what is written from then on is lost.
    pub fn check_place(&self) -> Result {
        self.inner.place.check()
    }

    /// Returns when the writer has come to this, without asking it to write anything: a proof of life.
    pub async fn ping(&self) -> Result {
        self.ask(Command::Ping).await
    }

    /// Returns the amount that waits for the disk. It does not keep the journal open.
    #[must_use]
    pub fn backlog(&self) -> Backlog {
        Backlog(Arc::clone(&self.inner.waiting), self.inner.budget.clone())
    }

    /// Counts the writer's turns: it grows with every transaction and every answer, also within a long list.
    #[must_use]
    pub fn turns(&self) -> u64 {
        self.inner.turns.load(Ordering::Relaxed)
    }

    /// The newest seq on disk; a change of it wakes whoever waits.
    #[must_use]
    pub fn head(&self) -> watch::Receiver<Seq> {
        self.inner.head.clone()
    }

    /// The name of this journal, part of a gap's id.
    #[must_use]
    pub fn epoch(&self) -> String {
        self.inner.epoch.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Begins a new epoch: this journal was restored from an older copy, so its next seqs were given out before. Entries
    /// that exist keep theirs. It is later than every epoch of the journal, and than `after`, which an output names; where
    /// the journal's is that already, it stays.
    pub async fn begin_epoch(&self, after: Option<&str>) -> Result<String> {
        let after = after.map(str::to_owned);
        self.ask(|reply| Command::Epoch(after, reply)).await
    }

    /// Returns the state of a journal that is shared.
    #[must_use]
    pub fn shared(&self) -> watch::Receiver<Shared> {
        self.inner.shared.clone()
    }

    /// Reports whether it follows the shared log, and writes nothing of its own.
    #[must_use]
    pub fn is_standby(&self) -> bool {
        self.inner.shared.borrow().role == Role::Standby
    }

    /// Takes over: keeps others from writing the shared log, reads it to its end, and goes on from there with what the watches have
    /// brought. The inner error says why it does not, and it stands by as before.
    pub async fn lead(&self) -> Result<Result<(), String>> {
        self.ask(Command::Lead).await
    }

    /// Returns a handle that makes the writer stop waiting for an engine. It does not keep the journal open.
    #[must_use]
    pub fn step_down(&self) -> StepDown {
        StepDown(Arc::clone(&self.inner.step_down))
    }

    /// Returns when a source of a standby may resume from another position than this one, or does not stand by any more.
    pub(crate) async fn other_position(&self, spec: &SourceSpec, had: Option<ResourceVersion>) -> Result {
        self.ask(|reply| Command::Await(Box::new(spec.clone()), had, reply)).await
    }

    /// Reports whether the state directory is a copy, or its mark was replaced: the original journal may have recorded other
    /// entries from here on. A journal without a mark is no copy.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub fn is_copy(&self) -> Result<bool> {
        let known = self.reader()?.mark()?;
        let is_known = || mark::identity(&self.inner.dir).is_some_and(|found| known.contains(&found));
        let is_behind = || mark::noted(&self.inner.dir).is_some_and(|noted| noted > *self.head().borrow());
        Ok(!known.is_empty() && (!is_known() || is_behind()))
    }

    /// Leaves beside the journal how far it is, for [`Journal::is_copy`].
    ///
    /// # Errors
    /// Where the file system refuses. Nothing but that depends on it.
    pub fn note_head(&self) -> std::io::Result<()> {
        mark::note(&self.inner.dir, *self.head().borrow())
    }

    /// Makes another mark for the state directory: a copy from before is known by it. Whatever ends this, the journal
    /// knows the mark that is there.
    ///
    /// # Errors
    /// Where the file system or the database refuse. The mark that there was stays good.
    pub async fn renew_mark(&self) -> Result {
        let dir = self.inner.dir.clone();
        let io =
            |source| JournalError::Io { what: format!("cannot mark the state directory {}", dir.display()), source };
        let fresh = mark::make(&dir).map_err(io)?;
        let new = fresh.identity.clone();
        let both = mark::identity(&dir).into_iter().chain([new.clone()]).collect();
        self.ask(|reply| Command::Mark(both, reply)).await?;
        fresh.place(&dir).map_err(io)?;
        self.ask(|reply| Command::Mark(vec![new], reply)).await
    }

    /// A read-only connection.
    ///
    /// # Errors
    /// Where the database cannot be opened.
    pub fn reader(&self) -> Result<Reader> {
        Reader::beside(&self.inner.dir, self.inner.at_hand.clone(), self.head())
    }

    /// Returns the budget of what is read and not durable, in bytes.
    #[must_use]
    pub fn budget(&self) -> &Budget {
        &self.inner.budget
    }

    /// Sends a command that waits in the queue with `bytes` bytes.
    async fn send(&self, command: Command, bytes: usize) -> Result {
        self.send_held(command, bytes, None).await
    }

    /// Sends as `send` does, if a part of the budget is held for the command already.
    async fn send_held(&self, command: Command, bytes: usize, held: Option<BudgetPermit>) -> Result {
        let inner = &self.inner;
        let at = runtime::now().as_microsecond();
        if command.is_control() {
            // Hardly any bytes but what the sinks hold anyway, and no more of them than there are sinks.
            let queued = Queued { command, at, bytes: 0, room: None };
            return inner.control.send(queued).await.map_err(|_| self.stopped());
        }
        let room = Some(inner.budget.queue(bytes, held).await);
        inner.sources.send(Queued { command, at, bytes, room }).await.map_err(|_| self.stopped())
    }

    async fn ask<T>(&self, command: impl FnOnce(Reply<T>) -> Command) -> Result<T> {
        let (reply, answer) = Reply::new();
        self.send(command(reply), 0).await?;
        answer.await.map_err(|_| self.stopped())
    }

    fn stopped(&self) -> JournalError {
        let reason = self.inner.failure.get().map_or("the daemon is stopping", String::as_str);
        JournalError::Stopped(reason.to_owned())
    }
}
