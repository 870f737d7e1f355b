//! Killed before and after every step: each write, sync, rename, creation and removal below the directories of the
//! daemon, each send to and receive from the network, each print; and once more within the recovery from that.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use decklog::core::model::Seq;
use decklog::journal::Reader;
use decklog::sim::{Sim, objects};
use serde_json::json;

use crate::collector::Collector;
use crate::cuts::output;
use crate::scratch;
use crate::setting;
use crate::support::{Daemon, Dice, cluster, scope, until};
use crate::trace::{self, Op, under_shim};

/// Where a process is killed: at which step, and on which side of it.
#[derive(Clone, Copy, Debug)]
struct Kill {
    step: usize,
    after: bool,
}

/// Says which kills a life had that went wrong.
struct Told<'a>(&'a [Kill]);

#[expect(clippy::print_stdout, reason = "how to do it again")]
impl Drop for Told<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("this life had {:?}", self.0);
        }
    }
}

const WATCH: &str = "resources = [\"configmaps\"]";
/// What is there before, what is written one by one, what is written at once.
const OBJECTS: (usize, usize, usize) = (3, 5, 6);

fn write(sim: &Sim, number: usize) {
    let name = format!("m{}", number % 6);
    if sim.get("configmaps", "default", &name).is_err() {
        sim.create("configmaps", objects::config_map("default", &name, "1")).unwrap();
    } else if number % 4 == 2 {
        sim.delete("configmaps", "default", &name).unwrap();
    } else {
        sim.patch("configmaps", "default", &name, &json!({"data": {"value": number.to_string()}})).unwrap();
    }
}

/// One short life: a first list, changes one by one, many at once, a clean end; each of the kills on the way, and a
/// start after each. Then nothing may be missing anywhere. Gives whether each kill struck.
async fn live(kills: &[Kill], trace: Option<PathBuf>) -> Vec<bool> {
    let _told = Told(kills);
    let sim = cluster().await;
    let started = sim.revision();
    for number in 0..OBJECTS.0 {
        write(&sim, number);
    }
    let collector = Collector::start(None).await;
    let mut daemon = Daemon::with_dir(scratch(), &sim, WATCH, "");
    let root = daemon.path("").canonicalize().unwrap();
    fs::create_dir(root.join("copies")).unwrap();
    let copies = root.join("copies/log.jsonl");
    let more = format!(
        "{}[[sink]]\nname = \"rotated\"\ntype = \"file\"\npath = {copies:?}\nrotate_size = \"2KiB\"\nkeep = 1000\ncompress = \"zstd\"\n\n\
         [[sink]]\nname = \"console\"\ntype = \"stdout\"\n",
        collector.sink("http")
    );
    daemon.configure(&daemon.config(WATCH, &more));
    let mut struck = Vec::new();
    let mut next = OBJECTS.0;
    let all = OBJECTS.0 + OBJECTS.1 + OBJECTS.2;
    for turn in 0..=kills.len() {
        let kill = kills.get(turn);
        daemon.start_with(|command| {
            under_shim(command, &root);
            if let Some(Kill { step, after }) = kill {
                command.env("DECKLOG_SHIM_KILL", format!("{}:{step}", if *after { "after" } else { "before" }));
            }
            if let Some(trace) = &trace {
                command.env("DECKLOG_SHIM_LOG", trace).env("DECKLOG_SHIM_STEPS", "1");
            }
            command
        });
        // It lives as it did in the reference, as long as it lives.
        let mut ended = until("its life", async || {
            if let Some(status) = daemon.ended() {
                return Ok(Some(status));
            }
            let newest = daemon.entries().last().map_or(0, crate::judge::Entry::rv);
            let lines = daemon.lines();
            let rotated = output(&copies, true)?.iter().filter(|byte| **byte == b'\n').count();
            let ready = daemon.told().contains("READY=1")
                && newest == sim.revision()
                && (collector.highest(), rotated, printed(&daemon)) == (lines as u64, lines, lines as u64);
            if next < all && ready {
                let more = if next < OBJECTS.0 + OBJECTS.1 { 1 } else { OBJECTS.2 };
                (next..next + more).for_each(|number| write(&sim, number));
                next += more;
                return Err("it has something to tell".to_owned());
            }
            if ready { Ok(None) } else { Err(format!("{lines} lines, {rotated} rotated: {}", daemon.last_words())) }
        })
        .await;
        if ended.is_none() {
            daemon.signal(rustix::process::Signal::TERM);
            ended = Some(daemon.end().await);
        }
        let status = ended.unwrap();
        let killed = std::os::unix::process::ExitStatusExt::signal(&status) == Some(9);
        assert!(status.success() || (killed && kill.is_some()), "{status}: {}", daemon.last_words());
        if kill.is_some() {
            struck.push(killed);
        }
        // The world goes on without it.
        while killed && next < OBJECTS.0 + OBJECTS.1 {
            write(&sim, next);
            next += 1;
        }
    }
    judge(&sim, started, &mut daemon, &collector, &copies).await;
    struck
}

