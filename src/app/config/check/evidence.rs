//! `[evidence]`: who cosigns for whom. A witness has one memory, so it cannot be on two machines.

use std::collections::HashMap;

use super::super::tree::Node;
use super::{Checker, MISSING};

/// Witnesses that are asked at most: a note has room for their cosignatures.
const WITNESSES_MAX: usize = 16;

impl Checker<'_> {
    pub(super) fn witnesses(&mut self, root: &Node) {
        let Some(evidence) = root.get("evidence") else { return };
        self.one_key_twice(evidence, "witness");
        self.one_key_twice(evidence, "witnessed");
        let of = |key: &str| evidence.get(key).map_or(&[][..], Node::elements);
        if let Some(more) = of("witness").get(WITNESSES_MAX) {
            let found = format!("{} witnesses", of("witness").len());
            self.report(&more.place, "evidence.witness", found, format!("at most {WITNESSES_MAX}"));
        }
        let Some(first) = of("witnessed").first() else { return };
        if root.get("http").is_none() {
            let expected = "an [http] section in this file: it serves POST /witness/add-checkpoint, which other decklogs send to";
            self.report(&first.place, "http", MISSING, expected);
        }
        if root.get("ha").is_some() {
            let found = "a log to witness beside [ha]";
            let expected = "no [[evidence.witnessed]] beside [ha]: what was cosigned is remembered on one machine, and another \
                            replica would cosign what this one has refused";
            self.report(&first.place, "evidence.witnessed", found, expected);
        }
    }

    fn one_key_twice(&mut self, evidence: &Node, list: &str) {
        let mut seen: HashMap<&str, usize> = HashMap::new();
        for (index, element) in evidence.get(list).map_or(&[][..], Node::elements).iter().enumerate() {
            let Some((node, key)) = element.get("key").and_then(|node| Some((node, node.text()?.trim()))) else { continue };
            if let Some(first) = seen.get(key) {
                let found = format!("the key of evidence.{list}[{first}]");
                self.report(&node.place, &format!("evidence.{list}[{index}].key"), found, "each key once");
            } else {
                seen.insert(key, index);
            }
        }
    }
}
