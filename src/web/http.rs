//! HTTP endpoints of the daemon: liveness, readiness, status, metrics.
//!
//! Meant for loopback or a unix socket: nobody is asked for a password, and nothing here shows the content of an object,
//! but for [`reading`], which is off unless it is asked for and has a gate of its own. Everything about a request is
//! bounded: its head, its time, how many there are. Where there are too many connections, a new one takes the place of
//! the oldest that has asked for nothing yet.

mod counters;
mod members;
mod metrics;
mod patient;
pub mod reading;
mod settings;
mod several;
mod tls;

pub use members::{Clusters, Member};
pub use settings::{FORMATS, Listen, Settings};
pub use several::serve_several;

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use hyper::body::Incoming;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use jiff::Timestamp;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio_util::either::Either;
use tokio_util::sync::CancellationToken;

use crate::journal::{Backlog, JournalError, Reader, SourceState};
use crate::query::churn::Meter;
use crate::query::status::{HaView, Live, Status};
pub use counters::{Counters, SinkCounts, SourceCounts};
use patient::Patient;
pub(crate) use reading::{Gate, Peer};
use reading::{Logs, MOST_ANSWERS, Reading};
use tls::Identity;

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

/// A socket that is bound, before anything is served on it, and who may do what there.
#[derive(Debug)]
pub struct Bound {
    socket: Socket,
    /// TLS identity; none without TLS.
    identity: Option<Identity>,
    /// Access control for reading the log; none if reading is off.
    pub(crate) gate: Option<Gate>,
}

impl Bound {
    /// Returns the address; none for a unix socket.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        match &self.socket {
            Socket::Tcp(listener) => listener.local_addr().ok(),
            Socket::Unix(_) => None,
        }
    }

    /// Reports whether the endpoint uses TLS.
    #[must_use]
    pub const fn has_tls(&self) -> bool {
        self.identity.is_some()
    }

    /// Answers by `router` until `stop`.
    ///
    /// # Errors
    /// Where the socket fails.
    pub(crate) async fn answer(self, router: Router, limits: Limits, stop: CancellationToken) -> io::Result<()> {
        answer_all(self.socket, self.identity.map(Arc::new), router, limits, stop).await
    }
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// Error that keeps the endpoints from being served: one sentence with the cause and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// A setting that cannot be fulfilled.
    #[error("{0}")]
    Refused(String),
    /// Another process has it, such as one that is being stopped: trying again may help.
    #[error(
        "cannot listen on {0}: another process listens there; set another address in {1} listen, or stop that process"
    )]
    Taken(String, &'static str),
    /// The machine may get the address later, by DHCP or another service that brings it up: trying again may help.
    #[error(
        "cannot listen on {0}: this machine does not have that address at the moment; bring it up, or set another in {1} listen"
    )]
    Absent(SocketAddr, &'static str),
}

/// Binds where the configuration says.
///
/// # Errors
/// What is in the way.
pub async fn bind(settings: &Settings) -> Result<Bound, BindError> {
    bind_for("[http]", settings).await
}

/// Binds as [`bind`] does, for another section of the configuration.
///
/// # Errors
/// What is in the way.
pub async fn bind_for(section: &'static str, settings: &Settings) -> Result<Bound, BindError> {
    let refused = |text: String| BindError::Refused(format!("{section}: {text}"));
    let gate = Gate::of(settings).await.map_err(refused)?;
    let identity = Identity::of(settings);
    if let Some(identity) = &identity {
        identity.acceptor().await.map_err(refused)?;
    }
    let socket = listen_on(section, &settings.listen).await?;
    if let (Listen::Unix(path), Some(_)) = (&settings.listen, &gate) {
        // Whoever is in the daemon's own group may read, whatever its umask is.
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o660))
            .map_err(|error| refused(format!("cannot let others read over {}: {error}", path.display())))?;
    }
    Ok(Bound { socket, identity, gate })
}

