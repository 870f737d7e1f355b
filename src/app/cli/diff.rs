//! `decklog diff`: what changed between two moments, of one object, a namespace, or everything.

use clap::Args;
use serde::Serialize;

use super::clock::clock;
use super::line::put_gap;
use super::names::{At, at};
use super::output::{Ink, Out, Row, plural, printable, sentence};
use super::select::manager;
use super::tree::Node;
use super::yaml::{self, Sign, View};
use super::{Exit, Failure, Format, Global, Outcome, complain, object};
use crate::core::k8s::bookkeeping;
use crate::core::wire::EntryGap;
use crate::journal::StoredEntry;
use crate::query::coverage::known::Reach;
use crate::query::difference::{DiffKind, ObjectDifference};
use crate::query::line::Line;
use crate::query::questions::diff::{Diff, End, Hole, Item, ObjectDiff};
use crate::query::stamp;

/// Arguments of `decklog diff`.
#[derive(Args, Debug)]
pub struct DiffArgs {
    /// Resources and objects as kubectl spells them: deploy, deploy/web [default: everything]; and the moments, instead of
    /// --from and --to: 14..100, 10:00..10:30, 1h.., or 14 100
    #[arg(value_name = "KIND[/NAME] or FROM..TO")]
    pub objects: Vec<String>,
    /// Only these namespaces: shop, or shop,pay
    #[arg(short, long, value_name = "NS", value_delimiter = ',')]
    pub namespace: Vec<String>,
    /// All namespaces, which is the default
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub all_namespaces: bool,
    /// Only objects that these programs wrote in between, as managedFields name them, or these users, as an audit log names them:
    /// kubectl-set, 'kubectl*,flux', or alice@example.com
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = manager)]
    pub by: Vec<String>,
    /// Start: a duration back (30m), a time (10:00, 'yesterday 10:00', '2026-11-21 10:00', RFC 3339), or right after an
    /// entry (its seq) [default: an hour ago]
    #[arg(long, value_name = "TIME or SEQ", value_parser = at, allow_hyphen_values = true)]
    pub from: Option<At>,
    /// End, in the same formats [default: now]
    #[arg(long, value_name = "TIME or SEQ", value_parser = at, allow_hyphen_values = true)]
    pub to: Option<At>,
    /// Also objects that differ in their status alone
    #[arg(long)]
    pub status: bool,
    /// Only objects that differ in these parts: spec, status, metadata, data or another top-level one; and those that came or went
    #[arg(long = "only", value_name = "AREA", value_delimiter = ',')]
    pub areas: Vec<String>,
}

/// A GAP as JSON.
#[derive(Serialize)]
struct Gap<'a> {
    seq: u64,
    resource: &'a str,
    #[serde(flatten)]
    gap: &'a EntryGap,
}

/// An object as JSON.
#[derive(Serialize)]
struct ObjectDocument<'a> {
    #[serde(flatten)]
    difference: &'a ObjectDifference,
    /// Time of the last change, of more than the status where there is one.
    time: String,
    by: &'a [String],
}

impl<'a> From<&'a ObjectDiff> for ObjectDocument<'a> {
    fn from(found: &'a ObjectDiff) -> Self {
        Self { difference: &found.difference, time: stamp(found.time), by: &found.by }
    }
}

/// The answer as JSON.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Document<'a> {
    from: &'a End,
    to: &'a End,
    objects: Vec<ObjectDocument<'a>>,
    came_and_went: usize,
    gaps: Vec<Gap<'a>>,
    unknown: &'a [String],
}

/// The answer.
#[derive(Default)]
struct Difference {
    from: End,
    to: End,
    single: bool,
    objects: Vec<ObjectDiff>,
    came_and_went: usize,
    gaps: Vec<Hole>,
    unknown: Vec<String>,
    known: Reach,
}

impl Difference {
    fn take(&mut self, item: Item) {
        match item {
            Item::Begin { from, to, single, known } => {
                (self.from, self.to, self.single, self.known) = (from, to, single, known);
            }
            Item::Object(object) => self.objects.push(*object),
            Item::Gap(gap) => self.gaps.push(*gap),
            Item::Unknown(text) => self.unknown.push(text),
            Item::CameAndWent(count) => self.came_and_went = count,
        }
    }

    /// Leaves out what differs in its status alone, and says how much that is.
    fn leave_status_out(&mut self) {
        let all = self.objects.len();
        self.objects.retain(|object| !object.is_status);
        let left_out = all - self.objects.len();
        if left_out > 0 {
            let objects = plural(left_out as u64, "object differs in its", "objects differ in their");
            complain(&format!("note: {objects} status alone; --status shows that too"));
        }
    }

