//! Delivery: one future per sink that reads the journal after the sink's cursor, hands entries over, and moves the
//! cursor once the sink has them for good.
//!
//! What is decided is in `machine`; this is the driver that does it. The journal is the queue: nothing waits in
//! memory but a batch and the one that `reading` reads ahead, so a sink may lag by any amount, and a slow one delays nobody else.
//!
//! It may use `core`, `journal` and `sink`. Begin with [`Settings`], and with `machine`, whose traces are its tests.
//!
//! # Examples
//!
//! ```
//! use decklog::delivery::OnRefused;
//!
//! assert_eq!(OnRefused::default(), OnRefused::Halt, "nothing is left out unless somebody says so");
//! ```

mod cursor;
mod feed;
mod incidents;
mod machine;
mod messages;
mod pace;
mod position;
mod reading;
mod settings;
mod start;
mod stats;
#[cfg(test)]
pub(crate) mod tests;
mod timeline;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::Bytes;
use futures::future::try_join_all;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::core::backoff::Backoff;
use crate::core::filter::Wanted;
use crate::core::model::Seq;
use crate::core::runtime::{self, Listener, watch};
use crate::core::wire::Shape;
use crate::journal::{
    self, CursorMove, Journal, JournalError, Message, Relabeling, SinkJournal, SinkStart, SinkState, StoredEntry,
};
use crate::sink::notify::Notify;
use crate::sink::{Item, Limits, LogPosition, Sink, SinkError};
use feed::{Feed, Pause};
use incidents::Incidents;
use machine::{Effect, Input, SinkOffset, State};
pub(crate) use pace::Pace;
use reading::{Ahead, beside};
pub use settings::{From, OnRefused, Settings};
pub use start::{PositionKnown, positions_known, register};
pub use stats::{SinkCounters, SinkStats};
pub(crate) use timeline::line_for;

/// Backoff after failed deliveries.
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(200), most: Duration::from_secs(30) };
/// Shortest interval between commits of a cursor that only passes filtered entries.
const IDLE_ACKNOWLEDGE_INTERVAL: Duration = Duration::from_secs(1);
/// Time that a delivery in progress may take to finish when delivery is stopped.
const STOP_WAIT: Duration = Duration::from_secs(5);
/// Incidents of a digest that are dead-lettered at once.
const DIGEST_PART: usize = 100;
/// Number of consecutive entries that an output must have before all entries before them count as delivered.
const NEAR: usize = 8;

/// Configuration of one delivery.
pub struct Plan {
    /// The sink's name: its cursor is kept under it.
    pub name: String,
    /// The type of sink, as in the configuration.
    pub kind: &'static str,
    /// Position at which a sink begins that the journal has never seen.
    pub start: SinkStart,
    /// Filter for entries; none to deliver all.
    pub filter: Option<Wanted>,
    /// Projection of each entry.
    pub shape: Shape,
    /// Highest rate in entries per second; none for no limit.
    pub rate: Option<u32>,
    /// Policy for an entry that the sink refuses for ever.
    pub on_refused: OnRefused,
    /// Counters of this sink.
    pub stats: Arc<SinkStats>,
    /// Set once the output was asked what it holds, whatever came of it.
    pub position_known: PositionKnown,
    /// What the sink notifies of; none where every entry is for it.
    pub notify: Option<Notify>,
    /// Name of this machine in the shared log, in which each machine has a local output of its own.
    pub machine: Option<String>,
}

impl std::fmt::Debug for Plan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Plan").field("name", &self.name).field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl Plan {
    /// Returns the name, type and start position for the registration in the journal.
    #[must_use]
    pub fn registration(&self) -> (String, &'static str, SinkStart) {
        (self.name.clone(), self.kind, self.start)
    }

    /// The plan of a configured sink.
    #[must_use]
    pub fn new(config: &Settings) -> Self {
        Self {
            name: config.name.clone(),
            kind: config.kind.word(),
            start: match config.from {
                From::Start => SinkStart::Start,
                From::Now => SinkStart::Now,
                From::Seq(seq) => SinkStart::Seq(Seq(seq)),
            },
            filter: config.wanted(),
            shape: config.shape(),
            rate: config.rate,
            on_refused: config.on_refused,
            stats: Arc::default(),
            position_known: Arc::new(watch::Sender::new(false)),
            notify: config.kind.settings().notify(),
            machine: None,
        }
    }
}

