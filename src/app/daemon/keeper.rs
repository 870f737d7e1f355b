//! Keeps the daemon of one cluster of several: begins it again when it ends by an error, and gives it what is asked of it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::control::QUEUED;
use super::{Control, DaemonError, EndpointRegistry, Environment, Reload};
use crate::app::config::{Config, Loaded};
use crate::app::systemd::{Heard, Notifier};
use crate::core::backoff::Backoff;
use crate::core::supervise::{Failed, Supervisor};
use crate::core::telemetry::Telemetry;
use crate::query::status::{self, Live, Trouble};
use crate::web::http::{Clusters, Endpoints};

/// Backoff after a daemon ended by an error.
const AGAIN: Backoff = Backoff { first: Duration::from_secs(1), most: Duration::from_secs(60) };
/// One that ran so long is no failure of its start.
const HEALTHY_RUN_MIN: Duration = Duration::from_secs(60);
/// Time limit for leaving clusters whose place this one may take.
const LEAVE_LIMIT: Duration = Duration::from_secs(30);

/// Stage of a cluster's daemon.
#[derive(Clone, Debug)]
pub(super) enum Stage {
    /// It has not begun.
    Begins,
    /// It runs.
    Running {
        /// Receiver of its reports.
        heard: Arc<Heard>,
        /// Since when.
        since: Instant,
        /// Set if the previous run ended by an error.
        again: bool,
    },
    /// It ended by an error, and is begun again.
    Failed,
    /// It was asked to end, and has.
    Ended,
}

/// A daemon has ended by an error.
#[derive(Debug)]
pub(super) struct Failure {
    /// The name of the cluster.
    pub(super) name: String,
    /// Why.
    pub(super) error: DaemonError,
    /// Set if it had begun before.
    pub(super) had_begun: bool,
}

/// Runs a cluster's daemon.
pub(super) type Begin = fn(Environment, Control) -> BoxFuture<'static, Result<(), DaemonError>>;

/// See the module.
pub(super) struct ClusterSupervisor {
    pub(super) begin: Begin,
    pub(super) name: String,
    pub(super) loaded: Loaded,
    pub(super) telemetry: Telemetry,
    /// The clusters of this process, for its endpoints.
    pub(super) clusters: Clusters,
    pub(super) registry: EndpointRegistry,
    pub(super) stage: watch::Sender<Stage>,
    pub(super) failures: mpsc::Sender<Failure>,
    /// Leaving clusters whose journal or files this one may have.
    pub(super) after: Vec<watch::Receiver<Stage>>,
}

/// Result of taking a configuration.
type Taken = Result<(), String>;

/// A configuration that it was given and has not taken yet.
struct Given {
    loaded: Loaded,
    taken: oneshot::Receiver<Taken>,
    done: oneshot::Sender<Taken>,
}

impl ClusterSupervisor {
    /// Keeps it until it is asked to end.
    pub(super) async fn keep(mut self, mut control: Control) {
        for before in &mut self.after {
            drop(tokio::time::timeout(LEAVE_LIMIT, before.wait_for(|stage| matches!(stage, Stage::Ended))).await);
        }
        let mut failures = 0;
        while !control.stop.is_cancelled() {
            let begun = Instant::now();
            let mut endpoints = self.registry.endpoints.subscribe();
            endpoints.mark_unchanged();
            let ended = self.run(&mut control, endpoints.clone(), failures > 0).await;
            let had_begun = endpoints.has_changed().unwrap_or(false);
            let error = match ended {
                Ok(()) => continue,
                Err(_) if control.stop.is_cancelled() => break,
                Err(error) => error,
            };
            failures = if had_begun && begun.elapsed() > HEALTHY_RUN_MIN { 1 } else { failures + 1 };
            let failure = self.report(error, had_begun);
            // Where nobody waits for it, the process is ending.
            drop(self.failures.send(failure).await);
            self.wait(&mut control, AGAIN.wait(failures)).await;
        }
        self.stage.send_replace(Stage::Ended);
    }

