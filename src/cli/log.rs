//! `decklog log`: the life of one object, newest first, over all its incarnations; with `--tree` also of what it owns.

use std::collections::{BTreeMap, BTreeSet};

use clap::Args;
use jiff::Timestamp;

use super::clock::{clock, moment};
use super::coverage::About;
use super::line::{FEW_GAPS, LATE, gap_of, put_gap, put_gaps, put_late, shown};
use super::names::kind;
use super::output::{Ink, Out, Row, printable};
use super::select::{FilterArgs, how_many};
use super::tree::Node;
use super::what::Described;
use super::yaml::{self, Sign, View};
use super::{Exit, Failure, Format, Global, Outcome, complain, object};
use crate::journal::{EntryFilter, EntryQuery, ObjectRow, Reader, Step, StoredEntry};
use crate::k8s::bookkeeping;
use crate::k8s::managed_fields::Manager;
use crate::model::{EntryType, Seq};
use crate::query::ownership;
use crate::spelling::nearest;
use crate::wire::{Change, Entry, ROW};

/// Arguments of `decklog log`.
#[derive(Args, Debug)]
pub struct LogArgs {
    /// The object, as kubectl spells it: deploy/web, deployments.apps/web
    #[arg(value_name = "KIND/NAME")]
    pub object: String,
    /// Its name, where the first word is its kind alone.
    #[arg(hide = true)]
    pub name: Option<String>,
    /// Which of its entries.
    #[command(flatten)]
    pub only: FilterArgs,
    /// With what changed in each step, as YAML
    #[arg(short, long)]
    pub patch: bool,
    /// Also of everything that it owns: Deployment, ReplicaSets, Pods
    #[arg(long)]
    pub tree: bool,
    /// Each change of the status too; without it runs of them are one line
    #[arg(long)]
    pub all: bool,
    /// Only changes of these parts: spec, status, metadata, data or another top-level one
    #[arg(long = "only", value_name = "AREA", value_delimiter = ',')]
    pub areas: Vec<String>,
    /// Only the newest so many lines
    #[arg(long, value_name = "COUNT", value_parser = how_many)]
    pub last: Option<usize>,
    /// Oldest first
    #[arg(short, long)]
    pub reverse: bool,
}

impl Run {
    fn new(newest: StoredEntry, member: usize, since: String, managers: Vec<Manager>) -> Self {
        let objects = BTreeSet::from([member]);
        Self { newest, member, count: 1, since, managers, objects }
    }

    fn add(&mut self, member: usize, time: &str, managers: Vec<Manager>) {
        self.count += 1;
        time.clone_into(&mut self.since);
        self.objects.insert(member);
        for manager in managers {
            if !self.managers.iter().any(|known| known.manager == manager.manager) {
                self.managers.push(manager);
            }
        }
    }
}

/// Annotations in which the controller of Deployments keeps its bookkeeping, such as the revision.
const NOTED: &str = "/metadata/annotations/deployment.kubernetes.io~1";

impl LogArgs {
    /// Reports whether a run of such changes is one line: changes of the status alone that were not asked for explicitly. The
    /// annotations of the Deployment controller come with every rollout, and count as status.
    fn folds(&self, entry: &Entry<'_>, change: &Change<'_>) -> bool {
        let asked = self.all || self.only.picks() || self.areas.iter().any(|area| area == "status");
        let is_noted =
            |path: &str| !path.starts_with("/metadata/") || path.starts_with(NOTED) || bookkeeping::is_book(path);
        // Where redaction has dropped what changed, nothing here says what that was.
        let notes = || {
            let mut paths = change.patch.iter().map(|op| &*op.path);
            paths.clone().any(|path| path.starts_with(NOTED)) && paths.all(is_noted)
        };
        let areas = || change.areas.iter().map(String::as_str);
        let is_status = |area: &str| area == "status" || area == "metadata" && notes();
        entry.op == EntryType::Modified
            && !asked
            && areas().any(is_status)
            && areas().all(|area| area == "managedFields" || is_status(area))
    }

    /// Returns the sentence for an `--only` that no entry matched.
    fn no_such_area(&self, areas: &BTreeSet<String>) -> Option<String> {
        let wanted = self.areas.iter().find(|wanted| !areas.contains(*wanted))?;
        let known = || areas.iter().map(String::as_str);
        let hint = match nearest(wanted, known()) {
            Some(near) => format!("; did you mean {near}?"),
            None if areas.is_empty() => String::new(),
            None => format!("; what changed is {}", known().collect::<Vec<_>>().join(", ")),
        };
        Some(format!("note: --only: no change here is of {wanted}{hint}"))
    }

