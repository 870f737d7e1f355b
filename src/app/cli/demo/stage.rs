//! Stage of the demo: a temporary directory, a daemon that is started and stopped, and its growing log.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use clap::Parser;
use rustix::process::{Pid, Signal, kill_process};

use crate::app::cli::line::Lines;
use crate::app::cli::output::{Ink, Out, count, sentence};
use crate::app::cli::{Cli, Command as Said, Exit, Failure, Global, blame, churn, get, log};
use crate::core::model::Seq;
use crate::core::wire::Entry;
use crate::journal::Reader;
use crate::sim::Sim;
use tokio::time::Interval;

/// Time limit of each wait of the story: far longer than it takes.
const STORY_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval at which the journal is polled.
const JOURNAL_POLL_INTERVAL: Duration = Duration::from_millis(30);

/// Part of a command's output that is shown; the rest stands as `…`.
#[derive(Clone, Copy)]
pub(super) enum Excerpt {
    /// All of it.
    Whole,
    /// Lines with one of these words.
    Lines(&'static [&'static str]),
    /// Parts between empty lines with one of these words.
    Parts(&'static [&'static str]),
}

/// The stage and who is on it.
pub(super) struct Stage {
    out: Out,
    lines: Lines,
    dir: Scratch,
    /// Set if new entries are read without printing them.
    quiet: bool,
    daemon: Option<Daemon>,
    seen: Seq,
    /// The newest resource version printed, by resource.
    printed: HashMap<String, u64>,
    pace: Interval,
}

/// A directory that goes away.
struct Scratch {
    path: PathBuf,
    goes: bool,
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if self.goes {
            // What cannot be removed now cannot be removed by trying again.
            drop(fs::remove_dir_all(&self.path));
        }
    }
}

/// A running `decklog run`, which does not outlive the story.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

impl Stage {
    pub(super) fn new(out: Out, sim: &Sim, keep: Option<PathBuf>) -> Result<Self, Failure> {
        let name = format!("decklog-demo-{}", uuid::Uuid::new_v4().simple());
        let path = make_dir(keep.as_deref().unwrap_or(&std::env::temp_dir().join(name)))?;
        let failed = |error: std::io::Error| Failure::io(format!("cannot write to {}", path.display()), &error);
        let dir = Scratch { path: path.clone(), goes: keep.is_none() };
        sim.write_kubeconfig(&dir.path.join("kubeconfig")).map_err(failed)?;
        fs::write(dir.path.join("config.toml"), config(&dir.path)).map_err(failed)?;
        let lines = Lines::new(out.look, 1000);
        // Without a terminal nobody reads along.
        let pace = tokio::time::interval(Duration::from_millis(if out.look.terminal { 180 } else { 20 }));
        Ok(Self { out, lines, dir, quiet: false, daemon: None, seen: Seq(0), printed: HashMap::new(), pace })
    }

    /// A moment between two writes of the cluster, so that one can read along.
    pub(super) async fn breathe(&mut self) {
        self.pace.tick().await;
    }

    pub(super) const fn seen(&self) -> Seq {
        self.seen
    }

    pub(super) fn say(&mut self, text: &str) -> Result<(), Failure> {
        // A terminal breaks it by its own width.
        let text = if self.out.look.width.is_some() { &text.replace('\n', " ") } else { text };
        text.lines().try_for_each(|line| self.out.line(&sentence(self.out.look, 0, Some(Ink::Faint), line)))?;
        self.out.flush()
    }

    pub(super) fn inked(&mut self, ink: Ink, text: &str) -> Result<(), Failure> {
        self.out.inked(ink, text)?;
        self.out.flush()
    }

    pub(super) fn blank(&mut self) -> Result<(), Failure> {
        self.out.line("")
    }

