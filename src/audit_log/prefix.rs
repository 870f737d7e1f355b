//! Events that were cut off.
//!
//! The API server writes the members of an event in one order, and all that says who did what stands before the bodies. A cut falls
//! into a body, because nothing else is long. So the members before it are read, and the event counts if `objectRef` and
//! `responseStatus` are whole. In another order it does not: `impersonatedUser` might stand behind the cut.

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

/// Reads an event of which the end is missing. Times that were cut off are the envelope's.
pub(super) fn read(text: &str, time: Option<i64>) -> Outcome {
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
    if last.is_none() {
        return Outcome::unreadable("a record breaks off or is not JSON, and does not begin as an audit event does");
    }
    if event.is_no_end() || event.is_answered() {
        return event.outcome(time, true);
    }
    Outcome::unreadable("an audit event breaks off before the end of its responseStatus")
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
