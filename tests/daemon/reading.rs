//! `--server`: the commands that read the log, from another machine. What they print is the same, only those who may read
//! do, nothing else is run, and nothing of it holds the daemon up.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Stdio;

use bytes::BytesMut;
use decklog::http::frames::Frame;
use decklog::sim::{Sim, objects};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::support::{Answer, Daemon, cluster, decklog, free_address, http_get, scope, until};

const WATCH: &str = "resources = [\"configmaps\", \"deployments.apps\"]";

/// So many commands read at a time.
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
        "churn",
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
        said.contains("token 2") && said.contains("certificate sha256:") && said.contains("command=\"show\""),
        "{said}"
    );
    assert!(!said.contains("token-of-") && !said.contains("command=\"never\""), "nothing of the request is logged");
    daemon.stop().await;
}

/// Off unless it is asked for, wherever it listens.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_reads_where_reading_is_off() {
    let sim = cluster().await;
    let mut daemon = daemon(&sim, "listen = \"unix:http.sock\"").await;
    from_elsewhere(&unix(&daemon), &["tail"], &[]).await.refused(78, &["set [http] reading = true"]);
    // Nothing of what a stranger sends is read.
    assert_eq!(post(&daemon, "Content-Type: application/json\r\n", &vec![b'['; 1 << 20]).0, 403);
    daemon.stop().await;
    let address = free_address();
    let beside = |more: &str| daemon.config(WATCH, &format!("[http]\nlisten = {address:?}\n{more}"));
    fs::write(daemon.path("short"), "1234").unwrap();
    let short = format!("reading = true\ntoken_file = {:?}", daemon.path("short"));
    for (more, says) in [
        ("reading = true", "token_file or client_ca_file beside it"),
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

/// An answer to `POST /read`, by its status and what comes then.
fn post(daemon: &Daemon, head: &str, body: &[u8]) -> (u16, Vec<u8>) {
    let mut stream = UnixStream::connect(daemon.path("http.sock")).unwrap();
    let head = format!("POST /read HTTP/1.1\r\nHost: x\r\n{head}Content-Length: {}\r\n\r\n", body.len());
    // A server that has seen enough need not read all of it.
    drop(stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body)));
    let mut answer = Vec::new();
    drop(stream.read_to_end(&mut answer));
    let text = String::from_utf8_lossy(&answer).into_owned();
    (text.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or_default(), answer)
}

