//! The time from a write until its watchers have it: decklog's file and its HTTP endpoint beside `kubectl get --watch` and a bare watch.
//!
//! Each write carries the moment before its request. What etcd and the API server take is part of every time here: the bare watch,
//! which the bench opens itself beside each client, has the least that anybody can have.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::mem::MaybeUninit;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use axum::Router;
use axum::routing::post;
use futures::StreamExt as _;
use http_body_util::BodyExt as _;
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use serde_json::json;

use crate::clients::{MAPS, USER, fill};
use crate::decklog::Decklog;
use crate::harness::{Cluster, Process, Version, programs, until};
use crate::table::{Table, thousands};

const OBJECTS: usize = 100;
/// Bytes of each object.
const SIZE: usize = 1_000;
/// Writes in a second.
const RATE: u32 = 1_000;
const WRITES: u64 = 20_000;
/// Writes whose answers are awaited at the same time.
const AT_ONCE: usize = 32;
const PATIENCE: Duration = Duration::from_secs(300);

/// A client whose times are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Client {
    File,
    Http,
    Kubectl,
}

/// Nanoseconds since 1970.
fn now() -> u64 {
    u64::try_from(SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos()).unwrap()
}

/// The first arrival of each write, by the moment that it carries.
#[derive(Clone, Default)]
struct Arrivals(Arc<Mutex<HashMap<u64, u64>>>);

impl Arrivals {
    /// Takes what arrived just now. Of the moments in it the last one is that of the write: the others are of what was there before.
    fn take(&self, text: &str) {
        let arrived = now();
        let moments = text.split(|c: char| !c.is_ascii_digit()).filter(|digits| digits.len() == 19);
        if let Some(moment) = moments.filter_map(|digits| digits.parse().ok()).max() {
            self.0.lock().unwrap().entry(moment).or_insert(arrived);
        }
    }

    fn len(&self) -> u64 {
        self.0.lock().unwrap().len() as u64
    }

    /// The time that so many in a hundred do not exceed, in milliseconds.
    fn percentile(&self, percent: usize) -> f64 {
        let mut lags: Vec<u64> =
            self.0.lock().unwrap().iter().map(|(sent, arrived)| arrived.saturating_sub(*sent)).collect();
        lags.sort_unstable();
        lags[(lags.len() - 1) * percent / 100] as f64 / 1e6
    }
}

/// Follows a file from a thread of its own until it is dropped. The kernel wakes it at each write.
struct Follower {
    path: PathBuf,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Follower {
    fn start(path: PathBuf, arrivals: Arrivals) -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let (end, file) = (Arc::clone(&ends), path.clone());
        let changes = inotify::init(CreateFlags::CLOEXEC).unwrap();
        inotify::add_watch(&changes, file.parent().unwrap(), WatchFlags::CREATE | WatchFlags::MODIFY).unwrap();
        let follow = move || {
            let (mut reader, mut line) = (None, String::new());
            let mut buffer = [MaybeUninit::uninit(); 4096];
            let mut change = inotify::Reader::new(&changes, &mut buffer);
            while !end.load(Ordering::Relaxed) {
                reader = reader.or_else(|| File::open(&file).ok().map(BufReader::new));
                let read = reader.as_mut().map_or(0, |reader| reader.read_line(&mut line).unwrap());
                if line.ends_with('\n') {
                    arrivals.take(&line);
                    line.clear();
                } else if read == 0 {
                    change.next().unwrap();
                }
            }
        };
        let thread = std::thread::Builder::new().name("follower".to_owned()).spawn(follow).unwrap();
        Self { path, ends, thread: Some(thread) }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        File::create(self.path.with_extension("end")).unwrap();
        self.thread.take().unwrap().join().unwrap();
    }
}

/// Serves an endpoint that takes everything, and gives its address.
async fn endpoint(arrivals: Arrivals) -> String {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = format!("http://{}/", listener.local_addr().unwrap());
    let take = async move |body: String| body.split("\"specversion\"").for_each(|event| arrivals.take(event));
    let serve = axum::serve(listener, Router::new().route("/", post(take))).into_future();
    tokio::spawn(serve);
    address
}

