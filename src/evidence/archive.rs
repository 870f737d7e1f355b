//! Checks a directory of evidence as an auditor has it, and lines against it, without a journal.
//!
//! Everything is hashed again from the bundles of leaves up to the signed root; the tiles of hashes serve to find the leaf that was altered.
//! Memory: 32 bytes for 256 entries.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::checkpoint::{Checkpoint, Origin};
use super::key::VerifierKey;
use super::note::Note;
use super::place::Directory;
use super::tiles::{self, CHECKPOINT, TILE_LEN, Tile};
use crate::core::merkle::{self, Hash};

/// Name of the file with the last checkpoint of the tree before.
pub const BEFORE: &str = "before";
/// Problems that are listed at most.
const PROBLEMS_MAX: usize = 100;

/// A signed checkpoint.
#[derive(Clone, Debug)]
pub struct Signed {
    /// The checkpoint.
    pub checkpoint: Checkpoint,
    /// Latest time at which the key has seen it, in seconds since 1970.
    pub time: Option<u64>,
    /// The note as it is stored.
    pub note: String,
}

impl Signed {
    /// Returns the latest time at which a witness has seen it, in seconds since 1970; none if it has not cosigned it.
    #[must_use]
    pub fn seen_by(&self, witness: &VerifierKey) -> Option<u64> {
        Note::parse(self.note.as_bytes()).ok()?.seen_by(witness)
    }
}

/// Reads a signed checkpoint, which one of the keys has to have signed.
///
/// # Errors
/// A sentence that says how it is none, or that none of the keys has signed it.
pub fn read_signed(bytes: &[u8], keys: &[VerifierKey]) -> Result<Signed, String> {
    let note = Note::parse(bytes)?;
    let checkpoint = Checkpoint::parse(&note.text)?;
    let Some(key) = keys.iter().find(|key| note.is_signed_by(key)) else {
        let names: Vec<&str> = note.signatures.iter().map(|signature| &*signature.name).collect();
        return Err(format!("it is not signed by the given key, but in the name of {}", names.join(", ")));
    };
    Ok(Signed { checkpoint, time: note.seen_by(&key.timed()), note: note.render() })
}

/// Result for a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The line is a leaf under a signed root.
    Proved,
    /// The leaf in its place is of another line.
    Altered,
    /// The checkpoint does not reach so far.
    Beyond,
    /// No tree has an entry of this epoch and seq.
    Unknown,
}

/// A tree of a directory.
#[derive(Debug)]
struct Archived {
    place: Directory,
    signed: Signed,
    /// Hashes over its complete blocks of leaves.
    roots: Vec<Hash>,
    /// Number of a block, and the contents of its leaves.
    block: Option<(u64, Vec<Hash>)>,
}

/// A directory of evidence.
#[derive(Debug, Default)]
pub struct Archive {
    trees: BTreeMap<Origin, Archived>,
    /// Errors that were found.
    pub problems: Vec<String>,
}

impl Archive {
    /// Reads a directory and checks every tree in it: signature, hashes, and the tree that it says it follows.
    ///
    /// # Errors
    /// Where it cannot be read. What is wrong in it is in [`Archive::problems`].
    pub fn read(dir: &Path, keys: &[VerifierKey]) -> io::Result<Self> {
        let mut archive = Self::default();
        for dir in tree_directories(dir)? {
            let place = Directory::new(dir);
            let Some(bytes) = place.get(CHECKPOINT)? else { continue };
            let shown = place.path().join(CHECKPOINT).display().to_string();
            match read_signed(&bytes, keys) {
                Ok(signed) => archive.add(place, signed, keys)?,
                Err(why) => archive.problem(format!("{shown}: {why}")),
            }
        }
        Ok(archive)
    }

