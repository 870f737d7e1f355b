//! Answers of a receiver that accepted a request. Its status alone decides that: the body may be Protocol Buffers, as the
//! protocol has it, JSON, or anything else.

use std::borrow::Cow;
use std::io::Read;

use flate2::read::GzDecoder;
use prost::Message;
use serde_json::{Map, Value};

use super::proto::{ExportLogsPartialSuccess, ExportLogsServiceResponse};

/// The first bytes of gzip.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// The byte order mark of UTF-8.
const MARK: &[u8] = "\u{feff}".as_bytes();

/// Reads the body of an answer over HTTP, compressed or not, with at most `most` bytes in the end. Nothing where it is no
/// answer to an export of logs.
pub(super) fn partial_success(body: &[u8], most: usize) -> Option<ExportLogsPartialSuccess> {
    let plain = if body.starts_with(&GZIP) { unzipped(body, most)?.into() } else { Cow::Borrowed(body) };
    // The bytes decide and not Content-Type, which proxies and frameworks set as they like. `{` begins a group in Protocol
    // Buffers, which no such answer has.
    let text = plain.strip_prefix(MARK).unwrap_or(&plain).trim_ascii();
    match text.first() {
        None => Some(ExportLogsPartialSuccess::default()),
        Some(b'{') => of_json(text),
        Some(_) => of_message(&plain),
    }
}

/// Reads an answer in Protocol Buffers.
pub(super) fn of_message(bytes: &[u8]) -> Option<ExportLogsPartialSuccess> {
    ExportLogsServiceResponse::decode(bytes).ok().map(|response| response.partial_success.unwrap_or_default())
}

/// Reads the mapping of Protocol Buffers to JSON, with both spellings of a name and both of a 64-bit number
/// (<https://protobuf.dev/programming-guides/json/>).
fn of_json(text: &[u8]) -> Option<ExportLogsPartialSuccess> {
    let response: Map<String, Value> = serde_json::from_slice(text).ok()?;
    if response.is_empty() {
        return Some(ExportLogsPartialSuccess::default());
    }
    let partial = either(&response, "partialSuccess", "partial_success")?;
    if partial.is_null() {
        return Some(ExportLogsPartialSuccess::default());
    }
    let partial = partial.as_object()?;
    let rejected_log_records = match either(partial, "rejectedLogRecords", "rejected_log_records") {
        None | Some(Value::Null) => 0,
        Some(Value::String(number)) => whole(number.trim())?,
        Some(number) => whole(&number.as_number()?.to_string())?,
    };
    let message = either(partial, "errorMessage", "error_message").and_then(Value::as_str);
    Some(ExportLogsPartialSuccess { rejected_log_records, error_message: message.unwrap_or_default().to_owned() })
}

fn either<'v>(map: &'v Map<String, Value>, camel: &str, snake: &str) -> Option<&'v Value> {
    map.get(camel).or_else(|| map.get(snake))
}

/// A whole number, which JSON may write as `1`, `1.0` or `1e0`.
fn whole(number: &str) -> Option<i64> {
    let in_exponents = || number.parse().ok().filter(|number: &f64| number.is_finite() && number.fract() == 0.0);
    #[expect(clippy::cast_possible_truncation, reason = "a cast to an integer keeps to its bounds")]
    number.parse().ok().or_else(|| in_exponents().map(|number| number as i64))
}

fn unzipped(body: &[u8], most: usize) -> Option<Vec<u8>> {
    let mut plain = Vec::new();
    GzDecoder::new(body).take(most as u64 + 1).read_to_end(&mut plain).ok()?;
    (plain.len() <= most).then_some(plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sink::link::gzip;

    fn rejected(body: &[u8]) -> Option<(i64, String)> {
        partial_success(body, 4096).map(|partial| (partial.rejected_log_records, partial.error_message))
    }

    #[test]
    fn a_json_answer_is_read_in_every_spelling() {
        for (body, expected) in [
            (r"{}", (0, "")),
            ("\u{feff} {} ", (0, "")),
            (r#"{"partialSuccess":{}}"#, (0, "")),
            (r#"{"partialSuccess":null}"#, (0, "")),
            (r#"{"partial_success":{"rejected_log_records":null,"error_message":null}}"#, (0, "")),
            (r#"{"partialSuccess":{"rejectedLogRecords":2,"errorMessage":"old"}}"#, (2, "old")),
            (r#"{"partialSuccess":{"rejectedLogRecords":"2","errorMessage":"old"}}"#, (2, "old")),
            (r#"{"partial_success":{"rejected_log_records":2,"error_message":"old"}}"#, (2, "old")),
            (r#"{"partial_success":{"rejected_log_records":" 2 "}}"#, (2, "")),
            (r#"{"partialSuccess":{"rejectedLogRecords":2.0}}"#, (2, "")),
            (r#"{"partialSuccess":{"rejectedLogRecords":"2e0"}}"#, (2, "")),
            (r#"{"partialSuccess":{"rejectedLogRecords":"9223372036854775807"}}"#, (i64::MAX, "")),
            (r#"{"partialSuccess":{"errorMessage":"soon too old"},"x":1}"#, (0, "soon too old")),
        ] {
            let expected = Some((expected.0, expected.1.to_owned()));
            assert_eq!(rejected(body.as_bytes()), expected, "{body}");
            assert_eq!(rejected(&gzip(body.as_bytes())), expected, "{body}, compressed");
        }
    }

    #[test]
    fn a_message_is_read_and_everything_else_is_no_answer() {
        let partial = ExportLogsPartialSuccess { rejected_log_records: 3, error_message: "old".to_owned() };
        let message = ExportLogsServiceResponse { partial_success: Some(partial) }.encode_to_vec();
        for body in [message.clone(), gzip(&message).to_vec()] {
            assert_eq!(rejected(&body), Some((3, "old".to_owned())));
        }
        assert_eq!([rejected(b""), rejected(b"\r\n")], [Some((0, String::new())), Some((0, String::new()))]);
        let zipped = gzip(&message);
        let long = gzip(&vec![b' '; 5000]);
        for body in [
            &b"OK"[..],
            b"ok\n",
            b"success",
            b"null",
            b"true",
            b"[]",
            b"\"ok\"",
            b"1",
            b"<html><body>Welcome</body></html>",
            b"\n<!DOCTYPE html>\n<html></html>",
            br#"{"ok": 1}"#,
            br#"{"partialSuccess": true}"#,
            br#"{"partialSuccess": {"rejectedLogRecords": "many"}}"#,
            br#"{"partialSuccess": {"rejectedLogRecords": [1]}}"#,
            br#"{"partialSuccess": {"rejected"#,
            b"\xff\xfe\0\x01",
            &message[..message.len() - 1],
            &zipped[..zipped.len() - 9],
            &long,
        ] {
            assert_eq!(rejected(body), None, "{}", String::from_utf8_lossy(body));
        }
    }
}
