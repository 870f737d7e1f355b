//! Places of evidence: a directory, whose files others copy or read over HTTP.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// A directory with a directory for each tree.
#[derive(Clone, Debug)]
pub struct Directory(PathBuf);

impl Directory {
    /// A directory, which is made with the first file.
    #[must_use]
    pub const fn new(path: PathBuf) -> Self {
        Self(path)
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Reads a file; none where there is none.
    ///
    /// # Errors
    /// Where it cannot be read.
    pub fn get(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        match fs::read(self.0.join(name)) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes a file, whole or not at all. It is on the disk after [`Directory::sync`].
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn put(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let path = self.0.join(name);
        let parent = path.parent().unwrap_or(&self.0);
        fs::create_dir_all(parent)?;
        let made = path.with_file_name(format!(".{}.new", path.file_name().unwrap_or_default().to_string_lossy()));
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o644).open(&made)?;
        file.write_all(bytes)?;
        fs::rename(&made, &path)
    }

    /// Waits until everything that was written is on the disk.
    ///
    /// # Errors
    /// Where the disk refuses.
    pub fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::syncfs(File::open(&self.0)?)?)
    }

    /// Removes the partial versions of a tile that is complete.
    ///
    /// # Errors
    /// Where they cannot be removed.
    pub fn remove_partial(&self, tile: &str) -> io::Result<()> {
        match fs::remove_dir_all(self.0.join(format!("{tile}.p"))) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}
