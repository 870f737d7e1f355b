//! Entries in short, one entry as a whole, two entries compared, and objects as they were.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::time::Instant;

use serde::Serialize;
use serde_json::value::RawValue;

use super::answer::Problem;
use super::index::{Index, Way};
use super::lanes::{Lane, Present, id_of, lane};
use super::moments::place;
use super::query::{Asked, Query, Resources};
use super::summary::{Summaries, Summary};
use super::window::{Found, MarkLine, Turn, look};
use crate::change;
use crate::journal::outline::{Part, part_of};
use crate::journal::{ObjectRow, Reader, StoredEntry};
use crate::k8s::bookkeeping;
use crate::model::{EntryType, Seq};
use crate::query::coverage::{self, Uncovered};
use crate::query::stamp;
use crate::wire::{self, Entry};
use crate::words::blame::trace;
use crate::words::clock::Clock;
use crate::words::names::kind;
use crate::words::row::cut;
use crate::words::tree::Node;
use crate::words::what::Described;
use crate::words::yaml::{self, View};

/// A text in an answer has at most so many bytes.
const TEXT: usize = 256 << 10;
/// And a line of it so many.
const LINE: usize = 32 << 10;
/// Values of an object for which nodes are built: far more than a text has lines.
const NODES: usize = 20_000;
/// Number of neighbours before and after an entry.
const NEIGHBOURS: usize = 5;
/// Number of entries that are searched for neighbours.
const NEAR: u64 = 4096;
/// Number of fields of an object that are shown with their authors, and number of characters of each value.
const FIELDS: usize = 500;
const VALUE: usize = 512;
/// Number of entries that are walked back for authors.
const BLAMED: usize = 2000;
/// Number of entries of an object, and of marks in its lane.
const OF_OBJECT: usize = 500;
const MARKS: usize = 10_000;

/// Entries, in short.
#[derive(Debug, Serialize)]
pub(crate) struct Entries {
    entries: Vec<Summary>,
    more: bool,
    /// The seq to continue from, if there is more.
    reached: Option<u64>,
}

/// Entries that pass, from a place on.
pub(super) fn entries(
    index: &Index,
    reader: &mut Reader,
    asked: &Asked,
    query: &Query,
    clock: &Clock,
    deadline: Instant,
) -> Result<Entries, Problem> {
    let limit = query.number("limit", 200, 1000)?;
    let (mut after, mut upto) = asked.bounds(reader, reader.head()?)?;
    let (way, before) = (query.seq("after")?, query.seq("before")?);
    if way.is_some() && before.is_some() {
        return Err(Problem::wrong(
            "after",
            "before goes back from an entry, after goes on from one; leave one of them out",
        ));
    }
    let way = match way {
        Some(from) => {
            after = after.max(from.0);
            Way::On
        }
        None => {
            upto = before.map_or(upto, |before| upto.min(before.0.saturating_sub(1)));
            Way::Back
        }
    };
    let mut seqs = Vec::new();
    let mut more = false;
    let cut = look(index, reader, asked, ((after, upto), way), deadline, &mut |_, mark| {
        if mark.quiet && !asked.quiet {
            return ControlFlow::Continue(());
        }
        if seqs.len() == limit {
            more = true;
            return ControlFlow::Break(());
        }
        seqs.push(mark.seq);
        ControlFlow::Continue(())
    })?;
    let entries = Summaries::new(clock, reader.head()?).with(reader, &seqs)?;
    let reached = cut.or_else(|| seqs.last().copied()).filter(|_| more || cut.is_some());
    Ok(Entries { entries, more: more || cut.is_some(), reached })
}

/// Lines, as many as an answer has room for. A long one is cut too, so that one value does not hide what follows it.
#[derive(Default)]
struct Lines {
    text: String,
    cut: bool,
}

impl Lines {
    /// Appends a line. Reports whether there is room for more.
    fn push(&mut self, line: &str) -> bool {
        let end = line.floor_char_boundary(LINE);
        let fits = self.text.len() + end < TEXT;
        if fits {
            self.text.push_str(&line[..end]);
            self.text.push_str(if end < line.len() { "…\n" } else { "\n" });
        }
        self.cut |= !fits || end < line.len();
        fits
    }

