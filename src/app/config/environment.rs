//! Values from the environment: `DECKLOG_SECTION_KEY`, and by index where a section is an array of tables.

use std::borrow::Cow;

use serde_json::Value as Json;

use super::check::resolve;
use super::problem::{Problem, SourceSpan};
use super::tree::{self, Member, Node, Value};
use crate::core::spelling::nearest;

/// Sets, in the tree, what the environment says. Reports the variables that name no key.
pub(super) fn apply(root: &mut Node, schema: &Json, environment: &[(String, String)]) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut variables: Vec<(&str, &str, Vec<Step>)> = Vec::new();
    for (name, value) in environment {
        let Some(rest) = name.strip_prefix("DECKLOG_") else { continue };
        match steps(schema, schema, rest) {
            Some(steps) => variables.push((name, value, steps)),
            None => problems.extend(unknown(schema, name, rest)),
        }
    }
    // By path, so that `sink[0]` comes before `sink[1]`, and `sink[2]` before `sink[10]`.
    variables.sort_by(|a, b| a.2.cmp(&b.2));
    for (name, value, steps) in variables {
        let place = SourceSpan::Environment(name.to_owned());
        let target = steps.iter().fold(Json::clone(schema), |at, step| descend(schema, &at, step));
        if let Err(problem) = set(root, &steps, "", read(schema, &target, value, &place)) {
            problems.push(problem);
        }
    }
    problems
}

/// A step of a key's path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Key(String),
    Index(usize),
}

/// The path that the rest of a variable's name spells, if it spells one.
fn steps(root: &Json, schema: &Json, rest: &str) -> Option<Vec<Step>> {
    let schema = resolve(root, schema);
    if let Some(items) = schema.get("items") {
        let (index, rest) = rest.split_once('_').map_or((rest, None), |(index, rest)| (index, Some(rest)));
        let index = index.parse().ok().filter(|_| index.bytes().all(|b| b.is_ascii_digit()))?;
        return with(Step::Index(index), root, items, rest);
    }
    properties(root, &schema).into_iter().find_map(|(key, property)| {
        let tail = rest.strip_prefix(&key.to_uppercase())?;
        let rest = if tail.is_empty() { None } else { Some(tail.strip_prefix('_')?) };
        with(Step::Key(key), root, &property, rest)
    })
}

fn with(step: Step, root: &Json, schema: &Json, rest: Option<&str>) -> Option<Vec<Step>> {
    let mut path = vec![step];
    if let Some(rest) = rest {
        path.extend(steps(root, schema, rest)?);
    }
    Some(path)
}

/// The keys of a table; of a table with a type, those of every type.
fn properties(root: &Json, schema: &Json) -> Vec<(String, Json)> {
    let variants = schema.get("oneOf").and_then(Json::as_array).into_iter().flatten().map(|s| resolve(root, s));
    std::iter::once(Cow::Borrowed(schema))
        .chain(variants)
        .filter_map(|schema| schema.get("properties").and_then(Json::as_object).cloned())
        .flatten()
        .collect()
}

fn descend(root: &Json, schema: &Json, step: &Step) -> Json {
    let schema = resolve(root, schema);
    match step {
        Step::Index(_) => schema.get("items").cloned().unwrap_or_default(),
        Step::Key(key) => {
            properties(root, &schema).into_iter().find(|(name, _)| name == key).map(|(_, s)| s).unwrap_or_default()
        }
    }
}

/// A variable under a section that exists, whose rest names no key. A variable under none may belong to someone else.
fn unknown(schema: &Json, name: &str, rest: &str) -> Option<Problem> {
    let sections = schema["properties"].as_object()?;
    let (section, key) = rest.split_once('_')?;
    let section = sections.get_key_value(&section.to_lowercase())?;
    // Kubernetes gives every container variables named after Services: one called `decklog-http` must not break us.
    if ["SERVICE_HOST", "SERVICE_PORT", "PORT"].iter().any(|of_service| key.starts_with(of_service)) {
        return None;
    }
    let (prefix, item) = match resolve(schema, section.1).get("items") {
        Some(items) => {
            let index = key.split('_').next().filter(|index| index.bytes().all(|b| b.is_ascii_digit())).unwrap_or("0");
            (format!("DECKLOG_{}_{index}_", section.0.to_uppercase()), items.clone())
        }
        None => (format!("DECKLOG_{}_", section.0.to_uppercase()), section.1.clone()),
    };
    let mut known: Vec<String> = properties(schema, &resolve(schema, &item))
        .into_iter()
        .map(|(key, _)| format!("{prefix}{}", key.to_uppercase()))
        .collect();
    known.sort();
    known.dedup();
    let nearest = nearest(name, known.iter().map(String::as_str));
    Some(Problem {
        place: SourceSpan::Environment(name.to_owned()),
        key: String::new(),
        found: "a variable that names no key".to_owned(),
        expected: format!("one of {}", known.join(", ")),
        nearest,
    })
}

/// The text of a variable as the type that its key has. A text that is not of the type stays a text: the checker
/// reports it.
fn read(root: &Json, schema: &Json, text: &str, place: &SourceSpan) -> Node {
    let schema = resolve(root, schema);
    let node = |value| Node { place: place.clone(), value };
    let as_toml = || tree::parse_value(text, place).unwrap_or_else(|| node(Value::Text(text.to_owned())));
    match schema.get("type").and_then(Json::as_str) {
        Some("string") => node(Value::Text(text.to_owned())),
        Some("array") if !text.trim_start().starts_with('[') => node(Value::List(
            text.split(',').map(str::trim).filter(|t| !t.is_empty()).map(|t| node(Value::Text(t.to_owned()))).collect(),
        )),
        Some("integer" | "boolean" | "array" | "object") => as_toml(),
        _ if text.bytes().all(|b| b.is_ascii_digit()) => as_toml(),
        _ => node(Value::Text(text.to_owned())),
    }
}

fn set(at: &mut Node, steps: &[Step], path: &str, node: Node) -> Result<(), Problem> {
    let Some((step, rest)) = steps.split_first() else {
        *at = node;
        return Ok(());
    };
    let empty = Node { place: node.place.clone(), value: Value::Table(Vec::new()) };
    match (step, &mut at.value) {
        (Step::Key(key), Value::Table(members)) => {
            let place = node.place.clone();
            let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            let index = members.iter().position(|member| member.key == *key).unwrap_or_else(|| {
                let node = match rest.first() {
                    Some(Step::Index(_)) => Node { value: Value::List(Vec::new()), ..empty },
                    Some(Step::Key(_)) | None => empty,
                };
                members.push(Member { key: key.clone(), place, node });
                members.len() - 1
            });
            set(&mut members[index].node, rest, &path, node)
        }
        (Step::Index(index), Value::List(nodes)) => {
            if *index > nodes.len() {
                return Err(Problem {
                    place: node.place,
                    key: format!("{path}[{index}]"),
                    found: format!("the index {index} where there are {}", nodes.len()),
                    expected: format!("an index from 0 to {}: indexes have no holes", nodes.len()),
                    nearest: None,
                });
            }
            if *index == nodes.len() {
                nodes.push(empty);
            }
            set(&mut nodes[*index], rest, &format!("{path}[{index}]"), node)
        }
        // The file has something else here; the checker reports that.
        _ => Ok(()),
    }
}
