//! The connection to one server: its client, its headers, and what may be said about it.

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use memchr::memmem;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, ClientBuilder, Method, Request, RequestBuilder, Response, Url, redirect};

use super::guard::{self, Allowed, Guard};
use super::sign::Signer;
use crate::config;
use crate::sink::SinkError;
use crate::sink::tls::Tls;

/// The longest text of an answer that is told.
const SAID: usize = 200;

/// A text of an answer that has this many bytes in common with what was sent, or with a secret, is not told.
const COMMON: usize = 16;

/// How a server is reached. Headers and certificates from files are read anew as they change.
pub(super) struct Link {
    url: Url,
    /// The URL without what may be secret in it: what people are told.
    pub(super) shown: String,
    timeout: Duration,
    fixed: HeaderMap,
    headers_file: Option<PathBuf>,
    bearer_file: Option<PathBuf>,
    tls: Tls,
    /// Where it may connect to.
    allowed: Allowed,
    pub(super) signer: Option<Signer>,
    /// The fixed headers, and those last read from files.
    headers: Option<HeaderMap>,
    client: Option<Client>,
    /// In the place of the network, in simulations.
    pub(super) wire: Option<Wire>,
}

/// What answers a request where there is no network. The error says why there is no answer.
pub type Wire = Arc<dyn Fn(Request) -> BoxFuture<'static, Result<Response, String>> + Send + Sync>;

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("url", &self.shown).finish_non_exhaustive()
    }
}

impl Link {
    pub(super) fn new(config: &config::HttpSink) -> Result<Self, String> {
        let url = Url::parse(&config.url).map_err(|error| format!("`url` is not a URL: {error}"))?;
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            return Err("`url` must begin with http:// or https:// and name a host".to_owned());
        }
        let allowed = Allowed::new(&config.allow_networks)?;
        guard::look_at(&url, &allowed)?;
        let mut fixed = HeaderMap::new();
        for (name, value) in &config.headers {
            add(&mut fixed, name, value).map_err(|error| format!("`headers`: {error}"))?;
        }
        Ok(Self {
            shown: shown(url.as_str()),
            url,
            timeout: config.timeout,
            fixed,
            headers_file: config.headers_file.clone(),
            bearer_file: config.bearer_file.clone(),
            tls: Tls::new(&config.tls)?,
            allowed,
            signer: config.signing_key_file.as_deref().map(Signer::new),
            headers: None,
            client: None,
            wire: None,
        })
    }

    /// Connections are made anew, and files must be readable now.
    pub(super) fn renew(&mut self) {
        self.client = None;
        self.headers = None;
        self.tls.forget();
        self.signer.iter_mut().for_each(Signer::forget);
    }

    /// Reads the files that there are. One that cannot be read for a moment (it is being replaced) leaves what was
    /// read last.
    pub(super) async fn refresh(&mut self) -> Result<(), SinkError> {
        match self.read_headers().await {
            Ok(headers) => self.headers = Some(headers),
            Err(text) if self.headers.is_none() => return Err(SinkError::retry(text)),
            Err(text) => tracing::warn!("{text}; the headers that were read last are used"),
        }
        if let Some(signer) = &mut self.signer {
            signer.refresh().await?;
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
            self.client = Some(self.build(self.builder().tls_backend_preconfigured((*tls).clone()))?);
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
                // Only the number of the line is told: a line may be all secret.
                let number = number + 1;
                let (name, value) =
                    line.split_once(':').ok_or_else(|| problem(&format!("line {number} is not `Name: value`")))?;
                add(&mut headers, name, value).map_err(|_| problem(&format!("line {number} is not a header")))?;
            }
        }
        if let Some(path) = &self.bearer_file {
            let problem =
                |error: &dyn std::fmt::Display| format!("cannot use the token in {}: {error}", path.display());
            let text = tokio::fs::read_to_string(path).await.map_err(|error| problem(&error))?;
            let value = format!("Bearer {}", text.trim());
            let mut value = HeaderValue::try_from(value).map_err(|_| problem(&"it holds more than a token"))?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        Ok(headers)
    }

    fn builder(&self) -> ClientBuilder {
        // The provider of the whole process: kube uses it as well. Another one that was there first serves too.
        rustls::crypto::ring::default_provider().install_default().ok();
        let builder = Client::builder()
            .user_agent(concat!("decklog/", env!("CARGO_PKG_VERSION")))
            .redirect(redirect::Policy::none())
            .referer(false)
            .dns_resolver(Arc::new(Guard(guard::System, self.allowed.clone())))
            .timeout(self.timeout)
            .pool_max_idle_per_host(1);
        // A proxy would resolve the name, and nobody here would see to where.
        if self.allowed.is_everything() { builder } else { builder.no_proxy() }
    }

    fn build(&self, builder: ClientBuilder) -> Result<Client, SinkError> {
        builder.build().map_err(|error| SinkError::retry(format!("cannot set up TLS: {}", chain(&error))))
    }

    pub(super) fn request(&self, method: Method) -> Result<RequestBuilder, SinkError> {
        let client = self.client.as_ref().ok_or_else(|| SinkError::retry("the connection is not set up"))?;
        Ok(client.request(method, self.url.clone()).headers(self.headers.clone().unwrap_or_default()))
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
        let url = &self.shown;
        if error.is_timeout() {
            return format!("{url} did not answer within {:?}", self.timeout);
        }
        let what = if error.is_connect() { "cannot connect to" } else { "no answer from" };
        format!("{what} {url}: {}", chain(&error.without_url()))
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
        let repeats = said.as_bytes().windows(COMMON).any(|part| memmem::find(sent, part).is_some());
        let secrets = self.headers.iter().flat_map(HeaderMap::values).map(HeaderValue::as_bytes);
        // In the whole answer: what is told of it may end in the middle of a secret.
        let tells = secrets
            .flat_map(|value| value.split(|byte| *byte == b' '))
            .filter(|secret| secret.len() >= 4 && !matches!(*secret, b"Bearer" | b"Basic"))
            .flat_map(|secret| secret.windows(COMMON.min(secret.len())))
            .any(|part| memmem::find(answer, part).is_some());
        (!said.is_empty() && !repeats && !tells).then_some(said)
    }
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

/// A URL without user, password, query and fragment.
pub(super) fn shown(url: &str) -> String {
    match Url::parse(url) {
        Ok(url) if url.has_host() => {
            let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
            format!("{}://{}{port}{}", url.scheme(), url.host_str().unwrap_or_default(), url.path())
        }
        _ => url.split(['?', '#']).next().unwrap_or_default().to_owned(),
    }
}

/// An error and what caused it, in one line.
pub(in crate::sink) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = error.source();
    }
    text
}
