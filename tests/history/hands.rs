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
    for command in ["log", "blame"] {
        assert_eq!(run(dir.path(), &[command, "deploy", "web"]).out, run(dir.path(), &[command, "deploy/web"]).out);
    }
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
    assert_eq!(
        seqs(&["deploy", "--selector", "app in (web)", "--since", "2026-11-20T10:36:00Z"]),
        [25, 26, 27, 28, 29]
    );
    assert_eq!(seqs(&["-l", "tier", "--where", "type == 'ADDED'"]), [18]);

    // What an expression cannot answer within its budget is left out, and one sentence says so.
    let heavy = format!("[epoch]{}.size() > 0", ".map(x, x+x+x+x+x+x+x+x+x+x)".repeat(9));
    for command in
        [&["tail", "--last", "100"][..], &["log", "deploy/web", "--all"], &["churn", "--since", "2026-11-20T09:00:00Z"]]
    {
        let answer = run(dir.path(), &[command, &["--where", &heavy]].concat());
        assert_eq!(
            (answer.code, answer.err.matches("note: --where: entry ").count()),
            (0, 1),
            "{command:?}: {answer:?}"
        );
    }

    assert_eq!(seqs(&["pods/web-7c9b-*"]), [13, 22, 23, 24]);
    assert_eq!(seqs(&["pods/*-zzz4?", "--type", "ADDED"]), [24]);
    assert_eq!(seqs(&["cm", "-n", "pay"]), [2, 32, 35]);
    assert_eq!(seqs(&["cm", "-n", "pay", "-n", "shop"]), [1, 2, 21, 32, 35]);
    assert_eq!(seqs(&["cm", "-n", "pay,shop"]), [1, 2, 21, 32, 35]);
    assert_eq!(
        run(dir.path(), &["diff", "-n", "pay,shop", "--from", "1"]).out,
        run(dir.path(), &["diff", "--from", "1"]).out
    );
}

#[tokio::test(start_paused = true)]
async fn an_entry_is_shown_by_its_seq() {
    let dir = shop().await;
    let state = dir.path();
    golden(
        "show",
        &transcript(state, &[&["show", "16"], &["show", "19"], &["show", "25"], &["show", "32"], &["show", "26"]]),
    );
    let line = run(state, &["tail", "-o", "json", "--where", "seq == 16"]).out;
    assert_eq!(run(state, &["show", "16", "-o", "json"]).out, line);
    assert!(run(state, &["show", "16", "-o", "yaml"]).out.contains("\nseq: 16\n"));
    assert_eq!(run(state, &["version"]).out, run(state, &["--version"]).out);
}

#[tokio::test(start_paused = true)]
async fn two_moments_are_written_as_git_writes_them() {
    let dir = shop().await;
    let diff = |args: &[&str]| {
        let answer = run(dir.path(), &[&["diff"], args].concat());
        assert_eq!(answer.code, 0, "{args:?}: {answer:?}");
        answer.out
    };
    let flags = diff(&["deploy/web", "--from", "10", "--to", "17"]);
    assert!(flags.contains("replicas: 5"), "{flags}");
    for args in [["10..17", "deploy/web"], ["deploy/web", "10..17"]] {
        assert_eq!(diff(&args), flags, "{args:?}");
    }
    assert_eq!(diff(&["deploy/web", "10", "17"]), flags);
    let day = "2026-11-20T";
    let times = diff(&[&format!("{day}10:11:00Z..{day}10:37:00Z")]);
    assert_eq!(times, diff(&["--from", "2026-11-20T10:11:00Z", "--to", "2026-11-20T10:37:00Z"]));
    assert_eq!(diff(&["20..", "cm"]), diff(&["cm", "--from", "20"]));
    assert_eq!(diff(&["cm", "20"]), diff(&["cm", "--from", "20"]));
}

