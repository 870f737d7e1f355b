//! TLS with the API server: whose certificates count there, and what it is shown of us.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use kube::client::ConfigExt;
use kube::config::AuthInfo;
use kube::{Client, Config};
use rustls::ClientConfig;
use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::{CertificateDer, ServerName};
use secrecy::ExposeSecret;

use super::failure::KUBECONFIG;
use crate::core::net::tls::{self, Identity, Place, Roots, Verifier};

/// The same where it has none.
const MACHINE: Place = Place {
    authority: "an authority that this machine trusts",
    trust: "name its authority in the kubeconfig, as certificate-authority",
    ..KUBECONFIG
};

/// The same in a Pod.
const POD: Place = Place {
    authority: "the authority of the service account",
    trust: "check what is between this Pod and the API server",
    name: "check what is between this Pod and the API server",
    ..KUBECONFIG
};

/// TLS with one API server.
pub(super) struct Tls {
    pub(super) config: Arc<ClientConfig>,
    /// The `tls-server-name`.
    pub(super) name: Option<ServerName<'static>>,
    pub(super) place: &'static Place,
    /// Set if a program provides the client certificate, and so no token: its expiry, if the program gave one.
    pub(super) of_plugin: Option<Option<Timestamp>>,
}

/// Reason why there can be no TLS.
pub(super) enum TlsError {
    /// One sentence.
    Said(String),
    /// The program that gives the credentials failed.
    Plugin(kube::Error),
}

impl Tls {
    /// TLS as a configuration asks for it; nothing for an API server that is reached by `http://`.
    ///
    /// # Errors
    /// Where it can never work: what is wrong with which certificate or key.
    pub(super) fn of(config: &Config) -> Result<Option<Self>, TlsError> {
        if config.cluster_url.scheme_str() != Some("https") {
            return Ok(None);
        }
        let (verifier, place) = verifier(config).map_err(TlsError::Said)?;
        let (identity, until) = match of_plugin(config).map_err(TlsError::Plugin)? {
            Some(first) => {
                // kube alone reads what the program says, and runs it for each question: a certificate that is given later
                // counts at least as long.
                let until = valid_until(config);
                (of_plugin(config).map_err(TlsError::Plugin)?.or(Some(first)), Some(until))
            }
            None => (of_kubeconfig(&config.auth_info).map_err(TlsError::Said)?, None),
        };
        let name = config.tls_server_name.as_deref().filter(|name| !name.is_empty());
        let name = name.map(|name| {
            server_name(name)
                .ok_or_else(|| TlsError::Said("its tls-server-name is no name that a certificate can have".to_owned()))
        });
        let config = Arc::new(tls::client(verifier, identity));
        Ok(Some(Self { config, name: name.transpose()?, place, of_plugin: until }))
    }
}

/// The time until which the credentials of a program count, as it says.
fn valid_until(config: &Config) -> Option<Timestamp> {
    Client::try_from(trusting(config)).ok().and_then(|client| *client.valid_until())
}

fn verifier(config: &Config) -> Result<(Arc<dyn ServerCertVerifier>, &'static Place), String> {
    if config.accept_invalid_certs {
        return Ok((tls::anyone(), &KUBECONFIG));
    }
    let Some(authorities) = &config.root_cert else {
        return Ok((Arc::new(Verifier::new(Roots::of_this_machine())), &MACHINE));
    };
    let roots = Roots::read(authorities.iter().map(|der| CertificateDer::from(der.clone())));
    if roots.is_empty() {
        return Err("its certificate-authority holds no certificate that can be read; write one that begins with -----BEGIN CERTIFICATE-----".to_owned());
    }
    Ok(match &config.root_cert_file {
        Some(file) => (Arc::new(Verifier::following(roots, file.clone())), &POD),
        None => (Arc::new(Verifier::new(roots)), &KUBECONFIG),
    })
}

/// The same without anything that says whom to trust: kube is asked for what it shows of us alone.
fn trusting(config: &Config) -> Config {
    let mut config = config.clone();
    config.accept_invalid_certs = true;
    (config.root_cert, config.root_cert_file) = (None, None);
    config
}

/// The certificate that a program gives. It counts before the one of the kubeconfig.
fn of_plugin(config: &Config) -> Result<Option<Identity>, kube::Error> {
    let AuthInfo { exec, token, username, password, .. } = &config.auth_info;
    // What kube asks before it asks a program.
    if exec.is_none() || token.is_some() || (username.is_some() && password.is_some()) {
        return Ok(None);
    }
    let mut asked = trusting(config);
    let user = &mut asked.auth_info;
    (user.client_certificate, user.client_certificate_data) = (None, None);
    (user.client_key, user.client_key_data) = (None, None);
    Ok(Identity::of(&asked.rustls_client_config()?))
}

fn of_kubeconfig(user: &AuthInfo) -> Result<Option<Identity>, String> {
    let key_data = user.client_key_data.as_ref().map(ExposeSecret::expose_secret);
    let certificate =
        part("client-certificate", user.client_certificate_data.as_deref(), user.client_certificate.as_deref())?;
    let key = part("client-key", key_data, user.client_key.as_deref())?;
    match (certificate, key) {
        (None, None) => Ok(None),
        (Some(_), None) => Err("its user has a client-certificate without a client-key; name both".to_owned()),
        (None, Some(_)) => Err("its user has a client-key without a client-certificate; name both".to_owned()),
        (Some((certificate, certificate_name)), Some((key, key_name))) => {
            Identity::read(&certificate, &key, (&certificate_name, &key_name)).map(Some)
        }
    }
}

/// The content of a file, or the data in its place, and what to call it.
fn part(key: &str, data: Option<&str>, file: Option<&str>) -> Result<Option<(Vec<u8>, String)>, String> {
    if let Some(data) = data.filter(|data| !data.is_empty()) {
        let name = format!("{key}-data");
        let plain: String = data.chars().filter(|c| !c.is_ascii_whitespace()).collect();
        let read = STANDARD
            .decode(plain)
            .map_err(|_| format!("its {name} is no base64; encode the PEM file, as with `base64 -w0`"))?;
        return Ok(Some((read, format!("its {name}"))));
    }
    let Some(file) = file.filter(|file| !file.is_empty()) else { return Ok(None) };
    let name = format!("its {key} {}", super::failure::bounded(file));
    match std::fs::read(file) {
        Ok(read) => Ok(Some((read, name))),
        Err(error) => Err(format!("{name} cannot be read: {error}")),
    }
}

/// The name that a certificate has to have for a host. As for Go, a dot at the end of it does not count.
pub(super) fn server_name(host: &str) -> Option<ServerName<'static>> {
    ServerName::try_from(host.strip_suffix('.').unwrap_or(host).to_owned()).ok()
}
