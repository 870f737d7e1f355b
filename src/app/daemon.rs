//! The daemon: the only place that knows everybody.
//!
//! It opens the journal, connects the cluster and the sinks to it, reports to systemd how it is doing, and ends in order:
//! the reading and the delivery, then the journal's thread, which commits what it was given.

mod announcing;
mod audit_logs;
mod background;
mod candidate;
mod changes;
mod clock;
mod clusters;
mod control;
mod counters;
mod descriptors;
mod error;
mod evidence;
mod keeper;
mod readers;
mod redaction;
mod report;
mod sinks;

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::app::config::{Config, Loaded};
use crate::app::ha::{Candidacy, Condition};
use crate::app::systemd::{Notifier, Progress, Watchdog};
use crate::audit_log::Unexplained;
use crate::core::change::redact::Redactor;
use crate::core::net::server::BindError;
use crate::core::rights::Authority;
use crate::core::runtime;
use crate::core::supervise::{Ended, Failed, Supervisor};
use crate::core::telemetry::Telemetry;
use crate::delivery::DeliveryError;
use crate::journal::{Bounds, Journal, JournalError, OnFull, WriterThread};
use crate::query::churn::Meter;
use crate::query::status::{Live, Part};
use crate::watch::cluster::{self, Api, ClusterError, Limits, Recover};
use crate::watch::reviews::Reviews;
use crate::watch::{Plan, SourceManager, SourceManagerError, SourceManagerHandle, Timings};
use crate::web::http::{self, Endpoints};
use crate::web::ui;
use background::{count_requests, count_writes};
use candidate::{Candidate, Course, TAKEOVER_RETRY_DELAY, Taking};
pub use candidate::{shared_log, sharing};
use clock::ClockWatch;
use control::{Reload, Signals};
use counters::DaemonCounters;
pub use error::DaemonError;
use error::TaskError;
use evidence::Evidence;
use sinks::Sinks;

pub use background::EndpointRegistry;
pub use clusters::{MultiCluster, run_several};
pub use control::{Asker, Control, control};

/// Time limit for a pending change of the state directory's mark at the end.
const MARK_LIMIT: Duration = Duration::from_secs(2);

/// Time that a reload waits for reads under other redaction rules to end.
const RELOAD_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit for the tasks to end when the daemon stops.
const STOP_LIMIT: Duration = Duration::from_secs(20);
/// Time limit for the last unit of the shared log.
const SETTLE_LIMIT: Duration = Duration::from_secs(5);
/// Interval at which progress is checked, for systemd's watchdog and its status line.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(2);
/// Interval at which the newest version of the cluster is read.
const VERSION_CLOCK_INTERVAL: Duration = Duration::from_secs(10);
/// Time that the journal's thread may take to answer before its progress is judged by its turns alone.
const PING_TIMEOUT: Duration = Duration::from_millis(200);

/// Environment of the daemon of one cluster.
#[derive(Clone, Debug)]
pub struct Environment {
    /// The configuration it begins with.
    pub loaded: Loaded,
    /// Connection to systemd.
    pub notifier: Notifier,
    /// decklog's own log, which takes a new level.
    pub telemetry: Telemetry,
    /// Receiver of the endpoints' sources in a process with several clusters.
    pub registry: Option<EndpointRegistry>,
}

/// Runs until SIGTERM or SIGINT; on SIGHUP the configuration is read again by `read_again`.
///
/// # Errors
/// What ended it otherwise.
pub async fn run(
    environment: Environment,
    read_again: fn(&Loaded) -> Result<Loaded, String>,
) -> Result<(), DaemonError> {
    let signals = Signals::new().map_err(|error| DaemonError::Io(format!("cannot watch for signals: {error}")))?;
    let (control, asker) = control();
    let running = environment.loaded.clone();
    tokio::select! {
        biased;
        ended = run_one(environment, control) => ended,
        never = signals.pass_on(asker, move || read_again(&running)) => never,
    }
}

/// Runs the daemon of one cluster until it is asked to stop.
///
/// # Errors
/// What ended it otherwise.
pub async fn run_one(environment: Environment, mut control: Control) -> Result<(), DaemonError> {
    let mut config = environment.loaded.config.clone();
    let candidate = Candidate::begin(&config).await?;
    let ended = loop {
        let ended = run_part(&environment, &mut config, candidate.as_ref(), &mut control).await;
        match ended {
            Err(DaemonError::Journal(JournalError::Superseded(why))) if candidate.is_some() => {
                if control.stop.is_cancelled() {
                    tracing::warn!("stopped: {why}");
                    break Ok(());
                }
                tracing::warn!("{why}: this decklog stands by");
                tokio::time::sleep(TAKEOVER_RETRY_DELAY).await;
            }
            ended => break ended,
        }
    };
    if let Some(candidate) = candidate {
        candidate.end().await;
    }
    ended
}

