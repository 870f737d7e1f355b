//! The values of an entry that a template can name.

use std::borrow::Cow;

use minijinja::Value;
use serde_json::value::Value as Json;

use crate::core::json::weight::{MANY, Weight};
use crate::core::k8s::audited::Actor;
use crate::core::k8s::bookkeeping;
use crate::core::wire::{self, Entry, entry_schema};
use crate::sink::Item;
use crate::sink::notify::{Incident, users};

/// Names of the managers that wrote an entry, beside the members that it has.
const BY: &str = "by";

/// Names of who made an entry, beside the members that it has: the users that an audit log names, else the managers.
const WHO: &str = "who";

/// The operations of a change that say something, beside the members that an entry has.
const DIFFERENCE: &str = "difference";

/// The incident that a message is about, where the sink notifies.
const INCIDENT: &str = "incident";

/// The members of an entry that have known members of their own, and those; the names of all others.
pub(super) struct Fields(Json);

impl Fields {
    pub(super) fn new() -> Self {
        let mut schema = entry_schema()["properties"].take();
        [BY, WHO, DIFFERENCE].iter().for_each(|list| schema[*list] = Json::Object(serde_json::Map::new()));
        let members = serde_json::to_value(Incident::default()).expect("texts and numbers are JSON");
        schema[INCIDENT] = serde_json::json!({ "properties": members });
        Self(schema)
    }

    /// The names below a path of names; none where any may be there.
    pub(super) fn below(&self, path: Option<&str>) -> Option<Vec<&str>> {
        let members = match path {
            None => &self.0,
            Some(name) => &self.0[name]["properties"],
        };
        members.as_object().map(|members| members.keys().map(String::as_str).collect())
    }
}

/// Reads an entry. An object of more than 200,000 values or 128 levels is left out: what a template says of it is bounded.
///
/// # Errors
/// Where it is not an entry.
pub(super) fn read(item: &Item) -> Result<Value, String> {
    let line = mended(&item.line);
    let whole = (!Weight::is_beyond(&line, MANY)).then(|| serde_json::from_slice::<Json>(&line).ok()).flatten();
    let mut entry = match whole {
        Some(entry) => entry,
        None => serde_json::from_slice(&mended(&item.without_object()))
            .map_err(|error| format!("an entry that cannot be read (JSON error at column {})", error.column()))?,
    };
    let read = Entry::parse(&item.line).ok();
    let by = read.as_ref().map(wire::authors).unwrap_or_default();
    let by: Vec<String> = by.into_iter().map(|author| author.manager).collect();
    entry[WHO] = who(read.and_then(|entry| entry.actor()).as_ref(), item.incident.as_deref(), &by).into();
    entry[BY] = by.into();
    let is_digest = item.incident.as_deref().is_some_and(Incident::is_digest);
    entry[DIFFERENCE] = if is_digest { Json::Array(Vec::new()) } else { difference(&entry) };
    if let Some(incident) = &item.incident {
        entry[INCIDENT] = serde_json::to_value(&**incident).map_err(|_| "an incident that is no JSON")?;
    }
    Ok(value(entry))
}

/// Who made an entry, or what an incident began with. A digest is of several.
fn who(actor: Option<&Actor>, incident: Option<&Incident>, by: &[String]) -> Vec<String> {
    if incident.is_some_and(Incident::is_digest) {
        return Vec::new();
    }
    let own = actor.map(users).unwrap_or_default();
    let named = [own.as_slice(), incident.map_or(&[], |incident| incident.users.as_slice()), by];
    named.into_iter().find(|names| !names.is_empty()).unwrap_or_default().to_vec()
}

/// The operations of a change without the bookkeeping that each write moves: images and replicas first, then what else was set, then
/// metadata, and what the status says of it.
fn difference(entry: &Json) -> Json {
    let patch = entry.pointer("/change/patch").and_then(Json::as_array).map_or(&[][..], Vec::as_slice);
    let path = |op: &Json| op["path"].as_str().unwrap_or_default().to_owned();
    let mut said: Vec<Json> = patch.iter().filter(|op| !bookkeeping::is_book(&path(op))).cloned().collect();
    said.sort_by_key(|op| rank(&path(op)));
    Json::Array(said)
}

/// Place of an operation among others, by its path.
fn rank(path: &str) -> usize {
    let is_below = |area: &str| path.strip_prefix(area).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    match path {
        _ if is_below("/status") => 3,
        _ if is_below("/metadata") => 2,
        _ if path.ends_with("/image") || path == "/spec/replicas" => 0,
        _ => 1,
    }
}

fn value(json: Json) -> Value {
    match json {
        Json::Null => Value::from(()),
        Json::Bool(yes) => Value::from(yes),
        Json::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(number), _) => Value::from(number),
            (None, Some(number)) => Value::from(number),
            (None, None) => Value::from(number.as_f64().unwrap_or_default()),
        },
        Json::String(text) => Value::from(text),
        Json::Array(list) => Value::from(list.into_iter().map(value).collect::<Vec<Value>>()),
        Json::Object(members) => Value::from_pairs(members.into_iter().map(|(name, json)| (name, value(json)))),
    }
}

/// JSON whose lone surrogates, which no text can hold, are U+FFFD.
fn mended(json: &[u8]) -> Cow<'_, [u8]> {
    let unit = |at: usize| {
        let digits = json.get(at..at + 6).filter(|text| text.starts_with(br"\u"))?;
        u16::from_str_radix(std::str::from_utf8(&digits[2..]).ok()?, 16).ok()
    };
    let (mut at, mut lone) = (0, Vec::new());
    while let Some(found) = memchr::memchr(b'\\', &json[at..]) {
        at += found;
        match (unit(at), unit(at + 6)) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => at += 12,
            (Some(0xd800..=0xdfff), _) => {
                lone.push(at);
                at += 6;
            }
            _ => at = (at + 2).min(json.len()),
        }
    }
    if lone.is_empty() {
        return Cow::Borrowed(json);
    }
    let mut mended = json.to_vec();
    lone.into_iter().for_each(|at| mended[at..at + 6].copy_from_slice(br"\ufffd"));
    Cow::Owned(mended)
}
