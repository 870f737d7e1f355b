//! Starts an OpenSearch.

use std::process::Command;

use reqwest::Method;
use serde_json::Value;
use tempfile::TempDir;

use crate::server::{Server, free_port, made};
use crate::support::until;

pub struct OpenSearch {
    pub server: Server,
    pub dir: TempDir,
    client: reqwest::Client,
}

impl OpenSearch {
    pub async fn start(settings: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (program, port, transport) = (made("opensearch").join("opensearch"), free_port(), free_port());
        let (data, settings) = (dir.path().join("node"), settings.iter().map(|text| (*text).to_owned()));
        let settings: Vec<String> = settings.collect();
        let command = move || {
            let mut command = Command::new(&program);
            command.args([port.to_string(), transport.to_string()]).arg(&data).args(&settings);
            command
        };
        let server = Server::start("opensearch", dir.path(), port, command).await;
        decklog::core::net::install_crypto_provider();
        let client = reqwest::Client::builder().tls_certs_only([]).no_proxy().build().unwrap();
        let search = Self { server, dir, client };
        search.is_up().await;
        search
    }

    /// Waits until it knows its indices.
    pub async fn is_up(&self) {
        until("the cluster to be up", async || match self.ask(Method::GET, "_cluster/health", None).await? {
            (200, health) if health["status"] != "red" => Ok(()),
            (status, health) => Err(format!("{status} {health}")),
        })
        .await;
    }

    pub async fn ask(&self, method: Method, path: &str, body: Option<Value>) -> Result<(u16, Value), String> {
        let mut request = self.client.request(method, format!("http://127.0.0.1:{}/{path}", self.server.port()));
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body.to_string());
        }
        let response = request.send().await.map_err(|error| error.to_string())?;
        let (status, text) = (response.status().as_u16(), response.text().await.map_err(|error| error.to_string())?);
        Ok((status, serde_json::from_str(&text).unwrap_or(Value::Null)))
    }
}
