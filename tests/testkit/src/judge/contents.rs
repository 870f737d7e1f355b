//! Contents of entries: the patch that leads from one version to the next, and what holds for the log as a whole.

use std::collections::{BTreeSet, HashMap, HashSet};

use serde_json::Value;

use super::entry::{Entry, Key, Kind};

/// What the entries of one source carry: a patch leads from the version before to this one, and says what was there;
/// a deletion carries the last state.
pub(super) fn contents(name: &str, entries: &[&Entry], wrong: &mut Vec<String>) {
    let mut last: HashMap<(Key, &str), Value> = HashMap::new();
    for entry in entries.iter().filter(|entry| !entry.is_gap()) {
        let mut say = |what: &str| wrong.push(format!("{name}: {what}: {entry}"));
        let Some(object) = entry.value() else { continue };
        let before = last.remove(&(entry.key(), entry.uid.as_str()));
        match (entry.type_of(), &entry.change, before) {
            (Some(Kind::Modified), Some(change), Some(mut before)) => {
                let areas = areas(&before, &object);
                // Values that were redacted can change without a trace in the text.
                let fits = |area: &String| areas.contains(area.as_str()) || !entry.redacted.is_empty();
                if !areas.iter().all(|area| change.areas.iter().any(|other| other == area))
                    || !change.areas.iter().all(fits)
                    || !change.areas.is_sorted()
                {
                    say(&format!("areas are {:?} and should be {areas:?}", change.areas));
                }
                if let Err(error) = apply_patch(&mut before, &change.patch) {
                    say(&format!("the patch cannot be applied: {error}"));
                } else if before != object {
                    say("the patch does not lead from the version before to this one");
                }
            }
            (Some(Kind::Modified), None, _) => say("no change"),
            (Some(Kind::Deleted), None, Some(before)) if entry.is_seen() => {
                // The API server gives the last state the version of the deletion.
                if before["apiVersion"] == object["apiVersion"] && without_version(before) != without_version(object) {
                    say("the deletion does not carry the last state");
                }
                continue;
            }
            (Some(Kind::Deleted), None, before) => {
                if before.is_some_and(|before| before != object) {
                    say("the deletion does not carry the last state");
                }
                continue;
            }
            (_, Some(_), _) if entry.kind != "MODIFIED" => say("a change on what is no MODIFIED"),
            _ => {}
        }
        last.insert((entry.key(), entry.uid.as_str()), object);
    }
}

fn without_version(mut object: Value) -> Value {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("resourceVersion");
    }
    object
}

/// The areas in which two versions differ.
pub fn areas<'a>(before: &'a Value, after: &'a Value) -> BTreeSet<&'a str> {
    let (Some(old), Some(new)) = (before.as_object(), after.as_object()) else { return BTreeSet::new() };
    let mut areas: BTreeSet<&str> = old
        .keys()
        .chain(new.keys())
        .map(String::as_str)
        .filter(|key| *key != "metadata" && old.get(*key) != new.get(*key))
        .collect();
    if before["metadata"]["managedFields"] != after["metadata"]["managedFields"] {
        areas.insert("managedFields");
    }
    let rest = |object: &Value| {
        let mut object = without_version(object.clone());
        object["metadata"].as_object_mut().map(|metadata| metadata.remove("managedFields"));
        object["metadata"].take()
    };
    if rest(before) != rest(after) {
        areas.insert("metadata");
    }
    areas
}

