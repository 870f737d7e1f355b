//! The keys of `config.toml`, for whoever prints them: read out of the schema, so that none is missing and none is made up.

use serde_json::Value as Json;

use super::check::{self, expected, resolve};
use super::config_schema;

/// A table of `config.toml`, or the keys that a type of sink adds to one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// The header in the file, such as `[state]` or `[[sink]]`.
    pub header: String,
    /// The word of `type`, for the keys of one type.
    pub of: Option<String>,
    /// Description, in a sentence.
    pub says: String,
    /// Its keys.
    pub keys: Vec<Key>,
}

/// A key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// Its name; `rules.mode` is the key `mode` in an inner table.
    pub name: String,
    /// Meaning of the key.
    pub says: String,
    /// Type of the value.
    pub takes: String,
    /// Its default as TOML writes it; none where it has to be given, or stands in what it means.
    pub default: Option<String>,
    /// True if the key is required.
    pub required: bool,
}

/// Every table, in the order of the file.
#[must_use]
pub fn reference() -> Vec<Table> {
    let schema = config_schema();
    let mut tables = Vec::new();
    for (name, property) in members(&schema) {
        let resolved = resolve(&schema, &property);
        let (header, table) = match resolved.get("items") {
            Some(items) => (format!("[[{name}]]"), resolve(&schema, items).into_owned()),
            None => (format!("[{name}]"), of_table(&schema, &resolved)),
        };
        // What stands beside the reference says what it is here.
        let says = text(&resolved["description"]);
        let mut common = keys(&schema, &table, "");
        let variants: Vec<Json> = table["oneOf"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|variant| resolve(&schema, variant).into_owned())
            .collect();
        let words: Vec<String> = variants.iter().filter_map(check::tag).map(|word| format!("{word:?}")).collect();
        if !words.is_empty() {
            let says = "The type. Each has keys of its own, which stand below.".to_owned();
            let (name, takes) = ("type".to_owned(), words.join(", "));
            common.insert(0, Key { name, says, takes, default: None, required: true });
        }
        tables.push(Table { header: header.clone(), of: None, says, keys: common });
        for variant in &variants {
            let Some(word) = check::tag(variant) else { continue };
            let mut keys = keys(&schema, variant, "");
            keys.retain(|key| key.name != "type");
            tables.push(Table {
                header: header.clone(),
                of: Some(word.to_owned()),
                says: text(&variant["description"]),
                keys,
            });
        }
    }
    tables
}

fn text(value: &Json) -> String {
    value.as_str().unwrap_or_default().replace('\n', " ")
}

fn members(schema: &Json) -> Vec<(String, Json)> {
    schema["properties"].as_object().into_iter().flatten().map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// The alternative that has keys, where a value is a table or a word.
fn of_table(root: &Json, schema: &Json) -> Json {
    if schema.get("properties").is_some() {
        return schema.clone();
    }
    let alternatives = schema["oneOf"].as_array().or_else(|| schema["anyOf"].as_array()).into_iter().flatten();
    alternatives
        .map(|alternative| resolve(root, alternative).into_owned())
        .find(|alternative| alternative.get("properties").is_some())
        .unwrap_or_else(|| schema.clone())
}

fn keys(root: &Json, table: &Json, prefix: &str) -> Vec<Key> {
    let required: Vec<&str> = table["required"].as_array().into_iter().flatten().filter_map(Json::as_str).collect();
    let mut keys = Vec::new();
    for (name, property) in members(table) {
        let resolved = resolve(root, &property);
        let default = property.get("default").filter(|default| !is_nothing(default));
        let path = format!("{prefix}{name}");
        keys.push(Key {
            name: path.clone(),
            says: text(&resolved["description"]),
            takes: expected(root, &property),
            default: default.filter(|default| !default.is_object()).map(toml),
            required: required.contains(&name.as_str()),
        });
        let inner =
            resolved.get("items").map_or_else(|| of_table(root, &resolved), |items| resolve(root, items).into_owned());
        keys.extend(self::keys(root, &inner, &format!("{path}.")));
    }
    // Alphabetical is the order of the schema; what has to be given comes first.
    keys.sort_by_key(|key| !key.required || key.name.contains('.'));
    keys
}

/// A default that says nothing: an empty text, list or table.
fn is_nothing(value: &Json) -> bool {
    value.as_str() == Some("")
        || value.as_array().is_some_and(Vec::is_empty)
        || value.as_object().is_some_and(serde_json::Map::is_empty)
}

/// JSON writes texts, numbers, booleans and lists of them as TOML does.
fn toml(value: &Json) -> String {
    value.to_string()
}
