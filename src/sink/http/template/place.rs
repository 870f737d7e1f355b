//! The pen of a template: it knows where in a JSON text a value comes to stand, from which line of the template each
//! byte is, and when the body is large enough.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The largest body, in bytes.
pub(super) const BODY_BYTES: usize = 256 << 10;

/// Begins and ends the number of a line in the text of a template. JSON has neither but escaped.
const LINE: (char, char) = ('\u{1}', '\u{2}');

/// A body as far as it is written.
#[derive(Debug, Default)]
pub(super) struct Sheet {
    pub(super) body: Vec<u8>,
    /// True between the quotes of a string.
    pub(super) in_string: bool,
    escaped: bool,
    /// A number of a line that has begun.
    number: Option<usize>,
    /// Lines of the template, each with the offset in the body that it begins at.
    lines: Vec<(usize, usize)>,
    /// True if the body was too large.
    pub(super) full: bool,
}

impl Sheet {
    /// Returns the line of the template that this byte of the body is of.
    pub(super) fn line_at(&self, offset: usize) -> Option<usize> {
        self.lines.iter().take_while(|(at, _)| *at <= offset).last().map(|(_, line)| *line)
    }

    fn put(&mut self, byte: u8) {
        match (self.number, byte) {
            (None, 1) => self.number = Some(0),
            (Some(line), 2) => {
                self.lines.push((self.body.len(), line));
                self.number = None;
            }
            (Some(line), _) => self.number = Some(line * 10 + usize::from(byte.saturating_sub(b'0'))),
            (None, _) => {
                let quote = byte == b'"' && !self.escaped;
                self.escaped = self.in_string && byte == b'\\' && !self.escaped;
                self.in_string ^= quote;
                self.body.push(byte);
            }
        }
    }
}

/// A writer of one body after another.
#[derive(Clone, Debug, Default)]
pub(super) struct Pen {
    sheet: Arc<Mutex<Sheet>>,
    /// True if what it writes is JSON.
    pub(super) json: bool,
}

impl Pen {
    pub(super) fn new(json: bool) -> Self {
        Self { sheet: Arc::default(), json }
    }

    pub(super) fn sheet(&self) -> MutexGuard<'_, Sheet> {
        self.sheet.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a new body, and returns the one before.
    pub(super) fn turn(&self) -> Sheet {
        std::mem::take(&mut *self.sheet())
    }
}

impl io::Write for Pen {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut sheet = self.sheet();
        if sheet.body.len() + bytes.len() > BODY_BYTES {
            sheet.full = true;
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        if self.json {
            bytes.iter().for_each(|byte| sheet.put(*byte));
        } else {
            sheet.body.extend_from_slice(bytes);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A tag of a template.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Tag<'t> {
    pub(super) line: usize,
    /// True if it begins with `{%`.
    pub(super) is_block: bool,
    /// The text within.
    pub(super) text: &'t str,
}

impl<'t> Tag<'t> {
    /// The names behind `|`, outside of quotes.
    pub(super) fn filters(&self) -> Vec<&'t str> {
        let (mut quote, mut escaped, mut found) = (None, false, Vec::new());
        for (at, c) in self.text.char_indices() {
            match quote {
                Some(_) if escaped => escaped = false,
                Some(_) if c == '\\' => escaped = true,
                Some(open) if c == open => quote = None,
                Some(_) => {}
                None if c == '"' || c == '\'' => quote = Some(c),
                None if c == '|' => {
                    let name = self.text[at + 1..].trim_start();
                    found.push(name.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default());
                }
                None => {}
            }
        }
        found
    }
}

/// Returns a template with the number of each of its lines in its text, and its tags.
pub(super) fn with_lines(source: &str) -> (String, Vec<Tag<'_>>) {
    let mark = |line: usize| format!("{}{line}{}", LINE.0, LINE.1);
    let (mut out, mut tags, mut line) = (mark(1), Vec::new(), 1);
    let mut rest = source;
    while !rest.is_empty() {
        let Some(close) =
            ["{{", "{%", "{#"].into_iter().zip(["}}", "%}", "#}"]).find(|(open, _)| rest.starts_with(open))
        else {
            let c = rest.chars().next().unwrap_or_default();
            // Two of its own would be a number.
            if c != LINE.0 && c != LINE.1 {
                out.push(c);
            }
            rest = &rest[c.len_utf8()..];
            if c == '\n' {
                line += 1;
                out.push_str(&mark(line));
            }
            continue;
        };
        let length = end_of_tag(rest, close.1);
        let tag = &rest[..length];
        if close.0 != "{#" {
            let text = tag[2..].trim_end_matches(close.1).trim_matches(|c: char| "-+".contains(c) || c.is_whitespace());
            tags.push(Tag { line, is_block: close.0 == "{%", text });
        }
        out.push_str(tag);
        line += tag.matches('\n').count();
        rest = &rest[length..];
    }
    (out, tags)
}

/// Returns the length of the tag that a text begins with; all of the text where the tag has no end.
fn end_of_tag(text: &str, close: &str) -> usize {
    let (mut quote, mut escaped) = (None, false);
    for (at, c) in text.char_indices().skip(2) {
        match quote {
            Some(_) if escaped => escaped = false,
            Some(_) if c == '\\' => escaped = true,
            Some(open) if c == open => quote = None,
            Some(_) => {}
            None if text[at..].starts_with(close) => return at + close.len(),
            None if close != "#}" && (c == '"' || c == '\'') => quote = Some(c),
            None => {}
        }
    }
    text.len()
}
