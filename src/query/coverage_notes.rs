//! Sentences about the part of a time that the log does not cover.

mod nothing;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::Path;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::coverage::{self, Present, Scope, Uncovered};
use super::select::Select;
use super::status::{self, Live};
use super::{Log, is_running};
use crate::core::model::{EntryType, Seq};
use crate::core::wire::Header;
use crate::journal::{EntryQuery, Reader, StoredEntry};
use crate::query::moment::{Known, Period, Span};
use crate::query::render::clock::Clock;
use crate::query::render::names::Spellings;
use crate::query::render::object::Moment;
use crate::query::render::row::plural;
use crate::query::render::{Failure, object};

/// Age up to which the last news of a source that is being watched are as good as present.
const LAG_LIMIT: SignedDuration = SignedDuration::from_secs(10);
/// Reason of what was never listed.
const NEVER: &str = "never";
/// Time for looking for GAPs.
const COVERAGE_TIMEOUT: Duration = Duration::from_secs(10);
/// Number of changes that are counted.
const FOUND_MAX: usize = 1000;
/// Number of entries that are read at once.
const PAGE: usize = 64;
/// Number of resources that a sentence names.
const NAMED: usize = 4;

/// Returns a sentence if a moment lies in a GAP of a resource, in one namespace or in all.
///
/// # Errors
/// Where the journal cannot be read.
pub(super) fn doubt(
    reader: &mut Reader,
    of: (i64, Option<&str>),
    place: Moment,
    clock: &Clock,
) -> Result<Option<String>, Failure> {
    let Some(time) = place.time else { return Ok(None) };
    let gap = coverage::gap_at(reader, of, place.seq, time.as_microsecond())?;
    Ok(gap.map(|gap| {
        format!(
            "changes between {} and {} may be missing (GAP, entry {}); this is the last state known before",
            object::time_spelled(gap.from.unwrap_or_default(), clock),
            object::time_spelled(gap.to, clock),
            gap.seq.unwrap_or_default()
        )
    }))
}

/// The part of the log that a question is about.
#[derive(Debug, Default)]
pub(super) struct About {
    /// Full names of the resources; all if there are none.
    pub(super) resources: Option<BTreeSet<String>>,
    /// Names of the namespaces; all if there are none.
    pub(super) namespaces: Vec<String>,
    /// Start of the time; none for the beginning of the log.
    pub(super) since: Option<Timestamp>,
    /// End of the time; none for now.
    pub(super) until: Option<Timestamp>,
}

/// A time in which no daemon ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Absence {
    pub(crate) from: Timestamp,
    pub(crate) to: Timestamp,
    /// Number of changes of the time that were found afterwards, at most [`FOUND_MAX`].
    pub(crate) changes: usize,
}

/// Stretches of a time that the log covers, and that it does not.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Covered {
    /// The first seq that is kept; 0 where nobody says it.
    #[serde(default)]
    pub(crate) oldest: u64,
    /// Start of the time that was asked for; none for an empty log.
    pub(crate) since: Option<Timestamp>,
    /// End of that time.
    pub(crate) until: Option<Timestamp>,
    /// True if the log knows all that happened in it.
    pub(crate) complete: bool,
    /// Stretches of which it does not, oldest first.
    pub(crate) uncovered: Vec<Uncovered>,
    /// Number of stretches that are left out here.
    pub(crate) omitted: usize,
    /// Times in which no daemon ran, and whose changes were found afterwards.
    pub(crate) absences: Vec<Absence>,
}

/// Coverage of a time.
#[derive(Debug, Default)]
pub(super) struct Coverage {
    /// Start of the time that the log covers.
    pub(super) from: Option<Timestamp>,
    /// End of that time.
    pub(super) to: Option<Timestamp>,
    /// Sentences about the start of the time.
    before: Vec<String>,
    /// Sentences about its end.
    after: Vec<String>,
}

impl About {
    /// Returns the part that these arguments select. What the journal does not know has no coverage.
    ///
    /// # Errors
    /// Where the journal cannot be read.
    pub(super) fn of(select: &Select, reader: &Reader) -> Result<Self, Failure> {
        let mut resources = BTreeSet::new();
        let spellings = if select.objects.is_empty() { None } else { Some(Spellings::load(reader)?) };
        for text in select.objects.iter().flat_map(|text| text.split(',')) {
            let named = spellings.as_ref().and_then(|spellings| spellings.read(text).ok());
            resources
                .extend(named.into_iter().flat_map(|named| named.resources).map(|(_, resource)| resource.full_name()));
        }
        Ok(Self {
            resources: spellings.map(|_| resources),
            namespaces: select.only.namespaces.clone(),
            since: select.only.since,
            until: select.only.until,
        })
    }

