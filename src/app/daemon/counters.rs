//! Counters of the sources and sinks, for the metrics.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use crate::delivery::SinkCounters;
use crate::watch::{CacheFault, SourceManagerHandle};
use crate::web::http::{Counters, SinkCounts, SourceCounts};

/// The counters of a running daemon.
#[derive(Debug)]
pub(super) struct DaemonCounters {
    pub(super) sources: SourceManagerHandle,
    pub(super) sinks: Arc<Mutex<SinkCounters>>,
}

fn read(count: &AtomicU64) -> u64 {
    count.load(Relaxed)
}

/// Reads a time in microseconds since 1970; 0 stands for never.
fn time(count: &AtomicU64) -> Option<i64> {
    i64::try_from(read(count)).ok().filter(|time| *time != 0)
}

/// Number of objects that the watch cache shows wrongly: at least one where the API server itself says that there are some.
fn differences(fault: &CacheFault) -> u64 {
    (fault.objects.len() as u64).max(fault.reported.is_some().into())
}

impl Counters for DaemonCounters {
    fn is_ready(&self) -> bool {
        *self.sources.ready().borrow()
    }

    fn is_connected(&self) -> bool {
        !self.sources.overview().version.is_empty()
    }

    fn sources(&self) -> Vec<SourceCounts> {
        let views = self.sources.overview().sources.into_iter();
        let counts = views.map(|view| SourceCounts {
            resource: view.spec.resource.full_name(),
            namespace: view.spec.namespace.clone().unwrap_or_default(),
            id: view.id,
            changes: read(&view.stats.changes),
            bytes: read(&view.stats.bytes),
            lists: read(&view.stats.lists),
            watches: read(&view.stats.watches),
            desyncs: read(&view.stats.desyncs),
            replays: read(&view.stats.replays),
            disorders: read(&view.stats.disorders),
            lists_given_up: read(&view.stats.lists_given_up),
            audits_undecided: read(&view.stats.audits_undecided),
            audit_reads: read(&view.stats.examined),
            cache_differences: differences(&view.stats.cache_fault()),
            failures: view.stats.failures().collect(),
            last_change: time(&view.stats.last_change),
            last_contact: time(&view.stats.last_contact),
        });
        counts.collect()
    }

    fn sinks(&self) -> Vec<SinkCounts> {
        let sinks = self.sinks.lock().unwrap_or_else(PoisonError::into_inner);
        let counts = sinks.iter().map(|(name, (kind, stats))| SinkCounts {
            name: name.clone(),
            kind,
            delivered: read(&stats.delivered),
            bytes: read(&stats.bytes),
            failures: read(&stats.failures),
            tries: read(&stats.tries),
            dropped_updates: read(&stats.dropped_updates),
        });
        counts.collect()
    }
}
