//! The way from decklog to the simulated API server, in one process and one thread, and everything that can happen on
//! it and in the server's name.

mod exact;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use decklog::core::runtime::{Listener, Signal};
use decklog::sim::faults::Refusal;
use decklog::sim::{self, Sim};
use futures::stream;
use http::header::{AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER};
use http::{Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use kube::client::Body;
use tokio::time::{Instant, sleep, sleep_until};

use super::Setup;
use super::faults::Fault;
use super::stage::Stage;

type Answer = UnsyncBoxBody<Bytes, io::Error>;

/// What decklog asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ask {
    Watch,
    /// The first page of a list.
    List,
    /// A further page.
    Continue,
    /// Whether a version is there.
    Probe,
    /// Which version is there.
    Latest,
    /// What there was at a version: everything, one object, or how many.
    Exact,
    /// Who the cluster is, what it serves.
    Other,
}

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

/// Not more comes at once.
const FRAME: usize = 64 << 10;

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

/// What a request asks for, and the source that asks it, as status calls it.
fn meaning(uri: &http::Uri) -> (Ask, String) {
    let parts: Vec<&str> = uri.path().split('/').filter(|part| !part.is_empty()).collect();
    let (group, rest) = match parts.as_slice() {
        ["api", _, rest @ ..] => ("", rest),
        ["apis", group, _, rest @ ..] => (*group, rest),
        _ => return (Ask::Other, String::new()),
    };
    let (namespace, plural) = match rest {
        ["namespaces", namespace, plural] => (*namespace, *plural),
        [plural] => ("", *plural),
        _ => return (Ask::Other, String::new()),
    };
    let mut source = plural.to_owned();
    if !group.is_empty() {
        source = format!("{source}.{group}");
    }
    if !namespace.is_empty() {
        source = format!("{source}/{namespace}");
    }
    let query = uri.query().unwrap_or_default();
    let ask = if query.contains("watch=true") {
        Ask::Watch
    } else if query.contains("resourceVersionMatch=NotOlderThan") {
        Ask::Probe
    } else if query.contains("resourceVersionMatch=Exact") {
        Ask::Exact
    } else if query.contains("continue=") {
        Ask::Continue
    } else if query.split('&').any(|part| part == "limit=1") {
        Ask::Latest
    } else {
        Ask::List
    };
    (ask, source)
}

