//! The checker: walks the tree along the schema and reports every problem at once.

mod audit_log;
mod evidence;
mod ha;
mod ui;
mod wording;

use std::borrow::Cow;
use std::collections::HashMap;

use serde_json::Value as Json;

use super::problem::{Problem, SourceSpan};
use super::tree::{Node, Value};
use super::{Files, format};
use crate::core::net::server::Listen;
use crate::core::spelling::kubernetes::NamespacePattern;
use crate::core::spelling::{Text, nearest};
use crate::sink::registry::{self, SinkKind};
use crate::sink::settings::Clash;
use crate::web::http;
pub(super) use wording::expected;
use wording::{limit, one_of, quoted, renamed, right_part, words};

/// Text for a missing key.
pub(super) const MISSING: &str = "missing";

/// Keys that were renamed before the first release: old and new name.
const RENAMED: [(&str, &str); 2] = [("forget", "drop_oldest"), ("set_aside", "dead_letter")];

/// Returns all errors of the tree.
pub(super) fn check(root: &Node, schema: &Json, files: Files) -> Vec<Problem> {
    let mut checker = Checker { schema, files, problems: Vec::new() };
    checker.node(root, schema, "", false);
    checker.duplicate_names(root);
    let kinds = checker.kinds_of_sinks(root);
    checker.one_place_twice(root, &kinds);
    checker.keys_of_sinks(root, &kinds);
    checker.whole_objects(root);
    checker.one_resource_twice(root);
    checker.nothing_left(root);
    checker.remote_listener(root);
    checker.page(root);
    checker.audit_logs(root);
    checker.places_of_evidence(root);
    checker.shared_log(root, &kinds);
    checker.witnesses(root);
    checker.problems
}

/// The schema with its `$ref` followed; what stands beside the reference stays.
pub(super) fn resolve<'s>(root: &'s Json, schema: &'s Json) -> Cow<'s, Json> {
    let Some(name) = schema.get("$ref").and_then(Json::as_str).and_then(|r| r.strip_prefix("#/$defs/")) else {
        return Cow::Borrowed(schema);
    };
    let mut resolved = resolve(root, &root["$defs"][name]);
    if schema.as_object().is_some_and(|beside| beside.len() > 1) {
        merge(resolved.to_mut(), schema);
    }
    resolved
}

/// Lays `over` on `schema`: the keys of a table and what it requires are joined, the rest is replaced.
fn merge(schema: &mut Json, over: &Json) {
    let (Some(schema), Some(over)) = (schema.as_object_mut(), over.as_object()) else { return };
    for (key, value) in over {
        match (key.as_str(), schema.get_mut(key), value) {
            ("properties", Some(Json::Object(into)), Json::Object(from)) => {
                into.extend(from.iter().map(|(key, value)| (key.clone(), value.clone())));
            }
            ("required", Some(Json::Array(into)), Json::Array(from)) => into.extend(from.iter().cloned()),
            ("$ref", ..) => {}
            _ => {
                schema.insert(key.clone(), value.clone());
            }
        }
    }
}

struct Checker<'s> {
    schema: &'s Json,
    files: Files,
    problems: Vec<Problem>,
}

