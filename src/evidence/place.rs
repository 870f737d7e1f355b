//! Places of evidence: a directory, or a bucket. Others copy them, or read them over HTTP.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use bytes::Bytes;

use crate::core::bucket::Objects;
use crate::core::os::{self, OpenOptionsExt as _};
use crate::core::runtime;

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

    /// Writes a file, whole or not at all, also where the power goes: what is in it is on the disk before its name is. The name is after
    /// [`Directory::sync`].
    fn put(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.write(name, bytes, File::sync_data)
    }

    /// Writes a file, which is whole after [`Directory::sync`].
    fn put_unsynced(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.write(name, bytes, |_| Ok(()))
    }

    fn write(&self, name: &str, bytes: &[u8], sync: impl Fn(&File) -> io::Result<()>) -> io::Result<()> {
        let path = self.0.join(name);
        let parent = path.parent().unwrap_or(&self.0);
        fs::create_dir_all(parent)?;
        let made = path.with_file_name(format!(".{}.new", path.file_name().unwrap_or_default().to_string_lossy()));
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o644).open(&made)?;
        file.write_all(bytes)?;
        sync(&file)?;
        fs::rename(&made, &path)
    }

    /// Waits until everything that was written is on the disk.
    fn sync(&self) -> io::Result<()> {
        let dir = File::open(&self.0)?;
        #[cfg(target_os = "linux")]
        return Ok(rustix::fs::syncfs(dir)?);
        // Only a daemon writes here, and a daemon is on Linux.
        #[cfg(not(target_os = "linux"))]
        dir.sync_all()
    }

    /// Removes the partial versions of a tile that is complete.
    fn remove_partial(&self, tile: &str) -> io::Result<()> {
        let parts = self.0.join(format!("{tile}.p"));
        let files = match fs::read_dir(&parts) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            files => files?,
        };
        for file in files {
            fs::remove_file(file?.path())?;
        }
        fs::remove_dir(parts)
    }

    /// Checks that it can be written to, or made.
    fn check(&self) -> io::Result<()> {
        if !self.0.exists() {
            let above = self.0.ancestors().find(|path| path.is_dir()).unwrap_or_else(|| Path::new("."));
            return os::may_write(above);
        }
        let file = self.0.join(".decklog-check");
        fs::write(&file, "")?;
        fs::remove_file(file)
    }
}

/// A place. The sentences of its errors name it.
#[derive(Debug)]
pub enum Place {
    /// A directory.
    Directory(Directory),
    /// A bucket.
    Bucket(Box<dyn Objects>),
}

impl Place {
    /// Returns its name, for people.
    #[must_use]
    pub fn shown(&self) -> String {
        match self {
            Self::Directory(directory) => directory.path().display().to_string(),
            Self::Bucket(objects) => objects.shown(),
        }
    }

    /// Reads a file; none where there is none.
    pub(super) async fn get(&mut self, name: &str) -> Result<Option<Bytes>, String> {
        let file = name.to_owned();
        match self {
            Self::Directory(directory) => {
                in_directory(directory, move |directory| Ok(directory.get(&file)?.map(Bytes::from))).await
            }
            Self::Bucket(objects) => objects.get(name).await,
        }
    }

    /// Writes a file. Where the machine may end at any time it is there after [`Place::sync`].
    pub(super) async fn put(&mut self, name: &str, bytes: Bytes) -> Result<(), String> {
        let file = name.to_owned();
        match self {
            Self::Directory(directory) => in_directory(directory, move |directory| directory.put(&file, &bytes)).await,
            Self::Bucket(objects) => objects.put(name, bytes).await,
        }
    }

    /// Writes a checkpoint over the one that was read last. In a bucket it is not written where another one is there by now: a leader that was
    /// paused while it wrote would put an old one in the place of its successor's.
    pub(super) async fn put_checkpoint(&mut self, name: &str, bytes: Bytes) -> Result<(), String> {
        match self {
            Self::Directory(_) => self.put(name, bytes).await,
            Self::Bucket(objects) => match objects.replace(name, bytes).await? {
                true => Ok(()),
                false => Err(format!(
                    "{name} in {} was written by somebody else since it was read, and is read again in the next minute",
                    objects.shown()
                )),
            },
        }
    }

    /// Writes complete tiles. In a directory they are whole after [`Place::sync`], and their partial versions stay until then, because the
    /// checkpoint that is there needs them. A bucket, which others may lock, never gets one over another.
    pub(super) async fn put_complete(&mut self, tiles: Vec<(String, Bytes)>) -> Result<(), String> {
        match self {
            Self::Directory(directory) => {
                let write = move |directory: &Directory| {
                    tiles.iter().try_for_each(|(name, bytes)| directory.put_unsynced(name, bytes))
                };
                in_directory(directory, write).await
            }
            Self::Bucket(objects) => {
                let there = objects.create(tiles.clone()).await?;
                match there.iter().find(|known| !tiles.contains(known)) {
                    None => Ok(()),
                    Some((name, _)) => Err(format!(
                        "{name} in {} is there with other contents, which no checkpoint there covers: somebody else writes there with this \
                         configuration, or the journal was restored from a copy before a checkpoint was written; stop the other one, then \
                         remove that object",
                        objects.shown()
                    )),
                }
            }
        }
    }

    /// Waits until everything that was written stays there.
    pub(super) async fn sync(&mut self) -> Result<(), String> {
        match self {
            Self::Directory(directory) => in_directory(directory, Directory::sync).await,
            Self::Bucket(_) => Ok(()),
        }
    }

    /// Removes the partial versions of a tile that is complete, as far as that can be done: they are no harm.
    pub(super) async fn remove_partial(&mut self, tile: &str) {
        let removed = match self {
            Self::Directory(directory) => {
                let tile = tile.to_owned();
                in_directory(directory, move |directory| directory.remove_partial(&tile)).await
            }
            Self::Bucket(objects) => objects.remove_below(&format!("{tile}.p")).await,
        };
        if let Err(error) = removed {
            tracing::debug!("partial versions of {tile} stay: {error}");
        }
    }

    /// Checks that it can be written to. It leaves nothing there.
    ///
    /// # Errors
    /// A sentence that names the place and says what stands in the way.
    pub async fn check(&mut self) -> Result<(), String> {
        match self {
            Self::Directory(directory) => in_directory(directory, Directory::check).await,
            Self::Bucket(objects) => objects.check().await,
        }
    }
}

async fn in_directory<T: Send + 'static>(
    directory: &Directory,
    work: impl FnOnce(&Directory) -> io::Result<T> + Send + 'static,
) -> Result<T, String> {
    let directory = directory.clone();
    runtime::blocking(move || {
        let shown = directory.path().display().to_string();
        work(&directory).map_err(|error| {
            format!("cannot use the evidence in {shown}: {error}; let decklog's user read and write it, and its disk have room")
        })
    })
    .await
}
