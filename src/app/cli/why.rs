//! `decklog why`: from a field to the program, the run of the tool behind it, the revision and the person.

use clap::Args;

use super::clock::clock;
use super::names::{At, at};
use super::output::{Ink, Out, printable, sentence};
use super::path::{object_and_paths, spelled};
use super::who;
use super::{Failure, Format, Global, Outcome};
use crate::query::provenance::words;
use crate::query::questions::why::{Explained, Explanation, Why};

/// Arguments of `decklog why`.
#[derive(Args, Debug)]
pub struct WhyArgs {
    /// The object, as kubectl spells it: deploy/web, deployments.apps/web
    #[arg(value_name = "KIND/NAME")]
    pub object: String,
    /// The fields to explain.
    #[arg(
        value_name = "FIELD",
        help = "The fields to explain: .spec.replicas, '.spec.template.spec.containers[*].image', /spec/replicas, image [default: all but the status]"
    )]
    pub fields: Vec<String>,
    /// Its namespace; not needed where only one namespace has such an object
    #[arg(short, long, value_name = "NS", value_delimiter = ',')]
    pub namespace: Vec<String>,
    /// State at a moment: right after an entry (its seq), a duration back (10m), or a time (10:30, 'yesterday 10:30', '2026-11-21 10:30', RFC 3339)
    #[arg(long, value_name = "TIME or SEQ", value_parser = at, allow_hyphen_values = true)]
    pub at: Option<At>,
}

/// Number of fields of one write that are listed.
const FIELDS: usize = 4;

/// Prints where the fields of an object come from.
///
/// # Errors
/// Exit 1 where the object did not exist, with when it came and went.
pub fn main(args: WhyArgs, global: &Global, out: &mut Out) -> Outcome {
    let (_, paths) = object_and_paths(&args.object, &args.fields).map_err(Failure::usage)?;
    let most = if paths.is_empty() { FIELDS } else { usize::MAX };
    let question = Why { object: args.object, paths: args.fields, namespaces: args.namespace, at: args.at };
    global.ask(question, &mut |found| {
        match global.output.unwrap_or(Format::Line) {
            Format::Line | Format::Wide | Format::Name => print(out, &found, most)?,
            format @ (Format::Json | Format::Yaml) => out.document(format, &found)?,
        }
        out.flush()
    })
}

fn print(out: &mut Out, found: &Explanation, most: usize) -> Result<(), Failure> {
    let look = out.look;
    for (at, write) in found.writes.iter().enumerate() {
        if at > 0 {
            out.line("")?;
        }
        for field in write.fields.iter().take(most) {
            let text = format!("{}: {}", spelled(&field.path), field.value.get());
            out.line(&sentence(look, 2, Some(Ink::Strong), &printable(&text)))?;
        }
        match write.fields.len().saturating_sub(most) {
            0 => {}
            1 => out.inked(Ink::Strong, "and another field")?,
            more => out.inked(Ink::Strong, &format!("and {more} other fields"))?,
        }
        for line in chain(write) {
            out.line(&sentence(look, 4, None, &printable(&format!("  {line}"))))?;
        }
        let ends = format!("  {}", write.provenance.ends.text);
        out.line(&sentence(look, 4, Some(Ink::Faint), &printable(&ends)))?;
    }
    Ok(())
}

/// One line from the entry to the person, or one for each that it may be.
fn chain(write: &Explained) -> Vec<String> {
    let mut line = write.seq.map_or_else(|| "no entry".to_owned(), |seq| format!("entry {seq}"));
    if !write.time.is_empty() {
        let stamp = clock().stamp(&write.time);
        line.push_str(&format!(", {}{} {}", write.set.mark().trim(), stamp.date, stamp.time));
    }
    for via in &write.via {
        let seq = via.seq.map_or_else(String::new, |seq| format!(" (entry {seq})"));
        line.push_str(&format!(", from {} {}{seq}", via.kind, words::full(&via.namespace, &via.name)));
    }
    if !write.managers.is_empty() {
        line.push_str(&format!(": {}", who::spell(&write.managers, false)));
    }
    if let Some(actor) = &write.actor {
        line.push_str(&format!(", by {}", who::sender(actor)));
    }
    for note in &write.notes {
        line.push_str(&format!(", {note}"));
    }
    let mut lines = words::lines(&write.provenance, clock());
    match lines.first_mut() {
        Some(first) => *first = format!("{line}, {first}"),
        None => lines.push(line),
    }
    lines
}
