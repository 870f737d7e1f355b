//! Copies of the trees: what one place has of them, and how it gets the rest.
//!
//! # Decision: each place goes on from its own checkpoint
//!
//! Context: A bucket can be away for days, and one that is added later has nothing of the years before.
//! Decision: What a place lacks follows from the checkpoint in it and from nothing that decklog remembers. Tiles are made from the journal,
//! and from the directory where the journal has removed the digests of truncated entries, some at a time, and the checkpoint is written
//! behind them. What takes longer than a round goes on in the next one.
//! Cost: One small file of each place is read a minute. Without a directory a new bucket needs a copy of the old one.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;

use super::archive::BEFORE;
use super::checkpoint::Checkpoint;
use super::note::Note;
use super::place::{Directory, Place};
use super::tiles::{self, CHECKPOINT, TILE_LEN, Tile};
use super::tree::{Tree, directory};
use crate::core::runtime;
use crate::journal::{JournalError, Reader, TreeRow};

/// Leaves whose tiles are made and written at once: 16 bundles and as many tiles, a quarter of a megabyte.
const STEP: u64 = 16 * TILE_LEN;

/// A signed checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Published {
    pub(super) note: String,
    pub(super) checkpoint: Checkpoint,
}

impl Published {
    /// Reads a note, whoever has signed it.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, String> {
        let note = Note::parse(bytes)?;
        Ok(Self { checkpoint: Checkpoint::parse(&note.text)?, note: note.render() })
    }
}

/// The journal as it was when a round began, and the tree that was read last. It may block.
#[derive(Clone, Debug)]
pub(super) struct Source {
    read: Arc<Mutex<(Reader, Option<Tree>)>>,
    /// The directories among the places.
    directories: Vec<Directory>,
}

impl Source {
    pub(super) fn new(reader: Reader, tree: Option<Tree>, directories: Vec<Directory>) -> Self {
        Self { read: Arc::new(Mutex::new((reader, tree))), directories }
    }

    /// Takes the tree that was read last.
    pub(super) fn take_tree(&self) -> Option<Tree> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner).1.take()
    }

    /// Does something with the journal where it may block.
    pub(super) async fn ask<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Reader) -> Result<T, JournalError> + Send + 'static,
    ) -> Result<T, JournalError> {
        let source = Arc::clone(&self.read);
        runtime::blocking(move || work(&source.lock().unwrap_or_else(PoisonError::into_inner).0)).await
    }

    /// Does something with a tree where it may block.
    pub(super) async fn with<T: Send + 'static>(
        &self,
        row: &TreeRow,
        work: impl FnOnce(&mut Reader, &mut Tree) -> Result<T, JournalError> + Send + 'static,
    ) -> Result<T, JournalError> {
        let (source, row, directories) = (Arc::clone(&self.read), row.clone(), self.directories.clone());
        runtime::blocking(move || {
            let (reader, known) = &mut *source.lock().unwrap_or_else(PoisonError::into_inner);
            let tree = match known.take() {
                Some(tree) if *tree.row() == row => tree,
                Some(mut tree) if tree.row().first == row.first && tree.row().epoch == row.epoch => {
                    tree.advance(reader, row)?;
                    tree
                }
                _ => Tree::read(reader, row, directories)?,
            };
            work(reader, known.insert(tree))
        })
        .await
    }

    /// Makes tiles, with their names in the directory of the tree.
    async fn tiles(
        &self,
        row: &TreeRow,
        tiles: impl Iterator<Item = Tile> + Send + 'static,
    ) -> Result<Vec<(String, Bytes)>, JournalError> {
        let name = directory(row);
        self.with(row, move |reader, tree| {
            let made = tiles.map(|tile| Ok((format!("{name}/{}", tile.path()), tree.tile(reader, tile)?.into())));
            made.collect()
        })
        .await
    }
}

/// How far complete tiles were written beyond the checkpoint that is there.
#[derive(Debug)]
struct Progress {
    tree: String,
    /// Size of the checkpoint; 0 without one.
    from: u64,
    leaves: u64,
}

/// What is there of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Held {
    /// It is not known: the place does not answer, or with something else.
    Unknown,
    /// It has ended, and all of it is there.
    Whole,
    /// It has this checkpoint, or none.
    Checkpoint(Option<Published>),
}

impl Held {
    /// Returns the last entry that is there, 0 for none; none where that is not known.
    pub(super) fn last(&self) -> Option<u64> {
        match self {
            Self::Unknown => None,
            Self::Whole => Some(u64::MAX),
            Self::Checkpoint(known) => Some(known.as_ref().and_then(|known| known.checkpoint.last()).unwrap_or(0)),
        }
    }
}

/// A place, and what is known of it.
#[derive(Debug)]
pub(super) struct Copy {
    place: Place,
    progress: Option<Progress>,
    /// Directories of trees that have ended and are there.
    whole: BTreeSet<String>,
    /// Reason why it does not have all since the round began.
    problem: Option<String>,
}

