//! Delivery: one future per sink that reads the journal after the sink's cursor, hands entries over, and moves the
//! cursor once the sink has them for good.
//!
//! What is decided is in [`machine`]; this is the driver that does it. The journal is the queue: nothing waits in
//! memory but one batch, so a sink may lag by any amount, and a slow one delays nobody else.

mod machine;
#[cfg(test)]
mod tests;

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::config::{self, OnRefused};
use crate::journal::{Journal, JournalError, Reader, SinkStart, SinkState, StoredEntry};
use crate::model::Seq;
use crate::sink::{Item, Limits, Position, Sink};
use crate::wire::{self, Payload};
use machine::{Effect, Input, State};

/// The first wait after a failure is drawn from nothing up to this, each later one from twice as much.
const FIRST_WAIT: Duration = Duration::from_millis(200);
/// The longest wait that is drawn.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// How often at most the cursor moves when it only passes entries that the filter leaves out.
const IDLE_ACKNOWLEDGE: Duration = Duration::from_secs(1);
/// How long a delivery that is under way may take to finish when delivery is stopped.
const STOP_WAIT: Duration = Duration::from_secs(5);

/// Whether an entry is wanted: the filter of a sink. An entry that it cannot be evaluated for is wanted.
pub type Wanted = Box<dyn Fn(&[u8]) -> bool + Send>;

/// What is delivered, and how.
pub struct Plan {
    /// The sink's name: its cursor is kept under it.
    pub name: String,
    /// The type of sink, as in the configuration.
    pub kind: &'static str,
    /// Where a sink begins that the journal has never seen.
    pub start: SinkStart,
    /// Which entries; none for all.
    pub filter: Option<Wanted>,
    /// How much of an entry.
    pub payload: Payload,
    /// What happens to an entry that will never be taken.
    pub on_refused: OnRefused,
}

impl std::fmt::Debug for Plan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Plan").field("name", &self.name).field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl Plan {
    /// The plan of a configured sink, with its compiled filter.
    #[must_use]
    pub fn new(config: &config::Sink, filter: Option<Wanted>) -> Self {
        Self {
            name: config.name.clone(),
            kind: crate::sink::kind(&config.kind),
            start: match config.from {
                config::From::Start => SinkStart::Start,
                config::From::Now => SinkStart::Now,
                config::From::Seq(seq) => SinkStart::Seq(Seq(seq)),
            },
            filter,
            payload: config.payload,
            on_refused: config.on_refused,
        }
    }
}

/// Why delivery ended without being asked to.
#[derive(Debug, thiserror::Error)]
pub enum DeliveryError {
    /// The journal failed.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The output holds entries of this journal that the journal does not have: it was restored from a backup, or
    /// copied. Going on would give seqs a second time.
    #[error("{}", ahead(sink, *held, *head))]
    Ahead {
        /// Which sink.
        sink: String,
        /// The last seq that its output holds.
        held: Seq,
        /// The last seq that the journal has.
        head: Seq,
    },
}

fn ahead(sink: &str, held: Seq, head: Seq) -> String {
    format!(
        "the sink {sink} already holds entry {held} of this journal, which ends at {head}: the journal was restored from an older copy, and must begin a new epoch before it delivers"
    )
}

/// Delivers to one sink until `stop`. Each change of `reopen` (SIGHUP) makes the sink open its files anew and try
/// again what it had halted at.
///
/// A batch that is with the sink when `stop` comes is given a few seconds to finish, so that nothing is delivered
/// twice for no reason; the cursor is never ahead of the output.
///
/// # Errors
/// Where the journal fails, or holds less than the sink's output.
pub async fn run(
    journal: Journal,
    plan: Plan,
    sink: Box<dyn Sink>,
    reopen: watch::Receiver<u64>,
    stop: CancellationToken,
) -> Result<(), DeliveryError> {
    let cursor = journal.sink(&plan.name, plan.kind, plan.start).await?;
    let (mut state, mut effects) = State::start(&plan.name, &journal.epoch(), plan.on_refused, cursor);
    let reader = Some(Source { reader: journal.reader()?, filter: plan.filter, payload: plan.payload });
    let mut driver = Driver { journal, sink, reopen, stop, reader, batch: Vec::new(), acknowledged: Instant::now() };
    loop {
        let mut input = None;
        for effect in effects {
            match driver.perform(state.name(), effect).await? {
                Next::Input(next) => input = Some(next),
                Next::Nothing => {}
                Next::Stop => return Ok(()),
            }
        }
        let input = input.expect("the last effect brings an input");
        (state, effects) = state.on(input);
    }
}

