//! Judgement of the time of a question: an answer names the stretches that the log does not know, and a negative one is refused for them.

use std::ops::ControlFlow;

use jiff::Timestamp;

use super::super::refusing::{self, About};
use super::super::session::Place;
use super::super::tools::Arguments;
use super::{Call, Outcome};
use crate::query::coverage::Uncovered;
use crate::query::questions::get::{self, Get};
use crate::query::render::names::At;
use crate::query::render::{Exit, Failure};

impl Call<'_> {
    /// The end of a time up to now: that of the first page.
    pub(super) fn present(&self) -> Option<Timestamp> {
        self.args.cursor.map(|_| self.now)
    }

    /// The namespaces of the question. Where the entry at the pin is of an object of the same name, the log would be read for that one,
    /// and what is asked for may be another.
    pub(super) fn namespaces(&self, object: &str, name: Option<&String>) -> Result<Vec<String>, Failure> {
        let namespaces = self.args.namespaces.clone();
        let object = match name {
            Some(name) if !object.contains('/') => format!("{object}/{name}"),
            _ => object.to_owned(),
        };
        let Some((_, name)) = object.split_once('/') else { return Ok(namespaces) };
        let is_another = |place: &Place| place.name == name && !place.namespace.is_empty();
        if self.args.at.is_some()
            || namespaces.len() == 1
            || !self.session.place(self.head)?.is_some_and(|at| is_another(&at))
        {
            return Ok(namespaces);
        }
        let get = Get { objects: vec![object.clone()], namespaces, ..Get::default() };
        let mut found = Vec::new();
        self.session.each(get, &mut |item| {
            if let get::Item::Object(one) = item {
                found.push(one.namespace);
            }
            Ok(ControlFlow::Continue(()))
        })?;
        if found.len() > 1 {
            return Err(Failure::usage(format!("{object} is several objects; say which with namespaces")));
        }
        Ok(found)
    }

    /// Notes what is not covered of a time.
    pub(super) fn look_at(
        &mut self,
        about: &About,
        (since, until): (Option<Timestamp>, Option<Timestamp>),
    ) -> Result<(), Failure> {
        match self.session.covered(about.cover(since, until))? {
            Some(covered) => {
                self.doubtful |= covered.omitted > 0;
                let resources = &self.session.resources;
                self.uncovered.extend(covered.uncovered.into_iter().filter(|one| about.concerns(one, resources)));
            }
            None => self.doubtful = true,
        }
        Ok(())
    }

    /// Notes whether the moment of the question is covered.
    pub(super) fn look_at_moment(&mut self, about: &About) -> Result<(), Failure> {
        let time = match self.args.at {
            Some(At::Time(time) | At::Ago(time)) => Some(time),
            Some(At::Seq(seq)) => match about.time_at(&self.session, seq)? {
                Some(time) => Some(time),
                // Right after an entry of its own an object is as the entry says.
                None => return Ok(()),
            },
            None => self.present(),
        };
        if time.is_some() {
            return self.look_at(about, (time, time));
        }
        let (covered, resources) = (self.session.covered(about.cover(None, None))?, &self.session.resources);
        let Some((now, covered)) = covered.and_then(|covered| Some((covered.until?.as_microsecond(), covered))) else {
            self.doubtful = true;
            return Ok(());
        };
        // What has ended is not the present.
        let is_now = |one: &Uncovered| refusing::contains(one, now) && about.concerns(one, resources);
        self.uncovered.extend(covered.uncovered.into_iter().filter(is_now));
        Ok(())
    }

    /// Time of the oldest entry of the log.
    pub(super) fn oldest(&self) -> Result<Option<Timestamp>, Failure> {
        Ok(self.session.covered(self.session.whole())?.and_then(|covered| covered.since))
    }

    /// Notes what retention has removed since the first page, where this page would have had it.
    pub(super) fn lost(&mut self, since: Option<Timestamp>) -> Outcome {
        if self.page.more {
            return Ok(None);
        }
        let to = self.oldest()?.map_or(i64::MAX, Timestamp::as_microsecond);
        let from = since.map_or(self.begin, |since| since.as_microsecond().max(self.begin));
        if from < to && self.begin < to {
            let (why, namespace) = ("retention".to_owned(), String::new());
            let from = Some(from);
            self.uncovered.push(Uncovered { resource: None, namespace, name: None, from, to, why, seq: None });
        }
        Ok(None)
    }

    /// Notes what is not covered of the history of an object: up to now all of it counts.
    pub(super) fn look_at_history(&mut self, about: &About) -> Outcome {
        match self.args.at {
            None => self.look_at(about, (None, self.present()))?,
            Some(_) => self.look_at_moment(about)?,
        }
        Ok(None)
    }

    /// Refuses where the answer is no and something of the moment is not known.
    pub(super) fn no_or(&self, failure: Failure) -> Outcome {
        if failure.exit() != Exit::No {
            return Err(failure);
        }
        // What was pinned may be removed by now.
        if let At::Seq(seq) = self.pin()
            && let Some(refusal) = refusing::removed(&self.session, seq)?
        {
            return Ok(Some(refusal));
        }
        let at = self.args.at.or(self.present().map(At::Time));
        match self.about().refuse_no(&self.session, at) {
            Ok(Some(refusal)) => Ok(Some(refusal)),
            Ok(None) | Err(_) => Err(failure),
        }
    }

    /// Refuses where the log says no about a time of which something is not known.
    pub(super) fn none_or(&mut self, failure: Failure) -> Outcome {
        let Arguments { since, until, from, to, .. } = self.args;
        let since = since.map_or_else(|| self.time_of(from), |since| Ok(Some(since)))?;
        let until = until.map_or_else(|| self.time_of(to), |until| Ok(Some(until)))?;
        match self.about().refuse_none(&self.session, (since, until)) {
            Ok(Some(refusal)) => Ok(Some(refusal)),
            Ok(None) | Err(_) => Err(failure),
        }
    }

    pub(super) fn time_of(&mut self, at: Option<At>) -> Result<Option<Timestamp>, Failure> {
        match at {
            None => Ok(None),
            Some(At::Time(time) | At::Ago(time)) => Ok(Some(time)),
            Some(At::Seq(seq)) => Ok(self.session.place(seq.0)?.and_then(|place| place.time)),
        }
    }
}
