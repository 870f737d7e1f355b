//! The one object that a command is about, and the moment.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::Failure;
use super::clock::Clock;
use super::names::{At, Named, Spellings};
use crate::core::k8s::audited::{Actor, Certainty};
use crate::core::model::{EntryType, Seq};
use crate::core::spelling::{nearest, nearest_by};
use crate::core::wire::Entry;
use crate::journal::{ObjectRow, Reader, StoredEntry};
use crate::query::moment::{Known, Span};

/// Number of objects that are searched for a similar name.
const LIKE: usize = 100_000;

/// The objects that `KIND/NAME` can mean, at least one.
///
/// # Errors
/// Where there is none, with what comes nearest.
pub(crate) fn find(
    reader: &Reader,
    command: &str,
    text: &str,
    namespaces: &[String],
) -> Result<Vec<ObjectRow>, Failure> {
    let named = Spellings::load(reader)?.read(text)?;
    if named.name.is_none() {
        return Err(Failure::usage(format!(
            "{command} takes KIND/NAME, such as {text}/web; `decklog tail {text}` prints what happened to all of them"
        )));
    }
    known(reader, text, &named, namespaces)
}

/// The objects that a spelling with a name can mean, at least one.
///
/// # Errors
/// As [`find`].
pub(crate) fn known(
    reader: &Reader,
    text: &str,
    named: &Named,
    namespaces: &[String],
) -> Result<Vec<ObjectRow>, Failure> {
    let name = named.name.as_deref().unwrap_or_default();
    let mut rows = Vec::new();
    for (id, _) in &named.resources {
        rows.extend(reader.objects(*id, None, Some(name))?);
    }
    let elsewhere: Vec<String> = rows.iter().map(ObjectRow::spell).collect();
    if !namespaces.is_empty() {
        rows.retain(|row| !row.resource.namespaced || namespaces.contains(&row.namespace));
    }
    if !rows.is_empty() {
        return Ok(rows);
    }
    if !elsewhere.is_empty() {
        return Err(Failure::no(format!(
            "no {text} in namespace {}; the journal knows {}",
            namespaces.join(", "),
            elsewhere.join("; ")
        )));
    }
    let mut rows = Vec::new();
    for (id, _) in &named.resources {
        rows.extend(of_resource(reader, *id, namespaces, None)?.into_iter().take(LIKE));
    }
    // Nothing is near to a pattern.
    let name = if name.contains(['*', '?']) { "" } else { name };
    let nearest = nearest_by(name, rows, |row: &ObjectRow| row.name.clone());
    let hint = nearest.map_or_else(String::new, |row| format!("; did you mean {}?", row.spell()));
    Err(Failure::no(format!("the journal knows no {text}{hint}")))
}

/// The objects of a resource that have this name, or all of them, in these namespaces or in all. In a name `*` and `?`
/// stand for other characters. What lives in no namespace is meant whatever the namespace, as kubectl has it.
///
/// # Errors
/// Where the journal cannot be read.
pub(crate) fn of_resource(
    reader: &Reader,
    id: i64,
    namespaces: &[String],
    name: Option<&str>,
) -> Result<Vec<ObjectRow>, Failure> {
    if namespaces.is_empty() {
        return Ok(reader.objects(id, None, name)?);
    }
    let mut rows = Vec::new();
    for namespace in BTreeSet::from_iter(namespaces.iter().map(String::as_str).chain([""])) {
        rows.extend(reader.objects(id, Some(namespace), name)?);
    }
    Ok(rows)
}

/// Checks that the journal knows each of these namespaces.
///
/// # Errors
/// Where nothing is, with what comes nearest.
pub(crate) fn namespaces(reader: &Reader, namespaces: &[String]) -> Result<(), Failure> {
    if namespaces.is_empty() {
        return Ok(());
    }
    if namespaces.iter().any(String::is_empty) {
        return Err(Failure::usage("--namespace is empty; leave it out for all namespaces"));
    }
    // Which ones there are is not for everybody.
    if reader.is_narrowed() {
        return Ok(());
    }
    let known = reader.namespaces()?;
    let Some(wanted) = namespaces.iter().find(|namespace| !known.contains(*namespace)) else { return Ok(()) };
    if known.is_empty() {
        return Ok(());
    }
    if wanted.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Failure::no(format!(
            "the journal knows nothing in the namespace {wanted}; -n is the namespace, and the newest {wanted} entries are --last {wanted}"
        )));
    }
    let hint = nearest_or_all(wanted, &known);
    Err(Failure::no(format!("the journal knows nothing in the namespace {wanted}; {hint}")))
}

