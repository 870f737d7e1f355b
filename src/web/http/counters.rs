//! Counters of a running daemon, as its metrics show them.

use std::fmt::Debug;

use crate::journal::SourceId;

/// Gives the counters of a running daemon at the moment.
pub trait Counters: Debug + Send + Sync {
    /// Reports whether every source has resumed, finished its first list, or needs a person.
    fn is_ready(&self) -> bool;

    /// Reports whether the API server has answered.
    fn is_connected(&self) -> bool;

    /// Returns the counters of the running sources.
    fn sources(&self) -> Vec<SourceCounts>;

    /// Returns the counters of the sinks.
    fn sinks(&self) -> Vec<SinkCounts>;
}

/// Counters of one source since the daemon began.
#[derive(Clone, Debug)]
pub struct SourceCounts {
    /// Full name of the resource.
    pub resource: String,
    /// The namespace; empty for all.
    pub namespace: String,
    /// Its id in the journal.
    pub id: SourceId,
    /// Changes handed to the journal.
    pub changes: u64,
    /// Bytes received, of lists and watches.
    pub bytes: u64,
    /// Lists begun.
    pub lists: u64,
    /// Watches opened.
    pub watches: u64,
    /// Positions lost.
    pub desyncs: u64,
    /// Changes that the journal had already.
    pub replays: u64,
    /// Versions that came out of order.
    pub disorders: u64,
    /// Lists that were given up.
    pub lists_given_up: u64,
    /// Audits that came to no answer.
    pub audits_undecided: u64,
    /// Objects that audits have asked etcd for by name.
    pub audit_reads: u64,
    /// Objects that the API server's watch cache shows wrongly.
    pub cache_differences: u64,
    /// Failed requests, by the name of the failure.
    pub failures: Vec<(&'static str, u64)>,
    /// Time of the last change, microseconds since 1970.
    pub last_change: Option<i64>,
    /// Time of the last message, microseconds since 1970.
    pub last_contact: Option<i64>,
}

/// Counters of one sink since the daemon began to deliver to it.
#[derive(Clone, Debug)]
pub struct SinkCounts {
    /// Its name.
    pub name: String,
    /// Its type, as in the configuration.
    pub kind: &'static str,
    /// Entries that it took.
    pub delivered: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Tries that failed.
    pub failures: u64,
    /// Consecutive failures up to now.
    pub tries: u64,
    /// Updates of messages that were dropped.
    pub dropped_updates: u64,
}
