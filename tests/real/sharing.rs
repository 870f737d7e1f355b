//! Two daemons with one log at a real API server and a real engine: stopped beyond the Lease, killed at moments that the dice choose,
//! held up while the API server forgets; and machines that build the log again from nothing.
//!
//! `DECKLOG_TEST_KILLS` has more kills than the few that there is time for, and `DECKLOG_TEST_HELD` holds up for more seconds.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use decklog_testkit::support::journal;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::decklog::Decklog;
use crate::harness::{Cluster, LIMIT, Parts, Version, until};
use crate::judge::Scope;
use crate::load::{self, Dice};
use crate::postgres::Postgres;
use crate::s3::{self, S3};

/// What is watched: what the load moves, and what hardly moves.
const WATCHED: [&str; 5] = ["configmaps", "secrets", "namespaces", "services", "leases.coordination.k8s.io"];
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// How long a Lease lasts that nobody renews. Who leads after a clean end has not waited for that, and who leads after a kill has not
/// waited for it twice; how long each took is printed.
const LEASE: Duration = Duration::from_secs(15);

/// The number that a variable has, or this one.
fn number(name: &str, usual: usize) -> usize {
    std::env::var(name).map_or(usual, |text| text.parse().unwrap())
}

/// What keeps the log.
pub enum Engine {
    Postgres(Postgres),
    S3(S3),
}

impl Engine {
    pub async fn postgres() -> Self {
        Self::Postgres(Postgres::start().await)
    }

    pub async fn s3() -> Self {
        Self::S3(S3::start().await)
    }

    /// The keys of the sink.
    fn sink(&self) -> String {
        match self {
            Self::Postgres(server) => format!(
                "type = \"postgres\"\nurl = {:?}\nsslmode = \"disable\"\npassword_file = {:?}\n",
                server.url(server.server.port()),
                server.dir.path().join("password"),
            ),
            Self::S3(server) => {
                let credentials = server.dir.path().join("credentials");
                let keys =
                    format!("[default]\naws_access_key_id = {}\naws_secret_access_key = {}\n", s3::KEY, s3::SECRET);
                fs::write(&credentials, keys).unwrap();
                format!(
                    "type = \"s3\"\nurl = \"s3://audit/log\"\nendpoint = \"http://127.0.0.1:{}\"\ncredentials_file = {credentials:?}\nsegment_age = \"200ms\"\n",
                    server.server.port(),
                )
            }
        }
    }

    fn kill(&mut self) {
        match self {
            Self::Postgres(server) => server.server.kill(),
            Self::S3(server) => server.server.kill(),
        }
    }

    async fn restart(&mut self) {
        match self {
            Self::Postgres(server) => {
                server.server.restart().await;
                server.ready().await;
            }
            Self::S3(server) => server.server.restart().await,
        }
    }

    /// What whoever consumes from it has, in the order in which it came.
    async fn consumed(&self) -> Vec<String> {
        match self {
            Self::Postgres(server) => {
                let text = "SELECT line FROM decklog.entries ORDER BY xmin::text::bigint, seq";
                server.sql("audit", text).await.unwrap()
            }
            Self::S3(server) => {
                let mut segments = Vec::new();
                segments_below(&server.dir.path().join("root/audit"), &mut segments);
                segments.sort_by_key(|path| path.file_name().unwrap().to_owned());
                let text = |path: &PathBuf| zstd::decode_all(&fs::read(path).unwrap()[..]).unwrap();
                let lines = |text: Vec<u8>| String::from_utf8(text).unwrap().lines().map(str::to_owned).collect();
                segments.iter().flat_map(|path| -> Vec<String> { lines(text(path)) }).collect()
            }
        }
    }
}

fn segments_below(dir: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            segments_below(&path, into);
        } else if path.to_str().is_some_and(|name| name.ends_with(".jsonl.zst")) {
            into.push(path);
        }
    }
}

