//! State that only the running daemon knows, for other processes: a small file beside the journal, written when the state
//! changes. It is not synced and nothing depends on it; a torn file, or one of another process, is ignored.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::SystemTime;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::{HaView, WitnessStatus};
use crate::core::k8s::audited::Unexplained;
use crate::core::os::{FileExt, OpenOptionsExt};
use crate::journal::Pause;

/// The file in the state directory that the daemon leaves it in.
pub const FILE: &str = "daemon.json";

/// A process that has made no progress for so long is stopped. It looks around every two seconds, and may wait for the disk.
const FROZEN_MIN: SignedDuration = SignedDuration::from_secs(15);

/// A component whose progress systemd's watchdog depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The sources and discovery.
    Reading,
    /// The journal's thread.
    Writing,
}

impl Part {
    /// Every part.
    pub const ALL: [Self; 2] = [Self::Reading, Self::Writing];

    /// Its name for people, in metrics and in the log.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reading => "reading the cluster",
            Self::Writing => "the journal",
        }
    }
}

/// State of the daemon.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Live {
    /// Its process.
    pub pid: u32,
    /// Its version.
    pub version: String,
    /// Start time.
    pub started: Option<Timestamp>,
    /// True once every source has resumed or finished its first list.
    pub ready: bool,
    /// Parts that make no progress: systemd's watchdog is not fed.
    pub stalled: Vec<String>,
    /// Configured resources that the API server does not serve.
    pub waiting: Vec<String>,
    /// Cause and remedy of each wait, by name.
    pub waiting_because: BTreeMap<String, Because>,
    /// API groups that discovery does not report, with the cause; empty if it is complete.
    pub discovery: BTreeMap<String, Trouble>,
    /// Time of the last answer of an API server that is silent.
    pub silent_since: Option<Timestamp>,
    /// Sources of which the API server's watch cache is wrong, by name.
    pub cache_faults: BTreeMap<String, CacheFault>,
    /// The file descriptors that it has open.
    pub open_files: u64,
    /// The most that it may have.
    pub open_files_limit: u64,
    /// Number of times the clock was set or the machine was suspended.
    pub clock_jumps: u64,
    /// The last time that it was.
    pub last_jump: Option<Jump>,
    /// Failed deliveries in a row, by sink; absent where there is none.
    pub tries: BTreeMap<String, u64>,
    /// Set while nothing is taken from the cluster for want of room. The journal says it too, where there is room for that.
    pub paused: Option<Pause>,
    /// Its part in the shared log; absent without `[ha]`. [`Live::set_ha`] changes it.
    pub ha: Option<HaView>,
    /// Set while a newer configuration was refused, and the one before is in force.
    pub refused: Option<Trouble>,
    /// Set while a place lacks the newest evidence.
    pub evidence: Option<Trouble>,
    /// Witnesses of the evidence.
    pub witnesses: Vec<WitnessStatus>,
    /// Changes that no request of the audit logs explains.
    pub unexplained: Unexplained,
    /// Set while nothing runs, because the last run ended by an error; it is begun again.
    pub failed: Option<Trouble>,
}

/// Fault of the API server's watch cache: it shows objects of a source otherwise than etcd has them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheFault {
    /// When the first of them was found, or the API server's own comparison failed.
    pub since: Timestamp,
    /// Number of them that are known; 0 where only the API server says so.
    pub objects: u64,
    /// One of them, as namespace and name; absent where none is known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub example: String,
}

/// Cause of a wait.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Because {
    /// The cause, as a sentence.
    pub what: String,
    /// The remedy.
    pub remedy: String,
}

/// A condition that keeps a daemon from running as its configuration says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trouble {
    /// Since when.
    pub since: Timestamp,
    /// The cause, as a sentence.
    pub why: String,
    /// Number of consecutive occurrences.
    pub times: u32,
}

