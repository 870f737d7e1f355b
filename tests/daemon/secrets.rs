//! Invariant 10: no byte of a redacted value, and of no credential, is anywhere but where it came from.

mod planted;
mod rules;

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use decklog::journal::Codec;
use decklog::sim::faults::{Act, Fault, On, Signal};
use decklog::sim::objects;
use memchr::memmem;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::encodings::{Form, find, needles};
use crate::support::{Daemon, cluster, decklog, free_address, http_get, until};
use planted::{CANARIES, plant};

/// A client certificate of Ed25519 and its key, which is the canary, both in PEM.
fn client_identity(dir: &Path) -> (String, String) {
    const PKCS8: [u8; 16] = [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];
    let coded = BASE64_STANDARD.encode([&PKCS8[..], CANARIES[26].as_bytes()].concat());
    let key = format!("-----BEGIN PRIVATE KEY-----\n{coded}\n-----END PRIVATE KEY-----\n");
    fs::write(dir.join("client.key"), &key).unwrap();
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-x509", "-key", "client.key", "-subj", "/CN=decklog", "-days", "1"]).current_dir(dir);
    let output = openssl.output().expect("openssl; tests/run installs it");
    assert!(output.status.success(), "openssl: {}", String::from_utf8_lossy(&output.stderr));
    (String::from_utf8(output.stdout).unwrap(), key)
}

/// A kubeconfig whose user has these members.
fn kubeconfig(server: &str, user: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters:\n- name: c\n  cluster: {{server: {server:?}}}\n\
         contexts:\n- name: c\n  context: {{cluster: c, user: u}}\nusers:\n- name: u\n  user: {{{user}}}\n"
    )
}

fn coded(text: &str) -> String {
    objects::base64(text)
}

/// Searches bytes, and what is compressed in them.
struct Search {
    needles: Vec<(String, Vec<Form>)>,
    looked_at: usize,
}

impl Search {
    fn new() -> Self {
        Self { needles: needles(CANARIES), looked_at: 0 }
    }

    #[track_caller]
    fn has_none(&mut self, bytes: &[u8], place: &str) {
        self.looked_at += bytes.len();
        if let Some(found) = find(bytes, &self.needles) {
            panic!("{place} has {found}");
        }
        // Frames of zstd, also those that lie on pages which nothing points to any more.
        let magic = [0x28, 0xb5, 0x2f, 0xfd];
        for at in memmem::find_iter(bytes, &magic) {
            let mut inside = Vec::new();
            // What is torn gives what there is of it.
            if let Ok(decoder) = zstd::stream::read::Decoder::new(&bytes[at..]) {
                drop(decoder.single_frame().take(8 << 20).read_to_end(&mut inside));
            }
            self.looked_at += inside.len();
            if let Some(found) = find(&inside, &self.needles) {
                panic!("{place} has {found}, compressed at {at}");
            }
        }
    }

    /// Every file of a directory: the database in use, its write-ahead log and index, freed pages, keys.
    fn none_below(&mut self, dir: &Path) -> usize {
        let mut files = 0;
        for file in fs::read_dir(dir).unwrap() {
            let path = file.unwrap().path();
            if path.is_dir() {
                files += self.none_below(&path);
            } else {
                self.has_none(&fs::read(&path).unwrap_or_default(), &path.display().to_string());
                files += 1;
            }
        }
        files
    }

    /// Every column of every row, as SQLite reads it, with what is compressed in it.
    fn none_in_rows(&mut self, state: &Path) {
        let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
        let conn = rusqlite::Connection::open_with_flags(state.join("journal.db"), flags).unwrap();
        let mut tables = conn.prepare("SELECT name FROM sqlite_schema WHERE type = 'table'").unwrap();
        let tables: Vec<String> = tables.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
        let mut rows_seen = 0;
        let mut codec = Codec::default();
        for table in tables {
            let mut select = conn.prepare(&format!("SELECT * FROM {table}")).unwrap();
            let columns = select.column_count();
            let mut rows = select.query([]).unwrap();
            while let Some(row) = rows.next().unwrap() {
                rows_seen += 1;
                for column in 0..columns {
                    let value = row.get_ref(column).unwrap();
                    let Ok(Some(bytes)) = value.as_bytes_or_null() else { continue };
                    // A difference holds what it inserts as it is, or squeezed after its first byte.
                    self.has_none(bytes, &table);
                    if let Ok(whole) = codec.decompress(None, bytes) {
                        self.has_none(&whole, &table);
                    }
                }
            }
        }
        assert!(rows_seen > 20, "{rows_seen} rows are not what there was");
    }
}