    /// Returns what the log covers of the time.
    ///
    /// # Errors
    /// Where the journal cannot be read.
    pub(super) fn coverage(&self, reader: &mut Reader, dir: &Path, clock: &Clock) -> Result<Coverage, Failure> {
        let retained = reader.retained()?;
        let Some(begin) = retained.oldest_time.and_then(|begin| Timestamp::from_microsecond(begin).ok()) else {
            return Ok(Coverage::default());
        };
        let (mut before, mut after) = (Vec::new(), Vec::new());
        if self.since.is_some_and(|since| since < begin) {
            let why =
                if retained.removed > 0 { "retention has removed what was before" } else { "nothing before is known" };
            before.push(format!("the log begins at {} (entry {}): {why}", clock.moment(begin), retained.oldest));
        }
        let now = clock.now;
        let (from, to) =
            (self.since.map_or(begin, |since| since.max(begin)), self.until.map_or(now, |until| until.min(now)));
        let sources = self.sources(reader)?;
        let scope = Scope { sources: sources.as_ref(), namespaces: &self.namespaces };
        let present = Present { now: now.as_microsecond(), watched: is_running(dir) };
        let window = (from.as_microsecond(), to.as_microsecond());
        let found = coverage::of_sources(reader, scope, window, present)?;
        let head = reader.time_of(reader.head()?)?.and_then(|head| Timestamp::from_microsecond(head).ok());
        let silent = if present.watched { silent_since(dir, clock.now) } else { None };
        let end = stale(&found, silent, head, &mut after, clock);
        if self.since.is_some() {
            not_yet(&found, window.0, &mut before, clock);
        }
        if self.since.is_some() || self.until.is_some() {
            self.absences(reader, window, &mut before, clock)?;
        }
        Ok(Coverage { from: Some(from), to: Some(end.map_or(to, |end| end.min(to))), before, after })
    }

    /// Returns the stretches of the time that the log does not cover, and those that no daemon saw itself.
    ///
    /// # Errors
    /// Where the journal cannot be read.
    pub(super) fn covered(&self, reader: &mut Reader, dir: &Path, clock: &Clock) -> Result<Covered, Failure> {
        let retained = reader.retained()?;
        let now = clock.now;
        let begin = retained.oldest_time.and_then(|begin| Timestamp::from_microsecond(begin).ok());
        let Some(begin) = begin else {
            let (uncovered, absences) = (Vec::new(), Vec::new());
            let (since, until) = (self.since, self.until);
            return Ok(Covered {
                oldest: retained.oldest,
                since,
                until,
                complete: false,
                uncovered,
                omitted: 0,
                absences,
            });
        };
        let (since, until) = (self.since.unwrap_or(begin), self.until.map_or(now, |until| until.min(now)));
        let window = (since.as_microsecond(), until.as_microsecond());
        let sources = self.sources(reader)?;
        let scope = Scope { sources: sources.as_ref(), namespaces: &self.namespaces };
        let present = Present { now: now.as_microsecond(), watched: is_running(dir) };
        let (head, deadline) = (reader.head()?, Instant::now() + COVERAGE_TIMEOUT);
        let (mut uncovered, omitted) = coverage::between(reader, scope, head, window, present, deadline)?;
        // The last news of a source that is being watched are as good as present.
        let lag = i64::try_from(LAG_LIMIT.as_micros()).unwrap_or(i64::MAX);
        uncovered.retain(|one| {
            let is_long = match one.why.as_str() {
                "removed" | "stopped" => true,
                // The first lists of all sources take a while.
                "not_yet" => one.to - window.0.max(begin.as_microsecond()) > lag,
                _ => one.from.is_none_or(|from| one.to - from > lag),
            };
            one.seq.is_some() || is_long
        });
        let stretch = |from: Option<i64>, to: Timestamp, why: &str| Uncovered {
            resource: None,
            namespace: String::new(),
            name: None,
            from,
            to: to.as_microsecond(),
            why: why.to_owned(),
            seq: None,
        };
        if since < begin {
            let why = if retained.removed > 0 { "retention" } else { "before_log" };
            uncovered.insert(0, stretch(Some(window.0), begin.min(until), why));
        }
        let silent = silent_since(dir, clock.now).filter(|(silent, _)| present.watched && *silent < until);
        if let Some((silent, who)) = silent {
            uncovered.push(stretch(Some(silent.as_microsecond()), now, who.why()));
        }
        let mut absences = Vec::new();
        for (from, to) in times_away(reader, window)? {
            let changes = self.found_later(reader, Period { since: Some(from), until: Some(to), by_journal: false })?;
            absences.push(Absence { from, to, changes });
        }
        let complete = uncovered.is_empty();
        Ok(Covered {
            oldest: retained.oldest,
            since: Some(since),
            until: Some(until),
            complete,
            uncovered,
            omitted,
            absences,
        })
    }

