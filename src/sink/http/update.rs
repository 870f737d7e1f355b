//! Updates of messages in place, and what an answer says beyond its status.

use std::fmt;

use reqwest::{Method, Url};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::core::net::url::HttpUrl;
use crate::core::spelling::{Text, Wrong, text_value};
use crate::sink::link::{Answer, End};

/// Place of the reference in the URL of an update.
const PLACE: &str = "{reference}";

/// Longest name of a message, in bytes.
const REFERENCE_BYTES: usize = 512;

/// Longest error of an answer that is quoted, in bytes.
const ERROR_BYTES: usize = 64;

/// Errors of an answer that may not come again, by the words of Slack's Web API.
const MAY_WORK_LATER: [&str; 6] =
    ["fatal_error", "internal_error", "rate_limited", "ratelimited", "request_timeout", "service_unavailable"];

/// Errors of an answer that heal when somebody renews the credentials.
const CREDENTIALS: [&str; 5] = ["account_inactive", "invalid_auth", "not_authed", "token_expired", "token_revoked"];

/// Updates in place of the message of an incident that goes on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Update {
    /// The value in the answer to a first message that names the message, as a JSON pointer.
    pub reference: Pointer,
    /// URL of an update, at the server of `url`. `{reference}` in it is the message's name. Default: `url`.
    #[serde(default)]
    #[schemars(extend("writeOnly" = true))]
    pub url: Option<UpdateUrl>,
    /// Method of an update.
    #[serde(default)]
    pub method: UpdateMethod,
}

/// Method of an update.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum UpdateMethod {
    /// As for a first message.
    #[default]
    Post,
    /// The message is replaced.
    Put,
    /// Parts of the message are replaced.
    Patch,
}

impl From<UpdateMethod> for Method {
    fn from(method: UpdateMethod) -> Self {
        match method {
            UpdateMethod::Post => Self::POST,
            UpdateMethod::Put => Self::PUT,
            UpdateMethod::Patch => Self::PATCH,
        }
    }
}

/// A JSON pointer to a value in an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pointer(String);

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Text for Pointer {
    const FORMAT: &'static str = "json-pointer";
    const EXPECTED: &'static str = "a JSON pointer, such as \"/id\" or \"/message/ts\"";

    fn read(text: &str) -> Result<Self, Wrong> {
        if text.len() > 1 && text.starts_with('/') {
            return Ok(Self(text.to_owned()));
        }
        let wrong = Wrong::from(format!("{text:?}"));
        Err(if text.starts_with('/') || text.is_empty() { wrong } else { wrong.near(format!("/{text}")) })
    }
}

text_value!(Pointer);

/// URL of an update, which may have the place of a reference in its path or its parameters.
#[derive(Clone, PartialEq, Eq)]
pub struct UpdateUrl(String);

// Webhooks have their secret in the path.
impl fmt::Debug for UpdateUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("UpdateUrl").finish_non_exhaustive()
    }
}

impl fmt::Display for UpdateUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Text for UpdateUrl {
    const FORMAT: &'static str = "update-url";
    const EXPECTED: &'static str =
        "an http:// or https:// URL without user and password, with {reference} in its path or parameters or nowhere";

    fn read(text: &str) -> Result<Self, Wrong> {
        let with = |reference: &str| HttpUrl::read(&text.replace(PLACE, reference));
        let (one, other) = (with("1")?, with("2")?);
        if one.origin() != other.origin() {
            return Err("a URL with {reference} in its host".into());
        }
        Ok(Self(text.to_owned()))
    }
}

text_value!(UpdateUrl);

impl UpdateUrl {
    /// Reports whether a reference has a place in it.
    pub(super) fn has_place(&self) -> bool {
        self.0.contains(PLACE)
    }

    /// The URL for a message.
    pub(super) fn of(&self, reference: &str) -> Url {
        let encoded = percent_encoding::utf8_percent_encode(reference, percent_encoding::NON_ALPHANUMERIC).to_string();
        Url::parse(&self.0.replace(PLACE, &encoded)).expect("`read` has put other words in its place")
    }
}

