//! `decklog log`: the life of one object, newest first, over all its incarnations; with `--tree` also of what it owns. Without
//! an object, what changed in a namespace or everywhere.

use clap::Args;

use super::clock::clock;
use super::diff::put_tree;
use super::line::{FEW_GAPS, Lines, gap_of, marks, put_gap, put_gaps, put_late, shown};
use super::output::{Ink, Out, Row, printable, sentence};
use super::rewrite::STORAGE_REWRITE;
use super::select::{FilterArgs, how_many};
use super::tree::Node;
use super::what::AnnotatedEntry;
use super::who;
use super::{Exit, Failure, Format, Global, Outcome, causes, object, yaml};
use crate::core::k8s::audited::Actor;
use crate::core::model::EntryType;
use crate::core::wire::{self, Entry};
use crate::journal::StoredEntry;
use crate::query::line::Line;
use crate::query::provenance::words;
use crate::query::questions::history::{Family, History, Item, Run};

/// Arguments of `decklog log`.
#[derive(Args, Debug)]
pub struct LogArgs {
    /// The object, as kubectl spells it: deploy/web, deployments.apps/web [default: the changes of the last hour in
    /// the namespaces, or everywhere, with their writers and effects]
    #[arg(value_name = "KIND/NAME")]
    pub object: Option<String>,
    /// Its name, where the first word is its kind alone.
    #[arg(hide = true)]
    pub name: Option<String>,
    /// Which of its entries.
    #[command(flatten)]
    pub only: FilterArgs,
    /// Show the changes of each step, as YAML
    #[arg(short, long)]
    pub patch: bool,
    /// Include everything that it owns: Deployment, ReplicaSets, Pods; without an object, each change below its cause
    #[arg(long)]
    pub tree: bool,
    /// Show every change; by default successive status updates are one line, and so are the effects of a cause
    #[arg(long)]
    pub all: bool,
    /// Only changes of these parts: spec, status, metadata, data or another top-level one
    #[arg(long = "only", value_name = "AREA", value_delimiter = ',')]
    pub areas: Vec<String>,
    /// The newest COUNT lines
    #[arg(long, value_name = "COUNT", value_parser = how_many)]
    pub last: Option<usize>,
    /// Oldest first
    #[arg(short, long)]
    pub reverse: bool,
}

/// Prints the history.
///
/// # Errors
/// Exit 1 where the journal has no entry of the object, and 64 where the name is that of several.
pub fn main(mut args: LogArgs, global: &Global, out: &mut Out) -> Outcome {
    let Some(mut object) = args.object.take() else {
        let LogArgs { only, areas, patch, tree, all, last, reverse, .. } = &args;
        let asked =
            causes::Asked { only, areas, patch: *patch, tree: *tree, all: *all, last: *last, reverse: *reverse };
        return causes::main(asked, global, out);
    };
    if let Some(name) = args.name.take() {
        object = format!("{object}/{name}");
    }
    let question = History {
        object,
        only: args.only.filters(),
        tree: args.tree,
        folds: global.output.unwrap_or(Format::Line) == Format::Line && !args.all,
        areas: args.areas.clone(),
        last: args.last,
        reverse: args.reverse,
        origins: args.patch && !matches!(global.output, Some(Format::Json | Format::Yaml)),
    };
    let (mut out, mut printer) = (Some(out), None);
    global.ask(question, &mut |item| match (item, &mut printer) {
        (Item::Begin(family), _) => {
            printer = out.take().map(|out| Printer::new(out, global, &args, family));
            Ok(())
        }
        (item, Some(printer)) => printer.item(item),
        (_, None) => Err(Failure::internal("an item comes before the first one")),
    })?;
    if let Some(mut printer) = printer {
        printer.print_gaps()?;
        printer.out.flush()?;
    }
    Ok(Exit::Done)
}

/// Names of objects that are longer push what follows to the right.
const WIDEST_NAME: usize = 36;

