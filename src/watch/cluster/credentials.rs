//! Clients, made of what a kubeconfig gives, and how long they may be used.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::config::AuthInfo;
use kube::{Client, Config};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::{Instant, timeout};

use super::kubeconfig::{Caller, Found, Stamp, find, read_bounded, stamp};
use super::tls::{Tls, TlsError};
use super::{ClusterError, Limits, Settings, connect, failure};
use crate::core::net::proxy::{Proxies, Proxy};

/// Shortest interval between two checks of the credential files.
pub(super) const FILE_POLL_INTERVAL: Duration = Duration::from_secs(5);
/// A client is built again this long before its credentials run out.
const RENEWAL_WAIT_MARGIN: Duration = Duration::from_secs(60);

/// Returns the reason why no client can be created, without the input and output of a plugin.
#[expect(clippy::wildcard_enum_match_arm, reason = "another crate's list of errors: those that quote credentials")]
fn client_text(error: &kube::Error, plugin: Option<&str>) -> String {
    match error {
        kube::Error::Auth(error) => failure::auth_text(error, plugin),
        kube::Error::RustlsTls(_) => match plugin {
            Some(plugin) => format!(
                "the certificate that the credential plugin {} gave cannot be used; look at what it prints",
                failure::bounded(plugin)
            ),
            None => "its certificates cannot be used; write them as PEM".to_owned(),
        },
        other => failure::bounded(&other.to_string()),
    }
}

/// A client, and what it was made of.
pub(super) struct Current {
    pub(super) client: Client,
    /// The same without credentials of which a program may have to give others in the middle of a request.
    pub(super) bare: Client,
    /// Counts the clients. Whoever answers a new one may be another cluster.
    pub(super) generation: u64,
    /// Time at which it was created, and the files were last checked.
    pub(super) built: Instant,
    pub(super) looked: Instant,
    pub(super) files: Vec<(PathBuf, Stamp)>,
    /// The proxy that leads to the API server.
    pub(super) proxy: Option<Proxy>,
    /// Requests show a token.
    pub(super) shows_token: bool,
}

impl Current {
    pub(super) fn files_changed(&self) -> bool {
        self.files.iter().any(|(path, seen)| stamp(path) != *seen)
    }

    /// Reports whether the credentials expire soon and were not just renewed.
    pub(super) fn expires(&self) -> bool {
        self.client.valid_until().is_some_and(|end| {
            let left = end.as_second().saturating_sub(Timestamp::now().as_second());
            left < i64::try_from(RENEWAL_WAIT_MARGIN.as_secs()).unwrap_or(i64::MAX)
                && self.built.elapsed() > FILE_POLL_INTERVAL
        })
    }
}

/// A new client.
pub(super) struct Built {
    pub(super) client: Client,
    pub(super) bare: Client,
    pub(super) context: Option<String>,
    pub(super) cluster: String,
    pub(super) unasked: bool,
    pub(super) files: Vec<(PathBuf, Stamp)>,
    pub(super) proxy: Option<Proxy>,
    pub(super) shows_token: bool,
}

async fn build(
    settings: &Settings,
    caller: Caller,
    context: Option<&str>,
    limits: Limits,
) -> Result<Built, ClusterError> {
    let Found { mut config, file, context, cluster, plugin, unasked, files } = find(settings, caller, context)?;
    let named_by = format!("proxy-url of the cluster {cluster:?} in the kubeconfig");
    let proxy_url = config.proxy_url.take().map(|address| address.to_string());
    let key = proxy_url.as_deref().map(|address| (address, named_by.as_str()));
    let proxy = connect::proxy(&config.cluster_url, key, &Proxies::from_environment())?;
    // We retry ourselves: kube's own retries would hide for minutes what the API server says.
    config.default_retry = false;
    config.connect_timeout = Some(limits.connect);
    // A write that takes longer has no one at the other end. Reading has its own bounds, here and in the watch.
    config.write_timeout = Some(limits.read);
    config.read_timeout = None;
    let unusable =
        |file: String, error: &kube::Error| ClusterError::Client { file, why: client_text(error, plugin.as_deref()) };
    if let Some(path) = config.auth_info.token_file.take() {
        match token(&path) {
            Ok(token) => config.auth_info.token = Some(token.into()),
            // As kubectl does: the other one counts while there is none in the file.
            Err(_) if config.auth_info.token.is_some() => {}
            Err(why) => return Err(ClusterError::Client { file, why }),
        }
    }
    let client = |config: &Config| {
        let tls = Tls::of(config).map_err(|error| match error {
            TlsError::Said(why) => ClusterError::Client { file: file.clone(), why },
            TlsError::Plugin(error) => unusable(file.clone(), &error),
        })?;
        let failed = |error: kube::Error| unusable(file.clone(), &error);
        connect::client(config, tls, proxy.as_ref()).map_err(failed)
    };
    let (bare, _) = client(&bare(&config))?;
    let (client, shows_token) = client(&config)?;
    Ok(Built { client, bare, context, cluster, unasked, files, proxy, shows_token })
}

/// Reads a token file, without the line end that somebody left after the token: no header may hold one. The file is read
/// again when it changes.
fn token(path: &str) -> Result<String, String> {
    let name = failure::bounded(path);
    let bytes = read_bounded(path).map_err(|why| format!("the token file {name} {why}"))?;
    let text = String::from_utf8(bytes).map_err(|_error| format!("the token file {name} holds no text"))?;
    match text.trim() {
        "" => Err(format!("the token file {name} is empty")),
        // tower-http panics at one that no header may hold.
        token if http::HeaderValue::from_str(token).is_err() => {
            Err(format!("the token file {name} has characters that no token has"))
        }
        token => Ok(token.to_owned()),
    }
}

/// Returns the configuration without credentials other than those of TLS.
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

/// Source of clients.
pub(super) enum ClientSource {
    /// And who ran decklog when it began: a terminal may be closed.
    Kubeconfig(Settings, Caller),
    /// Always the same one.
    Given(Client),
}

/// Makes clients, one at a time.
pub(super) struct Builder {
    pub(super) source: ClientSource,
    pub(super) limits: Limits,
    pub(super) room: Arc<Semaphore>,
}

impl Builder {
    /// kube runs credential plugins without a bound and in the middle of its work, so a client is made on a thread of
    /// its own. One that hangs is left alone, and no other is begun before it ends.
    pub(super) async fn build(&self, context: Option<&str>) -> Result<Built, ClusterError> {
        let failed = |why: &str| ClusterError::Client { file: "the credentials".to_owned(), why: why.to_owned() };
        let (settings, caller) = match &self.source {
            ClientSource::Kubeconfig(settings, caller) => (settings.clone(), *caller),
            ClientSource::Given(client) => {
                let (client, bare) = (client.clone(), client.clone());
                return Ok(Built {
                    client,
                    bare,
                    context: None,
                    cluster: String::new(),
                    unasked: false,
                    files: Vec::new(),
                    proxy: None,
                    shows_token: true,
                });
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
                    let built = runtime.block_on(build(&settings, caller, context.as_deref(), limits));
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
