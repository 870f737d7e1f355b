//! A state directory that is put back from a copy, as often as one likes, and whatever can be asked then: no epoch and seq
//! name two entries in any output, and what the journal that goes on tells is in every output.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use decklog::sim::{Sim, objects};

use crate::delivering::Collector;
use crate::support::{Daemon, cluster, until};

fn create(sim: &Sim, name: &str) {
    sim.create("configmaps", objects::config_map("default", name, "1")).unwrap();
}

/// A copy of the state directory of a daemon that does not run.
fn copy(daemon: &Daemon, name: &str) -> PathBuf {
    let copy = daemon.path(name);
    fs::create_dir(&copy).unwrap();
    copy_files(&daemon.state(), &copy);
    copy
}

fn copy_files(from: &Path, to: &Path) {
    for file in fs::read_dir(from).unwrap() {
        let path = file.unwrap().path();
        fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
    }
}

/// How a copy takes the place of the state directory.
#[derive(Clone, Copy, Debug)]
enum How {
    /// Other files.
    Replaced,
    /// The same files with what the copy holds in them.
    Overwritten,
    /// As `Overwritten`, and the mark of the directory tells nothing: a disk that was put back has it as it was.
    Unmarked,
}

fn put_back(daemon: &Daemon, copy: &Path, how: How) {
    let state = daemon.state();
    if matches!(how, How::Replaced) {
        fs::remove_dir_all(&state).unwrap();
        fs::create_dir(&state).unwrap();
    }
    for name in ["journal.db-wal", "journal.db-shm"] {
        drop(fs::remove_file(state.join(name)));
    }
    copy_files(copy, &state);
    if matches!(how, How::Unmarked) {
        let journal = rusqlite::Connection::open(state.join("journal.db")).unwrap();
        journal.execute("DELETE FROM meta WHERE key = 'mark'", []).unwrap();
    }
}

/// Each line of a file under its epoch and seq, which stands there once, and later ones after earlier ones.
fn told(path: &Path) -> HashMap<(String, u64), String> {
    let mut told = HashMap::new();
    let mut last = (String::new(), 0);
    for line in fs::read_to_string(path).unwrap().lines() {
        let stamp = decklog::core::wire::Header::parse(line.as_bytes()).unwrap();
        let place = (stamp.epoch.into_owned(), stamp.seq);
        assert!(place > last, "{place:?} after {last:?}");
        last.clone_from(&place);
        told.insert(place, line.to_owned());
    }
    told
}

/// What the journal tells, but for the name of the epoch, is in the file behind everything else.
async fn has_what_the_journal_tells(daemon: &Daemon, path: &Path, since: u64) {
    let without_epoch = |line: &str| {
        let (seq, rest) = line.split_once(",\"epoch\":\"").unwrap();
        format!("{seq}{}", rest.split_once('"').unwrap().1)
    };
    let told = fs::read_to_string(path).unwrap();
    let told: Vec<String> = told.lines().map(without_epoch).collect();
    let journal = daemon.command(&["tail", "--last", "100000", "-o", "json"]).await.done();
    let own: Vec<String> = journal.lines().skip(usize::try_from(since).unwrap()).map(without_epoch).collect();
    assert!(told.ends_with(&own), "the file ends with {:#?}, the journal with {own:#?}", told.last());
}

async fn delivered(daemon: &Daemon, sink: &str) {
    until(&format!("the sink {sink} to have everything"), async || {
        let status = daemon.status().await;
        let sinks = status["sinks"].as_array().cloned().unwrap_or_default();
        let found = sinks.iter().find(|row| row["name"] == sink).cloned().unwrap_or_default();
        let head = &status["journal"]["head"]["seq"];
        let done = found["state"] == "running" && found["cursor"] == *head;
        if done { Ok(()) } else { Err(format!("{found}, head {head}")) }
    })
    .await;
}

/// Waits until this many requests have come. A sink has everything also before a change is in the journal.
async fn received(collector: &Collector, number: usize) {
    until(&format!("{number} requests"), async || {
        let came = collector.bodies().len();
        if came >= number { Ok(()) } else { Err(format!("{came} came")) }
    })
    .await;
}

/// Waits until the journal tells this object.
async fn journaled(daemon: &Daemon, name: &str) {
    until(&format!("the journal to tell {name}"), async || {
        let journal = daemon.command(&["tail", "--last", "100000", "-o", "json"]).await.done();
        if journal.contains(&format!("\"name\":\"{name}\"")) { Ok(()) } else { Err("it does not".to_owned()) }
    })
    .await;
}

