//! The way from one audit log into the journal, and on to the join.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::atomic::AtomicI64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::file::{Batch, FilePosition, Tail};
use super::follow::{News, micros, now};
use super::lines::Line;
use super::listen::{Handler, Refusal};
use super::{Outcome, Reason, Received, Rules, Settings, join, read, read_line, unwritten};
use crate::core::k8s::audited::AuditedRequest;
use crate::core::net::server::Peer;
use crate::journal::{AuditBatch, AuditCounts, Journal, JournalError, Reader, SourceRow};

/// Interval at which a quiet audit log is said to be read up to now.
const QUIET_INTERVAL: Duration = Duration::from_secs(1);
/// Interval at which that is stored.
const NOTE_INTERVAL: Duration = Duration::from_secs(10);
/// Time after which a sender should send again what could not be committed.
const BUSY_WAIT: Duration = Duration::from_secs(5);
/// Expectation of a sender.
const EXPECTED: &str = "send events of audit.k8s.io as JSON, one, an EventList or a line each, or what Firehose, Pub/Sub or an Event Hub brings of them";

/// One audit log.
#[derive(Debug)]
pub(super) struct Feed {
    name: String,
    settings: Settings,
    journal: Journal,
    reader: Mutex<Reader>,
    rules: Rules,
    news: mpsc::Sender<News>,
    /// Time before which requests are passed over, microseconds since 1970.
    floor: i64,
    /// Time of the newest answer so far, microseconds since 1970; 0 where there was none.
    newest: AtomicI64,
    /// Counts of deliveries that were refused, which are not on disk yet.
    refused: Mutex<AuditCounts>,
}

impl Feed {
    pub(super) fn new(
        journal: Journal,
        settings: Settings,
        rules: Rules,
        news: mpsc::Sender<News>,
    ) -> Result<Self, JournalError> {
        let reader = Mutex::new(journal.reader()?);
        Ok(Self {
            name: settings.name(),
            settings,
            journal,
            reader,
            rules,
            news,
            floor: i64::MIN,
            newest: AtomicI64::new(0),
            refused: Mutex::default(),
        })
    }

    /// Passes over requests that were answered before a time.
    pub(super) fn since(self, floor: i64) -> Self {
        Self { floor, ..self }
    }

