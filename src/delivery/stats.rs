//! What is counted of each sink.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Counters of one sink since the daemon began to deliver to it.
#[derive(Debug, Default)]
pub struct SinkStats {
    /// Entries that it took.
    pub delivered: AtomicU64,
    /// Their bytes.
    pub bytes: AtomicU64,
    /// Tries that failed, also of asking where the output is.
    pub failures: AtomicU64,
    /// Consecutive failures up to now.
    pub tries: AtomicU64,
    /// Updates of messages that were dropped, because the receiver refused them or nothing could be made of them.
    pub dropped_updates: AtomicU64,
}

/// Type and counters of every sink, by name.
pub type SinkCounters = BTreeMap<String, (&'static str, Arc<SinkStats>)>;
