//! Calls that fail: what the disk says when it is broken, full, or read-only, and what decklog makes of it.

use std::fs;
use std::path::Path;

use decklog::journal::Reader;
use decklog::sim::{Sim, objects};
use rustix::process::Signal;

use crate::record::{SMALL_WAL, noise, patched};
use crate::support::{Daemon, Dice, cluster, scope, until};
use crate::trace::under_shim;

const EIO: i32 = 5;
const EMFILE: i32 = 24;
const EFBIG: i32 = 27;
const ENOSPC: i32 = 28;
const EROFS: i32 = 30;
const EDQUOT: i32 = 122;
/// Every call there will be.
const ALWAYS: u32 = 1_000_000;

/// One daemon over one cluster whose calls fail while a file is there.
struct Broken {
    sim: Sim,
    daemon: Daemon,
    started: u64,
}

impl Broken {
    async fn new() -> Self {
        let sim = cluster().await;
        let started = sim.revision();
        sim.create("configmaps", objects::config_map("default", "first", "1")).unwrap();
        let daemon = Daemon::new(&sim, &["configmaps"]);
        Self { sim, daemon, started }
    }

    /// Starts it; `fault` (OPERATION,SUFFIX,ERRNO,FIRST,COUNT) counts from [`Broken::breaks`] on.
    fn start(&mut self, fault: &str) {
        let (root, trigger) = (self.daemon.path("").canonicalize().unwrap(), self.daemon.path("broken"));
        self.daemon.start_with(|command| {
            under_shim(command, &root).env("DECKLOG_SHIM_FAULT", format!("{fault},{}", trigger.display()))
        });
    }

    fn breaks(&self) {
        fs::write(self.daemon.path("broken"), "").unwrap();
    }

    fn heals(&self) {
        fs::remove_file(self.daemon.path("broken")).unwrap();
    }

    fn write(&self, names: &[&str]) {
        for name in names {
            self.sim.create("configmaps", objects::config_map("default", name, "1")).unwrap();
        }
    }

    async fn catch_up(&mut self) {
        let done = scope(&self.sim, self.started, &["configmaps"]);
        self.daemon.catch_up(&self.sim, &done).await;
    }

    /// It ended with 74 and said why in its last line.
    async fn ends(&mut self, says: &[&str]) {
        let status = self.daemon.end().await;
        let words = self.daemon.last_words();
        assert_eq!(status.code(), Some(74), "{words}");
        let last = words.lines().last().unwrap_or_default();
        assert!(last.starts_with("decklog: ") && says.iter().any(|text| last.contains(text)), "{last}");
    }

    /// In the end the log is exact, and nothing was forgotten on the way.
    async fn exact(mut self) {
        self.daemon.ready().await;
        self.catch_up().await;
        self.daemon.stop().await;
        let done = scope(&self.sim, self.started, &["configmaps"]);
        self.daemon.judged(&self.sim, &done).await;
        assert!(self.daemon.entries().iter().all(|entry| entry.gap.is_none()), "the server forgot nothing");
    }
}

/// Fault 45: after a sync that failed nothing in memory is believed; the journal is read anew from its file.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sync_of_the_wal_that_fails_once_ends_it_and_loses_nothing() {
    let mut broken = Broken::new().await;
    broken.start(&format!("sync,journal.db-wal,{EIO},1,1"));
    broken.daemon.ready().await;
    broken.catch_up().await;
    let told = broken.daemon.lines();
    broken.breaks();
    broken.write(&["a", "b"]);
    broken.ends(&["check the disk"]).await;
    assert_eq!(broken.daemon.lines(), told, "nothing is visible that is not on disk");
    broken.heals();
    broken.daemon.start();
    broken.exact().await;
}

/// Fault 46: as long as it fails, each start ends in the same way, and nobody is told anything.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn syncs_of_the_wal_that_always_fail_end_each_start() {
    let mut broken = Broken::new().await;
    let fault = format!("sync,journal.db-wal,{EIO},1,{ALWAYS}");
    broken.start(&fault);
    broken.daemon.ready().await;
    broken.catch_up().await;
    let told = broken.daemon.lines();
    broken.breaks();
    broken.write(&["a"]);
    broken.ends(&["check the disk"]).await;
    for _ in 0..2 {
        broken.start(&fault);
        broken.ends(&["check the disk"]).await;
    }
    assert_eq!(broken.daemon.lines(), told);
    broken.heals();
    broken.daemon.start();
    broken.exact().await;
}

