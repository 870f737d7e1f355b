//! Every output, on terminals of 80, 120 and 200 columns, without a terminal, and as JSON, against `tests/golden`.

use std::path::Path;

use crate::story::{Answer, run, run_on_terminal, shop};

pub(crate) fn told(answer: &Answer) -> String {
    format!("exit {}\n{}{}", answer.code, answer.out, answer.err)
}

pub(crate) fn golden(name: &str, text: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("../golden");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, text));
}

/// In every form that a person or a program may see it.
fn every(state: &Path, name: &str, args: &[&str]) {
    let widths = if ["log", "tail"].contains(&args[0]) { &[80, 120, 200][..] } else { &[80, 120] };
    for &columns in widths {
        let answer = run_on_terminal(state, &[args, &["--color", "never"]].concat(), columns);
        let cut =
            |line: &&str| line.chars().count() > usize::from(columns) && !line.contains("GAP") && !line.contains("gap");
        assert_eq!(answer.out.lines().find(cut), None, "{name} in {columns} columns");
        golden(&format!("{name}_{columns}"), &told(&answer));
    }
    golden(&format!("{name}_plain"), &told(&run(state, args)));
    golden(&format!("{name}_json"), &told(&run(state, &[args, &["-o", "json"]].concat())));
    // Colours are the only thing that they change.
    let colored = run(state, &[args, &["--color", "always"]].concat()).out;
    assert_eq!(anstream::adapter::strip_str(&colored).to_string(), run(state, args).out);
}

#[tokio::test(start_paused = true)]
async fn what_is_printed_is_what_was_reviewed() {
    let dir = shop().await;
    let state = dir.path();
    every(state, "log", &["log", "deploy/web", "-n", "shop"]);
    every(state, "log_patch", &["log", "-p", "deploy/web"]);
    every(
        state,
        "log_between",
        &["log", "deploy/web", "--since", "2026-11-20T10:12:00Z", "--until", "2026-11-20T10:37:00Z"],
    );
    every(state, "log_gap_last", &["log", "cm/settings", "-p", "--last", "2"]);
    every(state, "log_last", &["log", "po/web-7c9b-zzz42", "--last", "5"]);
    every(
        state,
        "log_where",
        &["log", "deploy/web", "--where", "'spec' in change.areas", "--last", "2", "--type", "modified"],
    );
    every(state, "log_patch_redacted", &["log", "-p", "secret/db"]);
    every(state, "log_patch_dropped", &["log", "-p", "secret/token"]);
    every(state, "diff_redacted", &["diff", "secrets", "--from", "18", "--to", "20"]);
    every(state, "diff_dropped", &["diff", "secret/token", "--from", "33"]);
    every(state, "log_patch_text", &["log", "-p", "cm/settings", "--type", "MODIFIED"]);
    every(state, "log_tree", &["log", "--tree", "deploy/web"]);
    every(state, "log_gone", &["log", "po/web-5d8f-x2x4q", "-p", "--last", "3"]);
    every(
        state,
        "diff_object",
        &["diff", "deploy/web", "--from", "2026-11-20T10:10:00Z", "--to", "2026-11-20T10:30:00Z"],
    );
    every(state, "diff_replaced", &["diff", "deploy/web", "--from", "2026-11-20T10:30:00Z"]);
    every(
        state,
        "diff_namespace",
        &["diff", "-n", "shop", "--from", "2026-11-20T10:11:00Z", "--to", "2026-11-20T10:37:00Z"],
    );
    every(state, "diff_all", &["diff", "--from", "2026-11-20T10:34:00Z"]);
    every(state, "diff_added", &["diff", "deploy/web", "--from", "1", "--to", "3"]);
    every(state, "diff_came_and_went", &["diff", "pods", "--from", "2", "--to", "15"]);
    every(state, "diff_first_seen", &["diff", "-n", "pay", "--from", "1", "--to", "3"]);
    every(state, "diff_none", &["diff", "deploy/web", "--from", "4", "--to", "6"]);
    every(state, "blame", &["blame", "deploy/web", "--at", "2026-11-20T10:30:00Z"]);
    every(state, "blame_changed", &["blame", "cm/settings"]);
    every(state, "blame_listed", &["blame", "cm/settings", "--at", "1"]);
    every(state, "blame_gap", &["blame", "po/web-7c9b-k8s7t"]);
    every(state, "tail", &["tail", "--last", "16"]);
    every(state, "tail_pods", &["tail", "pods", "-n", "shop"]);
    every(state, "tail_gaps", &["tail", "--type", "GAP", "--since", "2026-11-20T10:30:00Z"]);
    every(state, "tail_where", &["tail", "--where", "kind == 'Secret' && name == 'db'"]);
    every(state, "tail_nothing", &["tail", "--where", "type == 'ADDED' && kind == 'Node'"]);
    every(state, "log_nothing", &["log", "deploy/web", "--until", "2026-11-20T10:00:30Z"]);
    golden("tail_yaml", &told(&run(state, &["tail", "secrets", "-o", "yaml", "--last", "2"])));
    golden("tail_color", &run(state, &["tail", "--last", "16", "--color", "always"]).out);
    golden("get_json", &told(&run(state, &["get", "cm/settings", "-o", "json"])));
    golden("schema_entry", &told(&run(state, &["schema", "entry"])));
    verified(state);
    golden("get_clean", &told(&run(state, &["get", "deploy/web", "--clean"])));
    golden("get_clean_json", &told(&run(state, &["get", "deploy/web", "--clean", "-o", "json"])));
    golden("get_clean_redacted", &told(&run(state, &["get", "secret/db", "--clean"])));
    golden("get_at", &told(&run(state, &["get", "deploy/web", "--at", "2026-11-20T10:10:00Z"])));
    golden("log_color", &run(state, &["log", "-p", "deploy/web", "--last", "2", "--color", "always"]).out);
    golden("blame_yaml", &told(&run(state, &["blame", "po/web-7c9b-k8s7t", "-o", "yaml"])));
}

