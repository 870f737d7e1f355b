//! Clients that follow all ConfigMaps: decklog, an informer of client-go and `kubectl get --watch`.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::StreamExt as _;
use serde_json::json;

use crate::decklog::Decklog;
use crate::harness::{Cluster, Process, judges, programs, until};

/// Who asks the API server; its audit log knows the user.
pub const USER: &str = "calm";
/// How long a client may take for anything.
const PATIENCE: Duration = Duration::from_secs(600);

/// The objects that all clients follow.
pub const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Creates so many of them, each of so many bytes.
pub async fn fill(cluster: &Cluster, objects: usize, size: usize) {
    let text = "x".repeat(size);
    futures::stream::iter(0..objects)
        .for_each_concurrent(16, async |n| {
            let object = json!({"metadata": {"name": format!("m{n}")}, "data": {"text": text, "n": "0"}});
            cluster.create(MAPS, &object).await;
        })
        .await;
}

/// Which client it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nobody: what the servers use by themselves.
    Nobody,
    Decklog,
    Informer,
    Kubectl,
}

pub const ALL: [Kind; 4] = [Kind::Nobody, Kind::Decklog, Kind::Informer, Kind::Kubectl];

/// A decklog that is as it comes, and puts its log into a file.
pub fn daemon(cluster: &Cluster, number: usize) -> Decklog {
    Decklog::configured(cluster, &format!("bench-{number}"), |dir| {
        format!(
            "[cluster]\nname = \"bench\"\nkubeconfig = {:?}\naudit_every = \"10m\"\n[state]\npath = {:?}\n[[watch]]\nresources = [\"configmaps\"]\n\
             [[sink]]\nname = \"file\"\ntype = \"file\"\npath = {:?}\n",
            cluster.kubeconfig(USER),
            dir.join("state"),
            dir.join("log.jsonl"),
        )
    })
}

/// A client that can be stopped and started again. Each change is a line of its output.
pub struct Client {
    kind: Kind,
    decklog: Option<Decklog>,
    process: Option<Process>,
    output: Lines,
}

impl Client {
    /// A client that is not started yet. Each has another `number`.
    pub fn new(cluster: &Cluster, kind: Kind, number: usize) -> Self {
        let decklog = (kind == Kind::Decklog).then(|| daemon(cluster, number));
        let path = decklog.as_ref().map_or_else(|| cluster.path(&format!("client-{number}.out")), Decklog::log);
        Self { kind, decklog, process: None, output: Lines::new(path) }
    }

    /// Starts it. All but decklog begin from nothing.
    pub fn start(&mut self, cluster: &Cluster) {
        if let Some(decklog) = &mut self.decklog {
            return decklog.start();
        }
        let kubeconfig = cluster.kubeconfig(USER).display().to_string();
        // It begins from nothing.
        self.output = Lines::new(File::create(&self.output.path).map(|_| self.output.path.clone()).unwrap());
        let log = self.output.path.with_extension("log");
        match self.kind {
            Kind::Nobody | Kind::Decklog => {}
            Kind::Informer => {
                let arguments = ["inform", "--resync=0", "--kubeconfig", &kubeconfig, "--out"].map(str::to_owned);
                let path = self.output.path.display().to_string();
                let arguments = [arguments.as_slice(), &[path, "v1/configmaps".to_owned()]].concat();
                self.process = Some(Process::start("informer", judges(), &arguments, &log, |_| {}));
            }
            Kind::Kubectl => {
                let program = programs().join(cluster.kube());
                let arguments = ["kubectl", "--kubeconfig", &kubeconfig, "get", "configmaps", "-A", "--watch"];
                let file = File::create(&self.output.path).unwrap();
                self.process =
                    Some(Process::start("kubectl", &program, &arguments.map(str::to_owned), &log, |command| {
                        command.stdout(file).env("HOME", cluster.path(""));
                    }));
            }
        }
    }

    /// Waits until it has put out so many lines since [`Client::start`]; of decklog, since ever.
    pub async fn reach(&mut self, lines: usize) {
        if self.kind == Kind::Nobody {
            return;
        }
        until(&format!("{lines} lines of {:?}", self.kind), PATIENCE, async || {
            if let Some(decklog) = &mut self.decklog {
                decklog.must_run();
            }
            let have = self.output.count();
            if have >= lines { Ok(()) } else { Err(format!("{have}")) }
        })
        .await;
    }

    /// Lines so far.
    pub fn lines(&mut self) -> usize {
        self.output.count()
    }

    /// Stops it.
    pub async fn stop(&mut self) {
        if let Some(decklog) = &mut self.decklog {
            decklog.stop().await;
        }
        if let Some(process) = self.process.take() {
            process.kill();
        }
    }

    /// The file of its output.
    pub fn path(&self) -> &Path {
        &self.output.path
    }
}

/// Counts the lines of a file that grows.
struct Lines {
    path: PathBuf,
    read: u64,
    count: usize,
}

impl Lines {
    fn new(path: impl AsRef<Path>) -> Self {
        Self { path: path.as_ref().to_owned(), read: 0, count: 0 }
    }

    fn count(&mut self) -> usize {
        let Ok(mut file) = File::open(&self.path) else { return 0 };
        file.seek(SeekFrom::Start(self.read)).unwrap();
        let mut bytes = Vec::new();
        self.read += file.read_to_end(&mut bytes).unwrap() as u64;
        self.count += memchr::memchr_iter(b'\n', &bytes).count();
        self.count
    }
}
