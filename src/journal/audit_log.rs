//! The journal's end of the API server's audit logs: positions, requests, and the ACTOR entries that they lead to.

use serde::{Deserialize, Serialize};

use super::Journal;
use super::error::Result;
use super::writer::{Command, OfAuditLog};
use crate::core::k8s::audited::{Actor, AuditedRequest};
use crate::core::model::{ResourceVersion, Seq};

/// Number of requests that are kept at most; the oldest go first.
pub const REQUESTS_MAX: usize = 200_000;

/// An hour, by which requests that wrote nothing are counted; microseconds.
pub(super) const HOUR: i64 = 3_600_000_000;

/// A part of an audit log, with the position behind it. Both are on disk at once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditBatch {
    /// Name of the audit log in the configuration.
    pub log: String,
    /// JSON of the place in a file; none where requests are received.
    pub position: Option<String>,
    /// Time before which every request that was answered is read, microseconds since 1970; 0 where this batch says nothing of it.
    pub complete: i64,
    /// Requests that may have changed a watched object.
    pub requests: Vec<AuditedRequest>,
    /// Requests that were refused, which are counted. One that comes again within a quarter of an hour counts once.
    pub refused: Vec<Unwritten>,
    /// Events of this batch.
    pub counts: AuditCounts,
    /// Time of its first event, microseconds since 1970; 0 where it has none.
    pub first_at: i64,
    /// Time at which all of it was read, microseconds since 1970; 0 where there was more to read.
    pub read_at: i64,
    /// Time in which events were lost, microseconds since 1970.
    pub doubt: Option<(i64, i64)>,
    /// Object of the newest request by which `decklog check` asks whether events arrive.
    pub probe: Option<String>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Number of events of an audit log, by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AuditCounts {
    /// Events that are read.
    pub read: u64,
    /// Events that were cut off and could be used nevertheless.
    pub cut: u64,
    /// Events that could not be read.
    pub unreadable: u64,
    /// Lines and records that are no audit events.
    #[serde(skip_serializing_if = "is_zero")]
    pub no_event: u64,
    /// Events of another cluster.
    pub foreign: u64,
    /// Parts of the log that were gone before they were read.
    pub lost: u64,
    /// Events that the API server could not write or send, by its own count.
    pub dropped: u64,
}

impl AuditCounts {
    /// Adds those of a later batch.
    pub(crate) const fn add(&mut self, other: &Self) {
        self.read += other.read;
        self.cut += other.cut;
        self.unreadable += other.unreadable;
        self.no_event += other.no_event;
        self.foreign += other.foreign;
        self.lost += other.lost;
        self.dropped += other.dropped;
    }
}

/// State of an audit log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditLogRow {
    /// Name in the configuration.
    pub name: String,
    /// JSON of the place in a file.
    pub position: Option<String>,
    /// Time before which every request that was answered is read, microseconds since 1970; 0 where that is not known.
    pub complete: i64,
    /// Events since the journal began.
    pub counts: AuditCounts,
    /// Time of the first event that it brought, microseconds since 1970; 0 for none yet.
    pub first_at: i64,
    /// Time at which events were last found to be missing, microseconds since 1970; 0 for never.
    pub lost_at: i64,
    /// Time at which all of it was last read, microseconds since 1970; 0 for never.
    pub read_at: i64,
    /// Times in which events are missing, in order, microseconds since 1970.
    pub doubts: Vec<(i64, i64)>,
    /// Object of the last request by which `decklog check` asked whether events arrive.
    pub probe: Option<String>,
    /// Reports whether it is configured.
    pub active: bool,
}

/// Outcome of the join of requests and entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attribution {
    /// Senders of changes, by the seq of the entry. An entry that has its ACTOR already gets no other one.
    pub actors: Vec<(Seq, Actor)>,
    /// Requests that changed nothing, which are counted: each once, also where it is handed over again.
    pub wasted: Vec<Unwritten>,
    /// Every entry up to this one has its ACTOR, or gets none.
    pub upto: Seq,
    /// Requests that were answered before this time are no longer needed, microseconds since 1970.
    pub needed_since: i64,
}

/// Kind of a request that wrote nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum UnwrittenKind {
    /// It was granted, and changed nothing.
    #[default]
    NoOp,
    /// It was refused because another write had come first.
    Conflict,
    /// It was refused because the name was taken.
    AlreadyExists,
}

impl UnwrittenKind {
    /// Every kind, by its number in the journal.
    pub(super) const ALL: [Self; 3] = [Self::NoOp, Self::Conflict, Self::AlreadyExists];

    pub(super) const fn code(self) -> u8 {
        match self {
            Self::NoOp => 0,
            Self::Conflict => 1,
            Self::AlreadyExists => 2,
        }
    }
}

/// Request that wrote nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unwritten {
    /// The event's id.
    pub key: String,
    /// Why it wrote nothing.
    pub kind: UnwrittenKind,
    /// User who sent it.
    pub user: String,
    /// User agent, as it was sent; its first word is kept.
    pub agent: String,
    /// Verb of the request.
    pub verb: String,
    /// API group; empty for the core group.
    pub group: String,
    /// Plural name of the resource.
    pub resource: String,
    /// Subresource; empty for the object itself.
    pub subresource: String,
    /// Namespace of the object; empty where it has none.
    pub namespace: String,
    /// Name of the object; empty where the API server was to make one up.
    pub name: String,
    /// Time of the answer, microseconds since 1970.
    pub completed: i64,
}

/// Number of requests of one sender that wrote nothing, over whole hours.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnwrittenRow {
    /// What they have in common, with an object of the last of them; without key.
    pub like: Unwritten,
    /// Number of requests.
    pub count: u64,
    /// Time of the first answer, microseconds since 1970. That of the last is that of `like`.
    pub first: i64,
}

/// User of the rows of those beyond the bound of an hour. No user agent and no verb stand beside it.
pub const OTHER_SENDERS: &str = "(others)";

/// What the journal knows of an object that an audit event names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditedObject {
    /// Its last known version.
    pub version: ResourceVersion,
    /// False if it is deleted.
    pub present: bool,
    /// Time at which its newest entry was journaled, microseconds since 1970; 0 where it has none.
    pub recorded: i64,
    /// Set if its last known version has no entry, because `ignore` suppressed it.
    pub suppressed: bool,
}

#[expect(clippy::missing_errors_doc, reason = "all fail in one way, which `JournalError` names")]
impl Journal {
    /// Names the audit logs that are configured.
    pub async fn audit_logs(&self, names: Vec<String>) -> Result {
        self.send(Command::AuditLog(OfAuditLog::Configured(names)), 0).await
    }

    /// Keeps a part of an audit log with the position behind it.
    pub async fn audited(&self, batch: AuditBatch) -> Result {
        self.ask(|reply| Command::AuditLog(OfAuditLog::Batch(Box::new(batch), reply))).await
    }

    /// Notes that API servers have dropped events, by their own count, at some time of `within`, microseconds since 1970. Without an
    /// audit log it notes nothing.
    pub async fn audit_dropped(&self, events: u64, within: (i64, i64)) -> Result {
        self.send(Command::AuditLog(OfAuditLog::Dropped(events, within)), 0).await
    }

    /// Records the senders of changes, each in an ACTOR entry.
    pub async fn attribute(&self, attribution: Attribution) -> Result {
        self.ask(|reply| Command::AuditLog(OfAuditLog::Attribute(Box::new(attribution), reply))).await
    }
}
