//! Summary of a change in a few words: `image nginx:1 → nginx:2`, `condition Ready False → True`, `spec.paused false → true`.

use std::borrow::Cow;

use super::row::{Ink, Row, cut, printable};
use super::tree::{Body, Mark, Node, Step};
use super::who;
use crate::core::k8s::bookkeeping;
use crate::core::k8s::managed_fields::Manager;
use crate::core::model::EntryType;
use crate::core::wire::{Change, Entry, Unnamed, authors, unnamed};

/// An entry, described: its object with what the change did to it, and who did it.
pub(crate) struct AnnotatedEntry<'e> {
    pub(crate) tree: Node<'e>,
    pub(crate) areas: Vec<String>,
    pub(crate) managers: Vec<Manager>,
    /// The reason why there are no managers, where it is known.
    pub(crate) unnamed: Option<Unnamed>,
}

impl<'e> AnnotatedEntry<'e> {
    /// Reads an entry that is a change.
    ///
    /// # Errors
    /// What is wrong with it, where it is damaged.
    pub(crate) fn read(entry: &Entry<'e>) -> Result<Self, String> {
        let damaged = |error: serde_json::Error| error.to_string();
        let object = entry.object.map(serde_json::value::RawValue::get).filter(|object| object.starts_with('{'));
        let object = object.ok_or("it has no object")?;
        let mut tree = Node::parse(object.as_bytes()).map_err(damaged)?;
        let (managers, unnamed) = (authors(entry), unnamed(entry));
        let (tree, areas) = match entry.op {
            EntryType::Modified => {
                let change = Change::of(entry).map_err(damaged)?.unwrap_or_default();
                tree.revert(&change.patch).map_err(damaged)?;
                for area in change.dropped() {
                    tree.redacted(&format!("/{area}"));
                }
                (tree, change.areas)
            }
            EntryType::Added | EntryType::Gap | EntryType::Actor => (tree.added(), Vec::new()),
            EntryType::Deleted => (tree.gone(), Vec::new()),
        };
        Ok(Self { tree, areas, managers, unnamed })
    }

    /// Puts on a line who did it, and of a change what it was. Says whether there was anything to put.
    pub(crate) fn put(&self, row: &mut Row, op: EntryType) -> bool {
        let who = self.who(row);
        if op == EntryType::Modified {
            ChangeSummary::of(&self.tree, &self.areas).put(row, &who);
            return true;
        }
        match (who.text.is_empty(), row.is_on_terminal()) {
            (true, _) => return false,
            (false, true) => row.flow(Some(who.ink), "", &who.text),
            (false, false) => row.put(None, &who.text),
        };
        true
    }

    /// Returns the name of the most important thing that changed: `image`, `spec.paused`; the areas where there is none.
    pub(crate) fn subject(&self) -> String {
        let summary = ChangeSummary::of(&self.tree, &self.areas);
        summary.items.first().map_or_else(|| summary.areas(), |item| item.short.clone())
    }

    /// Returns those who did it, or why nobody is named.
    fn who(&self, row: &Row) -> who::Line {
        // The evidence itself stands on the line, and that nothing but the version moved.
        let is_said = |why: &Unnamed| matches!(why, Unnamed::Listed | Unnamed::Inferred | Unnamed::NoOp);
        who::Line::of(&self.managers, self.unnamed.filter(|why| !is_said(why)), row.is_on_terminal())
    }

    /// Puts on a line, and on one below it at most, what happened and those who did it.
    pub(crate) fn put_brief(&self, row: &mut Row, op: EntryType) {
        let who = self.who(row);
        if op == EntryType::Modified {
            ChangeSummary::of(&self.tree, &self.areas).put_brief(row, &who);
            return;
        }
        let what = if op == EntryType::Added { "created" } else { "deleted" };
        // That it is a deletion is what happened.
        if op == EntryType::Added && !who.text.is_empty() {
            row.flow(Some(who.ink), "", &who.text).put(None, "  ");
        }
        row.flow(None, "", what);
    }
}

