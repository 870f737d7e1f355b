//! Commands that read the log once: what they print, what they choose, and what they say that it does not cover.

use decklog::journal::SinkStart;

use super::{Answer, State, decklog, object, seqs, upsert};

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
    assert!(
        unwatched.contains("pods are not watched: ") && unwatched.contains(r#"resources = ["pods"]"#),
        "{unwatched}"
    );
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
        (&["pods/x"], "pods are not watched: "),
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
    assert!(text.contains("2 writes") && text.contains("Writes during 1 gap are not counted."), "{text}");
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

/// "No entry fits" and "nothing happened" are two things: one command says which time the log knows, and how it was not.
#[tokio::test]
async fn coverage_says_of_which_time_the_log_does_not_know() {
    let state = State::told().await;
    let gap = state.run(&["coverage"]).done();
    assert!(
        gap.contains("1 stretch is not covered") && gap.contains("GAP expired, entry 5  deployments.apps"),
        "{gap}"
    );
    let json = |args: &[&str]| -> serde_json::Value {
        serde_json::from_str(&state.run(&[&["coverage", "-o", "json"], args].concat()).done()).unwrap()
    };
    let whole = json(&[]);
    assert_eq!((&whole["complete"], &whole["uncovered"][0]["seq"]), (&false.into(), &5.into()), "{whole:#}");
    for (args, code, says) in [
        (&["--check"][..], 1, "GAP expired"),
        (&["--since", "1h", "--check"], 1, "before the log"),
        (&["-n", "shop", "--check"], 1, "GAP expired"),
    ] {
        let answer = state.run(&[&["coverage"], args].concat());
        assert!(answer.code == code && answer.out.contains(says), "{args:?}: {answer:?}");
    }
    for (args, code, says) in [
        (&["deploymnets"][..], 64, "did you mean deployments?"),
        (&["pods"], 1, "pods are not watched: "),
        (&["--since", "1h", "--until", "2h"], 64, "is after --until"),
    ] {
        let said = state.run(&[&["coverage"], args].concat()).refused(code);
        assert!(said.contains(says), "{args:?}: {said}");
    }
    let state = State::new().await;
    state.list(10, None, &[object("shop", "web", 7)]).await;
    let known = state.run(&["coverage", "--check"]).done();
    assert!(known.contains("the log knows all that happened"), "{known}");
    let dir = state.close();
    let down = Answer::of(decklog(dir.path(), &["coverage", "--check"]).output().unwrap());
    assert!(down.code == 1 && down.out.contains("no daemon runs"), "{down:?}");
}

#[tokio::test]
async fn diff_means_the_last_hour_and_never_more_than_the_log() {
    let state = State::told().await;
    let whole = state.run(&["diff", "--from", "1"]).done();
    assert!(whole.contains("- removed deployments.apps shop/web"), "{whole}");
    // The log is younger than an hour.
    for (args, lines) in
        [(&["diff"][..], 1), (&["diff", "--from", "1h"], 2), (&["diff", "--from", "2020-01-01T00:00:00Z"], 1)]
    {
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
        (&["tail", "--since", "1h", "--where", "seq == 99"], 0, &["no entry matches from 20", begins]),
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
        &["log", "-n", "shop"],
        &["log", "--since", "1h"],
        &["get", "deploy/api"],
        &["get", "deploy"],
        &["blame", "deploy/api"],
        &["why", "deploy/api"],
        &["drift"],
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
    let says = "deployments.apps are not watched any more: their newest known state is of ";
    let answer = state.run(&["get", "deploy/api"]);
    assert!(answer.code == 0 && answer.err.starts_with(&format!("decklog: note: {says}")), "{answer:?}");
    assert!(answer.out.contains("name: api"), "{answer:?}");
    for command in [
        &["diff", "--from", "1"][..],
        &["diff", "deploy/api", "--from", "1"],
        &["log", "deploy/api"],
        &["log", "-n", "shop"],
        &["blame", "deploy/api"],
        &["why", "deploy/api"],
        &["tail", "deploy"],
        &["tail"],
        &["churn"],
        &["drift"],
    ] {
        let answer = state.run(command);
        assert!(answer.code == 0 && (answer.out.clone() + &answer.err).contains(says), "{answer:?}");
    }
}

#[tokio::test]
async fn tail_reads_backwards_over_many_pages() {
    let state = State::new().await;
    state.list(10, None, &[]).await;
    state.watch((0..200).map(|n| upsert("shop", "web", 100 + n)).collect()).await;
    let back = seqs(&state.run(&["tail", "-r", "--last", "90", "-o", "json", "--where", "seq % 2 == 0"]).done());
    assert_eq!(back, (11..=100).rev().map(|n| 2 * n).collect::<Vec<u64>>());
}
