//! Starts a server of S3.

use std::fs;
use std::process::Command;

use tempfile::TempDir;

use crate::server::{Server, free_port, made};

pub const KEY: &str = "testkey";
pub const SECRET: &str = "testsecret";

pub struct S3 {
    pub server: Server,
    pub dir: TempDir,
}

impl S3 {
    pub async fn start() -> Self {
        Self::with(Vec::new()).await
    }

    pub async fn with(more: Vec<String>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (binary, port, root) = (made("s3").join("versitygw"), free_port(), dir.path().join("root"));
        fs::create_dir(&root).unwrap();
        let meta = dir.path().join("meta");
        fs::create_dir(&meta).unwrap();
        let server = Server::start("s3", dir.path(), port, move || {
            let mut command = Command::new(&binary);
            command.args(["--port", &format!("127.0.0.1:{port}"), "--access", KEY, "--secret", SECRET]);
            command.args(["--region", "us-east-1"]).args(&more).arg("posix").arg("--sidecar").arg(&meta).arg(&root);
            command
        })
        .await;
        Self { server, dir }
    }
}
