//! Whether what is said of the past is true.

use std::time::Duration;

use decklog::core::model::{Seq, Why};
use decklog::journal::{Bounds, Reader, SinkStart};
use serde_json::{Value, json};

use crate::story::{Story, managed, owned, replicas, run, run_on_terminal, shop};

fn object(kind: &str, name: &str, n: u64) -> Value {
    json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": "shop", "uid": format!("uid-{name}")}, "data": {"n": n, "same": "x"}})
}

#[tokio::test(start_paused = true)]
async fn what_get_gives_at_a_seq_is_what_the_entry_told() {
    let dir = shop().await;
    let mut reader = Reader::open(dir.path()).unwrap();
    let mut looked_at = 0;
    for stored in reader.entries_after(Seq(0), 1000, usize::MAX).unwrap() {
        let line = String::from_utf8(stored.line.to_vec()).unwrap();
        let entry: Value = serde_json::from_str(&line).unwrap();
        if entry["type"] == "GAP" {
            continue;
        }
        let kind = match entry["apiVersion"].as_str().unwrap().split_once('/') {
            Some((group, _)) => format!("{}.{group}", entry["resource"].as_str().unwrap()),
            None => format!("{}.v1", entry["resource"].as_str().unwrap()),
        };
        let named = format!("{kind}/{}", entry["name"].as_str().unwrap());
        let answer = run(dir.path(), &["get", &named, "--at", &stored.seq.to_string(), "-o", "json"]);
        if entry["type"] == "DELETED" {
            assert_eq!(answer.code, 1, "{answer:?}");
            assert!(answer.err.contains(&format!("(entry {})", stored.seq)), "{answer:?}");
        } else {
            assert!(line.contains(&format!("\"object\":{}", answer.out.trim_end())), "{}: {answer:?}", stored.seq);
        }
        looked_at += 1;
    }
    assert_eq!(looked_at, 32);
}

