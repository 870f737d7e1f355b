//! The metrics, named as Prometheus asks: base units, `_total` on counters. Read from the journal at each scrape, so
//! that they say what is on disk and a restart does not set them back. Only the counters of requests and of what
//! waits are of this process.

mod audit_log;
mod evidence;

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicI64, AtomicU64};

use jiff::Timestamp;
use prometheus_client::encoding::text::encode_registry;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::Endpoints;
use super::counters::{SinkCounts, SourceCounts};
use crate::journal::{JournalError, PauseReason, Reader, Requests, SinkRow, SinkState, SourceRow, SourceState};
use crate::query::churn::OfResource;
use crate::query::status::{ALARMS, Alarm, HaView, Live, Part, Role, Status};

type Labels = Vec<(&'static str, String)>;
type One = Gauge<f64, AtomicU64>;
type Int = Family<Labels, Gauge<i64, AtomicI64>>;
type Float = Family<Labels, Gauge<f64, AtomicU64>>;
type Count = Family<Labels, Counter>;

/// Metrics that only the running daemon has.
#[derive(Debug, Default)]
pub(super) struct Process {
    runs: bool,
    live: Live,
    sources: Vec<(Labels, (SourceCounts, u64))>,
    sinks: Vec<(Labels, SinkCounts)>,
    unjournaled: u64,
    churn: Vec<(String, OfResource)>,
    counts_requests: bool,
}

impl Process {
    pub(super) fn of(endpoints: &Endpoints) -> Self {
        let live = endpoints.live.borrow().clone();
        let sources = endpoints.counters.sources().into_iter().map(|counts| {
            let labels = vec![("resource", counts.resource.clone()), ("namespace", counts.namespace.clone())];
            let lag = endpoints.backlog.of(counts.id);
            (labels, (counts, lag))
        });
        let sinks = endpoints
            .counters
            .sinks()
            .into_iter()
            .map(|counts| (vec![("sink", counts.name.clone()), ("type", counts.kind.to_owned())], counts));
        Self {
            runs: true,
            live,
            sources: sources.collect(),
            sinks: sinks.collect(),
            unjournaled: endpoints.backlog.bytes(),
            churn: endpoints.churn.resources(),
            counts_requests: endpoints.counts_requests,
        }
    }
}

/// Everything, in the OpenMetrics text format.
pub(super) fn render(reader: &Reader, status: &Status, process: &Process) -> Result<String, JournalError> {
    let mut registry = Registry::with_prefix("decklog");
    build(&mut registry);
    of_the_journal(&mut registry, reader, status, process)?;
    Ok(text(&[registry, of_the_process(&process.live)])? + END)
}

/// Last line of an exposition.
pub(super) const END: &str = "# EOF\n";

/// Renders the metrics that all clusters of a process share.
pub(super) fn render_process(live: &Live) -> Result<String, JournalError> {
    let mut registry = Registry::with_prefix("decklog");
    build(&mut registry);
    text(&[registry, of_the_process(live)])
}

/// Renders the metrics of one cluster of several, with its name as a label of each sample. If its journal cannot be read,
/// renders only what the process knows.
pub(super) fn render_cluster(
    name: &str,
    journal: Option<(&Reader, &Status)>,
    alarms: &[Alarm],
    process: &Process,
    restarts: u64,
) -> Result<String, JournalError> {
    let labels = [("cluster".into(), name.to_owned().into())];
    let mut registry = Registry::with_prefix_and_labels("decklog", labels.into_iter());
    let runs: Gauge = register(&mut registry, "cluster_running", "1 while a daemon runs for the cluster");
    runs.set(i64::from(process.runs));
    let count: Counter = register(
        &mut registry,
        "cluster_restarts",
        "Times since the start that the daemon of the cluster ended by an error, and was begun again",
    );
    count.inc_by(restarts);
    match journal {
        Some((reader, status)) => of_the_journal(&mut registry, reader, status, process)?,
        None => {
            raised(&mut registry, alarms);
            daemon(&mut registry, &process.live);
        }
    }
    text(&[registry])
}

/// Prefix of the line that begins a metric family.
const HELP: &str = "# HELP ";

/// The first lines of a text, as long as they are such, and the rest.
fn take(text: &str, mut is: impl FnMut(usize, &str) -> bool) -> (&str, &str) {
    let lines = text.split_inclusive('\n').enumerate().take_while(|(number, line)| is(*number, line));
    text.split_at(lines.map(|(_, line)| line.len()).sum())
}

/// Several expositions as one, each family once.
pub(super) fn merge(texts: &[String]) -> String {
    let mut families: Vec<(&str, Vec<&str>)> = Vec::new();
    let mut places: HashMap<&str, usize> = HashMap::new();
    for text in texts {
        let mut rest = text.as_str();
        while !rest.is_empty() {
            let (head, after) =
                take(rest, |number, line| number == 0 || line.starts_with('#') && !line.starts_with(HELP));
            let (samples, after) = take(after, |_, line| !line.starts_with('#'));
            let place = *places.entry(head).or_insert_with(|| {
                families.push((head, Vec::new()));
                families.len() - 1
            });
            families[place].1.push(samples);
            rest = after;
        }
    }
    let families = families.into_iter().map(|(head, samples)| head.to_owned() + &samples.concat());
    families.collect::<String>() + END
}

fn text(registries: &[Registry]) -> Result<String, JournalError> {
    let mut out = String::new();
    for registry in registries {
        encode_registry(&mut out, registry)
            .map_err(|fmt::Error| JournalError::Corrupt("metrics cannot be written".to_owned()))?;
    }
    Ok(out)
}

fn build(registry: &mut Registry) {
    let build: Int = register(registry, "build_info", "The version that runs; always 1");
    build.get_or_create(&vec![("version", env!("CARGO_PKG_VERSION").to_owned())]).set(1);
}

fn raised(registry: &mut Registry, all: &[Alarm]) {
    let alarms: Int = register(registry, "alarms", "Alarms and notes of `decklog status`, by name");
    for name in ALARMS {
        let raised = all.iter().filter(|alarm| alarm.alarm == name).count();
        alarms.get_or_create(&vec![("alarm", name.to_owned())]).set(int(raised as u64));
    }
}

fn of_the_journal(
    registry: &mut Registry,
    reader: &Reader,
    status: &Status,
    process: &Process,
) -> Result<(), JournalError> {
    let now = status.time;
    raised(registry, &[&status.alarms[..], &status.notices].concat());
    daemon(registry, &process.live);
    if let Some(view) = &process.live.ha {
        ha(registry, view);
    }
    let head = reader.head()?;
    let retained = reader.retained()?;
    let oldest: Gauge<i64, AtomicI64> = register(registry, "journal_oldest_seq", "The oldest entry that is kept");
    oldest.set(int(retained.oldest));
    let age: Gauge<f64, AtomicU64> =
        register(registry, "journal_oldest_seconds", "Age of the oldest entry that is kept");
    age.set(retained.oldest_time.map_or(0.0, |time| seconds_since(time, now)));
    let paused: Int =
        register(registry, "journal_paused", "1 for why nothing is taken from the cluster for want of room");
    for why in PauseReason::ALL {
        let is = status.journal.paused.as_ref().is_some_and(|pause| pause.why == why.as_str());
        paused.get_or_create(&vec![("why", why.as_str().to_owned())]).set(i64::from(is));
    }
    journal(registry, status, head.0);
    sources(registry, reader, now)?;
    audit_log::register_all(registry, reader)?;
    evidence::register_all(registry, reader, status)?;
    sinks(registry, &reader.sinks()?, head.0, now);
    reading(registry, process);
    delivering(registry, process);
    churn(registry, &process.churn);
    if process.counts_requests {
        requests(registry, &reader.request_totals()?);
    }
    Ok(())
}

fn daemon(registry: &mut Registry, live: &Live) {
    let ready: Gauge = register(registry, "ready", "1 once every source has resumed or finished its first list");
    ready.set(i64::from(live.ready));
    let stalled: Int = register(registry, "stalled", "1 where a part makes no progress, and the watchdog is not fed");
    for part in Part::ALL.map(Part::name) {
        stalled.get_or_create(&vec![("part", part.to_owned())]).set(i64::from(live.stalled.iter().any(|p| p == part)));
    }
    let waiting: Gauge =
        register(registry, "resources_waiting", "Configured resources that the API server does not serve");
    waiting.set(int(live.waiting.len() as u64));
    let jumps: Counter =
        register(registry, "clock_jumps", "Times that the clock was set or the machine suspended, since the start");
    jumps.inc_by(live.clock_jumps);
}

/// Only with `[ha]`.
fn ha(registry: &mut Registry, view: &HaView) {
    let number = |registry: &mut Registry, name, help, value: u64| {
        let gauge: Gauge<i64, AtomicI64> = register(registry, name, help);
        gauge.set(int(value));
    };
    let is = |is: bool| u64::from(is);
    number(registry, "ha_leader", "1 where this decklog leads, 0 where it follows", is(view.role == Role::Leader));
    number(registry, "ha_term", "The term of the shared log: it grows with each leader", view.term);
    let behind: One = register(
        registry,
        "ha_behind_seconds",
        "Age of the oldest unit of the shared log that is not in this journal yet",
    );
    behind.set(view.behind_seconds);
    number(registry, "ha_behind_units", "Units of the shared log that are not in this journal yet", view.behind_units);
    number(
        registry,
        "ha_backlog_bytes",
        "Changes that this standby keeps and the shared log does not have yet",
        view.backlog_bytes,
    );
    number(
        registry,
        "ha_unreachable",
        "1 where the shared log cannot be read or written",
        is(view.unreachable.is_some()),
    );
    number(
        registry,
        "ha_problem",
        "1 where this decklog cannot take over, or stops leading",
        is(view.problem.is_some()),
    );
    let overflows: Counter = register(registry, "ha_overflows", "Times since the start that the backlog had no room");
    overflows.inc_by(view.overflows);
}

fn journal(registry: &mut Registry, status: &Status, head: u64) {
    let journal = &status.journal;
    let entries: Counter = register(registry, "journal_entries", "Entries ever journaled: the newest seq");
    entries.inc_by(head);
    let bytes = |registry: &mut Registry, name, help, bytes: u64| {
        let gauge: Gauge<i64, AtomicI64> = register(registry, name, help);
        gauge.set(int(bytes));
    };
    let size = journal.size_bytes + journal.wal_bytes;
    bytes(registry, "journal_size_bytes", "Size of the journal's files, its write-ahead log included", size);
    bytes(registry, "journal_wal_bytes", "Size of the journal's write-ahead log", journal.wal_bytes);
    if let (Some(free), Some(disk)) = (journal.free_bytes, journal.disk_bytes) {
        bytes(registry, "journal_disk_free_bytes", "Free space on the disk of the journal", free);
        bytes(registry, "journal_disk_size_bytes", "Size of the disk of the journal", disk);
    }
    for (name, help, place) in [
        ("journal_oldest_entry_timestamp_seconds", "When the oldest entry that is kept was journaled", journal.oldest),
        ("journal_newest_entry_timestamp_seconds", "When the newest entry was journaled", journal.head),
    ] {
        if let Some(place) = place {
            let gauge: One = register(registry, name, help);
            gauge.set(unix(place.time.as_microsecond()));
        }
    }
}

/// Counters: a name, what it counts, and where that stands.
type Counts<T, const N: usize> = [(&'static str, &'static str, fn(&T) -> u64); N];

/// Registers each counter, with a value for each row.
fn count<T, const N: usize>(registry: &mut Registry, counters: &Counts<T, N>, rows: &[(Labels, T)]) {
    for (name, help, value) in counters {
        let family: Count = register(registry, name, help);
        for (labels, row) in rows {
            family.get_or_create(labels).inc_by(value(row));
        }
    }
}

/// What the journal counts for each source.
const OF_SOURCE: Counts<SourceRow, 5> = [
    ("source_gaps", "GAP entries written for the source", |row| row.gaps),
    (
        "source_recovered",
        "Changes that the watch of the source missed, read from the API server's own history instead",
        |row| row.recovered,
    ),
    ("source_suppressed", "Changes that `ignore` kept out of the log of the source", |row| row.suppressed),
    ("audits", "Comparisons of the source with the API server", |row| row.audits),
    ("audit_differences", "Objects that an audit found to differ from the log", |row| row.audit_differences),
];

fn sources(registry: &mut Registry, reader: &Reader, now: Timestamp) -> Result<(), JournalError> {
    let state: Int = register(registry, "source_state", "1 for the state that the source is in");
    let since: Float = register(registry, "source_state_since_timestamp_seconds", "When that state began");
    let objects: Int = register(registry, "source_objects", "Objects known to exist");
    let labels = |row: &SourceRow| vec![("resource", row.resource.full_name()), ("namespace", row.namespace.clone())];
    let rows = reader.sources()?.into_iter().filter(|row| row.active);
    let rows: Vec<(Labels, SourceRow)> = rows.map(|row| (labels(&row), row)).collect();
    count(registry, &OF_SOURCE, &rows);
    let good: Float =
        register(registry, "source_lag_seconds", "Time since the last event, bookmark or list of the source");
    for (labels, row) in &rows {
        states(&state, labels, &SourceState::WORDS, row.state.word());
        since.get_or_create(labels).set(unix(row.state_since));
        objects.get_or_create(labels).set(int(reader.objects_of(row.id)?));
        if let Some(good_at) = row.good_at {
            good.get_or_create(labels).set(seconds_since(good_at, now));
        }
    }
    Ok(())
}

/// Sets 1 for the word of the present state, and 0 for each other.
fn states(family: &Int, labels: &Labels, words: &[&str], word: &str) {
    for name in words {
        let mut labels = labels.clone();
        labels.push(("state", (*name).to_owned()));
        family.get_or_create(&labels).set(i64::from(*name == word));
    }
}

/// What the process counts for each source.
const OF_RUNNING_SOURCE: Counts<(SourceCounts, u64), 10> = [
    ("source_changes", "Changes that watches brought since the start", |row| row.0.changes),
    ("source_received_bytes", "Bytes of lists and watches since the start", |row| row.0.bytes),
    ("source_lists", "Lists begun since the start", |row| row.0.lists),
    ("source_watches", "Watches opened since the start", |row| row.0.watches),
    (
        "source_desyncs",
        "Times the source lost its resume position since the start: the changes since are recovered, or are a GAP",
        |row| row.0.desyncs,
    ),
    ("source_replays", "Changes that came again since the start, as after every resume", |row| row.0.replays),
    ("source_disorders", "Versions that came out of order since the start: the API server errs", |row| row.0.disorders),
    (
        "source_lists_given_up",
        "Lists given up since the start, because they do not end or max_size leaves no room for them",
        |row| row.0.lists_given_up,
    ),
    ("audits_undecided", "Audits since the start that could not be brought to an end", |row| row.0.audits_undecided),
    ("audit_reads", "Objects that audits have asked etcd for by name since the start", |row| row.0.audit_reads),
];

fn reading(registry: &mut Registry, process: &Process) {
    count(registry, &OF_RUNNING_SOURCE, &process.sources);
    let failures: Count = register(registry, "source_failures", "Requests that failed since the start, by reason");
    let held: Gauge<i64, AtomicI64> =
        register(registry, "unjournaled_bytes", "Bytes held for what is read and not on disk yet, over all sources");
    held.set(int(process.unjournaled));
    let waiting: Int = register(registry, "source_lag_entries", "Changes that have been read and are not on disk yet");
    let wrong: Int = register(
        registry,
        "source_cache_differences",
        "Objects that the API server's watch cache shows otherwise than etcd has them",
    );
    let change: Float = register(registry, "source_last_change_timestamp_seconds", "When a change last came");
    let contact: Float = register(registry, "source_last_contact_timestamp_seconds", "When anything last came");
    for (labels, (counts, lag)) in &process.sources {
        for (reason, count) in &counts.failures {
            let mut labels = labels.clone();
            labels.push(("reason", (*reason).to_owned()));
            failures.get_or_create(&labels).inc_by(*count);
        }
        waiting.get_or_create(labels).set(int(*lag));
        wrong.get_or_create(labels).set(int(counts.cache_differences));
        for (family, at) in [(&change, counts.last_change), (&contact, counts.last_contact)] {
            if let Some(at) = at {
                family.get_or_create(labels).set(unix(at));
            }
        }
    }
}

fn sinks(registry: &mut Registry, rows: &[SinkRow], head: u64, now: Timestamp) {
    let state: Int = register(registry, "sink_state", "1 for the state that the sink is in");
    let since: Float = register(registry, "sink_state_since_timestamp_seconds", "When that state began");
    let cursor: Int = register(registry, "sink_cursor_seq", "The newest seq that the sink has for good");
    let entries: Int = register(registry, "sink_lag_entries", "Entries that the sink has not taken yet");
    let seconds: Float = register(registry, "sink_lag_seconds", "Age of the oldest entry that the sink has not taken");
    let delivered: Float =
        register(registry, "sink_last_delivery_timestamp_seconds", "When the sink last took something");
    let dead_letters: Int = register(registry, "sink_dead_letters", "Entries that the sink refused for good");
    let missed: Count =
        register(registry, "sink_missed_entries", "Entries that retention removed before the sink had taken them");
    for row in rows.iter().filter(|row| row.active) {
        let labels: Labels = vec![("sink", row.name.clone()), ("type", row.kind.clone())];
        states(&state, &labels, &SinkState::WORDS, row.state.word());
        since.get_or_create(&labels).set(unix(row.state_since));
        cursor.get_or_create(&labels).set(int(row.cursor.0));
        entries.get_or_create(&labels).set(int(head.saturating_sub(row.cursor.0)));
        seconds.get_or_create(&labels).set(row.oldest_undelivered.map_or(0.0, |time| seconds_since(time, now)));
        if row.delivered_at != 0 {
            delivered.get_or_create(&labels).set(unix(row.delivered_at));
        }
        dead_letters.get_or_create(&labels).set(int(row.dead_letters));
        missed.get_or_create(&labels).inc_by(row.missed);
    }
}

/// What the process counts for each sink.
const OF_RUNNING_SINK: Counts<SinkCounts, 4> = [
    ("sink_delivered_entries", "Entries that the sink has taken since the start", |row| row.delivered),
    ("sink_delivered_bytes", "Bytes of these entries", |row| row.bytes),
    ("sink_failures", "Tries to deliver that failed since the start", |row| row.failures),
    (
        "sink_dropped_updates",
        "Updates of messages that were dropped since the start, because the receiver refused them",
        |row| row.dropped_updates,
    ),
];

fn delivering(registry: &mut Registry, process: &Process) {
    count(registry, &OF_RUNNING_SINK, &process.sinks);
    let tries: Int = register(registry, "sink_tries", "Failed tries in a row, up to now");
    for (labels, counts) in &process.sinks {
        tries.get_or_create(labels).set(int(counts.tries));
    }
}

/// By resource and kind of write, so that the number of time series is bounded: no objects, no managers.
fn churn(registry: &mut Registry, resources: &[(String, OfResource)]) {
    let writes: Count =
        register(registry, "churn_writes", "Writes that watches brought since the start, by what they changed");
    let bytes: Count = register(registry, "churn_bytes", "Bytes of the objects that these writes brought");
    let reverts: Count = register(
        registry,
        "churn_reverts",
        "Times since the start that one manager gave a field back a value which another had changed",
    );
    for (name, of) in resources {
        let labels: Labels = vec![("resource", name.clone())];
        reverts.get_or_create(&labels).inc_by(of.reverts);
        for (class, count) in &of.classes {
            let mut labels = labels.clone();
            labels.push(("class", class.as_str().to_owned()));
            writes.get_or_create(&labels).inc_by(count.writes);
            bytes.get_or_create(&labels).inc_by(count.bytes);
        }
    }
}

/// Only where `[cluster] request_metrics` asks for it.
fn requests(registry: &mut Registry, totals: &Requests) {
    let requests: Count = register(
        registry,
        "apiserver_write_requests",
        "Granted requests that can make a version, as one API server counted them; the versions are those of churn_writes and source_suppressed",
    );
    for (name, verbs) in &totals.counts {
        for (verb, count) in verbs {
            requests.get_or_create(&vec![("resource", name.clone()), ("verb", verb.clone())]).inc_by(*count);
        }
    }
    let problem: Gauge = register(registry, "apiserver_counters_failing", "1 where the last reading of these failed");
    problem.set(i64::from(totals.problem.is_some()));
}

/// Their names are the same for every program, without a prefix.
fn of_the_process(live: &Live) -> Registry {
    let mut common = Registry::default();
    if let Some(started) = live.started {
        let start: One = register(&mut common, "process_start_time_seconds", "When the process started");
        start.set(unix(started.as_microsecond()));
    }
    let gauge = |registry: &mut Registry, name, help, value: u64| {
        let gauge: Gauge<i64, AtomicI64> = register(registry, name, help);
        gauge.set(int(value));
    };
    gauge(&mut common, "process_open_fds", "File descriptors in use", live.open_files);
    gauge(&mut common, "process_max_fds", "The most file descriptors that can be in use", live.open_files_limit);
    if let Some(bytes) = resident_bytes() {
        gauge(&mut common, "process_resident_memory_bytes", "Memory in use", bytes);
    }
    common
}

/// Memory of this process, where the system says it.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()? * 1024)
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

/// Microseconds since 1970 as the seconds that Prometheus takes.
fn unix(micros: i64) -> f64 {
    let seconds = std::time::Duration::from_micros(micros.unsigned_abs()).as_secs_f64();
    if micros < 0 { -seconds } else { seconds }
}

/// Never negative: a clock that was set back is no lag.
fn seconds_since(micros: i64, now: Timestamp) -> f64 {
    let elapsed = now.as_microsecond().saturating_sub(micros).max(0);
    std::time::Duration::from_micros(elapsed.unsigned_abs()).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Alone, because only a daemon with a shared log exposes them.
    #[test]
    fn a_decklog_with_a_shared_log_exposes_its_part_in_it() {
        let mut registry = Registry::with_prefix("decklog");
        let view = HaView {
            role: Role::Leader,
            term: 7,
            behind_units: 2,
            behind_seconds: 0.5,
            backlog_bytes: 1000,
            overflows: 3,
            problem: Some("denied".to_owned()),
            ..HaView::default()
        };
        ha(&mut registry, &view);
        let mut text = String::new();
        encode_registry(&mut text, &registry).unwrap();
        let samples: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            samples,
            [
                "decklog_ha_leader 1",
                "decklog_ha_term 7",
                "decklog_ha_behind_seconds 0.5",
                "decklog_ha_behind_units 2",
                "decklog_ha_backlog_bytes 1000",
                "decklog_ha_unreachable 0",
                "decklog_ha_problem 1",
                "decklog_ha_overflows_total 3",
            ]
        );
    }

    #[test]
    fn each_family_is_declared_once_and_has_the_samples_of_all() {
        let one = "# HELP a A.\n# TYPE a gauge\na{cluster=\"x\"} 1\n# HELP empty E.\n# TYPE empty gauge\n";
        let other = "# HELP empty E.\n# TYPE empty gauge\nempty 7\n# HELP a A.\n# TYPE a gauge\na{cluster=\"y\"} 2\n";
        assert_eq!(
            merge(&[one.to_owned(), other.to_owned()]),
            "# HELP a A.\n# TYPE a gauge\na{cluster=\"x\"} 1\na{cluster=\"y\"} 2\n# HELP empty E.\n# TYPE empty gauge\nempty 7\n# EOF\n"
        );
        assert_eq!(merge(&[]), "# EOF\n");
    }
}
