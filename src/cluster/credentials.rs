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
use super::{ClusterError, Limits, Settings, failure, narrow};

/// How often credential files are looked at, at most.
pub(super) const LOOK: Duration = Duration::from_secs(5);
/// A client is built anew this long before its credentials run out.
const BEFORE_EXPIRY: Duration = Duration::from_secs(60);

/// Why no client can be made, without what a plugin said or was given.
#[expect(clippy::wildcard_enum_match_arm, reason = "another crate's list of errors: those that quote credentials")]
fn client_text(error: &kube::Error, plugin: Option<&str>) -> String {
    match error {
        kube::Error::Auth(error) => failure::auth_text(error, plugin),
        // The address may have a password in it.
        kube::Error::ProxyProtocolUnsupported { .. } | kube::Error::ProxyProtocolDisabled { .. } => {
            "the protocol of its proxy-url is not supported".to_owned()
        }
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
    /// When it was made, and when the files were last looked at.
    pub(super) built: Instant,
    pub(super) looked: Instant,
    pub(super) files: Vec<(PathBuf, Stamp)>,
}

impl Current {
    pub(super) fn files_changed(&self) -> bool {
        self.files.iter().any(|(path, seen)| stamp(path) != *seen)
    }

    /// Whether the credentials run out soon, and others were not just asked for.
    pub(super) fn expires(&self) -> bool {
        self.client.valid_until().is_some_and(|end| {
            let left = end.as_second().saturating_sub(Timestamp::now().as_second());
            left < i64::try_from(BEFORE_EXPIRY.as_secs()).unwrap_or(i64::MAX) && self.built.elapsed() > LOOK
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
}

async fn build(
    settings: &Settings,
    caller: Caller,
    context: Option<&str>,
    limits: Limits,
) -> Result<Built, ClusterError> {
    let Found { mut config, file, context, cluster, plugin, unasked, files } = find(settings, caller, context)?;
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
    let bare = connect(bare(&config)).map_err(|error| unusable(file.clone(), &error))?;
    let client = connect(config).map_err(|error| unusable(file, &error))?;
    Ok(Built { client, bare, context, cluster, unasked, files })
}

fn connect(config: Config) -> Result<Client, kube::Error> {
    let is_plain = config.cluster_url.scheme_str() == Some("http") && config.proxy_url.is_none();
    if is_plain { narrow::client(&config) } else { Client::try_from(config) }
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

/// Where clients come from.
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
