//! `[evidence]`: it needs a place, and says who cosigns for whom.

use std::collections::HashMap;

use super::super::tree::Node;
use super::{Checker, MISSING};
use crate::evidence::settings::ALONE;

/// Witnesses that are asked at most: a note has room for their cosignatures.
const WITNESSES_MAX: usize = 16;
/// Witnesses that are asked.
const WITNESS: &str = "evidence.witness";
/// Logs that are witnessed.
const WITNESSED: &str = "evidence.witnessed";

/// The section, as it stands in the file.
const SECTION: &str = "[evidence]";

impl Checker<'_> {
    pub(super) fn places_of_evidence(&mut self, root: &Node) {
        let key = SECTION.trim_matches(['[', ']']);
        if let Some(table) = root.get(key)
            && ["dir", "s3"].iter().all(|key| table.get(key).is_none())
        {
            let expected = "dir, a directory for the checkpoints, or [evidence.s3], a bucket, or both";
            self.report(&table.place, key, "neither dir nor s3", expected);
        }
    }

    pub(super) fn witnesses(&mut self, root: &Node) {
        let of = |path: &str| path.split('.').try_fold(root, Node::get).map_or(&[][..], Node::elements);
        let (asked, witnessed) = (of(WITNESS), of(WITNESSED));
        self.one_key_twice(WITNESS, asked);
        self.one_key_twice(WITNESSED, witnessed);
        if let Some(more) = asked.get(WITNESSES_MAX) {
            let found = format!("{} witnesses", asked.len());
            self.report(&more.place, WITNESS, found, format!("at most {WITNESSES_MAX}"));
        }
        let Some(first) = witnessed.first() else { return };
        if root.get("ha").is_some() {
            self.report(&first.place, WITNESSED, "a log to witness beside [ha]", ALONE);
        }
        if root.get("http").is_none() {
            let expected =
                "an [http] section in this file: it serves POST /witness/add-checkpoint, which other decklogs send to";
            self.report(&first.place, "http", MISSING, expected);
        }
    }

    fn one_key_twice(&mut self, list: &str, tables: &[Node]) {
        let mut seen: HashMap<&str, usize> = HashMap::new();
        for (index, element) in tables.iter().enumerate() {
            let Some((node, key)) = element.get("key").and_then(|node| Some((node, node.text()?.trim()))) else {
                continue;
            };
            if let Some(first) = seen.get(key) {
                let found = format!("the key of {list}[{first}]");
                self.report(&node.place, &format!("{list}[{index}].key"), found, "each key once");
            } else {
                seen.insert(key, index);
            }
        }
    }
}
