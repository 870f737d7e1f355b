//! Reading on another machine: `--server` asks a daemon there what a command would ask the journal here. The other side of this
//! is `web::http::reading`.

mod kubernetes;

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use clap::parser::ValueSource;
use clap::{ArgMatches, Args};
use jiff::tz::TimeZone;
use kube::client::Body;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use reqwest::{Client, ClientBuilder, Response, StatusCode, Url, redirect};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use self::kubernetes::Inside;
use super::output::printable;
use super::{COMMON, Cli, Command, Exit, Failure, Global, block_on, complain};
use crate::core::net::is_loopback;
use crate::core::os::{self, Socket};
use crate::query::{Frame, Put, Question};
use crate::sink::link::{Route, cause, refusal};
use crate::sink::settings;
use crate::sink::tls::Tls;
use crate::watch::cluster::next_part;
use crate::web::http::assistants::Asking;
use crate::web::http::reading::{ALIVE_INTERVAL, Ask, CLUSTERS, CONTENT_TYPE as LINES};

/// Time limit for the connection, and for the start of the answer.
const SERVER_TIMEOUT: Duration = Duration::from_secs(30);

/// Bytes of a refusal that are printed.
const SAID: usize = 1000;

/// Bytes of a line of an answer: an entry of the largest size, with what is around it.
const LONGEST: usize = 64 << 20;

/// Where the log is read, and what is shown there.
#[derive(Args, Clone, Debug, Default)]
pub struct ServerArgs {
    /// Read the log of the daemon at kube://NAMESPACE/SERVICE, https://HOST:PORT or unix:PATH, with --context, --token-file, --ca-file, --cert-file, --key-file
    #[arg(long, global = true, value_name = "URL", help_heading = COMMON)]
    pub server: Option<String>,
    /// A file with the token that the server knows
    #[arg(long, global = true, value_name = "FILE", hide = true)]
    pub token_file: Option<PathBuf>,
    /// A PEM file with the authorities to trust, instead of the system's
    #[arg(long, global = true, value_name = "FILE", hide = true)]
    pub ca_file: Option<PathBuf>,
    /// A PEM file with your certificate, for a server that knows it
    #[arg(long, global = true, value_name = "FILE", hide = true)]
    pub cert_file: Option<PathBuf>,
    /// A PEM file with the private key of your certificate
    #[arg(long, global = true, value_name = "FILE", hide = true)]
    pub key_file: Option<PathBuf>,
    /// The context of the kubeconfig whose cluster has the server
    #[arg(long, global = true, value_name = "NAME", hide = true)]
    pub context: Option<String>,
    /// The kubeconfig, instead of $KUBECONFIG or ~/.kube/config
    #[arg(long, global = true, value_name = "FILE", hide = true)]
    pub kubeconfig: Option<PathBuf>,
}

/// Returns the variable that stands in for a missing flag.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.is_empty())
}

/// Receiver of sentences beside an answer, and the sign that nobody reads it any more.
type Beside<'b> = (&'b dyn Fn(&str), &'b dyn Fn() -> bool);

/// A daemon that answers questions about its log.
#[derive(Debug)]
pub(super) struct Server {
    at: Place,
    token: Option<HeaderValue>,
    tls: settings::Tls,
}

#[derive(Debug)]
enum Place {
    Url(Url),
    Unix(Socket),
    Kubernetes(Box<Inside>),
}

/// The start of an answer, and the rest as it comes.
enum Answer {
    Direct(Response),
    /// Through the API server.
    Proxied(http::response::Parts, Body),
}

impl Answer {
    fn status(&self) -> StatusCode {
        match self {
            Self::Direct(response) => response.status(),
            Self::Proxied(head, _) => head.status,
        }
    }

    fn kind(&self) -> Option<&HeaderValue> {
        match self {
            Self::Direct(response) => response.headers(),
            Self::Proxied(head, _) => &head.headers,
        }
        .get(CONTENT_TYPE)
    }

    /// Returns the next bytes, or the proper end.
    ///
    /// # Errors
    /// The reason why there is neither.
    async fn chunk(&mut self, patience: Duration) -> Result<Option<Bytes>, String> {
        match self {
            Self::Direct(response) => match tokio::time::timeout(patience, response.chunk()).await {
                Ok(chunk) => chunk.map_err(|error| cause(&error.without_url())),
                Err(_elapsed) => Err(format!("nothing has come for {patience:?}")),
            },
            Self::Proxied(_, body) => next_part(body, patience).await.map_err(|error| error.to_string()),
        }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Url(url) => write!(f, "{}", url.as_str().trim_end_matches('/')),
            Self::Unix(socket) => write!(f, "unix:{socket}"),
            Self::Kubernetes(inside) => inside.fmt(f),
        }
    }
}

