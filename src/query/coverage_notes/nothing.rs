//! Answers with nothing in them: that is a fact only where the log covers the time.

use std::collections::BTreeSet;
use std::path::Path;

use super::{About, Coverage, Covered};
use crate::core::model::Why;
use crate::journal::{Reader, SourceRow, SourceState};
use crate::query::Log;
use crate::query::coverage::known::{self, Reach, Thing};
use crate::query::coverage::{self, Scope, Uncovered};
use crate::query::render::Failure;
use crate::query::render::clock::Clock;
use crate::query::render::row::plural;

impl About {
    /// Returns how much of the time the log covers.
    ///
    /// # Errors
    /// Where the journal cannot be read.
    pub(in crate::query) fn reach(&self, reader: &mut Reader, dir: &Path, clock: &Clock) -> Result<Reach, Failure> {
        let covered = self.covered(reader, dir, clock)?;
        self.reach_in(reader, &covered)
    }

    /// Returns how much of the time the log covers, of which this is the coverage.
    ///
    /// # Errors
    /// As [`About::reach`].
    pub(in crate::query) fn reach_in(&self, reader: &Reader, covered: &Covered) -> Result<Reach, Failure> {
        let Some((since, until)) = covered.since.zip(covered.until) else { return Ok(Reach::Nothing) };
        if covered.complete && covered.omitted == 0 {
            return Ok(Reach::All);
        }
        let resources = self.known_resources(reader)?;
        let mut namespaces: Vec<Option<&str>> = self.namespaces.iter().map(|name| Some(name.as_str())).collect();
        if namespaces.is_empty() {
            namespaces.push(None);
        }
        let mut things = Vec::new();
        for resource in &resources {
            let of = |namespace| Thing { resource: Some(resource.clone()), namespace, name: None };
            things.extend(namespaces.iter().copied().map(of));
        }
        let window = (since.as_microsecond(), until.as_microsecond());
        // An audit finds what is missing in a time that was watched.
        let is_unwatched = |one: &&Uncovered| one.why != Why::Audit.as_str();
        let unwatched: Vec<Uncovered> = covered.uncovered.iter().filter(is_unwatched).cloned().collect();
        let nothing = known::nothing_of(&things, &unwatched, window);
        Ok(if nothing.is_some() { Reach::Nothing } else { Reach::Part })
    }

    /// Full names of the resources that it is about and that the log has or is to have.
    fn known_resources(&self, reader: &Reader) -> Result<BTreeSet<String>, Failure> {
        // What the cluster does not serve, and what is not configured any more and never was known, has nothing to know.
        let is_brought = |source: &SourceRow| {
            source.good_at.is_some() || source.active && !matches!(source.state, SourceState::Gone)
        };
        let names = reader.sources()?.into_iter().filter(is_brought).map(|source| source.resource.full_name());
        Ok(names.filter(|name| self.resources.as_ref().is_none_or(|wanted| wanted.contains(name))).collect())
    }

    /// Says that nothing is selected, for which time that is known, and how many GAPs lie in that time; or that nothing is known of it.
    ///
    /// # Errors
    /// Where the journal cannot be read.
    pub(in crate::query) fn note_nothing(
        &self,
        what: &str,
        coverage: &Coverage,
        reader: &mut Reader,
        log: &Log<'_>,
    ) -> Result<(), Failure> {
        let clock = &log.clock;
        let covered = log.decided(|| self.covered(reader, &log.dir, clock))?;
        let reach = log.decided(|| self.reach_in(reader, &covered))?;
        let (time, known) = match reach {
            Reach::Nothing => (covered.since.zip(covered.until), "nothing is known".to_owned()),
            Reach::All | Reach::Part => (coverage.from.zip(coverage.to), format!("{what} matches")),
        };
        let Some((from, to)) = time.filter(|(from, to)| from <= to) else {
            let more = if reach.is_all() { "" } else { ", as far as is known: more may have happened" };
            log.note(&format!("{known}{more}"));
            return Ok(());
        };
        let (begin, end) = (from.as_microsecond(), to.as_microsecond());
        let gaps = log.decided(|| {
            let sources = self.sources(reader)?;
            let scope = Scope { sources: sources.as_ref(), namespaces: &self.namespaces };
            Ok(coverage::gaps_within(reader, scope, (begin, end))?)
        })?;
        let is_within = |from: Option<i64>, to: i64| from.is_none_or(|from| from < end) && to > begin;
        let is_uncovered = covered.uncovered.iter().any(|one| one.seq.is_none() && is_within(one.from, one.to));
        let until = if to < clock.now { format!("to {}", clock.moment(to)) } else { "until now".to_owned() };
        let doubt = match gaps {
            0 if is_uncovered && reach != Reach::Nothing => {
                "; a part of that is not covered, so more may have happened".to_owned()
            }
            0 => String::new(),
            many => {
                format!("; {} in that time, so more may have happened", plural(many as u64, "GAP lies", "GAPs lie"))
            }
        };
        log.note(&format!("{known} from {} {until}{doubt}", clock.moment(from)));
        Ok(())
    }
}
