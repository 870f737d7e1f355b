//! One unary call of gRPC, as its protocol over HTTP/2 has it: what goes around a message, and how a call ended.
//!
//! # Decision: OTLP without a library for gRPC
//!
//! Context: A gRPC library brings a second client.
//! Decision: A call is an HTTP/2 request with five bytes before its message, and its status is in the trailers. So TLS,
//! credentials, timeouts and forbidden addresses are those of every HTTP sink; messages are `prost`'s.
//! Cost: 180 lines.

use std::borrow::Cow;
use std::io::Read;
use std::time::Duration;

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bytes::{BufMut, Bytes, BytesMut};
use flate2::read::GzDecoder;
use percent_encoding::percent_decode_str;
use prost::Message;
use reqwest::header::HeaderMap;

use super::proto;
use crate::sink::link::{Answer, LONGEST_WAIT};

/// Headers in base64 come with padding or without.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The end of a call.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Status {
    pub(super) code: Code,
    /// Message of the server.
    pub(super) message: String,
    /// Wait before a retry, if the server permits one.
    pub(super) retry: Option<Duration>,
}

/// A code of gRPC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Code(pub(super) u32);

impl Code {
    pub(super) const OK: Self = Self(0);
    pub(super) const CANCELLED: Self = Self(1);
    pub(super) const DEADLINE_EXCEEDED: Self = Self(4);
    pub(super) const PERMISSION_DENIED: Self = Self(7);
    pub(super) const RESOURCE_EXHAUSTED: Self = Self(8);
    pub(super) const ABORTED: Self = Self(10);
    pub(super) const OUT_OF_RANGE: Self = Self(11);
    pub(super) const UNIMPLEMENTED: Self = Self(12);
    pub(super) const UNAVAILABLE: Self = Self(14);
    pub(super) const DATA_LOSS: Self = Self(15);
    pub(super) const UNAUTHENTICATED: Self = Self(16);

    /// Returns the name of the code.
    pub(super) fn name(self) -> &'static str {
        const NAMES: [&str; 17] = [
            "OK",
            "CANCELLED",
            "UNKNOWN",
            "INVALID_ARGUMENT",
            "DEADLINE_EXCEEDED",
            "NOT_FOUND",
            "ALREADY_EXISTS",
            "PERMISSION_DENIED",
            "RESOURCE_EXHAUSTED",
            "FAILED_PRECONDITION",
            "ABORTED",
            "OUT_OF_RANGE",
            "UNIMPLEMENTED",
            "INTERNAL",
            "UNAVAILABLE",
            "DATA_LOSS",
            "UNAUTHENTICATED",
        ];
        usize::try_from(self.0).ok().and_then(|at| NAMES.get(at)).unwrap_or(&"UNKNOWN")
    }
}

/// A message with its prefix: whether it is compressed, and its length.
pub(super) fn framed(message: &[u8], compressed: bool) -> Bytes {
    let length = u32::try_from(message.len()).expect("a batch is far below 4 GiB");
    let mut out = BytesMut::with_capacity(message.len() + 5);
    out.put_u8(u8::from(compressed));
    out.put_u32(length);
    out.extend_from_slice(message);
    out.freeze()
}

/// The message of an answer, compressed or not: many servers answer as they were asked. None where it is not there as a
/// whole, or longer than `most`.
pub(super) fn message(body: &[u8], most: usize) -> Option<Cow<'_, [u8]>> {
    let ([compressed, length @ ..], message) = body.split_first_chunk::<5>()?;
    let message = message.get(..usize::try_from(u32::from_be_bytes(*length)).ok()?)?;
    if *compressed == 0 {
        return Some(message.into());
    }
    let mut plain = Vec::new();
    GzDecoder::new(message).take(most as u64 + 1).read_to_end(&mut plain).ok()?;
    (plain.len() <= most).then_some(plain.into())
}

/// Returns the status of a call from the trailers, or from the headers of an answer without a body. None if it was cut off.
pub(super) fn status(answer: &Answer) -> Option<Status> {
    let headers =
        [&answer.trailers, &answer.headers].into_iter().find(|headers| headers.contains_key("grpc-status"))?;
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let code = Code(text("grpc-status")?.parse().ok()?);
    let message = percent_decode_str(text("grpc-message").unwrap_or_default()).decode_utf8_lossy().into_owned();
    Some(Status { code, message, retry: retry(headers) })
}

