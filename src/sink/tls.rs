//! TLS as every sink has it: whom it trusts, and what it shows of itself.

use std::error::Error;
use std::io;
use std::sync::Arc;

use rustls::ClientConfig;

use super::SinkError;
use super::settings;
use crate::core::credential_files::Followed;
use crate::core::net::tls::{self, Identity, Place, Roots, Verifier};

/// The files of [`settings::Tls`], and what was made of them.
#[derive(Debug)]
pub(crate) struct Tls {
    authorities: Option<Followed>,
    /// Our certificate, and its key.
    own: Option<(Followed, Followed)>,
    made: Option<Arc<ClientConfig>>,
}

impl Tls {
    /// Creates the configuration; no file is read yet.
    ///
    /// # Errors
    /// Where a certificate has no key, or a key no certificate.
    pub(crate) fn new(config: &settings::Tls) -> Result<Self, String> {
        let own = match (&config.cert_file, &config.key_file) {
            (Some(cert), Some(key)) => Some((Followed::new(cert), Followed::new(key))),
            (None, None) => None,
            (Some(_), None) => return Err("`cert_file` needs `key_file`, its private key".to_owned()),
            (None, Some(_)) => return Err("`key_file` needs `cert_file`, its certificate".to_owned()),
        };
        Ok(Self { authorities: config.ca_file.as_deref().map(Followed::new), own, made: None })
    }

    /// Returns the TLS configuration by the present files, and whether it has changed.
    ///
    /// # Errors
    /// Where a file cannot be read, or does not hold what it should.
    pub(crate) async fn refresh(&mut self) -> Result<(Arc<ClientConfig>, bool), SinkError> {
        let mut other = false;
        if let Some(file) = &mut self.authorities {
            other |= file.refresh().await?;
        }
        if let Some((cert, key)) = &mut self.own {
            other |= cert.refresh().await?;
            other |= key.refresh().await?;
        }
        if let Some(made) = &self.made
            && !other
        {
            return Ok((Arc::clone(made), false));
        }
        let made = Arc::new(self.make()?);
        self.made = Some(Arc::clone(&made));
        Ok((made, true))
    }

    /// The files as they were read last, for a library with a TLS of its own: whom to trust, our certificate, its key.
    #[cfg(feature = "kafka")]
    pub(crate) fn pem(&self) -> (Option<&Followed>, Option<(&Followed, &Followed)>) {
        (self.authorities.as_ref(), self.own.as_ref().map(|(cert, key)| (cert, key)))
    }

    /// The files must be readable at the next use, and connections are made again.
    pub(crate) fn forget(&mut self) {
        let own = self.own.iter_mut().flat_map(|(cert, key)| [cert, key]);
        self.authorities.iter_mut().chain(own).for_each(Followed::forget);
        self.made = None;
    }

    fn make(&self) -> Result<ClientConfig, SinkError> {
        let roots = match &self.authorities {
            Some(file) => {
                let roots = Roots::read(tls::certificates(file.bytes()));
                if roots.is_empty() {
                    return Err(SinkError::retry(format!("{} holds no PEM certificate", file.path().display())));
                }
                roots
            }
            // Without any, the connection itself says so.
            None => Roots::of_this_machine(),
        };
        let identity = match &self.own {
            Some((cert, key)) => {
                let names = [cert, key].map(|file| file.path().display().to_string());
                let read = Identity::read(cert.bytes(), key.bytes(), (&names[0], &names[1]));
                Some(read.map_err(SinkError::retry)?)
            }
            None => None,
        };
        Ok(tls::client(Arc::new(Verifier::new(roots)), identity))
    }
}

/// Terms for sentences about the connections of sinks.
const SERVER: Place = Place {
    peer: "the server",
    authority: "an authority that decklog trusts here",
    trust: "name the authority that signed the server's certificate in `ca_file`",
    name: "connect to a name that is in the server's certificate",
    own: "the certificate in `cert_file`",
    give: "give it one in `cert_file` and `key_file`",
};

/// The meaning of an error of TLS, and what to do about it; nothing where it is another error.
pub(crate) fn meaning(error: &(dyn Error + 'static)) -> Option<String> {
    Some(tls::sentence(of(error)?, &SERVER))
}

/// The error of TLS that an error is or holds, without its causes.
pub(super) fn of<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e rustls::Error> {
    let mut error: &'e (dyn Error + 'static) = error;
    // An error of I/O that holds another one says only what that one says, and does not name it as its cause.
    while let Some(inner) = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        error = inner;
    }
    error.downcast_ref()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use super::*;
    use crate::sink::link::chain;

    /// However deep it lies.
    #[test]
    fn an_error_of_tls_says_what_to_do_about_it() {
        #[derive(Debug, thiserror::Error)]
        #[error("client error (Connect)")]
        struct Outer(#[source] io::Error);
        let unknown = || rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer);
        let held = |error| io::Error::new(io::ErrorKind::InvalidData, error);
        let text = chain(&Outer(io::Error::other(held(unknown()))));
        let wanted = "the server's certificate is not signed by an authority that decklog trusts here; name the authority \
                      that signed the server's certificate in `ca_file`";
        assert_eq!(text, wanted);
        assert_eq!(chain(&unknown()), wanted);
        #[derive(Debug, thiserror::Error)]
        #[error("IO error: {0}")]
        struct Quoting(#[source] io::Error);
        assert_eq!(chain(&Quoting(held(unknown()))), format!("IO error: {wanted}"));
        assert_eq!(chain(&io::Error::other("two\n lines\n")), "two lines");
    }

    #[tokio::test]
    async fn certificates_are_taken_from_files_as_they_change() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        for name in ["a", "b"] {
            let (key, cert) = (path(&format!("{name}.key")), path(&format!("{name}.crt")));
            let mut command = Command::new("openssl");
            command.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]);
            command.args(["-subj", &format!("/CN={name}"), "-keyout"]).arg(key).arg("-out").arg(cert);
            assert!(command.output().unwrap().status.success());
        }
        fs::copy(path("a.crt"), path("ca.crt")).unwrap();
        let config = |cert: &str, key: &str| settings::Tls {
            ca_file: Some(path("ca.crt")),
            cert_file: Some(path(cert)),
            key_file: Some(path(key)),
        };
        let mut tls = Tls::new(&config("a.crt", "a.key")).unwrap();
        assert!(tls.refresh().await.unwrap().1);
        assert!(!tls.refresh().await.unwrap().1);
        fs::copy(path("b.crt"), path("ca.crt")).unwrap();
        assert!(tls.refresh().await.unwrap().1);
        // Each file that is wrong is named.
        fs::write(path("empty"), "none").unwrap();
        for (cert, key, says) in [
            ("empty", "a.key", "empty holds no PEM certificate"),
            ("a.crt", "empty", "empty holds no PEM private key"),
            ("a.crt", "b.key", "do not fit each other"),
            ("absent", "a.key", "cannot read"),
        ] {
            let error = Tls::new(&config(cert, key)).unwrap().refresh().await.unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
        let without = settings::Tls { key_file: None, ..config("a.crt", "a.key") };
        assert!(Tls::new(&without).unwrap_err().contains("needs `key_file`"));
        let without = settings::Tls { cert_file: None, ..config("a.crt", "a.key") };
        assert!(Tls::new(&without).unwrap_err().contains("needs `cert_file`"));
    }
}
