//! What the machine does to a daemon: its clock, its file descriptors, a process that is stopped, an operator in a hurry.

use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use decklog::sim::faults::{Act, Fault, On, Signal};
use decklog::sim::world::World;
use decklog::sim::{Sim, objects};
use jiff::{SignedDuration, Timestamp};
use rustix::process::Signal as Kill;
use serde_json::Value;

use crate::support::{Answer, Daemon, cluster, cluster_with, decklog, free_address, http_get, lists, scope, until};

const WATCH: &str = "resources = [\"configmaps\"]";
const HOUR: i64 = 3600;
const YEAR: i64 = 365 * 24 * HOUR;

fn create(sim: &Sim, name: &str) {
    sim.create("configmaps", objects::config_map("default", name, "1")).unwrap();
}

/// A clock that goes wrong on demand, for the processes that are given [`Clock::environment`].
pub(crate) struct Clock {
    library: PathBuf,
    offset: PathBuf,
}

impl Clock {
    pub(crate) fn new(daemon: &Daemon) -> Self {
        let (library, offset) = (daemon.path("clock.so"), daemon.path("clock"));
        fs::write(&offset, 0_i64.to_ne_bytes()).unwrap();
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/daemon/clock.c");
        let output = Command::new("cc").args(["-O1", "-shared", "-fPIC", "-o"]).arg(&library).arg(source).output();
        let output = output.expect("a C compiler; tests/run installs it");
        assert!(output.status.success(), "cc: {}", String::from_utf8_lossy(&output.stderr));
        Self { library, offset }
    }

    /// From now on the clock is so many seconds ahead of the true time.
    pub(crate) fn set(&self, seconds: i64) {
        let file = fs::OpenOptions::new().write(true).open(&self.offset).unwrap();
        file.write_all_at(&seconds.to_ne_bytes(), 0).unwrap();
    }

    pub(crate) fn environment(&self) -> [(&str, &str); 2] {
        [("LD_PRELOAD", self.library.to_str().unwrap()), ("DECKLOG_TEST_CLOCK", self.offset.to_str().unwrap())]
    }

    pub(crate) fn start(&self, daemon: &mut Daemon) {
        daemon.start_with(|command| command.envs(self.environment()));
    }

    /// Another command of decklog, on the same machine so to say.
    pub(crate) async fn command(&self, daemon: &Daemon, arguments: &[&str]) -> Answer {
        let config = daemon.path("config.toml");
        let arguments = [arguments, &["-c", config.to_str().unwrap()]].concat();
        decklog(&daemon.path(""), &arguments, &self.environment()).await
    }

    pub(crate) async fn alarms(&self, daemon: &Daemon) -> Vec<(String, String)> {
        let status = self.command(daemon, &["status", "-o", "json"]).await.done();
        alarms(&serde_json::from_str(&status).unwrap())
    }
}

/// The alarms of a status: their names, and what each is about.
pub(crate) fn alarms(status: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    status["alarms"].as_array().unwrap().iter().map(|alarm| (text(&alarm["alarm"]), text(&alarm["about"]))).collect()
}

/// When the newest entry says that it was journaled, against the true time.
fn newest_is_ahead(daemon: &mut Daemon) -> i64 {
    let line = fs::read_to_string(daemon.log()).unwrap();
    let entry: Value = serde_json::from_str(line.lines().last().unwrap()).unwrap();
    let time: Timestamp = entry["time"].as_str().unwrap().parse().unwrap();
    time.duration_since(Timestamp::now()).as_secs()
}

