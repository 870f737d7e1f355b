//! Credentials, signatures and certificates, and what no text tells of them.

use super::*;

/// Fault 82: the files of an http sink.
#[tokio::test]
async fn credentials_are_read_again_and_survive_a_moment_without_a_file() {
    let server = Server::start(|_, seen| {
        let good = seen.header("authorization") == "Bearer second" && seen.header("x-team") == "audit";
        Does::Answers(if good { 200 } else { 401 })
    })
    .await;
    let dir = tempfile::tempdir().unwrap();
    let (bearer, headers) = (dir.path().join("token"), dir.path().join("headers"));
    let mut config = config(&server.url, BodyFormat::Binary);
    (config.bearer_file, config.headers_file) = (Some(bearer.clone()), Some(headers.clone()));
    let mut sink = HttpSink::new(&config).unwrap();
    let error = sink.deliver(&items(1..=1)).await.unwrap_err().error.to_string();
    assert!(error.contains("headers") && server.seen().is_empty(), "{error}");
    std::fs::write(&bearer, "first\n").unwrap();
    std::fs::write(&headers, "X-Team: audit\n\n").unwrap();
    sink.deliver(&items(1..=1)).await.unwrap_err();
    std::fs::write(&bearer, "second\n").unwrap();
    sink.deliver(&items(1..=1)).await.unwrap();
    std::fs::remove_file(&bearer).unwrap();
    sink.deliver(&items(2..=2)).await.unwrap();
}

/// Webhooks have their secret in the path, others in a parameter; and some servers say what they were asked.
#[tokio::test]
async fn no_text_tells_more_of_a_url_than_its_server() {
    let texts = [
        "no webhook at /hook/T0Ex/q7Zp0Lw4Xv9Tn2Rk?token=s3cret&n=a%2Fb",
        "cannot POST /hook/T0Ex/q7Zp0Lw4Xv9T...",
        "unknown T0Ex",
        "token s3cret is not known",
        "nobody knows a/b!",
        "schema mismatch in hook",
    ];
    let server = Server::start(move |number, _| Does::Says(400, "x", "y".into(), texts[number % 6].to_owned())).await;
    let mut config = config(&server.url, BodyFormat::Binary);
    config.url = server.url.replace("/in", "/hook/T0Ex/q7Zp0Lw4Xv9Tn2Rk?token=s3cret&n=a%2Fbcd").parse().unwrap();
    let mut sink = HttpSink::new(&config).unwrap();
    let mut told = Vec::new();
    for _ in 0..6 {
        told.push(sink.deliver(&items(1..=1)).await.unwrap_err().error.to_string());
    }
    assert!(told[5].ends_with("/… answered 400 Bad Request: schema mismatch in hook"), "{told:?}");
    drop(server);
    sink.reopen();
    told.push(sink.deliver(&items(1..=1)).await.unwrap_err().error.to_string());
    told.push(format!("{sink:?}"));
    for text in &told {
        for secret in ["T0Ex", "q7Zp", "s3cret", "a/bcd", "/hook"] {
            assert!(!text.contains(secret), "{text}");
        }
    }
    assert!(told[6].contains("/…"), "{told:?}");
}