    fn problem(&mut self, text: String) {
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(text);
        }
    }

    fn add(&mut self, place: Directory, signed: Signed, keys: &[VerifierKey]) -> io::Result<()> {
        let origin = signed.checkpoint.origin.clone();
        let shown = place.path().display().to_string();
        if let Some(other) = self.trees.get(&origin) {
            let text = format!(
                "{shown} and {} are of one tree, {origin}: one of them is a copy or a forgery",
                other.place.path().display()
            );
            self.problem(text);
            return Ok(());
        }
        let mut tree = Archived { place, signed, roots: Vec::new(), block: None };
        let problems = tree.check(keys)?;
        for text in problems {
            self.problem(text);
        }
        self.trees.insert(origin, tree);
        Ok(())
    }

    /// Checks that a checkpoint which the auditor kept is an earlier state of what is here.
    ///
    /// # Errors
    /// Where the directory cannot be read.
    pub fn check_kept(&mut self, kept: &Checkpoint) -> io::Result<()> {
        let Some(tree) = self.trees.get_mut(&kept.origin) else {
            self.problem(format!("the tree of a checkpoint that was kept is missing: {}", kept.origin));
            return Ok(());
        };
        let (size, shown) = (tree.signed.checkpoint.size, tree.place.path().display().to_string());
        let text = if kept.size > size {
            let (had, has) = (kept.last().unwrap_or(0), tree.signed.checkpoint.last().unwrap_or(0));
            Some(format!(
                "{shown} was cut off or is an older copy: a checkpoint that was kept reaches to entry {had}, and this one to {has}"
            ))
        } else if tree.root(kept.size)? == Some(kept.root) {
            None
        } else {
            let last = kept.last().unwrap_or(0);
            Some(format!(
                "{shown} is another history: up to entry {last} a checkpoint that was kept has another root, so entries up to there were altered, and signed again"
            ))
        };
        if let Some(text) = text {
            self.problem(text);
        }
        Ok(())
    }

    /// Checks a line of the log, by its epoch, seq and digest.
    ///
    /// # Errors
    /// Where the directory cannot be read.
    pub fn check_line(&mut self, epoch: &str, seq: u64, digest: &Hash) -> io::Result<Found> {
        // The last tree of an epoch that begins before the entry: evidence may have been off for a while.
        let of_epoch = |origin: &Origin| origin.epoch == epoch && origin.first <= seq;
        let Some((origin, tree)) = self.trees.iter_mut().rev().find(|(origin, _)| of_epoch(origin)) else {
            return Ok(Found::Unknown);
        };
        let Some(index) = origin.index(seq).filter(|index| *index < tree.signed.checkpoint.size) else {
            return Ok(Found::Beyond);
        };
        let found = tree.leaf(index)?;
        Ok(if found == Some(*digest) { Found::Proved } else { Found::Altered })
    }

    /// Returns the checkpoints, by their trees.
    pub fn checkpoints(&self) -> impl Iterator<Item = &Signed> {
        self.trees.values().map(|tree| &tree.signed)
    }
}

