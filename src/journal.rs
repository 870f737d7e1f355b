//! The journal: one SQLite database that holds the log, the objects' last state and every position.
//!
//! One thread writes; everything else reads through read-only connections ([`Reader`]). A [`Journal`] is a handle to
//! the writer. Its queue is bounded in bytes, so that a slow disk slows the reading of the cluster and never fills
//! memory. What a call hands over becomes visible (head, sinks, tails) only once the transaction that holds it is on
//! disk, and one transaction holds entries, the objects' new state and the checkpoint that they bring.
//!
//! Deciding what a watch line means (new, changed, replayed, another incarnation) happens here, because only the
//! state in the same transaction can tell.

mod budget;
mod codec;
mod mark;
mod reader;
mod recent;
mod retention;
mod schema;
mod settings;
mod settled;
#[cfg(test)]
mod tests;
mod writer;

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use bytes::Bytes;
use futures::future::BoxFuture;
use jiff::Timestamp;
use tokio::sync::{mpsc, oneshot};

pub use budget::Budget;
pub(crate) use budget::{Held, Share};
pub use codec::Codec;
pub use reader::{
    Choice, KnownObject, Lost, ObjectRow, Page, Position, Reader, Requests, SetAside, SinkRow, SourceRow, Step,
    StoredEntry, Verified,
};
pub use retention::{Bounds, Pause, PauseReason, Retained};
pub use settings::{OnFull, Settings};
pub use settled::Settled;

use crate::ambient::{self, watch};
use crate::change::redact::Redactor;
use crate::model::{Cluster, Observed, Resource, ResourceVersion, Seq, SourceSpec, Verb, Why};
use recent::Recent;
pub(crate) use writer::is_epoch;
use writer::{Command, Queue, Queued, Reply, Writer};

/// A source as the journal knows it, for the life of the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SourceId(pub i64);

/// What the journal remembers of a source when the daemon starts.
#[derive(Clone, Debug)]
pub struct SourceMemory {
    /// Its id.
    pub id: SourceId,
    /// Where to resume: everything up to here is in the journal. `None`: never listed, or its scope changed since.
    pub resume: Option<ResourceVersion>,
    /// The highest version that is in the journal (never below `resume`); a list older than this went back in time.
    pub applied: Option<ResourceVersion>,
    /// The gap that the next list must declare: none on a first list, `Scope` after a change of scope.
    pub why: Option<Why>,
}

/// One line of a watch.
#[derive(Clone, Debug)]
pub struct WatchChange {
    /// What the line says happened.
    pub verb: Verb,
    /// The object it carries, redacted.
    pub object: Observed,
}

/// What was found in the API server's own history.
#[derive(Clone, Debug)]
pub enum Found {
    /// An object as it was in its version.
    Version(Observed),
    /// That an object was deleted, under this version. It has no body, and its uid is not looked at.
    Deletion(Observed),
}

/// A comparison of what the journal knows of a source with what the API server has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Audit {
    /// The version at which they were compared.
    pub version: ResourceVersion,
    /// When that was begun.
    pub began: Timestamp,
    /// How many objects differ.
    pub differences: u64,
}

/// What the API server's own request counters have grown by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestCounts {
    /// Since when. `None`: nothing is known of the time before, and counting begins now.
    pub since: Option<Timestamp>,
    /// Until when.
    pub until: Timestamp,
    /// Requests that were granted, by group and plural of the resource that they change and by verb.
    pub requests: Vec<(String, String, &'static str, u64)>,
}

/// What a source is doing, for status and metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceState {
    /// Not started yet.
    Waiting,
    /// A list is in progress; how many objects so far.
    Listing(u64),
    /// What happened since the position was lost is read from the API server's own history.
    Recovering,
    /// A watch is open.
    Watching,
    /// Waiting before the next try; the text says what failed and what to do.
    Degraded(String),
    /// The resource is not served any more.
    Gone,
}

