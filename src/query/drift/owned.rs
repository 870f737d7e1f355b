//! Fields that a manager owns in one version of an object, by paths that hold in every version.
//!
//! A path is a list of keys of FieldsV1 (`f:spec`, `k:{"name":"web"}`), because the place of an element in its list may change.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::Value;

use crate::core::json::pointer::push_segment;
use crate::core::k8s::bookkeeping::LAST_APPLIED;
use crate::core::k8s::managed_fields::{By, Manager};

/// Keys of FieldsV1 that lead to a value.
pub(super) type Path = Vec<String>;

/// Annotations that controllers keep, whoever applied them first.
const NOTES: [&str; 2] = [LAST_APPLIED, "deployment.kubernetes.io/revision"];

/// A manager of an object, and the set of its fields.
#[derive(Debug)]
pub(super) struct Book<'o> {
    pub(super) manager: Manager,
    pub(super) set: &'o Value,
}

/// Returns the managers of an object that own a field of it.
pub(super) fn books(object: &Value) -> Vec<Book<'_>> {
    let entries = object.pointer("/metadata/managedFields").and_then(Value::as_array).into_iter().flatten();
    let read = |entry| {
        let text = |name| Value::get(entry, name).and_then(Value::as_str).filter(|text| !text.is_empty());
        let set = Value::get(entry, "fieldsV1").filter(|set| is_parted(set))?;
        let manager = Manager {
            manager: text("manager").unwrap_or_default().to_owned(),
            operation: text("operation").unwrap_or_default().to_owned(),
            subresource: text("subresource").map(str::to_owned),
            time: text("time").map(str::to_owned),
            by: Some(By::Owner),
        };
        Some(Book { manager, set })
    };
    entries.filter_map(read).collect()
}

/// Reports whether a set goes into the parts of a value.
fn is_parted(set: &Value) -> bool {
    set.as_object().is_some_and(|keys| !keys.is_empty())
}

/// Reports whether a set owns the value at a path: itself, or as a part of a whole.
pub(super) fn owns(set: &Value, path: &[String]) -> bool {
    let mut at = set;
    for (depth, key) in path.iter().enumerate() {
        match at.get(key) {
            Some(below) => at = below,
            None => return depth > 0 && !is_parted(at),
        }
    }
    true
}

/// Reports whether a set goes into the parts of the value at a path.
fn goes_into(set: &Value, path: &[String]) -> bool {
    path.iter().try_fold(set, |at, key| at.get(key)).is_some_and(is_parted)
}

/// Returns the part of a value that a key of FieldsV1 leads to, with its name in a JSON pointer.
fn below<'v>(value: &'v Value, key: &str) -> Option<(String, &'v Value)> {
    if let Some(name) = key.strip_prefix("f:") {
        return value.as_object()?.get(name).map(|found| (name.to_owned(), found));
    }
    let items = value.as_array()?;
    let place = if let Some(members) = key.strip_prefix("k:") {
        let named: serde_json::Map<String, Value> = serde_json::from_str(members).ok()?;
        items.iter().position(|item| named.iter().all(|(name, value)| item.get(name) == Some(value)))
    } else if let Some(json) = key.strip_prefix("v:") {
        let sought: Value = serde_json::from_str(json).ok()?;
        items.iter().position(|item| *item == sought)
    } else {
        key.strip_prefix("i:")?.parse().ok().filter(|place| *place < items.len())
    };
    place.map(|place| (place.to_string(), &items[place]))
}

/// Returns the value at a path, with its JSON pointer.
pub(super) fn resolve<'v>(object: &'v Value, path: &[String]) -> Option<(String, &'v Value)> {
    let mut pointer = String::new();
    let mut at = object;
    for key in path {
        let (segment, found) = below(at, key)?;
        push_segment(&mut pointer, &segment);
        at = found;
    }
    Some((pointer, at))
}

