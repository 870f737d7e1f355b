//! One decklog of two: what its daemon does, with the parts of the real one.

use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use decklog::app::ha::{Candidacy, Condition};
use decklog::core::change::redact::{self, Redactor};
use decklog::core::runtime::Signal;
use decklog::core::units::Span;
use decklog::delivery::{self, OnRefused};
use decklog::journal::{Bounds, Journal, JournalError, Reader, Role, Shared, Sharing, SinkStart};
use decklog::sim::Sim;
use decklog::watch::cluster::{Api, Limits, RecoverBounds};
use decklog::watch::{Plan, SourceManager, SourceManagerHandle, Timings};
use futures::FutureExt;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, Sleep, sleep};
use tokio_util::sync::CancellationToken;

use super::evidence;
use super::places::{Places, Side, Switches, is};
use super::world::WATCHED;

/// How a node stands, for who looks at it.
#[derive(Default)]
struct View {
    journal: Option<Journal>,
    /// One for all looks: to open one costs more than the look.
    reader: Option<Reader>,
    sources: Option<SourceManagerHandle>,
    failure: Option<String>,
}

pub(crate) struct Node {
    pub(crate) name: &'static str,
    pub(crate) dir: PathBuf,
    /// The directory goes with it.
    _keep: tempfile::TempDir,
    switches: Arc<Switches>,
    view: Arc<Mutex<View>>,
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

/// Believes that it leads, for as long as it may.
#[derive(Default)]
struct Candidate {
    seen: (Option<String>, u64),
    changed: Option<Instant>,
    renewed: Option<Instant>,
}

impl Candidate {
    fn leads(&self) -> bool {
        self.renewed.is_some_and(|at| at.elapsed() < Duration::from_secs(10))
    }

    /// Gives it back, where it is its own.
    fn abstain(&mut self, places: &Places, switches: &Switches, me: &str) {
        let now = places.lease.get();
        if now.0.as_deref() == Some(me) && !is(&switches.no_lease) {
            places.lease.put(&now, None);
        }
        self.renewed = None;
    }

    /// One try, as client-go makes it every two seconds.
    fn attempt(&mut self, places: &Places, switches: &Switches, me: &str) {
        if is(&switches.no_lease) {
            return;
        }
        let now = places.lease.get();
        if now != self.seen || self.changed.is_none() {
            (self.seen, self.changed) = (now.clone(), Some(Instant::now()));
        }
        let mine = now.0.as_deref() == Some(me);
        let expired = self.changed.is_some_and(|at| at.elapsed() > Duration::from_secs(15));
        if (mine || expired || now.0.is_none()) && places.lease.put(&now, Some(me)) {
            self.renewed = Some(Instant::now());
            (self.seen, self.changed) = (places.lease.get(), Some(Instant::now()));
        }
    }
}

impl Node {
    pub(crate) fn begin(name: &'static str, places: &Places, life: u64) -> Self {
        Self::begin_at(name, places, life, None)
    }

    /// With this disk, or a new one.
    pub(crate) fn begin_at(name: &'static str, places: &Places, life: u64, old: Option<PathBuf>) -> Self {
        let memory = Path::new("/dev/shm");
        let builder = tempfile::Builder::new().prefix("decklog-pair-").to_owned();
        let keep = if memory.is_dir() { builder.tempdir_in(memory) } else { builder.tempdir() }.unwrap();
        let dir = keep.path().join("state");
        std::fs::create_dir(&dir).unwrap();
        if let Some(old) = old {
            // What a crash leaves: the dead process still holds the files that were there.
            for file in std::fs::read_dir(&old).unwrap() {
                let file = file.unwrap().path();
                std::fs::copy(&file, dir.join(file.file_name().unwrap())).unwrap();
            }
            evidence::copy(&old, &dir);
        }
        let (switches, view, stop) =
            (Arc::<Switches>::default(), Arc::<Mutex<View>>::default(), CancellationToken::new());
        let mut tasks = JoinSet::new();
        let life = Life {
            name,
            life,
            dir: dir.clone(),
            places: places.clone(),
            switches: Arc::clone(&switches),
            view: Arc::clone(&view),
            stop: stop.clone(),
        };
        tasks.spawn(life.run());
        Self { name, dir, _keep: keep, switches, view, stop, tasks }
    }

