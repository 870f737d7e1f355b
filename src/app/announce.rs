//! Alarms and GAPs as Events of Kubernetes, on the Pod that decklog runs in, or on the Lease of `[ha]`.
//!
//! Begin reading at [`Announcer::run`]. `turns` decides what is published next, and `object` on what.
//!
//! # Decision: Events follow the status
//!
//! Context: Events are for people who look at an object of the cluster. A flapping alarm, or a log with many GAPs, must cost the API server
//! little, and decklog may record its own Events.
//! Decision: A task compares the status with what it has published, every 15 s and within a budget; `kube_runtime::events` makes series of
//! what repeats within minutes. Entries are no cause of an Event, and nothing waits for the task.
//! Cost: What comes and goes between two looks has no Event.

mod object;
#[cfg(test)]
mod tests;
mod turns;

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube_runtime::events::{Event, EventType, Recorder, Reporter};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::query::status::Live;
use crate::watch::cluster::failure::error_event;
use crate::watch::cluster::{Api, Failure};
pub use object::Object;
use turns::{Announcements, Key, LASTING_MIN, Notice, Sort};
pub use turns::{Baseline, Seen};

/// The group and the plural of Events.
pub const RESOURCE: (&str, &str) = ("events.k8s.io", "events");
/// Verbs on Events that publishing needs: a series is a patch.
pub const VERBS: [&str; 2] = ["create", "patch"];

/// Interval at which the status is compared with what was published.
const LOOK_INTERVAL: Duration = Duration::from_secs(15);
/// Delay from news to the look at them: they are on disk by then, and several of them are one look.
const NEWS_DELAY: Duration = Duration::from_secs(1);
/// Delay after a request that failed.
const FAILURE_DELAY: Duration = Duration::from_secs(60);
/// Delay before the right is asked for again.
const DENIAL_DELAY: Duration = Duration::from_secs(3600);
/// Time limit of one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Series that are kept apart.
const SERIES_LIMIT: usize = 64;
/// Controller that Events are from.
const CONTROLLER: &str = "decklog";

/// The sentence that the log has last of whether Events are published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    Nothing,
    Published,
    /// The right is missing.
    Denied,
    /// Requests fail. Only one that succeeds ends that: the right to publish is not the success of it.
    Failing,
}

/// Publishes alarms and GAPs.
pub struct Announcer {
    api: Api,
    client: Client,
    object: Object,
    /// Recorders by what they are about and what they say: each makes one series of what repeats, with the note that came first.
    recorders: HashMap<(Key, String), Recorder>,
    announcements: Announcements,
    began: Instant,
    /// The object, once the right was granted.
    reference: Option<ObjectReference>,
    said: Said,
    /// The sentences, one after the other.
    #[cfg(test)]
    sentences: std::sync::Arc<std::sync::Mutex<Vec<Said>>>,
}

impl fmt::Debug for Announcer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Announcer").field("object", &self.object).finish_non_exhaustive()
    }
}

impl Announcer {
    /// Creates it for an object. What the log had at `baseline` is not published.
    #[must_use]
    pub fn new(api: Api, object: Object, baseline: Baseline) -> Self {
        Self {
            client: api.lend(),
            api,
            object,
            recorders: HashMap::new(),
            announcements: Announcements::new(baseline),
            began: Instant::now(),
            reference: None,
            said: Said::Nothing,
            #[cfg(test)]
            sentences: std::sync::Arc::default(),
        }
    }

    /// Publishes what `look` returns until `stop`, at intervals and soon after `news`. Without the right to publish it only asks for that,
    /// once an hour.
    pub async fn run<F>(mut self, mut look: impl FnMut() -> F, mut news: watch::Receiver<Live>, stop: CancellationToken)
    where
        F: Future<Output = Option<Seen>>,
    {
        let turns = async {
            loop {
                let delay = self.turn(&mut look).await;
                if delay > LOOK_INTERVAL {
                    sleep(delay).await;
                } else {
                    tokio::select! {
                        () = sleep(delay) => {}
                        Ok(()) = news.changed() => sleep(NEWS_DELAY).await,
                    }
                }
            }
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = turns => {}
        }
    }

