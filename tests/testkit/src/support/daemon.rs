//! The daemon under test: the real binary in a directory of its own, from its start to what its commands say.

mod judging;

use std::fs;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;

use decklog::sim::Sim;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use super::{Answer, decklog, journal, until};
use crate::judge::{Entry, Row};

/// See the module.
pub struct Daemon {
    dir: TempDir,
    notify: UnixDatagram,
    /// What it told systemd since it was started.
    told: String,
    running: Option<Child>,
    /// The entries read so far, and where in the file they end.
    entries: Vec<Entry>,
    read: usize,
    /// The file whose lines were counted, where the last of them ends, and how many there are.
    counted: Mutex<(u64, usize, usize)>,
    /// The truth before a restore of the cluster, when there was one.
    before: Option<Vec<Row>>,
    /// Whether the times of entries say nothing, because its clock goes wrong.
    timeless: bool,
    /// What the log had before lines of it were allowed to go again.
    durable: Option<Vec<u8>>,
    /// The flag that names its configuration, and what it names.
    config: (&'static str, &'static str),
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Some(child) = &mut self.running {
            drop(child.kill());
            drop(child.wait());
        }
    }
}

impl Daemon {
    /// A daemon that is not started yet and watches `resources`, with a file sink.
    pub fn new(sim: &Sim, resources: &[&str]) -> Self {
        Self::with(sim, &format!("resources = {resources:?}\n"), "")
    }

    /// `watch` is what stands below `[[watch]]`, `rest` what comes at the end of the configuration.
    pub fn with(sim: &Sim, watch: &str, rest: &str) -> Self {
        Self::with_dir(tempfile::tempdir().unwrap(), sim, watch, rest)
    }

    /// As [`Daemon::with`], in a directory of the test's choice.
    pub fn with_dir(dir: TempDir, sim: &Sim, watch: &str, rest: &str) -> Self {
        sim.write_kubeconfig(&dir.path().join("kubeconfig")).unwrap();
        let notify = UnixDatagram::bind(dir.path().join("notify")).unwrap();
        notify.set_nonblocking(true).unwrap();
        let daemon = Self {
            dir,
            notify,
            told: String::new(),
            running: None,
            entries: Vec::new(),
            read: 0,
            counted: Mutex::default(),
            before: None,
            timeless: false,
            durable: None,
            config: ("-c", "config.toml"),
        };
        daemon.configure(&daemon.config(watch, rest));
        daemon
    }

    /// One that is not started yet, with a directory for the configurations of several clusters.
    #[allow(dead_code, reason = "shared with others that have one cluster")]
    pub fn of_several(sim: &Sim) -> Self {
        let mut daemon = Self::new(sim, &["configmaps"]);
        daemon.config = ("--config-dir", "clusters");
        fs::create_dir(daemon.path("clusters")).unwrap();
        daemon
    }

    /// The configuration of [`Daemon::with`].
    pub fn config(&self, watch: &str, rest: &str) -> String {
        format!(
            "[cluster]\nname = \"test\"\nkubeconfig = {:?}\naudit_every = \"off\"\n\n[state]\npath = {:?}\n\n[log]\nlevel = \"debug\"\n\n\
             [[watch]]\n{watch}\n\n[[sink]]\nname = \"file\"\ntype = \"file\"\npath = {:?}\n\n{rest}\n",
            self.path("kubeconfig"),
            self.state(),
            self.log(),
        )
    }

    /// Writes the configuration; a running daemon reads it when it is told to.
    pub fn configure(&self, text: &str) {
        fs::write(self.path("config.toml"), text).unwrap();
    }

