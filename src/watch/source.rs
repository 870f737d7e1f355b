//! Drives one source: carries out what its [machine](super::machine) decides, and brings the answers back.
//!
//! Nothing is decided here but how to wait. Dropping the future at any moment is safe: whatever the journal has not
//! taken is asked for again.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use kube::client::Body;
use kube::core::params::{ListParams, VersionMatch, WatchParams};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::audit::Auditor;
use super::classify::{self, Failure};
use super::decode::{self, Line};
use super::frame::{Item, Items, Lines, Oversize};
use super::machine::{Effect, End, Input, Machine, Oddity};
use super::recover::{self, Recovery, Spent};
use super::stats::SourceStats;
use super::{Shared, random_up_to};
use crate::ambient::{self, Listener, watch};
use crate::cluster::{Api, next_part};
use crate::journal::{Audit, JournalError, Share, SourceId, SourceMemory, SourceState, WatchChange};
use crate::model::{Observed, Redacted, Resource, ResourceVersion, SourceSpec, Verb, Why};

/// Staged objects go to the journal when there are this many bytes of them.
const STAGE_BYTES: usize = 1 << 20;
/// Fewer objects than this may go at once without a second look, unless none is left.
pub(super) const MANY: u64 = 10;
/// A watch may end this much before the time that it was opened for, as we see it.
const AGREED: Duration = Duration::from_millis(500);
/// A list's progress is reported once in this many objects.
const PROGRESS: u64 = 5000;

/// So many objects tell whether the versions of lists say anything about objects.
const SOME: u32 = 100;
/// Of what is longer a short list reads only what names it.
const GLANCE_LIMIT: usize = 256 << 10;
/// What is wrong with a server that says so.
const OTHER_KIND: &str = "the API server sent an object of another kind than was asked for";
/// Why a large object is given up for the moment.
pub(super) const SLOW: &str = "an object comes so slowly that others wait for its memory";

/// How a source ended by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Its resource is not served any more.
    Gone,
}

/// One source on its way.
pub(super) struct Driver {
    shared: Arc<Shared>,
    spec: SourceSpec,
    id: SourceId,
    machine: Machine,
    stats: Arc<SourceStats>,
    began: Instant,
    /// Held while a list is in progress.
    listing: Option<OwnedSemaphorePermit>,
    listed: u64,
    /// Since when whoever answers may be another cluster: the connection was lost then.
    doubt: Option<Instant>,
    /// The client that is known to speak with the cluster of the journal, and the way to it alone.
    generation: Option<u64>,
    api: Api,
    /// Since when there have been answers that are failures. It counts until the source has settled.
    failing: Option<Instant>,
    /// How long to rest before the next action.
    rest: Duration,
    /// What was spent on recovering since the position was lost.
    spent: Option<Spent>,
    /// Rings for the rollbacks that sources have found by themselves.
    rollbacks: Listener,
    /// Another source told us of the newest rollback, and we have not watched since.
    warned: bool,
    /// Sources whose watch the journal could not follow.
    contradictions: watch::Receiver<BTreeSet<SourceId>>,
    /// When the journal is compared with the API server; only while a watch is open, because that is what catches up.
    audit_due: Option<Instant>,
    /// What the audit waits for: everything up to here was handed to the journal.
    position: watch::Sender<Option<ResourceVersion>>,
}

/// An audit on its way.
type Auditing = Pin<Box<dyn Future<Output = Result<Option<Audit>, Stop>> + Send>>;

/// The newest version that objects of a list have.
#[derive(Debug, Default)]
struct Newest(Option<ResourceVersion>);

impl Newest {
    fn meet(&mut self, version: &str) {
        let version = ResourceVersion::new(version);
        if self.0.as_ref().is_none_or(|newest| version.compare(newest).is_some_and(Ordering::is_gt)) {
            self.0 = Some(version);
        }
    }

    fn is_after(&self, version: &ResourceVersion) -> bool {
        self.0.as_ref().is_some_and(|newest| newest.compare(version).is_some_and(Ordering::is_gt))
    }
}

