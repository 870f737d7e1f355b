//! What waits for the writer: two lanes, so that sinks go on while nothing is taken from the cluster.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};

use crate::change::redact::Redactor;
use crate::journal::retention::Bounds;
use crate::journal::{
    Audit, Found, Held, JournalError, Recast, RequestCounts, Settled, SinkStart, SinkState, SourceId, SourceMemory,
    SourceState, WatchChange,
};
use crate::model::{Cluster, Observed, Resource, ResourceVersion, Seq, SourceSpec, Why};

/// Where an answer goes, once. It can be given again, because what is answered in a transaction that fails is done
/// and answered again when it is tried again.
pub(in crate::journal) struct Reply<T>(Arc<Mutex<Option<oneshot::Sender<T>>>>);

impl<T> Clone for Reply<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Reply<T> {
    pub(in crate::journal) fn new() -> (Self, oneshot::Receiver<T>) {
        let (sender, receiver) = oneshot::channel();
        (Self(Arc::new(Mutex::new(Some(sender)))), receiver)
    }

    /// Whoever asked may be gone, and then nobody needs to know.
    pub(super) fn send(&self, value: T) {
        if let Some(sender) = self.0.lock().unwrap_or_else(PoisonError::into_inner).take() {
            drop(sender.send(value));
        }
    }
}

pub(in crate::journal) enum Command {
    Cluster(Cluster, Reply<Result<(), JournalError>>),
    Redaction(Arc<Redactor>),
    Source(Box<SourceSpec>, Reply<SourceMemory>),
    Retire(SourceId),
    Narrow(Reply<()>),
    Changes(SourceId, Vec<WatchChange>),
    Bookmark(SourceId, ResourceVersion),
    ListBegin(SourceId),
    ListPage(SourceId, Vec<Observed>),
    Found(SourceId, Vec<Found>),
    PartDone(SourceId, ResourceVersion, bool, Reply<()>),
    ListDone(SourceId, ResourceVersion, Option<Why>, Reply<()>),
    Gone(SourceId, Reply<()>),
    Distrust(SourceId, Why),
    Audited(SourceId, Audit),
    ReportSource(SourceId, SourceState),
    Resources(Vec<Resource>),
    Requests(Result<RequestCounts, String>),
    Flush(Reply<()>),
    Sink(String, String, SinkStart, Reply<Seq>),
    RetireSink(String),
    Acknowledge { sink: String, upto: Seq, written: Seq, reply: Reply<()> },
    ResetCursor(String, Seq, Reply<()>),
    SetAside { sink: String, seq: Seq, line: Bytes, reason: String, reply: Reply<()> },
    Settle(Settled, Reply<()>),
    ReportSink(String, SinkState),
    Epoch(Option<String>, Reply<String>),
    Recast(String, Recast, Reply<()>),
    Mark(Vec<String>, Reply<()>),
    Bounds(Bounds),
    Ping(Reply<()>),
}

impl Command {
    /// Whether it is of the sinks and of the daemon itself, which go on while the journal is full.
    pub(in crate::journal) const fn is_control(&self) -> bool {
        match self {
            Self::Sink(..)
            | Self::RetireSink(_)
            | Self::Acknowledge { .. }
            | Self::ResetCursor(..)
            | Self::SetAside { .. }
            | Self::Settle(..)
            | Self::ReportSink(..)
            | Self::Bounds(_)
            | Self::Epoch(..)
            | Self::Recast(..)
            | Self::Mark(..)
            | Self::Ping(_) => true,
            Self::Cluster(..)
            | Self::Redaction(_)
            | Self::Source(..)
            | Self::Retire(_)
            | Self::Narrow(_)
            | Self::Changes(..)
            | Self::Bookmark(..)
            | Self::ListBegin(_)
            | Self::ListPage(..)
            | Self::Found(..)
            | Self::PartDone(..)
            | Self::ListDone(..)
            | Self::Gone(..)
            | Self::Distrust(..)
            | Self::Audited(..)
            | Self::ReportSource(..)
            | Self::Resources(_)
            | Self::Requests(_)
            | Self::Flush(_) => false,
        }
    }