#[tokio::test(start_paused = true)]
async fn what_is_forgotten_is_said_to_be() {
    let mut story = Story::begin().await;
    story.list("10:00:00", "configmaps", None, &[object("ConfigMap", "a", 0)]).await;
    for n in 1..=5 {
        let mut next = object("ConfigMap", "a", n);
        if n > 2 {
            next["data"]["late"] = json!(true);
        }
        story.put(&format!("10:0{n}:00"), "configmaps", &next).await;
    }
    let (sink, _) = story.journal.sink("s", "file", SinkStart::Start).await.unwrap();
    sink.acknowledge(Seq(4)).await.unwrap();
    story.journal.bound(Bounds { max_size: 1 << 40, max_age: Duration::ZERO, drop_oldest: false }).await.unwrap();
    // The age of entries is looked at once in a second of the clock, which stands still between these.
    let mut seconds = 0;
    while story.journal.reader().unwrap().retained().unwrap().oldest != 5 {
        seconds += 1;
        assert!(seconds < 100, "nothing is forgotten");
        tokio::time::advance(Duration::from_secs(1)).await;
        story.journal.flush().await.unwrap();
    }
    drop(sink);
    let dir = story.end().await;
    let log = run(dir.path(), &["log", "cm/a"]).out;
    assert_eq!(log.lines().filter(|line| line.contains("MODIFIED")).count(), 2, "{log}");
    assert!(log.ends_with("retention has removed what was before entry 5\n"), "{log}");
    // The newest that is forgotten tells the state at the lower end, and that it was so by then.
    let blame = run(dir.path(), &["blame", "cm/a"]).out;
    let line =
        |field: &str| blame.lines().find(|line| line.contains(field)).unwrap_or_else(|| panic!("{blame}")).to_owned();
    assert!(line("n\": 5").starts_with("   6   2026-11-20 10:05:00"), "{blame}");
    for field in ["same: x", "late: true"] {
        assert!(line(field).starts_with("   4  ≤2026-11-20 10:03:00"), "{blame}");
    }
    assert!(run(dir.path(), &["get", "cm/a", "--at", "4"]).out.contains("n\": 3"));
    for args in [
        &["get", "cm/a", "--at", "3"][..],
        &["blame", "cm/a", "--at", "2026-11-20T10:02:00Z"],
        &["diff", "--from", "3"],
    ] {
        let answer = run(dir.path(), args);
        assert_eq!(answer.code, 1, "{answer:?}");
        assert!(answer.err.contains("before entry 5") && answer.err.contains("--at 4 is the earliest"), "{answer:?}");
    }
    let diff = run(dir.path(), &["diff", "--from", "4"]).out;
    assert!(diff.contains("~ changed configmaps shop/a  entries 5 to 6 (2)"), "{diff}");
    let before = run(dir.path(), &["diff", "--from", "2026-11-20T10:00:00Z"]);
    let (_, whole) = diff.split_once('\n').unwrap();
    assert!(
        before.out.ends_with(whole) && before.err.contains("the log begins at 2026-11-20T10:04:00Z (entry 5)"),
        "{before:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn what_is_not_told_is_nobodys_entry() {
    let mut story = Story::begin().await;
    story
        .list("10:00:00", "replicasets", None, &[object("ReplicaSet", "silent", 0), object("ReplicaSet", "moved", 0)])
        .await;
    story.put("10:01:00", "replicasets", &object("ReplicaSet", "moved", 1)).await;
    let mut pod = object("Pod", "p", 0);
    story.put("10:02:00", "pods", &pod).await;
    pod["status"] = json!({"seen": 7});
    story.put("10:03:00", "pods", &pod).await;
    let dir = story.end().await;
    let silent = run(dir.path(), &["log", "rs/silent"]);
    assert!(silent.code == 1 && silent.err.contains("a first list that emits nothing"), "{silent:?}");
    let moved = run(dir.path(), &["log", "rs/moved"]).out;
    assert!(moved.contains("data.n 0 → 1"), "{moved}");
    let blame = |name: &str, field: &str| {
        let text = run(dir.path(), &["blame", name]).out;
        text.lines().find(|line| line.ends_with(field)).unwrap_or_else(|| panic!("{text}")).to_owned()
    };
    assert!(blame("rs/moved", "n\": 1").starts_with("   1   2026-11-20 10:01:00"));
    assert!(blame("rs/moved", "same: x").starts_with("   -  ≤2026-11-20 10:01:00"));
    assert!(blame("rs/silent", "same: x").starts_with("   -  ≤unknown"));
    // It is newer than all that the log tells.
    assert!(blame("po/p", "seen: 7").starts_with("   -  ≥2026-11-20 10:02:00"));
    assert!(blame("po/p", "same: x").starts_with("   2   2026-11-20 10:02:00"));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_blamed_on_an_object_that_had_the_name_before() {
    let mut story = Story::begin().await;
    story.list("10:00:00", "replicasets", None, &[object("ReplicaSet", "a", 0)]).await;
    story.put("10:01:00", "replicasets", &object("ReplicaSet", "a", 1)).await;
    story.gone("10:02:00", "replicasets").await;
    let mut again = object("ReplicaSet", "a", 2);
    again["metadata"]["uid"] = "another".into();
    // A first list, which is not told.
    story.list("10:03:00", "replicasets", None, &[again.clone()]).await;
    again["data"]["n"] = 3.into();
    story.put("10:04:00", "replicasets", &again).await;
    let dir = story.end().await;
    let blame = run(dir.path(), &["blame", "rs/a"]).out;
    let line = |field: &str| blame.lines().find(|line| line.ends_with(field)).unwrap_or_else(|| panic!("{blame}"));
    assert!(line("n\": 3").starts_with("   4   2026-11-20 10:04:00"), "{blame}");
    assert!(line("same: x").starts_with("   -  ≤2026-11-20 10:04:00"), "{blame}");
    let log = run(dir.path(), &["log", "rs/a"]).out;
    assert_eq!(log.matches(", uid ").count(), 2, "{log}");
    assert!(log.contains("data.n 2 → 3"), "{log}");
}

/// An outage makes a gap of each source, and a person looks for what they did.
#[tokio::test(start_paused = true)]
async fn gaps_of_one_cause_are_one_line_of_a_tree() {
    let mut story = Story::begin().await;
    let web = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "shop", "uid": "web"}});
    let set = owned("ReplicaSet", "web-1", "set", ("Deployment", "web", "web"), &json!({}));
    let pod = owned("Pod", "web-1-a", "pod", ("ReplicaSet", "web-1", "set"), &json!({}));
    let mut known = Vec::new();
    for (source, object) in [("deployments", &web), ("replicasets", &set), ("pods", &pod)] {
        story.put("10:00:00", source, object).await;
        known.push((source, story.observed.clone()));
    }
    for (source, object) in &known {
        story.relist("10:10:00", source, Why::Expired, object).await;
    }
    for (source, object) in &known[..2] {
        story.relist("10:20:00", source, Why::Audit, object).await;
    }
    let dir = story.end().await;
    let gaps = |args: &[&str], terminal: bool| -> Vec<String> {
        let args = [&["log", "--tree", "deploy/web", "--color", "never"], args].concat();
        let answer = if terminal { run_on_terminal(dir.path(), &args, 200) } else { run(dir.path(), &args) };
        answer.out.lines().filter(|line| line.contains(" GAP ")).map(str::to_owned).collect()
    };
    let newest = gaps(&[], true);
    assert_eq!(newest.len(), 3, "{newest:#?}");
    let all = "GAP      3 sources expired: changes may be missing, since 10:00:00 (entries 4 to 6): deployments.apps, pods, replicasets.apps";
    assert!(newest[2].contains(all), "{newest:#?}");
    // Few have a line each, and nobody takes one cause for another.
    assert!(newest[..2].iter().all(|line| line.contains(" audit: ")), "{newest:#?}");
    let oldest = gaps(&["-r"], true);
    assert!(oldest.len() == 3 && oldest[0].contains(all), "{oldest:#?}");
    // The oldest may be the last that is printed.
    assert_eq!(gaps(&["--type", "GAP", "--until", "2026-11-20T10:09:00Z"], true).len(), 1);
    // A GAP is of all the time of which nothing is known.
    assert_eq!(gaps(&["--type", "GAP", "--until", "2026-11-20T10:15:00Z"], true).len(), 3);
    assert_eq!(gaps(&["--type", "GAP", "--until", "2026-11-20T10:15:00Z", "--by-journal-time"], true).len(), 1);
    // Elsewhere each line stands alone.
    assert_eq!(gaps(&[], false).len(), 5);
}