/// The server that is to be asked; nothing where the log is read here.
///
/// # Errors
/// Where what is asked for does not go with a server, or the server cannot be meant so.
pub(super) fn asked(cli: &Cli, matches: &ArgMatches) -> Result<Option<Server>, Failure> {
    let given = matches.subcommand().map(|(_, given)| given);
    let typed = |name| given.is_some_and(|given| given.value_source(name) == Some(ValueSource::CommandLine));
    let here = typed("state") || typed("config") || typed("config_dir");
    let args = &cli.global.server;
    let of_kubeconfig = args.context.is_some() || args.kubeconfig.is_some();
    let takes = cli.command.reads_the_log();
    if of_kubeconfig && !takes && !matches!(cli.command, Command::Init(_)) {
        return Err(Failure::usage(
            "--context and --kubeconfig are for `decklog init` and for commands that read the log",
        ));
    }
    if of_kubeconfig && takes && here {
        let text = "--context and --kubeconfig name a cluster whose decklog is asked, --state, --config and --config-dir name what is on this machine: leave one of them out";
        return Err(Failure::usage(text));
    }
    if args.server.is_none() {
        return if here || !takes { Ok(None) } else { unnamed(&cli.global) };
    }
    if !takes {
        let reading = "tail, log, show, get, diff, blame, why, drift, churn, coverage, status, timeline, mcp, and verify without a file";
        return Err(Failure::usage(format!("--server is for commands that read the log: {reading}")));
    }
    if here {
        let text = "--server reads the log of another machine, --state, --config and --config-dir name what is on this one: leave one of them out";
        return Err(Failure::usage(text));
    }
    named(args)
}

/// The server of a command that names none: that of `$DECKLOG_SERVER`; else the one of a cluster, where the kubeconfig is named, or
/// where kubectl runs the command and this machine has no log.
///
/// # Errors
/// As [`asked`].
pub(super) fn unnamed(global: &Global) -> Result<Option<Server>, Failure> {
    let args = &global.server;
    let of_kubeconfig = args.context.is_some() || args.kubeconfig.is_some();
    match named(args)? {
        Some(server) => Ok(Some(server)),
        None if of_kubeconfig || (global.is_plugin && !global.has_log()) => {
            Server::new(kubernetes::SCHEME, args).map(Some)
        }
        None => Ok(None),
    }
}

/// The server of `--server`, or else of `$DECKLOG_SERVER`.
///
/// # Errors
/// As [`asked`].
fn named(args: &ServerArgs) -> Result<Option<Server>, Failure> {
    args.server.clone().or_else(|| variable("DECKLOG_SERVER")).map(|url| Server::new(&url, args)).transpose()
}

impl Place {
    /// The way to it. `http://` is for this machine alone.
    fn route(&self) -> Route {
        match self {
            Self::Url(url) => Route::to(url),
            Self::Unix(_) | Self::Kubernetes(_) => Route::direct(),
        }
    }

    fn read(text: &str, args: &ServerArgs) -> Result<Self, Failure> {
        if text.starts_with(kubernetes::SCHEME) {
            return Inside::read(text, args).map(|inside| Self::Kubernetes(Box::new(inside)));
        }
        if args.context.is_some() || args.kubeconfig.is_some() {
            let text = format!(
                "--context and --kubeconfig are for a server in a cluster (kube://NAMESPACE/SERVICE), and {text} is none"
            );
            return Err(Failure::usage(text));
        }
        if let Some(path) = text.strip_prefix("unix:").or_else(|| text.starts_with('/').then_some(text)) {
            let socket = Socket::at(path.trim_start_matches("//"));
            return socket.map(Self::Unix).map_err(|why| Failure::usage(format!("--server {text}: {why}")));
        }
        match Url::parse(text) {
            Ok(url) if matches!(url.scheme(), "http" | "https") && url.host_str().is_some() => {
                if url.username().is_empty() && url.password().is_none() {
                    return Ok(Self::Url(url));
                }
                Err(Failure::usage("--server takes no user and password; a token is in --token-file"))
            }
            _ => {
                let how = "write kube://NAMESPACE/SERVICE, https://HOST:PORT, or unix:PATH for a unix socket";
                Err(Failure::usage(format!("--server {text}: {how}")))
            }
        }
    }
}

