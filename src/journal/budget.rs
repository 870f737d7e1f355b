//! The bound on what is read from the API server and not on disk yet, over all watches and lists.
//!
//! A watch line or an item of a list up to [`FREE`] is read at once: thousands of small ones never wait for a large
//! one. Whoever reads a longer one first takes its place here, and keeps it until the journal has committed the object.
//! So what is read never outgrows the bound, however many sources have a large object at once.
//!
//! Nobody waits for ever. Whoever begins holds nothing yet. Whoever has begun and finds that its piece is larger than
//! the place it took either gets more, or goes beyond the bound, one at a time; so at any moment one of them can finish.
//!
//! Whoever reads one piece for too long gives way to those who wait, and only one does so in that time: where the link is
//! thin all of them are slow, and if all of them gave way nobody would ever finish.
//!
//! # Decision: one budget for what is not on disk
//!
//! Context: 250 sources whose objects of 1.5 MB change at once must not need their sum in memory.
//! Decision: All watches and lists share one budget in bytes. Pieces up to 64 KiB are read at once, up to 12 MiB in total;
//! longer ones reserve from 32 MiB, and release it at the commit. Until then their connection is not read. One piece at a time
//! may exceed the bound, so nobody waits in a circle; one that comes slowly while others wait is broken off.
//! Cost: A slow disk slows the watches.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// A piece up to this many bytes is read without asking.
const FREE: usize = 64 << 10;
/// KiB of large pieces in total.
const LARGE_KIB: usize = 32 << 10;
/// KiB of a large piece at first: the object as it came and as it is stored, for the largest one in etcd.
const FIRST_KIB: usize = 4 << 10;
/// KiB of small pieces that may wait for the writer.
const SMALL_KIB: usize = 12 << 10;

/// See the module; cheap to clone.
#[derive(Clone, Debug)]
pub struct Budget(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    large: Arc<Semaphore>,
    small: Arc<Semaphore>,
    /// The one place beyond the bound.
    beyond: Arc<Semaphore>,
    waiting: AtomicUsize,
    /// Time at which a reader last yielded.
    yielded: Mutex<Option<Instant>>,
    held_kib: AtomicU64,
    peak_kib: AtomicU64,
}

impl Default for Budget {
    fn default() -> Self {
        let places = |count| Arc::new(Semaphore::new(count));
        Self(Arc::new(Inner {
            large: places(LARGE_KIB),
            small: places(SMALL_KIB),
            beyond: places(1),
            waiting: AtomicUsize::default(),
            yielded: Mutex::default(),
            held_kib: AtomicU64::default(),
            peak_kib: AtomicU64::default(),
        }))
    }
}

impl Budget {
    /// Returns the upper bound of [`Budget::peak`], in bytes, if no piece is longer than `piece`.
    #[must_use]
    pub const fn bound(piece: usize) -> u64 {
        (((LARGE_KIB + SMALL_KIB) << 10) + 2 * piece.next_power_of_two()) as u64
    }

    /// Returns the number of bytes that are held now.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.0.held_kib.load(Relaxed) << 10
    }

    /// The most that was ever held.
    #[must_use]
    pub fn peak(&self) -> u64 {
        self.0.peak_kib.load(Relaxed) << 10
    }

    /// For one that reads.
    pub(crate) const fn share(&self) -> Share<'_> {
        Share { budget: self, held: None, since: None }
    }

    /// Room in the queue for so many bytes, as far as `held` is not enough for them.
    pub(super) async fn queue(&self, bytes: usize, held: Option<BudgetPermit>) -> BudgetPermit {
        let more = to_kib(bytes).saturating_sub(held.as_ref().map_or(0, |held| held.kib));
        let mut held = match held {
            Some(held) if more == 0 => return held,
            Some(held) => held,
            None => BudgetPermit::new(self),
        };
        // What is more than everything takes everything, and so waits until nothing else is there.
        let kib = more.clamp(1, SMALL_KIB);
        held.small = Some(take(&self.0.small, kib).await);
        held.add(kib, None);
        held
    }
}

/// Share of a watch or a list while it reads.
#[derive(Debug)]
pub(crate) struct Share<'a> {
    budget: &'a Budget,
    held: Option<BudgetPermit>,
    /// Since when there is something, as far as that time was for reading.
    since: Option<Instant>,
}

