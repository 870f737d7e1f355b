//! JSON followed by its strings and brackets alone, without reading it.

use std::ops::Range;

use super::word::before_quote_or_backslash;

/// Returns the end of the string that begins here: its closing quote, or the end of the text.
pub(crate) fn end_of_string(text: &[u8], begin: usize) -> usize {
    let mut at = begin + 1;
    while let Some(found) = text.get(at..).and_then(quote_or_backslash) {
        at += found;
        if text[at] == b'"' {
            return at;
        }
        at += 2;
    }
    text.len()
}

/// Returns the position of the first quote or backslash.
pub(crate) fn quote_or_backslash(text: &[u8]) -> Option<usize> {
    /// Most strings end within as many words. What is longer is worth the call of a search with vectors.
    const WORDS: usize = 4;
    let (words, _) = text.as_chunks();
    let words = &words[..words.len().min(WORDS)];
    for (index, word) in words.iter().enumerate() {
        let before = before_quote_or_backslash(*word);
        if before < word.len() {
            return Some(index * word.len() + before);
        }
    }
    let begin = words.as_flattened().len();
    memchr::memchr2(b'"', b'\\', &text[begin..]).map(|found| begin + found)
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

/// A position in a text that is known to be JSON, for picking values out of it in one pass. Of another text a method gives nothing,
/// or some part of it.
#[derive(Debug)]
pub(crate) struct Cursor<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    /// A cursor at the beginning of a text.
    pub(crate) const fn new(text: &'a [u8]) -> Self {
        Self { text, at: 0 }
    }

    /// Takes a value. If it is an object, `member` takes the value of each member; it gets the bytes between the quotes of the name.
    pub(crate) fn object(&mut self, mut member: impl FnMut(&mut Self, &'a [u8]) -> Option<()>) -> Option<()> {
        self.container(b'{', b'}', |cursor| {
            let name = cursor.string()?;
            (cursor.peek()? == b':').then(|| cursor.at += 1)?;
            member(cursor, name)
        })
    }

    /// Takes a value. If it is an array, `element` takes each element.
    pub(crate) fn array(&mut self, element: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        self.container(b'[', b']', element)
    }

    fn container(&mut self, begin: u8, end: u8, mut each: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        if self.peek()? != begin {
            return self.skip().map(drop);
        }
        self.at += 1;
        if self.peek()? == end {
            self.at += 1;
            return Some(());
        }
        loop {
            each(self)?;
            let next = self.peek()?;
            self.at += 1;
            if next == end {
                return Some(());
            }
            (next == b',').then_some(())?;
        }
    }

    /// Takes a value, and returns it as it stands in the text.
    pub(crate) fn skip(&mut self) -> Option<&'a [u8]> {
        self.peek()?;
        let found = value(self.text, self.at)?;
        self.at = found.end;
        self.text.get(found)
    }

    fn string(&mut self) -> Option<&'a [u8]> {
        (self.peek()? == b'"').then_some(())?;
        let (begin, end) = (self.at + 1, end_of_string(self.text, self.at));
        self.at = end + 1;
        self.text.get(begin..end)
    }

    /// The next byte that is no white space.
    fn peek(&mut self) -> Option<u8> {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.text.get(self.at) {
            self.at += 1;
        }
        self.text.get(self.at).copied()
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