/// Error that ends a delivery.
#[derive(Debug, thiserror::Error)]
pub enum DeliveryError {
    /// The journal failed.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

/// Delivers to one sink until `stop`. Each notification of `reopen` (SIGHUP) makes the sink open its files again and try
/// again what it had halted at.
///
/// A batch that is with the sink when `stop` comes is given a few seconds to finish, so that nothing is delivered
/// twice for no reason; the cursor is never ahead of the output.
///
/// # Errors
/// Where the journal fails.
pub fn run(
    journal: Journal,
    plan: Plan,
    sink: Box<dyn Sink>,
    reopen: Listener,
    stop: CancellationToken,
) -> impl Future<Output = Result<(), DeliveryError>> + Send {
    let driver = Driver {
        journal,
        sink,
        reopen,
        stop,
        feed: None,
        ahead: None,
        read_upto: None,
        batch: Vec::new(),
        own: 0,
        handed: Seq(0),
        entry_bytes: None,
        whole: Vec::new(),
        digests: BTreeMap::new(),
        messages: Vec::new(),
        has_said_unnamed: false,
        acknowledged: Instant::now(),
        moving: None,
        pause: None,
        due: None,
        held: None,
        epochs: None,
        position_known: Arc::clone(&plan.position_known),
        pace: plan.rate.map(Pace::new),
        stats: Arc::clone(&plan.stats),
        local: None,
    };
    drive(driver, plan)
}

async fn drive(mut driver: Driver, plan: Plan) -> Result<(), DeliveryError> {
    let Plan { name, kind, start, filter, shape, rate: _, on_refused, stats: _, position_known: _, notify, machine } =
        plan;
    let (journal, cursor) = driver.journal.sink(&name, kind, start).await?;
    let reader = driver.journal.reader()?;
    let row = reader.sinks()?.into_iter().find(|row| row.name == name);
    let (written, begins) = row.map_or_else(Default::default, |row| (row.written, row.begins));
    let relabelings = reader.relabelings(&name)?;
    if let Some(machine) = machine {
        let delivered = reader.delivered_on(&name, &machine)?;
        driver.local = Some(Local { machine, delivered });
    }
    let mut incidents = notify.map(Incidents::new);
    if let Some(incidents) = incidents.as_mut().filter(|incidents| incidents.notify.updates) {
        reader.messages(&name)?.into_iter().for_each(|message| incidents.know(message));
    }
    driver.feed = Some(Feed { reader, begins, relabelings, filter, shape, incidents });
    let (mut state, mut effects) = State::start(&name, on_refused, cursor, written);
    loop {
        let mut input = None;
        for effect in effects {
            match driver.perform(&journal, effect).await? {
                Outcome::Input(next) => input = Some(next),
                Outcome::Nothing => {}
                Outcome::Stop => {
                    // Its reader is closed before the journal is.
                    driver.drop_ahead().await;
                    return driver.settle().await;
                }
            }
        }
        let input = input.expect("the last effect brings an input");
        (state, effects) = state.on(input);
    }
}

/// Result of an action.
enum Outcome {
    Input(Input),
    Nothing,
    Stop,
}

/// The output of this machine, where each has its own.
struct Local {
    machine: String,
    /// The last seq that it was given for good.
    delivered: Seq,
}

struct Driver {
    journal: Journal,
    sink: Box<dyn Sink>,
    reopen: Listener,
    stop: CancellationToken,
    /// None until delivery begins, while it is on a blocking thread, and until a read ahead is taken.
    feed: Option<Feed>,
    /// The next batch, which is read while the sink has this one.
    ahead: Option<Ahead>,
    /// The last seq that was read, until the sink has the batch.
    read_upto: Option<Seq>,
    batch: Vec<Item>,
    /// Number of leading GAPs that are of this sink alone, which no timeline has recorded.
    own: usize,
    /// The last seq that the sink was given since the daemon began.
    handed: Seq,
    /// Average size of an entry in the last batch, in bytes. None before the first one.
    entry_bytes: Option<usize>,
    /// The entries of the batch as they are dead-lettered where the sink refuses them: whole.
    whole: Vec<Bytes>,
    /// Incidents of the digests in the batch.
    digests: BTreeMap<Seq, Vec<(Seq, Option<Bytes>)>>,
    /// Messages that the sink has since the cursor last moved.
    messages: Vec<Message>,
    /// True once somebody knows that an answer named no message.
    has_said_unnamed: bool,
    acknowledged: Instant,
    /// The last move of the cursor, until somebody has waited for it to be on disk.
    moving: Option<CursorMove>,
    /// Wait before the next read.
    pause: Option<Pause>,
    /// End of that wait, at which the log must have everything that was written before.
    due: Option<Instant>,
    /// Last entry of the output when it was last queried.
    held: Option<LogPosition>,
    /// See [`Sink::epochs`]; not asked again until the position is.
    epochs: Option<BTreeMap<String, Seq>>,
    /// Set once the output was asked for the first time, whatever came of it.
    position_known: PositionKnown,
    pace: Option<Pace>,
    stats: Arc<SinkStats>,
    local: Option<Local>,
}

impl Driver {
    async fn report(&mut self, journal: &SinkJournal, state: SinkState) -> Result<Outcome, DeliveryError> {
        log(journal.name(), &state);
        if state == SinkState::Running {
            self.stats.tries.store(0, Relaxed);
        }
        journal.report(state).await?;
        Ok(Outcome::Nothing)
    }

