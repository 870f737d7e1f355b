//! `decklog show`: one entry, as people read it.

use clap::Args;

use super::clock::clock;
use super::diff::put_tree;
use super::line::put_gap;
use super::output::{Ink, Out, Row, printable};
use super::what::AnnotatedEntry;
use super::{Failure, Format, Global, Outcome, object, who, yaml};
use crate::core::k8s::audited::Actor;
use crate::core::model::{EntryType, Seq};
use crate::journal::StoredEntry;
use crate::query::line::Line;
use crate::query::questions::show::{Show, Shown};

/// Arguments of `decklog show`.
#[derive(Args, Debug)]
pub struct ShowArgs {
    /// The entry, by its seq, the number that `tail` and `log` print first
    #[arg(value_name = "SEQ", value_parser = seq)]
    pub seq: u64,
}

fn seq(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "expected a seq such as 1234".to_owned())
}

/// Prints the entry.
///
/// # Errors
/// Exit 1 where there is no such entry, with those that there are.
pub fn main(args: ShowArgs, global: &Global) -> Outcome {
    let mut out = Out::new(global);
    global.ask(Show { seq: Seq(args.seq) }, &mut |shown| {
        let Shown { entry: Line(stored), actor, beyond } = shown;
        match global.output.unwrap_or(Format::Line) {
            Format::Line | Format::Wide | Format::Name => print(&mut out, &stored, actor.as_ref(), &beyond)?,
            Format::Json => out.json(&stored.line)?,
            Format::Yaml => {
                let text = yaml::from_json(&stored.line).map_err(|error| object::damaged(stored.seq, &error))?;
                out.bytes(text.as_bytes())?;
            }
        }
        out.flush()
    })
}

fn print(out: &mut Out, stored: &StoredEntry, sender: Option<&Actor>, beyond: &str) -> Result<(), Failure> {
    let entry = object::parse(stored)?;
    let look = out.look;
    let mut head = Row::new(look);
    head.uncut();
    head.hang(2);
    head.put(Some(Ink::Faint), &format!("entry {} ", entry.seq));
    let ink = match entry.op {
        EntryType::Added => Ink::Good,
        EntryType::Modified => Ink::Change,
        EntryType::Deleted => Ink::Bad,
        EntryType::Gap => Ink::Alarm,
        EntryType::Actor => Ink::Who,
    };
    head.put(Some(ink), entry.op.as_str());
    head.put(None, " ").put(None, &printable(&entry.full_resource()));
    if let Some(name) = &entry.name {
        head.put(None, "/").put(Some(Ink::Strong), &printable(name));
    }
    if let Some(namespace) = &entry.namespace {
        head.put(None, &printable(&format!(" in namespace {namespace}")));
    }
    out.line(&head.finish())?;
    let mut facts = vec![
        ("time", object::time_of(&entry, clock())),
        ("happened", object::happened(&entry, clock()).unwrap_or_default()),
        ("known by", entry.evidence.as_deref().unwrap_or_default().to_owned()),
        ("version", entry.resource_version.as_deref().unwrap_or_default().to_owned()),
        ("id", entry.id.to_string()),
    ];
    let described = entry.op.is_change().then(|| AnnotatedEntry::read(&entry));
    let described = described.transpose().map_err(|why| object::damaged(stored.seq, &why))?;
    if let Some(described) = &described {
        facts.push(("changed", described.areas.join(" ")));
        let by = match described.unnamed {
            Some(why) => why.sentence(beyond),
            None => who::spell(&described.managers, true),
        };
        facts.push(("by", by));
        if let Some(actor) = sender {
            facts.extend(who::facts_of(actor));
        }
    }
    if let Some((of, actor)) = entry.of.as_ref().zip(entry.actor()) {
        facts.push(("made", format!("entry {} ({})", of.seq, of.id)));
        facts.extend(who::facts_of(&actor));
    }
    for (title, text) in facts.iter().filter(|(_, text)| !text.is_empty()) {
        let mut row = Row::new(look);
        row.uncut();
        row.hang(10);
        row.put(Some(Ink::Faint), title).to(10).put(None, &printable(text));
        out.line(&row.finish())?;
    }
    let Some(described) = described else {
        let mut row = Row::new(look);
        row.uncut();
        if entry.op == EntryType::Actor {
            return Ok(());
        }
        put_gap(&mut row, &entry, clock());
        return out.line(&row.finish());
    };
    out.line("")?;
    put_tree(out, described.tree)
}
