//! `decklog blame`: each field of an object, with who set it last, when, and in which entry.

use std::collections::BTreeSet;

use clap::Args;
use serde::Serialize;
use serde_json::value::RawValue;

use super::clock::{Stamp, clock, moment};
use super::names::{At, at};
use super::object::{self, Moment};
use super::output::{Ink, Out, Row, plural, printable};
use super::path::{covered, object_and_paths, prune};
use super::tree::{Node, Step, pointer};
use super::who;
use super::yaml::{self, View};
use super::{Exit, Failure, Format, Global, Outcome, complain};
use crate::journal::{ObjectRow, Reader};
use crate::k8s::managed_fields::{By, ManagedFields, Manager};
use crate::model::{EntryType, Seq};
use crate::wire::Change;

/// Arguments of `decklog blame`.
#[derive(Args, Debug)]
pub struct BlameArgs {
    /// The object, as kubectl spells it: deploy/web, deployments.apps/web
    #[arg(value_name = "KIND/NAME")]
    pub object: String,
    /// The fields to print.
    #[arg(
        value_name = "PATH",
        help = "The fields to print: .spec.replicas, '.spec.template.spec.containers[*].image', /spec/replicas, image [default: all]"
    )]
    pub paths: Vec<String>,
    /// Its namespace; not needed where only one namespace has such an object
    #[arg(short, long, value_name = "NS", value_delimiter = ',')]
    pub namespace: Vec<String>,
    /// As it was: right after an entry (its seq), so long ago (10m), or at a time: 10:30, 'yesterday 10:30', '2026-11-21 10:30', RFC 3339
    #[arg(long, value_name = "TIME or SEQ", value_parser = at)]
    pub at: Option<At>,
}

/// What the time says of when a field was set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Set {
    /// Then.
    At,
    /// Then or before: it was found on a list, or the log does not reach back far enough.
    By,
    /// Later: it is among the changes that the log does not record.
    After,
}

impl Set {
    const fn mark(self) -> &'static str {
        match self {
            Self::At => " ",
            Self::By => "≤",
            Self::After => "≥",
        }
    }
}

/// Whoever may have set a field.
struct Origin {
    /// The entry, where the log has it.
    seq: Option<Seq>,
    /// As the entry has it; empty where nothing is known.
    time: String,
    set: Set,
    /// The entry is of an object that came to be.
    came: bool,
    changed: Vec<Manager>,
    books: ManagedFields,
}

/// A field and who set it.
#[derive(Serialize)]
struct Field {
    path: String,
    value: Box<RawValue>,
    /// The entry; absent where the log does not have it.
    #[serde(skip_serializing_if = "Option::is_none")]
    seq: Option<u64>,
    #[serde(skip_serializing_if = "String::is_empty")]
    time: String,
    set: Set,
    managers: Vec<Manager>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Blame<'a> {
    api_version: String,
    kind: &'a str,
    resource: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    namespace: &'a str,
    name: &'a str,
    uid: String,
    gaps: usize,
    fields: &'a [Field],
}

