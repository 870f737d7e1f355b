//! All sources of the daemon: begun, followed and ended as the configuration and the API server say.

mod retries;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::discovery::{Discovered, Discoverer, Pace, Trouble, Troubles, watch_definitions};
use super::heartbeat::Heartbeat;
use super::limiter::Limiter;
use super::news::News;
use super::requests::Stop;
use super::select::{Selection, Waiting, may_come, select};
use super::source::{Driver, Outcome};
use super::stats::SourceStats;
use super::version_clock::VersionClock;
use super::{Shared, Timings};
use crate::core::change::redact::Redactor;
use crate::core::model::{Resource, SourceSpec};
use crate::core::runtime::{self, Signal};
use crate::core::supervise::{Ended, Failed, Supervisor};
use crate::journal::{Journal, JournalError, SourceId, SourceState};
use crate::watch::cluster::{Api, Failure};
use retries::{Retries, keep_discovering};

/// Error that ended reading the cluster.
#[derive(Debug, thiserror::Error)]
pub enum SourceManagerError {
    /// The journal cannot go on, or belongs to another cluster.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A task ended although nobody asked it to.
    #[error("the task of {name} ended unasked: {why}; this is a bug")]
    Task {
        /// Which.
        name: String,
        /// How.
        why: String,
    },
}

/// Selection of what is read, and the redaction of it.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The `[[watch]]` entries.
    pub watch: Vec<super::Settings>,
    /// The redaction rules.
    pub redactor: Arc<Redactor>,
}

/// A running source.
#[derive(Clone, Debug)]
pub struct SourceView {
    /// The watched source.
    pub spec: SourceSpec,
    /// Its id in the journal.
    pub id: SourceId,
    /// Its counters.
    pub stats: Arc<SourceStats>,
}

/// Present state of the sources, for status and metrics.
#[derive(Clone, Debug, Default)]
pub struct Overview {
    /// The running sources, by name.
    pub sources: Vec<SourceView>,
    /// Configured names that nothing served answers to, as yet.
    pub waiting: Vec<Waiting>,
    /// Parts of the configuration without effect.
    pub problems: Vec<String>,
    /// The API server's version, once it has answered.
    pub version: String,
}

/// Speaks with a running source manager; cheap to clone.
#[derive(Clone, Debug)]
pub struct SourceManagerHandle {
    plan: watch::Sender<Plan>,
    in_force: watch::Receiver<Option<Arc<Redactor>>>,
    ready: watch::Receiver<bool>,
    overview: Arc<Mutex<Overview>>,
    troubles: Arc<Mutex<Troubles>>,
    progress: Signal,
    reconnects: Signal,
    heartbeat: Arc<Heartbeat>,
    version_clock: Arc<VersionClock>,
    news: News,
}

impl SourceManagerHandle {
    /// Notices until `stop` is cancelled that this process does not run.
    pub async fn keep_heartbeat(self, stop: CancellationToken) {
        self.heartbeat.run(stop).await;
    }

    /// Reads by another plan: what changes is ended and begun, the rest goes on undisturbed. Returns when nothing is
    /// read by other rules of redaction any more.
    pub async fn reload(&self, plan: Plan) {
        let redactor = Arc::clone(&plan.redactor);
        self.plan.send_replace(plan);
        let holds = |rules: &Option<Arc<Redactor>>| rules.as_ref().is_none_or(|rules| Arc::ptr_eq(rules, &redactor));
        // Where the manager has ended, nothing is read at all.
        _ = self.in_force.clone().wait_for(holds).await;
    }

    /// Returns the time of the last answer of an API server that is silent.
    #[must_use]
    pub fn silent_since(&self) -> Option<Timestamp> {
        self.version_clock.silent_since()
    }

    /// Opens every watch again from where it is, because nobody may be at the other end of its connection any more.
    pub fn reconnect(&self) {
        self.reconnects.notify();
    }

    /// Returns a receiver that is true once every source has resumed, finished its first list, or needs a person. It stays
    /// true.
    #[must_use]
    pub fn ready(&self) -> watch::Receiver<bool> {
        self.ready.clone()
    }