impl Trouble {
    /// Records a new occurrence with its one-line cause; `before` is the trouble up to now, if any.
    #[must_use]
    pub fn new(why: &str, before: Option<&Self>) -> Self {
        let since = before.map_or_else(Timestamp::now, |before| before.since);
        Self { since, why: in_one_line(why), times: before.map_or(0, |before| before.times) + 1 }
    }
}

/// The clock went other than time did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Jump {
    /// Time of the observation, by the clock after it.
    pub at: Timestamp,
    /// By how much; negative where the clock was set back.
    pub seconds: i64,
}

/// A text of several lines, such as every problem of a configuration, as one line.
#[must_use]
pub fn in_one_line(text: &str) -> String {
    let line = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    text.lines().map(line).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")
}

impl Live {
    /// Reports whether nearly all file descriptors are in use.
    #[must_use]
    pub fn files_are_scarce(&self) -> bool {
        self.open_files.saturating_mul(5) > self.open_files_limit.saturating_mul(4)
    }

    /// Opens the file for [`Live::write`], and keeps it open: when file descriptors run out, that is to be reported.
    ///
    /// # Errors
    /// Where the file cannot be written.
    pub fn file(dir: &Path) -> std::io::Result<fs::File> {
        fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(dir.join(FILE))
    }

    /// Leaves it for [`Live::read`].
    ///
    /// # Errors
    /// Where the file cannot be written.
    pub fn write(&self, file: &fs::File) -> std::io::Result<()> {
        let text = serde_json::to_vec(self)?;
        file.write_all_at(&text, 0)?;
        file.set_len(text.len() as u64)
    }

    /// Notes in the file that the process makes progress, which it does every two seconds.
    ///
    /// # Errors
    /// Where the file cannot be changed.
    pub fn beat(file: &fs::File) -> std::io::Result<()> {
        file.set_modified(SystemTime::from(Timestamp::now()))
    }

    /// Returns the time of the last progress of the process, if that is so long ago that it is stopped, or its machine is.
    #[must_use]
    pub fn frozen_since(dir: &Path, now: Timestamp) -> Option<Timestamp> {
        let last = Timestamp::try_from(fs::metadata(dir.join(FILE)).ok()?.modified().ok()?).ok()?;
        (now.duration_since(last) > FROZEN_MIN).then_some(last)
    }

    /// Reads the state that the daemon with this process id has left.
    #[must_use]
    pub fn read(dir: &Path, pid: u32) -> Option<Self> {
        Self::last(dir).filter(|live| live.pid == pid)
    }

    /// Reads the state that was left last, by any process.
    #[must_use]
    pub fn last(dir: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(dir.join(FILE)).ok()?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_without_progress_is_frozen_since_its_last() {
        let dir = tempfile::tempdir().unwrap();
        let now = Timestamp::now();
        assert_eq!(Live::frozen_since(dir.path(), now), None, "nobody left a file");
        Live::beat(&Live::file(dir.path()).unwrap()).unwrap();
        let after = |seconds| Live::frozen_since(dir.path(), now + SignedDuration::from_secs(seconds));
        assert_eq!(after(5), None);
        assert!(after(30).is_some_and(|since| since.duration_since(now).abs() < SignedDuration::from_secs(10)));
    }

    #[test]
    fn what_is_torn_or_of_another_process_is_not_believed() {
        let dir = tempfile::tempdir().unwrap();
        let live = Live { pid: 7, stalled: vec!["the journal".to_owned()], ..Live::default() };
        assert_eq!(Live::read(dir.path(), 7), None);
        let file = Live::file(dir.path()).unwrap();
        Live { version: "a longer one than before".to_owned(), ..live.clone() }.write(&file).unwrap();
        live.write(&file).unwrap();
        assert_eq!(Live::read(dir.path(), 7), Some(live));
        assert_eq!(Live::read(dir.path(), 8), None);
        let path = dir.path().join(FILE);
        let half = fs::read(&path).unwrap();
        fs::write(&path, &half[..half.len() / 2]).unwrap();
        assert_eq!(Live::read(dir.path(), 7), None);
    }
}
