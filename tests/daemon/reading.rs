//! `--server`: the commands that read the log, from another machine. What they print is the same, only those who may read
//! do, nothing else is answered, and nothing of it holds the daemon up.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Stdio;

use decklog::sim::{Sim, objects};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::support::{Answer, Daemon, cluster, decklog, free_address, http_get, scope, until};

const WATCH: &str = "resources = [\"configmaps\", \"deployments.apps\"]";

/// Number of questions that are answered at a time.
const MOST: usize = 8;

/// A daemon with a log that says something.
async fn daemon(sim: &Sim, http: &str) -> Daemon {
    let started = sim.revision();
    let mut daemon = Daemon::with(sim, WATCH, &format!("[http]\n{http}\n"));
    daemon.start();
    daemon.ready().await;
    sim.create("deployments.apps", objects::deployment("default", "web", 1, "registry.example/web:1")).unwrap();
    for value in ["1", "2", "3"] {
        let name = if value == "3" { "other" } else { "settings" };
        if value == "2" {
            sim.patch("configmaps", "default", name, &json!({"data": {"value": "2"}})).unwrap();
        } else {
            sim.create("configmaps", objects::config_map("default", name, value)).unwrap();
        }
    }
    sim.delete("configmaps", "default", "other").unwrap();
    daemon.catch_up(sim, &scope(sim, started, &["configmaps", "deployments.apps"])).await;
    // It writes that down at its next look around.
    until("the status to know that it is ready", async || {
        let status = daemon.status().await;
        if status["daemon"]["ready"] == true { Ok(()) } else { Err(status["daemon"].to_string()) }
    })
    .await;
    daemon
}

fn unix(daemon: &Daemon) -> String {
    format!("unix:{}", daemon.path("http.sock").display())
}

