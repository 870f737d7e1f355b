//! What changed, in a few words: `image nginx:1 → nginx:2`, `condition Ready False → True`, `spec.paused false → true`.

use std::borrow::Cow;

use super::output::{Ink, Row, cut, printable};
use super::tree::{Body, Mark, Node, Step};
use super::who;
use crate::k8s::bookkeeping;
use crate::k8s::managed_fields::{ManagedFields, Manager};
use crate::model::EntryType;
use crate::wire::{Change, Entry};

/// An entry, described: its object with what the change did to it, and who did it.
pub(super) struct Described<'e> {
    pub(super) tree: Node<'e>,
    pub(super) areas: Vec<String>,
    pub(super) managers: Vec<Manager>,
}

impl<'e> Described<'e> {
    /// Reads an entry that is not a gap.
    ///
    /// # Errors
    /// What is wrong with it, where it is damaged.
    pub(super) fn read(entry: &Entry<'e>) -> Result<Self, String> {
        let damaged = |error: serde_json::Error| error.to_string();
        let object = entry.object.ok_or("it has no object")?.get();
        let tree = Node::parse(object.as_bytes()).map_err(damaged)?;
        Ok(match (entry.op, entry.evidence.as_deref()) {
            (EntryType::Modified, _) => {
                let change = Change::of(entry).map_err(damaged)?.unwrap_or_default();
                let mut tree = tree;
                tree.revert(&change.patch).map_err(damaged)?;
                for area in change.dropped() {
                    tree.redacted(&format!("/{area}"));
                }
                Self { tree, areas: change.areas, managers: change.managers }
            }
            (EntryType::Added, Some("watched")) => {
                Self { tree: tree.added(), areas: Vec::new(), managers: ManagedFields::of(object.as_bytes()).all() }
            }
            (EntryType::Deleted, _) => Self { tree: tree.gone(), areas: Vec::new(), managers: Vec::new() },
            // Who made what was found on a list is not known by that.
            _ => Self { tree: tree.added(), areas: Vec::new(), managers: Vec::new() },
        })
    }

    /// Puts what changed on a line with those who did it: as much as there is room for.
    pub(super) fn put(&self, row: &mut Row) {
        What::of(&self.tree, &self.areas).put(row, &self.managers);
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
/// From this rank on a change is not shown.
const NOISE: u8 = 20;

/// One thing that changed.
#[derive(Debug)]
struct Item {
    /// What people look for first comes first.
    rank: u8,
    /// `spec.template.spec.nodeName`, or a word for it.
    name: String,
    /// As short as it can be.
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

/// What changed between two versions.
#[derive(Debug)]
struct What {
    areas: String,
    items: Vec<Item>,
}

impl What {
    /// Of a tree that a patch was taken back from, with the areas that the entry names.
    fn of(tree: &Node<'_>, areas: &[String]) -> Self {
        let mut items: Vec<Item> = Vec::new();
        for mut found in tree.differences() {
            let mark = &found.node.mark;
            describe_all(tree, &mut found.path, found.node, mark, &mut items);
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
        let areas = if names.is_empty() { "nothing but resourceVersion".to_owned() } else { names.join(" ") };
        Self { areas: printable(&areas).into_owned(), items }
    }

    /// Puts it on a line with those who did it: as much as there is room for.
    fn put(&self, row: &mut Row, managers: &[Manager]) {
        row.put(Some(Ink::Change), &self.areas);
        let who = |fully| match who::spell(managers, fully) {
            names if names.is_empty() => names,
            names => format!("  ({names})"),
        };
        let (fully, names, nobody) = (who(true), who(false), String::new());
        let most = self.items.len().min(MOST);
        let text = |count: usize, shortly: bool, more: &str| {
            let items: Vec<String> = self.items[..count].iter().map(|item| item.spell(shortly)).collect();
            let rest = self.items.len() - count;
            let gap = if count == 0 { "" } else { "  " };
            format!("{gap}{}{}", items.join(", "), if rest == 0 { String::new() } else { format!(", +{rest}{more}") })
        };
        // What changed counts more than how it was written, and one change in full more than many that are cut. Nobody
        // is left out where there is room for half of a name.
        let mut candidates = Vec::new();
        for count in (1..=most).rev() {
            candidates.extend([(text(count, false, " more"), &fully, 0), (text(count, false, " more"), &names, 0)]);
        }
        let one = most.min(1);
        let half = names.chars().count().div_ceil(2).min(12);
        for more in [" more", ""] {
            candidates.extend([(text(one, true, more), &fully, 0), (text(one, true, more), &names, 0)]);
        }
        candidates.extend([(text(one, true, ""), &names, half), (text(one, true, ""), &nobody, 0)]);
        let fits = |(text, who, at_least): &&(String, &String, usize)| {
            let least = if *at_least == 0 { who.chars().count() } else { *at_least };
            row.room().is_none_or(|room| text.chars().count() + least <= room)
        };
        let Some((text, who, _)) = candidates.iter().find(fits).or(candidates.last()) else { return };
        row.put(None, text).put(Some(Ink::Faint), who);
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
            return Item { rank: 0, short: name.clone(), name, values: String::new(), sign: "" };
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
            return Item { rank: CONDITION, short: name.clone(), name, values, sign: sign(mark) };
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
    Item { rank, name: printable(&name).into_owned(), short: printable(&short).into_owned(), values, sign: sign(mark) }
}

const fn sign(mark: &Mark<'_>) -> &'static str {
    match mark {
        Mark::Added => "+",
        Mark::Gone => "-",
        Mark::Same | Mark::Was(_) | Mark::Redacted => "",
    }
}

/// Whether the element that a path leads through last is the only one of its list.
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

/// A value as people write it: in quotes only where it has to be.
fn plain(text: &str) -> String {
    let text: Cow<'_, str> = if text.is_empty() || text.contains(char::is_whitespace) {
        Cow::Owned(format!("{text:?}"))
    } else {
        Cow::Borrowed(text)
    };
    printable(&cut(&text, VALUE)).into_owned()
}

/// How many bytes of two long texts are the same up to the word in which they differ, so that an image shows its tag
/// and not its registry. 0 for short texts: they are shown whole.
pub(super) fn common(a: &str, b: &str) -> usize {
    if a.len().max(b.len()) <= VALUE / 2 {
        return 0;
    }
    let same = a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count();
    a.as_bytes()[..same].iter().rposition(|byte| b":/ ,=@".contains(byte)).map_or(0, |at| at + 1)
}
