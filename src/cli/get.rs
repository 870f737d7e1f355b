//! `decklog get`: objects as they are, or as they were.

mod table;

use std::collections::BTreeSet;
use std::path::Path;

use bytes::Bytes;
use clap::Args;
use jiff::Timestamp;
use serde::Deserialize;

use super::clock::moment;
use super::coverage::About;
use super::names::{At, Spellings, at};
use super::object::{self, Moment};
use super::output::{Out, printable};
use super::select::{labels, labels_of};
use super::tree::Node;
use super::{Exit, Failure, Format, Global, Outcome, complain, yaml};
use crate::journal::{ObjectRow, Reader};
use crate::k8s::bookkeeping::PATHS;
use crate::model::{EntryType, Seq};
use crate::spelling::kubernetes::LabelSelector;
use table::Table;

/// Arguments of `decklog get`.
#[derive(Args, Debug)]
pub struct GetArgs {
    /// What to print, as kubectl spells it: deploy/web or deploy web; several of them; all of a kind: deploy, deploy,pods, 'pods/web-*'
    #[arg(value_name = "KIND[/NAME]", required = true)]
    pub objects: Vec<String>,
    /// Only these namespaces: shop, or shop,pay
    #[arg(short, long, value_name = "NS", value_delimiter = ',')]
    pub namespace: Vec<String>,
    /// All namespaces, which is the default
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub all_namespaces: bool,
    /// Only objects with these labels: app=web, 'env in (prod,qa)', '!legacy'
    #[arg(short = 'l', long, value_name = "LABELS", value_parser = labels)]
    pub selector: Option<LabelSelector>,
    /// As it was: right after an entry (its seq), so long ago (10m), or at a time: 10:30, 'yesterday 10:30', '2026-11-21 10:30', RFC 3339
    #[arg(long, value_name = "TIME or SEQ", value_parser = at, allow_hyphen_values = true)]
    pub at: Option<At>,
    /// Without status and what the server sets, for `kubectl apply -f -`
    #[arg(long)]
    pub clean: bool,
    /// With managedFields, which YAML leaves out and JSON does not
    #[arg(long)]
    pub show_managed_fields: bool,
}

/// Fields that the API server maintains beside the bookkeeping of every write, and fields that would keep it from accepting the
/// object.
const SERVERS: [&[&str]; 10] = [
    &["status"],
    &["metadata", "uid"],
    &["metadata", "creationTimestamp"],
    &["metadata", "selfLink"],
    &["metadata", "deletionTimestamp"],
    &["metadata", "deletionGracePeriodSeconds"],
    // The books of controllers.
    &["metadata", "annotations", "deployment.kubernetes.io/revision"],
    &["metadata", "annotations", "deprecated.daemonset.template.generation"],
    &["metadata", "annotations", "pv.kubernetes.io/bind-completed"],
    &["metadata", "annotations", "pv.kubernetes.io/bound-by-controller"],
];

/// Fields that the API server sets in a Job to tie Pods to it: the uid of this Job, so it accepts them from no other.
const TIES: [&[&str]; 5] = [
    &["spec", "selector"],
    &["spec", "template", "metadata", "labels", "controller-uid"],
    &["spec", "template", "metadata", "labels", "batch.kubernetes.io/controller-uid"],
    &["metadata", "labels", "controller-uid"],
    &["metadata", "labels", "batch.kubernetes.io/controller-uid"],
];

/// State of an object at the requested moment.
enum Known {
    /// It was this.
    Is(Box<Found>),
    /// It was not there, for this reason where one was asked for.
    Not(Option<String>),
}

/// An object as it was.
struct Found {
    row: ObjectRow,
    object: Bytes,
    /// Pointers of redacted values.
    redacted: Vec<String>,
    /// Seq and time of the last change, as far as the log has it.
    changed: Option<(Seq, Option<Timestamp>)>,
}