/// What an effect led to.
enum Next {
    Input(Input),
    Nothing,
    Stop,
}

/// Reads entries and makes of them what the sink gets. Moved to a blocking thread and back.
struct Source {
    reader: Reader,
    filter: Option<Wanted>,
    payload: Payload,
}

/// What was read.
struct Batch {
    upto: Option<Seq>,
    /// Whether entries were missing before the first.
    hole: bool,
    items: Vec<Item>,
}

impl Source {
    fn read(&mut self, after: Seq, limits: Limits) -> Result<Batch, JournalError> {
        let entries = self.reader.entries_after(after, limits.entries.max(1), limits.bytes)?;
        let upto = entries.last().map(|entry| entry.seq);
        // A sink that begins with the oldest entry lacks nothing.
        let hole = after > Seq(0) && entries.first().is_some_and(|first| first.seq > after.next());
        let wanted = |entry: &StoredEntry| self.filter.as_ref().is_none_or(|filter| filter(&entry.line));
        let mut items = Vec::with_capacity(entries.len());
        for entry in entries.into_iter().filter(wanted) {
            let line = wire::payload(&entry.line, self.payload).map_err(|error| {
                JournalError::Corrupt(format!("entry {} is {error}; run `decklog verify`", entry.seq))
            })?;
            items.push(Item { seq: entry.seq, kind: entry.kind, line });
        }
        Ok(Batch { upto, hole, items })
    }
}

struct Driver {
    journal: Journal,
    sink: Box<dyn Sink>,
    reopen: watch::Receiver<u64>,
    stop: CancellationToken,
    /// None only while it is on a blocking thread.
    reader: Option<Source>,
    batch: Vec<Item>,
    acknowledged: Instant,
}

