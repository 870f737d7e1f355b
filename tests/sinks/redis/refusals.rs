//! Refusals by the server: a sentence names each, with what heals it, and nothing is stored behind a refused entry.

use std::fs;

use decklog::sink::SinkError;
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;

use super::start::Redis;
use super::{EPOCHS, RedisTests as _, item, items, sink, text};
use crate::certs;
use crate::trial::{self, Far};

/// Each refusal is what it is: something that heals, or something that an operator has to do.
#[tokio::test]
async fn redis_refusals_are_told_in_a_sentence() {
    let redis = Redis::start().await;
    let batch = items(EPOCHS[0], [1]);
    let mut open = sink(json!({"url": redis.url()}));
    open.check().await.unwrap();
    assert_eq!(redis.asked::<u64>("DBSIZE").await, 0, "a check changes nothing");
    for (cause, cure, says) in [
        ("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0", "has no memory left"),
        ("REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE", "is a replica"),
    ] {
        redis.asked::<String>(cause).await;
        for error in [open.deliver(&batch).await.unwrap_err().error, open.check().await.unwrap_err()] {
            assert!(matches!(&error, SinkError::Retry { text, .. } if text.contains(says)), "{error}");
        }
        redis.asked::<String>(cure).await;
    }
    redis.asked::<()>("SET log something").await;
    for error in [open.deliver(&batch).await.unwrap_err().error, open.check().await.unwrap_err()] {
        assert!(matches!(&error, SinkError::Halt { text } if text.contains("something else than a stream")), "{error}");
    }
    redis.asked::<()>("DEL log").await;
    open.deliver(&batch).await.unwrap();
    let mut beyond = sink(json!({"url": format!("{}/99", redis.url())}));
    let error = beyond.check().await.unwrap_err();
    assert!(matches!(&error, SinkError::Halt { text } if text.contains("database whose number")), "{error}");
    let mut nowhere = sink(json!({"url": "redis://nowhere.invalid"}));
    let error = nowhere.check().await.unwrap_err().to_string();
    assert!(error.contains("cannot connect to redis://nowhere.invalid:6379"), "{error}");
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    let web = async {
        let (mut client, _) = listener.accept().await.unwrap();
        client.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
        client
    };
    let mut other = sink(json!({"url": url}));
    let (_, checked) = tokio::join!(web, other.check());
    assert_eq!(
        checked.unwrap_err().to_string(),
        format!("{url} does not answer as Redis does; set `url` to a Redis server")
    );
}

#[tokio::test]
async fn redis_credentials_are_read_again_when_they_change() {
    let redis = Redis::start().await;
    let path = |name: &str| redis.dir.path().join(name);
    redis
        .asked::<()>("ACL SETUSER decklog on >first ~log +multi +exec +discard +xadd +xrange +xinfo +config|get")
        .await;
    redis.asked::<()>("ACL SETUSER reader on >first ~log +xrange +xinfo").await;
    redis.asked::<()>("ACL SETUSER default +@all").await;
    fs::write(path("password"), "wrong").unwrap();
    let mut ours = sink(json!({"url": redis.url(), "user": "decklog", "password_file": path("password")}));
    for error in [ours.deliver(&items(EPOCHS[0], [1])).await.unwrap_err().error, ours.check().await.unwrap_err()] {
        let SinkError::Retry { text, after: Some(_) } = &error else { panic!("{error:?}") };
        assert!(text.contains("refuses the credentials") && text.contains("password_file"), "{text}");
    }
    fs::write(path("password"), "first\n").unwrap();
    ours.deliver(&items(EPOCHS[0], [1])).await.unwrap();
    ours.check().await.unwrap();
    // The same connection is used on, until the password is another one.
    redis.asked::<()>("ACL SETUSER decklog >second <first").await;
    fs::write(path("password"), "second").unwrap();
    ours.deliver(&items(EPOCHS[0], [2])).await.unwrap();
    assert_eq!(redis.consumed("log").await.unwrap().len(), 2);
    // A password that is not right is told at once, and not when the connection ends one day.
    fs::write(path("password"), "third").unwrap();
    let error = ours.deliver(&items(EPOCHS[0], [3])).await.unwrap_err().error.to_string();
    assert!(error.contains("refuses the credentials"), "{error}");
    fs::write(path("password"), "first").unwrap();
    let mut reader = sink(json!({"url": redis.url(), "user": "reader", "password_file": path("password")}));
    for error in [reader.deliver(&items(EPOCHS[0], [3])).await.unwrap_err().error, reader.check().await.unwrap_err()] {
        assert!(matches!(&error, SinkError::Retry { text, .. } if text.contains("+xadd")), "{error}");
    }
    // A server that wants a password, and none is given.
    redis.asked::<()>("ACL SETUSER default resetpass >other").await;
    let error = sink(json!({"url": redis.url()})).check().await.unwrap_err().to_string();
    assert!(error.contains("refuses the credentials"), "{error}");
}