/// What a command that is asked for directly prints and comes to.
fn ask(daemon: &Daemon, ask: &Value) -> (String, u8) {
    let (status, answer) = post(daemon, "Content-Type: application/json\r\n", ask.to_string().as_bytes());
    assert_eq!(status, 200, "{}", String::from_utf8_lossy(&answer));
    let body = answer.windows(4).position(|end| end == b"\r\n\r\n").unwrap() + 4;
    let (mut rest, mut frames) = (&answer[body..], BytesMut::new());
    // Chunks, each with its length in a line before it.
    while let Some(end) = rest.windows(2).position(|end| end == b"\r\n") {
        let length = usize::from_str_radix(std::str::from_utf8(&rest[..end]).unwrap(), 16).unwrap();
        frames.extend_from_slice(&rest[end + 2..][..length]);
        rest = &rest[end + 4 + length..];
    }
    let mut printed = String::new();
    loop {
        match Frame::decode(&mut frames).unwrap().expect("an end") {
            Frame::Out(bytes) | Frame::Err(bytes) => printed.push_str(std::str::from_utf8(&bytes).unwrap()),
            Frame::Alive => {}
            Frame::Ended(code) => return (printed, code),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_runs_nothing_but_what_reads_its_log() {
    let sim = cluster().await;
    let mut daemon = daemon(&sim, "listen = \"unix:http.sock\"\nreading = true").await;
    let look = json!({"color": false, "terminal": false, "width": null});
    let run = |line: &str| ask(&daemon, &json!({"args": line.split(' ').collect::<Vec<_>>(), "look": look}));
    let lines = daemon.lines();
    for line in [
        "run",
        "replay --sink file --from 1",
        "check",
        "init -",
        "init stolen.toml --force",
        "rbac",
        "demo",
        "schema",
        "sink init file",
        "completions bash",
        "man --dir /etc",
        "verify /etc/passwd",
        "version",
    ] {
        let (printed, code) = run(line);
        assert_eq!((code, printed.as_str()), (64, "decklog: a server runs nothing but what reads its log\n"), "{line}");
    }
    assert!(!daemon.path("stolen.toml").exists());
    // Whatever it is told to read, it reads its own.
    let own = daemon.command(&["show", "1", "-o", "json"]).await.done();
    let elsewhere = tempfile::tempdir().unwrap();
    let named = elsewhere.path().display();
    for more in
        [format!("--state {named}"), format!("-c {named}/x.toml"), "--server https://decklog.example".to_owned()]
    {
        assert_eq!(run(&format!("show 1 -o json {more}")), (own.clone(), 0), "{more}");
    }
    let (printed, code) = run("__complete --state /nowhere log cm s");
    assert_eq!((printed.as_str(), code), ("settings\n", 0));
    // A zone is no file, and what is no request is none.
    let asks = |zone: &str| json!({"args": ["tail"], "look": look, "zone": zone});
    assert_eq!(ask(&daemon, &asks("/etc/passwd")), ask(&daemon, &asks("UTC")));
    let json = "Content-Type: application/json\r\n";
    for (head, body, status) in [
        (json, &b"{}"[..], 422),
        (json, b"not json", 400),
        ("", b"{\"args\":[\"tail\"]}", 415),
        ("Content-Type: text/plain\r\n", b"{\"args\":[\"tail\"]}", 415),
        (json, &vec![b' '; 65 << 10], 413),
    ] {
        assert_eq!(post(&daemon, head, body).0, status, "{head} {:?}", &body[..body.len().min(20)]);
    }
    assert_eq!(http_get(daemon.path("http.sock").to_str().unwrap(), "/read").unwrap().status, 405);
    assert_eq!(daemon.lines(), lines, "nothing was delivered again");
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

/// The commands that a daemon runs for others.
fn commands(daemon: &Daemon) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{}/task", daemon.pid())).unwrap();
    let children = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("children")).ok());
    children.flat_map(|pids| pids.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).collect()
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
    from_elsewhere(&at, &["tail"], &[]).await.refused(74, &["8 commands are reading already"]);
    let socket = daemon.path("http.sock").display().to_string();
    let held: Vec<UnixStream> = (0..60).map(|_| UnixStream::connect(&socket).unwrap()).collect();
    assert_eq!(http_get(&socket, "/livez").unwrap().status, 200);
    drop(held);
    sim.create("configmaps", objects::config_map("default", "new", "1")).unwrap();
    for (_, lines) in &mut followers {
        let line = lines.next_line().await.unwrap().expect("the change");
        assert_eq!(serde_json::from_str::<Value>(&line).unwrap()["name"], "new");
    }
    // One that goes takes its command with it, and makes room.
    let running = commands(&daemon);
    assert_eq!(running.len(), MOST);
    // Where memory ends, they go before the daemon does.
    for pid in &running {
        assert_eq!(fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).unwrap().trim(), "1000");
    }
    let tell = |pid: &str, signal| kill_process(Pid::from_raw(pid.parse().unwrap()).unwrap(), signal).unwrap();
    // It does not depend on the command, which may be busy with something else than with printing.
    running.iter().for_each(|pid| tell(pid, Signal::STOP));
    drop(followers.pop());
    until("the command to end with its reader", async || {
        let running = commands(&daemon).len();
        if running == MOST - 1 { Ok(()) } else { Err(format!("{running} run")) }
    })
    .await;
    commands(&daemon).iter().for_each(|pid| tell(pid, Signal::CONT));
    from_elsewhere(&at, &["tail"], &[]).await.done();
    // A command that is ended on the server is not taken for one that is done.
    let (last, _lines) = followers.pop().unwrap();
    drop(followers);
    let pid = until("the others to end", async || match &commands(&daemon)[..] {
        [one] => Ok(one.clone()),
        several => Err(format!("{several:?}")),
    })
    .await;
    tell(&pid, Signal::KILL);
    let (code, said) = ended(last).await;
    assert!(code == 70 && said.contains("was ended on the server (signal: 9"), "{code} {said}");
    // The end of the daemon waits for nobody who follows.
    let (last, mut lines) = follow(&at);
    lines.next_line().await.unwrap().unwrap();
    daemon.stop().await;
    let (code, said) = ended(last).await;
    assert!(code == 74 && said.contains("is not whole"), "{code} {said}");
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
    let frames = [&Frame::Out("some\n".into()).encode()[..], &Frame::Ended(0).encode()].concat();
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/vnd.decklog.frames\r\nConnection: close\r\n\r\n";
    let whole = frames.len();
    for cut in [0, 3, 7, whole - 1, whole] {
        let (at, server) = answers_once([head.as_bytes(), &frames[..cut]].concat());
        let got = from_elsewhere(&at, &["tail"], &[]).await;
        server.join().unwrap();
        if cut == whole {
            assert_eq!(got.done(), "some\n");
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