    /// The source whose objects it brings or whose position it moves.
    pub(super) const fn moves(&self) -> Option<i64> {
        match self {
            Self::Changes(SourceId(id), _)
            | Self::Bookmark(SourceId(id), _)
            | Self::ListBegin(SourceId(id))
            | Self::ListPage(SourceId(id), _)
            | Self::Found(SourceId(id), _)
            | Self::PartDone(SourceId(id), ..)
            | Self::ListDone(SourceId(id), ..)
            | Self::Gone(SourceId(id), _)
            | Self::Distrust(SourceId(id), _)
            | Self::Audited(SourceId(id), _) => Some(*id),
            Self::Cluster(..)
            | Self::Redaction(_)
            | Self::Source(..)
            | Self::Retire(_)
            | Self::Narrow(_)
            | Self::ReportSource(..)
            | Self::Resources(_)
            | Self::Requests(_)
            | Self::Flush(_)
            | Self::Sink(..)
            | Self::RetireSink(_)
            | Self::Acknowledge { .. }
            | Self::ResetCursor(..)
            | Self::SetAside { .. }
            | Self::Settle(..)
            | Self::ReportSink(..)
            | Self::Epoch(..)
            | Self::Recast(..)
            | Self::Mark(..)
            | Self::Bounds(_)
            | Self::Ping(_) => None,
        }
    }

    /// How many objects it brings.
    pub(super) fn objects(&self) -> usize {
        if let Self::Changes(_, changes) = self {
            changes.len()
        } else if let Self::ListPage(_, objects) = self {
            objects.len()
        } else if let Self::Found(_, found) = self {
            found.len()
        } else {
            0
        }
    }
}

/// A command with its part of the budget, which is free again when what the command brings is on disk.
pub(in crate::journal) struct Queued {
    pub(in crate::journal) command: Command,
    /// When it was handed over, microseconds since 1970.
    pub(in crate::journal) at: i64,
    /// Bytes of the objects that it brings.
    pub(in crate::journal) bytes: usize,
    #[expect(dead_code, reason = "it is free again when it is dropped")]
    pub(in crate::journal) room: Option<Held>,
}

/// What ended a wait.
pub(super) enum Woken {
    Command(Queued),
    Elapsed,
    /// Every handle is gone, and what they handed over is taken where it may be taken.
    Ended,
}

/// Which lanes are open.
#[derive(Clone, Copy, Debug)]
pub(super) struct Open {
    /// Sources: not while the journal is full.
    pub(super) sources: bool,
    /// Sinks: not while the disk takes nothing at all.
    pub(super) control: bool,
}

/// The lanes, and what goes before what comes through them.
pub(in crate::journal) struct Queue {
    control: mpsc::Receiver<Queued>,
    sources: mpsc::Receiver<Queued>,
    /// Of a transaction that failed for want of room.
    control_again: VecDeque<Queued>,
    /// Likewise, and what had to wait for a list.
    sources_again: VecDeque<Queued>,
}

impl Queue {
    pub(in crate::journal) fn new(control: mpsc::Receiver<Queued>, sources: mpsc::Receiver<Queued>) -> Self {
        Self { control, sources, control_again: VecDeque::new(), sources_again: VecDeque::new() }
    }

    /// What can be done now.
    pub(super) fn take(&mut self, open: Open) -> Option<Queued> {
        let control =
            if open.control { self.control_again.pop_front().or_else(|| self.control.try_recv().ok()) } else { None };
        if control.is_some() || !open.sources {
            return control;
        }
        self.sources_again.pop_front().or_else(|| self.sources.try_recv().ok())
    }

    /// Only what the sinks ask for.
    pub(super) fn take_control(&mut self) -> Option<Queued> {
        self.take(Open { sources: false, control: true })
    }

    /// What can be done now, between two slices of something long.
    pub(super) fn poll(&mut self, open: Open) -> Woken {
        // Both lanes end together. Looked at first: what was handed over before the end is in them by now.
        let ended = self.control.is_closed();
        match self.take(open) {
            Some(queued) => Woken::Command(queued),
            None if ended => Woken::Ended,
            None => Woken::Elapsed,
        }
    }

    /// Waits for what can be done.
    pub(super) async fn wait(&mut self, open: Open, limit: Duration) -> Woken {
        if let Some(queued) = self.take(open) {
            return Woken::Command(queued);
        }
        let mut control_ended = false;
        let elapsed = tokio::time::sleep(limit);
        tokio::pin!(elapsed);
        loop {
            tokio::select! {
                biased;
                next = self.control.recv(), if open.control && !control_ended => match next {
                    Some(queued) => return Woken::Command(queued),
                    // Both lanes end together; sources may still have left something that can be taken.
                    None if open.sources => control_ended = true,
                    None => return Woken::Ended,
                },
                next = self.sources.recv(), if open.sources => return next.map_or(Woken::Ended, Woken::Command),
                () = &mut elapsed => {
                    return if self.control.is_closed() && !open.control { Woken::Ended } else { Woken::Elapsed };
                }
            }
        }
    }

    /// Puts back what could not be done, before everything else and in its order.
    pub(super) fn give_back(&mut self, commands: impl DoubleEndedIterator<Item = Queued>) {
        for queued in commands.rev() {
            if queued.command.is_control() {
                self.control_again.push_front(queued);
            } else {
                self.sources_again.push_front(queued);
            }
        }
    }
}