    fn done(self) -> (String, bool) {
        (self.text, self.cut)
    }
}

/// Renders the change as `decklog log -p` does.
fn difference(mut tree: Node<'_>) -> (String, bool) {
    tree.without(&bookkeeping::PATHS);
    tree.without_empty(&["metadata", "annotations"]);
    let mut lines = Lines::default();
    for line in yaml::lines(&tree, View::Changes) {
        if !lines.push(&format!("{} {}", line.sign.as_str(), line.text)) {
            break;
        }
    }
    lines.done()
}

/// An object as `decklog get` prints it.
fn shown(object: &[u8]) -> (String, bool) {
    let Ok(mut node) = Node::parse_within(object, NODES) else { return (String::new(), false) };
    node.without(&[&["metadata", "managedFields"]]);
    let mut lines = Lines::default();
    for line in yaml::lines(&node, View::All) {
        if !lines.push(&line.text) {
            break;
        }
    }
    lines.done()
}

/// Returns the argument for a command about an object: `deploy/web -n shop`.
fn spelled(row: &ObjectRow) -> String {
    let plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._/:@".contains(&byte));
    let quoted = |text: String| if plain(&text) { text } else { format!("'{}'", text.replace('\'', r"'\''")) };
    let name = quoted(format!("{}/{}", kind(&row.resource), row.name));
    if row.namespace.is_empty() { name } else { format!("{name} -n {}", quoted(row.namespace.clone())) }
}

/// The command that brings an object back as it was after an entry.
fn brings_back(row: &ObjectRow, seq: Seq) -> String {
    format!("decklog get {} --at {seq} --clean | kubectl apply -f -", spelled(row))
}

/// One entry.
#[derive(Debug, Serialize)]
pub(crate) struct Whole {
    summary: Summary,
    /// The entry without its object; nothing where that is too long.
    entry: Option<Box<RawValue>>,
    entry_cut: bool,
    diff: String,
    diff_cut: bool,
    /// It changed something that matters.
    real: bool,
    previous: Option<u64>,
    next: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    neighbours: Option<Vec<Summary>>,
    yaml: String,
    yaml_cut: bool,
    command: Option<String>,
}

/// The entry with this seq, or why there is none.
fn stored(reader: &mut Reader, seq: Seq) -> Result<StoredEntry, Problem> {
    if let Some(stored) = reader.entry(seq)? {
        return Ok(stored);
    }
    let (retained, head) = (reader.retained()?, reader.head()?);
    Err(Problem::missing(if seq > head {
        format!("there is no entry {seq} yet: the newest is {head}")
    } else if seq.0 > 0 && seq.0 < retained.oldest {
        format!("entry {seq} is no longer kept: retention removed what was before entry {}", retained.oldest)
    } else {
        format!("there is no entry {seq}")
    }))
}

