//! `decklog --server`: the reading commands for those who are on another machine.
//!
//! A command runs here, as a process of its own, and what it prints goes to whoever asked. So each command is the same from
//! everywhere, one that is too large or fails takes nothing from the daemon, and the journal is opened for reading only,
//! as by any reader. The process is this very program, takes reading commands alone ([`Guest`]), and ends with the
//! connection.
//!
//! # Decision: a remote command runs where the journal is
//!
//! Context: Queries over HTTP would make every command twice.
//! Decision: The daemon starts this program with the typed arguments, without its own environment, and sends its output. The
//! answer is the same to the byte, its memory is bounded and not the daemon's, and it ends with the connection.
//! Cost: A process for each command, and both sides should have one version.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::{Extension, FromRequest, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::stream;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};

use super::frames::{self, Frame};
use super::{Settings, Stage};
use crate::sink::credential_files::Followed;
use crate::terminal::Look;

/// Commands that run at a time. Each takes at most [`MEMORY`].
pub(super) const MOST_COMMANDS: usize = 8;

/// Memory limit of a command, in bytes.
pub const MEMORY: u64 = 256 << 20;

/// Interval of keepalive frames while nothing is printed.
pub const ALIVE_EVERY: Duration = Duration::from_secs(15);

/// A request has at most so many bytes: it is a command line.
pub(super) const MOST_ASKED: usize = 64 << 10;

/// Commands that may be requested and appear in the daemon's log.
const COMMANDS: [&str; 10] = ["tail", "log", "show", "get", "diff", "blame", "churn", "status", "verify", "__complete"];

/// A token is this long at least.
const SHORTEST_TOKEN: usize = 16;

/// The variable that makes a process one that reads for somebody elsewhere: a [`Guest`] as JSON.
pub const GUEST: &str = "DECKLOG_READS_FOR";

/// Request to run a reading command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
    /// The command line, without the program.
    pub args: Vec<String>,
    /// Style of the terminal that shows the output.
    pub look: Look,
    /// The zone of whoever asks, as in `TZ`.
    #[serde(default)]
    pub zone: Option<String>,
}

/// For whom a process reads, and what.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guest {
    /// The state directory; empty where there are several clusters.
    pub state: PathBuf,
    /// The state directories of several clusters, by their names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub clusters: BTreeMap<String, PathBuf>,
    /// Style of the terminal that shows the output.
    pub look: Look,
}

/// Client of a connection, as far as the connection identifies it.
#[derive(Clone, Debug)]
pub(crate) enum Peer {
    /// On this machine; the socket's own rights have let it in.
    Unix(Option<u32>),
    /// Over TCP, with the certificate that it has shown and that an authority of `client_ca_file` has signed.
    Tcp(IpAddr, Option<Vec<u8>>),
}

/// State directories that are read: of one cluster, or of several.
#[derive(Debug, Default)]
pub(super) struct Logs {
    pub(super) state: PathBuf,
    pub(super) clusters: BTreeMap<String, PathBuf>,
}

/// Access control and the number of readers.
pub(super) struct Reading {
    logs: Box<dyn Fn() -> Logs + Send + Sync>,
    /// None if reading is off.
    gate: Option<Gate>,
    turns: Arc<Semaphore>,
}

/// Access control for readers.
#[derive(Debug)]
pub(crate) struct Gate {
    tokens: Option<Mutex<Followed>>,
}

