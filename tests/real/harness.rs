//! A real control plane in processes of its own: etcd, kube-apiserver and, as asked, the controllers, the scheduler and
//! fake kubelets. It lives in a temporary directory, listens on loopback only, and ends with the test.

mod losses;
mod process;
mod requests;
mod usage;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{LazyLock, Mutex, OnceLock};
use std::time::Duration;

use kube::client::Body;
use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::judge::Row;
use crate::oracle::Oracle;
use crate::ports::free_port;
use losses::Losses;
pub use losses::{Lost, Write};
pub use process::Process;

/// How long a condition may take that always comes. Generous, because the machine may be busy, and because decklog gives
/// a server that went back more than a minute before it believes that.
pub const LIMIT: Duration = Duration::from_secs(240);

/// Waits until `probe` has an answer, and fails with its last objection. The only way in which these tests wait.
pub async fn until<T>(what: &str, limit: Duration, mut probe: impl AsyncFnMut() -> Result<T, String>) -> T {
    let mut ticks = tokio::time::interval(Duration::from_millis(50));
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut objection = "nothing was tried".to_owned();
    let found = tokio::time::timeout(limit, async {
        loop {
            ticks.tick().await;
            match probe().await {
                Ok(found) => return found,
                Err(text) => objection = text,
            }
        }
    });
    match found.await {
        Ok(found) => found,
        Err(_) => panic!("waited {limit:?} in vain for {what}: {objection}"),
    }
}

/// The minors of Kubernetes that the tests run against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    V1_33,
    V1_36,
}

/// Where the control planes were built; builds them when that was not done yet.
pub fn programs() -> &'static Path {
    static PROGRAMS: LazyLock<PathBuf> = LazyLock::new(|| {
        if let Some(dir) = std::env::var_os("DECKLOG_TEST_CLUSTER") {
            return dir.into();
        }
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cluster/build");
        let output = Command::new(&script).stderr(Stdio::inherit()).output().unwrap();
        assert!(output.status.success(), "{} failed; tests/run installs what it needs", script.display());
        String::from_utf8(output.stdout).unwrap().trim_end().into()
    });
    &PROGRAMS
}

/// The program with the judges; built when that was not done yet.
pub fn judges() -> &'static Path {
    static JUDGES: LazyLock<PathBuf> = LazyLock::new(|| {
        if let Some(dir) = std::env::var_os("DECKLOG_TEST_JUDGES") {
            return PathBuf::from(dir).join("judges");
        }
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/judges/build");
        let output = Command::new(&script).stderr(Stdio::inherit()).output().unwrap();
        assert!(output.status.success(), "{} failed; tests/run installs what it needs", script.display());
        PathBuf::from(String::from_utf8(output.stdout).unwrap().trim_end()).join("judges")
    });
    &JUDGES
}

/// What runs beside etcd and the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parts {
    /// Nothing: objects are only what the test writes.
    Bare,
    /// Controllers, scheduler and fake kubelets: Deployments roll out.
    Full,
}

/// See the module.
pub struct Cluster {
    version: Version,
    /// Arguments of the API server beside the usual ones.
    arguments: Vec<String>,
    /// Arguments of etcd beside the usual ones.
    etcd_arguments: &'static [&'static str],
    /// How seldom the servers collect their garbage. Those of a test live for a minute or two, so that it costs only memory.
    gogc: &'static str,
    /// The revision that etcd was at before anybody wrote.
    first: u64,
    etcd_port: u16,
    peer_port: u16,
    port: u16,
    ports: [u16; 2],
    others: Vec<Process>,
    api: Option<Process>,
    /// Another API server over the same etcd.
    second: Mutex<Option<Process>>,
    second_port: u16,
    /// What stands between the API server and etcd, where it loses events.
    losses: Option<Losses>,
    etcd: Option<Process>,
    client: OnceLock<kube::Client>,
    oracle: Option<Oracle>,
    /// Last, so that nobody writes into it any more when it is removed.
    dir: TempDir,
}

