//! The tools: their names, arguments and schemas.

use std::sync::Arc;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use super::page::{self, Cursor, STATEMENTS_MAX};
use crate::core::model::{EntryType, Seq};
use crate::query::render::Failure;
use crate::query::render::clock::{Clock, EXPECTED};
use crate::query::render::names::At;

/// A tool: its name, what it answers, the arguments that it needs, and those that it takes.
struct Declared {
    name: &'static str,
    about: &'static str,
    needs: &'static [&'static str],
    takes: &'static [&'static str],
}

/// Arguments that are times, and those of them that may be seqs as well.
const TIMES: [&str; 5] = ["since", "until", "at", "from", "to"];
const MOMENTS: [&str; 3] = ["at", "from", "to"];

/// Arguments that every tool takes.
const OF_ALL: [&str; 3] = ["cluster", "limit", "cursor"];

const TOOLS: [Declared; 8] = [
    Declared {
        name: "log",
        about: "Entries of the log, newest first, without the objects: what happened to objects, when, and who wrote it.",
        needs: &[],
        takes: &["objects", "namespaces", "labels", "types", "since", "until", "where", "touched", "grep", "by"],
    },
    Declared {
        name: "why",
        about: "Where each field of an object comes from: the program, the sync behind it, the revision, the person.",
        needs: &["object"],
        takes: &["fields", "namespaces", "at"],
    },
    Declared {
        name: "diff",
        about: "Differences between two moments: of objects, of namespaces, or of everything.",
        needs: &["from"],
        takes: &["objects", "namespaces", "by", "to"],
    },
    Declared {
        name: "blame",
        about: "The writer, the time and the entry of each field of an object.",
        needs: &["object"],
        takes: &["fields", "namespaces", "at"],
    },
    Declared {
        name: "object_at",
        about: "Objects as they were at a moment, or as they are.",
        needs: &["objects"],
        takes: &["namespaces", "labels", "at"],
    },
    Declared {
        name: "churn",
        about: "The busiest writers, their no-op writes, and fields that managers fight over; of the last hour unless since says otherwise.",
        needs: &[],
        takes: &["objects", "namespaces", "since", "until"],
    },
    Declared {
        name: "coverage",
        about: "Of which time the log knows everything, and of which it does not. Ask it where another tool refuses.",
        needs: &[],
        takes: &["objects", "namespaces", "since", "until"],
    },
    Declared {
        name: "verify",
        about: "The proof that the journal is whole and unaltered. It reads all of it.",
        needs: &[],
        takes: &[],
    },
];

/// The arguments of every tool.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Arguments {
    pub(super) cluster: Option<String>,
    pub(super) limit: Option<usize>,
    #[serde(deserialize_with = "cursor")]
    pub(super) cursor: Option<Cursor>,
    pub(super) object: String,
    pub(super) objects: Vec<String>,
    pub(super) fields: Vec<String>,
    pub(super) namespaces: Vec<String>,
    pub(super) labels: Option<String>,
    pub(super) types: Vec<EntryType>,
    #[serde(rename = "where")]
    pub(super) filter: Option<String>,
    pub(super) touched: Option<String>,
    pub(super) grep: Option<String>,
    pub(super) by: Vec<String>,
    pub(super) since: Option<Timestamp>,
    pub(super) until: Option<Timestamp>,
    #[serde(deserialize_with = "moment")]
    pub(super) at: Option<At>,
    #[serde(deserialize_with = "moment")]
    pub(super) from: Option<At>,
    #[serde(deserialize_with = "moment")]
    pub(super) to: Option<At>,
    /// The present, of the first page.
    #[serde(skip)]
    pub(super) now: Timestamp,
}

/// Writes the times of arguments in RFC 3339: they are what `--since` takes, in UTC.
fn times(tool: &str, given: &mut JsonObject, clock: &Clock) -> Result<(), Failure> {
    for key in TIMES {
        let Some(written) = given.get_mut(key) else { continue };
        let is_moment = MOMENTS.contains(&key);
        let is_seq = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let read = match &*written {
            Value::Number(number) if is_moment && number.is_u64() => continue,
            Value::String(text) if is_moment && is_seq(text) => continue,
            Value::String(text) => clock.read(text).map(|written| written.time),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
                Err(EXPECTED.to_owned())
            }
        };
        let time = read.map_err(|expected| {
            let or_seq = if is_moment { ", or a seq like 1234" } else { "" };
            let example = if expected == EXPECTED { "" } else { "; expected a duration like 10m, or a time" };
            Failure::usage(format!("{tool}: {key}: {expected}{example}{or_seq}"))
        })?;
        *written = Value::String(time.to_string());
    }
    Ok(())
}

/// Reads a moment: a seq, or a time of RFC 3339.
fn moment<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<At>, D::Error> {
    let wrong =
        || serde::de::Error::custom("a moment is a seq such as \"1234\", or a time such as 2026-11-20T10:15:00Z");
    let Some(written) = Option::<Value>::deserialize(deserializer)? else { return Ok(None) };
    let text = match &written {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => return Err(wrong()),
    };
    if let Ok(seq) = text.parse() {
        return Ok(Some(At::Seq(Seq(seq))));
    }
    text.parse().map(|time| Some(At::Time(time))).map_err(|_| wrong())
}

