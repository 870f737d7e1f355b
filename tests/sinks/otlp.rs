//! The otlp sink against the OpenTelemetry collector, over both of its protocols.

pub(crate) use decklog_testkit::servers::otlp as start;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use decklog::core::model::{Cluster, EntryType, Seq};
use decklog::core::wire::{EntryBuilder, render};
use decklog::sink::registry::SinkKind;
use decklog::sink::{Failure, Item, Sink, SinkError};
use serde_json::{Value, json};

use crate::server::free_port;
use crate::support::{Daemon, until};
use crate::trial::{self, Far, Promise};
use start::Collector;

/// What these tests do with the server.
trait CollectorTests: Sized {
    fn file(&self) -> PathBuf;
    fn records(&self, from: usize) -> Result<Vec<Value>, String>;
}

impl CollectorTests for Collector {
    fn file(&self) -> PathBuf {
        self.dir.path().join("out.jsonl")
    }

    /// The log records after so many bytes of the file.
    fn records(&self, from: usize) -> Result<Vec<Value>, String> {
        let text = fs::read_to_string(self.file()).map_err(|error| error.to_string())?;
        let mut records = Vec::new();
        for line in text[from..].lines() {
            let logs: Value = serde_json::from_str(line).map_err(|error| error.to_string())?;
            let under = |value: &Value, key: &str| value[key].as_array().cloned().unwrap_or_default();
            for resource in under(&logs, "resourceLogs") {
                for scope in under(&resource, "scopeLogs") {
                    records.extend(under(&scope, "logRecords"));
                }
            }
        }
        Ok(records)
    }
}

impl Far for Collector {
    fn promise(&self) -> Promise {
        Promise::AtLeastOnce
    }

    fn port(&self) -> u16 {
        self.server.port()
    }

    fn sink(&self, port: u16, _run: &str, _dir: &Path) -> String {
        format!("type = \"otlp\"\nurl = \"http://127.0.0.1:{port}\"\nprotocol = {:?}\n", self.protocol)
    }

    async fn prepare(&self, _daemon: &Daemon, run: &str) {
        let size = fs::metadata(self.file()).map_or(0, |file| file.len());
        self.began.lock().unwrap().insert(run.to_owned(), usize::try_from(size).unwrap());
    }

    fn kill(&mut self) {
        self.server.kill();
    }

    async fn restart(&mut self) {
        self.server.restart().await;
    }

    async fn consumed(&self, run: &str) -> Result<Vec<String>, String> {
        let records = self.records(self.began.lock().unwrap()[run])?;
        Ok(records.iter().map(|record| record["body"]["stringValue"].as_str().unwrap().to_owned()).collect())
    }
}

#[tokio::test]
async fn otlp_undisturbed() {
    for protocol in ["grpc", "http"] {
        let mut collector = Collector::start(protocol).await;
        trial::undisturbed(&mut collector).await;
        let record = &collector.records(0).unwrap()[0];
        let line: Value = serde_json::from_str(record["body"]["stringValue"].as_str().unwrap()).unwrap();
        let attributes = record["attributes"].as_array().unwrap();
        let of = |key: &str| attributes.iter().find(|one| one["key"] == key).unwrap()["value"].clone();
        assert_eq!(of("decklog.id")["stringValue"], line["id"]);
        assert_eq!(of("decklog.seq")["intValue"], line["seq"].to_string());
        assert_eq!(of("k8s.object.name")["stringValue"], line["name"]);
        assert_eq!(record["severityText"], "INFO");
    }
}

#[tokio::test]
async fn otlp_server_killed() {
    for protocol in ["grpc", "http"] {
        trial::server_killed(&mut Collector::start(protocol).await).await;
    }
}

#[tokio::test]
async fn otlp_answers_cut() {
    for protocol in ["grpc", "http"] {
        trial::answers_cut(&mut Collector::start(protocol).await).await;
    }
}

#[tokio::test]
async fn otlp_daemon_killed() {
    for protocol in ["grpc", "http"] {
        trial::daemon_killed(&mut Collector::start(protocol).await).await;
    }
}

