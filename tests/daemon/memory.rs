//! Bounded memory, whatever the size of the cluster, of an object, or of a backlog.
//!
//! The binary runs under a limit of the kernel, and the most that it ever had resident is compared with the bound that
//! docs/guarantees.md states. `DECKLOG_TEST_MEMORY=full` takes the counts of docs/sizing.md: 100,000 Pods, a million small objects;
//! in a release build (`cargo test --release --test daemon memory::`, or `DECKLOG_TEST_BINARY` with the path of one) that
//! is a matter of minutes.

use std::collections::BTreeSet;
use std::fs;
use std::net::TcpListener;
use std::process::Command;

use decklog::journal::Reader;
use decklog::sim::faults::{Act, Fault, On, Signal};
use decklog::sim::{Object, objects};

use crate::hostile::peak_mib;
use crate::support::{Daemon, LIMIT, cluster_with, free_address, http_get, until};

/// What decklog has resident at most, in MiB, as docs/guarantees.md says.
const BOUND: u64 = 256;
/// What the kernel lets it have at all, in MiB: its data, whether resident or not, with the stacks of its threads.
const GIVEN: u64 = 448;
/// The pages of the program itself that count, in MiB: those of a release build (31 and 32 measured). Without optimisation they are 70.
const PROGRAM: u64 = 32;

fn full() -> bool {
    std::env::var("DECKLOG_TEST_MEMORY").is_ok_and(|how| how == "full")
}

/// Starts the daemon with no more memory than it is given.
fn start(daemon: &mut Daemon) {
    start_with(daemon, |command| command);
}

fn start_with(daemon: &mut Daemon, change: impl FnOnce(&mut Command) -> &mut Command) {
    let mut command = Command::new("prlimit");
    let binary = std::env::var("DECKLOG_TEST_BINARY").unwrap_or_else(|_| env!("CARGO_BIN_EXE_decklog").to_owned());
    command.args([&format!("--data={}", GIVEN << 20), "--", &binary]);
    daemon.start_by(command, change);
}

/// Pages of the program itself that are resident, in MiB.
fn program_mib(daemon: &Daemon) -> u64 {
    let program = fs::read_link(format!("/proc/{}/exe", daemon.pid())).unwrap();
    let maps = fs::read_to_string(format!("/proc/{}/smaps", daemon.pid())).unwrap();
    let (mut is_program, mut kib) = (false, 0);
    for line in maps.lines() {
        // A mapping is a line that ends with its path, and then its fields.
        if let Some(rest) = line.strip_prefix("Rss:") {
            let rss: u64 = rest.trim().trim_end_matches(" kB").parse().unwrap();
            kib += if is_program { rss } else { 0 };
        } else if line.split(' ').next().is_some_and(|range| range.contains('-')) {
            is_program = line.ends_with(program.to_str().unwrap());
        }
    }
    assert!(kib > 0, "{program:?} is not mapped");
    kib / 1024
}

/// Names of the threads of a daemon.
fn threads(daemon: &Daemon) -> BTreeSet<String> {
    let tasks = fs::read_dir(format!("/proc/{}/task", daemon.pid())).unwrap();
    // One may end meanwhile.
    let names = tasks.filter_map(|task| fs::read_to_string(task.unwrap().path().join("comm")).ok());
    names.map(|name| name.trim_end().to_owned()).collect()
}

#[track_caller]
#[expect(clippy::print_stdout, reason = "the figures are what a full run is for")]
fn bounded(daemon: &mut Daemon, what: &str) {
    daemon.must_run();
    let program = program_mib(daemon);
    let peak = peak_mib(daemon) - program.saturating_sub(PROGRAM);
    println!("{what}: {peak} MiB resident at most, of a program of {program} MiB");
    assert!(peak < BOUND, "{what}: {peak} MiB");
    // How much it gives back is measured in a bench.
    assert!(threads(daemon).contains("allocator"), "nothing gives free memory back to the system");
}

/// Waits for so many entries in the journal.
async fn reach(daemon: &mut Daemon, head: u64) {
    let begun = std::time::Instant::now();
    let mut ticks = tokio::time::interval(std::time::Duration::from_millis(200));
    loop {
        daemon.must_run();
        let have = Reader::open(&daemon.state()).and_then(|reader| reader.head()).map_or(0, |head| head.0);
        if have >= head {
            return;
        }
        // Large objects, and the full counts, take their time in a build without optimisation.
        let limit = if full() { LIMIT * 30 } else { LIMIT * 6 };
        assert!(begun.elapsed() < limit, "{have} of {head} entries\n{}", daemon.last_words());
        ticks.tick().await;
    }
}