/// Writes at a steady rate, beside a bare watch of the bench.
async fn write(cluster: &Cluster) -> Arrivals {
    let (bare, list) = (Arrivals::default(), cluster.get(MAPS).await.unwrap());
    let version = list["metadata"]["resourceVersion"].as_str().unwrap();
    let mut watch = cluster.open(&format!("{MAPS}?watch=true&resourceVersion={version}")).await;
    let witness = async {
        let mut rest = String::new();
        while bare.len() < WRITES {
            let frame = watch.frame().await.unwrap().unwrap();
            rest.push_str(std::str::from_utf8(&frame.into_data().unwrap()).unwrap());
            while let Some((line, after)) = rest.split_once('\n') {
                bare.take(line);
                rest = after.to_owned();
            }
        }
    };
    let beat = tokio::time::interval(Duration::from_secs(1) / RATE);
    let writes = futures::stream::unfold((beat, 0), async |(mut beat, n)| {
        beat.tick().await;
        (n < WRITES).then_some((n, (beat, n + 1)))
    });
    let writes = writes.for_each_concurrent(AT_ONCE, async |n| {
        let path = format!("{MAPS}/m{}", n % OBJECTS as u64);
        cluster.patch(&path, &json!({"data": {"n": now().to_string()}})).await;
    });
    tokio::join!(witness, writes);
    bare
}

/// Measures one client, beside the bare watch.
async fn measured(cluster: &Cluster, client: Client, number: usize) -> (Arrivals, Arrivals) {
    let arrivals = Arrivals::default();
    let (mut daemon, mut process, mut follower) = (None, None, None);
    if client == Client::Kubectl {
        let kubeconfig = cluster.kubeconfig(USER).display().to_string();
        let arguments = [
            "kubectl",
            "--kubeconfig",
            &kubeconfig,
            "get",
            "configmaps",
            "--watch-only",
            "-o",
            "custom-columns=N:.data.n",
        ];
        let path = cluster.path(&format!("lag-{number}.out"));
        let file = File::create(&path).unwrap();
        let program = programs().join(cluster.kube());
        process = Some(Process::start(
            "kubectl",
            &program,
            &arguments.map(str::to_owned),
            &path.with_extension("log"),
            |command| {
                command.stdout(file).env("HOME", cluster.path(""));
            },
        ));
        follower = Some(Follower::start(path, arrivals.clone()));
    } else {
        let url = endpoint(arrivals.clone()).await;
        let started = Decklog::configured(cluster, &format!("lag-{number}"), |dir| {
            let sink = match client {
                Client::Http => format!("type = \"http\"\nurl = {url:?}\nformat = \"batched\"\n"),
                Client::File | Client::Kubectl => format!("type = \"file\"\npath = {:?}\n", dir.join("log.jsonl")),
            };
            format!(
                "[cluster]\nname = \"lag\"\nkubeconfig = {:?}\n[state]\npath = {:?}\n[[watch]]\nresources = [\"configmaps\"]\n[[sink]]\nname = \"to\"\n{sink}",
                cluster.kubeconfig(USER),
                dir.join("state"),
            )
        });
        if client == Client::File {
            follower = Some(Follower::start(started.log(), arrivals.clone()));
        }
        let started = daemon.insert(started);
        started.start();
        started.ready().await;
    }
    // It follows once one change has come through.
    until("the first change", PATIENCE, async || {
        cluster.patch(&format!("{MAPS}/m0"), &json!({"data": {"n": now().to_string()}})).await;
        if arrivals.len() > 0 { Ok(()) } else { Err("nothing".to_owned()) }
    })
    .await;
    arrivals.0.lock().unwrap().clear();
    let bare = write(cluster).await;
    until("the last change", PATIENCE, async || {
        let wanted = bare.0.lock().unwrap();
        let missing = wanted.keys().filter(|sent| !arrivals.0.lock().unwrap().contains_key(*sent)).count();
        if missing == 0 { Ok(()) } else { Err(format!("{missing} are missing")) }
    })
    .await;
    drop(follower);
    if let Some(mut daemon) = daemon {
        daemon.stop().await;
    }
    if let Some(process) = process {
        process.kill();
    }
    arrivals.0.lock().unwrap().retain(|sent, _| bare.0.lock().unwrap().contains_key(sent));
    (arrivals, bare)
}

/// Measures all of them, one after the other.
pub async fn measure(version: Version) -> Table {
    let cluster = Cluster::start_measured(version).await;
    fill(&cluster, OBJECTS, SIZE).await;
    let heading = "Lag of a change";
    let mut table =
        Table::new(heading, &["from the request of a write", "p50", "p99", "a bare watch beside it, p50", "p99"]);
    let rows = [
        (Client::File, "to the line in decklog's file, after its sync"),
        (Client::Http, "to decklog's http sink, `format = \"batched\"`"),
        (Client::Kubectl, "to the output of `kubectl get --watch`"),
    ];
    for (number, (client, what)) in rows.into_iter().enumerate() {
        let (arrivals, bare) = measured(&cluster, client, number).await;
        let times = [&arrivals, &bare]
            .into_iter()
            .flat_map(|one| [50, 99].map(|percent| format!("{:.1} ms", one.percentile(percent))));
        let what = format!("{what}, {} writes at {RATE} a second", thousands(usize::try_from(WRITES).unwrap()));
        table.cells(std::iter::once(what).chain(times).collect());
    }
    table
}
