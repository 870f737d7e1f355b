//! The API server's own request counters, for what no watch can show: a write that changes nothing makes no version.
//!
//! `/metrics` of an API server counts its requests by resource, verb and answer. The growth of those counts that can
//! make a version is kept in the journal, beside the versions that the watches brought over the same time. Each API server
//! counts for itself and begins at 0 when it starts; which one answers behind one address is chance. So a reading says
//! how much the counters of the server that answered have grown since that very one was last read.
//!
//! The same page counts how often the API server has compared its watch cache with etcd, and what it found (beta, on since
//! Kubernetes 1.34, every five minutes). A comparison that failed is a fault of the sources of that resource.
//!
//! # Decision: requests and versions over the same time
//!
//! Context: A write without effect makes no version, so only the API server's counters show it.
//! Decision: Their growth between two readings of one process is stored in unbroken stretches, and versions are counted over
//! the same stretches. A difference is reported only for a resource watched as a whole, without a gap.
//! Cost: A right of its own, and the counters of one replica.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use http::Method;
use jiff::Timestamp;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;

use crate::core::runtime;
use crate::journal::{Journal, JournalError, REQUEST_COUNTERS_INTERVAL, RequestCounts};
use crate::watch::SourceManagerHandle;
use crate::watch::cluster::{Api, next_part};

/// Path of the counters, which takes a right of its own.
pub const PATH: &str = "/metrics";
/// A reading may take this long. In a big cluster it is tens of megabytes.
const LIMIT: Duration = Duration::from_secs(60);
/// A longer line is none of those that are looked for.
const LONGEST: usize = 4096;
/// Number of counters of one API server that are kept: several times as many as the largest clusters have.
const COUNTS: usize = 20_000;
/// Distinguishes at most so many API servers behind one address.
const SERVERS: usize = 16;

/// Verbs of requests that can make a version.
const VERBS: [&str; 6] = ["POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION"];
/// Subresources whose requests make a version of the resource; those of `pods/exec` or `serviceaccounts/token` do not.
const SUBRESOURCES: [&str; 9] =
    ["", "status", "scale", "finalize", "approval", "binding", "eviction", "ephemeralcontainers", "resize"];

/// Group and plural.
type Resource = (String, String);
/// Group, plural and verb.
type Key = (String, String, &'static str);

/// Counters of one API server.
#[derive(Clone, Debug, Default, PartialEq)]
struct Reading {
    /// Start time of the server, seconds since 1970 in its own spelling: no two servers have the same one. Empty if it does not
    /// report it.
    started: String,
    counts: BTreeMap<Key, u64>,
    /// Comparisons of the watch cache with etcd, by group and plural.
    checks: AllChecks,
    /// Audit events that the server could not write or send.
    audit_errors: u64,
}

/// Comparisons of the watch cache with etcd, of each resource.
type AllChecks = BTreeMap<Resource, Checks>;

/// Number of comparisons of a watch cache with etcd.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Checks {
    passed: u64,
    failed: u64,
}

/// Labels of a line of the Prometheus text format. Those that are read here are made of names: none holds a quote or a comma.
fn labels(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let pairs = text.split("\",").filter_map(|label| label.split_once("=\""));
    pairs.map(|(name, value)| (name, value.trim_end_matches('"')))
}

