//! The binary as a user meets it: exit codes, what is printed, following, closed pipes.

#![allow(clippy::too_many_lines, reason = "a test tells its story in one place")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod completing;
mod verifying;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use decklog::core::model::{Cluster, Observed, Redacted, Resource, ResourceVersion, SourceSpec, Verb, Why};
use decklog::journal::{
    Journal, JournalError, SinkStart, SourceJournal, SourceState, StoredEntry, WatchChange, WriterThread,
};
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
    SourceSpec {
        resource,
        namespace: None,
        label_selector: String::new(),
        field_selector: String::new(),
        exclude_namespaces: Vec::new(),
        first_list_silent: false,
        ignore: Vec::new(),
    }
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
        state.list(10, None, &[object("shop", "web", 7), object("pay", "web", 8)]).await;
        state.watch(vec![upsert("shop", "web", 11), delete("pay", "web", 12)]).await;
        state.list(40, Some(Why::Expired), &[object("shop", "api", 33)]).await;
        state
    }

    async fn list(&self, version: u64, why: Option<Why>, objects: &[Observed]) {
        self.deployments.list_begin().await.unwrap();
        self.deployments.list_page(objects.to_vec()).await.unwrap();
        self.deployments.list_done(rv(version), why).await.unwrap();
    }

    async fn watch(&self, changes: Vec<WatchChange>) {
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
        &["log"],
        &["blame"],
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
        &["log", "deploy/web"],
        &["blame", "deploy/web"],
        &["diff"],
        &["churn"],
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
async fn tail_prints_the_last_entries_in_kubectls_spellings() {
    let state = State::told().await;
    let json = |args: &[&str]| seqs(&state.run(&[&["tail", "-o", "json"], args].concat()).done());
    assert_eq!(json(&[]), [1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(json(&["--last", "2"]), [6, 7]);
    assert_eq!(json(&["--last", "0"]), Vec::<u64>::new());
    for spelling in
        ["deploy", "deployments", "Deployment", "deployment.apps", "deployments.v1.apps", "deployments.apps"]
    {
        assert_eq!(json(&[&format!("{spelling}/api")]), [5, 7], "{spelling}: a gap concerns every object");
    }
    assert_eq!(json(&["-n", "pay"]), [2, 4, 5]);
    assert_eq!(json(&["-A", "--type", "added,DELETED"]), [1, 2, 4, 6, 7]);
    assert_eq!(json(&["--type", "DELETED", "--last", "1"]), [6]);
    let since = |args: &[&str]| seqs(&state.run(&[&["tail", "-o", "json"], args].concat()).understood("--since 1h"));
    assert_eq!(since(&["--since", "1h"]), [1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(since(&["--since", "1h", "--last", "3"]), [5, 6, 7]);
    assert_eq!(json(&["--where", "type == 'DELETED' && namespace == 'pay'"]), [4]);
    assert_eq!(json(&["--where", "seq < 6", "--last", "2"]), [4, 5]);

    let before = state.run(&["tail", "--until", "1h"]).refused(1);
    assert!(before.contains("the log begins at"), "{before}");
    let to_come = state.run(&["tail", "--since", "2099-01-01T00:00:00Z"]).refused(1);
    assert!(to_come.contains("is in the future"), "{to_come}");
    let unknown = state.run(&["tail", "deploymnets"]).refused(64);
    assert!(unknown.contains("did you mean deployments?"), "{unknown}");
    let unwatched = state.run(&["tail", "po/x"]).refused(1);
    assert!(unwatched.contains("pods is not watched") && unwatched.contains("deployments.apps"), "{unwatched}");
    state.run(&["tail", "--where", "type ="]).refused(64);
    state.run(&["tail", "--where", "type == 1"]).refused(64);
}

#[tokio::test]
async fn tail_gives_the_very_bytes_of_the_journal() {
    let state = State::told().await;
    let mut reader = state.journal.reader().unwrap();
    let stored = reader.entries_after(decklog::core::model::Seq(0), 100, usize::MAX).unwrap();
    let expected: String = stored.iter().map(|entry| String::from_utf8(entry.line.to_vec()).unwrap() + "\n").collect();
    assert_eq!(state.run(&["tail", "-o", "json"]).done(), expected);
    let yaml = state.run(&["tail", "-o", "yaml", "--last", "2"]).done();
    assert_eq!(yaml.split("---\n").count(), 2);
    assert!(yaml.contains("exact: 1.50") && yaml.contains("type: ADDED"), "{yaml}");
    let lines = state.run(&["tail"]).done();
    assert_eq!(lines.lines().count(), 7);
    assert!(lines.contains(" GAP ") && lines.contains("expired: changes may be missing from 11 to 40"), "{lines}");
}

#[tokio::test]
async fn get_shows_an_object_as_it_was() {
    let state = State::told().await;
    assert_eq!(
        state.run(&["get", "deploy/api"]).done(),
        "metadata:\n  name: api\n  namespace: shop\n  resourceVersion: \"33\"\n  uid: uid-shop-api\nspec:\n  replicas: 33\n  exact: 1.50\n"
    );
    let bytes = String::from_utf8(object("shop", "web", 7).body.bytes).unwrap() + "\n";
    // A seq says which of the two is meant.
    assert_eq!(state.run(&["get", "deploy/web", "--at", "1", "-o", "json"]).done(), bytes);
    assert!(state.run(&["get", "deploy/web", "--at", "2"]).done().contains("namespace: pay"));
    // After a gap is a moment as well.
    assert!(state.run(&["get", "deploy/web", "--at", "5"]).done().contains("replicas: 11"));
    // The entry of another object is a moment as well.
    let other = state.run(&["get", "deploy/web", "-n", "shop", "--at", "2"]);
    assert!(other.code == 0 && other.out.contains("namespace: shop"), "{other:?}");
    assert_eq!(
        other.err,
        "decklog: note: entry 2 is of deployments.apps/web in namespace pay; the last entry of deployments.apps/web in namespace shop before it is 1\n"
    );
    let several = state.run(&["log", "deploy/web"]).refused(64);
    assert!(several.contains("in namespace pay") && several.contains("in namespace shop"), "{several}");

    for (args, part) in [
        (&["deploy/web"][..], "was deleted at"),
        (&["deploy/web", "-n", "shop"], "(entry 6); --at 3 shows it"),
        (&["deploy/web", "-n", "pay", "--at", "4"], "(entry 4); --at 2 shows it"),
        (&["deploy/api", "--at", "5"], "first saw it at"),
        (&["deploy/api", "--at", "1h"], "first saw deployments.apps/api"),
        (&["deploy/api", "-n", "pay"], "deployments.apps/api in namespace shop"),
        (&["deploy/none"], "knows no deploy/none"),
        (&["deploy/api", "--at", "99"], "the newest is 7"),
        (&["pods/x"], "not watched"),
    ] {
        let text = state.run(&[&["get"], args].concat()).refused(1);
        assert!(text.contains(part), "{text}");
    }
    // In the gap, the state is the last one known and not more.
    let mut reader = state.journal.reader().unwrap();
    let gap = reader.entry(decklog::core::model::Seq(5)).unwrap().unwrap();
    let gap: serde_json::Value = serde_json::from_slice(&gap.line).unwrap();
    let ended: jiff::Timestamp = gap["time"].as_str().unwrap().parse().unwrap();
    let inside = (ended - jiff::Span::new().microseconds(1)).to_string();
    let doubtful = state.run(&["get", "deploy/web", "-n", "shop", "--at", &inside]);
    assert!(doubtful.code == 0 && doubtful.out.contains("replicas: 11"), "{doubtful:?}");
    assert!(doubtful.err.contains("may be missing (GAP, entry 5)"), "{doubtful:?}");
    state.run(&["get", "deploy/api", "--at", "noon"]).refused(64);
}

#[tokio::test]
async fn status_tells_every_position_with_and_without_a_daemon() {
    let state = State::told().await;
    let (audit, _) = state.journal.sink("audit", "file", SinkStart::Start).await.unwrap();
    audit.acknowledge(decklog::core::model::Seq(5)).await.unwrap();
    audit.dead_letter(decklog::core::model::Seq(2), bytes::Bytes::new(), "too large").await.unwrap();
    let read = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    let status = read(&state.run(&["status", "-o", "json"]).done());
    assert_eq!(status["daemon"]["running"], true);
    assert_eq!(status["daemon"]["pid"], std::process::id());
    assert_eq!((&status["journal"]["head"]["seq"], &status["journal"]["entries"]), (&7.into(), &7.into()));
    assert_eq!((&status["gaps"]["count"], &status["gaps"]["last"]["seq"]), (&1.into(), &5.into()));
    let sink = &status["sinks"][0];
    assert_eq!((&sink["cursor"], &sink["lag_entries"]), (&5.into(), &2.into()));
    assert_eq!(sink["dead_letters"][0]["seq"], 2);
    assert_eq!((&status["sources"][0]["objects"], &status["sources"][0]["resume"]), (&1.into(), &"40".into()));
    let text = state.run(&["status"]).done();
    assert!(text.contains("running (process") && text.contains("dead letter: entry 2: too large"), "{text}");
    // An alarm says all that there is to do.
    assert!(text.contains("alarm    sink-dead-letters audit"), "{text}");
    assert!(
        text.lines()
            .all(|line| line.chars().count() <= 100 || line.starts_with("alarm ") || line.starts_with("notice ")),
        "{text}"
    );

    drop(audit);
    let dir = state.close();
    let text = Answer::of(decklog(dir.path(), &["status", "-o", "json"]).output().unwrap()).done();
    assert_eq!(read(&text)["daemon"]["running"], false);
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

/// The first line of what a child prints, and the child goes on.
fn first_line(child: &mut Child) -> (String, BufReader<std::process::ChildStdout>) {
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    (line, reader)
}

#[tokio::test]
async fn tail_f_sees_entries_as_they_come_and_ends_quietly_when_nobody_reads() {
    let state = State::told().await;
    let mut child = state.command(&["tail", "-f", "--last", "1", "-o", "json"]).stdout(Stdio::piped()).spawn().unwrap();
    let (line, mut reader) = first_line(&mut child);
    assert_eq!(seqs(&line), [7]);
    for version in 50..60 {
        state.watch(vec![upsert("shop", "api", version)]).await;
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        assert_eq!(seqs(&line), [version - 42]);
    }
    // Idle: it must notice without having anything to write.
    drop(reader);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

/// The first line that a child says on standard error, and the child goes on.
fn first_said(child: &mut Child) -> (String, BufReader<std::process::ChildStderr>) {
    let mut reader = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    (line, reader)
}

#[tokio::test]
async fn tail_f_says_once_that_no_daemon_runs_and_waits_for_one() {
    let dir = State::told().await.close();
    let mut child = decklog(dir.path(), &["tail", "-f", "--last", "0", "-o", "json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (said, mut errors) = first_said(&mut child);
    assert!(said.starts_with("decklog: note: no daemon is running on ") && said.contains("`decklog run`"), "{said}");
    let (journal, thread) = Journal::open(dir.path()).unwrap();
    let (source, _) =
        journal.source(&spec(resource("deployments", "apps", "Deployment", "deploy", true))).await.unwrap();
    source.append(vec![upsert("shop", "api", 70)]).await.unwrap();
    let (line, reader) = first_line(&mut child);
    assert_eq!(seqs(&line), [8]);
    drop(reader);
    let mut rest = String::new();
    errors.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "");
    assert_eq!(child.wait().unwrap().code(), Some(0));
    drop((journal, source));
    thread.join().unwrap();
}

#[tokio::test]
async fn tail_f_says_what_it_waits_for_in_vain() {
    let state = State::told().await;
    for (args, says) in [
        (&["-n", "shpo"][..], "the journal knows nothing in the namespace shpo; did you mean shop?"),
        (&["-n", "5"], "the newest 5 entries are --last 5"),
        (&["deploy/wbe"], "the journal knows no deploy/wbe; did you mean deployments.apps/web"),
        (&["--where", "kind == 'Deploymnet'"], "the journal has seen no kind \"Deploymnet\"; did you mean Deployment?"),
    ] {
        let args = [&["tail", "-f", "--last", "1"], args].concat();
        let mut child = state.command(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // It ends as soon as it waits.
        drop(child.stdout.take());
        let (said, _errors) = first_said(&mut child);
        assert!(said.starts_with("decklog: note: ") && said.contains(says), "{args:?}: {said}");
        child.wait().unwrap();
    }
}

#[tokio::test]
async fn a_filter_that_can_match_nothing_known_gets_the_nearest() {
    let state = State::told().await;
    let said = |filter: &str| state.run(&["tail", "--last", "100", "--where", filter]).err;
    for (filter, says) in [
        ("type == \"deleted\"", "note: --where: the journal has seen no type \"deleted\"; did you mean DELETED?"),
        ("kind == \"Deploymnet\"", "no kind \"Deploymnet\"; did you mean Deployment?"),
        ("resource in [\"deployments\", \"deploymnets\"]", "no resource \"deploymnets\"; did you mean deployments?"),
        ("namespace == \"shpo\"", "no namespace \"shpo\"; did you mean shop?"),
        ("!(\"nowhere\" == namespace)", "no namespace \"nowhere\"; it knows pay, shop"),
    ] {
        let text = said(filter);
        assert!(text.starts_with("decklog: note: ") && text.contains(says), "{filter}: {text}");
    }
    for filter in ["type == 'DELETED' && kind == 'Deployment' && namespace in ['shop', 'pay']", "name == 'wbe' || true"]
    {
        assert_eq!(said(filter), "", "{filter}");
    }
    assert!(state.run(&["log", "deploy/api", "--where", "type == 'deleted'"]).err.contains("did you mean DELETED?"));
}

#[tokio::test]
async fn status_has_an_exit_code_for_scripts() {
    let state = State::told().await;
    assert_eq!(state.run(&["status"]).code, 0);
    let (audit, _) = state.journal.sink("audit", "file", SinkStart::Start).await.unwrap();
    audit.dead_letter(decklog::core::model::Seq(2), bytes::Bytes::new(), "too large").await.unwrap();
    let check = state.run(&["status", "--check"]);
    assert_eq!((check.code, check.err.as_str()), (1, ""), "{check:?}");
    assert!(check.out.lines().all(|line| line.starts_with("alarm ")), "{check:?}");
    assert!(check.out.contains("alarm    sink-dead-letters audit"), "{check:?}");
    let json = state.run(&["status", "--check", "-o", "json"]);
    let alarms: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!((json.code, alarms.as_array().unwrap().len()), (1, check.out.lines().count()));
    drop(audit);
    let dir = state.close();
    let down = Answer::of(decklog(dir.path(), &["status", "--check"]).output().unwrap());
    assert!(down.code == 1 && down.out.contains("daemon-down"), "{down:?}");
}

#[tokio::test]
async fn tail_f_goes_on_when_the_daemon_comes_back() {
    let state = State::told().await;
    let mut child = state.command(&["tail", "-f", "--last", "1", "-o", "json"]).stdout(Stdio::piped()).spawn().unwrap();
    let (_, mut reader) = first_line(&mut child);
    let dir = state.close();
    // A program that another test is about to start has what this process has open, until it is another program.
    let (journal, thread) = loop {
        match Journal::open(dir.path()) {
            Err(JournalError::Locked { pid, .. }) if pid == Some(std::process::id()) => std::thread::yield_now(),
            opened => break opened.unwrap(),
        }
    };
    let (source, _) =
        journal.source(&spec(resource("deployments", "apps", "Deployment", "deploy", true))).await.unwrap();
    source.append(vec![upsert("shop", "api", 70)]).await.unwrap();
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    assert_eq!(seqs(&line), [8]);
    drop(reader);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    drop((journal, source));
    thread.join().unwrap();
}

#[tokio::test]
async fn a_closed_pipe_is_a_quiet_end() {
    let state = State::new().await;
    state.list(10, None, &[]).await;
    let changes = (0..2000).map(|n| upsert("shop", &format!("web-{n}"), 100 + n)).collect();
    state.watch(changes).await;
    for args in [
        &["tail", "--last", "2000"][..],
        &["tail", "--since", "2026-01-01T00:00:00Z", "-o", "json"],
        &["diff", "--from", "1"],
        &["completions", "zsh"],
        &["man", "log"],
    ] {
        let mut child = state.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (line, reader) = first_line(&mut child);
        assert!(!line.is_empty());
        drop(reader);
        let mut err = String::new();
        child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        assert_eq!((child.wait().unwrap().code(), err.as_str()), (Some(0), ""), "{args:?}");
    }
}

#[tokio::test]
async fn output_that_cannot_be_written_is_told() {
    let state = State::told().await;
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let text = Answer::of(state.command(&["tail"]).stdout(full).output().unwrap()).refused(74);
    assert!(text.contains("cannot write to standard output"), "{text}");
}

#[tokio::test]
async fn a_follower_that_stands_still_does_not_hold_the_writer() {
    let state = State::told().await;
    let mut child =
        state.command(&["tail", "-f", "-o", "json", "--since", "1h"]).stdout(Stdio::piped()).spawn().unwrap();
    let (_, reader) = first_line(&mut child);
    // Far more than the pipe takes: the follower stands still in the middle of it.
    for round in 0..20 {
        let changes = (0..200).map(|n| upsert("shop", &format!("web-{n}"), 1000 + round * 200 + n)).collect();
        state.watch(changes).await;
    }
    let mut verified = state.journal.reader().unwrap();
    assert_eq!(verified.verify(|_, _| ()).unwrap().problems, Vec::<String>::new());
    drop(reader);
    assert_eq!(child.wait().unwrap().code(), Some(0));
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
async fn churn_answers_like_its_siblings() {
    let state = State::told().await;
    let report = |args: &[&str]| -> serde_json::Value {
        serde_json::from_str(&state.run(&[&["churn", "-o", "json"], args].concat()).done()).unwrap()
    };
    // One change and one deletion came by the watch; the rest is of lists, and of what a gap left open.
    let all = report(&[]);
    assert_eq!((&all["writes"]["writes"], &all["entries"]), (&2.into(), &7.into()), "{all:#}");
    assert_eq!(all["not_counted"], serde_json::json!({"listed": 2, "inferred": 2, "gaps": 1}));
    assert_eq!(report(&["deploy/web", "-n", "pay"])["writes"]["writes"], 1);
    assert_eq!(report(&["--type", "MODIFIED", "--where", "object.spec.replicas == 11"])["writes"]["writes"], 1);
    let text = state.run(&["churn", "--top", "1"]).done();
    assert!(text.contains("2 writes") && text.contains("what was written in 1 gap nobody knows"), "{text}");
    assert!(state.run(&["churn", "-o", "yaml"]).done().contains("\nwrites:\n  writes: 2\n"));
    for (args, code, says) in [
        (&["--requests"][..], 1, "[cluster] request_metrics = true"),
        (&["--until", "1h"], 1, "the log begins at"),
        (&["--since", "2100-01-01T00:00:00Z", "--until", "2100-01-02T00:00:00Z"], 1, "is in the future"),
        (&["--requests", "-n", "shop"], 64, "does not go with -n"),
        (&["deploymnets"], 64, "did you mean deployments?"),
        (&["--where", "type ="], 64, "--where: "),
        (&["--where", "type == 1"], 64, "--where: line 1, column 6: "),
        (&["--since", "1h", "--until", "2h"], 64, "is after --until"),
        (&["--since", "yesterday-ish"], 64, "a duration like 10m"),
        (&["--top", "many"], 64, "invalid value"),
    ] {
        let said = state.run(&[&["churn"], args].concat()).refused(code);
        assert!(said.contains(says), "{args:?}: {said}");
    }
}

#[tokio::test]
async fn diff_means_the_last_hour_and_never_more_than_the_log() {
    let state = State::told().await;
    let whole = state.run(&["diff", "--from", "1"]).done();
    assert!(whole.contains("- removed deployments.apps shop/web"), "{whole}");
    // The log is younger than an hour.
    for (args, lines) in [(&["diff"][..], 1), (&["diff", "--from", "1h"], 2)] {
        let answer = state.run(args);
        assert_eq!((answer.code, answer.out.as_str(), answer.err.lines().count()), (0, whole.as_str(), lines));
        let note = answer.err.lines().last().unwrap();
        assert!(
            note.starts_with("decklog: note: the log begins at 20") && note.contains(" (entry 1), later than "),
            "{note}"
        );
    }
    let now = state.run(&["diff", "--from", "1", "--to", "now"]);
    assert!(now.code == 0 && now.err.starts_with("decklog: --to now is 20"), "{now:?}");
    assert_eq!(now.out.lines().skip(1).collect::<Vec<_>>(), whole.lines().skip(1).collect::<Vec<_>>());
    let before = state.run(&["diff", "--from", "2020-01-01T00:00:00Z"]).refused(1);
    assert!(before.contains("the log begins at 20") && before.contains(", after 2020-01-01T00:00:00Z"), "{before}");
}

#[tokio::test]
async fn no_color_and_color_are_heard() {
    let state = State::told().await;
    assert!(!state.run(&["tail"]).done().contains('\u{1b}'));
    let always =
        Answer::of(state.command(&["tail", "--color", "always"]).env("NO_COLOR", "1").output().unwrap()).done();
    assert!(always.contains("\u{1b}[32mADDED"), "{always}");
}

/// Whoever asks for a time is told what part of it the log does not cover, whatever the command, and a "nothing" names the
/// time for which it is true. No cheaper test asks the commands about a journal whose daemon has stopped.
#[tokio::test]
async fn what_the_log_does_not_cover_is_said_by_every_command() {
    let state = State::told().await;
    let begins = "note: the log begins at 20";
    let stopped = "note: no daemon has watched since 20";
    // Of a running daemon, whose sources have just been good.
    for (args, code, says) in [
        (&["tail", "--since", "1h", "--type", "GAP"][..], 0, &[begins][..]),
        (&["tail", "--since", "1h", "--where", "seq == 99"], 0, &["no entry fits from 20", begins]),
        (&["log", "deploy/web", "-n", "shop", "--since", "1h"], 0, &[begins]),
        (
            &["log", "deploy/web", "-n", "shop", "--since", "1h", "--where", "seq == 99"],
            0,
            &["no entry of deployments.apps/web", begins],
        ),
        (&["tail", "--last", "1"], 0, &[]),
        (&["get", "deploy/api"], 0, &[]),
    ] {
        let answer = state.run(args);
        assert_eq!(answer.code, code, "{args:?} {answer:?}");
        assert!(says.iter().all(|text| answer.err.contains(text)), "{args:?} {answer:?}");
        assert!(!answer.err.contains(stopped), "{args:?} {answer:?}");
        assert_eq!(answer.err.contains("note: "), !says.is_empty(), "{args:?} {answer:?}");
    }
    let dir = state.close();
    for args in [
        &["tail"][..],
        &["tail", "deploy/api", "-n", "shop"],
        &["tail", "-r"],
        &["tail", "--since", "1h", "--where", "seq == 99"],
        &["log", "deploy/web", "-n", "shop"],
        &["log", "deploy/web", "-n", "shop", "--tree"],
        &["get", "deploy/api"],
        &["get", "deploy"],
        &["blame", "deploy/api"],
        &["churn"],
        &["churn", "deploy", "--since", "1h", "-o", "json"],
        &["get", "deploy/api", "--at", "0s"],
        &["diff", "--from", "1"],
        &["diff", "deploy/api", "--from", "1"],
        &["diff", "--from", "1", "-o", "json"],
    ] {
        let answer = Answer::of(decklog(dir.path(), args).output().unwrap());
        let said = answer.err.clone() + &answer.out;
        assert!(answer.code == 0 && said.contains(stopped.trim_start_matches("note: ")), "{args:?} {answer:?}");
    }
}

/// What nobody watches any more is told as what it was, and since when that is all that is known.
#[tokio::test]
async fn what_is_watched_no_more_is_not_told_as_present() {
    let state = State::told().await;
    for command in [&["get", "deploy/api"][..], &["diff", "--from", "1"], &["diff", "deploy/api", "--from", "1"]] {
        let answer = state.run(command);
        assert!(answer.code == 0 && !(answer.out + &answer.err).contains("not watched"), "{command:?}");
    }
    state.journal.retire_source(state.deployments.id()).await.unwrap();
    state.journal.flush().await.unwrap();
    let says = "deployments.apps is not watched any more: what is known of it is of ";
    let answer = state.run(&["get", "deploy/api"]);
    assert!(answer.code == 0 && answer.err.starts_with(&format!("decklog: note: {says}")), "{answer:?}");
    assert!(answer.out.contains("name: api"), "{answer:?}");
    for command in [&["diff", "--from", "1"][..], &["diff", "deploy/api", "--from", "1"]] {
        let answer = state.run(command);
        assert!(answer.code == 0 && (answer.out.clone() + &answer.err).contains(says), "{answer:?}");
    }
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

#[tokio::test]
async fn tail_reads_backwards_over_many_pages() {
    let state = State::new().await;
    state.list(10, None, &[]).await;
    state.watch((0..200).map(|n| upsert("shop", "web", 100 + n)).collect()).await;
    let back = seqs(&state.run(&["tail", "-r", "--last", "90", "-o", "json", "--where", "seq % 2 == 0"]).done());
    assert_eq!(back, (11..=100).rev().map(|n| 2 * n).collect::<Vec<u64>>());
}
