//! The `syslog` sink, against rsyslog: over each of the ways that lead there.

pub(crate) use decklog_testkit::servers::syslog as start;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::support::{Daemon, cluster, until};
use crate::trial::{self, Far, Promise, Trial};
use start::{Rsyslog, Way};

/// What these tests do with the server.
trait RsyslogTests: Sized {
    fn url(&self, port: u16) -> String;
    fn came(&self, run: &str) -> Vec<Value>;
}

impl RsyslogTests for Rsyslog {
    fn url(&self, port: u16) -> String {
        let port = if self.straight { self.server.port() } else { port };
        match self.way {
            Way::Tcp => format!("url = \"tcp://127.0.0.1:{port}\""),
            Way::Tls => format!("url = \"tls://127.0.0.1:{port}\"\nca_file = {:?}", self.path("ca.pem")),
            Way::Datagrams => format!("url = \"unix://{}\"", self.path("datagrams").display()),
            Way::Stream => format!("url = \"unix://{}\"", self.path("stream").display()),
        }
    }

    /// Everything that came, as the server understood it.
    fn came(&self, run: &str) -> Vec<Value> {
        let text = fs::read_to_string(self.path("out.json")).unwrap_or_default();
        // A server that was killed may have left half a line.
        let read = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        read.filter(|line| line["app"] == run).collect()
    }
}

impl Far for Rsyslog {
    fn promise(&self) -> Promise {
        Promise::BestEffort
    }

    fn port(&self) -> u16 {
        self.server.port()
    }

    fn sink(&self, port: u16, run: &str, _dir: &Path) -> String {
        format!(
            "type = \"syslog\"\n{}\napp_name = \"{run}\"\nhostname = \"here\"\nmax_message_size = \"128KiB\"",
            self.url(port)
        )
    }

    fn kill(&mut self) {
        self.server.kill();
    }

    async fn restart(&mut self) {
        self.server.restart().await;
    }

