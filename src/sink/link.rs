//! The connection to one server over HTTP: its client, its headers, what its answers mean, and what may be said about
//! it. Shared by the sinks whose servers speak HTTP.

mod answer;
mod guard;
mod route;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::error::Error;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use futures::future::BoxFuture;
use http_body_util::BodyExt;
use jiff::fmt::rfc2822;
use memchr::memmem;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue, LOCATION, RETRY_AFTER};
use reqwest::{Client, ClientBuilder, Method, Request, RequestBuilder, Response, StatusCode, Url, redirect};

use super::settings::{self, Network};
use super::tls::{self, Tls};
use super::{CREDENTIALS_WAIT, Item, SinkError};
pub(super) use answer::{Answer, End};
use guard::{Allowed, Guard};
pub(crate) use route::{Route, refusal};

/// The longest text of an answer that is quoted.
const SAID: usize = 200;

/// A text of an answer that has this many bytes in common with what was sent, or with a secret, is not quoted.
const COMMON: usize = 16;

/// Length below which a text is no secret.
const SHORTEST: usize = 4;

/// Number of headers that an answer may have.
const MOST_HEADERS: usize = 1000;

/// Time limit for the body of an answer whose status is enough.
const BODY_WAIT: Duration = Duration::from_secs(5);

/// The longest wait that a server may ask for.
pub(super) const LONGEST_WAIT: Duration = Duration::from_hours(1);

/// Address of a server, and the identity presented to it.
pub(super) struct HttpEndpoint<'c> {
    pub(super) url: &'c Url,
    pub(super) timeout: Duration,
    pub(super) headers: Option<&'c BTreeMap<String, String>>,
    pub(super) headers_file: Option<&'c PathBuf>,
    pub(super) login: Option<Login>,
    pub(super) tls: &'c settings::Tls,
    /// The networks that it may be in; none for all.
    pub(super) allow_networks: &'c [Network],
    /// True if HTTP/2 is used, also without TLS.
    pub(super) http2: bool,
}

/// Source of the `Authorization` header. Each file is read again when it changes.
pub(super) enum Login {
    Bearer(PathBuf),
    ApiKey(PathBuf),
    Basic { user: String, password_file: PathBuf },
}

impl Login {
    /// The file with the secret, and what people call what is in it.
    fn file(&self) -> (&PathBuf, &'static str) {
        match self {
            Self::Bearer(path) => (path, "token"),
            Self::ApiKey(path) => (path, "API key"),
            Self::Basic { password_file, .. } => (password_file, "password"),
        }
    }

    fn header(&self, secret: &str) -> String {
        match self {
            Self::Bearer(_) => format!("Bearer {secret}"),
            Self::ApiKey(_) => format!("ApiKey {secret}"),
            Self::Basic { user, .. } => format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{secret}"))),
        }
    }
}

/// Client of a server. Headers and certificates from files are read again when they change.
pub(super) struct HttpClient {
    url: Url,
    /// The URL without what may be secret in it: what people see.
    pub(super) shown: String,
    /// Parts of the URL that may be secret.
    private: Vec<String>,
    timeout: Duration,
    fixed: HeaderMap,
    headers_file: Option<PathBuf>,
    login: Option<Login>,
    tls: Tls,
    /// Networks that it may connect to.
    allowed: Allowed,
    route: Route,
    http2: bool,
    /// The fixed headers, and those last read from files.
    headers: Option<HeaderMap>,
    client: Option<Client>,
    /// In the place of the network, in simulations.
    pub(super) wire: Option<Transport>,
}

/// Replacement for the network in tests. Its error is the reason why there is no answer.
pub type Transport = Arc<dyn Fn(Request) -> BoxFuture<'static, Result<Response, String>> + Send + Sync>;

impl std::fmt::Debug for HttpClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpClient").field("url", &self.shown).finish_non_exhaustive()
    }
}

impl HttpClient {
    pub(super) fn new(endpoint: HttpEndpoint<'_>) -> Result<Self, String> {
        let url = endpoint.url.clone();
        let allowed = Allowed(endpoint.allow_networks.to_vec());
        guard::look_at(&url, &allowed)?;
        // A proxy resolves the name, and nobody here sees to where: with networks of its own a sink does without.
        let route = if allowed.is_everything() { Route::to(&url) } else { Route::direct() };
        let mut fixed = HeaderMap::new();
        for (name, value) in endpoint.headers.into_iter().flatten() {
            add(&mut fixed, name, value).map_err(|error| format!("`headers`: {error}"))?;
        }
        Ok(Self {
            shown: shown(url.as_str()),
            private: private(&url).into_iter().chain(route.secret()).collect(),
            url,
            timeout: endpoint.timeout,
            fixed,
            headers_file: endpoint.headers_file.cloned(),
            login: endpoint.login,
            tls: Tls::new(endpoint.tls)?,
            allowed,
            route,
            http2: endpoint.http2,
            headers: None,
            client: None,
            wire: None,
        })
    }