const WATCHED: &str = "resources = [\"secrets\", \"configmaps\", \"pods\", \"bundles.example.com\"]";

const RULES: &str = "rules = [\n\
  { resources = [\"configmaps\"], paths = [\"/data/*password*\"], mode = \"drop\" },\n\
  { resources = [\"configmaps\"], paths = [\"/data/*key*\"], mode = \"mask\" },\n\
  { resources = [\"configmaps\"], paths = [\"/data/digested\"], mode = \"hmac\" },\n\
  { resources = [\"bundles\"], paths = [\"/spec/tokens/*\"], mode = \"drop\" },\n\
  { resources = [\"bundles\"], paths = [\"/spec/keys/*/name\"], mode = \"hmac\" },\n]\n";

/// Everything speaks as loud as it can, the libraries included.
const LOUD: &str = "trace,hyper=trace,hyper_util=trace,h2=trace,rustls=trace,tower_http=trace,reqwest=trace,\
                    kube_client=trace,kube_runtime=trace,cel=trace,antlr4rust=trace,mio=trace";

/// The headers that came, the bodies, and the lines that were asked with.
type Came = (Vec<HeaderMap>, Vec<u8>, String);

/// A collector of CloudEvents that keeps the credentials it gets, and sends what it gets back.
#[derive(Clone, Default)]
struct Echo(Arc<Mutex<Came>>);

async fn take(State(echo): State<Echo>, at: Uri, headers: HeaderMap, body: axum::body::Bytes) -> (StatusCode, String) {
    let mut came = echo.0.lock().unwrap();
    // Now and then it refuses, with what it was sent in its text: all of it, or the line that it was asked with.
    let refused = came.0.len() % 3 == 1;
    let all = format!("{headers:?} {}", String::from_utf8_lossy(&body));
    let text = if came.0.len() % 2 == 0 { all } else { format!("cannot POST {at}") };
    came.2.push_str(&at.to_string());
    came.0.push(headers);
    came.1.extend_from_slice(&body);
    (if refused { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK }, text)
}