/// Fault 56: the clock jumps a year ahead and an hour back. The order of entries is their seq; `time` is what the clock
/// said; no wait is longer or shorter for it; nothing is listed, missing or repeated.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_jumps_moves_no_entry_and_no_wait() {
    let sim = cluster().await;
    let started = sim.revision();
    let at = free_address();
    let mut daemon = Daemon::with(&sim, WATCH, &format!("[http]\nlisten = {at:?}\n"));
    daemon.forgive_times();
    let clock = Clock::new(&daemon);
    create(&sim, "before");
    clock.start(&mut daemon);
    daemon.ready().await;
    daemon.knows(&sim, "configmaps", "default", "before").await;
    let listed = lists(&sim).len();
    for (jumps, name, offset) in [(1, "ahead", YEAR), (2, "right", 0), (3, "back", -HOUR)] {
        clock.set(offset);
        until("the jump to be told", async || {
            daemon.must_run();
            let told = daemon.said().matches("the clock has jumped").count();
            if told == jumps { Ok(()) } else { Err(daemon.last_words()) }
        })
        .await;
        // A request that fails waits as long as ever, and the sink takes what comes.
        sim.signal("configmaps", &Signal::Reset);
        create(&sim, name);
        daemon.knows(&sim, "configmaps", "default", name).await;
        let ahead = newest_is_ahead(&mut daemon);
        assert!((offset - 120..=offset + 5).contains(&ahead), "{name}: {ahead} s");
        if offset == YEAR {
            // Who looks by the true time sees an entry of the future, and is told why.
            let status = daemon.status().await;
            assert!(alarms(&status).contains(&("clock-behind".to_owned(), String::new())), "{status}");
        }
    }
    let alarms = clock.alarms(&daemon).await;
    assert!(alarms.contains(&("clock-jumped".to_owned(), String::new())), "{alarms:?}");
    let metrics = http_get(&at, "/metrics").unwrap().body;
    assert!(metrics.contains("decklog_clock_jumps_total 3\n"), "{metrics}");
    // Stopped and started under a clock that is back, it goes on where it was.
    daemon.stop().await;
    clock.start(&mut daemon);
    daemon.ready().await;
    create(&sim, "again");
    daemon.knows(&sim, "configmaps", "default", "again").await;
    let done = scope(&sim, started, &["configmaps"]);
    daemon.catch_up(&sim, &done).await;
    daemon.stop().await;
    daemon.judged(&sim, &done).await;
    assert!(daemon.entries().iter().map(|entry| entry.seq).eq(1..=5));
    assert!(daemon.entries().iter().all(|entry| entry.gap.is_none()));
    assert_eq!(lists(&sim).len(), listed, "no jump makes a list");
}

/// Fault 57: the machine sleeps for two hours while its connections die without a word. It does not take the silence of
/// 150 s to notice: every watch is opened anew at once, and what was missed is there or is a gap.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_suspend_every_watch_is_opened_anew() {
    let sim = cluster().await;
    let started = sim.revision();
    let resources = ["configmaps", "services"];
    let mut daemon = Daemon::new(&sim, &resources);
    let clock = Clock::new(&daemon);
    create(&sim, "gone");
    clock.start(&mut daemon);
    daemon.ready().await;
    daemon.knows(&sim, "configmaps", "default", "gone").await;
    for (round, forgotten) in [(1, false), (2, true)] {
        for resource in resources {
            sim.wait_for_watches(resource, 1).await.unwrap();
            sim.signal(resource, &Signal::Stall);
        }
        create(&sim, &format!("asleep-{round}"));
        if forgotten {
            sim.delete("configmaps", "default", "gone").unwrap();
            sim.compact_all();
        }
        let asked = resources.map(|resource| sim.count(&On::watch(resource)));
        clock.set(round * 2 * HOUR);
        for (resource, asked) in resources.iter().zip(asked) {
            // A minute at most: it does not wait for the silence to be long.
            sim.wait_for_count(&On::watch(resource), asked + 1).await.unwrap();
        }
        daemon.catch_up(&sim, &scope(&sim, started, &resources)).await;
    }
    // Nothing of them changed, and yet something may be missing.
    daemon.tells("the gap of services", |entry| entry.resource == "services" && entry.gap.is_some()).await;
    daemon.stop().await;
    daemon.judged(&sim, &scope(&sim, started, &resources)).await;
    let story = daemon.story("configmaps");
    assert_eq!(story[..3], ["listed ADDED default/gone", "watched ADDED default/asleep-1", "GAP expired"]);
    assert!(story[3..].contains(&"inferred DELETED default/gone".to_owned()), "{story:?}");
}

