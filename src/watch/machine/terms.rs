//! Inputs and outputs of the state machine.

use std::time::Duration;

use super::Failure;
use crate::core::model::{ResourceVersion, Why};
use crate::journal::SourceState;

/// Tolerances for conditions that may heal by themselves.
#[derive(Clone, Copy, Debug)]
pub struct Thresholds {
    /// A watch that ends sooner than this and brought nothing new has failed.
    pub short_watch: Duration,
    /// A watch that breaks off sooner than this and brought nothing new has not shown that the connection is well.
    pub stable: Duration,
    /// Total duration of fruitless watches below which nothing is concluded.
    pub quiet: Duration,
    /// Two watches of a source are at least this far apart, however the first one ended.
    pub apart: Duration,
    /// This many short watches in a row, and the position is not trusted any more.
    pub short_watches: u32,
    /// A line that does not decode is asked for this many times before it is given up for a list.
    pub undecodable: u32,
    /// An error that is no known one is borne this long before it is answered with a list.
    pub server_errors: Duration,
    /// Interval between recoveries of the other objects while the API server cannot read one: etcd forgets after five minutes.
    pub unreadable: Duration,
    /// An API server may lag behind our position this long before it is watched without having shown that it has it.
    pub ahead: Duration,
    /// A resource is not found for this long before its absence is confirmed.
    pub not_found: Duration,
    /// The least wait where only a person can help: permissions, a refused request.
    pub slow: Duration,
    /// A source that gets nothing but failures as answers for this long does not keep the others from being ready.
    pub settle: Duration,
    /// Without a failure for this long, waits begin at the shortest again.
    pub forgive: Duration,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self {
            short_watch: Duration::from_secs(1),
            stable: Duration::from_secs(10),
            // Two minutes, as the API server and we see them.
            quiet: Duration::from_secs(119),
            apart: Duration::from_millis(500),
            short_watches: 5,
            undecodable: 3,
            server_errors: Duration::from_secs(30),
            unreadable: Duration::from_secs(60),
            ahead: Duration::from_secs(60),
            not_found: Duration::from_secs(30),
            slow: Duration::from_secs(30),
            settle: Duration::from_secs(30),
            forgive: Duration::from_secs(120),
        }
    }
}

/// Input from the driver.
#[derive(Clone, Debug)]
pub enum Input {
    /// The source begins.
    Start,
    /// The API server has our position, and answered with this version of its own.
    Probed(ResourceVersion),
    /// A page of the list is staged; `next` asks for the one after it.
    Page {
        /// The version of the whole list.
        version: ResourceVersion,
        /// The token of the next page.
        next: Option<String>,
        /// An object in it is newer than the list, which cannot be where their versions are of one order.
        newer: bool,
    },
    /// The pages of the list contradict each other in a way that no list does which ends. The sentence says how.
    Endless(String),
    /// The journal has given the list up, because what it staged left no room. The sentence says what to do.
    NoRoom(String),
    /// The list is on disk.
    Committed,
    /// Recovery has reached this version, and everything is durable.
    Recovered(ResourceVersion),
    /// The changes to recover are compacted up to this version, which can be had.
    Compacted(ResourceVersion),
    /// It cannot be recovered.
    Unrecoverable,
    /// The API server has accepted the watch.
    Opened,
    /// The position is compacted. The watch before had brought everything up to this version at least, and one from there is
    /// open, which the next watch is.
    Overlapped(ResourceVersion),
    /// The watch is open for as long as [`Machine::stands_after`](super::Machine::stands_after) asks for.
    WatchStable,
    /// A change was handed to the journal.
    Changed(ResourceVersion),
    /// The API server has sent everything up to here.
    Bookmark(ResourceVersion),
    /// The watch ended without an error of the API server.
    Ended(End),
    /// A request or the watch failed.
    Failed(Failure),
    /// The wait is over.
    Waited,
    /// The wait is over because the API server answers.
    ServerReachable,
    /// Answer of a fresh discovery: true if the resource is certainly not served.
    Confirmed(bool),
    /// A consistent answer is of this version.
    Latest(ResourceVersion),
    /// A consistent answer is older than what it holds: its version says nothing about objects.
    IncomparableVersions,
    /// Another source has found that the API server went back in time. It comes in place of a watch, or ends one.
    RollbackSuspected,
    /// An audit found that the API server differs from the log. It ends a watch.
    AuditMismatch,
    /// The watch contradicts the journal, which has marked the source as desynced. It replaces a watch, or ends one.
    Inconsistent,
    /// The complete list lacks so much of what is known that it was not written: it may be a broken one.
    ListTooShort(String),
}

