//! What people type who know kubectl, git and journalctl.

use std::path::Path;

use crate::golden::{golden, told};
use crate::story::{run, run_on_terminal, shop};

/// What each of these prints, one after the other.
fn transcript(state: &Path, commands: &[&[&str]]) -> String {
    let each = commands.iter().map(|args| format!("$ decklog {}\n{}", args.join(" "), told(&run(state, args))));
    each.collect::<Vec<_>>().join("\n")
}

/// The seqs that a command prints.
fn seqs(state: &Path, args: &[&str]) -> Vec<u64> {
    let answer = run(state, &[args, &["-o", "json"]].concat());
    let seq = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["seq"].as_u64().unwrap();
    answer.out.lines().map(seq).collect()
}

#[tokio::test(start_paused = true)]
async fn get_takes_what_kubectl_takes() {
    let dir = shop().await;
    let at = "2026-11-20T10:50:00Z";
    golden(
        "get_kinds",
        &transcript(
            dir.path(),
            &[
                &["get", "deploy", "--at", at],
                &["get", "deploy", "web", "--at", at, "-o", "name"],
                &["get", "pods", "-n", "shop", "--at", at],
                &["get", "pods", "-A", "--at", "10"],
                &["get", "pods,cm", "--at", at],
                &["get", "cm", "--at", "2", "-n", "pay", "-n", "shop"],
                &["get", "deploy/web", "cm/settings", "--at", at],
                &["get", "rs", "web-5d8f", "web-7c9b", "--at", at],
                &["get", "pods/web-7c9b-*", "--at", at],
                &["get", "secrets", "-l", "tier in (data),!gone", "--at", at, "-o", "wide"],
                &["get", "secrets", "-l", "tier=db", "--at", "18"],
                &["get", "deploy/web", "--at", at, "-o", "line"],
                &["get", "pods", "-o", "name", "--at", at],
                &["get", "po/web-7c9b-zzz42", "--at", "25"],
                &["get", "pods", "--at", "23", "-o", "yaml"],
            ],
        ),
    );
    let narrow = run_on_terminal(dir.path(), &["get", "pods,deploy", "--at", at, "--color", "never"], 60);
    assert!(narrow.out.lines().all(|line| line.chars().count() <= 60), "{}", narrow.out);

    // KIND NAME is KIND/NAME, with one object as with several.
    let out = |args: &[&str]| run(dir.path(), &[&["get"], args].concat()).out;
    assert_eq!(out(&["deploy", "web"]), out(&["deploy/web"]));
    assert_eq!(out(&["po", "web-7c9b-k8s7t", "web-7c9b-zzz42", "-o", "json"]).lines().count(), 2);
    assert_eq!(out(&["po", "-o", "json"]), out(&["po", "web-7c9b-k8s7t", "web-7c9b-zzz42", "-o", "json"]));
    assert_eq!(out(&["po,po/web-7c9b-zzz42", "-o", "name"]).lines().count(), 2);

    // YAML leaves managedFields out; JSON is the object to the byte.
    let yaml = out(&["deploy/web"]);
    assert!(!yaml.contains("managedFields") && yaml.contains("uid: "), "{yaml}");
    assert!(out(&["deploy/web", "--show-managed-fields"]).contains("managedFields:"));
    assert!(out(&["deploy/web", "-o", "json"]).contains("\"managedFields\":["));
    assert!(!out(&["deploy/web", "-o", "json", "--clean"]).contains("managedFields"));
}

#[tokio::test(start_paused = true)]
async fn entries_are_chosen_by_labels_names_and_namespaces() {
    let dir = shop().await;
    let seqs = |args: &[&str]| seqs(dir.path(), &[&["tail", "--last", "100"], args].concat());
    // As each entry has them: the label changed with 20.
    assert_eq!(seqs(&["secrets", "-l", "tier=db"]), [18, 19]);
    assert_eq!(seqs(&["secrets", "-l", "tier=data"]), [20]);
    assert_eq!(seqs(&["secrets", "-l", "!tier"]), [33, 34]);
    // Nobody knows of which objects a gap is, and what is deleted has its last labels.
    assert_eq!(seqs(&["deploy", "--selector", "app in (web)", "--since", "2026-11-20T10:36:00Z"]), [25, 26, 27, 28, 29]);
    assert_eq!(seqs(&["-l", "tier", "--where", "type == 'ADDED'"]), [18]);

    assert_eq!(seqs(&["pods/web-7c9b-*"]), [13, 22, 23, 24]);
    assert_eq!(seqs(&["pods/*-zzz4?", "--type", "ADDED"]), [24]);
    assert_eq!(seqs(&["cm", "-n", "pay"]), [2, 32, 35]);
    assert_eq!(seqs(&["cm", "-n", "pay", "-n", "shop"]), [1, 2, 21, 32, 35]);
    assert_eq!(seqs(&["cm", "-n", "pay,shop"]), [1, 2, 21, 32, 35]);
    assert_eq!(run(dir.path(), &["diff", "-n", "pay,shop", "--from", "1"]).out, run(dir.path(), &["diff", "--from", "1"]).out);
}
