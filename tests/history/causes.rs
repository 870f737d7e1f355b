//! What changed in a namespace, of a journal in which much happens and eight things matter.

use std::path::Path;

use serde_json::{Value, json};

use crate::incident::{INCIDENT, incident};
use crate::story::{Answer, Story, run, run_on_terminal};

/// What each of the eight causes is seen by, in a terminal's words.
const CAUSES: [&[&str]; 11] = [
    &["deploy/web", "ci", "image"],
    &["cm/settings", "kubectl-edit", "LOG_LEVEL"],
    &["secret/db", "vault", "password"],
    &["netpol/deny-all", "kubectl-create", "created"],
    &["deploy/cart", "replicas 2 → 0"],
    &["cm/old-1", "deleted"],
    &["cm/old-2", "deleted"],
    &["svc/legacy", "deleted"],
    &["deploy/legacy", "deleted"],
    &["clusterrolebinding/shop-admin", "kubectl-create", "created"],
    &["node/worker-1", "kubectl-cordon", "spec.unschedulable"],
];

fn between<'a>(args: &[&'a str]) -> Vec<&'a str> {
    [&["log", "--since", INCIDENT.0, "--until", INCIDENT.1, "--color", "never"], args].concat()
}

fn documents(state: &Path, args: &[&str]) -> Vec<Value> {
    let answer = run(state, &between(&[args, &["-o", "json"]].concat()));
    assert_eq!(answer.code, 0, "{answer:?}");
    answer.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Reports whether a line, with what goes on below it, has all the words.
fn has(answer: &Answer, words: &[&str]) -> bool {
    let lines: Vec<&str> = answer.out.lines().collect();
    lines.windows(2).any(|pair| pair[0].contains(words[0]) && words.iter().all(|word| pair.join(" ").contains(word)))
}

fn object(entry: &Value) -> String {
    format!("{}/{}", entry["resource"].as_str().unwrap(), entry["name"].as_str().unwrap())
}

/// No other test has noise and causes at once, as a cluster has them.
#[tokio::test(start_paused = true)]
async fn a_screen_shows_every_cause_of_an_incident() {
    let dir = incident().await;
    let state = dir.path();
    for scope in [&["-n", "shop"][..], &[]] {
        for columns in [80, 200] {
            let answer = run_on_terminal(state, &between(scope), columns);
            assert!(answer.out.lines().count() <= 25, "{columns}: {}", answer.out);
            for cause in CAUSES {
                assert!(has(&answer, cause), "{scope:?} in {columns}: {cause:?}\n{}", answer.out);
            }
            let too_wide = answer.out.lines().find(|line| line.chars().count() > usize::from(columns));
            assert_eq!(too_wide, None, "{columns}");
            // Noise is one line for each that makes it, below the causes.
            for noise in ["stamped", "contested", "deploy/api", "cj/report", "cj/backup"] {
                let lines = answer.out.lines().filter(|line| line.contains(noise)).count();
                assert_eq!(lines, 1, "{columns} {noise}\n{}", answer.out);
            }
            assert!(has(&answer, &["contested", "alpha-operator and beta-operator"]), "{}", answer.out);
            assert!(!answer.out.contains("other-"), "a first list is no change\n{}", answer.out);
        }
        let plain = run(state, &between(scope));
        assert!(plain.out.lines().count() <= 25, "{}", plain.out);
        for name in ["deployments.apps shop/web", "nodes worker-1", "shop-admin", "shop/deny-all", "shop/cart"] {
            assert!(plain.out.contains(name), "{name}\n{}", plain.out);
        }
    }
    crate::golden::golden("causes_80", &run_on_terminal(state, &between(&["-n", "shop"]), 80).out);
    crate::golden::golden("causes_200", &run_on_terminal(state, &between(&["-n", "shop"]), 200).out);
    crate::golden::golden("causes_plain", &run(state, &between(&["-n", "shop"])).out);
    folded_in_json(state);
    options(state);
}

fn folded_in_json(state: &Path) {
    let found = documents(state, &["-n", "shop"]);
    let of = |name: &str| {
        let is_it = |one: &&Value| one["entry"].is_object() && object(&one["entry"]) == name;
        found.iter().find(is_it).unwrap_or_else(|| panic!("no {name}")).clone()
    };
    let web = of("deployments/web");
    assert_eq!((&web["role"], &web["by"][0]), (&"cause".into(), &"ci".into()));
    let mut folded: Vec<String> = web["folded"].as_array().unwrap().iter().map(object).collect();
    folded.sort();
    folded.dedup();
    assert_eq!(
        folded,
        [
            "deployments/web",
            "endpoints/web",
            "events/web-7c9b.1",
            "poddisruptionbudgets/web",
            "pods/web-7c9b-0",
            "pods/web-7c9b-1",
            "replicasets/web-7c9b"
        ]
    );
    assert_eq!(of("gadgets/contested")["role"], "repeated");
    assert_eq!(of("widgets/stamped")["count"], 120);
    assert_eq!(of("deployments/api")["role"], "controller");
    let node = of("nodes/worker-1");
    assert_eq!(node["folded"].as_array().unwrap().len(), 1, "the taint follows from the cordon");
    // Nothing is lost: each change of the time is in one group.
    let all: Vec<u64> = documents(state, &["--all"]).iter().map(|one| one["entry"]["seq"].as_u64().unwrap()).collect();
    let everywhere = documents(state, &[]);
    let leases = everywhere.iter().filter(|one| one["resources"]["leases.coordination.k8s.io"] == 0);
    let leases: u64 = leases.map(|one| one["count"].as_u64().unwrap()).sum();
    let entries = everywhere.iter().flat_map(|one| one["folded"].as_array().unwrap().iter().chain(one.get("entry")));
    let mut seqs: Vec<u64> = entries.map(|entry| entry["seq"].as_u64().unwrap()).collect();
    seqs.sort_unstable();
    let count = seqs.len();
    seqs.dedup();
    assert_eq!((seqs.len(), u64::try_from(seqs.len()).unwrap() + leases), (count, u64::try_from(all.len()).unwrap()));
}

/// What fits and is shown by no line is said, with its number and the flag that shows it, whatever chooses it.
fn hidden(state: &Path) {
    let (mut some, mut none) = (0, 0);
    for filter in [
        &["--by", "kube-scheduler"][..],
        &["--by", "kube-scheduler,kubelet"],
        &["--by", "kube-controller-manager", "--type", "DELETED"],
        &["--where", "kind == 'ReplicaSet'"],
        &["--type", "ADDED", "--where", "kind == 'Pod'"],
        &["--grep", "ContainersReady"],
        &["--only", "status"],
        &["--touched", "status"],
        &["--by", "kube-scheduler", "--last", "5"],
        &["--last", "1", "--where", "kind == 'Pod' && type == 'MODIFIED'"],
    ] {
        for place in [&[][..], &["-n", "shop"]] {
            let args = [filter, place].concat();
            let lines = |more: &[&str]| run(state, &between(&[&args[..], more, &["-o", "json"]].concat()));
            let all: Vec<Value> =
                lines(&["--all"]).out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            let shown = documents(state, &args);
            let of = |one: &Value| one["entry"]["seq"].as_u64();
            let seqs: Vec<u64> = shown
                .iter()
                .flat_map(|one| {
                    one["folded"]
                        .as_array()
                        .into_iter()
                        .flatten()
                        .filter_map(|entry| entry["seq"].as_u64())
                        .chain(of(one))
                })
                .collect();
            let missing = all.iter().filter(|one| of(one).is_some_and(|seq| !seqs.contains(&seq))).count();
            let said = run(state, &between(&args)).err;
            let is_last = args.contains(&"--last");
            assert_eq!(said.contains("no change matches"), all.is_empty(), "{args:?}: {said}");
            let is_hidden = missing > 0 && (!is_last || shown.is_empty());
            assert_eq!(said.contains("--all shows each"), is_hidden, "{args:?}, {missing} of {}: {said}", all.len());
            some += usize::from(is_hidden && !shown.is_empty());
            none += usize::from(is_hidden && shown.is_empty());
            if is_hidden && !is_last {
                assert!(said.contains(&format!("{missing} ")), "{args:?}, {missing} of {}: {said}", all.len());
            }
        }
    }
    assert!(some > 0 && none > 0, "{some} beside lines, {none} alone");
}

/// Each option means what it means for one object.
fn options(state: &Path) {
    let causes = |args: &[&str]| -> Vec<String> {
        let found = documents(state, &[&["-n", "shop"], args].concat());
        found.iter().filter(|one| one["role"] == "cause").map(|one| object(&one["entry"])).collect()
    };
    let all = causes(&[]);
    assert_eq!(all.len(), CAUSES.len());
    let mut reversed = causes(&["--reverse"]);
    reversed.reverse();
    assert_eq!(reversed, all);
    assert_eq!(causes(&["--last", "2"]), all[..2]);
    assert_eq!(causes(&["--by", "ci"]), ["deployments/web"]);
    assert_eq!(causes(&["--by", "kubectl-*"]).len(), 4);
    assert_eq!(causes(&["--touched", "image", "--type", "MODIFIED"]), ["deployments/web"]);
    assert_eq!(causes(&["--where", "kind == 'Secret'"]), ["secrets/db"]);
    assert_eq!(causes(&["--grep", "cluster-admin"]), ["clusterrolebindings/shop-admin"]);
    assert_eq!(causes(&["--only", "data", "--type", "MODIFIED"]), ["secrets/db", "configmaps/settings"]);
    assert_eq!(causes(&["--type", "DELETED"]).len(), 4);
    let times: Vec<String> = documents(state, &["-n", "shop"])
        .iter()
        .filter(|one| one["role"] == "cause")
        .map(|one| one["entry"]["time"].as_str().unwrap().to_owned())
        .collect();
    let until = &times[CAUSES.len() / 2];
    let answer = run(state, &["log", "-n", "shop", "--since", INCIDENT.0, "--until", until, "-o", "json"]);
    let found = answer.out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let early: Vec<String> = found.filter(|one| one["role"] == "cause").map(|one| object(&one["entry"])).collect();
    let by_then = all.iter().zip(&times).filter(|(_, time)| *time <= until).map(|(name, _)| name.clone());
    assert_eq!(early, by_then.collect::<Vec<_>>(), "up to {until}");
    assert!(early.len() < all.len());
    assert_eq!(documents(state, &["-n", "pay"]).iter().filter(|one| one["role"] == "cause").count(), 1, "the cordon");

    let text = |args: &[&str]| run_on_terminal(state, &between(&[&["-n", "shop"], args].concat()), 120).out;
    let patch = text(&["-p", "--by", "kubectl-edit"]);
    assert!(patch.contains("+     LOG_LEVEL: debug") || patch.contains("+   LOG_LEVEL: debug"), "{patch}");
    let tree = text(&["--tree", "--by", "ci"]);
    assert!(tree.contains("pod/web-7c9b-1") && tree.contains("rs/web-7c9b"), "{tree}");
    let unfolded = text(&["--all"]);
    assert!(unfolded.lines().filter(|line| line.contains("stamped")).count() >= 120, "{}", unfolded.len());
    let typo = run(state, &between(&["--only", "spce"]));
    assert!(typo.err.contains("did you mean spec?"), "{typo:?}");
    let yaml = run(state, &between(&["-n", "shop", "--by", "ci", "-o", "yaml"])).out;
    assert!(yaml.contains("role: cause") && yaml.contains("folded:"), "{yaml}");

    hidden(state);

    // Without a time it is the last hour, which is said, and so is that nothing of it is known.
    let default = run(state, &["log", "-n", "shop"]);
    assert!(
        default.err.contains("of an hour; --since WHEN") && default.err.contains("no change matches"),
        "{default:?}"
    );
    let unknown = run(state, &["log", "-n", "shpo"]);
    assert_eq!(unknown.code, 1);
    assert!(unknown.err.contains("did you mean shop?"), "{unknown:?}");
}

/// A name that is deleted and created is one name with two incarnations: the second creation says so, also where the first one is
/// before the time that is asked for; and no list and no count has the name twice.
#[tokio::test(start_paused = true)]
async fn two_incarnations_are_no_repetition() {
    let map = |name: &str, uid: &str| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "shop", "uid": uid,
            "managedFields": [{"manager": "helm", "operation": "Update", "apiVersion": "v1",
                "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {}}}]}})
    };
    let mut story = Story::begin().await;
    story.list("10:00:01", "configmaps", None, &[]).await;
    story.put("10:00:30", "configmaps", &map("rates", "rates-1")).await;
    story.delete("10:01:00", "configmaps", &map("rates", "rates-1")).await;
    story.put("10:01:20", "configmaps", &map("rates", "rates-2")).await;
    for (second, name, uid) in
        [(1, "a", "a-1"), (3, "b", "b"), (4, "c", "c"), (5, "a", "a-2"), (6, "d", "d"), (7, "e", "e")]
    {
        story.put(&format!("10:02:0{second}"), "configmaps", &map(name, uid)).await;
        if uid == "a-1" {
            story.delete("10:02:02", "configmaps", &map(name, uid)).await;
        }
    }
    let dir = story.end().await;
    let ask = |since: &str, args: &[&str]| {
        let since = format!("2026-11-20T10:{since}Z");
        let question = ["log", "-n", "shop", "--since", &since, "--until", "2026-11-20T10:03:00Z", "--color", "never"];
        [&question[..], args].concat().iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>()
    };
    let asked = |since: &str, args: &[&str], columns: Option<u16>| {
        let line = ask(since, args);
        let line: Vec<&str> = line.iter().map(String::as_str).collect();
        let answer =
            columns.map_or_else(|| run(dir.path(), &line), |columns| run_on_terminal(dir.path(), &line, columns));
        assert_eq!(answer.code, 0, "{answer:?}");
        answer.out
    };
    let mut text = String::new();
    for (columns, args) in
        [(Some(80), &[][..]), (Some(120), &[]), (Some(120), &["--all"]), (None, &[]), (None, &["-o", "json"])]
    {
        text.push_str(&format!("{columns:?} {args:?}\n{}", asked("00:00", args, columns)));
    }
    crate::golden::golden("log_again", &text);
    // The first incarnation may be before the time.
    let later = asked("01:10", &["--last", "9"], Some(120));
    assert!(later.contains("cm/rates") && later.contains("created again"), "{later}");
    // Each name once.
    for line in asked("00:00", &["-o", "json"], None).lines() {
        let document: Value = serde_json::from_str(line).unwrap();
        let Some(names) = document["objects"].as_array() else { continue };
        let distinct: std::collections::BTreeSet<String> = names.iter().map(|one| one["name"].to_string()).collect();
        assert_eq!(distinct.len(), names.len(), "{document}");
    }
}

/// Returns what the file of the page holds: the answers to its questions.
fn of_page(state: &Path, args: &[&str]) -> Value {
    let answer = run(state, &[&["timeline", "--html", "-"], args].concat());
    assert_eq!(answer.code, 0, "{answer:?}");
    let (_, rest) = answer.out.split_once("id=\"decklog-data\"").unwrap();
    let (data, _) = rest.split_once('>').unwrap().1.split_once("</script>").unwrap();
    serde_json::from_str::<Value>(data).unwrap()["answers"].take()
}

fn lanes(answers: &Value) -> Vec<&Value> {
    answers["lanes"]["lanes"].as_array().unwrap().iter().collect()
}

/// The page asks the same ranking: its first lanes are the causes, and what follows from them is below.
#[tokio::test(start_paused = true)]
async fn the_first_lanes_of_the_page_are_the_causes() {
    let dir = incident().await;
    for window in [&["--since", INCIDENT.0, "--until", INCIDENT.1][..], &[]] {
        let answers = of_page(dir.path(), window);
        let lanes = lanes(&answers);
        let of_role = |role: &str| -> Vec<&str> {
            let those = lanes.iter().filter(|lane| lane["role"] == role);
            those.map(|lane| lane["name"].as_str().unwrap()).collect()
        };
        let causes = [
            "worker-1",
            "shop-admin",
            "legacy",
            "legacy",
            "cart",
            "deny-all",
            "db",
            "settings",
            "web",
            "old-2",
            "old-1",
        ];
        assert_eq!(of_role("cause"), causes, "{window:?}");
        assert_eq!(of_role("repeated"), ["contested"]);
        assert_eq!(of_role("controller"), ["api"]);
        let at = |name: &str| lanes.iter().position(|lane| lane["name"] == name).unwrap();
        assert!(at("worker-1") < at("contested") && at("contested") < at("api"), "{window:?}");
        // What goes on by itself comes after all that somebody did, and what a first list found at the very end.
        let last_cause = at("old-1").max(at("api"));
        for name in ["report", "backup", "stamped", "leader"] {
            assert!(at(name) > last_cause, "{name} {window:?}");
        }
        let found = lanes.iter().position(|lane| lane["name"].as_str().unwrap().starts_with("other-"));
        assert_eq!(found.is_some(), window.is_empty(), "a file has only what has something in its range");
        assert!(found.is_none_or(|found| found > at("stamped")), "{window:?}");
        let web = at("web");
        assert_eq!(lanes[web + 1]["name"], "web-7c9b");
        assert!((1..=3).all(|below| lanes[web + below]["depth"].as_u64() > Some(0)), "what follows is below it");
    }
    of_a_part(dir.path());
}

/// A file says whose it is.
fn of_a_part(state: &Path) {
    let range = ["--since", INCIDENT.0, "--until", INCIDENT.1];
    let asked = |args: &[&str]| of_page(state, args)["overview"]["asked"].clone();
    let restricted = asked(&[&["-n", "shop", "--by", "kubectl*", "--only", "spec"], &range[..]].concat());
    assert_eq!(restricted["namespaces"], serde_json::json!(["shop"]));
    assert_eq!(restricted["by"], serde_json::json!(["kubectl*"]));
    assert_eq!(restricted["areas"], serde_json::json!(["spec"]));
    assert_eq!((&restricted["since"], &restricted["until"]), (&INCIDENT.0.into(), &INCIDENT.1.into()));
    let whole = asked(&[]);
    assert_eq!(
        (&whole["namespaces"], &whole["since"], &whole["until"]),
        (&serde_json::json!([]), &Value::Null, &Value::Null)
    );
    for lane in lanes(&of_page(state, &[&["-n", "shop"], &range[..]].concat())) {
        let (marks, id) = (lane["marks"].as_array().unwrap(), &lane["id"]);
        assert!(!marks.is_empty() || lane["resource"] == "cronjobs.batch", "{id} has nothing in the range of the file");
    }
}