/// Either what was asked for failed, or the journal did and everything ends.
pub(super) enum Stop {
    Failure(Failure),
    Journal(JournalError),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

impl From<JournalError> for Stop {
    fn from(error: JournalError) -> Self {
        Self::Journal(error)
    }
}

impl Driver {
    pub(super) fn new(shared: Arc<Shared>, spec: SourceSpec, memory: SourceMemory, stats: Arc<SourceStats>) -> Self {
        let id = memory.id;
        let machine = Machine::new(memory, shared.timings.patience).recovering(shared.timings.recover.is_some());
        shared.revisions.introduce(id, &spec);
        let rollbacks = shared.rollbacks.listen();
        let contradictions = shared.journal.contradictions();
        let api = shared.api.clone();
        Self {
            shared,
            spec,
            id,
            machine,
            stats,
            began: Instant::now(),
            listing: None,
            listed: 0,
            doubt: None,
            generation: None,
            api,
            failing: None,
            rest: Duration::ZERO,
            spent: None,
            rollbacks,
            warned: false,
            contradictions,
            audit_due: None,
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
                input = Input::Ended(End::Cut("nothing to do".to_owned()));
                continue;
            };
            if action == Effect::Gone {
                self.shared.journal.source_gone(self.id).await?;
                return Ok(Outcome::Gone);
            }
            input = self.act(action).await?;
        }
    }

    /// Gives the machine an input, does what needs no answer, and returns what does.
    async fn step(&mut self, input: Input) -> Result<Option<Effect>, JournalError> {
        let listed = matches!(input, Input::Page { .. });
        if let Input::Failed(failure) = &input {
            self.stats.failed(failure);
            tracing::debug!(source = self.spec.name(), %failure, "a request failed");
        }
        if matches!(
            input,
            Input::Failed(Failure::Away(_) | Failure::Unreachable(_) | Failure::Tls(_))
                | Input::Ended(End::Cut(_) | End::Silent)
        ) {
            self.doubt = Some(Instant::now());
        }
        self.shared.progressed();
        let mut action = None;
        for effect in self.machine.step(self.began.elapsed(), input) {
            match effect {
                Effect::Report(state) => self.report(state).await?,
                Effect::Bookmark(version) => self.shared.journal.bookmark(self.id, version).await?,
                Effect::Refresh => self.shared.api.refresh().await,
                Effect::Reconnect => self.shared.api.renew().await,
                Effect::Count(oddity) => self.count(oddity).await?,
                Effect::Rest(rest) => self.rest = rest,
                Effect::Probe(_)
                | Effect::AskLatest
                | Effect::List { .. }
                | Effect::Recover { .. }
                | Effect::Commit { .. }
                | Effect::Watch(_)
                | Effect::Wait { .. }
                | Effect::Await { .. }
                | Effect::Confirm
                | Effect::Gone => action = Some(effect),
            }
        }
        if listed && matches!(action, Some(Effect::Wait { .. })) {
            // The page came, and was of no use.
            self.settle_for(&Failure::Server(String::new()));
        }
        Ok(action)
    }

    async fn count(&mut self, oddity: Oddity) -> Result<(), JournalError> {
        self.stats.odd(oddity);
        if let Oddity::Desync(why) = oddity {
            self.shared.journal.distrust(self.id, why).await?;
        }
        if oddity == Oddity::Desync(Why::Rollback) {
            self.warn_others();
            self.shared.revisions.forget();
        }
        match oddity {
            Oddity::Replay => {}
            Oddity::Disorder => {
                tracing::warn!(source = self.spec.name(), "the API server sent versions out of order");
            }
            Oddity::Desync(why) => {
                tracing::warn!(
                    source = self.spec.name(),
                    why = why.as_str(),
                    "changes may be missing: asking for them, and the log gets a GAP where they cannot be had"
                );
            }
        }
        Ok(())
    }

    /// Tells the other sources of a rollback that nobody has told us of, as their open watches would not.
    fn warn_others(&mut self) {
        if !self.warned && !self.rollbacks.has_rung() {
            self.shared.rollbacks.ring();
        }
        self.rollbacks.forget();
    }