impl SourceState {
    /// The word in status and metrics, and what it adds.
    #[must_use]
    pub fn describe(&self) -> (&'static str, String) {
        match self {
            Self::Waiting => ("waiting", String::new()),
            Self::Listing(objects) => ("listing", format!("{objects} objects so far")),
            Self::Recovering => ("recovering", String::new()),
            Self::Watching => ("watching", String::new()),
            Self::Degraded(text) => ("degraded", text.clone()),
            Self::Gone => ("gone", String::new()),
        }
    }
}

/// How a sink is doing, for status and metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SinkState {
    /// Delivering, or waiting for entries.
    Running,
    /// The last try failed; the text says why.
    Retrying(String),
    /// Waits for an operator; the text says why and what to do.
    Halted(String),
}

impl SinkState {
    /// The word in status and metrics, and what it adds.
    #[must_use]
    pub fn describe(&self) -> (&'static str, &str) {
        match self {
            Self::Running => ("running", ""),
            Self::Retrying(text) => ("retrying", text),
            Self::Halted(text) => ("halted", text),
        }
    }
}

/// Entries that a sink gets under the name of a later epoch, because its output has others under theirs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recast {
    /// Those after this seq …
    pub after: Seq,
    /// … and before this one.
    pub before: Seq,
    /// The epoch that they go under.
    pub epoch: String,
}

impl Recast {
    /// Whether it is about this entry.
    #[must_use]
    pub fn has(&self, seq: Seq) -> bool {
        self.after < seq && seq < self.before
    }
}

/// Where a sink that the journal has never seen begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SinkStart {
    /// At the oldest entry.
    #[default]
    Start,
    /// After the newest entry.
    Now,
    /// At this entry.
    Seq(Seq),
}

/// What can be wrong with a journal. Cloned to every caller when the writer fails.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// Another process holds the state directory.
    #[error("another decklog{} holds the state directory {}; stop it, or set another [state] path", holder(*.pid), .dir.display())]
    Locked {
        /// The directory.
        dir: PathBuf,
        /// The other process, where the lock file tells.
        pid: Option<u32>,
    },
    /// The database has a schema that this build does not know.
    #[error("{} was written by a newer decklog (schema {found}, this one knows {known}); run that version, or give this one a new [state] path", .path.display())]
    Newer {
        /// The database.
        path: PathBuf,
        /// Its schema.
        found: usize,
        /// The newest schema that this build knows.
        known: usize,
    },
    /// There is no journal.
    #[error("there is no journal in {}; start `decklog run`, or name the right directory in [state] path", .0.display())]
    Missing(PathBuf),
    /// The journal is of another cluster.
    #[error(
        "the journal belongs to the cluster {ours} but the API server is the cluster {theirs}; set another [state] path for another cluster"
    )]
    OtherCluster {
        /// uid that the journal has.
        ours: String,
        /// uid that the API server has.
        theirs: String,
    },
    /// The file system refused.
    #[error("{what}: {source}; check its owner, its permissions and the space on the disk")]
    Io {
        /// What was tried.
        what: String,
        /// Why it failed.
        source: std::io::Error,
    },
    /// SQLite refused.
    #[error("{what}: {source}{}", advice(.source))]
    Sqlite {
        /// What was tried.
        what: String,
        /// Why it failed.
        source: rusqlite::Error,
    },
    /// What is stored contradicts itself.
    #[error("{0}")]
    Corrupt(String),
    /// The writer has ended, for this reason.
    #[error("the journal's writer has stopped: {0}")]
    Stopped(String),
}

impl JournalError {
    /// Whether there was no room, on the disk or in the size that the journal may have.
    fn is_full(&self) -> bool {
        match self {
            Self::Sqlite { source, .. } => source.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull),
            Self::Locked { .. }
            | Self::Newer { .. }
            | Self::Missing(_)
            | Self::OtherCluster { .. }
            | Self::Io { .. }
            | Self::Corrupt(_)
            | Self::Stopped(_) => false,
        }
    }
}

fn holder(pid: Option<u32>) -> String {
    pid.map(|pid| format!(" (process {pid})")).unwrap_or_default()
}

