//! The kinds of certificates and keys, made by openssl, and what Go says of each.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use super::*;

const PLACE: Place = Place {
    peer: "the server",
    authority: "an authority",
    trust: "renew it",
    name: "name it",
    own: "our certificate",
    give: "give one",
};
const DAY: u64 = 86_400;
const NAMES: &str = "subjectAltName=DNS:api.example,DNS:*.wild.example,IP:192.0.2.7";
const AUTHORITY: &str = "basicConstraints=critical,CA:TRUE;keyUsage=critical,keyCertSign,cRLSign";

struct Material(tempfile::TempDir);

impl Material {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap()
    }

    fn openssl(&self, arguments: &str) {
        let run =
            Command::new("openssl").args(arguments.split_whitespace()).current_dir(self.0.path()).output().unwrap();
        assert!(run.status.success(), "openssl {arguments}: {}", String::from_utf8_lossy(&run.stderr));
    }

    /// A key, as PKCS #8.
    fn key(&self, name: &str, kind: &str) {
        let how = match kind.strip_prefix("rsa") {
            Some(bits) => format!("RSA -pkeyopt rsa_keygen_bits:{bits}"),
            None if kind == "ed25519" => "ED25519".to_owned(),
            None => format!("EC -pkeyopt ec_paramgen_curve:{kind}"),
        };
        self.openssl(&format!("genpkey -algorithm {how} -out {name}.key"));
    }

    /// A certificate and its key. Without extensions it is of X.509 version 1. It signs itself where nobody else does.
    fn certificate(&self, name: &str, kind: &str, by: &str, extensions: &str, (days, digest): (u32, &str)) {
        self.key(name, kind);
        let subject = name.split('#').next().unwrap();
        self.openssl(&format!("req -new -key {name}.key -subj /O=decklog/CN={subject} -out {name}.csr"));
        let signer = if by == name {
            format!("-signkey {name}.key")
        } else {
            format!("-CA {by}.crt -CAkey {by}.key -CAcreateserial")
        };
        let extended = if extensions.is_empty() { "" } else { " -extfile extensions" };
        fs::write(self.path("extensions"), extensions.replace(';', "\n").replace('#', ";")).unwrap();
        let digest = if kind == "ed25519" && by == name { "" } else { digest };
        self.openssl(
            format!("x509 -req -in {name}.csr {signer} -days {days}{extended} {digest} -out {name}.crt").trim_end(),
        );
    }

    fn der(&self, name: &str) -> CertificateDer<'static> {
        certificates(&self.read(&format!("{name}.crt"))).remove(0)
    }
}

