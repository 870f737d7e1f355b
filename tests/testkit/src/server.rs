//! A real server: started, killed in the middle of whatever it does, started again on the same data.

use std::fs;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, kill_process_group, pidfd_open, pidfd_send_signal};

use crate::support::until;

/// The folder of a server that `tests/servers/build` makes, which is asked to where nobody did before.
pub fn made(name: &str) -> PathBuf {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    if let Some(dir) = std::env::var_os("DECKLOG_TEST_SERVERS") {
        return Path::new(&dir).join(name);
    }
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let script = crate::root().join("tests/servers/build");
    let ran = Command::new(script).arg(name).stderr(Stdio::inherit()).output().unwrap();
    assert!(ran.status.success(), "tests/servers/build {name}: {}", ran.status);
    Path::new(String::from_utf8(ran.stdout).unwrap().trim()).join(name)
}

pub use crate::ports::free_port;

/// Whether a server is there by now.
type Answers = Box<dyn Fn() -> Result<(), String> + Send>;

/// See the module. It ends with the test.
pub struct Server {
    name: String,
    port: u16,
    answers: Answers,
    /// What starts it, every time.
    command: Box<dyn Fn() -> Command + Send>,
    log: PathBuf,
    running: Option<Child>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

impl Server {
    /// Starts it; it is there when its port answers. What it says goes to `NAME.log` in `dir`.
    pub async fn start(name: &str, dir: &Path, port: u16, command: impl Fn() -> Command + Send + 'static) -> Self {
        let connects = move || TcpStream::connect(("127.0.0.1", port)).map(drop).map_err(|error| error.to_string());
        Self::begin(name, dir, port, Box::new(connects), Box::new(command)).await
    }

    /// As [`Server::start`], for one that is there when `answers` says so. It has no port.
    pub async fn without_port(
        name: &str,
        dir: &Path,
        answers: impl Fn() -> Result<(), String> + Send + 'static,
        command: impl Fn() -> Command + Send + 'static,
    ) -> Self {
        Self::begin(name, dir, 0, Box::new(answers), Box::new(command)).await
    }

    async fn begin(
        name: &str,
        dir: &Path,
        port: u16,
        answers: Answers,
        command: Box<dyn Fn() -> Command + Send>,
    ) -> Self {
        let log = dir.join(format!("{name}.log"));
        let mut server = Self { name: name.to_owned(), port, answers, command, log, running: None };
        server.restart().await;
        server
    }

    /// Starts it again, after it was killed.
    pub async fn restart(&mut self) {
        assert!(self.running.is_none(), "{} runs", self.name);
        let log = fs::OpenOptions::new().create(true).append(true).open(&self.log).unwrap();
        let mut command = (self.command)();
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).process_group(0);
        self.running = Some(command.spawn().unwrap_or_else(|error| panic!("{}: {error}", self.name)));
        let name = self.name.clone();
        until(&format!("{name} to listen"), async || {
            if let Some(status) = self.running.as_mut().unwrap().try_wait().unwrap() {
                panic!("{name} ended by itself, {status}:\n{}", self.said());
            }
            (self.answers)()
        })
        .await;
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its process.
    #[allow(dead_code, reason = "the benches look at it")]
    pub fn pid(&self) -> u32 {
        self.running.as_ref().unwrap().id()
    }

    /// Ends it as a crash does.
    pub fn kill(&mut self) {
        assert!(self.end(), "{} does not run", self.name);
    }

    /// Asks it to end, and waits until it has.
    pub async fn stop(&mut self) {
        self.stop_by(Signal::TERM).await;
    }

    /// As [`Server::stop`], by another signal.
    pub async fn stop_by(&mut self, signal: Signal) {
        let mut child = self.running.take().unwrap();
        kill_process(Pid::from_child(&child), signal).unwrap();
        until(&format!("the end of {}", self.name), async || {
            child.try_wait().unwrap().map(drop).ok_or_else(|| "it runs".to_owned())
        })
        .await;
    }

    /// Stops it where it stands, or lets it go on.
    pub fn signal(&self, signal: Signal) {
        kill_process_group(Pid::from_child(self.running.as_ref().unwrap()), signal).unwrap();
    }

    /// What it said, in all its lives.
    pub fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    fn end(&mut self) -> bool {
        let Some(mut child) = self.running.take() else { return false };
        let leader = Pid::from_child(&child);
        // It starts nothing more from here on.
        kill_process_group(leader, Signal::STOP).ok();
        let started = descendants(leader);
        kill_process_group(leader, Signal::KILL).ok();
        child.wait().unwrap();
        // Some lead groups of their own, as every process of PostgreSQL does, and outlive it; nor does it start beside them.
        for process in &started {
            pidfd_send_signal(process, Signal::KILL).ok();
        }
        for process in &started {
            poll(&mut [PollFd::new(process, PollFlags::IN)], None).unwrap();
        }
        true
    }
}

/// Every process that this one, or one of those, has started and that has not ended.
fn descendants(pid: Pid) -> Vec<OwnedFd> {
    let mut found = Vec::new();
    let mut left = vec![pid.as_raw_nonzero().get()];
    while let Some(pid) = left.pop() {
        let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { continue };
        for thread in threads.flatten() {
            let children = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            for child in children.split_whitespace().filter_map(|child| Pid::from_raw(child.parse().ok()?)) {
                if let Ok(process) = pidfd_open(child, PidfdFlags::empty()) {
                    found.push(process);
                    left.push(child.as_raw_nonzero().get());
                }
            }
        }
    }
    found
}
