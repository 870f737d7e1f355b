//! The daemon under test: the real binary, with a directory, a user and a log file of its own.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use decklog_testkit::support::free_address;
use serde_json::Value;

use crate::harness::{Cluster, LIMIT, Process, until};
use crate::judge::{Entry, Row, Scope, Verdict, judge};

/// See the module.
pub struct Decklog {
    name: String,
    dir: PathBuf,
    notify: UnixDatagram,
    /// What it told systemd since it was started.
    told: String,
    running: Option<Process>,
    /// The entries read so far, and where in the file they end.
    entries: Vec<Entry>,
    read: usize,
}

impl Decklog {
    /// A daemon that is not started yet, which reads the cluster as the user of its own name. `watch` is what stands
    /// below `[[watch]]` in its configuration.
    pub fn new(cluster: &Cluster, name: &str, watch: &str) -> Self {
        Self::configured(cluster, name, |dir| {
            format!(
                "[cluster]\nname = \"test\"\nkubeconfig = {kubeconfig:?}\naudit_every = \"off\"\n\n[state]\npath = {state:?}\n\n[[watch]]\n{watch}\n\n\
                 [[sink]]\nname = \"file\"\ntype = \"file\"\npath = {log:?}\n\n[log]\nlevel = \"debug\"\n",
                kubeconfig = cluster.kubeconfig(name),
                state = dir.join("state"),
                log = dir.join("log.jsonl"),
            )
        })
    }

