//! `decklog log` without an object: what changed in some namespaces or everywhere, causes first.
//!
//! ```text
//! 2026-11-21 (CET, +01:00)
//!  412 11:32:01 ~ deploy/web   ci  image …:1.2 → …:1.3
//!                 … 14 changes of 2 replicasets, 6 pods until 11:32:40
//! ```

mod documents;

use std::collections::{BTreeMap, HashMap};

use documents::Documents;

use super::clock::clock;
use super::diff::put_tree;
use super::line::{FEW_GAPS, Lines, gap_of, marks, put_gap, put_gaps, shown};
use super::names::kind;
use super::output::{Ink, Out, Row, plural, printable};
use super::rewrite::sentence;
use super::select::FilterArgs;
use super::what::AnnotatedEntry;
use super::who;
use super::{Exit, Failure, Format, Global, Outcome, object};
use crate::core::model::{EntryType, Resource, Seq};
use crate::core::wire::Entry;
use crate::journal::StoredEntry;
use crate::query::causes::Role;
use crate::query::line::Line;
use crate::query::questions::causes::{Causes, Changes, Folded, Item, Named};
use crate::query::rewrites::Rewrite;

/// Lines of a screen. Causes are never left out; what is no cause is, where there is no room.
const SCREEN: usize = 25;
/// Number of resources that a line counts the objects of.
const COUNTED: usize = 6;
/// Names of objects that are longer push what follows to the right.
const WIDEST_NAME: usize = 34;

/// Arguments of `decklog log` without an object.
#[derive(Clone, Copy)]
pub(super) struct Asked<'a> {
    pub(super) only: &'a FilterArgs,
    pub(super) areas: &'a [String],
    pub(super) patch: bool,
    pub(super) tree: bool,
    pub(super) all: bool,
    pub(super) last: Option<usize>,
    pub(super) reverse: bool,
}

/// Prints what changed.
///
/// # Errors
/// Where the journal cannot be read, or the arguments name what it does not know.
pub(super) fn main(args: Asked<'_>, global: &Global, out: &mut Out) -> Outcome {
    let format = global.output.unwrap_or(Format::Line);
    let question = Causes {
        only: args.only.filters(),
        areas: args.areas.to_vec(),
        all: args.all,
        below: format != Format::Line || args.tree,
        last: args.last,
        reverse: args.reverse,
    };
    if format != Format::Line {
        let mut documents = Documents::new(out, format);
        global.ask(question, &mut |item| documents.item(item))?;
        documents.end()?;
        return Ok(Exit::Done);
    }
    let is_bounded = !args.all && !args.tree && !args.patch && args.last.is_none();
    let mut printer = Printer {
        lines: Lines::new(out.look, 0),
        patch: args.patch,
        is_of_one: args.only.namespace.len() == 1,
        screen: is_bounded.then_some(SCREEN),
        seq_width: 4,
        name_width: 16,
        day: String::new(),
        printed: 0,
        resources: HashMap::new(),
        gaps: Vec::new(),
        unprinted: Unprinted::default(),
        out,
    };
    global.ask(question, &mut |item| printer.item(item))?;
    printer.end()?;
    printer.out.flush()?;
    Ok(Exit::Done)
}

/// Lines of groups without a cause that have no room on a screen, and the groups of the rest.
#[derive(Default)]
struct Unprinted {
    lines: Vec<(String, usize, BTreeMap<String, usize>)>,
    count: usize,
    resources: BTreeMap<String, usize>,
    is_needed: bool,
}

/// Place of an entry's line.
#[derive(Clone, Copy)]
enum Place<'c> {
    /// The line of these changes.
    Of(&'c Changes),
    /// A line below that.
    Below,
}

struct Printer<'o> {
    out: &'o mut Out,
    lines: Lines,
    patch: bool,
    /// True if all is in one namespace, which no line names.
    is_of_one: bool,
    /// Lines that there is room for.
    screen: Option<usize>,
    seq_width: usize,
    /// Width of the column of names; grows with them.
    name_width: usize,
    day: String,
    printed: usize,
    resources: HashMap<String, Resource>,
    /// Gaps of one reason, one after the other, that are not printed yet.
    gaps: Vec<StoredEntry>,
    unprinted: Unprinted,
}