fn quiet(daemon: &Daemon, watch: &str, rest: &str) {
    daemon.configure(&daemon.config(watch, rest).replace("level = \"debug\"", "level = \"info\""));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_objects_large_and_small_are_listed_within_the_bound() {
    let sim = cluster_with(|settings| settings.drop_compacted = true).await;
    let (pods, maps) = if full() { (100_000, 1_000_000) } else { (8_000, 20_000) };
    sim.bulk_pods(pods).unwrap();
    sim.bulk_config_maps(maps).unwrap();
    let mut daemon = Daemon::new(&sim, &["pods"]);
    quiet(&daemon, "resources = [\"pods\", \"configmaps\"]", "");
    start(&mut daemon);
    reach(&mut daemon, (pods + maps) as u64).await;
    bounded(&mut daemon, &format!("{pods} Pods of 8 KB and {maps} small objects"));
    // And it stays so while they change, and when all of it is listed again.
    sim.touch_bulk(pods / 4);
    reach(&mut daemon, (pods + maps + pods / 4) as u64).await;
    sim.compact_all();
    sim.signal("*", &Signal::End);
    sim.touch_bulk(10);
    reach(&mut daemon, (pods + maps + pods / 4 + 10) as u64).await;
    bounded(&mut daemon, "changed, and listed again");
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_of_eight_mebibytes_are_kept_within_the_bound() {
    let sim = cluster_with(|_| {}).await;
    let large = |index: usize, turn: usize| {
        // Of many members, so that its tree is as large as can be, and with a text that compresses badly.
        let mut dice = crate::support::Dice(index as u64 + 1);
        let mut text = format!(
            "{{\"metadata\":{{\"name\":\"large-{index}\",\"namespace\":\"default\"}},\"turn\":{turn},\"data\":{{"
        );
        while text.len() < 8 << 20 {
            text.push_str(&format!(
                "\"k{}\":\"{:x}{:x}{:x}\",",
                text.len(),
                dice.roll(1 << 30),
                dice.roll(1 << 30),
                dice.roll(1 << 30)
            ));
        }
        text.pop();
        text.push_str("}}");
        Object::parse(text.as_bytes()).unwrap()
    };
    let count = if full() { 12 } else { 4 };
    for index in 0..count {
        sim.create("configmaps", large(index, 0)).unwrap();
    }
    let mut daemon = Daemon::new(&sim, &["configmaps"]);
    quiet(&daemon, "resources = [\"configmaps\"]", "");
    start(&mut daemon);
    reach(&mut daemon, count as u64).await;
    bounded(&mut daemon, "objects of 8 MiB, listed");
    for index in 0..count {
        sim.replace("configmaps", "default", &format!("large-{index}"), large(index, 1)).unwrap();
    }
    reach(&mut daemon, 2 * count as u64).await;
    bounded(&mut daemon, "objects of 8 MiB, changed");
    daemon.stop().await;
}

/// Nobody takes anything: an HTTP sink whose server never answers, a pipe that nobody reads, a file that cannot be
/// opened. The backlog is on the disk and not in memory.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_every_sink_is_blocked_memory_stays_within_the_bound() {
    let sim = cluster_with(|_| {}).await;
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", silent.local_addr().unwrap());
    let mut daemon = Daemon::new(&sim, &["configmaps"]);
    let rest = format!(
        "[[sink]]\nname = \"http\"\ntype = \"http\"\nurl = {url:?}\nformat = \"batched\"\nbatch_size = 10000\n\n\
         [[sink]]\nname = \"pipe\"\ntype = \"stdout\"\n"
    );
    quiet(&daemon, "resources = [\"pods\"]", &rest);
    // A directory stands where the file should be.
    fs::create_dir(daemon.log()).unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    start_with(&mut daemon, |command| command.stdout(writer));
    daemon.ready().await;
    let (pods, rounds) = if full() { (20_000, 10) } else { (1500, 4) };
    sim.bulk_pods(pods).unwrap();
    for _ in 0..rounds {
        sim.touch_bulk(pods);
    }
    reach(&mut daemon, (pods * (rounds + 1)) as u64).await;
    bounded(&mut daemon, "every sink blocked");
    let status = daemon.status().await;
    for sink in status["sinks"].as_array().unwrap() {
        assert!(sink["lag_entries"].as_u64().unwrap() > (pods * rounds) as u64, "{sink} is not blocked");
    }
    daemon.kill().await;
    drop((reader, silent));
}

/// One sink takes an entry in a second, another one everything. What the first has still to get is on the disk: memory
/// is what it was after a quarter of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_sink_beside_a_fast_one_takes_no_memory() {
    let sim = cluster_with(|_| {}).await;
    let mut daemon = Daemon::new(&sim, &["pods"]);
    let path = daemon.path("slow.jsonl");
    let slow = format!("[[sink]]\nname = \"slow\"\ntype = \"file\"\npath = {path:?}\nrate = 1\n");
    quiet(&daemon, "resources = [\"pods\"]", &slow);
    start(&mut daemon);
    daemon.ready().await;
    let (pods, rounds) = if full() { (10_000, 10) } else { (1500, 10) };
    sim.bulk_pods(pods).unwrap();
    let begun = std::time::Instant::now();
    let mut early = 0;
    for round in 1..=rounds {
        if round > 1 {
            sim.touch_bulk(pods);
        }
        let told = pods * round;
        reach(&mut daemon, told as u64).await;
        until("the fast sink to have everything", async || {
            daemon.must_run();
            let sinks = Reader::open(&daemon.state()).and_then(|reader| reader.sinks()).map_err(|e| e.to_string())?;
            let fast = sinks.into_iter().find(|row| row.name == "file").ok_or("it is not there")?;
            if fast.cursor.0 >= told as u64 { Ok(()) } else { Err(format!("{fast:?}")) }
        })
        .await;
        if round * 4 <= rounds {
            early = peak_mib(&daemon);
        }
    }
    bounded(&mut daemon, "a slow sink beside a fast one");
    let late = peak_mib(&daemon);
    // What it holds back by now is more than this.
    assert!(late < early + 40, "{early} MiB after a quarter, {late} MiB at the end");
    let seconds = begun.elapsed().as_secs() + LIMIT.as_secs();
    let taken = fs::read_to_string(&path).unwrap().lines().count() as u64;
    assert!(taken <= seconds && taken < (pods * rounds / 2) as u64, "{taken} entries in {seconds} s");
    daemon.stop().await;
}