impl Gate {
    /// Builds the gate from the settings; none if reading is off.
    ///
    /// # Errors
    /// What is wrong with the tokens.
    pub(crate) async fn of(settings: &Settings) -> Result<Option<Self>, String> {
        if !settings.reading {
            return Ok(None);
        }
        let Some(path) = &settings.token_file else { return Ok(Some(Self { tokens: None })) };
        let mut file = Followed::new(path);
        file.refresh().await.map_err(|error| error.to_string())?;
        let text = file.text().map_err(|error| error.to_string())?;
        let at = path.display();
        for (number, token) in tokens(text).enumerate().map(|(number, token)| (number + 1, token)) {
            if token.len() < SHORTEST_TOKEN {
                return Err(format!(
                    "token {number} in {at} has less than {SHORTEST_TOKEN} characters, and can be guessed; `openssl rand -hex 32` makes a good one"
                ));
            }
            if token.contains(char::is_whitespace) {
                return Err(format!("token {number} in {at} has a space in it: write one token in each line"));
            }
        }
        if tokens(text).next().is_none() {
            return Err(format!("{at} holds no token"));
        }
        Ok(Some(Self { tokens: Some(Mutex::new(file)) }))
    }

    /// Returns the name of the client for the log; none if it may not read.
    pub(crate) async fn admits(&self, peer: &Peer, headers: &HeaderMap) -> Option<String> {
        let address = match peer {
            Peer::Unix(Some(uid)) => return Some(format!("uid {uid}")),
            Peer::Unix(None) => return Some("the unix socket".to_owned()),
            Peer::Tcp(address, Some(certificate)) => {
                let digest: String = Sha256::digest(certificate).iter().map(|byte| format!("{byte:02x}")).collect();
                return Some(format!("{address}, certificate sha256:{digest}"));
            }
            Peer::Tcp(address, None) => address,
        };
        let mut file = self.tokens.as_ref()?.lock().await;
        let shown = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
        let (scheme, shown) = shown.split_once(' ')?;
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        // A file that is gone lets nobody in: what was read last may be what somebody took back.
        file.forget();
        if let Err(error) = file.refresh().await {
            tracing::warn!("{error}; nobody reads the log with a token until it can be read");
            return None;
        }
        // Digests are compared: how long that takes says nothing of the tokens.
        let shown = Sha256::digest(shown.trim());
        let known = tokens(file.text().ok()?).filter(|token| token.len() >= SHORTEST_TOKEN);
        let number =
            known.enumerate().filter(|(_, token)| Sha256::digest(token) == shown).map(|(at, _)| at + 1).last()?;
        Some(format!("{address}, token {number}"))
    }
}

fn tokens(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'))
}

impl Reading {
    pub(super) fn new(logs: impl Fn() -> Logs + Send + Sync + 'static, gate: Option<Gate>) -> Self {
        Self { logs: Box::new(logs), gate, turns: Arc::new(Semaphore::new(MOST_COMMANDS)) }
    }
}

/// Runs a command for somebody elsewhere. Who may not read costs a look at the head of the request, and no more.
pub(super) async fn read(
    State(reading): State<Arc<Reading>>,
    Extension(peer): Extension<Peer>,
    Extension(stage): Extension<Stage>,
    request: Request,
) -> Response {
    let refuse = |status: StatusCode, text: &str| (status, format!("{text}\n")).into_response();
    let Some(gate) = &reading.gate else {
        return refuse(
            StatusCode::FORBIDDEN,
            "this decklog lets nobody read its log over HTTP; set [http] reading = true there",
        );
    };
    let Some(who) = gate.admits(&peer, request.headers()).await else {
        let text = "show a token of its [http] token_file, or a certificate that its client_ca_file knows";
        let mut answer = refuse(StatusCode::UNAUTHORIZED, text);
        answer.headers_mut().insert(header::WWW_AUTHENTICATE, header::HeaderValue::from_static("Bearer"));
        return answer;
    };
    let ask = match Json::<Ask>::from_request(request, &()).await {
        Ok(Json(ask)) => ask,
        Err(rejection) => return rejection.into_response(),
    };
    let Ok(turn) = Arc::clone(&reading.turns).try_acquire_owned() else {
        let text = format!("{MOST_COMMANDS} commands are reading already; try again when one has ended");
        return refuse(StatusCode::SERVICE_UNAVAILABLE, &text);
    };
    // What is asked for may hold values of objects, and this log never does.
    let command = ask.args.iter().find_map(|arg| COMMANDS.into_iter().find(|command| command == arg));
    tracing::info!(who, command = command.unwrap_or("?"), "somebody reads the log over HTTP");
    match start(&ask, (reading.logs)()) {
        Ok(child) => {
            stage.streams();
            let pieces = stream::unfold(Some(Running::new(child, turn)), Running::next);
            ([(header::CONTENT_TYPE, frames::CONTENT_TYPE)], Body::from_stream(pieces)).into_response()
        }
        Err(error) => {
            refuse(StatusCode::INTERNAL_SERVER_ERROR, &format!("cannot run the command on this server: {error}"))
        }
    }
}

