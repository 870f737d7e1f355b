//! Objects as they are, or as they were.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::core::model::{EntryType, Resource, Seq};
use crate::journal::{ObjectRow, Reader, StoredEntry};
use crate::query::coverage::known::Reach;
use crate::query::coverage_notes::{About, doubt};
use crate::query::render::names::{At, Spellings};
use crate::query::render::object::Moment;
use crate::query::render::{Failure, object};
use crate::query::select::{labels_of, labels_read};
use crate::query::{Log, Put, Question};

/// Asks for objects at a moment.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Get {
    /// KIND or KIND/NAME each; KIND NAME NAME as well.
    pub(crate) objects: Vec<String>,
    pub(crate) namespaces: Vec<String>,
    /// Objects of all namespaces, also where there is one name.
    pub(crate) all_namespaces: bool,
    /// Label selector.
    pub(crate) labels: Option<String>,
    /// The moment; now if there is none.
    pub(crate) at: Option<At>,
}

/// A part of the answer.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Item {
    /// The form of the answer.
    Begin {
        /// One object was asked for by its name.
        one: bool,
        /// The moment that ages are counted to.
        now: Timestamp,
    },
    /// An object that was there.
    Object(Box<Found>),
}

/// An object as it was.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Found {
    pub(crate) resource: Resource,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) object: Box<RawValue>,
    /// Pointers of redacted values.
    pub(crate) redacted: Vec<String>,
    /// Seq and time of the last change, as far as the log has it.
    pub(crate) changed: Option<(Seq, Option<Timestamp>)>,
}

impl Found {
    fn of(
        row: &ObjectRow,
        object: &Bytes,
        redacted: Vec<String>,
        changed: Option<(Seq, Option<Timestamp>)>,
    ) -> Result<Self, Failure> {
        let object = serde_json::from_slice::<&RawValue>(object).map_err(|error| object::damaged(row.last, &error))?;
        let (namespace, name) = (row.namespace.clone(), row.name.clone());
        Ok(Self { resource: row.resource.clone(), namespace, name, object: object.to_owned(), redacted, changed })
    }
}

/// The entry of a first list, and its time.
type Seen = (Seq, Timestamp);

/// State of an object at the requested moment.
enum Known {
    /// It was this.
    Is(Box<Found>),
    /// It was there, and a first list found it like this later: in this entry, at this time.
    SeenLater(Box<Found>, Seen),
    /// It was not there, for this reason where one was asked for.
    Not(Option<String>),
}

impl Question for Get {
    const NAME: &'static str = "get";
    type Item = Item;