impl Server {
    fn new(url: &str, args: &ServerArgs) -> Result<Self, Failure> {
        let at = Place::read(url, args)?;
        let file = |given: &Option<PathBuf>, name| given.clone().or_else(|| variable(name).map(PathBuf::from));
        let tls = settings::Tls {
            ca_file: file(&args.ca_file, "DECKLOG_CA_FILE"),
            cert_file: file(&args.cert_file, "DECKLOG_CERT_FILE"),
            key_file: file(&args.key_file, "DECKLOG_KEY_FILE"),
        };
        let token = file(&args.token_file, "DECKLOG_TOKEN_FILE").map(|path| token(&path)).transpose()?;
        if let Place::Url(url) = &at
            && url.scheme() == "http"
            && !url.host_str().is_some_and(is_loopback)
        {
            let text =
                format!("{url} would show what you read, and your token, to everybody on the way; write https://");
            return Err(Failure::usage(text));
        }
        Ok(Self { at, token, tls })
    }

    /// Asks a question, and takes the items of the answer until `is_gone` says that nobody reads them.
    ///
    /// # Errors
    /// Where the server cannot be reached, does not let us read, or breaks off; and as the question fails.
    pub(super) fn ask<Q: Question>(
        &self,
        question: Q,
        cluster: Option<String>,
        is_gone: &dyn Fn() -> bool,
        put: &mut Put<'_, Q::Item>,
    ) -> Result<(), Failure> {
        self.answer(Q::NAME, Ask { ask: question, cluster, zone: zone() }, (&complain, is_gone), put)
    }

    /// The names of the clusters; none where the server has only one.
    ///
    /// # Errors
    /// As [`Server::ask`].
    pub(super) fn clusters(&self) -> Result<Vec<String>, Failure> {
        let mut names = Vec::new();
        self.answer(
            CLUSTERS,
            Ask { ask: (), cluster: None, zone: None },
            (&complain, &os::nobody_reads),
            &mut |name| {
                names.push(name);
                Ok(())
            },
        )?;
        Ok(names)
    }

    fn answer<T: DeserializeOwned>(
        &self,
        name: &str,
        ask: Ask<impl Serialize>,
        beside: Beside<'_>,
        put: &mut Put<'_, T>,
    ) -> Result<(), Failure> {
        block_on(self.answer_on(name, ask, beside, put))
    }

    async fn answer_on<T: DeserializeOwned>(
        &self,
        name: &str,
        ask: Ask<impl Serialize>,
        beside: Beside<'_>,
        put: &mut Put<'_, T>,
    ) -> Result<(), Failure> {
        let ask = serde_json::to_vec(&ask).map_err(|error| Failure::internal(error.to_string()))?;
        let response = self.request(name, ask).await?;
        self.read(response, beside, put).await
    }

    async fn client(&self) -> Result<Client, Failure> {
        let wrong = |text: String| Failure::new(Exit::Config, text);
        // The provider of the whole process.
        crate::core::net::install_crypto_provider();
        let builder = Client::builder()
            .user_agent(concat!("decklog/", env!("CARGO_PKG_VERSION")))
            .redirect(redirect::Policy::none())
            .connect_timeout(SERVER_TIMEOUT);
        let builder: ClientBuilder = match &self.at {
            Place::Unix(socket) => socket.set(builder.no_proxy()).tls_certs_only([]),
            Place::Kubernetes(_) => builder,
            Place::Url(url) if url.scheme() == "http" => builder.no_proxy().tls_certs_only([]),
            Place::Url(_) => {
                let mut tls = Tls::new(&self.tls).map_err(wrong)?;
                let (config, _) = tls.refresh().await.map_err(|error| wrong(error.to_string()))?;
                let builder = self.at.route().set(builder).map_err(wrong)?;
                builder.tls_backend_preconfigured((*config).clone())
            }
        };
        builder
            .build()
            .map_err(|error| wrong(format!("cannot set up the connection to {}: {}", self.at, cause(&error))))
    }

    async fn request(&self, name: &str, ask: Vec<u8>) -> Result<Answer, Failure> {
        let at = &self.at;
        let answer = match at {
            Place::Unix(_) => self.send(format!("http://localhost/api/v1/{name}"), ask).await?,
            Place::Url(url) => self.send(format!("{}/api/v1/{name}", url.as_str().trim_end_matches('/')), ask).await?,
            Place::Kubernetes(inside) => inside.request(name, self.token.clone(), ask).await?,
        };
        let status = answer.status();
        if status == StatusCode::OK && answer.kind().is_some_and(|kind| kind == LINES) {
            return Ok(answer);
        }
        let said = said(answer).await;
        Err(match status {
            StatusCode::UNAUTHORIZED => Failure::new(
                Exit::Config,
                format!("{at} does not let you read its log: {said} (--token-file, --cert-file)"),
            ),
            StatusCode::FORBIDDEN => Failure::new(Exit::Config, format!("{at}: {said}")),
            StatusCode::SERVICE_UNAVAILABLE => Failure::new(Exit::Io, format!("{at}: {said}")),
            _ => Failure::new(
                Exit::Config,
                format!("{at} answered {status}, so it is not a decklog that lets its log be read: {said}"),
            ),
        })
    }

