//! `decklog tail`: prints the log, newest last, and follows it.

use clap::Args;

use super::line::{Lines, gap_of};
use super::output::Out;
use super::select::{SelectArgs, how_many};
use super::{Exit, Failure, Format, Global, Outcome, object, yaml};
use crate::core::wire::EntryError;
use crate::journal::StoredEntry;
use crate::query::line::Line;
use crate::query::questions::tail::{Item, Tail};

/// Arguments of `decklog tail`.
#[derive(Args, Debug)]
pub struct TailArgs {
    /// Which entries.
    #[command(flatten)]
    pub select: SelectArgs,
    /// Print new entries as they arrive
    #[arg(short, long, conflicts_with = "until")]
    pub follow: bool,
    /// The newest COUNT entries [default: 10; with --since all]
    #[arg(long, value_name = "COUNT", value_parser = how_many)]
    pub last: Option<usize>,
    /// Newest first
    #[arg(short, long, conflicts_with = "follow")]
    pub reverse: bool,
    /// Show every entry; by default a storage rewrite, which changes nothing in many objects, is one line
    #[arg(long)]
    pub all: bool,
}

/// Prints the log.
///
/// # Errors
/// Where the journal cannot be read or the arguments name what it does not know.
pub fn main(args: TailArgs, global: &Global) -> Outcome {
    let mut out = Out::new(global);
    let mut printer = Printer::new(&out, global);
    let folds = !args.all && !matches!(printer.format, Format::Json | Format::Yaml);
    let question = Tail {
        select: args.select.select(),
        follow: args.follow,
        last: args.last,
        reverse: args.reverse,
        folds,
        before: None,
    };
    global.ask(question, &mut |item| printer.item(&mut out, item))
}

/// Prints entries in the format asked for.
struct Printer {
    format: Format,
    lines: Lines,
    first: bool,
    /// Gaps of one reason, one after the other, that are not printed yet: an outage makes one of each source.
    gaps: Vec<StoredEntry>,
}

impl Printer {
    fn new(out: &Out, global: &Global) -> Self {
        let format = global.output.unwrap_or(Format::Line);
        Self { format, lines: Lines::new(out.look, 0), first: true, gaps: Vec::new() }
    }

    fn item(&mut self, out: &mut Out, item: Item) -> Result<(), Failure> {
        match item {
            Item::Begin { head, resources } => {
                self.lines = Lines::new(out.look, head.0);
                self.lines.learn(&resources);
                Ok(())
            }
            Item::Entry(Line(entry)) => self.print(out, &entry),
            Item::Rewrite(rewrite, Line(last)) => {
                self.print_gaps(out)?;
                self.first = false;
                out.line(&self.lines.rewrite(&object::parse(&last)?, &rewrite))
            }
            Item::Pause => {
                self.print_gaps(out)?;
                out.flush()
            }
        }
    }

    /// Prints what was kept back.
    fn print_gaps(&mut self, out: &mut Out) -> Result<(), Failure> {
        let gaps = std::mem::take(&mut self.gaps);
        let damaged = |why: EntryError| object::damaged(gaps[0].seq, &why);
        if let Some(line) = self.lines.gaps(gaps.iter().map(|gap| &*gap.line)).map_err(damaged)? {
            return out.line(&line);
        }
        for gap in &gaps {
            out.line(&self.lines.render(&gap.line).map_err(damaged)?)?;
        }
        Ok(())
    }

    fn print(&mut self, out: &mut Out, entry: &StoredEntry) -> Result<(), Failure> {
        let first = std::mem::replace(&mut self.first, false);
        let damaged = |why: &dyn std::fmt::Display| {
            Failure::new(Exit::Io, format!("entry {} is damaged ({why}); run `decklog verify`", entry.seq))
        };
        match self.format {
            Format::Line | Format::Wide | Format::Name => {
                // Elsewhere each line stands alone, to be searched and sorted.
                if out.look.terminal
                    && let Some(why) = gap_of(entry)
                {
                    if self.gaps.last().and_then(gap_of).is_some_and(|last| last != why) {
                        self.print_gaps(out)?;
                    }
                    self.gaps.push(entry.clone());
                    return Ok(());
                }
                self.print_gaps(out)?;
                out.line(&self.lines.render(&entry.line).map_err(|error| damaged(&error))?)
            }
            Format::Json => out.json(&entry.line),
            Format::Yaml => {
                if !first {
                    out.line("---")?;
                }
                out.bytes(yaml::from_json(&entry.line).map_err(|error| damaged(&error))?.as_bytes())
            }
        }
    }
}
