//! HTTP endpoints of the daemon: liveness, readiness, status, metrics.
//!
//! Meant for loopback or a unix socket: nobody is asked for a password, and nothing here shows the content of an object,
//! but for [`reading`], which is off unless it is asked for and has a gate of its own. Everything about a request is
//! bounded: its head, its time, how many there are. Where there are too many connections, a new one takes the place of
//! the oldest that has asked for nothing yet.

pub(crate) mod assistants;
mod counters;
mod evidence;
mod members;
mod metrics;
pub(crate) mod readers;
pub mod reading;
mod settings;
mod several;
mod witness;

pub use members::{Clusters, Member};
pub use settings::Settings;
pub use several::serve_several;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Extension, Path as UrlPath, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use jiff::Timestamp;
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

use crate::core::net::server::{self, BindError, Bound, Gate, Limits, Peer};
use crate::core::rights::{Authority, MOST_WAITING};
use crate::evidence::witness::Witness;
use crate::journal::{Backlog, JournalError, Reader, SourceState};
use crate::query::churn::Meter;
use crate::query::status::{HaView, Live, Status};
pub use counters::{Counters, SinkCounts, SourceCounts};
use readers::{Readers, refused};
use reading::{Logs, MOST_ANSWERS, Reading};

/// Sources of the endpoints' answers.
#[derive(Clone, Debug)]
pub struct Endpoints {
    /// The state directory.
    pub state: Arc<PathBuf>,
    /// Counters of the sources and sinks.
    pub counters: Arc<dyn Counters>,
    /// Bytes that were read and are not yet durable.
    pub backlog: Backlog,
    /// State of the daemon itself.
    pub live: watch::Receiver<Live>,
    /// Counters of writes by kind.
    pub churn: Meter,
    /// Set if the API server's own request counters are read.
    pub counts_requests: bool,
    /// The directory of evidence, if the configuration has one.
    pub evidence: Option<PathBuf>,
    /// The witness of other logs; none where no log is witnessed.
    pub witness: Option<Arc<Witness>>,
    /// Who says who a reader is.
    pub authority: Arc<dyn Authority>,
}

impl Endpoints {
    /// Returns the reason why the daemon is not ready.
    fn why_not_ready(&self) -> Option<String> {
        // Without the shared log a standby has no sources to wait for.
        let stands = self.live.borrow().ha.as_ref().and_then(HaView::why_not_following);
        let waits = !self.counters.is_ready();
        stands.or_else(|| waits.then(|| "not every source has finished its first list".to_owned()))
    }
}

/// Binds where the configuration says.
///
/// # Errors
/// What is in the way.
pub async fn bind(settings: &Settings) -> Result<Bound, BindError> {
    server::bind(settings.endpoint("[http]")).await
}

/// Serves until `stop`.
///
/// # Errors
/// Where the socket fails.
pub async fn serve(mut bound: Bound, endpoints: Endpoints, stop: CancellationToken) -> io::Result<()> {
    let router = routes(bound.gate.take(), endpoints, &stop);
    bound.answer(router, LIMITS, stop).await
}

/// The routes of one cluster.
pub(super) fn routes(gate: Option<Gate>, endpoints: Endpoints, stop: &CancellationToken) -> Router {
    let state = Arc::clone(&endpoints.state);
    let authority = Arc::clone(&endpoints.authority);
    let authorities = move || BTreeMap::from([(String::new(), Some(Arc::clone(&authority)))]);
    let readers = Readers::new(gate, Box::new(authorities));
    let reading = Arc::new(Reading::new(move || Logs { state: state.to_path_buf(), ..Logs::default() }, readers));
    let witness = endpoints.witness.clone().map(witness::routes).unwrap_or_default();
    Router::new()
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/metrics", get(scrape))
        .route("/status", get(show_status))
        .route("/evidence/{*path}", get(show_evidence))
        .with_state(Served { endpoints, reads: Arc::new(Semaphore::new(MOST_READS)) })
        .layer(middleware::from_fn_with_state(Arc::clone(&reading), guard))
        .merge(questions(reading, stop))
        .merge(witness)
}

/// Routes for readers of the log, commands and assistants.
fn questions(reading: Arc<Reading>, stop: &CancellationToken) -> Router {
    let assistants = Arc::new(assistants::Endpoint::new(Arc::clone(&reading), stop.clone()));
    let read = post(reading::read).layer(DefaultBodyLimit::max(reading::MOST_ASKED)).with_state(reading);
    Router::new()
        .route("/api/v1/{question}", read)
        .route(assistants::PATH, any(assistants::serve).with_state(assistants))
}

/// Names of the clusters of which a request may see all; all of them where no cluster is asked.
#[derive(Clone, Debug)]
struct Whole(Option<Vec<String>>);

