//! Reading the cluster.
//!
//! Every watched resource and scope is a *source*: a pure [`machine`] that decides, and a thin driver that carries
//! out. The [`SourceManager`] owns all of them, and follows what the API server serves and what the configuration asks for. If
//! a source ends without being asked to, it ends too.
//!
//! ```text
//!  bytes ─ frame ─→ lines ─ decode ─→ identity + bytes ─ redact ─→ journal
//!                                  ╲
//!                       answers ─ failure ──→ machine ─→ what to do next
//! ```
//!
//! decklog reads watches itself: `kube_runtime` cannot begin at a version, hides bookmarks, skips what it cannot decode, and
//! keeps no bytes. It only wakes discovery, which needs none of that.
//!
//! It may use `core` and `journal`. Begin with [`machine`], which decides, and with `source`, which does what it says; [`cluster`]
//! is the connection, and [`discovery`] what there is to watch.
//!
//! # Examples
//!
//! The body of a watch is cut into lines of bounded length:
//!
//! ```
//! use decklog::watch::frame::Lines;
//!
//! let mut lines = Lines::new(1 << 20);
//! lines.push("{\"type\":\"BOOKMARK\"}\n{\"type\":\"ADD".into());
//! assert_eq!(lines.take()?.as_deref(), Some(&b"{\"type\":\"BOOKMARK\"}"[..]));
//! assert_eq!(lines.take()?, None, "the second line has not ended");
//! # Ok::<(), decklog::watch::frame::Oversize>(())
//! ```

pub mod apiserver_counters;
mod around;
mod audit;
pub mod cluster;
pub mod dating;
pub mod decode;
pub mod discovery;
pub mod frame;
mod heartbeat;
mod intake;
mod limiter;
mod listed;
mod lister;
pub mod machine;
mod manager;
mod news;
mod pages;
mod prober;
mod recover;
mod requests;
pub mod reviews;
pub mod select;
mod settings;
mod source;
mod stats;
#[cfg(test)]
mod tests;
mod verified;
mod version_clock;
mod witness;

use std::ops::RangeInclusive;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::{Mutex, Notify, Semaphore, watch};
use tokio::time::Instant;

pub use manager::{Overview, Plan, SourceManager, SourceManagerError, SourceManagerHandle, SourceView};
pub use settings::{FirstList, Settings};
pub use stats::{CacheFault, SourceStats};

use crate::core::backoff::Backoff;
use crate::core::change::redact::Redactor;
use crate::core::model::Resource;
use crate::core::runtime::{self, Signal};
use crate::journal::Journal;
use crate::watch::cluster::{Api, AuditReads, Failure, RecoverBounds};
use dating::Dating;
use discovery::{Discovered, Discoverer, Troubles};
use heartbeat::Heartbeat;
use limiter::Limiter;
use machine::Thresholds;
use news::News;

use prober::Prober;
use recover::Revisions;
use verified::Verified;
use version_clock::VersionClock;

/// Every duration and bound of reading a cluster. Only tests need others than the default.
#[derive(Clone, Debug)]
pub struct Timings {
    /// Tolerances of the machines for conditions that may heal by themselves.
    pub thresholds: Thresholds,
    /// Duration that the API server is asked to keep a watch open, in seconds, drawn again for each.
    pub watch_seconds: RangeInclusive<u32>,
    /// The same for a watch of a source that gets no bookmarks. Only its end moves a quiet position, which is to be newer
    /// than what etcd compacts, so four times this is less than the five minutes that Kubernetes keeps there.
    pub short_watch_seconds: RangeInclusive<u32>,
    /// A watch on which nothing comes for this long is taken for dead. Bookmarks come about every minute.
    pub silence: Duration,
    /// Backoff after failures.
    pub backoff: Backoff,
    /// Shortest interval of the probes of an API server that does not answer.
    pub prober: Duration,
    /// … and over which time the sources come back once it does.
    pub scatter: Duration,
    /// Objects in a page of a list.
    pub page: u32,
    /// The longest line of a watch, and the largest item of a list, in bytes.
    pub line_limit: usize,
    /// Lists in progress at once.
    pub lists: usize,
    /// Other requests at once that wait for the head of their answer.
    pub requests: usize,
    /// Requests a second of all sources, beside a first rush of as many.
    pub rate: u32,
    /// Each source is compared with the API server at least this often; `None` for never.
    pub audit: Option<Duration>,
    /// Time that an audit waits for the source to pass the version of its list. Bookmarks come about every minute.
    pub audit_patience: Duration,
    /// Budget of an audit's questions to etcd; `None` for no such questions.
    pub audit_reads: Option<AuditReads>,
    /// Bounds for recovering what watches have missed; `None` disables it.
    pub recover: Option<RecoverBounds>,
    /// Versions are dated by the Leases of the control plane.
    pub dates: bool,
    /// Interval at which the newest version is read; `None` for never.
    pub version_clock: Option<Duration>,
    /// Interval of discovery if one document holds it all. An unchanged one is not sent again.
    pub discovery: Duration,
    /// Interval of discovery on an old server, which is queried group by group.
    pub legacy_discovery: Duration,
    /// Time that a start waits for discovery before what the journal knows is read without it.
    pub grace: Duration,
    /// CustomResourceDefinitions and APIServices are watched where they may bring something that is configured. Simulated
    /// time goes without: a watcher of `kube_runtime` draws its own random numbers.
    pub definitions: bool,
}

