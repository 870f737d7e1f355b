//! The `redis` sink, against Redis.

use std::path::Path;
use std::process::Command;

use ::redis::aio::MultiplexedConnection;
use tempfile::TempDir;

use crate::server::{Server, free_port};
use crate::trial::{self, Far, Promise};

struct Redis {
    server: Server,
    _dir: TempDir,
}

impl Redis {
    async fn start() -> Self {
        Self::start_with(&[]).await
    }

    async fn start_with(more: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (port, data) = (free_port(), dir.path().to_owned());
        let more: Vec<String> = more.iter().map(|argument| (*argument).to_owned()).collect();
        let server = Server::start("redis", dir.path(), port, move || {
            let mut command = Command::new("redis-server");
            command.args(["--bind", "127.0.0.1", "--appendonly", "yes", "--appendfsync", "always", "--save", ""]);
            command.args(["--port", &port.to_string(), "--dir"]).arg(&data).args(&more);
            command
        })
        .await;
        Self { server, _dir: dir }
    }

    async fn connect(&self) -> Result<MultiplexedConnection, String> {
        let client = ::redis::Client::open(format!("redis://127.0.0.1:{}/", self.server.port())).unwrap();
        client.get_multiplexed_async_connection().await.map_err(|error| error.to_string())
    }
}

impl Far for Redis {
    fn promise(&self) -> Promise {
        Promise::AtLeastOnce
    }

    fn port(&self) -> u16 {
        self.server.port()
    }

    fn sink(&self, port: u16, run: &str, _dir: &Path) -> String {
        format!("type = \"redis\"\nurl = \"redis://127.0.0.1:{port}\"\nstream = \"{run}\"\nbatch_size = 10")
    }

    fn kill(&mut self) {
        self.server.kill();
    }

    async fn restart(&mut self) {
        self.server.restart().await;
    }

    async fn consumed(&self, run: &str) -> Result<Vec<String>, String> {
        let mut range = ::redis::cmd("XRANGE");
        range.arg(run).arg("-").arg("+");
        let entries: Result<Vec<(String, Vec<(String, String)>)>, _> =
            range.query_async(&mut self.connect().await?).await;
        let entries = entries.map_err(|error| error.to_string())?;
        let line = |(id, fields): (String, Vec<(String, String)>)| {
            let names: Vec<&str> = fields.iter().map(|(name, _)| name.as_str()).collect();
            assert_eq!(names, ["id", "seq", "epoch", "type", "entry"]);
            assert!(id.ends_with(&format!("-{}", fields[1].1)), "{id} {}", fields[1].1);
            fields[4].1.clone()
        };
        Ok(entries.into_iter().map(line).collect())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_undisturbed() {
    trial::undisturbed(&mut Redis::start().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_server_killed() {
    trial::server_killed(&mut Redis::start().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_answers_cut() {
    trial::answers_cut(&mut Redis::start().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_daemon_killed() {
    trial::daemon_killed(&mut Redis::start().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_killed_at_every_exchange() {
    trial::killed_at_every_exchange(&mut Redis::start().await).await;
}