/// No byte of a secret is in the database, its WAL, freed pages, files, what HTTP sinks send, logs at the loudest
/// level, metrics, status, error texts, or what the commands print.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_byte_of_a_secret_is_anywhere() {
    let sim = cluster().await;
    plant(&sim);
    sim.admit(CANARIES[20]);
    let (at, page) = (free_address(), free_address());
    let mut daemon = Daemon::new(&sim, &["pods"]);
    let given = daemon.path("given");
    fs::create_dir(&given).unwrap();
    let (certificate, key) = client_identity(&given);
    let user = format!(
        "token: {}, client-certificate-data: {}, client-key-data: {}",
        CANARIES[20],
        coded(&certificate),
        coded(&key)
    );
    fs::write(daemon.path("kubeconfig"), kubeconfig(&sim.url(), &user)).unwrap();
    let echo = Echo::default();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let collector = listener.local_addr().unwrap();
    let router = Router::new().fallback(take).with_state(echo.clone());
    let mut serving = JoinSet::new();
    serving.spawn(async move { axum::serve(listener, router).await.unwrap() });
    for (name, text) in [
        ("bearer", CANARIES[21].to_owned()),
        ("headers", format!("X-Api-Key: {}\n", CANARIES[22])),
        ("hmac", format!("{} and more", CANARIES[25])),
    ] {
        fs::write(given.join(name), text).unwrap();
    }
    let rest = format!(
        "[redact]\nkey_file = {:?}\n{RULES}\n[[sink]]\nname = \"console\"\ntype = \"stdout\"\n\n\
         [[sink]]\nname = \"siem\"\ntype = \"http\"\nurl = \"http://user:{}@{collector}/hook/{}?token={}\"\nbearer_file = {:?}\nheaders_file = {:?}\n\
         headers = {{ X-Inline = \"{}\" }}\n\n[http]\nlisten = {at:?}\n\n[ui]\nlisten = {page:?}\n",
        given.join("hmac"),
        CANARIES[24],
        CANARIES[27],
        CANARIES[28],
        given.join("bearer"),
        given.join("headers"),
        CANARIES[23],
    );
    let loud = daemon.config(WATCHED, &rest).replace("level = \"debug\"", &format!("level = {LOUD:?}"));
    let url_password = daemon.command(&["check"]).await;
    assert_eq!(url_password.code, 0, "{url_password:?}");
    daemon.configure(&loud);
    // A URL with a password in it is refused or taken; in both cases it is not repeated.
    let checked = daemon.command(&["check"]).await;
    let mut search = Search::new();
    search.has_none(format!("{checked:?}").as_bytes(), "check");
    let loud = if checked.code == 78 { loud.replace(&format!("user:{}@", CANARIES[24]), "") } else { loud };
    daemon.configure(&loud);
    daemon.start();
    daemon.ready().await;
    // No core file, whatever the service manager allows.
    let limits = fs::read_to_string(format!("/proc/{}/limits", daemon.pid())).unwrap();
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    assert_eq!(core.split_whitespace().skip(4).take(2).collect::<Vec<_>>(), ["0", "0"], "{core}");
    // Changes, deletions, lines that cannot be read, a gap, a kill: every way into the journal and into an error.
    let hostile = format!("{{\"type\":\"ADDED\",\"object\":{{\"kind\":\"Secret\",\"data\":{:?}}}}}\n", CANARIES[0]);
    for act in [
        Act::undecodable(0),
        Act::cut_in_event(0),
        Act::insert(0, format!("{{{:?}\n", CANARIES[0])),
        Act::insert(0, hostile),
        Act::insert(0, format!("{{\"type\":{:?},\"object\":{{}}}}\n", CANARIES[0])),
    ] {
        sim.fault(Fault::new(On::watch("secrets"), act));
    }
    sim.signal("secrets", &Signal::End);
    let secret = json!({"data": {"password": coded(CANARIES[5])}});
    sim.patch("secrets", "default", "planted", &secret).unwrap();
    sim.patch("configmaps", "default", "ruled", &json!({"data": {"api-key": CANARIES[5], "digested": "other"}}))
        .unwrap();
    daemon.knows(&sim, "secrets", "default", "planted").await;
    daemon.knows(&sim, "configmaps", "default", "ruled").await;
    daemon.kill().await;
    for canary in [CANARIES[1], CANARIES[0]] {
        sim.patch("secrets", "default", "planted", &json!({"data": {"password": coded(canary)}})).unwrap();
    }
    sim.delete("secrets", "default", "token").unwrap();
    sim.compact_all();
    daemon.start();
    daemon.ready().await;
    daemon.tells("the gap", |entry| entry.gap.is_some()).await;
    sim.delete("secrets", "default", "planted").unwrap();
    daemon.tells("the deletion", |entry| entry.name == "planted" && entry.kind == "DELETED").await;
    until("everything on standard output and at the collector", async || {
        daemon.must_run();
        let wanted = daemon.lines();
        let have = daemon.printed().lines().count();
        let last = format!("\"seq\":{wanted},");
        let sent = memmem::find(&echo.0.lock().unwrap().1, last.as_bytes()).is_some();
        if have >= wanted && sent { Ok(()) } else { Err(format!("{have} of {wanted}, the last sent: {sent}")) }
    })
    .await;
    for path in ["/metrics", "/status", "/readyz", "/livez", "/nothing"] {
        let got = http_get(&at, path).unwrap();
        search.has_none(format!("{}{}", got.head, got.body).as_bytes(), path);
    }
    let pages: Value =
        serde_json::from_str(&http_get(&page, "/api/v1/entries?quiet=1&limit=1000").unwrap().body).unwrap();
    let seqs: Vec<u64> =
        pages["entries"].as_array().unwrap().iter().map(|entry| entry["seq"].as_u64().unwrap()).collect();
    assert!(seqs.len() > 15, "{} entries are not what there was", seqs.len());
    let mut questions: Vec<String> = [
        "overview",
        "histogram",
        "lanes",
        "lanes?quiet=1",
        "entries?quiet=1&limit=1000",
        "state",
        "changes?from=1",
        "churn",
    ]
    .map(str::to_owned)
    .into();
    for seq in &seqs {
        questions.push(format!("entry?seq={seq}"));
        questions.push(format!("diff?from={}&to={seq}", seqs[seqs.len() - 1]));
        let entry = pages["entries"].as_array().unwrap().iter().find(|entry| entry["seq"] == *seq).unwrap();
        let text = |key: &str| entry[key].as_str().unwrap().to_owned();
        let (resource, namespace, name) = (text("resource"), text("namespace"), text("name"));
        questions.push(format!("object?resource={resource}&namespace={namespace}&name={name}&at={seq}"));
        questions.push(format!("object?resource={resource}&namespace={namespace}&name={name}"));
    }
    for question in questions {
        let got = http_get(&page, &format!("/api/v1/{question}")).unwrap();
        search.has_none(format!("{}{}", got.head, got.body).as_bytes(), &question);
    }
    // Of a running daemon, and of one that has tidied up; what it was given is no part of the product.
    assert!(search.none_below(&daemon.state()) >= 2);
    search.none_in_rows(&daemon.state());
    daemon.stop().await;
    assert!(search.none_below(&daemon.state()) >= 2);
    search.none_in_rows(&daemon.state());
    for name in ["log.jsonl", "stderr", "stdout"] {
        let bytes = fs::read(daemon.path(name)).unwrap();
        assert!(bytes.len() > 500, "{name} has nothing to look at");
        search.has_none(&bytes, name);
    }
    assert!(daemon.said().contains("TRACE"), "the log was not at its loudest");
    let came = echo.0.lock().unwrap().clone();
    search.has_none(&came.1, "what the HTTP sink sent");
    let credentials = format!("{:?}", came.0);
    assert!(came.2.contains(CANARIES[27]) && came.2.contains(CANARIES[28]), "they were not asked with");
    for index in [21, 22, 23] {
        assert!(credentials.contains(CANARIES[index]), "{} was not used", CANARIES[index]);
    }
    for command in [
        &["get", "configmap/ruled"][..],
        &["get", "configmap/ruled", "-o", "json"],
        &["get", "secret/helm"],
        &["get", "secret/planted", "--clean"],
        &["log", "-p", "secret/planted"],
        &["log", "-p", "--tree", "configmap/ruled"],
        &["blame", "secret/planted"],
        &["why", "secret/planted"],
        &["why", "secret/planted", "-o", "json"],
        &["blame", "secret/planted", "-o", "json"],
        &["diff", "secret/planted", "--from", "1"],
        &["diff", "--from", "1", "-o", "json"],
        &["tail", "--last", "100"],
        &["tail", "-o", "yaml", "--last", "100"],
        &["tail", "--where", "object.data.password == 1", "--last", "100"],
        &["tail", "-o", "json", "--last", "100"],
        &["status"],
        &["status", "-o", "json"],
        &["churn"],
        &["churn", "-o", "json"],
        &["timeline", "--html", "-"],
        &["check"],
        &["verify"],
        &["rbac"],
        &["replay", "--sink", "file", "--from", "1", "--to", "5"],
    ] {
        search.has_none(format!("{:?}", daemon.command(command).await).as_bytes(), &command.join(" "));
    }
    assert!(search.looked_at > 500_000, "{} bytes are not everything", search.looked_at);
    // Hidden, and yet told: what is redacted is named, and a change of it is one.
    let log = fs::read_to_string(daemon.log()).unwrap();
    for harmless in ["harmlessNAME", "harmlessMANAGER"] {
        assert!(log.contains(harmless), "{harmless} is no secret");
    }
    assert!(log.contains("harmlessVALUE") && !log.contains("db-password\":"), "only what the rules name is hidden");
    let changed = daemon.entries().iter().find(|entry| entry.name == "planted" && entry.kind == "MODIFIED").unwrap();
    assert_eq!(changed.change.as_ref().unwrap().areas, ["data"], "the change itself is visible");
    assert!(changed.redacted.iter().any(|pointer| pointer == "/data/password"), "{:?}", changed.redacted);
    daemon.consistent().await;
}

