//! One life of decklog: the real journal, sources, delivery and sinks, from a start to an end of whatever kind.

use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use decklog::core::change::redact;
use decklog::core::change::redact::Redactor;
use decklog::core::filter::Wanted;
use decklog::core::runtime::Signal;
use decklog::core::units::Span;
use decklog::delivery;
use decklog::journal::{Budget, Journal, JournalError, SinkStart};
use decklog::sink::Sink;
use decklog::sink::file::FileSink;
use decklog::sink::http::HttpSink;
use decklog::watch::cluster::{Api, Limits, RecoverBounds};
use decklog::watch::{Plan, SourceManager, SourceManagerHandle, Timings};
use tokio::task::JoinSet;
use tokio::time::{Instant, Sleep, sleep};
use tokio_util::sync::CancellationToken;

use super::Setup;
use super::faults::Fault;
use super::network::Network;
use super::outputs::Outputs;
use super::questions::BEGINNING;
use super::receiver::{Collecting, Receiver};
use super::stage::Stage;

/// What may come as one piece at most, in bytes.
const LONGEST: usize = 16 << 20;

/// What decklog is connected to, whichever life it is in.
pub struct Surroundings {
    pub stage: Arc<Stage>,
    pub setup: Setup,
    pub network: Network,
    pub receiver: Arc<Receiver>,
    pub collected: Arc<Mutex<Vec<(u64, String)>>>,
    pub outputs: Outputs,
}

/// The sinks that a daemon opens, and what they get.
type Opened = Vec<(delivery::Plan, Box<dyn Sink>)>;

/// What a part of decklog has come to.
enum Part {
    /// The outputs were asked: everything begins.
    Asked(Opened, Box<SourceManager>),
    /// It has ended.
    Ended(&'static str, Ended),
}

/// What is wrong with the disk in one life.
#[derive(Clone, Copy, Debug, Default)]
pub struct BadDisk {
    /// This commit fails, counted from the start.
    pub commit: Option<u32>,
    /// The database cannot grow by more than so many pages.
    pub pages: Option<i64>,
}

/// How a life ended by itself.
pub type Ended = Result<(), String>;

pub struct Life {
    alive: Arc<AtomicBool>,
    journal: Journal,
    stop: CancellationToken,
    reopen: Signal,
    tasks: JoinSet<Part>,
    pub sources: SourceManagerHandle,
    redactor: Arc<Redactor>,
    /// Whoever only looks at what it does.
    _looking: JoinSet<()>,
    /// The disk has failed as it was told to.
    pub disk_failed: Arc<AtomicBool>,
}

impl Life {
    /// Starts in these directories.
    pub async fn begin(place: &Surroundings, state: &Path, out: &Path, disk: BadDisk) -> Result<Self, (String, bool)> {
        let failed = Arc::new(AtomicBool::new(false));
        let beginning = BEGINNING.read().unwrap_or_else(PoisonError::into_inner);
        let opened = Journal::inline(state, |conn| {
            if let Some(pages) = disk.pages {
                let now: i64 = conn.pragma_query_value(None, "page_count", |row| row.get(0))?;
                conn.pragma_update_and_check(None, "max_page_count", now + pages, |_| Ok(()))?;
            }
            if let Some(commit) = disk.commit {
                let (mut count, failed) = (0, Arc::clone(&failed));
                conn.commit_hook(Some(move || {
                    count += 1;
                    let fails = count == commit;
                    failed.fetch_or(fails, Ordering::Relaxed);
                    fails
                }))?;
            }
            Ok(())
        });
        drop(beginning);
        let told = |error: &JournalError| (error.to_string(), failed.load(Ordering::Relaxed) || is_full(error));
        let (journal, writing) = opened.map_err(|error| told(&error))?;
        place.stage.follow(journal.head());
        let alive = Arc::new(AtomicBool::new(true));
        let (stop, reopen) = (CancellationToken::new(), Signal::default());
        let mut tasks = JoinSet::new();
        let full = Arc::clone(&failed);
        let stage = Arc::clone(&place.stage);
        let (mut paused, told) = (journal.paused(), Arc::clone(&place.stage));
        let mut looking = JoinSet::new();
        let (mut head, moments) = (journal.head(), Arc::clone(&place.stage));
        looking.spawn(async move {
            let known = *head.borrow();
            if head.wait_for(|head| *head > known).await.is_ok() {
                moments.moment("head");
            }
        });
        looking.spawn(async move {
            while paused.changed().await.is_ok() {
                let pause = paused.borrow_and_update().clone();
                if let Some(pause) = pause {
                    told.struck(Fault::DiskFull, format_args!("{pause:?}"));
                    for resource in crate::world::WATCHED {
                        told.may_lose(resource, "paused");
                    }
                }
            }
        });
        tasks.spawn(async move {
            let written = slowly(stage, writing).await;
            full.fetch_or(written.as_ref().is_err_and(is_full), Ordering::Relaxed);
            Part::Ended("journal", written.map_err(|error| error.to_string()))
        });
        let api = Api::with_client(place.network.client(&alive), "sim", Limits::default()).await;
        let api = api.map_err(|error| (error.to_string(), false))?;
        let redactor = Redactor::new(&redact::Settings::default(), [7; 32]).map_err(|why| (why.join("\n"), false))?;
        let redactor = Arc::new(redactor);
        let plan = Plan { watch: vec![place.setup.watch()], redactor: Arc::clone(&redactor) };
        let timings = Timings {
            page: place.setup.page,
            line_limit: place.setup.line_limit,
            discovery: Duration::from_secs(45),
            // Its library draws random numbers of its own, which no seed would repeat.
            definitions: false,
            audit: place.setup.audit,
            // A server that is away for long is no reason to give up what etcd still has.
            recover: Some(RecoverBounds { within: Span::from_secs(3600), ..RecoverBounds::default() }),
            version_clock: Some(Duration::from_secs(10)),
            ..Timings::default()
        };
        let (manager, handle) = SourceManager::new(api, journal.clone(), plan, timings);
        let opened = sinks(place, out, &alive).map_err(|why| (why, false))?;
        let (asks, stopped) = (journal.clone(), stop.clone());
        let entries = opened.iter().map(|(plan, _)| plan.registration()).collect();
        tasks.spawn(async move {
            let started = stopped.run_until_cancelled(delivery::register(&asks, entries)).await;
            match started {
                Some(Ok(())) => Part::Asked(opened, Box::new(manager)),
                Some(Err(error)) => Part::Ended("start", Err(error.to_string())),
                None => Part::Ended("start", Ok(())),
            }
        });
        Ok(Self {
            alive,
            journal,
            stop,
            reopen,
            tasks,
            sources: handle,
            redactor,
            _looking: looking,
            disk_failed: failed,
        })
    }

