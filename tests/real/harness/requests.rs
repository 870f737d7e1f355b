//! Requests to a control plane as its administrator, kubectl, and the audit log of what others ask.

use std::fs;
use std::process::{Output, Stdio};

use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::Value;
use tokio::io::AsyncWriteExt as _;

use super::{Cluster, programs};

impl Cluster {
    /// Sends a request as the administrator.
    pub async fn call(&self, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
        let kind = match method {
            "PATCH" => "application/merge-patch+json",
            _ => "application/json",
        };
        self.send(method, path, kind, body).await
    }

    /// Sends a request with a body of this type as the administrator.
    pub async fn send(&self, method: &str, path: &str, kind: &str, body: Option<&Value>) -> (u16, Value) {
        self.send_text(method, path, kind, &body.map(Value::to_string).unwrap_or_default()).await
    }

    /// Sends a request with a body that is in words as the administrator.
    pub async fn send_text(&self, method: &str, path: &str, kind: &str, body: &str) -> (u16, Value) {
        let body = if body.is_empty() { Body::empty() } else { Body::from(body.as_bytes().to_vec()) };
        let request =
            http::Request::builder().method(method).uri(path).header("content-type", kind).body(body).unwrap();
        let answer = self.client.get().unwrap().send(request).await;
        let answer = answer.unwrap_or_else(|error| panic!("{method} {path}: {error}"));
        let status = answer.status().as_u16();
        let bytes = answer.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&bytes).unwrap_or_default())
    }

    /// Opens a stream as the administrator.
    pub async fn open(&self, path: &str) -> Body {
        let answer =
            self.client.get().unwrap().send(http::Request::get(path).body(Body::empty()).unwrap()).await.unwrap();
        assert!(answer.status().is_success(), "GET {path}: {}", answer.status());
        answer.into_body()
    }

    /// Reads what is no JSON document, to its end, as the administrator.
    pub async fn text(&self, path: &str) -> String {
        let bytes = self.open(path).await.collect().await.unwrap().to_bytes();
        String::from_utf8(bytes.into()).unwrap()
    }

    /// Sends a request that has to succeed.
    pub async fn must(&self, method: &str, path: &str, body: Option<&Value>) -> Value {
        let (status, answer) = self.call(method, path, body).await;
        assert!((200..300).contains(&status), "{method} {path}: {status} {}", answer["message"]);
        answer
    }

    /// Reads an object.
    pub async fn get(&self, path: &str) -> Result<Value, String> {
        let (status, answer) = self.call("GET", path, None).await;
        if status == 200 { Ok(answer) } else { Err(format!("GET {path}: {status} {}", answer["message"])) }
    }

    /// Creates an object.
    pub async fn create(&self, path: &str, object: &Value) -> Value {
        self.must("POST", path, Some(object)).await
    }

    /// Changes an object by a merge patch.
    pub async fn patch(&self, path: &str, patch: &Value) -> Value {
        self.must("PATCH", path, Some(patch)).await
    }

    /// Deletes an object.
    pub async fn delete(&self, path: &str) {
        self.must("DELETE", path, None).await;
    }

    /// Runs kubectl as the administrator.
    pub async fn kubectl(&self, arguments: &[&str]) -> Output {
        self.kubectl_with(arguments, b"").await
    }

    /// Runs kubectl as the administrator, with something to read.
    pub async fn kubectl_with(&self, arguments: &[&str], input: &[u8]) -> Output {
        let mut command = tokio::process::Command::new(programs().join(self.kube()));
        command.arg("kubectl").arg("--kubeconfig").arg(self.kubeconfig("admin")).args(arguments);
        command.env("HOME", self.dir.path()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        // It says what is wrong with what it does not read to its end.
        let (_written, output) = tokio::join!(async move { stdin.write_all(input).await }, child.wait_with_output());
        output.unwrap()
    }

    /// Runs kubectl, which has to succeed.
    pub async fn kubectl_must(&self, arguments: &[&str]) -> String {
        let output = self.kubectl(arguments).await;
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "kubectl {arguments:?}: {error}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// The requests of a user that the API server has answered or is done with.
    pub fn audit(&self, user: &str) -> Vec<Value> {
        let log = |name: &str| fs::read_to_string(self.path(&format!("{name}-audit.log"))).unwrap_or_default();
        [log("kube-apiserver"), log("second-apiserver")]
            .iter()
            .flat_map(|text| text.lines())
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
            .filter(|event| event["user"]["username"] == user)
            .collect()
    }
}
