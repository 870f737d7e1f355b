//! Drives one source: carries out what its [machine](super::machine) decides, and brings the answers back.
//!
//! Nothing is decided here but how to wait. Dropping the future at any moment is safe: whatever the journal has not
//! taken is asked for again.

mod auditing;
mod overlap;
mod stream;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use super::Shared;
use super::lister::{ListRequest, Lister, Listing};
use super::machine::{Anomaly, Effect, End, Input, Machine};
use super::news::Event;
use super::recover::{self, Recovery, RecoveryCost};
use super::requests::Stop;
use super::stats::SourceStats;
use overlap::Overlap;

use crate::core::backoff::random_up_to;
use crate::core::model::{ResourceVersion, SourceSpec, Why};
use crate::core::runtime::{Listener, watch};
use crate::core::spelling::kubernetes::NamespacePattern;
use crate::journal::{Inconsistency, JournalError, SourceId, SourceJournal, SourceMemory, SourceState};
use crate::watch::cluster::{Api, Failure};

/// End of a source that was not stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Its resource is not served any more.
    Gone,
    /// The journal is a standby's, which neither lists nor recovers: the source begins again where the shared log is by now.
    Elsewhere,
}

/// One source on its way.
pub(super) struct Driver {
    shared: Arc<Shared>,
    spec: SourceSpec,
    /// The field selector of what is asked for: with the namespaces that are left out by name, unless the API server does not
    /// take that. Whatever it takes, nothing of them gets past us.
    fields: String,
    id: SourceId,
    journal: SourceJournal,
    machine: Machine,
    /// The position that it began with.
    began_at: Option<ResourceVersion>,
    stats: Arc<SourceStats>,
    began: Instant,
    /// The list in progress.
    listing: Listing,
    /// Since when whoever answers may be another cluster: the connection was lost then.
    unverified_since: Option<Instant>,
    /// The client that is known to speak with the cluster of the journal, and the way to it alone.
    generation: Option<u64>,
    api: Api,
    /// Since when there have been answers that are failures. It counts until the source has settled.
    failing: Option<Instant>,
    /// Rest before the next action.
    rest: Duration,
    /// Cost of the recovery since the position was lost.
    cost: Option<RecoveryCost>,
    /// Notified of the rollbacks that sources have found by themselves.
    rollbacks: Listener,
    /// Another source reported the newest rollback, and we have not watched since.
    warned: bool,
    /// Inconsistency of the watch with the journal.
    inconsistency: Inconsistency,
    /// Time of the next audit; none unless a watch is open, because a watch catches up.
    audit_due: Option<Instant>,
    /// A watch that the last one left open, from a version up to which the last one has brought everything.
    overlap: Option<Overlap>,
    /// The next watch is that one.
    goes_on: bool,
    /// When a watch last brought something, or a list everything; none before the first.
    watched: Option<Instant>,
    /// Set while a watch may bring what happened when nobody watched.
    missed: bool,
    /// Time since which a watch is open that has not brought everything from before it; none if it has.
    behind: Option<Timestamp>,
    /// Version up to which the previous watch has brought everything.
    repeats: Option<ResourceVersion>,
    /// Channel of the position for the audit: everything up to it was given to the journal.
    position: watch::Sender<Option<ResourceVersion>>,
}

impl Driver {
    pub(super) fn new(
        shared: Arc<Shared>,
        spec: SourceSpec,
        journal: SourceJournal,
        memory: SourceMemory,
        stats: Arc<SourceStats>,
    ) -> Self {
        let id = journal.id();
        let began_at = memory.checkpoint.resume.clone();
        let machine = Machine::new(memory, shared.timings.thresholds).recovering(shared.timings.recover.is_some());
        shared.revisions.introduce(id, &spec);
        let rollbacks = shared.rollbacks.listen();
        let inconsistency = journal.inconsistency();
        let api = shared.api.clone();
        let fields = spec.fields(NamespacePattern::is_name);
        Self {
            shared,
            spec,
            fields,
            id,
            journal,
            machine,
            began_at,
            stats,
            began: Instant::now(),
            listing: Listing::default(),
            unverified_since: None,
            generation: None,
            api,
            failing: None,
            rest: Duration::ZERO,
            cost: None,
            rollbacks,
            warned: false,
            inconsistency,
            audit_due: None,
            overlap: None,
            goes_on: false,
            watched: None,
            missed: false,
            behind: None,
            repeats: None,
            position: watch::Sender::default(),
        }
    }

