//! Coverage: the times and resources of which the log does not know what happened.
//!
//! A stretch is uncovered because a GAP entry says so, because no source watches (none is configured any more, no daemon runs,
//! the source waits or lists), or because a source had not been listed yet.

pub(crate) mod known;

use std::collections::{BTreeSet, HashSet};
use std::ops::ControlFlow;
use std::time::Instant;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{as_stamp, as_stamps, from_stamp, from_stamps};
use crate::core::model::{EntryType, Seq, Why};
use crate::core::wire::Entry;
use crate::journal::{EntryQuery, JournalError, ObjectRow, Reader, SourceRow, SourceState, StoredEntry};

/// Number of uncovered stretches in an answer.
pub(crate) const MOST: usize = 500;

/// Sources and namespaces that a question is about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scope<'a> {
    /// Rows of the sources; all if there are none.
    pub(crate) sources: Option<&'a HashSet<i64>>,
    /// Names of the namespaces; all if it is empty.
    pub(crate) namespaces: &'a [String],
}

impl Scope<'_> {
    fn has(&self, source: &SourceRow) -> bool {
        self.sources.is_none_or(|sources| sources.contains(&source.id.0))
    }

    /// Reports whether the scope includes something of this namespace; an empty name stands for all.
    fn is_within(&self, namespace: &str) -> bool {
        namespace.is_empty() || self.namespaces.is_empty() || self.namespaces.iter().any(|wanted| wanted == namespace)
    }
}

/// The present time, and whether a daemon watches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Present {
    /// Microseconds since 1970.
    pub(crate) now: i64,
    /// True if a daemon runs on the journal.
    pub(crate) watched: bool,
}

/// A stretch of time of which nobody knows what happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Uncovered {
    /// Full name of the resource, such as `deployments.apps`.
    pub(crate) resource: Option<String>,
    /// The namespace; empty for all.
    pub(crate) namespace: String,
    /// Name of the one object that it is about; none for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    /// Start, microseconds since 1970; none if it is not known, or before the log.
    #[serde(serialize_with = "as_stamps", deserialize_with = "from_stamps")]
    pub(crate) from: Option<i64>,
    /// End, microseconds since 1970.
    #[serde(serialize_with = "as_stamp", deserialize_with = "from_stamp")]
    pub(crate) to: i64,
    /// Reason: that of a GAP, the state of the source, `removed`, `stopped` or `not_yet`.
    pub(crate) why: String,
    /// The GAP entry.
    pub(crate) seq: Option<u64>,
}

/// Returns the uncovered stretches of a window, oldest first and at most [`MOST`], and the number that was omitted. GAPs are
/// looked for from the newest on, until the deadline.
///
/// # Errors
/// Where the journal cannot be read.
pub(crate) fn between(
    reader: &mut Reader,
    scope: Scope<'_>,
    head: Seq,
    window: (i64, i64),
    present: Present,
    deadline: Instant,
) -> Result<(Vec<Uncovered>, usize), JournalError> {
    let sources = reader.sources()?;
    let mut found = now_uncovered(reader, scope, window.1, present, &sources)?;
    // What never was watched, and then what was watched last.
    found.sort_by(|one, other| {
        (one.from.is_some(), &other.from, &other.resource).cmp(&(other.from.is_some(), &one.from, &one.resource))
    });
    let mut left = found.len().saturating_sub(MOST);
    found.truncate(MOST);
    // A GAP is journaled at its end.
    let range = (reader.last_before(window.0)?, head.next());
    let more = gaps(reader, scope, range, window, Some(deadline), &mut |gap| {
        if found.len() < MOST {
            found.push(gap);
        } else {
            left += 1;
        }
        ControlFlow::Continue(())
    })?;
    // It is not known how many more.
    left += usize::from(more);
    let first = not_yet_listed(reader, scope, window, &sources)?;
    let room = MOST.saturating_sub(found.len());
    left += first.len().saturating_sub(room);
    found.extend(first.into_iter().take(room));
    found.sort_by(|one, other| (&one.from, &one.resource, one.seq).cmp(&(&other.from, &other.resource, other.seq)));
    Ok((found, left))
}