/// Prints one object as YAML, or several as a table.
///
/// # Errors
/// Exit 1 where there was none, with when it came and went.
pub fn main(args: GetArgs, global: &Global, out: &mut Out) -> Outcome {
    let (mut reader, dir) = global.reader()?;
    let wanted = Wanted::read(&args, &mut reader)?;
    let format = global.output.unwrap_or(if wanted.one { Format::Yaml } else { Format::Line });
    let mut rows = wanted.rows;
    let place = match args.at {
        Some(at) if wanted.one => Some(object::place_of(&mut reader, &mut rows, at)?),
        Some(at) => {
            if let At::Time(time) | At::Ago(time) = at {
                object::not_before_all(&reader, time)?;
            }
            Some(object::place(&mut reader, at)?)
        }
        None => None,
    };
    let mut printer = Printer { format, args: &args, table: Table::new(&mut reader, place)?, first: true };
    let (mut found, mut reasons) = (Vec::new(), Vec::new());
    for row in &rows {
        match look(&mut reader, row, place, wanted.one)? {
            Known::Not(reason) => reasons.extend(reason),
            Known::Is(is) if !wanted.one => {
                if args.selector.as_ref().is_none_or(|labels| labels.takes(&labels_of(&is.object))) {
                    printer.print(out, &is)?;
                }
            }
            Known::Is(is) => found.push(is),
        }
    }
    if found.len() > 1 {
        return Err(object::several(&args.objects.join(" "), found.iter().map(|found| &found.row)));
    }
    for one in found {
        rows = vec![one.row.clone()];
        printer.print(out, &one)?;
    }
    if printer.first {
        let when = if args.at.is_some() { "then" } else { "now" };
        let none = format!("there is no {} {when}, as far as the journal knows", wanted.asked);
        return Err(Failure::no(if reasons.is_empty() { none } else { reasons.join("; ") }));
    }
    for note in notes(&mut reader, &dir, &rows, place)? {
        complain(&format!("note: {note}"));
    }
    printer.end(out)?;
    out.flush()?;
    Ok(Exit::Done)
}

/// Request of the command.
struct Wanted {
    rows: Vec<ObjectRow>,
    /// One object, by its name.
    one: bool,
    asked: String,
}

impl Wanted {
    fn read(args: &GetArgs, reader: &mut Reader) -> Result<Self, Failure> {
        let words = words(&args.objects)?;
        let spellings = Spellings::load(reader)?;
        let (mut rows, mut seen) = (Vec::new(), BTreeSet::new());
        let several = args.selector.is_some() || args.all_namespaces || args.namespace.len() > 1;
        let mut one = words.len() == 1 && !several;
        object::namespaces(reader, &args.namespace)?;
        for text in &words {
            let named = spellings.read(text)?;
            let found = match named.name.as_deref() {
                Some(name) if !name.contains(['*', '?']) => object::known(reader, text, &named, &args.namespace)?,
                pattern => {
                    one = false;
                    let mut found = Vec::new();
                    for (id, _) in &named.resources {
                        found.extend(object::of_resource(reader, *id, &args.namespace, pattern)?);
                    }
                    found
                }
            };
            let mut new = |row: &ObjectRow| seen.insert((row.resource_id, row.namespace.clone(), row.name.clone()));
            rows.extend(found.into_iter().filter(&mut new));
        }
        let mut asked = words.join(", ");
        if !args.namespace.is_empty() {
            asked.push_str(&format!(" in {}", args.namespace.join(", ")));
        }
        if args.selector.is_some() {
            asked.push_str(" with these labels");
        }
        Ok(Self { rows, one, asked })
    }
}

/// KIND or KIND/NAME for each of what the command line names: `deploy/web pods/x`, `deploy,pods`, or `deploy web api`.
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

/// Returns notes about uncovered times and resources that are no longer watched.
fn notes(reader: &mut Reader, dir: &Path, rows: &[ObjectRow], place: Option<Moment>) -> Result<Vec<String>, Failure> {
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
    let mut notes = Vec::new();
    for (id, _, namespace) in scopes {
        if let Some(place) = place {
            notes.extend(object::doubt(reader, id, namespace.as_deref(), place, moment)?);
        }
    }
    // Right after an entry everything is as the entry says.
    if place.is_none_or(|place| place.time.is_some()) {
        notes.extend(about.coverage(reader, dir, moment)?.notes().map(str::to_owned));
    }
    Ok(notes)
}

/// Prints objects in the format asked for.
struct Printer<'a> {
    format: Format,
    args: &'a GetArgs,
    table: Table,
    first: bool,
}