    async fn consumed(&self, run: &str) -> Result<Vec<String>, String> {
        let line = |message: Value| {
            let line = message["msg"].as_str().unwrap().to_owned();
            let entry: Value = serde_json::from_str(&line).unwrap();
            let (pri, kind) = (if entry["type"] == "GAP" { "28" } else { "30" }, &entry["type"]);
            assert_eq!((&message["pri"], &message["msgid"], &message["host"]), (&pri.into(), kind, &"here".into()));
            let time = message["time"].as_str().unwrap().replace("+00:00", "Z");
            assert_eq!(entry["time"], time);
            let text = |key: &str| entry[key].as_str().unwrap().to_owned();
            let data = format!(
                "[decklog@32473 id=\"{}\" seq=\"{}\" epoch=\"{}\" type=\"{}\"]",
                text("id"),
                entry["seq"],
                text("epoch"),
                text("type")
            );
            assert_eq!(message["sd"], data);
            line
        };
        Ok(self.came(run).into_iter().map(line).collect())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn syslog_undisturbed() {
    for way in [Way::Tcp, Way::Tls, Way::Datagrams, Way::Stream] {
        trial::undisturbed(&mut Rsyslog::start(way).await).await;
    }
}

/// Fault 77: the connection is cut.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn syslog_server_killed() {
    for way in [Way::Tcp, Way::Tls, Way::Datagrams, Way::Stream] {
        let mut server = Rsyslog::start(way).await;
        server.straight = true;
        trial::server_killed(&mut server).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn syslog_daemon_killed() {
    for way in [Way::Tls, Way::Datagrams] {
        trial::daemon_killed(&mut Rsyslog::start(way).await).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn syslog_killed_at_every_exchange() {
    trial::killed_at_every_exchange(&mut Rsyslog::start(Way::Tls).await).await;
}

/// What is longer than the server takes is never cut.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn syslog_entries_that_are_too_long_are_refused_whole() {
    let mut server = Rsyslog::start_with(Way::Tcp, "8k", "server").await;
    let sim = cluster().await;
    for (run, halts) in [("halts", true), ("aside", false)] {
        let rest = format!(
            "[[sink]]\nname = \"far\"\ntype = \"syslog\"\n{}\napp_name = \"{run}\"\non_refused = \"{}\"\n",
            server.url(server.port()),
            if halts { "halt" } else { "dead_letter" }
        );
        let mut daemon = Daemon::with(&sim, "resources = [\"configmaps\"]", &rest);
        daemon.start();
        daemon.ready().await;
        let map =
            |name: &str, value: &str| decklog::sim::objects::config_map("default", &format!("{run}-{name}"), value);
        for (name, value) in [("a", "x".to_owned()), ("b", "x".repeat(9000)), ("c", "x".to_owned())] {
            sim.create("configmaps", map(name, &value)).unwrap();
        }
        if halts {
            let detail = daemon.waits_for_state("sinks", "far", "halted").await;
            assert!(detail.contains("max_message_size (8192 bytes)") && detail.contains("payload"), "{detail}");
        }
        let wanted = |line: &Value| line["msg"].as_str().is_some_and(|msg| msg.contains(&format!("{run}-c")));
        until("the rest to come, or not", async || {
            let came = server.came(run);
            assert!(came.iter().all(|line| !line["msg"].as_str().unwrap().contains("xxxxxxxxxx")));
            if halts || came.iter().any(wanted) { Ok(()) } else { Err(format!("{came:?}")) }
        })
        .await;
        assert!(!halts || !server.came(run).iter().any(wanted));
        daemon.stop().await;
    }
    server.kill();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn syslog_servers_that_cannot_be_used_are_told_in_a_sentence() {
    let mut server = Rsyslog::start(Way::Tls).await;
    let expired = Rsyslog::start_with(Way::Tls, "8k", "expired").await;
    let sim = cluster().await;
    let tls = |port: u16, ca: &str| format!("url = \"tls://127.0.0.1:{port}\"\nca_file = {:?}", server.path(ca));
    let missing = server.path("missing");
    let cases = [
        (tls(server.port(), "ca.pem"), ""),
        (tls(server.port(), "stranger.pem"), "certificate is not signed by"),
        (
            format!("url = \"tls://127.0.0.1:{}\"\nca_file = {:?}", expired.port(), expired.path("ca.pem")),
            "certificate has expired, at 2021",
        ),
        ("url = \"tcp://nowhere.invalid:6514\"".to_owned(), "cannot connect to tcp://nowhere.invalid:6514"),
        (format!("url = \"unix://{}\"", missing.display()), "No such file"),
    ];
    for (url, says) in cases {
        let daemon = Daemon::with(
            &sim,
            "resources = [\"configmaps\"]",
            &format!("[[sink]]\nname = \"far\"\ntype = \"syslog\"\n{url}\n"),
        );
        let checked = daemon.command(&["check"]).await;
        let line = checked.out.lines().find(|line| line.contains("far")).unwrap().to_owned();
        assert!(line.contains(says) && line.starts_with("ok") == says.is_empty(), "{line}");
    }
    assert_eq!(server.came("decklog"), Vec::<Value>::new(), "a check sends nothing");
    server.kill();
}

/// The server's certificate is renewed, by another authority as well, and nothing is started again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn syslog_authorities_are_read_again_when_they_change() {
    let mut server = Rsyslog::start(Way::Tls).await;
    let good = fs::read(server.path("ca.pem")).unwrap();
    fs::copy(server.path("stranger.pem"), server.path("ca.pem")).unwrap();
    let mut trial = Trial::new(&mut server, "authorities").await;
    trial.daemon.start();
    trial.daemon.ready().await;
    trial.write(5);
    let detail = trial.daemon.waits_for_state("sinks", "far", "retrying").await;
    assert!(detail.contains("certificate is not signed by"), "{detail}");
    fs::write(trial.far.path("ca.pem"), good).unwrap();
    trial.judged().await;
}
