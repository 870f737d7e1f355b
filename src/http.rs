//! What the daemon answers over HTTP: is it alive, is it ready, how is it doing.
//!
//! Meant for loopback or a unix socket: there is no authentication, and nothing here shows the content of an object.
//! Only GET and HEAD are answered, and everything about a request is bounded: its head, its time, how many there are.
//! Where there are too many connections, a new one takes the place of the oldest that has asked for nothing yet.

mod metrics;
mod settings;

pub use settings::{FORMATS, Listen, Settings};

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper::body::Incoming;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use jiff::Timestamp;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio_util::either::Either;
use tokio_util::sync::CancellationToken;

use crate::churn::Meter;
use crate::delivery::SinkCounters;
use crate::journal::{Backlog, JournalError, Reader, SourceState};
use crate::status::{Live, Status};
use crate::watch::SourceManagerHandle;

/// What the endpoints read.
#[derive(Clone, Debug)]
pub struct Endpoints {
    /// The state directory.
    pub state: Arc<PathBuf>,
    /// What reads the cluster.
    pub sources: SourceManagerHandle,
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
    /// Another process has it, such as one that is being stopped: trying again may help.
    #[error(
        "cannot listen on {0}: another process listens there; set another address in [http] listen, or stop that process"
    )]
    Taken(String),
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
            if error.kind() == io::ErrorKind::AddrInUse {
                return BindError::Taken(address.to_string());
            }
            BindError::Refused(format!("cannot listen on {address}: {error}; set another address in [http] listen"))
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
                    Ok(_) => return Err(BindError::Taken(format!("the unix socket {}", path.display()))),
                    Err(_) => {
                        return Err(BindError::Refused(format!(
                            "cannot listen on the unix socket {}: something else is there; set another path in [http] listen",
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
        .with_state(Served { endpoints, reads: Arc::new(Semaphore::new(MOST_READS)) });
    answer_all(bound, router, LIMITS, stop).await
}

/// What the handlers have.
#[derive(Clone)]
struct Served {
    endpoints: Endpoints,
    /// The journal is read by so many at a time, whatever becomes of their connections.
    reads: Arc<Semaphore>,
}

/// How long a client may take.
#[derive(Clone, Copy)]
struct Limits {
    /// For the head of its request.
    head: Duration,
    /// For its connection, with its request and its answer. Metrics of a big journal take a second.
    connection: Duration,
}

const LIMITS: Limits = Limits { head: Duration::from_secs(5), connection: Duration::from_secs(30) };
/// Connections at a time. One more takes the place of another.
const MOST_CONNECTIONS: usize = 32;
/// Requests that read the journal at a time; others wait.
const MOST_READS: usize = 4;
/// The head of a request has at most so many bytes.
const HEAD_BYTES: usize = 16 << 10;
/// How long nothing is accepted after that has failed.
const AFTER_FAILURE: Duration = Duration::from_millis(200);

/// A connection that is open.
struct Connection {
    task: AbortHandle,
    /// Its request is here.
    asked: Arc<AtomicBool>,
}

/// Nobody who only holds on to connections keeps a request out, /livez least of all: there is always room for one more.
async fn answer_all(bound: Bound, router: Router, limits: Limits, stop: CancellationToken) -> io::Result<()> {
    let mut tasks = JoinSet::new();
    let mut connections: VecDeque<Connection> = VecDeque::new();
    loop {
        let stream = tokio::select! {
            () = stop.cancelled() => return Ok(()),
            Some(_ended) = tasks.join_next() => continue,
            // One that had to go is still among them until it has gone, so that there are no more descriptors than that.
            stream = bound.accept(), if tasks.len() <= MOST_CONNECTIONS => stream,
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
        let asked = Arc::new(AtomicBool::new(false));
        let service = {
            let (asked, router) = (Arc::clone(&asked), TowerToHyperService::new(router.clone()));
            service_fn(move |request: hyper::Request<Incoming>| {
                asked.store(true, Ordering::Relaxed);
                router.call(request)
            })
        };
        let connection = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(limits.head)
            .max_buf_size(HEAD_BYTES)
            .keep_alive(false)
            .serve_connection(TokioIo::new(stream), service);
        // What goes wrong with a connection is its client's business.
        let task = tasks.spawn(async move { drop(tokio::time::timeout(limits.connection, connection).await) });
        connections.retain(|connection| !connection.task.is_finished());
        if connections.len() >= MOST_CONNECTIONS {
            // The oldest that has asked for nothing yet goes, or else the oldest.
            let idle = connections.iter().position(|connection| !connection.asked.load(Ordering::Relaxed));
            if let Some(connection) = connections.remove(idle.unwrap_or(0)) {
                connection.task.abort();
            }
        }
        connections.push_back(Connection { task, asked });
    }
}

impl Bound {
    async fn accept(&self) -> io::Result<Either<TcpStream, UnixStream>> {
        match self {
            Self::Tcp(listener) => listener.accept().await.map(|(stream, _)| Either::Left(stream)),
            Self::Unix(listener) => listener.accept().await.map(|(stream, _)| Either::Right(stream)),
        }
    }
}

/// As the watchdog sees it.
async fn livez(State(served): State<Served>) -> Response {
    let stalled = served.endpoints.live.borrow().stalled.join(", ");
    if stalled.is_empty() {
        return "ok\n".into_response();
    }
    (StatusCode::SERVICE_UNAVAILABLE, format!("no progress in: {stalled}\n")).into_response()
}

async fn readyz(State(served): State<Served>) -> Response {
    if *served.endpoints.sources.ready().borrow() {
        return "ok\n".into_response();
    }
    let waiting = read(&served, |state| {
        let sources = Reader::open(state)?.sources()?;
        let waiting = sources.iter().filter(|source| {
            let waits =
                matches!(source.state, SourceState::Waiting | SourceState::Listing(_) | SourceState::Degraded(_));
            source.active && waits
        });
        Ok(waiting
            .map(|source| format!("{} is {} {}\n", source.name(), source.state.word(), source.state.detail()))
            .collect::<String>())
    });
    let text =
        format!("not ready: not every source has finished its first list\n{}", waiting.await.unwrap_or_default());
    (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
}

async fn scrape(State(served): State<Served>) -> Response {
    let process = metrics::Process::of(&served.endpoints);
    let text = read(&served, move |state| {
        let mut reader = Reader::open(state)?;
        let status = Status::gather(&mut reader, state, Timestamp::now())?;
        metrics::render(&reader, &status, &process)
    });
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    answer(text.await.map(|text| ([(header::CONTENT_TYPE, kind)], text)))
}

async fn show_status(State(served): State<Served>) -> Response {
    let status = read(&served, |state| Status::gather(&mut Reader::open(state)?, state, Timestamp::now()));
    answer(status.await.map(axum::Json))
}

/// Reads the journal on a thread that may block.
async fn read<T: Send + 'static>(
    served: &Served,
    work: impl FnOnce(&std::path::Path) -> Result<T, JournalError> + Send + 'static,
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

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::sync::Notify;

    use super::*;

    /// Nobody here is ended by the clock.
    const PATIENT: Limits = Limits { head: Duration::from_secs(36_000), connection: Duration::from_secs(36_000) };

    /// Serves `/livez`, and `/slow`, which is answered when it is released.
    async fn begin() -> (SocketAddr, Arc<Notify>, JoinSet<io::Result<()>>) {
        let released = Arc::new(Notify::new());
        let slow = Arc::clone(&released);
        let router = Router::new().route("/livez", get(|| async { "alive" })).route(
            "/slow",
            get(|| async move {
                slow.notified().await;
                "done"
            }),
        );
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut server = JoinSet::new();
        server.spawn(answer_all(Bound::Tcp(listener), router, PATIENT, CancellationToken::new()));
        (address, released, server)
    }

    async fn connect(address: SocketAddr, sends: &str) -> TcpStream {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(sends.as_bytes()).await.unwrap();
        stream
    }

    fn request(path: &str) -> String {
        format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n")
    }

    async fn answer(mut stream: TcpStream) -> String {
        let mut text = String::new();
        // Far beyond what any machine takes.
        tokio::time::timeout(Duration::from_secs(60), stream.read_to_string(&mut text))
            .await
            .expect("no answer")
            .unwrap();
        text
    }

    #[tokio::test]
    async fn who_only_holds_on_to_connections_keeps_nobody_out() {
        let (address, released, _server) = begin().await;
        let asked = connect(address, &request("/slow")).await;
        let mut held = Vec::new();
        for number in 0..MOST_CONNECTIONS * 3 {
            held.push(connect(address, if number % 2 == 0 { "" } else { "GET /livez HTTP/1.1\r\nHost:" }).await);
        }
        assert!(answer(connect(address, &request("/livez")).await).await.ends_with("alive"));
        // The oldest of all has asked, and stays.
        released.notify_one();
        assert!(answer(asked).await.ends_with("done"));
    }

    #[tokio::test]
    async fn nor_does_who_asks_for_much() {
        let (address, _released, _server) = begin().await;
        let mut held = Vec::new();
        for _ in 0..MOST_CONNECTIONS * 3 {
            held.push(connect(address, &request("/slow")).await);
        }
        assert!(answer(connect(address, &request("/livez")).await).await.ends_with("alive"));
    }
}
