//! `[ui]`: where the timeline page is served, and to whom.

use std::net::SocketAddr;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::core::net::server::{Authorize, Endpoint, Listen};

/// The timeline page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Ui")]
pub struct Settings {
    /// Address of the timeline page: IP:PORT, or the path of a unix socket. It shows objects, redacted as in the journal.
    pub listen: Listen,
    /// Let `listen` be an address that other machines reach. It takes TLS, and `token_file`, `client_ca_file` or `authorize`.
    pub allow_remote: bool,
    /// Names under which the page is reached beside localhost and addresses, such as that of a proxy before it.
    pub hosts: Vec<String>,
    /// Who decides what a reader may read: `cluster` is the API server, by the reader's own Kubernetes token, and each answer has
    /// only what that reader may `list`. Without it who is let in reads all of the log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authorize: Option<Authorize>,
    /// A file with the tokens that may read, one in each line, each of 16 characters at least. It is read again for each
    /// request.
    #[schemars(extend("format" = "readable-file"))]
    pub token_file: Option<PathBuf>,
    /// A PEM file with the certificate that the page shows, and what it was signed with.
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
            listen: Listen::Tcp(SocketAddr::from(([127, 0, 0, 1], 9467))),
            allow_remote: false,
            hosts: Vec::new(),
            authorize: None,
            token_file: None,
            tls_cert_file: None,
            tls_key_file: None,
            client_ca_file: None,
        }
    }
}

impl Settings {
    /// Returns the settings of its listener.
    pub(crate) fn endpoint(&self) -> Endpoint<'_> {
        Endpoint {
            section: "[ui]",
            listen: &self.listen,
            gated: true,
            authorize: self.authorize,
            token_file: self.token_file.as_deref(),
            tls_cert_file: self.tls_cert_file.as_deref(),
            tls_key_file: self.tls_key_file.as_deref(),
            client_ca_file: self.client_ca_file.as_deref(),
        }
    }

    /// Reports whether clients have to authenticate.
    #[must_use]
    pub const fn asks(&self) -> bool {
        self.token_file.is_some() || self.client_ca_file.is_some() || self.authorize.is_some()
    }
}
