//! Child processes that die with the test.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::{LIMIT, until};

/// A child process that dies with the test, whatever happens to it: on drop, and by the kernel's hand when the thread
/// that started it is gone.
pub struct Process {
    name: String,
    child: Child,
}

impl Process {
    /// Starts a program; its stderr is appended to `log`, its stdout as well unless it is wanted elsewhere.
    pub fn start(
        name: &str,
        program: &Path,
        arguments: &[String],
        log: &Path,
        edit: impl FnOnce(&mut Command),
    ) -> Self {
        let log = File::options().create(true).append(true).open(log).unwrap();
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(program).args(arguments);
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        edit(&mut command);
        let child = command.spawn().unwrap_or_else(|error| panic!("cannot start {name}: {error}"));
        Self { name: name.to_owned(), child }
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap_or_else(|error| panic!("cannot signal {}: {error}", self.name));
    }

    /// Its process, which is the program's: setpriv becomes it.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it did.
    pub fn ended(&mut self) -> Option<std::process::ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Asks it to end and waits for that.
    pub async fn stop(mut self) -> std::process::ExitStatus {
        self.signal(Signal::TERM);
        let what = format!("the end of {}", self.name);
        until(&what, LIMIT, async || self.ended().ok_or_else(|| "it still runs".to_owned())).await
    }

    /// Ends it at once, without a word.
    pub fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        // It may have ended by itself.
        let _gone = self.child.kill();
        self.child.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}