    /// Publishes what is due, and returns the delay before the next turn.
    async fn turn<F>(&mut self, look: &mut impl FnMut() -> F) -> Duration
    where
        F: Future<Output = Option<Seen>>,
    {
        let reference = match &self.reference {
            Some(reference) => reference.clone(),
            None => match timeout(REQUEST_TIMEOUT, self.asks()).await {
                Ok(Ok(Some(reference))) => {
                    if self.said != Said::Failing {
                        self.succeeded();
                    }
                    self.reference.insert(reference).clone()
                }
                Ok(Ok(None)) => {
                    let (group, plural) = RESOURCE;
                    let namespace = self.object.namespace();
                    let why = format!("in the namespace {namespace} {plural}.{group} may not be created and patched");
                    self.say(Said::Denied, &format!("no Events are published: {why}"));
                    return DENIAL_DELAY;
                }
                // Nobody has led yet.
                Ok(Err(Failure::NotFound)) => return LOOK_INTERVAL,
                Ok(Err(why)) => return self.failed(&why.to_string()),
                Err(_elapsed) => return self.failed("the API server does not answer"),
            },
        };
        let Some(seen) = look().await else { return LOOK_INTERVAL };
        self.announcements.look(self.began.elapsed(), &seen);
        while let Some(notice) = self.announcements.next(self.began.elapsed(), &seen) {
            match self.publish(&notice, &reference).await {
                Ok(()) => self.succeeded(),
                // The API server never takes this one, which is no obstacle to others.
                Err(Failure::Refused(why)) => self.fails(&why),
                Err(why) => {
                    // A right can be taken away.
                    self.reference = None;
                    return self.failed(&why.to_string());
                }
            }
            self.announcements.published(self.began.elapsed(), notice);
        }
        if self.announcements.is_waiting(self.began.elapsed()) { LASTING_MIN } else { LOOK_INTERVAL }
    }

    /// Asks for the right to publish. Returns the object to publish on; none without the right.
    async fn asks(&self) -> Result<Option<ObjectReference>, Failure> {
        let (group, plural) = RESOURCE;
        for verb in VERBS {
            if !self.api.can_i(verb, group, plural, Some(self.object.namespace())).await? {
                return Ok(None);
            }
        }
        self.object.reference(&self.api).await.map(Some)
    }

    async fn publish(&mut self, notice: &Notice, reference: &ObjectReference) -> Result<(), Failure> {
        let key = (notice.key.clone(), notice.subject());
        if self.recorders.len() >= SERIES_LIMIT && !self.recorders.contains_key(&key) {
            self.recorders.clear();
        }
        let (client, instance) = (&self.client, self.object.instance());
        let recorder = self.recorders.entry(key.clone()).or_insert_with(|| {
            let reporter = Reporter { controller: CONTROLLER.to_owned(), instance: Some(instance.to_owned()) };
            Recorder::new(client.clone(), reporter)
        });
        let event = event(notice);
        let failure = match timeout(REQUEST_TIMEOUT, recorder.publish(&event, reference)).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(kube::Error::Api(status))) => error_event(&serde_json::to_vec(&status).unwrap_or_default()),
            Ok(Err(error)) => Failure::Unreachable(error.to_string()),
            Err(_elapsed) => Failure::Away("the API server does not answer".to_owned()),
        };
        // An Event that is gone cannot be patched.
        self.recorders.remove(&key);
        Err(failure)
    }

    fn failed(&mut self, why: &str) -> Duration {
        self.fails(why);
        FAILURE_DELAY
    }

    fn fails(&mut self, why: &str) {
        self.say(Said::Failing, &format!("Events cannot be published on {} now: {why}", self.object));
    }

    fn succeeded(&mut self) {
        if self.is_news(Said::Published) {
            tracing::info!("alarms and GAPs are published as Events on {}", self.object);
        }
    }

    /// Logs a sentence where it is of another sort than the one before.
    fn say(&mut self, sort: Said, text: &str) {
        if self.is_news(sort) {
            tracing::warn!("{text}");
        } else {
            tracing::debug!("{text}");
        }
    }

    /// Notes a sentence. Reports whether it is of another sort than the one before.
    fn is_news(&mut self, sort: Said) -> bool {
        let is_news = self.said != sort;
        self.said = sort;
        #[cfg(test)]
        if is_news {
            self.sentences.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(sort);
        }
        is_news
    }
}

fn event(notice: &Notice) -> Event {
    let (type_, action) = match notice.sort {
        Sort::Raised => (EventType::Warning, "Raise"),
        Sort::Ended => (EventType::Normal, "End"),
        Sort::Gap(..) => (EventType::Warning, "Record"),
    };
    Event {
        type_,
        reason: notice.reason(),
        note: Some(notice.note.clone()),
        action: action.to_owned(),
        secondary: None,
    }
}
