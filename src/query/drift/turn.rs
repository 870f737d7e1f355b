//! One entry, read for the pass: who wrote which field, and when.

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::hands::Named;
use super::owned::{books, owns};
use super::{Known, Written};
use crate::core::k8s::managed_fields::Manager;
use crate::core::wire::{Entry, Header};
use crate::query::moment::{self, Span};

/// The part of a second that a stamp leaves out.
const CUT_MAX: SignedDuration = SignedDuration::from_micros(999_999);

/// One entry, read.
pub(super) struct Turn<'e> {
    pub(super) entry: &'e Entry<'e>,
    pub(super) line: &'e [u8],
    pub(super) after: &'e Value,
    pub(super) managers: Vec<Manager>,
    pub(super) unnamed: Option<String>,
    /// Several writes may lie between the two versions.
    pub(super) is_net: bool,
    /// What the tool noted of its manifest, where the entry changes that.
    pub(super) applied: Option<Value>,
    pub(super) redacted: Vec<String>,
    /// Start of the GAP before an entry that is the difference of two states.
    pub(super) since: Option<Timestamp>,
    /// The present, for a version that no entry has.
    pub(super) now: Option<Timestamp>,
}

impl Turn<'_> {
    /// Those who wrote a field.
    pub(super) fn writers(&self, path: &[String]) -> Vec<Manager> {
        if self.managers.len() == 1 && !self.is_net {
            return self.managers.clone();
        }
        let books = books(self.after);
        let owners = || books.iter().filter(|book| owns(book.set, path)).map(|book| book.manager.clone());
        if self.is_net {
            return owners().collect();
        }
        let is_owner = |one: &&Manager| owners().any(|owner| owner.is(one));
        let wrote: Vec<Manager> = self.managers.iter().filter(is_owner).cloned().collect();
        if wrote.is_empty() { self.managers.clone() } else { wrote }
    }

    pub(super) fn owners(&self, path: &[String]) -> Vec<Manager> {
        let books = books(self.after);
        books.iter().filter(|book| owns(book.set, path)).map(|book| book.manager.clone()).collect()
    }

    pub(super) fn written(&self, writers: Vec<Manager>) -> Written {
        let unnamed = self.unnamed.clone().filter(|_| writers.is_empty());
        let mut written = written(self.entry, writers, unnamed);
        if written.known == Known::Gap {
            // A manager stamps its last write, and may have made this one before.
            let stamp = |one: &Manager| one.time.as_deref()?.parse::<Timestamp>().ok()?.checked_add(CUT_MAX).ok();
            let seen = self.entry.time.parse().unwrap_or(written.time);
            written.time = written.writers.iter().filter_map(stamp).max().map_or(seen, |stamp| stamp.min(seen));
            written.earliest = self.since.filter(|since| *since < written.time);
        }
        match self.now {
            Some(now) => Written { seq: None, time: now, earliest: Some(written.time), known: Known::Later, ..written },
            None => written,
        }
    }
}

fn written(entry: &Entry<'_>, writers: Vec<Manager>, unnamed: Option<String>) -> Written {
    let span = Span::of(&entry.header);
    let (is_between, evidence) = (span.is == moment::Known::Between, entry.evidence.as_deref());
    let known = match evidence {
        Some("listed") => Known::Earlier,
        Some("inferred") => Known::Gap,
        _ if is_between => Known::Between,
        _ => Known::At,
    };
    let earliest = Some(span.earliest).filter(|earliest| *earliest < span.latest && known != Known::Earlier);
    Written { seq: Some(entry.seq), time: span.latest, earliest, known, writers, unnamed, actor: None }
}

pub(super) fn named<'n>(header: &'n Header<'_>) -> Named<'n> {
    Named {
        group: header.group(),
        kind: &header.kind,
        namespace: header.namespace.as_deref().unwrap_or_default(),
        name: header.name.as_deref().unwrap_or_default(),
    }
}
