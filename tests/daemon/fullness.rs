//! What is kept, what is forgotten, and what happens when the journal has its size.

use std::collections::BTreeSet;
use std::fs;

use decklog::journal::Reader;
use decklog::query::render::row::plural;
use decklog::sim::{Sim, objects};
use rustix::process::Signal as Kill;

use crate::disk::fill;
use crate::host::alarms;
use crate::support::{Daemon, Dice, cluster, scope, until};

const MAX: u64 = 2 << 20;

/// A daemon with these keys of `[state]`, and beside its file sink two whose directory is missing.
fn with_state(sim: &Sim, state: &str) -> Daemon {
    let daemon = Daemon::new(sim, &["configmaps"]);
    let more = "[[sink]]\nname = \"dead\"\ntype = \"file\"\npath = \"missing/log.jsonl\"\n\n\
                [[sink]]\nname = \"picky\"\ntype = \"file\"\npath = \"missing/some.jsonl\"\nwhere = 'type == \"ADDED\"'\n";
    let config = daemon.config("resources = [\"configmaps\"]", more);
    daemon.configure(&config.replace("[state]\n", &format!("[state]\n{state}\n")));
    daemon
}

/// The journal's files, as large as they are.
fn journal_bytes(daemon: &Daemon) -> u64 {
    let size = |name: &str| fs::metadata(daemon.state().join(name)).map_or(0, |meta| meta.len());
    size("journal.db") + size("journal.db-wal")
}

/// Writes about so many KiB into the cluster, and leaves nothing there.
fn churn(sim: &Sim, dice: &mut Dice, kib: usize) {
    for _ in 0..kib.div_ceil(100) {
        fill(sim, dice, 100);
        sim.delete_all("configmaps").unwrap();
    }
}