async fn listen_on(section: &'static str, listen: &Listen) -> Result<Socket, BindError> {
    match listen {
        Listen::Tcp(address) => TcpListener::bind(address).await.map(Socket::Tcp).map_err(|error| {
            if error.kind() == io::ErrorKind::AddrNotAvailable {
                return BindError::Absent(*address, section);
            }
            if error.kind() == io::ErrorKind::AddrInUse {
                return BindError::Taken(address.to_string(), section);
            }
            BindError::Refused(format!("cannot listen on {address}: {error}; set another address in {section} listen"))
        }),
        Listen::Unix(path) => {
            let failed = |error: io::Error| {
                BindError::Refused(format!(
                    "cannot listen on the unix socket {}: {error}; check {section} listen",
                    path.display()
                ))
            };
            // A socket that refuses is left over from a crash. Anything else is somebody's, and stays.
            if std::fs::symlink_metadata(path).is_ok() {
                match UnixStream::connect(path).await {
                    Err(error) if error.kind() == io::ErrorKind::ConnectionRefused && is_socket(path) => {
                        std::fs::remove_file(path).map_err(failed)?;
                    }
                    Ok(_) => return Err(BindError::Taken(format!("the unix socket {}", path.display()), section)),
                    Err(_) => {
                        return Err(BindError::Refused(format!(
                            "cannot listen on the unix socket {}: something else is there; set another path in {section} listen",
                            path.display()
                        )));
                    }
                }
            }
            UnixListener::bind(path).map(Socket::Unix).map_err(failed)
        }
    }
}

fn is_socket(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket())
}

/// Serves until `stop`.
///
/// # Errors
/// Where the socket fails.
pub async fn serve(bound: Bound, endpoints: Endpoints, stop: CancellationToken) -> io::Result<()> {
    let Bound { socket, identity, gate } = bound;
    let state = Arc::clone(&endpoints.state);
    let reading = Reading::new(move || Logs { state: state.to_path_buf(), ..Logs::default() }, gate);
    let router = Router::new()
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/metrics", get(scrape))
        .route("/status", get(show_status))
        .with_state(Served { endpoints, reads: Arc::new(Semaphore::new(MOST_READS)) })
        .route(
            "/api/v1/{question}",
            post(reading::read).layer(DefaultBodyLimit::max(reading::MOST_ASKED)).with_state(Arc::new(reading)),
        );
    answer_all(socket, identity.map(Arc::new), router, LIMITS, stop).await
}

/// State of the handlers.
#[derive(Clone)]
struct Served {
    endpoints: Endpoints,
    /// The journal is read by so many at a time, whatever becomes of their connections.
    reads: Arc<Semaphore>,
}

/// Time limits for clients.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    /// For the head of its request.
    pub(crate) head: Duration,
    /// For its connection, with its request and its answer. Metrics of a big journal take a second.
    pub(crate) connection: Duration,
    /// For taking any of its answer, where that may go on for ever.
    pub(crate) stall: Duration,
    /// Number of connections that may stream.
    pub(crate) streams: usize,
}

const LIMITS: Limits = Limits {
    head: Duration::from_secs(5),
    connection: Duration::from_secs(30),
    // A pager holds up an answer for as long as somebody reads.
    stall: Duration::MAX,
    streams: MOST_ANSWERS,
};
/// Connections at a time. One more takes the place of another.
const MOST_CONNECTIONS: usize = 32;
/// Requests that read the journal at a time; others wait.
const MOST_READS: usize = 4;
/// The head of a request has at most so many bytes.
const HEAD_BYTES: usize = 16 << 10;
/// Delay before the next accept after a failed one.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(200);

/// Progress of a connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stage(Arc<AtomicU8>);

impl Stage {
    /// Its request is here.
    const ASKED: u8 = 1;
    /// A question is answered, for as long as its client likes.
    const STREAMS: u8 = 2;

    fn asked(&self) {
        self.0.store(Self::ASKED, Ordering::Relaxed);
    }

    pub(crate) fn streams(&self) {
        self.0.store(Self::STREAMS, Ordering::Relaxed);
    }

    fn is(&self, stage: u8) -> bool {
        self.0.load(Ordering::Relaxed) == stage
    }
}

/// A connection that is open.
struct Connection {
    task: AbortHandle,
    stage: Stage,
}

