//! The real binary under load, written down: what it did to the disk, and what was seen from outside meanwhile.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use decklog::core::model::Seq;
use decklog::evidence::key::{SigningKey, VerifierKey};
use decklog::journal::Reader;
use decklog::sim::{Sim, objects};
use serde_json::json;

use crate::collector::Collector;
use crate::disk::{Disk, Left};
use crate::support::{Daemon, Dice, cluster, scope, until};
use crate::tessera;
use crate::trace::{self, Op, under_shim};

const WATCH: &str = "resources = [\"configmaps\", \"pods\"]";

/// A finished run.
pub(crate) struct Recorded {
    pub(crate) sim: Sim,
    pub(crate) started: u64,
    /// Where it ran: paths in the trace are below this.
    pub(crate) root: PathBuf,
    pub(crate) ops: Vec<Op>,
    pub(crate) epoch: String,
    /// The key that signs, and its public half.
    pub(crate) key: (SigningKey, VerifierKey),
    /// The log: entry 1 first.
    pub(crate) lines: Vec<String>,
    pub(crate) _daemon: Daemon,
}

/// A plain file, one that rotates, and the collector. Gives the state directory, which is not beside the files of the
/// sinks: what makes these durable would make it so too. The log is signed.
pub(crate) fn configure(daemon: &Daemon, root: &Path, http: &str, key: &SigningKey) -> PathBuf {
    // The shim wants whole paths.
    let (state, copies) = (root.join("var/lib/state"), root.join("copies/log.jsonl"));
    let rotated = format!(
        "[[sink]]\nname = \"rotated\"\ntype = \"file\"\npath = {copies:?}\nrotate_size = \"6KiB\"\nkeep = 1000\ncompress = \"zstd\"\n"
    );
    let (key_file, evidence) = (daemon.path("evidence.key"), root.join("evidence"));
    fs::write(&key_file, key.render()).unwrap();
    let signed = format!("[evidence]\ndir = {evidence:?}\nkey_file = {key_file:?}\n");
    let config = daemon.config(WATCH, &format!("{http}{rotated}{signed}"));
    daemon.configure(&config.replace(&format!("{:?}", daemon.state()), &format!("{state:?}")));
    state
}

/// The binary with other texts in it, each as long as the one that it replaces: settings that nobody can configure.
pub(crate) fn patched(at: &Path, patches: &[(&str, &str)]) -> PathBuf {
    let mut bytes = fs::read(env!("CARGO_BIN_EXE_decklog")).unwrap();
    for (from, to) in patches {
        let to = format!("{to:from$}", from = from.len());
        assert_eq!(from.len(), to.len(), "{to} is longer than {from}");
        let places: Vec<usize> = memchr::memmem::find_iter(&bytes, from).collect();
        assert_eq!(
            places.len(),
            1,
            "the binary has the text {from:?} {} times: it was changed, and this has to follow",
            places.len()
        );
        bytes[places[0]..places[0] + to.len()].copy_from_slice(to.as_bytes());
    }
    let path = at.join("decklog");
    fs::write(&path, bytes).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    fs::set_permissions(&path, mode).unwrap();
    path
}

/// Checkpoints after a few commits, so that a short run has many of them.
/// The writer's own bound is turned into a pragma that there is not, which SQLite passes over.
pub(crate) const SMALL_WAL: [(&str, &str); 2] = [
    ("PRAGMA wal_autocheckpoint = 4000;", "PRAGMA wal_autocheckpoint = 60;"),
    ("; PRAGMA wal_autocheckpoint = ", "; PRAGMA wal_autochekcpoint = "),
];

/// One of the writes that a cluster lives of.
fn live(sim: &Sim, dice: &mut Dice) {
    let name = format!("m{}", dice.roll(9));
    let known = sim.get("configmaps", "default", &name).is_ok();
    match dice.roll(8) {
        0 if known => drop(sim.delete("configmaps", "default", &name).unwrap()),
        1 => {
            // Many pages in one transaction.
            let name = format!("p{}", sim.revision());
            let mut pod = objects::pod("default", &name, "web", None, "web:1");
            pod["metadata"]["annotations"] = json!({"noise": noise(dice, 6000)});
            sim.create("pods", pod).unwrap();
        }
        _ if known => {
            let data = json!({"data": {"value": sim.revision().to_string()}});
            sim.patch("configmaps", "default", &name, &data).unwrap();
        }
        _ => drop(sim.create("configmaps", objects::config_map("default", &name, "1")).unwrap()),
    }
}

