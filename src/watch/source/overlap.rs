//! A second watch of a source that gets no bookmarks, opened while the first one is open.
//!
//! Where no bookmarks come, the position of a quiet source is as old as what happened last, and when its watch ends, the
//! API server may have compacted it. So while a watch from a position P is open, the source asks which version V the API
//! server has, and opens a second watch from there, which is not read. The first one has brought everything up to V where it
//! brought something later than V, because versions come in order, and where the API server ended it after it was
//! waited for in vain for a twelfth of its time, and for five seconds at least, since V was asked for. The source still goes on from P, as ever. Only where P turns out to be compacted it goes on by the
//! watch that is open, and no compaction in between makes a gap.
//!
//! # Decision: a second watch beside a quiet one
//!
//! Context: If etcd is compacted every ten seconds, no position that waits for ends of watches is young enough.
//! Decision: Beside each watch of a source without bookmarks a second one is opened at the server's version V, and not read.
//! If the first has brought everything up to V, and its position is compacted, the second is read on, without repeats. A watch
//! that broke off proves nothing.
//! Cost: A request and a watch more for each watch of such a source.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use kube::client::Body;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::Driver;
use crate::core::model::{ResourceVersion, SourceSpec};
use crate::journal::SourceJournal;
use crate::watch::Shared;
use crate::watch::cluster::{Failure, next_part};
use crate::watch::lister::Lister;
use crate::watch::machine::End;
use crate::watch::requests::{unbuilt, watch_request};
use crate::watch::stats::SourceStats;

/// It ends by itself long before.
const OVERLAP_TIMEOUT: Duration = Duration::from_secs(3600);
/// A second watch is opened again when the first one has brought something so many times since: all of it comes twice where it is
/// needed.
const MANY: u32 = 50;
/// The shortest time for which the first watch has to be waited for in vain, after the version of the second one was asked for.
const FIRST_WATCH_WAIT_MIN: Duration = Duration::from_secs(5);
/// Part of the time of a watch after which another one is opened beside it.
const PART: u32 = 6;

/// A watch that is open and not read.
pub(super) struct Overlap {
    /// The version that it is from, which the API server had before it was opened.
    pub(super) from: ResourceVersion,
    /// Never locked: it makes the driver that keeps it `Sync`, which a body is not.
    body: Mutex<Body>,
    /// First part of its body, if any has come.
    pub(super) first: Option<Bytes>,
    /// Time at which its version was requested.
    pub(super) asked: Instant,
    /// Time at which its duration is over.
    pub(super) over: Instant,
}