#[tokio::test]
async fn no_text_tells_a_secret_or_what_was_sent() {
    let server = Server::start(|number, seen| {
        let text = match number {
            0 => format!("bad token {}", seen.header("authorization")),
            1 => format!("cannot take {}", String::from_utf8_lossy(&seen.body)),
            // What is quoted ends in the middle of the secret.
            3 => format!("{} {}", "x".repeat(190), seen.header("x-key")),
            // The server shows only a part of it.
            4 => format!("bad key {}...", &seen.header("x-key")[..20]),
            _ => "schema \n mismatch".to_owned(),
        };
        Does::Says(400, "x", "y".into(), text)
    })
    .await;
    let mut config = config(&server.url, BodyFormat::Binary);
    config.url = format!("{}?key=s3cret", config.url.as_str()).parse().unwrap();
    config.headers = [
        ("authorization".to_owned(), "Bearer abcdef123".to_owned()),
        ("x-key".to_owned(), "q7Zp0Lw4Xv9Tn2Rk6Yb1Mc8".to_owned()),
    ]
    .into();
    let mut sink = HttpSink::new(&config).unwrap();
    let mut texts = Vec::new();
    for _ in 0..5 {
        texts.push(sink.deliver(&items(1..=1)).await.unwrap_err().error.to_string());
    }
    assert!(texts[2].ends_with("400 Bad Request: schema mismatch"), "{texts:?}");
    drop(server);
    sink.reopen();
    texts.push(sink.deliver(&items(1..=1)).await.unwrap_err().error.to_string());
    let is_away = ["cannot connect to http://127.0.0.1:", "no answer from http://127.0.0.1:"];
    assert!(is_away.iter().any(|says| texts[5].starts_with(says)), "{texts:?}");
    texts.push(format!("{sink:?}"));
    for text in &texts {
        for secret in ["s3cret", "p4ssword", "abcdef123", "q7Zp", "u.1.MODIFIED", "deployments"] {
            assert!(!text.contains(secret), "{text}");
        }
    }
    let bad = Settings { headers: [("a".to_owned(), "s3cret\n".repeat(2))].into(), ..config };
    assert!(!HttpSink::new(&bad).unwrap_err().contains("s3cret"));
}

/// What a receiver does with a signed request: the key is that of the file, without its prefix.
fn is_signed(seen: &Seen, key: &[u8]) -> bool {
    use base64::{Engine, prelude::BASE64_STANDARD};
    use hmac::{Hmac, KeyInit, Mac};
    let mut mac: Hmac<sha2::Sha256> = Hmac::new_from_slice(key).unwrap();
    mac.update(format!("{}.{}.", seen.header("webhook-id"), seen.header("webhook-timestamp")).as_bytes());
    mac.update(&seen.body);
    let wanted = format!("v1,{}", BASE64_STANDARD.encode(mac.finalize().into_bytes()));
    seen.header("webhook-signature").split(' ').any(|signature| signature == wanted)
}

#[tokio::test]
async fn requests_are_signed_with_every_key_of_the_file() {
    use base64::{Engine, prelude::BASE64_STANDARD};
    let server = Server::start(|number, _| Does::Answers([503, 200][number.min(1)])).await;
    let keys = tempfile::NamedTempFile::new().unwrap();
    let line = |key: [u8; 32]| format!("whsec_{}\n", BASE64_STANDARD.encode(key));
    for (format, id) in [(BodyFormat::Binary, "e_1"), (BodyFormat::Batched, "e_1_3")] {
        let mut config = config(&server.url, format);
        config.signing_key_file = Some(keys.path().to_owned());
        let mut sink = HttpSink::new(&config).unwrap();
        std::fs::write(keys.path(), line([1; 32])).unwrap();
        let first = server.seen().len();
        while sink.deliver(&items(1..=3)).await.is_err() {}
        // Both are good for a while, then only the new one is.
        std::fs::write(keys.path(), line([1; 32]) + &line([2; 32])).unwrap();
        sink.deliver(&items(1..=3)).await.unwrap();
        std::fs::write(keys.path(), line([2; 32])).unwrap();
        sink.deliver(&items(1..=3)).await.unwrap();
        let seen = server.seen().split_off(first);
        let requests: Vec<&Seen> = seen.iter().filter(|seen| seen.header("webhook-id") == id).collect();
        let now = jiff::Timestamp::now().as_second();
        for seen in &requests {
            let at: i64 = seen.header("webhook-timestamp").parse().unwrap();
            assert!((now - 300..=now).contains(&at), "{at}, now {now}");
        }
        let good = |key: [u8; 32]| requests.iter().map(|seen| is_signed(seen, &key)).collect::<Vec<_>>();
        let (old, new) = (good([1; 32]), good([2; 32]));
        assert!(old.ends_with(&[true, true, false]) && new.ends_with(&[false, true, true]), "{old:?} {new:?}");
        assert!(!is_signed(&Seen { body: "x".into(), ..requests[0].clone() }, &[1; 32]));
    }
    std::fs::write(keys.path(), "none").unwrap();
    let mut config = config(&server.url, BodyFormat::Binary);
    config.signing_key_file = Some(keys.path().to_owned());
    let before = server.seen().len();
    HttpSink::new(&config).unwrap().deliver(&items(1..=1)).await.unwrap_err();
    assert_eq!(server.seen().len(), before, "nothing goes out unsigned");
}

