//! Chains of certificates by the rules of Go's `x509.Certificate.Verify`, for the few that webpki refuses and Go takes.
//!
//! webpki's verdict comes first, and only where it is no, this one is asked. Go takes, and webpki does not:
//!
//! | case | Go | webpki |
//! |---|---|---|
//! | the server's certificate is itself among the authorities | a chain of one: dates, name and usage count, no signature | `UnknownIssuer`, unless it has signed itself |
//! | the server's certificate has `CA:TRUE` | does not look at it | `CaUsedAsEndEntity` |
//! | the extended key usage is `anyExtendedKeyUsage` | good for everything | `RequiredEkuNotFound` |
//!
//! A chain with restrictions on names or policies is left to webpki.

use rustls::pki_types::{CertificateDer, SignatureVerificationAlgorithm, UnixTime};

use super::Root;
use super::x509::Certificate;

/// The most signatures that one chain may cost, as in Go.
const SIGNATURES: usize = 100;
/// The most certificates in a chain.
const LENGTH: usize = 10;

/// Reason to refuse a server's certificate for which rustls has no error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// It cannot be read.
    Unreadable,
    /// It has no alternative names; its subject is named.
    NoNames(String),
    /// It is not for servers.
    Usage,
    /// An extension that must not be passed over is unknown here.
    Critical,
    /// It has expired at a time, in seconds of Unix time.
    Expired(i64),
    /// It is not valid before a time, in seconds of Unix time.
    NotYet(i64),
    /// No authority that is trusted signed it; its issuer is named.
    Issuer(String),
    /// The certificate that signed it is not one of an authority; that is named.
    NoAuthority(String),
    /// The authority that signed it has expired; it is named, with the time in seconds of Unix time.
    AuthorityExpired(String, i64),
    /// It, or what signed it, is signed with SHA-1 or MD5; the one is named.
    WeakSignature(String),
    /// A key is too short: whose, and its bits.
    WeakKey(String, usize),
    /// An authority restricts what it may be used for, and this is beyond it.
    Restricted,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the certificate is refused")
    }
}

impl std::error::Error for Refusal {}

/// Parameters of the search for a chain.
pub(super) struct Search<'a> {
    pub(super) roots: &'a [Root],
    pub(super) intermediates: &'a [CertificateDer<'a>],
    pub(super) algorithms: &'a [&'a dyn SignatureVerificationAlgorithm],
    pub(super) now: UnixTime,
}

/// State of a search.
struct Progress {
    signatures: usize,
    /// The reason that says most.
    refusal: Option<Refusal>,
}

impl Search<'_> {
    /// Looks for a chain from a server's certificate to an authority. The name is not looked at here.
    pub(super) fn verify(&self, der: &CertificateDer<'_>) -> Result<(), Refusal> {
        let leaf = Certificate::read(der).ok_or(Refusal::Unreadable)?;
        if leaf.extensions.unknown_critical {
            return Err(Refusal::Critical);
        }
        if let Some(refusal) = self.expiry(&leaf) {
            return Err(refusal);
        }
        if leaf.extensions.for_servers == Some(false) {
            return Err(Refusal::Usage);
        }
        if self.roots.iter().any(|root| root.der == *der) {
            return Ok(());
        }
        let roots: Vec<_> = self.roots.iter().filter_map(|root| Certificate::read(&root.der)).collect();
        let intermediates: Vec<_> = self.intermediates.iter().filter_map(|der| Certificate::read(der)).collect();
        let mut progress = Progress { signatures: SIGNATURES, refusal: None };
        if self.climb(&mut vec![&leaf], &roots, &intermediates, &mut progress) {
            return Ok(());
        }
        Err(progress.refusal.unwrap_or_else(|| Refusal::Issuer(leaf.issuer_name())))
    }

    /// Adds issuers to the path until one is an authority that is trusted.
    fn climb<'c>(
        &self,
        path: &mut Vec<&'c Certificate<'c>>,
        roots: &'c [Certificate<'c>],
        intermediates: &'c [Certificate<'c>],
        progress: &mut Progress,
    ) -> bool {
        let child = path[path.len() - 1];
        let named = |parent: &&'c Certificate<'c>| parent.subject == child.issuer;
        for root in roots.iter().filter(named) {
            if self.issues(root, child, path, progress) {
                return true;
            }
        }
        if path.len() >= LENGTH {
            return false;
        }
        for parent in intermediates.iter().filter(named) {
            let is_new = path.iter().all(|known| known.key_info != parent.key_info || known.subject != parent.subject);
            // Go asks more of an intermediate than of a root.
            let is_authority = parent.extensions.constraints.is_some_and(|(is_authority, _)| is_authority);
            if is_new && !is_authority {
                progress.refusal.get_or_insert_with(|| Refusal::NoAuthority(parent.subject_name()));
            }
            if is_new && is_authority && self.issues(parent, child, path, progress) {
                path.push(parent);
                if self.climb(path, roots, intermediates, progress) {
                    return true;
                }
                path.pop();
            }
        }
        false
    }

    /// Reports whether `parent` issued the last certificate of the path, and may do so.
    fn issues(
        &self,
        parent: &Certificate<'_>,
        child: &Certificate<'_>,
        path: &[&Certificate<'_>],
        progress: &mut Progress,
    ) -> bool {
        let refusal = self.objection(parent, child, path.len() - 1, progress);
        let issues = refusal.is_none();
        if let Some(refusal) = refusal
            && progress.refusal.is_none()
        {
            progress.refusal = Some(refusal);
        }
        issues
    }

    /// Returns the objection to an issuer; `between` is the number of intermediates below it.
    fn objection(
        &self,
        parent: &Certificate<'_>,
        child: &Certificate<'_>,
        between: usize,
        progress: &mut Progress,
    ) -> Option<Refusal> {
        if !parent.may_issue() {
            return Some(Refusal::NoAuthority(parent.subject_name()));
        }
        if progress.signatures == 0 {
            return Some(Refusal::Restricted);
        }
        progress.signatures -= 1;
        if !parent.signed_child(child, self.algorithms) {
            return Some(if child.has_weak_signature() {
                Refusal::WeakSignature(child.subject_name())
            } else if let Some(bits) = parent.rsa_bits().filter(|bits| *bits < 2048) {
                Refusal::WeakKey(parent.subject_name(), bits)
            } else {
                Refusal::Issuer(child.issuer_name())
            });
        }
        match self.expiry(parent) {
            Some(Refusal::Expired(end)) => return Some(Refusal::AuthorityExpired(parent.subject_name(), end)),
            Some(other) => return Some(other),
            None => {}
        }
        let most = parent.extensions.constraints.and_then(|(_, most)| most);
        let is_too_long = most.is_some_and(|most| usize::try_from(most).is_ok_and(|most| between > most));
        let is_for_others = parent.extensions.for_servers == Some(false);
        let is_restricted = parent.extensions.restricts || parent.extensions.unknown_critical;
        (is_too_long || is_for_others || is_restricted).then_some(Refusal::Restricted)
    }

    fn expiry(&self, certificate: &Certificate<'_>) -> Option<Refusal> {
        let now = i64::try_from(self.now.as_secs()).unwrap_or(i64::MAX);
        let (from, until) = certificate.valid;
        if now < from { Some(Refusal::NotYet(from)) } else { (now > until).then_some(Refusal::Expired(until)) }
    }
}
