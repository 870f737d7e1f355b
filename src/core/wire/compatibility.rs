//! The promises of `docs/compatibility.md` for wire version 1, held to entries of every kind in `tests/golden`. These files are
//! added to and never changed: every entry stays readable for ever.

use bytes::Bytes;
use serde_json::{Value, json};

use super::cloudevents::Event;
use super::*;
use crate::core::model::{Cluster, EntryType, Evidence, Gap, ResourceVersion, Seq, Why};

const ENTRIES: &str = include_str!("../../../tests/golden/entries.jsonl");
const EVENTS: &str = include_str!("../../../tests/golden/entries.cloudevents.jsonl");

const CHANGE: &str = r#"{"areas":["managedFields","metadata","spec"],"patch":[{"op":"replace","path":"/metadata/generation","value":2,"was":1},{"op":"add","path":"/spec/template/metadata/labels/tier","value":"web"},{"op":"remove","path":"/spec/paused","was":true},{"op":"replace","path":"/spec/replicas","value":3,"was":2}],"managers":[{"manager":"kubectl","operation":"Apply","subresource":"scale","time":"2026-11-21T10:14:59Z"}]}"#;
/// An element that changed places, and both ways to know a writer.
const MOVED: &str = r#"{"areas":["managedFields","status"],"patch":[{"op":"move","from":"/status/conditions/1","path":"/status/conditions/0"}],"managers":[{"manager":"kube-controller-manager","operation":"Update","subresource":"status","time":"2026-11-21T10:14:59Z","by":"moved"},{"manager":"kubectl","operation":"Apply","by":"owner"}]}"#;
/// Two that one request names: the client, and a webhook.
const CREATED: &str = r#"[{"manager":"kubectl-create","operation":"Update","time":"2026-11-21T10:14:59Z","by":"moved"},{"manager":"webhook","operation":"Update","by":"moved"}]"#;
/// Everything that a sender can have.
const ACTOR: &str = r#"{"user":"alice@example.com","impersonated_by":"ci","agent":"kubectl/v1.36.0 (linux/amd64) kubernetes/1a2b3c4","addresses":["10.0.0.7","10.0.0.1"],"verb":"patch","subresource":"scale","audit_ids":["6f0b5d4e"],"certainty":"field"}"#;
const OBJECT: &[u8] = br#"{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","namespace":"shop","uid":"7c1f","resourceVersion":"41"},"spec":{"replicas":3}}"#;
const ODD: &[u8] = br#"{"kind":"Thing","big":123456789012345678901234567890,"beyond":1e400,"zero":-0.0,"text":"\u0000\ud800 \u00e9","again":1,"again":2}"#;