    /// Runs until the resource is gone or the journal fails.
    pub(super) async fn run(mut self) -> Result<Outcome, JournalError> {
        let mut input = Input::Start;
        loop {
            let action = self.step(input).await?;
            // The machine always says what to do next, except while a watch is open, which is inside of `act`.
            let Some(action) = action else {
                tracing::error!(source = self.spec.name(), "the machine has nothing to do; this is a bug");
                input = Input::Ended(End::Disconnected("nothing to do".to_owned()));
                continue;
            };
            let writes =
                matches!(action, Effect::List { .. } | Effect::Recover { .. } | Effect::Commit { .. } | Effect::Gone);
            if writes && self.shared.journal.is_standby() {
                self.shared.journal.other_position(&self.spec, self.began_at).await?;
                return Ok(Outcome::Elsewhere);
            }
            if action == Effect::Gone {
                self.journal.gone().await?;
                return Ok(Outcome::Gone);
            }
            input = self.act(action).await?;
        }
    }

    /// Gives the machine an input, does what needs no answer, and returns what does.
    async fn step(&mut self, input: Input) -> Result<Option<Effect>, JournalError> {
        let listed = matches!(input, Input::Page { .. } | Input::Endless(_));
        if matches!(input, Input::NoRoom(_)) {
            // Only a person can help.
            self.stats.settle(&self.shared);
        }
        if matches!(input, Input::Committed) {
            self.listing = Listing::default();
        }
        if let Input::Failed(failure) = &input {
            self.stats.failed(failure);
            tracing::debug!(source = self.spec.name(), %failure, "a request failed");
        }
        if matches!(
            input,
            Input::Failed(Failure::Away(_) | Failure::Unreachable(_) | Failure::Tls(_))
                | Input::Ended(End::Disconnected(_) | End::Idle)
                // It lacks so much that whoever answers may be somebody else.
                | Input::ListTooShort(_)
        ) {
            self.unverified_since = Some(Instant::now());
        }
        let effects = self.machine.step(self.began.elapsed(), input);
        let action = self.carry_out(effects).await?;
        if listed && matches!(action, Some(Effect::Wait { .. })) {
            // The page came, and was of no use.
            self.settle_for(&Failure::Server(String::new()));
        }
        Ok(action)
    }

    /// Does what needs no answer, and returns what does.
    async fn carry_out(&mut self, effects: Vec<Effect>) -> Result<Option<Effect>, JournalError> {
        self.shared.progressed();
        let mut action = None;
        for effect in effects {
            match effect {
                Effect::Report(state) => self.report(state).await?,
                Effect::Bookmark(version) => self.journal.bookmark(version).await?,
                Effect::Refresh => self.shared.api.refresh().await,
                Effect::Reconnect => self.shared.api.renew().await,
                Effect::Count(anomaly) => self.count(anomaly).await?,
                Effect::Throttle(rest) => self.rest = rest,
                Effect::Probe(_)
                | Effect::AskLatest
                | Effect::List { .. }
                | Effect::Recover { .. }
                | Effect::Commit { .. }
                | Effect::Watch(_)
                | Effect::Wait { .. }
                | Effect::AwaitServer { .. }
                | Effect::Confirm
                | Effect::Gone => action = Some(effect),
            }
        }
        Ok(action)
    }

    async fn count(&mut self, anomaly: Anomaly) -> Result<(), JournalError> {
        self.stats.count(anomaly);
        if let Anomaly::Desync(why) = anomaly {
            self.journal.mark_desynced(why).await?;
        }
        if anomaly == Anomaly::Desync(Why::Rollback) {
            self.warn_others();
            self.shared.revisions.reset();
            self.shared.version_clock.reset();
        }
        match anomaly {
            // The report that comes with it says more.
            Anomaly::Replay | Anomaly::ListGivenUp => {}
            Anomaly::Disorder => {
                tracing::warn!(source = self.spec.name(), "the API server sent versions out of order");
            }
            Anomaly::Desync(_) | Anomaly::Inconsistent => {
                let why = if let Anomaly::Desync(why) = anomaly { why } else { Why::Audit };
                self.shared.news.tell(self.spec.name(), Event::Lost(why.as_str()));
            }
        }
        Ok(())
    }

    /// Reports a rollback to the other sources, unless one of them has reported it: their open watches would not show it.
    fn warn_others(&mut self) {
        if !self.warned && !self.rollbacks.is_notified() {
            self.shared.rollbacks.notify();
        }
        self.rollbacks.mark_seen();
    }

    /// Reports whether another source has found a rollback that this one has not checked for yet.
    fn warning(&mut self) -> bool {
        let warning = self.rollbacks.is_notified();
        if warning {
            self.rollbacks.mark_seen();
            self.warned = true;
        }
        warning
    }

