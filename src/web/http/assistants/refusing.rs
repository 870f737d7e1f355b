//! Times of which the log does not know what happened: there a tool refuses, and says which they are.

use jiff::{SignedDuration, Timestamp};

use super::page::{Refusal, Stretch};
use super::session::{Place, Session};
use crate::core::k8s::names::Spelling;
use crate::core::model::{Resource, Seq};
use crate::query::coverage::Uncovered;
pub(super) use crate::query::coverage::known::contains;
use crate::query::coverage::known::{self, Thing};
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

/// Full names of the resources that a spelling can mean.
fn meant(kind: &str, known: &[Resource]) -> Vec<String> {
    let spelling = Spelling::of(kind);
    let form = |resource: &Resource| spelling.form(resource).filter(|_| spelling.is_where(resource));
    let best = known.iter().filter_map(form).min();
    let is_meant = |resource: &&Resource| best.is_some() && form(resource) == best;
    known.iter().filter(is_meant).map(Resource::full_name).collect()
}

impl About {
    /// The question about one object, given the full name of its resource.
    pub(super) fn one(resource: &str, namespace: &str, name: &str) -> Self {
        Self { objects: vec![format!("{resource}/{name}")], namespaces: vec![namespace.to_owned()] }
    }

    /// Returns the question for the coverage of a time.
    pub(super) fn cover(&self, since: Option<Timestamp>, until: Option<Timestamp>) -> Cover {
        let namespaces = self.namespaces.iter().filter(|name| !name.is_empty()).cloned().collect();
        // Coverage is of resources, and of a name that the log does not know as well.
        let kind = |text: &str| text.split_once('/').map_or_else(|| text.to_owned(), |(kind, _)| kind.to_owned());
        let objects = self.objects.iter().flat_map(|text| text.split(',')).map(kind).collect();
        Cover { objects, namespaces, since, until }
    }

    /// The same in all namespaces: one that the log does not know may have come.
    fn everywhere(&self) -> Self {
        Self { objects: self.objects.clone(), namespaces: Vec::new() }
    }

    /// Reports whether the question is about one object, by its name.
    pub(super) fn is_one(&self) -> bool {
        let [object] = self.objects.as_slice() else { return false };
        object.contains('/') && !object.contains(['*', '?', ','])
    }

