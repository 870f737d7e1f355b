//! The timeline page: what happened when, in a browser, and in one file.
//!
//! It is read-only and reads nothing but the journal, as any reader does, on few threads and for a bounded time: whatever is
//! asked for, the daemon beside it does not feel it. What it shows of objects is redacted because the journal is. Who may see
//! it is decided in `access`; every answer says to browsers that nothing of it is for other pages (`answer`).
//!
//! # Decision: the page is not an endpoint of `[http]`
//!
//! Context: Probes and scrapers need no password and see no object; the page shows objects.
//! Decision: It has an address, access control and limits of its own. Host names and origins are checked, and its cookie is
//! sent by no other page. The page without data is public, so that links can be followed.
//! Cost: A second listener.

mod access;
mod answer;
mod follow;
mod page;
mod query;
mod settings;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::Serialize;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore, oneshot, watch};
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub(crate) use page::OneFile;
pub use settings::Settings;

use crate::core::net::server::{self, BindError, Bound, Gate, Limits, Peer, Stage};
use crate::core::rights::{Authority, Sight};
use crate::core::runtime;
use crate::journal::{Journal, JournalError, Reader};
use crate::query::render::clock::Clock;
use crate::query::timeline::compare::Compare;
use crate::query::timeline::entries::Entries;
use crate::query::timeline::entry::OneEntry;
use crate::query::timeline::lanes::Lanes;
use crate::query::timeline::moments::{ChangesBetween, StateAt};
use crate::query::timeline::object::ObjectAt;
use crate::query::timeline::outlines::{HEAD_POLL_INTERVAL, Index};
use crate::query::timeline::overview::Overview;
use crate::query::timeline::window::Histogram;
use crate::query::timeline::writers::Writers;
use crate::query::timeline::{BUCKETS_MAX, LANES_MAX, MARKS_MAX, OBJECTS_MAX};
use crate::query::{Log, Question};
use crate::web::http::readers::{Authorities, Readers};
use crate::web::http::{Clusters, Member};
use crate::web::lasting;
use access::{Access, Sessions};
use answer::{Problem, good, sealed};
use query::Query;

/// Time limits of clients, and number of followers.
const LIMITS: Limits = Limits {
    head: Duration::from_secs(5),
    connection: Duration::from_secs(60),
    stall: Duration::from_secs(30),
    streams: MOST_STREAMS,
};
/// Number of pages that follow the log at a time.
const MOST_STREAMS: usize = 64;
/// Number of concurrent reads, and of those in one journal. Others wait for a limited time.
const MOST_READS: usize = 4;
const OF_ONE: usize = 2;
const TURN_TIMEOUT: Duration = Duration::from_secs(10);
/// A read that takes longer is one whose disk hangs: it keeps its turn at its journal, and takes none from the others.
const HUNG_READ_LIMIT: Duration = Duration::from_secs(6);
/// Questions that have to hold whole objects.
const OF_OBJECTS: [&str; 5] = ["entry", "diff", "object", "state", "changes"];
/// Limit of entries in a request.
const MOST_ENTRIES: usize = 1000;

/// The present, in UTC.
fn clock() -> Clock {
    Clock { now: Timestamp::now(), zone: TimeZone::UTC }
}

/// One journal that is shown.
pub(crate) struct JournalView {
    state: PathBuf,
    index: Index,
    /// The newest seq, as long as somebody follows.
    head: watch::Sender<u64>,
    reads: Arc<Semaphore>,
    /// One question at a time that has to hold whole objects, whose values may take a hundred megabytes.
    objects: Arc<Semaphore>,
    /// One looks at a time how long the log is.
    look: Arc<Semaphore>,
}

impl JournalView {
    fn new(state: PathBuf) -> Self {
        Self {
            state,
            index: Index::default(),
            head: watch::Sender::new(0),
            reads: Arc::new(Semaphore::new(OF_ONE)),
            objects: Arc::new(Semaphore::new(1)),
            look: Arc::new(Semaphore::new(1)),
        }
    }

    /// Looks how long the log is. The turn lasts as long as that does.
    async fn look(self: Arc<Self>, _turn: OwnedSemaphorePermit) {
        let state = self.state.clone();
        let head = runtime::blocking(move || Reader::open(&state).and_then(|reader| reader.head())).await;
        if let Ok(head) = head {
            self.head.send_if_modified(|known| std::mem::replace(known, head.0) != head.0);
        }
    }
}

/// The journals that are shown.
enum Views {
    One(Arc<JournalView>),
    Several(Clusters, Mutex<BTreeMap<String, Arc<JournalView>>>),
}