/// Serves every connection. Idle connections are closed in favour of new ones, so a request such as /livez always gets in.
async fn answer_all(
    socket: Socket,
    identity: Option<Arc<Identity>>,
    router: Router,
    limits: Limits,
    stop: CancellationToken,
) -> io::Result<()> {
    let mut tasks = JoinSet::new();
    let mut connections: VecDeque<Connection> = VecDeque::new();
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => return Ok(()),
            Some(_ended) = tasks.join_next() => continue,
            // One that had to go is still among them until it has gone, so that there are no more descriptors than that.
            accepted = socket.accept(), if tasks.len() <= MOST_CONNECTIONS + limits.streams => accepted,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            // One that its client gave up, or no descriptor left: neither ends the daemon.
            Err(error) => {
                tracing::debug!(%error, "a connection to the HTTP endpoints was not taken");
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                continue;
            }
        };
        let stage = Stage::default();
        let connection = serve_one(stream, peer, identity.clone(), router.clone(), limits, stage.clone());
        let bounded = bounded(connection, stage.clone(), limits.connection);
        let task = tasks.spawn(bounded);
        connections.retain(|connection| !connection.task.is_finished());
        // Those on which a question is answered are few, and are in nobody's way.
        let short = || connections.iter().enumerate().filter(|(_, connection)| !connection.stage.is(Stage::STREAMS));
        if short().count() >= MOST_CONNECTIONS {
            // The oldest that has asked for nothing yet goes, or else the oldest.
            let idle = short().find(|(_, connection)| !connection.stage.is(Stage::ASKED)).or_else(|| short().next());
            let idle = idle.map(|(at, _)| at);
            if let Some(connection) = idle.and_then(|at| connections.remove(at)) {
                connection.task.abort();
            }
        }
        connections.push_back(Connection { task, stage });
    }
}

/// A connection has so long, but where a question is answered.
async fn bounded(connection: impl Future<Output = ()>, stage: Stage, limit: Duration) {
    let mut connection = std::pin::pin!(connection);
    if tokio::time::timeout(limit, &mut connection).await.is_err() && stage.is(Stage::STREAMS) {
        connection.await;
    }
}

/// Answers the request of a connection. What goes wrong with it is its client's business.
async fn serve_one(
    stream: Either<TcpStream, UnixStream>,
    peer: Peer,
    identity: Option<Arc<Identity>>,
    router: Router,
    limits: Limits,
    stage: Stage,
) {
    let stream = match (stream, identity) {
        (stream, None) => return answer_one(stream, peer, router, limits, stage).await,
        (stream, Some(identity)) => match identity.acceptor().await {
            Ok(acceptor) => tokio::time::timeout(limits.head, acceptor.accept(stream)).await,
            Err(text) => return tracing::warn!("{text}; nobody can connect to the HTTP endpoints"),
        },
    };
    let Ok(Ok(stream)) = stream else { return };
    let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first).map(|shown| shown.to_vec());
    let peer = match peer {
        Peer::Tcp(address, _) => Peer::Tcp(address, shown),
        unix @ Peer::Unix(_) => unix,
    };
    answer_one(stream, peer, router, limits, stage).await;
}

async fn answer_one<S>(stream: S, peer: Peer, router: Router, limits: Limits, stage: Stage)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let router = TowerToHyperService::new(router);
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        stage.asked();
        request.extensions_mut().insert(peer.clone());
        request.extensions_mut().insert(stage.clone());
        router.call(request)
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head)
        .max_buf_size(HEAD_BYTES)
        .keep_alive(false)
        .serve_connection(TokioIo::new(Patient::new(stream, limits.stall)), service);
    drop(connection.await);
}

impl Socket {
    async fn accept(&self) -> io::Result<(Either<TcpStream, UnixStream>, Peer)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, address) = listener.accept().await?;
                let address: IpAddr = address.ip().to_canonical();
                Ok((Either::Left(stream), Peer::Tcp(address, None)))
            }
            Self::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                let uid = stream.peer_cred().ok().map(|peer| peer.uid());
                Ok((Either::Right(stream), Peer::Unix(uid)))
            }
        }
    }
}

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

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::sync::Notify;

    use super::*;

    /// Nobody here is ended by the clock.
    const PATIENT: Limits =
        Limits { head: Duration::from_secs(36_000), connection: Duration::from_secs(36_000), ..LIMITS };

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
        server.spawn(answer_all(Socket::Tcp(listener), None, router, PATIENT, CancellationToken::new()));
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

    #[tokio::test(start_paused = true)]
    async fn only_what_reads_the_log_may_take_long() {
        let long = || tokio::time::sleep(Duration::from_secs(3600));
        for (name, begin, lasts) in
            [("idle", (|_| ()) as fn(&Stage), 10), ("asked", Stage::asked, 10), ("reads", Stage::streams, 3600)]
        {
            let (stage, begun) = (Stage::default(), tokio::time::Instant::now());
            begin(&stage);
            bounded(long(), stage, Duration::from_secs(10)).await;
            assert_eq!(begun.elapsed().as_secs(), lasts, "{name}");
        }
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