/// A TLS server that wants a certificate of the authority of this directory.
async fn mutual(dir: &Path) -> (String, JoinSet<()>) {
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    let provider = crate::core::net::crypto_provider();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(dir.join("ca.pem")).unwrap()).unwrap();
    let clients = rustls::server::WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(clients.build().unwrap())
        .with_single_cert(
            vec![CertificateDer::from_pem_file(dir.join("server.pem")).unwrap()],
            PrivateKeyDer::from_pem_file(dir.join("server.key")).unwrap(),
        )
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}/in", listener.local_addr().unwrap());
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            connections.spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let service = service_fn(async |request: Request<Incoming>| {
                    request.into_body().collect().await.unwrap();
                    answer(Does::Answers(200)).await
                });
                let connection = hyper::server::conn::http1::Builder::new();
                connection.serve_connection(TokioIo::new(stream), service).await.ok();
            });
        }
    });
    (url, tasks)
}

#[tokio::test]
async fn a_server_that_asks_for_a_certificate_gets_the_one_that_is_there_now() {
    let dir = tempfile::tempdir().unwrap();
    let openssl = |arguments: &str| {
        let mut command = std::process::Command::new("openssl");
        assert!(command.args(arguments.split(' ')).current_dir(dir.path()).output().unwrap().status.success());
    };
    let request = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    for authority in ["ca", "stranger"] {
        openssl(&format!(
            "req -x509 {request} -keyout {authority}.key -out {authority}.pem -days 2 -subj /CN={authority}"
        ));
    }
    std::fs::write(dir.path().join("names"), "subjectAltName = IP:127.0.0.1").unwrap();
    for (name, authority) in [("server", "ca"), ("good", "ca"), ("bad", "stranger")] {
        openssl(&format!("req {request} -keyout {name}.key -out {name}.csr -subj /CN={name}"));
        openssl(&format!(
            "x509 -req -in {name}.csr -CA {authority}.pem -CAkey {authority}.key -CAcreateserial -out {name}.pem -days 2 -extfile names"
        ));
    }
    let (url, _tasks) = mutual(dir.path()).await;
    let path = |name: &str| dir.path().join(name);
    let show = |name: &str| {
        for kind in ["key", "pem"] {
            std::fs::copy(path(&format!("{name}.{kind}")), path(&format!("own.{kind}"))).unwrap();
        }
    };
    let mut config = config(&url, BodyFormat::Structured);
    config.tls.ca_file = Some(path("ca.pem"));
    let error = HttpSink::new(&config).unwrap().deliver(&items(1..=1)).await.unwrap_err().error;
    assert!(matches!(error, SinkError::Retry { .. }), "without a certificate: {error}");
    (config.tls.cert_file, config.tls.key_file) = (Some(path("own.pem")), Some(path("own.key")));
    let mut sink = HttpSink::new(&config).unwrap();
    show("bad");
    let error = sink.deliver(&items(1..=1)).await.unwrap_err().error;
    assert!(matches!(error, SinkError::Retry { .. }), "with a stranger's certificate: {error}");
    show("good");
    sink.deliver(&items(1..=1)).await.unwrap();
    show("bad");
    sink.deliver(&items(1..=1)).await.unwrap_err();
    // Nor does it trust whoever answers.
    show("good");
    config.tls.ca_file = Some(path("stranger.pem"));
    let error = HttpSink::new(&config).unwrap().deliver(&items(1..=1)).await.unwrap_err().error;
    assert!(error.to_string().contains("; name the authority that signed"), "{error}");
}