/// All that there is of one entry; without what stands near it where nobody asks for that.
pub(super) fn entry(
    index: &Index,
    reader: &mut Reader,
    seq: Seq,
    clock: &Clock,
    near: bool,
    deadline: Instant,
) -> Result<Whole, Problem> {
    let stored = stored(reader, seq)?;
    let row = reader.object_of(seq)?;
    let summaries = Summaries::new(clock, reader.head()?);
    let summary = summaries.of(&stored);
    let (head, _) = wire::apart(&stored.line);
    let raw = Some(&head).filter(|head| head.len() <= TEXT).and_then(|head| serde_json::from_slice(head).ok());
    let parsed = Entry::parse(&stored.line)
        .map_err(|error| Problem::bug(format!("entry {seq} is damaged ({error}); run `decklog verify`")))?;
    let (diff, diff_cut) = match parsed.op {
        EntryType::Gap => (String::new(), false),
        EntryType::Added | EntryType::Modified | EntryType::Deleted => {
            Described::read(&parsed).map_or_else(|_| (String::new(), false), |described| difference(described.tree))
        }
    };
    let (yaml, yaml_cut) = parsed.object.map_or_else(Default::default, |object| shown(object.get().as_bytes()));
    let (mut previous, mut next, mut command) = (None, None, None);
    let mut neighbours = Vec::new();
    if let Some(row) = &row {
        let step = reader.step(row, Seq(seq.0.saturating_sub(1)))?.filter(|step| step.kept);
        previous = step.map(|step| step.seq.0);
        let there = if parsed.op == EntryType::Deleted { previous.map(Seq) } else { Some(seq) };
        command = there.map(|seq| brings_back(row, seq));
        if near {
            next = reader.following(row, seq)?.map(|step| step.seq.0);
            let mut seqs = neighbourhood(index, reader, row, seq.0, Way::Back, deadline)?;
            seqs.reverse();
            seqs.extend(neighbourhood(index, reader, row, seq.0, Way::On, deadline)?);
            neighbours = summaries.with(reader, &seqs)?;
        }
    }
    let real = !summary.quiet;
    Ok(Whole {
        summary,
        entry_cut: raw.is_none(),
        entry: raw,
        diff,
        diff_cut,
        real,
        previous,
        next,
        neighbours: near.then_some(neighbours),
        yaml,
        yaml_cut,
        command,
    })
}

/// The nearest entries of other objects in the namespace, or of the resource where it has none, which change something.
fn neighbourhood(
    index: &Index,
    reader: &mut Reader,
    row: &ObjectRow,
    seq: u64,
    way: Way,
    deadline: Instant,
) -> Result<Vec<u64>, Problem> {
    let bounds = match way {
        Way::Back => (seq.saturating_sub(NEAR), seq.saturating_sub(1)),
        Way::On => (seq, seq.saturating_add(NEAR)),
    };
    // First all of them, because the objects are looked up in the same journal.
    let mut near = Vec::new();
    index.walk(reader, bounds, way, deadline, &mut |_: &Part, mark| {
        if mark.object != row.row() && mark.object != 0 && !mark.quiet {
            near.push((mark.seq, mark.object));
        }
        ControlFlow::Continue(())
    })?;
    let mut known: HashMap<i64, bool> = HashMap::new();
    let mut found = Vec::new();
    for (seq, object) in near {
        let is_near = match known.get(&object) {
            Some(is_near) => *is_near,
            None => {
                let other = reader.object_with(object)?;
                let is_near = other.is_some_and(|other| {
                    other.namespace == row.namespace
                        && (!row.namespace.is_empty() || other.resource_id == row.resource_id)
                });
                known.insert(object, is_near);
                is_near
            }
        };
        if is_near {
            found.push(seq);
            if found.len() == NEIGHBOURS {
                break;
            }
        }
    }
    Ok(found)
}

/// Two entries, compared.
#[derive(Debug, Serialize)]
pub(crate) struct Compared {
    from: Summary,
    to: Summary,
    diff: String,
    diff_cut: bool,
    same_object: bool,
    command: Option<String>,
}