/// A configuration that is wrong, and a log of its own that is asked for: what is meant to be secret is not quoted,
/// also where it comes from the environment. (Its own environment is the user's: /proc shows it to that user and root,
/// which is why `*_file` keys and credentials are there.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_quote_no_credential() {
    let dir = tempfile::tempdir().unwrap();
    let mut search = Search::new();
    let write = |text: &str| fs::write(dir.path().join("config.toml"), text).unwrap();
    let canary = CANARIES[23];
    for text in [
        format!("[[sink]]\nname = \"a\"\ntype = \"http\"\nurl = \"ftp://u:{canary}@x\"\n"),
        format!("[[sink]]\nname = \"a\"\ntype = \"http\"\nurl = [\"http://u:{canary}@x\"]\n"),
        format!("[[sink]]\nname = \"a\"\ntype = \"http\"\nurl = \"http://x\"\nheaders = \"{canary}\"\n"),
        format!("[[sink]]\nname = \"a\"\ntype = \"http\"\nurl = \"http://x\"\nheaders = {{ A = [\"{canary}\"] }}\n"),
        format!("[[sink]]\nname = \"a\"\ntype = \"http\"\nurl = \"http://x\"\nheaders = {{ A = \"{canary}\\n\" }}\n"),
    ] {
        write(&format!("[[watch]]\nresources = [\"pods\"]\n{text}"));
        let answer = decklog(dir.path(), &["check"], &[]).await;
        assert_eq!(answer.code, 78, "{answer:?}");
        search.has_none(format!("{answer:?}").as_bytes(), &text.replace(canary, "…"));
    }
    write("[[watch]]\nresources = [\"pods\"]\n[[sink]]\nname = \"a\"\ntype = \"http\"\nurl = \"http://x\"\n");
    for (name, value) in [
        ("DECKLOG_SINK_0_URL", format!("ftp://u:{canary}@x")),
        ("DECKLOG_SINK_0_HEADERS", canary.to_owned()),
        ("DECKLOG_SINK_0_HEADERS_AUTHORIZATION", format!("{canary}\n")),
    ] {
        let answer = decklog(dir.path(), &["check"], &[(name, &value)]).await;
        assert_ne!(answer.code, 0, "{answer:?}");
        search.has_none(format!("{answer:?}").as_bytes(), name);
    }
}