    /// Reports whether an entry is selected.
    fn keeps(&self, entry: &Entry<'_>, areas: &[String]) -> bool {
        self.areas.is_empty()
            || entry.op != EntryType::Modified
            || areas.iter().any(|area| self.areas.iter().any(|wanted| wanted == area))
    }
}

/// Changes, newest first, that are printed as one line.
struct Run {
    newest: StoredEntry,
    /// The place of its object in the family.
    member: usize,
    count: usize,
    /// Time at which the oldest was recorded.
    since: String,
    managers: Vec<Manager>,
    objects: BTreeSet<usize>,
}

/// A line to print.
enum Line {
    /// An entry, read already or not, with the place of its object in the family.
    One(Seq, Option<StoredEntry>, Option<usize>),
    /// Several.
    Run(Run),
}

impl Line {
    /// Without what can be read again.
    fn light(self) -> Self {
        match self {
            Self::One(seq, _, member) => Self::One(seq, None, member),
            Self::Run(run) => Self::Run(run),
        }
    }
}

/// Event that is printed.
enum Event {
    /// An entry of the object with this place in the family.
    Entry(usize),
    /// A gap.
    Gap(StoredEntry),
}

/// Prints the history.
///
/// # Errors
/// Exit 1 where the journal has no entry of the object, and 64 where the name is that of several.
pub fn main(mut args: LogArgs, global: &Global, out: &mut Out) -> Outcome {
    if let Some(name) = args.name.take() {
        args.object = format!("{}/{name}", args.object);
    }
    let (mut reader, dir) = global.reader()?;
    let filter = args.only.compile()?;
    let choice = filter.as_ref().filter(|filter| filter.asks_only_for(&ROW));
    let choice = choice.map(|filter| |line: &[u8]| filter.is_true_for(line));
    if let Some(filter) = &filter {
        filter.look_for_typos(&reader)?;
    }
    args.only.check(&mut reader)?;
    let rows = object::find(&reader, "log", &args.object, &args.only.namespace)?;
    let root = object::only(&args.object, rows)?;
    if root.last == Seq(0) {
        return Err(Failure::no(object::not_yet(&mut reader, &root, None)?));
    }
    let family = if args.tree { ownership::family(&mut reader, root)? } else { vec![root] };
    let about = About {
        resources: Some(family.iter().map(|row| row.resource.full_name()).collect()),
        namespaces: family[0].namespaces(),
        since: args.only.since,
        until: args.only.until,
    };
    let coverage = about.coverage(&mut reader, &dir, moment)?;
    // Where entries are chosen by what they say, nobody knows how many have to be looked at.
    let chosen = filter.is_some() || !args.only.types.is_empty();
    let folds = global.output.unwrap_or(Format::Line) == Format::Line && !args.all;
    let most = args.last.filter(|_| !chosen && !folds && args.areas.is_empty()).unwrap_or(usize::MAX);
    let events = events(&mut reader, &family, &args.only, most)?;
    let events = if args.tree { by_time(&mut reader, events)? } else { events.into_iter().collect() };
    let mut run: Option<Run> = None;
    let mut printer = Printer::new(out, global, &args, &family, reader.head()?);
    let mut left = args.last.unwrap_or(usize::MAX);
    let read = |reader: &mut Reader, seq: Seq, event: &Event| -> Result<Option<StoredEntry>, Failure> {
        let stored = match event {
            Event::Gap(stored) => Some(stored.clone()),
            // What is gone by now was among the oldest.
            Event::Entry(_) => {
                let choice = choice.as_ref().map(|choice| choice as EntryFilter<'_>);
                let one = reader.select(&EntryQuery::default(), Seq(seq.0 - 1), Some(seq.next()), false, 1, choice)?;
                one.entries.into_iter().next()
            }
        };
        Ok(stored.filter(|stored| filter.as_ref().is_none_or(|filter| filter.is_true_for(&stored.line))))
    };
    let mut areas = BTreeSet::new();
    let mut shown = Vec::new();
    let mut show = |printer: &mut Printer<'_>, line: Line| -> Result<(), Failure> {
        if args.reverse {
            shown.push(line.light());
            return Ok(());
        }
        printer.show(line, &family)
    };
    for (seq, event) in events.iter().rev() {
        if left == 0 && run.is_none() {
            break;
        }
        let Some(stored) = read(&mut reader, *seq, event)? else { continue };
        let entry = object::parse(&stored)?;
        let change = Change::of(&entry).map_err(|error| object::damaged(stored.seq, &error))?.unwrap_or_default();
        areas.extend(change.areas.iter().cloned());
        if !args.keeps(&entry, &change.areas) {
            continue;
        }
        let member = match event {
            Event::Gap(_) => None,
            Event::Entry(member) => Some(*member),
        };
        if let Some(member) = member.filter(|_| folds && args.folds(&entry, &change)) {
            match &mut run {
                Some(run) => run.add(member, &entry.time, change.managers),
                None if left == 0 => break,
                None => {
                    left -= 1;
                    let time = entry.time.to_string();
                    run = Some(Run::new(stored.clone(), member, time, change.managers));
                }
            }
            continue;
        }
        if let Some(run) = run.take() {
            show(&mut printer, Line::Run(run))?;
        }
        if left == 0 {
            break;
        }
        left -= 1;
        show(&mut printer, Line::One(*seq, Some(stored), member))?;
    }
    if let Some(run) = run {
        show(&mut printer, Line::Run(run))?;
    }
    let retained = reader.retained()?;
    let removed = format!("what was before entry {} was removed by retention", retained.oldest);
    let removed = Some(removed).filter(|_| left > 0 && retained.removed > 0);
    if let Some(removed) = removed.as_ref().filter(|_| args.reverse) {
        printer.end(removed)?;
    }
    for line in shown.into_iter().rev() {
        let line = match line {
            Line::One(seq, _, member) => Line::One(seq, reader.entry(seq)?, member),
            run @ Line::Run(_) => run,
        };
        printer.show(line, &family)?;
    }
    printer.print_gaps()?;
    if let Some(removed) = removed.filter(|_| !args.reverse) {
        printer.end(&removed)?;
    }
    if let Some(note) = args.no_such_area(&areas) {
        complain(&note);
    }
    if printer.first && args.last != Some(0) {
        about.complain_of_nothing(&format!("no entry of {}", printer.object), &coverage, &mut reader)?;
    }
    coverage.complain();
    printer.out.flush()?;
    Ok(Exit::Done)
}