/// Returns the nearest known word, or else the list of all.
pub(crate) fn nearest_or_all(word: &str, known: &BTreeSet<String>) -> String {
    match nearest(word, known.iter().map(String::as_str)) {
        Some(name) => format!("did you mean {name}?"),
        None if known.len() <= NAMED => {
            format!("it knows {}", known.iter().map(String::as_str).collect::<Vec<_>>().join(", "))
        }
        None => format!("it knows {} others", known.len()),
    }
}

/// Checks that a moment is not in the future.
///
/// # Errors
/// Where it is.
pub(crate) fn not_to_come(reader: &mut Reader, time: Timestamp, clock: &Clock) -> Result<(), Failure> {
    let now = clock.now;
    let newest = reader.entry(reader.head()?)?;
    // A clock that was set back has left later entries.
    let newest = newest.and_then(|stored| parse(&stored).ok()?.time.parse::<Timestamp>().ok());
    if time > now && newest.is_none_or(|newest| time > newest) {
        return Err(Failure::no(format!("{} is in the future: it is {} now", clock.moment(time), clock.moment(now))));
    }
    Ok(())
}

/// Checks that the log covers some time before a moment.
///
/// # Errors
/// Where the log begins later, with when.
pub(crate) fn not_before_all(reader: &Reader, time: Timestamp, clock: &Clock) -> Result<(), Failure> {
    let retained = reader.retained()?;
    match retained.oldest_time.filter(|begin| time.as_microsecond() < *begin) {
        Some(begin) => Err(Failure::no(format!(
            "the log begins at {} (entry {}), after {}",
            time_spelled(begin, clock),
            retained.oldest,
            clock.moment(time)
        ))),
        None => Ok(()),
    }
}

/// The only one of them.
///
/// # Errors
/// Where there are several, with how to choose one.
pub(crate) fn only(text: &str, mut rows: Vec<ObjectRow>) -> Result<ObjectRow, Failure> {
    match (rows.pop(), rows.is_empty()) {
        (Some(row), true) => Ok(row),
        (last, _) => {
            rows.extend(last);
            Err(several(text, rows.iter()))
        }
    }
}

/// One spelling, several objects.
pub(crate) fn several<'r>(text: &str, rows: impl ExactSizeIterator<Item = &'r ObjectRow>) -> Failure {
    let count = rows.len();
    let mut names: Vec<String> = rows.take(NAMED).map(ObjectRow::spell).collect();
    if count > names.len() {
        names.push(format!("and {} more", count - names.len()));
    }
    let names = names.join("; ");
    Failure::usage(if text.contains(['*', '?']) {
        format!(
            "{text} is {count} objects, and this command takes one: {names}; `decklog tail '{text}'` prints what happened to all of them, `decklog get '{text}'` lists them"
        )
    } else {
        format!("{text} is several objects: {names}; say which with -n, or with the resource's full name")
    })
}

/// Number of names that are listed if none is similar.
const NAMED: usize = 8;

/// A moment of the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment {
    /// Right after this entry.
    pub(crate) seq: Seq,
    /// The time that was asked for, where it was one.
    pub(crate) time: Option<Timestamp>,
}

impl Moment {
    /// Returns the moment as it was asked for.
    pub(crate) fn spell(&self, clock: &Clock) -> String {
        self.time.map_or_else(|| format!("entry {}", self.seq), |time| clock.moment(time))
    }
}

/// The moment that `--at` and its like name.
///
/// # Errors
/// Where the journal has not come there yet, or does not reach back to it any more.
pub(crate) fn place(reader: &mut Reader, at: At, clock: &Clock) -> Result<Moment, Failure> {
    let retained = reader.retained()?;
    let begin = retained.oldest_time.filter(|_| retained.removed > 0);
    let (place, truncated) = match at {
        At::Seq(seq) => {
            let head = reader.head()?;
            if seq > head {
                return Err(Failure::no(format!("there is no entry {seq} yet: the newest is {head}")));
            }
            // The state at the log start is kept.
            (Moment { seq, time: None }, begin.is_some() && seq.0 < retained.removed)
        }
        At::Time(time) | At::Ago(time) => {
            not_to_come(reader, time, clock)?;
            let micros = time.as_microsecond();
            let seq = reader.last_before(micros.saturating_add(1))?;
            (Moment { seq, time: Some(time) }, begin.is_some_and(|begin| micros < begin))
        }
    };
    match begin.filter(|_| truncated) {
        None => Ok(place),
        Some(begin) => Err(Failure::no(format!(
            "{} is no longer kept: retention removed what was before entry {} ({}); --at {} is the earliest",
            place.spell(clock),
            retained.oldest,
            time_spelled(begin, clock),
            retained.removed
        ))),
    }
}

