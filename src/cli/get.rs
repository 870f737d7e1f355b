//! `decklog get`: an object as it is, or as it was.

use bytes::Bytes;
use clap::Args;
use jiff::Timestamp;

use super::output::{Out, moment};
use super::select::{At, Spellings, at};
use super::{Exit, Failure, Format, Global, Outcome, complain, yaml};
use crate::journal::{ObjectRow, Position, Reader};
use crate::model::{EntryType, Seq};
use crate::wire::Entry;

/// Arguments of `decklog get`.
#[derive(Args, Debug)]
pub struct GetArgs {
    /// The object, as kubectl spells it: deploy/web, deployments.apps/web
    #[arg(value_name = "KIND/NAME")]
    pub object: String,
    /// Its namespace; not needed where only one namespace has such an object
    #[arg(short, long, value_name = "NS")]
    pub namespace: Option<String>,
    /// As it was: right after an entry (its seq), so long ago (10m), or at a time (RFC 3339)
    #[arg(long, value_name = "TIME or SEQ", value_parser = at)]
    pub at: Option<At>,
}

/// What is known of an object at the moment asked for.
enum Known {
    /// It was this.
    Is(Bytes),
    /// It was not there, for this reason.
    Not(String),
}

/// Prints the object.
///
/// # Errors
/// Exit 1 where it did not exist, with when it came and went.
pub fn main(args: GetArgs, global: &Global) -> Outcome {
    let format = match global.output {
        Some(Format::Line) => return Err(Failure::usage("get prints an object, so -o is yaml or json")),
        Some(format) => format,
        None => Format::Yaml,
    };
    let (mut reader, _) = global.reader()?;
    let named = Spellings::load(&reader)?.read(&args.object)?;
    let Some(name) = &named.name else {
        return Err(Failure::usage(format!(
            "get takes KIND/NAME, such as {}/web; `decklog tail {}` prints what happened to all of them",
            args.object, args.object
        )));
    };
    if let Some(At::Seq(seq)) = args.at {
        let head = reader.head()?;
        if seq > head {
            return Err(Failure::no(format!("there is no entry {seq} yet: the newest is {head}")));
        }
    }
    if let Some(at) = args.at {
        kept(&reader, at)?;
    }
    let mut rows = Vec::new();
    for (id, resource) in &named.resources {
        for row in reader.objects(*id, None, Some(name))? {
            rows.push((*id, resource.namespaced, row));
        }
    }
    let elsewhere: Vec<String> = rows.iter().map(|(_, _, row)| spell(row)).collect();
    if let Some(namespace) = &args.namespace {
        rows.retain(|(_, namespaced, row)| !namespaced || row.namespace == *namespace);
    }
    let (mut found, mut reasons) = (Vec::new(), Vec::new());
    for (id, _, row) in &rows {
        match look(&mut reader, *id, row, args.at)? {
            Known::Is(object) => found.push((row, object)),
            Known::Not(reason) => reasons.push(reason),
        }
    }
    if found.len() > 1 {
        let names: Vec<String> = found.iter().map(|(row, _)| spell(row)).collect();
        return Err(Failure::usage(format!(
            "{} is several objects: {}; say which with -n, or with the resource's full name",
            args.object,
            names.join("; ")
        )));
    }
    let Some((row, object)) = found.pop() else {
        return Err(Failure::no(if !reasons.is_empty() {
            reasons.join("; ")
        } else if elsewhere.is_empty() {
            format!("the journal knows no {}", args.object)
        } else {
            format!("there is no such object in this namespace, but the journal knows {}", elsewhere.join("; "))
        }));
    };
    if let Some(At::Time(time)) = args.at
        && let Some(doubt) = doubt(&mut reader, row, time)?
    {
        complain(&doubt);
    }
    let mut out = Out::new(global);
    if format == Format::Json {
        out.json(&object)?;
    } else {
        let text = yaml::from_json(&object).map_err(|error| {
            Failure::new(Exit::Io, format!("the stored object is damaged ({error}); run `decklog verify`"))
        })?;
        out.bytes(text.as_bytes())?;
    }
    out.flush()?;
    Ok(Exit::Done)
}

/// Refuses a moment that the log does not reach back to any more.
fn kept(reader: &Reader, at: At) -> Result<(), Failure> {
    let retained = reader.retained()?;
    let Some(begin) = retained.oldest_time.filter(|_| retained.forgotten > 0) else { return Ok(()) };
    let forgotten = match at {
        // The state at the lower end is kept.
        At::Seq(seq) => seq.0 < retained.forgotten,
        At::Time(time) => time.as_microsecond() < begin,
    };
    if !forgotten {
        return Ok(());
    }
    let begin = Timestamp::from_microsecond(begin).map_or_else(|_| "an unreadable time".to_owned(), moment);
    Err(Failure::no(format!(
        "that is no longer kept: the journal has forgotten what was before entry {} ({begin})",
        retained.oldest
    )))
}