/// State of the handlers.
pub(crate) struct Site {
    views: Views,
    access: Access,
    sessions: Sessions,
    hosts: Vec<String>,
    tls: bool,
    reads: Arc<Semaphore>,
    hangs: Duration,
    turns: TaskTracker,
    streams: Arc<Semaphore>,
}

/// Binds where the configuration says.
///
/// # Errors
/// What is in the way.
pub async fn bind(settings: &Settings) -> Result<Bound, BindError> {
    server::bind(settings.endpoint()).await
}

/// Serves the page of one journal until `stop`.
///
/// # Errors
/// Where the socket fails.
pub async fn serve(
    bound: Bound,
    settings: &Settings,
    (state, authority): (&Path, Arc<dyn Authority>),
    stop: CancellationToken,
) -> io::Result<()> {
    let mut bound = bound;
    let site = site(bound.gate.take(), settings, (state, authority));
    run(bound, site, stop).await
}

/// The page of one journal.
pub(super) fn site(gate: Option<Gate>, settings: &Settings, (state, authority): (&Path, Arc<dyn Authority>)) -> Site {
    let views = Views::One(Arc::new(JournalView::new(state.to_owned())));
    let authorities = move || BTreeMap::from([(String::new(), Some(Arc::clone(&authority)))]);
    Site::new(views, access_of(settings, gate, Box::new(authorities)), settings.hosts.clone())
}

/// Serves the pages of several clusters until `stop`: each below `/clusters/NAME/`.
///
/// # Errors
/// Where the socket fails.
pub async fn serve_several(
    bound: Bound,
    settings: &Settings,
    clusters: Clusters,
    stop: CancellationToken,
) -> io::Result<()> {
    let mut bound = bound;
    let access = access_of(settings, bound.gate.take(), clusters.authorities());
    run(bound, Site::new(Views::Several(clusters, Mutex::default()), access, settings.hosts.clone()), stop).await
}

fn access_of(settings: &Settings, gate: Option<Gate>, authorities: Authorities) -> Access {
    match gate.filter(|_| settings.asks()) {
        Some(gate) if gate.authorize().is_some() => Access::Cluster(Readers::new(Some(gate), authorities)),
        Some(gate) => Access::Some(gate),
        None => Access::Everybody,
    }
}

/// A page that is served by a command, and the address that opens it once.
pub struct Once {
    /// Path of the socket.
    pub path: String,
    site: Site,
    index: Index,
}

impl Once {
    /// The page of the journal in this directory.
    #[must_use]
    pub fn new(state: &Path, hosts: Vec<String>) -> Self {
        let token = access::secret();
        let path = format!("/?token={token}");
        let view = JournalView::new(state.to_owned());
        let index = view.index.clone();
        let access = Access::Once(Mutex::new(Some(token)));
        Self { path, site: Site::new(Views::One(Arc::new(view)), access, hosts), index }
    }

    /// Serves it until `stop`, and makes the outlines that the journal lacks.
    ///
    /// # Errors
    /// Where the socket fails.
    pub async fn serve(self, bound: Bound, stop: CancellationToken) -> io::Result<()> {
        let Self { site, index, .. } = self;
        let (state, ended) = (site.one().map(|view| view.state.clone()), stop.clone());
        let warming = runtime::blocking(move || {
            let Some(state) = state else { return };
            let warmed = Reader::open(&state).and_then(|mut reader| index.warm(&mut reader, &ended));
            if let Err(error) = warmed {
                tracing::debug!(%error, "outlines of the log were not made");
            }
        });
        let serving = run(bound, site, stop);
        tokio::pin!(serving);
        tokio::select! {
            served = &mut serving => served,
            () = warming => serving.await,
        }
    }
}

/// Makes the outlines that a journal lacks, as long as its daemon runs.
///
/// # Errors
/// Where the journal has ended.
pub async fn keep_outlines(journal: Journal, stop: CancellationToken) -> Result<(), JournalError> {
    Index::default().keep(journal, stop).await
}

/// Serves, and notices what is new for those who follow.
async fn run(bound: Bound, mut site: Site, stop: CancellationToken) -> io::Result<()> {
    site.tls = bound.has_tls();
    let site = Arc::new(site);
    tokio::select! {
        served = bound.answer(routes(&site), LIMITS, stop) => served,
        never = beat(site) => never,
    }
}

/// The routes of a page.
pub(super) fn routes(site: &Arc<Site>) -> Router {
    Router::new().fallback(handle).with_state(Arc::clone(site))
}