    /// The proxy that it is reached through, as a part of a sentence.
    pub(super) fn through(&self) -> String {
        self.route.through()
    }

    /// Reports whether the URL has a path.
    pub(super) fn has_path(&self) -> bool {
        !matches!(self.url.path(), "" | "/")
    }

    /// Connections are made again, and files must be readable now.
    pub(super) fn renew(&mut self) {
        self.client = None;
        self.headers = None;
        self.tls.forget();
    }

    /// The next request makes its own connection. One that is shared by several requests may be dead, and nobody would
    /// know for long.
    pub(super) fn reconnect(&mut self) {
        self.client = None;
    }

    /// Reads the files that there are. One that cannot be read for a moment (it is being replaced) leaves what was
    /// read last.
    pub(super) async fn refresh(&mut self) -> Result<(), SinkError> {
        match self.read_headers().await {
            Ok(headers) => self.headers = Some(headers),
            Err(text) if self.headers.is_none() => return Err(SinkError::retry(text)),
            Err(text) => tracing::warn!("{text}; the headers that were read last are used"),
        }
        if self.url.scheme() == "http" {
            if self.client.is_none() {
                // The system's certificates are not needed, and need not be there.
                self.client = Some(self.build(self.builder().tls_certs_only([]))?);
            }
            return Ok(());
        }
        let (tls, other) = self.tls.refresh().await?;
        if other || self.client.is_none() {
            let mut tls = (*tls).clone();
            if self.http2 {
                tls.alpn_protocols = vec![b"h2".to_vec()];
            }
            self.client = Some(self.build(self.builder().tls_backend_preconfigured(tls))?);
        }
        Ok(())
    }

