//! Followers and pipes: `tail -f` sees what comes, and a reader that goes or stands still holds nothing up.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};

use decklog::journal::{Journal, JournalError};

use super::{State, decklog, resource, seqs, spec, upsert};

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
