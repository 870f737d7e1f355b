//! The JSON Schema of `config.toml`, derived from the types.

use std::sync::LazyLock;

use schemars::generate::SchemaSettings;
use serde_json::Value;

use super::Config;

/// The JSON Schema of `config.toml`.
#[must_use]
pub fn config_schema() -> Value {
    let schema = SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<Config>();
    let mut schema = schema.to_value();
    without_null(&mut schema);
    schema["title"] = "decklog's config.toml".into();
    schema
}

/// The same without what it tells people, for the checker: it looks at it each time a program starts.
pub(super) static GRAMMAR: LazyLock<Value> = LazyLock::new(|| {
    let mut schema = config_schema();
    without_descriptions(&mut schema);
    schema
});

fn without_descriptions(schema: &mut Value) {
    match schema {
        Value::Array(values) => values.iter_mut().for_each(without_descriptions),
        Value::Object(members) => {
            // A key may be called so as well, and is a schema then.
            members.retain(|name, value| name != "description" || !value.is_string());
            members.values_mut().for_each(without_descriptions);
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// TOML has no null: a key is absent instead.
fn without_null(schema: &mut Value) {
    match schema {
        Value::Array(values) => values.iter_mut().for_each(without_null),
        Value::Object(members) => {
            if members.get("default").is_some_and(Value::is_null) {
                members.remove("default");
            }
            if let Some(Value::Object(default)) = members.get_mut("default") {
                default.retain(|_, value| !value.is_null());
            }
            if let Some(Value::Array(types)) = members.get_mut("type") {
                types.retain(|word| word != "null");
                if let [one] = types.as_slice() {
                    let one = one.clone();
                    members.insert("type".to_owned(), one);
                }
            }
            if let Some(Value::Array(any)) = members.get("anyOf") {
                let rest: Vec<Value> = any.iter().filter(|s| s["type"] != "null").cloned().collect();
                if let [Value::Object(one)] = rest.as_slice() {
                    let one = one.clone();
                    members.remove("anyOf");
                    members.extend(one);
                }
            }
            members.values_mut().for_each(without_null);
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
