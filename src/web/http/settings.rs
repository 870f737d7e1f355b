//! `[http]`: where the endpoints are served.

use std::net::SocketAddr;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::core::net::server::{Authorize, Endpoint, Listen};

/// The HTTP endpoints.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Http")]
pub struct Settings {
    /// Address of /livez, /readyz, /metrics and /status: IP:PORT, or the path of a unix socket.
    pub listen: Listen,
    /// Let `listen` be an address that other machines reach. Nobody is asked for a password there, but for `reading`.
    pub allow_remote: bool,
    /// Let `decklog --server` and assistants (`/mcp`) read the log here, for everybody who may open the unix socket, or shows a token of `token_file` or a
    /// certificate of `client_ca_file`.
    pub reading: bool,
    /// Who decides what a reader may read: `cluster` is the API server, by the reader's own Kubernetes token, and each answer has
    /// only what that reader may `list`. Without it who is let in reads all of the log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authorize: Option<Authorize>,
    /// A file with the tokens that may read, one in each line, each of 16 characters at least. It is read again for each
    /// command.
    #[schemars(extend("format" = "readable-file"))]
    pub token_file: Option<PathBuf>,
    /// A PEM file with the certificate that the endpoints show, and what it was signed with: all of them speak TLS then.
    #[schemars(extend("format" = "readable-file"))]
    pub tls_cert_file: Option<PathBuf>,
    /// A PEM file with the private key of `tls_cert_file`.
    #[schemars(extend("format" = "readable-file"))]
    pub tls_key_file: Option<PathBuf>,
    /// A PEM file with the authorities whose client certificates may read.
    #[schemars(extend("format" = "readable-file"))]
    pub client_ca_file: Option<PathBuf>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            listen: Listen::Tcp(SocketAddr::from(([127, 0, 0, 1], 9465))),
            allow_remote: false,
            reading: false,
            authorize: None,
            token_file: None,
            tls_cert_file: None,
            tls_key_file: None,
            client_ca_file: None,
        }
    }
}

impl Settings {
    /// Returns the settings of its listener; `section` is what messages call it.
    pub(crate) fn endpoint(&self, section: &'static str) -> Endpoint<'_> {
        Endpoint {
            section,
            listen: &self.listen,
            gated: self.reading || self.authorize.is_some(),
            authorize: self.authorize,
            token_file: self.token_file.as_deref(),
            tls_cert_file: self.tls_cert_file.as_deref(),
            tls_key_file: self.tls_key_file.as_deref(),
            client_ca_file: self.client_ca_file.as_deref(),
        }
    }
}
