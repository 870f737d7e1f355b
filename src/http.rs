//! What the daemon answers over HTTP: is it alive, is it ready, how is it doing.
//!
//! Meant for loopback or a unix socket: there is no authentication, and nothing here shows the content of an object.
//! Only GET and HEAD are answered, and everything about a request is bounded: its head, its time, how many there are.

mod metrics;

use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use jiff::Timestamp;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::either::Either;
use tokio_util::sync::CancellationToken;

use crate::churn::Meter;
use crate::config::Listen;
use crate::delivery::SinkCounters;
use crate::journal::{Backlog, JournalError, Reader};
use crate::status::{Live, Status};
use crate::watch::FleetHandle;

/// What the endpoints read.
#[derive(Clone, Debug)]
pub struct Endpoints {
    /// The state directory.
    pub state: Arc<PathBuf>,
    /// What reads the cluster.
    pub fleet: FleetHandle,
    /// What waits for the disk.
    pub backlog: Backlog,
    /// What the daemon knows of itself.
    pub live: watch::Receiver<Live>,
    /// What is counted of the sinks.
    pub sinks: Arc<Mutex<SinkCounters>>,
    /// What kinds of writes there were.
    pub churn: Meter,
    /// Whether the API server's own request counters are read.
    pub counts_requests: bool,
}

/// A socket that is bound, before anything is served on it.
#[derive(Debug)]
pub enum Bound {
    /// TCP.
    Tcp(TcpListener),
    /// A unix socket.
    Unix(UnixListener),
}

/// Why nothing can be served: one sentence that says what is in the way and what to do.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// What the configuration asks for cannot be had.
    #[error("{0}")]
    Refused(String),
    /// The machine may get the address later, by DHCP or another service that brings it up: trying again may help.
    #[error(
        "cannot listen on {0}: this machine does not have that address at the moment; bring it up, or set another in [http] listen"
    )]
    Absent(SocketAddr),
}

/// Binds where the configuration says.
///
/// # Errors
/// What is in the way.
pub async fn bind(listen: &Listen) -> Result<Bound, BindError> {
    match listen {
        Listen::Tcp(address) => TcpListener::bind(address).await.map(Bound::Tcp).map_err(|error| {
            if error.kind() == io::ErrorKind::AddrNotAvailable {
                return BindError::Absent(*address);
            }
            let why = if error.kind() == io::ErrorKind::AddrInUse {
                "another process listens there".to_owned()
            } else {
                error.to_string()
            };
            BindError::Refused(format!(
                "cannot listen on {address}: {why}; set another address in [http] listen, or stop that process"
            ))
        }),
        Listen::Unix(path) => {
            let failed = |error: io::Error| {
                BindError::Refused(format!(
                    "cannot listen on the unix socket {}: {error}; check [http] listen",
                    path.display()
                ))
            };
            // A socket that refuses is left over from a crash. Anything else is somebody's, and stays.
            if std::fs::symlink_metadata(path).is_ok() {
                match UnixStream::connect(path).await {
                    Err(error) if error.kind() == io::ErrorKind::ConnectionRefused && is_socket(path) => {
                        std::fs::remove_file(path).map_err(failed)?;
                    }
                    answer => {
                        let what =
                            if answer.is_ok() { "another process listens there" } else { "something else is there" };
                        return Err(BindError::Refused(format!(
                            "cannot listen on the unix socket {}: {what}; set another path in [http] listen",
                            path.display()
                        )));
                    }
                }
            }
            UnixListener::bind(path).map(Bound::Unix).map_err(failed)
        }
    }
}

fn is_socket(path: &std::path::Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket())
}

