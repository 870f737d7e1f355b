//! Queue of the writer: two lanes, so that sinks continue while reading the cluster is paused.
//!
//! # Decision: two lanes
//!
//! Context: A full journal must stop the sources, but not the sinks, whose progress makes space.
//! Decision: Commands of the cluster and of the sinks wait in two queues. While there is no space, the first is not read: its
//! bytes are bounded, so the sources stop by themselves.
//! Cost: Commands of the two lanes have no order between them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};

use crate::core::change::redact::Redactor;
use crate::core::model::{Cluster, Observed, Resource, ResourceVersion, Seq, SourceSpec, Unread, Verb, Why};
use crate::journal::retention::Bounds;
use crate::journal::{
    Attribution, Audit, AuditBatch, BudgetPermit, Found, JournalError, Missed, Progress, Relabeling, RequestCounts,
    Settled, SignedCheckpoint, SinkStart, SinkState, SourceId, SourceMemory, SourceState, WatchChange,
};

/// Sender of an answer, once. It can be sent again, because a command of a transaction that fails is executed and
/// answered again.
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

    /// Sends the answer; a receiver that is gone does not matter.
    pub(super) fn send(&self, value: T) {
        if let Some(sender) = self.0.lock().unwrap_or_else(PoisonError::into_inner).take() {
            drop(sender.send(value));
        }
    }
}

impl<T> PartialEq for Reply<T> {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl<T> std::fmt::Debug for Reply<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Reply")
    }
}

/// Command for the writer.
pub(in crate::journal) enum Command {
    Source(SourceId, OfSource),
    /// For the sink with this name.
    Sink(Arc<str>, OfSink),
    Register(Box<SourceSpec>, Reply<(SourceId, SourceMemory)>),
    Cluster(Cluster, Reply<Result<(), JournalError>>),
    Redaction(Arc<Redactor>),
    Narrow(Reply<()>),
    Resources(Vec<Resource>),
    Requests(Result<RequestCounts, String>),
    AuditLog(OfAuditLog),
    Evidence(OfEvidence),
    /// The outline of a part of the log.
    Outline(u64, Vec<u8>),
    Flush(Reply<()>),
    Settle(Settled, Reply<()>),
    Epoch(Option<String>, Reply<String>),
    Mark(Vec<String>, Reply<()>),
    Bounds(Bounds),
    Ping(Reply<()>),
    /// A standby takes over. The inner error: why it does not.
    Lead(Reply<Result<(), String>>),
    /// A source of a standby cannot resume from this position: it waits for another one.
    Await(Box<SourceSpec>, Option<ResourceVersion>, Reply<()>),
}

/// Command about the trees over the entries.
pub(in crate::journal) enum OfEvidence {
    /// A tree grows from now on, and the last checkpoint that is known of the tree before; or none does.
    Configured(Option<Option<String>>, Reply<()>),
    Signed(SignedCheckpoint, Reply<()>),
    /// Every place has the tree that begins with the first entry, up to the second.
    Placed(Seq, Seq, Reply<()>),
}

/// Command about the audit logs.
pub(in crate::journal) enum OfAuditLog {
    /// Those that are configured, by name.
    Configured(Vec<String>),
    Batch(Box<AuditBatch>, Reply<()>),
    /// Number of events that API servers have dropped, and when.
    Dropped(u64, (i64, i64)),
    Attribute(Box<Attribution>, Reply<()>),
}

/// Command of one source.
pub(in crate::journal) enum OfSource {
    Changes(Vec<WatchChange>),
    /// An event of a watch whose object cannot be recorded.
    Unread(Verb, Box<Unread>),
    /// An object that the API server cannot read from etcd.
    Unreadable(Box<Unread>),
    Bookmark(ResourceVersion),
    /// The changes that follow may have happened since this time, microseconds since 1970, or since the last good one.
    Behind(Option<i64>),
    /// Versions that were made at these times, earliest and latest, microseconds since 1970: around those that follow.
    Dated(Arc<BTreeMap<u64, (i64, i64)>>),
    /// The changes that follow have happened just now.
    CaughtUp,
    ListBegin,
    ListPast,
    /// The list shows the version that was the newest at this time, microseconds since 1970.
    ListAsOf(i64),
    ListPage(Vec<Observed>),
    ListUnread(Vec<Unread>),
    ListDone(ResourceVersion, Option<Why>, Reply<()>),
    Found(Vec<Found>),
    PartDone(ResourceVersion, bool, Reply<()>),
    /// What is staged are changes of one object that were missed.
    Mended(Missed, Reply<()>),
    Gone(Reply<()>),
    MarkDesynced(Why),
    Audited(Audit),
    Report(SourceState),
    Retire,
}

