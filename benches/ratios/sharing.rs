//! What a shared log costs whoever leads: a burst of changes into a real engine, with `[ha]` and without, and what a standby takes
//! beside it.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use decklog::journal::Reader;
use decklog::sim::{Sim, objects};
use rustix::process::{Pid, Signal, kill_process};
use tokio::runtime::Runtime;

use super::median;
use super::process::{Daemon, peak_mib};
use super::table::Table;
use super::throughput::{nats, postgres, s3};

/// Pods of 8 KB that change, and how many changes a burst has.
const PODS: usize = 1_000;
const CHANGES: usize = 20_000;
/// How often each way is measured, after once for nothing.
const ROUNDS: usize = 3;
/// Single changes whose way is timed.
const SINGLE: usize = 40;
const PATIENCE: Duration = Duration::from_secs(600);

pub(super) fn compare(table: &mut Table) {
    let runtime = Runtime::new().expect("a runtime");
    let server = runtime.block_on(postgres::start::Postgres::start());
    let at_postgres = |run: &str| {
        format!(
            "type = \"postgres\"\nurl = {:?}\nsslmode = \"disable\"\npassword_file = {:?}\nschema = {run:?}\n",
            server.url(server.server.port()),
            server.dir.path().join("password"),
        )
    };
    measure(table, &runtime, "postgres", &at_postgres);
    let bucket = runtime.block_on(s3::start::S3::start());
    let credentials = bucket.dir.path().join("aws");
    let keys =
        format!("[default]\naws_access_key_id = {}\naws_secret_access_key = {}\n", s3::start::KEY, s3::start::SECRET);
    fs::write(&credentials, keys).expect("space");
    let at_s3 = |run: &str| {
        format!(
            "type = \"s3\"\nurl = \"s3://bucket-{run}/log\"\nendpoint = \"http://127.0.0.1:{}\"\ncredentials_file = {credentials:?}\nsegment_age = \"50ms\"\n",
            bucket.server.port(),
        )
    };
    measure(table, &runtime, "s3", &at_s3);
    let folder = tempfile::tempdir().expect("a directory");
    let at_folder = |run: &str| {
        format!("type = \"s3\"\nurl = \"file://{}/{run}\"\nsegment_age = \"50ms\"\n", folder.path().display())
    };
    measure(table, &runtime, "file:// folder", &at_folder);
    let server = runtime.block_on(nats::start::Nats::start(nats::start::NEW));
    let at_nats = |run: &str| {
        format!(
            "type = \"nats\"\naddresses = [\"nats://127.0.0.1:{}\"]\nstream = {run:?}\nsubject = \"{run}.{{resource}}.{{name}}\"\n",
            server.server.port(),
        )
    };
    measure(table, &runtime, "nats", &at_nats);
}

/// How an engine is used.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// It is a sink, and nothing else.
    Alone,
    /// It keeps the shared log as well.
    Leads,
    /// And a standby follows it.
    Followed,
}

/// What came of a run.
struct Run {
    /// From the burst until the sink has all of it.
    seconds: f64,
    /// From one change until the sink has it, in the middle.
    single: f64,
    /// In MiB, of the leader and of the standby.
    peaks: (f64, f64),
}

fn measure(table: &mut Table, runtime: &Runtime, what: &str, sink: &dyn Fn(&str) -> String) {
    let ways = [Way::Alone, Way::Leads, Way::Followed];
    let mut runs: [Vec<Run>; 3] = Default::default();
    for round in 0..=ROUNDS {
        let mut turn = [0, 1, 2];
        turn.rotate_left(round % 3);
        for way in turn {
            let run = format!("{}{round}{way}", &what[..2]);
            let run = burst(runtime, ways[way], &sink(&run));
            if round > 0 {
                runs[way].push(run);
            }
        }
    }
    let middle = |way: usize, of: fn(&Run) -> f64| median(runs[way].iter().map(of).collect());
    let rate = |way: usize| CHANGES as f64 / middle(way, |run| run.seconds);
    table.row(
        &format!("{what} with the shared log, changes of 8 KB in a second"),
        format!("{:.0}; with a standby on the same machine {:.0}", rate(1), rate(2)),
        &format!("the same sink without it: {:.0}", rate(0)),
        format!("{:.2}; {:.2}", rate(1) / rate(0), rate(2) / rate(0)),
        "0.8",
    );
    let single = |way: usize| middle(way, |run| run.single) * 1000.0;
    table.row(
        &format!("{what} with the shared log, from a change to the sink"),
        format!("{:.1} ms", single(1)),
        &format!("the same sink without it: {:.1} ms", single(0)),
        format!("{:.2}x", single(1) / single(0)),
        "",
    );
    let (leader, standby) = (middle(2, |run| run.peaks.0), middle(2, |run| run.peaks.1));
    table.row(
        &format!("memory of a standby, {what}"),
        format!("{standby:.0} MiB resident at most"),
        &format!("its leader: {leader:.0} MiB"),
        format!("{:.2}x", standby / leader),
        "1x",
    );
}