/// The certificates of the table below, or some of them.
fn material(wanted: &[&str]) -> Material {
    let made = Material::new();
    let servers = format!("{NAMES};extendedKeyUsage=serverAuth,clientAuth");
    let (leaf, ca) = (servers.as_str(), AUTHORITY);
    for (name, kind, by, extensions, days, digest) in [
        ("ca", "P-256", "ca", ca, 3650, "-sha256"),
        ("ca#2", "P-256", "ca#2", ca, 3650, "-sha256"),
        ("ca521", "P-521", "ca521", ca, 3650, "-sha512"),
        ("ca384", "P-384", "ca384", ca, 3650, "-sha384"),
        ("carsa", "rsa2048", "carsa", ca, 3650, "-sha512"),
        ("caed", "ed25519", "caed", ca, 3650, ""),
        ("cav1", "P-256", "cav1", "", 3650, "-sha256"),
        ("ca1024", "rsa1024", "ca1024", ca, 3650, "-sha256"),
        ("cashort", "P-256", "cashort", ca, 10, "-sha256"),
        ("cakey", "P-256", "cakey", "basicConstraints=critical,CA:TRUE;keyUsage=digitalSignature", 3650, "-sha256"),
        ("cavague", "P-256", "cavague", "basicConstraints=critical,CA:TRUE", 3650, "-sha256"),
        (
            "caclients",
            "P-256",
            "caclients",
            "basicConstraints=critical,CA:TRUE;extendedKeyUsage=clientAuth",
            3650,
            "-sha256",
        ),
        (
            "cawithin",
            "P-256",
            "cawithin",
            "basicConstraints=critical,CA:TRUE;nameConstraints=critical,permitted#DNS:example",
            3650,
            "-sha256",
        ),
        ("nobody", "P-256", "nobody", "subjectKeyIdentifier=hash", 3650, "-sha256"),
        ("middle", "P-256", "ca", ca, 3650, "-sha256"),
        ("leaf", "P-256", "ca", leaf, 100, "-sha256"),
        ("leaf521", "P-521", "ca521", leaf, 100, "-sha512"),
        ("leaf384", "P-384", "ca384", leaf, 100, "-sha384"),
        ("leafrsa", "rsa2048", "carsa", leaf, 100, "-sha512"),
        ("leafed", "ed25519", "caed", leaf, 100, ""),
        ("leafv1ca", "P-256", "cav1", leaf, 100, "-sha256"),
        ("leaf1024", "P-256", "ca1024", leaf, 100, "-sha256"),
        ("leafshort", "P-256", "cashort", leaf, 100, "-sha256"),
        ("leafkey", "P-256", "cakey", leaf, 100, "-sha256"),
        ("leafvague", "P-256", "cavague", leaf, 100, "-sha256"),
        ("leafclients", "P-256", "caclients", leaf, 100, "-sha256"),
        ("leafnobody", "P-256", "nobody", leaf, 100, "-sha256"),
        ("leafwithin", "P-256", "cawithin", "subjectAltName=DNS:api.example", 100, "-sha256"),
        ("leafbeyond", "P-256", "cawithin", "subjectAltName=DNS:api.other", 100, "-sha256"),
        ("leafmiddle", "P-256", "middle", leaf, 100, "-sha256"),
        ("own", "P-521", "own", &format!("{leaf};basicConstraints=critical,CA:TRUE"), 100, "-sha512"),
        ("ownleaf", "P-256", "ownleaf", leaf, 100, "-sha256"),
        ("leafca", "P-256", "ca", &format!("{leaf};basicConstraints=critical,CA:TRUE"), 100, "-sha256"),
        ("middleca", "P-256", "middle", &format!("{leaf};basicConstraints=critical,CA:TRUE"), 100, "-sha256"),
        ("withinca", "P-256", "cawithin", "subjectAltName=DNS:api.example;basicConstraints=CA:TRUE", 100, "-sha256"),
        ("any", "P-256", "ca", &format!("{NAMES};extendedKeyUsage=anyExtendedKeyUsage"), 100, "-sha256"),
        ("client", "P-256", "ca", &format!("{NAMES};extendedKeyUsage=clientAuth"), 100, "-sha256"),
        ("plain", "P-256", "ca", NAMES, 100, "-sha256"),
        ("unnamed", "P-256", "ca", "extendedKeyUsage=serverAuth", 100, "-sha256"),
        ("one", "P-256", "ca", "", 100, "-sha256"),
        ("fake", "P-256", "leaf", leaf, 100, "-sha256"),
        ("sha1", "P-256", "ca", leaf, 100, "-sha1"),
        ("odd", "P-256", "ca", &format!("{leaf};1.2.3.4=critical,ASN1:UTF8String:x"), 100, "-sha256"),
    ] {
        if wanted.is_empty() || wanted.contains(&name) {
            made.certificate(name, kind, by, extensions, (days, digest));
        }
    }
    made
}