    /// The same with a configuration of its own, which keeps the state in `state` and the log in `log.jsonl` of the directory
    /// that it is given.
    pub fn configured(cluster: &Cluster, name: &str, config: impl FnOnce(&Path) -> String) -> Self {
        let dir = cluster.path(&format!("decklog-{name}"));
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("config.toml"), config(&dir)).unwrap();
        let notify = UnixDatagram::bind(dir.join("notify")).unwrap();
        notify.set_nonblocking(true).unwrap();
        Self { name: name.to_owned(), dir, notify, told: String::new(), running: None, entries: Vec::new(), read: 0 }
    }

    /// It compares itself with the API server this often; by itself it never does.
    pub fn audits_every(&self, period: &str) {
        let path = self.dir.join("config.toml");
        let config = fs::read_to_string(&path).unwrap();
        let every = |line: &str| {
            if line.starts_with("audit_every") { format!("audit_every = {period:?}") } else { line.to_owned() }
        };
        fs::write(path, config.lines().map(every).collect::<Vec<_>>().join("\n")).unwrap();
    }

    /// Its audits ask for so many single objects a second: those of a test come more often than any others.
    pub fn audits_read(&self, rate: u32) {
        let path = self.dir.join("config.toml");
        let config = fs::read_to_string(&path).unwrap();
        let reads = format!("[cluster]\naudit_reads = {{ rate = {rate}, percent = 1 }}\n");
        fs::write(path, config.replace("[cluster]\n", &reads)).unwrap();
    }

    /// It reads the API server's own request counters, and has metrics.
    pub fn counts_requests(&self) {
        self.has_metrics();
        let path = self.dir.join("config.toml");
        let config = fs::read_to_string(&path).unwrap();
        fs::write(path, config.replace("[cluster]\n", "[cluster]\nrequest_metrics = true\n")).unwrap();
    }

    /// Adds this to its configuration.
    pub fn configure(&self, rest: &str) {
        let path = self.dir.join("config.toml");
        let config = fs::read_to_string(&path).unwrap();
        fs::write(path, config + rest).unwrap();
    }

    /// It has metrics.
    pub fn has_metrics(&self) {
        self.configure(&format!("\n[http]\nlisten = {:?}\n", self.socket()));
    }

    /// It serves its page. Returns the address.
    pub fn has_page(&self) -> String {
        let at = free_address();
        self.configure(&format!("\n[ui]\nlisten = {at:?}\n"));
        format!("http://{at}/")
    }

    fn socket(&self) -> PathBuf {
        self.dir.join("http")
    }

    /// Of each source, how many watches it has opened since the start and the state that it is in.
    pub fn sources(&self) -> BTreeMap<String, (u64, String)> {
        let mut sources: BTreeMap<String, (u64, String)> = BTreeMap::new();
        for line in self.metrics().lines() {
            let Some((name, value)) = line.rsplit_once(' ') else { continue };
            let label = |label: &str| {
                let (_, rest) = name.split_once(&format!("{label}=\""))?;
                Some(rest.split_once('"')?.0.to_owned())
            };
            let (Some(resource), Some(namespace)) = (label("resource"), label("namespace")) else { continue };
            let source = sources.entry(format!("{resource} {namespace}")).or_default();
            if name.starts_with("decklog_source_watches_total") {
                source.0 = value.parse().unwrap();
            } else if name.starts_with("decklog_source_state{") && value == "1" {
                source.1 = label("state").unwrap();
            }
        }
        sources
    }

    /// Its metrics.
    pub fn metrics(&self) -> String {
        let mut stream = UnixStream::connect(self.socket()).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// Asks a question over HTTP, as another machine does: its one item.
    pub fn ask(&self, question: &str, ask: &Value) -> Value {
        let mut stream = UnixStream::connect(self.socket()).unwrap();
        let ask = ask.to_string();
        let head = format!(
            "POST /api/v1/{question} HTTP/1.0\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            ask.len()
        );
        stream.write_all((head + &ask).as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let frames = answer.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let item = frames.into_iter().find_map(|mut frame| frame.get_mut("item").map(Value::take));
        item.unwrap_or_else(|| panic!("{ask}: {answer}"))
    }

    /// Where the log file is.
    pub fn log(&self) -> PathBuf {
        self.dir.join("log.jsonl")
    }

    /// The directory of its state.
    pub fn state(&self) -> PathBuf {
        self.dir.join("state")
    }

    /// Everything it said about itself.
    pub fn said(&self) -> String {
        fs::read_to_string(self.dir.join("stderr")).unwrap_or_default()
    }

    /// Starts it, as systemd would.
    pub fn start(&mut self) {
        self.start_with(|_| {});
    }

    /// The same with more in its environment.
    pub fn start_with(&mut self, edit: impl FnOnce(&mut Command)) {
        assert!(self.running.is_none(), "{} runs already", self.name);
        self.listen();
        self.told.clear();
        let arguments = ["run".to_owned(), "-c".to_owned(), self.dir.join("config.toml").display().to_string()];
        let program = Path::new(env!("CARGO_BIN_EXE_decklog"));
        self.running = Some(Process::start(&self.name, program, &arguments, &self.dir.join("stderr"), |command| {
            command.current_dir(&self.dir).env("NOTIFY_SOCKET", self.dir.join("notify")).env_remove("KUBECONFIG");
            edit(command);
        }));
    }

    /// Takes what it tells systemd, as systemd would, so that the socket never fills.
    fn listen(&mut self) {
        let mut buffer = [0; 4096];
        while let Ok(length) = self.notify.recv(&mut buffer) {
            self.told += &String::from_utf8_lossy(&buffer[..length]);
            self.told.push('\n');
        }
    }

    /// Fails when it ended by itself.
    pub fn must_run(&mut self) {
        self.listen();
        let ended = self.running.as_mut().and_then(Process::ended);
        if let Some(status) = ended {
            panic!("{} ended by itself, {status}:\n{}", self.name, self.last_words());
        }
    }

    /// Waits until it says that every source has resumed or finished its first list.
    pub async fn ready(&mut self) {
        until(&format!("{} to be ready", self.name), LIMIT, async || {
            self.must_run();
            let ready = self.told.lines().any(|line| line == "READY=1");
            if ready { Ok(()) } else { Err(format!("it told systemd {:?} and said\n{}", self.told, self.last_words())) }
        })
        .await;
    }

    /// Asks it to end, which it has to do cleanly.
    pub async fn stop(&mut self) {
        self.must_run();
        let status = self.running.take().unwrap().stop().await;
        assert!(status.success(), "{} ended with {status}:\n{}", self.name, self.last_words());
    }

    /// Ends it in the middle of whatever it does.
    pub fn kill(&mut self) {
        self.must_run();
        self.running.take().unwrap().kill();
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: rustix::process::Signal) {
        self.running.as_ref().unwrap().signal(signal);
    }

    pub fn last_words(&self) -> String {
        let said = self.said();
        let lines: Vec<&str> = said.lines().collect();
        lines[lines.len().saturating_sub(25)..].join("\n")
    }

    /// The most memory that it has had resident since it was started, in bytes.
    pub fn memory(&self) -> u64 {
        self.bytes_of("VmHWM:")
    }

    /// The same without the pages of its program and of other files: of a build with debug assertions these are as many as the
    /// rest, and each new feature adds to them.
    pub fn anonymous_memory(&self) -> u64 {
        self.memory() - self.bytes_of("RssFile:")
    }

    fn bytes_of(&self, field: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.running.as_ref().unwrap().id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
        line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap() * 1024
    }

    /// The lists that it has made, but for further pages, for the question whether the server has a version already
    /// (one object, not older than it), for the Leases that date versions,
    /// twenty of them, and for the metadata of what brings new kinds, in pages of fifty.
    pub fn lists(&self, cluster: &Cluster) -> usize {
        let events = cluster.audit(&self.name);
        let lists = events.iter().filter(|event| event["verb"] == "list").filter(|event| {
            let uri = event["requestURI"].as_str().unwrap();
            let limit =
                |limit: &str| uri.contains(&format!("limit={limit}&")) || uri.ends_with(&format!("limit={limit}"));
            !(uri.contains("continue=") || limit("1") || limit("20") || limit("50"))
        });
        lists.count()
    }

    /// How many whole lines the log file has.
    pub fn lines(&self) -> usize {
        fs::read(self.log()).unwrap_or_default().iter().filter(|byte| **byte == b'\n').count()
    }

    /// Waits until the log file has so many lines.
    pub async fn reach(&mut self, lines: usize) {
        until(&format!("{} lines in the log of {}", lines, self.name), LIMIT, async || {
            self.must_run();
            let have = self.lines();
            if have >= lines { Ok(()) } else { Err(format!("there are {have}")) }
        })
        .await;
    }

    /// The log so far. Whole lines never change, so only what is new is read.
    pub fn entries(&mut self) -> &[Entry] {
        let bytes = fs::read(self.log()).unwrap_or_default();
        assert!(bytes.len() >= self.read, "the log of {} lost lines that were whole", self.name);
        while let Some(length) = bytes[self.read..].iter().position(|byte| *byte == b'\n') {
            let line = std::str::from_utf8(&bytes[self.read..self.read + length]).unwrap();
            self.entries.push(Entry::parse(line));
            self.read += length + 1;
        }
        &self.entries
    }

    /// Waits until the log has what `wanted` looks for.
    pub async fn tells(&mut self, what: &str, wanted: impl Fn(&Entry) -> bool) {
        until(&format!("{} to tell {what}", self.name), LIMIT, async || {
            self.must_run();
            if self.entries().iter().any(&wanted) { Ok(()) } else { Err("it does not".to_owned()) }
        })
        .await;
    }

    /// Waits until nothing is missing from the log up to `scope.upto`.
    pub async fn catch_up(&mut self, cluster: &Cluster, before: Option<&[Row]>, scope: &Scope) {
        let mut judged = usize::MAX;
        let mut verdict = Verdict::default();
        until(&format!("{} to tell everything up to revision {}", self.name, scope.upto), LIMIT, async || {
            self.must_run();
            let log = self.entries();
            // Judging again what was judged already would find the same.
            if log.len() != judged {
                judged = log.len();
                cluster.oracle().sync().await;
                verdict = verdict_of(&cluster.oracle().rows(), before, log, scope);
            }
            // What is wrong stays wrong, and the last judgement says it.
            if verdict.behind.is_empty() || !verdict.wrong.is_empty() { Ok(()) } else { Err(verdict.to_string()) }
        })
        .await;
    }

    /// The last judgement, of a daemon that has stopped: over the file and over what its own commands say.
    pub async fn judged(&mut self, cluster: &Cluster, before: Option<&[Row]>, scope: &Scope) {
        assert!(self.running.is_none(), "{} still runs", self.name);
        cluster.oracle().sync().await;
        let file = fs::read(self.log()).unwrap_or_default();
        let tail = self.command(&["tail", "-o", "json", "--last", "1000000"]);
        assert!(tail.status.success(), "tail: {}", String::from_utf8_lossy(&tail.stderr));
        // What was journaled last may wait for the next start to get into the file. It is a part of the log.
        let rest = tail.stdout.strip_prefix(&file[..]);
        let rest = rest.unwrap_or_else(|| panic!("tail -o json of {} prints other bytes than the file has", self.name));
        assert!(file.is_empty() || file.ends_with(b"\n"), "the log of {} ends within a line", self.name);
        let mut log = self.entries().to_vec();
        log.extend(std::str::from_utf8(rest).unwrap().lines().map(Entry::parse));
        let name = &self.name;
        let verdict = verdict_of(&cluster.oracle().rows(), before, &log, scope);
        assert!(verdict.is_right(), "the log of {name} is not the truth:\n{verdict}");
        let verify = self.command(&["verify"]);
        assert!(verify.status.success(), "verify of {name}: {}", String::from_utf8_lossy(&verify.stderr));
    }

    /// Runs another command of decklog with the same configuration.
    pub fn command(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_decklog"));
        command.args(arguments).arg("-c").arg(self.dir.join("config.toml"));
        command.current_dir(&self.dir).env_remove("KUBECONFIG").env("TZ", "UTC").stdin(Stdio::null()).output().unwrap()
    }
}

/// `before` is the truth before a restore of etcd, when there was one.
fn verdict_of(rows: &[Row], before: Option<&[Row]>, log: &[Entry], scope: &Scope) -> Verdict {
    match before {
        Some(before) => judge(before, Some(rows), log, scope),
        None => judge(rows, None, log, scope),
    }
}