/// Questions by time about an outage: a change with a stamp happened then, and one without at any time that the outage leaves. Proves
/// what no unit test does: that every command goes by one clock.
#[tokio::test(start_paused = true)]
async fn a_question_by_time_finds_what_may_have_happened_then() {
    let map = |name: &str, n: u64, second: &str| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "shop", "uid": name,
            "managedFields": managed(&[("kubectl", "Update", "", second, json!({"f:data": {"f:n": {}}}))])}, "data": {"n": n.to_string()}})
    };
    let mut story = Story::begin().await;
    for name in ["a", "b", "c"] {
        story.put("10:00:01", "configmaps", &map(name, 1, "10:00:01")).await;
    }
    story.put("10:05:00", "configmaps", &map("b", 2, "10:05:00")).await;
    let mut story = story.restart("10:15:00").await;
    story.was_away().await;
    story.delete("10:15:00.1", "configmaps", &map("a", 1, "10:00:01")).await;
    story.put("10:15:00.2", "configmaps", &map("b", 3, "10:10:00")).await;
    story.delete("10:15:00.3", "configmaps", &map("c", 1, "10:00:01")).await;
    story.is_back();
    story.put("10:20:00", "configmaps", &map("b", 4, "10:20:00")).await;
    story.delete("10:21:00", "configmaps", &map("b", 4, "10:20:00")).await;
    let dir = story.end().await;
    let at = |time: &str| format!("2026-11-20T{time}Z");
    let seqs = |args: &[&str]| -> Vec<u64> {
        let answer = run(dir.path(), &[args, &["-o", "json"]].concat());
        let seq = |line: &str| serde_json::from_str::<Value>(line).unwrap()["seq"].as_u64().unwrap();
        answer.out.lines().map(seq).collect()
    };
    let journal = ["--by-journal-time"];
    for (since, until, expected, journaled) in [
        // a at any time of the outage, c behind the stamp of b.
        ("10:06:00", "10:08:00", &[5][..], &[][..]),
        ("10:09:00", "10:10:00", &[5, 6, 7], &[]),
        ("10:11:00", "10:12:00", &[5, 7], &[]),
        ("10:14:00", "10:16:00", &[5, 7], &[5, 6, 7]),
        ("10:00:00", "10:04:00", &[1, 2, 3], &[1, 2, 3]),
        ("10:15:30", "10:30:00", &[8, 9], &[8, 9]),
    ] {
        let (since, until) = (at(since), at(until));
        let times = ["--since", &since, "--until", &until];
        assert_eq!(seqs(&[&["tail"][..], &times].concat()), expected, "tail {times:?}");
        assert_eq!(seqs(&[&["tail", "--last", "5"][..], &times].concat()), expected, "the newest {times:?}");
        let back: Vec<u64> = expected.iter().rev().copied().collect();
        assert_eq!(seqs(&[&["tail", "--reverse"][..], &times].concat()), back, "back {times:?}");
        assert_eq!(seqs(&[&["tail"][..], &times, &journal].concat()), journaled, "journal {times:?}");
        let of_b: Vec<u64> = expected.iter().rev().copied().filter(|seq| [2, 4, 6, 8, 9].contains(seq)).collect();
        assert_eq!(seqs(&[&["log", "cm/b"][..], &times].concat()), of_b, "log {times:?}");
    }
    let ask = |args: &[&str], time: &str| {
        let answer = run(dir.path(), &[args, &["--at", &at(time)]].concat());
        (answer.code, answer.out, answer.err)
    };
    let (code, out, err) = ask(&["get", "cm/a", "-o", "yaml"], "10:08:00");
    assert!(
        code == 0
            && out.contains("\"n\": \"1\"")
            && err.contains("the log does not know whether that was before this moment"),
        "{out}{err}"
    );
    let (code, out, _) = ask(&["get", "cm/b", "-o", "yaml"], "10:12:00");
    assert!(code == 0 && out.contains("\"n\": \"3\""), "{out}");
    let diff = |from: &str, to: &str| {
        let answer = run(dir.path(), &["diff", "--from", &at(from), "--to", &at(to), "-o", "json"]);
        let whole: Value = serde_json::from_str(&answer.out).unwrap();
        let text = |object: &Value, key: &str| object[key].as_str().unwrap().to_owned();
        let changed = |object: &Value| format!("{} {}", text(object, "name"), text(object, "became"));
        (whole["objects"].as_array().unwrap().iter().map(changed).collect::<Vec<_>>(), answer.out + &answer.err)
    };
    let (found, said) = diff("10:06:00", "10:08:00");
    assert_eq!(found, ["a removed"], "{said}");
    assert!(said.contains("1 object changed at a time that may lie outside"), "{said}");
    assert_eq!(diff("10:09:00", "10:12:00").0, ["a removed", "b changed", "c removed"]);
    assert_eq!(diff("10:15:30", "10:16:00").0, [""; 0]);
    let absence = "no daemon ran from 2026-11-20T10:05:00Z to 2026-11-20T10:15:00Z: ";
    for (args, since, until, said) in [
        (&["tail"][..], "10:06:00", "10:08:00", Some("3 changes of that time were found afterwards")),
        (&["log", "cm/b"], "10:06:00", "10:08:00", Some("3 changes of that time were found afterwards")),
        (&["tail", "pods"], "10:06:00", "10:08:00", Some("no change of that time was found afterwards")),
        (&["tail"], "10:16:00", "10:30:00", None),
    ] {
        let answer = run(dir.path(), &[args, &["--since", &at(since), "--until", &at(until)]].concat());
        let expected = said.map(|said| format!("{absence}{said}"));
        let found = answer
            .err
            .lines()
            .find_map(|line| line.strip_prefix("decklog: note: ").filter(|line| line.contains("no daemon")));
        assert_eq!(found.map(str::to_owned), expected, "{args:?} {since}");
    }
    let shown = run_on_terminal(dir.path(), &["tail", "--color", "never"], 200).out;
    assert!(shown.contains(" 5≤10:15:00 DELETED") && shown.contains("10:04:58…10:15:00"), "{shown}");
    assert!(shown.contains(" 6 10:10:00~MODIFIED") && shown.contains("10:09:58…10:15:00"), "{shown}");
    assert!(shown.contains(" 9 10:21:00 DELETED"), "{shown}");
}