/// Fault 58: SIGSTOP, and the server cuts what does not read. Within the server's memory nothing is missing; beyond it a
/// gap says so; and where systemd's watchdog ends the stopped process, the next one goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_was_stopped_goes_on_where_it_was() {
    let sim = cluster().await;
    let started = sim.revision();
    let mut world = World::new(&sim, 58).unwrap();
    let resources = ["configmaps", "pods", "deployments.apps"];
    let mut daemon = Daemon::new(&sim, &resources);
    daemon.start_with(|command| command.env("WATCHDOG_USEC", "60000000"));
    daemon.ready().await;
    for (forgotten, killed) in [(false, false), (false, true), (true, false), (true, true)] {
        for resource in resources {
            sim.wait_for_watches(resource, 1).await.unwrap();
        }
        daemon.signal(Kill::STOP);
        until("it to be stopped", async || {
            let stat = fs::read_to_string(format!("/proc/{}/stat", daemon.pid())).unwrap();
            let state = stat.rsplit(')').next().unwrap().split_whitespace().next().unwrap().to_owned();
            if state == "T" { Ok(()) } else { Err(state) }
        })
        .await;
        // Cut before anything happens: what it has in its sockets already it would not need the server for.
        for resource in resources {
            sim.signal(resource, &Signal::Reset);
        }
        let fed = daemon.told().matches("WATCHDOG=1").count();
        let gaps = daemon.entries().iter().filter(|entry| entry.gap.is_some()).count();
        for _ in 0..60 {
            world.step().unwrap();
        }
        if forgotten {
            sim.compact_all();
        }
        assert_eq!(daemon.told().matches("WATCHDOG=1").count(), fed, "a stopped process feeds no watchdog");
        if killed {
            // What systemd does when it is not fed.
            daemon.signal(Kill::KILL);
            daemon.end().await;
            daemon.start();
        } else {
            daemon.signal(Kill::CONT);
        }
        daemon.catch_up(&sim, &scope(&sim, started, &resources)).await;
        let more = daemon.entries().iter().filter(|entry| entry.gap.is_some()).count() > gaps;
        assert_eq!(more, forgotten, "a gap where the server forgot, and only there");
    }
    daemon.stop().await;
    daemon.judged(&sim, &scope(&sim, started, &resources)).await;
}

/// Fault 3: a server that is stopped answers nothing and closes nothing. To wait for it is progress: systemd must not
/// take decklog for dead, and there is nothing to list when it goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stands_still_does_not_starve_the_watchdog() {
    let sim = cluster_with(|settings| settings.bookmarks_every = Duration::from_secs(3600)).await;
    let started = sim.revision();
    let mut daemon = Daemon::new(&sim, &["configmaps"]);
    // Half of it is the patience with a part that makes no progress.
    daemon.start_with(|command| command.env("WATCHDOG_USEC", "12000000"));
    daemon.ready().await;
    let listed = lists(&sim).len();
    sim.fault(Fault::new(On::any(), Act::Hang).always());
    let asked = sim.count(&On::any());
    sim.wait_for_count(&On::any(), asked + 1).await.unwrap();
    let fed = daemon.told().matches("WATCHDOG=1").count();
    until("three times its patience", async || {
        daemon.must_run();
        let more = daemon.told().matches("WATCHDOG=1").count() - fed;
        if more > 9 { Ok(()) } else { Err(format!("fed {more} times\n{}", daemon.last_words())) }
    })
    .await;
    sim.heal();
    create(&sim, "after");
    daemon.knows(&sim, "configmaps", "default", "after").await;
    daemon.stop().await;
    daemon.judged(&sim, &scope(&sim, started, &["configmaps"])).await;
    assert!(!daemon.said().contains("has made no progress"));
    assert_eq!(lists(&sim).len(), listed);
}

