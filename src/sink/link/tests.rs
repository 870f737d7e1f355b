//! Sentences about certificates.

use rustls::CertificateError;
use rustls::pki_types::UnixTime;

use super::*;

#[test]
fn what_is_wrong_with_a_certificate_is_said_the_same_way_each_time() {
    let at = |seconds| UnixTime::since_unix_epoch(Duration::from_secs(seconds));
    let says = |error| {
        let error = std::io::Error::new(std::io::ErrorKind::InvalidData, rustls::Error::InvalidCertificate(error));
        assert_eq!(chain(&error), cause(&error));
        cause(&error)
    };
    for now in [1_700_000_000, 1_700_000_009] {
        assert_eq!(
            says(CertificateError::ExpiredContext { time: at(now), not_after: at(1_609_459_200) }),
            "the server's certificate has expired, at 2021-01-01T00:00:00Z; renew it, or check this machine's clock"
        );
        assert_eq!(
            says(CertificateError::NotValidYetContext { time: at(now), not_before: at(1_800_000_000) }),
            "the server's certificate is not valid before 2027-01-15T08:00:00Z; check this machine's clock"
        );
    }
    assert!(says(CertificateError::UnknownIssuer).ends_with("in `ca_file`"));
    assert_eq!(says(CertificateError::Revoked), "the server's certificate is revoked; renew it");
}
