//! Redaction of managedFields. A manager's set of fields (FieldsV1) names a member by `f:NAME`, and an element of a list by its
//! index (`i:0`), by its value (`v:"x"`, in a set) or by its keys (`k:{"name":"x"}`, in a list of maps). So a value that a rule
//! removes can stand there a second time:
//!
//! * below what a rule takes nothing is kept, so that the manager has it as a whole;
//! * in the place of an element's value or key stands the same digest as in the object (*hmac*); with *mask* and *drop*,
//!   and where nothing can stand there, the element goes: several would look the same.
//!
//! The place of an element is not known here, so a rule for one place is for each of them. The pointer that is reported
//! is that of the whole set, because a longer one would repeat the value.
//!
//! # Decision: redaction follows repeated values
//!
//! Context: FieldsV1 names elements by values and keys, and annotations of Secrets hold copies in any form.
//! Decision: A rule is followed through FieldsV1 by the same patterns; a rule for one index applies to all. If several digests
//! would be equal, or a value is dropped, everything below is. Annotations of a Secret that are not on a short list are
//! digested unread.
//! Cost: Harmless annotations of Secrets are digested, too.

use super::replace::{hex, is_digest};
use super::{Frame, Sort, Walk};
use crate::core::change::redact::RedactMode;
use crate::core::change::redact::signs::mask_tokens;
use crate::core::json::pointer::push_segment;
use crate::core::json::tree::{Id, Kind, Tree};

/// Pointer pattern of the sets of fields.
pub(super) const PLACE: &str = "/metadata/managedFields/-/fieldsV1";

/// Treatment of a member of a set of fields.
enum Fate {
    Stays,
    /// It stays under this name.
    Called(String),
    Goes,
}

impl Walk<'_, '_> {
    /// Handles the next member of a set of fields; gives the frame to walk where it is to be walked.
    pub(super) fn field(&mut self, frame: &mut Frame) -> Option<Frame> {
        let first = frame.next;
        let value = first + 1;
        let part = self.take(frame, value);
        let name = self.tree.string(first).into_owned();
        let own = self.positions.len();
        let (sort, rest) = name.split_once(':').unwrap_or(("", &name));
        push_segment(&mut self.places, if sort == "f" { rest } else { "-" });
        let mode = self.follow(frame.positions, own, |pattern, at, next| match sort {
            // A rule may also name what managers have, by the very names that it has here.
            "f" | "i" => [rest, name.as_str()].into_iter().for_each(|name| pattern.step(at, name, next)),
            _ => {
                pattern.step_element(at, next);
                pattern.step(at, &name, next);
            }
        });
        let fate = match sort {
            _ if self.tokens && mask_tokens(&name).is_some() => Fate::Goes,
            "f" | "i" => Fate::Stays,
            "v" => mode.map_or(Fate::Stays, |mode| {
                self.renamed(mode, rest).map_or(Fate::Goes, |to| Fate::Called(format!("v:{to}")))
            }),
            "k" if mode.is_some() => Fate::Goes,
            "k" => self.keys(own, rest),
            _ if name == "." => Fate::Stays,
            // Nobody knows what it names.
            _ if self.positions.len() > own || mode.is_some() => Fate::Goes,
            _ => Fate::Stays,
        };
        match fate {
            Fate::Goes => {
                self.tell();
                self.positions.truncate(own);
                self.cut(&part);
                return None;
            }
            Fate::Called(to) => {
                self.tell();
                let to = serde_json::to_string(&to).expect("a string always serialises");
                self.replace(self.tree.span(first), &to);
            }
            Fate::Stays => {}
        }
        frame.kept = true;
        let is_object = self.tree.kind(value) == Kind::Object;
        let is_empty = is_object && self.tree.members(value).next().is_none();
        if is_object && mode.is_none() {
            return Some(self.frame(value, own, Sort::Fields));
        }
        // A rule may mean what is no set of fields as well, or a token may stand there.
        let is_reached = mode.is_some() || self.positions.len() > own || self.tokens;
        self.positions.truncate(own);
        if is_reached && !is_empty {
            // Below what a rule takes nothing is kept.
            self.tell();
            self.replace(self.tree.span(value), "{}");
        }
        None
    }

    /// Returns the replacement of a value that names an element; none if there is none.
    fn renamed(&self, mode: RedactMode, json: &str) -> Option<String> {
        let tree = Tree::parse(json.as_bytes()).ok().filter(|_| mode == RedactMode::Hmac)?;
        let kind = if tree.kind(Tree::ROOT) == Kind::String { b's' } else { b'j' };
        let text = if kind == b's' { tree.string(Tree::ROOT) } else { tree.raw(Tree::ROOT).into() };
        let again = self.task.before.is_some_and(|before| self.embedded > 0 || before.contains(self.pointer.as_str()));
        if again && is_digest(&text) {
            return Some(json.to_owned());
        }
        let digest = self.task.digest(&self.places[PLACE.len()..], kind, text.as_bytes());
        Some(format!("\"{}\"", hex(digest)))
    }

    /// Decides the treatment of an element that is named by its keys. Its positions begin at `own`.
    fn keys(&mut self, own: usize, json: &str) -> Fate {
        let reached = self.positions.len();
        if reached == own {
            return Fate::Stays;
        }
        let Ok(tree) = Tree::parse(json.as_bytes()) else { return Fate::Goes };
        if tree.kind(Tree::ROOT) != Kind::Object {
            return Fate::Goes;
        }
        let element = self.places.len();
        let (mut out, mut copied) = (String::from("k:"), 0);
        let members: Vec<(Id, Id)> = tree.members(Tree::ROOT).collect();
        for (key, value) in members {
            let key = tree.string(key);
            let mode = self.follow(own, reached, |pattern, at, next| pattern.step(at, &key, next));
            // What is inside of a key that is no scalar may be taken as well.
            let deeper = self.positions.len() > reached && !matches!(tree.kind(value), Kind::String | Kind::Scalar);
            self.positions.truncate(reached);
            if deeper {
                return Fate::Goes;
            }
            let Some(mode) = mode else { continue };
            push_segment(&mut self.places, &key);
            let to = self.renamed(mode, tree.raw(value));
            self.places.truncate(element);
            let Some(to) = to else { return Fate::Goes };
            let span = tree.span(value);
            out.push_str(&json[copied..span.start]);
            out.push_str(&to);
            copied = span.end;
        }
        if copied == 0 {
            return Fate::Stays;
        }
        out.push_str(&json[copied..]);
        Fate::Called(out)
    }
}
