//! Disks that are full, missing or in a bad state: exit 74 with a clear text, and nothing lost.

use std::fs;
use std::path::Path;
use std::process::Command;

use decklog::sim::faults::Signal;
use decklog::sim::{Sim, objects};
use rustix::process::Signal as Kill;

use crate::support::{Daemon, Dice, cluster, scope, until};

/// Text that no compression makes small.
fn noise(dice: &mut Dice, length: usize) -> String {
    (0..length)
        .map(|_| char::from(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"[dice.roll(62)]))
        .collect()
}

/// Writes about so many KiB into the cluster.
pub(crate) fn fill(sim: &Sim, dice: &mut Dice, kib: usize) {
    for _ in 0..kib.div_ceil(20) {
        let name = format!("m{}", sim.revision());
        sim.create("configmaps", objects::config_map("default", &name, &noise(dice, 20 << 10))).unwrap();
    }
}

/// A tmpfs that ends with the test.
pub(crate) struct Small(std::path::PathBuf);

#[expect(clippy::print_stdout, reason = "a test that proves nothing has to say so")]
impl Small {
    /// `None` where this user may not mount, which is said.
    pub(crate) fn mount(at: &Path, size: &str) -> Option<Self> {
        fs::create_dir_all(at).unwrap();
        let options = format!("size={size},mode=0700");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(at).output();
        match mounted {
            Ok(output) if output.status.success() => Some(Self(at.to_owned())),
            Ok(output) => {
                println!("not tested on a real small disk: {}", String::from_utf8_lossy(&output.stderr).trim());
                None
            }
            Err(error) => {
                println!("not tested on a real small disk: mount: {error}");
                None
            }
        }
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("--lazy").arg(&self.0).status());
    }
}

/// Faults 47 and 48: the disk is full. It pauses, says so, and goes on by itself when there is space.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_pauses_it_and_loses_nothing() {
    let sim = cluster().await;
    let mut dice = Dice(6);
    let started = sim.revision();
    let mut daemon = Daemon::new(&sim, &["configmaps"]);
    let Some(small) = Small::mount(&daemon.state(), "3m") else { return };
    daemon.start();
    daemon.ready().await;
    fill(&sim, &mut dice, 8000);
    daemon.says("reading the cluster is paused: the disk of").await;
    assert!(daemon.said().contains("free some space: nothing that was taken is lost"), "{}", daemon.last_words());
    let status = daemon.status().await;
    assert_eq!(status["journal"]["paused"]["why"], "disk_full", "{status}");
    let told = daemon.command(&["status"]).await.done();
    assert!(told.contains("alarm    journal-paused") && told.matches(" is full; ").count() == 1, "{told}");
    // The sink goes on with what the journal has.
    let head = usize::try_from(status["journal"]["head"]["seq"].as_u64().unwrap()).unwrap();
    daemon.reach(head).await;
    let size = Command::new("mount").args(["-o", "remount,size=64m"]).arg(daemon.state()).status().unwrap();
    assert!(size.success());
    let done = scope(&sim, started, &["configmaps"]);
    daemon.catch_up(&sim, &done).await;
    daemon.says("there is room again: decklog reads the cluster again").await;
    until("the pause to be over in the status", async || {
        let status = daemon.status().await;
        if status["journal"]["paused"].is_null() { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
    daemon.stop().await;
    daemon.judged(&sim, &done).await;
    assert!(daemon.entries().iter().all(|entry| entry.gap.is_none()), "the server forgot nothing");
    drop(small);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_under_a_sink_holds_up_that_sink_alone() {
    let sim = cluster().await;
    let mut dice = Dice(7);
    let started = sim.revision();
    let mut daemon = Daemon::new(&sim, &["configmaps"]);
    let Some(small) = Small::mount(&daemon.path("small"), "256k") else { return };
    let more = "[[sink]]\nname = \"small\"\ntype = \"file\"\npath = \"small/log.jsonl\"\n";
    daemon.configure(&daemon.config("resources = [\"configmaps\"]", more));
    daemon.start();
    daemon.ready().await;
    fill(&sim, &mut dice, 600);
    let done = scope(&sim, started, &["configmaps"]);
    daemon.catch_up(&sim, &done).await;
    let detail = daemon.waits_for_state("sinks", "small", "retrying").await;
    assert!(detail.contains("free some space: nothing is lost"), "{detail}");
    let grown = Command::new("mount").args(["-o", "remount,size=16m"]).arg(daemon.path("small")).status().unwrap();
    assert!(grown.success());
    daemon.signal(Kill::HUP);
    let copy = daemon.path("small/log.jsonl");
    until("the rest in the small one", async || {
        daemon.must_run();
        if fs::read(&copy).unwrap() == fs::read(daemon.log()).unwrap() { Ok(()) } else { Err(daemon.last_words()) }
    })
    .await;
    daemon.stop().await;
    daemon.judged(&sim, &done).await;
    drop(small);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sink_whose_directory_is_missing_waits_for_it() {
    let sim = cluster().await;
    let mut daemon = Daemon::new(&sim, &["configmaps"]);
    let more = "[[sink]]\nname = \"late\"\ntype = \"file\"\npath = \"missing/log.jsonl\"\n";
    daemon.configure(&daemon.config("resources = [\"configmaps\"]", more));
    let checked = daemon.command(&["check"]).await;
    assert!(checked.code == 1 && checked.out.contains("missing does not exist; create it"), "{checked:#?}");
    for name in ["a", "b"] {
        sim.create("configmaps", objects::config_map("default", name, "1")).unwrap();
    }
    daemon.start();
    daemon.ready().await;
    let detail = daemon.waits_for_state("sinks", "late", "retrying").await;
    assert!(detail.contains("missing does not exist; create it"), "{detail}");
    daemon.reach(2).await;
    fs::create_dir(daemon.path("missing")).unwrap();
    let copy = daemon.path("missing/log.jsonl");
    until("delivery to go on", async || {
        daemon.must_run();
        let same = fs::read(&copy).is_ok_and(|bytes| bytes == fs::read(daemon.log()).unwrap());
        if same { Ok(()) } else { Err(daemon.last_words()) }
    })
    .await;
    daemon.waits_for_state("sinks", "late", "running").await;
    daemon.stop().await;
}

/// Fault 62: the sink halts, and nothing of the file is touched.
///
/// Somebody else wrote into the file: decklog neither repairs nor continues what is not its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_with_foreign_text_halts_its_sink_until_it_is_moved_away() {
    let sim = cluster().await;
    let mut daemon = Daemon::new(&sim, &["configmaps"]);
    fs::write(daemon.log(), "somebody's notes\n").unwrap();
    sim.create("configmaps", objects::config_map("default", "a", "1")).unwrap();
    daemon.start();
    daemon.ready().await;
    let detail = daemon.waits_for_state("sinks", "file", "halted").await;
    assert!(detail.contains("move the file away and send SIGHUP"), "{detail}");
    sim.create("configmaps", objects::config_map("default", "b", "1")).unwrap();
    assert_eq!(fs::read_to_string(daemon.log()).unwrap(), "somebody's notes\n", "not ours to touch");
    fs::rename(daemon.log(), daemon.path("notes")).unwrap();
    daemon.signal(Kill::HUP);
    daemon.knows(&sim, "configmaps", "default", "b").await;
    assert_eq!(daemon.entries().len(), 2);
    daemon.stop().await;
    daemon.consistent().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_journal_that_is_damaged_is_not_used() {
    let sim = cluster().await;
    let started = sim.revision();
    let mut daemon = Daemon::new(&sim, &["configmaps"]);
    daemon.start();
    daemon.ready().await;
    for name in ["a", "b"] {
        sim.create("configmaps", objects::config_map("default", name, "1")).unwrap();
    }
    let done = scope(&sim, started, &["configmaps"]);
    daemon.catch_up(&sim, &done).await;
    daemon.stop().await;
    let database = daemon.state().join("journal.db");
    let whole = fs::read(&database).unwrap();
    fs::write(&database, vec![b'x'; whole.len()]).unwrap();
    daemon.start();
    assert_eq!(daemon.end().await.code(), Some(74), "{}", daemon.last_words());
    let said = daemon.last_words();
    assert!(said.contains("decklog verify") && said.contains("restore the state directory"), "{said}");
    daemon.command(&["status"]).await.refused(74, &["journal.db"]);
    assert_ne!(daemon.command(&["verify"]).await.code, 0);
    let log = fs::read(daemon.log()).unwrap();
    // Put back, it goes on.
    fs::write(&database, whole).unwrap();
    daemon.start();
    sim.signal("configmaps", &Signal::Bookmark);
    daemon.ready().await;
    daemon.stop().await;
    assert_eq!(fs::read(daemon.log()).unwrap(), log);
    daemon.judged(&sim, &done).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn state_of_a_newer_decklog_is_refused_and_left_alone() {
    let sim = cluster().await;
    let mut daemon = Daemon::new(&sim, &["configmaps"]);
    daemon.start();
    daemon.ready().await;
    daemon.stop().await;
    let database = daemon.state().join("journal.db");
    let set = |version: i64| {
        let db = rusqlite::Connection::open(&database).unwrap();
        db.pragma_update(None, "user_version", version).unwrap();
    };
    let known = rusqlite::Connection::open(&database)
        .and_then(|db| db.pragma_query_value(None, "user_version", |row| row.get::<_, i64>(0)))
        .unwrap();
    set(99);
    for command in ["run", "status", "tail", "verify"] {
        daemon.command(&[command]).await.refused(78, &["newer decklog", "schema 99", "run that version"]);
    }
    set(known);
    daemon.start();
    sim.create("configmaps", objects::config_map("default", "a", "1")).unwrap();
    daemon.knows(&sim, "configmaps", "default", "a").await;
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn state_directories_that_cannot_be_used_are_named() {
    let sim = cluster().await;
    let daemon = Daemon::new(&sim, &["configmaps"]);
    fs::write(daemon.path("file"), "a file").unwrap();
    // chmod would not stop root.
    for (path, says) in [
        (daemon.path("file"), "file"),
        (daemon.path("file/below"), "file/below"),
        ("/proc/decklog".into(), "/proc/decklog"),
        ("/proc/self".into(), "/proc/self"),
    ] {
        let config = daemon.config("resources = [\"configmaps\"]", "");
        daemon.configure(&config.replace(&format!("{:?}", daemon.state()), &format!("{path:?}")));
        let text = daemon.command(&["run"]).await.refused(74, &[says, "state directory"]);
        assert!(text.contains("check its owner, its permissions and the space on the disk"), "{text}");
        assert_eq!(text.trim().lines().count(), 1, "one sentence: {text}");
        // Root may write to /proc, as far as anyone can tell without trying.
        if !path.starts_with("/proc") {
            let checked = daemon.command(&["check"]).await;
            assert!(checked.code == 1 && checked.out.contains("problem  state"), "{checked:#?}");
        }
    }
}