/// A kubeconfig whose credentials are wrong in every way: what is wrong is told, and nothing of them is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn credentials_that_cannot_be_used_are_not_quoted() {
    let sim = cluster().await;
    let mut daemon = Daemon::new(&sim, &["configmaps"]);
    let loud =
        daemon.config("resources = [\"configmaps\"]", "").replace("level = \"debug\"", &format!("level = {LOUD:?}"));
    daemon.configure(&loud);
    let given = daemon.path("given");
    fs::create_dir(&given).unwrap();
    let (certificate, key) = client_identity(&given);
    let data = |certificate: &str, key: &str| {
        format!("client-certificate-data: {}, client-key-data: {}", coded(certificate), coded(key))
    };
    let pem = |label: &str, text: &str| format!("-----BEGIN {label}-----\n{text}\n-----END {label}-----\n");
    let canary = CANARIES[26];
    let file = given.join("odd.key");
    fs::write(&file, pem("PRIVATE KEY", canary)).unwrap();
    let of_files = format!("client-certificate: {:?}, client-key: {file:?}", given.join("client.pem"));
    fs::write(given.join("client.pem"), &certificate).unwrap();
    let mut search = Search::new();
    for (what, user) in [
        ("no base64", format!("client-certificate-data: {}, client-key-data: \"{canary}!\"", coded(&certificate))),
        ("no PEM", data(&certificate, canary)),
        ("no key", data(&certificate, &pem("PRIVATE KEY", &coded(canary)))),
        ("no base64 in PEM", data(&certificate, &pem("PRIVATE KEY", &format!("{canary}!")))),
        ("of another sort", data(&certificate, &key.replace("PRIVATE", "RSA PRIVATE"))),
        ("no certificate", data("", &key)),
        ("the key as certificate", data(&key, &key)),
        ("in a file", of_files),
        ("another type", format!("client-certificate-data: {}, client-key-data: [{canary}]", coded(&certificate))),
        ("a token that no header takes", format!("token: \"{canary}\\n\\0\"")),
        ("basic auth", format!("username: u, password: {canary}")),
    ] {
        fs::write(daemon.path("kubeconfig"), kubeconfig(&sim.url(), &user)).unwrap();
        let checked = daemon.command(&["check"]).await;
        search.has_none(format!("{checked:?}").as_bytes(), &format!("check, {what}"));
        daemon.start();
        let said = daemon.said().len();
        let ended = until("it to end, or to try", async || {
            let tries = daemon.said()[said..].contains("API server") || daemon.told().contains("READY=1");
            let ended = daemon.ended().is_some();
            if tries || ended { Ok(ended) } else { Err(daemon.last_words()) }
        })
        .await;
        if !ended {
            daemon.kill().await;
        }
        search.has_none(daemon.said().as_bytes(), &format!("the log, {what}"));
    }
    assert!(daemon.said().contains("TRACE"), "the log was not at its loudest");
}
