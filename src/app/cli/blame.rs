//! `decklog blame`: each field of an object, with who set it last, when, and in which entry.

use std::collections::BTreeSet;

use clap::Args;
use serde::Serialize;

use super::clock::{Stamp, clock};
use super::names::{At, at};
use super::output::{Ink, Out, Row, printable};
use super::path::{object_and_paths, prune};
use super::tree::Node;
use super::who;
use super::yaml::{self, View};
use super::{Failure, Format, Global, Outcome};
use crate::core::k8s::managed_fields::By;
use crate::query::coverage::Uncovered;
use crate::query::questions::blame::{Blame, Blamed};
use crate::query::render::blame::{Field, Set};

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
    /// State at a moment: right after an entry (its seq), a duration back (10m), or a time (10:30, 'yesterday 10:30', '2026-11-21 10:30', RFC 3339)
    #[arg(long, value_name = "TIME or SEQ", value_parser = at, allow_hyphen_values = true)]
    pub at: Option<At>,
}

/// The answer as JSON.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Document<'a> {
    api_version: &'a str,
    kind: &'a str,
    resource: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    namespace: &'a str,
    name: &'a str,
    uid: &'a str,
    gaps: usize,
    fields: &'a [Field],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    uncovered: &'a [Uncovered],
}

impl<'a> Document<'a> {
    fn of(found: &'a Blamed) -> Self {
        Self {
            api_version: &found.api_version,
            kind: &found.kind,
            resource: &found.resource,
            namespace: &found.namespace,
            name: &found.name,
            uid: &found.uid,
            gaps: found.gaps,
            fields: &found.fields,
            uncovered: &found.uncovered,
        }
    }
}

/// Prints who set what.
///
/// # Errors
/// Exit 1 where the object did not exist, with when it came and went.
pub fn main(args: BlameArgs, global: &Global, out: &mut Out) -> Outcome {
    let (_, paths) = object_and_paths(&args.object, &args.paths).map_err(Failure::usage)?;
    let question = Blame { object: args.object, paths: args.paths, namespaces: args.namespace, at: args.at };
    global.ask(question, &mut |found| {
        match global.output.unwrap_or(Format::Line) {
            Format::Line | Format::Wide | Format::Name => {
                let damaged = |error: serde_json::Error| Failure::io("the object cannot be read", &error.into());
                let mut node = Node::parse(found.object.as_bytes()).map_err(damaged)?;
                node.without(&[&["metadata", "managedFields"]]);
                if !paths.is_empty() {
                    prune(&mut node, &paths);
                }
                node.number(&mut 0);
                print(out, &node, &found.fields)?;
            }
            format @ (Format::Json | Format::Yaml) => out.document(format, &Document::of(&found))?,
        }
        out.flush()
    })
}

/// Width of the column of managers at most; a longer name is printed whole, and the field below it.
const WIDEST_MANAGER: usize = 40;
/// On a terminal with fewer columns everything is shorter.
const NARROW: usize = 100;
const NARROW_MANAGER: usize = 26;

/// The user of a field, where the audit log has one, and its managers.
fn names_of(field: &Field) -> String {
    let names = match &field.unnamed {
        _ if !field.managers.is_empty() => who::short(&field.managers),
        Some(why) => format!("({})", printable(why)),
        None => "-".to_owned(),
    };
    match &field.actor {
        Some(actor) => format!("{} {names}", printable(&actor.sender.user)),
        None => names,
    }
}

fn print(out: &mut Out, node: &Node<'_>, fields: &[Field]) -> Result<(), Failure> {
    let look = out.look;
    let narrow = look.width.is_some_and(|width| width < NARROW);
    let bound = if narrow { NARROW_MANAGER } else { WIDEST_MANAGER };
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
            (seq, format!("{mark}{}", time_of(stamp)), names_of(field))
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
        let start = seq_width + time_width + who_width + 4;
        let mut row = Row::new(look);
        if let Some((seq, time, manager)) = line.origin.and_then(|origin| cells.get(origin)) {
            let is_long = look.terminal && manager.chars().count() > who_width;
            if is_long {
                row.uncut();
            }
            row.put(Some(Ink::Faint), &format!("{seq:>seq_width$} "));
            row.put(Some(Ink::Faint), &format!(" {time:<time_width$} "));
            row.put(Some(Ink::Change), manager);
            if is_long {
                out.line(&row.finish())?;
                row = Row::new(look);
            }
        }
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