    /// Adds a sentence for each of the newest times of a window in which no daemon ran, with the number of changes that were found
    /// afterwards.
    fn absences(
        &self,
        reader: &mut Reader,
        window: (i64, i64),
        notes: &mut Vec<String>,
        clock: &Clock,
    ) -> Result<(), Failure> {
        let mut absences = times_away(reader, window)?;
        if absences.len() > NAMED {
            let earlier = absences.len() - NAMED;
            notes.push(format!("no daemon ran {} before these", plural(earlier as u64, "more time", "more times")));
            absences.drain(..earlier);
        }
        for (from, to) in absences {
            let period = Period { since: Some(from), until: Some(to), by_journal: false };
            let (from, to) = (clock.moment(from), clock.moment(to));
            let found = match self.found_later(reader, period)? {
                0 => "no change of that time was found afterwards".to_owned(),
                FOUND_MAX => format!("{FOUND_MAX} or more changes of that time were found afterwards"),
                some => format!(
                    "{} found afterwards",
                    plural(some as u64, "change of that time was", "changes of that time were")
                ),
            };
            notes.push(format!("no daemon ran from {from} to {to}: {found}"));
        }
        Ok(())
    }

    /// Returns the number of changes that happened in a period, or may have, and were journaled later; at most [`FOUND_MAX`].
    fn found_later(&self, reader: &mut Reader, period: Period) -> Result<usize, Failure> {
        let wanted = |name: &String| self.resources.as_ref().is_none_or(|resources| resources.contains(name));
        let objects = match &self.resources {
            None => Vec::new(),
            Some(_) => {
                let known = reader.resources()?.into_iter().filter(|(_, resource)| wanted(&resource.full_name()));
                known.map(|(id, _)| (id, None)).collect()
            }
        };
        if self.resources.is_some() && objects.is_empty() {
            return Ok(0);
        }
        let types = vec![EntryType::Added, EntryType::Modified, EntryType::Deleted];
        let query = EntryQuery { objects, namespaces: self.namespaces.clone(), types };
        let begin = period.since.map_or(0, Timestamp::as_microsecond);
        let (begin, mut count) = (reader.last_before(begin)?, 0);
        for late in reader.late()?.into_iter().filter(|late| late.last > begin) {
            let mut after = Seq(late.first.0 - 1).max(begin);
            while after < late.last && count < FOUND_MAX {
                let page = reader.select(&query, (after, Some(late.last.next())), false, PAGE, None)?;
                let is_late = |stored: &&StoredEntry| {
                    Header::parse(&stored.line).is_ok_and(|header| Span::of(&header).is != Known::Exactly)
                };
                count += page.entries.iter().filter(is_late).filter(|stored| period.has(&stored.line)).count();
                after = page.looked_at.filter(|_| page.more).map_or(late.last, |(_, last)| last);
            }
        }
        Ok(count.min(FOUND_MAX))
    }

    /// Returns the rows of the sources that bring these resources to these namespaces; none for all of them.
    fn sources(&self, reader: &Reader) -> Result<Option<HashSet<i64>>, Failure> {
        if self.resources.is_none() && self.namespaces.is_empty() {
            return Ok(None);
        }
        let mut sources = reader.sources()?;
        sources.retain(|source| {
            let of_resource = |resources: &BTreeSet<String>| resources.contains(&source.resource.full_name());
            let is_within = source.namespace.is_empty()
                || self.namespaces.is_empty()
                || self.namespaces.contains(&source.namespace);
            is_within && self.resources.as_ref().is_none_or(of_resource)
        });
        Ok(Some(sources.into_iter().map(|source| source.id.0).collect()))
    }
}

