//! Starts an OpenTelemetry collector.

use std::collections::HashMap;
use std::fs;
use std::process::Command;
use std::sync::Mutex;

use tempfile::TempDir;

use crate::server::{Server, free_port, made};

pub struct Collector {
    pub server: Server,
    pub dir: TempDir,
    pub protocol: &'static str,
    /// How much of its file there was when a run began.
    pub began: Mutex<HashMap<String, usize>>,
}

impl Collector {
    pub async fn start(protocol: &'static str) -> Self {
        Self::with(protocol, tempfile::tempdir().unwrap(), "").await
    }

    /// `settings` are further ones of the receiver.
    pub async fn with(protocol: &'static str, dir: TempDir, settings: &str) -> Self {
        let (program, port) = (made("otel").join("otelcol"), free_port());
        let config = dir.path().join("otelcol.yaml");
        let out = dir.path().join("out.jsonl");
        fs::write(
            &config,
            format!(
                "receivers:\n  otlp:\n    protocols:\n      {protocol}:\n        endpoint: 127.0.0.1:{port}\n{settings}\
                 exporters:\n  jsonl: {{path: {out:?}}}\n\
                 service:\n  telemetry:\n    metrics: {{level: none}}\n  pipelines:\n    logs: {{receivers: [otlp], exporters: [jsonl]}}\n"
            ),
        )
        .unwrap();
        let command = move || {
            let mut command = Command::new(&program);
            command.arg("--config").arg(&config);
            command
        };
        let server = Server::start("otelcol", dir.path(), port, command).await;
        Self { server, dir, protocol, began: Mutex::default() }
    }
}
