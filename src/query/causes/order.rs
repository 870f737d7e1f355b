//! The order of objects: those of the newest cause first.

use std::collections::HashSet;

use super::{Groups, Role};

/// Number of objects of one act that stand in its place. The others stand behind every other cause.
const IN_PLACE: usize = 2;
/// Time between the changes of one act, in microseconds.
const PAUSE: i64 = 10_000_000;

/// An object with the reason for its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Placed {
    /// Its place among the objects of the groups.
    pub(crate) object: usize,
    pub(crate) role: Role,
}

impl Groups {
    /// Returns the objects of causes, of repeated writes and of controllers, in this order, the newest first. What one writer
    /// does to many objects of a namespace at once is one act: it hides no other cause.
    pub(crate) fn in_order(&self) -> Vec<Placed> {
        let mut places = Vec::new();
        let mut act: Option<Act<'_>> = None;
        for group in self.groups.iter().filter(|group| !matches!(group.role, Role::Derived | Role::Rest)) {
            let namespace = group.objects.first().map_or("", |object| self.objects[*object].namespace.as_str());
            let goes_on = |act: &Act<'_>| {
                let is_like = act.group.role == group.role && act.group.op == group.op && act.namespace == namespace;
                is_like && act.group.writers == group.writers && act.first - group.last <= PAUSE
            };
            let count = act.as_ref().filter(|act| goes_on(act)).map_or(0, |act| act.count);
            for (number, object) in group.objects.iter().enumerate() {
                let is_behind = count + number >= IN_PLACE;
                places.push((group.role, is_behind, Placed { object: *object, role: group.role }));
            }
            act = Some(Act { group, namespace, first: group.first, count: count + group.objects.len() });
        }
        places.sort_by_key(|(role, is_behind, _)| (*role, *is_behind));
        let mut seen = HashSet::new();
        places.into_iter().map(|(.., placed)| placed).filter(|placed| seen.insert(placed.object)).collect()
    }
}

/// Changes of one writer, one right after the other, the newest first.
struct Act<'g> {
    group: &'g super::Group,
    namespace: &'g str,
    first: i64,
    count: usize,
}
