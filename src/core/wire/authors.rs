//! The writers that an entry names.

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Change, Entry};
use crate::core::k8s::managed_fields::{By, ManagedFields, Manager};
use crate::core::model::{EntryType, Evidence};

/// Longest time between creationTimestamp and the time of the write that created the object: the API server takes both in one
/// request, which waits for webhooks in between.
const REQUEST_MAX: SignedDuration = SignedDuration::from_mins(1);

/// Returns the managers that an entry names: those of a change, and of an object whose creation was seen those that own a field
/// of it. They are empty where nobody is named, and [`super::unnamed`] says why.
#[must_use]
pub fn authors(entry: &Entry<'_>) -> Vec<Manager> {
    authors_with(entry, entry.object.map(|object| object.get().as_bytes()))
}

/// Returns the managers that an entry names, as [`authors`] does, where its object was set apart from it.
#[must_use]
pub fn authors_with(entry: &Entry<'_>, object: Option<&[u8]>) -> Vec<Manager> {
    match (entry.op, entry.managers) {
        (EntryType::Modified, _) => Change::of(entry).ok().flatten().map(|change| change.managers).unwrap_or_default(),
        (EntryType::Added, Some(managers)) => serde_json::from_str(managers.get()).unwrap_or_default(),
        // An earlier decklog left them out.
        (EntryType::Added, None) => {
            let evidence = Evidence::ALL.into_iter().find(|known| Some(known.as_str()) == entry.evidence.as_deref());
            evidence.zip(object).map(|(evidence, object)| creators(evidence, object)).unwrap_or_default()
        }
        (EntryType::Deleted | EntryType::Gap | EntryType::Actor, _) => Vec::new(),
    }
}

/// Returns the `managers` member of an ADDED entry as JSON; none where nobody is known to have created the object.
#[must_use]
pub fn managers(op: EntryType, evidence: Evidence, object: &[u8]) -> Option<String> {
    if op != EntryType::Added {
        return None;
    }
    let creators = creators(evidence, object);
    (!creators.is_empty()).then(|| serde_json::to_string(&creators).expect("texts always serialise into memory"))
}

/// Returns the managers that own fields of an object whose creation was seen, in its first version. An object that a list found,
/// and one that only comes into a selection, has been written since. Times from before its creation came with the request, as
/// those of a restored backup.
fn creators(evidence: Evidence, object: &[u8]) -> Vec<Manager> {
    if !matches!(evidence, Evidence::Watched | Evidence::Recovered) {
        return Vec::new();
    }
    let created = created(object);
    let offset = |manager: &Manager| {
        let time: Timestamp = manager.time.as_deref()?.parse().ok()?;
        Some(time.duration_since(created?))
    };
    let mut managers = ManagedFields::of(object).all();
    if managers.iter().filter_map(offset).any(|offset| offset > REQUEST_MAX) {
        return Vec::new();
    }
    managers.retain(|manager| offset(manager).is_none_or(|offset| offset >= -REQUEST_MAX));
    managers.into_iter().map(|manager| Manager { by: Some(By::Moved), ..manager }).collect()
}

fn created(object: &[u8]) -> Option<Timestamp> {
    #[derive(Deserialize)]
    struct Object<'a> {
        #[serde(borrow)]
        metadata: Metadata<'a>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Metadata<'a> {
        #[serde(borrow)]
        creation_timestamp: &'a RawValue,
    }
    let object: Object<'_> = serde_json::from_slice(object).ok()?;
    let text: String = serde_json::from_str(object.metadata.creation_timestamp.get()).ok()?;
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn line(op: &str, evidence: &str, object: &Value, more: &[(&str, Value)]) -> String {
        let mut line = json!({"v": 1, "seq": 1, "epoch": "e", "id": "u.1", "time": "2026-11-21T10:15:00.000000Z", "type": op,
            "evidence": evidence, "cluster": {"name": "c", "uid": "u"}, "apiVersion": "v1", "kind": "Pod",
            "resource": "pods", "namespace": "shop", "name": "a", "uid": "u", "resourceVersion": "1"});
        for (key, value) in more {
            line[key] = value.clone();
        }
        line["object"] = object.clone();
        line.to_string()
    }

    fn names(line: &str) -> Vec<String> {
        let entry = Entry::parse(line.as_bytes()).unwrap();
        authors(&entry).into_iter().map(|author| author.manager).collect()
    }

    #[test]
    fn an_entry_names_its_writers_where_anything_does() {
        let object = json!({"metadata": {"managedFields": [
            {"manager": "kubectl-create", "operation": "Update", "fieldsV1": {"f:spec": {}}},
            {"manager": "nobody", "operation": "Update"},
        ]}});
        let change = ("change", json!({"areas": ["spec"], "managers": [{"manager": "ci", "operation": "Update"}]}));
        let managers = ("managers", json!([{"manager": "helm", "operation": "Apply", "by": "moved"}]));
        let (change, managers) = (&[change][..], &[managers][..]);
        for (op, evidence, more, expected) in [
            ("ADDED", "watched", &[][..], &["kubectl-create"][..]),
            ("ADDED", "recovered", &[], &["kubectl-create"]),
            ("ADDED", "watched", managers, &["helm"]),
            ("ADDED", "listed", &[], &[]),
            ("ADDED", "inferred", &[], &[]),
            ("MODIFIED", "watched", change, &["ci"]),
            ("MODIFIED", "watched", &[], &[]),
            ("DELETED", "watched", &[], &[]),
        ] {
            assert_eq!(names(&line(op, evidence, &object, more)), expected, "{op} {evidence}");
        }
    }

    /// What an entry carries is what readers of older entries find in the object.
    #[test]
    fn only_managers_of_the_first_version_created_the_object() {
        let write = |name: &str, time: &str| json!({"manager": name, "operation": "Update", "time": time, "fieldsV1": {"f:a": {}}});
        let made = "2026-11-21T10:00:00Z";
        let (now, soon, later, before) = (made, "2026-11-21T10:00:31Z", "2026-11-21T10:01:01Z", "2026-10-01T00:00:00Z");
        for (writes, expected) in [
            (vec![write("kubectl", now)], &["kubectl"][..]),
            (vec![write("kubectl", now), write("webhook", soon)], &["kubectl", "webhook"]),
            // It was created long before it came into the selection.
            (vec![write("kubectl", now), write("labeller", later)], &[]),
            // A backup brings its own.
            (vec![write("argocd", before), write("velero", now)], &["velero"]),
            (vec![json!({"manager": "old", "operation": "Update", "fieldsV1": {"f:a": {}}})], &["old"]),
        ] {
            let object = json!({"metadata": {"creationTimestamp": made, "managedFields": writes}});
            assert_eq!(names(&line("ADDED", "watched", &object, &[])), expected, "{object}");
            let written = managers(EntryType::Added, Evidence::Watched, object.to_string().as_bytes());
            let written: Vec<Manager> = written.map_or_else(Vec::new, |json| serde_json::from_str(&json).unwrap());
            assert!(written.iter().all(|manager| manager.by == Some(By::Moved)));
            assert_eq!(written.into_iter().map(|manager| manager.manager).collect::<Vec<_>>(), expected);
            for (op, evidence) in [(EntryType::Deleted, Evidence::Watched), (EntryType::Added, Evidence::Listed)] {
                assert_eq!(managers(op, evidence, object.to_string().as_bytes()), None);
            }
        }
    }
}