    /// Reads the file from where it was left, until `stop`.
    ///
    /// # Errors
    /// Where the journal cannot be read or written.
    pub(super) async fn follow(self, stop: CancellationToken) -> Result<(), JournalError> {
        let Some(path) = &self.settings.file else { return Ok(()) };
        let row = self.reader().audit_logs()?.into_iter().find(|row| row.name == self.name);
        let from = row.and_then(|row| serde_json::from_str::<FilePosition>(&row.position?).ok());
        let mut tail = Tail::open(path, from);
        let (trouble, mut tick) = (tail.trouble(), ticks());
        let (mut caught_up, mut noted) = (false, Instant::now());
        loop {
            let quiet = tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                batch = tail.next() => {
                    caught_up = batch.caught_up;
                    noted = Instant::now();
                    if !self.take(batch).await? {
                        return Ok(());
                    }
                    continue;
                }
                _ = tick.tick() => caught_up && trouble.borrow().is_none(),
            };
            // A file is looked at more often than this.
            if quiet && !self.is_read_up_to(now(), &mut noted).await? {
                return Ok(());
            }
        }
    }

    /// Says of an audit log that comes by itself that it is complete up to its lag, until `stop`.
    ///
    /// # Errors
    /// Where the journal cannot be written.
    pub(super) async fn wait(self: Arc<Self>, stop: CancellationToken) -> Result<(), JournalError> {
        let (mut tick, mut noted) = (ticks(), Instant::now());
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                _ = tick.tick() => {}
            }
            self.count_refused().await?;
            if !self.is_read_up_to(now(), &mut noted).await? {
                return Ok(());
            }
        }
    }

    /// Tells the join that everything is read that was answered before a time. Reports whether there is a join.
    async fn is_read_up_to(&self, time: i64, noted: &mut Instant) -> Result<bool, JournalError> {
        let complete = time.saturating_sub(micros(self.settings.lag()));
        if noted.elapsed() >= NOTE_INTERVAL {
            *noted = Instant::now();
            let audit = AuditBatch { log: self.name.clone(), complete, read_at: time, ..AuditBatch::default() };
            self.journal.audited(audit).await?;
        }
        let news = News { log: self.name.clone(), complete, requests: Vec::new() };
        Ok(self.news.send(news).await.is_ok())
    }

    async fn take(&self, batch: Batch) -> Result<bool, JournalError> {
        let mut sorted = Sorted::behind(self.newest.load(Relaxed));
        for line in &batch.lines {
            sorted.take(read_line(&line.bytes), self);
        }
        let upto = if batch.caught_up { now() } else { sorted.newest };
        let position = serde_json::to_string(&batch.position).expect("numbers and texts always serialise");
        let lost = batch.lost.map(|lost| (lost.since.as_microsecond(), now()));
        let doubt = either(lost, sorted.unread(true));
        sorted.counts.lost += u64::from(batch.lost.is_some());
        let read_at = if batch.caught_up { now() } else { 0 };
        self.commit(sorted, AuditBatch { position: Some(position), read_at, doubt, ..AuditBatch::default() }, upto)
            .await
    }

    /// Commits requests with the rest of `batch`, and hands them to the join. Reports whether there is a join.
    async fn commit(&self, sorted: Sorted, batch: AuditBatch, upto: i64) -> Result<bool, JournalError> {
        let sources = sources(&self.reader())?;
        let is_wanted = |request: &AuditedRequest| request.completed == 0 || join::answered_by(request) >= self.floor;
        let is_watched = |request: &AuditedRequest| {
            // A definition that goes takes its objects with it.
            request.resource == "customresourcedefinitions"
                || sources.contains_key(&(request.group.clone(), request.resource.clone()))
        };
        // What is refused in a namespace that no source watches is for nobody who asks this log.
        let is_in_place = |request: &AuditedRequest| {
            let of = sources.get(&(request.group.clone(), request.resource.clone()));
            of.is_some_and(|of| of.iter().any(|source| source.covers(&request.namespace)))
        };
        // What is older is passed over.
        let first_at = sorted.oldest.map_or(0, |oldest| oldest.max(self.floor));
        let Sorted { mut requests, refused, counts, probe, newest, .. } = sorted;
        self.newest.fetch_max(newest, Relaxed);
        requests.retain(|request| is_watched(request) && is_wanted(request));
        let redactor = Arc::clone(&self.rules.borrow());
        let redacted = |mut request: AuditedRequest| {
            redactor.redact_sender(&mut request.sender);
            request
        };
        let requests: Vec<_> = requests.into_iter().map(redacted).collect();
        let refused = refused.into_iter().filter(is_wanted).filter(is_in_place);
        let refused = refused.map(redacted).map(unwritten::refused).collect();
        let complete = upto.saturating_sub(micros(self.settings.lag())).max(0);
        let log = self.name.clone();
        let requests_kept = requests.clone();
        let audit = AuditBatch {
            log: log.clone(),
            complete,
            requests: requests_kept,
            refused,
            counts,
            first_at,
            probe,
            ..batch
        };
        self.journal.audited(audit).await?;
        Ok(self.news.send(News { log, requests, complete }).await.is_ok())
    }

    fn reader(&self) -> MutexGuard<'_, Reader> {
        self.reader.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Commits what a sender has sent.
    async fn receive(&self, received: Vec<Received>) -> Result<(), Refusal> {
        let mut sorted = Sorted::behind(self.newest.load(Relaxed));
        for one in received {
            sorted.take(one, self);
        }
        let AuditCounts { read, foreign, unreadable, .. } = sorted.counts;
        let (problem, upto, known) = (sorted.problem.take(), sorted.newest, read + sorted.beside);
        if known + foreign == 0 && unreadable > 0 {
            let why = problem.unwrap_or_default();
            let refusal = Refusal::NotUnderstood(format!("none of it is an audit event: {why}"));
            return Err(self.refuse(&sorted.counts, refusal));
        }
        if known == 0 && foreign > 0 {
            let text = format!(
                "these events are of the cluster {:?}, and [[audit_log]] {:?} is for {:?}, which its key `cluster` names",
                sorted.foreign.as_deref().unwrap_or_default(),
                self.name,
                self.settings.cluster.as_deref().unwrap_or_default(),
            );
            return Err(self.refuse(&sorted.counts, Refusal::Forbidden(text)));
        }
        let doubt = sorted.unread(false);
        self.commit(sorted, AuditBatch { doubt, ..AuditBatch::default() }, upto)
            .await
            .map(drop)
            .map_err(|_| Refusal::Busy(BUSY_WAIT))
    }

    /// Counts what a sender is refused for: `status` and `check` say from the counts why nothing comes of it.
    fn refuse(&self, counts: &AuditCounts, refusal: Refusal) -> Refusal {
        self.refused().add(counts);
        refusal
    }

    fn refused(&self) -> MutexGuard<'_, AuditCounts> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Commits the counts of refused deliveries, however many there were.
    async fn count_refused(&self) -> Result<(), JournalError> {
        let counts = std::mem::take(&mut *self.refused());
        if counts == AuditCounts::default() {
            return Ok(());
        }
        self.journal.audited(AuditBatch { log: self.name.clone(), counts, ..AuditBatch::default() }).await
    }
}