/// Prints who set what.
///
/// # Errors
/// Exit 1 where the object did not exist, with when it came and went.
pub fn main(args: BlameArgs, global: &Global, out: &mut Out) -> Outcome {
    let (named, paths) = object_and_paths(&args.object, &args.paths).map_err(Failure::usage)?;
    let (mut reader, _) = global.reader()?;
    let mut rows = object::find(&reader, "blame", &named, &args.namespace)?;
    let place = args.at.map(|at| object::place_of(&mut reader, &mut rows, at)).transpose()?;
    if place.is_none() && rows.len() > 1 && rows.iter().any(|row| row.present) {
        rows.retain(|row| row.present);
    }
    let row = object::only(&named, rows)?;
    if let Some(place) = place
        && let Some(doubt) = object::doubt(&mut reader, row.resource_id, Some(&row.namespace), place, moment)?
    {
        complain(&format!("note: {doubt}"));
    }
    let place = match place {
        Some(place) => {
            let (place, note) = object::happened_by(&mut reader, &row, place)?;
            if let Some(note) = note {
                complain(&format!("note: {note}"));
            }
            Some(place)
        }
        None => None,
    };
    let mut found = trace(&mut reader, &row, place)?;
    let mut node = Node::parse(found.object.as_bytes()).map_err(|error| object::damaged(row.last, &error))?;
    node.without(&[&["metadata", "managedFields"]]);
    if !paths.is_empty() {
        prune(&mut node, &paths);
        found.fields.retain(|field| covered(&paths, &field.path));
        if found.fields.is_empty() {
            return Err(Failure::no(format!(
                "{} has no {}; `decklog blame {named}` prints all that it has",
                row.spell(),
                args.paths.join(" or ")
            )));
        }
    }
    node.number(&mut 0);

    match global.output.unwrap_or(Format::Line) {
        Format::Line | Format::Wide | Format::Name => print(out, &node, &found.fields)?,
        format @ (Format::Json | Format::Yaml) => out.document(
            format,
            &Blame {
                api_version: row.resource.api_version(),
                kind: &row.resource.kind,
                resource: &row.resource.plural,
                namespace: &row.namespace,
                name: &row.name,
                uid: found.uid,
                gaps: found.gaps,
                fields: &found.fields,
            },
        )?,
    }
    out.flush()?;
    if found.gaps > 0 {
        let gaps = plural(found.gaps as u64, "gap lies", "gaps lie");
        complain(&format!("note: {gaps} in this history; what was set and set back there is not known"));
    }
    Ok(Exit::Done)
}

struct Found {
    object: String,
    uid: String,
    fields: Vec<Field>,
    gaps: usize,
}

