//! Starts an rsyslog.

use std::fs;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

use crate::certs;
use crate::server::{Server, free_port};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Tcp,
    Tls,
    Datagrams,
    Stream,
}

pub struct Rsyslog {
    pub server: Server,
    pub dir: TempDir,
    pub way: Way,
    /// Whether the sink goes to the server itself and not through what cuts connections: it takes what a server that is
    /// away does not.
    pub straight: bool,
}

impl Rsyslog {
    pub async fn start(way: Way) -> Self {
        Self::start_with(way, "256k", "server").await
    }

    /// `longest` is what the server takes whole.
    pub async fn start_with(way: Way, longest: &str, certificate: &str) -> Self {
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

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}
