//! Access to the timeline page: who may see it, what may not be open, and a page without a daemon for one browser.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use super::{WATCH, ask, ask_with, daemon, namespaces, story};
use crate::support::{Daemon, cluster, free_address};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_who_may_see_it_and_only_this_page_asks() {
    let sim = cluster().await;
    let (mut daemon, at) = daemon(&sim, "").await;
    for path in ["/", "/app.js", "/api/v1/overview", "/api/v1/nothing", "/nothing"] {
        let got = ask(&at, path);
        let policy = &got.headers["content-security-policy"];
        assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{path}: {policy}");
        assert!(!got.headers.keys().any(|name| name.starts_with("access-control")), "{path}: {:?}", got.headers);
        assert_eq!(
            (got.headers["x-content-type-options"].as_str(), got.headers["cache-control"].as_str()),
            ("nosniff", "no-store")
        );
        // Nobody leads another name here, no other page asks, and nothing is written.
        for headers in [
            &[("Host", "evil.example")][..],
            &[("Host", "localhost.evil.example:80")],
            &[("Origin", "http://evil.example")],
            &[("Origin", "null")],
            &[("Sec-Fetch-Site", "cross-site")],
            &[("Sec-Fetch-Site", "same-site"), ("Sec-Fetch-Mode", "cors")],
        ] {
            let got = ask_with(&at, "GET", path, headers).unwrap();
            assert_eq!(got.status, 403, "{path} {headers:?}: {}", got.text());
            assert!(!got.text().contains("\"cluster\"") && !got.text().contains("app.js"), "{}", got.text());
        }
        for method in ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"] {
            assert_eq!(ask_with(&at, method, path, &[]).unwrap().status, 405, "{method} {path}");
        }
        let head = ask_with(&at, "HEAD", path, &[]).unwrap();
        assert!(head.body.is_empty() && head.status == got.status, "{path}: {head:?}");
    }
    let own = [("Origin", format!("http://{at}"))];
    let own: Vec<(&str, &str)> = own.iter().map(|(name, value)| (*name, value.as_str())).collect();
    assert_eq!(ask_with(&at, "GET", "/api/v1/overview", &own).unwrap().status, 200);
    let followed = [("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Mode", "navigate"), ("Sec-Fetch-Dest", "document")];
    assert_eq!(ask_with(&at, "GET", "/", &followed).unwrap().status, 200, "a link is followed");
    daemon.stop().await;

    // With tokens: the page itself shows nothing, and everything else has to be asked for with one.
    let token = "0123456789abcdef-of-the-page";
    fs::write(daemon.path("tokens"), format!("{token}\n")).unwrap();
    daemon.configure(
        &daemon.config(WATCH, &format!("[ui]\nlisten = {at:?}\ntoken_file = {:?}\n", daemon.path("tokens"))),
    );
    daemon.start();
    daemon.ready().await;
    assert_eq!(ask(&at, "/").status, 200);
    for question in [
        "overview",
        "lanes",
        "entries",
        "entry?seq=1",
        "follow",
        "state",
        "changes?from=1",
        "clusters",
        "churn",
        "histogram",
        "nothing",
    ] {
        let path = format!("/api/v1/{question}");
        let got = ask(&at, &path);
        assert!(got.refused(401).contains("token_file"), "{path}: {}", got.text());
        let wrong = ask_with(&at, "GET", &path, &[("Authorization", "Bearer 0123456789abcdef")]).unwrap();
        assert_eq!(wrong.status, 401, "{path}");
    }
    let bearer = format!("Bearer {token}");
    let overview = || ask_with(&at, "GET", "/api/v1/overview", &[("Authorization", &bearer)]).unwrap().status;
    assert_eq!(overview(), 200);
    assert_eq!(ask(&at, "/?token=guessed-and-wrong").status, 401);
    let entered = ask(&at, &format!("/?token={token}"));
    assert_eq!((entered.status, entered.headers["location"].as_str()), (303, "/"));
    let cookie = &entered.headers["set-cookie"];
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict") && !cookie.contains(token), "{cookie}");
    let pair = cookie.split(';').next().unwrap();
    let with_cookie = |pair: &str| ask_with(&at, "GET", "/api/v1/overview", &[("Cookie", pair)]).unwrap().status;
    assert_eq!((with_cookie(pair), with_cookie("decklog=x")), (200, 401));
    // Who takes a token back takes it from browsers as well.
    fs::write(daemon.path("tokens"), "another-token-of-the-page\n").unwrap();
    assert_eq!((overview(), with_cookie(pair)), (401, 401));
    assert!(!daemon.said().contains(token), "the log of decklog has the token");
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_may_not_be_open_is_refused_in_the_configuration() {
    let sim = cluster().await;
    let daemon = Daemon::new(&sim, &["configmaps"]);
    fs::write(daemon.path("tokens"), "0123456789abcdef\n").unwrap();
    for (section, says) in [
        ("listen = \"0.0.0.0:9467\"", "which other machines can reach"),
        ("listen = \"0.0.0.0:9467\"\nallow_remote = true", "everybody who can connect would see what objects hold"),
        ("listen = \"0.0.0.0:9467\"\nallow_remote = true\ntoken_file = \"tokens\"", "without TLS"),
        ("client_ca_file = \"tokens\"", "no TLS"),
        ("listen = \"/run/decklog.sock\"\ntoken_file = \"tokens\"", "a unix socket"),
        ("listen = \"127.0.0.1:9465\"\n[http]", "where [http] listens"),
        ("lisen = \"127.0.0.1:9465\"", "listen"),
    ] {
        daemon.configure(&daemon.config("resources = [\"configmaps\"]", &format!("[ui]\n{section}\n")));
        daemon.command(&["check"]).await.refused(78, &["ui.", says]);
    }
    let at = free_address();
    daemon.configure(&daemon.config("resources = [\"configmaps\"]", &format!("[ui]\nlisten = {at:?}\n")));
    let found = daemon.command(&["check"]).await.done();
    assert!(found.contains(&format!("the timeline page can be at {at}")), "{found}");
    let taken = std::net::TcpListener::bind(&at).unwrap();
    let found = daemon.command(&["check"]).await;
    assert!(found.code == 1 && found.out.contains("set another address in [ui] listen"), "{found:?}");
    drop(taken);
}

