//! An entry as `churn` reads it: what changed, and who wrote it.

use std::borrow::Cow;
use std::cmp::Reverse;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::wire::Entry;

/// Where the API server keeps the books about who set what.
const BOOKS: &str = "/metadata/managedFields";

/// What moves with other changes and is none by itself.
const BESIDE: [&str; 3] = [
    "/metadata/resourceVersion",
    "/metadata/generation",
    "/metadata/annotations/kubectl.kubernetes.io~1last-applied-configuration",
];

/// The `change` member of an entry.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Change<'a> {
    #[serde(default, borrow)]
    pub(super) areas: Vec<Cow<'a, str>>,
    #[serde(default, borrow)]
    pub(super) patch: Vec<Operation<'a>>,
    #[serde(default, borrow)]
    managers: Vec<Manager<'a>>,
}

/// One operation of a patch.
#[derive(Debug, Deserialize)]
pub(super) struct Operation<'a> {
    #[serde(borrow)]
    op: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) path: Cow<'a, str>,
    #[serde(default, borrow)]
    pub(super) value: Option<&'a RawValue>,
    #[serde(default, borrow)]
    pub(super) was: Option<&'a RawValue>,
}

#[derive(Debug, Deserialize)]
struct Manager<'a> {
    #[serde(default, borrow)]
    manager: Cow<'a, str>,
    #[serde(default, borrow)]
    time: Cow<'a, str>,
    #[serde(default, borrow, rename = "fieldsV1")]
    fields: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Object<'a> {
    #[serde(borrow, default)]
    metadata: Option<Metadata<'a>>,
}

#[derive(Deserialize)]
struct Metadata<'a> {
    #[serde(borrow, default, rename = "managedFields")]
    managed: Vec<Manager<'a>>,
}

impl<'a> Change<'a> {
    /// Of an entry; nothing of one that has none.
    pub(super) fn of(entry: &Entry<'a>) -> Self {
        entry.change.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default()
    }

    /// What somebody meant to change: not what the API server or kubectl keep beside it.
    pub(super) fn meant(&self) -> impl Iterator<Item = &Operation<'a>> {
        self.patch.iter().filter(|operation| book(&operation.path).is_none() && !BESIDE.contains(&&*operation.path))
    }

    /// Who wrote it, as far as managedFields tell.
    ///
    /// The API server notes the time of a write in the writer's entry, to the second, and takes fields that changed
    /// hands out of the entries of the others. So of the entries that the change names, the writer's is the one that
    /// has what was changed; else the one that came, has another time, or has more fields than before. Where the change
    /// names none (a second write within one second) it is any that has what was changed.
    pub(super) fn writer(&self, object: &[u8]) -> Option<String> {
        let gains = self.patch.iter().filter_map(|operation| Some((book(&operation.path)?, operation.gain())));
        let gains: Vec<(Option<usize>, u8)> = gains.collect();
        if let ([manager], true) = (&*self.managers, gains.iter().any(|(_, gain)| *gain > 0)) {
            return Some(manager.manager.to_string());
        }
        // Entries that only changed places are not named.
        let names = |manager: &Manager<'_>| {
            self.managers.iter().any(|named| named.manager == manager.manager && named.time == manager.time)
        };
        let gain = |at: usize| gains.iter().filter(|(of, _)| of.is_none_or(|of| of == at)).map(|(_, gain)| *gain).max();
        let first = self.meant().find(|operation| operation.value.is_some());
        let ranked = managed(object).into_iter().enumerate().filter_map(|(at, manager)| {
            let gain = gain(at).filter(|_| names(&manager)).unwrap_or(0);
            let has = (self.managers.is_empty() || names(&manager))
                && first.is_some_and(|operation| manager.has(&operation.path));
            (has || gain > 0).then_some(((has, gain, manager.time), manager.manager))
        });
        ranked.max_by(|(one, _), (other, _)| one.cmp(other)).map(|(_, manager)| manager.into_owned())
    }
}

/// Who made an object: of whoever its books name, the newest.
pub(super) fn creator(object: &[u8]) -> Option<String> {
    let managed = managed(object);
    managed.into_iter().min_by_key(|manager| Reverse(manager.time.clone())).map(|manager| manager.manager.into_owned())
}

fn managed(object: &[u8]) -> Vec<Manager<'_>> {
    let object: Option<Object<'_>> = serde_json::from_slice(object).ok();
    object.and_then(|object| object.metadata).map(|metadata| metadata.managed).unwrap_or_default()
}

/// Which entry of the books a pointer leads into, or that it is all of them.
pub(super) fn book(path: &str) -> Option<Option<usize>> {
    let rest = path.strip_prefix(BOOKS)?;
    match rest.strip_prefix('/') {
        None => rest.is_empty().then_some(None),
        Some(rest) => Some(rest.split('/').next().and_then(|index| index.parse().ok())),
    }
}

impl Operation<'_> {
    /// How surely an operation on the books tells the writer: another time or a new entry, then fields that came.
    fn gain(&self) -> u8 {
        let below = self.path.trim_start_matches(BOOKS).split('/').skip(2).collect::<Vec<_>>();
        match (&*self.op, below.as_slice()) {
            ("remove", _) => 0,
            (_, [] | ["time"]) => 2,
            _ => 1,
        }
    }
}

impl Manager<'_> {
    /// Whether the manager has what a pointer leads to. Elements of lists have no index in the books but a key, and
    /// any of them will do.
    fn has(&self, pointer: &str) -> bool {
        let fields: Option<Value> = self.fields.and_then(|raw| serde_json::from_str(raw.get()).ok());
        let names: Vec<String> =
            pointer.split('/').skip(1).map(|name| name.replace("~1", "/").replace("~0", "~")).collect();
        fields.is_some_and(|fields| has(&fields, &names))
    }
}

fn has(fields: &Value, names: &[String]) -> bool {
    let (Some(members), Some((name, rest))) = (fields.as_object(), names.split_first()) else { return true };
    // What has no parts in the books is had as a whole.
    if !members.is_empty() && members.keys().all(|key| key == ".") {
        return false;
    }
    if members.is_empty() {
        return true;
    }
    if let Some(found) = members.get(&format!("f:{name}")) {
        return has(found, rest);
    }
    let is_index = name.bytes().all(|byte| byte.is_ascii_digit());
    is_index && members.iter().any(|(key, found)| (key.starts_with("k:") || key.starts_with("v:")) && has(found, rest))
}
