//! The `change` member of an entry, for reading. It is written by `change::patch`.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::Entry;
use crate::core::k8s::managed_fields::Manager;

/// Difference between two consecutive versions of an object.
#[derive(Debug, Default, Deserialize)]
pub struct Change<'a> {
    /// The parts that changed, sorted; empty where nothing but resourceVersion moved.
    #[serde(default)]
    pub areas: Vec<String>,
    /// From the version before to this one; nothing where the line is one of metadata only.
    #[serde(borrow, default)]
    pub patch: Vec<Op<'a>>,
    /// Managers that made it, as far as managedFields say; several if that leaves it open, or if several wrote.
    #[serde(default)]
    pub managers: Vec<Manager>,
}

/// One operation of a patch (RFC 6902).
#[derive(Debug, Deserialize)]
pub struct Op<'a> {
    /// add, remove, replace or move.
    #[serde(borrow)]
    pub op: Cow<'a, str>,
    /// Where, as a JSON pointer.
    #[serde(borrow)]
    pub path: Cow<'a, str>,
    /// Previous position of the value, of a move.
    #[serde(borrow, default)]
    pub from: Option<Cow<'a, str>>,
    /// The new value, of add and replace.
    #[serde(borrow, default, deserialize_with = "present")]
    pub value: Option<&'a RawValue>,
    /// The value before, of replace and remove.
    #[serde(borrow, default, deserialize_with = "present")]
    pub was: Option<&'a RawValue>,
}

/// A member that is there, also where it is `null`.
fn present<'de: 'a, 'a, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

impl<'a> Change<'a> {
    /// Reads the change of an entry; none if it has none.
    ///
    /// # Errors
    /// Where it is not as every decklog writes it.
    pub fn of(entry: &Entry<'a>) -> Result<Option<Self>, serde_json::Error> {
        entry.change.map(|raw| serde_json::from_str(raw.get())).transpose()
    }

    /// Areas that changed in nothing that is recorded: a value there was dropped, and only a digest shows that it is
    /// another.
    pub fn dropped(&self) -> impl Iterator<Item = &String> {
        let told = |area: &str| self.patch.iter().any(|op| op.path.split('/').nth(1) == Some(area));
        self.areas.iter().filter(move |area| *area != "managedFields" && !told(area))
    }
}