/// Fault 59: SIGTERM while changes pour in and one sink hangs: it commits what it took, ends well and soon, and the next
/// start misses and repeats nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sigterm_in_a_storm_ends_it_well() {
    let sim = cluster().await;
    let started = sim.revision();
    let mut world = World::new(&sim, 59).unwrap();
    let resources = ["configmaps", "pods", "deployments.apps", "events", "leases.coordination.k8s.io"];
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", silent.local_addr().unwrap());
    let rest = format!("[[sink]]\nname = \"silent\"\ntype = \"http\"\nurl = {url:?}\n");
    let mut daemon = Daemon::with(&sim, &format!("resources = {resources:?}"), &rest);
    let storms = async {
        for _ in 0..3 {
            daemon.start();
            daemon.ready().await;
            daemon.reach(daemon.lines() + 100).await;
            daemon.signal(Kill::TERM);
            let began = Instant::now();
            assert!(daemon.end().await.success(), "{}", daemon.last_words());
            assert!(began.elapsed() < Duration::from_secs(20), "it took {:?}", began.elapsed());
            assert!(daemon.told().lines().any(|line| line == "STOPPING=1"), "{}", daemon.told());
        }
    };
    tokio::select! {
        () = storms => {}
        refusal = world.live(Duration::from_millis(6)) => panic!("{refusal}"),
    }
    daemon.consistent_with_its_journal().await;
    let listed = lists(&sim).len();
    daemon.start();
    daemon.ready().await;
    let done = scope(&sim, started, &resources);
    daemon.catch_up(&sim, &done).await;
    daemon.stop().await;
    daemon.judged(&sim, &done).await;
    assert_eq!(lists(&sim).len(), listed, "it resumed");
    assert!(daemon.entries().iter().all(|entry| entry.gap.is_none()));
}

/// Fault 54: somebody opens every connection to the HTTP endpoints that there can be, and holds on to it. They have a
/// share of the file descriptors; the reading of the cluster keeps its own, and a new connection takes the place of one of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_to_the_endpoints_take_no_descriptor_from_the_reading() {
    let sim = cluster().await;
    let started = sim.revision();
    let at = free_address();
    let resources = ["configmaps", "pods", "services"];
    let mut daemon = Daemon::with(&sim, &format!("resources = {resources:?}"), &format!("[http]\nlisten = {at:?}\n"));
    daemon.start_limited("ulimit -n 96");
    daemon.ready().await;
    let held: Vec<TcpStream> = (0..120).map(|_| TcpStream::connect(&at).unwrap()).collect();
    for round in 0..3 {
        // Each of these needs a connection of its own.
        for resource in resources {
            renew(&sim, resource).await;
        }
        create(&sim, &format!("m{round}"));
        daemon.catch_up(&sim, &scope(&sim, started, &resources)).await;
    }
    // A source may say that its watch was cut for a moment longer than it takes to have everything.
    until("every source to watch", async || {
        let status = daemon.status().await;
        if alarms(&status).is_empty() { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
    assert_eq!(http_get(&at, "/livez").unwrap().status, 200, "who holds on keeps nobody out");
    drop(held);
    daemon.stop().await;
    daemon.judged(&sim, &scope(&sim, started, &resources)).await;
}

/// Fault 54: with fewer file descriptors than there are sources, those that are connected go on, the others say why they
/// are not, an alarm says what to do, and with more of them nothing is missing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_few_file_descriptors_are_an_alarm_and_no_end() {
    let sim = cluster().await;
    let started = sim.revision();
    let resources: Vec<String> = (0..20).map(|number| format!("r{number}s.example.com")).collect();
    let names: Vec<&str> = resources.iter().map(String::as_str).collect();
    for name in &names {
        let kind = name.split('.').next().unwrap().trim_end_matches('s').to_uppercase();
        sim.define(objects::crd(name, &kind, true, &["v1"])).unwrap();
    }
    let object = |resource: &str, name: &str| {
        let kind = resource.split('.').next().unwrap().trim_end_matches('s').to_uppercase();
        let object = serde_json::json!({
            "apiVersion": "example.com/v1", "kind": kind, "metadata": {"name": name, "namespace": "default"},
        });
        sim.create(resource, object).unwrap();
    };
    let mut daemon = Daemon::new(&sim, &names);
    daemon.start_limited("ulimit -n 34");
    daemon.says("nearly all file descriptors are in use").await;
    let (degraded, watching) = until("some to watch, and some to have no descriptor", async || {
        daemon.must_run();
        let status = daemon.status().await;
        let of = |state: &str| -> Vec<Value> {
            status["sources"].as_array().unwrap().iter().filter(|row| row["state"] == state).cloned().collect()
        };
        let (degraded, watching) = (of("degraded"), of("watching"));
        if degraded.is_empty() || watching.is_empty() { Err(daemon.last_words()) } else { Ok((degraded, watching)) }
    })
    .await;
    let detail = degraded[0]["detail"].as_str().unwrap();
    assert!(detail.contains("no file descriptor is left") && detail.contains("LimitNOFILE"), "{detail}");
    let status = daemon.status().await;
    assert!(alarms(&status).contains(&("descriptors-low".to_owned(), String::new())), "{status}");
    let lucky = watching[0]["name"].as_str().unwrap();
    object(lucky, "while-there-are-none");
    daemon.knows(&sim, lucky, "default", "while-there-are-none").await;
    for name in &names {
        object(name, "more");
    }
    daemon.stop().await;
    daemon.start();
    daemon.ready().await;
    let done = scope(&sim, started, &names);
    daemon.catch_up(&sim, &done).await;
    assert_eq!(alarms(&daemon.status().await), []);
    daemon.stop().await;
    daemon.judged(&sim, &done).await;
}

/// Resets the watch of a resource, and waits until the next one is asked for.
async fn renew(sim: &Sim, resource: &str) {
    let asked = sim.count(&On::watch(resource));
    sim.signal(resource, &Signal::Reset);
    sim.wait_for_count(&On::watch(resource), asked + 1).await.unwrap();
}

/// Fault 82: the file with the token is gone for a moment, as when it is being replaced: the last token serves, and the
/// new one is taken when it is there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_file_that_is_missing_for_a_moment_is_waited_for() {
    let sim = cluster().await;
    let started = sim.revision();
    let mut daemon = Daemon::new(&sim, &["configmaps"]);
    sim.admit("first-token");
    let file = daemon.path("token");
    fs::write(&file, "first-token\n").unwrap();
    let kubeconfig =
        sim.kubeconfig_with_token("TOKEN").replace("token: TOKEN", &format!("tokenFile: {}", file.display()));
    fs::write(daemon.path("kubeconfig"), kubeconfig).unwrap();
    daemon.start();
    daemon.ready().await;
    fs::remove_file(&file).unwrap();
    daemon.says("cannot read the cluster's credentials again").await;
    // A new connection, with the token that was read last.
    renew(&sim, "configmaps").await;
    create(&sim, "without");
    daemon.knows(&sim, "configmaps", "default", "without").await;
    sim.admit("second-token");
    fs::write(&file, "second-token\n").unwrap();
    sim.revoke("first-token");
    renew(&sim, "configmaps").await;
    create(&sim, "with");
    let done = scope(&sim, started, &["configmaps"]);
    daemon.catch_up(&sim, &done).await;
    daemon.stop().await;
    daemon.judged(&sim, &done).await;
    assert!(sim.requests().iter().any(|seen| seen.authorization.contains("second-token")));
    assert!(!daemon.said().contains("first-token") && !daemon.said().contains("second-token"));
    assert!(daemon.entries().iter().all(|entry| entry.gap.is_none()));
}