    /// # Errors
    /// Exit 1 where there was none, with when it came and went.
    fn answer(self, log: &Log<'_>, put: &mut Put<'_, Item>) -> Result<(), Failure> {
        let mut reader = log.open()?;
        let wanted = Wanted::read(&self, &mut reader)?;
        let labels = self.labels.as_deref().map(labels_read).transpose()?;
        let mut rows = wanted.rows;
        let place = match self.at {
            Some(at) if wanted.one => {
                let (place, note) = object::place_of(&mut reader, &mut rows, at, &log.clock)?;
                note.iter().for_each(|note| log.remark(note));
                Some(place)
            }
            Some(at) => Some(object::place(&mut reader, at, &log.clock)?),
            None => None,
        };
        put(Item::Begin { one: wanted.one, now: now(&mut reader, place, log)? })?;
        let (mut found, mut reasons, mut is_empty) = (Vec::new(), Vec::new(), true);
        let mut seen_later = Vec::new();
        let takes = |found: &Found| {
            labels.as_ref().is_none_or(|labels| labels.takes(&labels_of(found.object.get().as_bytes())))
        };
        for row in &rows {
            let known = look(&mut reader, row, place, wanted.one, log)?;
            if let Known::SeenLater(is, seen) = &known
                && (wanted.one || takes(is))
            {
                seen_later.push((row, *seen));
            }
            match known {
                Known::Not(reason) => reasons.extend(reason),
                Known::Is(is) | Known::SeenLater(is, _) if !wanted.one => {
                    if takes(&is) {
                        is_empty = false;
                        put(Item::Object(is))?;
                    }
                }
                Known::Is(is) | Known::SeenLater(is, _) => found.push((row, is)),
            }
        }
        if found.len() > 1 {
            return Err(object::several(&self.objects.join(" "), found.iter().map(|(row, _)| *row)));
        }
        let mut concerned = rows.clone();
        for (row, one) in found {
            concerned = vec![row.clone()];
            is_empty = false;
            put(Item::Object(one))?;
        }
        if is_empty {
            if let Some(time) = place.and_then(|place| place.time).filter(|_| reasons.is_empty()) {
                object::not_before_all(&reader, time, &log.clock)?;
            }
            let when = if self.at.is_some() { "then" } else { "now" };
            if !reasons.is_empty() {
                return Err(Failure::no(reasons.join("; ")));
            }
            let none = match self.unknown(&wanted.resources, &mut reader, place, log)? {
                None => format!("there is no {} {when}, as far as the journal knows", wanted.asked),
                Some((Reach::Nothing, why)) => format!("nothing is known of {} {when}{why}", wanted.asked),
                Some((Reach::All | Reach::Part, why)) => format!("no {} is known {when}{why}", wanted.asked),
            };
            return Err(Failure::no(none));
        }
        if let Some(place) = place {
            remark_seen_later(&seen_later, place, log);
        }
        remark(&mut reader, &concerned, place, log)
    }
}

impl Get {
    /// Returns why the log does not know the moment, for resources of which it has no object then; none where it does.
    fn unknown(
        &self,
        resources: &BTreeMap<i64, String>,
        reader: &mut Reader,
        place: Option<Moment>,
        log: &Log<'_>,
    ) -> Result<Option<(Reach, String)>, Failure> {
        // Of the moment right after an entry that is known.
        let Some(time) = place.map_or(Some(log.clock.now), |place| place.time) else { return Ok(None) };
        let (names, namespaces) = (Some(resources.values().cloned().collect()), self.namespaces.clone());
        let about = About { resources: names, namespaces, since: Some(time), until: Some(time) };
        let reach = log.decided(|| about.reach(reader, &log.dir, &log.clock))?;
        if reach.is_all() {
            return Ok(None);
        }
        let namespace = self.namespaces.first().filter(|_| self.namespaces.len() == 1).map(String::as_str);
        for (id, place) in resources.keys().zip(std::iter::repeat(place)) {
            let Some(place) = place else { break };
            if let Some(doubt) = log.decided(|| doubt(reader, (*id, namespace), place, &log.clock))? {
                let gap = doubt.split("; ").next().unwrap_or_default();
                return Ok(Some((reach, format!(": {gap}"))));
            }
        }
        let coverage = log.decided(|| about.coverage(reader, &log.dir, &log.clock))?;
        Ok(Some((reach, coverage.notes().next().map_or_else(String::new, |note| format!(": {note}")))))
    }
}

/// Says which objects are shown as a first list found them after the moment.
fn remark_seen_later(objects: &[(&ObjectRow, Seen)], place: Moment, log: &Log<'_>) {
    let at = place.spell(&log.clock);
    match objects {
        [] => {}
        [(row, (seq, seen))] => log.remark(&format!(
            "{} was there at {at}, and decklog first saw it at {} (entry {seq}); this is that state",
            row.spell(),
            log.clock.moment(*seen)
        )),
        several => {
            let first = several.iter().map(|(_, seen)| *seen).min().unwrap_or_default();
            log.remark(&format!(
                "{} of these were there at {at}, and decklog first saw them later, from {} (entry {}) on; they are shown as it saw them then",
                several.len(),
                log.clock.moment(first.1),
                first.0
            ));
        }
    }
}