    async fn read_headers(&self) -> Result<HeaderMap, String> {
        let mut headers = self.fixed.clone();
        if let Some(path) = &self.headers_file {
            let problem =
                |error: &dyn std::fmt::Display| format!("cannot use the headers in {}: {error}", path.display());
            let text = tokio::fs::read_to_string(path).await.map_err(|error| problem(&error))?;
            for (number, line) in text.lines().enumerate() {
                if line.trim().is_empty() {
                    continue;
                }
                // Only the number of the line is named: a line may be all secret.
                let number = number + 1;
                let (name, value) =
                    line.split_once(':').ok_or_else(|| problem(&format!("line {number} is not `Name: value`")))?;
                add(&mut headers, name, value).map_err(|_| problem(&format!("line {number} is not a header")))?;
            }
        }
        if let Some(login) = &self.login {
            let (path, what) = login.file();
            let problem =
                |error: &dyn std::fmt::Display| format!("cannot use the {what} in {}: {error}", path.display());
            let text = tokio::fs::read_to_string(path).await.map_err(|error| problem(&error))?;
            let value = login.header(text.trim());
            let mut value =
                HeaderValue::try_from(value).map_err(|_| problem(&format!("it holds more than one {what}")))?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        Ok(headers)
    }

    fn builder(&self) -> ClientBuilder {
        // The provider of the whole process: kube uses it as well. Another one that was there first serves too.
        crate::core::net::install_crypto_provider();
        let builder = Client::builder();
        let builder = if self.http2 { builder.http2_prior_knowledge() } else { builder };
        // With a proxy only its own name is looked up here, and that is the operator's word.
        let builder = match self.route.proxy() {
            Some(_) => builder,
            None => builder.dns_resolver(Arc::new(Guard(guard::System, self.allowed.clone()))),
        };
        builder
            .user_agent(concat!("decklog/", env!("CARGO_PKG_VERSION")))
            .redirect(redirect::Policy::none())
            .referer(false)
            .timeout(self.timeout)
            // One that was just used may not be back when the next request goes out: with a single one, many requests
            // would make a connection of their own.
            .pool_max_idle_per_host(2)
            // A header that breaks the rules of HTTP changes nothing about what the status says.
            .http1_max_headers(MOST_HEADERS)
            .http1_ignore_invalid_headers_in_responses(true)
            .http1_allow_spaces_after_header_name_in_responses(true)
            .http1_allow_obsolete_multiline_headers_in_responses(true)
    }

    fn build(&self, builder: ClientBuilder) -> Result<Client, SinkError> {
        if let Some(proxy) = self.route.proxy()
            && self.http2
            && self.url.scheme() == "http"
            && !proxy.is_socks()
        {
            return Err(SinkError::halt(format!(
                "HTTP/2 without TLS does not pass {proxy}; set `url` to https://, or name the host in $NO_PROXY and restart decklog"
            )));
        }
        let builder = self.route.set(builder).map_err(SinkError::halt)?;
        builder.build().map_err(|error| SinkError::retry(format!("cannot set up TLS: {}", chain(&error))))
    }

    pub(super) fn request(&self, method: Method) -> Result<RequestBuilder, SinkError> {
        self.request_at(method, &[], &[])
    }

    /// A request to another URL of the same server.
    pub(super) fn request_to(&self, method: Method, url: Url) -> Result<RequestBuilder, SinkError> {
        if url.origin() != self.url.origin() {
            return Err(SinkError::halt(format!("{} is of another server than {}", shown(url.as_str()), self.shown)));
        }
        let client = self.client.as_ref().ok_or_else(|| SinkError::retry("the connection is not set up"))?;
        Ok(client.request(method, url).headers(self.headers.clone().unwrap_or_default()))
    }

    /// Adds a URL whose parts may be secret.
    pub(super) fn keep_private(&mut self, url: &Url) {
        self.private.extend(private(url));
    }

    /// A request to what is below the URL, with parameters.
    pub(super) fn request_at(
        &self,
        method: Method,
        below: &[&str],
        parameters: &[(&str, &str)],
    ) -> Result<RequestBuilder, SinkError> {
        let client = self.client.as_ref().ok_or_else(|| SinkError::retry("the connection is not set up"))?;
        let mut url = self.url.clone();
        if !below.is_empty()
            && let Ok(mut segments) = url.path_segments_mut()
        {
            segments.pop_if_empty().extend(below);
        }
        if !parameters.is_empty() {
            url.query_pairs_mut().extend_pairs(parameters);
        }
        Ok(client.request(method, url).headers(self.headers.clone().unwrap_or_default()))
    }

    /// Sends a request and reads the answer, with at most `most` bytes of its body.
    pub(super) async fn ask(&self, request: RequestBuilder, most: usize) -> Result<Answer, SinkError> {
        let response = self.send(request).await.map_err(SinkError::retry)?;
        Ok(read(response, most, self.timeout).await)
    }

    /// Sends a request whose answer is its status. A body that breaks off, or takes longer than [`BODY_WAIT`], leaves the
    /// status what it is.
    pub(super) async fn ask_status(&self, request: RequestBuilder, most: usize) -> Result<Answer, SinkError> {
        let response = self.send(request).await.map_err(SinkError::retry)?;
        Ok(read(response, most, BODY_WAIT.min(self.timeout)).await)
    }

    /// Returns the meaning of a status that is the same at every server; none for others. `heal` is the remedy for rejected
    /// credentials.
    pub(super) fn meaning(&self, answer: &Answer, sent: &[u8], heal: &str) -> Option<SinkError> {
        let (url, status) = (&self.shown, answer.status);
        let said = self.quotable(&answer.body, sent).map(|said| format!(": {said}")).unwrap_or_default();
        let wait = answer.wait();
        if status.is_redirection() {
            let location = answer.headers.get(LOCATION).and_then(|to| to.to_str().ok());
            let to = location.map(|to| format!(" to {}", shown(to))).unwrap_or_default();
            return Some(SinkError::halt(format!(
                "{url} answered {status}{to}, and decklog does not follow redirects; set `url` to where it leads, and send SIGHUP"
            )));
        }
        match status {
            StatusCode::PROXY_AUTHENTICATION_REQUIRED if self.route.proxy().is_some() => self.proxy_refused(),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::PROXY_AUTHENTICATION_REQUIRED => {
                Some(self.rejected(answer, &said, heal))
            }
            StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS => {
                Some(SinkError::Retry { text: format!("{url} answered {status}{said}"), after: wait })
            }
            _ if status.is_success() || status.is_client_error() => None,
            _ => Some(SinkError::Retry { text: format!("{url} answered {status}{said}"), after: wait }),
        }
    }

    /// Returns the error for rejected credentials. `said` is what the answer says, behind a colon, or nothing.
    pub(super) fn rejected(&self, answer: &Answer, said: &str, heal: &str) -> SinkError {
        let (url, status) = (&self.shown, answer.status);
        SinkError::Retry {
            text: format!("{url} answered {status}{said}; {heal}: the files are read again before each try"),
            after: Some(answer.wait().unwrap_or_default().max(CREDENTIALS_WAIT)),
        }
    }

    /// Returns the error for a proxy that answers 407.
    pub(super) fn proxy_refused(&self) -> Option<SinkError> {
        let (url, through) = (&self.shown, self.route.through());
        let why = route::ASKS_FOR_A_PASSWORD;
        let text = format!("no answer from {url}{through}: {why}, and restart decklog");
        self.route.proxy().map(|_| SinkError::renew(text))
    }

    /// A sentence about an answer, which quotes what may be quoted of it.
    pub(super) fn told(&self, answer: &Answer, sent: &[u8]) -> String {
        let said = self.quotable(&answer.body, sent).map(|said| format!(": {said}")).unwrap_or_default();
        format!("{} answered {}{said}", self.shown, answer.status)
    }

    /// Sends a request. The error is a sentence about why it had no answer.
    pub(super) async fn send(&self, request: RequestBuilder) -> Result<Response, String> {
        let Some(wire) = &self.wire else { return request.send().await.map_err(|error| self.failed(error)) };
        let answer = wire(request.build().map_err(|error| self.failed(error))?);
        match tokio::time::timeout(self.timeout, answer).await {
            Ok(answer) => answer.map_err(|why| format!("no answer from {}: {why}", self.shown)),
            Err(_elapsed) => Err(format!("{} did not answer within {:?}", self.shown, self.timeout)),
        }
    }

    /// A sentence about a request that had no answer.
    fn failed(&self, error: reqwest::Error) -> String {
        let (url, through) = (&self.shown, self.route.through());
        if error.is_timeout() {
            return format!("{url} did not answer within {:?}{through}", self.timeout);
        }
        let what = if error.is_connect() { "cannot connect to" } else { "no answer from" };
        let error = error.without_url();
        match refusal(&error) {
            Some(refusal) => format!("{what} {url}{through}: {refusal}"),
            None => format!("{what} {url}{through}: {}", cause(&error)),
        }
    }

    /// The text of an answer in one short line; none where it repeats what was sent, which may be private.
    pub(super) fn quotable(&self, answer: &[u8], sent: &[u8]) -> Option<String> {
        let text = String::from_utf8_lossy(answer);
        let mut said = String::new();
        for word in text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty()) {
            if !said.is_empty() {
                said.push(' ');
            }
            said.push_str(word);
            if said.len() > SAID {
                let end = said.floor_char_boundary(SAID);
                said.truncate(end);
                said.push('…');
                break;
            }
        }
        // It becomes a part of a sentence.
        said.truncate(said.trim_end_matches(['.', ',', ';', ':', ' ']).len());
        let repeats = said.as_bytes().windows(COMMON).any(|part| memmem::find(sent, part).is_some());
        let secrets = self.headers.iter().flat_map(HeaderMap::values).map(HeaderValue::as_bytes);
        // In the whole answer: what is quoted of it may end in the middle of a secret.
        let betrays = secrets
            .flat_map(|value| value.split(|byte| *byte == b' '))
            .filter(|secret| !matches!(*secret, b"Bearer" | b"Basic"))
            .chain(self.private.iter().map(String::as_bytes))
            .filter(|secret| secret.len() >= SHORTEST)
            .flat_map(|secret| secret.windows(COMMON.min(secret.len())))
            .any(|part| memmem::find(answer, part).is_some());
        (!said.is_empty() && !repeats && !betrays).then_some(said)
    }
}