/// Fault 47: no room in the WAL: on the disk, in a quota, or below the limit of a file's size. It pauses, says which, and goes on
/// where it was.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_room_in_the_wal_loses_nothing() {
    for (errno, says) in
        [(ENOSPC, "is full; free some space"), (EDQUOT, "raise the quota"), (EFBIG, "raise the limit of a file's size")]
    {
        let mut broken = Broken::new().await;
        broken.start(&format!("write,journal.db-wal,{errno},3,{ALWAYS}"));
        broken.daemon.ready().await;
        broken.catch_up().await;
        broken.breaks();
        broken.write(&["a", "b"]);
        // The journal cannot say that it is paused, and `status` does all the same.
        until("the pause to be in the status", async || {
            broken.daemon.must_run();
            let paused = broken.daemon.status().await["journal"]["paused"].clone();
            let is_said = paused["detail"].as_str().is_some_and(|detail| detail.contains(says));
            if paused["why"] == "disk_full" && is_said { Ok(()) } else { Err(paused.to_string()) }
        })
        .await;
        let noted = Reader::open(&broken.daemon.state()).unwrap().retained().unwrap().paused;
        assert_eq!(noted, None, "it did not come to what this is about");
        let text = broken.daemon.command(&["status"]).await.done();
        assert!(text.contains("alarm    journal-paused"), "{text}");
        broken.heals();
        broken.write(&["c"]);
        broken.exact().await;
    }
}

/// Fault 48: the WAL cannot be written back. It grows meanwhile; what is told goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_room_at_a_checkpoint_holds_up_nothing() {
    for fault in [format!("write,journal.db,{ENOSPC},1,{ALWAYS}"), format!("sync,journal.db,{EIO},1,3")] {
        let mut broken = Broken::new().await;
        let (root, trigger) = (broken.daemon.path("").canonicalize().unwrap(), broken.daemon.path("broken"));
        let place = tempfile::tempdir().unwrap();
        let binary = patched(place.path(), &SMALL_WAL);
        broken.daemon.start_by(std::process::Command::new(binary), |command| {
            under_shim(command, &root).env("DECKLOG_SHIM_FAULT", format!("{fault},{}", trigger.display()))
        });
        broken.daemon.ready().await;
        broken.breaks();
        let mut dice = Dice(1);
        for number in 0..12 {
            let big = objects::config_map("default", &format!("n{number}"), &noise(&mut dice, 40_000));
            broken.sim.create("configmaps", big).unwrap();
            broken.catch_up().await;
        }
        broken.heals();
        broken.write(&["a"]);
        broken.exact().await;
    }
}

/// Fault 49: the file system has become read-only, as ext4 does after an error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_becomes_read_only_ends_it_and_loses_nothing() {
    let mut broken = Broken::new().await;
    broken.start(&format!("write,,{EROFS},1,{ALWAYS}"));
    broken.daemon.ready().await;
    broken.catch_up().await;
    broken.breaks();
    broken.write(&["a"]);
    broken.ends(&["check the disk, the owner and the permissions of the state directory"]).await;
    broken.start(&format!("open,decklog.lock,{EROFS},1,{ALWAYS}"));
    broken.ends(&["check its owner, its permissions"]).await;
    broken.heals();
    broken.daemon.start();
    broken.exact().await;
}

/// Faults 45 to 47 under a sink: it takes back what it is not sure of, writes it again, and holds up nobody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_sink_takes_back_what_was_not_synced() {
    for fault in [
        "sync,log.jsonl,5,1,2",
        "write,log.jsonl,28,1,2",
        "write,log.jsonl,27,1,2",
        "write,log.jsonl,0,1,1;write,log.jsonl,28,1,2",
        "trunc,log.jsonl,5,1,1;sync,log.jsonl,5,1,1",
    ] {
        let mut broken = Broken::new().await;
        let rules: Vec<&str> = fault.split(';').collect();
        let trigger = broken.daemon.path("broken");
        let joined: Vec<String> = rules.iter().map(|rule| format!("{rule},{}", trigger.display())).collect();
        let root = broken.daemon.path("").canonicalize().unwrap();
        broken.daemon.start_with(|command| under_shim(command, &root).env("DECKLOG_SHIM_FAULT", joined.join(";")));
        broken.daemon.ready().await;
        broken.catch_up().await;
        broken.daemon.forgive_what_follows();
        broken.breaks();
        broken.write(&["a", "b"]);
        until("it to say what failed", async || {
            broken.daemon.must_run();
            broken.daemon.entries();
            if broken.daemon.said().contains("trying again") { Ok(()) } else { Err(broken.daemon.last_words()) }
        })
        .await;
        broken.write(&["c"]);
        broken.exact().await;
    }
}