    /// Reports whether every source watches at this moment, or needs a person: then nothing is lost that the API server forgets
    /// now.
    #[must_use]
    pub fn all_watch(&self) -> bool {
        let sources = self.overview().sources;
        let watches =
            |view: &SourceView| matches!(view.stats.state(), SourceState::Watching | SourceState::Degraded(_));
        !sources.is_empty() && sources.iter().all(watches)
    }

    /// Writes what has happened to sources since the last time into the log, one line for what happened to several.
    pub fn log_news(&self) {
        self.news.log();
    }

    /// Returns the present state of the sources.
    #[must_use]
    pub fn overview(&self) -> Overview {
        self.overview.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Has the sources that take this object ask etcd for it with their next audits: it may have a version that the log lacks.
    pub fn suspect(&self, group: &str, plural: &str, namespace: &str, name: &str) {
        let overview = self.overview.lock().unwrap_or_else(PoisonError::into_inner);
        for SourceView { spec, stats, .. } in &overview.sources {
            let is_of = spec.resource.group == group && spec.resource.plural == plural;
            if is_of && spec.takes(namespace) && !spec.leaves_out(namespace) {
                stats.suspect((namespace.to_owned(), name.to_owned()));
            }
        }
    }

    /// Returns what is the matter with discovery.
    #[must_use]
    pub fn troubles(&self) -> Vec<Trouble> {
        self.troubles.lock().unwrap_or_else(PoisonError::into_inner).list()
    }

    /// Notified of every step that a source or discovery makes.
    #[cfg(test)]
    pub(super) fn steps(&self) -> runtime::Listener {
        self.progress.listen()
    }

    /// Counts what the sources do. It grows at least with every look at discovery, also when all is quiet.
    #[must_use]
    pub fn progress(&self) -> u64 {
        self.progress.count()
    }
}

/// A source is found by what it watches; its selectors may change.
type Key = (String, String, Option<String>);

fn key(spec: &SourceSpec) -> Key {
    (spec.resource.group.clone(), spec.resource.plural.clone(), spec.namespace.clone())
}

struct Running {
    view: SourceView,
    redactor: Arc<Redactor>,
    cancel: CancellationToken,
}

/// End of a task.
#[derive(Debug)]
enum Finished {
    Source(Key, Option<Outcome>),
    Discovery,
    VersionClock,
    /// No resource of a definition is configured any more.
    Definitions,
}

/// All sources.
pub struct SourceManager {
    api: Api,
    journal: Journal,
    timings: Timings,
    limiter: Limiter,
    shared: Arc<Shared>,
    plan: watch::Receiver<Plan>,
    /// The rules by which sources may be reading; nothing before the first of them begins.
    in_force: watch::Sender<Option<Arc<Redactor>>>,
    ready: watch::Sender<bool>,
    overview: Arc<Mutex<Overview>>,
    running: BTreeMap<Key, Running>,
    /// The rules that the journal has.
    redacting: Option<Arc<Redactor>>,
    /// Resources that the journal knew when the manager began.
    remembered: Vec<Resource>,
    /// Ends the watch of what brings new resources, while there is one.
    definitions: Option<CancellationToken>,
    tasks: Supervisor<JournalError, Finished>,
}

impl std::fmt::Debug for SourceManager {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SourceManager").field("running", &self.running.len()).finish_non_exhaustive()
    }
}