/// Looks again and again how long the logs are that somebody follows, at each by itself.
async fn beat<T>(site: Arc<Site>) -> T {
    let mut beats = tokio::time::interval(HEAD_POLL_INTERVAL);
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut looks = FuturesUnordered::new();
    loop {
        tokio::select! {
            _ = beats.tick() => {
                let followed = site.known().into_iter().filter(|view| view.head.receiver_count() > 0);
                looks.extend(followed.filter_map(|view| {
                    let turn = Arc::clone(&view.look).try_acquire_owned().ok()?;
                    Some(view.look(turn))
                }));
            }
            Some(()) = looks.next() => {}
        }
    }
}

impl Site {
    fn new(views: Views, access: Access, hosts: Vec<String>) -> Self {
        Self {
            views,
            access,
            sessions: Sessions::default(),
            hosts,
            tls: false,
            reads: Arc::new(Semaphore::new(MOST_READS)),
            hangs: HUNG_READ_LIMIT,
            turns: TaskTracker::new(),
            streams: Arc::new(Semaphore::new(MOST_STREAMS)),
        }
    }

    fn one(&self) -> Option<&Arc<JournalView>> {
        match &self.views {
            Views::One(view) => Some(view),
            Views::Several(..) => None,
        }
    }

    /// The journals that were asked for so far.
    fn known(&self) -> Vec<Arc<JournalView>> {
        match &self.views {
            Views::One(view) => vec![Arc::clone(view)],
            Views::Several(_, known) => {
                known.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
            }
        }
    }

    /// The journal of this cluster; without a name the only one.
    fn view(&self, name: Option<&str>) -> Result<Arc<JournalView>, Problem> {
        let (clusters, known) = match &self.views {
            Views::One(_) if name.is_some() => {
                return Err(Problem::missing("this decklog has one cluster, and it is called by no name").of("cluster"));
            }
            Views::One(view) => return Ok(Arc::clone(view)),
            Views::Several(clusters, known) => (clusters, known),
        };
        let names = || clusters.named(None).unwrap_or_default().into_iter().map(|(name, _)| name).collect::<Vec<_>>();
        let Some(name) = name else {
            let text =
                format!("there are several clusters; say which one is meant with cluster=NAME: {}", names().join(", "));
            return Err(Problem::wrong("cluster", text));
        };
        let member = clusters.named(Some(name)).and_then(|mut found| found.pop());
        let Some((_, member)) = member else {
            let shown: String = name.chars().take(64).collect();
            return Err(Problem::missing(format!(
                "there is no cluster {shown:?} here; there is {}",
                names().join(", ")
            ))
            .of("cluster"));
        };
        let Some(state) = member.state else {
            return Err(Problem::busy(format!(
                "the configuration of cluster {name} is wrong; `decklog check` says how"
            )));
        };
        let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
        let view = known.entry(name.to_owned()).or_insert_with(|| Arc::new(JournalView::new(state.clone())));
        if view.state != state {
            *view = Arc::new(JournalView::new(state));
        }
        Ok(Arc::clone(view))
    }

    /// Reads a journal on a thread that may block, as often as it takes to know what may be seen. Who waits for reviews has no turn of the
    /// others.
    async fn read<T: Send + 'static>(
        &self,
        (view, sight): (&JournalView, &Sight),
        holds_objects: bool,
        work: impl Fn(&Log<'_>) -> Result<T, Problem> + Send + Sync + 'static,
    ) -> Result<T, Problem> {
        let work = Arc::new(work);
        loop {
            let answer = self.read_once((view, sight.clone()), holds_objects, Arc::clone(&work)).await;
            if !sight.is_unsettled() {
                sight.went_on();
                return answer;
            }
            let (is_void, of) = (sight.is_undecided(), sight.clone());
            runtime::blocking(move || of.settle()).await?;
            if !is_void {
                return answer;
            }
        }
    }