/// The events in the order in which they happened, as far as the objects say: of an outage the watches of two resources
/// tell one after the other, and of one resource in its order. Within a second what owns comes before what it owns.
fn by_time(reader: &mut Reader, events: BTreeMap<Seq, Event>) -> Result<Vec<(Seq, Event)>, Failure> {
    let mut placed = Vec::with_capacity(events.len());
    let mut newest: BTreeMap<usize, (Timestamp, usize)> = BTreeMap::new();
    for (seq, event) in events {
        let (member, stored) = match &event {
            Event::Gap(stored) => (usize::MAX, Some(stored.clone())),
            Event::Entry(member) => (*member, reader.entry(seq)?),
        };
        let mut place = (Timestamp::MIN, 0);
        if let Some(stored) = stored {
            let entry = object::parse(&stored)?;
            place = match object::late(&entry) {
                Some(second) => (second, member),
                None => (entry.time.parse().unwrap_or(Timestamp::MIN), 0),
            };
        }
        // Entries of one object stay in their order.
        let last = newest.entry(member).or_insert(place);
        *last = (*last).max(place);
        placed.push(((*last, seq), event));
    }
    placed.sort_by_key(|(place, _)| *place);
    Ok(placed.into_iter().map(|((_, seq), event)| (seq, event)).collect())
}