/// Lets in who may read what is about the whole log, where the cluster decides. A probe hears whether all is well, and not what is wrong.
async fn guard(
    State(reading): State<Arc<Reading>>,
    Extension(peer): Extension<Peer>,
    mut request: Request,
    next: Next,
) -> Response {
    let path = request.uri().path();
    // Which clusters there are is not for everybody.
    let names_one = request.uri().query().is_some_and(|query| !query.is_empty());
    if !reading.readers.are_of_cluster() {
        request.extensions_mut().insert(Whole(None));
        return next.run(request).await;
    }
    let is_probe = matches!(path, "/livez" | "/readyz");
    if is_probe && !names_one {
        request.extensions_mut().insert(Whole(None));
        let answer = next.run(request).await;
        let status = answer.status();
        if status.is_success() {
            return answer;
        }
        return (status, "it is not; /status says why to who may get that\n").into_response();
    }
    let is_its = |known: &&&str| {
        let rest = path.strip_prefix(**known);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let Some(path) = (if is_probe { Some(&STATUS) } else { WHOLE.iter().find(is_its) }) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    match reading.readers.may_get(&peer, request.headers(), path).await {
        Ok(names) => {
            request.extensions_mut().insert(Whole(names));
            next.run(request).await
        }
        Err(refusal) => refused(&refusal),
    }
}

/// Paths that are about the whole log, as RBAC grants them. The right to the status is the one to a probe of one cluster.
const WHOLE: [&str; 3] = ["/metrics", STATUS, "/evidence"];
const STATUS: &str = "/status";

/// State of the handlers.
#[derive(Clone)]
struct Served {
    endpoints: Endpoints,
    /// The journal is read by so many at a time, whatever becomes of their connections.
    reads: Arc<Semaphore>,
}

const LIMITS: Limits = Limits {
    head: Duration::from_secs(5),
    connection: Duration::from_secs(30),
    // A pager holds up an answer for as long as somebody reads.
    stall: Duration::MAX,
    // Who waits for reviews has no place among the answers.
    streams: MOST_ANSWERS + MOST_WAITING,
};
/// Requests that read the journal at a time; others wait.
const MOST_READS: usize = 4;
/// Liveness as the watchdog sees it.
async fn livez(State(served): State<Served>) -> Response {
    let stalled = served.endpoints.live.borrow().stalled.join(", ");
    if stalled.is_empty() {
        return "ok\n".into_response();
    }
    (StatusCode::SERVICE_UNAVAILABLE, format!("no progress in: {stalled}\n")).into_response()
}

async fn readyz(State(served): State<Served>) -> Response {
    let Some(why) = served.endpoints.why_not_ready() else { return "ok\n".into_response() };
    let waiting = read(&served, waiting).await.unwrap_or_default();
    (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {why}\n{}", waiting.concat())).into_response()
}

/// The sources that are not ready, a line each.
fn waiting(state: &Path) -> Result<Vec<String>, JournalError> {
    let sources = Reader::open(state)?.sources()?;
    let waiting = sources.iter().filter(|source| {
        let waits = matches!(source.state, SourceState::Waiting | SourceState::Listing(_) | SourceState::Degraded(_));
        source.active && waits
    });
    Ok(waiting
        .map(|source| format!("{} is {} {}\n", source.name(), source.state.word(), source.state.detail()))
        .collect())
}

async fn scrape(State(served): State<Served>) -> Response {
    let process = metrics::Process::of(&served.endpoints);
    let text = read(&served, move |state| {
        let mut reader = Reader::open(state)?;
        let status = Status::gather(&mut reader, state, Timestamp::now())?;
        metrics::render(&reader, &status, &process)
    });
    answer(text.await.map(|text| ([(header::CONTENT_TYPE, EXPOSITION)], text)))
}

/// Content type of the metrics.
const EXPOSITION: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

async fn show_status(State(served): State<Served>) -> Response {
    let status = read(&served, |state| Status::gather(&mut Reader::open(state)?, state, Timestamp::now()));
    answer(status.await.map(axum::Json))
}

async fn show_evidence(State(served): State<Served>, UrlPath(path): UrlPath<String>) -> Response {
    evidence::file(served.endpoints.evidence, &path).await
}

/// Reads the journal on a thread that may block.
async fn read<T: Send + 'static>(
    served: &Served,
    work: impl FnOnce(&Path) -> Result<T, JournalError> + Send + 'static,
) -> Result<T, String> {
    let state = Arc::clone(&served.endpoints.state);
    let turn = Arc::clone(&served.reads).acquire_owned().await.map_err(|error| error.to_string())?;
    // The turn lasts as long as the reading does, also where nobody waits for it any more.
    let reading = move || {
        let _turn = turn;
        work(&state)
    };
    match tokio::task::spawn_blocking(reading).await {
        Ok(result) => result.map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    }
}

fn answer(result: Result<impl IntoResponse, String>) -> Response {
    match result {
        Ok(response) => response.into_response(),
        Err(text) => (StatusCode::INTERNAL_SERVER_ERROR, text + "\n").into_response(),
    }
}
