//! Dead letters that `decklog replay` has delivered. Only the daemon writes to the journal, so they are left in a small file in
//! the state directory, which the daemon reads at intervals, or at its next start.
//!
//! The file says when each entry had been dead-lettered. So it means those and no later ones, however often it is read: one
//! that a crash left after it was taken up changes nothing.
//!
//! # Decision: the daemon records what a replay delivered
//!
//! Context: One process writes to a journal.
//! Decision: `decklog replay` leaves a small file with the delivered dead letters, which the daemon reads at intervals or at
//! its next start, and removes after the commit. Read twice it means the same.
//! Cost: A delay of seconds.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::JournalError;
use crate::core::model::Seq;
use crate::core::os::OpenOptionsExt;
use crate::core::runtime;

const PREFIX: &str = "replayed-";
const SUFFIX: &str = ".json";

/// Entries that were dead-lettered for a sink and have been delivered since.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settled {
    /// The sink.
    pub sink: String,
    /// Each entry, and when it was dead-lettered (microseconds since 1970).
    pub entries: Vec<(Seq, i64)>,
}

impl Settled {
    /// Leaves it for the daemon. On disk when this returns.
    ///
    /// # Errors
    /// Where the state directory cannot be written.
    pub fn leave(&self, dir: &Path) -> Result<(), JournalError> {
        let failed = |source| JournalError::Io { what: format!("cannot write to {}", dir.display()), source };
        let name = format!("{PREFIX}{:016x}", runtime::random());
        let (made, whole) = (dir.join(format!("{name}.new")), dir.join(name + SUFFIX));
        let write = || -> io::Result<()> {
            // The daemon may be of another user than who replays; nobody else comes into the directory.
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o644).open(&made)?;
            file.write_all(&serde_json::to_vec(self)?)?;
            file.sync_all()?;
            fs::rename(&made, &whole)?;
            File::open(dir)?.sync_all()
        };
        write().map_err(failed)
    }

    /// All that was left, with the files it is in. What cannot be read is removed, with a word.
    pub fn left(dir: &Path) -> Vec<(PathBuf, Self)> {
        let Ok(files) = fs::read_dir(dir) else { return Vec::new() };
        let mut left = Vec::new();
        for file in files.flatten() {
            let name = file.file_name();
            if !name.to_str().is_some_and(|name| name.starts_with(PREFIX) && name.ends_with(SUFFIX)) {
                continue;
            }
            let path = file.path();
            match fs::read(&path).and_then(|bytes| Ok(serde_json::from_slice(&bytes)?)) {
                Ok(settled) => left.push((path, settled)),
                Err(error) => {
                    tracing::warn!(
                        "{} says what a replay delivered and cannot be read, so that these entries stay listed: {error}",
                        path.display()
                    );
                    drop(fs::remove_file(&path));
                }
            }
        }
        left
    }
}
