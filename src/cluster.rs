//! The connection to the API server: where it is, who we are there, and requests with a bound on everything.
//!
//! An [`Api`] lives as long as the daemon. The client behind it is built anew when a credential file changes, before
//! a credential runs out and when the API server stops accepting it, because `kube` reads most of them only once.

mod narrow;
mod settings;
#[cfg(test)]
mod tests;

pub use settings::{Off, Recover, RecoverBounds, Settings};

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::BodyExt;
use jiff::Timestamp;
use kube::client::{AuthError, Body};
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use serde::Deserialize;
use tokio::runtime::Handle;
use tokio::sync::{Mutex, Semaphore, oneshot};
use tokio::time::{Instant, timeout};

use crate::model::Cluster;
use crate::net::is_loopback;
use crate::watch::classify::{self, Failure};

/// How often credential files are looked at, at most.
const LOOK: Duration = Duration::from_secs(5);
/// A client is built anew this long before its credentials run out.
const BEFORE_EXPIRY: Duration = Duration::from_secs(60);
/// Credentials that are not accepted are read again this often, at most, while no file has changed: a plugin may
/// have others by then.
const AGAIN: Duration = Duration::from_secs(10);
/// An answer other than 2xx is read up to here.
const ERROR_BODY: usize = 64 << 10;
/// What decklog calls itself in the API server's audit log.
const USER_AGENT: &str = concat!("decklog/", env!("CARGO_PKG_VERSION"));

/// How long the parts of a request may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Until there is a connection.
    pub connect: Duration,
    /// From the request to the head of its answer. An API server gives up on its own requests after 60 s.
    pub head: Duration,
    /// The same for what is small and costs the API server nothing.
    pub brief: Duration,
    /// Between two parts of an answer that should come in one go.
    pub read: Duration,
    /// Reading the credentials, with all that a plugin does for them.
    pub credentials: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            head: Duration::from_secs(70),
            brief: Duration::from_secs(10),
            read: Duration::from_secs(60),
            credentials: Duration::from_secs(60),
        }
    }
}

/// Why there is no way to the API server.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// Nothing says where the API server is.
    #[error(
        "no kubeconfig was found: looked at {}, and this is no pod with a service account; name the file in [cluster] kubeconfig",
        looked.join(", ")
    )]
    NoKubeconfig {
        /// Where we looked.
        looked: Vec<String>,
    },
    /// The kubeconfig has no such context.
    #[error("{file} has no context {wanted:?}; it has {}", list(known))]
    NoContext {
        /// The file, or files.
        file: String,
        /// The context asked for.
        wanted: String,
        /// The contexts that there are.
        known: Vec<String>,
    },
    /// The kubeconfig names no current context, and the configuration none either.
    #[error("{file} has no current-context; set [cluster] context to one of {}", list(known))]
    NoCurrentContext {
        /// The file, or files.
        file: String,
        /// The contexts that there are.
        known: Vec<String>,
    },
    /// The kubeconfig cannot be used.
    #[error("{file} cannot be used: {why}")]
    Kubeconfig {
        /// The file, or files.
        file: String,
        /// Why, without anything of what it holds.
        why: String,
    },
    /// No client can be made of it.
    #[error("no connection to the API server can be made with {file}: {why}")]
    Client {
        /// The file, or files.
        file: String,
        /// Why, without anything of what a plugin said.
        why: String,
    },
}

impl ClusterError {
    /// Whether trying again may help without a change of the configuration: a plugin may need a network that is not up
    /// yet.
    #[must_use]
    pub const fn may_heal(&self) -> bool {
        matches!(self, Self::Client { .. })
    }
}

