//! TLS of a listener: what it shows of itself, and whose certificates it knows. The files are read again for
//! each connection, so that a certificate that was renewed is used at once.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::sync::Mutex;
use tokio_rustls::TlsAcceptor;

use crate::core::credential_files::Followed;

/// The files, and what was made of them.
#[derive(Debug)]
pub(super) struct Identity(Mutex<Files>);

#[derive(Debug)]
struct Files {
    cert: Followed,
    key: Followed,
    clients: Option<Followed>,
    made: Option<Arc<ServerConfig>>,
    /// They have changed since that was made. A connection that is given up in between leaves it to the next one.
    stale: bool,
}

impl Identity {
    /// Takes the files; none if there is no certificate with a key, and so no TLS.
    pub(super) fn of(cert: Option<&Path>, key: Option<&Path>, clients: Option<&Path>) -> Option<Self> {
        let (cert, key, clients) = (cert?, key?, clients.map(Followed::new));
        Some(Self(Mutex::new(Files {
            cert: Followed::new(cert),
            key: Followed::new(key),
            clients,
            made: None,
            stale: true,
        })))
    }

    /// Returns an acceptor with the current files.
    ///
    /// # Errors
    /// What is wrong with them, where they were never right.
    pub(super) async fn acceptor(&self) -> Result<TlsAcceptor, String> {
        let mut files = self.0.lock().await;
        let Files { cert, key, clients, stale, .. } = &mut *files;
        for file in [cert, key].into_iter().chain(clients) {
            *stale |= file.refresh().await.map_err(|error| error.to_string())?;
        }
        if files.stale {
            match files.make() {
                Ok(made) => (files.made, files.stale) = (Some(Arc::new(made)), false),
                Err(text) if files.made.is_none() => return Err(text),
                // A certificate and its key are replaced one after the other.
                Err(text) => tracing::warn!("{text}; the endpoints go on showing the certificate that they had"),
            }
        }
        let made = files.made.clone();
        Ok(TlsAcceptor::from(made.expect("it was made now, or else before")))
    }
}

/// Error for a certificate that cannot be an authority.
const UNFIT: &str =
    "holds a certificate that cannot be an authority; give the one that signs the clients' certificates";
/// Keys that TLS takes.
const KEYS: &str = "one of RSA with 2048 bits or more, of P-256, P-384 or P-521, or of Ed25519";

impl Files {
    fn make(&self) -> Result<ServerConfig, String> {
        let wrong = |file: &Followed, what: &str| format!("{} {what}", file.path().display());
        let provider = crate::core::net::crypto_provider();
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .expect("the provider has the default versions");
        let builder = match &self.clients {
            None => builder.with_no_client_auth(),
            Some(file) => {
                let mut roots = RootCertStore::empty();
                for certificate in certificates(file)? {
                    roots.add(certificate).map_err(|_| wrong(file, UNFIT))?;
                }
                // Probes and scrapes show none.
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                    .allow_unauthenticated()
                    .build()
                    .map_err(|_| wrong(file, UNFIT))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let key = PrivateKeyDer::from_pem_slice(self.key.bytes());
        let key = key.map_err(|_| wrong(&self.key, "holds no PEM private key"))?;
        let mut config = builder.with_single_cert(certificates(&self.cert)?, key).map_err(|_| {
            let key = self.key.path().display();
            wrong(
                &self.cert,
                &format!("and {key} do not fit each other; give the key that the certificate was made for: {KEYS}"),
            )
        })?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
    }
}

fn certificates(file: &Followed) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(file.bytes()).collect();
    let found = found.ok().filter(|found| !found.is_empty());
    found.ok_or_else(|| format!("{} holds no PEM certificate", file.path().display()))
}