/// Fault 44: the same copy twice, also one whose cursor was behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_copy_put_back_twice_is_two_timelines_more() {
    for how in [How::Replaced, How::Overwritten, How::Unmarked] {
        let sim = cluster().await;
        let mut daemon = Daemon::new(&sim, &["configmaps"]);
        daemon.start();
        daemon.ready().await;
        create(&sim, "a");
        daemon.knows(&sim, "configmaps", "default", "a").await;
        daemon.stop().await;
        let copied = copy(&daemon, "copy");
        let journal = rusqlite::Connection::open(copied.join("journal.db")).unwrap();
        journal.execute("UPDATE sink SET cursor = 0, written = 0", []).unwrap();
        let head: u64 = journal.query_row("SELECT max(seq) FROM entry", [], |row| row.get(0)).unwrap();
        drop(journal);
        for round in 0..3 {
            daemon.start();
            daemon.ready().await;
            for name in ["b", "c", "d"] {
                create(&sim, &format!("{name}{round}"));
            }
            daemon.knows(&sim, "configmaps", "default", &format!("d{round}")).await;
            delivered(&daemon, "file").await;
            daemon.stop().await;
            if round < 2 {
                put_back(&daemon, &copied, how);
            }
        }
        let told = told(&daemon.log());
        let epochs: std::collections::BTreeSet<&String> = told.keys().map(|(epoch, _)| epoch).collect();
        assert_eq!(epochs.len(), 3, "{how:?}");
        has_what_the_journal_tells(&daemon, &daemon.log(), head).await;
        for id in told.values().filter(|line| line.contains("\"name\":\"a\"")) {
            assert!(id.contains("\"ADDED\""), "{how:?}: what the copy had is told once");
        }
        assert_eq!(told.values().filter(|line| line.contains("\"name\":\"a\"")).count(), 1, "{how:?}");
    }
}

/// Nobody can be asked at the first starts after a journal was put back: the sink waits, and loses nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_output_that_is_away_while_the_journal_is_put_back_loses_nothing() {
    for (how, starts) in [(How::Unmarked, 1), (How::Unmarked, 2), (How::Replaced, 2)] {
        let sim = cluster().await;
        let mut daemon = Daemon::new(&sim, &["configmaps"]);
        // The one sink that there is: nobody but it knows of the other timeline.
        let path = daemon.path("mounted").join("log.jsonl");
        let text = fs::read_to_string(daemon.path("config.toml")).unwrap();
        daemon.configure(&text.replace(daemon.log().to_str().unwrap(), path.to_str().unwrap()));
        fs::create_dir(daemon.path("mounted")).unwrap();
        daemon.start();
        daemon.ready().await;
        create(&sim, "a");
        journaled(&daemon, "a").await;
        delivered(&daemon, "file").await;
        daemon.stop().await;
        let copied = copy(&daemon, "copy");
        let head = daemon.status().await["journal"]["head"]["seq"].as_u64().unwrap();
        daemon.start();
        for name in ["b", "c", "d", "e", "f"] {
            create(&sim, name);
        }
        journaled(&daemon, "f").await;
        delivered(&daemon, "file").await;
        daemon.stop().await;
        put_back(&daemon, &copied, how);
        fs::rename(daemon.path("mounted"), daemon.path("away")).unwrap();
        for start in 0..starts {
            daemon.start();
            daemon.ready().await;
            for name in ["g", "h", "i", "j"] {
                create(&sim, &format!("{name}{start}"));
            }
            journaled(&daemon, &format!("j{start}")).await;
            daemon.waits_for_state("sinks", "file", "retrying").await;
            if start + 1 < starts {
                daemon.stop().await;
            }
        }
        fs::rename(daemon.path("away"), daemon.path("mounted")).unwrap();
        delivered(&daemon, "file").await;
        create(&sim, "k");
        journaled(&daemon, "k").await;
        delivered(&daemon, "file").await;
        daemon.stop().await;
        told(&path);
        has_what_the_journal_tells(&daemon, &path, head).await;
    }
}

/// Epoch and seq of what a collector got.
fn place(body: &str) -> (String, u64) {
    let entry: serde_json::Value = serde_json::from_str(body).unwrap();
    let entry = entry.get("data").unwrap_or(&entry);
    (entry["epoch"].as_str().unwrap().to_owned(), entry["seq"].as_u64().unwrap())
}