    fn shared(&self) -> Option<Shared> {
        self.view.lock().unwrap().journal.as_ref().map(|journal| journal.shared().borrow().clone())
    }

    pub(crate) fn role(&self) -> Option<Role> {
        self.shared().map(|shared| shared.role)
    }

    pub(crate) fn number(&self) -> u64 {
        self.shared().map_or(0, |shared| shared.number)
    }

    pub(crate) fn term(&self) -> u64 {
        self.shared().map_or(0, |shared| shared.term)
    }

    pub(crate) fn problem(&self) -> Option<String> {
        self.shared().and_then(|shared| shared.problem)
    }

    pub(crate) fn failure(&self) -> Option<String> {
        self.view.lock().unwrap().failure.clone()
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.view.lock().unwrap().sources.as_ref().is_some_and(|sources| {
            let overview = sources.overview();
            overview.sources.len() == WATCHED.len()
                && overview.sources.iter().all(|view| view.stats.state() == decklog::journal::SourceState::Watching)
        })
    }

    /// Whether its journal has everything that happened so far.
    pub(crate) fn has_seen(&self, sim: &Sim) -> bool {
        let mut view = self.view.lock().unwrap();
        let View { journal: Some(journal), reader, .. } = &mut *view else { return false };
        if reader.is_none() {
            *reader = journal.reader().ok();
        }
        let Some(reader) = reader else { return false };
        let Ok(sources) = reader.sources() else { return false };
        WATCHED.iter().all(|resource| {
            let plural = resource.split('.').next().unwrap_or_default();
            let newest = sim.history_of(resource).iter().map(|row| row.revision).max().unwrap_or(0);
            let at = sources.iter().find(|row| row.resource.plural == plural);
            // A bookmark says that nothing more comes.
            let resume = at.and_then(|row| row.resume.as_ref());
            resume.and_then(|version| version.as_str().parse::<u64>().ok()).is_some_and(|at| at >= newest)
        })
    }

    pub(crate) fn shown(&self) -> String {
        let view = self.view.lock().unwrap();
        let states: Vec<String> = view
            .sources
            .iter()
            .flat_map(|sources| sources.overview().sources)
            .map(|source| format!("{} {:?}", source.spec.name(), source.stats.state()))
            .collect();
        drop(view);
        format!("{}: {:?} {states:?}", self.name, self.shared())
    }

    pub(crate) fn cut(&self, side: Side, cut: bool) {
        let switch = match side {
            Side::Engine => &self.switches.no_engine,
            Side::Api => &self.switches.no_api,
            Side::Lease => &self.switches.no_lease,
            Side::Answers => &self.switches.lost_answers,
            Side::Slow => &self.switches.slow,
        };
        switch.store(cut, Ordering::Relaxed);
    }

    /// Has what every output has taken removed, or keeps everything again.
    pub(crate) async fn truncate(&self, removes: bool) {
        // Nothing goes before somebody has seen it.
        let max_age = if removes { Duration::from_secs(5) } else { Duration::from_secs(1 << 30) };
        let journal = self.view.lock().unwrap().journal.clone();
        let Some(journal) = journal else { return };
        drop(journal.bound(Bounds { max_size: 1 << 40, max_age, drop_oldest: false }).await);
    }

    /// SIGSTOP and SIGCONT.
    pub(crate) fn pause(&self, paused: bool) {
        self.switches.paused.store(paused, Ordering::Relaxed);
    }

    /// kill -9.
    pub(crate) async fn kill(&mut self) {
        self.switches.dead.store(true, Ordering::Relaxed);
        *self.view.lock().unwrap() = View::default();
        self.tasks.shutdown().await;
    }

