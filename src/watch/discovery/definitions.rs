//! Watches what brings new resources, CustomResourceDefinitions and APIServices, so that discovery is asked as soon as
//! they change.
//!
//! Here a watcher that shows the newest state and not each change is enough: an event only says that it is time to ask.
//! Where the rights for it are missing, discovery is asked at its pace, and new resources come a little later.

use std::fmt::Debug;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::core::PartialObjectMeta;
use kube::{Resource, ResourceExt as _};
use kube_runtime::watcher::{self, Event};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout};

use super::super::Shared;
use crate::core::runtime::Listener;
use crate::watch::cluster::Failure;

/// Time until what is not granted, or not served, is asked for again.
const REFUSED_DELAY: Duration = Duration::from_mins(10);
/// Time within which each part of the first list comes; otherwise the list is asked for again.
const FIRST_LIST_TIMEOUT: Duration = Duration::from_secs(60);
/// Objects in a page: the annotations of a definition may be a quarter of a megabyte.
const PAGE: u32 = 50;

/// Notifies `shared.definitions` of each change of what brings resources; never returns.
pub(in crate::watch) async fn watch_definitions(shared: &Shared) {
    let client = shared.api.lend();
    tokio::join!(follow::<CustomResourceDefinition>(shared, &client), follow::<APIService>(shared, &client));
}

async fn follow<K>(shared: &Shared, client: &kube::Client)
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
    PartialObjectMeta<K>: Resource<DynamicType = ()>,
{
    let name = format!("{}.{}", K::plural(&()), K::group(&()));
    let mut tries = 0;
    let mut said = false;
    loop {
        let pause = match is_granted::<K>(shared).await {
            Ok(true) => match until_failure::<K>(shared, client, &mut tries).await {
                Stopped::Refused => REFUSED_DELAY,
                Stopped::Failed => shared.timings.backoff.wait(tries),
                Stopped::Reconnect => Duration::ZERO,
            },
            Ok(false) => {
                if !said {
                    tracing::info!(
                        "{name} may not be listed and watched, so a new kind is found a little later; `decklog rbac` prints what is needed"
                    );
                }
                said = true;
                REFUSED_DELAY
            }
            // The question itself is refused, and so would be what it is about.
            Err(Failure::Forbidden(_) | Failure::NotFound | Failure::Refused(_)) => REFUSED_DELAY,
            Err(_) => {
                tries += 1;
                shared.timings.backoff.wait(tries)
            }
        };
        shared.rest(pause).await;
    }
}

