//! Readers whom a real API server reviews: what they may list there is what they read.

use std::fs;
use std::process::Output;

use serde_json::json;
use tokio::process::Command;

use crate::decklog::Decklog;
use crate::harness::{Cluster, LIMIT, until};
use crate::ports::free_port;

/// In a cluster with the namespaces `shop` and `default`.
pub async fn scenario(cluster: &Cluster) {
    for (namespace, name) in [("shop", "seen-by-them"), ("default", "hidden-from-them")] {
        let maps = format!("/api/v1/namespaces/{namespace}/configmaps");
        cluster.create(&maps, &json!({"metadata": {"name": name}})).await;
    }
    let port = free_port();
    let mut daemon = Decklog::new(cluster, "paused", "resources = [\"namespaces\", \"configmaps\"]");
    daemon.configure(&format!("\n[http]\nlisten = \"127.0.0.1:{port}\"\nreading = true\nauthorize = \"cluster\"\n"));
    daemon.start();
    daemon.ready().await;

    let server = format!("http://127.0.0.1:{port}");
    let read = async |token: &str, arguments: &[&str]| -> Output {
        let file = cluster.path("token-of-reader");
        fs::write(&file, token).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_decklog"));
        command.args(["--server", &server, "--token-file"]).arg(&file).args(arguments).env_clear().env("TZ", "UTC");
        command.output().await.unwrap()
    };
    let said = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();

    let stranger = read("a-token-that-nobody-knows", &["tail"]).await;
    assert!(stranger.status.code() == Some(78) && said(&stranger).contains("does not know your token"), "{stranger:?}");
    let all = read("admin-token", &["tail", "-o", "json"]).await;
    assert_eq!(all.stdout, daemon.command(&["tail", "-o", "json"]).stdout, "{}", said(&all));

    let none = read("restricted-token", &["tail", "-o", "json"]).await;
    assert!(none.stdout.is_empty(), "{none:?}");
    cluster.kubectl_must(&["create", "role", "lists", "-n", "shop", "--verb=list", "--resource=configmaps"]).await;
    cluster.kubectl_must(&["create", "rolebinding", "lists", "-n", "shop", "--role=lists", "--user=restricted"]).await;
    let some = until("the right to be known", LIMIT, async || {
        let output = read("restricted-token", &["tail", "-o", "json"]).await;
        if output.stdout.is_empty() { Err(said(&output)) } else { Ok(output.stdout) }
    })
    .await;
    let some = String::from_utf8(some).unwrap();
    assert!(some.contains("seen-by-them") && some.lines().all(|line| line.contains(r#""namespace":"shop""#)), "{some}");
    for (arguments, says) in
        [(&["status"][..], "about the whole log"), (&["log", "cm/hidden-from-them", "-n", "default"], "knows no")]
    {
        let refused = read("restricted-token", arguments).await;
        assert!(!refused.status.success() && said(&refused).contains(says), "{refused:?}");
        assert!(!said(&refused).contains("hidden-from-them;"), "{refused:?}");
    }
    daemon.stop().await;
}