    /// Whether another source has found a rollback that we have not looked for yet.
    fn warning(&mut self) -> bool {
        let warning = self.rollbacks.has_rung();
        if warning {
            self.rollbacks.forget();
            self.warned = true;
        }
        warning
    }

    async fn report(&mut self, state: SourceState) -> Result<(), JournalError> {
        match &state {
            SourceState::Degraded(text) => {
                tracing::warn!(source = self.spec.name(), "{text}");
            }
            SourceState::Watching => {
                tracing::info!(source = self.spec.name(), "watching");
                self.stats.settle(&self.shared);
            }
            SourceState::Listing(_) | SourceState::Recovering | SourceState::Waiting | SourceState::Gone => {}
        }
        self.stats.set_state(&state);
        self.shared.journal.report_source(self.id, state).await
    }

    async fn act(&mut self, action: Effect) -> Result<Input, JournalError> {
        if !matches!(action, Effect::List { .. } | Effect::Commit { .. }) {
            // Whatever comes after a list, however it ended: others may list now.
            self.listing = None;
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
        let answer = match action {
            _ if verified.is_err() => verified.map(|()| Input::Waited),
            Effect::Probe(version) => self.probe(&version).await.map_err(Stop::from),
            Effect::AskLatest => self.latest().await.map_err(Stop::from),
            Effect::List { token, paged, at } => self.list(token, paged, at).await,
            Effect::Recover { sure } => self.recover(sure).await,
            Effect::Commit { version, why, sure } => self.commit(version, why, sure).await,
            Effect::Watch(_) if self.warning() => Ok(Input::Warned),
            Effect::Watch(_) if self.contradictions.borrow_and_update().contains(&self.id) => Ok(Input::Differs),
            Effect::Watch(version) => self.watch(&version).await,
            Effect::Wait { tries, at_least } => {
                tokio::time::sleep(self.pause(tries, at_least)).await;
                Ok(Input::Waited)
            }
            Effect::Await { tries, any } => Ok(self.wait_for_the_server(tries, any).await),
            Effect::Confirm => Ok(Input::Confirmed(self.shared.lacks(&self.spec.resource).await)),
            Effect::Gone
            | Effect::Refresh
            | Effect::Reconnect
            | Effect::Rest(_)
            | Effect::Bookmark(_)
            | Effect::Report(_)
            | Effect::Count(_) => Ok(Input::Waited),
        };
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

    /// Makes sure that whom we are about to ask is the cluster of the journal.
    async fn verify(&mut self) -> Result<(), Stop> {
        let generation = self.shared.api.generation().await;
        if self.doubt.is_some() || self.generation != Some(generation) {
            self.shared.verify(self.doubt, generation).await?;
            self.doubt = None;
            self.generation = Some(generation);
            self.api = self.shared.api.under(generation);
        }
        Ok(())
    }

    /// A source settles also where only a person can help, or where the API server answers and never well.
    fn settle_for(&mut self, failure: &Failure) {
        let settled = match failure {
            Failure::Forbidden(_) | Failure::Refused(_) | Failure::NotFound => true,
            Failure::Busy(_) | Failure::Server(_) | Failure::Undecodable(_) | Failure::Oversize(_) => {
                let since = *self.failing.get_or_insert_with(Instant::now);
                since.elapsed() >= self.shared.timings.patience.settle
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

    /// Full jitter: any time up to a bound that doubles with each failure.
    fn pause(&self, tries: u32, at_least: Duration) -> Duration {
        let timings = &self.shared.timings;
        let bound =
            timings.backoff_first.saturating_mul(1 << tries.saturating_sub(1).min(16)).min(timings.backoff_most);
        // What the server asked for is honoured in full, and spread so that not everybody comes back at once.
        if at_least.is_zero() { random_up_to(bound) } else { at_least + random_up_to(timings.backoff_first) }
    }

    /// Waits until the API server answers, and a moment longer, so that not everybody comes at once. Whoever could not
    /// reach it tries again by himself now and then, in case that nobody else can tell.
    async fn wait_for_the_server(&self, tries: u32, any: bool) -> Input {
        let timings = &self.shared.timings;
        let longest = match (any, tries) {
            (false, _) => self.pause(tries, Duration::ZERO),
            (true, 0 | 1) => timings.backoff_first,
            (true, _) => timings.backoff_most / 2 + random_up_to(timings.backoff_most / 2),
        };
        match tokio::time::timeout(longest, self.shared.prober.answers(&self.shared, any)).await {
            Ok(()) => {
                tokio::time::sleep(random_up_to(timings.scatter)).await;
                Input::Rung
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

    /// A list of at most one object, not older than `version`: the API server must have that version to answer.
    async fn probe(&mut self, version: &ResourceVersion) -> Result<Input, Failure> {
        let params = ListParams {
            limit: Some(1),
            version_match: Some(VersionMatch::NotOlderThan),
            resource_version: Some(version.to_string()),
            ..list_params(&self.spec)
        };
        match self.glance(&params).await {
            Ok((found, _)) => Ok(Input::Probed(found)),
            // An API that does not know the question, or whose only object is huge, has not said no.
            Err(Failure::Refused(_) | Failure::Oversize(_)) => Ok(Input::Probed(version.clone())),
            Err(failure) => Err(failure),
        }
    }

    /// The version of a list of at most one object for which no version is asked, which makes it a consistent one.
    async fn latest(&mut self) -> Result<Input, Failure> {
        let short = |limit| ListParams { limit: Some(limit), ..list_params(&self.spec) };
        let (one, some) = (short(1), short(SOME));
        let (version, mut newer) = self.glance(&one).await?;
        if self.machine.is_past(&version) && !newer {
            // What cannot be looked at proves nothing, and what was found stands.
            newer = self.glance(&some).await.is_ok_and(|(_, newer)| newer);
        }
        Ok(if newer { Input::Unrelated } else { Input::Latest(version) })
    }

    /// The version of a short list, and whether an object in it is newer.
    async fn glance(&mut self, params: &ListParams) -> Result<(ResourceVersion, bool), Failure> {
        let _room = self.shared.limiter.request().await;
        let uri = request(&self.spec).list(params).map_err(unbuilt)?.uri().to_string();
        let mut body = self.api.stream(&uri).await?;
        let mut items = Items::new(GLANCE_LIMIT.min(self.shared.timings.line_limit));
        let mut newest = Newest::default();
        while let Some(part) = next_part(&mut body, self.shared.api.limits().read).await? {
            items.push(&part, |item| -> Result<(), Failure> {
                let (Item::Whole(item) | Item::Outline(item)) = item;
                if let Ok(object) = decode::item(&self.spec.resource, item) {
                    newest.meet(&object.version);
                }
                Ok(())
            })?;
        }
        self.stats.contact();
        let version = decode::envelope(items.envelope()).map_err(Failure::Undecodable)?.version;
        let newer = newest.is_after(&version);
        Ok((version, newer))
    }

    /// Finds out what happened since the position was lost.
    async fn recover(&mut self, sure: bool) -> Result<Input, Stop> {
        let Some(bounds) = self.shared.timings.recover else { return Ok(Input::Unrecoverable) };
        // A list is as good as an audit.
        self.audit_due = None;
        let recovery = Recovery {
            shared: &self.shared,
            api: &self.api,
            generation: self.generation.unwrap_or_default(),
            spec: &self.spec,
            id: self.id,
            stats: &self.stats,
            bounds,
            spent: self.spent.get_or_insert_with(Spent::new),
            sure,
        };
        let outcome = recovery.recover().await?;
        let source = self.spec.name();
        Ok(match outcome {
            recover::Outcome::Done(version) => {
                tracing::info!(source, %version, "nothing is missing: what the watch had forgotten is recovered");
                Input::Recovered(version)
            }
            recover::Outcome::Compacted(version) => {
                tracing::warn!(source, %version, "what happened before this version is compacted: the log gets a GAP");
                Input::Compacted(version)
            }
            recover::Outcome::Hopeless(text) => {
                tracing::warn!(source, "what the watch has forgotten cannot be recovered: {text}");
                Input::Unrecoverable
            }
            recover::Outcome::Doubtful(text) => {
                tracing::warn!(source, "{text}");
                // Whoever answers may be somebody else.
                self.doubt = Some(Instant::now());
                Input::Doubtful(text)
            }
        })
    }

    async fn list(&mut self, token: Option<String>, paged: bool, at: Option<ResourceVersion>) -> Result<Input, Stop> {
        if self.listing.is_none() {
            self.listing = Some(self.shared.limiter.list().await);
        }
        if token.is_none() {
            self.stats.listed();
            self.listed = 0;
            // A list is as good as an audit.
            self.audit_due = None;
            self.shared.journal.list_begin(self.id).await?;
        }
        // No version is asked for, which makes the list a consistent one.
        let limit = paged.then_some(self.shared.timings.page);
        let version_match = at.is_some().then_some(VersionMatch::Exact);
        let resource_version = at.map(|at| at.0);
        let params =
            ListParams { limit, continue_token: token, version_match, resource_version, ..list_params(&self.spec) };
        let uri = request(&self.spec).list(&params).map_err(unbuilt)?.uri().to_string();
        self.shared.limiter.turn().await;
        let mut body = self.api.stream(&uri).await?;
        let mut items = Items::new(self.shared.timings.line_limit);
        let journal = self.shared.journal.clone();
        let mut share = journal.budget().share();
        let mut newest = Newest::default();
        let mut staged = Vec::new();
        let mut bytes = 0;
        while let Some(part) = next_part(&mut body, self.shared.api.limits().read).await? {
            self.stats.received(part.len());
            let (shared, resource, before) = (&self.shared, &self.spec.resource, staged.len());
            items.push(&part, |item| -> Result<(), Failure> {
                let object = caught(|| match item {
                    Item::Whole(item) => {
                        let object = decode::item(resource, item).map_err(Failure::Undecodable)?;
                        newest.meet(&object.version);
                        observed(shared, resource, object)
                    }
                    Item::Outline(item) => unread(resource, item),
                })?;
                bytes += object.body.bytes.len();
                staged.push(object);
                Ok(())
            })?;
            drop(part);
            let reported = self.listed / PROGRESS;
            self.listed += (staged.len() - before) as u64;
            // What a large object holds goes with it, before anything more is read.
            if bytes >= STAGE_BYTES || share.is_holding() && !staged.is_empty() {
                journal.list_page_held(self.id, std::mem::take(&mut staged), &mut share).await?;
                bytes = 0;
            }
            share.hold(items.pending()).await;
            if share.should_yield(self.shared.timings.silence) {
                return Err(Failure::Unreachable(SLOW.to_owned()).into());
            }
            if self.listed / PROGRESS > reported {
                self.report(SourceState::Listing(self.listed)).await?;
            }
        }
        // A list that broke off has no whole envelope.
        let page = decode::envelope(items.envelope()).map_err(Failure::Undecodable)?;
        if !staged.is_empty() {
            journal.list_page_held(self.id, staged, &mut share).await?;
        }
        let newer = newest.is_after(&page.version);
        Ok(Input::Page { version: page.version, next: page.next, newer })
    }

    /// Writes the complete list, unless it lacks so much that it has to be asked for again first: a broken server's
    /// list may well be empty.
    async fn commit(&mut self, version: ResourceVersion, why: Option<Why>, sure: bool) -> Result<Input, Stop> {
        // Without a gap it is a first list, and nothing is known that it could lack.
        if !sure && why.is_some() {
            self.shared.journal.flush().await?;
            let (journal, id) = (self.shared.journal.clone(), self.id);
            let losses = ambient::blocking(move || journal.reader()?.losses(id)).await;
            // Whoever cannot read now, for want of descriptors for instance, asks again.
            let (known, lost) =
                losses.map_err(|error| Failure::Unreachable(format!("the journal cannot be read: {error}")))?;
            if lost * 2 > known && (lost >= MANY || self.listed == 0) {
                // Whoever answers may be somebody else.
                self.doubt = Some(Instant::now());
                let text = format!("a list lacks {lost} of {known} objects; asking again before they are told as gone");
                tracing::warn!(source = self.spec.name(), "{text}");
                return Ok(Input::Doubtful(text));
            }
        }
        self.shared.journal.list_done(self.id, version, why).await?;
        self.listing = None;
        Ok(Input::Committed)
    }

    /// Opens a watch and reads it to its end, which is the answer.
    async fn watch(&mut self, from: &ResourceVersion) -> Result<Input, Stop> {
        let timings = &self.shared.timings;
        let seconds = if self.machine.has_bookmarks() { &timings.watch_seconds } else { &timings.short_watch_seconds };
        let spread = Duration::from_secs(u64::from(seconds.end() - seconds.start()));
        let seconds = seconds.start() + u32::try_from(random_up_to(spread).as_secs()).unwrap_or_default();
        let longest = self.machine.longest_watch(self.began.elapsed());
        let longest = longest.and_then(|longest| u32::try_from(longest.as_secs()).ok());
        let seconds = longest.map_or(seconds, |longest| seconds.min(longest));
        let params = WatchParams {
            label_selector: selector(&self.spec.label_selector),
            field_selector: selector(&self.spec.field_selector),
            timeout: Some(seconds),
            bookmarks: true,
            ..WatchParams::default()
        };
        let uri = request(&self.spec).watch(&params, from.as_str()).map_err(unbuilt)?.uri().to_string();
        let room = self.shared.limiter.request().await;
        let body = self.api.send(Method::GET, &uri, "application/json", Vec::new()).await?.into_body();
        drop(room);
        self.stats.opened();
        (self.warned, self.spent) = (false, None);
        // Nothing is to be done about an open watch but to read it.
        self.step(Input::Opened).await?;
        if let Some(period) = self.shared.timings.audit
            && self.audit_due.is_none()
        {
            // Spread, so that the sources do not come all at once, and not at the start, which lists or resumes.
            self.audit_due = Some(Instant::now() + period / 2 + random_up_to(period / 2));
        }
        self.read(body, Instant::now() + Duration::from_secs(u64::from(seconds)) - AGREED).await
    }

    /// Begins an audit when it is due, and ends with it. Otherwise it never ends.
    async fn audit(&self, audit: &mut Option<Auditing>) -> Result<Option<Audit>, Stop> {
        let (None, Some(due)) = (&audit, self.audit_due) else {
            return match audit {
                Some(audit) => audit.await,
                None => std::future::pending().await,
            };
        };
        tokio::time::sleep_until(due).await;
        let auditor = Auditor {
            shared: Arc::clone(&self.shared),
            spec: self.spec.clone(),
            id: self.id,
            position: self.position.subscribe(),
        };
        audit.insert(Box::pin(auditor.audit())).await
    }

    /// Takes note of an audit. Says whether the log and the API server differ.
    async fn audited(&mut self, found: Result<Option<Audit>, Stop>) -> Result<bool, JournalError> {
        let period = self.shared.timings.audit.unwrap_or_default();
        self.audit_due = Some(Instant::now() + period * 3 / 4 + random_up_to(period / 4));
        let audit = match found {
            Ok(Some(audit)) => audit,
            Ok(None) => {
                self.stats.undecided();
                return Ok(false);
            }
            Err(Stop::Failure(failure)) => {
                tracing::debug!(source = self.spec.name(), %failure, "an audit failed");
                self.stats.undecided();
                return Ok(false);
            }
            Err(Stop::Journal(error)) => return Err(error),
        };
        let differences = audit.differences;
        self.shared.journal.audited(self.id, audit).await?;
        tracing::debug!(source = self.spec.name(), differences, "an audit is done");
        if differences > 0 {
            tracing::warn!(
                source = self.spec.name(),
                differences,
                "an audit found that the log and the API server differ"
            );
            // Whoever answered the audit may not be whom we watch.
            self.doubt = Some(Instant::now());
        }
        Ok(differences > 0)
    }

    /// Lets the audit know how far we are.
    fn tell_position(&self) {
        let position = self.machine.position();
        self.position.send_if_modified(|told| {
            let moved = told.as_ref() != position;
            if moved {
                *told = position.cloned();
            }
            moved
        });
    }

    /// A watch that ends after `over` was ended by the API server because its time was over.
    async fn read(&mut self, mut body: Body, over: Instant) -> Result<Input, Stop> {
        let timings = &self.shared.timings;
        let opened = Instant::now();
        let mut lines = Lines::new(timings.line_limit);
        let journal = self.shared.journal.clone();
        let mut share = journal.budget().share();
        let (silence, pause) = (timings.silence, self.shared.api.limits().read.min(timings.silence));
        let mut reconnects = self.shared.reconnects.listen();
        let id = self.id;
        let (mut contradictions, mut rollbacks) = (self.contradictions.clone(), self.rollbacks.clone());
        // It ends with the watch, and then begins again with the next one.
        let mut audit = None;
        loop {
            self.tell_position();
            // Others may wait for what a line in the middle holds.
            let patience = if share.is_holding() { pause } else { silence };
            let stands = self.machine.stands_after().map(|after| opened + after);
            let part = tokio::select! {
                biased;
                part = next_part(&mut body, patience) => part,
                () = tokio::time::sleep_until(stands.unwrap_or(opened)), if stands.is_some() => {
                    self.step(Input::Stood).await?;
                    continue;
                }
                () = reconnects.rung() => return Ok(Input::Ended(End::Silent)),
                () = rollbacks.rung() => {
                    self.rollbacks = rollbacks;
                    self.warned = true;
                    return Ok(Input::Warned);
                }
                Ok(()) = contradicted(&mut contradictions, id) => return Ok(Input::Differs),
                found = self.audit(&mut audit) => {
                    audit = None;
                    if self.audited(found).await? {
                        return Ok(Input::Differs);
                    }
                    continue;
                }
            };
            let part = match part {
                Ok(Some(part)) => part,
                Ok(None) if Instant::now() >= over => return Ok(Input::Ended(End::Over)),
                Ok(None) => return Ok(Input::Ended(End::Closed)),
                Err(Failure::Unreachable(_)) if self.stats.silent_for() >= silence => {
                    return Ok(Input::Ended(End::Silent));
                }
                Err(failure) => return Ok(Input::Ended(End::Cut(failure.to_string()))),
            };
            self.stats.received(part.len());
            lines.push(&part);
            drop(part);
            if let Err(failure) = self.take_lines(&mut lines, &mut share).await? {
                return Err(failure.into());
            }
            share.hold(lines.pending()).await;
            // However long that took: it was not the API server that was silent.
            self.stats.contact();
            if share.should_yield(silence) {
                return Ok(Input::Ended(End::Cut(SLOW.to_owned())));
            }
        }
    }

    /// Hands over what the whole lines say. The inner error ends the watch; what came before it is handed over.
    async fn take_lines(
        &mut self,
        lines: &mut Lines,
        share: &mut Share<'_>,
    ) -> Result<Result<(), Failure>, JournalError> {
        let mut changes = Vec::new();
        let mut result = Ok(());
        loop {
            let line = match lines.take() {
                Ok(Some(line)) => line,
                Ok(None) => break,
                Err(Oversize) => {
                    result = Err(Failure::from(Oversize));
                    break;
                }
            };
            match caught(|| news(&self.shared, &self.spec.resource, &line)) {
                Ok(News::Change(change)) => changes.push(change),
                Ok(News::Bookmark(version)) => {
                    self.append(&mut changes, share).await?;
                    self.step(Input::Bookmark(version)).await?;
                }
                // Nothing moves past a line that is not understood.
                Err(failure) => {
                    result = Err(failure);
                    break;
                }
            }
        }
        self.append(&mut changes, share).await?;
        Ok(result)
    }

    async fn append(&mut self, changes: &mut Vec<WatchChange>, share: &mut Share<'_>) -> Result<(), JournalError> {
        if changes.is_empty() {
            return Ok(());
        }
        let changes = std::mem::take(changes);
        self.stats.changed(changes.len());
        let versions: Vec<ResourceVersion> = changes.iter().map(|change| change.object.version.clone()).collect();
        let seen = changes.iter().map(|change| (&change.object.version, change.verb == Verb::Delete));
        self.shared.revisions.note(self.id, seen);
        self.shared.journal.append_held(self.id, changes, share).await?;
        for version in versions {
            self.step(Input::Changed(version)).await?;
        }
        Ok(())
    }
}

/// Ends when the journal finds that the watch of a source contradicts it.
async fn contradicted(
    contradictions: &mut watch::Receiver<BTreeSet<SourceId>>,
    id: SourceId,
) -> Result<(), watch::RecvError> {
    contradictions.wait_for(|sources| sources.contains(&id)).await
}

/// What a line of a watch brings.
enum News {
    Change(WatchChange),
    Bookmark(ResourceVersion),
}

fn news(shared: &Shared, resource: &Resource, line: &[u8]) -> Result<News, Failure> {
    let (verb, object) = match decode::line(line).map_err(Failure::Undecodable)? {
        Line::Upsert(object) => (Verb::Upsert, object),
        Line::Delete(object) => (Verb::Delete, object),
        Line::Bookmark(version) => return Ok(News::Bookmark(version)),
        Line::Error(status) => return Err(classify::error_event(status)),
    };
    Ok(News::Change(WatchChange { verb, object: observed(shared, resource, object)? }))
}

/// A panic over what a server sent is a bug. It costs this one piece, which is told as undecodable, and not the daemon,
/// which would meet the same piece again and again.
pub(super) fn caught<T>(read: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    // Nothing that was half done is seen again: what is read is borrowed and what it gives is dropped.
    catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|_panic| {
        Err(Failure::Undecodable("reading what the API server sent failed; this is a bug, please report it".to_owned()))
    })
}

/// The object as the journal takes it: without what must not be kept.
pub(super) fn observed(shared: &Shared, resource: &Resource, object: decode::Object<'_>) -> Result<Observed, Failure> {
    if !object.is_one_of(resource) {
        return Err(Failure::Undecodable(OTHER_KIND.to_owned()));
    }
    #[cfg(test)]
    assert!(memchr::memmem::find(&object.bytes, b"what makes decklog panic").is_none(), "as the test asks for");
    // A server that writes for people breaks lines between tokens; an entry is one line.
    let bytes = match memchr::memchr2(b'\n', b'\r', &object.bytes) {
        Some(_) => Cow::Owned(crate::json::one_line(object.bytes.into_owned())),
        None => object.bytes,
    };
    let body = shared.redactor.apply(resource, &object.uid, bytes).map_err(Failure::Undecodable)?;
    Ok(Observed {
        namespace: object.namespace.into_owned(),
        name: object.name.into_owned(),
        uid: object.uid.into_owned(),
        version: ResourceVersion::new(object.version),
        body,
    })
}

/// An object of a list that is too large: which one it is, and nothing of what it holds. Its last known state stays.
fn unread(resource: &Resource, item: &[u8]) -> Result<Observed, Failure> {
    let object = decode::item(resource, item).map_err(Failure::Undecodable)?;
    if !object.is_one_of(resource) {
        return Err(Failure::Undecodable(OTHER_KIND.to_owned()));
    }
    let (namespace, name) = (object.namespace.into_owned(), object.name.into_owned());
    tracing::warn!(
        "{} {namespace:?}/{name:?} is larger than decklog takes: it is not read, and the log tells a GAP",
        resource.full_name()
    );
    let (uid, version) = (object.uid.into_owned(), ResourceVersion::new(object.version));
    Ok(Observed { namespace, name, uid, version, body: Redacted::default() })
}

impl From<Oversize> for Failure {
    fn from(_: Oversize) -> Self {
        Self::Oversize("an object is larger than decklog takes".to_owned())
    }
}

pub(super) fn request(spec: &SourceSpec) -> kube::core::Request {
    kube::core::Request::new(spec.resource.path(spec.namespace.as_deref()))
}

pub(super) fn list_params(spec: &SourceSpec) -> ListParams {
    ListParams {
        label_selector: selector(&spec.label_selector),
        field_selector: selector(&spec.field_selector),
        ..ListParams::default()
    }
}

fn selector(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

#[expect(clippy::needless_pass_by_value, reason = "it is given to map_err")]
pub(super) fn unbuilt(error: kube::core::request::Error) -> Failure {
    Failure::Refused(format!("the request cannot be made: {error}"))
}
