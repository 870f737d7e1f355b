//! What comes from an API server: lines, lists, events, answers.

use std::time::Duration;

use decklog::core::model::Resource;
use decklog::watch::cluster::failure::{self, Failure};
use decklog::watch::decode::{self, Line};
use decklog::watch::frame::{Item, Items, Lines, Oversize};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde::de::IgnoredAny;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::harness::{JSON, chunks, fuzz, two};

pub(crate) fn pods() -> Resource {
    Resource {
        group: String::new(),
        version: "v1".into(),
        kind: "Pod".into(),
        plural: "pods".into(),
        singular: "pod".into(),
        short_names: vec!["po".into()],
        namespaced: true,
    }
}

/// Whatever the borders of chunks, the lines are those that a plain split gives, up to the first that is too long.
#[test]
fn lines() {
    const LIMIT: usize = 700;
    fuzz("lines", 6000, JSON, |input| {
        let mut framer = Lines::new(LIMIT);
        let (mut found, mut refused) = (Vec::new(), false);
        'chunks: for chunk in chunks(input) {
            framer.push(bytes::Bytes::copy_from_slice(chunk));
            loop {
                match framer.take() {
                    Ok(Some(line)) => found.push(line.to_vec()),
                    Ok(None) => break,
                    Err(Oversize) => {
                        refused = true;
                        break 'chunks;
                    }
                }
            }
        }
        let mut expected = Vec::new();
        let mut too_long = false;
        let mut parts: Vec<&[u8]> = input.split(|byte| *byte == b'\n').collect();
        let rest = parts.pop().unwrap();
        for part in parts {
            if part.len() > LIMIT {
                too_long = true;
                break;
            }
            let line = part.strip_suffix(b"\r").unwrap_or(part);
            if !line.trim_ascii().is_empty() {
                expected.push(line.to_vec());
            }
        }
        assert_eq!(refused, too_long || rest.len() > LIMIT);
        assert_eq!(found, expected);
    });
}

struct Broken;
impl From<Oversize> for Broken {
    fn from(_: Oversize) -> Self {
        Self
    }
}

fn split(input: &[u8]) -> Option<(Vec<Vec<u8>>, Vec<u8>)> {
    let mut items = Items::new(1 << 20);
    let mut found = Vec::new();
    for chunk in chunks(input) {
        let mut each = |item: Item<'_>| {
            let (Item::Whole(item) | Item::Outline(item)) = item;
            found.push(item.to_vec());
            Ok::<_, Broken>(())
        };
        items.push(chunk, &mut each).ok()?;
    }
    Some((found, items.envelope().to_vec()))
}

/// A list is cut into what `serde_json` says are its items; one that is not whole has no whole envelope.
#[test]
fn list() {
    #[derive(serde::Deserialize)]
    struct List<'a> {
        #[serde(borrow)]
        items: Vec<&'a RawValue>,
    }
    fuzz("list", 6000, JSON, |input| {
        let Some((items, envelope)) = split(input) else { return };
        for item in &items {
            drop(decode::item(&pods(), item));
        }
        let page = decode::envelope(&envelope);
        let whole = serde_json::from_slice::<IgnoredAny>(input).is_ok();
        if let Ok(list) = serde_json::from_slice::<List<'_>>(input) {
            let expected: Vec<&[u8]> = list.items.iter().map(|item| item.get().as_bytes()).collect();
            assert_eq!(items, expected);
        } else if !whole {
            let items_whole = items.iter().all(|item| serde_json::from_slice::<IgnoredAny>(item).is_ok());
            assert!(page.is_err() || !items_whole, "a list that is not JSON is taken for one");
        }
        if let Ok(page) = page {
            assert!(!page.version.as_str().is_empty() && page.next.as_deref() != Some(""));
        }
    });
}