/// Each row was answered by Go as well: `x509.Verify` with these roots, intermediates, name and time. Only the rows that say
/// so differ, and there decklog takes less.
#[test]
fn a_server_is_taken_as_go_takes_it() {
    let made = material(&[]);
    let ok = "";
    let foreign = "is not signed by an authority: its issuer is";
    for (roots, shown, name, days, expected) in [
        // Kinds of keys and signatures.
        ("ca", "leaf", "api.example", 0, ok),
        ("ca521", "leaf521", "api.example", 0, ok),
        ("ca384", "leaf384", "api.example", 0, ok),
        ("carsa", "leafrsa", "api.example", 0, ok),
        ("caed", "leafed", "api.example", 0, ok),
        ("ca", "sha1", "api.example", 0, "\"sha1\", which is signed with SHA-1 or MD5; issue it again"),
        // Go takes keys of RSA from 1024 bits on.
        ("ca1024", "leaf1024", "api.example", 0, "the key of \"ca1024\" has 1024 bits; issue"),
        // Authorities.
        ("cav1", "leafv1ca", "api.example", 0, ok),
        ("cavague", "leafvague", "api.example", 0, ok),
        ("ca ca#2", "leaf", "api.example", 0, ok),
        ("ca#2 ca", "leaf", "api.example", 0, ok),
        ("ca#2", "leaf", "api.example", 0, foreign),
        ("ca521", "leaf", "api.example", 0, foreign),
        ("", "leaf", "api.example", 0, foreign),
        ("cakey", "leafkey", "api.example", 0, "is signed by \"cakey\", which is no authority; issue"),
        ("nobody", "leafnobody", "api.example", 0, "is signed by \"nobody\", which is no authority; issue"),
        ("caclients", "leafclients", "api.example", 0, "does not allow it"),
        ("cashort", "leafshort", "api.example", 5, ok),
        (
            "cashort",
            "leafshort",
            "api.example",
            20,
            "the authority \"cashort\", which signed the server's certificate, has expired, at",
        ),
        ("cashort ca", "leaf", "api.example", 20, ok),
        ("cawithin", "leafwithin", "api.example", 0, ok),
        ("cawithin", "leafbeyond", "api.other", 0, "does not allow it"),
        // Chains.
        ("ca", "leafmiddle middle", "api.example", 0, ok),
        ("ca", "leafmiddle ca521 middle ca", "api.example", 0, ok),
        ("middle", "leafmiddle", "api.example", 0, ok),
        ("ca", "leafmiddle", "api.example", 0, "its issuer is \"middle\""),
        ("ca", "fake leaf", "api.example", 0, "is signed by \"leaf\", which is no authority"),
        ("leaf", "fake leaf", "api.example", 0, "is signed by \"leaf\", which is no authority"),
        // The certificate of the server is an authority, or is trusted by itself.
        ("own", "own", "api.example", 0, ok),
        ("ownleaf", "ownleaf", "api.example", 0, ok),
        ("leaf", "leaf", "api.example", 0, ok),
        ("leafmiddle", "leafmiddle", "api.example", 0, ok),
        ("ca", "leafca", "api.example", 0, ok),
        ("ca", "middleca middle", "api.example", 0, ok),
        ("", "own", "api.example", 0, foreign),
        ("ca", "own", "api.example", 0, foreign),
        ("ca", "middleca", "api.example", 0, foreign),
        ("leaf", "leafca", "api.example", 0, foreign),
        // Go takes it.
        ("cawithin", "withinca", "api.example", 0, "does not allow it"),
        // Names.
        ("ca", "leaf", "API.example", 0, ok),
        ("ca", "leaf", "a.wild.example", 0, ok),
        ("ca", "leaf", "wild.example", 0, "another name (api.example, *.wild.example, 192.0.2.7); name it"),
        ("ca", "leaf", "a.b.wild.example", 0, "another name"),
        ("ca", "leaf", "192.0.2.7", 0, ok),
        ("ca", "leaf", "192.0.2.8", 0, "another name"),
        ("own", "own", "other.example", 0, "another name"),
        ("leaf", "leaf", "other.example", 0, "another name"),
        ("ca", "leafca", "other.example", 0, "another name"),
        ("ca", "unnamed", "unnamed", 0, "\"unnamed\" names no address"),
        ("ca", "one", "one", 0, "\"one\" names no address"),
        ("one", "one", "one", 0, "\"one\" names no address"),
        // Usages.
        ("ca", "plain", "api.example", 0, ok),
        ("ca", "any", "api.example", 0, ok),
        ("ca", "client", "api.example", 0, "is not one for servers; issue"),
        ("client", "client", "api.example", 0, "is not one for servers; issue"),
        ("ca", "odd", "api.example", 0, "critical extension"),
        ("odd", "odd", "api.example", 0, "critical extension"),
        // Times.
        ("ca", "leaf", "api.example", 99, ok),
        ("ca", "leaf", "api.example", 101, "has expired, at 2"),
        ("leaf", "leaf", "api.example", 101, "has expired, at 2"),
        ("own", "own", "api.example", 101, "has expired, at 2"),
        ("ca", "leafca", "api.example", 101, "has expired, at 2"),
        ("ca", "leaf", "api.example", -2, "is not valid before 2"),
        ("leaf", "leaf", "api.example", -2, "is not valid before 2"),
    ] {
        let words = |text: &str| -> Vec<_> { text.split_whitespace().map(|name| made.der(name)).collect() };
        let row = format!("{roots} | {shown} | {name} | {days}");
        let shown = words(shown);
        let verifier = Verifier::new(Roots::read(words(roots)));
        let now = UnixTime::now().as_secs().checked_add_signed(days * i64::try_from(DAY).unwrap()).unwrap();
        let now = UnixTime::since_unix_epoch(Duration::from_secs(now));
        let server = ServerName::try_from(name).unwrap();
        let verdict = verifier.verify_server_cert(&shown[0], &shown[1..], &server, &[], now);
        let said = verdict.err().map(|error| sentence(&error, &PLACE)).unwrap_or_default();
        assert!(said.contains(expected) && said.is_empty() == expected.is_empty(), "{row}: {said:?}, not {expected:?}");
        assert!(!said.contains("Error") && !said.contains("Other("), "{row}: {said}");
    }
}

