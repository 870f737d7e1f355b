//! Fifty clusters in one process, of which one is dead, one slow and one wrong: what that does to the others' lag, and what
//! each takes of memory.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use decklog::sim::faults::{Act, Fault, On};
use decklog::sim::{Sim, objects};
use tokio::runtime::Runtime;

use super::process::{peak_mib, resident_mib};
use super::table::Table;

const MANY: usize = 50;
/// Objects of each cluster at its beginning, of 8 KB; of a quiet one.
const PODS: usize = 500;
const FEW_PODS: usize = 5;
/// Changes of each cluster whose lag is measured, one cluster after the other.
const ROUNDS: usize = 40;
const PATIENCE: Duration = Duration::from_secs(300);

pub(super) fn compare(table: &mut Table) {
    let runtime = Runtime::new().expect("a runtime");
    let one = Run::measure(&runtime, 1, false, PODS);
    let well = Run::measure(&runtime, MANY, false, PODS);
    let troubled = Run::measure(&runtime, MANY, true, PODS);
    for (what, run, than, baseline, target) in [
        // Each of them has the load that the one has.
        ("lag of a change to its file, 50 clusters in one process", &well, &one, "one cluster", ""),
        ("the same, of which one is dead, one slow and one wrong", &troubled, &well, "50 that are well", "1.2x"),
    ] {
        table.row(
            what,
            format!("median {} ms, p95 {} ms", millis(run.lag(50)), millis(run.lag(95))),
            &format!("{baseline}: {} ms, {}", millis(than.lag(50)), millis(than.lag(95))),
            format!("{:.1}x", run.lag(50).as_secs_f64() / than.lag(50).as_secs_f64()),
            target,
        );
    }
    let quiet = [1, MANY].map(|clusters| Run::measure(&runtime, clusters, false, FEW_PODS));
    for (what, one, many, target) in [
        ("memory, 50 clusters of 500 Pods of 8 KB in one process", &one, &well, "6 MiB for each"),
        ("memory, 50 clusters of 5 Pods in one process", &quiet[0], &quiet[1], "2 MiB for each"),
    ] {
        let each = (many.resident - one.resident) / (MANY - 1) as f64;
        table.row(
            what,
            format!(
                "{:.0} MiB resident, {:.0} MiB at most, {each:.1} MiB for each cluster more",
                many.resident, many.peak
            ),
            &format!("one cluster: {:.0} MiB, {:.0} MiB at most", one.resident, one.peak),
            format!("{:.2}x of 50 processes", many.resident / (one.resident * MANY as f64)),
            target,
        );
    }
}

fn millis(time: Duration) -> String {
    format!("{:.1}", time.as_secs_f64() * 1000.0)
}

/// What one process of several clusters came to.
struct Run {
    lags: Vec<Duration>,
    /// In MiB.
    resident: f64,
    peak: f64,
}

/// Killed when dropped.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        self.0.kill().and_then(|()| self.0.wait().map(drop)).expect("the daemon can be killed");
    }
}

impl Run {
    fn measure(runtime: &Runtime, clusters: usize, troubled: bool, pods: usize) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        fs::create_dir(dir.path().join("clusters")).expect("space");
        let sims: Vec<Sim> = (0..clusters).map(|_| runtime.block_on(Sim::start()).expect("a port")).collect();
        for (number, sim) in sims.iter().enumerate() {
            sim.bulk_pods(pods).expect("Pods are served");
            let kubeconfig = dir.path().join(format!("{number}.kubeconfig"));
            sim.write_kubeconfig(&kubeconfig).expect("space");
            configure(dir.path(), number, &kubeconfig);
        }
        // The last three of them.
        let good = if troubled { clusters - 3 } else { clusters };
        if troubled {
            runtime.block_on(sims[good].stop_listening());
            sims[good + 1].fault(Fault::new(On::any(), Act::Delay(Duration::from_secs(2))).always());
            fs::write(dir.path().join(format!("clusters/{}.toml", good + 2)), "[lug]\n").expect("space");
        }
        let child = Command::new(env!("CARGO_BIN_EXE_decklog"))
            .args(["run", "--config-dir"])
            .arg(dir.path().join("clusters"))
            .current_dir(dir.path())
            .spawn()
            .expect("decklog");
        let process = Process(child);
        let begun = Instant::now();
        for (number, sim) in sims.iter().enumerate().take(good) {
            while size(&log(dir.path(), number)) < (pods * 4000) as u64 || lines(&log(dir.path(), number)) < pods {
                assert!(begun.elapsed() < PATIENCE, "the cluster {number} does not get there");
                std::thread::sleep(Duration::from_millis(50));
            }
            runtime.block_on(sim.wait_for_watches("configmaps", 1)).expect("it watches");
        }
        let mut lags = Vec::new();
        for round in 0..ROUNDS {
            for number in (0..good).step_by((good / 10).max(1)) {
                let before = size(&log(dir.path(), number));
                // A load on all of them, also on those that are not measured now.
                for sim in &sims {
                    sim.touch_bulk(1);
                }
                until(&log(dir.path(), number), before + 1);
                let before = size(&log(dir.path(), number));
                let written = Instant::now();
                let name = format!("m{round}");
                sims[number].create("configmaps", objects::config_map("default", &name, "1")).expect("it is new");
                until(&log(dir.path(), number), before + 1);
                lags.push(written.elapsed());
            }
        }
        lags.sort();
        let pid = process.0.id();
        Self { lags, resident: resident_mib(pid), peak: peak_mib(pid) }
    }

    /// So many in a hundred were not slower.
    fn lag(&self, percent: usize) -> Duration {
        self.lags[(self.lags.len() - 1) * percent / 100]
    }
}

fn configure(dir: &Path, number: usize, kubeconfig: &Path) {
    let text = format!(
        "[cluster]\nkubeconfig = {kubeconfig:?}\n[[watch]]\nresources = [\"pods\", \"configmaps\"]\n[log]\nlevel = \"off\"\n\
         [[sink]]\nname = \"file\"\ntype = \"file\"\npath = {:?}\n",
        log(dir, number)
    );
    fs::write(dir.join(format!("clusters/{number}.toml")), text).expect("space");
}

fn log(dir: &Path, number: usize) -> PathBuf {
    dir.join(format!("{number}.jsonl"))
}

fn size(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |meta| meta.len())
}

fn lines(path: &Path) -> usize {
    fs::read(path).map_or(0, |bytes| bytes.iter().filter(|byte| **byte == b'\n').count())
}

/// Waits until the file has so many bytes.
fn until(path: &Path, bytes: u64) {
    let begun = Instant::now();
    while size(path) < bytes {
        assert!(begun.elapsed() < PATIENCE, "decklog does not get there");
        std::thread::sleep(Duration::from_micros(100));
    }
}
