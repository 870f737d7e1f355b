//! Events that were cut off.
//!
//! The API server writes the members of an event in one order, and all that says who did what stands before the bodies. A cut falls
//! into a body, because nothing else is long. So the members before it are read, and the event counts if `objectRef` and
//! `responseStatus` are whole. In another order it does not: `impersonatedUser` might stand behind the cut.
//!
//! Of an answer that is cut, uid and version count where they are whole: they stand at its head, and say which version was written.

use std::collections::BTreeMap;

use serde_json::value::RawValue;
use serde_json::{Deserializer, StreamDeserializer};

use super::event::Event;
use super::outcome::Outcome;

/// Members in the order of the API server (`pkg/apis/audit/v1/types.go`). Others may stand among them.
const ORDER: [&str; 19] = [
    "kind",
    "apiVersion",
    "level",
    "auditID",
    "stage",
    "requestURI",
    "verb",
    "user",
    "impersonatedUser",
    "authenticationMetadata",
    "sourceIPs",
    "userAgent",
    "objectRef",
    "responseStatus",
    "requestObject",
    "responseObject",
    "requestReceivedTimestamp",
    "stageTimestamp",
    "annotations",
];

/// Member with the answer's body.
const ANSWER: &str = "responseObject";

/// Reads an event of which the end is missing. Times that were cut off are the envelope's.
pub(super) fn read(text: &str, time: Option<i64>) -> Outcome {
    let answer;
    let mut event = Event::default();
    let mut last = None;
    let mut rest = text.trim_start().strip_prefix('{');
    while let Some((key, value, behind)) = rest.and_then(member) {
        if last.is_none() && (key != "kind" || value.get() != r#""Event""#) {
            break;
        }
        if let Some(place) = ORDER.iter().position(|known| *known == key) {
            if last.is_some_and(|last| place <= last) {
                return Outcome::unreadable(
                    "a record breaks off, and its members are not in the order of the API server",
                );
            }
            last = Some(place);
        }
        event.take(&key, value);
        rest = behind;
    }
    let is_next = last.is_some_and(|last| ORDER[last..].contains(&ANSWER) && ORDER[last] != ANSWER);
    if let Some(head) = rest.filter(|_| is_next).and_then(|rest| head_of(rest, ANSWER)) {
        answer = head;
        event.take(ANSWER, &answer);
    }
    if last.is_none() {
        return Outcome::unreadable("a record breaks off or is not JSON, and does not begin as an audit event does");
    }
    if event.is_no_end() || event.is_answered() {
        return event.outcome(time, true);
    }
    Outcome::unreadable("an audit event breaks off before the end of its responseStatus")
}

/// Parts of an answer that name its object, and the members of them that do.
const PARTS: [(&str, &[&str]); 2] = [("metadata", &["name", "uid", "resourceVersion"]), ("details", &["uid"])];

/// Returns what names the object in the beginning of this member, if that is next.
fn head_of(text: &str, key: &str) -> Option<Box<RawValue>> {
    let (found, behind) = value::<String>(text)?;
    let mut rest = behind.trim_start().strip_prefix(':')?.trim_start().strip_prefix('{').filter(|_| found == key);
    let mut parts: BTreeMap<&str, BTreeMap<&str, &RawValue>> = BTreeMap::new();
    while let Some(text) = rest {
        let Some((name, behind)) = value::<String>(text) else { break };
        let part = PARTS.iter().find(|(part, _)| *part == name);
        if let (Some((part, keys)), Some(inside)) = (part, behind.trim_start().strip_prefix(':')) {
            let mut inside = inside.trim_start().strip_prefix('{');
            while let Some((name, value, behind)) = inside.and_then(member) {
                if let Some(key) = keys.iter().find(|key| **key == name) {
                    parts.entry(part).or_default().insert(key, value);
                }
                inside = behind;
            }
        }
        rest = member(text).and_then(|(_, _, behind)| behind);
    }
    serde_json::value::to_raw_value(&parts).ok().filter(|_| !parts.is_empty())
}

/// Returns the next member if it is whole, and the text behind its comma, if there is one.
fn member(text: &str) -> Option<(String, &RawValue, Option<&str>)> {
    let (key, behind) = value::<String>(text)?;
    let (value, behind) = value::<&RawValue>(behind.trim_start().strip_prefix(':')?)?;
    let behind = behind.trim_start();
    // A number may go on behind the cut.
    let is_delimited = value.get().ends_with(['"', '}', ']']) || behind.starts_with([',', '}']);
    is_delimited.then(|| (key, value, behind.strip_prefix(',')))
}

fn value<'a, T: serde::Deserialize<'a>>(text: &'a str) -> Option<(T, &'a str)> {
    let mut stream: StreamDeserializer<'a, _, T> = Deserializer::from_str(text).into_iter();
    let value = stream.next()?.ok()?;
    Some((value, text.get(stream.byte_offset()..)?))
}