/// Reports whether a path leads to what somebody sets on purpose, and to no bookkeeping of the API server or of a controller.
fn is_on_purpose(path: &[String]) -> bool {
    match path {
        [] => false,
        [area, rest @ ..] if area == "f:metadata" => match rest {
            [labels, _, ..] if labels == "f:labels" => true,
            [annotations, name, ..] if annotations == "f:annotations" => {
                !NOTES.iter().any(|note| name.strip_prefix("f:") == Some(note))
            }
            _ => false,
        },
        [area, ..] => !["f:status", "f:kind", "f:apiVersion"].contains(&area.as_str()),
    }
}

/// Returns the paths of the fields that a set owns, to the last part that it goes into.
pub(super) fn leaves(set: &Value) -> Vec<Path> {
    fn walk(path: &mut Path, set: &Value, out: &mut Vec<Path>) {
        for (key, below) in set.as_object().into_iter().flatten().filter(|(key, _)| *key != ".") {
            path.push(key.clone());
            if is_parted(below) && !(below.as_object().is_some_and(|keys| keys.len() == 1 && keys.contains_key("."))) {
                walk(path, below, out);
            } else {
                out.push(path.clone());
            }
            path.pop();
        }
    }
    let mut out = Vec::new();
    walk(&mut Vec::new(), set, &mut out);
    out.retain(|path| is_on_purpose(path));
    out
}

/// A value as far as it is remembered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Held {
    hash: u64,
    /// JSON; absent where the value is longer than is remembered.
    pub(super) json: Option<String>,
}

/// Longest value that is remembered, in bytes. Whether two are the same is decided by a hash.
const VALUE: usize = 4 << 10;

impl Held {
    pub(super) fn of(value: &Value) -> Self {
        let json = value.to_string();
        Self { hash: hash_of(&json), json: Some(json).filter(|json| json.len() <= VALUE) }
    }
}

fn hash_of(json: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    json.hash(&mut hasher);
    hasher.finish()
}

/// A field that is not as a tool has set it.
#[derive(Clone, Debug)]
pub(super) struct Differing {
    /// The field, or the element of a list that is gone with it.
    pub(super) path: Path,
    pub(super) pointer: String,
    pub(super) name: String,
    pub(super) expected: Held,
    /// Absent where it is gone.
    pub(super) got: Option<Held>,
    /// Redaction shows both values as the same text, or none.
    pub(super) redacted: bool,
    /// Fields of the tool in it, with their values.
    pub(super) owned: Vec<(Path, Held)>,
}

/// State of a field in a later version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Now {
    /// It is as the tool had set it.
    Expected,
    /// It is as it was.
    Same,
    /// It is another.
    Other,
}

impl Differing {
    /// Compares with a later version.
    pub(super) fn now(&self, object: &Value) -> Now {
        let is = |(path, held): &(Path, Held)| resolve(object, path).is_some_and(|(_, value)| Held::of(value) == *held);
        if !self.redacted && self.owned.iter().all(is) {
            return Now::Expected;
        }
        let now = resolve(object, &self.path).map(|(_, value)| Held::of(value));
        if now == self.got { Now::Same } else { Now::Other }
    }
}

/// Two versions of an object.
pub(super) struct Versions<'o> {
    pub(super) before: &'o Value,
    pub(super) after: &'o Value,
    /// JSON pointers of what is redacted.
    pub(super) redacted: &'o [String],
}

