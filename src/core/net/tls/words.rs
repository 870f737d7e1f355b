//! Sentences for TLS errors: the one place where an error of rustls becomes a sentence.

use rustls::{AlertDescription, CertificateError, Error, InvalidMessage, OtherError};

use super::chain::Refusal;
use crate::core::terminal::is_obeyed;

/// Terms and remedies in sentences about a connection.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The other end, such as `the API server`.
    pub peer: &'static str,
    /// The trusted authority, such as `the authority in the kubeconfig`.
    pub authority: &'static str,
    /// Remedy for an untrusted authority, such as `renew certificate-authority`.
    pub trust: &'static str,
    /// Remedy for a certificate with another name.
    pub name: &'static str,
    /// Our own certificate, such as `the client certificate in the kubeconfig`.
    pub own: &'static str,
    /// Remedy for a server that requests a client certificate.
    pub give: &'static str,
}

/// Returns what an error of TLS means, and what to do about it, in one sentence without an end.
#[must_use]
#[expect(clippy::wildcard_enum_match_arm, reason = "another crate's list of errors: those that a person can act on")]
pub fn sentence(error: &Error, place: &Place) -> String {
    let Place { peer, .. } = place;
    match error {
        Error::InvalidCertificate(error) => certificate(error, place),
        Error::AlertReceived(alert) => alerted(*alert, place),
        Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            format!("{peer} does not answer with TLS: that port does not speak TLS")
        }
        Error::PeerIncompatible(_) => format!(
            "{peer} and decklog have no version or cipher of TLS in common; {peer} has to offer TLS 1.2 or 1.3 with ECDHE and AES-GCM or ChaCha20"
        ),
        Error::NoCertificatesPresented => format!("{peer} shows no certificate; give it one"),
        Error::UnsupportedNameType => {
            format!("the address of {peer} is no name that a certificate can have; {}", place.name)
        }
        Error::NoApplicationProtocol => format!("{peer} does not speak HTTP/2, which gRPC needs"),
        Error::InvalidMessage(_)
        | Error::PeerMisbehaved(_)
        | Error::InappropriateMessage { .. }
        | Error::InappropriateHandshakeMessage { .. }
        | Error::DecryptError
        | Error::PeerSentOversizedRecord => {
            format!("{peer} does not keep to the rules of TLS; look for something in between that changes what is sent")
        }
        _ => format!("TLS with {peer} failed; look at what it logs about TLS"),
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "another crate's list of errors: those that a person can act on")]
fn certificate(error: &CertificateError, place: &Place) -> String {
    let Place { peer, authority, trust, name, .. } = place;
    let renew = "renew it, or check this machine's clock";
    match error {
        // Where two authorities have one name, only the signature distinguishes them.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            format!("{peer}'s certificate is not signed by {authority}; {trust}")
        }
        CertificateError::Expired => format!("{peer}'s certificate has expired; {renew}"),
        CertificateError::ExpiredContext { not_after, .. } => {
            let at = date(not_after.as_secs().try_into().unwrap_or(i64::MAX));
            format!("{peer}'s certificate has expired, at {at}; {renew}")
        }
        CertificateError::NotValidYet => {
            format!("{peer}'s certificate is not valid yet; check this machine's clock")
        }
        CertificateError::NotValidYetContext { not_before, .. } => {
            let at = date(not_before.as_secs().try_into().unwrap_or(i64::MAX));
            format!("{peer}'s certificate is not valid before {at}; check this machine's clock")
        }
        CertificateError::NotValidForName => format!("{peer}'s certificate is for another name; {name}"),
        CertificateError::NotValidForNameContext { presented, .. } => {
            let mut names: Vec<_> = presented.iter().filter_map(|name| plain(name)).take(4).collect();
            if presented.len() > 4 {
                names.push("others".to_owned());
            }
            let of = if names.is_empty() { String::new() } else { format!(" ({})", names.join(", ")) };
            format!("{peer}'s certificate is for another name{of}; {name}")
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            refused(&Refusal::Usage, place)
        }
        CertificateError::UnhandledCriticalExtension => refused(&Refusal::Critical, place),
        CertificateError::UnsupportedSignatureAlgorithmContext { .. }
        | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            format!(
                "{peer}'s certificate, or the one that signed it, is signed in a way that decklog does not take; issue it with SHA-256 or better, by a key of RSA with 2048 bits or more, of P-256, P-384 or P-521, or of Ed25519"
            )
        }
        CertificateError::Revoked => format!("{peer}'s certificate is revoked; renew it"),
        CertificateError::Other(OtherError(error)) => match error.downcast_ref() {
            Some(refusal) => refused(refusal, place),
            None => refused(&Refusal::Unreadable, place),
        },
        _ => refused(&Refusal::Unreadable, place),
    }
}