/// Runs until it is asked to stop, or leads no more.
async fn run_part(
    environment: &Environment,
    config: &mut Config,
    candidate: Option<&Candidate>,
    control: &mut Control,
) -> Result<(), DaemonError> {
    // The journal comes first: its lock is what keeps a second daemon out, and nothing else happens before. A disk that
    // does not answer holds up no other cluster of this process.
    let state = config.state.path.clone();
    let sharing = candidate.map(|candidate| candidate.sharing(config)).transpose()?;
    let (journal, thread) = runtime::blocking(move || match sharing {
        Some(sharing) => Journal::open_shared(&state, sharing),
        None => Journal::open(&state),
    })
    .await?;
    // Next, what a daemon that is gone has left of itself: this one may have its very process id, as in a container.
    let live_file = Live::file(&config.state.path)
        .inspect_err(|error| tracing::warn!("`decklog status` will say less of this process: {error}"))
        .ok();
    if let Some(group) = &config.state.readers
        && let Err(why) = readers::admit(&config.state.path, group)
    {
        tracing::warn!("{why}");
    }
    let started = Running::start(environment, config.clone(), journal.clone(), live_file).await;
    drop(journal);
    match started {
        Ok(running) => {
            let (ended, newest) = running.follow(thread, environment, candidate, control).await;
            *config = newest;
            ended
        }
        Err(error) => runtime::blocking(move || thread.join()).await.map_err(DaemonError::from).and(Err(error)),
    }
}

/// All running tasks.
struct Running {
    config: Config,
    journal: Journal,
    tasks: Supervisor<TaskError>,
    sinks: Sinks,
    sources: SourceManagerHandle,
    evidence: Evidence,
    redactor: runtime::watch::Sender<Arc<Redactor>>,
    unexplained: runtime::watch::Receiver<Unexplained>,
    /// Channel of the state that this process reports.
    live: watch::Sender<Live>,
    /// File of that state for `decklog status`, if it could be created.
    live_file: Option<std::fs::File>,
}

/// Returns the timings of the watches from the configuration.
fn timings(cluster: &cluster::Settings) -> Timings {
    let audit = Some(*cluster.audit_every).filter(|period| !period.is_zero());
    let recover = match cluster.recover {
        Recover::Off(_) => None,
        Recover::Within(bounds) => Some(bounds),
    };
    let dates = cluster.lease_times != Some(false);
    let audit_reads = cluster.audit_reads.budget();
    Timings { audit, audit_reads, recover, dates, version_clock: Some(VERSION_CLOCK_INTERVAL), ..Timings::default() }
}

/// Waits until the value is true; returns false if its sender is gone.
async fn comes_true(seen: &mut watch::Receiver<bool>) -> bool {
    seen.wait_for(|seen| *seen).await.is_ok()
}

/// Begins a new epoch where the state directory is a copy: from where it was copied, entries may have been recorded otherwise.
async fn goes_on(journal: &Journal) -> Result<(), JournalError> {
    if journal.is_copy()? {
        let epoch = journal.begin_epoch(None).await?;
        tracing::warn!(epoch, "the state directory is a copy, or was restored from one: a new epoch begins");
    }
    if let Err(error) = journal.renew_mark().await {
        tracing::warn!("{error}; only the outputs show whether the state directory is restored from a copy");
    }
    Ok(())
}

/// Begins to deliver.
async fn deliver(
    config: &Config,
    journal: &Journal,
    sinks: &mut Sinks,
    tasks: &mut Supervisor<TaskError>,
) -> Result<(), DaemonError> {
    sinks.open(&config.sink, journal).await?;
    // Every sink has its cursor by now, so that nothing is truncated that one of them still needs.
    journal
        .bound(Bounds {
            max_size: config.state.max_size.0,
            max_age: *config.state.max_age,
            drop_oldest: config.state.on_full == OnFull::DropOldest,
        })
        .await?;
    sinks.start(journal, tasks);
    Ok(())
}

/// Parts of the process that have to make progress, and its clock.
struct Parts {
    watchdog: Watchdog,
    reading: Progress,
    writing: Progress,
    clock: ClockWatch,
}

