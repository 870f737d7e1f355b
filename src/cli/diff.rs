//! `decklog diff`: what changed between two moments, of one object, a namespace, or everything.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use clap::Args;
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use super::clock::{clock, in_utc, moment};
use super::coverage::About;
use super::line::put_gap;
use super::log::put_difference;
use super::names::{At, Spellings, at};
use super::object::{self, Moment, Spell, place};
use super::output::{Ink, Out, Row, printable};
use super::tree::Node;
use super::{Exit, Failure, Format, Global, Outcome, complain};
use crate::journal::{ObjectRow, Reader, StoredEntry};
use crate::k8s::bookkeeping;
use crate::model::Seq;
use crate::query::difference::{self, Became, Limits, ObjectDifference};
use crate::wire::EntryGap;

/// Arguments of `decklog diff`.
#[derive(Args, Debug)]
pub struct DiffArgs {
    /// Resources and objects as kubectl spells them: deploy, deploy/web [default: everything]; and the moments, instead of
    /// --from and --to: 14..100, 10:00..10:30, 1h.., or 14 100
    #[arg(value_name = "KIND[/NAME] or FROM..TO")]
    pub objects: Vec<String>,
    /// Only these namespaces: shop, or shop,pay
    #[arg(short, long, value_name = "NS", value_delimiter = ',')]
    pub namespace: Vec<String>,
    /// All namespaces, which is the default
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub all_namespaces: bool,
    /// The first moment: so long ago (30m), a time (10:00, 'yesterday 10:00', '2026-11-21 10:00', RFC 3339), or right after an
    /// entry (its seq) [default: an hour ago]
    #[arg(long, value_name = "TIME or SEQ", value_parser = at, allow_hyphen_values = true)]
    pub from: Option<At>,
    /// The second moment, as for --from [default: now]
    #[arg(long, value_name = "TIME or SEQ", value_parser = at, allow_hyphen_values = true)]
    pub to: Option<At>,
}

/// A moment, as it is printed.
#[derive(Serialize)]
struct End {
    seq: u64,
    time: String,
}

