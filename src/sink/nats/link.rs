//! The connection to the servers. It is given up at the first sign of trouble and made again, with the credentials and
//! certificates that the files hold by then: so an error is reported as it is, and nothing waits for a client's own
//! tries.

use std::time::Duration;

use async_nats::jetstream::Context;
use async_nats::jetstream::context::ContextBuilder;
use async_nats::{ConnectErrorKind, ConnectOptions, Event, ServerAddr, ServerError};
use tokio::sync::watch;

use super::Settings;
use crate::core::credential_files::Followed;
use crate::sink::SinkError;
use crate::sink::link::{chain, is_of_tls};
use crate::sink::tls::Tls;

/// Credentials of decklog.
#[derive(Debug)]
enum Credentials {
    None,
    /// A file of `nsc`: a token, and the seed of the key that signs.
    File(Followed),
    Password(String, Followed),
    Token(Followed),
}

impl Credentials {
    fn new(config: &Settings) -> Result<Self, String> {
        let given = [&config.credentials_file, &config.password_file, &config.token_file].into_iter().flatten().count();
        if given > 1 {
            return Err("`credentials_file`, `password_file` and `token_file` exclude each other".to_owned());
        }
        match (&config.user, &config.password_file) {
            (Some(user), Some(file)) => return Ok(Self::Password(user.clone(), Followed::new(file))),
            (Some(_), None) => return Err("`user` needs `password_file`, the password".to_owned()),
            (None, Some(_)) => return Err("`password_file` needs `user`, whose password it is".to_owned()),
            (None, None) => {}
        }
        Ok(match (&config.credentials_file, &config.token_file) {
            (Some(file), _) => Self::File(Followed::new(file)),
            (None, Some(file)) => Self::Token(Followed::new(file)),
            (None, None) => Self::None,
        })
    }

    fn file(&mut self) -> Option<&mut Followed> {
        match self {
            Self::None => None,
            Self::File(file) | Self::Password(_, file) | Self::Token(file) => Some(file),
        }
    }

    /// The key of the configuration that names the file.
    fn key(&self) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::File(_) => Some("credentials_file"),
            Self::Password(..) => Some("password_file"),
            Self::Token(_) => Some("token_file"),
        }
    }

    fn add(&self, options: ConnectOptions) -> Result<ConnectOptions, SinkError> {
        Ok(match self {
            Self::None => options,
            // The library asks for the end of the last line.
            Self::File(file) => options.credentials(&format!("{}\n", file.text()?)).map_err(|_| {
                let path = file.path().display();
                SinkError::retry(format!("{path} holds no credentials as `nsc` makes them; write a .creds file there"))
            })?,
            Self::Password(user, file) => options.user_and_password(user.clone(), file.text()?.to_owned()),
            Self::Token(file) => options.token(file.text()?.to_owned()),
        })
    }
}

/// A connection, and what became of it.
struct Open {
    context: Context,
    broken: watch::Receiver<Option<String>>,
}

/// Connection to the servers.
pub(super) struct Link {
    addresses: Vec<ServerAddr>,
    /// Addresses for people.
    pub(super) shown: String,
    timeout: Duration,
    credentials: Credentials,
    tls: Tls,
    tls_required: bool,
    open: Option<Open>,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("servers", &self.shown).finish_non_exhaustive()
    }
}

impl Link {
    pub(super) fn new(config: &Settings) -> Result<Self, String> {
        // What is wrong is not quoted: somebody may have written a password into it.
        let address = |(number, text): (usize, &String)| match text.parse::<ServerAddr>() {
            Ok(address) if address.has_user_pass() => Err(format!(
                "`addresses[{number}]` holds a user; `user` and `password_file`, or `credentials_file`, are for that"
            )),
            Ok(address) if matches!(address.scheme(), "nats" | "tls") && !address.host().is_empty() => Ok(address),
            _ => Err(format!("`addresses[{number}]` is no nats://HOST:PORT or tls://HOST:PORT")),
        };
        let addresses: Vec<ServerAddr> = config.addresses.iter().enumerate().map(address).collect::<Result<_, _>>()?;
        if addresses.is_empty() {
            return Err("`addresses` names no server".to_owned());
        }
        let shown: Vec<String> =
            addresses.iter().map(|address| format!("{}:{}", address.host(), address.port())).collect();
        Ok(Self {
            shown: shown.join(", "),
            timeout: *config.timeout,
            credentials: Credentials::new(config)?,
            // Without it somebody in between could talk a client out of TLS.
            tls_required: config.tls.ca_file.is_some() || config.tls.cert_file.is_some(),
            tls: Tls::new(&config.tls)?,
            addresses,
            open: None,
        })
    }

