//! Long answers go through a pager, on a terminal and nowhere else.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::story::{Answer, Story, run_in, run_on_terminal_in, shop};

/// A pager that does what a shell says, and puts what it gets into the file `seen` beside it.
struct Pager {
    program: PathBuf,
    seen: PathBuf,
}

impl Pager {
    fn new(dir: &Path, script: &str) -> Self {
        let (program, seen) = (dir.join("pager"), dir.join("seen"));
        fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        Self { program, seen }
    }

    /// What it got, if it was started at all.
    fn took(&self) -> Option<String> {
        let seen = fs::read_to_string(&self.seen).ok();
        drop(fs::remove_file(&self.seen));
        seen
    }

    fn as_str(&self) -> &str {
        self.program.to_str().unwrap()
    }
}

const COLUMNS: u16 = 80;
const PATH: (&str, &str) = ("PATH", "/usr/bin:/bin");
const TERM: (&str, &str) = ("TERM", "xterm");

fn on_terminal(state: &Path, args: &[&str], environment: &[(&str, &str)]) -> Answer {
    run_on_terminal_in(state, args, COLUMNS, &[&[PATH, TERM], environment].concat())
}

#[tokio::test(start_paused = true)]
async fn what_a_terminal_would_show_goes_through_the_pager() {
    let dir = shop().await;
    let pager = Pager::new(dir.path(), "cat > seen");
    let asked = [("DECKLOG_PAGER", pager.as_str())];
    for args in [
        &["log", "deploy/web"][..],
        &["log", "deploy/web", "-o", "json"],
        &["get", "deploy/web"],
        &["diff", "--from", "1"],
        &["blame", "deploy/web"],
        &["churn", "--since", "2026-11-20T10:00:00Z", "--until", "2026-11-20T11:00:00Z"],
    ] {
        let plain = on_terminal(dir.path(), &[args, &["--no-pager"]].concat(), &asked);
        assert_eq!((plain.code, pager.took()), (0, None), "{args:?}");
        let paged = on_terminal(dir.path(), args, &asked);
        assert_eq!((paged.code, paged.out.as_str(), &paged.err), (0, "", &plain.err), "{args:?}");
        assert_eq!(pager.took().unwrap(), plain.out, "{args:?}: the same layout, the same colours");
    }
    let colored = on_terminal(dir.path(), &["log", "deploy/web", "--no-pager"], &[]).out;
    assert!(colored.contains("\u{1b}[") && colored.contains("2026-11-20 (UTC)"), "{colored}");
    assert_eq!(on_terminal(dir.path(), &["status"], &asked).code, 0);
    assert!(pager.took().unwrap().contains("cluster"));
    // The log as it comes is not looked at by pages; and who reads a pipe pages for himself.
    assert!(on_terminal(dir.path(), &["tail"], &asked).out.contains("GAP"));
    assert!(run_in(dir.path(), &["log", "deploy/web"], &asked).out.contains("GAP"));
    assert_eq!(pager.took(), None);
}

#[tokio::test(start_paused = true)]
async fn the_environment_says_which_pager_and_whether_any() {
    let dir = shop().await;
    let log = |environment: &[(&str, &str)]| on_terminal(dir.path(), &["log", "deploy/web"], environment);
    let pager = Pager::new(dir.path(), "cat > seen");
    assert_eq!(log(&[("PAGER", pager.as_str())]).out, "");
    let whole = pager.took().unwrap();
    let words = format!("{} | cat; echo \"LESS=$LESS $LESSSECURE\" >> seen", pager.as_str());
    assert_eq!(log(&[("PAGER", "false"), ("DECKLOG_PAGER", &words)]).out, "");
    assert_eq!(pager.took().unwrap(), whole.clone() + "LESS=FRX \n");
    assert_eq!(log(&[("DECKLOG_PAGER", &words), ("LESS", "-S"), ("SUDO_UID", "1000")]).out, "");
    assert_eq!(pager.took().unwrap(), whole.clone() + "LESS=-S 1\n");
    for off in ["", "cat"] {
        assert_eq!(log(&[("PAGER", pager.as_str()), ("DECKLOG_PAGER", off)]).out, whole);
    }
    let missing = log(&[("DECKLOG_PAGER", "/nowhere/pager")]);
    assert_eq!((missing.code, missing.out), (0, whole.clone()));
    assert!(missing.err.contains("note: cannot run the pager /nowhere/pager: "), "{}", missing.err);
    assert_eq!(pager.took(), None);
    // A shell runs what has arguments.
    for words in ["/nowhere/pager -S", "/ -S"] {
        let missing = log(&[("DECKLOG_PAGER", words)]);
        assert_eq!((missing.code, &missing.out), (0, &whole), "{words}: {}", missing.err);
        assert!(missing.err.contains("note: there is no such pager"), "{}", missing.err);
    }
}

#[tokio::test(start_paused = true)]
async fn the_end_of_the_command_is_its_own() {
    let mut story = Story::begin().await;
    // More than a pipe takes.
    let long = "x".repeat(200_000);
    let metadata = json!({"name": "long", "namespace": "shop", "uid": "u"});
    let object =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": long, "b": "last"}});
    story.put("10:00:00", "configmaps", &object).await;
    let dir = story.end().await;
    let get = |script: &str, name: &str| {
        let pager = Pager::new(dir.path(), script);
        let answer = on_terminal(dir.path(), &["get", name], &[("DECKLOG_PAGER", pager.as_str())]);
        (answer.code, answer.err, pager.took())
    };
    // Who has seen enough.
    assert_eq!(get("head -n 1 > seen", "cm/long"), (0, String::new(), Some("apiVersion: v1\n".to_owned())));
    // What is more than a pipe takes is printed whole, though nobody reads it.
    let missing = on_terminal(dir.path(), &["get", "cm/long"], &[("DECKLOG_PAGER", "/nowhere/pager -S")]);
    let plain = on_terminal(dir.path(), &["get", "cm/long", "--no-pager"], &[]);
    assert!(missing.out == plain.out && missing.code == 0, "{} bytes of {}", missing.out.len(), plain.out.len());
    // Ctrl-C goes to both, and the pager says when it is over.
    let (code, err, seen) = get("cat > seen; kill -INT $PPID; echo after >> seen; exit 3", "cm/long");
    assert_eq!((code, err.as_str()), (0, ""));
    let seen = seen.unwrap();
    assert!(seen.contains("b: last\n") && seen.ends_with("after\n"), "{}", &seen[seen.len() - 100..]);
    // Where there is nothing to show, there is nothing to page.
    let (code, err, seen) = get("cat > seen", "cm/none");
    assert_eq!((code, seen), (1, None));
    assert!(err.contains("the journal knows no cm/none"), "{err}");
}