/// Fault 88: a reload that lets more out is told, with what changed and without a value.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_that_widens_the_output_is_told() {
    let sim = cluster().await;
    let mut daemon = Daemon::new(&sim, &["configmaps"]);
    let sink = |keys: &str| format!("[[sink]]\nname = \"audit\"\ntype = \"file\"\npath = \"audit.jsonl\"\n{keys}\n");
    let url = "http://127.0.0.1:9/?key=hunter2";
    daemon.configure(&daemon.config(WATCH, &sink("where = 'type == \"DELETED\"'")));
    daemon.start();
    daemon.ready().await;
    let more = sink("") + &format!("[[sink]]\nname = \"hook\"\ntype = \"http\"\nurl = {url:?}\n");
    daemon.configure(&daemon.config("resources = [\"configmaps\", \"secrets\"]", &more));
    daemon.signal(Kill::HUP);
    daemon.says("the configuration was read again").await;
    let said = daemon.said();
    for text in ["[[watch]]: what is watched changed", "the sink audit: `where` changed", "the sink hook is new"] {
        let line = said.lines().find(|line| line.contains(text)).unwrap_or_else(|| panic!("{text}: {said}"));
        assert!(line.contains("WARN") && line.contains("more may be written"), "{line}");
    }
    daemon.configure(&daemon.config("resources = [\"configmaps\", \"secrets\"]", &sink("keep = 3")));
    daemon.signal(Kill::HUP);
    daemon.says("the sink hook is left out").await;
    assert!(!daemon.said().contains("hunter2"));
    daemon.stop().await;
}