/// Text that no compression makes small.
pub(crate) fn noise(dice: &mut Dice, length: usize) -> String {
    (0..length).map(|_| char::from(b'a' + u8::try_from(dice.roll(26)).unwrap())).collect()
}

/// As SIGKILL, but that nothing is done without being written down.
async fn kill(daemon: &mut Daemon) {
    daemon.signal(rustix::process::Signal::USR2);
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&daemon.end().await), Some(9));
}

/// A first list, load, a clean stop, a start, load, a kill, a server that forgot, a start, load, a clean stop, a start,
/// a kill. The list after that has so many objects more.
pub(crate) async fn run(seed: u64, patches: &[(&str, &str)], more: usize) -> Recorded {
    let sim = cluster().await;
    let mut dice = Dice(seed);
    let started = sim.revision();
    for number in 0..5 {
        sim.create("configmaps", objects::config_map("default", &format!("m{number}"), "1")).unwrap();
    }
    let place = tempfile::tempdir().unwrap();
    let trace = place.path().join("trace");
    let binary = patched(place.path(), patches);
    let collector = Collector::start(Some(trace.clone())).await;
    let mut daemon = Daemon::with(&sim, WATCH, "");
    let root = daemon.path("").canonicalize().unwrap();
    let key = tessera::key();
    let state = configure(&daemon, &root, &collector.sink("http"), &key.0);
    fs::create_dir(root.join("copies")).unwrap();
    let start = |daemon: &mut Daemon| {
        daemon.start_by(Command::new(&binary), |command| under_shim(command, &root).env("DECKLOG_SHIM_LOG", &trace));
    };
    start(&mut daemon);
    daemon.ready().await;
    for round in 0..4 {
        let watcher = HeadWatcher::start(&state, trace.clone());
        for burst in 0..5 {
            // One by one, and many at once.
            for _ in 0..if burst % 2 == 0 { 1 } else { 4 } {
                live(&sim, &mut dice);
            }
            daemon.catch_up(&sim, &scope(&sim, started, &["configmaps", "pods"])).await;
        }
        let copies = daemon.lines() as u64;
        until("the collector to have it all", async || {
            daemon.must_run();
            if collector.highest() >= copies { Ok(()) } else { Err(daemon.last_words()) }
        })
        .await;
        // A reader that stays would keep the daemon from ending as the last one.
        drop(watcher);
        let mut follower = None;
        match round {
            0 => {
                daemon.stop().await;
                // Whoever reads the journal of a daemon that is stopped makes its WAL, which the daemon then finds.
                let mut tail = Command::new(&binary);
                tail.arg("tail").arg("-f").arg("-c").arg(daemon.path("config.toml")).env_clear();
                tail.stdin(Stdio::null()).stdout(Stdio::null());
                under_shim(&mut tail, &root).env("DECKLOG_SHIM_LOG", &trace);
                follower = Some(Follower(tail.spawn().unwrap()));
                let wal = state.join("journal.db-wal");
                until("a WAL that the reader makes", async || {
                    if wal.exists() { Ok(()) } else { Err("there is none".to_owned()) }
                })
                .await;
            }
            1 => kill(&mut daemon).await,
            2 => {
                kill(&mut daemon).await;
                for _ in 0..6 {
                    live(&sim, &mut dice);
                }
                for number in 0..more {
                    sim.create("configmaps", objects::config_map("default", &format!("b{number}"), "1")).unwrap();
                }
                sim.compact_all();
            }
            _ => {
                daemon.stop().await;
                start(&mut daemon);
                daemon.ready().await;
                kill(&mut daemon).await;
            }
        }
        if round < 3 {
            start(&mut daemon);
            daemon.ready().await;
            drop(follower);
        }
    }
    let ops = trace::read(&trace);
    let mut reader = Reader::open(&state).unwrap();
    let epoch = reader.epoch().unwrap();
    let entries = reader.entries_after(Seq(0), usize::MAX >> 1, usize::MAX).unwrap();
    let lines: Vec<String> = entries.iter().map(|entry| String::from_utf8(entry.line.to_vec()).unwrap()).collect();
    let whole = fs::read_to_string(daemon.log()).unwrap();
    assert!(whole.lines().eq(lines.iter().map(String::as_str)), "the file has what the journal has");
    let recorded = Recorded { sim, started, root, ops, epoch, key, lines, _daemon: daemon };
    recorded.nothing_was_missed();
    recorded
}