/// Renders the golden entries, in their order.
fn rendered() -> Vec<Vec<u8>> {
    let cluster = Cluster { name: "prod-eu1".into(), uid: "0a53".into() };
    let nameless = Cluster { name: "a \"quoted\" né".into(), uid: String::new() };
    let version = |text: &str| Some(ResourceVersion::new(text));
    let pointers = ["/data/password".to_owned(), "/metadata/annotations/a~1b".to_owned()];
    let base = || EntryBuilder {
        seq: Seq(1),
        epoch: "01a1ff40808b70e285b03b36cc9807ca",
        time: "2026-11-21T10:15:00.123456Z",
        happened: None,
        happened_between: None,
        op: EntryType::Added,
        evidence: Some(Evidence::Watched),
        cluster: &cluster,
        api_version: "apps/v1",
        kind: "Deployment",
        resource: "deployments",
        namespace: "shop",
        name: "web",
        uid: "7c1f",
        version: "41",
        managers: None,
        change: None,
        object: Some(OBJECT),
        gap: None,
        actor: None,
        redacted: &[],
    };
    let modified = || EntryBuilder { op: EntryType::Modified, change: Some(CHANGE), ..base() };
    let deleted = || EntryBuilder { op: EntryType::Deleted, ..base() };
    let core =
        || EntryBuilder { api_version: "v1", kind: "Node", resource: "nodes", namespace: "", name: "n1", ..base() };
    let shaped = |draft: EntryBuilder<'_>, payload, managed_fields| {
        let line: Bytes = render(&draft).line.into();
        Shape { payload, managed_fields }.apply(draft.op, &line).unwrap().to_vec()
    };
    let plain = [
        base(),
        EntryBuilder { evidence: Some(Evidence::Listed), ..core() },
        EntryBuilder { evidence: Some(Evidence::Inferred), redacted: &pointers, ..base() },
        modified(),
        EntryBuilder { change: Some(r#"{"areas":[],"patch":[],"managers":[]}"#), ..modified() },
        EntryBuilder { evidence: Some(Evidence::Inferred), object: Some(ODD), cluster: &nameless, ..modified() },
        deleted(),
        EntryBuilder { evidence: Some(Evidence::Inferred), ..deleted() },
    ];
    let mut lines: Vec<Vec<u8>> = plain.iter().map(|draft| render(draft).line).collect();
    lines.push(shaped(modified(), Payload::Diff, false));
    lines.push(shaped(modified(), Payload::Metadata, true));
    lines.push(shaped(deleted(), Payload::Metadata, true));
    // What came to be known later stands at the end.
    for (at, why) in Why::ALL.into_iter().filter(|why| *why != Why::Unreadable).enumerate() {
        // Each of what a gap may have, and none of it.
        let gap =
            Gap { why, from: version("40").filter(|_| at != 1), to: version("57").filter(|_| at != 2), recovered: 0 };
        let since = Some("2026-11-21T10:10:00.5Z").filter(|_| at != 1);
        lines.push(
            render(&EntryBuilder {
                seq: Seq(20 + at as u64),
                op: EntryType::Gap,
                evidence: None,
                namespace: if at == 0 { "" } else { "shop" },
                name: if at == 3 { "web" } else { "" },
                uid: "",
                version: "",
                object: None,
                gap: Some((&gap, since)),
                ..base()
            })
            .line,
        );
    }
    for draft in [base(), modified(), deleted()] {
        lines.push(render(&EntryBuilder { evidence: Some(Evidence::Recovered), ..draft }).line);
    }
    let gap = Gap { why: Why::Expired, from: version("40"), to: version("57"), recovered: 12 };
    lines.push(
        render(&EntryBuilder {
            seq: Seq(27),
            op: EntryType::Gap,
            evidence: None,
            namespace: "",
            name: "",
            uid: "",
            version: "",
            object: None,
            gap: Some((&gap, Some("2026-11-21T10:10:00.5Z"))),
            ..base()
        })
        .line,
    );
    let late = EntryBuilder { happened: Some("2026-11-21T10:14:59Z"), change: Some(MOVED), ..modified() };
    lines.push(render(&EntryBuilder { seq: Seq(28), ..late }).line);
    let created = EntryBuilder { seq: Seq(29), managers: Some(CREATED), ..base() };
    lines.push(render(&created).line);
    lines.push(shaped(created, Payload::Metadata, true));
    let unreadable = Gap { why: Why::Unreadable, from: version("40"), to: version("41"), recovered: 0 };
    let gone = EntryBuilder { evidence: Some(Evidence::Recovered), gap: Some((&unreadable, None)), ..deleted() };
    lines.push(render(&EntryBuilder { seq: Seq(30), ..gone }).line);
    let gap = EntryBuilder { op: EntryType::Gap, evidence: None, uid: "", version: "", object: None, ..base() };
    lines.push(render(&EntryBuilder { seq: Seq(31), gap: Some((&unreadable, None)), ..gap }).line);
    let actor = Some(((Seq(28), "7c1f.41.MODIFIED"), ACTOR));
    lines.push(
        render(&EntryBuilder { seq: Seq(32), op: EntryType::Actor, evidence: None, object: None, actor, ..base() })
            .line,
    );
    lines
}

/// The bytes of version 1: what was rendered once is rendered so for ever.
#[test]
fn entries_are_rendered_as_they_always_were() {
    let now: Vec<String> = rendered().into_iter().map(|line| String::from_utf8(line).unwrap()).collect();
    let event = |line: &String| Event::of(&Header::parse(line.as_bytes()).unwrap(), line.as_bytes()).structured();
    let events: Vec<String> = now.iter().map(|line| String::from_utf8(event(line)).unwrap()).collect();
    for (now, golden) in [(now, ENTRIES), (events, EVENTS)] {
        let golden: Vec<&str> = golden.lines().collect();
        for (now, golden) in now.iter().zip(&golden) {
            assert_eq!(now, golden, "an entry of version 1 never changes: see docs/compatibility.md");
        }
        assert_eq!(now.len(), golden.len());
    }
}

#[test]
fn golden_entries_are_read_and_fit_the_schema() {
    let schema = entry_schema();
    let mut kinds = std::collections::BTreeSet::new();
    for line in ENTRIES.lines() {
        let entry = Entry::parse(line.as_bytes()).unwrap();
        kinds.insert((entry.op.as_str().to_owned(), entry.evidence.as_deref().map(str::to_owned)));
        let value: Value = serde_json::from_str(&readable(line)).unwrap();
        assert_eq!(objections(&schema, &value, ""), [""; 0], "{line}");
        // Every key that is written is described.
        for (part, schema) in ["", "change", "gap", "of", "actor"]
            .map(|part| (part, if part.is_empty() { &schema } else { &schema["properties"][part] }))
        {
            let value = if part.is_empty() { Some(&value) } else { value.get(part) };
            for key in value.and_then(Value::as_object).into_iter().flat_map(serde_json::Map::keys) {
                assert!(schema["properties"].get(key).is_some(), "{part} {key}");
            }
        }
    }
    let expected = |word: &str, evidence: &[&str]| {
        evidence.iter().map(|evidence| (word.to_owned(), Some((*evidence).to_owned()))).collect::<Vec<_>>()
    };
    let mut all = expected("ADDED", &["watched", "recovered", "listed", "inferred"]);
    all.extend(expected("MODIFIED", &["watched", "recovered", "inferred"]));
    all.extend(expected("DELETED", &["watched", "recovered", "inferred"]));
    all.push(("GAP".to_owned(), None));
    all.push(("ACTOR".to_owned(), None));
    assert_eq!(kinds, all.into_iter().collect());
}

/// Additions that version 1 allows trouble neither the schema nor this release; changes that it forbids do.
#[test]
fn the_schema_has_room_for_what_may_be_added_and_for_nothing_else() {
    let schema = entry_schema();
    let line = ENTRIES.lines().find(|line| line.contains("MODIFIED")).unwrap();
    let gap = ENTRIES.lines().find(|line| line.contains("GAP")).unwrap();
    let with = |line: &str, pointer: &str, value: Value| {
        let mut entry: Value = serde_json::from_str(line).unwrap();
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        let parent = entry.pointer_mut(parent).unwrap().as_object_mut().unwrap();
        if value.is_null() {
            parent.remove(key)
        } else {
            parent.insert(key.to_owned(), value)
        };
        entry
    };
    for (line, pointer, value) in [
        (line, "/later", json!({ "x": 1 })),
        (line, "/cluster/region", json!("eu")),
        (line, "/change/later", json!([])),
        (line, "/change/managers/0/later", json!(1)),
        (gap, "/gap/later", json!(1)),
        (gap, "/gap/why", json!("another")),
        (line, "/change/areas", json!(["another"])),
    ] {
        let entry = with(line, pointer, value);
        assert_eq!(objections(&schema, &entry, ""), [""; 0], "{pointer}");
        let text = entry.to_string();
        assert_eq!(Entry::parse(text.as_bytes()).unwrap().seq, entry["seq"].as_u64().unwrap());
    }
    for (line, pointer, value) in [
        (line, "/v", json!(2)),
        (line, "/seq", json!(0)),
        (line, "/seq", json!("1")),
        (line, "/id", Value::Null),
        (line, "/time", json!("yesterday")),
        (line, "/type", json!("CHANGED")),
        (line, "/evidence", json!("guessed")),
        (line, "/cluster/uid", Value::Null),
        (line, "/change/areas", json!(["spec", "spec"])),
        (line, "/change/patch/0/op", json!("merge")),
        (line, "/change/managers", Value::Null),
        (line, "/object", json!("text")),
        (line, "/redacted", json!([1])),
        (gap, "/gap/why", Value::Null),
        (gap, "/gap/since", json!(7)),
    ] {
        let entry = with(line, pointer, value);
        assert_ne!(objections(&schema, &entry, ""), [""; 0], "{pointer}");
    }
}

/// The line with what a [`Value`] cannot hold replaced: a schema says nothing of what is inside an object.
fn readable(line: &str) -> String {
    line.replace("1e400", "1").replace(r"\ud800", "")
}

/// Returns the objections of the schema to a value. It knows the words of JSON Schema that the schema of an entry uses, and no
/// others.
fn objections(schema: &Value, value: &Value, at: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut object = |fits: bool, word: &str| {
        if !fits {
            found.push(format!("{at}: {word}"));
        }
    };
    let mut below = Vec::new();
    for (word, rule) in schema.as_object().unwrap() {
        match word.as_str() {
            "$schema" | "title" | "description" => {}
            "const" => object(value == rule, word),
            "enum" => object(rule.as_array().unwrap().contains(value), word),
            "anyOf" => {
                let fits = |rule| objections(rule, value, at).is_empty();
                object(rule.as_array().unwrap().iter().any(fits), word);
            }
            "type" => object(
                match rule.as_str().unwrap() {
                    "object" => value.is_object(),
                    "array" => value.is_array(),
                    "string" => value.is_string(),
                    "integer" => value.is_u64() || value.is_i64(),
                    other => panic!("the type {other}"),
                },
                word,
            ),
            "minimum" => object(value.as_f64() >= rule.as_f64(), word),
            "format" => {
                assert_eq!(rule, "date-time");
                object(value.as_str().is_some_and(|text| text.parse::<jiff::Timestamp>().is_ok()), word);
            }
            "required" => {
                let there = |key: &Value| value.get(key.as_str().unwrap()).is_some();
                object(rule.as_array().unwrap().iter().all(there), word);
            }
            "uniqueItems" => {
                let all = value.as_array().cloned().unwrap_or_default();
                object(all.iter().enumerate().all(|(at, one)| !all[..at].contains(one)), word);
            }
            "properties" => {
                for (key, rule) in rule.as_object().unwrap() {
                    below.extend(value.get(key).map(|value| (rule, value, format!("{at}/{key}"))));
                }
            }
            "items" => {
                let all = value.as_array().into_iter().flatten().enumerate();
                below.extend(all.map(|(index, value)| (rule, value, format!("{at}/{index}"))));
            }
            other => panic!("the schema has the word {other}, which is not known here"),
        }
    }
    found.extend(below.into_iter().flat_map(|(schema, value, at)| objections(schema, value, &at)));
    found
}