/// Meaning of an answer whose status is a success.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Said {
    Yes,
    /// The error is one of those that heal when somebody renews the credentials.
    Credentials(String),
    Later(String),
    No(String),
    /// It says neither.
    Nothing,
    /// It says neither as far as it came.
    BrokeOff,
}

/// Reads whether an answer accepts what was sent.
pub(super) fn said(accepted: &Pointer, answer: &Answer) -> Said {
    let nothing = match answer.end {
        End::Whole => Said::Nothing,
        // What refuses is short; what is as long as that repeats a message that it took. A page of a proxy is no JSON.
        End::TooLong if answer.body.trim_ascii_start().starts_with(b"{") => Said::Yes,
        End::TooLong => Said::Nothing,
        End::BrokeOff => Said::BrokeOff,
    };
    let Some(answer) = read(answer) else { return nothing };
    match (answer.pointer(&accepted.0), word(&answer)) {
        (Some(Json::Bool(true)), _) => Said::Yes,
        (_, Some(error)) if MAY_WORK_LATER.contains(&error) => Said::Later(error.to_owned()),
        (_, Some(error)) if CREDENTIALS.contains(&error) => Said::Credentials(error.to_owned()),
        (_, Some(error)) => Said::No(error.to_owned()),
        (Some(_), None) => Said::No("false".to_owned()),
        (None, None) => nothing,
    }
}

/// The JSON of an answer; of one that was not read to its end, the values that came as a whole.
fn read(answer: &Answer) -> Option<Json> {
    if answer.end == End::Whole {
        return serde_json::from_slice(&answer.body).ok();
    }
    serde_json::from_slice(&closed(&answer.body)).ok()
}

/// The beginning of a JSON text up to the last value that is complete, with the ends of what that is in.
fn closed(beginning: &[u8]) -> Vec<u8> {
    let (mut ends, mut cut) = (Vec::new(), (0, 0));
    let (mut in_text, mut is_escaped) = (false, false);
    for (at, byte) in beginning.iter().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if in_text => is_escaped = true,
            b'"' => in_text = !in_text,
            _ if in_text => {}
            b'{' => ends.push(b'}'),
            b'[' => ends.push(b']'),
            b'}' | b']' => {
                ends.pop();
                cut = (at + 1, ends.len());
            }
            b',' => cut = (at, ends.len()),
            _ => {}
        }
    }
    let (at, depth) = cut;
    // What was opened since is after the cut.
    [&beginning[..at], &ends[..depth].iter().rev().copied().collect::<Vec<u8>>()].concat()
}

/// The error of an answer, where it is one word: a sentence may quote what was sent.
fn word(answer: &Json) -> Option<&str> {
    let is_part = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    let is_word = |text: &&str| (1..=ERROR_BYTES).contains(&text.len()) && text.bytes().all(is_part);
    answer.get("error")?.as_str().filter(is_word)
}

