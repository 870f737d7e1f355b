//! An entry in an answer.

use bytes::Bytes;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::core::model::{EntryType, Seq};
use crate::journal::StoredEntry;

/// An entry of the log, to the byte.
#[derive(Clone, Debug)]
pub(crate) struct Line(pub(crate) StoredEntry);

impl From<StoredEntry> for Line {
    fn from(stored: StoredEntry) -> Self {
        Self(stored)
    }
}

/// Form of an entry on its way.
#[derive(Serialize, Deserialize)]
struct Sent<'s> {
    seq: Seq,
    #[serde(rename = "type")]
    op: EntryType,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    entry: Option<&'s RawValue>,
    /// Bytes of an entry that is damaged: it is no JSON any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    damaged: Option<Vec<u8>>,
}

impl Serialize for Line {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let StoredEntry { seq, op: kind, line } = &self.0;
        // A raw value keeps no space around it, so one that has some goes as bytes.
        let entry = serde_json::from_slice::<&RawValue>(line).ok().filter(|raw| raw.get().len() == line.len());
        let damaged = if entry.is_none() { Some(line.to_vec()) } else { None };
        Sent { seq: *seq, op: *kind, entry, damaged }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Line {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Sent { seq, op, entry, damaged } = Sent::deserialize(deserializer)?;
        let line = match (entry, damaged) {
            (Some(entry), _) => Bytes::copy_from_slice(entry.get().as_bytes()),
            (None, Some(damaged)) => damaged.into(),
            (None, None) => return Err(D::Error::missing_field("entry")),
        };
        Ok(Self(StoredEntry { seq, op, line }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_arrives_to_the_byte() {
        for line in ["{\"a\":1}", "{\"a\": [1, 2 ],\"b\":1e9999}", "{\"a\":", " {}", "\u{7f}\0"] {
            let stored = StoredEntry { seq: Seq(7), op: EntryType::Gap, line: Bytes::from(line) };
            let sent = serde_json::to_string(&Line(stored)).unwrap();
            let Line(come) = serde_json::from_str(&sent).unwrap();
            assert_eq!((come.seq, come.op, &*come.line), (Seq(7), EntryType::Gap, line.as_bytes()), "{sent}");
        }
    }
}