/// Compares the objects of two entries.
pub(super) fn diff(reader: &mut Reader, from: Seq, to: Seq, clock: &Clock) -> Result<Compared, Problem> {
    let other = stored(reader, to).map_err(|p| p.of("to"))?;
    let second = reader.object_of(to)?;
    // What was before the log is kept where it is how an object was when the log began.
    let begin = reader.retained()?;
    let kept = match &second {
        Some(row) if from.0 < begin.oldest => reader.entry_at(row, Seq(begin.removed))?.filter(|kept| kept.seq == from),
        Some(_) | None => None,
    };
    let is_pinned = kept.is_some();
    let (one, first) = match kept {
        Some(kept) => (kept, second.clone()),
        None => (stored(reader, from).map_err(|p| p.of("from"))?, reader.object_of(from)?),
    };
    let same = first.as_ref().zip(second.as_ref()).is_some_and(|(first, second)| first.is(second));
    let summaries = Summaries::new(clock, reader.head()?);
    let damaged = |seq: Seq| Problem::bug(format!("entry {seq} is damaged; run `decklog verify`"));
    let (before, after) =
        (Entry::parse(&one.line).map_err(|_| damaged(from))?, Entry::parse(&other.line).map_err(|_| damaged(to))?);
    let object = |entry: &Entry<'_>, key| {
        let object = entry.object.map(|object| object.get().to_owned());
        object.ok_or_else(|| Problem::wrong(key, "a GAP is of no object; take an entry of one"))
    };
    let (before, after) = (object(&before, "from")?, object(&after, "to")?);
    #[derive(serde::Deserialize)]
    struct Patch<'a> {
        #[serde(borrow)]
        patch: Vec<wire::Op<'a>>,
    }
    let change = change::compare(before.as_bytes(), after.as_bytes(), &[], &[]).map_err(|_| damaged(to))?;
    let mut tree = Node::parse_within(after.as_bytes(), NODES).map_err(|_| damaged(to))?;
    let patch: Patch<'_> = serde_json::from_str(&change.json).map_err(|_| damaged(to))?;
    tree.revert(&patch.patch).map_err(|_| damaged(to))?;
    let (diff, diff_cut) = difference(tree);
    let command = second.filter(|_| same && from <= to && !is_pinned);
    Ok(Compared {
        from: summaries.of(&one),
        to: summaries.of(&other),
        diff,
        diff_cut,
        same_object: same,
        command: command.map(|row| format!("decklog diff {} --from {from} --to {to}", spelled(&row))),
    })
}

/// A field of an object, and who set it.
#[derive(Debug, Serialize)]
struct Field {
    path: String,
    value: String,
    manager: String,
    operation: String,
    seq: Option<u64>,
    time: Option<String>,
}

/// One object, over the whole log.
#[derive(Debug, Serialize)]
pub(crate) struct ObjectPage {
    lane: Lane,
    /// Times for which nothing is known of it.
    unwatched: Vec<Uncovered>,
    entries: Vec<Summary>,
    more: bool,
    at: Option<u64>,
    yaml: Option<String>,
    yaml_cut: bool,
    blame: Vec<Field>,
    blame_cut: bool,
    command: Option<String>,
}

/// The object that a query names.
fn named(reader: &Reader, query: &Query) -> Result<ObjectRow, Problem> {
    let (Some(resource), Some(name)) = (query.one("resource"), query.one("name")) else {
        return Err(Problem::wrong("name", "say which object: resource=deployments.apps&namespace=shop&name=web"));
    };
    let namespace = query.one("namespace").unwrap_or_default();
    super::lanes::row_of(reader, &format!("{resource}/{namespace}/{name}"))?.ok_or_else(|| {
        let shown = |text: &str| cut(text, 253).into_owned();
        let within = if namespace.is_empty() { String::new() } else { format!(" in namespace {}", shown(namespace)) };
        Problem::missing(format!("the journal knows no {}/{}{within}", shown(resource), shown(name)))
    })
}

