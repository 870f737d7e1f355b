//! The example file and the schema name every key.

use super::*;

/// Every key of the schema, as a path without indexes, with its default.
fn keys(schema: &Json, at: &Json, path: &str, into: &mut Vec<(String, Option<Json>)>) {
    let at = check::resolve(schema, at);
    let variants = at["oneOf"].as_array().into_iter().flatten().map(|v| check::resolve(schema, v));
    for table in std::iter::once(at.clone()).chain(variants) {
        for (key, property) in table["properties"].as_object().into_iter().flatten() {
            let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            let resolved = check::resolve(schema, property);
            let table = resolved.get("items").unwrap_or(&resolved);
            if check::resolve(schema, table).get("properties").is_none() {
                into.push((path.clone(), property.get("default").cloned()));
            }
            keys(schema, table, &path, into);
        }
    }
}

/// `config.toml` with every commented key set.
pub(super) fn full_example() -> String {
    let uncommented = |line: &str| {
        let rest = line.strip_prefix('#')?;
        (rest.starts_with('[') || rest.starts_with(|c: char| c.is_ascii_lowercase())).then(|| rest.to_owned())
    };
    include_str!("../../../../config.toml")
        .lines()
        .map(|line| uncommented(line).unwrap_or_else(|| line.to_owned()) + "\n")
        .collect()
}

/// [`full_example`] without a section that excludes another one.
fn without(section: &str) -> String {
    let mut is_other = true;
    let is_kept = |line: &&str| {
        if line.starts_with('[') {
            is_other = *line != section;
        }
        // It excludes the tokens and the certificates beside it.
        is_other && !line.starts_with("authorize = ")
    };
    full_example().lines().filter(is_kept).map(|line| format!("{line}\n")).collect()
}

#[test]
fn config_toml_works_as_it_is() {
    let config = parse(include_str!("../../../../config.toml")).unwrap().config;
    let least = parse(LEAST).unwrap().config;
    assert_eq!(Config { watch: least.watch.clone(), ..config }, least, "only [[watch]] differs from the defaults");
}

#[test]
fn config_toml_names_every_key_with_its_default() {
    let text = full_example();
    for section in ["[ha]", "[[evidence.witnessed]]"] {
        let loaded = Config::parse(&without(section), "config.toml", &[], Files::Ignore);
        loaded.unwrap_or_else(|problems| panic!("{problems}"));
    }
    let schema = config_schema();
    // An array of tables that is written in one line counts as one key.
    let mut known = vec![("redact.rules".to_owned(), Some(Json::Array(Vec::new())))];
    keys(&schema, &schema, "", &mut known);

    // Walk the text line by line: section headers, and keys with the comment above them.
    let mut named = BTreeSet::new();
    let mut section = String::new();
    let mut comment = String::new();
    for line in text.lines() {
        if let Some(header) = line.strip_prefix('[') {
            section = header.trim_matches(['[', ']']).to_owned();
        } else if let Some(prose) = line.strip_prefix('#') {
            comment.push_str(prose);
        } else if let Some((key, value)) = line.split_once(" = ") {
            let path = format!("{section}.{key}");
            let value: toml::Value = format!("x = {value}").parse::<toml::Table>().unwrap()["x"].clone();
            // Sinks of several types can have one key, each with its own default.
            let defaults = known.iter().filter(|(known, _)| *known == path).map(|(_, default)| default.as_ref());
            let defaults: Vec<_> = defaults.collect();
            assert!(!defaults.is_empty(), "{path}: no such key");
            let same = defaults.contains(&Some(&serde_json::to_value(&value).unwrap()));
            let must = defaults.iter().any(Option::is_none)
                && ["name", "type", "path", "url", "resources", "addresses", "stream", "key", "key_file"]
                    .contains(&key);
            let stated = comment.contains("Default: ");
            assert!(same || must || stated, "{path}: the defaults are {defaults:?}, and config.toml says {value}");
            named.insert(path);
            comment.clear();
        }
        if line.is_empty() {
            comment.clear();
        }
    }
    let tables = ["redact.rules.", "cluster.recover.", "cluster.audit_reads."];
    let in_one_line = |key: &String| tables.iter().any(|table| key.starts_with(table));
    let expected: BTreeSet<String> = known.into_iter().map(|(key, _)| key).filter(|key| !in_one_line(key)).collect();
    assert_eq!(named, expected);
}

#[test]
fn defaults_of_the_types_are_those_of_the_schema() {
    let schema = config_schema();
    let texts = serde_json::to_string(&schema).unwrap();
    assert!(!texts.contains("null"), "TOML has no null");
    assert_eq!(schema["$defs"]["State"]["properties"]["max_size"]["default"], "10GiB");
    assert_eq!(schema["$defs"]["HttpSink"]["properties"]["timeout"]["default"], "30s");
    // What is written out is read back as it was.
    for section in ["[ha]", "[[evidence.witnessed]]"] {
        let config = Config::parse(&without(section), "config.toml", &[], Files::Ignore).unwrap().config;
        let back: Config = serde_json::from_value(serde_json::to_value(&config).unwrap()).unwrap();
        assert_eq!(back, config);
    }
}

#[test]
fn entries_fit_their_schema() {
    use crate::core::model::{Cluster, EntryType, Evidence, Gap, ResourceVersion, Seq, Why};
    let schema = crate::core::wire::entry_schema();
    let cluster = Cluster { name: "n".into(), uid: "u".into() };
    let gap = Gap {
        why: Why::Audit,
        from: Some(ResourceVersion::new("1")),
        to: Some(ResourceVersion::new("2")),
        recovered: 3,
    };
    let actor = serde_json::json!({"user": "alice", "impersonated_by": "ci", "agent": "kubectl", "addresses": ["10.0.0.7"],
        "verb": "patch", "subresource": "scale", "audit_ids": ["a"], "certainty": "exact"});
    let actor = actor.to_string();
    let whole = crate::core::wire::EntryBuilder {
        seq: Seq(1),
        epoch: "e",
        time: "2026-11-21T00:00:00.000000Z",
        happened: Some("2026-11-20T23:59:59Z"),
        happened_between: Some(["2026-11-20T23:59:50.000000Z", "2026-11-21T00:00:00.000000Z"]),
        op: EntryType::Modified,
        evidence: Some(Evidence::Watched),
        cluster: &cluster,
        api_version: "v1",
        kind: "Pod",
        resource: "pods",
        namespace: "x",
        name: "y",
        uid: "z",
        version: "3",
        managers: Some(r#"[{"manager":"kubectl","operation":"Apply","by":"moved"}]"#),
        change: Some(r#"{"areas":["spec"],"patch":[{"op":"replace","path":"/a","value":1,"was":2}],"managers":[]}"#),
        object: Some(b"{}"),
        gap: Some((&gap, Some("2026-11-20T00:00:00Z"))),
        actor: Some(((Seq(1), "z.3.MODIFIED"), &actor)),
        redacted: &["/a".to_owned()],
    };
    let line = crate::core::wire::render(&whole).line;
    let entry: Json = serde_json::from_slice(&line).unwrap();
    let named = |value: &Json| value.as_object().unwrap().keys().cloned().collect::<BTreeSet<_>>();
    assert_eq!(named(&entry), named(&schema["properties"]), "an entry with everything has every key of the schema");
    for part in ["cluster", "change", "gap", "of", "actor"] {
        assert_eq!(named(&entry[part]), named(&schema["properties"][part]["properties"]), "{part}");
    }
    for key in schema["required"].as_array().unwrap() {
        assert!(entry.get(key.as_str().unwrap()).is_some());
    }
}