/// Goes back through the history, until somebody is known for every field.
fn trace(reader: &mut Reader, row: &ObjectRow, place: Option<Moment>) -> Result<Found, Failure> {
    let upto = place.map_or(Seq(u64::MAX), |place| place.seq);
    let first = reader.step(row, upto)?;
    let unrecorded = if place.is_none() { reader.unrecorded(row)? } else { None };
    let newest = first.as_ref().map_or(Ok(None), |step| reader.entry_of(step))?;
    let newest_entry = newest.as_ref().map(object::parse).transpose()?;
    let (text, uid) = match (&unrecorded, &newest_entry) {
        (Some((object, _)), _) => (String::from_utf8_lossy(object).into_owned(), row.uid.clone()),
        (None, Some(entry)) if entry.op == EntryType::Deleted => {
            let before = first.as_ref().map_or(Ok(None), |step| reader.previous(step))?;
            let before = before.map_or_else(String::new, |step| format!("; --at {} shows who had set what", step.seq));
            return Err(Failure::no(format!(
                "{} was deleted at {} (entry {}){before}",
                row.spell(),
                object::time_of(entry),
                entry.seq,
            )));
        }
        (None, Some(entry)) => {
            let object = entry.object.ok_or_else(|| object::damaged(entry.seq(), &"it has no object"))?.get();
            (object.to_owned(), entry.uid.as_deref().unwrap_or_default().to_owned())
        }
        (None, None) => return Err(Failure::no(object::not_yet(reader, row, place)?)),
    };
    let damaged = |seq: Seq| move |error: serde_json::Error| object::damaged(seq, &error);
    let mut tree = Node::parse(text.as_bytes()).map_err(damaged(row.last))?;
    tree.without(&[&["metadata", "managedFields"]]);
    let mut origins: Vec<Origin> = Vec::new();
    let now = newest_entry.as_ref().map_or_else(String::new, |entry| entry.time.to_string());
    // What changed since the newest entry and is not recorded.
    if unrecorded.is_some() {
        let last = newest_entry.as_ref().filter(|entry| entry.op != EntryType::Deleted);
        origins.push(Origin {
            seq: None,
            time: now.clone(),
            set: if now.is_empty() { Set::By } else { Set::After },
            came: false,
            changed: Vec::new(),
            books: ManagedFields::of(text.as_bytes()),
        });
        match last.and_then(|entry| entry.object) {
            Some(before) => {
                let change = crate::change::compare(before.get().as_bytes(), text.as_bytes(), &[], &[])
                    .map_err(|error| object::damaged(row.last, &error))?;
                let change: Change<'_> = serde_json::from_str(&change.json).map_err(damaged(row.last))?;
                tree.revert_to(&change.patch, 0)
            }
            None => tree.credit(0),
        };
    }
    let mut oldest = Seq(u64::MAX);
    let mut next = first;
    while let Some(step) = next.filter(|_| !tree.is_credited()) {
        next = reader.previous(&step)?;
        let Some(stored) = reader.entry_of(&step)? else { break };
        let entry = object::parse(&stored)?;
        if entry.uid.as_deref() != Some(&uid) {
            break;
        }
        oldest = step.seq;
        let change = Change::of(&entry).map_err(damaged(step.seq))?.unwrap_or_default();
        let at = origins.len();
        // A truncated one shows what was so by then, and not what it changed.
        let credited = if entry.op == EntryType::Modified && step.kept {
            tree.revert_to(&change.patch, at)
        } else {
            tree.credit(at)
        };
        let object = entry.object.map_or("{}", |object| object.get());
        if credited {
            // After damage the whole object is recorded as new, whatever of it changed.
            let whole = change.patch.iter().any(|op| op.path.is_empty());
            let watched = entry.evidence.as_deref() == Some("watched") && !whole;
            origins.push(Origin {
                seq: Some(step.seq),
                time: entry.time.to_string(),
                set: if watched && step.kept { Set::At } else { Set::By },
                came: entry.op == EntryType::Added && watched,
                changed: change.managers,
                books: ManagedFields::of(object.as_bytes()),
            });
        }
        if entry.op == EntryType::Modified && step.previous == Seq(0) {
            // It was found on a first list that is not emitted.
            tree.credit(origins.len());
            origins.push(Origin {
                seq: None,
                time: entry.time.to_string(),
                set: Set::By,
                came: false,
                changed: Vec::new(),
                books: ManagedFields::of(object.as_bytes()),
            });
        }
    }
    if !tree.is_credited() {
        // Damage or retention cut the history short.
        origins.push(Origin {
            seq: None,
            time: now,
            set: Set::By,
            came: false,
            changed: Vec::new(),
            books: ManagedFields::of(text.as_bytes()),
        });
        tree.credit(origins.len() - 1);
    }
    tree.settle();
    let gaps = reader.gaps(row.resource_id, Some(&row.namespace), oldest)?;
    let gaps = gaps.iter().filter(|gap| gap.seq <= upto).count();
    let fields = tree.leaves().iter().map(|leaf| field(&mut origins, leaf.node, &leaf.path)).collect::<Result<_, _>>();
    Ok(Found { uid, fields: fields.map_err(damaged(row.last))?, gaps, object: text })
}

fn field(origins: &mut [Origin], node: &Node<'_>, path: &[Step<'_, '_>]) -> Result<Field, serde_json::Error> {
    let last = origins.len() - 1;
    let origin = &mut origins[node.origin.unwrap_or(last)];
    let mut time = origin.time.clone();
    let managers = match &origin.changed[..] {
        // One version is one write.
        [one] if origin.set == Set::At => vec![one.clone()],
        changed => {
            let mut owners = who::owners(&mut origin.books, path);
            let wrote = changed.iter().filter(|changed| owners.iter().any(|owner| owner.is(changed)));
            let wrote: Vec<Manager> = wrote.cloned().collect();
            // Whoever owns a field of an object that came to be has made it.
            if origin.came {
                owners.iter_mut().for_each(|owner| owner.by = None);
            }
            if wrote.is_empty() { owners } else { wrote }
        }
    };
    if origin.set == Set::By
        && let Some(own) = managers.iter().filter_map(|manager| manager.time.clone()).max()
        && (own < time || time.is_empty())
    {
        // Whoever owns it has written nothing since.
        time = own;
    }
    Ok(Field {
        path: pointer(path),
        value: RawValue::from_string(node.json())?,
        seq: origin.seq.map(|seq| seq.0),
        time,
        set: origin.set,
        managers,
    })
}

