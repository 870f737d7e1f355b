//! The shared log in JetStream.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use async_nats::jetstream;
use async_nats::jetstream::stream::Stream;
use decklog::core::shared_log::{LogError, SharedLog};
use decklog::sink::registry::SinkKind;
use serde_json::{Value, json};

use super::start::{NEW, Nats, OLD};
use crate::ha;
use crate::proxy::Proxy;
use crate::shared::{self, Place};
use crate::support::until;

/// The logs of one sink, at a port of the server or of what is before it.
struct Logs {
    /// Of the server.
    straight: u16,
    port: u16,
    /// Who appends, with the file of the password; nobody where the server asks for none.
    login: Option<(&'static str, PathBuf)>,
}

impl Logs {
    async fn new(far: &Nats, port: u16) -> Self {
        let mut log = Self::straight(far).open("any");
        until("the stream", async || log.provision().await.map_err(|error| error.to_string())).await;
        Self { port, ..Self::straight(far) }
    }

    /// Without a stream.
    fn straight(far: &Nats) -> Self {
        Self { straight: far.server.port(), port: far.server.port(), login: None }
    }

    fn kind(&self) -> SinkKind {
        let addresses = [format!("nats://127.0.0.1:{}", self.port)];
        let mut keys = json!({"type": "nats", "addresses": addresses, "stream": "LOG", "timeout": "5s"});
        if let Some((user, password)) = &self.login {
            keys["user"] = json!(user);
            keys["password_file"] = json!(password);
        }
        serde_json::from_value(keys).unwrap()
    }

    async fn stream(&self) -> Stream {
        let client = async_nats::connect(format!("127.0.0.1:{}", self.straight)).await.unwrap();
        jetstream::new(client).get_stream("LOG-shared").await.unwrap()
    }
}

impl Place for Logs {
    fn open(&self, cluster: &str) -> Box<dyn SharedLog> {
        self.kind().settings().shared_log("archive", cluster).unwrap().unwrap()
    }

    async fn forget(&self, cluster: &str, from: u64) {
        let stream = self.stream().await;
        let subject = format!("LOG-shared.{cluster}.log");
        while let Ok(message) = stream.get_last_raw_message_by_subject(&subject).await {
            let said: Value = serde_json::from_str(message.headers.get("Decklog-Shared").unwrap().as_str()).unwrap();
            if said["newest"].as_u64().unwrap() < from {
                break;
            }
            stream.delete_message(message.sequence).await.unwrap();
        }
    }

    async fn lose(&self, cluster: &str, units: &[u64]) {
        let stream = self.stream().await;
        let subject = format!("LOG-shared.{cluster}.log");
        let mut from = 1;
        while let Ok(message) = stream.get_first_raw_message_by_subject(&subject, from).await {
            from = message.sequence + 1;
            let said: Value = serde_json::from_str(message.headers.get("Decklog-Shared").unwrap().as_str()).unwrap();
            if said["unit"].as_u64().is_some_and(|number| units.contains(&number)) {
                stream.delete_message(message.sequence).await.unwrap();
            }
        }
    }