impl Parts {
    fn new(notifier: &Notifier) -> Self {
        let watchdog = Watchdog::new(notifier);
        let (reading, writing) = (watchdog.watch(Part::Reading.name()), watchdog.watch(Part::Writing.name()));
        Self { watchdog, reading, writing, clock: ClockWatch::new(Timestamp::now(), Instant::now()) }
    }
}

impl Running {
    async fn start(
        environment: &Environment,
        config: Config,
        journal: Journal,
        live_file: Option<std::fs::File>,
    ) -> Result<Self, DaemonError> {
        descriptors::raise();
        let redactor = redaction::redactor(&config)?;
        let evidence = Evidence::new(&config)?;
        let api = Api::open(&config.cluster, Limits::default()).await?;
        let bound = match &config.http {
            Some(section) => Some(http::bind(section).await?),
            None => None,
        };
        // Where several clusters are in one process, the page is that of all of them.
        let page = config.ui.as_ref().filter(|_| environment.registry.is_none());
        let page = match page {
            Some(section) => Some((ui::bind(section).await?, section.clone())),
            None => None,
        };
        let mut tasks = Supervisor::new(CancellationToken::new());
        let mut sinks = Sinks::new(config.ha.as_ref(), evidence.checkpoints());
        if !journal.is_standby() {
            goes_on(&journal).await?;
            evidence.begin(&journal).await?;
            deliver(&config, &journal, &mut sinks, &mut tasks).await?;
            sinks.asked().await;
        }
        let plan = Plan { watch: config.watch.clone(), redactor: Arc::clone(&redactor) };
        let counted = config.cluster.request_metrics.then(|| api.clone());
        let authority: Arc<dyn Authority> = Arc::new(Reviews::new(api.clone()));
        let announcer = announcing::announcer(&config, &api, &journal).await?;
        let (manager, handle) = SourceManager::new(api, journal.clone(), plan, timings(&config.cluster));
        let stop = tasks.stop();
        tasks.spawn(Part::Reading.name(), async move { Ok(manager.run(stop).await?) });
        if let Some(api) = counted {
            count_requests(api, &handle, &journal, &mut tasks);
        }
        evidence.spawn(&journal, &mut tasks);
        let redactor = runtime::watch::Sender::new(redactor);
        let unexplained = audit_logs::read(&config, redactor.subscribe(), &journal, handle.clone(), &mut tasks);
        let live = watch::Sender::new(Live {
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started: Some(Timestamp::now()),
            ..Live::default()
        });
        let endpoints = Endpoints {
            state: Arc::new(config.state.path.clone()),
            counters: Arc::new(DaemonCounters { sources: handle.clone(), sinks: sinks.counters() }),
            backlog: journal.backlog(),
            live: live.subscribe(),
            churn: Meter::default(),
            counts_requests: config.cluster.request_metrics,
            evidence: config.evidence.as_ref().and_then(|evidence| evidence.dir.clone()),
            witness: evidence.witness.clone(),
            authority: Arc::clone(&authority),
        };
        if bound.is_some() || environment.registry.as_ref().is_some_and(|registry| registry.served) {
            count_writes(endpoints.churn.clone(), &journal, &mut tasks);
        }
        if let Some((bound, section)) = page {
            let (state, stop) = (config.state.path.clone(), tasks.stop());
            tasks.spawn("ui", async move { Ok(ui::serve(bound, &section, (&state, authority), stop).await?) });
        }
        background::begin(&config, &handle, &journal, &mut tasks);
        announcing::spawn(announcer, &config.state.path, &journal, live.subscribe(), &mut tasks);
        let stop = tasks.stop();
        if let Some(bound) = bound {
            tasks.spawn("http", async move { Ok(http::serve(bound, endpoints, stop).await?) });
        } else if let Some(registry) = environment.registry.clone() {
            tasks.spawn("endpoints", async move {
                registry.lend(endpoints, stop).await;
                Ok(())
            });
        }
        tracing::info!(
            version = env!("CARGO_PKG_VERSION"),
            config = %environment.loaded.name(),
            state = %config.state.path.display(),
            epoch = journal.epoch(),
            head = journal.head().borrow().0,
            "decklog has started"
        );
        Ok(Self { config, journal, tasks, sinks, sources: handle, evidence, redactor, unexplained, live, live_file })
    }

