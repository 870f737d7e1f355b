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
/// Directory of the tiles of a tree.
const TILES: &str = "tile";
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
    /// Number of its first leaves of which none is missing.
    whole: u64,
    /// The first and the last entry of which a line was compared; none if that is none.
    compared: Option<(u64, u64)>,
    /// Number of a block, and the contents of its leaves.
    block: Option<(u64, Vec<Hash>)>,
}

/// A directory of evidence.
#[derive(Debug, Default)]
pub struct Archive {
    trees: BTreeMap<Origin, Archived>,
    /// Directories with tiles of which nothing is signed.
    pub unsigned: Vec<PathBuf>,
    /// Errors that were found.
    pub problems: Vec<String>,
}

/// Entries of a tree, from the first to the last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// Origin of the tree.
    pub origin: Origin,
    /// Seq of the first entry.
    pub first: u64,
    /// Seq of the last entry.
    pub last: u64,
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
            let Some(bytes) = place.get(CHECKPOINT)? else {
                if place.path().join(TILES).is_dir() {
                    archive.unsigned.push(place.path().to_owned());
                }
                continue;
            };
            let shown = place.path().join(CHECKPOINT).display().to_string();
            match read_signed(&bytes, keys) {
                Ok(signed) => archive.add(place, signed, keys)?,
                Err(why) => archive.problem(format!("{shown}: {why}")),
            }
        }
        archive.check_overlaps();
        Ok(archive)
    }

    /// Checks that no entry is in two trees, whatever their names: an epoch has one history.
    fn check_overlaps(&mut self) {
        let mut trees: Vec<(&Origin, u64, &Archived)> = self
            .trees
            .iter()
            .filter_map(|(origin, tree)| Some((origin, tree.signed.checkpoint.last()?, tree)))
            .collect();
        trees.sort_by_key(|(origin, ..)| (&origin.epoch, origin.first));
        let mut problems = Vec::new();
        for (at, (origin, last, tree)) in trees.iter().enumerate() {
            let others =
                trees[at + 1..].iter().take_while(|(other, ..)| other.epoch == origin.epoch && other.first <= *last);
            problems.extend(others.map(|(other, _, there)| {
                format!(
                    "{} and {} both have entry {} of the epoch {}: an entry is in one tree, so one of the two was made afterwards",
                    tree.place.path().display(),
                    there.place.path().display(),
                    other.first,
                    other.epoch
                )
            }));
        }
        problems.into_iter().for_each(|text| self.problem(text));
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
        let mut tree = Archived { place, signed, roots: Vec::new(), whole: 0, compared: None, block: None };
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
        let (from, to) = tree.compared.unwrap_or((seq, seq));
        tree.compared = Some((from.min(seq), to.max(seq)));
        Ok(match tree.leaf(index)? {
            Some(found) if found == *digest => Found::Proved,
            Some(_) => Found::Altered,
            None => Found::Unknown,
        })
    }

    /// Returns the signed entries before the first line that was compared, and those behind the last one. Trees of another cluster are of
    /// another log.
    #[must_use]
    pub fn around(&self) -> [Vec<Stretch>; 2] {
        let mut around = [Vec::new(), Vec::new()];
        let order = |origin: &Origin| (origin.epoch.clone(), origin.first);
        let mut trees: Vec<(&Origin, &Archived)> = self.trees.iter().collect();
        trees.sort_by_key(|(origin, _)| order(origin));
        let compared = |(_, tree): &&(&Origin, &Archived)| tree.compared.is_some();
        let (Some((begin, _)), Some((end, _))) = (trees.iter().find(compared), trees.iter().rfind(compared)) else {
            return around;
        };
        for (origin, tree) in &trees {
            let Some(last) = tree.signed.checkpoint.last() else { continue };
            let (from, to) = tree.compared.unwrap_or((last + 1, origin.first.saturating_sub(1)));
            let stretch = |first, last| Stretch { origin: (*origin).clone(), first, last };
            if origin.cluster == begin.cluster && order(origin) <= order(begin) && origin.first < from {
                around[0].push(stretch(origin.first, from - 1));
            }
            if origin.cluster == end.cluster && order(origin) >= order(end) && to < last {
                around[1].push(stretch(to + 1, last));
            }
        }
        around
    }

    /// Returns the checkpoints, by their trees.
    pub fn checkpoints(&self) -> impl Iterator<Item = &Signed> {
        self.trees.values().map(|tree| &tree.signed)
    }
}

/// The way in which trees follow each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Order {
    /// Trees that are followed and are not here.
    pub missing: Vec<Origin>,
    /// Trees that are followed by several.
    pub forks: Vec<(Origin, Vec<Origin>)>,
}

