//! Connections to the API server: directly or through a proxy, with TLS or without, within a bound of time.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use http::header::PROXY_AUTHORIZATION;
use http::{HeaderValue, Request, Uri};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ClientBuilder, ConfigExt};
use kube::{Client, Config};
use reqwest::Url;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tower::util::{MapRequestLayer, option_layer};
use tower::{BoxError, Service, ServiceExt};

use super::failure::ConnectError;
use super::link::{Hop, Link};
use super::tls::{Tls, server_name};
use super::{Failure, failure, proxied, through};
use crate::core::net::proxy::{InvalidProxy, Proxies, Proxy};
use crate::core::net::tls::{Place, Roots, Verifier, sentence};

/// Terms for the proxy in sentences about its TLS.
const PROXY: Place = Place {
    peer: "the proxy",
    authority: "an authority that this machine trusts",
    trust: "add its authority to the certificates of this machine, or name a file with it in SSL_CERT_FILE",
    name: "write the name that the certificate has in the proxy's address",
    own: "the certificate of decklog",
    give: "decklog shows a proxy none; use a user and a password",
};

/// Returns the proxy by which an API server is reached; nothing where it is reached directly. `key` is the `proxy-url` of
/// the kubeconfig, which counts before the environment and knows no exceptions, and what to call it.
///
/// # Errors
/// Where what counts names no proxy.
pub(super) fn proxy(
    server: &Uri,
    key: Option<(&str, &str)>,
    environment: &Proxies,
) -> Result<Option<Proxy>, InvalidProxy> {
    if let Some((address, named_by)) = key {
        // client-go takes no others there.
        let is_known = ["http://", "https://", "socks5://"].iter().any(|scheme| address.starts_with(scheme));
        return Proxy::parse(if is_known { address } else { "://" }, named_by).map(Some);
    }
    let Ok(server) = Url::parse(&server.to_string()) else { return Ok(None) };
    environment.for_url(&server).map(Option::<&Proxy>::cloned)
}

/// Makes connections.
#[derive(Clone)]
pub(super) struct Connector(Arc<Way>);

struct Way {
    tcp: HttpConnector,
    proxy: Option<Proxy>,
    /// TLS with a proxy that is reached by `https://`.
    to_proxy: Option<Arc<ClientConfig>>,
    /// TLS with the API server; nothing where it is reached by `http://`.
    tls: Option<Tls>,
    /// Until a connection is made, with everything that belongs to it.
    connecting: Option<Duration>,
    writing: Option<Duration>,
}

/// Makes a client for the API server of a configuration, by a proxy or directly. The second value is true where its requests show a
/// token.
pub(super) fn client(config: &Config, tls: Option<Tls>, proxy: Option<&Proxy>) -> Result<(Client, bool), kube::Error> {
    let of_plugin = tls.as_ref().and_then(|tls| tls.of_plugin);
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    // It is divided among the addresses of a name.
    tcp.set_connect_timeout(config.connect_timeout);
    let is_absolute = tls.is_none() && proxy.is_some_and(|proxy| !proxy.is_socks());
    let authorization = proxy.filter(|_| is_absolute).and_then(through::authorization);
    let is_secure = |proxy: &&Proxy| proxy.url().scheme() == "https";
    let to_proxy = proxy.filter(is_secure).map(|_| {
        let verifier = Verifier::new(Roots::of_this_machine());
        Arc::new(crate::core::net::tls::client(Arc::new(verifier), None))
    });
    let connector = Connector(Arc::new(Way {
        tcp,
        proxy: proxy.cloned(),
        to_proxy,
        tls,
        connecting: config.connect_timeout,
        writing: config.write_timeout,
    }));
    let client = legacy::Builder::new(TokioExecutor::new()).build::<_, Body>(connector);
    let client = ServiceExt::<Request<Body>>::map_err(client, BoxError::from);
    let identify = |value: HeaderValue| {
        MapRequestLayer::new(move |mut request: Request<Body>| {
            request.headers_mut().insert(PROXY_AUTHORIZATION, value.clone());
            request
        })
    };
    // A plugin that gives a certificate gives no token, and is not run again to find that out.
    let auth = if of_plugin.is_some() { None } else { config.auth_layer()? };
    let shows_token = auth.is_some();
    let client = ClientBuilder::new(client, config.default_namespace.clone())
        .with_layer(&option_layer(authorization.map(identify)))
        .with_layer(&config.extra_headers_layer()?)
        .with_layer(&MapRequestLayer::new(proxied::shown_again))
        .with_layer(&option_layer(auth))
        .with_layer(&config.base_uri_layer())
        .build();
    let client = match of_plugin {
        Some(until) => client.with_valid_until(until),
        None => client,
    };
    Ok((client, shows_token))
}

impl Service<Uri> for Connector {
    type Response = Link;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Link, BoxError>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        let way = Arc::clone(&self.0);
        async move { way.connect(&to).await.map_err(|failure| ConnectError(failure).into()) }.boxed()
    }
}

