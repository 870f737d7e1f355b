//! `kubectl decklog` on a laptop: the API server's proxy leads to decklog, and the token of the kubeconfig with it.

use std::fs;
use std::net::UdpSocket;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Output, Stdio};

use decklog_testkit::certs;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

use crate::charted::NAMESPACE;
use crate::decklog::Decklog;
use crate::harness::{Cluster, LIMIT, until};
use crate::ports::free_port;

/// The one who reads. That its token is one of the file is all that decklog knows of it.
const USER: &str = "restricted";

/// A laptop with kubectl, and with nothing of decklog's but the program.
struct Laptop<'c> {
    cluster: &'c Cluster,
    home: PathBuf,
}

impl<'c> Laptop<'c> {
    fn new(cluster: &'c Cluster) -> Self {
        let home = cluster.path("laptop");
        fs::create_dir(&home).unwrap();
        symlink(env!("CARGO_BIN_EXE_decklog"), home.join("kubectl-decklog")).unwrap();
        Self { cluster, home }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.home.join("kubectl-decklog"));
        command.args(arguments).current_dir(&self.home).env_clear().env("TZ", "UTC").env("HOME", &self.home);
        command.env("KUBECONFIG", self.cluster.kubeconfig(USER)).stdin(Stdio::null()).kill_on_drop(true);
        command
    }

    async fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().await.unwrap()
    }

    /// It ends with this code, and says all of this.
    async fn refused(&self, arguments: &[&str], code: i32, says: &[&str]) {
        // The API server learns of rights and of endpoints by watches of its own.
        until(&format!("{arguments:?} to say {says:?}"), LIMIT, async || {
            let output = self.run(arguments).await;
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            let is_it = output.status.code() == Some(code) && says.iter().all(|text| said.contains(text));
            if is_it { Ok(()) } else { Err(format!("{}: {said}", output.status)) }
        })
        .await;
    }

    /// Waits until it prints what the other prints, and nothing else. The other is asked each time, because the log may grow
    /// between the two.
    async fn prints(&self, arguments: &[&str], other: impl AsyncFn() -> Output) {
        until(&format!("{arguments:?} to print what decklog prints"), LIMIT, async || {
            let expected = other().await;
            assert!(expected.status.success() && !expected.stdout.is_empty(), "{expected:?}");
            let output = self.run(arguments).await;
            let is_it = output.status.success() && output.stdout == expected.stdout;
            if is_it { Ok(()) } else { Err(format!("{output:?}")) }
        })
        .await;
    }
}

/// The address of this machine by which an API server reaches a Pod: it refuses those of loopback.
fn address() -> String {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    // Nothing is sent.
    socket.connect("192.0.2.1:9").expect("an address other than that of loopback");
    socket.local_addr().unwrap().ip().to_string()
}

async fn may(cluster: &Cluster, role: &str, namespace: &str, verb: &str, resource: &str) {
    let (verb, resource) = (format!("--verb={verb}"), format!("--resource={resource}"));
    cluster.kubectl_must(&["create", "role", role, "-n", namespace, &verb, &resource]).await;
    let role_flag = format!("--role={role}");
    cluster.kubectl_must(&["create", "rolebinding", role, "-n", namespace, &role_flag, "--user", USER]).await;
}

