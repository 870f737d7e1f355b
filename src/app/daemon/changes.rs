//! Differences between two configurations in what may leave the daemon, for its own log. They name keys and never values, which
//! may be secrets.

use serde_json::{Map, Value};

use crate::app::config::Config;

/// One thing that is other than before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Change {
    /// What.
    pub(super) text: String,
    /// True if more may leave than before, or to another destination.
    pub(super) widens: bool,
}

/// Keys of a sink that say nothing about what it gets and where.
const HARMLESS: [&str; 8] =
    ["rotate_size", "rotate_every", "keep", "compress", "batch_size", "timeout", "on_refused", "format"];

/// Returns the differences of `new`.
pub(super) fn between(old: &Config, new: &Config) -> Vec<Change> {
    let mut changes = Vec::new();
    let mut add = |text: String, widens| changes.push(Change { text, widens });
    if old.watch != new.watch {
        add(format!("[[watch]]: {}", keys("what is watched", &object(&old.watch), &object(&new.watch))), true);
    }
    if old.redact != new.redact {
        let what = keys("the rules", &object(&old.redact), &object(&new.redact));
        add(format!("[redact]: {what}: other values are redacted from now on"), true);
    }
    for sink in &new.sink {
        match old.sink.iter().find(|other| other.name == sink.name) {
            None => add(format!("the sink {} is new", sink.name), true),
            Some(other) if other != sink => {
                let (before, after) = (object(other), object(sink));
                let widens = differing(&before, &after).any(|key| !HARMLESS.contains(&key));
                add(format!("the sink {}: {}", sink.name, keys("it", &before, &after)), widens);
            }
            Some(_) => {}
        }
    }
    for sink in &old.sink {
        if !new.sink.iter().any(|other| other.name == sink.name) {
            add(format!("the sink {} is left out; its cursor stays", sink.name), false);
        }
    }
    changes
}

/// A section as its keys and values; a list has none.
fn object(section: &impl serde::Serialize) -> Map<String, Value> {
    match serde_json::to_value(section) {
        Ok(Value::Object(map)) => map,
        _ => Map::new(),
    }
}

fn differing<'a>(old: &'a Map<String, Value>, new: &'a Map<String, Value>) -> impl Iterator<Item = &'a str> {
    let gone = old.keys().filter(|key| !new.contains_key(*key));
    let other = new.iter().filter(|(key, value)| old.get(*key) != Some(value)).map(|(key, _)| key);
    gone.chain(other).map(String::as_str)
}

/// The keys that differ; `what` where there are no keys.
fn keys(what: &str, old: &Map<String, Value>, new: &Map<String, Value>) -> String {
    let named: Vec<String> = differing(old, new).map(|key| format!("`{key}`")).collect();
    if named.is_empty() { format!("{what} changed") } else { format!("{} changed", named.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Config {
        toml::from_str(&format!("[[watch]]\nresources = [\"pods\"]\n{text}")).unwrap()
    }

    /// Fault 88: a reload that lets more out says so, and names no value.
    #[test]
    fn what_a_reload_lets_out_is_named_by_key() {
        let file = |more: &str| format!("[[sink]]\nname = \"audit\"\ntype = \"file\"\npath = \"a\"\n{more}\n");
        let old = config(&file("where = 'kind == \"Secret\"'\npayload = \"metadata\""));
        assert_eq!(between(&old, &old), []);
        for (new, text, widens) in [
            (file("payload = \"metadata\""), "the sink audit: `where` changed", true),
            (file("where = 'kind == \"Secret\"'"), "the sink audit: `payload` changed", true),
            (
                file("where = 'kind == \"Secret\"'\npayload = \"metadata\"\nkeep = 3"),
                "the sink audit: `keep` changed",
                false,
            ),
            (String::new(), "the sink audit is left out; its cursor stays", false),
        ] {
            assert_eq!(between(&old, &config(&new)), [Change { text: text.to_owned(), widens }], "{new}");
        }
        let same = file("where = 'kind == \"Secret\"'\npayload = \"metadata\"");
        let more = same.clone() + "[[sink]]\nname = \"siem\"\ntype = \"http\"\nurl = \"http://siem/?hunter2\"\n";
        assert_eq!(between(&old, &config(&more)), [Change { text: "the sink siem is new".to_owned(), widens: true }]);
        let text = between(&old, &config(&(same.clone() + "[redact]\ndefaults = false\n")))[0].text.clone();
        assert_eq!(text, "[redact]: `defaults` changed: other values are redacted from now on");
        let wider = between(&old, &config(&(same + "[[watch]]\nresources = [\"secrets\"]\n")));
        assert!(wider.len() == 1 && wider[0].widens && wider[0].text.contains("[[watch]]"), "{wider:?}");
    }
}