fn advice(error: &rusqlite::Error) -> &'static str {
    match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::DiskFull) => {
            "; free some space and start decklog again: nothing that was taken is lost"
        }
        Some(
            rusqlite::ErrorCode::SystemIoFailure | rusqlite::ErrorCode::CannotOpen | rusqlite::ErrorCode::ReadOnly,
        ) => "; check the disk, the owner and the permissions of the state directory",
        Some(rusqlite::ErrorCode::DatabaseCorrupt | rusqlite::ErrorCode::NotADatabase) => {
            "; run `decklog verify`, and restore the state directory or give a new [state] path"
        }
        _ => "",
    }
}

/// How many commands may wait for the writer.
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
    epoch: RwLock<String>,
    /// What comes from the cluster: it waits while the journal is full.
    sources: mpsc::Sender<Queued>,
    /// What comes from the sinks, which go on.
    control: mpsc::Sender<Queued>,
    budget: Budget,
    head: watch::Receiver<Seq>,
    paused: watch::Receiver<Option<Pause>>,
    failure: Arc<OnceLock<String>>,
    turns: Arc<AtomicU64>,
    waiting: Arc<Waiting>,
    recent: Recent,
    contradictions: watch::Receiver<BTreeSet<SourceId>>,
}

/// How many changes of each source are handed over and not on disk yet.
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

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.waiting.subtract(self.source, self.changes);
    }
}

/// How much waits for the disk, for whoever may not hold the journal open.
#[derive(Clone, Debug)]
pub struct Backlog(Arc<Waiting>, Budget);

impl Backlog {
    /// How many changes of a source are handed over and not on disk yet.
    #[must_use]
    pub fn of(&self, source: SourceId) -> u64 {
        let waiting = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.get(&source).copied().unwrap_or(0)
    }

    /// How many bytes are held for what is read and not on disk yet, over all sources.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.1.held()
    }
}

/// The writer at work.
type Writing = BoxFuture<'static, Result<(), JournalError>>;

/// The running writer thread, to be joined when the daemon stops.
#[derive(Debug)]
pub struct WriterThread {
    thread: std::thread::JoinHandle<Result<(), JournalError>>,
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
    pub fn join(self) -> Result<(), JournalError> {
        self.thread.join().unwrap_or_else(|_| Err(JournalError::Stopped("it panicked; this is a bug".to_owned())))
    }
}

