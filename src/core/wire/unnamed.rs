//! Reasons why an entry names no writer.

use super::{Change, Entry, Op, authors};
use crate::core::json::tree::{Kind, Tree};
use crate::core::k8s::bookkeeping::{self, is_of_managed_fields};
use crate::core::model::EntryType;

/// Reason why an entry names no writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unnamed {
    /// A list found the object as it was.
    Listed,
    /// It is the difference of two states, with any number of writes between them.
    Inferred,
    /// The object had been created before it came into what is watched.
    Selected,
    /// A DELETE request, or what it sets.
    Deletion,
    /// A request to pods/binding.
    Binding,
    /// The scale subresource set 0 replicas, which it writes as a field that is missing.
    ScaleToZero,
    /// The replicas have no owner, as where the server does not track the scale subresource.
    Scale,
    /// Values went, and no manager gains by that.
    Removal,
    /// A value changed that had an owner before, and has none now.
    OwnerLost,
    /// Nothing but the version of the object moved.
    NoOp,
    /// The object has no managedFields: they were cleared, or its server has none.
    NoManagedFields,
    /// The values have no owner, before and after.
    NoOwner,
}

impl Unnamed {
    /// Returns the reason in a few words, for the place where a name would stand.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Listed => "listed",
            Self::Inferred => "inferred",
            Self::Selected => "enters selection",
            Self::Deletion => "deletion",
            Self::Binding => "binding",
            Self::ScaleToZero => "scale to 0 leaves no owner",
            Self::Scale => "scale leaves no owner",
            Self::Removal => "removal leaves no owner",
            Self::OwnerLost => "leaves no owner",
            Self::NoOp => "no-op",
            Self::NoManagedFields => "no managedFields",
            Self::NoOwner => "no owner",
        }
    }

    /// Returns the reason as a sentence, with what the audit log has beyond it.
    #[must_use]
    pub fn sentence(self, beyond: &str) -> String {
        let why = match self {
            Self::Listed => "a list found the object as it was, and its managedFields name all of its writers so far",
            Self::Inferred => "this is the difference of two states, and the writes between them were not seen",
            Self::Selected => "the object is older than this entry: it came into what decklog watches",
            Self::Deletion => "managedFields do not record DELETE requests",
            Self::Binding => "managedFields do not record requests to pods/binding",
            Self::ScaleToZero => {
                "a scale to 0 takes spec.replicas from its owner in managedFields, and leaves it without one"
            }
            Self::Scale => "the API server left spec.replicas without an owner in managedFields",
            Self::Removal => "a request that only removes fields leaves no owner of them in managedFields",
            Self::OwnerLost => "the changed fields had an owner in managedFields before, and have none now",
            Self::NoOp => "the write changed nothing, and managedFields record changes",
            Self::NoManagedFields => "the object has no managedFields: they were cleared, or its API server has none",
            Self::NoOwner => {
                "the changed fields have no owner in managedFields: the API server sets such values itself, or does not track the request"
            }
        };
        format!("nobody is named: {why}; {beyond}")
    }
}

/// Returns the reason why an entry names no writer; none where it names one, on a GAP, and where too little of it is left to say.
#[must_use]
pub fn unnamed(entry: &Entry<'_>) -> Option<Unnamed> {
    if !entry.op.is_change() || !authors(entry).is_empty() {
        return None;
    }
    let evidence = match entry.evidence.as_deref() {
        Some("listed") => Some(Unnamed::Listed),
        Some("inferred") => Some(Unnamed::Inferred),
        Some(_) | None => None,
    };
    if evidence.is_some() {
        return evidence;
    }
    match entry.op {
        EntryType::Deleted => Some(Unnamed::Deletion),
        EntryType::Added => {
            let has = has_managed_fields(entry.object?.get());
            Some(if has { Unnamed::Selected } else { Unnamed::NoManagedFields })
        }
        EntryType::Modified => of_change(entry, &Change::of(entry).ok().flatten()?),
        EntryType::Gap | EntryType::Actor => None,
    }
}

fn of_change(entry: &Entry<'_>, change: &Change<'_>) -> Option<Unnamed> {
    if change.areas.is_empty() {
        return Some(Unnamed::NoOp);
    }
    if change.patch.is_empty() {
        return None;
    }
    let is = |paths: &[&str]| change.patch.iter().find(|op| op.op != "remove" && paths.contains(&&*op.path));
    if is(&bookkeeping::DELETION).is_some() {
        return Some(Unnamed::Deletion);
    }
    if entry.full_resource() == "pods" && is(&["/spec/nodeName"]).is_some() {
        return Some(Unnamed::Binding);
    }
    if entry.object.is_some_and(|object| !has_managed_fields(object.get())) {
        return Some(Unnamed::NoManagedFields);
    }
    if let Some(op) = is(&["/spec/replicas"]) {
        let is_zero = op.value.is_some_and(|value| value.get() == "0");
        return Some(if is_zero { Unnamed::ScaleToZero } else { Unnamed::Scale });
    }
    let is_removal = |op: &Op<'_>| op.op == "remove" || op.op == "move";
    let (books, values): (Vec<_>, Vec<_>) =
        change.patch.iter().filter(|op| !is_version(&op.path)).partition(|op| is_of_managed_fields(&op.path));
    Some(if values.iter().copied().all(is_removal) {
        Unnamed::Removal
    } else if books.iter().copied().any(is_removal) {
        Unnamed::OwnerLost
    } else {
        Unnamed::NoOwner
    })
}

fn is_version(path: &str) -> bool {
    path == bookkeeping::RESOURCE_VERSION || path == bookkeeping::GENERATION
}