struct Printer<'o> {
    out: &'o mut Out,
    format: Format,
    patch: bool,
    /// Each line names its object, in a column so wide.
    names: Option<usize>,
    seq_width: usize,
    day: String,
    /// The object, and the uid of its newest incarnation.
    object: String,
    newest: String,
    /// `deploy/web` for each object.
    members: Vec<String>,
    /// The uid of the incarnation that is being printed.
    uid: String,
    first: bool,
    /// Gaps of one reason, one after the other, that are not printed yet: an outage makes one of each source.
    gaps: Vec<StoredEntry>,
    /// Sender of the entry that comes next.
    actor: Option<Actor>,
    /// What is behind that entry, a line each.
    origin: Vec<String>,
    /// Types that are printed; all if there are none.
    types: Vec<EntryType>,
    /// Lines of ACTORs where no changes are printed.
    lines: Lines,
}

impl<'o> Printer<'o> {
    fn new(out: &'o mut Out, global: &Global, args: &LogArgs, family: Family) -> Self {
        let (out_look, family_head) = (out.look, family.head.0);
        let widest = family.members.iter().map(|name| name.chars().count()).max().unwrap_or(0);
        Self {
            out,
            format: global.output.unwrap_or(Format::Line),
            patch: args.patch,
            names: args.tree.then_some(widest.min(WIDEST_NAME)),
            seq_width: family.head.to_string().len().max(4),
            day: String::new(),
            object: family.object,
            // Oldest first, a gap comes before the incarnation that it is part of.
            newest: if args.reverse { String::new() } else { family.uid },
            members: family.members,
            uid: String::new(),
            first: true,
            gaps: Vec::new(),
            actor: None,
            origin: Vec::new(),
            types: args.only.types.clone(),
            lines: Lines::new(out_look, family_head),
        }
    }

    fn item(&mut self, item: Item) -> Result<(), Failure> {
        match item {
            // There is one.
            Item::Begin(_) => Ok(()),
            Item::One(Line(stored), member) => self.one(stored, member),
            Item::Doubtful => {
                if let Some(actor) = &mut self.actor {
                    object::DOUBTFUL.clone_into(&mut actor.certainty);
                }
                Ok(())
            }
            Item::Origin(origin) => {
                self.origin = words::lines(&origin, clock());
                Ok(())
            }
            Item::Run(run) => {
                self.print_gaps()?;
                self.fold(&run)
            }
            Item::Removed(text) => {
                self.print_gaps()?;
                self.end(&text)
            }
        }
    }

    fn print(&mut self, stored: &StoredEntry, member: Option<usize>) -> Result<(), Failure> {
        let is_line = !matches!(self.format, Format::Json | Format::Yaml);
        if stored.op == EntryType::Actor && !is_line && !self.types.is_empty() && !self.types.contains(&stored.op) {
            return Ok(());
        }
        let first = std::mem::replace(&mut self.first, false);
        match self.format {
            Format::Json => self.out.json(&stored.line),
            Format::Yaml => {
                if !first {
                    self.out.line("---")?;
                }
                let text = yaml::from_json(&stored.line).map_err(|error| object::damaged(stored.seq, &error))?;
                self.out.bytes(text.as_bytes())
            }
            Format::Line | Format::Wide | Format::Name => self.line(stored, member, first),
        }
    }

    /// The beginning of a line, after the headings that it needs: seq and time. Also says where what follows the type
    /// stands.
    fn begin(&mut self, entry: &Entry<'_>, first: bool) -> Result<(Row, usize), Failure> {
        let look = self.out.look;
        // A gap that is newer than all entries belongs to the newest incarnation.
        let newest = self.uid.is_empty().then_some(self.newest.as_str());
        if self.names.is_none()
            && let Some(uid) = entry.uid.as_deref().or(newest)
            && uid != self.uid
        {
            // Another incarnation: nothing of the one has to do with the other.
            self.uid = uid.to_owned();
            if !first && !self.patch {
                self.out.line("")?;
            }
            let mut head = Row::new(look);
            head.put(Some(Ink::Strong), &printable(&self.object));
            head.put(Some(Ink::Faint), &printable(&format!(", uid {}", self.uid)));
            self.out.line(&head.finish())?;
            self.day.clear();
        }
        let (before, behind) = marks(entry, look);
        let stamp = shown(clock(), entry, look);
        let width = self.seq_width;
        let mut row = Row::new(look);
        if look.terminal {
            if stamp.day() != self.day {
                self.day = stamp.day();
                let mut head = Row::new(look);
                head.put(Some(Ink::Faint), &self.day);
                self.out.line(&head.finish())?;
            }
            row.put(Some(Ink::Faint), &format!("{:>width$}{before}{}", entry.seq, stamp.time));
        } else {
            row.put(Some(Ink::Faint), &format!("{:>width$} {}", entry.seq, stamp.whole));
        }
        row.put(Some(Ink::Faint), behind);
        let start = row.columns() + 9;
        row.hang(start + 2);
        Ok((row, start))
    }