    async fn report(&mut self, state: SourceState) -> Result<(), JournalError> {
        match &state {
            SourceState::Degraded(text) => {
                self.shared.news.tell(self.spec.name(), Event::Degraded(text.clone()));
            }
            SourceState::Watching => {
                // That all watch after the start the daemon says in a line of its own.
                if matches!(self.stats.state(), SourceState::Degraded(_)) {
                    self.shared.news.tell(self.spec.name(), Event::Again);
                } else {
                    tracing::debug!(source = self.spec.name(), "watching");
                }
                self.stats.settle(&self.shared);
            }
            SourceState::Listing(_) | SourceState::Recovering | SourceState::Waiting | SourceState::Gone => {}
        }
        self.stats.report(&self.journal, state).await
    }

    async fn act(&mut self, action: Effect) -> Result<Input, JournalError> {
        if !matches!(action, Effect::List { .. } | Effect::Commit { .. }) {
            // Whatever comes after a list, however it ended: others may list now.
            self.listing = Listing::default();
        }
        if !matches!(action, Effect::Probe(_) | Effect::Watch(_)) {
            self.overlap = None;
        }
        if matches!(action, Effect::Commit { .. }) {
            // What is listed here is known since just now.
            self.watched = Some(Instant::now());
        }
        if matches!(action, Effect::List { token: None, .. } | Effect::Recover { .. }) {
            // Either is as good as an audit.
            self.audit_due = None;
        }
        tokio::time::sleep(std::mem::take(&mut self.rest)).await;
        let asks = matches!(
            action,
            Effect::Probe(_)
                | Effect::AskLatest
                | Effect::List { .. }
                | Effect::Recover { .. }
                | Effect::Watch(_)
                | Effect::Confirm
        );
        let verified = if asks { self.verify().await } else { Ok(()) };
        let unselected = self.unselected();
        let again = (self.fields != unselected).then(|| action.clone());
        let mut answer = match verified {
            Ok(()) => self.answer(action).await,
            Err(stop) => Err(stop),
        };
        if let (Err(Stop::Failure(Failure::Refused(_))), Some(action)) = (&answer, again)
            && self.lister().select(&unselected).await.is_ok()
        {
            tracing::info!(
                source = self.spec.name(),
                "the API server does not select by metadata.namespace: decklog leaves the namespaces out by itself"
            );
            self.fields = unselected;
            answer = self.answer(action).await;
        }
        match answer {
            Ok(input) => Ok(input),
            Err(Stop::Failure(failure)) => {
                let failure = self.explain(failure);
                self.settle_for(&failure);
                Ok(Input::Failed(failure))
            }
            Err(Stop::Journal(error)) => Err(error),
        }
    }

    async fn answer(&mut self, action: Effect) -> Result<Input, Stop> {
        match action {
            Effect::Probe(version) => self.lister().probe(&version).await.map_err(Stop::from),
            Effect::AskLatest => self.lister().latest(&self.machine).await.map_err(Stop::from),
            Effect::List { token, paged, at } => {
                let mut listing = std::mem::take(&mut self.listing);
                let listed = self
                    .lister()
                    .list(&mut listing, ListRequest { token, paged, at, doubts: self.machine.doubts() })
                    .await;
                self.listing = listing;
                listed
            }
            Effect::Recover { confirmed } => Box::pin(self.recover(confirmed)).await,
            Effect::Commit { version, why, confirmed } => {
                self.lister().commit(&self.listing, version, why, confirmed).await
            }
            Effect::Watch(_) if self.warning() => Ok(Input::RollbackSuspected),
            Effect::Watch(_) if self.inconsistency.is_found() => Ok(Input::Inconsistent),
            Effect::Watch(version) => match self.watch(&version).await {
                Err(Stop::Failure(Failure::Expired)) if let Some(overlap) = &self.overlap => {
                    self.goes_on = true;
                    Ok(Input::Overlapped(overlap.from.clone()))
                }
                ended => ended,
            },
            Effect::Wait { tries, at_least } => {
                tokio::time::sleep(self.pause(tries, at_least)).await;
                Ok(Input::Waited)
            }
            Effect::AwaitServer { tries, any } => Ok(self.wait_for_the_server(tries, any).await),
            Effect::Confirm => Ok(Input::Confirmed(self.shared.lacks(&self.spec.resource).await)),
            Effect::Gone
            | Effect::Refresh
            | Effect::Reconnect
            | Effect::Throttle(_)
            | Effect::Bookmark(_)
            | Effect::Report(_)
            | Effect::Count(_) => Ok(Input::Waited),
        }
    }

    /// Makes sure that whom we are about to ask is the cluster of the journal.
    async fn verify(&mut self) -> Result<(), Stop> {
        let generation = self.shared.api.generation().await;
        if self.unverified_since.is_some() || self.generation != Some(generation) {
            self.shared.verify(self.unverified_since, generation).await?;
            self.unverified_since = None;
            self.overlap = None;
            self.generation = Some(generation);
            self.api = self.shared.api.pinned(generation);
        }
        Ok(())
    }

