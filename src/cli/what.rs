//! What changed, in a few words: `image nginx:1 → nginx:2`, `condition Ready False → True`, `spec.paused false → true`.

use std::borrow::Cow;

use super::output::{Ink, Row, cut, printable};
use super::tree::{Body, Difference, Manager, Mark, Node, Step};
use super::who;

/// A value is shown with at most so many characters.
const VALUE: usize = 32;
/// A line tells at most so many values.
const MOST: usize = 3;
/// From here on a value is told only by how many there are of it.
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
pub(super) struct What {
    areas: String,
    items: Vec<Item>,
}

impl What {
    /// Of a tree that a patch was taken back from, with the areas that the entry names.
    pub(super) fn of(tree: &Node<'_>, areas: &[String]) -> Self {
        let mut items: Vec<Item> = tree.differences().iter().map(|found| describe(tree, found)).collect();
        // Why and when a condition changed matters less than that it did.
        let told: Vec<String> =
            items.iter().filter(|item| item.rank == CONDITION).map(|item| item.name.clone() + ".").collect();
        items.retain(|item| item.rank == CONDITION || !told.iter().any(|told| item.name.starts_with(told.as_str())));
        items.sort_by_key(|item| item.rank);
        let noise = items.iter().position(|item| item.rank >= NOISE).unwrap_or(items.len());
        items.truncate(noise);
        // Every change moves metadata; it is only worth a word where there is nothing else.
        let told = |area: &&String| !["managedFields", "metadata"].contains(&area.as_str());
        let mut names: Vec<&str> = areas.iter().filter(told).map(String::as_str).collect();
        if names.is_empty() {
            names = areas.iter().map(String::as_str).collect();
        }
        let areas = if names.is_empty() { "nothing but resourceVersion".to_owned() } else { names.join(" ") };
        Self { areas: printable(&areas).into_owned(), items }
    }

    /// Puts it on a line with those who did it: as much as there is room for.
    pub(super) fn put(&self, row: &mut Row, managers: &[Manager]) {
        row.put(Some(Ink::Change), &self.areas);
        let who = |fully| match who::spell(managers, fully) {
            names if names.is_empty() => names,
            names => format!("  ({names})"),
        };
        let (fully, names) = (who(true), who(false));
        let most = self.items.len().min(MOST);
        let told = |count: usize, shortly: bool| {
            let items: Vec<String> = self.items[..count].iter().map(|item| item.spell(shortly)).collect();
            let rest = self.items.len() - count;
            let gap = if count == 0 { "" } else { "  " };
            format!("{gap}{}{}", items.join(", "), if rest == 0 { String::new() } else { format!(", +{rest} more") })
        };
        let mut candidates = Vec::new();
        // What changed counts more than how it was written, and one change in full more than many that are cut.
        for count in (1..=most).rev() {
            candidates.extend([(told(count, false), fully.as_str()), (told(count, false), names.as_str())]);
        }
        let one = most.min(1);
        candidates.extend([&*fully, &*names, ""].map(|who| (told(one, true), who)));
        let fits = |(text, who): &&(String, &str)| {
            row.room().is_none_or(|room| text.chars().count() + who.chars().count() <= room)
        };
        let Some((text, who)) = candidates.iter().find(fits).or(candidates.last()) else { return };
        row.put(None, text).put(Some(Ink::Faint), who);
    }
}

/// The rank of a condition that has another status.
const CONDITION: u8 = 4;

fn describe(tree: &Node<'_>, found: &Difference<'_, '_>) -> Item {
    use Step::{Element, Key};
    let path = &found.path[..];
    let time = matches!(path.last(), Some(Key(key)) if key.ends_with("Time") || key.ends_with("Timestamp"));
    let (rank, word) = match path {
        [Key("metadata"), Key("managedFields" | "resourceVersion" | "generation"), ..] => (NOISE, None),
        [Key("metadata"), Key("annotations"), Key("kubectl.kubernetes.io/last-applied-configuration")] => (NOISE, None),
        [Key("metadata"), Key("deletionTimestamp")] if matches!(found.node.mark, Mark::Added) => {
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
        [Key("status"), Key("conditions"), Element(name, _, node)] => {
            let status = node.member("status").and_then(Node::text).unwrap_or_default();
            let values = if matches!(found.node.mark, Mark::Added) { plain(&status) } else { String::new() };
            let name = printable(&format!("condition {name}")).into_owned();
            return Item { rank: CONDITION, short: name.clone(), name, values, sign: sign(found.node) };
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
    let values = match &found.node.mark {
        Mark::Was(was) if path.is_empty() || matches!(was.body, Body::Object(_) | Body::Array(_)) => String::new(),
        Mark::Was(was) => values(was, found.node),
        Mark::Added => value(found.node),
        Mark::Redacted => "changed (redacted)".to_owned(),
        Mark::Gone | Mark::Same => String::new(),
    };
    Item {
        rank,
        name: printable(&name).into_owned(),
        short: printable(&short).into_owned(),
        values,
        sign: sign(found.node),
    }
}

const fn sign(node: &Node<'_>) -> &'static str {
    match node.mark {
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
fn common(a: &str, b: &str) -> usize {
    if a.len().max(b.len()) <= VALUE / 2 {
        return 0;
    }
    let same = a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count();
    a.as_bytes()[..same].iter().rposition(|byte| b":/ ,=@".contains(byte)).map_or(0, |at| at + 1)
}