/// Returns the moment that ages are counted to.
fn now(reader: &mut Reader, place: Option<Moment>, log: &Log<'_>) -> Result<Timestamp, Failure> {
    let entry = match place {
        Some(Moment { time: None, seq }) => reader.entry(seq)?,
        _ => None,
    };
    let time = entry.as_ref().and_then(|stored| object::parse(stored).ok()?.time.parse().ok());
    Ok(time.or(place.and_then(|place| place.time)).unwrap_or(log.clock.now))
}

/// Objects that are asked for.
struct Wanted {
    rows: Vec<ObjectRow>,
    /// One object, by its name.
    one: bool,
    asked: String,
    /// Full names of the resources, by their rows.
    resources: BTreeMap<i64, String>,
}

impl Wanted {
    fn read(args: &Get, reader: &mut Reader) -> Result<Self, Failure> {
        let words = words(&args.objects)?;
        let spellings = Spellings::load(reader)?;
        let (mut rows, mut seen) = (Vec::new(), BTreeSet::new());
        let several = args.labels.is_some() || args.all_namespaces || args.namespaces.len() > 1;
        let mut one = words.len() == 1 && !several;
        let mut resources = BTreeMap::new();
        object::namespaces(reader, &args.namespaces)?;
        for text in &words {
            let named = spellings.read(text)?;
            resources.extend(named.resources.iter().map(|(id, resource)| (*id, resource.full_name())));
            let found = match named.name.as_deref() {
                Some(name) if !name.contains(['*', '?']) => object::known(reader, text, &named, &args.namespaces)?,
                pattern => {
                    one = false;
                    let mut found = Vec::new();
                    for (id, _) in &named.resources {
                        found.extend(object::of_resource(reader, *id, &args.namespaces, pattern)?);
                    }
                    found
                }
            };
            let mut new = |row: &ObjectRow| seen.insert((row.resource_id, row.namespace.clone(), row.name.clone()));
            rows.extend(found.into_iter().filter(&mut new));
        }
        let mut asked = words.join(", ");
        if !args.namespaces.is_empty() {
            asked.push_str(&format!(" in {}", args.namespaces.join(", ")));
        }
        if args.labels.is_some() {
            asked.push_str(" with these labels");
        }
        Ok(Self { rows, one, asked, resources })
    }
}

/// KIND or KIND/NAME for each of what is named: `deploy/web pods/x`, `deploy,pods`, or `deploy web api`.
fn words(args: &[String]) -> Result<Vec<String>, Failure> {
    let split = |text: &String| text.split(',').map(str::to_owned).collect::<Vec<_>>();
    let Some((first, names)) = args.split_first() else { return Ok(Vec::new()) };
    if names.is_empty() || args.iter().all(|word| word.contains('/')) {
        return Ok(args.iter().flat_map(split).collect());
    }
    if args.iter().any(|word| word.contains('/')) {
        return Err(Failure::usage(format!(
            "{:?} mixes KIND/NAME with KIND NAME; write all of it one way, such as deploy/web deploy/api or deploy web api",
            args.join(" ")
        )));
    }
    let of_kind = |kind: String| names.iter().map(move |name| format!("{kind}/{name}")).collect::<Vec<_>>();
    Ok(split(first).into_iter().flat_map(of_kind).collect())
}

/// Says what times are not covered, and which resources are no longer watched.
fn remark(reader: &mut Reader, rows: &[ObjectRow], place: Option<Moment>, log: &Log<'_>) -> Result<(), Failure> {
    let one = rows.len() == 1;
    let scopes: BTreeSet<(i64, String, Option<String>)> = rows
        .iter()
        .map(|row| (row.resource_id, row.resource.full_name(), one.then(|| row.namespace.clone())))
        .collect();
    let time = place.and_then(|place| place.time);
    let about = About {
        resources: Some(scopes.iter().map(|(_, resource, _)| resource.clone()).collect()),
        namespaces: rows.iter().take(1).filter(|_| one).flat_map(ObjectRow::namespaces).collect(),
        since: time,
        until: time,
    };
    for (id, _, namespace) in scopes {
        if let Some(place) = place
            && let Some(doubt) = log.decided(|| doubt(reader, (id, namespace.as_deref()), place, &log.clock))?
        {
            log.remark(&doubt);
        }
    }
    // Right after an entry everything is as the entry says.
    if place.is_none_or(|place| place.time.is_some()) {
        log.decided(|| about.coverage(reader, &log.dir, &log.clock))?.remark(log);
    }
    Ok(())
}