/// Finds the place as [`place`] does, for these objects: a seq selects one of them. The seq of another object is a moment as
/// well, with a sentence about it.
///
/// # Errors
/// As [`place`].
pub(crate) fn place_of(
    reader: &mut Reader,
    rows: &mut Vec<ObjectRow>,
    at: At,
    clock: &Clock,
) -> Result<(Moment, Option<String>), Failure> {
    let place = place(reader, at, clock)?;
    let At::Seq(seq) = at else { return Ok((place, None)) };
    let Some(owner) = reader.object_of(seq)? else { return Ok((place, None)) };
    if rows.iter().any(|row| row.is(&owner)) {
        rows.retain(|row| row.is(&owner));
        return Ok((place, None));
    }
    let mut before = None;
    for row in &*rows {
        let step = reader.step(row, seq)?.filter(|step| step.kept);
        before = before.max(step.map(|step| (step.seq, row.spell())));
    }
    let note = before.map(|(step, name)| {
        format!("entry {seq} is of {}; the last entry of {name} before it is {step}", owner.spell())
    });
    Ok((place, note))
}

/// Reports whether a GAP concerns an object: one that names another object does not.
pub(crate) fn concerns(gap: &StoredEntry, row: &ObjectRow) -> bool {
    Entry::parse(&gap.line).is_ok_and(|gap| match gap.name.as_deref() {
        Some(name) => name == row.name && gap.namespace.as_deref().unwrap_or_default() == row.namespace,
        None => true,
    })
}

/// Returns the creation of an object that a first list found, given the entry of that; none if it is of another kind.
pub(crate) fn creation_of_listed(entry: &Entry<'_>) -> Option<Timestamp> {
    #[derive(serde::Deserialize)]
    struct Object {
        metadata: Metadata,
    }
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Metadata {
        creation_timestamp: Option<Timestamp>,
    }
    let is_listed = entry.op == EntryType::Added && entry.evidence.as_deref() == Some("listed");
    let object = entry.object.filter(|_| is_listed)?;
    serde_json::from_str::<Object>(object.get()).ok()?.metadata.creation_timestamp
}

/// Returns the reason why nothing is known of an object at a moment before its oldest entry.
///
/// # Errors
/// Where the journal cannot be read.
pub(crate) fn not_yet(
    reader: &mut Reader,
    row: &ObjectRow,
    place: Option<Moment>,
    clock: &Clock,
) -> Result<String, Failure> {
    let name = row.spell();
    let at = place.map_or_else(|| "then".to_owned(), |place| format!("at {}", place.spell(clock)));
    let history = reader.history(row, Seq(0), Seq(u64::MAX), usize::MAX)?;
    let Some(first) = history.last() else {
        return Ok(format!(
            "the journal has no entry of {name}: it was found on a first list that emits nothing, and has not changed since{}",
            if reader.retained()?.removed > 0 { ", or retention has removed all of it" } else { "" }
        ));
    };
    let Some(stored) = reader.entry_of(first)? else { return Ok(format!("nothing is known of {name} {at}")) };
    let entry = parse(&stored)?;
    let (time, seq) = (time_of(&entry, clock), first.seq);
    // Another object may have had its name before.
    if let Some(asked) = place.and_then(|place| place.time)
        && let Some(created) = creation_of_listed(&entry).filter(|created| *created > asked)
    {
        return Ok(format!(
            "no state of {name} is known {at}: the one that decklog first saw at {time} (entry {seq}) was created after that, at {}",
            clock.moment(created)
        ));
    }
    if let Some(place) = place.filter(|place| place.seq == Seq(0))
        && let Some(asked) = place.time
        && let Err(before_all) = not_before_all(reader, asked, clock)
    {
        return Ok(format!("{before_all}; decklog first saw {name} at {time} (entry {seq})"));
    }
    Ok(match (entry.op, entry.evidence.as_deref()) {
        (EntryType::Added, Some("watched" | "recovered")) => {
            format!("{name} did not exist {at}: it came to be at {time} (entry {seq})")
        }
        (EntryType::Added, _) => {
            format!("no state of {name} is known {at}: decklog first saw it at {time} (entry {seq})")
        }
        _ => format!("no state of {name} is known {at}: the journal keeps entries of it from {time} (entry {seq}) on"),
    })
}

