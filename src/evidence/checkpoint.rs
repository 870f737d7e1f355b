//! Checkpoints (c2sp.org/tlog-checkpoint): the size and the root of a tree, under the name of the tree.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use crate::core::merkle::Hash;

/// The last seq that a log can have: SQLite has no larger number.
const SEQ_MAX: u64 = i64::MAX.unsigned_abs();

/// Name of a tree: which log, which cluster, which epoch, and which entry it begins with.
///
/// A tree begins anew with each epoch, so that no origin ever has two histories, and where evidence was off for a while. Leaf 0 is
/// the digest of the last checkpoint of the tree before; leaf `i` is that of the entry `first + i - 1`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Origin {
    /// Name of the key, which says whose log it is.
    pub log: String,
    /// UID of the cluster.
    pub cluster: String,
    /// Epoch of the entries.
    pub epoch: String,
    /// Seq of the first entry.
    pub first: u64,
}

impl Origin {
    /// Reads an origin.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.rsplitn(4, '/');
        let first = parts.next()?;
        let (epoch, cluster, log) = (parts.next()?, parts.next()?, parts.next()?);
        let read: u64 = first.parse().ok()?;
        (read.to_string() == first).then(|| Self {
            log: log.to_owned(),
            cluster: cluster.to_owned(),
            epoch: epoch.to_owned(),
            first: read,
        })
    }

    /// Returns the name of its directory.
    #[must_use]
    pub fn directory(&self) -> String {
        format!("{}-{}", self.epoch, self.first)
    }

    /// Returns the index of an entry's leaf; none for an entry before the tree.
    #[must_use]
    pub fn index(&self, seq: u64) -> Option<u64> {
        seq.checked_sub(self.first)?.checked_add(1)
    }

    /// Returns the seq of the entry that a leaf is of; leaf 0 is of none, nor is one behind the last seq that there can be.
    #[must_use]
    pub const fn seq(&self, index: u64) -> Option<u64> {
        if index == 0 { None } else { self.first.checked_add(index - 1) }
    }
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { log, cluster, epoch, first } = self;
        write!(f, "{log}/{cluster}/{epoch}/{first}")
    }
}

/// Size and root of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// Name of the tree.
    pub origin: Origin,
    /// Number of its leaves.
    pub size: u64,
    /// Hash over them.
    pub root: Hash,
}

impl Checkpoint {
    /// Reads the text of a checkpoint.
    ///
    /// # Errors
    /// A sentence that says how it is none of decklog.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut lines = text.lines();
        let mut next = || lines.next().ok_or_else(|| "it has fewer than three lines".to_owned());
        let (origin, size, root) = (next()?, next()?, next()?);
        let origin = Origin::parse(origin).ok_or_else(|| format!("{origin:?} does not name a log of decklog"))?;
        let read: u64 = size.parse().map_err(|_| format!("{size:?} is not a number of entries"))?;
        if read.to_string() != size {
            return Err(format!("{size:?} is not a number of entries as it is written"));
        }
        if origin.first.checked_add(read).is_none_or(|end| end > SEQ_MAX) {
            return Err(format!("a log cannot have {size} entries from entry {} on", origin.first));
        }
        let root = BASE64.decode(root).ok().and_then(|bytes| Hash::try_from(bytes).ok());
        Ok(Self { origin, size: read, root: root.ok_or("its root is not the digest of a tree")? })
    }

    /// Seq of the last entry that it covers; none if that is none.
    #[must_use]
    pub const fn last(&self) -> Option<u64> {
        if self.size < 2 { None } else { Some(self.origin.first + self.size - 2) }
    }
}

impl std::fmt::Display for Checkpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{}\n{}\n{}", self.origin, self.size, BASE64.encode(self.root))
    }
}