impl Overlap {
    fn body(&mut self) -> &mut Body {
        self.body.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// The rest of the watch, behind what has come of it.
    pub(super) fn into_body(self) -> Body {
        self.body.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A task of its own: it holds places that others wait for, and goes on while the driver waits for the journal.
type Opening = JoinSet<Result<Option<Overlap>, Failure>>;

/// Second watch that is opened beside the one that is being read.
pub(super) struct Beside {
    /// Time for which the first watch is open before.
    lead: Duration,
    seconds: u32,
    /// End of the first watch's duration.
    over: Instant,
    due: Option<Instant>,
    opening: Option<Opening>,
    open: Option<Overlap>,
    /// Number of messages of the first watch since then.
    news: u32,
    /// Time of the newest request.
    asked: Option<Instant>,
    /// Since when the first watch is waited for: what was on its way before may still be in a buffer of the API server, which is
    /// thrown away when it ends a watch that is not read.
    idle_since: Instant,
}

impl Beside {
    /// Beside a watch that was asked for at `since`, until `over`; nothing where that is not needed. Watches are of so many
    /// seconds, and longer where they would end soon after the first one.
    pub(super) fn new(needed: bool, seconds: u32, (since, over): (Instant, Instant), apart: Duration) -> Self {
        let lead = (Duration::from_secs(u64::from(seconds)) / PART).max(2 * apart);
        let due = needed.then(|| Instant::now().max(since + lead));
        Self { lead, seconds, over, due, opening: None, open: None, news: 0, asked: None, idle_since: Instant::now() }
    }

    /// The first watch is waited for from now on.
    pub(super) fn waits(&mut self) {
        self.idle_since = Instant::now();
    }

    /// The first watch has brought something.
    pub(super) fn news(&mut self, needed: bool) {
        self.news += 1;
        if !needed {
            (self.opening, self.open, self.due) = (None, None, None);
        } else if self.news > MANY && self.open.is_some() {
            (self.open, self.due) = (None, Some(Instant::now() + self.lead));
        }
    }

    /// Goes on with what is opened beside. Dropping it at any moment is safe.
    pub(super) async fn turn(&mut self, driver: &Driver) {
        let lead = self.lead;
        if let Some(open) = &mut self.open {
            if open.first.is_some() {
                return std::future::pending().await;
            }
            match next_part(open.body(), OVERLAP_TIMEOUT).await {
                Ok(Some(part)) if !is_error(&part) => open.first = Some(part),
                Ok(_) | Err(_) => (self.open, self.due) = (None, Some(Instant::now() + lead / 4)),
            }
        } else if let Some(opening) = &mut self.opening {
            match opening.join_next().await {
                Some(Ok(Ok(Some(overlap)))) => self.open = Some(overlap),
                // Nothing is new, or it cannot be had now.
                Some(Ok(Ok(None) | Err(_)) | Err(_)) | None => self.due = Some(Instant::now() + lead / 4),
            }
            self.opening = None;
        } else if let Some(due) = self.due {
            sleep_until(due).await;
            (self.due, self.asked, self.news) = (None, Some(Instant::now()), 0);
            let left = self.over.saturating_duration_since(Instant::now()) + lead.max(2 * FIRST_WATCH_WAIT_MIN);
            let seconds = self.seconds.max(u32::try_from(left.as_secs()).unwrap_or(self.seconds));
            let mut opening = JoinSet::new();
            opening.spawn(Opener::new(driver, seconds).open());
            self.opening = Some(opening);
        } else {
            std::future::pending::<()>().await;
        }
    }

    /// Returns the time at which the next watch is far enough from the newest one.
    pub(super) fn rested(&self, apart: Duration) -> Instant {
        self.asked.map_or_else(Instant::now, |asked| asked + apart)
    }

    /// Returns the overlap that the first watch leaves, which has ended like this and brought everything up to `newest`.
    pub(super) fn left(self, end: &End, newest: Option<&ResourceVersion>) -> Option<Overlap> {
        let (long, idle_since) = ((self.lead / 2).max(FIRST_WATCH_WAIT_MIN), self.idle_since);
        let ended =
            |open: &Overlap| matches!(end, End::TimedOut | End::Closed) && open.asked.max(idle_since).elapsed() >= long;
        let passed = |open: &Overlap| newest.is_some_and(|newest| open.from.is_before(newest));
        self.open.filter(|open| ended(open) || passed(open))
    }
}

/// Opens a second watch.
struct Opener {
    shared: Arc<Shared>,
    api: crate::watch::cluster::Api,
    spec: SourceSpec,
    fields: String,
    journal: SourceJournal,
    stats: Arc<SourceStats>,
    position: Option<ResourceVersion>,
    seconds: u32,
}

impl Opener {
    fn new(driver: &Driver, seconds: u32) -> Self {
        Self {
            shared: Arc::clone(&driver.shared),
            api: driver.api.clone(),
            spec: driver.spec.clone(),
            fields: driver.fields.clone(),
            journal: driver.journal.clone(),
            stats: Arc::clone(&driver.stats),
            position: driver.machine.newest().cloned(),
            seconds,
        }
    }

    async fn open(self) -> Result<Option<Overlap>, Failure> {
        let lister = Lister {
            shared: &self.shared,
            api: &self.api,
            spec: &self.spec,
            fields: &self.fields,
            journal: &self.journal,
            stats: &self.stats,
        };
        let asked = Instant::now();
        let Some(from) = lister.newest().await? else { return Ok(None) };
        if !self.position.is_some_and(|position| position.is_before(&from)) {
            return Ok(None);
        }
        let uri = watch_request(&self.spec, &self.fields, self.seconds, &from).map_err(unbuilt)?;
        let room = self.shared.limiter.request().await;
        let body = self.api.send(Method::GET, &uri, "application/json", Vec::new()).await?.into_body();
        drop(room);
        let over = Instant::now() + Duration::from_secs(u64::from(self.seconds));
        Ok(Some(Overlap { from, body: Mutex::new(body), first: None, asked, over }))
    }
}

/// Reports whether the API server refuses the watch after all: it does so in the first line.
fn is_error(part: &[u8]) -> bool {
    part.get(..part.len().min(64)).is_some_and(|begin| begin.windows(5).any(|word| word == b"ERROR"))
}