    /// SIGTERM.
    pub(crate) async fn leave(&mut self) -> Result<(), String> {
        self.stop.cancel();
        let ending = async { while self.tasks.join_next().await.is_some() {} };
        let ended = tokio::time::timeout(Duration::from_secs(60), ending).await;
        *self.view.lock().unwrap() = View::default();
        ended.map_err(|_| "it does not end".to_owned())
    }
}

struct Life {
    name: &'static str,
    life: u64,
    dir: PathBuf,
    places: Places,
    switches: Arc<Switches>,
    view: Arc<Mutex<View>>,
    stop: CancellationToken,
}

impl Life {
    async fn run(self) {
        let mut candidate = Candidate::default();
        while !self.stop.is_cancelled() {
            match Box::pin(self.part(&mut candidate)).await {
                Ok(()) => break,
                Err(JournalError::Superseded(_)) => sleep(Duration::from_millis(500)).await,
                Err(error) => {
                    self.view.lock().unwrap().failure = Some(format!("{}: {error}", self.name));
                    return;
                }
            }
        }
        // Given back, where it has it.
        let now = self.places.lease.get();
        if now.0.as_deref() == Some(self.name) && !is(&self.switches.no_lease) {
            self.places.lease.put(&now, None);
        }
    }

    /// As a standby, and as a leader, until it stops or leads no more.
    async fn part(&self, candidate: &mut Candidate) -> Result<(), JournalError> {
        let sharing = Sharing {
            log: Box::new(self.places.engine_of(&self.switches)),
            identity: self.name.to_owned(),
            backlog: 64 << 20,
            key: "key".to_owned(),
            poll: Duration::from_millis(250),
            worth_a_base: 100_000,
        };
        let (journal, writing) = Journal::inline_shared(&self.dir, |_| Ok(()), sharing)?;
        let mut writer: JoinSet<Result<(), JournalError>> = JoinSet::new();
        writer.spawn(gated(Arc::clone(&self.switches), writing));
        let api = Api::with_client(self.places.client(&self.switches), "sim", Limits::default()).await.unwrap();
        let redactor = Arc::new(Redactor::new(&redact::Settings::default(), [7; 32]).unwrap());
        let watched = decklog::watch::Settings {
            resources: WATCHED.iter().map(|name| (*name).to_owned()).collect(),
            ..decklog::watch::Settings::default()
        };
        let timings = Timings {
            recover: Some(RecoverBounds { within: Span::from_secs(3600), ..RecoverBounds::default() }),
            audit: Some(Duration::from_secs(120)),
            definitions: false,
            ..Timings::default()
        };
        let plan = Plan { watch: vec![watched], redactor };
        let (manager, sources) = SourceManager::new(api, journal.clone(), plan, timings);
        let publisher = self.places.evidence.publisher(self.name, &self.dir, &self.switches);
        let (stop, reopen) = (CancellationToken::new(), Signal::default());
        let mut tasks: JoinSet<Result<(), String>> = JoinSet::new();
        let stopping = stop.clone();
        tasks.spawn(async move { manager.run(stopping).await.map_err(|error| error.to_string()) });
        {
            let (publisher, journal, stopping) = (publisher.clone(), journal.clone(), stop.clone());
            let signing = async move { publisher.run(&journal, &watch::Sender::default(), stopping).await };
            let signing = gated(Arc::clone(&self.switches), Box::pin(signing));
            tasks.spawn(signing.map(Ok));
        }
        {
            let mut view = self.view.lock().unwrap();
            view.journal = Some(journal.clone());
            view.sources = Some(sources.clone());
        }
        let mut candidacy = Candidacy::default();
        let mut delivers = false;
        let ended = loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => break None,
                ended = writer.join_next() => break ended,
                Some(ended) = tasks.join_next() => {
                    if let Ok(Err(error)) = &ended {
                        // The writer says why, if it is because of that.
                        let written = tokio::time::timeout(Duration::from_secs(5), writer.join_next()).await;
                        if let Ok(written) = written {
                            break written;
                        }
                        break Some(Ok(Err(JournalError::Stopped(error.clone()))));
                    }
                }
                () = sleep(Duration::from_millis(2000)) => {
                    self.switches.goes_on().await;
                    // As the daemon does.
                    let shared = journal.shared().borrow().clone();
                    let condition = Condition::of(&shared, sources.all_watch());
                    if candidacy.abstains(&condition) {
                        candidate.abstain(&self.places, &self.switches, self.name);
                    } else {
                        candidate.attempt(&self.places, &self.switches, self.name);
                    }
                    let standby = journal.is_standby();
                    if candidate.leads() && standby {
                        if let Ok(Ok(())) = journal.lead().await {
                            delivers = true;
                        }
                    } else if !candidate.leads() && shared.may_stand_by() {
                        journal.step_down().ask();
                        break Some(Ok(Err(JournalError::Superseded("the Lease".to_owned()))));
                    }
                    if std::mem::take(&mut delivers) {
                        // As everything that ends this part: what is open is closed before another one begins.
                        if let Err(error) = publisher.begin(&journal).await {
                            break Some(Ok(Err(error)));
                        }
                        self.deliver(&journal, &mut tasks, &reopen, &stop).await?;
                    }
                }
            }
        };
        *self.view.lock().unwrap() = View::default();
        stop.cancel();
        while tasks.join_next().await.is_some() {}
        let step_down = journal.step_down();
        drop((journal, sources));
        match ended {
            Some(Ok(result)) if writer.is_empty() => result,
            Some(Ok(Err(error))) => {
                while writer.join_next().await.is_some() {}
                Err(error)
            }
            _ => {
                let last = tokio::time::timeout(Duration::from_secs(5), writer.join_next()).await;
                if last.is_err() {
                    step_down.ask();
                    while writer.join_next().await.is_some() {}
                }
                Ok(())
            }
        }
    }

    async fn deliver(
        &self,
        journal: &Journal,
        tasks: &mut JoinSet<Result<(), String>>,
        reopen: &Signal,
        stop: &CancellationToken,
    ) -> Result<(), JournalError> {
        for (name, output) in self.places.outputs() {
            let plan = delivery::Plan {
                name: name.to_owned(),
                kind: "simulated",
                start: SinkStart::Start,
                filter: None,
                shape: decklog::core::wire::Shape::WHOLE,
                rate: None,
                on_refused: OnRefused::Halt,
                stats: Arc::default(),
                position_known: Arc::default(),
                notify: None,
                machine: None,
            };
            delivery::register(journal, vec![plan.registration()])
                .await
                .map_err(|error| JournalError::Stopped(error.to_string()))?;
            let sink = output.sink(&self.switches, self.life ^ journal.shared().borrow().term << 32);
            let running = delivery::run(journal.clone(), plan, sink, reopen.listen(), stop.clone());
            let running = gated(Arc::clone(&self.switches), Box::pin(running));
            tasks.spawn(async move { running.await.map_err(|error| error.to_string()) });
        }
        Ok(())
    }
}

/// Goes on only while the process does.
fn gated<T>(
    switches: Arc<Switches>,
    mut work: Pin<Box<dyn Future<Output = T> + Send>>,
) -> impl Future<Output = T> + Send {
    let mut wait: Option<Pin<Box<Sleep>>> = None;
    std::future::poll_fn(move |cx| {
        loop {
            if let Some(sleeping) = &mut wait {
                if sleeping.as_mut().poll(cx).is_pending() {
                    return Poll::Pending;
                }
                wait = None;
            }
            if is(&switches.paused) || is(&switches.dead) {
                wait = Some(Box::pin(sleep(Duration::from_millis(100))));
                continue;
            }
            return work.as_mut().poll(cx);
        }
    })
}
