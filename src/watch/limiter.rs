//! Bounds on what decklog asks of an API server at once, over all sources.
//!
//! # Decision: questions about the past slow down with the API server
//!
//! Context: etcd forgets after five minutes, so that a recovery hurries, and others use the same API server.
//! Decision: `[cluster] recover` bounds the rate. Below that, the mean time of 32 answers is compared with the best one so far: beyond
//! twice of it the turns come a quarter more slowly, down to a twentieth of the rate, and otherwise faster again. The best one grows
//! by a hundredth each time, because an API server may stay slower. 429 with `Retry-After` pauses all of them.
//! Cost: A recovery takes longer on a busy API server.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until, timeout_at};

/// Hands out places for lists, and for requests that are answered at once, and turns in time.
#[derive(Clone, Debug)]
pub(super) struct Limiter {
    lists: Arc<Semaphore>,
    requests: Arc<Semaphore>,
    audits: Arc<Semaphore>,
    turns: Turns,
    recoveries: Arc<Semaphore>,
    recovery_turns: Turns,
    recovery_pace: Arc<Mutex<Pace>>,
    examination_turns: Turns,
}

/// Turns in time, after a first rush of as many as fit into a second.
#[derive(Clone, Debug)]
struct Turns {
    /// Time of the next turn if each has to wait for the one before it, and the end of the pause that was asked for.
    next: Arc<Mutex<(Option<Instant>, Option<Instant>)>>,
    /// Between two turns.
    every: Duration,
}

/// Times that the API server takes for questions about single objects, by which they come more slowly.
#[derive(Debug)]
struct Pace {
    /// Factor of the time between two turns.
    factor: f64,
    answers: u32,
    sum: Duration,
    best: Option<Duration>,
}

impl Pace {
    const fn new() -> Self {
        Self { factor: 1.0, answers: 0, sum: Duration::ZERO, best: None }
    }

    fn answered(&mut self, took: Duration) {
        (self.answers, self.sum) = (self.answers + 1, self.sum + took);
        if self.answers < ANSWERS {
            return;
        }
        let mean = self.sum / self.answers;
        (self.answers, self.sum) = (0, Duration::ZERO);
        let best = self.best.map_or(mean, |best| mean.min(best + best / 100));
        self.best = Some(best);
        let is_slow = mean > 2 * best + NOISE_MAX;
        self.factor = (self.factor * if is_slow { 1.25 } else { 0.9 }).clamp(1.0, FACTOR_MAX);
    }
}

/// Answers whose times are compared with those before.
const ANSWERS: u32 = 32;
/// Difference of two times that says nothing.
const NOISE_MAX: Duration = Duration::from_millis(2);
/// Factor by which turns come more slowly at most.
const FACTOR_MAX: f64 = 20.0;

impl Turns {
    fn new(rate: u32) -> Self {
        Self { next: Arc::default(), every: Duration::from_secs(1) / rate.max(1) }
    }

    /// Waits for a turn. Whoever has not asked for a second does not wait.
    async fn turn(&self) {
        let (now, rush) = (Instant::now(), Duration::from_secs(1));
        let turn = {
            let (next, _) = &mut *self.next.lock().unwrap_or_else(PoisonError::into_inner);
            let turn = next.map_or(now, |next| next.max(now));
            *next = Some(turn + self.every);
            turn
        };
        sleep_until(turn.checked_sub(rush).unwrap_or(now)).await;
    }

    /// Waits for a turn before a deadline. Reports at once that none comes, also where a pause leaves too little time after it.
    async fn turn_before(&self, deadline: Instant, factor: f64) -> bool {
        let (now, rush) = (Instant::now(), Duration::from_secs(1));
        let turn = {
            let (next, held) = &mut *self.next.lock().unwrap_or_else(PoisonError::into_inner);
            let turn = next.map_or(now, |next| next.max(now));
            let pause = held.map_or(Duration::ZERO, |held| held.saturating_duration_since(now));
            if turn.checked_sub(rush).is_some_and(|turn| turn > deadline) || !is_worth_waiting(pause, now, deadline) {
                return false;
            }
            *next = Some(turn + self.every.mul_f64(factor));
            turn
        };
        sleep_until(turn.checked_sub(rush).unwrap_or(now)).await;
        true
    }

    /// No turn comes before this is over.
    fn hold(&self, pause: Duration) {
        let held = Instant::now() + pause;
        let until = held + Duration::from_secs(1);
        let (next, last) = &mut *self.next.lock().unwrap_or_else(PoisonError::into_inner);
        *next = Some(next.map_or(until, |next| next.max(until)));
        *last = Some(last.map_or(held, |last| last.max(held)));
    }
}

/// Reports whether a pause leaves a tenth of the time until a deadline. Otherwise the present would wait for nothing.
pub(super) fn is_worth_waiting(pause: Duration, now: Instant, deadline: Instant) -> bool {
    let left = deadline.saturating_duration_since(now);
    pause.is_zero() || pause <= left - left / 10
}

/// Questions about the past that are under way at once, of all sources.
const RECOVERIES: usize = 4;

