//! The `syslog` sink, against rsyslog: over each of the ways that lead there.

use std::fs;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::certs;
use crate::server::{Server, free_port};
use crate::support::{Daemon, cluster, until};
use crate::trial::{self, Far, Promise, Trial};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Tcp,
    Tls,
    Datagrams,
    Stream,
}

struct Rsyslog {
    server: Server,
    dir: TempDir,
    way: Way,
    /// Whether the sink goes to the server itself and not through what cuts connections: it takes what a server that is
    /// away does not.
    straight: bool,
}

impl Rsyslog {
    async fn start(way: Way) -> Self {
        Self::start_with(way, "256k", "server").await
    }

    /// `longest` is what the server takes whole.
    async fn start_with(way: Way, longest: &str, certificate: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        certs::make(dir.path());
        let path = |name: &str| dir.path().join(name).display().to_string();
        let port = free_port();
        let (tcp, tls) = match way {
            Way::Tcp => {
                (format!("input(type=\"imptcp\" port=\"{port}\" address=\"127.0.0.1\" ruleset=\"r\")"), String::new())
            }
            Way::Tls => (
                String::new(),
                format!(
                    "module(load=\"imtcp\" streamDriver.name=\"ossl\" streamDriver.mode=\"1\" streamDriver.authMode=\"anon\")\n\
                     input(type=\"imtcp\" port=\"{port}\" address=\"127.0.0.1\" ruleset=\"r\")"
                ),
            ),
            Way::Datagrams | Way::Stream => Default::default(),
        };
        let config = format!(
            "global(parser.escapeControlCharactersOnReceive=\"off\" workDirectory=\"{dir}\" maxMessageSize=\"{longest}\"\n\
             defaultNetstreamDriverCAFile=\"{ca}\" defaultNetstreamDriverCertFile=\"{cert}\" defaultNetstreamDriverKeyFile=\"{key}\")\n\
             module(load=\"imptcp\")\nmodule(load=\"imuxsock\" SysSock.Use=\"off\")\n\
             template(name=\"j\" type=\"list\" option.jsonf=\"on\") {{\n\
             property(outname=\"app\" name=\"app-name\" format=\"jsonf\")\n\
             property(outname=\"pri\" name=\"pri\" format=\"jsonf\")\n\
             property(outname=\"time\" name=\"timereported\" dateFormat=\"rfc3339\" format=\"jsonf\")\n\
             property(outname=\"host\" name=\"hostname\" format=\"jsonf\")\n\
             property(outname=\"msgid\" name=\"msgid\" format=\"jsonf\")\n\
             property(outname=\"sd\" name=\"structured-data\" format=\"jsonf\")\n\
             property(outname=\"msg\" name=\"msg\" format=\"jsonf\")\n}}\n\
             ruleset(name=\"r\") {{ action(type=\"omfile\" file=\"{out}\" template=\"j\" asyncWriting=\"off\") }}\n\
             {tcp}\n{tls}\n\
             input(type=\"imptcp\" path=\"{stream}\" unlink=\"on\" ruleset=\"r\")\n\
             input(type=\"imuxsock\" Socket=\"{datagrams}\" ruleset=\"r\" useSpecialParser=\"off\" IgnoreTimestamp=\"off\" parseHostname=\"on\"\n\
             RateLimit.Interval=\"0\")\n",
            dir = dir.path().display(),
            ca = path("ca.pem"),
            cert = path(&format!("{certificate}.pem")),
            key = path(&format!("{certificate}.key")),
            out = path("out.json"),
            stream = path("stream"),
            datagrams = path("datagrams"),
        );
        fs::write(path("rsyslog.conf"), config).unwrap();
        let (pid, conf) = (path("pid"), path("rsyslog.conf"));
        let command = move || {
            let mut command = Command::new("rsyslogd");
            command.args(["-n", "-i", &pid, "-f", &conf]);
            command
        };
        let server = match way {
            Way::Tcp | Way::Tls => Server::start("rsyslog", dir.path(), port, command).await,
            Way::Datagrams => {
                let path = dir.path().join("datagrams");
                let connects = move || UnixDatagram::unbound().and_then(|socket| socket.connect(&path));
                let answers = move || connects().map_err(|error| error.to_string());
                Server::without_port("rsyslog", dir.path(), answers, command).await
            }
            Way::Stream => {
                let path = dir.path().join("stream");
                let answers = move || UnixStream::connect(&path).map(drop).map_err(|error| error.to_string());
                Server::without_port("rsyslog", dir.path(), answers, command).await
            }
        };
        Self { server, dir, way, straight: false }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

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
            if halts { "halt" } else { "set_aside" }
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
        (tls(server.port(), "stranger.pem"), "invalid peer certificate"),
        (
            format!("url = \"tls://127.0.0.1:{}\"\nca_file = {:?}", expired.port(), expired.path("ca.pem")),
            "certificate expired",
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
    assert!(detail.contains("invalid peer certificate"), "{detail}");
    fs::write(trial.far.path("ca.pem"), good).unwrap();
    trial.judged().await;
}
