//! Words of `kubectl decklog` while they are typed: from the decklog that the command itself would find in the cluster.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Output, Stdio};
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use decklog::sim::objects;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio::task::JoinSet;

use crate::support::{Daemon, cluster, free_address, scope, until};

const TOKEN: &str = "the-token-of-a-laptop";

/// An API server that has one decklog, and leads to it with the token that it is shown.
async fn lead(State(server): State<Arc<String>>, method: Method, at: Uri, headers: HeaderMap, body: Bytes) -> Response {
    if headers.get(header::AUTHORIZATION).is_none_or(|token| token != &format!("Bearer {TOKEN}")) {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    if method == Method::GET && at.path() == "/api/v1/services" {
        assert_eq!(at.query(), Some("labelSelector=app%2Ekubernetes%2Eio%2Fname%3Ddecklog"));
        let service = json!({
            "metadata": {"namespace": "logs", "name": "decklog"},
            "spec": {"ports": [{"name": "http", "port": 9465}]},
        });
        return axum::Json(json!({"kind": "ServiceList", "items": [service]})).into_response();
    }
    let Some(question) = at.path().strip_prefix("/api/v1/namespaces/logs/services/decklog:http/proxy") else {
        return StatusCode::NOT_FOUND.into_response();
    };
    // In HTTP/1.0 an answer is what comes until the end.
    let head = format!(
        "{method} {question} HTTP/1.0\r\nhost: decklog\r\nauthorization: Bearer {TOKEN}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    let mut stream = TcpStream::connect(server.as_str()).await.unwrap();
    stream.write_all(&[head.as_bytes(), &body].concat()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let kind = head.lines().find_map(|line| line.strip_prefix("content-type: ")).unwrap_or_default();
    (StatusCode::from_u16(status).unwrap(), [(header::CONTENT_TYPE, kind)], body.to_owned()).into_response()
}

/// A laptop with a kubeconfig for this API server, kubectl's plugin, and nothing else.
fn laptop(api: SocketAddr) -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    let named = |value| json!([{"name": "test", "context": value, "cluster": value, "user": value}]);
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "test",
        "clusters": named(json!({"server": format!("http://{api}")})),
        "users": named(json!({"token": TOKEN})),
        "contexts": named(json!({"cluster": "test", "user": "test"})),
    });
    fs::write(home.path().join("kubeconfig"), config.to_string()).unwrap();
    symlink(decklog_testkit::program(), home.path().join("kubectl-decklog")).unwrap();
    home
}

/// Runs what kubectl runs while words are typed: the script of the package.
async fn typed(home: &Path, words: &[&str]) -> Output {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/packaging/kubectl_complete-decklog");
    let mut command = Command::new("/bin/sh");
    command.arg(script).args(words).current_dir(home).env_clear().env("HOME", home);
    command.env("PATH", format!("{}:/usr/bin:/bin", home.display())).env("KUBECONFIG", home.join("kubeconfig"));
    command.stdin(Stdio::null()).kill_on_drop(true).output().await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_completes_words_from_the_decklog_of_the_cluster() {
    let sim = cluster().await;
    let (started, address) = (sim.revision(), free_address());
    let mut daemon = Daemon::with(&sim, "resources = [\"configmaps\"]", "");
    fs::write(daemon.path("tokens"), TOKEN).unwrap();
    let http = format!("[http]\nlisten = {address:?}\nreading = true\ntoken_file = {:?}", daemon.path("tokens"));
    daemon.configure(&daemon.config("resources = [\"configmaps\"]", &http));
    daemon.start();
    daemon.ready().await;
    sim.create("configmaps", objects::config_map("shop", "settings", "1")).unwrap();
    daemon.catch_up(&sim, &scope(&sim, started, &["configmaps"])).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let api = listener.local_addr().unwrap();
    let router = Router::new().fallback(lead).with_state(Arc::new(address.to_string()));
    let mut serving = JoinSet::new();
    serving.spawn(async move { axum::serve(listener, router).await.unwrap() });
    let home = laptop(api);
    for (words, expected) in [
        (&["log", "cm", "s"][..], "settings\n:4\n"),
        (&["get", "cm/se"], "cm/settings\n:4\n"),
        (&["log", "-n", "sh"], "shop\n:4\n"),
        (&["--context", "test", "log", "cm", "s"], "settings\n:4\n"),
        // Nobody sees an error while a word is typed.
        (&["--context", "other", "log", "cm", "s"], ":4\n"),
        (&["--server", "kube://shop", "log", "cm", "s"], ":4\n"),
    ] {
        // A machine that is busy may take longer than anybody waits for a word.
        until("the words", async || {
            let output = typed(home.path(), words).await;
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            assert_eq!(output.stderr, b"", "{words:?}");
            if said == expected { Ok(()) } else { Err(format!("{words:?}: {said}")) }
        })
        .await;
    }
    daemon.stop().await;

    // An API server that says nothing holds no shell up for long: it is still silent when the words have ended.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let home = laptop(silent.local_addr().unwrap());
    let (output, connected) = tokio::join!(typed(home.path(), &["log", "cm", "s"]), silent.accept());
    assert_eq!((output.stdout.as_slice(), output.stderr.as_slice()), (&b":4\n"[..], &b""[..]));
    drop(connected);
}