impl Versions<'_> {
    /// Returns the fields of these paths that differ between the two, where `keeps` says which sets of the later version are of their
    /// owner.
    pub(super) fn changed(&self, paths: &BTreeSet<Path>, keeps: impl Fn(&Manager) -> bool) -> Vec<Differing> {
        let (before, after) = (books(self.before), books(self.after));
        let mut found: Vec<Differing> = Vec::new();
        for path in paths {
            let kept = || after.iter().any(|book| keeps(&book.manager) && owns(book.set, path));
            let Some((pointer, value)) = resolve(self.before, path) else {
                found.extend(self.dropped(path).filter(|_| !kept()));
                continue;
            };
            let is_masked = self.redacted.iter().any(|one| is_within(&pointer, one));
            let differs = match resolve(self.after, path) {
                None => true,
                Some(_) if is_masked => !kept(),
                Some((_, is)) if *is == *value => false,
                // Of a value that others may add to, the owner has set nothing but that it is there.
                Some((_, is)) if value.is_object() || value.is_array() => {
                    let is_whole = !before.iter().chain(&after).any(|book| goes_into(book.set, path));
                    is_whole || std::mem::discriminant(is) != std::mem::discriminant(value)
                }
                Some(_) => true,
            };
            let differing = Some(()).filter(|()| differs).and_then(|()| self.differing(path, is_masked));
            if let Some(one) = differing {
                match found.iter_mut().find(|known| known.path == one.path) {
                    Some(known) => known.owned.extend(one.owned),
                    None => found.push(one),
                }
            }
        }
        found
    }

    /// Describes a field that differs, or the element of a list that is gone with it.
    fn differing(&self, path: &[String], redacted: bool) -> Option<Differing> {
        let is_gone =
            |length: &usize| !path[length - 1].starts_with("f:") && resolve(self.after, &path[..*length]).is_none();
        let gone = (1..=path.len()).find(is_gone);
        let whole = &path[..gone.unwrap_or(path.len())];
        let (pointer, expected) = resolve(self.before, whole)?;
        Some(Differing {
            path: whole.to_vec(),
            pointer,
            name: name_of(self.before, whole),
            expected: Held::of(expected),
            got: resolve(self.after, whole).map(|(_, value)| Held::of(value)),
            redacted,
            owned: vec![(path.to_vec(), Held::of(resolve(self.before, path)?.1))],
        })
    }

    /// Describes a field of which redaction leaves no value.
    fn dropped(&self, path: &[String]) -> Option<Differing> {
        let mut pointer = String::new();
        for key in path {
            push_segment(&mut pointer, key.strip_prefix("f:")?);
        }
        let is_hidden = self.redacted.iter().any(|one| is_within(&pointer, one));
        let unknown = Held::of(&Value::Null);
        is_hidden.then(|| Differing {
            path: path.to_vec(),
            name: name_of(self.before, path),
            pointer,
            expected: unknown.clone(),
            got: None,
            redacted: true,
            owned: vec![(path.to_vec(), unknown)],
        })
    }
}

/// Reports whether a JSON pointer leads to a place or into it.
pub(super) fn is_within(pointer: &str, place: &str) -> bool {
    pointer.strip_prefix(place).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Returns the name of a field as `log` has it: `replicas`, `image of web`, `label team`, `spec.paused`.
pub(super) fn name_of(object: &Value, path: &[String]) -> String {
    let named = |key: &str| {
        let members: serde_json::Map<String, Value> = serde_json::from_str(key.strip_prefix("k:")?).ok()?;
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        Some(members.values().map(text).collect::<Vec<_>>().join(","))
    };
    let plain = |key: &str| key.split_once(':').map_or(key, |(_, name)| name).to_owned();
    let keys: Vec<&str> = path.iter().map(String::as_str).collect();
    match keys[..] {
        ["f:spec", "f:replicas"] => "replicas".to_owned(),
        ["f:metadata", "f:labels", label] => format!("label {}", plain(label)),
        ["f:metadata", "f:annotations", annotation] => format!("annotation {}", plain(annotation)),
        [.., "f:containers" | "f:initContainers" | "f:ephemeralContainers", container, "f:image"] => {
            let list = resolve(object, &path[..path.len() - 2]).and_then(|(_, list)| list.as_array());
            match named(container).filter(|_| list.is_none_or(|list| list.len() > 1)) {
                Some(name) => format!("image of {name}"),
                None => "image".to_owned(),
            }
        }
        [.., "f:env", variable, "f:value"] => format!("env {}", named(variable).unwrap_or_default()),
        _ => {
            let mut text = String::new();
            for key in keys {
                match named(key) {
                    Some(element) => text.push_str(&format!("[{element}]")),
                    None if key.starts_with("f:") && text.is_empty() => text.push_str(&plain(key)),
                    None if key.starts_with("f:") => text.push_str(&format!(".{}", plain(key))),
                    None => text.push_str(&format!("[{}]", plain(key))),
                }
            }
            text
        }
    }
}
