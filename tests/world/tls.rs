//! TLS with API servers whose certificates and keys are of every kind that kubectl takes, in real handshakes. What is decided
//! of certificates alone is a table beside the code (`src/core/net/tls/tests.rs`), with Go's answer to each row.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use decklog::sim::{self, Sim};
use decklog::watch::cluster::{Api, ClusterError, Failure, Limits, Settings};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{RootCertStore, ServerConfig};
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

pub(crate) const LEAF: &str = "subjectAltName=DNS:api.example,IP:127.0.0.1";
const AUTHORITY: &str = "basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign";

/// Certificates and keys in a directory, made by openssl.
pub(crate) struct Material(pub(crate) TempDir);

impl Material {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn openssl(&self, arguments: &str) {
        let run =
            Command::new("openssl").args(arguments.split_whitespace()).current_dir(self.0.path()).output().unwrap();
        assert!(run.status.success(), "openssl {arguments}: {}", String::from_utf8_lossy(&run.stderr));
    }

    /// A certificate `name.crt` and its key `name.key`. One that nobody else signs signs itself.
    pub(crate) fn certificate(&self, name: &str, curve: &str, by: &str, extensions: &str) {
        self.openssl(&format!("genpkey -algorithm EC -pkeyopt ec_paramgen_curve:{curve} -out {name}.key"));
        self.openssl(&format!("req -new -key {name}.key -subj /CN={name} -out {name}.csr"));
        fs::write(self.path("extensions"), extensions).unwrap();
        let signer = if by == name {
            format!("-signkey {name}.key")
        } else {
            format!("-CA {by}.crt -CAkey {by}.key -CAcreateserial")
        };
        self.openssl(&format!(
            "x509 -req -in {name}.csr {signer} -days 30 -sha512 -extfile extensions -out {name}.crt"
        ));
    }

    /// What a server shows; it asks for certificates of `clients` where that is given.
    pub(crate) fn acceptor(&self, name: &str, clients: Option<&str>) -> TlsAcceptor {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let key = PrivateKeyDer::from_pem_file(self.path(&format!("{name}.key"))).unwrap();
        let key = provider.key_provider.load_private_key(key).unwrap();
        let chain =
            CertificateDer::pem_file_iter(self.path(&format!("{name}.crt"))).unwrap().map(Result::unwrap).collect();
        let builder =
            ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions().unwrap();
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some(name) => {
                let mut roots = RootCertStore::empty();
                roots.add(CertificateDer::from_pem_file(self.path(&format!("{name}.crt"))).unwrap()).unwrap();
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
                builder.with_client_cert_verifier(verifier)
            }
        };
        let resolver = Arc::new(SingleCertAndKey::from(CertifiedKey::new(chain, key)));
        TlsAcceptor::from(Arc::new(builder.with_cert_resolver(resolver)))
    }
}

/// TLS before a simulated API server, as long as it is kept.
pub(crate) struct Front {
    pub(crate) address: SocketAddr,
    _accepting: JoinSet<()>,
}

pub(crate) async fn front(acceptor: TlsAcceptor, sim: &Sim) -> Front {
    let behind = sim.url().trim_start_matches("http://").to_owned();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut accepting = JoinSet::new();
    accepting.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, behind) = (acceptor.clone(), behind.clone());
            connections.spawn(async move {
                let Ok(mut stream) = acceptor.accept(stream).await else { return };
                let mut behind = TcpStream::connect(behind).await.unwrap();
                drop(tokio::io::copy_bidirectional(&mut stream, &mut behind).await);
            });
        }
    });
    Front { address, _accepting: accepting }
}