/// A line that never ends is given up at the bound of a line, again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lines_without_an_end_are_given_up_within_the_bound() {
    let sim = cluster_with(|_| {}).await;
    let mut daemon = Daemon::new(&sim, &["configmaps", "services", "pods"]);
    start(&mut daemon);
    daemon.ready().await;
    let endless = vec![b'x'; 48 << 20];
    for resource in ["configmaps", "services", "pods"] {
        sim.fault(Fault::new(On::watch(resource), Act::insert(0, endless.clone())).times(2));
        sim.signal(resource, &Signal::End);
    }
    for resource in ["configmaps", "services", "pods"] {
        sim.wait_for_count(&On::watch(resource), 4).await.unwrap();
    }
    sim.create("configmaps", objects::config_map("default", "after", "1")).unwrap();
    daemon.tells("what follows", |entry| entry.name == "after").await;
    bounded(&mut daemon, "lines without an end");
    daemon.stop().await;
}

/// Many watches, each with large changes, all at once, as after an outage: what is read waits for what is on disk.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_sources_that_change_at_once_are_read_within_the_bound() {
    const SOURCES: usize = 250;
    let sim = cluster_with(|_| {}).await;
    let namespaces: Vec<String> = (0..SOURCES).map(|index| format!("ns-{index:03}")).collect();
    for namespace in &namespaces {
        sim.create_namespace(namespace).unwrap();
        sim.create("configmaps", objects::config_map(namespace, "large", "0")).unwrap();
    }
    let mut daemon = Daemon::new(&sim, &["configmaps"]);
    quiet(&daemon, &format!("resources = [\"configmaps\"]\nnamespaces = {namespaces:?}"), "");
    start(&mut daemon);
    reach(&mut daemon, SOURCES as u64).await;
    daemon.stop().await;
    // Of each object three versions of 1.5 MB are on the way when the daemon opens its watches.
    let filling = "every object has one and a half megabytes of this; ".repeat(30_000);
    for namespace in &namespaces {
        // Two revisions of others come before the third one, whose event they take along.
        for name in ["one", "two"] {
            sim.create("services", objects::service(namespace, name)).unwrap();
        }
        let row = sim.update("configmaps", namespace, "large", |map| map["data"]["value"] = "3".into()).unwrap();
        let (uid, mut lines) = (row.uid.to_string(), String::new());
        for turn in 1..=3 {
            let revision = row.revision + turn - 3;
            lines.push_str(&format!(
                "{{\"type\":\"MODIFIED\",\"object\":{{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\",\"metadata\":{{\"name\":\"large\",\"namespace\":\"{namespace}\",\"uid\":\"{uid}\",\"resourceVersion\":\"{revision}\"}},\"data\":{{\"value\":\"{turn}\",\"filling\":\"{namespace} {filling}\"}}}}}}\n"
            ));
        }
        let watch = On::path(&format!("/api/v1/namespaces/{namespace}/configmaps")).query("watch=true");
        sim.fault(Fault::new(watch, Act::replace(0, lines)));
    }
    start(&mut daemon);
    reach(&mut daemon, 4 * SOURCES as u64).await;
    bounded(&mut daemon, "250 sources with 1.5 MB each, three times");
    let rows = Reader::open(&daemon.state()).unwrap().sources().unwrap();
    assert_eq!(rows.iter().map(|row| row.gaps).sum::<u64>(), 0, "each change is told by itself");
    daemon.stop().await;
    assert_eq!(Reader::open(&daemon.state()).unwrap().head().unwrap().0, 4 * SOURCES as u64);
}