/// Command of one sink.
pub(in crate::journal) enum OfSink {
    /// Its type, and where it begins if it is new.
    Register(String, SinkStart, Reply<Seq>),
    Acknowledge(Progress, Reply<()>),
    ResetCursor(Seq, Reply<()>),
    DeadLetter {
        seq: Seq,
        line: Bytes,
        reason: String,
        reply: Reply<()>,
    },
    Relabeling(Relabeling, Reply<()>),
    Report(SinkState),
    Retire,
}

impl Command {
    /// Reports whether it belongs to the sinks or the daemon itself, which continue while the journal is full.
    pub(in crate::journal) const fn is_control(&self) -> bool {
        match self {
            Self::Sink(..)
            | Self::Settle(..)
            | Self::Epoch(..)
            | Self::Evidence(_)
            | Self::Mark(..)
            | Self::Bounds(_)
            | Self::Ping(_)
            | Self::Lead(_) => true,
            Self::Await(..)
            | Self::Source(..)
            | Self::Register(..)
            | Self::Cluster(..)
            | Self::Redaction(_)
            | Self::Narrow(_)
            | Self::Resources(_)
            | Self::Requests(_)
            | Self::AuditLog(_)
            | Self::Outline(..)
            | Self::Flush(_) => false,
        }
    }

    /// The source whose objects it brings or whose position it moves.
    pub(super) const fn moves(&self) -> Option<i64> {
        match self {
            Self::Source(
                _,
                OfSource::Report(_) | OfSource::Retire | OfSource::Behind(_) | OfSource::Dated(_) | OfSource::CaughtUp,
            ) => None,
            Self::Source(SourceId(id), _) => Some(*id),
            Self::Sink(..)
            | Self::Register(..)
            | Self::Cluster(..)
            | Self::Redaction(_)
            | Self::Narrow(_)
            | Self::Resources(_)
            | Self::Requests(_)
            | Self::AuditLog(_)
            | Self::Evidence(_)
            | Self::Outline(..)
            | Self::Flush(_)
            | Self::Settle(..)
            | Self::Epoch(..)
            | Self::Mark(..)
            | Self::Bounds(_)
            | Self::Ping(_)
            | Self::Lead(_)
            | Self::Await(..) => None,
        }
    }

    /// Returns the number of objects in the command.
    pub(super) fn objects(&self) -> usize {
        let Self::Source(_, command) = self else { return 0 };
        if let OfSource::Changes(changes) = command {
            changes.len()
        } else if let OfSource::ListPage(objects) = command {
            objects.len()
        } else if let OfSource::ListUnread(objects) = command {
            objects.len()
        } else if let OfSource::Found(found) = command {
            found.len()
        } else {
            0
        }
    }
}

/// A command with its part of the budget, which is free again when what the command brings is on disk.
pub(in crate::journal) struct Queued {
    pub(in crate::journal) command: Command,
    /// Time at which it was queued, microseconds since 1970.
    pub(in crate::journal) at: i64,
    /// Bytes of the objects that it brings.
    pub(in crate::journal) bytes: usize,
    #[expect(dead_code, reason = "it is free again when it is dropped")]
    pub(in crate::journal) room: Option<BudgetPermit>,
}

/// Reason why a wait ended.
pub(super) enum Woken {
    Command(Queued),
    Elapsed,
    /// Every handle is gone, and what they handed over is taken where it may be taken.
    Ended,
}

/// Open lanes.
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
    /// Commands of a transaction that failed for want of room.
    control_again: VecDeque<Queued>,
    /// The same, and what had to wait for a list.
    sources_again: VecDeque<Queued>,
    /// Set while nothing new is taken from sources: earlier commands are returned first.
    held: bool,
}

impl Queue {
    pub(in crate::journal) fn new(control: mpsc::Receiver<Queued>, sources: mpsc::Receiver<Queued>) -> Self {
        Self { control, sources, control_again: VecDeque::new(), sources_again: VecDeque::new(), held: false }
    }

    /// Returns the next command that can be executed now.
    pub(super) fn take(&mut self, open: Open) -> Option<Queued> {
        let control =
            if open.control { self.control_again.pop_front().or_else(|| self.control.try_recv().ok()) } else { None };
        if control.is_some() || !open.sources {
            return control;
        }
        self.sources_again.pop_front().or_else(|| if self.held { None } else { self.sources.try_recv().ok() })
    }

    /// Stops or restarts taking new commands from sources, while earlier ones are returned.
    pub(super) const fn hold(&mut self, held: bool) {
        self.held = held;
    }

    /// Reports whether commands of sources were returned.
    pub(super) fn has_again(&self) -> bool {
        !self.sources_again.is_empty()
    }

    /// Only what the sinks ask for.
    pub(super) fn take_control(&mut self) -> Option<Queued> {
        self.take(Open { sources: false, control: true })
    }

    /// Returns the next command between two slices of a long operation.
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
                next = self.sources.recv(), if open.sources && !self.held => return next.map_or(Woken::Ended, Woken::Command),
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
