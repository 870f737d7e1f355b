//! Environment of decklog besides files and connections: the wall clock, randomness, and threads for blocking work.
//!
//! It all comes through here, so that a simulation can put its own in the place of them ([`simulate`]): then one seed
//! decides everything, everything happens on one thread, and the same seed does it again. Nothing of it is on while the
//! daemon runs.
//!
//! # Decision: a simulation runs the real code
//!
//! Context: Rare orders of events have to be repeatable.
//! Decision: Clock, randomness and blocking threads come from here, and a simulation replaces them. Four other seams exist:
//! the writer as a future, a given kube client, a function instead of HTTP, and file maintenance inline. tokio's clock is
//! paused. Shared waits use `Signal`, because tokio wakes watch receivers in random order, and every `select!` is `biased`.
//! Cost: No direct use of these parts of tokio.

mod signal;
pub mod watch;

use std::cell::RefCell;

use jiff::{SignedDuration, Timestamp};
#[cfg(target_os = "linux")]
use rustix::process::setpriority_process;
#[cfg(target_os = "linux")]
use rustix::thread::gettid;
use tokio::runtime::Runtime;
use tokio::time::Instant;
use tracing::Instrument as _;

pub use signal::{Listener, Signal};

thread_local! {
    static SIMULATED: RefCell<Option<Simulated>> = const { RefCell::new(None) };
}

/// The surroundings of one simulation.
#[derive(Debug)]
struct Simulated {
    /// Start of the simulation; none if its wall clock moves by jumps alone.
    began: Option<Instant>,
    /// Wall clock at that time, plus every jump since.
    clock: Timestamp,
    random: u64,
}

impl Simulated {
    fn now(&self) -> Timestamp {
        self.clock + self.began.map_or(std::time::Duration::ZERO, |began| began.elapsed())
    }
}

/// The wall clock.
#[must_use]
pub fn now() -> Timestamp {
    let simulated = SIMULATED.with_borrow(|simulated| simulated.as_ref().map(Simulated::now));
    simulated.unwrap_or_else(Timestamp::now)
}

/// A random number.
#[must_use]
pub fn random() -> u64 {
    let simulated = SIMULATED.with_borrow_mut(|simulated| simulated.as_mut().map(|s| next(&mut s.random)));
    simulated.unwrap_or_else(|| {
        let (first, second) = uuid::Uuid::new_v4().as_u64_pair();
        // The bits of a half that are the same in every UUID stand elsewhere in the other.
        first ^ second.rotate_left(32)
    })
}

/// Does work that blocks on a thread for such work. A caller that stops waiting does not stop the work.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    if is_simulated() {
        // Both are moments at which others go on, or at which everything ends.
        tokio::task::yield_now().await;
        let done = work();
        tokio::task::yield_now().await;
        return done;
    }
    let span = tracing::Span::current();
    match tokio::task::spawn_blocking(move || span.in_scope(work)).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime is shutting down and drops this future next.
            Err(_) => std::future::pending().await,
        },
    }
}

/// Niceness of threads that let others go first.
#[cfg(target_os = "linux")]
const NICE: i32 = 10;

/// Lets the daemon's own work go before that of this thread, on Linux. Where that is not allowed, it works all the same.
pub fn step_back() {
    #[cfg(target_os = "linux")]
    setpriority_process(Some(gettid()), NICE).ok();
}

/// Threads of work that lets others go first. They may not be waited for where others are to go on, so their end is not.
#[derive(Debug)]
struct Behind(Option<Runtime>);

impl Drop for Behind {
    fn drop(&mut self) {
        self.0.take().into_iter().for_each(Runtime::shutdown_background);
    }
}