/// `deployments.apps/web in namespace shop`.
fn spell(row: &ObjectRow) -> String {
    let name = format!("{}/{}", row.resource.full_name(), row.name);
    if row.namespace.is_empty() { name } else { format!("{name} in namespace {}", row.namespace) }
}

fn look(reader: &mut Reader, resource: i64, row: &ObjectRow, at: Option<At>) -> Result<Known, Failure> {
    let told = match at {
        None => {
            if let Some(object) = reader.current(row)? {
                return Ok(Known::Is(object));
            }
            reader.entry(row.last)?
        }
        Some(At::Seq(seq)) => reader.told_at(row, seq, i64::MAX)?,
        Some(At::Time(time)) => reader.told_at(row, Seq(u64::MAX), time.as_microsecond())?,
    };
    let Some(told) = told else { return Ok(Known::Not(not_yet(reader, resource, row)?)) };
    let entry = Entry::parse(&told.line).map_err(|error| {
        Failure::new(Exit::Io, format!("entry {} is damaged ({error}); run `decklog verify`", told.seq))
    })?;
    if entry.kind() == EntryType::Deleted {
        return Ok(Known::Not(format!(
            "{} was deleted at {} (entry {}); --at {} shows it as it was before",
            spell(row),
            time_of(&entry),
            told.seq,
            told.seq.0 - 1
        )));
    }
    match entry.object {
        Some(object) => Ok(Known::Is(told.line.slice_ref(object.get().as_bytes()))),
        None => Err(Failure::new(Exit::Io, format!("entry {} has no object; run `decklog verify`", told.seq))),
    }
}

/// Whether a moment falls into a gap: what the object was then is not known for sure.
fn doubt(reader: &mut Reader, row: &ObjectRow, time: Timestamp) -> Result<Option<String>, Failure> {
    let resources = reader.resources()?;
    let same = resources.iter().filter(|(_, resource)| resource.full_name() == row.resource.full_name());
    let gaps = Position {
        objects: same.map(|(id, _)| (*id, None)).collect(),
        namespace: Some(row.namespace.clone()).filter(|namespace| !namespace.is_empty()),
        types: vec![EntryType::Gap],
        since: Some(time.as_microsecond()),
        ..Position::default()
    };
    let after = reader.last_before(time.as_microsecond())?;
    let Some(stored) = reader.select(&gaps, after, None, false, 1)?.pop() else { return Ok(None) };
    let Some((ended, gap)) = Entry::parse(&stored.line).ok().and_then(|entry| Some((time_of(&entry), entry.gap()?)))
    else {
        return Ok(None);
    };
    let since = gap.since.and_then(|since| since.parse::<Timestamp>().ok());
    Ok(since.filter(|since| *since < time).map(|since| {
        format!(
            "note: changes between {} and {ended} may be missing (GAP, entry {}); this is the last state known before",
            moment(since),
            stored.seq
        )
    }))
}

/// Why nothing is known of the object at a moment before all that is kept of it.
fn not_yet(reader: &mut Reader, resource: i64, row: &ObjectRow) -> Result<String, Failure> {
    let position = Position {
        objects: vec![(resource, Some(row.name.clone()))],
        namespace: Some(row.namespace.clone()).filter(|namespace| !namespace.is_empty()),
        types: vec![EntryType::Added, EntryType::Modified, EntryType::Deleted],
        ..Position::default()
    };
    let name = spell(row);
    let first = reader.select(&position, Seq(0), None, false, 1)?.pop();
    let Some((entry, seq)) = first.as_ref().and_then(|first| Some((Entry::parse(&first.line).ok()?, first.seq))) else {
        return Ok(format!(
            "the journal has no entry of {name}: it was found on a first list that is not told, and has not changed since{}",
            if reader.retained()?.forgotten > 0 { ", or all of it is forgotten" } else { "" }
        ));
    };
    let time = time_of(&entry);
    Ok(match (entry.kind(), entry.evidence.as_deref()) {
        (EntryType::Added, Some("watched")) => {
            format!("{name} did not exist yet: it came to be at {time} (entry {seq})")
        }
        (EntryType::Added, _) => format!("nothing is known of {name} then: it was first seen at {time} (entry {seq})"),
        _ => format!("nothing is known of {name} then: what the journal keeps of it begins at {time} (entry {seq})"),
    })
}

fn time_of(entry: &Entry<'_>) -> String {
    entry.time.parse::<Timestamp>().map_or_else(|_| "an unreadable time".to_owned(), moment)
}