    async fn perform(&mut self, journal: &SinkJournal, effect: Effect) -> Result<Outcome, DeliveryError> {
        let name = journal.name();
        // What else the journal is asked for comes behind the cursor, and finds it where it is.
        if !matches!(effect, Effect::Read { .. } | Effect::Deliver { .. } | Effect::AwaitEntries { .. }) {
            self.settle().await?;
        }
        let input = match effect {
            Effect::Report(state) => return self.report(journal, state).await,
            Effect::Unexpected(text) => {
                debug_assert!(text.is_empty(), "{text}");
                tracing::error!(sink = name, "{text}; this is a bug");
                return Ok(Outcome::Nothing);
            }
            Effect::Reopen => {
                self.sink.reopen();
                return Ok(Outcome::Nothing);
            }
            Effect::AskPosition(cursor) => match self.ask_position(cursor).await? {
                Some(input) => input,
                None => return Ok(Outcome::Stop),
            },
            Effect::AskWritten(seq) => match self.ask_written(seq).await? {
                Some(input) => input,
                None => return Ok(Outcome::Stop),
            },
            Effect::Compare => {
                let Some(held) = finish(&self.stop.clone(), self.in_output(name)).await else {
                    return Ok(Outcome::Stop);
                };
                held.map_or_else(Input::PositionUnknown, Input::Compared)
            }
            Effect::SwitchTimeline { after } => {
                let input = self.switch_timeline(journal, after).await?;
                self.position_known.send_replace(true);
                input
            }
            Effect::Acknowledge { upto, written } => {
                self.move_cursor(journal, upto, written).await?;
                Input::Done
            }
            Effect::Reset(to) => {
                tracing::warn!(
                    sink = name,
                    after = to.0,
                    "the output has less than decklog delivered to it, so decklog delivers the rest again"
                );
                journal.reset_cursor(to).await?;
                Input::Done
            }
            Effect::DeadLetter(seq, reason) => {
                tracing::warn!(sink = name, seq = seq.0, reason, "entry dead-lettered");
                self.dead_letter(journal, seq, &reason).await?;
                Input::Done
            }
            // Between two batches the sink has nothing to do: the moment to stop, or to do what SIGHUP asks.
            Effect::Read { .. } if self.stop.is_cancelled() => return Ok(Outcome::Stop),
            Effect::Read { .. } if self.asked_to_reopen() => Input::Reopen,
            Effect::Read { after } => match self.gather(after).await {
                Some(outcome) => return Ok(outcome),
                None => self.read(name, after).await?,
            },
            Effect::Deliver { from } => match self.hand_out(name, from).await {
                Some(input) => input,
                None => return Ok(Outcome::Stop),
            },
            Effect::AwaitEntries { after, owed } => return self.await_entries(after, owed).await,
            Effect::Wait { attempt, after } => {
                self.stats.tries.store(u64::from(attempt), Relaxed);
                return Ok(self.pause(Some(wait(attempt, after))).await);
            }
            Effect::AwaitOperator => return Ok(self.pause(None).await),
        };
        Ok(Outcome::Input(input))
    }