/// A gap, as it is printed.
#[derive(Serialize)]
struct Hole {
    seq: u64,
    resource: String,
    #[serde(flatten)]
    gap: EntryGap,
    #[serde(skip)]
    stored: StoredEntry,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Difference {
    from: End,
    to: End,
    objects: Vec<ObjectDifference>,
    /// Objects that were at neither moment there, and in between were.
    came_and_went: usize,
    gaps: Vec<Hole>,
    /// Sentences about uncovered times.
    unknown: Vec<String>,
}

/// Prints the difference.
///
/// # Errors
/// Exit 1 where the journal does not reach back to a moment or knows no such object.
pub fn main(mut args: DiffArgs, global: &Global) -> Outcome {
    args.take_moments()?;
    let (mut reader, dir) = global.reader()?;
    let hour_ago = || clock().now.saturating_sub(DEFAULT_PERIOD).unwrap_or(clock().now);
    let from = begin(&mut reader, args.from.unwrap_or_else(|| At::Ago(hour_ago())))?;
    let to = match args.to {
        Some(to) => place(&mut reader, to)?,
        None => {
            let seq = reader.head()?;
            // As long as nothing has come since, it is not the time of the newest entry, which is before.
            let now = from.time.filter(|_| from.seq == seq).map(|_| clock().now);
            Moment { seq, time: now }
        }
    };
    if from.seq > to.seq || from.time.zip(to.time).is_some_and(|(from, to)| from > to) {
        return Err(Failure::usage("--from is after --to; swap them"));
    }
    let scope = Scope::of(&args, &reader)?;
    let format = global.output.unwrap_or(Format::Line);
    let spell = if format == Format::Line { moment } else { in_utc };
    let difference = scope.compare(&mut reader, &dir, from, to, spell)?;
    let mut out = Out::paged(global);
    match format {
        Format::Line | Format::Wide | Format::Name => print(&mut out, &difference, scope.objects.is_some())?,
        format @ (Format::Json | Format::Yaml) => out.document(format, &difference)?,
    }
    out.flush()?;
    Ok(Exit::Done)
}

/// Default period of the comparison.
const DEFAULT_PERIOD: SignedDuration = SignedDuration::from_hours(1);

impl DiffArgs {
    /// Takes the moments out of what stands without a flag: `A..B`, `A..`, or `A B`.
    fn take_moments(&mut self) -> Result<(), Failure> {
        let (mut moments, mut objects) = (Vec::new(), Vec::new());
        for word in std::mem::take(&mut self.objects) {
            let read = |text: &str| {
                let moment = at(text).map_err(|expected| Failure::usage(format!("{word}: {expected}")))?;
                if let Some(understood) = clock().understood("the moment", text) {
                    complain(&understood);
                }
                Ok::<_, Failure>(moment)
            };
            // A zone has a `/` too, and no object is called like a moment.
            let is_moments = |(from, to): &(&str, &str)| !word.contains('/') || (at(from).is_ok() && at(to).is_ok());
            match word.split_once("..").filter(is_moments) {
                Some((from, "")) => moments.push(read(from)?),
                Some((from, to)) => moments.extend([read(from)?, read(to)?]),
                // No resource is called like a moment.
                None => match at(&word) {
                    Ok(_) => moments.push(read(&word)?),
                    Err(_) => objects.push(word),
                },
            }
        }
        self.objects = objects;
        let flags = [self.from, self.to].iter().flatten().count();
        if moments.len() > 2 || (!moments.is_empty() && flags > 0) {
            return Err(Failure::usage("diff compares two moments; write FROM..TO, or --from and --to"));
        }
        let mut moments = moments.into_iter();
        self.from = self.from.or(moments.next());
        self.to = self.to.or(moments.next());
        Ok(())
    }
}

/// The first moment, which has to be one of which something is known; where it was only said how long ago that is, the
/// log may have begun later.
fn begin(reader: &mut Reader, at: At) -> Result<Moment, Failure> {
    let retained = reader.retained()?;
    let begin = retained.oldest_time.and_then(|time| Timestamp::from_microsecond(time).ok());
    if let At::Ago(time) = at
        && let Some(begin) = begin.filter(|begin| time < *begin)
    {
        complain(&format!(
            "note: the log begins at {} (entry {}), later than {}; the difference is from there on",
            moment(begin),
            retained.oldest,
            moment(time)
        ));
        return Ok(Moment { seq: Seq(retained.removed.max(1)), time: Some(begin) });
    }
    let from = place(reader, at)?;
    if from.seq > Seq(0) {
        return Ok(from);
    }
    match begin {
        Some(begin) => Err(Failure::no(format!(
            "the log begins at {} (entry 1), after {from}; --from 1 is the earliest",
            moment(begin)
        ))),
        None => Err(Failure::no("the journal has no entries yet")),
    }
}

/// Objects that are compared.
struct Scope {
    resources: Vec<i64>,
    /// None for all of them.
    namespaces: BTreeSet<Option<String>>,
    /// Only these.
    objects: Option<Vec<ObjectRow>>,
}

impl Scope {
    fn of(args: &DiffArgs, reader: &Reader) -> Result<Self, Failure> {
        object::namespaces(reader, &args.namespace)?;
        let mut namespaces: BTreeSet<_> = args.namespace.iter().cloned().map(Some).collect();
        if namespaces.is_empty() {
            namespaces.insert(None);
        }
        if args.objects.is_empty() {
            let resources = reader.resources()?.into_iter().map(|(id, _)| id).collect();
            return Ok(Self { resources, namespaces, objects: None });
        }
        let spellings = Spellings::load(reader)?;
        let (mut resources, mut objects, mut all) = (BTreeSet::new(), Vec::new(), false);
        for text in args.objects.iter().flat_map(|text| text.split(',')) {
            let named = spellings.read(text)?;
            resources.extend(named.resources.iter().map(|(id, _)| *id));
            if named.name.is_some() {
                objects.extend(object::find(reader, "diff", text, &args.namespace)?);
            } else {
                all = true;
            }
        }
        if all && !objects.is_empty() {
            return Err(Failure::usage("diff takes either resources or single objects, not both at once"));
        }
        Ok(Self { resources: resources.into_iter().collect(), namespaces, objects: (!all).then_some(objects) })
    }

