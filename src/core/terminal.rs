//! Safe output on terminals. Names, values and messages come from others, and some characters move the cursor, clear the screen
//! or reverse text.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};

use serde::{Deserialize, Serialize};

use super::os::{self, AsStream};

/// Style of lines at their destination.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminalStyle {
    /// With colours.
    pub color: bool,
    /// True if the destination is a terminal.
    pub terminal: bool,
    /// Columns, on a terminal that says how many it has.
    pub width: Option<usize>,
}

/// Reports whether a terminal obeys this character, or it reverses the direction of text: the least that no message may hold.
/// It leaves characters that are merely invisible, which some scripts need.
#[must_use]
pub fn is_obeyed(c: char) -> bool {
    c.is_control() || matches!(c, '\u{200e}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Reports whether a terminal obeys this character instead of showing it, or a reader would not see it: controls (C0, DEL, C1),
/// marks that reverse the direction of text, invisible characters and line separators.
#[must_use]
pub fn is_unprintable(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
        || matches!(c, '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

/// `text` with every unprintable character written as `\u{1b}`.
#[must_use]
pub fn printable(text: &str) -> Cow<'_, str> {
    escape(text, |c| Some(c.escape_unicode().to_string()))
}

/// Replaces characters as [`printable`] does, but keeps line breaks: for texts of several lines that decklog wrote itself.
#[must_use]
pub fn printable_text(text: &str) -> Cow<'_, str> {
    escape(text, |c| (c != '\n').then(|| c.escape_unicode().to_string()))
}

/// JSON without characters that a terminal obeys: they are written as escapes, which mean the same.
#[must_use]
pub fn json_text(json: &str) -> Cow<'_, str> {
    escape(json, json_escape)
}

fn json_escape(c: char) -> Option<String> {
    let mut units = [0; 2];
    Some(c.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")).collect())
}

fn escape(text: &str, how: impl Fn(char) -> Option<String>) -> Cow<'_, str> {
    if !text.contains(is_unprintable) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match is_unprintable(c).then(|| how(c)).flatten() {
            Some(escaped) => out.push_str(&escaped),
            None => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// Says on standard error what went wrong; on a terminal no word is cut.
pub fn complain(text: &str) {
    let stderr = io::stderr();
    let text = format!("{PROGRAM}{}", printable_text(text));
    let lines = text.lines().map(|line| match columns(&stderr) {
        Some(width) => wrap(line, width, PROGRAM.len()),
        None => line.to_owned(),
    });
    // Where standard error is closed, nobody can read it.
    drop(writeln!(stderr.lock(), "{}", lines.collect::<Vec<_>>().join("\n")));
}

/// Beginning of a message on standard error.
const PROGRAM: &str = "decklog: ";

/// Returns the number of columns of a terminal; none for anything else, and where it does not say.
#[must_use]
pub fn columns(output: &(impl IsTerminal + AsStream)) -> Option<usize> {
    output.is_terminal().then(|| os::columns(output)).flatten().filter(|columns| *columns > 0)
}

/// Breaks a line between words so that it fits into `width` columns. The lines below begin with `hang` blanks, or with fewer where
/// little room would be left. A word that is wider stays whole, and colours take no room.
#[must_use]
pub fn wrap(line: &str, width: usize, hang: usize) -> String {
    let hang = hang.min(width / 2);
    let (mut out, mut column, mut rest) = (String::with_capacity(line.len()), 0, line);
    while !rest.is_empty() {
        let word = rest.trim_start_matches(' ');
        let gap = rest.len() - word.len();
        let end = word.find(' ').unwrap_or(word.len());
        let size = shown_columns(&word[..end]);
        if column > hang && column + gap + size > width {
            out.push('\n');
            out.push_str(&" ".repeat(hang));
            column = hang;
        } else {
            out.push_str(&rest[..gap]);
            column += gap;
        }
        out.push_str(&word[..end]);
        column += size;
        rest = &word[end..];
    }
    out
}

/// Returns the number of characters of a text that take room: those of colours do not.
fn shown_columns(text: &str) -> usize {
    let mut columns = 0;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c == '\u{1b}' {
            chars.by_ref().find(char::is_ascii_alphabetic);
        } else {
            columns += 1;
        }
    }
    columns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_terminal_obeys_is_printed() {
        assert_eq!(printable("a\u{1b}[31mred\u{7}\u{9b}2J"), "a\\u{1b}[31mred\\u{7}\\u{9b}2J");
        assert_eq!(printable("\u{202e}gnp.exe\r\n\t"), "\\u{202e}gnp.exe\\u{d}\\u{a}\\u{9}");
        assert!(matches!(printable("shop/web-ünïcode-日本"), Cow::Borrowed(_)));
        assert_eq!(printable_text("one\ntwo\u{1b}"), "one\ntwo\\u{1b}");
        let json = "{\"a\":\"x\u{9b}\u{e0001}\"}";
        let escaped = escape(json, json_escape);
        assert!(!escaped.contains(is_unprintable));
        let (a, b): (serde_json::Value, serde_json::Value) =
            (serde_json::from_str(json).unwrap(), serde_json::from_str(&escaped).unwrap());
        assert_eq!(a, b, "the escapes mean the same");
    }

    #[test]
    fn a_line_is_broken_between_words() {
        for (line, width, hang, expected) in [
            ("one two three", 20, 2, "one two three"),
            ("one two three", 13, 2, "one two three"),
            ("one two three", 12, 2, "one two\n  three"),
            ("one two three", 7, 9, "one two\n   three"),
            ("a   b", 3, 0, "a\nb"),
            ("  indented words", 12, 2, "  indented\n  words"),
            ("/a/name/that/is/wider and", 10, 2, "/a/name/that/is/wider\n  and"),
            ("\u{1b}[31mone two\u{1b}[0m three", 7, 1, "\u{1b}[31mone two\u{1b}[0m\n three"),
            ("ünï cödé", 4, 0, "ünï\ncödé"),
            ("", 4, 0, ""),
        ] {
            assert_eq!(wrap(line, width, hang), expected, "{line:?} in {width}");
        }
    }

    #[test]
    fn what_is_obeyed_is_never_printed() {
        let all = (0..=0x10_ffff).filter_map(char::from_u32);
        assert!(all.filter(|c| is_obeyed(*c)).all(is_unprintable));
        assert!(!is_obeyed('\u{200d}') && is_unprintable('\u{200d}'));
    }
}