impl SourceManager {
    /// A source manager that has not begun, and the handle to it.
    #[must_use]
    pub fn new(api: Api, journal: Journal, plan: Plan, timings: Timings) -> (Self, SourceManagerHandle) {
        let limiter = Limiter::new(
            timings.lists,
            timings.requests,
            timings.rate,
            timings.recover.map_or(1, |bounds| bounds.rate),
            timings.audit_reads.map_or(1, |reads| reads.rate),
        );
        let progress = Signal::default();
        let shared = Arc::new(Shared {
            api: api.clone(),
            journal: journal.clone(),
            redactor: Arc::clone(&plan.redactor),
            timings: timings.clone(),
            limiter: limiter.clone(),
            prober: Arc::default(),
            settled: Arc::new(Notify::new()),
            progress: progress.clone(),
            discoverer: Arc::new(tokio::sync::Mutex::new(Discoverer::default())),
            discovered: watch::Sender::new(None),
            troubles: Arc::default(),
            definitions: Signal::default(),
            verified: Arc::default(),
            revisions: Arc::default(),
            in_flight: Arc::default(),
            with_findings: Arc::default(),
            counting: Arc::new(tokio::sync::Semaphore::new(1)),
            rollbacks: Signal::default(),
            reconnects: Signal::default(),
            heartbeat: Arc::default(),
            dating: tokio::sync::Mutex::default(),
            version_clock: Arc::default(),
            news: News::default(),
        });
        let (reconnects, heartbeat, news) =
            (shared.reconnects.clone(), Arc::clone(&shared.heartbeat), shared.news.clone());
        let version_clock = Arc::clone(&shared.version_clock);
        let (plan_sender, plan) = watch::channel(plan);
        let (in_force, in_force_receiver) = watch::channel(None);
        let (ready, ready_receiver) = watch::channel(false);
        let overview = Arc::new(Mutex::new(Overview::default()));
        let handle = SourceManagerHandle {
            plan: plan_sender,
            in_force: in_force_receiver,
            ready: ready_receiver,
            overview: Arc::clone(&overview),
            troubles: Arc::clone(&shared.troubles),
            progress,
            reconnects,
            heartbeat,
            version_clock,
            news,
        };
        let manager = Self {
            api,
            journal,
            timings,
            limiter,
            shared,
            plan,
            in_force,
            ready,
            overview,
            running: BTreeMap::new(),
            redacting: None,
            remembered: Vec::new(),
            definitions: None,
            tasks: Supervisor::new(CancellationToken::new()),
        };
        (manager, handle)
    }

    /// Reads the cluster until `cancel`. An API server that does not answer is waited for.
    ///
    /// # Errors
    /// Where the journal fails or belongs to another cluster, or a task ends unasked.
    pub async fn run(mut self, cancel: CancellationToken) -> Result<(), SourceManagerError> {
        let result = cancel.clone().run_until_cancelled(self.follow()).await;
        // Dropping the tasks ends them; waiting for it makes sure that none of them holds the journal.
        self.tasks.abort().await;
        match result {
            Some(Err(error)) => Err(error),
            Some(Ok(never)) => match never {},
            None => Ok(()),
        }
    }

    async fn follow(&mut self) -> Result<std::convert::Infallible, SourceManagerError> {
        let shared = Arc::clone(&self.shared);
        identify(&shared, &self.overview).await?;
        self.remembered = self.known_resources()?;
        let remembered = Discovered::remembered(&self.remembered);
        *shared.discoverer.lock().await = Discoverer::remembering(remembered.clone());
        let mut discovered = shared.discovered.subscribe();
        let mut grace = pin!(tokio::time::sleep(shared.timings.grace));
        let mut early = !remembered.served.is_empty();
        self.tasks.spawn("discovery", {
            let shared = Arc::clone(&shared);
            async move {
                keep_discovering(&shared).await;
                Ok(Finished::Discovery)
            }
        });
        self.tasks.spawn("the version clock", {
            let shared = Arc::clone(&shared);
            async move {
                shared.keep_version_clock().await;
                Ok(Finished::VersionClock)
            }
        });
        loop {
            tokio::select! {
                biased;
                Some(ended) = self.tasks.ended() => {
                    if self.ended(ended)? {
                        self.reconcile().await?;
                    }
                }
                () = shared.settled.notified() => self.look_ready(),
                // Whatever discovery has to say, these sources know where they were.
                () = &mut grace, if early => {
                    early = false;
                    if shared.discovered.borrow().is_none() {
                        shared.publish(&remembered);
                    }
                }
                // Whoever can send is `shared` itself, or has given the plan up for good.
                Ok(()) = discovered.changed() => self.reconcile().await?,
                Ok(()) = self.plan.changed() => self.reconcile().await?,
            }
        }
    }

    /// The resources of sources of which the journal knows something.
    fn known_resources(&self) -> Result<Vec<Resource>, JournalError> {
        let reader = self.journal.reader()?;
        let mut known = Vec::new();
        for row in reader.sources()? {
            if row.resume.is_some() || row.gap_owed || reader.objects_of(row.id)? > 0 {
                known.push(row.resource);
            }
        }
        Ok(known)
    }

