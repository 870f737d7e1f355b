//! Bytes that nobody should send: the log has them exactly, or a GAP says that it has not, and the watch goes on.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use decklog::sim::faults::{Act, Fault, On, Signal};
use decklog::sim::{Object, Sim, objects};
use serde_json::{Value, json};

use crate::support::{Daemon, cluster, free_address, http_get, scope, until};

/// Makes an object out of the text of its members; the server adds the rest.
fn create(sim: &Sim, name: &str, members: &str) {
    let text = format!(r#"{{"metadata":{{"name":{},"namespace":"default"}},{members}}}"#, json!(name));
    sim.create("configmaps", Object::parse(text.as_bytes()).unwrap()).unwrap();
}

/// The next line of an open watch.
fn send(sim: &Sim, line: impl Into<Vec<u8>>) {
    let mut line = line.into();
    line.push(b'\n');
    sim.signal("configmaps", &Signal::Line(line.into()));
}

/// Most memory that the daemon ever had resident, in MiB.
pub(crate) fn peak_mib(daemon: &Daemon) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", daemon.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
}

/// Faults 28, 31, 33: depth, numbers that no float holds, lone surrogates, NUL as an escape: all of it stands in the
/// log as the server sent it, and comes out of it again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_odd_and_json_stays_byte_for_byte() {
    let sim = cluster().await;
    let started = sim.revision();
    let mut daemon = Daemon::new(&sim, &["configmaps"]);
    daemon.start();
    daemon.ready().await;
    let deep = format!(r#""spec":{}{}"#, "{\"a\":[".repeat(4500), "]}".repeat(4500));
    let odd: [(&str, &str); 7] = [
        ("deep", &deep),
        ("numbers", r#""n":[1.10,1e400,-0,-0.0,1E+2,30000000000000000000000000000,0.1000]"#),
        ("surrogates", r#""s":["\ud800","\udc00\ud800","\ud83d\ude00"],"k":{"\ud800":1}"#),
        ("nul", r#""s":"a\u0000b","\u0000":{"\u0000":"\u0000"}"#),
        ("twice", r#""d":{"a":1,"a":2},"d":{"a":3}"#),
        ("escapes", "\"s\":\"\\u001b[31m \\u009b \u{9b}\u{202e} \\r\\n\""),
        ("names", r#""data":{"../../etc/passwd":"x","a/b%2f~:":"y","":"z"}"#),
    ];
    for (name, members) in odd {
        create(&sim, name, members);
    }
    daemon.reach(odd.len()).await;
    let log = fs::read_to_string(daemon.log()).unwrap();
    for (name, members) in odd {
        let line = log.lines().find(|line| line.contains(&format!("\"name\":\"{name}\",\"uid\""))).unwrap();
        assert!(line.contains(members), "{name} is not what was sent");
    }
    // What changes in them is told, and the deep one comes back whole.
    let again = sim.get("configmaps", "default", "deep").unwrap();
    let text = format!(r#"{{"metadata":{{"name":"deep","namespace":"default"}},"x":1,{deep}}}"#);
    sim.replace("configmaps", "default", "deep", Object::parse(text.as_bytes()).unwrap()).unwrap();
    daemon.tells("the change", |entry| entry.name == "deep" && entry.kind == "MODIFIED").await;
    assert!(again.revision > 0);
    let got = daemon.command(&["get", "configmap/deep", "-o", "json"]).await;
    assert!(got.code == 0 && got.out.matches('[').count() == 4500, "{} {}", got.code, got.err);
    daemon.command(&["get", "configmap/numbers", "-o", "json"]).await.done();
    for (name, _) in odd {
        let object = format!("configmap/{name}");
        for args in [&["get", &object][..], &["get", "--clean", &object], &["log", "-p", &object], &["blame", &object]]
        {
            let printed = daemon.command(args).await.done();
            let obeyed = printed.chars().find(|c| (c.is_control() && *c != '\n') || *c == '\u{202e}');
            assert_eq!(obeyed, None, "{args:?}");
        }
    }
    daemon.command(&["diff", "--from", "1"]).await.done();
    daemon.command(&["tail", "--last", "100"]).await.done();
    daemon.command(&["churn"]).await.done();
    let gaps = daemon.entries().iter().filter(|entry| entry.gap.is_some()).count();
    assert_eq!(gaps, 0, "everything could be read");
    drop(scope(&sim, started, &["configmaps"]));
    daemon.stop().await;
    daemon.consistent().await;
}

/// Fault 32: of members of the metadata that come twice the last counts, as in Go.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_metadata_that_comes_twice_the_last_counts() {
    let sim = cluster().await;
    let mut daemon = Daemon::new(&sim, &["configmaps"]);
    daemon.start();
    daemon.ready().await;
    sim.wait_for_watches("configmaps", 1).await.unwrap();
    let version = sim.revision() + 1;
    let object = format!(
        r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"name":"first","name":"last","namespace":"default","uid":"u0","uid":"u1","resourceVersion":"1","resourceVersion":"{version}"}},"data":{{"a":"1"}}}}"#
    );
    send(&sim, format!(r#"{{"type":"ADDED","object":{object}}}"#));
    daemon.tells("it", |entry| entry.name == "last" && entry.uid == "u1" && entry.rv() == version).await;
    assert!(fs::read_to_string(daemon.log()).unwrap().contains(&object));
    daemon.stop().await;
    daemon.consistent().await;
}

/// Faults 29, 30, 31: lines that are no JSON, no UTF-8, too long, or without an end: tried again, then a GAP with its
/// reason, from where to where; then the difference, and the watch goes on. Memory stays where it was.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_kept_is_a_gap_and_the_watch_goes_on() {
    let sim = cluster().await;
    let started = sim.revision();
    let event = |kind: &str, rest: &[u8]| {
        let metadata = r#""metadata":{"name":"bad","namespace":"default","uid":"u","resourceVersion":"99999""#;
        [format!(r#"{{"type":"ADDED","object":{{"kind":"{kind}",{metadata}"#).as_bytes(), rest, b"}\n"].concat()
    };
    let endless = [b"{\"type\":\"ADDED\",\"object\":{\"a\":\"".to_vec(), vec![b'x'; 40 << 20]].concat();
    let large = format!(r#"}},"x":"{}"}}"#, "y".repeat(33 << 20));
    // How often it comes, and how many gaps that is: what cannot be decoded is asked for three times, what is too long once.
    type Case = (&'static str, fn(&str) -> Value, Vec<u8>, usize, &'static str, usize);
    let cases: [Case; 5] = [
        (
            "configmaps",
            |name| objects::config_map("default", name, "1"),
            event("ConfigMap", b",\"x\":\"\xe9\"}}"),
            3,
            "undecodable",
            1,
        ),
        (
            "services",
            |name| objects::service("default", name),
            event("Service", b",\"x\":\"\0\"}}"),
            4,
            "undecodable",
            1,
        ),
        (
            "pods",
            |name| objects::pod("default", name, "a", None, "i"),
            event("Pod", br#","labels":{"a":1},"name":"\ud800"}}"#),
            3,
            "undecodable",
            1,
        ),
        ("leases.coordination.k8s.io", |name| objects::lease("default", name), endless, 1, "oversize", 1),
        (
            "deployments.apps",
            |name| objects::deployment("default", name, 1, "i"),
            event("Deployment", large.as_bytes()),
            2,
            "oversize",
            2,
        ),
    ];
    let resources = cases.each_ref().map(|case| case.0);
    let mut daemon = Daemon::new(&sim, &resources);
    daemon.with_gaps(&resources);
    daemon.start();
    daemon.ready().await;
    for (resource, object, ..) in &cases {
        sim.create(resource, object("before")).unwrap();
        daemon.knows(&sim, resource, "default", "before").await;
    }
    // All at once, because none holds up another.
    for (resource, object, line, times, ..) in &cases {
        sim.wait_for_watches(resource, 1).await.unwrap();
        sim.fault(Fault::new(On::watch(resource), Act::insert(0, line.clone())).times(*times));
        let asked = sim.count(&On::watch(resource));
        sim.signal(resource, &Signal::End);
        sim.wait_for_count(&On::watch(resource), asked + 1).await.unwrap();
        sim.create(resource, object("meanwhile")).unwrap();
    }
    for (resource, _, _, _, why, count) in &cases {
        let gaps = async || {
            daemon.must_run();
            let about = |entry: &&crate::judge::Entry| entry.full_resource() == *resource;
            let gaps: Vec<_> = daemon.entries().iter().filter(about).filter_map(|entry| entry.gap.clone()).collect();
            if gaps.len() >= *count { Ok(gaps) } else { Err(daemon.last_words()) }
        };
        let gaps = until(&format!("the gaps of {resource}"), gaps).await;
        let version = |text: &Option<String>| text.as_ref().unwrap().parse::<u64>().unwrap();
        for gap in &gaps {
            assert_eq!(gap.why, *why, "{resource}");
            assert!(version(&gap.from) >= started && version(&gap.from) <= version(&gap.to), "{resource}: {gap:?}");
            assert!(gap.since.is_some(), "{resource}: {gap:?}");
        }
        daemon.knows(&sim, resource, "default", "meanwhile").await;
    }
    // And nothing of it held: after each of them the watch goes on as before.
    for (resource, object, .., count) in &cases {
        let mut tries = 0;
        until(&format!("what follows of {resource} to be watched"), async || {
            daemon.must_run();
            sim.create(resource, object(&format!("after-{tries}"))).unwrap();
            tries += 1;
            let watched = |entry: &crate::judge::Entry| {
                entry.full_resource() == *resource && entry.name.starts_with("after-") && entry.evidence == "watched"
            };
            if daemon.entries().iter().any(watched) { Ok(()) } else { Err(daemon.last_words()) }
        })
        .await;
        let told = daemon.story(resource).iter().filter(|line| line.starts_with("GAP")).count();
        assert_eq!(told, *count, "{resource}: {:?}", daemon.story(resource));
    }
    let peak = peak_mib(&daemon);
    assert!(peak < 200, "{peak} MiB for lines of 40 MiB");
    let done = scope(&sim, started, &resources);
    daemon.catch_up(&sim, &done).await;
    daemon.stop().await;
    daemon.judged(&sim, &done).await;
}

/// Fault 35: names and values that a terminal would obey, or a path would follow, do neither.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_terminal_would_obey_is_only_shown() {
    let sim = cluster().await;
    let mut daemon = Daemon::new(&sim, &["configmaps"]);
    daemon.start();
    daemon.ready().await;
    sim.wait_for_watches("configmaps", 1).await.unwrap();
    let evil = "../../x:%2e\u{1b}[2J\u{1b}]0;owned\u{7}\r\n\u{9b}31m\u{202e}";
    for (offset, kind, value) in [(1, "ADDED", "a"), (2, "MODIFIED", "\u{1b}[31mred\u{8}\n")] {
        let version = (sim.revision() + offset).to_string();
        let object = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": evil, "namespace": "../..", "uid": evil,
            "resourceVersion": version, "managedFields": [{"manager": evil, "operation": "Update", "time": evil}]},
            "data": {evil: value}});
        send(&sim, json!({"type": kind, "object": object}).to_string());
    }
    daemon.tells("it", |entry| entry.name == evil && entry.kind == "MODIFIED").await;
    for arguments in [
        "tail --last 100",
        "tail --last 100 --color always",
        "tail -o json --last 100",
        "tail -o yaml --last 100",
        "status",
        "churn",
    ] {
        // A terminal of its own, as `script` gives it.
        let command =
            format!("{} {arguments} -c {}", env!("CARGO_BIN_EXE_decklog"), daemon.path("config.toml").display());
        let mut script = Command::new("script");
        // What a pager does to a terminal is its own affair.
        script.args(["-qec", &command, "/dev/null"]).env("DECKLOG_PAGER", "cat");
        let shown = script.stdin(Stdio::null()).output().unwrap();
        assert!(shown.status.success(), "{shown:?}");
        let text = String::from_utf8(shown.stdout).unwrap();
        let colours = without_colours(&text);
        let obeyed = |c: char| (c.is_control() && c != '\n' && c != '\r') || c == '\u{202e}';
        assert!(!colours.contains(obeyed), "{arguments}: {colours:?}");
        assert!(!text.contains("\r\n\u{9b}") && !colours.contains("]0;owned\u{7}"), "{text:?}");
    }
    let piped = daemon.command(&["tail", "--last", "100"]).await.done();
    assert!(!piped.contains(|c: char| c.is_control() && c != '\n'), "{piped:?}");
    assert!(piped.contains("\\u{1b}[2J"), "{piped:?}");
    // decklog's own log is one line for each thing said, and no name is a path.
    assert!(!daemon.said().contains('\u{1b}') && !daemon.said().contains('\u{7}'));
    let files: Vec<String> =
        fs::read_dir(daemon.state()).unwrap().map(|f| f.unwrap().file_name().into_string().unwrap()).collect();
    assert!(files.iter().all(|name| name.chars().all(|c| c.is_ascii_alphanumeric() || ".-_".contains(c))), "{files:?}");
    daemon.stop().await;
    daemon.consistent().await;
}

/// Without the sequences that decklog itself writes: colours, and nothing else.
fn without_colours(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("\u{1b}[") {
        let after = &rest[at + 2..];
        let length = after.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b';').count();
        if after.as_bytes().get(length) != Some(&b'm') {
            break;
        }
        out.push_str(&rest[..at]);
        rest = &after[length + 1..];
    }
    out + rest
}

/// A listener that other machines reach has to be allowed; the endpoints take short heads in good time, a few
/// connections, and GET.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_http_listener_has_bounds() {
    let sim = cluster().await;
    let at = free_address();
    let mut daemon = Daemon::with(&sim, "resources = [\"configmaps\"]", &format!("[http]\nlisten = {at:?}\n"));
    let remote = daemon.config("resources = [\"configmaps\"]", "[http]\nlisten = \"0.0.0.0:9465\"\n");
    let local = fs::read_to_string(daemon.path("config.toml")).unwrap();
    daemon.configure(&remote);
    daemon.command(&["run"]).await.refused(78, &["http.listen", "other machines can reach", "allow_remote = true"]);
    daemon.configure(&local);
    daemon.start();
    daemon.ready().await;
    let ask = |text: &[u8]| -> std::io::Result<Vec<u8>> {
        let mut stream = TcpStream::connect(&at)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        // It may hang up before all of it is sent.
        drop(stream.write_all(text));
        let mut answer = Vec::new();
        drop(stream.read_to_end(&mut answer));
        Ok(answer)
    };
    let text = |answer: Vec<u8>| String::from_utf8_lossy(&answer).into_owned();
    let long = format!("GET /livez HTTP/1.1\r\nHost: x\r\nX-Long: {}\r\n\r\n", "y".repeat(64 << 10));
    let answer = text(ask(long.as_bytes()).unwrap());
    assert!(!answer.contains(" 200 "), "{answer}");
    for method in ["POST", "PUT", "DELETE", "PATCH", "TRACE", "CONNECT"] {
        let answer =
            text(ask(format!("{method} /status HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n").as_bytes()).unwrap());
        assert!(answer.starts_with("HTTP/1.1 4"), "{method}: {answer}");
    }
    assert!(!text(ask(b"\x16\x03\x01\0\xff\0\0\n\n\0").unwrap()).contains(" 200 "));
    // Many who never finish their request: they are let go, and then others are answered.
    let slow: Vec<TcpStream> = (0..40)
        .map(|_| {
            let mut stream = TcpStream::connect(&at).unwrap();
            stream.write_all(b"GET /livez HTTP/1.1\r\nHost:").unwrap();
            stream
        })
        .collect();
    assert_eq!(http_get(&at, "/livez").unwrap().status, 200, "nobody keeps the others out for ever");
    for stream in slow {
        drop(stream.shutdown(Shutdown::Both));
    }
    assert_eq!(http_get(&at, "/status").unwrap().status, 200);
    daemon.stop().await;
}