/// A daemon that nothing happened to ran until it was stopped: no other test has one that ends later than its last news.
#[tokio::test(start_paused = true)]
async fn a_quiet_daemon_ran_until_it_was_stopped() {
    let mut story = Story::begin().await;
    story.put("10:05:00", "configmaps", &object("ConfigMap", "a", 1)).await;
    story.at("10:10:00");
    let mut story = story.restart("10:15:00").await;
    story.put("10:16:00", "configmaps", &object("ConfigMap", "a", 2)).await;
    let dir = story.end().await;
    let covered = run(dir.path(), &["coverage", "--until", "2026-11-20T10:15:30Z"]).out;
    assert!(covered.contains("no daemon ran from 2026-11-20T10:10:00Z to 2026-11-20T10:15:00Z: "), "{covered}");
}

/// What happened while nobody watched is journaled later, the watch of one resource after that of the other.
#[tokio::test(start_paused = true)]
async fn after_an_outage_the_past_is_told_as_it_happened() {
    let mut story = Story::begin().await;
    let web = |n: u64, second: &str| {
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "shop", "uid": "web",
            "managedFields": managed(&[("kubectl", "Update", "scale", second, replicas())])}, "spec": {"replicas": n}})
    };
    let set = |name: &str, second: &str| {
        let mut set = owned("ReplicaSet", name, name, ("Deployment", "web", "web"), &json!({"spec": {"replicas": 1}}));
        set["metadata"]["creationTimestamp"] = format!("2026-11-20T{second}Z").into();
        set
    };
    story.put("10:00:00.5", "deployments", &web(1, "10:00:00")).await;
    // From 10:00:10 to 10:00:40 nobody watches.
    story.put("10:00:40.1", "replicasets", &set("second", "10:00:20")).await;
    story.put("10:00:40.2", "deployments", &web(2, "10:00:20")).await;
    story.put("10:00:40.3", "deployments", &web(3, "10:00:30")).await;
    // This came at once, though its stamp is cut to the second.
    story.put("10:00:45.9", "deployments", &web(4, "10:00:44")).await;
    let dir = story.end().await;
    let replicas_at = |time: &str| {
        let answer = run(dir.path(), &["get", "deploy/web", "-o", "json", "--at", &format!("2026-11-20T{time}Z")]);
        let object: Value = serde_json::from_str(&answer.out).unwrap();
        (object["spec"]["replicas"].as_u64().unwrap(), answer.err)
    };
    assert_eq!(replicas_at("10:00:19"), (1, String::new()));
    let (replicas, said) = replicas_at("10:00:25");
    assert_eq!(replicas, 2);
    assert!(
        said.contains("entry 3 was journaled at 2026-11-20T10:00:40Z, and happened at 2026-11-20T10:00:20Z"),
        "{said}"
    );
    assert_eq!(replicas_at("10:00:31").0, 3);
    assert_eq!(replicas_at("10:00:41"), (3, String::new()));
    assert_eq!(replicas_at("10:00:45").0, 3, "not before it was journaled");
    assert_eq!(replicas_at("10:00:46").0, 4);
    let blame = run(dir.path(), &["blame", "deploy/web", "--at", "2026-11-20T10:00:25Z"]).out;
    assert!(blame.lines().any(|line| line.starts_with("   3 ") && line.contains("replicas: 2")), "{blame}");
    // A field was set when the change happened, and not when it was journaled.
    assert!(blame.lines().any(|line| line.starts_with("   3   2026-11-20 10:00:20 kubectl")), "{blame}");
    // Cause stands before effect: what owns first, within a second.
    let tree = run(dir.path(), &["log", "--tree", "--all", "deploy/web"]).out;
    let seqs: Vec<&str> = tree.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(seqs, ["5", "4", "2", "3", "1"], "{tree}");
    let entries = run(dir.path(), &["tail", "-o", "json"]).out;
    let happened: Vec<Value> =
        entries.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["happened"].take()).collect();
    assert_eq!(
        json!(happened),
        json!([
            "2026-11-20T10:00:00Z",
            "2026-11-20T10:00:20Z",
            "2026-11-20T10:00:20Z",
            "2026-11-20T10:00:30Z",
            "2026-11-20T10:00:44Z"
        ])
    );
}