impl Printer<'_> {
    fn print(&mut self, out: &mut Out, found: &Found) -> Result<(), Failure> {
        let first = std::mem::replace(&mut self.first, false);
        match self.format {
            Format::Line | Format::Wide => self.table.add(found),
            Format::Name => out.line(&printable(&spelled(&found.row)))?,
            Format::Json => out.json(&self.told(found)?)?,
            Format::Yaml => {
                if !first {
                    out.line("---")?;
                }
                out.bytes(yaml::from_json(&self.told(found)?).map_err(|error| damaged(&error))?.as_bytes())?;
            }
        }
        Ok(())
    }

    fn end(&self, out: &mut Out) -> Result<(), Failure> {
        let namespaces = self.args.namespace.len() != 1;
        for line in self.table.lines(out.look, namespaces, self.format == Format::Wide) {
            out.line(&line)?;
        }
        Ok(())
    }

    /// The object without what was not asked for.
    fn told(&self, found: &Found) -> Result<Bytes, Failure> {
        if self.args.clean {
            return cleaned(found);
        }
        if self.format == Format::Json || self.args.show_managed_fields {
            return Ok(found.object.clone());
        }
        let mut node = Node::parse(&found.object).map_err(|error| damaged(&error))?;
        node.without(&[&["metadata", "managedFields"]]);
        Ok(node.json().into())
    }
}

fn damaged(why: &dyn std::fmt::Display) -> Failure {
    Failure::new(Exit::Io, format!("the stored object is damaged ({why}); run `decklog verify`"))
}

/// `deployment.apps/web`, as `kubectl get -o name` has it.
fn spelled(row: &ObjectRow) -> String {
    let kind = row.resource.kind.to_lowercase();
    match row.resource.group.as_str() {
        "" => format!("{kind}/{}", row.name),
        group => format!("{kind}.{group}/{}", row.name),
    }
}

/// The object as somebody would apply it.
fn cleaned(found: &Found) -> Result<Bytes, Failure> {
    let mut node = Node::parse(&found.object).map_err(|error| damaged(&error))?;
    node.without(&PATHS);
    node.without(&SERVERS);
    if found.row.resource.full_name() == "jobs.batch" && !manual(&found.object) {
        node.without(&TIES);
    }
    node.without_empty(&["metadata", "annotations"]);
    let left: Vec<&str> = found.redacted.iter().map(String::as_str).filter(|at| node.has(at)).collect();
    if !left.is_empty() {
        complain(&format!(
            "note: these values are redacted, put the real ones in before applying: {}",
            left.join(", ")
        ));
    }
    Ok(node.json().into())
}

/// Reports whether the selector of a Job was chosen by a person. The API server generates it, unless the Job says otherwise.
fn manual(job: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Job {
        spec: Spec,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Spec {
        manual_selector: Option<bool>,
    }
    serde_json::from_slice::<Job>(job).is_ok_and(|job| job.spec.manual_selector == Some(true))
}

fn look(reader: &mut Reader, row: &ObjectRow, place: Option<Moment>, why: bool) -> Result<Known, Failure> {
    let stored = match place {
        None if !why && !row.present => return Ok(Known::Not(None)),
        None => {
            if let Some((object, redacted)) = reader.unrecorded(row)? {
                let step = reader.step(row, Seq(u64::MAX))?;
                let changed = step.map(|step| (step.seq, Timestamp::from_microsecond(step.time).ok()));
                return Ok(Known::Is(Found { row: row.clone(), object, redacted, changed }.into()));
            }
            reader.entry_at(row, Seq(u64::MAX))?
        }
        Some(place) => {
            let (place, note) = object::happened_by(reader, row, place)?;
            if let Some(note) = note.filter(|_| why) {
                complain(&format!("note: {note}"));
            }
            reader.entry_at(row, place.seq)?
        }
    };
    let Some(stored) = stored else {
        return Ok(Known::Not(if why { Some(object::not_yet(reader, row, place)?) } else { None }));
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
            object::time_of(&entry),
            stored.seq,
        ))));
    }
    let redacted = entry.redacted.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default();
    let changed = Some((stored.seq, Some(object::when(&entry))));
    match entry.object {
        Some(object) => {
            let object = stored.line.slice_ref(object.get().as_bytes());
            Ok(Known::Is(Found { row: row.clone(), object, redacted, changed }.into()))
        }
        None => Err(object::damaged(stored.seq, &"it has no object")),
    }
}