    /// Asks the output how far it is. None where delivery stops.
    async fn ask_position(&mut self, cursor: Seq) -> Result<Option<Input>, DeliveryError> {
        self.drop_ahead().await;
        let feed = self.feed.as_ref().expect("nothing is read now");
        let own = timeline::named(&feed.reader, &feed.relabelings, cursor)?;
        let Some(held) = finish(&self.stop, self.sink.position(&own)).await else {
            return Ok(None);
        };
        let input = match held {
            Ok(held) => self.held(held, cursor).await?,
            Err(error) => {
                self.stats.failures.fetch_add(1, Relaxed);
                // Nothing that is reported meanwhile depends on it.
                self.position_known.send_replace(true);
                Input::PositionUnknown(error)
            }
        };
        if !matches!(input, Input::Position(SinkOffset::Past | SinkOffset::Foreign(_))) {
            self.position_known.send_replace(true);
        }
        Ok(Some(input))
    }

    /// Asks whether the output has an entry. None where delivery stops.
    async fn ask_written(&mut self, seq: Seq) -> Result<Option<Input>, DeliveryError> {
        let entry = self.place_of(seq).await?;
        let Some(held) = finish(&self.stop.clone(), self.counts(&entry)).await else { return Ok(None) };
        // Where nobody can look any more, an output that ends before it does not have it.
        let ends_before = |held: &LogPosition| (&held.epoch, held.seq) < (&entry.epoch, entry.seq);
        let reaches = || !self.held.as_ref().is_some_and(ends_before);
        Ok(Some(held.map_or_else(Input::PositionUnknown, |held| Input::HasWritten(held.unwrap_or_else(reaches)))))
    }

    /// Keeps an entry for `replay`; of a digest those of all its incidents that the log still has.
    async fn dead_letter(&mut self, journal: &SinkJournal, seq: Seq, reason: &str) -> Result<(), DeliveryError> {
        for members in self.digests.remove(&seq).unwrap_or_default().chunks(DIGEST_PART) {
            let members = members.to_vec();
            let read = move |feed: &mut Feed| -> Result<Vec<(Seq, Bytes)>, JournalError> {
                let mut lines = Vec::with_capacity(members.len());
                for (seq, line) in members {
                    let read = |entry: StoredEntry| entry.line;
                    let line = line
                        .map_or_else(|| feed.reader.entry(seq).map(|entry| entry.map(read)), |line| Ok(Some(line)))?;
                    lines.extend(line.map(|line| (seq, line)));
                }
                Ok(lines)
            };
            let lines = self.reading(read).await?;
            try_join_all(lines.into_iter().map(|(seq, line)| journal.dead_letter(seq, line, reason))).await?;
        }
        let at = self.batch.partition_point(|item| item.seq < seq);
        journal.dead_letter(seq, self.whole[at].clone(), reason).await?;
        Ok(())
    }