    /// Takes note of the end of a task. Says whether what runs may not be what is wanted any more.
    fn ended(&mut self, ended: Ended<JournalError, Finished>) -> Result<bool, SourceManagerError> {
        let Ended { name, result } = ended;
        match result {
            Ok(Finished::Source(key, outcome)) => {
                self.running.remove(&key);
                let gone = outcome == Some(Outcome::Gone);
                if gone {
                    tracing::info!(source = name, "the resource is not served any more");
                    self.remembered.retain(|resource| (&resource.group, &resource.plural) != (&key.0, &key.1));
                }
                // It may have come back while its source was ending.
                Ok(gone || outcome == Some(Outcome::Elsewhere))
            }
            Ok(Finished::Definitions) => Ok(false),
            Ok(Finished::Discovery | Finished::VersionClock) => {
                Err(SourceManagerError::Task { name, why: "it returned".to_owned() })
            }
            Err(Failed::Error(error)) => Err(error.into()),
            Err(Failed::Panicked(text)) => Err(SourceManagerError::Task { name, why: format!("it panicked ({text})") }),
        }
    }

    /// Ends and begins sources until what runs is what is wanted.
    async fn reconcile(&mut self) -> Result<(), SourceManagerError> {
        while self.reconcile_once().await? {}
        Ok(())
    }

    async fn reconcile_once(&mut self) -> Result<bool, SourceManagerError> {
        let mut again = false;
        let Some(discovered) = self.shared.discovered.borrow().clone() else { return Ok(false) };
        let plan = self.take_plan();
        let preferred: Vec<_> = discovered.preferred().into_iter().cloned().collect();
        self.journal.remember_resources(preferred).await?;
        let selection = self.selection(&plan, &discovered);
        let wanted: BTreeMap<Key, SourceSpec> =
            selection.sources.iter().map(|spec| (key(spec), spec.clone())).collect();

        let mut ending = Vec::new();
        for (key, running) in &self.running {
            let as_wanted = wanted.get(key) == Some(&running.view.spec);
            if !as_wanted || !Arc::ptr_eq(&running.redactor, &plan.redactor) {
                ending.push((key.clone(), running.view.id, wanted.contains_key(key)));
                running.cancel.cancel();
            }
        }
        // Whatever takes a source's place begins after it has ended.
        while ending.iter().any(|(key, ..)| self.running.contains_key(key)) {
            match self.tasks.ended().await {
                Some(ended) => again |= self.ended(ended)?,
                None => break,
            }
        }
        self.in_force.send_replace(Some(Arc::clone(&plan.redactor)));
        let mut changed = !ending.is_empty();
        for (_, id, goes_on) in ending {
            if !goes_on {
                self.journal.retire_source(id).await?;
            }
        }
        if !self.redacting.as_ref().is_some_and(|known| Arc::ptr_eq(known, &plan.redactor)) {
            // After the last change that the rules before were at, and before the first of the new ones.
            self.journal.set_redaction(Arc::clone(&plan.redactor)).await?;
            self.redacting = Some(Arc::clone(&plan.redactor));
        }
        for (key, spec) in wanted {
            if !self.running.contains_key(&key) {
                self.begin(key, spec, &plan.redactor).await?;
                changed = true;
            }
        }
        if changed {
            self.journal.narrow().await?;
        }
        self.follow_definitions(may_come(&plan.watch, &discovered));
        self.publish(selection);
        self.look_ready();
        Ok(again)
    }

    /// Begins or ends the watch of what brings new resources.
    fn follow_definitions(&mut self, wanted: bool) {
        let wanted = wanted && self.timings.definitions;
        if !wanted && let Some(cancel) = self.definitions.take() {
            cancel.cancel();
        }
        if wanted && self.definitions.is_none() {
            let (shared, cancel) = (Arc::clone(&self.shared), CancellationToken::new());
            self.definitions = Some(cancel.clone());
            self.tasks.spawn("definitions", async move {
                cancel.run_until_cancelled(watch_definitions(&shared)).await;
                Ok(Finished::Definitions)
            });
        }
    }

    /// The newest plan. No other one is given while this notes by which rules the first sources are going to read.
    fn take_plan(&mut self) -> Plan {
        let plan = self.plan.borrow_and_update();
        if self.in_force.borrow().is_none() {
            self.in_force.send_replace(Some(Arc::clone(&plan.redactor)));
        }
        plan.clone()
    }

