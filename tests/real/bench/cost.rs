//! What clients cost the servers: the first list of many objects, changes at a steady rate, and a restart of the client.
//!
//! The API server that is measured serves the client alone: writes come through another one, and would cost it more than who reads them.

use std::time::{Duration, Instant};

use decklog_testkit::support::journal;
use serde_json::json;

use crate::clients::{ALL, Client, Kind, MAPS, USER, daemon, fill};
use crate::decklog::Decklog;
use crate::harness::{Cluster, Version, until};
use crate::median;
use crate::table::{Table, thousands};

const OBJECTS: usize = 20_000;
/// Bytes of each.
const SIZE: usize = 4_000;
const CHANGES: usize = 3_000;
/// Changes in a second.
const RATE: u32 = 150;
/// Time in which nothing changes.
const STILL: Duration = Duration::from_secs(30);
/// Changes while the client does not run.
const MISSED: usize = 100;
/// Time in which the servers have to be quiet.
const QUIET: Duration = Duration::from_secs(3);
/// Processor time in a second that servers use by themselves, at most.
const IDLE: f64 = 0.06;
const PATIENCE: Duration = Duration::from_secs(300);
/// What is done.
const PHASES: [&str; 4] = ["first list", "changes", "quiet", "restart"];

/// What something has cost, or used by itself.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    api: f64,
    etcd: f64,
    /// MiB that the API server had resident at most.
    memory: f64,
}

/// A part of it.
struct Part {
    name: &'static str,
    of: fn(&Cost) -> f64,
    digits: usize,
}

const PARTS: [Part; 3] = [
    Part { name: "kube-apiserver, processor seconds", of: |cost| cost.api, digits: 2 },
    Part { name: "etcd, processor seconds", of: |cost| cost.etcd, digits: 2 },
    Part { name: "kube-apiserver, MiB at most", of: |cost| cost.memory, digits: 0 },
];

/// A control plane with many objects.
async fn filled(version: Version) -> Cluster {
    let cluster = Cluster::start_measured(version).await;
    cluster.start_second(&[USER]).await;
    fill(&cluster, OBJECTS, SIZE).await;
    eprintln!("{version:?}: {OBJECTS} objects");
    cluster
}

/// Measures what an informer does not do: the comparison of the log with what the API server has, which is due every ten minutes.
pub async fn audit(version: Version) -> Table {
    let cluster = filled(version).await;
    let mut daemon = daemon(&cluster, 0);
    daemon.start();
    daemon.ready().await;
    daemon.stop().await;
    daemon.audits_every("60s");
    daemon.start();
    daemon.ready().await;
    let pages = || {
        let asked = cluster.audit(USER);
        asked.iter().filter(|event| event["requestURI"].as_str().unwrap().contains("continue=")).count()
    };
    let mut meter = Meter::begin(&cluster).await;
    let (before, audits) = (pages(), audits_of(&daemon));
    until("an audit to begin", PATIENCE, async || {
        daemon.must_run();
        if pages() > before {
            return Ok(());
        }
        meter.again(&cluster);
        Err("there is none".to_owned())
    })
    .await;
    // It ends with single objects, which are read slowly.
    until("an audit to end", PATIENCE, async || {
        daemon.must_run();
        let have = audits_of(&daemon);
        if have > audits { Ok(()) } else { Err(format!("there were {have}")) }
    })
    .await;
    assert!(pages() - before >= OBJECTS / 500 - 1, "an audit reads all pages");
    let cost = meter.end(&cluster).await;
    daemon.stop().await;
    let mut table = Table::new("Audit", &["what", "of", "decklog"]);
    for Part { name, of, digits } in PARTS {
        table.cells(vec![
            format!("audit of {} objects", thousands(OBJECTS)),
            name.to_owned(),
            format!("{:.digits$}", of(&cost)),
        ]);
    }
    table
}

/// The number of audits that the journal of a daemon has of its source.
fn audits_of(daemon: &Decklog) -> u64 {
    let status = journal::status(&daemon.state()).unwrap();
    status["sources"][0]["audit"]["count"].as_u64().unwrap_or(0)
}

/// Measures all clients so many times.
pub async fn measure(version: Version, rounds: usize) -> Table {
    let cluster = filled(version).await;
    let mut found: Vec<(Kind, [Cost; PHASES.len()])> = Vec::new();
    for round in 0..rounds {
        for (n, kind) in ALL.into_iter().enumerate() {
            let costs = client(&cluster, kind, round * ALL.len() + n).await;
            found.push((kind, costs));
        }
    }
    table(version, &found)
}