/// Reads an answer: at most `most` bytes of its body, and what of it comes `within` that time.
async fn read(response: Response, most: usize, within: Duration) -> Answer {
    let (head, mut body) = http::Response::<reqwest::Body>::from(response).into_parts();
    let mut answer = Answer { headers: head.headers, ..Answer::of(head.status) };
    let rest = async {
        loop {
            match body.frame().await {
                None => return End::Whole,
                Some(Err(_)) => return End::BrokeOff,
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => {
                        let room = most - answer.body.len();
                        answer.body.extend_from_slice(&data[..data.len().min(room)]);
                        if data.len() > room {
                            return End::TooLong;
                        }
                    }
                    Err(frame) => answer.trailers.extend(frame.into_trailers().ok().into_iter().flatten()),
                },
            }
        }
    };
    let end = tokio::time::timeout(within, rest).await.unwrap_or(End::BrokeOff);
    answer.end = end;
    answer
}

fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = match text.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => {
            let date = rfc2822::DateTimeParser::new().parse_timestamp(text).ok()?;
            SystemTime::from(date).duration_since(now).unwrap_or_default()
        }
    };
    Some(wait.min(LONGEST_WAIT))
}

/// Returns the leading entries that fit into one request: at least one.
pub(super) fn first_part(batch: &[Item], most: usize, bytes: usize) -> &[Item] {
    let mut sum = 0;
    let fits = |item: &&Item| {
        sum += item.line.len();
        sum <= bytes
    };
    let count = batch.iter().take(most).take_while(fits).count();
    &batch[..count.max(1)]
}