/// End of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The server closed it properly.
    Closed,
    /// The server closed it properly, and not before it was asked to.
    TimedOut,
    /// The connection broke.
    Disconnected(String),
    /// No message came for too long.
    Idle,
}

/// Action for the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Ask whether the API server has this version: a list of at most one object, not older than it.
    Probe(ResourceVersion),
    /// Ask which version the API server has: a consistent list of at most one object, and where that is older than what
    /// was applied, one of some more, whose objects show whether versions of lists say anything about them.
    AskLatest,
    /// List: the first page, which begins a new list, or the one that `token` names.
    List {
        /// Continue token of the next page.
        token: Option<String>,
        /// True if the list is requested in pages.
        paged: bool,
        /// The version to ask for; for none, which makes it a consistent list. A token brings its own.
        at: Option<ResourceVersion>,
    },
    /// Find out what happened since the position was lost.
    Recover {
        /// True if a list is accepted although it lacks most objects.
        confirmed: bool,
    },
    /// The list is complete: write it.
    Commit {
        /// The version of the list.
        version: ResourceVersion,
        /// The gap that it ends.
        why: Option<Why>,
        /// True if it is accepted although it lacks most objects: a second list in a row confirms it.
        confirmed: bool,
    },
    /// Watch from here.
    Watch(ResourceVersion),
    /// Wait: a random time that grows with `tries`, and at least this long.
    Wait {
        /// Failures in a row.
        tries: u32,
        /// Shortest wait: as the server requested, or as the situation needs.
        at_least: Duration,
    },
    /// Wait until the API server answers, but not for long: whoever could not reach it says when it can be reached.
    AwaitServer {
        /// Failures in a row.
        tries: u32,
        /// Any answer will do. Otherwise the API server must not have answered before, and this is a wait as any other.
        any: bool,
    },
    /// Wait this long before the action that follows: something like it was asked a moment ago.
    Throttle(Duration),
    /// Ask discovery whether the resource is still served.
    Confirm,
    /// The resource is gone: report it to the journal, and end.
    Gone,
    /// Read the credentials again.
    Refresh,
    /// Ask over new connections from now on.
    Reconnect,
    /// Move the position.
    Bookmark(ResourceVersion),
    /// Say what the source is doing.
    Report(SourceState),
    /// Count it.
    Count(Anomaly),
}

/// Rare event that is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anomaly {
    /// A change that the journal has already: the price of resuming safely.
    Replay,
    /// A version lower than one that came before it on the same watch.
    Disorder,
    /// A list is needed although there was a position: the journal is to mark the source as desynced.
    Desync(Why),
    /// The same, and the journal has marked it.
    Inconsistent,
    /// A list that does not end, or that the journal has no room for, was given up.
    ListGivenUp,
}

impl Effect {
    /// Reports whether an input answers it. The others have no answer.
    #[must_use]
    pub const fn is_action(&self) -> bool {
        match self {
            Self::Probe(_)
            | Self::AskLatest
            | Self::List { .. }
            | Self::Recover { .. }
            | Self::Commit { .. }
            | Self::Watch(_)
            | Self::Wait { .. }
            | Self::AwaitServer { .. }
            | Self::Confirm
            | Self::Gone => true,
            Self::Throttle(_)
            | Self::Refresh
            | Self::Reconnect
            | Self::Bookmark(_)
            | Self::Report(_)
            | Self::Count(_) => false,
        }
    }
}
