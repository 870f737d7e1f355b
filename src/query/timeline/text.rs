//! Texts of an answer: a change, an object, and the commands about it.

use crate::core::k8s::bookkeeping;
use crate::core::model::{EntryType, Seq};
use crate::journal::ObjectRow;
use crate::query::render::names::kind;
use crate::query::render::tree::Node;
use crate::query::render::yaml::{self, View};

/// Bytes of a text in an answer.
pub(super) const TEXT: usize = 256 << 10;
/// Bytes of a line of it.
const LINE: usize = 32 << 10;
/// Values of an object for which nodes are built: far more than a text has lines.
pub(super) const NODES: usize = 20_000;

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
pub(super) fn difference(mut tree: Node<'_>) -> (String, bool) {
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
pub(super) fn shown(object: &[u8]) -> (String, bool) {
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
pub(super) fn spelled(row: &ObjectRow) -> String {
    named(&kind(&row.resource), row)
}

fn named(kind: &str, row: &ObjectRow) -> String {
    let plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._/:@".contains(&byte));
    let quoted = |text: String| if plain(&text) { text } else { format!("'{}'", text.replace('\'', r"'\''")) };
    let name = quoted(format!("{kind}/{}", row.name));
    if row.namespace.is_empty() { name } else { format!("{name} -n {}", quoted(row.namespace.clone())) }
}

/// The command that brings an object back as it was after an entry.
pub(super) fn brings_back(row: &ObjectRow, seq: Seq) -> String {
    format!("decklog get {} --at {seq} --clean | kubectl apply -f -", spelled(row))
}

/// The command that undoes an entry: it brings back the object as it was after the entry before, or deletes one that came. What a
/// first list found was there before, and what was before is not known.
pub(super) fn undoes(row: &ObjectRow, entry: (EntryType, &str), previous: Option<Seq>) -> Option<String> {
    match entry {
        (EntryType::Added, "listed") | (EntryType::Gap | EntryType::Actor, _) => None,
        (EntryType::Added, _) => Some(format!("kubectl delete {}", named(&row.resource.full_name(), row))),
        (EntryType::Modified | EntryType::Deleted, _) => previous.map(|seq| brings_back(row, seq)),
    }
}
