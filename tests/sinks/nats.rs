//! A stream of NATS JetStream, on a new server and on one as old as distributions carry it.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use async_nats::ConnectOptions;
use async_nats::jetstream::stream::{Config, RetentionPolicy};
use async_nats::jetstream::{self, Context};
use bytes::Bytes;
use tempfile::TempDir;

use crate::server::{Server, free_port, made};
use crate::support::{Daemon, cluster, until};
use crate::trial::{self, Far, Promise, Trial};

const NEW: &str = "2.15.2";
const OLD: &str = "2.9.10";

struct Nats {
    server: Server,
    dir: TempDir,
}

impl Nats {
    async fn start(version: &'static str) -> Self {
        Self::with(version, "").await
    }

    /// With more lines in its configuration; `DIR` in them is its directory.
    async fn with(version: &'static str, more: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (binary, port) = (made("nats").join(format!("nats-server-{version}")), free_port());
        let (config, store) = (dir.path().join("nats.conf"), dir.path().join("store"));
        let more = more.replace("DIR", dir.path().to_str().unwrap());
        fs::write(&config, format!("listen: 127.0.0.1:{port}\njetstream {{ store_dir: {store:?} }}\n{more}\n")).unwrap();
        let server = Server::start("nats", dir.path(), port, move || {
            let mut command = Command::new(&binary);
            command.arg("-c").arg(&config);
            command
        })
        .await;
        Self { server, dir }
    }

    /// As a consumer has it.
    async fn context(&self) -> Context {
        self.context_as(ConnectOptions::new()).await
    }

    async fn context_as(&self, options: ConnectOptions) -> Context {
        let address = format!("nats://127.0.0.1:{}", self.server.port());
        jetstream::new(options.connect(address).await.unwrap())
    }

    /// The payload of every message that there is, in their order.
    async fn messages(&self, stream: &str) -> Result<Vec<String>, String> {
        let stream = self.context().await.get_stream(stream).await.map_err(|error| error.to_string())?;
        let mut lines = Vec::new();
        for sequence in 1..=stream.cached_info().state.last_sequence {
            let message = stream.get_raw_message(sequence).await.map_err(|error| error.to_string())?;
            lines.push(String::from_utf8(message.payload.to_vec()).unwrap());
        }
        Ok(lines)
    }
}

fn sink(port: u16, stream: &str) -> String {
    format!(
        "type = \"nats\"\naddresses = [\"nats://127.0.0.1:{port}\"]\nstream = \"{stream}\"\nsubject = \"{stream}.{{resource}}.{{name}}\"\n"
    )
}

impl Far for Nats {
    fn promise(&self) -> Promise {
        Promise::ExactlyOnce
    }

    fn port(&self) -> u16 {
        self.server.port()
    }

    fn sink(&self, port: u16, run: &str, _dir: &Path) -> String {
        sink(port, run)
    }

    async fn prepare(&self, daemon: &Daemon, _run: &str) {
        daemon.command(&["sink", "init", "far"]).await.done();
    }

    fn kill(&mut self) {
        self.server.kill();
    }

    async fn restart(&mut self) {
        self.server.restart().await;
    }

    async fn consumed(&self, run: &str) -> Result<Vec<String>, String> {
        self.messages(run).await
    }
}

#[tokio::test]
async fn nats_undisturbed() {
    for version in [NEW, OLD] {
        trial::undisturbed(&mut Nats::start(version).await).await;
    }
}

#[tokio::test]
async fn nats_is_killed() {
    for version in [NEW, OLD] {
        trial::server_killed(&mut Nats::start(version).await).await;
    }
}

#[tokio::test]
async fn nats_answers_are_cut() {
    for version in [NEW, OLD] {
        trial::answers_cut(&mut Nats::start(version).await).await;
    }
}

#[tokio::test]
async fn nats_and_a_daemon_that_is_killed() {
    for version in [NEW, OLD] {
        trial::daemon_killed(&mut Nats::start(version).await).await;
    }
}

#[tokio::test]
async fn nats_and_a_kill_at_every_exchange() {
    trial::killed_at_every_exchange(&mut Nats::start(NEW).await).await;
}

#[tokio::test]
async fn an_old_nats_and_a_kill_at_every_exchange() {
    trial::killed_at_every_exchange(&mut Nats::start(OLD).await).await;
}