    async fn send(&self, url: String, ask: Vec<u8>) -> Result<Answer, Failure> {
        let at = &self.at;
        let mut request = self.client().await?.post(url).header(CONTENT_TYPE, "application/json").body(ask);
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, token.clone());
        }
        match tokio::time::timeout(SERVER_TIMEOUT, request.send()).await {
            Ok(Ok(response)) => Ok(Answer::Direct(response)),
            Ok(Err(error)) => {
                let what = if error.is_connect() { "cannot connect to" } else { "no answer from" };
                let error = error.without_url();
                let (through, why) =
                    (at.route().through(), refusal(&error).map_or_else(|| cause(&error), str::to_owned));
                Err(Failure::new(Exit::Io, format!("{what} {at}{through}: {why}")))
            }
            Err(_elapsed) => {
                let through = at.route().through();
                Err(Failure::new(Exit::Io, format!("{at} did not answer within {SERVER_TIMEOUT:?}{through}")))
            }
        }
    }

    async fn read<T: DeserializeOwned>(
        &self,
        mut answer: Answer,
        (note, is_gone): Beside<'_>,
        put: &mut Put<'_, T>,
    ) -> Result<(), Failure> {
        let broke = |why: String| {
            Failure::new(Exit::Io, format!("the answer of {} is not whole: {why}; a part of it is printed", self.at))
        };
        let (mut come, mut looked) = (BytesMut::new(), 0);
        loop {
            while let Some(length) = come[looked..].iter().position(|byte| *byte == b'\n').map(|at| looked + at) {
                let frame = serde_json::from_slice(&come[..length]).map_err(|error| broke(error.to_string()))?;
                come.advance(length + 1);
                looked = 0;
                match frame {
                    Frame::Item(item) => put(item)?,
                    Frame::Note(text) => note(&text),
                    Frame::Alive if is_gone() => return Err(Failure::closed_pipe()),
                    Frame::Alive => {}
                    Frame::End(end) => return end.into(),
                }
            }
            looked = come.len();
            if looked > LONGEST {
                return Err(broke(format!("one line of it has more than {} MiB", LONGEST >> 20)));
            }
            match answer.chunk(ALIVE_INTERVAL * 4).await {
                Ok(Some(bytes)) => come.extend_from_slice(&bytes),
                Ok(None) => return Err(broke("it breaks off".to_owned())),
                Err(why) => return Err(broke(why)),
            }
        }
    }
}

/// Questions of one call of an assistant, which end with it.
pub(super) struct OneCall {
    server: Arc<Server>,
    /// The cluster that is meant where a question names none.
    cluster: Option<String>,
    stop: CancellationToken,
}

impl OneCall {
    pub(super) fn new(server: Arc<Server>, cluster: Option<String>) -> Self {
        Self { server, cluster, stop: CancellationToken::new() }
    }
}

impl Asking for OneCall {
    fn ask(
        &self,
        name: &'static str,
        question: &RawValue,
        cluster: Option<&str>,
        note: &dyn Fn(&str),
        put: &mut Put<'_, Box<RawValue>>,
    ) -> Result<(), Failure> {
        let cluster = cluster.map(str::to_owned).or_else(|| self.cluster.clone());
        let ask = Ask { ask: question, cluster, zone: None };
        let answered = self.server.answer_on(name, ask, (note, &|| false), put);
        // Dropping the answer closes the connection, and so the server reads on for nobody.
        block_on(async { self.stop.run_until_cancelled(answered).await.unwrap_or_else(|| Err(Failure::closed_pipe())) })
    }

    fn end(&self) {
        self.stop.cancel();
    }
}

/// Returns the text of a refusal.
async fn said(mut answer: Answer) -> String {
    let mut text = Vec::new();
    while let Ok(Some(bytes)) = answer.chunk(SERVER_TIMEOUT).await {
        text.extend_from_slice(&bytes);
        if text.len() > SAID {
            text.truncate(SAID);
            break;
        }
    }
    printable(String::from_utf8_lossy(&text).trim()).into_owned()
}

