//! Projections of an entry for a sink: the same keys in the same order, or fewer.

use std::ops::Range;

use bytes::Bytes;

use super::entry::{Entry, EntryError};
use super::scan::{CHANGE, OBJECT, whole_member};
use crate::core::json::scan::member;
use crate::core::json::tree::{Id, Kind, Tree};
use crate::core::k8s::bookkeeping;
use crate::core::model::EntryType;

/// Part of an entry that a sink gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Payload {
    /// Everything.
    #[default]
    Full,
    /// On MODIFIED the patch and not the object: a consumer applies it to what it has.
    Diff,
    /// Neither the object nor the patch: who, what, when.
    Metadata,
}

impl Payload {
    /// Detects the payload of a line; none on a GAP and where two payloads look the same.
    #[must_use]
    pub fn of(entry: &Entry<'_>) -> Option<Self> {
        match (entry.op, entry.object.is_some()) {
            (EntryType::Modified, true) => Some(Self::Full),
            (EntryType::Added | EntryType::Deleted, false) => Some(Self::Metadata),
            (EntryType::Modified, false) => {
                let has_patch =
                    entry.change.is_some_and(|change| member(change.get().as_bytes(), &[b"\"patch\":"]).is_some());
                Some(if has_patch { Self::Diff } else { Self::Metadata })
            }
            (EntryType::Added | EntryType::Deleted, true) | (EntryType::Gap | EntryType::Actor, _) => None,
        }
    }
}

/// Projection of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The part of the entry.
    pub payload: Payload,
    /// True if metadata.managedFields stays in the object, and its changes in the patch.
    pub managed_fields: bool,
}

impl Shape {
    /// Everything.
    pub const WHOLE: Self = Self { payload: Payload::Full, managed_fields: true };

    /// The entry as a sink gets it. `op` is what it says happened. Nothing of it is rendered again: parts are left out, and
    /// its header stays what it is.
    ///
    /// # Errors
    /// Where the object or the change is not JSON.
    pub fn apply(self, op: EntryType, line: &Bytes) -> Result<Bytes, EntryError> {
        if self == Self::WHOLE {
            return Ok(line.clone());
        }
        let mut cuts = Vec::new();
        if let Some((_, change)) = whole_member(line, CHANGE) {
            let tree = tree(line, &change)?;
            match (self.payload, tree.member(Tree::ROOT, "patch")) {
                (Payload::Metadata, Some(patch)) => {
                    let members: Vec<_> = tree.members(Tree::ROOT).collect();
                    let spans = members
                        .iter()
                        .map(|&(key, value)| (tree.span(key).start..tree.span(value).end, value != patch));
                    leave_out(&mut cuts, change.start, spans);
                }
                (Payload::Full | Payload::Diff, Some(patch))
                    if !self.managed_fields && tree.kind(patch) == Kind::Array =>
                {
                    let steps: Vec<Id> = tree.elements(patch).collect();
                    leave_out(
                        &mut cuts,
                        change.start,
                        steps.iter().map(|&step| (tree.span(step), !is_of_managed_fields(&tree, step))),
                    );
                }
                _ => {}
            }
        }
        if let Some((whole, object)) = whole_member(line, OBJECT) {
            if self.payload == Payload::Metadata || self.payload == Payload::Diff && op == EntryType::Modified {
                cuts.push(whole);
            } else if !self.managed_fields {
                let mut tree =
                    Tree::parse_bounded(&line[object.clone()]).map_err(|_| EntryError::Json(object.start))?;
                let metadata = tree.member(Tree::ROOT, "metadata").filter(|&id| tree.kind(id) == Kind::Object);
                if let Some(metadata) = metadata {
                    tree.read(metadata);
                }
                let members: Vec<_> = metadata.map(|id| tree.members(id).collect()).unwrap_or_default();
                let spans = members.iter().map(|&(key, value)| {
                    (tree.span(key).start..tree.span(value).end, tree.string(key) != "managedFields")
                });
                leave_out(&mut cuts, object.start, spans);
            }
        }
        if cuts.is_empty() {
            return Ok(line.clone());
        }
        cuts.sort_unstable_by_key(|cut| cut.start);
        let mut out = Vec::with_capacity(line.len());
        let mut from = 0;
        for cut in cuts {
            out.extend_from_slice(&line[from..cut.start]);
            from = cut.end;
        }
        out.extend_from_slice(&line[from..]);
        Ok(out.into())
    }
}

fn tree<'l>(line: &'l [u8], part: &Range<usize>) -> Result<Tree<'l>, EntryError> {
    Tree::parse_shallow(&line[part.clone()]).map_err(|_| EntryError::Json(part.start))
}

/// Reports whether a step of a patch points into metadata.managedFields.
fn is_of_managed_fields(tree: &Tree<'_>, step: Id) -> bool {
    let path = tree.member(step, "path").filter(|&path| tree.kind(path) == Kind::String);
    path.is_some_and(|path| bookkeeping::is_of_managed_fields(&tree.string(path)))
}

/// Cuts members or elements out of a container whose text begins at `base`, with the commas that go with them. Each is
/// given with whether it stays.
fn leave_out(cuts: &mut Vec<Range<usize>>, base: usize, parts: impl Iterator<Item = (Range<usize>, bool)>) {
    let mut parts = parts.peekable();
    let (mut kept, mut before) = (false, 0);
    while let Some((part, stays)) = parts.next() {
        if stays {
            kept = true;
        } else {
            let cut = match parts.peek() {
                _ if kept => before..part.end,
                Some((next, _)) => part.start..next.start,
                None => part.clone(),
            };
            cuts.push(base + cut.start..base + cut.end);
        }
        before = part.end;
    }
}
