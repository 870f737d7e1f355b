//! A recording of a log for judges of others: the log, the source of each entry, and the durable positions of the sources at many
//! moments. Each look is one read transaction, so what it says of positions and of entries is what a crash would have left then.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use decklog_testkit::support::journal;
use rusqlite::{Connection, OpenFlags, Transaction};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::oracle::{self, Compactions};

/// Time between two looks.
const PACE: Duration = Duration::from_millis(100);

/// See the module.
pub(super) struct Recorder {
    state: Arc<Mutex<PathBuf>>,
    looks: Arc<Mutex<Vec<Value>>>,
    task: JoinSet<()>,
}

impl Recorder {
    /// Begins to look at the journal of a daemon, which is there.
    pub(super) fn start(state: PathBuf) -> Self {
        let looks = Arc::new(Mutex::new(Vec::new()));
        look(&state, &looks, false);
        let state = Arc::new(Mutex::new(state));
        let mut task = JoinSet::new();
        task.spawn({
            let (state, looks) = (Arc::clone(&state), Arc::clone(&looks));
            async move {
                let mut pace = tokio::time::interval(PACE);
                pace.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
                loop {
                    pace.tick().await;
                    look(&state.lock().unwrap(), &looks, false);
                }
            }
        });
        Self { state, looks, task }
    }

    /// Looks at the journal of another daemon from now on, which has taken over.
    pub(super) fn turn_to(&self, state: PathBuf) {
        *self.state.lock().unwrap() = state;
    }

    /// The newest seq on disk.
    pub(super) fn head(&self) -> u64 {
        look(&self.state.lock().unwrap(), &self.looks, false)
    }

    /// The daemon has ended: what is there now is what its next life begins with.
    pub(super) fn life_ends(&self) {
        look(&self.state.lock().unwrap(), &self.looks, true);
    }

    /// Sources that have no position at the moment.
    pub(super) fn lost(&self) -> Vec<String> {
        let mut conn = open(&self.state.lock().unwrap());
        let read = conn.transaction().unwrap();
        let text =
            "SELECT r.plural FROM source s JOIN resource r ON r.id = s.resource WHERE s.active AND s.resume IS NULL";
        column(&read, text)
    }

    /// Writes the recording of a daemon that has ended into a directory.
    pub(super) async fn write(mut self, dir: &Path, etcd: &Path, first: u64, compactions: &Compactions) {
        assert!(self.task.try_join_next().is_none(), "a look has failed");
        self.task.shutdown().await;
        self.life_ends();
        let state = self.state.lock().unwrap().clone();
        let mut conn = open(&state);
        let read = conn.transaction().unwrap();
        let names: Vec<String> = column(
            &read,
            "SELECT s.id || ' ' || r.plural || iif(r.api_group = '', '', '.' || r.api_group)
             FROM source s JOIN resource r ON r.id = s.resource ORDER BY s.id",
        );
        let sources = names.iter().map(|line| {
            let (id, name) = line.split_once(' ').unwrap();
            json!({"id": id.parse::<i64>().unwrap(), "name": name, "prefix": oracle::place_of(name)})
        });
        let compactions = compactions.lock().unwrap();
        let compactions =
            compactions.iter().map(|(revision, asked)| json!({"revision": revision, "asked": asked.to_string()}));
        let recording = json!({
            "compactions": compactions.collect::<Vec<_>>(),
            "etcd": etcd, "first": first,
            // What decklog redacts, and what the API server serves otherwise than it stores it.
            "blank": ["/registry/secrets/", "/registry/apiextensions.k8s.io/customresourcedefinitions/"],
            "sources": sources.collect::<Vec<_>>(),
            "owners": column::<i64>(&read, "SELECT source FROM entry ORDER BY seq"),
            "looks": *self.looks.lock().unwrap(),
        });
        fs::write(dir.join("recording.json"), recording.to_string()).unwrap();
        let mut lines = journal::lines(&state).unwrap().join("\n");
        lines.push('\n');
        fs::write(dir.join("log.jsonl"), lines).unwrap();
    }
}

fn open(state: &Path) -> Connection {
    Connection::open_with_flags(state.join("journal.db"), OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap()
}

fn column<T: rusqlite::types::FromSql>(read: &Transaction<'_>, text: &str) -> Vec<T> {
    let mut select = read.prepare(text).unwrap();
    let rows = select.query_map([], |row| row.get(0)).unwrap();
    rows.map(Result::unwrap).collect()
}

/// Keeps the newest seq and the positions. Looks are kept in their order.
fn look(state: &Path, looks: &Mutex<Vec<Value>>, end: bool) -> u64 {
    let mut looks = looks.lock().unwrap();
    let mut conn = open(state);
    let read = conn.transaction().unwrap();
    let head: u64 = read.query_row("SELECT coalesce(max(seq), 0) FROM entry", [], |row| row.get(0)).unwrap();
    let mut select = read
        .prepare(
            "SELECT id, CAST(coalesce(resume, given_up) AS INTEGER) FROM source WHERE coalesce(resume, given_up) IS NOT NULL",
        )
        .unwrap();
    let rows = select.query_map([], |row| Ok((row.get::<_, i64>(0)?.to_string(), row.get::<_, i64>(1)?))).unwrap();
    let positions: BTreeMap<String, i64> = rows.map(Result::unwrap).collect();
    looks.push(json!({"head": head, "end": end, "positions": positions}));
    head
}