/// Texts of so many bytes that hold as many values as they can: before and after a change of all of them.
fn small_values(bytes: usize) -> Vec<(&'static str, [String; 2])> {
    let list = |one: &str, other: &str| {
        let times = bytes / (one.len() + other.len() + 2);
        let turns = |a: &str, b: &str| format!("\"x\":[{}]", vec![format!("{a},{b}"); times].join(","));
        [turns(one, other), turns(other, one)]
    };
    let members =
        |value: u8, size: usize| (0..bytes / size).map(|n| format!("\"{n:x}\":{value}")).collect::<Vec<_>>().join(",");
    let fields = |with: usize| {
        let names: Vec<String> = (with..bytes / 14).map(|n| format!("\"f:{n:x}\":{{}}")).collect();
        format!("\"y\":{with},\"books\":{{{}}}", names.join(","))
    };
    vec![
        ("numbers", list("0", "1")),
        ("lists", list("[]", "{}")),
        ("texts", list("\"\"", "\"a\"")),
        ("pairs", list("[0,1]", "[1,0]")),
        ("objects", list("{\"name\":1}", "{\"name\":2}")),
        ("members", [0, 1].map(|value| format!("\"x\":{{{}}}", members(value, 10)))),
        ("outermost", [0, 1].map(|value| members(value, 10))),
        ("fields", [0, 1].map(fields)),
    ]
}

/// What is built for a value is many times as large as a small one, and there are a million of them in a few megabytes.
/// Whoever may write one object must not stop the daemon, nor must somebody who looks at it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_of_very_many_values_are_kept_and_shown_within_the_bound() {
    let sim = cluster_with(|_| {}).await;
    let shapes = small_values(if full() { 3 << 20 } else { 3 << 19 });
    let object = |name: &str, rest: &str| {
        let books = rest.split_once("\"books\":").map_or("", |(_, set)| set);
        let fields = if books.is_empty() {
            String::new()
        } else {
            format!(
                ",\"managedFields\":[{{\"manager\":\"m\",\"operation\":\"Update\",\"fieldsType\":\"FieldsV1\",\"fieldsV1\":{books}}}]"
            )
        };
        let rest = rest.split_once(",\"books\":").map_or(rest, |(rest, _)| rest);
        let text = format!(
            "{{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{{\"name\":\"{name}\",\"namespace\":\"ns-{name}\"{fields}}},{rest}}}"
        );
        Object::parse(text.as_bytes()).unwrap()
    };
    let namespaces: Vec<String> = shapes.iter().map(|(name, _)| format!("ns-{name}")).collect();
    for ((name, [before, _]), namespace) in shapes.iter().zip(&namespaces) {
        sim.create_namespace(namespace).unwrap();
        sim.create("configmaps", object(name, before)).unwrap();
    }
    let at = free_address();
    let mut daemon = Daemon::new(&sim, &["configmaps"]);
    let watch = format!("resources = [\"configmaps\"]\nnamespaces = {namespaces:?}");
    quiet(&daemon, &watch, &format!("[ui]\nlisten = {at:?}\n"));
    start(&mut daemon);
    let count = shapes.len() as u64;
    reach(&mut daemon, count).await;
    bounded(&mut daemon, "objects of very many values, listed");
    for ((name, [_, after]), namespace) in shapes.iter().zip(&namespaces) {
        sim.replace("configmaps", namespace, name, object(name, after)).unwrap();
    }
    reach(&mut daemon, 2 * count).await;
    bounded(&mut daemon, "objects of very many values, changed");
    let mut questions: Vec<String> = (1..=2 * count).map(|seq| format!("entry?seq={seq}")).collect();
    questions.extend((1..=count).map(|seq| format!("diff?from={seq}&to={}", seq + count)));
    questions
        .extend(shapes.iter().map(|(name, _)| format!("object?resource=configmaps&namespace=ns-{name}&name={name}")));
    questions.extend(["entries?quiet=1&limit=1000", "churn"].map(str::to_owned));
    // Several look at once.
    std::thread::scope(|scope| {
        for part in questions.chunks(questions.len().div_ceil(4)) {
            let at = &at;
            scope.spawn(move || {
                for question in part {
                    // A connection ends after a minute, which a busy machine may need for one of these.
                    let ask = |_| http_get(at, &format!("/api/v1/{question}")).ok();
                    let got = (0..3).find_map(ask).expect("an answer to one of three");
                    assert!(matches!(got.status, 200 | 400 | 503), "{question}: {}", got.status);
                }
            });
        }
    });
    bounded(&mut daemon, "objects of very many values, shown");
    daemon.stop().await;
}
