//! Who it is talked to, and who talks.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use decklog::core::model::Seq;
use decklog::sink::{LogPosition, Sink, SinkError};
use serde_json::{Value, json};

use super::start::Kafka;
use super::{KafkaTests as _, deliver, exactly, items, open, position, tls, trying};
use crate::server::free_port;

/// A certificate for 127.0.0.1 that signs itself, with its key in one file, for a time.
fn certificate(dir: &Path, name: &str, expired: bool) {
    let path = |suffix: &str| dir.join(format!("{name}.{suffix}"));
    let openssl = |arguments: &[&str]| {
        let ran = Command::new("openssl").args(arguments).current_dir(dir).output().unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    };
    fs::write(
        path("cnf"),
        format!(
            "[req]\ndistinguished_name=d\n[d]\n[ca]\ndefault_ca=c\n[c]\nnew_certs_dir=.\ndatabase={name}.index\n\
             serial={name}.serial\ndefault_md=sha256\npolicy=p\nx509_extensions=e\n[p]\ncommonName=supplied\n\
             [e]\nsubjectAltName=IP:127.0.0.1\nbasicConstraints=CA:true\n"
        ),
    )
    .unwrap();
    fs::write(path("index"), "").unwrap();
    fs::write(path("serial"), "01\n").unwrap();
    let (config, key, request, cert) =
        (format!("{name}.cnf"), format!("{name}.key"), format!("{name}.csr"), format!("{name}.crt"));
    let curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
    let subject = format!("/CN={name}");
    openssl(
        &[&["req", "-config", &config], &curve[..], &["-subj", &subject, "-keyout", &key, "-out", &request]].concat(),
    );
    let until = if expired { "20200201000000Z" } else { "20990101000000Z" };
    let times = ["-startdate", "20200101000000Z", "-enddate", until];
    openssl(
        &[
            &["ca", "-batch", "-config", &config, "-selfsign", "-keyfile", &key, "-in", &request, "-notext"][..],
            &times,
            &["-out", &cert],
        ]
        .concat(),
    );
    let pem = fs::read_to_string(path("key")).unwrap() + &fs::read_to_string(path("crt")).unwrap();
    fs::write(path("pem"), pem).unwrap();
}

/// Who it is talked to, and who talks: each mistake in one clear sentence, and files that are read again.
#[tokio::test(flavor = "multi_thread")]
async fn kafka_credentials_and_certificates() {
    let (plain, scram, good, old, client) = (free_port(), free_port(), free_port(), free_port(), free_port());
    let kafka = Kafka::start_with(
        true,
        |dir, listeners| {
            certificate(dir, "good", false);
            certificate(dir, "old", true);
            certificate(dir, "client", false);
            listeners.extend([
                ("PLAIN", plain, "SASL_PLAINTEXT"),
                ("SCRAM", scram, "SASL_SSL"),
                ("GOOD", good, "SSL"),
                ("OLD", old, "SSL"),
                ("CLIENT", client, "SSL"),
            ]);
            let module = "org.apache.kafka.common.security";
            format!(
                "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512\n\
                 listener.name.plain.plain.sasl.jaas.config={module}.plain.PlainLoginModule required user_writer=\"right\";\n\
                 listener.name.plain.sasl.enabled.mechanisms=PLAIN\n\
                 listener.name.scram.sasl.enabled.mechanisms=SCRAM-SHA-256,SCRAM-SHA-512\n\
                 listener.name.scram.scram-sha-256.sasl.jaas.config={module}.scram.ScramLoginModule required;\n\
                 listener.name.scram.scram-sha-512.sasl.jaas.config={module}.scram.ScramLoginModule required;\n\
                 {}{}{}{}listener.name.client.ssl.client.auth=required\n\
                 listener.name.client.ssl.truststore.type=PEM\nlistener.name.client.ssl.truststore.location={}/client.crt\n",
                tls(dir, "scram", "good.pem"),
                tls(dir, "good", "good.pem"),
                tls(dir, "old", "old.pem"),
                tls(dir, "client", "good.pem"),
                dir.display(),
            )
        },
        &["--add-scram", "SCRAM-SHA-256=[name=writer,password=right]", "--add-scram", "SCRAM-SHA-512=[name=writer,password=right]"],
    )
    .await;
    drop(kafka.ready(exactly("safe")).await);
    let file = |name: &str| -> PathBuf { kafka.dir.path().join(name) };
    fs::write(file("password"), "wrong\n").unwrap();
    let with = |more: Value| {
        let mut keys = exactly("safe");
        keys.as_object_mut().unwrap().append(more.clone().as_object_mut().unwrap());
        keys
    };
    let says = async |sink: &mut Box<dyn Sink>, texts: &[&str]| {
        let error = sink.check().await.unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, SinkError::Retry { .. }), "{error:?}");
        assert!(texts.iter().any(|says| text.contains(says)), "{text}");
        assert!(!text.contains("wrong") && !text.contains("right "), "{text}");
    };
    for (round, (port, mechanism, tls)) in (0..).zip([
        (plain, "plain", json!({})),
        (scram, "scram-sha-256", json!({"tls": true, "ca_file": file("good.crt")})),
        (scram, "scram-sha-512", json!({"tls": true, "ca_file": file("good.crt")})),
    ]) {
        fs::write(file("password"), "wrong\n").unwrap();
        let mut keys = with(json!({"sasl": mechanism, "user": "writer", "password_file": file("password")}));
        keys.as_object_mut().unwrap().append(tls.clone().as_object_mut().unwrap());
        let mut sink = open(port, keys).unwrap();
        says(&mut sink, &["password_file"]).await;
        let cursor = LogPosition { epoch: "e".to_owned(), seq: Seq(0), entry: None };
        let refused = sink.position(&cursor).await.unwrap_err();
        assert!(refused.to_string().contains("password_file"), "{refused}");
        // Somebody puts the right one in its place.
        fs::write(file("password"), "right\n").unwrap();
        trying("a check", async || sink.check().await).await.unwrap();
        position(sink.as_mut()).await;
        deliver(sink.as_mut(), &items(2 * round + 1..=2 * round + 2)).await.unwrap();
    }
    let trusting = |ca: &str| with(json!({"tls": true, "ca_file": file(ca)}));
    let mut sink = open(good, trusting("good.crt")).unwrap();
    trying("a check", async || sink.check().await).await.unwrap();
    says(&mut open(good, trusting("client.crt")).unwrap(), &["ca_file"]).await;
    says(&mut open(old, trusting("old.crt")).unwrap(), &["expired"]).await;
    says(&mut open(good, with(json!({}))).unwrap(), &["tls", "disconnect", "Disconnected", "closed"]).await;
    says(&mut open(client, trusting("good.crt")).unwrap(), &["cert_file", "certificate"]).await;
    let own = json!({"tls": true, "ca_file": file("good.crt"), "cert_file": file("client.crt"), "key_file": file("client.key")});
    let mut sink = open(client, with(own)).unwrap();
    trying("a check", async || sink.check().await).await.unwrap();
    let unknown = json!({"brokers": ["no-such-host.invalid:9092"]});
    says(&mut open(0, with(unknown)).unwrap(), &["no-such-host.invalid"]).await;
}