    pub(super) fn start_daemon(&mut self) -> Result<(), Failure> {
        let program = std::env::current_exe().map_err(|error| Failure::io("cannot find this program", &error))?;
        let log = fs::OpenOptions::new().create(true).append(true).open(self.dir.path.join("daemon.log"));
        let log = log.map_err(|error| Failure::io("cannot write the daemon's log", &error))?;
        let mut command = Command::new(program);
        // Nothing of this user's own settings gets into the story.
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("DECKLOG_") || name == "NOTIFY_SOCKET" {
                command.env_remove(name);
            }
        }
        let child = command
            .args(["run", "--config"])
            .arg(self.dir.path.join("config.toml"))
            .current_dir(&self.dir.path)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .map_err(|error| Failure::io("cannot start the daemon", &error))?;
        self.daemon = Some(Daemon(child));
        Ok(())
    }

    pub(super) async fn stop_daemon(&mut self) -> Result<(), Failure> {
        self.end_daemon(Signal::TERM).await
    }

    pub(super) async fn kill_daemon(&mut self) -> Result<(), Failure> {
        self.end_daemon(Signal::KILL).await
    }

    async fn end_daemon(&mut self, signal: Signal) -> Result<(), Failure> {
        let Some(mut daemon) = self.daemon.take() else { return Ok(()) };
        let pid = i32::try_from(daemon.0.id()).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid {
            // It may have ended already, which the wait below shows.
            kill_process(pid, signal).ok();
        }
        let begun = Instant::now();
        let mut look = tokio::time::interval(JOURNAL_POLL_INTERVAL);
        loop {
            look.tick().await;
            match daemon.0.try_wait() {
                Ok(Some(status)) if status.success() || signal == Signal::KILL => return self.print_new().await,
                Ok(Some(status)) => return Err(self.lost(&format!("the daemon ended with {status}"))),
                Ok(None) if begun.elapsed() > STORY_TIMEOUT => return Err(self.lost("the daemon does not stop")),
                Ok(None) => {}
                Err(error) => return Err(Failure::io("cannot wait for the daemon", &error)),
            }
        }
    }

    /// Prints what is new in the log.
    pub(super) async fn print_new(&mut self) -> Result<(), Failure> {
        // Right after the first start there is no journal yet.
        let Ok(mut reader) = Reader::open(&self.state()) else { return Ok(()) };
        let resources: Vec<_> = reader.resources()?.into_iter().map(|(_, resource)| resource).collect();
        self.lines.learn(&resources);
        for entry in reader.entries_after(self.seen, 1000, 16 << 20)? {
            self.seen = entry.seq;
            if let Ok(parsed) = Entry::parse(&entry.line) {
                let gap = parsed.gap().and_then(|gap| gap.to);
                let version = gap.unwrap_or_else(|| parsed.version().0).parse().unwrap_or(0);
                let group = parsed.group();
                let dot = if group.is_empty() { "" } else { "." };
                let printed = self.printed.entry(format!("{}{dot}{group}", parsed.resource)).or_default();
                *printed = version.max(*printed);
            }
            if !self.quiet {
                let line = self.lines.render(&entry.line).map_err(|error| self.lost(&error.to_string()))?;
                self.out.line(&line)?;
            }
        }
        self.out.flush()
    }

    /// Prints the log until it has the newest revision of every watched resource.
    pub(super) async fn print_to(&mut self, sim: &Sim) -> Result<(), Failure> {
        let newest = |resource: &'static str| sim.history_of(resource).last().map_or(0, |row| row.revision);
        self.print_versions(WATCHED.map(|resource| (resource, newest(resource)))).await
    }

    /// Reads as [`Stage::print_to`] does, without printing.
    pub(super) async fn read_to(&mut self, sim: &Sim) -> Result<(), Failure> {
        self.quiet = true;
        let read = self.print_to(sim).await;
        self.quiet = false;
        read
    }

    /// Prints the log until it has so many entries of an object after `after`.
    pub(super) async fn print_life(&mut self, after: Seq, kind: &str, name: &str, count: usize) -> Result<(), Failure> {
        self.print_until(|stage| Ok(stage.entries_of(after, kind, name)?.len() >= count)).await
    }

    /// Prints the log until every source knows its position, which is not before this revision.
    pub(super) async fn settle(&mut self, revision: u64) -> Result<(), Failure> {
        self.print_until(|stage| {
            let there =
                |resume: Option<&String>| resume.and_then(|at| at.parse().ok()).is_some_and(|at: u64| at >= revision);
            let sources = Reader::open(&stage.state())?.sources()?;
            Ok(sources.iter().all(|source| there(source.resume.as_ref())))
        })
        .await
    }

    /// Returns the number of changes after `after` that were recovered, if nothing is missing.
    pub(super) fn recovered_after(&self, after: Seq) -> Result<u64, Failure> {
        let mut recovered = 0;
        for line in self.entries_after(after)? {
            let Ok(entry) = Entry::parse(&line) else { continue };
            if entry.gap().is_some() {
                return Err(self.lost("there is a GAP where etcd has everything"));
            }
            recovered += u64::from(entry.evidence.as_deref() == Some("recovered"));
        }
        Ok(recovered)
    }

    async fn print_versions(&mut self, newest: [(&'static str, u64); WATCHED.len()]) -> Result<(), Failure> {
        let printed = |stage: &Self, resource: &str| stage.printed.get(resource).copied().unwrap_or(0);
        self.print_until(|stage| Ok(newest.iter().all(|(resource, revision)| printed(stage, resource) >= *revision)))
            .await
    }

    async fn print_until(&mut self, done: impl Fn(&Self) -> Result<bool, Failure>) -> Result<(), Failure> {
        let begun = Instant::now();
        let mut look = tokio::time::interval(JOURNAL_POLL_INTERVAL);
        loop {
            look.tick().await;
            // What is there now is printed before the answer counts.
            let done = done(self)?;
            self.print_new().await?;
            if done {
                return Ok(());
            }
            if let Some(daemon) = &mut self.daemon
                && let Ok(Some(status)) = daemon.0.try_wait()
            {
                return Err(self.lost(&format!("the daemon ended with {status}")));
            }
            if begun.elapsed() > STORY_TIMEOUT {
                return Err(self.lost("the log does not reach the cluster"));
            }
        }
    }

    /// Says what a command of decklog is for, and shows what it prints about the journal of the story, or a part of it.
    pub(super) fn show(&mut self, text: &str, command: &str, excerpt: Excerpt) -> Result<(), Failure> {
        self.blank()?;
        self.say(text)?;
        self.inked(Ink::Strong, &format!("$ {command}"))?;
        // What follows a pipe is not ours to run.
        let printed = self.run(command.split(" | ").next().unwrap_or(command))?;
        let printed = String::from_utf8_lossy(&printed);
        let printed = printed.trim_end();
        let (between, words) = match excerpt {
            Excerpt::Whole => return self.out.line(printed),
            Excerpt::Lines(words) => ("\n", words),
            Excerpt::Parts(words) => ("\n\n", words),
        };
        let mut left_out = false;
        for (at, part) in printed.split(between).enumerate() {
            let shown = words.iter().any(|word| part.contains(word));
            if shown {
                if at > 0 {
                    self.out.bytes(&between.as_bytes()[1..])?;
                }
                self.out.line(part)?;
            } else if !left_out {
                self.inked(Ink::Faint, "…")?;
            }
            left_out = !shown;
        }
        self.out.flush()
    }

    /// Runs a command of decklog on the journal of the story and returns its output.
    pub(super) fn run(&self, command: &str) -> Result<Vec<u8>, Failure> {
        let cli = Cli::try_parse_from(command.split(' ')).map_err(|error| self.lost(&error.to_string()))?;
        let global = Global { state: Some(self.state()), ..cli.global };
        let mut out = Out::memory(self.out.look);
        let exit = match cli.command {
            Said::Log(args) => log::main(args, &global, &mut out)?,
            Said::Get(args) => get::main(args, &global, &mut out)?,
            Said::Blame(args) => blame::main(args, &global, &mut out)?,
            Said::Churn(args) => churn::main(args, &global, &mut out)?,
            other @ (Said::Run(_)
            | Said::Tail(_)
            | Said::Show(_)
            | Said::Diff(_)
            | Said::Why(_)
            | Said::Drift(_)
            | Said::Coverage(_)
            | Said::Status(_)
            | Said::Ui(_)
            | Said::Timeline(_)
            | Said::Mcp(_)
            | Said::Init(_)
            | Said::Check(_)
            | Said::Rbac(_)
            | Said::Audit(_)
            | Said::Prove(_)
            | Said::Evidence(_)
            | Said::Verify(_)
            | Said::Replay(_)
            | Said::Restore(_)
            | Said::Sink(_)
            | Said::Demo(_)
            | Said::Completions(_)
            | Said::Man(_)
            | Said::Schema(_)
            | Said::Version) => return Err(self.lost(&format!("no part of the story: {other:?}"))),
        };
        if exit != Exit::Done {
            return Err(self.lost(&format!("{command} ended with {exit:?}")));
        }
        Ok(out.into_memory())
    }

    pub(super) fn entries_after(&self, after: Seq) -> Result<Vec<Vec<u8>>, Failure> {
        let mut reader = Reader::open(&self.state())?;
        let entries = reader.entries_after(after, 10_000, 64 << 20)?;
        Ok(entries.into_iter().map(|entry| entry.line.to_vec()).collect())
    }

    pub(super) fn entries_of(&self, after: Seq, kind: &str, name: &str) -> Result<Vec<Vec<u8>>, Failure> {
        let mut lines = self.entries_after(after)?;
        lines.retain(|line| {
            Entry::parse(line).is_ok_and(|entry| entry.kind == kind && entry.name.as_deref() == Some(name))
        });
        Ok(lines)
    }

    /// Waits until the file has all that was printed: a daemon that stops leaves what is not under way for its next
    /// start.
    pub(super) async fn delivered(&self) -> Result<(), Failure> {
        let begun = Instant::now();
        let mut look = tokio::time::interval(JOURNAL_POLL_INTERVAL);
        loop {
            look.tick().await;
            let lines = self.delivery()?.iter().filter(|byte| **byte == b'\n').count() as u64;
            if lines >= self.seen.0 {
                return Ok(());
            }
            if begun.elapsed() > STORY_TIMEOUT {
                return Err(self.lost("the file does not reach the journal"));
            }
        }
    }

    fn delivery(&self) -> Result<Vec<u8>, Failure> {
        fs::read(self.dir.path.join("events.jsonl")).map_err(|error| Failure::io("cannot read the file sink", &error))
    }

    /// Verifies the journal, and that the file holds the very same lines.
    pub(super) async fn prove(&mut self) -> Result<(), Failure> {
        let mut reader = Reader::open(&self.state())?;
        let verified = reader.verify(|_, _| ())?;
        if let Some(problem) = verified.problems.first() {
            return Err(self.lost(problem));
        }
        let log = self.delivery()?;
        let lines: Vec<&[u8]> = log.split_inclusive(|byte| *byte == b'\n').collect();
        let entries = self.entries_after(Seq(0))?;
        let same = lines.len() == entries.len()
            && lines.iter().zip(&entries).all(|(line, entry)| line.strip_suffix(b"\n") == Some(entry));
        if !same {
            return Err(self.lost("the file differs from the journal"));
        }
        self.say(&format!(
            "{} entries, dense from 1; replaying them gives the {} objects that the journal knows; the file has the very same lines.",
            count(verified.entries),
            count(verified.objects)
        ))
    }

    pub(super) fn end(mut self) -> Result<(), Failure> {
        self.blank()?;
        let config = if self.dir.goes {
            self.say("That was a simulated cluster, and nothing of it is left. `decklog demo --keep DIR` keeps its journal; then try:")?;
            "DIR/config.toml".to_owned()
        } else {
            self.say(&format!("The journal of this is kept in {}. Try:", self.dir.path.display()))?;
            self.dir.path.join("config.toml").display().to_string()
        };
        for command in ["log deploy/web -n shop -p", "churn --since 1h", "tail pods -n shop --type DELETED"] {
            self.inked(Ink::Strong, &format!("$ decklog -c {config} {command}"))?;
        }
        self.say("For a cluster of your own: `decklog check`, then `decklog run`; README.md says more.")
    }

    fn state(&self) -> PathBuf {
        self.dir.path.join("state")
    }

    /// The story cannot go on. The error quotes what the daemon logged last.
    fn lost(&self, why: &str) -> Failure {
        let log = fs::read_to_string(self.dir.path.join("daemon.log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let last = lines[lines.len().saturating_sub(5)..].join("\n");
        Failure::internal(format!("the story does not go on: {why}\n{last}"))
    }
}

/// Makes a directory, and returns its absolute path.
///
/// # Errors
/// Where it exists already: nothing is overwritten.
pub(super) fn make_dir(dir: &Path) -> Result<PathBuf, Failure> {
    let path = std::path::absolute(dir).map_err(|error| Failure::io(dir.display(), &error))?;
    fs::DirBuilder::new().mode(0o700).create(&path).map_err(|error| {
        if error.kind() == std::io::ErrorKind::AlreadyExists {
            let text = format!("{} exists already; name a new directory, or remove this one first", path.display());
            return Failure::usage(text);
        }
        Failure::io(format!("cannot make the directory {}", path.display()), &error)
    })?;
    Ok(path)
}

pub(super) const WATCHED: [&str; 5] = ["deployments.apps", "replicasets.apps", "pods", "configmaps", "secrets"];

fn config(dir: &Path) -> String {
    let quoted = |path: &Path| format!("{:?}", path.display().to_string());
    format!(
        "[cluster]\nname = \"demo\"\nkubeconfig = {}\naudit_every = \"off\"\nlease_times = false\n\n[state]\npath = {}\n\n[[watch]]\nresources = {WATCHED:?}\n\n\
         [[sink]]\nname = \"file\"\ntype = \"file\"\npath = {}\n",
        quoted(&dir.join("kubeconfig")),
        quoted(&dir.join("state")),
        quoted(&dir.join("events.jsonl"))
    )
}
