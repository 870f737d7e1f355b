//! The watch path beside 10,000 audit events a second, and the memory of a daemon that reads them for minutes.
//!
//! The events are those of a cluster at work at `Metadata`: of ten, eight are reads of kubelets and controllers and writes of Leases,
//! which no source watches; one is a write of a Pod's status, which the join keeps for a while; one is of the Pods that change. Who
//! writes them is a process of its own. The baseline has the same one, whose file nobody reads, so that what the writing costs is on
//! both sides. Rounds come in pairs right behind each other, in turns one and the other first, and the ratio is the middle one of those
//! of the pairs: what else the machine does meanwhile is on both sides, too.

use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use decklog::journal::Reader;
use decklog::sim::Sim;
use jiff::Timestamp;
use tokio::runtime::Runtime;

use super::median;
use super::process::{Daemon, file_sink, resident_mib, seconds_of, spawn};
use super::table::{Table, thousands};

const RATE: usize = 10_000;
const PODS: usize = 2_000;
/// How many pairs of bursts are compared.
const PAIRS: usize = 7;
/// How many changes come at once.
const BURST: usize = 40_000;
/// How many changes come in a second while memory is watched.
const CHANGES: usize = 500;
/// Seconds after which memory is looked at first: the join keeps a version for 130 s, so that it grows until then.
const FIRST: usize = 150;
/// Seconds after which it is looked at again.
const LONG: usize = 240;
/// Bytes at the end of the sink's file that are looked at: more than come between two looks.
const END: u64 = 4 << 20;
const PATIENCE: Duration = Duration::from_secs(300);

pub(super) fn compare(table: &mut Table) {
    let runtime = Runtime::new().expect("a runtime");
    let (mut with, mut without, mut events) = (Vec::new(), Vec::new(), Vec::new());
    for pair in 0..PAIRS {
        for is_read in [pair % 2 == 0, pair % 2 == 1] {
            let (changes, written) = burst(&runtime, is_read);
            if is_read {
                with.push(changes);
            } else {
                without.push(changes);
            }
            events.push(written);
        }
    }
    let ratios = with.iter().zip(&without).map(|(with, without)| with / without).collect();
    let (with, without, events) = (median(with), median(without), median(events));
    table.row(
        &format!("changes in a second to a file, beside {} audit events a second", thousands(RATE)),
        format!("{with:.0}, beside {events:.0} that were written"),
        &format!("whose file nobody reads: {without:.0}"),
        format!("{:.2}", median(ratios)),
        "0.9",
    );
    memory(table, &runtime);
}

/// A daemon, a cluster of Pods, and somebody who writes an audit log.
struct Stage {
    sim: Sim,
    daemon: Daemon,
    noise: Noise,
    dir: tempfile::TempDir,
}