/// An entry, for reading.
///
/// # Errors
/// Where it is damaged.
pub(crate) fn parse(stored: &StoredEntry) -> Result<Entry<'_>, Failure> {
    let parsed = Entry::parse(&stored.line).and_then(|entry| match entry.op {
        // Whoever reads an object or a change finds by itself what is wrong with it.
        EntryType::Gap | EntryType::Actor => entry.check().map(|()| entry),
        EntryType::Added | EntryType::Modified | EntryType::Deleted => Ok(entry),
    });
    parsed.map_err(|error| damaged(stored.seq, &error))
}

/// Returns the sender of the change that an entry has, where the audit log names one.
///
/// # Errors
/// Where the journal cannot be read.
pub(crate) fn actor_of(reader: &mut Reader, seq: Seq) -> Result<Option<Actor>, Failure> {
    let Some(stored) = reader.actor_of(seq)? else { return Ok(None) };
    let Some(mut actor) = parse(&stored)?.actor() else { return Ok(None) };
    if !proves_itself(&actor)
        && has_doubts(reader)?
        && let Some(target) = reader.entry(seq)?
        && is_doubtful(reader, &target, &actor)?
    {
        DOUBTFUL.clone_into(&mut actor.certainty);
    }
    Ok(Some(actor))
}

/// Reports whether an audit log is configured.
///
/// # Errors
/// Where the journal cannot be read.
pub(crate) fn is_audited(reader: &Reader) -> Result<bool, Failure> {
    Ok(reader.audit_logs()?.iter().any(|log| log.active))
}

/// Returns what the audit log has beyond managedFields, of the change that an entry is: its sender, or why there is none.
///
/// # Errors
/// Where the journal cannot be read, or the entry is damaged.
pub(crate) fn beyond(reader: &mut Reader, seq: Option<Seq>, actor: Option<&Actor>) -> Result<String, Failure> {
    if let Some(actor) = actor {
        return Ok(format!("the audit log names {}", actor.sender.user));
    }
    if !is_audited(reader)? {
        return Ok("the API server's audit log has who asked".to_owned());
    }
    let Some(stored) = seq.map_or(Ok(None), |seq| reader.entry(seq))? else {
        return Ok("the log has no entry of that write, for which the audit log could name somebody".to_owned());
    };
    let span = Span::of(&parse(&stored)?.header);
    let begin = reader.audit_logs()?.into_iter().map(|log| log.first_at).filter(|first| *first > 0).min();
    Ok(if let Some(begin) = begin.filter(|begin| span.latest.as_microsecond() < *begin) {
        let begin = Timestamp::from_microsecond(begin).unwrap_or(span.latest);
        format!("the audit log begins later, at {begin:.0}")
    } else if stored.seq > reader.attributed()? {
        "the audit log names nobody yet".to_owned()
    } else if reader.audit_events_missing(span.earliest.as_microsecond(), span.latest.as_microsecond())? {
        "the audit log lacks events of that time, so that nobody is certain".to_owned()
    } else {
        "the audit log names nobody for certain".to_owned()
    })
}

/// Certainty, in answers, of a sender who was named before it was known that events of that time are missing.
pub(crate) const DOUBTFUL: &str = "doubtful";

/// Reports whether a sender rests on no request but his own: the answer to a creation or an update says that it made the version. That to
/// a patch or a deletion that changes nothing has the version of somebody else.
fn proves_itself(actor: &Actor) -> bool {
    actor.certainty == Certainty::Exact.as_str() && matches!(actor.verb.as_str(), "create" | "update")
}

fn has_doubts(reader: &Reader) -> Result<bool, Failure> {
    Ok(reader.audit_events_missing(i64::MIN, i64::MAX)?)
}

/// Reports whether events of an audit log are missing of the time of a change, so that its sender may be another than the one who is
/// named: the request that made it may be among those.
///
/// # Errors
/// Where the journal cannot be read, or the entry is damaged.
pub(crate) fn is_doubtful(reader: &Reader, target: &StoredEntry, actor: &Actor) -> Result<bool, Failure> {
    if proves_itself(actor) {
        return Ok(false);
    }
    if !has_doubts(reader)? {
        return Ok(false);
    }
    let span = Span::of(&parse(target)?.header);
    Ok(reader.audit_events_missing(span.earliest.as_microsecond(), span.latest.as_microsecond())?)
}

