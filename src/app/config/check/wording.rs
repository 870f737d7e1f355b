//! Wording of what is wrong with a key or a value.

use super::{Json, Node, RENAMED, SinkKind, alternatives, format, is_tagged, resolve};

/// The words that a schema takes.
pub(super) fn words(schema: &Json) -> Vec<&str> {
    schema["enum"].as_array().into_iter().flatten().chain(schema.get("const")).filter_map(Json::as_str).collect()
}

/// The present name of a word that was called otherwise.
pub(super) fn renamed<'a>(text: &str, mut words: impl Iterator<Item = &'a str>) -> Option<String> {
    let (_, name) = RENAMED.iter().find(|(former, _)| *former == text)?;
    words.find(|word| word == name).map(str::to_owned)
}

pub(super) fn one_of(words: &[&str]) -> String {
    join(words.iter().map(|word| format!("{word:?}")).collect())
}

fn join(mut parts: Vec<String>) -> String {
    match parts.pop() {
        Some(last) if !parts.is_empty() => format!("{} or {last}", parts.join(", ")),
        Some(last) => last,
        None => String::new(),
    }
}

/// Returns the expectation of a schema, for people.
pub(in crate::app::config) fn expected(root: &Json, schema: &Json) -> String {
    let schema = resolve(root, schema);
    if is_tagged(&schema) {
        return "a table".to_owned();
    }
    let mut parts: Vec<String> = Vec::new();
    for alternative in alternatives(&schema) {
        let alternative = resolve(root, alternative);
        let words = words(&alternative);
        if !words.is_empty() {
            parts.extend(words.iter().map(|word| format!("{word:?}")));
            continue;
        }
        parts.push(match alternative["type"].as_str().unwrap_or_default() {
            "string" => format::expected(alternative["format"].as_str().unwrap_or_default()).to_owned(),
            "boolean" => "true or false".to_owned(),
            "integer" => match (alternative["minimum"].as_i64(), limit(&alternative)) {
                (Some(least), i64::MAX) => format!("an integer of at least {least}"),
                (Some(least), most) => format!("an integer from {least} to {most}"),
                (None, _) => "an integer".to_owned(),
            },
            "array" => {
                let items = resolve(root, &alternative["items"]);
                let some = if alternative["minItems"].is_u64() { "an array of at least one" } else { "an array" };
                if items["type"] == "string" {
                    format!("{some}, each {}", expected(root, &items))
                } else {
                    format!("{some} of tables")
                }
            }
            _ => "a table".to_owned(),
        });
    }
    join(parts)
}

/// The largest integer that a schema takes.
pub(super) fn limit(schema: &Json) -> i64 {
    let of_type = if schema["format"] == "uint32" { i64::from(u32::MAX) } else { i64::MAX };
    schema["maximum"].as_i64().unwrap_or(of_type)
}

/// A key as TOML writes it.
pub(super) fn quoted(key: &str) -> String {
    let bare = !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    if bare { key.to_owned() } else { format!("{key:?}") }
}

/// Returns the right keys of a sink without those in `wrong`; none if a required one is then missing.
pub(super) fn right_part(sink: &Node, wrong: &[String]) -> Option<SinkKind> {
    let mut keys = sink.to_json();
    if let Some(keys) = keys.as_object_mut() {
        keys.retain(|key, _| !wrong.contains(key));
    }
    serde_json::from_value(keys).ok()
}
