//! The values of an entry that a template can name.

use std::borrow::Cow;

use minijinja::Value;
use serde_json::value::Value as Json;

use crate::core::json::weight::{MANY, Weight};
use crate::core::wire::{self, Entry, entry_schema};
use crate::sink::Item;
use crate::sink::notify::Incident;

/// Names of the managers that wrote an entry, beside the members that it has.
const BY: &str = "by";

/// The incident that a message is about, where the sink notifies.
const INCIDENT: &str = "incident";

/// The members of an entry that have known members of their own, and those; the names of all others.
pub(super) struct Fields(Json);

impl Fields {
    pub(super) fn new() -> Self {
        let mut schema = entry_schema()["properties"].take();
        schema[BY] = Json::Object(serde_json::Map::new());
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
    let by = Entry::parse(&item.line).map(|entry| wire::authors(&entry)).unwrap_or_default();
    entry[BY] = by.into_iter().map(|author| Json::String(author.manager)).collect();
    if let Some(incident) = &item.incident {
        entry[INCIDENT] = serde_json::to_value(&**incident).map_err(|_| "an incident that is no JSON")?;
    }
    Ok(value(entry))
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