    /// A sequence is given once.
    async fn put_back(&self, _cluster: &str, _units: &[u64]) -> bool {
        false
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nats_shared_log() {
    let far = Nats::start(NEW).await;
    let logs = Logs::new(&far, far.server.port()).await;
    shared::keeps_what_it_promises(&logs).await;
    println!("an append of 1 KB and of 1 MB: {:?}", shared::latency(&logs).await);
    // Nothing stays of what was removed.
    let mut log = logs.open("truncated");
    let units = log.read(11, 1 << 20).await.unwrap();
    assert_eq!(units.len(), 1);
    let mut subjects = logs.stream().await.info_with_subjects("LOG-shared.truncated.>").await.unwrap();
    let mut left = Vec::new();
    while let Some(subject) = futures::StreamExt::next(&mut subjects).await {
        left.push(subject.unwrap());
    }
    left.sort();
    assert_eq!(left[0], ("LOG-shared.truncated.log".to_owned(), 2), "a word about what was removed, and a unit");
    assert_eq!(left.len(), 2, "one part of one base: {left:?}");
}

/// Servers that are old do not find the last message of a subject any more after a purge.
#[tokio::test(flavor = "multi_thread")]
async fn nats_shared_log_is_not_kept_on_an_old_server() {
    let far = Nats::start(OLD).await;
    let logs = Logs::new(&far, far.server.port()).await;
    let mut log = logs.open("c");
    for refused in [log.check().await.unwrap_err(), log.append(1, "x".into()).await.unwrap_err()] {
        let says = "of version 2.9.10, which loses sight";
        assert!(matches!(&refused, LogError::Halt(text) if text.contains(says)), "{refused}");
    }
}

/// A server that takes only small messages.
#[tokio::test(flavor = "multi_thread")]
async fn nats_shared_log_in_small_messages() {
    let far = Nats::with(NEW, "max_payload: 65536").await;
    let logs = Logs::new(&far, far.server.port()).await;
    shared::keeps_what_it_promises(&logs).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nats_shared_log_answers_cut() {
    let far = Nats::start(NEW).await;
    let proxy = Proxy::start(far.server.port()).await;
    let straight = Logs::new(&far, far.server.port()).await;
    let through = Logs::new(&far, proxy.port()).await;
    shared::lasts(&through, &straight, "cut", async |reached| proxy.cuts(reached).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nats_shared_log_killed() {
    let mut far = Nats::start(NEW).await;
    let logs = Logs::new(&far, far.server.port()).await;
    ha::outlives_kills(&logs, "killed", &mut far.server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nats_shared_log_says_what_is_missing() {
    let far = Nats::start(NEW).await;
    let logs = Logs::straight(&far);
    let mut log = logs.open("c");
    let error = ha::checked(&mut log).await.unwrap_err();
    assert!(matches!(&error, LogError::Halt(text) if text.contains("`decklog sink init archive` makes it")), "{error}");
    let made = log.provision().await.unwrap().unwrap();
    assert!(made.contains("the stream LOG-shared was made"), "{made}");
    assert!(log.provision().await.unwrap().unwrap().ends_with("is there already"));
    log.check().await.unwrap();
    assert!(log.provisioning_script().unwrap().contains("\"LOG-shared.>\""));
    // One that forgets.
    let client = async_nats::connect(format!("127.0.0.1:{}", logs.straight)).await.unwrap();
    let context = jetstream::new(client);
    let mut config = logs.stream().await.cached_info().config.clone();
    config.max_age = Duration::from_hours(1);
    context.update_stream(config.clone()).await.unwrap();
    let error = log.check().await.unwrap_err();
    assert!(matches!(&error, LogError::Halt(text) if text.contains("removes what is old (max_age)")), "{error}");
    // It is looked at with each connection.
    let error = logs.open("c").append(1, "x".into()).await.unwrap_err();
    assert!(matches!(&error, LogError::Halt(text) if text.contains("max_age")), "{error}");
    config.max_age = Duration::ZERO;
    context.update_stream(config).await.unwrap();
    log.append(1, "x".into()).await.unwrap();
}

/// The rights that the book names are enough, and each that is missing is named.
#[tokio::test(flavor = "multi_thread")]
async fn nats_shared_log_with_the_least_rights() {
    let least = [
        "LOG-shared.>",
        "$JS.API.STREAM.INFO.LOG-shared",
        "$JS.API.STREAM.MSG.GET.LOG-shared",
        "$JS.API.STREAM.PURGE.LOG-shared",
    ];
    let user = |name: &str, publish: &[&str]| {
        format!(
            "{{ user: {name}, password: s3cret, permissions: {{ publish: {publish:?}, subscribe: [\"_INBOX.>\"] }} }}\n"
        )
    };
    let users = [
        user("least", &least),
        user("maker", &[&least[..], &["$JS.API.STREAM.CREATE.LOG-shared", "$JS.API.STREAM.INFO.LOG"]].concat()),
        user("unpurged", &least[..3]),
        user("blind", &[least[0], least[2]]),
        "{ user: all, password: s3cret }\n".to_owned(),
    ];
    let far = Nats::with(NEW, &format!("no_auth_user: all\nauthorization {{ users = [\n{}] }}", users.concat())).await;
    let password = far.dir.path().join("password");
    fs::write(&password, "s3cret\n").unwrap();
    let logs = |user| Logs { login: Some((user, password.clone())), ..Logs::straight(&far) };
    let mut maker = logs("maker").open("any");
    until("the stream", async || maker.provision().await.map_err(|error| error.to_string())).await;
    shared::keeps_what_it_promises(&logs("least")).await;
    let error = logs("blind").open("c").check().await.unwrap_err().to_string();
    assert!(error.contains("may not publish to $JS.API.STREAM.INFO.LOG-shared"), "{error}");
    let mut log = logs("unpurged").open("one");
    let error = until("a refusal", async || match log.truncate(2).await {
        Err(error) => Ok(error.to_string()),
        Ok(()) => Err("it was done".to_owned()),
    });
    let error = error.await;
    assert!(error.contains("may not publish to $JS.API.STREAM.PURGE.LOG-shared"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nats_shared_log_outlives_its_machine() {
    let far = Nats::start(NEW).await;
    let port = far.server.port();
    let keys =
        format!("type = \"nats\"\naddresses = [\"nats://127.0.0.1:{port}\"]\nstream = \"LOG\"\ntimeout = \"5s\"\n");
    ha::outlives_its_machine(&keys, "there is no stream LOG-shared", "the stream LOG-shared was made").await;
}
