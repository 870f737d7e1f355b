//! JSON as YAML, for people: keys in the order they came, numbers digit for digit.
//!
//! YAML libraries read numbers into machine types and write them anew, which turns `1.50` into `1.5` and `1e400` into
//! infinity. An object of the journal is shown as it is, so the JSON is walked here and its scalars are copied.

use std::borrow::Cow;
use std::fmt::{self, Write as _};

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::output::is_unprintable;

/// The YAML of a JSON text, with a line break at its end.
///
/// # Errors
/// Where it is not JSON.
pub(super) fn from_json(json: &[u8]) -> Result<String, serde_json::Error> {
    let raw: &RawValue = serde_json::from_slice(json)?;
    let mut out = String::with_capacity(json.len() * 2);
    node(&mut out, raw.get(), 0, Place::Top)?;
    Ok(out)
}

/// Where a node stands, which decides what is written before it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// At the top of the document.
    Top,
    /// After `key:`.
    Value,
    /// After `- `.
    Item,
}

/// The members of an object in the order they came, doubles included.
struct Members<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Walk;
        impl<'de> Visitor<'de> for Walk {
            type Value = Members<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some((Key(key), value)) = map.next_entry::<Key<'de>, &'de RawValue>()? {
                    members.push((key, value));
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Walk)
    }
}

#[derive(Deserialize)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

fn node(out: &mut String, json: &str, depth: usize, place: Place) -> Result<(), serde_json::Error> {
    match json.as_bytes().first() {
        Some(b'{') => {
            let Members(members) = serde_json::from_str(json)?;
            if members.is_empty() {
                inline(out, "{}", place);
                return Ok(());
            }
            if place == Place::Value {
                out.push('\n');
            }
            for (at, (key, value)) in members.iter().enumerate() {
                // The first key of an item stands on the line of its dash.
                if at > 0 || place != Place::Item {
                    indent(out, depth);
                }
                out.push_str(&scalar(key));
                out.push(':');
                // Lists stand under their key without further indentation, as kubectl prints them.
                let deeper = if value.get().starts_with('[') { depth } else { depth + 1 };
                node(out, value.get(), deeper, Place::Value)?;
            }
        }
        Some(b'[') => {
            let items: Vec<&RawValue> = serde_json::from_str(json)?;
            if items.is_empty() {
                inline(out, "[]", place);
                return Ok(());
            }
            if place == Place::Value {
                out.push('\n');
            }
            for (at, item) in items.iter().enumerate() {
                if at > 0 || place != Place::Item {
                    indent(out, depth);
                }
                out.push_str("- ");
                node(out, item.get(), depth + 1, Place::Item)?;
            }
        }
        Some(b'"') => {
            let text: Cow<'_, str> = serde_json::from_str(json)?;
            match block(&text) {
                Some(header) if place != Place::Top => {
                    inline_head(out, place);
                    out.push_str(header);
                    out.push('\n');
                    for line in text.trim_end_matches('\n').split('\n') {
                        if !line.is_empty() {
                            indent(out, depth.max(1));
                            out.push_str(line);
                        }
                        out.push('\n');
                    }
                }
                _ => inline(out, &scalar(&text), place),
            }
        }
        // Numbers, true, false and null are YAML as they are.
        _ => inline(out, json, place),
    }
    Ok(())
}

fn indent(out: &mut String, depth: usize) {
    for _ in 0..depth {
        out.push_str("  ");
    }
}

fn inline_head(out: &mut String, place: Place) {
    if place == Place::Value {
        out.push(' ');
    }
}

fn inline(out: &mut String, text: &str, place: Place) {
    inline_head(out, place);
    out.push_str(text);
    out.push('\n');
}

/// The header of a literal block, for a text of several lines that one can hold unchanged.
fn block(text: &str) -> Option<&'static str> {
    let body = text.trim_end_matches('\n');
    let plain = body.contains('\n')
        && !body.starts_with([' ', '\n'])
        && !body.contains(|c| c != '\n' && is_unprintable(c))
        && !body.split('\n').any(|line| line.ends_with(' '));
    match text.len() - body.len() {
        0 if plain => Some("|-"),
        1 if plain => Some("|"),
        _ => None,
    }
}