fn cursor<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Cursor>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    text.map(|text| Cursor::read(&text)).transpose().map_err(serde::de::Error::custom)
}

/// Returns the name of the tool, if there is one, as it is declared.
pub(super) fn named(name: &str) -> Option<&'static str> {
    TOOLS.iter().map(|tool| tool.name).find(|known| *known == name)
}

/// Reads the arguments of a tool.
///
/// # Errors
/// Exit 64 where the tool does not take one, or needs another.
pub(super) fn read(name: &str, given: Option<JsonObject>) -> Result<Arguments, Failure> {
    let mut given = given.unwrap_or_default();
    let Some(tool) = TOOLS.iter().find(|tool| tool.name == name) else {
        let names: Vec<&str> = TOOLS.iter().map(|tool| tool.name).collect();
        return Err(Failure::usage(format!("there is no such tool; there are {}", names.join(", "))));
    };
    let known = || OF_ALL.iter().chain(tool.needs).chain(tool.takes).copied();
    if given.keys().any(|key| !known().any(|known| known == key)) {
        return Err(Failure::usage(format!(
            "{name} takes {}, and nothing else",
            known().collect::<Vec<_>>().join(", ")
        )));
    }
    if let Some(missing) = tool.needs.iter().find(|key| given.get(**key).is_none_or(Value::is_null)) {
        return Err(Failure::usage(format!("{name} needs {missing}")));
    }
    // Many a client names each argument, with null for what it leaves out.
    given.retain(|_, value| !value.is_null());
    let cursor = given.get("cursor").and_then(Value::as_str).and_then(|text| Cursor::read(text).ok());
    let now = cursor.and_then(|cursor| Timestamp::from_microsecond(cursor.now).ok()).unwrap_or_else(Timestamp::now);
    times(tool.name, &mut given, &Clock { now, zone: TimeZone::UTC })?;
    serde_json::from_value(Value::Object(given))
        .map(|arguments| Arguments { now, ..arguments })
        .map_err(|error| Failure::usage(format!("{name}: {}", plainly(&error))))
}

/// An error of an argument in the words of JSON.
fn plainly(error: &serde_json::Error) -> String {
    let words = [("usize", "a number from 0 on"), ("a sequence", "an array")];
    words.iter().fold(error.to_string(), |text, (rust, json)| {
        text.replace(&format!("expected {rust}"), &format!("expected {json}"))
    })
}

/// Descriptions of the tools.
pub(super) fn all() -> Vec<Tool> {
    let output = object(page::schema());
    let of = |tool: &Declared| {
        let hints = ToolAnnotations::from_raw(None, Some(true), Some(false), Some(true), Some(false));
        Tool::new(tool.name, tool.about, object(input(tool)))
            .with_raw_output_schema(Arc::clone(&output))
            .with_annotations(hints)
    };
    TOOLS.iter().map(of).collect()
}

fn object(schema: Value) -> Arc<JsonObject> {
    Arc::new(if let Value::Object(object) = schema { object } else { JsonObject::new() })
}

fn input(tool: &Declared) -> Value {
    let keys = tool.needs.iter().chain(tool.takes).chain(&OF_ALL);
    let properties: JsonObject = keys.map(|key| ((*key).to_owned(), property(key))).collect();
    json!({"type": "object", "additionalProperties": false, "required": tool.needs, "properties": properties})
}