impl Journal {
    /// Opens the journal in `dir` (made when missing) and starts the writer, which first finishes lists that a crash
    /// interrupted.
    ///
    /// # Errors
    /// Where the directory is held by another process, cannot be used, or holds what this build cannot read.
    pub fn open(dir: &Path) -> Result<(Self, WriterThread), JournalError> {
        let (journal, writing) = Self::assemble(dir, |_| Ok(()))?;
        let (ended_sender, ended) = oneshot::channel::<()>();
        let thread = std::thread::Builder::new()
            .name("journal".to_owned())
            .spawn(move || {
                let _ended = ended_sender;
                // Made here, because whoever opens a journal may be in a runtime, where none can be dropped.
                let clock = tokio::runtime::Builder::new_current_thread().enable_time().build().map_err(|source| {
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
    ) -> Result<(Self, Writing), JournalError> {
        Self::assemble(dir, prepare)
    }

    /// A handle, and what has to run for it.
    fn assemble(
        dir: &Path,
        prepare: impl FnOnce(&mut rusqlite::Connection) -> rusqlite::Result<()>,
    ) -> Result<(Self, Writing), JournalError> {
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
        writer.recover()?;
        let (turns, waiting, recent) = (writer.turns(), writer.waiting(), writer.recent());
        let contradictions = writer.contradictions();
        let epoch = RwLock::new(writer.epoch().to_owned());
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
            recent,
            contradictions,
        };
        Ok((Self { inner: Arc::new(inner) }, writing))
    }

    /// Says which cluster the entries to come are of.
    ///
    /// # Errors
    /// Where the journal belongs to another cluster.
    pub async fn set_cluster(&self, cluster: Cluster) -> Result<(), JournalError> {
        self.ask(|reply| Command::Cluster(cluster, reply)).await?
    }

    /// Holds the journal to these bounds from now on. Until they are told it takes everything and forgets nothing, so
    /// that every sink can be registered before.
    ///
    /// # Errors
    /// Where the writer has stopped.
    pub async fn bound(&self, bounds: Bounds) -> Result<(), JournalError> {
        self.send(Command::Bounds(bounds), 0).await
    }

    /// Set while nothing is taken from the cluster for want of room: what comes from sources waits.
    #[must_use]
    pub fn paused(&self) -> watch::Receiver<Option<Pause>> {
        self.inner.paused.clone()
    }

    /// What must not be told from here on, also of what the journal has from before: earlier states are redacted again
    /// before they are told as `was` or as the last state of what is gone.
    ///
    /// # Errors
    /// Where the writer has stopped.
    pub async fn set_redaction(&self, redactor: Arc<Redactor>) -> Result<(), JournalError> {
        self.send(Command::Redaction(redactor), 0).await
    }

    /// Registers a source and says what is known of it.
    ///
    /// # Errors
    /// Where the writer has stopped.
    pub async fn source(&self, spec: &SourceSpec) -> Result<SourceMemory, JournalError> {
        self.ask(|reply| Command::Source(Box::new(spec.clone()), reply)).await
    }

    /// A source is no longer configured: status stops showing it, its state and position stay.
    ///
    /// # Errors
    /// Where the writer has stopped.
    pub async fn retire_source(&self, source: SourceId) -> Result<(), JournalError> {
        self.send(Command::Retire(source), 0).await
    }

    /// Every source of the configuration is registered: objects that none of them covers any more, though their
    /// resource is still watched, have left the scope (GAP `scope`, DELETED `inferred`).
    ///
    /// # Errors
    /// Where the writer has stopped.
    pub async fn narrow(&self) -> Result<(), JournalError> {
        self.ask(Command::Narrow).await
    }

    /// Hands over changes of an open watch, in the order they came. Returns when the queue has taken them, which is
    /// before they are on disk.
    ///
    /// # Errors
    /// Where the writer has stopped: the process is about to end.
    pub async fn append(&self, source: SourceId, changes: Vec<WatchChange>) -> Result<(), JournalError> {
        self.append_held(source, changes, &mut self.inner.budget.share()).await
    }

    /// As [`Journal::append`], with what was held of the budget while they were read.
    pub(crate) async fn append_held(
        &self,
        source: SourceId,
        changes: Vec<WatchChange>,
        share: &mut Share<'_>,
    ) -> Result<(), JournalError> {
        let bytes = changes.iter().map(|change| change.object.body.bytes.len()).sum();
        let mut counted = Counted { waiting: &self.inner.waiting, source, changes: changes.len() };
        self.inner.waiting.add(source, changes.len());
        self.send_held(Command::Changes(source, changes), bytes, share.hand_over(bytes)).await?;
        // The writer counts them out from here.
        counted.changes = 0;
        Ok(())
    }

    /// Everything up to `version` has been handed over: moves the position on, durably within 10 s.
    ///
    /// # Errors
    /// Where the writer has stopped.
    pub async fn bookmark(&self, source: SourceId, version: ResourceVersion) -> Result<(), JournalError> {
        self.send(Command::Bookmark(source, version), 0).await
    }

    /// A list begins: drops what an earlier, unfinished one had staged.
    ///
    /// # Errors
    /// Where the writer has stopped.
    pub async fn list_begin(&self, source: SourceId) -> Result<(), JournalError> {
        self.send(Command::ListBegin(source), 0).await
    }

    /// Stages one page of a list in progress; nothing is visible before [`Journal::list_done`]. An object without bytes is
    /// one that is too large to be kept: it exists, and its last known state stays.
    ///
    /// # Errors
    /// Where the writer has stopped.
    pub async fn list_page(&self, source: SourceId, objects: Vec<Observed>) -> Result<(), JournalError> {
        self.list_page_held(source, objects, &mut self.inner.budget.share()).await
    }

    /// As [`Journal::list_page`], with what was held of the budget while it was read.
    pub(crate) async fn list_page_held(
        &self,
        source: SourceId,
        objects: Vec<Observed>,
        share: &mut Share<'_>,
    ) -> Result<(), JournalError> {
        let bytes = objects.iter().map(|object| object.body.bytes.len()).sum();
        self.send_held(Command::ListPage(source, objects), bytes, share.hand_over(bytes)).await
    }

    /// The list is complete at `version`: declares the gap where `why` is given, writes the net difference, moves the
    /// position. Returns when it is on disk.
    ///
    /// # Errors
    /// Where the writer has stopped.
    pub async fn list_done(
        &self,
        source: SourceId,
        version: ResourceVersion,
        why: Option<Why>,
    ) -> Result<(), JournalError> {
        self.ask(|reply| Command::ListDone(source, version, why, reply)).await
    }

    /// Stages what was found of the time after a position was lost; in any order, and not visible before
    /// [`Journal::part_done`]. [`Journal::list_begin`] goes before it, and drops what was staged.
    ///
    /// # Errors
    /// Where the writer has stopped.
    pub async fn found(&self, source: SourceId, found: Vec<Found>) -> Result<(), JournalError> {
        self.found_held(source, found, &mut self.inner.budget.share()).await
    }

    /// As [`Journal::found`], with what was held of the budget while it was read.
    pub(crate) async fn found_held(
        &self,
        source: SourceId,
        found: Vec<Found>,
        share: &mut Share<'_>,
    ) -> Result<(), JournalError> {
        let bytes = found
            .iter()
            .map(|found| match found {
                Found::Version(object) | Found::Deletion(object) => object.body.bytes.len(),
            })
            .sum();
        self.send_held(Command::Found(source, found), bytes, share.hand_over(bytes)).await
    }

    /// Everything that happened up to `version` is staged, since the position was lost or since the part before this:
    /// writes it, in order, with the evidence `recovered`. The position is found again with the last part. Returns when
    /// it is on disk.
    ///
    /// # Errors
    /// Where the writer has stopped.
    pub async fn part_done(&self, source: SourceId, version: ResourceVersion, last: bool) -> Result<(), JournalError> {
        self.ask(|reply| Command::PartDone(source, version, last, reply)).await
    }

    /// The resource is confirmed gone from the API: GAP `scope`, an inferred DELETED for every object known of it, and
    /// no position, so that it is listed as a new one if it comes back.
    ///
    /// # Errors
    /// Where the writer has stopped.
    pub async fn source_gone(&self, source: SourceId) -> Result<(), JournalError> {
        self.ask(|reply| Command::Gone(source, reply)).await
    }

    /// The position of a source is lost: nothing counts until a list is complete, and that list declares `why`, also
    /// where the daemon ends before it.
    ///
    /// # Errors
    /// Where the writer has stopped.
    pub async fn distrust(&self, source: SourceId, why: Why) -> Result<(), JournalError> {
        self.send(Command::Distrust(source, why), 0).await
    }

    /// The sources whose watch contradicts the journal, which means that something of it is missing: each has to be
    /// listed, and is in here until it is.
    #[must_use]
    pub fn contradictions(&self) -> watch::Receiver<BTreeSet<SourceId>> {
        self.inner.contradictions.clone()
    }

    /// An audit of a source is done.
    ///
    /// # Errors
    /// Where the writer has stopped.
    pub async fn audited(&self, source: SourceId, audit: Audit) -> Result<(), JournalError> {
        self.send(Command::Audited(source, audit), 0).await
    }

    /// Says what a source is doing.
    ///
    /// # Errors
    /// Where the writer has stopped.
    pub async fn report_source(&self, source: SourceId, state: SourceState) -> Result<(), JournalError> {
        self.send(Command::ReportSource(source, state), 0).await
    }

    /// Remembers what discovery last said, for kubectl's spellings in commands that only read.
    ///
    /// # Errors
    /// Where the writer has stopped.
    pub async fn remember_resources(&self, resources: Vec<Resource>) -> Result<(), JournalError> {
        self.send(Command::Resources(resources), 0).await
    }

    /// Keeps what the API server's own request counters said, or why they cannot be read.
    ///
    /// # Errors
    /// Where the writer has stopped.
    pub async fn requests(&self, read: Result<RequestCounts, String>) -> Result<(), JournalError> {
        self.send(Command::Requests(read), 0).await
    }

    /// Registers a sink under its name and gives its cursor: the last seq it has for good. `start` counts only for a
    /// name that the journal has never seen.
    ///
    /// # Errors
    /// Where the writer has stopped.
    pub async fn sink(&self, name: &str, kind: &str, start: SinkStart) -> Result<Seq, JournalError> {
        self.ask(|reply| Command::Sink(name.to_owned(), kind.to_owned(), start, reply)).await
    }

    /// A sink is no longer configured: status says so, its cursor stays.
    ///
    /// # Errors
    /// Where the writer has stopped.
    pub async fn retire_sink(&self, name: &str) -> Result<(), JournalError> {
        self.send(Command::RetireSink(name.to_owned()), 0).await
    }

    /// The sink has everything up to `upto` for good. On disk when this returns.
    ///
    /// # Errors
    /// Where the writer has stopped.
    pub async fn acknowledge(&self, sink: &str, upto: Seq) -> Result<(), JournalError> {
        self.advance(sink, upto, upto).await
    }

    /// As [`Journal::acknowledge`], where a filter left out what lies between `written` and `upto`: the last entry
    /// that was really handed over is `written`.
    ///
    /// # Errors
    /// Where the writer has stopped.
    pub async fn advance(&self, sink: &str, upto: Seq, written: Seq) -> Result<(), JournalError> {
        self.ask(|reply| Command::Acknowledge { sink: sink.to_owned(), upto, written, reply }).await
    }

    /// The output itself holds less than the cursor says (it was cut, or put back from a backup): the cursor goes
    /// back to what is there. The only way in which a cursor falls.
    ///
    /// # Errors
    /// Where the writer has stopped.
    pub async fn reset_cursor(&self, sink: &str, to: Seq) -> Result<(), JournalError> {
        self.ask(|reply| Command::ResetCursor(sink.to_owned(), to, reply)).await
    }

    /// Keeps an entry that the sink will never take, for `decklog replay`. `line` is the whole entry, because the log may
    /// have forgotten it since it was read, and what stands for what is forgotten it never had. On disk when this returns.
    ///
    /// # Errors
    /// Where the writer has stopped.
    pub async fn set_aside(&self, sink: &str, seq: Seq, line: Bytes, reason: &str) -> Result<(), JournalError> {
        let (sink, reason) = (sink.to_owned(), reason.to_owned());
        self.ask(|reply| Command::SetAside { sink, seq, line, reason, reply }).await
    }

    /// Lists entries no longer that were set aside for a sink, because `decklog replay` has delivered them. It takes
    /// the lock and writes itself, so it is for a process without a [`Journal`].
    ///
    /// # Errors
    /// [`JournalError::Locked`] where a daemon holds the state directory.
    pub fn settle(dir: &Path, settled: &Settled) -> Result<(), JournalError> {
        let _lock = schema::lock(dir)?;
        let mut conn = schema::open_writer(dir)?;
        writer::settle(&mut conn, settled)
    }

    /// Does the same with what replays have left for the daemon in its state directory.
    ///
    /// # Errors
    /// Where the writer has stopped.
    pub async fn settle_left(&self) -> Result<(), JournalError> {
        for (path, settled) in Settled::left(&self.inner.dir) {
            self.ask(|reply| Command::Settle(settled, reply)).await?;
            // It is noted on disk; read again it would change nothing.
            drop(std::fs::remove_file(path));
        }
        Ok(())
    }

    /// Says how a sink is doing.
    ///
    /// # Errors
    /// Where the writer has stopped.
    pub async fn report_sink(&self, sink: &str, state: SinkState) -> Result<(), JournalError> {
        self.send(Command::ReportSink(sink.to_owned(), state), 0).await
    }

    /// Returns when everything handed over before is on disk.
    ///
    /// # Errors
    /// Where the writer has stopped.
    pub async fn flush(&self) -> Result<(), JournalError> {
        self.ask(Command::Flush).await
    }

    /// Whether the files of the journal are still where they were opened.
    ///
    /// # Errors
    /// Where one was deleted or replaced: what is written from then on is lost.
    pub fn check_place(&self) -> Result<(), JournalError> {
        self.inner.place.check()
    }

    /// Returns when the writer has come to this, without asking it to write anything: a proof of life.
    ///
    /// # Errors
    /// Where the writer has stopped.
    pub async fn ping(&self) -> Result<(), JournalError> {
        self.ask(Command::Ping).await
    }

    /// How much waits for the disk. It does not keep the journal open.
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

    /// Begins a new epoch: this journal was put back from an older copy, so its next seqs were given out before. Entries
    /// that exist keep theirs. It is later than every epoch of the journal, and than `after`, which an output names; where
    /// the journal's is that already, it stays.
    ///
    /// # Errors
    /// Where the writer has stopped.
    pub async fn begin_epoch(&self, after: Option<&str>) -> Result<String, JournalError> {
        let after = after.map(str::to_owned);
        let epoch = self.ask(|reply| Command::Epoch(after, reply)).await?;
        self.inner.epoch.write().unwrap_or_else(PoisonError::into_inner).clone_from(&epoch);
        Ok(epoch)
    }

    /// Whether the state directory was copied to where it is, or something else took the place of its mark: what the
    /// journal tells from here on may have been told otherwise. A journal that has no mark yet is none.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub fn is_copy(&self) -> Result<bool, JournalError> {
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
    pub async fn renew_mark(&self) -> Result<(), JournalError> {
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

    /// From now on a sink gets some entries under another epoch's name.
    ///
    /// # Errors
    /// Where the writer has stopped.
    pub async fn recast(&self, sink: &str, recast: Recast) -> Result<(), JournalError> {
        self.ask(|reply| Command::Recast(sink.to_owned(), recast, reply)).await
    }

    /// A read-only connection.
    ///
    /// # Errors
    /// Where the database cannot be opened.
    pub fn reader(&self) -> Result<Reader, JournalError> {
        Reader::beside(&self.inner.dir, self.inner.recent.clone(), self.head())
    }

    /// What is read and not on disk yet, in bytes.
    #[must_use]
    pub fn budget(&self) -> &Budget {
        &self.inner.budget
    }

    /// Sends a command that waits in the queue with `bytes` bytes.
    async fn send(&self, command: Command, bytes: usize) -> Result<(), JournalError> {
        self.send_held(command, bytes, None).await
    }

    /// As `send`, where a part of the budget is held for it already.
    async fn send_held(&self, command: Command, bytes: usize, held: Option<Held>) -> Result<(), JournalError> {
        let inner = &self.inner;
        let at = ambient::now().as_microsecond();
        if command.is_control() {
            // Hardly any bytes but what the sinks hold anyway, and no more of them than there are sinks.
            let queued = Queued { command, at, bytes: 0, room: None };
            return inner.control.send(queued).await.map_err(|_| self.stopped());
        }
        let room = Some(inner.budget.queue(bytes, held).await);
        inner.sources.send(Queued { command, at, bytes, room }).await.map_err(|_| self.stopped())
    }

    async fn ask<T>(&self, command: impl FnOnce(Reply<T>) -> Command) -> Result<T, JournalError> {
        let (reply, answer) = Reply::new();
        self.send(command(reply), 0).await?;
        answer.await.map_err(|_| self.stopped())
    }

    fn stopped(&self) -> JournalError {
        let reason = self.inner.failure.get().map_or("the daemon is stopping", String::as_str);
        JournalError::Stopped(reason.to_owned())
    }
}
