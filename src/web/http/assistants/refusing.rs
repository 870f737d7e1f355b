//! Times of which the log does not know what happened: there a tool refuses, and says which they are.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

use super::page::{Refusal, Stretch};
use super::session::Session;
use crate::core::model::Seq;
use crate::query::coverage::Uncovered;
use crate::query::coverage_notes::Covered;
use crate::query::questions::coverage::Cover;
use crate::query::questions::show::Show;
use crate::query::render::names::At;
use crate::query::render::{Exit, Failure};

/// Time behind a moment that is looked at with it: a shorter lag of a source is none.
const LAG_MAX: SignedDuration = SignedDuration::from_secs(60);

/// Objects that a question is about.
#[derive(Clone, Debug, Default)]
pub(super) struct About {
    /// KIND or KIND/NAME; everything if there are none.
    pub(super) objects: Vec<String>,
    pub(super) namespaces: Vec<String>,
}

impl About {
    /// Returns the question for the coverage of a time.
    pub(super) fn cover(&self, since: Option<Timestamp>, until: Option<Timestamp>) -> Cover {
        Cover { objects: self.objects.clone(), namespaces: self.namespaces.clone(), since, until }
    }

    /// Name of the one object, if the question is about one.
    fn name(&self) -> Option<&str> {
        let [object] = self.objects.as_slice() else { return None };
        object.split_once('/').map(|(_, name)| name)
    }

    /// Reports whether a stretch is about the objects.
    fn has(&self, one: &Uncovered) -> bool {
        let is_its = |name: &str| self.name().is_none_or(|wanted| wanted == name || wanted.contains(['*', '?']));
        let is_within = one.namespace.is_empty() || self.namespaces.contains(&one.namespace);
        one.name.as_deref().is_none_or(is_its) && is_within
    }

    /// Returns the stretch because of which nothing is known of a time, if there is one.
    fn nothing_known<'c>(
        &self,
        covered: &'c Covered,
        known: &[String],
        (since, until): (Timestamp, Timestamp),
    ) -> Option<&'c Uncovered> {
        let (since, until) = (since.as_microsecond(), until.as_microsecond());
        let spans = |one: &&Uncovered| one.from.is_none_or(|from| from <= since) && one.to >= until;
        let mut found = covered.uncovered.iter().filter(spans).filter(|one| one.resource.is_none() || self.has(one));
        if !self.objects.is_empty() {
            return found.next();
        }
        // Of everything nothing is known where no resource is.
        let found: Vec<&Uncovered> = found.collect();
        let gone: BTreeSet<&str> = found.iter().filter_map(|one| one.resource.as_deref()).collect();
        let all = known.iter().all(|resource| gone.contains(resource.as_str()));
        let first = found.first().copied().filter(|_| all && !known.is_empty());
        found.into_iter().find(|one| one.resource.is_none()).or(first)
    }

    /// Returns the refusal of a question about a time, if nothing is known of all of it.
    ///
    /// # Errors
    /// Where the log cannot be read, or a resource is not known.
    pub(super) fn refuse(
        &self,
        session: &Session<'_>,
        (since, until): (Timestamp, Timestamp),
    ) -> Result<Option<Refusal>, Failure> {
        let behind = until.saturating_add(LAG_MAX).unwrap_or(until);
        let covered = match session.covered(self.cover(Some(since), Some(behind))) {
            // Of a time that ends before the log there is no coverage, but of one that goes on there is.
            Err(failure) if failure.exit() == Exit::No => session.covered(self.cover(Some(since), None)),
            covered => covered,
        }?;
        let found =
            covered.as_ref().and_then(|covered| self.nothing_known(covered, &session.resources, (since, until)));
        Ok(found.map(|one| refusal(Stretch::from(one))))
    }

    /// Returns the refusal of a question about a moment, if it is not known: inside of a stretch, or before all entries.
    ///
    /// # Errors
    /// As [`About::refuse`].
    pub(super) fn refuse_at(&self, session: &Session<'_>, at: Option<At>) -> Result<Option<Refusal>, Failure> {
        match at {
            None => Ok(None),
            Some(At::Time(time) | At::Ago(time)) => self.refuse(session, (time, time)),
            Some(At::Seq(seq)) => removed(session, seq),
        }
    }
}

/// Returns the refusal of an entry that retention has removed.
///
/// # Errors
/// Where the log cannot be read.
pub(super) fn removed(session: &Session<'_>, seq: Seq) -> Result<Option<Refusal>, Failure> {
    if seq == Seq(0) || session.head.as_ref().is_none_or(|head| seq.0 > head.seq) {
        return Ok(None);
    }
    let failure = match session.all(Show { seq }) {
        Err(failure) if failure.exit() == Exit::No => failure,
        Ok(_) => return Ok(None),
        Err(failure) => return Err(failure),
    };
    let begin = session.covered(Cover::default())?.and_then(|covered| covered.since);
    let to = begin.map(|begin| crate::query::stamp(begin.as_microsecond()));
    let reason = "retention".to_owned();
    let range = Stretch { reason, from: None, to, resource: None, namespace: None, seq: None };
    Ok(Some(Refusal { text: failure.text().to_owned(), ..refusal(range) }))
}

fn refusal(range: Stretch) -> Refusal {
    let from = range.from.as_deref().map_or_else(String::new, |from| format!("from {from} "));
    let to = range.to.as_deref().unwrap_or_default();
    let gap = range.seq.map_or_else(String::new, |seq| format!(", GAP of entry {seq}"));
    let text = format!(
        "the log does not know what happened {from}to {to} ({}{gap}), so nothing is answered about it",
        range.reason
    );
    Refusal { text, because: "uncovered".to_owned(), range: Some(range) }
}