    fn line(&mut self, stored: &StoredEntry, member: Option<usize>, first: bool) -> Result<(), Failure> {
        let entry = object::parse(stored)?;
        let kind = entry.op;
        if kind == EntryType::Actor {
            if self.types == [EntryType::Actor] {
                return self
                    .out
                    .line(&self.lines.render_entry(&entry).map_err(|error| object::damaged(stored.seq, &error))?);
            }
            (self.actor, self.first) = (entry.actor(), first);
            return Ok(());
        }
        let actor = self.actor.take();
        let ink = match kind {
            EntryType::Added => Ink::Good,
            EntryType::Modified => Ink::Change,
            EntryType::Deleted => Ink::Bad,
            EntryType::Gap => Ink::Alarm,
            EntryType::Actor => Ink::Who,
        };
        let (mut row, start) = self.begin(&entry, first)?;
        if kind == EntryType::Gap {
            // Never cut: it says what the log does not know.
            row.uncut();
        }
        row.put(Some(ink), kind.as_str()).to(start);
        if let (Some(widest), Some(member)) = (self.names, member) {
            row.put(Some(Ink::Strong), &printable(self.name(member))).to(start + widest + 1);
        }
        if kind == EntryType::Gap {
            if self.names.is_some() {
                row.put(None, &printable(&entry.full_resource())).put(None, " ");
            }
            put_gap(&mut row, &entry, clock());
            return self.out.line(&row.finish());
        }
        let described = AnnotatedEntry::read(&entry).map_err(|why| object::damaged(stored.seq, &why))?;
        described.put(&mut row, kind);
        // What the API server said on a watch is the rule and goes without saying.
        match (entry.evidence.as_deref(), kind) {
            (Some("watched") | None, _) => {}
            (Some("listed"), EntryType::Added) => {
                row.flow(None, "", "listed: it was there before the journal began to watch");
            }
            (Some("inferred"), EntryType::Added | EntryType::Deleted) => {
                row.flow(None, "", "inferred: it happened in the gap");
            }
            (Some(evidence), _) => {
                row.flow(None, "  ", &printable(evidence));
            }
        }
        put_late(&mut row, &entry, clock(), self.out.look);
        if let Some(actor) = actor {
            row.flow(Some(Ink::Who), "  ", &format!("by {}", who::sender(&actor)));
        }
        self.out.line(&row.finish())?;
        for line in std::mem::take(&mut self.origin) {
            self.out.line(&sentence(self.out.look, 4, Some(Ink::Who), &printable(&format!("  from {line}"))))?;
        }
        if self.patch {
            self.difference(described.tree)?;
        }
        Ok(())
    }

    fn name(&self, member: usize) -> &str {
        self.members.get(member).map_or("", String::as_str)
    }

    fn one(&mut self, stored: StoredEntry, member: Option<usize>) -> Result<(), Failure> {
        // As `tail` has it; one object has gaps of one source.
        if member.is_none()
            && self.format == Format::Line
            && self.names.is_some()
            && self.out.look.terminal
            && let Some(why) = gap_of(&stored)
        {
            if self.gaps.last().and_then(gap_of).is_some_and(|last| last != why) {
                self.print_gaps()?;
            }
            self.gaps.push(stored);
            return Ok(());
        }
        self.print_gaps()?;
        self.print(&stored, member)
    }

