//! A unit of the shared log as bytes: a line of JSON that says what it is, and the rows that it brings, compressed.
//!
//! The head stands in clear, so that a person who looks into the engine sees who wrote what and when. Each unit names the
//! digest of the one before: a log that was put together from two timelines does not pass for one.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::changeset::Changeset;
use crate::journal::JournalError;
use crate::journal::codec::Codec;
use crate::journal::error::Result;

/// The version of this format.
const VERSION: u32 = 1;
/// A head is shorter.
const LONGEST_HEAD: usize = 4096;

/// Header of a unit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::journal) struct Head {
    /// The version of the format.
    pub(in crate::journal) v: u32,
    /// The schema of the rows: who has another one cannot take them.
    pub(in crate::journal) schema: usize,
    /// Term of the leader; it grows with each.
    pub(in crate::journal) term: u64,
    /// The leader.
    pub(in crate::journal) leader: String,
    /// Uid of the cluster; empty if it is unknown yet.
    pub(in crate::journal) cluster: String,
    /// The digest of the unit before.
    pub(in crate::journal) previous: String,
    /// The newest seq of the journal behind it.
    pub(in crate::journal) seq: u64,
    /// Creation time, microseconds since 1970.
    pub(in crate::journal) time: i64,
    /// The digest of the key for redaction.
    pub(in crate::journal) key: String,
    /// True if the next units stand on a base behind this unit, and on nothing before it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(in crate::journal) begins: bool,
}

impl Head {
    pub(in crate::journal) const fn version() -> u32 {
        VERSION
    }
}

/// Returns the digest that identifies a unit.
pub(in crate::journal) fn digest(unit: &[u8]) -> String {
    Sha256::digest(unit).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A unit of these rows.
pub(in crate::journal) fn encode(head: &Head, rows: &Changeset, codec: &mut Codec) -> Vec<u8> {
    let mut unit = serde_json::to_vec(head).expect("texts and numbers always serialise");
    unit.push(b'\n');
    unit.extend(codec.compress(None, rows.bytes()));
    unit
}

fn damaged(why: &str) -> JournalError {
    JournalError::Corrupt(format!("a unit of the shared log cannot be read: {why}"))
}

/// Returns the header of a unit, and the offset of its rows.
pub(in crate::journal) fn head(unit: &[u8]) -> Result<(Head, usize)> {
    let end =
        unit.iter().take(LONGEST_HEAD).position(|byte| *byte == b'\n').ok_or_else(|| damaged("it has no head"))?;
    let head: Head = serde_json::from_slice(&unit[..end]).map_err(|error| damaged(&error.to_string()))?;
    if head.v != VERSION {
        return Err(damaged(&format!("its format is {}, and this decklog knows {VERSION}", head.v)));
    }
    Ok((head, end + 1))
}

/// The inverse of [`encode`].
pub(in crate::journal) fn decode(unit: &[u8], codec: &mut Codec) -> Result<(Head, Changeset)> {
    let (head, begin) = head(unit)?;
    let rows = codec.decompress(None, &unit[begin..]).map_err(|error| damaged(&error.to_string()))?;
    Ok((head, Changeset::of(rows)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_what_was_written() {
        let head = Head {
            v: VERSION,
            schema: 10,
            term: 3,
            leader: "a".into(),
            cluster: "c".into(),
            previous: digest(b"before"),
            seq: 7,
            time: 1,
            key: String::new(),
            begins: false,
        };
        let mut codec = Codec::default();
        let unit = encode(&head, &Changeset::of(b"rows".to_vec()), &mut codec);
        let (read, rows) = decode(&unit, &mut codec).unwrap();
        assert_eq!((read, rows.bytes()), (head, &b"rows"[..]));
        for broken in [&b""[..], b"{}\n", &unit[..unit.len() - 1], &unit[1..]] {
            assert!(decode(broken, &mut codec).is_err());
        }
        let newer = String::from_utf8_lossy(&unit).replacen("\"v\":1", "\"v\":2", 1).into_bytes();
        assert!(decode(&newer, &mut codec).unwrap_err().to_string().contains("format is 2"));
    }
}
