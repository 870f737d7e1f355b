//! Segments in a bucket, and in a folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::judge::Entry;
use crate::server::{Server, free_port, made};
use crate::support::{Daemon, cluster, until};
use crate::trial::{self, Far, Promise, Trial};

const KEY: &str = "testkey";
const SECRET: &str = "testsecret";

/// Every segment below a directory, in the order of what it begins with.
fn segments(dir: &Path) -> Vec<PathBuf> {
    fn walk(dir: &Path, into: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(dir).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, into);
            } else if path.to_str().is_some_and(|name| name.ends_with(".jsonl.zst")) {
                into.push(path);
            }
        }
    }
    let mut paths = Vec::new();
    walk(dir, &mut paths);
    paths.sort_by_key(|path| path.file_name().unwrap().to_owned());
    paths
}

fn lines(segments: &[PathBuf]) -> Vec<String> {
    let text = |path: &PathBuf| String::from_utf8(zstd::decode_all(&fs::read(path).unwrap()[..]).unwrap()).unwrap();
    segments.iter().flat_map(|path| text(path).lines().map(str::to_owned).collect::<Vec<_>>()).collect()
}

struct S3 {
    server: Server,
    dir: TempDir,
}

impl S3 {
    async fn start() -> Self {
        Self::with(Vec::new()).await
    }

    async fn with(more: Vec<String>) -> Self {
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

    fn bucket(&self, run: &str) -> PathBuf {
        self.dir.path().join("root").join(format!("bucket-{run}"))
    }
}

/// The keys of a sink; its credentials are in `dir`.
fn sink(scheme: &str, port: u16, run: &str, dir: &Path) -> String {
    let credentials = dir.join("aws");
    let key = format!("[default]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n");
    fs::write(&credentials, key).unwrap();
    format!(
        "type = \"s3\"\nurl = \"s3://bucket-{run}/log\"\nendpoint = \"{scheme}://127.0.0.1:{port}\"\ncredentials_file = {credentials:?}\nsegment_age = \"50ms\"\n"
    )
}

impl Far for S3 {
    fn promise(&self) -> Promise {
        Promise::ExactlyOnce
    }

    fn port(&self) -> u16 {
        self.server.port()
    }

    fn sink(&self, port: u16, run: &str, dir: &Path) -> String {
        sink("http", port, run, dir)
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
        Ok(lines(&segments(&self.bucket(run))))
    }
}

/// A folder has no server that could be killed.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }
}

impl Far for Folder {
    fn promise(&self) -> Promise {
        Promise::ExactlyOnce
    }

    fn port(&self) -> u16 {
        0
    }

    fn sink(&self, _port: u16, run: &str, _dir: &Path) -> String {
        let url = format!("file://{}", self.0.path().join(run).display());
        format!("type = \"s3\"\nurl = {url:?}\nsegment_age = \"50ms\"\npartition = \"none\"\n")
    }

    async fn prepare(&self, daemon: &Daemon, _run: &str) {
        daemon.command(&["sink", "init", "far"]).await.done();
    }

    fn kill(&mut self) {}

    async fn restart(&mut self) {}

    async fn consumed(&self, run: &str) -> Result<Vec<String>, String> {
        Ok(lines(&segments(&self.0.path().join(run))))
    }
}

#[tokio::test]
async fn s3_undisturbed() {
    trial::undisturbed(&mut S3::start().await).await;
}

#[tokio::test]
async fn s3_is_killed() {
    trial::server_killed(&mut S3::start().await).await;
}

#[tokio::test]
async fn s3_answers_are_cut() {
    trial::answers_cut(&mut S3::start().await).await;
}

#[tokio::test]
async fn s3_and_a_daemon_that_is_killed() {
    trial::daemon_killed(&mut S3::start().await).await;
}

#[tokio::test]
async fn s3_and_a_kill_at_every_exchange() {
    trial::killed_at_every_exchange(&mut S3::start().await).await;
}

#[tokio::test]
async fn a_folder_undisturbed() {
    trial::undisturbed(&mut Folder::new()).await;
}

#[tokio::test]
async fn a_folder_and_a_daemon_that_is_killed() {
    trial::daemon_killed(&mut Folder::new()).await;
}