/// RFC 6902 as far as the contract uses it, with `was` checked.
pub fn apply_patch(document: &mut Value, patch: &[Value]) -> Result<(), String> {
    for step in patch {
        let (Some(op), Some(path)) = (step["op"].as_str(), step["path"].as_str()) else {
            return Err(format!("no operation: {step}"));
        };
        if op == "move" {
            move_element(document, step["from"].as_str().unwrap_or_default(), path)?;
            continue;
        }
        let (parent, token) = path.rsplit_once('/').ok_or_else(|| format!("no path: {step}"))?;
        let token = token.replace("~1", "/").replace("~0", "~");
        let parent = document.pointer_mut(parent).ok_or_else(|| format!("nothing at {parent:?}"))?;
        let found = match &*parent {
            Value::Object(map) => map.get(&token),
            Value::Array(items) => token.parse::<usize>().ok().and_then(|index| items.get(index)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
        };
        if op != "add" && (found.is_none() || found != step.get("was")) {
            return Err(format!("{path} was {found:?}, not {:?}", step.get("was")));
        }
        let value = || step.get("value").cloned().ok_or_else(|| format!("no value: {step}"));
        match (op, parent) {
            ("add" | "replace", Value::Object(map)) => drop(map.insert(token, value()?)),
            ("remove", Value::Object(map)) => drop(map.remove(&token)),
            ("add", Value::Array(items)) => {
                let index = if token == "-" { items.len() } else { token.parse().map_err(|_| token)? };
                if index > items.len() {
                    return Err(format!("{path} is beyond the end"));
                }
                items.insert(index, value()?);
            }
            ("replace", Value::Array(items)) => items[token.parse::<usize>().map_err(|_| token)?] = value()?,
            ("remove", Value::Array(items)) => drop(items.remove(token.parse().map_err(|_| token)?)),
            _ => return Err(format!("cannot {op} at {path}")),
        }
    }
    Ok(())
}

/// An element of a list stands at another place of it.
fn move_element(document: &mut Value, from: &str, path: &str) -> Result<(), String> {
    let place = |pointer: &str| {
        let (list, index) = pointer.rsplit_once('/')?;
        Some((list.to_owned(), index.parse::<usize>().ok()?))
    };
    match (place(from), place(path)) {
        (Some((list, from)), Some((other, to))) if list == other && from != to => {
            let items = document.pointer_mut(&list).and_then(Value::as_array_mut);
            let items =
                items.filter(|items| from.max(to) < items.len()).ok_or_else(|| format!("no such move in {list}"))?;
            let item = items.remove(from);
            items.insert(to, item);
            Ok(())
        }
        _ => Err(format!("no move within a list: {from} to {path}")),
    }
}

/// What holds for the log as a whole: dense seq, one epoch, ids that are unique and well formed, objects that are the
/// ones the entry names.
pub(super) fn whole_log(log: &[Entry], wrong: &mut Vec<String>) {
    let mut ids = HashSet::new();
    let mut rollbacks: HashMap<String, usize> = HashMap::new();
    for (index, entry) in log.iter().enumerate() {
        let mut say = |what: &str| wrong.push(format!("{what}: {} {entry}", entry.full_resource()));
        if entry.v != 1 {
            say("v is not 1");
        }
        if entry.seq != index as u64 + 1 {
            say(&format!("seq is not {}", index + 1));
        }
        if entry.epoch != log[0].epoch || entry.epoch.is_empty() {
            say("epoch changed");
        }
        // RFC 3339 in UTC with microseconds has one length, and sorts as text.
        let earlier = index.checked_sub(1).is_some_and(|before| log[before].time > entry.time);
        if entry.time.len() != "2000-01-01T00:00:00.000000Z".len() || !entry.time.ends_with('Z') || earlier {
            say(&format!("time is {:?}", entry.time));
        }
        if entry.cluster != log[0].cluster || !entry.cluster.keys().eq(["name", "uid"]) {
            say(&format!("cluster is {:?}", entry.cluster));
        }
        if let Some(problem) = &entry.malformed {
            say(problem);
        }
        if entry.is_rollback() {
            *rollbacks.entry(entry.full_resource()).or_default() += 1;
        }
        // The versions that a restored etcd gives out are given out for the second time.
        let timeline = rollbacks.get(&entry.full_resource()).copied().unwrap_or(0);
        if !ids.insert((&entry.id, timeline)) {
            say(&format!("id {} appears twice", entry.id));
        }
        if entry.is_gap() {
            if entry.gap.is_none() {
                say("GAP without gap");
            }
            if entry.id != format!("{}.{}", entry.epoch, entry.seq) {
                say(&format!("id {} is not EPOCH.SEQ", entry.id));
            }
            continue;
        }
        if entry.type_of().is_none() || !(entry.is_seen() || ["listed", "inferred"].contains(&entry.evidence.as_str()))
        {
            say("unknown type or evidence");
        }
        if entry.id != format!("{}.{}.{}", entry.uid, entry.resource_version, entry.kind) {
            say(&format!("id {} is not UID.RESOURCEVERSION.TYPE", entry.id));
        }
        let Some(object) = entry.value() else {
            say("no object");
            continue;
        };
        let inside = |key: &str| object["metadata"][key].as_str().unwrap_or_default();
        if (inside("namespace"), inside("name"), inside("uid")) != (&entry.namespace, &entry.name, &entry.uid) {
            say("the object inside is another one");
        }
        if inside("resourceVersion") != entry.resource_version {
            say("the object inside has another resourceVersion");
        }
    }
}