impl Reading {
    /// Takes one line of the Prometheus text format.
    fn take(&mut self, line: &str) {
        if let Some(value) = line.strip_prefix("process_start_time_seconds ") {
            value.trim().clone_into(&mut self.started);
            return;
        }
        if let Some(rest) = line.strip_prefix("apiserver_storage_consistency_checks_total{") {
            self.take_check(rest);
            return;
        }
        if let Some(rest) = line.strip_prefix("apiserver_audit_error_total{") {
            self.audit_errors += rest.rsplit_once('}').and_then(|(_, value)| number(value)).unwrap_or(0);
            return;
        }
        let Some(rest) = line.strip_prefix("apiserver_request_total{") else { return };
        let Some((text, value)) = rest.rsplit_once('}') else { return };
        let (mut group, mut resource, mut verb, mut counts) = ("", "", None, true);
        for (name, value) in labels(text) {
            match name {
                "group" => group = value,
                "resource" => resource = value,
                "verb" => verb = VERBS.into_iter().find(|known| *known == value),
                "code" => counts &= value.starts_with('2'),
                "dry_run" => counts &= value.is_empty(),
                "subresource" => counts &= SUBRESOURCES.contains(&value),
                _ => {}
            }
        }
        let (Some(verb), Some(value)) = (verb.filter(|_| counts), number(value)) else { return };
        if self.counts.len() < COUNTS {
            *self.counts.entry((group.to_owned(), resource.to_owned(), verb)).or_default() += value;
        }
    }

    /// Takes the labels and the value of one count of comparisons. One that came to no answer (`status="error"`) says nothing.
    fn take_check(&mut self, rest: &str) {
        let Some((text, value)) = rest.rsplit_once('}') else { return };
        let of = |wanted| labels(text).find(|(name, _)| *name == wanted).map(|(_, value)| value);
        let (Some(resource), Some(status), Some(value)) = (of("resource"), of("status"), number(value)) else { return };
        let key = (of("group").unwrap_or_default().to_owned(), resource.to_owned());
        if self.checks.len() >= COUNTS {
            return;
        }
        match status {
            "success" => self.checks.entry(key).or_default().passed += value,
            "failure" => self.checks.entry(key).or_default().failed += value,
            _ => {}
        }
    }
}

/// A count as Prometheus writes it: `12`, `1.2345678e+07`.
fn number(text: &str) -> Option<u64> {
    let number: f64 = text.split_whitespace().next()?.parse().ok()?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is in range, and a whole number")]
    (0.0..9e15).contains(&number).then_some(number as u64)
}

/// Makes growth out of counts. It holds no clock and asks nobody.
#[derive(Debug, Default)]
struct Growth {
    servers: HashMap<String, (Timestamp, BTreeMap<Key, u64>)>,
    last: Option<(Timestamp, Resources)>,
}

/// Resources that are watched.
type Resources = BTreeSet<Resource>;

impl Growth {
    /// Returns the increase since the previous reading, for resources that are watched now and were then.
    fn of(&mut self, at: Timestamp, reading: Reading, watched: Resources) -> RequestCounts {
        let last = self.last.replace((at, watched.clone()));
        let (since, then) = last.map_or((None, Resources::new()), |(since, then)| (Some(since), then));
        let before = match (self.servers.remove(&reading.started), since) {
            (Some((_, counts)), _) => Some(counts),
            // It has started since the last reading: all that it counts is new.
            (None, Some(since)) if starts_after(&reading.started, since) => Some(BTreeMap::new()),
            (None, _) => None,
        };
        let requests = before.map(|before| {
            let grown = reading.counts.iter().map(|((group, plural, verb), count)| {
                let before = before.get(&(group.clone(), plural.clone(), *verb)).copied().unwrap_or(0);
                // One that fell began again, although the server does not say so.
                (group.clone(), plural.clone(), *verb, count.checked_sub(before).unwrap_or(*count))
            });
            let watched = |resource: &Resource| watched.contains(resource) && then.contains(resource);
            grown.filter(|(group, plural, _, grown)| *grown > 0 && watched(&(group.clone(), plural.clone()))).collect()
        });
        make_room(&mut self.servers);
        self.servers.insert(reading.started, (at, reading.counts));
        RequestCounts { since, until: at, requests: requests.unwrap_or_default() }
    }
}

/// Watch caches that differ from etcd, as the API servers say of themselves. It holds no clock and asks nobody.
#[derive(Debug, Default)]
struct Consistency {
    servers: HashMap<String, (Timestamp, AllChecks)>,
    /// For each resource the server whose cache differs, and since when that is known.
    failing: BTreeMap<Resource, (String, Timestamp)>,
}