fn list(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// What is wrong with a kubeconfig. kube's own texts quote lines of the file, and those may hold credentials.
#[expect(clippy::wildcard_enum_match_arm, reason = "another crate's list of errors: those that quote the file")]
fn kubeconfig_text(error: &KubeconfigError) -> String {
    match error {
        KubeconfigError::Parse(error) => match error.location() {
            Some(at) => format!("it is no kubeconfig (line {}, column {})", at.line(), at.column()),
            None => "it is no kubeconfig".to_owned(),
        },
        KubeconfigError::ReadConfig(error, _) => format!("failed to read it: {error}"),
        KubeconfigError::ParseCertificates(_) => "its certificates are not PEM".to_owned(),
        other => classify::bounded(&other.to_string()),
    }
}

/// Why no client can be made, without what a plugin said or was given.
#[expect(clippy::wildcard_enum_match_arm, reason = "another crate's list of errors: those that quote credentials")]
fn client_text(error: &kube::Error, plugin: Option<&str>) -> String {
    match error {
        kube::Error::Auth(error) => classify::auth_text(error, plugin),
        // The address may have a password in it.
        kube::Error::ProxyProtocolUnsupported { .. } | kube::Error::ProxyProtocolDisabled { .. } => {
            "the protocol of its proxy-url is not supported".to_owned()
        }
        other => classify::bounded(&other.to_string()),
    }
}

/// When a file was changed, and its length.
type Stamp = Option<(SystemTime, u64)>;

/// A configuration as it was found, and the files that it came from, stamped before they were read.
struct Found {
    config: Config,
    /// For people.
    file: String,
    context: Option<String>,
    cluster: String,
    /// The program that gives the credentials.
    plugin: Option<String>,
    files: Vec<(PathBuf, Stamp)>,
}

/// `context` is the one that was found before, and stays: another current context is often another cluster.
async fn find(settings: &Settings, context: Option<&str>) -> Result<Found, ClusterError> {
    let (paths, looked) = candidates(settings);
    if paths.is_empty() {
        return match Config::incluster() {
            Ok(config) if context.is_none() => Ok(Found {
                config,
                file: "the in-cluster service account".to_owned(),
                context: None,
                cluster: "in-cluster".to_owned(),
                plugin: None,
                // kube reads the token and the authority again by itself.
                files: Vec::new(),
            }),
            Ok(_) | Err(_) => Err(ClusterError::NoKubeconfig { looked }),
        };
    }
    let file = paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
    let stamped = |path: PathBuf| {
        let seen = stamp(&path);
        (path, seen)
    };
    let mut files: Vec<_> = paths.into_iter().map(stamped).collect();
    let mut kubeconfig = Kubeconfig::default();
    for (path, _) in &files {
        kubeconfig = Kubeconfig::read_from(path).and_then(|next| kubeconfig.merge(next)).map_err(|error| {
            ClusterError::Kubeconfig { file: path.display().to_string(), why: kubeconfig_text(&error) }
        })?;
    }
    let known: Vec<String> = kubeconfig.contexts.iter().map(|context| context.name.clone()).collect();
    let wanted = context.map(str::to_owned).or_else(|| settings.context.clone());
    let Some(wanted) = wanted.or_else(|| kubeconfig.current_context.clone()) else {
        return Err(ClusterError::NoCurrentContext { file, known });
    };
    let Some(context) =
        kubeconfig.contexts.iter().find(|context| context.name == wanted).and_then(|context| context.context.clone())
    else {
        return Err(ClusterError::NoContext { file, wanted, known });
    };
    let user = user(&kubeconfig, &context);
    let plugin = user.and_then(|user| user.exec.as_ref()?.command.as_deref());
    let plugin = plugin.map(|program| program.rsplit('/').next().unwrap_or(program).to_owned());
    if let Some(why) = forbidden(settings, &kubeconfig, &context) {
        return Err(ClusterError::Kubeconfig { file, why });
    }
    files.extend(credential_files(&kubeconfig, &context).into_iter().map(stamped));
    let options = KubeConfigOptions { context: Some(wanted.clone()), cluster: None, user: None };
    let config = Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .map_err(|error| ClusterError::Kubeconfig { file: file.clone(), why: kubeconfig_text(&error) })?;
    Ok(Found { config, file, context: Some(wanted), cluster: context.cluster, plugin, files })
}

/// The kubeconfig files to read, and for people where we looked. None: try the service account.
fn candidates(settings: &Settings) -> (Vec<PathBuf>, Vec<String>) {
    if let Some(path) = &settings.kubeconfig {
        return (vec![path.clone()], Vec::new());
    }
    let mut looked = Vec::new();
    if let Some(value) = std::env::var_os("KUBECONFIG").filter(|value| !value.is_empty()) {
        let named: Vec<PathBuf> = std::env::split_paths(&value).filter(|path| !path.as_os_str().is_empty()).collect();
        looked.extend(named.iter().map(|path| format!("{} ($KUBECONFIG)", path.display())));
        // As kubectl does: of several files, some may be missing.
        let present: Vec<PathBuf> = named.into_iter().filter(|path| path.exists()).collect();
        return (present, looked);
    }
    looked.push("$KUBECONFIG (not set)".to_owned());
    match std::env::home_dir() {
        Some(home) => {
            let path = home.join(".kube/config");
            looked.push(path.display().to_string());
            (path.exists().then_some(path).into_iter().collect(), looked)
        }
        None => (Vec::new(), looked),
    }
}

fn user<'a>(kubeconfig: &'a Kubeconfig, context: &kube::config::Context) -> Option<&'a AuthInfo> {
    let name = context.user.as_ref();
    kubeconfig.auth_infos.iter().find(|named| Some(&named.name) == name)?.auth_info.as_ref()
}

