//! The shared log in a bucket.

use std::fs;
use std::path::PathBuf;

use decklog::core::shared_log::SharedLog;
use decklog::sink::registry::SinkKind;
use serde_json::json;
use tempfile::TempDir;

use super::start::{KEY, S3, SECRET};
use crate::ha;
use crate::proxy::Proxy;
use crate::shared::{self, Place};

/// The logs of one sink, at a port of the server or of what is before it.
struct Logs {
    port: u16,
    bucket: PathBuf,
    meta: PathBuf,
    dir: TempDir,
}

impl Logs {
    /// In a bucket of its own, which is there already where another one has it.
    async fn new(far: &S3, port: u16) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let text = format!("[default]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n");
        fs::write(dir.path().join("aws"), text).unwrap();
        let at = |name: &str| far.dir.path().join(name).join("shared-logs");
        let logs = Self { port, bucket: at("root"), meta: at("meta"), dir };
        if !logs.bucket.exists() {
            logs.kind().open().unwrap().provision().await.unwrap();
        }
        logs
    }

    fn kind(&self) -> SinkKind {
        let config = json!({
            "type": "s3",
            "url": "s3://shared-logs/log",
            "endpoint": format!("http://127.0.0.1:{}", self.port),
            "credentials_file": self.dir.path().join("aws"),
        });
        serde_json::from_value(config).unwrap()
    }
}

impl Place for Logs {
    fn open(&self, cluster: &str) -> Box<dyn SharedLog> {
        self.kind().settings().shared_log("archive", cluster).unwrap().unwrap()
    }

    async fn forget(&self, cluster: &str, from: u64) {
        for number in from.. {
            let key = format!("log/shared/{cluster}/units/{number:020}");
            if fs::remove_file(self.bucket.join(&key)).is_err() {
                break;
            }
            fs::remove_dir_all(self.meta.join(&key)).unwrap();
        }
    }

    async fn lose(&self, cluster: &str, units: &[u64]) {
        for number in units {
            let key = format!("log/shared/{cluster}/units/{number:020}");
            for (part, below) in [("object", &self.bucket), ("meta", &self.meta)] {
                fs::rename(below.join(&key), self.dir.path().join(format!("{part}-{number}"))).unwrap();
            }
        }
    }

    async fn put_back(&self, cluster: &str, units: &[u64]) -> bool {
        for number in units {
            let key = format!("log/shared/{cluster}/units/{number:020}");
            for (part, below) in [("object", &self.bucket), ("meta", &self.meta)] {
                fs::rename(self.dir.path().join(format!("{part}-{number}")), below.join(&key)).unwrap();
            }
        }
        true
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s3_shared_log() {
    let far = S3::start().await;
    let logs = Logs::new(&far, far.server.port()).await;
    shared::keeps_what_it_promises(&logs).await;
    println!("an append of 1 KB and of 1 MB: {:?}", shared::latency(&logs).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn s3_shared_log_answers_cut() {
    let far = S3::start().await;
    let proxy = Proxy::start(far.server.port()).await;
    let straight = Logs::new(&far, far.server.port()).await;
    let through = Logs::new(&far, proxy.port()).await;
    shared::lasts(&through, &straight, "cut", async |reached| proxy.cuts(reached).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s3_shared_log_killed() {
    let mut far = S3::start().await;
    let logs = Logs::new(&far, far.server.port()).await;
    ha::outlives_kills(&logs, "killed", &mut far.server).await;
}