impl Coverage {
    /// Returns the sentences about what is not covered.
    pub(super) fn notes(&self) -> impl Iterator<Item = &str> {
        self.before.iter().chain(&self.after).map(String::as_str)
    }

    /// Says the sentences.
    pub(super) fn remark(&self, log: &Log<'_>) {
        self.notes().for_each(|note| log.remark(note));
    }

    /// Says the sentences about the start, for a question that waits for the end.
    pub(super) fn remark_start(&self, log: &Log<'_>) {
        self.before.iter().for_each(|note| log.remark(note));
    }
}

/// Returns the times of a window in which no daemon ran, oldest first, but for those that a restart takes.
fn times_away(reader: &Reader, (since, until): (i64, i64)) -> Result<Vec<(Timestamp, Timestamp)>, Failure> {
    let time = |micros: i64| Timestamp::from_microsecond(micros).unwrap_or_default();
    let is_within = |absence: &(i64, i64)| absence.0 <= until && absence.1 >= since;
    let absences = reader.absences()?.into_iter().filter(is_within).map(|(from, to)| (time(from), time(to)));
    Ok(absences.filter(|(from, to)| to.duration_since(*from) >= LAG_LIMIT).collect())
}

/// Somebody who does nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Silent {
    ApiServer,
    Daemon,
}

impl Silent {
    const fn why(self) -> &'static str {
        match self {
            Self::ApiServer => "silent",
            Self::Daemon => "frozen",
        }
    }

    const fn spelled(self) -> &'static str {
        match self {
            Self::ApiServer => "the API server has not answered",
            Self::Daemon => "the daemon has made no progress",
        }
    }
}

/// Returns the time of the last answer of an API server that is silent, as the daemon of a state directory says, or of the last
/// progress of a daemon that is stopped.
fn silent_since(dir: &Path, now: Timestamp) -> Option<(Timestamp, Silent)> {
    let live = Live::read(dir, status::daemon(dir).pid?)?;
    let silent = live.silent_since.map(|since| (since, Silent::ApiServer));
    silent.or_else(|| Live::frozen_since(dir, now).map(|since| (since, Silent::Daemon)))
}

/// Adds a sentence for what is not known up to now, as the sources say and an API server that is silent. Returns the time up to which
/// everything is known, where that is not now.
fn stale(
    found: &[Uncovered],
    silent: Option<(Timestamp, Silent)>,
    head: Option<Timestamp>,
    notes: &mut Vec<String>,
    clock: &Clock,
) -> Option<Timestamp> {
    let time = |micros: i64| Timestamp::from_microsecond(micros).unwrap_or_default();
    let is_old = |one: &&Uncovered| {
        let lags = one.from.is_none_or(|from| time(one.to).duration_since(time(from)) > LAG_LIMIT);
        lags || ["removed", "stopped"].contains(&one.why.as_str())
    };
    let mut by_reason: BTreeMap<&str, Vec<&Uncovered>> = BTreeMap::new();
    for one in found.iter().filter(|one| one.why != "not_yet").filter(is_old) {
        // Of what was never listed nothing is known, whatever the reason.
        let reason = if one.from.is_none() && one.why != "removed" { NEVER } else { &one.why };
        by_reason.entry(reason).or_default().push(one);
    }
    let mut end = silent.map(|(since, _)| since);
    if let Some((since, who)) = silent {
        notes.push(format!("{} since {}: nothing newer is known", who.spelled(), clock.moment(since)));
    }
    for (why, stretches) in by_reason {
        let last = stretches.iter().filter_map(|one| one.from).max().map(time);
        let first = stretches.iter().filter_map(|one| one.from).min().map(time);
        let names = names(&stretches);
        let spelled =
            |time: Option<Timestamp>| time.map_or_else(|| "an unknown time".to_owned(), |time| clock.moment(time));
        notes.push(match why {
            NEVER => format!("{names} were never listed: nothing of that is known"),
            "removed" => {
                format!("{names} are not watched any more: their newest known state is of {}", spelled(last))
            }
            // Whoever wrote the newest entry ran then.
            "stopped" => format!("no daemon has watched since {}: nothing newer is known", spelled(last.max(head))),
            _ => format!("{names} lag ({why}): nothing newer than {} is known", spelled(first)),
        });
        // Of what is gone for good nothing new is expected, and nothing else depends on it.
        if why != "removed" {
            end = [end, first].into_iter().flatten().min();
        }
    }
    end
}