fn table(version: Version, found: &[(Kind, [Cost; PHASES.len()])]) -> Table {
    let heading = match version {
        Version::V1_33 => "Kubernetes 1.33",
        Version::V1_36 => "Kubernetes 1.36",
    };
    let columns = &["what", "of", "decklog", "informer", "`kubectl get --watch`", "decklog to informer"];
    let mut table = Table::new(heading, columns);
    for (phase, name) in PHASES.into_iter().enumerate() {
        for Part { name: part, of, digits } in PARTS {
            let middle = |kind: Kind| {
                median(found.iter().filter(|(one, _)| *one == kind).map(|(_, costs)| of(&costs[phase])).collect())
            };
            // Changes and quiet cost something without a client as well. Its memory is what it is.
            let nobody = if matches!(phase, 1 | 2) && digits > 0 { middle(Kind::Nobody) } else { 0.0 };
            let [ours, informer, kubectl] =
                [Kind::Decklog, Kind::Informer, Kind::Kubectl].map(|kind| (middle(kind) - nobody).max(0.0));
            table.cells(vec![
                match phase {
                    1 => format!("{} {name}", thousands(CHANGES)),
                    2 => format!("{} s of {name}", STILL.as_secs()),
                    _ => name.to_owned(),
                },
                part.to_owned(),
                format!("{ours:.digits$}"),
                format!("{informer:.digits$}"),
                format!("{kubectl:.digits$}"),
                if informer > 0.0 { format!("{:.2}x", ours / informer) } else { String::new() },
            ]);
        }
    }
    table
}

/// Measures a client that the API server has not seen.
async fn client(cluster: &Cluster, kind: Kind, number: usize) -> [Cost; PHASES.len()] {
    cluster.kill_second();
    cluster.start_second_again().await;
    let mut client = Client::new(cluster, kind, number);
    let asked = |cluster: &Cluster| cluster.audit(USER).len();

    let meter = Meter::begin(cluster).await;
    client.start(cluster);
    client.reach(OBJECTS).await;
    let first = meter.end(cluster).await;

    let meter = Meter::begin(cluster).await;
    let lines = client.lines();
    change(cluster, CHANGES, RATE).await;
    client.reach(lines + CHANGES).await;
    let steady = meter.end(cluster).await;

    // What a client asks meanwhile is not to be taken for what the servers use by themselves.
    let meter = Meter { idle: [0.0; 2], ..Meter::begin(cluster).await };
    until("the time of quiet to pass", PATIENCE, async || {
        let elapsed = meter.begun.elapsed();
        if elapsed >= STILL { Ok(()) } else { Err(format!("{elapsed:?}")) }
    })
    .await;
    let still = meter.now(cluster);

    let all = client.lines();
    client.stop().await;
    change(cluster, MISSED, RATE).await;
    let meter = Meter::begin(cluster).await;
    client.start(cluster);
    client.reach(if kind == Kind::Decklog { all + MISSED } else { OBJECTS }).await;
    let again = meter.end(cluster).await;
    client.stop().await;
    eprintln!("{kind:?}: {first:.2?} {steady:.2?} {still:.2?} {again:.2?}; {} requests so far", asked(cluster));
    [first, steady, still, again]
}

/// Changes so many objects, so many in a second.
async fn change(cluster: &Cluster, changes: usize, rate: u32) {
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / rate);
    for n in 0..changes {
        ticks.tick().await;
        cluster
            .patch(&format!("{MAPS}/m{}", n * 7 % OBJECTS), &json!({"data": {"n": fastrand::u64(..).to_string()}}))
            .await;
    }
}

/// What the servers use from here on, less what they use while nothing happens.
struct Meter {
    begun: Instant,
    api: Duration,
    etcd: Duration,
    /// Processor time in a second of quiet.
    idle: [f64; 2],
}

impl Meter {
    async fn begin(cluster: &Cluster) -> Self {
        cluster.collect_garbage().await;
        let idle = quiet(cluster).await;
        let usage = cluster.usage();
        Self { begun: Instant::now(), api: usage.api, etcd: usage.etcd, idle }
    }

    /// Begins later.
    fn again(&mut self, cluster: &Cluster) {
        let usage = cluster.usage();
        (self.begun, self.api, self.etcd) = (Instant::now(), usage.api, usage.etcd);
    }

    /// Waits until they are quiet again: what a client leaves behind is of its cost.
    async fn end(self, cluster: &Cluster) -> Cost {
        quiet(cluster).await;
        self.now(cluster)
    }

    fn now(&self, cluster: &Cluster) -> Cost {
        let (usage, seconds) = (cluster.usage(), self.begun.elapsed().as_secs_f64());
        let used = |now: Duration, then: Duration, idle: f64| (now - then).as_secs_f64() - idle * seconds;
        Cost {
            api: used(usage.api, self.api, self.idle[0]),
            etcd: used(usage.etcd, self.etcd, self.idle[1]),
            memory: cluster.peak() as f64 / f64::from(1 << 20),
        }
    }
}

/// Waits until the servers are quiet. Returns the processor time that they use in a second then.
async fn quiet(cluster: &Cluster) -> [f64; 2] {
    let mut last = (Instant::now(), cluster.usage());
    until("quiet servers", PATIENCE, async || {
        if last.0.elapsed() < QUIET {
            return Err("not yet".to_owned());
        }
        let (begun, before) = std::mem::replace(&mut last, (Instant::now(), cluster.usage()));
        let seconds = begun.elapsed().as_secs_f64();
        let used = [last.1.api - before.api, last.1.etcd - before.etcd].map(|used| used.as_secs_f64() / seconds);
        if used.iter().all(|used| *used < IDLE) { Ok(used) } else { Err(format!("{used:?}")) }
    })
    .await
}
