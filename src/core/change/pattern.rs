//! Patterns of JSON pointers.

use std::borrow::Cow;
use std::fmt;

use crate::core::spelling::{Text, Wrong, glob, text_value};

use crate::core::json::pointer::{push_segment, unescape};

/// A JSON pointer (RFC 6901) whose segments may hold `*`.
///
/// `*` stands for any run of characters inside one segment, so a whole `*` is any one member or element, and `**`
/// as a whole segment is any number of segments, none included. A pattern matches what it names and, where that is
/// asked for, everything below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    text: String,
    segments: Vec<Segment>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Segment {
    /// This text.
    Literal(String),
    /// A text with `*` in it.
    Glob(String),
    /// `**`.
    AnyDepth,
}

impl Segment {
    /// Reports whether a member name or an element's index matches. `AnyDepth` is not one segment: its reader handles it.
    fn matches(&self, name: &str) -> bool {
        match self {
            Self::Literal(text) => text == name,
            Self::Glob(glob) => glob::fits(glob, name, |wanted, byte| wanted == byte),
            Self::AnyDepth => true,
        }
    }

    /// Reports whether any element of a list can match if its index is unknown.
    fn matches_an_element(&self) -> bool {
        match self {
            Self::Literal(text) => text.bytes().all(|byte| byte.is_ascii_digit()),
            Self::Glob(glob) => glob.bytes().all(|byte| byte == b'*' || byte.is_ascii_digit()),
            Self::AnyDepth => true,
        }
    }
}