/// Serves until `stop`.
///
/// # Errors
/// Where the socket fails.
pub async fn serve(bound: Bound, endpoints: Endpoints, stop: CancellationToken) -> io::Result<()> {
    let router = Router::new()
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/metrics", get(scrape))
        .route("/status", get(show_status))
        .with_state(endpoints);
    let mut connections = JoinSet::new();
    loop {
        let stream = tokio::select! {
            () = stop.cancelled() => return Ok(()),
            Some(_ended) = connections.join_next() => continue,
            stream = bound.accept(), if connections.len() < MOST_CONNECTIONS => stream,
        };
        let stream = match stream {
            Ok(stream) => stream,
            // One that its client gave up, or no descriptor left: neither ends the daemon.
            Err(error) => {
                tracing::debug!(%error, "a connection to the HTTP endpoints was not taken");
                tokio::time::sleep(AFTER_FAILURE).await;
                continue;
            }
        };
        let service = TowerToHyperService::new(router.clone());
        let connection = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_LIMIT)
            .max_buf_size(HEAD_BYTES)
            .keep_alive(false)
            .serve_connection(TokioIo::new(stream), service);
        // What goes wrong with a connection is its client's business.
        connections.spawn(async move { drop(tokio::time::timeout(CONNECTION_LIMIT, connection).await) });
    }
}

/// Connections beyond this wait until one ends.
const MOST_CONNECTIONS: usize = 32;
/// The head of a request has at most so many bytes …
const HEAD_BYTES: usize = 16 << 10;
/// … and has to come within this time.
const HEAD_LIMIT: Duration = Duration::from_secs(5);
/// A connection, with its request and its answer, ends after this long. Metrics of a big journal take a second.
const CONNECTION_LIMIT: Duration = Duration::from_secs(30);
/// How long nothing is accepted after that has failed.
const AFTER_FAILURE: Duration = Duration::from_millis(200);

impl Bound {
    async fn accept(&self) -> io::Result<Either<TcpStream, UnixStream>> {
        match self {
            Self::Tcp(listener) => listener.accept().await.map(|(stream, _)| Either::Left(stream)),
            Self::Unix(listener) => listener.accept().await.map(|(stream, _)| Either::Right(stream)),
        }
    }
}

/// As the watchdog sees it.
async fn livez(State(endpoints): State<Endpoints>) -> Response {
    let stalled = endpoints.live.borrow().stalled.join(", ");
    if stalled.is_empty() {
        return "ok\n".into_response();
    }
    (StatusCode::SERVICE_UNAVAILABLE, format!("no progress in: {stalled}\n")).into_response()
}

async fn readyz(State(endpoints): State<Endpoints>) -> Response {
    if *endpoints.fleet.ready().borrow() {
        return "ok\n".into_response();
    }
    let waiting = read(&endpoints, |state| {
        let sources = Reader::open(state)?.sources()?;
        let waiting = sources
            .iter()
            .filter(|source| source.active && ["waiting", "listing", "degraded"].contains(&&*source.state));
        Ok(waiting
            .map(|source| format!("{} is {} {}\n", source.name(), source.state, source.detail))
            .collect::<String>())
    });
    let text =
        format!("not ready: not every source has finished its first list\n{}", waiting.await.unwrap_or_default());
    (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
}

async fn scrape(State(endpoints): State<Endpoints>) -> Response {
    let process = metrics::Process::of(&endpoints);
    let text = read(&endpoints, move |state| {
        let mut reader = Reader::open(state)?;
        let status = Status::gather(&mut reader, state, Timestamp::now())?;
        metrics::render(&reader, &status, &process)
    });
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    answer(text.await.map(|text| ([(header::CONTENT_TYPE, kind)], text)))
}

async fn show_status(State(endpoints): State<Endpoints>) -> Response {
    let status = read(&endpoints, |state| Status::gather(&mut Reader::open(state)?, state, Timestamp::now()));
    answer(status.await.map(axum::Json))
}

/// Reads the journal on a thread that may block.
async fn read<T: Send + 'static>(
    endpoints: &Endpoints,
    work: impl FnOnce(&std::path::Path) -> Result<T, JournalError> + Send + 'static,
) -> Result<T, String> {
    let state = Arc::clone(&endpoints.state);
    match tokio::task::spawn_blocking(move || work(&state)).await {
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