    fn things<'a>(&'a self, known: &[Resource]) -> Vec<Thing<'a>> {
        let mut of = Vec::new();
        for object in self.objects.iter().flat_map(|text| text.split(',')) {
            let (kind, name) = object.split_once('/').map_or((object, None), |(kind, name)| (kind, Some(name)));
            let meant = meant(kind, known);
            if meant.is_empty() {
                of.push((None, name));
            }
            of.extend(meant.into_iter().map(|resource| (Some(resource), name)));
        }
        if self.objects.is_empty() {
            of.extend(known.iter().map(|resource| (Some(resource.full_name()), None)));
        }
        if of.is_empty() {
            of.push((None, None));
        }
        let mut namespaces: Vec<Option<&str>> = self.namespaces.iter().map(|name| Some(name.as_str())).collect();
        if namespaces.is_empty() {
            namespaces.push(None);
        }
        let each = |(resource, name): (Option<String>, Option<&'a str>)| {
            let thing =
                move |namespace: &Option<&'a str>| Thing { resource: resource.clone(), namespace: *namespace, name };
            namespaces.iter().map(thing).collect::<Vec<_>>()
        };
        of.into_iter().flat_map(each).collect()
    }

    /// Reports whether a stretch leaves something unknown of what the question is about.
    pub(super) fn concerns(&self, one: &Uncovered, known: &[Resource]) -> bool {
        self.things(known).iter().any(|thing| thing.is_partly_in(one))
    }

    /// Reports whether an entry is of the one object that the question is about, in the one namespace.
    fn is_of(&self, place: &Place, known: &[Resource]) -> bool {
        let namespaces: Vec<&str> =
            self.namespaces.iter().map(String::as_str).filter(|name| !name.is_empty()).collect();
        let own: Vec<&str> = Some(place.namespace.as_str()).filter(|name| !name.is_empty()).into_iter().collect();
        let is_it = |thing: &Thing<'_>| {
            thing.resource.as_ref() == Some(&place.resource)
                && thing.name == Some(&place.name)
                && !place.name.is_empty()
        };
        self.is_one() && namespaces == own && self.things(known).iter().all(is_it)
    }

    /// Returns the first of the stretches because of which nothing is known of a time, if there are such.
    fn nothing_known<'c>(
        &self,
        uncovered: &'c [Uncovered],
        resources: &[Resource],
        (since, until): (Timestamp, Timestamp),
    ) -> Option<&'c Uncovered> {
        known::nothing_of(&self.things(resources), uncovered, (since.as_microsecond(), until.as_microsecond()))
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
        let covered = self.around(session, (since, until))?;
        let covered = covered.as_ref().map_or(&[][..], |covered| &covered.uncovered);
        let found = self.nothing_known(covered, &session.resources, (since, until));
        Ok(found.map(|one| refusal(Stretch::from(one))))
    }

    /// Returns the coverage of a time, with a little of what follows.
    fn around(
        &self,
        session: &Session<'_>,
        (since, until): (Timestamp, Timestamp),
    ) -> Result<Option<Covered>, Failure> {
        let behind = until.saturating_add(LAG_MAX).unwrap_or(until);
        match session.covered(self.cover(Some(since), Some(behind))) {
            // Of a time that ends before the log there is no coverage, but of one that goes on there is.
            Err(failure) if failure.exit() == Exit::No => session.covered(self.cover(Some(since), None)),
            covered => covered,
        }
    }

    /// Returns the refusal of a question about a moment, if it is not known: inside of a stretch, or before all entries. Right after an
    /// entry of the very object everything is as the entry says; of others its time counts.
    ///
    /// # Errors
    /// As [`About::refuse`].
    pub(super) fn refuse_at(&self, session: &Session<'_>, at: Option<At>) -> Result<Option<Refusal>, Failure> {
        match at {
            None => Ok(None),
            Some(At::Time(time) | At::Ago(time)) => self.refuse(session, (time, time)),
            Some(At::Seq(seq)) => match removed(session, seq)? {
                Some(refusal) => Ok(Some(refusal)),
                None => self.time_at(session, seq)?.map_or(Ok(None), |time| self.refuse(session, (time, time))),
            },
        }
    }

    /// Returns the time of an entry, by which a question about the moment right after it is judged; none if the entry is of the very
    /// object.
    ///
    /// # Errors
    /// Where the log cannot be read.
    pub(super) fn time_at(&self, session: &Session<'_>, seq: Seq) -> Result<Option<Timestamp>, Failure> {
        let place = session.place(seq.0)?.filter(|place| !self.is_of(place, &session.resources));
        Ok(place.and_then(|place| place.time))
    }

    /// Returns the refusal of a negative answer about a moment of which something is not known: that can be what is missing.
    ///
    /// # Errors
    /// As [`About::refuse`].
    pub(super) fn refuse_no(&self, session: &Session<'_>, at: Option<At>) -> Result<Option<Refusal>, Failure> {
        let time = match at {
            None => None,
            Some(At::Time(time) | At::Ago(time)) => Some(time),
            Some(At::Seq(seq)) => match (removed(session, seq)?, self.time_at(session, seq)?) {
                (Some(refusal), _) => return Ok(Some(refusal)),
                (None, None) => return Ok(None),
                (None, time) => time,
            },
        };
        let covered = match time {
            Some(time) => self.everywhere().around(session, (time, time))?,
            None => session.covered(self.everywhere().cover(None, None))?,
        };
        let Some(covered) = covered else { return Ok(None) };
        let Some(time) = time.or(covered.until).map(Timestamp::as_microsecond) else { return Ok(None) };
        let is_in_doubt = |one: &&Uncovered| contains(one, time) && self.concerns(one, &session.resources);
        Ok(covered.uncovered.iter().find(is_in_doubt).map(|one| refusal(Stretch::from(one))))
    }

    /// Returns the refusal of a negative answer about a time of which something is not known.
    ///
    /// # Errors
    /// As [`About::refuse`].
    pub(super) fn refuse_none(
        &self,
        session: &Session<'_>,
        (since, until): (Option<Timestamp>, Option<Timestamp>),
    ) -> Result<Option<Refusal>, Failure> {
        let Some(covered) = session.covered(self.everywhere().cover(since, until))? else { return Ok(None) };
        let found = covered.uncovered.iter().find(|one| self.concerns(one, &session.resources));
        Ok(found.map(|one| refusal(Stretch::from(one))))
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
    let covered = session.covered(session.whole())?;
    // What is not for who asks is not removed.
    if covered.as_ref().is_some_and(|covered| (1..=seq.0).contains(&covered.oldest)) {
        return Ok(None);
    }
    let begin = covered.and_then(|covered| covered.since);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(plural: &str) -> Resource {
        Resource {
            group: String::new(),
            version: "v1".to_owned(),
            kind: String::new(),
            plural: plural.to_owned(),
            singular: String::new(),
            short_names: Vec::new(),
            namespaced: true,
        }
    }

    /// Stretches of all forms; no small journal has those of one namespace or of one object.
    #[test]
    fn a_question_is_refused_where_all_that_it_is_about_is_unknown() {
        let one = |resource: &str, namespace: &str, name: Option<&str>, from: i64, to: i64| Uncovered {
            resource: Some(resource.to_owned()).filter(|name| !name.is_empty()),
            namespace: namespace.to_owned(),
            name: name.map(str::to_owned),
            from: Some(from),
            to,
            why: "expired".to_owned(),
            seq: Some(1),
        };
        let all = [
            one("pods", "", None, 10, 20),
            one("pods", "", None, 20, 30),
            one("pods", "", None, 31, 40),
            one("jobs", "shop", None, 10, 40),
            one("nodes", "", Some("a"), 10, 40),
            one("", "", None, 50, 60),
        ];
        let known = ["pods", "jobs", "nodes"].map(resource);
        /// Objects, namespaces, a window, and whether it is refused, and a negative answer at its start.
        type Case<'a> = (&'a [&'a str], &'a [&'a str], (i64, i64), bool, bool);
        let cases: [Case<'_>; 18] = [
            (&["pods"], &[], (12, 18), true, true),
            (&["pods"], &["shop"], (12, 28), true, true),
            (&["pods/x"], &[], (10, 30), true, false),
            (&["pods/x"], &[], (10, 10), false, false),
            (&["pods/x"], &[], (30, 30), true, true),
            (&["pods"], &[], (12, 35), false, true),
            (&["pods", "jobs"], &[], (12, 18), false, true),
            (&["pods,jobs"], &["shop"], (12, 18), true, true),
            (&["jobs"], &[], (12, 18), false, true),
            (&["jobs"], &["shop"], (12, 18), true, true),
            (&["jobs"], &["shop", "dev"], (12, 18), false, true),
            (&["jobs"], &["dev"], (12, 18), false, false),
            (&["nodes"], &[], (12, 18), false, true),
            (&["nodes/a"], &[], (12, 18), true, true),
            (&["nodes/b"], &[], (12, 18), false, false),
            (&["nodes/*"], &[], (12, 18), false, true),
            (&[], &[], (12, 18), false, true),
            (&[], &["dev"], (52, 60), true, true),
        ];
        for (objects, namespaces, (since, until), refused, doubtful) in cases {
            let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
            let about = About { objects: owned(objects), namespaces: owned(namespaces) };
            let time = |micros| Timestamp::from_microsecond(micros).unwrap();
            let found = about.nothing_known(&all, &known, (time(since), time(until)));
            assert_eq!(found.is_some(), refused, "{about:?} {since} {until}: {found:?}");
            let is_doubtful = all.iter().any(|one| contains(one, since) && about.concerns(one, &known));
            assert_eq!(is_doubtful, doubtful, "{about:?} {since}");
        }
    }
}