impl Share<'_> {
    /// Waits until a piece of so many bytes may go on to grow.
    pub(crate) async fn hold(&mut self, piece: usize) {
        if piece <= FREE {
            self.shrink_to(0);
            return;
        }
        // Twice: as it came, and as it is kept.
        let wanted = (2 * piece.next_power_of_two() / 1024).max(FIRST_KIB);
        let inner = &self.budget.0;
        let Some(held) = &mut self.held else {
            let kib = wanted.min(LARGE_KIB);
            let permit = {
                let _waiting = Waiting::new(&inner.waiting);
                take(&inner.large, kib).await
            };
            let mut held = BudgetPermit::new(self.budget);
            held.add(kib, Some(permit));
            (self.held, self.since) = (Some(held), Some(Instant::now()));
            return;
        };
        let Some(more) = wanted.checked_sub(held.kib).filter(|more| *more > 0) else { return };
        if held.beyond.is_some() {
            return held.add(more, None);
        }
        let _waiting = Waiting::new(&inner.waiting);
        let began = Instant::now();
        tokio::select! {
            biased;
            permit = take(&inner.large, more.min(LARGE_KIB)) => held.add(more, Some(permit)),
            place = take(&inner.beyond, 1) => {
                held.beyond = Some(place);
                held.add(more, None);
            }
        }
        self.since = self.since.map(|since| since + began.elapsed());
    }

    /// Reports whether anything is held.
    pub(crate) const fn is_holding(&self) -> bool {
        self.held.is_some()
    }

    /// Reports whether a reader of the same piece for this long has to yield to those who wait. After a true answer no other
    /// reader gets one before as much time again.
    pub(crate) fn should_yield(&self, after: Duration) -> bool {
        let inner = &self.budget.0;
        if self.since.is_none_or(|since| since.elapsed() <= after) || inner.waiting.load(Relaxed) == 0 {
            return false;
        }
        let mut yielded = inner.yielded.lock().unwrap_or_else(PoisonError::into_inner);
        let due = yielded.is_none_or(|yielded| yielded.elapsed() > after);
        if due {
            *yielded = Some(Instant::now());
        }
        due
    }

    /// Passes a part of the share along with what was read: `bytes` of it stay held, the rest is free for others.
    pub(crate) fn shrink_to(&mut self, bytes: usize) -> Option<BudgetPermit> {
        self.since = None;
        let mut held = self.held.take()?;
        held.shrink(to_kib(bytes));
        Some(held)
    }
}

/// A part of the budget, free again when this is dropped.
#[derive(Debug)]
pub(crate) struct BudgetPermit {
    budget: Budget,
    kib: usize,
    permit: Option<OwnedSemaphorePermit>,
    beyond: Option<OwnedSemaphorePermit>,
    small: Option<OwnedSemaphorePermit>,
}

impl BudgetPermit {
    fn new(budget: &Budget) -> Self {
        Self { budget: budget.clone(), kib: 0, permit: None, beyond: None, small: None }
    }

    fn add(&mut self, kib: usize, permit: Option<OwnedSemaphorePermit>) {
        self.kib += kib;
        let inner = &self.budget.0;
        let held = inner.held_kib.fetch_add(kib as u64, Relaxed) + kib as u64;
        inner.peak_kib.fetch_max(held, Relaxed);
        match (&mut self.permit, permit) {
            (Some(permit), Some(more)) => permit.merge(more),
            (permit @ None, Some(more)) => *permit = Some(more),
            (_, None) => {}
        }
    }

    fn shrink(&mut self, kib: usize) {
        let surplus = self.kib.saturating_sub(kib);
        self.kib -= surplus;
        self.budget.0.held_kib.fetch_sub(surplus as u64, Relaxed);
        if let Some(permit) = &mut self.permit {
            let permits = permit.num_permits();
            drop(permit.split(permits.saturating_sub(self.kib)));
            // What fits into the bound is no more beyond it.
            if permit.num_permits() >= self.kib {
                self.beyond = None;
            }
        }
    }
}

impl Drop for BudgetPermit {
    fn drop(&mut self) {
        self.budget.0.held_kib.fetch_sub(self.kib as u64, Relaxed);
    }
}

/// Counts who waits, also where the wait is given up.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Relaxed);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

const fn to_kib(bytes: usize) -> usize {
    bytes.div_ceil(1024)
}