/// Returns the receiver's name for a message, from its answer: a text or an integer.
pub(super) fn reference(pointer: &Pointer, answer: &Answer) -> Option<String> {
    let answer = read(answer)?;
    let name = match answer.pointer(&pointer.0)? {
        Json::String(text) => text.clone(),
        Json::Number(number) if !number.is_f64() => number.to_string(),
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::Array(_) | Json::Object(_) => return None,
    };
    let is_name = (1..=REFERENCE_BYTES).contains(&name.len())
        && !name.contains(char::is_control)
        // As a part of a path they lead elsewhere.
        && !matches!(name.as_str(), "." | "..");
    is_name.then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(body: &str, end: End) -> Answer {
        Answer { body: body.as_bytes().to_vec(), end, ..Answer::of(reqwest::StatusCode::OK) }
    }

    #[test]
    fn a_reference_is_a_short_text_or_an_integer_that_stays_where_it_is_put() {
        let pointer = Pointer::read("/message/id").unwrap();
        let of = |id: &str| reference(&pointer, &answer(&format!(r#"{{"message": {{"id": {id}}}}}"#), End::Whole));
        assert_eq!(of("17"), Some("17".to_owned()));
        assert_eq!(of(r#""a/b?c""#), Some("a/b?c".to_owned()));
        for wrong in
            ["null", "1.5", "true", "[]", r#""""#, r#"".""#, r#""..""#, r#""a\nb""#, &format!("{:?}", "a".repeat(513))]
        {
            assert_eq!(of(wrong), None, "{wrong}");
        }
        for (cut, expected) in [
            (r#"{"message": {"#, None),
            (r#"{"message": {"id": 17"#, None),
            (r#"{"message": {"id": 17,"#, Some("17")),
            (r#"{"message": {"id": "1\"}7", "x": [{"#, Some("1\"}7")),
            (r#"{"message": {"id": 17}"#, Some("17")),
            (r#"{"a": [1, {"b": 2}, "]"], "message": {"id": 17, "text": "#, Some("17")),
            ("}}}", None),
        ] {
            assert_eq!(reference(&pointer, &answer(cut, End::BrokeOff)).as_deref(), expected, "{cut}");
        }
        let url = UpdateUrl::read("https://chat.example/hooks/KEY/messages/{reference}?id={reference}").unwrap();
        let made = url.of("../a b&c=1#é");
        assert_eq!(
            made.as_str(),
            "https://chat.example/hooks/KEY/messages/%2E%2E%2Fa%20b%26c%3D1%23%C3%A9?id=%2E%2E%2Fa%20b%26c%3D1%23%C3%A9"
        );
        assert!(!format!("{url:?}").contains("KEY"));
    }

    #[test]
    fn what_is_no_pointer_and_no_url_is_refused() {
        for (text, near) in [("ts", Some("/ts")), ("/", None), ("", None)] {
            assert_eq!(Pointer::read(text).unwrap_err().nearest.as_deref(), near, "{text}");
        }
        for text in
            ["https://{reference}.example/", "https://a.example:{reference}/", "ftp://a.example/{reference}", "x"]
        {
            UpdateUrl::read(text).unwrap_err();
        }
    }

    #[test]
    fn an_answer_says_whether_it_accepts() {
        let ok = Pointer::read("/ok").unwrap();
        use End::{BrokeOff, TooLong, Whole};
        for (body, end, expected) in [
            (r#"{"ok":true,"ts":"1"}"#, Whole, Said::Yes),
            (r#"{"ok":true,"error":"ratelimited"}"#, Whole, Said::Yes),
            (r#"{"ok":false,"error":"ratelimited"}"#, Whole, Said::Later("ratelimited".to_owned())),
            (r#"{"ok":false,"error":"invalid_auth"}"#, Whole, Said::Credentials("invalid_auth".to_owned())),
            (r#"{"ok":false,"error":"channel_not_found"}"#, Whole, Said::No("channel_not_found".to_owned())),
            (r#"{"error":"channel_not_found"}"#, Whole, Said::No("channel_not_found".to_owned())),
            (r#"{"ok":false,"error":"Pod shop/web is private"}"#, Whole, Said::No("false".to_owned())),
            (r#"{"ok":"true"}"#, Whole, Said::No("false".to_owned())),
            (r#"{"okay":true}"#, Whole, Said::Nothing),
            ("ok", Whole, Said::Nothing),
            (r#"{"ok":tr"#, BrokeOff, Said::BrokeOff),
            (r#"{"ok":true,"#, BrokeOff, Said::Yes),
            (r#"{"ok":true"#, BrokeOff, Said::BrokeOff),
            (r#"{"ok":tr"#, TooLong, Said::Yes),
            (r#"{"error":"channel_not_found","a":"b"#, TooLong, Said::No("channel_not_found".to_owned())),
            ("<html>", TooLong, Said::Nothing),
        ] {
            assert_eq!(said(&ok, &answer(body, end)), expected, "{body}");
        }
    }
}