impl Recorded {
    pub(crate) fn disk(&self) -> Disk {
        Disk::new(&self.root, &["copies"])
    }

    /// The shim saw everything: what the model has, when nothing is lost, is what there is.
    fn nothing_was_missed(&self) {
        let mut disk = self.disk();
        for op in &self.ops {
            disk.apply(op);
        }
        let image = disk.image(Left::All, &mut Dice(0));
        for (path, bytes) in &image.files {
            // One file only keeps its place on the disk, by a call that writes nothing.
            if path.ends_with("reserve") {
                continue;
            }
            let there = fs::read(self.root.join(path));
            let found = there.as_ref().map_or_else(ToString::to_string, |there| format!("{} bytes", there.len()));
            let same = there.is_ok_and(|there| there == *bytes);
            assert!(same, "{}: the trace has {} bytes of it, and there is {found}", path.display(), bytes.len());
        }
        for dir in ["copies", "var/lib/state"] {
            for entry in fs::read_dir(self.root.join(dir)).unwrap() {
                let name = entry.unwrap().file_name();
                let known = image.files.contains_key(&Path::new(dir).join(&name));
                assert!(known || name.to_str().unwrap().ends_with("-shm"), "{name:?} is in {dir} but not in the trace");
            }
        }
        // The WAL was begun anew while it was in use, so checkpoints are among what is cut.
        let mut wals = Vec::new();
        let (mut made, mut begun) = (0, 0);
        for op in &self.ops {
            match op {
                Op::Create { inode, path } if path.ends_with("journal.db-wal") => {
                    made += 1;
                    wals.push(*inode);
                }
                Op::Write { inode, at: 0, .. } if wals.contains(inode) => begun += 1,
                Op::Create { .. } | Op::Write { .. } | Op::Truncate { .. } | Op::Sync { .. } => {}
                Op::SyncDir { .. } | Op::SyncAll { .. } => {}
                Op::Rename { .. } | Op::Unlink { .. } | Op::Mkdir { .. } | Op::Mark(_) | Op::Step(_) => {}
            }
        }
        assert!(begun > made + 2, "the WAL of {made} names was begun {begun} times only: the checkpoints are too rare");
        assert!(image.files.len() > 8, "{:?}", image.files.keys());
    }
}

/// A command under the shim that ends with this, but never between a change and its record.
struct Follower(Child);

impl Drop for Follower {
    fn drop(&mut self) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.0), rustix::process::Signal::USR2).ok();
        drop(self.0.wait());
    }
}

/// Shows the head to the trace, as a tail or a metric would show it.
struct HeadWatcher {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl HeadWatcher {
    fn start(state: &Path, trace: PathBuf) -> Self {
        let (stop, stopped) = mpsc::channel();
        let reader = Reader::open(state).unwrap();
        let thread = std::thread::Builder::new().name("head".to_owned()).spawn(move || {
            let mut seen = 0;
            // As often as a tail looks at most, until there is nobody any more who wants to know.
            while stopped.recv_timeout(Duration::from_millis(3)) == Err(RecvTimeoutError::Timeout) {
                let head = reader.head().unwrap().0;
                if head > seen {
                    seen = head;
                    trace::mark(&trace, &format!("head {seen}"));
                }
            }
        });
        Self { stop: Some(stop), thread: Some(thread.unwrap()) }
    }
}

impl Drop for HeadWatcher {
    fn drop(&mut self) {
        drop(self.stop.take());
        self.thread.take().unwrap().join().unwrap();
    }
}