async fn take(places: &Arc<Semaphore>, count: usize) -> OwnedSemaphorePermit {
    let count = u32::try_from(count).expect("no budget has so many");
    Arc::clone(places).acquire_many_owned(count).await.expect("these semaphores are never closed")
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use tokio::sync::mpsc;
    use tokio::task::JoinSet;

    use super::*;

    /// Reads a piece of so many bytes, part by part, and hands it to the writer.
    async fn read(budget: Budget, bytes: usize, writer: mpsc::Sender<Option<BudgetPermit>>) {
        let mut share = budget.share();
        for read in (0..bytes).step_by(48 << 10) {
            share.hold(read).await;
            tokio::task::yield_now().await;
        }
        assert!(share.is_holding());
        writer.send(share.shrink_to(bytes)).await.unwrap();
        assert!(!share.is_holding());
    }

    #[tokio::test(start_paused = true)]
    async fn however_many_read_at_once_the_bound_holds_and_each_of_them_finishes() {
        for (readers, bytes) in [(300, 1_500_000), (40, 3 << 20), (20, 16 << 20)] {
            let budget = Budget::default();
            let (sender, mut writer) = mpsc::channel(1024);
            let mut tasks = JoinSet::new();
            for _ in 0..readers {
                tasks.spawn(read(budget.clone(), bytes, sender.clone()));
            }
            for done in 0..readers {
                let written = tokio::time::timeout(Duration::from_secs(60), writer.recv()).await;
                let written = written.unwrap_or_else(|_| panic!("{done} of {readers} came, and no more"));
                tokio::time::sleep(Duration::from_millis(5)).await;
                drop(written);
            }
            assert!(budget.peak() <= Budget::bound(bytes), "{} of {}", budget.peak(), Budget::bound(bytes));
            assert!(budget.peak() > 20 << 20, "they read side by side: {}", budget.peak());
            assert_eq!(budget.held(), 0);
            assert!(tasks.join_all().await.len() == readers);
        }
    }

    #[tokio::test]
    async fn small_pieces_pass_while_large_ones_wait() {
        let budget = Budget::default();
        let mut large: Vec<_> = (0..9).map(|_| budget.share()).collect();
        let got = large.iter_mut().filter_map(|share| share.hold(100 << 10).now_or_never()).count();
        assert_eq!(got, 8, "the ninth waits");
        let mut small = budget.share();
        assert!(small.hold(FREE).now_or_never().is_some() && !small.is_holding());
        assert!(budget.queue(1 << 20, None).now_or_never().is_some());
        // One of them can always go on, and only one.
        let grown = large.iter_mut().filter_map(|share| share.hold(8 << 20).now_or_never()).count();
        assert_eq!(grown, 1);
        drop(large);
        assert_eq!(budget.held(), 0, "who gives up leaves nothing held");
    }

    #[tokio::test(start_paused = true)]
    async fn who_reads_for_long_gives_way_only_where_others_wait() {
        let budget = Budget::default();
        let mut slow: Vec<_> = (0..8).map(|_| budget.share()).collect();
        for share in &mut slow {
            share.hold(100 << 10).await;
        }
        let long = Duration::from_secs(10);
        tokio::time::sleep(2 * long).await;
        assert!(!slow[0].should_yield(long));
        let mut other = budget.share();
        let mut waiting = Box::pin(other.hold(100 << 10));
        assert!(futures::poll!(&mut waiting).is_pending());
        assert!(!slow[0].should_yield(3 * long) && slow[0].should_yield(long));
        assert!(slow.iter().all(|share| !share.should_yield(long)), "one of them is enough");
        tokio::time::sleep(2 * long).await;
        assert!(slow[1].should_yield(long), "for so long");
        tokio::time::sleep(2 * long).await;
        drop(slow.pop());
        waiting.await;
        assert!(!slow[0].should_yield(long), "nobody waits any more");
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_for_room_is_not_reading() {
        let budget = Budget::default();
        let mut slow: Vec<_> = (0..8).map(|_| budget.share()).collect();
        for share in &mut slow {
            share.hold(100 << 10).await;
        }
        let (mut first, mut second) = (slow.pop().unwrap(), slow.pop().unwrap());
        first.hold(8 << 20).await;
        let long = Duration::from_secs(10);
        let grown = tokio::time::timeout(3 * long, async {
            let rest = async {
                tokio::time::sleep(2 * long).await;
                drop(first);
            };
            tokio::join!(second.hold(8 << 20), rest);
        });
        grown.await.unwrap();
        let (mut other, mut last) = (budget.share(), budget.share());
        other.hold(100 << 10).await;
        let mut waits = Box::pin(last.hold(100 << 10));
        assert!(futures::poll!(&mut waits).is_pending());
        assert!(!second.should_yield(long));
        tokio::time::sleep(2 * long).await;
        assert!(second.should_yield(long));
    }

    /// 64 kB a second for a hundred objects of 1.5 MB. Without anybody giving way that takes 40 minutes.
    #[tokio::test(start_paused = true)]
    async fn on_a_thin_link_everybody_finishes_after_a_while() {
        let (budget, link) = (Budget::default(), Arc::new(tokio::sync::Mutex::new(())));
        let mut tasks = JoinSet::new();
        for _ in 0..100 {
            let (budget, link) = (budget.clone(), Arc::clone(&link));
            tasks.spawn(async move {
                let mut share = budget.share();
                'again: loop {
                    for read in (0..1_500_000).step_by(16_000) {
                        share.hold(read).await;
                        if share.should_yield(Duration::from_secs(150)) {
                            share.shrink_to(0);
                            continue 'again;
                        }
                        let _turn = link.lock().await;
                        tokio::time::sleep(Duration::from_millis(250)).await;
                    }
                    return share.shrink_to(0);
                }
            });
        }
        let begun = Instant::now();
        let all = tokio::time::timeout(Duration::from_secs(3 * 3600), tasks.join_all()).await;
        assert_eq!(all.expect("they finish").len(), 100);
        assert!(begun.elapsed() < Duration::from_secs(3600), "{:?}", begun.elapsed());
    }
}
