//! Starts a server of NATS with JetStream.

use std::fs;
use std::process::Command;

use tempfile::TempDir;

use crate::server::{Server, free_port, made};

pub const NEW: &str = "2.15.2";
pub const OLD: &str = "2.9.10";

pub struct Nats {
    pub server: Server,
    pub dir: TempDir,
}

impl Nats {
    pub async fn start(version: &'static str) -> Self {
        Self::with(version, "").await
    }

    /// With more lines in its configuration; `DIR` in them is its directory.
    pub async fn with(version: &'static str, more: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (binary, port) = (made("nats").join(format!("nats-server-{version}")), free_port());
        let (config, store) = (dir.path().join("nats.conf"), dir.path().join("store"));
        let more = more.replace("DIR", dir.path().to_str().unwrap());
        fs::write(&config, format!("listen: 127.0.0.1:{port}\njetstream {{ store_dir: {store:?} }}\n{more}\n"))
            .unwrap();
        let server = Server::start("nats", dir.path(), port, move || {
            let mut command = Command::new(&binary);
            command.arg("-c").arg(&config);
            command
        })
        .await;
        Self { server, dir }
    }
}