/// Who asks for some entries is not left to take the newest ten for all of them.
#[tokio::test(start_paused = true)]
async fn what_a_default_cuts_off_is_said() {
    let dir = shop().await;
    let cut = "showing the newest 10 matches";
    for (args, says) in [
        (&["tail", "-n", "shop"][..], true),
        (&["tail", "--type", "MODIFIED", "-r"], true),
        (&["tail"], false),
        (&["tail", "-n", "shop", "--last", "10"], false),
        (&["tail", "-n", "shop", "--since", "2026-11-20T00:00:00Z"], false),
        (&["tail", "-n", "pay"], false),
    ] {
        let answer = run(dir.path(), args);
        assert_eq!(answer.err.contains(cut), says, "{args:?}: {answer:?}");
        assert!(!says || answer.out.lines().count() >= 10, "{answer:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_log_is_read_in_both_directions() {
    let dir = shop().await;
    for args in [
        &["tail"][..],
        &["tail", "--last", "100"],
        &["tail", "pods", "--since", "2026-11-20T10:00:00Z"],
        &["tail", "--where", "type == 'ADDED'", "--last", "3"],
        &["log", "deploy/web"],
        &["log", "deploy/web", "--last", "4"],
        &["log", "deploy/web", "--type", "MODIFIED", "--last", "2"],
        &["log", "deploy/web", "--touched", ".spec.replicas"],
    ] {
        let mut there = seqs(dir.path(), args);
        assert!(there.len() > 1, "{args:?}: {there:?}");
        there.reverse();
        assert_eq!(seqs(dir.path(), &[args, &["-r"]].concat()), there, "{args:?}");
    }
    golden(
        "log_reverse",
        &transcript(dir.path(), &[&["log", "deploy/web", "--reverse"], &["tail", "--reverse", "--last", "2"]]),
    );
}

#[tokio::test(start_paused = true)]
async fn entries_are_found_by_what_they_touch_and_what_they_say() {
    let dir = shop().await;
    let log = |args: &[&str]| seqs(dir.path(), &[&["log", "deploy/web", "-r"], args].concat());
    // 3, 27 and 28 came and went with the field, and 25 is a gap.
    assert_eq!(log(&["--touched", ".spec.replicas"]), [3, 16, 25, 27, 28]);
    assert_eq!(log(&["--touched", "/spec/template/spec/containers/0/image"]), [3, 11, 25, 27, 28]);
    // What came with a whole element as well.
    assert_eq!(log(&["--touched", "image"]), [3, 11, 17, 25, 27, 28]);
    assert_eq!(log(&["--touched", ".spec.template.spec.containers[*].image"]), log(&["--touched", "image"]));
    assert_eq!(log(&["--touched", ".spec.paused", "--type", "MODIFIED"]), [29]);
    assert_eq!(log(&["--touched", ".spec.nothing", "--type", "MODIFIED"]), Vec::<u64>::new());

    let tail = |args: &[&str]| seqs(dir.path(), &[&["tail", "--last", "100"], args].concat());
    assert_eq!(tail(&["--grep", "log (info|debug)"]), [1, 21]);
    assert_eq!(tail(&["--grep", "LOG INFO"]), Vec::<u64>::new());
    assert_eq!(tail(&["--grep", "(?i)LOG INFO"]), [1, 21]);
    assert_eq!(tail(&["--grep", "\"type\":\"GAP\"", "pods"]), [22]);
}

#[tokio::test(start_paused = true)]
async fn blame_answers_for_the_fields_that_are_asked_for() {
    let dir = shop().await;
    golden(
        "blame_paths",
        &transcript(
            dir.path(),
            &[
                &["blame", "deploy/web", ".spec.replicas", "--at", "26"],
                &["blame", "deploy", "web", "/spec/replicas", "image", "--at", "26"],
                &["blame", "deploy/web", ".spec.template.spec.containers[1]", "--at", "26"],
                &["blame", "deploy/web", ".spec.replicas", "--at", "26", "-o", "json"],
                &["blame", "deploy/web", ".spec.nothing"],
                &["blame", "deploy/web", ".spec["],
                &["blame", "deploy/web", ".spec.replicas", "--at", "18"],
            ],
        ),
    );
}

/// Every command of the page is one that can be typed.
#[tokio::test(start_paused = true)]
async fn the_questions_of_the_documents_have_answers() {
    let dir = shop().await;
    let page = include_str!("../../docs/filters.md");
    let mut text = String::new();
    for command in page.lines().filter_map(|line| line.strip_prefix("$ decklog tail --where ")) {
        let filter = command.strip_prefix('\'').and_then(|text| text.strip_suffix('\'')).unwrap();
        let answer = run(dir.path(), &["tail", "--last", "100", "-o", "json", "--where", filter]);
        assert_eq!(answer.code, 0, "{answer:?}");
        let found = seqs(dir.path(), &["tail", "--last", "100", "--where", filter]);
        text.push_str(&format!("{filter}\n{found:?}\n"));
    }
    golden("filters", &text);
    // The story has nothing that was scaled down.
    let up = "change.patch.exists(p, p.path == '/spec/replicas' && p.value > p.was)";
    assert_eq!(seqs(dir.path(), &["tail", "--last", "100", "--where", up]), [16]);
}

#[tokio::test(start_paused = true)]
async fn a_habit_that_does_not_fit_gets_what_to_type_instead() {
    let dir = shop().await;
    let mut text = String::new();
    for args in [
        &["tail", "-n", "5"][..],
        &["tail", "-n5"],
        &["tail", "-5"],
        &["tail", "--lines", "5"],
        &["tail", "--lines=5"],
        &["log", "deploy/web", "--tail", "5"],
        &["tail", "--user", "prod"],
        &["get", "deploy/web", "-w"],
        &["get", "deploy", "--watch"],
        &["log", "deploy/web", "-A"],
        &["log", "deploy/web", "-l", "app=web"],
        &["log", "deploy", "web", "api"],
        &["tail", "-p"],
        &["tail", "--untl", "1h"],
        &["status", "-l"],
        &["get", "deploy/web", "-o", "jsonpath={.spec.replicas}"],
        &["describe", "deploy/web"],
        &["events"],
        &["history", "deploy/web"],
        &["who", "deploy/web"],
        &["get", "all"],
        &["log", "web"],
        &["tail", "-n", ""],
        &["log", "pods/web-*"],
        &["blame", "pods", "web-7c9b-*"],
        &["logs", "deploy/web"],
        &["statsu"],
        &["frobnicate"],
    ] {
        let answer = run(dir.path(), args);
        assert!([1, 64].contains(&answer.code) && answer.out.is_empty(), "{args:?}: {answer:?}");
        for misleading in ["to pass", "a similar", "tip:"] {
            assert!(!answer.err.contains(misleading), "{args:?}: {answer:?}");
        }
        let first = answer.err.lines().next().unwrap_or_default();
        text.push_str(&format!("$ decklog {}\n{} {first}\n", args.join(" "), answer.code));
    }
    golden("hints", &text);
}

/// By whom: of what was created, changed and scaled; with a hint where nobody is called so.
#[tokio::test(start_paused = true)]
async fn entries_are_chosen_by_who_wrote_them() {
    let dir = shop().await;
    let tail = |args: &[&str]| seqs(dir.path(), &[&["tail", "--last", "1000"], args].concat());
    let managers = |line: &serde_json::Value| -> Vec<String> {
        let names = |list: &serde_json::Value| -> Vec<String> {
            list.as_array().into_iter().flatten().map(|one| one["manager"].as_str().unwrap().to_owned()).collect()
        };
        match (line["type"].as_str().unwrap(), line["evidence"].as_str()) {
            ("MODIFIED", _) => names(&line["change"]["managers"]),
            ("ADDED", Some("watched" | "recovered")) => names(&line["object"]["metadata"]["managedFields"]),
            _ => Vec::new(),
        }
    };
    let all = run(dir.path(), &["tail", "--last", "1000", "-o", "json"]).out;
    let all: Vec<serde_json::Value> = all.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let by = |wanted: &dyn Fn(&str) -> bool| -> Vec<u64> {
        let is_by = |line: &&serde_json::Value| managers(line).iter().any(|name| wanted(name));
        all.iter().filter(is_by).map(|line| line["seq"].as_u64().unwrap()).collect()
    };
    let kubectl = by(&|name| name.starts_with("kubectl"));
    assert!(
        !kubectl.is_empty()
            && all.iter().any(|line| line["type"] == "ADDED" && kubectl.contains(&line["seq"].as_u64().unwrap()))
    );
    assert_eq!(tail(&["--by", "kubectl*"]), kubectl);
    assert_eq!(tail(&["--where", "by.exists(name, name.startsWith('kubectl'))"]), kubectl);
    let two = by(&|name| name == "kubelet" || name == "kubectl");
    assert_eq!(tail(&["--by", "kubelet,kubectl"]), two);
    let log = seqs(dir.path(), &["log", "deploy/web", "--all", "--by", "kubectl*"]);
    assert!(!log.is_empty() && log.iter().all(|seq| kubectl.contains(seq)), "{log:?}");
    for command in [&["tail"][..], &["log", "deploy/web"], &["churn", "--since", "2026-11-20T09:00:00Z"]] {
        let answer = run(dir.path(), &[command, &["--by", "kubelett"]].concat());
        assert!(answer.err.contains("--by: no entry here is by kubelett"), "{command:?}: {answer:?}");
    }
}

/// A name that no entry has, where nothing else is found: the sentence says what comes nearest, whatever the command and the flag.
#[tokio::test(start_paused = true)]
async fn what_no_entry_has_gets_the_nearest_that_one_has() {
    let dir = shop().await;
    let field = |name: &str, near: &str| format!("note: --touched: no entry here changed {name}{near}");
    for (args, said) in [
        (&["tail", "--touched", "replica"][..], Some(field("replica", "; did you mean replicas?"))),
        (&["tail", "--touched", "imagee", "--last", "3"], Some(field("imagee", "; did you mean image?"))),
        (&["tail", "--touched", ".spec.replica"], Some(field(".spec.replica", "; did you mean .spec.replicas?"))),
        (&["tail", "--touched", "/spec/replica"], Some(field(".spec.replica", "; did you mean .spec.replicas?"))),
        (
            &["tail", "--touched", ".spec.template.spec.containers[*].imagee"],
            Some(field(
                ".spec.template.spec.containers[*].imagee",
                "; did you mean .spec.template.spec.containers[0].image?",
            )),
        ),
        (&["tail", "--touched", "zzzzzzzzzzzzzzzzzzzz"], Some(field("zzzzzzzzzzzzzzzzzzzz", ""))),
        (&["log", "deploy/web", "--touched", "replica"], Some(field("replica", "; did you mean replicas?"))),
        (&["log", "--since", "3000d", "--touched", "replica"], Some(field("replica", "; did you mean replicas?"))),
        (&["churn", "--since", "3000d", "--touched", "replica"], Some(field("replica", "; did you mean replicas?"))),
        (&["tail", "--touched", "replicas"], None),
        (
            &["tail", "--by", "kubectl-sett"],
            Some("note: --by: no entry here is by kubectl-sett; did you mean".to_owned()),
        ),
        (
            &["tail", "--where", "change.managers.exists(m, m.manager == 'kubectl-sett')"],
            Some("note: --where: no entry here is by kubectl-sett; did you mean".to_owned()),
        ),
        (
            &["log", "deploy/web", "--where", "'kubectl-rollot' in by"],
            Some("note: --where: no entry here is by kubectl-rollot; did you mean kubectl-rollout?".to_owned()),
        ),
        (&["tail", "--where", "kind == 'Deployment' && 'kubectl' in by"], None),
    ] {
        let answer = run(dir.path(), args);
        let hints: Vec<&str> = answer.err.lines().filter(|line| line.contains("no entry here")).collect();
        match said {
            Some(said) => assert!(hints.len() == 1 && hints[0].contains(&said), "{args:?}: {answer:?}"),
            None => assert!(hints.is_empty() && !answer.out.is_empty(), "{args:?}: {answer:?}"),
        }
    }
}