    /// Returns the selection of the configuration. A running source counts as served: if its resource vanishes, it finds that
    /// out itself, and carefully.
    fn selection(&self, plan: &Plan, discovered: &Discovered) -> Selection {
        // What the journal has objects or a position of counts as well: it may have gone while nobody looked.
        let in_use = self.running.values().map(|running| &running.view.spec.resource).chain(&self.remembered);
        select(&plan.watch, &discovered.with_in_use(in_use))
    }

    async fn begin(&mut self, key: Key, spec: SourceSpec, redactor: &Arc<Redactor>) -> Result<(), SourceManagerError> {
        let (journal, memory) = self.journal.source(&spec).await?;
        let stats = Arc::new(SourceStats::default());
        let view = SourceView { spec: spec.clone(), id: journal.id(), stats: Arc::clone(&stats) };
        let cancel = CancellationToken::new();
        let shared = self.shared_with(redactor);
        let driver = Driver::new(shared, spec, journal, memory, stats);
        self.tasks.spawn(view.spec.name(), {
            let (cancel, key) = (cancel.clone(), key.clone());
            async move {
                let ended = cancel.run_until_cancelled(Box::pin(driver.run())).await.transpose()?;
                Ok(Finished::Source(key, ended))
            }
        });
        self.running.insert(key, Running { view, redactor: Arc::clone(redactor), cancel });
        Ok(())
    }

    /// The same for every source, but for the rules of redaction, which a reload may change.
    fn shared_with(&mut self, redactor: &Arc<Redactor>) -> Arc<Shared> {
        if !Arc::ptr_eq(&self.shared.redactor, redactor) {
            self.shared = Arc::new(Shared {
                api: self.api.clone(),
                journal: self.journal.clone(),
                redactor: Arc::clone(redactor),
                timings: self.timings.clone(),
                limiter: self.limiter.clone(),
                prober: Arc::clone(&self.shared.prober),
                settled: Arc::clone(&self.shared.settled),
                progress: self.shared.progress.clone(),
                discoverer: Arc::clone(&self.shared.discoverer),
                discovered: self.shared.discovered.clone(),
                troubles: Arc::clone(&self.shared.troubles),
                definitions: self.shared.definitions.clone(),
                verified: Arc::clone(&self.shared.verified),
                revisions: Arc::clone(&self.shared.revisions),
                in_flight: Arc::clone(&self.shared.in_flight),
                with_findings: Arc::clone(&self.shared.with_findings),
                counting: Arc::clone(&self.shared.counting),
                rollbacks: self.shared.rollbacks.clone(),
                reconnects: self.shared.reconnects.clone(),
                heartbeat: Arc::clone(&self.shared.heartbeat),
                dating: tokio::sync::Mutex::default(),
                version_clock: Arc::clone(&self.shared.version_clock),
                news: self.shared.news.clone(),
            });
        }
        Arc::clone(&self.shared)
    }

    fn publish(&self, selection: Selection) {
        let mut overview = self.overview.lock().unwrap_or_else(PoisonError::into_inner);
        for problem in selection.problems.iter().filter(|problem| !overview.problems.contains(problem)) {
            tracing::warn!("{problem}");
        }
        for waiting in selection.waiting.iter().filter(|waiting| !overview.waiting.contains(waiting)) {
            tracing::warn!("{waiting}; waiting for it");
        }
        overview.sources = self.running.values().map(|running| running.view.clone()).collect();
        overview.waiting = selection.waiting;
        overview.problems = selection.problems;
    }

    fn look_ready(&self) {
        let ready = self.running.values().all(|running| running.view.stats.is_settled());
        if ready {
            self.ready.send_if_modified(|was| !std::mem::replace(was, true));
        }
    }
}

/// Learns which cluster this is, however long that takes.
async fn identify(shared: &Shared, overview: &Mutex<Overview>) -> Result<(), SourceManagerError> {
    let mut retries = Retries::default();
    loop {
        shared.progressed();
        let began = runtime::now();
        let generation = shared.api.generation().await;
        match shared.patiently(shared.verify(None, generation)).await {
            Ok(()) => {
                if let Ok(version) = shared.api.version().await {
                    overview.lock().unwrap_or_else(PoisonError::into_inner).version = version;
                }
                return Ok(());
            }
            Err(Stop::Failure(failure)) => {
                shared.note_discovery(began, Err(&failure));
                retries.wait(shared, &failure).await;
            }
            Err(Stop::Journal(error)) => return Err(error.into()),
        }
    }
}
