//! An answer with nothing in it: where the log does not cover the time, it never says as a fact that nothing happened.

use std::fs;
use std::path::Path;

use decklog::core::model::Why;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::story::{Answer, Story, run};

/// Stretches of a time. The log begins at 10:05, and every source has a GAP from 10:20 to 10:50. Where the state directory is a copy,
/// no daemon has watched since 10:55.
const STRETCHES: [(&str, &str, &str); 5] = [
    ("covered", "10:08:00", "10:12:00"),
    ("uncovered", "10:30:00", "10:40:00"),
    ("partly", "10:10:00", "10:30:00"),
    ("before", "09:00:00", "09:30:00"),
    ("stopped", "11:00:00", "11:30:00"),
];

async fn told() -> TempDir {
    let map = |name: &str| {
        json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": "shop", "uid": name}, "data": {"n": "1"}})
    };
    let mut story = Story::begin().await;
    for source in ["deployments", "replicasets", "pods", "secrets", "events", "new events", "configmaps"] {
        story.list("10:00:00", source, None, &[]).await;
    }
    story.put("10:05:00", "configmaps", &map("a")).await;
    let known = story.observed.clone();
    story.is_quiet("10:20:00").await;
    for source in ["deployments", "replicasets", "pods", "secrets", "events", "new events", "configmaps"] {
        let same = if source == "configmaps" { known.clone() } else { None };
        story.relist("10:50:00", source, Why::Expired, &same).await;
    }
    story.is_quiet("10:55:00").await;
    story.end().await
}

/// The same log, on which no daemon runs.
fn copied(dir: &Path) -> TempDir {
    let copy = tempfile::tempdir().unwrap();
    for file in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        fs::copy(file.path(), copy.path().join(file.file_name())).unwrap();
    }
    copy
}

/// Questions whose answer is nothing, and how each says it of a time that the log covers.
const QUESTIONS: [(&[&str], &str); 9] = [
    (&["tail", "--type", "MODIFIED"], "no entry matches from"),
    (&["log", "cm/a", "--type", "MODIFIED"], "no entry of configmaps/a in namespace shop matches from"),
    (&["log", "-n", "shop", "--type", "MODIFIED"], "no change matches from"),
    (&["log", "--type", "MODIFIED"], "no change matches from"),
    (&["drift"], "no drift matches from"),
    (&["timeline", "--html", "page.html", "--type", "MODIFIED"], "no change matches from"),
    (&["churn"], "0 writes"),
    (&["diff", "-n", "shop"], "no difference"),
    (&["get", "secrets", "-n", "shop"], "there is no secrets in shop then"),
];

fn ask(dir: &Path, question: &[&str], since: &str, until: &str) -> Answer {
    let at = |time: &str| format!("2026-11-20T{time}Z");
    let (since, until) = (at(since), at(until));
    let times: Vec<&str> = match question[0] {
        "diff" => vec!["--from", &since, "--to", &until],
        "get" => vec!["--at", &until],
        _ => vec!["--since", &since, "--until", &until],
    };
    run(dir, &[question, &times].concat())
}

#[tokio::test(start_paused = true)]
async fn nothing_is_a_fact_only_where_the_log_covers_the_time() {
    let watched = told().await;
    let stopped = copied(watched.path());
    let mut wrong = Vec::new();
    for (question, fact) in QUESTIONS {
        for (stretch, since, until) in STRETCHES {
            let dir = if stretch == "stopped" { stopped.path() } else { watched.path() };
            let answer = ask(dir, question, since, until);
            let said = format!("{}{}", answer.out, answer.err);
            let is_get = question[0] == "get";
            let has = |text: &str| said.contains(text);
            let is_right = match stretch {
                "covered" => has(fact) && !has("is known") && !has("may have") && answer.code == i32::from(is_get),
                "before" => has("the log begins at 2026-11-20T10:05:00Z") && !has(fact) && answer.code == 1,
                // A moment is covered or it is not.
                "partly" if !is_get => {
                    let is_doubtful =
                        has("more may have happened") || has("no difference is known") || has("0 known writes");
                    is_doubtful && !has("nothing is known from") && answer.code == 0
                }
                _ => has("nothing is known") && !has(fact) && answer.code == i32::from(is_get),
            };
            if !is_right {
                wrong.push(format!("{} {stretch}: {answer:?}", question.join(" ")));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A state as of a moment is the last that is known, and where that is in doubt a sentence says so.
#[tokio::test(start_paused = true)]
async fn the_state_at_a_moment_that_is_not_covered_is_the_last_that_is_known() {
    let watched = told().await;
    let stopped = copied(watched.path());
    let questions: [&[&str]; 3] = [&["get", "cm/a", "-o", "json"], &["blame", "cm/a"], &["why", "cm/a"]];
    for question in questions {
        for (stretch, _, until) in STRETCHES {
            let dir = if stretch == "stopped" { stopped.path() } else { watched.path() };
            let at = format!("2026-11-20T{until}Z");
            let answer = run(dir, &[question, &["--at", &at]].concat());
            let expected = match stretch {
                "covered" => (0, None),
                "before" => (1, Some("begins at 2026-11-20T10:05:00Z")),
                "stopped" => (0, Some("no daemon has watched since")),
                _ => (0, Some("this is the last state known before")),
            };
            assert_eq!(answer.code, expected.0, "{question:?} {stretch}: {answer:?}");
            match expected.1 {
                Some(text) => assert!(answer.err.contains(text), "{question:?} {stretch}: {answer:?}"),
                None => assert_eq!(answer.err, "", "{question:?} {stretch}"),
            }
        }
    }
}

/// A page that has nothing says why, as every other answer; one of what the log does not know is not written.
#[tokio::test(start_paused = true)]
async fn no_page_is_written_of_what_the_log_does_not_know() {
    let dir = told().await;
    for (args, says) in [
        (&["deploy/nosuch"][..], "the journal knows no deploy/nosuch"),
        (&["-n", "nosuch"], "nosuch"),
        (&["--since", "2020-01-01", "--until", "2020-01-02"], "the log begins at 2026-11-20T10:05:00Z"),
    ] {
        let tail = run(dir.path(), &[&["tail"], args].concat());
        let page = run(dir.path(), &[&["timeline", "--html", "page.html"], args].concat());
        assert!(tail.code == 1 && tail.err.contains(says), "{tail:?}");
        assert_eq!((page.code, &page.err), (1, &tail.err), "{args:?}");
        assert!(!dir.path().join("page.html").exists());
    }
    let page = run(dir.path(), &["timeline", "--html", "page.html", "--since", "2026-11-20T10:00:00Z"]);
    assert!(page.code == 0 && page.err.contains("wrote page.html: 1 object") && !page.err.contains("room"), "{page:?}");
    assert!(serde_json::from_str::<Value>(&page.out).is_err());
}