/// The faults that a request can meet.
fn possible(ask: Ask) -> &'static [Fault] {
    use Fault as F;
    match ask {
        Ask::Other => &[F::Refused, F::Reset, F::Hang, F::SlowHead, F::TooMany, F::Unavailable, F::Unauthorized],
        Ask::Probe => &[
            F::Refused,
            F::Reset,
            F::Hang,
            F::SlowHead,
            F::TooMany,
            F::Unavailable,
            F::Unauthorized,
            F::Forbidden,
            F::NotFound,
            F::StaleProbe,
        ],
        Ask::Latest => &[F::Refused, F::Reset, F::Hang, F::SlowHead, F::TooMany, F::Unavailable, F::Unauthorized],
        Ask::Exact => exact::FAULTS,
        Ask::List | Ask::Continue => &[
            F::Refused,
            F::Reset,
            F::Hang,
            F::SlowHead,
            F::TooMany,
            F::Unavailable,
            F::Internal,
            F::Unauthorized,
            F::Forbidden,
            F::NotFound,
            F::Empty,
            F::ExpiredContinue,
            F::StaleList,
            F::CutList,
            F::HalfOpen,
            F::SlowBody,
            F::Garbage,
        ],
        Ask::Watch => &[
            F::Refused,
            F::Reset,
            F::Hang,
            F::SlowHead,
            F::TooMany,
            F::Unavailable,
            F::Internal,
            F::Unauthorized,
            F::Forbidden,
            F::NotFound,
            F::Empty,
            F::GoneAtStart,
            F::GoneInStream,
            F::CutInLine,
            F::CutAfterLine,
            F::HalfOpen,
            F::SlowBody,
            F::Garbage,
            F::Undecodable,
            F::Oversize,
            F::Repeated,
            F::TimeOut,
            F::NoBookmarks,
        ],
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

/// The next thing that a body does.
enum Step {
    Send(Vec<u8>),
    /// Sends the line that says that the position is too old.
    SendGone(Vec<u8>),
    Wait(Duration),
    /// Nothing more comes until the connection breaks.
    Silence,
    Break,
    End,
}

/// A body on its way, line by line where it is a watch.
struct Flow {
    /// It is a further page of a list.
    page: bool,
    habit: Option<Fault>,
    network: Network,
    alive: Arc<AtomicBool>,
    power: Listener,
    source: String,
    watch: bool,
    from: sim::Body,
    /// What is going to happen, after so many lines.
    fault: Option<(Fault, usize)>,
    /// The beginning of a line.
    rest: Vec<u8>,
    steps: VecDeque<Step>,
    lines: usize,
    no_bookmarks: bool,
    pieces: bool,
    /// What has come stays on the way until then, and arrives with what comes meanwhile.
    late: Option<Instant>,
}

impl Flow {
    fn begin(mut self, fault: Option<Fault>) -> Answer {
        let after = self.network.stage.throw(|dice| if dice.percent(30) { 0 } else { dice.between(0, 12) });
        match fault {
            Some(Fault::NoBookmarks) => {
                self.no_bookmarks = true;
                self.struck(Fault::NoBookmarks);
            }
            Some(Fault::SlowBody) => {
                self.pieces = true;
                self.struck(Fault::SlowBody);
            }
            Some(fault) => self.fault = Some((fault, if self.watch { after } else { 0 })),
            None => {}
        }
        let frames = stream::unfold(self, |mut flow| async move {
            let part = flow.next().await?;
            if let (true, Ok(bytes)) = (flow.watch, &part) {
                flow.network.taken.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            }
            Some((part.map(Frame::data), flow))
        });
        StreamBody::new(frames).boxed_unsync()
    }

    fn struck(&self, fault: Fault) {
        self.network.stage.struck(fault, format_args!("{} after {} lines", self.source, self.lines));
    }

    async fn next(&mut self) -> Option<io::Result<Bytes>> {
        loop {
            if !self.alive.load(Ordering::Relaxed) {
                return std::future::pending().await;
            }
            if self.late.is_some() && self.steps.iter().all(|step| matches!(step, Step::Send(_))) {
                self.refill().await;
                continue;
            }
            self.late = None;
            let Some(step) = self.steps.pop_front() else {
                self.refill().await;
                let stage = &self.network.stage;
                if self.watch && stage.throw(|dice| dice.percent(10)) {
                    self.late = Some(Instant::now() + stage.throw(|dice| dice.millis(10, 25_000)));
                }
                continue;
            };
            match step {
                Step::Send(bytes) if bytes.is_empty() => {}
                Step::SendGone(line) => {
                    // Only what is read counts: a reader may have stopped at a line before it.
                    self.network.stage.note(format_args!("{}: 410 in the stream", self.source));
                    self.network.stage.expired(&self.source);
                    return Some(Ok(line.into()));
                }
                Step::Send(mut bytes) if self.pieces && bytes.len() > 1 => {
                    let stage = &self.network.stage;
                    let most = bytes.len().min(400);
                    let rest = bytes.split_off(stage.throw(|dice| dice.between(1, most)).min(bytes.len() - 1));
                    self.steps.push_front(Step::Send(rest));
                    self.steps.push_front(Step::Wait(stage.throw(|dice| dice.millis(0, 300))));
                    return Some(Ok(bytes.into()));
                }
                Step::Send(mut bytes) if bytes.len() > FRAME => {
                    self.steps.push_front(Step::Send(bytes.split_off(FRAME)));
                    return Some(Ok(bytes.into()));
                }
                Step::Send(mut bytes) => {
                    // Lines that came one by one may arrive together.
                    while let Some(Step::Send(more)) = self.steps.front()
                        && self.network.stage.throw(|dice| dice.percent(70))
                    {
                        bytes.extend_from_slice(more);
                        self.steps.pop_front();
                    }
                    return Some(Ok(bytes.into()));
                }
                Step::Wait(time) => {
                    tokio::select! {
                        biased;
                        () = self.power.notified() => self.steps.push_front(Step::Break),
                        () = sleep(time) => {}
                    }
                }
                Step::Silence => {
                    // Only an end that the other side learns of ends it, and it does not.
                    return std::future::pending().await;
                }
                Step::Break => {
                    self.steps.push_front(Step::End);
                    return Some(Err(reset()));
                }
                Step::End => {
                    self.steps.push_front(Step::End);
                    return None;
                }
            }
        }
    }

    /// Takes what the server sends next, and lets the faults at it.
    async fn refill(&mut self) {
        if let Some((Fault::TimeOut, after)) = self.fault
            && self.lines >= after
        {
            self.fault = None;
            self.struck(Fault::TimeOut);
            // One that ends at once looks like a refusal.
            self.steps.extend([Step::Wait(Duration::from_millis(1500)), Step::End]);
            return;
        }
        let late = self.late.unwrap_or_else(Instant::now);
        let frame = tokio::select! {
            biased;
            () = self.power.notified() => {
                self.steps.push_back(Step::Break);
                return;
            }
            frame = self.from.frame() => frame,
            () = sleep_until(late), if self.late.is_some() => {
                self.late = None;
                return;
            }
        };
        let bytes = match frame {
            None => {
                self.steps.push_back(Step::End);
                return;
            }
            Some(Err(_)) => {
                self.steps.push_back(Step::Break);
                return;
            }
            Some(Ok(frame)) => frame.into_data().unwrap_or_default(),
        };
        let mut bytes = bytes.to_vec();
        if self.page && self.habit == Some(Fault::PagesDiffer) {
            self.struck(Fault::PagesDiffer);
            bytes = replaced(&bytes, br#""metadata":{"resourceVersion":""#, br#""metadata":{"resourceVersion":"1"#, 1);
        }
        if self.habit == Some(Fault::Opaque) {
            bytes = replaced(&bytes, br#""resourceVersion":""#, br#""resourceVersion":"~"#, usize::MAX);
        }
        if !self.watch {
            self.part_of_list(&bytes);
            return;
        }
        self.rest.extend_from_slice(&bytes);
        while let Some(end) = memchr::memchr(b'\n', &self.rest) {
            let rest = self.rest.split_off(end + 1);
            let line = std::mem::replace(&mut self.rest, rest);
            if !self.line(line) {
                return;
            }
        }
    }

    fn part_of_list(&mut self, bytes: &[u8]) {
        let stage = Arc::clone(&self.network.stage);
        let Some((fault, _)) = self.fault.take() else {
            self.steps.push_back(Step::Send(bytes.to_vec()));
            return;
        };
        let at = stage.throw(|dice| dice.roll(bytes.len().max(1)));
        let (head, tail) = (bytes[..at].to_vec(), bytes[at..].to_vec());
        match fault {
            Fault::CutList => {
                let how = if stage.throw(|dice| dice.percent(50)) { Step::Break } else { Step::End };
                self.steps.extend([Step::Send(head), how]);
            }
            Fault::HalfOpen => self.steps.extend([Step::Send(head), Step::Silence]),
            Fault::Garbage => {
                stage.may_lose(&self.source, "undecodable");
                self.steps.extend([Step::Send(head), Step::Send(b"\xff\x00{".to_vec()), Step::Send(tail)]);
            }
            _ => {
                self.steps.push_back(Step::Send(bytes.to_vec()));
                return;
            }
        }
        self.struck(fault);
    }

    /// One line of a watch. Says whether further ones may follow at once.
    fn line(&mut self, line: Vec<u8>) -> bool {
        let stage = Arc::clone(&self.network.stage);
        let event = !line.starts_with(br#"{"type":"BOOKMARK""#);
        if line.starts_with(br#"{"type":"ERROR""#) {
            if memchr::memmem::find(&line, br#""code":410"#).is_some() {
                self.steps.push_back(Step::SendGone(line));
            } else {
                self.steps.push_back(Step::Send(line));
            }
            return true;
        }
        if !event && self.no_bookmarks && !stage.is_calm() {
            return true;
        }
        match self.habit {
            Some(habit @ (Fault::EndsEarly | Fault::Opaque)) if event && self.is_news(&line) => {
                return self.last(habit, line);
            }
            Some(Fault::FreshBookmark) if !event => return self.last(Fault::FreshBookmark, line),
            _ => {}
        }
        if event && stage.is_poisoned(&line) {
            self.struck(Fault::Undecodable);
            self.garble(line);
            return true;
        }
        let due = self.fault.filter(|(_, after)| self.lines >= *after);
        self.lines += 1;
        let Some((fault, _)) = due else {
            self.steps.push_back(Step::Send(line));
            return true;
        };
        let half = line[..line.len() / 2].to_vec();
        let steps = match fault {
            Fault::CutInLine => vec![Step::Send(half), Step::Break],
            Fault::CutAfterLine => vec![Step::Send(line), Step::Break],
            Fault::HalfOpen if stage.throw(|dice| dice.percent(50)) => vec![Step::Send(half), Step::Silence],
            Fault::HalfOpen => vec![Step::Silence],
            Fault::Garbage => {
                stage.may_lose(&self.source, "undecodable");
                let at = stage.throw(|dice| dice.roll(line.len()));
                let mut bytes = line[..at].to_vec();
                bytes.extend_from_slice(stage.throw(|dice| *dice.pick(&[&b"\xff\xfe"[..], b"\x00", b"\n{\n"])));
                bytes.extend_from_slice(&line[at..]);
                vec![Step::Send(bytes)]
            }
            Fault::GoneInStream => vec![Step::SendGone(Refusal::expired(1, 2).event_line().to_vec()), Step::End],
            // These need an event, and wait for one.
            Fault::Undecodable | Fault::Oversize | Fault::Repeated if !event => {
                self.steps.push_back(Step::Send(line));
                return true;
            }
            Fault::Undecodable => {
                self.fault = None;
                self.struck(fault);
                if stage.throw(|dice| dice.percent(50))
                    && let Some(version) = version_text(&line)
                {
                    stage.poison(version);
                }
                self.garble(line);
                return true;
            }
            Fault::Oversize => {
                stage.may_lose(&self.source, "oversize");
                let mut bytes = vec![b' '; self.network.line_limit + 1];
                bytes[0] = b'{';
                bytes.extend_from_slice(&line[1..]);
                vec![Step::Send(bytes)]
            }
            Fault::Repeated => vec![Step::Send(line.clone()), Step::Send(line)],
            _ => vec![Step::Send(line)],
        };
        self.fault = None;
        self.struck(fault);
        let goes_on = matches!(steps.last(), Some(Step::Send(_)));
        self.steps.extend(steps);
        goes_on
    }

    /// The server sends this, and ends the watch as one ends it that has had its time.
    fn last(&mut self, habit: Fault, line: Vec<u8>) -> bool {
        self.struck(habit);
        self.steps.extend([Step::Send(line), Step::End]);
        false
    }

    /// Whether the source is sent this for the first time.
    fn is_news(&self, line: &[u8]) -> bool {
        let text = member(line, br#""resourceVersion":""#);
        let version = text.and_then(|text| text.trim_start_matches('~').parse::<u64>().ok());
        let Some(version) = version.filter(|_| !self.network.stage.is_over()) else { return false };
        let mut seen = self.network.seen();
        let newest = seen.sent.entry(self.source.clone()).or_default();
        let news = version > *newest;
        *newest = version.max(*newest);
        news
    }

    fn garble(&mut self, mut line: Vec<u8>) {
        self.network.stage.may_lose(&self.source, "undecodable");
        line.truncate(line.len() / 2);
        line.push(b'\n');
        self.steps.push_back(Step::Send(line));
    }
}

/// A query as the server understands it that gave out versions without an order.
fn ordered(uri: &http::Uri) -> String {
    uri.to_string().replace("resourceVersion=%7E", "resourceVersion=").replace("resourceVersion=~", "resourceVersion=")
}

/// The bytes with something else in some places.
fn replaced(bytes: &[u8], from: &[u8], to: &[u8], most: usize) -> Vec<u8> {
    let (mut out, mut at) = (Vec::with_capacity(bytes.len() + 64), 0);
    for found in memchr::memmem::find_iter(bytes, from).take(most) {
        out.extend_from_slice(&bytes[at..found]);
        out.extend_from_slice(to);
        at = found + from.len();
    }
    out.extend_from_slice(&bytes[at..]);
    out
}

/// The text after this, up to the next quote.
fn member(line: &[u8], begins: &[u8]) -> Option<String> {
    let rest = &line[memchr::memmem::find(line, begins)? + begins.len()..];
    Some(String::from_utf8_lossy(&rest[..memchr::memchr(b'"', rest)?]).into_owned())
}

/// `"resourceVersion":"N"` as it stands in a line.
fn version_text(line: &[u8]) -> Option<String> {
    let at = memchr::memmem::find(line, br#""resourceVersion":""#)?;
    let text = std::str::from_utf8(&line[at..]).ok()?;
    let end = text.match_indices('"').nth(3)?.0;
    Some(text[..=end].to_owned())
}