impl Consistency {
    /// Takes one reading, and returns since when the watch cache of each resource is known to differ from etcd.
    fn of(&mut self, at: Timestamp, reading: &Reading) -> BTreeMap<Resource, Timestamp> {
        let before = self.servers.get(&reading.started).map(|(_, checks)| checks.clone()).unwrap_or_default();
        // To restart the server is the remedy. Where another one of several was restarted, the next comparison fails again.
        self.failing.retain(|_, (_, since)| !starts_after(&reading.started, *since));
        for (resource, now) in &reading.checks {
            let then = before.get(resource).copied().unwrap_or_default();
            // A count that fell began again.
            let grew = |now: u64, then: u64| now.checked_sub(then).unwrap_or(now) > 0;
            let (failed, passed) = (grew(now.failed, then.failed), grew(now.passed, then.passed));
            if failed && !passed {
                self.failing.entry(resource.clone()).or_insert_with(|| (reading.started.clone(), at));
            }
            if passed && !failed && self.failing.get(resource).is_some_and(|(server, _)| *server == reading.started) {
                self.failing.remove(resource);
            }
        }
        make_room(&mut self.servers);
        self.servers.insert(reading.started.clone(), (at, reading.checks.clone()));
        self.failing.iter().map(|(resource, (_, since))| (resource.clone(), *since)).collect()
    }
}

/// Audit events that API servers have dropped. It holds no clock and asks nobody.
#[derive(Debug, Default)]
struct Dropped {
    servers: HashMap<String, (Timestamp, u64)>,
    last: Option<Timestamp>,
}

impl Dropped {
    /// Takes one reading, and returns how many events were dropped since the previous one of that server, and since when; none where
    /// there were none, or that is not known.
    fn of(&mut self, at: Timestamp, reading: &Reading) -> Option<(u64, Timestamp)> {
        let last = self.last.replace(at);
        let before = self.servers.remove(&reading.started);
        make_room(&mut self.servers);
        self.servers.insert(reading.started.clone(), (at, reading.audit_errors));
        let (since, before) = match (before, last) {
            (Some(known), _) => known,
            // It has started since the last reading.
            (None, Some(last)) if starts_after(&reading.started, last) => (last, 0),
            (None, _) => return None,
        };
        let dropped = reading.audit_errors.saturating_sub(before);
        (dropped > 0).then_some((dropped, since))
    }
}

/// Drops the server that was read longest ago where there are as many as are kept.
fn make_room<T>(servers: &mut HashMap<String, (Timestamp, T)>) {
    if servers.len() >= SERVERS
        && let Some(oldest) = servers.iter().min_by_key(|(_, (read, _))| *read).map(|(name, _)| name.clone())
    {
        servers.remove(&oldest);
    }
}

/// Notes on each source since when the API server itself says that its watch cache differs from etcd.
fn note(sources: &SourceManagerHandle, failing: &BTreeMap<Resource, Timestamp>) {
    for view in sources.overview().sources {
        let resource = &view.spec.resource;
        let since = failing.get(&(resource.group.clone(), resource.plural.clone())).copied();
        if since.is_some() && view.stats.cache_fault().reported.is_none() {
            tracing::error!(
                source = view.spec.name(),
                "the API server has found that its watch cache differs from etcd: restart that API server"
            );
        }
        view.stats.report_cache(since);
    }
}

fn starts_after(started: &str, moment: Timestamp) -> bool {
    let moment = moment.as_duration().as_secs_f64();
    started.parse::<f64>().is_ok_and(|started| started > moment)
}

