//! The writers that an entry names.

use super::{Change, Entry};
use crate::core::k8s::managed_fields::{ManagedFields, Manager};
use crate::core::model::EntryType;

/// Returns the managers that an entry names: those of a change, and of an object whose creation was seen all that own a field.
/// They are empty where nobody is named: by a deletion, by what a list found, and by a value that no owner is left of.
#[must_use]
pub fn authors(entry: &Entry<'_>) -> Vec<Manager> {
    match (entry.op, entry.evidence.as_deref(), entry.object) {
        (EntryType::Modified, ..) => Change::of(entry).ok().flatten().map(|change| change.managers).unwrap_or_default(),
        (EntryType::Added, Some("watched" | "recovered"), Some(object)) => {
            ManagedFields::of(object.get().as_bytes()).all()
        }
        (EntryType::Added | EntryType::Deleted | EntryType::Gap, ..) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_entry_names_its_writers_where_anything_does() {
        let object = json!({"metadata": {"managedFields": [
            {"manager": "kubectl-create", "operation": "Update", "fieldsV1": {"f:spec": {}}},
            {"manager": "nobody", "operation": "Update"},
        ]}});
        let change = json!({"areas": ["spec"], "managers": [{"manager": "ci", "operation": "Update"}]});
        for (op, evidence, change, expected) in [
            ("ADDED", "watched", None, &["kubectl-create"][..]),
            ("ADDED", "recovered", None, &["kubectl-create"]),
            ("ADDED", "listed", None, &[]),
            ("ADDED", "inferred", None, &[]),
            ("MODIFIED", "watched", Some(&change), &["ci"]),
            ("MODIFIED", "watched", None, &[]),
            ("DELETED", "watched", None, &[]),
        ] {
            let mut line = json!({"v": 1, "seq": 1, "epoch": "e", "id": "u.1", "time": "2026-11-21T10:15:00.000000Z", "type": op,
                "evidence": evidence, "cluster": {"name": "c", "uid": "u"}, "apiVersion": "v1", "kind": "Pod",
                "resource": "pods", "namespace": "shop", "name": "a", "uid": "u", "resourceVersion": "1"});
            if let Some(change) = change {
                line["change"] = change.clone();
            }
            line["object"] = object.clone();
            let line = line.to_string();
            let entry = Entry::parse(line.as_bytes()).unwrap();
            let names: Vec<String> = authors(&entry).into_iter().map(|author| author.manager).collect();
            assert_eq!(names, expected, "{op} {evidence}");
        }
    }
}