fn has_managed_fields(object: &str) -> bool {
    let Ok(mut tree) = Tree::parse_shallow(object.as_bytes()) else { return false };
    let list = tree.find(bookkeeping::MANAGED_FIELDS).filter(|&list| tree.kind(list) == Kind::Array);
    list.is_some_and(|list| {
        tree.read(list);
        tree.elements(list).next().is_some()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn reason(op: &str, evidence: &str, resource: &str, patch: Option<Value>, object: &Value) -> Option<Unnamed> {
        let mut line = json!({"v": 1, "seq": 1, "epoch": "e", "id": "u.1", "time": "2026-11-21T10:15:00.000000Z", "type": op,
            "evidence": evidence, "cluster": {"name": "c", "uid": "u"}, "apiVersion": "v1", "kind": "Kind",
            "resource": resource, "namespace": "shop", "name": "a", "uid": "u", "resourceVersion": "1"});
        if let Some(patch) = patch {
            let areas = if patch == json!([]) { json!([]) } else { json!(["spec"]) };
            line["change"] = json!({"areas": areas, "patch": patch, "managers": []});
        }
        line["object"] = object.clone();
        unnamed(&Entry::parse(line.to_string().as_bytes()).unwrap())
    }

    /// Each kind of request that leaves nobody in managedFields has its reason, and no two the same words.
    #[test]
    fn an_entry_without_a_writer_says_why() {
        let owned = json!({"metadata": {"creationTimestamp": "2026-11-21T09:00:00Z", "managedFields": [
            {"manager": "m", "operation": "Update", "time": "2026-11-21T10:00:00Z", "fieldsV1": {"f:spec": {}}}]}});
        let bare = json!({"metadata": {"name": "a", "managedFields": []}});
        let version = || json!({"op": "replace", "path": "/metadata/resourceVersion", "value": "2", "was": "1"});
        let lost =
            || json!({"op": "remove", "path": "/metadata/managedFields/0/fieldsV1/f:spec/f:replicas", "was": {}});
        let set = |path: &str, value: Value| json!({"op": "replace", "path": path, "value": value, "was": 3});
        let gone = |path: &str| json!({"op": "remove", "path": path, "was": 1});
        let of = |steps: Vec<Value>| Some(Value::Array(steps));
        let cases = [
            ("ADDED", "listed", "pods", None, &owned, Unnamed::Listed),
            ("ADDED", "inferred", "pods", None, &owned, Unnamed::Inferred),
            ("ADDED", "watched", "pods", None, &owned, Unnamed::Selected),
            ("ADDED", "watched", "pods", None, &bare, Unnamed::NoManagedFields),
            ("DELETED", "watched", "pods", None, &owned, Unnamed::Deletion),
            ("DELETED", "inferred", "pods", None, &owned, Unnamed::Inferred),
            ("MODIFIED", "inferred", "pods", of(vec![set("/spec/a", json!(1))]), &owned, Unnamed::Inferred),
            ("MODIFIED", "watched", "pods", of(vec![]), &owned, Unnamed::NoOp),
            (
                "MODIFIED",
                "watched",
                "pods",
                of(vec![version(), set("/metadata/deletionTimestamp", json!("t"))]),
                &owned,
                Unnamed::Deletion,
            ),
            (
                "MODIFIED",
                "recovered",
                "pods",
                of(vec![version(), set("/spec/nodeName", json!("n"))]),
                &owned,
                Unnamed::Binding,
            ),
            (
                "MODIFIED",
                "watched",
                "jobs",
                of(vec![version(), set("/spec/nodeName", json!("n"))]),
                &owned,
                Unnamed::NoOwner,
            ),
            (
                "MODIFIED",
                "watched",
                "jobs",
                of(vec![version(), set("/spec/a", json!(1))]),
                &bare,
                Unnamed::NoManagedFields,
            ),
            (
                "MODIFIED",
                "watched",
                "deployments",
                of(vec![lost(), set("/spec/replicas", json!(0))]),
                &owned,
                Unnamed::ScaleToZero,
            ),
            (
                "MODIFIED",
                "watched",
                "deployments",
                of(vec![lost(), set("/spec/replicas", json!(2))]),
                &owned,
                Unnamed::Scale,
            ),
            (
                "MODIFIED",
                "watched",
                "configmaps",
                of(vec![lost(), version(), gone("/data/a")]),
                &owned,
                Unnamed::Removal,
            ),
            (
                "MODIFIED",
                "watched",
                "configmaps",
                of(vec![lost(), set("/data/a", json!("b"))]),
                &owned,
                Unnamed::OwnerLost,
            ),
            (
                "MODIFIED",
                "watched",
                "namespaces",
                of(vec![version(), set("/status/phase", json!("b"))]),
                &owned,
                Unnamed::NoOwner,
            ),
        ];
        let mut words = std::collections::BTreeMap::new();
        for (op, evidence, resource, patch, object, expected) in cases {
            let found = reason(op, evidence, resource, patch.clone(), object);
            assert_eq!(found, Some(expected), "{op} {evidence} {resource} {patch:?}");
            let other = words.insert(expected.words(), expected);
            assert!(other.is_none_or(|other| other == expected), "two reasons have the words {:?}", expected.words());
            assert!(expected.sentence("the audit log").ends_with("; the audit log"));
        }
        assert_eq!(words.len(), 12);
    }

    #[test]
    fn an_entry_with_a_writer_and_a_shortened_one_have_no_reason() {
        let object = json!({"metadata": {"managedFields": [{"manager": "m", "operation": "Update", "fieldsV1": {"f:spec": {}}}]}});
        assert_eq!(reason("ADDED", "watched", "pods", None, &object), None);
        assert_eq!(reason("MODIFIED", "watched", "pods", None, &object), None);
    }
}