    /// Reports whether the next use goes over the present connection, unless its files have changed.
    pub(super) fn is_open(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.broken.borrow().is_none())
    }

    /// The connection is given up.
    pub(super) fn drop(&mut self) {
        self.open = None;
    }

    /// The connection is given up, and files must be readable now.
    pub(super) fn renew(&mut self) {
        self.open = None;
        self.tls.forget();
        if let Some(file) = self.credentials.file() {
            file.forget();
        }
    }

    /// The connection, made where there is none or its files have changed.
    pub(super) async fn context(&mut self) -> Result<Context, SinkError> {
        let mut other = false;
        if let Some(file) = self.credentials.file() {
            other |= file.refresh().await?;
        }
        let (tls, changed) = self.tls.refresh().await?;
        other |= changed;
        if let Some(open) = self.open.take()
            && !other
            && open.broken.borrow().is_none()
        {
            let context = open.context.clone();
            self.open = Some(open);
            return Ok(context);
        }
        let (sender, broken) = watch::channel(None);
        let options = ConnectOptions::new()
            .name("decklog")
            .connection_timeout(self.timeout)
            .request_timeout(Some(self.timeout))
            .tls_client_config((*tls).clone())
            .require_tls(self.tls_required)
            // The credentials go where the configuration says, and nowhere else.
            .ignore_discovered_servers()
            // Each of them once. What comes after that is delivery's to decide.
            .max_reconnects(self.addresses.len())
            .event_callback(move |event| {
                if let Some(text) = trouble(&event) {
                    sender.send_replace(Some(text));
                }
                std::future::ready(())
            });
        let client = self.credentials.add(options)?.connect(&self.addresses[..]).await;
        let client = client.map_err(|error| self.failed(&error))?;
        let context = ContextBuilder::new().timeout(self.timeout).build(client);
        self.open = Some(Open { context: context.clone(), broken });
        Ok(context)
    }

    /// Waits for an answer, but not over a connection that is lost. An error is a sentence.
    pub(super) async fn answer<T>(&self, answer: impl Future<Output = T>) -> Result<T, SinkError> {
        let Some(open) = &self.open else { return Err(SinkError::retry("the connection is not set up")) };
        let mut broken = open.broken.clone();
        tokio::select! {
            biased;
            answer = answer => Ok(answer),
            said = broken.wait_for(Option::is_some) => {
                let said = said.ok().and_then(|said| said.clone()).unwrap_or_else(|| LOST.to_owned());
                Err(SinkError::retry(format!("no answer from {}: {said}", self.shown)))
            }
        }
    }

    /// No answer in time.
    pub(super) fn late(&self) -> SinkError {
        SinkError::retry(format!("{} did not answer within {:?}", self.shown, self.timeout))
    }

    fn failed(&self, error: &async_nats::ConnectError) -> SinkError {
        let shown = &self.shown;
        if matches!(error.kind(), ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication) {
            let text = match self.credentials.key() {
                Some(key) => {
                    format!("{shown} refuses the credentials; renew `{key}`: it is read again before each try")
                }
                None => format!(
                    "{shown} asks who it is; set `credentials_file`, `user` and `password_file`, `token_file`, or `cert_file`"
                ),
            };
            return SinkError::renew(text);
        }
        let why = chain(error);
        let hint = if is_of_tls(error) { "" } else { "; check `addresses`, and whether they run" };
        SinkError::retry(format!("cannot connect to {shown}: {why}{hint}"))
    }
}

const LOST: &str = "the connection was lost";

/// Returns the error of an event after which the connection is of no more use.
fn trouble(event: &Event) -> Option<String> {
    match event {
        Event::Disconnected | Event::Closed => Some(LOST.to_owned()),
        Event::ServerError(ServerError::Other(text)) => Some(said(text)),
        Event::ServerError(error) => Some(error.to_string()),
        Event::Connected | Event::LameDuckMode | Event::Draining | Event::SlowConsumer(_) | Event::ClientError(_) => {
            None
        }
    }
}

/// Returns the server's text without quotations, except for a subject that may not be used.
fn said(text: &str) -> String {
    let mut parts = text.split('"');
    let (said, quoted) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let said = said.trim_end_matches(" to ");
    // `permissions violation for publish to "decklog.pods.shop"`: a subject of the log is a part of an entry.
    if !said.to_lowercase().starts_with("permissions violation") {
        return said.to_owned();
    }
    let (does, subject) = match quoted.split('.').next() {
        _ if said.to_lowercase().contains("subscription") => ("subscribe to", "its inbox, _INBOX.>"),
        Some("$JS") => ("publish to", quoted),
        _ => ("publish to", "the subjects of the log"),
    };
    format!("the user may not {does} {subject}; grant that to it")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_right_is_named_and_no_entry() {
        for (text, says) in [
            (
                r#"Permissions Violation for Publish to "decklog.pods.shop""#,
                "publish to the subjects of the log; grant",
            ),
            (
                r#"permissions violation for publish to "$JS.API.STREAM.INFO.x""#,
                "publish to $JS.API.STREAM.INFO.x; grant",
            ),
            (r#"Permissions Violation for Subscription to "_INBOX.a1.*""#, "subscribe to its inbox, _INBOX.>; grant"),
            (r#"Maximum Payload "x""#, "Maximum Payload"),
        ] {
            let said = said(text);
            assert!(said.contains(says) && !said.contains("shop"), "{said}");
        }
    }
}