fn burst(runtime: &Runtime, way: Way, sink: &str) -> Run {
    let dir = tempfile::tempdir().expect("a directory");
    let kubeconfig = dir.path().join("kubeconfig");
    let sim = runtime.block_on(Sim::start()).expect("a port");
    sim.bulk_pods(PODS).expect("Pods are served");
    sim.write_kubeconfig(&kubeconfig).expect("space");
    let key = dir.path().join("key");
    fs::write(&key, "0123456789abcdef0123456789abcdef").expect("space");
    let ha = match way {
        Way::Alone => "",
        Way::Leads | Way::Followed => "[ha]\nlog = \"archive\"\nlease = \"default/decklog\"\n",
    };
    let rest = format!("[redact]\nkey_file = {key:?}\n[[sink]]\nname = \"archive\"\n{sink}{ha}");
    let start = |name: &str| {
        let home = dir.path().join(name);
        fs::create_dir(&home).expect("space");
        Daemon::watching(&home, &kubeconfig, "resources = [\"pods\", \"configmaps\"]", &rest)
    };
    // What it needs is made first, and a sink that cannot look for it waits.
    let leader = start("leader");
    let home = dir.path().join("leader");
    // One that has hardly begun is ended by a SIGHUP.
    follows(&home, 0);
    let begun = Instant::now();
    while !Command::new(env!("CARGO_BIN_EXE_decklog"))
        .args(["sink", "init", "archive", "-c"])
        .arg(home.join("config.toml"))
        .output()
        .expect("decklog")
        .status
        .success()
    {
        assert!(begun.elapsed() < PATIENCE, "the sink is not made");
    }
    // It has found it missing, and waits to be told.
    let pid = i32::try_from(leader.pid()).ok().and_then(Pid::from_raw).expect("a child has a pid");
    kill_process(pid, Signal::HUP).expect("it runs");
    delivered(&home, PODS);
    let standby = (way == Way::Followed).then(|| start("standby"));
    if standby.is_some() {
        follows(&dir.path().join("standby"), PODS);
    }
    runtime.block_on(sim.wait_for_watches("pods", 1 + usize::from(standby.is_some()))).expect("it watches");
    let begun = Instant::now();
    sim.touch_bulk(CHANGES);
    delivered(&home, PODS + CHANGES);
    let seconds = begun.elapsed().as_secs_f64();
    let mut singles = Vec::new();
    for number in 0..SINGLE {
        let written = Instant::now();
        let map = objects::config_map("default", &format!("m{number}"), "1");
        sim.create("configmaps", map).expect("it is new");
        delivered(&home, PODS + CHANGES + number + 1);
        singles.push(written.elapsed().as_secs_f64());
    }
    if standby.is_some() {
        follows(&dir.path().join("standby"), PODS + CHANGES + SINGLE);
    }
    let peak = |daemon: &Daemon| peak_mib(daemon.pid());
    Run { seconds, single: median(singles), peaks: (peak(&leader), standby.as_ref().map_or(0.0, peak)) }
}

/// Waits until the sink has so many entries, by the journal of who delivers.
fn delivered(home: &Path, entries: usize) {
    waits(home, entries, &|reader| Some(reader.sinks().ok()?.first()?.cursor.0));
}

/// Waits until the journal has so many entries.
fn follows(home: &Path, entries: usize) {
    waits(home, entries, &|reader| Some(reader.head().ok()?.0));
}

fn waits(home: &Path, entries: usize, at: &dyn Fn(&Reader) -> Option<u64>) {
    let begun = Instant::now();
    let mut reader = None;
    loop {
        if reader.is_none() {
            reader = Reader::open(&home.join("state")).ok();
        }
        if reader.as_ref().and_then(at).is_some_and(|at| at >= entries as u64) {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "decklog does not get there");
        std::thread::sleep(Duration::from_micros(500));
    }
}