fn look(
    reader: &mut Reader,
    row: &ObjectRow,
    place: Option<Moment>,
    why: bool,
    log: &Log<'_>,
) -> Result<Known, Failure> {
    let stored = match place {
        None if !why && !row.present => return Ok(Known::Not(None)),
        None => {
            if let Some((object, redacted)) = reader.unrecorded(row)? {
                let step = reader.step(row, Seq(u64::MAX))?;
                let changed = step.map(|step| (step.seq, Timestamp::from_microsecond(step.time).ok()));
                return Ok(Known::Is(Box::new(Found::of(row, &object, redacted, changed)?)));
            }
            reader.entry_at(row, Seq(u64::MAX))?
        }
        Some(place) => {
            let placed = object::happened_by(reader, row, place)?;
            if let Some(note) = placed.note(&log.clock).filter(|_| why) {
                log.remark(&note);
            }
            reader.entry_at(row, placed.certain.seq)?
        }
    };
    let Some(stored) = stored else {
        if let Some(place) = place
            && let Some((found, seen)) = first_listed(reader, row, place)?
        {
            return Ok(Known::SeenLater(Box::new(found), seen));
        }
        let reason = if why { Some(object::not_yet(reader, row, place, &log.clock)?) } else { None };
        return Ok(Known::Not(reason));
    };
    let entry = object::parse(&stored)?;
    if entry.op == EntryType::Deleted && !why {
        return Ok(Known::Not(None));
    }
    if entry.op == EntryType::Deleted {
        let before = reader.step(row, Seq(stored.seq.0 - 1))?;
        let before = before.map_or_else(String::new, |step| format!("; --at {} shows it as it was before", step.seq));
        return Ok(Known::Not(Some(format!(
            "{} was deleted at {} (entry {}){before}",
            row.spell(),
            object::time_of(&entry, &log.clock),
            stored.seq,
        ))));
    }
    Ok(Known::Is(Box::new(recorded(row, &stored)?)))
}

/// Returns the object as an entry has it.
fn recorded(row: &ObjectRow, stored: &StoredEntry) -> Result<Found, Failure> {
    let entry = object::parse(stored)?;
    let redacted = entry.redacted.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default();
    let changed = Some((stored.seq, Some(object::when(&entry))));
    match entry.object {
        Some(object) => Found::of(row, &stored.line.slice_ref(object.get().as_bytes()), redacted, changed),
        None => Err(object::damaged(stored.seq, &"it has no object")),
    }
}

/// Returns an object that was there at a moment before a first list found it, in the state in which that did, with the entry and
/// the time of that.
fn first_listed(reader: &mut Reader, row: &ObjectRow, place: Moment) -> Result<Option<(Found, Seen)>, Failure> {
    let of_entry = reader.time_of(place.seq)?.and_then(|time| Timestamp::from_microsecond(time).ok());
    let Some(time) = place.time.or(of_entry) else { return Ok(None) };
    let history = reader.history(row, Seq(0), Seq(u64::MAX), usize::MAX)?;
    let Some(stored) = history.last().map(|first| reader.entry_of(first)).transpose()?.flatten() else {
        return Ok(None);
    };
    let entry = object::parse(&stored)?;
    if object::creation_of_listed(&entry).is_none_or(|created| created > time) {
        return Ok(None);
    }
    let seen = entry.time.parse().unwrap_or(time);
    Ok(Some((recorded(row, &stored)?, (stored.seq, seen))))
}
