//! Names of machines, and the cryptography of every TLS connection.

pub mod proxy;
pub mod server;
pub mod tls;
pub mod url;

use std::net::IpAddr;
use std::sync::Arc;

use http::HeaderName;
use reqwest::Url;
use rustls::crypto::CryptoProvider;

/// The name of decklog in requests: what an API server's audit log and a proxy's log call it.
pub const USER_AGENT: &str = concat!("decklog/", env!("CARGO_PKG_VERSION"));

/// The header of a token that counts before `Authorization`. An API server takes that one away from what it sends on through its
/// proxy, and leaves this one.
pub(crate) const TOKEN_HEADER: HeaderName = HeaderName::from_static("decklog-authorization");

/// The cryptography of every TLS connection: AWS-LC, which signs and verifies with P-521 as the TLS of Go does.
#[must_use]
pub fn crypto_provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

/// Makes [`crypto_provider`] the one of the whole process, for libraries that take no other. One that was installed first
/// stays.
pub fn install_crypto_provider() {
    rustls::crypto::aws_lc_rs::default_provider().install_default().ok();
}

/// Whether a host is this machine.
#[must_use]
pub fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || address.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

/// Host and port of a server, from its URL or without a scheme. The names of this machine are one.
#[must_use]
pub fn server(url: &str, port: u16) -> Option<String> {
    let url = Url::parse(url).or_else(|_| Url::parse(&format!("any://{url}"))).ok()?;
    let host = url.host_str()?.trim_end_matches('.').to_lowercase();
    let host = if is_loopback(&host) { "localhost" } else { host.trim_start_matches('[').trim_end_matches(']') };
    Some(format!("{host}:{}", url.port().unwrap_or(port)))
}