impl Way {
    async fn connect(&self, to: &Uri) -> Result<Link, Failure> {
        // Without a bound it is an hour: the clock of tokio takes no time without end.
        let end = Instant::now() + self.connecting.unwrap_or(Duration::from_secs(3600));
        let host = to.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
        let is_secure = to.scheme_str() == Some("https");
        let port = to.port_u16().unwrap_or(if is_secure { 443 } else { 80 });
        let hop = match &self.proxy {
            None => Hop::Tcp(self.direct(to, end).await?),
            Some(proxy) => {
                let bracketed = to.host().unwrap_or_default();
                let reached = timeout_at(end, self.by_proxy(proxy, host, bracketed, port, is_secure)).await;
                reached.unwrap_or_else(|_elapsed| Err(through::silent(proxy))).map_err(Failure::Away)?
            }
        };
        let Some(tls) = self.tls.as_ref().filter(|_| is_secure) else {
            let is_absolute = self.proxy.as_ref().is_some_and(|proxy| !proxy.is_socks());
            return Ok(Link::plain(hop, is_absolute, self.writing));
        };
        let name = match &tls.name {
            Some(name) => name.clone(),
            None => server_name(host).ok_or_else(|| {
                Failure::Tls("the API server's address is no name that a certificate can have; set tls-server-name in the kubeconfig".to_owned())
            })?,
        };
        match timeout_at(end, handshake(&tls.config, name, hop)).await {
            Ok(Ok(stream)) => Ok(Link::tls(stream, self.writing)),
            Ok(Err(error)) => Err(self.no_tls(&error, tls.place)),
            Err(_elapsed) => Err(Failure::Away(format!(
                "the API server does not answer when TLS is to begin{}; check that its address is right and that it runs",
                self.by_words()
            ))),
        }
    }

    async fn direct(&self, to: &Uri, end: Instant) -> Result<TcpStream, Failure> {
        match timeout_at(end, self.tcp.clone().oneshot(to.clone())).await {
            Ok(Ok(stream)) => Ok(stream.into_inner()),
            Ok(Err(error)) => Err(failure::no_answer(&error)),
            Err(_elapsed) => Err(Failure::Away(
                "cannot reach the API server: no connection in time; check its address, and whether a firewall is in between"
                    .to_owned(),
            )),
        }
    }

    /// A way through the proxy, as far as the API server for TLS, or else to the proxy alone, which gets whole addresses.
    async fn by_proxy(
        &self,
        proxy: &Proxy,
        host: &str,
        bracketed: &str,
        port: u16,
        is_secure: bool,
    ) -> Result<Hop, String> {
        let (proxy_host, proxy_port) = proxy.host_and_port();
        let uri: Uri = format!("http://{proxy_host}:{proxy_port}/")
            .parse()
            .map_err(|_| through::unreachable(proxy, "its host is no name of a machine"))?;
        let stream =
            self.tcp.clone().oneshot(uri).await.map_err(|error| through::unreachable(proxy, &cause(&error)))?;
        let stream = stream.into_inner();
        let mut hop = match &self.to_proxy {
            None => Hop::Tcp(stream),
            Some(config) => {
                let name = server_name(proxy_host.trim_start_matches('[').trim_end_matches(']'));
                let name =
                    name.ok_or_else(|| through::unreachable(proxy, "its host is no name that a certificate can have"))?;
                let stream = handshake(config, name, stream).await;
                let stream = stream.map_err(|error| match tls_error(&error) {
                    Some(error) => format!("TLS with {} failed: {}", failure::shown(proxy), sentence(error, &PROXY)),
                    None => through::unreachable(proxy, "it closed the connection when TLS was to begin"),
                })?;
                Hop::Tls(Box::new(stream))
            }
        };
        if proxy.is_socks() {
            through::socks(&mut hop, proxy, host, port).await?;
        } else if is_secure {
            through::connect(&mut hop, proxy, bracketed, port).await?;
        }
        Ok(hop)
    }

    fn no_tls(&self, error: &io::Error, place: &Place) -> Failure {
        match tls_error(error) {
            Some(error) => Failure::Tls(sentence(error, place)),
            None => Failure::Away(format!(
                "the API server closed the connection when TLS was to begin{}; check that its address is right and that it speaks TLS",
                self.by_words()
            )),
        }
    }

    /// For the middle of a sentence.
    fn by_words(&self) -> String {
        self.proxy.as_ref().map(|proxy| format!(" (through {})", failure::shown(proxy))).unwrap_or_default()
    }
}

async fn handshake<S>(config: &Arc<ClientConfig>, name: ServerName<'static>, stream: S) -> io::Result<TlsStream<S>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    TlsConnector::from(Arc::clone(config)).connect(name, stream).await
}

fn tls_error(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}

/// Returns the innermost cause of a connection error: the text of the system.
fn cause(error: &(dyn Error + 'static)) -> String {
    let bottom = std::iter::successors(Some(error), |error| (*error).source()).last().unwrap_or(error);
    match bottom.downcast_ref::<io::Error>() {
        Some(error) if error.kind() == io::ErrorKind::ConnectionRefused => "it refuses connections".to_owned(),
        Some(error) if error.kind() == io::ErrorKind::TimedOut => "no answer in time".to_owned(),
        _ => failure::bounded(&bottom.to_string()),
    }
}