fn is_book(path: &[Step<'_, '_>]) -> bool {
    bookkeeping::PATHS.iter().any(|book| {
        book.len() <= path.len()
            && book.iter().zip(path).all(|(key, step)| matches!(step, Step::Key(name) if name == key))
    })
}

/// A value is shown with at most so many characters.
const VALUE: usize = 32;
/// A line shows at most so many values.
const MOST: usize = 3;
/// From this rank on few people look for a change.
const SELDOM_SOUGHT: u8 = 6;
/// From this rank on a change is not shown.
const NOISE: u8 = 20;

/// One thing that changed.
#[derive(Debug)]
struct Item {
    /// Rank of the piece: the most relevant come first.
    rank: u8,
    /// The first word of its path.
    area: String,
    /// `spec.template.spec.nodeName`, or a word for it.
    name: String,
    /// Shortest form.
    short: String,
    /// The old and the new value.
    values: String,
    /// Before the name: `+`, `-` or nothing.
    sign: &'static str,
}

impl Item {
    fn spell(&self, shortly: bool) -> String {
        let name = if shortly { &self.short } else { &self.name };
        let gap = if self.values.is_empty() { "" } else { " " };
        format!("{}{name}{gap}{}", self.sign, self.values)
    }
}

/// Summary of the difference between two versions.
#[derive(Debug)]
struct ChangeSummary {
    areas: Vec<String>,
    items: Vec<Item>,
}

impl ChangeSummary {
    /// Summarizes a tree from which a patch was reverted, with the areas that the entry names.
    fn of(tree: &Node<'_>, areas: &[String]) -> Self {
        let mut items: Vec<Item> = Vec::new();
        for mut found in tree.differences() {
            let (mark, before) = (&found.node.mark, items.len());
            let area = match found.path.first() {
                Some(Step::Key(area)) => printable(area).into_owned(),
                Some(Step::Element(..)) | None => String::new(),
            };
            describe_all(tree, &mut found.path, found.node, mark, &mut items);
            items[before..].iter_mut().for_each(|item| item.area.clone_from(&area));
        }
        // Why and when a condition changed matters less than that it did.
        let conditions: Vec<String> =
            items.iter().filter(|item| item.rank == CONDITION).map(|item| item.name.clone() + ".").collect();
        items.retain(|item| item.rank == CONDITION || !conditions.iter().any(|of| item.name.starts_with(of.as_str())));
        items.sort_by_key(|item| item.rank);
        let noise = items.iter().position(|item| item.rank >= NOISE).unwrap_or(items.len());
        items.truncate(noise);
        // Every change moves metadata; it is only worth a word where there is nothing else.
        let named = |area: &&String| !["managedFields", "metadata"].contains(&area.as_str());
        let mut names: Vec<&str> = areas.iter().filter(named).map(String::as_str).collect();
        if names.is_empty() {
            names = areas.iter().map(String::as_str).collect();
        }
        Self { areas: names.into_iter().map(|area| printable(area).into_owned()).collect(), items }
    }

    fn areas(&self) -> String {
        if self.areas.is_empty() { "nothing but resourceVersion".to_owned() } else { self.areas.join(" ") }
    }

