//! Ways into a server: rights, credentials and certificates, and a stream that fits; what is missing is named.

use std::fs;

use async_nats::ConnectOptions;
use async_nats::jetstream::stream::{Config, RetentionPolicy};
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use nkeys::KeyPair;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::start::{NEW, Nats, OLD};
use super::{NatsTests as _, sink};
use crate::certs;
use crate::server::free_port;
use crate::support::{Daemon, until};
use crate::trial::Far;

/// The rights that the documentation names are enough, and each that is missing is named.
#[tokio::test]
async fn what_a_user_of_nats_may_not_do_is_named() {
    let least = ["log.>", "$JS.API.STREAM.INFO.log", "$JS.API.STREAM.MSG.GET.log"];
    let user = |name: &str, publish: &[&str], subscribe: &str| {
        format!(
            "{{ user: {name}, password: s3cret, permissions: {{ publish: {publish:?}, subscribe: [{subscribe:?}] }} }}\n"
        )
    };
    let users = [
        user("least", &least, "_INBOX.>"),
        user("maker", &[&least[..], &["$JS.API.STREAM.CREATE.log"]].concat(), "_INBOX.>"),
        user("mute", &least[1..], "_INBOX.>"),
        user("deaf", &least, "nothing"),
        user("blind", &[least[0], least[2]], "_INBOX.>"),
        user("half", &least[..2], "_INBOX.>"),
    ];
    for version in [NEW, OLD] {
        let more = format!("authorization {{ users = [\n{}] }}", users.concat());
        let nats = Nats::with(version, &more).await;
        let sim = crate::support::cluster().await;
        let mut daemon = Daemon::new(&sim, &["configmaps"]);
        let password = daemon.path("password");
        fs::write(&password, "s3cret\n").unwrap();
        let configure = |daemon: &Daemon, user: &str| {
            let keys = format!(
                "[[sink]]\nname = \"far\"\n{}user = \"{user}\"\npassword_file = {password:?}\ntimeout = \"5s\"\n",
                sink(nats.server.port(), "log")
            );
            daemon.configure(&daemon.config("resources = [\"configmaps\"]", &keys));
        };
        configure(&daemon, "least");
        let may_not = daemon.command(&["sink", "init", "far"]).await;
        assert!(may_not.err.contains("may not publish to $JS.API.STREAM.CREATE.log"), "{may_not:#?}");
        configure(&daemon, "maker");
        daemon.command(&["sink", "init", "far"]).await.done();
        for (user, says) in [
            ("deaf", "may not subscribe to its inbox"),
            ("blind", "may not publish to $JS.API.STREAM.INFO.log"),
            ("half", "may not publish to $JS.API.STREAM.MSG.GET.log"),
        ] {
            configure(&daemon, user);
            let checked = daemon.command(&["check"]).await;
            assert!(checked.code == 1 && checked.out.contains(says), "{user}: {checked:#?}");
        }
        // Nobody is asked who may publish: that is seen when something is.
        configure(&daemon, "mute");
        daemon.start();
        daemon.ready().await;
        sim.create("configmaps", decklog::sim::objects::config_map("default", "one", "x")).unwrap();
        let detail = daemon.waits_for_state("sinks", "far", "retrying").await;
        assert!(detail.contains("may not publish to the subjects of the log") && !detail.contains("one"), "{detail}");
        configure(&daemon, "least");
        daemon.signal(Signal::HUP);
        daemon.waits_for_state("sinks", "far", "running").await;
        daemon.command(&["check"]).await.done();
        daemon.stop().await;
    }
}

