//! The listener of every HTTP server of decklog: address or unix socket, TLS, who is let in, and bounds for clients.
//!
//! Everything about a request is bounded: its head, its time, how many there are. Where there are too many connections, a
//! new one takes the place of the oldest that has asked for nothing yet.

mod address;
mod gate;
mod identity;
mod patient;

pub use address::{FORMATS, Listen};
pub use gate::{Authorize, Peer};
pub(crate) use gate::{Gate, bearer};

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use axum::Router;
use hyper::body::Incoming;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio_util::either::Either;
use tokio_util::sync::CancellationToken;

use identity::Identity;
use patient::Patient;

use crate::core::os::{self, FileTypeExt, UnixListener, UnixStream};

/// Settings of a listener, as a section of the configuration has them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Endpoint<'s> {
    /// The section, for messages.
    pub(crate) section: &'static str,
    /// Its address.
    pub(crate) listen: &'s Listen,
    /// Set if clients have to be known: by their certificate, a token, or the rights of the unix socket.
    pub(crate) gated: bool,
    /// Who decides what a reader may read.
    pub(crate) authorize: Option<Authorize>,
    /// A file with tokens.
    pub(crate) token_file: Option<&'s Path>,
    /// The certificate; TLS is on where there is one with its key.
    pub(crate) tls_cert_file: Option<&'s Path>,
    /// Its private key.
    pub(crate) tls_key_file: Option<&'s Path>,
    /// The authorities of client certificates.
    pub(crate) client_ca_file: Option<&'s Path>,
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

    /// Returns the unix socket, for who speaks no HTTP there; itself again where it is none.
    ///
    /// # Errors
    /// Itself, where it listens on an address.
    pub(crate) fn into_unix(self) -> Result<UnixListener, Box<Self>> {
        match self.socket {
            Socket::Unix(listener) => Ok(listener),
            Socket::Tcp(listener) => Err(Box::new(Self { socket: Socket::Tcp(listener), ..self })),
        }
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

/// Binds where a section of the configuration says.
///
/// # Errors
/// What is in the way.
pub(crate) async fn bind(endpoint: Endpoint<'_>) -> Result<Bound, BindError> {
    let section = endpoint.section;
    let refused = |text: String| BindError::Refused(format!("{section}: {text}"));
    let gate = match endpoint.gated {
        true => Some(Gate::of(endpoint.token_file, endpoint.authorize).await.map_err(refused)?),
        false => None,
    };
    let identity = Identity::of(endpoint.tls_cert_file, endpoint.tls_key_file, endpoint.client_ca_file);
    if let Some(identity) = &identity {
        identity.acceptor().await.map_err(refused)?;
    }
    let socket = listen_on(section, endpoint.listen).await?;
    if let (Listen::Unix(path), Some(_)) = (endpoint.listen, &gate) {
        // Whoever is in the daemon's own group may connect, whatever its umask is.
        os::set_mode(path, 0o660)
            .map_err(|error| refused(format!("cannot let others connect over {}: {error}", path.display())))?;
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

/// Connections at a time. One more takes the place of another.
const MOST_CONNECTIONS: usize = 32;
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
                tracing::debug!(%error, "a connection was not taken");
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
            Err(text) => return tracing::warn!("{text}; nobody can connect until that is right"),
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

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::sync::Notify;

    use super::*;

    /// Nobody here is ended by the clock.
    const PATIENT: Limits = Limits {
        head: Duration::from_secs(36_000),
        connection: Duration::from_secs(36_000),
        stall: Duration::MAX,
        streams: 8,
    };

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