#[tokio::test]
async fn otlp_killed_at_every_exchange_over_grpc() {
    trial::killed_at_every_exchange(&mut Collector::start("grpc").await).await;
}

#[tokio::test]
async fn otlp_killed_at_every_exchange_over_http() {
    trial::killed_at_every_exchange(&mut Collector::start("http").await).await;
}

/// As the configuration has it, with further keys.
fn open(protocol: &str, url: &str, keys: &Value) -> Box<dyn Sink> {
    let mut kind = json!({ "type": "otlp", "url": url, "protocol": protocol, "timeout": "30s" });
    kind.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    serde_json::from_value::<SinkKind>(kind).unwrap().open().unwrap()
}

fn item(seq: u64, bytes: usize) -> Item {
    let (cluster, object) = (Cluster { name: "n".into(), uid: "u".into() }, json!({ "a": "x".repeat(bytes) }));
    let line = render(&EntryBuilder {
        seq: Seq(seq),
        epoch: "e",
        time: "2026-11-21T10:15:00.000000Z",
        happened: None,
        happened_between: None,
        op: EntryType::Added,
        evidence: None,
        cluster: &cluster,
        api_version: "v1",
        kind: "ConfigMap",
        resource: "configmaps",
        namespace: "shop",
        name: "a",
        uid: "u",
        version: &seq.to_string(),
        managers: None,
        change: None,
        object: Some(object.to_string().as_bytes()),
        gap: None,
        actor: None,
        redacted: &[],
    })
    .line;
    Item::new(Seq(seq), EntryType::Added, line.into())
}

/// An entry that is larger than the server takes is refused, and those around it are taken.
#[tokio::test]
async fn otlp_and_an_entry_that_is_too_large() {
    for (protocol, settings, says) in [
        ("grpc", "        max_recv_msg_size_mib: 1\n", "RESOURCE_EXHAUSTED"),
        ("http", "        max_request_body_size: 1048576\n", "400 Bad Request"),
    ] {
        let collector = Collector::with(protocol, tempfile::tempdir().unwrap(), settings).await;
        let mut sink = open(protocol, &format!("http://127.0.0.1:{}", collector.port()), &json!({}));
        let batch = [item(1, 10), item(2, 400_000), item(3, 2_000_000), item(4, 400_000), item(5, 10)];
        let Failure { taken, error } = sink.deliver(&batch).await.unwrap_err();
        assert!(taken == 2 && matches!(&error, SinkError::Refused { text } if text.contains(says)), "{taken} {error}");
        sink.deliver(&batch[3..]).await.unwrap();
        let came = collector.records(0).unwrap();
        let right = [0, 1, 3, 4].map(|at| String::from_utf8(batch[at].line.to_vec()).unwrap());
        let came: Vec<&str> = came.iter().map(|record| record["body"]["stringValue"].as_str().unwrap()).collect();
        assert!(came == right, "each once, byte for byte");
    }
}

/// Runs openssl in a directory.
fn openssl(dir: &Path, arguments: &str) {
    let mut command = Command::new("openssl");
    let ran = command.args(arguments.split(' ')).current_dir(dir).output().unwrap();
    assert!(ran.status.success(), "openssl {arguments}: {}", String::from_utf8_lossy(&ran.stderr));
}

/// An authority, and what it signed: a server and a client that are right, and a server whose time is over.
fn certificates(dir: &Path) {
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    for authority in ["ca", "other"] {
        openssl(dir, &format!("req -x509 {key} -subj /CN={authority} -keyout {authority}.key -out {authority}.crt"));
    }
    let settings = "[ca]\ndefault_ca = x\n[x]\ndatabase = index\nserial = serial\nnew_certs_dir = .\ndefault_md = sha256\n\
        policy = any\n[any]\ncommonName = supplied\n";
    fs::write(dir.join("ca.cnf"), settings).unwrap();
    fs::write(dir.join("index"), "").unwrap();
    fs::write(dir.join("serial"), "01\n").unwrap();
    fs::write(dir.join("names"), "subjectAltName=IP:127.0.0.1\n").unwrap();
    for (name, end) in [("server", "20991231000000Z"), ("client", "20991231000000Z"), ("expired", "20200201000000Z")] {
        openssl(dir, &format!("req {key} -subj /CN={name} -keyout {name}.key -out {name}.csr"));
        openssl(
            dir,
            &format!(
                "ca -batch -notext -config ca.cnf -cert ca.crt -keyfile ca.key -startdate 20200101000000Z -enddate {end} \
                 -extfile names -in {name}.csr -out {name}.crt"
            ),
        );
    }
}