    async fn follow(
        mut self,
        mut writer: WriterThread,
        environment: &Environment,
        candidate: Option<&Candidate>,
        control: &mut Control,
    ) -> (Result<(), DaemonError>, Config) {
        let notifier = &environment.notifier;
        let mut ready = self.sources.ready();
        let mut reported_ready = false;
        let mut look = tokio::time::interval(PROGRESS_INTERVAL);
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut parts = Parts::new(notifier);
        let mut leadership = candidate.map(|candidate| candidate.leadership.clone());
        let mut taking: Option<Taking> = None;
        let mut candidacy = Candidacy::default();
        let mut failure = None;
        let reason = loop {
            if let Some(leadership) = &leadership {
                match candidate::course(&leadership.borrow(), taking.is_some(), &self.journal.shared().borrow()) {
                    Course::Stay => {}
                    Course::Take => taking = Some(Taking::begin(self.journal.clone())),
                    Course::StepDown => {
                        break Some(candidate::gives_up("the Lease is another one's, or could not be renewed"));
                    }
                }
            }
            tokio::select! {
                Some(ended) = self.tasks.ended() => match self.sinks.ended(ended) {
                    None => {}
                    Some(ended) => break Some(ended),
                },
                () = writer.ended() => break None,
                () = control.stop.cancelled() => break None,
                Some(reload) = control.reloads.recv() => self.reload(reload, environment, reported_ready).await,
                () = candidate::moves(leadership.as_mut()) => {}
                led = candidate::led(taking.as_mut()) => {
                    match led {
                        Ok(Ok(())) => {
                            taking = None;
                            if let Err(error) = self.lead().await {
                                failure = Some(error);
                                break None;
                            }
                        }
                        Ok(Err(why)) => {
                            tracing::warn!("this decklog cannot lead yet: {why}");
                            // Without the Lease it does not try: it would stand by again at once, and lose what it has seen.
                            let leads = leadership.as_ref().is_some_and(|leadership| leadership.borrow().leads());
                            taking = leads.then(|| Taking::later(self.journal.clone()));
                        }
                        // The writer has ended, and says why.
                        Err(_) => break None,
                    }
                }
                true = comes_true(&mut ready), if !reported_ready => {
                    reported_ready = true;
                    self.report_ready();
                    notifier.ready();
                }
                _ = look.tick() => {
                    notifier.status(&self.line());
                    self.look_around(&mut parts, reported_ready, candidate).await;
                    if let Some(candidate) = candidate {
                        let condition = Condition::of(&self.journal.shared().borrow(), self.sources.all_watch());
                        candidate.handle.abstain(candidacy.abstains(&condition));
                    }
                    if let Err(error) = self.journal.check_place() {
                        break Some(Ended { name: Part::Writing.name().to_owned(), result: Err(Failed::Error(error.into())) });
                    }
                }
            }
        };
        drop(taking);
        let newest = self.config.clone();
        if control.stop.is_cancelled() || candidate.is_none() {
            notifier.stopping();
        }
        let ended = self.end(reason, writer, control).await;
        (ended.and(failure.map_or(Ok(()), Err)), newest)
    }

    /// Begins what only a leader does.
    async fn lead(&mut self) -> Result<(), DaemonError> {
        self.evidence.begin(&self.journal).await?;
        deliver(&self.config, &self.journal, &mut self.sinks, &mut self.tasks).await
    }

    /// Notes what makes progress, and what is to be said of this process.
    async fn look_around(&mut self, parts: &mut Parts, reported_ready: bool, candidate: Option<&Candidate>) {
        if !reported_ready {
            self.report_lists();
        }
        if self.journal.paused().borrow().is_some() {
            // Nothing is taken from it, and that is reported.
            parts.reading.rest();
        } else {
            parts.reading.at(self.sources.progress());
        }
        // It may be writing a long list, which counts its turns too.
        drop(tokio::time::timeout(PING_TIMEOUT, self.journal.ping()).await);
        parts.writing.at(self.journal.turns());
        let stalled = parts.watchdog.look(!reported_ready);
        let seen = parts.clock.look(Timestamp::now(), Instant::now());
        self.report_time(seen);
        let ha = candidate.map(|candidate| candidate.view(&self.journal.shared().borrow()));
        self.update_live(stalled, seen, ha);
        self.sources.log_news();
        // Where the writer has stopped, that is reported elsewhere.
        if !self.journal.is_standby() {
            drop(tokio::time::timeout(PING_TIMEOUT, self.journal.settle_left()).await);
        }
    }