#[test]
fn an_odd_certificate_takes_no_other_of_a_bundle_with_it() {
    let made = material(&["ca", "ca#2", "cav1", "cashort", "odd", "leaf"]);
    let (leaf, name) = (made.der("leaf"), ServerName::try_from("api.example").unwrap());
    let pem = |name: &str| String::from_utf8(made.read(&format!("{name}.crt"))).unwrap();
    let unparsable = "-----BEGIN CERTIFICATE-----\nAQID\n-----END CERTIFICATE-----\n";
    let broken = "-----BEGIN CERTIFICATE-----\n?\n-----END CERTIFICATE-----\n";
    for odd in [unparsable, broken, &pem("cav1"), &pem("cashort"), &pem("odd"), "text\n", &pem("ca#2")] {
        for text in [format!("{odd}{}", pem("ca")), format!("{}{odd}", pem("ca"))] {
            let verifier = Verifier::new(Roots::read(certificates(text.as_bytes())));
            assert!(verifier.verify_server_cert(&leaf, &[], &name, &[], UnixTime::now()).is_ok(), "{text}");
        }
    }
    assert!(Roots::read(certificates(unparsable.as_bytes())).is_empty());
}

#[test]
fn authorities_of_a_file_are_read_again() {
    let made = material(&["ca", "ca521", "leaf"]);
    let (leaf, name) = (made.der("leaf"), ServerName::try_from("api.example").unwrap());
    let file = made.path("ca-bundle");
    fs::copy(made.path("ca521.crt"), &file).unwrap();
    let verifier = Verifier::following(Roots::read([made.der("ca521")]), file.clone());
    let takes = || verifier.verify_server_cert(&leaf, &[], &name, &[], UnixTime::now()).is_ok();
    let age = || verifier.roots.write().unwrap().1 -= AUTHORITIES_MAX_AGE;
    fs::copy(made.path("ca.crt"), &file).unwrap();
    assert!(!takes(), "it is read once a minute");
    age();
    assert!(takes());
    fs::write(&file, "half written").unwrap();
    age();
    assert!(takes(), "what it had counts on");
}