/// The journal, a copy that is whole, one with an end that is missing, and one that was altered.
fn verified(state: &Path) {
    let masked = |answer: &Answer| told(answer).replace(state.to_str().unwrap(), "STATE");
    let copy = run(state, &["tail", "--last", "1000", "-o", "json"]).out;
    let lines: Vec<&str> = copy.lines().collect();
    let files = [
        ("whole", copy.clone()),
        ("short", format!("{}\n", lines[..20].join("\n"))),
        ("altered", copy.replace("worker-2", "worker-3").replace("\"seq\":30,", "\"seq\":31,")),
        ("empty", String::new()),
    ];
    let mut commands = vec![vec!["verify".to_owned()]];
    for (name, text) in files {
        std::fs::write(state.join(format!("{name}.jsonl")), text).unwrap();
        commands.push(vec!["verify".to_owned(), format!("{name}.jsonl")]);
    }
    let mut text = String::new();
    for command in commands {
        for more in [&[][..], &["-o", "json"]] {
            let args: Vec<&str> = command.iter().map(String::as_str).chain(more.iter().copied()).collect();
            text.push_str(&format!("$ decklog {}\n{}\n", args.join(" "), masked(&run(state, &args)).trim_end()));
        }
    }
    golden("verify", &text);
}

#[tokio::test(start_paused = true)]
async fn each_bad_input_gets_one_sentence_with_the_nearest_right_answer() {
    let dir = shop().await;
    let mut text = String::new();
    for args in [
        &["log", "deploy/wbe"][..],
        &["log", "deploy/something-else"],
        &["log", "deploymnet/web"],
        &["log", "deploy"],
        &["blame", "deploy"],
        &["why", "deploy"],
        &["log", "ev/e1"],
        &["log", "deploy/web", "-n", "pay"],
        &["log", "deploy/web", "--where", "change.areas ="],
        &["log", "rs/none"],
        &["get", "deploy/web", "--at", "2026-11-20T09:00:00Z"],
        &["get", "deploy/web", "--at", "2099-01-01T00:00:00Z"],
        &["get", "deploy/web", "--at", "1"],
        &["get", "deploy/web", "--at", "999"],
        &["get", "deploy/web", "--at", "2026-11-20T10:41:00Z"],
        &["get", "ev/e1"],
        &["get", "deploy", "wbe"],
        &["get", "deploy/web", "cm"],
        &["get", "deploy", "-n", "pay"],
        &["get", "deploy", "--at", "2026-11-20T09:00:00Z"],
        &["get", "deploy", "--at", "2026-11-20T10:00:30Z"],
        &["get", "pods/wbe-*"],
        &["get", "pods", "-l", "app=nothing"],
        &["get", "pods", "-l", "app im (x)"],
        &["get", "pods", "-l", "app=a b"],
        &["tail", "-n", "shop,shpo"],
        &["tail", "--grep", "("],
        &["tail", "--touched", ".spec["],
        &["tail", "pods/wbe-*"],
        &["tail", "-o", "wide"],
        &["show", "999"],
        &["show", "deploy/web"],
        &["diff", "10..17", "--from", "3"],
        &["diff", "10..noon"],
        &["diff", "1", "2", "3"],
        &["tail", "-r", "-f"],
        &["rbac", "-o", "json"],
        &["replay", "--sink", "x", "--from", "1", "-o", "json"],
        &["get", "deploy/web", "--at", "noon"],
        &["blame", "deploy/web", "--at", "2026-11-20T09:00:00Z"],
        &["blame", "deploy/web", "--at", "2026-11-20T10:41:00Z"],
        &["blame", "deploy/nobody"],
        &["diff", "--from", "0"],
        &["diff", "--from", "2026-11-20T10:10:00Z", "--to", "2026-11-20T10:00:00Z"],
        &["diff", "--from", "999"],
        &["diff", "-n", "shop", "2026-11-20T09:00:00Z..2026-11-20T09:30:00Z"],
        &["diff", "-n", "shop", "2026-11-20T09:30:00Z..2026-11-20T09:00:00Z"],
        &["diff", "deploy/none", "--from", "1"],
        &["diff", "deploy,cm/settings", "--from", "1"],
        &["diff", "-n", "shpo", "--from", "1"],
        &["diff", "deploy/web", "--from", "5", "--to", "999"],
        &["log", "deploy/web", "--since", "2099-01-01T00:00:00Z"],
        &["log", "deploy/web", "--until", "2026-11-20T09:00:00Z"],
        &["log", "deploy/web", "--since", "2026-11-20T10:30:00Z", "--until", "2026-11-20T10:20:00Z"],
        &["log", "deploy/web", "--last", "many"],
        &["log", "deploy/web", "--where", "kind == 1"],
        &["tail", "deploy/wbe"],
        &["tail", "deploy/something-else"],
        &["tail", "po/web-5d8f-x2x4q", "-n", "pay"],
        &["tail", "deploymnet"],
        &["tail", "deploy/web/x"],
        &["tail", "-n", "shpo"],
        &["tail", "-n", "nowhere"],
        &["tail", "--since", "noon"],
        &["tail", "--since", "2026-11-20 10:00 Mars/Base"],
        &["tail", "--since", "2099-01-01T00:00:00Z"],
        &["tail", "--until", "2026-11-20T09:00:00Z"],
        &["tail", "--since", "2026-11-20T10:30:00Z", "--until", "2026-11-20T10:20:00Z"],
        &["tail", "--type", "CHANGED"],
        &["tail", "--last", "many"],
        &["tail", "--where", "knd == 'Pod'"],
        &["churn", "deploy/wbe"],
        &["churn", "deploymnet"],
        &["churn", "-n", "shpo"],
        &["churn", "--since", "2099-01-01T00:00:00Z"],
        &["churn", "--until", "2026-11-20T09:00:00Z"],
        &["churn", "--since", "2026-11-20T10:30:00Z", "--until", "2026-11-20T10:20:00Z"],
        &["churn", "--top", "many"],
        &["churn", "--where", "change.area == []"],
        &["churn", "--requests", "--since", "2026-11-20T10:00:00Z", "--until", "2026-11-20T11:00:00Z"],
    ] {
        let answer = run(dir.path(), args);
        assert!([1, 64].contains(&answer.code), "{args:?}: {answer:?}");
        assert_eq!(answer.out, "", "{args:?}");
        if !answer.err.contains("Usage:") && !answer.err.contains("--help") {
            assert_eq!(answer.err.lines().count(), 1, "{args:?}: {answer:?}");
        }
        let now = answer.err.find("it is 20").map_or(answer.err.len(), |at| at);
        text.push_str(&format!("$ decklog {}\n{} {}\n", args.join(" "), answer.code, answer.err[..now].trim_end()));
    }
    golden("bad_input", &text);
}
