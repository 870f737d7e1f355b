//! The binary as a user meets it: exit codes, what is printed, following, closed pipes.

#![allow(clippy::too_many_lines, reason = "a test tells its story in one place")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod auditing;
mod completing;
mod following;
mod reading;
mod verifying;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use decklog::core::model::{Cluster, Observed, Redacted, Resource, ResourceVersion, SourceSpec, Verb, Why};
use decklog::journal::{Journal, SourceJournal, SourceState, WatchChange, WriterThread};
use tempfile::TempDir;

fn resource(plural: &str, group: &str, kind: &str, short: &str, namespaced: bool) -> Resource {
    Resource {
        group: group.into(),
        version: "v1".into(),
        kind: kind.into(),
        plural: plural.into(),
        singular: kind.to_lowercase(),
        short_names: vec![short.into()],
        namespaced,
    }
}

fn spec(resource: Resource) -> SourceSpec {
    SourceSpec::of(resource)
}

fn object(namespace: &str, name: &str, version: u64) -> Observed {
    let mut metadata = serde_json::json!({"name": name, "uid": format!("uid-{namespace}-{name}"), "resourceVersion": version.to_string()});
    if !namespace.is_empty() {
        metadata["namespace"] = namespace.into();
    }
    // Digits that no float keeps.
    let bytes = format!(r#"{{"metadata":{metadata},"spec":{{"replicas":{version},"exact":1.50}}}}"#);
    Observed {
        namespace: namespace.into(),
        name: name.into(),
        uid: format!("uid-{namespace}-{name}"),
        version: rv(version),
        body: Redacted { bytes: bytes.into_bytes(), pointers: Vec::new(), marks: Vec::new() },
    }
}

fn rv(version: u64) -> ResourceVersion {
    ResourceVersion::new(version.to_string())
}

fn upsert(namespace: &str, name: &str, version: u64) -> WatchChange {
    WatchChange { verb: Verb::Upsert, object: object(namespace, name, version) }
}

fn delete(namespace: &str, name: &str, version: u64) -> WatchChange {
    WatchChange { verb: Verb::Delete, object: object(namespace, name, version) }
}

/// A state directory, with the daemon's half of the journal open.
struct State {
    dir: TempDir,
    journal: Journal,
    thread: WriterThread,
    deployments: SourceJournal,
}

impl State {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (journal, thread) = Journal::open(dir.path()).unwrap();
        journal.set_cluster(Cluster { name: "test".into(), uid: "c1".into() }).await.unwrap();
        let (deployments, _) =
            journal.source(&spec(resource("deployments", "apps", "Deployment", "deploy", true))).await.unwrap();
        journal.remember_resources(vec![resource("pods", "", "Pod", "po", true)]).await.unwrap();
        // However long a test takes, what is watched lags behind nothing.
        deployments.report(SourceState::Watching).await.unwrap();
        Self { dir, journal, thread, deployments }
    }

    /// A log with everything in it: 1 ADDED web, 2 ADDED web (pay), 3 MODIFIED web, 4 DELETED web (pay), 5 GAP,
    /// 6 DELETED web, 7 ADDED api.
    async fn told() -> Self {
        let state = Self::new().await;
        state.tell().await;
        state
    }

    async fn tell(&self) {
        let state = self;
        state.list(10, None, &[object("shop", "web", 7), object("pay", "web", 8)]).await;
        state.watch(vec![upsert("shop", "web", 11), delete("pay", "web", 12)]).await;
        state.list(40, Some(Why::Expired), &[object("shop", "api", 33)]).await;
    }

    async fn list(&self, version: u64, why: Option<Why>, objects: &[Observed]) {
        self.deployments.list_begin().await.unwrap();
        self.deployments.list_page(objects.to_vec()).await.unwrap();
        self.deployments.list_done(rv(version), why).await.unwrap();
    }

    async fn watch(&self, changes: Vec<WatchChange>) {
        self.deployments.catch_up().await.unwrap();
        self.deployments.append(changes).await.unwrap();
        self.journal.flush().await.unwrap();
    }

    fn command(&self, args: &[&str]) -> Command {
        decklog(self.dir.path(), args)
    }

    fn run(&self, args: &[&str]) -> Answer {
        Answer::of(self.command(args).output().unwrap())
    }

    fn close(self) -> TempDir {
        drop((self.journal, self.deployments));
        self.thread.join().unwrap();
        self.dir
    }
}

fn decklog(state: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_decklog"));
    // A directory without a config.toml, and an environment that says nothing.
    command.current_dir(state).args(args).env_clear().env("STATE_DIRECTORY", state).env("TZ", "UTC");
    command
}

#[derive(Debug)]
struct Answer {
    code: i32,
    out: String,
    err: String,
}

impl Answer {
    fn of(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    #[track_caller]
    fn done(self) -> String {
        assert_eq!((self.code, self.err.as_str()), (0, ""), "{}", self.out);
        self.out
    }

    /// As [`Answer::done`], where one line says how a moment was understood, and a second one that the log is younger.
    #[track_caller]
    fn understood(self, option: &str) -> String {
        assert_eq!((self.code, self.err.lines().count()), (0, 2), "{self:?}");
        assert!(self.err.lines().last().unwrap().contains("note: the log begins at 20"), "{self:?}");
        assert!(self.err.starts_with(&format!("decklog: {option} is 20")) && self.err.contains(" ago"), "{self:?}");
        self.out
    }

    /// The one sentence on standard error.
    #[track_caller]
    fn refused(self, code: i32) -> String {
        assert_eq!(self.code, code, "{self:?}");
        assert_eq!(self.out, "", "{self:?}");
        assert!(self.err.starts_with("decklog: "), "{self:?}");
        self.err
    }
}

/// The seqs of JSON lines.
fn seqs(lines: &str) -> Vec<u64> {
    lines
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["seq"].as_u64().unwrap())
        .collect()
}