/// Reads the counters of the API server now and then, from when every source is up to date until `stop`.
///
/// # Errors
/// Where the journal's writer has stopped.
pub async fn run(
    api: Api,
    sources: SourceManagerHandle,
    journal: Journal,
    stop: CancellationToken,
) -> Result<(), JournalError> {
    let mut ready = sources.ready();
    tokio::select! {
        biased;
        () = stop.cancelled() => return Ok(()),
        // What was missed until now would come as versions without requests.
        ready = ready.wait_for(|ready| *ready) => if ready.is_err() { return Ok(()) },
    }
    let mut ticks = interval(REQUEST_COUNTERS_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut growth, mut consistency, mut reported) = (Growth::default(), Consistency::default(), None);
    let mut dropped = Dropped::default();
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(()),
            _ = ticks.tick() => {}
        }
        let watched = sources.overview().sources.into_iter().map(|view| {
            let resource = &view.spec.resource;
            (resource.group.clone(), resource.plural.clone())
        });
        let watched = watched.collect();
        let read = tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(()),
            read = timeout(LIMIT, read(&api)) => read,
        };
        let read = read.unwrap_or_else(|_elapsed| Err("the API server takes too long to send them".to_owned()));
        match read {
            Ok(reading) => {
                reported = None;
                note(&sources, &consistency.of(runtime::now(), &reading));
                if let Some((events, since)) = dropped.of(runtime::now(), &reading) {
                    let within = (since.as_microsecond(), runtime::now().as_microsecond());
                    journal.audit_dropped(events, within).await?;
                }
                journal.requests(Ok(growth.of(runtime::now(), reading, watched))).await?;
            }
            Err(problem) if reported.as_ref() == Some(&problem) => {}
            Err(problem) => {
                tracing::warn!("the API server's request counters cannot be read: {problem}");
                reported = Some(problem.clone());
                journal.requests(Err(problem)).await?;
            }
        }
    }
}

/// One reading. It is long and mostly of no interest, so that it is looked at as it comes.
async fn read(api: &Api) -> Result<Reading, String> {
    let answer = api.send(Method::GET, PATH, "text/plain", Vec::new()).await.map_err(|failure| failure.to_string())?;
    let mut body = answer.into_body();
    let (mut reading, mut lines) = (Reading::default(), Lines::default());
    while let Some(part) = next_part(&mut body, api.limits().read).await.map_err(|failure| failure.to_string())? {
        lines.take(&part, |line| reading.take(line));
    }
    lines.end(|line| reading.take(line));
    Ok(reading)
}

/// Cuts what comes in parts into lines; longer ones than are looked for are left out.
#[derive(Debug, Default)]
struct Lines {
    begun: Vec<u8>,
    too_long: bool,
}

impl Lines {
    fn take(&mut self, part: &[u8], mut each: impl FnMut(&str)) {
        let mut rest = part;
        while let Some(end) = memchr::memchr(b'\n', rest) {
            self.add(&rest[..end]);
            self.end(&mut each);
            rest = &rest[end + 1..];
        }
        self.add(rest);
    }

    fn add(&mut self, part: &[u8]) {
        self.too_long |= self.begun.len() + part.len() > LONGEST;
        if !self.too_long {
            self.begun.extend_from_slice(part);
        }
    }