impl Pattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// One sentence that says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("a JSON pointer is expected, such as /metadata/managedFields; this one is empty".to_owned());
        }
        let Some(rest) = text.strip_prefix('/') else {
            return Err(format!("{text:?} is no JSON pointer: it has to begin with `/`, as in /{text}"));
        };
        let segments = rest.split('/').map(|part| {
            if part == "**" {
                return Ok(Segment::AnyDepth);
            }
            if part.contains("**") {
                return Err(format!(
                    "{text:?}: `**` stands for whole segments, as in /a/**/b; use one `*` inside {part:?}"
                ));
            }
            let part = unescape(part)
                .ok_or_else(|| format!("{text:?}: `~` has to be written `~0`, and `/` inside a name `~1`"))?
                .into_owned();
            Ok(if part.contains('*') { Segment::Glob(part) } else { Segment::Literal(part) })
        });
        let segments: Vec<Segment> = segments.collect::<Result<_, _>>()?;
        if segments.iter().all(|segment| *segment == Segment::AnyDepth) {
            return Err(format!("{text:?} matches everything: name at least one member"));
        }
        Ok(Self { text: text.to_owned(), segments })
    }

    /// Reports whether the pattern may match something in a top-level member.
    #[must_use]
    pub fn leads_into(&self, member: &str) -> bool {
        match self.segments.first() {
            Some(Segment::Literal(name)) => name == member,
            Some(Segment::AnyDepth | Segment::Glob(_)) => true,
            None => false,
        }
    }

    /// Reports whether the pattern matches the value at `pointer`, or something above it.
    #[must_use]
    pub fn covers(&self, pointer: &str) -> bool {
        let mut at = Vec::new();
        self.start(&mut at);
        for name in pointer.split('/').skip(1) {
            if at.contains(&self.end()) {
                return true;
            }
            let name = unescape(name).unwrap_or(Cow::Borrowed(name));
            let mut next = Vec::with_capacity(at.len());
            for position in at {
                self.step(position, &name, &mut next);
            }
            at = next;
        }
        at.contains(&self.end())
    }

    /// The position at which the pattern matches the value that was walked to.
    pub(super) fn end(&self) -> usize {
        self.segments.len()
    }

    /// The text of the pattern where it holds no `*`.
    pub(super) fn literal(&self) -> Option<String> {
        let mut pointer = String::new();
        for segment in &self.segments {
            let Segment::Literal(name) = segment else { return None };
            push_segment(&mut pointer, name);
        }
        Some(pointer)
    }

    /// The positions before the first name. All positions are followed at once, so that many `**` cost no more than
    /// their number.
    pub(super) fn start(&self, at: &mut Vec<usize>) {
        self.reach(0, at);
    }

    /// Adds the positions below a member called `name`, given one above it.
    pub(super) fn step(&self, position: usize, name: &str, next: &mut Vec<usize>) {
        self.step_if(position, |segment| segment.matches(name), next);
    }

    /// Adds the positions below an element whose place in the list is not known.
    pub(super) fn step_element(&self, position: usize, next: &mut Vec<usize>) {
        self.step_if(position, Segment::matches_an_element, next);
    }

    fn step_if(&self, position: usize, matches: impl Fn(&Segment) -> bool, next: &mut Vec<usize>) {
        if let Some(segment) = self.segments.get(position)
            && matches(segment)
        {
            self.reach(if *segment == Segment::AnyDepth { position } else { position + 1 }, next);
        }
    }

    /// `**` may stand for no segment at all, so the position after it is reached with it.
    fn reach(&self, mut position: usize, at: &mut Vec<usize>) {
        loop {
            if !at.contains(&position) {
                at.push(position);
            }
            if self.segments.get(position) != Some(&Segment::AnyDepth) {
                return;
            }
            position += 1;
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Text for Pattern {
    const FORMAT: &'static str = "pointer-pattern";
    const EXPECTED: &'static str = "a JSON pointer such as \"/metadata/managedFields\" or \"/data/*password*\"";

    fn read(text: &str) -> Result<Self, Wrong> {
        Ok(Self::parse(text)?)
    }
}

text_value!(Pattern);

#[cfg(test)]
mod tests {
    use super::*;

    fn covers(pattern: &str, pointer: &str) -> bool {
        Pattern::parse(pattern).unwrap().covers(pointer)
    }

    #[test]
    fn a_pattern_matches_what_it_names_and_what_is_below() {
        assert!(covers("/metadata/managedFields", "/metadata/managedFields"));
        assert!(covers("/metadata/managedFields", "/metadata/managedFields/0/time"));
        assert!(!covers("/metadata/managedFields", "/metadata"));
        assert!(!covers("/metadata/managedFields", "/metadata/managedFields2"));
    }

    #[test]
    fn stars_stand_for_text_inside_one_segment() {
        assert!(covers("/status/conditions/*/lastHeartbeatTime", "/status/conditions/3/lastHeartbeatTime"));
        assert!(!covers("/status/*/lastHeartbeatTime", "/status/conditions/3/lastHeartbeatTime"));
        assert!(covers("/data/*password*", "/data/db_password_2"));
        assert!(covers("/data/*password*", "/data/password"));
        assert!(covers("/data/a*b*c", "/data/a-b-b-c"));
        assert!(!covers("/data/a*b*c", "/data/a-b-b-c-d"));
    }

    #[test]
    fn two_stars_stand_for_any_depth() {
        assert!(covers("/**/password", "/password"));
        assert!(covers("/**/password", "/a/b/c/password/d"));
        assert!(!covers("/**/password", "/a/b"));
        assert!(covers("/spec/**/env/*/value", "/spec/template/spec/containers/0/env/1/value"));
        let many = format!("{}/x", "/**/a".repeat(40));
        assert!(!covers(&many, &"/a".repeat(400)));
    }

    #[test]
    fn names_are_escaped_as_rfc_6901_says() {
        assert!(covers("/metadata/annotations/a.b~1c~0d", "/metadata/annotations/a.b~1c~0d"));
        assert!(covers("/metadata/annotations/a.b~1*", "/metadata/annotations/a.b~1c"));
    }

    #[test]
    fn mistakes_are_reported() {
        for (text, part) in [
            ("", "empty"),
            ("metadata", "begin with `/`"),
            ("/a~2", "~0"),
            ("/a~", "~0"),
            ("/a**", "whole segments"),
            ("/**", "everything"),
        ] {
            let error = Pattern::parse(text).unwrap_err();
            assert!(error.contains(part), "{text:?}: {error}");
        }
    }
}