/// The tokens of the users that the API server knows. Each daemon is a user of its own, so that the audit log tells
/// them apart; two have no rights but those that a test gives them.
const USERS: &str = "admin-token,admin,1,\"system:masters\"\n\
    calm-token,calm,2,\"system:masters\"\n\
    paused-token,paused,3,\"system:masters\"\n\
    killed-token,killed,4,\"system:masters\"\n\
    restricted-token,restricted,5\n\
    confined-token,confined,6\n\
    alice-token,alice,7,\"system:masters\"\n\
    bob-token,bob,8,\"system:masters\"\n";

/// The user that the chart's service account is.
pub const SERVICE_ACCOUNT: &str = "system:serviceaccount:logs:decklog";

/// What the audit log has: the reads of the daemons.
const AUDIT: &str = "apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- level: Metadata
  users: [calm, paused, killed, restricted, confined, 'system:serviceaccount:logs:decklog']
- level: None
";

impl Cluster {
    /// Starts a control plane and waits until it answers.
    pub async fn start(version: Version, parts: Parts) -> Self {
        Self::start_with(version, parts, &[]).await
    }

    /// The same, where the API server has these arguments too.
    pub async fn start_with(version: Version, parts: Parts, arguments: &[&str]) -> Self {
        Self::begin(version, parts, arguments, &[], false).await
    }

    /// The same, where the API server loses those events of etcd that `lose` names. A second API server loses none.
    pub async fn start_losing(version: Version, parts: Parts, arguments: &[&str]) -> Self {
        Self::begin(version, parts, arguments, &[], true).await
    }

    /// A control plane whose etcd keeps its whole write-ahead log, and whose API server stores what it serves.
    pub async fn start_recorded(version: Version) -> Self {
        let arguments = ["--storage-media-type=application/json", "--endpoint-reconciler-type=none"];
        let keeps = &["--max-wals=0", "--snapshot-count=100000000"];
        Self::begin(version, Parts::Bare, &arguments, keeps, false).await
    }