/// Writes a kubeconfig with more keys for its cluster and its user, and opens it.
pub(crate) async fn open(dir: &Path, server: &str, cluster: &str, user: &str) -> Result<Api, ClusterError> {
    let file = dir.join("kubeconfig");
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: test\ncontexts: [{{name: test, context: {{cluster: test, user: me}}}}]\n\
         clusters:\n- name: test\n  cluster: {{server: \"{server}\"{cluster}}}\nusers:\n- name: me\n  user: {{token: {}{user}}}\n",
        sim::TOKEN
    );
    fs::write(&file, text).unwrap();
    let settings = Settings { kubeconfig: Some(file), allow_insecure_tls: true, ..Settings::default() };
    let limits = Limits { connect: Duration::from_secs(20), ..Limits::default() };
    Api::open(&settings, limits).await
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_of_every_kind_connect_or_are_named() {
    let sim = Sim::start().await.unwrap();
    let made = Material::new();
    made.certificate("ca", "P-521", "ca", AUTHORITY);
    made.certificate("server", "P-521", "ca", LEAF);
    made.certificate("me", "P-521", "ca", "extendedKeyUsage=clientAuth");
    made.certificate("own", "P-256", "own", &format!("{LEAF}\nbasicConstraints=critical,CA:TRUE"));
    made.certificate("issued", "P-384", "ca", &format!("{LEAF}\nbasicConstraints=critical,CA:TRUE"));
    let ca = |name: &str| format!(", certificate-authority: {name:?}", name = made.path(&format!("{name}.crt")));
    let me = |name: &str| {
        let file = |end: &str| made.path(&format!("{name}.{end}"));
        format!(", client-certificate: {:?}, client-key: {:?}", file("crt"), file("key"))
    };
    let connects = "";
    for (shows, clients, cluster, user, expected) in [
        // kubectl connects with all of these.
        ("server", None, ca("ca"), String::new(), connects),
        ("server", Some("ca"), ca("ca"), me("me"), connects),
        ("own", None, ca("own"), String::new(), connects),
        ("server", None, ca("server"), String::new(), connects),
        ("issued", None, ca("ca"), String::new(), connects),
        ("own", None, ", insecure-skip-tls-verify: true".to_owned(), String::new(), connects),
        // kubectl: x509: certificate signed by unknown authority.
        (
            "server",
            None,
            ca("own"),
            String::new(),
            "the API server's certificate is not signed by the authority in the kubeconfig: its issuer is \"ca\"; renew certificate-authority",
        ),
        ("own", None, ca("server"), String::new(), "is not signed by the authority in the kubeconfig"),
        (
            "server",
            None,
            String::new(),
            String::new(),
            "is not signed by an authority that this machine trusts: its issuer is \"ca\"; name its authority in the kubeconfig, as certificate-authority",
        ),
        // kubectl: remote error: tls: certificate required.
        (
            "server",
            Some("ca"),
            ca("ca"),
            String::new(),
            "the API server asks for a certificate: name one in the kubeconfig",
        ),
        // kubectl: x509: certificate is valid for api.example, not api.other.
        (
            "server",
            None,
            format!("{}, tls-server-name: api.other", ca("ca")),
            String::new(),
            "is for another name (api.example, 127.0.0.1); set tls-server-name",
        ),
    ] {
        let front = front(made.acceptor(shows, clients), &sim).await;
        let address = front.address;
        let api = open(made.0.path(), &format!("https://{address}"), &cluster, &user).await.unwrap();
        let said = api.version().await.err();
        let text = said.as_ref().map(ToString::to_string).unwrap_or_default();
        assert!(
            text.contains(expected) && text.is_empty() == expected.is_empty(),
            "{shows} {cluster} {user}: {said:?}"
        );
        assert!(matches!(said, None | Some(Failure::Tls(_))), "{said:?}");
        // The question without credentials goes the same way.
        assert_eq!(api.answers().await, clients.is_none() || said.is_none() || matches!(said, Some(Failure::Tls(_))));
    }
}

#[tokio::test]
async fn a_port_without_tls_is_named_as_that() {
    let sim = Sim::start().await.unwrap();
    let made = Material::new();
    let plain = sim.url().replace("http://", "https://");
    let api = open(made.0.path(), &plain, "", "").await.unwrap();
    // kubectl: http: server gave HTTP response to HTTPS client.
    let said = api.version().await.unwrap_err().to_string();
    assert_eq!(said, "the API server does not answer with TLS: that port does not speak TLS");
    // kubectl: EOF.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut closing = JoinSet::new();
    closing.spawn(async move { while listener.accept().await.is_ok() {} });
    let api = open(made.0.path(), &format!("https://{address}"), "", "").await.unwrap();
    let said = api.version().await.unwrap_err();
    let text = said.to_string();
    assert!(
        matches!(said, Failure::Away(_)) && text.contains("closed the connection when TLS was to begin; check"),
        "{text}"
    );
}

/// kubectl says `tls: private key does not match public key`, `tls: failed to parse private key` and the like.
#[tokio::test]
async fn what_cannot_be_shown_to_an_api_server_names_the_key_of_the_kubeconfig() {
    let made = Material::new();
    made.certificate("me", "P-256", "me", LEAF);
    made.certificate("other", "P-256", "other", LEAF);
    made.openssl("pkey -in me.key -aes128 -passout pass:x -out secret.key");
    let shown = |certificate: &str, key: &str| {
        format!(", client-certificate: {:?}, client-key: {:?}", made.path(certificate), made.path(key))
    };
    for (user, says) in [
        (
            shown("me.crt", "other.key"),
            vec!["its client-certificate ", "me.crt and its client-key ", "do not fit each other"],
        ),
        (
            shown("me.crt", "secret.key"),
            vec!["its client-key ", "secret.key holds a private key that is encrypted; decrypt it"],
        ),
        (shown("me.crt", "me.crt"), vec!["its client-key ", "me.crt holds no PEM private key"]),
        (shown("absent", "me.key"), vec!["the client-certificate of its user", "absent, cannot be read"]),
        (
            ", client-certificate-data: '!', client-key-data: '!'".to_owned(),
            vec!["client-certificate-data is not base64"],
        ),
        (
            ", client-certificate-data: AQID, client-key-data: AQID".to_owned(),
            vec!["its client-certificate-data holds no PEM certificate"],
        ),
        (format!(", client-certificate: {:?}", made.path("me.crt")), vec!["has a client certificate without a key"]),
    ] {
        let error = open(made.0.path(), "https://127.0.0.1:1", "", &user).await.unwrap_err();
        let text = error.to_string();
        assert!(says.iter().all(|says| text.contains(says)), "{user}: {text}");
    }
}