/// Returns why a delivery is refused of which nothing is an audit event.
fn unfit(received: &Received) -> String {
    let problem = received.records.iter().find_map(|record| match &record.outcome {
        Outcome::Unreadable(why) => Some(why.as_str()),
        Outcome::Request(_) | Outcome::Other(_) => None,
    });
    format!("none of it is an audit event: {}", problem.unwrap_or(EXPECTED))
}

/// Handler of a receiver.
#[derive(Debug)]
pub(super) struct Handing(pub(super) Arc<Feed>);

impl Handler for Handing {
    async fn body(&self, body: Bytes, _: Peer) -> Result<Option<String>, Refusal> {
        let received = read(&body, None);
        if received.is_of_another_kind() {
            let refusal = Refusal::NotUnderstood(unfit(&received));
            let mut sorted = Sorted::default();
            sorted.take(received, &self.0);
            return Err(self.0.refuse(&sorted.counts, refusal));
        }
        let id = received.request_id.clone();
        self.0.receive(vec![received]).await.map(|()| id)
    }

    async fn lines(&self, lines: Vec<Line>, _: Peer) -> Result<(), Refusal> {
        self.0.receive(lines.iter().map(|line| read_line(&line.bytes)).collect()).await
    }
}

/// Records by what becomes of them.
#[derive(Debug, Default)]
struct Sorted {
    requests: Vec<AuditedRequest>,
    /// Requests that another one was ahead of.
    refused: Vec<AuditedRequest>,
    counts: AuditCounts,
    /// Number of records that are understood and no events.
    beside: u64,
    /// Time of the newest answer, microseconds since 1970.
    newest: i64,
    /// Object of the newest request of `decklog check`.
    probe: Option<String>,
    /// Cluster of the first record of another one.
    foreign: Option<Arc<str>>,
    /// Why the first unreadable record is unreadable.
    problem: Option<String>,
    /// Time of the oldest answer of these, microseconds since 1970; none where there is none.
    oldest: Option<i64>,
    /// Time since which a record that could not be read may be from, until the next one says up to when.
    torn: Option<i64>,
    /// Time of the records that could not be read, by those before and behind them.
    between: Option<(i64, i64)>,
}

/// Longest time from a write to its record.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// Returns the time from the first to the last of two.
fn either(one: Option<(i64, i64)>, other: Option<(i64, i64)>) -> Option<(i64, i64)> {
    match (one, other) {
        (Some(one), Some(other)) => Some((one.0.min(other.0), one.1.max(other.1))),
        (one, other) => one.or(other),
    }
}

impl Sorted {
    /// Begins behind records of which the newest answer was at a time.
    fn behind(newest: i64) -> Self {
        Self { newest, ..Self::default() }
    }