#[tokio::test(start_paused = true)]
async fn runs_of_status_updates_are_one_line() {
    let mut story = Story::begin().await;
    let mut web = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "shop", "uid": "web"}, "spec": {"replicas": 1}, "status": {"n": 0}});
    story.put("10:00:00", "deployments", &web).await;
    for (minute, spec) in [(1, false), (2, false), (3, true), (4, false), (5, true), (6, false), (7, false), (8, false)]
    {
        web[if spec { "spec" } else { "status" }]["n"] = minute.into();
        let who = if minute == 8 { "prober" } else { "controller" };
        web["metadata"]["managedFields"] =
            managed(&[(who, "Update", "status", &format!("10:0{minute}:00"), json!({"f:status": {"f:n": {}}}))]);
        story.put(&format!("10:0{minute}:00"), "deployments", &web).await;
    }
    let dir = story.end().await;
    let log = |more: &[&str]| {
        let text = run(dir.path(), &[&["log", "deploy/web"], more].concat()).out;
        text.lines()
            .skip(1)
            .map(|line| line.split_whitespace().next().unwrap().to_owned() + &line[line.len().min(30)..])
            .collect::<Vec<_>>()
    };
    let folded = log(&[]);
    let seqs = |lines: &[String]| lines.iter().map(|line| line.chars().next().unwrap()).collect::<String>();
    // One alone stands as it is.
    assert_eq!(seqs(&folded), "965431", "{folded:#?}");
    assert!(folded[0].contains("3 status updates by prober, controller since 2026-11-20T10:06:00.000Z"), "{folded:#?}");
    assert!(folded[4].contains("2 status updates by controller since 2026-11-20T10:01:00.000Z"), "{folded:#?}");
    assert_eq!(seqs(&log(&["--all"])), "987654321");
    assert_eq!(seqs(&log(&["--last", "2"])), "96");
    assert_eq!(seqs(&log(&["--only", "spec,data"])), "641");
    assert_eq!(seqs(&log(&["--only", "status"])), "98753 21".replace(' ', ""));
    let json = run(dir.path(), &["log", "deploy/web", "-o", "json"]).out;
    assert_eq!(json.lines().count(), 9, "programs get each entry");
    // What somebody asks for is printed.
    assert_eq!(seqs(&log(&["--touched", ".status.n"])), "9875321");
    assert_eq!(seqs(&log(&["--where", "'status' in change.areas"])), "987532");
    let typo = run(dir.path(), &["log", "deploy/web", "--only", "spce"]);
    assert!(typo.err.contains("--only: no change here is of spce; did you mean spec?"), "{typo:?}");
}