impl Checker<'_> {
    fn report(&mut self, place: &SourceSpan, key: &str, found: impl Into<String>, expected: impl Into<String>) {
        self.report_near(place, key, found, expected, None);
    }

    fn report_near(
        &mut self,
        place: &SourceSpan,
        key: &str,
        found: impl Into<String>,
        expected: impl Into<String>,
        nearest: Option<String>,
    ) {
        let (place, key) = (place.clone(), key.to_owned());
        self.problems.push(Problem { place, key, found: found.into(), expected: expected.into(), nearest });
    }

    fn node(&mut self, node: &Node, schema: &Json, path: &str, secret: bool) {
        let schema = resolve(self.schema, schema);
        let secret = secret || schema["writeOnly"] == true;
        if is_tagged(&schema) {
            return self.tagged(node, &schema, path, secret);
        }
        if matches!(node.value, Value::Table(_))
            && let Some(table) = alternatives(&schema)
                .into_iter()
                .map(|alternative| resolve(self.schema, alternative))
                .find(|alternative| alternative["type"] == "object" && schema.get("oneOf").is_some())
        {
            return self.table(node, &table, path, secret, None);
        }
        if schema.get("oneOf").is_some() || schema.get("enum").is_some() {
            return self.choice(node, &schema, path);
        }
        match (schema["type"].as_str().unwrap_or_default(), &node.value) {
            ("object", Value::Table(_)) => self.table(node, &schema, path, secret, None),
            ("array", Value::List(nodes)) => {
                let least = schema["minItems"].as_u64().unwrap_or(0);
                if (nodes.len() as u64) < least {
                    self.report(&node.place, path, "an empty array", expected(self.schema, &schema));
                }
                for (index, element) in nodes.iter().enumerate() {
                    self.node(element, &schema["items"], &format!("{path}[{index}]"), secret);
                }
            }
            ("string", Value::Text(text)) => {
                let name = schema["format"].as_str().unwrap_or_default();
                if let Err(wrong) = format::check(name, text, self.files) {
                    let expected = expected(self.schema, &schema);
                    let nearest = match text.trim().parse::<u64>() {
                        Ok(number) if has_units(name) => self.with_unit(number, &schema),
                        _ => wrong.nearest,
                    };
                    self.report_near(&node.place, path, wrong.found, expected, nearest);
                }
            }
            ("integer", Value::Integer(number)) => {
                let below = schema["minimum"].as_i64().is_some_and(|least| *number < least);
                if below || *number > limit(&schema) {
                    self.report(&node.place, path, node.described(secret), expected(self.schema, &schema));
                }
            }
            ("boolean", Value::Boolean(_)) => {}
            (wanted, value) => {
                let nearest = match value {
                    // The commonest slips: quotes too many, quotes or brackets too few.
                    Value::Text(text) if wanted == "integer" => text.parse::<i64>().ok().map(|n| n.to_string()),
                    Value::Text(text) if wanted == "boolean" => nearest(text, ["true", "false"]),
                    Value::Text(text) if wanted == "array" && !secret => Some(format!("[{text:?}]")),
                    Value::Integer(number)
                        if wanted == "string" && has_units(schema["format"].as_str().unwrap_or_default()) =>
                    {
                        let number = u64::try_from(*number).ok().and_then(|number| self.with_unit(number, &schema));
                        number.map(|text| format!("{text:?}"))
                    }
                    Value::Integer(number) if wanted == "string" && !secret => {
                        let name = schema["format"].as_str().unwrap_or_default();
                        match format::check(name, &number.to_string(), self.files) {
                            Ok(()) => Some(format!("\"{number}\"")),
                            Err(wrong) => wrong.nearest.map(|near| format!("{near:?}")),
                        }
                    }
                    Value::Table(_) if wanted == "array" => Some(format!("[[{path}]]")),
                    Value::Text(_)
                    | Value::Integer(_)
                    | Value::Boolean(_)
                    | Value::Other(..)
                    | Value::List(_)
                    | Value::Table(_) => None,
                };
                self.report_near(&node.place, path, node.described(secret), expected(self.schema, &schema), nearest);
            }
        }
    }

    /// A bare number with the unit of the default: without one nobody knows what was meant.
    fn with_unit(&self, number: u64, schema: &Json) -> Option<String> {
        let default = schema["default"].as_str()?;
        let text = format!("{number}{}", default.trim_start_matches(|c: char| c.is_ascii_digit()));
        format::check(schema["format"].as_str()?, &text, self.files).is_ok().then_some(text)
    }

    /// One of some words, or something that is no word.
    fn choice(&mut self, node: &Node, schema: &Json, path: &str) {
        let all: Vec<Cow<'_, Json>> = alternatives(schema).into_iter().map(|one| resolve(self.schema, one)).collect();
        let fits = all.iter().any(|alternative| match &node.value {
            Value::Text(text) => words(alternative).contains(&text.as_str()),
            Value::Integer(number) => {
                alternative["type"] == "integer" && alternative["minimum"].as_i64().is_none_or(|least| *number >= least)
            }
            Value::Boolean(_) | Value::Other(..) | Value::List(_) | Value::Table(_) => false,
        });
        if !fits {
            let words = all.iter().flat_map(|alternative| words(alternative));
            let nearest = node.text().and_then(|text| nearest(text, words.clone()).or_else(|| renamed(text, words)));
            self.report_near(&node.place, path, node.described(false), expected(self.schema, schema), nearest);
        }
    }

    /// A table whose keys depend on its `type`.
    fn tagged(&mut self, node: &Node, schema: &Json, path: &str, secret: bool) {
        if !matches!(node.value, Value::Table(_)) {
            return self.report(&node.place, path, node.described(secret), "a table");
        }
        let variants: Vec<Cow<'_, Json>> =
            alternatives(schema).into_iter().map(|one| resolve(self.schema, one)).collect();
        let tags: Vec<&str> = variants.iter().filter_map(|variant| tag(variant)).collect();
        let given = node.get("type");
        let chosen = given.and_then(Node::text).and_then(|word| variants.iter().find(|v| tag(v) == Some(word)));
        let mut whole = schema.clone();
        if let Some(table) = whole.as_object_mut() {
            table.remove("oneOf");
        }
        match (chosen, given) {
            (Some(variant), _) => {
                merge(&mut whole, variant);
                return self.table(node, &whole, path, secret, Some(&variants));
            }
            (None, Some(given)) => {
                let key = format!("{path}.type");
                let word = given.text().unwrap_or_default();
                let near = nearest(word, tags.iter().copied());
                self.report_near(&given.place, &key, given.described(false), one_of(&tags), near);
            }
            (None, None) => self.report(&node.place, &format!("{path}.type"), MISSING, one_of(&tags)),
        }
        // Without a type, the keys of every type may be meant: what is required cannot be known.
        for variant in &variants {
            merge(&mut whole, &serde_json::json!({ "properties": variant["properties"] }));
        }
        whole["properties"]["type"] = serde_json::json!({});
        let common = schema["required"].clone();
        whole["required"] = common;
        self.table(node, &whole, path, secret, None);
    }

    fn table(&mut self, node: &Node, schema: &Json, path: &str, secret: bool, variants: Option<&[Cow<'_, Json>]>) {
        let Value::Table(members) = &node.value else { return };
        let none = serde_json::Map::new();
        let properties = schema["properties"].as_object().unwrap_or(&none);
        for member in members {
            let key = if path.is_empty() { quoted(&member.key) } else { format!("{path}.{}", quoted(&member.key)) };
            if let Some(property) = properties.get(&member.key) {
                if property.as_object().is_some_and(|property| !property.is_empty()) {
                    self.node(&member.node, property, &key, secret);
                }
            } else if schema["additionalProperties"].is_object() {
                self.node(&member.node, &schema["additionalProperties"], &key, true);
                if schema["format"] == "headers" {
                    self.header(&member.place, &member.node, &key, &member.key);
                }
            } else {
                let names: Vec<&str> = properties.keys().map(String::as_str).collect();
                let nearest = nearest(&member.key, names.iter().copied());
                let found = match variants.and_then(|variants| other_type(variants, &member.key)) {
                    Some(other) => format!("a key of sinks of type {other}; this one is {:?}", tag_of(node)),
                    // What is near was meant, wherever else there is such a key.
                    None => match self.sections_with(&member.key).as_slice() {
                        sections if nearest.is_none() && !sections.is_empty() => {
                            format!("an unknown key here (it is one of {})", sections.join(" and "))
                        }
                        _ => "an unknown key".to_owned(),
                    },
                };
                self.report_near(&member.place, &key, found, format!("one of {}", names.join(", ")), nearest);
            }
        }
        let required = schema["required"].as_array().into_iter().flatten().filter_map(Json::as_str);
        for key in required.filter(|key| node.get(key).is_none()) {
            let expected = match properties.get(key) {
                Some(_) if key == "watch" => "at least one [[watch]] with the resources to watch".to_owned(),
                Some(property) => expected(self.schema, &resolve(self.schema, property)),
                None => "a value".to_owned(),
            };
            let key = if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
            self.report(&node.place, &key, MISSING, expected);
        }
    }

    fn header(&mut self, place: &SourceSpan, node: &Node, key: &str, name: &str) {
        if ::http::HeaderName::try_from(name).is_err() {
            self.report(place, key, "a name that no HTTP header can have", "letters, digits and \"-\"");
        }
        if node.text().is_some_and(|text| ::http::HeaderValue::from_str(text).is_err()) {
            self.report(&node.place, key, "a string with control characters", "a string that a header can carry");
        }
    }

    /// The sections that have a key of this name.
    fn sections_with(&self, key: &str) -> Vec<String> {
        let sections = self.schema["properties"].as_object().into_iter().flatten();
        sections
            .filter_map(|(name, section)| {
                let section = resolve(self.schema, section);
                let (item, list) = match section.get("items") {
                    Some(items) => (resolve(self.schema, items), true),
                    None => (section, false),
                };
                item["properties"].get(key)?;
                Some(if list { format!("[[{name}]]") } else { format!("[{name}]") })
            })
            .collect()
    }

    fn duplicate_names(&mut self, root: &Node) {
        let mut seen: HashMap<&str, usize> = HashMap::new();
        for (index, sink) in root.get("sink").map_or(&[][..], Node::elements).iter().enumerate() {
            let Some((node, name)) = sink.get("name").and_then(|node| Some((node, node.text()?))) else { continue };
            match seen.get(name) {
                Some(first) => {
                    let found = format!("{name:?}, which is the name of sink[{first}]");
                    self.report(&node.place, &format!("sink[{index}].name"), found, "a name that no other sink has");
                }
                None => {
                    seen.insert(name, index);
                }
            }
        }
    }

    /// The sinks, by what is right of them.
    fn kinds_of_sinks(&self, root: &Node) -> Vec<Option<SinkKind>> {
        let sinks = root.get("sink").map_or(&[][..], Node::elements);
        let wrong = self.wrong_keys_of_sinks();
        let wrong = |index| wrong.get(&index).map_or(&[][..], Vec::as_slice);
        sinks.iter().enumerate().map(|(index, sink)| right_part(sink, wrong(index))).collect()
    }

    /// Two sinks cannot write to one place: each would take what the other wrote for its own. A sink is compared by what is
    /// right of it.
    fn one_place_twice(&mut self, root: &Node, kinds: &[Option<SinkKind>]) {
        let sinks = root.get("sink").map_or(&[][..], Node::elements);
        for (index, own) in kinds.iter().enumerate() {
            let others = kinds[..index].iter().enumerate();
            let clash = own.as_ref().and_then(|own| {
                let clash =
                    |(first, other): (usize, &Option<SinkKind>)| own.clash(other.as_ref()?, &format!("sink[{first}]"));
                others.filter_map(clash).next()
            });
            if let Some(Clash { key, found, expected }) = clash {
                let place = &sinks[index].get(key).unwrap_or(&sinks[index]).place;
                self.report(place, &format!("sink[{index}].{key}"), found, expected);
            }
        }
    }

    /// The keys of one sink that need or exclude each other, where each is right by itself.
    fn keys_of_sinks(&mut self, root: &Node, kinds: &[Option<SinkKind>]) {
        let sinks = root.get("sink").map_or(&[][..], Node::elements);
        let wrong = self.wrong_keys_of_sinks();
        for (index, kind) in kinds.iter().enumerate().filter(|(index, _)| !wrong.contains_key(index)) {
            let mistakes = kind.as_ref().map(|kind| kind.settings().mistakes(self.files == Files::Check));
            for Clash { key, found, expected } in mistakes.into_iter().flatten() {
                let place = &sinks[index].get(key).unwrap_or(&sinks[index]).place;
                self.report(place, &format!("sink[{index}].{key}"), found, expected);
            }
        }
    }

    /// The keys with which something was found wrong, by the number of the sink. Problems are looked through once, and not
    /// for each sink: a file may have thousands of both.
    fn wrong_keys_of_sinks(&self) -> HashMap<usize, Vec<String>> {
        let mut wrong: HashMap<usize, Vec<String>> = HashMap::new();
        for problem in &self.problems {
            let key = problem.key.strip_prefix("sink[").and_then(|rest| rest.split_once("]."));
            if let Some((Ok(index), key)) = key.map(|(index, key)| (index.parse(), key)) {
                wrong.entry(index).or_default().extend(key.split(['.', '[']).next().map(str::to_owned));
            }
        }
        wrong
    }

    /// A sink that keeps the objects that there are has to get everything.
    fn whole_objects(&mut self, root: &Node) {
        for (index, sink) in root.get("sink").map_or(&[][..], Node::elements).iter().enumerate() {
            let Some(key) = registry::wants_everything(tag_of(sink)) else { continue };
            if !sink.get(key).is_some_and(|node| matches!(node.value, Value::Boolean(true))) {
                continue;
            }
            if let Some(node) = sink.get("where") {
                let found = format!("a filter beside {key} = true, which needs every entry");
                self.report(
                    &node.place,
                    &format!("sink[{index}].where"),
                    found,
                    "no `where`; another sink can have it",
                );
            }
            if let Some(node) = sink.get("payload").filter(|node| node.text() != Some("full")) {
                let found = format!("{} beside {key} = true, which needs whole objects", node.described(false));
                self.report(&node.place, &format!("sink[{index}].payload"), found, "\"full\"");
            }
        }
    }

    /// Checks a listener: clients can read which objects there are, so other machines need an explicit setting.
    fn remote_listener(&mut self, root: &Node) {
        let Some(http) = root.get("http") else { return };
        let is_on = |key: &str| http.get(key).is_some_and(|node| matches!(node.value, Value::Boolean(true)));
        let named = http.get("listen").and_then(|node| Some((node, node.text()?)));
        let listen = match named.map(|(_, text)| Listen::read(text)) {
            None => http::Settings::default().listen,
            Some(Ok(listen)) => listen,
            Some(Err(_)) => return,
        };
        if let Some((node, text)) = named.filter(|_| !is_on("allow_remote") && !listen.is_local()) {
            let found = format!("{text:?}, which other machines can reach, without a password");
            let expected = "an address on loopback, a unix socket, or allow_remote = true beside it, and a firewall";
            self.report(&node.place, "http.listen", found, expected);
        }
        self.reading(http, &listen, is_on("reading"));
    }

    /// Checks `reading`: readers see objects, so a person has to name them, and no secret may cross a network in clear text.
    fn reading(&mut self, http: &Node, listen: &Listen, reading: bool) {
        if let Some(node) = http.get("authorize").filter(|_| !reading) {
            let found = "\"cluster\", and nobody reads the log here".to_owned();
            self.report(&node.place, "http.authorize", found, "reading = true beside it");
        }
        if self.identity("http", http, listen) || !reading {
            return;
        }
        let mut report = |key: &str, found: &str, expected: &str| {
            if let Some(node) = http.get(key) {
                self.report(&node.place, &format!("http.{key}"), found.to_owned(), expected);
            }
        };
        let has = |key: &str| http.get(key).is_some();
        if !has("token_file") && !has("client_ca_file") && !has("authorize") {
            let found = "true, and everybody who can connect would read what objects hold";
            report(
                "reading",
                found,
                "token_file, client_ca_file or authorize = \"cluster\" beside it, or a unix socket in http.listen",
            );
        }
        if !listen.is_local() && !has("tls_cert_file") {
            let found = "true on an address that other machines can reach, without TLS";
            report("reading", found, "tls_cert_file and tls_key_file beside it, so that nobody reads along");
        }
    }

    /// Checks that the certificates and the tokens of a section fit together. Reports whether it is a unix socket, whose file
    /// mode decides the rest.
    fn identity(&mut self, section: &str, node: &Node, listen: &Listen) -> bool {
        let mut report = |key: &str, found: &str, expected: &str| {
            if let Some(node) = node.get(key) {
                self.report(&node.place, &format!("{section}.{key}"), found.to_owned(), expected);
            }
        };
        let has = |key: &str| node.get(key).is_some();
        if has("authorize") {
            for key in ["token_file", "client_ca_file"] {
                let found = "let in readers whom the cluster does not know, beside authorize = \"cluster\"";
                report(key, found, "one of the two: leave it out, and each reader shows a Kubernetes token");
            }
        }
        for (one, other) in [("tls_cert_file", "tls_key_file"), ("tls_key_file", "tls_cert_file")] {
            if !has(other) {
                report(one, &format!("no {other} beside it"), "both: a certificate, and its private key");
            }
        }
        if !has("tls_cert_file") {
            report(
                "client_ca_file",
                "no TLS, which alone shows certificates",
                "tls_cert_file and tls_key_file beside it",
            );
        }
        if matches!(listen, Listen::Unix(_)) {
            for key in ["tls_cert_file", "token_file"] {
                let found = "a unix socket, whose own rights say who may open it";
                report(key, found, &format!("an address and port in {section}.listen, or leave it out"));
            }
            return true;
        }
        false
    }

    /// Namespaces that are watched and left out at once.
    fn nothing_left(&mut self, root: &Node) {
        for (index, watch) in root.get("watch").map_or(&[][..], Node::elements).iter().enumerate() {
            let texts = |key: &str| -> Vec<(usize, &Node, &str)> {
                let nodes = watch.get(key).map_or(&[][..], Node::elements);
                nodes.iter().enumerate().filter_map(|(at, node)| Some((at, node, node.text()?))).collect()
            };
            let patterns = texts("exclude_namespaces").into_iter();
            let left_out: Vec<_> =
                patterns.filter_map(|(at, _, text)| Some((at, NamespacePattern::read(text).ok()?))).collect();
            for (at, node, name) in texts("namespaces") {
                if let Some((by, _)) = left_out.iter().find(|(_, pattern)| pattern.covers(name)) {
                    let found = format!("{name:?}, which exclude_namespaces[{by}] leaves out");
                    let expected =
                        "a namespace that is not left out; where `namespaces` names any, nothing else is watched";
                    self.report(&node.place, &format!("watch[{index}].namespaces[{at}]"), found, expected);
                }
            }
        }
    }

    /// The same resource twice in the same namespace, where both are spelled out: the log would have each change twice.
    fn one_resource_twice(&mut self, root: &Node) {
        let mut seen: Vec<(String, Vec<String>, String)> = Vec::new();
        for (index, watch) in root.get("watch").map_or(&[][..], Node::elements).iter().enumerate() {
            let texts = |key: &str| -> Vec<(&Node, String)> {
                let nodes = watch.get(key).map_or(&[][..], Node::elements);
                nodes.iter().filter_map(|node| Some((node, node.text()?.to_lowercase()))).collect()
            };
            let namespaces: Vec<String> = texts("namespaces").into_iter().map(|(_, name)| name).collect();
            for (at, (node, resource)) in texts("resources").into_iter().enumerate() {
                let key = format!("watch[{index}].resources[{at}]");
                let overlap = seen.iter().find(|(other, others, _)| {
                    *other == resource
                        && !resource.starts_with('*')
                        && (namespaces.is_empty() || others.is_empty() || namespaces.iter().any(|n| others.contains(n)))
                });
                match overlap {
                    Some((_, _, first)) => {
                        let found = format!("{resource:?}, which {first} watches in the same namespaces");
                        self.report(&node.place, &key, found, "each resource at most once in a namespace");
                    }
                    None => seen.push((resource, namespaces.clone(), key)),
                }
            }
        }
    }
}

/// Reports whether texts of this format are numbers with a unit.
fn has_units(format: &str) -> bool {
    matches!(format, "time-span" | "margin" | "period" | "size")
}

fn is_tagged(schema: &Json) -> bool {
    schema.get("oneOf").is_some() && schema.get("properties").is_some()
}

fn alternatives(schema: &Json) -> Vec<&Json> {
    schema["oneOf"].as_array().map_or_else(|| vec![schema], |alternatives| alternatives.iter().collect())
}

/// The word of a variant's `type`.
pub(super) fn tag(variant: &Json) -> Option<&str> {
    variant["properties"]["type"]["const"].as_str()
}

fn tag_of(node: &Node) -> &str {
    node.get("type").and_then(Node::text).unwrap_or_default()
}

/// The types that have this key.
fn other_type(variants: &[Cow<'_, Json>], key: &str) -> Option<String> {
    let types: Vec<&str> =
        variants.iter().filter(|v| v["properties"].get(key).is_some()).filter_map(|variant| tag(variant)).collect();
    (!types.is_empty()).then(|| one_of(&types))
}