/// The entries of these objects, of each at most so many, and the gaps in their lives, by seq.
fn events(
    reader: &mut Reader,
    family: &[ObjectRow],
    only: &FilterArgs,
    most: usize,
) -> Result<BTreeMap<Seq, Event>, Failure> {
    let wanted = |kind: EntryType, time: i64| {
        (only.types.is_empty() || only.types.contains(&kind))
            && only.since.is_none_or(|since| time >= since.as_microsecond())
            && only.until.is_none_or(|until| time <= until.as_microsecond())
    };
    let bound = |time: Option<Timestamp>, otherwise: Seq, more: i64| match time {
        Some(time) => reader.last_before(time.as_microsecond().saturating_add(more)),
        None => Ok(otherwise),
    };
    let (after, upto) = (bound(only.since, Seq(0), 0)?, bound(only.until, Seq(u64::MAX), 1)?);
    let mut events = BTreeMap::new();
    // Of each source the part of the log in which its gaps concern somebody.
    let mut lives: BTreeMap<(i64, &str), (Seq, Seq)> = BTreeMap::new();
    for (member, row) in family.iter().enumerate() {
        let history = reader.history(row, after, upto, most)?;
        let began = match history.last() {
            None if row.present => after.next(),
            None => continue,
            Some(oldest) if history.len() == most => oldest.seq,
            Some(oldest) if oldest.previous > Seq(0) && after > Seq(0) => after.next(),
            Some(oldest) => began(reader, row, oldest)?,
        };
        let ended = if row.present { Seq(u64::MAX) } else { row.last };
        let life = lives.entry((row.resource_id, &row.namespace)).or_insert((Seq(u64::MAX), Seq(0)));
        *life = (life.0.min(began), life.1.max(ended));
        for step in history.iter().filter(|step| wanted(step.kind, step.time)) {
            events.insert(step.seq, Event::Entry(member));
        }
    }
    for ((resource, namespace), (from, to)) in lives {
        for gap in reader.gaps(resource, Some(namespace), Seq(from.0.saturating_sub(1)))? {
            let time = object::parse(&gap)?.time.parse::<Timestamp>().map_or(0, Timestamp::as_microsecond);
            let of_family = || family.iter().any(|row| row.resource_id == resource && object::concerns(&gap, row));
            if gap.seq <= to && wanted(EntryType::Gap, time) && of_family() {
                events.insert(gap.seq, Event::Gap(gap));
            }
        }
    }
    Ok(events)
}

/// From where on gaps concern an object, of which this is the first entry. Where it came to be in a gap, the GAP stands
/// right before it.
fn began(reader: &mut Reader, row: &ObjectRow, first: &Step) -> Result<Seq, Failure> {
    let Some(stored) = reader.entry_of(first)? else { return Ok(first.seq) };
    if object::parse(&stored)?.evidence.as_deref() != Some("inferred") {
        return Ok(first.seq);
    }
    let gaps = reader.gaps(row.resource_id, Some(&row.namespace), Seq(0))?;
    let concerned = gaps.iter().filter(|gap| object::concerns(gap, row));
    Ok(concerned.map(|gap| gap.seq).filter(|gap| *gap < first.seq).last().unwrap_or(first.seq))
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
    /// The uid of the incarnation that is being printed.
    uid: String,
    first: bool,
    /// Gaps of one reason, one after the other, that are not printed yet: an outage makes one of each source.
    gaps: Vec<StoredEntry>,
}

impl<'o> Printer<'o> {
    fn new(out: &'o mut Out, global: &Global, args: &LogArgs, family: &[ObjectRow], head: Seq) -> Self {
        let widest = family.iter().map(|row| name(row).chars().count()).max().unwrap_or(0);
        Self {
            out,
            format: global.output.unwrap_or(Format::Line),
            patch: args.patch,
            names: args.tree.then_some(widest.min(WIDEST_NAME)),
            seq_width: head.to_string().len().max(4),
            day: String::new(),
            object: family[0].spell(),
            // Oldest first, a gap comes before the incarnation that it is part of.
            newest: if args.reverse { String::new() } else { family[0].uid.clone() },
            uid: String::new(),
            first: true,
            gaps: Vec::new(),
        }
    }