    async fn read_once<T: Send + 'static>(
        &self,
        (view, sight): (&JournalView, Sight),
        holds_objects: bool,
        work: Arc<impl Fn(&Log<'_>) -> Result<T, Problem> + Send + Sync + 'static>,
    ) -> Result<T, Problem> {
        let turns = async {
            let objects = match holds_objects {
                true => Some(Arc::clone(&view.objects).acquire_owned().await?),
                false => None,
            };
            let of_one = Arc::clone(&view.reads).acquire_owned().await?;
            Ok::<_, AcquireError>(((objects, of_one), Arc::clone(&self.reads).acquire_owned().await?))
        };
        let Ok(Ok((of_one, of_all))) = tokio::time::timeout(TURN_TIMEOUT, turns).await else {
            return Err(busy());
        };
        let (state, index) = (view.state.clone(), view.index.clone());
        let (reads, done) = oneshot::channel::<()>();
        let hangs = self.hangs;
        // The turns last as long as the reading does, also where nobody waits for it any more.
        self.turns.spawn(async move {
            drop(tokio::time::timeout(hangs, done).await);
            drop(of_all);
        });
        runtime::blocking(move || {
            let _turns = (of_one, reads);
            work(&Log::new(state, sight, clock(), &|_| {}, &|| false).with_outlines(index))
        })
        .await
    }
}

fn busy() -> Problem {
    Problem::busy("too much is asked for at once; try again in a moment")
}

/// Splits a path into the name of a cluster, if any, and the rest.
fn divided(path: &str) -> (Option<String>, &str) {
    let Some(rest) = path.strip_prefix("/clusters/") else { return (None, path) };
    let (name, rest) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    (Some(percent_encoding::percent_decode_str(name).decode_utf8_lossy().into_owned()), rest)
}

async fn handle(State(site): State<Arc<Site>>, request: Request) -> Response {
    // What a client sends beside its question is nobody's business.
    let (parts, _) = request.into_parts();
    let answered = answer(&site, &parts).await;
    sealed(answered.unwrap_or_else(IntoResponse::into_response), &parts.method)
}

async fn answer(site: &Arc<Site>, request: &Parts) -> Result<Response, Problem> {
    let (uri, headers) = (&request.uri, &request.headers);
    let (name, path) = divided(uri.path());
    let asset = path.strip_prefix('/').and_then(page::file);
    access::check(&request.method, if path == "/" { "/" } else { uri.path() }, headers, &site.hosts)?;
    let Some(peer) = request.extensions.get::<Peer>() else {
        return Err(Problem::bug("the peer of the request is unknown; this is a bug"));
    };
    let text = uri.query().unwrap_or_default();
    if path == "/" && text.contains("token=") {
        return enter(site, peer, headers, uri).await;
    }
    if name.is_some() && path.is_empty() {
        return Ok(to(&format!("{}/", uri.path())));
    }
    if let Some((text, kind)) = asset {
        // The page alone shows nothing of a cluster, so that a link to it can be followed from anywhere.
        return Ok(([(header::CONTENT_TYPE, kind)], text).into_response());
    }
    let Some(what) = path.strip_prefix("/api/v1/") else {
        return Err(Problem::missing("there is nothing here; the page is at /"));
    };
    let visitor = site.access.admit(&site.sessions, peer, headers).await?;
    let query = Query::read(uri)?;
    let cluster = name.as_deref().or_else(|| query.one("cluster"));
    if what == "clusters" {
        let known = site.access.clusters(&visitor).await?;
        return Ok(good(&listed(site, cluster, known.as_deref())));
    }
    // What clusters there are is for those whom one of them knows.
    let sight = site.access.sight(&visitor, cluster).await?;
    let view = site.view(cluster)?;
    if what == "follow" {
        let Ok(slot) = Arc::clone(&site.streams).try_acquire_owned() else {
            let text = format!("{MOST_STREAMS} pages follow the log already; close one of them, or try again later");
            return Err(Problem::busy(text));
        };
        let last = headers.get("last-event-id").and_then(|last| last.to_str().ok());
        let response = follow::follow(site, (&view, sight), query, last, slot).await?;
        if let Some(stage) = request.extensions.get::<Stage>().filter(|_| request.method == Method::GET) {
            stage.streams();
        }
        return Ok(response);
    }
    let what = what.to_owned();
    let holds_objects = OF_OBJECTS.contains(&&*what);
    let answer = site.read((&view, &sight), holds_objects, move |log| api(log, &what, &query)).await?;
    Ok(lasting::breaking_off(answer, &sight))
}

/// Takes the token out of the address, and leads to the page.
async fn enter(site: &Site, peer: &Peer, headers: &HeaderMap, uri: &Uri) -> Result<Response, Problem> {
    let query = Query::read(uri)?;
    let token = query.one("token").unwrap_or_default();
    let cookie = site.access.enter(&site.sessions, peer, headers, token, site.tls).await?;
    let mut response = to(uri.path());
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    Ok(response)
}

fn to(path: &str) -> Response {
    // Never to another host.
    let path = format!("/{}", path.trim_start_matches('/'));
    match HeaderValue::from_str(&path) {
        Ok(path) => (StatusCode::SEE_OTHER, [(header::LOCATION, path)]).into_response(),
        Err(_) => Problem::missing("there is nothing here; the page is at /").into_response(),
    }
}

