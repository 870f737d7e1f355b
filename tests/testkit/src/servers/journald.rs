//! Starts a journald.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::server::Server;

/// Puts a directory of the test in the place of /run, and becomes journald.
const BEGIN: &str = r#"
set -e
mount --make-rprivate /
mount --bind "$1/run" /run
mount --bind "$1/journald.conf" /etc/systemd/journald.conf
exec /lib/systemd/systemd-journald
"#;

pub struct Journald {
    pub server: Server,
    pub dir: TempDir,
}

impl Journald {
    pub async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("run/systemd/journal")).unwrap();
        fs::create_dir_all(dir.path().join("run/log/journal")).unwrap();
        let config = "[Journal]\nStorage=volatile\nReadKMsg=no\nAudit=no\nRateLimitIntervalSec=0\nForwardToSyslog=no\n\
                      ForwardToWall=no\nRuntimeMaxUse=256M\n";
        fs::write(dir.path().join("journald.conf"), config).unwrap();
        let socket = socket_in(dir.path());
        let answers = move || {
            let connected = UnixDatagram::unbound().and_then(|ours| ours.connect(&socket));
            connected.map_err(|error| error.to_string())
        };
        let root = dir.path().to_owned();
        let server = Server::without_port("journald", dir.path(), answers, move || {
            let mut command = Command::new("unshare");
            if !rustix::process::geteuid().is_root() {
                command.arg("--map-root-user");
            }
            command.args(["--mount", "bash", "-c", BEGIN, "journald"]).arg(&root);
            command
        })
        .await;
        Self { server, dir }
    }
}

pub fn socket_in(dir: &Path) -> PathBuf {
    dir.join("run/systemd/journal/socket")
}