/// Starts the command.
fn start(ask: &Ask, Logs { state, clusters }: Logs) -> io::Result<Child> {
    let guest = Guest { state, clusters, look: ask.look };
    let guest = serde_json::to_string(&guest).map_err(io::Error::other)?;
    // This very program, also where an upgrade has put another one in its place.
    let mut command = Command::new("/proc/self/exe");
    command.arg0("decklog").args(&ask.args);
    // What the daemon has in its environment is not for others.
    command.env_clear().env(GUEST, guest);
    if let Some(zone) = ask.zone.as_deref().filter(|zone| is_zone(zone)) {
        command.env("TZ", zone);
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true).spawn()
}

/// Reports whether the text is the name of a time zone and not a path.
fn is_zone(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"_+-/,.<>:".contains(&byte);
    text.len() <= 64 && text.bytes().all(fits) && !text.starts_with(['/', ':', '.']) && !text.contains("..")
}

/// A command that runs.
struct Running {
    child: Child,
    out: Pipe<tokio::process::ChildStdout>,
    err: Pipe<tokio::process::ChildStderr>,
    _turn: OwnedSemaphorePermit,
}

/// One output stream of the command.
struct Pipe<R> {
    /// None once the stream has ended.
    reader: Option<R>,
    buffer: Vec<u8>,
}

impl<R: AsyncRead + Unpin> Pipe<R> {
    fn new(reader: Option<R>) -> Self {
        Self { reader, buffer: vec![0; frames::MOST] }
    }

    /// Returns the next piece; none at the end. Cancel safe.
    async fn next(&mut self) -> Option<Bytes> {
        match self.reader.as_mut()?.read(&mut self.buffer).await {
            Ok(0) | Err(_) => {
                self.reader = None;
                None
            }
            Ok(count) => Some(Bytes::copy_from_slice(&self.buffer[..count])),
        }
    }
}

impl Running {
    fn new(mut child: Child, turn: OwnedSemaphorePermit) -> Self {
        let (out, err) = (Pipe::new(child.stdout.take()), Pipe::new(child.stderr.take()));
        Self { child, out, err, _turn: turn }
    }

    /// Returns the next output, or the exit status. Dropping the future ends the command.
    async fn next(running: Option<Self>) -> Option<(io::Result<Bytes>, Option<Self>)> {
        let mut running = running?;
        let (mut out, mut err) = (true, true);
        while out || err {
            let frame = tokio::select! {
                biased;
                bytes = running.out.next(), if out => { out = bytes.is_some(); bytes.map(Frame::Out) }
                bytes = running.err.next(), if err => { err = bytes.is_some(); bytes.map(Frame::Err) }
                () = tokio::time::sleep(ALIVE_EVERY) => Some(Frame::Alive),
            };
            if let Some(frame) = frame {
                return Some((Ok(frame.encode()), Some(running)));
            }
        }
        Some((running.child.wait().await.map(ended), None))
    }
}