/// Every write comes to half of what it was asked for: nobody takes that for the whole.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_that_come_short_are_finished() {
    let mut broken = Broken::new().await;
    broken.breaks();
    broken.start(&format!("write,,0,1,{ALWAYS}"));
    broken.daemon.ready().await;
    broken.write(&["a", "b", "c"]);
    broken.exact().await;
}

/// Fault 54: no descriptor is left. What is open goes on, what has to be opened waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_descriptors_it_waits_and_goes_on() {
    let mut broken = Broken::new().await;
    let trigger = broken.daemon.path("broken");
    let root = broken.daemon.path("").canonicalize().unwrap();
    let rules: Vec<String> =
        ["open", "socket"].iter().map(|it| format!("{it},,{EMFILE},1,{ALWAYS},{}", trigger.display())).collect();
    broken.daemon.start_with(|command| under_shim(command, &root).env("DECKLOG_SHIM_FAULT", rules.join(";")));
    broken.daemon.ready().await;
    broken.catch_up().await;
    broken.breaks();
    // What is open is enough for a change and its delivery.
    broken.write(&["a"]);
    broken.catch_up().await;
    broken.sim.stop_listening().await;
    broken.write(&["b"]);
    until("it to miss a connection", async || {
        broken.daemon.must_run();
        if broken.daemon.said().contains("no file descriptor is left") {
            Ok(())
        } else {
            Err(broken.daemon.last_words())
        }
    })
    .await;
    broken.sim.start_listening().await.unwrap();
    broken.heals();
    broken.exact().await;
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 4;
    fs::write(path, bytes).unwrap();
}

/// Faults 40, 41: the end of the WAL is torn off or damaged, and a sink holds more than the journal: a new epoch
/// begins, no seq is given out twice, and what was lost is read from the server again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_wal_never_gives_a_seq_out_twice() {
    // Where it is damaged, as a part of the whole; torn off there, or one bit.
    for (part, torn) in [(0.3, false), (0.6, false), (0.95, false), (0.5, true), (0.97, true)] {
        let mut broken = Broken::new().await;
        broken.daemon.start();
        broken.daemon.ready().await;
        for name in ["a", "b", "c", "d"] {
            broken.write(&[name]);
            broken.catch_up().await;
        }
        broken.daemon.kill().await;
        let wal = broken.daemon.state().join("journal.db-wal");
        let length = fs::metadata(&wal).unwrap().len();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "a place in a file"
        )]
        let at = (length as f64 * part) as u64;
        if torn {
            fs::OpenOptions::new().write(true).open(&wal).unwrap().set_len(at).unwrap();
        } else {
            flip(&wal, usize::try_from(at).unwrap());
        }
        broken.daemon.start();
        broken.daemon.ready().await;
        broken.write(&["e"]);
        broken.daemon.knows(&broken.sim, "configmaps", "default", "e").await;
        broken.daemon.stop().await;
        broken.daemon.command(&["verify"]).await.done();
        let entries = broken.daemon.entries();
        let mut places: Vec<(String, u64)> = entries.iter().map(|entry| (entry.epoch.clone(), entry.seq)).collect();
        let count = places.len();
        places.sort();
        places.dedup();
        assert_eq!(places.len(), count, "{part}: one seq of one epoch twice");
        let epochs: std::collections::BTreeSet<&String> = places.iter().map(|(epoch, _)| epoch).collect();
        assert_eq!(epochs.len(), 2, "{part}: a new epoch begins");
        for name in ["first", "a", "b", "c", "d", "e"] {
            assert!(entries.iter().any(|entry| entry.name == name), "{part}: {name} is missing");
        }
    }
}