/// What a kubeconfig asks for that has to be allowed first: it may come from somebody else, and would run a program as
/// our user, or hand our credentials to whoever answers. The names in it are quoted, its values never.
fn forbidden(settings: &Settings, kubeconfig: &Kubeconfig, context: &kube::config::Context) -> Option<String> {
    let user = user(kubeconfig, context);
    if !settings.allow_exec
        && let Some(what) = user.and_then(|user| match (&user.exec, &user.auth_provider) {
            (Some(_), _) => Some("exec"),
            (None, Some(_)) => Some("auth-provider"),
            (None, None) => None,
        })
    {
        return Some(format!(
            "its user {:?} has credentials that a program gives ({what}), and decklog runs no program unless it is told \
             to: set [cluster] allow_exec = true, or give it a token or a client certificate",
            classify::bounded(context.user.as_deref().unwrap_or_default())
        ));
    }
    let cluster = kubeconfig.clusters.iter().find(|named| named.name == context.cluster)?.cluster.as_ref()?;
    if settings.allow_insecure_tls {
        return None;
    }
    let name = classify::bounded(&context.cluster);
    if cluster.insecure_skip_tls_verify == Some(true) {
        return Some(format!(
            "its cluster {name:?} has insecure-skip-tls-verify, so that anyone in between could read the credentials and \
             make up the log: set [cluster] allow_insecure_tls = true, or give it certificate-authority"
        ));
    }
    let server: Option<http::Uri> = cluster.server.as_deref().and_then(|server| server.parse().ok());
    let plain = server.filter(|server| server.scheme_str() == Some("http"));
    let elsewhere = plain.is_some_and(|server| !is_loopback(server.host().unwrap_or_default()));
    elsewhere.then(|| {
        format!(
            "its cluster {name:?} is reached over http://, so that anyone in between could read the credentials and make \
             up the log: set [cluster] allow_insecure_tls = true, or use https://"
        )
    })
}

fn credential_files(kubeconfig: &Kubeconfig, context: &kube::config::Context) -> Vec<PathBuf> {
    let cluster = kubeconfig.clusters.iter().find(|named| named.name == context.cluster);
    let authority = cluster.and_then(|named| named.cluster.as_ref()?.certificate_authority.clone());
    let user = user(kubeconfig, context);
    let own = user.map(|user| [user.client_certificate.clone(), user.client_key.clone(), user.token_file.clone()]);
    authority.into_iter().chain(own.into_iter().flatten().flatten()).map(PathBuf::from).collect()
}

/// A client, and what it was made of.
struct Current {
    client: Client,
    /// The same without credentials of which a program may have to give others in the middle of a request.
    bare: Client,
    /// Counts the clients. Whoever answers a new one may be another cluster.
    generation: u64,
    /// When it was made, and when the files were last looked at.
    built: Instant,
    looked: Instant,
    files: Vec<(PathBuf, Stamp)>,
}

impl Current {
    fn files_changed(&self) -> bool {
        self.files.iter().any(|(path, seen)| stamp(path) != *seen)
    }

    /// Whether the credentials run out soon, and others were not just asked for.
    fn expires(&self) -> bool {
        self.client.valid_until().is_some_and(|end| {
            let left = end.as_second().saturating_sub(Timestamp::now().as_second());
            left < i64::try_from(BEFORE_EXPIRY.as_secs()).unwrap_or(i64::MAX) && self.built.elapsed() > LOOK
        })
    }
}

fn stamp(path: &Path) -> Stamp {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}

/// A new client.
struct Built {
    client: Client,
    bare: Client,
    context: Option<String>,
    cluster: String,
    files: Vec<(PathBuf, Stamp)>,
}

