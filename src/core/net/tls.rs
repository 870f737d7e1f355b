//! TLS as decklog's clients speak it: whom they trust, what they show of themselves, and what its errors mean.
//!
//! What kubectl takes is what Go's `crypto/tls` and `crypto/x509` take. rustls and webpki take less in a few places, and
//! [`Verifier`] takes those as well, by the rules of Go and never more than these.
//!
//! # Decision: TLS verifies as Go does, on AWS-LC
//!
//! Context: `ring` has no P-521, and `webpki` refuses certificates that Go accepts.
//! Decision: `aws-lc-rs` is the only provider (deny.toml forbids `ring`). `webpki` decides first; if it refuses, a chain is
//! built by Go's rules (`core/net/tls/chain`). Of 64 chains none passes that Go refuses, and two are refused that Go accepts.
//! Cost: C in the build.

mod chain;
mod pem;
#[cfg(test)]
mod tests;
mod words;
mod x509;

use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ResolvesClientCert, Resumption, verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, TrustAnchor, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use pem::certificates;
pub use words::{Place, sentence};

use self::chain::{Refusal, Search};
use self::x509::Certificate;
use super::crypto_provider;

/// TLS: whom decklog trusts at a server, and its own certificate. The files are PEM and are read again when they change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Tls")]
pub struct Files {
    /// A PEM file with the certificate authorities to trust. Default: the system's.
    #[serde(default)]
    #[schemars(extend("format" = "readable-file"))]
    pub ca_file: Option<PathBuf>,
    /// A PEM file with decklog's own certificate and what it was signed with, for servers that ask for one.
    #[serde(default)]
    #[schemars(extend("format" = "readable-file"))]
    pub cert_file: Option<PathBuf>,
    /// A PEM file with the private key of `cert_file`.
    #[serde(default)]
    #[schemars(extend("format" = "readable-file"))]
    pub key_file: Option<PathBuf>,
}

/// Time for which a file of authorities is not read again.
const AUTHORITIES_MAX_AGE: Duration = Duration::from_secs(60);

/// A certificate that is trusted.
#[derive(Clone, Debug)]
struct Root {
    der: CertificateDer<'static>,
    /// Trust anchor, if webpki accepts the certificate as an authority.
    anchor: Option<TrustAnchor<'static>>,
    /// Seconds of Unix time.
    valid: (i64, i64),
    /// The most intermediates that may follow, where the certificate bounds them. A trust anchor of webpki has no such bound.
    most: Option<u64>,
}

impl Root {
    /// Parses a certificate; none if it cannot be parsed: Go skips such a certificate.
    fn read(der: CertificateDer<'static>) -> Option<Self> {
        let mut store = RootCertStore::empty();
        let anchor = store.add(der.clone()).ok().and_then(|()| store.roots.pop());
        let certificate = Certificate::read(&der)?;
        let may_sign = certificate.may_issue()
            && certificate.extensions.for_servers != Some(false)
            && !certificate.extensions.unknown_critical;
        let valid = certificate.valid;
        let most = certificate.extensions.constraints.and_then(|(_, most)| most);
        Some(Self { anchor: anchor.filter(|_| may_sign), der, valid, most })
    }
}

/// The certificates that are trusted. One that cannot be read takes no other with it.
#[derive(Clone, Debug, Default)]
pub struct Roots(Vec<Root>);

impl Roots {
    /// The certificates of this machine, where Go looks for them too: `SSL_CERT_FILE` and `SSL_CERT_DIR` name others.
    #[must_use]
    pub fn of_this_machine() -> Self {
        Self::read(rustls_native_certs::load_native_certs().certs)
    }

    /// The certificates that can be read.
    #[must_use]
    pub fn read(certificates: impl IntoIterator<Item = CertificateDer<'static>>) -> Self {
        Self(certificates.into_iter().filter_map(Root::read).collect())
    }