/// Calls `visit` with the stretch of each GAP of a window, among those behind the first seq and before the second, the newest
/// first, until it breaks off or the deadline is over. Reports whether the deadline was.
fn gaps(
    reader: &mut Reader,
    scope: Scope<'_>,
    (after, mut before): (Seq, Seq),
    window: (i64, i64),
    deadline: Option<Instant>,
    visit: &mut dyn FnMut(Uncovered) -> ControlFlow<()>,
) -> Result<bool, JournalError> {
    let sources = reader.sources()?;
    let query = EntryQuery { types: vec![EntryType::Gap], ..EntryQuery::default() };
    loop {
        // Nothing is decided about GAPs of objects in other namespaces.
        let within = (Vec::new(), scope.namespaces.to_vec());
        let page = reader.within(within, |reader| reader.select(&query, (after, Some(before)), true, MOST, None))?;
        let mut found = page.entries.iter().filter_map(|stored| of_gap(scope, window, &sources, stored));
        if found.try_for_each(&mut *visit).is_break() {
            return Ok(false);
        }
        let Some((_, oldest)) = page.looked_at.filter(|_| page.more) else { return Ok(false) };
        if deadline.is_some_and(|deadline| Instant::now() > deadline) {
            return Ok(true);
        }
        before = oldest;
    }
}

/// Returns the number of GAPs that overlap a window.
///
/// # Errors
/// Where the journal cannot be read.
pub(crate) fn gaps_within(reader: &mut Reader, scope: Scope<'_>, window: (i64, i64)) -> Result<usize, JournalError> {
    let mut count = 0;
    // A GAP is journaled at its end.
    let range = (reader.last_before(window.0)?, reader.head()?.next());
    gaps(reader, scope, range, window, None, &mut |_| {
        count += 1;
        ControlFlow::Continue(())
    })?;
    Ok(count)
}

/// Returns the uncovered stretches of a window but those of GAPs: what no source watches at its end, and what none had
/// listed at its start.
///
/// # Errors
/// Where the journal cannot be read.
pub(crate) fn of_sources(
    reader: &Reader,
    scope: Scope<'_>,
    window: (i64, i64),
    present: Present,
) -> Result<Vec<Uncovered>, JournalError> {
    let sources = reader.sources()?;
    let mut found = now_uncovered(reader, scope, window.1, present, &sources)?;
    found.extend(not_yet_listed(reader, scope, window, &sources)?);
    Ok(found)
}

/// Returns the uncovered stretches of an object over the whole log.
///
/// # Errors
/// Where the journal cannot be read.
pub(crate) fn of_object(
    reader: &mut Reader,
    row: &ObjectRow,
    present: Present,
    deadline: Instant,
) -> Result<Vec<Uncovered>, JournalError> {
    let resource = row.resource.full_name();
    let is_its = |source: &&SourceRow| {
        source.resource.full_name() == resource && ["", &*row.namespace].contains(&&*source.namespace)
    };
    let sources: HashSet<i64> = reader.sources()?.iter().filter(is_its).map(|source| source.id.0).collect();
    let namespaces = row.namespaces();
    let scope = Scope { sources: Some(&sources), namespaces: &namespaces };
    let begin = reader.retained()?.oldest_time.unwrap_or_default();
    let head = reader.head()?;
    let mut found = between(reader, scope, head, (begin, present.now), present, deadline)?.0;
    found.retain(|one| one.name.as_ref().is_none_or(|name| *name == row.name));
    Ok(found)
}