/// `decklog ui`, and the address that it printed.
struct Page(Child, String);

impl Drop for Page {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

impl Page {
    fn open(daemon: &Daemon) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_decklog"))
            .args(["ui", "-c"])
            .arg(daemon.path("config.toml"))
            .current_dir(daemon.path(""))
            .env_clear()
            .env("HOME", daemon.path(""))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self(child, line.trim_end().to_owned())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_journal_without_a_daemon_is_shown_to_the_browser_that_was_meant() {
    let sim = cluster().await;
    namespaces(&sim);
    let (mut daemon, _) = daemon(&sim, "").await;
    let log = story(&sim, &mut daemon).await;
    daemon.stop().await;
    let before = fs::read(daemon.state().join("journal.db")).unwrap();
    let page = Page::open(&daemon);
    let (at, path) = page.1.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let (at, path) = (at.to_owned(), format!("/{path}"));
    assert!(at.starts_with("127.0.0.1:"), "{at}");
    assert!(ask(&at, "/api/v1/overview").refused(401).contains("decklog ui"));
    assert_eq!(ask_with(&at, "GET", &path, &[("Host", "evil.example")]).unwrap().status, 403);
    let entered = ask(&at, &path);
    assert_eq!(entered.status, 303, "{}", entered.text());
    assert_eq!(ask(&at, &path).status, 401, "it opens once");
    let cookie = entered.headers["set-cookie"].split(';').next().unwrap().to_owned();
    let api = |question: &str| {
        let got = ask_with(&at, "GET", &format!("/api/v1/{question}"), &[("Cookie", &cookie)]).unwrap();
        assert_eq!(got.status, 200, "{}", got.text());
        got.json()
    };
    let overview = api("overview");
    assert_eq!(overview["mode"], "journal");
    // What is looked at ends soon after the last entry: nothing comes any more.
    let time = |of: &Value| of.as_str().unwrap().parse::<jiff::Timestamp>().unwrap().as_microsecond();
    let (oldest, head) = (time(&overview["oldest"]["time"]), time(&overview["head"]["time"]));
    assert_eq!(time(&overview["end"]), (head + ((head - oldest) / 32).max(1_000_000)).min(time(&overview["now"])));
    for question in ["lanes", "histogram"] {
        let until = time(&api(question)["until"]);
        assert!(until >= head && until <= head + ((head - oldest) / 32).max(1_000_000), "{question}: {until}");
    }
    assert_eq!(api("histogram")["total"], log.len());
    let lanes = api("lanes");
    assert!(lanes["unwatched"].as_array().unwrap().iter().any(|gap| gap["why"] == "stopped"), "{}", lanes["unwatched"]);
    drop(page);
    assert!(fs::read(daemon.state().join("journal.db")).unwrap() == before, "it only reads");
}