/// A daemon with a state directory of its own, which reads the cluster as this user.
fn daemon(cluster: &Cluster, engine: &Engine, name: &str, user: &str) -> Decklog {
    let key = cluster.path("hmac");
    fs::write(&key, "0123456789abcdef0123456789abcdef").unwrap();
    Decklog::configured(cluster, name, |dir| {
        format!(
            "[cluster]\nname = \"test\"\nkubeconfig = {kubeconfig:?}\naudit_every = \"off\"\n\n[state]\npath = {state:?}\n\n\
             [[watch]]\nresources = {WATCHED:?}\n\n[redact]\nkey_file = {key:?}\n\n[[sink]]\nname = \"archive\"\n{sink}\n\
             [ha]\nlog = \"archive\"\nlease = \"default/decklog\"\n\n[log]\nlevel = \"debug\"\n",
            kubeconfig = cluster.kubeconfig(user),
            state = dir.join("state"),
            sink = engine.sink(),
        )
    })
}

/// What it is in the shared log, and its status.
fn role_of(daemon: &Decklog) -> Result<(String, Value), String> {
    let status = journal::status(&daemon.state())?;
    Ok((status["ha"]["role"].as_str().unwrap_or_default().to_owned(), status))
}

/// What it is, once it is ready for that: a leader watches everything, a standby watches and has the whole log.
fn leadership(daemon: &Decklog) -> Result<String, String> {
    let (role, status) = role_of(daemon)?;
    let sources = status["sources"].as_array().cloned().unwrap_or_default();
    let watches = sources.len() == WATCHED.len()
        && sources.iter().all(|source| role == "standby" || source["state"] == "watching");
    if status["daemon"]["ready"] == true && watches {
        Ok(role)
    } else {
        Err(format!("{} {} {sources:?}", status["ha"], status["daemon"]))
    }
}

async fn has_role(daemon: &mut Decklog, role: &str) {
    until(&format!("a {role}"), LIMIT, async || {
        daemon.must_run();
        let is = leadership(daemon).map_err(|text| format!("{text}\n{}", daemon.last_words()))?;
        if is == role { Ok(()) } else { Err(format!("it is a {is}:\n{}", daemon.last_words())) }
    })
    .await;
}

/// So many more things have happened.
async fn happened(cluster: &Cluster, count: u64) {
    let upto = cluster.oracle().revision().await + count;
    until("things to happen", LIMIT, async || {
        let at = cluster.oracle().revision().await;
        if at >= upto { Ok(()) } else { Err(format!("it is at {at}")) }
    })
    .await;
}

/// How long it takes until this one leads.
async fn leads(daemon: &mut Decklog, since: Instant) -> Duration {
    until("another leader", LIMIT, async || {
        daemon.must_run();
        let (role, status) = role_of(daemon)?;
        if role == "leader" { Ok(()) } else { Err(format!("{status}\n{}", daemon.last_words())) }
    })
    .await;
    since.elapsed()
}

