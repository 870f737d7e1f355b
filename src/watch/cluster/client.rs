//! Requests to the API server, with a bound on everything.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use tokio::sync::{Mutex, Semaphore};
use tokio::time::{Instant, timeout};

use super::credentials::{Builder, Built, ClientSource, Current, FILE_POLL_INTERVAL};
use super::kubeconfig::Caller;
use super::{ClusterError, Failure, Limits, Settings, failure};
use crate::core::net::USER_AGENT;

/// Credentials that are not accepted are read again this often, at most, while no file has changed: a plugin may
/// have others by then.
const CREDENTIALS_RETRY_DELAY: Duration = Duration::from_secs(10);
/// An answer other than 2xx is read up to here.
const ERROR_BODY: usize = 64 << 10;

/// The API server, for the whole life of the daemon; cheap to clone.
#[derive(Clone)]
pub struct Api {
    pub(super) inner: Arc<Inner>,
    /// Generation of the client that requests are limited to.
    pinned: Option<u64>,
}

pub(super) struct Inner {
    builder: Builder,
    pub(super) name: String,
    /// The context that was found at first.
    context: Option<String>,
    unasked: bool,
    pub(super) current: RwLock<Current>,
    /// Held while a client is built; when that was last tried.
    building: Mutex<Instant>,
}

impl std::fmt::Debug for Api {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Api").field("name", &self.inner.name).finish_non_exhaustive()
    }
}

impl Api {
    /// Reads the kubeconfig and makes a client. Nothing is asked of the API server yet.
    ///
    /// # Errors
    /// Where no usable configuration is found.
    pub async fn open(settings: &Settings, limits: Limits) -> Result<Self, ClusterError> {
        let source = ClientSource::Kubeconfig(settings.clone(), Caller::of_this_process());
        Self::begin(source, settings.name.clone(), limits).await
    }

    /// For simulations: asks through a client that needs no configuration.
    #[doc(hidden)]
    pub async fn with_client(client: Client, name: &str, limits: Limits) -> Result<Self, ClusterError> {
        Self::begin(ClientSource::Given(client), Some(name.to_owned()), limits).await
    }

    async fn begin(source: ClientSource, name: Option<String>, limits: Limits) -> Result<Self, ClusterError> {
        let builder = Builder { source, limits, room: Arc::new(Semaphore::new(1)) };
        let Built { client, bare, context, cluster, unasked, files, proxy, shows_token } = builder.build(None).await?;
        let name = name.unwrap_or(cluster);
        if let Some(proxy) = &proxy {
            tracing::info!("requests to the API server go through the proxy {proxy}");
        }
        let now = Instant::now();
        let current = Current { client, bare, generation: 0, built: now, looked: now, files, proxy, shows_token };
        let current = RwLock::new(current);
        let inner = Inner { builder, name, context, unasked, current, building: Mutex::new(now) };
        Ok(Self { inner: Arc::new(inner), pinned: None })
    }

    /// Returns the generation of the present client. Through a new one the identity of the server has to be checked first.
    pub async fn generation(&self) -> u64 {
        self.client().await.1
    }

    /// The same, but it asks nothing through a client of another generation.
    #[must_use]
    pub fn pinned(&self, generation: u64) -> Self {
        Self { inner: Arc::clone(&self.inner), pinned: Some(generation) }
    }

    /// The cluster's name for people.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Reports whether a program provides the credentials and runs only because of who runs decklog: a service needs a setting
    /// for it.
    #[must_use]
    pub fn runs_unasked(&self) -> bool {
        self.inner.unasked
    }

    /// Reports whether it asks as the service account of the Pod that this process runs in: all other credentials have a context.
    #[must_use]
    pub fn is_of_this_pod(&self) -> bool {
        self.inner.context.is_none()
    }

    /// The proxy by which the API server is reached, without credentials, and the variable or the key that named it.
    #[must_use]
    pub fn proxy(&self) -> Option<String> {
        self.current(|current| current.proxy.as_ref().map(ToString::to_string))
    }