    fn document(&self) -> Document<'_> {
        Document {
            from: &self.from,
            to: &self.to,
            objects: self.objects.iter().map(ObjectDocument::from).collect(),
            came_and_went: self.came_and_went,
            gaps: self
                .gaps
                .iter()
                .map(|hole| Gap { seq: hole.seq, resource: &hole.resource, gap: &hole.gap })
                .collect(),
            unknown: &self.unknown,
        }
    }
}

/// Prints the difference.
///
/// # Errors
/// Exit 1 where the journal does not reach back to a moment or knows no such object.
pub fn main(mut args: DiffArgs, global: &Global) -> Outcome {
    args.take_moments()?;
    let format = global.output.unwrap_or(Format::Line);
    let question = Diff {
        objects: args.objects,
        namespaces: args.namespace,
        by: args.by,
        from: args.from,
        to: args.to,
        areas: args.areas.clone(),
        utc: format != Format::Line,
    };
    let mut difference = Difference::default();
    global.ask(question, &mut |item| {
        difference.take(item);
        Ok(())
    })?;
    if format == Format::Line && !args.status && !difference.single && !args.areas.iter().any(|area| area == "status") {
        difference.leave_status_out();
    }
    let mut out = Out::paged(global);
    match format {
        Format::Line | Format::Wide | Format::Name => print(&mut out, &difference)?,
        format @ (Format::Json | Format::Yaml) => out.document(format, &difference.document())?,
    }
    out.flush()?;
    Ok(Exit::Done)
}

impl DiffArgs {
    /// Takes the moments out of what stands without a flag: `A..B`, `A..`, or `A B`.
    fn take_moments(&mut self) -> Result<(), Failure> {
        let (mut moments, mut objects) = (Vec::new(), Vec::new());
        for word in std::mem::take(&mut self.objects) {
            let read = |text: &str| {
                let moment = at(text).map_err(|expected| Failure::usage(format!("{word}: {expected}")))?;
                if let Some(understood) = clock().understood("the moment", text) {
                    complain(&understood);
                }
                Ok::<_, Failure>(moment)
            };
            // A zone has a `/` too, and no object is called like a moment.
            let is_moments = |(from, to): &(&str, &str)| !word.contains('/') || (at(from).is_ok() && at(to).is_ok());
            match word.split_once("..").filter(is_moments) {
                Some((from, "")) => moments.push(read(from)?),
                Some((from, to)) => moments.extend([read(from)?, read(to)?]),
                // No resource is called like a moment.
                None => match at(&word) {
                    Ok(_) => moments.push(read(&word)?),
                    Err(_) => objects.push(word),
                },
            }
        }
        self.objects = objects;
        let flags = [self.from, self.to].iter().flatten().count();
        if moments.len() > 2 || (!moments.is_empty() && flags > 0) {
            return Err(Failure::usage("diff compares two moments; write FROM..TO, or --from and --to"));
        }
        let mut moments = moments.into_iter();
        self.from = self.from.or(moments.next());
        self.to = self.to.or(moments.next());
        Ok(())
    }
}

/// Returns the sign and the colour in front of a line.
const fn sign(became: DiffKind) -> (&'static str, Ink) {
    match became {
        DiffKind::Added => ("+", Ink::Good),
        DiffKind::Removed => ("-", Ink::Bad),
        DiffKind::Changed | DiffKind::Replaced => ("~", Ink::Change),
        DiffKind::FirstSeen => ("?", Ink::Alarm),
    }
}