#[tokio::test]
async fn otlp_over_tls_with_certificates_that_are_right_and_wrong() {
    let certs = tempfile::tempdir().unwrap();
    certificates(certs.path());
    let path = |name: &str| certs.path().join(name);
    for protocol in ["grpc", "http"] {
        let mut ports = Vec::new();
        let mut running = Vec::new();
        for server in ["server", "expired"] {
            let (cert, key, ca) = (path(&format!("{server}.crt")), path(&format!("{server}.key")), path("ca.crt"));
            let settings = format!("        tls: {{cert_file: {cert:?}, key_file: {key:?}, client_ca_file: {ca:?}}}\n");
            let collector = Collector::with(protocol, tempfile::tempdir().unwrap(), &settings).await;
            ports.push(collector.port());
            running.push(collector);
        }
        let own =
            |ca: &str| json!({ "ca_file": path(ca), "cert_file": path("client.crt"), "key_file": path("client.key") });
        let [right, expired] = ports[..] else { panic!("{ports:?}") };
        for (port, keys, says) in [
            (expired, own("ca.crt"), "; renew it, or check this machine's clock"),
            (right, own("other.crt"), "; name the authority that signed the server's certificate in `ca_file`"),
            (right, json!({ "ca_file": path("ca.crt") }), "no answer from"),
            (right, json!({ "ca_file": path("absent") }), "cannot read"),
            (free_port(), own("ca.crt"), "cannot connect to"),
        ] {
            let error = open(protocol, &format!("https://127.0.0.1:{port}"), &keys).check().await.unwrap_err();
            let text = error.to_string();
            let fits = text.contains(says) || (says == "no answer from" && text.contains("certificate required"));
            assert!(matches!(error, SinkError::Retry { .. }) && fits, "{protocol} {says}: {text}");
        }
        let mut sink = open(protocol, &format!("https://127.0.0.1:{right}"), &own("ca.crt"));
        sink.check().await.unwrap();
        sink.deliver(&[item(1, 10)]).await.unwrap();
        let came = until("it to come", async || running[0].records(0)).await;
        assert_eq!(came.len(), 1, "the check sent nothing");
    }
}

/// A name that nobody has, and a server that takes no logs of OpenTelemetry.
#[tokio::test]
async fn otlp_where_nobody_takes_it() {
    let collector = Collector::start("http").await;
    let url = format!("http://127.0.0.1:{}/elsewhere", collector.port());
    let error = open("http", &url, &json!({})).check().await.unwrap_err();
    assert!(
        matches!(&error, SinkError::Halt { text } if text.contains("404 Not Found") && text.contains("set `url`")),
        "{error}"
    );
    for protocol in ["grpc", "http"] {
        let error = open(protocol, "http://nobody.invalid:4317", &json!({})).check().await.unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with("cannot connect to http://nobody.invalid:4317/: failed to lookup"), "{text}");
    }
    // A server of HTTP/1.1 alone.
    let error = open("grpc", &format!("http://127.0.0.1:{}", collector.port()), &json!({})).check().await.unwrap_err();
    assert!(error.to_string().ends_with("; does that port take `protocol` = \"grpc\"?"), "{error}");
    // And TLS where none is spoken.
    let error = open("http", &format!("https://127.0.0.1:{}", collector.port()), &json!({})).check().await.unwrap_err();
    assert!(error.to_string().ends_with(": that port does not speak TLS"), "{error}");
}