/// The clusters that have a page here.
#[derive(Serialize)]
struct Listed {
    clusters: Vec<Named>,
    /// Name of the selected cluster.
    this: Option<String>,
}

#[derive(Serialize)]
struct Named {
    name: String,
    running: bool,
    trouble: Option<String>,
}

fn listed(site: &Site, this: Option<&str>, known: Option<&[String]>) -> Listed {
    let members = match &site.views {
        Views::One(_) => Vec::new(),
        Views::Several(clusters, _) => clusters.named(None).unwrap_or_default(),
    };
    let named = |(name, member): (String, Member)| Named {
        name,
        running: member.endpoints.borrow().is_some(),
        // What is wrong may name what is hidden.
        trouble: member.refused.or(member.failed).map(|trouble| match known {
            Some(_) => "something is wrong with it; `decklog status` says what to who may see all of it".to_owned(),
            None => trouble.why,
        }),
    };
    let members = members.into_iter().filter(|(name, _)| known.is_none_or(|known| known.contains(name)));
    Listed { clusters: members.map(named).collect(), this: this.map(str::to_owned) }
}

/// Answers a request of the API.
fn api(log: &Log<'_>, what: &str, query: &Query) -> Result<Response, Problem> {
    let (clock, window) = (&log.clock, || query.window(&log.clock));
    let seq = |key| {
        let seq = query.seq(key)?;
        seq.ok_or_else(|| Problem::wrong(key, format!("{key}: say which entry, by its seq")))
    };
    let from = || {
        let text = "from: say from which moment on, such as 1h, a time, or a seq";
        query.place("from", clock)?.ok_or_else(|| Problem::wrong("from", text))
    };
    match what {
        "overview" => ask(log, Overview {}),
        "histogram" => ask(log, Histogram { window: window()?, buckets: query.number("buckets", 200, BUCKETS_MAX)? }),
        "lanes" => {
            let (lanes, marks) = (query.number("lanes", 500, LANES_MAX)?, query.number("marks", 10_000, MARKS_MAX)?);
            ask(log, Lanes { window: window()?, order: query.order()?, lanes, marks })
        }
        "entries" => {
            let limit = query.number("limit", 200, MOST_ENTRIES)?;
            let (before, after) = (query.seq("before")?, query.seq("after")?);
            ask(log, Entries { window: window()?, before, after, limit })
        }
        "entry" => ask(log, OneEntry { seq: seq("seq")?, neighbours: true }),
        "diff" => ask(log, Compare { from: seq("from")?, to: seq("to")? }),
        "object" => ask(log, object(query, clock)?),
        "state" => {
            let (at, limit) = (query.place("at", clock)?, query.number("limit", 1000, OBJECTS_MAX)?);
            ask(log, StateAt { window: window()?, at, limit })
        }
        "changes" => {
            let limit = query.number("limit", 1000, OBJECTS_MAX)?;
            ask(log, ChangesBetween { window: window()?, from: from()?, to: query.place("to", clock)?, limit })
        }
        "churn" => ask(log, Writers { window: window()? }),
        _ => Err(Problem::missing("there is no such question; docs/timeline.md has all of them")),
    }
}

/// The object that a query names.
fn object(query: &Query, clock: &Clock) -> Result<ObjectAt, Problem> {
    let (Some(resource), Some(name)) = (query.one("resource"), query.one("name")) else {
        return Err(Problem::wrong("name", "say which object: resource=deployments.apps&namespace=shop&name=web"));
    };
    let namespace = query.one("namespace").unwrap_or_default().to_owned();
    let (resource, name, at) = (resource.to_owned(), name.to_owned(), query.place("at", clock)?);
    let (since, until) = (query.moment("since", clock)?, query.moment("until", clock)?);
    Ok(ObjectAt { resource, namespace, name, at, since, until })
}

/// Asks a question that has one item, and answers with it.
fn ask<Q: Question>(log: &Log<'_>, question: Q) -> Result<Response, Problem> {
    asked(log, question).map(|item| good(&item))
}

/// Asks a question that has one item.
fn asked<Q: Question>(log: &Log<'_>, question: Q) -> Result<Q::Item, Problem> {
    let mut found = None;
    question.answer(log, &mut |item| {
        found = Some(item);
        Ok(())
    })?;
    found.ok_or_else(|| Problem::bug("a question has no answer; this is a bug"))
}