    /// A source settles also where only a person can help, or where the API server answers and never well.
    fn settle_for(&mut self, failure: &Failure) {
        let settled = match failure {
            Failure::Forbidden(_) | Failure::Refused(_) | Failure::NotFound | Failure::Unreadable(_) => true,
            Failure::Busy(_) | Failure::Server(_) | Failure::Undecodable(_) | Failure::Oversize(_) => {
                let since = *self.failing.get_or_insert_with(Instant::now);
                since.elapsed() >= self.shared.timings.thresholds.settle
            }
            Failure::Expired
            | Failure::Ahead
            | Failure::Unauthorized
            | Failure::Tls(_)
            | Failure::Away(_)
            | Failure::Unreachable(_) => false,
        };
        if settled {
            self.stats.settle(&self.shared);
        }
    }

    fn pause(&self, tries: u32, at_least: Duration) -> Duration {
        let backoff = &self.shared.timings.backoff;
        // What the server asked for is honoured in full, and spread so that not everybody comes back at once.
        if at_least.is_zero() { backoff.wait(tries) } else { at_least + backoff.wait(1) }
    }

    /// Waits until the API server answers, and a moment longer, so that not everybody comes at once. Whoever could not
    /// reach it tries again by himself now and then, in case that nobody else finds out.
    async fn wait_for_the_server(&self, tries: u32, any: bool) -> Input {
        let timings = &self.shared.timings;
        let longest = match (any, tries) {
            (false, _) => self.pause(tries, Duration::ZERO),
            (true, 0 | 1) => timings.backoff.first,
            (true, _) => timings.backoff.most / 2 + random_up_to(timings.backoff.most / 2),
        };
        match tokio::time::timeout(longest, self.shared.prober.answers(&self.shared, any)).await {
            Ok(()) => {
                tokio::time::sleep(random_up_to(timings.scatter)).await;
                Input::ServerReachable
            }
            Err(_elapsed) => Input::Waited,
        }
    }

    /// Says what a permission is missing for, and how to get it.
    fn explain(&self, failure: Failure) -> Failure {
        let Failure::Forbidden(_) = failure else { return failure };
        let scope = self.spec.namespace.as_ref().map(|scope| format!(" in {scope}")).unwrap_or_default();
        Failure::Forbidden(format!(
            "not allowed to list or watch {}{scope}; `decklog rbac` prints the permissions to grant",
            self.spec.resource.full_name()
        ))
    }

    fn lister(&self) -> Lister<'_> {
        Lister {
            shared: &self.shared,
            api: &self.api,
            spec: &self.spec,
            fields: &self.fields,
            journal: &self.journal,
            stats: &self.stats,
        }
    }

    /// The field selector with which no namespace is left out by the API server.
    fn unselected(&self) -> String {
        self.spec.fields(|_| false)
    }

    /// Finds out what happened since the position was lost.
    async fn recover(&mut self, confirmed: bool) -> Result<Input, Stop> {
        let Some(bounds) = self.shared.timings.recover else { return Ok(Input::Unrecoverable) };
        if self.fields != self.unselected() {
            // Refused in a question about the past it would be a gap.
            self.lister().select(&self.fields).await?;
        }
        let recovery = Recovery {
            shared: &self.shared,
            api: &self.api,
            generation: self.generation.unwrap_or_default(),
            spec: &self.spec,
            fields: &self.fields,
            id: self.id,
            journal: &self.journal,
            stats: &self.stats,
            bounds,
            cost: self.cost.get_or_insert_with(RecoveryCost::new),
            confirmed,
            has_past: true,
        };
        let outcome = recovery.recover().await?;
        let source = self.spec.name();
        Ok(match outcome {
            recover::Outcome::Done(version) => {
                tracing::debug!(source, %version, "this source has recovered what its watch missed");
                self.shared.news.tell(source, Event::Recovered);
                Input::Recovered(version)
            }
            recover::Outcome::Compacted(version) => {
                tracing::debug!(source, %version, "the changes before this version are compacted");
                self.shared.news.tell(source, Event::Compacted);
                Input::Compacted(version)
            }
            recover::Outcome::Unrecoverable(text) => {
                tracing::warn!(source, "the missed changes cannot be recovered: {text}");
                Input::Unrecoverable
            }
            recover::Outcome::NoRoom(text) => Input::NoRoom(text),
            recover::Outcome::ListTooShort(text) => {
                tracing::warn!(source, "{text}");
                Input::ListTooShort(text)
            }
        })
    }
}