/// The bytes as gzip: quickly rather than as small as can be.
pub(super) fn gzip(bytes: &[u8]) -> Bytes {
    let mut encoder = flate2::write::GzEncoder::new(Vec::with_capacity(bytes.len() / 4), flate2::Compression::fast());
    encoder.write_all(bytes).and_then(|()| encoder.finish()).expect("writing into memory does not fail").into()
}

/// Adds a header; the error never quotes its value.
fn add(headers: &mut HeaderMap, name: &str, value: &str) -> Result<(), String> {
    let name = HeaderName::try_from(name.trim()).map_err(|_| "a name is not a header's name".to_owned())?;
    let mut value =
        HeaderValue::try_from(value.trim()).map_err(|_| format!("the value of {name} cannot be sent in a header"))?;
    value.set_sensitive(true);
    headers.insert(name, value);
    Ok(())
}

/// The server of a URL, with `/…` where there is more: webhooks have their secret in the path, others in a parameter.
pub(super) fn shown(url: &str) -> String {
    match Url::parse(url) {
        Ok(url) if url.has_host() => {
            let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
            let more = if url.path() == "/" && url.query().is_none() { "" } else { "…" };
            format!("{}://{}{port}/{more}", url.scheme(), url.host_str().unwrap_or_default())
        }
        _ => "/…".to_owned(),
    }
}

/// Returns the parts of a URL that may be secret, as they are sent and as a server reads them: the path as a whole, each part
/// of it that is no plain word, and all parameters.
fn private(url: &Url) -> Vec<String> {
    let read = |text: &str| percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned();
    // `events` and `v1` stand in many an answer.
    let is_word = |text: &str| text.len() <= 10 && text.bytes().all(|byte| byte.is_ascii_lowercase());
    let parts = url.path_segments().into_iter().flatten().filter(|part| !is_word(part));
    let mut private: Vec<String> = parts.map(str::to_owned).collect();
    private.push(url.path().to_owned());
    private.extend(url.query().map(str::to_owned));
    private.extend(url.query_pairs().flat_map(|(name, value)| [name.into_owned(), value.into_owned()]));
    let decoded: Vec<String> = private.iter().map(|text| read(text)).filter(|text| !private.contains(text)).collect();
    private.extend(decoded);
    private
}

/// Texts of errors that only say that a cause follows.
const WRAPPERS: [&str; 4] = ["error sending request", "dns error", "error resolving DNS", "tcp connect error"];

/// An error and what caused it, in one line.
pub(super) fn chain(error: &(dyn Error + 'static)) -> String {
    // Some libraries quote what rustls says, and name it as their cause as well.
    let tls = all(error).find_map(|error| Some((tls::of(error)?.to_string(), tls::meaning(error)?)));
    let mut text = String::new();
    for error in all(error) {
        let mut more = words(error);
        if let Some((quoted, meaning)) = &tls {
            more = more.replace(quoted, meaning);
        }
        let says_nothing = WRAPPERS.contains(&more.as_str()) || more.starts_with("client error (");
        if text.contains(&more) || (says_nothing && error.source().is_some()) {
            continue;
        }
        if !text.is_empty() {
            text.push_str(": ");
        }
        text.push_str(&more);
    }
    text
}

/// Reports whether TLS caused an error; its text then contains the remedy.
#[cfg(feature = "nats")]
pub(super) fn is_of_tls(error: &(dyn Error + 'static)) -> bool {
    all(error).any(|error| tls::of(error).is_some())
}

/// The innermost cause of an error, in one line: what libraries lay over it helps nobody.
pub(crate) fn cause(error: &(dyn Error + 'static)) -> String {
    words(all(error).last().unwrap_or(error))
}

/// An error, what caused it, and so on.
fn all<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error: &&'e (dyn Error + 'static)| (*error).source())
}

/// Returns the text of one error. One of TLS contains the remedy, and is the same at each attempt.
fn words(error: &(dyn Error + 'static)) -> String {
    let plain = || error.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
    tls::meaning(error).unwrap_or_else(plain)
}