    /// Reports whether it is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The authorities that are valid at a time and may have so many intermediates below them.
    fn store(&self, now: UnixTime, intermediates: usize) -> RootCertStore {
        let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        let valid = self.0.iter().filter(|root| {
            (root.valid.0..=root.valid.1).contains(&now) && root.most.is_none_or(|most| intermediates as u64 <= most)
        });
        valid.filter_map(|root| root.anchor.clone()).collect()
    }
}

/// Verifies the certificates of servers: webpki first, and what Go takes beside it.
#[derive(Debug)]
pub struct Verifier {
    roots: RwLock<(Arc<Roots>, Instant)>,
    /// Read again each minute, because authorities are replaced while decklog runs.
    file: Option<PathBuf>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Verifier {
    /// Trusts these certificates.
    #[must_use]
    pub fn new(roots: Roots) -> Self {
        let algorithms = crypto_provider().signature_verification_algorithms;
        Self { roots: RwLock::new((Arc::new(roots), Instant::now())), file: None, algorithms }
    }

    /// Trusts the certificates of a PEM file as it is at each time; `roots` are those that it has now.
    #[must_use]
    pub fn following(roots: Roots, file: PathBuf) -> Self {
        Self { file: Some(file), ..Self::new(roots) }
    }

    fn current(&self) -> Arc<Roots> {
        let known = self.roots.read().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(file) = self.file.as_ref().filter(|_| known.1.elapsed() >= AUTHORITIES_MAX_AGE) else {
            return known.0;
        };
        let mut roots = self.roots.write().unwrap_or_else(PoisonError::into_inner);
        match std::fs::read(file).map(|text| Roots::read(certificates(&text))) {
            Ok(read) if !read.is_empty() => roots.0 = Arc::new(read),
            Ok(_) | Err(_) => {
                tracing::warn!("{} cannot be read again; the authorities that it had count on", file.display());
            }
        }
        roots.1 = Instant::now();
        Arc::clone(&roots.0)
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let refused = |refusal| Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(refusal))));
        let roots = self.current();
        let has_names = Certificate::read(end_entity).map(|leaf| (leaf.extensions.has_names, leaf.subject_name()));
        let parsed = match ParsedCertificate::try_from(end_entity) {
            Ok(parsed) => parsed,
            Err(error) => {
                return Err(match has_names {
                    Some((false, subject)) => refused(Refusal::NoNames(subject)),
                    Some((true, _)) => refused(Refusal::Critical),
                    None => error,
                });
            }
        };
        let all = self.algorithms.all;
        // webpki does not look at the key usage of an intermediate, which Go does.
        let usable: Vec<CertificateDer<'_>> = intermediates
            .iter()
            .filter(|der| Certificate::read(der).is_some_and(|certificate| certificate.may_issue()))
            .filter(|der| !roots.0.iter().any(|root| root.der == **der))
            .cloned()
            .collect();
        let store = roots.store(now, usable.len());
        let verdict = verify_server_cert_signed_by_trust_anchor(&parsed, &store, &usable, now, all);
        if let Err(error) = verdict {
            match (Search { roots: &roots.0, intermediates, algorithms: all, now }).verify(end_entity) {
                Ok(()) => {}
                Err(Refusal::Unreadable) => return Err(error),
                Err(refusal) => return Err(refused(refusal)),
            }
        }
        match (verify_server_name(&parsed, server_name), has_names) {
            (Ok(()), _) => Ok(ServerCertVerified::assertion()),
            (Err(_), Some((false, subject))) => Err(refused(Refusal::NoNames(subject))),
            (Err(error), _) => Err(error),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// Takes every certificate, for `insecure-skip-tls-verify`. The signature of the handshake would prove nothing, because the
/// certificate proves nothing.
#[derive(Debug)]
struct Anyone(WebPkiSupportedAlgorithms);

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}

/// Own identity for TLS: a certificate with its chain, and its key.
#[derive(Clone, Debug)]
pub struct Identity(Arc<dyn ResolvesClientCert>);

