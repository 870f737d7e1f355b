//! The way from decklog to the simulated API server, in one process and one thread, and everything that can happen on
//! it and in the server's name.

mod ask;
mod exact;
mod flow;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use decklog::core::runtime::{Listener, Signal};
use decklog::sim::faults::Refusal;
use decklog::sim::{self, Sim};
use http::header::{AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER};
use http::{Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use kube::client::Body;
use tokio::time::{Instant, sleep};

use super::Setup;
use super::faults::Fault;
use super::stage::Stage;
use ask::{Ask, meaning, ordered, possible};
use flow::Flow;

type Answer = UnsyncBoxBody<Bytes, io::Error>;

/// Clones are handles of the same network.
#[derive(Clone)]
pub struct Network {
    stage: Arc<Stage>,
    sim: Sim,
    /// Rings when the server goes down and when it comes up; both break every connection.
    power: Signal,
    /// Sources whose last list was an old one.
    stale: Arc<Mutex<BTreeSet<String>>>,
    line_limit: usize,
    /// Sources are of one namespace each.
    namespaced: bool,
    /// No list is older than this.
    oldest: Arc<AtomicU64>,
    /// What the server does wrong all the time, until everything is well.
    habit: Option<Fault>,
    seen: Arc<Mutex<Seen>>,
    /// How many bytes of watches decklog has taken.
    taken: Arc<AtomicU64>,
}

/// What has come over the network.
#[derive(Default)]
struct Seen {
    /// When each source asked for something in the last [`SPAN`].
    asked: BTreeMap<String, VecDeque<Instant>>,
    /// The most that one asked for in it.
    most: usize,
    /// Sources whose watch was accepted since the server came up.
    watching: BTreeSet<String>,
    /// The highest version that each source was sent in this life.
    sent: BTreeMap<String, u64>,
}

/// Requests are counted in spans of this length …
const SPAN: Duration = Duration::from_secs(3);
/// … and a source has no more of them in one, further pages of a list left aside, whatever the server does.
const MOST: usize = 30;

impl Network {
    pub fn new(stage: Arc<Stage>, sim: Sim, setup: &Setup, habit: Option<Fault>) -> Self {
        let oldest = Arc::new(AtomicU64::new(sim.revision()));
        let (power, stale, seen) = (Signal::default(), Arc::default(), Arc::default());
        let (line_limit, namespaced) = (setup.line_limit, setup.namespaces.is_some());
        Self { stage, sim, power, stale, line_limit, namespaced, oldest, habit, seen, taken: Arc::default() }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The sources whose watch was accepted since the server came up.
    pub fn watching(&self) -> BTreeSet<String> {
        self.seen().watching.clone()
    }

    /// How many bytes of watches decklog has taken so far.
    pub fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// The most requests that a source had in a span.
    pub fn most(&self) -> usize {
        self.seen().most
    }

    /// No answer of a server makes a hot loop.
    fn count(&self, ask: Ask, source: &str) {
        if ask == Ask::Other {
            return;
        }
        self.stage.moment("asked");
        // Of versions that a watch has forgotten as many are asked for as there are.
        if matches!(ask, Ask::Continue | Ask::Exact) {
            return;
        }
        let mut seen = self.seen();
        let now = Instant::now();
        let asked = seen.asked.entry(source.to_owned()).or_default();
        asked.push_back(now);
        while asked.front().is_some_and(|first| *first + SPAN < now) {
            asked.pop_front();
        }
        let count = asked.len();
        if count > MOST && seen.most <= MOST {
            self.stage.fail(format!("{source} asks {count} times in {SPAN:?}"));
        }
        seen.most = seen.most.max(count);
    }

    /// The habit of the server, as long as anything is wrong.
    fn habit(&self) -> Option<Fault> {
        // Who pages or names versions like this does it for ever.
        let lasts = matches!(self.habit, Some(Fault::Opaque | Fault::PagesDiffer));
        self.habit.filter(|_| lasts || !self.stage.is_over())
    }

    /// No API server is behind this any more.
    pub fn forget_before(&self, revision: u64) {
        self.oldest.store(revision, Ordering::Relaxed);
    }

    /// Breaks every connection, and refuses new ones until [`Network::up`].
    pub fn down(&self) {
        if self.is_up() {
            self.seen().watching.clear();
            self.power.notify();
        }
    }

    pub fn up(&self) {
        if !self.is_up() {
            self.power.notify();
        }
    }

    fn is_up(&self) -> bool {
        self.power.count().is_multiple_of(2)
    }

    /// A client for one life of decklog. What a dead process still asks for reaches nobody.
    pub fn client(&self, alive: &Arc<AtomicBool>) -> kube::Client {
        let (network, alive) = (self.clone(), Arc::clone(alive));
        // A process that begins knows what its journal has, which may be less.
        self.seen().sent.clear();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (network, alive) = (network.clone(), Arc::clone(&alive));
            async move { network.call(request, alive).await }
        });
        kube::Client::new(service, "default")
    }

    /// Answers a request, as far as it gets there.
    ///
    /// # Errors
    /// Where it, or its answer, does not arrive.
    pub async fn call(self, request: Request<Body>, alive: Arc<AtomicBool>) -> io::Result<Response<Answer>> {
        let latency = self.stage.throw(|dice| if dice.percent(60) { dice.millis(0, 40) } else { Duration::ZERO });
        if latency.is_zero() {
            tokio::task::yield_now().await;
        } else {
            sleep(latency).await;
        }
        if !alive.load(Ordering::Relaxed) {
            return std::future::pending().await;
        }
        let mut power = self.power.listen();
        let uri = request.uri().clone();
        let (ask, mut source) = meaning(&uri);
        if ask == Ask::Exact && !self.namespaced {
            // One object is asked for in its namespace, whatever the source is.
            source.truncate(source.find('/').unwrap_or(source.len()));
        }
        self.count(ask, &source);
        if !self.is_up() {
            self.stage.note(format_args!("{ask:?} {uri}: refused, the server is down"));
            return Err(refused());
        }
        let accept = request.headers().get(http::header::ACCEPT).cloned();
        let fault = self.stage.draw(possible(ask));
        // Which version is the newest, and further pages, are asked for on the same way to what was forgotten.
        if matches!(ask, Ask::Exact | Ask::Latest | Ask::Continue) && fault.is_some() {
            self.stage.may_lose(&source, "exact");
        }
        if let Some(fault) = fault
            && let Some(answer) = self.instead(fault, ask, &source, &uri, accept.clone()).await
        {
            return answer;
        }
        let habit = self.habit();
        let asked = if habit == Some(Fault::Opaque) { ordered(&uri) } else { uri.to_string() };
        if ask == Ask::Watch && habit == Some(Fault::FreshBookmark) {
            self.something_else_changes();
        }
        if let Some(fault) = fault.filter(|_| ask == Ask::Exact) {
            self.lie(fault, &source, &uri);
        }
        let answer = self.ask(&asked, accept, &mut power).await?;
        let status = answer.status();
        self.stage.note(format_args!("{ask:?} {uri}: {}", status.as_u16()));
        if ask == Ask::Watch && status == StatusCode::GONE {
            self.stage.expired(&source);
        }
        if ask == Ask::List && status.is_success() {
            self.stale.lock().unwrap_or_else(PoisonError::into_inner).remove(&source);
        }
        let watch = ask == Ask::Watch && status.is_success();
        if watch {
            self.seen().watching.insert(source.clone());
        }
        let (head, body) = answer.into_parts();
        let flow = Flow {
            page: ask == Ask::Continue,
            habit,
            network: self,
            alive,
            power,
            source,
            watch,
            from: body,
            fault: None,
            rest: Vec::new(),
            steps: VecDeque::new(),
            lines: 0,
            no_bookmarks: false,
            pieces: false,
            late: None,
        };
        Ok(Response::from_parts(head, flow.begin(fault)))
    }

    /// Something that nobody watches is written, so that there is a new version.
    fn something_else_changes(&self) {
        let (namespace, name) = (crate::world::NAMESPACES[0], "s-fresh");
        let text = |n: u64| {
            let text = format!(r#"{{"metadata":{{"name":"{name}","namespace":"{namespace}"}},"spec":{{"n":{n}}}}}"#);
            sim::Object::parse(text.as_bytes()).unwrap_or_default()
        };
        let next = text(self.sim.revision());
        if self.sim.replace("services", namespace, name, next).is_err() {
            drop(self.sim.create("services", text(0)));
        }
    }

    async fn ask(
        &self,
        uri: &str,
        accept: Option<http::HeaderValue>,
        power: &mut Listener,
    ) -> io::Result<Response<sim::Body>> {
        let mut request = Request::builder().uri(uri).header(AUTHORIZATION, format!("Bearer {}", sim::TOKEN));
        if let Some(accept) = accept {
            request = request.header(http::header::ACCEPT, accept);
        }
        let request = request.body(Bytes::new()).map_err(io::Error::other)?;
        tokio::select! {
            biased;
            () = power.notified() => {
                // It may not have come to what waits for it.
                self.sim.heal();
                Err(reset())
            }
            answer = self.sim.answer(request) => answer.map_err(io::Error::other),
        }
    }

    /// What this fault answers in place of the server, where it does.
    async fn instead(
        &self,
        fault: Fault,
        ask: Ask,
        source: &str,
        uri: &http::Uri,
        accept: Option<http::HeaderValue>,
    ) -> Option<io::Result<Response<Answer>>> {
        let stage = &self.stage;
        let status =
            |code: u16, reason: &'static str| Ok(refusal(&Refusal::new(code, reason, "the simulation says so")));
        let seconds = u32::try_from(stage.throw(|dice| dice.between(1, 20))).unwrap_or(1);
        let answer = match fault {
            Fault::Refused => Err(refused()),
            Fault::Reset => Err(reset()),
            Fault::Hang => {
                stage.struck(fault, format_args!("{ask:?} {source}"));
                return Some(std::future::pending().await);
            }
            Fault::SlowHead => {
                stage.struck(fault, format_args!("{ask:?} {source}"));
                sleep(stage.throw(|dice| dice.millis(500, 30_000))).await;
                return None;
            }
            Fault::GoneAtStart => {
                let gone = Refusal::expired(1, 2);
                stage.expired(source);
                if stage.throw(|dice| dice.percent(50)) { Ok(refusal(&gone)) } else { Ok(whole(gone.event_line())) }
            }
            Fault::ExactGone => {
                Ok(refusal(&Refusal::new(410, "Expired", "The resourceVersion for the provided list is too old.")))
            }
            Fault::ExpiredContinue => Ok(refusal(&Refusal {
                token: Some("inconsistent".to_owned()),
                ..Refusal::new(410, "Expired", "The provided continue parameter is too old")
            })),
            Fault::TooMany => Ok(refusal(&Refusal::not_ready(seconds))),
            Fault::Unavailable => status(503, "ServiceUnavailable"),
            Fault::Internal => {
                stage.may_lose(source, "expired");
                status(500, "InternalError")
            }
            Fault::Unauthorized => Ok(refusal(&Refusal::unauthorized())),
            Fault::Forbidden => status(403, "Forbidden"),
            Fault::NotFound => Ok(refusal(&Refusal::not_served())),
            Fault::Empty => {
                stage.may_lose(source, "expired");
                Ok(whole(Bytes::new()))
            }
            Fault::StaleProbe => Ok(refusal(&Refusal::too_large(9, 8))),
            Fault::StaleList => return self.old_list(source, uri, accept).await,
            _ => return None,
        };
        stage.struck(fault, format_args!("{ask:?} {source}"));
        Some(answer)
    }

    /// A list as it was a little while ago, as an API server gives it that is behind. Never twice in a row: two of
    /// them are what a restored cluster looks like.
    async fn old_list(
        &self,
        source: &str,
        uri: &http::Uri,
        accept: Option<http::HeaderValue>,
    ) -> Option<io::Result<Response<Answer>>> {
        let revision = self.sim.revision();
        let back = self.stage.throw(|dice| dice.between(1, 20)) as u64;
        if revision < self.oldest.load(Ordering::Relaxed) + back
            || !self.stale.lock().unwrap_or_else(PoisonError::into_inner).insert(source.to_owned())
        {
            return None;
        }
        let uri = format!("{uri}&resourceVersion={}&resourceVersionMatch=Exact", revision - back);
        let answer = self.ask(&uri, accept, &mut self.power.listen()).await.ok()?;
        if !answer.status().is_success() {
            return None;
        }
        self.stage.struck(Fault::StaleList, format_args!("{source} at {} of {revision}", revision - back));
        let (head, body) = answer.into_parts();
        Some(Ok(Response::from_parts(head, body.map_err(io::Error::other).boxed_unsync())))
    }
}

fn refused() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionRefused, "connection refused")
}

fn reset() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "connection reset by peer")
}

fn whole(body: Bytes) -> Response<Answer> {
    Response::new(Full::new(body).map_err(|never| match never {}).boxed_unsync())
}

fn refusal(refusal: &Refusal) -> Response<Answer> {
    let answer = refusal.answer();
    let mut response = whole(answer.body);
    *response.status_mut() = StatusCode::from_u16(answer.status).unwrap_or_default();
    response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    if let Some(seconds) = answer.retry_after {
        response.headers_mut().insert(RETRY_AFTER, seconds.into());
    }
    response
}
