//! JSON followed by its strings and brackets alone, without reading it.

use std::ops::Range;

/// Returns the end of the string that begins here: its closing quote, or the end of the text.
pub(crate) fn end_of_string(text: &[u8], begin: usize) -> usize {
    let mut at = begin + 1;
    while let Some(found) = text.get(at..).and_then(|rest| memchr::memchr2(b'"', b'\\', rest)) {
        at += found;
        if text[at] == b'"' {
            return at;
        }
        at += 2;
    }
    text.len()
}

/// Returns the start of an object's first member that has one of these keys, which are given with quotes and colon.
pub(crate) fn member(text: &[u8], keys: &[&[u8]]) -> Option<usize> {
    let (mut depth, mut at) = (0_usize, 0);
    while let Some(byte) = text.get(at) {
        match byte {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'"' if depth == 1 && keys.iter().any(|key| text[at..].starts_with(key)) => return Some(at),
            b'"' => at = end_of_string(text, at),
            _ => {}
        }
        at += 1;
    }
    None
}

/// The value that begins here; nothing where the text ends before it does.
pub(crate) fn value(text: &[u8], begin: usize) -> Option<Range<usize>> {
    if !matches!(text.get(begin)?, b'{' | b'[' | b'"') {
        let length = text[begin..].iter().position(|byte| matches!(byte, b',' | b'}' | b']'))?;
        return (length > 0).then_some(begin..begin + length);
    }
    let (mut depth, mut at) = (0_usize, begin);
    loop {
        match text.get(at)? {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth -= 1,
            b'"' => at = end_of_string(text, at),
            _ => {}
        }
        at += 1;
        if depth == 0 {
            return (at <= text.len()).then_some(begin..at);
        }
    }
}

/// A JSON text on one line: white space between tokens is dropped where it holds line breaks, because an entry is
/// one line. The API server sends compact JSON, so this is nearly always the input itself.
#[must_use]
pub fn one_line(json: Vec<u8>) -> Vec<u8> {
    if memchr::memchr2(b'\n', b'\r', &json).is_none() {
        return json;
    }
    let mut out = Vec::with_capacity(json.len());
    let mut at = 0;
    while let Some(byte) = json.get(at) {
        let end = if *byte == b'"' { json.len().min(end_of_string(&json, at) + 1) } else { at + 1 };
        if !byte.is_ascii_whitespace() {
            out.extend_from_slice(&json[at..end]);
        }
        at = end;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_breaks_between_tokens_go_and_text_stays() {
        let pretty = "{\n  \"a b\": \"x \\\" y\",\r\n \"n\": 1.0 }";
        assert_eq!(one_line(pretty.into()), br#"{"a b":"x \" y","n":1.0}"#);
        assert_eq!(one_line(b"{ \"a\": 1 }".to_vec()), b"{ \"a\": 1 }");
    }

    #[test]
    fn a_value_ends_where_its_brackets_do() {
        let text = br#"{"a":{"b":["}\"]",{}]},"c":"d"}"#;
        let found =
            |key: &[u8]| member(text, &[key]).and_then(|at| value(text, at + key.len())).map(|span| &text[span]);
        assert_eq!(found(br#""a":"#), Some(&br#"{"b":["}\"]",{}]}"#[..]));
        assert_eq!(found(br#""c":"#), Some(&br#""d""#[..]));
        assert_eq!(found(br#""b":"#), None);
        assert_eq!(value(b"12,", 0), Some(0..2));
        for odd in [&b""[..], b"{", b"\"", b"]", b"{\"a\\", b"[\""] {
            assert_eq!(value(odd, 0), None);
        }
    }
}