fn print(out: &mut Out, difference: &Difference) -> Result<(), Failure> {
    let look = out.look;
    let faint = |out: &mut Out, text: &str| {
        let mut row = Row::new(look);
        row.put(Some(Ink::Faint), text);
        out.line(&row.finish())
    };
    let end = |end: &End| format!("{} (entry {})", end.time, end.seq);
    let mut head = Row::new(look);
    head.hang(5);
    head.put(Some(Ink::Faint), &format!("from {}", end(&difference.from)));
    head.flow(Some(Ink::Faint), " ", &format!("to {}", end(&difference.to)));
    out.line(&head.finish())?;
    let mut objects: Vec<&ObjectDiff> = difference.objects.iter().collect();
    // As in `log`, the newest first.
    objects.sort_by_key(|object| std::cmp::Reverse((object.time, object.difference.entries.last().copied())));
    for ObjectDiff { difference: found, resource, time, by, before, after, .. } in objects {
        let (sign, ink) = sign(found.became);
        let mut row = Row::new(look);
        row.put(Some(ink), &format!("{sign} {}", found.became.word())).put(None, " ");
        row.put(Some(Ink::Strong), &printable(&title(resource, found)));
        row.hang(4);
        if !by.is_empty() {
            row.flow(Some(Ink::Who), "  ", &printable(&by.join(", ")));
        }
        let entries = match &found.entries[..] {
            [seq] => format!("entry {seq}"),
            entries => format!("entries {} to {} ({})", entries[0], entries[entries.len() - 1], entries.len()),
        };
        let doubt = match found.became {
            DiffKind::FirstSeen => ", unknown before",
            DiffKind::Added | DiffKind::Removed if found.evidence == "inferred" => ", in a gap",
            DiffKind::Added | DiffKind::Removed | DiffKind::Changed | DiffKind::Replaced => "",
        };
        row.flow(Some(Ink::Faint), "  ", &format!("{entries}{doubt},")).flow(
            Some(Ink::Faint),
            " ",
            &object::time_spelled(*time, clock()),
        );
        out.line(&row.finish())?;
        let shown = match (found.became, difference.single) {
            (DiffKind::Changed | DiffKind::Replaced, _) => after.as_ref(),
            (DiffKind::Added | DiffKind::FirstSeen, true) => after.as_ref(),
            (DiffKind::Removed, true) => before.as_ref(),
            (DiffKind::Added | DiffKind::FirstSeen | DiffKind::Removed, false) => None,
        };
        if let Some(Line(stored)) = shown {
            put_object(out, found, stored)?;
        }
    }
    for hole in &difference.gaps {
        let mut row = Row::new(look);
        row.uncut();
        row.hang(2);
        let entry = object::parse(&hole.entry.0)?;
        row.put(Some(Ink::Alarm), &format!("GAP {} (entry {}) ", printable(&entry.full_resource()), hole.seq));
        put_gap(&mut row, &entry, clock());
        out.line(&row.finish())?;
    }
    for unknown in &difference.unknown {
        out.line(&sentence(look, 2, Some(Ink::Alarm), &printable(unknown)))?;
    }
    let is = |became: &[DiffKind], object: &ObjectDiff| became.contains(&object.difference.became);
    let count = |became: &[DiffKind]| difference.objects.iter().filter(|object| is(became, object)).count();
    let mut parts = Vec::new();
    for (many, word) in [
        (count(&[DiffKind::Added]), "added"),
        (count(&[DiffKind::Removed]), "removed"),
        (count(&[DiffKind::Changed, DiffKind::Replaced]), "changed"),
        (count(&[DiffKind::FirstSeen]), "first seen"),
        (difference.came_and_went, "came and went"),
    ] {
        if many > 0 {
            parts.push(format!("{} {word}", super::output::count(many as u64)));
        }
    }
    faint(out, &summary(difference, &parts))
}

/// The last line: how many objects differ, or that none does, as far as that is known.
fn summary(difference: &Difference, parts: &[String]) -> String {
    let summary = match difference.known {
        _ if !parts.is_empty() => parts.join(", "),
        Reach::Nothing => "nothing is known of this time".to_owned(),
        Reach::All if difference.gaps.is_empty() && difference.unknown.is_empty() => "no difference".to_owned(),
        Reach::All | Reach::Part => "no difference is known".to_owned(),
    };
    let is_unknown = parts.is_empty() && difference.known == Reach::Nothing;
    let lost = if difference.gaps.is_empty() || is_unknown { "" } else { "; other changes in the gaps are unknown" };
    format!("{summary}{lost}")
}

/// `deployments.apps shop/web`
fn title(resource: &str, found: &ObjectDifference) -> String {
    match found.namespace.as_str() {
        "" => format!("{resource} {}", found.name),
        namespace => format!("{resource} {namespace}/{}", found.name),
    }
}

fn put_object(out: &mut Out, found: &ObjectDifference, stored: &StoredEntry) -> Result<(), Failure> {
    let entry = object::parse(stored)?;
    let damaged = |error: serde_json::Error| object::damaged(stored.seq, &error);
    let object = entry.object.ok_or_else(|| object::damaged(stored.seq, &"it has no object"))?;
    let tree = Node::parse(object.get().as_bytes()).map_err(damaged)?;
    let tree = match found.became {
        DiffKind::Added | DiffKind::FirstSeen => tree.added(),
        DiffKind::Removed => tree.gone(),
        DiffKind::Changed | DiffKind::Replaced => {
            let mut tree = tree;
            let patch = found.patch.as_ref().map_or("[]", |patch| patch.get());
            tree.revert(&serde_json::from_str::<Vec<_>>(patch).map_err(damaged)?).map_err(damaged)?;
            for pointer in &found.redacted {
                tree.redacted(pointer);
            }
            tree
        }
    };
    put_tree(out, tree)
}

/// The differences of a tree, without what every write moves.
pub(super) fn put_tree(out: &mut Out, mut tree: Node<'_>) -> Result<(), Failure> {
    tree.without(&bookkeeping::PATHS);
    tree.without_empty(&["metadata", "annotations"]);
    if tree.differs() {
        return put_difference(out, &tree);
    }
    let mut row = Row::new(out.look);
    row.put(Some(Ink::Faint), "    nothing but what every write moves");
    out.line(&row.finish())
}

/// A difference as YAML, indented.
fn put_difference(out: &mut Out, tree: &Node<'_>) -> Result<(), Failure> {
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