impl Limiter {
    /// `rate` requests a second, after a rush of at most as many, and beside them `recoveries` questions about the past and
    /// `examinations` of objects by name.
    pub(super) fn new(lists: usize, requests: usize, rate: u32, recoveries: u32, examinations: u32) -> Self {
        let places = |places: usize| Arc::new(Semaphore::new(places.max(1)));
        Self {
            lists: places(lists),
            requests: places(requests),
            audits: places(1),
            turns: Turns::new(rate),
            recoveries: places(RECOVERIES),
            recovery_turns: Turns::new(recoveries),
            recovery_pace: Arc::new(Mutex::new(Pace::new())),
            examination_turns: Turns::new(examinations),
        }
    }

    /// Waits for a turn to ask. Whoever has not asked for a second does not wait.
    pub(super) async fn turn(&self) {
        self.turns.turn().await;
    }

    /// Waits for a turn to ask etcd for an object of an audit's sample.
    pub(super) async fn examination(&self) {
        self.examination_turns.turn().await;
    }

    /// A place for a question about the past, until it is answered: none where its turn does not come before a deadline.
    pub(super) async fn recovery(&self, deadline: Instant) -> Option<OwnedSemaphorePermit> {
        let place = timeout_at(deadline, place(&self.recoveries)).await.ok()?;
        let factor = self.recovery_pace.lock().unwrap_or_else(PoisonError::into_inner).factor;
        self.recovery_turns.turn_before(deadline, factor).await.then_some(place)
    }

    /// Handles that the API server took so long to answer a question about a single object.
    pub(super) fn answered(&self, took: Duration) {
        self.recovery_pace.lock().unwrap_or_else(PoisonError::into_inner).answered(took);
    }

    /// The API server wants no question about the past for so long.
    pub(super) fn hold_recovery(&self, pause: Duration) {
        self.recovery_turns.hold(pause);
    }

    /// A place for a whole list, from its first page until it is written or has failed.
    pub(super) async fn list(&self) -> OwnedSemaphorePermit {
        place(&self.lists).await
    }

    /// The only place for the list of an audit: audits can wait.
    pub(super) async fn audit(&self) -> OwnedSemaphorePermit {
        place(&self.audits).await
    }

    /// A place for a request until the head of its answer.
    pub(super) async fn request(&self) -> OwnedSemaphorePermit {
        let place = place(&self.requests).await;
        self.turn().await;
        place
    }
}

async fn place(semaphore: &Arc<Semaphore>) -> OwnedSemaphorePermit {
    Arc::clone(semaphore).acquire_owned().await.expect("these semaphores are never closed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn after_a_rush_turns_come_at_their_rate() {
        let limiter = Limiter::new(1, 1, 200, 1, 1);
        let mut turns = Vec::new();
        for rest in [0, 10, 0] {
            tokio::time::sleep(Duration::from_secs(rest)).await;
            for _ in 0..700 {
                limiter.turn().await;
                turns.push(Instant::now());
            }
        }
        let within = |first: usize| turns[first..].partition_point(|at| *at - turns[first] <= Duration::from_secs(1));
        let most = (0..turns.len()).map(within).max().unwrap();
        assert!((400..=402).contains(&most), "{most} in a second");
    }

    #[tokio::test(start_paused = true)]
    async fn questions_slow_down_with_the_api_server() {
        let limiter = Limiter::new(1, 1, 200, 400, 1);
        let deadline = Instant::now() + Duration::from_secs(3600);
        // The mean time of the answers, and the most and the fewest questions of ten seconds behind the first rush of each.
        for (millis, questions) in [(2, 3990..=4010), (4, 3990..=4010), (40, 200..=260), (3, 3900..=4010)] {
            let mut asked = Vec::new();
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_secs(40) {
                drop(limiter.recovery(deadline).await);
                limiter.answered(Duration::from_millis(millis));
                asked.push(begun.elapsed());
            }
            let late = |at: &&Duration| (Duration::from_secs(30)..Duration::from_secs(40)).contains(*at);
            let count = asked.iter().filter(late).count();
            assert!(questions.contains(&count), "{millis} ms: {count}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_waits_for_its_own_deadline_at_most() {
        let limiter = Limiter::new(1, 1, 200, 100, 1);
        let began = Instant::now();
        let seconds = move |seconds| began + Duration::from_secs(seconds);
        limiter.hold_recovery(Duration::from_secs(60));
        // Whose turn comes too late does not wait for it, and has no place.
        for _ in 0..2 * RECOVERIES {
            assert!(limiter.recovery(seconds(20)).await.is_none());
        }
        assert_eq!(Instant::now(), began);
        // A turn that leaves next to no time for the answers is none.
        assert!(limiter.recovery(seconds(62)).await.is_none());
        assert_eq!(Instant::now(), began);
        // Those who have longer wait, and hold every place.
        let mut waiting = tokio::task::JoinSet::new();
        for _ in 0..RECOVERIES {
            let limiter = limiter.clone();
            waiting.spawn(async move { limiter.recovery(seconds(300)).await });
        }
        tokio::task::yield_now().await;
        assert!(limiter.recovery(seconds(20)).await.is_none());
        assert_eq!(Instant::now(), seconds(20));
        let mut places = Vec::new();
        while let Some(place) = waiting.join_next().await {
            places.push(place.unwrap().expect("a turn"));
        }
        assert!((seconds(60)..seconds(61)).contains(&Instant::now()));
    }
}