    /// Takes a new configuration, or refuses it and goes on with the old one; files are opened again either way.
    async fn reload(&mut self, Reload { loaded, done }: Reload, environment: &Environment, reported_ready: bool) {
        // Before READY, systemd would take the end of the reload for the end of the start.
        if reported_ready {
            environment.notifier.reloading();
        }
        let taken = match loaded {
            Ok(loaded) => self.take(loaded.config, environment).await,
            Err(text) => Err(text),
        };
        match &taken {
            Ok(()) => tracing::info!("SIGHUP: the configuration was read again, and the files are reopened"),
            Err(text) => {
                tracing::error!("SIGHUP: the new configuration is refused and the running one kept:\n{text}");
            }
        }
        self.report_refusal(taken.as_ref().err());
        self.sinks.reopen();
        if reported_ready {
            environment.notifier.ready();
        }
        // Who asked may have gone.
        drop(done.send(taken));
    }

    async fn take(&mut self, config: Config, environment: &Environment) -> Result<(), String> {
        for (section, changed) in [
            ("[cluster]", self.config.cluster != config.cluster),
            ("[state]", self.config.state != config.state),
            ("[ha]", self.config.ha != config.ha),
            ("[[audit_log]]", self.config.audit_log != config.audit_log),
            ("[evidence]", self.config.evidence != config.evidence),
            ("[http]", self.config.http != config.http),
            ("[ui]", self.config.ui != config.ui),
            ("[log] format", self.config.log.format != config.log.format),
        ] {
            if changed {
                tracing::warn!("{section} has changed: restart decklog to apply that");
            }
        }
        // Other rules are another redactor, and every source begins again with it; the same rules are the same one.
        let redactor = if config.redact == self.config.redact {
            Arc::clone(&self.redactor.borrow())
        } else {
            redaction::redactor(&config).map_err(|error| error.to_string())?
        };
        self.sinks.change(&config.sink, &self.journal, &mut self.tasks).await.map_err(|error| error.to_string())?;
        environment.telemetry.reload(&config.log)?;
        if config.watch != self.config.watch || config.redact != self.config.redact {
            let plan = Plan { watch: config.watch.clone(), redactor: Arc::clone(&redactor) };
            if tokio::time::timeout(RELOAD_TIMEOUT, self.sources.reload(plan)).await.is_err() {
                tracing::warn!("decklog watches by the old configuration until the journal takes changes again");
            }
        }
        for changes::Change { text, widens } in changes::between(&self.config, &config) {
            if widens {
                tracing::warn!("SIGHUP: {text}; more may be written from now on, or to elsewhere");
            } else {
                tracing::info!("SIGHUP: {text}");
            }
        }
        self.redactor.send_replace(redactor);
        self.config = config;
        Ok(())
    }

    /// Ends everything in order, and says why it ended where nobody had asked for it.
    async fn end(
        self,
        reason: Option<Ended<TaskError>>,
        writer: WriterThread,
        control: &Control,
    ) -> Result<(), DaemonError> {
        let Self { journal, tasks, sinks, sources, evidence, .. } = self;
        let ending = async move {
            let (failed, late) = tasks.shut_down(STOP_LIMIT).await;
            for ended in failed {
                if let Err(error) = ended.result {
                    tracing::error!(task = ended.name, "{error}");
                }
            }
            if !late.is_empty() {
                tracing::warn!(tasks = late.join(", "), "did not end in time");
            }
            sources.log_news();
            drop(sinks);
            evidence.end(&journal).await;
            // What is copied from here on is known by its mark. It is no reason to stay.
            drop(tokio::time::timeout(MARK_LIMIT, journal.renew_mark()).await);
            let step_down = journal.step_down();
            drop((sources, journal));
            // The last handle is gone: the thread commits what it was given, and ends.
            let mut joining = tokio::task::spawn_blocking(move || writer.join());
            let joined = match tokio::time::timeout(SETTLE_LIMIT, &mut joining).await {
                Ok(joined) => joined,
                Err(_elapsed) => {
                    // An engine that is away is not waited for.
                    step_down.ask();
                    joining.await
                }
            };
            match joined {
                Ok(result) => result.map_err(DaemonError::from),
                Err(error) => Err(DaemonError::Task { name: "journal".to_owned(), why: error.to_string() }),
            }
        };
        let joined = tokio::select! {
            joined = ending => joined,
            () = control.hurry.cancelled() => return Err(DaemonError::Hurried),
        };
        // What the journal says is the cause of whatever else failed.
        joined?;
        match reason {
            None => {
                tracing::info!("stopped");
                Ok(())
            }
            Some(Ended { name, result: Err(Failed::Error(error)) }) => Err(error.into_daemon(name)),
            Some(Ended { name, result: Err(panicked) }) => Err(DaemonError::Task { name, why: panicked.to_string() }),
            Some(Ended { name, result: Ok(()) }) => {
                Err(DaemonError::Task { name, why: "it ended unasked; this is a bug".to_owned() })
            }
        }
    }
}