    /// Nothing is recovered: what is lost is a gap.
    pub fn with_gaps(&self, resources: &[&str]) {
        let config = self.config(&format!("resources = {resources:?}\n"), "");
        self.configure(&config.replace("[cluster]\n", "[cluster]\nrecover = \"off\"\n"));
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn log(&self) -> PathBuf {
        self.path("log.jsonl")
    }

    pub fn state(&self) -> PathBuf {
        self.path("state")
    }

    /// Everything it said about itself, in all its lives.
    pub fn said(&self) -> String {
        fs::read_to_string(self.path("stderr")).unwrap_or_default()
    }

    /// What it printed on standard output, in all its lives.
    pub fn printed(&self) -> String {
        fs::read_to_string(self.path("stdout")).unwrap_or_default()
    }

    /// Starts it, as systemd would.
    pub fn start(&mut self) {
        self.start_with(|command| command);
    }

    /// Starts it after the command was changed.
    pub fn start_with(&mut self, change: impl FnOnce(&mut Command) -> &mut Command) {
        self.start_by(Command::new(crate::program()), change);
    }

    /// Starts it after the shell has done this, such as to set a limit.
    pub fn start_limited(&mut self, before: &str) {
        let mut command = Command::new("bash");
        command.args(["-c", &format!("{before}; exec \"$0\" \"$@\"")]).arg(crate::program());
        self.start_by(command, |command| command);
    }

    /// Starts a program in the place of the binary.
    pub fn start_by(&mut self, mut command: Command, change: impl FnOnce(&mut Command) -> &mut Command) {
        assert!(self.running.is_none(), "it runs already");
        self.listen();
        self.told.clear();
        let file = |name: &str| fs::OpenOptions::new().create(true).append(true).open(self.path(name)).unwrap();
        command.arg("run").arg(self.config.0).arg(self.path(self.config.1)).current_dir(self.dir.path());
        command.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", self.dir.path());
        command.env("NOTIFY_SOCKET", self.path("notify"));
        command.stdin(Stdio::null()).stdout(file("stdout")).stderr(file("stderr"));
        change(&mut command);
        self.running = Some(command.spawn().unwrap());
    }

    /// Takes what it tells systemd, so that the socket never fills.
    fn listen(&mut self) {
        let mut buffer = [0; 4096];
        while let Ok(length) = self.notify.recv(&mut buffer) {
            self.told += &String::from_utf8_lossy(&buffer[..length]);
            self.told.push('\n');
        }
    }

    /// What it told systemd since it was started.
    pub fn told(&mut self) -> &str {
        self.listen();
        &self.told
    }

    /// Fails when it ended by itself.
    #[track_caller]
    pub fn must_run(&mut self) {
        self.listen();
        if let Some(status) = self.running.as_mut().and_then(|child| child.try_wait().unwrap()) {
            self.running = None;
            panic!("it ended by itself, {status}:\n{}", self.last_words());
        }
    }

    /// How it ended, where it has.
    #[allow(dead_code, reason = "the tests in tests/power use it")]
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.listen();
        let status = self.running.as_mut().and_then(|child| child.try_wait().unwrap());
        if status.is_some() {
            self.running = None;
        }
        status
    }

    pub fn pid(&self) -> u32 {
        self.running.as_ref().expect("it runs").id()
    }

    /// Waits until it has told systemd this line.
    pub async fn tells_systemd(&mut self, line: &str) {
        until(&format!("it to tell systemd {line:?}"), async || {
            self.must_run();
            if self.told.lines().any(|told| told.starts_with(line)) { Ok(()) } else { Err(self.last_words()) }
        })
        .await;
    }

    /// Waits until every source has resumed or finished its first list.
    pub async fn ready(&mut self) {
        self.tells_systemd("READY=1").await;
    }

    /// Waits until it says this about itself.
    pub async fn says(&mut self, text: &str) {
        until(&format!("it to say {text:?}"), async || {
            self.must_run();
            if self.said().contains(text) { Ok(()) } else { Err(self.last_words()) }
        })
        .await;
    }

    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.pid()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Waits for its end.
    pub async fn end(&mut self) -> ExitStatus {
        let mut child = self.running.take().expect("it runs");
        let status = until("its end", async || {
            self.listen();
            child.try_wait().unwrap().ok_or_else(|| self.last_words())
        })
        .await;
        self.listen();
        status
    }

    /// Asks it to end, which it has to do cleanly.
    pub async fn stop(&mut self) {
        // Before its handler stands, the signal ends any process.
        until("it to take SIGTERM", async || {
            self.must_run();
            let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap_or_default();
            let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
            let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
            let taken = caught & (1 << (Signal::TERM.as_raw() - 1)) != 0;
            if taken { Ok(()) } else { Err(self.last_words()) }
        })
        .await;
        self.signal(Signal::TERM);
        let status = self.end().await;
        assert!(status.success(), "it ended with {status}:\n{}", self.last_words());
    }

    /// Ends it in the middle of whatever it does.
    pub async fn kill(&mut self) {
        self.must_run();
        self.signal(Signal::KILL);
        self.end().await;
    }

    /// The last lines of what it said.
    pub fn last_words(&self) -> String {
        let said = self.said();
        let lines: Vec<&str> = said.lines().collect();
        lines[lines.len().saturating_sub(25)..].join("\n")
    }

    /// How many whole lines the log has.
    pub fn lines(&self) -> usize {
        // Only what is new is read, because a test may ask every few milliseconds; all of it where it is another file.
        let file = fs::metadata(self.log()).map_or(0, |file| file.ino());
        let mut counted = self.counted.lock().unwrap();
        let same = counted.0 == file && self.durable.is_none();
        let (_, read, count) = if same { *counted } else { (file, 0, 0) };
        let (read, count, more) = match self.since(read) {
            Some(more) => (read, count, more),
            None => (0, 0, self.since(0).unwrap_or_default()),
        };
        let whole = more.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        let count = count + more[..whole].iter().filter(|byte| **byte == b'\n').count();
        // What is torn goes again, and is read again.
        *counted = (file, read + whole, count);
        count
    }

