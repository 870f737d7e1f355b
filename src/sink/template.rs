//! Names that are made from an entry: topics, subjects, indices, paths of objects.
//!
//! A template is a text with fields in braces, such as `decklog.{resource}.{namespace}`. What an entry does not have
//! (the namespace of a Node, the name in a gap of a whole source) is `_`, which no name in Kubernetes can be.

use std::borrow::Cow;
use std::fmt;

use crate::core::spelling::{Text, Wrong, nearest, text_value};
use crate::core::wire::Header;

/// The fields that a template may name.
pub(crate) const FIELDS: [&str; 11] =
    ["cluster", "group", "version", "resource", "kind", "namespace", "name", "type", "epoch", "date", "hour"];

/// Value of a field that an entry does not have.
const NONE: &str = "_";

/// A template that was understood.
#[derive(Clone, PartialEq, Eq)]
pub struct Template(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Field(&'static str),
}

// In a sentence it is quoted as it was written.
impl fmt::Debug for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.to_string())
    }
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|part| match part {
            Part::Text(text) => f.write_str(text),
            Part::Field(field) => write!(f, "{{{field}}}"),
        })
    }
}

impl Text for Template {
    const FORMAT: &'static str = "template";
    const EXPECTED: &'static str = "a name that may have the fields {cluster}, {group}, {version}, {resource}, {kind}, {namespace}, {name}, {type}, {epoch}, {date} and {hour}";

    fn read(text: &str) -> Result<Self, Wrong> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some(open) = rest.find(['{', '}']) {
            if rest.as_bytes()[open] == b'}' {
                return Err(format!("{text:?}, with a \"}}\" that closes nothing").into());
            }
            if open > 0 {
                parts.push(Part::Text(rest[..open].to_owned()));
            }
            let Some(length) = rest[open..].find('}') else {
                return Err(format!("{text:?}, with a \"{{\" that is not closed").into());
            };
            let name = &rest[open + 1..open + length];
            let Some(field) = FIELDS.into_iter().find(|field| *field == name) else {
                let near =
                    nearest(name, FIELDS).map(|near| text.replace(&format!("{{{name}}}"), &format!("{{{near}}}")));
                return Err(Wrong { found: format!("{text:?}, with the unknown field {{{name}}}"), nearest: near });
            };
            parts.push(Part::Field(field));
            rest = &rest[open + length + 1..];
        }
        if !rest.is_empty() {
            parts.push(Part::Text(rest.to_owned()));
        }
        if parts.is_empty() {
            return Err("an empty text".into());
        }
        Ok(Self(parts))
    }
}

text_value!(Template);

impl Template {
    /// Reports whether it names no field, and so is the same for every entry.
    #[allow(dead_code, reason = "only clients that stand behind features ask")]
    pub(crate) fn is_fixed(&self) -> bool {
        self.0.iter().all(|part| matches!(part, Part::Text(_)))
    }

    /// The name, where it is the same for every entry.
    #[allow(dead_code, reason = "only clients that stand behind features ask")]
    pub(crate) fn fixed(&self) -> Option<&str> {
        match self.0.as_slice() {
            [Part::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// Every name that it can make, with `*` for each field.
    pub(crate) fn pattern(&self) -> String {
        let part = |part: &Part| match part {
            Part::Text(text) => text.clone(),
            Part::Field(_) => "*".to_owned(),
        };
        self.0.iter().map(part).collect()
    }

    /// The name for an entry. `clean` makes of a field's value what may stand in such a name.
    pub(crate) fn render(&self, entry: &Header<'_>, clean: impl Fn(&str) -> String) -> String {
        let mut out = String::new();
        for part in &self.0 {
            match part {
                Part::Text(text) => out.push_str(text),
                Part::Field(field) => match value(field, entry) {
                    "" => out.push_str(NONE),
                    value => out.push_str(&clean(value)),
                },
            }
        }
        out
    }
}

fn value<'e>(field: &str, entry: &'e Header<'_>) -> &'e str {
    let optional = |value: &'e Option<Cow<'_, str>>| value.as_deref().unwrap_or_default();
    match field {
        "cluster" => &entry.cluster.name,
        "group" => entry.group(),
        "version" => entry.api_version.rsplit('/').next().unwrap_or_default(),
        "resource" => &entry.resource,
        "kind" => &entry.kind,
        "namespace" => optional(&entry.namespace),
        "name" => optional(&entry.name),
        "type" => entry.op.as_str(),
        "epoch" => &entry.epoch,
        // 2026-11-21T10:15:00.000000Z
        "date" => entry.time.get(..10).unwrap_or_default(),
        _ => entry.time.get(11..13).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sink::tests::item;

    #[test]
    fn every_field_is_rendered() {
        let item = item(7);
        let entry = Header::parse(&item.line).unwrap();
        let all = FIELDS.map(|field| format!("{{{field}}}")).join("/");
        let template = Template::read(&all).unwrap();
        assert!(!template.is_fixed());
        assert_eq!(
            template.render(&entry, str::to_owned),
            "prod/apps/v1/deployments/Deployment/shop/web/MODIFIED/e/2026-11-21/10"
        );
        let cleaned = Template::read("x.{kind}.y").unwrap().render(&entry, str::to_lowercase);
        assert_eq!(cleaned, "x.deployment.y");
        assert!(Template::read("fixed").unwrap().is_fixed());
        assert_eq!(Template::read("x.{kind}.{date}").unwrap().pattern(), "x.*.*");
    }

    #[test]
    fn what_an_entry_lacks_is_an_underscore() {
        let line = String::from_utf8(item(7).line.to_vec()).unwrap();
        let line = line.replace(r#""namespace":"shop","#, "").replace("apps/v1", "v1");
        let entry = Header::parse(line.as_bytes()).unwrap();
        let template = Template::read("{group}.{version}.{namespace}").unwrap();
        assert_eq!(template.render(&entry, str::to_owned), "_.v1._");
    }

    #[test]
    fn what_is_no_template_is_reported_with_what_is_meant() {
        for (text, says, near) in [
            ("a.{namspace}", "the unknown field {namspace}", Some("a.{namespace}")),
            ("a.{zzzzzzzz}", "the unknown field {zzzzzzzz}", None),
            ("a.{name", "that is not closed", None),
            ("a.name}", "that closes nothing", None),
            ("", "an empty text", None),
        ] {
            let Wrong { found, nearest } = Template::read(text).unwrap_err();
            assert!(found.contains(says), "{found}");
            assert_eq!(nearest.as_deref(), near, "{text}");
        }
    }
}
