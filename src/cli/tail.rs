//! `decklog tail`: prints the log, newest last, and follows it.

use clap::Args;

use super::clock::moment;
use super::coverage::{About, Coverage};
use super::follow::Follow;
use super::line::{Lines, gap_of};
use super::output::{Out, plural};
use super::select::{SelectArgs, Selection, how_many};
use super::{Exit, Failure, Format, Global, Outcome, complain, object, yaml};
use crate::journal::{Reader, StoredEntry};
use crate::model::Seq;
use crate::wire::EntryError;

/// Default number of entries.
const LAST: usize = 10;

/// Note that there may be more matching entries.
const CUT: &str =
    "note: these are the newest 10 that fit; --since WHEN prints all of them since then, --last COUNT so many";

/// Arguments of `decklog tail`.
#[derive(Args, Debug)]
pub struct TailArgs {
    /// Which entries.
    #[command(flatten)]
    pub select: SelectArgs,
    /// Go on with entries as they come
    #[arg(short, long, conflicts_with = "until")]
    pub follow: bool,
    /// Only the newest so many [default: 10; after --since all of them]
    #[arg(long, value_name = "COUNT", value_parser = how_many)]
    pub last: Option<usize>,
    /// Newest first
    #[arg(short, long, conflicts_with = "follow")]
    pub reverse: bool,
}

/// Prints the log.
///
/// # Errors
/// Where the journal cannot be read or the arguments name what it does not know.
pub fn main(args: TailArgs, global: &Global) -> Outcome {
    let (mut reader, dir) = global.reader()?;
    // Before the first read, so that no commit falls between reading and following.
    let mut follow = if args.follow { Some(Follow::new(&reader, &dir)?) } else { None };
    let mut select = args.select;
    select.waits = args.follow;
    let selection = Selection::new(&select, &mut reader)?;
    let about = About::of(&select, &reader)?;
    let coverage = about.coverage(&mut reader, &dir, moment)?;
    if args.follow {
        coverage.complain_of_start();
    }
    let mut out = Out::new(global);
    let mut printer = Printer::new(&out, global, &reader)?;

    let begin = selection.begin(&reader)?;
    // What comes while the newest are counted is not among them.
    let mut head = reader.head()?;
    let count = args.last.or_else(|| select.only.since.is_none().then_some(LAST));
    // Who asks for some entries may take what is printed for all of them.
    let cuts = args.last.is_none() && count.is_some() && select.picks();
    if args.reverse {
        let mut left = count.unwrap_or(usize::MAX);
        let (mut before, mut more) = (head.next(), false);
        while left > 0 && before > begin.next() {
            let (entries, reached) = selection.page_back(&mut reader, begin, before)?;
            for entry in entries.iter().take(left) {
                printer.print(&mut out, entry)?;
            }
            more = entries.len() > left || reached > begin.next();
            left = left.saturating_sub(entries.len());
            before = reached;
        }
        printer.print_gaps(&mut out)?;
        out.flush()?;
        if printer.first && args.last != Some(0) {
            nothing(head, &about, &coverage, &mut reader)?;
        }
        if cuts && left == 0 && more {
            complain(CUT);
        }
        coverage.complain();
        return Ok(Exit::Done);
    }
    let mut after = match count {
        Some(count) => selection.newest(&mut reader, begin, head, count)?,
        None => begin,
    };
    let cut = cuts && after > begin;
    loop {
        while after < head {
            let (entries, reached) = selection.page(&mut reader, after, head)?;
            for entry in &entries {
                printer.print(&mut out, entry)?;
            }
            after = reached;
        }
        printer.print_gaps(&mut out)?;
        out.flush()?;
        let Some(follow) = &mut follow else {
            if printer.first && args.last != Some(0) {
                nothing(head, &about, &coverage, &mut reader)?;
            }
            if cut {
                complain(CUT);
            }
            coverage.complain();
            return Ok(Exit::Done);
        };
        follow.wait(&reader)?;
        let oldest = reader.oldest()?;
        if oldest > after.next() {
            let missed = plural(oldest.0 - after.0 - 1, "entry was", "entries were");
            complain(&format!(
                "{missed} removed by retention before they could be printed (up to seq {})",
                oldest.0 - 1
            ));
        }
        head = reader.head()?;
    }
}

/// Says that nothing was printed, and for which time that is known.
fn nothing(head: Seq, about: &About, coverage: &Coverage, reader: &mut Reader) -> Result<(), Failure> {
    if head == Seq(0) {
        complain("the journal has no entries yet");
        return Ok(());
    }
    about.complain_of_nothing("no entry", coverage, reader)
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
    fn new(out: &Out, global: &Global, reader: &Reader) -> Result<Self, Failure> {
        let format = global.output.unwrap_or(Format::Line);
        let mut lines = Lines::new(out.look, reader.head()?.0);
        lines.learn(reader)?;
        Ok(Self { format, lines, first: true, gaps: Vec::new() })
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