/// JSON Schema of an argument.
fn property(key: &str) -> Value {
    let text = |about: &str| json!({"type": "string", "description": about});
    let texts = |about: &str| json!({"type": "array", "items": {"type": "string"}, "description": about});
    let moment = |about: &str| json!({"type": ["string", "integer"], "description": about});
    match key {
        "cluster" => text("The cluster, where the server has several."),
        "limit" => {
            json!({"type": "integer", "minimum": 1, "maximum": STATEMENTS_MAX, "description": "Number of statements of a page."})
        }
        "cursor" => text("`next` of the answer before, with the same other arguments."),
        "object" => text("KIND/NAME as kubectl spells it: deploy/web."),
        "objects" => {
            texts("KIND or KIND/NAME as kubectl spells them: deploy, deployments.apps, deploy/web, pods/web-*.")
        }
        "fields" => texts("Paths of fields: .spec.replicas, image."),
        "namespaces" => texts("Names of namespaces; all if there are none."),
        "labels" => text("Label selector: app=web."),
        "types" => {
            json!({"type": "array", "items": {"enum": ["ADDED", "MODIFIED", "DELETED", "GAP", "ACTOR"]}, "description": "Types of entries; all if there are none."})
        }
        "where" => text("CEL expression over the entry: type == \"DELETED\" && namespace == \"shop\"."),
        "touched" => text("A field that the entry changed: .spec.replicas, image."),
        "grep" => text("Regular expression that the JSON of the entry matches."),
        "by" => texts("Names of managers or users, with * for other characters."),
        "since" => text(
            "Start of the time: a duration back (10m, 2h, 3d), or a time in UTC (yesterday, 10:30, 2026-11-20, RFC 3339).",
        ),
        "until" => text("End of the time, in the same formats; now if there is none."),
        "at" => moment(
            "The moment: a seq, a duration back (10m), or a time in UTC (10:30, RFC 3339); now if there is none.",
        ),
        "from" => moment("The first moment: a seq, a duration back (10m), or a time in UTC (10:30, RFC 3339)."),
        "to" => moment("The second moment, in the same formats; now if there is none."),
        _ => json!({}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(value: Value) -> Option<JsonObject> {
        if let Value::Object(object) = value { Some(object) } else { None }
    }

    /// Schemas hold: each argument is described, and each is read.
    #[test]
    fn every_argument_is_described_and_read() {
        for tool in &TOOLS {
            for key in tool.needs.iter().chain(tool.takes).chain(&OF_ALL) {
                let described = property(key);
                let value = match (*key, &described["type"]) {
                    ("cursor", _) => json!("1-2-3-4-5"),
                    ("since" | "until", _) => json!("2026-11-20T10:00:00Z"),
                    ("types", _) => json!(["ADDED"]),
                    (_, kind) if kind == "array" => json!(["x"]),
                    (_, kind) if kind == "integer" => json!(1),
                    (_, kind) if kind.is_null() => panic!("{key} is not described"),
                    _ => json!("7"),
                };
                let mut all: JsonObject = tool.needs.iter().map(|key| ((*key).to_owned(), json!("7"))).collect();
                if all.contains_key("objects") {
                    all.insert("objects".to_owned(), json!(["x"]));
                }
                all.insert((*key).to_owned(), value);
                assert!(read(tool.name, Some(all)).is_ok(), "{} {key}", tool.name);
            }
        }
    }

    /// Every argument that is a time takes what `--since` takes, and says what it takes where it is wrong.
    #[test]
    fn a_time_is_whatever_the_command_line_takes() {
        let asked = |tool: &Declared, key: &str, value: &Value| {
            let mut all: JsonObject = tool.needs.iter().map(|key| ((*key).to_owned(), json!("7"))).collect();
            if all.contains_key("objects") {
                all.insert("objects".to_owned(), json!(["x"]));
            }
            all.insert(key.to_owned(), value.clone());
            read(tool.name, Some(all))
        };
        let mut count = 0;
        for tool in &TOOLS {
            for key in tool.needs.iter().chain(tool.takes).filter(|key| TIMES.contains(*key)) {
                count += 1;
                for text in [
                    "10m",
                    "1h30m",
                    "2 hours ago",
                    "now",
                    "yesterday",
                    "2026-11-20",
                    "2026-11-20 10:15",
                    "2026-11-20T10:15:00Z",
                ] {
                    let found = asked(tool, key, &json!(text));
                    assert!(found.is_ok(), "{} {key} {text}: {:?}", tool.name, found.err());
                }
                for wrong in [json!("soon"), json!("+10m"), json!(""), json!({}), json!([1]), json!(1.5)] {
                    let said = asked(tool, key, &wrong).unwrap_err().text().to_owned();
                    let is_said = said.starts_with(&format!("{}: {key}: ", tool.name)) && said.contains("10m");
                    assert!(is_said, "{} {key} {wrong}: {said}", tool.name);
                }
                let is_moment = ["at", "from", "to"].contains(key);
                for seq in [json!(12), json!("12")] {
                    assert_eq!(asked(tool, key, &seq).is_ok(), is_moment, "{} {key} {seq}", tool.name);
                }
            }
        }
        assert_eq!(count, 11);
        // The pages of an answer are of one present.
        let page = json!({"since": "10m", "cursor": "1-2-1795256100000000-4-5"});
        let found = read("log", given(page)).unwrap();
        let now = found.cursor.unwrap().now;
        assert_eq!(found.since.unwrap().as_microsecond(), now - 600_000_000);
    }

    #[test]
    fn what_a_tool_does_not_take_is_refused() {
        for (name, wrong) in [
            ("why", json!({})),
            ("why", json!({"object": null})),
            ("log", json!({"object": "deploy/web"})),
            ("log", json!({"since": "tomorrow"})),
            ("log", json!({"cursor": "1"})),
            ("verify", json!({"at": 1})),
            ("object_at", json!({"objects": ["cm"], "at": "soon"})),
            ("drop_everything", json!({})),
        ] {
            assert!(read(name, given(wrong.clone())).is_err(), "{name} {wrong}");
        }
        for (wrong, says) in
            [(json!({"limit": -1}), "expected a number"), (json!({"objects": "cm/x"}), "expected an array")]
        {
            let text = read("log", given(wrong)).unwrap_err().text().to_owned();
            assert!(text.contains(says), "{text}");
        }
        let keys = TOOLS[0].takes.iter().chain(&OF_ALL).map(|key| ((*key).to_owned(), Value::Null)).collect();
        assert!(read("log", Some(keys)).is_ok(), "what is null is left out");
        let at = read("why", given(json!({"object": "cm/x", "at": 12}))).unwrap().at;
        assert_eq!(at, Some(At::Seq(Seq(12))));
    }
}