/// An object: its lane, its entries, and what it was at a moment, with who had set that.
pub(super) fn object(
    index: &Index,
    reader: &mut Reader,
    query: &Query,
    clock: &Clock,
    present: Present,
    deadline: Instant,
) -> Result<ObjectPage, Problem> {
    let row = named(reader, query)?;
    let at = place(reader, query, "at", clock)?;
    let head = reader.head()?;
    let steps = reader.history(&row, Seq(0), Seq(u64::MAX), MARKS + 1)?;
    let mut found = Found { newest: steps.first().map_or(0, |step| step.seq.0), ..Found::default() };
    found.oldest = steps.last().map(|step| step.kind);
    let seqs: Vec<u64> = steps.iter().take(OF_OBJECT).map(|step| step.seq.0).collect();
    let summaries = Summaries::new(clock, head);
    let entries = summaries.with(reader, &seqs)?;
    outline(index, reader, &steps[..steps.len().min(MARKS)], &mut found)?;
    let resources = Resources::load(reader)?;
    let mut lane = lane(index, reader, &resources, &row, found, head.0)?;
    lane.id = id_of(&row);
    let upto = at.map_or(Seq(u64::MAX), |at| at.seq);
    let state = reader.step(&row, upto)?;
    let unrecorded = if at.is_none() { reader.unrecorded(&row)? } else { None };
    let is_there = state.is_some_and(|step| step.kind != EntryType::Deleted) || unrecorded.is_some();
    let mut page = ObjectPage {
        unwatched: coverage::of_object(reader, &row, present.at, deadline)?,
        lane,
        entries,
        more: steps.len() > OF_OBJECT,
        at: state.map(|step| step.seq.0),
        yaml: None,
        yaml_cut: false,
        blame: Vec::new(),
        blame_cut: false,
        command: None,
    };
    if !is_there {
        return Ok(page);
    }
    let found = trace(reader, &row, at, BLAMED, clock)?;
    let (yaml, yaml_cut) = shown(found.object.as_bytes());
    (page.yaml, page.yaml_cut) = (Some(yaml), yaml_cut);
    // A state from before the log is reached by the moment at which the log begins.
    let begin = Seq(reader.retained()?.removed);
    page.command = state.map(|step| brings_back(&row, step.seq.max(begin)));
    page.blame_cut = found.fields.len() > FIELDS;
    page.blame = found
        .fields
        .into_iter()
        .take(FIELDS)
        .map(|field| {
            let mut managers: Vec<&str> = field.managers.iter().map(|by| by.manager.as_str()).collect();
            managers.dedup();
            Field {
                path: cut(&dotted(&field.path), VALUE).into_owned(),
                value: cut(field.value.get(), VALUE).into_owned(),
                manager: cut(&managers.join(", "), VALUE).into_owned(),
                operation: field.managers.first().map_or_else(String::new, |by| by.operation.clone()),
                seq: field.seq,
                time: Some(field.time).filter(|time| !time.is_empty()),
            }
        })
        .collect();
    Ok(page)
}

/// `spec.replicas` for `/spec/replicas`.
fn dotted(pointer: &str) -> String {
    crate::words::tree::steps(pointer).join(".")
}

/// The marks of these entries of one object, newest first.
fn outline(
    index: &Index,
    reader: &mut Reader,
    steps: &[crate::journal::Step],
    found: &mut Found,
) -> Result<(), Problem> {
    // Those near to each other are in one outline.
    let mut at = 0;
    while at < steps.len() {
        let part = part_of(steps[at].seq.0);
        let count = steps[at..].iter().take_while(|step| part_of(step.seq.0) == part).count();
        let (newest, oldest) = (steps[at].seq.0, steps[at + count - 1].seq.0);
        let wanted: std::collections::HashSet<u64> = steps[at..at + count].iter().map(|step| step.seq.0).collect();
        index.walk(reader, (oldest.saturating_sub(1), newest), Way::Back, Instant::now(), &mut |part, mark| {
            if !wanted.contains(&mark.seq) {
                return ControlFlow::Continue(());
            }
            let words = part.words(mark);
            if matches!(mark.kind(), EntryType::Added | EntryType::Deleted) {
                let came = mark.kind() == EntryType::Added;
                found.turns.push(Turn { came, time: mark.time, evidence: mark.evidence(), uid: words.uid.clone() });
            }
            if mark.quiet {
                found.quiet += 1;
            }
            match found.marks.last_mut() {
                Some(last) if mark.quiet => last.quiet += 1,
                _ => found.marks.push(MarkLine {
                    seq: mark.seq,
                    time: stamp(mark.time),
                    kind_of: if mark.quiet { "QUIET" } else { mark.kind().as_str() },
                    evidence: mark.evidence(),
                    areas: super::summary::list(&words.areas, ','),
                    managers: super::summary::list(&words.managers, '\n'),
                    quiet: u64::from(mark.quiet),
                }),
            }
            ControlFlow::Continue(())
        })?;
        at += count;
    }
    Ok(())
}