/// A text on one line: plain where every YAML reads it back as this very text, else in double quotes.
fn scalar(text: &str) -> Cow<'_, str> {
    if is_plain(text) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            c if is_unprintable(c) => {
                let written = write!(out, "\\U{:08X}", u32::from(c));
                debug_assert!(written.is_ok(), "writing into memory does not fail");
            }
            c => out.push(c),
        }
    }
    out.push('"');
    Cow::Owned(out)
}

/// YAML 1.1 and 1.2 give many unquoted words a meaning (`yes`, `1.0`, `0x1f`, `12:30`, `2026-11-21`), so only what
/// begins with a letter or a slash, and is none of those words, goes without quotes.
fn is_plain(text: &str) -> bool {
    const WORDS: [&str; 10] = ["y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan"];
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/')
        && !text.ends_with([' ', ':'])
        && text.chars().all(|c| c.is_ascii_alphanumeric() || " -_./:@+=,;()<>$%^*&!~".contains(c))
        && !text.contains(": ")
        && !WORDS.iter().any(|word| text.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn yaml(json: &str) -> String {
        from_json(json.as_bytes()).unwrap()
    }

    #[test]
    fn an_object_reads_as_kubectl_prints_it() {
        insta::assert_snapshot!(
            yaml(r#"{"kind":"Pod","metadata":{"name":"web","labels":{},"z":null},"spec":{"containers":[{"image":"nginx:1.2","args":["-c","/etc/x"],"ports":[]},{"image":"b"}],"n":1.50,"big":1e400,"huge":123456789012345678901234567890},"data":{"a.yaml":"x: 1\ny:\n  - 2\n","b":"one\ntwo"},"m":[[1,2],[]]}"#),
            @r#"
        kind: Pod
        metadata:
          name: web
          labels: {}
          z: null
        spec:
          containers:
          - image: nginx:1.2
            args:
            - "-c"
            - /etc/x
            ports: []
          - image: b
          "n": 1.50
          big: 1e400
          huge: 123456789012345678901234567890
        data:
          a.yaml: |
            x: 1
            y:
              - 2
          b: |-
            one
            two
        m:
        - - 1
          - 2
        - []
        "#
        );
    }

    #[test]
    fn texts_that_look_like_something_else_are_quoted() {
        for text in [
            "1.0",
            "yes",
            "NO",
            "null",
            "0x1f",
            "12:30",
            "2026-11-21",
            "~",
            "",
            " a",
            "a ",
            "- a",
            "a: b",
            "a #b",
            "#",
            "key:",
            "1e3",
            ".inf",
            "=",
            "<<",
            "@x",
            "`x",
            "'x",
            "*x",
            "&x",
            "!x",
            "%x",
            "|",
            ">",
        ] {
            let json = serde_json::to_string(&[text]).unwrap();
            assert_eq!(yaml(&json), format!("- \"{text}\"\n"));
        }
        assert_eq!(
            yaml(r#"{"a":"\u001b[2J\u009b","\u202e":1}"#),
            "a: \"\\U0000001B[2J\\U0000009B\"\n\"\\U0000202E\": 1\n"
        );
    }

    fn json() -> impl Strategy<Value = serde_json::Value> {
        let text =
            prop_oneof!["[a-z:/ #\\-\n]{0,12}", any::<String>(), "(yes|no|on|1|1\\.0|~|null)\n{0,2}", "[ \n\tx]{0,8}"];
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(Into::into),
            any::<i64>().prop_map(Into::into),
            text.clone().prop_map(Into::into),
        ];
        leaf.prop_recursive(5, 60, 6, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Into::into),
                prop::collection::vec((text.clone(), inner), 0..5)
                    .prop_map(|members| { serde_json::Value::Object(members.into_iter().collect()) }),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read_back_as_it_was(value in json()) {
            let printed = yaml(&value.to_string());
            let read: serde_json::Value = serde_yaml_ng::from_str(&printed)
                .map_err(|error| TestCaseError::fail(format!("{error}:\n{printed}")))?;
            prop_assert_eq!(read, value, "{}", printed);
            prop_assert!(!printed.contains(|c| c != '\n' && is_unprintable(c)));
        }
    }
}
