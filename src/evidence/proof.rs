//! Proofs of one entry (c2sp.org/tlog-proof): the index of its leaf, the hashes beside the way up, and a signed checkpoint.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use super::archive::{Signed, read_signed};
use super::key::VerifierKey;
use super::witness::decimal;
use crate::core::merkle::{self, Hash};

/// First line of a proof.
const HEADER: &str = "c2sp.org/tlog-proof@v1";
/// Hashes of a proof at most.
const HASHES_MAX: usize = 64;

/// A proof that an entry is in a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proof {
    /// Index of the leaf.
    pub index: u64,
    /// Hashes beside the way from the leaf to the root.
    pub hashes: Vec<Hash>,
    /// The signed checkpoint.
    pub note: String,
}

impl Proof {
    /// Renders it as a file.
    #[must_use]
    pub fn render(&self) -> String {
        let hashes: String = self.hashes.iter().map(|hash| format!("{}\n", BASE64.encode(hash))).collect();
        format!("{HEADER}\nindex {}\n{hashes}\n{}", self.index, self.note)
    }

    /// Reads a proof.
    ///
    /// # Errors
    /// A sentence that says how it is none.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (head, note) = text.split_once("\n\n").ok_or("it has no checkpoint")?;
        let mut lines = head.lines();
        if lines.next() != Some(HEADER) {
            return Err(format!("it does not begin with {HEADER}"));
        }
        let mut lines = lines.skip_while(|line| line.starts_with("extra "));
        let index = lines.next().and_then(|line| decimal(line.strip_prefix("index ")?));
        let index = index.ok_or("it has no index")?;
        let hash = |line: &str| BASE64.decode(line).ok().and_then(|bytes| Hash::try_from(bytes).ok());
        let hashes: Option<Vec<Hash>> = lines.map(hash).collect();
        let hashes = hashes.filter(|hashes| hashes.len() <= HASHES_MAX).ok_or("one of its hashes is malformed")?;
        Ok(Self { index, hashes, note: note.to_owned() })
    }

    /// Checks that it proves a line, whose epoch and seq are these. Returns the checkpoint.
    ///
    /// # Errors
    /// A sentence that says what it does not prove.
    pub fn check(&self, epoch: &str, seq: u64, line: &[u8], keys: &[VerifierKey]) -> Result<Signed, String> {
        let signed = read_signed(self.note.as_bytes(), keys).map_err(|why| format!("its checkpoint: {why}"))?;
        let origin = &signed.checkpoint.origin;
        if origin.epoch != epoch || origin.index(seq) != Some(self.index) {
            let of = origin.seq(self.index).unwrap_or(0);
            return Err(format!(
                "it is of entry {of} of the epoch {}, and the line is entry {seq} of {epoch}",
                origin.epoch
            ));
        }
        let leaf = merkle::leaf(&merkle::sha256(&[line]));
        if merkle::is_included(self.index, signed.checkpoint.size, &leaf, &self.hashes, &signed.checkpoint.root) {
            Ok(signed)
        } else {
            Err(format!("entry {seq} is not the line that was logged, or the proof was altered"))
        }
    }
}
