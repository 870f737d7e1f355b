//! The metrics, named as Prometheus asks: base units, `_total` on counters. Read from the journal at each scrape, so
//! that they say what is on disk and a restart does not set them back. Only the counters of requests and of what
//! waits are of this process.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicI64, AtomicU64};

use jiff::Timestamp;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::Endpoints;
use crate::journal::{JournalError, PauseReason, Reader, SinkRow, SourceRow};
use crate::watch::SourceStats;

type Labels = Vec<(&'static str, String)>;
type Int = Family<Labels, Gauge<i64, AtomicI64>>;
type Float = Family<Labels, Gauge<f64, AtomicU64>>;
type Count = Family<Labels, Counter>;

/// States of sources, each a time series of 0 or 1 per source.
const SOURCE_STATES: [&str; 5] = ["waiting", "listing", "watching", "degraded", "gone"];
/// States of sinks, likewise.
const SINK_STATES: [&str; 3] = ["running", "retrying", "halted"];

/// What only the running daemon knows.
#[derive(Debug)]
pub(super) struct Live(Vec<(Labels, Arc<SourceStats>, u64)>);

impl Live {
    pub(super) fn of(endpoints: &Endpoints) -> Self {
        let sources = endpoints.fleet.overview().sources.into_iter().map(|view| {
            let namespace = view.spec.namespace.clone().unwrap_or_default();
            let labels = vec![("resource", view.spec.resource.full_name()), ("namespace", namespace)];
            (labels, view.stats, endpoints.backlog.of(view.id))
        });
        Self(sources.collect())
    }
}

/// Everything, in the OpenMetrics text format.
pub(super) fn render(reader: &Reader, live: &Live, journal_bytes: u64, now: Timestamp) -> Result<String, JournalError> {
    let mut registry = Registry::with_prefix("decklog");
    let build: Int = register(&mut registry, "build_info", "The version that runs; always 1");
    build.get_or_create(&vec![("version", env!("CARGO_PKG_VERSION").to_owned())]).set(1);
    let head = reader.head()?;
    let entries: Counter = register(&mut registry, "journal_entries", "Entries ever journaled: the newest seq");
    entries.inc_by(head.0);
    let size: Gauge<i64, AtomicI64> =
        register(&mut registry, "journal_size_bytes", "Size of the journal's files, its write-ahead log included");
    size.set(int(journal_bytes));
    let retained = reader.retained()?;
    let oldest: Gauge<i64, AtomicI64> = register(&mut registry, "journal_oldest_seq", "The oldest entry that is kept");
    oldest.set(int(retained.oldest));
    let age: Gauge<f64, AtomicU64> =
        register(&mut registry, "journal_oldest_seconds", "Age of the oldest entry that is kept");
    age.set(retained.oldest_time.map_or(0.0, |time| seconds_since(time, now)));
    let paused: Int =
        register(&mut registry, "journal_paused", "1 for why nothing is taken from the cluster for want of room");
    for why in PauseReason::ALL {
        let is = retained.paused.as_ref().is_some_and(|pause| pause.why == why);
        paused.get_or_create(&vec![("why", why.as_str().to_owned())]).set(i64::from(is));
    }
    sources(&mut registry, &reader.sources()?, now);
    sinks(&mut registry, &reader.sinks()?, head.0, now);
    reading(&mut registry, live);
    let mut out = String::new();
    encode(&mut out, &registry).map_err(|fmt::Error| JournalError::Corrupt("metrics cannot be written".to_owned()))?;
    Ok(out)
}

fn sources(registry: &mut Registry, rows: &[SourceRow], now: Timestamp) {
    let state: Int = register(registry, "source_state", "1 for the state that the source is in");
    let objects: Int = register(registry, "source_objects", "Objects known to exist");
    let gaps: Count = register(registry, "source_gaps", "GAP entries written for the source");
    let good: Float =
        register(registry, "source_lag_seconds", "Time since the last event, bookmark or list of the source");
    for row in rows.iter().filter(|row| row.active) {
        let labels: Labels = vec![("resource", row.resource.full_name()), ("namespace", row.namespace.clone())];
        for name in SOURCE_STATES {
            let mut labels = labels.clone();
            labels.push(("state", name.to_owned()));
            state.get_or_create(&labels).set(i64::from(row.state == name));
        }
        objects.get_or_create(&labels).set(int(row.objects));
        gaps.get_or_create(&labels).inc_by(row.gaps);
        if let Some(good_at) = row.good_at {
            good.get_or_create(&labels).set(seconds_since(good_at, now));
        }
    }
}

fn reading(registry: &mut Registry, live: &Live) {
    let changes: Count = register(registry, "source_changes", "Changes that watches brought since the start");
    let bytes: Count = register(registry, "source_received_bytes", "Bytes of lists and watches since the start");
    let lists: Count = register(registry, "source_lists", "Lists begun since the start");
    let watches: Count = register(registry, "source_watches", "Watches opened since the start");
    let failures: Count = register(registry, "source_failures", "Requests that failed since the start, by reason");
    let waiting: Int = register(registry, "source_lag_entries", "Changes that have been read and are not on disk yet");
    for (labels, stats, lag) in &live.0 {
        changes.get_or_create(labels).inc_by(stats.changes.load(Relaxed));
        bytes.get_or_create(labels).inc_by(stats.bytes.load(Relaxed));
        lists.get_or_create(labels).inc_by(stats.lists.load(Relaxed));
        watches.get_or_create(labels).inc_by(stats.watches.load(Relaxed));
        for (reason, count) in stats.failures() {
            let mut labels = labels.clone();
            labels.push(("reason", reason.to_owned()));
            failures.get_or_create(&labels).inc_by(count);
        }
        waiting.get_or_create(labels).set(int(*lag));
    }
}

fn sinks(registry: &mut Registry, rows: &[SinkRow], head: u64, now: Timestamp) {
    let state: Int = register(registry, "sink_state", "1 for the state that the sink is in");
    let cursor: Int = register(registry, "sink_cursor_seq", "The newest seq that the sink has for good");
    let entries: Int = register(registry, "sink_lag_entries", "Entries that the sink has not taken yet");
    let seconds: Float = register(registry, "sink_lag_seconds", "Age of the oldest entry that the sink has not taken");
    let aside: Int = register(registry, "sink_set_aside_entries", "Entries that the sink refused for ever");
    let missed: Count =
        register(registry, "sink_missed_entries", "Entries that were forgotten before the sink had taken them");
    for row in rows.iter().filter(|row| row.active) {
        let labels: Labels = vec![("sink", row.name.clone()), ("type", row.kind.clone())];
        for name in SINK_STATES {
            let mut labels = labels.clone();
            labels.push(("state", name.to_owned()));
            state.get_or_create(&labels).set(i64::from(row.state == name));
        }
        cursor.get_or_create(&labels).set(int(row.cursor.0));
        entries.get_or_create(&labels).set(int(head.saturating_sub(row.cursor.0)));
        seconds.get_or_create(&labels).set(row.oldest_undelivered.map_or(0.0, |time| seconds_since(time, now)));
        aside.get_or_create(&labels).set(int(row.aside));
        missed.get_or_create(&labels).inc_by(row.missed);
    }
}

fn register<M: Clone + Default + prometheus_client::registry::Metric>(
    registry: &mut Registry,
    name: &str,
    help: &str,
) -> M {
    let metric = M::default();
    registry.register(name, help, metric.clone());
    metric
}

fn int(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Never negative: a clock that was set back is no lag.
fn seconds_since(micros: i64, now: Timestamp) -> f64 {
    let elapsed = now.as_microsecond().saturating_sub(micros).max(0);
    std::time::Duration::from_micros(elapsed.unsigned_abs()).as_secs_f64()
}
