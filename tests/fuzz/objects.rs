//! Objects: redaction, comparison, patterns of pointers.

use decklog::core::change::redact::Redactor;
use decklog::core::change::redact::{RedactMode, RedactRule, Settings as Redact};
use decklog::core::change::{self, Pattern};
use decklog::core::model::Redacted;
use decklog::core::wire;
use decklog::query::churn::Churn;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use crate::harness::{JSON, fuzz, two};
use crate::json::pods;

const CANARY: &str = "canaryXq7Zk2mVn4";

fn redactor(mode: RedactMode) -> Redactor {
    let rule = |path: &str| RedactRule { resources: vec!["*".to_owned()], paths: vec![path.parse().unwrap()], mode };
    let rules = vec![rule("/spec/*secret*"), rule("/**/password"), rule("/spec/list/*/value")];
    Redactor::new(&Redact { rules, ..Redact::default() }, [3; 32]).unwrap()
}

/// serde_json does not look at the encoding of what it passes over.
fn is_json(text: &[u8]) -> bool {
    std::str::from_utf8(text).is_ok_and(|text| serde_json::from_str::<IgnoredAny>(text).is_ok())
}

/// Puts the canary wherever the rules look, in the very text of the object.
fn plant(value: &mut Value, secret: bool, inside: bool) {
    match value {
        Value::Object(members) => {
            let says_so = secret || members.get("kind").is_some_and(|kind| kind == "Secret");
            for (name, value) in members.iter_mut() {
                let here = inside || name == "password" || (says_so && (name == "data" || name == "stringData"));
                plant(value, false, here);
            }
        }
        Value::Array(elements) => elements.iter_mut().for_each(|element| plant(element, false, inside)),
        Value::String(text) if inside => *text = format!("{text}{CANARY}"),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Nothing that a rule names comes through; what comes out is JSON; and what was redacted once stays as it is.
#[test]
fn redact() {
    let redactors = [RedactMode::Hmac, RedactMode::Mask, RedactMode::Drop].map(redactor);
    let secrets = decklog::core::model::Resource { kind: "Secret".into(), plural: "secrets".into(), ..pods() };
    fuzz("redact", 5000, JSON, |input| {
        let whole = is_json(input);
        for (resource, is_secret) in [(pods(), false), (secrets.clone(), true)] {
            for redactor in &redactors {
                let once = match redactor.apply(&resource, "u", input) {
                    Ok(once) => once,
                    Err(text) => {
                        assert!(!whole, "valid JSON is refused: {text}");
                        assert!(text.len() < 100, "{text}");
                        continue;
                    }
                };
                assert!(whole, "what is not JSON is taken for it");
                assert!(serde_json::from_slice::<IgnoredAny>(&once.bytes).is_ok());
                let twice = redactor.again(&resource, "u", once.clone()).unwrap();
                assert_eq!(String::from_utf8(twice.bytes), String::from_utf8(once.bytes), "it is not stable");
                let Ok(mut value) = serde_json::from_slice::<Value>(input) else { continue };
                plant(&mut value, is_secret, false);
                let planted = value.to_string();
                let hidden = redactor.apply(&resource, "u", planted.as_bytes()).unwrap();
                let hidden = format!("{:?} {}", hidden.pointers, String::from_utf8(hidden.bytes).unwrap());
                assert!(!hidden.contains(CANARY), "{planted}\n{hidden}");
            }
        }
    });
}

/// A rule that comes later tells nothing of a version that was stored in clear.
#[test]
fn redact_again() {
    let (before, after) =
        (Redactor::new(&Redact { defaults: false, ..Redact::default() }, [3; 32]).unwrap(), redactor(RedactMode::Hmac));
    fuzz("redact", 2500, JSON, |input| {
        let Ok(mut value) = serde_json::from_slice::<Value>(input) else { return };
        plant(&mut value, false, false);
        let clear = before.apply(&pods(), "u", value.to_string().as_bytes()).unwrap();
        let late = after.again(&pods(), "u", clear.clone()).unwrap();
        assert!(!String::from_utf8_lossy(&late.bytes).contains(CANARY));
        let change = change::compare(&clear.bytes, &late.bytes, &clear.marks, &late.marks);
        if value.is_object() {
            // The same value, late or early: nothing has changed.
            let early = after.apply(&pods(), "u", &clear.bytes).unwrap();
            assert_eq!(
                change::compare(&late.bytes, &early.bytes, &late.marks, &early.marks).unwrap().touched,
                Vec::<String>::new()
            );
        } else {
            assert!(change.is_err());
        }
    });
}

/// Applied to the version before, the patch gives the new one; `was` says what stood there.
#[test]
fn change() {
    fuzz("change", 6000, JSON, |input| {
        let (old, new) = two(input);
        let compared = change::compare(old, new, &[], &[]);
        let objects = [old, new].map(|text| is_json(text) && text.trim_ascii().starts_with(b"{"));
        assert_eq!(compared.is_ok(), objects == [true, true], "{compared:?}");
        let Ok(change) = compared else { return };
        assert!(!change.json.contains(['\n', '\r']));
        let told: Value = match serde_json::from_str(&change.json) {
            Ok(told) => told,
            // Numbers and surrogates that no value of serde_json holds are copied as they came.
            Err(_) => return assert!(serde_json::from_str::<IgnoredAny>(&change.json).is_ok()),
        };
        let (Ok(mut before), Ok(after)) = (serde_json::from_slice::<Value>(old), serde_json::from_slice::<Value>(new))
        else {
            return;
        };
        for step in told["patch"].as_array().unwrap() {
            apply(&mut before, step);
        }
        assert_eq!(before, after, "{}", change.json);
        let same = change::compare(new, new, &[], &[]).unwrap();
        assert_eq!((same.areas.len(), same.touched.len()), (0, 0));
    });
}

/// One operation of RFC 6902 as decklog writes them.
fn apply(document: &mut Value, step: &Value) {
    let path = step["path"].as_str().unwrap();
    let op = step["op"].as_str().unwrap();
    if path.is_empty() {
        assert_eq!(op, "replace");
        *document = step["value"].clone();
        return;
    }
    if op == "move" {
        let place = |pointer: &str| {
            let (list, index) = pointer.rsplit_once('/').unwrap();
            (list.to_owned(), index.parse::<usize>().unwrap())
        };
        let (from, to) = (place(step["from"].as_str().unwrap()), place(path));
        assert!(from.0 == to.0 && from.1 != to.1, "{step}");
        let elements = document.pointer_mut(&to.0).unwrap().as_array_mut().unwrap();
        let element = elements.remove(from.1);
        elements.insert(to.1, element);
        return;
    }
    if op != "add" {
        assert_eq!(document.pointer(path), Some(&step["was"]), "{step}");
    }
    let (parent, name) = path.rsplit_once('/').unwrap();
    let name = name.replace("~1", "/").replace("~0", "~");
    match document.pointer_mut(parent).unwrap_or_else(|| panic!("{step}")) {
        Value::Object(members) => drop(match op {
            "remove" => members.remove(&name),
            _ => members.insert(name, step["value"].clone()),
        }),
        Value::Array(elements) => {
            let index: usize = name.parse().unwrap();
            match op {
                "add" => elements.insert(index, step["value"].clone()),
                "remove" => drop(elements.remove(index)),
                _ => elements[index] = step["value"].clone(),
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => panic!("{step} in no container"),
    }
}

/// A pattern covers what a plain recursive reading of it covers.
#[test]
fn pattern() {
    fuzz("pattern", 8000, &["/", "*", "**", "/**/", "~0", "~1", "~", "a", "b", "\n", "\u{e9}"], |input| {
        let Ok(text) = std::str::from_utf8(input) else { return };
        let (pattern, pointer) = text.split_once('\n').unwrap_or((text, ""));
        let Ok(parsed) = Pattern::parse(pattern) else { return };
        let segments: Vec<&str> = pattern.split('/').skip(1).collect();
        let names: Vec<String> =
            pointer.split('/').skip(1).map(|name| name.replace("~1", "/").replace("~0", "~")).collect();
        // A name with `~` and neither 0 nor 1 after it is no pointer.
        let odd = pointer.replace("~0", "").replace("~1", "").contains('~')
            || (!pointer.is_empty() && !pointer.starts_with('/'));
        if odd || segments.len() > 12 || names.len() > 12 || names.iter().any(|name| name.len() > 24) {
            return;
        }
        let covered = change::matches_ignore(&[parsed], &[pointer.to_owned()]);
        assert_eq!(covered, covers(&segments, &names), "{pattern} {pointer}");
    });
}

fn covers(pattern: &[&str], names: &[String]) -> bool {
    match (pattern.split_first(), names.split_first()) {
        (None, _) => true,
        (Some((&"**", rest)), None) => covers(rest, names),
        (Some((&"**", rest)), Some((_, below))) => covers(rest, names) || covers(pattern, below),
        (Some(_), None) => false,
        (Some((segment, rest)), Some((name, below))) => {
            let segment = segment.replace("~1", "/").replace("~0", "~");
            glob(segment.as_bytes(), name.as_bytes()) && covers(rest, below)
        }
    }
}

fn glob(glob_: &[u8], text: &[u8]) -> bool {
    match (glob_.split_first(), text.split_first()) {
        (None, None) => true,
        (Some((b'*', rest)), _) => glob(rest, text) || text.split_first().is_some_and(|(_, below)| glob(glob_, below)),
        (Some((a, rest)), Some((b, below))) => a == b && glob(rest, below),
        (None, Some(_)) | (Some(_), None) => false,
    }
}

/// An entry is one line whatever the object is, reads back as what it was made of, and payloads only leave out.
#[test]
fn entry() {
    fuzz("entry", 6000, JSON, |input| {
        let line = bytes::Bytes::copy_from_slice(input);
        if let Ok(entry) = wire::Entry::parse(input) {
            drop((entry.gap(), entry.version(), entry.group().to_owned(), entry.op));
            // Payloads are made of what decklog has rendered itself, without a blank.
            let ours = !input.iter().any(|byte| byte.is_ascii_whitespace() || *byte == b'\\');
            for payload in [wire::Payload::Diff, wire::Payload::Metadata] {
                if let Ok(less) = (wire::Shape { payload, managed_fields: true }).apply(entry.op, &line)
                    && ours
                {
                    assert!(less.len() <= line.len());
                    let less = wire::Entry::parse(&less).unwrap();
                    assert_eq!((less.seq, &less.id), (entry.seq, &entry.id));
                }
            }
        }
        let (head, object) = wire::apart(input);
        assert!(head.len() + object.len() <= input.len());
        let mut churn = Churn::with_room(2);
        if churn.take(input).is_ok() {
            let now = jiff::Timestamp::UNIX_EPOCH;
            assert!(churn.report(now, now, 9).writes.writes <= 1);
        }
        let flat = decklog::core::json::one_line(input.to_vec());
        if is_json(input) {
            assert!(!flat.contains(&b'\n') && !flat.contains(&b'\r'));
            if let Ok(value) = serde_json::from_slice::<Value>(input) {
                assert_eq!(serde_json::from_slice::<Value>(&flat).unwrap(), value);
            }
        }
        let plain = Redacted { bytes: input.to_vec(), ..Redacted::default() };
        assert_eq!(json!(plain.pointers), json!([]));
    });
}