impl Copy {
    pub(super) const fn new(place: Place) -> Self {
        Self { place, progress: None, whole: BTreeSet::new(), problem: None }
    }

    /// Returns the name of the place, for people.
    pub(super) fn shown(&self) -> String {
        self.place.shown()
    }

    /// Returns the directory that it is; none of a bucket.
    pub(super) fn as_directory(&self) -> Option<&Directory> {
        match &self.place {
            Place::Directory(directory) => Some(directory),
            Place::Bucket(_) => None,
        }
    }

    /// Notes why it does not have all.
    pub(super) fn fails(&mut self, why: String) {
        self.problem = Some(why);
    }

    /// Begins a round, and forgets what was wrong.
    pub(super) fn begin(&mut self) {
        self.problem = None;
    }

    /// Returns why the place does not have all.
    pub(super) fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    /// Looks what is there of a tree. A place that did not answer in this round is not asked again in it.
    pub(super) async fn look(&mut self, tree: &str, limit: Duration) -> Held {
        if self.problem.is_some() {
            return Held::Unknown;
        }
        if self.whole.contains(tree) {
            return Held::Whole;
        }
        let path = format!("{tree}/{CHECKPOINT}");
        let read = match tokio::time::timeout(limit, self.place.get(&path)).await {
            Ok(read) => read,
            Err(_elapsed) => Err(format!("{} did not answer within {limit:?}", self.shown())),
        };
        let published = read.and_then(|bytes| {
            bytes.map(|bytes| Published::read(&bytes)).transpose().map_err(|why| {
                format!(
                    "{path} in {} is no checkpoint of decklog, {why}: restore the right one, or remove what is below {tree} there",
                    self.shown()
                )
            })
        });
        match published {
            Ok(published) => Held::Checkpoint(published),
            Err(why) => {
                self.problem = Some(why);
                Held::Unknown
            }
        }
    }

    /// Notes that all of a tree that has ended is there.
    pub(super) fn is_whole(&mut self, tree: String) {
        self.whole.insert(tree);
    }

    /// Writes what is missing of a tree, and its checkpoint behind that, as far as it comes in time. Returns whether it is there now.
    pub(super) async fn write(
        &mut self,
        source: &Source,
        row: &TreeRow,
        had: u64,
        published: &Published,
        limit: Duration,
    ) -> Result<bool, JournalError> {
        let written = tokio::time::timeout(limit, self.write_tree(source, row, had, published)).await;
        self.problem = match written {
            Ok(Ok(())) => return Ok(true),
            Ok(Err(Failure::Journal(error))) => return Err(error),
            Ok(Err(Failure::Place(why))) => Some(why),
            Err(_elapsed) => Some(format!("{} is behind: it gets the rest in the next minutes", self.shown())),
        };
        Ok(false)
    }

    async fn write_tree(
        &mut self,
        source: &Source,
        row: &TreeRow,
        had: u64,
        published: &Published,
    ) -> Result<(), Failure> {
        let (tree, size) = (directory(row), published.checkpoint.size);
        if had == 0
            && let Some(before) = &row.before
        {
            self.place.put(&format!("{tree}/{BEFORE}"), before.clone().into()).await?;
        }
        let known = self.progress.take().filter(|known| known.tree == tree && known.from == had);
        let mut leaves = known.map_or(had, |known| known.leaves);
        while leaves < size {
            let end = size.min((leaves / STEP + 1) * STEP);
            let made = source.tiles(row, tiles::complete(leaves, end)).await?;
            // What was written before is not written again in the next round.
            self.progress = Some(Progress { tree: tree.clone(), from: had, leaves });
            self.place.put_complete(made).await?;
            leaves = end;
        }
        self.progress = Some(Progress { tree: tree.clone(), from: had, leaves });
        for (name, bytes) in source.tiles(row, tiles::partial(had, size)).await? {
            self.place.put(&name, bytes).await?;
        }
        // The tiles are there for good before the checkpoint that needs them.
        self.place.sync().await?;
        self.place.put_checkpoint(&format!("{tree}/{CHECKPOINT}"), published.note.clone().into()).await?;
        self.place.sync().await?;
        self.progress = None;
        for tile in tiles::completed(had, size) {
            self.place.remove_partial(&format!("{tree}/{}", tile.path())).await;
        }
        Ok(())
    }
}

/// Reason why a tree was not written.
enum Failure {
    Place(String),
    Journal(JournalError),
}

impl From<String> for Failure {
    fn from(why: String) -> Self {
        Self::Place(why)
    }
}

impl From<JournalError> for Failure {
    fn from(error: JournalError) -> Self {
        // One that has gone back behind what the journal still has.
        if matches!(error, JournalError::Placed { .. }) {
            return Self::Place(error.to_string());
        }
        Self::Journal(error)
    }
}