/// What is read of an event is what `serde_json` reads, and the bytes of its object stay what they were.
#[test]
fn event() {
    fuzz("event", 12_000, JSON, |input| {
        let read = decode::line(input);
        let value: Option<Value> = serde_json::from_slice(input).ok();
        match read {
            // What names no object is a GAP of its own, with the bytes as they came.
            Ok(Line::Odd(_, _, bytes)) => {
                assert!(input.windows(bytes.len().max(1)).any(|part| part == bytes) || bytes.is_empty());
            }
            Ok(Line::Upsert(object) | Line::Delete(object)) => {
                let text = std::str::from_utf8(input).unwrap();
                let bytes = std::str::from_utf8(&object.bytes).unwrap();
                assert!(text.contains(bytes) && serde_json::from_str::<IgnoredAny>(bytes).is_ok());
                let Some(value) = value else { return };
                let metadata = &value["object"]["metadata"];
                for (read, name) in [
                    (&object.name, "name"),
                    (&object.uid, "uid"),
                    (&object.version, "resourceVersion"),
                    (&object.namespace, "namespace"),
                ] {
                    assert_eq!(&**read, metadata[name].as_str().unwrap_or_default(), "{name}");
                }
                assert_eq!(serde_json::from_str::<Value>(bytes).unwrap(), value["object"]);
            }
            Ok(Line::Bookmark(version)) => {
                if let Some(value) = value {
                    assert_eq!(value["object"]["metadata"]["resourceVersion"], version.as_str());
                }
            }
            Ok(Line::Error(status)) => drop(failure::error_event(status)),
            Err(text) => {
                assert!(text.len() < 200, "{text}");
                // What names an object in the way that Kubernetes does is read.
                let Some(Value::Object(value)) = value else { return };
                let known = matches!(value.get("type").and_then(Value::as_str), Some("ADDED" | "MODIFIED" | "DELETED"));
                let metadata = value.get("object").map_or(&Value::Null, |object| &object["metadata"]);
                let says = |name: &str| metadata[name].as_str().is_some_and(|text| !text.is_empty());
                let namespace = matches!(metadata.get("namespace"), None | Some(Value::Null | Value::String(_)));
                // An envelope of duplicate members is no event of an API server.
                let once = |name: &str| text_count(input, name) == 1;
                if known && says("name") && says("uid") && says("resourceVersion") && namespace {
                    let plain = ["type", "object", "metadata", "name", "namespace", "uid", "resourceVersion"];
                    assert!(!plain.iter().all(|name| once(name)), "{text}: {}", String::from_utf8_lossy(input));
                }
            }
        }
    });
}

fn text_count(input: &[u8], name: &str) -> usize {
    memchr::memmem::find_iter(input, format!("\"{name}\"").as_bytes()).count()
}

/// Answers that are failures: whatever they say, we are not silenced for long, and what is quoted is short and plain.
#[test]
fn answer() {
    fuzz("answer", 6000, JSON, |input| {
        let (head, body) = two(input);
        let (code, retry) = match head.iter().position(|byte| *byte == b' ') {
            Some(at) => (&head[..at], &head[at + 1..]),
            None => (head, &b""[..]),
        };
        let code = std::str::from_utf8(code).ok().and_then(|code| code.parse().ok());
        let code = code.and_then(|code| StatusCode::from_u16(code).ok()).unwrap_or(StatusCode::TOO_MANY_REQUESTS);
        let mut headers = HeaderMap::new();
        if let Ok(value) = HeaderValue::from_bytes(retry) {
            headers.insert(header::RETRY_AFTER, value);
        }
        for failure in [failure::answer(code, &headers, body), failure::error_event(body)] {
            if let Failure::Busy(Some(after)) = &failure {
                assert!(*after <= Duration::from_secs(300), "{after:?}");
            }
            let text = failure.to_string();
            assert!(text.chars().count() < 500 && !text.contains(char::is_control), "{text:?}");
            assert!(Failure::NAMES.contains(&failure.name()));
        }
    });
}