impl Identity {
    /// Reads a certificate and its key. `names` are what the two are called in a sentence, such as the paths of their files.
    ///
    /// # Errors
    /// What is wrong with which of the two, and what to do: one sentence without an end that begins with its name.
    pub fn read(certificate: &[u8], key: &[u8], names: (&str, &str)) -> Result<Self, String> {
        let chain = certificates(certificate);
        let Some(own) = chain.first() else { return Err(no_certificate(certificate, names)) };
        let key = private_key(key, names.1)?;
        if let (Some(public), Some(read)) = (key.public_key(), Certificate::read(own))
            && public.as_ref() != read.key_info
        {
            return Err(format!(
                "{} and {} do not fit each other: give the key that the certificate was made for",
                names.0, names.1
            ));
        }
        // rustls would read the certificate, and refuse X.509 version 1, which is for the other end to decide.
        Ok(Self(Arc::new(SingleCertAndKey::from(CertifiedKey::new(chain, key)))))
    }

    /// The identity of a configuration that was made elsewhere; nothing where it has none.
    #[must_use]
    pub fn of(config: &ClientConfig) -> Option<Self> {
        config.client_auth_cert_resolver.has_certs().then(|| Self(Arc::clone(&config.client_auth_cert_resolver)))
    }
}

fn no_certificate(text: &[u8], names: (&str, &str)) -> String {
    let name = names.0;
    if pem::blocks(text).iter().any(|block| block.label.ends_with("PRIVATE KEY")) {
        return format!(
            "{name} holds a private key in the place of a PEM certificate; it may have been exchanged with {}",
            names.1
        );
    }
    format!("{name} holds no PEM certificate; write one that begins with -----BEGIN CERTIFICATE-----")
}

/// Reads a private key as Go does: the first block that is one, in whatever encoding it is.
fn private_key(text: &[u8], name: &str) -> Result<Arc<dyn rustls::sign::SigningKey>, String> {
    let blocks = pem::blocks(text);
    let Some(block) = blocks.into_iter().find(|block| block.label.ends_with("PRIVATE KEY")) else {
        return Err(format!("{name} holds no PEM private key; write one that begins with -----BEGIN PRIVATE KEY-----"));
    };
    if block.label == "ENCRYPTED PRIVATE KEY" || block.headers.iter().any(|header| header.contains("ENCRYPTED")) {
        return Err(format!(
            "{name} holds a private key that is encrypted; decrypt it first, as with `openssl pkey -in KEY -out KEY`"
        ));
    }
    let unusable = |why: &str| {
        format!(
            "{name} holds a private key that cannot be used: {why}; give one of RSA with 2048 bits or more, of P-256, P-384 or P-521, or of Ed25519"
        )
    };
    let why = match block.label.as_str() {
        "DSA PRIVATE KEY" => "TLS has no DSA any more",
        "OPENSSH PRIVATE KEY" => "it is one of SSH",
        _ => "it is damaged, or of a kind that decklog does not know",
    };
    let key = PrivateKeyDer::try_from(block.der).map_err(|_| unusable(why))?;
    crypto_provider().key_provider.load_private_key(key).map_err(|_| unusable(why))
}

/// Returns a configuration that trusts what the verifier does, and shows the identity to who asks for it.
#[must_use]
pub fn client(verifier: Arc<dyn ServerCertVerifier>, identity: Option<Identity>) -> ClientConfig {
    let builder = ClientConfig::builder_with_provider(crypto_provider())
        .with_safe_default_protocol_versions()
        .expect("the provider has the default versions")
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let mut config = match identity {
        Some(Identity(resolver)) => builder.with_client_cert_resolver(resolver),
        None => builder.with_no_client_auth(),
    };
    // A session that is resumed skips the verifier. Go verifies every connection, and connections here are few and long.
    config.resumption = Resumption::disabled();
    config
}

/// Returns a verifier that takes every certificate.
#[must_use]
pub fn anyone() -> Arc<dyn ServerCertVerifier> {
    Arc::new(Anyone(crypto_provider().signature_verification_algorithms))
}