    /// The outputs were asked: delivery and reading begin.
    fn go_on(&mut self, opened: Opened, manager: SourceManager) {
        let turns = (opened.len() + 1).max(4) as u128;
        let asked: Vec<_> = opened.iter().map(|(plan, _)| Arc::clone(&plan.position_known)).collect();
        for ((plan, sink), turn) in opened.into_iter().zip(1..) {
            let sink = delivery::run(self.journal.clone(), plan, sink, self.reopen.listen(), self.stop.clone());
            let sink = in_turn(turn, turns, sink);
            self.tasks.spawn(async move { Part::Ended("a sink", sink.await.map_err(|error| error.to_string())) });
        }
        let stopped = self.stop.clone();
        self.tasks.spawn(async move {
            delivery::positions_known(asked).await;
            Part::Ended("sources", manager.run(stopped).await.map_err(|error| error.to_string()))
        });
    }

    /// SIGHUP with another configuration of what is watched.
    pub async fn reload(&self, setup: &Setup) {
        self.sources.reload(Plan { watch: vec![setup.watch()], redactor: Arc::clone(&self.redactor) }).await;
        self.reopen();
    }

    /// The first part that ends unasked.
    pub async fn ended(&mut self) -> String {
        loop {
            match self.tasks.join_next().await {
                Some(Ok(Part::Asked(opened, manager))) => self.go_on(opened, *manager),
                Some(Ok(Part::Ended(name, result))) => return format!("{name} ended: {result:?}"),
                Some(Err(error)) => return format!("a part of decklog panicked: {error}"),
                None => return "everything has ended".to_owned(),
            }
        }
    }

    /// SIGHUP.
    pub fn reopen(&self) {
        self.reopen.notify();
    }

    /// SIGTERM, and the wait for the end.
    pub async fn stop(self) -> Result<(), String> {
        let Self { alive, journal, stop, reopen, mut tasks, sources, .. } = self;
        stop.cancel();
        let mut problems = Vec::new();
        let (held, bound) = (journal.budget().peak(), Budget::bound(LONGEST));
        if held > bound {
            problems.push(format!("{held} bytes were read and not on disk, more than {bound}"));
        }
        drop((journal, reopen, sources));
        let ending = async {
            while let Some(joined) = tasks.join_next().await {
                match joined {
                    // It came to its end before anything began.
                    Ok(Part::Asked(..) | Part::Ended(_, Ok(()))) => {}
                    Ok(Part::Ended(name, Err(error))) => problems.push(format!("{name}: {error}")),
                    Err(error) => problems.push(error.to_string()),
                }
            }
        };
        let ended = tokio::time::timeout(Duration::from_secs(60), ending).await;
        alive.store(false, Ordering::Relaxed);
        if ended.is_err() {
            problems.push("it does not end".to_owned());
        }
        if problems.is_empty() { Ok(()) } else { Err(problems.join("; ")) }
    }