#[tokio::test]
async fn a_wrong_command_line_exits_64_and_help_0() {
    let dir = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| Answer::of(decklog(dir.path(), args).output().unwrap());
    for args in [
        &["--frobnicate"][..],
        &["frobnicate"],
        &["tail", "--since", "yesterday-ish"],
        &["tail", "--type", "CHANGED"],
        &["tail", "-f", "--until", "1h"],
        &["get"],
        &["log", "--last", "many"],
        &["blame"],
        &["why"],
        &["diff", "--from", "noon"],
        &["replay", "--sink", "x"],
        &["completions", "klingon"],
        &["man", "klingon"],
        &["tail", "-o", "xml"],
        &["verify", "--where", "true"],
    ] {
        run(args).refused(64);
    }
    let bare = run(&[]);
    assert_eq!(bare.code, 64);
    assert!(bare.err.starts_with("Keeps the log") && bare.err.contains("Usage: decklog"), "{bare:?}");
    assert!(run(&["--help"]).done().contains("tail"));
    assert!(run(&["help", "get"]).done().contains("--at"));
    assert!(run(&["--version"]).done().starts_with("decklog "));
    assert!(run(&["completions", "bash"]).done().contains("_decklog"));
}

#[tokio::test]
async fn without_a_journal_every_reader_says_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    for args in [
        &["tail"][..],
        &["tail", "-f"],
        &["get", "deploy/web"],
        &["log"],
        &["log", "deploy/web"],
        &["blame", "deploy/web"],
        &["why", "deploy/web"],
        &["diff"],
        &["churn"],
        &["drift"],
        &["status"],
        &["verify"],
    ] {
        let text = Answer::of(decklog(dir.path(), args).output().unwrap()).refused(78);
        assert!(text.contains("there is no journal in") && text.contains("decklog run"), "{text}");
        assert_eq!(text.lines().count(), 1);
    }
}

#[tokio::test]
async fn a_journal_that_cannot_be_looked_for_is_not_called_missing() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let text = Answer::of(decklog(dir.path(), &["tail", "--state", "file"]).output().unwrap()).refused(74);
    assert!(text.contains("cannot read the journal in file"), "{text}");
}

#[tokio::test]
async fn the_state_directory_is_found_by_flag_config_and_environment() {
    let state = State::told().await;
    let empty = tempfile::tempdir().unwrap();
    let path = state.dir.path().to_str().unwrap();
    let run = |command: &mut Command| Answer::of(command.output().unwrap());
    assert_eq!(run(&mut decklog(empty.path(), &["tail", "--state", path])).done().lines().count(), 7);
    let config = empty.path().join("config.toml");
    fs::write(&config, format!("[state]\npath = {path:?}\n[[watch]]\nresources = [\"deployments.apps\"]\n")).unwrap();
    assert_eq!(run(&mut decklog(empty.path(), &["tail"])).done().lines().count(), 7);
    fs::write(&config, "[state]\npaht = 1\n").unwrap();
    run(&mut decklog(empty.path(), &["tail"])).refused(78);
}

#[tokio::test]
async fn output_that_cannot_be_written_is_told() {
    let state = State::told().await;
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let text = Answer::of(state.command(&["tail"]).stdout(full).output().unwrap()).refused(74);
    assert!(text.contains("cannot write to standard output"), "{text}");
}

#[tokio::test]
async fn hostile_names_are_shown_and_not_obeyed() {
    let state = State::new().await;
    state.list(10, None, &[object("shop", "\u{1b}[2J\u{9b}31m\u{202e}evil\r", 7)]).await;
    state.watch(vec![upsert("shop", "\u{1b}[2J\u{9b}31m\u{202e}evil\r", 11)]).await;
    for args in [
        &["tail", "--color", "always"][..],
        &["churn", "--color", "always"],
        &["get", "deploy/\u{1b}[2J\u{9b}31m\u{202e}evil\r"],
        &["get", "deploy/\u{1b}]0;"],
    ] {
        let answer = state.run(args);
        let text = (answer.out + &answer.err).replace("\u{1b}[0m", "");
        let text =
            text.replace("\u{1b}[1m", "").replace("\u{1b}[2m", "").replace("\u{1b}[32m", "").replace("\u{1b}[33m", "");
        assert!(!text.contains(['\u{1b}', '\u{9b}', '\u{202e}', '\r']), "{text:?}");
    }
}

#[tokio::test]
async fn no_color_and_color_are_heard() {
    let state = State::told().await;
    assert!(!state.run(&["tail"]).done().contains('\u{1b}'));
    let always =
        Answer::of(state.command(&["tail", "--color", "always"]).env("NO_COLOR", "1").output().unwrap()).done();
    assert!(always.contains("\u{1b}[32mADDED"), "{always}");
}

#[tokio::test]
async fn as_a_plugin_it_calls_itself_what_is_typed() {
    let state = State::told().await;
    let plugin = state.dir.path().join("kubectl-decklog");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_decklog"), &plugin).unwrap();
    let run = |args: &[&str]| {
        let mut command = Command::new(&plugin);
        command.current_dir(state.dir.path()).args(args).env_clear().env("STATE_DIRECTORY", state.dir.path());
        Answer::of(command.output().unwrap())
    };
    assert!(run(&["tail", "-h"]).done().contains("Usage: kubectl decklog tail "));
    assert!(run(&["tail", "--lines"]).err.contains("Usage: kubectl decklog tail"));
    assert_eq!(run(&["tail", "-o", "json"]).done(), state.run(&["tail", "-o", "json"]).done());
    assert!(state.run(&["tail", "-h"]).done().contains("Usage: decklog tail "));
}