impl Stage {
    fn begin(runtime: &Runtime, is_read: bool) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let kubeconfig = dir.path().join("kubeconfig");
        let sim = runtime.block_on(Sim::start()).expect("a port");
        sim.bulk_pods(PODS).expect("Pods are served");
        sim.write_kubeconfig(&kubeconfig).expect("space");
        let file = dir.path().join("audit.log");
        fs::write(&file, "").expect("space");
        let section = if is_read { format!("[[audit_log]]\nfile = {file:?}\n") } else { String::new() };
        let daemon = Daemon::with(dir.path(), &kubeconfig, "pods", &format!("{}{section}", file_sink(dir.path())));
        runtime.block_on(sim.wait_for_watches("pods", 1)).expect("it watches");
        let stage = Self { sim, daemon, noise: Noise::begin(&file), dir };
        stage.delivered(PODS);
        stage
    }

    /// Waits until the sink has so many entries.
    fn delivered(&self, entries: usize) {
        let begun = Instant::now();
        let has = || {
            let reader = Reader::open(&self.dir.path().join("state")).ok()?;
            let cursor = reader.sinks().ok()?.first()?.cursor.0;
            (cursor >= entries as u64).then_some(())
        };
        while has().is_none() {
            assert!(begun.elapsed() < PATIENCE, "decklog does not get there");
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Stage {
    /// Waits until the change of this revision is in the file. Entries of type ACTOR are in it too, so that its seq is not known.
    fn written(&self, revision: u64) {
        let (begun, path) = (Instant::now(), self.dir.path().join("events.jsonl"));
        let wanted = format!("\"resourceVersion\":\"{revision}\"");
        let has = || {
            let mut file = File::open(&path)?;
            let length = file.metadata()?.len();
            file.seek(SeekFrom::Start(length.saturating_sub(END)))?;
            let mut end = Vec::new();
            file.take(END).read_to_end(&mut end)?;
            std::io::Result::Ok(String::from_utf8_lossy(&end).contains(&wanted))
        };
        while !has().expect("the sink's file") {
            assert!(begun.elapsed() < PATIENCE, "decklog does not get there");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// How many changes reach the file in a second, when they come all at once, and how many events are written in a second meanwhile.
fn burst(runtime: &Runtime, is_read: bool) -> (f64, f64) {
    let stage = Stage::begin(runtime, is_read);
    let (begun, before) = (Instant::now(), stage.noise.written());
    stage.sim.touch_bulk(BURST);
    stage.written(stage.sim.revision());
    let (took, written) = (begun.elapsed().as_secs_f64(), stage.noise.written() - before);
    eprintln!("{is_read}: {took:.2} s");
    (BURST as f64 / took, written as f64 / took)
}

/// The memory once the join keeps as much as it ever does, and a while later, under the same rate of changes.
fn memory(table: &mut Table, runtime: &Runtime) {
    let stage = Stage::begin(runtime, true);
    let mut early = 0.0;
    let begun = Instant::now();
    for second in 0..LONG {
        stage.sim.touch_bulk(CHANGES);
        let next = begun + Duration::from_secs(second as u64 + 1);
        thread::sleep(next.saturating_duration_since(Instant::now()));
        if second + 1 == FIRST {
            early = resident_mib(stage.daemon.pid());
        }
    }
    let late = resident_mib(stage.daemon.pid());
    let load = seconds_of(stage.daemon.pid()) / begun.elapsed().as_secs_f64();
    let written = thousands(stage.noise.written());
    table.row(
        &format!("memory beside {RATE} audit events a second, after {LONG} s"),
        format!("{late:.0} MiB, with {:.0} % of a processor and {written} events", load * 100.0),
        &format!("after {FIRST} s: {early:.0} MiB"),
        format!("{:.2}", late / early),
        "flat",
    );
}

/// A process that writes an audit log until this is dropped. As the API server does, it begins another file after 100 MB.
struct Noise {
    child: Child,
    counted: PathBuf,
}

impl Noise {
    fn begin(file: &Path) -> Self {
        let child = spawn(&["audit-noise", file.to_str().expect("a plain path")]);
        Self { child, counted: counted(file) }
    }

    /// How many events were written.
    fn written(&self) -> usize {
        fs::read_to_string(&self.counted).ok().and_then(|text| text.parse().ok()).unwrap_or(0)
    }
}

impl Drop for Noise {
    fn drop(&mut self) {
        self.child.kill().and_then(|()| self.child.wait().map(drop)).expect("it can be killed");
    }
}

/// The file with the number of events, beside theirs.
fn counted(file: &Path) -> PathBuf {
    file.with_extension("counted")
}

/// The child: it writes an audit log until it is killed.
pub(super) fn noise(path: &Path) {
    const TENTH: usize = RATE / 10;
    let open = |path: &Path| OpenOptions::new().create(true).append(true).open(path).expect("space");
    let (mut file, mut size, mut written, mut files) = (open(path), 0, 0, 0);
    let begun = Instant::now();
    let mut text = String::new();
    loop {
        text.clear();
        let now = Timestamp::now();
        for number in written..written + TENTH {
            event(&mut text, number, now);
        }
        File::write_all(&mut file, text.as_bytes()).expect("space");
        (written, size) = (written + TENTH, size + text.len());
        let new = path.with_extension("new");
        fs::write(&new, written.to_string()).and_then(|()| fs::rename(&new, counted(path))).expect("space");
        if size > 100_000_000 {
            files += 1;
            fs::rename(path, path.with_file_name(format!("audit-2026-01-01T00-00-00.{files:03}.log"))).expect("a name");
            (file, size) = (open(path), 0);
        }
        let next = begun + Duration::from_millis(100) * u32::try_from(written / TENTH).expect("minutes");
        thread::sleep(next.saturating_duration_since(Instant::now()));
    }
}

/// Appends the event of a request at the level `Metadata`, which took three milliseconds.
fn event(out: &mut String, number: usize, now: Timestamp) {
    let pod = format!("bulk-{:07}", number / 10 % PODS);
    let received = now - jiff::SignedDuration::from_millis(3);
    let (verb, user, path, reference) = match number % 10 {
        0 => ("patch", "system:node:worker-3", format!("bulk/pods/{pod}/status"), format!(r#""resource":"pods","namespace":"bulk","name":"{pod}","apiVersion":"v1","subresource":"status""#)),
        1 => ("patch", "alice", format!("bulk/pods/{pod}"), format!(r#""resource":"pods","namespace":"bulk","name":"{pod}","apiVersion":"v1""#)),
        2 | 3 => ("update", "system:node:worker-7", "kube-node-lease/leases/worker-7".to_owned(), r#""resource":"leases","namespace":"kube-node-lease","name":"worker-7","apiGroup":"coordination.k8s.io","apiVersion":"v1""#.to_owned()),
        4 => ("watch", "system:kube-controller-manager", "shop/secrets".to_owned(), r#""resource":"secrets","namespace":"shop","apiVersion":"v1""#.to_owned()),
        _ => ("get", "system:serviceaccount:shop:operator", "shop/configmaps/settings".to_owned(), r#""resource":"configmaps","namespace":"shop","name":"settings","apiVersion":"v1""#.to_owned()),
    };
    writeln!(
        out,
        r#"{{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","auditID":"00000000-0000-4000-8000-{number:012}","stage":"ResponseComplete","requestURI":"/api/v1/namespaces/{path}","verb":"{verb}","user":{{"username":"{user}","groups":["system:authenticated"]}},"sourceIPs":["10.0.0.7"],"userAgent":"kubelet/v1.36.0 (linux/amd64) kubernetes/3f9d1aa","objectRef":{{{reference}}},"responseStatus":{{"metadata":{{}},"code":200}},"requestReceivedTimestamp":"{received}","stageTimestamp":"{now}","annotations":{{"authorization.k8s.io/decision":"allow","authorization.k8s.io/reason":"RBAC: allowed by ClusterRoleBinding of the Group"}}}}"#
    )
    .expect("a string takes it");
}
