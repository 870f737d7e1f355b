//! The journal that the book asks: what `decklog demo --story` keeps, as everybody can.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

/// A directory with `config.toml`, the journal and `events.jsonl`, in which the commands of the book run as they are written.
pub struct Friday {
    _above: TempDir,
    path: PathBuf,
}

impl Friday {
    /// Returns the path of the directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Keeps the story of the book.
///
/// # Panics
/// If decklog does not.
#[must_use]
pub fn friday() -> Friday {
    let above = tempfile::tempdir().unwrap();
    let mut command = Command::new(crate::program());
    command.current_dir(above.path()).args(["demo", "--story"]).env_clear().stdin(Stdio::null());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    Friday { path: above.path().join("friday"), _above: above }
}
