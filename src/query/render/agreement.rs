//! `verify` and those who read the log agree about what is damaged.

use serde_json::{Value, json};

use super::object;
use super::what::AnnotatedEntry;
use crate::core::model::{EntryType, Seq};
use crate::core::wire::{Change, Entry};
use crate::journal::StoredEntry;

/// An entry of each type.
fn entries() -> [(EntryType, Value); 4] {
    let entry = |op: EntryType, rest: Value| {
        let mut entry = json!({"v": 1, "seq": 7, "epoch": "e", "id": "u.9.X", "time": "2026-11-20T10:28:00.000000Z",
            "happened": "2026-11-20T10:28:00Z", "type": op.as_str(), "evidence": "watched", "cluster": {"name": "c", "uid": "c1"},
            "apiVersion": "v1", "kind": "Pod", "resource": "pods", "namespace": "shop", "name": "web", "uid": "u",
            "resourceVersion": "9", "redacted": ["/spec/a"]});
        entry.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        (op, entry)
    };
    let metadata = json!({"name": "web", "uid": "u", "ownerReferences": [{"name": "o"}], "labels": {"a": "b"},
        "creationTimestamp": "2026-11-20T10:28:00Z", "generation": 1, "managedFields": [{"manager": "m", "operation": "Update",
        "time": "2026-11-20T10:28:00Z", "fieldsV1": {"f:spec": {}}}]});
    let object = json!({"kind": "Pod", "metadata": metadata, "spec": {"a": 2}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    let patch = json!([{"op": "replace", "path": "/spec/a", "value": 2, "was": 1}, {"op": "move", "from": "/a/1", "path": "/a/2"}]);
    let managers = json!([{"manager": "m", "operation": "Update", "subresource": "scale", "time": "2026-11-20T10:28:00Z", "by": "moved"}]);
    let change = json!({"areas": ["spec"], "patch": patch, "managers": managers});
    [
        entry(EntryType::Added, json!({"object": object})),
        entry(EntryType::Modified, json!({"object": object, "change": change})),
        entry(EntryType::Deleted, json!({"object": object})),
        entry(
            EntryType::Gap,
            json!({"gap": {"why": "expired", "from": "5", "to": "9", "since": "2026-11-20T10:28:00Z", "recovered": 2}}),
        ),
    ]
}

/// The pointers of all that an entry holds.
fn pointers(value: &Value, at: &str, found: &mut Vec<String>) {
    let mut below = |name: &str, value: &Value| {
        let pointer = format!("{at}/{name}");
        pointers(value, &pointer, found);
        found.push(pointer);
    };
    match value {
        Value::Object(members) => members.iter().for_each(|(name, value)| below(name, value)),
        Value::Array(items) => items.iter().enumerate().for_each(|(index, item)| below(&index.to_string(), item)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Reports whether every reader of entries can read this one.
fn reads(stored: &StoredEntry) -> bool {
    let Ok(entry) = object::parse(stored) else { return false };
    !entry.op.is_change() || Change::of(&entry).is_ok() && AnnotatedEntry::read(&entry).is_ok()
}

#[test]
fn what_verify_passes_every_reader_reads() {
    let odd = [Some(json!(null)), Some(json!(5)), Some(json!([5])), Some(json!({"a": 1})), Some(json!("text")), None];
    let (mut passed, mut refused) = (0, 0);
    for (kind, entry) in entries() {
        let mut all = Vec::new();
        pointers(&entry, "", &mut all);
        for pointer in all {
            for value in &odd {
                let mut entry = entry.clone();
                let (above, name) = pointer.rsplit_once('/').unwrap();
                match (value, entry.pointer_mut(above).unwrap()) {
                    (Some(value), _) => *entry.pointer_mut(&pointer).unwrap() = value.clone(),
                    (None, Value::Object(members)) => drop(members.remove(name)),
                    (None, Value::Array(items)) => drop(items.remove(name.parse().unwrap())),
                    (None, _) => unreachable!("it stands in a container"),
                }
                let stored = StoredEntry { seq: Seq(7), op: kind, line: entry.to_string().into() };
                let verified = Entry::parse(&stored.line).and_then(|entry| entry.check()).is_ok();
                let reads = reads(&stored);
                // The pointers of what was redacted are for those who redact again, and for sinks.
                let same = verified == reads || pointer.starts_with("/redacted") && reads;
                assert!(same, "verify: {verified}, readers: {reads}: {} {pointer} {value:?}", kind.as_str());
                *(if verified { &mut passed } else { &mut refused }) += 1;
                if pointer.starts_with("/change/managers/0/") || pointer.contains("/managedFields") {
                    assert!(verified, "an earlier decklog wrote that: {pointer} {value:?}");
                }
            }
        }
    }
    assert!(passed > 100 && refused > 100, "{passed} {refused}");
}