    fn compare(
        &self,
        reader: &mut Reader,
        dir: &Path,
        from: Moment,
        to: Moment,
        spell: Spell,
    ) -> Result<Difference, Failure> {
        let rows = match &self.objects {
            Some(objects) => objects.clone(),
            None => {
                let mut rows = Vec::new();
                for resource in &self.resources {
                    for namespace in &self.namespaces {
                        rows.extend(reader.objects_changed(*resource, namespace.as_deref(), from.seq)?);
                    }
                }
                rows
            }
        };
        let rows = rows.iter().map(ObjectRow::row);
        let found = difference::between(reader, rows, (from.seq, to.seq), Limits::NONE)?;
        if let Some(failure) = found.unknown.into_iter().next() {
            return Err(failure);
        }
        let mut difference = Difference {
            from: end(reader, from, spell)?,
            to: end(reader, to, spell)?,
            objects: found.objects,
            came_and_went: found.came_and_went,
            gaps: Vec::new(),
            unknown: Vec::new(),
        };
        let mut concerned = BTreeSet::new();
        match &self.objects {
            Some(objects) => concerned.extend(objects.iter().map(|row| (row.resource_id, Some(row.namespace.clone())))),
            None => {
                for namespace in &self.namespaces {
                    concerned.extend(self.resources.iter().map(|resource| (*resource, namespace.clone())));
                }
            }
        }
        let names: BTreeMap<i64, String> =
            reader.resources()?.into_iter().map(|(id, resource)| (id, resource.full_name())).collect();
        let mut seen = BTreeSet::new();
        for (resource, namespace) in concerned {
            for stored in reader.gaps(resource, namespace.as_deref(), from.seq)? {
                let entry = object::parse(&stored)?;
                let (Some(gap), true) = (entry.gap(), stored.seq <= to.seq && seen.insert(stored.seq)) else {
                    continue;
                };
                let resource = entry.resource.to_string();
                difference.gaps.push(Hole { seq: stored.seq.0, resource, gap, stored: stored.clone() });
            }
            for (name, place) in [("--from", from), ("--to", to)] {
                if let Some(doubt) = object::doubt(reader, resource, namespace.as_deref(), place, spell)? {
                    difference.unknown.push(format!("{name} lies in a gap of {}: {doubt}", names[&resource]));
                }
            }
        }
        let of_objects = |objects: &Vec<ObjectRow>| objects.iter().map(|row| row.resource_id).collect();
        let resources: BTreeSet<i64> =
            self.objects.as_ref().map_or_else(|| self.resources.iter().copied().collect(), of_objects);
        let about = About {
            resources: Some(resources.iter().filter_map(|id| names.get(id).cloned()).collect()),
            namespaces: match &self.objects {
                Some(objects) => objects.iter().flat_map(ObjectRow::namespaces).collect(),
                None => self.namespaces.iter().flatten().cloned().collect(),
            },
            since: from.time,
            until: to.time,
        };
        difference.unknown.extend(about.coverage(reader, dir, spell)?.notes().map(str::to_owned));
        difference.unknown.dedup();
        Ok(difference)
    }
}

fn end(reader: &mut Reader, place: Moment, spell: Spell) -> Result<End, Failure> {
    let time = match (place.time, reader.entry(place.seq)?) {
        (Some(time), _) => Some(time),
        (None, Some(stored)) => object::parse(&stored)?.time.parse().ok(),
        (None, None) => None,
    };
    Ok(End { seq: place.seq.0, time: time.map_or_else(String::new, spell) })
}

/// Returns the sign and the colour in front of a line.
const fn sign(became: Became) -> (&'static str, Ink) {
    match became {
        Became::Added => ("+", Ink::Good),
        Became::Removed => ("-", Ink::Bad),
        Became::Changed | Became::Replaced => ("~", Ink::Change),
        Became::FirstSeen => ("?", Ink::Alarm),
    }
}

fn print(out: &mut Out, difference: &Difference, single: bool) -> Result<(), Failure> {
    let look = out.look;
    let faint = |out: &mut Out, text: &str| {
        let mut row = Row::new(look);
        row.put(Some(Ink::Faint), text);
        out.line(&row.finish())
    };
    let end = |end: &End| format!("{} (entry {})", end.time, end.seq);
    let mut head = Row::new(look);
    head.hang(5);
    head.put(Some(Ink::Faint), &format!("from {}", end(&difference.from)));
    head.flow(Some(Ink::Faint), " ", &format!("to {}", end(&difference.to)));
    out.line(&head.finish())?;
    for found in &difference.objects {
        let (sign, ink) = sign(found.became);
        let mut row = Row::new(look);
        row.put(Some(ink), &format!("{sign} {}", found.became.word())).put(None, " ");
        row.put(Some(Ink::Strong), &printable(&title(&found.row)));
        let entries = match &found.entries[..] {
            [seq] => format!("entry {seq}"),
            entries => format!("entries {} to {} ({})", entries[0], entries[entries.len() - 1], entries.len()),
        };
        let doubt = match found.became {
            Became::FirstSeen => ", unknown before",
            Became::Added | Became::Removed if found.evidence == "inferred" => ", in a gap",
            Became::Added | Became::Removed | Became::Changed | Became::Replaced => "",
        };
        row.hang(4);
        row.flow(Some(Ink::Faint), "  ", &format!("{entries}{doubt},")).flow(
            Some(Ink::Faint),
            " ",
            &object::time_spelled(found.time),
        );
        out.line(&row.finish())?;
        let shown = match (found.became, single) {
            (Became::Changed | Became::Replaced, _) => found.after.as_ref(),
            (Became::Added | Became::FirstSeen, true) => found.after.as_ref(),
            (Became::Removed, true) => found.before.as_ref(),
            (Became::Added | Became::FirstSeen | Became::Removed, false) => None,
        };
        if let Some(stored) = shown {
            yaml(out, found, stored)?;
        }
    }
    for hole in &difference.gaps {
        let mut row = Row::new(look);
        row.uncut();
        let entry = object::parse(&hole.stored)?;
        row.put(Some(Ink::Alarm), &format!("GAP {} (entry {}) ", printable(&entry.full_resource()), hole.seq));
        put_gap(&mut row, &entry, clock());
        out.line(&row.finish())?;
    }
    for unknown in &difference.unknown {
        let mut row = Row::new(look);
        row.uncut();
        row.put(Some(Ink::Alarm), &printable(unknown));
        out.line(&row.finish())?;
    }
    let count = |became: &[Became]| difference.objects.iter().filter(|found| became.contains(&found.became)).count();
    let mut parts = Vec::new();
    for (many, word) in [
        (count(&[Became::Added]), "added"),
        (count(&[Became::Removed]), "removed"),
        (count(&[Became::Changed, Became::Replaced]), "changed"),
        (count(&[Became::FirstSeen]), "first seen"),
        (difference.came_and_went, "came and went"),
    ] {
        if many > 0 {
            parts.push(format!("{} {word}", super::output::count(many as u64)));
        }
    }
    let summary = if parts.is_empty() { "no difference".to_owned() } else { parts.join(", ") };
    let lost = if difference.gaps.is_empty() { "" } else { "; what else happened in the gaps is unknown" };
    faint(out, &format!("{summary}{lost}"))
}

/// `deployments.apps shop/web`
fn title(row: &ObjectRow) -> String {
    match row.namespace.as_str() {
        "" => format!("{} {}", row.resource.full_name(), row.name),
        namespace => format!("{} {namespace}/{}", row.resource.full_name(), row.name),
    }
}

fn yaml(out: &mut Out, found: &ObjectDifference, stored: &StoredEntry) -> Result<(), Failure> {
    let entry = object::parse(stored)?;
    let damaged = |error: serde_json::Error| object::damaged(stored.seq, &error);
    let object = entry.object.ok_or_else(|| object::damaged(stored.seq, &"it has no object"))?;
    let tree = Node::parse(object.get().as_bytes()).map_err(damaged)?;
    let tree = match found.became {
        Became::Added | Became::FirstSeen => tree.added(),
        Became::Removed => tree.gone(),
        Became::Changed | Became::Replaced => {
            let mut tree = tree;
            let patch = found.patch.as_ref().map_or("[]", |patch| patch.get());
            tree.revert(&serde_json::from_str::<Vec<_>>(patch).map_err(damaged)?).map_err(damaged)?;
            for pointer in &found.redacted {
                tree.redacted(pointer);
            }
            tree
        }
    };
    put_tree(out, tree)
}

/// The differences of a tree, without what every write moves.
pub(super) fn put_tree(out: &mut Out, mut tree: Node<'_>) -> Result<(), Failure> {
    tree.without(&bookkeeping::PATHS);
    tree.without_empty(&["metadata", "annotations"]);
    if tree.differs() {
        return put_difference(out, &tree);
    }
    let mut row = Row::new(out.look);
    row.put(Some(Ink::Faint), "    nothing but what every write moves");
    out.line(&row.finish())
}