/// What an operator got wrong is told in a sentence, by `check` and in the status, and delivery goes on when it is right.
#[tokio::test]
async fn what_is_wrong_with_a_server_is_said() {
    let more = "authorization { user: me, password: s3cret }";
    let mut nats = Nats::with(NEW, more).await;
    let sim = crate::support::cluster().await;
    let mut daemon = Daemon::new(&sim, &["configmaps"]);
    let (port, shut) = (nats.server.port(), free_port());
    let password = daemon.path("password");
    let login = format!("user = \"me\"\npassword_file = {password:?}\n");
    fs::write(&password, "wr0ng\n").unwrap();
    let context = nats.context_as(ConnectOptions::with_user_and_password("me".into(), "s3cret".into())).await;
    context
        .create_stream(Config {
            name: "queue".into(),
            subjects: vec!["queue.>".into()],
            retention: RetentionPolicy::WorkQueue,
            ..Config::default()
        })
        .await
        .unwrap();
    context
        .create_stream(Config { name: "narrow".into(), subjects: vec!["narrow.pods.*".into()], ..Config::default() })
        .await
        .unwrap();
    let with =
        |text: String| daemon.config("resources = [\"configmaps\"]", &format!("[[sink]]\nname = \"far\"\n{text}\n"));
    for (config, right, says) in [
        (sink(shut, "log"), false, format!("cannot connect to 127.0.0.1:{shut}: IO error: Connection refused")),
        (
            sink(port, "log").replace("127.0.0.1", "nowhere.invalid"),
            false,
            "cannot connect to nowhere.invalid".to_owned(),
        ),
        (sink(port, "log"), false, format!("127.0.0.1:{port} asks who it is; set `credentials_file`")),
        (sink(port, "log") + &login, false, format!("127.0.0.1:{port} refuses the credentials; renew `password_file`")),
        (
            sink(port, "log") + &login,
            true,
            format!("there is no stream log at 127.0.0.1:{port}; `decklog sink init far`"),
        ),
        (sink(port, "queue") + &login, true, "drops what consumers have taken".to_owned()),
        (sink(port, "narrow") + &login, true, "does not take the subjects narrow.*.*".to_owned()),
    ] {
        fs::write(&password, if right { "s3cret\n" } else { "wr0ng\n" }).unwrap();
        daemon.configure(&with(config));
        let checked = daemon.command(&["check"]).await;
        assert!(checked.code == 1 && checked.out.contains(&says), "{says}: {checked:#?}");
    }
    // A password that is right by and by.
    fs::write(&password, "wr0ng\n").unwrap();
    daemon.configure(&with(sink(port, "log") + &login));
    daemon.start();
    let detail = daemon.waits_for_state("sinks", "far", "retrying").await;
    assert!(detail.contains("refuses the credentials; renew"), "{detail}");
    fs::write(&password, "s3cret\n").unwrap();
    daemon.signal(Signal::HUP);
    daemon.says("there is no stream log").await;
    daemon.command(&["sink", "init", "far"]).await.done();
    assert!(daemon.command(&["sink", "init", "far"]).await.err.contains("the stream log is there already"));
    daemon.waits_for_state("sinks", "far", "running").await;
    daemon.stop().await;
    let said = daemon.said();
    assert!(!said.contains("s3cret") && !said.contains("wr0ng"));
    nats.kill();
}

