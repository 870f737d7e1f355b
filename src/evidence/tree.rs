//! A tree of the journal: its root at any size, and proofs.

use super::checkpoint::{Checkpoint, Origin};
use super::place::Directory;
use super::tiles::{self, TILE_LEN, Tile};
use crate::core::merkle::{self, Hash};
use crate::core::model::Seq;
use crate::journal::{BLOCK_LEN, JournalError, Reader, TreeRow, block_first};

/// A tree over the entries of an epoch, as far as the journal has it on disk. It holds the hashes of complete blocks: 32 bytes for 256
/// entries.
#[derive(Debug)]
pub struct Tree {
    row: TreeRow,
    /// Hashes over 256 leaves, over 256 of those, and so on, as far as they are complete.
    levels: Vec<Vec<Hash>>,
    /// Number of a block, and the contents of its leaves.
    block: Option<(u64, Vec<Hash>)>,
    /// Directories of evidence, which have the leaves that the journal has removed.
    directories: Vec<Directory>,
}

/// Returns the name of the directory of a tree.
pub(super) fn directory(row: &TreeRow) -> String {
    format!("{}-{}", row.epoch, row.first)
}

/// An index as the place in a vector.
fn place(index: u64) -> usize {
    usize::try_from(index).unwrap_or(usize::MAX)
}

impl Tree {
    /// Reads a tree. Leaves that the journal has removed are read from the first directory that has them, or made of its entries.
    ///
    /// # Errors
    /// Where the journal cannot be read, or lacks a part of it.
    pub fn read(reader: &Reader, row: TreeRow, directories: Vec<Directory>) -> Result<Self, JournalError> {
        let mut tree = Self { row: row.clone(), levels: Vec::new(), block: None, directories };
        tree.advance(reader, row)?;
        Ok(tree)
    }

    /// Takes what the journal has more of it by now.
    ///
    /// # Errors
    /// As [`Tree::read`].
    pub fn advance(&mut self, reader: &Reader, row: TreeRow) -> Result<(), JournalError> {
        let known = self.levels.first().map_or(0, Vec::len) as u64;
        let mut new = reader.tree_roots(&row, known)?;
        (self.row, self.block) = (row, None);
        for level in 0.. {
            if self.levels.len() == level {
                self.levels.push(Vec::new());
            }
            let hashes = &mut self.levels[level];
            let begun = hashes.len() / 256 * 256;
            hashes.append(&mut new);
            new = hashes[begun..].chunks_exact(256).map(merkle::root).collect();
            if new.is_empty() {
                break;
            }
            let above = self.levels.get(level + 1).map_or(0, Vec::len);
            debug_assert_eq!(above, begun / 256, "the level above has what was complete before");
        }
        Ok(())
    }

    /// Its row in the journal.
    #[must_use]
    pub const fn row(&self) -> &TreeRow {
        &self.row
    }

    /// Returns the contents of the leaves of a block.
    fn contents(&mut self, reader: &mut Reader, block: u64) -> Result<&[Hash], JournalError> {
        if self.block.as_ref().is_none_or(|(number, _)| *number != block) {
            let leaves = match reader.tree_leaves(&self.row, block)? {
                Some(leaves) => leaves,
                None => self.placed(reader, block)?,
            };
            self.block = Some((block, leaves));
        }
        Ok(self.block.as_ref().map_or(&[], |(_, leaves)| leaves))
    }

    /// Reads the leaves of a complete block from the directories, or makes them of the entries of the journal: those over which the hash is
    /// the one that the journal has.
    fn placed(&self, reader: &mut Reader, block: u64) -> Result<Vec<Hash>, JournalError> {
        let tree = directory(&self.row);
        let tile = Tile { level: None, number: block, width: TILE_LEN }.path();
        let root = self.levels.first().and_then(|level| level.get(place(block)));
        let is_right = |leaves: &Vec<Hash>| {
            let hashes: Vec<Hash> = leaves.iter().map(|leaf| merkle::leaf(leaf)).collect();
            leaves.len() as u64 == BLOCK_LEN && Some(&merkle::root(&hashes)) == root
        };
        let read = |directory: &Directory| directory.get(&format!("{tree}/{tile}")).ok().flatten();
        let found = self.directories.iter().filter_map(read).filter_map(|bundle| tiles::leaves(&bundle)).find(is_right);
        if let Some(leaves) = found {
            return Ok(leaves);
        }
        let first = Seq(block_first(self.row.first.0, block));
        let last = Seq(block_first(self.row.first.0, block + 1) - 1);
        let why = match reader.digests(first, last) {
            Ok(None) => "are truncated with them".to_owned(),
            Ok(Some(digests)) => {
                let leaves = (block == 0).then(|| self.row.leaf()).into_iter().chain(digests).collect();
                if is_right(&leaves) {
                    return Ok(leaves);
                }
                "are not those of the entries that the journal has now".to_owned()
            }
            Err(error) => format!("cannot be made of the entries ({error})"),
        };
        Err(JournalError::Placed { first, last, why, tree, tile })
    }