/// Returns the stretches in which a moment lies, given in microseconds since 1970. One that names an object leaves nothing else
/// in doubt: [`of_object`] has it.
///
/// # Errors
/// Where the journal cannot be read.
pub(crate) fn at(
    reader: &mut Reader,
    scope: Scope<'_>,
    time: i64,
    present: Present,
    deadline: Instant,
) -> Result<Vec<Uncovered>, JournalError> {
    let head = reader.head()?;
    let mut found = between(reader, scope, head, (time, time), present, deadline)?.0;
    found.retain(|one| one.name.is_none());
    Ok(found)
}

/// Returns the oldest GAP of all objects of a resource, in one namespace or in all, behind an entry that began before a moment
/// and ended after it.
///
/// # Errors
/// Where the journal cannot be read.
pub(crate) fn gap_at(
    reader: &mut Reader,
    (resource, namespace): (i64, Option<&str>),
    after: Seq,
    time: i64,
) -> Result<Option<Uncovered>, JournalError> {
    let (scope, sources) = (Scope { sources: None, namespaces: &[] }, reader.sources()?);
    let gaps = reader.gaps(resource, namespace, after)?;
    let mut found = gaps.iter().filter_map(|stored| of_gap(scope, (time, time), &sources, stored));
    Ok(found.find(|gap| gap.name.is_none() && gap.from.is_some_and(|from| from < time)))
}