/// In a cluster where the chart is installed.
pub async fn scenario(cluster: &Cluster) {
    let laptop = Laptop::new(cluster);
    laptop.refused(&["tail"], 78, &["your user may not list services", "kube://NAMESPACE/SERVICE:PORT"]).await;
    may(cluster, "finds", NAMESPACE, "list", "services").await;
    let right = format!("the right to create services/proxy in namespace {NAMESPACE}");
    laptop.refused(&["tail"], 78, &["your user may not reach kube://logs/decklog", &right]).await;
    may(cluster, "reads", NAMESPACE, "create", "services/proxy").await;
    laptop
        .refused(&["tail"], 74, &["the API server does not reach kube://logs/decklog", "check that decklog runs"])
        .await;

    let (ip, port) = (address(), free_port());
    let mut daemon = serving(cluster, &ip, port);
    daemon.start();
    daemon.ready().await;
    endpoints(cluster, &ip, port).await;
    // The daemon takes no request without TLS.
    let reset = ["does not reach kube://logs/decklog: error trying to reach service", "appProtocol: https"];
    laptop.refused(&["tail"], 74, &reset).await;
    let service = format!("/api/v1/namespaces/{NAMESPACE}/services/decklog");
    let has_tls =
        json!({"spec": {"ports": [{"name": "http", "port": 9465, "targetPort": "http", "appProtocol": "https"}]}});
    cluster.patch(&service, &has_tls).await;

    let here = async || daemon.command(&["tail", "-o", "json"]);
    laptop.prints(&["tail", "-o", "json"], here).await;
    for at in ["kube:", "kube://logs", "kube://logs/decklog", "kube://logs/https:decklog:http"] {
        laptop.prints(&["--server", at, "tail", "-o", "json"], here).await;
    }
    laptop.refused(&["--context", "other", "tail"], 78, &["has no context \"other\"; it has test"]).await;
    laptop.refused(&["--server", "kube://shop", "tail"], 78, &["may not list services in namespace shop"]).await;
    laptop.refused(&["--server", "kube://logs/decklogs", "tail"], 78, &["namespace logs has no service named"]).await;
    tokens(&laptop).await;
    followed(&laptop, cluster).await;
    pods(&laptop, cluster, &ip, port).await;

    let other = json!({
        "metadata": {"name": "other", "labels": {"app.kubernetes.io/name": "decklog"}},
        "spec": {"ports": [{"name": "http", "port": 9465}]},
    });
    cluster.create(&format!("/api/v1/namespaces/{NAMESPACE}/services"), &other).await;
    laptop.refused(&["tail"], 78, &["several decklogs", "kube://logs/decklog, kube://logs/other"]).await;
    cluster.delete(&format!("/api/v1/namespaces/{NAMESPACE}/services/other")).await;
    // A Service that anybody may have labelled gets no token.
    cluster.create("/api/v1/namespaces/shop/services", &other).await;
    cluster.delete(&service).await;
    let admin = cluster.kubeconfig("admin");
    let admin = ["--kubeconfig", admin.to_str().unwrap(), "tail"];
    laptop.refused(&admin, 78, &["kube://shop/other", "would see your token", "--server kube://shop/other"]).await;
    cluster.delete("/api/v1/namespaces/shop/services/other").await;
    cluster.delete(&format!("/api/v1/namespaces/{NAMESPACE}/pods/decklog-0?gracePeriodSeconds=0")).await;
    laptop.refused(&admin, 78, &["no decklog was found in the cluster test", "app.kubernetes.io/name=decklog"]).await;
    daemon.stop().await;
}

/// A daemon on an address that the API server may reach, as nobody is let onto such a one without TLS.
fn serving(cluster: &Cluster, ip: &str, port: u16) -> Decklog {
    let files = cluster.path("serving");
    fs::create_dir(&files).unwrap();
    certs::make(&files);
    fs::write(files.join("readers"), format!("another-token-of-the-test\n{USER}-token\n")).unwrap();
    let daemon = Decklog::new(cluster, "calm", "resources = [\"namespaces\", \"configmaps\"]");
    daemon.configure(&format!(
        "\n[http]\nlisten = \"{ip}:{port}\"\nallow_remote = true\nreading = true\ntoken_file = {:?}\ntls_cert_file = {:?}\ntls_key_file = {:?}\n",
        files.join("readers"),
        files.join("server.pem"),
        files.join("server.key"),
    ));
    daemon
}

/// A Pod that runs, as a kubelet says.
async fn pod(cluster: &Cluster, namespace: &str, ip: &str, port: u16) {
    let probe = json!({"httpGet": {"path": "/readyz", "port": "http", "scheme": "HTTPS"}});
    let container = json!({
        "name": "decklog", "image": "registry.example/decklog", "readinessProbe": probe,
        "ports": [{"name": "http", "containerPort": port}],
        "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
    });
    let pod = json!({
        "metadata": {"name": "decklog-0", "labels": {"app.kubernetes.io/name": "decklog"}},
        "spec": {
            "containers": [container], "nodeName": "node",
            "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
        },
    });
    let pods = format!("/api/v1/namespaces/{namespace}/pods");
    cluster.create(&pods, &pod).await;
    let status = json!({"status": {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}]}});
    cluster.patch(&format!("{pods}/decklog-0/status"), &status).await;
}

