//! The tree over the digests of entries, in the transaction that writes them.
//!
//! # Decision: digests are rows of transactions, and blocks of 256
//!
//! Context: Each entry costs time in the writer and bytes on the disk, for as long as somebody may want to prove it.
//! Decision: The digests of one transaction are one row. Once 256 leaves are there, they are one row and the hash over them another, as
//! the tiles of tlog-tiles have them, and the rows of the transactions go. The signing reads hashes of blocks, not entries. The leaves
//! of truncated entries go once every place has them: else the log would end when its digests fill `max_size`.
//! Cost: A block is written twice; a proof reads one block; a place that lost old tiles gets them from another place.

use rusqlite::{Connection, OptionalExtension, params};

use super::{OfEvidence, Transaction, sql};
use crate::core::merkle::{self, Hash};
use crate::journal::error::Result;
use crate::journal::{BLOCK_LEN, SignedCheckpoint, block_first, leaf_of};

const TREE: &str = "write the tree of its entries";

/// Blocks whose leaves are removed in one transaction.
const SLICE_BLOCKS: u64 = 64;

/// Returns the first seq of the tree that grows.
pub(super) fn growing(conn: &Connection) -> Result<Option<u64>> {
    conn.query_row("SELECT max(first) FROM tree WHERE until IS NULL", [], |row| row.get(0)).map_err(sql(TREE))
}