    /// Puts it on a line: on a terminal behind those who did it, on this line and the one below; elsewhere all that a
    /// line may be searched for.
    fn put(&self, row: &mut Row, who: &who::Line) {
        let most = self.items.len().min(MOST);
        if !row.is_on_terminal() {
            let what =
                if most == 0 { String::new() } else { format!("  {}", self.spell(most, false, false).join(" ")) };
            let who = if who.text.is_empty() { String::new() } else { format!("  {}", who.text) };
            row.put(Some(Ink::Change), &self.areas()).put(None, &what).put(None, &who);
            return;
        }
        // In full counts more than on one line; but what few people look for is not worth another line. The writer is the same
        // text at every width.
        let sought = self.items[..most].iter().filter(|item| item.rank < SELDOM_SOUGHT).count().max(most.min(1));
        let mut candidates = Vec::new();
        for (count, below) in [(most, 0), (sought, 0), (most, 1)] {
            candidates.push((count, false, below));
        }
        candidates.push((most, true, 1));
        for count in (1..most).rev() {
            candidates.extend([(count, false, 1), (count, true, 1)]);
        }
        let fits = |(count, shortly, below): &&(usize, bool, usize)| {
            let what = self.spell(*count, *shortly, true);
            let what = what.iter().enumerate().map(|(at, piece)| (gap(at, &who.text), piece.as_str()));
            let pieces: Vec<(&str, &str)> = std::iter::once(("", who.text.as_str())).chain(what).collect();
            row.takes(&pieces, *below)
        };
        let least = (most.min(1), true, 1);
        let (count, shortly, _) = *candidates.iter().find(fits).unwrap_or(&least);
        row.flow(Some(who.ink), "", &who.text);
        for (at, piece) in self.spell(count, shortly, true).iter().enumerate() {
            row.flow(Some(Ink::Faint).filter(|_| most == 0), gap(at, &who.text), piece);
        }
    }

    /// Puts the names and what fits beside them on this line, or else the most important change on the line below.
    fn put_brief(&self, row: &mut Row, who: &who::Line) {
        let names = &who.text;
        let most = self.items.len().min(MOST);
        let mut candidates: Vec<(usize, bool, usize)> = (1..=most).rev().map(|count| (count, false, 0)).collect();
        candidates.extend([(most.min(1), true, 0), (most.min(1), false, 1)]);
        let fits = |(count, shortly, below): &&(usize, bool, usize)| {
            let what = self.spell(*count, *shortly, true);
            let what = what.iter().enumerate().map(|(at, piece)| (gap(at, names), piece.as_str()));
            let pieces: Vec<(&str, &str)> = std::iter::once(("", names.as_str())).chain(what).collect();
            row.takes(&pieces, *below)
        };
        let (count, shortly, _) = *candidates.iter().find(fits).unwrap_or(&(most.min(1), true, 1));
        row.flow(Some(who.ink), "", names);
        for (at, piece) in self.spell(count, shortly, true).iter().enumerate() {
            row.flow(Some(Ink::Faint).filter(|_| most == 0), gap(at, names), piece);
        }
    }

    /// The first changes, one by one, and how much more there is, with the areas of it that nothing shown is of where
    /// they are said nowhere else. Without any change, the areas.
    fn spell(&self, count: usize, shortly: bool, alone: bool) -> Vec<String> {
        if count == 0 {
            return vec![self.areas()];
        }
        let (shown, rest) = self.items.split_at(count);
        let mut pieces: Vec<String> = shown.iter().map(|item| item.spell(shortly)).collect();
        if !rest.is_empty() {
            let unsaid = self.areas.iter().filter(|area| {
                alone && rest.iter().any(|item| item.area == **area) && !shown.iter().any(|item| item.area == **area)
            });
            let unsaid: Vec<&str> = unsaid.map(String::as_str).collect();
            let place = if unsaid.is_empty() { String::new() } else { format!(" in {}", unsaid.join(", ")) };
            pieces.push(format!("+{} more{place}", rest.len()));
        }
        let last = pieces.len() - 1;
        pieces[..last].iter_mut().for_each(|piece| piece.push(','));
        pieces
    }
}

/// Returns the separator before a piece of the summary, behind the authors.
const fn gap(at: usize, who: &str) -> &'static str {
    match (at, who.is_empty()) {
        (0, true) => "",
        (0, false) => "  ",
        _ => " ",
    }
}

/// The rank of a condition that has another status.
const CONDITION: u8 = 4;