    /// Returns the content of a leaf: the digest of an entry's line.
    ///
    /// # Errors
    /// Where the journal cannot be read, or does not have it.
    pub fn content(&mut self, reader: &mut Reader, index: u64) -> Result<Hash, JournalError> {
        let found = self.contents(reader, index / BLOCK_LEN)?.get(place(index % BLOCK_LEN)).copied();
        found.ok_or_else(|| {
            JournalError::Corrupt("a leaf of the tree of its entries is missing; run `decklog verify`".to_owned())
        })
    }

    /// Returns the hash over a range of leaves, where it is known without hashing two others.
    fn known(&mut self, reader: &mut Reader, first: u64, end: u64) -> Result<Option<Hash>, JournalError> {
        let len = end - first;
        if len == 1 {
            return Ok(Some(merkle::leaf(&self.content(reader, first)?)));
        }
        let mut width = BLOCK_LEN;
        for level in &self.levels {
            if len == width && first.is_multiple_of(width) {
                return Ok(level.get(place(first / width)).copied());
            }
            width *= 256;
        }
        Ok(None)
    }

    /// Returns the root of the tree of its first `size` leaves.
    ///
    /// # Errors
    /// Where the journal cannot be read.
    pub fn root(&mut self, reader: &mut Reader, size: u64) -> Result<Hash, JournalError> {
        if size == 0 {
            return Ok(merkle::root(&[]));
        }
        merkle::subtree(0, size, &mut |first, end| self.known(reader, first, end))
    }

    /// Returns its checkpoint at a size.
    ///
    /// # Errors
    /// Where the journal cannot be read.
    pub fn checkpoint(&mut self, reader: &mut Reader, origin: Origin, size: u64) -> Result<Checkpoint, JournalError> {
        Ok(Checkpoint { origin, size, root: self.root(reader, size)? })
    }

    /// Returns the proof that a leaf is in the tree of the first `size` leaves.
    ///
    /// # Errors
    /// Where the journal cannot be read.
    pub fn prove(&mut self, reader: &mut Reader, index: u64, size: u64) -> Result<Vec<Hash>, JournalError> {
        merkle::prove(index, size, &mut |first, end| self.known(reader, first, end))
    }

    /// Returns the proof that the tree of the first `old` leaves is the beginning of that of the first `size`.
    ///
    /// # Errors
    /// Where the journal cannot be read.
    pub fn prove_consistency(&mut self, reader: &mut Reader, old: u64, size: u64) -> Result<Vec<Hash>, JournalError> {
        merkle::prove_consistency(old, size, &mut |first, end| self.known(reader, first, end))
    }

    /// Returns the bytes of a tile of the tree.
    ///
    /// # Errors
    /// Where the journal cannot be read.
    pub fn tile(&mut self, reader: &mut Reader, tile: Tile) -> Result<Vec<u8>, JournalError> {
        let Tile { level, number, width } = tile;
        let Some(level) = level else {
            let contents = self.contents(reader, number)?;
            return Ok(tiles::bundle(contents.get(..place(width)).unwrap_or(contents)));
        };
        if level == 0 {
            let contents = self.contents(reader, number)?;
            return Ok(contents.iter().take(place(width)).flat_map(|content| merkle::leaf(content)).collect());
        }
        let hashes = self.levels.get(usize::from(level) - 1).map_or(&[][..], Vec::as_slice);
        let first = place(number * TILE_LEN);
        Ok(hashes.get(first..first + place(width)).unwrap_or(&[]).concat())
    }
}
