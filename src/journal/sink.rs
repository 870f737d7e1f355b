//! The handle of one sink: how far it is, and what it does not take.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::oneshot;

use super::error::Result;
use super::writer::{Command, OfSink, Reply};
use super::{Journal, SinkState};
use crate::core::model::Seq;

/// Entries that a sink gets under the name of a later epoch, because its output has others under theirs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relabeling {
    /// Entries after this seq …
    pub after: Seq,
    /// … and before this one.
    pub before: Seq,
    /// The epoch that they go under.
    pub epoch: String,
}

impl Relabeling {
    /// Reports whether the range contains this entry.
    #[must_use]
    pub fn has(&self, seq: Seq) -> bool {
        self.after < seq && seq < self.before
    }
}

/// The message of an incident that goes on, at a receiver that can update it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Key of the incident.
    pub incident: String,
    /// The entry that the incident began with.
    pub first: Seq,
    /// The last entry that the message counts.
    pub last: Seq,
    /// Number of entries that it counts.
    pub entries: u64,
    /// The receiver's name for the message; none where it does not update it any more.
    pub reference: Option<String>,
}

/// Messages that a sink keeps at most: beyond them those whose last entry is the oldest are forgotten.
pub const MESSAGES: usize = 2000;

/// Progress of a sink.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The sink has everything up to here for good.
    pub upto: Seq,
    /// The last entry that it was given: a filter left out those between.
    pub written: Seq,
    /// This machine and the last entry in its output, where each machine has an output of its own.
    pub local: Option<(String, Seq)>,
    /// Messages that were sent or updated.
    pub messages: Vec<Message>,
    /// Messages whose last entry is not after this one are over.
    pub over: Seq,
}

/// Position at which a sink begins that the journal has never seen.
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

/// Move of a cursor that the writer was given.
#[derive(Debug)]
pub struct CursorMove {
    answer: oneshot::Receiver<()>,
    journal: Journal,
}

impl CursorMove {
    /// Returns once it is on disk.
    ///
    /// # Errors
    /// Where the writer has ended before.
    pub async fn done(self) -> Result {
        self.answer.await.map_err(|_| self.journal.stopped())
    }
}

/// Handle of one sink. Cheap to clone.
///
/// It has nothing to append:
///
/// ```compile_fail,E0599
/// async fn append(sink: decklog::journal::SinkJournal) {
///     sink.append(Vec::new()).await;
/// }
/// ```
#[derive(Clone, Debug)]
pub struct SinkJournal {
    journal: Journal,
    name: Arc<str>,
}

#[expect(clippy::missing_errors_doc, reason = "all fail in one way, which `JournalError` names")]
impl SinkJournal {
    pub(super) const fn new(journal: Journal, name: Arc<str>) -> Self {
        Self { journal, name }
    }

    /// The sink's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The sink has everything up to `upto` for good. On disk when this returns.
    pub async fn acknowledge(&self, upto: Seq) -> Result {
        self.advance(upto, upto).await
    }

    /// Moves the cursor as [`SinkJournal::acknowledge`] does, if a filter left out the entries between `written` and `upto`:
    /// the last delivered entry is `written`.
    pub async fn advance(&self, upto: Seq, written: Seq) -> Result {
        self.progress(Progress { upto, written, ..Progress::default() }).await
    }

    /// Moves the cursor as [`SinkJournal::advance`] does, and keeps with it what else the sink has come to.
    pub async fn progress(&self, progress: Progress) -> Result {
        self.start_progress(progress).await?.done().await
    }

    /// Hands over what [`SinkJournal::progress`] keeps, and does not wait until it is on disk. What is handed over later is on
    /// disk later.
    pub async fn start_progress(&self, progress: Progress) -> Result<CursorMove> {
        let (reply, answer) = Reply::new();
        self.journal.send(Command::Sink(Arc::clone(&self.name), OfSink::Acknowledge(progress, reply)), 0).await?;
        Ok(CursorMove { answer, journal: self.journal.clone() })
    }

    /// The output itself holds less than the cursor says (it was cut, or restored from a backup): the cursor goes
    /// back to what is there. The only way in which a cursor falls.
    pub async fn reset_cursor(&self, to: Seq) -> Result {
        self.ask(|reply| OfSink::ResetCursor(to, reply)).await
    }

    /// Keeps an entry that the sink will never take, for `decklog replay`. `line` is the whole entry, because the log may
    /// have been truncated since it was read, and what stands for truncated entries it never had. On disk when this
    /// returns.
    pub async fn dead_letter(&self, seq: Seq, line: Bytes, reason: &str) -> Result {
        self.ask(|reply| OfSink::DeadLetter { seq, line, reason: reason.to_owned(), reply }).await
    }

    /// From now on the sink gets some entries under another epoch's name.
    pub async fn relabel(&self, relabeling: Relabeling) -> Result {
        self.ask(|reply| OfSink::Relabeling(relabeling, reply)).await
    }

    /// Says how the sink is doing.
    pub async fn report(&self, state: SinkState) -> Result {
        self.journal.send(Command::Sink(Arc::clone(&self.name), OfSink::Report(state)), 0).await
    }

    async fn ask<T>(&self, command: impl FnOnce(Reply<T>) -> OfSink) -> Result<T> {
        self.journal.ask(|reply| Command::Sink(Arc::clone(&self.name), command(reply))).await
    }
}