    /// What the log has from here on; none where it is shorter.
    fn since(&self, from: usize) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        let Ok(mut file) = fs::File::open(self.log()) else { return (from == 0).then_some(bytes) };
        if file.metadata().unwrap().len() < from as u64 {
            return None;
        }
        file.seek(SeekFrom::Start(from as u64)).unwrap();
        file.read_to_end(&mut bytes).unwrap();
        Some(bytes)
    }

    /// Waits until the log has so many lines.
    pub async fn reach(&mut self, lines: usize) {
        until(&format!("{lines} lines in the log"), async || {
            self.must_run();
            let have = self.lines();
            if have >= lines { Ok(()) } else { Err(format!("there are {have}\n{}", self.last_words())) }
        })
        .await;
    }

    /// The judge is not to look at the times, because its clock is about to go wrong.
    pub fn forgive_times(&mut self) {
        self.timeless = true;
    }

    /// What the log has now is there for good; lines after it may go again, because their sync is about to fail.
    #[allow(dead_code, reason = "only the tests of the disk break it")]
    pub fn forgive_what_follows(&mut self) {
        self.durable = Some(fs::read(self.log()).unwrap());
    }

    /// The log so far. Whole lines never change, so only what is new is read.
    pub fn entries(&mut self) -> &[Entry] {
        if let Some(durable) = &self.durable {
            let bytes = fs::read(self.log()).unwrap_or_default();
            assert!(bytes.starts_with(durable), "the log lost what was durable");
            self.entries.clear();
            self.read = 0;
        }
        let bytes = self.since(self.read).expect("the log lost lines that were whole");
        let mut rest = &bytes[..];
        while let Some(length) = rest.iter().position(|byte| *byte == b'\n') {
            let line = std::str::from_utf8(&rest[..length]).unwrap();
            let mut entry = Entry::parse(line);
            if self.timeless {
                entry.time = "2000-01-01T00:00:00.000000Z".to_owned();
            }
            self.entries.push(entry);
            self.read += length + 1;
            rest = &rest[length + 1..];
        }
        &self.entries
    }

    /// The entries about one resource (`pods`, `deployments.apps`), each as `evidence TYPE namespace/name` or
    /// `GAP why`.
    pub fn story(&mut self, resource: &str) -> Vec<String> {
        let about = |entry: &&Entry| entry.full_resource() == resource;
        let tell = |entry: &Entry| match &entry.gap {
            Some(gap) => format!("GAP {}", gap.why),
            None => format!("{} {} {}/{}", entry.evidence, entry.kind, entry.namespace, entry.name),
        };
        self.entries().iter().filter(about).map(tell).collect()
    }

    /// Waits until the log has an entry like this.
    pub async fn tells(&mut self, what: &str, wanted: impl Fn(&Entry) -> bool) {
        until(&format!("the log to tell {what}"), async || {
            self.must_run();
            if self.entries().iter().any(&wanted) { Ok(()) } else { Err(self.last_words()) }
        })
        .await;
    }

    /// Waits until an object is in the log at its present version.
    pub async fn knows(&mut self, sim: &Sim, resource: &str, namespace: &str, name: &str) {
        let revision = sim.get(resource, namespace, name).unwrap().revision;
        self.tells(&format!("{resource} {namespace}/{name} at {revision}"), |entry| {
            entry.full_resource() == resource && entry.name == name && entry.rv() == revision
        })
        .await;
    }

    /// Runs another command of decklog with the same configuration.
    pub async fn command(&self, arguments: &[&str]) -> Answer {
        let config = self.path(self.config.1);
        let arguments = [arguments, &[self.config.0, config.to_str().unwrap()]].concat();
        decklog(self.dir.path(), &arguments, &[]).await
    }

    /// The document of `decklog status -o json`, where its journal can be read.
    pub async fn try_status(&self) -> Result<Value, String> {
        let state = self.state();
        tokio::task::spawn_blocking(move || journal::status(&state)).await.unwrap()
    }

    /// The document of `decklog status -o json`.
    pub async fn status(&self) -> Value {
        self.try_status().await.unwrap()
    }

    /// Waits until the status of a source or sink (`sources`, `sinks`) has this state, and gives its detail.
    pub async fn waits_for_state(&mut self, of: &str, name: &str, state: &str) -> String {
        until(&format!("{of} {name} to be {state}"), async || {
            self.must_run();
            let status = self.try_status().await?;
            let row = status[of].as_array().into_iter().flatten().find(|row| row["name"] == name).cloned();
            let row = row.ok_or_else(|| format!("not in {status}"))?;
            if row["state"] == state {
                Ok(row["detail"].as_str().unwrap_or_default().to_owned())
            } else {
                Err(row.to_string())
            }
        })
        .await
    }
}