/// A Pod behind the Service, and what the controllers would make of it: an API server asks no address that is of no Pod.
async fn endpoints(cluster: &Cluster, ip: &str, port: u16) {
    pod(cluster, NAMESPACE, ip, port).await;
    let target = json!({"kind": "Pod", "namespace": NAMESPACE, "name": "decklog-0"});
    let subsets = json!([{"addresses": [{"ip": ip, "targetRef": target}], "ports": [{"name": "http", "port": port}]}]);
    let object = json!({"metadata": {"name": "decklog"}, "subsets": subsets});
    cluster.create(&format!("/api/v1/namespaces/{NAMESPACE}/endpoints"), &object).await;
    let slice = json!({
        "metadata": {"name": "decklog-1", "labels": {"kubernetes.io/service-name": "decklog"}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [ip], "conditions": {"ready": true}, "targetRef": target}],
        "ports": [{"name": "http", "port": port, "protocol": "TCP"}],
    });
    cluster.create(&format!("/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices"), &slice).await;
}

/// Who may read is decklog's affair, and the token of the kubeconfig is one as good as that of a file.
async fn tokens(laptop: &Laptop<'_>) {
    let file = laptop.home.join("token");
    let shown = ["--token-file", file.to_str().unwrap(), "show", "1"];
    fs::write(&file, "another-token-of-the-test").unwrap();
    until("the token of the file to let in", LIMIT, async || {
        let output = laptop.run(&shown).await;
        if output.status.success() { Ok(()) } else { Err(format!("{output:?}")) }
    })
    .await;
    fs::write(&file, "a-token-that-nobody-knows").unwrap();
    let refused = ["kube://logs/decklog does not let you read its log", "show a token", "--token-file"];
    laptop.refused(&shown, 78, &refused).await;
    // A certificate does not get through.
    let kubeconfig = fs::read_to_string(laptop.cluster.kubeconfig(USER)).unwrap();
    let mut kubeconfig: Value = serde_json::from_str(&kubeconfig).unwrap();
    kubeconfig["users"][0]["user"] = json!({});
    let bare = laptop.home.join("kubeconfig");
    fs::write(&bare, kubeconfig.to_string()).unwrap();
    let bare = ["--kubeconfig", bare.to_str().unwrap(), "tail"];
    laptop.refused(&bare, 78, &["a certificate and no token", "kubectl create token", "--token-file"]).await;
}

/// What comes is printed when it comes: the proxy holds nothing back.
async fn followed(laptop: &Laptop<'_>, cluster: &Cluster) {
    let mut child = laptop.command(&["tail", "-f", "cm/followed"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let maps = "/api/v1/namespaces/default/configmaps";
    cluster.create(maps, &json!({"metadata": {"name": "followed"}})).await;
    for value in ["1", "2"] {
        let line = tokio::time::timeout(LIMIT, lines.next_line()).await.unwrap().unwrap().unwrap();
        assert!(line.contains("followed"), "{line}");
        cluster.patch(&format!("{maps}/followed"), &json!({"data": {"a": value}})).await;
    }
    child.kill().await.unwrap();
}

/// Where no Service is, a Pod that runs.
async fn pods(laptop: &Laptop<'_>, cluster: &Cluster, ip: &str, port: u16) {
    may(cluster, "finds", "default", "list", "services,pods").await;
    may(cluster, "reads", "default", "create", "pods/proxy").await;
    laptop.refused(&["--server", "kube://default", "tail"], 78, &["no decklog was found in namespace default"]).await;
    pod(cluster, "default", ip, port).await;
    let here = async || laptop.run(&["tail", "--last", "5", "-o", "json"]).await;
    for at in ["kube://default", "kube://default/pods/decklog-0"] {
        laptop.prints(&["--server", at, "tail", "--last", "5", "-o", "json"], here).await;
    }
    let exact = format!("kube://default/pods/https:decklog-0:{port}");
    laptop.prints(&["--server", &exact, "tail", "--last", "5", "-o", "json"], here).await;
    cluster.delete("/api/v1/namespaces/default/pods/decklog-0?gracePeriodSeconds=0").await;
}