impl Driver {
    async fn perform(&mut self, name: &str, effect: Effect) -> Result<Next, DeliveryError> {
        let input = match effect {
            Effect::Report(state) => {
                tell(name, &state);
                self.journal.report_sink(name, state).await?;
                return Ok(Next::Nothing);
            }
            Effect::Reopen => {
                self.sink.reopen();
                return Ok(Next::Nothing);
            }
            Effect::GiveUp { held, head } => {
                let text = ahead(name, held, head);
                tracing::error!(sink = name, "{text}");
                self.journal.report_sink(name, SinkState::Halted(text)).await?;
                return Err(DeliveryError::Ahead { sink: name.to_owned(), held, head });
            }
            Effect::AskPosition(cursor) => {
                let cursor = Position { epoch: self.journal.epoch(), seq: cursor };
                let Some(held) = finish(&self.stop, self.sink.position(&cursor)).await else { return Ok(Next::Stop) };
                let head = *self.journal.head().borrow();
                held.map_or_else(Input::NotHeld, |held| Input::Held { held, head })
            }
            Effect::Acknowledge(upto) => {
                self.journal.acknowledge(name, upto).await?;
                self.acknowledged = Instant::now();
                Input::Done
            }
            Effect::Reset(to) => {
                // Usual for a sink with a filter, which leaves out again what comes after its last line.
                tracing::info!(sink = name, after = to.0, "going on after the last entry that the output holds");
                self.journal.reset_cursor(name, to).await?;
                Input::Done
            }
            Effect::SetAside(seq, reason) => {
                tracing::warn!(sink = name, seq = seq.0, reason, "entry set aside");
                self.journal.set_aside(name, seq, &reason).await?;
                Input::Done
            }
            // Between two batches nothing is under way: the moment to stop, or to do what SIGHUP asks.
            Effect::Read { .. } if self.stop.is_cancelled() => return Ok(Next::Stop),
            Effect::Read { .. } if self.asked_to_reopen() => Input::Reopen,
            Effect::Read { after } => self.read(name, after).await?,
            Effect::Deliver { from } => {
                let batch = &self.batch[from..];
                match finish(&self.stop, self.sink.deliver(batch)).await {
                    Some(Ok(())) => Input::Delivered,
                    Some(Err(failure)) => Input::Failed { taken: failure.taken, error: failure.error },
                    None => return Ok(Next::Stop),
                }
            }
            Effect::AwaitEntries { after, owed } => {
                let mut head = self.journal.head();
                let due = self.acknowledged + IDLE_ACKNOWLEDGE;
                tokio::select! {
                    biased;
                    () = self.stop.cancelled() => return Ok(Next::Stop),
                    Ok(()) = self.reopen.changed() => Input::Reopen,
                    () = tokio::time::sleep_until(due), if owed => Input::Due,
                    more = async { head.wait_for(|head| *head > after).await.is_ok() } => {
                        if !more {
                            // The writer has ended; asking it for something tells why.
                            self.journal.flush().await?;
                        }
                        Input::Woken
                    }
                }
            }
            Effect::Wait { attempt, after } => {
                let wait = backoff(attempt, fastrand::f64()).max(after.unwrap_or_default());
                tokio::select! {
                    biased;
                    () = self.stop.cancelled() => return Ok(Next::Stop),
                    Ok(()) = self.reopen.changed() => Input::Reopen,
                    () = tokio::time::sleep(wait) => Input::Woken,
                }
            }
            Effect::AwaitOperator => tokio::select! {
                biased;
                () = self.stop.cancelled() => return Ok(Next::Stop),
                Ok(()) = self.reopen.changed() => Input::Reopen,
            },
        };
        Ok(Next::Input(input))
    }

    fn asked_to_reopen(&mut self) -> bool {
        let asked = self.reopen.has_changed().unwrap_or(false);
        self.reopen.mark_unchanged();
        asked
    }

    async fn read(&mut self, name: &str, after: Seq) -> Result<Input, DeliveryError> {
        let mut source = self.reader.take().expect("one read at a time");
        let limits = self.sink.limits();
        let read = tokio::task::spawn_blocking(move || {
            let batch = source.read(after, limits);
            (source, batch)
        });
        let (source, batch) = match read.await {
            Ok(done) => done,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The runtime is shutting down and drops this future next.
                Err(_) => std::future::pending().await,
            },
        };
        self.reader = Some(source);
        let batch = match batch {
            Ok(batch) => batch,
            // A damaged entry stops the sinks that need it, and nothing else.
            Err(JournalError::Corrupt(text)) => return Ok(Input::Unreadable(text)),
            Err(error) => return Err(error.into()),
        };
        let Some(upto) = batch.upto else { return Ok(Input::Nothing) };
        if batch.hole {
            let first = batch.items.first().map_or(upto.0, |item| item.seq.0);
            tracing::warn!(sink = name, after = after.0, first, "the journal no longer has the entries in between");
        }
        self.batch = batch.items;
        let wanted = self.batch.iter().map(|item| item.seq).collect();
        Ok(Input::Read { upto, wanted, due: self.acknowledged.elapsed() >= IDLE_ACKNOWLEDGE })
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

/// Full jitter: any time up to a bound that doubles with each attempt.
fn backoff(attempt: u32, random: f64) -> Duration {
    let bound = FIRST_WAIT.saturating_mul(1 << attempt.saturating_sub(1).min(16)).min(LONGEST_WAIT);
    bound.mul_f64(random)
}

fn tell(name: &str, state: &SinkState) {
    match state {
        SinkState::Running => tracing::info!(sink = name, "delivering"),
        SinkState::Retrying(text) => tracing::warn!(sink = name, "{text}; trying again"),
        SinkState::Halted(text) => tracing::error!(sink = name, "halted: {text}"),
    }
}