async fn paused(daemon: &mut Daemon, why: &str) {
    until("the pause to be in the status", async || {
        daemon.must_run();
        let status = daemon.status().await;
        let alarm = alarms(&status).iter().any(|(alarm, _)| alarm == "journal-paused");
        if status["journal"]["paused"]["why"] == why && alarm { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
}

/// Fault 81: with a sink that takes nothing the journal comes to its size, and reading the cluster waits for that sink.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_its_size_it_pauses_until_the_last_sink_has_taken_something() {
    let sim = cluster().await;
    let mut dice = Dice(11);
    let started = sim.revision();
    let mut daemon = with_state(&sim, "max_size = \"2MiB\"");
    daemon.start();
    daemon.ready().await;
    churn(&sim, &mut dice, 4000);
    paused(&mut daemon, "max_size").await;
    daemon.says("reading the cluster is paused").await;
    assert!(journal_bytes(&daemon) <= MAX, "{}", journal_bytes(&daemon));
    let status = daemon.status().await;
    assert!(status["journal"]["oldest"]["seq"] == 1 && status["journal"]["removed"] == 0, "{status}");
    // It is not taken for dead meanwhile.
    until("systemd to hear of it", async || {
        let told = daemon.told();
        if told.contains("paused: the journal in") { Ok(()) } else { Err(told.to_owned()) }
    })
    .await;
    fs::create_dir(daemon.path("missing")).unwrap();
    daemon.signal(Kill::HUP);
    let done = scope(&sim, started, &["configmaps"]);
    daemon.catch_up(&sim, &done).await;
    assert!(daemon.entries().iter().all(|entry| entry.gap.is_none()), "the server forgot nothing");
    until("the other sink to have everything", async || {
        daemon.must_run();
        assert!(journal_bytes(&daemon) <= MAX, "{}", journal_bytes(&daemon));
        let same = fs::read(daemon.path("missing/log.jsonl")).is_ok_and(|copy| copy == fs::read(daemon.log()).unwrap());
        if same { Ok(()) } else { Err(daemon.last_words()) }
    })
    .await;
    // What both have went, to make room for the rest.
    until("the pause to be over in the status", async || {
        let status = daemon.status().await;
        let over = status["journal"]["removed"].as_u64().unwrap() > 0
            && status["journal"]["paused"].is_null()
            && alarms(&status).iter().all(|(alarm, _)| alarm != "journal-paused");
        if over { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
    daemon.stop().await;
    daemon.command(&["verify"]).await.done();
    let log = daemon.log();
    let verified = daemon.command(&["verify", log.to_str().unwrap()]).await;
    // Nothing is wrong with it, and the journal proves the part that it still has.
    assert!(verified.code == 3 && verified.out.contains("does not have"), "{verified:#?}");
}

/// Fault 81: what the server forgets meanwhile is declared, with the reason.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_server_forgets_during_a_pause_is_a_gap_that_says_so() {
    let sim = cluster().await;
    let mut dice = Dice(12);
    let mut daemon = with_state(&sim, "max_size = \"2MiB\"");
    daemon.start();
    daemon.ready().await;
    churn(&sim, &mut dice, 4000);
    paused(&mut daemon, "max_size").await;
    // More may have been to come at the newest version, so nothing is missing up to the one before it.
    let newest = daemon.entries().last().unwrap().rv();
    let known = daemon.entries().iter().rev().map(crate::judge::Entry::rv).find(|version| *version < newest).unwrap();
    sim.compact_all();
    daemon.kill().await;
    fs::create_dir(daemon.path("missing")).unwrap();
    daemon.start();
    sim.create("configmaps", objects::config_map("default", "last", "1")).unwrap();
    daemon.knows(&sim, "configmaps", "default", "last").await;
    let gaps: Vec<_> = daemon.entries().iter().filter_map(|entry| entry.gap.as_ref()).collect();
    assert_eq!(gaps.len(), 1, "{gaps:?}");
    let from: u64 = gaps[0].from.as_ref().unwrap().parse().unwrap();
    assert!(gaps[0].why == "paused" && from >= known && gaps[0].since.is_some(), "{gaps:?}");
    daemon.stop().await;
    daemon.command(&["verify"]).await.done();
}

/// Fault 80: with `on_full = "drop_oldest"` the dead sink pays, and is told what it lacks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_its_size_it_forgets_where_that_is_asked_for() {
    let sim = cluster().await;
    let mut dice = Dice(13);
    let started = sim.revision();
    let mut daemon = with_state(&sim, "max_size = \"2MiB\"\non_full = \"drop_oldest\"");
    daemon.start();
    daemon.ready().await;
    churn(&sim, &mut dice, 6000);
    let done = scope(&sim, started, &["configmaps"]);
    daemon.catch_up(&sim, &done).await;
    assert!(journal_bytes(&daemon) <= MAX, "{}", journal_bytes(&daemon));
    fs::create_dir(daemon.path("missing")).unwrap();
    daemon.signal(Kill::HUP);
    let copy = daemon.path("missing/log.jsonl");
    sim.create("configmaps", objects::config_map("default", "last", "1")).unwrap();
    until("the dead sink to have the newest entry", async || {
        daemon.must_run();
        let text = fs::read_to_string(&copy).unwrap_or_default();
        let some = fs::read_to_string(daemon.path("missing/some.jsonl")).unwrap_or_default();
        let ends = |text: &str| text.contains("\"name\":\"last\"") && text.ends_with('\n');
        if ends(&text) && ends(&some) { Ok(()) } else { Err(daemon.last_words()) }
    })
    .await;
    daemon.stop().await;
    // Its copy begins with the gap and is a part of the other one from there on.
    let (text, whole) = (fs::read_to_string(&copy).unwrap(), fs::read_to_string(daemon.log()).unwrap());
    let (gap, rest) = text.split_once('\n').unwrap();
    let gap: serde_json::Value = serde_json::from_str(gap).unwrap();
    assert_eq!(
        (&gap["type"], &gap["resource"], &gap["gap"]["why"]),
        (&"GAP".into(), &"configmaps".into(), &"expired".into())
    );
    let first: serde_json::Value = serde_json::from_str(rest.lines().next().unwrap()).unwrap();
    assert_eq!(first["seq"].as_u64().unwrap(), gap["seq"].as_u64().unwrap() + 1, "it stands for all that is missing");
    assert!(whole.ends_with(rest) && whole.len() > rest.len());
    daemon.command(&["verify"]).await.done();
    let verified = daemon.command(&["verify", copy.to_str().unwrap()]).await;
    // All but the GAP, which the journal never had, and what it forgot once the sink had it.
    let oldest = daemon.status().await["journal"]["oldest"]["seq"].as_u64().unwrap();
    let forgotten = rest.lines().filter(|line| crate::judge::Entry::parse(line).seq < oldest).count() as u64;
    let lacking = format!("{} of it", plural(1 + forgotten, "entry", "entries"));
    assert!(verified.code == 3 && verified.out.contains(&lacking), "{lacking}: {verified:#?}");
    // A copy without the line that tells it is not whole.
    let holed = daemon.path("holed.jsonl");
    let lines: Vec<&str> = whole.lines().collect();
    fs::write(&holed, format!("{}\n{rest}", lines[0])).unwrap();
    let answer = daemon.command(&["verify", holed.to_str().unwrap()]).await;
    assert!(answer.code == 1 && answer.out.contains("missing before it"), "{answer:#?}");
    // What a sink lacks is its own affair, whatever it wants of the log.
    let some = fs::read_to_string(daemon.path("missing/some.jsonl")).unwrap();
    let types: Vec<serde_json::Value> =
        some.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["type"].clone()).collect();
    assert!(types[0] == "GAP" && types.len() > 1 && types[1..].iter().all(|kind| kind == "ADDED"), "{types:?}");
    let status = daemon.status().await;
    let dead = status["sinks"].as_array().unwrap().iter().find(|sink| sink["name"] == "dead").unwrap();
    assert!(dead["missed_entries"].as_u64().unwrap() > 0, "{dead}");
    let missed: BTreeSet<&str> = status["alarms"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|alarm| alarm["alarm"] == "sink-missed")
        .filter_map(|alarm| alarm["about"].as_str())
        .collect();
    // Whoever misses something has the alarm: these two always, and the file where the machine is busy.
    let sinks = status["sinks"].as_array().unwrap().iter();
    let lacks =
        sinks.filter(|sink| sink["missed_entries"].as_u64() > Some(0)).map(|sink| sink["name"].as_str().unwrap());
    assert_eq!(missed, lacks.collect(), "{status}");
    assert!(["dead", "picky"].iter().all(|name| missed.contains(name)), "{status}");
}

/// `max_age`: what every sink has is forgotten by its age; objects stay, and what is older is said to be gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_too_old_is_forgotten_and_the_objects_stay() {
    let sim = cluster().await;
    let mut daemon = Daemon::new(&sim, &["configmaps"]);
    let config = daemon.config("resources = [\"configmaps\"]", "").replace("[state]\n", "[state]\nmax_age = \"1s\"\n");
    daemon.configure(&config);
    for name in ["a", "b"] {
        sim.create("configmaps", objects::config_map("default", name, "1")).unwrap();
    }
    daemon.start();
    daemon.ready().await;
    sim.create("configmaps", objects::config_map("default", "c", "1")).unwrap();
    daemon.knows(&sim, "configmaps", "default", "c").await;
    until("the first two to be forgotten", async || {
        daemon.must_run();
        let status = daemon.status().await;
        if status["journal"]["removed"] == 2 { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
    let object = daemon.command(&["get", "configmap/a", "-o", "json"]).await.done();
    assert!(object.contains("\"name\":\"a\""), "{object}");
    let object = daemon.command(&["get", "configmap/a", "--at", "2", "-o", "json"]).await.done();
    assert!(object.contains("\"name\":\"a\""), "the state at the lower end is known: {object}");
    daemon.command(&["get", "configmap/a", "--at", "1"]).await.refused(1, &["no longer kept", "before entry 3"]);
    daemon.command(&["get", "configmap/a", "--at", "1h"]).await.refused(1, &["no longer kept"]);
    let verified = daemon.command(&["verify"]).await.done();
    assert!(verified.contains("entries 1 to 2 were removed"), "{verified}");
    // A sink that comes now is told what it lacks, and goes on from there.
    let more = "[[sink]]\nname = \"late\"\ntype = \"file\"\npath = \"late.jsonl\"\n";
    daemon.configure(&format!("{config}\n{more}"));
    daemon.signal(Kill::HUP);
    sim.create("configmaps", objects::config_map("default", "d", "1")).unwrap();
    let late = daemon.path("late.jsonl");
    until("the new sink to have the newest", async || {
        daemon.must_run();
        let text = fs::read_to_string(&late).unwrap_or_default();
        if text.contains("\"name\":\"d\"") && text.ends_with('\n') { Ok(()) } else { Err(daemon.last_words()) }
    })
    .await;
    daemon.stop().await;
    let text = fs::read_to_string(&late).unwrap();
    let types: Vec<_> = text
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["type"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(types[0], "GAP", "{types:?}");
    assert!(types[1..].iter().all(|kind| kind == "ADDED"), "{types:?}");
    let verified = daemon.command(&["verify", late.to_str().unwrap()]).await;
    // The third one may be too old as well, before the sink takes it or behind.
    let oldest = Reader::open(&daemon.state()).unwrap().oldest().unwrap().0;
    let seq = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["seq"].as_u64().unwrap();
    let lacks = match text.lines().filter(|line| seq(line) < oldest).count() {
        1 => "1 entry of it",
        2 => "2 entries of it",
        other => panic!("{other} entries before {oldest}: {text}"),
    };
    assert!(verified.code == 3 && verified.out.contains(lacks), "{verified:#?}");
    // Once more from where it was, with what is kept alone.
    daemon.start();
    daemon.ready().await;
    sim.delete("configmaps", "default", "a").unwrap();
    daemon.tells("the deletion", |entry| entry.kind == "DELETED" && entry.name == "a").await;
    daemon.stop().await;
    daemon.command(&["verify"]).await.done();
}
