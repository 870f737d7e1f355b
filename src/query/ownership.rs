//! Ownership of objects, by `metadata.ownerReferences`.
//!
//! An object may have several owners, and at most one of them is its controller. The garbage collector goes by uids and
//! keeps an object until its last owner is gone; so an object belongs to the family of each of its owners. Where there is
//! room for one alone, as in a tree, that is its [`parent`].

use std::collections::HashSet;

use serde::Deserialize;

use crate::core::model::{EntryType, Seq};
use crate::core::wire::Entry;
use crate::journal::{JournalError, ObjectRow, Reader, StoredEntry};

/// An element of `metadata.ownerReferences`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct OwnerReference {
    api_version: String,
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    controller: Option<bool>,
}

impl OwnerReference {
    /// Returns the API group of the owner, empty for the core group.
    pub(crate) fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }
}

/// Returns the owners of an object, given as JSON, in its own order. An object that cannot be read has none.
pub(crate) fn owners(object: &[u8]) -> Vec<OwnerReference> {
    #[derive(Deserialize)]
    struct Object {
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Metadata {
        owner_references: Option<Vec<OwnerReference>>,
    }
    let object = serde_json::from_slice::<Object>(object).ok();
    object.and_then(|object| object.metadata.owner_references).unwrap_or_default()
}

/// Returns the owner below which a tree shows an object: the controller, or the first where no owner controls it.
pub(crate) fn parent(mut owners: Vec<OwnerReference>) -> Option<OwnerReference> {
    let at = owners.iter().position(|owner| owner.controller == Some(true)).unwrap_or(0);
    (at < owners.len()).then(|| owners.swap_remove(at))
}

/// Returns an object and everything that it owns, directly or not, itself first. Objects are taken as they were last known;
/// the owner counts under each uid that its name ever had.
///
/// # Errors
/// Where the journal cannot be read.
pub(crate) fn family(reader: &mut Reader, root: ObjectRow) -> Result<Vec<ObjectRow>, JournalError> {
    let mut uids = HashSet::from([root.uid.clone()]);
    for step in reader.history(&root, Seq(0), Seq(u64::MAX), usize::MAX)? {
        if step.op == EntryType::Modified {
            continue;
        }
        if let Some(stored) = reader.entry_of(&step)? {
            uids.extend(parse(&stored)?.header.uid.map(std::borrow::Cow::into_owned));
        }
    }
    let namespace = root.resource.namespaced.then(|| root.namespace.clone());
    let mut owned = Vec::new();
    for (id, _) in reader.resources()? {
        for row in reader.objects(id, namespace.as_deref(), None)? {
            let owners = last_known(reader, &row)?.map(|object| owners(&object)).unwrap_or_default();
            if !owners.is_empty() {
                owned.push((row, owners));
            }
        }
    }
    let mut family = vec![root];
    loop {
        let (found, rest): (Vec<_>, Vec<_>) =
            owned.into_iter().partition(|(_, owners)| owners.iter().any(|owner| uids.contains(&owner.uid)));
        if found.is_empty() {
            return Ok(family);
        }
        owned = rest;
        for (row, _) in found {
            uids.insert(row.uid.clone());
            if !family.iter().any(|known| known.is(&row)) {
                family.push(row);
            }
        }
    }
}

/// Returns an object as it was last known, as JSON.
pub(crate) fn last_known(reader: &mut Reader, row: &ObjectRow) -> Result<Option<bytes::Bytes>, JournalError> {
    if let Some((object, _)) = reader.unrecorded(row)? {
        return Ok(Some(object));
    }
    let Some(stored) = reader.entry_at(row, Seq(u64::MAX))? else { return Ok(None) };
    let object = parse(&stored)?.object;
    Ok(object.map(|object| stored.line.slice_ref(object.get().as_bytes())))
}

fn parse(stored: &StoredEntry) -> Result<Entry<'_>, JournalError> {
    Entry::parse(&stored.line).map_err(|error| JournalError::damaged(stored.seq, &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parent_of(references: &str) -> Option<String> {
        let object = format!(r#"{{"metadata":{{"name":"a","ownerReferences":{references}}}}}"#);
        parent(owners(object.as_bytes())).map(|owner| format!("{}/{}/{}", owner.group(), owner.kind, owner.name))
    }

    /// What the API server, controllers and bare clients write there.
    #[test]
    fn an_object_stands_below_its_controller_or_else_its_first_owner() {
        let one = r#"{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web","uid":"1","controller":true}"#;
        let two = r#"{"apiVersion":"v1","kind":"Node","name":"n","uid":"2"}"#;
        let null =
            r#"{"apiVersion":"v1","kind":"Service","name":"s","uid":"3","controller":null,"blockOwnerDeletion":null}"#;
        for (references, expected) in [
            ("null", None),
            ("[]", None),
            (&*format!("[{one}]"), Some("apps/ReplicaSet/web")),
            (&*format!("[{two},{one}]"), Some("apps/ReplicaSet/web")),
            (&*format!("[{two},{null}]"), Some("/Node/n")),
            (&*format!("[{null}]"), Some("/Service/s")),
            ("[{}]", Some("//")),
        ] {
            assert_eq!(parent_of(references).as_deref(), expected, "{references}");
        }
        assert_eq!(owners(b"{}"), []);
        assert_eq!(owners(b"no JSON"), []);
    }
}