    /// Runs it once. It ends without an error where it was asked to end, or has to begin again by another configuration.
    async fn run(
        &mut self,
        control: &mut Control,
        mut endpoints: watch::Receiver<Option<Endpoints>>,
        again: bool,
    ) -> Result<(), DaemonError> {
        let heard = Arc::new(Heard::default());
        let (reloads, passed_on) = mpsc::channel(QUEUED);
        let inner = Control { stop: control.stop.child_token(), hurry: control.hurry.clone(), reloads: passed_on };
        let stop = inner.stop.clone();
        let environment = Environment {
            loaded: self.loaded.clone(),
            notifier: Notifier::to_process(Arc::clone(&heard)),
            telemetry: self.telemetry.clone(),
            registry: Some(self.registry.clone()),
        };
        self.stage.send_replace(Stage::Running { heard, since: Instant::now(), again });
        // What it dies of, a panic as well, is seen here, and by nobody else.
        let mut run = Supervisor::new(CancellationToken::new());
        run.spawn("its daemon", (self.begin)(environment, inner));
        // What it was given last, until it has taken it.
        let mut given: Option<Given> = None;
        loop {
            tokio::select! {
                ended = run.ended() => return match ended.map(|ended| ended.result) {
                    Some(Ok(())) if stop.is_cancelled() => Ok(()),
                    Some(Err(Failed::Error(error))) => Err(error),
                    Some(Err(panicked)) => Err(bug(panicked.to_string())),
                    Some(Ok(())) | None => Err(bug("it ended unasked; this is a bug".to_owned())),
                },
                Ok(()) = endpoints.changed() => if endpoints.borrow_and_update().is_some() {
                    self.clusters.change(&self.name, |member| member.failed = None);
                },
                Some(Reload { loaded, done }) = control.reloads.recv(), if given.is_none() && !stop.is_cancelled() => match loaded {
                    Ok(loaded) if begins_again(&self.loaded.config, &loaded.config) => {
                        tracing::info!("SIGHUP: [cluster] or [state] has changed: the daemon of this cluster begins again");
                        self.loaded = loaded;
                        drop(done.send(Ok(())));
                        stop.cancel();
                    }
                    Ok(loaded) => {
                        let (sender, taken) = oneshot::channel();
                        given = Some(Given { loaded: loaded.clone(), taken, done });
                        drop(reloads.try_send(Reload { loaded: Ok(loaded), done: sender }));
                    }
                    Err(text) => drop(reloads.try_send(Reload { loaded: Err(text), done })),
                },
                taken = answer(&mut given), if given.is_some() => {
                    if let Some(Given { loaded, done, .. }) = given.take() {
                        if taken.is_ok() {
                            self.loaded = loaded;
                        }
                        drop(done.send(taken));
                    }
                }
            }
        }
    }

    /// Says that it has ended, and why: in the log, to the endpoints, and beside its journal.
    fn report(&mut self, error: DaemonError, had_begun: bool) -> Failure {
        tracing::error!("the daemon of this cluster has ended, and is begun again: {error}");
        let mut trouble = Trouble::new(&error.to_string(), None);
        self.clusters.change(&self.name, |member| {
            trouble = Trouble::new(&error.to_string(), member.failed.as_ref());
            member.failed = Some(trouble.clone());
            member.restarts += 1;
        });
        leave(&self.loaded.config.state.path, trouble);
        self.stage.send_replace(Stage::Failed);
        Failure { name: self.name.clone(), error, had_begun }
    }

    /// Waits until it is to be begun again: after a while, or at once by a new configuration.
    async fn wait(&mut self, control: &mut Control, time: Duration) {
        let time = tokio::time::sleep(time);
        tokio::pin!(time);
        loop {
            tokio::select! {
                () = &mut time => return,
                () = control.stop.cancelled() => return,
                Some(Reload { loaded, done }) = control.reloads.recv() => match loaded {
                    Ok(loaded) => {
                        self.loaded = loaded;
                        drop(done.send(Ok(())));
                        return;
                    }
                    Err(text) => drop(done.send(Err(text))),
                },
            }
        }
    }
}