/// `RetryInfo` among the details.
fn retry(headers: &HeaderMap) -> Option<Duration> {
    let details = BASE64.decode(headers.get("grpc-status-details-bin")?).ok()?;
    let status = proto::Status::decode(&details[..]).ok()?;
    let info = status.details.into_iter().find(|any| any.type_url.ends_with("/google.rpc.RetryInfo"))?;
    let delay = proto::RetryInfo::decode(&info.value[..]).ok()?.retry_delay.unwrap_or_default();
    let seconds = u64::try_from(delay.seconds).unwrap_or_default();
    let nanos = u32::try_from(delay.nanos).unwrap_or_default().min(999_999_999);
    Some(Duration::new(seconds, nanos).min(LONGEST_WAIT))
}

#[cfg(test)]
mod tests {
    use reqwest::StatusCode;
    use reqwest::header::HeaderValue;

    use super::*;
    use crate::sink::link::{End, gzip};

    fn answer(headers: &[(&'static str, &str)], trailers: &[(&'static str, &str)]) -> Answer {
        let map = |pairs: &[(&'static str, &str)]| {
            pairs.iter().map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_str(value).unwrap())).collect()
        };
        let (headers, trailers) = (map(headers), map(trailers));
        Answer { headers, trailers, end: End::Whole, ..Answer::of(StatusCode::OK) }
    }

    #[test]
    fn a_message_stands_behind_its_length() {
        assert_eq!(&framed(b"abc", true)[..], b"\x01\0\0\0\x03abc");
        assert_eq!(message(b"\0\0\0\0\x03abc", 9).as_deref(), Some(&b"abc"[..]));
        assert_eq!(message(b"\0\0\0\0\0", 9).as_deref(), Some(&b""[..]));
        let zipped = framed(&gzip(b"abc"), true);
        assert_eq!(message(&zipped, 3).as_deref(), Some(&b"abc"[..]));
        assert_eq!(message(&zipped, 2), None);
        for wrong in [&b""[..], b"\0\0\0", b"\0\0\0\0\x04abc", b"\x01\0\0\0\x03abc", b"\0\xff\xff\xff\xff"] {
            assert_eq!(message(wrong, 9), None);
        }
    }

    #[test]
    fn the_end_of_a_call_is_in_trailers_or_headers() {
        let ended = status(&answer(&[], &[("grpc-status", "14"), ("grpc-message", "too%20busy")])).unwrap();
        assert_eq!((ended.code.name(), ended.message.as_str(), ended.retry), ("UNAVAILABLE", "too busy", None));
        assert_eq!(status(&answer(&[("grpc-status", "12")], &[])).unwrap().code, Code::UNIMPLEMENTED);
        assert_eq!(status(&answer(&[], &[])), None);
        assert_eq!(Code(99).name(), "UNKNOWN");
    }

    #[test]
    fn the_server_says_when_to_try_again() {
        let info = proto::RetryInfo { retry_delay: Some(proto::Duration { seconds: 7, nanos: 5 }) };
        let any = |name: &str| proto::Any {
            type_url: format!("type.googleapis.com/google.rpc.{name}"),
            value: info.encode_to_vec(),
        };
        let details = |names: &[&str]| {
            let details = names.iter().map(|name| any(name)).collect();
            BASE64.encode(proto::Status { code: 8, message: String::new(), details }.encode_to_vec())
        };
        for (details, wait) in [
            (details(&["DebugInfo", "RetryInfo"]), Some(Duration::new(7, 5))),
            (details(&["DebugInfo"]), None),
            (details(&["RetryInfo"]).trim_end_matches('=').to_owned(), Some(Duration::new(7, 5))),
            ("!".to_owned(), None),
        ] {
            let ended = status(&answer(&[], &[("grpc-status", "8"), ("grpc-status-details-bin", &details)])).unwrap();
            assert_eq!((ended.code, ended.retry), (Code::RESOURCE_EXHAUSTED, wait));
        }
    }
}
