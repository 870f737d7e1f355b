//! Starts a Redis.

use std::path::PathBuf;
use std::process::Command;

use ::redis::aio::MultiplexedConnection;
use tempfile::TempDir;

use crate::server::{Server, free_port};
use crate::support::until;

pub struct Redis {
    pub server: Server,
    pub dir: TempDir,
    /// Whom a sink trusts, where the server is reached over TLS.
    pub authority: Option<PathBuf>,
    /// The port for TLS.
    pub secure: u16,
}

impl Redis {
    pub async fn start() -> Self {
        Self::start_with(&[], false).await
    }

    /// With more on the command line, at the end of which comes a port for TLS.
    pub async fn start_with(more: &[&str], tls: bool) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (port, secure, data) = (free_port(), free_port(), dir.path().to_owned());
        let mut more: Vec<String> = more.iter().map(|argument| (*argument).to_owned()).collect();
        if tls {
            more.push(secure.to_string());
        }
        let server = Server::start("redis", dir.path(), port, move || {
            let mut command = Command::new("redis-server");
            command.args(["--bind", "127.0.0.1", "--appendonly", "yes", "--appendfsync", "always", "--save", ""]);
            command.args(["--port", &port.to_string(), "--dir"]).arg(&data).args(&more);
            command
        })
        .await;
        let redis = Self { server, dir, authority: None, secure };
        redis.loaded().await;
        redis
    }

    /// It listens before it has read its data.
    pub async fn loaded(&self) {
        until("redis to have its data", async || {
            let mut ping = self.connect().await?;
            ::redis::cmd("PING").exec_async(&mut ping).await.map_err(|error| error.to_string())
        })
        .await;
    }

    pub async fn connect(&self) -> Result<MultiplexedConnection, String> {
        let client = ::redis::Client::open(format!("redis://127.0.0.1:{}/", self.server.port())).unwrap();
        client.get_multiplexed_async_connection().await.map_err(|error| error.to_string())
    }
}
