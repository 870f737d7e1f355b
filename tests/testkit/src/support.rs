//! The daemon under test: the real binary, with a directory, a configuration and a notify socket of its own.

mod daemon;
pub mod journal;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use decklog::sim::faults::{On, Seen};
use decklog::sim::{self, Sim};

use crate::judge::{Kind, Row, Scope};
use crate::ports::free_port;
pub use daemon::Daemon;

/// How long anything may take: far longer than it does, even on a busy machine.
pub const LIMIT: Duration = Duration::from_secs(100);

/// Tries until it succeeds; every wait of these tests is this one.
pub async fn until<T>(what: &str, attempt: impl AsyncFnMut() -> Result<T, String>) -> T {
    match tries(Duration::from_millis(15), attempt).await {
        Ok(found) => found,
        Err(objection) => panic!("waited {LIMIT:?} in vain for {what}: {objection}"),
    }
}

/// Tries once in a tick until it succeeds; the last objection where it never does.
pub async fn tries<T>(tick: Duration, mut attempt: impl AsyncFnMut() -> Result<T, String>) -> Result<T, String> {
    let mut ticks = tokio::time::interval(tick);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut objection = String::new();
    let found = tokio::time::timeout(LIMIT, async {
        loop {
            ticks.tick().await;
            match attempt().await {
                Ok(found) => return found,
                Err(text) => objection = text,
            }
        }
    });
    found.await.map_err(|_| objection)
}

/// Numbers that a seed names.
pub struct Dice(pub u64);

impl Dice {
    /// From 0 to below `sides`.
    pub fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % sides
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.roll(from.len())]
    }
}

/// A simulated cluster whose quiet watches are not quiet for long.
pub async fn cluster() -> Sim {
    cluster_with(|_| {}).await
}

pub async fn cluster_with(change: impl FnOnce(&mut sim::Settings)) -> Sim {
    let mut settings = sim::Settings { bookmarks_every: Duration::from_millis(500), ..sim::Settings::default() };
    change(&mut settings);
    Sim::start_with(settings).await.unwrap()
}

/// What a command came to.
#[derive(Debug)]
pub struct Answer {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Answer {
    /// It did what it was asked to.
    #[track_caller]
    pub fn done(self) -> String {
        assert_eq!(self.code, 0, "{self:#?}");
        self.out
    }

    /// It ended with this code and said all of this on standard error.
    #[track_caller]
    pub fn refused(self, code: i32, says: &[&str]) -> String {
        assert_eq!(self.code, code, "{self:#?}");
        for text in says {
            assert!(self.err.contains(text), "does not say {text:?}: {self:#?}");
        }
        self.err
    }
}

/// Runs the binary with nothing of this process's environment.
pub async fn decklog(dir: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Answer {
    let mut command = tokio::process::Command::new(crate::program());
    command.args(arguments).current_dir(dir).env_clear().env("HOME", dir).env("TZ", "UTC");
    command.envs(environment.iter().copied());
    let running = command.stdin(Stdio::null()).kill_on_drop(true).output();
    let output = tokio::time::timeout(LIMIT, running).await.expect("a command that ends").unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Answer {
        code: output.status.code().unwrap_or_else(|| panic!("{}", output.status)),
        out: text(output.stdout),
        err: text(output.stderr),
    }
}

/// The simulator's history in the judge's words.
pub fn truth(sim: &Sim) -> Vec<Row> {
    let row = |row: &std::sync::Arc<sim::Row>| Row {
        rev: row.revision,
        kind: match row.kind {
            sim::Kind::Added => Kind::Added,
            sim::Kind::Modified => Kind::Modified,
            sim::Kind::Deleted => Kind::Deleted,
        },
        uid: row.uid.to_string(),
        resource: row.resource.to_string(),
        key: (row.namespace.to_string(), row.name.to_string()),
    };
    sim.history().iter().map(row).collect()
}

/// Everything of these resources, from a first list after `started` up to now; no resources for all.
pub fn scope(sim: &Sim, started: u64, resources: &[&str]) -> Scope {
    let resources = (!resources.is_empty()).then(|| resources.iter().map(|name| (*name).to_owned()).collect());
    Scope { late: false, started, upto: sim.revision(), namespaces: None, resources }
}

/// The lists that were asked for: neither further pages, nor the question whether the server has a version already
/// (one object, not older than it), nor the metadata of what brings new kinds, nor the Leases that date versions.
pub fn lists(sim: &Sim) -> Vec<String> {
    let first = |seen: &Seen| {
        let probe = seen.param("limit").as_deref() == Some("1") && seen.query.contains("NotOlderThan");
        let wakes = seen.accept.contains("PartialObjectMetadata");
        let dates = seen.path.ends_with("/leases") && seen.param("limit").as_deref() == Some("20");
        On::list("*").matches(seen) && !probe && !wakes && !dates && seen.param("continue").is_none()
    };
    sim.requests().into_iter().filter(first).map(|seen| seen.path).collect()
}

/// An answer to a GET: the status, the headers, the body.
#[derive(Debug)]
pub struct Got {
    pub status: u16,
    pub head: String,
    pub body: String,
}

/// Asks the daemon's own endpoints: `at` is an address, or the path of a unix socket.
pub fn http_get(at: &str, path: &str) -> Result<Got, String> {
    let ask = |mut stream: Box<dyn Stream>| {
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok::<_, std::io::Error>(text)
    };
    let limit = Some(LIMIT);
    let open = || -> std::io::Result<Box<dyn Stream>> {
        if at.starts_with('/') {
            let stream = UnixStream::connect(at)?;
            stream.set_read_timeout(limit)?;
            Ok(Box::new(stream))
        } else {
            let stream = TcpStream::connect(at)?;
            stream.set_read_timeout(limit)?;
            Ok(Box::new(stream))
        }
    };
    let text = open().and_then(ask).map_err(|error| format!("{at}{path}: {error}"))?;
    let (head, body) = text.split_once("\r\n\r\n").ok_or_else(|| format!("no answer: {text:?}"))?;
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).ok_or_else(|| head.to_owned())?;
    Ok(Got { status, head: head.to_owned(), body: body.to_owned() })
}

trait Stream: Read + Write {}
impl Stream for TcpStream {}
impl Stream for UnixStream {}

/// Copies a directory with all that is below it.
pub fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let to = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &to);
        } else {
            std::fs::copy(&path, to).unwrap();
        }
    }
}

/// An address on loopback that nobody else takes.
pub fn free_address() -> String {
    format!("127.0.0.1:{}", free_port())
}