    fn end(&mut self, mut each: impl FnMut(&str)) {
        if let (false, Ok(line)) = (self.too_long, std::str::from_utf8(&self.begun)) {
            each(line);
        }
        self.begun.clear();
        self.too_long = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(labels: &str, count: &str) -> String {
        format!("apiserver_request_total{{component=\"apiserver\",{labels}}} {count}")
    }

    fn read_all(lines: &[String]) -> Reading {
        let mut reading = Reading::default();
        let mut cut = Lines::default();
        // In parts that end anywhere.
        for part in (lines.join("\n") + "\n").as_bytes().chunks(7) {
            cut.take(part, |line| reading.take(line));
        }
        cut.end(|line| reading.take(line));
        reading
    }

    #[test]
    fn only_granted_writes_count() {
        let of = |code: &str, dry: &str, group: &str, resource: &str, sub: &str, verb: &str| {
            format!(
                "code=\"{code}\",dry_run=\"{dry}\",group=\"{group}\",resource=\"{resource}\",scope=\"resource\",subresource=\"{sub}\",verb=\"{verb}\",version=\"v1\""
            )
        };
        let reading = read_all(&[
            "# HELP apiserver_request_total [STABLE] Counter".to_owned(),
            "x".repeat(LONGEST * 3),
            line(&of("200", "", "apps", "deployments", "", "PUT"), "11"),
            line(&of("201", "", "apps", "deployments", "", "PUT"), "1"),
            line(&of("200", "", "apps", "deployments", "scale", "PATCH"), "1.5e+06"),
            line(&of("409", "", "apps", "deployments", "", "PUT"), "100"),
            line(&of("200", "All", "apps", "deployments", "", "PUT"), "100"),
            line(&of("200", "", "apps", "deployments", "", "GET"), "100"),
            line(&of("200", "", "", "pods", "exec", "POST"), "100"),
            line(&of("201", "", "", "pods", "binding", "POST"), "2"),
            line(&of("200", "", "", "secrets", "", "PUT"), "100"),
            line(&of("200", "", "", "pods", "", "PUT"), "NaN"),
            "process_start_time_seconds 1.79e+09".to_owned(),
        ]);
        assert_eq!(reading.started, "1.79e+09");
        let counts: Vec<String> =
            reading.counts.iter().map(|((_, plural, verb), count)| format!("{plural} {verb} {count}")).collect();
        assert_eq!(counts, ["pods POST 2", "secrets PUT 100", "deployments PATCH 1500000", "deployments PUT 12"]);
    }

    fn reading(started: &str, puts: u64) -> Reading {
        let key = ("apps".to_owned(), "deployments".to_owned(), "PUT");
        Reading { started: started.to_owned(), counts: BTreeMap::from([(key, puts)]), ..Reading::default() }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// Since when, until when, and by how much the PUTs of deployments have grown.
    fn grown(growth: &mut Growth, second: i64, reading: Reading) -> (Option<i64>, i64, u64) {
        let watched = Resources::from([("apps".to_owned(), "deployments".to_owned())]);
        let counts = growth.of(at(second), reading, watched);
        let puts = counts.requests.iter().map(|(.., count)| count).sum();
        (counts.since.map(Timestamp::as_second), counts.until.as_second(), puts)
    }

    #[test]
    fn counters_begin_anew_with_the_server() {
        let mut growth = Growth::default();
        assert_eq!(grown(&mut growth, 1000, reading("500", 70)), (None, 1000, 0), "what was before is of no stretch");
        assert_eq!(grown(&mut growth, 1020, reading("500", 75)), (Some(1000), 1020, 5));
        assert_eq!(grown(&mut growth, 1040, reading("1030", 3)), (Some(1020), 1040, 3), "a restart");
        assert_eq!(grown(&mut growth, 1060, reading("1030", 4)), (Some(1040), 1060, 1));
        // Where nothing says when it started, a count that fell shows it.
        let mut growth = Growth::default();
        grown(&mut growth, 1000, reading("", 70));
        assert_eq!(grown(&mut growth, 1020, reading("", 2)), (Some(1000), 1020, 2));
    }

    #[test]
    fn another_server_behind_the_same_address_is_not_taken_for_growth() {
        let mut growth = Growth::default();
        grown(&mut growth, 1000, reading("500", 70));
        assert_eq!(grown(&mut growth, 1020, reading("400", 9000)), (Some(1000), 1020, 0));
        assert_eq!(grown(&mut growth, 1040, reading("500", 71)), (Some(1020), 1040, 1));
        assert_eq!(grown(&mut growth, 1060, reading("400", 9002)), (Some(1040), 1060, 2));
        for other in 0..100 {
            grown(&mut growth, 1061 + other, reading(&other.to_string(), 1));
        }
        assert!(growth.servers.len() <= SERVERS);
    }

    #[test]
    fn what_comes_to_be_watched_is_counted_from_then_on() {
        let mut growth = Growth::default();
        growth.of(at(1000), reading("500", 70), Resources::new());
        assert_eq!(grown(&mut growth, 1020, reading("500", 75)), (Some(1000), 1020, 0), "versions of then are missing");
        assert_eq!(grown(&mut growth, 1040, reading("500", 78)), (Some(1020), 1040, 3));
    }

    #[test]
    fn a_comparison_that_failed_is_a_fault_until_one_passes_or_the_server_is_another() {
        let checks = |started: &str, passed: u64, failed: u64| {
            let of = |status: &str, count: u64| {
                format!(
                    "apiserver_storage_consistency_checks_total{{group=\"apps\",resource=\"deployments\",status=\"{status}\"}} {count}"
                )
            };
            let lines = [of("success", passed), of("failure", failed), of("error", 9)];
            read_all(&[lines.as_slice(), &[format!("process_start_time_seconds {started}")]].concat())
        };
        /// A reading: its time, the server, comparisons that passed and that failed, and since when the cache differs.
        type Look = (i64, &'static str, u64, u64, Option<i64>);
        let histories: [(&str, &[Look]); 6] = [
            ("all is well", &[(1000, "500", 3, 0, None), (1300, "500", 4, 0, None)]),
            (
                "one fails, and the next passes",
                &[
                    (1000, "500", 3, 0, None),
                    (1300, "500", 3, 1, Some(1300)),
                    (1600, "500", 3, 2, Some(1300)),
                    (1900, "500", 4, 2, None),
                ],
            ),
            ("all have failed before the first reading", &[(1000, "500", 0, 2, Some(1000))]),
            ("one of those before the first reading", &[(1000, "500", 7, 2, None), (1300, "500", 7, 3, Some(1300))]),
            ("the server is restarted", &[(1000, "500", 0, 1, Some(1000)), (1300, "1200", 1, 0, None)]),
            (
                "another server of several passes",
                &[
                    (1000, "500", 0, 1, Some(1000)),
                    (1300, "400", 5, 0, Some(1000)),
                    (1600, "400", 6, 0, Some(1000)),
                    (1900, "500", 1, 1, None),
                ],
            ),
        ];
        for (what, readings) in histories {
            let mut consistency = Consistency::default();
            for (second, started, passed, failed, since) in readings {
                let failing = consistency.of(at(*second), &checks(started, *passed, *failed));
                let found = failing.get(&("apps".to_owned(), "deployments".to_owned())).map(|since| since.as_second());
                assert_eq!(found, *since, "{what}, at {second}");
            }
        }
    }

    #[test]
    fn dropped_audit_events_are_counted_once() {
        let errors = |started: &str, counts: [u64; 2]| {
            let mut reading = Reading::default();
            reading.take(&format!("process_start_time_seconds {started}"));
            for (plugin, count) in ["webhook", "log"].into_iter().zip(counts) {
                reading.take(&format!("apiserver_audit_error_total{{plugin=\"{plugin}\"}} {count}"));
            }
            reading
        };
        let mut dropped = Dropped::default();
        for (second, started, counts, expected) in [
            // What was dropped before is not of this log.
            (1000, "500", [7, 0], None),
            (1020, "500", [7, 0], None),
            (1040, "500", [9, 1], Some((3, 1020))),
            (1060, "500", [9, 1], None),
            // Another of several API servers, which is old.
            (1080, "400", [50, 0], None),
            (1100, "500", [10, 1], Some((1, 1060))),
            // One that has just been started.
            (1120, "1110", [2, 0], Some((2, 1100))),
        ] {
            let found = dropped.of(at(second), &errors(started, counts));
            assert_eq!(found.map(|(events, since)| (events, since.as_second())), expected, "at {second}");
        }
    }
}