/// The newest that is on its standard output.
fn printed(daemon: &Daemon) -> u64 {
    let text = daemon.printed();
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    whole.lines().last().map_or(0, |line| crate::judge::Entry::parse(line).seq)
}

async fn judge(sim: &Sim, started: u64, daemon: &mut Daemon, collector: &Collector, copies: &std::path::Path) {
    daemon.right(sim, &scope(sim, started, &["configmaps"]));
    assert!(daemon.entries().iter().all(|entry| entry.gap.is_none()), "the server forgot nothing");
    let mut reader = Reader::open(&daemon.state()).unwrap();
    let verified = reader.verify(|_, _| {}).unwrap();
    assert!(verified.problems.is_empty(), "{:?}", verified.problems);
    let entries = reader.entries_after(Seq(0), usize::MAX >> 1, usize::MAX).unwrap();
    let log: Vec<String> = entries.iter().map(|entry| String::from_utf8(entry.line.to_vec()).unwrap()).collect();
    let whole: String = log.iter().flat_map(|line| [line, "\n"]).collect();
    assert_eq!(fs::read_to_string(daemon.log()).unwrap(), whole, "the file has each entry once");
    assert_eq!(String::from_utf8(output(copies, false).unwrap()).unwrap(), whole, "so have the files that rotate");
    // At least once: in order but for repeats, with the same bytes.
    let at_least_once = |what: &str, came: Vec<(u64, String)>| {
        let mut next = 1;
        for (seq, line) in came {
            assert!(seq <= next, "{what}: entry {next} did not come before {seq}");
            assert_eq!(line, log[usize::try_from(seq).unwrap() - 1], "{what}: a repeat is the same");
            next = next.max(seq + 1);
        }
        assert_eq!(next, log.len() as u64 + 1, "{what}: the rest never came");
    };
    at_least_once("http", collector.entries());
    let seq = |line: &str| crate::judge::Entry::parse(line).seq;
    at_least_once("stdout", daemon.printed().lines().map(|line| (seq(line), line.to_owned())).collect());
}

/// How many lives go on at the same time: most of each is waiting.
const AT_ONCE: usize = 6;

/// Faults 37, 38, 60, 63, 95, 96: killed at every step of a short run, the making of the journal included, and at some step of
/// the recovery that follows.
#[test]
fn a_kill_at_any_step_loses_and_repeats_nothing() {
    let place = scratch();
    let trace = place.path().join("trace");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(live(&[], Some(trace.clone())));
    let step = |op| if let Op::Step(what) = op { Some(what) } else { None };
    let steps: Vec<String> = trace::read(&trace).into_iter().filter_map(step).collect();
    for kind in ["create", "write", "sync", "truncate", "rename", "unlink", "mkdir", "send", "receive", "print"] {
        assert!(steps.iter().any(|step| step == kind), "no step is a {kind}");
    }
    // One side of each step; the other side of it is that of its neighbour. All of them where they are asked for.
    let (all, mut dice) = (setting("DECKLOG_KILLS_BOTH", 0) > 0, Dice(setting("DECKLOG_POWER_SEED", 1) as u64));
    let mut kills = Vec::new();
    for step in 1..=steps.len() {
        for after in [false, true] {
            if all || after == (step % 2 == 0) {
                kills.push([Kill { step, after }, Kill { step: 1 + dice.roll(150), after: dice.roll(2) == 0 }]);
            }
        }
    }
    let (next, first, second) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let work = || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            while let Some(kills) = kills.get(next.fetch_add(1, Ordering::Relaxed)) {
                let struck = runtime.block_on(live(kills, None));
                first.fetch_add(usize::from(struck[0]), Ordering::Relaxed);
                second.fetch_add(usize::from(struck[1]), Ordering::Relaxed);
            }
        };
        for number in 0..AT_ONCE {
            std::thread::Builder::new().name(format!("lives {number}")).spawn_scoped(scope, work).unwrap();
        }
    });
    let (first, second) = (first.into_inner(), second.into_inner());
    println!("{} steps, {first} kills and {second} more in the recovery from them", steps.len());
    // The order of a run is not always the same, and the last steps are not always reached.
    assert!(first * 10 >= steps.len() * 9 && second * 2 >= steps.len(), "too few kills struck");
}

