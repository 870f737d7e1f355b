//! Trees over the digests of entries: what is kept of them, and the handle of whoever signs them.

use super::Journal;
use super::error::Result;
use super::writer::{Command, OfEvidence};
use crate::core::merkle::{self, Hash};
use crate::core::model::Seq;

/// Leaves of a block, whose hash is kept once they are there.
pub const BLOCK_LEN: u64 = 256;

/// A tree over the digests of entries. Leaf 0 is the digest of the last checkpoint of the tree before; leaf `i` is that of the line of
/// the entry `first + i - 1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeRow {
    /// The first entry.
    pub first: Seq,
    /// Epoch of its entries.
    pub epoch: String,
    /// The last entry on disk; one before the first while there is none.
    pub last: Seq,
    /// It has ended: no entry follows.
    pub is_closed: bool,
    /// The last signed checkpoint of the tree before.
    pub before: Option<String>,
    /// Its last signed checkpoint.
    pub note: Option<String>,
    /// The last entry that it covers, 0 for none, and when it was signed, microseconds since 1970.
    pub signed: (Seq, i64),
    /// The last entry that every place has; 0 for none.
    pub placed: Seq,
}

/// A checkpoint that was signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedCheckpoint {
    /// First entry of its tree.
    pub first: Seq,
    /// The note.
    pub note: String,
    /// The last entry that it covers; one before the first if that is none.
    pub last: Seq,
    /// Time at which it was signed, microseconds since 1970.
    pub at: i64,
}

impl TreeRow {
    /// Number of its leaves on disk.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.last.0 + 2 - self.first.0
    }

    /// Content of leaf 0.
    #[must_use]
    pub fn leaf(&self) -> Hash {
        leaf_of(self.before.as_deref())
    }
}

/// Content of leaf 0 of a tree behind the one with this last checkpoint.
pub(super) fn leaf_of(before: Option<&str>) -> Hash {
    merkle::sha256(&[before.unwrap_or_default().as_bytes()])
}

/// Returns the first seq in a block of the tree that begins with a seq.
#[must_use]
pub const fn block_first(tree: u64, block: u64) -> u64 {
    if block == 0 { tree } else { tree + block * BLOCK_LEN - 1 }
}

impl Journal {
    /// Sets that entries get digests from here on, in a tree: that of the epoch goes on, or a new one begins. It commits to the last
    /// checkpoint that is known of the tree before, where that is given. Waits until it is on disk.
    ///
    /// # Errors
    /// Where the writer has stopped.
    pub async fn grow_tree(&self, before: Option<String>) -> Result {
        self.ask(|reply| Command::Evidence(OfEvidence::Configured(Some(before), reply))).await
    }

    /// Sets that entries get no digests from here on. The tree that there was ends.
    ///
    /// # Errors
    /// Where the writer has stopped.
    pub async fn end_tree(&self) -> Result {
        self.ask(|reply| Command::Evidence(OfEvidence::Configured(None, reply))).await
    }

    /// Keeps the last signed checkpoint of a tree. Waits until it is on disk.
    ///
    /// # Errors
    /// Where the writer has stopped.
    pub async fn keep_checkpoint(&self, signed: SignedCheckpoint) -> Result {
        self.ask(|reply| Command::Evidence(OfEvidence::Signed(signed, reply))).await
    }

    /// Notes that every place has a tree, given by its first entry, up to an entry. The digests up to there are removed.
    /// Waits until it is on disk.
    ///
    /// # Errors
    /// Where the writer has stopped.
    pub async fn note_placed(&self, first: Seq, last: Seq) -> Result {
        self.ask(|reply| Command::Evidence(OfEvidence::Placed(first, last, reply))).await
    }
}
