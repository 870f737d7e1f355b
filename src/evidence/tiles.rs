//! Tiles (c2sp.org/tlog-tiles): a tree as static files of up to 256 hashes.

use crate::core::merkle::Hash;

/// Hashes of a tile, and leaves of a bundle.
pub const TILE_LEN: u64 = 256;
/// Name of the file with the signed checkpoint.
pub const CHECKPOINT: &str = "checkpoint";

/// A tile: which, and how many hashes it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tile {
    /// 0 for hashes of leaves, 1 for hashes over 256 of them, and so on; none for a bundle of the leaves themselves.
    pub level: Option<u8>,
    /// Its number in the level.
    pub number: u64,
    /// Number of its hashes, 256 if it is full.
    pub width: u64,
}

impl Tile {
    /// Number of its bytes: hashes, or leaves behind their lengths.
    pub(super) const fn len(&self) -> u64 {
        self.width * if self.level.is_some() { 32 } else { 34 }
    }

    /// Returns its path in the directory of the tree.
    #[must_use]
    pub fn path(&self) -> String {
        let level = self.level.map_or_else(|| "entries".to_owned(), |level| level.to_string());
        let mut rest = self.number;
        let mut number = format!("{:03}", rest % 1000);
        while rest >= 1000 {
            rest /= 1000;
            number = format!("x{:03}/{number}", rest % 1000);
        }
        let partial = if self.width < TILE_LEN { format!(".p/{}", self.width) } else { String::new() };
        format!("tile/{level}/{number}{partial}")
    }
}

/// Returns the levels of a tree of `size` leaves, and how many hashes each has, and had with the first `old` leaves.
fn levels(old: u64, size: u64) -> impl Iterator<Item = (Option<u8>, u64, u64)> {
    let levels = [None].into_iter().chain((0..8).map(Some));
    let counts = move |level: Option<u8>| {
        let shift = u32::from(level.unwrap_or(0)) * 8;
        (level, old >> shift, size >> shift)
    };
    levels.map(counts).take_while(|(_, _, has)| *has > 0)
}

/// Returns the tiles that a tree of `size` leaves has and one of its first `old` has not.
#[must_use]
pub fn between(old: u64, size: u64) -> Vec<Tile> {
    complete(old, size).chain(partial(old, size)).collect()
}

/// Returns the complete tiles that a tree of `size` leaves has and one of its first `old` has not.
pub fn complete(old: u64, size: u64) -> impl Iterator<Item = Tile> {
    levels(old, size).flat_map(|(level, had, has)| {
        (had / TILE_LEN..has / TILE_LEN).map(move |number| Tile { level, number, width: TILE_LEN })
    })
}

/// Returns the tiles of a tree of `size` leaves that are not complete, and that one of its first `old` does not have so.
pub fn partial(old: u64, size: u64) -> impl Iterator<Item = Tile> {
    levels(old, size).filter(|(_, had, has)| has % TILE_LEN > 0 && has != had).map(|(level, _, has)| Tile {
        level,
        number: has / TILE_LEN,
        width: has % TILE_LEN,
    })
}

/// Returns the tiles of which a tree of the first `old` leaves has a part, and one of `size` everything.
pub fn completed(old: u64, size: u64) -> impl Iterator<Item = Tile> {
    levels(old, size)
        .filter(|(_, had, has)| had % TILE_LEN > 0 && had / TILE_LEN < has / TILE_LEN)
        .map(|(level, had, _)| Tile { level, number: had / TILE_LEN, width: TILE_LEN })
}

/// Renders a bundle: leaves behind their lengths.
pub(super) fn bundle(leaves: &[Hash]) -> Vec<u8> {
    leaves.iter().flat_map(|leaf| [0, 32].into_iter().chain(*leaf)).collect()
}

/// Reads a bundle of digests.
#[must_use]
pub fn leaves(bundle: &[u8]) -> Option<Vec<Hash>> {
    let (chunks, rest) = bundle.as_chunks::<34>();
    if !rest.is_empty() {
        return None;
    }
    chunks.iter().map(|chunk| Hash::try_from(chunk.strip_prefix(&[0, 32])?).ok()).collect()
}