/// The last frames of a command.
fn ended(status: ExitStatus) -> Bytes {
    if let Some(code) = status.code().and_then(|code| u8::try_from(code).ok()) {
        return Frame::Ended(code).encode();
    }
    let text = format!(
        "decklog: the command was ended on the server ({status}); it may have needed more than {} MiB\n",
        MEMORY >> 20
    );
    let why = Frame::Err(text.into()).encode();
    // That of a bug in decklog.
    [why, Frame::Ended(70).encode()].concat().into()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// With its file, which has to stay.
    async fn gate(tokens: &str) -> Result<(Gate, tempfile::NamedTempFile), String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(&file, tokens).unwrap();
        let settings = Settings { reading: true, token_file: Some(file.path().to_owned()), ..Settings::default() };
        Gate::of(&settings).await.map(|gate| (gate.unwrap(), file))
    }

    fn shows(text: &str) -> HeaderMap {
        HeaderMap::from_iter([(header::AUTHORIZATION, text.parse().unwrap())])
    }

    #[tokio::test]
    async fn only_who_shows_a_token_reads() {
        let (gate, file) = gate("0123456789abcdef\n\n  fedcba9876543210  \n").await.unwrap();
        let peer = Peer::Tcp([127, 0, 0, 1].into(), None);
        for (shown, who) in [
            ("Bearer 0123456789abcdef", Some("127.0.0.1, token 1")),
            ("bearer  fedcba9876543210", Some("127.0.0.1, token 2")),
            ("Bearer 0123456789abcde", None),
            ("Bearer 0123456789abcdef0", None),
            ("Bearer ", None),
            ("Bearer", None),
            ("Basic 0123456789abcdef", None),
            ("0123456789abcdef", None),
        ] {
            assert_eq!(gate.admits(&peer, &shows(shown)).await.as_deref(), who, "{shown}");
        }
        assert_eq!(gate.admits(&peer, &HeaderMap::new()).await, None);
        assert_eq!(gate.admits(&Peer::Unix(Some(7)), &HeaderMap::new()).await.as_deref(), Some("uid 7"));
        // Whoever takes the file away takes all tokens back.
        file.close().unwrap();
        assert_eq!(gate.admits(&peer, &shows("Bearer 0123456789abcdef")).await, None);
    }

    #[tokio::test]
    async fn without_tokens_and_certificates_nobody_reads_over_tcp() {
        let gate = Gate::of(&Settings { reading: true, ..Settings::default() }).await.unwrap().unwrap();
        let address = [127, 0, 0, 1].into();
        assert_eq!(gate.admits(&Peer::Tcp(address, None), &shows("Bearer ")).await, None);
        let who = gate.admits(&Peer::Tcp(address, Some(b"der".to_vec())), &HeaderMap::new()).await.unwrap();
        assert!(who.starts_with("127.0.0.1, certificate sha256:"), "{who}");
    }

    #[tokio::test]
    async fn tokens_that_can_be_guessed_are_refused() {
        assert!(gate("0123456789abcdef\nshort\n").await.unwrap_err().contains("token 2"));
        assert!(gate(" \n# only a comment\n").await.unwrap_err().contains("holds no token"));
        assert!(gate("0123456789abcdef\nfour words are no token").await.unwrap_err().contains("token 2"));
        let peer = Peer::Tcp([127, 0, 0, 1].into(), None);
        let (commented, _file) = gate("# of the platform team\n0123456789abcdef\n").await.unwrap();
        assert_eq!(commented.admits(&peer, &shows("Bearer # of the platform team")).await, None);
        assert!(Gate::of(&Settings::default()).await.unwrap().is_none());
    }

    #[test]
    fn a_zone_is_no_file() {
        for zone in ["Europe/Berlin", "UTC", "EST5EDT,M3.2.0,M11.1.0", "<+0330>-3:30", "Etc/GMT+5"] {
            assert!(is_zone(zone), "{zone}");
        }
        for file in
            ["/etc/shadow", ":/etc/shadow", "../../etc/shadow", "Europe/../../x", "a b", "a\0b", &"x".repeat(65)]
        {
            assert!(!is_zone(file), "{file}");
        }
    }
}
