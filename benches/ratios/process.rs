//! Children and what they cost.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

/// Runs this program as a child and gives the processor seconds that it says it used.
pub(super) fn child(args: &[&str]) -> f64 {
    let mut child = spawn(args);
    last_number(&mut child)
}

/// Starts this program as a child.
pub(super) fn spawn(args: &[&str]) -> Child {
    let program = std::env::current_exe().expect("this program's path");
    Command::new(program).arg("child").args(args).stdout(Stdio::piped()).spawn().expect("a child")
}

/// The number that a child prints before it ends.
pub(super) fn last_number(child: &mut Child) -> f64 {
    let out = BufReader::new(child.stdout.take().expect("it is piped"));
    let last = out.lines().map_while(Result::ok).last().expect("the child says what it used");
    assert!(child.wait().expect("the child ends").success(), "the child failed");
    last.parse().expect("a number")
}

/// Processor seconds of this process, all of its threads.
pub(super) fn own_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Processor seconds of another process, to a hundredth.
pub(super) fn seconds_of(pid: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("the process runs");
    let fields: Vec<&str> = stat.rsplit(')').next().expect("fields after the name").split_whitespace().collect();
    // user and system time, in ticks of which Linux has 100 a second on every machine that we know.
    let ticks: f64 = [fields[11], fields[12]].iter().map(|field| field.parse::<f64>().expect("ticks")).sum();
    ticks / 100.0
}

/// The most memory that a process ever had resident, in MiB.
pub(super) fn peak_mib(pid: u32) -> f64 {
    resident(pid, "VmHWM:")
}

/// The memory that a process has resident now, in MiB.
pub(super) fn resident_mib(pid: u32) -> f64 {
    resident(pid, "VmRSS:")
}

fn resident(pid: u32, key: &str) -> f64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the process runs");
    let line = status.lines().find(|line| line.starts_with(key)).expect("the kernel tells");
    let kib: f64 = line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("KiB");
    kib / 1024.0
}

/// A sink that is a file in this directory.
pub(super) fn file_sink(dir: &Path) -> String {
    format!("[[sink]]\nname = \"file\"\ntype = \"file\"\npath = {:?}\n", dir.join("events.jsonl"))
}

/// What a `decklog` command on this state directory prints, and the seconds that it took and that it computed.
pub(super) fn command(state: &Path, args: &[&str]) -> (String, f64, f64) {
    let begun = Instant::now();
    let mut child = Command::new(env!("CARGO_BIN_EXE_decklog"))
        .args(args)
        .arg("--state")
        .arg(state)
        .stdout(Stdio::piped())
        .spawn()
        .expect("decklog");
    let mut said = String::new();
    child.stdout.take().expect("it is piped").read_to_string(&mut said).expect("UTF-8");
    // It has ended and can still be asked. Such a command has one thread.
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).expect("a child has a pid");
    waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).expect("it is a child");
    let took = begun.elapsed().as_secs_f64();
    let scheduled = fs::read_to_string(format!("/proc/{}/schedstat", child.id())).expect("it is not reaped");
    let computed: f64 = scheduled.split(' ').next().and_then(|nanos| nanos.parse().ok()).expect("nanoseconds");
    assert!(child.wait().expect("it has ended").success(), "decklog {args:?} failed");
    (said, took, computed / 1e9)
}

/// A running `decklog run` on its own directory; killed when dropped.
pub(super) struct Daemon(Child);

impl Daemon {
    /// Starts it with this configuration.
    pub(super) fn start(dir: &Path, kubeconfig: &Path, sink: bool) -> Self {
        Self::with(dir, kubeconfig, "pods", &if sink { file_sink(dir) } else { String::new() })
    }

    /// As [`Daemon::start`], with another resource and other sinks.
    pub(super) fn with(dir: &Path, kubeconfig: &Path, resource: &str, sinks: &str) -> Self {
        Self::watching(dir, kubeconfig, &format!("resources = [{resource:?}]"), sinks)
    }

    /// As [`Daemon::with`], with these keys of `[[watch]]`.
    pub(super) fn watching(dir: &Path, kubeconfig: &Path, watch: &str, sinks: &str) -> Self {
        let config = format!(
            "[cluster]\nname = \"bench\"\nkubeconfig = {kubeconfig:?}\n[state]\npath = {:?}\n[[watch]]\n{watch}\n[log]\nlevel = \"error\"\n{sinks}",
            dir.join("state")
        );
        fs::write(dir.join("config.toml"), config).expect("a configuration");
        let child = Command::new(env!("CARGO_BIN_EXE_decklog"))
            .args(["run", "-c"])
            .arg(dir.join("config.toml"))
            .spawn()
            .expect("decklog");
        Self(child)
    }

    /// Its process.
    pub(super) fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.0.kill().and_then(|()| self.0.wait().map(drop)).expect("the daemon can be killed");
    }
}