    /// From here on nothing that it does reaches anybody.
    pub fn kill(&self) {
        self.alive.store(false, Ordering::Relaxed);
    }

    /// Drops every part of it.
    pub async fn bury(mut self) {
        self.kill();
        self.tasks.shutdown().await;
    }
}

/// The sinks of this class of simulations, in the order of the configuration.
fn sinks(place: &Surroundings, out: &Path, alive: &Arc<AtomicBool>) -> Result<Opened, String> {
    let plan = |name: &str, filter| delivery::Plan {
        name: name.to_owned(),
        kind: "simulated",
        start: SinkStart::Start,
        filter,
        shape: decklog::core::wire::Shape::WHOLE,
        rate: None,
        on_refused: place.setup.on_refused,
        stats: Arc::default(),
        position_known: Arc::default(),
        notify: None,
        machine: None,
    };
    let (setup, stage) = (&place.setup, &place.stage);
    let file = setup.file(out);
    let gated = |name: &str| (plan(name, None), place.outputs.sink(name, stage, alive, &file));
    if !setup.has_receivers() {
        return Ok(setup.sinks().iter().map(|name| gated(name)).collect());
    }
    let http = HttpSink::through(&setup.http, place.receiver.wire(alive))?;
    let collecting =
        Collecting { stage: Arc::clone(stage), alive: Arc::clone(alive), into: Arc::clone(&place.collected), last: 0 };
    let wanted = Wanted::by_row(is_collected);
    Ok(vec![
        (plan("file", None), Box::new(FileSink::new(&file))),
        (plan("http", None), Box::new(http)),
        (plan("collecting", Some(wanted)), Box::new(collecting)),
    ])
}

/// What the filter of the collecting sink wants.
pub fn is_collected(line: &[u8]) -> bool {
    memchr::memmem::find(line, br#""type":"DELETED""#).is_some()
        || memchr::memmem::find(line, br#""type":"GAP""#).is_some()
}

fn is_full(error: &JournalError) -> bool {
    matches!(error, JournalError::Sqlite { source, .. } if source.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull))
}

/// Lets a task go on only when it is its turn, once in so many milliseconds. Those that wait for the same head are woken
/// in an order of chance; their turns decide in which order they go on.
async fn in_turn<T>(turn: u128, turns: u128, work: impl Future<Output = T>) -> T {
    let began = Instant::now();
    let mut work = std::pin::pin!(work);
    let mut waits: Option<Pin<Box<Sleep>>> = None;
    std::future::poll_fn(move |cx| {
        let wait = waits.get_or_insert_with(|| {
            let now = began.elapsed().as_millis();
            let left = (turn + turns - now % turns) % turns;
            Box::pin(sleep(Duration::from_millis(u64::try_from(left).unwrap_or_default())))
        });
        if wait.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        waits = None;
        work.as_mut().poll(cx)
    })
    .await
}

/// Lets the writer wait before it goes on, as one does whose disk is busy: more waits for it, and others go on.
async fn slowly<T>(stage: Arc<Stage>, mut work: Pin<Box<dyn Future<Output = T> + Send>>) -> T {
    let mut delay: Option<Pin<Box<Sleep>>> = None;
    let mut fresh = true;
    std::future::poll_fn(move |cx| {
        if fresh {
            fresh = false;
            let time = match stage.draw(&[Fault::SlowDisk]) {
                _ if stage.stalled().is_some() => stage.stalled().unwrap_or_default(),
                Some(fault) if stage.throw(|dice| dice.percent(4)) => {
                    stage.struck(fault, format_args!("the journal waits"));
                    stage.throw(|dice| dice.millis(200, 20_000))
                }
                _ => stage.throw(|dice| if dice.percent(50) { dice.millis(0, 15) } else { Duration::ZERO }),
            };
            delay = (!time.is_zero()).then(|| Box::pin(sleep(time)));
        }
        if let Some(sleep) = &mut delay {
            if sleep.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            delay = None;
        }
        let polled = work.as_mut().poll(cx);
        fresh = polled.is_pending();
        polled
    })
    .await
}