#[test]
fn a_key_is_read_in_every_encoding_that_go_reads() {
    let made = Material::new();
    for kind in ["P-256", "P-384", "P-521", "ed25519", "rsa2048", "rsa4096"] {
        made.certificate(kind, kind, kind, NAMES, (10, if kind == "ed25519" { "" } else { "-sha512" }));
    }
    made.certificate("one", "P-256", "one", "", (10, "-sha256"));
    for kind in ["P-256", "P-384", "P-521", "rsa2048"] {
        made.openssl(&format!("pkey -in {kind}.key -traditional -out {kind}.traditional"));
        made.openssl(&format!("pkey -in {kind}.key -traditional -aes128 -passout pass:x -out {kind}.secret"));
    }
    made.openssl("pkcs8 -topk8 -in P-256.key -passout pass:x -out secret8");
    made.openssl("ecparam -name secp384r1 -out parameters");
    made.openssl("dsaparam -genkey -out dsa 1024");
    made.openssl("genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:1024 -out short.key");
    made.openssl("ecparam -name secp256k1 -genkey -noout -out k1");
    let text = |name: &str| String::from_utf8(made.read(name)).unwrap();
    let certificate = text("P-384.crt");
    let both = format!("Bag Attributes\n{}subject=CN\n{certificate}", text("P-384.key"));
    let turned = format!("{certificate}{}", text("P-384.traditional"));
    let headed = format!("{}{}", text("parameters"), text("P-384.traditional"));
    let mislabelled = text("P-384.traditional").replace("EC PRIVATE", "PRIVATE");
    let ok = "";
    for (certificate, key, expected) in [
        (&text("P-256.crt"), &text("P-256.key"), ok),
        (&text("P-256.crt"), &text("P-256.traditional"), ok),
        (&text("P-384.crt"), &text("P-384.key"), ok),
        (&text("P-384.crt"), &text("P-384.traditional"), ok),
        (&text("P-521.crt"), &text("P-521.key"), ok),
        (&text("P-521.crt"), &text("P-521.traditional"), ok),
        (&text("ed25519.crt"), &text("ed25519.key"), ok),
        (&text("rsa2048.crt"), &text("rsa2048.key"), ok),
        (&text("rsa2048.crt"), &text("rsa2048.traditional"), ok),
        (&text("rsa4096.crt"), &text("rsa4096.key"), ok),
        // The API server decides on X.509 version 1, as it does for kubectl.
        (&text("one.crt"), &text("one.key"), ok),
        (&both, &both, ok),
        (&turned, &turned, ok),
        (&certificate, &headed, ok),
        (&certificate, &mislabelled, ok),
        (&certificate, &text("P-256.key"), "CERT and KEY do not fit each other"),
        (&certificate, &text("rsa2048.key"), "CERT and KEY do not fit each other"),
        (&text("P-384.key"), &certificate, "CERT holds a private key in the place of a PEM certificate"),
        (&certificate, &certificate, "KEY holds no PEM private key"),
        (&certificate, &text("P-256.secret"), "KEY holds a private key that is encrypted; decrypt"),
        (&certificate, &text("rsa2048.secret"), "KEY holds a private key that is encrypted; decrypt"),
        (&certificate, &text("secret8"), "KEY holds a private key that is encrypted; decrypt"),
        (&certificate, &text("dsa"), "KEY holds a private key that cannot be used"),
        (&certificate, &text("k1"), "KEY holds a private key that cannot be used"),
        // Go takes keys of RSA from 1024 bits on.
        (&certificate, &text("short.key"), "KEY holds a private key that cannot be used"),
        (&String::new(), &text("P-384.key"), "CERT holds no PEM certificate"),
        (&certificate, &String::new(), "KEY holds no PEM private key"),
    ] {
        let read = Identity::read(certificate.as_bytes(), key.as_bytes(), ("CERT", "KEY"));
        let said = read.err().unwrap_or_default();
        let is_expected = said.starts_with(expected) && said.is_empty() == expected.is_empty();
        assert!(is_expected, "{said:?}, not {expected:?}:\n{certificate}");
    }
}

/// Every error of rustls that a connection can meet becomes words, and none of them is the library's.
#[test]
fn no_sentence_holds_a_name_of_the_library() {
    use rustls::{AlertDescription, InvalidMessage, PeerIncompatible, PeerMisbehaved};
    let other = || OtherError(Arc::new(std::io::Error::other("hunter2")));
    let mut errors = vec![
        Error::InvalidMessage(InvalidMessage::InvalidContentType),
        Error::InvalidMessage(InvalidMessage::MessageTooShort),
        Error::PeerIncompatible(PeerIncompatible::NoCipherSuitesInCommon),
        Error::PeerMisbehaved(PeerMisbehaved::IllegalMiddleboxChangeCipherSpec),
        Error::NoCertificatesPresented,
        Error::UnsupportedNameType,
        Error::DecryptError,
        Error::General("hunter2".to_owned()),
        Error::Other(other()),
        Error::NoApplicationProtocol,
        Error::InvalidCertificate(CertificateError::Other(other())),
        Error::InvalidCertificate(CertificateError::BadEncoding),
        Error::InvalidCertificate(CertificateError::UnknownIssuer),
        Error::InvalidCertificate(CertificateError::BadSignature),
        Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure),
    ];
    errors.extend((0..=u8::MAX).map(|code| Error::AlertReceived(AlertDescription::from(code))));
    for error in errors {
        let said = sentence(&error, &PLACE);
        let is_plain =
            !["hunter2", "::", "Error", "(\"", "{", "InvalidC", "Unknown"].iter().any(|word| said.contains(word));
        assert!(is_plain, "{error:?}: {said}");
        assert!(!said.ends_with('.') && said.len() < 300, "{said}");
    }
}
