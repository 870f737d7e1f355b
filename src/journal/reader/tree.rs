//! The trees over the digests of entries.

use rusqlite::{OptionalExtension, params};

use super::{Reader, sql};
use crate::core::merkle::{self, Hash};
use crate::core::model::Seq;
use crate::journal::JournalError;
use crate::journal::error::Result;
use crate::journal::tree::{BLOCK_LEN, TreeRow, block_first};

const TREE: &str = "the tree of its entries";
/// Bytes of entries that are read at once for their digests.
const BYTES: usize = 1 << 20;

impl Reader {
    /// Returns the trees over the entries, the oldest first, as far as they are on disk.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub fn trees(&self) -> Result<Vec<TreeRow>> {
        let text = "SELECT first, epoch, coalesce(until, (SELECT max(CAST(value AS INTEGER)) FROM meta WHERE key = 'head'), 0),
                until IS NOT NULL, before, note, signed, signed_at, placed
            FROM tree ORDER BY first";
        let mut select = self.conn.prepare_cached(text).map_err(sql(TREE))?;
        let rows = select
            .query_map([], |row| {
                let first: u64 = row.get(0)?;
                Ok(TreeRow {
                    first: Seq(first),
                    epoch: row.get(1)?,
                    last: Seq(row.get::<_, u64>(2)?.max(first - 1)),
                    is_closed: row.get(3)?,
                    before: row.get(4)?,
                    note: row.get(5)?,
                    signed: (Seq(row.get(6)?), row.get(7)?),
                    placed: Seq(row.get(8)?),
                })
            })
            .map_err(sql(TREE))?;
        rows.collect::<Result<_, _>>().map_err(sql(TREE))
    }

    /// Returns the hashes of a tree's complete blocks, from the block with this number on.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub fn tree_roots(&self, tree: &TreeRow, from: u64) -> Result<Vec<Hash>> {
        let mut select = self
            .conn
            .prepare_cached("SELECT root FROM tree_block WHERE first >= ? AND first <= ? ORDER BY first")
            .map_err(sql(TREE))?;
        let range = params![block_first(tree.first.0, from), tree.last.0];
        let rows = select.query_map(range, |row| row.get(0)).map_err(sql(TREE))?;
        let end = tree.size() / BLOCK_LEN;
        let mut roots: Vec<Hash> = rows.collect::<Result<_, _>>().map_err(sql(TREE))?;
        // More may have been completed since `tree` was read.
        roots.truncate(usize::try_from(end.saturating_sub(from)).unwrap_or(usize::MAX));
        if roots.len() as u64 != end.saturating_sub(from) {
            return Err(JournalError::Corrupt(
                "blocks of the tree of its entries are missing; run `decklog verify`".to_owned(),
            ));
        }
        Ok(roots)
    }

    /// Returns the contents of the leaves of a block of a tree, as far as they are there: 256, or fewer of the last block. None where
    /// every place has them.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub fn tree_leaves(&self, tree: &TreeRow, block: u64) -> Result<Option<Vec<Hash>>> {
        let first = block_first(tree.first.0, block);
        let whole: Option<Option<Vec<u8>>> = self
            .conn
            .prepare_cached(
                "SELECT (SELECT digests FROM tree_leaves WHERE first = ?1) FROM tree_block WHERE first = ?1",
            )
            .and_then(|mut select| select.query_row([first], |row| row.get(0)).optional())
            .map_err(sql(TREE))?;
        if let Some(digests) = whole {
            return Ok(digests.map(|digests| digests.as_chunks::<32>().0.to_vec()));
        }
        let mut leaves = if block == 0 { vec![tree.leaf()] } else { Vec::new() };
        let mut select = self
            .conn
            .prepare_cached("SELECT digests FROM digest WHERE first >= ? AND first <= ? ORDER BY first")
            .map_err(sql(TREE))?;
        let rows = select.query_map([first, tree.last.0], |row| row.get::<_, Vec<u8>>(0)).map_err(sql(TREE))?;
        for digests in rows {
            leaves.extend(digests.map_err(sql(TREE))?.as_chunks::<32>().0);
        }
        let size = tree.size().saturating_sub(block * BLOCK_LEN).min(BLOCK_LEN);
        leaves.truncate(usize::try_from(size).unwrap_or(usize::MAX));
        Ok(Some(leaves))
    }

    /// Returns the digests of the lines of entries, the first and the last among them; none where some are truncated.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub fn digests(&mut self, first: Seq, last: Seq) -> Result<Option<Vec<Hash>>> {
        if self.retained()?.oldest > first.0 {
            return Ok(None);
        }
        let mut digests = Vec::new();
        let mut after = Seq(first.0.saturating_sub(1));
        while after < last {
            let page = self.entries_after(after, usize::try_from(last.0 - after.0).unwrap_or(usize::MAX), BYTES)?;
            let Some(entry) = page.last() else { return Ok(None) };
            after = entry.seq;
            digests.extend(page.iter().map(|entry| merkle::sha256(&[&entry.line])));
        }
        Ok(Some(digests))
    }
}