/// Fault 42: a bit of a page has changed. `verify` finds it, and whatever reads it says so; nothing wrong is told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bit_flip_in_a_page_is_found_and_never_told() {
    let mut broken = Broken::new().await;
    let mut dice = Dice(3);
    broken.daemon.start();
    broken.daemon.ready().await;
    for number in 0..24 {
        let big = objects::config_map("default", &format!("n{number}"), &noise(&mut dice, 20_000));
        broken.sim.create("configmaps", big).unwrap();
    }
    broken.catch_up().await;
    broken.daemon.stop().await;
    let database = broken.daemon.state().join("journal.db");
    let whole = fs::read(&database).unwrap();
    let right = fs::read(broken.daemon.log()).unwrap();
    let mut found = 0;
    for _ in 0..40 {
        fs::write(&database, &whole).unwrap();
        flip(&database, dice.roll(whole.len()));
        let verified = broken.daemon.command(&["verify"]).await;
        let printed = broken.daemon.command(&["tail", "-o", "json", "--last", "1000"]).await;
        // What it prints is right as far as it comes, whether the damage was found or lies where nothing is.
        let exact = right.starts_with(printed.out.as_bytes());
        assert!(exact || verified.code != 0, "wrong lines from a journal that `verify` finds right");
        if verified.code != 0 {
            found += 1;
            assert!(verified.code == 1 || verified.code == 74, "{verified:#?}");
        } else {
            assert!(printed.code == 0 && printed.out.as_bytes() == right, "{printed:#?}");
        }
        assert!(printed.code == 0 || !printed.err.is_empty(), "it says why: {printed:#?}");
    }
    assert!(found >= 20, "{found} of 40 were found");
    fs::write(&database, &whole).unwrap();
    broken.daemon.start();
    broken.exact().await;
}

/// Fault 43: the journal is deleted, or another one put in its place, while decklog writes to it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_journal_that_is_taken_away_ends_it() {
    for (what, replaced) in [("journal.db", false), ("journal.db", true), ("journal.db-wal", false)] {
        let mut broken = Broken::new().await;
        broken.daemon.start();
        broken.daemon.ready().await;
        broken.catch_up().await;
        let (path, kept) = (broken.daemon.state().join(what), broken.daemon.path("kept"));
        fs::rename(&path, &kept).unwrap();
        if replaced {
            fs::copy(&kept, &path).unwrap();
        }
        broken.ends(&["was deleted or replaced while decklog wrote to it; put the state directory back"]).await;
        // Put back, it goes on; with the very file, because nothing was written meanwhile.
        fs::rename(&kept, &path).unwrap();
        broken.daemon.start();
        broken.write(&["a"]);
        broken.exact().await;
    }
}

/// Fault 51: another program writes to the journal.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_program_that_writes_to_the_journal_ends_it() {
    let mut broken = Broken::new().await;
    broken.daemon.start();
    broken.daemon.ready().await;
    broken.catch_up().await;
    // Commands that read may come and go.
    for command in ["status", "verify"] {
        broken.daemon.command(&[command]).await.done();
    }
    broken.write(&["a"]);
    broken.catch_up().await;
    let db = rusqlite::Connection::open(broken.daemon.state().join("journal.db")).unwrap();
    db.busy_timeout(std::time::Duration::from_secs(30)).unwrap();
    db.execute("UPDATE entry SET time = time + 1 WHERE seq = 1", []).unwrap();
    drop(db);
    broken.write(&["b"]);
    broken.ends(&["another program has written to the journal while decklog ran"]).await;
    // It shows where.
    broken.daemon.command(&["verify"]).await.refused(1, &[]);
    assert!(broken.daemon.command(&["verify"]).await.out.contains("entry 1: it says another time than its row"));
}

/// A sink whose file cannot be opened for a while goes on by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sink_that_is_opened_anew_while_it_fails_goes_on() {
    let mut broken = Broken::new().await;
    broken.start("open,log.jsonl,5,1,2");
    broken.daemon.ready().await;
    broken.catch_up().await;
    broken.breaks();
    broken.daemon.signal(Signal::HUP);
    broken.write(&["a"]);
    broken.exact().await;
}