/// Returns the directories of trees: the directory itself, or those in it.
fn tree_directories(dir: &Path) -> io::Result<Vec<PathBuf>> {
    if dir.join(CHECKPOINT).exists() || dir.join(TILES).is_dir() {
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
    /// Returns the bytes of a tile; those of the full one where the partial one was removed. None if it has another length than its name
    /// says.
    fn tile(&self, level: Option<u8>, number: u64, width: u64) -> io::Result<Option<Vec<u8>>> {
        for width in [width, TILE_LEN] {
            let tile = Tile { level, number, width };
            if let Some(bytes) = self.place.get(&tile.path())? {
                return Ok(Some(bytes).filter(|bytes| bytes.len() as u64 == tile.len()));
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
        if size > self.whole {
            return Ok(None);
        }
        let root = merkle::subtree(0, size, &mut |first, end| {
            let block = first / TILE_LEN;
            if end - first == 1 {
                return Ok(self.leaf(first)?.map(|leaf| merkle::leaf(&leaf)));
            }
            let is_block = end - first == TILE_LEN && first.is_multiple_of(TILE_LEN);
            Ok::<_, io::Error>(if is_block {
                self.roots.get(usize::try_from(block).unwrap_or(usize::MAX)).copied()
            } else {
                None
            })
        })?;
        Ok(Some(root))
    }

    /// Hashes everything again. Returns what is wrong.
    fn check(&mut self, keys: &[VerifierKey]) -> io::Result<Vec<String>> {
        let (mut problems, shown) = (Vec::new(), self.place.path().display().to_string());
        let (size, origin) = (self.signed.checkpoint.size, self.signed.checkpoint.origin.clone());
        if size == 0 {
            return Ok(vec![format!("{shown}: its checkpoint is over nothing, and each one of decklog has a leaf 0")]);
        }
        let entry = |index: u64| origin.seq(index).map_or_else(|| "leaf 0".to_owned(), |seq| format!("entry {seq}"));
        for block in 0..size.div_ceil(TILE_LEN) {
            let width = self.width(block);
            let hashes: Vec<Hash> = self.contents(block)?.iter().map(|leaf| merkle::leaf(leaf)).collect();
            let first = block * TILE_LEN;
            if hashes.len() as u64 != width {
                problems.push(format!("{shown}: the bundle from {} on is missing, cut off or malformed", entry(first)));
                // Whatever a size claims, nothing behind it is looked for.
                break;
            }
            self.whole = first + width;
            match self.tile(Some(0), block, width)? {
                // Either of the two was altered; the leaf is where they part.
                Some(tile) => {
                    let parts =
                        hashes.iter().zip(tile.as_chunks::<32>().0).position(|(hash, expected)| hash != expected);
                    problems.extend(parts.map(|at| {
                        format!("{shown}: the leaf of {} is not the one that its tile has", entry(first + at as u64))
                    }));
                }
                None => problems.push(format!(
                    "{shown}: the tile with the hashes from {} on is missing, cut off or malformed",
                    entry(first)
                )),
            }
            if width == TILE_LEN {
                self.roots.push(merkle::root(&hashes));
            }
        }
        if self.whole == size {
            problems.extend(self.check_above(&entry)?.map(|why| format!("{shown}: {why}")));
            if self.root(size)? != Some(self.signed.checkpoint.root) {
                problems.push(format!("{shown}: the leaves do not hash to the root that was signed: some were altered, and the tiles with them"));
            }
        }
        if self.whole > 0 {
            problems.extend(self.check_before(keys)?.map(|why| format!("{shown}: {why}")));
        }
        Ok(problems)
    }

    /// Compares the hashes over blocks, and over those, with the tiles that have them. Returns the first that is not there.
    fn check_above(&self, entry: &dyn Fn(u64) -> String) -> io::Result<Option<String>> {
        let (mut hashes, mut span) = (self.roots.clone(), TILE_LEN);
        for level in 1.. {
            for (number, hashes) in (0..).zip(hashes.chunks(256)) {
                let (first, width) = (number * TILE_LEN, hashes.len() as u64);
                let Some(tile) = self.tile(Some(level), number, width)? else {
                    let path = Tile { level: Some(level), number, width }.path();
                    return Ok(Some(format!("{path} is missing, cut off or malformed")));
                };
                let parts = hashes.iter().zip(tile.as_chunks::<32>().0).position(|(hash, expected)| hash != expected);
                if let Some(at) = parts.map(|at| first + at as u64) {
                    return Ok(Some(format!(
                        "the leaves from {} to {} do not hash to what the tile above them has",
                        entry(at * span),
                        entry(at * span + span - 1)
                    )));
                }
            }
            if hashes.len() < 256 {
                break;
            }
            hashes = hashes.chunks_exact(256).map(merkle::root).collect();
            span *= TILE_LEN;
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
    /// Checks that each tree follows the one that it says it does, as far as that is here.
    ///
    /// # Errors
    /// Where the directory cannot be read.
    pub fn check_order(&mut self, keys: &[VerifierKey]) -> io::Result<Order> {
        let (mut missing, mut kept) = (BTreeSet::new(), Vec::new());
        let mut followed: BTreeMap<Origin, Vec<Origin>> = BTreeMap::new();
        for tree in self.trees.values() {
            let Some(before) = tree.place.get(BEFORE)? else { continue };
            let Ok(before) = read_signed(&before, keys) else { continue };
            followed.entry(before.checkpoint.origin.clone()).or_default().push(tree.signed.checkpoint.origin.clone());
            if self.trees.contains_key(&before.checkpoint.origin) {
                kept.push(before.checkpoint);
            } else {
                missing.insert(before.checkpoint.origin);
            }
        }
        for before in kept {
            self.check_kept(&before)?;
        }
        followed.retain(|_, after| after.len() > 1);
        Ok(Order { missing: missing.into_iter().collect(), forks: followed.into_iter().collect() })
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