    async fn begin(
        version: Version,
        parts: Parts,
        arguments: &[&str],
        etcd_arguments: &'static [&'static str],
        loses: bool,
    ) -> Self {
        let dir = tempfile::Builder::new().prefix("decklog-cluster-").tempdir().unwrap();
        let mut cluster = Self {
            version,
            arguments: arguments.iter().map(|argument| (*argument).to_owned()).collect(),
            etcd_arguments,
            gogc: "400",
            first: 0,
            etcd_port: free_port(),
            peer_port: free_port(),
            port: free_port(),
            ports: [free_port(), free_port()],
            others: Vec::new(),
            api: None,
            second: Mutex::new(None),
            second_port: free_port(),
            losses: None,
            etcd: None,
            client: OnceLock::new(),
            oracle: None,
            dir,
        };
        fs::write(cluster.path("users.csv"), USERS).unwrap();
        fs::write(cluster.path("audit.yaml"), AUDIT).unwrap();
        let key = cluster.path("service-accounts.key");
        let output = Command::new("openssl").args(["genrsa", "-out"]).arg(&key).arg("2048").output().unwrap();
        assert!(output.status.success(), "openssl: {}", String::from_utf8_lossy(&output.stderr));
        for user in ["admin", "calm", "paused", "killed", "restricted", "confined"] {
            cluster.kubeconfig_of_token(user, &format!("{user}-token"));
        }
        cluster.start_etcd(None).await;
        cluster.first = cluster.oracle().revision().await;
        if loses {
            cluster.losses = Some(Losses::start(cluster.etcd_port, &cluster.path("etcd-proxy.log")).await);
        }
        cluster.start_api().await;
        if parts == Parts::Full {
            cluster.start_others().await;
        }
        cluster
    }

    /// A path inside the cluster's directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The kubeconfig of a user.
    pub fn kubeconfig(&self, user: &str) -> PathBuf {
        self.path(&format!("{user}.kubeconfig"))
    }

    /// The kubeconfig of whoever has this token, made anew.
    pub fn kubeconfig_of_token(&self, user: &str, token: &str) -> PathBuf {
        let path = self.kubeconfig(user);
        fs::write(&path, self.kubeconfig_text(user, token, self.port)).unwrap();
        path
    }

    fn kubeconfig_text(&self, user: &str, token: &str, port: u16) -> String {
        let ca = self.path("certs/apiserver.crt");
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": {
                "server": format!("https://127.0.0.1:{port}"), "certificate-authority": ca,
            }}],
            "users": [{"name": user, "user": {"token": token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": user}}],
        })
        .to_string()
    }

    fn spawn(&self, name: &str, program: &str, arguments: &[String]) -> Process {
        Process::start(name, &programs().join(program), arguments, &self.path(&format!("{name}.log")), |command| {
            command.env("GOGC", self.gogc);
        })
    }

    /// The program of this minor, in which are all components.
    pub fn kube(&self) -> &'static str {
        match self.version {
            Version::V1_33 => "kube-1.33",
            Version::V1_36 => "kube-1.36",
        }
    }

    /// Where etcd answers.
    pub fn etcd(&self) -> String {
        format!("http://127.0.0.1:{}", self.etcd_port)
    }

    async fn start_etcd(&mut self, known: Option<Vec<Row>>) {
        let (client, peer) = (self.etcd(), format!("http://127.0.0.1:{}", self.peer_port));
        let data = self.path("etcd");
        let mut arguments = vec![
            "etcd".to_owned(),
            format!("--data-dir={}", data.display()),
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster=default={peer}"),
            "--unsafe-no-fsync".to_owned(),
            "--log-level=warn".to_owned(),
        ];
        arguments.extend(self.etcd_arguments.iter().map(|argument| (*argument).to_owned()));
        self.etcd = Some(self.spawn("etcd", self.kube(), &arguments));
        let http = plain_http();
        until("etcd", LIMIT, async || {
            let answer = http.get(format!("{client}/health")).send().await.map_err(|error| error.to_string())?;
            let text = answer.text().await.map_err(|error| error.to_string())?;
            if text.contains(r#""health":"true""#) { Ok(()) } else { Err(text) }
        })
        .await;
        self.oracle = Some(Oracle::follow(&client, known).await);
    }

    fn spawn_api(&self, name: &str, port: u16, etcd: u16) -> Process {
        let path = |name: &str| self.path(name).display().to_string();
        let mut arguments = vec![
            "kube-apiserver".to_owned(),
            format!("--etcd-servers=http://127.0.0.1:{etcd}"),
            format!("--secure-port={port}"),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--cert-dir={}", path("certs")),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            format!("--service-account-key-file={}", path("service-accounts.key")),
            format!("--service-account-signing-key-file={}", path("service-accounts.key")),
            format!("--token-auth-file={}", path("users.csv")),
            "--authorization-mode=RBAC".to_owned(),
            "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
            "--disable-admission-plugins=ServiceAccount".to_owned(),
            // Events that expire are deletions, many of them with one resourceVersion.
            "--event-ttl=20s".to_owned(),
            // Without it a stop takes a minute as long as anybody watches.
            "--shutdown-watch-termination-grace-period=5s".to_owned(),
            format!("--audit-policy-file={}", path("audit.yaml")),
            format!("--audit-log-path={}", path(&format!("{name}-audit.log"))),
            "--audit-log-mode=blocking".to_owned(),
        ];
        arguments.extend(self.arguments.iter().cloned());
        self.spawn(name, self.kube(), &arguments)
    }

    async fn start_api(&mut self) {
        let etcd = self.losses.as_ref().map_or(self.etcd_port, Losses::port);
        self.api = Some(self.spawn_api("kube-apiserver", self.port, etcd));
        self.ready().await;
    }

    /// Starts another API server over the same etcd, to which the daemons of these users talk from now on.
    pub async fn start_second(&self, users: &[&str]) {
        for user in users {
            fs::write(self.kubeconfig(user), self.kubeconfig_text(user, &format!("{user}-token"), self.second_port))
                .unwrap();
        }
        fs::write(self.path("second.kubeconfig"), self.kubeconfig_text("admin", "admin-token", self.second_port))
            .unwrap();
        self.start_second_again().await;
    }

    /// Kills the other API server.
    pub fn kill_second(&self) {
        self.second.lock().unwrap().take().unwrap().kill();
    }

    /// Starts the other API server again, and waits until it answers.
    pub async fn start_second_again(&self) {
        *self.second.lock().unwrap() = Some(self.spawn_api("second-apiserver", self.second_port, self.etcd_port));
        let client = client_of(&self.path("second.kubeconfig")).await.unwrap();
        until("the other API server", LIMIT, async || is_ready(&client).await).await;
    }

    /// Waits until the API server answers.
    pub async fn ready(&self) {
        until("the API server", LIMIT, async || {
            match self.client.get() {
                Some(client) => is_ready(client).await,
                // Kept only once it was answered: the API server may still be writing the certificate that it read.
                None => {
                    let client = client_of(&self.kubeconfig("admin")).await?;
                    is_ready(&client).await?;
                    self.client.get_or_init(|| client);
                    Ok(())
                }
            }
        })
        .await;
    }

    async fn start_others(&mut self) {
        let kubeconfig = self.kubeconfig("admin").display().to_string();
        let key = self.path("service-accounts.key").display().to_string();
        let [manager, scheduler] = self.ports;
        let common = |port| {
            [
                format!("--kubeconfig={kubeconfig}"),
                "--bind-address=127.0.0.1".to_owned(),
                format!("--secure-port={port}"),
                format!("--cert-dir={}", self.path("certs-of-others").display()),
                "--leader-elect=false".to_owned(),
            ]
        };
        let mut arguments = vec!["kube-controller-manager".to_owned()];
        arguments.extend(common(manager));
        arguments.push(format!("--service-account-private-key-file={key}"));
        let manager = self.spawn("kube-controller-manager", self.kube(), &arguments);
        let mut arguments = vec!["kube-scheduler".to_owned()];
        arguments.extend(common(scheduler));
        let scheduler = self.spawn("kube-scheduler", self.kube(), &arguments);
        let arguments = [
            format!("--kubeconfig={kubeconfig}"),
            format!("--config={}", programs().join("stages.yaml").display()),
            "--manage-all-nodes=true".to_owned(),
            "--node-lease-duration-seconds=40".to_owned(),
        ];
        let kubelets = self.spawn("kwok", "kwok", &arguments);
        self.others = vec![manager, scheduler, kubelets];
        for name in ["node-0", "node-1"] {
            let node = json!({
                "apiVersion": "v1", "kind": "Node",
                "metadata": {"name": name, "annotations": {"kwok.x-k8s.io/node": "fake"}},
                "status": {
                    "allocatable": {"cpu": "32", "memory": "256Gi", "pods": "500"},
                    "capacity": {"cpu": "32", "memory": "256Gi", "pods": "500"},
                },
            });
            self.create("/api/v1/nodes", &node).await;
        }
        until("nodes that are ready", LIMIT, async || {
            let nodes = self.get("/api/v1/nodes").await?;
            let ready = |node: &Value| {
                node["status"]["conditions"]
                    .as_array()
                    .is_some_and(|all| all.iter().any(|one| one["type"] == "Ready" && one["status"] == "True"))
            };
            let nodes = nodes["items"].as_array().cloned().unwrap_or_default();
            if nodes.len() == 2 && nodes.iter().all(ready) { Ok(()) } else { Err(format!("{nodes:?}")) }
        })
        .await;
    }

    /// Stops the API server, as a machine's shutdown does or as a crash does, and starts it again.
    pub async fn restart_api(&mut self, crash: bool) {
        self.stop_api(crash).await;
        self.start_api().await;
    }

    /// Kills the API server and starts it again after this long. Returns when it is ready.
    pub async fn outage(&mut self, away: Duration) {
        self.stop_api(true).await;
        let killed = std::time::Instant::now();
        until("the outage to pass", LIMIT, async || {
            if killed.elapsed() >= away { Ok(()) } else { Err(format!("{:?}", killed.elapsed())) }
        })
        .await;
        self.start_api().await;
    }

    async fn stop_api(&mut self, crash: bool) {
        let api = self.api.take().unwrap();
        if crash {
            api.kill();
        } else {
            api.stop().await;
        }
    }

    /// Stops etcd and the API server, hands over the directory of etcd's data, starts both again and follows etcd from
    /// the beginning of what it now holds.
    pub async fn with_etcd_stopped(&mut self, edit: impl FnOnce(&Path)) {
        self.stop_api(false).await;
        // An etcd that is being watched takes its time to end.
        let oracle = self.oracle.take().unwrap();
        oracle.sync().await;
        let known = oracle.rows();
        drop(oracle);
        self.etcd.take().unwrap().stop().await;
        edit(&self.path("etcd"));
        self.start_etcd(Some(known)).await;
        self.start_api().await;
    }

    /// Kills etcd under the API server, and starts it again.
    pub async fn kill_etcd(&mut self) {
        let oracle = self.oracle.take().unwrap();
        oracle.sync().await;
        let known = oracle.rows();
        drop(oracle);
        self.etcd.take().unwrap().kill();
        self.start_etcd(Some(known)).await;
    }

    /// Stops everything, and says where etcd's data are and the revision at which it was read before anybody wrote.
    pub async fn end(&mut self) -> (PathBuf, u64) {
        self.kill_second();
        self.stop_api(true).await;
        drop(self.oracle.take());
        self.etcd.take().unwrap().stop().await;
        (self.path("etcd"), self.first)
    }

    /// Stops the API server or lets it go on, in the middle of whatever it does.
    pub fn signal_api(&self, signal: Signal) {
        self.api.as_ref().unwrap().signal(signal);
    }

    /// Gives the API server new certificates, of a new authority.
    pub async fn replace_certificates(&mut self) {
        self.stop_api(false).await;
        fs::remove_dir_all(self.path("certs")).unwrap();
        // Its client trusts the old ones.
        self.client.take();
        self.start_api().await;
    }

    /// The truth.
    pub fn oracle(&self) -> &Oracle {
        self.oracle.as_ref().unwrap()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // What the components said is the only trace of why.
            self.dir.disable_cleanup(true);
            eprintln!("the cluster's files are kept in {}", self.dir.path().display());
        }
    }
}

pub(crate) async fn client_of(kubeconfig: &Path) -> Result<kube::Client, String> {
    let config = kube::config::Kubeconfig::read_from(kubeconfig).unwrap();
    let config = kube::Config::from_custom_kubeconfig(config, &Default::default()).await;
    kube::Client::try_from(config.map_err(|error| error.to_string())?).map_err(|error| error.to_string())
}

async fn is_ready(client: &kube::Client) -> Result<(), String> {
    let request = http::Request::get("/readyz").body(Body::empty()).unwrap();
    let answer = client.send(request).await.map_err(|error| error.to_string())?;
    if answer.status().is_success() { Ok(()) } else { Err(answer.status().to_string()) }
}

/// A client for etcd's health.
pub fn plain_http() -> reqwest::Client {
    // Another test may have installed it already.
    decklog::core::net::install_crypto_provider();
    reqwest::Client::builder().no_proxy().build().unwrap()
}