/// Whole areas, and all conditions at once, that came or went are described by what is in them.
fn describe_all<'t, 'a>(
    tree: &Node<'_>,
    path: &mut Vec<Step<'t, 'a>>,
    node: &'t Node<'a>,
    mark: &Mark<'_>,
    items: &mut Vec<Item>,
) {
    let whole = matches!(mark, Mark::Added | Mark::Gone);
    match &node.body {
        Body::Object(members) if whole && path.len() == 1 => {
            for (key, node) in members {
                path.push(Step::Key(key));
                describe_all(tree, path, node, mark, items);
                path.pop();
            }
        }
        Body::Array(elements) if whole && matches!(path[..], [_, Step::Key("conditions")]) => {
            for (place, node) in elements.iter().enumerate() {
                let name = node.named().map_or_else(|| Cow::Owned(place.to_string()), |(_, name)| name);
                path.push(Step::Element(name, place, node));
                items.push(describe(tree, path, node, mark));
                path.pop();
            }
        }
        Body::Object(_) | Body::Array(_) | Body::Leaf(_) => items.push(describe(tree, path, node, mark)),
    }
}

fn describe(tree: &Node<'_>, path: &[Step<'_, '_>], node: &Node<'_>, mark: &Mark<'_>) -> Item {
    use Step::{Element, Key};
    let time = matches!(path.last(), Some(Key(key)) if key.ends_with("Time") || key.ends_with("Timestamp"));
    let (rank, word) = match path {
        _ if is_book(path) => (NOISE, None),
        [Key("metadata"), Key("deletionTimestamp")] if matches!(mark, Mark::Added) => {
            let name = "marked for deletion".to_owned();
            return Item { rank: 0, area: String::new(), short: name.clone(), name, values: String::new(), sign: "" };
        }
        [.., Key("containers" | "initContainers" | "ephemeralContainers"), Element(name, ..), Key("image")] => {
            (0, Some(if is_alone(tree, path) { "image".to_owned() } else { format!("image of {name}") }))
        }
        [Key("spec"), Key("replicas")] => (0, Some("replicas".to_owned())),
        [.., Key("env"), Element(name, ..), Key("value")] => (1, Some(format!("env {name}"))),
        [Key("data" | "stringData" | "binaryData"), ..] => (1, None),
        [Key("status"), Key("phase")] => (3, Some("phase".to_owned())),
        [Key("status"), Key("conditions"), Element(name, ..), Key("status")] => {
            (CONDITION, Some(format!("condition {name}")))
        }
        [Key("status"), Key("conditions"), Element(name, ..)] => {
            let status = node.member("status").and_then(Node::text).unwrap_or_default();
            let values = if matches!(mark, Mark::Added) { plain(&status) } else { String::new() };
            let name = printable(&format!("condition {name}")).into_owned();
            return Item { rank: CONDITION, area: String::new(), short: name.clone(), name, values, sign: sign(mark) };
        }
        [Key("status"), Key("conditions"), Element(name, ..), Key(key)] => {
            (if time { 9 } else { 6 }, Some(format!("condition {name}.{key}")))
        }
        [Key("metadata"), Key("labels"), Key(key)] => (5, Some(format!("label {key}"))),
        [Key("metadata"), Key("annotations"), Key(key)] => (7, Some(format!("annotation {key}"))),
        [Key("metadata"), ..] => (7, None),
        _ if time => (9, None),
        [Key("status"), ..] => (6, None),
        _ => (2, None),
    };
    let (name, short) = match word {
        Some(word) => (word.clone(), word),
        None if path.is_empty() => ("everything".to_owned(), "everything".to_owned()),
        None => (spell(path), shorten(path)),
    };
    let values = match mark {
        Mark::Was(was) if path.is_empty() || matches!(was.body, Body::Object(_) | Body::Array(_)) => String::new(),
        Mark::Was(was) => values(was, node),
        Mark::Added => value(node),
        Mark::Redacted => "changed (redacted)".to_owned(),
        Mark::Gone | Mark::Same => String::new(),
    };
    let (name, short) = (printable(&name).into_owned(), printable(&short).into_owned());
    Item { rank, area: String::new(), name, short, values, sign: sign(mark) }
}

