//! JSON pointers (RFC 6901) and the escapes of their segments.

use std::borrow::Cow;

/// The name that a segment of a JSON pointer stands for; nothing where an escape is wrong.
pub(crate) fn unescape(segment: &str) -> Option<Cow<'_, str>> {
    if !segment.contains('~') {
        return Some(Cow::Borrowed(segment));
    }
    let mut parts = segment.split('~');
    let mut name = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        name.push(match part.as_bytes().first()? {
            b'0' => '~',
            b'1' => '/',
            _ => return None,
        });
        name.push_str(&part[1..]);
    }
    Some(Cow::Owned(name))
}

/// Appends a member name to a JSON pointer.
pub(crate) fn push_segment(pointer: &mut String, name: &str) {
    pointer.push('/');
    if memchr::memchr2(b'~', b'/', name.as_bytes()).is_some() {
        for character in name.chars() {
            match character {
                '~' => pointer.push_str("~0"),
                '/' => pointer.push_str("~1"),
                other => pointer.push(other),
            }
        }
    } else {
        pointer.push_str(name);
    }
}
