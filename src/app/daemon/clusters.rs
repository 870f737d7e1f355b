//! Many clusters in one process: one configuration each, one journal each, and one failure domain each.
//!
//! What they share is the process: its signals, what systemd hears, the endpoints and the log. Each cluster's daemon runs
//! as if it were alone ([`run_one`]), and ends alone: a keeper begins it again.
//!
//! # Decision: many clusters are as many daemons in one process
//!
//! Context: Fifty small clusters should not need fifty services.
//! Decision: A cluster's run knows no signals and no systemd; a keeper restarts it after an error or a panic. Runtime,
//! endpoints and log are shared, budgets and caches are not, so that one slow disk holds up no other. A cluster that hangs
//! from the start does not count for the watchdog, because a restart would not help it.
//! Cost: One hung cluster restarts all, which resume.
//!
//! # Decision: one file for each cluster, and no file for the process
//!
//! Context: `[http]` and `[log]` belong to the process.
//! Decision: They stand in the files of the clusters, in one or equal in several; a file that differs is wrong by itself.
//! Values that two files cannot both have are an error of the later one, which never ends a running cluster.
//! Cost: The same section in several files.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::future::join_all;
use jiff::Timestamp;
use tokio::sync::{mpsc, watch};
use tokio::task::{Id, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::control::{SignalRequest, Signals};
use super::keeper::{ClusterSupervisor, Failure, Stage};
use super::{Asker, DaemonError, EndpointRegistry, PROGRESS_INTERVAL, control, descriptors, run_one};
use crate::app::config::{ClusterFile, Directory, Loaded, Problems};
use crate::app::systemd::Notifier;
use crate::core::runtime;
use crate::core::telemetry::Telemetry;
use crate::query::status::{Live, Trouble};
use crate::web::http::{self, Clusters, Endpoints, Member};
use crate::web::ui;

/// Time limit for the end of all daemons together: less than systemd gives the process.
const STOP_LIMIT: Duration = Duration::from_secs(45);
/// Time limit for the daemons to take their configurations at a reload.
const RELOAD_LIMIT: Duration = Duration::from_secs(10);
/// A daemon that reports every two seconds and has not for so long makes no progress.
const REPORT_AGE_MAX: Duration = Duration::from_secs(15);
/// A cluster whose API server has not answered for so long keeps no other from being ready.
const UNREACHED_WAIT: Duration = Duration::from_secs(10);
/// Extension of systemd's start timeout, at each request.
const EXTENSION_PERIOD: Duration = Duration::from_secs(60);

/// Environment of a process with many clusters.
pub struct MultiCluster {
    /// The configurations that it begins with.
    pub directory: Directory,
    /// Reads them again, on SIGHUP; the files that run come first.
    pub read_again: fn(&Path, &[PathBuf]) -> Result<Directory, Problems>,
    /// Connection to systemd.
    pub notifier: Notifier,
    /// decklog's own log, which takes a new level.
    pub telemetry: Telemetry,
}

/// Runs every cluster whose configuration is right, until SIGTERM or SIGINT.
///
/// # Errors
/// Where nothing could be begun: why the first did not; and where the endpoints cannot be served.
pub async fn run_several(several: MultiCluster) -> Result<(), DaemonError> {
    let mut signals = Signals::new().map_err(|error| DaemonError::Io(format!("cannot watch for signals: {error}")))?;
    descriptors::raise();
    let stop_serving = CancellationToken::new();
    let (mut process, mut failures) = Process::new(several);
    let mut serving = JoinSet::new();
    if let Some(section) = &process.several.directory.http {
        let bound = http::bind(section).await?;
        serving.spawn(http::serve_several(bound, process.clusters.clone(), stop_serving.clone()));
    }
    if let Some(section) = process.several.directory.ui.clone() {
        let (bound, clusters, stop) = (ui::bind(&section).await?, process.clusters.clone(), stop_serving.clone());
        serving.spawn(async move { ui::serve_several(bound, &section, clusters, stop).await });
    }
    process.begin();
    let mut look = tokio::time::interval(PROGRESS_INTERVAL);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let reason = loop {
        tokio::select! {
            asked = signals.next() => match asked {
                SignalRequest::Stop => break None,
                SignalRequest::Reload => process.reload().await,
            },
            Some(failure) = failures.recv() => if let Some(error) = process.failed(failure) {
                break Some(error);
            },
            Some(ended) = serving.join_next() => {
                let why = ended.map_or_else(|error| error.to_string(), |served| served.err().map_or_else(String::new, |error| error.to_string()));
                break Some(DaemonError::Task { name: "http".to_owned(), why });
            }
            _ = look.tick() => process.look(),
        }
    };
    stop_serving.cancel();
    // Nobody waits to say why it ends.
    drop(failures);
    process.end(signals).await?;
    reason.map_or(Ok(()), Err)
}

/// A cluster that is kept.
struct RunningCluster {
    name: String,
    asker: Asker,
    stage: watch::Receiver<Stage>,
    endpoints: watch::Receiver<Option<Endpoints>>,
    stalled: bool,
}

/// See the module.
struct Process {
    several: MultiCluster,
    started: Timestamp,
    clusters: Clusters,
    /// By the file.
    kept: BTreeMap<PathBuf, RunningCluster>,
    /// The names of files that are wrong and that nothing runs by, by the file.
    wrong: BTreeMap<PathBuf, String>,
    keepers: JoinSet<()>,
    names: BTreeMap<Id, String>,
    failures: mpsc::Sender<Failure>,
    /// Clusters that failed before they had begun, and the first error; none once any cluster has begun.
    hopeless: Option<(BTreeSet<String>, Option<DaemonError>)>,
    reported_ready: bool,
}

impl Process {
    fn new(several: MultiCluster) -> (Self, mpsc::Receiver<Failure>) {
        let (failures, failed) = mpsc::channel(1);
        let process = Self {
            several,
            started: Timestamp::now(),
            clusters: Clusters::default(),
            kept: BTreeMap::new(),
            wrong: BTreeMap::new(),
            keepers: JoinSet::new(),
            names: BTreeMap::new(),
            failures,
            hopeless: Some(Default::default()),
            reported_ready: false,
        };
        (process, failed)
    }

    /// Begins every cluster whose configuration is right.
    fn begin(&mut self) {
        for file in self.several.directory.files.clone() {
            self.take(file, &[]);
        }
    }

    /// Begins a cluster, or says what is wrong with its configuration.
    fn take(&mut self, file: ClusterFile, after: &[watch::Receiver<Stage>]) {
        let ClusterFile { name, path, loaded, .. } = file;
        match loaded {
            Ok(loaded) => self.keep(name, path, loaded, after.to_vec()),
            Err(problems) => {
                tracing::error!(
                    cluster = name,
                    "the configuration is wrong, and the cluster is not begun:\n{problems}"
                );
                // Nobody will ever run by this end of the channel.
                let mut member = Member::new(None, watch::channel(None).1);
                member.refused = Some(Trouble::new(&problems.to_string(), None));
                self.clusters.set(&name, member);
                self.wrong.insert(path, name);
            }
        }
    }

    fn keep(&mut self, name: String, path: PathBuf, loaded: Loaded, after: Vec<watch::Receiver<Stage>>) {
        let span = tracing::error_span!("cluster", name = %name);
        for warning in &loaded.warnings {
            span.in_scope(|| tracing::warn!("{warning}"));
        }
        let (control, asker) = control();
        let (sender, endpoints) = watch::channel(None);
        let (stage, stages) = watch::channel(Stage::Begins);
        self.clusters.set(&name, Member::new(Some(loaded.config.state.path.clone()), endpoints.clone()));
        let keeper = ClusterSupervisor {
            begin: |environment, control| Box::pin(run_one(environment, control)),
            name: name.clone(),
            loaded,
            telemetry: self.several.telemetry.clone(),
            clusters: self.clusters.clone(),
            registry: EndpointRegistry { endpoints: sender, served: self.several.directory.http.is_some() },
            stage,
            failures: self.failures.clone(),
            after,
        };
        let id = self.keepers.spawn(keeper.keep(control).instrument(span)).id();
        self.names.insert(id, name.clone());
        self.kept.insert(path, RunningCluster { name, asker, stage: stages, endpoints, stalled: false });
    }

    /// Takes note of a daemon that has ended by an error. Where none has ever begun, nothing ever will: says why.
    fn failed(&mut self, failure: Failure) -> Option<DaemonError> {
        if failure.had_begun {
            self.hopeless = None;
        }
        let (hopeless, first) = self.hopeless.as_mut()?;
        hopeless.insert(failure.name);
        let first = first.get_or_insert(failure.error);
        let all = self.kept.values().all(|kept| hopeless.contains(&kept.name));
        all.then(|| std::mem::replace(first, DaemonError::Hurried))
    }

    /// Looks at how all of them are, and reports that.
    fn look(&mut self) {
        let files = descriptors::look();
        self.clusters.set_process(Live {
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started: Some(self.started),
            open_files: files.open,
            open_files_limit: files.most,
            ..Live::default()
        });
        let mut stalled = false;
        for kept in self.kept.values_mut() {
            kept.look();
            stalled |= kept.stalled;
            let is = kept.stalled;
            self.clusters.change(&kept.name, |member| member.stalled = is);
        }
        let notifier = &self.several.notifier;
        if !stalled {
            notifier.alive();
        }
        let not_ready: Vec<&str> = self.kept.values().filter(|kept| !kept.is_ready()).map(|kept| &*kept.name).collect();
        let others: Vec<&str> = not_ready.iter().copied().chain(self.wrong.values().map(String::as_str)).collect();
        let mut line =
            format!("{} clusters, {} ready", self.kept.len() + self.wrong.len(), self.kept.len() - not_ready.len());
        if !others.is_empty() {
            line.push_str(&format!("; not: {}", others.join(", ")));
        }
        notifier.status(&line);
        if self.reported_ready {
            return;
        }
        if self.kept.values().all(RunningCluster::is_settled) {
            self.reported_ready = true;
            notifier.ready();
            if others.is_empty() {
                tracing::info!(clusters = self.kept.len(), "ready: every cluster is");
            } else {
                tracing::warn!(
                    not_ready = others.join(", "),
                    "ready, but for these clusters: `decklog status` says what they need"
                );
            }
        } else if !stalled {
            notifier.extend(EXTENSION_PERIOD);
        }
    }

    /// Reads the configurations again: begins what is new, ends what is gone, and gives the others theirs.
    async fn reload(&mut self) {
        if self.reported_ready {
            self.several.notifier.reloading();
        }
        let running: Vec<PathBuf> = self.kept.keys().cloned().collect();
        let (read_again, dir) = (self.several.read_again, self.several.directory.path.clone());
        match runtime::blocking(move || read_again(&dir, &running)).await {
            Ok(directory) => self.follow(directory).await,
            Err(problems) => {
                tracing::error!("SIGHUP: no configuration is taken, and what runs is kept:\n{problems}");
                let text = problems.to_string();
                self.wait_for(
                    self.kept.iter().map(|(path, kept)| (path.clone(), kept.asker.reload(Err(text.clone())))).collect(),
                )
                .await;
            }
        }
        if self.reported_ready {
            self.several.notifier.ready();
        }
    }

    async fn follow(&mut self, directory: Directory) {
        if directory.http != self.several.directory.http {
            tracing::warn!("[http] has changed: restart decklog to apply that");
        }
        if directory.ui != self.several.directory.ui {
            tracing::warn!("[ui] has changed: restart decklog to apply that");
        }
        if directory.log.format != self.several.directory.log.format {
            tracing::warn!("[log] format has changed: restart decklog to apply that");
        }
        if let Err(error) = self.several.telemetry.reload(&directory.log) {
            tracing::error!("SIGHUP: {error}");
        }
        // What was wrong is looked at again; one that is called otherwise is another cluster.
        for (_, name) in std::mem::take(&mut self.wrong) {
            self.clusters.remove(&name);
        }
        let stays = |path: &Path, kept: &RunningCluster| {
            directory.files.iter().any(|file| file.path == path && (file.name == kept.name || file.loaded.is_err()))
        };
        let mut leaving = Vec::new();
        self.kept.retain(|path, kept| {
            let stays = stays(path, kept);
            if !stays {
                tracing::info!(
                    cluster = kept.name,
                    "SIGHUP: the cluster is configured no more, and ends; its journal stays"
                );
                kept.asker.stop();
                self.clusters.remove(&kept.name);
                leaving.push(kept.stage.clone());
            }
            stays
        });
        let mut asked = Vec::new();
        for file in &directory.files {
            match self.kept.get(&file.path) {
                Some(kept) => {
                    let loaded = file.loaded.clone().map_err(|problems| problems.to_string());
                    if let Ok(loaded) = &loaded {
                        let state = loaded.config.state.path.clone();
                        self.clusters.change(&kept.name, |member| member.state = Some(state));
                    }
                    asked.push((file.path.clone(), kept.asker.reload(loaded)));
                }
                None => {
                    tracing::info!(cluster = file.name, "SIGHUP: the cluster is new");
                    self.take(file.clone(), &leaving);
                }
            }
        }
        self.wait_for(asked).await;
        // What the endpoints are bound by stays until a restart.
        let (http, ui) = (self.several.directory.http.take(), self.several.directory.ui.take());
        self.several.directory = Directory { http, ui, ..directory };
        tracing::info!("SIGHUP: the configurations were read again");
    }

    /// Waits for what the daemons say of their configurations, and keeps it for the endpoints.
    async fn wait_for(&self, asked: Vec<(PathBuf, impl Future<Output = Result<Result<(), String>, impl Sized>>)>) {
        let taken = asked
            .into_iter()
            .map(|(path, taken)| async move { (path, tokio::time::timeout(RELOAD_LIMIT, taken).await) });
        for (path, taken) in join_all(taken).await {
            let Some(kept) = self.kept.get(&path) else { continue };
            match taken {
                Ok(Ok(taken)) => self.clusters.change(&kept.name, |member| {
                    member.refused = taken.err().map(|why| Trouble::new(&why, member.refused.as_ref()));
                }),
                // It has ended in that moment, and begins again by what it had.
                Ok(Err(_)) => {}
                Err(_elapsed) => tracing::warn!(
                    cluster = kept.name,
                    "the daemon of this cluster has not taken its configuration yet"
                ),
            }
        }
    }

    /// Ends all of them together.
    async fn end(mut self, mut signals: Signals) -> Result<(), DaemonError> {
        self.several.notifier.stopping();
        let stop = |kept: &BTreeMap<PathBuf, RunningCluster>| kept.values().for_each(|kept| kept.asker.stop());
        stop(&self.kept);
        let late = tokio::time::sleep(STOP_LIMIT);
        tokio::pin!(late);
        loop {
            tokio::select! {
                ended = self.keepers.join_next_with_id() => match ended {
                    Some(Ok((id, ()))) => drop(self.names.remove(&id)),
                    Some(Err(error)) => tracing::error!("the keeper of a cluster: {error}"),
                    None => break,
                },
                asked = signals.next() => if asked == SignalRequest::Stop {
                    stop(&self.kept);
                    return Err(DaemonError::Hurried);
                },
                () = &mut late => {
                    let names: Vec<String> = std::mem::take(&mut self.names).into_values().collect();
                    tracing::warn!(clusters = names.join(", "), "did not end in time; the next start reads again what was not yet on disk");
                    break;
                }
            }
        }
        tracing::info!("stopped");
        Ok(())
    }
}

impl RunningCluster {
    /// Checks for progress. A daemon that hangs before its first report does not count: a restart of the process would not help
    /// it, and would stop the others.
    fn look(&mut self) {
        let late = match &*self.stage.borrow() {
            Stage::Running { heard, .. } => heard.alive().is_some_and(|alive| alive.elapsed() > REPORT_AGE_MAX),
            Stage::Begins | Stage::Failed | Stage::Ended => false,
        };
        if late && !self.stalled {
            tracing::error!(
                cluster = self.name,
                "the daemon of this cluster makes no progress: systemd's watchdog is not fed, and starts all of them again"
            );
        }
        self.stalled = late;
    }

    fn is_ready(&self) -> bool {
        matches!(&*self.stage.borrow(), Stage::Running { heard, .. } if heard.is_ready())
    }

    /// Reports whether the cluster is ready, or needs a person or an API server that answers, so that waiting is pointless.
    fn is_settled(&self) -> bool {
        match &*self.stage.borrow() {
            Stage::Begins => false,
            Stage::Running { heard, since, again } => {
                *again || heard.is_ready() || self.is_paused() || since.elapsed() > UNREACHED_WAIT && !self.is_reached()
            }
            Stage::Failed | Stage::Ended => true,
        }
    }

    /// Reports whether reading is paused for want of space, so that the first list may take as long as the pause.
    fn is_paused(&self) -> bool {
        let endpoints = self.endpoints.borrow();
        endpoints.as_ref().is_some_and(|endpoints| endpoints.live.borrow().paused.is_some())
    }

    /// Reports whether the API server has answered.
    fn is_reached(&self) -> bool {
        let endpoints = self.endpoints.borrow();
        endpoints.as_ref().is_some_and(|endpoints| endpoints.counters.is_connected())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::time::{Instant, advance};

    use super::*;
    use crate::app::systemd::{Heard, Watchdog};

    fn kept(stage: Stage) -> RunningCluster {
        let (_control, asker) = control();
        let stage = watch::channel(stage).1;
        RunningCluster { name: "eu".to_owned(), asker, stage, endpoints: watch::channel(None).1, stalled: false }
    }

    fn running(heard: &Arc<Heard>, again: bool) -> Stage {
        Stage::Running { heard: Arc::clone(heard), since: Instant::now(), again }
    }

    /// One that ran and hangs starves the watchdog, so that systemd ends what no process can end alone. One that never got so
    /// far would hang again, and is reported alone.
    #[tokio::test(start_paused = true)]
    async fn only_a_daemon_that_ran_and_hangs_is_stalled() {
        let heard = Arc::new(Heard::default());
        let watchdog = Watchdog::with_patience(&Notifier::to_process(Arc::clone(&heard)), REPORT_AGE_MAX);
        let part = watchdog.watch("part");
        let mut kept = kept(running(&heard, false));
        advance(REPORT_AGE_MAX * 4).await;
        kept.look();
        assert!(!kept.stalled, "it has never reported");
        for turn in 1..20 {
            part.at(turn);
            watchdog.look(false);
            advance(PROGRESS_INTERVAL).await;
            kept.look();
            assert!(!kept.stalled);
        }
        // The part hangs; what was reported last is believed for a while.
        for _ in 0..20 {
            watchdog.look(false);
            advance(PROGRESS_INTERVAL).await;
            kept.look();
        }
        assert!(kept.stalled);
        part.at(0);
        watchdog.look(false);
        kept.look();
        assert!(!kept.stalled, "it goes on");
        // The whole of it hangs, and reports nothing.
        advance(REPORT_AGE_MAX + PROGRESS_INTERVAL).await;
        kept.look();
        assert!(kept.stalled);
        kept.stage = watch::channel(Stage::Failed).1;
        kept.look();
        assert!(!kept.stalled, "it is begun again");
    }

    #[tokio::test(start_paused = true)]
    async fn ready_waits_for_what_can_become_ready() {
        let heard = Arc::new(Heard::default());
        assert!(!kept(Stage::Begins).is_settled());
        assert!(kept(Stage::Failed).is_settled() && !kept(Stage::Failed).is_ready());
        assert!(kept(running(&heard, true)).is_settled(), "it has failed before");
        let begins = kept(running(&heard, false));
        assert!(!begins.is_settled());
        advance(UNREACHED_WAIT + PROGRESS_INTERVAL).await;
        assert!(begins.is_settled() && !begins.is_ready(), "its API server does not answer");
        Notifier::to_process(Arc::clone(&heard)).ready();
        assert!(kept(running(&heard, false)).is_settled() && begins.is_ready());
        Notifier::to_process(heard).stopping();
        assert!(!begins.is_ready());
    }
}