/// With each rollout the controller of Deployments notes a revision between what it writes of the status.
#[tokio::test(start_paused = true)]
async fn what_a_rollout_notes_breaks_no_run() {
    let mut story = Story::begin().await;
    let mut web = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "shop", "uid": "web",
        "annotations": {"deployment.kubernetes.io/revision": "1", "note": "a"}}, "spec": {"replicas": 1}, "status": {"n": 0}});
    story.put("10:00:00", "deployments", &web).await;
    let annotation = |name: &str| format!("/metadata/annotations/{}", name.replace('/', "~1"));
    let revision = annotation("deployment.kubernetes.io/revision");
    let note = annotation("note");
    for (minute, path) in
        ["/spec/replicas", "/status/n", &revision, "/status/n", &note, "/status/n"].into_iter().enumerate()
    {
        let text = minute.to_string();
        *web.pointer_mut(path).unwrap() = if path.contains("annotations") { text.into() } else { minute.into() };
        story.put(&format!("10:1{minute}:00"), "deployments", &web).await;
    }
    let dir = story.end().await;
    let out = run(dir.path(), &["log", "deploy/web"]).out;
    let shown: Vec<&str> = out.lines().skip(1).filter_map(|line| line.split_whitespace().next()).collect();
    // What a person annotates is printed.
    assert_eq!(shown, ["7", "6", "5", "2", "1"], "{out}");
    assert!(out.contains("3 status updates since 2026-11-20T10:11:00.000Z (no managedFields)"), "{out}");
    assert_eq!(run(dir.path(), &["log", "deploy/web", "--all"]).out.lines().count(), 8);
}