/// Returns the number of GAPs behind the first of these seqs and up to the second, at most [`MOST`].
///
/// # Errors
/// Where the journal cannot be read.
pub(crate) fn gaps_between(
    reader: &mut Reader,
    scope: Scope<'_>,
    (after, upto): (Seq, Seq),
) -> Result<usize, JournalError> {
    let mut count = 0;
    gaps(reader, scope, (after, upto.next()), (i64::MIN, i64::MAX), None, &mut |_| {
        count += 1;
        if count < MOST { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    Ok(count)
}

/// The stretch that a GAP is about, where it is of what is asked for.
fn of_gap(
    scope: Scope<'_>,
    (since, until): (i64, i64),
    sources: &[SourceRow],
    stored: &StoredEntry,
) -> Option<Uncovered> {
    let entry = Entry::parse(&stored.line).ok()?;
    let gap = entry.gap()?;
    let micros = |text: &str| text.parse::<Timestamp>().ok().map(Timestamp::as_microsecond);
    let to = micros(&entry.time).unwrap_or(until);
    let (resource, namespace) = (entry.full_resource(), entry.namespace.as_deref().unwrap_or_default());
    // A source that takes over from another one of another scope does not say since when; the other one was good up to then.
    let overlaps = |source: &&SourceRow| {
        source.resource.full_name() == resource
            && (source.namespace.is_empty() || namespace.is_empty() || source.namespace == namespace)
    };
    let handed_over = || {
        let good = sources.iter().filter(overlaps).filter_map(|source| source.good_at).filter(|good| *good < to).max();
        good.filter(|_| gap.why == Why::Scope.as_str())
    };
    let from = gap.since.as_deref().and_then(micros).or_else(handed_over);
    // A GAP that names an object is in the object's namespace, also where its source is of all.
    let is_named = entry.name.is_some();
    let brings = |source: &&SourceRow| {
        let is_its = source.namespace == namespace || is_named && source.namespace.is_empty();
        source.resource.full_name() == resource && is_its
    };
    let is_elsewhere = sources.iter().any(|source| brings(&source))
        && !sources.iter().filter(brings).any(|source| scope.has(source))
        || !scope.is_within(namespace);
    if is_elsewhere || to < since || from.is_some_and(|from| from > until) {
        return None;
    }
    Some(Uncovered {
        namespace: namespace.to_owned(),
        name: entry.name.as_deref().map(str::to_owned),
        resource: Some(resource).filter(|name| !name.is_empty()),
        from,
        to,
        why: gap.why,
        seq: Some(stored.seq.0),
    })
}

/// Since when nobody watches now.
fn now_uncovered(
    reader: &Reader,
    scope: Scope<'_>,
    until: i64,
    present: Present,
    sources: &[SourceRow],
) -> Result<Vec<Uncovered>, JournalError> {
    let mut found = Vec::new();
    for source in sources.iter().filter(|source| scope.has(source)) {
        // What is not configured any more and never was known is nobody's.
        if source.good_at.map_or(!source.active, |good_at| good_at >= until) {
            continue;
        }
        let listed = |other: &SourceRow| other.good_at.is_some();
        let its = |reader: &Reader| match source.good_at {
            Some(_) => Ok(vec![source.namespace.clone()]),
            // Another one may have known a part of what it is to bring.
            None => uncovered_namespaces(reader, source, sources, listed),
        };
        let (namespaces, why) = match source.state {
            _ if !source.active => (unclaimed(reader, source, sources)?, "removed"),
            _ if !present.watched => (its(reader)?, "stopped"),
            SourceState::Watching | SourceState::Gone => continue,
            SourceState::Waiting | SourceState::Degraded(_) | SourceState::Listing(_) | SourceState::Recovering => {
                (its(reader)?, source.state.word())
            }
        };
        found.extend(namespaces.into_iter().map(|namespace| Uncovered {
            resource: Some(source.resource.full_name()),
            namespace,
            name: None,
            from: source.good_at,
            to: source.good_at.map_or(present.now, |good_at| present.now.max(good_at)),
            why: why.to_owned(),
            seq: None,
        }));
    }
    found.retain(|one: &Uncovered| scope.is_within(&one.namespace));
    Ok(found)
}

/// Up to when a source had not been listed for the first time: of what was before, nothing is known.
fn not_yet_listed(
    reader: &Reader,
    scope: Scope<'_>,
    (since, until): (i64, i64),
    sources: &[SourceRow],
) -> Result<Vec<Uncovered>, JournalError> {
    let begin = reader.retained()?.oldest_time.unwrap_or(i64::MAX);
    let mut found = Vec::new();
    for source in sources.iter().filter(|source| scope.has(source)) {
        // What was before the log is not shown.
        let Some(first) = source.good_since.filter(|first| *first > since.max(begin)) else { continue };
        let knew = |other: &SourceRow| other.good_since.is_some_and(|known| known < first);
        found.extend(uncovered_namespaces(reader, source, sources, knew)?.into_iter().map(|namespace| Uncovered {
            resource: Some(source.resource.full_name()),
            namespace,
            name: None,
            from: None,
            to: first.min(until),
            why: "not_yet".to_owned(),
            seq: None,
        }));
    }
    found.retain(|one: &Uncovered| scope.is_within(&one.namespace));
    Ok(found)
}

/// The namespaces that a source which is not configured any more has left to nobody. One that was good later knows more,
/// whether it is configured or not.
fn unclaimed(reader: &Reader, source: &SourceRow, sources: &[SourceRow]) -> Result<Vec<String>, JournalError> {
    uncovered_namespaces(reader, source, sources, |other| {
        other.active && other.good_at.is_some() || other.good_at > source.good_at
    })
}

/// The namespaces of a source of which no other one knows; an empty one stands for all.
fn uncovered_namespaces(
    reader: &Reader,
    source: &SourceRow,
    sources: &[SourceRow],
    knows: impl Fn(&SourceRow) -> bool,
) -> Result<Vec<String>, JournalError> {
    let knows_more = |other: &&SourceRow| {
        other.id != source.id && other.resource.full_name() == source.resource.full_name() && knows(other)
    };
    let known: BTreeSet<&str> = sources.iter().filter(knows_more).map(|other| other.namespace.as_str()).collect();
    if known.contains("") || known.contains(source.namespace.as_str()) {
        return Ok(Vec::new());
    }
    // Who may not know all namespaces hears that there may be some.
    if known.is_empty() || !source.namespace.is_empty() || reader.is_narrowed() {
        return Ok(vec![source.namespace.clone()]);
    }
    Ok(reader.namespaces()?.into_iter().filter(|namespace| !known.contains(namespace.as_str())).collect())
}