async fn build(settings: &Settings, context: Option<&str>, limits: Limits) -> Result<Built, ClusterError> {
    let Found { mut config, file, context, cluster, plugin, files } = find(settings, context).await?;
    // We retry ourselves: kube's own retries would hide for minutes what the API server says.
    config.default_retry = false;
    config.connect_timeout = Some(limits.connect);
    // A write that takes longer has no one at the other end. Reading has its own bounds, here and in the watch.
    config.write_timeout = Some(limits.read);
    config.read_timeout = None;
    let unusable =
        |file: String, error: &kube::Error| ClusterError::Client { file, why: client_text(error, plugin.as_deref()) };
    // kube would send a line end that somebody left after the token, and no header may hold one. The file is looked at
    // by us whenever it changes.
    if let Some(path) = config.auth_info.token_file.take()
        && config.auth_info.token.is_none()
    {
        let token = tokio::fs::read_to_string(&path).await.map_err(|error| {
            unusable(file.clone(), &kube::Error::Auth(AuthError::ReadTokenFile(error, PathBuf::from(&path))))
        })?;
        config.auth_info.token = Some(token.trim().to_owned().into());
    }
    let bare = connect(bare(&config)).map_err(|error| unusable(file.clone(), &error))?;
    let client = connect(config).map_err(|error| unusable(file, &error))?;
    Ok(Built { client, bare, context, cluster, files })
}

fn connect(config: Config) -> Result<Client, kube::Error> {
    let is_plain = config.cluster_url.scheme_str() == Some("http") && config.proxy_url.is_none();
    if is_plain { narrow::client(&config) } else { Client::try_from(config) }
}

/// Of the credentials only what TLS shows.
fn bare(config: &Config) -> Config {
    let user = &config.auth_info;
    let shown = AuthInfo {
        client_certificate: user.client_certificate.clone(),
        client_certificate_data: user.client_certificate_data.clone(),
        client_key: user.client_key.clone(),
        client_key_data: user.client_key_data.clone(),
        ..AuthInfo::default()
    };
    let mut bare = config.clone();
    bare.auth_info = shown;
    bare
}

/// Where a client comes from.
enum Way {
    Kubeconfig(Settings),
    /// Always the same one.
    Given(Client),
}

/// Makes clients, one at a time.
struct Builder {
    way: Way,
    limits: Limits,
    room: Arc<Semaphore>,
}

impl Builder {
    /// kube runs credential plugins without a bound and in the middle of its work, so a client is made on a thread of
    /// its own. One that hangs is left alone, and no other is begun before it ends.
    async fn build(&self, context: Option<&str>) -> Result<Built, ClusterError> {
        let failed = |why: &str| ClusterError::Client { file: "the credentials".to_owned(), why: why.to_owned() };
        let settings = match &self.way {
            Way::Kubeconfig(settings) => settings.clone(),
            Way::Given(client) => {
                let (client, bare) = (client.clone(), client.clone());
                return Ok(Built { client, bare, context: None, cluster: String::new(), files: Vec::new() });
            }
        };
        let (limits, context) = (self.limits, context.map(str::to_owned));
        let room = Arc::clone(&self.room);
        let building = async move {
            let room = room.acquire_owned().await.map_err(|_closed| failed("decklog ends"))?;
            let (sender, receiver) = oneshot::channel();
            let runtime = Handle::current();
            std::thread::Builder::new()
                .name("credentials".to_owned())
                .spawn(move || {
                    let built = runtime.block_on(build(&settings, context.as_deref(), limits));
                    // Nobody waits for it any more: the time is over.
                    drop(sender.send(built));
                    drop(room);
                })
                .map_err(|error| failed(&format!("no thread can be begun: {error}")))?;
            receiver.await.map_err(|_ended| failed("reading them broke off"))?
        };
        match timeout(self.limits.credentials, building).await {
            Ok(built) => built,
            Err(_elapsed) => Err(failed("reading them takes too long; a credential plugin may hang")),
        }
    }
}

/// The API server, for the whole life of the daemon; cheap to clone.
#[derive(Clone)]
pub struct Api {
    inner: Arc<Inner>,
    /// Nothing is asked through a client of another generation.
    only: Option<u64>,
}