    /// Returns the time of writes that the records which cannot be read may say, so that nothing follows from what the others do not:
    /// in a file between its neighbours, else in all of the time that these have.
    fn unread(&self, is_in_order: bool) -> Option<(i64, i64)> {
        let last = self.torn.map(|since| (if since == 0 { now() } else { since }, now()));
        let all = |(since, until): (i64, i64)| {
            (self.oldest.map_or(since, |oldest| oldest.min(since)), until.max(self.newest))
        };
        let (since, until) = either(self.between, last).map(|time| if is_in_order { time } else { all(time) })?;
        Some((since.saturating_sub(micros(ANSWER_MAX)), until))
    }

    /// Notes the time of an answer.
    fn answered(&mut self, time: i64) {
        if time == 0 {
            return;
        }
        // A clock that is ahead says nothing of what is still to come.
        let time = time.min(now());
        let torn = self.torn.take().map(|since| (if since == 0 { time } else { since }, time));
        self.between = either(self.between, torn);
        self.newest = self.newest.max(time);
        self.oldest = Some(self.oldest.map_or(time, |oldest| oldest.min(time)));
    }

    fn take(&mut self, received: Received, feed: &Feed) {
        let wanted = feed.settings.cluster.as_deref();
        for record in received.records {
            let is_foreign = wanted.is_some_and(|wanted| record.cluster.as_deref().is_some_and(|name| name != wanted));
            if is_foreign {
                self.counts.foreign += 1;
                self.foreign = self.foreign.take().or(record.cluster);
                continue;
            }
            match record.outcome {
                Outcome::Request(request) => {
                    self.counts.read += 1;
                    self.counts.cut += u64::from(request.cut);
                    self.answered(request.completed);
                    if is_probe(&request.name) {
                        self.probe = Some(request.name.clone());
                    }
                    // One that failed keeps others from being named.
                    if request.may_have_written() {
                        self.requests.push(*request);
                    } else if request.is_refused_for_another() {
                        self.refused.push(*request);
                    }
                }
                Outcome::Other(Reason::Stage | Reason::NoObject) => self.counts.read += 1,
                Outcome::Other(Reason::NotAudit) => {
                    self.counts.no_event += 1;
                    self.beside += 1;
                }
                Outcome::Other(Reason::OtherLog | Reason::Control) => self.beside += 1,
                Outcome::Unreadable(why) => {
                    self.counts.unreadable += 1;
                    self.torn.get_or_insert(self.newest);
                    self.problem.get_or_insert(why);
                }
            }
        }
    }
}

/// Beginning of the names of objects that do not exist, and that `decklog check` asks for to see whether the event arrives.
pub const PROBE: &str = "decklog-check-";
/// Length of such a name at most; others that begin so are no request of `decklog check`.
const PROBE_MAX: usize = 63;

fn is_probe(name: &str) -> bool {
    name.starts_with(PROBE) && name.len() <= PROBE_MAX
}

/// Bytes at the beginning of a file in which its first request is looked for.
const HEAD_BYTES: u64 = 1 << 20;

/// Returns the time of the first request in a file, microseconds since 1970.
pub(super) fn begins(path: &Path) -> Option<i64> {
    let mut head = Vec::new();
    File::open(path).ok()?.take(HEAD_BYTES).read_to_end(&mut head).ok()?;
    let mut records = head.split(|byte| *byte == b'\n').flat_map(|line| read_line(line).records);
    records.find_map(|record| match record.outcome {
        Outcome::Request(request) => Some(request.completed).filter(|time| *time > 0),
        Outcome::Other(_) | Outcome::Unreadable(_) => None,
    })
}

fn ticks() -> tokio::time::Interval {
    let mut ticks = interval(QUIET_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// Sources that are watched or ever were, by group and plural of the resource. A daemon that starts knows only once the API server has
/// answered which of them it still watches, and reads the audit log before.
fn sources(reader: &Reader) -> Result<HashMap<(String, String), Vec<SourceRow>>, JournalError> {
    let mut sources: HashMap<_, Vec<SourceRow>> = HashMap::new();
    for source in reader.sources()? {
        sources.entry((source.resource.group.clone(), source.resource.plural.clone())).or_default().push(source);
    }
    Ok(sources)
}

#[cfg(test)]
mod tests;