/// A restore that is killed at any step leaves no journal, or all of it; the next one completes it, and whoever reads what is
/// there reads all or nothing.
#[test]
fn a_restore_that_is_killed_at_any_step_is_whole_or_nothing() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let sim = cluster().await;
        for number in 0..OBJECTS.0 {
            write(&sim, number);
        }
        let place = scratch();
        let (bucket, key) = (place.path().join("bucket"), place.path().join("key"));
        fs::create_dir(&bucket).unwrap();
        fs::write(&key, "0123456789abcdef0123456789abcdef").unwrap();
        let shared = format!(
            "[redact]\nkey_file = {key:?}\n\n[[sink]]\nname = \"archive\"\ntype = \"s3\"\nurl = \"file://{}\"\n\n\
             [ha]\nlog = \"archive\"\nlease = \"default/decklog\"\n",
            bucket.display()
        );
        let mut first = Daemon::with_dir(scratch(), &sim, WATCH, &shared);
        first.start();
        first.ready().await;
        for number in OBJECTS.0..OBJECTS.0 + OBJECTS.1 {
            write(&sim, number);
        }
        first.catch_up(&sim, &scope(&sim, 0, &["configmaps"])).await;
        first.stop().await;
        let everything = ["tail", "-o", "json", "--last", "1000000"];
        let log = first.command(&everything).await.done();

        let second = Daemon::with_dir(scratch(), &sim, WATCH, &shared);
        let root = second.path("").canonicalize().unwrap();
        let restore = async |set: (&str, String)| {
            if second.state().exists() {
                fs::remove_dir_all(second.state()).unwrap();
            }
            let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_decklog"));
            command.args(["restore", "--from", "archive", "-c"]).arg(second.path("config.toml")).env_clear();
            under_shim(&mut command, &root).env(set.0, set.1).env("DECKLOG_SHIM_STEPS", "1");
            let mut command = tokio::process::Command::from(command);
            command.stdin(std::process::Stdio::null()).kill_on_drop(true).output().await.unwrap()
        };
        let trace = place.path().join("trace");
        let whole = restore(("DECKLOG_SHIM_LOG", trace.display().to_string())).await;
        assert!(whole.status.success(), "{whole:?}");
        let steps = trace::read(&trace).into_iter().filter(|op| matches!(op, Op::Step(_))).count();
        let (mut struck, mut completed) = (0, 0);
        // Most steps are writes of one loop: every third, or all of them where they are asked for.
        let (stride, mut tried) = (if setting("DECKLOG_KILLS_BOTH", 0) > 0 { 1 } else { 3 }, 0);
        for step in (1..=steps).step_by(stride) {
            tried += 1;
            let side = if step % 2 == 0 { "after" } else { "before" };
            let killed = restore(("DECKLOG_SHIM_KILL", format!("{side}:{step}"))).await;
            struck += usize::from(!killed.status.success());
            let told = second.command(&everything).await;
            if second.state().join("journal.db").exists() {
                assert_eq!((told.code, &told.out), (0, &log), "{side}:{step}");
                second.command(&["verify"]).await.done();
            } else {
                assert!(told.code != 0 && told.out.is_empty(), "{side}:{step}: {told:?}");
                second.command(&["restore", "--from", "archive"]).await.done();
                assert_eq!(second.command(&everything).await.done(), log, "{side}:{step}");
                assert!(!second.state().join("restoring").exists(), "{side}:{step}");
                completed += 1;
            }
        }
        println!("{steps} steps of a restore, {struck} kills, {completed} completed by the next one");
        assert!(struck * 10 >= tried * 9 && completed * 2 >= tried, "too few kills struck");
    });
}