impl Default for Timings {
    fn default() -> Self {
        Self {
            thresholds: Thresholds::default(),
            watch_seconds: 300..=600,
            short_watch_seconds: 60..=70,
            silence: Duration::from_secs(150),
            backoff: Backoff { first: Duration::from_millis(800), most: Duration::from_secs(30) },
            prober: Duration::from_secs(1),
            scatter: Duration::from_millis(200),
            page: 500,
            line_limit: 16 << 20,
            lists: 4,
            requests: 16,
            rate: 200,
            audit: None,
            audit_patience: Duration::from_secs(180),
            audit_reads: None,
            recover: Some(RecoverBounds::default()),
            dates: false,
            version_clock: None,
            discovery: Duration::from_secs(5),
            legacy_discovery: Duration::from_secs(60),
            grace: Duration::from_secs(2),
            definitions: true,
        }
    }
}

/// Parts that every source uses.
struct Shared {
    api: Api,
    journal: Journal,
    redactor: Arc<Redactor>,
    timings: Timings,
    limiter: Limiter,
    /// Asks for all whether the API server answers.
    prober: Arc<Prober>,
    /// Notified when a source has settled for the first time.
    settled: Arc<Notify>,
    /// Counts steps of every source and of discovery: proof of life for a watchdog.
    progress: Signal,
    discoverer: Arc<Mutex<Discoverer>>,
    discovered: watch::Sender<Option<Discovered>>,
    /// Problems of discovery.
    troubles: Arc<std::sync::Mutex<Troubles>>,
    /// Notified when a CustomResourceDefinition or an APIService has changed.
    definitions: Signal,
    verified: Arc<Mutex<Verified>>,
    /// Revisions of the API server that are known to the sources.
    revisions: Arc<Revisions>,
    /// Number of sources that are recovering versions, which explain revisions to others.
    in_flight: Arc<AtomicU32>,
    /// Number of those that have found any and are not finished.
    with_findings: Arc<AtomicU32>,
    /// Semaphore for sources with unexplained revisions: one asks at a time, because its findings spare the next one requests.
    counting: Arc<Semaphore>,
    /// Notified of each rollback of the API server, so that what one source finds makes the others look.
    rollbacks: Signal,
    /// Notified at the moments after which no open connection is trusted: a suspended machine, a stopped process.
    reconnects: Signal,
    heartbeat: Arc<Heartbeat>,
    /// Dates of versions, one who asks at a time.
    dating: Mutex<Dating>,
    version_clock: Arc<VersionClock>,
    news: News,
}

impl Shared {
    fn progressed(&self) {
        self.progress.notify();
    }

    /// Waits for answers of the API server. A server that stands still is waited for, each time for as long as a request may
    /// take, and that is progress: systemd is not to take us for dead because somebody else is.
    async fn patiently<T>(&self, answer: impl Future<Output = T>) -> T {
        let limit = self.api.limits().head * 3;
        let began = Instant::now();
        tokio::pin!(answer);
        loop {
            tokio::select! {
                biased;
                answer = &mut answer => return answer,
                () = tokio::time::sleep(Duration::from_secs(1)), if began.elapsed() < limit => self.progressed(),
            }
        }
    }

    /// Waits as long as that is wanted, which is progress however long it is.
    async fn rest(&self, pause: Duration) {
        let end = Instant::now() + pause;
        while Instant::now() < end {
            self.progressed();
            tokio::time::sleep_until(end.min(Instant::now() + Duration::from_secs(5))).await;
        }
    }

    /// Asks discovery now, and lets the source manager know what it says.
    async fn discover(&self) -> Result<Discovered, Failure> {
        let mut discoverer = self.discoverer.lock().await;
        let began = runtime::now();
        let result = discoverer.discover_by_halves(&self.api, |half| self.publish(half)).await;
        self.note_discovery(began, result.as_ref());
        let found = result?;
        self.progressed();
        self.publish(&found);
        Ok(found)
    }

    fn publish(&self, found: &Discovered) {
        self.discovered.send_if_modified(|last| {
            let changed = last.as_ref() != Some(found);
            if changed {
                *last = Some(found.clone());
            }
            changed
        });
    }

    fn note_discovery(&self, began: Timestamp, result: Result<&Discovered, &Failure>) {
        self.troubles.lock().unwrap_or_else(PoisonError::into_inner).note(began, result);
    }

    /// Reports whether discovery says now, for certain, that the resource is not served.
    async fn lacks(&self, resource: &Resource) -> bool {
        self.discover().await.is_ok_and(|found| found.lacks(resource))
    }
}