async fn from_elsewhere(at: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Answer {
    // Nothing of the daemon's is there.
    let elsewhere = tempfile::tempdir().unwrap();
    decklog(elsewhere.path(), &[arguments, &["--server", at]].concat(), environment).await
}

/// Ages and sizes go on while one looks.
fn still(text: &str) -> String {
    let mut still = String::new();
    for c in text.chars() {
        match (c.is_ascii_digit(), still.ends_with('#')) {
            (true, true) => {}
            (true, false) => still.push('#'),
            (false, _) => still.push(c),
        }
    }
    still.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_command_prints_the_same_from_another_machine() {
    let sim = cluster().await;
    let mut daemon = daemon(&sim, "listen = \"unix:http.sock\"\nreading = true").await;
    let at = unix(&daemon);
    let mut wrong = Vec::new();
    for line in [
        "tail",
        "tail -o json",
        "tail --color always --utc",
        "tail cm/settings -n default -r",
        "tail --since 00:00:01 --where kind=='ConfigMap'",
        "tail --where kind=='Confgmap'",
        "log cm/settings",
        "log cm/settings -p -o yaml",
        "log cm/nothing",
        "log -n default --last 3",
        "log --last 3 -o json",
        "show 1",
        "show 99",
        "get cm/settings",
        "get cm/other",
        "get cm/settings --at 2 -o json",
        "get cm -o name",
        "get pods",
        "diff 1..3",
        "diff --from 2 --to 4 -o json",
        "blame deploy/web",
        "blame deploy/web .spec",
        "why deploy/web",
        "why deploy/web .spec",
        "churn",
        "coverage --until 2020-01-01T00:00:00Z",
        "coverage -o json --until 00:00:01",
        "status",
        "status --check",
        "verify",
        "tail --last x",
        "tail -n",
    ] {
        let arguments: Vec<&str> = line.split(' ').collect();
        let zone = [("TZ", "Asia/Kolkata")];
        let config = daemon.path("config.toml");
        let local = [&arguments[..], &["-c", config.to_str().unwrap()]].concat();
        let here = decklog(&daemon.path(""), &local, &zone).await;
        let there = from_elsewhere(&at, &arguments, &zone).await;
        let all = |answer: &Answer| format!("{}\n{}\n{}", answer.code, answer.out, answer.err);
        let (here, there) = (all(&here), all(&there));
        let same = match arguments[0] {
            "status" | "churn" | "verify" => still(&here) == still(&there),
            _ => here == there,
        };
        if !same {
            wrong.push(format!("{line}\n--- here:\n{here}\n--- there:\n{there}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let named = from_elsewhere(&at, &["tail"], &[("TZ", "Asia/Kolkata")]).await.done();
    assert!(named.contains("+05:30"), "in the zone of whoever asks: {named}");
    // Where one reads need not be said each time, and what is named here counts more.
    let nothing = tempfile::tempdir().unwrap();
    let environment = [("DECKLOG_SERVER", at.as_str())];
    assert_eq!(decklog(nothing.path(), &["show", "1", "-o", "json"], &environment).await.done(), {
        daemon.command(&["show", "1", "-o", "json"]).await.done()
    });
    decklog(nothing.path(), &["show", "1", "--state", "nowhere"], &environment).await.refused(78, &["nowhere"]);
    let words = decklog(nothing.path(), &["__complete", "log", "cm", "s"], &environment).await.done();
    assert_eq!(words, "settings\n", "what the journal has is completed");
    daemon.stop().await;
    let gone = from_elsewhere(&at, &["tail"], &[]).await;
    gone.refused(74, &["cannot connect to", "http.sock"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_does_not_go_with_a_server_is_refused() {
    let at = "https://decklog.example";
    for (line, says) in [
        ("run", "--server is for commands that read the log: tail, log"),
        ("check", "--server is for commands that read the log"),
        ("verify copy.jsonl", "verify without a file"),
        ("tail --state x", "leave one of them out"),
        ("tail -c x", "leave one of them out"),
    ] {
        from_elsewhere(at, &line.split(' ').collect::<Vec<_>>(), &[]).await.refused(64, &[says]);
    }
    from_elsewhere("decklog.example:9465", &["tail"], &[]).await.refused(64, &["https://HOST:PORT"]);
    from_elsewhere("http://decklog.example", &["tail"], &[]).await.refused(64, &["write https://"]);
    let absent = [("DECKLOG_TOKEN_FILE", "/nowhere/token")];
    from_elsewhere(at, &["tail"], &absent).await.refused(78, &["cannot use the token in /nowhere/token"]);
}

fn openssl(dir: &Path, arguments: &str) {
    crate::bad_input::openssl(dir, arguments);
}

/// An authority and what it has signed.
fn authority(dir: &Path, name: &str, signs: &[&str]) {
    let request = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2";
    openssl(dir, &format!("{request} -keyout {name}.key -out {name}.pem -subj /CN={name}"));
    for signed in signs {
        let by = format!("-CA {name}.pem -CAkey {name}.key -addext subjectAltName=IP:127.0.0.1");
        let what = "-addext basicConstraints=critical,CA:FALSE";
        openssl(dir, &format!("{request} {by} {what} -keyout {signed}.key -out {signed}.pem -subj /CN={signed}"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_those_read_who_may() {
    let sim = cluster().await;
    let pki = tempfile::tempdir().unwrap();
    let path = |name: &str| pki.path().join(name).display().to_string();
    authority(pki.path(), "ca", &["server", "later"]);
    authority(pki.path(), "readers", &["alice"]);
    authority(pki.path(), "strangers", &["mallory"]);
    fs::write(path("tokens"), "first-token-of-all-of-them\nsecond-token-of-all-of-them\n").unwrap();
    for (name, token) in
        [("good", "second-token-of-all-of-them\n"), ("bad", "another-token-of-somebody"), ("lines", "a\nb")]
    {
        fs::write(path(name), token).unwrap();
    }
    for name in ["pem", "key"] {
        fs::copy(path(&format!("server.{name}")), path(&format!("shown.{name}"))).unwrap();
    }
    let address = free_address();
    let http = format!(
        "listen = {address:?}\nreading = true\ntoken_file = {:?}\ntls_cert_file = {:?}\ntls_key_file = {:?}\nclient_ca_file = {:?}",
        path("tokens"),
        path("shown.pem"),
        path("shown.key"),
        path("readers.pem")
    );
    let mut daemon = daemon(&sim, &http).await;
    let at = format!("https://{address}");
    let (ca, tail) = (path("ca.pem"), ["show", "1", "-o", "json"]);
    let with = async |more: &[(&str, &str)]| {
        let flags: Vec<String> = more.iter().flat_map(|(flag, name)| [format!("--{flag}"), path(name)]).collect();
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        from_elsewhere(&at, &[&tail[..], &["--ca-file", &ca], &flags].concat(), &[]).await
    };
    let expected = daemon.command(&tail).await.done();
    assert_eq!(with(&[("token-file", "good")]).await.done(), expected);
    assert_eq!(with(&[("cert-file", "alice.pem"), ("key-file", "alice.key")]).await.done(), expected);
    with(&[]).await.refused(78, &["does not let you read", "token_file", "--token-file"]);
    with(&[("token-file", "bad")]).await.refused(78, &["does not let you read"]);
    with(&[("token-file", "lines")]).await.refused(78, &["cannot use the token in", "lines"]);
    // Whom nobody signed is not let in at all.
    with(&[("cert-file", "mallory.pem"), ("key-file", "mallory.key")]).await.refused(74, &[&at]);
    with(&[("cert-file", "alice.pem")]).await.refused(78, &["`cert_file` needs `key_file`"]);
    from_elsewhere(&at, &tail, &[])
        .await
        .refused(74, &["name the authority that signed the server's certificate in `ca_file`"]);
    // What changes in the files counts from the next connection on, without a reload.
    fs::write(path("tokens"), "third-token-of-all-of-them\n").unwrap();
    with(&[("token-file", "good")]).await.refused(78, &["does not let you read"]);
    fs::write(path("good"), "third-token-of-all-of-them").unwrap();
    assert_eq!(with(&[("token-file", "good")]).await.done(), expected);
    for name in ["key", "pem"] {
        fs::copy(path(&format!("later.{name}")), path(&format!("shown.{name}"))).unwrap();
    }
    assert_eq!(with(&[("token-file", "good")]).await.done(), expected);
    let mut shows = std::process::Command::new("openssl");
    let shown = shows.args(["s_client", "-connect", &address]).stdin(Stdio::null()).output().unwrap();
    assert!(String::from_utf8_lossy(&shown.stdout).contains("CN = later"), "the new certificate is shown");
    with(&[("token-file", "good")]).await.done();
    let word = ["--color", "never", "-o", "json", "show", "1"];
    let flags = ["--ca-file", &ca, "--token-file", &path("good")];
    from_elsewhere(&at, &[&word[..], &flags].concat(), &[]).await.done();
    fs::remove_file(path("tokens")).unwrap();
    with(&[("token-file", "good")]).await.refused(78, &["does not let you read"]);
    // It says who has read, and what is secret is not in that.
    daemon.says("somebody reads the log over HTTP").await;
    let said = daemon.said();
    assert!(
        said.contains("token 2") && said.contains("certificate sha256:") && said.contains("question=\"show\""),
        "{said}"
    );
    assert!(!said.contains("token-of-") && !said.contains("00:00:01"), "nothing of the request is logged");
    daemon.stop().await;
}

/// Off unless it is asked for, wherever it listens.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_reads_where_reading_is_off() {
    let sim = cluster().await;
    let mut daemon = daemon(&sim, "listen = \"unix:http.sock\"").await;
    from_elsewhere(&unix(&daemon), &["tail"], &[]).await.refused(78, &["set [http] reading = true"]);
    // Nothing of what a stranger sends is read.
    assert_eq!(post(&daemon, "show", "Content-Type: application/json\r\n", &vec![b'['; 1 << 20]).0, 403);
    daemon.stop().await;
    let address = free_address();
    let beside = |more: &str| daemon.config(WATCH, &format!("[http]\nlisten = {address:?}\n{more}"));
    fs::write(daemon.path("short"), "1234").unwrap();
    let short = format!("reading = true\ntoken_file = {:?}", daemon.path("short"));
    for (more, says) in [
        ("reading = true", "token_file, client_ca_file or authorize"),
        ("reading = true\nclient_ca_file = \"/dev/null\"", "tls_cert_file and tls_key_file beside it"),
        ("tls_cert_file = \"/dev/null\"", "both: a certificate, and its private key"),
        (short.as_str(), "has less than 16 characters"),
    ] {
        daemon.configure(&beside(more));
        let config = daemon.path("config.toml");
        let refused = decklog(&daemon.path(""), &["run", "-c", config.to_str().unwrap()], &[]).await;
        refused.refused(78, &[says]);
    }
}

/// An answer to a question, by its status and what comes then.
fn post(daemon: &Daemon, question: &str, head: &str, body: &[u8]) -> (u16, Vec<u8>) {
    let mut stream = UnixStream::connect(daemon.path("http.sock")).unwrap();
    let head = format!("POST /api/v1/{question} HTTP/1.1\r\nHost: x\r\n{head}Content-Length: {}\r\n\r\n", body.len());
    // A server that has seen enough need not read all of it.
    drop(stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body)));
    let mut answer = Vec::new();
    drop(stream.read_to_end(&mut answer));
    let text = String::from_utf8_lossy(&answer).into_owned();
    (text.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or_default(), answer)
}

const JSON: &str = "Content-Type: application/json\r\n";

/// The lines of an answer.
fn ask(daemon: &Daemon, question: &str, ask: &Value) -> Vec<Value> {
    let (status, answer) = post(daemon, question, JSON, ask.to_string().as_bytes());
    assert_eq!(status, 200, "{}", String::from_utf8_lossy(&answer));
    let body = answer.windows(4).position(|end| end == b"\r\n\r\n").unwrap() + 4;
    let (mut rest, mut text) = (&answer[body..], Vec::new());
    // Chunks, each with its length in a line before it.
    while let Some(end) = rest.windows(2).position(|end| end == b"\r\n") {
        let length = usize::from_str_radix(std::str::from_utf8(&rest[..end]).unwrap(), 16).unwrap();
        text.extend_from_slice(&rest[end + 2..][..length]);
        rest = &rest[end + 4 + length..];
    }
    String::from_utf8(text).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Questions that there are not, that are none, and that name what is elsewhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_answers_nothing_but_questions_about_its_log() {
    let sim = cluster().await;
    let mut daemon = daemon(&sim, "listen = \"unix:http.sock\"\nreading = true").await;
    let own: Value = serde_json::from_str(&daemon.command(&["show", "1", "-o", "json"]).await.done()).unwrap();
    let end = |exit: u8, text: &str| json!({"end": if text.is_empty() { json!({"exit": exit}) } else { json!({"exit": exit, "text": text}) }});
    let show = json!({"ask": {"seq": 1}});
    let entry = json!({"seq": 1, "type": own["type"], "entry": own});
    let shown = [json!({"item": {"entry": entry, "beyond": "the API server's audit log has who asked"}}), end(0, "")];
    assert_eq!(ask(&daemon, "show", &show), shown);
    let none = "this server has one cluster, and it is called by no name: leave --cluster x out";
    for (question, asked, exit, says) in [
        ("run", json!({"ask": {}}), 64, "a server answers nothing but questions about its log: tail, log, causes,"),
        ("replay", json!({"ask": {"sink": "file"}}), 64, "a server answers nothing but"),
        ("show", json!({"ask": {}}), 64, "this is no question \"show\": missing field `seq`"),
        ("show", json!({"ask": {"seq": 1, "state": "/etc"}}), 64, "unknown field `state`"),
        ("verify", json!({"ask": {"files": ["/etc/passwd"]}}), 64, "unknown field `files`"),
        ("tail", json!({"ask": {"select": {"only": {"grep": "("}}}}), 64, "--grep: "),
        ("show", json!({"ask": {"seq": 1}, "cluster": "x"}), 64, none),
        ("show", json!({"ask": {"seq": 99}}), 1, "there is no entry 99"),
    ] {
        let answer = ask(&daemon, question, &asked);
        let [last] = &answer[..] else { panic!("{question} {asked}: {answer:?}") };
        let text = last["end"]["text"].as_str().unwrap();
        assert!(last["end"]["exit"] == exit && text.contains(says), "{question} {asked}: {last}");
    }
    assert_eq!(ask(&daemon, "clusters", &json!({"ask": null})), [end(0, "")]);
    // A zone is no file.
    let blame = |zone: &str| ask(&daemon, "blame", &json!({"ask": {"object": "cm/other"}, "zone": zone}));
    assert_eq!(blame("/etc/passwd"), blame("UTC"));
    assert_ne!(blame("Asia/Kolkata"), blame("UTC"), "it was deleted at a time of that zone");
    for (head, body, status) in [
        (JSON, &b"{}"[..], 422),
        (JSON, b"{\"ask\":{\"seq\":1},\"state\":\"x\"}", 422),
        (JSON, b"not json", 400),
        ("", b"{\"ask\":{\"seq\":1}}", 415),
        ("Content-Type: text/plain\r\n", b"{\"ask\":{\"seq\":1}}", 415),
        (JSON, &vec![b' '; 65 << 10], 413),
    ] {
        assert_eq!(post(&daemon, "show", head, body).0, status, "{head} {:?}", &body[..body.len().min(20)]);
    }
    assert_eq!(http_get(daemon.path("http.sock").to_str().unwrap(), "/api/v1/show").unwrap().status, 405);
    daemon.stop().await;
}

/// A command that follows the log from elsewhere, and its lines.
fn follow(at: &str) -> (Child, Lines<BufReader<ChildStdout>>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_decklog"));
    command.args(["tail", "-f", "-o", "json", "--server", at]).env_clear().stdin(Stdio::null());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    (child, lines)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_follows_from_elsewhere_holds_nobody_up() {
    let sim = cluster().await;
    let mut daemon = daemon(&sim, "listen = \"unix:http.sock\"\nreading = true").await;
    let at = unix(&daemon);
    let mut followers: Vec<_> = (0..MOST).map(|_| follow(&at)).collect();
    let expected: Vec<String> =
        daemon.command(&["tail", "-o", "json"]).await.done().lines().map(str::to_owned).collect();
    for (_, lines) in &mut followers {
        for line in &expected {
            assert_eq!(lines.next_line().await.unwrap().as_ref(), Some(line));
        }
    }
    // As many as there may be; the endpoints answer all the same, whoever else holds on to connections.
    from_elsewhere(&at, &["tail"], &[]).await.refused(74, &["8 questions are being answered already"]);
    let socket = daemon.path("http.sock").display().to_string();
    let held: Vec<UnixStream> = (0..60).map(|_| UnixStream::connect(&socket).unwrap()).collect();
    assert_eq!(http_get(&socket, "/livez").unwrap().status, 200);
    drop(held);
    sim.create("configmaps", objects::config_map("default", "new", "1")).unwrap();
    for (_, lines) in &mut followers {
        let line = lines.next_line().await.unwrap().expect("the change");
        assert_eq!(serde_json::from_str::<Value>(&line).unwrap()["name"], "new");
    }
    // One that goes takes its answer with it, and makes room.
    drop(followers.pop());
    until("room for one more", async || {
        let answer = from_elsewhere(&at, &["show", "1"], &[]).await;
        if answer.code == 0 { Ok(()) } else { Err(answer.err) }
    })
    .await;
    // The end of the daemon waits for nobody who follows.
    let (last, _lines) = followers.pop().unwrap();
    daemon.stop().await;
    let (code, said) = ended(last).await;
    assert!(code == 74 && said.contains("is not whole"), "{code} {said}");
}

/// Readers that take nothing of a long answer hold up that answer alone, and the memory of each is that of a page.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_takes_nothing_of_an_answer_is_waited_for() {
    let sim = cluster().await;
    let mut daemon = daemon(&sim, "listen = \"unix:http.sock\"\nreading = true").await;
    for number in 0..40 {
        let name = format!("large-{number}");
        sim.create("configmaps", objects::config_map("default", &name, &"x".repeat(1_000_000))).unwrap();
    }
    daemon.knows(&sim, "configmaps", "default", "large-39").await;
    let body = json!({"ask": {"last": 1_000_000}}).to_string();
    let mut slow: Vec<UnixStream> = (0..MOST)
        .map(|_| {
            let mut stream = UnixStream::connect(daemon.path("http.sock")).unwrap();
            let head = format!("POST /api/v1/tail HTTP/1.1\r\nHost: x\r\n{JSON}Content-Length: {}\r\n\r\n", body.len());
            stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes())).unwrap();
            stream
        })
        .collect();
    // All of them are being answered, and have a page at hand.
    let mut first = vec![0; 300_000];
    for stream in &mut slow {
        stream.read_exact(&mut first).unwrap();
        assert!(first.starts_with(b"HTTP/1.1 200"));
    }
    sim.create("configmaps", objects::config_map("default", "meanwhile", "1")).unwrap();
    daemon.knows(&sim, "configmaps", "default", "meanwhile").await;
    let status = fs::read_to_string(format!("/proc/{}/status", daemon.pid())).unwrap();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let resident: u64 = resident.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(resident < 256 << 10, "{resident} KiB");
    let mut whole = Vec::new();
    slow[0].read_to_end(&mut whole).unwrap();
    let last = String::from_utf8_lossy(&whole[whole.len() - 64..]).into_owned();
    assert!(whole.len() > 39_000_000 && last.contains("{\"end\":{\"exit\":0}}"), "{} {last}", whole.len());
    drop(slow);
    daemon.stop().await;
}

/// How a command ended, and what it said of that.
async fn ended(mut child: Child) -> (i32, String) {
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).await.unwrap();
    (child.wait().await.unwrap().code().unwrap(), said)
}

/// A server that gives the same bytes to whoever asks first, and where it is.
fn answers_once(answer: Vec<u8>) -> (String, std::thread::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = format!("http://{}", listener.local_addr().unwrap());
    let server = std::thread::Builder::new().name("answers once".into());
    let server = server.spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0; 4096];
        let _read = stream.read(&mut request).unwrap();
        stream.write_all(&answer).unwrap();
    });
    (at, server.unwrap())
}

/// What cuts an answer, or is no decklog at all, is never taken for the whole.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_is_cut_is_not_whole() {
    let begin = "{\"item\":{\"begin\":{\"head\":1,\"resources\":[]}}}\n";
    let entry = r#"{"v":1,"seq":1,"epoch":"e","id":"i","time":"t","type":"ADDED"}"#;
    let lines = format!(
        "{begin}{{\"item\":{{\"entry\":{{\"seq\":1,\"type\":\"ADDED\",\"entry\":{entry}}}}}}}\n{{\"item\":\"pause\"}}\n{{\"end\":{{\"exit\":0}}}}\n"
    );
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nConnection: close\r\n\r\n";
    let whole = lines.len();
    for cut in [0, 3, begin.len(), begin.len() + 7, whole - 20, whole - 1, whole] {
        let (at, server) = answers_once([head, &lines[..cut]].concat().into_bytes());
        let got = from_elsewhere(&at, &["tail", "-o", "json"], &[]).await;
        server.join().unwrap();
        if cut == whole {
            assert_eq!(got.done(), format!("{entry}\n"));
        } else {
            got.refused(74, &["is not whole"]);
        }
    }
    for (answer, says) in [
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
            "so it is not a decklog that lets its log be read: hello",
        ),
        ("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "404 Not Found"),
        ("HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:9/\r\nContent-Length: 0\r\n\r\n", "302 Found"),
    ] {
        let (at, server) = answers_once(answer.into());
        from_elsewhere(&at, &["tail"], &[]).await.refused(78, &[says]);
        server.join().unwrap();
    }
}