/// Over TLS, with credentials as `nsc` makes them; both are replaced while decklog runs.
#[tokio::test]
async fn nats_with_tls_and_a_credentials_file() {
    let pki = tempfile::tempdir().unwrap();
    certs::make(pki.path());
    let claims = |issuer: &KeyPair, subject: &KeyPair, name: &str, nats: Value| {
        let part = |value: &Value| BASE64_URL_SAFE_NO_PAD.encode(serde_json::to_vec(value).unwrap());
        let head = part(&json!({"typ": "JWT", "alg": "ed25519-nkey"}));
        let body = part(&json!({
            "jti": name, "iat": 1_700_000_000, "iss": issuer.public_key(), "sub": subject.public_key(), "name": name, "nats": nats,
        }));
        let signature = issuer.sign(format!("{head}.{body}").as_bytes()).unwrap();
        format!("{head}.{body}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature))
    };
    let (operator, system, account) = (KeyPair::new_operator(), KeyPair::new_account(), KeyPair::new_account());
    let credentials = |issuer: &KeyPair| {
        let user = KeyPair::new_user();
        let rights = json!({"pub": {}, "sub": {}, "subs": -1, "data": -1, "payload": -1, "type": "user", "version": 2});
        format!(
            "-----BEGIN NATS USER JWT-----\n{}\n------END NATS USER JWT------\n\n-----BEGIN USER NKEY SEED-----\n{}\n------END USER NKEY SEED------\n",
            claims(issuer, &user, "decklog", rights),
            user.seed().unwrap()
        )
    };
    let unlimited = json!({
        "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true, "conn": -1, "leaf": -1,
        "mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1,
    });
    let of = |key: &KeyPair, limits: &Value| {
        claims(&operator, key, "account", json!({"limits": limits, "type": "account", "version": 2}))
    };
    let more = format!(
        "operator: {:?}\nsystem_account: {:?}\nresolver: MEMORY\nresolver_preload: {{ {:?}: {:?}, {:?}: {:?} }}\ntls {{ cert_file: {:?}, key_file: {:?} }}",
        claims(&operator, &operator, "operator", json!({"type": "operator", "version": 2})),
        system.public_key(),
        system.public_key(),
        of(&system, &json!({"subs": -1, "conn": -1})),
        account.public_key(),
        of(&account, &unlimited),
        pki.path().join("server.pem"),
        pki.path().join("server.key"),
    );
    let nats = Nats::with(NEW, &more).await;
    let sim = crate::support::cluster().await;
    let mut daemon = Daemon::new(&sim, &["configmaps"]);
    let (creds, authority) = (daemon.path("nats.creds"), daemon.path("ca.pem"));
    let keys = format!(
        "[[sink]]\nname = \"far\"\n{}credentials_file = {creds:?}\nca_file = {authority:?}\n",
        sink(nats.server.port(), "log").replace("nats://", "tls://")
    );
    daemon.configure(&daemon.config("resources = [\"configmaps\"]", &keys));
    // The account signs its users, and nobody else.
    let stranger = KeyPair::new_account();
    for (credentials, ca, says) in [
        (credentials(&account), "stranger.pem", "certificate is not signed by"),
        (credentials(&stranger), "ca.pem", "refuses the credentials"),
        ("none".to_owned(), "ca.pem", "holds no credentials as `nsc` makes them"),
    ] {
        fs::write(&creds, credentials).unwrap();
        fs::copy(pki.path().join(ca), &authority).unwrap();
        let checked = daemon.command(&["check"]).await;
        assert!(checked.code == 1 && checked.out.contains(says), "{says}: {checked:#?}");
    }
    fs::write(&creds, credentials(&account)).unwrap();
    daemon.command(&["sink", "init", "far"]).await.done();
    daemon.start();
    daemon.ready().await;
    daemon.waits_for_state("sinks", "far", "running").await;
    // Another user of the account, with what is written next.
    fs::write(&creds, credentials(&account)).unwrap();
    sim.create("configmaps", decklog::sim::objects::config_map("default", "one", "x")).unwrap();
    let held = async || -> Result<usize, String> {
        let trusted =
            ConnectOptions::with_credentials(&credentials(&account)).unwrap().add_root_certificates(authority.clone());
        let context = nats.context_as(trusted).await;
        let stream = context.get_stream("log").await.map_err(|error| error.to_string())?;
        Ok(usize::try_from(stream.cached_info().state.messages).unwrap())
    };
    until("the entry to be there", async || match held().await? {
        0 => Err("not yet".to_owned()),
        count => {
            if count == daemon.lines() {
                Ok(())
            } else {
                Err(count.to_string())
            }
        }
    })
    .await;
    daemon.stop().await;
    assert!(!daemon.said().contains("SEED") && !daemon.said().contains("eyJ"));
}

/// A certificate that has expired.
#[tokio::test]
async fn an_expired_certificate_is_named() {
    let pki = tempfile::tempdir().unwrap();
    certs::make(pki.path());
    let file = |name: &str| pki.path().join(name);
    let more = format!("tls {{ cert_file: {:?}, key_file: {:?} }}", file("expired.pem"), file("expired.key"));
    let nats = Nats::with(OLD, &more).await;
    let sim = crate::support::cluster().await;
    let daemon = Daemon::new(&sim, &["configmaps"]);
    let keys = format!("[[sink]]\nname = \"far\"\n{}ca_file = {:?}\n", sink(nats.server.port(), "log"), file("ca.pem"));
    daemon.configure(&daemon.config("resources = [\"configmaps\"]", &keys));
    let checked = daemon.command(&["check"]).await;
    assert!(
        checked.code == 1
            && checked
                .out
                .contains(": IO error: the server's certificate has expired, at 2021-01-01T00:00:00Z; renew it"),
        "{checked:#?}"
    );
}

/// What `--print` gives is what a server takes, and what `sink init` makes.
#[tokio::test]
async fn the_printed_stream_is_the_one_that_is_made() {
    for version in [NEW, OLD] {
        let nats = Nats::start(version).await;
        let sim = crate::support::cluster().await;
        let daemon = Daemon::new(&sim, &["configmaps"]);
        let keys = format!("[[sink]]\nname = \"far\"\n{}", sink(nats.server.port(), "log"));
        daemon.configure(&daemon.config("resources = [\"configmaps\"]", &keys));
        let printed = daemon.command(&["sink", "init", "far", "--print"]).await.done();
        let context = nats.context().await;
        let made: Value =
            context.request("STREAM.CREATE.log", &serde_json::from_str::<Value>(&printed).unwrap()).await.unwrap();
        assert_eq!(made["config"]["subjects"], json!(["log.*.*"]), "{made}");
        daemon.command(&["check"]).await.done();
        context.delete_stream("log").await.unwrap();
        daemon.command(&["sink", "init", "far"]).await.done();
        let config = context.get_stream("log").await.unwrap().cached_info().config.clone();
        assert_eq!(config, serde_json::from_value::<Config>(made["config"].clone()).unwrap());
    }
}