    /// Returns the time limits of the parts of a request.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.inner.builder.limits
    }

    pub(super) fn current<T>(&self, read: impl FnOnce(&Current) -> T) -> T {
        read(&self.inner.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The client and its generation, built again first where its credentials have changed or are about to run out.
    pub(super) async fn client(&self) -> (Client, u64) {
        if self.current(|current| current.expires() || current.looked.elapsed() > FILE_POLL_INTERVAL) {
            let due = {
                let mut current = self.inner.current.write().unwrap_or_else(PoisonError::into_inner);
                current.looked = Instant::now();
                current.files_changed() || current.expires()
            };
            // Where somebody is at it, the old client serves until then.
            if due && let Ok(mut tried) = self.inner.building.try_lock() {
                self.build_again().await;
                *tried = Instant::now();
            }
        }
        self.current(|current| (current.client.clone(), current.generation))
    }

    /// Reads every credential again. Many callers at once make one new client.
    pub async fn refresh(&self) {
        let asked = Instant::now();
        let mut tried = self.inner.building.lock().await;
        // Somebody else did it while we waited, or a moment ago: the same files would give the same client.
        let fresh =
            *tried >= asked || (tried.elapsed() < CREDENTIALS_RETRY_DELAY && !self.current(Current::files_changed));
        if !fresh {
            self.build_again().await;
            *tried = Instant::now();
        }
    }

    /// Makes a new client, and with it new connections, whatever became of the old one. Many callers at once make one.
    pub async fn renew(&self) {
        let asked = Instant::now();
        let mut tried = self.inner.building.lock().await;
        if *tried < asked {
            self.build_again().await;
            *tried = Instant::now();
        }
    }

    async fn build_again(&self) {
        match self.inner.builder.build(self.inner.context.as_deref()).await {
            Ok(Built { client, bare, files, proxy, shows_token, .. }) => {
                let mut current = self.inner.current.write().unwrap_or_else(PoisonError::into_inner);
                let (generation, now) = (current.generation + 1, Instant::now());
                *current = Current { client, bare, generation, built: now, looked: now, files, proxy, shows_token };
                tracing::info!("read the cluster's credentials again");
            }
            // A file may be half written; the old client goes on, and the next look tries again.
            Err(error) => tracing::warn!(%error, "cannot read the cluster's credentials again"),
        }
    }

    /// Sends a request and waits for the head of a good answer.
    ///
    /// # Errors
    /// What any other answer means, or that there was none.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        accept: &str,
        body: Vec<u8>,
    ) -> Result<Response<Body>, Failure> {
        self.ask(method, path, (accept, None), body, self.limits().head).await
    }

    /// Sends a request, and waits at most `limit` for the head of the answer. With `etag` the answer may be that nothing changed.
    pub(super) async fn ask(
        &self,
        method: Method,
        path: &str,
        (accept, etag): (&str, Option<&str>),
        body: Vec<u8>,
        limit: Duration,
    ) -> Result<Response<Body>, Failure> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::ACCEPT, accept)
            .header(header::USER_AGENT, HeaderValue::from_static(USER_AGENT))
            // API servers compress in a way that decoders of one stream cut short.
            .header(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        if !body.is_empty() {
            request = request.header(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        if let Some(etag) = etag {
            request = request.header(header::IF_NONE_MATCH, etag);
        }
        let request = request
            .body(Body::from(body))
            .map_err(|error| Failure::Refused(format!("the request {path} cannot be made: {error}")))?;
        let (client, generation) = self.client().await;
        if self.pinned.is_some_and(|pinned| pinned != generation) {
            return Err(Failure::Unreachable("the cluster's credentials have just been read again".to_owned()));
        }
        let response = match timeout(limit, client.send(request)).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Err(failure::no_answer(&error)),
            Err(_elapsed) => return Err(Failure::Away("the API server does not answer".to_owned())),
        };
        let unchanged = etag.is_some() && response.status() == StatusCode::NOT_MODIFIED;
        if response.status().is_success() || unchanged {
            let encoding = response.headers().get(header::CONTENT_ENCODING);
            if encoding.is_some_and(|encoding| encoding != "identity") {
                let text = "something between us and the API server compresses its answers although we ask it not to";
                return Err(Failure::Refused(text.to_owned()));
            }
            return Ok(response);
        }
        let (head, body) = response.into_parts();
        // No API server asks for the credentials of a proxy.
        if head.status == StatusCode::PROXY_AUTHENTICATION_REQUIRED
            && let Some(text) =
                self.current(|current| current.proxy.as_ref().map(|proxy| failure::refused(proxy, 407, path)))
        {
            return Err(Failure::Away(text));
        }
        // What cannot be read of an error's text does not change what its code means.
        let text = self.read(body, ERROR_BODY).await.unwrap_or_default();
        Err(failure::answer(head.status, &head.headers, &text))
    }

    /// A GET whose answer is open-ended.
    ///
    /// # Errors
    /// As [`Api::send`].
    pub async fn stream(&self, path: &str) -> Result<Body, Failure> {
        Ok(self.send(Method::GET, path, "application/json", Vec::new()).await?.into_body())
    }

    /// A GET whose whole answer has at most `limit` bytes.
    ///
    /// # Errors
    /// As [`Api::send`], and where the answer is longer or breaks off.
    pub async fn get(&self, path: &str, accept: &str, limit: usize) -> Result<Bytes, Failure> {
        let body = self.send(Method::GET, path, accept, Vec::new()).await?.into_body();
        self.read(body, limit).await
    }

    /// Sends an object, and reads the answer, which is the object as it is then and has at most `limit` bytes.
    ///
    /// # Errors
    /// As [`Api::get`]. Where no whole answer came, nobody knows what became of it.
    pub async fn write(&self, method: Method, path: &str, object: Vec<u8>, limit: usize) -> Result<Bytes, Failure> {
        let body = self.send(method, path, "application/json", object).await?.into_body();
        self.read(body, limit).await
    }

    /// Requests as [`Api::get`] does something that is cheap for the API server; `etag` is that of the answer which the caller
    /// has. A busy API server lets a request wait for a quarter of a minute at most, so the head comes soon after that or
    /// never.
    ///
    /// # Errors
    /// As [`Api::get`].
    pub async fn fetch(&self, path: &str, accept: &str, limit: usize, etag: Option<&str>) -> Result<Fetched, Failure> {
        let limit_of_head = (self.limits().brief * 2).min(self.limits().head);
        let response = self.ask(Method::GET, path, (accept, etag), Vec::new(), limit_of_head).await?;
        if response.status() == StatusCode::NOT_MODIFIED {
            return Ok(Fetched::Unchanged);
        }
        let etag = response.headers().get(header::ETAG).and_then(|value| Some(value.to_str().ok()?.to_owned()));
        Ok(Fetched::Whole(self.read(response.into_body(), limit).await?, etag))
    }

    pub(in crate::watch) async fn read(&self, mut body: Body, limit: usize) -> Result<Bytes, Failure> {
        let mut whole = bytes::BytesMut::new();
        while let Some(part) = next_part(&mut body, self.limits().read).await? {
            if whole.len() + part.len() > limit {
                return Err(Failure::Oversize(format!("an answer of the API server is longer than {limit} bytes")));
            }
            whole.extend_from_slice(&part);
        }
        Ok(whole.freeze())
    }
}

/// An answer that the caller may have already.
#[derive(Clone, Debug)]
pub enum Fetched {
    /// It is what the caller has.
    Unchanged,
    /// Another one, and its ETag.
    Whole(Bytes, Option<String>),
}

/// The next bytes of a body, or its proper end.
///
/// # Errors
/// Where the connection breaks, or nothing comes for `patience`.
pub async fn next_part(body: &mut Body, patience: Duration) -> Result<Option<Bytes>, Failure> {
    loop {
        return match timeout(patience, body.frame()).await {
            Ok(None) => Ok(None),
            Ok(Some(Ok(frame))) => match frame.into_data() {
                Ok(data) => Ok(Some(data)),
                Err(_trailers) => continue,
            },
            Ok(Some(Err(error))) => Err(failure::no_answer(&error)),
            Err(_elapsed) => Err(Failure::Unreachable("the API server stopped in the middle of its answer".to_owned())),
        };
    }
}
