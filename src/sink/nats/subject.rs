//! Subjects: where in a stream an entry goes.

use std::fmt;

use crate::core::spelling::{Text, Wrong, text_value};
use crate::core::wire::Header;
use crate::sink::Template;

/// A subject that is made from an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    template: Template,
    /// Every subject that it can become, as NATS writes it.
    pattern: String,
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.template.fmt(f)
    }
}

impl Text for Subject {
    const FORMAT: &'static str = "subject";
    const EXPECTED: &'static str = "a subject such as \"decklog.{resource}.{namespace}\", without spaces and wildcards";

    fn read(text: &str) -> Result<Self, Wrong> {
        let template = Template::read(text)?;
        if text.contains(|c: char| c.is_whitespace() || c.is_control() || matches!(c, '*' | '>')) {
            return Err(format!("{text:?}, with a space or a wildcard").into());
        }
        if text.starts_with('$') {
            return Err(format!("{text:?}, with the \"$\" of the subjects that are the server's own").into());
        }
        let tokens = text.split('.').map(|token| match token {
            "" => Err(format!("{text:?}, with a dot too many")),
            token if token.contains('{') => Ok("*"),
            token => Ok(token),
        });
        Ok(Self { template, pattern: tokens.collect::<Result<Vec<_>, _>>()?.join(".") })
    }
}

text_value!(Subject);

impl Subject {
    /// Every subject that an entry can have.
    pub(crate) fn pattern(&self) -> &str {
        &self.pattern
    }

    /// The subject of an entry. What no part of a subject can have is `_`.
    pub(super) fn of(&self, entry: &Header<'_>) -> String {
        let odd = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '.' | '*' | '>');
        self.template.render(entry, |value| value.replace(odd, "_"))
    }
}

/// Reports whether a stream with the subjects `taken` accepts every subject of `wanted`.
pub(super) fn covers(taken: &str, wanted: &str) -> bool {
    let (mut taken, mut wanted) = (taken.split('.'), wanted.split('.'));
    loop {
        match (taken.next(), wanted.next()) {
            (Some(">"), Some(_)) | (None, None) => return true,
            (Some(one), Some(other)) if one == "*" || one == other => {}
            _ => return false,
        }
    }
}

/// Reports whether some subject matches both.
pub(super) fn meet(one: &str, other: &str) -> bool {
    let same = |(one, other): (&str, &str)| one == "*" || other == "*" || one == other;
    one.split('.').count() == other.split('.').count() && one.split('.').zip(other.split('.')).all(same)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sink::tests::item;

    #[test]
    fn a_subject_is_made_of_clean_tokens() {
        let subject = Subject::read("decklog.{resource}.x-{name}").unwrap();
        assert_eq!(subject.pattern(), "decklog.*.*");
        let line = String::from_utf8(item(1).line.to_vec()).unwrap();
        // Names of RBAC are anything that a path takes.
        let line = line.replace(r#""name":"web""#, r#""name":"a.b *>\u00a0é:1""#);
        let entry = Header::parse(line.as_bytes()).unwrap();
        assert_eq!(subject.of(&entry), "decklog.deployments.x-a_b____é:1");
        assert_eq!(Subject::read("fixed").unwrap().pattern(), "fixed");
    }

    #[test]
    fn what_is_no_subject_is_refused() {
        for (text, says) in [
            ("a b", "a space or a wildcard"),
            ("a.*", "a space or a wildcard"),
            ("a.>", "a space or a wildcard"),
            ("a..b", "a dot too many"),
            (".a", "a dot too many"),
            ("a.", "a dot too many"),
            ("$JS.{name}", "the server's own"),
            ("a.{nam}", "the unknown field {nam}"),
            ("", "an empty text"),
        ] {
            let Wrong { found, .. } = Subject::read(text).unwrap_err();
            assert!(found.contains(says), "{text}: {found}");
        }
    }

    #[test]
    fn patterns_meet_where_one_subject_is_of_both() {
        for (one, other, do_meet) in [
            ("decklog.*.*", "decklog.*.*", true),
            ("decklog.*.*", "decklog.pods.*", true),
            ("*.pods.*", "decklog.*.shop", true),
            ("a.*", "b.*", false),
            ("a.*.x", "a.*.y", false),
            ("a.*", "a.*.*", false),
        ] {
            assert_eq!((meet(one, other), meet(other, one)), (do_meet, do_meet), "{one} {other}");
        }
    }

    #[test]
    fn a_stream_takes_what_its_subjects_cover() {
        for (taken, wanted, covered) in [
            ("decklog.>", "decklog.*.*", true),
            ("decklog.*.*", "decklog.*.*", true),
            ("*.*.*", "decklog.*.*", true),
            (">", "decklog.*.*", true),
            ("decklog.pods.*", "decklog.*.*", false),
            ("decklog.*", "decklog.*.*", false),
            ("decklog.*.*.*", "decklog.*.*", false),
            ("decklog.*.*.>", "decklog.*.*", false),
            ("other.>", "decklog.*.*", false),
        ] {
            assert_eq!(covers(taken, wanted), covered, "{taken} {wanted}");
        }
    }
}