    /// Hands a batch to the sink. None where delivery stops.
    async fn hand_out(&mut self, name: &str, from: usize) -> Option<Input> {
        self.read_ahead();
        let batch = &self.batch[from..];
        self.handed = batch.last().map_or(self.handed, |item| self.handed.max(item.seq));
        let delivering = finish(&self.stop, self.sink.deliver(batch));
        Some(match beside(delivering, self.ahead.as_mut()).await? {
            Ok(()) => {
                self.taken(name, from, self.batch.len());
                Input::Delivered
            }
            Err(failure) => {
                self.drop_ahead().await;
                self.taken(name, from, from + failure.taken);
                self.stats.failures.fetch_add(1, Relaxed);
                Input::Failed { taken: failure.taken, error: failure.error }
            }
        })
    }

    /// Waits for entries after this; with `owed`, only until the cursor may move.
    async fn await_entries(&mut self, after: Seq, owed: bool) -> Result<Outcome, DeliveryError> {
        let mut head = self.journal.head();
        let due = self.acknowledged + IDLE_ACKNOWLEDGE_INTERVAL;
        Ok(Outcome::Input(tokio::select! {
            biased;
            () = self.stop.cancelled() => return Ok(Outcome::Stop),
            () = self.reopen.notified() => Input::Reopen,
            () = tokio::time::sleep_until(due), if owed => Input::Due,
            more = async { head.wait_for(|head| *head > after).await.is_ok() } => {
                if !more {
                    // The writer has ended; asking it for something brings the reason.
                    self.journal.flush().await?;
                }
                Input::Woken
            }
        }))
    }

    /// Waits so long before the next try; for an operator if there is no end to it.
    async fn pause(&mut self, wait: Option<Duration>) -> Outcome {
        tokio::select! {
            biased;
            () = self.stop.cancelled() => Outcome::Stop,
            () = self.reopen.notified() => Outcome::Input(Input::Reopen),
            () = tokio::time::sleep(wait.unwrap_or_default()), if wait.is_some() => Outcome::Input(Input::Woken),
        }
    }

    /// The sink has these of the batch.
    fn taken(&mut self, name: &str, from: usize, to: usize) {
        self.know_messages(name, from, to);
        if let (Some(local), Some(last)) = (&mut self.local, self.batch[from..to].last()) {
            local.delivered = last.seq;
        }
        let bytes: usize = self.batch[from..to].iter().map(|item| item.line.len()).sum();
        self.stats.delivered.fetch_add((to - from) as u64, Relaxed);
        self.stats.bytes.fetch_add(bytes as u64, Relaxed);
        if let Some(pace) = &mut self.pace {
            pace.passed(to - from, Instant::now());
        }
    }

    fn asked_to_reopen(&mut self) -> bool {
        let asked = self.reopen.is_notified();
        self.reopen.mark_seen();
        asked
    }
}

/// Waits for the sink; after `stop` only for a moment, and then gives up on it.
async fn finish<T>(stop: &CancellationToken, work: impl Future<Output = T>) -> Option<T> {
    tokio::pin!(work);
    tokio::select! {
        biased;
        done = &mut work => return Some(done),
        () = stop.cancelled() => {}
    }
    tokio::time::timeout(STOP_WAIT, work).await.ok()
}

/// Returns the wait after `attempt` consecutive failures, at least what the server requested.
pub(crate) fn wait(attempt: u32, after: Option<Duration>) -> Duration {
    BACKOFF.wait(attempt).max(after.unwrap_or_default())
}

fn log(name: &str, state: &SinkState) {
    match state {
        SinkState::Running => tracing::info!(sink = name, "delivering"),
        SinkState::Retrying(text) => tracing::warn!(sink = name, "{text}; trying again"),
        SinkState::Halted(text) => tracing::error!(sink = name, "halted: {text}"),
    }
}