/// Managers with longer names are cut on a terminal.
const WIDEST_MANAGER: usize = 28;
/// On a terminal with fewer columns everything is shorter.
const NARROW: usize = 100;

fn print(out: &mut Out, node: &Node<'_>, fields: &[Field]) -> Result<(), Failure> {
    let look = out.look;
    let narrow = look.width.is_some_and(|width| width < NARROW);
    let bound = if narrow { WIDEST_MANAGER / 2 + 2 } else { WIDEST_MANAGER };
    let stamps: Vec<Option<Stamp>> =
        fields.iter().map(|field| Some(clock().stamp(&field.time)).filter(|_| !field.time.is_empty())).collect();
    // The zone of all of them stands above; where it has more than one offset, with each.
    let zones: BTreeSet<&str> = stamps.iter().flatten().map(|stamp| stamp.zone.as_str()).collect();
    let zone = match (zones.len(), zones.first()) {
        (1, Some(zone)) if narrow => format!(" SET ({})", zone.split(", ").next().unwrap_or(zone)),
        (1, Some(zone)) => format!(" SET ({zone})"),
        _ if narrow => " SET (local)".to_owned(),
        _ => " SET".to_owned(),
    };
    let time_of = |stamp: &Option<Stamp>| match stamp {
        None => "unknown".to_owned(),
        Some(stamp) if narrow => format!("{} {}", stamp.date.get(5..).unwrap_or(""), stamp.time.get(..5).unwrap_or("")),
        Some(stamp) if zones.len() > 1 => {
            format!("{} {} {}", stamp.date, stamp.time, stamp.zone.rsplit(", ").next().unwrap_or(""))
        }
        Some(stamp) => format!("{} {}", stamp.date, stamp.time),
    };
    let cells: Vec<(String, String, String)> = fields
        .iter()
        .zip(&stamps)
        .map(|(field, stamp)| {
            let seq = field.seq.map_or_else(|| "-".to_owned(), |seq| seq.to_string());
            let mark = field.set.mark();
            let names = who::short(&field.managers);
            (seq, format!("{mark}{}", time_of(stamp)), if names.is_empty() { "-".to_owned() } else { names })
        })
        .collect();
    let widest = |of: &dyn Fn(&(String, String, String)) -> usize| cells.iter().map(of).max().unwrap_or(0);
    let seq_width = widest(&|cell| cell.0.chars().count()).max(4);
    let time_width = widest(&|cell| cell.1.chars().count()).max(zone.len()).max(if narrow { 12 } else { 20 });
    let who_width = widest(&|cell| cell.2.chars().count()).min(bound).max(7);
    let mut head = Row::new(look);
    head.put(Some(Ink::Faint), &format!("{:>seq_width$}  {:<time_width$} MANAGER", "SEQ", zone));
    out.line(&head.finish())?;
    for line in yaml::lines(node, View::All) {
        let mut row = Row::new(look);
        if let Some((seq, time, manager)) = line.origin.and_then(|origin| cells.get(origin)) {
            let manager = if look.terminal { super::output::cut(manager, who_width) } else { manager.into() };
            row.put(Some(Ink::Faint), &format!("{seq:>seq_width$} "));
            row.put(Some(Ink::Faint), &format!(" {time:<time_width$} "));
            row.put(Some(Ink::Change), &printable(&manager));
        }
        let start = seq_width + time_width + who_width + 4;
        row.to(start).put(None, &line.text);
        out.line(&row.finish())?;
    }
    let owned = fields.iter().any(|field| field.managers.iter().any(|manager| manager.by == Some(By::Owner)));
    if owned {
        let mut row = Row::new(look);
        row.put(Some(Ink::Faint), "~ the owner: nothing in managedFields says of the write itself");
        out.line(&row.finish())?;
    }
    for (set, text) in [
        (Set::By, "≤ by then or before: found on a list, or older than the log"),
        (Set::After, "≥ later: among the changes that are not recorded"),
    ] {
        if fields.iter().any(|field| field.set == set) {
            let mut row = Row::new(look);
            row.put(Some(Ink::Faint), text);
            out.line(&row.finish())?;
        }
    }
    Ok(())
}
