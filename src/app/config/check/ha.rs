//! `[ha]`: the sink that it names has to be one that can keep the shared log, and everybody who takes over has to redact in
//! the same way.

use super::super::tree::Node;
use super::{Checker, MISSING, nearest, tag_of};
use crate::sink::Class;
use crate::sink::registry::SinkKind;

impl Checker<'_> {
    /// Checks `[ha]` beyond its own keys. `kinds` are the sinks, as far as they are right.
    pub(super) fn shared_log(&mut self, root: &Node, kinds: &[Option<SinkKind>]) {
        let Some(ha) = root.get("ha") else { return };
        let key = root.get("redact").and_then(|redact| redact.get("key_file"));
        if key.is_none() {
            let place = &root.get("redact").unwrap_or(ha).place;
            let expected = "the path of a file with the key of the digests, the same for every decklog of this shared log: \
                            beside [ha] no key is made up, because two would redact in two ways";
            self.report(place, "redact.key_file", MISSING, expected);
        }
        let Some((named, name)) = ha.get("log").and_then(|node| Some((node, node.text()?))) else { return };
        let sinks = root.get("sink").map_or(&[][..], Node::elements);
        let name_of = |sink: &'_ Node| sink.get("name").and_then(Node::text).map(str::to_owned);
        let Some(index) = sinks.iter().position(|sink| name_of(sink).as_deref() == Some(name)) else {
            let names: Vec<String> = sinks.iter().filter_map(name_of).collect();
            let near = nearest(name, names.iter().map(String::as_str));
            let found = format!("{name:?}, and no [[sink]] is called that");
            return self.report_near(&named.place, "ha.log", found, KEEPER, near);
        };
        let sink = &sinks[index];
        if let Some(node) = sink.get("where") {
            let found = format!("a filter, and [ha] log names this sink as {name:?}");
            let expected = "no `where`, because the shared log has every entry; another sink can have it";
            self.report(&node.place, &format!("sink[{index}].where"), found, expected);
        }
        if let Some(node) = sink.get("payload").filter(|node| node.text() != Some("full")) {
            let found = format!("{}, and [ha] log names this sink as {name:?}", node.described(false));
            let expected = "\"full\", because the shared log has whole objects";
            self.report(&node.place, &format!("sink[{index}].payload"), found, expected);
        }
        // What is wrong with the sink itself was said.
        if let Some(Some(kind)) = kinds.get(index)
            && !can_keep(kind, name)
        {
            let found = format!("{name:?}, a sink of type {:?}, which keeps no shared log", tag_of(sink));
            self.report(&named.place, "ha.log", found, KEEPER);
        }
    }
}

/// Expectation for `log`.
const KEEPER: &str =
    "the name of a sink that is exactly once and can keep a shared log: of type \"postgres\", \"s3\" or \"nats\"";

fn can_keep(kind: &SinkKind, name: &str) -> bool {
    let settings = kind.settings();
    // One that this build cannot open was left out of it; that is said where it is opened.
    let exactly_once = || settings.open().map_or(true, |sink| sink.class() == Class::ExactlyOnce);
    settings.shared_log(name, "").is_some() && exactly_once()
}