/// An outage makes a gap of each source; a person reads one line, a program each.
#[tokio::test(start_paused = true)]
async fn gaps_of_one_outage_are_one_line() {
    let mut story = Story::begin().await;
    let sources = ["configmaps", "deployments", "pods", "secrets"];
    for source in sources {
        story.list("10:00:00", source, None, &[]).await;
    }
    for source in sources {
        story.list("10:05:00", source, Some(Why::Expired), &[]).await;
    }
    story.put("10:06:00", "configmaps", &object("ConfigMap", "a", 0)).await;
    for source in ["pods", "secrets"] {
        story.list("10:07:00", source, Some(Why::Expired), &[]).await;
    }
    let dir = story.end().await;
    let gaps = |args: &[&str]| {
        let text = run_on_terminal(dir.path(), &[&["tail", "--color", "never"], args].concat(), 200).out;
        text.lines().filter(|line| line.contains("GAP")).map(str::to_owned).collect::<Vec<_>>()
    };
    let folded = gaps(&[]);
    assert_eq!(folded.len(), 3, "two gaps are two lines: {folded:#?}");
    assert!(
        folded[0].contains("4 sources expired: changes may be missing, since 10:00:00 (entries 1 to 4): configmaps, deployments.apps, pods, secrets"),
        "{folded:#?}"
    );
    assert_eq!(gaps(&["-r"]).len(), 3);
    assert_eq!(run(dir.path(), &["tail"]).out.matches(" GAP ").count(), 6);
}

/// A stamp that contradicts what was seen says nothing of when something happened.
#[tokio::test(start_paused = true)]
async fn a_stamp_that_cannot_be_is_not_believed() {
    let mut story = Story::begin().await;
    let pod = |ready: &str, since: &str| {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "shop", "uid": "p"},
            "status": {"conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": since}]}})
    };
    story.put("10:00:10", "pods", &pod("False", "2026-11-20T10:00:10Z")).await;
    // Its controller says that it was so for two hours, and a watch has seen that it was not.
    story.put("10:00:20", "pods", &pod("True", "2026-11-20T08:00:00Z")).await;
    story.put("10:00:30", "pods", &pod("False", "2999-01-01T00:00:00Z")).await;
    story.put("10:00:40", "pods", &pod("True", "-000100-01-01T00:00:00Z")).await;
    let dir = story.end().await;
    let then = run(dir.path(), &["get", "po/p", "-o", "json", "--at", "2026-11-20T10:00:15Z"]);
    assert!(then.out.contains(r#""status":"False""#) && then.err.is_empty(), "{then:?}");
    let entries = run(dir.path(), &["tail", "-o", "json"]).out;
    let happened: Vec<Value> =
        entries.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["happened"].take()).collect();
    assert_eq!(json!(happened), json!(["2026-11-20T10:00:10Z", "2026-11-20T08:00:00Z", null, null]));
}

/// A name that no API server takes is shown and not obeyed, in a folded line as well.
#[tokio::test(start_paused = true)]
async fn a_folded_line_shows_hostile_names_and_does_not_obey_them() {
    let mut story = Story::begin().await;
    let web = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "shop", "uid": "web"}});
    story.put("10:00:00", "deployments", &web).await;
    let name = "ev\u{1b}[31m\u{202e}il";
    for n in 0..3 {
        let pod = owned("Pod", name, "pod", ("Deployment", "web", "web"), &json!({"status": {"n": n}}));
        story.put(&format!("10:00:0{}", n + 1), "pods", &pod).await;
    }
    let dir = story.end().await;
    let tree = run(dir.path(), &["log", "--tree", "deploy/web"]).out;
    assert!(tree.contains("2 status updates of pod/ev\\u{1b}[31m"), "{tree}");
    assert!(!tree.contains('\u{1b}') && !tree.contains('\u{202e}'), "{tree:?}");
}