/// Returns the directories of trees: the directory itself, or those in it.
fn tree_directories(dir: &Path) -> io::Result<Vec<PathBuf>> {
    if dir.join(CHECKPOINT).exists() {
        return Ok(vec![dir.to_owned()]);
    }
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

impl Archived {
    /// Returns the bytes of a tile; those of the full one where the partial one was removed.
    fn tile(&self, level: Option<u8>, number: u64, width: u64) -> io::Result<Option<Vec<u8>>> {
        for width in [width, TILE_LEN] {
            if let Some(bytes) = self.place.get(&Tile { level, number, width }.path())? {
                return Ok(Some(bytes));
            }
        }
        Ok(None)
    }

    /// Number of hashes of a block at the size of the checkpoint.
    fn width(&self, block: u64) -> u64 {
        self.signed.checkpoint.size.saturating_sub(block * TILE_LEN).min(TILE_LEN)
    }

    /// Reads the contents of the leaves of a block.
    fn contents(&mut self, block: u64) -> io::Result<&[Hash]> {
        if self.block.as_ref().is_none_or(|(number, _)| *number != block) {
            let width = self.width(block);
            let mut leaves = self.tile(None, block, width)?.and_then(|bytes| tiles::leaves(&bytes)).unwrap_or_default();
            leaves.truncate(usize::try_from(width).unwrap_or(usize::MAX));
            self.block = Some((block, leaves));
        }
        Ok(self.block.as_ref().map_or(&[], |(_, leaves)| leaves))
    }

    fn leaf(&mut self, index: u64) -> io::Result<Option<Hash>> {
        let place = usize::try_from(index % TILE_LEN).unwrap_or(usize::MAX);
        Ok(self.contents(index / TILE_LEN)?.get(place).copied())
    }

    /// Returns the root of the first `size` leaves; none where a leaf is missing.
    fn root(&mut self, size: u64) -> io::Result<Option<Hash>> {
        if size == 0 {
            return Ok(Some(merkle::root(&[])));
        }
        let mut is_whole = true;
        let root = merkle::subtree(0, size, &mut |first, end| {
            let block = first / TILE_LEN;
            if end - first == 1 {
                let leaf = self.leaf(first)?;
                is_whole &= leaf.is_some();
                return Ok(leaf.map(|leaf| merkle::leaf(&leaf)));
            }
            let is_block = end - first == TILE_LEN && first.is_multiple_of(TILE_LEN);
            Ok::<_, io::Error>(if is_block {
                self.roots.get(usize::try_from(block).unwrap_or(usize::MAX)).copied()
            } else {
                None
            })
        })?;
        Ok(Some(root).filter(|_| is_whole))
    }

    /// Hashes everything again. Returns what is wrong.
    fn check(&mut self, keys: &[VerifierKey]) -> io::Result<Vec<String>> {
        let (mut problems, shown) = (Vec::new(), self.place.path().display().to_string());
        let (size, origin) = (self.signed.checkpoint.size, self.signed.checkpoint.origin.clone());
        let entry = |index: u64| origin.seq(index).map_or_else(|| "leaf 0".to_owned(), |seq| format!("entry {seq}"));
        for block in 0..size.div_ceil(TILE_LEN) {
            let width = self.width(block);
            let hashes: Vec<Hash> = self.contents(block)?.iter().map(|leaf| merkle::leaf(leaf)).collect();
            let first = block * TILE_LEN;
            if hashes.len() as u64 != width {
                problems.push(format!("{shown}: the bundle from {} on is missing, cut off or malformed", entry(first)));
            }
            let tile = self.tile(Some(0), block, width)?.unwrap_or_default();
            let expected = tile.as_chunks::<32>().0;
            // Either of the two was altered; the leaf is where they part.
            if let Some(at) = (0..hashes.len()).find(|at| expected.get(*at) != hashes.get(*at)) {
                problems.push(format!(
                    "{shown}: the leaf of {} is not the one that its tile has",
                    entry(first + at as u64)
                ));
            }
            if width == TILE_LEN {
                self.roots.push(merkle::root(&hashes));
            }
        }
        if let Some(block) = self.parting_block()? {
            problems.push(format!(
                "{shown}: the leaves from {} to {} do not hash to what the tile above them has",
                entry(block * TILE_LEN),
                entry(block * TILE_LEN + TILE_LEN - 1)
            ));
        }
        if self.root(size)? != Some(self.signed.checkpoint.root) {
            problems.push(format!("{shown}: the leaves do not hash to the root that was signed: some were altered, and the tiles with them"));
        }
        problems.extend(self.check_before(keys)?.map(|why| format!("{shown}: {why}")));
        Ok(problems)
    }

    /// Returns the first block whose hash is not the one in the tile above.
    fn parting_block(&self) -> io::Result<Option<u64>> {
        for (number, roots) in (0..).zip(self.roots.chunks(256)) {
            let tile = self.tile(Some(1), number, roots.len() as u64)?.unwrap_or_default();
            let expected = tile.as_chunks::<32>().0;
            if let Some(at) = (0..roots.len()).find(|at| expected.get(*at) != roots.get(*at)) {
                return Ok(Some(number * TILE_LEN + at as u64));
            }
        }
        Ok(None)
    }

    /// Checks leaf 0, which is the digest of the last checkpoint of the tree before.
    fn check_before(&mut self, keys: &[VerifierKey]) -> io::Result<Option<String>> {
        let before = self.place.get(BEFORE)?;
        if self.leaf(0)? != Some(merkle::sha256(&[before.as_deref().unwrap_or_default()])) {
            return Ok(Some(format!("its leaf 0 is not of the checkpoint in {BEFORE}: that was altered or removed")));
        }
        let Some(before) = before else { return Ok(None) };
        Ok(read_signed(&before, keys).err().map(|why| format!("{BEFORE}: {why}")))
    }
}

impl Archive {
    /// Checks that each tree follows the one that it says it does, as far as that is here. Returns the origins of those that are not.
    ///
    /// # Errors
    /// Where the directory cannot be read.
    pub fn check_order(&mut self, keys: &[VerifierKey]) -> io::Result<Vec<Origin>> {
        let mut missing = Vec::new();
        let mut kept = Vec::new();
        for tree in self.trees.values() {
            let Some(before) = tree.place.get(BEFORE)? else { continue };
            let Ok(before) = read_signed(&before, keys) else { continue };
            if self.trees.contains_key(&before.checkpoint.origin) {
                kept.push(before.checkpoint);
            } else {
                missing.push(before.checkpoint.origin);
            }
        }
        for before in kept {
            self.check_kept(&before)?;
        }
        Ok(missing)
    }
}

impl Archive {
    /// Returns the trees that a witness has not seen: it has cosigned neither their checkpoints nor a tree whose leaf 0 is the digest of that.
    ///
    /// # Errors
    /// Where the directory cannot be read.
    pub fn unwitnessed(&self, witness: &VerifierKey) -> io::Result<Vec<Origin>> {
        let mut unseen: BTreeSet<&Origin> = BTreeSet::new();
        let mut seen = Vec::new();
        for (origin, tree) in &self.trees {
            if tree.signed.seen_by(witness).is_some() {
                seen.push(tree);
            } else {
                unseen.insert(origin);
            }
        }
        // That leaf 0 is of the checkpoint in the file was found out when the tree was read.
        while let Some(tree) = seen.pop() {
            let before = tree.place.get(BEFORE)?.unwrap_or_default();
            let Some((_, before)) = Note::parse(&before).ok().and_then(|note| {
                let checkpoint = Checkpoint::parse(&note.text).ok()?;
                self.trees.get_key_value(&checkpoint.origin).filter(|(_, tree)| tree.signed.checkpoint == checkpoint)
            }) else {
                continue;
            };
            if unseen.remove(&before.signed.checkpoint.origin) {
                seen.push(before);
            }
        }
        Ok(unseen.into_iter().cloned().collect())
    }
}