/// Returns whether the daemon has taken the configuration.
async fn answer(given: &mut Option<Given>) -> Taken {
    match given {
        Some(Given { taken, .. }) => {
            taken.await.unwrap_or_else(|_| Err("its daemon ended before it had taken it".to_owned()))
        }
        None => std::future::pending().await,
    }
}

/// Reports whether the change of configuration needs a restart of the daemon.
fn begins_again(old: &Config, new: &Config) -> bool {
    old.cluster != new.cluster || old.state != new.state
}

fn bug(why: String) -> DaemonError {
    DaemonError::Task { name: "its daemon".to_owned(), why }
}

/// Leaves why nothing runs for `decklog status`, where no other process has this journal.
fn leave(state: &Path, trouble: Trouble) {
    if !state.is_dir() || status::daemon(state).running {
        return;
    }
    let live = Live {
        pid: std::process::id(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        failed: Some(trouble),
        ..Live::default()
    };
    if let Err(error) = Live::file(state).and_then(|file| live.write(&file)) {
        tracing::debug!("why this cluster fails cannot be left for `decklog status`: {error}");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::app::daemon::{Asker, control};
    use crate::web::http::Member;

    fn loaded(text: &str) -> Loaded {
        let config = toml::from_str(&format!("[[watch]]\nresources = [\"pods\"]\n{text}")).unwrap();
        Loaded { config, path: None, warnings: Vec::new() }
    }

    /// A keeper, with what sees it and asks it.
    struct Kept {
        clusters: Clusters,
        asker: Asker,
        stage: watch::Receiver<Stage>,
        failures: mpsc::Receiver<Failure>,
        task: Supervisor<std::convert::Infallible>,
        state: tempfile::TempDir,
    }

    impl Kept {
        fn begin(begin: Begin) -> Self {
            let state = tempfile::tempdir().unwrap();
            let mut loaded = loaded("");
            loaded.config.state.path = state.path().to_owned();
            let (control, asker) = control();
            let (endpoints, lent) = watch::channel(None);
            let (stage, stages) = watch::channel(Stage::Begins);
            let (sender, failures) = mpsc::channel(1);
            let clusters = Clusters::default();
            clusters.set("eu", Member::new(None, lent));
            let keeper = ClusterSupervisor {
                begin,
                name: "eu".to_owned(),
                loaded,
                telemetry: Telemetry::unheard(),
                clusters: clusters.clone(),
                registry: EndpointRegistry { endpoints, served: false },
                stage,
                failures: sender,
                after: Vec::new(),
            };
            let mut task = Supervisor::new(CancellationToken::new());
            task.spawn("keeper", async move {
                keeper.keep(control).await;
                Ok(())
            });
            Self { clusters, asker, stage: stages, failures, task, state }
        }

        fn restarts(&self) -> u64 {
            let mut restarts = 0;
            self.clusters.change("eu", |member| restarts = member.restarts);
            restarts
        }
    }

    /// What has to come. The clock is a paused one, so what never comes is seen at once.
    async fn comes<T>(what: impl Future<Output = T>) -> T {
        tokio::time::timeout(Duration::from_secs(3600), what).await.expect("it comes")
    }

    async fn runs(mut control: Control) -> Result<(), DaemonError> {
        loop {
            tokio::select! {
                () = control.stop.cancelled() => return Ok(()),
                Some(reload) = control.reloads.recv() => {
                    let taken = reload.loaded.and_then(|loaded| {
                        if loaded.config.sink.is_empty() { Ok(()) } else { Err("no sink is wanted".to_owned()) }
                    });
                    drop(reload.done.send(taken));
                }
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_panics_or_fails_is_begun_again_until_it_runs() {
        static BEGUN: AtomicU32 = AtomicU32::new(0);
        let mut kept = Kept::begin(|environment, control| {
            Box::pin(async move {
                match BEGUN.fetch_add(1, Ordering::SeqCst) {
                    0 => panic!("geheim {}", environment.loaded.config.state.path.display()),
                    1 => Err(DaemonError::Config("no kubeconfig".to_owned())),
                    2 => Ok(()),
                    _ => runs(control).await,
                }
            })
        });
        for why in ["it panicked ((what it says may quote an object", "no kubeconfig", "it ended unasked"] {
            let failure = comes(kept.failures.recv()).await.unwrap();
            assert!(failure.error.to_string().contains(why), "{}", failure.error);
            assert!(!failure.error.to_string().contains("geheim") && !failure.had_begun, "{}", failure.error);
            // For `decklog status`, which asks no process.
            let left = status::failed(kept.state.path()).unwrap();
            assert!(left.why.contains(why) && left.times == u32::try_from(kept.restarts()).unwrap(), "{left:?}");
        }
        comes(kept.stage.wait_for(|stage| matches!(stage, Stage::Running { again: true, .. }))).await.unwrap();
        assert_eq!((BEGUN.load(Ordering::SeqCst), kept.restarts()), (4, 3));
        kept.asker.stop();
        comes(kept.task.ended()).await.unwrap();
        assert!(matches!(*kept.stage.borrow(), Stage::Ended));
    }

    #[tokio::test(start_paused = true)]
    async fn a_daemon_takes_what_it_can_and_begins_again_for_the_rest() {
        static BEGUN: AtomicU32 = AtomicU32::new(0);
        let mut kept = Kept::begin(|_, control| {
            BEGUN.fetch_add(1, Ordering::SeqCst);
            Box::pin(runs(control))
        });
        let begun = || BEGUN.load(Ordering::SeqCst);
        let same = |text: &str| {
            let mut loaded = loaded(text);
            loaded.config.state.path = kept.state.path().to_owned();
            Ok(loaded)
        };
        assert_eq!(comes(kept.asker.reload(same(""))).await.unwrap(), Ok(()));
        assert_eq!(comes(kept.asker.reload(Err("a typo".to_owned()))).await.unwrap(), Err("a typo".to_owned()));
        let sink = "[[sink]]\nname = \"f\"\ntype = \"file\"\npath = \"f\"\n";
        assert_eq!(comes(kept.asker.reload(same(sink))).await.unwrap(), Err("no sink is wanted".to_owned()));
        assert_eq!(begun(), 1);
        assert_eq!(comes(kept.asker.reload(same("[cluster]\ncontext = \"other\"\n"))).await.unwrap(), Ok(()));
        // What comes while it begins again is taken by the one that begins.
        assert_eq!(comes(kept.asker.reload(same("[cluster]\ncontext = \"other\"\n"))).await.unwrap(), Ok(()));
        assert_eq!(begun(), 2);
        assert_eq!(kept.restarts(), 0);
        kept.asker.stop();
        comes(kept.task.ended()).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_configuration_does_not_wait_for_the_next_try() {
        let mut kept = Kept::begin(|environment, control| {
            Box::pin(async move {
                if environment.loaded.config.cluster.context.is_none() {
                    return Err(DaemonError::Config("no context".to_owned()));
                }
                runs(control).await
            })
        });
        for _ in 0..8 {
            comes(kept.failures.recv()).await.unwrap();
        }
        let begun = Instant::now();
        assert_eq!(comes(kept.asker.reload(Ok(loaded("[cluster]\ncontext = \"eu\"\n")))).await.unwrap(), Ok(()));
        comes(kept.stage.wait_for(|stage| matches!(stage, Stage::Running { .. }))).await.unwrap();
        assert!(begun.elapsed() < Duration::from_millis(10), "{:?}", begun.elapsed());
        kept.asker.stop();
        comes(kept.task.ended()).await.unwrap();
    }
}