    fn print(&mut self, stored: &StoredEntry, row: Option<&ObjectRow>) -> Result<(), Failure> {
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
            Format::Line | Format::Wide | Format::Name => self.line(stored, row, first),
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
        let late = object::late(entry);
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
            row.put(Some(Ink::Faint), &format!("{:>width$} {}", entry.seq, stamp.time));
        } else {
            row.put(Some(Ink::Faint), &format!("{:>width$} {}", entry.seq, stamp.whole));
        }
        row.put(Some(Ink::Faint), if late.is_some() && look.terminal { LATE } else { " " });
        let start = row.columns() + 9;
        row.hang(start + 2);
        Ok((row, start))
    }

    fn line(&mut self, stored: &StoredEntry, member: Option<&ObjectRow>, first: bool) -> Result<(), Failure> {
        let entry = object::parse(stored)?;
        let kind = entry.op;
        let ink = match kind {
            EntryType::Added => Ink::Good,
            EntryType::Modified => Ink::Change,
            EntryType::Deleted => Ink::Bad,
            EntryType::Gap => Ink::Alarm,
        };
        let (mut row, start) = self.begin(&entry, first)?;
        if kind == EntryType::Gap {
            // Never cut: it says what the log does not know.
            row.uncut();
        }
        row.put(Some(ink), kind.as_str()).to(start);
        if let (Some(widest), Some(member)) = (self.names, member) {
            row.put(Some(Ink::Strong), &printable(&name(member))).to(start + widest + 1);
        }
        if kind == EntryType::Gap {
            if self.names.is_some() {
                row.put(None, &printable(&entry.full_resource())).put(None, " ");
            }
            put_gap(&mut row, &entry, clock());
            return self.out.line(&row.finish());
        }
        let described = Described::read(&entry).map_err(|why| object::damaged(stored.seq, &why))?;
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
        put_late(&mut row, &entry, self.out.look);
        self.out.line(&row.finish())?;
        if self.patch {
            self.difference(described.tree)?;
        }
        Ok(())
    }

    fn show(&mut self, line: Line, family: &[ObjectRow]) -> Result<(), Failure> {
        // As `tail` has it; one object has gaps of one source.
        if let Line::One(_, Some(stored), None) = &line
            && self.format == Format::Line
            && self.names.is_some()
            && self.out.look.terminal
            && let Some(why) = gap_of(stored)
        {
            if self.gaps.last().and_then(gap_of).is_some_and(|last| last != why) {
                self.print_gaps()?;
            }
            self.gaps.push(stored.clone());
            return Ok(());
        }
        self.print_gaps()?;
        match line {
            Line::One(_, Some(stored), member) => self.print(&stored, member.map(|member| &family[member])),
            // It was removed meanwhile.
            Line::One(_, None, _) => Ok(()),
            Line::Run(run) => self.fold(&run, family),
        }
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
    fn fold(&mut self, run: &Run, family: &[ObjectRow]) -> Result<(), Failure> {
        let member = &family[run.member];
        if run.count == 1 {
            return self.print(&run.newest, Some(member));
        }
        let first = std::mem::replace(&mut self.first, false);
        let entry = object::parse(&run.newest)?;
        let (mut row, start) = self.begin(&entry, first)?;
        row.put(Some(Ink::Faint), "…").to(start);
        let of = match run.objects.len() {
            1 if self.names.is_some() => format!(" of {}", printable(&name(member))),
            1 => String::new(),
            many => format!(" of {many} objects"),
        };
        let names = run.managers.iter().map(|manager| manager.manager.as_str()).collect::<Vec<_>>().join(", ");
        let by = if names.is_empty() { String::new() } else { format!("by {names} ") };
        let (oldest, newest) = (clock().stamp(&run.since), clock().stamp(&entry.time));
        let since = match (self.out.look.terminal, oldest.date == newest.date) {
            (false, _) => oldest.whole,
            (true, true) => oldest.time,
            (true, false) => format!("{} {}", oldest.date, oldest.time),
        };
        row.put(None, &format!("{} status updates{of}", run.count));
        row.flow(None, " ", &printable(&format!("{by}since {since}")));
        self.out.line(&row.finish())
    }

    /// The difference, under its line.
    fn difference(&mut self, mut tree: Node<'_>) -> Result<(), Failure> {
        tree.without(&bookkeeping::PATHS);
        tree.without_empty(&["metadata", "annotations"]);
        if tree.differs() {
            put_difference(self.out, &tree)?;
        } else {
            let mut row = Row::new(self.out.look);
            row.put(Some(Ink::Faint), "    nothing but what every write moves");
            self.out.line(&row.finish())?;
        }
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

/// A difference as YAML, indented.
pub(super) fn put_difference(out: &mut Out, tree: &Node<'_>) -> Result<(), Failure> {
    for line in yaml::lines(tree, View::Changes) {
        let mut row = Row::new(out.look);
        let ink = match line.sign {
            Sign::Same => None,
            Sign::Added => Some(Ink::Good),
            Sign::Gone => Some(Ink::Bad),
            Sign::Redacted => Some(Ink::Change),
        };
        row.put(ink, &format!("  {} {}", line.sign.as_str(), line.text));
        out.line(&row.finish())?;
    }
    Ok(())
}

/// `deploy/web`
fn name(row: &ObjectRow) -> String {
    format!("{}/{}", kind(&row.resource), row.name)
}
