//! What changed, as documents of JSON or YAML.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::value::RawValue;

use super::super::output::Out;
use super::super::{Failure, Format, yaml};
use crate::core::k8s::audited::Actor;
use crate::query::causes::Role;
use crate::query::coverage::Uncovered;
use crate::query::line::Line;
use crate::query::questions::causes::{Changes, Folded, Item, Named};

/// A group as JSON, without what is folded.
#[derive(Serialize)]
struct Document<'a> {
    role: Role,
    count: usize,
    #[serde(skip_serializing_if = "str::is_empty")]
    since: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    until: &'a str,
    by: &'a [String],
    #[serde(skip_serializing_if = "<[Actor]>::is_empty")]
    actors: &'a [Actor],
    objects: &'a [Named],
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    again: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<&'a Named>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    resources: &'a BTreeMap<String, usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    entry: Option<&'a RawValue>,
    /// What follows from it, counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    derived: Option<&'a Folded>,
}

/// A part of the time that the log does not cover, as JSON.
#[derive(Serialize)]
struct Unknown<'a> {
    role: &'static str,
    #[serde(flatten)]
    uncovered: &'a Uncovered,
}

#[expect(clippy::needless_pass_by_value, reason = "it is given to map_err")]
fn bug(error: serde_json::Error) -> Failure {
    Failure::internal(format!("cannot print the answer: {error}"))
}

/// Prints groups for programs: a line of JSON or a document of YAML each.
pub(super) struct Documents<'o> {
    out: &'o mut Out,
    format: Format,
    /// The document that folded entries are added to.
    open: Option<Vec<u8>>,
    /// Number of entries in it.
    count: usize,
}

impl<'o> Documents<'o> {
    pub(super) const fn new(out: &'o mut Out, format: Format) -> Self {
        Self { out, format, open: None, count: 0 }
    }

    /// Adds an item to its document.
    pub(super) fn item(&mut self, item: Item) -> Result<(), Failure> {
        match item {
            Item::Begin { .. } => Ok(()),
            Item::Group(changes) => self.group(&changes),
            Item::Below(Line(stored)) => {
                let comma = if self.count > 0 { &b","[..] } else { b"" };
                self.count += 1;
                self.put(&[comma, &stored.line].concat())
            }
            Item::Gap(Line(stored)) => {
                self.close()?;
                self.open = Some(Vec::new());
                self.put(b"{\"role\":\"gap\",\"entry\":")?;
                self.put(&stored.line)?;
                self.put(b",\"folded\":[")
            }
            Item::Unknown(uncovered) => {
                self.close()?;
                let json = serde_json::to_vec(&Unknown { role: "unknown", uncovered: &uncovered }).map_err(bug)?;
                self.open = Some(Vec::new());
                self.put(&json[..json.len() - 1])?;
                self.put(b",\"folded\":[")
            }
        }
    }

    fn group(&mut self, changes: &Changes) -> Result<(), Failure> {
        self.close()?;
        let entry = changes.entry.as_ref().and_then(|Line(stored)| serde_json::from_slice(&stored.line).ok());
        let document = Document {
            role: changes.role,
            count: changes.count,
            since: &changes.since,
            until: &changes.until,
            by: &changes.by,
            actors: &changes.actors,
            objects: &changes.objects,
            again: changes.again,
            owner: changes.owner.as_ref(),
            resources: &changes.resources,
            entry,
            derived: changes.folded.as_ref(),
        };
        let json = serde_json::to_vec(&document).map_err(bug)?;
        self.open = Some(Vec::new());
        self.put(&json[..json.len() - 1])?;
        self.put(b",\"folded\":[")
    }

    /// Writes a part of a document: JSON at once, YAML when it is whole.
    fn put(&mut self, part: &[u8]) -> Result<(), Failure> {
        match &mut self.open {
            Some(open) if self.format == Format::Yaml => open.extend_from_slice(part),
            _ => self.out.json_part(part)?,
        }
        Ok(())
    }

    /// Ends the last document, and hands all of them out.
    pub(super) fn end(&mut self) -> Result<(), Failure> {
        self.close()?;
        self.out.flush()?;
        Ok(())
    }

    fn close(&mut self) -> Result<(), Failure> {
        if self.open.is_none() {
            return Ok(());
        }
        self.put(b"]}")?;
        self.count = 0;
        let document = self.open.take().unwrap_or_default();
        if self.format != Format::Yaml {
            return self.out.line("");
        }
        let text = yaml::from_json(&document).map_err(|error| Failure::internal(error.to_string()))?;
        self.out.line("---")?;
        self.out.bytes(text.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The book lists every `role` that is printed.
    #[test]
    fn the_page_lists_every_role() {
        let next = |role: Role| match role {
            Role::Cause => Some(Role::Rewrite),
            Role::Rewrite => Some(Role::Repeated),
            Role::Repeated => Some(Role::Controller),
            Role::Controller => Some(Role::Derived),
            Role::Derived => Some(Role::Rest),
            Role::Rest => None,
        };
        let roles = std::iter::successors(Some(Role::Cause), |role| next(*role));
        let word = |role: Role| serde_json::to_value(role).unwrap().as_str().unwrap().to_owned();
        let page = include_str!("../../../../docs/reading.md");
        let (_, listed) = page.split_once("one object for each line: `role` (").unwrap();
        let (listed, _) = listed.split_once("`count`").unwrap();
        for word in roles.map(word).chain(["gap", "unknown"].map(str::to_owned)) {
            assert!(listed.contains(&format!("`{word}`")), "{word}: {listed}");
        }
    }
}