impl Printer<'_> {
    fn item(&mut self, item: Item) -> Result<(), Failure> {
        match item {
            Item::Begin { head: Seq(head), resources } => {
                self.seq_width = head.to_string().len().max(4);
                self.lines = Lines::new(self.out.look, head);
                self.lines.learn(&resources);
                self.resources = resources.into_iter().map(|one| (one.full_name(), one)).collect();
                Ok(())
            }
            Item::Group(changes) => self.group(&changes),
            Item::Below(Line(stored)) => {
                let text = self.entry_line(&stored, Place::Below)?;
                self.print(&text)
            }
            Item::Gap(Line(stored)) => {
                let is_other = |last: &StoredEntry| gap_of(last) != gap_of(&stored);
                if self.gaps.last().is_some_and(is_other) {
                    self.print_gaps()?;
                }
                self.gaps.push(stored);
                Ok(())
            }
            Item::Unknown(_) => Ok(()),
        }
    }

    fn print(&mut self, text: &str) -> Result<(), Failure> {
        self.printed += text.lines().count();
        self.out.line(text)
    }

    fn group(&mut self, changes: &Changes) -> Result<(), Failure> {
        self.print_gaps()?;
        if changes.role == Role::Rest && changes.entry.is_none() {
            self.unprinted.count += changes.count;
            for (resource, count) in &changes.resources {
                *self.unprinted.resources.entry(resource.clone()).or_default() += count;
            }
            return Ok(());
        }
        if let (Some(rewrite), Some(Line(stored))) = (&changes.rewrite, &changes.entry) {
            let text = self.rewrite_line(stored, rewrite)?;
            return self.print(&text);
        }
        let mut text = match &changes.entry {
            Some(Line(stored)) => self.changes_line(stored, changes)?,
            None => self.owner_line(changes),
        };
        if let Some(folded) = &changes.folded {
            self.put_folded(&mut text, folded);
        }
        if changes.role == Role::Cause || self.screen.is_none() {
            self.print(&text)?;
            if let Some(Line(stored)) = changes.entry.as_ref().filter(|_| self.patch) {
                self.difference(stored)?;
            }
            return Ok(());
        }
        let count = changes.count + changes.folded.as_ref().map_or(0, |folded| folded.count);
        self.unprinted.lines.push((text, count, changes.resources.clone()));
        Ok(())
    }

    /// Prints what is no cause as far as there is room, and counts the rest.
    fn end(&mut self) -> Result<(), Failure> {
        self.print_gaps()?;
        let mut left = std::mem::take(&mut self.unprinted);
        left.is_needed = left.count > 0;
        let heights: usize = left.lines.iter().map(|(text, ..)| text.lines().count()).sum();
        let room = self.screen.unwrap_or(usize::MAX).saturating_sub(self.printed);
        let room = if heights + usize::from(left.is_needed) > room { room.saturating_sub(1) } else { room };
        let mut used = 0;
        for (text, count, resources) in std::mem::take(&mut left.lines) {
            used += text.lines().count();
            if used <= room {
                self.print(&text)?;
                continue;
            }
            left.is_needed = true;
            left.count += count;
            for (resource, count) in resources {
                *left.resources.entry(resource).or_default() += count;
            }
        }
        if left.is_needed {
            let mut row = Row::new(self.out.look);
            let start = self.start();
            row.put(None, " ").to(start - 2).put(Some(Ink::Faint), "…").put(None, " ");
            let changes = plural(left.count as u64, "other change", "other changes");
            row.hang(start);
            self.put_counts(&mut row, Some(Ink::Faint), &format!("{changes} (--all)"), &left.resources, "");
            let text = row.finish();
            self.print(&text)?;
        }
        Ok(())
    }

    /// The column in which names begin.
    fn start(&self) -> usize {
        self.seq_width + if self.out.look.terminal { 13 } else { 3 }
    }

    /// The line of what happened, once or several times, to one object or to several.
    fn changes_line(&mut self, stored: &StoredEntry, changes: &Changes) -> Result<String, Failure> {
        if changes.count < 2 {
            return self.entry_line(stored, Place::Of(changes));
        }
        let entry = object::parse(stored)?;
        if changes.of > 1 {
            let (resource, namespace, name) =
                (entry.full_resource(), entry.namespace.as_deref(), entry.name.as_deref());
            let is_own = |named: &Named| {
                named.resource == resource
                    && named.namespace == namespace.unwrap_or_default()
                    && Some(&*named.name) == name
            };
            let is_other = |named: &&Named| named.incarnations > 1 || !is_own(named);
            let others = changes.objects.iter().filter(is_other).map(|named| match named.incarnations {
                0 | 1 => self.spell(named),
                many => format!("{} ({many} incarnations)", self.spell(named)),
            });
            let mut names = others.collect::<Vec<_>>();
            if changes.of > changes.objects.len() {
                names.push("…".to_owned());
            }
            let names = names.join(", ");
            let others = plural(changes.of as u64 - 1, "other", "others");
            let mut text = self.entry_line(stored, Place::Of(changes))?;
            let since = self.time(&changes.since);
            let mut row = Row::new(self.out.look);
            row.hang(self.start() + 2);
            row.put(None, " ").to(self.start() + 2);
            flow_words(&mut row, &format!("and {others} since {since}: {names}"));
            text.push('\n');
            text.push_str(&row.finish());
            return Ok(text);
        }
        if !self.out.look.terminal {
            let by = changes.by.join(" and ");
            let by = if changes.by.len() > 1 { format!(" by {}", printable(&by)) } else { String::new() };
            let text = self.entry_line(stored, Place::Of(changes))?;
            return Ok(format!("{text}  ({} times since {}{by})", changes.count, self.time(&changes.since)));
        }
        let described = AnnotatedEntry::read(&entry).map_err(|why| object::damaged(stored.seq, &why))?;
        let (mut text, mut row) = self.target(&entry, false);
        let since = self.time(&changes.since);
        let by = printable(&changes.by.join(" and ")).into_owned();
        let what = match entry.op {
            EntryType::Modified => described.subject(),
            EntryType::Added if changes.again => "created again".to_owned(),
            EntryType::Added => "created".to_owned(),
            EntryType::Deleted | EntryType::Gap | EntryType::Actor => "deleted".to_owned(),
        };
        let times = format!("{}×", changes.count);
        let whole = [format!("{what}  {times} since {since}"), format!("{what}  {times}"), times];
        let gap = if by.is_empty() { "" } else { "  " };
        let fits = |piece: &&String| row.takes(&[("", &by), (gap, piece)], 0);
        let piece = whole.iter().find(fits).unwrap_or(&whole[1]);
        row.flow(Some(Ink::Who), "", &by).flow(None, gap, piece);
        if !changes.actors.is_empty() {
            row.flow(Some(Ink::Who), "  ", &who::senders(&changes.actors));
        }
        text.push_str(&row.finish());
        Ok(text)
    }

    /// The line of a storage rewrite.
    fn rewrite_line(&mut self, stored: &StoredEntry, rewrite: &Rewrite) -> Result<String, Failure> {
        let entry = object::parse(stored)?;
        if !self.out.look.terminal {
            return Ok(self.lines.rewrite(&entry, rewrite));
        }
        let (mut text, mut row) = self.begin(&entry);
        row.put(Some(Ink::Faint), "…").put(None, " ");
        row.hang(row.columns() + 2);
        flow_words_in(&mut row, Some(Ink::Faint), &sentence(rewrite, clock(), self.out.look));
        text.push_str(&row.finish());
        Ok(text)
    }

    fn entry_line(&mut self, stored: &StoredEntry, place: Place<'_>) -> Result<String, Failure> {
        let is_below = matches!(place, Place::Below);
        let again = matches!(place, Place::Of(Changes { again: true, .. }));
        let senders = match place {
            Place::Of(changes) => who::senders(&changes.actors),
            Place::Below => String::new(),
        };
        let entry = object::parse(stored)?;
        let damaged = |why: &dyn std::fmt::Display| object::damaged(stored.seq, why);
        if !self.out.look.terminal {
            let text = self.lines.render_entry(&entry).map_err(|error| damaged(&error))?;
            let (before, behind) = (if is_below { "    " } else { "" }, if again { "  (created again)" } else { "" });
            let gap = if senders.is_empty() { "" } else { "  " };
            return Ok(format!("{before}{text}{gap}{senders}{behind}"));
        }
        let (mut text, mut row) = self.target(&entry, is_below);
        let described = AnnotatedEntry::read(&entry).map_err(|why| damaged(&why))?;
        described.put_brief(&mut row, entry.op);
        if again {
            row.flow(None, " ", "again");
        }
        if let Some(evidence) = entry.evidence.as_deref().filter(|evidence| *evidence != "watched") {
            row.flow(None, "  ", &printable(evidence));
        }
        if !senders.is_empty() {
            row.flow(Some(Ink::Who), "  ", &senders);
        }
        text.push_str(&row.finish());
        Ok(text)
    }

    /// The beginning of a line on a terminal, up to the object.
    fn target(&mut self, entry: &Entry<'_>, is_below: bool) -> (String, Row) {
        let (ink, sign) = match entry.op {
            EntryType::Added => (Ink::Good, "+"),
            EntryType::Modified => (Ink::Change, "~"),
            EntryType::Deleted => (Ink::Bad, "-"),
            EntryType::Gap => (Ink::Alarm, "?"),
            EntryType::Actor => (Ink::Who, "@"),
        };
        let (text, mut row) = self.begin(entry);
        row.put(Some(if is_below { Ink::Faint } else { ink }), if is_below { "…" } else { sign }).put(None, " ");
        let start = row.columns();
        row.hang(start + 2);
        let named = Named {
            resource: entry.full_resource(),
            namespace: entry.namespace.as_deref().unwrap_or_default().to_owned(),
            name: entry.name.as_deref().unwrap_or_default().to_owned(),
            incarnations: 1,
        };
        row.put(Some(Ink::Strong).filter(|_| !is_below), &printable(&self.spell(&named)));
        let widest = self.out.look.width.map_or(WIDEST_NAME, |width| WIDEST_NAME.min(width / 4));
        self.name_width = self.name_width.max((row.columns() - start).min(widest));
        row.to(start + self.name_width + 2);
        (text, row)
    }

    /// The beginning of a line on a terminal, its seq and its time, and before it the line of a new day.
    fn begin(&mut self, entry: &Entry<'_>) -> (String, Row) {
        let look = self.out.look;
        let stamp = shown(clock(), entry, look);
        let mut text = String::new();
        if stamp.day() != self.day {
            self.day = stamp.day();
            let mut head = Row::new(look);
            head.put(Some(Ink::Faint), &self.day);
            text = head.finish() + "\n";
        }
        let width = self.seq_width;
        let mut row = Row::new(look);
        let (before, behind) = marks(entry, look);
        row.put(Some(Ink::Faint), &format!("{:>width$}{before}{}", entry.seq, stamp.time));
        row.put(Some(Ink::Faint), behind);
        row.put(None, " ");
        (text, row)
    }

    /// The line of what has no cause, of one owner.
    fn owner_line(&self, changes: &Changes) -> String {
        let owner = changes.owner.as_ref().map_or_else(String::new, |owner| self.spell(owner));
        let mut row = Row::new(self.out.look);
        let start = self.start();
        row.hang(start + 2);
        row.put(None, " ").to(start - 2).put(Some(Ink::Faint), "… ").put(None, &printable(&owner));
        row.put(None, "  ");
        let end = format!(" since {}", self.time(&changes.since));
        self.put_counts(&mut row, None, &many(changes.count), &changes.resources, &end);
        row.finish()
    }

    /// Puts what is folded below a line; what is of its own object behind it, where there is room.
    fn put_folded(&self, text: &mut String, folded: &Folded) {
        let last = text.lines().last().unwrap_or_default();
        let used = anstream::adapter::strip_str(last).to_string().chars().count();
        let mut row = Row::new(self.out.look);
        if folded.is_own {
            let own = format!("… {} of it", many(folded.count));
            if self.out.look.width.is_none_or(|width| used + 2 + own.chars().count() <= width) {
                row.put(Some(Ink::Faint), &own);
                text.push_str(&format!("  {}", row.finish()));
                return;
            }
        }
        let start = self.start();
        row.hang(start + 2);
        row.put(None, " ").to(start).put(Some(Ink::Faint), "… ");
        let end = format!(" until {}", self.time(&folded.until));
        self.put_counts(&mut row, Some(Ink::Faint), &many(folded.count), &folded.resources, &end);
        text.push('\n');
        text.push_str(&row.finish());
    }

    /// Puts `14 changes of 2 replicasets, 6 pods`, with as many resources as there is room for.
    fn put_counts(&self, row: &mut Row, ink: Option<Ink>, what: &str, resources: &BTreeMap<String, usize>, end: &str) {
        let mut counts: Vec<(&String, usize)> = resources.iter().map(|(name, count)| (name, *count)).collect();
        counts.sort_by_key(|(name, count)| (std::cmp::Reverse(*count), *name));
        let parts: Vec<String> = counts.into_iter().map(|(name, count)| self.counted(name, count)).collect();
        let text = |shown: usize, end: &str| {
            let mut listed = parts[..shown].to_vec();
            if shown < parts.len() {
                listed.push(format!("{} more kinds", parts.len() - shown));
            }
            let of = if parts.is_empty() { "" } else { " of " };
            printable(&format!("{what}{of}{}{end}", listed.join(", "))).into_owned()
        };
        // The end of it matters less than what it is about.
        let most = parts.len().min(COUNTED);
        let mut candidates = vec![(most, end), (most, "")];
        candidates.extend((1..most).rev().map(|shown| (shown, "")));
        let texts: Vec<String> = candidates.into_iter().map(|(shown, end)| text(shown, end)).collect();
        let fits = |text: &&String| row.takes(&[("", text)], 0);
        let chosen = texts.iter().find(fits).or(texts.last()).cloned().unwrap_or_default();
        flow_words_in(row, ink, &chosen);
    }

    /// `2 replicasets`, `pod`; in a pipe `1 pod`.
    fn counted(&self, name: &str, count: usize) -> String {
        let known = self.resources.get(name);
        let plural = known.map_or(name, |known| &known.plural);
        let singular = known.map(|known| known.singular.as_str()).filter(|singular| !singular.is_empty());
        match (count, known.filter(|_| self.out.look.terminal)) {
            // Of some only the changes are counted.
            (0, _) => plural.to_owned(),
            (1, Some(known)) => kind(known),
            (1, None) => format!("1 {}", singular.unwrap_or(plural)),
            (many, _) => format!("{many} {plural}"),
        }
    }

    /// `shop deploy/web`, and `deploy/web` where all is in one namespace; in a pipe with full names.
    fn spell(&self, named: &Named) -> String {
        let Named { resource, namespace, name, .. } = named;
        if !self.out.look.terminal {
            let space = if namespace.is_empty() { String::new() } else { format!("{namespace}/") };
            return format!("{resource} {space}{name}");
        }
        let word = self.resources.get(resource).map_or_else(|| resource.clone(), kind);
        let space = if namespace.is_empty() || self.is_of_one { String::new() } else { format!("{namespace} ") };
        format!("{space}{word}/{name}")
    }

    /// The time of a stamp; on a terminal without the day that stands above.
    fn time(&self, text: &str) -> String {
        let stamp = clock().stamp(text);
        match self.out.look.terminal {
            false => stamp.whole,
            true if stamp.day() == self.day => stamp.time,
            true => format!("{} {}", stamp.date, stamp.time),
        }
    }

    fn print_gaps(&mut self) -> Result<(), Failure> {
        let gaps = std::mem::take(&mut self.gaps);
        let entries = gaps.iter().map(object::parse).collect::<Result<Vec<_>, _>>()?;
        let is_one = self.out.look.terminal && entries.len() >= FEW_GAPS;
        let shown = if is_one { &entries[..1] } else { &entries[..] };
        for entry in shown {
            let (mut text, mut row) = if self.out.look.terminal {
                self.begin(entry)
            } else {
                let line = self.lines.render_entry(entry).map_err(|error| object::damaged(Seq(entry.seq), &error))?;
                self.print(&line)?;
                continue;
            };
            row.uncut();
            row.put(Some(Ink::Alarm), EntryType::Gap.as_str()).put(None, " ");
            row.hang(row.columns() + 2);
            if is_one {
                put_gaps(&mut row, &entries, clock());
            } else {
                row.put(None, &printable(&entry.full_resource())).put(None, " ");
                put_gap(&mut row, entry, clock());
            }
            text.push_str(&row.finish());
            self.print(&text)?;
        }
        Ok(())
    }

    /// The difference, under its line.
    fn difference(&mut self, stored: &StoredEntry) -> Result<(), Failure> {
        let entry = object::parse(stored)?;
        let described = AnnotatedEntry::read(&entry).map_err(|why| object::damaged(stored.seq, &why))?;
        put_tree(self.out, described.tree)?;
        self.out.line("")
    }
}

fn many(count: usize) -> String {
    plural(count as u64, "change", "changes")
}

fn flow_words(row: &mut Row, text: &str) {
    flow_words_in(row, None, &printable(text));
}

/// Puts a text whose lines end between words.
fn flow_words_in(row: &mut Row, ink: Option<Ink>, text: &str) {
    if row.takes(&[("", text)], 0) {
        row.put(ink, text);
        return;
    }
    for (at, word) in text.split(' ').enumerate() {
        row.flow(ink, if at == 0 { "" } else { " " }, word);
    }
}