/// An entry never comes to be after one that is missing.
#[tokio::test]
async fn redis_batches_are_all_or_nothing() {
    let redis = Redis::start().await;
    redis.asked::<()>("ACL SETUSER decklog on >first ~log:configmaps +@all").await;
    let password = redis.dir.path().join("password");
    fs::write(&password, "first").unwrap();
    let mut sink = sink(json!({
        "url": redis.url(), "user": "decklog", "password_file": password, "stream": "log:{resource}"
    }));
    let mut batch = items(EPOCHS[0], 1..=3);
    batch[1].line = text(batch[1].clone()).replace("configmaps", "secrets").into();
    let failure = sink.deliver(&batch).await.unwrap_err();
    assert!(matches!(&failure.error, SinkError::Retry { text, .. } if text.contains("NOPERM")), "{failure}");
    assert_eq!((failure.taken, redis.asked::<u64>("DBSIZE").await), (0, 0));
    redis.asked::<()>("ACL SETUSER decklog ~log:secrets").await;
    sink.deliver(&batch).await.unwrap();
    assert_eq!(redis.consumed("log:configmaps").await.unwrap().len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_over_tls() {
    let certificates = tempfile::tempdir().unwrap();
    certs::make(certificates.path());
    let path = |name: &str| certificates.path().join(name).display().to_string();
    for (certificate, authority, says) in [
        ("server", "ca.pem", None),
        ("server", "stranger.pem", Some("; name the authority that signed")),
        ("expired", "ca.pem", Some("; renew it, or check this machine's clock")),
    ] {
        let (cert, key) = (path(&format!("{certificate}.pem")), path(&format!("{certificate}.key")));
        let tls = ["--tls-auth-clients", "no", "--tls-ca-cert-file", &path("ca.pem"), "--tls-cert-file", &cert];
        let mut redis = Redis::start_with(&[&tls[..], &["--tls-key-file", &key, "--tls-port"]].concat(), true).await;
        redis.authority = Some(path(authority).into());
        let port = redis.port();
        let url = format!("rediss://127.0.0.1:{port}");
        let mut direct = sink(json!({"url": url, "ca_file": path(authority)}));
        match says {
            None => {
                direct.check().await.unwrap();
                trial::answers_cut(&mut redis).await;
            }
            Some(says) => {
                let error = direct.check().await.unwrap_err().to_string();
                assert!(error.starts_with("cannot connect to rediss://") && error.contains(says), "{error}");
            }
        }
    }
}

#[tokio::test]
async fn redis_entries_larger_than_it_takes_are_refused_alone() {
    let redis = Redis::start_with(&["--proto-max-bulk-len", "1mb"], false).await;
    let mut sink = sink(json!({"url": redis.url()}));
    let mut batch = items(EPOCHS[0], 1..=4);
    batch[2] = item(EPOCHS[0], 3, &"x".repeat(1 << 20));
    let failure = sink.deliver(&batch).await.unwrap_err();
    assert!(matches!(&failure.error, SinkError::Refused { text } if text.contains("proto-max-bulk-len")), "{failure}");
    assert_eq!(failure.taken, 2);
    // A limit that is set while there is a connection is learned from the connection that it costs.
    redis.asked::<()>("CONFIG SET proto-max-bulk-len 2097152").await;
    let mut more = crate::redis::sink(json!({"url": redis.url()}));
    more.check().await.unwrap();
    redis.asked::<()>("CONFIG SET proto-max-bulk-len 1048576").await;
    let failure = more.deliver(&batch[2..]).await.unwrap_err();
    assert!(matches!(&failure.error, SinkError::Retry { .. }), "{failure}");
    let failure = more.deliver(&batch[2..]).await.unwrap_err();
    assert!(matches!(&failure.error, SinkError::Refused { .. }), "{failure}");
    sink.deliver(&batch[3..]).await.unwrap();
    assert_eq!(redis.consumed("log").await.unwrap().len(), 3);
}