    /// Prints what was kept back.
    fn print_gaps(&mut self) -> Result<(), Failure> {
        let gaps = std::mem::take(&mut self.gaps);
        if gaps.len() < FEW_GAPS {
            return gaps.iter().try_for_each(|gap| self.print(gap, None));
        }
        let entries = gaps.iter().map(object::parse).collect::<Result<Vec<_>, _>>()?;
        let first = std::mem::replace(&mut self.first, false);
        let (mut row, start) = self.begin(&entries[0], first)?;
        row.uncut();
        row.put(Some(Ink::Alarm), EntryType::Gap.as_str()).to(start);
        put_gaps(&mut row, &entries, clock());
        self.out.line(&row.finish())
    }

    /// A run of changes, as one line; one alone as it is.
    fn fold(&mut self, run: &Run) -> Result<(), Failure> {
        let Line(newest) = &run.newest;
        if run.is_rewrite {
            return self.rewrite(run);
        }
        if run.count == 1 {
            return self.print(newest, Some(run.member));
        }
        let first = std::mem::replace(&mut self.first, false);
        let entry = object::parse(newest)?;
        let (mut row, start) = self.begin(&entry, first)?;
        row.put(Some(Ink::Faint), "…").to(start);
        let of = match run.objects.len() {
            1 if self.names.is_some() => format!(" of {}", printable(self.name(run.member))),
            1 => String::new(),
            many => format!(" of {many} objects"),
        };
        let by = by(run);
        let why = wire::unnamed(&entry).filter(|_| by.is_empty());
        let why = why.map_or_else(String::new, |why| format!(" ({})", why.words()));
        let since = self.since(run, &entry);
        row.put(None, &format!("{} status updates{of}", run.count));
        row.flow(None, " ", &printable(&format!("{by}since {since}{why}")));
        self.out.line(&row.finish())
    }

    /// The time since when a run goes on; on a terminal without the day of its newest entry.
    fn since(&self, run: &Run, newest: &Entry<'_>) -> String {
        let (oldest, newest) = (clock().stamp(&run.since), clock().stamp(&newest.time));
        match (self.out.look.terminal, oldest.date == newest.date) {
            (false, _) => oldest.whole,
            (true, true) => oldest.time,
            (true, false) => format!("{} {}", oldest.date, oldest.time),
        }
    }

    /// The line of the storage rewrite of one object, or of several.
    fn rewrite(&mut self, run: &Run) -> Result<(), Failure> {
        let first = std::mem::replace(&mut self.first, false);
        let Line(newest) = &run.newest;
        let entry = object::parse(newest)?;
        let (mut row, start) = self.begin(&entry, first)?;
        row.put(Some(Ink::Faint), entry.op.as_str()).to(start);
        let by = by(run);
        let text = match (run.count, self.names) {
            (1, widest) => {
                if let Some(widest) = widest {
                    row.put(Some(Ink::Strong), &printable(self.name(run.member))).to(start + widest + 1);
                }
                format!("{STORAGE_REWRITE} {by}")
            }
            (many, _) => format!("{STORAGE_REWRITE} of {many} objects {by}since {}", self.since(run, &entry)),
        };
        row.put(Some(Ink::Faint), &printable(text.trim_end()));
        put_late(&mut row, &entry, clock(), self.out.look);
        self.out.line(&row.finish())
    }

    /// The difference, under its line.
    fn difference(&mut self, tree: Node<'_>) -> Result<(), Failure> {
        put_tree(self.out, tree)?;
        self.out.line("")
    }

    fn end(&mut self, text: &str) -> Result<(), Failure> {
        if self.format == Format::Line {
            let mut row = Row::new(self.out.look);
            row.put(Some(Ink::Faint), text);
            self.out.line(&row.finish())?;
        }
        Ok(())
    }
}

/// Those who wrote a run, behind `by`; nothing if nobody is named.
fn by(run: &Run) -> String {
    let names = run.managers.iter().map(|manager| manager.manager.as_str()).collect::<Vec<_>>().join(", ");
    if names.is_empty() { names } else { format!("by {names} ") }
}
