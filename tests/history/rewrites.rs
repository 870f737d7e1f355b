//! A storage rewrite, as it is printed: all ConfigMaps of a namespace are stored again, and somebody changes one of them meanwhile.

use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::golden::{golden, told};
use crate::story::{Story, managed, run, run_on_terminal};

/// Number of ConfigMaps.
const MAPS: usize = 24;

fn map(number: usize, value: &str, managers: &[(&str, &str)]) -> Value {
    let managers: Vec<_> =
        managers.iter().map(|(name, time)| (*name, "Update", "", *time, json!({"f:data": {"f:mode": {}}}))).collect();
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": format!("settings-{number}"), "namespace": "shop", "uid": format!("m{number}"),
            "managedFields": managed(&managers)},
        "data": {"mode": value},
    })
}

/// A manager is named for all but four of them.
async fn rewritten() -> TempDir {
    let mut story = Story::begin().await;
    let before = |number| map(number, "fast", &[("helm", "09:00:00")]);
    story.list("10:00:00", "configmaps", None, &(0..MAPS).map(before).collect::<Vec<_>>()).await;
    for number in 0..MAPS {
        let time = format!("10:{:02}:{:02}", 2 + number / 4, number % 4 * 15);
        if number == 10 {
            let changed = map(3, "slow", &[("kubectl-edit", &time)]);
            story.put(&time, "configmaps", &changed).await;
        }
        let stored = match number {
            4.. => map(number, "fast", &[("helm", "09:00:00"), ("rotate", &time)]),
            _ => before(number),
        };
        story.put(&time, "configmaps", &stored).await;
    }
    story.end().await
}

fn every(state: &Path, name: &str, args: &[&str]) {
    let answer = run_on_terminal(state, &[args, &["--color", "never"]].concat(), 80);
    assert_eq!(answer.out.lines().find(|line| line.chars().count() > 80), None, "{name}");
    golden(&format!("{name}_80"), &told(&answer));
    golden(&format!("{name}_plain"), &told(&run(state, args)));
}

#[tokio::test(start_paused = true)]
async fn a_storage_rewrite_is_one_line() {
    let dir = rewritten().await;
    let state = dir.path();
    let time = ["--since", "2026-11-20T09:59:00Z", "--until", "2026-11-20T10:30:00Z"];
    every(state, "rewrite_log", &[&["log", "-n", "shop"][..], &time].concat());
    every(state, "rewrite_tail", &["tail", "--last", "3"]);
    every(state, "rewrite_history", &["log", "cm/settings-3"]);
    every(state, "rewrite_churn", &[&["churn", "--top", "3"][..], &time].concat());
    // Each write is there, for who asks for all of them and for programs.
    let lines = |args: &[&str]| run(state, args).out.lines().filter(|line| line.contains("MODIFIED")).count();
    for args in [["tail", "--last", "25", "--all"], ["tail", "--last", "25", "-ojson"]] {
        assert_eq!(lines(&args), MAPS + 1, "{args:?}");
    }
}