/// Does work on two threads of its own, and on those where it blocks, which all [step back](step_back). A caller that stops waiting
/// stops the work.
///
/// # Errors
/// Where the threads cannot be started.
pub async fn behind<T: Send + 'static>(
    name: &str,
    work: impl Future<Output = T> + Send + 'static,
) -> std::io::Result<T> {
    if is_simulated() {
        return Ok(work.await);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name(name)
        .on_thread_start(step_back)
        .enable_all()
        .build()?;
    let threads = Behind(Some(runtime));
    let begun = threads.0.as_ref().map(|runtime| runtime.spawn(work.in_current_span()));
    match begun.expect("it is there until it is dropped").await {
        Ok(done) => Ok(done),
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // Nobody else ends these threads.
            Err(_) => std::future::pending().await,
        },
    }
}

/// Reports whether this thread is in a simulation: then no work may move to another thread.
#[must_use]
pub fn is_simulated() -> bool {
    SIMULATED.with_borrow(Option::is_some)
}

/// A simulation on this thread; its end is the end of it.
#[derive(Debug)]
pub struct Simulation(());

/// Begins a simulation on this thread. The runtime's clock, which should be a paused one, moves the wall clock.
#[must_use]
pub fn simulate(seed: u64, clock: Timestamp) -> Simulation {
    SIMULATED.set(Some(Simulated { began: Some(Instant::now()), clock, random: seed }));
    Simulation(())
}

impl Simulation {
    /// Stops the wall clock: from here on it moves by jumps alone.
    pub fn stop(&self) {
        SIMULATED.with_borrow_mut(|simulated| {
            if let Some(simulated) = simulated {
                simulated.clock = simulated.now();
                simulated.began = None;
            }
        });
    }

    /// The wall clock is set: by this much from what it shows.
    pub fn jump(&self, by: SignedDuration) {
        SIMULATED.with_borrow_mut(|simulated| {
            if let Some(simulated) = simulated {
                simulated.clock = simulated.clock.saturating_add(by).unwrap_or(simulated.clock);
            }
        });
    }
}

impl Drop for Simulation {
    fn drop(&mut self) {
        SIMULATED.set(None);
    }
}

/// splitmix64.
const fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_simulation_decides_the_clock_and_the_dice() {
        let draw = || (0..3).map(|_| random()).collect::<Vec<_>>();
        let begin = "2026-01-01T00:00:00Z".parse().unwrap();
        let simulation = simulate(7, begin);
        let first = draw();
        tokio::time::sleep(Duration::from_secs(90)).await;
        assert_eq!(now().to_string(), "2026-01-01T00:01:30Z");
        simulation.jump(SignedDuration::from_hours(-1));
        assert_eq!(now().to_string(), "2025-12-31T23:01:30Z");
        let thread = std::thread::current().id();
        assert_eq!(blocking(move || std::thread::current().id()).await, thread);
        drop(simulation);
        let _again = simulate(7, begin);
        assert_eq!(draw(), first);
    }

    /// Work that lets others go first has threads of its own; so has what it blocks on. Its panic is the caller's, and its caller's end
    /// is its own.
    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn work_that_steps_back_does_so_on_every_thread() {
        let nice = || rustix::process::getpriority_process(Some(gettid())).unwrap();
        let ours = nice();
        let theirs = behind("test", async move { (nice(), blocking(nice).await) }).await.unwrap();
        assert_eq!((theirs, nice()), ((NICE, NICE), ours));
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(async { behind("test", async { panic!("as it is") }).await.unwrap() });
        assert!(tasks.join_next().await.unwrap().unwrap_err().is_panic());
        let (kept, mut dropped) = tokio::sync::oneshot::channel::<()>();
        let waiting = behind("test", async move {
            let _kept = kept;
            std::future::pending::<()>().await;
        });
        tasks.spawn(async { waiting.await.unwrap() });
        assert!(dropped.try_recv().is_err_and(|error| error == tokio::sync::oneshot::error::TryRecvError::Empty));
        tasks.abort_all();
        assert!(dropped.await.is_err(), "it is dropped with its caller");
    }

    #[tokio::test]
    async fn without_one_they_are_the_real_ones() {
        assert!(now() > "2026-01-01T00:00:00Z".parse().unwrap());
        assert_ne!(random(), random());
        let thread = std::thread::current().id();
        assert_ne!(blocking(move || std::thread::current().id()).await, thread);
    }
}