/// Fault 80, 81: sinks that take nothing for days, one of them and then all. The cluster is read as ever; each says how far
/// it is behind, since when and why; and nothing is missing when they take again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sinks_blocked_for_days_hold_up_nobody_and_lose_nothing() {
    let sim = cluster().await;
    let started = sim.revision();
    let mut daemon = Daemon::new(&sim, &["configmaps"]);
    let clock = Clock::new(&daemon);
    let dead = free_address();
    let late = "[[sink]]\nname = \"late\"\ntype = \"file\"\npath = \"missing/log.jsonl\"\n\n";
    let rest = format!("{late}[[sink]]\nname = \"dead\"\ntype = \"http\"\nurl = \"http://{dead}/\"\n");
    let config = daemon.config(WATCH, &rest);
    daemon.configure(&config);
    clock.start(&mut daemon);
    daemon.ready().await;
    for number in 0..50 {
        create(&sim, &format!("a{number}"));
    }
    // The file sink of the test has a directory, and is ahead of the others by all of it.
    daemon.reach(50).await;
    daemon.waits_for_state("sinks", "late", "retrying").await;
    daemon.waits_for_state("sinks", "dead", "retrying").await;
    clock.set(3 * 24 * HOUR);
    let behind = |alarms: Vec<(String, String)>| -> Vec<String> {
        alarms.into_iter().filter(|(alarm, _)| alarm == "sink-behind").map(|(_, about)| about).collect()
    };
    assert_eq!(behind(clock.alarms(&daemon).await), ["dead", "late"]);
    // Now the last one too: its file is somebody else's.
    let moved = daemon.path("first-half.jsonl");
    fs::rename(daemon.log(), &moved).unwrap();
    fs::create_dir(daemon.log()).unwrap();
    daemon.signal(Kill::HUP);
    for number in 0..50 {
        create(&sim, &format!("b{number}"));
    }
    until("the journal to have it all", async || {
        daemon.must_run();
        let status = daemon.status().await;
        if status["journal"]["head"]["seq"] == 100 { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
    clock.set(6 * 24 * HOUR);
    let status = clock.command(&daemon, &["status", "-o", "json"]).await.done();
    let status: Value = serde_json::from_str(&status).unwrap();
    let row = |name: &str| status["sinks"].as_array().unwrap().iter().find(|row| row["name"] == name).unwrap();
    assert_eq!((&row("dead")["lag_entries"], &row("file")["lag_entries"]), (&100.into(), &50.into()), "{status}");
    let lag = row("dead")["lag_seconds"].as_i64().unwrap();
    assert!((6 * 24 * HOUR - 10..6 * 24 * HOUR + 300).contains(&lag), "{lag}");
    assert!(row("dead")["detail"].as_str().unwrap().contains(&dead), "{status}");
    let oldest: Timestamp = row("file")["oldest_undelivered"].as_str().unwrap().parse().unwrap();
    let age = Timestamp::now().duration_since(oldest) + SignedDuration::from_hours(72);
    assert!(age.abs() < SignedDuration::from_mins(5), "{status}");
    // What the daemon knows alone is told every two seconds.
    until("the tries to be told", async || {
        let lines = clock.command(&daemon, &["status"]).await.done();
        let told =
            ["alarm    sink-behind dead", "alarm    sink-behind late", "alarm    sink-behind file", " tries so far)"];
        if told.iter().all(|text| lines.contains(text)) { Ok(()) } else { Err(lines) }
    })
    .await;
    // They take again.
    fs::remove_dir(daemon.log()).unwrap();
    fs::create_dir(daemon.path("missing")).unwrap();
    daemon.signal(Kill::HUP);
    let late = daemon.path("missing/log.jsonl");
    until("everything in every file", async || {
        daemon.must_run();
        let halves = fs::read_to_string(&moved).unwrap() + &fs::read_to_string(daemon.log()).unwrap_or_default();
        let whole = fs::read_to_string(&late).unwrap_or_default();
        if halves == whole && whole.lines().count() == 100 { Ok(()) } else { Err(daemon.last_words()) }
    })
    .await;
    daemon.stop().await;
    let done = scope(&sim, started, &["configmaps"]);
    // One file again, so that the judge sees all of it.
    fs::copy(&late, daemon.log()).unwrap();
    daemon.judged(&sim, &done).await;
}
