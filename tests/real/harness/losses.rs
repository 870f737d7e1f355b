//! An API server that loses events of etcd: the proxy of `tests/servers/etcd-proxy` between the two, and what it is asked for.

use std::path::Path;

use serde::Deserialize;
use serde_json::json;

use super::{Cluster, LIMIT, Process, plain_http, until};
use crate::ports::free_port;

/// What was written, as etcd tells writes apart.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Write {
    Create,
    Update,
    Delete,
}

/// An event that the API server did not get.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Lost {
    pub key: String,
    #[serde(rename = "type")]
    pub write: Write,
    pub create_revision: u64,
    /// The revision of the write, which is the version that it gave to the object.
    pub mod_revision: u64,
}

/// See the module.
pub(super) struct Losses {
    port: u16,
    control: String,
    http: reqwest::Client,
    _proxy: Process,
}

impl Losses {
    pub(super) async fn start(etcd: u16, log: &Path) -> Self {
        let (port, control) = (free_port(), free_port());
        let arguments = [
            format!("-listen=127.0.0.1:{port}"),
            format!("-etcd=127.0.0.1:{etcd}"),
            format!("-control=127.0.0.1:{control}"),
        ];
        let program = decklog_testkit::server::made("etcd-proxy").join("etcd-proxy");
        let proxy = Process::start("etcd-proxy", &program, &arguments, log, |_| {});
        let losses = Self { port, control: format!("http://127.0.0.1:{control}"), http: plain_http(), _proxy: proxy };
        until("the proxy of etcd", LIMIT, async || losses.lost().await.map(drop)).await;
        losses
    }

    /// Where the API server finds etcd.
    pub(super) fn port(&self) -> u16 {
        self.port
    }

    async fn lost(&self) -> Result<Vec<Lost>, String> {
        let answer = self.http.get(format!("{}/dropped", self.control)).send().await;
        let text = answer.map_err(|error| error.to_string())?.text().await.map_err(|error| error.to_string())?;
        serde_json::from_str(&text).map_err(|error| format!("{error}: {text}"))
    }
}

impl Cluster {
    fn losses(&self) -> &Losses {
        self.losses.as_ref().expect("the cluster was started without losses")
    }

    /// The API server does not get the next event of this kind of the object at `key`, which is etcd's (`/registry/…`).
    pub async fn lose(&self, key: &str, write: Write) {
        let losses = self.losses();
        let write = format!("{write:?}").to_lowercase();
        let order = json!({"key": key, "type": write, "count": 1}).to_string();
        let answer = losses.http.post(format!("{}/drop", losses.control)).body(order).send().await.unwrap();
        let (status, text) = (answer.status(), answer.text().await.unwrap());
        assert!(status.is_success(), "the proxy of etcd: {status} {text}");
    }

    /// What the API server did not get so far, in order.
    pub async fn lost(&self) -> Vec<Lost> {
        self.losses().lost().await.unwrap()
    }
}
