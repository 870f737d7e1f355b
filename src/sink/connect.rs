//! Connections of sinks that speak their own protocol: where to, and over TLS or not.

use std::io;
use std::time::Duration;

use reqwest::Url;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::SinkError;
use super::link::cause;
use super::settings;
use super::tls::Tls;

/// A connection.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// A server that is reached over TCP.
#[derive(Debug)]
pub(crate) struct Server {
    /// Name for people.
    pub(crate) shown: String,
    host: String,
    port: u16,
    tls: Option<Tls>,
}

impl Server {
    /// Takes host and port from a URL. `secure` is the scheme that means TLS.
    ///
    /// # Errors
    /// Where the URL or the certificates can never work.
    pub(crate) fn new(url: &Url, secure: &str, port: u16, tls: &settings::Tls) -> Result<Self, String> {
        let host = url.host_str().filter(|host| !host.is_empty()).ok_or("`url` must name a host")?;
        let port = url.port().unwrap_or(port);
        let tls = if url.scheme() == secure {
            Some(Tls::new(tls)?)
        } else if *tls == settings::Tls::default() {
            None
        } else {
            return Err(format!("`ca_file`, `cert_file` and `key_file` need a `url` that begins with {secure}://"));
        };
        Ok(Self {
            shown: format!("{}://{host}:{port}", url.scheme()),
            host: host.trim_start_matches('[').trim_end_matches(']').to_owned(),
            port,
            tls,
        })
    }

    /// Reads the certificates again. Returns whether they are others than before, so that the connection is to be made
    /// again.
    pub(crate) async fn changed(&mut self) -> Result<bool, SinkError> {
        match &mut self.tls {
            Some(tls) => Ok(tls.refresh().await?.1),
            None => Ok(false),
        }
    }

    /// The files must be readable at the next use.
    pub(crate) fn forget(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.forget();
        }
    }

    /// Connects.
    pub(crate) async fn connect(&mut self, timeout: Duration) -> Result<Box<dyn Stream>, SinkError> {
        let shown = &self.shown;
        let failed = |error: io::Error| SinkError::retry(format!("cannot connect to {shown}: {}", cause(&error)));
        let plain = async {
            let stream = TcpStream::connect((self.host.as_str(), self.port)).await.map_err(failed)?;
            stream.set_nodelay(true).map_err(failed)?;
            Ok(stream)
        };
        let stream = within(timeout, shown, plain).await?;
        let Some(tls) = &mut self.tls else { return Ok(Box::new(stream)) };
        let (client, _) = tls.refresh().await?;
        let name = ServerName::try_from(self.host.clone()).map_err(|_| {
            SinkError::halt(format!(
                "{} is no name that a certificate can have; correct `url`, and send SIGHUP",
                self.host
            ))
        })?;
        // Who speaks no TLS may wait for more in the place of answering.
        match tokio::time::timeout(timeout, TlsConnector::from(client).connect(name, stream)).await {
            Ok(stream) => Ok(Box::new(stream.map_err(failed)?)),
            Err(_elapsed) => Err(SinkError::retry(format!(
                "{shown} did not answer within {timeout:?} when TLS was to begin; does that port speak TLS?"
            ))),
        }
    }
}

/// Bounds what is waited for from a server.
pub(crate) async fn within<T>(
    timeout: Duration,
    shown: &str,
    work: impl Future<Output = Result<T, SinkError>>,
) -> Result<T, SinkError> {
    let slow = |_| SinkError::retry(format!("{shown} did not answer within {timeout:?}"));
    tokio::time::timeout(timeout, work).await.map_err(slow)?
}

/// Bounds a step of writing to who takes things and says nothing.
pub(crate) async fn taken<T>(timeout: Duration, step: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let slow = || io::Error::new(io::ErrorKind::TimedOut, format!("it took nothing for {timeout:?}"));
    tokio::time::timeout(timeout, step).await.unwrap_or_else(|_elapsed| Err(slow()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_says_where_to_and_whether_over_tls() {
        let none = settings::Tls::default();
        let server = |url: &str, tls| Server::new(&Url::parse(url).unwrap(), "rediss", 6379, tls);
        let one = server("rediss://[::1]/3", &none).unwrap();
        assert_eq!((one.shown.as_str(), one.host.as_str(), one.port), ("rediss://[::1]:6379", "::1", 6379));
        assert!(one.tls.is_some() && server("redis://h:1", &none).unwrap().tls.is_none());
        assert!(server("redis:///x", &none).unwrap_err().contains("host"));
        let authorities = settings::Tls { ca_file: Some("ca".into()), ..none.clone() };
        assert!(server("redis://h", &authorities).unwrap_err().contains("rediss://"));
    }
}
