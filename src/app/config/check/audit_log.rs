//! `[[audit_log]]`: one source each, and known senders.

use super::{Checker, Node};
use crate::audit_log::{Mistake, Settings};

impl Checker<'_> {
    pub(super) fn audit_logs(&mut self, root: &Node) {
        let tables = root.get("audit_log").map_or(&[][..], Node::elements);
        let mut known: Vec<(String, Settings)> = Vec::new();
        for (index, table) in tables.iter().enumerate() {
            // One that is wrong in itself is reported as such.
            let Ok(settings) = serde_json::from_value::<Settings>(table.to_json()) else { continue };
            let name = format!("audit_log[{index}]");
            let mut mistakes = settings.mistakes();
            if let Some(listen) = settings.listen.as_ref().filter(|_| settings.file.is_none()) {
                self.identity(&name, table, listen);
            }
            mistakes.extend(known.iter().flat_map(|(other_name, other)| settings.clashes(other, other_name)).take(1));
            for mistake in &mistakes {
                self.mistake(table, &name, mistake);
            }
            known.push((name, settings));
        }
    }

    fn mistake(&mut self, table: &Node, name: &str, mistake: &Mistake) {
        let node = mistake.key().and_then(|key| table.get(key)).unwrap_or(table);
        let key = mistake.key().map_or_else(|| name.to_owned(), |key| format!("{name}.{key}"));
        self.report(&node.place, &key, mistake.found(), mistake.expected());
    }
}