/// The whole log.
fn told(daemon: &Decklog) -> Vec<String> {
    let output = daemon.command(&["tail", "-o", "json", "--last", "1000000"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// See the module.
pub async fn scenario(version: Version, mut engine: Engine) {
    let seed = 20_261_125;
    let mut cluster = Cluster::start(version, Parts::Bare).await;
    let started = cluster.oracle().sync().await;
    let (one, two) = (daemon(&cluster, &engine, "paused", "paused"), daemon(&cluster, &engine, "killed", "killed"));
    let init = one.command(&["sink", "init", "archive"]);
    assert!(init.status.success(), "{}", String::from_utf8_lossy(&init.stderr));
    let mut both = [one, two];
    let stop = AtomicBool::new(false);
    let disturbed = async {
        disturb(&cluster, &mut engine, &mut both, seed).await;
        stop.store(true, Ordering::Relaxed);
    };
    tokio::join!(load::small(&cluster, seed, &stop), disturbed);
    let [one, two] = both;
    let upto = marked(&cluster, &[&one, &two], "last").await;
    until("the last change in the output", LIMIT, async || {
        let have = engine.consumed().await;
        let last = |line: &String| line.contains("\"name\":\"last\"");
        if have.iter().any(last) { Ok(()) } else { Err(format!("there are {} entries", have.len())) }
    })
    .await;
    // The standby first, so that nobody takes over.
    let leader = usize::from(leadership(&two).unwrap() == "leader");
    let mut both = [one, two];
    both[1 - leader].stop().await;
    both[leader].stop().await;
    let [mut one, mut two] = both;

    let scope = |upto| Scope {
        late: false,
        started,
        upto,
        namespaces: None,
        resources: Some(WATCHED.iter().map(|name| (*name).to_owned()).collect()),
    };
    let log = told([&one, &two][leader]);
    assert!(!log.iter().any(|line| line.contains("\"type\":\"GAP\"")), "somebody was watching all the time");
    let other = told([&two, &one][leader]);
    assert_eq!(other[..], log[..other.len()], "both have one log");
    // It has the last change since before the stop. The leader goes on renewing its Lease, which is watched as well: what came in the
    // moment of the stop is delivered at the next start.
    let consumed = engine.consumed().await;
    assert_eq!(consumed[..], log[..consumed.len().min(log.len())], "the output is the log");
    assert!(log[consumed.len()..].iter().all(|line| line.contains("\"kind\":\"Lease\"")), "{:?}", log.last());
    let copy = cluster.path("copy.jsonl");
    fs::write(&copy, log.join("\n") + "\n").unwrap();
    let verified = one.command(&["verify", copy.to_str().unwrap()]);
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stderr));
    [&mut one, &mut two][leader].judged(&cluster, None, &scope(upto)).await;
    eprintln!("{} entries", log.len());

    // Machines that have nothing.
    let mut three = daemon(&cluster, &engine, "calm", "calm");
    restore(&three);
    assert_eq!(told(&three), log, "what is restored is the log");
    assert_eq!(objects([&one, &two][leader]), objects(&three), "and what is known of the objects");
    three.start();
    has_role(&mut three, "leader").await;
    let upto = marked(&cluster, &[&three], "after").await;
    three.stop().await;
    assert_eq!(three.lists(&cluster), 0, "it resumes where the lost ones were");
    three.judged(&cluster, None, &scope(upto)).await;
    let log = told(&three);
    assert!(!log.iter().any(|line| line.contains("\"type\":\"GAP\"")), "nothing was compacted");

    // The history is cut after what is restored.
    let mut four = daemon(&cluster, &engine, "fourth", "calm");
    restore(&four);
    cluster.create(MAPS, &json!({"metadata": {"name": "missed"}})).await;
    cluster.delete(&format!("{MAPS}/last")).await;
    cluster.oracle().compact().await;
    cluster.restart_api(true).await;
    four.start();
    has_role(&mut four, "leader").await;
    let upto = marked(&cluster, &[&four], "end").await;
    four.stop().await;
    four.judged(&cluster, None, &scope(upto)).await;
    let mut gaps = std::collections::BTreeMap::<String, usize>::new();
    for line in &told(&four)[log.len()..] {
        let entry: Value = serde_json::from_str(line).unwrap();
        if entry["type"] == "GAP" {
            *gaps.entry(entry["resource"].to_string()).or_default() += 1;
        }
    }
    assert!(
        gaps.contains_key("\"configmaps\"") && gaps.values().all(|count| *count == 1),
        "one for each source: {gaps:?}"
    );
}

/// Makes a ConfigMap and waits until these have it; the revision by then.
async fn marked(cluster: &Cluster, daemons: &[&Decklog], name: &str) -> u64 {
    cluster.create(MAPS, &json!({"metadata": {"name": name}})).await;
    let upto = cluster.oracle().sync().await;
    for daemon in daemons {
        until(&format!("{name} in the log"), LIMIT, async || {
            let answer = daemon.command(&["get", &format!("cm/{name}"), "-n", "default"]);
            if answer.status.success() { Ok(()) } else { Err(daemon.last_words()) }
        })
        .await;
    }
    upto
}

fn restore(daemon: &Decklog) {
    let restored = daemon.command(&["restore", "--from", "archive"]);
    assert!(restored.status.success(), "{}", String::from_utf8_lossy(&restored.stderr));
}

/// The last state of every object and every position, as the journal's own rows have them.
fn objects(daemon: &Decklog) -> Vec<String> {
    let texts = [
        "SELECT namespace, name, uid, version, present, last FROM object ORDER BY resource, namespace, name",
        "SELECT resource, namespace, resume, applied FROM source ORDER BY resource, namespace",
        "SELECT name, cursor FROM sink",
    ];
    let journal = rusqlite::Connection::open(daemon.state().join("journal.db")).unwrap();
    let mut rows = Vec::new();
    for text in texts {
        let mut statement = journal.prepare(text).unwrap();
        let columns = statement.column_count();
        let mut found = statement.query([]).unwrap();
        while let Some(row) = found.next().unwrap() {
            let values: Vec<String> =
                (0..columns).map(|at| format!("{:?}", row.get::<_, rusqlite::types::Value>(at).unwrap())).collect();
            rows.push(values.join(" "));
        }
    }
    rows
}

/// Stops, kills and a long wait, until one leads and the other follows again.
async fn disturb(cluster: &Cluster, engine: &mut Engine, both: &mut [Decklog; 2], seed: u64) {
    let mut dice = Dice(seed);
    both[0].start();
    has_role(&mut both[0], "leader").await;
    both[1].start();
    has_role(&mut both[1], "standby").await;
    let mut leader = 0;

    // Stopped for longer than its Lease, while things happen.
    both[leader].signal(Signal::STOP);
    has_role(&mut both[1 - leader], "leader").await;
    happened(cluster, 20).await;
    both[leader].signal(Signal::CONT);
    has_role(&mut both[leader], "standby").await;
    assert!(both[leader].said().contains("this decklog stands by"), "{}", both[leader].last_words());
    leader = 1 - leader;

    // Ended cleanly. Who came back needs a moment before it may lead.
    happened(cluster, 150).await;
    let since = Instant::now();
    both[leader].stop().await;
    let took = leads(&mut both[1 - leader], since).await;
    eprintln!("after a clean end another one led within {took:?}");
    assert!(took < LEASE, "it was not given back: {took:?}");
    both[leader].start();
    has_role(&mut both[leader], "standby").await;
    leader = 1 - leader;

    let mut times = Vec::new();
    for _ in 0..number("DECKLOG_TEST_KILLS", 4) {
        happened(cluster, u64::try_from(1 + dice.roll(60)).unwrap()).await;
        match dice.roll(4) {
            0 | 1 => {
                let since = Instant::now();
                both[leader].kill();
                times.push(leads(&mut both[1 - leader], since).await);
                both[leader].start();
            }
            2 => {
                both[1 - leader].kill();
                happened(cluster, u64::try_from(1 + dice.roll(60)).unwrap()).await;
                both[1 - leader].start();
            }
            _ => {
                engine.kill();
                happened(cluster, u64::try_from(1 + dice.roll(200)).unwrap()).await;
                engine.restart().await;
            }
        }
        // Who gave way to the engine may have changed places.
        leader = settled(both).await;
    }
    times.sort();
    eprintln!("after a kill another one led within {times:?}");
    assert!(times.iter().all(|took| *took < 2 * LEASE), "{times:?}");

    // The take-over is held up, because the engine is away, until the API server and etcd have forgotten.
    let held = Duration::from_secs(number("DECKLOG_TEST_HELD", 20).try_into().unwrap());
    engine.kill();
    both[leader].kill();
    let since = Instant::now();
    until("the take-over to be held up", held + LIMIT, async || {
        if since.elapsed() >= held { Ok(()) } else { Err(format!("{:?}", since.elapsed())) }
    })
    .await;
    cluster.oracle().compact().await;
    happened(cluster, 20).await;
    engine.restart().await;
    has_role(&mut both[1 - leader], "leader").await;
    both[leader].start();
    settled(both).await;
}

/// Waits until one leads and the other follows; which one leads.
async fn settled(both: &mut [Decklog; 2]) -> usize {
    until("a leader and a standby", LIMIT, async || {
        both.iter_mut().for_each(Decklog::must_run);
        let roles = [leadership(&both[0])?, leadership(&both[1])?];
        match roles.each_ref().map(String::as_str) {
            ["leader", "standby"] => Ok(0),
            ["standby", "leader"] => Ok(1),
            _ => Err(format!("{roles:?}")),
        }
    })
    .await
}