/// Error for a damaged entry.
pub(crate) fn damaged(seq: Seq, why: &dyn std::fmt::Display) -> Failure {
    Failure::new(super::Exit::Io, format!("entry {seq} is damaged ({why}); run `decklog verify`"))
}

/// Entries of one object at a moment, of which some were journaled later.
#[derive(Debug)]
pub(crate) struct Placed {
    /// Right after the last entry that had happened.
    pub(crate) certain: Moment,
    /// The last entry that may have happened.
    pub(crate) possible: Seq,
    /// The last of those that were journaled later: its seq, its time in the journal, and when it happened.
    later: Option<(Seq, i64, Span)>,
}

impl Placed {
    /// Returns the sentence about what was journaled later.
    pub(crate) fn note(&self, clock: &Clock) -> Option<String> {
        let (seq, journaled, span) = self.later?;
        Some(if seq > self.certain.seq {
            format!(
                "entry {seq} happened {}, so the log does not know whether that was before this moment",
                spelled(span, clock)
            )
        } else {
            let journaled = time_spelled(journaled, clock);
            format!("entry {seq} was journaled at {journaled}, and happened {}", spelled(span, clock))
        })
    }
}

/// Finds the place as [`place`] does, for one object: behind the changes that had happened by then and were journaled later, as
/// after an outage.
///
/// # Errors
/// Where the journal cannot be read.
pub(crate) fn happened_by(reader: &mut Reader, row: &ObjectRow, place: Moment) -> Result<Placed, Failure> {
    let mut found = Placed { certain: place, possible: place.seq, later: None };
    let Some(time) = place.time else { return Ok(found) };
    let micros = time.as_microsecond();
    if !reader.late()?.iter().any(|late| late.last > place.seq && late.since <= micros) {
        return Ok(found);
    }
    let known = reader.entry_at(row, place.seq)?;
    let known = known.as_ref().map(parse).transpose()?;
    let mut before = known.map_or(Timestamp::MIN, |entry| Span::of(&entry).earliest);
    for step in reader.history(row, place.seq, Seq(u64::MAX), usize::MAX)?.iter().rev() {
        let Some(stored) = reader.entry_of(step)? else { break };
        let span = Span::of(&parse(&stored)?.header).behind(before).filter(|span| span.earliest <= time);
        let Some(span) = span else { break };
        before = span.earliest;
        found.possible = step.seq;
        found.later = Some((step.seq, step.time, span));
        if span.is != Known::Between || span.latest <= time {
            found.certain.seq = step.seq;
        }
    }
    Ok(found)
}

/// Returns when an entry happened, if that is not when it was journaled: a time, or two bounds.
pub(crate) fn happened(entry: &Entry<'_>, clock: &Clock) -> Option<String> {
    let span = Span::of(entry);
    match span.is {
        Known::Exactly => None,
        Known::Stamped => Some(clock.moment(span.earliest)),
        Known::Between => Some(spelled(span, clock)),
    }
}

/// `at 16:20:11`, `between 16:18:15 and 16:20:11`
fn spelled(span: Span, clock: &Clock) -> String {
    match span.is {
        Known::Between if span.earliest < span.latest => {
            format!("between {} and {}", clock.moment(span.earliest), clock.moment(span.latest))
        }
        Known::Exactly | Known::Stamped | Known::Between => format!("at {}", clock.moment(span.earliest)),
    }
}

/// Returns the time of the change in the cluster: of one that lies between two bounds the latest.
pub(crate) fn when(entry: &Entry<'_>) -> Timestamp {
    let span = Span::of(entry);
    if span.is == Known::Between { span.latest } else { span.earliest }
}

/// Returns the time at which an entry was journaled.
pub(crate) fn time_of(entry: &Entry<'_>, clock: &Clock) -> String {
    entry.time.parse::<Timestamp>().map_or_else(|_| UNREADABLE.to_owned(), |time| clock.moment(time))
}

/// Returns a time, given in microseconds since 1970, as people read it.
pub(crate) fn time_spelled(micros: i64, clock: &Clock) -> String {
    Timestamp::from_microsecond(micros).map_or_else(|_| UNREADABLE.to_owned(), |time| clock.moment(time))
}

const UNREADABLE: &str = "an unreadable time";