/// Adds a sentence for what was listed for the first time within the time.
fn not_yet(found: &[Uncovered], from: i64, notes: &mut Vec<String>, clock: &Clock) {
    let is_late = |one: &&Uncovered| {
        one.why == "not_yet" && one.to.saturating_sub(from) > i64::try_from(LAG_LIMIT.as_micros()).unwrap_or(i64::MAX)
    };
    let late: Vec<&Uncovered> = found.iter().filter(is_late).collect();
    if let Some(first) = late.iter().map(|one| one.to).max().and_then(|first| Timestamp::from_microsecond(first).ok()) {
        notes.push(format!(
            "{} were listed for the first time at {}: nothing before is known",
            names(&late),
            clock.moment(first)
        ));
    }
}

/// `pods, services and 3 more`
fn names(stretches: &[&Uncovered]) -> String {
    let name = |one: &&Uncovered| match (one.resource.as_deref().unwrap_or_default(), one.namespace.as_str()) {
        (resource, "") => resource.to_owned(),
        (resource, namespace) => format!("{resource} in {namespace}"),
    };
    let all: BTreeSet<String> = stretches.iter().map(name).collect();
    let mut shown: Vec<&str> = all.iter().take(NAMED).map(String::as_str).collect();
    let more = format!("{} more", all.len() - shown.len());
    if all.len() > shown.len() {
        shown.push(&more);
    }
    match shown.split_last() {
        Some((last, [])) => (*last).to_owned(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use jiff::tz::TimeZone;

    use super::*;

    /// Reasons for which the end of a time is not known, alone and together; no command can be brought into each of them.
    #[test]
    fn each_reason_has_its_sentence() {
        let at = |second: i64| second * 1_000_000;
        let one = |resource: &str, why: &str, from: Option<i64>| Uncovered {
            resource: Some(resource.to_owned()),
            namespace: String::new(),
            name: None,
            from: from.map(at),
            to: at(100),
            why: why.to_owned(),
            seq: None,
        };
        /// Stretches, the last answer of a silent API server, the sentences, and the end of what is known.
        type Case<'a> = (&'a [Uncovered], Option<i64>, &'a [&'a str], Option<i64>);
        let cases: [Case<'_>; 10] = [
            (&[], None, &[], None),
            (&[], Some(70), &["the API server has not answered since 00:01:10: nothing newer is known"], Some(70)),
            (
                &[one("pods", "degraded", Some(40))],
                Some(70),
                &[
                    "the API server has not answered since 00:01:10: nothing newer is known",
                    "pods lag (degraded): nothing newer than 00:00:40 is known",
                ],
                Some(40),
            ),
            (&[one("pods", "degraded", Some(95))], None, &[], None),
            (
                &[one("pods", "degraded", Some(40))],
                None,
                &["pods lag (degraded): nothing newer than 00:00:40 is known"],
                Some(40),
            ),
            (
                &[one("pods", "listing", Some(40)), one("jobs.batch", "listing", Some(30))],
                None,
                &["jobs.batch and pods lag (listing): nothing newer than 00:00:30 is known"],
                Some(30),
            ),
            (
                &[one("pods", "stopped", Some(98)), one("nodes", "stopped", None)],
                None,
                &[
                    "nodes were never listed: nothing of that is known",
                    "no daemon has watched since 00:01:38: nothing newer is known",
                ],
                Some(98),
            ),
            (
                &[one("pods", "removed", Some(20))],
                None,
                &["pods are not watched any more: their newest known state is of 00:00:20"],
                None,
            ),
            (
                &[one("pods", "removed", Some(20)), one("nodes", "removed", Some(10))],
                None,
                &["nodes and pods are not watched any more: their newest known state is of 00:00:20"],
                None,
            ),
            (&[one("pods", "not_yet", None)], None, &[], None),
        ];
        for (found, silent, expected, end) in cases {
            let mut notes = Vec::new();
            let clock = Clock { now: Timestamp::UNIX_EPOCH, zone: TimeZone::UTC };
            let silent = silent.and_then(|at| Some((Timestamp::from_second(at).ok()?, Silent::ApiServer)));
            let until = stale(found, silent, None, &mut notes, &clock);
            let short: Vec<String> =
                notes.iter().map(|note| note.replace("1970-01-01T", "").replace('Z', "")).collect();
            assert_eq!(short, expected, "{found:?}");
            assert_eq!(until, end.and_then(|end| Timestamp::from_second(end).ok()), "{found:?}");
        }
    }
}