#[tokio::test(start_paused = true)]
async fn a_question_that_cannot_be_answered_as_it_was_asked_is_said_to_be() {
    let dir = shop().await;
    for filter in [&["-l", "app=web"][..], &["--grep", "x"], &["--touched", ".spec"], &["--by", "alice"]] {
        let answer = run(dir.path(), &[&["churn", "--requests"], filter].concat());
        assert!(answer.code == 64 && answer.err.contains("--requests does not go with"), "{answer:?}");
        let is_of_users = answer.err.contains("the table SENDERS names those who wrote nothing");
        assert_eq!(is_of_users, filter.contains(&"--by"), "{answer:?}");
    }
    let before = run(dir.path(), &["get", "deploy", "--at", "5000d"]);
    assert!(before.code == 1 && before.err.contains("the log begins at"), "{before:?}");
    // Of a value that redaction drops nothing but its area shows that it changed.
    let dropped = run(dir.path(), &["tail", "secrets", "--touched", ".data.token", "-o", "json"]).out;
    assert!(dropped.contains(r#""seq":34,"#), "{dropped}");
}

/// An object that was created before a moment, and that a first list found after it, was there then. Of one that was created after
/// it nothing is known: another one may have had its name. A difference begins with what the list found.
#[tokio::test(start_paused = true)]
async fn what_a_first_list_found_was_there_since_its_creation() {
    let mut story = Story::begin().await;
    let created = |name: &str, time: &str, n: u64| {
        let mut map = object("ConfigMap", name, n);
        map["metadata"]["creationTimestamp"] = json!(time);
        map
    };
    let (old, new) = ("2026-11-16T08:00:00Z", "2026-11-20T09:59:00Z");
    story.list("10:00:00", "configmaps", None, &[created("old", old, 1), created("new", new, 1)]).await;
    story.put("10:01:00", "configmaps", &created("old", old, 2)).await;
    let mut secret = object("Secret", "older", 1);
    secret["metadata"]["creationTimestamp"] = json!(old);
    story.list("10:01:30", "secrets", None, &[secret]).await;
    let dir = story.end().await;
    let get = |name: &str| run(dir.path(), &["get", name, "-n", "shop", "--at", "2026-11-20T09:58:00Z"]);
    let found = get("cm/old");
    assert!(found.code == 0 && found.out.contains("n\": 1"), "{found:?}");
    assert!(found.err.contains("was there at") && found.err.contains("decklog first saw it at"), "{found:?}");
    let none = get("cm/new");
    assert!(
        none.code == 1
            && none.err.contains("no state of configmaps/new")
            && none.err.contains("was created after that"),
        "{none:?}"
    );
    // A list of objects shows those that were there, and an entry before the first list is a moment as well.
    let seen = "configmaps/old in namespace shop was there at";
    for (args, shown, said) in [
        (&["cm"][..], &["old"][..], seen),
        (&["cm", "-n", "shop"], &["old"], seen),
        (&["cm/*"], &["old"], seen),
        (&["cm,secrets"], &["old", "older"], "2 of these were there at"),
        (&["secrets/older"], &["older"], "secrets/older in namespace shop was there at"),
        (&["pods"], &[], "the log begins at"),
    ] {
        let answer = run(dir.path(), &[&["get"], args, &["--at", "2026-11-20T09:58:00Z", "-o", "name"]].concat());
        let names: Vec<&str> = answer.out.lines().filter_map(|line| line.rsplit('/').next()).collect();
        assert!(names == shown && answer.err.contains(said), "{args:?}: {answer:?}");
        assert_eq!(answer.code, i32::from(shown.is_empty()), "{args:?}");
    }
    let entry = run(dir.path(), &["get", "secrets/older", "--at", "1"]);
    assert!(entry.code == 0 && entry.err.contains("was there at entry 1, and decklog first saw it"), "{entry:?}");
    for from in ["3000d", "2020-01-01", "2026-11-20T09:58:00Z"] {
        let diff = run(dir.path(), &["diff", "-n", "shop", "--from", from, "--to", "2026-11-20T10:02:00Z"]);
        assert!(diff.out.contains("~ changed configmaps shop/old") && !diff.out.contains("? first seen"), "{diff:?}");
        assert!(diff.code == 0 && diff.err.contains("note: the log begins at 2026-11-20T10:00:00Z"), "{diff:?}");
    }
}