struct Inner {
    builder: Builder,
    name: String,
    /// The context that was found at first.
    context: Option<String>,
    current: RwLock<Current>,
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
        Self::begin(Way::Kubeconfig(settings.clone()), settings.name.clone(), limits).await
    }

    /// For simulations: asks through a client that needs no configuration.
    #[doc(hidden)]
    pub async fn over(client: Client, name: &str, limits: Limits) -> Result<Self, ClusterError> {
        Self::begin(Way::Given(client), Some(name.to_owned()), limits).await
    }

    async fn begin(way: Way, name: Option<String>, limits: Limits) -> Result<Self, ClusterError> {
        let builder = Builder { way, limits, room: Arc::new(Semaphore::new(1)) };
        let Built { client, bare, context, cluster, files } = builder.build(None).await?;
        let name = name.unwrap_or(cluster);
        let now = Instant::now();
        let current = RwLock::new(Current { client, bare, generation: 0, built: now, looked: now, files });
        let inner = Inner { builder, name, context, current, building: Mutex::new(now) };
        Ok(Self { inner: Arc::new(inner), only: None })
    }

    /// Which client is in use now. A new one is to be asked who it speaks with before anything else.
    pub async fn generation(&self) -> u64 {
        self.client().await.1
    }

    /// The same, but it asks nothing through a client of another generation.
    #[must_use]
    pub fn under(&self, generation: u64) -> Self {
        Self { inner: Arc::clone(&self.inner), only: Some(generation) }
    }

    /// The cluster's name for people.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// How long the parts of a request may take.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.inner.builder.limits
    }

    fn current<T>(&self, read: impl FnOnce(&Current) -> T) -> T {
        read(&self.inner.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The client and its generation, built anew first where its credentials have changed or are about to run out.
    async fn client(&self) -> (Client, u64) {
        if self.current(|current| current.expires() || current.looked.elapsed() > LOOK) {
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
        let fresh = *tried >= asked || (tried.elapsed() < AGAIN && !self.current(Current::files_changed));
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
            Ok(Built { client, bare, files, .. }) => {
                let mut current = self.inner.current.write().unwrap_or_else(PoisonError::into_inner);
                let (generation, now) = (current.generation + 1, Instant::now());
                *current = Current { client, bare, generation, built: now, looked: now, files };
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
        self.ask(method, path, accept, body, None, self.limits().head).await
    }

    async fn ask(
        &self,
        method: Method,
        path: &str,
        accept: &str,
        body: Vec<u8>,
        etag: Option<&str>,
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
        if self.only.is_some_and(|only| only != generation) {
            return Err(Failure::Unreachable("the cluster's credentials have just been read again".to_owned()));
        }
        let response = match timeout(limit, client.send(request)).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Err(classify::no_answer(&error)),
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
        // What cannot be read of an error's text does not change what its code means.
        let text = self.read(body, ERROR_BODY).await.unwrap_or_default();
        Err(classify::answer(head.status, &head.headers, &text))
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

    /// As [`Api::get`], where `etag` is that of the answer which the caller has.
    ///
    /// # Errors
    /// As [`Api::get`].
    pub async fn fetch(&self, path: &str, accept: &str, limit: usize, etag: Option<&str>) -> Result<Fetched, Failure> {
        let response = self.ask(Method::GET, path, accept, Vec::new(), etag, self.limits().head).await?;
        if response.status() == StatusCode::NOT_MODIFIED {
            return Ok(Fetched::Unchanged);
        }
        let etag = response.headers().get(header::ETAG).and_then(|value| Some(value.to_str().ok()?.to_owned()));
        Ok(Fetched::Whole(self.read(response.into_body(), limit).await?, etag))
    }

    async fn read(&self, mut body: Body, limit: usize) -> Result<Bytes, Failure> {
        let mut whole = bytes::BytesMut::new();
        while let Some(part) = next_part(&mut body, self.limits().read).await? {
            if whole.len() + part.len() > limit {
                return Err(Failure::Oversize(format!("an answer of the API server is longer than {limit} bytes")));
            }
            whole.extend_from_slice(&part);
        }
        Ok(whole.freeze())
    }

    /// A GET whose answer is small, and made at once: whoever does not give it stands still.
    async fn brief(&self, path: &str) -> Result<Bytes, Failure> {
        let limit = self.limits().brief.min(self.limits().head);
        let response = self.ask(Method::GET, path, "application/json", Vec::new(), None, limit).await?;
        self.read(response.into_body(), 1 << 20).await
    }

    /// Whether anybody answers who may have an answer. Not everybody may ask, and not everything that speaks for Kubernetes
    /// knows the question; but only an API server that begins or ends, or a proxy without one, says that it is not ready.
    /// Credentials are not shown: where a program gives them it would be run for each question that nobody waits for
    /// any more.
    pub async fn answers(&self) -> bool {
        // Whoever asks next goes where the files say now, and finds out.
        if self.current(|current| current.looked.elapsed() > LOOK && current.files_changed()) {
            return true;
        }
        let request = Request::builder()
            .uri("/readyz")
            .header(header::USER_AGENT, HeaderValue::from_static(USER_AGENT))
            .body(Body::empty())
            .expect("nothing of it is from elsewhere");
        let client = self.current(|current| current.bare.clone());
        match timeout(self.limits().brief, client.send(request)).await {
            Ok(Ok(response)) => classify::is_answer(response.status()),
            // Somebody is there, and whoever asks for more reads the credentials again.
            Ok(Err(error)) => matches!(classify::no_answer(&error), Failure::Tls(_)),
            Err(_elapsed) => false,
        }
    }

    /// Who this cluster is: its name, and the uid of its kube-system namespace where we may read that.
    ///
    /// # Errors
    /// Where the API server does not answer, for another reason than that permission.
    pub async fn identity(&self) -> Result<Cluster, Failure> {
        #[derive(Deserialize)]
        struct Namespace {
            metadata: Metadata,
        }
        #[derive(Deserialize)]
        struct Metadata {
            uid: String,
        }
        let name = self.inner.name.clone();
        match self.brief("/api/v1/namespaces/kube-system").await {
            Ok(bytes) => {
                let namespace: Namespace = serde_json::from_slice(&bytes)
                    .map_err(|_| Failure::Undecodable("the namespace kube-system has no uid".to_owned()))?;
                Ok(Cluster { name, uid: namespace.metadata.uid })
            }
            // Another object's uid in its place would make one cluster look like two when permissions change.
            Err(Failure::Forbidden(_) | Failure::NotFound) => Ok(Cluster { name, uid: String::new() }),
            Err(failure) => Err(failure),
        }
    }

    /// The API server's version, such as `v1.36.0`.
    ///
    /// # Errors
    /// Where the API server does not answer.
    pub async fn version(&self) -> Result<String, Failure> {
        #[derive(Deserialize)]
        struct Version {
            #[serde(rename = "gitVersion")]
            version: String,
        }
        let bytes = self.brief("/version").await?;
        let version: Version = serde_json::from_slice(&bytes)
            .map_err(|_| Failure::Undecodable("the API server's version cannot be read".to_owned()))?;
        Ok(version.version)
    }

    /// Whether we may use `verb` on a resource, in one namespace or in all.
    ///
    /// # Errors
    /// Where the API server does not answer.
    pub async fn may(&self, verb: &str, group: &str, resource: &str, namespace: Option<&str>) -> Result<bool, Failure> {
        self.allows(serde_json::json!({ "resourceAttributes": {
            "verb": verb, "group": group, "resource": resource, "namespace": namespace.unwrap_or_default(),
        } }))
        .await
    }

    /// Whether we may read a path that is no resource.
    ///
    /// # Errors
    /// Where the API server does not answer.
    pub async fn may_read(&self, path: &str) -> Result<bool, Failure> {
        self.allows(serde_json::json!({ "nonResourceAttributes": { "verb": "get", "path": path } })).await
    }

    async fn allows(&self, spec: serde_json::Value) -> Result<bool, Failure> {
        #[derive(Deserialize)]
        struct Review {
            status: Status,
        }
        #[derive(Deserialize)]
        struct Status {
            #[serde(default)]
            allowed: bool,
        }
        let review = serde_json::json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": spec,
        });
        let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        let body =
            self.send(Method::POST, path, "application/json", review.to_string().into_bytes()).await?.into_body();
        let bytes = self.read(body, 1 << 20).await?;
        let review: Review = serde_json::from_slice(&bytes)
            .map_err(|_| Failure::Undecodable("the answer about our permissions cannot be read".to_owned()))?;
        Ok(review.status.allowed)
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
            Ok(Some(Err(error))) => Err(classify::no_answer(&error)),
            Err(_elapsed) => Err(Failure::Unreachable("the API server stopped in the middle of its answer".to_owned())),
        };
    }
}
