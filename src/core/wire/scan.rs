//! The parts of an entry, found without reading them.

use std::borrow::Cow;
use std::ops::Range;

use crate::core::json::scan::{member, value};

/// The members that come after those of the header.
const BODY: [&[u8]; 5] = [b"\"managers\":", CHANGE, OBJECT, b"\"gap\":", b"\"redacted\":"];
const RECOVERED: &[u8] = b",\"recovered\":";
pub(super) const CHANGE: &[u8] = b"\"change\":";
pub(super) const OBJECT: &[u8] = b"\"object\":";

/// An entry without its object, and the object beside it: whoever looks through many entries does not have to read
/// every object to its end. Of a line that is none of [`super::render`]'s the answer may be wrong, and whoever parses it
/// sees that it is no entry. An entry without an object is given as it is.
#[must_use]
pub fn apart(line: &[u8]) -> (Cow<'_, [u8]>, &[u8]) {
    let Some(at) = member(line, &[OBJECT]) else { return (Cow::Borrowed(line), &[]) };
    let begin = at + OBJECT.len();
    // Nothing but `redacted` follows, and that ends with a list.
    let redacted = if line.ends_with(b"]}") { memchr::memmem::rfind(line, b",\"redacted\":[") } else { None };
    let end = redacted.unwrap_or(line.len().saturating_sub(1)).max(begin);
    let mut head = line[..at].to_vec();
    head.extend_from_slice(line[end..].strip_prefix(b",").unwrap_or(&line[end..]));
    if head.ends_with(b",}") {
        head.truncate(head.len() - 2);
        head.push(b'}');
    }
    (Cow::Owned(head), &line[begin..end])
}

/// A GAP without the number of changes that were recovered before it, which is of all namespaces. Of a line that is no GAP of
/// [`super::render`] the answer may be wrong.
#[must_use]
pub fn without_count(line: &[u8]) -> Cow<'_, [u8]> {
    let Some(at) = memchr::memmem::rfind(line, RECOVERED) else { return Cow::Borrowed(line) };
    let digits = line[at + RECOVERED.len()..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    Cow::Owned([&line[..at], &line[at + RECOVERED.len() + digits..]].concat())
}

/// The members of an entry that say which one it is and what happened to which object: those before the change, the
/// object and the gap. What follows them is not even looked at. As with [`apart`], whoever parses it sees whether it is
/// an entry.
pub(super) fn header(line: &[u8]) -> Cow<'_, [u8]> {
    match member(line, &BODY) {
        Some(at) => {
            let before = line[..at].strip_suffix(b",").unwrap_or(&line[..at]);
            Cow::Owned([before, b"}"].concat())
        }
        None => Cow::Borrowed(line),
    }
}

/// A member of an entry: all of it with the comma that goes with it, and its value alone.
pub(super) fn whole_member(line: &[u8], key: &[u8]) -> Option<(Range<usize>, Range<usize>)> {
    let start = member(line, &[key])?;
    let value = value(line, start + key.len())?;
    let after = usize::from(line.get(value.end) == Some(&b','));
    let whole = match line[..start].ends_with(b",") {
        true => start - 1..value.end,
        false => start..value.end + after,
    };
    Some((whole, value))
}
