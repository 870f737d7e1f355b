//! Whether anything is known of a time: stretches that together leave nothing of it.

use serde::{Deserialize, Serialize};

use super::Uncovered;

/// How much of a time the log covers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Reach {
    /// All of it: what is not in the log did not happen.
    #[default]
    All,
    /// A part of it, or of what was asked about.
    Part,
    /// Nothing of it.
    Nothing,
}

impl Reach {
    /// Reports whether it covers all.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
    pub(crate) const fn is_all(&self) -> bool {
        matches!(self, Self::All)
    }
}

/// One of the things that a question is about.
#[derive(Debug)]
pub(crate) struct Thing<'a> {
    /// Full name of the resource; none where it is not known.
    pub(crate) resource: Option<String>,
    /// The namespace; none for all.
    pub(crate) namespace: Option<&'a str>,
    /// The name, or a pattern; none for all.
    pub(crate) name: Option<&'a str>,
}

impl Thing<'_> {
    /// Reports whether a stretch leaves nothing of it known.
    fn is_all_in(&self, one: &Uncovered) -> bool {
        let Some(resource) = &one.resource else { return true };
        let is_within = one.namespace.is_empty() || self.namespace == Some(&one.namespace);
        let is_named = one.name.as_deref().is_none_or(|name| self.name == Some(name));
        self.resource.as_ref() == Some(resource) && is_within && is_named
    }

    /// Reports whether a stretch leaves something of it unknown.
    pub(crate) fn is_partly_in(&self, one: &Uncovered) -> bool {
        let Some(resource) = &one.resource else { return true };
        let is_its = |name: &str| self.name.is_none_or(|wanted| wanted == name || wanted.contains(['*', '?']));
        let is_within = one.namespace.is_empty() || self.namespace.is_none_or(|wanted| wanted == one.namespace);
        let is_resource = self.resource.as_ref().is_none_or(|wanted| wanted == resource);
        is_resource && is_within && one.name.as_deref().is_none_or(is_its)
    }
}

/// Reports whether a moment lies in a stretch, in microseconds since 1970. The start of one is the last moment known good, but before
/// the log there is none.
pub(crate) fn contains(one: &Uncovered, at: i64) -> bool {
    reaches(one, at) && (one.resource.is_none() || one.from != Some(at))
}

/// Reports whether nothing behind a moment is known, at least for a while.
fn reaches(one: &Uncovered, at: i64) -> bool {
    one.from.is_none_or(|from| from <= at) && one.to >= at
}

/// Reports whether stretches together cover a window.
fn spans(found: &[&Uncovered], (since, until): (i64, i64)) -> bool {
    if since == until {
        return found.iter().any(|one| contains(one, since));
    }
    let mut reach: Option<i64> = None;
    loop {
        let at = reach.unwrap_or(since);
        let next = found.iter().filter(|one| reaches(one, at)).map(|one| one.to).max();
        match next {
            Some(to) if to >= until => return true,
            Some(to) if reach.is_none_or(|reach| to > reach) => reach = Some(to),
            _ => return false,
        }
    }
}

/// Returns the first of the stretches because of which nothing is known of things in a window, in microseconds since 1970, if there
/// are such.
pub(crate) fn nothing_of<'c>(
    things: &[Thing<'_>],
    uncovered: &'c [Uncovered],
    (since, until): (i64, i64),
) -> Option<&'c Uncovered> {
    let mut first = None;
    for thing in things {
        let found: Vec<&Uncovered> = uncovered.iter().filter(|one| thing.is_all_in(one)).collect();
        if !spans(&found, (since, until)) {
            return None;
        }
        let begins = |one: &&Uncovered| if since == until { contains(one, since) } else { reaches(one, since) };
        first = first.or(found.into_iter().find(begins));
    }
    first
}