const fn sign(mark: &Mark<'_>) -> &'static str {
    match mark {
        Mark::Added => "+",
        Mark::Gone => "-",
        Mark::Same | Mark::Was(_) | Mark::Redacted => "",
    }
}

/// Reports whether the last element on a path is the only one of its list.
fn is_alone(tree: &Node<'_>, path: &[Step<'_, '_>]) -> bool {
    let Some(list) = path.iter().rposition(|step| matches!(step, Step::Element(..))) else { return true };
    let mut at = tree;
    for step in &path[..list] {
        match step {
            Step::Key(key) => match at.member(key) {
                Some(below) => at = below,
                None => return true,
            },
            Step::Element(_, _, node) => at = node,
        }
    }
    matches!(&at.body, Body::Array(items) if items.len() == 1)
}

/// `spec.template.spec.containers[web].tty`
fn spell(path: &[Step<'_, '_>]) -> String {
    let mut out = String::new();
    for step in path {
        match step {
            Step::Key(key) => {
                if !out.is_empty() {
                    out.push('.');
                }
                out.push_str(key);
            }
            Step::Element(name, ..) => out.push_str(&format!("[{name}]")),
        }
    }
    out
}

/// `spec…resources.limits`
fn shorten(path: &[Step<'_, '_>]) -> String {
    if path.len() < 4 {
        return spell(path);
    }
    let end = if matches!(path[path.len() - 2], Step::Element(..)) { 3 } else { 2 };
    if path.len() - end < 2 {
        return spell(path);
    }
    format!("{}…{}", spell(&path[..1]), spell(&path[path.len() - end..]))
}

fn value(node: &Node<'_>) -> String {
    match (&node.body, node.text()) {
        (Body::Leaf(_), Some(text)) => plain(&text),
        _ => String::new(),
    }
}

/// `a → b`; of two long texts only where they begin to differ.
fn values(was: &Node<'_>, is: &Node<'_>) -> String {
    let (was, is) = (was.text().unwrap_or_default(), is.text().unwrap_or_default());
    if was.trim_end().contains('\n') || is.trim_end().contains('\n') {
        let diff = similar::TextDiff::from_lines(&*was, &*is);
        let lines = |tag| diff.iter_all_changes().filter(|change| change.tag() == tag).count();
        return format!("(lines: +{} -{})", lines(similar::ChangeTag::Insert), lines(similar::ChangeTag::Delete));
    }
    let same = common(&was, &is);
    let part = |text: &str| match same {
        0 => plain(text),
        same => plain(&format!("…{}", text.get(same..).unwrap_or_default())),
    };
    format!("{} → {}", part(&was), part(&is))
}

/// Returns the values of a change, given as JSON: `3 → 0`, `web:1.2 → nothing`; nothing for lists and objects.
pub(crate) fn values_of(was: Option<&str>, is: Option<&str>) -> String {
    let is_gone = is.is_none();
    let is_leaf = |json: &&str| !json.starts_with(['{', '[']);
    let (was, is) = (was.filter(is_leaf), is.filter(is_leaf));
    match (
        was.and_then(|json| Node::parse(json.as_bytes()).ok()),
        is.and_then(|json| Node::parse(json.as_bytes()).ok()),
    ) {
        (Some(was), Some(is)) => values(&was, &is),
        (Some(was), None) if is_gone => format!("{} → nothing", value(&was)),
        (None, _) if is_gone => "→ nothing".to_owned(),
        _ => String::new(),
    }
}

/// A value as people write it: in quotes only where it has to be.
fn plain(text: &str) -> String {
    let text: Cow<'_, str> = if text.is_empty() || text.contains(char::is_whitespace) {
        Cow::Owned(format!("{text:?}"))
    } else {
        Cow::Borrowed(text)
    };
    printable(&cut(&text, VALUE)).into_owned()
}

/// Returns the length of the common prefix of two long texts up to the word in which they differ, in bytes, so that an image
/// shows its tag and not its registry. 0 for short texts: they are shown whole.
pub(crate) fn common(a: &str, b: &str) -> usize {
    if a.len().max(b.len()) <= VALUE / 2 {
        return 0;
    }
    let same = a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count();
    a.as_bytes()[..same].iter().rposition(|byte| b":/ ,=@".contains(byte)).map_or(0, |at| at + 1)
}