fn token(path: &std::path::Path) -> Result<HeaderValue, Failure> {
    let wrong =
        |what: String| Failure::new(Exit::Config, format!("cannot use the token in {}: {what}", path.display()));
    let text = fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    let mut value = HeaderValue::try_from(format!("Bearer {}", text.trim()))
        .map_err(|_| wrong("it holds more than one line".to_owned()))?;
    value.set_sensitive(true);
    Ok(value)
}

/// The zone in which we read times, for the server.
fn zone() -> Option<String> {
    let named = variable("TZ").map(|zone| zone.trim_start_matches(':').to_owned());
    named.or_else(|| TimeZone::try_system().ok()?.iana_name().map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::questions::status::Statuses;

    #[test]
    fn a_server_is_a_url_or_a_socket() {
        let at = |text: &str| {
            Place::read(text, &ServerArgs::default()).map(|at| at.to_string()).map_err(|error| error.to_string())
        };
        assert_eq!(at("https://decklog.example:9465/").as_deref(), Ok("https://decklog.example:9465"));
        assert_eq!(at("https://proxy.example/eu1/").as_deref(), Ok("https://proxy.example/eu1"));
        assert_eq!(at("unix:/run/decklog/http.sock").as_deref(), Ok("unix:/run/decklog/http.sock"));
        assert_eq!(at("unix:///run/decklog/http.sock").as_deref(), Ok("unix:/run/decklog/http.sock"));
        assert_eq!(at("/run/decklog/http.sock").as_deref(), Ok("unix:/run/decklog/http.sock"));
        for wrong in ["decklog.example:9465", "ftp://x", "", "https://", "https://a:b@x"] {
            assert!(at(wrong).is_err(), "{wrong}");
        }
    }

    /// The server accepts and says nothing: without the end of the call its time limit would be waited for.
    #[test]
    fn a_call_that_ends_asks_no_more() {
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", silent.local_addr().unwrap());
        let call = OneCall::new(Arc::new(Server::new(&url, &ServerArgs::default()).unwrap()), None);
        std::thread::scope(|scope| {
            let asks = scope.spawn(|| call.ask("show", RawValue::NULL, None, &|_| (), &mut |_| Ok(())));
            let connected = silent.accept().unwrap();
            call.end();
            let failure = asks.join().unwrap().unwrap_err();
            assert_eq!(failure.text(), Failure::closed_pipe().text());
            drop(connected);
        });
    }

    /// An answer whose rights end before it does is no success, whatever has come of it.
    #[test]
    fn an_answer_that_is_cut_fails_and_says_why() {
        let note = "{\"note\":\"beside\"}\n";
        let ended = |exit: u8| format!("{note}{{\"end\":{{\"exit\":{exit},\"text\":\"your rights changed\"}}}}\n");
        for (body, exit, says) in [
            (ended(78), Exit::Config, "your rights changed"),
            (ended(74), Exit::Io, "your rights changed"),
            (note.to_owned(), Exit::Io, "is not whole: it breaks off"),
            (format!("{note}{{\"end\":{{"), Exit::Io, "is not whole: it breaks off"),
        ] {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let server = format!("http://{}", listener.local_addr().unwrap());
            let server = Server::new(&server, &ServerArgs::default()).unwrap();
            let failure = std::thread::scope(|scope| {
                let asks = scope.spawn(|| server.ask(Statuses::default(), None, &|| false, &mut |_| Ok(())));
                let (mut connection, _) = listener.accept().unwrap();
                let mut request = Vec::new();
                while !request.ends_with(b"}") {
                    let mut part = [0; 4096];
                    let length = std::io::Read::read(&mut connection, &mut part).unwrap();
                    request.extend_from_slice(&part[..length]);
                }
                let head = "HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\nconnection: close\r\n\r\n";
                std::io::Write::write_all(&mut connection, format!("{head}{body}").as_bytes()).unwrap();
                drop(connection);
                asks.join().unwrap().unwrap_err()
            });
            assert!(failure.exit() == exit && failure.text().contains(says), "{body}: {failure:?}");
        }
    }

    #[test]
    fn nothing_secret_goes_over_a_network_in_clear() {
        let server = |url: &str| Server::new(url, &ServerArgs::default());
        for fine in ["https://decklog.example", "http://127.0.0.1:9465", "http://localhost:9465", "http://[::1]:1"] {
            assert!(server(fine).is_ok(), "{fine}");
        }
        assert!(server("http://decklog.example").unwrap_err().to_string().contains("https://"));
    }
}