/// No output can tell: the state directory itself does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_is_noticed_where_no_output_can_tell() {
    for how in [How::Replaced, How::Overwritten] {
        let sim = cluster().await;
        let collector = Collector::start().await;
        let sink = format!("[[sink]]\nname = \"http\"\ntype = \"http\"\nurl = \"http://{}/\"\n", collector.at);
        let mut daemon = Daemon::with(&sim, "resources = [\"configmaps\"]", &sink);
        daemon.start();
        daemon.ready().await;
        create(&sim, "a");
        received(&collector, 1).await;
        daemon.stop().await;
        let copied = copy(&daemon, "copy");
        for round in 0..3 {
            daemon.start();
            daemon.ready().await;
            create(&sim, &format!("b{round}"));
            create(&sim, &format!("c{round}"));
            until("the last one", async || {
                let came = collector.bodies().iter().any(|body| body.contains(&format!("\"name\":\"c{round}\"")));
                if came { Ok(()) } else { Err("it has not come".to_owned()) }
            })
            .await;
            daemon.stop().await;
            if round < 2 {
                put_back(&daemon, &copied, how);
            }
        }
        let mut seen: HashMap<(String, u64), String> = HashMap::new();
        for body in collector.bodies() {
            let place = place(&body);
            let before = seen.insert(place.clone(), body.clone());
            assert!(before.is_none_or(|before| before == body), "{place:?} names two entries");
        }
    }
}

/// The database was copied while the daemon ran, and is put back alone after a crash: the mark is the same one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_is_behind_its_mark_was_put_back() {
    let sim = cluster().await;
    let collector = Collector::start().await;
    let sink = format!("[[sink]]\nname = \"http\"\ntype = \"http\"\nurl = \"http://{}/\"\n", collector.at);
    let mut daemon = Daemon::with(&sim, "resources = [\"configmaps\"]", &sink);
    daemon.start();
    daemon.ready().await;
    create(&sim, "a");
    received(&collector, 1).await;
    delivered(&daemon, "http").await;
    let copied = daemon.path("copy.db");
    let journal = rusqlite::Connection::open(daemon.state().join("journal.db")).unwrap();
    journal.execute("VACUUM INTO ?", [copied.to_str().unwrap()]).unwrap();
    drop(journal);
    create(&sim, "b");
    received(&collector, 2).await;
    delivered(&daemon, "http").await;
    let mark = daemon.state().join("journal.mark");
    until("its note", async || {
        let text = fs::read_to_string(&mark).unwrap();
        if text.contains("newest entry: 00000000000000000002\n") { Ok(()) } else { Err(text) }
    })
    .await;
    daemon.kill().await;
    for name in ["journal.db-wal", "journal.db-shm"] {
        drop(fs::remove_file(daemon.state().join(name)));
    }
    fs::copy(&copied, daemon.state().join("journal.db")).unwrap();
    daemon.start();
    daemon.ready().await;
    received(&collector, 3).await;
    daemon.stop().await;
    let places: Vec<(String, u64)> = collector.bodies().iter().map(|body| place(body)).collect();
    assert_eq!(places.iter().map(|(_, seq)| *seq).collect::<Vec<_>>(), [1, 2, 2], "{places:?}");
    assert!(places[1].0 == places[0].0 && places[2].0 > places[1].0, "{places:?}");
}

/// Sinks that hang at the start hold up nobody.
#[cfg(feature = "redis")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_waits_for_no_sink() {
    let sim = cluster().await;
    let hangs = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = hangs.local_addr().unwrap();
    let mut hanging = tokio::task::JoinSet::new();
    hanging.spawn(async move {
        let mut kept = Vec::new();
        loop {
            kept.push(hangs.accept().await.unwrap());
        }
    });
    let sink = |number: u32| {
        format!(
            "[[sink]]\nname = \"s{number}\"\ntype = \"redis\"\nurl = \"redis://{at}/{number}\"\nstream = \"s{number}\"\n"
        )
    };
    let sinks: String = (0..20).map(sink).collect();
    let mut daemon = Daemon::with(&sim, "resources = [\"configmaps\"]", &sinks);
    create(&sim, "a");
    let begun = std::time::Instant::now();
    daemon.start();
    daemon.knows(&sim, "configmaps", "default", "a").await;
    // One after the other they would take more than a minute.
    assert!(begun.elapsed() < std::time::Duration::from_secs(20), "{:?}", begun.elapsed());
    daemon.stop().await;
}