async fn is_granted<K: Resource<DynamicType = ()>>(shared: &Shared) -> Result<bool, Failure> {
    for verb in ["list", "watch"] {
        if !shared.api.can_i(verb, &K::group(&()), &K::plural(&()), None).await? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Reason for which a watcher is given up.
enum Stopped {
    /// The API server refuses it, or has nothing there.
    Refused,
    /// It failed, and another one may not.
    Failed,
    /// No open connection is trusted any more.
    Reconnect,
}

async fn until_failure<K>(shared: &Shared, client: &kube::Client, tries: &mut u32) -> Stopped
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
    PartialObjectMeta<K>: Resource<DynamicType = ()>,
{
    let objects: kube::Api<PartialObjectMeta<K>> = kube::Api::all(client.clone());
    let mut events = watcher::watcher(objects, watcher::Config::default().page_size(PAGE)).boxed();
    let mut reconnects = shared.reconnects.listen();
    let mut listed = false;
    loop {
        let next = async {
            if listed { Some(events.next().await) } else { timeout(FIRST_LIST_TIMEOUT, events.next()).await.ok() }
        };
        let event = tokio::select! {
            biased;
            () = reconnects.notified() => return Stopped::Reconnect,
            event = next => event,
        };
        match event {
            Some(Some(Ok(Event::Init | Event::InitApply(_)))) => {}
            Some(Some(Ok(event @ (Event::InitDone | Event::Apply(_) | Event::Delete(_))))) => {
                (listed, *tries) = (true, 0);
                if let Event::Apply(object) | Event::Delete(object) = event {
                    tracing::debug!(name = object.name_any(), "a definition has changed: asking discovery");
                }
                shared.definitions.notify();
            }
            Some(Some(Err(error))) if is_refused(&error) => return Stopped::Refused,
            // The watcher goes on from where it was.
            Some(Some(Err(_))) if listed => {
                *tries += 1;
                shared.rest(shared.timings.backoff.wait(*tries)).await;
            }
            Some(Some(Err(_)) | None) | None => {
                *tries += 1;
                return Stopped::Failed;
            }
        }
    }
}

fn is_refused(error: &watcher::Error) -> bool {
    use watcher::Error::{InitialListFailed, WatchError, WatchFailed, WatchStartFailed};
    let (InitialListFailed(kube::Error::Api(status))
    | WatchStartFailed(kube::Error::Api(status))
    | WatchFailed(kube::Error::Api(status))
    | WatchError(status)) = error
    else {
        return false;
    };
    status.is_forbidden() || status.is_not_found()
}

/// Times of the questions to discovery: at its pace, and a few in a row after a definition has changed, because what it
/// brings is served a moment later. The latter are bounded, whatever the API server does.
#[derive(Debug)]
pub(in crate::watch) struct Pace {
    changed: Listener,
    /// The waits that are left after the last change.
    steps: &'static [Duration],
    /// Questions that may follow at once.
    left: u32,
    /// Moment from which the next ones are counted: one for each [`EVERY`].
    filled: Instant,
}

/// The waits after a change: what a CustomResourceDefinition brings is in the aggregated document one or two seconds after
/// it is served, and asking for a document that has not changed costs little.
const STEPS: [Duration; 12] = steps(50, 250);
/// The same where every group is asked by itself.
const STEPS_OF_GROUPS: [Duration; 12] = steps(100, 1000);

/// Returns waits of so many milliseconds, of which the first is shorter.
const fn steps(first: u64, next: u64) -> [Duration; 12] {
    let mut steps = [Duration::from_millis(next); 12];
    steps[0] = Duration::from_millis(first);
    steps
}

/// Questions in a row that definitions may cause.
const AT_ONCE: u32 = 20;
/// Time between two questions after that, where one document holds everything.
const EVERY: Duration = Duration::from_secs(1);
/// The same where every group is asked by itself, which takes as many requests as there are groups.
const EVERY_OF_GROUPS: Duration = Duration::from_secs(2);

impl Pace {
    pub(in crate::watch) fn new(changed: Listener) -> Self {
        Self { changed, steps: &[], left: AT_ONCE, filled: Instant::now() }
    }

    /// Waits until discovery is to be asked again: after `pause`, or sooner where a definition has changed.
    pub(in crate::watch) async fn rest(&mut self, shared: &Shared, pause: Duration, cheap: bool) {
        let steps: &'static [Duration] = if cheap { &STEPS } else { &STEPS_OF_GROUPS };
        let mut due = Instant::now() + pause;
        if let Some((step, rest)) = self.steps.split_first() {
            self.steps = rest;
            due = due.min(self.allowed(cheap).max(Instant::now() + *step));
        }
        loop {
            tokio::select! {
                biased;
                () = self.changed.notified() => {
                    self.steps = &steps[1..];
                    due = due.min(self.allowed(cheap).max(Instant::now() + steps[0]));
                }
                () = shared.rest(due.saturating_duration_since(Instant::now())) => break,
            }
        }
        // What has grown until now is counted before this question takes its part.
        self.allowed(cheap);
        self.left = self.left.saturating_sub(1);
    }

    /// Returns the earliest moment for one more question.
    fn allowed(&mut self, cheap: bool) -> Instant {
        let every = if cheap { EVERY } else { EVERY_OF_GROUPS };
        let now = Instant::now();
        let most = if cheap { AT_ONCE } else { AT_ONCE / 4 };
        let grown = now.duration_since(self.filled).as_nanos() / every.as_nanos();
        let grown = u32::try_from(grown).unwrap_or(u32::MAX);
        self.filled += every.saturating_mul(grown);
        self.left = self.left.saturating_add(grown).min(most);
        if self.left > 0 { now } else { self.filled + every }
    }
}