impl Transaction<'_> {
    pub(super) fn perform_of_evidence(&mut self, command: &OfEvidence) -> Result {
        match command {
            OfEvidence::Configured(None, reply) => {
                self.close_tree()?;
                self.later(reply, ());
            }
            OfEvidence::Configured(Some(before), reply) => {
                match self.changes.tree {
                    None => self.begin_tree(before.as_deref())?,
                    // One without entries that nobody has signed can still commit to a later checkpoint than the journal knew.
                    Some(first) if first > self.changes.head && before.is_some() => {
                        let update = "UPDATE tree SET before = ? WHERE first = ? AND note IS NULL";
                        self.execute(TREE, update, params![before, first])?;
                    }
                    Some(_) => {}
                }
                self.later(reply, ());
            }
            OfEvidence::Signed(SignedCheckpoint { first, note, last, at }, reply) => {
                self.execute(
                    TREE,
                    "UPDATE tree SET note = ?, signed = ?, signed_at = ? WHERE first = ?",
                    params![note, last.0, at, first.0],
                )?;
                self.later(reply, ());
            }
            OfEvidence::Placed(first, last, reply) => {
                self.execute(TREE, "UPDATE tree SET placed = ? WHERE first = ?", params![last.0, first.0])?;
                self.changes.leaves_leave = true;
                self.later(reply, ());
            }
        }
        Ok(())
    }

    /// Begins the tree of a new epoch, where one grew.
    pub(super) fn begin_next_tree(&mut self) -> Result {
        let Some(first) = self.changes.tree else { return Ok(()) };
        let note: Option<String> = self
            .conn
            .query_row("SELECT coalesce(note, before) FROM tree WHERE first = ?", [first], |row| row.get(0))
            .optional()
            .map_err(sql(TREE))?
            .flatten();
        self.close_tree()?;
        self.begin_tree(note.as_deref())
    }

    fn begin_tree(&mut self, before: Option<&str>) -> Result {
        let first = self.changes.head + 1;
        self.execute(
            TREE,
            "INSERT OR REPLACE INTO tree (first, epoch, until, before, note) VALUES (?, ?, NULL, ?, NULL)",
            params![first, self.epoch(), before],
        )?;
        self.changes.tree = Some(first);
        Ok(())
    }

    fn close_tree(&mut self) -> Result {
        self.write_digests()?;
        self.execute(TREE, "UPDATE tree SET until = ? WHERE until IS NULL", params![self.changes.head])?;
        self.changes.tree = None;
        Ok(())
    }

    /// Notes the digest of the entry that was written last.
    pub(super) fn note_digest(&mut self, line: &[u8]) {
        if self.changes.tree.is_some() {
            self.changes.digests.push(merkle::sha256(&[line]));
        }
    }

    /// Writes the digests of the newest entries, and the blocks that they complete.
    pub(super) fn write_digests(&mut self) -> Result {
        let digests = std::mem::take(&mut self.changes.digests);
        let (Some(tree), false) = (self.changes.tree, digests.is_empty()) else { return Ok(()) };
        let head = self.changes.head;
        let first = head + 1 - digests.len() as u64;
        let (block, end) = ((first - tree + 1) / BLOCK_LEN, (head - tree + 2) / BLOCK_LEN);
        if block == end {
            return self.write_rest(first, &digests);
        }
        let mut leaves = self.begun_block(tree, block, first)?;
        leaves.extend(digests);
        let mut blocks = leaves.chunks_exact(usize::try_from(BLOCK_LEN).unwrap_or(usize::MAX));
        for (number, digests) in (block..).zip(blocks.by_ref()) {
            let hashes: Vec<Hash> = digests.iter().map(|digest| merkle::leaf(digest)).collect();
            let first = block_first(tree, number);
            self.execute(TREE, "INSERT INTO tree_block VALUES (?, ?)", params![first, merkle::root(&hashes)])?;
            self.execute(TREE, "INSERT INTO tree_leaves VALUES (?, ?)", params![first, digests.concat()])?;
        }
        let rest = blocks.remainder();
        self.execute(TREE, "DELETE FROM digest WHERE first >= ?", params![block_first(tree, block)])?;
        if rest.is_empty() { Ok(()) } else { self.write_rest(block_first(tree, end), rest) }
    }

    /// Removes leaves of blocks that every place has, some at a time.
    pub(super) fn drop_leaves(&mut self) -> Result {
        let trees: Vec<(u64, u64)> = {
            let text = "SELECT first, placed FROM tree WHERE placed > 0 ORDER BY first";
            let mut select = self.conn.prepare_cached(text).map_err(sql(TREE))?;
            let rows = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).map_err(sql(TREE))?;
            rows.collect::<Result<_, _>>().map_err(sql(TREE))?
        };
        let mut left = SLICE_BLOCKS;
        for (first, placed) in trees {
            // The first seq of the last block that is there as a whole.
            let last = (placed + 1).saturating_sub(BLOCK_LEN);
            let removed = self.execute(
                TREE,
                "DELETE FROM tree_leaves WHERE first IN
                 (SELECT first FROM tree_leaves WHERE first >= ? AND first <= ? ORDER BY first LIMIT ?)",
                params![first, last, left],
            )?;
            left = left.saturating_sub(removed as u64);
            if left == 0 {
                break;
            }
        }
        self.changes.leaves_leave = left == 0;
        Ok(())
    }

    fn write_rest(&self, first: u64, digests: &[Hash]) -> Result {
        self.execute(TREE, "INSERT INTO digest VALUES (?, ?)", params![first, digests.concat()]).map(drop)
    }

    /// Returns the leaves of a block before the entry `first`.
    fn begun_block(&self, tree: u64, block: u64, first: u64) -> Result<Vec<Hash>> {
        let mut leaves = Vec::new();
        if block == 0 {
            let before: Option<String> = self
                .conn
                .query_row("SELECT before FROM tree WHERE first = ?", [tree], |row| row.get(0))
                .map_err(sql(TREE))?;
            leaves.push(leaf_of(before.as_deref()));
        }
        let mut select = self
            .conn
            .prepare_cached("SELECT digests FROM digest WHERE first >= ? AND first < ? ORDER BY first")
            .map_err(sql(TREE))?;
        let rows =
            select.query_map([block_first(tree, block), first], |row| row.get::<_, Vec<u8>>(0)).map_err(sql(TREE))?;
        for digests in rows {
            leaves.extend(digests.map_err(sql(TREE))?.as_chunks::<32>().0);
        }
        Ok(leaves)
    }
}