fn refused(refusal: &Refusal, place: &Place) -> String {
    let Place { peer, authority, trust, name, .. } = place;
    match refusal {
        Refusal::Unreadable => format!("{peer}'s certificate cannot be read; issue it again, as X.509 version 3"),
        Refusal::NoNames(subject) => format!(
            "{peer}'s certificate {subject} names no address: it has no subject alternative names, and a common name does not count; issue it again with the address as DNS or IP name"
        ),
        Refusal::Usage => {
            format!("{peer}'s certificate is not one for servers; issue it with the extended key usage serverAuth")
        }
        Refusal::Critical => {
            format!("{peer}'s certificate has a critical extension that decklog does not know; issue it without")
        }
        Refusal::Expired(at) => {
            format!("{peer}'s certificate has expired, at {}; renew it, or check this machine's clock", date(*at))
        }
        Refusal::NotYet(at) => {
            format!("{peer}'s certificate is not valid before {}; check this machine's clock", date(*at))
        }
        Refusal::Issuer(issuer) => {
            format!("{peer}'s certificate is not signed by {authority}: its issuer is {issuer}; {trust}")
        }
        Refusal::NoAuthority(issuer) => format!(
            "{peer}'s certificate is signed by {issuer}, which is no authority; issue that with the basic constraint CA:TRUE and the key usage keyCertSign"
        ),
        Refusal::AuthorityExpired(authority, at) => format!(
            "the authority {authority}, which signed {peer}'s certificate, has expired, at {}; {trust}, or check this machine's clock",
            date(*at)
        ),
        Refusal::WeakSignature(subject) => format!(
            "{peer} shows the certificate {subject}, which is signed with SHA-1 or MD5; issue it again with SHA-256"
        ),
        Refusal::WeakKey(subject, bits) => {
            format!(
                "the key of {subject} has {bits} bits; issue {peer}'s certificates with RSA keys of 2048 bits or more"
            )
        }
        Refusal::Restricted => format!(
            "an authority that signed {peer}'s certificate does not allow it: its name constraints, its path length or its extended key usage say no; {name}, or issue it by another authority"
        ),
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "another crate's list of alerts: those that a person can act on")]
fn alerted(alert: AlertDescription, place: &Place) -> String {
    let Place { peer, own, give, .. } = place;
    match alert {
        AlertDescription::CertificateExpired => format!("{own} has expired; renew it"),
        AlertDescription::CertificateRevoked => format!("{own} is revoked; renew it"),
        AlertDescription::CertificateRequired | AlertDescription::NoCertificate => {
            format!("{peer} asks for a certificate: {give}")
        }
        AlertDescription::BadCertificate
        | AlertDescription::UnknownCA
        | AlertDescription::CertificateUnknown
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::AccessDenied => {
            format!("{peer} does not accept {own}; it may have expired, or be of another authority")
        }
        AlertDescription::HandshakeFailure
        | AlertDescription::ProtocolVersion
        | AlertDescription::InsufficientSecurity => format!(
            "{peer} and decklog have no version or cipher of TLS in common; {peer} has to offer TLS 1.2 or 1.3 with ECDHE and AES-GCM or ChaCha20"
        ),
        AlertDescription::UnrecognisedName => {
            format!("{peer} does not know the name that it is reached by; {}", place.name)
        }
        AlertDescription::NoApplicationProtocol => {
            format!("{peer} does not speak HTTP/2, which gRPC needs: that port does not speak HTTP/2")
        }
        _ => format!("{peer} broke off TLS; look at what it logs about it"),
    }
}

/// A time of a certificate, in seconds of Unix time.
fn date(seconds: i64) -> String {
    jiff::Timestamp::from_second(seconds).map_or_else(|_| "a time beyond all calendars".to_owned(), |at| at.to_string())
}

/// A name of a certificate: rustls writes its kind around it, as in `DnsName("a.example")`. Other kinds say nothing about
/// addresses.
fn plain(name: &str) -> Option<String> {
    let inner = name.strip_prefix("DnsName(").or_else(|| name.strip_prefix("IpAddress("))?;
    let inner = inner.trim_end_matches(')').trim_matches('"');
    Some(inner.chars().filter(|c| !is_obeyed(*c)).take(100).collect())
}
